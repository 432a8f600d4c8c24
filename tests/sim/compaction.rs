//! Lives of compacted topics: the newest value of every key survives passes, their swaps, crashes
//! in the middle of either, and failing operations of the disk.
//!
//! One seed is one data directory over some boots. Clients write values and tombstones under few
//! keys, each as plain batches; segments are tiny and the cleaner never rests. After every boot the
//! whole log is read: every record was sent, an acknowledged one is at its offset or was replaced
//! by a newer one, no key has lost its value or got one back.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringlog::batch::{
    BatchBuilder, BatchHeader, Compression, CompressionTarget, Records, ValidBatch,
    decompressed_records, validate,
};
use ringlog::config::TopicConfig;
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, ShardId, TopicPartition};
use ringlog::metadata::topics::CreateTopic;
use ringlog::shard::message::{AppendPart, CatalogChange, CatalogOutcome, Operation, Reply};
use ringlog::shard::{Shard, checkpoint};
use ringlog::sim::Random;

use crate::batches::rules;
use crate::internal::plan_cleaner_fault;
use crate::machine::Cluster;
use crate::scenario::{Machine, say};
use crate::{Tally, oracle, run_seeds};

#[test]
fn compacted_topics_keep_the_newest_value_of_every_key() {
    let counts = run_seeds("compacted_topics_keep_the_newest_value_of_every_key", SEEDS, |seed| {
        life::<Known>(seed, false)
    });
    assert!(counts.passes > 0 && counts.crashes > 0, "{counts:?}");
}

#[test]
fn compacted_topics_survive_a_failing_disk() {
    let counts = run_seeds("compacted_topics_survive_a_failing_disk", SEEDS, |seed| {
        life::<Known>(seed, true)
    });
    assert!(counts.passes > 0 && counts.faulty_boots > 0, "{counts:?}");
}

counts! {
    /// What lives came to.
    pub struct Counts {
        pub boots: u64,
        pub crashes: u64,
        pub faulty_boots: u64,
        pub acked: u64,
        pub passes: u64,
        pub uncleanable: u64,
    }
}

/// A record: key, and the number that its value begins with; `None` for a tombstone.
pub type Record = (u8, Option<u64>);

/// What clients know of one partition.
#[derive(Default)]
struct Known {
    /// Everything that was ever sent.
    sent: BTreeSet<Record>,
    /// What was acknowledged, by offset.
    acked: BTreeMap<Offset, Record>,
    next_value: u64,
    violation: Option<String>,
}

impl Known {
    /// Whether this is what the log may hold.
    fn check(&self, log: &BTreeMap<Offset, Record>) -> Result<(), String> {
        for (offset, record) in log {
            if !self.sent.contains(record) {
                return Err(format!("nobody sent {record:?}, which is at {offset}"));
            }
            if self.acked.get(offset).is_some_and(|acked| acked != record) {
                return Err(format!("{record:?} is at {offset}, where another was acknowledged"));
            }
        }
        for key in 0..KEYS {
            let of_key = |(_, record): &(&Offset, &Record)| record.0 == key;
            let found = log.iter().rfind(of_key);
            let Some((acked_at, acked)) = self.acked.iter().rfind(of_key) else {
                continue;
            };
            match found {
                Some((at, _)) if at >= acked_at => {}
                None if acked.1.is_none() => {}
                other => {
                    return Err(format!(
                        "{acked:?} was acknowledged at {acked_at}, the newest is {other:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Kind for Known {
    fn start(machine: &mut Machine, place: &Place<Known>, may_fail: &Rc<Cell<bool>>) {
        for _ in 0..1 + machine.random.below(3) {
            let (may_fail, random) = (Rc::clone(may_fail), machine.random.fork());
            let client = Client { place: place.clone(), may_fail, random };
            place.cluster.shards[0].runtime.spawn(Box::pin(client.run()));
        }
    }

    fn check(machine: &Machine, place: &Place<Known>) -> Result<(), String> {
        let read = machine.world.run_until(read_all(&place.cluster, place.tp));
        let log = read.map_err(|stalled| stalled.to_string())??;
        place.known.borrow().check(&log)
    }

    /// Writes until everything from before is below an active segment, and waits until passes have
    /// left at most one record of each key there.
    async fn settle(place: &Place<Known>, random: Random) -> Result<(), String> {
        let mut client = Client { place: place.clone(), may_fail: Rc::default(), random };
        let Place { cluster, tp, .. } = place;
        let owner = cluster.shards[0].owner(*tp).ok_or("nobody owns it")?;
        let shard = &cluster.shards[usize::from(owner.0)];
        let partition = shard.partition(*tp).ok_or("it is gone")?;
        for _ in 0..100 {
            for _ in 0..10 {
                client.produce().await?;
            }
            checkpoint::take(shard, false).await.map_err(|error| error.to_string())?;
            let due = shard.runtime.now().plus_ms(100);
            shard.runtime.sleep_until(due).await;
            let segments = partition.segments.borrow().bases().count();
            if segments <= SETTLED_SEGMENTS && shard.cleaner.cleaned_end(*tp).is_some() {
                return Ok(());
            }
        }
        let segments: Vec<Offset> = partition.segments.borrow().bases().collect();
        Err(format!("the log does not get shorter: {segments:?}"))
    }

    fn violation(&self) -> Option<String> {
        self.violation.clone()
    }

    fn acked(&self) -> u64 {
        self.acked.len() as u64
    }
}

/// What the clients of one kind of lives do and know.
pub trait Kind: Default + 'static {
    /// Has clients at work.
    fn start(machine: &mut Machine, place: &Place<Self>, may_fail: &Rc<Cell<bool>>);

    /// Checks what a boot has found.
    fn check(machine: &Machine, place: &Place<Self>) -> Result<(), String>;

    /// Goes on until what is there by now has been through a pass, and checks what that has left.
    fn settle(place: &Place<Self>, random: Random) -> impl Future<Output = Result<(), String>>;

    /// The first thing that went wrong.
    fn violation(&self) -> Option<String>;

    /// Records that the log holds, or held.
    fn acked(&self) -> u64;
}

/// A compacted topic in one boot, with what is known of it.
pub struct Place<K> {
    pub cluster: Rc<Cluster>,
    pub known: Rc<RefCell<K>>,
    pub tp: TopicPartition,
}

impl<K> Clone for Place<K> {
    fn clone(&self) -> Place<K> {
        let (cluster, known) = (Rc::clone(&self.cluster), Rc::clone(&self.known));
        Place { cluster, known, tp: self.tp }
    }
}

/// One life.
pub fn life<K: Kind>(seed: u64, with_faults: bool) -> Result<Counts, String> {
    let (mut machine, tp) = begin(seed)?;
    let mut counts = Counts::default();
    let known: Rc<RefCell<K>> = Rc::default();
    for _ in 0..2 + machine.random.below(4) {
        let place = boot_and_check(&mut machine, &known, tp)?;
        load_and_crash(&mut machine, &place, with_faults, &mut counts)?;
        known.borrow().violation().map_or(Ok(()), Err)?;
    }
    let place = boot_and_check(&mut machine, &known, tp)?;
    let settled = K::settle(&place, machine.random.fork());
    machine.world.run_until(settled).map_err(|stalled| stalled.to_string())??;
    counts.add(&of(&place.cluster));
    stop(&mut machine, &place.cluster)?;
    boot_and_check(&mut machine, &known, tp)?;
    counts.boots = machine.counts.boots;
    counts.acked = known.borrow().acked();
    Ok(counts)
}

/// A machine whose cleaner never rests, with a compacted topic.
fn begin(seed: u64) -> Result<(Machine, TopicPartition), String> {
    let mut machine = Machine::new(seed);
    machine.settings = vec![
        ("log.cleaner.backoff.ms", "5".to_owned()),
        ("log.cleaner.dedupe.buffer.size", "1048576".to_owned()),
    ];
    let cluster = machine.boot()?;
    let created = machine.world.run_until(create(&cluster, machine.random.fork()));
    let tp = created.map_err(|stalled| stalled.to_string())??;
    machine.crash();
    Ok((machine, tp))
}

/// Stops cleanly, which a crash then cannot harm.
fn stop(machine: &mut Machine, cluster: &Cluster) -> Result<(), String> {
    let stopped = machine.world.run_until(cluster.stop()).map_err(|stalled| stalled.to_string())?;
    stopped.map_err(|error| format!("no clean stop: {error}"))?;
    machine.crash();
    Ok(())
}

/// What the cleaners of a boot have counted.
fn of(cluster: &Cluster) -> Counts {
    let mut counts = Counts::default();
    for shard in &cluster.shards {
        counts.passes += shard.cleaner.metrics.passes.get();
        counts.uncleanable += shard.cleaner.uncleanable() as u64;
    }
    counts
}

/// Has clients at work until the broker crashes, perhaps after a stop; with faults, the disk fails
/// as often as not, which the clients are told.
fn load_and_crash<K: Kind>(
    machine: &mut Machine,
    place: &Place<K>,
    with_faults: bool,
    counts: &mut Counts,
) -> Result<(), String> {
    let cluster = &place.cluster;
    let may_fail = Rc::new(Cell::new(false));
    if with_faults && machine.random.chance(3, 4) {
        plan_cleaner_fault(machine);
        may_fail.set(true);
        counts.faulty_boots += 1;
    }
    K::start(machine, place, &may_fail);
    let steps = 500 + machine.random.below(STEPS_MAX);
    machine.world.run_steps(steps);
    counts.add(&of(cluster));
    if machine.random.chance(1, 4) {
        may_fail.set(true);
        let stopped = machine.world.run_until(cluster.stop());
        let stopped = stopped.map_err(|stalled| format!("a stop: {stalled}"))?;
        if !with_faults {
            stopped.map_err(|error| format!("no clean stop: {error}"))?;
        }
    }
    machine.disk.plan(|plan| plan.rules.clear());
    machine.crash();
    counts.crashes += 1;
    Ok(())
}

/// Boots, perhaps with crashes on the way, and checks what is there.
fn boot_and_check<K: Kind>(
    machine: &mut Machine,
    known: &Rc<RefCell<K>>,
    tp: TopicPartition,
) -> Result<Place<K>, String> {
    let place = Place { cluster: boot(machine)?, known: Rc::clone(known), tp };
    K::check(machine, &place)?;
    Ok(place)
}

/// Boots, perhaps with crashes on the way.
fn boot(machine: &mut Machine) -> Result<Rc<Cluster>, String> {
    while machine.random.chance(1, 2) {
        let steps = machine.random.below(400);
        let config = machine.config();
        say(|| format!("{steps} steps of a boot"));
        machine.boot_for(config, steps)?;
        machine.crash();
    }
    let cluster = machine.boot()?;
    match cluster.notes.first() {
        Some(note) => Err(format!("recovery notes: {note}")),
        None => Ok(cluster),
    }
}

/// Everything in the log, in order, and never the same offset twice.
async fn read_all(
    cluster: &Cluster,
    tp: TopicPartition,
) -> Result<BTreeMap<Offset, Record>, String> {
    let mut log = BTreeMap::new();
    let mut next = Offset(0);
    loop {
        let outcome = oracle::read(&cluster.shards[0], tp, next, READ_BYTES).await?;
        if outcome.error != ErrorCode::None {
            return Err(format!("a read at {next} answers {:?}", outcome.error));
        }
        if outcome.records.is_empty() {
            if next < outcome.high_watermark {
                return Err(format!(
                    "nothing to read at {next}, below the high watermark {}",
                    outcome.high_watermark
                ));
            }
            return Ok(log);
        }
        let mut rest = Bytes::from(outcome.records.concat());
        while !rest.is_empty() {
            let header = BatchHeader::read_verified(&rest).map_err(|fault| fault.to_string())?;
            let batch = rest.split_to(header.total_bytes());
            if header.next_offset() <= next {
                return Err(format!("a read at {next} returns {}", header.last_offset()));
            }
            next = header.next_offset();
            take_records(&header, &batch, &mut log)?;
        }
    }
}

/// Takes the records of a batch.
pub fn take_records(
    header: &BatchHeader,
    batch: &Bytes,
    log: &mut BTreeMap<Offset, Record>,
) -> Result<(), String> {
    let records = decompressed_records(header, batch, READ_BYTES * 10);
    let records = records.map_err(|fault| fault.to_string())?;
    for record in Records::new(&records, header.record_count) {
        let record = record.map_err(|fault| fault.to_string())?;
        let value = record.value.and_then(|value| value.first_chunk::<8>());
        let key = record.key.ok_or("a record without a key")?[0];
        let at = header.record_offset(record.offset_delta);
        log.insert(at, (key, value.map(|value| u64::from_be_bytes(*value))));
    }
    Ok(())
}

async fn create(cluster: &Rc<Cluster>, mut random: Random) -> Result<TopicPartition, String> {
    let configs = [
        ("cleanup.policy", "compact".to_owned()),
        ("internal.segment.bytes", [6_000, 16_384, 40_000][random.index(3)].to_string()),
        ("min.cleanable.dirty.ratio", ["0.01", "0.3"][random.index(2)].to_owned()),
        ("delete.retention.ms", [0, 20, 100_000][random.index(3)].to_string()),
        ("file.delete.delay.ms", [0, 10, 400][random.index(3)].to_string()),
        ("index.interval.bytes", "500".to_owned()),
        ("compression.type", ["producer", "zstd"][random.index(2)].to_owned()),
    ];
    let topic = CreateTopic {
        name: "compacted".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: configs.map(|(name, value)| (name.to_owned(), Some(value))).to_vec(),
    };
    let topics = vec![topic];
    let change = CatalogChange::CreateTopics { topics, validate_only: false, automatic: false };
    match cluster.shards[0].ask(ShardId(0), Operation::Catalog(change)).await {
        Reply::Catalog(CatalogOutcome::Created(results)) => match results.first() {
            Some(Ok(planned)) => Ok(oracle::partition(planned.id, 0)),
            other => Err(format!("no topic: {other:?}")),
        },
        other => Err(format!("no topic: {other:?}")),
    }
}

/// Writes one batch after the other.
struct Client {
    place: Place<Known>,
    may_fail: Rc<Cell<bool>>,
    random: Random,
}

impl Client {
    async fn run(mut self) {
        while !self.place.cluster.shards[0].is_stopping() {
            if let Err(what) = self.produce().await {
                self.place.known.borrow_mut().violation.get_or_insert(what);
                return;
            }
            if self.random.chance(1, 3) {
                let runtime = &self.place.cluster.shards[0].runtime;
                let due = runtime.now().plus_ms(self.random.below(4));
                runtime.sleep_until(due).await;
            }
        }
    }

    async fn produce(&mut self) -> Result<(), String> {
        let front = Rc::clone(&self.place.cluster.shards[0]);
        let topic = front.catalog().topic_by_id(self.place.tp.topic).map(Arc::clone);
        let topic = topic.ok_or("the topic is gone")?;
        let records = self.records();
        let batch = self.batch(&front, &topic.config, &records)?;
        let owner = front.owner(self.place.tp).ok_or("nobody owns it")?;
        let part = AppendPart { partition: self.place.tp, batch, guard: None };
        match front.ask(owner, Operation::Append(vec![part])).await {
            Reply::Appended(outcomes) => match &outcomes[..] {
                [Ok(appended)] => {
                    let mut known = self.place.known.borrow_mut();
                    for (place, record) in records.into_iter().enumerate() {
                        known.acked.insert(appended.base_offset.plus(place as i64), record);
                    }
                    Ok(())
                }
                [Err(_)] if self.may_fail.get() || front.is_stopping() => Ok(()),
                other => Err(format!("an append was answered with {other:?}")),
            },
            other => Err(format!("an append was answered with {other:?}")),
        }
    }

    fn records(&mut self) -> Vec<Record> {
        let count = 1 + self.random.below(6);
        let mut known = self.place.known.borrow_mut();
        let mut records = Vec::new();
        for _ in 0..count {
            let key = self.random.below(u64::from(KEYS)) as u8;
            known.next_value += 1;
            let value = known.next_value;
            records.push((key, (!self.random.chance(1, 5)).then_some(value)));
        }
        known.sent.extend(&records);
        records
    }

    fn batch(
        &mut self,
        front: &Rc<Shard>,
        config: &TopicConfig,
        records: &[Record],
    ) -> Result<ValidBatch, String> {
        let codec = Compression::from_id(self.random.below(5) as u8).expect("a codec");
        let builder = BatchBuilder::new(CompressionTarget::of(codec));
        valid(builder, records, config, front.runtime.wall_ms(), &mut self.random)
    }
}

/// The batch of these records, padded.
pub fn valid(
    mut builder: BatchBuilder,
    records: &[Record],
    config: &TopicConfig,
    now_ms: i64,
    random: &mut Random,
) -> Result<ValidBatch, String> {
    for (key, value) in records {
        let padding = random.below(400) as usize;
        let value = value.map(|value| {
            let mut bytes = value.to_be_bytes().to_vec();
            bytes.extend((0..padding).map(|place| (value as usize + place) as u8));
            bytes
        });
        builder.push(now_ms, Some(&[*key]), value.as_deref(), &[]);
    }
    let valid = validate(Some(Bytes::from(builder.finish())), &rules(config), now_ms);
    valid.map_err(|refusal| format!("{refusal:?}"))
}

/// Steps of a boot before it crashes, and some.
const STEPS_MAX: u64 = 6_000;

/// Keys that clients write.
pub const KEYS: u8 = 12;

/// Segments that a compacted log may have left at rest: one or two cleaned ones, those that are not
/// in an image yet, and the active one.
const SETTLED_SEGMENTS: usize = 6;

/// Of one read.
pub const READ_BYTES: usize = 300 * 1024;

/// Seeds of each kind when nothing else is asked for.
pub const SEEDS: u64 = 18;
