//! One seed's life of a broker with groups.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use ringlog::ids::ShardId;
use ringlog::io::mailbox::MeshLimits;
use ringlog::sim::Network;

use super::consumer::Wanted;
use super::member::{Client, Surroundings};
use super::oracle::{Counts, Oracle};
use super::tools::Tool;
use super::transactions::TRANSACTION_MS;
use super::{
    BY_HAND, CLASSIC, CONSUMER, FIRST_TOPIC, MIXED, TOPICS, classic, consumer, partitions_of,
};
use crate::caller::Caller;
use crate::internal;
use crate::life::{LOADING_MS, Life, clock, create_topics};
use crate::machine::Cluster;
use crate::scenario::Machine;
use crate::seeds::{Outcome, Trouble};

/// A broker's life, and its members'.
struct Groups {
    life: Life,
    oracle: Rc<RefCell<Oracle>>,
    classic: Vec<classic::Place>,
    consumers: Vec<consumer::Place>,
    /// Of the group whose members speak the one protocol or the other.
    mixed: Vec<consumer::Place>,
    session_ms: u64,
    trouble: Trouble,
    /// The wall clock less the monotonic one, in the first boot.
    clock: i64,
}

/// Runs one seed.
pub fn run(seed: u64, trouble: Trouble) -> Result<Outcome<Counts>, String> {
    let mut groups = Groups::new(seed, trouble)?;
    let rounds = 1 + groups.life.machine.random.below(3);
    for _ in 0..rounds {
        groups.round()?;
    }
    groups.finish()?;
    let counts = groups.oracle.borrow().counts;
    Ok(Outcome { event_hash: groups.life.machine.world.event_hash(), counts })
}

impl Groups {
    /// A first boot that makes the topics, and ends.
    fn new(seed: u64, trouble: Trouble) -> Result<Groups, String> {
        let mut machine = Machine::new(seed);
        // Rings that come round are what the storage's own seeds are for; here boots are cheap.
        machine.ring.file_bytes = machine.ring.file_bytes.min(128 * 1024);
        let random = &mut machine.random;
        let session_ms = [400, 600][random.index(2)];
        let advertise = ["single", "per-core"][random.index(2)];
        machine.settings = vec![
            ("advertise", advertise.to_owned()),
            ("offsets.topic.num.partitions", "2".to_owned()),
            ("transaction.state.log.num.partitions", "2".to_owned()),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10".to_owned()),
            ("group.min.session.timeout.ms", "100".to_owned()),
            ("group.initial.rebalance.delay.ms", ["0", "20"][random.index(2)].to_owned()),
            ("group.consumer.min.session.timeout.ms", "100".to_owned()),
            ("group.consumer.session.timeout.ms", session_ms.to_string()),
            ("group.consumer.min.heartbeat.interval.ms", "10".to_owned()),
            ("group.consumer.heartbeat.interval.ms", "50".to_owned()),
            ("group.consumer.min.assignment.interval.ms", "0".to_owned()),
            ("group.consumer.assignment.interval.ms", ["0", "50"][random.index(2)].to_owned()),
        ];
        let queue_messages = [1, 2, 8, 1_000][random.index(4)];
        if trouble.compaction {
            internal::compact(&mut machine);
        }
        let random = &mut machine.random;
        machine.mesh = MeshLimits { queue_messages, requests_max: [4, 64][random.index(2)] };
        let delay_ns = [0, 100_000, 2_000_000, 20_000_000][random.index(4)];
        machine.world.set_message_delay(delay_ns);
        let cluster = machine.boot()?;
        create_topics(&machine, &cluster, &[(FIRST_TOPIC, 3)])?;
        let clock = clock(&cluster);
        machine.crash();
        let oracle: Rc<RefCell<Oracle>> = Rc::default();
        let random = &mut machine.random;
        let mut instance = |at: usize| random.chance(1, 3).then(|| format!("instance-{at}"));
        let of_classic = (0..3).map(|at| classic::Process::of(instance(at)));
        let classic = of_classic.map(|process| Rc::new(RefCell::new(process))).collect();
        let of_consumers = (0..3).map(|at| {
            let id = oracle.borrow_mut().name("member");
            let wanted = [Wanted::First, Wanted::Both, Wanted::Pattern][at % 3];
            consumer::Process::of(instance(at), id, wanted)
        });
        let consumers = of_consumers.map(|process| Rc::new(RefCell::new(process))).collect();
        let of_mixed = (0..4).map(|at| {
            let id = oracle.borrow_mut().name("member");
            let wanted = [Wanted::First, Wanted::Both, Wanted::Pattern][at % 3];
            let process = consumer::Process::of(None, id, wanted);
            if at % 2 == 0 { process.speaking_classic() } else { process }
        });
        let mixed = of_mixed.map(|process| Rc::new(RefCell::new(process))).collect();
        let life = Life::new(machine);
        Ok(Groups { life, oracle, classic, consumers, mixed, session_ms, trouble, clock })
    }

    fn round(&mut self) -> Result<(), String> {
        let cluster = self.boot()?;
        let (may_fail, calm): (Rc<Cell<bool>>, Rc<Cell<bool>>) = Default::default();
        if self.trouble.faults && self.life.machine.random.chance(2, 3) {
            self.life.break_disk(&cluster);
            may_fail.set(true);
            self.oracle.borrow_mut().counts.faulty_boots += 1;
        }
        if self.trouble.compaction {
            internal::keep_at_it(&cluster);
        }
        self.start(&cluster, &may_fail, &calm);
        let steps = self.life.steps(&[500, 2_000, 4_000, 4_000, 8_000]);
        self.life.machine.world.run_steps(steps);
        self.oracle.borrow_mut().counts.passes += internal::passes(&cluster);
        self.oracle.borrow().trace.check()?;
        if self.life.machine.random.chance(1, 4) {
            let stopped = self.life.stop(&cluster, &may_fail);
            let clean = stopped.map_err(|what| self.told(&what))?;
            self.oracle.borrow_mut().counts.clean_stops += u64::from(clean);
            self.oracle.borrow().trace.check()?;
        }
        self.crash();
        Ok(())
    }

    /// Calm, and then every group must be at rest and every offset be there.
    fn finish(&mut self) -> Result<(), String> {
        let cluster = self.boot()?;
        let may_fail = Rc::default();
        let calm = Rc::new(Cell::new(true));
        self.start(&cluster, &may_fail, &calm);
        let quiet = self.life.machine.world.run_for(QUIET_MS);
        quiet.map_err(|stalled| self.told(&format!("no calm: {stalled}")))?;
        self.oracle.borrow().trace.check()?;
        // A pattern that is looked up again just now moves a group to its next epoch.
        let mut looked = self.check_rest(&cluster);
        for _ in 0..LOOKS_MORE {
            if looked.is_err() {
                let quiet = self.life.machine.world.run_for(LOOK_MS);
                quiet.map_err(|stalled| self.told(&format!("no calm: {stalled}")))?;
                looked = self.check_rest(&cluster);
            }
        }
        looked?;
        self.read_offsets(&cluster)?;
        if !self.trouble.compaction {
            return Ok(());
        }
        self.crash();
        let cluster = self.boot()?;
        // A clock that was put back ends transactions later, and nothing beyond an open one is
        // cleaned.
        let ended = self.life.machine.world.run_for(CLOCKS_MOVE_MS_MAX);
        ended.map_err(|stalled| self.told(&format!("no calm: {stalled}")))?;
        let cleaned = self.life.rest(&cluster).map_err(|what| self.told(&what))?;
        self.oracle.borrow_mut().counts.passes += cleaned.passes;
        self.oracle.borrow_mut().counts.removed += cleaned.removed;
        self.crash();
        let cluster = self.boot()?;
        let loaded = self.life.machine.world.run_for(LOADING_MS);
        loaded.map_err(|stalled| self.told(&format!("no start: {stalled}")))?;
        self.read_offsets(&cluster)
    }

    /// Whether every group is at rest.
    fn check_rest(&self, cluster: &Rc<Cluster>) -> Result<(), String> {
        self.check_classic(cluster)?;
        self.check_consumers(cluster, CONSUMER, &self.consumers)?;
        self.check_consumers(cluster, MIXED, &self.mixed)
    }

    /// A last read: every offset is there.
    fn read_offsets(&mut self, cluster: &Rc<Cluster>) -> Result<(), String> {
        let (may_fail, calm) = (Rc::default(), Rc::new(Cell::new(true)));
        let keys = self.oracle.borrow().offsets.keys();
        // Nobody can say when a transaction ends by a clock that has moved.
        let stable = (clock(cluster) - self.clock).abs() <= 5;
        let mut tool = Tool { client: self.client(cluster, (&may_fail, &calm), BY_HAND, "last") };
        let read = async move {
            for key in keys {
                if !tool.fetch(&key, stable).await {
                    return Err(format!("the offset of {key:?} is not told"));
                }
            }
            Ok(())
        };
        let read = self.life.machine.world.run_until(read);
        let read = read.map_err(|stalled| self.told(&format!("a last read: {stalled}")))?;
        read.map_err(|what| self.told(&what))?;
        self.oracle.borrow().trace.check()
    }

    fn check_classic(&self, cluster: &Rc<Cluster>) -> Result<(), String> {
        let members = self.classic.iter().map(|place| place.borrow().clone());
        let members: Vec<classic::Process> = members.collect();
        let generations: BTreeSet<_> = members.iter().map(|member| member.generation).collect();
        let mut has: Vec<i32> =
            members.iter().flat_map(|member| member.assigned.clone().unwrap_or_default()).collect();
        has.sort_unstable();
        let now = partitions_of(cluster, FIRST_TOPIC);
        let all: Vec<i32> = (0..now).collect();
        let is_old = members.iter().any(|member| self.is_unaware(member, now));
        let assigned = members.iter().all(|member| has.iter().copied().eq(0..member.total));
        if generations.len() == 1 && (has == all || (is_old && assigned)) {
            return Ok(());
        }
        Err(self
            .told(&format!("{CLASSIC} is not at rest: {generations:?} have {has:?} of {all:?}")))
    }

    /// Whether a static member leads whose process is another since it assigned, and cannot know
    /// that there were fewer partitions then: before version 9 it is not told that it leads, and
    /// from there on it is told to keep what was assigned (KIP-814). Then nobody has the group
    /// assigned anew, with Kafka neither, until somebody comes or goes.
    fn is_unaware(&self, member: &classic::Process, now: i32) -> bool {
        let Some(generation) = member.generation else { return false };
        let oracle = self.oracle.borrow();
        oracle.owners.is_leader_again(CLASSIC, generation, &member.who())
            && member.led.is_none_or(|led| led == now)
    }

    fn check_consumers(
        &self,
        cluster: &Rc<Cluster>,
        group: &str,
        places: &[consumer::Place],
    ) -> Result<(), String> {
        let members = places.iter().map(|place| place.borrow().clone());
        let members: Vec<consumer::Process> = members.collect();
        let epochs: BTreeSet<i32> = members.iter().map(|member| member.epoch).collect();
        let owned = members.iter().flat_map(|member| member.owned.keys().copied());
        let mut has: Vec<_> = owned.collect();
        has.sort_unstable();
        let image = cluster.shards[0].catalog();
        let of_topic = |name: &str| {
            let topic = image.topic(name);
            topic.map_or(Vec::new(), |topic| {
                (0..topic.partition_count()).map(|partition| (topic.id, partition)).collect()
            })
        };
        let [first, second] = TOPICS.map(of_topic);
        let mut all = [first.clone(), second].concat();
        all.sort_unstable();
        // What a pattern stands for is looked up every ten seconds at most.
        let mut speakers = members.iter().filter(|member| !member.speaks_classic());
        let any_names_both = speakers.clone().any(|member| member.wanted == Wanted::Both);
        // Whose assignment goes on after a downgrade does not know that it leads.
        let is_classic = speakers.next().is_none();
        let is_old = is_classic && has.len() >= 3 && first.starts_with(&has);
        let is_unaware = members.iter().any(consumer::Process::may_have_more)
            && has.is_sorted_by(|one, next| one < next)
            && has.iter().all(|place| all.contains(place));
        let has_enough = has == all || (!any_names_both && has == first) || is_old || is_unaware;
        if epochs.len() == 1 && has_enough {
            return Ok(());
        }
        Err(self.told(&format!("{group} is not at rest: {epochs:?} have {has:?} of {all:?}")))
    }

    fn boot(&mut self) -> Result<Rc<Cluster>, String> {
        let oracle = Rc::clone(&self.oracle);
        let crashed = &mut || oracle.borrow_mut().counts.crashes += 1;
        let cluster = self.life.boot(crashed).map_err(|what| self.told(&what))?;
        self.oracle.borrow_mut().boot(cluster.shards.len());
        for place in self.consumers.iter().chain(&self.mixed) {
            place.borrow_mut().boot();
        }
        Ok(cluster)
    }

    fn crash(&mut self) {
        self.oracle.borrow_mut().trace.say("crash");
        self.oracle.borrow_mut().counts.crashes += 1;
        self.life.crash();
    }

    fn start(&mut self, cluster: &Rc<Cluster>, may_fail: &Rc<Cell<bool>>, calm: &Rc<Cell<bool>>) {
        for (at, place) in self.classic.clone().into_iter().enumerate() {
            let client = self.client(cluster, (may_fail, calm), CLASSIC, &format!("c{at}"));
            let runtime = Rc::clone(&client.caller.runtime);
            let member = classic::Member { client, place, zombie_steps: None };
            runtime.spawn(Box::pin(member.run()));
        }
        let of = |group, stem: &str, places: &[consumer::Place]| {
            let named = places.iter().enumerate();
            let named = named.map(|(at, place)| (group, format!("{stem}{at}"), Rc::clone(place)));
            named.collect::<Vec<_>>()
        };
        let places = [of(CONSUMER, "k", &self.consumers), of(MIXED, "x", &self.mixed)].concat();
        for (group, name, place) in places {
            let client = self.client(cluster, (may_fail, calm), group, &name);
            let runtime = Rc::clone(&client.caller.runtime);
            let session_ms = self.session_ms;
            let member = consumer::Member { client, place, zombie_steps: None, session_ms };
            runtime.spawn(Box::pin(member.run()));
        }
        for at in 0..2 {
            let client = self.client(cluster, (may_fail, calm), BY_HAND, &format!("tool{at}"));
            let runtime = Rc::clone(&client.caller.runtime);
            runtime.spawn(Box::pin(Tool { client }.run()));
        }
    }

    fn client(
        &mut self,
        cluster: &Rc<Cluster>,
        (may_fail, calm): (&Rc<Cell<bool>>, &Rc<Cell<bool>>),
        group: &str,
        name: &str,
    ) -> Client {
        let machine = &mut self.life.machine;
        let network = Network::of(&machine.world);
        let runtime = machine.world.runtime(ShardId(CLIENTS));
        let random = machine.random.fork();
        Client {
            around: Surroundings { oracle: Rc::clone(&self.oracle), may_fail: Rc::clone(may_fail) },
            caller: Caller::new(cluster, &network, runtime, random, calm),
            group: group.to_owned(),
            name: name.to_owned(),
        }
    }

    fn told(&self, what: &str) -> String {
        self.oracle.borrow().trace.told(what)
    }
}

/// How long it takes until members that are gone are given up, and the others have settled.
const QUIET_MS: u64 = 2_500 + TRANSACTION_MS as u64;

/// More than the wall clock has moved in a life.
const CLOCKS_MOVE_MS_MAX: u64 = 40_000;

/// Looks at groups that were not at rest at the first.
const LOOKS_MORE: u64 = 2;

/// Between two of them members send several heartbeats.
const LOOK_MS: u64 = 300;

/// Clients are on a core of their own.
const CLIENTS: u16 = 100;
