//! The directories of a stopped Apache Kafka: what is where, before anything is read.
//!
//! Owns which directory a partition's log is in, which files it has, and the text files beside
//! them. Partitions are found by the topic id in `partition.metadata`. Must never take a directory
//! that is being deleted or was put aside for one of a topic.
//!
//! Source: Kafka's `LogManager`, `MetaPropertiesEnsemble`, `CheckpointFile`, `Snapshots`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ImportError;
use crate::ids::{LeaderEpoch, Offset, PartitionIndex, TopicPartition};
use crate::io::{DirectoryEntry, Disk};
use crate::log::layout::{self, SegmentFile};

/// A file of batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
}

/// The log of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionSource {
    /// `topic-0`.
    pub name: String,
    /// Segments by base offset.
    pub segments: Vec<(Offset, LogFile)>,
    /// First offset that readers may see.
    pub log_start: Offset,
    /// Epochs and where they start.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// The broker has stopped of itself: every segment ends with a whole batch.
    pub stopped_cleanly: bool,
}

/// The files of the metadata log that count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataFiles<'a> {
    /// The newest snapshot.
    pub snapshot: Option<&'a LogFile>,
    /// The segments, by base offset.
    pub log: Vec<&'a LogFile>,
    /// The offset from which batches of the segments count.
    pub start: Offset,
}

/// What the directories hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// The cluster's id.
    pub cluster_id: String,
    /// The directory of the metadata log.
    pub metadata: PathBuf,
    /// What an operator should know.
    pub notes: Vec<String>,
    files: BTreeMap<String, LogFile>,
    partitions: BTreeMap<TopicPartition, PartitionSource>,
}

impl Source {
    /// Lists the directories and reads their text files.
    pub async fn read(disk: &Rc<dyn Disk>, roots: &[PathBuf]) -> Result<Source, ImportError> {
        let mut source = Source::default();
        for root in roots {
            source.read_root(disk, root).await?;
        }
        if source.metadata.as_os_str().is_empty() {
            let root = roots.first().map_or(Path::new("."), |root| root);
            let reason = format!(
                "none of the directories holds {METADATA}: name every one of log.dirs and \
                 metadata.log.dir (clusters with ZooKeeper have to move to KRaft first)"
            );
            return Err(ImportError::source(root, reason));
        }
        Ok(source)
    }

    /// The files that the metadata is read from.
    ///
    /// # Errors
    /// The beginning is missing.
    pub fn metadata_files(&self) -> Result<MetadataFiles<'_>, ImportError> {
        let snapshots = self.files.iter().filter_map(|(name, file)| {
            let (offset, rest) = name.split_once('-')?;
            let is_snapshot = offset.len() == 20 && rest.ends_with(".checkpoint");
            is_snapshot.then(|| Some((Offset(offset.parse().ok()?), file))).flatten()
        });
        let newest = snapshots.max_by_key(|(offset, _)| *offset);
        let start = newest.map_or(Offset(0), |(offset, _)| offset);
        let snapshot = newest.map(|(_, file)| file);
        let mut log = Vec::new();
        let mut first = None;
        for (name, file) in &self.files {
            if let Some((SegmentFile::Log, base)) = SegmentFile::parse(name) {
                first.get_or_insert(base);
                log.push(file);
            }
        }
        if let Some(first) = first.filter(|first| *first > start) {
            let reason = format!("its log begins at {first} and no snapshot reaches it");
            return Err(ImportError::source(&self.metadata, reason));
        }
        Ok(MetadataFiles { snapshot, log, start })
    }

    /// The log of a partition.
    pub fn partition(
        &self,
        tp: TopicPartition,
        topic: &str,
    ) -> Result<&PartitionSource, ImportError> {
        self.partitions.get(&tp).ok_or_else(|| {
            let reason = format!(
                "partition {topic}-{} is in none of the directories: name every one of log.dirs",
                tp.partition
            );
            ImportError::source(&self.metadata, reason)
        })
    }

    async fn read_root(&mut self, disk: &Rc<dyn Disk>, root: &Path) -> Result<(), ImportError> {
        let failed = ImportError::disk(root);
        let entries = disk.list(root, true, &READ_NAMES).await.map_err(failed)?;
        let mut top = BTreeMap::new();
        let mut directories: BTreeMap<String, Vec<DirectoryEntry>> = BTreeMap::new();
        for entry in entries {
            let mut parts = entry.path.iter().map(|part| part.to_string_lossy().into_owned());
            let Some(name) = parts.next() else { continue };
            match parts.next() {
                _ if entry.is_directory => {}
                Some(_) => directories.entry(name).or_default().push(entry),
                None => {
                    let text = entry.content.unwrap_or_default();
                    top.insert(name, String::from_utf8_lossy(&text).into_owned());
                }
            }
        }
        let Some(properties) = top.get(META_PROPERTIES) else {
            let reason =
                format!("there is no {META_PROPERTIES}: this is no log directory of Kafka");
            return Err(ImportError::source(root, reason));
        };
        if let Some(id) = properties.lines().find_map(|line| line.strip_prefix("cluster.id=")) {
            let (id, known) = (id.trim(), &mut self.cluster_id);
            if !known.is_empty() && known != id {
                let reason = format!("it is of cluster {id}, the directories before it of {known}");
                return Err(ImportError::source(root, reason));
            }
            id.clone_into(known);
        }
        let stopped_cleanly = top.contains_key(CLEAN_SHUTDOWN);
        if !stopped_cleanly {
            self.notes.push(format!(
                "{}: the broker did not stop of itself; logs end with their last whole batch",
                root.display()
            ));
        }
        let starts = top.get(LOG_STARTS).map(|text| log_starts(text)).unwrap_or_default();
        for (name, entries) in directories {
            let path = root.join(&name);
            if name == METADATA {
                if !self.metadata.as_os_str().is_empty() {
                    return Err(twice(&path, &self.metadata));
                }
                self.metadata.clone_from(&path);
                self.files = files(root, &entries).collect();
            } else if let Some((tp, mut partition)) = partition(root, &name, &entries) {
                partition.stopped_cleanly = stopped_cleanly;
                partition.log_start = starts.get(&name).copied().unwrap_or_default();
                let known = self.partitions.insert(tp, partition);
                if let Some((_, first)) = known.as_ref().and_then(|known| known.segments.first()) {
                    return Err(twice(&path, first.path.parent().unwrap_or(root)));
                }
            } else {
                self.notes.push(format!("{} is no log of a topic and is left out", path.display()));
            }
        }
        Ok(())
    }
}

/// Two copies of a log: nobody says which one counts.
fn twice(path: &Path, known: &Path) -> ImportError {
    ImportError::source(path, format!("{} is the same log: leave one of them out", known.display()))
}

fn files<'a>(
    root: &'a Path,
    entries: &'a [DirectoryEntry],
) -> impl Iterator<Item = (String, LogFile)> + 'a {
    entries.iter().filter_map(|entry| {
        let name = entry.path.file_name()?.to_string_lossy().into_owned();
        Some((name, LogFile { path: root.join(&entry.path), bytes: entry.length }))
    })
}

/// The partition whose log a directory holds; one that is deleted, moved or stray is none.
fn partition(
    root: &Path,
    name: &str,
    entries: &[DirectoryEntry],
) -> Option<(TopicPartition, PartitionSource)> {
    let content = |wanted: &str| {
        let entry =
            entries.iter().find(|entry| entry.path.file_name().is_some_and(|n| n == wanted));
        entry.and_then(|entry| entry.content.as_deref())
    };
    let topic = layout::parse_partition_metadata(content(layout::PARTITION_METADATA)?)?;
    let index: PartitionIndex = layout::partition_of(name)?;
    let mut segments: Vec<_> = files(root, entries)
        .filter_map(|(name, file)| match SegmentFile::parse(&name)? {
            (SegmentFile::Log, base) => Some((base, file)),
            _ => None,
        })
        .collect();
    segments.sort_unstable_by_key(|(base, _)| *base);
    let epochs = content(layout::LEADER_EPOCH_CHECKPOINT).map(epochs).unwrap_or_default();
    let partition = PartitionSource {
        name: name.to_owned(),
        segments,
        log_start: Offset(0),
        epochs,
        stopped_cleanly: true,
    };
    Some((TopicPartition { topic, partition: index }, partition))
}

/// The lines of a checkpoint file of Kafka, behind its version and its count.
fn checkpoint(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(2)
}

fn epochs(content: &[u8]) -> Vec<(LeaderEpoch, Offset)> {
    let text = String::from_utf8_lossy(content);
    let entry = |line: &str| {
        let (epoch, start) = line.split_once(' ')?;
        Some((LeaderEpoch(epoch.parse().ok()?), Offset(start.trim().parse().ok()?)))
    };
    checkpoint(&text).filter_map(entry).collect()
}

/// Log starts by `topic-0`.
fn log_starts(text: &str) -> BTreeMap<String, Offset> {
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let (topic, index, offset) = (words.next()?, words.next()?, words.next()?);
        Some((format!("{topic}-{index}"), Offset(offset.trim().parse().ok()?)))
    };
    checkpoint(text).filter_map(entry).collect()
}

const METADATA: &str = "__cluster_metadata-0";
const META_PROPERTIES: &str = "meta.properties";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const LOG_STARTS: &str = "log-start-offset-checkpoint";

/// The text files that are read while the directories are listed.
const READ_NAMES: [&str; 5] = [
    META_PROPERTIES,
    CLEAN_SHUTDOWN,
    LOG_STARTS,
    layout::PARTITION_METADATA,
    layout::LEADER_EPOCH_CHECKPOINT,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_files_are_read() {
        let text = "0\n2\na-b 3 17\nc 0 5\n";
        let starts = log_starts(text);
        assert_eq!(starts.len(), 2);
        assert_eq!(starts["a-b-3"], Offset(17));
        assert_eq!(
            epochs(b"0\n2\n0 0\n4 100\n"),
            [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), Offset(100)),]
        );
        assert_eq!(epochs(b""), []);
    }

    #[test]
    fn the_newest_snapshot_comes_before_the_log() {
        let file = |name: &str| (name.to_owned(), LogFile { path: name.into(), bytes: 1 });
        let mut source = Source {
            files: BTreeMap::from([
                file("00000000000000000000-0000000000.checkpoint"),
                file("00000000000000000100-0000000002.checkpoint"),
                file("00000000000000000100-0000000002.checkpoint.part"),
                file("00000000000000000050.log"),
                file("00000000000000000050.index"),
                file("00000000000000000200.log"),
                file("quorum-state"),
            ]),
            ..Source::default()
        };
        let files = source.metadata_files().expect("files");
        let name = |file: &LogFile| file.path.to_string_lossy().into_owned();
        let snapshot = files.snapshot.map(name);
        assert_eq!(snapshot.as_deref(), Some("00000000000000000100-0000000002.checkpoint"));
        assert_eq!(files.start, Offset(100));
        let log: Vec<_> = files.log.iter().map(|file| name(file)).collect();
        assert_eq!(log, ["00000000000000000050.log", "00000000000000000200.log"]);
        source.files.retain(|name, _| !name.ends_with(".checkpoint"));
        assert!(source.metadata_files().is_err(), "the beginning is missing");
    }
}
