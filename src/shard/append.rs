//! Appending batches to partitions of this shard.
//!
//! Owns the one step in which a batch is checked, gets its offsets and is copied into the journal:
//! synchronous, after room was reserved. Appends of other shards wait in one queue per sender, so
//! that batches of one connection keep their order. Must never answer an append before its block
//! is durable.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::Shard;
use super::event::Event;
use super::message::{AppendPart, Appended, Reply};
use super::partition::{Availability, Partition};
use crate::batch::header::set_base_offset;
use crate::batch::{HEADER_BYTES, ValidBatch};
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, ShardId, TopicPartition};
use crate::io::mailbox::Lane;
use crate::journal::block::ControlEntry;
use crate::journal::writer::{BatchCopy, JournalClient, Permit};
use crate::log::tail::TailBatch;
use crate::log::{AppendCheck, BatchFacts, ProducerFacts};

/// An append that is in the journal, durable with `durable_at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// What the client will be told.
    pub appended: Appended,
    /// When it may be told.
    pub durable_at: JournalSequence,
}

/// Waits for room, then appends the batch.
///
/// # Errors
/// The code for the client.
pub async fn append(
    shard: &Rc<Shard>,
    id: TopicPartition,
    batch: &ValidBatch,
) -> Result<Pending, ErrorCode> {
    shard.check_writable()?;
    let partition = shard.partition(id).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_online(&partition)?;
    let bytes = batch.bytes.len();
    if bytes > shard.journal.largest_batch_bytes() {
        return Err(ErrorCode::MessageTooLarge);
    }
    let refuse = || {
        // Whoever waits for room sees to it that some comes back.
        shard.write_behind.relieve();
        if shard.journal.half_full() {
            shard.checkpoints.request_once();
        }
        shard.space.is_full()
    };
    loop {
        let permit = shard
            .journal
            .reserve(bytes, &refuse)
            .await
            .map_err(|_| ErrorCode::KafkaStorageError)?
            .ok_or(ErrorCode::KafkaStorageError)?;
        if let Some(pending) = append_now(shard, &partition, batch, permit)? {
            return Ok(pending);
        }
        // Even the space kept for control entries is used: a checkpoint gives some back.
        let released = shard.checkpoints.request_and_wait().await;
        released.map_err(|_| ErrorCode::KafkaStorageError)?;
    }
}

/// `None` when there is no room for the control entry that must come before the batch.
fn append_now(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    batch: &ValidBatch,
    permit: Permit,
) -> Result<Option<Pending>, ErrorCode> {
    shard.check_writable()?;
    check_online(partition)?;
    let now_ms = shard.runtime.wall_ms();
    let facts = facts_of(batch);
    let mut log = partition.log.borrow_mut();
    let log_start = log.log_start();
    let base_offset = match log.check(&facts, now_ms)? {
        AppendCheck::Append(base_offset) => base_offset,
        AppendCheck::Duplicate { base_offset, max_timestamp_ms } => {
            let appended =
                Appended { base_offset, log_append_time_ms: max_timestamp_ms, log_start };
            let durable = base_offset < log.high_watermark();
            let durable_at =
                if durable { JournalSequence(0) } else { shard.journal.appended_through() };
            return Ok(Some(Pending { appended, durable_at }));
        }
    };
    let epoch = shard.context.leader_epoch();
    if log.starts_epoch(epoch) {
        let start = log.next_offset();
        let entry = ControlEntry::EpochStarted { tp: partition.id, epoch, start };
        match shard.journal.append_control(&[entry]) {
            Ok(_) => log.start_epoch(epoch),
            Err(_) if shard.journal.failure().is_some() => {
                return Err(ErrorCode::KafkaStorageError);
            }
            Err(_) => return Ok(None),
        }
    }
    let mut header: [u8; HEADER_BYTES] = batch.header_bytes;
    set_base_offset(&mut header, base_offset, epoch);
    let last_offset = base_offset.plus(i64::from(facts.last_offset_delta));
    let copy = BatchCopy {
        tp: partition.id,
        header: &header,
        payload: batch.payload(),
        append_ms: now_ms,
        end: last_offset.plus(1),
    };
    let client: Rc<dyn JournalClient> = Rc::clone(partition) as Rc<dyn JournalClient>;
    let journaled = shard.journal.append_batch(permit, &copy, &client);
    let tail = TailBatch {
        base_offset,
        last_offset,
        max_timestamp_ms: batch.max_timestamp,
        append_ms: now_ms,
        bytes: facts.bytes,
        sequence: journaled.sequence,
        parts: journaled.parts,
    };
    log.append(&facts, tail, now_ms);
    drop(log);
    partition.dirty.set(true);
    after_append(shard, partition);
    let log_append_time_ms = batch.log_append_time.unwrap_or(-1);
    let appended = Appended { base_offset, log_append_time_ms, log_start };
    Ok(Some(Pending { appended, durable_at: journaled.sequence }))
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

fn check_online(partition: &Partition) -> Result<(), ErrorCode> {
    match *partition.availability.borrow() {
        Availability::Online => Ok(()),
        Availability::Offline(_) => Err(ErrorCode::KafkaStorageError),
        Availability::Dropping => Err(ErrorCode::UnknownTopicOrPartition),
    }
}

fn facts_of(batch: &ValidBatch) -> BatchFacts {
    let header = &batch.header;
    BatchFacts {
        last_offset_delta: header.last_offset_delta,
        max_timestamp_ms: batch.max_timestamp,
        bytes: batch.bytes.len(),
        producer: header.has_producer_id().then_some(ProducerFacts {
            id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        }),
    }
}

/// Appends in order and waits until all of it is durable.
pub async fn append_durably(
    shard: &Rc<Shard>,
    parts: Vec<AppendPart>,
) -> Vec<Result<Appended, ErrorCode>> {
    let pending = append_all(shard, parts).await;
    wait_durable(shard, pending).await
}

async fn append_all(shard: &Rc<Shard>, parts: Vec<AppendPart>) -> Vec<Result<Pending, ErrorCode>> {
    let mut pending = Vec::with_capacity(parts.len());
    for part in parts {
        pending.push(append(shard, part.partition, &part.batch).await);
    }
    pending
}

async fn wait_durable(
    shard: &Rc<Shard>,
    pending: Vec<Result<Pending, ErrorCode>>,
) -> Vec<Result<Appended, ErrorCode>> {
    let newest = pending.iter().flatten().map(|pending| pending.durable_at).max();
    let durable = shard.journal.wait(newest.unwrap_or_default()).await;
    let through = shard.journal.durable_through();
    pending
        .into_iter()
        .map(|pending| match pending {
            Ok(pending) if durable.is_ok() || pending.durable_at <= through => Ok(pending.appended),
            Ok(_) => Err(ErrorCode::KafkaStorageError),
            Err(code) => Err(code),
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

/// Appends a batch that this broker made itself.
///
/// # Errors
/// As [`append`].
pub async fn append_internal(
    shard: &Rc<Shard>,
    id: TopicPartition,
    batch: &[u8],
) -> Result<Pending, ErrorCode> {
    let header = crate::batch::BatchHeader::read(batch).map_err(|_| ErrorCode::InvalidRecord)?;
    let valid = ValidBatch {
        bytes: bytes::Bytes::copy_from_slice(batch),
        header_bytes: header.to_bytes(),
        is_header_changed: false,
        max_timestamp: header.max_timestamp,
        log_append_time: None,
        is_recompressed: false,
        records_bytes: batch.len(),
        header,
    };
    append(shard, id, &valid).await
}
