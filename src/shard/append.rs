//! Appending batches to partitions of this shard.
//!
//! Owns the one step in which a batch or a marker is checked, gets its offsets and is copied into
//! the journal: synchronous, after room was reserved. Appends of other shards wait in one queue per
//! sender, so that batches of one connection keep their order. Must never answer an append before
//! its block is durable.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::Shard;
use super::event::Event;
use super::message::{AppendPart, AppendRefusal, Appended, MarkerPart, Reply, VerifyPart};
use super::partition::{Availability, Partition};
use crate::batch::control::MARKER_BYTES;
use crate::batch::header::set_base_offset;
use crate::batch::{BatchHeader, HEADER_BYTES, Marker, MarkerKind, ValidBatch};
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, Offset, ShardId, TopicPartition};
use crate::io::mailbox::Lane;
use crate::journal::block::ControlEntry;
use crate::journal::ring::Purpose;
use crate::journal::writer::{BatchCopy, JournalClient, Permit};
use crate::log::tail::TailBatch;
use crate::log::verification::{Verification, VerificationGuard};
use crate::log::{AppendCheck, BatchFacts, Log};
use crate::metrics::Limit;
use crate::metrics::stages::Stage;

/// An append that is in the journal, durable with `durable_at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// What the client will be told.
    pub appended: Appended,
    /// When it may be told.
    pub durable_at: JournalSequence,
}

/// How much an append of the broker's own matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Refused while the disk is full, like the records of clients.
    Usual,
    /// Ends a transaction, or says that it will: passes a full disk, and may use the room that the
    /// journal keeps for control entries.
    Control,
}

impl Urgency {
    fn purpose(self) -> Purpose {
        match self {
            Urgency::Usual => Purpose::Data,
            Urgency::Control => Purpose::Control,
        }
    }
}

/// A whole batch and what is known of it.
struct Source<'a> {
    header: &'a [u8; HEADER_BYTES],
    payload: &'a [u8],
    facts: BatchFacts,
    log_append_time_ms: i64,
}

impl Source<'_> {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }
}

/// Waits for room, then appends a client's batch. `guard` is what its verification gave.
///
/// # Errors
/// The code for the client.
pub async fn append(
    shard: &Rc<Shard>,
    id: TopicPartition,
    batch: &ValidBatch,
    guard: Option<VerificationGuard>,
) -> Result<Pending, AppendRefusal> {
    let facts = BatchFacts {
        max_timestamp_ms: batch.max_timestamp,
        guard,
        ..BatchFacts::of(&batch.header)
    };
    let source = Source {
        header: &batch.header_bytes,
        payload: batch.payload(),
        facts,
        log_append_time_ms: batch.log_append_time.unwrap_or(-1),
    };
    append_source(shard, id, &source, Urgency::Usual).await
}

/// Waits for room, then appends a batch that this broker makes itself, whole and sealed. One of a
/// coordinator may carry a producer without a sequence: only its epoch is checked then.
///
/// # Errors
/// The code of the refusal: 3, 10, 18, 47, 48 or 56.
pub async fn append_internal(
    shard: &Rc<Shard>,
    id: TopicPartition,
    batch: &[u8],
    urgency: Urgency,
    guard: Option<VerificationGuard>,
) -> Result<Pending, ErrorCode> {
    let (header, payload) =
        batch.split_first_chunk::<HEADER_BYTES>().ok_or(ErrorCode::CorruptMessage)?;
    let read = BatchHeader::read(header).map_err(|_| ErrorCode::CorruptMessage)?;
    assert_eq!(read.total_bytes(), batch.len(), "one whole batch is appended");
    let facts = BatchFacts { guard, ..BatchFacts::of(&read) };
    let source = Source { header, payload, facts, log_append_time_ms: -1 };
    append_source(shard, id, &source, urgency).await.map_err(|refusal| refusal.code)
}

async fn append_source(
    shard: &Rc<Shard>,
    id: TopicPartition,
    source: &Source<'_>,
    urgency: Urgency,
) -> Result<Pending, AppendRefusal> {
    check_writable(shard, urgency)?;
    let partition = shard.partition(id).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let outcome = append_to(shard, &partition, source, urgency).await;
    let metrics = &partition.metrics;
    metrics.add(|of| &of.produce_requests, 1);
    if let Err(refusal) = &outcome {
        metrics.add(|of| &of.failed_produce_requests, 1);
        match refusal.code {
            ErrorCode::OutOfOrderSequenceNumber => {
                metrics.add(|of| &of.out_of_order_sequence, 1);
                metrics.add(|of| &of.invalid_sequence, 1);
            }
            ErrorCode::InvalidProducerEpoch => metrics.add(|of| &of.producer_fenced, 1),
            ErrorCode::MessageTooLarge => {
                metrics.add(|of| &of.bytes_rejected, source.bytes() as u64);
            }
            _ => {}
        }
    }
    outcome
}

async fn append_to(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    source: &Source<'_>,
    urgency: Urgency,
) -> Result<Pending, AppendRefusal> {
    check_online(partition)?;
    let bytes = source.bytes();
    if bytes > shard.journal.largest_batch_bytes() {
        return Err(ErrorCode::MessageTooLarge.into());
    }
    loop {
        let permit = reserve(shard, bytes, urgency).await?;
        if let Some(pending) = append_now(shard, partition, source, permit, urgency)? {
            return Ok(pending);
        }
        wait_for_control_room(shard).await?;
    }
}

/// Waits until the journal has room.
async fn reserve(shard: &Rc<Shard>, bytes: usize, urgency: Urgency) -> Result<Permit, ErrorCode> {
    let refuse = || {
        // Whoever waits for room sees to it that some comes back.
        shard.write_behind.relieve();
        if shard.journal.half_full() {
            shard.checkpoints.request_once();
        }
        urgency == Urgency::Usual && shard.space.is_full()
    };
    let purpose = urgency.purpose();
    let failed = |_| ErrorCode::KafkaStorageError;
    if let Some(permit) = shard.journal.try_reserve(bytes, purpose).map_err(failed)? {
        return Ok(permit);
    }
    let room = shard.journal.reserve(bytes, purpose, &refuse);
    let permit = shard.spend(Stage::BlockWait, room).await;
    permit.map_err(|_| ErrorCode::KafkaStorageError)?.ok_or(ErrorCode::KafkaStorageError)
}

/// Even the space kept for control entries is used: a checkpoint gives some back.
///
/// # Errors
/// 56 when that failed.
pub async fn wait_for_control_room(shard: &Rc<Shard>) -> Result<(), ErrorCode> {
    let released = shard.checkpoints.request_and_wait().await;
    released.map_err(|_| ErrorCode::KafkaStorageError)
}

/// `None` when there is no room for the control entry that must come before the batch.
fn append_now(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    source: &Source<'_>,
    permit: Permit,
    urgency: Urgency,
) -> Result<Option<Pending>, AppendRefusal> {
    check_writable(shard, urgency)?;
    check_online(partition)?;
    let now_ms = shard.runtime.wall_ms();
    let mut log = partition.log.borrow_mut();
    let log_start = log.log_start();
    let checked = log.check(&source.facts, now_ms);
    let base_offset = match checked.map_err(|code| AppendRefusal { code, log_start })? {
        AppendCheck::Append(base_offset) => base_offset,
        AppendCheck::Duplicate { base_offset, max_timestamp_ms } => {
            let appended =
                Appended { base_offset, log_append_time_ms: max_timestamp_ms, log_start };
            let records = u64::from(source.facts.last_offset_delta.unsigned_abs()) + 1;
            partition.metrics.add(|of| &of.duplicates, records);
            let durable = base_offset < log.high_watermark();
            let durable_at =
                if durable { JournalSequence(0) } else { shard.journal.appended_through() };
            return Ok(Some(Pending { appended, durable_at }));
        }
    };
    if !start_epoch(shard, partition, &mut log)? {
        return Ok(None);
    }
    let mut header = *source.header;
    set_base_offset(&mut header, base_offset, shard.context.leader_epoch());
    let tail = copy_in(shard, partition, permit, &header, source, base_offset, now_ms);
    let durable_at = tail.sequence;
    log.append(&source.facts, tail, now_ms);
    drop(log);
    let records = u64::from(source.facts.last_offset_delta.unsigned_abs()) + 1;
    partition.metrics.add(|of| &of.messages_in, records);
    partition.metrics.add(|of| &of.bytes_in, source.bytes() as u64);
    after_append(shard, partition);
    let log_append_time_ms = source.log_append_time_ms;
    let appended = Appended { base_offset, log_append_time_ms, log_start };
    Ok(Some(Pending { appended, durable_at }))
}

/// Appends a marker if the journal has room for it now; `None` if it has not.
///
/// # Errors
/// 3, 18, 47, 52 or 56.
pub fn append_marker_now(
    shard: &Rc<Shard>,
    part: &MarkerPart,
) -> Result<Option<Pending>, ErrorCode> {
    check_writable(shard, Urgency::Control)?;
    let partition = shard.partition(part.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_online(&partition)?;
    let permit = shard.journal.try_reserve(MARKER_BYTES, Purpose::Control);
    let Some(permit) = permit.map_err(|_| ErrorCode::KafkaStorageError)? else { return Ok(None) };
    let now_ms = shard.runtime.wall_ms();
    let marker = Marker {
        kind: part.kind,
        producer_id: part.producer_id,
        producer_epoch: part.producer_epoch,
        coordinator_epoch: part.coordinator_epoch,
        timestamp_ms: now_ms,
    };
    let mut log = partition.log.borrow_mut();
    let strict = part.transaction_version >= STRICT_VERSION;
    let offset = log.check_marker(&marker, strict, now_ms)?;
    if !start_epoch(shard, &partition, &mut log)? {
        return Ok(None);
    }
    let timestamp_type = partition.topic.borrow().config.timestamp_type;
    let batch = marker.to_batch(offset, shard.context.leader_epoch(), timestamp_type);
    let (header, payload) =
        batch.split_first_chunk::<HEADER_BYTES>().expect("invariant: a marker has a header");
    let read = BatchHeader::read(header).expect("invariant: a marker is a batch");
    let facts = BatchFacts::of(&read);
    let source = Source { header, payload, facts, log_append_time_ms: -1 };
    let tail = copy_in(shard, &partition, permit, header, &source, offset, now_ms);
    let durable_at = tail.sequence;
    log.append_marker(&marker, strict, tail, now_ms);
    let markers = &shard.metrics.transactions;
    match part.kind {
        MarkerKind::Commit => markers.commit_markers.add(1),
        MarkerKind::Abort => markers.abort_markers.add(1),
    }
    let log_start = log.log_start();
    drop(log);
    after_append(shard, &partition);
    let appended = Appended { base_offset: offset, log_append_time_ms: -1, log_start };
    Ok(Some(Pending { appended, durable_at }))
}

/// Waits until the journal may have room for a marker that it had none for.
///
/// # Errors
/// 56 when it has failed.
pub async fn wait_for_marker_room(shard: &Rc<Shard>) -> Result<(), ErrorCode> {
    let permit = shard.journal.try_reserve(MARKER_BYTES, Purpose::Control);
    match permit.map_err(|_| ErrorCode::KafkaStorageError)? {
        // Then it was the entry before the marker that found none.
        Some(_) => wait_for_control_room(shard).await,
        None => reserve(shard, MARKER_BYTES, Urgency::Control).await.map(drop),
    }
}

/// Begins the verification of a transactional batch for a partition of this shard.
///
/// # Errors
/// 3 or 56 for the partition, 47 for the batch's epoch.
pub fn begin_verification(shard: &Shard, part: &VerifyPart) -> Result<Verification, ErrorCode> {
    let partition = shard.partition(part.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_online(&partition)?;
    let now_ms = shard.runtime.wall_ms();
    let mut log = partition.log.borrow_mut();
    let forgotten = log.verifications_forgotten();
    let begun = log.begin_verification(&part.producer, part.strict, now_ms);
    let forgotten = log.verifications_forgotten() - forgotten;
    shard.metrics.limit_reached_often(Limit::VerificationsPerPartition, forgotten);
    if begun == Err(ErrorCode::InvalidProducerEpoch) {
        partition.metrics.add(|of| &of.produce_requests, 1);
        partition.metrics.add(|of| &of.producer_fenced, 1);
        partition.metrics.add(|of| &of.failed_produce_requests, 1);
    }
    begun
}

/// Notes this boot's epoch in front of its first batch; `false` when there is no room for it.
fn start_epoch(shard: &Shard, partition: &Partition, log: &mut Log) -> Result<bool, ErrorCode> {
    let epoch = shard.context.leader_epoch();
    if !log.starts_epoch(epoch) {
        return Ok(true);
    }
    let entry = ControlEntry::EpochStarted { tp: partition.id, epoch, start: log.next_offset() };
    match shard.journal.append_control(&[entry]) {
        Ok(_) => {
            log.start_epoch(epoch);
            Ok(true)
        }
        Err(_) if shard.journal.failure().is_some() => Err(ErrorCode::KafkaStorageError),
        Err(_) => Ok(false),
    }
}

/// Copies a batch with its final header into the open block.
fn copy_in(
    shard: &Shard,
    partition: &Rc<Partition>,
    permit: Permit,
    header: &[u8; HEADER_BYTES],
    source: &Source<'_>,
    base_offset: Offset,
    now_ms: i64,
) -> TailBatch {
    let last_offset = base_offset.plus(i64::from(source.facts.last_offset_delta));
    let copy = BatchCopy {
        tp: partition.id,
        header,
        payload: source.payload,
        append_ms: now_ms,
        end: last_offset.plus(1),
    };
    let client: Rc<dyn JournalClient> = Rc::clone(partition) as Rc<dyn JournalClient>;
    let journaled = shard.journal.append_batch(permit, &copy, &client);
    partition.dirty.set(true);
    TailBatch {
        base_offset,
        last_offset,
        max_timestamp_ms: source.facts.max_timestamp_ms,
        append_ms: now_ms,
        bytes: source.bytes(),
        sequence: journaled.sequence,
        parts: journaled.parts,
    }
}

/// Write-behind and checkpoints follow what is in memory and in the ring.
fn after_append(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    shard.write_behind.note_tail(partition);
    shard.write_behind.queue_if_due(partition);
    let (used, budget) = shard.journal.memory();
    if used > budget / 2 {
        shard.write_behind.relieve();
    }
    if shard.journal.half_full() {
        shard.checkpoints.request_once();
    }
}

/// Whether the partition takes and serves anything.
///
/// # Errors
/// 56 while it is offline, 3 once it is being deleted.
pub fn check_online(partition: &Partition) -> Result<(), ErrorCode> {
    match *partition.availability.borrow() {
        Availability::Online => Ok(()),
        Availability::Offline(_) => Err(ErrorCode::KafkaStorageError),
        Availability::Dropping => Err(ErrorCode::UnknownTopicOrPartition),
    }
}

fn check_writable(shard: &Shard, urgency: Urgency) -> Result<(), ErrorCode> {
    match urgency {
        Urgency::Usual => shard.check_writable(),
        Urgency::Control => shard.check_sound(),
    }
}

/// Appends in order and waits until all of it is durable.
pub async fn append_durably(
    shard: &Rc<Shard>,
    parts: Vec<AppendPart>,
) -> Vec<Result<Appended, AppendRefusal>> {
    let pending = append_all(shard, parts).await;
    wait_durable(shard, pending).await
}

async fn append_all(
    shard: &Rc<Shard>,
    parts: Vec<AppendPart>,
) -> Vec<Result<Pending, AppendRefusal>> {
    let mut pending = Vec::with_capacity(parts.len());
    for part in parts {
        pending.push(append(shard, part.partition, &part.batch, part.guard).await);
    }
    pending
}

async fn wait_durable(
    shard: &Rc<Shard>,
    pending: Vec<Result<Pending, AppendRefusal>>,
) -> Vec<Result<Appended, AppendRefusal>> {
    let newest = pending.iter().flatten().map(|pending| pending.durable_at).max();
    let durable = shard.durable(newest.unwrap_or_default()).await;
    let through = shard.journal.durable_through();
    pending
        .into_iter()
        .map(|pending| match pending {
            Ok(pending) if durable.is_ok() || pending.durable_at <= through => Ok(pending.appended),
            Ok(_) => Err(ErrorCode::KafkaStorageError.into()),
            Err(refusal) => Err(refusal),
        })
        .collect()
}

/// Appends of other shards, one queue per sender.
pub struct AppendQueues {
    queues: Vec<AppendQueue>,
}

#[derive(Default)]
struct AppendQueue {
    waiting: RefCell<VecDeque<(u64, Lane, Vec<AppendPart>)>>,
    pushed: Event,
}

impl AppendQueues {
    /// Queues for so many shards.
    #[must_use]
    pub fn new(shards: usize) -> AppendQueues {
        AppendQueues { queues: (0..shards).map(|_| AppendQueue::default()).collect() }
    }

    /// Queues the appends of one request.
    pub fn push(&self, from: ShardId, number: u64, lane: Lane, parts: Vec<AppendPart>) {
        let queue = &self.queues[usize::from(from.0)];
        queue.waiting.borrow_mut().push_back((number, lane, parts));
        queue.pushed.notify();
    }
}

/// Starts one task per queue.
pub fn start_queues(shard: &Rc<Shard>) {
    for from in 0..shard.links.appends.queues.len() {
        let shard = Rc::clone(shard);
        let runtime = Rc::clone(&shard.runtime);
        let sender = ShardId(from as u16);
        runtime.spawn(Box::pin(async move {
            let queue = &shard.links.appends.queues[from];
            loop {
                let seen = queue.pushed.generation();
                let next = queue.waiting.borrow_mut().pop_front();
                let Some((number, lane, parts)) = next else {
                    queue.pushed.wait(seen).await;
                    continue;
                };
                let pending = append_all(&shard, parts).await;
                let replier = Rc::clone(&shard);
                shard.runtime.spawn(Box::pin(async move {
                    let outcome = wait_durable(&replier, pending).await;
                    replier.links.reply(sender, number, lane, Reply::Appended(outcome));
                }));
            }
        }));
    }
}

/// From this level on the epoch of a producer rises with every transaction.
const STRICT_VERSION: i16 = 2;
