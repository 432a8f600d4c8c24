//! What the outside world was told of groups over all boots of one seed.

use super::offsets::Offsets;
use super::owners::Owners;
use crate::trace::Trace;

counts! {
    /// How much a run did.
    pub struct Counts {
        pub boots: u64,
        pub crashes: u64,
        pub clean_stops: u64,
        pub faulty_boots: u64,
        /// Assignments that members of classic groups were told.
        pub synced: u64,
        /// Partitions given to members by KIP-848.
        pub given: u64,
        /// Assignments that members of the classic protocol were told in a group of both.
        pub given_eagerly: u64,
        /// Processes that came back by the other protocol.
        pub turned: u64,
        /// Partitions that those gave up for others.
        pub revoked: u64,
        pub commits: u64,
        pub refusals: u64,
        /// Commits of members that are not, or no longer, what they say.
        pub stale_refused: u64,
        pub in_transactions: u64,
        pub in_transactions_of_members: u64,
        pub fetches: u64,
        /// Fetches that were answered 14.
        pub loading: u64,
        pub unstable: u64,
        pub lost_answers: u64,
        pub copies: u64,
        /// Members that were silent for longer than their sessions.
        pub silences: u64,
        pub fenced: u64,
        pub left: u64,
        pub replaced: u64,
        pub deletions: u64,
        pub grown: u64,
        /// Passes over internal topics.
        pub passes: u64,
        /// Offsets of them that nothing is left of.
        pub removed: u64,
    }
}

/// Everything that members and tools know.
#[derive(Default)]
pub struct Oracle {
    pub counts: Counts,
    pub trace: Trace,
    pub offsets: Offsets,
    pub owners: Owners,
    names: u64,
}

impl Oracle {
    /// A new boot: what was under way in the one before will not be done any more.
    pub fn boot(&mut self, shards: usize) {
        self.trace.say(format!("boot with {shards} shards"));
        self.counts.boots += 1;
        self.offsets.boot();
    }

    /// A name that nobody else has.
    pub fn name(&mut self, stem: &str) -> String {
        self.names += 1;
        format!("{stem}-{}", self.names)
    }

    /// Notes what is wrong with an answer, if anything is.
    pub fn judge(&mut self, of: &str, judged: Result<(), String>) {
        if let Err(what) = judged {
            self.trace.violated(format!("{of}: {what}"));
        }
    }
}
