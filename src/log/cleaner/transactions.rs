//! What a pass over a log knows of transactions: which batches are of aborted ones, and which
//! markers have outlived their data.
//!
//! Owns the state of the pass only, batch by batch in the order of the log. It is told of aborted
//! transactions ahead, from the indexes of the segments it comes to; everything before the last
//! stable offset has been decided, so what is not among them was committed. Must never declare a
//! marker needless while a batch of its transaction is met in the same pass.
//! Source: Kafka's `CleanedTransactionMetadata`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use crate::batch::{BatchFault, BatchHeader, HEADER_BYTES, Marker, MarkerKind};
use crate::ids::{Offset, ProducerId};
use crate::log::aborted::AbortedTransaction;

/// The transactions under way at one place of a pass.
#[derive(Default)]
pub struct PassTransactions {
    /// Aborted ones that begin further on.
    ahead: BinaryHeap<Reverse<Ahead>>,
    aborted: HashMap<ProducerId, Aborted, RandomState>,
    committed: HashSet<ProducerId, RandomState>,
    /// Aborted ones whose markers were passed and stay, by rising marker.
    kept: Vec<AbortedTransaction>,
}

/// An aborted transaction, ordered by where it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ahead(AbortedTransaction);

impl PartialOrd for Ahead {
    fn partial_cmp(&self, other: &Ahead) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ahead {
    fn cmp(&self, other: &Ahead) -> std::cmp::Ordering {
        let key = |ahead: &Ahead| (ahead.0.first_offset, ahead.0.last_offset);
        key(self).cmp(&key(other))
    }
}

struct Aborted {
    transaction: AbortedTransaction,
    /// A batch of it was met.
    has_batches: bool,
}

impl PassTransactions {
    /// Tells of aborted transactions that overlap what comes next; those told before do no harm.
    pub fn tell(&mut self, aborted: impl IntoIterator<Item = AbortedTransaction>) {
        self.ahead.extend(aborted.into_iter().map(|transaction| Reverse(Ahead(transaction))));
    }

    /// Passes a batch of data; `true` if it is of an aborted transaction.
    pub fn pass_data(&mut self, header: &BatchHeader) -> bool {
        self.begin_through(header);
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some(aborted) if aborted.transaction.last_offset > header.last_offset() => {
                aborted.has_batches = true;
                true
            }
            _ => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    /// Passes a control batch; `true` if nothing needs it any more: a marker whose transaction has
    /// no batch left, or one that was emptied.
    ///
    /// # Errors
    /// Its record is malformed.
    pub fn pass_control(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<bool, BatchFault> {
        self.begin_through(header);
        if header.record_count == 0 {
            return Ok(true);
        }
        let records = batch.get(HEADER_BYTES..).unwrap_or(&[]);
        let Some(marker) = Marker::read(header, records)? else { return Ok(false) };
        Ok(match marker.kind {
            MarkerKind::Abort => match self.aborted.remove(&header.producer_id) {
                Some(aborted) if aborted.has_batches => {
                    self.kept.push(aborted.transaction);
                    false
                }
                _ => true,
            },
            MarkerKind::Commit => !self.committed.remove(&header.producer_id),
        })
    }

    /// The aborted transactions whose markers were passed since it was last asked, and that still
    /// have, or had at the beginning of the pass, batches: what the index of a cleaned segment
    /// names.
    pub fn take_kept(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.kept)
    }

    fn begin_through(&mut self, header: &BatchHeader) {
        let (first, last) = (header.base_offset, header.last_offset());
        while let Some(&Reverse(Ahead(transaction))) = self.ahead.peek() {
            if transaction.first_offset > last {
                return;
            }
            self.ahead.pop();
            // One that has ended before, with a marker that is gone, concerns nothing from here on.
            if transaction.last_offset >= first {
                self.begin(transaction, first);
            }
        }
    }

    fn begin(&mut self, transaction: AbortedTransaction, at: Offset) {
        let entry = self.aborted.entry(transaction.producer_id);
        let aborted = entry.or_insert(Aborted { transaction, has_batches: false });
        if aborted.transaction.last_offset < at {
            *aborted = Aborted { transaction, has_batches: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, CompressionTarget, TimestampType};
    use crate::ids::{LeaderEpoch, ProducerEpoch};

    fn data(offset: i64, producer: i64) -> BatchHeader {
        let builder = BatchBuilder::new(CompressionTarget::Uncompressed)
            .at(Offset(offset), LeaderEpoch(1))
            .producer(ProducerId(producer), ProducerEpoch(0), 0)
            .transactional();
        BatchHeader { last_offset_delta: 0, ..BatchHeader::read(&builder.finish()).expect("sound") }
    }

    fn marker(offset: i64, producer: i64, kind: MarkerKind) -> (BatchHeader, Vec<u8>) {
        let marker = Marker {
            kind,
            producer_id: ProducerId(producer),
            producer_epoch: ProducerEpoch(0),
            coordinator_epoch: 0,
            timestamp_ms: 5,
        };
        let batch = marker.to_batch(Offset(offset), LeaderEpoch(1), TimestampType::CreateTime);
        (BatchHeader::read(&batch).expect("sound"), batch.to_vec())
    }

    fn aborted(producer: i64, first: i64, last: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    fn pass_marker(pass: &mut PassTransactions, at: i64, producer: i64, kind: MarkerKind) -> bool {
        let (header, batch) = marker(at, producer, kind);
        pass.pass_control(&header, &batch).expect("sound")
    }

    #[test]
    fn a_marker_is_needed_as_long_as_its_pass_meets_data() {
        let mut pass = PassTransactions::default();
        pass.tell([aborted(1, 0, 3), aborted(1, 0, 3)]);
        assert!(pass.pass_data(&data(0, 1)), "aborted");
        assert!(!pass.pass_data(&data(1, 2)), "committed");
        assert!(!pass_marker(&mut pass, 2, 2, MarkerKind::Commit), "data was met");
        assert!(pass_marker(&mut pass, 2, 2, MarkerKind::Commit), "none since");
        assert!(!pass_marker(&mut pass, 3, 1, MarkerKind::Abort));
        assert!(pass_marker(&mut pass, 4, 1, MarkerKind::Abort));
        assert_eq!(pass.take_kept(), [aborted(1, 0, 3)]);
        assert!(pass.take_kept().is_empty());
    }

    #[test]
    fn what_was_told_twice_does_not_begin_again_after_its_marker() {
        let mut pass = PassTransactions::default();
        pass.tell([aborted(1, 0, 3)]);
        assert!(pass.pass_data(&data(0, 1)));
        pass.tell([aborted(1, 0, 3)]);
        assert!(!pass_marker(&mut pass, 3, 1, MarkerKind::Abort));
        assert!(!pass.pass_data(&data(4, 1)), "the next transaction was committed");
        // The marker is gone, the entry is still told: what follows it is not concerned.
        let mut pass = PassTransactions::default();
        pass.tell([aborted(1, 0, 3), aborted(1, 5, 8)]);
        assert!(!pass.pass_data(&data(4, 1)));
        assert!(pass.pass_data(&data(5, 1)), "the second one was aborted");
    }

    #[test]
    fn an_emptied_control_batch_is_needless_and_an_unknown_one_stays() {
        let mut pass = PassTransactions::default();
        let (header, batch) = marker(7, 1, MarkerKind::Commit);
        let emptied = BatchHeader { record_count: 0, ..header };
        assert_eq!(pass.pass_control(&emptied, &batch[..HEADER_BYTES]), Ok(true));
        let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed).control();
        builder.push(5, Some(&[0, 0, 0, 9]), Some(&[0, 0]), &[]);
        let batch = builder.finish();
        let header = BatchHeader::read(&batch).expect("sound");
        assert_eq!(pass.pass_control(&header, &batch), Ok(false));
    }
}
