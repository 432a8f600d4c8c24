//! Bytes of segments: from the cache, from what is on its way, or from the device.
//!
//! Owns every read of a segment file on behalf of readers. Reads what is asked for and no more,
//! up to whole device blocks, unless the caller says how far it is going to ask; what is read
//! ahead is read by tasks of its own, which hold the segments as their reader does. Must never
//! read from disk at or above the active segment's last block boundary: those bytes are in memory.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;

use super::partition::Partition;
use super::read_ahead::Ahead;
use super::{Shard, write_behind};
use crate::ids::Offset;
use crate::io::OpenMode;
use crate::limits::{BLOCK_ALIGN, READ_BYTES_MAX};
use crate::log::layout::SegmentFile;
use crate::metrics::stages::Stage;

/// The piece of a segment that a reader had last: it asks for what follows again and again.
#[derive(Default)]
pub struct Held {
    base: Offset,
    start: u64,
    bytes: Bytes,
}

impl Held {
    /// What there is of it from byte `position` of a segment on.
    fn rest(&self, base: Offset, position: u64) -> Option<Bytes> {
        let from = self.place(base, position)?;
        (from < self.bytes.len()).then(|| self.bytes.slice(from..))
    }

    /// So many bytes of a segment from `position` on, if all of them are held: what a walk over
    /// small batches finds of most, without a slice or a list of its own.
    pub fn all(&self, base: Offset, position: u64, bytes: usize) -> Option<&[u8]> {
        let from = self.place(base, position)?;
        self.bytes.get(from..from.checked_add(bytes)?)
    }

    /// Where byte `position` of a segment would lie in it, unless it is before its start.
    fn place(&self, base: Offset, position: u64) -> Option<usize> {
        if base != self.base {
            return None;
        }
        usize::try_from(position.checked_sub(self.start)?).ok()
    }

    /// Appends a slice, to the last one if it follows that in the memory that is held.
    pub fn append(&self, slices: &mut Vec<Bytes>, slice: Bytes) {
        if !self.prolongs(slices.last_mut(), &slice) {
            slices.push(slice);
        }
    }

    /// Appends so many bytes from `position` on; `false` if not all of them are held.
    pub fn append_own(
        &self,
        slices: &mut Vec<Bytes>,
        base: Offset,
        position: u64,
        bytes: usize,
    ) -> bool {
        let Some(piece) = self.all(base, position, bytes) else { return false };
        if !self.prolongs(slices.last_mut(), piece) {
            slices.push(self.bytes.slice_ref(piece));
        }
        true
    }

    /// Prolongs the last slice by one that follows it in the memory that is held, if it does.
    fn prolongs(&self, last: Option<&mut Bytes>, slice: &[u8]) -> bool {
        let held = self.bytes.as_ptr_range();
        let Some(last) = last else { return false };
        let follows = last.as_ptr_range().end == slice.as_ptr()
            && held.contains(&last.as_ptr())
            && slice.as_ptr_range().end <= held.end;
        if follows {
            let from = last.as_ptr() as usize - held.start as usize;
            *last = self.bytes.slice(from..from + last.len() + slice.len());
        }
        follows
    }
}

/// Bytes of a segment, all of which must be written, in as many slices as it takes. What is not in
/// memory is read with what follows it up to `through`. The caller holds the segments.
///
/// # Errors
/// What the disk says, or `InvalidData` where the file ends too early.
pub async fn read_range(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    range: Range<u64>,
    through: u64,
    held: &mut Held,
) -> io::Result<Vec<Bytes>> {
    let mut slices = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let on_disk = partition.segments.borrow().on_disk_bytes(base).unwrap_or(0);
        if at >= on_disk {
            let rest = in_memory(partition, base, at..range.end);
            slices.push(rest.ok_or_else(|| bad(partition, base, at, "bytes are missing"))?);
            break;
        }
        let end = range.end.min(on_disk);
        let found = match held.rest(base, at) {
            Some(found) => found,
            None => {
                let wanted = at..end.max(through.min(on_disk));
                let found = find(shard, partition, base, wanted).await?;
                *held = Held { base, start: at, bytes: found.clone() };
                found
            }
        };
        if found.is_empty() {
            return Err(bad(partition, base, at, "the file is too short"));
        }
        let bytes = found.len().min((end - at) as usize);
        slices.push(found.slice(..bytes));
        at += bytes as u64;
    }
    Ok(slices)
}

/// The bytes of the active segment that are not read from disk.
fn in_memory(partition: &Partition, base: Offset, range: Range<u64>) -> Option<Bytes> {
    let segments = partition.segments.borrow();
    let active = segments.active.as_ref().filter(|active| active.base == base)?;
    let start = active.next_write_position();
    let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
    let to = usize::try_from(range.end - start).ok()?;
    active.last_block.get(from..to).map(Bytes::copy_from_slice)
}

/// What there is from the start of `wanted` on, at least one byte of it unless the file ends.
async fn find(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    wanted: Range<u64>,
) -> io::Result<Bytes> {
    let key = (partition.id, base);
    loop {
        if let Some(found) = shard.cache.borrow_mut().get(&key, wanted.start) {
            return Ok(found);
        }
        let pending = shard.cache.borrow().pending(&key, wanted.start);
        let Some(ended) = pending else { break };
        let seen = ended.generation();
        shard.spend(Stage::Device, ended.wait(seen)).await;
    }
    let start = block_of(wanted.start);
    let end = wanted.end.min(start + READ_BYTES_MAX as u64);
    // The block before may be there, with the end of another batch.
    let end = shard.cache.borrow().missing(&key, wanted.start..end).end;
    let read = from_device(shard, partition, base, start..end);
    let bytes = shard.spend(Stage::Device, read).await?;
    let from = (wanted.start - start) as usize;
    Ok(bytes.slice(from.min(bytes.len())..))
}

/// Begins what is to be read ahead of a reader that is at `at`. It holds the segments.
pub fn read_ahead(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    ahead: &mut Ahead,
    at: (Offset, u64),
) {
    let reads = ahead.reads(at, &partition.segments.borrow());
    for (base, range) in reads {
        let key = (partition.id, base);
        let missing = shard.cache.borrow().missing(&key, range);
        if missing.is_empty() {
            continue;
        }
        let range = block_of(missing.start)..missing.end;
        let ended = shard.cache.borrow_mut().begin(key, range.clone());
        partition.segment_use.join();
        let (shard, partition) = (Rc::clone(shard), Rc::clone(partition));
        let runtime = Rc::clone(&shard.runtime);
        runtime.spawn(Box::pin(async move {
            let start = range.start;
            // Whoever wants it and does not find it meets the same error, and tells of it.
            if let Ok(bytes) = from_device(&shard, &partition, base, range).await {
                shard.metrics.segment_bytes_read_ahead.add(bytes.len() as u64);
            }
            shard.cache.borrow_mut().ended(&key, start, &ended);
            partition.segment_use.leave();
        }));
    }
}

/// Reads a range from its file, which begins at a block, and keeps it.
async fn from_device(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    range: Range<u64>,
) -> io::Result<Bytes> {
    let file = open(shard, partition, base).await?;
    let bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let read = file.read_at(range.start, bytes.next_multiple_of(BLOCK_ALIGN)).await?;
    shard.metrics.segment_bytes_read.add(read.len() as u64);
    let Some(on_disk) = partition.segments.borrow().on_disk_bytes(base) else {
        // The segment went while it was read: nobody asks for it again.
        return Ok(read);
    };
    // The file may have space that was allocated ahead.
    let kept = usize::try_from(on_disk.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let read = read.slice(..read.len().min(kept));
    shard.cache.borrow_mut().put((partition.id, base), range.start, &read);
    Ok(read)
}

async fn open(
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

fn block_of(position: u64) -> u64 {
    position / BLOCK_ALIGN as u64 * BLOCK_ALIGN as u64
}

fn bad(partition: &Partition, base: Offset, position: u64, what: &str) -> io::Error {
    super::read::bad_segment(partition, base, position, what)
}
