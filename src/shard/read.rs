//! Reading batches back: from the in-memory tail, or from segments.
//!
//! Owns the walk over batch headers. Returns whole batches only, as slices of blocks or of what
//! was read, never copies except of the last partial block. Where the bytes of segments come from
//! is `segment_read`'s business, and whom to read ahead of `read_ahead`'s.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::message::{ReadOutcome, ReadPart, ReadParts};
use super::partition::{Availability, Partition};
use super::segment_read::{self, Held};
use super::{Shard, offsets, write_behind};
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, ProducerId};
use crate::limits::{BLOCK_ALIGN, READ_BYTES_MAX};
use crate::log::Log;
use crate::log::aborted::{AbortedIndex, AbortedSearch, AbortedTransaction};
use crate::log::index::SegmentIndex;
use crate::log::layout::SegmentFile;
use crate::log::transactions::EndedTransaction;
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
    let mut ahead = shard.readers.borrow_mut().begins((partition.id, cold.offset));
    let mut walk = Walk::start(partition, cold.offset);
    let found_place = walk.find_place(shard, partition, cold.bytes_max).await?;
    if let (Some(at), Some(ahead)) = (found_place, &mut ahead) {
        segment_read::read_ahead(shard, partition, ahead, at);
    }
    let mut read = ReadBatches::default();
    while let Some(batch) = walk.next(shard, partition).await? {
        if batch.header.last_offset() < cold.offset {
            continue;
        }
        if read.bytes == 0 {
            walk.plan(partition, &batch, cold.bytes_max);
        }
        if batch.header.last_offset() >= cold.bound || !room_for(&read, batch.bytes, &cold) {
            break;
        }
        if !walk.held.append_own(&mut read.slices, batch.base, batch.position, batch.bytes) {
            for slice in walk.slices(shard, partition, &batch).await? {
                walk.held.append(&mut read.slices, slice);
            }
        }
        read.bytes += batch.bytes;
        read.end = batch.header.next_offset();
        if read.bytes >= cold.bytes_max {
            break;
        }
    }
    if read.bytes > 0 {
        let ended = (partition.id, read.end);
        shard.readers.borrow_mut().ended(ended, read.bytes, ahead);
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
    /// Position up to which it is going to ask for everything, as far as is known: that comes with
    /// one read.
    through: u64,
    /// How much further that is set when it asks for more: it may be a long walk.
    step: u64,
    held: Held,
}

impl Walk {
    /// A walk that begins at or before the batch with `offset`.
    #[must_use]
    pub fn start(partition: &Partition, offset: Offset) -> Walk {
        let base = partition.segments.borrow().holding(offset);
        let walk = Walk::at(Offset(0), 0);
        Walk { base, started: false, offset, ..walk }
    }

    /// A walk over one segment from `position` on and those after it.
    #[must_use]
    pub fn at(base: Offset, position: u64) -> Walk {
        let held = Held::default();
        Walk { base: Some(base), position, started: true, offset: base, through: 0, step: 0, held }
    }

    /// It is going to take about so many bytes from this batch on.
    fn plan(&mut self, partition: &Partition, first: &FoundBatch, bytes: usize) {
        let segments = partition.segments.borrow();
        let end = match &segments.active {
            Some(active) if active.base == first.base => {
                Some(active.index.end_of_read(first.position, bytes as u64))
            }
            _ => {
                let sealed = segments.sealed.get(&first.base);
                let index = sealed.and_then(|sealed| sealed.index.as_ref());
                index.map(|index| index.end_of_read(first.position, bytes as u64))
            }
        };
        // The header of the batch after the last one is looked at.
        self.through = self.through.max(end.map_or(0, |end| end + HEADER_BYTES as u64));
    }

    /// Goes to where the walk begins. An index names a batch by its last offset: the one that is
    /// found there is most often not the one that is wanted, and if it is large not worth reading.
    async fn find_place(
        &mut self,
        shard: &Rc<Shard>,
        partition: &Rc<Partition>,
        bytes: usize,
    ) -> io::Result<Option<(Offset, u64)>> {
        let Some(base) = self.base else { return Ok(None) };
        self.started = true;
        (self.position, self.through) =
            place_of(shard, partition, base, self.offset, bytes as u64).await?;
        Ok(Some((base, self.position)))
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
                self.find_place(shard, partition, 0).await?;
            }
            let readable = partition.segments.borrow().readable_bytes(base).unwrap_or(0);
            if self.position + HEADER_BYTES as u64 > readable {
                self.go_to_following(partition, base);
                continue;
            }
            let header = match self.held.all(base, self.position, HEADER_BYTES) {
                Some(header) => BatchHeader::read(header),
                None => {
                    match self.read(shard, partition, base, self.position, HEADER_BYTES).await {
                        // It went, with all before it, while its file was opened.
                        Err(error) if is_gone(partition, base, &error) => {
                            self.go_to_following(partition, base);
                            continue;
                        }
                        slices => BatchHeader::read(&contiguous(&slices?, HEADER_BYTES)),
                    }
                }
            };
            let header = header.map_err(|fault| {
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

    fn go_to_following(&mut self, partition: &Partition, base: Offset) {
        self.base = partition.segments.borrow().following(base);
        (self.position, self.through) = (0, 0);
    }

    /// The bytes of a batch that [`Walk::next`] found.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn slices(
        &mut self,
        shard: &Rc<Shard>,
        partition: &Rc<Partition>,
        batch: &FoundBatch,
    ) -> io::Result<Vec<Bytes>> {
        self.read(shard, partition, batch.base, batch.position, batch.bytes).await
    }

    async fn read(
        &mut self,
        shard: &Rc<Shard>,
        partition: &Rc<Partition>,
        base: Offset,
        position: u64,
        bytes: usize,
    ) -> io::Result<Vec<Bytes>> {
        let range = position..position + bytes as u64;
        if range.end > self.through {
            self.through = range.end + self.step;
            self.step = (2 * self.step).clamp(BLOCK_ALIGN as u64, READ_BYTES_MAX as u64);
        }
        segment_read::read_range(shard, partition, base, range, self.through, &mut self.held).await
    }
}

/// File position at or before the batch with `offset`, and up to where about so many bytes go if
/// that batch is likely to be near.
async fn place_of(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    offset: Offset,
    bytes: u64,
) -> io::Result<(u64, u64)> {
    let place = |index: &SegmentIndex| {
        let position = index.position_of(offset);
        let is_near = index.is_dense_at(position);
        (position, if is_near { index.end_of_read(position, bytes) } else { 0 })
    };
    if let Some(active) = &partition.segments.borrow().active
        && active.base == base
    {
        return Ok(place(&active.index));
    }
    Ok(place(&*sealed_index(shard, partition, base).await?))
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

/// A segment does not hold what it should.
pub(super) fn bad_segment(
    partition: &Partition,
    base: Offset,
    position: u64,
    what: &str,
) -> io::Error {
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
