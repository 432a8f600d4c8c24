//! Arithmetic of a ring: where the next block goes, what is reserved, what may be reused.
//!
//! Owns the logical positions of one shard's ring for one boot. A logical position only grows; its
//! place on disk is the position modulo the ring's size. Does no I/O and reads no block.
//!
//! Invariants: a block never covers the header block of a file and never crosses a file (the rest
//! of the file is skipped); a placed block never touches space that was not released; whatever was
//! reserved can be placed, however the blocks fall, as long as batches are cut by
//! [`Geometry::next_part_bytes`]; 5 % of the ring is open to [`Purpose::Control`] only.

use super::block::{BATCH_ENTRY_BYTES, BLOCK_HEADER_BYTES, CONTROL_ENTRY_BYTES_MAX};
use crate::ids::JournalSequence;
use crate::limits::BLOCK_ALIGN;

/// A place in a ring between two blocks: where the block with `sequence` starts or would start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JournalPoint {
    /// Logical position. The block itself may start later: after a file header, or in the next
    /// file.
    pub position: u64,
    /// Sequence of the first block at or after the position.
    pub sequence: JournalSequence,
}

/// The shape of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    files: u32,
    file_bytes: u64,
    block_bytes_max: u32,
}

/// A ring of this shape could not take its own largest batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a journal ring of {files} files of {file_bytes} bytes is too small or not a multiple of 4096 \
     (blocks of up to {block_bytes_max} bytes)"
)]
pub struct GeometryFault {
    files: u32,
    file_bytes: u64,
    block_bytes_max: u32,
}

impl Geometry {
    /// A ring of `files` files of `file_bytes` each, with blocks of at most `block_bytes_max`
    /// bytes (normally [`crate::limits::JOURNAL_BLOCK_BYTES_MAX`]).
    pub fn new(
        files: u32,
        file_bytes: u64,
        block_bytes_max: u32,
    ) -> Result<Geometry, GeometryFault> {
        let geometry = Geometry { files, file_bytes, block_bytes_max };
        let fault = GeometryFault { files, file_bytes, block_bytes_max };
        let block = u64::from(block_bytes_max);
        if !file_bytes.is_multiple_of(ALIGN)
            || !block.is_multiple_of(ALIGN)
            || !(2 * ALIGN..=BLOCK_BYTES_LIMIT).contains(&block)
            || file_bytes < block.saturating_add(ALIGN)
            || file_bytes.checked_mul(u64::from(files)).is_none_or(|ring| ring > RING_BYTES_LIMIT)
        {
            return Err(fault);
        }
        let largest = geometry.worst_case_bytes(geometry.largest_batch_bytes());
        if largest.saturating_add(geometry.skip_bytes(largest)) > geometry.data_bytes_max() {
            return Err(fault);
        }
        Ok(geometry)
    }

    /// Number of files.
    #[must_use]
    pub fn files(&self) -> u32 {
        self.files
    }

    /// Bytes of each file, its header block included.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Most bytes of one block on disk.
    #[must_use]
    pub fn block_bytes_max(&self) -> u32 {
        self.block_bytes_max
    }

    /// Bytes of the whole ring, headers included.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        u64::from(self.files) * self.file_bytes
    }

    /// File and offset of a logical position.
    #[must_use]
    pub fn locate(&self, position: u64) -> (u32, u64) {
        let physical = position % self.ring_bytes();
        let file = u32::try_from(physical / self.file_bytes)
            .expect("invariant: a ring position lies in one of its files");
        (file, physical % self.file_bytes)
    }

    /// Where a block of `aligned` bytes goes that follows what ends at `position`.
    #[must_use]
    pub fn position_of_next(&self, position: u64, aligned: u64) -> u64 {
        let in_file = position % self.file_bytes;
        let start = if in_file == 0 { position + ALIGN } else { position };
        let file_end = position - in_file + self.file_bytes;
        if start + aligned <= file_end { start } else { file_end + ALIGN }
    }

    /// Largest batch this ring takes: a quarter of it.
    #[must_use]
    pub fn largest_batch_bytes(&self) -> u64 {
        self.ring_bytes() / 4
    }

    /// Record bytes of a batch that fit in a fresh block of the largest size.
    #[must_use]
    pub fn part_bytes_max(&self) -> u64 {
        u64::from(self.block_bytes_max) - (BLOCK_HEADER_BYTES + BATCH_ENTRY_BYTES) as u64
    }

    /// How many of a batch's bytes go into the open block, which has `used` bytes of a buffer of
    /// `capacity`; `None` means: seal that block first and open a new one (a fresh block has
    /// [`BLOCK_HEADER_BYTES`] used, and its capacity must then fit the batch or be
    /// [`Geometry::block_bytes_max`]).
    ///
    /// A batch that fits in one block is never split. The parts of a larger one, but for the first
    /// and the last, fill their blocks.
    #[must_use]
    pub fn next_part_bytes(
        &self,
        capacity: usize,
        used: usize,
        batch_bytes: u64,
        part_start: u64,
    ) -> Option<u64> {
        let capacity = capacity.min(self.block_bytes_max as usize);
        let room = capacity.saturating_sub(used + BATCH_ENTRY_BYTES) as u64;
        let rest = batch_bytes - part_start;
        if rest <= room {
            return Some(rest);
        }
        let splits = batch_bytes > self.part_bytes_max();
        let full_block = capacity == self.block_bytes_max as usize && used == BLOCK_HEADER_BYTES;
        let worth_a_part = part_start == 0 && room >= ALIGN;
        (splits && (full_block || worth_a_part)).then_some(room)
    }

    /// Bytes of blocks that a batch of `batch_bytes` may cost at worst: block headers, an entry
    /// header and padding for every part. Skipped file ends are accounted by the ring.
    #[must_use]
    pub fn worst_case_bytes(&self, batch_bytes: u64) -> u64 {
        let parts = if batch_bytes <= self.part_bytes_max() {
            1
        } else {
            1 + batch_bytes.saturating_sub(1).div_ceil(self.part_bytes_max())
        };
        let per_part = (BLOCK_HEADER_BYTES + BATCH_ENTRY_BYTES) as u64 + ALIGN - 1;
        batch_bytes.saturating_add(parts.saturating_mul(per_part))
    }

    /// Bytes of blocks that one control entry, or an empty block, may cost at worst.
    #[must_use]
    pub fn worst_case_control_bytes(&self) -> u64 {
        (BLOCK_HEADER_BYTES + CONTROL_ENTRY_BYTES_MAX) as u64 + ALIGN - 1
    }

    /// Bytes that may be skipped at file ends, and taken by file headers, while `block_bytes` of
    /// blocks are placed: a crossing skips less than one largest block, and between two crossings
    /// at least a file less such a block is filled.
    fn skip_bytes(&self, block_bytes: u64) -> u64 {
        let block = u64::from(self.block_bytes_max);
        let crossings = 1 + block_bytes / (self.file_bytes - block);
        crossings.saturating_mul(block)
    }

    fn data_bytes_max(&self) -> u64 {
        self.ring_bytes() - self.ring_bytes() / CONTROL_SHARE
    }
}

/// What a reservation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Records of clients.
    Data,
    /// What frees space or ends transactions: log start, dropped, epoch, markers, transaction
    /// states, sealing blocks. May use the whole ring.
    Control,
}

/// Space promised to one batch or control entry. Give it back with [`Ring::settle`] once its last
/// block is placed, or when it is not needed after all.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a reservation that is lost shrinks the ring until the next start"]
pub struct Reservation {
    bytes: u64,
}

/// The ring has no room for the reservation now: a checkpoint must release some.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal ring is full: {needed} bytes needed, {available} available")]
pub struct RingFull {
    /// Bytes asked for, skipped file ends included.
    pub needed: u64,
    /// Bytes that are neither used nor reserved, for this purpose.
    pub available: u64,
}

/// Where a block goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Sequence of the block.
    pub sequence: JournalSequence,
    /// Logical position, for the block's header.
    pub position: u64,
    /// File of the ring.
    pub file: u32,
    /// Offset in that file.
    pub offset: u64,
}

/// One shard's ring in one boot.
#[derive(Debug)]
pub struct Ring {
    geometry: Geometry,
    head: JournalPoint,
    tail: u64,
    reserved: u64,
}

impl Ring {
    /// An empty ring whose first block gets `first_sequence`, which exceeds every sequence seen
    /// in any earlier boot and is at least 1.
    #[must_use]
    pub fn new(geometry: Geometry, first_sequence: JournalSequence) -> Ring {
        assert!(first_sequence.0 > 0, "sequence 0 means none");
        Ring {
            geometry,
            head: JournalPoint { position: 0, sequence: first_sequence },
            tail: 0,
            reserved: 0,
        }
    }

    /// The ring's shape.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The point of the next block: what a checkpoint fixes as its J when no batch is half placed.
    #[must_use]
    pub fn head(&self) -> JournalPoint {
        self.head
    }

    /// Position below which space may be reused.
    #[must_use]
    pub fn reclaim_position(&self) -> u64 {
        self.tail
    }

    /// Bytes between the reclaim position and the next block.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.head.position - self.tail
    }

    /// Bytes reserved and not yet settled.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Whether it is time for a checkpoint.
    #[must_use]
    pub fn half_full(&self) -> bool {
        self.used() >= self.geometry.ring_bytes() / 2
    }

    /// Largest batch this ring takes.
    #[must_use]
    pub fn largest_batch_bytes(&self) -> u64 {
        self.geometry.largest_batch_bytes()
    }

    /// Reserves `block_bytes` of blocks: [`Geometry::worst_case_bytes`] of a batch, or
    /// [`Geometry::worst_case_control_bytes`].
    pub fn reserve(&mut self, block_bytes: u64, purpose: Purpose) -> Result<Reservation, RingFull> {
        let limit = match purpose {
            Purpose::Data => self.geometry.data_bytes_max(),
            Purpose::Control => self.geometry.ring_bytes(),
        };
        let reserved = self.reserved.saturating_add(block_bytes);
        let promised = reserved.saturating_add(self.geometry.skip_bytes(reserved));
        if self.used().saturating_add(promised) > limit {
            return Err(RingFull {
                needed: promised - self.reserved,
                available: limit.saturating_sub(self.used() + self.reserved),
            });
        }
        self.reserved = reserved;
        Ok(Reservation { bytes: block_bytes })
    }

    /// Whether [`Ring::reserve`] would succeed.
    #[must_use]
    pub fn has_room(&self, block_bytes: u64, purpose: Purpose) -> bool {
        let mut trial = Ring { geometry: self.geometry, ..*self };
        trial.reserve(block_bytes, purpose).is_ok()
    }

    /// Ends a reservation. For one that was used: after its last block was placed, not before.
    pub fn settle(&mut self, reservation: Reservation) {
        assert!(reservation.bytes <= self.reserved, "settled twice or in another ring");
        self.reserved -= reservation.bytes;
    }

    /// Assigns the next sequence and place to a block of `aligned` bytes, whose contents were
    /// reserved. Panics if the block would touch space that was not released: that is a fault of
    /// the accounting, and going on would overwrite acknowledged records.
    #[must_use]
    pub fn place(&mut self, aligned: usize) -> Placement {
        let aligned = aligned as u64;
        assert!(
            aligned > 0
                && aligned.is_multiple_of(ALIGN)
                && aligned <= u64::from(self.geometry.block_bytes_max),
            "a block of {aligned} bytes"
        );
        let position = self.geometry.position_of_next(self.head.position, aligned);
        let end = position + aligned;
        assert!(
            end <= self.tail + self.geometry.ring_bytes(),
            "block at {position} + {aligned} would overwrite live journal space from {}",
            self.tail
        );
        let sequence = self.head.sequence;
        self.head = JournalPoint { position: end, sequence: JournalSequence(sequence.0 + 1) };
        let (file, offset) = self.geometry.locate(position);
        Placement { sequence, position, file, offset }
    }

    /// Gives space below `point` back for reuse: only after an image that starts at `point` is
    /// durable. Older points than the last are ignored.
    pub fn release_through(&mut self, point: JournalPoint) {
        assert!(point.position <= self.head.position, "release of what is not written");
        self.tail = self.tail.max(point.position);
    }
}

const ALIGN: u64 = BLOCK_ALIGN as u64;

/// One part in so many of the ring is open to control entries only: 5 %. Of the memory for blocks,
/// as much again.
pub const CONTROL_SHARE: u64 = 20;

/// Above any configured block or ring, and far from overflow.
const BLOCK_BYTES_LIMIT: u64 = 1 << 28;
const RING_BYTES_LIMIT: u64 = 1 << 44;

#[cfg(test)]
mod tests;
