//! What a partition remembers of its producers: epoch, the last five batches, and when they came.
//!
//! Owns the duplicate and sequence rules of idempotent producers. Must never look at record
//! timestamps to decide what to forget: entries expire by the broker's clock at append, so that
//! backfilling old data keeps its dedup window. **deviation** from Kafka, which expires by record
//! time and keeps one batch over a restart; here all five survive in the checkpoint image.
//!
//! Invariants: at most five batches per producer, all of its current epoch, oldest first.
//! Source: KIP-98, Kafka's `ProducerStateManager` and `ProducerAppendInfo`.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::ProducerFacts;
use crate::error_code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId};
use crate::journal::image::{ProducerBatchRow, ProducerRow};
use crate::limits::PRODUCER_BATCHES_REMEMBERED;

/// One remembered batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RememberedBatch {
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Records in it, less one.
    pub offset_delta: i32,
    /// Its largest timestamp.
    pub max_timestamp_ms: i64,
    /// Broker's wall clock when it was appended.
    pub append_ms: i64,
}

/// What is known of one producer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerEntry {
    /// Its current epoch.
    pub epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote its last marker, -1 if none.
    pub coordinator_epoch: i32,
    /// Broker's wall clock at its last append.
    pub last_append_ms: i64,
    /// Its last record timestamp, for Kafka's snapshot files.
    pub last_timestamp_ms: i64,
    /// First offset of its open transaction.
    pub open_transaction_first_offset: Option<Offset>,
    /// Its last batches, oldest first.
    pub batches: SmallVec<[RememberedBatch; 1]>,
}

/// Outcome of a sequence check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceCheck {
    /// May be appended.
    InOrder,
    /// An exact copy of a remembered batch.
    Duplicate {
        /// Base offset of the original.
        base_offset: Offset,
        /// Largest timestamp of the original.
        max_timestamp_ms: i64,
    },
}

/// All producers of one partition.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    entries: HashMap<ProducerId, ProducerEntry, RandomState>,
    expiration_ms: i64,
}

impl Producers {
    /// An empty state whose entries expire `expiration_ms` after their last append.
    #[must_use]
    pub fn new(expiration_ms: i64) -> Producers {
        Producers { entries: HashMap::default(), expiration_ms }
    }

    /// The state that an image row holds.
    #[must_use]
    pub fn from_rows(rows: &[ProducerRow], expiration_ms: i64) -> Producers {
        let mut producers = Producers::new(expiration_ms);
        for row in rows {
            producers.entries.insert(row.id, ProducerEntry::from_row(row));
        }
        producers
    }

    /// The state as image rows, ordered by producer id.
    #[must_use]
    pub fn to_rows(&self) -> Vec<ProducerRow> {
        let mut rows: Vec<_> = self.entries.iter().map(|(&id, entry)| entry.to_row(id)).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    /// Number of producers known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no producer is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// First offset of the oldest open transaction.
    #[must_use]
    pub fn first_open_transaction_offset(&self) -> Option<Offset> {
        // No transactions yet: nothing opens one, and images that hold one are refused.
        None
    }

    /// Checks epoch and sequence of a batch. Nothing changes.
    ///
    /// # Errors
    /// 47 for an epoch below the known one, 45 for any other sequence than the next.
    pub fn check(
        &self,
        producer: &ProducerFacts,
        last_offset_delta: i32,
        now_ms: i64,
    ) -> Result<SequenceCheck, ErrorCode> {
        let Some(entry) = self.entries.get(&producer.id) else {
            return Ok(SequenceCheck::InOrder);
        };
        if entry.expired(now_ms, self.expiration_ms) {
            return Ok(SequenceCheck::InOrder);
        }
        if producer.epoch < entry.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if producer.epoch > entry.epoch {
            return match producer.base_sequence {
                0 => Ok(SequenceCheck::InOrder),
                _ => Err(ErrorCode::OutOfOrderSequenceNumber),
            };
        }
        let last_sequence = sequence_after(producer.base_sequence, last_offset_delta);
        for batch in &entry.batches {
            if batch.last_sequence == last_sequence && batch.offset_delta == last_offset_delta {
                return Ok(SequenceCheck::Duplicate {
                    base_offset: batch.last_offset.plus(-i64::from(batch.offset_delta)),
                    max_timestamp_ms: batch.max_timestamp_ms,
                });
            }
        }
        let expected = entry.batches.last().map_or(0, |last| sequence_after(last.last_sequence, 1));
        if producer.base_sequence == expected {
            Ok(SequenceCheck::InOrder)
        } else {
            Err(ErrorCode::OutOfOrderSequenceNumber)
        }
    }

    /// Whether the newest batch remembered of the producer is at or above `last_offset`: then a
    /// batch that ends there has been recorded.
    #[must_use]
    pub fn has_through(&self, id: ProducerId, last_offset: Offset) -> bool {
        let entry = self.entries.get(&id);
        let newest = entry.and_then(|entry| entry.batches.last());
        newest.is_some_and(|newest| newest.last_offset >= last_offset)
    }

    /// Remembers a batch that was appended.
    pub fn record(
        &mut self,
        producer: &ProducerFacts,
        last_offset_delta: i32,
        last_offset: Offset,
        max_timestamp_ms: i64,
        now_ms: i64,
    ) {
        let entry = self.entries.entry(producer.id).or_insert_with(|| ProducerEntry {
            epoch: producer.epoch,
            coordinator_epoch: -1,
            last_append_ms: now_ms,
            last_timestamp_ms: max_timestamp_ms,
            open_transaction_first_offset: None,
            batches: SmallVec::new(),
        });
        if entry.epoch != producer.epoch || entry.expired(now_ms, self.expiration_ms) {
            entry.epoch = producer.epoch;
            entry.batches.clear();
        }
        if entry.batches.len() == PRODUCER_BATCHES_REMEMBERED {
            entry.batches.remove(0);
        }
        entry.batches.push(RememberedBatch {
            last_sequence: sequence_after(producer.base_sequence, last_offset_delta),
            last_offset,
            offset_delta: last_offset_delta,
            max_timestamp_ms,
            append_ms: now_ms,
        });
        entry.last_append_ms = now_ms;
        entry.last_timestamp_ms = max_timestamp_ms;
    }

    /// Has entries expire that long after their last append from now on.
    pub fn expire_after(&mut self, expiration_ms: i64) {
        self.expiration_ms = expiration_ms;
    }

    /// Forgets the producers whose last append is older than the expiration.
    pub fn expire(&mut self, now_ms: i64) {
        let expiration_ms = self.expiration_ms;
        self.entries.retain(|_, entry| !entry.expired(now_ms, expiration_ms));
    }
}

impl ProducerEntry {
    fn expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.open_transaction_first_offset.is_none()
            && now_ms.saturating_sub(self.last_append_ms) >= expiration_ms
    }

    fn from_row(row: &ProducerRow) -> ProducerEntry {
        let batches = row.batches.iter().map(|batch| RememberedBatch {
            last_sequence: batch.last_sequence,
            last_offset: batch.last_offset,
            offset_delta: batch.offset_delta,
            max_timestamp_ms: batch.max_timestamp_ms,
            append_ms: batch.append_ms,
        });
        ProducerEntry {
            epoch: row.epoch,
            coordinator_epoch: row.coordinator_epoch,
            last_append_ms: row.last_append_ms,
            last_timestamp_ms: row.last_timestamp_ms,
            open_transaction_first_offset: row.open_transaction_first_offset,
            batches: batches.collect(),
        }
    }

    fn to_row(&self, id: ProducerId) -> ProducerRow {
        let batches = self.batches.iter().map(|batch| ProducerBatchRow {
            last_sequence: batch.last_sequence,
            last_offset: batch.last_offset,
            offset_delta: batch.offset_delta,
            max_timestamp_ms: batch.max_timestamp_ms,
            append_ms: batch.append_ms,
        });
        ProducerRow {
            id,
            epoch: self.epoch,
            coordinator_epoch: self.coordinator_epoch,
            last_append_ms: self.last_append_ms,
            last_timestamp_ms: self.last_timestamp_ms,
            open_transaction_first_offset: self.open_transaction_first_offset,
            batches: batches.collect(),
        }
    }
}

/// The sequence number `count` after `sequence`: 2,147,483,647 is followed by 0.
#[must_use]
pub fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(count);
    let wrapped = if sum > i64::from(i32::MAX) { sum - i64::from(i32::MAX) - 1 } else { sum };
    wrapped as i32
}

#[cfg(test)]
mod tests {
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
            let facts = facts(epoch, base);
            match self.producers.check(&facts, count - 1, now_ms) {
                Err(code) => Err(code.code()),
                Ok(SequenceCheck::Duplicate { base_offset, .. }) => Ok(base_offset.0),
                Ok(SequenceCheck::InOrder) => {
                    let base_offset = self.next;
                    self.next += i64::from(count);
                    self.producers.record(&facts, count - 1, Offset(self.next - 1), -1, now_ms);
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
}
