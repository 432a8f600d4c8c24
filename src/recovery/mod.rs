//! Recovery: from what a stopped or killed broker left to a state that shards start from.
//!
//! Owns the order of a start, before any shard runs and whatever the old number of shards: read
//! manifest and images; cut every partition at its synced end; apply the journal and judge it;
//! sync; write new images; replace the manifest durably, which is the commit point. A crash before
//! it repeats with the same result; so does a start that finds in the middle that it needs more
//! care, and judges all of the journal before it cuts or applies anything. Must never trust a byte
//! beyond a partition's synced end, and never hide that acknowledged records are missing: such a
//! partition stays offline, its entries kept aside, until it fits again or the operator accepts the
//! loss.

mod builder;
mod directories;
pub(crate) mod partition;
mod swaps;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::ids::{
    BootNumber, JournalSequence, LeaderEpoch, Offset, PartitionIndex, ShardId, TopicPartition,
};
use crate::io::{Disk, File, OpenMode};
use crate::journal::JournalPoint;
use crate::journal::block::ControlEntry;
use crate::journal::forward::{Following, Probing};
use crate::journal::image::{Image as ShardImage, PartitionRow};
use crate::journal::manifest::{self, Durability, Manifest, ManifestFault, RingEntry};
use crate::journal::replay::{
    self, Expected, Extent, Replay, ReplayError, Replayed, Scan, Start, Verdict,
};
use crate::metadata::{Image, image::Topic};
use crate::shard::RecoveredPartition;

use directories::{Directories, PartitionFiles};
use partition::{PartitionRecovery, Rules};

/// What recovery needs to know.
pub struct Request<'a> {
    /// The data directory, absolute.
    pub data_dir: &'a Path,
    /// The catalog.
    pub catalog: &'a Image,
    /// Shards of this start.
    pub shards: u16,
    /// Files of each shard's ring.
    pub ring_files: u32,
    /// Bytes of each of them.
    pub ring_file_bytes: u64,
    /// Mode of this start.
    pub durability: Durability,
    /// The kernel's boot id now.
    pub kernel_boot_id: String,
    /// Partitions whose loss is accepted, as `topic-0`, or `all`.
    pub accept_loss: &'a [String],
    /// Wall clock now.
    pub now_ms: i64,
    /// How long a partition remembers an idle producer.
    pub producer_expiration_ms: i64,
}

/// What the shards start from.
pub struct Recovered {
    /// This boot.
    pub boot: BootNumber,
    /// First journal sequence of every ring.
    pub first_sequence: JournalSequence,
    /// Partitions with data, by shard.
    pub partitions: Vec<Vec<RecoveredPartition>>,
    /// What an operator should know, one sentence each.
    pub notes: Vec<String>,
    /// Batches applied from the journal.
    pub batches_replayed: u64,
}

/// Why a start is not possible.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The disk refused.
    #[error("{what}: {error}")]
    Disk {
        /// What was tried.
        what: String,
        /// What the disk said.
        error: io::Error,
    },
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestFault),
    /// A ring cannot be read.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Acknowledged journal blocks are damaged.
    #[error(
        "the journal of shard {shard} is damaged at block {sequence}, which was acknowledged; \
         `ringlog log verify` names what is hit, `serve --accept-loss all` goes on without it"
    )]
    Damaged {
        /// The shard.
        shard: ShardId,
        /// First missing block.
        sequence: JournalSequence,
    },
    /// The journal names a topic that nobody knows.
    #[error(
        "the journal holds records of topic id {0}, which is neither in the catalog nor deleted: \
         the catalog does not belong to this journal"
    )]
    UnknownTopic(crate::ids::TopicId),
}

/// Brings a data directory into the state that shards start from.
///
/// # Errors
/// Why the broker must not start.
pub async fn recover(
    disk: &Rc<dyn Disk>,
    request: &Request<'_>,
) -> Result<Recovered, RecoveryError> {
    let manifest = read_manifest(disk, request).await?;
    match attempt(disk, request, manifest.as_ref(), Care::Once).await? {
        Some(recovered) => Ok(recovered),
        None => {
            let recovered = attempt(disk, request, manifest.as_ref(), Care::Twice).await?;
            Ok(recovered.expect("invariant: only a single pass is given up"))
        }
    }
}

/// How the rings are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// In one pass: what is told is applied at once, what of it can be trusted is judged at the
    /// end. Enough after most crashes.
    Once,
    /// All of every ring is judged before anything is touched, and what it says of a log's start
    /// is known before files are judged.
    Twice,
}

/// Recovers; `None` if that takes more care. Then as much has happened as before a crash in the
/// middle.
async fn attempt(
    disk: &Rc<dyn Disk>,
    request: &Request<'_>,
    manifest: Option<&Manifest>,
    care: Care,
) -> Result<Option<Recovered>, RecoveryError> {
    let mut recovery = Recovery {
        disk,
        request,
        notes: Vec::new(),
        partitions: BTreeMap::new(),
        image_damaged: false,
        stopped_cleanly: false,
        highest_epoch: manifest.map_or(LeaderEpoch(0), |manifest| manifest.highest_epoch),
        highest_sequence: manifest.map_or(JournalSequence(0), |manifest| manifest.highest_sequence),
        batches_replayed: 0,
    };
    let previous = manifest.map_or(BootNumber(0), |manifest| manifest.boot);
    let mut rows = BTreeMap::new();
    let mut rings = Vec::new();
    for entry in manifest.map_or(&[][..], |manifest| &manifest.rings) {
        let image = recovery.read_image(entry, &mut rows).await?;
        match image.start {
            // After a clean stop the ring holds nothing, except perhaps a last empty block.
            Some(start) if image.clean => recovery.note_sequence(start.point.sequence),
            start => rings.push((entry, start)),
        }
    }
    recovery.stopped_cleanly = rings.is_empty();
    let is_done = match (care, manifest) {
        (Care::Once, Some(manifest)) => recovery.read_once(manifest, rows, &rings).await?,
        (Care::Twice, Some(manifest)) => recovery.read_twice(manifest, rows, &rings).await?,
        (_, None) => recovery.open_partitions(rows, &BTreeMap::new()).await.map(|()| true)?,
    };
    if !is_done {
        recovery.give_up().await;
        return Ok(None);
    }
    let boot = BootNumber(previous.0.max(u32::try_from(recovery.highest_epoch.0).unwrap_or(0)) + 1);
    recovery.commit(boot, previous).await.map(Some)
}

/// What a shard's image says about its ring.
struct ImageSays {
    start: Option<Start>,
    clean: bool,
}

/// A ring of the boot before that may hold something, and where its image has it begin.
type Wanted<'a> = (&'a RingEntry, Option<Start>);

struct OpenRing {
    files: Vec<Option<Rc<dyn File>>>,
    scan: Scan,
}

struct Recovery<'a> {
    disk: &'a Rc<dyn Disk>,
    request: &'a Request<'a>,
    notes: Vec<String>,
    partitions: BTreeMap<TopicPartition, PartitionRecovery>,
    image_damaged: bool,
    /// Every shard's image was written by a clean stop.
    stopped_cleanly: bool,
    highest_epoch: LeaderEpoch,
    highest_sequence: JournalSequence,
    batches_replayed: u64,
}

impl Recovery<'_> {
    fn path(&self, relative: &Path) -> PathBuf {
        self.request.data_dir.join(relative)
    }

    fn note_sequence(&mut self, sequence: JournalSequence) {
        self.highest_sequence = self.highest_sequence.max(sequence);
    }

    fn accepts_all_loss(&self) -> bool {
        self.request.accept_loss.iter().any(|accepted| accepted == "all")
    }

    /// Reads a shard's image into `rows`; a damaged one is noted, and its ring read from the
    /// oldest block on.
    async fn read_image(
        &mut self,
        entry: &RingEntry,
        rows: &mut BTreeMap<TopicPartition, PartitionRow>,
    ) -> Result<ImageSays, RecoveryError> {
        let path = self.path(&entry.image);
        let content = match self.disk.read(&path).await {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(disk_error(&path, error)),
        };
        let image = content.as_deref().map(ShardImage::decode);
        match image {
            Some(Ok(image)) => {
                rows.extend(image.rows.into_iter().map(|row| (row.tp, row)));
                Ok(ImageSays { start: Some(image.start), clean: image.clean })
            }
            other => {
                let why = match other {
                    Some(Err(fault)) => fault.to_string(),
                    _ => "it is missing".to_owned(),
                };
                self.image_damaged = true;
                self.notes.push(format!(
                    "the checkpoint image {} cannot be used ({why}): its partitions stay offline \
                     until `serve --accept-loss` names them",
                    path.display()
                ));
                Ok(ImageSays { start: None, clean: false })
            }
        }
    }

    /// Applies the rings while they are read; `false` if it takes more care.
    async fn read_once(
        &mut self,
        manifest: &Manifest,
        rows: BTreeMap<TopicPartition, PartitionRow>,
        rings: &[Wanted<'_>],
    ) -> Result<bool, RecoveryError> {
        let is_ordinary = self.request.accept_loss.is_empty()
            && !self.image_damaged
            && rows.values().all(|row| row.offline.is_none());
        if !is_ordinary {
            return Ok(false);
        }
        self.open_partitions(rows, &BTreeMap::new()).await?;
        for (entry, start) in rings {
            let files = self.open_ring(entry).await?;
            let Some(start) = *start else { return Ok(false) };
            let expected = self.expected(manifest, entry);
            let Some(mut ring) = Following::begin(&files, &expected, start).await? else {
                return Ok(false);
            };
            while let Some(told) = ring.next().await? {
                if !self.is_known(&told) {
                    return Ok(false);
                }
                self.apply(told).await?;
            }
            let Some(judged) = ring.end(Probing::default()).await? else { return Ok(false) };
            self.note_sequence(judged.highest_sequence);
        }
        // What seems to be missing may lie below a log start that the rings have told.
        Ok(!self.partitions.values().any(PartitionRecovery::is_offline))
    }

    /// Judges the rings, then the files, and applies what the rings hold.
    async fn read_twice(
        &mut self,
        manifest: &Manifest,
        rows: BTreeMap<TopicPartition, PartitionRow>,
        wanted: &[Wanted<'_>],
    ) -> Result<bool, RecoveryError> {
        let mut rings = Vec::new();
        for (entry, start) in wanted {
            rings.push(self.scan_ring(manifest, entry, *start).await?);
        }
        let starts = self.log_starts(&rings).await?;
        self.open_partitions(rows, &starts).await?;
        for ring in &rings {
            let mut replay = Replay::new(&ring.files, &ring.scan, Self::extent(ring));
            while let Some(told) = replay.next().await? {
                self.apply(told).await?;
            }
        }
        Ok(true)
    }

    /// Ends what was begun, so that nothing of it reaches files that are made next.
    async fn give_up(self) {
        for (_, partition) in self.partitions {
            partition.give_up().await;
        }
    }

    async fn open_ring(
        &self,
        entry: &RingEntry,
    ) -> Result<Vec<Option<Rc<dyn File>>>, RecoveryError> {
        let mut files = Vec::with_capacity(entry.files.len());
        for file in &entry.files {
            let path = self.path(file);
            files.push(match self.disk.open(&path, OpenMode::default()).await {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(disk_error(&path, error)),
            });
        }
        Ok(files)
    }

    fn expected(&self, manifest: &Manifest, entry: &RingEntry) -> Expected {
        Expected {
            boot: manifest.boot,
            shard: entry.shard,
            file_bytes: entry.file_bytes,
            holes_are_legitimate: manifest.holes_are_legitimate(&self.request.kernel_boot_id),
        }
    }

    async fn scan_ring(
        &mut self,
        manifest: &Manifest,
        entry: &RingEntry,
        start: Option<Start>,
    ) -> Result<OpenRing, RecoveryError> {
        let files = self.open_ring(entry).await?;
        let scan = replay::scan(&files, &self.expected(manifest, entry), start).await?;
        self.highest_sequence = self.highest_sequence.max(scan.highest_sequence);
        match scan.verdict {
            Verdict::Damaged { sequence, .. } if !self.accepts_all_loss() => {
                return Err(RecoveryError::Damaged { shard: entry.shard, sequence });
            }
            Verdict::Damaged { sequence, .. } => self.notes.push(format!(
                "journal block {sequence} of shard {} is damaged; the loss is accepted",
                entry.shard
            )),
            Verdict::Hole { sequence, lost_blocks, .. } => self.notes.push(format!(
                "the machine went down in process-crash mode: {lost_blocks} acknowledged journal \
                 blocks of shard {} from {sequence} on are lost",
                entry.shard
            )),
            Verdict::TornTail { .. } => {}
        }
        Ok(OpenRing { files, scan })
    }

    fn extent(ring: &OpenRing) -> Extent {
        match ring.scan.verdict {
            Verdict::Damaged { .. } => Extent::GoodAndLater,
            Verdict::TornTail { .. } | Verdict::Hole { .. } => Extent::Good,
        }
    }

    /// Whether the catalog has the topic of an entry, or knows that it is deleted.
    fn is_known(&self, entry: &Replayed) -> bool {
        let (catalog, topic) = (self.request.catalog, entry.tp().topic);
        catalog.topic_by_id(topic).is_some() || catalog.tombstone(topic).is_some()
    }

    /// The log starts that the journal knows: files below them may be gone already.
    async fn log_starts(
        &mut self,
        rings: &[OpenRing],
    ) -> Result<BTreeMap<TopicPartition, Offset>, RecoveryError> {
        let mut starts: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
        for ring in rings {
            let mut replay = Replay::new(&ring.files, &ring.scan, Self::extent(ring));
            while let Some(entry) = replay.next().await? {
                if !self.is_known(&entry) {
                    return Err(RecoveryError::UnknownTopic(entry.tp().topic));
                }
                if let Replayed::Control(ControlEntry::LogStartAdvanced { tp, offset }) = entry {
                    let start = starts.entry(tp).or_default();
                    *start = (*start).max(offset);
                }
            }
        }
        Ok(starts)
    }

    /// Judges and cuts the files of every partition of the catalog.
    async fn open_partitions(
        &mut self,
        mut rows: BTreeMap<TopicPartition, PartitionRow>,
        starts: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<(), RecoveryError> {
        let catalog = self.request.catalog;
        let found =
            directories::tidy(self.disk, self.request.data_dir, catalog, &mut self.notes).await;
        let Directories { mut partitions } =
            found.map_err(|error| disk_error(&self.path(Path::new("topics")), error))?;
        for topic in catalog.topics() {
            for index in 0..topic.partition_count() {
                let tp = TopicPartition { topic: topic.id, partition: PartitionIndex(index) };
                let files = partitions.remove(&tp);
                let row = rows.remove(&tp);
                if files.is_none() && row.is_none() {
                    continue;
                }
                let start = starts.get(&tp).copied().unwrap_or_default();
                self.open_partition(topic, tp, row, files, start).await?;
            }
        }
        Ok(())
    }

    async fn open_partition(
        &mut self,
        topic: &Topic,
        tp: TopicPartition,
        row: Option<PartitionRow>,
        files: Option<PartitionFiles>,
        journal_start: Offset,
    ) -> Result<(), RecoveryError> {
        let rules = self.rules(topic, tp);
        let known = row.is_some();
        let mut row = row.unwrap_or_else(|| crate::shard::empty_row(tp));
        row.log_start = row.log_start.max(journal_start);
        for (epoch, _) in &row.epochs {
            self.highest_epoch = self.highest_epoch.max(*epoch);
        }
        let untrusted = !known && self.image_damaged && files.is_some();
        let opened = PartitionRecovery::open(self.disk, rules, row, files, untrusted).await;
        let partition = opened.map_err(|error| disk_error(Path::new(&*topic.name), error))?;
        self.partitions.insert(tp, partition);
        Ok(())
    }

    fn rules(&self, topic: &Topic, tp: TopicPartition) -> Rules {
        let name = format!("{}-{}", topic.name, tp.partition);
        let accepts_loss = self.accepts_all_loss() || self.request.accept_loss.contains(&name);
        Rules {
            data_dir: self.request.data_dir.to_owned(),
            topic: topic.name.to_string(),
            name,
            accepts_loss,
            stopped_cleanly: self.stopped_cleanly,
            segments: topic.config.segment_rules(),
            now_ms: self.request.now_ms,
            producer_expiration_ms: self.request.producer_expiration_ms,
        }
    }

    async fn apply(&mut self, entry: Replayed) -> Result<(), RecoveryError> {
        let tp = entry.tp();
        let Some(topic) = self.request.catalog.topic_by_id(tp.topic) else { return Ok(()) };
        if matches!(entry, Replayed::Control(ControlEntry::PartitionDropped { .. })) {
            return Ok(());
        }
        if !self.partitions.contains_key(&tp) {
            self.open_partition(topic, tp, None, None, Offset(0)).await?;
        }
        let partition = self.partitions.get_mut(&tp).expect("invariant: opened above");
        if let Replayed::Batch { .. } = &entry {
            self.batches_replayed += 1;
        }
        partition
            .apply(self.disk, &entry)
            .await
            .map_err(|error| disk_error(Path::new(&*topic.name), error))?;
        if let Some((epoch, _)) = partition.epochs().entries().last() {
            self.highest_epoch = self.highest_epoch.max(*epoch);
        }
        Ok(())
    }

    /// Makes everything durable, writes new images and replaces the manifest.
    async fn commit(
        mut self,
        boot: BootNumber,
        previous: BootNumber,
    ) -> Result<Recovered, RecoveryError> {
        let mut shards: Vec<Vec<RecoveredPartition>> =
            (0..self.request.shards).map(|_| Vec::new()).collect();
        let mut done_with = Vec::new();
        for (tp, partition) in std::mem::take(&mut self.partitions) {
            let owner = self.request.catalog.owner(tp.topic, tp.partition, self.request.shards);
            let Some(owner) = owner else { continue };
            let outcome = partition
                .finish(self.disk)
                .await
                .map_err(|error| disk_error(Path::new("topics"), error))?;
            self.notes.extend(outcome.notes);
            done_with.extend(outcome.done_with);
            shards[usize::from(owner.0)].push(outcome.partition);
        }
        self.disk
            .sync_filesystem()
            .await
            .map_err(|error| disk_error(self.request.data_dir, error))?;
        self.write_images(boot, &shards).await?;
        self.replace_manifest(boot).await?;
        self.clean_up(boot, previous, done_with).await;
        Ok(Recovered {
            boot,
            first_sequence: JournalSequence(self.highest_sequence.0 + 1),
            partitions: shards,
            notes: self.notes,
            batches_replayed: self.batches_replayed,
        })
    }

    async fn write_images(
        &self,
        boot: BootNumber,
        shards: &[Vec<RecoveredPartition>],
    ) -> Result<(), RecoveryError> {
        let directory = self.path(&manifest::boot_directory(boot));
        let failed = |error| disk_error(&directory, error);
        self.disk.remove_tree(&directory).await.map_err(failed)?;
        self.disk.create_directory(&directory).await.map_err(failed)?;
        let journal = self.path(&manifest::journal_directory());
        self.disk.sync_directory(&journal).await.map_err(failed)?;
        // At the first start the name of the journal's directory is new as well.
        self.disk.sync_directory(self.request.data_dir).await.map_err(failed)?;
        for (shard, partitions) in (0..self.request.shards).map(ShardId).zip(shards) {
            let first = JournalSequence(self.highest_sequence.0 + 1);
            let start = Start {
                point: JournalPoint { position: 0, sequence: first },
                durable_through: self.highest_sequence,
            };
            let rows = partitions.iter().map(|partition| partition.row.clone()).collect();
            let image = ShardImage { boot, shard, start, clean: false, rows };
            let path = self.path(&manifest::image_path(boot, shard));
            self.disk.replace(&path, &image.encode()).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn replace_manifest(&self, boot: BootNumber) -> Result<(), RecoveryError> {
        let request = self.request;
        let rings = (0..request.shards)
            .map(|shard| {
                RingEntry::new(boot, ShardId(shard), request.ring_files, request.ring_file_bytes)
            })
            .collect();
        let manifest = Manifest {
            boot,
            durability: request.durability,
            kernel_boot_id: request.kernel_boot_id.clone(),
            highest_epoch: self.highest_epoch.max(boot.leader_epoch()),
            highest_sequence: self.highest_sequence,
            rings,
        };
        let path = self.path(&manifest::manifest_path());
        let replaced = self.disk.replace(&path, &manifest.encode()).await;
        replaced.map_err(|error| disk_error(&path, error))
    }

    /// Removes what nothing names any more; what is left is removed at the next start.
    async fn clean_up(&self, boot: BootNumber, previous: BootNumber, done_with: Vec<PathBuf>) {
        let mut unwanted: Vec<PathBuf> = done_with;
        if previous.0 > 0 && previous != boot {
            let old = self.path(&manifest::boot_directory(previous));
            if let Err(error) = self.disk.remove_tree(&old).await {
                tracing::warn!("{}: {error}", old.display());
            }
        }
        let rings = self.path(&manifest::rings_directory());
        let wanted: Vec<PathBuf> = (0..self.request.shards)
            .flat_map(|shard| (0..self.request.ring_files).map(move |file| (shard, file)))
            .map(|(shard, file)| self.path(&manifest::ring_file_path(ShardId(shard), file)))
            .collect();
        if let Ok(entries) = self.disk.list(&rings, false, &[]).await {
            let found = entries.into_iter().map(|entry| rings.join(entry.path));
            unwanted.extend(found.filter(|path| !wanted.contains(path)));
        }
        for path in unwanted {
            if let Err(error) = self.disk.remove(&path).await {
                tracing::warn!("{}: {error}", path.display());
            }
        }
    }
}

async fn read_manifest(
    disk: &Rc<dyn Disk>,
    request: &Request<'_>,
) -> Result<Option<Manifest>, RecoveryError> {
    let path = request.data_dir.join(manifest::manifest_path());
    match disk.read(&path).await {
        Ok(content) => Ok(Some(Manifest::decode(&content)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(disk_error(&path, error)),
    }
}

fn disk_error(path: &Path, error: io::Error) -> RecoveryError {
    RecoveryError::Disk { what: path.display().to_string(), error }
}
