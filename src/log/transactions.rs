//! The transactions of one partition: which are open, and which have ended but whose end is not
//! durable yet.
//!
//! Owns what the last stable offset follows from. A transaction is open from its first record
//! here, whatever its coordinator thinks, until a marker; from then on it stays *unstable* until
//! the marker is below the high watermark, so that the last stable offset never moves back, over
//! a crash neither. What has ended is remembered until it is in segments: an abort becomes an
//! entry of the index of aborted transactions there.
//!
//! Invariants: first offsets are unique; ended ones rise by marker. Every step costs O(log n) of
//! the transactions that are open or unstable. Source: KIP-98, Kafka's `ProducerStateManager`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::aborted::AbortedTransaction;
use crate::batch::control::MarkerKind;
use crate::ids::{Offset, ProducerId};

/// A transaction with its marker, both in this partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedTransaction {
    /// How it ended.
    pub kind: MarkerKind,
    /// Its producer.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub marker_offset: Offset,
    /// First offset of the oldest transaction that was open then; the offset after the marker if
    /// none was.
    pub last_stable_offset: Offset,
}

impl EndedTransaction {
    /// Its entry in the index of aborted transactions, if it was aborted.
    #[must_use]
    pub fn aborted(&self) -> Option<AbortedTransaction> {
        (self.kind == MarkerKind::Abort).then_some(AbortedTransaction {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.marker_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

/// The transactions of one partition.
#[derive(Clone, Default, Debug)]
pub struct Transactions {
    /// Producers of open transactions by first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Ended ones that are not in segments, by marker.
    ended: VecDeque<EndedTransaction>,
    /// So many of them, from the front, have their marker below the high watermark.
    stable: usize,
    /// First offsets of the others.
    unstable: BTreeSet<Offset>,
}

impl Transactions {
    /// A producer's transaction begins.
    pub fn open(&mut self, first_offset: Offset, producer_id: ProducerId) {
        let other = self.open.insert(first_offset, producer_id);
        assert!(other.is_none(), "two transactions begin at offset {first_offset}");
    }

    /// The transaction that began at `first_offset` ends with a marker.
    pub fn end(&mut self, first_offset: Offset, marker_offset: Offset, kind: MarkerKind) {
        let producer_id = self.open.remove(&first_offset);
        let producer_id = producer_id.expect("invariant: a transaction that ends was open");
        let oldest = self.open.keys().next().copied();
        self.unstable.insert(first_offset);
        self.ended.push_back(EndedTransaction {
            kind,
            producer_id,
            first_offset,
            marker_offset,
            last_stable_offset: oldest.unwrap_or(marker_offset.plus(1)),
        });
    }

    /// Producer of the transaction that is open for longest.
    #[must_use]
    pub fn oldest_open(&self) -> Option<ProducerId> {
        self.open.first_key_value().map(|(_, producer)| *producer)
    }

    /// First offset that readers of committed records may not pass; `None` if all is stable.
    #[must_use]
    pub fn first_unstable(&self) -> Option<Offset> {
        let open = self.open.keys().next();
        let unstable = self.unstable.first();
        open.into_iter().chain(unstable).min().copied()
    }

    /// The high watermark has moved: markers below it are durable.
    pub fn durable_through(&mut self, high_watermark: Offset) {
        while let Some(ended) = self.ended.get(self.stable)
            && ended.marker_offset < high_watermark
        {
            self.unstable.remove(&ended.first_offset);
            self.stable += 1;
        }
    }

    /// Everything below `end`, which is durable, has left memory.
    pub fn released_through(&mut self, end: Offset) {
        while let Some(ended) = self.ended.front()
            && ended.marker_offset < end
        {
            assert!(self.stable > 0, "a marker leaves memory before it is durable");
            self.stable -= 1;
            self.ended.pop_front();
        }
        if self.ended.is_empty() && self.ended.capacity() > QUEUE_KEPT {
            self.ended = VecDeque::new();
        }
    }

    /// Those that have ended in what is in memory, from the marker at or after `offset` on.
    pub fn ended_from(&self, offset: Offset) -> impl Iterator<Item = &EndedTransaction> {
        let first = self.ended.partition_point(|ended| ended.marker_offset < offset);
        self.ended.range(first..)
    }

    /// Number of open transactions.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The transactions that were open at `end`, which is at or above what has left memory: first
    /// offsets by producer.
    #[must_use]
    pub fn open_at(&self, end: Offset) -> BTreeMap<ProducerId, Offset> {
        let ended = self.ended_from(end).map(|ended| (ended.first_offset, ended.producer_id));
        let open = self.open.iter().map(|(&first, &producer)| (first, producer));
        ended
            .chain(open)
            .filter(|(first, _)| *first < end)
            .map(|(first, producer)| (producer, first))
            .collect()
    }
}

const QUEUE_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(transactions: &mut Transactions, first: i64, producer: i64) {
        transactions.open(Offset(first), ProducerId(producer));
    }

    fn end(transactions: &mut Transactions, first: i64, marker: i64, kind: MarkerKind) {
        transactions.end(Offset(first), Offset(marker), kind);
    }

    #[test]
    fn what_has_ended_is_unstable_until_its_marker_is_durable() {
        let mut transactions = Transactions::default();
        assert_eq!(transactions.first_unstable(), None);
        begin(&mut transactions, 3, 1);
        begin(&mut transactions, 5, 2);
        assert_eq!(transactions.first_unstable(), Some(Offset(3)));
        end(&mut transactions, 3, 8, MarkerKind::Commit);
        transactions.durable_through(Offset(8));
        assert_eq!(transactions.first_unstable(), Some(Offset(3)), "the marker is at 8");
        transactions.durable_through(Offset(9));
        assert_eq!(transactions.first_unstable(), Some(Offset(5)));
        end(&mut transactions, 5, 9, MarkerKind::Abort);
        transactions.durable_through(Offset(10));
        assert_eq!(transactions.first_unstable(), None);
    }

    /// Ends in another order than the begin: the older one holds the offset.
    #[test]
    fn the_oldest_unstable_one_counts_whatever_ended_first() {
        let mut transactions = Transactions::default();
        begin(&mut transactions, 0, 1);
        begin(&mut transactions, 4, 2);
        end(&mut transactions, 4, 6, MarkerKind::Abort);
        transactions.durable_through(Offset(7));
        assert_eq!(transactions.first_unstable(), Some(Offset(0)));
        let ended = transactions.ended_from(Offset(0)).next().expect("it is in memory");
        assert_eq!(ended.last_stable_offset, Offset(0), "another was open then");
        end(&mut transactions, 0, 7, MarkerKind::Abort);
        let ended = transactions.ended_from(Offset(7)).next().expect("it is in memory");
        assert_eq!(ended.last_stable_offset, Offset(8), "none was open then");
        assert_eq!(transactions.first_unstable(), Some(Offset(0)));
    }

    #[test]
    fn what_was_open_at_an_earlier_end_is_known_while_it_is_in_memory() {
        let mut transactions = Transactions::default();
        begin(&mut transactions, 0, 1);
        begin(&mut transactions, 2, 2);
        end(&mut transactions, 0, 4, MarkerKind::Commit);
        begin(&mut transactions, 5, 1);
        let open_at = |end| {
            let open = transactions.open_at(Offset(end));
            open.into_iter().map(|(producer, first)| (producer.0, first.0)).collect::<Vec<_>>()
        };
        assert_eq!(open_at(0), []);
        assert_eq!(open_at(1), [(1, 0)]);
        assert_eq!(open_at(4), [(1, 0), (2, 2)], "the marker at 4 is not below");
        assert_eq!(open_at(5), [(2, 2)]);
        assert_eq!(open_at(6), [(1, 5), (2, 2)]);
        transactions.durable_through(Offset(5));
        transactions.released_through(Offset(5));
        assert_eq!(transactions.ended_from(Offset(0)).count(), 0);
    }
}
