//! Reading batches back: from the in-memory tail, or from segments through a chunk cache.
//!
//! Owns the read cache and the walk over batch headers. Returns whole batches only, as slices of
//! blocks or of cached chunks, never copies except where a batch crosses the last partial block.
//! Must never read from disk at or above the active segment's last block boundary: those bytes
//! are in memory.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::message::{ReadOutcome, ReadPart, ReadParts};
use super::partition::{Availability, Partition};
use super::{Shard, offsets, write_behind};
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, ProducerId, TopicPartition};
use crate::io::OpenMode;
use crate::limits::{BLOCK_ALIGN, READ_AHEAD_CHUNKS, READ_CHUNK_BYTES};
use crate::log::Log;
use crate::log::aborted::{AbortedIndex, AbortedSearch, AbortedTransaction};
use crate::log::index::SegmentIndex;
use crate::log::layout::SegmentFile;
use crate::log::transactions::EndedTransaction;
use crate::metrics::stages::Stage;
use crate::wire::gather::DivergingEpoch;

/// What a read may return.
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds {
    /// First offset wanted.
    pub offset: Offset,
    /// First offset that may not be returned.
    pub bound: Offset,
    /// Most bytes.
    pub bytes_max: usize,
    /// Return the first batch even if it alone is larger.
    pub at_least_one: bool,
}

/// Whole batches, in order.
#[derive(Default, Debug)]
pub struct ReadBatches {
    /// Their bytes.
    pub slices: Vec<Bytes>,
    /// Length of all slices.
    pub bytes: usize,
    /// Offset after the last one; 0 if there is none.
    pub end: Offset,
}

/// Reads from memory; `None` when the offset is below the tail.
#[must_use]
pub fn read_tail(partition: &Partition, bounds: &ReadBounds) -> Option<ReadBatches> {
    let log = partition.log.borrow();
    let mut read = ReadBatches::default();
    if bounds.offset >= bounds.bound {
        return Some(read);
    }
    if bounds.offset < log.written_end() {
        return None;
    }
    for batch in log.tail().from_offset(bounds.offset) {
        if batch.last_offset >= bounds.bound || !room_for(&read, batch.bytes, bounds) {
            break;
        }
        batch.slices(&mut read.slices);
        read.bytes += batch.bytes;
        read.end = batch.last_offset.plus(1);
    }
    Some(read)
}

/// Reads from memory or disk. The caller holds the segments.
///
/// # Errors
/// What the disk says, or `InvalidData` where a segment does not hold what it should.
pub async fn read(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    bounds: &ReadBounds,
) -> io::Result<ReadBatches> {
    if let Some(read) = read_tail(partition, bounds) {
        return Ok(read);
    }
    let written_end = partition.log.borrow().written_end();
    let cold = ReadBounds { bound: bounds.bound.min(written_end), ..*bounds };
    let mut walk = Walk::start(partition, cold.offset);
    let mut read = ReadBatches::default();
    while let Some(batch) = walk.next(shard, partition).await? {
        if batch.header.last_offset() < cold.offset {
            continue;
        }
        if batch.header.last_offset() >= cold.bound || !room_for(&read, batch.bytes, &cold) {
            break;
        }
        let slices = walk.slices(shard, partition, &batch).await?;
        read.bytes += batch.bytes;
        read.end = batch.header.next_offset();
        read.slices.extend(slices);
        if read.bytes >= cold.bytes_max {
            break;
        }
    }
    Ok(read)
}

fn room_for(read: &ReadBatches, bytes: usize, bounds: &ReadBounds) -> bool {
    let first = read.bytes == 0 && bounds.at_least_one;
    first || read.bytes.saturating_add(bytes) <= bounds.bytes_max
}

/// Serves the reads of one fetch on this shard, in order, within its limits.
pub async fn read_parts(shard: &Rc<Shard>, request: &ReadParts) -> Vec<ReadOutcome> {
    let mut outcomes = Vec::with_capacity(request.parts.len());
    let mut left = request.bytes_max;
    let mut at_least_one = request.at_least_one;
    for part in &request.parts {
        let outcome = read_part(shard, part, left, at_least_one).await;
        if outcome.bytes > 0 {
            left = left.saturating_sub(outcome.bytes);
            at_least_one = false;
        }
        outcomes.push(outcome);
    }
    outcomes
}

async fn read_part(
    shard: &Rc<Shard>,
    part: &ReadPart,
    left: usize,
    at_least_one: bool,
) -> ReadOutcome {
    let Some(partition) = shard.partition(part.partition) else {
        return ReadOutcome::failed(ErrorCode::UnknownTopicOrPartition);
    };
    partition.metrics.add(|of| &of.fetch_requests, 1);
    let (mut outcome, bounds) = match check_read(shard, &partition, part) {
        Ok(checked) => checked,
        Err(code) => return ReadOutcome::failed(code),
    };
    if outcome.diverging_epoch.is_some() {
        return outcome;
    }
    let bounds = ReadBounds { bytes_max: left.min(part.bytes_max), at_least_one, ..bounds };
    if bounds.bytes_max == 0 && !at_least_one {
        return outcome;
    }
    let found = read_with_aborted(shard, &partition, &bounds, part.committed_only).await;
    if *partition.availability.borrow() == Availability::Dropping {
        // Its files have gone on the way, and their names may be another topic's by now.
        return ReadOutcome::failed(ErrorCode::UnknownTopicOrPartition);
    }
    if bounds.offset < partition.log.borrow().log_start() {
        // So have the records, and what was found may begin after them.
        return ReadOutcome::failed(ErrorCode::OffsetOutOfRange);
    }
    match found {
        Ok((found, aborted)) => {
            outcome.bytes = found.bytes;
            outcome.records = found.slices;
            outcome.aborted = aborted;
            outcome
        }
        Err(error) => {
            tracing::error!(shard = %shard.id, "a read failed: {error}");
            ReadOutcome::failed(ErrorCode::KafkaStorageError)
        }
    }
}

type Aborted = Vec<(ProducerId, Offset)>;

/// Reads, and names the aborted transactions in what was read, if those are wanted.
async fn read_with_aborted(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    bounds: &ReadBounds,
    committed_only: bool,
) -> io::Result<(ReadBatches, Option<Aborted>)> {
    if !committed_only && let Some(found) = read_tail(partition, bounds) {
        return Ok((found, None));
    }
    let _shared = partition.segment_use.shared().await;
    let found = read(shard, partition, bounds).await?;
    if !committed_only {
        return Ok((found, None));
    }
    let aborted = aborted_in(shard, partition, bounds.offset, found.end).await?;
    let named = aborted.iter().map(|entry| (entry.producer_id, entry.first_offset)).collect();
    Ok((found, Some(named)))
}

/// The aborted transactions that overlap `[start, end)`, by rising marker: from the segment that
/// holds `start` on, until none that comes later can overlap; at last those in memory. The caller
/// holds the segments.
///
/// # Errors
/// What the disk says.
pub async fn aborted_in(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    start: Offset,
    end: Offset,
) -> io::Result<Vec<AbortedTransaction>> {
    let mut search = AbortedSearch::new(start, end);
    let mut base = partition.segments.borrow().holding(start);
    while !search.is_complete() {
        let sealed = base.filter(|base| partition.segments.borrow().sealed.contains_key(base));
        let Some(sealed) = sealed else {
            // One turn: what leaves memory meanwhile would be missed.
            let segments = partition.segments.borrow();
            if let Some(active) = &segments.active {
                search.look_in(&active.aborted);
            }
            let log = partition.log.borrow();
            let ended = log.producers().transactions().ended_from(start);
            search.look(ended.filter_map(EndedTransaction::aborted));
            break;
        };
        search.look_in(&*sealed_aborted(shard, partition, sealed).await?);
        base = partition.segments.borrow().following(sealed);
    }
    Ok(search.into_found())
}

/// Checks a read as Kafka does, and says what may be read.
fn check_read(
    shard: &Shard,
    partition: &Partition,
    part: &ReadPart,
) -> Result<(ReadOutcome, ReadBounds), ErrorCode> {
    match *partition.availability.borrow() {
        Availability::Online => {}
        Availability::Offline(_) => return Err(ErrorCode::KafkaStorageError),
        Availability::Dropping => return Err(ErrorCode::UnknownTopicOrPartition),
    }
    let log = partition.log.borrow();
    Log::check_leader_epoch(part.leader_epoch, shard.context.leader_epoch())?;
    let mut outcome = ReadOutcome {
        high_watermark: log.high_watermark(),
        last_stable_offset: log.last_stable_offset(),
        log_start: log.log_start(),
        aborted: part.committed_only.then(Vec::new),
        ..ReadOutcome::failed(ErrorCode::None)
    };
    if part.last_fetched_epoch >= 0 {
        let epochs = offsets::epochs_with_current(shard, &log);
        let (epoch, end_offset) =
            epochs.end_offset(LeaderEpoch(part.last_fetched_epoch), log.next_offset());
        if epoch.0 < 0 {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        if epoch.0 < part.last_fetched_epoch || end_offset < part.offset {
            outcome.diverging_epoch = Some(DivergingEpoch { epoch, end_offset });
        }
    }
    if part.offset < log.log_start() || part.offset > log.next_offset() {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let bound = if part.committed_only { log.last_stable_offset() } else { log.high_watermark() };
    let bounds = ReadBounds { offset: part.offset, bound, bytes_max: 0, at_least_one: false };
    Ok((outcome, bounds))
}

/// A batch found in a segment.
pub struct FoundBatch {
    /// Its header.
    pub header: BatchHeader,
    /// Base of its segment.
    pub base: Offset,
    /// Position in it.
    pub position: u64,
    /// Its length.
    pub bytes: usize,
}

/// A walk over the batches of a partition's segments.
pub struct Walk {
    base: Option<Offset>,
    position: u64,
    started: bool,
    offset: Offset,
}

impl Walk {
    /// A walk that begins at or before the batch with `offset`.
    #[must_use]
    pub fn start(partition: &Partition, offset: Offset) -> Walk {
        let base = partition.segments.borrow().holding(offset);
        Walk { base, position: 0, started: false, offset }
    }

    /// A walk over one segment from `position` on and those after it.
    #[must_use]
    pub fn at(base: Offset, position: u64) -> Walk {
        Walk { base: Some(base), position, started: true, offset: base }
    }

    /// The next batch that is written.
    ///
    /// # Errors
    /// What the disk says, or `InvalidData` for a header that is none.
    pub async fn next(
        &mut self,
        shard: &Rc<Shard>,
        partition: &Rc<Partition>,
    ) -> io::Result<Option<FoundBatch>> {
        loop {
            let Some(base) = self.base else { return Ok(None) };
            if !self.started {
                self.started = true;
                self.position = start_position(shard, partition, base, self.offset).await?;
            }
            let readable = partition.segments.borrow().readable_bytes(base).unwrap_or(0);
            if self.position + HEADER_BYTES as u64 > readable {
                self.base = partition.segments.borrow().following(base);
                self.position = 0;
                continue;
            }
            let slices = match read_range(shard, partition, base, self.position, HEADER_BYTES).await
            {
                // It went, with all before it, while its file was opened.
                Err(error) if is_gone(partition, base, &error) => {
                    self.base = partition.segments.borrow().following(base);
                    self.position = 0;
                    continue;
                }
                slices => slices?,
            };
            let header = contiguous(&slices, HEADER_BYTES);
            let header = BatchHeader::read(&header).map_err(|fault| {
                bad_segment(partition, base, self.position, &format!("{fault:?}"))
            })?;
            let bytes = header.total_bytes();
            let position = self.position;
            if position + bytes as u64 > readable {
                return Err(bad_segment(partition, base, position, "a batch passes the end"));
            }
            self.position += bytes as u64;
            return Ok(Some(FoundBatch { header, base, position, bytes }));
        }
    }

    /// The bytes of a batch that [`Walk::next`] found.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn slices(
        &self,
        shard: &Rc<Shard>,
        partition: &Rc<Partition>,
        batch: &FoundBatch,
    ) -> io::Result<Vec<Bytes>> {
        read_range(shard, partition, batch.base, batch.position, batch.bytes).await
    }
}

/// File position at or before the batch with `offset`.
async fn start_position(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    offset: Offset,
) -> io::Result<u64> {
    if let Some(active) = &partition.segments.borrow().active
        && active.base == base
    {
        return Ok(active.index.position_of(offset));
    }
    Ok(sealed_index(shard, partition, base).await?.position_of(offset))
}

/// The indexes of a sealed segment; loaded when nobody asked before.
///
/// # Errors
/// What the disk says. A missing index file is an empty one: the walk is longer then.
pub async fn sealed_index(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<Rc<SegmentIndex>> {
    {
        let segments = partition.segments.borrow();
        if let Some(index) = segments.sealed.get(&base).and_then(|sealed| sealed.index.as_ref()) {
            return Ok(Rc::clone(index));
        }
    }
    let mut contents = [Vec::new(), Vec::new()];
    for (content, kind) in contents.iter_mut().zip([SegmentFile::Index, SegmentFile::TimeIndex]) {
        let path = write_behind::segment_path(shard, partition, kind, base);
        match shard.disk.read(&path).await {
            Ok(bytes) => *content = bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let index = Rc::new(SegmentIndex::decode(base, &contents[0], &contents[1]));
    if let Some(sealed) = partition.segments.borrow_mut().sealed.get_mut(&base) {
        sealed.index = Some(Rc::clone(&index));
    }
    Ok(index)
}

/// The aborted transactions of a sealed segment; loaded when nobody asked before.
///
/// # Errors
/// What the disk says. There is no file where there are none.
async fn sealed_aborted(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<Rc<AbortedIndex>> {
    {
        let segments = partition.segments.borrow();
        let known = segments.sealed.get(&base).and_then(|sealed| sealed.aborted.as_ref());
        if let Some(aborted) = known {
            return Ok(Rc::clone(aborted));
        }
    }
    let path = write_behind::segment_path(shard, partition, SegmentFile::TransactionIndex, base);
    let content = match shard.disk.read(&path).await {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let aborted = Rc::new(AbortedIndex::decode(&content));
    if let Some(sealed) = partition.segments.borrow_mut().sealed.get_mut(&base) {
        sealed.aborted = Some(Rc::clone(&aborted));
    }
    Ok(aborted)
}

/// Bytes `[position, position + length)` of a segment, which must be written.
async fn read_range(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    position: u64,
    length: usize,
) -> io::Result<Vec<Bytes>> {
    let mut slices = Vec::new();
    let mut at = position;
    let end = position + length as u64;
    while at < end {
        let (on_disk, last_block) = disk_end(partition, base);
        if at >= on_disk {
            let from = usize::try_from(at - on_disk).unwrap_or(usize::MAX);
            let to = usize::try_from(end - on_disk).unwrap_or(usize::MAX);
            let rest = last_block
                .get(from..to)
                .ok_or_else(|| bad_segment(partition, base, at, "bytes are missing"))?;
            slices.push(Bytes::copy_from_slice(rest));
            break;
        }
        let chunk = at / READ_CHUNK_BYTES;
        let bytes = read_chunk(shard, partition, base, chunk, on_disk).await?;
        let chunk_start = chunk * READ_CHUNK_BYTES;
        let from = (at - chunk_start) as usize;
        let to = (end.min(on_disk) - chunk_start).min(READ_CHUNK_BYTES) as usize;
        if to > bytes.len() || from >= to {
            return Err(bad_segment(partition, base, at, "the file is too short"));
        }
        slices.push(bytes.slice(from..to));
        at = chunk_start + to as u64;
    }
    Ok(slices)
}

/// Up to where a segment is read from disk, and the bytes after that.
fn disk_end(partition: &Partition, base: Offset) -> (u64, Vec<u8>) {
    let segments = partition.segments.borrow();
    match &segments.active {
        Some(active) if active.base == base => {
            (active.next_write_position(), active.last_block.clone())
        }
        _ => (segments.readable_bytes(base).unwrap_or(0), Vec::new()),
    }
}

async fn read_chunk(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    chunk: u64,
    on_disk: u64,
) -> io::Result<Bytes> {
    let key = (partition.id, base, chunk);
    if let Some(bytes) = shard.cache.borrow_mut().get(&key) {
        let start = chunk * READ_CHUNK_BYTES;
        if bytes.len() as u64 >= (on_disk - start).min(READ_CHUNK_BYTES) {
            return Ok(bytes);
        }
    }
    let file = open_for_reading(shard, partition, base).await?;
    let start = chunk * READ_CHUNK_BYTES;
    let wanted = (on_disk - start).min(READ_AHEAD_CHUNKS * READ_CHUNK_BYTES);
    let length = wanted.next_multiple_of(BLOCK_ALIGN as u64) as usize;
    let bytes = shard.spend(Stage::Device, file.read_at(start, length)).await?;
    let bytes = bytes.slice(..bytes.len().min(wanted as usize));
    if partition.segments.borrow().readable_bytes(base).is_none() {
        // The segment went while it was read: nobody asks for it again.
        return Ok(bytes.slice(..bytes.len().min(READ_CHUNK_BYTES as usize)));
    }
    let mut cache = shard.cache.borrow_mut();
    let count = (bytes.len() as u64).div_ceil(READ_CHUNK_BYTES);
    for index in (0..count).rev() {
        let from = (index * READ_CHUNK_BYTES) as usize;
        let to = bytes.len().min(from + READ_CHUNK_BYTES as usize);
        cache.put((key.0, key.1, chunk + index), bytes.slice(from..to));
    }
    drop(cache);
    Ok(bytes.slice(..bytes.len().min(READ_CHUNK_BYTES as usize)))
}

async fn open_for_reading(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<Rc<dyn crate::io::File>> {
    if let Some(file) = shard.files.borrow_mut().get(partition.id, base) {
        return Ok(file);
    }
    let path = write_behind::segment_path(shard, partition, SegmentFile::Log, base);
    // The handle is shared with the writer, so it is opened for writing too.
    let file = shard.disk.open(&path, OpenMode { write: true, ..OpenMode::default() }).await?;
    if partition.segments.borrow().readable_bytes(base).is_some() {
        shard.files.borrow_mut().put(partition.id, base, Rc::clone(&file));
    }
    Ok(file)
}

/// Whether the segment is no longer part of the log, which would explain that it is not found.
fn is_gone(partition: &Partition, base: Offset, error: &io::Error) -> bool {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    is_missing && partition.segments.borrow().readable_bytes(base).is_none()
}

/// The first `length` bytes of a list of slices as one.
fn contiguous(slices: &[Bytes], length: usize) -> Bytes {
    match slices {
        [one] => one.slice(..length.min(one.len())),
        _ => {
            let mut joined = slices.concat();
            joined.truncate(length);
            joined.into()
        }
    }
}

fn bad_segment(partition: &Partition, base: Offset, position: u64, what: &str) -> io::Error {
    let topic = partition.topic.borrow();
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "segment {base} of {}-{}: {what} at byte {position}; run `ringlog log verify`",
            topic.name,
            partition.index()
        ),
    )
}

/// Key of a cached chunk: partition, segment base, chunk number.
type ChunkKey = (TopicPartition, Offset, u64);

/// A byte-bounded cache of segment chunks; the least recently used goes first.
pub struct ReadCache {
    chunks: HashMap<ChunkKey, (Bytes, u64), foldhash::fast::RandomState>,
    by_use: std::collections::BTreeMap<u64, ChunkKey>,
    clock: u64,
    bytes: usize,
    bytes_max: usize,
}

impl ReadCache {
    /// A cache of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            chunks: HashMap::default(),
            by_use: std::collections::BTreeMap::new(),
            clock: 0,
            bytes: 0,
            bytes_max,
        }
    }

    /// Bytes in use, and how many it may use.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.bytes, self.bytes_max)
    }

    fn get(&mut self, key: &ChunkKey) -> Option<Bytes> {
        let entry = self.chunks.get_mut(key)?;
        self.clock += 1;
        self.by_use.remove(&entry.1);
        self.by_use.insert(self.clock, *key);
        entry.1 = self.clock;
        Some(entry.0.clone())
    }

    fn put(&mut self, key: ChunkKey, bytes: Bytes) {
        self.clock += 1;
        self.bytes += bytes.len();
        self.by_use.insert(self.clock, key);
        if let Some((old, used)) = self.chunks.insert(key, (bytes, self.clock)) {
            self.bytes -= old.len();
            self.by_use.remove(&used);
        }
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some((old, _)) = self.chunks.remove(&oldest) {
                self.bytes -= old.len();
            }
        }
    }

    /// Forgets a segment of so many bytes.
    pub fn forget_segment(&mut self, partition: TopicPartition, base: Offset, bytes: u64) {
        for chunk in 0..bytes.div_ceil(READ_CHUNK_BYTES) {
            if let Some((old, used)) = self.chunks.remove(&(partition, base, chunk)) {
                self.bytes -= old.len();
                self.by_use.remove(&used);
            }
        }
    }

    /// Forgets everything of a partition.
    pub fn forget(&mut self, partition: TopicPartition) {
        let bytes = &mut self.bytes;
        let by_use = &mut self.by_use;
        self.chunks.retain(|key, (chunk, used)| {
            let keep = key.0 != partition;
            if !keep {
                *bytes -= chunk.len();
                by_use.remove(used);
            }
            keep
        });
    }
}
