//! OffsetCommit (key 8), versions 2-10.
//!
//! Behaviour
//! - A topic or partition that does not exist: 3 (v10, by id: 100), whatever becomes of the rest;
//!   such partitions come first in the answer, as in Kafka.
//! - The rest is committed by the group's coordinator, all or nothing but for single texts that
//!   are too long (12). Another node's group, or no `__consumer_offsets` yet: 16. Loading: 14.
//! - A group that nobody knows: accepted without a generation, which makes a group without
//!   members; with one 22, from v9 on 69. A group without members takes commits without a
//!   generation and refuses others with 25. The empty group id is as good as any.
//! - Answered when durable. **deviation**: 15 while the disk is full or has failed; Kafka says 16.
//! - `retention_time_ms` (v2-4) other than -1 sets when the offset expires.
//!
//! Version notes: 5 no retention time; 6 leader epoch (KIP-320); 7 static members (KIP-345);
//! 8 flexible; 9 member epoch of consumer groups (KIP-848); 10 topic ids.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::coordinator::group::offsets::{Commit, NewOffset};
use crate::coordinator::group::{CommitApi, Committer};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;
use crate::metadata::image::Topic;
use crate::shard::Shard;
use crate::shard::group_offsets::{self, OffsetsReply, OffsetsRequest};
use crate::wire::header::RequestHeader;
use crate::wire::offsets::TOPIC_IDS_SINCE;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: OffsetCommitRequest,
) -> Response {
    let version = header.api_version;
    let by_id = version >= TOPIC_IDS_SINCE;
    let image = shard.catalog();
    let mut split = Split::default();
    for topic in request.topics {
        let id = TopicId::from(topic.topic_id);
        let (known, unknown) = if by_id {
            (image.topic_by_id(id), ErrorCode::UnknownTopicId)
        } else {
            (image.topic(&topic.name), ErrorCode::UnknownTopicOrPartition)
        };
        let asked = AskedTopic { name: topic.name, id: if by_id { id } else { TopicId::ZERO } };
        let offsets = topic.partitions.into_iter().map(|partition| AskedOffset {
            partition: partition.partition_index,
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.committed_metadata,
        });
        split.topic(&asked, known.ok_or(unknown), known.map(|topic| topic.id), offsets);
    }
    let commit = Commit {
        group: Arc::from(request.group_id.as_str()),
        by: Committer {
            member_id: request.member_id.to_string(),
            instance_id: request.group_instance_id.map(|id| id.to_string()),
            generation: request.generation_id_or_member_epoch,
        },
        api: CommitApi::Plain(version),
        retention_ms: (request.retention_time_ms != -1).then_some(request.retention_time_ms),
        offsets: std::mem::take(&mut split.offsets),
    };
    let codes = if commit.offsets.is_empty() {
        Vec::new()
    } else {
        let count = commit.offsets.len();
        let group = Arc::clone(&commit.group);
        match group_offsets::ask(&shard, &group, OffsetsRequest::Commit(commit)).await {
            Ok(OffsetsReply::Codes(codes)) => codes,
            Ok(_) => vec![ErrorCode::UnknownServerError; count],
            Err(code) => vec![code; count],
        }
    };
    let topics = split.answered(codes).into_iter().map(|(topic, codes)| {
        let partitions = codes.into_iter().map(|(partition, code)| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition)
                .with_error_code(code.code())
        });
        OffsetCommitResponseTopic::default()
            .with_name(topic.name)
            .with_topic_id(topic.id.into())
            .with_partitions(partitions.collect())
    });
    let response = OffsetCommitResponse::default().with_topics(topics.collect());
    Response::encode(&header, &response)
}

/// A topic as a request names it: the id is zero where it goes by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AskedTopic {
    /// Its name; empty where it goes by id.
    pub name: TopicName,
    /// Its id.
    pub id: TopicId,
}

/// An offset as a request has it.
pub struct AskedOffset {
    /// The partition.
    pub partition: i32,
    /// The offset to go on from.
    pub offset: i64,
    /// Leader epoch of the last record consumed, -1 for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: Option<StrBytes>,
}

/// The codes of some partitions of a topic.
pub type TopicCodes = (AskedTopic, Vec<(i32, ErrorCode)>);

/// A request divided into what exists and what does not, and the answer put together as Kafka
/// does: refused partitions first, then the others, topic by topic.
#[derive(Default)]
pub struct Split {
    /// What exists, in order.
    pub offsets: Vec<NewOffset>,
    /// The partitions of each topic that has some in `offsets`.
    taken: Vec<(AskedTopic, Vec<i32>)>,
    refused: Vec<TopicCodes>,
    places: HashMap<AskedTopic, usize>,
}

impl Split {
    /// Divides one topic of a request. `kept_id` goes into the records.
    pub fn topic(
        &mut self,
        asked: &AskedTopic,
        known: Result<&Arc<Topic>, ErrorCode>,
        kept_id: Option<TopicId>,
        offsets: impl Iterator<Item = AskedOffset>,
    ) {
        let topic = match known {
            Ok(topic) => topic,
            Err(code) => {
                let partitions = offsets.map(|offset| (offset.partition, code));
                self.place(asked).extend(partitions);
                return;
            }
        };
        let mut taken = Vec::new();
        for new in offsets {
            if !(0..topic.partition_count()).contains(&new.partition) {
                let refused = (new.partition, ErrorCode::UnknownTopicOrPartition);
                self.place(asked).push(refused);
                continue;
            }
            taken.push(new.partition);
            self.offsets.push(NewOffset {
                topic: Arc::clone(&topic.name),
                topic_id: kept_id.unwrap_or(TopicId::ZERO),
                partition: new.partition,
                offset: new.offset,
                leader_epoch: new.leader_epoch,
                metadata: Arc::from(new.metadata.as_deref().unwrap_or("")),
            });
        }
        if !taken.is_empty() {
            self.taken.push((asked.clone(), taken));
        }
    }

    /// The whole answer; `codes` are those of [`Split::offsets`].
    #[must_use]
    pub fn answered(mut self, codes: Vec<ErrorCode>) -> Vec<TopicCodes> {
        let mut codes = codes.into_iter();
        let mut code_each = |partitions: Vec<i32>| -> Vec<(i32, ErrorCode)> {
            let each = |partition| (partition, codes.next().unwrap_or(ErrorCode::None));
            partitions.into_iter().map(each).collect()
        };
        let taken = std::mem::take(&mut self.taken);
        // With nothing refused Kafka answers topic for topic as it was asked.
        if self.refused.is_empty() {
            return taken.into_iter().map(|(topic, list)| (topic, code_each(list))).collect();
        }
        for (topic, partitions) in taken {
            let answered = code_each(partitions);
            self.place(&topic).extend(answered);
        }
        self.refused
    }

    fn place(&mut self, topic: &AskedTopic) -> &mut Vec<(i32, ErrorCode)> {
        let place = *self.places.entry(topic.clone()).or_insert_with(|| {
            self.refused.push((topic.clone(), Vec::new()));
            self.refused.len() - 1
        });
        &mut self.refused[place].1
    }
}
