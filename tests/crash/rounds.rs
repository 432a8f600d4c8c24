//! `kill -9` at random moments under mixed load, over and over on one data directory.
//!
//! Between rounds the number of shards, the durability mode and the way shards appear change; some
//! starts are killed as well, and some rounds end with SIGTERM. After every start all logs are read
//! back and held against the ledger, then every idempotent producer sends its last batches again.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::churn::{CHURN, churn};
use crate::cluster::{Cluster, create};
use crate::ledger::{Fate, Ledger, read_log};
use crate::load::{Load, Producer, Route, consume};
use crate::random::Random;
use crate::support::broker::Broker;
use crate::support::requests;

#[test]
fn nothing_acknowledged_is_lost_or_moved_by_kill_9() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let rounds = number("RINGLOG_CRASH_ROUNDS", 20);
    let seed = number("RINGLOG_CRASH_SEED", u64::from(std::process::id()));
    println!("RINGLOG_CRASH_SEED={seed}");
    let begun = Instant::now();
    let mut world = World::new(seed);
    for round in 0..rounds {
        world.start(round);
        world.verify(round);
        world.renew_topics();
        world.load_and_kill(round);
    }
    world.start(rounds);
    world.verify(rounds);
    let ledger = world.load.ledger();
    println!(
        "{rounds} rounds in {:.1?}: {} acknowledgements, {} MiB sent; of the batches without an \
         acknowledgement {} were there after the crash, {} not; {} starts killed, {} clean stops",
        begun.elapsed(),
        ledger.acknowledged,
        ledger.bytes >> 20,
        ledger.unacknowledged.0,
        ledger.unacknowledged.1,
        world.starts_killed,
        world.clean_stops,
    );
}

struct World {
    broker: Broker,
    random: Random,
    load: Load,
    producers: Vec<Producer>,
    producer_ids: HashSet<i64>,
    topics_made: usize,
    stopped_cleanly: bool,
    starts_killed: usize,
    clean_stops: usize,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            broker: Broker::prepare(&[]),
            random: Random::new(seed),
            load: Load {
                cluster: Cluster::default(),
                ledger: Mutex::new(Ledger::default()),
                numbers: AtomicU64::new(0),
                ending: AtomicBool::new(false),
            },
            producers: Vec::new(),
            producer_ids: HashSet::new(),
            topics_made: 0,
            stopped_cleanly: true,
            starts_killed: 0,
            clean_stops: 0,
        }
    }

    /// Starts the broker, with other settings than before; sometimes it is killed on the way.
    fn start(&mut self, round: u64) {
        let random = &mut self.random;
        let shards = random.pick(&["1", "2", "3", "5"]);
        let advertise = random.pick(&["per-core", "per-core", "single"]);
        let durability = random.pick(&["power-loss", "process-crash"]);
        let interval = random.pick(&["20ms", "100ms", "10min"]);
        let checkpoints = format!("checkpoint_interval_ms={interval}");
        let arguments = [
            &["--shards", shards, "--advertise", advertise, "--durability", durability][..],
            &["--set", &checkpoints],
            SETTINGS,
        ]
        .concat();
        println!("round {round}: {shards} shards, {advertise}, {durability}, {checkpoints}");
        while self.random.one_in(4) {
            self.kill_while_starting(&arguments);
        }
        self.broker.set_arguments(&arguments);
        self.broker.restart();
        let recovered = self.broker.stdout().contains("recovered");
        assert!(!(self.stopped_cleanly && recovered), "a clean stop leaves nothing to replay");
        let epoch = self.load.cluster.epoch;
        self.load.cluster = Cluster::ask(&mut self.broker.connect());
        assert!(self.load.cluster.epoch.is_none_or(|now| epoch.is_none_or(|before| before < now)));
        self.load.ending.store(false, Ordering::SeqCst);
    }

    fn kill_while_starting(&mut self, arguments: &[&str]) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringlog"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(self.broker.data_directory())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the broker");
        pause(self.random.between(1, 400));
        child.kill().expect("an own child");
        child.wait().expect("an own child");
        self.starts_killed += 1;
    }

    /// Holds everything that is served against the ledger, then sends again what clients would.
    fn verify(&mut self, round: u64) {
        let load = &self.load;
        load.ledger().verify_topics(&load.cluster.topics);
        let existing = load.ledger().existing();
        for name in existing {
            let partitions = load.ledger().topics[&name].partitions.len() as i32;
            for partition in 0..partitions {
                let shard = load.cluster.leader(&name, partition);
                let mut client = crate::support::client::Client::connect(shard);
                let log = read_log(&mut client, &name, partition);
                load.ledger().verify(&name, partition, &log);
            }
        }
        for producer in &mut self.producers {
            producer.send_again(load);
        }
        let complaints = self.broker.stderr();
        assert!(!complaints.contains("offline"), "round {round}: {complaints}");
    }

    /// Replaces topics that have grown large, so that reading everything back stays quick.
    fn renew_topics(&mut self) {
        let mut client = self.broker.connect();
        let existing = self.load.ledger().existing();
        for name in existing.iter().filter(|name| !name.starts_with(CHURN)) {
            if self.load.ledger().topics[name].bytes < TOPIC_BYTES_MAX {
                continue;
            }
            let answer = client.call(6, &requests::delete_topic_state(name));
            assert_eq!(answer.responses[0].error_code, 0);
            self.load.ledger().set_fate(name, Fate::Deleted);
            for producer in &mut self.producers {
                producer.routes.retain(|route| route.topic != *name);
            }
        }
        for (kind, partitions, settings) in KINDS {
            let there = self.load.ledger().existing();
            if there.iter().any(|name| name.starts_with(kind)) {
                continue;
            }
            self.topics_made += 1;
            let name = format!("{kind}-{}", self.topics_made);
            self.load.ledger().creating(&name, *partitions);
            let answer = client.call(7, &create(&name, *partitions as i32, settings));
            assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
            self.load.ledger().set_fate(&name, Fate::Exists);
        }
        self.load.cluster = Cluster::ask(&mut client);
        self.renew_producers();
    }

    fn renew_producers(&mut self) {
        self.producers.retain(|producer| !producer.routes.is_empty());
        if self.producers.len() == PRODUCERS {
            // Somebody always leaves for good.
            self.producers.remove(0);
        }
        while self.producers.len() < PRODUCERS {
            let idempotent = !self.random.one_in(3);
            let identity = idempotent.then(|| self.new_identity());
            let first_sequence = self.random.pick(&[0, 0, i32::MAX - 10]);
            let routes = self.stable_partitions();
            let mut routes: Vec<Route> = routes
                .into_iter()
                .filter(|_| self.random.one_in(3))
                .map(|(topic, partition)| Route {
                    largest: if topic.starts_with(WIDE) { 1900 << 10 } else { 200 << 10 },
                    topic,
                    partition,
                    next_sequence: first_sequence,
                    recent: Default::default(),
                })
                .collect();
            routes.truncate(6);
            if routes.is_empty() {
                continue;
            }
            let depth = self.random.between(1, 6);
            let random = Random::new(self.random.next());
            self.producers.push(Producer { identity, routes, depth, random });
        }
    }

    fn new_identity(&mut self) -> (i64, i16) {
        let answer = self.broker.connect().call(4, &requests::init_producer_id(None));
        assert_eq!(answer.error_code, 0);
        assert!(self.producer_ids.insert(answer.producer_id.0), "a producer id is given out once");
        (answer.producer_id.0, answer.producer_epoch)
    }

    fn stable_partitions(&self) -> Vec<(String, i32)> {
        let leaders = self.load.cluster.leaders.keys();
        let mut stable: Vec<_> =
            leaders.filter(|(topic, _)| !topic.starts_with(CHURN)).cloned().collect();
        stable.sort();
        stable
    }

    fn load_and_kill(&mut self, round: u64) {
        let stable = self.stable_partitions();
        let terminate = self.random.one_in(8);
        let after_ms = self.random.between(20, 401);
        let seeds: [u64; 3] = std::array::from_fn(|_| self.random.next());
        let address = self.broker.addresses()[0];
        let producers = std::mem::take(&mut self.producers);
        let load = &self.load;
        let broker = &mut self.broker;
        self.producers = std::thread::scope(|scope| {
            let threads: Vec<_> =
                producers.into_iter().map(|producer| scope.spawn(|| producer.run(load))).collect();
            scope.spawn(|| churn(load, address, &mut Random::new(seeds[0])));
            scope.spawn(|| consume(load, &stable, &mut Random::new(seeds[1])));
            scope.spawn(|| consume(load, &stable, &mut Random::new(seeds[2])));
            pause(after_ms);
            assert!(broker.is_running(), "round {round}: the broker died by itself");
            println!("{}", broker.stderr());
            load.ending.store(true, Ordering::SeqCst);
            if terminate {
                let ended = broker.terminate();
                assert_eq!(ended.code, Some(0), "{ended:#?}");
            } else {
                broker.kill();
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, Producer>| match thread.join() {
                Ok(producer) => producer,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        self.stopped_cleanly = terminate;
        self.clean_stops += usize::from(terminate);
    }
}

/// Lets time pass: the moment of a crash is what is tried here.
fn pause(milliseconds: usize) {
    let end = Instant::now() + Duration::from_millis(milliseconds as u64);
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

/// A small ring: it is half full, and checkpointed, within a round.
const SETTINGS: &[&str] = &[
    "--memory",
    "256MiB",
    "--set",
    "journal.ring.bytes=8MiB",
    "--set",
    "auto.create.topics.enable=false",
];

const WIDE: &str = "wide";

/// Name, partitions and settings of topics.
type Kind = (&'static str, usize, &'static [(&'static str, &'static str)]);

/// The topics under load.
const KINDS: &[Kind] = &[
    ("narrow", 4, &[("segment.bytes", "1048576"), ("retention.ms", "-1")]),
    (
        WIDE,
        2,
        &[("segment.bytes", "4194304"), ("max.message.bytes", "2097152"), ("retention.ms", "-1")],
    ),
    ("many", 12, &[("segment.bytes", "1048576"), ("retention.ms", "-1")]),
];

const PRODUCERS: usize = 5;

const TOPIC_BYTES_MAX: u64 = 16 << 20;
