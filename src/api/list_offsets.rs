//! ListOffsets (key 2), versions 1-11.
//!
//! Behaviour
//! - Timestamps -1 latest, -2 earliest, -3 newest record, -4 earliest local, -5 latest tiered and
//!   -6 earliest pending upload (always unknown: there is no tiered storage), others by time.
//! - A special timestamp that the version does not know: 35 for that partition.
//! - The same partition twice: 42 for it, once. Not this node's: 6.
//! - Isolation level read_committed (v2+) bounds by the last stable offset; replica id -2 by the
//!   log end.
//!
//! Version notes: 2 isolation level; 4 leader epochs; 6 flexible; 7 -3; 8 -4; 9 -5; 10 timeout;
//! 11 -6 (same layout as 10).

use std::collections::HashSet;
use std::rc::Rc;

use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::Response;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ShardId, TopicPartition};
use crate::shard::Shard;
use crate::shard::by_owner::ByOwner;
use crate::shard::message::{OffsetAnswer, OffsetQuery, Operation, Reply};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: ListOffsetsRequest,
) -> Response {
    let version = header.api_version;
    let image = shard.catalog();
    let mut response = ListOffsetsResponse::default();
    let mut by_owner: ByOwner<(usize, usize), OffsetQuery> = ByOwner::default();
    for topic in &request.topics {
        let known = image.topic(&topic.name);
        let mut answers = ListOffsetsTopicResponse::default().with_name(topic.name.clone());
        let twice = asked_twice(&topic.partitions);
        let mut answered = HashSet::new();
        for asked in &topic.partitions {
            let is_twice = twice.contains(&asked.partition_index);
            if is_twice && !answered.insert(asked.partition_index) {
                continue;
            }
            let index = PartitionIndex(asked.partition_index);
            let owner = known.and_then(|topic| topic.owner(index, shard.context.shards));
            let code = match (known, owner) {
                _ if is_twice => ErrorCode::InvalidRequest,
                (Some(known), Some(owner)) if is_served(&shard, owner) => {
                    let query = OffsetQuery {
                        partition: TopicPartition { topic: known.id, partition: index },
                        timestamp: asked.timestamp,
                        leader_epoch: asked.current_leader_epoch,
                        committed_only: request.isolation_level == 1,
                        to_log_end: request.replica_id.0 == DEBUG_CONSUMER,
                        version,
                    };
                    let place = (response.topics.len(), answers.partitions.len());
                    by_owner.add(owner, place, query);
                    ErrorCode::None
                }
                (Some(_), Some(_)) => ErrorCode::NotLeaderOrFollower,
                _ => ErrorCode::UnknownTopicOrPartition,
            };
            answers.partitions.push(answer(version, index, &OffsetAnswer::failed(code)));
        }
        response.topics.push(answers);
    }
    for (owner, places, queries) in by_owner {
        let reply = shard.ask(owner, Operation::ListOffsets(queries)).await;
        let Reply::Offsets(answers) = reply else { continue };
        for ((topic, place), found) in places.into_iter().zip(answers) {
            let told = &mut response.topics[topic].partitions[place];
            *told = answer(version, PartitionIndex(told.partition_index), &found);
        }
    }
    Response::encode(&header, &response)
}

/// Indexes that are there more than once; most requests are for one partition of a topic.
fn asked_twice(partitions: &[ListOffsetsPartition]) -> HashSet<i32> {
    if partitions.len() < 2 {
        return HashSet::new();
    }
    let mut seen = HashSet::new();
    let indexes = partitions.iter().map(|asked| asked.partition_index);
    indexes.filter(|index| !seen.insert(*index)).collect()
}

fn answer(
    version: i16,
    index: PartitionIndex,
    found: &OffsetAnswer,
) -> ListOffsetsPartitionResponse {
    let leader_epoch = if version >= 4 { found.leader_epoch.0 } else { -1 };
    ListOffsetsPartitionResponse::default()
        .with_partition_index(index.0)
        .with_error_code(found.error.code())
        .with_timestamp(found.timestamp)
        .with_offset(found.offset.0)
        .with_leader_epoch(leader_epoch)
}

/// Whether this node answers for partitions of `owner`.
#[must_use]
pub fn is_served(shard: &Shard, owner: ShardId) -> bool {
    owner == shard.id || shard.context.is_single()
}

const DEBUG_CONSUMER: i32 = -2;
