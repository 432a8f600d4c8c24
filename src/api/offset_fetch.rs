//! OffsetFetch (key 9), versions 1-10.
//!
//! Behaviour
//! - A group, topic or partition without an offset: offset -1, leader epoch -1, metadata "" and no
//!   error. Whether a topic exists matters only where it is named by id (v10): 100, after the
//!   others.
//! - No topics (null, v2 on): every partition that has a committed offset; from v10 on without
//!   topics that do not exist.
//! - `require_stable` (v7 on): 88 where a transaction has committed an offset and is open.
//! - Another node's group, or no `__consumer_offsets` yet: 16. Loading: 14. The error stands at the
//!   partitions in v1, at the top in v2-7, at the group in v8 on; from v2 on without topics.
//! - It leaves when the newest offset it was computed from is durable.
//!
//! Version notes: 2 all topics, top error; 3 throttle; 5 leader epoch (KIP-320); 6 flexible;
//! 7 require stable (KIP-447); 8 several groups; 9 members (KIP-848); 10 topic ids.

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::coordinator::group::offsets::{FoundOffset, FoundTopic, WantedTopic};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;
use crate::metadata::Image;
use crate::shard::Shard;
use crate::shard::group_offsets::{self, FetchOffsets, OffsetsReply, OffsetsRequest};
use crate::wire::header::RequestHeader;
use crate::wire::offsets::TOPIC_IDS_SINCE;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: OffsetFetchRequest,
) -> Response {
    let version = header.api_version;
    if version >= GROUPS_SINCE {
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            groups.push(fetch_group(&shard, version, group, request.require_stable).await);
        }
        let response = OffsetFetchResponse::default().with_groups(groups);
        return Response::encode(&header, &response);
    }
    let wanted: Option<Vec<WantedTopic>> = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| WantedTopic {
            topic: Arc::from(topic.name.as_str()),
            topic_id: TopicId::ZERO,
            partitions: topic.partition_indexes,
        });
        topics.collect()
    });
    let nobody = (None, -1);
    let found =
        fetch(&shard, &request.group_id, wanted.clone(), request.require_stable, nobody).await;
    let (topics, code) = match found {
        Ok(topics) => (topics, ErrorCode::None),
        Err(code) if version >= TOP_ERROR_SINCE => (Vec::new(), code),
        Err(code) => (refused(wanted.unwrap_or_default(), code), ErrorCode::None),
    };
    let topics = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|found| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(found.partition)
                .with_committed_offset(found.offset)
                .with_committed_leader_epoch(if version >= 5 { found.leader_epoch } else { -1 })
                .with_metadata(Some(text(&found.metadata)))
                .with_error_code(found.error.code())
        });
        OffsetFetchResponseTopic::default()
            .with_name(TopicName(text(&topic.topic)))
            .with_partitions(partitions.collect())
    });
    let response =
        OffsetFetchResponse::default().with_topics(topics.collect()).with_error_code(code.code());
    Response::encode(&header, &response)
}

async fn fetch_group(
    shard: &Rc<Shard>,
    version: i16,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> OffsetFetchResponseGroup {
    let image = shard.catalog();
    let by_id = version >= TOPIC_IDS_SINCE;
    let mut unknown = Vec::new();
    let wanted = group.topics.map(|topics| {
        let mut wanted = Vec::with_capacity(topics.len());
        for topic in topics {
            let id = TopicId::from(topic.topic_id);
            let name = match image.topic_by_id(id) {
                _ if !by_id => Arc::from(topic.name.as_str()),
                Some(known) => Arc::clone(&known.name),
                None => Arc::from(""),
            };
            let is_unknown = by_id && name.is_empty();
            let topic_id = if by_id { id } else { TopicId::ZERO };
            let topic = WantedTopic { topic: name, topic_id, partitions: topic.partition_indexes };
            if is_unknown { unknown.push(topic) } else { wanted.push(topic) }
        }
        wanted
    });
    let answer = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
    let is_all = wanted.is_none();
    let member_id = group.member_id.as_ref().map(|id| Arc::from(id.as_str()));
    let member = (member_id, group.member_epoch);
    match fetch(shard, &group.group_id, wanted, require_stable, member).await {
        Err(code) => answer.with_error_code(code.code()),
        Ok(mut topics) => {
            if is_all && by_id {
                topics = with_ids(topics, &image);
            }
            topics.extend(refused(unknown, ErrorCode::UnknownTopicId));
            answer.with_topics(topics.into_iter().map(|topic| told(topic, by_id)).collect())
        }
    }
}

async fn fetch(
    shard: &Rc<Shard>,
    group: &GroupId,
    topics: Option<Vec<WantedTopic>>,
    require_stable: bool,
    (member_id, member_epoch): (Option<Arc<str>>, i32),
) -> Result<Vec<FoundTopic>, ErrorCode> {
    let group: Arc<str> = Arc::from(group.as_str());
    let group_id = Arc::clone(&group);
    let question =
        FetchOffsets { group: group_id, topics, require_stable, member_id, member_epoch };
    match group_offsets::ask(shard, &group, OffsetsRequest::Fetch(question)).await? {
        OffsetsReply::Found(found) => Ok(found),
        _ => Err(ErrorCode::UnknownServerError),
    }
}

/// Topics that still exist, with their ids.
fn with_ids(topics: Vec<FoundTopic>, image: &Image) -> Vec<FoundTopic> {
    let known = topics.into_iter().filter_map(|topic| {
        let topic_id = image.topic(&topic.topic)?.id;
        Some(FoundTopic { topic_id, ..topic })
    });
    known.collect()
}

fn refused(topics: Vec<WantedTopic>, error: ErrorCode) -> Vec<FoundTopic> {
    let topics = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| FoundOffset {
            partition,
            error,
            offset: -1,
            leader_epoch: -1,
            metadata: Arc::from(""),
        });
        FoundTopic {
            topic: topic.topic,
            topic_id: topic.topic_id,
            partitions: partitions.collect(),
        }
    });
    topics.collect()
}

fn told(topic: FoundTopic, by_id: bool) -> OffsetFetchResponseTopics {
    let partitions = topic.partitions.into_iter().map(|found| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(found.partition)
            .with_committed_offset(found.offset)
            .with_committed_leader_epoch(found.leader_epoch)
            .with_metadata(Some(text(&found.metadata)))
            .with_error_code(found.error.code())
    });
    let answer = OffsetFetchResponseTopics::default().with_partitions(partitions.collect());
    if by_id {
        answer.with_topic_id(topic.topic_id.into())
    } else {
        answer.with_name(TopicName(text(&topic.topic)))
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

const TOP_ERROR_SINCE: i16 = 2;
const GROUPS_SINCE: i16 = 8;
