//! One partition's log as a state machine: offsets, bounds, epochs, producers, and where its bytes
//! are: first in the in-memory tail, later in segments. No I/O, no clock.
//!
//! [`Log`] is the hot state: a batch is checked and appended in one synchronous step, becomes
//! readable when the journal block that holds its last part is durable
//! ([`Log::advance_high_watermark`]), and leaves memory when its bytes are in a segment
//! ([`Log::written_through`]). Markers end transactions in the same way. What compaction keeps of a
//! log is in [`cleaner`].
//!
//! Invariants: `written_end <= high_watermark <= next_offset`; the log start is at or below where
//! it will be when its newest journal entry is durable, and that is at or below the high
//! watermark; no bound ever moves back; tail batches are contiguous from `written_end` to
//! `next_offset`.

pub mod aborted;
pub mod cleaner;
pub mod epochs;
pub mod index;
pub mod layout;
pub mod producers;
pub mod retention;
pub mod segments;
pub mod tail;
pub mod transactions;
pub mod verification;

use crate::batch::{BatchHeader, Marker};
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use epochs::EpochHistory;
use producers::{Producers, SequenceCheck};
use tail::{Tail, TailBatch};
use verification::{Verification, VerificationGuard, Verifications};

/// What a batch says of its producer; `None` in [`BatchFacts`] when it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerFacts {
    /// Producer id, not negative.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence number of the batch's first record; -1 for a batch of a coordinator, which has
    /// none.
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
    /// Whether it is part of a transaction.
    pub transactional: bool,
    /// What its verification gave: needed where no transaction of its producer is open.
    pub guard: Option<VerificationGuard>,
}

impl BatchFacts {
    /// What a header says of its batch, which has no guard.
    #[must_use]
    pub fn of(header: &BatchHeader) -> BatchFacts {
        BatchFacts {
            last_offset_delta: header.last_offset_delta,
            max_timestamp_ms: header.max_timestamp,
            bytes: header.total_bytes(),
            producer: ProducerFacts::of(header),
            transactional: header.is_transactional(),
            guard: None,
        }
    }
}

impl ProducerFacts {
    /// What a header says of the batch's producer, if it has one.
    #[must_use]
    pub fn of(header: &BatchHeader) -> Option<ProducerFacts> {
        header.has_producer_id().then_some(ProducerFacts {
            id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        })
    }
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
    log_start_appended: Offset,
    next_offset: Offset,
    high_watermark: Offset,
    written_end: Offset,
    epochs: EpochHistory,
    producers: Producers,
    verifications: Verifications,
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
            log_start_appended: log_start,
            next_offset: end,
            high_watermark: end,
            written_end: end,
            epochs,
            producers,
            verifications: Verifications::default(),
            tail: Tail::default(),
        }
    }

    /// First offset that readers may ask for: what is below is gone for good, over a crash too.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// Where the log will start once everything that is in the journal is durable: what a
    /// checkpoint takes.
    #[must_use]
    pub fn log_start_appended(&self) -> Offset {
        self.log_start_appended
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
        match self.producers.transactions().first_unstable() {
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

    /// Begins the verification of a transactional batch, before its coordinator is asked. `strict`
    /// says that the producer's epoch rises with every transaction.
    ///
    /// # Errors
    /// 47 for an epoch below the known one.
    pub fn begin_verification(
        &mut self,
        producer: &ProducerFacts,
        strict: bool,
        now_ms: i64,
    ) -> Result<Verification, ErrorCode> {
        let known = self.producers.get(producer.id, now_ms);
        if known.is_some_and(|known| producer.epoch < known.epoch) {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if self.producers.has_open(producer, now_ms) {
            return Ok(Verification::NotNeeded);
        }
        let expiration_ms = self.producers.expiration_ms();
        let guard = self.verifications.begin(producer, strict, now_ms, expiration_ms);
        Ok(Verification::Guard(guard))
    }

    /// How many verifications were forgotten because there were too many.
    #[must_use]
    pub fn verifications_forgotten(&self) -> u64 {
        self.verifications.forgotten()
    }

    /// Checks a batch's producer: epoch, sequence, transaction. Nothing changes.
    ///
    /// # Errors
    /// The code for the client: 45, 47 or 48; 18 when the offsets of the partition are used up.
    pub fn check(&self, facts: &BatchFacts, now_ms: i64) -> Result<AppendCheck, ErrorCode> {
        self.check_offsets(facts.last_offset_delta)?;
        let Some(producer) = &facts.producer else {
            return Ok(AppendCheck::Append(self.next_offset));
        };
        match self.producers.check(producer, facts, &self.verifications, now_ms)? {
            SequenceCheck::InOrder => Ok(AppendCheck::Append(self.next_offset)),
            SequenceCheck::Duplicate { base_offset, max_timestamp_ms } => {
                Ok(AppendCheck::Duplicate { base_offset, max_timestamp_ms })
            }
        }
    }

    /// Checks a marker and says which offset it gets. Nothing changes.
    ///
    /// # Errors
    /// 47 or 52, see [`Producers::check_marker`]; 18 when the offsets are used up.
    pub fn check_marker(
        &self,
        marker: &Marker,
        strict: bool,
        now_ms: i64,
    ) -> Result<Offset, ErrorCode> {
        self.check_offsets(0)?;
        self.producers.check_marker(marker, strict, now_ms)?;
        Ok(self.next_offset)
    }

    fn check_offsets(&self, last_offset_delta: i32) -> Result<(), ErrorCode> {
        let end = self.next_offset.0.checked_add(i64::from(last_offset_delta) + 1);
        end.map(|_| ()).ok_or(ErrorCode::RecordListTooLarge)
    }

    /// Appends a batch that [`Log::check`] accepted in the same turn. `batch` says where its bytes
    /// are in the journal.
    pub fn append(&mut self, facts: &BatchFacts, batch: TailBatch, now_ms: i64) {
        assert_eq!(batch.base_offset, self.next_offset, "a batch is appended at the log's end");
        let last_offset = self.next_offset.plus(i64::from(facts.last_offset_delta));
        assert_eq!(batch.last_offset, last_offset, "a batch's offsets are consecutive");
        if let Some(producer) = &facts.producer {
            self.producers.record(producer, facts, batch.base_offset, now_ms);
            if facts.transactional {
                self.verifications.batch_appended(producer.id, producer.epoch);
            }
        }
        self.next_offset = last_offset.plus(1);
        self.tail.push(batch);
    }

    /// Appends a marker that [`Log::check_marker`] accepted in the same turn, `strict` or not.
    pub fn append_marker(&mut self, marker: &Marker, strict: bool, batch: TailBatch, now_ms: i64) {
        assert_eq!(batch.base_offset, self.next_offset, "a marker is appended at the log's end");
        assert_eq!(batch.last_offset, batch.base_offset, "a marker has one offset");
        self.producers.mark(marker, batch.base_offset, now_ms);
        self.verifications.marker_appended(marker.producer_id, marker.producer_epoch, strict);
        self.next_offset = batch.last_offset.plus(1);
        self.tail.push(batch);
    }

    /// Everything below `end` is durable in the journal: it becomes readable.
    pub fn advance_high_watermark(&mut self, end: Offset) {
        assert!(end <= self.next_offset, "high watermark {end} above log end {}", self.next_offset);
        self.high_watermark = self.high_watermark.max(end);
        self.producers.transactions_mut().durable_through(self.high_watermark);
    }

    /// Everything below `end` is in segments: it leaves the tail.
    pub fn written_through(&mut self, end: Offset) {
        assert!(end <= self.high_watermark, "only journaled bytes go to segments");
        self.written_end = self.written_end.max(end);
        self.tail.release_below(self.written_end);
        self.producers.transactions_mut().released_through(self.written_end);
    }

    /// Everything below `end` is kept aside in a file of its own, because the segments cannot be
    /// written: it leaves memory, and nobody can read it until the partition is sound again.
    pub fn stranded_through(&mut self, end: Offset) {
        self.tail.release_below(end);
        self.producers.transactions_mut().released_through(end);
    }

    /// Whether the log may start at `offset`. Nothing changes.
    ///
    /// # Errors
    /// 1 (`OFFSET_OUT_OF_RANGE`) when it is above the high watermark.
    pub fn check_log_start(&self, offset: Offset) -> Result<(), ErrorCode> {
        let fits = offset <= self.high_watermark;
        fits.then_some(()).ok_or(ErrorCode::OffsetOutOfRange)
    }

    /// An entry is in the journal by which the log starts at `offset`; readers see that when it is
    /// durable.
    pub fn append_log_start(&mut self, offset: Offset) {
        assert!(offset <= self.high_watermark, "a log start {offset} above the high watermark");
        self.log_start_appended = self.log_start_appended.max(offset);
    }

    /// The entry by which the log starts at `offset` is durable; `true` if that moves the start.
    pub fn log_start_durable(&mut self, offset: Offset) -> bool {
        assert!(offset <= self.log_start_appended, "a log start is durable before it is appended");
        let moves = offset > self.log_start;
        self.log_start = self.log_start.max(offset);
        self.epochs.truncate_start(self.log_start);
        moves
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
