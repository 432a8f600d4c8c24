//! One seed's life of a broker with transactions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ringlog::ids::ShardId;
use ringlog::io::mailbox::MeshLimits;
use ringlog::sim::Network;

use super::clients::{Client, Place, Surroundings, TIMEOUT_MS_MAX};
use super::oracle::{Counts, Oracle};
use super::readers::{Positions, Reader};
use super::topics::{Admin, SPARE_PARTITIONS};
use super::{PARTITIONS, SPARE, TOPIC};
use crate::caller::Caller;
use crate::internal;
use crate::life::{LOADING_MS, Life, clock, create_topics};
use crate::machine::Cluster;
use crate::scenario::Machine;
use crate::seeds::{Outcome, Trouble};

/// A broker's life, and its producers'.
struct Transactions {
    life: Life,
    oracle: Rc<RefCell<Oracle>>,
    places: Vec<Place>,
    positions: Rc<RefCell<Positions>>,
    ids_expire: bool,
    /// The wall clock less the monotonic one, in the boot before.
    clock: i64,
    clock_has_moved: bool,
    trouble: Trouble,
}

/// Runs one seed.
pub fn run(seed: u64, trouble: Trouble) -> Result<Outcome<Counts>, String> {
    let mut all = Transactions::new(seed, trouble)?;
    let rounds = 1 + all.life.machine.random.below(if trouble.compaction { 4 } else { 2 });
    for _ in 0..rounds {
        all.round()?;
    }
    all.finish()?;
    let counts = all.oracle.borrow().counts;
    Ok(Outcome { event_hash: all.life.machine.world.event_hash(), counts })
}

impl Transactions {
    /// A first boot that makes the topics, and ends.
    fn new(seed: u64, trouble: Trouble) -> Result<Transactions, String> {
        let mut machine = Machine::new(seed);
        // Rings that come round are what the storage's own seeds are for; here boots are cheap.
        machine.ring.file_bytes = machine.ring.file_bytes.min(128 * 1024);
        let random = &mut machine.random;
        let ids_expire = random.chance(1, 5);
        let hold_ms = [0, 20, 1_000][random.index(3)];
        machine.settings = vec![
            ("advertise", ["single", "single", "per-core"][random.index(3)].to_owned()),
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
        if trouble.compaction {
            internal::compact(&mut machine);
        }
        let random = &mut machine.random;
        machine.mesh = MeshLimits { queue_messages, requests_max: [4, 64][random.index(2)] };
        let delay_ns = [0, 100_000, 2_000_000, 20_000_000][random.index(4)];
        machine.world.set_message_delay(delay_ns);
        let ids = 2 + machine.random.index(3);
        let cluster = machine.boot()?;
        let names = [(TOPIC, PARTITIONS), (SPARE, SPARE_PARTITIONS)];
        let topics = create_topics(&machine, &cluster, &names)?;
        let clock = clock(&cluster);
        machine.crash();
        Ok(Transactions {
            life: Life::new(machine),
            oracle: Rc::new(RefCell::new(Oracle::new(topics[0]))),
            places: (0..ids).map(|_| Place::default()).collect(),
            positions: Rc::default(),
            ids_expire,
            clock,
            clock_has_moved: false,
            trouble,
        })
    }

    fn round(&mut self) -> Result<(), String> {
        let cluster = self.boot()?;
        let may_fail = Rc::new(Cell::new(false));
        if self.trouble.faults && self.life.machine.random.chance(2, 3) {
            self.life.break_disk(&cluster);
            may_fail.set(true);
            self.oracle.borrow_mut().counts.faulty_boots += 1;
        }
        if self.trouble.compaction {
            internal::keep_at_it(&cluster);
        }
        self.start_clients(&cluster, &may_fail);
        let steps = self.life.steps(&[500, 1_500, 1_500, 2_500, 2_500, 2_500, 2_500, 6_000]);
        self.life.machine.world.run_steps(steps);
        self.oracle.borrow_mut().counts.passes += internal::passes(&cluster);
        self.oracle.borrow().check()?;
        if self.life.machine.random.chance(1, 4) {
            let stopped = self.life.stop(&cluster, &may_fail);
            let clean = stopped.map_err(|what| self.told(&what))?;
            self.oracle.borrow_mut().counts.clean_stops += u64::from(clean);
            self.oracle.borrow().check()?;
        }
        self.crash();
        Ok(())
    }

    /// Quiet, and then everything must have come to an end.
    fn finish(&mut self) -> Result<(), String> {
        let cluster = self.boot()?;
        let quiet_ms = TIMEOUT_MS_MAX + SWEEP_MS + SETTLE_MS;
        // What a clock says that was put back is not known.
        let quiet_ms = quiet_ms + if self.clock_has_moved { 40_000 } else { 0 };
        let quiet = self.life.machine.world.run_for(quiet_ms);
        quiet.map_err(|stalled| self.told(&format!("no quiet: {stalled}")))?;
        self.read_everything(&cluster)?;
        if !self.trouble.compaction {
            return Ok(());
        }
        let cleaned = self.life.rest(&cluster).map_err(|what| self.told(&what))?;
        self.oracle.borrow_mut().counts.passes += cleaned.passes;
        self.oracle.borrow_mut().counts.removed += cleaned.removed;
        self.crash();
        let cluster = self.boot()?;
        let loaded = self.life.machine.world.run_for(LOADING_MS);
        loaded.map_err(|stalled| self.told(&format!("no start: {stalled}")))?;
        self.read_everything(&cluster)
    }

    /// A last read: all must be as the oracle says.
    fn read_everything(&mut self, cluster: &Rc<Cluster>) -> Result<(), String> {
        let may_fail = Rc::default();
        let mut reader = self.reader(cluster, &may_fail);
        let ids = self.places.len();
        let read = async {
            let logs = reader.read_everything().await?;
            reader.check_spare().await?;
            let mut offsets = BTreeMap::new();
            for id in 0..ids {
                match reader.offset(id, true).await {
                    Some(Ok(offset)) => offsets.insert(id, offset),
                    other => return Err(format!("the offset of id {id} is stuck: {other:?}")),
                };
            }
            Ok((logs, offsets))
        };
        let read = self.life.machine.world.run_until(read);
        let read = read.map_err(|stalled| self.told(&format!("a last read: {stalled}")))?;
        let (logs, offsets) = read.map_err(|what| self.told(&what))?;
        self.oracle.borrow_mut().finish(&logs, &offsets);
        self.oracle.borrow().check()
    }

    fn boot(&mut self) -> Result<Rc<Cluster>, String> {
        let oracle = Rc::clone(&self.oracle);
        let crashed = &mut || oracle.borrow_mut().counts.crashes += 1;
        let cluster = self.life.boot(crashed).map_err(|what| self.told(&what))?;
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
        self.oracle.borrow_mut().trace.say("crash");
        self.oracle.borrow_mut().counts.crashes += 1;
        self.life.crash();
    }

    fn start_clients(&mut self, cluster: &Rc<Cluster>, may_fail: &Rc<Cell<bool>>) {
        let restless = Rc::new(Cell::new(false));
        for (id, place) in self.places.clone().into_iter().enumerate() {
            if self.life.machine.random.chance(1, 3) {
                // The process has died with the broker.
                place.borrow_mut().take();
            }
            let client = Client {
                around: self.around(may_fail),
                caller: self.caller(cluster, CLIENTS_FROM + id as u16, &restless),
                id,
                place,
                is_zombie: false,
            };
            let runtime = Rc::clone(&client.caller.runtime);
            runtime.spawn(Box::pin(client.run(STEPS)));
        }
        for remainder in 0..2 {
            let reader = self.reader(cluster, may_fail);
            let runtime = Rc::clone(&reader.caller.runtime);
            runtime.spawn(Box::pin(reader.run(remainder)));
        }
        let admin = Admin {
            around: self.around(may_fail),
            caller: self.caller(cluster, READERS_FROM, &restless),
        };
        let runtime = Rc::clone(&admin.caller.runtime);
        runtime.spawn(Box::pin(admin.run()));
    }

    fn reader(&mut self, cluster: &Rc<Cluster>, may_fail: &Rc<Cell<bool>>) -> Reader {
        Reader {
            around: self.around(may_fail),
            caller: self.caller(cluster, READERS_FROM, &Rc::new(Cell::new(true))),
            positions: Rc::clone(&self.positions),
            ids: self.places.len(),
        }
    }

    fn caller(&mut self, cluster: &Rc<Cluster>, core: u16, calm: &Rc<Cell<bool>>) -> Caller {
        let machine = &mut self.life.machine;
        let (network, random) = (Network::of(&machine.world), machine.random.fork());
        Caller::new(cluster, &network, machine.world.runtime(ShardId(core)), random, calm)
    }

    fn around(&self, may_fail: &Rc<Cell<bool>>) -> Surroundings {
        Surroundings {
            oracle: Rc::clone(&self.oracle),
            may_fail: Rc::clone(may_fail),
            ids_expire: self.ids_expire,
        }
    }

    fn told(&self, what: &str) -> String {
        self.oracle.borrow().trace.told(what)
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
