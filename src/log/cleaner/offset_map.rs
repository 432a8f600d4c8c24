//! The newest offset of every key in the part of a log that is being cleaned.
//!
//! Owns a table of fixed size: 128 bits of a keyed hash stand for the key, so that a key of any
//! length takes [`ENTRY_BYTES`]. It knows no removal. Its memory comes in chunks, ahead of time by
//! [`OffsetMap::take_chunk`] or when there is a key for one: all of it at once is zeroed in one go,
//! which takes as long as hundreds of requests. Two keys with the same hash would be taken
//! for one; the hash is keyed at random so that nobody can look for such a pair beforehand.
//! Source: Kafka's `SkimpyOffsetMap`.

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::ids::Offset;

/// Memory per key, as in Kafka.
pub const ENTRY_BYTES: usize = 24;

type Slot = [u64; 3];

/// Offsets by hash of key.
pub struct OffsetMap {
    /// Hash, and the offset plus one; all zero is free. A chunk without memory is free throughout.
    chunks: Vec<Vec<Slot>>,
    slots: usize,
    /// Chunks before it have memory.
    next_chunk: usize,
    len: usize,
    len_max: usize,
    seed: u64,
    latest: Offset,
}

impl OffsetMap {
    /// An empty map of `memory_bytes` that takes keys until `load_factor` of it is used, and one
    /// key at least.
    #[must_use]
    pub fn new(memory_bytes: usize, load_factor: f64, seed: u64) -> OffsetMap {
        let slots = (memory_bytes / ENTRY_BYTES).max(2);
        let len_max = (slots as f64 * load_factor.clamp(0.0, 1.0)) as usize;
        OffsetMap {
            chunks: vec![Vec::new(); slots.div_ceil(CHUNK_SLOTS)],
            slots,
            next_chunk: 0,
            len: 0,
            // One slot stays free, where a search for what is not there ends.
            len_max: len_max.clamp(1, slots - 1),
            seed,
            latest: Offset(-1),
        }
    }

    /// Takes the memory of one more chunk; `false` if all have theirs.
    pub fn take_chunk(&mut self) -> bool {
        let Some(chunk) = self.chunks.get_mut(self.next_chunk) else { return false };
        fill(chunk);
        self.next_chunk += 1;
        true
    }

    /// Notes that `key` is at `offset`, which is higher than where it was; `false` if the map is
    /// full.
    #[must_use]
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let place = self.place(hash);
        if self.slot(place)[2] == 0 {
            if self.len == self.len_max {
                return false;
            }
            self.len += 1;
        }
        let chunk = &mut self.chunks[place / CHUNK_SLOTS];
        fill(chunk);
        chunk[place % CHUNK_SLOTS] = [hash[0], hash[1], offset.0.cast_unsigned().wrapping_add(1)];
        true
    }

    /// Newest offset of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let [.., offset] = self.slot(self.place(self.hash(key)));
        (offset != 0).then(|| Offset(offset.wrapping_sub(1).cast_signed()))
    }

    /// Last offset of the part whose keys are all here; -1 before there is one.
    #[must_use]
    pub fn latest(&self) -> Offset {
        self.latest
    }

    /// The keys of everything through `offset` are here.
    pub fn covers_through(&mut self, offset: Offset) {
        self.latest = self.latest.max(offset);
    }

    /// Keys in the map.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key is in the map.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the hash is, or the free slot where it belongs.
    fn place(&self, hash: [u64; 2]) -> usize {
        let count = self.slots;
        let mut place = ((u128::from(hash[0]) * count as u128) >> 64) as usize;
        loop {
            let [first, second, offset] = self.slot(place);
            if offset == 0 || [first, second] == hash {
                return place;
            }
            place = if place + 1 == count { 0 } else { place + 1 };
        }
    }

    fn slot(&self, place: usize) -> Slot {
        let chunk = &self.chunks[place / CHUNK_SLOTS];
        chunk.get(place % CHUNK_SLOTS).copied().unwrap_or_default()
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        let hash = xxh3_128_with_seed(key, self.seed);
        [(hash >> 64) as u64, hash as u64]
    }
}

/// Gives a chunk its memory, if it has none.
fn fill(chunk: &mut Vec<Slot>) {
    if chunk.is_empty() {
        chunk.resize(CHUNK_SLOTS, [0; 3]);
    }
}

/// 96 KiB: zeroed within microseconds.
const CHUNK_SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offset_of_a_key_is_kept_until_the_map_is_full() {
        let mut map = OffsetMap::new(10 * ENTRY_BYTES, 0.5, 7);
        assert_eq!(map.get(b"a"), None);
        assert!(map.put(b"a", Offset(0)) && map.put(b"", Offset(1)) && map.put(b"a", Offset(2)));
        assert_eq!((map.get(b"a"), map.get(b""), map.len()), (Some(Offset(2)), Some(Offset(1)), 2));
        for key in [b"c", b"d", b"e"] {
            assert!(map.put(key, Offset(9)));
        }
        assert!(!map.put(b"f", Offset(10)), "half of ten slots are used");
        assert_eq!(map.get(b"f"), None);
        assert!(map.put(b"a", Offset(11)), "a known key takes no room");
        assert_eq!(map.get(b"a"), Some(Offset(11)));
    }

    #[test]
    fn what_it_covers_only_rises() {
        let mut map = OffsetMap::new(0, 0.9, 0);
        assert_eq!(map.latest(), Offset(-1));
        map.covers_through(Offset(5));
        map.covers_through(Offset(3));
        assert_eq!(map.latest(), Offset(5));
        assert!(map.put(b"a", Offset(0)), "there is room for one key at least");
        assert!(!map.put(b"b", Offset(1)));
    }

    #[test]
    fn memory_that_is_taken_ahead_changes_nothing() {
        let put_all = |map: &mut OffsetMap| {
            let puts = (0..20_000i64).map(|number| map.put(&number.to_be_bytes(), Offset(number)));
            puts.filter(|&fits| fits).count()
        };
        let memory = 10_000 * ENTRY_BYTES;
        let (mut ahead, mut later) =
            (OffsetMap::new(memory, 0.9, 5), OffsetMap::new(memory, 0.9, 5));
        let taken = std::iter::from_fn(|| ahead.take_chunk().then_some(())).count();
        assert_eq!((taken, ahead.take_chunk(), later.get(b"a")), (3, false, None));
        assert_eq!((put_all(&mut ahead), put_all(&mut later)), (9_000, 9_000));
        for number in 0..20_000i64 {
            let key = number.to_be_bytes();
            assert_eq!(ahead.get(&key), later.get(&key));
        }
    }

    #[test]
    fn many_keys_are_told_apart_when_slots_collide() {
        let mut map = OffsetMap::new(1_000 * ENTRY_BYTES, 1.0, 3);
        for number in 0..999i64 {
            assert!(map.put(&number.to_be_bytes(), Offset(number)));
        }
        assert!(!map.put(b"one more", Offset(0)), "one slot stays free");
        for number in 0..999i64 {
            assert_eq!(map.get(&number.to_be_bytes()), Some(Offset(number)));
        }
        assert_eq!(map.get(b"never"), None);
    }
}
