//! A broker's shards on any implementation of the seams, started and stopped as the process does.
//!
//! Owns the steps between `build::prepare` and running shards. Has no steps of its own where the
//! broker process has them in the library.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ringlog::config::BrokerConfig;
use ringlog::ids::{LeaderEpoch, ShardId};
use ringlog::io::mailbox::{MeshLimits, mesh};
use ringlog::io::{Disk, Runtime};
use ringlog::limits::PROCESS_MEMORY_BYTES;
use ringlog::shard::build::{self, Inputs, Started};
use ringlog::shard::event::Slot;
use ringlog::shard::message::Message;
use ringlog::shard::space::DiskFull;
use ringlog::shard::{Context, Shard};

/// Where the simulated machine has its data.
pub const DATA_DIR: &str = "/data";

/// All shards of one boot.
pub struct Cluster {
    pub shards: Vec<Rc<Shard>>,
    pub batches_replayed: u64,
    pub notes: Vec<String>,
}

impl Cluster {
    /// Leader epoch of this boot.
    pub fn epoch(&self) -> LeaderEpoch {
        self.shards[0].context.leader_epoch()
    }

    /// Stops all shards at the same time, as their threads do.
    pub async fn stop(&self) -> io::Result<()> {
        for shard in &self.shards {
            shard.begin_stop();
        }
        let closed: Vec<Rc<Slot<io::Result<()>>>> = self
            .shards
            .iter()
            .map(|shard| {
                let slot = Slot::new();
                let (shard, filled) = (Rc::clone(shard), Rc::clone(&slot));
                let runtime = Rc::clone(&shard.runtime);
                runtime.spawn(Box::pin(async move {
                    let outcome = shard.close().await;
                    filled.fill(outcome);
                }));
                slot
            })
            .collect();
        for slot in closed {
            slot.take().await?;
        }
        Ok(())
    }
}

/// Starts a broker: recovery, one shard per runtime, the reserve.
pub async fn boot(
    disk: Rc<dyn Disk>,
    runtimes: Vec<Rc<dyn Runtime>>,
    config: Arc<BrokerConfig>,
    limits: MeshLimits,
    kernel_boot_id: String,
) -> Result<Cluster, String> {
    let data_dir = config.data_dir.clone();
    let Started { image, recovered } =
        build::prepare(&disk, &*runtimes[0], &config, &data_dir, &kernel_boot_id).await?;
    let context = Arc::new(Context {
        data_dir,
        shards: config.shards,
        boot: recovered.boot,
        nodes: Vec::new(),
        config: Arc::clone(&config),
    });
    let image = Arc::new(image);
    let full = DiskFull::default();
    let mailboxes = mesh::<Message>(config.shards, limits);
    let mut partitions = recovered.partitions.into_iter();
    let mut shards = Vec::new();
    for (index, (mailbox, runtime)) in mailboxes.into_iter().zip(runtimes).enumerate() {
        let inputs = Inputs {
            id: ShardId(index as u16),
            context: Arc::clone(&context),
            runtime,
            disk: Rc::clone(&disk),
            mailbox,
            catalog: Arc::clone(&image),
            recovered: partitions.next().unwrap_or_default(),
            first_sequence: recovered.first_sequence,
            full: full.clone(),
        };
        shards.push(build::build(inputs).await?);
    }
    for shard in &shards {
        shard.start();
    }
    shards[0].space.restore_reserve(&shards[0]).await;
    Ok(Cluster { shards, batches_replayed: recovered.batches_replayed, notes: recovered.notes })
}

/// A small configuration: rings that come round, and little of everything.
pub fn config(data_dir: &str, shards: u16, ring: &Ring, extra: &[(&str, &str)]) -> BrokerConfig {
    let shards_text = shards.to_string();
    let files = ring.files.to_string();
    let ring_bytes = (u64::from(ring.files) * ring.file_bytes).to_string();
    let memory = PROCESS_MEMORY_BYTES + u64::from(shards) * MEMORY_PER_SHARD_BYTES;
    let memory = memory.to_string();
    let message_bytes = (u64::from(ring.files) * ring.file_bytes / 4).to_string();
    let mut overrides = vec![
        ("data_dir", data_dir),
        ("shards", shards_text.as_str()),
        ("memory", memory.as_str()),
        ("journal.ring.files", files.as_str()),
        ("journal.ring.bytes", ring_bytes.as_str()),
        ("message.max.bytes", message_bytes.as_str()),
        ("log.initial.task.delay.ms", "15"),
        ("log.retention.check.interval.ms", "40"),
    ];
    overrides.extend_from_slice(extra);
    BrokerConfig::with_overrides(&overrides).expect("a sound configuration")
}

/// Shape of the journal rings.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub files: u32,
    pub file_bytes: u64,
}

const MEMORY_PER_SHARD_BYTES: u64 = 16 << 20;
