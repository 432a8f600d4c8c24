//! AlterPartitionReassignments (key 45), versions 0-1.
//!
//! Behaviour
//! - Partitions do not move between brokers. Asking for the replica that a partition has changes
//!   nothing and succeeds; replicas that are none, doubled or unknown are 39 in Kafka's words; so
//!   is any other set, **deviation**: Kafka would begin to move.
//! - Another number of replicas where the request forbids it is 38. Nothing to cancel: 85.
//!   Unknown topics and partitions: 3.
//!
//! Version notes: 0 of KIP-455; 1 whether the replication factor may change (KIP-860).

use std::rc::Rc;

use kafka_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::incremental_alter_configs::told;
use crate::error_code::ErrorCode;
use crate::ids::PartitionIndex;
use crate::metadata::Image;
use crate::metadata::topics::{PlanError, check_assignment, refuse};
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &AlterPartitionReassignmentsRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), &shard.context, request))
}

/// The answer.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let (code, message) = told(&check(image, context, request, &topic.name, partition));
            ReassignablePartitionResponse::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
                .with_error_message(message)
        });
        ReassignableTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    // Kafka has the controller answer, which says null, unless there is nothing to ask it.
    let message = request.topics.is_empty().then(StrBytes::default);
    AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(request.allow_replication_factor_change)
        .with_error_message(message)
        .with_responses(topics.collect())
}

fn check(
    image: &Image,
    context: &Context,
    request: &AlterPartitionReassignmentsRequest,
    name: &str,
    partition: &ReassignablePartition,
) -> Result<(), PlanError> {
    let index = partition.partition_index;
    let unknown = |message: String| refuse(ErrorCode::UnknownTopicOrPartition, &message);
    let topic = image
        .topic(name)
        .ok_or_else(|| unknown(format!("Unable to find a topic named {name}.")))?;
    let owner = topic
        .owner(PartitionIndex(index), context.shards)
        .ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
    let Some(replicas) = &partition.replicas else {
        return Err(PlanError {
            code: ErrorCode::NoReassignmentInProgress,
            message: None,
            limit: None,
        });
    };
    let replicas: Vec<i32> = replicas.iter().map(|node| node.0).collect();
    check_assignment(&replicas, image.broker(), None)?;
    if !request.allow_replication_factor_change && replicas.len() != 1 {
        let message = format!("The replication factor is changed from 1 to {}", replicas.len());
        return Err(refuse(ErrorCode::InvalidReplicationFactor, &message));
    }
    if replicas == [context.node_of(owner)] {
        return Ok(());
    }
    let message = format!(
        "Partitions do not move between the brokers of this process: {name}-{index} stays on {}.",
        context.node_of(owner)
    );
    Err(refuse(ErrorCode::InvalidReplicaAssignment, &message))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_partition_reassignments_request::ReassignableTopic;
    use kafka_protocol::messages::{BrokerId, TopicName};

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn code(
        settings: &[(&str, &str)],
        place: (&'static str, i32),
        replicas: Option<&[i32]>,
        allow: bool,
    ) -> i16 {
        let context = context(settings);
        let image = catalog(&context, &[("t", 1, &[2])]);
        let replicas = replicas.map(|nodes| nodes.iter().map(|&node| BrokerId(node)).collect());
        let partition =
            ReassignablePartition::default().with_partition_index(place.1).with_replicas(replicas);
        let topic = ReassignableTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(place.0)))
            .with_partitions(vec![partition]);
        let request = AlterPartitionReassignmentsRequest::default()
            .with_allow_replication_factor_change(allow)
            .with_topics(vec![topic]);
        let response = answer(&image, &context, &request);
        assert_eq!(response.allow_replication_factor_change, allow);
        encode_response(Api::AlterPartitionReassignments, 1, 1, &response).expect("encodes");
        response.responses[0].partitions[0].error_code
    }

    #[test]
    fn partitions_stay_where_they_are() {
        let single = [("advertise", "single")];
        assert_eq!(code(&[], ("t", 0), Some(&[2]), true), 0);
        assert_eq!(code(&single, ("t", 0), Some(&[0]), true), 0);
        assert_eq!(code(&[], ("t", 0), Some(&[1]), true), 39);
        assert_eq!(code(&[], ("t", 0), Some(&[2, 1]), true), 39);
        assert_eq!(code(&[], ("t", 0), Some(&[2, 1]), false), 38);
        assert_eq!(code(&single, ("t", 0), Some(&[1]), true), 39);
        assert_eq!(code(&[], ("t", 0), Some(&[]), true), 39);
        assert_eq!(code(&[], ("t", 0), Some(&[2, 2]), true), 39);
        assert_eq!(code(&[], ("t", 0), None, true), 85);
        assert_eq!(code(&[], ("t", 1), Some(&[2]), true), 3);
        assert_eq!(code(&[], ("u", 0), None, true), 3);
    }
}
