//! Reads a ring back after a start: which blocks count, how far they can be trusted, and their
//! entries in order with split batches joined.
//!
//! Owns the verdict on a ring ([`judge`]) and the two passes over its files ([`scan`], [`Replay`]).
//! Must never decide about a partition: whether an entry is applied, skipped or a gap is the log's
//! business. Reads in chunks, so memory does not follow the ring's size.
//!
//! Every 4 KiB position of the ring is tried: a walk that ends at its first bad block has to probe
//! the rest anyway, to tell a torn tail from damage to acknowledged data. Older blocks of this boot
//! still validate; they are told by their sequence. A start first tries to do with one pass over
//! what is in use (`forward.rs`).
//!
//! Invariants: nothing at or after the first missing sequence is in [`Scan::good`]; a missing
//! sequence that any later block or the image knew to be durable is never called a torn tail.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::block::{
    self, BLOCK_HEADER_BYTES, BatchEntry, BlockHeader, ControlEntry, Entries, Entry, EntryFault,
    FileHeader, Identity,
};
use super::ring::{Geometry, JournalPoint};
use super::window::Window;
use crate::ids::{BootNumber, JournalSequence, ShardId, TopicPartition};
use crate::io::File;
use crate::limits::BLOCK_ALIGN;

/// The files of one ring in order; a missing one is `None`.
pub type RingFiles = [Option<Rc<dyn File>>];

/// Which ring is read, by the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Boot that the manifest names: files of any other boot count as empty.
    pub boot: BootNumber,
    /// Shard of that boot.
    pub shard: ShardId,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Whether a gap may be the honest result of a machine crash: the manifest says
    /// `process-crash` and the kernel boot id has changed.
    pub holes_are_legitimate: bool,
}

/// What the shard's image says about its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// J: the first block to replay.
    pub point: JournalPoint,
    /// Highest contiguous sequence that was durable when the image was written.
    pub durable_through: JournalSequence,
}

/// What is wrong with a ring, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Everything acknowledged is in the good prefix. `discarded_blocks` later blocks were in
    /// flight when the process ended.
    TornTail {
        /// Valid blocks after the end that nobody was told about.
        discarded_blocks: u64,
    },
    /// A block is missing that was acknowledged: the broker must not start without consent.
    Damaged {
        /// First missing sequence.
        sequence: JournalSequence,
        /// Logical position at which it is missing.
        position: u64,
        /// What knows that it was durable.
        proof: Proof,
    },
    /// A block is missing that was acknowledged, and the durability mode allows for it.
    Hole {
        /// First missing sequence.
        sequence: JournalSequence,
        /// Logical position at which it is missing.
        position: u64,
        /// Blocks lost at least, from that sequence on.
        lost_blocks: u64,
    },
}

/// What knows that a missing block was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// A later block, by its `durable_through`.
    Block(JournalSequence),
    /// The shard's image.
    Image,
}

/// What a ring holds.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Identity and shape by the first valid file header; `None`: an empty ring.
    pub ring: Option<(Identity, Geometry)>,
    /// Blocks to replay, in order, contiguous.
    pub good: Vec<BlockHeader>,
    /// Valid blocks after the good prefix, in order of their sequences, with gaps.
    pub later: Vec<BlockHeader>,
    /// Where the good prefix ends.
    pub end: JournalPoint,
    /// How far it can be trusted.
    pub verdict: Verdict,
    /// Highest sequence seen anywhere; 0 if none. New sequences must exceed it.
    pub highest_sequence: JournalSequence,
    /// File headers that are missing or damaged, of a ring that has a valid one.
    pub headers_lost: u32,
}

impl Scan {
    /// What a scan would find after a clean stop, without reading the ring.
    #[must_use]
    pub fn after_clean_stop(start: Start) -> Scan {
        Scan::of(judge(&[], None, Some(start), false), None, 0)
    }

    fn of(judged: Judged, ring: Option<(Identity, Geometry)>, headers_lost: u32) -> Scan {
        Scan {
            ring,
            good: judged.good,
            later: judged.later,
            end: judged.end,
            verdict: judged.verdict,
            highest_sequence: judged.highest_sequence,
            headers_lost,
        }
    }
}

/// Why a ring cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The device refused to read.
    #[error("cannot read journal ring file {file} at {offset}: {source}")]
    Read {
        /// File of the ring.
        file: u32,
        /// Offset in it.
        offset: u64,
        /// The device's error.
        source: io::Error,
    },
    /// The files contradict each other or the manifest.
    #[error("journal ring file {file} does not belong to its ring: {what}")]
    Foreign {
        /// File of the ring.
        file: u32,
        /// How it differs.
        what: &'static str,
    },
    /// A valid block holds what this version cannot read.
    #[error(transparent)]
    Entry(#[from] EntryFault),
    /// A block that was valid a moment ago no longer is.
    #[error("journal block {0} changed while it was read")]
    Changed(JournalSequence),
}

/// First pass: finds and judges every block of a ring.
pub async fn scan(
    files: &RingFiles,
    expected: &Expected,
    start: Option<Start>,
) -> Result<Scan, ReplayError> {
    let mut window = Window::default();
    let (ring, headers_lost) = find_header(files, expected, &mut window).await?;
    let mut blocks = Vec::new();
    if let Some((identity, geometry)) = &ring {
        for file in 0..geometry.files() {
            find_blocks(files, file, identity, geometry, &mut window, &mut blocks).await?;
        }
    }
    blocks.sort_by_key(|block| (block.sequence, block.position));
    let geometry = ring.as_ref().map(|(_, geometry)| geometry);
    let judged = judge(&blocks, geometry, start, expected.holes_are_legitimate);
    Ok(Scan::of(judged, ring, headers_lost))
}

/// What [`judge`] makes of a ring's blocks; the fields are those of [`Scan`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Blocks to replay.
    pub good: Vec<BlockHeader>,
    /// Valid blocks after them.
    pub later: Vec<BlockHeader>,
    /// Where the good prefix ends.
    pub end: JournalPoint,
    /// How far it can be trusted.
    pub verdict: Verdict,
    /// Highest sequence seen.
    pub highest_sequence: JournalSequence,
}

/// Decides about the valid blocks of a ring, sorted by sequence. `geometry` is `None` for a ring
/// without a valid file header, `start` without a readable image: then the oldest block that the
/// head has not yet overtaken is the start.
#[must_use]
pub fn judge(
    blocks: &[BlockHeader],
    geometry: Option<&Geometry>,
    start: Option<Start>,
    holes_are_legitimate: bool,
) -> Judged {
    let mut end = match (start, geometry) {
        (Some(start), _) => start.point,
        (None, Some(geometry)) => oldest_point(blocks, geometry),
        (None, None) => NOWHERE,
    };
    let first = blocks.partition_point(|block| block.sequence < end.sequence);
    let mut rest = &blocks[first..];
    let mut good = Vec::new();
    while let (Some((block, after)), Some(geometry)) = (rest.split_first(), geometry) {
        let aligned = block.aligned_bytes() as u64;
        if block.sequence != end.sequence
            || block.position != geometry.position_of_next(end.position, aligned)
        {
            break;
        }
        good.push(*block);
        rest = after;
        end = JournalPoint {
            position: block.position + aligned,
            sequence: JournalSequence(block.sequence.0.saturating_add(1)),
        };
    }
    let image_knows = start.map_or(JournalSequence(0), |start| start.durable_through);
    let highest_sequence = blocks
        .last()
        .map_or(JournalSequence(0), |block| block.sequence)
        .max(image_knows)
        .max(JournalSequence(end.sequence.0.saturating_sub(1)));
    Judged {
        good,
        later: rest.to_vec(),
        end,
        verdict: verdict(rest, end, image_knows, highest_sequence, holes_are_legitimate),
        highest_sequence,
    }
}

fn verdict(
    later: &[BlockHeader],
    end: JournalPoint,
    image_knows: JournalSequence,
    highest: JournalSequence,
    holes_are_legitimate: bool,
) -> Verdict {
    let missing = end.sequence;
    let witness = later.iter().find(|block| block.durable_through >= missing);
    let proof = match witness {
        Some(block) => Proof::Block(block.sequence),
        None if end != NOWHERE && image_knows >= missing => Proof::Image,
        None => {
            return Verdict::TornTail { discarded_blocks: later.len() as u64 };
        }
    };
    if holes_are_legitimate {
        Verdict::Hole {
            sequence: missing,
            position: end.position,
            lost_blocks: highest.0.saturating_sub(missing.0).saturating_add(1),
        }
    } else {
        Verdict::Damaged { sequence: missing, position: end.position, proof }
    }
}

/// Without an image: the oldest block within one ring's length of the head. What is older may
/// survive in the skipped end of a file and is stale.
fn oldest_point(blocks: &[BlockHeader], geometry: &Geometry) -> JournalPoint {
    let Some(newest) = blocks.last() else {
        return NOWHERE;
    };
    let head = newest.position.saturating_add(newest.aligned_bytes() as u64);
    let horizon = head.saturating_sub(geometry.ring_bytes());
    let oldest = blocks.iter().find(|block| block.position >= horizon).unwrap_or(newest);
    JournalPoint { position: oldest.position, sequence: oldest.sequence }
}

// --- Second pass -----------------------------------------------------------------------------

/// One thing a partition is told by the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// A whole record batch, as it was appended.
    Batch {
        /// Partition it belongs to.
        tp: TopicPartition,
        /// Wall clock of the append, in milliseconds.
        append_ms: i64,
        /// The batch.
        bytes: Bytes,
        /// Block that ends it.
        sequence: JournalSequence,
    },
    /// An entry without records.
    Control(ControlEntry),
}

impl Replayed {
    /// Partition it belongs to.
    #[must_use]
    pub fn tp(&self) -> TopicPartition {
        match self {
            Replayed::Batch { tp, .. } => *tp,
            Replayed::Control(control) => control.tp(),
        }
    }
}

/// How far [`Replay`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The good prefix.
    Good,
    /// Also the valid blocks after it: to name what damage hits, or when the loss was accepted.
    GoodAndLater,
}

/// Second pass: the entries of a scanned ring, in order.
pub struct Replay<'a> {
    files: &'a RingFiles,
    scan: &'a Scan,
    extent: Extent,
    next_block: usize,
    window: Window,
    joining: Joining,
}

impl<'a> Replay<'a> {
    /// Starts at the first good block. `files` are those that were scanned.
    #[must_use]
    pub fn new(files: &'a RingFiles, scan: &'a Scan, extent: Extent) -> Replay<'a> {
        let (window, joining) = (Window::default(), Joining::default());
        Replay { files, scan, extent, next_block: 0, window, joining }
    }

    /// The next whole batch or control entry; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Replayed>, ReplayError> {
        loop {
            if let Some(entry) = self.joining.next()? {
                return Ok(Some(entry));
            }
            if !self.open_next_block().await? {
                self.joining.end();
                return Ok(None);
            }
        }
    }

    /// Split batches dropped so far because a part is missing.
    #[must_use]
    pub fn torn_batches(&self) -> u64 {
        self.joining.torn_batches
    }

    async fn open_next_block(&mut self) -> Result<bool, ReplayError> {
        let good = self.scan.good.len();
        let header = match self.next_block.checked_sub(good) {
            None => self.scan.good[self.next_block],
            Some(n) if self.extent == Extent::GoodAndLater && n < self.scan.later.len() => {
                self.scan.later[n]
            }
            Some(_) => return Ok(false),
        };
        let (identity, geometry) =
            self.scan.ring.as_ref().expect("invariant: blocks come from an identified ring");
        let (file, offset) = geometry.locate(header.position);
        let (length, limit) = (header.aligned_bytes(), geometry.file_bytes());
        let bytes = self.window.read(self.files, file, offset, length, limit).await?;
        if block::check(&bytes, identity) != Ok(header) {
            return Err(ReplayError::Changed(header.sequence));
        }
        self.joining.open(header, bytes);
        self.next_block += 1;
        Ok(true)
    }
}

/// The entries of blocks that come one after the other, with split batches joined.
#[derive(Default)]
pub(super) struct Joining {
    last_sequence: Option<JournalSequence>,
    entries: Option<(JournalSequence, Entries)>,
    unfinished: HashMap<TopicPartition, Unfinished>,
    torn_batches: u64,
}

/// A split batch whose last part has not been seen.
struct Unfinished {
    next: BatchEntry,
    bytes: BytesMut,
}

impl Joining {
    /// Goes on with a block, which was checked; the one before has no entries left.
    pub(super) fn open(&mut self, header: BlockHeader, bytes: Bytes) {
        // Across a gap no batch can be joined: a middle part may be what is missing.
        let follows =
            self.last_sequence.is_none_or(|last| last.0.checked_add(1) == Some(header.sequence.0));
        if !follows {
            self.end();
        }
        self.last_sequence = Some(header.sequence);
        self.entries = Some((header.sequence, Entries::new(bytes, header)));
    }

    /// The next whole batch or control entry; `None` where another block is needed.
    pub(super) fn next(&mut self) -> Result<Option<Replayed>, EntryFault> {
        while let Some((sequence, entries)) = &mut self.entries {
            let sequence = *sequence;
            match entries.next() {
                Some(Ok(Entry::Control(entry))) => {
                    if matches!(entry, ControlEntry::PartitionDropped { .. }) {
                        self.forget(entry.tp());
                    }
                    return Ok(Some(Replayed::Control(entry)));
                }
                Some(Ok(Entry::Batch(entry, bytes))) => {
                    if let Some(batch) = self.join(entry, bytes, sequence) {
                        return Ok(Some(batch));
                    }
                }
                Some(Err(fault)) => return Err(fault),
                None => self.entries = None,
            }
        }
        Ok(None)
    }

    /// Nothing that goes on with what was seen will come.
    fn end(&mut self) {
        self.torn_batches += self.unfinished.len() as u64;
        self.unfinished.clear();
    }

    fn join(
        &mut self,
        entry: BatchEntry,
        bytes: Bytes,
        sequence: JournalSequence,
    ) -> Option<Replayed> {
        if entry.part == 0 {
            // A new batch of a partition means that the one before will never be finished.
            self.forget(entry.tp);
        }
        let bytes = if entry.is_whole() {
            bytes
        } else {
            let mut so_far = match self.unfinished.remove(&entry.tp) {
                Some(unfinished) if continues(&unfinished.next, &entry) => unfinished.bytes,
                None if entry.part == 0 => BytesMut::new(),
                _ => {
                    self.torn_batches += 1;
                    return None;
                }
            };
            so_far.extend_from_slice(&bytes);
            if !entry.is_last() {
                let next = BatchEntry {
                    part: entry.part.saturating_add(1),
                    part_start: entry.part_start.saturating_add(entry.part_bytes),
                    ..entry
                };
                let unfinished = Unfinished { next, bytes: so_far };
                self.unfinished.insert(entry.tp, unfinished);
                return None;
            }
            so_far.freeze()
        };
        Some(Replayed::Batch { tp: entry.tp, append_ms: entry.append_ms, bytes, sequence })
    }

    fn forget(&mut self, tp: TopicPartition) {
        if self.unfinished.remove(&tp).is_some() {
            self.torn_batches += 1;
        }
    }
}

fn continues(expected: &BatchEntry, entry: &BatchEntry) -> bool {
    (entry.batch_bytes, entry.part, entry.part_start, entry.append_ms)
        == (expected.batch_bytes, expected.part, expected.part_start, expected.append_ms)
}

// --- Reading files ---------------------------------------------------------------------------

pub(super) async fn find_header(
    files: &RingFiles,
    expected: &Expected,
    window: &mut Window,
) -> Result<(Option<(Identity, Geometry)>, u32), ReplayError> {
    let mut found: Option<(Identity, Geometry)> = None;
    let mut lost = 0;
    for file in 0..u32::try_from(files.len()).unwrap_or(u32::MAX) {
        let bytes = window.read(files, file, 0, BLOCK_ALIGN, BLOCK_ALIGN as u64).await?;
        let header = match FileHeader::decode(&bytes) {
            Ok(header) => header,
            Err(_) => {
                lost += 1;
                continue;
            }
        };
        let foreign = |what| ReplayError::Foreign { file, what };
        if header.identity.boot != expected.boot {
            lost += 1;
            continue;
        }
        if header.identity.shard != expected.shard || header.file != file {
            return Err(foreign("it is another file of the journal"));
        }
        if header.geometry.file_bytes() != expected.file_bytes
            || header.geometry.files() as usize != files.len()
        {
            return Err(foreign("its shape is not the manifest's"));
        }
        let this = (header.identity, header.geometry);
        if found.as_ref().is_some_and(|first| *first != this) {
            return Err(foreign("its journal id differs from the other files'"));
        }
        found = Some(this);
    }
    let lost = if found.is_some() { lost } else { 0 };
    Ok((found, lost))
}

async fn find_blocks(
    files: &RingFiles,
    file: u32,
    identity: &Identity,
    geometry: &Geometry,
    window: &mut Window,
    blocks: &mut Vec<BlockHeader>,
) -> Result<(), ReplayError> {
    let file_bytes = geometry.file_bytes();
    let mut offset = BLOCK_ALIGN as u64;
    while offset < file_bytes {
        let start = window.read(files, file, offset, BLOCK_ALIGN, file_bytes).await?;
        if start.len() < BLOCK_HEADER_BYTES {
            // The file is missing or was cut short here.
            return Ok(());
        }
        let mut step = BLOCK_ALIGN;
        if let Ok(header) = block::peek(&start, identity) {
            let length = header.aligned_bytes();
            let fits =
                length as u64 <= (file_bytes - offset).min(geometry.block_bytes_max().into());
            if fits && geometry.locate(header.position) == (file, offset) {
                let bytes = window.read(files, file, offset, length, file_bytes).await?;
                if block::check(&bytes, identity) == Ok(header) {
                    blocks.push(header);
                    step = length;
                }
            }
        }
        offset += step as u64;
    }
    Ok(())
}

/// The end of a ring that nothing is known of.
const NOWHERE: JournalPoint = JournalPoint { position: 0, sequence: JournalSequence(0) };

#[cfg(test)]
mod tests;
