//! From a data directory to a shard that can start, over any implementation of the seams.
//!
//! Owns the steps of a start that touch the data directory: the format file, the catalog, recovery,
//! the journal's files. The broker process runs them on the real machine, the simulation on its
//! own; neither has steps of its own.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::links::Links;
use super::message::Message;
use super::space::{DiskFull, SpaceWatch};
use super::{Context, Parts, RecoveredPartition, Shard, rings};
use crate::config::broker::{BrokerConfig, Durability};
use crate::ids::{JournalSequence, ShardId};
use crate::io::mailbox::Mailbox;
use crate::io::{Disk, Runtime};
use crate::journal::ring::GeometryFault;
use crate::journal::writer::Journal;
use crate::journal::{Geometry, Identity, Ring, manifest};
use crate::limits::{BLOCK_ALIGN, JOURNAL_BLOCK_BYTES_MAX};
use crate::metadata::Image;
use crate::metadata::image::TombstonePhase;
use crate::metadata::records::Record;
use crate::metadata::store::CatalogStore;
use crate::metadata::topics::new_cluster_id;
use crate::recovery::{self, Recovered};
use crate::wire::versions::FEATURES;

/// Directory of the catalog below the data directory.
pub const CATALOG: &str = "catalog";

/// File that is given up when the disk is full.
pub const RESERVE: &str = "reserve";

/// What exists before the shards.
pub struct Started {
    /// The catalog.
    pub image: Image,
    /// What recovery found.
    pub recovered: Recovered,
}

/// Checks the format, opens the catalog, recovers, and finishes deletions.
///
/// # Errors
/// One sentence that says why the broker must not start.
pub async fn prepare(
    disk: &Rc<dyn Disk>,
    runtime: &dyn Runtime,
    config: &Arc<BrokerConfig>,
    data_dir: &Path,
    kernel_boot_id: &str,
) -> Result<Started, String> {
    // What the process before wrote last may be there to read and yet not be durable. A start acts
    // on what it reads, directories are removed for good: no power loss may undo the reason later.
    disk.sync_filesystem().await.map_err(|error| format!("{}: {error}", data_dir.display()))?;
    check_format(disk, data_dir).await?;
    let mut random = || runtime.random();
    let cluster_id = new_cluster_id(&mut random);
    let directory = data_dir.join(CATALOG);
    let opened =
        CatalogStore::open(Rc::clone(disk), &directory, Arc::clone(config), &cluster_id).await;
    let (mut store, image) = opened.map_err(|error| error.to_string())?;
    image.check_fits()?;
    let recovered = recovery::recover(
        disk,
        &recovery::Request {
            data_dir,
            catalog: &image,
            shards: config.shards,
            ring_files: config.journal_ring_files,
            ring_file_bytes: config.journal_file_bytes(),
            durability: match config.durability {
                Durability::PowerLoss => manifest::Durability::PowerLoss,
                Durability::ProcessCrash => manifest::Durability::ProcessCrash,
            },
            kernel_boot_id: kernel_boot_id.to_owned(),
            accept_loss: &config.accept_loss,
            now_ms: runtime.wall_ms(),
            producer_expiration_ms: i64::from(config.producer_id_expiration_ms),
            // The shards' memory is not in use yet; some is left for what writing takes.
            memory_bytes: config.memory_bytes / 2,
        },
    )
    .await
    .map_err(|error| error.to_string())?;
    // Recovery has removed what deleted topics left, and its images name nothing of them.
    let mut records = finished_deletions(&image);
    records.extend(new_feature_levels(&image));
    let image = store.append(&records).await.map_err(|error| error.to_string())?;
    Ok(Started { image, recovered })
}

/// What one shard is built from.
pub struct Inputs {
    /// Which shard.
    pub id: ShardId,
    /// What all shards know.
    pub context: Arc<Context>,
    /// Time, tasks, randomness of its thread.
    pub runtime: Rc<dyn Runtime>,
    /// The file system, as its thread sees it.
    pub disk: Rc<dyn Disk>,
    /// Its end of the mesh.
    pub mailbox: Mailbox<Message>,
    /// The catalog.
    pub catalog: Arc<Image>,
    /// Its partitions with data.
    pub recovered: Vec<RecoveredPartition>,
    /// First sequence of its journal.
    pub first_sequence: JournalSequence,
    /// The broker-wide flag of a full disk.
    pub full: DiskFull,
}

/// Prepares the journal and builds the shard; it does nothing until it is started.
///
/// # Errors
/// One sentence.
pub async fn build(inputs: Inputs) -> Result<Rc<Shard>, String> {
    let Inputs { id, context, runtime, disk, .. } = inputs;
    let config = &context.config;
    let geometry = geometry(config.journal_ring_files, config.journal_file_bytes())
        .map_err(|fault| fault.to_string())?;
    let identity = Identity::generate(context.boot, id, || runtime.random());
    let durable = config.durability == Durability::PowerLoss;
    let files = rings::prepare(&disk, &context.data_dir, &identity, &geometry, durable)
        .await
        .map_err(|error| format!("its journal cannot be prepared: {error}"))?;
    let journal = Journal::new(
        Rc::clone(&runtime),
        identity,
        files,
        Ring::new(geometry, inputs.first_sequence),
        config.memory_split().tail_bytes,
    );
    let reserve_bytes = config.journal_ring_bytes * u64::from(config.shards);
    let reserve_path = context.data_dir.join(RESERVE);
    let shard = Shard::new(Parts {
        id,
        context: Arc::clone(&context),
        runtime,
        disk: Rc::clone(&disk),
        journal,
        links: Links::new(inputs.mailbox),
        space: SpaceWatch::new(inputs.full, reserve_path, reserve_bytes),
        catalog: inputs.catalog,
        recovered: inputs.recovered,
    });
    if id == ShardId(0) {
        let broker = Arc::clone(&context.config);
        let opened = CatalogStore::open(disk, &context.data_dir.join(CATALOG), broker, "").await;
        let (store, _) = opened.map_err(|error| error.to_string())?;
        shard.catalog_writer.open(store);
    }
    Ok(shard)
}

/// The shape of a ring: blocks are at most a quarter of a file, so that every size that the
/// configuration allows makes a ring.
fn geometry(files: u32, file_bytes: u64) -> Result<Geometry, GeometryFault> {
    let unit = BLOCK_ALIGN as u64;
    let block_bytes = (file_bytes / 4 / unit * unit).min(JOURNAL_BLOCK_BYTES_MAX as u64);
    Geometry::new(files, file_bytes, block_bytes as u32)
}

fn finished_deletions(image: &Image) -> Vec<Record> {
    let mut records = Vec::new();
    for tombstone in image.tombstones() {
        if tombstone.phase == TombstonePhase::Deleting {
            records.push(Record::TopicNameFreed { id: tombstone.id });
        }
        records.push(Record::TombstoneGone { id: tombstone.id });
    }
    records
}

/// Levels of features that this version has in force and the catalog does not know yet. Clients
/// look at features again when their epoch has risen, so it has to rise with the levels.
fn new_feature_levels(image: &Image) -> Vec<Record> {
    let known = |name: &str| image.features().get(name).copied().unwrap_or(0);
    FEATURES
        .iter()
        .filter(|feature| feature.finalized != known(feature.name))
        .map(|feature| Record::FeatureLevelSet {
            name: feature.name.to_owned(),
            level: feature.finalized,
        })
        .collect()
}

/// A new data directory gets the format's version; one of a newer version is refused.
async fn check_format(disk: &Rc<dyn Disk>, data_dir: &Path) -> Result<(), String> {
    let path = data_dir.join(manifest::format_path());
    match disk.read(&path).await {
        Ok(content) => {
            manifest::check_data_format(&content).map(|_| ()).map_err(|fault| fault.to_string())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk
            .replace(&path, &manifest::encode_data_format())
            .await
            .map_err(|error| format!("{}: {error}", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_that_the_configuration_allows_can_be_made() {
        for files in [2, 3, 4, 64] {
            for steps in (1..=64).chain([1_024, 16_384]) {
                let made = geometry(files, steps * 64 * 1024);
                assert!(made.is_ok(), "{files} files of {steps} steps: {made:?}");
            }
        }
        let usual = geometry(4, 64 << 20).expect("the default ring");
        assert_eq!(usual.block_bytes_max() as usize, JOURNAL_BLOCK_BYTES_MAX);
    }
}
