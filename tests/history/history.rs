//! What a history is: every operation of every client, with when it was asked for, when it was over,
//! and what the client knows of it then. A pure value; it knows nothing of protocols or clocks.
//!
//! Invariants of a sound recording, on which the checker builds: a value is sent by one operation
//! only (retries of a batch are one operation); `Refused` means that no attempt can have had, or can
//! still have, any effect; who does not know is `Unknown`; times are of one clock for everybody.

use std::collections::BTreeMap;

/// Nanoseconds of the clock that all clients share.
pub type Ns = u64;

/// What a record carries: unique in a history. [`UNREADABLE`] is one that nobody can have sent.
pub type Value = u64;

/// In the place of a record whose bytes are not what anybody sends.
pub const UNREADABLE: Value = 0;

/// A partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Log {
    pub topic: u8,
    pub partition: u8,
}

/// One client, from its start to its end or to its loss of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u32);

/// A transaction: unique in a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Txn(pub u64);

/// A transactional id: its transactions follow each other, whoever runs them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Line(pub u32);

/// A consumer group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub u32);

/// Producer id and epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    pub id: i64,
    pub epoch: i16,
}

/// What a client knows of an operation that is over for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Ok,
    Refused,
    Unknown,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    pub process: Process,
    pub invoked: Ns,
    pub done: Ns,
    pub what: What,
}

/// What was done.
#[derive(Clone, Debug)]
pub enum What {
    Send(Send),
    /// A new identity for a transactional id, which fences the one before.
    Init {
        line: Line,
        identity: Identity,
    },
    Begin {
        transaction: Txn,
        line: Line,
        identity: Identity,
    },
    End {
        transaction: Txn,
        commit: bool,
        outcome: Outcome,
    },
    Poll(Poll),
    Commit(Commit),
    /// The answer to who asks for a group's offset: -1 is none.
    Committed {
        group: Group,
        log: Log,
        offset: i64,
    },
    Own(Own),
}

/// Records for one log in one batch, in the order of a producer's sends.
#[derive(Clone, Debug)]
pub struct Send {
    pub log: Log,
    pub values: Vec<Value>,
    pub transaction: Option<Txn>,
    pub outcome: Outcome,
    /// Of the first value, if it is known.
    pub base: Option<i64>,
    /// Whether this producer's sends are kept in order.
    pub ordered: bool,
    /// What each value was made of, by a group that reads: empty for others.
    pub sources: Vec<(Log, i64)>,
}

/// What a reader was shown of one log from `from` up to, not including, `next`.
#[derive(Clone, Debug)]
pub struct Poll {
    pub log: Log,
    /// Only committed records.
    pub committed: bool,
    /// In which transaction it was read.
    pub transaction: Option<Txn>,
    pub from: i64,
    pub next: i64,
    /// High watermark and last stable offset, where the client is told.
    pub ends: Option<(i64, i64)>,
    pub records: Vec<(i64, Value)>,
}

/// A group's offset is set; with a transaction, if and when that is committed.
#[derive(Clone, Debug)]
pub struct Commit {
    pub group: Group,
    pub log: Log,
    pub offset: i64,
    pub transaction: Option<Txn>,
    pub outcome: Outcome,
}

/// A member of a group had a partition: it was told so at the operation's `done`, and the last time
/// it asked for something that only the owner is granted, and was granted it, was at `until`.
#[derive(Clone, Debug)]
pub struct Own {
    pub group: Group,
    pub log: Log,
    /// Of the group, where each has one owner per partition.
    pub generation: Option<i32>,
    pub until: Ns,
}

/// A whole log, read at rest.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// What a reader of committed records finds.
    pub committed: Vec<(i64, Value)>,
    /// All that is there.
    pub all: Vec<(i64, Value)>,
    pub end: i64,
}

/// All operations, in no order, and how everything was found at the end.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    pub rests: BTreeMap<Log, Rest>,
    /// Committed offsets at the end; -1 is none.
    pub offsets: BTreeMap<(Group, Log), i64>,
}
