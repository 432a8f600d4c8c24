//! DescribeGroups (key 15), versions 0-6.
//!
//! Behaviour
//! - State, protocol type and members of each group asked for, in order; protocol and metadata of
//!   the members only while the group is stable, as in Kafka.
//! - A group that nobody knows: state `Dead` and no members; from v6 on also 69. Another node's
//!   group: 16. Loading: 14.
//!
//! Version notes: 3 authorized operations; 4 static members; 5 flexible; 6 error messages
//! (KIP-1043).

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::describe_groups_response::{
    DescribedGroup as ToldGroup, DescribedGroupMember,
};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::join_group::{shared, told};
use crate::coordinator::group::admin::DescribedGroup;
use crate::coordinator::group::consumer::Refusal;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::group_offsets::admin::{self, AdminReply, AdminRequest};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: DescribeGroupsRequest,
) -> Response {
    let version = header.api_version;
    let mut groups = Vec::new();
    for id in request.groups {
        let group: Arc<str> = shared(&id);
        let outcome = admin::ask(&shard, &group, AdminRequest::Describe(Arc::clone(&group))).await;
        let outcome = match outcome {
            Ok(AdminReply::Described(described)) => Ok(described),
            Ok(_) => Err(ErrorCode::UnknownServerError),
            Err(code) => Err(code),
        };
        let mut told = answer(id, outcome, version);
        let wanted = version >= OPERATIONS_SINCE && request.include_authorized_operations;
        if wanted && told.error_code == ErrorCode::None.code() {
            told.authorized_operations = OPERATIONS;
        }
        groups.push(told);
    }
    Response::encode(&header, &DescribeGroupsResponse::default().with_groups(groups))
}

fn answer(
    id: GroupId,
    outcome: Result<Result<DescribedGroup, Refusal>, ErrorCode>,
    version: i16,
) -> ToldGroup {
    let group = ToldGroup::default().with_group_id(id);
    let described = match outcome {
        Ok(Ok(described)) => described,
        Ok(Err(refused)) => {
            let dead = group.with_group_state(StrBytes::from_static_str("Dead"));
            if version < NOT_FOUND_SINCE {
                return dead;
            }
            return dead
                .with_error_code(refused.code.code())
                .with_error_message(Some(told(&refused.message)));
        }
        Err(code) => return group.with_error_code(code.code()),
    };
    let members = described.members.into_iter().map(|member| {
        let told_member = DescribedGroupMember::default()
            .with_member_id(told(&member.id))
            .with_client_id(told(&member.client_id))
            .with_client_host(told(&member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment);
        match member.instance_id {
            Some(id) if version >= INSTANCE_SINCE => {
                told_member.with_group_instance_id(Some(told(&id)))
            }
            _ => told_member,
        }
    });
    group
        .with_group_state(StrBytes::from_static_str(described.state))
        .with_protocol_type(told(&described.protocol_type))
        .with_protocol_data(told(&described.protocol))
        .with_members(members.collect())
}

/// What may be done with a group where nothing is forbidden: read, delete, describe, and describe
/// and alter its configuration.
pub(super) const OPERATIONS: i32 = (1 << 3) | (1 << 6) | (1 << 8) | (1 << 10) | (1 << 11);

const OPERATIONS_SINCE: i16 = 3;
const INSTANCE_SINCE: i16 = 4;
const NOT_FOUND_SINCE: i16 = 6;
