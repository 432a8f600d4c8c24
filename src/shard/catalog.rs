//! Changes of the catalog: made durable by shard 0, published to every shard, then answered.
//!
//! Owns the order of a deletion: a durable tombstone with the name still taken; every owner drops
//! its partitions; the name is freed durably; the answer. Files go after a delay, and the
//! tombstone when every shard has taken a checkpoint past the deletion. One change at a time.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::Shard;
use super::cleaner::progress::Report;
use super::event::Event;
use super::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use super::partition::{Availability, Partition};
use super::{cleaner, group_offsets, unlink};
use crate::error_code::ErrorCode;
use crate::ids::{ShardId, TopicId};
use crate::journal::block::ControlEntry;
use crate::limits::PRODUCER_ID_BLOCK;
use crate::log::layout;
use crate::metadata::image;
use crate::metadata::records::Record;
use crate::metadata::store::CatalogStore;
use crate::metadata::topics::{
    CreateTopic, PlanContext, PlanError, plan_create, plan_create_partitions,
};
use crate::metrics::Limit;

/// The open catalog, on shard 0 only.
#[derive(Default)]
pub struct CatalogWriter {
    store: RefCell<Option<CatalogStore>>,
    busy: Cell<bool>,
    freed: Event,
}

impl CatalogWriter {
    /// Gives the writer its store.
    pub fn open(&self, store: CatalogStore) {
        self.store.replace(Some(store));
    }

    async fn take(&self) -> Option<CatalogStore> {
        loop {
            let seen = self.freed.generation();
            if !self.busy.replace(true) {
                return self.store.borrow_mut().take();
            }
            self.freed.wait(seen).await;
        }
    }

    fn give_back(&self, store: Option<CatalogStore>) {
        self.store.replace(store);
        self.busy.set(false);
        self.freed.notify();
    }
}

/// Makes a change; on shard 0 only.
pub async fn change(shard: &Rc<Shard>, change: CatalogChange) -> CatalogOutcome {
    assert_eq!(shard.id, ShardId(0), "shard 0 writes the catalog");
    let mut store = shard.catalog_writer.take().await;
    let outcome = match &mut store {
        Some(store) => apply(shard, store, change).await,
        None => CatalogOutcome::Failed,
    };
    shard.catalog_writer.give_back(store);
    outcome
}

async fn apply(
    shard: &Rc<Shard>,
    store: &mut CatalogStore,
    change: CatalogChange,
) -> CatalogOutcome {
    match change {
        CatalogChange::CreateTopics { topics, validate_only, automatic } => {
            create(shard, store, &topics, validate_only, automatic).await
        }
        CatalogChange::CreatePartitions { topics, validate_only } => {
            let plan = planned(shard, store, |context| {
                plan_create_partitions(context, &topics, validate_only)
            });
            let refused = plan.results.iter().filter_map(|result| result.as_ref().err());
            count_refusals(shard, refused);
            if plan.records.is_empty() || commit(shard, store, &plan.records).await {
                CatalogOutcome::MorePartitions(plan.results)
            } else {
                CatalogOutcome::Failed
            }
        }
        CatalogChange::DeleteTopics(ids) => {
            let mut codes = Vec::with_capacity(ids.len());
            for id in ids {
                codes.push(delete(shard, store, id).await);
            }
            CatalogOutcome::Deleted(codes)
        }
        CatalogChange::Alter(alteration) => {
            let plan = alteration.plan(store.image());
            let refused = plan.results.iter().filter_map(|result| result.as_ref().err());
            count_refusals(shard, refused);
            if plan.records.is_empty() || commit(shard, store, &plan.records).await {
                CatalogOutcome::Altered(plan.results)
            } else {
                CatalogOutcome::Failed
            }
        }
        CatalogChange::ReserveProducerIds => {
            let first = store.image().next_producer_id();
            let Some(next) = first.checked_add(PRODUCER_ID_BLOCK) else {
                return CatalogOutcome::Failed;
            };
            if commit(shard, store, &[Record::ProducerIdsReserved { next }]).await {
                CatalogOutcome::ProducerIds { first, count: PRODUCER_ID_BLOCK }
            } else {
                CatalogOutcome::Failed
            }
        }
    }
}

async fn create(
    shard: &Rc<Shard>,
    store: &mut CatalogStore,
    topics: &[CreateTopic],
    validate_only: bool,
    automatic: bool,
) -> CatalogOutcome {
    let plan = planned(shard, store, |context| plan_create(context, topics, validate_only));
    count_refusals(shard, plan.results.iter().filter_map(|result| result.as_ref().err()));
    if automatic {
        tracing::info!(topics = ?topics.iter().map(|t| &t.name).collect::<Vec<_>>(), "auto-create");
    }
    if plan.records.is_empty() || commit(shard, store, &plan.records).await {
        CatalogOutcome::Created(plan.results)
    } else {
        CatalogOutcome::Failed
    }
}

/// Counts the bounds that a request met, each once.
fn count_refusals<'a>(shard: &Shard, refused: impl Iterator<Item = &'a PlanError>) {
    let mut limits: Vec<Limit> = refused.filter_map(|error| error.limit).collect();
    limits.sort_unstable();
    limits.dedup();
    for limit in limits {
        shard.metrics.limit_reached(limit);
    }
}

/// Plans a change of topics against the catalog as it is.
fn planned<T>(
    shard: &Rc<Shard>,
    store: &CatalogStore,
    plan: impl FnOnce(&mut PlanContext<'_>) -> T,
) -> T {
    let image = store.image();
    let loads = image.partitions_per_shard(shard.context.shards);
    let mut random = || shard.runtime.random();
    let mut context = PlanContext {
        image,
        shards: shard.context.shards,
        shard_loads: &loads,
        random: &mut random,
    };
    plan(&mut context)
}

async fn delete(shard: &Rc<Shard>, store: &mut CatalogStore, id: TopicId) -> ErrorCode {
    let Some(topic) = store.image().topic_by_id(id).cloned() else {
        return ErrorCode::UnknownTopicId;
    };
    if !commit(shard, store, &[Record::TopicDeleting { id }]).await {
        return ErrorCode::KafkaStorageError;
    }
    let dropped = on_every_shard(shard, || Operation::DropTopic(id)).await;
    if !dropped || !commit(shard, store, &[Record::TopicNameFreed { id }]).await {
        // The name stays taken; the next start finishes the deletion.
        return ErrorCode::KafkaStorageError;
    }
    let deleted = Report::Deleted(Arc::clone(&topic.name));
    cleaner::progress::take_in(shard, deleted).await;
    finish_later(shard, topic);
    ErrorCode::None
}

/// Makes records durable and has every shard take them over.
async fn commit(shard: &Rc<Shard>, store: &mut CatalogStore, records: &[Record]) -> bool {
    match store.append(records).await {
        Ok(image) => {
            let image = Arc::new(image);
            on_every_shard(shard, || Operation::Publish(Arc::clone(&image))).await
        }
        Err(error) if error.is_full() => {
            tracing::warn!("the catalog cannot grow: {error}");
            false
        }
        Err(error) => {
            shard.storage_failed("the catalog failed", &io::Error::other(error));
            false
        }
    }
}

/// Has all shards do something at the same time; `true` when all of them did it.
async fn on_every_shard(shard: &Rc<Shard>, operation: impl Fn() -> Operation) -> bool {
    let others: Vec<_> = (0..shard.context.shards)
        .map(ShardId)
        .filter(|&other| other != shard.id)
        .map(|other| shard.links.call(other, operation()))
        .collect();
    let mut done = matches!(shard.perform_here(operation()).await, Reply::Done(true));
    for slot in others {
        done &= matches!(slot.take().await, Reply::Done(true));
    }
    done
}

/// Removes a deleted topic's files after the delay, and its tombstone once nothing names it.
fn finish_later(shard: &Rc<Shard>, topic: Arc<image::Topic>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let delay_ms = u64::try_from(topic.config.file_delete_delay_ms).unwrap_or(0);
        let due = shard.runtime.now().plus_ms(delay_ms);
        shard.runtime.sleep_until(due).await;
        for index in 0..topic.partition_count() {
            let partition = crate::ids::PartitionIndex(index);
            let data_dir = &shard.context.data_dir;
            let path = layout::deleted_directory(data_dir, &topic.name, partition, topic.id);
            if let Err(error) = unlink::remove_tree(&shard, &path).await {
                tracing::warn!("{}: {error}; removed at the next start", path.display());
            }
        }
        if !on_every_shard(&shard, || Operation::Checkpoint).await {
            return;
        }
        let Some(mut store) = shard.catalog_writer.take().await else { return };
        commit(&shard, &mut store, &[Record::TombstoneGone { id: topic.id }]).await;
        shard.catalog_writer.give_back(Some(store));
    }));
}

/// Drops this shard's partitions of a deleted topic: `true` when that is durable.
pub async fn drop_topic(shard: &Rc<Shard>, topic: TopicId) -> bool {
    group_offsets::topic_deleted(shard, topic).await;
    let partitions = shard.partitions_of(topic);
    for partition in &partitions {
        partition.set_availability(Availability::Dropping);
    }
    for partition in &partitions {
        if let Err(error) = drop_partition(shard, partition).await {
            tracing::error!(shard = %shard.id, "a deletion stopped: {error}");
            return false;
        }
    }
    let topics = layout::topics_directory(&shard.context.data_dir);
    partitions.is_empty() || shard.disk.sync_directory(&topics).await.is_ok()
}

async fn drop_partition(shard: &Rc<Shard>, partition: &Rc<Partition>) -> io::Result<()> {
    loop {
        let seen = partition.write_ended.generation();
        if !partition.writing.get() {
            break;
        }
        partition.write_ended.wait(seen).await;
    }
    let entry = [ControlEntry::PartitionDropped { tp: partition.id }];
    let sequence = loop {
        match shard.journal.append_control(&entry) {
            Ok(sequence) => break sequence,
            Err(failed) if shard.journal.failure().is_some() => {
                return Err(io::Error::other(failed));
            }
            // Even the space kept for control entries is used: a checkpoint gives some back.
            Err(_) => shard.checkpoints.request_and_wait().await?,
        }
    };
    shard.journal.wait(sequence).await.map_err(io::Error::other)?;
    if partition.directory_made.get() {
        let data_dir = &shard.context.data_dir;
        let name = Arc::clone(&partition.topic.borrow().name);
        let from = layout::partition_directory(data_dir, &name, partition.index());
        let to = layout::deleted_directory(data_dir, &name, partition.index(), partition.id.topic);
        shard.disk.rename(&from, &to).await?;
    }
    shard.forget(partition.id);
    Ok(())
}
