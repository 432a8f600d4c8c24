//! Bytes of one simulated file, sparse and cheap to copy.
//!
//! Owns pages shared between copies until one of them writes; absent pages are zero, so neither
//! zero-filled files nor crash images cost memory. Knows nothing of durability: see `medium`.
//!
//! Invariant: bytes at and beyond `length` are zero, so that growing a file shows zeroes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
    length: u64,
}

impl Content {
    /// Length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Cuts the bytes at `length`, or adds zeroes up to it.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            let within = (length % PAGE_BYTES as u64) as usize;
            let mut cut = self.pages.split_off(&(length / PAGE_BYTES as u64));
            if within > 0
                && let Some(mut page) = cut.remove(&(length / PAGE_BYTES as u64))
            {
                Arc::make_mut(&mut page)[within..].fill(0);
                self.put_page(length / PAGE_BYTES as u64, page);
            }
        }
        self.length = length;
    }

    /// Makes the length at least `length`.
    pub(super) fn extend_to(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Writes at `position`; what lies beyond the length is dropped.
    pub(super) fn write(&mut self, position: u64, bytes: &[u8]) {
        let kept = self.length.saturating_sub(position).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < kept {
            let at = position + done as u64;
            let number = at / PAGE_BYTES as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let step = (PAGE_BYTES - within).min(kept - done);
            let piece = &bytes[done..done + step];
            self.write_page(number, within, piece);
            done += step;
        }
    }

    /// The bytes of `range`, shorter where the file ends.
    pub(super) fn read(&self, range: Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.length);
        let mut at = range.start;
        let mut out = Vec::with_capacity(end.saturating_sub(at) as usize);
        while at < end {
            let within = (at % PAGE_BYTES as u64) as usize;
            let step = ((PAGE_BYTES - within) as u64).min(end - at) as usize;
            match self.pages.get(&(at / PAGE_BYTES as u64)) {
                Some(page) => out.extend_from_slice(&page[within..within + step]),
                None => out.resize(out.len() + step, 0),
            }
            at += step as u64;
        }
        out
    }

    /// The pages that are not all zero, by position.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let pages = self.pages.iter();
        pages.map(|(number, page)| (number * PAGE_BYTES as u64, &page[..]))
    }

    fn write_page(&mut self, number: u64, within: usize, piece: &[u8]) {
        let is_zero = *piece == ZEROES[..piece.len()];
        let Some(page) = self.pages.get_mut(&number) else {
            if !is_zero {
                let mut page = zero_page();
                Arc::make_mut(&mut page)[within..within + piece.len()].copy_from_slice(piece);
                self.pages.insert(number, page);
            }
            return;
        };
        Arc::make_mut(page)[within..within + piece.len()].copy_from_slice(piece);
        if is_zero && **page == ZEROES {
            self.pages.remove(&number);
        }
    }

    fn put_page(&mut self, number: u64, page: Arc<[u8; PAGE_BYTES]>) {
        if *page != ZEROES {
            self.pages.insert(number, page);
        }
    }
}

/// Blocks of a file that hold disk space, as half-open byte ranges.
#[derive(Clone, Default)]
pub(super) struct Extents {
    ranges: BTreeMap<u64, u64>,
}

impl Extents {
    /// Bytes of `range` that hold no space yet.
    pub(super) fn missing(&self, range: &Range<u64>) -> u64 {
        let mut held = 0;
        for (&start, &end) in self.ranges.range(..range.end) {
            held += end.min(range.end).saturating_sub(start.max(range.start));
        }
        (range.end - range.start).saturating_sub(held)
    }

    /// Adds `range`, a multiple of the block size at both ends.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        let touching: Vec<u64> = self
            .ranges
            .range(..=end)
            .filter(|&(_, &their_end)| their_end >= start)
            .map(|(&their_start, _)| their_start)
            .collect();
        for key in touching {
            if let Some(their_end) = self.ranges.remove(&key) {
                start = start.min(key);
                end = end.max(their_end);
            }
        }
        if start < end {
            self.ranges.insert(start, end);
        }
    }

    /// Gives up everything from `position` on.
    pub(super) fn cut(&mut self, position: u64) {
        let _ = self.ranges.split_off(&position);
        if let Some((_, end)) = self.ranges.iter_mut().next_back() {
            *end = (*end).min(position);
        }
    }

    /// Bytes held.
    pub(super) fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

/// A page of zeroes, to be copied when it is written to.
fn zero_page() -> Arc<[u8; PAGE_BYTES]> {
    thread_local! {
        static SHARED: Arc<[u8; PAGE_BYTES]> = Arc::new(ZEROES);
    }
    SHARED.with(Arc::clone)
}

static ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Unit of sharing between copies, and of disk space.
pub(super) const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_and_growing_shows_zeroes() {
        let mut content = Content::default();
        content.extend_to(10_000);
        content.write(4090, &[7; 12]);
        assert_eq!(content.read(4088..4104), {
            let mut expected = vec![0; 16];
            expected[2..14].fill(7);
            expected
        });
        let copy = content.clone();
        content.set_length(4092);
        content.set_length(10_000);
        assert_eq!(content.read(4088..4096), [0, 0, 7, 7, 0, 0, 0, 0]);
        assert_eq!(content.read(4096..4100), [0; 4]);
        assert_eq!(copy.read(4096..4100), [7; 4]);
        content.write(9_998, &[9; 10]);
        assert_eq!(content.read(9_996..20_000), [0, 0, 9, 9]);
        content.write(4090, &[0; 2]);
        content.write(9_998, &[0; 2]);
        assert!(content.pages.is_empty(), "zero pages are not kept");
    }

    #[test]
    fn extents_join_and_count_what_is_missing() {
        let mut extents = Extents::default();
        extents.add(&(0..4096));
        extents.add(&(8192..12_288));
        assert_eq!(extents.missing(&(0..16_384)), 8192);
        extents.add(&(4096..8192));
        assert_eq!((extents.total(), extents.ranges.len()), (12_288, 1));
        assert_eq!(extents.missing(&(4096..8192)), 0);
        extents.cut(4096);
        assert_eq!(extents.total(), 4096);
        extents.cut(0);
        assert_eq!(extents.total(), 0);
    }
}
