//! What is known of one transactional id, and what it becomes.
//!
//! Owns the states, the fields of their record, and every transition: each takes what is durable
//! and returns what is to be. Must never let an epoch fall, pass 32767, or be handed to a client
//! at 32767: that one is the coordinator's own, to fence with.
//! Source: KIP-360, KIP-890; Kafka's `TransactionMetadata` and `TransactionState`.

use super::{Identity, TxnPartition};
use crate::error_code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};

/// State of a transactional id; the number is the one in its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// No transaction since the producer was initialized.
    Empty = 0,
    /// A transaction is open.
    Ongoing = 1,
    /// It is committed; markers are being written.
    PrepareCommit = 2,
    /// It is aborted; markers are being written.
    PrepareAbort = 3,
    /// It is committed and every marker is written.
    CompleteCommit = 4,
    /// It is aborted and every marker is written.
    CompleteAbort = 5,
    /// The id has expired; never in a record.
    Dead = 6,
    /// The coordinator is about to abort it; never in a record.
    PrepareEpochFence = 7,
}

impl State {
    /// Every state, at the place of its number.
    pub const ALL: [State; 8] = [
        State::Empty,
        State::Ongoing,
        State::PrepareCommit,
        State::PrepareAbort,
        State::CompleteCommit,
        State::CompleteAbort,
        State::Dead,
        State::PrepareEpochFence,
    ];

    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
            State::Dead => "Dead",
            State::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// The state of that name, in this very spelling.
    #[must_use]
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state that a record's number means; those never logged mean nothing.
    #[must_use]
    pub fn from_logged(number: u8) -> Option<State> {
        State::ALL[..6].get(usize::from(number)).copied()
    }

    /// Whether markers are owed.
    #[must_use]
    pub fn is_prepare(self) -> bool {
        matches!(self, State::PrepareCommit | State::PrepareAbort)
    }

    /// Whether nothing is open, so that the id may start anew or expire.
    #[must_use]
    pub fn is_settled(self) -> bool {
        matches!(self, State::Empty | State::CompleteCommit | State::CompleteAbort)
    }

    /// Whether an id in state `before` may come to this one.
    fn follows(self, before: State) -> bool {
        match self {
            State::Empty | State::Dead => before.is_settled(),
            State::Ongoing | State::PrepareAbort => before.is_settled() || before == State::Ongoing,
            State::PrepareCommit | State::PrepareEpochFence => before == State::Ongoing,
            State::CompleteCommit => before == State::PrepareCommit,
            State::CompleteAbort => before == State::PrepareAbort,
        }
    }
}

/// Largest epoch that a client is ever given.
pub(crate) const EPOCH_FOR_CLIENTS_MAX: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// Timeout of two-phase commit: the transaction never times out.
pub(crate) const NO_TIMEOUT_MS: i32 = i32::MAX;

/// The level of `transaction.version` from which every end raises the epoch.
pub(crate) const STRICT_LEVEL: i16 = 2;

const NO_EPOCH: ProducerEpoch = ProducerEpoch(-1);
const NO_ID: ProducerId = ProducerId(-1);
const NO_TIME_MS: i64 = -1;

/// One transactional id, as its record says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Its producer. Epoch -1 only before the first record.
    pub producer: Identity,
    /// Producer id before the last transition: another one only right after a rotation.
    pub previous_producer_id: ProducerId,
    /// Producer id to change to when the running completion ends; -1 for none.
    pub next_producer_id: ProducerId,
    /// Epoch before it was last raised, if whoever had it may ask again; -1 otherwise.
    pub last_epoch: ProducerEpoch,
    /// Timeout of its transactions.
    pub timeout_ms: i32,
    /// Its state.
    pub state: State,
    /// Level of the protocol in which partitions were last added or a transaction ended: 0 or 2.
    pub client_version: i16,
    /// Partitions of the open transaction, or of the one whose markers are owed; sorted.
    pub partitions: Vec<TxnPartition>,
    /// When a record was last written for it.
    pub last_update_ms: i64,
    /// When the first partition of the last transaction was added; -1 for no transaction yet.
    pub start_ms: i64,
}

impl Metadata {
    /// An id never seen before, not yet on the medium.
    pub fn new(producer_id: ProducerId, timeout_ms: i32, now_ms: i64) -> Metadata {
        Metadata {
            producer: Identity { id: producer_id, epoch: NO_EPOCH },
            previous_producer_id: NO_ID,
            next_producer_id: NO_ID,
            last_epoch: NO_EPOCH,
            timeout_ms,
            state: State::Empty,
            client_version: 0,
            partitions: Vec::new(),
            last_update_ms: now_ms,
            start_ms: NO_TIME_MS,
        }
    }

    /// Whether the next epoch is not for clients any more.
    pub fn is_exhausted(&self) -> bool {
        self.producer.epoch >= EPOCH_FOR_CLIENTS_MAX
    }

    /// Whether the partition is in the transaction.
    pub fn has(&self, partition: &TxnPartition) -> bool {
        self.partitions.binary_search(partition).is_ok()
    }

    /// When an open transaction is to be aborted: as soon as the time is past this.
    pub fn timeout_at_ms(&self) -> Option<i64> {
        (self.state == State::Ongoing && self.timeout_ms != NO_TIMEOUT_MS)
            .then(|| self.start_ms.saturating_add(i64::from(self.timeout_ms)))
    }

    /// InitProducerId with epochs left: the next epoch, or the same answer to the same question.
    ///
    /// # Errors
    /// PRODUCER_FENCED if the expected epoch is neither the current one nor the one before;
    /// UNKNOWN_SERVER_ERROR, as in Kafka, if no epoch is left and the expected one is not current.
    pub fn initialized(
        &self,
        timeout_ms: i32,
        expected: Option<ProducerEpoch>,
        now_ms: i64,
    ) -> Result<Metadata, ErrorCode> {
        if self.is_exhausted() {
            return Err(ErrorCode::UnknownServerError);
        }
        let current = self.producer.epoch;
        let raised = ProducerEpoch(current.0 + 1);
        let (epoch, last_epoch) = match expected {
            None => (raised, NO_EPOCH),
            Some(epoch) if epoch == current || current == NO_EPOCH => (raised, current),
            Some(epoch) if epoch == self.last_epoch => (current, self.last_epoch),
            Some(_) => return Err(ErrorCode::ProducerFenced),
        };
        let producer = Identity { id: self.producer.id, epoch };
        Ok(self.emptied(producer, last_epoch, timeout_ms, now_ms))
    }

    /// InitProducerId with no epoch left: another producer id.
    pub fn rotated(
        &self,
        fresh: ProducerId,
        timeout_ms: i32,
        is_expected: bool,
        now_ms: i64,
    ) -> Metadata {
        let last_epoch = if is_expected { self.producer.epoch } else { NO_EPOCH };
        let producer = Identity { id: fresh, epoch: ProducerEpoch(0) };
        self.emptied(producer, last_epoch, timeout_ms, now_ms)
    }

    fn emptied(
        &self,
        producer: Identity,
        last_epoch: ProducerEpoch,
        timeout_ms: i32,
        now_ms: i64,
    ) -> Metadata {
        let partitions = Vec::new();
        Metadata {
            producer,
            last_epoch,
            timeout_ms,
            start_ms: NO_TIME_MS,
            ..self.next(State::Empty, partitions, now_ms)
        }
    }

    /// More partitions; the first one starts the transaction and its clock.
    pub fn with_partitions(&self, added: &[TxnPartition], strict: bool, now_ms: i64) -> Metadata {
        let mut partitions = self.partitions.clone();
        partitions.extend_from_slice(added);
        partitions.sort_unstable();
        partitions.dedup();
        Metadata {
            start_ms: if self.state == State::Ongoing { self.start_ms } else { now_ms },
            client_version: if strict { STRICT_LEVEL } else { 0 },
            ..self.next(State::Ongoing, partitions, now_ms)
        }
    }

    /// The end as before KIP-890: the epoch stays.
    pub fn prepared(&self, commit: bool, now_ms: i64) -> Metadata {
        let state = if commit { State::PrepareCommit } else { State::PrepareAbort };
        Metadata {
            client_version: 0,
            next_producer_id: NO_ID,
            ..self.next(state, self.partitions.clone(), now_ms)
        }
    }

    /// The end as in KIP-890: the epoch is raised. `next` is the producer id to go on with, given
    /// exactly if no epoch is left. An abort may end a transaction that has not begun.
    ///
    /// # Errors
    /// UNKNOWN_SERVER_ERROR, as in Kafka, for a commit at the epoch that no client is given.
    pub fn prepared_strict(
        &self,
        commit: bool,
        next: Option<ProducerId>,
        now_ms: i64,
    ) -> Result<Metadata, ErrorCode> {
        assert_eq!(next.is_some(), self.is_exhausted(), "a new producer id where it is needed");
        let state = if commit { State::PrepareCommit } else { State::PrepareAbort };
        let epoch = match self.producer.epoch.0.checked_add(1) {
            Some(raised) => ProducerEpoch(raised),
            None if commit => return Err(ErrorCode::UnknownServerError),
            None => self.producer.epoch,
        };
        Ok(Metadata {
            producer: Identity { id: self.producer.id, epoch },
            last_epoch: self.producer.epoch,
            next_producer_id: next.unwrap_or(NO_ID),
            start_ms: if self.state == State::Ongoing { self.start_ms } else { now_ms },
            client_version: STRICT_LEVEL,
            ..self.next(state, self.partitions.clone(), now_ms)
        })
    }

    /// The coordinator's own raise of the epoch before an abort as before KIP-890. After a raise
    /// whose record could not be written there is none again: nobody was given that epoch.
    pub fn fenced(&self, has_failed: bool) -> Metadata {
        let raised = self.producer.epoch.0.saturating_add(i16::from(!has_failed));
        let producer = Identity { id: self.producer.id, epoch: ProducerEpoch(raised) };
        Metadata { producer, last_epoch: NO_EPOCH, ..self.clone() }
    }

    /// What a Prepare becomes when every marker is written. The last epoch is kept: after a
    /// rotation it is 32766, the last that the client knew.
    pub fn completed(&self, now_ms: i64) -> Metadata {
        let state = match self.state {
            State::PrepareCommit => State::CompleteCommit,
            _ => State::CompleteAbort,
        };
        let producer = self.identity_when_complete();
        let next_producer_id = NO_ID;
        Metadata { producer, next_producer_id, ..self.next(state, Vec::new(), now_ms) }
    }

    /// The producer once a Prepare is complete.
    pub fn identity_when_complete(&self) -> Identity {
        if self.client_version >= STRICT_LEVEL && self.next_producer_id != NO_ID {
            Identity { id: self.next_producer_id, epoch: ProducerEpoch(0) }
        } else {
            self.producer
        }
    }

    fn next(&self, state: State, partitions: Vec<TxnPartition>, now_ms: i64) -> Metadata {
        assert!(state.follows(self.state), "{} after {}", state.name(), self.state.name());
        Metadata {
            producer: self.producer,
            previous_producer_id: self.producer.id,
            next_producer_id: self.next_producer_id,
            last_epoch: self.last_epoch,
            timeout_ms: self.timeout_ms,
            state,
            client_version: self.client_version,
            partitions,
            last_update_ms: now_ms,
            start_ms: self.start_ms,
        }
    }
}
