//! What happens to transactional ids by the passing of time.
//!
//! Owns two orders of deadlines: of open transactions by their timeout, of settled ids by their
//! expiry; and the number of ids in each state. Holds exactly the ids that are in such a state
//! durably, so that a sweep costs what is due and not what is there. Must never end anything that
//! has a transition pending: it stays due.
//! Source: Kafka's `timedOutTransactions` and `removeExpiredTransactionalIds`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::coordinator::{Coordinator, Transition};
use super::state::Metadata;
use super::{Decision, Write};
use crate::ids::{PartitionIndex, ProducerId};
use crate::limits::TRANSACTION_SWEEP_WRITES_MAX;

type Deadline = (i64, PartitionIndex, Arc<str>);

/// Deadlines of the ids of one coordinator.
pub(super) struct Timers {
    id_expiration_ms: i64,
    /// Open transactions, by the last millisecond at which they may be open.
    timeouts: BTreeSet<Deadline>,
    /// Settled ids, by the first millisecond at which they may go.
    expiries: BTreeSet<Deadline>,
    /// Ids in each state.
    pub counts: [usize; 8],
}

impl Timers {
    /// No ids yet.
    pub fn new(id_expiration_ms: i64) -> Timers {
        let (timeouts, expiries) = (BTreeSet::new(), BTreeSet::new());
        Timers { id_expiration_ms, timeouts, expiries, counts: [0; 8] }
    }

    /// An id was in one state and is in another; `None` is not being there.
    pub fn moved(
        &mut self,
        partition: PartitionIndex,
        id: &Arc<str>,
        old: Option<&Metadata>,
        new: Option<&Metadata>,
    ) {
        if let Some(old) = old {
            self.counts[old.state as usize] -= 1;
        }
        if let Some(new) = new {
            self.counts[new.state as usize] += 1;
        }
        let timeout = |metadata: Option<&Metadata>| metadata.and_then(Metadata::timeout_at_ms);
        let expiry = |metadata: Option<&Metadata>| {
            let settled = metadata.filter(|metadata| metadata.state.is_settled());
            settled.map(|metadata| metadata.last_update_ms.saturating_add(self.id_expiration_ms))
        };
        let (old_expiry, new_expiry) = (expiry(old), expiry(new));
        replace(&mut self.timeouts, partition, id, timeout(old), timeout(new));
        replace(&mut self.expiries, partition, id, old_expiry, new_expiry);
    }
}

fn replace(
    deadlines: &mut BTreeSet<Deadline>,
    partition: PartitionIndex,
    id: &Arc<str>,
    old: Option<i64>,
    new: Option<i64>,
) {
    if old == new {
        return;
    }
    if let Some(old) = old {
        let is_removed = deadlines.remove(&(old, partition, Arc::clone(id)));
        assert!(is_removed, "a deadline was lost");
    }
    if let Some(new) = new {
        deadlines.insert((new, partition, Arc::clone(id)));
    }
}

impl Coordinator {
    /// Aborts of transactions that have been open for too long. One whose abort needs a producer
    /// id that `fresh` does not have waits for the next sweep.
    ///
    /// At most [`TRANSACTION_SWEEP_WRITES_MAX`]: whoever gets as many asks again when those are
    /// written.
    pub fn timed_out(
        &mut self,
        now_ms: i64,
        fresh: &mut dyn FnMut() -> Option<ProducerId>,
    ) -> Vec<Write> {
        let due: Vec<Deadline> = self.idle(&self.timers.timeouts, |at_ms| at_ms < now_ms);
        let mut writes = Vec::with_capacity(due.len());
        for (_, partition, id) in due {
            let entry = &self.partitions[&partition].ids[&id];
            if let Some(transition) = self.fence(entry, &mut *fresh, Decision::TimedOut, now_ms) {
                writes.push(self.begin(partition, &id, transition));
            }
        }
        writes
    }

    /// Tombstones of ids that nobody has used for too long.
    ///
    /// At most [`TRANSACTION_SWEEP_WRITES_MAX`]: whoever gets as many asks again when those are
    /// written.
    pub fn expired(&mut self, now_ms: i64) -> Vec<Write> {
        let due = self.idle(&self.timers.expiries, |at_ms| at_ms <= now_ms);
        due.into_iter()
            .map(|(_, partition, id)| self.begin(partition, &id, Transition::Forget))
            .collect()
    }

    /// Number of ids in each state, by its number.
    #[must_use]
    pub fn counts(&self) -> [usize; 8] {
        self.timers.counts
    }

    /// What is due and has nothing pending.
    fn idle(&self, deadlines: &BTreeSet<Deadline>, is_due: impl Fn(i64) -> bool) -> Vec<Deadline> {
        deadlines
            .iter()
            .take_while(|(at_ms, ..)| is_due(*at_ms))
            .filter(|(_, partition, id)| self.partitions[partition].ids[id].pending.is_none())
            .take(TRANSACTION_SWEEP_WRITES_MAX)
            .cloned()
            .collect()
    }
}
