//! TxnOffsetCommit (key 28), versions 0-5.
//!
//! Behaviour
//! - Topics and partitions as in OffsetCommit; the empty group id: 24.
//! - The transaction comes first: from v5 on the group's partition of `__consumer_offsets` is added
//!   to it, before that it must be in it. Then the group, then texts that are too long (12). So a
//!   commit that the group refuses has added the partition all the same.
//! - A fenced producer gets 47, never 90; a partition that is not in the transaction 120, before
//!   v4 48. A pending transition is not waited for here beyond `txn_pending_hold_ms`: 51.
//! - The offsets are pending until the transaction's marker.
//! - Before v2 clients get 15 in place of 14.
//!
//! Version notes: 2 leader epoch; 3 flexible, group members (KIP-447); 4 TRANSACTION_ABORTABLE;
//! 5 implicit add (KIP-890).

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use super::Response;
use super::offset_commit::{AskedOffset, AskedTopic, Split};
use crate::coordinator::group::offsets::Commit;
use crate::coordinator::group::{CommitApi, Committer};
use crate::error_code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId, TopicId};
use crate::shard::Shard;
use crate::shard::group_offsets::{self, OffsetsReply, OffsetsRequest, Transaction};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: Box<TxnOffsetCommitRequest>,
) -> Response {
    let version = header.api_version;
    let image = shard.catalog();
    let mut split = Split::default();
    for topic in request.topics {
        let known = image.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition);
        let asked = AskedTopic { name: topic.name, id: TopicId::ZERO };
        let offsets = topic.partitions.into_iter().map(|partition| AskedOffset {
            partition: partition.partition_index,
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.committed_metadata,
        });
        split.topic(&asked, known, None, offsets);
    }
    let commit = Commit {
        group: Arc::from(request.group_id.as_str()),
        by: Committer {
            member_id: request.member_id.to_string(),
            instance_id: request.group_instance_id.map(|id| id.to_string()),
            generation: request.generation_id,
        },
        api: CommitApi::Transactional,
        retention_ms: None,
        offsets: std::mem::take(&mut split.offsets),
    };
    let transaction = Transaction {
        id: Arc::from(request.transactional_id.as_str()),
        producer_id: ProducerId(request.producer_id.0),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        version,
    };
    let count = commit.offsets.len();
    let codes = if count == 0 {
        Vec::new()
    } else if commit.group.is_empty() {
        vec![ErrorCode::InvalidGroupId; count]
    } else {
        let group = Arc::clone(&commit.group);
        let question = OffsetsRequest::CommitInTransaction(commit, transaction);
        match group_offsets::ask(&shard, &group, question).await {
            Ok(OffsetsReply::Codes(codes)) => codes,
            Ok(_) => vec![ErrorCode::UnknownServerError; count],
            Err(code) => vec![code; count],
        }
    };
    let topics = split.answered(codes).into_iter().map(|(topic, codes)| {
        let partitions = codes.into_iter().map(|(partition, code)| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition)
                .with_error_code(as_told(code, version).code())
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    let response = TxnOffsetCommitResponse::default().with_topics(topics.collect());
    Response::encode(&header, &response)
}

/// Clients before 2.0 could crash on 14 (KAFKA-7296).
fn as_told(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::CoordinatorLoadInProgress if version < 2 => ErrorCode::CoordinatorNotAvailable,
        other => other,
    }
}
