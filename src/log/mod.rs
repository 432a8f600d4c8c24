//! One partition's log as a state machine: offsets, bounds, epochs, producers, and where its bytes
//! are: first in the in-memory tail, later in segments. No I/O, no clock.
//!
//! [`Log`] is the hot state: a batch is checked and appended in one synchronous step, becomes
//! readable when the journal block that holds its last part is durable
//! ([`Log::advance_high_watermark`]), and leaves memory when its bytes are in a segment
//! ([`Log::written_through`]).
//!
//! Invariants: `log_start <= written_end <= high_watermark <= next_offset`, except that
//! `log_start` may pass `written_end` up to the high watermark; no bound ever moves back; tail
//! batches are contiguous from `written_end` to `next_offset`.

pub mod epochs;
pub mod index;
pub mod layout;
pub mod producers;
pub mod segments;
pub mod tail;

use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use epochs::EpochHistory;
use producers::{Producers, SequenceCheck};
use tail::{Tail, TailBatch};

/// What a batch says of its producer; `None` in [`BatchFacts`] when it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerFacts {
    /// Producer id, not negative.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence number of the batch's first record.
    pub base_sequence: i32,
}

/// What the log needs to know of a validated batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchFacts {
    /// Offset of the last record relative to the first.
    pub last_offset_delta: i32,
    /// Largest timestamp of its records, milliseconds.
    pub max_timestamp_ms: i64,
    /// Whole length in bytes.
    pub bytes: usize,
    /// Its producer, if it is idempotent.
    pub producer: Option<ProducerFacts>,
}

/// Outcome of checking a batch against the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendCheck {
    /// May be appended; it will get this base offset.
    Append(Offset),
    /// An exact copy of a batch the log has: answered with the original's offset and timestamp.
    Duplicate {
        /// Base offset of the original.
        base_offset: Offset,
        /// Largest timestamp of the original.
        max_timestamp_ms: i64,
    },
}

/// The hot state of one partition.
pub struct Log {
    log_start: Offset,
    next_offset: Offset,
    high_watermark: Offset,
    written_end: Offset,
    epochs: EpochHistory,
    producers: Producers,
    tail: Tail,
}

impl Log {
    /// A log whose segments hold `[log_start, end)` and whose state is as recovered.
    #[must_use]
    pub fn recovered(
        log_start: Offset,
        end: Offset,
        epochs: EpochHistory,
        producers: Producers,
    ) -> Log {
        assert!(log_start <= end, "log start {log_start} above log end {end}");
        Log {
            log_start,
            next_offset: end,
            high_watermark: end,
            written_end: end,
            epochs,
            producers,
            tail: Tail::default(),
        }
    }

    /// First offset that is kept.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// Offset the next record gets.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// First offset that is not yet readable.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// First offset a read_committed reader may not pass.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        match self.producers.first_open_transaction_offset() {
            Some(first) => first.max(self.log_start).min(self.high_watermark),
            None => self.high_watermark,
        }
    }

    /// End of what is in segments.
    #[must_use]
    pub fn written_end(&self) -> Offset {
        self.written_end
    }

    /// The epoch history.
    #[must_use]
    pub fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    /// The producer state.
    #[must_use]
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// The producer state, for expiry.
    pub fn producers_mut(&mut self) -> &mut Producers {
        &mut self.producers
    }

    /// The batches that are in memory.
    #[must_use]
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Whether `epoch` must be recorded in the history before a batch of it is appended.
    #[must_use]
    pub fn starts_epoch(&self, epoch: LeaderEpoch) -> bool {
        self.epochs.latest().is_none_or(|latest| latest < epoch)
    }

    /// Records that `epoch` starts at the next offset.
    pub fn start_epoch(&mut self, epoch: LeaderEpoch) {
        self.epochs.start(epoch, self.next_offset);
    }

    /// Checks a batch's producer epoch and sequence. Nothing changes.
    ///
    /// # Errors
    /// The code for the client: 45 or 47; 18 when the offsets of the partition are used up.
    pub fn check(&self, facts: &BatchFacts, now_ms: i64) -> Result<AppendCheck, ErrorCode> {
        if self.next_offset.0.checked_add(i64::from(facts.last_offset_delta) + 1).is_none() {
            return Err(ErrorCode::RecordListTooLarge);
        }
        let Some(producer) = &facts.producer else {
            return Ok(AppendCheck::Append(self.next_offset));
        };
        match self.producers.check(producer, facts.last_offset_delta, now_ms)? {
            SequenceCheck::InOrder => Ok(AppendCheck::Append(self.next_offset)),
            SequenceCheck::Duplicate { base_offset, max_timestamp_ms } => {
                Ok(AppendCheck::Duplicate { base_offset, max_timestamp_ms })
            }
        }
    }

    /// Appends a batch that [`Log::check`] accepted in the same turn. `batch` says where its bytes
    /// are in the journal.
    pub fn append(&mut self, facts: &BatchFacts, batch: TailBatch, now_ms: i64) {
        assert_eq!(batch.base_offset, self.next_offset, "a batch is appended at the log's end");
        let last_offset = self.next_offset.plus(i64::from(facts.last_offset_delta));
        assert_eq!(batch.last_offset, last_offset, "a batch's offsets are consecutive");
        if let Some(producer) = &facts.producer {
            self.producers.record(
                producer,
                facts.last_offset_delta,
                last_offset,
                facts.max_timestamp_ms,
                now_ms,
            );
        }
        self.next_offset = last_offset.plus(1);
        self.tail.push(batch);
    }

    /// Everything below `end` is durable in the journal: it becomes readable.
    pub fn advance_high_watermark(&mut self, end: Offset) {
        assert!(end <= self.next_offset, "high watermark {end} above log end {}", self.next_offset);
        self.high_watermark = self.high_watermark.max(end);
    }

    /// Everything below `end` is in segments: it leaves the tail.
    pub fn written_through(&mut self, end: Offset) {
        assert!(end <= self.high_watermark, "only journaled bytes go to segments");
        self.written_end = self.written_end.max(end);
        self.tail.release_below(self.written_end);
    }

    /// Everything below `end` is kept aside in a file of its own, because the segments cannot be
    /// written: it leaves memory, and nobody can read it until the partition is sound again.
    pub fn stranded_through(&mut self, end: Offset) {
        self.tail.release_below(end);
    }

    /// Moves the log start up.
    ///
    /// # Errors
    /// 1 (`OFFSET_OUT_OF_RANGE`) when `offset` is above the high watermark.
    pub fn advance_log_start(&mut self, offset: Offset) -> Result<(), ErrorCode> {
        if offset > self.high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        self.log_start = self.log_start.max(offset);
        self.epochs.truncate_start(self.log_start);
        Ok(())
    }

    /// Compares a client's idea of the leader epoch with ours (-1: it has none).
    ///
    /// # Errors
    /// 74 when the client's is older, 75 when it is newer.
    pub fn check_leader_epoch(client: i32, ours: LeaderEpoch) -> Result<(), ErrorCode> {
        match client {
            -1 => Ok(()),
            epoch if epoch < ours.0 => Err(ErrorCode::FencedLeaderEpoch),
            epoch if epoch > ours.0 => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
