//! The transaction coordinator of this shard, between its rules and the machine.
//!
//! Owns [`Coordinator`] and what surrounds it: which partitions of `__transaction_state` are read
//! in, the appends of its records, what is held until a transition ends, markers and timers. Every
//! request about a transactional id goes through [`perform`] on the shard that owns the id's
//! partition. Must never answer from what is not durable, which comes by itself: the coordinator
//! changes only in [`Coordinator::written`], after the wait for the journal. Nothing that was
//! begun is cut short: a request is dropped only while it is held.
//! Source: KIP-98, KIP-890; design "Hold, do not bounce".

mod hold;
mod load;
mod markers;
mod sweep;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::Shard;
use super::append;
use super::connection::Connection;
use super::message::{CatalogChange, Operation, Patience, Reply, TxnReply, TxnRequest};
use super::producer_ids;
use crate::api::find_coordinator::partition_of;
use crate::api::list_offsets::is_served;
use crate::batch::{BatchBuilder, CompressionTarget};
use crate::config::BrokerConfig;
use crate::coordinator::txn::{
    AddPartitions, Coordinator, Description, EndTxn, Identity, InitProducerId, ListFilter, Listing,
    Rules, Verdict, Write, Written, is_pattern_too_large,
};
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerEpoch, ProducerId, ShardId, TopicId, TopicPartition};
use crate::io::mailbox::Lane;
use crate::limits::TXN_APPEND_RETRY_MS;
use crate::metadata::image::TRANSACTION_STATE;
use crate::metadata::topics;
use crate::metrics::stages::Stage;
use crate::metrics::transactions::TransactionMetrics;
use crate::metrics::{Limit, Samples, families};
use crate::wire::versions;

pub use hold::Caller;
use hold::{Deadline, Holds, Place};

/// The coordinator of one shard and what is under way around it.
pub struct Transactions {
    coordinator: RefCell<Coordinator>,
    holds: Holds,
    /// The topic that is or is being read in, and its number of partitions.
    known: Cell<Option<(TopicId, i32)>>,
}

impl Transactions {
    /// A coordinator that has read nothing yet.
    #[must_use]
    pub fn new(config: &BrokerConfig) -> Transactions {
        let rules = Rules {
            max_timeout_ms: config.transaction_max_timeout_ms,
            id_expiration_ms: i64::from(config.transactional_id_expiration_ms),
            finalized_level: versions::finalized_level("transaction.version"),
            two_phase_commit: config.transaction_two_phase_commit_enable,
        };
        Transactions {
            coordinator: RefCell::new(Coordinator::new(rules)),
            holds: Holds::default(),
            known: Cell::new(None),
        }
    }
}

impl Transactions {
    /// Tells of ids, holds and what `counted`.
    pub fn tell(&self, counted: &TransactionMetrics, samples: &mut Samples) {
        counted.tell(samples, &self.coordinator.borrow().counts());
        let holds = &self.holds;
        samples.count(&families::TXN_HOLDS, &[], holds.counts.held.get());
        samples.count(&families::TXN_HOLD_EXPIRIES, &[], holds.counts.expired.get());
        samples.count(&families::TXN_HELD, &[], holds.held() as u64);
        for (limit, count) in [
            (Limit::TxnPendingHold, &holds.counts.expired),
            (Limit::TxnRequestsHeld, &holds.counts.refused),
        ] {
            samples.count(&families::LIMITS, &[("limit", limit.label())], count.get());
        }
    }
}

/// Partitions that a Produce or TxnOffsetCommit request of a transaction is about to write to.
#[derive(Clone, Debug)]
pub struct TxnQuestion {
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// Producer id of the batches.
    pub producer_id: ProducerId,
    /// Their epoch.
    pub producer_epoch: ProducerEpoch,
    /// Topic name and partition, once each.
    pub partitions: Vec<(Arc<str>, i32)>,
    /// Ask whether they are in the transaction, instead of adding them.
    pub verify_only: bool,
    /// How long it may be held: who is held to that end is told 7.
    pub patience: Patience,
}

/// Starts loading, the timers, and following the catalog.
pub fn start(shard: &Rc<Shard>) {
    load::start(shard);
    sweep::start(shard);
}

/// Adds partitions to the transaction, or checks that they are in it, wherever its coordinator is.
/// One code per partition, as the coordinator says it.
pub async fn add_for_append(shard: &Rc<Shard>, question: TxnQuestion) -> Vec<ErrorCode> {
    let asked = AddPartitions {
        transactional_id: question.transactional_id,
        producer: Identity { id: question.producer_id, epoch: question.producer_epoch },
        partitions: question.partitions,
        strict: !question.verify_only,
    };
    let count = asked.partitions.len();
    let Some((_, owner)) = coordinator_of(shard, &asked.transactional_id) else {
        return vec![ErrorCode::NotCoordinator; count];
    };
    let request = add_request(asked, question.verify_only, question.patience);
    match shard.ask(owner, Operation::Transaction(request)).await {
        Reply::Transaction(TxnReply::Partitions(codes)) => codes,
        _ => vec![ErrorCode::UnknownServerError; count],
    }
}

/// InitProducerId with a transactional id; makes `__transaction_state` if it is not there.
///
/// # Errors
/// The code for the client, in its newest form.
pub async fn init_producer_id(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    request: InitProducerId,
) -> Result<Identity, ErrorCode> {
    if shard.catalog().topic(TRANSACTION_STATE).is_none() {
        create_topic(shard).await;
    }
    let id = Arc::clone(&request.transactional_id);
    let caller = Caller::of(shard, connection);
    let request = TxnRequest::InitProducerId(request);
    identity_of(route(shard, &caller, &id, request).await)
}

/// AddPartitionsToTxn and AddOffsetsToTxn: one code per partition, at least one.
pub async fn add(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    request: AddPartitions,
    verify_only: bool,
) -> Vec<ErrorCode> {
    add_or_verify(shard, &Caller::of(shard, connection), request, verify_only).await
}

/// The same for one of several transactions of a request.
pub async fn add_or_verify(
    shard: &Rc<Shard>,
    caller: &Rc<Caller>,
    request: AddPartitions,
    verify_only: bool,
) -> Vec<ErrorCode> {
    let id = Arc::clone(&request.transactional_id);
    let count = request.partitions.len();
    let request = add_request(request, verify_only, Patience::AsTheBroker);
    match route(shard, caller, &id, request).await {
        Ok(TxnReply::Partitions(codes)) => codes,
        Ok(_) => vec![ErrorCode::UnknownServerError; count],
        Err(code) => vec![code; count],
    }
}

/// EndTxn.
///
/// # Errors
/// The code for the client, in its newest form.
pub async fn end(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    request: EndTxn,
) -> Result<Identity, ErrorCode> {
    let id = Arc::clone(&request.transactional_id);
    let caller = Caller::of(shard, connection);
    identity_of(route(shard, &caller, &id, TxnRequest::End(request)).await)
}

/// One id for DescribeTransactions.
///
/// # Errors
/// The code for that id.
pub async fn describe(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    id: &Arc<str>,
) -> Result<Description, ErrorCode> {
    let caller = Caller::of(shard, connection);
    match route(shard, &caller, id, TxnRequest::Describe(Arc::clone(id))).await? {
        TxnReply::Described(outcome) => outcome,
        _ => Err(ErrorCode::UnknownServerError),
    }
}

/// The ids of this node for ListTransactions.
///
/// # Errors
/// The code for the whole request.
pub async fn list(shard: &Rc<Shard>, filter: ListFilter) -> Result<Listing, ErrorCode> {
    let shards = if shard.context.is_single() {
        (0..shard.context.shards).map(ShardId).collect()
    } else {
        vec![shard.id]
    };
    let mut all = Listing::default();
    for owner in shards {
        let request = TxnRequest::List(filter.clone());
        match shard.ask(owner, Operation::Transaction(request)).await {
            Reply::Transaction(TxnReply::Listed(listing)) => {
                let listing = listing?;
                // The same on every shard.
                all.unknown_states = listing.unknown_states;
                all.transactions.extend(listing.transactions);
            }
            _ => return Err(ErrorCode::UnknownServerError),
        }
    }
    Ok(all)
}

/// A producer id and epoch as a request carries them.
#[must_use]
pub fn identity(id: i64, epoch: i16) -> Identity {
    Identity { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

/// `code` for a client that knows PRODUCER_FENCED only from version `since` on (KIP-588).
#[must_use]
pub fn fenced_since(code: ErrorCode, version: i16, since: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced if version < since => ErrorCode::InvalidProducerEpoch,
        code => code,
    }
}

fn add_request(request: AddPartitions, verify_only: bool, patience: Patience) -> TxnRequest {
    if verify_only {
        TxnRequest::Verify(request, patience)
    } else {
        TxnRequest::Add(request, patience)
    }
}

fn identity_of(reply: Result<TxnReply, ErrorCode>) -> Result<Identity, ErrorCode> {
    match reply? {
        TxnReply::Identity(outcome) => outcome,
        _ => Err(ErrorCode::UnknownServerError),
    }
}

/// The partition of `__transaction_state` that keeps an id, and its owner.
fn coordinator_of(shard: &Shard, id: &str) -> Option<(PartitionIndex, ShardId)> {
    let image = shard.catalog();
    let topic = image.topic(TRANSACTION_STATE)?;
    let partition = partition_of(id, topic.partition_count())?;
    Some((partition, topic.owner(partition, shard.context.shards)?))
}

/// Has a client's request done by its coordinator, if that is on this node.
async fn route(
    shard: &Rc<Shard>,
    caller: &Rc<Caller>,
    id: &Arc<str>,
    request: TxnRequest,
) -> Result<TxnReply, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let owner = coordinator_of(shard, id).map(|(_, owner)| owner);
    match owner.filter(|&owner| is_served(shard, owner)) {
        None => Err(ErrorCode::NotCoordinator),
        Some(owner) if owner == shard.id => Ok(perform(shard, caller, request).await),
        Some(owner) => match hold::ask(shard, caller, owner, request).await {
            Reply::Transaction(reply) => Ok(reply),
            _ => Err(ErrorCode::UnknownServerError),
        },
    }
}

async fn create_topic(shard: &Rc<Shard>) {
    let topics = vec![topics::automatic(TRANSACTION_STATE, shard.catalog().broker())];
    let change = CatalogChange::CreateTopics { topics, validate_only: false, automatic: true };
    // Whatever became of it, the catalog says: others may have created it meanwhile.
    shard.ask(ShardId(0), Operation::Catalog(change)).await;
}

/// Takes in a request of another shard.
pub fn take_in(shard: &Rc<Shard>, from: ShardId, number: u64, lane: Lane, request: TxnRequest) {
    let caller = Caller::elsewhere(shard, from, number, request.patience());
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let reply = perform(&shard, &caller, request).await;
        shard.transactions.holds.forget_remote(from, number);
        shard.links.reply(from, number, lane, Reply::Transaction(reply));
    }));
}

/// Another shard no longer wants the answer to its request.
pub fn revoke(shard: &Shard, from: ShardId, number: u64) {
    shard.transactions.holds.revoke(from, number);
}

/// Does a request on this shard.
pub async fn perform(shard: &Rc<Shard>, caller: &Rc<Caller>, request: TxnRequest) -> TxnReply {
    load::follow_catalog(shard);
    match request {
        TxnRequest::InitProducerId(request) => {
            let id = Arc::clone(&request.transactional_id);
            let step = |core: &mut Coordinator, partition, fresh, now_ms| {
                core.init_producer_id(partition, &request, fresh, now_ms)
            };
            TxnReply::Identity(run(shard, caller, &id, step).await)
        }
        TxnRequest::End(request) => {
            let id = Arc::clone(&request.transactional_id);
            let step = |core: &mut Coordinator, partition, fresh, now_ms| {
                core.end(partition, &request, fresh, now_ms)
            };
            TxnReply::Identity(run(shard, caller, &id, step).await)
        }
        TxnRequest::Add(request, _) => {
            let id = Arc::clone(&request.transactional_id);
            let step = |core: &mut Coordinator, partition, _, now_ms| {
                core.add_partitions(partition, &request, now_ms)
            };
            let code = run(shard, caller, &id, step).await.err().unwrap_or(ErrorCode::None);
            TxnReply::Partitions(vec![code; request.partitions.len()])
        }
        TxnRequest::Verify(request, _) => {
            let id = Arc::clone(&request.transactional_id);
            let step = |core: &mut Coordinator, partition, _, _| match core
                .verify_partitions(partition, &request)
            {
                Ok(codes) => Verdict::Answer(codes),
                Err(ErrorCode::ConcurrentTransactions) => Verdict::Hold,
                Err(code) => Verdict::Refuse(code),
            };
            let codes = run(shard, caller, &id, step).await;
            TxnReply::Partitions(codes.unwrap_or_else(|code| vec![code; request.partitions.len()]))
        }
        TxnRequest::Describe(id) => {
            let partition = partition_here(shard, &id);
            let coordinator = shard.transactions.coordinator.borrow();
            TxnReply::Described(
                partition.and_then(|partition| coordinator.describe(partition, &id)),
            )
        }
        TxnRequest::List(filter) => {
            let coordinator = shard.transactions.coordinator.borrow();
            let listed = coordinator.list(&filter, shard.runtime.wall_ms());
            let pattern = filter.pattern.as_deref().unwrap_or_default();
            if matches!(listed, Err(ErrorCode::InvalidRegularExpression))
                && is_pattern_too_large(pattern)
            {
                shard.metrics.limit_reached(Limit::TransactionalIdPatternBytes);
            }
            TxnReply::Listed(listed)
        }
    }
}

fn partition_here(shard: &Shard, id: &str) -> Result<PartitionIndex, ErrorCode> {
    match coordinator_of(shard, id) {
        Some((partition, owner)) if owner == shard.id => Ok(partition),
        _ => Err(ErrorCode::NotCoordinator),
    }
}

/// Asks the coordinator until it has answered, waiting in between as it demands.
async fn run<T>(
    shard: &Rc<Shard>,
    caller: &Rc<Caller>,
    id: &Arc<str>,
    step: impl Fn(&mut Coordinator, PartitionIndex, Option<ProducerId>, i64) -> Verdict<T>,
) -> Result<T, ErrorCode> {
    let holds = &shard.transactions.holds;
    let mut fresh = None;
    if holds.is_queued(id) {
        hold(shard, id, caller, Place::Last).await?;
    }
    loop {
        // From scratch: while it was held the topic may have gone to pieces.
        let verdict = match partition_here(shard, id) {
            Ok(partition) => {
                let now_ms = shard.runtime.wall_ms();
                let mut coordinator = shard.transactions.coordinator.borrow_mut();
                step(&mut coordinator, partition, fresh, now_ms)
            }
            Err(code) => Verdict::Refuse(code),
        };
        match verdict {
            Verdict::Answer(answer) => {
                holds.pass_turn(id);
                return Ok(answer);
            }
            Verdict::Refuse(code) => {
                holds.pass_turn(id);
                return Err(code);
            }
            Verdict::Write { write, then } => {
                holds.end_turn(id);
                return write_out(shard, write).await.map(|()| then);
            }
            Verdict::NeedsProducerId => match producer_ids::next(shard).await {
                Ok(id) => fresh = Some(id),
                Err(code) => {
                    holds.pass_turn(id);
                    return Err(code);
                }
            },
            Verdict::AbortFirst(write) => {
                // The abort may have taken it for its own end.
                fresh = None;
                holds.end_turn(id);
                write_out(shard, write).await?;
                hold(shard, id, caller, Place::First).await?;
            }
            Verdict::Hold => hold(shard, id, caller, Place::First).await?,
        }
    }
}

/// Holds a request until it has its turn, or is refused.
async fn hold(
    shard: &Rc<Shard>,
    id: &Arc<str>,
    caller: &Rc<Caller>,
    place: Place,
) -> Result<(), ErrorCode> {
    let held = shard.transactions.holds.hold(&*shard.runtime, id, caller, place);
    match shard.spend(Stage::Hold, held).await {
        true => Ok(()),
        false => Err(caller.refusal(shard.runtime.now())),
    }
}

/// Appends a record of the coordinator, waits for it, and does what follows from it.
async fn write_out(shard: &Rc<Shard>, write: Write) -> Result<(), ErrorCode> {
    let ticket = write.ticket;
    let outcome = append_records(shard, write.partition, write.ends, &[write]).await;
    let now_ms = shard.runtime.wall_ms();
    let written = shard.transactions.coordinator.borrow_mut().written(ticket, outcome, now_ms);
    go_on(shard, written)
}

/// What follows from a record that was appended, or not.
fn go_on(shard: &Rc<Shard>, written: Written) -> Result<(), ErrorCode> {
    if let Some(decision) = written.decided {
        shard.metrics.transactions.decided(decision);
    }
    if let Some(completion) = written.markers {
        markers::start(shard, completion);
    }
    if let Some(id) = written.released {
        shard.transactions.holds.release(&id);
    }
    if let Some(write) = written.again {
        let again = Rc::clone(shard);
        shard.runtime.spawn(Box::pin(async move {
            let due = again.runtime.now().plus_ms(TXN_APPEND_RETRY_MS);
            again.runtime.sleep_until(due).await;
            if !again.is_stopping() {
                // Whoever asked for this has its answer since the Prepare; it is tried until it
                // is done.
                let _ = Box::pin(write_out(&again, write)).await;
            }
        }));
    }
    written.error.map_or(Ok(()), Err)
}

/// Appends records to one partition of `__transaction_state` in one batch, durably.
async fn append_records(
    shard: &Rc<Shard>,
    partition: PartitionIndex,
    ends: bool,
    writes: &[Write],
) -> Result<(), ErrorCode> {
    let image = shard.catalog();
    let topic = image.topic(TRANSACTION_STATE).ok_or(ErrorCode::NotLeaderOrFollower)?;
    let id = TopicPartition { topic: topic.id, partition };
    let now_ms = shard.runtime.wall_ms();
    let mut batch = BatchBuilder::new(CompressionTarget::Uncompressed);
    for write in writes {
        batch.push(now_ms, Some(&write.key), write.value.as_deref(), &[]);
    }
    let urgency = if ends { append::Urgency::Control } else { append::Urgency::Usual };
    let pending = append::append_internal(shard, id, &batch.finish(), urgency, None).await?;
    let durable = shard.durable(pending.durable_at).await;
    durable.map_err(|_| ErrorCode::KafkaStorageError)
}

/// When a request that arrives now is no longer held.
fn hold_deadline(shard: &Shard, patience: Patience) -> Deadline {
    let hold_ms = shard.context.config.txn_pending_hold_ms;
    let (after_ms, is_own) = match patience {
        Patience::Milliseconds(own_ms) if own_ms < hold_ms => (own_ms, true),
        Patience::Milliseconds(_) | Patience::AsTheBroker => (hold_ms, false),
    };
    Deadline { at: shard.runtime.now().plus_ms(after_ms), is_own }
}
