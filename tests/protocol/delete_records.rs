//! DeleteRecords: where logs start afterwards, what is refused, and that it outlives the process.

use kafka_protocol::messages::ListOffsetsRequest;

use crate::calls::{append, end, fetch, leader_epoch, list, read_all};
use crate::cluster::{self, Cluster, Mode};
use crate::group_offsets::node_of;
use crate::support::batch::{Batch, read_batches};
use crate::support::client::Client;
use crate::support::requests::{self, Topic, delete_records};

in_every_mode!(
    the_log_starts_where_it_is_told_to,
    refusals_change_nothing,
    one_request_for_all_partitions,
    the_newest_record_is_one_that_is_kept,
);

/// Low watermark and code of one partition.
fn delete(
    client: &mut Client,
    version: i16,
    name: &str,
    partition: i32,
    offset: i64,
) -> (i64, i16) {
    let response = client.call(version, &delete_records(&[(name, &[(partition, offset)])]));
    assert_eq!((response.throttle_time_ms, response.topics.len()), (0, 1));
    let topic = &response.topics[0];
    assert_eq!((topic.name.as_str(), topic.partitions.len()), (name, 1));
    let only = &topic.partitions[0];
    assert_eq!(only.partition_index, partition);
    (only.low_watermark, only.error_code)
}

fn start(client: &mut Client, topic: &Topic, partition: i32) -> i64 {
    let answer = list(client, 7, topic, partition, -2);
    assert_eq!((answer.error_code, answer.timestamp), (0, -1));
    answer.offset
}

/// Five batches of three records.
fn fill(cluster: &Cluster, topic: &Topic, partition: i32) {
    let mut client = cluster.at(topic, partition);
    for number in 0..5 {
        let batch = Batch::of_values(["a", "b", "c"]);
        assert_eq!(append(&mut client, topic, partition, &batch), number * 3);
    }
}

fn the_log_starts_where_it_is_told_to(cluster: &Cluster) {
    let topic = cluster.topic("trimmed", 3);
    let epoch = leader_epoch(cluster, &topic);
    for partition in 0..3 {
        fill(cluster, &topic, partition);
        let version = partition as i16;
        let mut client = cluster.at(&topic, partition);
        let mut check = |offset: i64, expected: i64| {
            assert_eq!(delete(&mut client, version, &topic.name, partition, offset), (expected, 0));
            assert_eq!(start(&mut client, &topic, partition), expected);
            assert_eq!(end(&mut client, &topic, partition), 15);
        };
        check(0, 0);
        check(4, 4);
        check(2, 4);
        check(4, 4);
        let below = fetch(&mut client, 18, &topic, partition, 3);
        assert_eq!((below.error_code, below.log_start_offset, below.high_watermark), (1, -1, -1));
        // A batch is served whole, also where the log begins in the middle of it.
        let data = fetch(&mut client, 18, &topic, partition, 4);
        assert_eq!((data.error_code, data.log_start_offset, data.high_watermark), (0, 4, 15));
        let bases: Vec<i64> = read_batches(data.records.expect("records"))
            .iter()
            .map(|batch| batch.base_offset)
            .collect();
        assert_eq!(bases, [3, 6, 9, 12]);
        assert_eq!(list(&mut client, 7, &topic, partition, -2).leader_epoch, epoch);
        // By time, the first that is kept.
        assert_eq!(list(&mut client, 7, &topic, partition, 0).offset, 4);
        assert_eq!(delete(&mut client, version, &topic.name, partition, -1), (15, 0));
        assert_eq!(start(&mut client, &topic, partition), 15);
        assert_eq!(list(&mut client, 7, &topic, partition, 0).offset, -1);
        assert_eq!(fetch(&mut client, 18, &topic, partition, 14).error_code, 1);
        let data = fetch(&mut client, 18, &topic, partition, 15);
        assert_eq!((data.error_code, data.log_start_offset), (0, 15));
        assert_eq!(append(&mut client, &topic, partition, &Batch::of_values(["d"])), 15);
        assert_eq!(read_all(&mut client, &topic, partition, 15).len(), 1);
    }
}

fn refusals_change_nothing(cluster: &Cluster) {
    let topic = cluster.topic("refused", 2);
    let compacted = cluster.topic_with("compacted", 1, &[("cleanup.policy", "compact")]);
    let kept = cluster.topic_with("kept", 1, &[("cleanup.policy", "")]);
    let both = cluster.topic_with("both", 1, &[("cleanup.policy", "compact,delete")]);
    // Makes the internal topic.
    node_of(cluster, "records");
    for partition in 0..2 {
        fill(cluster, &topic, partition);
    }
    let leader = cluster.leader(&topic, 1);
    for version in 0..=2 {
        for (node, mut client) in (0..).zip(cluster.everywhere()) {
            let mut check = |name: &str, partition: i32, offset: i64, code: i16| {
                let answer = delete(&mut client, version, name, partition, offset);
                assert_eq!(answer, (-1, code), "{name}-{partition} at {offset}");
            };
            check("nowhere", 0, 0, 3);
            check("a b", 0, 0, 3);
            check(&topic.name, 2, 0, 3);
            check(&topic.name, -1, 0, 3);
            check("__consumer_offsets", 0, 0, 17);
            check("__consumer_offsets", 999, 0, 3);
            if !cluster.is_single() && node != leader {
                check(&topic.name, 1, 1, 6);
                check(&topic.name, 1, 99, 6);
                continue;
            }
            check(&topic.name, 1, 16, 1);
            check(&topic.name, 1, -2, 1);
            check(&topic.name, 1, i64::MIN, 1);
            check(&topic.name, 1, i64::MAX, 1);
        }
        let mut client = cluster.at(&compacted, 0);
        for offset in [0, -1, -2, 99] {
            assert_eq!(delete(&mut client, version, &compacted.name, 0, offset), (-1, 44));
        }
        for topic in [&both, &kept] {
            let mut client = cluster.at(topic, 0);
            assert_eq!(delete(&mut client, version, &topic.name, 0, -1), (0, 0));
        }
        for nothing in [&[][..], &[(topic.name.as_str(), &[][..])]] {
            let answer = cluster.connect().call(version, &delete_records(nothing));
            assert!(answer.topics.is_empty());
        }
    }
    assert_eq!(start(&mut cluster.at(&topic, 1), &topic, 1), 0);
}

/// Partitions of all shards in one request, some of them twice, some that are not there.
fn one_request_for_all_partitions(cluster: &Cluster) {
    let topic = cluster.topic("at-once", 5);
    for partition in 0..5 {
        fill(cluster, &topic, partition);
    }
    let asked: &[(i32, i64)] = &[(4, 1), (0, 1), (9, 1), (1, 99), (0, 2), (2, -1), (3, 7)];
    let request = delete_records(&[(&topic.name, asked), ("nowhere", &[(0, 0)])]);
    let mut starts = [0; 5];
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let response = client.call(2, &request);
        let answers: Vec<Vec<(i32, i64, i16)>> = response
            .topics
            .iter()
            .map(|topic| {
                let partitions = topic.partitions.iter();
                partitions.map(|p| (p.partition_index, p.low_watermark, p.error_code)).collect()
            })
            .collect();
        let expected = [(4, 1, 0), (0, 2, 0), (9, -1, 3), (1, -1, 1), (2, 15, 0), (3, 7, 0)];
        let expected = expected.map(|(partition, low, code)| {
            let elsewhere = partition < 5 && !cluster.is_single();
            match elsewhere && cluster.leader(&topic, partition) != node {
                true => (partition, -1, 6),
                false => (partition, low, code),
            }
        });
        for &(partition, low, code) in &expected {
            if code == 0 {
                starts[partition as usize] = low;
            }
        }
        assert_eq!(answers, [expected.to_vec(), vec![(0, -1, 3)]]);
    }
    assert_eq!(starts, [2, 0, 15, 7, 1]);
    for partition in 0..5 {
        let mut client = cluster.at(&topic, partition);
        assert_eq!(start(&mut client, &topic, partition), starts[partition as usize]);
    }
}

/// ListOffsets with -3 names the newest record of those that are left.
fn the_newest_record_is_one_that_is_kept(cluster: &Cluster) {
    let topic = cluster.topic("newest", 1);
    let mut client = cluster.at(&topic, 0);
    for time in [100, 900, 300, 200] {
        let mut batch = Batch::of_values(["a"]);
        batch.base_timestamp = time;
        append(&mut client, &topic, 0, &batch);
    }
    let mut newest = |start: i64| {
        assert_eq!(delete(&mut client, 2, &topic.name, 0, start), (start, 0));
        let request: ListOffsetsRequest = requests::list_offsets(&topic.name, 0, -3);
        let answer = client.call(7, &request).topics[0].partitions[0].clone();
        (answer.error_code, answer.offset, answer.timestamp)
    };
    assert_eq!(newest(1), (0, 1, 900));
    assert_eq!(newest(2), (0, 2, 300));
    assert_eq!(newest(3), (0, 3, 200));
    assert_eq!(newest(4), (0, -1, -1));
}

#[test]
fn a_start_is_kept_over_restarts_per_core_2() {
    a_start_is_kept_over_restarts(cluster::PER_CORE_2);
}

#[test]
fn a_start_is_kept_over_restarts_single_2() {
    a_start_is_kept_over_restarts(cluster::SINGLE_2);
}

fn a_start_is_kept_over_restarts(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let topic = cluster.topic("kept", 4);
    (0..4).for_each(|partition| fill(&cluster, &topic, partition));
    let mut expected = [0, 1, 7, 15];
    for restart in 0..4 {
        for (partition, start) in (0..).zip(expected) {
            let mut client = cluster.at(&topic, partition);
            assert_eq!(delete(&mut client, 2, &topic.name, partition, start), (start, 0));
        }
        if restart % 2 == 0 {
            cluster.broker.kill();
        } else {
            let ended = cluster.broker.terminate();
            assert_eq!(ended.code, Some(0), "{ended:#?}");
        }
        cluster.broker.restart();
        for (partition, kept) in (0..).zip(expected) {
            let mut client = cluster.at(&topic, partition);
            assert_eq!(start(&mut client, &topic, partition), kept, "restart {restart}");
            assert_eq!(end(&mut client, &topic, partition), 15 + restart);
            assert_eq!(fetch(&mut client, 18, &topic, partition, kept - 1).error_code, 1);
            let next = append(&mut client, &topic, partition, &Batch::of_values(["e"]));
            assert_eq!(next, 15 + restart);
        }
        expected = expected.map(|start| (start + 1).min(16 + restart));
    }
    assert_eq!(cluster.broker.stderr(), "");
}
