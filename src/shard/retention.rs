//! Retention at work: the walk over a shard's partitions that deletes what is too old or too much.
//!
//! Owns when it runs, and the order in one partition: the decision and its journal entry in one
//! turn; once the entry is durable, the segments leave the log. Looks at memory only, but for the
//! age of a segment of an earlier boot, which is read once. Walks in slices between which others
//! run, and costs nothing between two walks. Compacted topics are walked too, for what
//! DeleteRecords left. The rules are those of [`crate::log::retention`].

use std::io;
use std::rc::Rc;

use super::Shard;
use super::append::wait_for_control_room;
use super::log_start::{self, Moved};
use super::partition::Partition;
use super::{kafka_files, offsets, segment_removal, write_behind};
use crate::error_code::ErrorCode;
use crate::ids::Offset;
use crate::io::OpenMode;
use crate::limits::{BLOCK_ALIGN, RETENTION_SLICE};
use crate::log::Log;
use crate::log::index::{TIME_ENTRY_BYTES, read_time_entry};
use crate::log::layout::SegmentFile;
use crate::log::retention::{Bounds, HeldSegment, Wanted, wanted_start};
use crate::log::segments::{ActiveSegment, PlacedBatch, SegmentSet};
use crate::log::tail::TailBatch;

/// Starts the task that walks.
pub fn start(shard: &Rc<Shard>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let config = &shard.context.config;
        let interval_ms = u64::try_from(config.log_retention_check_interval_ms).unwrap_or(0);
        let first_ms = u64::try_from(config.log_initial_task_delay_ms).unwrap_or(0);
        let mut due = shard.runtime.now().plus_ms(first_ms);
        loop {
            let timer = shard.runtime.sleep_until(due);
            futures_lite::future::or(timer, shard.stopped()).await;
            if shard.is_stopping() {
                return;
            }
            walk(&shard).await;
            due = shard.runtime.now().plus_ms(interval_ms);
        }
    }));
}

/// Looks at every partition once.
pub async fn walk(shard: &Rc<Shard>) {
    let partitions = shard.all_partitions();
    for slice in partitions.chunks(RETENTION_SLICE) {
        let mut found = Vec::new();
        for partition in slice {
            if shard.is_stopping() {
                return;
            }
            if let Ok(Some(expired)) = look(shard, partition).await {
                found.push((partition, expired));
            }
        }
        let newest = found.iter().map(|(_, expired)| expired.moved.durable_at).max();
        if shard.durable(newest.unwrap_or_default()).await.is_err() {
            return;
        }
        for (partition, expired) in found {
            finish(shard, partition, &expired).await;
        }
        shard.runtime.yield_now().await;
    }
}

/// What a look has found to delete.
struct Expired {
    moved: Moved,
    /// The open segment goes too.
    all: bool,
}

/// Decides, and notes a new log start in the journal in the same turn; `None` if all may stay.
async fn look(shard: &Rc<Shard>, partition: &Rc<Partition>) -> Result<Option<Expired>, ErrorCode> {
    // On a full disk that might wait for what this walk is to free.
    if !shard.space.is_full() && is_held_back(partition, shard.runtime.wall_ms()) {
        // One that fails has taken the partition offline.
        let _ = write_behind::write_through(shard, partition, Offset(i64::MAX)).await;
    }
    while partition.is_online() && !partition.cleaning.get() {
        match wanted(partition, shard.runtime.wall_ms()) {
            Wanted::AgeOf(base) => learn_age(shard, partition, base).await?,
            Wanted::Start { offset, all } => {
                let first = partition.segments.borrow().bases().next();
                if offset == Offset(0) || first.is_some_and(|first| first >= offset) {
                    return Ok(None);
                }
                if let Some(moved) = log_start::advance(shard, partition, offset)? {
                    return Ok(Some(Expired { moved, all }));
                }
                wait_for_control_room(shard).await?;
            }
        }
    }
    Ok(None)
}

/// Whether what is in memory only would be in segments of its own by now, which might go: small
/// partitions are written late.
fn is_held_back(partition: &Partition, now_ms: i64) -> bool {
    let rules = partition.topic.borrow().config.retention_rules();
    let log = partition.log.borrow();
    let Some(oldest) = log.tail().from_offset(log.written_end()).next() else { return false };
    let segments = partition.segments.borrow();
    let ends_segment = segments.active.as_ref().is_some_and(|active| {
        let rules = partition.topic.borrow().config.segment_rules();
        active.must_roll(&PlacedBatch::of(oldest), &rules)
    });
    let too_much =
        rules.bytes.is_some_and(|kept| segments.total_bytes() + log.tail().bytes() as u64 > kept);
    let age_ms = now_ms.saturating_sub(timestamp_of(oldest));
    let too_old = rules.ms.is_some_and(|kept_ms| age_ms > kept_ms);
    let may_delete = !rules.keep_all() && ends_segment;
    partition.is_online() && (may_delete || too_much || too_old)
}

/// The new start is durable: the files may go.
async fn finish(shard: &Rc<Shard>, partition: &Rc<Partition>, expired: &Expired) {
    log_start::show(partition, expired.moved.start);
    if expired.all && partition.is_online() && !shard.space.is_full() {
        // Only what is sealed can leave. One that cannot be written has gone offline by that.
        let _ = write_behind::seal_at(shard, partition, expired.moved.start).await;
    }
    let is_empty = partition.log.borrow().next_offset() == expired.moved.start;
    if is_empty && !shard.space.is_full() {
        write_behind::hold(partition).await;
        kafka_files::leave_empty_segment(shard, partition).await;
        write_behind::release(partition);
    }
    // Whoever reads goes on to the end with what it has found.
    let _alone = partition.segment_use.alone().await;
    if !partition.cleaning.get() {
        segment_removal::remove_below_start(shard, partition);
    }
}

fn wanted(partition: &Partition, now_ms: i64) -> Wanted {
    let rules = partition.topic.borrow().config.retention_rules();
    let log = partition.log.borrow();
    let segments = partition.segments.borrow();
    let bounds = Bounds {
        log_start: log.log_start_appended(),
        high_watermark: log.high_watermark(),
        end: log.next_offset(),
    };
    let tail_bytes = log.tail().bytes() as u64;
    let active = segments.active.as_ref();
    let mut open = HeldSegment {
        base: active.map_or(log.written_end(), |active| active.base),
        bytes: active.map_or(0, |active| active.written_bytes) + tail_bytes,
        newest_ms: None,
    };
    let total_bytes = segments.total_bytes() + tail_bytes;
    loop {
        let sealed = segments.sealed.iter().map(|(&base, sealed)| HeldSegment {
            base,
            bytes: sealed.bytes,
            newest_ms: sealed.newest_ms,
        });
        let held = sealed.chain([open]);
        match wanted_start(held, total_bytes, &bounds, &rules, now_ms) {
            Wanted::AgeOf(base) if base == open.base => {
                open.newest_ms = Some(newest_of_open(&log, &segments));
            }
            wanted => return wanted,
        }
    }
}

/// The timestamp that the age of the open segment, with what is in memory only, is counted from.
fn newest_of_open(log: &Log, segments: &SegmentSet) -> i64 {
    let in_memory = log.tail().from_offset(log.written_end());
    let written = segments.active.as_ref().filter(|active| active.placed_bytes > 0);
    in_memory
        .map(timestamp_of)
        .chain(written.map(ActiveSegment::newest_ms))
        .max()
        .unwrap_or(i64::MAX)
}

/// The timestamp that a batch's age is counted from.
fn timestamp_of(batch: &TailBatch) -> i64 {
    match batch.max_timestamp_ms {
        newest if newest >= 0 => newest,
        _ => batch.append_ms,
    }
}

/// Finds out how old a segment of an earlier boot is.
async fn learn_age(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> Result<(), ErrorCode> {
    let newest_ms = match newest_ms(shard, partition, base).await {
        Ok(newest_ms) => newest_ms,
        Err(error) => {
            if partition.segments.borrow().sealed.contains_key(&base) {
                tracing::warn!(shard = %shard.id, "the age of a segment is unknown: {error}");
            }
            return Err(ErrorCode::KafkaStorageError);
        }
    };
    if let Some(sealed) = partition.segments.borrow_mut().sealed.get_mut(&base) {
        sealed.newest_ms = Some(newest_ms);
    }
    Ok(())
}

/// Its last time entry says it: one is made when a segment is sealed, and for every image. Where
/// the index is gone the batches are asked, and where no record has a timestamp the file.
async fn newest_ms(shard: &Rc<Shard>, partition: &Rc<Partition>, base: Offset) -> io::Result<i64> {
    let newest = match last_time_entry(shard, partition, base).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            offsets::largest_timestamp(shard, partition, base).await?
        }
        newest => newest?,
    };
    if newest >= 0 {
        return Ok(newest);
    }
    let path = write_behind::segment_path(shard, partition, SegmentFile::Log, base);
    let file = shard.disk.open(&path, OpenMode::default()).await?;
    let modified_ms = file.modified_ms().await;
    file.close().await?;
    modified_ms
}

/// The timestamp of the last entry of a segment's time index; -1 if it has none.
async fn last_time_entry(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<i64> {
    let path = write_behind::segment_path(shard, partition, SegmentFile::TimeIndex, base);
    let file = shard.disk.open(&path, OpenMode::default()).await?;
    let length = file.length().await?;
    let entries = length / TIME_ENTRY_BYTES as u64;
    let Some(last) = entries.checked_sub(1) else {
        file.close().await?;
        return Ok(-1);
    };
    let at = last * TIME_ENTRY_BYTES as u64;
    let start = at / BLOCK_ALIGN as u64 * BLOCK_ALIGN as u64;
    // An entry may lie across two blocks.
    let bytes = file.read_at(start, 2 * BLOCK_ALIGN).await?;
    file.close().await?;
    let entry = usize::try_from(at - start).ok().and_then(|at| bytes.get(at..));
    let entry = entry.and_then(read_time_entry);
    let torn = || io::Error::new(io::ErrorKind::InvalidData, format!("{}: cut", path.display()));
    entry.map(|(timestamp_ms, _)| timestamp_ms).ok_or_else(torn)
}
