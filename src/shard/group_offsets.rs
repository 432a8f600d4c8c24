//! Groups whose partition of `__consumer_offsets` this shard owns: loading, requests, expiry.
//!
//! Owns, per partition, the state that its log says and the turn in which that log is written: a
//! request takes the turn, plans, appends and applies, and gives the turn back before it waits for
//! the journal. So nothing is planned on a state that another append has changed since. Markers
//! come without the turn: they are applied in the turn of the shard that appends them. Must never
//! say "no offset" for a partition that is not loaded, nor answer with what is not durable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Shard;
use super::append::{self, Urgency};
use super::event::Event;
use super::message::{MarkerPart, Operation, Patience, Reply, VerifyPart};
use super::transactions::{self, TxnQuestion};
use crate::api::find_coordinator::partition_of;
use crate::api::list_offsets::is_served;
use crate::batch::header::NO_SEQUENCE;
use crate::batch::{BatchBuilder, Compression, CompressionTarget, MarkerKind};
use crate::coordinator::group::offsets::{
    Commit, CommitPlan, CommitRules, FoundTopic, WantedTopic,
};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::{CommitApi, Groups};
use crate::error_code::ErrorCode;
use crate::ids::{
    JournalSequence, Offset, PartitionIndex, ProducerEpoch, ProducerId, ShardId, TopicId,
    TopicPartition,
};
use crate::limits::{COORDINATOR_RECORD_BYTES_MAX, GROUPS_PER_TURN_MAX, TOMBSTONES_PER_BATCH_MAX};
use crate::log::ProducerFacts;
use crate::log::verification::{Verification, VerificationGuard};
use crate::metadata::image::CONSUMER_OFFSETS;
use crate::metrics::Limit;

pub mod admin;
mod consumers;
mod load;
pub mod members;
pub mod progress;
mod timers;

use members::{Remote, Tickets};
use timers::GroupTimers;

/// What a connection may ask of a group's shard.
#[derive(Clone, Debug)]
pub enum OffsetsRequest {
    /// Commit offsets.
    Commit(Commit),
    /// Commit offsets in a transaction.
    CommitInTransaction(Commit, Transaction),
    /// Fetch offsets.
    Fetch(FetchOffsets),
    /// Delete offsets.
    Delete(DeleteOffsets),
}

/// The transaction that offsets are committed in.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its transactional id.
    pub id: Arc<str>,
    /// Its producer.
    pub producer_id: ProducerId,
    /// The producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// Version of the TxnOffsetCommit request.
    pub version: i16,
}

/// Offsets to be fetched.
#[derive(Clone, Debug)]
pub struct FetchOffsets {
    /// The group.
    pub group: Arc<str>,
    /// Where; `None` for all there are.
    pub topics: Option<Vec<WantedTopic>>,
    /// Whether offsets of open transactions are errors.
    pub require_stable: bool,
    /// The member that asks, if it says so.
    pub member_id: Option<Arc<str>>,
    /// Its epoch, -1 for none.
    pub member_epoch: i32,
}

/// Offsets to be deleted.
#[derive(Clone, Debug)]
pub struct DeleteOffsets {
    /// The group.
    pub group: Arc<str>,
    /// Topics by name, and partitions.
    pub partitions: Vec<(Arc<str>, i32)>,
}

/// What came of it; all of it durable.
#[derive(Clone, Debug)]
pub enum OffsetsReply {
    /// Of a commit or a deletion: one code per offset.
    Codes(Vec<ErrorCode>),
    /// Of a fetch.
    Found(Vec<FoundTopic>),
}

/// A transaction that the partition is in, and what shows it.
struct Verified<'a> {
    of: &'a Transaction,
    guard: Option<VerificationGuard>,
}

/// The partitions of `__consumer_offsets` that are here.
#[derive(Default)]
pub struct GroupOffsets {
    kept: RefCell<BTreeMap<PartitionIndex, Rc<Kept>>>,
    timers: GroupTimers,
    remote: Remote,
}

/// One partition's groups.
struct Kept {
    id: TopicPartition,
    state: RefCell<State>,
    busy: Cell<bool>,
    freed: Event,
    tickets: Tickets,
    /// Its topic is gone.
    unloaded: Cell<bool>,
}

enum State {
    /// Being read from the log; markers that are appended meanwhile wait here.
    Loading(Vec<LateMarker>),
    /// What the log says.
    Ready(Groups),
    /// The log cannot be read.
    Failed,
}

struct LateMarker {
    offset: Offset,
    producer: ProducerId,
    kind: MarkerKind,
}

impl GroupOffsets {
    /// Takes over a marker that was appended in this turn.
    pub fn marker(
        &self,
        partition: PartitionIndex,
        producer: ProducerId,
        kind: MarkerKind,
        marker_offset: Offset,
    ) {
        // A partition that is not here yet is read with its marker.
        let Some(kept) = self.kept.borrow().get(&partition).cloned() else { return };
        match &mut *kept.state.borrow_mut() {
            State::Loading(late) => {
                late.push(LateMarker { offset: marker_offset, producer, kind });
            }
            State::Ready(groups) => groups.marker(producer, kind),
            State::Failed => {}
        }
    }
}

impl Kept {
    fn new(id: TopicPartition, state: State) -> Rc<Kept> {
        let state = RefCell::new(state);
        Rc::new(Kept {
            id,
            state,
            busy: Cell::new(false),
            freed: Event::default(),
            tickets: Tickets::default(),
            unloaded: Cell::new(false),
        })
    }

    /// Looks at the groups.
    fn with<T>(&self, look: impl FnOnce(&Groups) -> T) -> Result<T, ErrorCode> {
        match &*self.state.borrow() {
            State::Ready(groups) => Ok(look(groups)),
            State::Loading(_) => Err(ErrorCode::CoordinatorLoadInProgress),
            State::Failed => Err(ErrorCode::CoordinatorNotAvailable),
        }
    }

    /// Has the groups do something; the caller has the turn.
    fn with_mut<T>(&self, act: impl FnOnce(&mut Groups) -> T) -> Result<T, ErrorCode> {
        if self.unloaded.get() {
            return Err(ErrorCode::NotCoordinator);
        }
        match &mut *self.state.borrow_mut() {
            State::Ready(groups) => Ok(act(groups)),
            State::Loading(_) => Err(ErrorCode::CoordinatorLoadInProgress),
            State::Failed => Err(ErrorCode::CoordinatorNotAvailable),
        }
    }

    /// Its topic is gone: whoever waits here has to look for another coordinator.
    fn unload(&self) {
        self.unloaded.set(true);
        self.tickets.refuse_all(ErrorCode::NotCoordinator);
    }

    /// Waits until nobody else writes this partition.
    async fn turn(self: &Rc<Self>) -> Turn {
        loop {
            let seen = self.freed.generation();
            if !self.busy.replace(true) {
                return Turn(Rc::clone(self));
            }
            self.freed.wait(seen).await;
        }
    }
}

/// The right to write a partition; given back when dropped.
struct Turn(Rc<Kept>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.busy.set(false);
        self.0.freed.notify();
    }
}

/// A marker was appended in this turn: if it is one of `__consumer_offsets`, it is taken over.
pub fn marker_appended(shard: &Shard, part: &MarkerPart, offset: Offset) {
    let image = shard.catalog();
    if image.topic(CONSUMER_OFFSETS).is_some_and(|topic| topic.id == part.partition.topic) {
        let offsets = &shard.group_offsets;
        offsets.marker(part.partition.partition, part.producer_id, part.kind, offset);
    }
}

/// Starts loading, here and whenever the catalog has more, and expiry.
pub fn start(shard: &Rc<Shard>) {
    load::start(shard);
    timers::start(shard);
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        loop {
            let interval_ms = shard.catalog().broker().offsets_retention_check_interval_ms;
            let next = shard.runtime.now().plus_ms(u64::try_from(interval_ms).unwrap_or(1));
            shard.runtime.sleep_until(next).await;
            expire(&shard).await;
        }
    }));
}

/// Has a request done where the group is kept.
///
/// # Errors
/// 16 for a group of another node, and what its coordinator says for all of the request.
pub async fn ask(
    shard: &Rc<Shard>,
    group: &str,
    request: OffsetsRequest,
) -> Result<OffsetsReply, ErrorCode> {
    let (_, owner) = place_of(shard, group)?;
    if !is_served(shard, owner) {
        return Err(ErrorCode::NotCoordinator);
    }
    match shard.ask(owner, Operation::GroupOffsets(Box::new(request))).await {
        Reply::GroupOffsets(outcome) => outcome,
        _ => Err(ErrorCode::UnknownServerError),
    }
}

/// Does a request on the shard that keeps the group.
///
/// # Errors
/// The code for all of the request.
pub async fn perform(
    shard: &Rc<Shard>,
    request: OffsetsRequest,
) -> Result<OffsetsReply, ErrorCode> {
    match request {
        OffsetsRequest::Commit(commit) => {
            let kept = find(shard, &commit.group)?;
            write_commit(shard, &kept, &commit, None).await
        }
        OffsetsRequest::CommitInTransaction(commit, transaction) => {
            commit_in_transaction(shard, &commit, &transaction).await
        }
        OffsetsRequest::Fetch(wanted) => {
            let kept = find(shard, &wanted.group)?;
            let topics = wanted.topics.as_deref();
            let member_id = wanted.member_id.as_deref();
            let found = kept.with(|groups| {
                groups.check_fetch(&wanted.group, member_id, wanted.member_epoch)?;
                Ok(groups.fetch(&wanted.group, topics, wanted.require_stable))
            })??;
            wait_durable(shard, newest_of(shard, kept.id)).await?;
            Ok(OffsetsReply::Found(found))
        }
        OffsetsRequest::Delete(named) => {
            let kept = find(shard, &named.group)?;
            let turn = kept.turn().await;
            let planned = kept.with(|it| it.plan_delete(&named.group, &named.partitions))?;
            let codes = match planned {
                Ok(CommitPlan { records, codes }) => {
                    write(shard, &kept, records, None).await.map(|_| codes)
                }
                Err(code) => Err(code),
            };
            drop(turn);
            // What is not there any more may have been deleted just now.
            wait_durable(shard, newest_of(shard, kept.id)).await?;
            codes.map(OffsetsReply::Codes)
        }
    }
}

/// The partition of `__consumer_offsets` that keeps a group, and its shard.
fn place_of(shard: &Shard, group: &str) -> Result<(TopicPartition, ShardId), ErrorCode> {
    let image = shard.catalog();
    let find = || {
        let topic = image.topic(CONSUMER_OFFSETS)?;
        let partition = partition_of(group, topic.partition_count())?;
        let owner = topic.owner(partition, shard.context.shards)?;
        Some((TopicPartition { topic: topic.id, partition }, owner))
    };
    find().ok_or(ErrorCode::NotCoordinator)
}

/// The loaded partition of this shard that keeps a group.
fn find(shard: &Shard, group: &str) -> Result<Rc<Kept>, ErrorCode> {
    let (id, owner) = place_of(shard, group)?;
    if owner != shard.id {
        return Err(ErrorCode::NotCoordinator);
    }
    let kept = load::kept(shard, id).ok_or(ErrorCode::CoordinatorLoadInProgress)?;
    kept.with(|_| ())?;
    Ok(kept)
}

/// Plans a commit, appends and applies it, and waits until it is durable.
async fn write_commit(
    shard: &Rc<Shard>,
    kept: &Rc<Kept>,
    commit: &Commit,
    transaction: Option<&Verified<'_>>,
) -> Result<OffsetsReply, ErrorCode> {
    let metadata_max = shard.catalog().broker().offset_metadata_max_bytes;
    let rules = CommitRules {
        metadata_units_max: usize::try_from(metadata_max).unwrap_or(0),
        now_ms: shard.runtime.wall_ms(),
    };
    let turn = kept.turn().await;
    let image = shard.catalog();
    let id_of = |name: &str| image.topic(name).map(|topic| topic.id);
    let CommitPlan { records, codes } =
        kept.with(|groups| groups.plan_commit_knowing(commit, &rules, &id_of))??;
    if commit.api != CommitApi::Transactional {
        let now = members::now(shard);
        let timers = kept.with_mut(|groups| groups.committed(&commit.group, &commit.by, now))?;
        shard.group_offsets.timers.set_all(kept.id.partition, &commit.group, timers);
    }
    let durable_at = write(shard, kept, records, transaction).await?;
    drop(turn);
    wait_durable(shard, durable_at).await?;
    Ok(OffsetsReply::Codes(codes))
}

/// The transaction first, then the group: as Kafka does, even where the group refuses then.
async fn commit_in_transaction(
    shard: &Rc<Shard>,
    commit: &Commit,
    transaction: &Transaction,
) -> Result<OffsetsReply, ErrorCode> {
    let (id, owner) = place_of(shard, &commit.group)?;
    if owner != shard.id {
        return Err(ErrorCode::NotCoordinator);
    }
    let guard = verify(shard, id, transaction).await?;
    let kept = find(shard, &commit.group)?;
    write_commit(shard, &kept, commit, Some(&Verified { of: transaction, guard })).await
}

/// Makes sure that the partition is in the transaction, or adds it: what shows that to the log. No
/// question is asked where the transaction is open in the partition already.
async fn verify(
    shard: &Rc<Shard>,
    id: TopicPartition,
    transaction: &Transaction,
) -> Result<Option<VerificationGuard>, ErrorCode> {
    if transaction.producer_id.0 < 0 {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    let part = VerifyPart {
        partition: id,
        producer: ProducerFacts {
            id: transaction.producer_id,
            epoch: transaction.producer_epoch,
            base_sequence: NO_SEQUENCE,
        },
        strict: transaction.version >= ADDS_SINCE,
    };
    let guard = match append::begin_verification(shard, &part).map_err(append_code)? {
        Verification::NotNeeded => return Ok(None),
        Verification::Guard(guard) => guard,
    };
    let question = TxnQuestion {
        transactional_id: Arc::clone(&transaction.id),
        producer_id: transaction.producer_id,
        producer_epoch: transaction.producer_epoch,
        partitions: vec![(Arc::from(CONSUMER_OFFSETS), id.partition.0)],
        verify_only: transaction.version < ADDS_SINCE,
        patience: Patience::AsTheBroker,
    };
    let codes = transactions::add_for_append(shard, question).await;
    match codes.first().copied().unwrap_or(ErrorCode::UnknownServerError) {
        ErrorCode::None => Ok(Some(guard)),
        code => Err(transaction_code(code, transaction.version)),
    }
}

/// The coordinator's code as TxnOffsetCommit tells it.
fn transaction_code(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if version < ABORTABLE_SINCE => ErrorCode::InvalidTxnState,
        other => other,
    }
}

/// Appends records and applies them in the same turn. Where nothing is appended nothing is waited
/// for: who says what the state is has to wait for the newest record.
async fn write(
    shard: &Rc<Shard>,
    kept: &Rc<Kept>,
    records: Vec<GroupRecord>,
    transaction: Option<&Verified<'_>>,
) -> Result<JournalSequence, ErrorCode> {
    if records.is_empty() {
        return Ok(JournalSequence(0));
    }
    let Some(batch) = batch_of(shard, &records, transaction.map(|verified| verified.of)) else {
        shard.metrics.limit_reached(Limit::CoordinatorRecordBytes);
        return Err(ErrorCode::UnknownServerError);
    };
    let limit = shard.partition(kept.id).map(|of| of.topic.borrow().config.max_message_bytes);
    if limit.is_some_and(|limit| batch.len() > limit) {
        return Err(ErrorCode::UnknownServerError);
    }
    let guard = transaction.and_then(|verified| verified.guard);
    let appended = append::append_internal(shard, kept.id, &batch, Urgency::Usual, guard).await;
    let pending = appended.map_err(append_code)?;
    let base = pending.appended.base_offset;
    let producer = transaction.map(|verified| verified.of.producer_id);
    if let State::Ready(groups) = &mut *kept.state.borrow_mut() {
        for (delta, record) in (0..).zip(records) {
            groups.apply(base.plus(delta), producer, record);
        }
    }
    Ok(pending.durable_at)
}

/// The batch of these records; `None` if one is larger than what is loaded again.
fn batch_of(
    shard: &Shard,
    records: &[GroupRecord],
    transaction: Option<&Transaction>,
) -> Option<Vec<u8>> {
    let codec = shard.catalog().broker().offsets_topic_compression_codec;
    let codec = u8::try_from(codec).ok().and_then(Compression::from_id);
    let target = CompressionTarget::of(codec.unwrap_or(Compression::None));
    let mut batch = BatchBuilder::new(target);
    if let Some(of) = transaction {
        batch = batch.producer(of.producer_id, of.producer_epoch, NO_SEQUENCE).transactional();
    }
    let now_ms = shard.runtime.wall_ms();
    for record in records {
        let (key, value) = record.encode();
        let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
        if bytes > COORDINATOR_RECORD_BYTES_MAX - RECORD_OVERHEAD_BYTES {
            return None;
        }
        batch.push(now_ms, Some(&key), value.as_deref(), &[]);
    }
    Some(batch.finish())
}

/// The code of a failed append as clients of a coordinator know it.
fn append_code(code: ErrorCode) -> ErrorCode {
    match code {
        // A full or failed disk is told as Kafka tells a coordinator that is not there: clients
        // come again, and find no other one.
        ErrorCode::KafkaStorageError
        | ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        other => other,
    }
}

/// The journal position of the newest record of a partition.
fn newest_of(shard: &Shard, id: TopicPartition) -> JournalSequence {
    let Some(partition) = shard.partition(id) else { return JournalSequence(0) };
    let log = partition.log.borrow();
    if log.high_watermark() == log.next_offset() {
        return JournalSequence(0);
    }
    let newest = log.tail().from_offset(log.next_offset().plus(-1)).last();
    newest.map_or(JournalSequence(0), |batch| batch.sequence)
}

async fn wait_durable(shard: &Shard, position: JournalSequence) -> Result<(), ErrorCode> {
    let durable = shard.durable(position).await;
    durable.map_err(|_| ErrorCode::CoordinatorNotAvailable)
}

/// Deletes the offsets of a topic that is being deleted, before its name can be another's.
pub async fn topic_deleted(shard: &Rc<Shard>, id: TopicId) {
    shard.group_offsets.kept.borrow_mut().retain(|partition, kept| {
        let stays = kept.id.topic != id;
        if !stays {
            kept.unload();
            shard.group_offsets.timers.forget(*partition);
        }
        stays
    });
    let kept: Vec<_> = shard.group_offsets.kept.borrow().values().cloned().collect();
    for kept in kept {
        delete_of_topic(shard, &kept, id).await;
    }
}

async fn delete_of_topic(shard: &Rc<Shard>, kept: &Rc<Kept>, id: TopicId) {
    let image = shard.catalog();
    let Some(name) = image.tombstone(id).map(|tombstone| Arc::clone(&tombstone.name)) else {
        return;
    };
    let turn = kept.turn().await;
    let is_taken = image.topic(&name).is_some();
    let records = kept.with(|groups| groups.plan_topic_deleted(&name, id, is_taken));
    // One that is loading does it afterwards.
    write_tombstones(shard, kept, records.unwrap_or_default()).await;
    drop(turn);
}

/// Writes tombstones that nobody waits for; those that cannot be written are planned anew at the
/// next occasion.
async fn write_tombstones(shard: &Rc<Shard>, kept: &Rc<Kept>, records: Vec<GroupRecord>) {
    if let Err(code) = write_or_fail(shard, kept, records).await {
        tracing::warn!(shard = %shard.id, ?code, "offsets could not be deleted");
    }
}

/// Writes tombstones, in as many batches as they need.
async fn write_or_fail(
    shard: &Rc<Shard>,
    kept: &Rc<Kept>,
    mut records: Vec<GroupRecord>,
) -> Result<(), ErrorCode> {
    while !records.is_empty() {
        let rest = records.split_off(records.len().min(TOMBSTONES_PER_BATCH_MAX));
        if !rest.is_empty() {
            shard.metrics.limit_reached(Limit::TombstonesPerBatch);
        }
        write(shard, kept, records, None).await?;
        records = rest;
    }
    Ok(())
}

/// Deletes what has expired.
async fn expire(shard: &Rc<Shard>) {
    let minutes = shard.catalog().broker().offsets_retention_minutes;
    let retention_ms = i64::from(minutes) * 60_000;
    let kept: Vec<_> = shard.group_offsets.kept.borrow().values().cloned().collect();
    for kept in kept {
        let mut last = None;
        loop {
            let turn = kept.turn().await;
            let now_ms = shard.runtime.wall_ms();
            let planned = kept.with(|groups| {
                let ids = groups.after(last.as_ref(), GROUPS_PER_TURN_MAX);
                let plan = |id| groups.plan_expiry(id, now_ms, retention_ms);
                let records: Vec<_> = ids.iter().flat_map(plan).collect();
                (ids, records)
            });
            let Ok((ids, records)) = planned else { break };
            write_tombstones(shard, &kept, records).await;
            drop(turn);
            if ids.is_empty() {
                break;
            }
            if ids.len() == GROUPS_PER_TURN_MAX {
                shard.metrics.limit_reached(Limit::GroupsPerTurn);
            }
            last = ids.last().cloned();
            shard.runtime.yield_now().await;
        }
    }
}

/// What a record takes besides its key and value, at most.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// From here on TxnOffsetCommit adds the partition itself.
const ADDS_SINCE: i16 = 5;

/// From here on TxnOffsetCommit knows `TRANSACTION_ABORTABLE`.
const ABORTABLE_SINCE: i16 = 4;
