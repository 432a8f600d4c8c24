//! JoinGroup (key 11), versions 0-9.
//!
//! Behaviour
//! - Answered when the next generation of the group begins: when all its members have joined, or
//!   the longest rebalance timeout among them is over; the first time after the configured delay.
//! - The empty group id: 24. A session timeout out of bounds: 26. A member id that the group does
//!   not know: 25. A protocol type or protocols that the others do not share: 23. A full group: 81.
//!   An instance id that is another member's by now: 82. Another node's group, or none yet: 16.
//!   Loading: 14.
//! - Without a member id: from v4 on 79 with one to come again with; static members get theirs at
//!   once, and take the place of who had their instance id.
//! - To a consumer group with members: answered at once, with a generation that is the member's
//!   epoch and without a leader. Where migration is disabled: 23. Malformed metadata: -1.
//! - A client that goes away while it waits stays a member until its session ends, as in Kafka.
//! - **deviation**: 15 while the disk is full or has failed; Kafka says 16. A join that is repeated
//!   on another connection lets the first go with 27; Kafka never answers that one.
//!
//! Version notes: 1 rebalance timeout (KIP-62); 4 member id required (KIP-394); 5 static members
//! (KIP-345); 6 flexible; 7 protocol type (KIP-559); 8 reason (KIP-800); 9 skip assignment
//! (KIP-814).

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::coordinator::group::classic::Protocol;
use crate::coordinator::group::classic::join::Join;
use crate::coordinator::group::outcome::{Answer, JoinAnswer};
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
    request: Box<JoinGroupRequest>,
) -> Response {
    let version = header.api_version;
    let answer = if request.group_id.is_empty() {
        JoinAnswer::failed(ErrorCode::InvalidGroupId, shared(&request.member_id))
    } else {
        let join = join_of(&shard, &connection, &header, *request);
        match members::ask(&shard, &connection, MemberRequest::Join(Box::new(join))).await {
            None => return Response::Close,
            Some(Ok(Answer::Join(answer))) => *answer,
            Some(Ok(_)) => JoinAnswer::failed(ErrorCode::UnknownServerError, "".into()),
            Some(Err(code)) => JoinAnswer::failed(code, "".into()),
        }
    };
    Response::encode(&header, &response(answer, version))
}

fn join_of(
    shard: &Shard,
    connection: &Connection,
    header: &RequestHeader,
    request: JoinGroupRequest,
) -> Join {
    let rebalance_timeout_ms = if header.api_version >= REBALANCE_TIMEOUT_SINCE {
        request.rebalance_timeout_ms
    } else {
        request.session_timeout_ms
    };
    let protocols = request.protocols.iter().map(|protocol| Protocol {
        name: shared(&protocol.name),
        // Not as a slice of the request, which would be kept whole.
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    });
    Join {
        group: shared(&request.group_id),
        member_id: shared(&request.member_id),
        instance_id: request.group_instance_id.as_ref().map(shared),
        client_id: header.client_id.as_ref().map_or_else(|| "".into(), shared),
        client_host: host_of(&connection.peer),
        rebalance_timeout_ms,
        session_timeout_ms: request.session_timeout_ms,
        protocol_type: shared(&request.protocol_type),
        protocols: protocols.collect(),
        version: header.api_version,
        unique: unique(shard),
    }
}

/// A text of a request, on its own.
pub(super) fn shared(text: &StrBytes) -> Arc<str> {
    Arc::from(text.as_str())
}

/// A text for a response.
pub(super) fn told(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A random UUID as text.
fn unique(shard: &Shard) -> Arc<str> {
    let mut random = [0; 16];
    let (high, low) = random.split_at_mut(8);
    high.copy_from_slice(&shard.runtime.random().to_be_bytes());
    low.copy_from_slice(&shard.runtime.random().to_be_bytes());
    uuid::Builder::from_random_bytes(random).into_uuid().to_string().into()
}

/// The host of a peer as Java writes it.
pub(super) fn host_of(peer: &str) -> Arc<str> {
    let host = match peer.parse().map(|address: SocketAddr| address.ip().to_canonical()) {
        Ok(IpAddr::V4(address)) => address.to_string(),
        Ok(IpAddr::V6(address)) => {
            address.segments().map(|segment| format!("{segment:x}")).join(":")
        }
        Err(_) => peer.to_owned(),
    };
    format!("/{host}").into()
}

fn response(answer: JoinAnswer, version: i16) -> JoinGroupResponse {
    let members = answer.members.into_iter().map(|member| {
        let joined = JoinGroupResponseMember::default()
            .with_member_id(told(&member.id))
            .with_metadata(member.metadata);
        match member.instance_id {
            Some(id) if version >= INSTANCE_SINCE => joined.with_group_instance_id(Some(told(&id))),
            _ => joined,
        }
    });
    let mut response = JoinGroupResponse::default()
        .with_error_code(answer.error.code())
        .with_generation_id(answer.generation)
        .with_leader(told(&answer.leader))
        .with_member_id(told(&answer.member_id))
        .with_members(members.collect());
    response.protocol_name = answer.protocol.map(|name| told(&name));
    if version >= PROTOCOL_TYPE_SINCE {
        response.protocol_type = answer.protocol_type.map(|name| told(&name));
    } else {
        response.protocol_name.get_or_insert_default();
    }
    if version >= SKIP_SINCE {
        response.skip_assignment = answer.skip_assignment;
    }
    response
}

const REBALANCE_TIMEOUT_SINCE: i16 = 1;
const INSTANCE_SINCE: i16 = 5;
const PROTOCOL_TYPE_SINCE: i16 = 7;
const SKIP_SINCE: i16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_java_does() {
        let check = |peer, host: &str| assert_eq!(&*host_of(peer), host);
        check("127.0.0.1:4711", "/127.0.0.1");
        check("[::1]:4711", "/0:0:0:0:0:0:0:1");
        check("[::ffff:10.0.0.1]:1", "/10.0.0.1");
        check("client-3", "/client-3");
    }
}
