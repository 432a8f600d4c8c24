//! Faults that users of other brokers and clients reported, one named test each.
//!
//! The references say where; the right answers are those of Apache Kafka, or the plain sense of
//! "acknowledged". Brokers of their own, killed and restarted at will.

#[path = "../support/mod.rs"]
mod support;

#[path = "../conformance/calls.rs"]
mod calls;
#[path = "../conformance/stage.rs"]
mod stage;

mod crashes;
mod fetching;
mod groups;
mod idempotence;
mod transactions;

use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{FetchResponse, ProduceResponse};
use kafka_protocol::protocol::StrBytes;

use support::batch::{Batch, ReadBatch, read_batches};
use support::broker::Broker;
use support::client::Client;
use support::requests::{self, Topic};

/// Two shards, each a node of its own, with small rings.
const ARGUMENTS: [&str; 6] =
    ["--shards", "2", "--memory", "256MiB", "--set", "journal.ring.bytes=64MiB"];

/// A new topic.
fn create(broker: &Broker, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Topic {
    let mut request = requests::create_topic(name, partitions);
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let config = |(name, value): &(&str, &str)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    request.topics[0].configs = configs.iter().map(config).collect();
    let created = broker.connect().call(7, &request).topics[0].clone();
    assert_eq!((created.error_code, created.error_message), (0, None));
    Topic { name: name.to_owned(), id: created.topic_id }
}

/// A connection to the leader of a partition.
fn leader(broker: &Broker, topic: &Topic, partition: i32) -> Client {
    let response = broker.connect().call(12, &requests::metadata(&[&topic.name]));
    let found = response.topics[0].partitions.iter().find(|p| p.partition_index == partition);
    let node = found.expect("a known partition").leader_id.0;
    broker.connect_to(usize::try_from(node).expect("a node id"))
}

fn only_produced(response: ProduceResponse) -> PartitionProduceResponse {
    let mut partitions = response.responses[0].partition_responses.clone();
    assert_eq!((response.responses.len(), partitions.len()), (1, 1));
    partitions.remove(0)
}

/// Code and base offset of a batch produced with acks=-1.
fn outcome(client: &mut Client, topic: &Topic, partition: i32, batch: &Batch) -> (i16, i64) {
    let request = requests::produce(13, topic, partition, -1, batch.encode());
    let answer = only_produced(client.call(13, &request));
    (answer.error_code, answer.base_offset)
}

/// All batches of a partition; offsets have no gap.
fn read_all(client: &mut Client, topic: &Topic, partition: i32) -> Vec<ReadBatch> {
    let mut batches: Vec<ReadBatch> = Vec::new();
    let mut next = 0;
    loop {
        let response = client.call(18, &requests::fetch(18, topic, partition, next));
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code, 0, "at {next}");
        let found = read_batches(data.records.clone().unwrap_or_default());
        if found.is_empty() {
            assert_eq!(next, data.high_watermark, "an empty answer below the end");
            return batches;
        }
        for batch in found {
            assert!(batch.crc_is_valid);
            assert_eq!(batch.base_offset, next, "no gap");
            next += i64::from(batch.last_offset_delta) + 1;
            batches.push(batch);
        }
    }
}

/// Partition, code and records of every partition in a Fetch response.
fn fetched(response: &FetchResponse) -> Vec<(i32, i16, usize)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|data| {
            let batches = read_batches(data.records.clone().unwrap_or_default());
            let count = batches.iter().map(|batch| batch.records.len()).sum();
            (data.partition_index, data.error_code, count)
        })
        .collect()
}
