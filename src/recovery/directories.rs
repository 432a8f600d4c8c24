//! What is below `topics/`: partition directories by the id in their metadata, and leftovers.
//!
//! Owns the removal of directories that a crash left half-made or half-deleted. Must never remove
//! a directory of a topic that is neither deleted nor unfinished: it warns instead.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::ids::{Offset, TopicId, TopicPartition};
use crate::io::{DirectoryEntry, Disk};
use crate::log::layout::{self, SegmentFile};
use crate::metadata::Image;

use super::swaps;

/// Partition directories by partition.
#[derive(Default)]
pub struct Directories {
    /// Their files.
    pub partitions: BTreeMap<TopicPartition, PartitionFiles>,
}

/// The files of one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionFiles {
    /// The directory.
    pub path: PathBuf,
    /// Segment files by base offset and kind, with their lengths.
    pub files: BTreeMap<(Offset, SegmentFile), u64>,
}

/// Lists `topics/` (made if missing), removes leftovers, and completes names.
///
/// # Errors
/// What the disk says.
pub async fn tidy(
    disk: &Rc<dyn Disk>,
    data_dir: &Path,
    catalog: &Image,
    notes: &mut Vec<String>,
) -> io::Result<Directories> {
    let root = layout::topics_directory(data_dir);
    disk.create_directory(&root).await?;
    disk.sync_directory(data_dir).await?;
    let entries = disk.list(&root, true, &[layout::PARTITION_METADATA]).await?;
    let mut by_directory: BTreeMap<String, Vec<DirectoryEntry>> = BTreeMap::new();
    for entry in entries {
        let mut parts = entry.path.iter().map(|part| part.to_string_lossy().into_owned());
        let Some(directory) = parts.next() else { continue };
        if directory.starts_with(layout::CLEANER_OFFSET_CHECKPOINT) {
            // Of all partitions, and perhaps half replaced.
            continue;
        }
        let files = by_directory.entry(directory).or_default();
        if parts.next().is_some() && !entry.is_directory {
            files.push(entry);
        }
    }
    let mut found = Directories::default();
    for (name, entries) in by_directory {
        let path = root.join(&name);
        if layout::is_temporary(&name) {
            disk.remove_tree(&path).await?;
            continue;
        }
        let id = entries.iter().find_map(|entry| {
            let named = entry.path.file_name()? == layout::PARTITION_METADATA;
            let content = entry.content.as_deref().filter(|_| named)?;
            layout::parse_partition_metadata(content)
        });
        if layout::is_deleted(&name) {
            disk.remove_tree(&path).await?;
            continue;
        }
        if let Some(id) = id.filter(|&id| catalog.tombstone(id).is_some()) {
            remove_deleted(disk, &root, &name, id).await?;
            continue;
        }
        let known = id.and_then(|id| catalog.topic_by_id(id)).zip(layout::partition_of(&name));
        let Some((topic, partition)) = known else {
            notes.push(format!("{} belongs to no known topic and is left alone", path.display()));
            continue;
        };
        let key = TopicPartition { topic: topic.id, partition };
        let entries = match swaps::settle(disk, &path, &entries).await? {
            true => disk.list(&path, false, &[]).await?,
            false => entries,
        };
        found.partitions.insert(key, PartitionFiles { path, files: segment_files(&entries) });
    }
    Ok(found)
}

/// Removes a deleted topic's directory, first under a name that says so: a crash half-way may take
/// the metadata first, and what is left would be taken for unknown and keep the name occupied.
async fn remove_deleted(
    disk: &Rc<dyn Disk>,
    root: &Path,
    name: &str,
    id: TopicId,
) -> io::Result<()> {
    let renamed = root.join(layout::deleted_name(name, id));
    disk.remove_tree(&renamed).await?;
    disk.rename(&root.join(name), &renamed).await?;
    disk.sync_directory(root).await?;
    disk.remove_tree(&renamed).await
}

fn segment_files(entries: &[DirectoryEntry]) -> BTreeMap<(Offset, SegmentFile), u64> {
    let mut files = BTreeMap::new();
    for entry in entries {
        let name = entry.path.file_name().map(|name| name.to_string_lossy().into_owned());
        if let Some((kind, base)) = name.as_deref().and_then(SegmentFile::parse) {
            files.insert((base, kind), entry.length);
        }
    }
    files
}
