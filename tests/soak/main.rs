//! The soak: everything at once for minutes, with `kill -9` of the broker every 20 s.
//!
//! Idempotent producers, transactions that commit, abort and are given up, members of groups, tiny
//! segments, retention by size and by age, compaction, few and small internal segments. After every
//! crash, before anybody goes on, all logs are read back and held against the books; at the end the
//! load comes to rest, compaction and retention finish, and everything is checked once more.
//!
//! `cargo test` runs seconds of it; `tests/soak/run [MINUTES]` runs it for so long (30).
//! `RINGLOG_SOAK_MINUTES` is what that sets; `RINGLOG_SOAK_SEED` repeats choices, not the timing.

#[path = "../support/mod.rs"]
mod support;

#[path = "../crash/cluster.rs"]
#[allow(dead_code, reason = "the crash tests use all of it")]
mod cluster;
#[path = "../crash/random.rs"]
#[allow(dead_code, reason = "the crash tests use all of it")]
mod random;

mod book;
mod disk;
mod mark;
mod members;
mod reader;
mod rest;
mod stage;
mod writers;

use std::time::{Duration, Instant};

use book::{Book, Policy};
use cluster::{Cluster, create};
use disk::Disk;
use members::Member;
use random::Random;
use stage::{Session, Stage, pause};
use support::broker::Broker;
use writers::Writer;

/// Name, partitions, policy, and whether transactions write to it. Both kinds of writers write to
/// compacted ones. Groups read the first.
pub const TOPICS: &[(&str, usize, Policy, bool)] = &[
    ("transfers", 2, Policy::Bytes(400_000), true),
    ("events", 4, Policy::Bytes(300_000), false),
    ("timed", 2, Policy::Ms(4_000), false),
    ("ledger", 2, Policy::Compact, true),
];

#[test]
fn everything_at_once_for_a_while() {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("RINGLOG_SOAK_SEED").unwrap_or(u64::from(std::process::id()));
    println!("RINGLOG_SOAK_SEED={seed}");
    let (time, life) = match number("RINGLOG_SOAK_MINUTES") {
        Some(minutes) => (Duration::from_secs(60 * minutes), Duration::from_secs(20)),
        None => (Duration::from_secs(6), Duration::from_millis(1_500)),
    };
    let logs = TOPICS.iter().flat_map(|&(topic, partitions, policy, _)| {
        (0..partitions as i32).map(move |partition| (topic.to_owned(), partition, policy))
    });
    let stage = Stage::new(Book::new(logs));
    let mut soak = Soak {
        broker: Broker::prepare(&[]),
        disk: Disk::default(),
        random: Random::new(seed),
        crashes: 0,
    };
    soak.load(&stage, time, life);
    soak.finish(&stage);
    let totals = &stage.book().totals;
    println!("{} crashes, {totals:?}, {:?}", soak.crashes, soak.disk);
    assert!(totals.committed > 0 && totals.aborted > 0 && totals.offsets_committed > 0);
    assert!(totals.expired > 0 && totals.compacted > 0 && totals.seen > 0, "{totals:?}");
}

/// The broker, and what is looked at from outside.
struct Soak {
    broker: Broker,
    disk: Disk,
    random: Random,
    crashes: u64,
}

impl Soak {
    /// The load; the broker dies whenever it has lived for `life`.
    fn load(&mut self, stage: &Stage, time: Duration, life: Duration) {
        let end = Instant::now() + time;
        self.start();
        self.create_topics();
        let seed = self.random.next();
        std::thread::scope(|scope| {
            let _abandon = Abandon(stage);
            let mut threads = Vec::new();
            for writer in 1..=3 {
                threads.push(scope.spawn(move || Writer::new(stage, writer, seed).run_plain()));
            }
            for writer in 4..=6 {
                let second = writer != 5;
                let run = move || Writer::new(stage, writer, seed).run_transactions(second);
                threads.push(scope.spawn(run));
            }
            for partition in 0..2 {
                threads.push(scope.spawn(move || Member::new(stage, partition, seed).run()));
            }
            stage.open(self.cluster());
            loop {
                let alive = || threads.iter().all(|thread| !thread.is_finished());
                self.watch(stage, end.min(Instant::now() + life), alive);
                if Instant::now() >= end || !alive() {
                    break;
                }
                self.crash(stage);
            }
            stage.end();
        });
    }

    fn create_topics(&self) {
        for &(name, partitions, policy, _) in TOPICS {
            let own = policy_settings(policy);
            let own = own.iter().map(|(key, value)| (*key, &**value));
            let settings: Vec<(&str, &str)> = own.chain(SETTINGS.iter().copied()).collect();
            let request = create(name, partitions as i32, &settings);
            let answer = self.broker.connect().call(7, &request);
            assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster::ask(&mut self.broker.connect())
    }

    fn start(&mut self) {
        let shards = self.random.pick(&["1", "2", "2", "3"]);
        let durability = self.random.pick(&["power-loss", "power-loss", "process-crash"]);
        let arguments = [&["--shards", shards, "--durability", durability][..], ARGUMENTS].concat();
        self.broker.set_arguments(&arguments);
        self.broker.restart();
    }

    /// Looks at the disk and at the ends of logs until it is time.
    fn watch(&mut self, stage: &Stage, until: Instant, alive: impl Fn() -> bool) {
        let mut session = Session::begin(stage);
        let mut stability = rest::Stability::default();
        while Instant::now() < until && alive() {
            self.disk.look(self.broker.data_directory());
            stability.look(&mut session, stage);
            assert!(self.broker.is_running(), "the broker died by itself");
            let left = until.saturating_duration_since(Instant::now());
            pause(left.as_millis().min(500) as u64);
        }
    }

    /// Kills the broker, starts it again, and checks everything before anybody goes on.
    fn crash(&mut self, stage: &Stage) {
        stage.close();
        self.broker.kill();
        self.crashes += 1;
        self.start();
        let complaints = self.broker.stderr();
        assert!(!complaints.contains("offline"), "{complaints}");
        self.check(stage);
        println!("crash {}: {:?}, {:?}", self.crashes, stage.book().totals, self.disk);
        stage.open(self.cluster());
    }

    /// Reads all logs and holds them against the books.
    fn check(&self, stage: &Stage) {
        let mut session = Session::of(stage, self.cluster());
        let logs = stage.book().logs();
        for (topic, partition, policy) in logs {
            let dense = !matches!(policy, Policy::Compact);
            let found = reader::read(&mut session, &topic, partition, dense);
            stage.book().check(&topic, partition, &found);
        }
    }

    /// Everybody has come to an end: nothing is open, compaction and retention finish their work,
    /// another crash changes nothing, and a clean stop leaves sound files.
    fn finish(&mut self, stage: &Stage) {
        rest::wait_for_stable_ends(&mut Session::of(stage, self.cluster()), stage);
        self.check(stage);
        for crash in [true, false] {
            let mut session = Session::of(stage, self.cluster());
            rest::wait_for_retention(&mut session, self.broker.data_directory());
            rest::wait_for_compaction(&mut session, stage);
            self.check(stage);
            self.disk.look(self.broker.data_directory());
            if crash {
                self.broker.kill();
                self.start();
            }
        }
        let ended = self.broker.terminate();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        disk::verify(self.broker.data_directory());
    }
}

/// Lets the others end if this thread does not get to the end.
struct Abandon<'a>(&'a Stage);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
            self.0.abandon();
        }
    }
}

fn policy_settings(policy: Policy) -> Vec<(&'static str, String)> {
    match policy {
        Policy::Bytes(kept) => {
            vec![("retention.bytes", kept.to_string()), ("retention.ms", "-1".to_owned())]
        }
        Policy::Ms(kept_ms) => vec![("retention.ms", kept_ms.to_string())],
        Policy::Compact => vec![
            ("cleanup.policy", "compact".to_owned()),
            ("min.cleanable.dirty.ratio", "0.1".to_owned()),
            // A reader that takes longer from start to end may miss tombstones.
            ("delete.retention.ms", "2000".to_owned()),
        ],
    }
}

/// Of all topics.
const SETTINGS: &[(&str, &str)] =
    &[("internal.segment.bytes", "60000"), ("file.delete.delay.ms", "200")];

/// A small ring, tasks that never rest, and internal topics of the smallest segments.
const ARGUMENTS: &[&str] = &[
    "--memory",
    "256MiB",
    "--set",
    "journal.ring.bytes=16MiB",
    "--set",
    "log.initial.task.delay.ms=0",
    "--set",
    "log.retention.check.interval.ms=100",
    "--set",
    "log.cleaner.backoff.ms=100",
    "--set",
    "log.segment.delete.delay.ms=200",
    "--set",
    "log.cleaner.delete.retention.ms=1000",
    "--set",
    "offsets.topic.num.partitions=2",
    "--set",
    "offsets.topic.segment.bytes=1048576",
    "--set",
    "transaction.state.log.num.partitions=2",
    "--set",
    "transaction.state.log.segment.bytes=1048576",
    "--set",
    "group.initial.rebalance.delay.ms=0",
];
