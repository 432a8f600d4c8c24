//! A broker on the simulated machine, and clients of it that wait for every answer.
//!
//! Owns the measured part: what [`World::measure`] runs is all that is counted.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::ConsumerGroupHeartbeatRequest;
use kafka_protocol::protocol::Request;
use ringlog::ids::{PartitionIndex, ShardId};
use ringlog::io::mailbox::MeshLimits;
use ringlog::io::{Disk, Runtime};
use ringlog::sim::{FaultPlan, Medium, Network, SimDisk};

use crate::counting::Count;
use crate::machine::{self, Cluster, DATA_DIR, Ring};
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic};
use crate::support::transactions::Identity;
use crate::wire::Wire;

/// The machine, its broker and a connection to each shard.
pub struct World {
    pub sim: ringlog::sim::World,
    pub cluster: Rc<Cluster>,
    disk: SimDisk,
    shards: u16,
    wires: Vec<Wire>,
}

impl World {
    /// A broker of so many shards on an empty disk.
    pub fn new(shards: u16) -> World {
        let mut sim = ringlog::sim::World::new(1);
        sim.set_pauses(false);
        sim.set_steps_max(u64::MAX);
        let mut medium = Medium::new();
        medium.create_directory(Path::new(DATA_DIR)).expect("an empty disk takes a directory");
        let disk = SimDisk::with_medium(&sim, medium, FaultPlan::default());
        let cluster = boot(&sim, &disk, shards);
        let wires = connect(&sim, &cluster);
        World { sim, cluster, disk, shards, wires }
    }

    /// Another connection to a shard.
    pub fn connect(&self, shard: usize) -> Wire {
        Wire::connect(&Network::of(&self.sim), &self.cluster.shards[shard])
    }

    /// Asks shard 0.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.ask_shard(0, version, request)
    }

    /// Asks a shard.
    pub fn ask_shard<R: Request>(
        &mut self,
        shard: usize,
        version: i16,
        request: &R,
    ) -> R::Response {
        let answer = self.sim.run_until(self.wires[shard].call(version, request));
        answer.expect("no stall").expect("an answer")
    }

    /// Asks until the coordinator is there.
    pub fn ask_loaded<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        code: impl Fn(&R::Response) -> i16,
    ) -> R::Response {
        loop {
            let answer = self.ask(version, request);
            if !matches!(code(&answer), 14..=16 | 51) {
                assert_eq!(code(&answer), 0, "API {}", R::KEY);
                return answer;
            }
            self.sim.run_for(5).expect("no stall");
        }
    }

    pub fn create(&mut self, topic: &str, partitions: i32) {
        let created = self.ask(4, &requests::create_topic(topic, partitions));
        assert_eq!(created.topics[0].error_code, 0, "{created:?}");
    }

    /// The shard that leads a partition.
    pub fn owner(&self, topic: &str, partition: i32) -> usize {
        let front = &self.cluster.shards[0];
        let image = front.catalog();
        let topic = image.topic(topic).expect("the topic");
        usize::from(topic.owner(PartitionIndex(partition), self.shards).expect("an owner").0)
    }

    /// Appends; the base offset.
    pub fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> i64 {
        let request = requests::produce(9, &Topic::named(topic), partition, -1, batch);
        let shard = self.owner(topic, partition);
        let answer = self.ask_shard(shard, 9, &request);
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, 0, "{answer:?}");
        partition.base_offset
    }

    /// Appends in a transaction of protocol 2.
    pub fn produce_in(&mut self, id: &str, topic: &str, partition: i32, batch: &Batch) {
        let batch = batch.encode();
        let mut request = requests::produce(12, &Topic::named(topic), partition, -1, batch);
        request.transactional_id = Some(crate::support::transactions::transactional_id(id));
        self.ask_loaded(12, &request, |answer| {
            answer.responses[0].partition_responses[0].error_code
        });
    }

    /// A transactional producer.
    pub fn producer(&mut self, id: &str) -> Identity {
        let request = requests::init_producer_id(Some(id));
        let answer = self.ask_loaded(4, &request, |answer| answer.error_code);
        Identity { id: answer.producer_id.0, epoch: answer.producer_epoch }
    }

    /// A member's heartbeat; its epoch from then on.
    pub fn beat(&mut self, request: &ConsumerGroupHeartbeatRequest) -> i32 {
        self.ask_loaded(1, request, |answer| answer.error_code).member_epoch
    }

    /// Ends a transaction; who the producer is from then on.
    pub fn end(&mut self, id: &str, producer: Identity, commit: bool) -> Identity {
        let request = crate::support::transactions::end_txn(id, producer, commit);
        let answer = self.ask_loaded(5, &request, |answer| answer.error_code);
        Identity { id: answer.producer_id.0, epoch: answer.producer_epoch }
    }

    /// Runs what is counted, and tells the counts.
    pub fn measure<T>(&mut self, work: impl FnOnce(&mut World) -> T) -> T {
        // What is behind from before is not what is asked about.
        self.sim.run_for(1_000).expect("no stall");
        let blocks = self.blocks();
        let before = Count::now();
        let result = counted_work(|| work(self));
        let cost = before.elapsed();
        println!("\nallocations: {}", cost.allocations);
        println!("allocated bytes: {}", cost.bytes);
        println!("journal blocks: {}", self.blocks().saturating_sub(blocks));
        result
    }

    fn blocks(&self) -> u64 {
        let of = |shard: &Rc<ringlog::shard::Shard>| shard.journal.counters().blocks.get();
        self.cluster.shards.iter().map(of).sum()
    }

    /// Ends in order, and starts again.
    pub fn stop(&mut self) {
        self.wires.clear();
        let cluster = Rc::clone(&self.cluster);
        self.sim.run_until(async move { cluster.stop().await }).expect("no stall").expect("an end");
    }

    /// Starts on what is there.
    pub fn start(&mut self) {
        self.cluster = boot(&self.sim, &self.disk, self.shards);
        self.wires = connect(&self.sim, &self.cluster);
    }
}

/// What is counted while it is on the stack.
#[inline(never)]
fn counted_work<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work)()
}

fn boot(sim: &ringlog::sim::World, disk: &SimDisk, shards: u16) -> Rc<Cluster> {
    let ring = Ring { files: 4, file_bytes: 4 << 20 };
    let settings = [
        ("memory", "512MiB"),
        // Segments of a few batches.
        ("log.segment.bytes", "1048576"),
        // What comes by the clock is not what is asked about.
        ("checkpoint_interval_ms", "3600000"),
        ("log.initial.task.delay.ms", "3600000"),
        ("log.retention.check.interval.ms", "3600000"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.num.partitions", "1"),
        ("transaction.state.log.num.partitions", "1"),
        // Records are old.
        ("log.retention.ms", "-1"),
    ];
    let config = machine::config(DATA_DIR, shards, &ring, &settings);
    let disk: Rc<dyn Disk> = Rc::new(disk.clone());
    let runtimes: Vec<Rc<dyn Runtime>> =
        (0..shards).map(|shard| sim.runtime(ShardId(shard))).collect();
    let limits = MeshLimits::default();
    let booting = machine::boot(disk, runtimes, Arc::new(config), limits, "kernel".to_owned());
    Rc::new(sim.run_until(booting).expect("no stall").expect("a boot"))
}

fn connect(sim: &ringlog::sim::World, cluster: &Rc<Cluster>) -> Vec<Wire> {
    let network = Network::of(sim);
    cluster.shards.iter().map(|shard| Wire::connect(&network, shard)).collect()
}
