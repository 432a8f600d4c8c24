//! DescribeProducers (key 61), versions 0-0.
//!
//! Behaviour
//! - Per partition the producers that are known and not expired, ordered by id, with what they have
//!   open. This is how an operator finds transactions that hang (KIP-664).
//! - A name that no topic may have 17, unknown 3, not this node's 6, storage that has failed 56.
//! - The answer waits until what it tells of is durable.

use std::rc::Rc;

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{self, DescribeProducersRequest, DescribeProducersResponse};

use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::list_offsets::is_served;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, TopicPartition};
use crate::journal::image::ProducerRow;
use crate::metadata::topics::{NOT_HOSTED, validate_name};
use crate::shard::Shard;
use crate::shard::by_owner::ByOwner;
use crate::shard::message::{Operation, Reply};
use crate::wire::header::RequestHeader;

/// A partition's place in the response: topic, and partition in it.
type Place = (usize, usize);

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: DescribeProducersRequest,
) -> Response {
    let image = shard.catalog();
    let mut response = DescribeProducersResponse::default();
    let mut by_owner: ByOwner<Place, TopicPartition> = ByOwner::default();
    for topic in &request.topics {
        let known = image.topic(&topic.name);
        let (unknown, sentence) = match validate_name(&topic.name) {
            Ok(()) => (ErrorCode::UnknownTopicOrPartition, NOT_HOSTED.to_owned()),
            Err(sentence) => (ErrorCode::InvalidTopicException, sentence),
        };
        let sentence = known.is_none().then(|| StrBytes::from_string(sentence));
        let mut answers = TopicResponse::default().with_name(topic.name.clone());
        for &asked in &topic.partition_indexes {
            let index = PartitionIndex(asked);
            let owner = known.and_then(|topic| topic.owner(index, shard.context.shards));
            let code = match (known, owner) {
                (Some(known), Some(owner)) if is_served(&shard, owner) => {
                    let id = TopicPartition { topic: known.id, partition: index };
                    let place = (response.topics.len(), answers.partitions.len());
                    by_owner.add(owner, place, id);
                    ErrorCode::None
                }
                (Some(_), Some(_)) => ErrorCode::NotLeaderOrFollower,
                _ => unknown,
            };
            let answer = PartitionResponse::default()
                .with_partition_index(asked)
                .with_error_code(code.code())
                .with_error_message(sentence.clone());
            answers.partitions.push(answer);
        }
        response.topics.push(answers);
    }
    for (owner, places, ids) in by_owner {
        let reply = shard.ask(owner, Operation::DescribeProducers(ids)).await;
        let Reply::Producers(outcomes) = reply else { continue };
        for ((topic, place), outcome) in places.into_iter().zip(outcomes) {
            let partition = &mut response.topics[topic].partitions[place];
            match outcome {
                Ok(rows) => partition.active_producers = rows.iter().map(state).collect(),
                Err(code) => partition.error_code = code.code(),
            }
        }
    }
    Response::encode(&header, &response)
}

fn state(row: &ProducerRow) -> ProducerState {
    let open = row.open_transaction_first_offset.map_or(-1, |first| first.0);
    ProducerState::default()
        .with_producer_id(messages::ProducerId(row.id.0))
        .with_producer_epoch(i32::from(row.epoch.0))
        .with_last_sequence(row.batches.last().map_or(-1, |batch| batch.last_sequence))
        .with_last_timestamp(row.last_timestamp_ms)
        .with_coordinator_epoch(row.coordinator_epoch)
        .with_current_txn_start_offset(open)
}
