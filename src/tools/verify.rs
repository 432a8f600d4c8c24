//! `ringlog log verify`: whether a data directory would start, and with everything in it.
//!
//! Owns the order of the checks and the report; the journal's checks are in
//! [`crate::journal::verify`], a partition's in `verify_partition.rs`. Must never write. A line is
//! `<what>: <text>` for what is as it should be and `<what>: PROBLEM: <text>` for what is not.
//!
//! Invariant: whatever keeps the broker from starting, or a partition from being whole, is a
//! problem; what the next start tidies by itself is not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::verify_partition::{PartitionFiles, verify_partition};
use crate::ids::{TopicId, TopicPartition};
use crate::io::{DirectoryEntry, Disk, File, OpenMode};
use crate::journal::image::{Image, PartitionRow};
use crate::journal::manifest::{self, Manifest};
use crate::journal::verify::{Finding, verify_shard};
use crate::log::layout::{self, SegmentFile};
use crate::metadata::records::Record;
use crate::metadata::store;

/// Checks the data directory `data_dir`, whose broker is stopped. `kernel_boot_id` is this
/// machine's now: it decides whether a gap in a `process-crash` journal is a legitimate loss.
///
/// # Errors
/// A directory that cannot be listed; everything else is a finding.
pub async fn verify(
    disk: &Rc<dyn Disk>,
    data_dir: &Path,
    kernel_boot_id: &str,
) -> io::Result<Vec<Finding>> {
    let mut verify = Verify { disk, data_dir, findings: Vec::new() };
    verify.format().await;
    let mut topics = verify.catalog().await;
    verify.cleaned(&mut topics).await;
    let rows = verify.journal(kernel_boot_id).await;
    verify.partitions(&topics, rows).await?;
    verify.crashes().await;
    Ok(verify.findings)
}

/// The topics that the catalog knows, deleted ones included.
#[derive(Default)]
struct Topics {
    names: BTreeMap<TopicId, String>,
    deleted: BTreeSet<TopicId>,
    /// Names of those that were compacted once, if only by their configuration.
    compacted: BTreeSet<String>,
    /// The catalog could not be read: nothing can be said of a topic that is not in it.
    unknown: bool,
}

impl Topics {
    fn note_policy(&mut self, name: &str, policy: Option<&String>) {
        if policy.is_some_and(|policy| policy.split(',').any(|one| one.trim() == "compact")) {
            self.compacted.insert(name.to_owned());
        }
    }

    fn are_compacted(&self, id: TopicId) -> bool {
        self.names.get(&id).is_some_and(|name| self.compacted.contains(name))
    }
}

/// What the images say, and whether all of them could be read.
#[derive(Default)]
struct Rows {
    rows: BTreeMap<TopicPartition, PartitionRow>,
    complete: bool,
}

struct Verify<'a> {
    disk: &'a Rc<dyn Disk>,
    data_dir: &'a Path,
    findings: Vec<Finding>,
}

impl Verify<'_> {
    fn note(&mut self, what: &str, text: &str) {
        self.findings.push(Finding { is_problem: false, text: format!("{what}: {text}") });
    }

    fn problem(&mut self, what: &str, text: &str) {
        let text = format!("{what}: PROBLEM: {text}");
        self.findings.push(Finding { is_problem: true, text });
    }

    async fn read(&self, relative: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(&self.data_dir.join(relative)).await
    }

    async fn format(&mut self) {
        let checked = match self.read(&manifest::format_path()).await {
            Ok(content) => manifest::check_data_format(&content).map_err(|fault| fault.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match checked {
            Ok(version) => self.note("format", &format!("on-disk version {version}")),
            Err(fault) => self.problem("format", &fault),
        }
    }

    async fn catalog(&mut self) -> Topics {
        let directory = self.data_dir.join(CATALOG);
        let stored = match store::read_catalog(&**self.disk, &directory).await {
            Ok(stored) => stored,
            Err(error) => {
                self.problem(CATALOG, &error.to_string());
                return Topics { unknown: true, ..Topics::default() };
            }
        };
        let mut topics = Topics::default();
        for record in stored.groups.iter().flatten() {
            match record {
                Record::TopicCreated { name, id, overrides, .. } => {
                    topics.names.insert(*id, name.clone());
                    topics.note_policy(name, overrides.get(POLICY));
                }
                Record::ConfigSet { resource_type: 2, resource_name, key, value }
                    if key == POLICY =>
                {
                    topics.note_policy(resource_name, value.as_ref());
                }
                Record::TombstoneKept { id, name, .. } => {
                    topics.names.insert(*id, name.clone());
                    topics.deleted.insert(*id);
                }
                Record::TopicDeleting { id } => {
                    topics.deleted.insert(*id);
                }
                Record::TombstoneGone { id } => {
                    topics.names.remove(id);
                    topics.deleted.remove(id);
                }
                _ => {}
            }
        }
        let (known, deleted) = (topics.names.len(), topics.deleted.len());
        let live = known.saturating_sub(deleted);
        self.note(CATALOG, &format!("{live} topics, {deleted} being deleted"));
        if stored.torn_bytes > 0 {
            let torn = stored.torn_bytes;
            self.note(CATALOG, &format!("torn tail: {torn} bytes that were never acknowledged"));
        }
        topics
    }

    /// Notes the topics that were compacted, whatever their configuration says now.
    async fn cleaned(&self, topics: &mut Topics) {
        let path = layout::topics_directory(self.data_dir).join(layout::CLEANER_OFFSET_CHECKPOINT);
        let content = self.disk.read(&path).await.unwrap_or_default();
        let lines = String::from_utf8_lossy(&content).into_owned();
        // Version and count come first.
        let names = lines.lines().skip(2).filter_map(|line| line.split(' ').next());
        topics.compacted.extend(names.map(str::to_owned));
    }

    /// Checks images and rings, and hands on what the images say.
    async fn journal(&mut self, kernel_boot_id: &str) -> Rows {
        let decoded = match self.read(&manifest::manifest_path()).await {
            Ok(content) => Manifest::decode(&content).map_err(|fault| fault.to_string()),
            Err(error) => Err(format!("{}: {error}", manifest::manifest_path().display())),
        };
        let manifest = match decoded {
            Ok(manifest) => manifest,
            Err(fault) => {
                self.problem("journal", &fault);
                return Rows::default();
            }
        };
        let mut found = Rows { rows: BTreeMap::new(), complete: true };
        for ring in &manifest.rings {
            let image = match self.read(&ring.image).await {
                Ok(content) => Some(Image::decode(&content)),
                Err(_) => None,
            };
            let mut files: Vec<Option<Rc<dyn File>>> = Vec::new();
            for file in &ring.files {
                let path = self.data_dir.join(file);
                files.push(self.disk.open(&path, OpenMode::default()).await.ok());
            }
            let image = image.as_ref();
            let findings = verify_shard(&manifest, ring, image, &files, kernel_boot_id).await;
            self.findings.extend(findings);
            match image {
                Some(Ok(image)) => {
                    found.rows.extend(image.rows.iter().map(|row| (row.tp, row.clone())));
                }
                _ => found.complete = false,
            }
        }
        found
    }

    async fn partitions(&mut self, topics: &Topics, mut found: Rows) -> io::Result<()> {
        let root = layout::topics_directory(self.data_dir);
        let entries = match self.disk.list(&root, true, &[layout::PARTITION_METADATA]).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut directories: BTreeMap<PathBuf, Vec<DirectoryEntry>> = BTreeMap::new();
        for entry in entries {
            let mut parts = entry.path.iter();
            let Some(directory) = parts.next().map(PathBuf::from) else { continue };
            let name = directory.to_string_lossy();
            if name.starts_with(layout::CLEANER_OFFSET_CHECKPOINT) {
                continue;
            }
            let inside = directories.entry(directory).or_default();
            if parts.next().is_some() {
                inside.push(entry);
            }
        }
        for (directory, entries) in directories {
            let name = directory.display().to_string();
            let what = format!("partition {name}");
            if layout::is_temporary(&name) || layout::is_deleted(&name) {
                self.note(&what, "left by a creation or deletion; removed at the next start");
                continue;
            }
            let Some(tp) = identity(&name, &entries) else {
                self.problem(&what, "its partition.metadata is missing or damaged");
                continue;
            };
            let row = found.rows.remove(&tp);
            if topics.deleted.contains(&tp.topic) {
                self.note(&what, "its topic is deleted; removed at the next start");
            } else if !topics.unknown && !topics.names.contains_key(&tp.topic) {
                self.note(&what, "it belongs to no known topic and is left alone");
            } else if row.is_none() && !found.complete {
                self.problem(&what, "the checkpoint image that vouches for it cannot be read");
            } else {
                let files = partition_files(root.join(&directory), &entries);
                let compacted = topics.are_compacted(tp.topic);
                let findings =
                    verify_partition(self.disk, &what, &files, row.as_ref(), compacted).await;
                self.findings.extend(findings);
            }
        }
        self.rows_left(topics, &found);
        Ok(())
    }

    /// What images vouch for and has no directory.
    fn rows_left(&mut self, topics: &Topics, found: &Rows) {
        for row in found.rows.values() {
            let id = row.tp.topic;
            let name = topics.names.get(&id).map_or_else(|| id.to_text(), Clone::clone);
            let what = format!("partition {name}-{}", row.tp.partition);
            if topics.deleted.contains(&id) {
                continue;
            }
            if !topics.unknown && !topics.names.contains_key(&id) {
                self.problem(&what, "the journal knows it, the catalog does not");
            } else if row.synced_end > row.log_start {
                let (start, end) = (row.log_start, row.synced_end);
                self.problem(&what, &format!("offsets {start} to {end}: no directory has them"));
            }
        }
    }

    async fn crashes(&mut self) {
        let path = self.data_dir.join("crash");
        let listed = self.disk.list(&path, false, &[]).await.unwrap_or_default();
        let reports = listed.iter().filter(|entry| entry.path.extension() == Some("txt".as_ref()));
        match reports.count() {
            0 => {}
            count => self.note("crash", &format!("{count} reports of crashes by requests")),
        }
    }
}

/// Which partition a directory belongs to, by its metadata.
fn identity(name: &str, entries: &[DirectoryEntry]) -> Option<TopicPartition> {
    let content = entries.iter().find_map(|entry| {
        let named = entry.path.file_name()? == layout::PARTITION_METADATA;
        entry.content.as_deref().filter(|_| named)
    });
    let topic = layout::parse_partition_metadata(content?)?;
    let partition = layout::partition_of(name)?;
    Some(TopicPartition { topic, partition })
}

fn partition_files(path: PathBuf, entries: &[DirectoryEntry]) -> PartitionFiles {
    let mut files = PartitionFiles { path, files: BTreeMap::new(), others: Vec::new() };
    for entry in entries.iter().filter(|entry| !entry.is_directory) {
        let name = entry.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name else { continue };
        if let Some((kind, base)) = SegmentFile::parse(&name) {
            files.files.insert((base, kind), entry.length);
        } else if name != layout::PARTITION_METADATA && name != layout::LEADER_EPOCH_CHECKPOINT {
            files.others.push(name);
        }
    }
    files
}

const CATALOG: &str = "catalog";

/// The configuration that has records compacted away.
const POLICY: &str = "cleanup.policy";
