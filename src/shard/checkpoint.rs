//! Checkpoints: what lets a shard reuse its journal, and what a start begins from.
//!
//! Owns the order of the four steps of a checkpoint: fix a journal point; take every dirty
//! partition's state exactly at an end offset and write its tail up to there; make files and names
//! durable; write the image durably. Only then is ring space released. Must never let an image
//! name bytes that are not synced, nor release space that an image does not cover.
//!
//! An error of the image or of a sync is terminal for the shard: nothing is retried as if clean.
//! Invariant: one checkpoint at a time; a clean one is the last of its boot.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use super::Shard;
use super::event::Event;
use super::partition::{Availability, Partition};
use super::{kafka_files, write_behind};
use crate::ids::{JournalSequence, Offset};
use crate::io::Monotonic;
use crate::journal::image::{Image, OfflineRow, PartitionRow};
use crate::journal::manifest;
use crate::journal::replay::Start;
use crate::journal::stranded::{self, StrandedEntry};
use crate::limits::CHECKPOINT_LOOK_MS;
use crate::log::producers::Producers;
use crate::log::segments::SegmentSet;

/// Requests for checkpoints, and news of them.
#[derive(Default)]
pub struct Checkpoints {
    requested: Cell<u64>,
    finished: Cell<u64>,
    request: Event,
    finish: Event,
    failed: Cell<bool>,
    taking: Cell<bool>,
    taken: Event,
    closed: Cell<bool>,
}

impl Checkpoints {
    /// Asks for a checkpoint that starts after this call.
    pub fn request(&self) {
        self.requested.set(self.requested.get() + 1);
        self.request.notify();
    }

    /// Asks for a checkpoint unless one is asked for and has not ended.
    pub fn request_once(&self) {
        if self.requested.get() == self.finished.get() {
            self.request();
        }
    }

    /// Asks for a checkpoint and waits until one that started after this call has ended.
    ///
    /// # Errors
    /// When it failed.
    pub async fn request_and_wait(&self) -> io::Result<()> {
        self.request();
        let wanted = self.requested.get();
        loop {
            let seen = self.finish.generation();
            if self.failed.get() {
                return Err(io::Error::other("a checkpoint of this shard has failed"));
            }
            if self.finished.get() >= wanted {
                return Ok(());
            }
            self.finish.wait(seen).await;
        }
    }
}

/// Starts the task that takes checkpoints.
pub fn start(shard: &Rc<Shard>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let interval_ms = shard.context.config.checkpoint_interval_ms;
        let mut due = shard.runtime.now().plus_ms(interval_ms);
        loop {
            wait_until_due(&shard, due).await;
            due = shard.runtime.now().plus_ms(interval_ms);
            let covers = shard.checkpoints.requested.get();
            if let Err(error) = take(&shard, false).await {
                shard.storage_failed("a checkpoint failed", &error);
                shard.checkpoints.failed.set(true);
                shard.checkpoints.finish.notify();
                return;
            }
            shard.checkpoints.finished.set(covers);
            shard.checkpoints.finish.notify();
        }
    }));
}

async fn wait_until_due(shard: &Rc<Shard>, due: Monotonic) {
    let checkpoints = &shard.checkpoints;
    loop {
        let seen = checkpoints.request.generation();
        let dirty = shard.all_partitions().iter().any(|partition| partition.dirty.get());
        if checkpoints.requested.get() > checkpoints.finished.get()
            || (shard.runtime.now() >= due && dirty)
        {
            return;
        }
        // When it is due and nothing is dirty, somebody has to look again.
        let now = shard.runtime.now();
        let next = if now < due { due } else { now.plus_ms(CHECKPOINT_LOOK_MS) };
        let timer = shard.runtime.sleep_until(next);
        futures_lite::future::or(checkpoints.request.wait(seen), timer).await;
    }
}

/// Takes one checkpoint, after one that is being taken. With `clean` the files are also cut to
/// their exact lengths and get Kafka's companion files, for a stop after which nothing is
/// replayed; later checkpoints do nothing then.
///
/// # Errors
/// What the disk says; the shard's storage has failed then.
pub async fn take(shard: &Rc<Shard>, clean: bool) -> io::Result<()> {
    let checkpoints = &shard.checkpoints;
    loop {
        let seen = checkpoints.taken.generation();
        if !checkpoints.taking.replace(true) {
            break;
        }
        checkpoints.taken.wait(seen).await;
    }
    let outcome = match checkpoints.closed.get() {
        true => Ok(()),
        false => timed(shard, clean).await,
    };
    checkpoints.closed.set(checkpoints.closed.get() || (clean && outcome.is_ok()));
    checkpoints.taking.set(false);
    checkpoints.taken.notify();
    outcome
}

async fn timed(shard: &Rc<Shard>, clean: bool) -> io::Result<()> {
    let began = shard.runtime.now();
    take_alone(shard, clean).await?;
    let took_ns = shard.runtime.now().0.saturating_sub(began.0);
    shard.metrics.checkpoint_time.record_ns(took_ns);
    Ok(())
}

async fn take_alone(shard: &Rc<Shard>, clean: bool) -> io::Result<()> {
    // (1) Everything in blocks from here on is replayed; everything before is in the image.
    let start = shard.journal.point();
    let placed_before = JournalSequence(start.sequence.0 - 1);
    // (2)
    for partition in shard.all_partitions().iter() {
        // An earlier checkpoint has left files as they are while they are written to.
        let is_open = partition.segments.borrow().active.is_some();
        let unfinished = clean && (is_open || kafka_files::are_due(partition));
        if unfinished || partition.dirty.get() || !partition.log.borrow().tail().is_empty() {
            capture(shard, partition, clean).await?;
        }
    }
    // (3)
    shard.space.sync(shard).await?;
    shard.journal.wait(placed_before).await.map_err(io::Error::other)?;
    // (4)
    let partitions = shard.all_partitions();
    let rows = partitions.iter().map(|partition| partition.row.borrow().clone());
    let rows = rows.filter(worth_a_row).collect();
    let start = Start { point: start, durable_through: shard.journal.durable_through() };
    let image = Image { boot: shard.context.boot, shard: shard.id, start, clean, rows };
    let path = shard.context.data_dir.join(manifest::image_path(shard.context.boot, shard.id));
    let content = image.encode();
    write_behind::retry_when_full(shard, || shard.disk.replace(&path, &content)).await?;
    for partition in partitions.iter() {
        let row = partition.row.borrow();
        partition.imaged_log_start.set(row.log_start);
        partition.imaged_base.set(row.segment_base);
    }
    shard.journal.release_through(start.point);
    shard.metrics.checkpoints.add(1);
    Ok(())
}

fn worth_a_row(row: &PartitionRow) -> bool {
    row.synced_end > Offset(0) || row.offline.is_some() || !row.epochs.is_empty()
}

/// Takes a partition's state exactly at its end, and writes its tail up to there.
async fn capture(shard: &Rc<Shard>, partition: &Rc<Partition>, clean: bool) -> io::Result<()> {
    let (end, mut row) = {
        // One turn: no append can come between the end and the state that belongs to it.
        let mut log = partition.log.borrow_mut();
        log.producers_mut().expire(shard.runtime.wall_ms());
        let end = log.next_offset();
        drop(log);
        partition.dirty.set(false);
        partition.write_limit.set(end);
        (end, row_at_end(partition))
    };
    let written = write_up_to(shard, partition, end, clean).await;
    partition.write_limit.set(Offset(i64::MAX));
    if *partition.availability.borrow() == Availability::Dropping {
        return Ok(());
    }
    if let Err(error) = written {
        return strand(shard, partition, &error).await;
    }
    name_last_segment(&mut row, &partition.segments.borrow());
    assert_eq!(row.synced_end, end, "a row is taken at one end");
    partition.row.replace(row);
    Ok(())
}

async fn write_up_to(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    end: Offset,
    clean: bool,
) -> io::Result<()> {
    let last = partition.block_place.get().0;
    shard.journal.wait(last).await.map_err(io::Error::other)?;
    write_behind::write_through(shard, partition, end).await?;
    // A deletion waits for this: once its directory has another name, its old one may be given
    // to another topic, whose files these would be.
    write_behind::hold(partition).await;
    let written = write_companions(shard, partition, clean).await;
    write_behind::release(partition);
    written
}

async fn write_companions(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    clean: bool,
) -> io::Result<()> {
    if !partition.is_online() {
        return Ok(());
    }
    if partition.segments.borrow().active.is_none() {
        // The segments of earlier boots are as they should be.
        if clean && partition.directory_made.get() {
            kafka_files::leave_empty_segment(shard, partition).await;
            kafka_files::write(shard, partition).await?;
        }
        return Ok(());
    }
    // The largest timestamp so far must not be lost with what the index does not cover yet.
    if let Some(active) = partition.segments.borrow_mut().active.as_mut() {
        active.index.seal();
    }
    if clean {
        write_behind::finish_files(shard, partition).await?;
        kafka_files::write(shard, partition).await
    } else {
        write_behind::write_indexes(shard, partition, false).await
    }
}

fn row_at_end(partition: &Partition) -> PartitionRow {
    let log = partition.log.borrow();
    let mut row = partition.row.borrow().clone();
    // What is appended and not yet durable too: its entry may lie before the image's journal point.
    row.log_start = log.log_start_appended();
    row.synced_end = log.next_offset();
    row.epochs = log.epochs().entries().to_vec();
    row.producers = Producers::to_rows(log.producers());
    row
}

/// A partition that cannot be written keeps its evidence aside, so that it never pins the ring.
async fn strand(shard: &Rc<Shard>, partition: &Rc<Partition>, error: &io::Error) -> io::Result<()> {
    if let Some(failed) = shard.journal.failure() {
        return Err(io::Error::other(failed));
    }
    // From here on nothing is appended, and once a write in progress has ended nobody writes: what
    // the row says of the segments and what is kept aside meet at one offset.
    partition.set_availability(Availability::Offline(error.to_string()));
    write_behind::hold(partition).await;
    let stranded = strand_alone(shard, partition, error).await;
    write_behind::release(partition);
    stranded
}

async fn strand_alone(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    error: &io::Error,
) -> io::Result<()> {
    if *partition.availability.borrow() == Availability::Dropping {
        return Ok(());
    }
    let before = partition.row.borrow().offline.as_ref().map(|row| row.stranded_bytes);
    if before.is_none() {
        // What did reach the segments is left to them: it is in memory no more.
        let row = row_at_written_end(partition);
        partition.row.replace(row);
    }
    let mut stranded_bytes = before.unwrap_or(0);
    let (records, end) = stranded_records(partition, stranded_bytes);
    if !records.is_empty() {
        stranded_bytes = keep_aside(shard, partition, stranded_bytes, &records).await?;
        partition.log.borrow_mut().stranded_through(end);
    }
    let reason = error.to_string();
    partition.row.borrow_mut().offline = Some(OfflineRow { reason, stranded_bytes });
    Ok(())
}

/// Its row with everything that its segments hold, and no more. Its producers and epochs are those
/// of the end: recovery knows the batches kept aside again by them. Their transactions are those of
/// the segments' end: how they end is kept aside. The index of aborted transactions has the length
/// that it should have, written or not: recovery makes it again where it is shorter.
fn row_at_written_end(partition: &Partition) -> PartitionRow {
    let mut row = row_at_end(partition);
    let segments = partition.segments.borrow();
    let log = partition.log.borrow();
    row.synced_end = log.written_end();
    row.producers = log.producers().to_rows_with_transactions_at(log.written_end());
    name_last_segment(&mut row, &segments);
    if let Some(active) = segments.active.as_ref().filter(|active| active.written_bytes > 0) {
        row.transaction_index_bytes = active.aborted.bytes_below(log.written_end());
    }
    row
}

/// Names the segment that the written end lies in. The row knows it already if it is of an earlier
/// boot, and needs none if nothing is left.
fn name_last_segment(row: &mut PartitionRow, segments: &SegmentSet) {
    match (&segments.active, segments.sealed.last_key_value()) {
        (Some(active), _) if active.written_bytes > 0 => {
            row.segment_base = active.base;
            row.segment_bytes = active.written_bytes;
            row.set_index_bytes(active.index_bytes_on_disk);
        }
        (_, Some((&base, sealed)))
            if base != row.segment_base || sealed.bytes != row.segment_bytes =>
        {
            row.segment_base = base;
            row.segment_bytes = sealed.bytes;
            // A segment sealed in this boot has its whole index in memory and on disk.
            row.set_index_bytes(sealed.index_bytes());
        }
        _ => {}
    }
}

/// Adds records to a partition's stranded file, of which `vouched` bytes count: whatever follows
/// them was left by a boot that no image tells of. Returns how many count now.
async fn keep_aside(
    shard: &Rc<Shard>,
    partition: &Partition,
    vouched: u64,
    records: &[u8],
) -> io::Result<u64> {
    let data_dir = &shard.context.data_dir;
    let path = data_dir.join(manifest::stranded_path(partition.id));
    let mut content = match vouched {
        0 => Vec::new(),
        _ => shard.disk.read(&path).await?,
    };
    content.truncate(usize::try_from(vouched).unwrap_or(usize::MAX));
    content.extend_from_slice(records);
    shard.disk.create_directory(&data_dir.join(manifest::stranded_directory())).await?;
    shard.disk.sync_directory(&data_dir.join(manifest::journal_directory())).await?;
    write_behind::retry_when_full(shard, || shard.disk.replace(&path, &content)).await?;
    Ok(content.len() as u64)
}

/// What the stranded file lacks: the journaled batches that are in no segment. Epochs need no
/// record: the first batch of each shows it.
fn stranded_records(partition: &Partition, before: u64) -> (Vec<u8>, Offset) {
    let log = partition.log.borrow();
    let mut out = Vec::new();
    for batch in log.tail().from_offset(log.written_end()) {
        if batch.last_offset >= log.high_watermark() {
            break;
        }
        if out.is_empty() && before == 0 {
            out = stranded::encode_head(partition.id);
        }
        let mut slices = Vec::new();
        batch.slices(&mut slices);
        let bytes = slices.concat().into();
        let entry = StrandedEntry::Batch { append_ms: batch.append_ms, bytes };
        stranded::encode_record(&entry, before + out.len() as u64, &mut out);
    }
    (out, log.high_watermark())
}
