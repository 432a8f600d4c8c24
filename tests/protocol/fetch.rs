//! Fetch: bytes, bounds, limits, waiting.

use std::time::{Duration, Instant};

use kafka_protocol::messages::BrokerId;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::FetchPartition;
use uuid::Uuid;

use crate::calls::{self, append, fetch, fetched, only_fetched, waiting};
use crate::cluster::{Cluster, unique};
use crate::support::batch::{Batch, read_batches};
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

in_every_mode!(
    every_version_returns_the_bytes,
    batches_are_whole,
    offsets_out_of_range,
    aborted_transactions_are_null_or_none,
    leader_epochs_are_compared,
    diverging_epochs_are_told,
    unknown_topics_and_partitions,
    followers_are_refused,
    limits_apply_after_the_first_batch,
    nothing_to_wait_for_is_answered_at_once,
    waiting_ends_by_time,
    waiting_ends_with_the_first_record,
    waiting_goes_on_until_enough_bytes,
    waiting_on_many_partitions_ends_with_one,
    cold_records_come_back_in_order,
    several_partitions_come_in_the_order_asked,
);

fn every_version_returns_the_bytes(cluster: &Cluster) {
    let topic = cluster.topic("fetched", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a", "b"]));
    append(&mut client, &topic, 0, &Batch::of_values(["c"]));
    let expected = fetch(&mut client, 4, &topic, 0, 0).records.expect("records");
    assert_eq!(read_batches(expected.clone()).len(), 2);
    for version in 4..=18 {
        let data = fetch(&mut client, version, &topic, 0, 0);
        assert_eq!((data.error_code, data.high_watermark, data.last_stable_offset), (0, 3, 3));
        let log_start = if version >= 5 { 0 } else { -1 };
        assert_eq!((data.log_start_offset, data.preferred_read_replica.0), (log_start, -1));
        assert_eq!(data.aborted_transactions, None);
        assert_eq!((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (-1, -1));
        assert_eq!(data.current_leader.leader_id.0, -1);
        assert_eq!(data.records.as_ref(), Some(&expected), "version {version}");
        let data = fetch(&mut client, version, &topic, 0, 3);
        assert_eq!((data.error_code, data.high_watermark), (0, 3));
        assert_eq!(data.records.map(|records| records.len()), Some(0), "at the end");
    }
}

fn batches_are_whole(cluster: &Cluster) {
    let topic = cluster.topic("whole", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a", "b", "c"]));
    append(&mut client, &topic, 0, &Batch::of_values(["d", "e"]));
    for (offset, first) in [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3)] {
        let data = fetch(&mut client, 12, &topic, 0, offset);
        let batches = read_batches(data.records.expect("records"));
        assert_eq!(batches[0].base_offset, first, "from {offset}");
        assert_eq!(batches.last().expect("one").base_offset, 3);
    }
}

fn offsets_out_of_range(cluster: &Cluster) {
    let topic = cluster.topic("range", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    for offset in [-1, 2, i64::MAX, i64::MIN] {
        for version in [4, 11, 12, 18] {
            // Answered at once, although it may wait.
            let request = waiting(requests::fetch(version, &topic, 0, offset), 60_000, 1);
            let data = only_fetched(client.call(version, &request), 0);
            assert_eq!((data.error_code, data.high_watermark), (1, -1), "offset {offset}");
            assert_eq!((data.last_stable_offset, data.log_start_offset), (-1, -1));
            assert_eq!(data.records.map(|records| records.len()), Some(0));
        }
    }
}

fn aborted_transactions_are_null_or_none(cluster: &Cluster) {
    let topic = cluster.topic("isolation", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    for version in 4..=18 {
        let mut request = requests::fetch(version, &topic, 0, 0);
        let data = only_fetched(client.call(version, &request), 0);
        assert_eq!(data.aborted_transactions, None);
        request.isolation_level = 1;
        let data = only_fetched(client.call(version, &request), 0);
        assert_eq!(data.aborted_transactions, Some(Vec::new()));
        assert_eq!((data.last_stable_offset, data.records.is_some()), (1, true));
    }
}

fn with_epochs(mut request: FetchRequest, current: i32, last: i32) -> FetchRequest {
    let partition = &mut request.topics[0].partitions[0];
    partition.current_leader_epoch = current;
    partition.last_fetched_epoch = last;
    request
}

fn leader_epochs_are_compared(cluster: &Cluster) {
    let topic = cluster.topic("leader-epochs", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    assert!(epoch >= 0);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    for version in [9, 11, 12, 18] {
        for (current, code) in [(epoch, 0), (-1, 0), (epoch - 1, 74), (epoch + 1, 75)] {
            if current < -1 || (current == -1 && code != 0) {
                continue;
            }
            let request = with_epochs(requests::fetch(version, &topic, 0, 0), current, -1);
            let data = only_fetched(client.call(version, &request), 0);
            assert_eq!(data.error_code, code, "version {version}, epoch {current}");
            let bytes = data.records.map(|records| records.len()).unwrap_or_default();
            assert_eq!(bytes > 0, code == 0);
        }
    }
}

fn diverging_epochs_are_told(cluster: &Cluster) {
    let topic = cluster.topic("diverging", 1);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a", "b"]));
    for version in [12, 18] {
        let request = with_epochs(requests::fetch(version, &topic, 0, 1), epoch, epoch);
        let data = only_fetched(client.call(version, &request), 0);
        assert_eq!((data.error_code, data.diverging_epoch.epoch), (0, -1));
        // Told at once, without records: the known end of the latest epoch at or below it.
        let request = with_epochs(requests::fetch(version, &topic, 0, 1), epoch, epoch + 3);
        let data = only_fetched(client.call(version, &waiting(request, 60_000, 1)), 0);
        assert_eq!(data.error_code, 1, "an epoch above all known ones is no divergence");
        let request = with_epochs(requests::fetch(version, &topic, 0, 2), epoch, epoch);
        let data = only_fetched(client.call(version, &request), 0);
        assert_eq!((data.error_code, data.diverging_epoch.epoch), (0, -1));
    }
}

fn unknown_topics_and_partitions(cluster: &Cluster) {
    let topic = cluster.topic("known", 1);
    let mut client = cluster.at(&topic, 0);
    for version in [4, 11, 12] {
        for name in [&unique("nowhere")[..], "no topic name", ""] {
            let request = requests::fetch(version, &Topic::named(name), 0, 0);
            let data = only_fetched(client.call(version, &waiting(request, 60_000, 1)), 0);
            assert_eq!((data.error_code, data.high_watermark), (3, -1));
        }
    }
    for version in [4, 12, 13, 18] {
        for partition in [1, -1, i32::MAX] {
            let request = requests::fetch(version, &topic, partition, 0);
            let data = only_fetched(client.call(version, &waiting(request, 60_000, 1)), partition);
            assert_eq!((data.error_code, data.high_watermark), (3, -1));
        }
    }
    for id in [Uuid::nil(), Uuid::from_u128(5)] {
        let request = requests::fetch(18, &Topic { name: String::new(), id }, 0, 0);
        let response = client.call(18, &waiting(request, 60_000, 1));
        assert_eq!(response.responses[0].topic_id, id);
        assert_eq!(only_fetched(response, 0).error_code, 100);
    }
}

fn followers_are_refused(cluster: &Cluster) {
    let topic = cluster.topic("followers", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    let mut request = requests::fetch(12, &topic, 0, 0);
    request.replica_id = BrokerId(1);
    assert_eq!(only_fetched(client.call(12, &request), 0).error_code, 31);
    let mut request = requests::fetch(18, &topic, 0, 0);
    request.replica_state.replica_id = BrokerId(1);
    assert_eq!(only_fetched(client.call(18, &request), 0).error_code, 31);
}

/// Partitions of a new topic that one node leads, at most `count`, and a client there.
fn led(cluster: &Cluster, stem: &str, count: usize) -> (Client, Topic, Vec<i32>) {
    let partitions = i32::try_from(count * cluster.nodes()).expect("few");
    let topic = cluster.topic(stem, partitions);
    let leader = cluster.leader(&topic, 0);
    let response = cluster.describe(&topic.name);
    let led = response.topics[0].partitions.iter().filter(|p| p.leader_id.0 == leader);
    let mut led: Vec<i32> = led.map(|partition| partition.partition_index).collect();
    led.sort_unstable();
    assert!(led.len() >= count, "{led:?}");
    led.truncate(count);
    (cluster.connect_to(leader), topic, led)
}

/// A Fetch from offset 0 of some partitions, in this order.
fn of_all(topic: &Topic, partitions: &[i32], each_max: i32) -> FetchRequest {
    let mut request = requests::fetch(18, topic, 0, 0);
    let partition = |&partition: &i32| {
        FetchPartition::default().with_partition(partition).with_partition_max_bytes(each_max)
    };
    request.topics[0].partitions = partitions.iter().map(partition).collect();
    request
}

fn limits_apply_after_the_first_batch(cluster: &Cluster) {
    let (mut client, topic, led) = led(cluster, "limits", 4);
    let [empty, a, b, c] = led[..] else { unreachable!("four") };
    let large = Batch::of_values([vec![b'x'; 5000]]);
    let size = i32::try_from(large.encode().len()).expect("small");
    for partition in [a, b, c] {
        append(&mut client, &topic, partition, &large);
        append(&mut client, &topic, partition, &large);
    }
    let mut counts = |each_max: i32, all_max: i32| {
        let mut request = of_all(&topic, &[empty, a, b, c], each_max);
        request.max_bytes = all_max;
        let response = client.call(18, &request);
        let counts: Vec<_> = fetched(&response).into_iter().map(|found| found.2).collect();
        counts
    };
    assert_eq!(counts(1, 1), [0, 1, 0, 0]);
    assert_eq!(counts(0, 0), [0, 1, 0, 0]);
    assert_eq!(counts(1 << 20, 1), [0, 1, 0, 0]);
    assert_eq!(counts(1 << 20, 0), [0, 1, 0, 0]);
    assert_eq!(counts(1, 1 << 20), [0, 1, 0, 0], "only the first one may exceed its limit");
    assert_eq!(counts(size, 1 << 20), [0, 1, 1, 1]);
    assert_eq!(counts(2 * size, 1 << 20), [0, 2, 2, 2]);
    assert_eq!(counts(2 * size, 3 * size), [0, 2, 1, 0]);
    assert_eq!(counts(2 * size, 4 * size), [0, 2, 2, 0]);
    assert_eq!(counts(size, 3 * size - 1), [0, 1, 1, 0]);
}

fn nothing_to_wait_for_is_answered_at_once(cluster: &Cluster) {
    let topic = cluster.topic("at-once", 1);
    let mut client = cluster.at(&topic, 0);
    let start = Instant::now();
    for (wait_ms, min_bytes) in [(0, 1), (-1, 1), (60_000, 0), (60_000, -5)] {
        let request = waiting(requests::fetch(18, &topic, 0, 0), wait_ms, min_bytes);
        assert_eq!(only_fetched(client.call(18, &request), 0).error_code, 0);
    }
    let mut request = waiting(requests::fetch(18, &topic, 0, 0), 60_000, 1);
    request.topics.clear();
    assert_eq!(client.call(18, &request).responses.len(), 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    let request = waiting(requests::fetch(18, &topic, 0, 0), 60_000, 1);
    assert!(only_fetched(client.call(18, &request), 0).records.is_some());
    assert!(start.elapsed() < Duration::from_secs(15));
}

fn waiting_ends_by_time(cluster: &Cluster) {
    let topic = cluster.topic("by-time", 1);
    let mut client = cluster.at(&topic, 0);
    append(&mut client, &topic, 0, &Batch::of_values(["a"]));
    for (offset, min_bytes, records) in [(1, 1, false), (0, 10_000, true)] {
        let start = Instant::now();
        let request = waiting(requests::fetch(18, &topic, 0, offset), 150, min_bytes);
        let data = only_fetched(client.call(18, &request), 0);
        assert!(start.elapsed() >= Duration::from_millis(149), "{:?}", start.elapsed());
        assert_eq!(data.records.is_some_and(|records| !records.is_empty()), records);
    }
}

fn waiting_ends_with_the_first_record(cluster: &Cluster) {
    let topic = cluster.topic("first-record", 4);
    for partition in 0..4 {
        for isolation_level in 0..=1 {
            let mut producer = cluster.at(&topic, partition);
            let offset = calls::end(&mut producer, &topic, partition);
            let mut client = cluster.at(&topic, partition);
            let mut request = waiting(requests::fetch(18, &topic, partition, offset), 60_000, 1);
            request.isolation_level = isolation_level;
            let sent = client.send(18, &request);
            append(&mut producer, &topic, partition, &Batch::of_values(["a"]));
            let data = only_fetched(client.receive(sent), partition);
            assert_eq!(data.high_watermark, offset + 1);
            assert_eq!(read_batches(data.records.expect("records"))[0].base_offset, offset);
        }
    }
}

fn waiting_goes_on_until_enough_bytes(cluster: &Cluster) {
    let topic = cluster.topic("enough", 1);
    let mut producer = cluster.at(&topic, 0);
    let batch = Batch::of_values([vec![b'x'; 1000]]);
    let size = i32::try_from(batch.encode().len()).expect("small");
    let mut client = cluster.at(&topic, 0);
    let request = waiting(requests::fetch(18, &topic, 0, 0), 60_000, 3 * size);
    let sent = client.send(18, &request);
    append(&mut producer, &topic, 0, &batch);
    append(&mut producer, &topic, 0, &batch);
    client.expect_silence(Duration::from_millis(100));
    append(&mut producer, &topic, 0, &batch);
    let data = only_fetched(client.receive(sent), 0);
    assert_eq!(read_batches(data.records.expect("records")).len(), 3);
    // More than may be returned is never waited for.
    let mut request = waiting(requests::fetch(18, &topic, 0, 0), 60_000, i32::MAX);
    request.max_bytes = size;
    let data = only_fetched(client.call(18, &request), 0);
    assert_eq!(read_batches(data.records.expect("records")).len(), 1);
}

fn waiting_on_many_partitions_ends_with_one(cluster: &Cluster) {
    let (mut client, topic, led) = led(cluster, "many", 6);
    for &partition in &led {
        let mut producer = cluster.at(&topic, partition);
        let mut request = of_all(&topic, &led, 1 << 20);
        for wanted in &mut request.topics[0].partitions {
            wanted.fetch_offset = calls::end(&mut producer, &topic, wanted.partition);
        }
        let sent = client.send(18, &waiting(request, 60_000, 1));
        append(&mut producer, &topic, partition, &Batch::of_values(["a"]));
        let found = fetched(&client.receive(sent));
        let expected: Vec<_> =
            led.iter().map(|&other| (other, 0, usize::from(other == partition))).collect();
        assert_eq!(found, expected);
    }
    // An error in one of them ends the waiting of all.
    let mut request = waiting(of_all(&topic, &led, 1 << 20), 60_000, i32::MAX);
    request.topics[0].partitions[0].fetch_offset = 99;
    let found = fetched(&client.call(18, &request));
    assert_eq!(found[0], (led[0], 1, 0));
    assert_eq!(found[1], (led[1], 0, 1));
}

fn cold_records_come_back_in_order(cluster: &Cluster) {
    let configs = [("internal.segment.bytes", "300000")];
    let topic = cluster.topic_with("cold", 1, &configs);
    let mut client = cluster.at(&topic, 0);
    let mut expected = Vec::new();
    // Sizes of all kinds, so that batches cross blocks, chunks and segments.
    for number in 0..150_usize {
        let value = vec![number as u8; (number * number * 7) % 60_000 + 1];
        let batch = Batch::of_values([&value[..], b"second"]);
        assert_eq!(append(&mut client, &topic, 0, &batch), 2 * number as i64);
        expected.push(batch.encoded_records());
    }
    let found = calls::read_all(&mut client, &topic, 0, 0);
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(found.crc_is_valid && found.payload == expected[..], "batch {place}");
        assert_eq!(found.base_offset, 2 * place as i64);
    }
    for offset in [0, 1, 57, 150, 297, 299] {
        let found = calls::read_all(&mut client, &topic, 0, offset);
        assert_eq!(found[0].base_offset, offset / 2 * 2);
        assert_eq!(found.len() as i64, 150 - offset / 2);
    }
}

fn several_partitions_come_in_the_order_asked(cluster: &Cluster) {
    let (mut client, topic, mut led) = led(cluster, "asked", 5);
    for (count, &partition) in led.iter().enumerate() {
        for _ in 0..count {
            append(&mut client, &topic, partition, &Batch::of_values(["a"]));
        }
    }
    let mut expected: Vec<_> =
        led.iter().enumerate().map(|(count, &partition)| (partition, 0, count)).collect();
    led.reverse();
    expected.reverse();
    assert_eq!(fetched(&client.call(18, &of_all(&topic, &led, 1 << 20))), expected);
}
