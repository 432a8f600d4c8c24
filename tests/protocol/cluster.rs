//! The modes a broker runs in, and one shared broker process for each.
//!
//! Owns the processes: they are killed by their ids when the test program ends. Every test gets
//! topics with names of its own, so that tests of one mode run side by side.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;
use kafka_protocol::protocol::StrBytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

/// How a broker presents itself, and on how many shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    pub advertise: &'static str,
    pub shards: usize,
}

pub const PER_CORE_1: Mode = Mode { advertise: "per-core", shards: 1 };
pub const PER_CORE_2: Mode = Mode { advertise: "per-core", shards: 2 };
pub const PER_CORE_5: Mode = Mode { advertise: "per-core", shards: 5 };
pub const SINGLE_2: Mode = Mode { advertise: "single", shards: 2 };
pub const SINGLE_5: Mode = Mode { advertise: "single", shards: 5 };
const MODES: [Mode; 5] = [PER_CORE_1, PER_CORE_2, PER_CORE_5, SINGLE_2, SINGLE_5];

/// A running broker and the mode it is in.
pub struct Cluster {
    pub mode: Mode,
    pub broker: Broker,
}

/// Makes one test per mode of each function, which takes the mode's shared broker.
macro_rules! in_every_mode {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use crate::cluster::{self, Cluster};

            #[test]
            fn per_core_1() {
                super::$name(Cluster::shared(cluster::PER_CORE_1));
            }

            #[test]
            fn per_core_2() {
                super::$name(Cluster::shared(cluster::PER_CORE_2));
            }

            #[test]
            fn per_core_5() {
                super::$name(Cluster::shared(cluster::PER_CORE_5));
            }

            #[test]
            fn single_2() {
                super::$name(Cluster::shared(cluster::SINGLE_2));
            }

            #[test]
            fn single_5() {
                super::$name(Cluster::shared(cluster::SINGLE_5));
            }
        }
    )*};
}

static SHARED: [OnceLock<Cluster>; 5] = [const { OnceLock::new() }; 5];
static TOPICS: AtomicU32 = AtomicU32::new(0);

impl Cluster {
    /// The broker that all tests of a mode share.
    pub fn shared(mode: Mode) -> &'static Cluster {
        let place = MODES.iter().position(|&other| other == mode).expect("a known mode");
        SHARED[place].get_or_init(|| {
            // SAFETY: the handler only signals own children and removes their directories.
            let registered = unsafe { libc::atexit(stop_all) };
            assert_eq!(registered, 0, "an exit handler can be registered");
            Cluster::own(mode)
        })
    }

    /// A broker for one test alone.
    pub fn own(mode: Mode) -> Cluster {
        let shards = mode.shards.to_string();
        let arguments = [
            &["--shards", &shards, "--advertise", mode.advertise][..],
            &["--memory", "256MiB", "--set", "journal.ring.bytes=16MiB"],
            &["--set", "max.incremental.fetch.session.cache.slots=200"],
            &["--set", "group.initial.rebalance.delay.ms=0"],
        ]
        .concat();
        Cluster::with(mode, &arguments)
    }

    /// A broker for one test alone, with these arguments.
    pub fn with(mode: Mode, arguments: &[&str]) -> Cluster {
        Cluster { mode, broker: Broker::start(arguments) }
    }

    /// Whether all shards together are one node.
    pub fn is_single(&self) -> bool {
        self.mode.advertise == "single"
    }

    /// Number of nodes that clients see.
    pub fn nodes(&self) -> usize {
        if self.is_single() { 1 } else { self.mode.shards }
    }

    /// A connection to some node.
    pub fn connect(&self) -> Client {
        self.broker.connect()
    }

    /// A connection to the node with this id.
    pub fn connect_to(&self, node: i32) -> Client {
        self.broker.connect_to(usize::try_from(node).expect("a node id"))
    }

    /// A new topic with its id; the name begins with `stem`.
    pub fn topic(&self, stem: &str, partitions: i32) -> Topic {
        self.topic_with(stem, partitions, &[])
    }

    /// The same with configs of its own.
    pub fn topic_with(&self, stem: &str, partitions: i32, configs: &[(&str, &str)]) -> Topic {
        let name = unique(stem);
        let mut request = requests::create_topic(&name, partitions);
        request.topics[0].configs = configs
            .iter()
            .map(|(name, value)| {
                let text = |text: &str| StrBytes::from_string(text.to_owned());
                CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
            })
            .collect();
        let response = self.connect().call(7, &request);
        let created = &response.topics[0];
        assert_eq!((created.error_code, created.error_message.as_deref()), (0, None), "{name}");
        assert!(!created.topic_id.is_nil());
        Topic { name, id: created.topic_id }
    }

    /// What Metadata says of one topic.
    pub fn describe(&self, name: &str) -> MetadataResponse {
        self.connect().call(12, &requests::metadata(&[name]))
    }

    /// The node that leads a partition.
    pub fn leader(&self, topic: &Topic, partition: i32) -> i32 {
        let response = self.describe(&topic.name);
        assert_eq!(response.topics[0].error_code, 0, "{}", topic.name);
        let found = response.topics[0]
            .partitions
            .iter()
            .find(|described| described.partition_index == partition);
        found.expect("a known partition").leader_id.0
    }

    /// A connection to the leader of a partition.
    pub fn at(&self, topic: &Topic, partition: i32) -> Client {
        self.connect_to(self.leader(topic, partition))
    }

    /// Connections to every node, and in single mode to (most likely) every shard.
    pub fn everywhere(&self) -> Vec<Client> {
        let all = 0..self.mode.shards;
        if self.is_single() {
            all.map(|_| self.connect()).collect()
        } else {
            all.map(|node| self.broker.connect_to(node)).collect()
        }
    }

    /// Where a node listens.
    pub fn address(&self, node: i32) -> SocketAddr {
        self.broker.addresses()[usize::try_from(node).expect("a node id")]
    }
}

/// A name that no other test of this run has.
pub fn unique(stem: &str) -> String {
    format!("{stem}-{}", TOPICS.fetch_add(1, Ordering::Relaxed))
}

/// Statics are never dropped, so the shared processes are ended here.
extern "C" fn stop_all() {
    for cluster in SHARED.iter().filter_map(OnceLock::get) {
        let pid = i32::try_from(cluster.broker.process_id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(cluster.broker.data_directory());
    }
}
