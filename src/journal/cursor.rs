//! A bounded little-endian reader over bytes that came from a disk.
//!
//! Owns a position in a slice. Every read is checked: past the end it answers `None` and never
//! panics, and counts are capped by what the remaining bytes could hold.

use crate::ids::{PartitionIndex, TopicId, TopicPartition};

/// Reads fixed-width little-endian values one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A partition's key; `None` also for an id or index that no partition has.
    pub(super) fn topic_partition(&mut self) -> Option<TopicPartition> {
        let topic = TopicId(self.array()?);
        let partition = PartitionIndex(self.i32()?);
        (topic != TopicId::ZERO && partition.0 >= 0).then_some(TopicPartition { topic, partition })
    }

    /// A count of items that take at least `item_bytes` each: refused if they cannot fit in what
    /// is left, so that it is safe to allocate by.
    pub(super) fn count(&mut self, item_bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.u32()?).ok()?;
        (count.checked_mul(item_bytes.max(1))? <= self.rest.len()).then_some(count)
    }
}
