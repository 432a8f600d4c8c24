//! Framing of the journal: the header block of a ring file, data blocks, and the entries inside.
//!
//! Owns the byte layout of `<data-dir>/journal/rings/*` (format 1, little-endian). Does no I/O and
//! knows nothing of ring arithmetic (`ring.rs`) or of batches beyond their length.
//!
//! Invariants: a data block is a multiple of 4096 bytes, zero padded, and validates only under the
//! journal id and the random secret of the boot that wrote it: recycled blocks and client bytes
//! that imitate a block do not. Whatever validates is still parsed with every length checked: a
//! malformed entry is a fault, never a panic.
//!
//! ```text
//! block: checksum u64 | magic u32 | format u16 | shard u16 | journal id 16 | boot u32
//!        | entries u32 | sequence u64 | position u64 | wall clock ms i64 | durable through u64
//!        | used u32 | 0 u32 | entries
//! entry: kind u8 | version u8 | 0 u16 | bytes after these eight u32 | body
//! batch: topic id 16 | partition i32 | append ms i64 | batch bytes u32 | part start u32
//!        | part u32 | record bytes
//! ```

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_secret};

use super::cursor::Cursor;
use super::ring::Geometry;
use crate::ids::{BootNumber, JournalSequence, LeaderEpoch, Offset, ShardId, TopicPartition};
use crate::limits::BLOCK_ALIGN;

/// Bytes of a data block's header: the first entry starts here.
pub const BLOCK_HEADER_BYTES: usize = 80;

/// Bytes in front of the record bytes of every batch or continuation entry.
pub const BATCH_ENTRY_BYTES: usize = ENTRY_PREFIX_BYTES + 40;

/// Most bytes any control entry takes.
pub const CONTROL_ENTRY_BYTES_MAX: usize = ENTRY_PREFIX_BYTES + 32;

/// Bytes of the random secret that keys block checksums.
pub const SECRET_BYTES: usize = 192;

/// The random key of one boot's block checksums. It is in the ring's file headers and nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What makes a block one of this ring and this boot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Random, new for every ring at every boot.
    pub journal_id: [u8; 16],
    /// Keys the checksum of every block.
    pub secret: Secret,
    /// Boot that writes the ring.
    pub boot: BootNumber,
    /// Shard that writes the ring.
    pub shard: ShardId,
}

impl Identity {
    /// A new identity from a source of random words.
    pub fn generate(boot: BootNumber, shard: ShardId, mut random: impl FnMut() -> u64) -> Identity {
        let mut journal_id = [0; 16];
        let mut secret = [0; SECRET_BYTES];
        for word in journal_id.chunks_exact_mut(8) {
            word.copy_from_slice(&random().to_le_bytes());
        }
        for word in secret.chunks_exact_mut(8) {
            word.copy_from_slice(&random().to_le_bytes());
        }
        Identity { journal_id, secret: Secret(secret), boot, shard }
    }
}

/// `used` bytes rounded up to whole device blocks: what the block takes on disk.
#[must_use]
pub fn aligned_bytes(used: usize) -> usize {
    used.next_multiple_of(BLOCK_ALIGN)
}

// --- Filling a block -------------------------------------------------------------------------

/// Names one batch, or one part of a batch that is split over blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchEntry {
    /// Partition the batch belongs to.
    pub tp: TopicPartition,
    /// Wall clock of the append, in milliseconds.
    pub append_ms: i64,
    /// Length of the whole batch.
    pub batch_bytes: u32,
    /// Number of this part, from 0.
    pub part: u32,
    /// Where in the batch this part starts; 0 for part 0.
    pub part_start: u32,
    /// Length of this part, at least 1.
    pub part_bytes: u32,
}

impl BatchEntry {
    /// The entry of a batch that is not split.
    #[must_use]
    pub fn whole(tp: TopicPartition, append_ms: i64, batch_bytes: u32) -> BatchEntry {
        BatchEntry { tp, append_ms, batch_bytes, part: 0, part_start: 0, part_bytes: batch_bytes }
    }

    /// Whether this part ends the batch.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.part_start.checked_add(self.part_bytes) == Some(self.batch_bytes)
    }

    /// Whether this is an unsplit batch.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.part_start == 0 && self.part_bytes == self.batch_bytes
    }

    fn is_consistent(&self) -> bool {
        self.part_bytes > 0
            && (self.part == 0) == (self.part_start == 0)
            && self
                .part_start
                .checked_add(self.part_bytes)
                .is_some_and(|end| end <= self.batch_bytes)
    }
}

/// An entry without record bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlEntry {
    /// Records below `offset` are gone for readers.
    LogStartAdvanced {
        /// Partition concerned.
        tp: TopicPartition,
        /// New log start.
        offset: Offset,
    },
    /// A leader epoch begins at `start`.
    EpochStarted {
        /// Partition concerned.
        tp: TopicPartition,
        /// The epoch.
        epoch: LeaderEpoch,
        /// First offset of the epoch.
        start: Offset,
    },
    /// The partition was deleted; nothing of it comes later in this journal.
    PartitionDropped {
        /// Partition concerned.
        tp: TopicPartition,
    },
}

impl ControlEntry {
    /// Partition the entry belongs to.
    #[must_use]
    pub fn tp(&self) -> TopicPartition {
        match *self {
            ControlEntry::LogStartAdvanced { tp, .. }
            | ControlEntry::EpochStarted { tp, .. }
            | ControlEntry::PartitionDropped { tp } => tp,
        }
    }

    /// Bytes the entry takes in a block.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        ENTRY_PREFIX_BYTES
            + match self {
                ControlEntry::LogStartAdvanced { .. } => 28,
                ControlEntry::EpochStarted { .. } => 32,
                ControlEntry::PartitionDropped { .. } => 20,
            }
    }
}

/// What stands in front of the record bytes of a batch, or of a part of one.
///
/// Panics if the entry contradicts itself.
#[must_use]
pub fn batch_entry(entry: &BatchEntry) -> [u8; BATCH_ENTRY_BYTES] {
    assert!(entry.is_consistent(), "inconsistent batch entry {entry:?}");
    let kind = if entry.part == 0 { KIND_BATCH } else { KIND_CONTINUATION };
    let mut bytes = [0; BATCH_ENTRY_BYTES];
    let mut out = Writer { buffer: &mut bytes, at: 0 };
    out.prefix(kind, BATCH_ENTRY_BYTES + entry.part_bytes as usize);
    out.topic_partition(entry.tp);
    out.put(&entry.append_ms.to_le_bytes());
    out.put(&entry.batch_bytes.to_le_bytes());
    out.put(&entry.part_start.to_le_bytes());
    out.put(&entry.part.to_le_bytes());
    debug_assert_eq!(out.at, BATCH_ENTRY_BYTES);
    bytes
}

/// All bytes of a control entry.
#[must_use]
pub fn control_entry(entry: &ControlEntry) -> SmallVec<[u8; 64]> {
    let mut bytes = SmallVec::from_elem(0, entry.entry_bytes());
    let mut out = Writer { buffer: &mut bytes, at: 0 };
    match *entry {
        ControlEntry::LogStartAdvanced { tp, offset } => {
            out.prefix(KIND_LOG_START_ADVANCED, entry.entry_bytes());
            out.topic_partition(tp);
            out.put(&offset.0.to_le_bytes());
        }
        ControlEntry::EpochStarted { tp, epoch, start } => {
            out.prefix(KIND_EPOCH_STARTED, entry.entry_bytes());
            out.topic_partition(tp);
            out.put(&epoch.0.to_le_bytes());
            out.put(&start.0.to_le_bytes());
        }
        ControlEntry::PartitionDropped { tp } => {
            out.prefix(KIND_PARTITION_DROPPED, entry.entry_bytes());
            out.topic_partition(tp);
        }
    }
    debug_assert_eq!(out.at, entry.entry_bytes());
    bytes
}

/// What a block's header says, for [`seal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// Sequence of the block, at least 1.
    pub sequence: JournalSequence,
    /// Logical position of the block in the ring.
    pub position: u64,
    /// Wall clock now, in milliseconds.
    pub wall_ms: i64,
    /// Highest contiguous sequence known durable now; below `sequence`.
    pub durable_through: JournalSequence,
    /// Entries in the block; 0 for a block that only seals the one before.
    pub entries: u32,
}

/// Ends a block: writes its header, zeroes the padding, and returns its length on disk. After
/// this the block must not change.
#[must_use]
pub fn seal(buffer: &mut [u8], used: usize, seal: &Seal, identity: &Identity) -> usize {
    assert!(used >= BLOCK_HEADER_BYTES, "a block without its header");
    assert!(seal.durable_through < seal.sequence, "durable before written");
    let aligned = aligned_bytes(used);
    assert!(aligned <= buffer.len(), "block past its buffer");
    buffer[used..aligned].fill(0);
    let used = u32::try_from(used).expect("invariant: a block is at most 4 GiB");
    let mut out = Writer { buffer: &mut *buffer, at: 8 };
    out.put(&BLOCK_MAGIC.to_le_bytes());
    out.put(&FORMAT.to_le_bytes());
    out.put(&identity.shard.0.to_le_bytes());
    out.put(&identity.journal_id);
    out.put(&identity.boot.0.to_le_bytes());
    out.put(&seal.entries.to_le_bytes());
    out.put(&seal.sequence.0.to_le_bytes());
    out.put(&seal.position.to_le_bytes());
    out.put(&seal.wall_ms.to_le_bytes());
    out.put(&seal.durable_through.0.to_le_bytes());
    out.put(&used.to_le_bytes());
    out.put(&0u32.to_le_bytes());
    debug_assert_eq!(out.at, BLOCK_HEADER_BYTES);
    let checksum = block_checksum(&buffer[..aligned], identity);
    buffer[..8].copy_from_slice(&checksum.to_le_bytes());
    aligned
}

// --- Reading a block -------------------------------------------------------------------------

/// The header of a block, as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Sequence of the block.
    pub sequence: JournalSequence,
    /// Logical position it was written for.
    pub position: u64,
    /// Wall clock when it was sealed, in milliseconds.
    pub wall_ms: i64,
    /// Highest contiguous sequence that was durable when it was sealed.
    pub durable_through: JournalSequence,
    /// Used bytes, header included.
    pub used_bytes: u32,
    /// Entries in it.
    pub entries: u32,
}

impl BlockHeader {
    /// Bytes the block takes on disk.
    #[must_use]
    pub fn aligned_bytes(&self) -> usize {
        aligned_bytes(self.used_bytes as usize)
    }
}

/// Why bytes are not a block of this ring and boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockFault {
    /// Fewer bytes than the block takes.
    #[error("the block is cut short: {needed} bytes needed, {found} there")]
    Short {
        /// Bytes the block takes.
        needed: usize,
        /// Bytes given.
        found: usize,
    },
    /// Not a journal block at all.
    #[error("no journal block")]
    Magic,
    /// A journal block of another format version.
    #[error("journal block format {0} is unknown")]
    Format(u16),
    /// A block of another journal, boot or shard.
    #[error("a block of another journal")]
    Foreign,
    /// Header fields contradict each other.
    #[error("the block header contradicts itself")]
    Header,
    /// The keyed checksum does not match: torn, damaged or forged.
    #[error("the block checksum does not match")]
    Checksum,
}

/// Reads a block header without its checksum: cheap, and proves nothing yet. `bytes` starts at the
/// block and holds at least [`BLOCK_HEADER_BYTES`].
pub fn peek(bytes: &[u8], identity: &Identity) -> Result<BlockHeader, BlockFault> {
    let short = BlockFault::Short { needed: BLOCK_HEADER_BYTES, found: bytes.len() };
    let mut cursor = Cursor::new(bytes.get(8..BLOCK_HEADER_BYTES).ok_or(short)?);
    if cursor.u32().ok_or(short)? != BLOCK_MAGIC {
        return Err(BlockFault::Magic);
    }
    let format = cursor.u16().ok_or(short)?;
    if format != FORMAT {
        return Err(BlockFault::Format(format));
    }
    let shard = ShardId(cursor.u16().ok_or(short)?);
    let journal_id: [u8; 16] = cursor.array().ok_or(short)?;
    let boot = BootNumber(cursor.u32().ok_or(short)?);
    if (shard, journal_id, boot) != (identity.shard, identity.journal_id, identity.boot) {
        return Err(BlockFault::Foreign);
    }
    let entries = cursor.u32().ok_or(short)?;
    let header = BlockHeader {
        sequence: JournalSequence(cursor.u64().ok_or(short)?),
        position: cursor.u64().ok_or(short)?,
        wall_ms: cursor.i64().ok_or(short)?,
        durable_through: JournalSequence(cursor.u64().ok_or(short)?),
        used_bytes: cursor.u32().ok_or(short)?,
        entries,
    };
    let zero = cursor.u32().ok_or(short)?;
    let used = header.used_bytes as usize;
    if !(BLOCK_HEADER_BYTES..=BLOCK_USED_BYTES_MAX).contains(&used)
        || zero != 0
        || header.durable_through >= header.sequence
    {
        return Err(BlockFault::Header);
    }
    Ok(header)
}

/// Validates the block that starts at `bytes` (which may go on past it) under `identity`.
pub fn check(bytes: &[u8], identity: &Identity) -> Result<BlockHeader, BlockFault> {
    let header = peek(bytes, identity)?;
    let needed = header.aligned_bytes();
    let block = bytes.get(..needed).ok_or(BlockFault::Short { needed, found: bytes.len() })?;
    let stored = Cursor::new(block).u64().ok_or(BlockFault::Checksum)?;
    if stored != block_checksum(block, identity) {
        return Err(BlockFault::Checksum);
    }
    Ok(header)
}

/// One entry, as read. Record bytes share the block's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A whole batch or one part of it.
    Batch(BatchEntry, Bytes),
    /// Anything else.
    Control(ControlEntry),
}

/// A checked block holds an entry that this version cannot read: never the result of a torn
/// write, so the journal must not be replayed past it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("journal block {sequence}, byte {at}: {what}")]
pub struct EntryFault {
    /// Block that holds the entry.
    pub sequence: JournalSequence,
    /// Byte of the block at which the entry starts.
    pub at: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Iterates over the entries of a block that [`check`] accepted. Ends after the first fault.
#[derive(Clone, Debug)]
pub struct Entries {
    block: Bytes,
    header: BlockHeader,
    at: usize,
    left: u32,
}

impl Entries {
    /// The entries of `block`, whose checked header is `header`.
    #[must_use]
    pub fn new(block: Bytes, header: BlockHeader) -> Entries {
        Entries { block, header, at: BLOCK_HEADER_BYTES, left: header.entries }
    }

    fn read_one(&self) -> Result<(Entry, usize), &'static str> {
        let used = self.header.used_bytes as usize;
        let bytes = self.block.get(self.at..used).ok_or("the block is shorter than it says")?;
        let mut cursor = Cursor::new(bytes);
        let short = "the entry is cut short";
        let kind = cursor.u8().ok_or(short)?;
        let version = cursor.u8().ok_or(short)?;
        let zero = cursor.u16().ok_or(short)?;
        let length = cursor.u32().ok_or(short)? as usize;
        let body = cursor.take(length).ok_or("the entry is longer than its block")?;
        if version != ENTRY_VERSION || zero != 0 {
            return Err("the entry version is unknown");
        }
        let end = self.at + ENTRY_PREFIX_BYTES + length;
        let mut body = Cursor::new(body);
        let tp = body.topic_partition().ok_or("no partition has this id")?;
        let entry = match kind {
            KIND_BATCH | KIND_CONTINUATION => {
                let entry = read_batch(tp, &mut body).ok_or(short)?;
                if !entry.is_consistent() || (entry.part == 0) != (kind == KIND_BATCH) {
                    return Err("the batch entry contradicts itself");
                }
                Entry::Batch(entry, self.block.slice(end - entry.part_bytes as usize..end))
            }
            KIND_LOG_START_ADVANCED | KIND_EPOCH_STARTED | KIND_PARTITION_DROPPED => {
                let entry = read_control(kind, tp, &mut body).ok_or(short)?;
                if body.remaining() != 0 {
                    return Err("the entry is longer than its kind");
                }
                Entry::Control(entry)
            }
            _ => return Err("the entry kind is unknown"),
        };
        Ok((entry, end))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, EntryFault>;

    fn next(&mut self) -> Option<Result<Entry, EntryFault>> {
        let read = if self.left > 0 {
            self.read_one()
        } else if self.at < self.header.used_bytes as usize {
            Err("bytes follow the last entry")
        } else {
            return None;
        };
        match read {
            Ok((entry, end)) => {
                self.at = end;
                self.left -= 1;
                Some(Ok(entry))
            }
            Err(what) => {
                let fault = EntryFault { sequence: self.header.sequence, at: self.at, what };
                self.left = 0;
                self.at = self.header.used_bytes as usize;
                Some(Err(fault))
            }
        }
    }
}

fn read_batch(tp: TopicPartition, body: &mut Cursor<'_>) -> Option<BatchEntry> {
    let append_ms = body.i64()?;
    let batch_bytes = body.u32()?;
    let part_start = body.u32()?;
    let part = body.u32()?;
    Some(BatchEntry {
        tp,
        append_ms,
        batch_bytes,
        part,
        part_start,
        part_bytes: u32::try_from(body.remaining()).ok()?,
    })
}

fn read_control(kind: u8, tp: TopicPartition, body: &mut Cursor<'_>) -> Option<ControlEntry> {
    Some(match kind {
        KIND_LOG_START_ADVANCED => {
            ControlEntry::LogStartAdvanced { tp, offset: Offset(body.i64()?) }
        }
        KIND_EPOCH_STARTED => ControlEntry::EpochStarted {
            tp,
            epoch: LeaderEpoch(body.i32()?),
            start: Offset(body.i64()?),
        },
        _ => ControlEntry::PartitionDropped { tp },
    })
}

// --- The header block of a ring file ---------------------------------------------------------

/// What the first 4 KiB block of every ring file holds; any one of them identifies the ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Whose ring this is.
    pub identity: Identity,
    /// Number of this file in the ring, from 0.
    pub file: u32,
    /// Shape of the ring.
    pub geometry: Geometry,
}

/// Why bytes are not a ring file's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileHeaderFault {
    /// Never written, or not a ring file.
    #[error("no ring file header")]
    Magic,
    /// Written by another format version.
    #[error("ring file format {0} is unknown")]
    Format(u16),
    /// Torn or damaged.
    #[error("the ring file header is damaged")]
    Damaged,
}

impl FileHeader {
    /// Writes the header block into the first 4096 bytes of `out`.
    pub fn encode_into(&self, out: &mut [u8]) {
        let block = &mut out[..BLOCK_ALIGN];
        block.fill(0);
        let mut writer = Writer { buffer: &mut *block, at: 8 };
        writer.put(&FILE_MAGIC.to_le_bytes());
        writer.put(&FORMAT.to_le_bytes());
        writer.put(&self.identity.shard.0.to_le_bytes());
        writer.put(&self.identity.journal_id);
        writer.put(&self.identity.boot.0.to_le_bytes());
        writer.put(&self.file.to_le_bytes());
        writer.put(&self.geometry.files().to_le_bytes());
        writer.put(&self.geometry.block_bytes_max().to_le_bytes());
        writer.put(&self.geometry.file_bytes().to_le_bytes());
        writer.put(&self.identity.secret.0);
        let checksum = xxh3_64(&block[8..]);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header block back; `bytes` starts at the file's first byte.
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, FileHeaderFault> {
        let block = bytes.get(..BLOCK_ALIGN).ok_or(FileHeaderFault::Magic)?;
        let mut cursor = Cursor::new(block);
        let damaged = FileHeaderFault::Damaged;
        let stored = cursor.u64().ok_or(damaged)?;
        if cursor.u32().ok_or(damaged)? != FILE_MAGIC {
            return Err(FileHeaderFault::Magic);
        }
        if stored != xxh3_64(&block[8..]) {
            return Err(damaged);
        }
        let format = cursor.u16().ok_or(damaged)?;
        if format != FORMAT {
            return Err(FileHeaderFault::Format(format));
        }
        let shard = ShardId(cursor.u16().ok_or(damaged)?);
        let journal_id = cursor.array().ok_or(damaged)?;
        let boot = BootNumber(cursor.u32().ok_or(damaged)?);
        let file = cursor.u32().ok_or(damaged)?;
        let files = cursor.u32().ok_or(damaged)?;
        let block_bytes_max = cursor.u32().ok_or(damaged)?;
        let file_bytes = cursor.u64().ok_or(damaged)?;
        let secret = Secret(cursor.array().ok_or(damaged)?);
        let geometry = Geometry::new(files, file_bytes, block_bytes_max).map_err(|_| damaged)?;
        if file >= files {
            return Err(damaged);
        }
        Ok(FileHeader { identity: Identity { journal_id, secret, boot, shard }, file, geometry })
    }
}

// --- Helpers ---------------------------------------------------------------------------------

/// Over everything but the checksum itself, so that not one bit of the block is unprotected.
fn block_checksum(block: &[u8], identity: &Identity) -> u64 {
    xxh3_64_with_secret(&block[8..], &identity.secret.0)
}

struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn prefix(&mut self, kind: u8, entry_bytes: usize) {
        let length = u32::try_from(entry_bytes - ENTRY_PREFIX_BYTES)
            .expect("invariant: an entry is shorter than 4 GiB");
        self.put(&[kind, ENTRY_VERSION, 0, 0]);
        self.put(&length.to_le_bytes());
    }

    fn topic_partition(&mut self, tp: TopicPartition) {
        self.put(&tp.topic.0);
        self.put(&tp.partition.0.to_le_bytes());
    }
}

const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"RLjb");
const FILE_MAGIC: u32 = u32::from_le_bytes(*b"RLjf");
const FORMAT: u16 = 1;
const ENTRY_VERSION: u8 = 1;
const ENTRY_PREFIX_BYTES: usize = 8;
const KIND_BATCH: u8 = 1;
const KIND_CONTINUATION: u8 = 2;
const KIND_LOG_START_ADVANCED: u8 = 3;
const KIND_EPOCH_STARTED: u8 = 4;
const KIND_PARTITION_DROPPED: u8 = 5;

/// Above any block size a ring may have, low enough that no length arithmetic can overflow.
const BLOCK_USED_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests;
