//! OffsetForLeaderEpoch (key 23), versions 2-4.
//!
//! Behaviour
//! - The largest known epoch at or below the one asked for, with its end; (-1, -1) when unknown.
//! - The client's leader epoch is compared: 74 older, 75 newer. Not this node's: 6.
//!
//! Version notes: 3 replica id; 4 flexible.

use std::rc::Rc;

use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::Response;
use super::list_offsets::is_served;
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, PartitionIndex, TopicPartition};
use crate::shard::Shard;
use crate::shard::by_owner::ByOwner;
use crate::shard::message::{EpochAnswer, EpochQuery, Operation, Reply};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: OffsetForLeaderEpochRequest,
) -> Response {
    let image = shard.catalog();
    let mut response = OffsetForLeaderEpochResponse::default();
    let mut by_owner: ByOwner<(usize, usize), EpochQuery> = ByOwner::default();
    for topic in &request.topics {
        let known = image.topic(&topic.topic);
        let mut answers = OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone());
        for asked in &topic.partitions {
            let index = PartitionIndex(asked.partition);
            let owner = known.and_then(|topic| topic.owner(index, shard.context.shards));
            let code = match (known, owner) {
                (Some(known), Some(owner)) if is_served(&shard, owner) => {
                    let query = EpochQuery {
                        partition: TopicPartition { topic: known.id, partition: index },
                        current_leader_epoch: asked.current_leader_epoch,
                        epoch: LeaderEpoch(asked.leader_epoch),
                    };
                    let place = (response.topics.len(), answers.partitions.len());
                    by_owner.add(owner, place, query);
                    ErrorCode::None
                }
                (Some(_), Some(_)) => ErrorCode::NotLeaderOrFollower,
                _ => ErrorCode::UnknownTopicOrPartition,
            };
            answers.partitions.push(answer(index, &EpochAnswer::failed(code)));
        }
        response.topics.push(answers);
    }
    for (owner, places, queries) in by_owner {
        let reply = shard.ask(owner, Operation::EpochEnds(queries)).await;
        let Reply::EpochEnds(answers) = reply else { continue };
        for ((topic, place), found) in places.into_iter().zip(answers) {
            let told = &mut response.topics[topic].partitions[place];
            *told = answer(PartitionIndex(told.partition), &found);
        }
    }
    Response::encode(&header, &response)
}

fn answer(index: PartitionIndex, found: &EpochAnswer) -> EpochEndOffset {
    EpochEndOffset::default()
        .with_partition(index.0)
        .with_error_code(found.error.code())
        .with_leader_epoch(found.epoch.0)
        .with_end_offset(found.end_offset.0)
}
