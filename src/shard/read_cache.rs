//! A byte-bounded cache of what was read from segments, and of what is being read.
//!
//! Owns the memory of reads that have missed it. A read is kept whole and given up whole, the one
//! used least recently first: slices of it share its memory. Of two reads that overlap, the one
//! that begins nearer before a position is asked for it: where that one ends, reading goes on with
//! a miss, never with wrong bytes. What is on its way from the device is named here, so that
//! nobody reads it a second time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::event::Event;
use crate::ids::{Offset, TopicPartition};

/// A segment: its partition and its base.
pub type SegmentKey = (TopicPartition, Offset);

/// The cache.
pub struct ReadCache {
    segments: HashMap<SegmentKey, Segment, foldhash::fast::RandomState>,
    /// Reads by when they were used.
    by_use: BTreeMap<u64, (SegmentKey, u64)>,
    /// Counts uses.
    clock: u64,
    bytes: usize,
    bytes_max: usize,
}

/// What is known of one segment, by position.
#[derive(Default)]
struct Segment {
    reads: BTreeMap<u64, Read>,
    pending: BTreeMap<u64, Pending>,
}

struct Read {
    bytes: Bytes,
    used: u64,
}

struct Pending {
    end: u64,
    ended: Rc<Event>,
}

impl ReadCache {
    /// A cache of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            segments: HashMap::default(),
            by_use: BTreeMap::new(),
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

    /// What is there from byte `position` of a segment on, to the end of the read it came with.
    pub fn get(&mut self, segment: &SegmentKey, position: u64) -> Option<Bytes> {
        let reads = &mut self.segments.get_mut(segment)?.reads;
        let (&start, read) = reads.range_mut(..=position).next_back()?;
        let from =
            usize::try_from(position - start).ok().filter(|from| *from < read.bytes.len())?;
        self.clock += 1;
        self.by_use.remove(&read.used);
        self.by_use.insert(self.clock, (*segment, start));
        read.used = self.clock;
        Some(read.bytes.slice(from..))
    }

    /// Told when the read has ended that will bring byte `position` of a segment.
    #[must_use]
    pub fn pending(&self, segment: &SegmentKey, position: u64) -> Option<Rc<Event>> {
        let pending = &self.segments.get(segment)?.pending;
        let (_, read) = pending.range(..=position).next_back()?;
        (position < read.end).then(|| Rc::clone(&read.ended))
    }

    /// The part of a range of a segment, from its start on, that is neither there nor on its way.
    #[must_use]
    pub fn missing(&self, segment: &SegmentKey, range: Range<u64>) -> Range<u64> {
        let Some(known) = self.segments.get(segment) else { return range };
        let held = known.reads.range(..=range.start).next_back();
        let held = held.map_or(0, |(start, read)| start + read.bytes.len() as u64);
        let coming = known.pending.range(..=range.start).next_back();
        let coming = coming.map_or(0, |(_, read)| read.end);
        let start = range.start.max(held).max(coming);
        if start != range.start {
            return start.min(range.end)..range.end;
        }
        let next = known.reads.range(start + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        let coming = known.pending.range(start + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        start..range.end.min(next).min(coming)
    }

    /// A range of a segment is on its way: [`ReadCache::ended`] follows in any case.
    pub fn begin(&mut self, segment: SegmentKey, range: Range<u64>) -> Rc<Event> {
        let pending = Pending { end: range.end, ended: Rc::default() };
        let ended = Rc::clone(&pending.ended);
        self.segments.entry(segment).or_default().pending.insert(range.start, pending);
        ended
    }

    /// The read has ended that began at byte `start`, whatever it brought.
    pub fn ended(&mut self, segment: &SegmentKey, start: u64, ended: &Rc<Event>) {
        ended.notify();
        let Some(known) = self.segments.get_mut(segment) else { return };
        if known.pending.get(&start).is_some_and(|pending| Rc::ptr_eq(&pending.ended, ended)) {
            known.pending.remove(&start);
        }
        self.drop_if_empty(segment);
    }

    /// Keeps what was read at byte `start` of a segment. Reads that it covers go.
    pub fn put(&mut self, segment: SegmentKey, start: u64, bytes: &Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.clock += 1;
        let end = start + bytes.len() as u64;
        let reads = &mut self.segments.entry(segment).or_default().reads;
        let is_covered =
            |(at, read): (&u64, &Read)| (at + read.bytes.len() as u64 <= end).then_some(*at);
        let covered: Vec<u64> = reads.range(start..end).filter_map(is_covered).collect();
        for at in covered {
            if let Some(read) = reads.remove(&at) {
                self.bytes -= read.bytes.len();
                self.by_use.remove(&read.used);
            }
        }
        let new = Read { bytes: bytes.clone(), used: self.clock };
        if let Some(longer) = reads.insert(start, new) {
            self.bytes -= longer.bytes.len();
            self.by_use.remove(&longer.used);
        }
        self.bytes += bytes.len();
        self.by_use.insert(self.clock, (segment, start));
        while self.bytes > self.bytes_max {
            let Some((_, (segment, start))) = self.by_use.pop_first() else { break };
            let known = self.segments.get_mut(&segment);
            if let Some(read) = known.and_then(|known| known.reads.remove(&start)) {
                self.bytes -= read.bytes.len();
            }
            self.drop_if_empty(&segment);
        }
    }

    /// Forgets a segment. What is on its way stays named until it has ended.
    pub fn forget_segment(&mut self, segment: &SegmentKey) {
        let Some(known) = self.segments.get_mut(segment) else { return };
        for read in std::mem::take(&mut known.reads).into_values() {
            self.bytes -= read.bytes.len();
            self.by_use.remove(&read.used);
        }
        self.drop_if_empty(segment);
    }

    /// Forgets everything of a partition.
    pub fn forget(&mut self, partition: TopicPartition) {
        let gone: Vec<SegmentKey> =
            self.segments.keys().filter(|key| key.0 == partition).copied().collect();
        gone.iter().for_each(|segment| self.forget_segment(segment));
    }

    fn drop_if_empty(&mut self, segment: &SegmentKey) {
        let known = self.segments.get(segment);
        if known.is_some_and(|known| known.reads.is_empty() && known.pending.is_empty()) {
            self.segments.remove(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PartitionIndex, TopicId};

    fn segment(number: i32, base: i64) -> SegmentKey {
        let topic = TopicId([1; 16]);
        (TopicPartition { topic, partition: PartitionIndex(number) }, Offset(base))
    }

    /// A read whose bytes tell their position.
    fn put(cache: &mut ReadCache, segment: SegmentKey, range: Range<u64>) {
        let bytes: Vec<u8> = range.clone().map(|at| at as u8).collect();
        cache.put(segment, range.start, &Bytes::from(bytes));
    }

    /// How many bytes there are from a position on.
    fn has(cache: &mut ReadCache, segment: SegmentKey, position: u64) -> Option<usize> {
        let found = cache.get(&segment, position)?;
        assert_eq!(found[0], position as u8);
        Some(found.len())
    }

    #[test]
    fn a_read_comes_and_goes_whole() {
        let (mut cache, one, other) = (ReadCache::new(60), segment(0, 0), segment(1, 0));
        put(&mut cache, one, 0..30);
        put(&mut cache, one, 30..45);
        assert_eq!(cache.memory(), (45, 60));
        assert_eq!((has(&mut cache, one, 10), has(&mut cache, one, 44)), (Some(20), Some(1)));
        assert_eq!((has(&mut cache, one, 45), has(&mut cache, other, 0)), (None, None));
        // The first read was used last before this: the second one is given up, whole.
        assert_eq!(has(&mut cache, one, 0), Some(30));
        put(&mut cache, other, 5..25);
        assert_eq!((has(&mut cache, one, 30), has(&mut cache, one, 29)), (None, Some(1)));
        assert_eq!((has(&mut cache, other, 4), has(&mut cache, other, 5)), (None, Some(20)));
        assert_eq!(cache.memory().0, 50);
        put(&mut cache, other, 100..200);
        assert_eq!(cache.memory().0, 0, "one that has no room is not kept");
        assert!(cache.segments.is_empty() && cache.by_use.is_empty());
    }

    #[test]
    fn what_is_read_again_takes_the_place_of_the_old() {
        let (mut cache, one) = (ReadCache::new(1_000), segment(0, 0));
        put(&mut cache, one, 0..50);
        put(&mut cache, one, 60..70);
        put(&mut cache, one, 40..80);
        assert_eq!(cache.memory().0, 90, "what is covered has gone, the other overlaps");
        assert_eq!((has(&mut cache, one, 39), has(&mut cache, one, 40)), (Some(11), Some(40)));
        put(&mut cache, one, 0..20);
        assert_eq!(cache.memory().0, 60, "a shorter one took the place of the first");
        assert_eq!((has(&mut cache, one, 19), has(&mut cache, one, 20)), (Some(1), None));
    }

    #[test]
    fn only_what_is_neither_there_nor_on_its_way_is_missing() {
        let (mut cache, one) = (ReadCache::new(1_000), segment(0, 0));
        assert_eq!(cache.missing(&one, 10..90), 10..90);
        put(&mut cache, one, 0..20);
        let begun = cache.begin(one, 40..60);
        for (range, missing) in [
            (0..10, 10..10),
            (10..90, 20..90),
            (20..90, 20..40),
            (20..30, 20..30),
            (45..90, 60..90),
            (60..90, 60..90),
        ] {
            assert_eq!(cache.missing(&one, range.clone()), missing, "{range:?}");
        }
        assert!(cache.pending(&one, 39).is_none() && cache.pending(&one, 60).is_none());
        let ended = cache.pending(&one, 59).expect("it is on its way");
        cache.forget_segment(&one);
        assert_eq!(cache.missing(&one, 0..90), 0..40, "it comes, whatever becomes of it");
        assert_eq!(ended.generation(), 0);
        cache.ended(&one, 40, &begun);
        assert_eq!(ended.generation(), 1);
        assert!(cache.segments.is_empty());
    }

    #[test]
    fn segments_and_partitions_are_forgotten() {
        let mut cache = ReadCache::new(1_000);
        for number in 0..2 {
            put(&mut cache, segment(number, 0), 0..30);
            put(&mut cache, segment(number, 50), 0..10);
        }
        cache.forget_segment(&segment(0, 0));
        assert_eq!((has(&mut cache, segment(0, 0), 0), cache.memory().0), (None, 50));
        cache.forget(segment(1, 0).0);
        assert_eq!(cache.memory().0, 10);
        cache.forget(segment(0, 0).0);
        assert_eq!(cache.memory().0, 0);
        assert!(cache.segments.is_empty() && cache.by_use.is_empty());
    }
}
