//! What happens to a batch in a pass over a log: first its keys are noted, later it stays, goes,
//! or keeps some records.
//!
//! Owns the two passes' rules. In the first, [`KeyPass`], the keys of the dirty part go into the
//! map; in the second, [`Filter`], every batch from the log's start on is judged by the map.
//! Source: Kafka's `Cleaner.cleanInto`, `checkBatchRetention`, `shouldRetainRecord`.

use std::task::Poll;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::offset_map::OffsetMap;
use super::transactions::PassTransactions;
use crate::batch::{BatchFault, BatchHeader, Record, RecordFault, RewriteRules, empty_batch};
use crate::ids::{Offset, ProducerEpoch, ProducerId};
use crate::journal::image::ProducerRow;

/// The first pass: fills the map.
pub struct KeyPass {
    /// First dirty offset: records below it have been through a pass before.
    start: Offset,
    map: OffsetMap,
    /// The transactions of what was passed.
    pub transactions: PassTransactions,
}

/// The records of one batch on their way into the map.
pub struct KeyBatch {
    header: BatchHeader,
    records: Bytes,
    at: usize,
    records_left: i32,
}

impl KeyPass {
    /// A pass over what begins at `start`.
    #[must_use]
    pub fn new(start: Offset, map: OffsetMap) -> KeyPass {
        KeyPass { start, map, transactions: PassTransactions::default() }
    }

    /// Passes a batch; `true` if the keys of its records count.
    ///
    /// # Errors
    /// A marker is malformed.
    pub fn pass(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<bool, BatchFault> {
        if header.is_control() {
            self.transactions.pass_control(header, batch)?;
            return Ok(false);
        }
        let is_aborted = self.transactions.pass_data(header);
        Ok(!is_aborted && header.record_count > 0 && header.last_offset() >= self.start)
    }

    /// Everything below `end` was passed.
    pub fn passed_below(&mut self, end: Offset) {
        if end > self.start {
            self.map.covers_through(end.plus(-1));
        }
    }

    /// Notes keys of a batch for about `budget_bytes`; ready with `false` when the map is full.
    pub fn step(
        &mut self,
        batch: &mut KeyBatch,
        budget_bytes: usize,
    ) -> Poll<Result<bool, RecordFault>> {
        let until = batch.at.saturating_add(budget_bytes.max(1));
        while batch.records_left > 0 {
            if batch.at >= until {
                return Poll::Pending;
            }
            let bytes = batch.records.get(batch.at..).unwrap_or(&[]);
            let (record, used) = match Record::read(bytes) {
                Ok(read) => read,
                Err(fault) => return Poll::Ready(Err(fault)),
            };
            let offset = batch.header.record_offset(record.offset_delta);
            if let Some(key) = record.key.filter(|_| offset >= self.start)
                && !self.map.put(key, offset)
            {
                self.passed_below(offset);
                return Poll::Ready(Ok(false));
            }
            batch.at += used;
            batch.records_left -= 1;
        }
        self.passed_below(batch.header.next_offset());
        Poll::Ready(Ok(true))
    }

    /// The map.
    #[must_use]
    pub fn into_map(self) -> OffsetMap {
        self.map
    }
}

impl KeyBatch {
    /// A batch with its inflated records.
    #[must_use]
    pub fn new(header: &BatchHeader, records: Bytes) -> KeyBatch {
        KeyBatch { header: *header, records, at: 0, records_left: header.record_count }
    }
}

/// What the log must go on telling of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LastOfProducer {
    /// Its last batch, by its last offset: the sequence number goes on from there.
    Data(Offset),
    /// Only its epoch, by a marker: whoever has a lower one is fenced.
    Epoch(ProducerEpoch),
}

/// The second pass.
pub struct Filter {
    map: OffsetMap,
    /// The transactions of what was passed.
    pub transactions: PassTransactions,
    producers: HashMap<ProducerId, LastOfProducer, RandomState>,
    /// First offset that this pass cannot touch.
    end: Offset,
    now_ms: i64,
    delete_retention_ms: i64,
}

/// What happens to a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes.
    Drop,
    /// Nothing but this header of it stays.
    Empty(Bytes),
    /// Its records decide, by [`Filter::keeps`].
    Records(RewriteRules),
}

impl Filter {
    /// A pass that may touch what is below `end`. `producers` are those that are known now.
    #[must_use]
    pub fn new(
        map: OffsetMap,
        producers: &[ProducerRow],
        end: Offset,
        now_ms: i64,
        delete_retention_ms: i64,
    ) -> Filter {
        let last = |row: &ProducerRow| match row.batches.last() {
            Some(batch) => LastOfProducer::Data(batch.last_offset),
            None => LastOfProducer::Epoch(row.epoch),
        };
        Filter {
            map,
            transactions: PassTransactions::default(),
            producers: producers.iter().map(|row| (row.id, last(row))).collect(),
            end,
            now_ms,
            delete_retention_ms,
        }
    }

    /// Judges a batch as a whole.
    ///
    /// # Errors
    /// A marker is malformed.
    pub fn judge(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<Verdict, BatchFault> {
        let needless = match header.is_control() {
            true => self.transactions.pass_control(header, batch)?,
            false => self.transactions.pass_data(header),
        };
        let keep_empty = self.is_last_of_producer(header) || header.next_offset() == self.end;
        let records_go = needless && (!header.is_control() || self.horizon_has_passed(header));
        if records_go || header.record_count == 0 {
            return Ok(match keep_empty {
                true => Verdict::Empty(empty_batch(header)),
                false => Verdict::Drop,
            });
        }
        Ok(Verdict::Records(RewriteRules {
            keep_empty,
            starts_horizon: needless,
            horizon_ms: self.now_ms.saturating_add(self.delete_retention_ms),
        }))
    }

    /// Whether a record of a batch stays that was judged by its records.
    #[must_use]
    pub fn keeps(&self, header: &BatchHeader, record: &Record<'_>, offset: Offset) -> bool {
        if header.is_control() || offset > self.map.latest() {
            return true;
        }
        // A record without a key replaces nothing and can be replaced by nothing.
        let Some(key) = record.key else { return false };
        let is_newest = self.map.get(key).is_none_or(|newest| offset >= newest);
        is_newest && (record.value.is_some() || !self.horizon_has_passed(header))
    }

    /// First offset whose key the map does not tell of: where the next pass begins.
    #[must_use]
    pub fn cleaned_end(&self) -> Offset {
        self.map.latest().plus(1)
    }

    fn horizon_has_passed(&self, header: &BatchHeader) -> bool {
        header.delete_horizon_ms().is_some_and(|horizon_ms| horizon_ms <= self.now_ms)
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        let known = header.has_producer_id().then(|| self.producers.get(&header.producer_id));
        match known.flatten() {
            Some(LastOfProducer::Data(offset)) => header.last_offset() == *offset,
            Some(LastOfProducer::Epoch(epoch)) => {
                header.is_control() && header.producer_epoch == *epoch
            }
            None => false,
        }
    }
}
