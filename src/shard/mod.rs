//! One shard: a pinned core that owns its partitions, its journal and its connections outright.
//!
//! Owns everything reachable from [`Shard`]; nothing of it is shared with another thread except
//! the immutable [`Context`], catalog images, and messages. Must never hold a `RefCell` borrow
//! over an await, and never do a blocking call.

pub mod append;
pub mod asked;
pub mod build;
pub mod by_owner;
pub mod catalog;
pub mod checkpoint;
pub mod cleaner;
pub mod connection;
pub mod connections;
mod coordinator_log;
pub mod endpoint;
pub mod event;
pub mod fetch_session;
pub mod files;
pub mod group_offsets;
pub mod inflation;
pub mod kafka_files;
pub mod links;
pub mod log_start;
pub mod markers;
pub mod memory;
pub mod message;
pub mod offsets;
pub mod partition;
pub mod producer_ids;
pub mod quota;
pub mod read;
pub mod read_ahead;
pub mod read_cache;
pub mod retention;
pub mod rings;
pub mod scrape;
pub mod segment_read;
pub mod segment_removal;
pub mod segment_use;
pub mod space;
pub mod transactions;
pub mod unlink;
pub mod watch;
pub mod write_behind;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::config::broker::{Advertise, BrokerConfig, OnStorageFailure};
use crate::crash;
use crate::error_code::ErrorCode;
use crate::ids::{
    BootNumber, JournalSequence, LeaderEpoch, Offset, ShardId, TopicId, TopicPartition,
};
use crate::io::{Disk, Monotonic, Runtime};
use crate::journal::image::PartitionRow;
use crate::journal::writer::{Journal, JournalFailed};
use crate::limits::FETCH_SESSION_PARTITION_BYTES;
use crate::log::Log;
use crate::log::epochs::EpochHistory;
use crate::log::producers::Producers;
use crate::log::segments::{SealedSegment, SegmentRules, SegmentSet};
use crate::metadata::Image;
use crate::metadata::image::Topic;
use crate::metrics::stages::Stage;
use crate::metrics::{Limit, ShardMetrics};

use catalog::CatalogWriter;
use checkpoint::Checkpoints;
use cleaner::Cleaner;
use connections::Connections;
use event::Event;
use fetch_session::SessionCache;
use files::OpenFiles;
use group_offsets::GroupOffsets;
use links::Links;
use memory::Budget;
use partition::{Availability, Partition};
use producer_ids::ProducerIds;
use read_ahead::Readers;
use read_cache::ReadCache;
use segment_removal::Removals;
use space::SpaceWatch;
use transactions::Transactions;
use write_behind::WriteBehind;

/// What all shards know and nobody changes.
#[derive(Clone, Debug)]
pub struct Context {
    /// The data directory, absolute.
    pub data_dir: PathBuf,
    /// The broker's settings.
    pub config: Arc<BrokerConfig>,
    /// Number of shards.
    pub shards: u16,
    /// This start of the data directory.
    pub boot: BootNumber,
    /// The brokers that clients see: one per shard, or node 0 only.
    pub nodes: Vec<Node>,
}

/// A broker as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Node id.
    pub id: i32,
    /// Advertised host.
    pub host: String,
    /// Advertised port.
    pub port: u16,
}

impl Context {
    /// Leader epoch of every partition in this boot.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.boot.leader_epoch()
    }

    /// Whether clients see one broker.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.config.advertise == Advertise::Single
    }

    /// Node that clients find a shard's partitions on.
    #[must_use]
    pub fn node_of(&self, shard: ShardId) -> i32 {
        if self.is_single() { 0 } else { i32::from(shard.0) }
    }
}

/// A partition as recovery leaves it.
#[derive(Clone, Debug)]
pub struct RecoveredPartition {
    /// Its row in the image written by recovery.
    pub row: PartitionRow,
    /// Its segments: base offset and length.
    pub segments: Vec<(Offset, u64)>,
    /// It has a directory, with segments in it or not.
    pub has_directory: bool,
    /// A clean stop has written the files that only Kafka reads.
    pub has_kafka_files: bool,
}

/// The row of a partition that has nothing yet.
#[must_use]
pub fn empty_row(id: TopicPartition) -> PartitionRow {
    PartitionRow {
        tp: id,
        log_start: Offset(0),
        synced_end: Offset(0),
        segment_base: Offset(0),
        segment_bytes: 0,
        index_bytes: 0,
        time_index_bytes: 0,
        transaction_index_bytes: 0,
        epochs: Vec::new(),
        producers: Vec::new(),
        offline: None,
    }
}

/// One shard.
pub struct Shard {
    /// Which one.
    pub id: ShardId,
    /// What all shards know.
    pub context: Arc<Context>,
    /// Time, tasks, randomness.
    pub runtime: Rc<dyn Runtime>,
    /// The file system.
    pub disk: Rc<dyn Disk>,
    /// The journal.
    pub journal: Rc<Journal>,
    /// Tails on their way to segments.
    pub write_behind: WriteBehind,
    /// Requests for checkpoints.
    pub checkpoints: Checkpoints,
    /// Compaction.
    pub cleaner: Cleaner,
    /// Segments whose files are to go.
    pub removals: Removals,
    /// The disk's space.
    pub space: SpaceWatch,
    /// Open segment files.
    pub files: RefCell<OpenFiles>,
    /// What was read from segments.
    pub cache: RefCell<ReadCache>,
    /// Who reads them in order.
    pub readers: RefCell<Readers>,
    /// Incremental fetch sessions.
    pub sessions: RefCell<SessionCache>,
    /// Messages to and from other shards.
    pub links: Links,
    /// The open catalog, on shard 0.
    pub catalog_writer: CatalogWriter,
    /// Producer ids to hand out.
    pub producer_ids: ProducerIds,
    /// Groups whose partition of `__consumer_offsets` is here.
    pub group_offsets: GroupOffsets,
    /// The coordinator of transactional ids.
    pub transactions: Transactions,
    /// What the shard has done, in numbers.
    pub metrics: Rc<ShardMetrics>,
    /// Told when the catalog has changed.
    pub catalog_changed: Event,
    /// Told when the shard begins to stop.
    pub stop: Event,
    /// Memory of requests and responses.
    pub connection_memory: Rc<Budget>,
    /// Whose turn it is to inflate.
    pub lanes: inflation::Lanes,
    /// Connections being served.
    pub connections: Connections,
    catalog: RefCell<Arc<Image>>,
    partitions: RefCell<HashMap<TopicPartition, Rc<Partition>, foldhash::fast::RandomState>>,
    /// The same in order, made when somebody asks after it has changed.
    ordered: RefCell<Option<Rc<[Rc<Partition>]>>>,
    recovered: RefCell<HashMap<TopicPartition, RecoveredPartition, foldhash::fast::RandomState>>,
    stopping: Cell<bool>,
    failed: Cell<bool>,
}

/// What a shard is made of.
pub struct Parts {
    /// Which shard.
    pub id: ShardId,
    /// What all shards know.
    pub context: Arc<Context>,
    /// Time, tasks, randomness.
    pub runtime: Rc<dyn Runtime>,
    /// The file system.
    pub disk: Rc<dyn Disk>,
    /// The journal, not started.
    pub journal: Rc<Journal>,
    /// Messages to and from other shards.
    pub links: Links,
    /// The disk's space.
    pub space: SpaceWatch,
    /// The catalog at the start.
    pub catalog: Arc<Image>,
    /// This shard's partitions with data.
    pub recovered: Vec<RecoveredPartition>,
}

impl Shard {
    /// A shard that has its partitions and does nothing yet.
    #[must_use]
    pub fn new(parts: Parts) -> Rc<Shard> {
        let config = Arc::clone(&parts.context.config);
        let split = config.memory_split();
        let slots = config.max_incremental_fetch_session_cache_slots;
        let metrics = ShardMetrics::new();
        let recovered =
            parts.recovered.into_iter().map(|partition| (partition.row.tp, partition)).collect();
        let shard = Rc::new(Shard {
            id: parts.id,
            context: parts.context,
            runtime: parts.runtime,
            disk: parts.disk,
            journal: parts.journal,
            write_behind: WriteBehind::default(),
            checkpoints: Checkpoints::default(),
            cleaner: Cleaner::default(),
            removals: Removals::default(),
            space: parts.space,
            files: RefCell::default(),
            cache: RefCell::new(ReadCache::new(split.cache_bytes)),
            readers: RefCell::new(Readers::new(split.cache_bytes)),
            sessions: RefCell::new(SessionCache::new(
                usize::try_from(slots).unwrap_or(0),
                split.connection_bytes / 4 / FETCH_SESSION_PARTITION_BYTES,
            )),
            links: parts.links,
            catalog_writer: CatalogWriter::default(),
            producer_ids: ProducerIds::default(),
            group_offsets: GroupOffsets::default(),
            transactions: Transactions::new(&config),
            metrics,
            catalog_changed: Event::default(),
            stop: Event::default(),
            connection_memory: Budget::new(split.connection_bytes),
            lanes: inflation::Lanes::new(split.inflation_bytes),
            connections: Connections::default(),
            catalog: RefCell::new(Arc::clone(&parts.catalog)),
            partitions: RefCell::default(),
            ordered: RefCell::default(),
            recovered: RefCell::new(recovered),
            stopping: Cell::new(false),
            failed: Cell::new(false),
        });
        shard.take_over(parts.catalog);
        shard
    }

    /// Starts the shard's own tasks; connections come on top.
    pub fn start(self: &Rc<Self>) {
        self.journal.start();
        write_behind::start(self);
        checkpoint::start(self);
        links::start(self);
        transactions::start(self);
        connections::start(self);
        group_offsets::start(self);
        cleaner::start(self);
        retention::start(self);
        segment_removal::start(self);
        if self.id == ShardId(0) {
            space::start(self);
        }
    }

    /// The catalog as this shard knows it.
    #[must_use]
    pub fn catalog(&self) -> Arc<Image> {
        Arc::clone(&self.catalog.borrow())
    }

    /// Takes over a catalog: makes partitions that are new, refreshes the settings of the others.
    pub fn take_over(&self, image: Arc<Image>) {
        let mut partitions = self.partitions.borrow_mut();
        let mut recovered = self.recovered.borrow_mut();
        let expiration_ms = i64::from(image.broker().producer_id_expiration_ms);
        let before = self.catalog();
        let is_first = partitions.is_empty();
        let is_known = |topic: &Arc<Topic>| {
            let known = before.topic_by_id(topic.id);
            known.is_some_and(|known| Arc::ptr_eq(known, topic))
                && i64::from(before.broker().producer_id_expiration_ms) == expiration_ms
        };
        for topic in image.topics() {
            if !is_first && is_known(topic) {
                continue;
            }
            for (index, _) in topic.preferred.iter().enumerate() {
                let index = crate::ids::PartitionIndex(index as i32);
                if topic.owner(index, self.context.shards) != Some(self.id) {
                    continue;
                }
                let id = TopicPartition { topic: topic.id, partition: index };
                match partitions.get(&id) {
                    Some(partition) => {
                        if !Arc::ptr_eq(&partition.topic.borrow(), topic) {
                            partition.topic.replace(Arc::clone(topic));
                        }
                        partition.log.borrow_mut().producers_mut().expire_after(expiration_ms);
                    }
                    None => {
                        let state = recovered.remove(&id);
                        let opened = self.open_partition(id, topic, state, expiration_ms);
                        partitions.insert(id, opened);
                        self.ordered.replace(None);
                    }
                }
            }
        }
        drop(partitions);
        self.metrics.topics.retain(|id| image.topic_by_id(id).is_some());
        self.catalog.replace(image);
        self.catalog_changed.notify();
    }

    fn open_partition(
        &self,
        id: TopicPartition,
        topic: &Arc<Topic>,
        recovered: Option<RecoveredPartition>,
        expiration_ms: i64,
    ) -> Rc<Partition> {
        let recovered = recovered.unwrap_or_else(|| RecoveredPartition {
            row: empty_row(id),
            segments: Vec::new(),
            has_directory: false,
            has_kafka_files: false,
        });
        let row = recovered.row;
        let kafka_files_end = recovered.has_kafka_files.then_some(row.synced_end);
        let log = Log::recovered(
            row.log_start,
            row.synced_end,
            EpochHistory::from_entries(row.epochs.iter().copied()),
            Producers::from_rows(&row.producers, expiration_ms),
        );
        // Segments of earlier boots are never written again: the first batch starts a new one.
        let mut segments = SegmentSet::default();
        for (base, bytes) in recovered.segments {
            segments.sealed.insert(base, SealedSegment::unread(bytes));
        }
        let metrics = self.metrics.topic(topic.id, &topic.name);
        let partition = Partition::new(id, Arc::clone(topic), log, segments, row, metrics);
        partition.directory_made.set(recovered.has_directory);
        partition.kafka_files_end.set(kafka_files_end);
        partition
    }

    /// The partition, if this shard has it.
    #[must_use]
    pub fn partition(&self, id: TopicPartition) -> Option<Rc<Partition>> {
        self.partitions.borrow().get(&id).cloned()
    }

    /// All partitions of this shard, ordered by id: what follows must not depend on hashing.
    #[must_use]
    pub fn partitions(&self) -> Vec<Rc<Partition>> {
        self.all_partitions().to_vec()
    }

    /// The same without a copy: for those that look at all of them again and again.
    #[must_use]
    pub fn all_partitions(&self) -> Rc<[Rc<Partition>]> {
        let mut ordered = self.ordered.borrow_mut();
        let made = ordered.get_or_insert_with(|| {
            let mut partitions: Vec<_> = self.partitions.borrow().values().cloned().collect();
            partitions.sort_unstable_by_key(|partition| partition.id);
            partitions.into()
        });
        Rc::clone(made)
    }

    /// The partitions of one topic on this shard, ordered by index.
    #[must_use]
    pub fn partitions_of(&self, topic: TopicId) -> Vec<Rc<Partition>> {
        let partitions = self.all_partitions();
        let first = partitions.partition_point(|partition| partition.id.topic < topic);
        let of_topic = partitions[first..].iter();
        of_topic.take_while(|partition| partition.id.topic == topic).cloned().collect()
    }

    /// Forgets a partition that was dropped.
    pub fn forget(&self, id: TopicPartition) {
        self.partitions.borrow_mut().remove(&id);
        self.ordered.replace(None);
        self.files.borrow_mut().close_partition(id);
        self.cache.borrow_mut().forget(id);
        self.cleaner.forget(id);
    }

    /// The shard that owns a partition, as the catalog has it.
    #[must_use]
    pub fn owner(&self, id: TopicPartition) -> Option<ShardId> {
        self.catalog.borrow().owner(id.topic, id.partition, self.context.shards)
    }

    /// When segments of this partition are rolled.
    #[must_use]
    pub fn segment_rules(&self, partition: &Partition) -> SegmentRules {
        partition.topic.borrow().config.segment_rules()
    }

    /// Takes a partition out of service after a failure of its segments.
    pub fn take_offline(&self, partition: &Partition, reason: &str) {
        if !partition.is_online() {
            return;
        }
        tracing::error!(
            shard = %self.id,
            topic = %partition.topic.borrow().name,
            partition = %partition.index(),
            "the partition is offline: {reason}"
        );
        partition.set_availability(Availability::Offline(reason.to_owned()));
        partition.dirty.set(true);
    }

    /// The shard's storage has failed for good: it takes no more records, or the process ends.
    pub fn storage_failed(&self, what: &str, error: &io::Error) {
        if self.failed.replace(true) {
            return;
        }
        tracing::error!(
            shard = %self.id,
            "{what}: {error}; this shard takes no more records until the broker is restarted on a \
             sound disk"
        );
        if self.context.config.on_storage_failure == OnStorageFailure::Exit {
            std::process::exit(3);
        }
    }

    /// Whether records can be taken now: the code that refuses them otherwise.
    ///
    /// # Errors
    /// 56 while the disk is full, or after this shard's storage or anybody's sync has failed.
    pub fn check_writable(&self) -> Result<(), ErrorCode> {
        if self.space.is_full() {
            self.metrics.limit_reached(Limit::DiskFull);
            return Err(ErrorCode::KafkaStorageError);
        }
        self.check_sound()
    }

    /// Whether anything can be taken at all, full disk or not.
    ///
    /// # Errors
    /// 56 after this shard's storage or anybody's sync has failed.
    pub fn check_sound(&self) -> Result<(), ErrorCode> {
        let failed = self.failed.get() || self.space.sync_has_failed();
        if failed || self.journal.failure().is_some() {
            Err(ErrorCode::KafkaStorageError)
        } else {
            Ok(())
        }
    }

    /// Waits until the journal is durable up to `sequence`. The request in hand, if there is one,
    /// is told what that cost.
    ///
    /// # Errors
    /// When the journal failed before.
    pub async fn durable(&self, sequence: JournalSequence) -> Result<(), JournalFailed> {
        if self.journal.durable_through() >= sequence {
            return Ok(());
        }
        let since = self.runtime.now();
        let outcome = self.journal.wait(sequence).await;
        let (block, now) = (self.journal.times(sequence), self.runtime.now());
        crash::on_clock(|clock| clock.spend_on_block(since, block, now));
        outcome
    }

    /// Waits for something that is the request's own stage.
    pub async fn spend<T>(&self, stage: Stage, wait: impl Future<Output = T>) -> T {
        let since = self.runtime.now();
        let outcome = wait.await;
        let now = self.runtime.now();
        crash::on_clock(|clock| clock.spend(stage, since, now));
        outcome
    }

    /// Whether the shard is stopping.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Waits until the shard begins to stop.
    pub async fn stopped(&self) {
        let seen = self.stop.generation();
        if !self.stopping.get() {
            self.stop.wait(seen).await;
        }
    }

    /// Waits until all connections have closed, but not beyond `deadline`.
    pub async fn drained(&self, deadline: Monotonic) {
        loop {
            let seen = self.connections.generation();
            if self.connections.count() == 0 || self.runtime.now() >= deadline {
                return;
            }
            let timer = self.runtime.sleep_until(deadline);
            futures_lite::future::or(self.connections.one_ended(seen), timer).await;
        }
    }

    /// Ends cleanly: everything is in segments and in an image, and the journal is at rest.
    ///
    /// # Errors
    /// What the disk says; the next start replays the journal then.
    pub async fn close(self: &Rc<Self>) -> io::Result<()> {
        // Its files have their final names then.
        self.cleaner.ended().await;
        self.journal.stop().await.map_err(io::Error::other)?;
        checkpoint::take(self, true).await?;
        segment_removal::finish(self).await;
        Ok(())
    }

    /// Begins to stop: no new work is taken.
    pub fn begin_stop(&self) {
        self.stopping.set(true);
        self.space.stop_waiting();
        self.stop.notify();
        for partition in self.all_partitions().iter() {
            partition.wake_waiters();
        }
    }
}
