//! Where partitions are led, and the requests of crash tests.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;
use kafka_protocol::messages::{CreateTopicsRequest, FetchRequest, MetadataResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::support::client::Client;
use crate::support::requests::{self, Topic};

/// What Metadata tells.
#[derive(Clone, Default)]
pub struct Cluster {
    pub topics: HashSet<String>,
    pub ids: HashMap<String, Uuid>,
    pub leaders: HashMap<(String, i32), SocketAddr>,
    /// The leader epoch of all partitions, if there are any.
    pub epoch: Option<i32>,
}

impl Cluster {
    /// Asks for everything.
    pub fn ask(client: &mut Client) -> Cluster {
        Cluster::of(client.call(12, &requests::metadata(&[])))
    }

    /// What an answer says.
    pub fn of(answer: MetadataResponse) -> Cluster {
        let addresses: HashMap<i32, SocketAddr> = (answer.brokers.iter())
            .map(|broker| {
                let address = format!("{}:{}", broker.host.as_str(), broker.port);
                (broker.node_id.0, address.parse().expect("an address"))
            })
            .collect();
        let mut cluster = Cluster::default();
        for topic in answer.topics {
            assert_eq!(topic.error_code, 0);
            let name = topic.name.expect("a name").to_string();
            for partition in topic.partitions {
                assert_eq!(partition.error_code, 0, "{name}-{}", partition.partition_index);
                let address = addresses[&partition.leader_id.0];
                cluster.leaders.insert((name.clone(), partition.partition_index), address);
                let epoch = cluster.epoch.get_or_insert(partition.leader_epoch);
                assert_eq!(*epoch, partition.leader_epoch, "one boot is one epoch");
            }
            cluster.ids.insert(name.clone(), topic.topic_id);
            cluster.topics.insert(name);
        }
        cluster
    }

    /// Where a partition is led.
    pub fn leader(&self, topic: &str, partition: i32) -> SocketAddr {
        self.leaders[&(topic.to_owned(), partition)]
    }
}

/// A fetch of up to 8 MiB.
pub fn large_fetch(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    let mut request = requests::fetch(12, &Topic::named(topic), partition, offset);
    request.max_bytes = 8 << 20;
    request.topics[0].partitions[0].partition_max_bytes = 8 << 20;
    request
}

/// A request to create a topic with settings.
pub fn create(name: &str, partitions: i32, settings: &[(&str, &str)]) -> CreateTopicsRequest {
    let mut request = requests::create_topic(name, partitions);
    let configs = settings.iter().map(|&(key, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(key.to_owned()))
            .with_value(Some(StrBytes::from_string(value.to_owned())))
    });
    request.topics[0].configs = configs.collect();
    request
}
