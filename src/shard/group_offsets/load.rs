//! Loading partitions of `__consumer_offsets`: the whole log, in order, into [`Groups`].
//!
//! Owns which partitions are here. One is read as far as it went when the reading began; commits
//! are refused until it is done, and markers that are appended meanwhile are taken over after it.
//! An empty one has nothing to read. Source: KIP-848's coordinator loader, and its replay.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::{Kept, LateMarker, Shard, State, consumers, delete_of_topic, members, newest_of};
use crate::batch::{BatchHeader, Marker, Record, decompressed_records};
use crate::coordinator::group::Groups;
use crate::coordinator::group::outcome::{Now, Timers};
use crate::coordinator::group::record::GroupRecord;
use crate::ids::{Offset, PartitionIndex, TopicPartition};
use crate::limits::COORDINATOR_RECORD_BYTES_MAX;
use crate::metadata::image::CONSUMER_OFFSETS;
use crate::shard::coordinator_log::{self, Step};

/// Starts the task that loads what the catalog gives this shard, one partition after another.
pub(super) fn start(shard: &Rc<Shard>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        loop {
            let seen = shard.catalog_changed.generation();
            for kept in new_here(&shard) {
                load(&shard, &kept).await;
            }
            shard.catalog_changed.wait(seen).await;
        }
    }));
}

/// The partition if it is here; an empty one is from its first use on.
pub(super) fn kept(shard: &Shard, id: TopicPartition) -> Option<Rc<Kept>> {
    let mut all = shard.group_offsets.kept.borrow_mut();
    if let Some(kept) = all.get(&id.partition).filter(|kept| kept.id == id) {
        return Some(Rc::clone(kept));
    }
    let partition = shard.partition(id)?;
    let log = partition.log.borrow();
    if log.log_start() < log.next_offset() {
        return None;
    }
    let kept = Kept::new(id, State::Ready(Groups::default()));
    all.insert(id.partition, Rc::clone(&kept));
    Some(kept)
}

/// Notes every partition that is new here, and returns those that have something to load.
fn new_here(shard: &Shard) -> Vec<Rc<Kept>> {
    let image = shard.catalog();
    let Some(topic) = image.topic(CONSUMER_OFFSETS) else { return Vec::new() };
    let mut to_load = Vec::new();
    for index in (0..topic.partition_count()).map(PartitionIndex) {
        let id = TopicPartition { topic: topic.id, partition: index };
        if topic.owner(index, shard.context.shards) == Some(shard.id) && kept(shard, id).is_none() {
            let kept = Kept::new(id, State::Loading(Vec::new()));
            shard.group_offsets.kept.borrow_mut().insert(index, Rc::clone(&kept));
            to_load.push(kept);
        }
    }
    to_load
}

async fn load(shard: &Rc<Shard>, kept: &Rc<Kept>) {
    match read_all(shard, kept.id).await {
        Ok((groups, end)) => {
            let mut timers = kept.loaded(groups, end, members::now(shard));
            let sessions = |group: &str| consumers::session_rules(shard, group);
            let of_consumers = kept.with_mut(|groups| groups.revive_consumers(&sessions));
            timers.extend(of_consumers.unwrap_or_default());
            for (group, timers) in timers {
                shard.group_offsets.timers.set_all(kept.id.partition, &group, timers);
            }
        }
        Err(error) => {
            tracing::error!(
                shard = %shard.id,
                "partition {} of {CONSUMER_OFFSETS} cannot be loaded, its groups are not served: \
                 {error}",
                kept.id.partition
            );
            kept.state.replace(State::Failed);
        }
    }
    // Topics that were deleted before, or while, this was loaded.
    let deleted: Vec<_> = shard.catalog().tombstones().map(|tombstone| tombstone.id).collect();
    for id in deleted {
        delete_of_topic(shard, kept, id).await;
    }
}

impl Kept {
    /// Takes over what was read up to `end`, and the markers that came after that. Sessions begin
    /// now.
    fn loaded(&self, mut groups: Groups, end: Offset, now: Now) -> Vec<(Arc<str>, Timers)> {
        let mut state = self.state.borrow_mut();
        if let State::Loading(late) = &mut *state {
            for LateMarker { offset, producer, kind } in late.drain(..) {
                if offset >= end {
                    groups.marker(producer, kind);
                }
            }
        }
        let timers = groups.revive(now);
        *state = State::Ready(groups);
        timers
    }
}

/// What the log says up to where it ends now, and that end.
async fn read_all(shard: &Rc<Shard>, id: TopicPartition) -> io::Result<(Groups, Offset)> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the partition is gone");
    let partition = shard.partition(id).ok_or_else(missing)?;
    let (mut next, end) = {
        let log = partition.log.borrow();
        (log.log_start(), log.next_offset())
    };
    shard.journal.wait(newest_of(shard, id)).await.map_err(io::Error::other)?;
    let mut groups = Groups::default();
    while next < end {
        next = match coordinator_log::step(shard, &partition, next, end).await? {
            Step::Batches(batches) => take_batches(shard, &mut groups, next, batches).await?,
            Step::GoOnAt(next) => next,
        };
        shard.runtime.yield_now().await;
    }
    Ok((groups, end))
}

/// Applies whole batches from `next` on; returns the offset after them.
async fn take_batches(
    shard: &Shard,
    groups: &mut Groups,
    mut next: Offset,
    mut batches: Bytes,
) -> io::Result<Offset> {
    while !batches.is_empty() {
        let header = BatchHeader::read(&batches).map_err(|fault| invalid(next, &fault))?;
        if header.total_bytes() > batches.len() {
            return Err(invalid(next, "a batch is cut short"));
        }
        let batch = batches.split_to(header.total_bytes());
        if header.is_control() {
            let records = decompressed_records(&header, &batch, COORDINATOR_RECORD_BYTES_MAX)
                .map_err(|fault| invalid(header.base_offset, &fault))?;
            let marker = Marker::read(&header, &records);
            if let Some(marker) = marker.map_err(|fault| invalid(header.base_offset, &fault))? {
                groups.marker(marker.producer_id, marker.kind);
            }
        } else {
            let producer = header.has_producer_id().then_some(header.producer_id);
            let take = |record: &Record<'_>| {
                let at = header.record_offset(record.offset_delta);
                let read = GroupRecord::decode(record.key.unwrap_or(&[]), record.value)
                    .map_err(|fault| invalid(at, &fault))?;
                groups.apply(at, producer, read);
                Ok(())
            };
            let all = coordinator_log::each_record(shard, &header, &batch, take).await;
            all.map_err(|error| invalid(header.base_offset, &error))?;
        }
        next = header.last_offset().plus(1);
    }
    Ok(next)
}

fn invalid(at: Offset, what: &(impl std::fmt::Display + ?Sized)) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("offset {at}: {what}"))
}
