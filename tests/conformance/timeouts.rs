//! Cases 27, 35, 45 and 53: transactions and ids that time ends, and producers that are fenced.

use std::time::{Duration, Instant};

use crate::calls::{self, Producer, Who, bounds, ends, init, producer_state, settled};
use crate::stage::{Stage, Stop, await_some};
use crate::support::transactions::{partition_of, state_key};

cases!(
    case_27_a_timed_out_transaction: Needs::Shared,
    case_35_a_timeout_while_the_broker_is_down: Needs::Alone(&[]),
    case_45_a_fenced_producer: Needs::Shared,
    case_53_an_expired_id: Needs::Alone(&[("transactional.id.expiration.ms", "1000")]),
);

fn case_27_a_timed_out_transaction(stage: &Stage) {
    let topic = stage.topic("twenty-seven", 2);
    let producer = Producer::with_timeout(stage, "twenty-seven", 1000);
    let id = producer.who.id;
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    producer.await_state("CompleteAbort");
    let described = producer.describe();
    assert_eq!((described.producer_id.0, described.producer_epoch), (id, 1));
    assert_eq!(ends(stage, &topic, 0), [(1, 1, false)]);
    assert_eq!(bounds(stage, &topic, 0), (2, 2));
    for (version, partition) in [(9, 0), (11, 0), (12, 0), (13, 0), (9, 1), (11, 1), (13, 1)] {
        let answer = producer.send(version, &topic, partition, 1, 1);
        assert_eq!(answer, (47, -1), "v{version}, partition {partition}");
    }
    assert_eq!(producer.add(3, &[(&topic, 0)]), [90]);
    assert_eq!(producer.end(4, true), (90, -1, -1));
    assert_eq!(producer.end(4, false), (90, -1, -1));
    assert_eq!(producer.end(1, true), (47, -1, -1));
    // KAFKA-20785 is in Ringlog, and after 4.3.1 in Kafka.
    let commit = if stage.is_kafka() { 48 } else { 90 };
    assert_eq!(producer.end(5, true), (commit, -1, -1));
    assert_eq!(producer.end(5, false), (0, id, 1), "it goes on");
    assert_eq!(settled(stage, || producer.init(5, Some(producer.who))), (0, id, 1));
    assert_eq!(settled(stage, || producer.init(5, None)), (0, id, 2));
}

/// A Kafka that has just started knows no leaders for a moment. It takes the partitions of what it
/// ends then for deleted, and their transactions stay open: markers may be missing.
fn case_35_a_timeout_while_the_broker_is_down(stage: &Stage) {
    let topic = stage.topic("thirty-five", 1);
    let producer = Producer::with_timeout(stage, "thirty-five", 2000);
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    let over = Instant::now() + Duration::from_millis(2000);
    stage.restart_after(Stop::Kill, |_| {
        await_some("the time is over", || (Instant::now() >= over).then_some(()));
    });
    producer.await_state("CompleteAbort");
    assert_eq!(settled(stage, || producer.end(4, true)).0, 90);
    let found = ends(stage, &topic, 0);
    if stage.is_kafka() && found.is_empty() {
        return;
    }
    assert_eq!(found, [(1, 1, false)]);
    assert_eq!(producer.send(13, &topic, 0, 1, 1), (47, -1));
}

/// FenceProducers of an admin is InitProducerId with the admin's own timeout.
fn case_45_a_fenced_producer(stage: &Stage) {
    let topic = stage.topic("forty-five", 2);
    let producer = Producer::new(stage, "forty-five");
    let id = producer.who.id;
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    assert_eq!(settled(stage, || init(stage, 5, &producer.id, 30_000, None)), (0, id, 2));
    for version in [9, 11, 13] {
        for partition in 0..2 {
            assert_eq!(producer.send(version, &topic, partition, 1, 1), (47, -1), "v{version}");
        }
    }
    for version in [4, 5] {
        for commit in [true, false] {
            assert_eq!(producer.end(version, commit), (90, -1, -1), "v{version} {commit}");
        }
    }
    assert_eq!(ends(stage, &topic, 0), [(1, 1, false)]);
    assert_eq!(producer.describe().transaction_timeout_ms, 30_000);
}

fn case_53_an_expired_id(stage: &Stage) {
    let topic = stage.topic("fifty-three", 1);
    let open = Producer::new(stage, "open");
    open.added(&topic, 0);
    let mut done = Producer::new(stage, "done");
    done.added(&topic, 0);
    done.ended(4, true);
    await_some("the id is forgotten", || {
        let described = done.describe();
        (described.error_code == 105).then_some(())
    });
    let state = calls::topic_named(stage, "__transaction_state");
    let partition = partition_of(&done.id, stage.partitions_of(&state.name));
    await_some("a tombstone", || {
        let batches = calls::read_all(stage, &state, partition, calls::UNCOMMITTED);
        let mut records = batches.iter().flat_map(|batch| &batch.records);
        let key = state_key(&done.id);
        let last = records.rfind(|record| record.key.as_deref() == Some(&key[..]));
        last.is_some_and(|record| record.value.is_none()).then_some(())
    });
    assert_eq!(settled(stage, || done.add(3, &[(&topic, 0)])), [49]);
    let expected = Some(Who { id: done.who.id, epoch: done.who.epoch });
    let (code, id, epoch) = settled(stage, || done.init(5, expected));
    assert_eq!((code, epoch), (0, 0));
    assert_ne!(id, done.who.id);
    assert_eq!(&*open.describe().transaction_state, "Ongoing", "it never expires");
    assert!(producer_state(stage, &topic, 0, done.who.id).is_some(), "the partition remembers");
}
