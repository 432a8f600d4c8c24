//! Heartbeat (key 12), versions 0-4.
//!
//! Behaviour
//! - The session begins again, also while the group rebalances, which is told by 27.
//! - The empty group id: 24. A group or member that is not known: 25. Another generation: 22. An
//!   instance id that is another member's by now: 82. Another node's group: 16.
//! - Loading: no error, as in Kafka; the member is asked again soon enough.
//!
//! Version notes: 3 static members (KIP-345); 4 flexible.

use std::rc::Rc;

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::Response;
use super::join_group::shared;
use crate::coordinator::group::classic::members::Heartbeat;
use crate::coordinator::group::outcome::Answer;
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
    request: HeartbeatRequest,
) -> Response {
    let code = if request.group_id.is_empty() {
        ErrorCode::InvalidGroupId
    } else {
        let beat = Heartbeat {
            group: shared(&request.group_id),
            member_id: shared(&request.member_id),
            instance_id: request.group_instance_id.as_ref().map(shared),
            generation: request.generation_id,
        };
        match members::ask(&shard, &connection, MemberRequest::Heartbeat(beat)).await {
            None => return Response::Close,
            Some(Ok(Answer::Heartbeat(code))) => code,
            Some(Ok(_)) => ErrorCode::UnknownServerError,
            Some(Err(ErrorCode::CoordinatorLoadInProgress)) => ErrorCode::None,
            Some(Err(code)) => code,
        }
    };
    Response::encode(&header, &HeartbeatResponse::default().with_error_code(code.code()))
}
