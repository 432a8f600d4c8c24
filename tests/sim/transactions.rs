//! Transactions in one partition on a simulated machine: what readers of committed records get,
//! over rolls, checkpoints, crashes and clean stops, against a list of everything that was sent.
//!
//! There is no coordinator here: the test verifies, appends and writes markers itself, and waits
//! for each answer, so that the list is what the log must hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringlog::batch::compression::CompressionTarget;
use ringlog::batch::{
    BatchBuilder, BatchHeader, HEADER_BYTES, Marker, MarkerKind, ValidBatch, validate,
};
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, PartitionIndex, ProducerEpoch, ProducerId, ShardId, TopicPartition};
use ringlog::io::mailbox::MeshLimits;
use ringlog::io::{Disk, Runtime};
use ringlog::log::ProducerFacts;
use ringlog::log::verification::{Verification, VerificationGuard};
use ringlog::metadata::topics::CreateTopic;
use ringlog::shard::Shard;
use ringlog::shard::message::{
    AppendPart, CatalogChange, CatalogOutcome, MarkerPart, OffsetQuery, Operation, ReadOutcome,
    ReadPart, ReadParts, Reply, VerifyPart,
};
use ringlog::sim::{FaultPlan, FaultRule, Medium, Random, SimDisk, World};

use crate::batches::rules;
use crate::machine::{self, Cluster, DATA_DIR, Ring};

#[test]
fn committed_readers_get_what_was_committed_whatever_happens() {
    for seed in 0..crate::number("RINGLOG_SIM_SEEDS").unwrap_or(LIVES) {
        let mut life = Life::new(seed);
        for _ in 0..STEPS {
            life.step();
        }
        life.crash(true);
        life.check_all();
    }
}

/// Case 31: the index of aborted transactions is made again where it is incomplete.
#[test]
fn a_lost_index_of_aborted_transactions_is_made_again() {
    let mut life = Life::new(3);
    for _ in 0..3 {
        life.data(0, 2);
        life.data(1, 1);
        life.marker(0, MarkerKind::Abort, false);
    }
    life.marker(1, MarkerKind::Abort, false);
    life.checkpoint();
    let index = life.files("txnindex");
    assert_eq!(index.len(), 1, "all of it is in one segment: {index:?}");
    life.world.crash();
    life.disk = life.disk.crash();
    let disk = life.disk.clone();
    let removed = life.world.run_until(async { disk.remove(&index[0]).await });
    removed.expect("no stall").expect("removed");
    life.boot();
    let notes = life.cluster.notes.join("\n");
    assert!(notes.contains("made again"), "{notes}");
    life.check_all();
    assert_eq!(life.files("txnindex"), index);
}

/// A full disk takes no records, but a transaction can end.
#[test]
fn markers_pass_a_full_disk() {
    let mut life = Life::new(5);
    life.data(0, 3);
    life.data(1, 3);
    life.disk.plan(|plan| {
        plan.rules.push(FaultRule {
            operation: ringlog::sim::Operation::Write,
            path_contains: ".log".to_owned(),
            skip: 0,
            times: u64::MAX,
            code: libc::ENOSPC,
        });
    });
    let owner = life.owner();
    let asking = Rc::clone(&owner);
    let runtime = Rc::clone(&owner.runtime);
    runtime.spawn(Box::pin(async move {
        asking.ask(asking.id, Operation::Checkpoint).await;
    }));
    life.world.run_for(300).expect("no stall");
    assert_eq!(life.try_plain(1), Err(ErrorCode::KafkaStorageError));
    assert_eq!(life.try_data(0, 1), Err(ErrorCode::KafkaStorageError));
    for _ in 0..100 {
        life.marker(0, MarkerKind::Commit, false);
    }
    life.marker(1, MarkerKind::Abort, false);
    assert_eq!(life.read(0, 1 << 20).last_stable_offset.0, life.end());
    life.disk.plan(|plan| plan.rules.clear());
    life.world.run_for(1_000).expect("no stall");
    life.plain(1);
    life.check_all();
    life.crash(true);
    life.check_all();
}

/// A partition whose segments cannot be written keeps its markers aside: the transactions that they
/// end began in what was written.
#[test]
fn what_is_kept_aside_keeps_its_transactions() {
    let mut life = Life::new(7);
    life.data(0, 2);
    life.data(1, 1);
    life.checkpoint();
    life.marker(0, MarkerKind::Abort, true);
    life.data(0, 1);
    life.marker(1, MarkerKind::Commit, false);
    life.marker(0, MarkerKind::Abort, true);
    life.data(1, 3);
    life.plain(1);
    life.disk.plan(|plan| plan.fail_always(ringlog::sim::Operation::Write, ".log"));
    life.checkpoint();
    assert_eq!(life.try_plain(1), Err(ErrorCode::KafkaStorageError), "it is offline");
    life.disk.plan(|plan| plan.rules.clear());
    life.world.crash();
    life.disk = life.disk.kill_process();
    life.boot();
    life.check_all();
    life.resend(1);
    life.marker(1, MarkerKind::Abort, false);
    life.data(0, 1);
    life.check_all();
    life.crash(true);
    life.check_all();
}

/// The index of aborted transactions cannot be written, and the partition is offline: what the
/// segments hold is no longer in memory, and its aborted records stay unseen all the same.
#[test]
fn what_an_index_lacks_when_its_partition_goes_offline_is_made_again() {
    for entries_before in 0..2 {
        let mut life = Life::new(11);
        for _ in 0..entries_before {
            life.data(0, 1);
            life.marker(0, MarkerKind::Abort, true);
            life.checkpoint();
        }
        life.data(0, 2);
        life.data(1, 1);
        life.marker(0, MarkerKind::Abort, true);
        life.plain(1);
        life.disk.plan(|plan| plan.fail_once(ringlog::sim::Operation::Write, "txnindex", 0));
        life.checkpoint();
        assert_eq!(life.try_plain(1), Err(ErrorCode::KafkaStorageError), "it is offline");
        life.crash(false);
        life.check_all();
        life.marker(1, MarkerKind::Abort, false);
        life.crash(true);
        life.check_all();
    }
}

/// What was appended, by first and last offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Plain,
    Data(i64),
    Marker(i64, MarkerKind),
}

/// First offset, producer, and the marker once there is one.
type Transaction = (i64, i64, Option<(i64, MarkerKind)>);

/// A producer as it knows itself.
#[derive(Clone, Copy, Default)]
struct Producer {
    epoch: i16,
    next_sequence: i32,
    /// Base offset, base sequence and records of its last batch in this epoch.
    last: Option<(i64, i32, i32)>,
}

struct Life {
    world: World,
    disk: SimDisk,
    cluster: Rc<Cluster>,
    random: Random,
    tp: TopicPartition,
    producers: BTreeMap<i64, Producer>,
    entries: Vec<(i64, i64, Entry)>,
    newest_bound: i64,
}

impl Life {
    fn new(seed: u64) -> Life {
        let world = World::new(seed);
        let mut medium = Medium::new();
        medium.create_directory(Path::new(DATA_DIR)).expect("an empty disk takes a directory");
        medium.settle();
        let disk = SimDisk::with_medium(&world, medium, FaultPlan::default());
        let cluster = booted(&world, &disk);
        let random = world.random("transactions");
        let front = Rc::clone(&cluster.shards[0]);
        let topic = CreateTopic {
            name: "t".to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            assignments: Vec::new(),
            configs: vec![
                ("internal.segment.bytes".to_owned(), Some("16384".to_owned())),
                ("index.interval.bytes".to_owned(), Some("1000".to_owned())),
            ],
        };
        let change = CatalogChange::CreateTopics {
            topics: vec![topic],
            validate_only: false,
            automatic: false,
        };
        let asked = async { front.ask(ShardId(0), Operation::Catalog(change)).await };
        let reply = world.run_until(asked).expect("no stall");
        let Reply::Catalog(CatalogOutcome::Created(results)) = reply else {
            panic!("{reply:?}");
        };
        let topic = results[0].as_ref().expect("created").id;
        let tp = TopicPartition { topic, partition: PartitionIndex(0) };
        let producers = BTreeMap::new();
        let entries = Vec::new();
        Life { world, disk, cluster, random, tp, producers, entries, newest_bound: 0 }
    }

    fn step(&mut self) {
        let id = self.random.below(4) as i64;
        match self.random.below(20) {
            0..=5 => {
                let count = 1 + self.random.below(3) as i32;
                self.data(id, count);
            }
            6..=8 => {
                let count = 1 + self.random.below(3) as i32;
                self.plain(count);
            }
            9..=12 => {
                let aborted = self.random.chance(2, 3);
                let kind = if aborted { MarkerKind::Abort } else { MarkerKind::Commit };
                let strict = self.random.chance(1, 2);
                self.marker(id, kind, strict);
            }
            13 => self.checkpoint(),
            14 => {
                let power_loss = self.random.chance(1, 2);
                self.crash(power_loss);
            }
            15 => self.stop(),
            16 => self.resend(id),
            _ => self.check_some(),
        }
    }

    fn end(&self) -> i64 {
        self.entries.last().map_or(0, |entry| entry.1 + 1)
    }

    fn owner(&self) -> Rc<Shard> {
        let front = &self.cluster.shards[0];
        let owner = front.owner(self.tp).expect("it has an owner");
        Rc::clone(&self.cluster.shards[usize::from(owner.0)])
    }

    /// Asks the owner, from another shard as often as not.
    fn ask(&mut self, operation: Operation) -> Reply {
        let place = self.random.index(self.cluster.shards.len());
        let front = Rc::clone(&self.cluster.shards[place]);
        let owner = self.owner().id;
        self.world.run_until(async { front.ask(owner, operation).await }).expect("no stall")
    }

    fn batch(&mut self, producer: Option<(i64, i16, i32)>, count: i32) -> ValidBatch {
        let mut builder = BatchBuilder::new(CompressionTarget::Producer);
        if let Some((id, epoch, sequence)) = producer {
            builder =
                builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence).transactional();
        }
        let now_ms = self.cluster.shards[0].runtime.wall_ms();
        for _ in 0..count {
            builder.push(now_ms, None, Some(&[7; 700]), &[]);
        }
        let front = &self.cluster.shards[0];
        let topic = front.catalog().topic_by_id(self.tp.topic).cloned().expect("it exists");
        let rules = rules(&topic.config);
        validate(Some(Bytes::from(builder.finish())), &rules, now_ms).expect("a valid batch")
    }

    fn try_append(
        &mut self,
        producer: Option<(i64, i16, i32)>,
        count: i32,
    ) -> Result<i64, ErrorCode> {
        let batch = self.batch(producer, count);
        let mut guard = None;
        if let Some((id, epoch, base_sequence)) = producer {
            let (id, epoch) = (ProducerId(id), ProducerEpoch(epoch));
            let producer = ProducerFacts { id, epoch, base_sequence };
            let part = VerifyPart { partition: self.tp, producer, strict: false };
            let Reply::Verified(outcomes) = self.ask(Operation::Verify(vec![part])) else {
                panic!("another reply");
            };
            match outcomes[0]? {
                Verification::NotNeeded => {}
                Verification::Guard(given) => guard = Some(given),
            }
        }
        self.append(batch, guard)
    }

    fn append(
        &mut self,
        batch: ValidBatch,
        guard: Option<VerificationGuard>,
    ) -> Result<i64, ErrorCode> {
        let part = AppendPart { partition: self.tp, batch, guard };
        let Reply::Appended(outcomes) = self.ask(Operation::Append(vec![part])) else {
            panic!("another reply");
        };
        outcomes[0].map(|appended| appended.base_offset.0).map_err(|refusal| refusal.code)
    }

    fn try_data(&mut self, id: i64, count: i32) -> Result<i64, ErrorCode> {
        let producer = *self.producers.entry(id).or_default();
        self.try_append(Some((id, producer.epoch, producer.next_sequence)), count)
    }

    fn data(&mut self, id: i64, count: i32) {
        let end = self.end();
        assert_eq!(self.try_data(id, count), Ok(end));
        let producer = self.producers.entry(id).or_default();
        producer.last = Some((end, producer.next_sequence, count));
        producer.next_sequence += count;
        self.entries.push((end, end + i64::from(count) - 1, Entry::Data(id)));
    }

    fn try_plain(&mut self, count: i32) -> Result<i64, ErrorCode> {
        self.try_append(None, count)
    }

    fn plain(&mut self, count: i32) {
        let end = self.end();
        assert_eq!(self.try_plain(count), Ok(end));
        self.entries.push((end, end + i64::from(count) - 1, Entry::Plain));
    }

    /// The last batch again: it is known, over every restart, and a copy needs no verification.
    fn resend(&mut self, id: i64) {
        let producer = *self.producers.entry(id).or_default();
        if let Some((base, sequence, count)) = producer.last {
            let batch = self.batch(Some((id, producer.epoch, sequence)), count);
            assert_eq!(self.append(batch, None), Ok(base));
        }
    }

    /// A marker; a strict one raises the producer's epoch, and its sequences begin again.
    fn marker(&mut self, id: i64, kind: MarkerKind, strict: bool) {
        let producer = self.producers.entry(id).or_default();
        if strict {
            *producer = Producer { epoch: producer.epoch + 1, ..Producer::default() };
        }
        let part = MarkerPart {
            partition: self.tp,
            kind,
            producer_id: ProducerId(id),
            producer_epoch: ProducerEpoch(producer.epoch),
            coordinator_epoch: 0,
            transaction_version: if strict { 2 } else { 0 },
        };
        let Reply::Markers(codes) = self.ask(Operation::WriteMarkers(vec![part])) else {
            panic!("another reply");
        };
        assert_eq!(codes, [ErrorCode::None]);
        let end = self.end();
        self.entries.push((end, end, Entry::Marker(id, kind)));
    }

    fn checkpoint(&mut self) {
        let reply = self.ask(Operation::Checkpoint);
        assert!(matches!(reply, Reply::Done(true)));
    }

    fn crash(&mut self, power_loss: bool) {
        self.world.crash();
        self.disk = if power_loss { self.disk.crash() } else { self.disk.kill_process() };
        self.boot();
        assert_eq!(self.cluster.notes, Vec::<String>::new());
    }

    fn stop(&mut self) {
        let cluster = Rc::clone(&self.cluster);
        let stopped = self.world.run_until(async { cluster.stop().await });
        stopped.expect("no stall").expect("a clean stop");
        self.crash(true);
        assert_eq!(self.cluster.batches_replayed, 0);
    }

    fn boot(&mut self) {
        self.cluster = booted(&self.world, &self.disk);
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let tree = self.disk.medium().tree();
        let wanted = |path: &&PathBuf| path.extension().is_some_and(|found| found == extension);
        tree.keys().filter(wanted).cloned().collect()
    }

    fn read(&mut self, offset: i64, bytes_max: usize) -> ReadOutcome {
        let part = ReadPart {
            partition: self.tp,
            offset: Offset(offset),
            bytes_max,
            leader_epoch: -1,
            last_fetched_epoch: -1,
            committed_only: true,
        };
        let parts = ReadParts { parts: vec![part], bytes_max, at_least_one: true };
        let Reply::Read(mut outcomes) = self.ask(Operation::Read(parts)) else {
            panic!("another reply");
        };
        outcomes.remove(0)
    }

    /// Every transaction, as a scan finds it.
    fn transactions(&self) -> Vec<Transaction> {
        let mut found: Vec<Transaction> = Vec::new();
        for &(first, _, entry) in &self.entries {
            let open = |id| found.iter().position(|other| other.1 == id && other.2.is_none());
            match entry {
                Entry::Plain => {}
                Entry::Data(id) => {
                    if open(id).is_none() {
                        found.push((first, id, None));
                    }
                }
                Entry::Marker(id, kind) => {
                    if let Some(place) = open(id) {
                        found[place].2 = Some((first, kind));
                    }
                }
            }
        }
        found
    }

    fn bound(&self) -> i64 {
        let transactions = self.transactions();
        let open = transactions.iter().filter(|found| found.2.is_none()).map(|found| found.0);
        open.min().unwrap_or_else(|| self.end())
    }

    /// Reads a part, as a client of committed records does, and compares.
    fn check_read(&mut self, offset: i64, bytes_max: usize) -> i64 {
        let (bound, end) = (self.bound(), self.end());
        let outcome = self.read(offset, bytes_max);
        assert_eq!(outcome.error, ErrorCode::None);
        assert_eq!((outcome.last_stable_offset.0, outcome.high_watermark.0), (bound, end));
        assert!(bound >= self.newest_bound, "the last stable offset moved back");
        self.newest_bound = bound;
        let mut aborted = outcome.aborted.clone().expect("a list");
        let bytes = outcome.records.concat();
        let (delivered, next) = delivered(&bytes, &mut aborted);
        let transactions = self.transactions();
        let committed = |first: i64, id: i64| {
            let of = transactions.iter().rfind(|found| found.1 == id && found.0 <= first);
            matches!(of, Some((_, _, Some((_, MarkerKind::Commit)))))
        };
        let Some(next) = next else {
            assert!(offset >= bound, "nothing was read at {offset}");
            return offset;
        };
        let expected: Vec<i64> = self
            .entries
            .iter()
            .filter(|(first, last, _)| *last >= offset && *first < next)
            .filter(|(first, _, entry)| match entry {
                Entry::Plain => true,
                Entry::Data(id) => committed(*first, *id),
                Entry::Marker(..) => false,
            })
            .map(|(first, _, _)| *first)
            .collect();
        assert_eq!(delivered, expected, "read at {offset} of {bytes_max} bytes");
        assert!(offset < next && next <= bound, "a read at {offset} ends at {next}, over {bound}");
        next
    }

    fn check_some(&mut self) {
        let offset = self.random.below(self.end() as u64 + 1) as i64;
        let bytes_max = 1 + self.random.index(12_000);
        self.check_read(offset, bytes_max);
    }

    /// Everything from the start, in small reads; and what ListOffsets says.
    fn check_all(&mut self) {
        let mut offset = 0;
        while offset < self.bound() {
            offset = self.check_read(offset, 3_000);
        }
        for (committed_only, expected) in [(true, self.bound()), (false, self.end())] {
            let query = OffsetQuery {
                partition: self.tp,
                timestamp: -1,
                leader_epoch: -1,
                committed_only,
                to_log_end: false,
                version: 9,
            };
            let Reply::Offsets(answers) = self.ask(Operation::ListOffsets(vec![query])) else {
                panic!("another reply");
            };
            assert_eq!(answers[0].offset.0, expected);
        }
    }
}

/// First offsets of the batches that a client of committed records hands on, and the offset after
/// the last batch: Kafka's algorithm, which knows nothing but the list.
fn delivered(bytes: &[u8], aborted: &mut Vec<(ProducerId, Offset)>) -> (Vec<i64>, Option<i64>) {
    aborted.sort_by_key(|(_, first)| *first);
    let mut skipped = Vec::new();
    let mut delivered = Vec::new();
    let mut next = None;
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = BatchHeader::read_verified(rest).expect("a whole batch");
        let (batch, after) = rest.split_at(header.total_bytes());
        while aborted.first().is_some_and(|(_, first)| *first <= header.last_offset()) {
            skipped.push(aborted.remove(0).0);
        }
        if header.is_control() {
            let marker = Marker::read(&header, &batch[HEADER_BYTES..]).expect("a marker");
            if marker.is_some_and(|marker| marker.kind == MarkerKind::Abort) {
                skipped.retain(|id| *id != header.producer_id);
            }
        } else if !header.is_transactional() || !skipped.contains(&header.producer_id) {
            delivered.push(header.base_offset.0);
        }
        next = Some(header.next_offset().0);
        rest = after;
    }
    (delivered, next)
}

fn booted(world: &World, disk: &SimDisk) -> Rc<Cluster> {
    let ring = Ring { files: 3, file_bytes: 256 * 1024 };
    let config = Arc::new(machine::config(DATA_DIR, 2, &ring, &[]));
    let runtimes: Vec<Rc<dyn Runtime>> =
        (0..2).map(|shard| world.runtime(ShardId(shard))).collect();
    let disk: Rc<dyn Disk> = Rc::new(disk.clone());
    let booting = machine::boot(disk, runtimes, config, MeshLimits::default(), "kernel".to_owned());
    Rc::new(world.run_until(booting).expect("no stall").expect("a sound boot"))
}

const LIVES: u64 = 12;
const STEPS: u64 = 150;
