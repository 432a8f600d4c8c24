//! OffsetDelete (key 47), versions 0-0.
//!
//! Behaviour
//! - The coordinator's error stands at the top, and then there are no topics: the empty group id
//!   24, a group that nobody knows 69, another node's group 16, loading 14, a group with members
//!   that are no consumers 68.
//! - A topic that consumers of the group read: 86.
//! - A topic or partition that does not exist: 3. A partition without an offset: no error.
//! - Pending offsets of open transactions go too. Answered when durable.

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::Response;
use super::offset_commit::{AskedOffset, AskedTopic, Split};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;
use crate::shard::Shard;
use crate::shard::group_offsets::{self, DeleteOffsets, OffsetsReply, OffsetsRequest};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: OffsetDeleteRequest,
) -> Response {
    let group: Arc<str> = Arc::from(request.group_id.as_str());
    let image = shard.catalog();
    let mut split = Split::default();
    for topic in request.topics {
        let known = image.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition);
        let asked = AskedTopic { name: topic.name, id: TopicId::ZERO };
        let partitions = topic.partitions.into_iter().map(|partition| AskedOffset {
            partition: partition.partition_index,
            offset: -1,
            leader_epoch: -1,
            metadata: None,
        });
        split.topic(&asked, known, None, partitions);
    }
    let partitions: Vec<_> =
        split.offsets.drain(..).map(|named| (named.topic, named.partition)).collect();
    let outcome = delete(&shard, group, partitions).await;
    let answer = OffsetDeleteResponse::default();
    let answer = match outcome {
        Err(code) => answer.with_error_code(code.code()),
        Ok(codes) => {
            let topics = split.answered(codes).into_iter().map(|(topic, codes)| {
                let partitions = codes.into_iter().map(|(partition, code)| {
                    OffsetDeleteResponsePartition::default()
                        .with_partition_index(partition)
                        .with_error_code(code.code())
                });
                OffsetDeleteResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions.collect())
            });
            answer.with_topics(topics.collect())
        }
    };
    Response::encode(&header, &answer)
}

async fn delete(
    shard: &Rc<Shard>,
    group: Arc<str>,
    partitions: Vec<(Arc<str>, i32)>,
) -> Result<Vec<ErrorCode>, ErrorCode> {
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let question = DeleteOffsets { group: Arc::clone(&group), partitions };
    match group_offsets::ask(shard, &group, OffsetsRequest::Delete(question)).await? {
        OffsetsReply::Codes(codes) => Ok(codes),
        _ => Err(ErrorCode::UnknownServerError),
    }
}
