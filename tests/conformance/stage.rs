//! What a case runs against: Ringlog in one of its setups, or a real Apache Kafka.
//!
//! Owns the processes and the way to the right node: every request goes where FindCoordinator or
//! Metadata says. A case that restarts its broker, or wants settings of its own, has it alone: of
//! Ringlog a process more, of the one Kafka the only user until the case is over.

#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::IncrementalAlterConfigsRequest;
use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::protocol::Request;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::broker::Broker;
use crate::support::client::{Client, raw_request_frame};
use crate::support::kafka::{self, Kafka};
use crate::support::requests::{self, Topic};
use crate::support::transactions::{find_coordinator, list_transactions, text};

/// Longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(20);
/// Resource type of a broker's settings.
const BROKER_RESOURCE: i8 = 4;
/// Between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(5);
/// Settings that Kafka takes while it runs: its starts are slow.
const DYNAMIC: [&str; 2] =
    ["producer.id.expiration.ms", "transaction.partition.verification.enable"];
/// Sweeps of all sides run this often, so that no case waits long for one.
const SWEEPS: [(&str, &str); 4] = [
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", "200"),
    ("producer.id.expiration.check.interval.ms", "200"),
    ("log.cleaner.backoff.ms", "200"),
];

/// How Ringlog presents itself, on how many shards, and whether it holds requests that meet a
/// pending transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    pub advertise: &'static str,
    pub shards: usize,
    pub holds: bool,
}

pub const ONE_SHARD: Setup = Setup { advertise: "per-core", shards: 1, holds: true };
pub const TWO_SHARDS: Setup = Setup { advertise: "per-core", shards: 2, holds: true };
pub const SINGLE: Setup = Setup { advertise: "single", shards: 2, holds: true };
pub const ONE_SHARD_EXACT: Setup = Setup { holds: false, ..ONE_SHARD };
pub const TWO_SHARDS_EXACT: Setup = Setup { holds: false, ..TWO_SHARDS };
pub const SINGLE_EXACT: Setup = Setup { holds: false, ..SINGLE };
const SETUPS: [Setup; 6] =
    [ONE_SHARD, TWO_SHARDS, SINGLE, ONE_SHARD_EXACT, TWO_SHARDS_EXACT, SINGLE_EXACT];

/// Broker settings, by key.
pub type Settings = &'static [(&'static str, &'static str)];

/// What a case needs of its broker.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    /// Nothing that others would notice.
    Shared,
    /// It restarts it, or wants these settings.
    Alone(Settings),
}

/// How a broker is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    Clean,
    Kill,
}

/// A broker under test.
pub struct Stage {
    setup: Option<Setup>,
    settings: Settings,
    server: RefCell<Server>,
    /// Those that the case has made, with their numbers of partitions.
    topics: RefCell<Vec<(String, i32)>>,
    links: RefCell<HashMap<i32, Client>>,
    coordinators: RefCell<HashMap<(i8, String), i32>>,
    leaders: RefCell<HashMap<(String, i32), i32>>,
}

enum Server {
    Shared(&'static Broker),
    Own(Broker),
    KafkaShared(RwLockReadGuard<'static, Slot>),
    KafkaAlone(RwLockWriteGuard<'static, Slot>),
}

/// The one Kafka of this run, and what it was started with.
struct Slot {
    kafka: Option<Kafka>,
    properties: Vec<(String, String)>,
    /// Keys that were altered since.
    altered: Vec<&'static str>,
}

static KAFKA: RwLock<Slot> =
    RwLock::new(Slot { kafka: None, properties: Vec::new(), altered: Vec::new() });
static SHARED: [OnceLock<Broker>; 6] = [const { OnceLock::new() }; 6];
static NAMES: AtomicU32 = AtomicU32::new(0);

/// Runs a case against Kafka, unless that is left out.
pub fn on_kafka(needs: Needs, case: impl Fn(&Stage)) {
    if kafka::is_skipped() {
        return;
    }
    let server = match needs {
        Needs::Shared => Server::KafkaShared(shared_kafka()),
        Needs::Alone(settings) => {
            let mut slot = KAFKA.write().unwrap_or_else(PoisonError::into_inner);
            slot.ready(settings);
            slot.alter(settings);
            Server::KafkaAlone(slot)
        }
    };
    case(&Stage::of(None, needs, server));
}

/// Runs a case against Ringlog.
pub fn on_ringlog(setup: Setup, needs: Needs, case: impl Fn(&Stage)) {
    let server = match needs {
        Needs::Shared => {
            let place = SETUPS.iter().position(|&other| other == setup).expect("a known setup");
            Server::Shared(SHARED[place].get_or_init(|| {
                // SAFETY: the handler only signals own children and removes their directories.
                let registered = unsafe { libc::atexit(stop_all) };
                assert_eq!(registered, 0, "an exit handler can be registered");
                start_ringlog(setup, &[])
            }))
        }
        Needs::Alone(settings) => Server::Own(start_ringlog(setup, settings)),
    };
    case(&Stage::of(Some(setup), needs, server));
}

/// Looks again and again until `look` finds something; panics if it never does.
pub fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::park_timeout(PAUSE);
    }
}

/// A name that nothing else in this run has.
pub fn unique(stem: &str) -> String {
    let run = std::process::id();
    format!("{stem}-{run}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

impl Stage {
    fn of(setup: Option<Setup>, needs: Needs, server: Server) -> Stage {
        let settings = match needs {
            Needs::Shared => &[],
            Needs::Alone(settings) => settings,
        };
        Stage {
            setup,
            settings,
            server: RefCell::new(server),
            topics: RefCell::default(),
            links: RefCell::default(),
            coordinators: RefCell::default(),
            leaders: RefCell::default(),
        }
    }

    /// Whether this is a real Kafka.
    pub fn is_kafka(&self) -> bool {
        self.setup.is_none()
    }

    /// Whether a request that meets a pending transition is held, so that 51 is never seen.
    pub fn holds(&self) -> bool {
        self.setup.is_some_and(|setup| setup.holds)
    }

    /// Stops the broker and starts it again on the same data.
    pub fn restart(&self, stop: Stop) {
        self.restart_after(stop, |_| {});
    }

    /// The same, with something done to the directory that holds the partitions in between.
    pub fn restart_after(&self, stop: Stop, change: impl FnOnce(&Path)) {
        match &mut *self.server.borrow_mut() {
            Server::Own(broker) => {
                match stop {
                    Stop::Clean => assert_eq!(broker.terminate().code, Some(0)),
                    Stop::Kill => broker.kill(),
                }
                change(&broker.data_directory().join("topics"));
                broker.restart();
            }
            Server::KafkaAlone(slot) => {
                let before = leader_epochs(slot.address());
                slot.stop(stop);
                change(&kafka_directory().join("data"));
                slot.start();
                slot.await_leaders(&before);
            }
            _ => panic!("a case that restarts its broker has it alone"),
        }
        self.forget();
        if self.is_kafka() {
            for (topic, partitions) in &*self.topics.borrow() {
                self.await_served(topic, *partitions);
            }
        }
        // Produce would answer 19, which is 51 as well.
        for node in self.nodes() {
            await_some("coordinators have loaded", || {
                let response = self.call(node, 0, &list_transactions(&[], &[]));
                (response.error_code == 0).then_some(())
            });
        }
    }

    /// Further `serve` arguments from the next start on. Of Ringlog only.
    pub fn add_arguments(&self, arguments: &[&str]) {
        match &mut *self.server.borrow_mut() {
            Server::Own(broker) => {
                let setup = self.setup.expect("Ringlog");
                let usual = ringlog_arguments(setup, self.settings);
                let usual: Vec<&str> = usual.iter().map(String::as_str).collect();
                broker.set_arguments(&[&usual[..], arguments].concat());
            }
            _ => panic!("only an own broker has arguments"),
        }
    }

    /// A new topic of the broker's usual settings.
    pub fn topic(&self, stem: &str, partitions: i32) -> Topic {
        self.topic_with(stem, partitions, &[])
    }

    /// A new topic.
    pub fn topic_with(&self, stem: &str, partitions: i32, configs: &[(&str, &str)]) -> Topic {
        let name = unique(stem);
        let mut request = requests::create_topic(&name, partitions);
        request.topics[0].configs = configs
            .iter()
            .map(|(key, value)| {
                CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
            })
            .collect();
        let response = self.call(self.any_node(), 7, &request);
        let created = &response.topics[0];
        assert_eq!((created.error_code, created.error_message.as_deref()), (0, None), "{name}");
        let topic = Topic { name, id: created.topic_id };
        self.await_served(&topic.name, partitions);
        self.topics.borrow_mut().push((topic.name.clone(), partitions));
        topic
    }

    fn await_served(&self, topic: &str, partitions: i32) {
        for partition in 0..partitions {
            let request = requests::list_offsets(topic, partition, -1);
            self.eventually_in_kafka("a partition is served", || {
                let response = self.call(self.leader(topic, partition), 5, &request);
                response.topics[0].partitions[0].error_code
            });
        }
    }

    /// The node that leads a partition.
    pub fn leader(&self, topic: &str, partition: i32) -> i32 {
        let key = (topic.to_owned(), partition);
        if let Some(node) = self.leaders.borrow().get(&key) {
            return *node;
        }
        let mut node = -1;
        self.eventually_in_kafka("a partition has a leader", || {
            let response = self.call(self.any_node(), 12, &requests::metadata(&[topic]));
            let partitions = &response.topics[0].partitions;
            let found = partitions.iter().find(|found| found.partition_index == partition);
            node = found.map_or(-1, |found| found.leader_id.0);
            found.map_or(response.topics[0].error_code, |found| found.error_code)
        });
        self.leaders.borrow_mut().insert(key, node);
        node
    }

    /// The node that coordinates a group or a transactional id.
    pub fn coordinator(&self, key_type: i8, key: &str) -> i32 {
        let place = (key_type, key.to_owned());
        if let Some(node) = self.coordinators.borrow().get(&place) {
            return *node;
        }
        let mut node = -1;
        self.eventually_in_kafka("a key has a coordinator", || {
            let request = find_coordinator(key_type, key);
            let found = &self.call(self.any_node(), 4, &request).coordinators[0];
            node = found.node_id.0;
            found.error_code
        });
        self.coordinators.borrow_mut().insert(place, node);
        node
    }

    /// Number of partitions of a topic.
    pub fn partitions_of(&self, topic: &str) -> i32 {
        let response = self.call(self.any_node(), 12, &requests::metadata(&[topic]));
        assert_eq!(response.topics[0].error_code, 0, "{topic}");
        i32::try_from(response.topics[0].partitions.len()).expect("few partitions")
    }

    /// Every node, by id.
    pub fn nodes(&self) -> Vec<i32> {
        self.addresses().into_iter().map(|(node, _)| node).collect()
    }

    /// A connection of its own to a node.
    pub fn connect(&self, node: i32) -> Client {
        let addresses = self.addresses();
        let found = addresses.iter().find(|(other, _)| *other == node);
        Client::connect(found.unwrap_or_else(|| panic!("no node {node}: {addresses:?}")).1)
    }

    /// Sends a request to a node and waits for the answer.
    pub fn call<R: Request>(&self, node: i32, version: i16, request: &R) -> R::Response {
        self.with_link(node, |client| client.call(version, request))
    }

    /// The same with a body of which the codec library does not know the version; the answer is
    /// read in the newest layout that it knows.
    pub fn call_raw<R: Request>(&self, node: i32, version: i16, body: &[u8]) -> R::Response {
        let header = R::header_version(version.min(R::VERSIONS.max));
        let frame = raw_request_frame(R::KEY, version, header, 1, Some(b"raw-client"), body);
        let answer: Bytes = self.with_link(node, |client| {
            client.send_frame(&frame);
            client.receive_frame()
        });
        crate::support::client::decode_response::<R>(version, 1, answer)
            .unwrap_or_else(|error| panic!("API {} v{version}: {error}", R::KEY))
    }

    /// Some node.
    pub fn any_node(&self) -> i32 {
        self.addresses()[0].0
    }

    /// Asks until the answer is 0: after a start or a creation Kafka is not there at once. Ringlog
    /// is, but for the loading of a coordinator (14).
    pub fn eventually_in_kafka(&self, what: &str, mut ask: impl FnMut() -> i16) {
        await_some(what, || {
            let code = ask();
            let may_wait = self.is_kafka() || code == 14;
            assert!(code == 0 || may_wait, "{what}: {code}");
            (code == 0).then_some(())
        });
    }

    fn addresses(&self) -> Vec<(i32, SocketAddr)> {
        let broker = |broker: &Broker| (0..).zip(broker.addresses().iter().copied()).collect();
        match &*self.server.borrow() {
            Server::Shared(shared) => broker(shared),
            Server::Own(own) => broker(own),
            Server::KafkaShared(slot) => vec![(1, slot.address())],
            Server::KafkaAlone(slot) => vec![(1, slot.address())],
        }
    }

    fn with_link<T>(&self, node: i32, exchange: impl FnOnce(&mut Client) -> T) -> T {
        let kept = self.links.borrow_mut().remove(&node);
        let mut client = kept.unwrap_or_else(|| self.connect(node));
        let answer = exchange(&mut client);
        self.links.borrow_mut().insert(node, client);
        answer
    }

    fn forget(&self) {
        self.links.borrow_mut().clear();
        self.coordinators.borrow_mut().clear();
        self.leaders.borrow_mut().clear();
    }
}

impl Slot {
    fn address(&self) -> SocketAddr {
        self.kafka.as_ref().expect("Kafka runs").address
    }

    fn runs_with(&self, properties: &[(String, String)]) -> bool {
        self.kafka.is_some() && self.properties == properties && self.altered.is_empty()
    }

    /// Makes it run with these settings beside the usual ones, but for those that are altered.
    fn ready(&mut self, settings: Settings) {
        let back: Vec<_> = self.altered.drain(..).map(|key| (key, None)).collect();
        if self.kafka.is_some() {
            alter(self.address(), &back);
        }
        let properties = kafka_properties(settings);
        if !self.runs_with(&properties) {
            self.stop(Stop::Clean);
            self.properties = properties;
            self.start();
        }
    }

    fn alter(&mut self, settings: Settings) {
        let dynamic = settings.iter().filter(|(key, _)| DYNAMIC.contains(key));
        let changes: Vec<_> = dynamic.map(|&(key, value)| (key, Some(value))).collect();
        self.altered = changes.iter().map(|(key, _)| *key).collect();
        alter(self.address(), &changes);
    }

    fn start(&mut self) {
        self.kafka = Some(Kafka::start_on(&kafka_directory(), &self.properties));
    }

    /// Waits until every partition has a leader of a later epoch. Before that a new Kafka takes its
    /// old partitions for its own for a moment, and then leads none of them for another.
    fn await_leaders(&self, before: &HashMap<(String, i32), i32>) {
        await_some("all partitions are led again", || {
            let now = leader_epochs(self.address());
            let led = |(partition, epoch): (&(String, i32), &i32)| {
                now.get(partition).is_some_and(|now| now > epoch)
            };
            before.iter().all(led).then_some(())
        });
    }

    fn stop(&mut self, stop: Stop) {
        match (self.kafka.take(), stop) {
            (Some(kafka), Stop::Kill) => kafka.kill(),
            (kafka, _) => drop(kafka),
        }
    }
}

/// The Kafka of all cases that do not care, running with the usual settings.
fn shared_kafka() -> RwLockReadGuard<'static, Slot> {
    let usual = kafka_properties(&[]);
    loop {
        let slot = KAFKA.read().unwrap_or_else(PoisonError::into_inner);
        if slot.runs_with(&usual) {
            return slot;
        }
        drop(slot);
        KAFKA.write().unwrap_or_else(PoisonError::into_inner).ready(&[]);
    }
}

/// The leader epoch of every partition that has a leader.
fn leader_epochs(address: SocketAddr) -> HashMap<(String, i32), i32> {
    let response = Client::connect(address).call(12, &requests::metadata(&[]));
    let mut epochs = HashMap::new();
    for topic in &response.topics {
        let name = topic.name.as_ref().map_or("", |name| &*name.0);
        for partition in topic.partitions.iter().filter(|partition| partition.leader_id.0 >= 0) {
            epochs.insert((name.to_owned(), partition.partition_index), partition.leader_epoch);
        }
    }
    epochs
}

/// Alters the cluster's defaults; `None` takes an alteration back.
fn alter(address: SocketAddr, changes: &[(&'static str, Option<&'static str>)]) {
    if changes.is_empty() {
        return;
    }
    let configs = changes.iter().map(|(key, value)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(i8::from(value.is_none()))
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(BROKER_RESOURCE)
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = Client::connect(address).call(1, &request);
    let answer = &response.responses[0];
    assert_eq!((answer.error_code, answer.error_message.as_deref()), (0, None));
}

fn kafka_properties(settings: Settings) -> Vec<(String, String)> {
    // Names without a dot are Ringlog's own.
    let at_start = settings.iter().filter(|(key, _)| key.contains('.') && !DYNAMIC.contains(key));
    let all = SWEEPS.iter().chain(at_start);
    all.map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// New for every run.
fn kafka_directory() -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance-kafka");
        let _ = std::fs::remove_dir_all(&path);
        path
    });
    directory.clone()
}

fn start_ringlog(setup: Setup, settings: Settings) -> Broker {
    let arguments = ringlog_arguments(setup, settings);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Broker::start(&arguments)
}

fn ringlog_arguments(setup: Setup, settings: Settings) -> Vec<String> {
    let shards = setup.shards.to_string();
    let usual = ["--shards", &shards, "--advertise", setup.advertise, "--memory", "128MiB"];
    let mut arguments: Vec<String> = usual.iter().map(|&word| word.to_owned()).collect();
    let own = [("journal.ring.bytes", "16MiB")];
    let exact = [("txn_pending_hold_ms", "0")];
    let exact = exact.iter().filter(|_| !setup.holds);
    for (key, value) in own.iter().chain(exact).chain(&SWEEPS).chain(settings) {
        arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
    }
    arguments
}

/// Statics are never dropped, so the shared processes are ended here.
extern "C" fn stop_all() {
    for broker in SHARED.iter().filter_map(OnceLock::get) {
        let pid = i32::try_from(broker.process_id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(broker.data_directory());
    }
}
