//! SyncGroup (key 14), versions 0-5.
//!
//! Behaviour
//! - Answered when the leader has assigned and the group is durable; in a stable group at once.
//! - The empty group id: 24. A group or member that is not known: 25. Another generation: 22. An
//!   instance id that is another member's by now: 82. Another protocol type or protocol than the
//!   group's, or from v5 on none: 23. While members are joining, or begin to: 27.
//!   Another node's group: 16. Loading: 14.
//! - A member that the leader leaves out is assigned nothing.
//! - In a consumer group: what the member has got when it joined, at once; 27 if it may have more.
//! - **deviation**: 15 while the disk is full or has failed; Kafka says 16.
//!
//! Version notes: 3 static members (KIP-345); 4 flexible; 5 protocol type and name (KIP-559).

use std::rc::Rc;

use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::Response;
use super::join_group::{shared, told};
use crate::coordinator::group::classic::members::Sync;
use crate::coordinator::group::outcome::{Answer, SyncAnswer};
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::group_offsets::members::{self, MemberRequest};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: Box<SyncGroupRequest>,
) -> Response {
    let version = header.api_version;
    let has_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    let answer = if version >= PROTOCOL_SINCE && !has_protocol {
        SyncAnswer::failed(ErrorCode::InconsistentGroupProtocol)
    } else if request.group_id.is_empty() {
        SyncAnswer::failed(ErrorCode::InvalidGroupId)
    } else {
        let sync = Box::new(sync_of(&request));
        match members::ask(&shard, &connection, MemberRequest::Sync(sync)).await {
            None => return Response::Close,
            Some(Ok(Answer::Sync(answer))) => answer,
            Some(Ok(_)) => SyncAnswer::failed(ErrorCode::UnknownServerError),
            Some(Err(code)) => SyncAnswer::failed(code),
        }
    };
    let mut response = SyncGroupResponse::default()
        .with_error_code(answer.error.code())
        .with_assignment(answer.assignment);
    if version >= PROTOCOL_SINCE {
        response.protocol_type = answer.protocol_type.map(|name| told(&name));
        response.protocol_name = answer.protocol.map(|name| told(&name));
    }
    Response::encode(&header, &response)
}

fn sync_of(request: &SyncGroupRequest) -> Sync {
    let assignments = request.assignments.iter();
    Sync {
        group: shared(&request.group_id),
        member_id: shared(&request.member_id),
        instance_id: request.group_instance_id.as_ref().map(shared),
        generation: request.generation_id,
        protocol_type: request.protocol_type.as_ref().map(shared),
        protocol: request.protocol_name.as_ref().map(shared),
        assignments: assignments
            .map(|assigned| (shared(&assigned.member_id), assigned.assignment.clone()))
            .collect(),
    }
}

const PROTOCOL_SINCE: i16 = 5;
