//! The segments of one partition: which exist, where the next batch goes, when to roll.
//!
//! Owns the layout of written bytes. The last segment is active: batches are *placed* in it
//! (position and index entries are fixed) and later become *written*. Sealed segments are
//! remembered by base and length only; their indexes are loaded when a reader asks.
//!
//! Invariants: bases rise strictly; a batch lies whole in one segment; `written <= placed`; the
//! bytes of the active segment's last, partial 4 KiB block are kept in memory, because disk reads
//! and the writer never meet in one block. Source: Kafka's `LogSegment.shouldRoll`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::aborted::{ABORTED_ENTRY_BYTES, AbortedIndex, AbortedTransaction};
use super::index::SegmentIndex;
use crate::ids::Offset;
use crate::limits::BLOCK_ALIGN;

/// When to roll, from the topic's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRules {
    /// Largest length of a segment.
    pub segment_bytes: u64,
    /// Largest span of record timestamps in a segment, milliseconds.
    pub segment_ms: i64,
    /// Bytes between two index entries.
    pub index_interval_bytes: u64,
    /// Largest length of an index file.
    pub index_bytes_max: u32,
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
    /// Its length.
    pub bytes: usize,
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
}

impl SealedSegment {
    /// Lengths of the index files, as far as they are in memory: all of them for a segment that was
    /// sealed in this boot.
    #[must_use]
    pub fn index_bytes(&self) -> IndexBytes {
        let (offsets, times) = self.index.as_ref().map_or((0, 0), |index| index.lengths());
        let aborted = self.aborted.as_ref().map_or(0, |aborted| aborted.bytes());
        IndexBytes { offsets, times, aborted }
    }
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
            allocated_bytes: 0,
        }
    }

    /// Whether the batch must go to a new segment.
    #[must_use]
    pub fn must_roll(&self, batch: &PlacedBatch, rules: &SegmentRules, now_ms: i64) -> bool {
        if self.placed_bytes == 0 {
            return batch.last_offset.0 - self.base.0 > i64::from(i32::MAX);
        }
        let IndexBytes { offsets, times, aborted } = self.index_bytes();
        let span_ms = match self.first_timestamp_ms {
            Some(first) if batch.max_timestamp_ms >= 0 && first >= 0 => {
                batch.max_timestamp_ms.saturating_sub(first)
            }
            _ => now_ms.saturating_sub(self.created_ms),
        };
        self.placed_bytes + batch.bytes as u64 > rules.segment_bytes
            || span_ms > rules.segment_ms
            || offsets + 8 > rules.index_bytes_max / 8 * 8
            || times + 12 > rules.index_bytes_max / 12 * 12
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
        self.bases().find(|&other| other > base)
    }

    /// Readable length of the segment at `base`.
    #[must_use]
    pub fn readable_bytes(&self, base: Offset) -> Option<u64> {
        match &self.active {
            Some(active) if active.base == base => Some(active.written_bytes),
            _ => self.sealed.get(&base).map(|segment| segment.bytes),
        }
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, |active| active.written_bytes);
        active + self.sealed.values().map(|segment| segment.bytes).sum::<u64>()
    }

    /// Ends the active segment, which must be written completely, and starts one at `base`.
    pub fn roll(&mut self, base: Offset, now_ms: i64) {
        if let Some(active) = self.active.take() {
            assert_eq!(active.written_bytes, active.placed_bytes, "a segment is sealed complete");
            assert!(active.base < base, "segment bases rise");
            let sealed = SealedSegment {
                bytes: active.placed_bytes,
                index: Some(Rc::new(active.index)),
                aborted: Some(Rc::new(active.aborted)),
            };
            self.sealed.insert(active.base, sealed);
        }
        self.active = Some(ActiveSegment::new(base, now_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: SegmentRules = SegmentRules {
        segment_bytes: 10_000,
        segment_ms: 1_000,
        index_interval_bytes: 4_096,
        index_bytes_max: 80,
    };

    fn batch(base: i64, count: i64, timestamp: i64, bytes: usize) -> PlacedBatch {
        PlacedBatch {
            base_offset: Offset(base),
            last_offset: Offset(base + count - 1),
            max_timestamp_ms: timestamp,
            bytes,
        }
    }

    #[test]
    fn rolls_by_bytes_time_and_span() {
        let mut active = ActiveSegment::new(Offset(0), 0);
        assert!(!active.must_roll(&batch(0, 1, 5, 99_999), &RULES, 0), "never while empty");
        active.place(&batch(0, 1, 5, 6_000), &RULES);
        assert!(!active.must_roll(&batch(1, 1, 5, 4_000), &RULES, 0));
        assert!(active.must_roll(&batch(1, 1, 5, 4_001), &RULES, 0));
        assert!(!active.must_roll(&batch(1, 1, 1_005, 10), &RULES, 0));
        assert!(active.must_roll(&batch(1, 1, 1_006, 10), &RULES, 0));
        assert!(active.must_roll(&batch(1, 1, -1, 10), &RULES, 1_001), "no timestamp: its age");
        assert!(active.must_roll(&batch(i64::from(i32::MAX), 2, 5, 10), &RULES, 0));
    }

    #[test]
    fn rolls_when_the_index_of_aborted_transactions_is_full() {
        let mut active = ActiveSegment::new(Offset(0), 0);
        active.place(&batch(0, 1, 5, 78), &RULES);
        for marker in 1..=2 {
            assert!(!active.must_roll(&batch(marker, 1, 5, 78), &RULES, 0));
            active.place(&batch(marker, 1, 5, 78), &RULES);
            let entry = AbortedTransaction {
                producer_id: crate::ids::ProducerId(9),
                first_offset: Offset(marker - 1),
                last_offset: Offset(marker),
                last_stable_offset: Offset(marker + 1),
            };
            active.note_aborted([entry]);
            active.note_aborted([entry]);
        }
        assert_eq!(active.index_bytes().aborted, 68);
        assert!(active.must_roll(&batch(3, 1, 5, 78), &RULES, 0), "80 bytes take two entries");
    }

    #[test]
    fn the_last_block_is_kept_and_bases_are_found() {
        let mut set = SegmentSet::default();
        set.roll(Offset(0), 0);
        let active = set.active.as_mut().expect("active");
        active.place(&batch(0, 1, 1, 5_000), &RULES);
        active.written_to(5_000, vec![7; 904]);
        assert_eq!(active.next_write_position(), 4_096);
        active.place(&batch(1, 1, 1, 3_192), &RULES);
        active.written_to(8_192, Vec::new());
        set.roll(Offset(2), 0);
        assert_eq!(set.holding(Offset(1)), Some(Offset(0)));
        assert_eq!(set.holding(Offset(2)), Some(Offset(2)));
        assert_eq!(set.following(Offset(0)), Some(Offset(2)));
        assert_eq!(set.readable_bytes(Offset(0)), Some(8_192));
    }
}
