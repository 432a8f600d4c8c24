//! Cases 9-16 and 50: sequences, duplicates and the memory of producers.

use kafka_protocol::messages::produce_response::PartitionProduceResponse;

use crate::calls::now_ms;
use crate::calls::{UNCOMMITTED, bounds, fresh_id, idempotent, outcome, produce, read_all};
use crate::stage::{Stage, Stop, await_some};
use crate::support::batch::{Batch, CONTROL};

cases!(
    case_09_a_batch_again: Needs::Shared,
    case_10_five_batches_are_remembered: Needs::Shared,
    case_11_parts_and_gaps: Needs::Shared,
    case_12_an_unknown_producer_begins_anywhere: Needs::Shared,
    case_13_sequences_wrap: Needs::Shared,
    case_14_epochs_that_nobody_gave_out: Needs::Shared,
    case_15_batches_again_after_a_restart: Needs::Alone(&[]),
    case_16_batches_that_are_invalid: Needs::Shared,
    case_50_a_forgotten_producer: Needs::Alone(&[("producer.id.expiration.ms", "1000")]),
);

fn case_09_a_batch_again(stage: &Stage) {
    let topic = stage.topic("nine", 1);
    let batch = idempotent(fresh_id(stage), 0, 0, 10);
    let answer = |answer: PartitionProduceResponse| {
        (answer.error_code, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
    };
    assert_eq!(answer(produce(stage, 13, &topic, 0, &batch)), (0, 0, -1, 0));
    let again = (0, 0, batch.base_timestamp, 0);
    assert_eq!(answer(produce(stage, 13, &topic, 0, &batch)), again);
    assert_eq!(answer(produce(stage, 9, &topic, 0, &batch)), again);
    assert_eq!(bounds(stage, &topic, 0), (10, 10));
}

fn case_10_five_batches_are_remembered(stage: &Stage) {
    let topic = stage.topic("ten", 1);
    let id = fresh_id(stage);
    for number in 0..6 {
        let batch = idempotent(id, 0, number * 2, 2);
        assert_eq!(outcome(stage, &topic, 0, &batch), (0, i64::from(number * 2)));
    }
    assert_eq!(outcome(stage, &topic, 0, &idempotent(id, 0, 0, 2)), (45, -1));
    assert_eq!(outcome(stage, &topic, 0, &idempotent(id, 0, 2, 2)), (0, 2));
    assert_eq!(bounds(stage, &topic, 0), (12, 12));
}

fn case_11_parts_and_gaps(stage: &Stage) {
    let topic = stage.topic("eleven", 1);
    let id = fresh_id(stage);
    let send = |sequence, count| outcome(stage, &topic, 0, &idempotent(id, 0, sequence, count));
    assert_eq!(send(0, 10), (0, 0));
    assert_eq!(send(5, 5), (45, -1));
    assert_eq!(send(0, 5), (45, -1));
    assert_eq!(send(11, 1), (45, -1));
    assert_eq!(send(10, 1), (0, 10));
}

fn case_12_an_unknown_producer_begins_anywhere(stage: &Stage) {
    let topic = stage.topic("twelve", 1);
    let id = fresh_id(stage);
    let send = |sequence| outcome(stage, &topic, 0, &idempotent(id, 0, sequence, 1));
    assert_eq!(send(500), (0, 0));
    assert_eq!(send(501), (0, 1));
    assert_eq!(send(503), (45, -1));
}

fn case_13_sequences_wrap(stage: &Stage) {
    let topic = stage.topic("thirteen", 1);
    let (id, other) = (fresh_id(stage), fresh_id(stage));
    assert_eq!(outcome(stage, &topic, 0, &idempotent(id, 0, i32::MAX - 2, 3)), (0, 0));
    assert_eq!(outcome(stage, &topic, 0, &idempotent(id, 0, 0, 1)), (0, 3));
    let spanning = Batch::of_values(["a", "b", "c", "d"]).with_producer(other, 0, i32::MAX - 1);
    assert_eq!(outcome(stage, &topic, 0, &spanning), (0, 4));
    assert_eq!(outcome(stage, &topic, 0, &idempotent(other, 0, 3, 1)), (45, -1));
    assert_eq!(outcome(stage, &topic, 0, &idempotent(other, 0, 2, 1)), (0, 8));
    assert_eq!(outcome(stage, &topic, 0, &spanning), (0, 4), "the same again");
}

fn case_14_epochs_that_nobody_gave_out(stage: &Stage) {
    let topic = stage.topic("fourteen", 1);
    let id = fresh_id(stage);
    let send = |epoch, sequence| outcome(stage, &topic, 0, &idempotent(id, epoch, sequence, 1));
    assert_eq!(send(0, 0), (0, 0));
    assert_eq!(send(1, 0), (0, 1));
    assert_eq!(send(0, 1), (47, -1));
    assert_eq!(send(3, 3), (45, -1));
    assert_eq!(send(1, 1), (0, 2));
}

/// Kafka keeps one batch of each producer over a restart, a crash included: what it reads back goes
/// into a snapshot first. Ringlog keeps all five.
fn case_15_batches_again_after_a_restart(stage: &Stage) {
    let topic = stage.topic("fifteen", 1);
    let id = fresh_id(stage);
    let again = |number: i32| {
        // A partition that has just been loaded may not be served at once.
        await_some("a partition that is served", || {
            let batch = idempotent(id, 0, number * 2, 2);
            let answer = outcome(stage, &topic, 0, &batch);
            let loads = stage.is_kafka() && [3, 6].contains(&answer.0);
            (!loads).then_some(answer)
        })
    };
    for number in 0..3 {
        assert_eq!(again(number), (0, i64::from(number * 2)));
    }
    for stop in [Stop::Kill, Stop::Clean] {
        stage.restart(stop);
        assert_eq!(again(2), (0, 4), "{stop:?}");
        let older = if stage.is_kafka() { [(45, -1); 2] } else { [(0, 2), (0, 0)] };
        assert_eq!([again(1), again(0)], older, "{stop:?}");
    }
    assert_eq!(again(3), (0, 6));
    assert_eq!(bounds(stage, &topic, 0), (8, 8));
}

fn case_16_batches_that_are_invalid(stage: &Stage) {
    let topic = stage.topic("sixteen", 1);
    let id = fresh_id(stage);
    let mut control = idempotent(id, 0, 0, 1);
    control.attributes |= CONTROL;
    assert_eq!(outcome(stage, &topic, 0, &control), (87, -1));
    let mut two = idempotent(id, 0, 0, 1);
    two.trailing = idempotent(id, 0, 1, 1).encode().to_vec();
    assert_eq!(outcome(stage, &topic, 0, &two), (87, -1));
    assert_eq!(outcome(stage, &topic, 0, &idempotent(id, 0, -1, 1)), (87, -1));
    assert_eq!(read_all(stage, &topic, 0, UNCOMMITTED), []);
}

/// In Kafka the time of the records counts, in Ringlog the time of the append: these are the same.
fn case_50_a_forgotten_producer(stage: &Stage) {
    let topic = stage.topic("fifty", 1);
    let id = fresh_id(stage);
    let send = |sequence| {
        let batch = Batch { base_timestamp: now_ms(), ..idempotent(id, 0, sequence, 1) };
        outcome(stage, &topic, 0, &batch)
    };
    for sequence in 0..3 {
        assert_eq!(send(sequence), (0, i64::from(sequence)));
    }
    // Out of order, until there is nothing any more that it could be out of order with.
    let first = await_some("the producer is forgotten", || {
        let answer = send(7);
        (answer != (45, -1)).then_some(answer)
    });
    assert_eq!(first, (0, 3));
    assert_eq!(send(8), (0, 4));
}
