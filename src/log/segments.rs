//! The segments of one partition: which exist, where the next batch goes, when to roll.
//!
//! Owns the layout of written bytes. The last segment is active: batches are *placed* in it
//! (position and index entries are fixed) and later become *written*. Sealed segments are
//! remembered by base and length only; their indexes are loaded when a reader asks.
//!
//! Sealed segments change through [`SegmentSet`]'s own steps only.
//!
//! Invariants: bases rise strictly; a batch lies whole in one segment; `written <= placed`; the
//! bytes of the active segment's last, partial 4 KiB block are kept in memory, because disk reads
//! and the writer never meet in one block. Source: Kafka's `LogSegment.shouldRoll`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use super::aborted::{ABORTED_ENTRY_BYTES, AbortedIndex, AbortedTransaction};
use super::index::SegmentIndex;
use super::tail::TailBatch;
use crate::ids::Offset;
use crate::limits::BLOCK_ALIGN;

/// When to roll, from the topic's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRules {
    /// Largest length of a segment.
    pub segment_bytes: u64,
    /// Largest span of record timestamps in a segment, milliseconds.
    pub segment_ms: i64,
    /// Most that is randomly taken off it, segment by segment.
    pub segment_jitter_ms: i64,
    /// Bytes between two index entries.
    pub index_interval_bytes: u64,
    /// Largest length of an index file.
    pub index_bytes_max: u32,
}

impl SegmentRules {
    /// What a new segment takes off its span of time.
    #[must_use]
    pub fn jitter_ms(&self, random: u64) -> i64 {
        let bound = u64::try_from(self.segment_jitter_ms).unwrap_or(0);
        let jitter = random.checked_rem(bound).unwrap_or(0);
        i64::try_from(jitter).unwrap_or(0)
    }
}

/// A batch to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedBatch {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its largest timestamp.
    pub max_timestamp_ms: i64,
    /// Wall clock when it was appended.
    pub append_ms: i64,
    /// Its length.
    pub bytes: usize,
}

impl PlacedBatch {
    /// A batch that is in memory.
    #[must_use]
    pub fn of(batch: &TailBatch) -> PlacedBatch {
        PlacedBatch {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            max_timestamp_ms: batch.max_timestamp_ms,
            append_ms: batch.append_ms,
            bytes: batch.bytes,
        }
    }
}

/// A complete segment.
#[derive(Clone, Debug)]
pub struct SealedSegment {
    /// Length of its `.log`.
    pub bytes: u64,
    /// Its indexes, once a reader has asked for them.
    pub index: Option<Rc<SegmentIndex>>,
    /// Its aborted transactions, once a reader has asked for them.
    pub aborted: Option<Rc<AbortedIndex>>,
    /// The timestamp that its age is counted from, once retention has asked for it: its largest,
    /// or when it was last written if it has none.
    pub newest_ms: Option<i64>,
}

impl SealedSegment {
    /// A segment of which nothing but the length is known.
    #[must_use]
    pub fn unread(bytes: u64) -> SealedSegment {
        SealedSegment { bytes, index: None, aborted: None, newest_ms: None }
    }

    /// Lengths of the index files, as far as they are in memory: all of them for a segment that was
    /// sealed in this boot.
    #[must_use]
    pub fn index_bytes(&self) -> IndexBytes {
        let (offsets, times) = self.index.as_ref().map_or((0, 0), |index| index.lengths());
        let aborted = self.aborted.as_ref().map_or(0, |aborted| aborted.bytes());
        IndexBytes { offsets, times, aborted }
    }
}

/// A segment that has left the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenSegment {
    /// Its base offset.
    pub base: Offset,
    /// The offset after it.
    pub end: Offset,
    /// Length of its `.log`.
    pub bytes: u64,
}

/// Lengths of a segment's index files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IndexBytes {
    /// `.index`
    pub offsets: u32,
    /// `.timeindex`
    pub times: u32,
    /// `.txnindex`
    pub aborted: u32,
}

/// The segment that batches are placed in.
#[derive(Clone, Debug)]
pub struct ActiveSegment {
    /// Its base offset.
    pub base: Offset,
    /// Length with everything that has been placed.
    pub placed_bytes: u64,
    /// Length of what has been written.
    pub written_bytes: u64,
    /// Bytes from the last 4 KiB boundary of `written_bytes` on.
    pub last_block: Vec<u8>,
    /// Its indexes, covering what was placed.
    pub index: SegmentIndex,
    /// The aborted transactions whose markers were placed.
    pub aborted: AbortedIndex,
    /// Length of the index files as they are on disk.
    pub index_bytes_on_disk: IndexBytes,
    /// Timestamp of its first batch, for rolling by time.
    pub first_timestamp_ms: Option<i64>,
    /// Wall clock when it was created.
    pub created_ms: i64,
    /// Wall clock of the newest append in it.
    pub appended_ms: i64,
    /// Taken off the span of time after which it is rolled.
    pub jitter_ms: i64,
    /// Space allocated ahead.
    pub allocated_bytes: u64,
}

impl ActiveSegment {
    /// An empty segment.
    #[must_use]
    pub fn new(base: Offset, now_ms: i64) -> ActiveSegment {
        ActiveSegment {
            base,
            placed_bytes: 0,
            written_bytes: 0,
            last_block: Vec::new(),
            index: SegmentIndex::new(base),
            aborted: AbortedIndex::default(),
            index_bytes_on_disk: IndexBytes::default(),
            first_timestamp_ms: None,
            created_ms: now_ms,
            appended_ms: now_ms,
            jitter_ms: 0,
            allocated_bytes: 0,
        }
    }

    /// Whether the batch must go to a new segment.
    #[must_use]
    pub fn must_roll(&self, batch: &PlacedBatch, rules: &SegmentRules) -> bool {
        if self.placed_bytes == 0 {
            return batch.last_offset.0 - self.base.0 > i64::from(i32::MAX);
        }
        let IndexBytes { offsets, times, aborted } = self.index_bytes();
        let span_ms = match self.first_timestamp_ms {
            Some(first) if first >= 0 => batch.max_timestamp_ms.saturating_sub(first),
            _ => batch.append_ms.saturating_sub(self.created_ms),
        };
        self.placed_bytes + batch.bytes as u64 > rules.segment_bytes
            || span_ms > rules.segment_ms.saturating_sub(self.jitter_ms)
            || offsets + 8 > rules.index_bytes_max / 8 * 8
            // One place is kept for the entry that a segment gets when it is sealed.
            || times + 24 > rules.index_bytes_max / 12 * 12
            // Kafka knows no bound here; an index in memory needs one, give or take one write.
            || (aborted > 0 && aborted + ABORTED_ENTRY_BYTES as u32 > rules.index_bytes_max)
            || batch.last_offset.0 - self.base.0 > i64::from(i32::MAX)
    }

    /// Places the batch at the end; returns its position.
    pub fn place(&mut self, batch: &PlacedBatch, rules: &SegmentRules) -> u64 {
        let position = self.placed_bytes;
        self.index.add(
            batch.last_offset,
            batch.max_timestamp_ms,
            position,
            batch.bytes,
            rules.index_interval_bytes,
        );
        self.first_timestamp_ms.get_or_insert(batch.max_timestamp_ms);
        self.appended_ms = batch.append_ms;
        self.placed_bytes += batch.bytes as u64;
        position
    }

    /// Lengths of the index files with everything that was placed.
    #[must_use]
    pub fn index_bytes(&self) -> IndexBytes {
        let (offsets, times) = self.index.lengths();
        IndexBytes { offsets, times, aborted: self.aborted.bytes() }
    }

    /// Adds the aborted transactions whose markers were placed; those it has are passed over.
    pub fn note_aborted(&mut self, placed: impl IntoIterator<Item = AbortedTransaction>) {
        let known = self.aborted.entries().last().map_or(Offset(-1), |last| last.last_offset);
        let new = placed.into_iter().filter(|entry| entry.last_offset > known);
        new.for_each(|entry| self.aborted.add(entry));
    }

    /// The timestamp that its age is counted from: its largest, or when it was last written if it
    /// has none.
    #[must_use]
    pub fn newest_ms(&self) -> i64 {
        match self.index.largest_timestamp() {
            (newest, _) if newest >= 0 => newest,
            _ => self.appended_ms,
        }
    }

    /// Start of the block that the next write begins with.
    #[must_use]
    pub fn next_write_position(&self) -> u64 {
        self.written_bytes - self.last_block.len() as u64
    }

    /// Everything up to byte `end` has been written; `last_block` is what lies beyond the last
    /// block boundary below `end`.
    pub fn written_to(&mut self, end: u64, last_block: Vec<u8>) {
        assert!(end >= self.written_bytes, "a write keeps the bytes before it");
        assert!(end <= self.placed_bytes, "only placed bytes are written");
        assert_eq!(end % BLOCK_ALIGN as u64, last_block.len() as u64, "the partial block is kept");
        self.written_bytes = end;
        self.last_block = last_block;
    }
}

/// All segments of a partition.
#[derive(Clone, Debug, Default)]
pub struct SegmentSet {
    /// Complete segments by base offset.
    pub sealed: BTreeMap<Offset, SealedSegment>,
    /// The one that is written to; none before the first write.
    pub active: Option<ActiveSegment>,
}

impl SegmentSet {
    /// Base offsets, rising.
    pub fn bases(&self) -> impl Iterator<Item = Offset> + '_ {
        self.sealed.keys().copied().chain(self.active.as_ref().map(|active| active.base))
    }

    /// Base of the segment that holds `offset`, or of the first one if that is above it.
    #[must_use]
    pub fn holding(&self, offset: Offset) -> Option<Offset> {
        if let Some(active) = &self.active
            && active.base <= offset
        {
            return Some(active.base);
        }
        let at_or_below = self.sealed.range(..=offset).next_back().map(|(&base, _)| base);
        at_or_below.or_else(|| self.bases().next())
    }

    /// Base of the segment after `base`.
    #[must_use]
    pub fn following(&self, base: Offset) -> Option<Offset> {
        let above = (Bound::Excluded(base), Bound::Unbounded);
        let sealed = self.sealed.range(above).next().map(|(&base, _)| base);
        sealed.or_else(|| self.active.as_ref().map(|active| active.base).filter(|&at| at > base))
    }

    /// Readable length of the segment at `base`.
    #[must_use]
    pub fn readable_bytes(&self, base: Offset) -> Option<u64> {
        match &self.active {
            Some(active) if active.base == base => Some(active.written_bytes),
            _ => self.sealed.get(&base).map(|segment| segment.bytes),
        }
    }

    /// Up to where the segment at `base` is read from disk: what comes after it is in memory.
    #[must_use]
    pub fn on_disk_bytes(&self, base: Offset) -> Option<u64> {
        match &self.active {
            Some(active) if active.base == base => Some(active.next_write_position()),
            _ => self.sealed.get(&base).map(|segment| segment.bytes),
        }
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, |active| active.written_bytes);
        active + self.sealed.values().map(|segment| segment.bytes).sum::<u64>()
    }

    /// Ends the active segment, which must be written completely.
    pub fn seal(&mut self) {
        let Some(active) = self.active.take() else { return };
        assert_eq!(active.written_bytes, active.placed_bytes, "a segment is sealed complete");
        let sealed = SealedSegment {
            bytes: active.placed_bytes,
            newest_ms: Some(active.newest_ms()),
            index: Some(Rc::new(active.index)),
            aborted: Some(Rc::new(active.aborted)),
        };
        self.sealed.insert(active.base, sealed);
    }

    /// Ends the active segment, which must be written completely, and starts one at `base`, which
    /// takes `jitter_ms` off its span of time.
    pub fn roll(&mut self, base: Offset, now_ms: i64, jitter_ms: i64) {
        self.seal();
        let newest = self.sealed.last_key_value().map(|(&newest, _)| newest);
        assert!(newest.is_none_or(|newest| newest < base), "segment bases rise");
        self.active = Some(ActiveSegment { jitter_ms, ..ActiveSegment::new(base, now_ms) });
    }

    /// Puts a segment of so many bytes in the place of neighbours, of which the first has its base.
    pub fn replace(&mut self, old: impl IntoIterator<Item = Offset>, base: Offset, bytes: u64) {
        for old in old {
            let gone = self.sealed.remove(&old);
            assert!(gone.is_some() && old >= base, "sealed neighbours are replaced by the first");
        }
        self.sealed.insert(base, SealedSegment::unread(bytes));
    }

    /// Forgets the sealed segments that lie wholly below `start`; `end` is the end of what is
    /// written.
    pub fn take_below(&mut self, start: Offset, end: Offset) -> Vec<TakenSegment> {
        let mut taken = Vec::new();
        while let Some((&base, sealed)) = self.sealed.first_key_value() {
            let (bytes, end) = (sealed.bytes, self.following(base).unwrap_or(end));
            if end > start {
                break;
            }
            self.sealed.remove(&base);
            taken.push(TakenSegment { base, end, bytes });
        }
        taken
    }
}

#[cfg(test)]
mod tests;
