//! One pass over a ring of which little may be in use: the entries from the image's position to the
//! first block that is not the next in sequence, and a look at what comes after it.
//!
//! Owns how much of a ring is read to be sure of its end. A torn tail is told from damage by blocks
//! after it, and those can be anywhere up to one lap from the start: so what follows the end is
//! read whole for [`JOURNAL_PROBE_BYTES`], which is all of an ordinary ring, and in a larger one
//! from there on a block's length in every [`JOURNAL_PROBE_STRIDE_BYTES`], the beginning of every
//! file included. Whatever begins like a later block of this boot, a file that is missing or short,
//! or anything known to be durable that is not there, has all of the ring read, by
//! [`scan`](super::replay::scan). What this does not see is damage that begins with the first bad
//! block, is longer than what is read whole, and is followed by less journal than lies between two
//! looks.
//!
//! Keeps nothing of what it has told: memory that nobody has used for a while costs more than the
//! device takes to read as much. So entries are told before the end is judged: whoever acts on them
//! must be able to begin anew, as after a crash.
//!
//! Invariant: where [`Following::end`] finds a torn tail, `scan` finds the same one, and what was
//! told is what [`Replay`](super::replay::Replay) tells of its good blocks.

use std::ops::Range;

use bytes::Bytes;

use super::block::{self, BLOCK_HEADER_BYTES, BlockHeader, Identity};
use super::replay::{
    Expected, Joining, Judged, ReplayError, Replayed, RingFiles, Start, find_header, judge,
};
use super::ring::{Geometry, JournalPoint};
use super::window::Window;
use crate::ids::JournalSequence;
use crate::limits::{BLOCK_ALIGN, JOURNAL_PROBE_BYTES, JOURNAL_PROBE_STRIDE_BYTES};

/// How much of what follows the end is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Probing {
    /// Bytes that are read whole.
    pub whole_bytes: u64,
    /// Distance of the looks after that.
    pub stride_bytes: u64,
}

impl Default for Probing {
    fn default() -> Probing {
        Probing { whole_bytes: JOURNAL_PROBE_BYTES, stride_bytes: JOURNAL_PROBE_STRIDE_BYTES }
    }
}

/// What a ring tells from the position of its image on, in order.
pub struct Following<'a> {
    ring: Ring<'a>,
    start: Start,
    /// The next block.
    point: JournalPoint,
    good: Vec<BlockHeader>,
    window: Window,
    joining: Joining,
}

impl<'a> Following<'a> {
    /// Begins; `None` where all of the ring has to be read.
    pub async fn begin(
        files: &'a RingFiles,
        expected: &Expected,
        start: Start,
    ) -> Result<Option<Following<'a>>, ReplayError> {
        let mut window = Window::default();
        let (ring, headers_lost) = find_header(files, expected, &mut window).await?;
        let is_whole = headers_lost == 0 && !expected.holes_are_legitimate;
        let Some((identity, geometry)) = ring.filter(|_| is_whole) else { return Ok(None) };
        let ring = Ring { files, identity, geometry };
        let (point, joining) = (start.point, Joining::default());
        Ok(Some(Following { ring, start, point, good: Vec::new(), window, joining }))
    }

    /// The next whole batch or control entry; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Replayed>, ReplayError> {
        loop {
            if let Some(entry) = self.joining.next()? {
                return Ok(Some(entry));
            }
            let Some((header, bytes)) = self.ring.next_block(self.point, &mut self.window).await?
            else {
                return Ok(None);
            };
            self.point = JournalPoint {
                position: header.position + bytes.len() as u64,
                sequence: JournalSequence(header.sequence.0.saturating_add(1)),
            };
            self.good.push(header);
            self.joining.open(header, bytes);
        }
    }

    /// What the ring holds, once all of it was told; `None` where all of the ring has to be read.
    pub async fn end(mut self, probing: Probing) -> Result<Option<Judged>, ReplayError> {
        let geometry = &self.ring.geometry;
        let judged = judge(&self.good, Some(geometry), Some(self.start), false);
        let is_all_there = judged.end.sequence > self.start.durable_through;
        let lap = self.start.point.position + geometry.ring_bytes();
        let rest = probes(geometry, judged.end.position..lap, probing);
        let missing = judged.end.sequence;
        let goes_on = !is_all_there || self.ring.goes_on(missing, rest, &mut self.window).await?;
        Ok((!goes_on).then_some(judged))
    }
}

struct Ring<'a> {
    files: &'a RingFiles,
    identity: Identity,
    geometry: Geometry,
}

impl Ring<'_> {
    /// The block that follows `point`, if it is whole: right there, or in the next file if it did
    /// not fit into this one.
    async fn next_block(
        &self,
        point: JournalPoint,
        window: &mut Window,
    ) -> Result<Option<(BlockHeader, Bytes)>, ReplayError> {
        let file_bytes = self.geometry.file_bytes();
        let in_file = point.position % file_bytes;
        let file_end = point.position - in_file + file_bytes;
        let here = self.geometry.position_of_next(point.position, BLOCK_ALIGN as u64);
        let may_skip = file_end - here < u64::from(self.geometry.block_bytes_max());
        let next_file = may_skip.then_some(file_end + BLOCK_ALIGN as u64);
        for position in [Some(here), next_file].into_iter().flatten() {
            let (file, offset) = self.geometry.locate(position);
            let limit = file_bytes;
            let start = window.read(self.files, file, offset, BLOCK_ALIGN, limit).await?;
            let Ok(header) = block::peek(&start, &self.identity) else { continue };
            let length = header.aligned_bytes();
            let next = self.geometry.position_of_next(point.position, length as u64);
            let is_next = header.sequence == point.sequence
                && (header.position, next) == (position, position)
                && length as u64
                    <= (file_bytes - offset).min(self.geometry.block_bytes_max().into());
            if !is_next {
                continue;
            }
            let bytes = window.read(self.files, file, offset, length, limit).await?;
            if block::check(&bytes, &self.identity) == Ok(header) {
                return Ok(Some((header, bytes)));
            }
        }
        Ok(None)
    }

    /// Whether anything speaks for blocks after the first missing sequence.
    async fn goes_on(
        &self,
        missing: JournalSequence,
        probes: Vec<(u32, Range<u64>)>,
        window: &mut Window,
    ) -> Result<bool, ReplayError> {
        for (file, range) in probes {
            for offset in range.clone().step_by(BLOCK_ALIGN) {
                let start = window.read(self.files, file, offset, BLOCK_ALIGN, range.end).await?;
                if start.len() < BLOCK_HEADER_BYTES {
                    return Ok(true);
                }
                let Ok(header) = block::peek(&start, &self.identity) else { continue };
                if header.sequence < missing {
                    continue;
                }
                // The missing one itself may be there, torn.
                let length = header.aligned_bytes();
                let room = usize::try_from(self.geometry.file_bytes() - offset);
                let length = length.min(room.unwrap_or(usize::MAX));
                let limit = range.end.max(offset + length as u64);
                let bytes = window.read(self.files, file, offset, length, limit).await?;
                if header.sequence > missing || block::check(&bytes, &self.identity).is_ok() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Where to look in a range of logical positions: file and offsets.
fn probes(geometry: &Geometry, range: Range<u64>, probing: Probing) -> Vec<(u32, Range<u64>)> {
    let whole_end = range.end.min(range.start.saturating_add(probing.whole_bytes));
    let mut probes = Vec::new();
    let mut position = range.start;
    while position < range.end {
        let (file, offset) = geometry.locate(position);
        let end = geometry.file_bytes().min(offset + (range.end - position));
        if position < whole_end {
            let end = end.min(offset + (whole_end - position));
            probes.push((file, offset..end));
            position += end - offset;
            continue;
        }
        let at = offset.next_multiple_of(probing.stride_bytes);
        let look_end = end.min(at.saturating_add(u64::from(geometry.block_bytes_max())));
        if at < look_end {
            probes.push((file, at..look_end));
        }
        position += look_end.max(at.min(end)) - offset;
    }
    probes
}

#[cfg(test)]
mod tests;
