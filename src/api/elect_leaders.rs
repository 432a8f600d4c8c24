//! ElectLeaders (key 43), versions 0-2.
//!
//! Behaviour
//! - Every partition has one replica, which leads it: an election, preferred or unclean, is never
//!   needed (84). Unknown topics and partitions: 3. No list of topics: all topics, each without the
//!   partitions that need no election.
//! - A type that does not exist refuses all of the request with 42.
//!
//! Version notes: 0 of KIP-183, preferred leaders only; 1 election type, top-level error (KIP-460);
//! 2 flexible.

use std::rc::Rc;

use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::incremental_alter_configs::told;
use crate::error_code::ErrorCode;
use crate::metadata::Image;
use crate::metadata::topics::{PlanError, refuse};
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &ElectLeadersRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), request, header.api_version))
}

/// The answer.
#[must_use]
pub fn answer(image: &Image, request: &ElectLeadersRequest, version: i16) -> ElectLeadersResponse {
    let Some(topics) = &request.topic_partitions else {
        return match check_type(request) {
            Ok(()) => {
                let names = image.topics().map(|topic| topic.name.to_string());
                let names = names.map(|name| TopicName(StrBytes::from_string(name)));
                let topics = names.map(|name| ReplicaElectionResult::default().with_topic(name));
                ElectLeadersResponse::default().with_replica_election_results(topics.collect())
            }
            Err(error) => with_code(&error, version),
        };
    };
    let refusal = if topics.is_empty() { Ok(()) } else { check_type(request) };
    let results = topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|&partition| {
            let result = refusal.clone().and_then(|()| elect(image, &topic.topic, partition));
            let (code, message) = told(&result);
            PartitionResult::default()
                .with_partition_id(partition)
                .with_error_code(code)
                .with_error_message(message)
        });
        ReplicaElectionResult::default()
            .with_topic(topic.topic.clone())
            .with_partition_result(partitions.collect())
    });
    let response = match &refusal {
        Ok(()) => ElectLeadersResponse::default(),
        Err(error) => with_code(error, version),
    };
    response.with_replica_election_results(results.collect())
}

fn with_code(error: &PlanError, version: i16) -> ElectLeadersResponse {
    let code = if version < CODE_SINCE { 0 } else { error.code.code() };
    ElectLeadersResponse::default().with_error_code(code)
}

fn check_type(request: &ElectLeadersRequest) -> Result<(), PlanError> {
    match request.election_type {
        PREFERRED | UNCLEAN => Ok(()),
        other => {
            let message = format!("Unknown election type {other}");
            Err(refuse(ErrorCode::InvalidRequest, &message))
        }
    }
}

fn elect(image: &Image, name: &str, partition: i32) -> Result<(), PlanError> {
    let unknown = |message: String| Err(refuse(ErrorCode::UnknownTopicOrPartition, &message));
    match image.topic(name) {
        None => unknown(format!("No such topic as {name}")),
        Some(topic) if !(0..topic.partition_count()).contains(&partition) => {
            unknown(format!("No such partition as {name}-{partition}"))
        }
        Some(_) => Err(refuse(
            ErrorCode::ElectionNotNeeded,
            "Leader election not needed for topic partition.",
        )),
    }
}

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
const CODE_SINCE: i16 = 1;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::elect_leaders_request::TopicPartitions;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    /// Code of the whole and of each partition.
    fn elected(
        topics: Option<&[(&'static str, &[i32])]>,
        election_type: i8,
        version: i16,
    ) -> (i16, Vec<(String, i16)>) {
        let context = context(&[]);
        let image = catalog(&context, &[("a", 1, &[0, 1]), ("b", 2, &[0])]);
        let topics = topics.map(|topics| {
            let topic = |(name, partitions): &(&'static str, &[i32])| {
                TopicPartitions::default()
                    .with_topic(TopicName(StrBytes::from_static_str(name)))
                    .with_partitions(partitions.to_vec())
            };
            topics.iter().map(topic).collect()
        });
        let request = ElectLeadersRequest::default()
            .with_election_type(election_type)
            .with_topic_partitions(topics);
        let response = answer(&image, &request, version);
        encode_response(Api::ElectLeaders, version, 1, &response).expect("encodes");
        let results = response.replica_election_results.iter().flat_map(|topic| {
            let name = |id: i32| format!("{}-{id}", topic.topic.as_str());
            let codes = topic.partition_result.iter();
            codes.map(move |partition| (name(partition.partition_id), partition.error_code))
        });
        (response.error_code, results.collect())
    }

    #[test]
    fn no_election_is_ever_needed() {
        let topics: &[(&'static str, &[i32])] = &[("a", &[1, 2]), ("c", &[0])];
        for election_type in [0, 1] {
            let codes = [("a-1", 84), ("a-2", 3), ("c-0", 3)];
            let codes = codes.map(|(name, code)| (name.to_owned(), code)).to_vec();
            for version in 0..=2 {
                assert_eq!(elected(Some(topics), election_type, version), (0, codes.clone()));
            }
            assert_eq!(elected(None, election_type, 2), (0, vec![]));
        }
        let codes = [("a-1", 42), ("a-2", 42), ("c-0", 42)];
        let codes = codes.map(|(name, code)| (name.to_owned(), code)).to_vec();
        assert_eq!(elected(Some(topics), 2, 1), (42, codes));
        assert_eq!(elected(None, 2, 2), (42, vec![]));
        assert_eq!(elected(Some(&[]), 2, 2), (0, vec![]));
    }
}
