//! Sparse offset and time index of one segment, in Kafka's formats.
//!
//! Owns when an entry is made, lookups, and the bytes of `.index` and `.timeindex`. Must never be
//! trusted beyond what an image says of its length: recovery cuts it there.
//!
//! Invariants: offsets and positions rise strictly; timestamps rise strictly; a time entry (T, O)
//! says that every record with a timestamp above T comes after offset O.
//! Source: Kafka's `LogSegment.append`, `OffsetIndex`, `TimeIndex`.

use crate::ids::Offset;

/// Bytes of one `.index` entry: offset relative to the base, file position.
pub const OFFSET_ENTRY_BYTES: usize = 8;

/// Bytes of one `.timeindex` entry: timestamp, offset relative to the base.
pub const TIME_ENTRY_BYTES: usize = 12;

/// Both indexes of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentIndex {
    base: Offset,
    offsets: Vec<(u32, u32)>,
    times: Vec<(i64, u32)>,
    bytes_since_entry: u64,
    largest_timestamp_ms: i64,
    largest_timestamp_offset: Offset,
    knows_its_end: bool,
}

impl SegmentIndex {
    /// Indexes of an empty segment.
    #[must_use]
    pub fn new(base: Offset) -> SegmentIndex {
        SegmentIndex {
            base,
            offsets: Vec::new(),
            times: Vec::new(),
            bytes_since_entry: 0,
            largest_timestamp_ms: -1,
            largest_timestamp_offset: base,
            knows_its_end: true,
        }
    }

    /// Indexes from file content; what is not strictly rising ends them (zero padding does).
    /// Bytes since the last entry are unknown and taken as zero, and so are the batches there
    /// ([`SegmentIndex::knows_its_end`]).
    #[must_use]
    pub fn decode(base: Offset, offsets: &[u8], times: &[u8]) -> SegmentIndex {
        let mut index = SegmentIndex { knows_its_end: false, ..SegmentIndex::new(base) };
        for entry in offsets.chunks_exact(OFFSET_ENTRY_BYTES) {
            let relative = u32_at(entry, 0);
            let position = u32_at(entry, 4);
            let rises = match index.offsets.last() {
                Some(last) => relative > last.0 && position > last.1,
                None => relative != 0 || position != 0,
            };
            if !rises {
                break;
            }
            index.offsets.push((relative, position));
        }
        for (timestamp, relative) in times.chunks_exact(TIME_ENTRY_BYTES).map_while(read_time_entry)
        {
            if index.times.last().map_or(timestamp <= 0, |last| timestamp <= last.0) {
                break;
            }
            index.times.push((timestamp, relative));
            index.largest_timestamp_ms = timestamp;
            index.largest_timestamp_offset = base.plus(i64::from(relative));
        }
        index
    }

    /// Takes note of a batch placed at `position` of the segment.
    pub fn add(
        &mut self,
        last_offset: Offset,
        max_timestamp_ms: i64,
        position: u64,
        bytes: usize,
        interval_bytes: u64,
    ) {
        self.note(last_offset, max_timestamp_ms);
        if self.bytes_since_entry > interval_bytes {
            self.offsets.push((self.relative(last_offset), position as u32));
            self.add_time_entry();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += bytes as u64;
    }

    /// Whether the batches after the last entry are taken into account: not if it came from files.
    #[must_use]
    pub fn knows_its_end(&self) -> bool {
        self.knows_its_end
    }

    /// File position of the batch with the last offset entry, from where on batches may be in no
    /// entry.
    #[must_use]
    pub fn last_position(&self) -> u64 {
        self.offsets.last().map_or(0, |entry| u64::from(entry.1))
    }

    /// Takes note of a batch that was found after the last entry.
    pub fn note(&mut self, last_offset: Offset, max_timestamp_ms: i64) {
        if max_timestamp_ms > self.largest_timestamp_ms {
            self.largest_timestamp_ms = max_timestamp_ms;
            self.largest_timestamp_offset = last_offset;
        }
    }

    /// All batches after the last entry were noted.
    pub fn end_is_known(&mut self) {
        self.knows_its_end = true;
    }

    /// The last time entry of a segment that is complete.
    pub fn seal(&mut self) {
        self.add_time_entry();
    }

    /// File position at or before the batch that contains `offset`.
    #[must_use]
    pub fn position_of(&self, offset: Offset) -> u64 {
        let relative = offset.0.saturating_sub(self.base.0);
        let above = self.offsets.partition_point(|entry| i64::from(entry.0) <= relative);
        if above == 0 { 0 } else { u64::from(self.offsets[above - 1].1) }
    }

    /// Whether the batches from the entry at `position` on are small: the one that was looked for
    /// is likely to come with the same read.
    #[must_use]
    pub fn is_dense_at(&self, position: u64) -> bool {
        let above = self.offsets.partition_point(|entry| u64::from(entry.1) <= position);
        let next = self.offsets.get(above).map(|entry| u64::from(entry.1));
        next.is_some_and(|next| next - position <= SMALL_GAP_BYTES)
    }

    /// File position up to which a read from `position` on of about `bytes` bytes goes: a batch
    /// begins there, as far as entries tell, so that no part of one is read in vain.
    #[must_use]
    pub fn end_of_read(&self, position: u64, bytes: u64) -> u64 {
        let limit = position.saturating_add(bytes);
        let above = self.offsets.partition_point(|entry| u64::from(entry.1) <= limit);
        let before = above.checked_sub(1).map_or(0, |last| u64::from(self.offsets[last].1));
        if before > position {
            // Between small batches there are few entries, and what is wanted begins after one.
            let before_that =
                above.checked_sub(2).map_or(0, |last| u64::from(self.offsets[last].1));
            let is_small = before - before_that <= SMALL_GAP_BYTES;
            return if is_small { limit + SMALL_GAP_BYTES / 2 } else { before };
        }
        // The first batch is larger than what was asked for: it is read whole.
        self.offsets.get(above).map_or(limit, |entry| u64::from(entry.1))
    }

    /// File position before which no record has a timestamp of `timestamp_ms` or more.
    #[must_use]
    pub fn position_of_time(&self, timestamp_ms: i64) -> u64 {
        let above = self.times.partition_point(|entry| entry.0 < timestamp_ms);
        match above {
            0 => 0,
            _ => self.position_of(self.base.plus(i64::from(self.times[above - 1].1))),
        }
    }

    /// Largest record timestamp, -1 if none, and the last offset of the batch that has it.
    #[must_use]
    pub fn largest_timestamp(&self) -> (i64, Offset) {
        (self.largest_timestamp_ms, self.largest_timestamp_offset)
    }

    /// Bytes of the two files.
    #[must_use]
    pub fn lengths(&self) -> (u32, u32) {
        let offsets = self.offsets.len() * OFFSET_ENTRY_BYTES;
        let times = self.times.len() * TIME_ENTRY_BYTES;
        (offsets as u32, times as u32)
    }

    /// Content of `.index` from byte `from` on, a multiple of the entry size.
    #[must_use]
    pub fn encode_offsets(&self, from: u32) -> Vec<u8> {
        let entries = &self.offsets[from as usize / OFFSET_ENTRY_BYTES..];
        let mut out = Vec::with_capacity(entries.len() * OFFSET_ENTRY_BYTES);
        for &(relative, position) in entries {
            out.extend_from_slice(&relative.to_be_bytes());
            out.extend_from_slice(&position.to_be_bytes());
        }
        out
    }

    /// Content of `.timeindex` from byte `from` on, a multiple of the entry size.
    #[must_use]
    pub fn encode_times(&self, from: u32) -> Vec<u8> {
        let entries = &self.times[from as usize / TIME_ENTRY_BYTES..];
        let mut out = Vec::with_capacity(entries.len() * TIME_ENTRY_BYTES);
        for &(timestamp, relative) in entries {
            out.extend_from_slice(&timestamp.to_be_bytes());
            out.extend_from_slice(&relative.to_be_bytes());
        }
        out
    }

    fn add_time_entry(&mut self) {
        let newest = self.times.last().map_or(0, |entry| entry.0);
        if self.largest_timestamp_ms > newest {
            let relative = self.relative(self.largest_timestamp_offset);
            self.times.push((self.largest_timestamp_ms, relative));
        }
    }

    fn relative(&self, offset: Offset) -> u32 {
        u32::try_from(offset.0 - self.base.0).expect("invariant: segments span less than 2^31")
    }
}

/// Timestamp and relative offset of the `.timeindex` entry that `bytes` begin with.
#[must_use]
pub fn read_time_entry(bytes: &[u8]) -> Option<(i64, u32)> {
    let (timestamp, rest) = bytes.split_first_chunk::<8>()?;
    let relative = rest.first_chunk::<4>()?;
    Some((i64::from_be_bytes(*timestamp), u32::from_be_bytes(*relative)))
}

/// Bytes that are rather read in vain than with a read of their own.
const SMALL_GAP_BYTES: u64 = 8 * 1024;

fn u32_at(entry: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_as_kafka_makes_them() {
        let mut index = SegmentIndex::new(Offset(100));
        // Ten batches of ten records and 1,500 bytes; an entry once 4,096 bytes have passed.
        for batch in 0..10_i64 {
            let last = Offset(100 + batch * 10 + 9);
            index.add(last, 1_000 + batch, batch as u64 * 1_500, 1_500, 4_096);
        }
        assert_eq!(index.offsets, vec![(39, 4_500), (69, 9_000), (99, 13_500)]);
        assert_eq!(index.times, vec![(1_003, 39), (1_006, 69), (1_009, 99)]);
        index.seal();
        assert_eq!(index.times.len(), 3, "the last batch has its entry already");
        assert_eq!(index.position_of(Offset(100)), 0);
        assert_eq!(index.position_of(Offset(138)), 0);
        assert_eq!(index.position_of(Offset(139)), 4_500);
        assert_eq!(index.position_of(Offset(500)), 13_500);
        assert_eq!(index.position_of_time(0), 0);
        assert_eq!(index.position_of_time(1_003), 0);
        assert_eq!(index.position_of_time(1_004), 4_500);
        assert_eq!(index.largest_timestamp(), (1_009, Offset(199)));
    }

    #[test]
    fn a_read_ends_where_a_batch_begins() {
        let index_of = |batch: u64| {
            let mut index = SegmentIndex::new(Offset(0));
            for number in 0..100_u64 {
                index.add(Offset(number as i64), 1, number * batch, batch as usize, 4_096);
            }
            index
        };
        let large = index_of(65_600);
        assert_eq!(large.end_of_read(0, 65_600), 65_600);
        assert_eq!(large.end_of_read(0, 130_000), 65_600, "one, and half of another");
        assert_eq!(large.end_of_read(65_600, 30_000), 131_200, "the first one in any case");
        assert_eq!(large.end_of_read(65_600 * 99, 65_600), 65_600 * 100, "the end is not known");
        let small = index_of(1_000);
        assert_eq!(small.end_of_read(10_000, 65_536), 75_536 + 4_096);
        assert_eq!(SegmentIndex::new(Offset(0)).end_of_read(8, 100), 108);
        assert!(small.is_dense_at(0) && small.is_dense_at(10_000) && !large.is_dense_at(0));
        assert!(!large.is_dense_at(65_600) && !small.is_dense_at(99_000));
    }

    #[test]
    fn files_round_trip_and_padding_ends_them() {
        let mut index = SegmentIndex::new(Offset(0));
        for batch in 0..20_i64 {
            index.add(Offset(batch), 50 + batch, batch as u64 * 100, 100, 250);
        }
        let mut offsets = index.encode_offsets(0);
        let mut times = index.encode_times(0);
        assert_eq!((offsets.len() as u32, times.len() as u32), index.lengths());
        assert_eq!(index.encode_offsets(8), offsets[8..]);
        offsets.resize(4096, 0);
        times.resize(4096, 0);
        let read = SegmentIndex::decode(Offset(0), &offsets, &times);
        assert_eq!(read.offsets, index.offsets);
        assert_eq!(read.times, index.times);
    }

    #[test]
    fn files_do_not_know_the_batches_after_their_last_entry() {
        let mut index = SegmentIndex::new(Offset(0));
        for batch in 0..20_i64 {
            index.add(Offset(batch), 50 + batch, batch as u64 * 100, 100, 250);
        }
        assert!(index.knows_its_end());
        assert_eq!(index.largest_timestamp(), (69, Offset(19)));
        let (offsets, times) = (index.encode_offsets(0), index.encode_times(0));
        let mut read = SegmentIndex::decode(Offset(0), &offsets, &times);
        assert!(!read.knows_its_end());
        // Every third batch has an entry, the last one is that of batch 18.
        assert_eq!((read.largest_timestamp(), read.last_position()), ((68, Offset(18)), 1_800));
        for batch in 18..20 {
            read.note(Offset(batch), 50 + batch);
        }
        read.end_is_known();
        assert!(read.knows_its_end());
        assert_eq!(read.largest_timestamp(), (69, Offset(19)));
        assert_eq!(SegmentIndex::decode(Offset(0), &[], &[]).last_position(), 0);
    }
}
