//! A run from its start to its verdict: the broker behind the proxy, the clients, the nemesis, the
//! logs at rest, the checker.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use crate::checker::{Findings, check};
use crate::cluster::create;
use crate::consumer::Consumer;
use crate::history::{Group, History, Line, Log, What};
use crate::link::Link;
use crate::member::committed;
use crate::nemesis::{Harm, Nemesis};
use crate::plain::Plain;
use crate::processor::Processor;
use crate::proxy::{PROXY_HOST, Proxy};
use crate::random::Random;
use crate::reader;
use crate::run::{EVENTS, LEDGER, Run, TOPICS, logs, logs_of};
use crate::support::broker::{Broker, free_ports};
use crate::transactor::Transactor;

/// The scene of a run.
pub struct Stage {
    seed: u64,
    broker: Broker,
    proxy: Proxy,
    arguments: Vec<String>,
    bootstrap: SocketAddr,
}

/// What a run came to.
pub struct Report {
    pub seconds: u64,
    pub operations: BTreeMap<&'static str, u64>,
    pub harms: BTreeMap<Harm, u64>,
    pub proxy: String,
    pub pauses: u64,
    pub codes: BTreeMap<(&'static str, i16), u64>,
    pub faults: Vec<String>,
    pub findings: Findings,
}

impl Stage {
    pub fn new(seed: u64) -> Stage {
        let first = free_ports(SHARDS_MAX);
        let ports = [
            "--set".to_owned(),
            format!("listen=127.0.0.1:{first}"),
            "--set".to_owned(),
            format!("extra_port_first={}", first + 1),
            "--advertised".to_owned(),
            PROXY_HOST.to_owned(),
        ];
        let arguments = ARGUMENTS.iter().map(|&word| word.to_owned()).chain(ports).collect();
        let broker = match env::var_os("RINGLOG_HISTORY_BROKER") {
            Some(program) => Broker::prepare_program(Path::new(&program), &[]),
            None => Broker::prepare(&[]),
        };
        let proxy = Proxy::start(first..first + SHARDS_MAX);
        let bootstrap = format!("{PROXY_HOST}:{first}").parse().expect("an address");
        Stage { seed, broker, proxy, arguments, bootstrap }
    }

    /// Runs all of it for so long.
    pub fn play(&mut self, time: Duration) -> Report {
        let run = Run::new(self.bootstrap, CLIENTS);
        let began = Instant::now();
        let mut nemesis = Nemesis {
            broker: &mut self.broker,
            proxy: &self.proxy,
            run: &run,
            random: Random::new(self.seed),
            arguments: self.arguments.clone(),
            pausable: (0..CLIENTS - READERS).collect(),
            // A long run is to come to something between two harms.
            calm: if time > LONG { Duration::from_secs(4) } else { Duration::from_secs(1) },
            done: BTreeMap::new(),
        };
        nemesis.start();
        create_topics(nemesis.broker);
        let (rests, offsets) = scope(|scope| {
            let _abandon = Abandon(&run);
            let (writers, readers) = spawn(scope, &run, self.seed);
            let is_sound = || {
                let threads = writers.iter().chain(&readers);
                run.faults().is_empty() && threads.into_iter().all(|one| !one.is_finished())
            };
            nemesis.rage(began + time, is_sound);
            run.end();
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            let mut link = Link::new(&run, CLIENTS - 1);
            let until = Instant::now() + REST_MAX;
            while !reader::is_at_rest(&mut link) {
                assert!(Instant::now() < until, "a transaction is still open");
                sleep(Duration::from_millis(50));
            }
            let offsets = offsets_at_rest(&mut link);
            run.finish();
            readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
            let rests = logs().map(|log| (log, reader::at_rest(&mut link, log))).collect();
            (rests, offsets)
        });
        let history = History { operations: run.take_operations(), rests, offsets };
        Report {
            seconds: began.elapsed().as_secs(),
            operations: counts(&history),
            harms: nemesis.done,
            proxy: format!("{:?}", self.proxy.counts()),
            pauses: run.pauses.load(Ordering::Relaxed),
            codes: run.codes(),
            faults: run.faults().clone(),
            findings: check(&history),
        }
    }
}

type Threads<'scope> = Vec<ScopedJoinHandle<'scope, ()>>;

/// All clients: those that write or belong to groups, and readers.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: &'scope Run,
    seed: u64,
) -> (Threads<'scope>, Threads<'scope>) {
    let mut random = Random::new(seed ^ 0x6869_7374);
    let mut place = 0..CLIENTS;
    let mut next = || (place.next().expect("a place for each"), random.next());
    let mut writers = Vec::new();
    for skew_ms in SKEWS_MS {
        let (client, seed) = next();
        writers.push(scope.spawn(move || Plain::new(run, client, *skew_ms, seed).run()));
    }
    for line in LINES {
        let (client, seed) = next();
        writers.push(scope.spawn(move || Transactor::new(run, client, *line, seed).run()));
    }
    for place in 0..MEMBERS_EACH * GROUPS.len() {
        let (client, seed) = next();
        let group = GROUPS[place % GROUPS.len()];
        writers.push(scope.spawn(move || Consumer::new(run, client, group, seed).run()));
    }
    for (place, group) in PROCESSORS.iter().enumerate() {
        let (client, seed) = next();
        let line = (Line(100 + place as u32), place.is_multiple_of(2));
        let processor = move || Processor::new(run, client, line, *group, seed).run();
        writers.push(scope.spawn(processor));
    }
    let mut readers = Vec::new();
    for is_committed in [true, true, false] {
        let (client, _) = next();
        readers.push(scope.spawn(move || reader::follow(run, client, is_committed)));
    }
    let (client, seed) = next();
    readers.push(scope.spawn(move || reader::wander(run, client, seed)));
    (writers, readers)
}

fn offsets_at_rest(link: &mut Link<'_>) -> BTreeMap<(Group, Log), i64> {
    let process = link.run.process();
    let groups = GROUPS.iter().chain(PROCESSORS);
    let places = groups.flat_map(|(group, topic, _)| logs_of(*topic).map(|log| (*group, log)));
    places
        .map(|(group, log)| {
            let offset = committed(link, group, log, process).expect("the broker answers");
            ((group, log), offset)
        })
        .collect()
}

fn create_topics(broker: &Broker) {
    for (place, &(name, partitions)) in TOPICS.iter().enumerate() {
        let far = [("message.timestamp.after.max.ms", "9000000000000")];
        let settings = if place == usize::from(EVENTS) { &far[..] } else { &[] };
        let answer = broker.connect().call(7, &create(name, i32::from(partitions), settings));
        assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
    }
}

fn counts(history: &History) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for operation in &history.operations {
        let name = match &operation.what {
            What::Send(send) if send.transaction.is_some() => "sends in transactions",
            What::Send(_) => "sends",
            What::Init { .. } => "epochs",
            What::Begin { .. } => "begins",
            What::End { commit: true, .. } => "commits",
            What::End { .. } => "aborts",
            What::Poll(_) => "polls",
            What::Commit(_) => "offset commits",
            What::Committed { .. } => "offsets asked for",
            What::Own(_) => "ownerships",
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

impl Report {
    /// Operations that a broker was asked for.
    pub fn total(&self) -> u64 {
        let own = |name: &&str| matches!(*name, "begins" | "ownerships");
        self.operations.iter().filter(|(name, _)| !own(name)).map(|(_, count)| count).sum()
    }

    /// Panics unless enough happened, harm was done, and nothing was found.
    pub fn assert_sound(&self, operations_min: u64) {
        assert!(self.faults.is_empty(), "{:#?}", self.faults);
        assert!(self.findings.anomalies.is_empty(), "anomalies were found");
        assert!(self.total() >= operations_min, "only {} operations", self.total());
        let harms = self.harms.len();
        assert!(harms >= HARMS_MIN, "only {harms} kinds of harm were done");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} operations in {} s: {:?}", self.total(), self.seconds, self.operations)?;
        writeln!(out, "harm: {:?}, {} clients stood still", self.harms, self.pauses)?;
        writeln!(out, "network: {}", self.proxy)?;
        writeln!(out, "answers other than success: {:?}", self.codes)?;
        writeln!(out, "faults: {:?}", self.faults)?;
        write!(out, "{}", self.findings)
    }
}

/// Lets the others end if this thread does not get to the end.
struct Abandon<'a>(&'a Run);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
            self.0.finish();
        }
    }
}

/// Transactional ids and whether they speak the second protocol: two pairs share one.
const LINES: &[(Line, bool)] = &[
    (Line(0), true),
    (Line(1), false),
    (Line(2), true),
    (Line(3), true),
    (Line(3), true),
    (Line(4), false),
    (Line(4), false),
];
/// Groups that read a topic, and whether they are classic ones.
const GROUPS: &[(Group, u8, bool)] = &[(Group(0), EVENTS, true), (Group(1), LEDGER, false)];
const MEMBERS_EACH: usize = 3;
/// The same of each of the members that make outputs.
const PROCESSORS: &[(Group, u8, bool)] = &[
    (Group(2), EVENTS, true),
    (Group(2), EVENTS, true),
    (Group(3), LEDGER, false),
    (Group(3), LEDGER, false),
    (Group(3), LEDGER, false),
];
/// How far the clocks of plain producers are off.
const SKEWS_MS: &[i64] = &[0, DAY_MS, -DAY_MS, 0, 0];
const READERS: usize = 4;
const CLIENTS: usize =
    SKEWS_MS.len() + LINES.len() + MEMBERS_EACH * GROUPS.len() + PROCESSORS.len() + READERS;
const SHARDS_MAX: u16 = 3;
const DAY_MS: i64 = 86_400_000;
const LONG: Duration = Duration::from_secs(90);
const REST_MAX: Duration = Duration::from_secs(60);
const HARMS_MIN: usize = 9;

/// Sessions and transactions that end soon, small internal topics.
const ARGUMENTS: &[&str] = &[
    "--memory",
    "256MiB",
    "--set",
    "journal.ring.bytes=64MiB",
    "--set",
    "offsets.topic.num.partitions=2",
    "--set",
    "transaction.state.log.num.partitions=2",
    "--set",
    "group.initial.rebalance.delay.ms=0",
    "--set",
    "group.min.session.timeout.ms=500",
    "--set",
    "group.consumer.min.session.timeout.ms=500",
    "--set",
    "group.consumer.session.timeout.ms=2000",
    "--set",
    "group.consumer.min.heartbeat.interval.ms=100",
    "--set",
    "group.consumer.heartbeat.interval.ms=200",
    "--set",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
];
