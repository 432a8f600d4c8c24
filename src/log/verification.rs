//! Verifications under way: the first transactional batch of a producer waits for its coordinator's
//! word before it is appended, and must not come after the end of the transaction it belongs to.
//!
//! Owns the guards. One is made *before* the coordinator is asked and compared *at* the append; a
//! marker in between takes it away. Also owns the lowest sequence seen meanwhile, so that a later
//! batch in flight is not written before an earlier one that was refused. Must never grow without
//! bound: the oldest go after the producer expiration, and beyond
//! [`VERIFICATIONS_PER_PARTITION_MAX`].
//!
//! Invariants: one entry per producer; guards rise and are never used twice. Source: KIP-890,
//! Kafka's `VerificationStateEntry`.

use std::collections::BTreeMap;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::ProducerFacts;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::limits::VERIFICATIONS_PER_PARTITION_MAX;

/// Proof that a verification began, to be shown at the append.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VerificationGuard(pub u64);

/// What a transactional batch needs before it is appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verification {
    /// Its transaction is open in this partition.
    NotNeeded,
    /// The coordinator's word, and then this guard.
    Guard(VerificationGuard),
}

/// A verification under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerificationEntry {
    /// Its guard.
    pub guard: VerificationGuard,
    /// Newest epoch seen.
    pub epoch: ProducerEpoch,
    /// Lowest sequence seen of that epoch.
    pub lowest_sequence: i32,
    /// Whether the producer's epoch rises with every transaction: as whoever has the newest epoch
    /// says.
    pub strict: bool,
    created_ms: i64,
}

/// The verifications of one partition.
#[derive(Default, Debug)]
pub struct Verifications {
    entries: HashMap<ProducerId, VerificationEntry, RandomState>,
    by_age: BTreeMap<VerificationGuard, ProducerId>,
    last: u64,
    forgotten: u64,
}

impl Verifications {
    /// Makes an entry, or takes note of a further batch in the one there is.
    pub fn begin(
        &mut self,
        producer: &ProducerFacts,
        strict: bool,
        now_ms: i64,
        expiration_ms: i64,
    ) -> VerificationGuard {
        self.forget(now_ms, expiration_ms, usize::MAX);
        if let Some(entry) = self.entries.get_mut(&producer.id) {
            if producer.epoch > entry.epoch {
                entry.epoch = producer.epoch;
                entry.lowest_sequence = producer.base_sequence;
                entry.strict = strict;
            } else if producer.epoch == entry.epoch {
                entry.lowest_sequence = entry.lowest_sequence.min(producer.base_sequence);
                entry.strict &= strict;
            }
            return entry.guard;
        }
        self.forget(now_ms, expiration_ms, VERIFICATIONS_PER_PARTITION_MAX - 1);
        self.last += 1;
        let guard = VerificationGuard(self.last);
        let entry = VerificationEntry {
            guard,
            epoch: producer.epoch,
            lowest_sequence: producer.base_sequence,
            strict,
            created_ms: now_ms,
        };
        self.entries.insert(producer.id, entry);
        self.by_age.insert(guard, producer.id);
        guard
    }

    /// How many were forgotten because there were too many.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The producer's verification.
    #[must_use]
    pub fn get(&self, id: ProducerId) -> Option<&VerificationEntry> {
        self.entries.get(&id)
    }

    /// Whether `guard` is the producer's, and still stands.
    #[must_use]
    pub fn stands(&self, id: ProducerId, guard: Option<VerificationGuard>) -> bool {
        guard.is_some_and(|guard| self.get(id).is_some_and(|entry| entry.guard == guard))
    }

    /// A batch of the producer's transaction was appended. **deviation** from Kafka, where it takes
    /// the verification away whatever its epoch: here one of a newer epoch goes on. While the
    /// marker is on its way, a copy of what the transaction before has written may come between the
    /// next one's question and its first batch, which would be refused with 48 for nothing.
    pub fn batch_appended(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        if self.get(id).is_some_and(|entry| entry.epoch <= epoch) {
            self.remove(id);
        }
    }

    /// A marker was appended; `strict` says that the end which it is of has raised the epoch. Then
    /// one that carries the entry's own epoch ended the transaction before: the verification
    /// belongs to the next. **deviation** from Kafka, which goes by whoever made the entry: after a
    /// process of the newer protocol the guard of one before KIP-890 outlives the end of its own
    /// transaction there, and what is appended then is open for ever.
    pub fn marker_appended(&mut self, id: ProducerId, epoch: ProducerEpoch, strict: bool) {
        let is_of_next = |entry: &VerificationEntry| strict && entry.strict && entry.epoch == epoch;
        if !self.get(id).is_some_and(is_of_next) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: ProducerId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.by_age.remove(&entry.guard);
        }
    }

    /// Forgets those that are too old, and the oldest of more than `count_max`.
    fn forget(&mut self, now_ms: i64, expiration_ms: i64, count_max: usize) {
        while let Some((_, &id)) = self.by_age.first_key_value() {
            let age_ms = self.get(id).map_or(0, |entry| now_ms.saturating_sub(entry.created_ms));
            if age_ms < expiration_ms && self.entries.len() <= count_max {
                return;
            }
            self.forgotten += u64::from(age_ms < expiration_ms);
            self.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: i64, epoch: i16, base_sequence: i32) -> ProducerFacts {
        ProducerFacts { id: ProducerId(id), epoch: ProducerEpoch(epoch), base_sequence }
    }

    fn begin(verifications: &mut Verifications, producer: ProducerFacts) -> VerificationGuard {
        verifications.begin(&producer, false, 0, 1_000)
    }

    #[test]
    fn an_entry_is_reused_and_keeps_the_lowest_sequence_of_the_newest_epoch() {
        let mut verifications = Verifications::default();
        let guard = begin(&mut verifications, facts(9, 1, 5));
        assert_eq!(begin(&mut verifications, facts(9, 1, 3)), guard);
        assert_eq!(begin(&mut verifications, facts(9, 1, 7)), guard);
        let entry = verifications.get(ProducerId(9)).expect("under way");
        assert_eq!((entry.epoch.0, entry.lowest_sequence), (1, 3));
        assert_eq!(begin(&mut verifications, facts(9, 2, 4)), guard);
        assert_eq!(begin(&mut verifications, facts(9, 1, 0)), guard, "an older epoch");
        let entry = verifications.get(ProducerId(9)).expect("under way");
        assert_eq!((entry.epoch.0, entry.lowest_sequence), (2, 4));
    }

    #[test]
    fn a_guard_stands_until_a_batch_or_a_marker() {
        let id = ProducerId(9);
        let mut verifications = Verifications::default();
        let guard = begin(&mut verifications, facts(9, 1, 0));
        assert!(verifications.stands(id, Some(guard)));
        assert!(!verifications.stands(id, None));
        verifications.batch_appended(id, ProducerEpoch(1));
        assert!(!verifications.stands(id, Some(guard)));
        let next = begin(&mut verifications, facts(9, 1, 0));
        assert!(next > guard && !verifications.stands(id, Some(guard)));
        verifications.marker_appended(id, ProducerEpoch(1), true);
        assert!(!verifications.stands(id, Some(next)), "not strict: any marker ends it");
    }

    #[test]
    fn a_strict_one_outlives_the_marker_of_the_transaction_before() {
        let id = ProducerId(9);
        let mut verifications = Verifications::default();
        let guard = verifications.begin(&facts(9, 4, 0), true, 0, 1_000);
        verifications.marker_appended(id, ProducerEpoch(4), true);
        assert!(verifications.stands(id, Some(guard)));
        verifications.marker_appended(id, ProducerEpoch(5), true);
        assert!(!verifications.stands(id, Some(guard)));
        let guard = verifications.begin(&facts(9, 5, 0), true, 0, 1_000);
        verifications.marker_appended(id, ProducerEpoch(5), false);
        assert!(!verifications.stands(id, Some(guard)), "that end left the epoch: its own");
    }

    #[test]
    fn a_late_copy_of_the_transaction_before_takes_nothing_from_the_next() {
        let id = ProducerId(9);
        let mut verifications = Verifications::default();
        let guard = verifications.begin(&facts(9, 5, 0), true, 0, 1_000);
        verifications.batch_appended(id, ProducerEpoch(4));
        assert!(verifications.stands(id, Some(guard)));
        verifications.batch_appended(id, ProducerEpoch(5));
        assert!(!verifications.stands(id, Some(guard)));
    }

    /// A process of the newer protocol has asked, and is fenced by one before KIP-890 that writes
    /// to the same partition: the end of *that* transaction leaves the epoch.
    #[test]
    fn the_newest_epoch_says_whether_it_rises_with_every_transaction() {
        let id = ProducerId(9);
        let mut verifications = Verifications::default();
        verifications.begin(&facts(9, 8, 0), true, 0, 1_000);
        let guard = verifications.begin(&facts(9, 9, 0), false, 0, 1_000);
        verifications.begin(&facts(9, 8, 0), true, 0, 1_000);
        verifications.marker_appended(id, ProducerEpoch(9), true);
        assert!(!verifications.stands(id, Some(guard)), "its own transaction has ended");

        verifications.begin(&facts(9, 9, 0), false, 0, 1_000);
        let guard = verifications.begin(&facts(9, 10, 0), true, 0, 1_000);
        verifications.marker_appended(id, ProducerEpoch(10), true);
        assert!(verifications.stands(id, Some(guard)), "the transaction before has ended");

        let guard = verifications.begin(&facts(9, 10, 0), false, 0, 1_000);
        verifications.begin(&facts(9, 10, 0), true, 0, 1_000);
        verifications.marker_appended(id, ProducerEpoch(10), true);
        assert!(!verifications.stands(id, Some(guard)), "it may have been its own");
    }

    #[test]
    fn unused_ones_go_by_age_and_by_number() {
        let mut verifications = Verifications::default();
        let old = verifications.begin(&facts(1, 0, 0), false, 0, 1_000);
        verifications.begin(&facts(2, 0, 0), false, 999, 1_000);
        assert!(verifications.stands(ProducerId(1), Some(old)));
        verifications.begin(&facts(3, 0, 0), false, 1_000, 1_000);
        assert!(!verifications.stands(ProducerId(1), Some(old)));
        for id in 0..2 * VERIFICATIONS_PER_PARTITION_MAX as i64 {
            verifications.begin(&facts(100 + id, 0, 0), false, 1_000, 1_000);
        }
        assert_eq!(verifications.entries.len(), VERIFICATIONS_PER_PARTITION_MAX);
        assert_eq!(verifications.by_age.len(), VERIFICATIONS_PER_PARTITION_MAX);
    }
}
