//! One seed's life: boots with other shard counts, clients, crashes at any step, also while a boot
//! recovers, clean stops; after every boot everything is checked.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use ringlog::config::BrokerConfig;
use ringlog::ids::{ShardId, TopicPartition};
use ringlog::io::mailbox::MeshLimits;
use ringlog::io::{Disk, Runtime};
use ringlog::log::layout::{self, SegmentFile};
use ringlog::sim::{
    Delays, FaultPlan, FaultRule, Medium, Operation, Random, Recorder, RecordingDisk, SimDisk,
    World,
};

use crate::clients::{Client, Mix, Producer};
use crate::machine::{self, Cluster, DATA_DIR, Ring};
use crate::oracle::{self, Oracle};
use crate::seeds::Trouble;
use crate::starts;

counts! {
    /// How much a run did.
    pub struct Counts {
        pub boots: u64,
        pub crashes: u64,
        pub crashes_in_recovery: u64,
        pub clean_stops: u64,
        pub faulty_boots: u64,
        /// Starts that an operation of the disk failed, or could have.
        pub faulty_starts: u64,
        pub acked: u64,
        pub replayed: u64,
        pub checkpoints: u64,
        pub segment_bytes: u64,
        /// Segments that retention, or a request to delete records, took.
        pub segments_deleted: u64,
        /// Topics created again on another shard.
        pub moved: u64,
    }
}

/// A simulated machine over its boots.
pub struct Machine {
    pub world: World,
    pub disk: SimDisk,
    pub random: Random,
    pub oracle: Rc<RefCell<Oracle>>,
    pub producers: Vec<Rc<RefCell<Producer>>>,
    pub ring: Ring,
    pub mix: Mix,
    pub durability: &'static str,
    pub counts: Counts,
    /// Bounds of the queues between shards.
    pub mesh: MeshLimits,
    /// Further settings.
    pub settings: Vec<(&'static str, String)>,
    /// Settings of the internal topics that are not Kafka's own.
    pub internal: Vec<(String, Option<String>)>,
    /// Where everything that the next boots do is recorded.
    pub recorder: Option<Recorder>,
    pub with_faults: bool,
    kernel_boots: u64,
}

/// Runs one seed; the machine as it is left.
pub fn run(seed: u64, trouble: Trouble) -> Result<Machine, String> {
    let mut machine = Machine::new(seed);
    machine.with_faults = trouble.faults;
    let rounds = 2 + machine.random.below(3);
    for _ in 0..rounds {
        machine.round()?;
    }
    let cluster = machine.boot_and_verify()?;
    machine.stop_clean(&cluster)?;
    Ok(machine)
}

impl Machine {
    /// A machine with an empty data directory; everything else is drawn from the seed.
    pub fn new(seed: u64) -> Machine {
        let world = World::new(seed);
        let mut random = world.random("scenario");
        let mut medium = Medium::new();
        medium.create_directory(Path::new(DATA_DIR)).expect("an empty disk takes a directory");
        medium.settle();
        let delays = Delays { slow_one_in: [0, 10, 50][random.index(3)], ..Delays::default() };
        let disk =
            SimDisk::with_medium(&world, medium, FaultPlan { delays, ..FaultPlan::default() });
        let producers = (0..1 + random.index(4)).map(|_| Rc::default()).collect();
        let mix = Mix {
            large_one_in: [3, 10, 40][random.index(3)],
            large_bytes_max: [20_000, 60_000, 200_000][random.index(3)],
            topic_changes: [10, 30, 120][random.index(3)],
            deletions: true,
        };
        let files = 2 + random.below(3) as u32;
        let file_bytes = [1, 2, 4, 8][random.index(4)] * 64 * 1024;
        Machine {
            ring: Ring { files, file_bytes },
            durability: if random.chance(1, 5) { "process-crash" } else { "power-loss" },
            world,
            disk,
            random,
            oracle: Rc::default(),
            producers,
            mix,
            counts: Counts::default(),
            mesh: MeshLimits::default(),
            settings: Vec::new(),
            internal: Vec::new(),
            recorder: None,
            with_faults: false,
            kernel_boots: 0,
        }
    }

    /// A machine whose disk is what a crash has left, with what clients knew then.
    pub fn from_image(seed: u64, medium: Medium, known: Oracle, ring: Ring) -> Machine {
        let mut machine = Machine::new(seed);
        machine.disk = SimDisk::with_medium(&machine.world, medium, FaultPlan::default());
        machine.oracle = Rc::new(RefCell::new(known));
        machine.ring = ring;
        machine.durability = "power-loss";
        machine.kernel_boots = 1_000;
        machine
    }

    /// All that was counted.
    pub fn counts(&self) -> Counts {
        let oracle = self.oracle.borrow();
        Counts { acked: oracle.acked, moved: oracle.moved, ..self.counts }
    }

    fn round(&mut self) -> Result<(), String> {
        let cluster = self.boot_and_verify()?;
        let may_fail = Rc::new(Cell::new(false));
        if self.with_faults && self.random.chance(2, 3) {
            self.plan_fault();
            may_fail.set(true);
        }
        let operations = 5 + self.random.below(120);
        self.start_clients(&cluster, &may_fail, operations);
        let steps = match self.random.below(4) {
            0 => self.random.below(300),
            1 => self.random.below(2_000),
            _ => self.random.below(12_000),
        };
        self.world.run_steps(steps);
        self.oracle.borrow().check()?;
        for shard in &cluster.shards {
            self.counts.checkpoints += shard.metrics.checkpoints.get();
            self.counts.segment_bytes += shard.metrics.segment_bytes_written.get();
            self.counts.segments_deleted += shard.metrics.segments_deleted.get();
        }
        if may_fail.get() {
            self.counts.faulty_boots += 1;
            self.end_of_faults(&cluster)
        } else if self.random.chance(1, 4) {
            may_fail.set(true);
            self.stop_clean(&cluster)
        } else {
            self.counts.crashes += 1;
            self.crash();
            Ok(())
        }
    }

    /// Plans that one operation fails, or all of a kind from some time on.
    pub fn plan_fault(&mut self) {
        let (operation, path) = [
            (Operation::Write, "journal/rings"),
            (Operation::Write, "topics/"),
            (Operation::Write, ".log"),
            (Operation::Write, "index"),
            (Operation::Open, "topics/"),
            (Operation::SetLength, "topics/"),
            (Operation::SyncFilesystem, ""),
            (Operation::WriteWhole, "image-"),
            (Operation::WriteWhole, "partition.metadata"),
            (Operation::Rename, "topics/"),
            (Operation::Rename, "image-"),
            (Operation::WriteWhole, "catalog/"),
            (Operation::SyncDirectory, ""),
            (Operation::SyncData, ""),
            (Operation::Allocate, ""),
            (Operation::Read, ".log"),
            (Operation::Remove, "topics/"),
            (Operation::CreateDirectory, "topics/"),
        ][self.random.index(18)];
        let times = [1, 2, u64::MAX][self.random.index(3)];
        let skip = self.random.below(12);
        let code = if self.random.chance(1, 4) { libc::ENOSPC } else { libc::EIO };
        say(|| format!("fault: {operation:?} of {path:?}, {times} times after {skip}, {code}"));
        let path_contains = path.to_owned();
        let rule = FaultRule { operation, path_contains, skip, times, code };
        self.disk.plan(|plan| plan.rules.push(rule));
    }

    /// The faults end with the process, which stops as well as it can.
    fn end_of_faults(&mut self, cluster: &Rc<Cluster>) -> Result<(), String> {
        if self.random.chance(1, 2) {
            let stopped = self.world.run_until(cluster.stop());
            // It may well fail; nothing may be lost by that.
            let _ = stopped.map_err(|stalled| format!("a stop with a fault: {stalled}"))?;
        }
        self.oracle.borrow().check()?;
        self.disk.plan(|plan| plan.rules.clear());
        self.counts.crashes += 1;
        self.crash();
        Ok(())
    }

    /// Lets clients work on a cluster.
    pub fn start_clients(
        &mut self,
        cluster: &Rc<Cluster>,
        may_fail: &Rc<Cell<bool>>,
        operations: u64,
    ) {
        for producer in self.producers.clone() {
            let may_fail = Rc::clone(may_fail);
            let client = Client { producer, may_fail, ..self.client(cluster) };
            let runtime = &cluster.shards[0].runtime;
            runtime.spawn(Box::pin(client.run(operations)));
        }
    }

    /// A client for the test itself.
    pub fn client(&mut self, cluster: &Rc<Cluster>) -> Client {
        Client {
            cluster: Rc::clone(cluster),
            oracle: Rc::clone(&self.oracle),
            producer: Rc::default(),
            random: self.random.fork(),
            mix: self.mix,
            may_fail: Rc::default(),
        }
    }

    /// Power loss, or the end of the process alone.
    pub fn crash(&mut self) {
        self.world.crash();
        let power_loss = self.durability == "power-loss" && self.random.chance(2, 3);
        say(|| format!("crash, power loss: {power_loss}"));
        self.disk = match power_loss {
            true => {
                self.kernel_boots += 1;
                self.disk.crash()
            }
            false => self.disk.kill_process(),
        };
        self.say_tree();
        if self.random.chance(1, 10) {
            self.world.shift_wall_ms(self.random.below(20_000) as i64 - 10_000);
        }
    }

    /// A clean stop: the next boot replays nothing, even after a power loss.
    pub fn stop_clean(&mut self, cluster: &Rc<Cluster>) -> Result<(), String> {
        let stopped =
            self.world.run_until(cluster.stop()).map_err(|stalled| stalled.to_string())?;
        stopped.map_err(|error| format!("no clean stop: {error}"))?;
        self.oracle.borrow().check()?;
        say(|| "clean stop".to_owned());
        self.counts.clean_stops += 1;
        self.crash();
        let cluster = self.boot()?;
        if cluster.batches_replayed > 0 {
            let batches = cluster.batches_replayed;
            return Err(format!("{batches} batches were replayed after a clean stop"));
        }
        self.check(&cluster)?;
        self.crash();
        Ok(())
    }

    /// Boots, perhaps with crashes on the way, and checks everything.
    pub fn boot_and_verify(&mut self) -> Result<Rc<Cluster>, String> {
        let mut crashes = 0;
        while crashes < 4 && self.random.chance(1, 2) {
            crashes += 1;
            self.counts.crashes_in_recovery += 1;
            let steps = match self.random.chance(1, 2) {
                true => self.random.below(60),
                false => self.random.below(600),
            };
            let config = self.config();
            say(|| format!("{steps} steps of a boot with {} shards", config.shards));
            if self.with_faults && self.random.chance(1, 2) {
                self.plan_fault();
                self.counts.faulty_starts += 1;
                // It may well refuse to start.
                let _ = self.boot_for(config, steps);
                self.disk.plan(|plan| plan.rules.clear());
            } else {
                self.boot_for(config, steps)?;
            }
            self.crash();
        }
        let cluster = self.boot()?;
        self.check(&cluster)?;
        Ok(cluster)
    }

    /// Checks a boot against everything that clients know.
    pub fn check(&mut self, cluster: &Rc<Cluster>) -> Result<(), String> {
        if let Some(note) = cluster.notes.first() {
            return Err(format!("recovery notes: {note}"));
        }
        starts::check_files(cluster, &self.logs_on_disk(cluster))?;
        let verified = self.world.run_until(oracle::verify(cluster, &self.oracle));
        verified.map_err(|stalled| stalled.to_string())?
    }

    /// How many segments each partition has on the disk. An empty one at the end of a log of which
    /// nothing is left, or where it was, is none.
    pub fn logs_on_disk(&self, cluster: &Rc<Cluster>) -> BTreeMap<TopicPartition, usize> {
        let medium = self.disk.medium();
        let mut logs = BTreeMap::new();
        for partition in cluster.shards.iter().flat_map(|shard| shard.partitions()) {
            let topic = partition.topic.borrow().name.to_string();
            let data_dir = Path::new(DATA_DIR);
            let path = layout::partition_directory(data_dir, &topic, partition.index());
            let entries = medium.list(&path, false, &[]).unwrap_or_default();
            let start = partition.log.borrow().log_start();
            let segments = entries.iter().filter(|entry| {
                let name = entry.path.file_name().and_then(|name| name.to_str());
                match name.and_then(SegmentFile::parse) {
                    Some((SegmentFile::Log, base)) => entry.length > 0 || base < start,
                    _ => false,
                }
            });
            logs.insert(partition.id, segments.count());
        }
        logs
    }

    /// Tells what is on the disk, when asked to.
    fn say_tree(&self) {
        say(|| {
            let medium = self.disk.medium();
            let entries = medium.list(Path::new(DATA_DIR), true, &[]).unwrap_or_default();
            let files = entries.iter().filter(|entry| !entry.is_directory);
            let lines: Vec<String> =
                files.map(|entry| format!("  {} {}", entry.path.display(), entry.length)).collect();
            lines.join("\n")
        });
    }

    /// Boots to the end, with a number of shards drawn anew.
    pub fn boot(&mut self) -> Result<Rc<Cluster>, String> {
        let config = self.config();
        let cluster = self.boot_as(config)?;
        say(|| {
            let (shards, replayed) = (cluster.shards.len(), cluster.batches_replayed);
            format!("boot {} of {shards} shards, {replayed} batches replayed", cluster.epoch())
        });
        self.counts.boots += 1;
        self.counts.replayed += cluster.batches_replayed;
        Ok(cluster)
    }

    /// Boots to the end with this configuration.
    pub fn boot_as(&mut self, config: BrokerConfig) -> Result<Rc<Cluster>, String> {
        let booted = self.world.run_until(self.booting(config));
        let booted = booted.map_err(|stalled| format!("a boot: {stalled}"))?;
        booted.map(Rc::new).map_err(|what| format!("no boot: {what}"))
    }

    /// Boots for so many steps and no further.
    pub fn boot_for(&mut self, config: BrokerConfig, steps: u64) -> Result<(), String> {
        let failed = Rc::new(RefCell::new(None));
        let (booting, seen) = (self.booting(config), Rc::clone(&failed));
        self.world.runtime(ShardId(0)).spawn(Box::pin(async move {
            if let Err(what) = booting.await {
                seen.replace(Some(what));
            }
        }));
        self.world.run_steps(steps);
        match failed.take() {
            Some(what) => Err(format!("no boot: {what}")),
            None => Ok(()),
        }
    }

    fn booting(
        &self,
        config: BrokerConfig,
    ) -> impl Future<Output = Result<Cluster, String>> + 'static {
        let mut disk: Rc<dyn Disk> = Rc::new(self.disk.clone());
        if let Some(recorder) = &self.recorder {
            disk = Rc::new(RecordingDisk::new(disk, recorder.clone()));
        }
        let runtimes: Vec<Rc<dyn Runtime>> =
            (0..config.shards).map(|shard| self.world.runtime(ShardId(shard))).collect();
        let kernel = format!("kernel-{}", self.kernel_boots);
        machine::boot(disk, runtimes, Arc::new(config), self.mesh, kernel)
    }

    /// The configuration with a number of shards drawn anew.
    pub fn config(&mut self) -> BrokerConfig {
        let shards = 1 + self.random.below(3) as u16;
        let mut extra = vec![("durability", self.durability)];
        extra.extend(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        machine::config(DATA_DIR, shards, &self.ring, &extra)
    }
}

/// Tells what happens, when asked to.
pub fn say(what: impl FnOnce() -> String) {
    if std::env::var_os("RINGLOG_SIM_TRACE").is_some() {
        println!("{}", what());
    }
}
