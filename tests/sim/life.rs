//! What lives of brokers have in common: boots that may crash on the way, disks that fail or are
//! full for a while, clean stops after which nothing is replayed.

use std::cell::Cell;
use std::rc::Rc;

use ringlog::ids::ShardId;
use ringlog::metadata::image::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use ringlog::metadata::topics::{CreateTopic, automatic};
use ringlog::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};

use crate::internal::{self, Cleaned};
use crate::machine::Cluster;
use crate::scenario::Machine;

/// A broker over its boots.
pub struct Life {
    pub machine: Machine,
    /// The broker was stopped cleanly.
    at_rest: bool,
}

impl Life {
    /// A broker that has not been started yet.
    pub fn new(machine: Machine) -> Life {
        Life { machine, at_rest: false }
    }

    /// Boots, perhaps with a crash on the way, which is told.
    pub fn boot(&mut self, crashed: &mut dyn FnMut()) -> Result<Rc<Cluster>, String> {
        if self.machine.random.chance(1, 4) {
            let steps = self.machine.random.below(600);
            let config = self.machine.config();
            self.machine.boot_for(config, steps)?;
            // It may have gone far enough to end a transaction.
            self.at_rest = false;
            crashed();
            self.machine.crash();
        }
        let cluster = self.machine.boot()?;
        if let Some(note) = cluster.notes.first() {
            return Err(format!("recovery notes: {note}"));
        }
        let replayed = cluster.batches_replayed;
        if std::mem::take(&mut self.at_rest) && replayed > 0 {
            return Err(format!("{replayed} batches replayed after a clean stop"));
        }
        Ok(cluster)
    }

    /// Stops the broker as well as it can; whether that was clean.
    pub fn stop(&mut self, cluster: &Rc<Cluster>, may_fail: &Cell<bool>) -> Result<bool, String> {
        let is_faulty = may_fail.replace(true);
        let stopped = self.machine.world.run_until(cluster.stop());
        let stopped = stopped.map_err(|stalled| format!("a stop: {stalled}"))?;
        if is_faulty {
            return Ok(false);
        }
        stopped.map_err(|error| format!("no clean stop: {error}"))?;
        self.at_rest = true;
        Ok(true)
    }

    /// Ends all faults, and the process.
    pub fn crash(&mut self) {
        self.machine.disk.plan(|plan| {
            plan.rules.clear();
            plan.full = false;
        });
        self.machine.crash();
    }

    /// A failing disk, or a full one for a while.
    pub fn break_disk(&mut self, cluster: &Rc<Cluster>) {
        if !self.machine.internal.is_empty() && self.machine.random.chance(1, 2) {
            return internal::plan_cleaner_fault(&mut self.machine);
        }
        if self.machine.random.chance(2, 3) {
            return self.machine.plan_fault();
        }
        let disk = self.machine.disk.clone();
        let runtime = Rc::clone(&cluster.shards[0].runtime);
        let clock = Rc::clone(&runtime);
        let (full_after_ms, for_ms) =
            (self.machine.random.below(60), 5 + self.machine.random.below(300));
        for shard in &cluster.shards {
            shard.checkpoints.request();
        }
        runtime.spawn(Box::pin(async move {
            clock.sleep_until(clock.now().plus_ms(full_after_ms)).await;
            disk.plan(|plan| plan.full = true);
            clock.sleep_until(clock.now().plus_ms(for_ms)).await;
            disk.plan(|plan| plan.full = false);
        }));
    }

    /// Passes come to rest over the internal topics of a broker that nobody uses.
    pub fn rest(&self, cluster: &Rc<Cluster>) -> Result<Cleaned, String> {
        let rested = self.machine.world.run_until(internal::rest(cluster));
        rested.map_err(|stalled| format!("no rest: {stalled}"))?
    }

    /// How many steps of work there are before the next crash.
    pub fn steps(&mut self, longest: &[u64]) -> u64 {
        let longest = longest[self.machine.random.index(longest.len())];
        self.machine.random.below(longest)
    }
}

/// The wall clock of a boot less the monotonic one.
pub fn clock(cluster: &Cluster) -> i64 {
    let runtime = &cluster.shards[0].runtime;
    runtime.wall_ms() - (runtime.now().0 / 1_000_000).cast_signed()
}

/// Creates the coordinators' topics and others; the ids of these.
pub fn create_topics(
    machine: &Machine,
    cluster: &Rc<Cluster>,
    names: &[(&str, i32)],
) -> Result<Vec<ringlog::ids::TopicId>, String> {
    let front = Rc::clone(&cluster.shards[0]);
    let image = front.catalog();
    let mut topics = vec![
        automatic(TRANSACTION_STATE, image.broker()),
        automatic(CONSUMER_OFFSETS, image.broker()),
    ];
    for topic in &mut topics {
        topic.configs.extend(machine.internal.iter().cloned());
    }
    topics.extend(names.iter().map(|&(name, partitions)| small_topic(name, partitions)));
    let change = CatalogChange::CreateTopics { topics, validate_only: false, automatic: true };
    let asked = async move { front.ask(ShardId(0), Operation::Catalog(change)).await };
    match machine.world.run_until(asked) {
        Ok(Reply::Catalog(CatalogOutcome::Created(results))) => {
            let ids = results.into_iter().skip(2).map(|result| match result {
                Ok(planned) => Ok(planned.id),
                Err(error) => Err(format!("no topic: {error:?}")),
            });
            ids.collect()
        }
        other => Err(format!("no topics: {other:?}")),
    }
}

/// Within so long after a start coordinators have loaded what they keep.
pub const LOADING_MS: u64 = 1_000;

/// A topic of small segments.
pub fn small_topic(name: &str, partitions: i32) -> CreateTopic {
    CreateTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: vec![("internal.segment.bytes".to_owned(), Some("16384".to_owned()))],
    }
}
