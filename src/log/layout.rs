//! Names below the data directory: the only file that knows them for topics.
//!
//! `topics/<topic>-<n>/` holds what Apache Kafka's tools read. A directory is created under a
//! temporary name and renamed once its metadata is durable; one that is being deleted carries the
//! topic id in its name. Directories are identified by the id in `partition.metadata`, never by
//! name. Source: Kafka's `LogFileUtils`, `PartitionMetadataFile`.

use std::path::{Path, PathBuf};

use crate::ids::{Offset, PartitionIndex, TopicId};

/// File that says which topic a partition directory belongs to.
pub const PARTITION_METADATA: &str = "partition.metadata";

/// File with a partition's epoch history, in Kafka's text format.
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

/// File below `topics/` that says how far partitions are compacted, in Kafka's text format.
pub const CLEANER_OFFSET_CHECKPOINT: &str = "cleaner-offset-checkpoint";

/// What becomes of a segment file whose name goes on after its kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Being written by the cleaner: nothing that counts.
    Cleaned,
    /// Complete; if it is a log it counts, and takes the place of those it was made of.
    Swap,
    /// Replaced, to be removed after a while.
    Deleted,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Cleaned, Stage::Swap, Stage::Deleted];

    fn suffix(self) -> &'static str {
        match self {
            Stage::Cleaned => ".cleaned",
            Stage::Swap => ".swap",
            Stage::Deleted => ".deleted",
        }
    }
}

/// The kinds of file of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SegmentFile {
    /// Record batches back to back.
    Log,
    /// Sparse offset index.
    Index,
    /// Sparse time index.
    TimeIndex,
    /// Aborted transactions.
    TransactionIndex,
    /// Producer state at the segment's base offset.
    Snapshot,
}

impl SegmentFile {
    /// All kinds.
    pub const ALL: [SegmentFile; 5] = [
        SegmentFile::Log,
        SegmentFile::Index,
        SegmentFile::TimeIndex,
        SegmentFile::TransactionIndex,
        SegmentFile::Snapshot,
    ];

    /// File name ending, without the dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            SegmentFile::Log => "log",
            SegmentFile::Index => "index",
            SegmentFile::TimeIndex => "timeindex",
            SegmentFile::TransactionIndex => "txnindex",
            SegmentFile::Snapshot => "snapshot",
        }
    }

    /// Name of this file for the segment (or snapshot) at `base`.
    #[must_use]
    pub fn name(self, base: Offset) -> String {
        format!("{:020}.{}", base.0, self.extension())
    }

    /// Name of this file while it is being replaced or replaces another.
    #[must_use]
    pub fn staged_name(self, base: Offset, stage: Stage) -> String {
        format!("{}{}", self.name(base), stage.suffix())
    }

    /// Reads a name that [`SegmentFile::staged_name`] made.
    #[must_use]
    pub fn parse_staged(name: &str) -> Option<(SegmentFile, Offset, Stage)> {
        Stage::ALL.into_iter().find_map(|stage| {
            let (kind, base) = SegmentFile::parse(name.strip_suffix(stage.suffix())?)?;
            Some((kind, base, stage))
        })
    }

    /// Reads a name that [`SegmentFile::name`] made.
    #[must_use]
    pub fn parse(name: &str) -> Option<(SegmentFile, Offset)> {
        let (digits, extension) = name.split_once('.')?;
        if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let base = digits.parse().ok()?;
        let kind = SegmentFile::ALL.into_iter().find(|kind| kind.extension() == extension)?;
        Some((kind, Offset(base)))
    }
}

/// The directory of all partitions.
#[must_use]
pub fn topics_directory(data_dir: &Path) -> PathBuf {
    data_dir.join("topics")
}

/// Directory of a partition.
#[must_use]
pub fn partition_directory(data_dir: &Path, topic: &str, partition: PartitionIndex) -> PathBuf {
    topics_directory(data_dir).join(format!("{topic}-{partition}"))
}

/// Name of a partition's directory until its metadata is durable.
#[must_use]
pub fn temporary_directory(data_dir: &Path, id: TopicId, partition: PartitionIndex) -> PathBuf {
    topics_directory(data_dir).join(format!("{}{}-{partition}", TEMPORARY_PREFIX, hex(id)))
}

/// Name of a partition's directory once its topic is deleted.
#[must_use]
pub fn deleted_directory(
    data_dir: &Path,
    topic: &str,
    partition: PartitionIndex,
    id: TopicId,
) -> PathBuf {
    topics_directory(data_dir).join(deleted_name(&format!("{topic}-{partition}"), id))
}

/// Name of a deleted topic's directory that was called `name`. A long name loses its beginning,
/// so that partitions are still told apart.
#[must_use]
pub fn deleted_name(name: &str, id: TopicId) -> String {
    let suffix = format!(".{}-delete", hex(id));
    let cut = (name.len() + suffix.len()).saturating_sub(FILE_NAME_BYTES_MAX);
    format!("{}{suffix}", name.get(cut..).unwrap_or(name))
}

/// Whether a directory below `topics/` was left by an unfinished creation.
#[must_use]
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX)
}

/// Whether a directory below `topics/` belongs to a deleted topic.
#[must_use]
pub fn is_deleted(name: &str) -> bool {
    name.ends_with("-delete")
}

/// The partition index at the end of a partition directory's name.
#[must_use]
pub fn partition_of(name: &str) -> Option<PartitionIndex> {
    let (_, digits) = name.rsplit_once('-')?;
    digits.parse().ok().filter(|&index| index >= 0).map(PartitionIndex)
}

/// Content of `partition.metadata`.
#[must_use]
pub fn partition_metadata(id: TopicId) -> String {
    format!("version: 0\ntopic_id: {id}")
}

/// The topic id in a `partition.metadata`.
#[must_use]
pub fn parse_partition_metadata(content: &[u8]) -> Option<TopicId> {
    let text = std::str::from_utf8(content).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("topic_id: "))?;
    TopicId::from_text(line.trim())
}

fn hex(id: TopicId) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TEMPORARY_PREFIX: &str = ".new-";

/// Longest file name that Linux file systems take.
const FILE_NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas() {
        assert_eq!(SegmentFile::Log.name(Offset(42)), "00000000000000000042.log");
        assert_eq!(
            SegmentFile::parse("00000000000000000042.timeindex"),
            Some((SegmentFile::TimeIndex, Offset(42)))
        );
        assert_eq!(SegmentFile::parse("42.log"), None);
        let deleted = SegmentFile::Log.staged_name(Offset(42), Stage::Deleted);
        assert_eq!(deleted, "00000000000000000042.log.deleted");
        assert_eq!(SegmentFile::parse(&deleted), None);
        for stage in Stage::ALL {
            let name = SegmentFile::TimeIndex.staged_name(Offset(7), stage);
            let read = SegmentFile::parse_staged(&name);
            assert_eq!(read, Some((SegmentFile::TimeIndex, Offset(7), stage)));
        }
        assert_eq!(SegmentFile::parse_staged("00000000000000000042.log"), None);
        assert_eq!(partition_of("a-b-12"), Some(PartitionIndex(12)));
        assert_eq!(partition_of("a-b-x"), None);
    }

    #[test]
    fn names_of_deleted_topics_fit_and_differ() {
        let id = TopicId(*b"1234567890abcdef");
        let hex = "31323334353637383930616263646566";
        assert_eq!(deleted_name("t-0", id), format!("t-0.{hex}-delete"));
        let long = deleted_name(&format!("{}-12", "n".repeat(249)), id);
        assert_eq!(long, format!("{}-12.{hex}-delete", "n".repeat(212)));
        assert_eq!(long.len(), 255);
        assert!(is_deleted(&long));
    }

    #[test]
    fn metadata_round_trips() {
        let id = TopicId(*b"1234567890abcdef");
        let text = partition_metadata(id);
        assert_eq!(text, "version: 0\ntopic_id: MTIzNDU2Nzg5MGFiY2RlZg");
        assert_eq!(parse_partition_metadata(text.as_bytes()), Some(id));
        assert_eq!(parse_partition_metadata(b"version: 0\n"), None);
    }
}
