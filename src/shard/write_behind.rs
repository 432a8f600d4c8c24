//! Moves journaled batches from memory to segment files, in large aligned writes, never inline in
//! an append.
//!
//! Owns the write-behind queue and the writing of one partition's segments: placing batches,
//! rolling, rewriting the last partial block with its prefix byte-identical, allocating ahead,
//! and index files. Must never write a byte that is not durable in the journal, and never let two
//! tasks write one partition. A full disk holds the writer until space returns; any other failure
//! takes the partition offline, with its entries kept aside.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::Shard;
use super::event::Event;
use super::partition::{Availability, Partition};
use crate::ids::Offset;
use crate::io::{AlignedBuffer, File, OpenMode};
use crate::limits::{
    BLOCK_ALIGN, SEGMENT_ALLOCATE_BYTES, SEGMENT_WRITE_BYTES_MAX, SEGMENT_WRITERS_MAX,
    WRITE_BEHIND_BYTES,
};
use crate::log::layout::{self, SegmentFile};
use crate::log::segments::{ActiveSegment, PlacedBatch, SegmentRules};
use crate::log::tail::TailBatch;
use crate::log::transactions::EndedTransaction;
use crate::metrics::Counter;

/// Partitions whose tail waits to be written.
#[derive(Default)]
pub struct WriteBehind {
    queue: RefCell<VecDeque<Rc<Partition>>>,
    queued: Event,
    /// Partitions with a tail, oldest first: who is written when memory gets short.
    with_tail: RefCell<VecDeque<Rc<Partition>>>,
    /// Writers that have something to do.
    busy: Cell<usize>,
    crowded: Counter,
}

impl WriteBehind {
    /// How often a partition was queued while all writers were busy.
    #[must_use]
    pub fn crowded(&self) -> u64 {
        self.crowded.get()
    }

    /// Queues the partition unless it is queued already. One that a writer has in hand is queued
    /// when that writer is done: another could only wait for it.
    pub fn queue(&self, partition: &Rc<Partition>) {
        if !partition.write_queued.replace(true) && !partition.has_writer.get() {
            self.push(partition);
        }
    }

    fn push(&self, partition: &Rc<Partition>) {
        self.crowded.add(u64::from(self.busy.get() >= SEGMENT_WRITERS_MAX));
        self.queue.borrow_mut().push_back(Rc::clone(partition));
        self.queued.notify();
    }

    /// Queues the partition if enough of its tail is unwritten.
    pub fn queue_if_due(&self, partition: &Rc<Partition>) {
        if partition.unwritten_bytes() >= WRITE_BEHIND_BYTES {
            self.queue(partition);
        }
    }

    /// Notes that the partition has batches in memory.
    pub fn note_tail(&self, partition: &Rc<Partition>) {
        if !partition.has_tail.replace(true) {
            self.with_tail.borrow_mut().push_back(Rc::clone(partition));
        }
    }

    /// Memory is short: queues the partition whose tail is oldest. Called on every append while
    /// it is short, so that one call need not do more.
    pub fn relieve(&self) {
        for _ in 0..RELIEVED_AT_ONCE {
            let Some(partition) = self.with_tail.borrow_mut().pop_front() else { return };
            partition.has_tail.set(false);
            self.queue(&partition);
        }
    }

    /// Hands the next partition to a writer.
    fn next(&self) -> Option<InHand<'_>> {
        let partition = self.queue.borrow_mut().pop_front()?;
        partition.write_queued.set(false);
        partition.has_writer.set(true);
        self.busy.set(self.busy.get() + 1);
        Some(InHand { of: self, partition })
    }
}

/// The partition that a writer writes.
struct InHand<'a> {
    of: &'a WriteBehind,
    partition: Rc<Partition>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.of.busy.set(self.of.busy.get() - 1);
        self.partition.has_writer.set(false);
        if self.partition.write_queued.get() {
            self.of.push(&self.partition);
        }
    }
}

/// Starts the shard's writers.
pub fn start(shard: &Rc<Shard>) {
    for _ in 0..SEGMENT_WRITERS_MAX {
        let shard = Rc::clone(shard);
        let runtime = Rc::clone(&shard.runtime);
        runtime.spawn(Box::pin(async move {
            loop {
                let seen = shard.write_behind.queued.generation();
                match shard.write_behind.next() {
                    Some(in_hand) => {
                        let partition = &in_hand.partition;
                        // What is not durable yet cannot be written; a failed journal never is.
                        let newest = partition.block_place.get().0;
                        if shard.journal.wait(newest).await.is_err() {
                            continue;
                        }
                        // A failure has taken the partition offline; nothing is left to do here.
                        let _ = write_through(&shard, partition, Offset(i64::MAX)).await;
                    }
                    None => shard.write_behind.queued.wait(seen).await,
                }
            }
        }));
    }
}

/// Writes everything journaled below `target` to the partition's segments.
///
/// # Errors
/// The failure that took the partition offline, now or before.
pub async fn write_through(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    target: Offset,
) -> io::Result<()> {
    hold(partition).await;
    let result = write_steps(shard, partition, target).await;
    release(partition);
    if let Err(error) = &result {
        shard.take_offline(partition, &format!("its segment cannot be written: {error}"));
    }
    shard.journal.memory_changed();
    result
}

/// Waits until nobody writes the partition's files, and keeps others from it.
pub async fn hold(partition: &Partition) {
    loop {
        let seen = partition.write_ended.generation();
        if !partition.writing.replace(true) {
            return;
        }
        partition.write_ended.wait(seen).await;
    }
}

/// Lets others write the partition's files again.
pub fn release(partition: &Partition) {
    partition.writing.set(false);
    partition.write_ended.notify();
}

async fn write_steps(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    target: Offset,
) -> io::Result<()> {
    let rules = shard.segment_rules(partition);
    loop {
        match *partition.availability.borrow() {
            Availability::Online => {}
            Availability::Dropping => return Ok(()),
            Availability::Offline(ref reason) => return Err(io::Error::other(reason.clone())),
        }
        match next_step(partition, &rules, target) {
            Step::Done => return Ok(()),
            Step::Roll { base, append_ms } => {
                let jitter_ms = rules.jitter_ms(shard.runtime.random());
                seal(shard, partition).await?;
                partition.segments.borrow_mut().roll(base, append_ms, jitter_ms);
            }
            Step::Write(chunk) => write_chunk(shard, partition, chunk).await?,
        }
    }
}

/// What the writer does next.
enum Step {
    Done,
    /// Seal the active segment, if any, and start one.
    Roll {
        /// Its base.
        base: Offset,
        /// When its first batch was appended.
        append_ms: i64,
    },
    Write(Chunk),
}

/// Batches that go to the active segment in one go.
struct Chunk {
    /// Where the first byte of `slices` goes; a multiple of the block size.
    position: u64,
    /// The bytes kept from the last partial block, then the batches.
    slices: Vec<Bytes>,
    length: usize,
    /// Everything below it is written then.
    end: Offset,
}

fn next_step(partition: &Partition, rules: &SegmentRules, target: Offset) -> Step {
    let log = partition.log.borrow();
    let mut segments = partition.segments.borrow_mut();
    let bound = log.high_watermark().min(target).min(partition.write_limit.get());
    let mut pending = log
        .tail()
        .from_offset(log.written_end())
        .take_while(|batch| batch.last_offset < bound)
        .peekable();
    let Some(first) = pending.peek() else { return Step::Done };
    let roll_at =
        |batch: &TailBatch| Step::Roll { base: batch.base_offset, append_ms: batch.append_ms };
    let Some(active) = segments.active.as_mut() else { return roll_at(first) };
    let mut chunk = Chunk {
        position: active.next_write_position(),
        slices: vec![Bytes::copy_from_slice(&active.last_block)],
        length: active.last_block.len(),
        end: log.written_end(),
    };
    for batch in pending {
        let placed = PlacedBatch::of(batch);
        let empty = chunk.slices.len() == 1;
        if active.must_roll(&placed, rules) {
            if empty {
                return roll_at(batch);
            }
            break;
        }
        if !empty && chunk.length + batch.bytes > SEGMENT_WRITE_BYTES_MAX {
            break;
        }
        active.place(&placed, rules);
        batch.slices(&mut chunk.slices);
        chunk.length += batch.bytes;
        chunk.end = batch.last_offset.plus(1);
    }
    let ended = log.producers().transactions().ended_from(log.written_end());
    let placed = ended.take_while(|ended| ended.marker_offset < chunk.end);
    active.note_aborted(placed.filter_map(EndedTransaction::aborted));
    Step::Write(chunk)
}

async fn write_chunk(shard: &Rc<Shard>, partition: &Rc<Partition>, chunk: Chunk) -> io::Result<()> {
    let base = active_base(partition);
    let file = open_segment(shard, partition, base).await?;
    let end_position = chunk.position + chunk.length as u64;
    allocate_ahead(shard, partition, &file, end_position).await?;
    let mut source = SliceCursor { slices: &chunk.slices, slice: 0, at: 0 };
    let mut position = chunk.position;
    let mut last_block = Vec::new();
    while position < end_position {
        let length = usize::try_from(end_position - position)
            .unwrap_or(usize::MAX)
            .min(SEGMENT_WRITE_BYTES_MAX);
        let mut buffer = AlignedBuffer::with_capacity(length.next_multiple_of(BLOCK_ALIGN));
        source.copy_to(&mut buffer, length);
        buffer.pad();
        if position + length as u64 == end_position {
            last_block = buffer[length / BLOCK_ALIGN * BLOCK_ALIGN..length].to_vec();
        }
        let buffer = Arc::new(buffer);
        retry_when_full(shard, || file.write_at(Arc::clone(&buffer), position)).await?;
        position += length as u64;
    }
    shard.metrics.segment_bytes_written.add(end_position - chunk.position);
    {
        let mut segments = partition.segments.borrow_mut();
        let active = segments.active.as_mut().expect("invariant: only this task rolls");
        active.written_to(end_position, last_block);
    }
    partition.log.borrow_mut().written_through(chunk.end);
    Ok(())
}

async fn allocate_ahead(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    file: &Rc<dyn File>,
    end_position: u64,
) -> io::Result<()> {
    let allocated = active(partition, |active| active.allocated_bytes);
    // Small partitions are left alone: thousands of them would waste gigabytes.
    if end_position <= allocated || end_position < SEGMENT_ALLOCATE_BYTES / 4 {
        return Ok(());
    }
    let wanted = end_position.next_multiple_of(SEGMENT_ALLOCATE_BYTES);
    retry_when_full(shard, || file.allocate(allocated, wanted - allocated)).await?;
    active(partition, |active| active.allocated_bytes = wanted);
    Ok(())
}

/// Ends the active segment, if there is one.
async fn seal(shard: &Rc<Shard>, partition: &Rc<Partition>) -> io::Result<()> {
    let base = partition.segments.borrow().active.as_ref().map(|active| active.base);
    let Some(base) = base else { return Ok(()) };
    active(partition, |active| active.index.seal());
    finish_files(shard, partition).await?;
    shard.files.borrow_mut().close(partition.id, base);
    partition.segments.borrow_mut().seal();
    Ok(())
}

/// Has the active segment end at `end`, if it does not reach beyond it: writes what is below, and
/// leaves it to the next batch to start another segment.
///
/// # Errors
/// The failure that took the partition offline, now or before.
pub async fn seal_at(shard: &Rc<Shard>, partition: &Rc<Partition>, end: Offset) -> io::Result<()> {
    write_through(shard, partition, end).await?;
    hold(partition).await;
    let ends_there = partition.log.borrow().written_end() == end
        && partition.segments.borrow().active.as_ref().is_some_and(|active| active.base < end);
    let sealed = match ends_there && partition.is_online() {
        true => seal(shard, partition).await,
        false => Ok(()),
    };
    release(partition);
    if let Err(error) = &sealed {
        shard.take_offline(partition, &format!("its segment cannot be written: {error}"));
    }
    sealed
}

/// Cuts the active segment's files to their length and writes its indexes; nothing is synced.
///
/// # Errors
/// What the disk says.
pub async fn finish_files(shard: &Rc<Shard>, partition: &Rc<Partition>) -> io::Result<()> {
    let base = active_base(partition);
    let file = open_segment(shard, partition, base).await?;
    let length = active(partition, |active| active.written_bytes);
    retry_when_full(shard, || file.set_length(length)).await?;
    active(partition, |active| active.allocated_bytes = 0);
    write_indexes(shard, partition, true).await
}

/// Writes what the active segment's index files lack; with `exact` cuts them to their length.
///
/// # Errors
/// What the disk says.
pub async fn write_indexes(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    exact: bool,
) -> io::Result<()> {
    let base = active_base(partition);
    let (lengths, files) = active(partition, |active| {
        let on_disk = active.index_bytes_on_disk;
        let files = [
            (SegmentFile::Index, on_disk.offsets, active.index.encode_offsets(0)),
            (SegmentFile::TimeIndex, on_disk.times, active.index.encode_times(0)),
            (SegmentFile::TransactionIndex, on_disk.aborted, active.aborted.encode()),
        ];
        (active.index_bytes(), files)
    });
    for (kind, written, content) in files {
        // As in Kafka, there is no file of aborted transactions where there is none to name.
        let none = kind == SegmentFile::TransactionIndex && content.is_empty();
        if none || (content.len() == written as usize && !exact) {
            continue;
        }
        let path = segment_path(shard, partition, kind, base);
        write_index(shard, &path, &content, written, exact).await?;
    }
    active(partition, |active| active.index_bytes_on_disk = lengths);
    Ok(())
}

/// Writes the content of an index file from the block on that holds byte `written`.
async fn write_index(
    shard: &Rc<Shard>,
    path: &Path,
    content: &[u8],
    written: u32,
    exact: bool,
) -> io::Result<()> {
    let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
    let file = retry_when_full(shard, || shard.disk.open(path, mode)).await?;
    let start = written as usize / BLOCK_ALIGN * BLOCK_ALIGN;
    if content.len() > start {
        let length = content.len() - start;
        let mut buffer = AlignedBuffer::with_capacity(length.next_multiple_of(BLOCK_ALIGN));
        buffer.extend_from_slice(&content[start..]);
        buffer.pad();
        let buffer = Arc::new(buffer);
        retry_when_full(shard, || file.write_at(Arc::clone(&buffer), start as u64)).await?;
    }
    if exact {
        retry_when_full(shard, || file.set_length(content.len() as u64)).await?;
    }
    file.close().await
}

/// Opens a segment's log, making its directory first.
///
/// # Errors
/// What the disk says.
pub async fn open_segment(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<Rc<dyn File>> {
    if let Some(file) = shard.files.borrow_mut().get(partition.id, base) {
        return Ok(file);
    }
    if !partition.directory_made.get() {
        make_directory(shard, partition).await?;
    }
    let path = segment_path(shard, partition, SegmentFile::Log, base);
    let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
    let file = retry_when_full(shard, || shard.disk.open(&path, mode)).await?;
    shard.files.borrow_mut().put(partition.id, base, Rc::clone(&file));
    Ok(file)
}

async fn make_directory(shard: &Rc<Shard>, partition: &Rc<Partition>) -> io::Result<()> {
    let name = partition.topic.borrow().name.to_string();
    let data_dir = &shard.context.data_dir;
    let temporary = layout::temporary_directory(data_dir, partition.id.topic, partition.index());
    let path = layout::partition_directory(data_dir, &name, partition.index());
    let metadata = layout::partition_metadata(partition.id.topic);
    retry_when_full(shard, || shard.disk.create_directory(&temporary)).await?;
    let file = temporary.join(layout::PARTITION_METADATA);
    retry_when_full(shard, || shard.disk.write(&file, metadata.as_bytes())).await?;
    retry_when_full(shard, || shard.disk.sync_directory(&temporary)).await?;
    retry_when_full(shard, || shard.disk.rename(&temporary, &path)).await?;
    partition.directory_made.set(true);
    Ok(())
}

/// Path of one of a partition's segment files.
#[must_use]
pub fn segment_path(
    shard: &Shard,
    partition: &Partition,
    kind: SegmentFile,
    base: Offset,
) -> PathBuf {
    let topic = partition.topic.borrow();
    layout::partition_directory(&shard.context.data_dir, &topic.name, partition.index())
        .join(kind.name(base))
}

/// Runs a disk operation; while the disk is full, waits for space and tries again.
///
/// # Errors
/// Any other failure; a full disk only when the shard is stopping.
pub async fn retry_when_full<'a, T>(
    shard: &'a Rc<Shard>,
    mut operation: impl FnMut() -> crate::io::LocalFuture<'a, io::Result<T>>,
) -> io::Result<T> {
    loop {
        match operation().await {
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                shard.space.wait_for_space(shard, &error).await?;
            }
            other => return other,
        }
    }
}

fn active_base(partition: &Partition) -> Offset {
    active(partition, |active| active.base)
}

fn active<T>(partition: &Partition, f: impl FnOnce(&mut ActiveSegment) -> T) -> T {
    let mut segments = partition.segments.borrow_mut();
    f(segments.active.as_mut().expect("invariant: there is an active segment"))
}

/// Reads a list of slices as one stream of bytes.
struct SliceCursor<'a> {
    slices: &'a [Bytes],
    slice: usize,
    at: usize,
}

impl SliceCursor<'_> {
    /// Appends the next `length` bytes to `out`.
    fn copy_to(&mut self, out: &mut AlignedBuffer, mut length: usize) {
        while length > 0 {
            let rest = &self.slices[self.slice][self.at..];
            let count = rest.len().min(length);
            out.stream_from_slice(&rest[..count]);
            length -= count;
            self.at += count;
            if self.at == self.slices[self.slice].len() {
                self.slice += 1;
                self.at = 0;
            }
        }
    }
}

/// Partitions queued by one call when memory is short: more than one append adds.
const RELIEVED_AT_ONCE: usize = 2;
