//! What a partition remembers of its producers: epoch, the last five batches, when they came, and
//! the transaction that is open.
//!
//! Owns the rules of batches and markers: duplicates, epochs, sequences, which batch may open a
//! transaction and which marker may end one. Must never look at record timestamps to decide what
//! to forget: entries expire by the broker's clock at append, so that backfilling old data keeps
//! its dedup window, and never while a transaction is open. **deviation** from Kafka, which expires
//! by record time and keeps one batch over a restart; here all five survive in the checkpoint
//! image.
//!
//! Invariants: at most five batches per producer, all of its current epoch, oldest first; the open
//! transactions of the entries are those of [`Transactions`].
//! Source: KIP-98, KIP-890, KIP-1228, Kafka's `ProducerStateManager` and `ProducerAppendInfo`.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::transactions::{EndedTransaction, Transactions};
use super::verification::Verifications;
use super::{BatchFacts, ProducerFacts};
use crate::batch::{BatchHeader, HEADER_BYTES, Marker};
use crate::error_code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId};
use crate::journal::image::{ProducerBatchRow, ProducerRow};
use crate::limits::PRODUCER_BATCHES_REMEMBERED;

pub use super::verification::{Verification, VerificationGuard};

/// One remembered batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RememberedBatch {
    /// Sequence number of its last record; -1 for a batch of a coordinator, which has none.
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
    transactions: Transactions,
    expiration_ms: i64,
}

impl Producers {
    /// An empty state whose entries expire `expiration_ms` after their last append.
    #[must_use]
    pub fn new(expiration_ms: i64) -> Producers {
        Producers {
            entries: HashMap::default(),
            transactions: Transactions::default(),
            expiration_ms,
        }
    }

    /// The state that an image row holds.
    #[must_use]
    pub fn from_rows(rows: &[ProducerRow], expiration_ms: i64) -> Producers {
        let mut producers = Producers::new(expiration_ms);
        for row in rows {
            if let Some(first_offset) = row.open_transaction_first_offset {
                producers.transactions.open(first_offset, row.id);
            }
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

    /// The producers that are not forgotten, as rows ordered by id.
    #[must_use]
    pub fn live_rows(&self, now_ms: i64) -> Vec<ProducerRow> {
        let mut rows = self.to_rows();
        rows.retain(|row| self.get(row.id, now_ms).is_some());
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

    /// Idle time after which a producer is forgotten.
    #[must_use]
    pub fn expiration_ms(&self) -> i64 {
        self.expiration_ms
    }

    /// The transactions.
    #[must_use]
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// The transactions, for the bounds that move.
    pub fn transactions_mut(&mut self) -> &mut Transactions {
        &mut self.transactions
    }

    /// Last append of the producer whose transaction is open for longest, if any is.
    #[must_use]
    pub fn oldest_open_append_ms(&self) -> Option<i64> {
        let producer = self.transactions.oldest_open()?;
        self.entries.get(&producer).map(|entry| entry.last_append_ms)
    }

    /// What is known of a producer that is not forgotten.
    #[must_use]
    pub fn get(&self, id: ProducerId, now_ms: i64) -> Option<&ProducerEntry> {
        self.entries.get(&id).filter(|entry| !entry.expired(now_ms, self.expiration_ms))
    }

    /// Whether the producer has a transaction open in this epoch.
    #[must_use]
    pub fn has_open(&self, producer: &ProducerFacts, now_ms: i64) -> bool {
        self.get(producer.id, now_ms).is_some_and(|entry| {
            entry.epoch == producer.epoch && entry.open_transaction_first_offset.is_some()
        })
    }

    /// Checks a batch: whether it is a copy, whether its transaction is open or verified, epoch,
    /// sequence, and that nothing comes in between of a transaction. Nothing changes.
    ///
    /// # Errors
    /// In this order: 47 for an epoch below the known one; 48 for a transaction that is neither
    /// open here nor verified; 45 for any other sequence than the next; 48 for a batch without a
    /// transaction while the producer has one open.
    pub fn check(
        &self,
        producer: &ProducerFacts,
        batch: &BatchFacts,
        verifications: &Verifications,
        now_ms: i64,
    ) -> Result<SequenceCheck, ErrorCode> {
        let entry = self.get(producer.id, now_ms);
        if let Some(copied) = entry.and_then(|entry| entry.copy_of(producer, batch)) {
            return Ok(SequenceCheck::Duplicate {
                base_offset: copied.last_offset.plus(-i64::from(copied.offset_delta)),
                max_timestamp_ms: copied.max_timestamp_ms,
            });
        }
        if entry.is_some_and(|entry| producer.epoch < entry.epoch) {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        let admitted = !batch.transactional
            || self.has_open(producer, now_ms)
            || verifications.stands(producer.id, batch.guard);
        if !admitted {
            return Err(ErrorCode::InvalidTxnState);
        }
        // A coordinator's batches have no sequence.
        if producer.base_sequence >= 0 {
            check_sequence(entry, producer, verifications)?;
        }
        let open = entry.is_some_and(|entry| entry.open_transaction_first_offset.is_some());
        if open && !batch.transactional {
            return Err(ErrorCode::InvalidTxnState);
        }
        Ok(SequenceCheck::InOrder)
    }

    /// Remembers a batch that was appended; it may open a transaction.
    pub fn record(
        &mut self,
        producer: &ProducerFacts,
        batch: &BatchFacts,
        base_offset: Offset,
        now_ms: i64,
    ) {
        if batch.transactional {
            self.open(producer, base_offset, now_ms);
        }
        let entry = self.entry(producer.id, producer.epoch, now_ms);
        if entry.epoch != producer.epoch {
            entry.epoch = producer.epoch;
            entry.batches.clear();
        }
        if entry.batches.len() == PRODUCER_BATCHES_REMEMBERED {
            entry.batches.remove(0);
        }
        entry.batches.push(RememberedBatch {
            last_sequence: last_sequence(producer, batch),
            last_offset: base_offset.plus(i64::from(batch.last_offset_delta)),
            offset_delta: batch.last_offset_delta,
            max_timestamp_ms: batch.max_timestamp_ms,
            append_ms: now_ms,
        });
        entry.last_append_ms = now_ms;
        entry.last_timestamp_ms = batch.max_timestamp_ms;
    }

    /// Checks a marker. `strict` says that the producer's epoch rises with every transaction, so
    /// that a marker of the known epoch can only be a copy. Nothing changes.
    ///
    /// # Errors
    /// 47 for an epoch that is too low, 52 for a coordinator older than the one of the last marker.
    pub fn check_marker(
        &self,
        marker: &Marker,
        strict: bool,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let Some(entry) = self.get(marker.producer_id, now_ms) else { return Ok(()) };
        let open = entry.open_transaction_first_offset.is_some();
        let is_last_epoch = marker.producer_epoch == ProducerEpoch(i16::MAX);
        let same = marker.producer_epoch == entry.epoch;
        if marker.producer_epoch < entry.epoch || (strict && same && open && !is_last_epoch) {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if entry.coordinator_epoch > marker.coordinator_epoch {
            return Err(ErrorCode::TransactionCoordinatorFenced);
        }
        Ok(())
    }

    /// Takes over a marker that was appended at `offset`: it ends the producer's transaction.
    pub fn mark(&mut self, marker: &Marker, offset: Offset, now_ms: i64) {
        self.end(marker, offset);
        let entry = self.entry(marker.producer_id, marker.producer_epoch, now_ms);
        if entry.epoch != marker.producer_epoch {
            entry.epoch = marker.producer_epoch;
            entry.batches.clear();
        }
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_append_ms = now_ms;
        entry.last_timestamp_ms = marker.timestamp_ms;
    }

    /// Takes over a whole batch of the journal or of a segment, data or marker: it is durable, and
    /// not in memory. The state may be ahead of it already, except for transactions. Returns the
    /// transaction that it ends, if it ends one.
    pub fn replay(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        append_ms: i64,
    ) -> Option<EndedTransaction> {
        if header.is_control() {
            // One that is neither commit nor abort says nothing of a producer.
            if let Ok(Some(marker)) = Marker::read(header, &batch[HEADER_BYTES..]) {
                self.replay_marker(&marker, header.base_offset, append_ms);
            }
        } else if let Some(producer) = ProducerFacts::of(header) {
            self.replay_data(&producer, header, append_ms);
        }
        let ended = self.transactions.ended_from(header.base_offset).next().copied();
        self.transactions.durable_through(header.next_offset());
        self.transactions.released_through(header.next_offset());
        ended
    }

    fn replay_data(&mut self, producer: &ProducerFacts, header: &BatchHeader, append_ms: i64) {
        let base_offset = header.base_offset;
        if !self.is_ahead(producer.id, producer.epoch, header.last_offset(), append_ms) {
            self.record(producer, &BatchFacts::of(header), base_offset, append_ms);
        } else if header.is_transactional() {
            self.open(producer, base_offset, append_ms);
        }
    }

    fn replay_marker(&mut self, marker: &Marker, offset: Offset, append_ms: i64) {
        if self.is_ahead(marker.producer_id, marker.producer_epoch, offset, append_ms) {
            self.end(marker, offset);
        } else {
            self.mark(marker, offset, append_ms);
        }
    }

    /// Has entries expire that long after their last append from now on.
    pub fn expire_after(&mut self, expiration_ms: i64) {
        self.expiration_ms = expiration_ms;
    }

    /// Forgets the producers whose last append is older than the expiration, but none whose
    /// transaction is open.
    pub fn expire(&mut self, now_ms: i64) {
        let expiration_ms = self.expiration_ms;
        self.entries.retain(|_, entry| !entry.expired(now_ms, expiration_ms));
    }

    /// The state as it was at `end`, as far as transactions go; the rest stays as it is.
    #[must_use]
    pub fn to_rows_with_transactions_at(&self, end: Offset) -> Vec<ProducerRow> {
        let open = self.transactions.open_at(end);
        let mut rows = self.to_rows();
        for row in &mut rows {
            row.open_transaction_first_offset = open.get(&row.id).copied();
        }
        rows
    }

    /// Whether the state has taken over something of this producer that comes after.
    fn is_ahead(
        &self,
        id: ProducerId,
        epoch: ProducerEpoch,
        last_offset: Offset,
        append_ms: i64,
    ) -> bool {
        self.get(id, append_ms).is_some_and(|entry| {
            let newest = entry.batches.last();
            epoch < entry.epoch || newest.is_some_and(|newest| newest.last_offset >= last_offset)
        })
    }

    fn open(&mut self, producer: &ProducerFacts, base_offset: Offset, now_ms: i64) {
        let entry = self.entry(producer.id, producer.epoch, now_ms);
        if entry.open_transaction_first_offset.is_none() {
            entry.open_transaction_first_offset = Some(base_offset);
            self.transactions.open(base_offset, producer.id);
        }
    }

    fn end(&mut self, marker: &Marker, offset: Offset) {
        let entry = self.entries.get_mut(&marker.producer_id);
        if let Some(first) = entry.and_then(|entry| entry.open_transaction_first_offset.take()) {
            self.transactions.end(first, offset, marker.kind);
        }
    }

    /// The producer's entry, a new one if there is none or it is forgotten.
    fn entry(&mut self, id: ProducerId, epoch: ProducerEpoch, now_ms: i64) -> &mut ProducerEntry {
        let expiration_ms = self.expiration_ms;
        let new = || ProducerEntry {
            epoch,
            coordinator_epoch: -1,
            last_append_ms: now_ms,
            last_timestamp_ms: -1,
            open_transaction_first_offset: None,
            batches: SmallVec::new(),
        };
        let entry = self.entries.entry(id).or_insert_with(new);
        if entry.expired(now_ms, expiration_ms) {
            *entry = new();
        }
        entry
    }
}

fn check_sequence(
    entry: Option<&ProducerEntry>,
    producer: &ProducerFacts,
    verifications: &Verifications,
) -> Result<(), ErrorCode> {
    let sequence = producer.base_sequence;
    if let Some(verification) = verifications.get(producer.id) {
        let knows_nothing = entry.is_none_or(|entry| entry.batches.is_empty());
        let begins = verification.strict && knows_nothing;
        if sequence > verification.lowest_sequence || (begins && sequence != 0) {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        }
    }
    let expected = match entry {
        None => return Ok(()),
        Some(entry) if entry.epoch != producer.epoch => 0,
        Some(entry) => entry.batches.last().map_or(0, |last| sequence_after(last.last_sequence, 1)),
    };
    if sequence == expected { Ok(()) } else { Err(ErrorCode::OutOfOrderSequenceNumber) }
}

/// Sequence number of a batch's last record.
fn last_sequence(producer: &ProducerFacts, batch: &BatchFacts) -> i32 {
    match producer.base_sequence {
        none @ ..0 => none,
        base => sequence_after(base, batch.last_offset_delta),
    }
}

impl ProducerEntry {
    /// The remembered batch that this one is an exact copy of.
    fn copy_of(&self, producer: &ProducerFacts, batch: &BatchFacts) -> Option<&RememberedBatch> {
        if producer.epoch != self.epoch || producer.base_sequence < 0 {
            return None;
        }
        let last_sequence = last_sequence(producer, batch);
        self.batches.iter().find(|known| {
            known.last_sequence == last_sequence && known.offset_delta == batch.last_offset_delta
        })
    }

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
mod tests;
