//! Cleaned segments that a crash caught on their way to their final names.
//!
//! Owns what a start does about them, before anything else looks at a partition's files. A cleaned
//! segment is written and synced as `.cleaned`; its indexes become `.swap`, then, durably, its log:
//! from there on it counts, and the segments it replaces go. The log gets its final name last. So a
//! `.log.swap` is completed, whatever is left of the old segments, and everything else with such a
//! name is removed. Source: Kafka's `LogLoader.completeSwapOperations`.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;

use crate::batch::BatchHeader;
use crate::ids::Offset;
use crate::io::{DirectoryEntry, Disk, OpenMode};
use crate::log::layout::{SegmentFile, Stage};
use crate::tools::batches::{Batches, Piece};

/// Completes or undoes what was under way in a partition's directory; says whether its files have
/// changed.
///
/// # Errors
/// What the disk says, or that a segment which counts cannot be read.
pub async fn settle(
    disk: &Rc<dyn Disk>,
    directory: &Path,
    entries: &[DirectoryEntry],
) -> io::Result<bool> {
    let names = entries.iter().filter_map(|entry| entry.path.file_name()?.to_str());
    let mut present = BTreeSet::new();
    let mut staged = BTreeSet::new();
    for name in names {
        if let Some((kind, base)) = SegmentFile::parse(name) {
            present.insert((base, kind));
        } else if let Some((kind, base, stage)) = SegmentFile::parse_staged(name) {
            staged.insert((base, kind, stage));
        }
    }
    if staged.is_empty() {
        return Ok(false);
    }
    let counts = |base| staged.contains(&(base, SegmentFile::Log, Stage::Swap));
    for &(base, kind, stage) in &staged {
        if stage != Stage::Swap || !counts(base) {
            disk.remove(&directory.join(kind.staged_name(base, stage))).await?;
        }
    }
    let counting: Vec<Offset> =
        staged.iter().map(|(base, ..)| *base).filter(|&base| counts(base)).collect();
    for base in BTreeSet::from_iter(counting) {
        let companions: Vec<SegmentFile> = SegmentFile::ALL
            .into_iter()
            .filter(|&kind| kind != SegmentFile::Log)
            .filter(|&kind| staged.contains(&(base, kind, Stage::Swap)))
            .collect();
        complete(disk, directory, base, &present, &companions).await?;
    }
    disk.sync_directory(directory).await?;
    Ok(true)
}

/// Gives a cleaned segment the place of those it was made of. May be repeated at any point.
async fn complete(
    disk: &Rc<dyn Disk>,
    directory: &Path,
    base: Offset,
    present: &BTreeSet<(Offset, SegmentFile)>,
    companions: &[SegmentFile],
) -> io::Result<()> {
    let log = directory.join(SegmentFile::Log.staged_name(base, Stage::Swap));
    let end = end_of(disk, &log, base).await?;
    for &(old, kind) in present.iter().filter(|(old, _)| base < *old && *old < end) {
        disk.remove(&directory.join(kind.name(old))).await?;
    }
    for &kind in companions {
        let from = directory.join(kind.staged_name(base, Stage::Swap));
        disk.rename(&from, &directory.join(kind.name(base))).await?;
    }
    disk.sync_directory(directory).await?;
    disk.rename(&log, &directory.join(SegmentFile::Log.name(base))).await
}

/// Offset after the last batch. A segment that was replaced and begins behind it had nothing that
/// was kept: what is left of it does no harm.
async fn end_of(disk: &Rc<dyn Disk>, path: &Path, base: Offset) -> io::Result<Offset> {
    let file = disk.open(path, OpenMode::default()).await?;
    let length = file.length().await?;
    let mut batches = Batches::new(Rc::clone(&file), length);
    let mut end = base;
    while let Some(piece) = batches.next().await? {
        let header = match &piece {
            Piece::Batch { bytes, .. } => BatchHeader::read(bytes).ok(),
            Piece::Blank { .. } | Piece::Unreadable { .. } => None,
        };
        let Some(header) = header else {
            let text = format!("{}: it was synced and cannot be read", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        end = header.next_offset();
    }
    file.close().await?;
    Ok(end)
}
