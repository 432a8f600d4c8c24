//! LeaveGroup (key 13), versions 0-5.
//!
//! Behaviour
//! - Members are removed by member id, or by instance id where that is empty; the others rebalance.
//!   A member id that was given out and not joined with yet is given back.
//! - The empty group id: 24. A group or member that is not known: 25 for each. An instance id that
//!   is another member's by now: 82. Another node's group: 16. Loading: 14.
//! - Until v2 there is one member, and its error is the request's.
//!
//! Version notes: 3 several members (KIP-345); 4 flexible; 5 reason (KIP-800).

use std::rc::Rc;

use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::Response;
use super::join_group::{shared, told};
use crate::coordinator::group::classic::members::Leave;
use crate::coordinator::group::outcome::{Answer, LeaveAnswer};
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
    request: LeaveGroupRequest,
) -> Response {
    let several = header.api_version >= SEVERAL_SINCE;
    let outcome = if request.group_id.is_empty() {
        Err(ErrorCode::InvalidGroupId)
    } else {
        let members = if several {
            let named = request.members.iter();
            named
                .map(|named| {
                    (shared(&named.member_id), named.group_instance_id.as_ref().map(shared))
                })
                .collect()
        } else {
            vec![(shared(&request.member_id), None)]
        };
        let leave = Leave { group: shared(&request.group_id), members };
        match members::ask(&shard, &connection, MemberRequest::Leave(leave)).await {
            None => return Response::Close,
            Some(Ok(Answer::Leave(outcome))) => outcome,
            Some(Ok(_)) => Err(ErrorCode::UnknownServerError),
            Some(Err(code)) => Err(code),
        }
    };
    Response::encode(&header, &response(outcome, several))
}

fn response(outcome: Result<Vec<LeaveAnswer>, ErrorCode>, several: bool) -> LeaveGroupResponse {
    let response = LeaveGroupResponse::default();
    match outcome {
        Err(code) => response.with_error_code(code.code()),
        Ok(members) if several => {
            let members = members.into_iter().map(|member| {
                MemberResponse::default()
                    .with_member_id(told(&member.member_id))
                    .with_group_instance_id(member.instance_id.map(|id| told(&id)))
                    .with_error_code(member.error.code())
            });
            response.with_members(members.collect())
        }
        Ok(members) => {
            let error = members.first().map_or(ErrorCode::None, |member| member.error);
            response.with_error_code(error.code())
        }
    }
}

const SEVERAL_SINCE: i16 = 3;
