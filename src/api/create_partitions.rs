//! CreatePartitions (key 37), versions 0-3.
//!
//! Behaviour
//! - Any node takes the request; shard 0 checks and writes it ([`crate::metadata::topics`] has the
//!   rules). Failures are per topic: unknown 3, not more than there are 37, assignments that do not
//!   fit 39, a name given twice 42.
//! - When it is answered every shard serves the new partitions. **deviation**: the timeout is
//!   ignored, as nothing is waited for but the write itself.
//! - `validate_only` checks all the same and writes nothing.
//! - When the catalog cannot be written: 56 for every topic.
//!
//! Version notes: 2 flexible; 3 quota errors (KIP-599).

use std::collections::HashSet;
use std::rc::Rc;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::create_topics::unwritable;
use crate::ids::ShardId;
use crate::metadata::topics::{CreatePartitions, PlanError};
use crate::shard::Shard;
use crate::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use crate::wire::header::RequestHeader;

/// Answers a request once all of it is durable and served, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: CreatePartitionsRequest,
) -> Response {
    let topics = request.topics.iter().map(asked).collect();
    let change = CatalogChange::CreatePartitions { topics, validate_only: request.validate_only };
    let results = match shard.ask(ShardId(0), Operation::Catalog(change)).await {
        Reply::Catalog(CatalogOutcome::MorePartitions(results)) => results,
        _ => request.topics.iter().map(|_| Err(unwritable())).collect(),
    };
    Response::encode(&header, &answer(&request, &results))
}

/// The answer, given what became of each topic of the request.
#[must_use]
pub fn answer(
    request: &CreatePartitionsRequest,
    results: &[Result<(), PlanError>],
) -> CreatePartitionsResponse {
    let mut seen = HashSet::new();
    let results = request
        .topics
        .iter()
        .zip(results)
        .filter(|(topic, _)| seen.insert(topic.name.as_str()))
        .map(|(topic, result)| {
            let told = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
            match result {
                Ok(()) => told.with_error_message(None),
                Err(error) => told
                    .with_error_code(error.code.code())
                    .with_error_message(error.message.clone().map(StrBytes::from_string)),
            }
        })
        .collect();
    CreatePartitionsResponse::default().with_results(results)
}

fn asked(topic: &CreatePartitionsTopic) -> CreatePartitions {
    let assignments = topic.assignments.as_ref().map(|assignments| {
        let nodes = assignments.iter().map(|one| one.broker_ids.iter().map(|id| id.0).collect());
        nodes.collect()
    });
    CreatePartitions { name: topic.name.to_string(), count: topic.count, assignments }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::TopicName;
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::error_code::ErrorCode;

    #[test]
    fn every_topic_is_answered_once_with_its_own_outcome() {
        let topic = |name: &'static str| {
            CreatePartitionsTopic::default()
                .with_name(TopicName(StrBytes::from_static_str(name)))
                .with_count(3)
        };
        let request = CreatePartitionsRequest::default().with_topics(vec![
            topic("a"),
            topic("b"),
            topic("b"),
        ]);
        let refused = PlanError {
            code: ErrorCode::InvalidPartitions,
            message: Some("Topic already has 3 partition(s).".to_owned()),
            limit: None,
        };
        let answer = answer(&request, &[Ok(()), Err(refused.clone()), Err(refused)]);
        let told: Vec<_> = answer
            .results
            .iter()
            .map(|result| (result.name.as_str(), result.error_code, result.error_message.is_some()))
            .collect();
        assert_eq!(told, [("a", 0, false), ("b", 37, true)]);
        for version in 0..=3 {
            assert!(answer.compute_size(version).is_ok());
        }
    }
}
