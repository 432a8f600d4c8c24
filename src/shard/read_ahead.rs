//! Who reads segments in order, and what is read for them before they ask.
//!
//! Owns the places where cold reads have ended: one that begins where another ended goes on, and
//! the longer it does, the more is read ahead of it, up to its share. Does no I/O. Must never have
//! anything read ahead of a read that came from nowhere: one that picks records at random would
//! pay for what it never asks for.
//!
//! Invariants: what all readers together are read ahead is at most half of the cache, so that it
//! is still there when they come; a reader is forgotten once so much was read since it was here
//! that nothing of what was read for it would be left.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::HashMap;

use crate::ids::{Offset, TopicPartition};
use crate::limits::{BLOCK_ALIGN, READ_AHEAD_BYTES_MAX, READ_AHEAD_BYTES_MIN, READ_BYTES_MAX};
use crate::log::segments::SegmentSet;

/// Where a cold read ended: partition and next offset.
pub type Place = (TopicPartition, Offset);

/// The readers of one shard's segments.
pub struct Readers {
    by_place: HashMap<Place, Reader, foldhash::fast::RandomState>,
    by_use: BTreeMap<u64, Place>,
    /// Counts reads.
    clock: u64,
    /// Bytes that all of them have been given.
    bytes_read: u64,
    /// Readers that have gone on at least once.
    in_order: usize,
    /// Most bytes that are read ahead of all of them.
    bytes_max: usize,
}

struct Reader {
    used: u64,
    bytes_read: u64,
    ahead: Ahead,
}

/// How far is read ahead of one reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// Bytes from where a read begins on that are to be there or on their way; 0 for a reader that
    /// has not gone on yet.
    window_bytes: usize,
    /// Segment and position up to which reads were begun.
    through: (Offset, u64),
}

impl Readers {
    /// Readers over a cache of so many bytes.
    #[must_use]
    pub fn new(cache_bytes: usize) -> Readers {
        Readers {
            by_place: HashMap::default(),
            by_use: BTreeMap::new(),
            clock: 0,
            bytes_read: 0,
            in_order: 0,
            bytes_max: cache_bytes / 2,
        }
    }

    /// A cold read begins here. What is read ahead of it, if it goes on with one that ended here.
    pub fn begins(&mut self, place: Place) -> Option<Ahead> {
        let Reader { used, ahead, .. } = self.by_place.remove(&place)?;
        self.by_use.remove(&used);
        self.in_order -= usize::from(ahead.window_bytes > 0);
        let share = self.bytes_max / (self.in_order + 1);
        let window = (2 * ahead.window_bytes).clamp(READ_AHEAD_BYTES_MIN, READ_AHEAD_BYTES_MAX);
        let window_bytes = window.min(share) / BLOCK_ALIGN * BLOCK_ALIGN;
        (window_bytes > 0).then_some(Ahead { window_bytes, ..ahead })
    }

    /// It has read so many bytes and ended here.
    pub fn ended(&mut self, place: Place, bytes: usize, ahead: Option<Ahead>) {
        self.clock += 1;
        self.bytes_read += bytes as u64;
        let ahead = ahead.unwrap_or(Ahead { window_bytes: 0, through: (place.1, 0) });
        let reader = Reader { used: self.clock, bytes_read: self.bytes_read, ahead };
        self.in_order += usize::from(ahead.window_bytes > 0);
        if let Some(other) = self.by_place.insert(place, reader) {
            // Two of them read the same: from here on they are one.
            self.by_use.remove(&other.used);
            self.in_order -= usize::from(other.ahead.window_bytes > 0);
        }
        self.by_use.insert(self.clock, place);
        while let Some((&used, &oldest)) = self.by_use.first_key_value() {
            let is_late = self.by_place.get(&oldest).is_none_or(|reader| {
                self.bytes_read - reader.bytes_read > 2 * self.bytes_max as u64
            });
            if used == self.clock || !is_late && self.by_use.len() <= self.count_max() {
                break;
            }
            self.by_use.pop_first();
            if let Some(late) = self.by_place.remove(&oldest) {
                self.in_order -= usize::from(late.ahead.window_bytes > 0);
            }
        }
    }

    /// More of them would have nothing read ahead.
    fn count_max(&self) -> usize {
        self.bytes_max / BLOCK_ALIGN
    }
}

impl Ahead {
    /// The reads to begin for a read at `position` of the segment at `base`: whole ones only, so
    /// that a reader that takes a little at a time does not have the device read little by little.
    pub fn reads(&mut self, at: (Offset, u64), segments: &SegmentSet) -> Vec<(Offset, Range<u64>)> {
        let window = self.window_bytes as u64;
        let unit = (window / READS_PER_WINDOW).clamp(BLOCK_ALIGN as u64, READ_BYTES_MAX as u64);
        let unit = unit / BLOCK_ALIGN as u64 * BLOCK_ALIGN as u64;
        let mut ahead_bytes = match self.distance_from(at, segments) {
            Some(bytes) => bytes,
            None => {
                self.through = (at.0, at.1 / BLOCK_ALIGN as u64 * BLOCK_ALIGN as u64);
                0
            }
        };
        let mut reads = Vec::new();
        loop {
            let (base, position) = self.through;
            let Some(end) = segments.on_disk_bytes(base) else { break };
            if position >= end {
                let Some(next) = segments.following(base) else { break };
                self.through = (next, 0);
                continue;
            }
            let bytes = unit.min(end - position);
            let grows = segments.active.as_ref().is_some_and(|active| active.base == base);
            if ahead_bytes + bytes > window || grows && bytes < unit {
                break;
            }
            reads.push((base, position..position + bytes));
            self.through.1 += bytes;
            ahead_bytes += bytes;
        }
        reads
    }

    /// Bytes from a place to where reads were begun; `None` if that is not ahead of it.
    fn distance_from(&self, at: (Offset, u64), segments: &SegmentSet) -> Option<u64> {
        let (mut base, mut position) = at;
        let mut bytes = 0;
        while base < self.through.0 && bytes <= READ_AHEAD_BYTES_MAX as u64 {
            bytes += segments.on_disk_bytes(base)?.checked_sub(position)?;
            (base, position) = (segments.following(base)?, 0);
        }
        let rest = self.through.1.checked_sub(position).filter(|_| base == self.through.0)?;
        // Compaction may have put it where it never was.
        Some(bytes + rest).filter(|bytes| *bytes <= READ_AHEAD_BYTES_MAX as u64)
    }
}

/// Reads of the device that one window is made of: some are on their way while one is used up.
const READS_PER_WINDOW: u64 = 4;

#[cfg(test)]
mod tests;
