//! A restart, after a clean stop or a kill, changes nothing but the leader epoch. Brokers of their
//! own, one per mode.

use kafka_protocol::messages::OffsetForLeaderEpochRequest;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use crate::calls::{self, append, list, only_fetched, outcome, produce};
use crate::cluster::{self, Cluster, Mode};
use crate::support::batch::{Batch, Record};
use crate::support::requests::{self, Topic, create_topic, delete_topic_state, init_producer_id};

#[test]
fn everything_is_kept_per_core_1() {
    everything_is_kept(cluster::PER_CORE_1);
}

#[test]
fn everything_is_kept_per_core_2() {
    everything_is_kept(cluster::PER_CORE_2);
}

#[test]
fn everything_is_kept_per_core_5() {
    everything_is_kept(cluster::PER_CORE_5);
}

#[test]
fn everything_is_kept_single_2() {
    everything_is_kept(cluster::SINGLE_2);
}

#[test]
fn everything_is_kept_single_5() {
    everything_is_kept(cluster::SINGLE_5);
}

const PARTITIONS: i32 = 3;
const ID: i64 = 500;

fn batch(number: i32) -> Batch {
    let mut record = Record::keyed(format!("k{number}"), vec![number as u8; 3000]);
    record.timestamp_delta = 3;
    let mut batch = Batch::of(vec![Record::value("first"), record]);
    batch.base_timestamp = 1_000_000 + i64::from(number) * 10;
    batch.with_producer(ID, 2, number * 2)
}

fn restart(cluster: &mut Cluster, clean: bool) {
    if clean {
        let ended = cluster.broker.terminate();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
    }
    // Kills it if it still runs.
    cluster.broker.restart();
}

fn everything_is_kept(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let configs = [("internal.segment.bytes", "50000"), ("retention.ms", "-1")];
    let topic = cluster.topic_with("kept", PARTITIONS, &configs);
    let empty = cluster.topic("empty", 2);
    let deleted = cluster.topic("deleted", 2);
    let response = cluster.connect().call(6, &delete_topic_state(&deleted.name));
    assert_eq!(response.responses[0].error_code, 0);
    let first_epoch = calls::leader_epoch(&cluster, &topic);
    let mut handed_out = vec![cluster.connect().call(4, &init_producer_id(None)).producer_id.0];
    let mut count = 0;
    for round in 1..=3 {
        for number in count..count + 40 {
            for partition in 0..PARTITIONS {
                let mut client = cluster.at(&topic, partition);
                let base = append(&mut client, &topic, partition, &batch(number));
                assert_eq!(base, i64::from(number * 2));
            }
        }
        count += 40;
        restart(&mut cluster, round != 2);
        assert_eq!(calls::leader_epoch(&cluster, &topic), first_epoch + round);
        check(&cluster, &topic, count, first_epoch + round);
        check_epochs(&cluster, &topic, first_epoch, round);
        let described = cluster.describe(&topic.name);
        assert_eq!(described.topics[0].topic_id, topic.id);
        assert_eq!(cluster.describe(&deleted.name).topics[0].error_code, 3);
        for partition in 0..2 {
            let mut client = cluster.at(&empty, partition);
            assert_eq!(calls::end(&mut client, &empty, partition), 0);
        }
        let next = cluster.connect().call(4, &init_producer_id(None)).producer_id.0;
        assert!(!handed_out.contains(&next), "{next} was handed out before");
        handed_out.push(next);
    }
    let again = cluster.connect().call(7, &create_topic(&topic.name, 1));
    assert_eq!(again.topics[0].error_code, 36);
    let again = cluster.connect().call(7, &create_topic(&deleted.name, 1));
    assert_eq!(again.topics[0].error_code, 0);
}

fn check(cluster: &Cluster, topic: &Topic, count: i32, epoch: i32) {
    for partition in 0..PARTITIONS {
        let mut client = cluster.at(topic, partition);
        let found = calls::read_all(&mut client, topic, partition, 0);
        assert_eq!(found.len(), count as usize);
        for (number, found) in (0..).zip(&found) {
            let sent = batch(number);
            assert!(found.crc_is_valid);
            assert_eq!(found.payload, sent.encoded_records(), "batch {number}");
            assert_eq!(
                (found.base_offset, found.base_sequence),
                (i64::from(number * 2), number * 2)
            );
            assert_eq!((found.producer_id, found.producer_epoch), (ID, 2));
            assert!(found.partition_leader_epoch < epoch);
        }
        assert_eq!(calls::end(&mut client, topic, partition), i64::from(count * 2));
        let start = list(&mut client, 7, topic, partition, -2);
        assert_eq!((start.error_code, start.offset), (0, 0));
        for number in [0, 17, 39, count - 1] {
            let time = 1_000_000 + i64::from(number) * 10;
            for (asked, offset, timestamp) in
                [(time, number * 2, time), (time + 1, number * 2 + 1, time + 3)]
            {
                let answer = list(&mut client, 7, topic, partition, asked);
                assert_eq!((answer.offset, answer.timestamp), (i64::from(offset), timestamp));
            }
        }
        let newest = list(&mut client, 7, topic, partition, -3);
        assert_eq!(newest.offset, i64::from(count * 2 - 1));
        // The last five batches are known again, what is older or ahead is out of order.
        for number in count - 5..count {
            let answer = produce(&mut client, 13, topic, partition, batch(number).encode());
            let expected = (0, i64::from(number * 2), batch(number).base_timestamp + 3);
            let found = (answer.error_code, answer.base_offset, answer.log_append_time_ms);
            assert_eq!(found, expected);
        }
        for number in [count - 6, count + 1] {
            assert_eq!(outcome(&mut client, topic, partition, &batch(number)), (45, -1));
        }
        let fenced = Batch::of_values(["x"]).with_producer(ID, 1, count * 2);
        assert_eq!(outcome(&mut client, topic, partition, &fenced), (47, -1));
    }
}

/// Every boot's epoch began with its 40 batches of two records.
fn check_epochs(cluster: &Cluster, topic: &Topic, first: i32, boots: i32) {
    for partition in 0..PARTITIONS {
        let mut client = cluster.at(topic, partition);
        for boot in 0..boots {
            let end = i64::from((boot + 1) * 80);
            let wanted = OffsetForLeaderPartition::default()
                .with_partition(partition)
                .with_leader_epoch(first + boot);
            let wanted = OffsetForLeaderTopic::default()
                .with_topic(topic.wire_name())
                .with_partitions(vec![wanted]);
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![wanted]);
            let answer = client.call(4, &request).topics[0].partitions[0].clone();
            let found = (answer.error_code, answer.leader_epoch, answer.end_offset);
            assert_eq!(found, (0, first + boot, end));
            // A log that went on beyond that end in that epoch has diverged.
            let mut request = requests::fetch(18, topic, partition, end + 1);
            request.topics[0].partitions[0].last_fetched_epoch = first + boot;
            if end + 1 < i64::from(boots * 80) {
                let data = only_fetched(client.call(18, &request), partition);
                let diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset);
                assert_eq!((data.error_code, diverging), (0, (first + boot, end)));
                assert_eq!(data.records.map(|records| records.len()), Some(0));
            }
            request.topics[0].partitions[0].fetch_offset = end - 1;
            let data = only_fetched(client.call(18, &request), partition);
            assert_eq!((data.error_code, data.diverging_epoch.epoch), (0, -1));
        }
    }
}
