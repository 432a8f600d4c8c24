//! Idempotent producers: copies, epochs, sequences, expiry. Transactions are in the log's tests.

use super::*;

const DAY_MS: i64 = 86_400_000;

fn facts(epoch: i16, base_sequence: i32) -> ProducerFacts {
    ProducerFacts { id: ProducerId(9), epoch: ProducerEpoch(epoch), base_sequence }
}

struct Script {
    producers: Producers,
    next: i64,
}

impl Script {
    fn new() -> Script {
        Script { producers: Producers::new(DAY_MS), next: 0 }
    }

    /// Sends a batch of `count` records; `Ok(base offset)` if written.
    fn send(&mut self, epoch: i16, base: i32, count: i32, now_ms: i64) -> Result<i64, i16> {
        let batch = BatchFacts {
            last_offset_delta: count - 1,
            max_timestamp_ms: -1,
            bytes: 100,
            producer: None,
            transactional: false,
            guard: None,
        };
        let facts = facts(epoch, base);
        match self.producers.check(&facts, &batch, &Verifications::default(), now_ms) {
            Err(code) => Err(code.code()),
            Ok(SequenceCheck::Duplicate { base_offset, .. }) => Ok(base_offset.0),
            Ok(SequenceCheck::InOrder) => {
                let base_offset = self.next;
                self.next += i64::from(count);
                self.producers.record(&facts, &batch, Offset(base_offset), now_ms);
                Ok(base_offset)
            }
        }
    }
}

#[test]
fn five_batches_are_remembered_and_only_exact_copies_are_duplicates() {
    let mut script = Script::new();
    for batch in 0..6 {
        assert_eq!(script.send(0, batch * 10, 10, 0), Ok(i64::from(batch) * 10));
    }
    for batch in 1..6 {
        assert_eq!(script.send(0, batch * 10, 10, 0), Ok(i64::from(batch) * 10));
    }
    assert_eq!(script.send(0, 0, 10, 0), Err(45), "older than the window");
    assert_eq!(script.send(0, 50, 5, 0), Err(45), "overlap with other bounds");
    assert_eq!(script.send(0, 55, 10, 0), Err(45), "overlap beyond the end");
    assert_eq!(script.send(0, 61, 1, 0), Err(45), "gap");
    assert_eq!(script.next, 60, "nothing was appended");
}

#[test]
fn epochs_fence_and_start_again_at_zero() {
    let mut script = Script::new();
    assert_eq!(script.send(3, 7, 1, 0), Ok(0), "an unknown producer may start anywhere");
    assert_eq!(script.send(2, 0, 1, 0), Err(47));
    assert_eq!(script.send(4, 1, 1, 0), Err(45));
    assert_eq!(script.send(4, 0, 1, 0), Ok(1));
    assert_eq!(script.send(3, 8, 1, 0), Err(47));
}

/// redpanda-data/redpanda#4854
#[test]
fn sequences_wrap_to_zero() {
    let mut script = Script::new();
    assert_eq!(script.send(0, 2_147_483_640, 10, 0), Ok(0));
    assert_eq!(script.send(0, 2, 5, 0), Ok(10));
    assert_eq!(script.send(0, 2_147_483_640, 10, 0), Ok(0), "duplicate over the wrap");
    let mut script = Script::new();
    assert_eq!(script.send(0, i32::MAX, 1, 0), Ok(0));
    assert_eq!(script.send(0, 0, 1, 0), Ok(1));
    assert_eq!(sequence_after(i32::MAX, 1), 0);
}

/// redpanda-data/redpanda#3824: expiry looks at the broker's clock only.
#[test]
fn producers_expire_by_the_clock_at_append() {
    let mut script = Script::new();
    assert_eq!(script.send(0, 0, 1, 1_000), Ok(0));
    script.producers.expire(1_000 + DAY_MS - 1);
    assert_eq!(script.producers.len(), 1);
    assert_eq!(script.send(0, 5, 1, 1_000 + DAY_MS - 1), Err(45));
    assert_eq!(script.send(0, 5, 1, 1_000 + DAY_MS), Ok(1), "forgotten: any sequence");
    script.producers.expire(3 * DAY_MS);
    assert!(script.producers.is_empty());
}

#[test]
fn rows_carry_everything() {
    let mut script = Script::new();
    for batch in 0..7 {
        assert!(script.send(1, batch, 1, i64::from(batch)).is_ok());
    }
    let rows = script.producers.to_rows();
    assert_eq!(rows[0].batches.len(), 5);
    assert_eq!(Producers::from_rows(&rows, DAY_MS).to_rows(), rows);
}
