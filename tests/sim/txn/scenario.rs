//! One seed's life of a broker with transactions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ringlog::ids::{ShardId, TopicId};
use ringlog::io::mailbox::MeshLimits;
use ringlog::metadata::image::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use ringlog::metadata::topics::{CreateTopic, automatic};
use ringlog::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use ringlog::sim::Network;

use super::clients::{Client, Place, Surroundings, TIMEOUT_MS_MAX};
use super::oracle::{Counts, Oracle};
use super::readers::{Positions, Reader};
use super::{PARTITIONS, TOPIC};
use crate::machine::Cluster;
use crate::scenario::Machine;

/// What a run leaves: equal for equal seeds.
#[derive(PartialEq, Eq, Debug)]
pub struct Outcome {
    pub event_hash: u64,
    pub counts: Counts,
}

/// A broker's life.
struct Life {
    machine: Machine,
    oracle: Rc<RefCell<Oracle>>,
    places: Vec<Place>,
    positions: Rc<RefCell<Positions>>,
    ids_expire: bool,
    /// The wall clock less the monotonic one, in the boot before.
    clock: i64,
    clock_has_moved: bool,
    with_faults: bool,
    /// The broker was stopped cleanly.
    at_rest: bool,
}

/// Runs one seed, with failing operations of the disk if so wished.
pub fn run(seed: u64, with_faults: bool) -> Result<Outcome, String> {
    let mut life = Life::new(seed, with_faults)?;
    let rounds = 1 + life.machine.random.below(2);
    for _ in 0..rounds {
        life.round()?;
    }
    life.finish()?;
    let counts = life.oracle.borrow().counts;
    Ok(Outcome { event_hash: life.machine.world.event_hash(), counts })
}

impl Life {
    /// A first boot that makes the topics, and ends.
    fn new(seed: u64, with_faults: bool) -> Result<Life, String> {
        let mut machine = Machine::new(seed);
        let random = &mut machine.random;
        let ids_expire = random.chance(1, 5);
        let hold_ms = [0, 20, 1_000][random.index(3)];
        machine.settings = vec![
            ("advertise", "single".to_owned()),
            ("txn_pending_hold_ms", format!("{hold_ms}ms")),
            ("transaction.state.log.num.partitions", "3".to_owned()),
            ("offsets.topic.num.partitions", "2".to_owned()),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", SWEEP_MS.to_string()),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", "100".to_owned()),
        ];
        if ids_expire {
            machine.settings.push(("transactional.id.expiration.ms", "250".to_owned()));
        }
        let queue_messages = [1, 2, 8, 1_000][random.index(4)];
        machine.mesh = MeshLimits { queue_messages, requests_max: [4, 64][random.index(2)] };
        let delay_ns = [0, 100_000, 2_000_000, 20_000_000][random.index(4)];
        machine.world.set_message_delay(delay_ns);
        let ids = 2 + machine.random.index(3);
        let cluster = machine.boot()?;
        let topic = create_topics(&machine, &cluster)?;
        let clock = clock(&cluster);
        machine.crash();
        Ok(Life {
            machine,
            oracle: Rc::new(RefCell::new(Oracle::new(topic))),
            places: (0..ids).map(|_| Place::default()).collect(),
            positions: Rc::default(),
            ids_expire,
            clock,
            clock_has_moved: false,
            with_faults,
            at_rest: false,
        })
    }

    fn round(&mut self) -> Result<(), String> {
        let cluster = self.boot()?;
        let may_fail = Rc::new(Cell::new(false));
        if self.with_faults && self.machine.random.chance(2, 3) {
            self.break_disk(&cluster);
            may_fail.set(true);
            self.oracle.borrow_mut().counts.faulty_boots += 1;
        }
        self.start_clients(&cluster, &may_fail);
        let longest = [500, 1_500, 1_500, 2_500, 2_500, 2_500, 2_500, 6_000];
        let longest = longest[self.machine.random.index(longest.len())];
        let steps = self.machine.random.below(longest);
        self.machine.world.run_steps(steps);
        self.oracle.borrow().check()?;
        let stops = self.machine.random.chance(1, 4);
        if stops {
            let is_faulty = may_fail.replace(true);
            let stopped = self.machine.world.run_until(cluster.stop());
            let stopped = stopped.map_err(|stalled| self.told(&format!("a stop: {stalled}")))?;
            if !is_faulty {
                stopped.map_err(|error| self.told(&format!("no clean stop: {error}")))?;
                self.at_rest = true;
                self.oracle.borrow_mut().counts.clean_stops += 1;
            }
            self.oracle.borrow().check()?;
        }
        self.machine.disk.plan(|plan| {
            plan.rules.clear();
            plan.full = false;
        });
        self.crash();
        Ok(())
    }

    /// Quiet, and then everything must have come to an end.
    fn finish(&mut self) -> Result<(), String> {
        let cluster = self.boot()?;
        let quiet_ms = TIMEOUT_MS_MAX + SWEEP_MS + SETTLE_MS;
        // What a clock says that was put back is not known.
        let quiet_ms = quiet_ms + if self.clock_has_moved { 40_000 } else { 0 };
        let quiet = self.machine.world.run_for(quiet_ms);
        quiet.map_err(|stalled| self.told(&format!("no quiet: {stalled}")))?;
        let may_fail = Rc::default();
        let mut reader = self.reader(&cluster, &may_fail);
        let ids = self.places.len();
        let read = async {
            let logs = reader.read_everything().await?;
            let mut offsets = BTreeMap::new();
            for id in 0..ids {
                match reader.offset(id, true).await {
                    Some(Ok(offset)) => offsets.insert(id, offset),
                    other => return Err(format!("the offset of id {id} is stuck: {other:?}")),
                };
            }
            Ok((logs, offsets))
        };
        let read = self.machine.world.run_until(read);
        let read = read.map_err(|stalled| self.told(&format!("a last read: {stalled}")))?;
        let (logs, offsets) = read.map_err(|what| self.told(&what))?;
        self.oracle.borrow_mut().finish(&logs, &offsets);
        self.oracle.borrow().check()
    }

    /// Boots, perhaps with a crash on the way.
    fn boot(&mut self) -> Result<Rc<Cluster>, String> {
        if self.machine.random.chance(1, 4) {
            let steps = self.machine.random.below(600);
            let config = self.machine.config();
            self.machine.boot_for(config, steps).map_err(|what| self.told(&what))?;
            // It may have gone far enough to end a transaction.
            self.at_rest = false;
            self.crash();
        }
        let cluster = self.machine.boot().map_err(|what| self.told(&what))?;
        if let Some(note) = cluster.notes.first() {
            return Err(self.told(&format!("recovery notes: {note}")));
        }
        let replayed = cluster.batches_replayed;
        if std::mem::take(&mut self.at_rest) && replayed > 0 {
            return Err(self.told(&format!("{replayed} batches replayed after a clean stop")));
        }
        self.oracle.borrow_mut().boot(cluster.shards.len());
        let clock = clock(&cluster);
        if (clock - self.clock).abs() > 5 {
            self.clock = clock;
            self.clock_has_moved = true;
            for place in &self.places {
                if let Some(producer) = place.borrow_mut().as_mut() {
                    producer.excuse();
                }
            }
        }
        Ok(cluster)
    }

    fn crash(&mut self) {
        self.oracle.borrow_mut().trace("crash");
        self.oracle.borrow_mut().counts.crashes += 1;
        self.machine.crash();
    }

    fn start_clients(&mut self, cluster: &Rc<Cluster>, may_fail: &Rc<Cell<bool>>) {
        for (id, place) in self.places.clone().into_iter().enumerate() {
            if self.machine.random.chance(1, 3) {
                // The process has died with the broker.
                place.borrow_mut().take();
            }
            let client = Client {
                around: self.around(cluster, may_fail),
                runtime: self.machine.world.runtime(ShardId(CLIENTS_FROM + id as u16)),
                random: self.machine.random.fork(),
                id,
                place,
                is_zombie: false,
                wire: None,
                copied: false,
            };
            let runtime = Rc::clone(&client.runtime);
            runtime.spawn(Box::pin(client.run(STEPS)));
        }
        for remainder in 0..2 {
            let reader = self.reader(cluster, may_fail);
            let runtime = Rc::clone(&reader.runtime);
            runtime.spawn(Box::pin(reader.run(remainder)));
        }
    }

    fn reader(&mut self, cluster: &Rc<Cluster>, may_fail: &Rc<Cell<bool>>) -> Reader {
        Reader {
            around: self.around(cluster, may_fail),
            runtime: self.machine.world.runtime(ShardId(READERS_FROM)),
            random: self.machine.random.fork(),
            positions: Rc::clone(&self.positions),
            wire: None,
            ids: self.places.len(),
        }
    }

    fn around(&self, cluster: &Rc<Cluster>, may_fail: &Rc<Cell<bool>>) -> Surroundings {
        Surroundings {
            cluster: Rc::clone(cluster),
            network: Network::of(&self.machine.world),
            oracle: Rc::clone(&self.oracle),
            may_fail: Rc::clone(may_fail),
            ids_expire: self.ids_expire,
        }
    }

    /// A failing disk, or a full one for a while.
    fn break_disk(&mut self, cluster: &Rc<Cluster>) {
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

    fn told(&self, what: &str) -> String {
        self.oracle.borrow().with_trace(what)
    }
}

fn clock(cluster: &Cluster) -> i64 {
    let runtime = &cluster.shards[0].runtime;
    runtime.wall_ms() - (runtime.now().0 / 1_000_000).cast_signed()
}

fn create_topics(machine: &Machine, cluster: &Rc<Cluster>) -> Result<TopicId, String> {
    let front = Rc::clone(&cluster.shards[0]);
    let image = front.catalog();
    let data = CreateTopic {
        name: TOPIC.to_owned(),
        num_partitions: PARTITIONS,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: vec![("internal.segment.bytes".to_owned(), Some("16384".to_owned()))],
    };
    let topics = vec![
        automatic(TRANSACTION_STATE, image.broker()),
        automatic(CONSUMER_OFFSETS, image.broker()),
        data,
    ];
    let change = CatalogChange::CreateTopics { topics, validate_only: false, automatic: true };
    let asked = async move { front.ask(ShardId(0), Operation::Catalog(change)).await };
    match machine.world.run_until(asked) {
        Ok(Reply::Catalog(CatalogOutcome::Created(results))) => match results.last() {
            Some(Ok(planned)) => Ok(planned.id),
            other => Err(format!("no topic: {other:?}")),
        },
        other => Err(format!("no topics: {other:?}")),
    }
}

/// Interval at which transactions are looked through for those that timed out.
const SWEEP_MS: u64 = 10;

/// After that, time for markers to be written.
const SETTLE_MS: u64 = 1_000;

/// Steps of one client in one boot, if it lasts as long.
const STEPS: u64 = 400;

/// Clients are on cores of their own.
const CLIENTS_FROM: u16 = 100;
const READERS_FROM: u16 = 200;
