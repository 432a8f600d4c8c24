//! Transactional ids: what is asked of their coordinator, and what it answers.
//!
//! Owns the vocabulary between the coordinator and whoever appends its records and sends its
//! markers. A transition has two steps: the [`Write`] is appended, and only when it is durable does
//! [`Coordinator::written`] apply it. So nothing in memory is ahead of the medium, and an answer
//! needs no wait.
//! Source: KIP-98, KIP-360, KIP-664, KIP-890; Kafka's `TransactionCoordinator`.

use std::sync::Arc;

use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerEpoch, ProducerId};

mod add;
mod admin;
mod coordinator;
mod end;
mod init;
mod load;
pub mod state;
#[cfg(test)]
mod tests;
mod timers;

pub use admin::is_pattern_too_large;
pub use coordinator::Coordinator;
pub use state::State;

/// What the broker's configuration says about transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `transaction.max.timeout.ms`
    pub max_timeout_ms: i32,
    /// `transactional.id.expiration.ms`
    pub id_expiration_ms: i64,
    /// Finalized level of `transaction.version`: which protocol the coordinator's own aborts
    /// follow, and the version of its records.
    pub finalized_level: i16,
    /// `transaction.two.phase.commit.enable`
    pub two_phase_commit: bool,
}

/// Topic name and partition index, as `__transaction_state` keeps them.
pub type TxnPartition = (Arc<str>, i32);

/// Who produces: a producer id and its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The producer id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

impl Identity {
    /// What an answer carries where there is no producer.
    pub const NONE: Identity = Identity { id: ProducerId(-1), epoch: ProducerEpoch(-1) };
}

/// An InitProducerId request that names a transactional id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitProducerId {
    /// The transactional id; the empty one is refused here.
    pub transactional_id: Arc<str>,
    /// Timeout of its transactions.
    pub timeout_ms: i32,
    /// What the producer believes itself to be. Exactly one of id and epoch given is refused
    /// before this.
    pub expected: Option<Identity>,
    /// `Enable2Pc` of version 6.
    pub two_phase: bool,
    /// `KeepPreparedTxn` of version 6.
    pub keep_prepared: bool,
}

/// Partitions to add to a transaction, or to look up in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddPartitions {
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// Who asks.
    pub producer: Identity,
    /// The partitions, in any order.
    pub partitions: Vec<TxnPartition>,
    /// Whether the producer follows KIP-890: a Produce from version 12 or a TxnOffsetCommit from
    /// version 5 adds the partition, and no AddPartitionsToTxn or AddOffsetsToTxn of its own.
    pub strict: bool,
}

/// An EndTxn request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndTxn {
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// Who asks.
    pub producer: Identity,
    /// Commit or abort.
    pub commit: bool,
    /// Version 5 or later: the epoch is raised at the end (KIP-890).
    pub strict: bool,
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict<T> {
    /// The answer, from durable state only.
    Answer(T),
    /// The answer is this code. PRODUCER_FENCED is what it is here; the API rewrites it to
    /// INVALID_PRODUCER_EPOCH where the request's version is too old for it.
    Refuse(ErrorCode),
    /// To be appended; when that is done and [`Coordinator::written`] has been told, the answer is
    /// `then`, or the error that `written` returned.
    Write {
        /// The record.
        write: Write,
        /// The answer.
        then: T,
    },
    /// InitProducerId met an open transaction: its abort is to be appended, and the request asked
    /// again once the abort is complete. Whoever does not hold answers CONCURRENT_TRANSACTIONS.
    AbortFirst(Write),
    /// A transition is pending: ask again when [`Written::released`] names the id. Whoever does
    /// not hold answers CONCURRENT_TRANSACTIONS.
    Hold,
    /// Ask again with a producer id never used before.
    NeedsProducerId,
}

/// A record for `__transaction_state`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// To be handed to [`Coordinator::written`], once.
    pub ticket: Ticket,
    /// Partition of `__transaction_state`.
    pub partition: PartitionIndex,
    /// Whose record it is.
    pub transactional_id: Arc<str>,
    /// The record's key.
    pub key: Vec<u8>,
    /// The record's value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Whether it ends something (Prepare, Complete, a tombstone), and so may use space that is
    /// kept back for that; the others are refused while the disk is full.
    pub ends: bool,
}

/// Names one pending transition of one transactional id. Never used again, in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What follows from a record having been appended, or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The record was a Prepare: markers to send now. With no partition left to mark,
    /// [`Coordinator::marked`] is to be called at once all the same.
    pub markers: Option<Completion>,
    /// This id has no pending transition any more: wake what is held for it.
    pub released: Option<Arc<str>>,
    /// The code for whoever asked for the transition.
    pub error: Option<ErrorCode>,
    /// A Complete that could not be appended for now: append this, after a pause.
    pub again: Option<Write>,
    /// The record was a Prepare: how its transaction ends, and by whose decision.
    pub decided: Option<Decision>,
}

/// How a transaction ends, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The client commits.
    Commit,
    /// The client aborts.
    Abort,
    /// It was open for too long.
    TimedOut,
    /// Another instance of its producer has begun.
    Fenced,
}

/// The markers that end a transaction whose Prepare is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// To be handed to [`Coordinator::marked`] with every partition that is done.
    pub ticket: Ticket,
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// Producer id and epoch in the markers.
    pub producer: Identity,
    /// Commit or abort.
    pub commit: bool,
    /// Coordinator epoch in the markers.
    pub coordinator_epoch: i32,
    /// 2 if partitions are to apply the strict rule of KIP-1228 to the markers, 0 otherwise.
    pub transaction_version: i16,
    /// Where markers are owed.
    pub partitions: Vec<TxnPartition>,
}

/// A transactional id as DescribeTransactions shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// Its state.
    pub state: State,
    /// Timeout of its transactions.
    pub timeout_ms: i32,
    /// When the open transaction began; -1 if none is.
    pub start_ms: i64,
    /// Its producer.
    pub producer: Identity,
    /// Partitions of the open transaction, or those still owed a marker; sorted.
    pub partitions: Vec<TxnPartition>,
}

/// Which transactional ids ListTransactions wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListFilter {
    /// Names of states; empty for all.
    pub states: Vec<String>,
    /// Producer ids; empty for all.
    pub producer_ids: Vec<ProducerId>,
    /// Only transactions open for longer than this; negative for all.
    pub duration_ms: i64,
    /// Pattern that the whole id must match; `None` or empty for all.
    pub pattern: Option<String>,
}

/// The answer to ListTransactions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Names in the filter that no state has.
    pub unknown_states: Vec<String>,
    /// The ids, in no order.
    pub transactions: Vec<Listed>,
}

/// One transactional id of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The id.
    pub transactional_id: Arc<str>,
    /// Its producer id.
    pub producer_id: ProducerId,
    /// Its state.
    pub state: State,
}

/// Whether an id can have a record: it is not empty, and no longer than a string of the protocol.
fn is_valid_id(transactional_id: &str) -> bool {
    !transactional_id.is_empty() && i16::try_from(transactional_id.len()).is_ok()
}
