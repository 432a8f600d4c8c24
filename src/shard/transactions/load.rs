//! Reading `__transaction_state` in: at the start, and when the catalog shows partitions that are
//! new.
//!
//! Owns which partitions the coordinator knows. A partition is announced to it in the turn in
//! which the catalog shows it, so that its ids answer 14, never "unknown"; one without records is
//! loaded in that same turn. The rest is read through the ordinary read path, in slices between
//! which others run. A partition that cannot be read stays at 14: nothing may be decided from half
//! of it. Source: Kafka's `TransactionStateManager`.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::markers;
use crate::batch::{BatchHeader, Record};
use crate::ids::{Offset, PartitionIndex, TopicId, TopicPartition};
use crate::metadata::image::TRANSACTION_STATE;
use crate::shard::Shard;
use crate::shard::coordinator_log::{self, Step};
use crate::shard::partition::Partition;

/// Begins to load what the catalog has, and follows it from then on.
pub fn start(shard: &Rc<Shard>) {
    follow_catalog(shard);
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        loop {
            let seen = shard.catalog_changed.generation();
            follow_catalog(&shard);
            shard.catalog_changed.wait(seen).await;
        }
    }));
}

/// Takes over what the catalog says of `__transaction_state`; cheap when nothing has changed.
pub fn follow_catalog(shard: &Rc<Shard>) {
    let image = shard.catalog();
    let topic = image.topic(TRANSACTION_STATE);
    let now = topic.map(|topic| (topic.id, topic.partition_count()));
    let known = shard.transactions.known.replace(now);
    if known == now {
        return;
    }
    let mut first = 0;
    if let Some((id, count)) = known {
        if now.is_some_and(|(same, _)| same == id) {
            first = count;
        } else {
            let mut coordinator = shard.transactions.coordinator.borrow_mut();
            (0..count).for_each(|index| coordinator.unload(PartitionIndex(index)));
            drop(coordinator);
            shard.transactions.holds.release_all();
        }
    }
    let Some(topic) = topic else { return };
    let mut waiting = Vec::new();
    for index in (first..topic.partition_count()).map(PartitionIndex) {
        let id = TopicPartition { topic: topic.id, partition: index };
        let Some(partition) = shard.partition(id) else { continue };
        shard.transactions.coordinator.borrow_mut().begin_load(index);
        let empty = {
            let log = partition.log.borrow();
            log.log_start() == log.next_offset()
        };
        if empty && partition.is_online() {
            finish(shard, index);
        } else {
            waiting.push(partition);
        }
    }
    if !waiting.is_empty() {
        let loading = Rc::clone(shard);
        shard.runtime.spawn(Box::pin(async move {
            for partition in waiting {
                load(&loading, &partition).await;
            }
        }));
    }
}

async fn load(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    let outcome = if partition.is_online() {
        read_records(shard, partition).await
    } else {
        Err(io::Error::other("the partition is offline"))
    };
    match outcome {
        _ if !is_current(shard, partition.id.topic) => {}
        Ok(()) => finish(shard, partition.index()),
        Err(error) => tracing::error!(
            shard = %shard.id,
            "transactional ids of {TRANSACTION_STATE}-{} are not served: {error}",
            partition.index()
        ),
    }
}

/// Whether this is still the topic whose partitions are served.
fn is_current(shard: &Shard, topic: TopicId) -> bool {
    shard.transactions.known.get().is_some_and(|(known, _)| known == topic)
}

fn finish(shard: &Rc<Shard>, partition: PartitionIndex) {
    let epoch = shard.context.leader_epoch().0;
    let now_ms = shard.runtime.wall_ms();
    let completions =
        shard.transactions.coordinator.borrow_mut().finish_load(partition, epoch, now_ms);
    for completion in completions {
        markers::start(shard, completion);
    }
}

async fn read_records(shard: &Rc<Shard>, partition: &Rc<Partition>) -> io::Result<()> {
    let (mut offset, bound) = {
        let log = partition.log.borrow();
        // Nothing is appended before the partition is loaded.
        (log.log_start(), log.high_watermark())
    };
    while offset < bound && is_current(shard, partition.id.topic) {
        offset = match coordinator_log::step(shard, partition, offset, bound).await? {
            Step::Batches(batches) => take_batches(shard, partition, &batches, offset).await?,
            Step::GoOnAt(next) => next,
        };
        shard.runtime.yield_now().await;
    }
    Ok(())
}

/// Loads whole batches from `next` on; returns the offset after them.
async fn take_batches(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    bytes: &Bytes,
    mut next: Offset,
) -> io::Result<Offset> {
    let index = partition.index();
    let mut at = 0;
    while at < bytes.len() {
        let batch = bytes.slice(at..);
        let header = BatchHeader::read(&batch).map_err(invalid)?;
        if !header.is_control() {
            let take = |record: &Record<'_>| {
                // Others run while a large batch is read.
                if !is_current(shard, partition.id.topic) {
                    return Err(io::Error::other("the topic is gone"));
                }
                let mut coordinator = shard.transactions.coordinator.borrow_mut();
                let key = record.key.unwrap_or_default();
                match coordinator.load_record(index, key, record.value) {
                    Err(fault) if fault.is_skipped() => tracing::warn!(
                        "a record of {TRANSACTION_STATE}-{index} is skipped: {fault}"
                    ),
                    loaded => loaded.map_err(invalid)?,
                }
                Ok(())
            };
            let all = coordinator_log::each_record(shard, &header, &batch, take).await;
            let at = header.base_offset;
            all.map_err(|error| invalid(format_args!("offset {at}: {error}")))?;
        }
        next = header.last_offset().plus(1);
        at += header.total_bytes();
    }
    Ok(next)
}

fn invalid(fault: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault.to_string())
}
