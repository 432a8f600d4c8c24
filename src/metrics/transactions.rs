//! Transactions of one shard's coordinator, and the markers of its partitions.
//!
//! Owns the counters; the states of ids are the coordinator's own.

use super::histogram::Histogram;
use super::{Counter, Gauge, Samples, families};
use crate::coordinator::txn::{Decision, State};

/// Counters of a coordinator.
#[derive(Default)]
pub struct TransactionMetrics {
    commits: Counter,
    client_aborts: Counter,
    timeout_aborts: Counter,
    fencing_aborts: Counter,
    /// Time from a durable Prepare to the durable Complete.
    pub completion: Histogram,
    /// Partitions that are owed a marker.
    pub markers_pending: Gauge,
    /// Commit markers appended.
    pub commit_markers: Counter,
    /// Abort markers appended.
    pub abort_markers: Counter,
}

impl TransactionMetrics {
    /// The end of a transaction is decided durably.
    pub fn decided(&self, decision: Decision) {
        let counter = match decision {
            Decision::Commit => &self.commits,
            Decision::Abort => &self.client_aborts,
            Decision::TimedOut => &self.timeout_aborts,
            Decision::Fenced => &self.fencing_aborts,
        };
        counter.add(1);
    }

    /// Tells all of it, with the number of ids in each state.
    pub fn tell(&self, samples: &mut Samples, ids: &[usize; 8]) {
        for state in State::ALL {
            let count = ids[state as usize] as u64;
            samples.count(&families::TRANSACTIONAL_IDS, &[("state", state.name())], count);
        }
        samples.count(&families::TXN_COMMITS, &[], self.commits.get());
        let aborts = [
            ("client", &self.client_aborts),
            ("timeout", &self.timeout_aborts),
            ("fencing", &self.fencing_aborts),
        ];
        for (cause, counter) in aborts {
            samples.count(&families::TXN_ABORTS, &[("cause", cause)], counter.get());
        }
        let completion = self.completion.distribution();
        samples.distribution(&families::TXN_COMPLETION, &[], completion);
        samples.number(&families::TXN_MARKERS_PENDING, &[], self.markers_pending.get());
        for (kind, counter) in [("commit", &self.commit_markers), ("abort", &self.abort_markers)] {
            samples.count(&families::TXN_MARKERS, &[("kind", kind)], counter.get());
        }
    }
}
