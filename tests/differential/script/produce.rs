//! Produce: every kind of batch, and the log that comes of it.

use std::time::SystemTime;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::peer::{MADE_UP_ID, Peer};
use crate::support::batch::{Batch, CONTROL, Record};
use crate::support::requests::{self, Topic};

pub fn ask(peer: &mut Peer) {
    for version in 3..=13 {
        let name = format!("produce-{version}");
        peer.make_topic(&name, 4, &[("max.message.bytes", "20000")]);
        let topic = Topic { id: peer.ids[&name], name };
        batches(peer, version, &topic);
        producers(peer, version, &topic);
        let mut special = Vec::new();
        if [3, 9, 13].contains(&version) {
            requests_of_many(peer, version, &topic);
            without_answers(peer, version, &topic);
            special = settings(peer, version);
        }
        for (topic, partition) in [(&topic, 0), (&topic, 1), (&topic, 2), (&topic, 3)]
            .into_iter()
            .chain(special.iter().map(|topic| (topic, 0)))
        {
            let mut request = requests::fetch(12, &Topic::named(&topic.name), partition, 0);
            request.max_bytes = 8 << 20;
            request.topics[0].partitions[0].partition_max_bytes = 8 << 20;
            // Topics with the broker's clock in their records are compared but for that.
            if topic.name.starts_with("append-time") {
                let answer = peer.call(12, &request);
                let data = &answer.responses[0].partitions[0];
                let word = format!("{} {}", data.error_code, data.high_watermark);
                peer.keep_word(&format!("the log of {}-{partition}", topic.name), &word);
            } else {
                peer.ask_fetch(&format!("the log of {}-{partition}", topic.name), 12, &request);
            }
        }
    }
    let zstd = Batch { attributes: 4, payload: Some(vec![1, 2, 3]), ..three() };
    let topic = Topic { name: "produce-13".to_owned(), id: peer.ids["produce-13"] };
    for version in [6, 7] {
        send(peer, "undecodable zstd", version, &topic, 0, zstd.encode());
    }
}

fn send(peer: &mut Peer, case: &str, version: i16, topic: &Topic, partition: i32, set: Bytes) {
    let request = requests::produce(version, topic, partition, -1, set);
    peer.ask(&format!("Produce {case}"), version, &request);
}

fn three() -> Batch {
    Batch::of_values(["one", "two", "three"])
}

fn with_deltas(deltas: [i32; 3]) -> Batch {
    let mut batch = three();
    for (record, delta) in batch.records.iter_mut().zip(deltas) {
        record.offset_delta = Some(delta);
    }
    batch
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("before the year 292 million")
}

/// Batches that differ from a good one in one thing each.
type Cases = Vec<(&'static str, Bytes)>;

fn batches(peer: &mut Peer, version: i16, topic: &Topic) {
    for (case, set) in frames_and_counts().into_iter().chain(records_and_bits()) {
        send(peer, case, version, topic, 0, set);
    }
    // Where the two sides part, offsets do as well: in a topic of its own.
    let name = format!("deltas-{version}");
    peer.make_topic(&name, 1, &[]);
    let topic = Topic { id: peer.ids[&name], name };
    for deltas in [[0, 2, 1], [0, 0, 0], [1, 2, 3]] {
        let case = format!("deltas {deltas:?}");
        send(peer, &case, version, &topic, 0, with_deltas(deltas).encode());
    }
}

fn frames_and_counts() -> Cases {
    let many_headers = Record::keyed("k", "v").header("h", Some(b"1")).header("h", None);
    let mut two = three().encode().to_vec();
    two.extend_from_slice(&three().encode());
    let cut = three().encode().slice(..70);
    let gzip = |payload: &[u8]| Batch { attributes: 1, payload: Some(payload.to_vec()), ..three() };
    vec![
        ("one", Batch::of_values(["v"]).encode()),
        ("three", three().encode()),
        ("headers", Batch::of(vec![many_headers]).encode()),
        ("null key and value", Batch::of(vec![Record::default()]).encode()),
        ("an empty set", Bytes::new()),
        ("a set of 10 bytes", Bytes::from_static(&[0; 10])),
        ("a set cut short", cut),
        ("two batches", two.into()),
        ("5 bytes of junk behind", Batch { trailing: vec![7; 5], ..three() }.encode()),
        ("20 zero bytes behind", Batch { trailing: vec![0; 20], ..three() }.encode()),
        ("length 5", Batch { length: Some(5), ..three() }.encode()),
        ("length -1", Batch { length: Some(-1), ..three() }.encode()),
        ("length too long", Batch { length: Some(5000), ..three() }.encode()),
        ("a wrong checksum", Batch { crc: Some(1), ..three() }.encode()),
        ("magic 0", Batch { magic: 0, ..three() }.encode()),
        ("magic 1", Batch { magic: 1, ..three() }.encode()),
        ("magic 3", Batch { magic: 3, ..three() }.encode()),
        ("base offset 77", Batch { base_offset: 77, ..three() }.encode()),
        ("leader epoch 9", Batch { partition_leader_epoch: 9, ..three() }.encode()),
        ("codec 5", Batch { attributes: 5, ..three() }.encode()),
        ("codec 7", Batch { attributes: 7, ..three() }.encode()),
        ("undecodable gzip", gzip(&[1, 2, 3]).encode()),
        ("undecodable snappy", Batch { attributes: 2, ..gzip(&[1, 2, 3]) }.encode()),
        ("undecodable lz4", Batch { attributes: 3, ..gzip(&[1, 2, 3]) }.encode()),
        ("undecodable zstd", Batch { attributes: 4, ..gzip(&[1, 2, 3]) }.encode()),
        ("last delta 5", Batch { last_offset_delta: Some(5), ..three() }.encode()),
        ("last delta 1", Batch { last_offset_delta: Some(1), ..three() }.encode()),
        ("last delta -1", Batch { last_offset_delta: Some(-1), ..three() }.encode()),
        (
            "a count over the records",
            Batch { record_count: Some(4), last_offset_delta: Some(3), ..three() }.encode(),
        ),
        (
            "a count under the records",
            Batch { record_count: Some(2), last_offset_delta: Some(1), ..three() }.encode(),
        ),
    ]
}

fn records_and_bits() -> Cases {
    let mut odd_record = three();
    odd_record.records[1].attributes = 3;
    let mut long_record = three();
    long_record.records[2].length = Some(4000);
    vec![
        ("count 0", Batch { record_count: Some(0), ..three() }.encode()),
        ("count -1", Batch { record_count: Some(-1), ..three() }.encode()),
        ("no records", Batch::of(vec![]).encode()),
        ("a record that runs beyond", long_record.encode()),
        ("record attributes", odd_record.encode()),
        ("the control bit", Batch { attributes: CONTROL, ..three() }.encode()),
        ("the transactional bit", three().with_producer(5, 0, 0).transactional().encode()),
        ("the timestamp type bit", Batch { attributes: 8, ..three() }.encode()),
        ("an unused bit", Batch { attributes: 0x80, ..three() }.encode()),
        ("the highest bits", Batch { attributes: 0x4000, ..three() }.encode()),
        ("the delete horizon bit", Batch { attributes: 0x40, ..three() }.encode()),
        ("a wrong highest timestamp", Batch { max_timestamp: Some(5), ..three() }.encode()),
        ("timestamp 0", Batch { base_timestamp: 0, ..three() }.encode()),
        ("timestamp -1", Batch { base_timestamp: -1, ..three() }.encode()),
        ("timestamp -5", Batch { base_timestamp: -5, ..three() }.encode()),
        ("too large", Batch::of_values([vec![7; 20_000]]).encode()),
        (
            "the largest",
            // 61 bytes of header and 11 of the record.
            Batch::of_values([vec![7; 20_000 - 61 - 11]]).encode(),
        ),
    ]
}

fn producers(peer: &mut Peer, version: i16, topic: &Topic) {
    let from = |id: i64, epoch: i16, sequence: i32| three().with_producer(id, epoch, sequence);
    for (case, batch) in [
        ("an unknown producer from 7", from(4000, 0, 7)),
        ("the next sequence", from(4000, 0, 10)),
        ("a duplicate", from(4000, 0, 10)),
        ("the duplicate before", from(4000, 0, 7)),
        ("a gap", from(4000, 0, 14)),
        ("an overlap", from(4000, 0, 11)),
        ("part of a duplicate", Batch::of_values(["x"]).with_producer(4000, 0, 10)),
        ("a new epoch from 3", from(4000, 1, 3)),
        ("a new epoch", from(4000, 1, 0)),
        ("an old epoch", from(4000, 0, 13)),
        ("epoch -1", from(4001, -1, 0)),
        ("sequence -1", from(4002, 0, -1)),
        ("no producer but a sequence", from(-1, -1, 0)),
        ("no producer but an epoch", from(-1, 0, -1)),
        ("the last sequence", from(4003, 0, i32::MAX - 2)),
        ("the first sequence after it", from(4003, 0, 0)),
        ("a wrap within", from(4004, 0, i32::MAX)),
        ("the sequence after a wrap", from(4004, 0, 2)),
    ] {
        send(peer, case, version, topic, 1, batch.encode());
    }
    for acks in [1, 2, -2] {
        let set = three().encode();
        let request = requests::produce(version, topic, 1, acks, set);
        peer.ask(&format!("Produce acks {acks}"), version, &request);
    }
    let transaction = TransactionalId(StrBytes::from_static_str("nobody"));
    let mut request = requests::produce(version, topic, 1, -1, three().encode());
    request.transactional_id = Some(transaction.clone());
    peer.ask("Produce a plain batch with a transactional id", version, &request);
    let set = from(5000, 0, 0).transactional().encode();
    let mut request = requests::produce(version, topic, 1, -1, set);
    request.transactional_id = Some(transaction);
    peer.ask("Produce in no transaction", version, &request);
}

fn entry(version: i16, topic: &Topic, data: Vec<PartitionProduceData>) -> TopicProduceData {
    let entry = TopicProduceData::default().with_partition_data(data);
    match version {
        ..13 => entry.with_name(topic.wire_name()),
        _ => entry.with_topic_id(topic.id),
    }
}

fn data(partition: i32, set: Bytes) -> PartitionProduceData {
    PartitionProduceData::default().with_index(partition).with_records(Some(set))
}

fn requests_of_many(peer: &mut Peer, version: i16, topic: &Topic) {
    let unknown = Topic { name: "nowhere".to_owned(), id: MADE_UP_ID };
    let nameless = Topic { name: "a b".to_owned(), id: Uuid::nil() };
    let set = || three().encode();
    let bad = || Batch { crc: Some(1), ..three() }.encode();
    let in_topic = |data| vec![entry(version, topic, data)];
    // Again a topic of its own where offsets part.
    let name = format!("refused-{version}");
    peer.make_topic(&name, 4, &[]);
    let refused = Topic { id: peer.ids[&name], name };
    let in_refused = |data| vec![entry(version, &refused, data)];
    let cases: Vec<(&str, Vec<TopicProduceData>)> = vec![
        ("no topics", vec![]),
        ("no partitions", in_topic(vec![])),
        ("an unknown topic", vec![entry(version, &unknown, vec![data(0, set())])]),
        ("a bad topic", vec![entry(version, &nameless, vec![data(0, set())])]),
        ("an unknown partition", in_topic(vec![data(99, set())])),
        ("partition -1", in_topic(vec![data(-1, set())])),
        ("three partitions", in_topic(vec![data(2, set()), data(0, set()), data(3, set())])),
        ("one good and one bad", in_topic(vec![data(2, set()), data(3, bad())])),
        (
            "a batch that cannot be passed over",
            in_refused(vec![data(2, set()), data(3, Batch { magic: 3, ..three() }.encode())]),
        ),
        (
            "a transactional batch beside another",
            in_refused(vec![
                data(2, set()),
                data(3, three().with_producer(6000, 0, 0).transactional().encode()),
            ]),
        ),
        (
            "a partition twice",
            in_topic(vec![data(2, set()), data(2, Batch::of_values(["x"]).encode())]),
        ),
        (
            "a topic twice",
            vec![
                entry(version, topic, vec![data(2, set())]),
                entry(version, topic, vec![data(3, set())]),
            ],
        ),
        (
            "an unknown topic beside another",
            vec![
                entry(version, &unknown, vec![data(0, set())]),
                entry(version, topic, vec![data(3, set())]),
            ],
        ),
    ];
    for (case, topics) in cases {
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(topics);
        peer.ask(&format!("Produce {case}"), version, &request);
    }
    let request = requests::produce(version, &unknown, 0, 2, set());
    peer.ask("Produce acks 2 to an unknown topic", version, &request);
}

fn without_answers(peer: &mut Peer, version: i16, topic: &Topic) {
    let unknown = Topic { name: "nowhere".to_owned(), id: MADE_UP_ID };
    for (case, topic, set) in [
        ("fine", topic, three().encode()),
        ("a wrong checksum", topic, Batch { crc: Some(1), ..three() }.encode()),
        ("an empty set", topic, Bytes::new()),
        ("an unknown topic", &unknown, three().encode()),
    ] {
        peer.send_only(version, &requests::produce(version, topic, 3, 0, set));
        // The next request is answered, or the connection is gone.
        let next = requests::list_offsets("described", 0, -2);
        peer.ask(&format!("after Produce acks 0, {case}, {version}: ListOffsets"), 5, &next);
    }
}

/// Topics whose settings have a say in what is taken.
fn settings(peer: &mut Peer, version: i16) -> Vec<Topic> {
    let mut topics = Vec::new();
    let mut make = |peer: &mut Peer, kind: &str, pairs: &[(&str, &str)]| {
        let name = format!("{kind}-{version}");
        peer.make_topic(&name, 1, pairs);
        let topic = Topic { id: peer.ids[&name], name };
        topics.push(topic.clone());
        topic
    };
    let topic = make(peer, "append-time", &[("message.timestamp.type", "LogAppendTime")]);
    send(peer, "to a topic with append times", version, &topic, 0, three().encode());
    let late = Batch { base_timestamp: now_ms() + 7_200_000, ..three() };
    send(peer, "of the future to a topic with append times", version, &topic, 0, late.encode());

    let topic = make(peer, "compacted", &[("cleanup.policy", "compact")]);
    let keyed = Record::keyed("k", "v");
    let batch = Batch::of(vec![keyed.clone(), Record::value("v"), Record::value("w")]);
    send(peer, "without keys to a compacted topic", version, &topic, 0, batch.encode());
    send(
        peer,
        "with keys to a compacted topic",
        version,
        &topic,
        0,
        Batch::of(vec![keyed]).encode(),
    );

    let bounds = [("message.timestamp.before.max.ms", "60000")];
    let topic = make(peer, "bounded-times", &bounds);
    let mut mixed = Batch { base_timestamp: now_ms(), ..three() };
    mixed.records[1].timestamp_delta = 7_200_000;
    send(peer, "of the future", version, &topic, 0, mixed.encode());
    send(peer, "of the past", version, &topic, 0, three().encode());
    send(
        peer,
        "without a time",
        version,
        &topic,
        0,
        Batch { base_timestamp: -1, ..three() }.encode(),
    );
    topics
}
