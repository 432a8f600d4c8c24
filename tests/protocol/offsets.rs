//! ListOffsets and OffsetForLeaderEpoch.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{BrokerId, OffsetForLeaderEpochRequest};

use crate::calls::{self, append, list};
use crate::cluster::{Cluster, unique};
use crate::support::batch::{Batch, Record};
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

in_every_mode!(
    special_timestamps,
    special_timestamps_need_their_version,
    records_are_found_by_time,
    records_are_found_by_time_in_segments,
    leader_epochs_are_compared,
    bad_queries_are_refused_alone,
    the_end_of_an_epoch_is_told,
);

fn at_times(base: i64, deltas: &[i64]) -> Batch {
    let record = |delta: &i64| Record { timestamp_delta: *delta, ..Record::value("v") };
    Batch { base_timestamp: base, ..Batch::of(deltas.iter().map(record).collect()) }
}

fn special_timestamps(cluster: &Cluster) {
    let topic = cluster.topic("special", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    let mut found = |version: i16, timestamp: i64| {
        let answer = list(&mut client, version, &topic, 0, timestamp);
        assert_eq!(answer.error_code, 0, "version {version}, {timestamp}");
        (answer.offset, answer.timestamp, answer.leader_epoch)
    };
    for version in 1..=11 {
        let epoch = if version >= 4 { epoch } else { -1 };
        assert_eq!(found(version, -1), (0, -1, epoch));
        assert_eq!(found(version, -2), (0, -1, epoch));
        assert_eq!(found(version, 0), (-1, -1, -1));
        if version >= 7 {
            assert_eq!(found(version, -3), (-1, -1, -1), "the newest of none");
        }
    }
    let mut producer = cluster.at(&topic, 0);
    append(&mut producer, &topic, 0, &at_times(1000, &[0, 500, 200]));
    append(&mut producer, &topic, 0, &at_times(1100, &[0, 400]));
    for version in 1..=11 {
        let epoch = if version >= 4 { epoch } else { -1 };
        assert_eq!(found(version, -1), (5, -1, epoch));
        assert_eq!(found(version, -2), (0, -1, epoch));
        if version >= 7 {
            // Two records have the largest time; the first of them counts.
            assert_eq!(found(version, -3), (1, 1500, epoch));
        }
        if version >= 8 {
            assert_eq!(found(version, -4), (0, -1, epoch));
        }
        if version >= 9 {
            assert_eq!(found(version, -5), (-1, -1, -1));
        }
        if version >= 11 {
            assert_eq!(found(version, -6), (-1, -1, -1));
        }
    }
    for (isolation_level, replica) in [(1, -1), (0, -2), (1, -2)] {
        let mut request = requests::list_offsets(&topic.name, 0, -1);
        (request.isolation_level, request.replica_id) = (isolation_level, BrokerId(replica));
        let response = producer.call(7, &request);
        assert_eq!(response.topics[0].partitions[0].offset, 5);
    }
}

fn special_timestamps_need_their_version(cluster: &Cluster) {
    let topic = cluster.topic("needed", 1);
    let mut client = cluster.at(&topic, 0);
    for version in 1..=11 {
        for (timestamp, since) in [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99), (i64::MIN, 99)] {
            let answer = list(&mut client, version, &topic, 0, timestamp);
            let code = if version < since { 35 } else { 0 };
            assert_eq!(answer.error_code, code, "version {version}, {timestamp}");
            let offset = if timestamp == -4 && code == 0 { 0 } else { -1 };
            assert_eq!((answer.offset, answer.timestamp), (offset, -1));
        }
    }
}

fn check_times(client: &mut Client, topic: &Topic, epoch: i32, expected: &[(i64, i64, i64)]) {
    for version in [1, 5, 6, 7, 11] {
        for &(asked, offset, timestamp) in expected {
            let answer = list(client, version, topic, 0, asked);
            let epoch = if offset >= 0 && version >= 4 { epoch } else { -1 };
            assert_eq!(
                (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch),
                (0, offset, timestamp, epoch),
                "version {version}, {asked}"
            );
        }
    }
}

fn records_are_found_by_time(cluster: &Cluster) {
    let topic = cluster.topic("by-time", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &at_times(1000, &[0, 500, 200]));
    append(&mut client, &topic, 0, &at_times(900, &[0, 50]));
    append(&mut client, &topic, 0, &at_times(3000, &[0, 10]));
    append(&mut client, &topic, 0, &at_times(-1, &[0]));
    let expected = [
        (0, 0, 1000),
        (900, 0, 1000),
        (1000, 0, 1000),
        (1001, 1, 1500),
        (1500, 1, 1500),
        (1501, 5, 3000),
        (3001, 6, 3010),
        (3011, -1, -1),
        (i64::MAX, -1, -1),
    ];
    check_times(&mut client, &topic, epoch, &expected);
}

fn records_are_found_by_time_in_segments(cluster: &Cluster) {
    let topic = cluster.topic_with("segments", 1, &[("internal.segment.bytes", "200000")]);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    // 2 MB in 100 batches of two records, 10 ms apart; the newest is in the middle.
    let filler = vec![b'x'; 10_000];
    for number in 0..100 {
        let base = 100_000 + number * 10;
        let mut batch = at_times(base, &[0, if number == 50 { 50_000 } else { 5 }]);
        for record in &mut batch.records {
            record.value = Some(filler.clone());
        }
        assert_eq!(append(&mut client, &topic, 0, &batch), 2 * number);
    }
    let mut expected = vec![(0, 0, 100_000), (150_500, 101, 150_500), (150_501, -1, -1)];
    for number in [0, 1, 13, 49, 50] {
        expected.push((100_000 + number * 10, 2 * number, 100_000 + number * 10));
        let second = if number == 50 { 150_500 } else { 100_005 + number * 10 };
        expected.push((100_001 + number * 10, 2 * number + 1, second));
    }
    // After the newest nothing earlier counts any more: it is the first at or after these.
    expected.push((100_900, 101, 150_500));
    check_times(&mut client, &topic, epoch, &expected);
    let newest = list(&mut client, 7, &topic, 0, -3);
    assert_eq!((newest.offset, newest.timestamp, newest.leader_epoch), (101, 150_500, epoch));
}

fn leader_epochs_are_compared(cluster: &Cluster) {
    let topic = cluster.topic("list-epochs", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    for version in [4, 6, 11] {
        for (current, code) in [(-1, 0), (epoch, 0), (epoch - 1, 74), (epoch + 1, 75)] {
            if current == -1 && code != 0 {
                continue;
            }
            let mut request = requests::list_offsets(&topic.name, 0, -1);
            request.topics[0].partitions[0].current_leader_epoch = current;
            let answer = client.call(version, &request).topics[0].partitions[0].clone();
            let offset = if code == 0 { 0 } else { -1 };
            assert_eq!((answer.error_code, answer.offset), (code, offset));
        }
    }
}

fn bad_queries_are_refused_alone(cluster: &Cluster) {
    let topic = cluster.topic("queries", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    let nowhere = unique("nowhere");
    for version in 1..=11 {
        let mut request = requests::list_offsets(&topic.name, 0, -1);
        let mut bad = request.topics[0].partitions[0].clone();
        for index in [9, -1, 9] {
            bad.partition_index = index;
            request.topics[0].partitions.push(bad.clone());
        }
        let mut unknown = requests::list_offsets(&nowhere, 0, -1).topics;
        request.topics.append(&mut unknown);
        let response = client.call(version, &request);
        let codes: Vec<_> = response
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|answer| (answer.partition_index, answer.error_code, answer.offset))
            .collect();
        // Partition 9 is asked for twice, and answered once.
        let expected = [(0, 0, 1), (9, 42, -1), (-1, 3, -1), (0, 3, -1)];
        assert_eq!(codes, expected);
    }
}

fn the_end_of_an_epoch_is_told(cluster: &Cluster) {
    let topic = cluster.topic("epoch-end", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a", "b"]));
    let mut ask = |version: i16, topic: &Topic, partition: i32, current: i32, asked: i32| {
        let wanted = OffsetForLeaderPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(current)
            .with_leader_epoch(asked);
        let wanted = OffsetForLeaderTopic::default()
            .with_topic(topic.wire_name())
            .with_partitions(vec![wanted]);
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![wanted]);
        let response = client.call(version, &request);
        assert_eq!(response.topics[0].topic, topic.wire_name());
        let answer = &response.topics[0].partitions[0];
        assert_eq!(answer.partition, partition);
        (answer.error_code, answer.leader_epoch, answer.end_offset)
    };
    for version in 2..=4 {
        assert_eq!(ask(version, &topic, 0, -1, epoch), (0, epoch, 2));
        assert_eq!(ask(version, &topic, 0, epoch, epoch), (0, epoch, 2));
        assert_eq!(ask(version, &topic, 0, -1, epoch + 1), (0, -1, -1));
        assert_eq!(ask(version, &topic, 0, -1, -1), (0, -1, -1));
        assert_eq!(ask(version, &topic, 0, -1, epoch - 1), (0, epoch - 1, 0));
        assert_eq!(ask(version, &topic, 0, epoch + 1, epoch), (75, -1, -1));
        if epoch > 0 {
            assert_eq!(ask(version, &topic, 0, epoch - 1, epoch), (74, -1, -1));
        }
        assert_eq!(ask(version, &topic, 7, -1, epoch), (3, -1, -1));
        assert_eq!(ask(version, &Topic::named("nowhere-at-all"), 0, -1, epoch), (3, -1, -1));
    }
}
