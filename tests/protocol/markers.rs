//! WriteTxnMarkers and DescribeProducers, and what readers of committed records see of a
//! transaction that no coordinator knows: with the verification switched off a producer opens one
//! by itself, as old brokers let it (hazard C11).

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{DescribeProducersRequest, ProducerId, WriteTxnMarkersRequest};
use kafka_protocol::protocol::StrBytes;

use crate::calls;
use crate::cluster::{self, Cluster, unique};
use crate::support::batch::{Batch, read_batches};
use crate::support::broker::Broker;
use crate::support::client::{Client, decode_response, raw_request_frame};
use crate::support::requests::{self, Topic};

in_every_mode!(markers_at_every_node, producers_are_described_at_every_node, empty_requests);

fn marker(topic: &str, partitions: &[i32], epoch: i16, commit: bool) -> WritableTxnMarker {
    let topic = WritableTxnMarkerTopic::default()
        .with_name(StrBytes::from_string(topic.to_owned()).into())
        .with_partition_indexes(partitions.to_vec());
    WritableTxnMarker::default()
        .with_producer_id(ProducerId(77))
        .with_producer_epoch(epoch)
        .with_transaction_result(commit)
        .with_topics(vec![topic])
        .with_coordinator_epoch(3)
}

/// Partitions and codes of the one producer and topic asked for.
fn write(client: &mut Client, marker: WritableTxnMarker) -> Vec<(i32, i16)> {
    let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    let response = client.call(1, &request);
    assert_eq!(response.markers.len(), 1);
    assert_eq!((response.markers[0].producer_id.0, response.markers[0].topics.len()), (77, 1));
    let partitions = &response.markers[0].topics[0].partitions;
    partitions.iter().map(|answer| (answer.partition_index, answer.error_code)).collect()
}

/// The same in version 2, which the codec library does not know: one marker, one partition.
fn write_versioned(client: &mut Client, topic: &str, epoch: i16, version: i8) -> i16 {
    let mut body = vec![2];
    body.extend_from_slice(&77_i64.to_be_bytes());
    body.extend_from_slice(&epoch.to_be_bytes());
    body.extend_from_slice(&[0, 2, topic.len() as u8 + 1]);
    body.extend_from_slice(topic.as_bytes());
    body.extend_from_slice(&[2, 0, 0, 0, 0, 0]);
    body.extend_from_slice(&3_i32.to_be_bytes());
    body.extend_from_slice(&[version as u8, 0, 0]);
    client.send_frame(&raw_request_frame(27, 2, 2, 900, Some(b"raw"), &body));
    let frame = client.receive_frame();
    let response = decode_response::<WriteTxnMarkersRequest>(2, 900, frame).expect("decodes");
    response.markers[0].topics[0].partitions[0].error_code
}

fn described(client: &mut Client, topic: &str, partition: i32) -> (i16, Vec<ProducerState>) {
    let answer = describe(client, topic, partition);
    assert_eq!(answer.error_message, None);
    (answer.error_code, answer.active_producers)
}

/// Code and message of an answer without producers.
fn refused(client: &mut Client, topic: &str, partition: i32) -> (i16, Option<String>) {
    let answer = describe(client, topic, partition);
    assert_eq!(answer.active_producers, []);
    (answer.error_code, answer.error_message.map(|message| message.to_string()))
}

fn describe(client: &mut Client, topic: &str, partition: i32) -> PartitionResponse {
    let asked = TopicRequest::default()
        .with_name(StrBytes::from_string(topic.to_owned()).into())
        .with_partition_indexes(vec![partition]);
    let request = DescribeProducersRequest::default().with_topics(vec![asked]);
    let response = client.call(0, &request);
    let answer = response.topics[0].partitions[0].clone();
    assert_eq!(answer.partition_index, partition);
    answer
}

fn markers_at_every_node(cluster: &Cluster) {
    let topic = cluster.topic("marked", 3);
    let mut written = [0; 3];
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let answers = write(&mut client, marker(&topic.name, &[2, 0, 1, 9], 5, false));
        let expected: Vec<(i32, i16)> = [2, 0, 1]
            .into_iter()
            .map(|partition| {
                let here = cluster.is_single() || cluster.leader(&topic, partition) == node;
                written[partition as usize] += i64::from(here);
                (partition, if here { 0 } else { 3 })
            })
            .chain([(9, 3)])
            .collect();
        assert_eq!(answers, expected, "node {node}");
    }
    for (partition, &written) in (0..).zip(&written) {
        let mut client = cluster.at(&topic, partition);
        assert_eq!(calls::end(&mut client, &topic, partition), written, "one offset each");
    }
    let mut client = cluster.connect();
    assert_eq!(write(&mut client, marker(&unique("nobody"), &[0], 5, true)), [(0, 3)]);
}

fn producers_are_described_at_every_node(cluster: &Cluster) {
    let topic = cluster.topic("described", 1);
    let leader = cluster.leader(&topic, 0);
    let batch = Batch::of_values(["a", "b"]).with_producer(9, 4, 10);
    calls::append(&mut cluster.at(&topic, 0), &topic, 0, &batch);
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let (code, producers) = described(&mut client, &topic.name, 0);
        if !cluster.is_single() && node != leader {
            assert_eq!((code, producers.len()), (6, 0));
            continue;
        }
        assert_eq!((code, producers.len()), (0, 1));
        let found = &producers[0];
        assert_eq!((found.producer_id.0, found.producer_epoch, found.last_sequence), (9, 4, 11));
        assert_eq!((found.coordinator_epoch, found.current_txn_start_offset), (-1, -1));
        assert_eq!(described(&mut client, &topic.name, 7).0, 3);
        let not_hosted = "This server does not host this topic-partition.".to_owned();
        assert_eq!(refused(&mut client, &unique("nobody"), 0), (3, Some(not_hosted)));
        let (code, message) = refused(&mut client, "a topic", 0);
        assert_eq!((code, message.is_some()), (17, true));
    }
}

fn empty_requests(cluster: &Cluster) {
    let mut client = cluster.connect();
    assert!(client.call(1, &WriteTxnMarkersRequest::default()).markers.is_empty());
    assert!(client.call(0, &DescribeProducersRequest::default()).topics.is_empty());
}

/// Fetches at isolation level `isolation`: first offsets of the batches, aborted, stable, end.
fn fetched(client: &mut Client, topic: &Topic, isolation: i8) -> Fetched {
    let mut request = requests::fetch(13, topic, 0, 0);
    request.isolation_level = isolation;
    let data = calls::only_fetched(client.call(13, &request), 0);
    assert_eq!(data.error_code, 0);
    let batches = read_batches(data.records.unwrap_or_default());
    let aborted = data.aborted_transactions.map(|aborted| {
        aborted.iter().map(|entry| (entry.producer_id.0, entry.first_offset)).collect()
    });
    Fetched {
        bases: batches.iter().map(|batch| batch.base_offset).collect(),
        aborted,
        stable: data.last_stable_offset,
        end: data.high_watermark,
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Fetched {
    bases: Vec<i64>,
    aborted: Option<Vec<(i64, i64)>>,
    stable: i64,
    end: i64,
}

/// redpanda-data/redpanda#3036, nisshi-io/nisshi#689, twmb/kcl#10: what is open is not shown, is
/// found by DescribeProducers, and is ended by an operator's marker.
#[test]
fn a_transaction_that_hangs_is_found_and_ended() {
    for advertise in ["per-core", "single"] {
        hangs_and_is_ended(advertise);
    }
}

fn hangs_and_is_ended(advertise: &str) {
    let broker = Broker::start(&[
        "--shards",
        "2",
        "--advertise",
        advertise,
        "--memory",
        "256MiB",
        "--set",
        "journal.ring.bytes=16MiB",
        "--set",
        "transaction.partition.verification.enable=false",
    ]);
    let shards = cluster::Mode { advertise: "per-core", shards: 2 };
    let mode = if advertise == "single" { cluster::SINGLE_2 } else { shards };
    let cluster = Cluster { mode, broker };
    let topic = cluster.topic("hanging", 1);
    let mut client = cluster.at(&topic, 0);
    let send = |client: &mut Client, batch: &Batch| {
        let mut request = requests::produce(11, &topic, 0, -1, batch.encode());
        request.transactional_id = Some(StrBytes::from_static_str("t").into());
        let answer = calls::only_produced(client.call(11, &request), 0);
        (answer.error_code, answer.base_offset, answer.log_start_offset)
    };
    assert_eq!(send(&mut client, &Batch::of_values(["a"])), (0, 0, 0));
    let open = Batch::of_values(["b", "c"]).with_producer(77, 5, 0).transactional();
    assert_eq!(send(&mut client, &open), (0, 1, 0));
    assert_eq!(send(&mut client, &open), (0, 1, 0), "a copy");
    assert_eq!(send(&mut client, &Batch::of_values(["d"])), (0, 3, 0));
    // Refused by the log, which names its start.
    let plain = Batch::of_values(["e"]).with_producer(77, 5, 2);
    assert_eq!(send(&mut client, &plain), (48, -1, 0));
    let fenced = Batch::of_values(["e"]).with_producer(77, 4, 2).transactional();
    assert_eq!(send(&mut client, &fenced), (47, -1, -1), "by its verification, not by the log");

    let uncommitted = Fetched { bases: vec![0, 1, 3], aborted: None, stable: 1, end: 4 };
    assert_eq!(fetched(&mut client, &topic, 0), uncommitted);
    let committed = Fetched { bases: vec![0], aborted: Some(vec![]), stable: 1, end: 4 };
    assert_eq!(fetched(&mut client, &topic, 1), committed);
    let (code, producers) = described(&mut client, &topic.name, 0);
    assert_eq!((code, producers.len(), producers[0].current_txn_start_offset), (0, 1, 1));

    let mut waiting = cluster.at(&topic, 0);
    let mut request = requests::fetch(13, &topic, 0, 1);
    request.isolation_level = 1;
    let waits = waiting.send(13, &calls::waiting(request, 30_000, 1));
    // An end that moves without the last stable offset wakes nobody.
    assert_eq!(send(&mut client, &Batch::of_values(["f"])), (0, 4, 0));
    assert_eq!(write(&mut client, marker(&topic.name, &[0], 4, false)), [(0, 47)]);
    assert_eq!(write_versioned(&mut client, &topic.name, 5, 2), 47, "the strict rule");
    assert_eq!(write(&mut client, marker(&topic.name, &[0], 5, false)), [(0, 0)]);
    let answer = calls::only_fetched(waiting.receive(waits), 0);
    assert_eq!((answer.error_code, answer.last_stable_offset), (0, 6));
    assert_eq!(answer.aborted_transactions.map(|aborted| aborted.len()), Some(1));

    let aborted = Some(vec![(77, 1)]);
    let ended = Fetched { bases: vec![0, 1, 3, 4, 5], aborted, stable: 6, end: 6 };
    assert_eq!(fetched(&mut client, &topic, 1), ended);
    assert_eq!(described(&mut client, &topic.name, 0).1[0].current_txn_start_offset, -1);
    let earlier = marker(&topic.name, &[0], 5, false).with_coordinator_epoch(2);
    assert_eq!(write(&mut client, earlier), [(0, 52)]);
    assert_eq!(write_versioned(&mut client, &topic.name, 5, 2), 0, "nothing is open: a copy");
    assert_eq!(calls::end(&mut client, &topic, 0), 7);
    let data = calls::fetch(&mut client, 18, &topic, 0, 6);
    let read = &read_batches(data.records.unwrap_or_default())[0];
    assert_eq!((read.length, read.attributes, read.base_sequence), (66, 0x30, -1));
    assert_eq!(read.records[0].key.as_deref(), Some(&[0, 0, 0, 0][..]));
    assert_eq!(read.records[0].value.as_deref(), Some(&[0, 0, 0, 0, 0, 3][..]));
}
