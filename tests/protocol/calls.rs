//! One request about one partition, and the one answer to it.

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProduceResponse};

use crate::cluster::Cluster;
use crate::support::batch::{Batch, ReadBatch, read_batches};
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

/// Produces a record set with acks=-1.
pub fn produce(
    client: &mut Client,
    version: i16,
    topic: &Topic,
    partition: i32,
    set: Bytes,
) -> PartitionProduceResponse {
    let request = requests::produce(version, topic, partition, -1, set);
    only_produced(client.call(version, &request), partition)
}

/// The one partition of a Produce response.
pub fn only_produced(response: ProduceResponse, partition: i32) -> PartitionProduceResponse {
    assert_eq!(response.throttle_time_ms, 0);
    assert_eq!(response.responses.len(), 1);
    let mut partitions = response.responses[0].partition_responses.clone();
    assert_eq!(partitions.len(), 1);
    let answer = partitions.remove(0);
    assert_eq!(answer.index, partition);
    answer
}

/// Appends a batch that must be taken; returns its base offset.
pub fn append(client: &mut Client, topic: &Topic, partition: i32, batch: &Batch) -> i64 {
    let answer = produce(client, 13, topic, partition, batch.encode());
    assert_eq!(answer.error_code, 0, "{answer:?}");
    answer.base_offset
}

/// Code and base offset of a batch.
pub fn outcome(client: &mut Client, topic: &Topic, partition: i32, batch: &Batch) -> (i16, i64) {
    let answer = produce(client, 13, topic, partition, batch.encode());
    (answer.error_code, answer.base_offset)
}

/// Fetches at once what there is.
pub fn fetch(
    client: &mut Client,
    version: i16,
    topic: &Topic,
    partition: i32,
    offset: i64,
) -> PartitionData {
    let request = requests::fetch(version, topic, partition, offset);
    only_fetched(client.call(version, &request), partition)
}

/// The one partition of a Fetch response without a session.
pub fn only_fetched(response: FetchResponse, partition: i32) -> PartitionData {
    assert_eq!((response.error_code, response.throttle_time_ms, response.session_id), (0, 0, 0));
    assert_eq!(response.responses.len(), 1);
    let mut partitions = response.responses[0].partitions.clone();
    assert_eq!(partitions.len(), 1);
    let data = partitions.remove(0);
    assert_eq!(data.partition_index, partition);
    data
}

/// Partition, code and number of records of every partition in a Fetch response.
pub fn fetched(response: &FetchResponse) -> Vec<(i32, i16, usize)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|data| {
            let records = data.records.clone().unwrap_or_default();
            let count: i32 = read_batches(records).iter().map(|batch| batch.record_count).sum();
            (data.partition_index, data.error_code, usize::try_from(count).expect("a count"))
        })
        .collect()
}

/// A Fetch that waits up to `wait_ms` for `min_bytes`.
pub fn waiting(mut request: FetchRequest, wait_ms: i32, min_bytes: i32) -> FetchRequest {
    request.max_wait_ms = wait_ms;
    request.min_bytes = min_bytes;
    request
}

/// All batches from `offset` to the end, fetched piece by piece.
pub fn read_all(client: &mut Client, topic: &Topic, partition: i32, offset: i64) -> Vec<ReadBatch> {
    let mut batches = Vec::new();
    let mut next = offset;
    loop {
        let data = fetch(client, 18, topic, partition, next);
        assert_eq!(data.error_code, 0, "at {next}");
        let found = read_batches(data.records.unwrap_or_default());
        let Some(last) = found.last() else {
            assert_eq!(next, data.high_watermark, "an empty answer below the end");
            return batches;
        };
        next = last.base_offset + i64::from(last.last_offset_delta) + 1;
        batches.extend(found);
    }
}

/// ListOffsets of one partition.
pub fn list(
    client: &mut Client,
    version: i16,
    topic: &Topic,
    partition: i32,
    timestamp: i64,
) -> ListOffsetsPartitionResponse {
    let request = requests::list_offsets(&topic.name, partition, timestamp);
    let response = client.call(version, &request);
    assert_eq!((response.topics.len(), response.topics[0].partitions.len()), (1, 1));
    assert_eq!(response.topics[0].name.as_str(), topic.name);
    let answer = response.topics[0].partitions[0].clone();
    assert_eq!(answer.partition_index, partition);
    answer
}

/// The end of a partition.
pub fn end(client: &mut Client, topic: &Topic, partition: i32) -> i64 {
    let answer = list(client, 7, topic, partition, -1);
    assert_eq!((answer.error_code, answer.timestamp), (0, -1));
    answer.offset
}

/// The leader epoch that Metadata tells.
pub fn leader_epoch(cluster: &Cluster, topic: &Topic) -> i32 {
    cluster.describe(&topic.name).topics[0].partitions[0].leader_epoch
}
