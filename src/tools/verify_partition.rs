//! The check of one partition's segments against what its checkpoint image vouches for.
//!
//! Owns the walk over its batches from the first segment to the synced end: every checksum right,
//! every offset there once (at most once, where records are compacted away), every index entry at a
//! batch, every aborted transaction in the index of them. What lies beyond the synced end is not
//! looked at: a start never trusts it and takes it from the journal again.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use super::batches::{Batches, Piece};
use super::dump::{offset_entries, time_entries};
use crate::batch::BatchHeader;
use crate::ids::Offset;
use crate::io::{Disk, OpenMode};
use crate::journal::image::PartitionRow;
use crate::journal::verify::Finding;
use crate::log::aborted::{ABORTED_ENTRY_BYTES, AbortedIndex, AbortedTransaction};
use crate::log::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};
use crate::log::layout::SegmentFile;
use crate::log::producers::Producers;

/// The files of one partition's directory.
pub struct PartitionFiles {
    /// The directory.
    pub path: PathBuf,
    /// Segment files with their lengths.
    pub files: BTreeMap<(Offset, SegmentFile), u64>,
    /// Names of files that no version of the broker writes there.
    pub others: Vec<String>,
}

/// Checks a partition, called `what` in the lines; `row` is `None` if no image knows it. Of one
/// that is `compacted` offsets may be missing.
pub async fn verify_partition(
    disk: &Rc<dyn Disk>,
    what: &str,
    files: &PartitionFiles,
    row: Option<&PartitionRow>,
    compacted: bool,
) -> Vec<Finding> {
    let producers = Producers::new(i64::MAX);
    let findings = Vec::new();
    let mut check = Check { disk, what, files, compacted, findings, batches: 0, producers };
    for name in &files.others {
        check.note(&format!("{name} is no file of the broker and is left alone"));
    }
    match row {
        Some(row) if row.synced_end > row.log_start => check.segments(row).await,
        _ => check.note("nothing is vouched for; all of it is in the journal"),
    }
    check.findings
}

struct Check<'a> {
    disk: &'a Rc<dyn Disk>,
    what: &'a str,
    files: &'a PartitionFiles,
    /// Offsets may be missing.
    compacted: bool,
    findings: Vec<Finding>,
    batches: u64,
    /// What the batches so far show of transactions.
    producers: Producers,
}

/// One segment, as far as it is vouched for.
struct Vouched {
    base: Offset,
    bytes: u64,
    index_bytes: u64,
    time_index_bytes: u64,
    aborted_bytes: u64,
}

impl Check<'_> {
    fn note(&mut self, text: &str) {
        let text = format!("{}: {text}", self.what);
        self.findings.push(Finding { is_problem: false, text });
    }

    fn problem(&mut self, text: &str) {
        let text = format!("{}: PROBLEM: {text}", self.what);
        self.findings.push(Finding { is_problem: true, text });
    }

    fn length(&self, base: Offset, kind: SegmentFile) -> Option<u64> {
        self.files.files.get(&(base, kind)).copied()
    }

    async fn segments(&mut self, row: &PartitionRow) {
        let bases: Vec<Offset> = self
            .files
            .files
            .keys()
            .filter(|(base, kind)| *kind == SegmentFile::Log && *base <= row.segment_base)
            .map(|(base, _)| *base)
            .collect();
        match bases.first() {
            Some(&first) if first > row.log_start => {
                let start = row.log_start;
                self.problem(&format!("the segments of offsets {start} to {first} are missing"));
            }
            _ => {}
        }
        if bases.last() != Some(&row.segment_base) {
            let name = SegmentFile::Log.name(row.segment_base);
            return self.problem(&format!("{name} is missing, synced to {}", row.synced_end));
        }
        let mut next = bases[0];
        for &base in &bases {
            if self.is_out_of_place(base, next) {
                self.problem(&format!("offsets {next} to {base} are missing between segments"));
            }
            let vouched = self.vouched(row, base);
            match self.segment(&vouched).await {
                Ok(end) => next = end,
                Err(error) => {
                    let name = SegmentFile::Log.name(base);
                    return self.problem(&format!("{name} cannot be read: {error}"));
                }
            }
        }
        if next != row.synced_end {
            self.problem(&format!("the log ends at {next}, {} was synced", row.synced_end));
        }
        if !self.findings.iter().any(|finding| finding.is_problem) {
            self.note(&format!(
                "{} segments, {} batches, offsets {} to {}",
                bases.len(),
                self.batches,
                bases[0],
                row.synced_end
            ));
        }
    }

    /// Whether a batch or segment must not begin at `base`, since `next` was to follow.
    fn is_out_of_place(&self, base: Offset, next: Offset) -> bool {
        base < next || (base > next && !self.compacted)
    }

    /// All of a complete segment; of the last one only what was synced.
    fn vouched(&mut self, row: &PartitionRow, base: Offset) -> Vouched {
        let has = |kind| self.length(base, kind).unwrap_or(0);
        if base < row.segment_base {
            return Vouched {
                base,
                bytes: has(SegmentFile::Log),
                index_bytes: has(SegmentFile::Index),
                time_index_bytes: has(SegmentFile::TimeIndex),
                aborted_bytes: has(SegmentFile::TransactionIndex),
            };
        }
        let files = [
            (SegmentFile::Log, row.segment_bytes),
            (SegmentFile::Index, u64::from(row.index_bytes)),
            (SegmentFile::TimeIndex, u64::from(row.time_index_bytes)),
            (SegmentFile::TransactionIndex, u64::from(row.transaction_index_bytes)),
        ];
        let short: Vec<String> = files
            .iter()
            .filter(|(kind, synced)| has(*kind) < *synced)
            .map(|(kind, synced)| {
                format!("{} has {} bytes, {synced} were synced", kind.name(base), has(*kind))
            })
            .collect();
        let [bytes, index_bytes, time_index_bytes, aborted_bytes] =
            files.map(|(kind, synced)| synced.min(has(kind)));
        for text in short {
            self.problem(&text);
        }
        Vouched { base, bytes, index_bytes, time_index_bytes, aborted_bytes }
    }

    /// Walks one segment; the offset after its last readable batch.
    async fn segment(&mut self, vouched: &Vouched) -> io::Result<Offset> {
        let name = SegmentFile::Log.name(vouched.base);
        let mut index = self.offset_index(vouched).await?.into_iter().peekable();
        let path = self.files.path.join(&name);
        let file = self.disk.open(&path, OpenMode::default()).await?;
        let mut batches = Batches::new(file, vouched.bytes);
        let mut next = vouched.base;
        let mut aborted = Vec::new();
        while let Some(piece) = batches.next().await? {
            let (position, bytes) = match piece {
                Piece::Batch { position, bytes } => (position, bytes),
                Piece::Blank { position } => {
                    self.problem(&format!("{name} holds only zeroes from byte {position} on"));
                    break;
                }
                Piece::Unreadable { position, reason } => {
                    self.problem(&format!("{name} byte {position}, offset {next}: {reason}"));
                    break;
                }
            };
            self.batches += 1;
            let header = match BatchHeader::read_verified(&bytes) {
                Ok(header) => header,
                Err(fault) => {
                    self.problem(&format!("{name} byte {position}, offset {next}: {fault}"));
                    // The frame is whole, so that the walk can go on behind it.
                    match BatchHeader::read(&bytes) {
                        Ok(header) => header,
                        Err(_) => break,
                    }
                }
            };
            if self.is_out_of_place(header.base_offset, next) {
                let found = header.base_offset;
                self.problem(&format!("{name} byte {position}: offset {found}, not {next}"));
            }
            let indexed = |entry: &(Offset, u64)| entry.1 <= position;
            while let Some((offset, at)) = index.next_if(indexed) {
                if at != position || offset != header.last_offset() {
                    self.problem(&format!(
                        "{} leads to offset {offset} at byte {at}, where no batch ends with it",
                        SegmentFile::Index.name(vouched.base)
                    ));
                }
            }
            let ended = self.producers.replay(&header, &bytes, 0);
            aborted.extend(ended.and_then(|ended| ended.aborted()));
            next = header.next_offset();
        }
        if let Some((offset, at)) = index.next() {
            let name = SegmentFile::Index.name(vouched.base);
            self.problem(&format!("{name} leads to offset {offset} at byte {at}, past the end"));
        }
        self.time_index(vouched, next).await?;
        self.aborted_index(vouched, &aborted).await?;
        Ok(next)
    }

    /// `found` are the transactions that the segment's abort markers end. Of those that began in
    /// segments that are gone, an entry may tell more than the walk has seen.
    async fn aborted_index(
        &mut self,
        vouched: &Vouched,
        found: &[AbortedTransaction],
    ) -> io::Result<()> {
        let kind = SegmentFile::TransactionIndex;
        let bytes = vouched.aborted_bytes;
        let content = self.content(vouched, kind, bytes, ABORTED_ENTRY_BYTES).await?;
        let index = AbortedIndex::decode(&content);
        let name = kind.name(vouched.base);
        if u64::from(index.bytes()) != bytes {
            self.problem(&format!("{name} does not rise"));
        }
        for transaction in found {
            let (producer, first) = (transaction.producer_id, transaction.first_offset);
            let last = transaction.last_offset;
            let told = index.entries().binary_search_by_key(&last, |entry| entry.last_offset);
            let told = told.ok().map(|place| index.entries()[place]);
            if !told.is_some_and(|told| told.producer_id == producer && told.first_offset <= first)
            {
                self.problem(&format!(
                    "{name} lacks the transaction of producer {producer} that was aborted at {last}"
                ));
            }
        }
        if self.compacted {
            // An entry outlives its records by one pass.
            return Ok(());
        }
        let oldest = self.files.files.keys().next().map_or(vouched.base, |(base, _)| *base);
        for entry in index.entries().iter().filter(|entry| entry.first_offset >= oldest) {
            let last = entry.last_offset;
            if found.binary_search_by_key(&last, |transaction| transaction.last_offset).is_err() {
                self.problem(&format!("{name} names offset {last}, where nothing was aborted"));
            }
        }
        Ok(())
    }

    /// The entries of the offset index: offset and position.
    async fn offset_index(&mut self, vouched: &Vouched) -> io::Result<Vec<(Offset, u64)>> {
        let kind = SegmentFile::Index;
        let content = self.content(vouched, kind, vouched.index_bytes, OFFSET_ENTRY_BYTES).await?;
        let entries = offset_entries(&content)
            .map(|(relative, at)| (vouched.base.plus(i64::from(relative)), u64::from(at)));
        let entries: Vec<(Offset, u64)> = entries.collect();
        if !entries.is_sorted_by(|left, right| left.0 < right.0 && left.1 < right.1) {
            self.problem(&format!("{} does not rise", kind.name(vouched.base)));
        }
        Ok(entries)
    }

    async fn time_index(&mut self, vouched: &Vouched, end: Offset) -> io::Result<()> {
        let kind = SegmentFile::TimeIndex;
        let bytes = vouched.time_index_bytes;
        let content = self.content(vouched, kind, bytes, TIME_ENTRY_BYTES).await?;
        let entries: Vec<(i64, u32)> = time_entries(&content).collect();
        let name = kind.name(vouched.base);
        if !entries.is_sorted_by(|left, right| left.0 < right.0 && left.1 <= right.1) {
            self.problem(&format!("{name} does not rise"));
        }
        let last = entries.last().map(|(_, relative)| vouched.base.plus(i64::from(*relative)));
        if last.is_some_and(|last| last >= end) {
            self.problem(&format!("{name} leads past the segment's end {end}"));
        }
        Ok(())
    }

    async fn content(
        &mut self,
        vouched: &Vouched,
        kind: SegmentFile,
        bytes: u64,
        entry_bytes: usize,
    ) -> io::Result<Vec<u8>> {
        let name = kind.name(vouched.base);
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let mut content = self.disk.read(&self.files.path.join(&name)).await?;
        content.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        if !content.len().is_multiple_of(entry_bytes) {
            self.problem(&format!("{name} ends inside an entry"));
        }
        Ok(content)
    }
}
