//! The aborted transactions of one segment, in Kafka's format of `.txnindex`, and the search for
//! those that a read must name.
//!
//! Owns the entries' bytes and order, and when a search may stop. An entry belongs to the segment
//! that holds the abort *marker*; the transaction may have begun in an earlier one. Must never be
//! trusted beyond what an image says of its length: recovery cuts it there.
//!
//! Invariants: entries rise by marker; a transaction begins before its marker.
//! Source: Kafka's `TransactionIndex`, `AbortedTxn`, `UnifiedLog.collectAbortedTransactions`.

use crate::ids::{Offset, ProducerId};

/// Bytes of one `.txnindex` entry: version, producer, first, last and last stable offset.
pub const ABORTED_ENTRY_BYTES: usize = 34;

/// A transaction that was aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// Offset of its first record in the partition.
    pub first_offset: Offset,
    /// Offset of its abort marker.
    pub last_offset: Offset,
    /// First offset of the oldest transaction that was open when the marker came, the offset
    /// after the marker if none was: every transaction that overlaps something below it has its
    /// marker here or before.
    pub last_stable_offset: Offset,
}

/// The aborted transactions of one segment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AbortedIndex {
    entries: Vec<AbortedTransaction>,
}

impl AbortedIndex {
    /// The index in a file's content; what is no entry in its place ends it (zero padding does).
    #[must_use]
    pub fn decode(content: &[u8]) -> AbortedIndex {
        let mut index = AbortedIndex::default();
        for bytes in content.chunks_exact(ABORTED_ENTRY_BYTES) {
            let Some(entry) = read_entry(bytes) else { break };
            if entry.first_offset >= entry.last_offset || !index.takes(entry.last_offset) {
                break;
            }
            index.entries.push(entry);
        }
        index
    }

    /// Adds a transaction whose marker comes after all others.
    pub fn add(&mut self, entry: AbortedTransaction) {
        assert!(self.takes(entry.last_offset), "the entries of an index rise by marker");
        self.entries.push(entry);
    }

    /// The entries, by rising marker.
    #[must_use]
    pub fn entries(&self) -> &[AbortedTransaction] {
        &self.entries
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        (self.entries.len() * ABORTED_ENTRY_BYTES) as u32
    }

    /// Bytes of the file with what has its marker below `end`.
    #[must_use]
    pub fn bytes_below(&self, end: Offset) -> u32 {
        let below = self.entries.partition_point(|entry| entry.last_offset < end);
        (below * ABORTED_ENTRY_BYTES) as u32
    }

    /// Content of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() as usize);
        for entry in &self.entries {
            out.extend_from_slice(&VERSION.to_be_bytes());
            out.extend_from_slice(&entry.producer_id.0.to_be_bytes());
            for offset in [entry.first_offset, entry.last_offset, entry.last_stable_offset] {
                out.extend_from_slice(&offset.0.to_be_bytes());
            }
        }
        out
    }

    fn takes(&self, marker: Offset) -> bool {
        self.entries.last().is_none_or(|last| last.last_offset < marker)
    }
}

/// A search for the aborted transactions that overlap `[start, end)`: segment by segment, from the
/// one that holds `start`, then what is in memory.
#[derive(Debug)]
pub struct AbortedSearch {
    start: Offset,
    end: Offset,
    found: Vec<AbortedTransaction>,
    newest: Option<Offset>,
    complete: bool,
}

impl AbortedSearch {
    /// A search that has looked nowhere.
    #[must_use]
    pub fn new(start: Offset, end: Offset) -> AbortedSearch {
        AbortedSearch { start, end, found: Vec::new(), newest: None, complete: start >= end }
    }

    /// Whether no entry that comes later can overlap.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Looks at the next entries, by rising marker; those seen before are passed over.
    pub fn look(&mut self, entries: impl IntoIterator<Item = AbortedTransaction>) {
        if self.complete {
            return;
        }
        for entry in entries {
            let seen = self.newest.is_some_and(|newest| entry.last_offset <= newest);
            if seen || entry.last_offset < self.start {
                continue;
            }
            self.newest = Some(entry.last_offset);
            if entry.first_offset < self.end {
                self.found.push(entry);
            }
            if entry.last_stable_offset >= self.end {
                self.complete = true;
                return;
            }
        }
    }

    /// Looks at the entries of a segment.
    pub fn look_in(&mut self, index: &AbortedIndex) {
        let entries = index.entries();
        let first = entries.partition_point(|entry| entry.last_offset < self.start);
        self.look(entries[first..].iter().copied());
    }

    /// What was found, by rising marker.
    #[must_use]
    pub fn into_found(self) -> Vec<AbortedTransaction> {
        self.found
    }
}

/// Reads one entry; `None` for a version that is unknown.
#[must_use]
pub fn read_entry(bytes: &[u8]) -> Option<AbortedTransaction> {
    let (version, rest) = bytes.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) != VERSION {
        return None;
    }
    let mut fields = rest.chunks_exact(8).filter_map(|field| field.first_chunk::<8>());
    let mut next = || fields.next().map(|field| i64::from_be_bytes(*field));
    Some(AbortedTransaction {
        producer_id: ProducerId(next()?),
        first_offset: Offset(next()?),
        last_offset: Offset(next()?),
        last_stable_offset: Offset(next()?),
    })
}

const VERSION: i16 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    fn index(entries: &[AbortedTransaction]) -> AbortedIndex {
        let mut index = AbortedIndex::default();
        for &entry in entries {
            index.add(entry);
        }
        index
    }

    #[test]
    fn entries_are_34_known_bytes_and_padding_ends_them() {
        let made = index(&[entry(0x0102, 3, 9, 4), entry(7, 4, 12, 13)]);
        let mut bytes = made.encode();
        assert_eq!((bytes.len(), made.bytes()), (68, 68));
        let expected = "0000\
                        0000000000000102\
                        0000000000000003\
                        0000000000000009\
                        0000000000000004";
        let hex: String = bytes[..34].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
        bytes.resize(4096, 0);
        assert_eq!(AbortedIndex::decode(&bytes), made);
        assert_eq!(AbortedIndex::decode(&[0; 4096]), AbortedIndex::default());
        assert_eq!(AbortedIndex::decode(&bytes[..67]).entries().len(), 1, "a torn entry");
        bytes[1] = 1;
        assert!(AbortedIndex::decode(&bytes).entries().is_empty(), "an unknown version");
    }

    fn found(segments: &[AbortedIndex], start: i64, end: i64) -> (Vec<i64>, usize) {
        let mut search = AbortedSearch::new(Offset(start), Offset(end));
        let mut looked = 0;
        for segment in segments {
            if search.is_complete() {
                break;
            }
            looked += 1;
            search.look_in(segment);
        }
        (search.into_found().iter().map(|found| found.last_offset.0).collect(), looked)
    }

    /// AutoMQ/automq#754: transactions that began before the read, and those whose marker is in a
    /// later segment, overlap it too.
    #[test]
    fn every_overlap_is_found_and_the_search_ends_where_nothing_can_follow() {
        let segments = [
            index(&[entry(1, 2, 10, 5)]),
            // Producer 2 was open from 5 on, until its marker here.
            index(&[entry(2, 5, 20, 21), entry(3, 22, 25, 26)]),
            index(&[entry(4, 30, 40, 41)]),
        ];
        assert_eq!(found(&segments, 0, 2), (vec![], 1), "ends before the first began");
        assert_eq!(found(&segments, 0, 3), (vec![10], 1));
        assert_eq!(found(&segments, 8, 12), (vec![10, 20], 2), "both began earlier");
        assert_eq!(found(&segments, 10, 11), (vec![10, 20], 2), "the marker itself overlaps");
        assert_eq!(found(&segments, 11, 12), (vec![20], 2));
        assert_eq!(found(&segments[1..], 12, 23), (vec![20, 25], 1));
        assert_eq!(found(&segments, 26, 30), (vec![], 3), "runs to the end of what there is");
        assert_eq!(found(&segments[2..], 41, 50), (vec![], 1));
        assert_eq!(found(&segments, 5, 5), (vec![], 0), "nothing was read");
    }

    #[test]
    fn what_is_both_in_a_segment_and_in_memory_is_named_once() {
        let written = index(&[entry(1, 2, 10, 3)]);
        let mut search = AbortedSearch::new(Offset(0), Offset(30));
        search.look_in(&written);
        search.look([entry(1, 2, 10, 3), entry(2, 3, 20, 21)]);
        let last: Vec<i64> = search.into_found().iter().map(|found| found.last_offset.0).collect();
        assert_eq!(last, [10, 20]);
    }
}
