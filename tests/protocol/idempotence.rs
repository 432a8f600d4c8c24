//! Idempotent producers: sequences, duplicates, epochs, and ids.

use std::collections::HashSet;

use kafka_protocol::messages::ProducerId;

use crate::calls::{self, append, end, outcome, produce};
use crate::cluster::Cluster;
use crate::support::batch::Batch;
use crate::support::requests::{self, init_producer_id};

in_every_mode!(
    ids_are_handed_out_once,
    ids_are_refused,
    sequences_follow_each_other,
    the_last_five_batches_are_known_again,
    old_epochs_are_fenced_and_new_ones_start_at_zero,
    unknown_producers_may_start_anywhere,
    sequences_wrap_to_zero,
    pipelined_batches_keep_their_order,
    interleaved_partitions_keep_their_order,
    a_slow_batch_is_not_overtaken,
);

fn of(id: i64, epoch: i16, base_sequence: i32, count: i32) -> Batch {
    let values = (0..count).map(|place| format!("{base_sequence}+{place}"));
    Batch::of_values(values).with_producer(id, epoch, base_sequence)
}

fn ids_are_handed_out_once(cluster: &Cluster) {
    let mut seen = HashSet::new();
    for mut client in cluster.everywhere() {
        for version in 0..=5 {
            for _ in 0..3 {
                let mut request = init_producer_id(None);
                request.transaction_timeout_ms = [0, -1, i32::MAX][seen.len() % 3];
                let response = client.call(version, &request);
                assert_eq!((response.error_code, response.producer_epoch), (0, 0));
                assert!(response.producer_id.0 >= 0);
                assert!(seen.insert(response.producer_id.0), "{} twice", response.producer_id.0);
            }
        }
        for version in 3..=5 {
            let mut request = init_producer_id(None);
            (request.producer_id, request.producer_epoch) = (ProducerId(5), 3);
            let response = client.call(version, &request);
            assert_eq!((response.error_code, response.producer_epoch), (0, 0));
            assert!(seen.insert(response.producer_id.0));
        }
    }
}

fn ids_are_refused(cluster: &Cluster) {
    let mut client = cluster.connect();
    for version in 0..=5 {
        let response = client.call(version, &init_producer_id(Some("")));
        let answer = (response.error_code, response.producer_id.0, response.producer_epoch);
        assert_eq!(answer, (42, -1, -1));
        for timeout_ms in [0, -1, 900_001] {
            let mut request = init_producer_id(Some("t"));
            request.transaction_timeout_ms = timeout_ms;
            assert_eq!(client.call(version, &request).error_code, 50);
        }
    }
    for (id, epoch) in [(5, -1), (-1, 0)] {
        for version in 3..=5 {
            let mut request = init_producer_id(None);
            (request.producer_id, request.producer_epoch) = (ProducerId(id), epoch);
            assert_eq!(client.call(version, &request).error_code, 42);
        }
    }
}

fn sequences_follow_each_other(cluster: &Cluster) {
    let topic = cluster.topic("sequences", 2);
    for partition in 0..2 {
        let client = &mut cluster.at(&topic, partition);
        let mut try_one = |batch: &Batch| outcome(client, &topic, partition, batch);
        assert_eq!(try_one(&of(40, 0, 0, 3)), (0, 0));
        assert_eq!(try_one(&of(40, 0, 4, 1)), (45, -1), "a gap");
        assert_eq!(try_one(&of(40, 0, 3, 1)), (0, 3));
        assert_eq!(try_one(&of(40, 0, 2, 1)), (45, -1), "part of an old batch");
        assert_eq!(try_one(&of(41, 0, 0, 1)), (0, 4), "another producer");
        assert_eq!(try_one(&Batch::of_values(["plain"])), (0, 5));
        assert_eq!(try_one(&of(40, 0, 4, 2)), (0, 6));
    }
}

fn the_last_five_batches_are_known_again(cluster: &Cluster) {
    let topic = cluster.topic("duplicates", 1);
    let mut client = cluster.at(&topic, 0);
    let batch = |number: i32| {
        let mut batch = of(50, 1, number * 2, 2);
        batch.base_timestamp += i64::from(number);
        batch
    };
    for number in 0..7 {
        assert_eq!(append(&mut client, &topic, 0, &batch(number)), i64::from(number * 2));
    }
    for number in (2..7).rev() {
        for version in [3, 9, 13] {
            let answer = produce(&mut client, version, &topic, 0, batch(number).encode());
            assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(number * 2)));
            // As Kafka: the time of the batch stands where the append time would.
            assert_eq!(answer.log_append_time_ms, batch(number).base_timestamp);
        }
    }
    for number in 0..2 {
        assert_eq!(outcome(&mut client, &topic, 0, &batch(number)), (45, -1));
    }
    assert_eq!(end(&mut client, &topic, 0), 14);
    assert_eq!(append(&mut client, &topic, 0, &batch(7)), 14);
}

fn old_epochs_are_fenced_and_new_ones_start_at_zero(cluster: &Cluster) {
    let topic = cluster.topic("epochs", 1);
    let mut client = cluster.at(&topic, 0);
    let mut try_one = |batch: &Batch| outcome(&mut client, &topic, 0, batch);
    assert_eq!(try_one(&of(60, 5, 0, 1)), (0, 0));
    assert_eq!(try_one(&of(60, 4, 1, 1)), (47, -1));
    assert_eq!(try_one(&of(60, 6, 1, 1)), (45, -1));
    assert_eq!(try_one(&of(60, 6, 0, 1)), (0, 1));
    assert_eq!(try_one(&of(60, 5, 0, 1)), (47, -1), "even a duplicate of it");
    assert_eq!(try_one(&of(60, i16::MAX, 0, 1)), (0, 2));
    assert_eq!(try_one(&of(60, i16::MAX, 1, 1)), (0, 3));
}

fn unknown_producers_may_start_anywhere(cluster: &Cluster) {
    let topic = cluster.topic("unknown-producers", 1);
    let mut client = cluster.at(&topic, 0);
    assert_eq!(outcome(&mut client, &topic, 0, &of(70, 0, 7, 1)), (0, 0));
    assert_eq!(outcome(&mut client, &topic, 0, &of(70, 0, 8, 1)), (0, 1));
    assert_eq!(outcome(&mut client, &topic, 0, &of(71, 3, i32::MAX, 1)), (0, 2));
    assert_eq!(outcome(&mut client, &topic, 0, &of(71, 3, 0, 1)), (0, 3));
    assert_eq!(outcome(&mut client, &topic, 0, &of(i64::MAX, 0, 0, 1)), (0, 4));
}

fn sequences_wrap_to_zero(cluster: &Cluster) {
    let topic = cluster.topic("wrap", 1);
    let mut client = cluster.at(&topic, 0);
    let mut try_one = |batch: &Batch| outcome(&mut client, &topic, 0, batch);
    assert_eq!(try_one(&of(80, 0, i32::MAX - 7, 10)), (0, 0));
    assert_eq!(try_one(&of(80, 0, i32::MAX - 7, 10)), (0, 0), "the same again");
    assert_eq!(try_one(&of(80, 0, 3, 1)), (45, -1));
    assert_eq!(try_one(&of(80, 0, 2, 1)), (0, 10));
    assert_eq!(try_one(&of(81, 0, i32::MAX - 1, 2)), (0, 11));
    assert_eq!(try_one(&of(81, 0, 0, 1)), (0, 13));
}

fn pipelined_batches_keep_their_order(cluster: &Cluster) {
    let topic = cluster.topic("pipelined", 4);
    for partition in 0..4 {
        let mut client = cluster.at(&topic, partition);
        let sent: Vec<_> = (0..100)
            .map(|number| {
                let set = of(90, 0, number * 3, 3).encode();
                client.send(13, &requests::produce(13, &topic, partition, -1, set))
            })
            .collect();
        for (number, sent) in (0..100).zip(sent) {
            let answer = calls::only_produced(client.receive(sent), partition);
            assert_eq!((answer.error_code, answer.base_offset), (0, number * 3));
        }
        let batches = calls::read_all(&mut client, &topic, partition, 0);
        let sequences: Vec<i32> = batches.iter().map(|batch| batch.base_sequence).collect();
        assert_eq!(sequences, (0..100).map(|number| number * 3).collect::<Vec<_>>());
    }
}

fn interleaved_partitions_keep_their_order(cluster: &Cluster) {
    let topic = cluster.topic("interleaved", 12);
    let node = cluster.leader(&topic, 0);
    let response = cluster.describe(&topic.name);
    let led = response.topics[0].partitions.iter().filter(|p| p.leader_id.0 == node);
    let led: Vec<i32> = led.map(|partition| partition.partition_index).collect();
    // In single mode one connection, on one shard, writes to all of them.
    let mut client = cluster.connect_to(node);
    let mut sent = Vec::new();
    for number in 0..25 {
        for &partition in &led {
            let set = of(95, 0, number * 2, 2).encode();
            let request = requests::produce(13, &topic, partition, -1, set);
            sent.push((client.send(13, &request), partition, i64::from(number * 2)));
        }
    }
    for (sent, partition, base) in sent {
        let answer = calls::only_produced(client.receive(sent), partition);
        assert_eq!((answer.error_code, answer.base_offset), (0, base), "partition {partition}");
    }
}

fn a_slow_batch_is_not_overtaken(cluster: &Cluster) {
    let topic = cluster.topic("slow", 3);
    // Small on the wire and large to validate, which is done in slices.
    let mut slow = Batch::of_values([vec![0_u8; 30 << 20]]).with_producer(96, 0, 0);
    slow.payload = Some(zstd::encode_all(&slow.encoded_records()[..], 0).expect("memory"));
    slow.attributes = 4;
    for partition in 0..3 {
        let mut client = cluster.at(&topic, partition);
        let batches = [slow.clone(), of(96, 0, 1, 1), of(96, 0, 2, 1)];
        let sent = batches.map(|batch| {
            client.send(13, &requests::produce(13, &topic, partition, -1, batch.encode()))
        });
        for (base, sent) in (0..).zip(sent) {
            let answer = calls::only_produced(client.receive(sent), partition);
            assert_eq!((answer.error_code, answer.base_offset), (0, base));
        }
    }
}
