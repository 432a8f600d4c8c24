//! A partition's history of leader epochs: which epoch began at which offset.
//!
//! Owns the list that Kafka keeps in `leader-epoch-checkpoint` and answers OffsetForLeaderEpoch and
//! diverging-epoch questions. Invariants: epochs and start offsets both rise strictly, except that
//! an epoch without records is replaced by a later one at the same offset.
//! Source: KIP-101, KIP-279, Kafka's `LeaderEpochFileCache`.

use crate::ids::{LeaderEpoch, Offset};

/// Epochs with their start offsets, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EpochHistory {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl EpochHistory {
    /// A history from stored entries; entries out of order are dropped.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = (LeaderEpoch, Offset)>) -> EpochHistory {
        let mut history = EpochHistory::default();
        for (epoch, start) in entries {
            history.start(epoch, start);
        }
        history
    }

    /// All entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The newest epoch.
    #[must_use]
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|entry| entry.0)
    }

    /// `epoch` begins at `start`. An epoch that is not newer than the latest changes nothing; an
    /// epoch whose start is taken back by the new one never had a record, and goes.
    pub fn start(&mut self, epoch: LeaderEpoch, start: Offset) {
        if self.latest().is_some_and(|latest| latest >= epoch) {
            return;
        }
        while self.entries.last().is_some_and(|last| last.1 >= start) {
            self.entries.pop();
        }
        self.entries.push((epoch, start));
    }

    /// Forgets epochs that end at or below `log_start`; the one that covers it starts there.
    pub fn truncate_start(&mut self, log_start: Offset) {
        let covering = self.entries.partition_point(|entry| entry.1 <= log_start);
        if covering > 0 {
            self.entries.drain(..covering - 1);
            self.entries[0].1 = log_start;
        }
    }

    /// Forgets epochs that start at or above `end`.
    pub fn truncate_end(&mut self, end: Offset) {
        self.entries.retain(|entry| entry.1 < end);
    }

    /// The epoch of the record at `offset`, -1 if none is known.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        let above = self.entries.partition_point(|entry| entry.1 <= offset);
        if above == 0 { LeaderEpoch(-1) } else { self.entries[above - 1].0 }
    }

    /// End offset of the largest known epoch that is at most `requested`, as Kafka answers
    /// OffsetForLeaderEpoch: `(epoch, end offset)`, or `(-1, -1)` when unknown.
    #[must_use]
    pub fn end_offset(&self, requested: LeaderEpoch, log_end: Offset) -> (LeaderEpoch, Offset) {
        let undefined = (LeaderEpoch(-1), Offset(-1));
        let Some(latest) = self.latest() else { return undefined };
        if requested.0 < 0 || requested > latest {
            return undefined;
        }
        if requested == latest {
            return (latest, log_end);
        }
        let above = self.entries.partition_point(|entry| entry.0 <= requested);
        let end = self.entries[above].1;
        if above == 0 { (requested, end) } else { (self.entries[above - 1].0, end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        EpochHistory::from_entries(entries.iter().map(|&(e, o)| (LeaderEpoch(e), Offset(o))))
    }

    #[test]
    fn end_offsets_are_kafkas() {
        let known = history(&[(2, 10), (4, 20), (7, 30)]);
        let check = |epoch: i32, expected: (i32, i64)| {
            let (found, end) = known.end_offset(LeaderEpoch(epoch), Offset(40));
            assert_eq!((found.0, end.0), expected, "epoch {epoch}");
        };
        check(7, (7, 40));
        check(8, (-1, -1));
        check(-1, (-1, -1));
        check(4, (4, 30));
        check(5, (4, 30));
        check(2, (2, 20));
        check(1, (1, 10));
        assert_eq!(
            history(&[]).end_offset(LeaderEpoch(0), Offset(0)),
            (LeaderEpoch(-1), Offset(-1))
        );
    }

    #[test]
    fn an_epoch_without_records_is_replaced() {
        assert_eq!(history(&[(1, 0), (2, 5), (3, 5)]), history(&[(1, 0), (3, 5)]));
        assert_eq!(history(&[(3, 0), (3, 5), (2, 9)]), history(&[(3, 0)]));
    }

    #[test]
    fn truncation_keeps_the_covering_epoch() {
        let mut known = history(&[(1, 0), (2, 10), (3, 20)]);
        known.truncate_start(Offset(15));
        assert_eq!(known, history(&[(2, 15), (3, 20)]));
        known.truncate_end(Offset(20));
        assert_eq!(known, history(&[(2, 15)]));
        assert_eq!(known.epoch_at(Offset(14)), LeaderEpoch(-1));
        assert_eq!(known.epoch_at(Offset(16)), LeaderEpoch(2));
    }
}
