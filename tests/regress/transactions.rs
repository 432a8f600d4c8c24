//! Transactions: their coordinator, and what readers see.

use std::time::{Duration, Instant};

use crate::calls::{
    COMMITTED, Producer, bounds, commit_plainly, committed, ends, fetch, offset_at, outcome,
    readable, settled, whole_batches,
};
use crate::stage::{Needs, Stage, Stop, TWO_SHARDS, await_some, on_ringlog, unique};
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic};
use crate::support::transactions::{TRANSACTION, add_partitions, end_txn};

fn run(needs: Needs, test: impl Fn(&Stage)) {
    on_ringlog(TWO_SHARDS, needs, test);
}

/// jepsen.io/analyses/bufstream-0.1.0, apache/kafka#16719 (KIP-890): a delayed request of one
/// transaction hit the next.
#[test]
fn a_late_request_of_the_last_transaction_changes_nothing() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("late", 1);
        let group = unique("late");
        let mut producer = Producer::new(stage, "late");
        assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
        let late = producer.clone();
        producer.ended(5, true);
        assert_eq!(producer.sent(&topic, 0, 0, 1), 2);
        for commit in [true, false] {
            assert_eq!(late.end(5, commit).0, 90);
            assert_eq!(late.end(4, commit).0, 90);
        }
        assert_eq!(late.send(13, &topic, 0, 1, 1), (47, -1));
        assert_eq!(late.send(11, &topic, 0, 1, 1), (47, -1));
        assert_eq!(late.commit_offset(5, &group, &topic, 0, 1), 47);
        assert_eq!(late.add(3, &[(&topic, 0)]), [90]);
        assert_eq!(&*producer.describe().transaction_state, "Ongoing");
        assert_eq!(bounds(stage, &topic, 0), (2, 3));
        producer.ended(5, false);
        assert_eq!(readable(stage, &topic, 0), [0]);
    });
}

/// The same where the epoch does not tell transactions apart: a late EndTxn ends the next one. The
/// old protocol cannot do better, in Kafka neither.
#[test]
fn a_late_end_of_the_old_protocol_cannot_be_told() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("late-legacy", 1);
        let mut producer = Producer::new(stage, "late-legacy");
        producer.added(&topic, 0);
        assert_eq!(producer.send(9, &topic, 0, 0, 1), (0, 0));
        producer.ended(4, true);
        producer.added(&topic, 0);
        assert_eq!(producer.send(9, &topic, 0, 1, 1), (0, 2));
        producer.ended(4, true);
        assert_eq!(settled(stage, || producer.end(4, false)).0, 48, "this much can be told");
        assert_eq!(readable(stage, &topic, 0), [0, 2]);
    });
}

/// redpanda-data/redpanda#3501, nisshi-io/nisshi#712: the answer to a commit was lost, and the
/// retry was refused or wrote a second marker.
#[test]
fn a_commit_whose_answer_was_lost_is_repeated() {
    run(Needs::Shared, |stage| {
        for version in [1, 4, 5] {
            let topic = stage.topic("lost-answer", 2);
            let producer = Producer::new(stage, "lost-answer");
            for partition in 0..2 {
                assert_eq!(producer.sent(&topic, partition, 0, 1), 0);
            }
            let node = stage.coordinator(TRANSACTION, &producer.id);
            let mut client = stage.connect(node);
            let _never_read = client.send(version, &end_txn(&producer.id, producer.who, true));
            client.half_close();
            drop(client);
            let again = || settled(stage, || producer.end(version, true)).0;
            assert_eq!((again(), again()), (0, 0), "v{version}");
            producer.await_state("CompleteCommit");
            assert_eq!(settled(stage, || producer.end(version, false)).0, 48, "v{version}");
            let epoch = i16::from(version >= 5);
            for partition in 0..2 {
                assert_eq!(ends(stage, &topic, partition), [(1, epoch, true)], "v{version}");
            }
        }
    });
}

/// apache/kafka#4137 (KAFKA-6119): a transaction timed out without a new epoch, and the slow
/// client carried on.
#[test]
fn a_timed_out_producer_is_fenced() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("slow", 2);
        let producer = Producer::with_timeout(stage, "slow", 1000);
        assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
        producer.await_state("CompleteAbort");
        for partition in 0..2 {
            assert_eq!(producer.send(13, &topic, partition, 1, 1), (47, -1));
            assert_eq!(producer.add(3, &[(&topic, partition)]), [90]);
        }
        assert_eq!((producer.end(4, true).0, producer.end(5, true).0), (90, 90));
        assert_eq!(producer.end(5, false), (0, producer.who.id, 1));
        assert_eq!(ends(stage, &topic, 0), [(1, 1, false)]);
        assert!(readable(stage, &topic, 0).is_empty());
    });
}

/// nisshi-io/nisshi#712: nobody ended the transaction of a dead producer.
#[test]
fn the_transaction_of_a_dead_producer_ends() {
    run(Needs::Alone(&[]), |stage| {
        for restart in [None, Some(Stop::Kill), Some(Stop::Clean)] {
            let topic = stage.topic("dead", 1);
            let producer = Producer::with_timeout(stage, "dead", 1000);
            assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
            let started = Instant::now();
            assert_eq!(outcome(stage, &topic, 0, &Batch::of_values(["plain"])), (0, 1));
            assert!(readable(stage, &topic, 0).is_empty());
            if let Some(stop) = restart {
                stage.restart_after(stop, |_| {
                    await_some("the time is over", || {
                        (started.elapsed() > Duration::from_millis(1000)).then_some(())
                    });
                });
            }
            await_some("readers move on", || (bounds(stage, &topic, 0) == (3, 3)).then_some(()));
            assert!(started.elapsed() >= Duration::from_millis(1000), "{restart:?}");
            assert_eq!(readable(stage, &topic, 0), [1], "{restart:?}");
        }
    });
}

/// nisshi-io/nisshi#716: transactions of nothing but offsets lost them or leaked them.
#[test]
fn offsets_alone_make_a_transaction() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("offsets", 1);
        let group = unique("offsets");
        let mut producer = Producer::new(stage, "offsets");
        let commit = |producer: &Producer<'_>, offset| {
            settled(stage, || producer.commit_offset(5, &group, &topic, 0, offset))
        };
        assert_eq!(commit(&producer, 1), 0);
        assert_eq!(commit(&producer, 2), 0, "again");
        assert_eq!(committed(stage, &group, &topic, 0, false), (0, -1));
        let old = producer.clone();
        producer.ended(5, true);
        assert_eq!(committed(stage, &group, &topic, 0, true), (0, 2), "the last one wins");
        assert_eq!(commit(&old, 3), 47, "after its end");
        producer.ended(5, false);
        assert_eq!(committed(stage, &group, &topic, 0, true), (0, 2), "nothing leaks");
        assert_eq!(commit(&producer, 4), 0);
        producer.ended(5, false);
        assert_eq!(committed(stage, &group, &topic, 0, true), (0, 2));
        let unknown = Topic::named("no-such-topic");
        assert_eq!(settled(stage, || producer.commit_offset(5, &group, &unknown, 0, 1)), 3);
        assert_eq!(settled(stage, || producer.commit_offset(5, &group, &topic, 7, 1)), 3);
        assert_eq!(&*producer.describe().transaction_state, "CompleteAbort", "nothing was added");

        let mut legacy = Producer::new(stage, "offsets");
        assert_eq!(legacy.commit_offset(3, &group, &topic, 0, 9), 48, "not added");
        assert_eq!(legacy.add_offsets(3, &group), 0);
        assert_eq!(legacy.commit_offset(3, &group, &topic, 0, 9), 0);
        legacy.ended(4, true);
        assert_eq!(committed(stage, &group, &topic, 0, true), (0, 9));
        assert_eq!(legacy.commit_offset(3, &group, &topic, 0, 10), 48, "after its end");
        assert_eq!(commit_plainly(stage, &group, &topic, 0, 11), 0);
        assert_eq!(committed(stage, &group, &topic, 0, true), (0, 11));
    });
}

/// tulios/kafkajs#1315, confluentinc/librdkafka#3003, apache/kafka#18810 (KAFKA-18654): the next
/// transaction right after a commit was refused (51). It is held until the commit is complete.
#[test]
fn transactions_back_to_back_are_never_refused() {
    run(Needs::Shared, |stage| {
        let topics = [0, 1, 2].map(|_| stage.topic("back-to-back", 1));
        let mut producer = Producer::new(stage, "back-to-back");
        let legacy = Producer::new(stage, "back-to-back");
        for round in 0..100 {
            for topic in &topics {
                assert_eq!(producer.send(13, topic, 0, 0, 1).0, 0, "round {round}");
            }
            let (code, _, epoch) = producer.end(5, round % 3 > 0);
            assert_eq!(code, 0, "round {round}");
            producer.who.epoch = epoch;
            let all = topics.each_ref().map(|topic| (topic, 0));
            assert_eq!(legacy.add(1, &all), [0; 3], "round {round}");
            for topic in &topics {
                assert_eq!(legacy.send(7, topic, 0, round, 1).0, 0, "round {round}");
            }
            assert_eq!(legacy.end(1, true).0, 0, "round {round}");
        }
        producer.ended(5, false);
        legacy.await_state("CompleteCommit");
        for topic in &topics {
            assert_eq!(readable(stage, topic, 0).len(), 100 + 66);
            let (stable, end) = bounds(stage, topic, 0);
            assert_eq!((stable, end), (400, 400));
        }
    });
}

/// redpanda-data/redpanda#3036: the last stable offset was taken for the last readable one.
#[test]
fn the_last_stable_offset_is_the_first_that_cannot_be_read() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("stable", 1);
        let plain = |value: &str| outcome(stage, &topic, 0, &Batch::of_values([value]));
        assert_eq!((plain("a"), plain("b")), ((0, 0), (0, 1)));
        let mut producer = Producer::new(stage, "stable");
        assert_eq!(producer.sent(&topic, 0, 0, 1), 2);
        assert_eq!(plain("c"), (0, 3));
        let read = |offset| -> Vec<i64> {
            let data = fetch(stage, &topic, 0, offset, COMMITTED);
            assert_eq!((data.last_stable_offset, data.high_watermark), (2, 4));
            whole_batches(&data).iter().map(|batch| batch.base_offset).collect()
        };
        assert_eq!((read(0), read(1)), (vec![0, 1], vec![1]));
        assert!(read(2).is_empty() && read(3).is_empty());
        // At the bound a fetch waits for it to move.
        let mut client = stage.connect(stage.leader(&topic.name, 0));
        let mut request = requests::fetch(17, &topic, 0, 2).with_isolation_level(COMMITTED);
        (request.max_wait_ms, request.min_bytes) = (10_000, 1);
        let waiting = client.send(17, &request);
        client.expect_silence(Duration::from_millis(100));
        assert_eq!(plain("d"), (0, 4));
        client.expect_silence(Duration::from_millis(100));
        producer.ended(5, true);
        let response = client.receive(waiting);
        let data = &response.responses[0].partitions[0];
        let found: Vec<i64> = whole_batches(data).iter().map(|batch| batch.base_offset).collect();
        assert_eq!((found, data.last_stable_offset), (vec![2, 3, 4, 5], 6));
    });
}

/// nisshi-io/nisshi#689: the high watermark was told as the last stable offset.
#[test]
fn the_oldest_open_transaction_bounds_readers() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("oldest", 1);
        let plain = || outcome(stage, &topic, 0, &Batch::of_values(["plain"])).1;
        assert_eq!(plain(), 0);
        let (mut first, mut second) = (Producer::new(stage, "a"), Producer::new(stage, "b"));
        assert_eq!((first.sent(&topic, 0, 0, 1), plain()), (1, 2));
        assert_eq!((second.sent(&topic, 0, 0, 1), plain()), (3, 4));
        assert_eq!(first.sent(&topic, 0, 1, 1), 5);
        let check = |bound: (i64, i64)| {
            assert_eq!(bounds(stage, &topic, 0), bound);
            assert_eq!(offset_at(stage, &topic, 0, -2, COMMITTED).0, 0);
            let data = fetch(stage, &topic, 0, 0, COMMITTED);
            assert_eq!((data.last_stable_offset, data.high_watermark), bound);
        };
        check((1, 6));
        first.ended(5, true);
        check((3, 7));
        second.ended(5, false);
        check((8, 8));
        assert_eq!(readable(stage, &topic, 0), [0, 1, 2, 4, 5]);
    });
}

/// redpanda-data/redpanda#30003: a snapshot dropped an open transaction that had no data yet.
#[test]
fn an_open_transaction_without_data_survives_a_snapshot() {
    run(Needs::Alone(&[]), |stage| {
        for end in ["commit", "abort", "timeout"] {
            let topic = stage.topic(end, 1);
            let mut producer = Producer::with_timeout(stage, end, 3000);
            producer.added(&topic, 0);
            // A clean stop writes the image of everything.
            stage.restart(Stop::Clean);
            assert_eq!(settled(stage, || producer.send(9, &topic, 0, 0, 1)), (0, 0), "{end}");
            stage.restart(Stop::Kill);
            assert_eq!(bounds(stage, &topic, 0), (0, 1), "{end}");
            match end {
                "timeout" => producer.await_state("CompleteAbort"),
                _ => producer.ended(4, end == "commit"),
            }
            assert_eq!(bounds(stage, &topic, 0), (2, 2), "{end}");
            let expected: &[i64] = if end == "commit" { &[0] } else { &[] };
            assert_eq!(readable(stage, &topic, 0), expected, "{end}");
        }
    });
}

/// AutoMQ/automq#754: aborted ranges that began before the fetched bytes, or ended behind them,
/// were not told.
#[test]
fn aborted_ranges_across_segments_are_told() {
    run(Needs::Alone(&[]), |stage| {
        let topic = stage.topic_with("ranges", 1, &[("segment.bytes", "1048576")]);
        let filler = || outcome(stage, &topic, 0, &Batch::of_values([vec![b'x'; 300_000]])).0;
        let mut expected = Vec::new();
        let mut before: Option<(Producer<'_>, bool)> = None;
        // Each transaction begins in one segment and ends in the next, over the next one's begin.
        for round in 0..6 {
            let producer = Producer::new(stage, "ranges");
            let first = producer.sent(&topic, 0, 0, 1);
            for _ in 0..3 {
                assert_eq!(filler(), 0);
            }
            let commit = round % 3 == 2;
            if commit {
                expected.push(first);
            }
            expected.extend(first + 1..first + 4);
            if let Some((mut earlier, commit)) = before.replace((producer, commit)) {
                earlier.ended(5, commit);
            }
        }
        let (mut last, commit) = before.expect("the last one");
        last.ended(5, commit);
        let check = || {
            assert_eq!(readable(stage, &topic, 0), expected);
            // From the middle of each: the first answer names what reaches into it.
            for start in 1..bounds(stage, &topic, 0).0 {
                let from_here: Vec<i64> =
                    expected.iter().copied().filter(|offset| *offset >= start).collect();
                assert_eq!(crate::calls::readable_from(stage, &topic, 0, start), from_here);
            }
        };
        check();
        for stop in [Stop::Kill, Stop::Clean, Stop::Kill] {
            stage.restart(stop);
            check();
        }
    });
}

/// tulios/kafkajs#1315, as a pipelining client meets it: the next AddPartitionsToTxn is sent
/// before the EndTxn is answered.
#[test]
fn the_next_transaction_may_be_sent_before_the_last_is_answered() {
    run(Needs::Shared, |stage| {
        let topic = stage.topic("pipelined", 1);
        let producer = Producer::new(stage, "pipelined");
        producer.added(&topic, 0);
        let mut client = stage.connect(stage.coordinator(TRANSACTION, &producer.id));
        for _ in 0..50 {
            let end = client.send(3, &end_txn(&producer.id, producer.who, true));
            let next = add_partitions(3, &producer.id, producer.who, &[(&topic.name, 0)]);
            let next = client.send(3, &next);
            assert_eq!(client.receive(end).error_code, 0);
            let response = client.receive(next);
            let results = &response.results_by_topic_v3_and_below[0].results_by_partition;
            assert_eq!(results[0].partition_error_code, 0);
        }
        assert_eq!(ends(stage, &topic, 0).len(), 50);
    });
}
