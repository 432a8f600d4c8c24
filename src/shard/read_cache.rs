//! A byte-bounded cache of segment chunks.
//!
//! Owns the memory of reads that have missed it. Chunks are found one by one, but several come with
//! one read and share its memory, which lives for as long as any of them does: so they are counted,
//! kept and given up together, the read whose chunks were used least recently first. A chunk that
//! is read anew takes the place of the old one, whose read stays counted until it goes.

use bytes::Bytes;
use hashbrown::HashMap;
use std::collections::BTreeMap;

use crate::ids::{Offset, TopicPartition};
use crate::limits::READ_CHUNK_BYTES;

/// Key of a cached chunk: partition, segment base, chunk number.
pub type ChunkKey = (TopicPartition, Offset, u64);

/// The cache.
pub struct ReadCache {
    chunks: HashMap<ChunkKey, Chunk, foldhash::fast::RandomState>,
    runs: HashMap<u64, Run, foldhash::fast::RandomState>,
    /// Runs by when they were used.
    by_use: BTreeMap<u64, u64>,
    /// Counts uses, and runs.
    clock: u64,
    bytes: usize,
    bytes_max: usize,
}

struct Chunk {
    bytes: Bytes,
    run: u64,
}

/// What came with one read.
struct Run {
    keys: Vec<ChunkKey>,
    bytes: usize,
    used: u64,
}

impl ReadCache {
    /// A cache of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            chunks: HashMap::default(),
            runs: HashMap::default(),
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

    /// Bytes of the largest read that it is of use to make: sixteen of them have room.
    #[must_use]
    pub fn run_bytes_max(&self) -> usize {
        self.bytes_max / 16
    }

    /// A chunk, if it is there.
    pub fn get(&mut self, key: &ChunkKey) -> Option<Bytes> {
        let chunk = self.chunks.get(key)?;
        let bytes = chunk.bytes.clone();
        self.clock += 1;
        if let Some(run) = self.runs.get_mut(&chunk.run) {
            self.by_use.remove(&run.used);
            run.used = self.clock;
            self.by_use.insert(self.clock, chunk.run);
        }
        Some(bytes)
    }

    /// Keeps what one read has found: the chunks of a segment from `first` on.
    pub fn put_run(&mut self, partition: TopicPartition, base: Offset, first: u64, read: &Bytes) {
        self.clock += 1;
        let number = self.clock;
        let mut run = Run { keys: Vec::new(), bytes: read.len(), used: number };
        for (chunk, from) in (first..).zip((0..read.len()).step_by(READ_CHUNK_BYTES as usize)) {
            let to = read.len().min(from + READ_CHUNK_BYTES as usize);
            let key = (partition, base, chunk);
            run.keys.push(key);
            let new = Chunk { bytes: read.slice(from..to), run: number };
            if let Some(old) = self.chunks.insert(key, new) {
                self.leave_run(old.run, &key);
            }
        }
        self.bytes += run.bytes;
        self.by_use.insert(number, number);
        self.runs.insert(number, run);
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some(run) = self.runs.remove(&oldest) {
                self.bytes -= run.bytes;
                run.keys.iter().for_each(|key| drop(self.chunks.remove(key)));
            }
        }
    }

    /// Forgets a segment of so many bytes.
    pub fn forget_segment(&mut self, partition: TopicPartition, base: Offset, bytes: u64) {
        for chunk in 0..bytes.div_ceil(READ_CHUNK_BYTES) {
            let key = (partition, base, chunk);
            if let Some(old) = self.chunks.remove(&key) {
                self.leave_run(old.run, &key);
            }
        }
    }

    /// Forgets everything of a partition.
    pub fn forget(&mut self, partition: TopicPartition) {
        let gone: Vec<(ChunkKey, u64)> = self
            .chunks
            .iter()
            .filter(|(key, _)| key.0 == partition)
            .map(|(key, chunk)| (*key, chunk.run))
            .collect();
        for (key, run) in gone {
            self.chunks.remove(&key);
            self.leave_run(run, &key);
        }
    }

    /// A chunk of this run is not there any more: without any, the run goes.
    fn leave_run(&mut self, number: u64, key: &ChunkKey) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.keys.retain(|other| other != key);
        if run.keys.is_empty() {
            self.bytes -= run.bytes;
            self.by_use.remove(&run.used);
            self.runs.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PartitionIndex, TopicId};

    const CHUNK: usize = READ_CHUNK_BYTES as usize;
    const BASE: Offset = Offset(0);

    fn partition(number: i32) -> TopicPartition {
        TopicPartition { topic: TopicId([1; 16]), partition: PartitionIndex(number) }
    }

    /// A read whose chunks begin with their numbers.
    fn read(first: u64, chunks: usize, rest: usize) -> Bytes {
        let mut bytes = vec![0; chunks * CHUNK + rest];
        for (number, chunk) in (first..).zip(bytes.chunks_mut(CHUNK)) {
            chunk[0] = number as u8;
        }
        Bytes::from(bytes)
    }

    fn has(cache: &mut ReadCache, number: i32, chunk: u64) -> Option<usize> {
        let found = cache.get(&(partition(number), BASE, chunk))?;
        assert_eq!(found[0], chunk as u8);
        Some(found.len())
    }

    #[test]
    fn chunks_of_a_read_come_and_go_together() {
        let mut cache = ReadCache::new(6 * CHUNK);
        cache.put_run(partition(0), BASE, 0, &read(0, 3, 0));
        cache.put_run(partition(0), BASE, 3, &read(3, 1, 5));
        assert_eq!(cache.memory(), (4 * CHUNK + 5, 6 * CHUNK));
        assert_eq!((has(&mut cache, 0, 1), has(&mut cache, 0, 4)), (Some(CHUNK), Some(5)));
        assert_eq!((has(&mut cache, 0, 5), has(&mut cache, 1, 0)), (None, None));
        // The first read was used last before this: the second one is given up, whole.
        assert_eq!(has(&mut cache, 0, 0), Some(CHUNK));
        cache.put_run(partition(1), BASE, 0, &read(0, 2, 0));
        assert_eq!((has(&mut cache, 0, 3), has(&mut cache, 0, 4)), (None, None));
        assert_eq!((has(&mut cache, 0, 2), has(&mut cache, 1, 1)), (Some(CHUNK), Some(CHUNK)));
        assert_eq!(cache.memory().0, 5 * CHUNK);
    }

    #[test]
    fn one_chunk_that_is_used_keeps_its_read_and_is_counted_with_it() {
        let mut cache = ReadCache::new(16 * CHUNK);
        for number in 0..20 {
            cache.put_run(partition(number), BASE, 0, &read(0, 4, 0));
            // Always the first of all.
            assert_eq!(has(&mut cache, 0, 0), Some(CHUNK));
            assert!(cache.memory().0 <= 16 * CHUNK);
        }
        let kept = (0..20).filter(|number| has(&mut cache, *number, 3).is_some()).count();
        assert_eq!(kept, 4, "as many reads as have room");
    }

    #[test]
    fn what_is_read_again_takes_the_place_of_the_old() {
        let mut cache = ReadCache::new(64 * CHUNK);
        cache.put_run(partition(0), BASE, 0, &read(0, 1, 7));
        cache.put_run(partition(0), BASE, 1, &read(1, 1, 0));
        assert_eq!(has(&mut cache, 0, 1), Some(CHUNK));
        assert_eq!(cache.memory().0, 2 * CHUNK + 7, "the old one's memory is still there");
        cache.put_run(partition(0), BASE, 0, &read(0, 1, 0));
        assert_eq!(cache.memory().0, 2 * CHUNK, "it has gone with its last chunk");
    }

    #[test]
    fn segments_and_partitions_are_forgotten() {
        let mut cache = ReadCache::new(64 * CHUNK);
        for number in 0..2 {
            cache.put_run(partition(number), BASE, 0, &read(0, 2, 9));
            cache.put_run(partition(number), Offset(50), 0, &read(0, 1, 0));
        }
        cache.forget_segment(partition(0), BASE, (2 * CHUNK + 9) as u64);
        assert_eq!((has(&mut cache, 0, 0), has(&mut cache, 0, 2)), (None, None));
        assert_eq!(cache.memory().0, 4 * CHUNK + 9);
        cache.forget(partition(1));
        assert_eq!(cache.memory().0, CHUNK);
        cache.forget(partition(0));
        assert_eq!(cache.memory().0, 0);
        assert!(cache.runs.is_empty() && cache.by_use.is_empty() && cache.chunks.is_empty());
    }
}
