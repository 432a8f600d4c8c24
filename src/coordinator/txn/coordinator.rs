//! One shard's transaction coordinator: its ids, and what is pending for each.
//!
//! Owns the two steps of every transition. What a record says is planned from durable state and
//! kept beside it; the durable state becomes that only when the record is on the medium. So:
//! - at most one transition is pending per id, and while one is, nothing else is planned for it;
//! - a ticket is used once;
//! - what is answered is either durable, or answered after `written`;
//! - once a Prepare is durable its Complete is pending, until that is durable.
//!
//! The one thing in memory that is not on the medium is a fence of the protocol before KIP-890
//! whose record failed: it only refuses more, and is gone after a restart, as in Kafka.
//! Source: Kafka's `TransactionStateManager` and `TransactionMarkerChannelManager`.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::state::{Metadata, STRICT_LEVEL, State};
use super::timers::Timers;
use super::{Completion, Decision, Rules, Ticket, TxnPartition, Write, Written};
use crate::coordinator::record::transaction::{key_bytes, value_bytes, value_version};
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerId};

/// The coordinator of every transactional id whose partition of `__transaction_state` one shard
/// owns.
pub struct Coordinator {
    pub(super) rules: Rules,
    pub(super) partitions: HashMap<PartitionIndex, Partition>,
    pub(super) timers: Timers,
    /// Records handed out and not yet answered for.
    in_flight: HashMap<Ticket, (PartitionIndex, Arc<str>)>,
    /// Transactions whose markers are being written.
    marking: HashMap<Ticket, (PartitionIndex, Arc<str>)>,
    next_ticket: u64,
}

/// One partition of `__transaction_state`.
pub(super) struct Partition {
    pub phase: Phase,
    pub ids: HashMap<Arc<str>, Entry>,
}

/// Whether a partition answers.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// It is being read.
    Loading,
    /// It has been read.
    Active {
        /// What its markers carry.
        coordinator_epoch: i32,
    },
}

/// One transactional id.
#[derive(Default)]
pub(super) struct Entry {
    /// What its last record says; `None` for an id whose first record is pending.
    pub durable: Option<Metadata>,
    /// A fence raised the epoch in memory only: its record could not be written.
    pub has_failed_fence: bool,
    pub pending: Option<Box<Pending>>,
}

/// A transition that waits for its record, or for its markers.
pub(super) struct Pending {
    pub ticket: Ticket,
    pub transition: Transition,
}

/// What an id is to become.
pub(super) enum Transition {
    /// What a client asked for.
    Become(Metadata),
    /// An abort by the coordinator itself, and why.
    Fence(Metadata, Decision),
    /// The end of a transaction whose Prepare is durable.
    Complete {
        target: Metadata,
        /// Partitions that have no marker yet.
        owed: BTreeSet<TxnPartition>,
    },
    /// Nothing: it has expired.
    Forget,
}

impl Transition {
    fn target(&self) -> Option<&Metadata> {
        match self {
            Transition::Become(target)
            | Transition::Fence(target, _)
            | Transition::Complete { target, .. } => Some(target),
            Transition::Forget => None,
        }
    }
}

impl Coordinator {
    /// A coordinator of no partition yet.
    #[must_use]
    pub fn new(rules: Rules) -> Coordinator {
        Coordinator {
            rules,
            partitions: HashMap::new(),
            timers: Timers::new(rules.id_expiration_ms),
            in_flight: HashMap::new(),
            marking: HashMap::new(),
            next_ticket: 0,
        }
    }

    /// What an append became: durable, or refused with the log's own code. After `unload` of its
    /// partition a record answers NOT_COORDINATOR, whatever it became.
    pub fn written(
        &mut self,
        ticket: Ticket,
        outcome: Result<(), ErrorCode>,
        now_ms: i64,
    ) -> Written {
        let place = self.in_flight.remove(&ticket);
        let (partition, id) = place.expect("invariant: a ticket is used once");
        let Some(transition) = self.take_pending(partition, &id, ticket) else {
            let error = Some(ErrorCode::NotCoordinator);
            return Written { released: Some(id), error, ..Written::default() };
        };
        match outcome {
            Ok(()) => self.durable(partition, id, transition, now_ms),
            Err(code) => self.failed(partition, id, transition, append_error(code)),
        }
    }

    /// Partitions that have their marker durably, or whose topic is gone. The Complete record to
    /// append when none is owed one any more. Acknowledgements of a completion that is over count
    /// for nothing.
    pub fn marked(
        &mut self,
        ticket: Ticket,
        partitions: &[TxnPartition],
        now_ms: i64,
    ) -> Option<Write> {
        let (partition, id) = self.marking.get(&ticket)?.clone();
        let entry = self.entry(partition, &id);
        let pending = entry.pending.as_mut().filter(|pending| pending.ticket == ticket);
        let pending = pending.expect("invariant: a completion is pending until it is durable");
        let Transition::Complete { owed, target } = &mut pending.transition else {
            unreachable!("only completions are marked");
        };
        for marked in partitions {
            owed.remove(marked);
        }
        if !owed.is_empty() {
            return None;
        }
        target.last_update_ms = now_ms;
        let transition = entry.pending.take().map(|pending| pending.transition);
        self.marking.remove(&ticket);
        Some(self.begin(partition, &id, transition.expect("invariant: it was just seen")))
    }

    /// A partition refused a marker for good: the transaction stays as it is until it is loaded
    /// again.
    pub fn give_up(&mut self, ticket: Ticket) {
        self.marking.remove(&ticket);
    }

    /// The partition if it answers.
    pub(super) fn active(&self, partition: PartitionIndex) -> Result<&Partition, ErrorCode> {
        let found = self.partitions.get(&partition).ok_or(ErrorCode::NotCoordinator)?;
        match found.phase {
            Phase::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            Phase::Active { .. } => Ok(found),
        }
    }

    /// Makes a transition pending, and the record that will make it real.
    pub(super) fn begin(
        &mut self,
        partition: PartitionIndex,
        id: &Arc<str>,
        transition: Transition,
    ) -> Write {
        let version = value_version(self.rules.finalized_level);
        let write = Write {
            ticket: self.issue_ticket(),
            partition,
            transactional_id: Arc::clone(id),
            key: key_bytes(id),
            value: transition.target().map(|target| value_bytes(target, version)),
            ends: transition.target().is_none_or(|target| {
                target.state.is_prepare() || matches!(transition, Transition::Complete { .. })
            }),
        };
        self.pend(partition, id, write.ticket, transition);
        self.in_flight.insert(write.ticket, (partition, Arc::clone(id)));
        write
    }

    /// Makes the Complete of a durable Prepare pending, until its markers are written.
    pub(super) fn begin_marking(
        &mut self,
        partition: PartitionIndex,
        id: &Arc<str>,
        now_ms: i64,
    ) -> Completion {
        let Phase::Active { coordinator_epoch } = self.partition(partition).phase else {
            unreachable!("markers are sent for what has been read");
        };
        let prepared = self.entry(partition, id).durable.as_ref();
        let prepared = prepared.expect("invariant: a Prepare is durable before its markers");
        let target = prepared.completed(now_ms);
        let producer = prepared.producer;
        let commit = prepared.state == State::PrepareCommit;
        let transaction_version = prepared.client_version;
        let partitions = prepared.partitions.clone();
        let owed = partitions.iter().cloned().collect();
        let ticket = self.issue_ticket();
        self.pend(partition, id, ticket, Transition::Complete { target, owed });
        self.marking.insert(ticket, (partition, Arc::clone(id)));
        Completion {
            ticket,
            transactional_id: Arc::clone(id),
            producer,
            commit,
            coordinator_epoch,
            transaction_version,
            partitions,
        }
    }

    /// The abort of an open transaction at the finalized level of the protocol, `None` if it needs
    /// a producer id and there is none.
    pub(super) fn fence(
        &self,
        entry: &Entry,
        fresh: impl FnOnce() -> Option<ProducerId>,
        why: Decision,
        now_ms: i64,
    ) -> Option<Transition> {
        let open = entry.durable.as_ref().expect("invariant: only what is open is fenced");
        if self.rules.finalized_level < STRICT_LEVEL {
            let fenced = open.fenced(entry.has_failed_fence);
            return Some(Transition::Fence(fenced.prepared(false, now_ms), why));
        }
        let next = if open.is_exhausted() { Some(fresh()?) } else { None };
        let aborted = open.prepared_strict(false, next, now_ms);
        Some(Transition::Fence(aborted.expect("invariant: an abort finds an epoch"), why))
    }

    /// Replaces what is durable of one id: the only place that does, while loading too.
    pub(super) fn apply(
        &mut self,
        partition: PartitionIndex,
        id: &Arc<str>,
        new: Option<Metadata>,
    ) {
        let found = self.partitions.get_mut(&partition);
        let found = found.expect("invariant: what is applied to is here");
        let is_timed = matches!(found.phase, Phase::Active { .. });
        let Some(new) = new else {
            let gone = found.ids.remove(id).and_then(|entry| entry.durable);
            if is_timed && let Some(gone) = gone {
                self.timers.moved(partition, id, Some(&gone), None);
            }
            return;
        };
        let entry = found.ids.entry(Arc::clone(id)).or_default();
        let old = entry.durable.replace(new);
        if is_timed {
            let (id, entry) = found.ids.get_key_value(id).expect("invariant: it was just put");
            self.timers.moved(partition, id, old.as_ref(), entry.durable.as_ref());
        }
    }

    /// Forgets everything about a partition but the records in flight.
    pub(super) fn forget(&mut self, partition: PartitionIndex) {
        let Some(found) = self.partitions.remove(&partition) else { return };
        for (id, entry) in &found.ids {
            if let Some(pending) = &entry.pending {
                self.marking.remove(&pending.ticket);
            }
            if matches!(found.phase, Phase::Active { .. }) {
                self.timers.moved(partition, id, entry.durable.as_ref(), None);
            }
        }
    }

    fn durable(
        &mut self,
        partition: PartitionIndex,
        id: Arc<str>,
        transition: Transition,
        now_ms: i64,
    ) -> Written {
        let why = match &transition {
            Transition::Fence(_, why) => Some(*why),
            _ => None,
        };
        let target = match transition {
            Transition::Become(target)
            | Transition::Fence(target, _)
            | Transition::Complete { target, .. } => Some(target),
            Transition::Forget => None,
        };
        let decided = target.as_ref().and_then(|target| match target.state {
            State::PrepareCommit => Some(Decision::Commit),
            State::PrepareAbort => Some(why.unwrap_or(Decision::Abort)),
            _ => None,
        });
        self.apply(partition, &id, target);
        if decided.is_some() {
            self.entry(partition, &id).has_failed_fence = false;
            let markers = Some(self.begin_marking(partition, &id, now_ms));
            return Written { markers, decided, ..Written::default() };
        }
        Written { released: Some(id), ..Written::default() }
    }

    fn failed(
        &mut self,
        partition: PartitionIndex,
        id: Arc<str>,
        transition: Transition,
        code: ErrorCode,
    ) -> Written {
        let error = Some(code);
        match transition {
            Transition::Complete { .. } => {
                // A coordinator that reads the partition again completes what it finds; until then
                // the id stays as it is.
                let is_here = !matches!(
                    code,
                    ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress
                );
                let again = if is_here {
                    Some(self.begin(partition, &id, transition))
                } else {
                    let ticket = self.issue_ticket();
                    self.pend(partition, &id, ticket, transition);
                    None
                };
                return Written { error, again, ..Written::default() };
            }
            Transition::Fence(target, _) if self.rules.finalized_level < STRICT_LEVEL => {
                let entry = self.entry(partition, &id);
                let open = entry.durable.as_mut().expect("invariant: only what is open is fenced");
                open.producer = target.producer;
                open.last_epoch = target.last_epoch;
                entry.has_failed_fence = true;
            }
            Transition::Become(_) | Transition::Fence(..) | Transition::Forget => {}
        }
        if self.entry(partition, &id).durable.is_none() {
            self.apply(partition, &id, None);
        }
        Written { released: Some(id), error, ..Written::default() }
    }

    fn take_pending(
        &mut self,
        partition: PartitionIndex,
        id: &Arc<str>,
        ticket: Ticket,
    ) -> Option<Transition> {
        let entry = self.partitions.get_mut(&partition)?.ids.get_mut(id)?;
        let pending = entry.pending.take_if(|pending| pending.ticket == ticket)?;
        Some(pending.transition)
    }

    fn pend(
        &mut self,
        partition: PartitionIndex,
        id: &Arc<str>,
        ticket: Ticket,
        transition: Transition,
    ) {
        let found = self.partitions.get_mut(&partition);
        let found = found.expect("invariant: what is planned for is here");
        let entry = found.ids.entry(Arc::clone(id)).or_default();
        assert!(entry.pending.is_none(), "two transitions are pending for one id");
        entry.pending = Some(Box::new(Pending { ticket, transition }));
    }

    fn partition(&self, partition: PartitionIndex) -> &Partition {
        self.partitions.get(&partition).expect("invariant: a pending id's partition is here")
    }

    fn entry(&mut self, partition: PartitionIndex, id: &Arc<str>) -> &mut Entry {
        let found = self.partitions.get_mut(&partition);
        let entry = found.and_then(|found| found.ids.get_mut(id));
        entry.expect("invariant: an id with something pending is here")
    }

    fn issue_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }
}

/// The log's refusal as whoever asked for the transition sees it.
fn append_error(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        other => other,
    }
}

#[cfg(test)]
impl Coordinator {
    /// Number of records in flight, and of transactions whose markers are being written.
    pub(super) fn open_tickets(&self) -> (usize, usize) {
        (self.in_flight.len(), self.marking.len())
    }
}
