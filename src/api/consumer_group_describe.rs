//! ConsumerGroupDescribe (key 69), versions 0-1.
//!
//! Behaviour
//! - One answer per group id, in their order. A group that is not known, or is of another kind: 69
//!   with a sentence; tools then ask with DescribeGroups.
//! - Members have what they may consume and what they have yet to give up; partitions of topics
//!   that are gone are left out.
//! - Authorized operations, if they are wanted: all, since nothing is forbidden.
//!
//! Version notes: 1 the protocol that each member uses (KIP-1099).

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup as ToldGroup, Member, TopicPartitions,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::describe_groups::OPERATIONS;
use super::join_group::{shared, told};
use crate::coordinator::group::consumer::{DescribedGroup, DescribedTopic, Refusal};
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::group_offsets::admin::{self, AdminReply, AdminRequest};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: ConsumerGroupDescribeRequest,
) -> Response {
    let mut groups = Vec::new();
    for id in request.group_ids {
        let group: Arc<str> = shared(&id);
        let question = AdminRequest::DescribeConsumer(Arc::clone(&group));
        let outcome = match admin::ask(&shard, &group, question).await {
            Ok(AdminReply::DescribedConsumer(outcome)) => outcome,
            Ok(_) => Err(Refusal { code: ErrorCode::UnknownServerError, message: String::new() }),
            Err(code) => Err(Refusal { code, message: String::new() }),
        };
        let mut answer = answer(id, outcome, header.api_version);
        if request.include_authorized_operations && answer.error_code == 0 {
            answer.authorized_operations = OPERATIONS;
        }
        groups.push(answer);
    }
    Response::encode(&header, &ConsumerGroupDescribeResponse::default().with_groups(groups))
}

fn answer(id: GroupId, outcome: Result<DescribedGroup, Refusal>, version: i16) -> ToldGroup {
    let group = ToldGroup::default().with_group_id(id);
    let described = match outcome {
        Ok(described) => described,
        Err(Refusal { code, message }) => {
            let message = (!message.is_empty()).then(|| told(&message));
            return group.with_error_code(code.code()).with_error_message(message);
        }
    };
    let text = |text: &Option<Arc<str>>| text.as_deref().map(told);
    let members = described.members.into_iter().map(|member| {
        let metadata = &member.metadata;
        let names = metadata.topic_names.iter().map(|name| TopicName(told(name)));
        let told_member = Member::default()
            .with_member_id(told(&member.id))
            .with_instance_id(text(&metadata.instance_id))
            .with_rack_id(text(&metadata.rack_id))
            .with_member_epoch(member.epoch)
            .with_client_id(told(&metadata.client_id))
            .with_client_host(told(&metadata.client_host))
            .with_subscribed_topic_names(names.collect())
            .with_subscribed_topic_regex(text(&metadata.topic_regex))
            .with_assignment(assignment(member.assigned))
            .with_target_assignment(assignment(member.target));
        if version < MEMBER_TYPE_SINCE {
            return told_member;
        }
        told_member.with_member_type(i8::from(metadata.classic.is_none()))
    });
    group
        .with_group_state(StrBytes::from_static_str(described.state.name()))
        .with_group_epoch(described.epoch)
        .with_assignment_epoch(described.target_epoch)
        .with_assignor_name(StrBytes::from_static_str(described.assignor.name()))
        .with_members(members.collect())
}

fn assignment(topics: Vec<DescribedTopic>) -> Assignment {
    let topics = topics.into_iter().map(|(id, name, partitions)| {
        TopicPartitions::default()
            .with_topic_id(id.into())
            .with_topic_name(TopicName(told(&name)))
            .with_partitions(partitions.into_iter().collect())
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

const MEMBER_TYPE_SINCE: i16 = 1;
