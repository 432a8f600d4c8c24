//! The data directory of a stopped single-node Apache Kafka becomes a data directory of Ringlog.
//!
//! Owns the order: read what the KRaft metadata says; find every partition's directory; write a
//! catalog with the same topic ids and settings; copy every log, batch by batch, into segments
//! with new indexes; write an image as after a clean stop, and the manifest that names it. Must
//! never change the source, and never copy a batch whose checksum does not match.
//!
//! Offsets, timestamps, epochs, batches and their compression stay as they are, and so do log
//! starts, producers, open transactions and the internal topics, which the coordinators load at
//! the first start. Segments roll by the topic's own rules, so they may begin elsewhere.
//!
//! Invariant: the target is a new directory, useful only when the caller has given it its name.
//! Source: Kafka's `UnifiedLog`, `LogManager`, `CheckpointFile`; KIP-631.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::batch::BatchHeader;
use crate::batch::records::{Records, decompressed_records};
use crate::config::BrokerConfig;
use crate::ids::{
    BootNumber, JournalSequence, LeaderEpoch, Offset, PartitionIndex, ShardId, TopicPartition,
};
use crate::io::{Disk, OpenMode};
use crate::journal::JournalPoint;
use crate::journal::image::{Image as ShardImage, PartitionRow};
use crate::journal::manifest::{self, Durability, Manifest, RingEntry};
use crate::journal::replay::Start;
use crate::limits::INFLATED_ORDINARY_BYTES_MAX;
use crate::metadata::Image;
use crate::metadata::configs::{self, AlterResource, ConfigChange, SET};
use crate::metadata::image::Topic;
use crate::metadata::quotas::{self, AlterQuotas, QuotaOperation};
use crate::metadata::records::Record;
use crate::metadata::store::{CatalogStore, StoreError};
use crate::metadata::topics::{AdoptedTopic, plan_adoption};
use crate::recovery::partition::{PartitionRecovery, Rules};

use super::batches::{Batches, Piece};
use kraft::Metadata;

mod kraft;
mod source;

/// What an import needs to know.
pub struct Request<'a> {
    /// The log directories of the stopped broker, absolute.
    pub sources: &'a [PathBuf],
    /// The new data directory under its temporary name; it exists and is empty.
    pub target: &'a Path,
    /// Shards to spread the partitions over.
    pub shards: u16,
    /// Configuration of the broker that will serve the data.
    pub broker: Arc<BrokerConfig>,
    /// The kernel's boot id now.
    pub kernel_boot_id: String,
    /// Wall clock now.
    pub now_ms: i64,
}

/// What was imported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Topics.
    pub topics: usize,
    /// Partitions.
    pub partitions: usize,
    /// Batches.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What an operator should know, one sentence each.
    pub notes: Vec<String>,
}

/// Why there is no import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A disk refused.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The source is not what it has to be.
    #[error("{}: {reason}", path.display())]
    Source {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The new catalog cannot be written.
    #[error(transparent)]
    Catalog(#[from] StoreError),
}

impl ImportError {
    fn disk(path: &Path) -> impl FnOnce(io::Error) -> ImportError {
        |error| ImportError::Disk { path: path.to_owned(), error }
    }

    fn source(path: &Path, reason: impl ToString) -> ImportError {
        ImportError::Source { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Imports all topics of the source into the target.
///
/// # Errors
/// The first thing that could not be imported; the target is then of no use.
pub async fn import(disk: &Rc<dyn Disk>, request: &Request<'_>) -> Result<Report, ImportError> {
    let mut import = Import { disk, request, report: Report::default() };
    let source = source::Source::read(disk, request.sources).await?;
    import.report.notes.extend(source.notes.iter().cloned());
    let metadata = import.metadata(&source).await?;
    let catalog = import.catalog(&source, &metadata).await?;
    let mut rows = Vec::new();
    for topic in catalog.topics() {
        import.report.topics += 1;
        for index in 0..topic.partition_count() {
            rows.push(import.partition(&source, topic, PartitionIndex(index)).await?);
        }
    }
    import.commit(rows).await?;
    Ok(import.report)
}

struct Import<'a> {
    disk: &'a Rc<dyn Disk>,
    request: &'a Request<'a>,
    report: Report,
}

impl Import<'_> {
    /// What the newest snapshot of the metadata log and the batches after it say.
    async fn metadata(&self, source: &source::Source) -> Result<Metadata, ImportError> {
        let mut metadata = Metadata::default();
        let files = source.metadata_files()?;
        let snapshot = files.snapshot.map(|file| (file, Offset(0)));
        let log = files.log.into_iter().map(|file| (file, files.start));
        for (file, from) in snapshot.into_iter().chain(log) {
            let mut batches = self.open(file).await?;
            while let Some((header, bytes)) = next_batch(&mut batches, file).await? {
                if header.is_control() || header.last_offset() < from {
                    continue;
                }
                let limit = INFLATED_ORDINARY_BYTES_MAX;
                let records = decompressed_records(&header, &bytes, limit)
                    .map_err(|fault| ImportError::source(&file.path, fault))?;
                apply_records(&mut metadata, &header, &records)
                    .map_err(|reason| ImportError::source(&file.path, reason))?;
            }
        }
        Ok(metadata)
    }

    /// Writes the catalog: topics with their ids, then the settings that this broker knows.
    async fn catalog(
        &mut self,
        source: &source::Source,
        metadata: &Metadata,
    ) -> Result<Image, ImportError> {
        let request = self.request;
        let directory = request.target.join(crate::shard::build::CATALOG);
        let broker = Arc::clone(&request.broker);
        let opened =
            CatalogStore::open(Rc::clone(self.disk), &directory, broker, &source.cluster_id);
        let (mut store, image) = opened.await?;
        let mut topics = Vec::new();
        for (id, topic) in &metadata.topics {
            let count = topic.partitions.len();
            if !topic.partitions.iter().copied().eq(0..i32::try_from(count).unwrap_or(i32::MAX)) {
                let reason = format!("the metadata lacks a partition of topic {}", topic.name);
                return Err(ImportError::source(&source.metadata, reason));
            }
            topics.push(AdoptedTopic { id: *id, name: topic.name.clone(), partitions: count });
        }
        let records = plan_adoption(&image, request.shards, &topics)
            .map_err(|reason| ImportError::source(&source.metadata, reason))?;
        let image = store.append(&records).await?;
        let mut records = self.settings(&image, metadata);
        records.push(Record::ProducerIdsReserved { next: metadata.next_producer_id });
        let image = store.append(&records).await?;
        store.compact().await?;
        Ok(image)
    }

    /// The settings that this broker can keep, as changes of the catalog. The others are noted.
    fn settings(&mut self, image: &Image, metadata: &Metadata) -> Vec<Record> {
        let mut records = Vec::new();
        for ((kind, name), settings) in &metadata.configs {
            for (key, value) in settings {
                let change =
                    ConfigChange { key: key.clone(), operation: SET, value: Some(value.clone()) };
                let resource = AlterResource {
                    resource_type: *kind,
                    name: name.clone(),
                    replace: false,
                    changes: vec![change],
                };
                let planned = configs::plan(image, 0, &[resource], &mut records).pop();
                if let Some(Err(refused)) = planned {
                    let what = RESOURCES.iter().find(|(number, _)| number == kind);
                    let what = what.map_or("resource", |(_, what)| what);
                    self.report.notes.push(format!(
                        "{what} {name:?}: {key}={value} is left out: {}",
                        refused.message.unwrap_or_default()
                    ));
                }
            }
        }
        for (entity, limits) in &metadata.quotas {
            let operations = limits
                .iter()
                .map(|(key, value)| QuotaOperation { key: key.clone(), value: Some(*value) })
                .collect();
            let alter = AlterQuotas { entity: entity.clone(), operations };
            if let Some(Err(refused)) = quotas::plan(image, &[alter], &mut records).pop() {
                self.report.notes.push(format!(
                    "the quotas of {entity:?} are left out: {}",
                    refused.message.unwrap_or_default()
                ));
            }
        }
        for (user, mechanisms) in &metadata.credentials {
            records.extend(mechanisms.iter().map(|(mechanism, credential)| {
                let (user, credential) = (user.clone(), Some(credential.clone()));
                Record::ScramCredentialSet { user, mechanism: *mechanism, credential }
            }));
        }
        records
    }

    /// Copies the log of one partition; its row in the image.
    async fn partition(
        &mut self,
        source: &source::Source,
        topic: &Topic,
        index: PartitionIndex,
    ) -> Result<PartitionRow, ImportError> {
        let tp = TopicPartition { topic: topic.id, partition: index };
        let found = source.partition(tp, &topic.name)?;
        let first = found.segments.first().map_or(Offset(0), |(base, _)| *base);
        let mut row = crate::shard::empty_row(tp);
        row.log_start = found.log_start.max(first);
        row.synced_end = first;
        row.epochs.clone_from(&found.epochs);
        let log_start = row.log_start;
        let failed = ImportError::disk(self.request.target);
        let opened = PartitionRecovery::open(self.disk, self.rules(topic, index), row, None, false);
        let mut partition = opened.await.map_err(failed)?;
        let last = found.segments.last().map(|(base, _)| *base);
        for (base, file) in &found.segments {
            partition.end_at(*base);
            let mut batches = self.open(file).await?;
            loop {
                let next = match next_batch(&mut batches, file).await {
                    Err(ImportError::Source { reason, .. })
                        if Some(*base) == last && !found.stopped_cleanly =>
                    {
                        let end = partition.next();
                        self.report.notes.push(format!(
                            "{}: the log ends at {end}, behind it is a torn write: {reason}",
                            found.name
                        ));
                        None
                    }
                    next => next?,
                };
                let Some((header, bytes)) = next else { break };
                if header.base_offset < partition.next() {
                    let reason = format!("offset {} comes twice", header.base_offset);
                    return Err(ImportError::source(&file.path, reason));
                }
                self.report.batches += 1;
                self.report.bytes += bytes.len() as u64;
                let adopted = partition.adopt(self.disk, &header, &bytes).await;
                adopted.map_err(ImportError::disk(self.request.target))?;
            }
        }
        partition.end_at(log_start);
        let finished = partition.finish(self.disk).await;
        let outcome = finished.map_err(ImportError::disk(self.request.target))?;
        self.report.partitions += 1;
        self.report.notes.extend(outcome.notes);
        Ok(outcome.partition.row)
    }

    fn rules(&self, topic: &Topic, index: PartitionIndex) -> Rules {
        Rules {
            data_dir: self.request.target.to_owned(),
            topic: topic.name.to_string(),
            name: format!("{}-{index}", topic.name),
            accepts_loss: false,
            stopped_cleanly: true,
            segments: topic.config.segment_rules(),
            now_ms: self.request.now_ms,
            producer_expiration_ms: i64::from(self.request.broker.producer_id_expiration_ms),
        }
    }

    /// Makes everything durable, then the image, the manifest and the format.
    async fn commit(&self, rows: Vec<PartitionRow>) -> Result<(), ImportError> {
        let target = self.request.target;
        let failed = || ImportError::disk(target);
        self.disk.sync_filesystem().await.map_err(failed())?;
        let epochs = rows.iter().flat_map(|row| &row.epochs).map(|(epoch, _)| *epoch);
        let highest_epoch = epochs.max().unwrap_or(LeaderEpoch(0));
        let boot = BootNumber(1);
        let first = JournalSequence(1);
        let image = ShardImage {
            boot,
            shard: ShardId(0),
            start: Start {
                point: JournalPoint { position: 0, sequence: first },
                durable_through: JournalSequence(0),
            },
            clean: true,
            rows,
        };
        let directory = target.join(manifest::boot_directory(boot));
        self.disk.create_directory(&directory).await.map_err(failed())?;
        let path = target.join(manifest::image_path(boot, ShardId(0)));
        self.disk.replace(&path, &image.encode()).await.map_err(failed())?;
        let manifest = Manifest {
            boot,
            durability: Durability::PowerLoss,
            kernel_boot_id: self.request.kernel_boot_id.clone(),
            highest_epoch,
            highest_sequence: first,
            rings: vec![RingEntry::new(boot, ShardId(0), 0, 0)],
        };
        let path = target.join(manifest::manifest_path());
        self.disk.replace(&path, &manifest.encode()).await.map_err(failed())?;
        let path = target.join(manifest::format_path());
        self.disk.replace(&path, &manifest::encode_data_format()).await.map_err(failed())?;
        self.disk.sync_filesystem().await.map_err(failed())
    }

    async fn open(&self, file: &source::LogFile) -> Result<Batches, ImportError> {
        let opened = self.disk.open(&file.path, OpenMode::default()).await;
        Ok(Batches::new(opened.map_err(ImportError::disk(&file.path))?, file.bytes))
    }
}

/// The next batch, its checksum checked; zeroes end a file that was allocated ahead.
async fn next_batch(
    batches: &mut Batches,
    file: &source::LogFile,
) -> Result<Option<(BatchHeader, bytes::Bytes)>, ImportError> {
    let piece = batches.next().await.map_err(ImportError::disk(&file.path))?;
    match piece {
        None | Some(Piece::Blank { .. }) => Ok(None),
        Some(Piece::Unreadable { position, reason }) => {
            Err(ImportError::source(&file.path, format!("position {position}: {reason}")))
        }
        Some(Piece::Batch { position, bytes }) => match BatchHeader::read_verified(&bytes) {
            Ok(header) => Ok(Some((header, bytes))),
            Err(fault) => {
                Err(ImportError::source(&file.path, format!("position {position}: {fault}")))
            }
        },
    }
}

fn apply_records(
    metadata: &mut Metadata,
    header: &BatchHeader,
    records: &[u8],
) -> Result<(), String> {
    for record in Records::new(records, header.record_count) {
        let record = record.map_err(|fault| fault.to_string())?;
        let Some(value) = record.value else { continue };
        let offset = header.base_offset.0 + i64::from(record.offset_delta);
        metadata.apply(value).map_err(|fault| format!("metadata record {offset}: {fault}"))?;
    }
    Ok(())
}

/// Kafka's numbers of what has settings.
const RESOURCES: [(i8, &str); 4] =
    [(2, "topic"), (4, "broker"), (16, "client metrics"), (32, "group")];
