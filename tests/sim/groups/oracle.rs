//! What the outside world was told of groups over all boots of one seed.

use super::offsets::Offsets;
use super::owners::Owners;
use crate::trace::Trace;

/// How much a run did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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
}

impl Counts {
    /// Every count, with its name.
    pub fn all(&self) -> [(&'static str, u64); 25] {
        [
            ("boots", self.boots),
            ("crashes", self.crashes),
            ("clean stops", self.clean_stops),
            ("faulty boots", self.faulty_boots),
            ("synced", self.synced),
            ("given", self.given),
            ("given eagerly", self.given_eagerly),
            ("turned", self.turned),
            ("revoked", self.revoked),
            ("commits", self.commits),
            ("refusals", self.refusals),
            ("stale refused", self.stale_refused),
            ("in transactions", self.in_transactions),
            ("in transactions of members", self.in_transactions_of_members),
            ("fetches", self.fetches),
            ("loading", self.loading),
            ("unstable", self.unstable),
            ("lost answers", self.lost_answers),
            ("copies", self.copies),
            ("silences", self.silences),
            ("fenced", self.fenced),
            ("left", self.left),
            ("replaced", self.replaced),
            ("deletions", self.deletions),
            ("grown", self.grown),
        ]
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Counts) {
        self.boots += other.boots;
        self.crashes += other.crashes;
        self.clean_stops += other.clean_stops;
        self.faulty_boots += other.faulty_boots;
        self.synced += other.synced;
        self.given += other.given;
        self.given_eagerly += other.given_eagerly;
        self.turned += other.turned;
        self.revoked += other.revoked;
        self.commits += other.commits;
        self.refusals += other.refusals;
        self.stale_refused += other.stale_refused;
        self.in_transactions += other.in_transactions;
        self.in_transactions_of_members += other.in_transactions_of_members;
        self.fetches += other.fetches;
        self.loading += other.loading;
        self.unstable += other.unstable;
        self.lost_answers += other.lost_answers;
        self.copies += other.copies;
        self.silences += other.silences;
        self.fenced += other.fenced;
        self.left += other.left;
        self.replaced += other.replaced;
        self.deletions += other.deletions;
        self.grown += other.grown;
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
