//! The batches of a partition that are in memory: inside journal blocks, on their way to segments.
//!
//! Owns the order and the byte ranges; the memory itself belongs to the blocks. Invariants:
//! batches are contiguous and in offset order; a batch's bytes may be read only once its block is
//! sealed, which holds for everything below the high watermark.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::ids::{JournalSequence, Offset};
use crate::journal::writer::MemoryCharge;

/// The memory of one journal block, filled in when the block is sealed.
#[derive(Default, Debug)]
pub struct BlockMemory {
    sealed: OnceCell<(Bytes, MemoryCharge)>,
}

impl BlockMemory {
    /// Gives the block its frozen bytes; once only. `charge` is kept as long as the block is.
    pub fn seal(&self, bytes: Bytes, charge: MemoryCharge) {
        assert!(self.sealed.set((bytes, charge)).is_ok(), "a block is sealed once");
    }

    /// A slice of the sealed block.
    #[must_use]
    pub fn slice(&self, range: &Range<usize>) -> Bytes {
        let (bytes, _) = self.sealed.get().expect("invariant: only sealed blocks are read");
        bytes.slice(range.clone())
    }
}

/// Where part of a batch lies in a journal block.
#[derive(Clone, Debug)]
pub struct TailPart {
    /// The block.
    pub block: Rc<BlockMemory>,
    /// Byte range inside the block.
    pub range: Range<usize>,
}

/// One batch in memory.
#[derive(Clone, Debug)]
pub struct TailBatch {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp of its records, milliseconds.
    pub max_timestamp_ms: i64,
    /// Broker's wall clock when it was appended.
    pub append_ms: i64,
    /// Length in bytes.
    pub bytes: usize,
    /// The journal block that holds its last part.
    pub sequence: JournalSequence,
    /// Its bytes, in order.
    pub parts: SmallVec<[TailPart; 1]>,
}

impl TailBatch {
    /// Appends the batch's bytes to `out`.
    pub fn slices(&self, out: &mut Vec<Bytes>) {
        out.extend(self.parts.iter().map(|part| part.block.slice(&part.range)));
    }
}

/// The in-memory batches of one partition.
#[derive(Default, Debug)]
pub struct Tail {
    batches: VecDeque<TailBatch>,
    bytes: usize,
}

impl Tail {
    /// Bytes of all batches in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Offset of the first record in memory.
    #[must_use]
    pub fn start(&self) -> Option<Offset> {
        self.batches.front().map(|batch| batch.base_offset)
    }

    /// The batch that contains `offset` and all after it, in order.
    pub fn from_offset(&self, offset: Offset) -> impl Iterator<Item = &TailBatch> {
        let first = self.batches.partition_point(|batch| batch.last_offset < offset);
        self.batches.range(first..)
    }

    /// Adds a batch at the end.
    pub fn push(&mut self, batch: TailBatch) {
        if let Some(last) = self.batches.back() {
            assert_eq!(last.last_offset.plus(1), batch.base_offset, "the tail has no gap");
        }
        self.bytes += batch.bytes;
        self.batches.push_back(batch);
    }

    /// Drops the batches that end below `end`.
    pub fn release_below(&mut self, end: Offset) {
        while let Some(batch) = self.batches.front() {
            if batch.last_offset >= end {
                break;
            }
            self.bytes -= batch.bytes;
            self.batches.pop_front();
        }
        // A burst must not leave a long empty queue behind for ever.
        if self.batches.is_empty() && self.batches.capacity() > QUEUE_KEPT {
            self.batches = VecDeque::new();
        }
    }
}

const QUEUE_KEPT: usize = 64;
