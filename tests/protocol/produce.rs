//! Produce: what is taken, what is refused, and with which words.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::calls::{self, append, end, fetch, outcome, produce};
use crate::cluster::{Cluster, unique};
use crate::support::batch::{Batch, CONTROL, LOG_APPEND_TIME, Record, read_batches};
use crate::support::requests::{self, Topic};

in_every_mode!(
    every_version_stores_what_was_sent,
    bad_batches_are_refused_and_nothing_is_stored,
    what_real_brokers_accept_is_accepted,
    records_at_fault_are_named,
    timestamps_are_corrected_in_the_header,
    append_time_replaces_record_times,
    acknowledgements,
    errors_without_acknowledgement_close_the_connection,
    partitions_of_a_request_fail_alone,
    unknown_topics_and_partitions,
    sizes,
    headers_keep_order_and_duplicates,
    transactional_batches_need_an_id,
    internal_topics_are_for_the_broker,
);

/// The bytes of `batch` as the log must have them.
fn stored(batch: &Batch, base_offset: i64, leader_epoch: i32) -> Bytes {
    let bytes = batch.encode();
    let mut stored = BytesMut::new();
    stored.put_i64(base_offset);
    stored.put_slice(&bytes[8..12]);
    stored.put_i32(leader_epoch);
    stored.put_slice(&bytes[16..bytes.len() - batch.trailing.len()]);
    stored.freeze()
}

fn every_version_stores_what_was_sent(cluster: &Cluster) {
    let topic = cluster.topic("versions", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    let mut expected = BytesMut::new();
    for version in 3..=13_i16 {
        let mut batch = Batch::of(vec![
            Record::keyed("k", format!("v{version}")).header("h", Some(b"1")),
            Record { timestamp_delta: 7, ..Record::default() },
        ]);
        batch.partition_leader_epoch = 9;
        let base = i64::from(version - 3) * 2;
        let answer = produce(&mut client, version, &topic, 0, batch.encode());
        assert_eq!((answer.error_code, answer.base_offset), (0, base), "version {version}");
        let log_start = if version >= 5 { 0 } else { -1 };
        assert_eq!((answer.log_append_time_ms, answer.log_start_offset), (-1, log_start));
        assert_eq!((answer.record_errors.len(), answer.error_message), (0, None));
        expected.put_slice(&stored(&batch, base, epoch));
    }
    let data = fetch(&mut client, 18, &topic, 0, 0);
    assert_eq!(data.high_watermark, 22);
    assert_eq!(data.records, Some(expected.freeze()));
}

fn of(count: usize) -> Batch {
    Batch::of_values((0..count).map(|number| format!("value {number}")))
}

fn changed(change: impl Fn(&mut Batch)) -> Bytes {
    let mut batch = of(3);
    change(&mut batch);
    batch.encode()
}

fn changed_record(change: impl Fn(&mut Record)) -> Bytes {
    changed(|batch| change(&mut batch.records[1]))
}

fn refused() -> Vec<(&'static str, i16, Bytes)> {
    let plain = of(3).encode();
    let twice = Bytes::from([&plain[..], &plain[..]].concat());
    let cut = |length: usize| plain.slice(..length);
    let mut wrong_crc = plain.to_vec();
    *wrong_crc.last_mut().expect("bytes") ^= 1;
    vec![
        ("no bytes", 87, Bytes::new()),
        ("two batches", 87, twice),
        ("ten bytes", 87, cut(10)),
        ("a cut batch", 87, cut(plain.len() - 1)),
        ("a length beyond the end", 87, changed(|b| b.length = Some(10_000))),
        ("length 5", 2, changed(|b| b.length = Some(5))),
        ("length -1", 2, changed(|b| b.length = Some(-1))),
        ("zeros after the batch", 2, changed(|b| b.trailing = vec![0; 20])),
        ("a wrong checksum", 2, changed(|b| b.crc = Some(1))),
        ("a flipped bit", 2, wrong_crc.into()),
        ("magic 0", 87, changed(|b| b.magic = 0)),
        ("magic 1", 87, changed(|b| b.magic = 1)),
        ("magic 3", 2, changed(|b| b.magic = 3)),
        ("a base offset", 87, changed(|b| b.base_offset = 77)),
        ("last delta 5 of 3", 87, changed(|b| b.last_offset_delta = Some(5))),
        ("last delta 1 of 3", 87, changed(|b| b.last_offset_delta = Some(1))),
        ("last delta -1 of 3", 87, changed(|b| b.last_offset_delta = Some(-1))),
        ("count 4 of 3", 87, changed(|b| b.record_count = Some(4))),
        (
            "count 4 of 3, last delta fits",
            87,
            changed(|b| (b.record_count, b.last_offset_delta) = (Some(4), Some(3))),
        ),
        (
            "count 2 of 3, last delta fits",
            87,
            changed(|b| (b.record_count, b.last_offset_delta) = (Some(2), Some(1))),
        ),
        ("count 0", 87, of(0).encode()),
        ("count 0, last delta 0", 87, Batch { last_offset_delta: Some(0), ..of(0) }.encode()),
        ("count -1", 87, changed(|b| b.record_count = Some(-1))),
        ("largest count", 87, changed(|b| b.record_count = Some(i32::MAX))),
        ("control records", 87, changed(|b| b.attributes |= CONTROL)),
        ("a record's length beyond the end", 87, changed_record(|r| r.length = Some(500))),
        ("a record's length -1", 87, changed_record(|r| r.length = Some(-1))),
        ("a record's length too small", 87, changed_record(|r| r.length = Some(3))),
        ("-1 headers", 87, changed_record(|r| r.header_count = Some(-1))),
        ("more headers than bytes", 87, changed_record(|r| r.header_count = Some(i32::MAX))),
        ("offset deltas out of order", 87, changed_record(|r| r.offset_delta = Some(2))),
        ("a producer without a sequence", 87, of(1).with_producer(9, 0, -1).encode()),
        ("unknown codec 5", 76, changed(|b| b.attributes = 5)),
        ("unknown codec 7", 76, changed(|b| b.attributes = 7)),
        ("no gzip", 87, changed(|b| b.attributes = 1)),
        ("no snappy", 87, changed(|b| b.attributes = 2)),
        ("no lz4", 87, changed(|b| b.attributes = 3)),
        ("no zstd", 87, changed(|b| b.attributes = 4)),
    ]
}

fn bad_batches_are_refused_and_nothing_is_stored(cluster: &Cluster) {
    let topic = cluster.topic("refused", 1);
    let mut client = cluster.at(&topic, 0);
    assert_eq!(append(&mut client, &topic, 0, &of(1)), 0);
    for (what, code, set) in refused() {
        for version in [3, 8, 9, 13] {
            let expected = match what {
                "no zstd" if version < 7 => 76,
                _ => code,
            };
            let answer = produce(&mut client, version, &topic, 0, set.clone());
            assert_eq!(answer.error_code, expected, "{what}, version {version}");
            assert_eq!((answer.base_offset, answer.log_append_time_ms), (-1, -1), "{what}");
            assert_eq!(answer.record_errors.len(), 0, "{what}");
        }
    }
    let mut request = requests::produce(9, &topic, 0, -1, Bytes::new());
    request.topic_data[0].partition_data[0].records = None;
    let answer = calls::only_produced(client.call(9, &request), 0);
    assert_eq!((answer.error_code, answer.base_offset), (87, -1), "null records");
    assert_eq!(end(&mut client, &topic, 0), 1);
}

fn what_real_brokers_accept_is_accepted(cluster: &Cluster) {
    let topic = cluster.topic("accepted", 1);
    let mut client = cluster.at(&topic, 0);
    let sets = [
        ("bytes after the batch", changed(|b| b.trailing = vec![1, 2, 3, 4, 5])),
        ("attributes of a record", changed_record(|r| r.attributes = 0x55)),
        ("unused attribute bits", changed(|b| b.attributes = 0x4080)),
        ("no producer id with a sequence", of(3).with_producer(-1, -1, 0).encode()),
        (
            "times -1, 0, -5",
            changed(|b| {
                b.base_timestamp = -5;
                b.records[1].timestamp_delta = 4;
                b.records[2].timestamp_delta = 5;
            }),
        ),
    ];
    for (place, (what, set)) in sets.into_iter().enumerate() {
        let answer = produce(&mut client, 13, &topic, 0, set);
        assert_eq!((answer.error_code, answer.base_offset), (0, 3 * place as i64), "{what}");
    }
    let batches = calls::read_all(&mut client, &topic, 0, 0);
    assert_eq!(batches.len(), 5);
    assert!(batches.iter().all(|batch| batch.crc_is_valid && batch.record_count == 3));
    assert_eq!(batches[2].attributes, 0x4080);
    assert_eq!(batches[4].max_timestamp, 0);
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("milliseconds")
}

fn records_at_fault_are_named(cluster: &Cluster) {
    let topic = cluster.topic("times", 1);
    let mut client = cluster.at(&topic, 0);
    let mut batch = of(3);
    batch.base_timestamp = now_ms();
    batch.records[1].timestamp_delta = 2 * 3_600_000;
    for version in [3, 7, 8, 9, 13] {
        let answer = produce(&mut client, version, &topic, 0, batch.encode());
        assert_eq!((answer.error_code, answer.base_offset), (32, -1));
        if version < 8 {
            assert_eq!((answer.record_errors.len(), answer.error_message), (0, None));
            continue;
        }
        let message = "One or more records have been rejected due to invalid timestamp";
        assert_eq!(answer.error_message.as_deref(), Some(message));
        assert_eq!(answer.record_errors.len(), 1);
        let error = &answer.record_errors[0];
        assert_eq!(error.batch_index, 1);
        let text = error.batch_index_error_message.as_deref().expect("a text");
        let start = format!(
            "Timestamp {} of message with offset 1 is out of range. The timestamp should be \
             within [",
            batch.base_timestamp + 7_200_000
        );
        assert!(text.starts_with(&start), "{text}");
    }
    batch.records[1].timestamp_delta = 59 * 60_000;
    assert_eq!(append(&mut client, &topic, 0, &batch), 0);
    let compacted = cluster.topic_with("compacted", 1, &[("cleanup.policy", "compact")]);
    let mut client = cluster.at(&compacted, 0);
    let batch = Batch::of(vec![Record::keyed("k", "v"), Record::value("v"), Record::value("w")]);
    let answer = produce(&mut client, 13, &compacted, 0, batch.encode());
    assert_eq!((answer.error_code, answer.base_offset), (87, -1));
    let text = format!(
        "Compacted topic cannot accept message without key in topic partition {}-0",
        compacted.name
    );
    let errors: Vec<_> = answer
        .record_errors
        .iter()
        .map(|error| (error.batch_index, error.batch_index_error_message.as_deref()))
        .collect();
    assert_eq!(errors, [(1, Some(&text[..])), (2, Some(&text[..]))]);
    let message = format!(
        "One or more records have been rejected due to 2 record errors in total, and only showing \
         the first three errors at most: [RecordError(batchIndex=1, message='{text}'), \
         RecordError(batchIndex=2, message='{text}')]"
    );
    assert_eq!(answer.error_message.as_deref(), Some(&message[..]));
    assert_eq!(end(&mut client, &compacted, 0), 0);
}

fn timestamps_are_corrected_in_the_header(cluster: &Cluster) {
    let topic = cluster.topic("corrected", 1);
    let mut client = cluster.at(&topic, 0);
    let mut batch = of(2);
    batch.records[0].timestamp_delta = 300;
    batch.max_timestamp = Some(5);
    append(&mut client, &topic, 0, &batch);
    let data = fetch(&mut client, 18, &topic, 0, 0);
    let read = &read_batches(data.records.expect("records"))[0];
    assert!(read.crc_is_valid);
    assert_eq!((read.attributes, read.max_timestamp), (0, batch.base_timestamp + 300));
    assert_eq!(read.base_timestamp, batch.base_timestamp);
    assert_eq!(read.payload, batch.encoded_records());
    // A producer that says the broker set the times means the one in the header.
    batch.attributes = LOG_APPEND_TIME;
    assert_eq!(append(&mut client, &topic, 0, &batch), 2);
    let data = fetch(&mut client, 18, &topic, 0, 2);
    let read = &read_batches(data.records.expect("records"))[0];
    assert!(read.crc_is_valid);
    assert_eq!((read.attributes, read.max_timestamp), (0, 5));
}

fn append_time_replaces_record_times(cluster: &Cluster) {
    let configs = [("message.timestamp.type", "LogAppendTime")];
    let topic = cluster.topic_with("append-time", 1, &configs);
    let mut client = cluster.at(&topic, 0);
    let mut batch = of(2);
    batch.base_timestamp = 5;
    let before = now_ms();
    let answer = produce(&mut client, 13, &topic, 0, batch.encode());
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
    let stamped = answer.log_append_time_ms;
    assert!((before..=now_ms()).contains(&stamped), "{before} {stamped}");
    let data = fetch(&mut client, 18, &topic, 0, 0);
    let read = &read_batches(data.records.expect("records"))[0];
    assert!(read.crc_is_valid);
    assert_eq!((read.attributes, read.base_timestamp), (LOG_APPEND_TIME, 5));
    assert_eq!(read.max_timestamp, stamped);
    assert!(read.records.iter().all(|record| record.timestamp == stamped));
    let found = calls::list(&mut client, 7, &topic, 0, -3);
    assert_eq!((found.error_code, found.offset, found.timestamp), (0, 0, stamped));
}

fn acknowledgements(cluster: &Cluster) {
    let topic = cluster.topic("acks", 1);
    let mut client = cluster.at(&topic, 0);
    let request = |acks| requests::produce(9, &topic, 0, acks, of(1).encode());
    for (acks, base) in [(1, 0), (-1, 1)] {
        let answer = calls::only_produced(client.call(9, &request(acks)), 0);
        assert_eq!((answer.error_code, answer.base_offset), (0, base));
    }
    for acks in [2, 5, -2, i16::MAX] {
        let answer = calls::only_produced(client.call(9, &request(acks)), 0);
        assert_eq!((answer.error_code, answer.base_offset, answer.log_start_offset), (21, -1, -1));
        assert_eq!((answer.log_append_time_ms, answer.error_message), (-1, None));
    }
    // Not answered, but in order: the next response on the connection is the next request's.
    for _ in 0..3 {
        let _unanswered = client.send(9, &request(0));
    }
    let answer = calls::only_produced(client.call(9, &request(-1)), 0);
    assert_eq!((answer.error_code, answer.base_offset), (0, 5));
}

fn errors_without_acknowledgement_close_the_connection(cluster: &Cluster) {
    let topic = cluster.topic("unacknowledged", 3);
    let sets = [of(3).encode(), changed(|b| b.crc = Some(1)), Bytes::new()];
    for partition in 0..3 {
        for set in &sets[1..] {
            let mut client = cluster.at(&topic, partition);
            let good = requests::produce(9, &topic, partition, -1, sets[0].clone());
            let first = client.send(9, &good);
            let bad = requests::produce(9, &topic, partition, 0, set.clone());
            let _unanswered = client.send(9, &bad);
            assert_eq!(calls::only_produced(client.receive(first), partition).error_code, 0);
            client.expect_closed();
        }
        // One that only the log itself refuses, on whichever shard that is.
        let mut client = cluster.at(&topic, partition);
        append(&mut client, &topic, partition, &of(1).with_producer(77, 0, 0));
        let gap = of(1).with_producer(77, 0, 9).encode();
        let _unanswered = client.send(9, &requests::produce(9, &topic, partition, 0, gap));
        client.expect_closed();
    }
    let mut client = cluster.connect();
    let nowhere = Topic::named(&unique("nowhere"));
    let _unanswered = client.send(9, &requests::produce(9, &nowhere, 0, 0, of(1).encode()));
    client.expect_closed();
}

fn partition_data(index: i32, set: Bytes) -> PartitionProduceData {
    PartitionProduceData::default().with_index(index).with_records(Some(set))
}

fn partitions_of_a_request_fail_alone(cluster: &Cluster) {
    let topic = cluster.topic("alone", 12);
    let leader = cluster.leader(&topic, 0);
    let response = cluster.describe(&topic.name);
    let mut led: Vec<i32> = response.topics[0]
        .partitions
        .iter()
        .filter(|partition| partition.leader_id.0 == leader)
        .map(|partition| partition.partition_index)
        .collect();
    led.sort_unstable();
    let mut client = cluster.connect_to(leader);
    let nowhere = unique("nowhere");
    let mut partitions = Vec::new();
    let mut expected = Vec::new();
    for (place, &partition) in led.iter().enumerate() {
        let bad = place % 2 == 1;
        let set = if bad { changed(|b| b.crc = Some(1)) } else { of(3).encode() };
        partitions.push(partition_data(partition, set));
        expected.push(if bad { (partition, 2, -1) } else { (partition, 0, 0) });
    }
    partitions.push(partition_data(99, of(1).encode()));
    expected.push((99, 3, -1));
    let topics = vec![
        TopicProduceData::default()
            .with_name(Topic::named(&nowhere).wire_name())
            .with_partition_data(vec![partition_data(0, of(1).encode())]),
        TopicProduceData::default().with_name(topic.wire_name()).with_partition_data(partitions),
    ];
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(1000);
    let response = client.call(9, &request.with_topic_data(topics));
    let names: Vec<&str> = response.responses.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(names, [&nowhere[..], &topic.name[..]]);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 3);
    let found: Vec<_> = response.responses[1]
        .partition_responses
        .iter()
        .map(|answer| (answer.index, answer.error_code, answer.base_offset))
        .collect();
    assert_eq!(found, expected);
    let empty = ProduceRequest::default().with_acks(-1);
    assert_eq!(client.call(9, &empty).responses.len(), 0);
}

fn unknown_topics_and_partitions(cluster: &Cluster) {
    let topic = cluster.topic("known", 1);
    let mut client = cluster.at(&topic, 0);
    let check = |client: &mut _, version, topic: &Topic, partition, acks, code| {
        let set = of(1).encode();
        let request = requests::produce(version, topic, partition, acks, set);
        let response = crate::support::client::Client::call(client, version, &request);
        assert_eq!(response.node_endpoints.len(), 0);
        assert_eq!(response.responses[0].topic_id.is_nil(), version < 13 || topic.id.is_nil());
        let answer = calls::only_produced(response, partition);
        assert_eq!(
            (answer.error_code, answer.base_offset, answer.log_start_offset),
            (code, -1, -1)
        );
        assert_eq!(
            (answer.current_leader.leader_id.0, answer.current_leader.leader_epoch),
            (-1, -1)
        );
    };
    for name in [&unique("nowhere")[..], "no topic name", "", "__cluster_metadata"] {
        for version in [5, 9, 12] {
            check(&mut client, version, &Topic::named(name), 0, -1, 3);
            check(&mut client, version, &Topic::named(name), 0, 2, 3);
        }
    }
    for partition in [1, -1, i32::MAX, i32::MIN] {
        for version in [5, 12, 13] {
            check(&mut client, version, &topic, partition, -1, 3);
            check(&mut client, version, &topic, partition, 2, 3);
        }
    }
    for id in [Uuid::nil(), Uuid::from_u128(77)] {
        check(&mut client, 13, &Topic { name: String::new(), id }, 0, -1, 100);
    }
}

fn sizes(cluster: &Cluster) {
    let topic = cluster.topic_with("sizes", 1, &[("max.message.bytes", "2000")]);
    let mut client = cluster.at(&topic, 0);
    let sized = |bytes: usize| {
        let batch = Batch::of_values([vec![b'x'; bytes - 61 - 8]]);
        let excess = batch.encode().len() - bytes;
        let batch = Batch::of_values([vec![b'x'; bytes - 61 - 8 - excess]]);
        assert_eq!(batch.encode().len(), bytes);
        batch
    };
    assert_eq!(outcome(&mut client, &topic, 0, &sized(2000)), (0, 0));
    let answer = produce(&mut client, 13, &topic, 0, sized(2001).encode());
    assert_eq!((answer.error_code, answer.base_offset, answer.error_message), (10, -1, None));
    let topic = cluster.topic("megabyte", 1);
    let mut client = cluster.at(&topic, 0);
    assert_eq!(outcome(&mut client, &topic, 0, &sized(1_048_588)), (0, 0));
    assert_eq!(outcome(&mut client, &topic, 0, &sized(1_048_589)), (10, -1));
    let configs = [("internal.segment.bytes", "1000"), ("max.message.bytes", "5000")];
    let topic = cluster.topic_with("small-segments", 1, &configs);
    let mut client = cluster.at(&topic, 0);
    assert_eq!(outcome(&mut client, &topic, 0, &sized(1000)), (0, 0));
    assert_eq!(outcome(&mut client, &topic, 0, &sized(1001)), (18, -1));
    assert_eq!(end(&mut client, &topic, 0), 1);
}

fn headers_keep_order_and_duplicates(cluster: &Cluster) {
    let topic = cluster.topic("headers", 1);
    let mut client = cluster.at(&topic, 0);
    let record = Record::value("v")
        .header("b", Some(b"1"))
        .header("a", None)
        .header("b", Some(b""))
        .header("", Some(&[0xff]));
    append(&mut client, &topic, 0, &Batch::of(vec![record.clone()]));
    let read = &calls::read_all(&mut client, &topic, 0, 0)[0].records[0];
    let headers: Vec<_> =
        read.headers.iter().map(|(k, v)| (k.to_vec(), v.as_ref().map(|v| v.to_vec()))).collect();
    assert_eq!(headers, record.headers);
}

fn transactional_batches_need_an_id(cluster: &Cluster) {
    let topic = cluster.topic("transactional", 2);
    let mut client = cluster.at(&topic, 0);
    let transactional = of(1).with_producer(5, 0, 0).transactional();
    for version in [3, 9, 13] {
        // One transactional batch without an id refuses the whole request, also what is unknown.
        let mut request = requests::produce(version, &topic, 0, -1, transactional.encode());
        let mut other = request.topic_data[0].partition_data[0].clone();
        (other.index, other.records) = (99, Some(of(1).encode()));
        request.topic_data[0].partition_data.push(other);
        let answer = client.call(version, &request);
        let codes: Vec<(i32, i16, i64)> = answer.responses[0]
            .partition_responses
            .iter()
            .map(|partition| (partition.index, partition.error_code, partition.base_offset))
            .collect();
        assert_eq!(codes, [(0, 53, -1), (99, 53, -1)]);
    }
    let mut request = requests::produce(9, &topic, 0, -1, of(1).encode());
    request.transactional_id = Some(StrBytes::from_static_str("t").into());
    assert_eq!(calls::only_produced(client.call(9, &request), 0).error_code, 0, "a plain batch");
}

fn internal_topics_are_for_the_broker(cluster: &Cluster) {
    let mut client = cluster.connect();
    let find = kafka_protocol::messages::FindCoordinatorRequest::default()
        .with_key_type(0)
        .with_key(StrBytes::from_static_str("g"));
    assert_eq!(client.call(3, &find).error_code, 0);
    let topic = Topic::named("__consumer_offsets");
    let mut client = cluster.at(&topic, 0);
    let batch = Batch::of(vec![Record::keyed("k", "v")]);
    let answer = produce(&mut client, 12, &topic, 0, batch.encode());
    assert_eq!((answer.error_code, answer.base_offset), (17, -1));
}
