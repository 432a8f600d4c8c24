//! ConsumerGroupHeartbeat (key 68), versions 0-1.
//!
//! Behaviour
//! - Epoch 0 joins, -1 leaves, -2 leaves for a while as a static member; null means unchanged.
//! - What no client sends: 42, with a sentence. An assignor that is not there: 112. A malformed
//!   expression: 128. A full group: 81.
//! - A group that is not known, or is of another kind: 69. But who joins a classic group of
//!   consumers makes it a consumer group, if the configuration lets him. A member that is not
//!   known: 25; that has another epoch: 110. An instance that is another member's: 82 or, when
//!   joining, 111.
//! - An answer has an assignment when it has changed, to a join, and to a request that says all.
//! - Without `consumer` among the group protocols of the broker: 35. Loading: 14. Another node's
//!   group: 16.
//! - **Deviation**: a static member that comes again with its own member id and epoch 0 gets its
//!   assignment, where Kafka 4.3.1 answers 111 until the session of the lost join is over.
//!
//! Version notes: 1 member ids are the clients' (KIP-1082), and topics by expression.

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use smallvec::SmallVec;

use super::Response;
use super::join_group::{host_of, shared, told};
use crate::coordinator::group::assignor::{Assignor, Partitions};
use crate::coordinator::group::consumer::{Heartbeat, HeartbeatAnswer, Refusal};
use crate::coordinator::group::outcome::Answer;
use crate::error_code::ErrorCode;
use crate::ids::TopicId;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::group_offsets::members::{self, MemberRequest};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: Box<ConsumerGroupHeartbeatRequest>,
) -> Response {
    let mut beat = heartbeat(&connection, &header, *request);
    let checked = check(&shard, &beat, header.api_version);
    let outcome = match checked {
        Err(refused) => Err(refused),
        Ok(()) => {
            if beat.member_id.is_empty() {
                beat.member_id = new_member_id(&shard);
            }
            let request = MemberRequest::Consumer(Box::new(beat));
            match members::ask(&shard, &connection, request).await {
                None => return Response::Close,
                Some(Ok(Answer::Consumer(answer))) => answer,
                Some(Ok(_)) => Err(without_words(ErrorCode::UnknownServerError)),
                Some(Err(code)) => Err(without_words(code)),
            }
        }
    };
    Response::encode(&header, &response(outcome))
}

fn check(shard: &Shard, beat: &Heartbeat, version: i16) -> Result<(), Refusal> {
    let image = shard.catalog();
    let config = image.broker();
    if !config.group_coordinator_rebalance_protocols.iter().any(|name| name == "consumer") {
        return Err(without_words(ErrorCode::UnsupportedVersion));
    }
    let names = config.group_consumer_assignors.iter();
    let assignors: SmallVec<[Assignor; 2]> = names.filter_map(|name| Assignor::of(name)).collect();
    beat.check(version, &assignors)
}

fn without_words(code: ErrorCode) -> Refusal {
    Refusal { code, message: String::new() }
}

fn heartbeat(
    connection: &Connection,
    header: &RequestHeader,
    request: ConsumerGroupHeartbeatRequest,
) -> Heartbeat {
    let names = request.subscribed_topic_names;
    let owned = request.topic_partitions.map(|topics| {
        let mut owned = Partitions::new();
        for topic in topics {
            let id = TopicId::from(topic.topic_id);
            owned.entry(id).or_default().extend(topic.partitions);
        }
        owned
    });
    Heartbeat {
        group: shared(&request.group_id),
        member_id: shared(&request.member_id),
        member_epoch: request.member_epoch,
        instance_id: request.instance_id.as_ref().map(shared),
        rack_id: request.rack_id.as_ref().map(shared),
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        topic_names: names.map(|names| names.iter().map(|name| shared(&name.0)).collect()),
        topic_regex: request.subscribed_topic_regex.as_ref().map(shared),
        assignor: request.server_assignor.as_ref().map(shared),
        owned,
        client_id: Arc::from(header.client_id.as_deref().unwrap_or("")),
        client_host: host_of(&connection.peer),
    }
}

fn response(outcome: Result<HeartbeatAnswer, Refusal>) -> ConsumerGroupHeartbeatResponse {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(Refusal { code, message }) => {
            let message = (!message.is_empty()).then(|| told(&message));
            return ConsumerGroupHeartbeatResponse::default()
                .with_error_code(code.code())
                .with_error_message(message);
        }
    };
    let assignment = answer.assignment.map(|assigned| {
        let topics = assigned.into_iter().map(|(id, partitions)| {
            TopicPartitions::default()
                .with_topic_id(id.into())
                .with_partitions(partitions.into_iter().collect())
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(told(&answer.member_id)))
        .with_member_epoch(answer.member_epoch)
        .with_heartbeat_interval_ms(answer.heartbeat_interval_ms)
        .with_assignment(assignment)
}

/// A random id in the form that Kafka gives its own.
fn new_member_id(shard: &Shard) -> Arc<str> {
    let mut random = [0; 16];
    let (high, low) = random.split_at_mut(8);
    high.copy_from_slice(&shard.runtime.random().to_be_bytes());
    low.copy_from_slice(&shard.runtime.random().to_be_bytes());
    TopicId(random).to_text().into()
}
