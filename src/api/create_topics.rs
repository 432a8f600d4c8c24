//! CreateTopics (key 19), versions 2-7.
//!
//! Behaviour
//! - Any node takes the request; shard 0 checks and writes it ([`crate::metadata::topics`] has the
//!   rules, their order and Kafka's sentences). Failures are per topic.
//! - A name given twice is refused and answered once, at its first place.
//! - When it is answered every shard serves the topics. **deviation**: the timeout is ignored, as
//!   nothing is waited for but the write itself; Kafka may answer 7 and create the topic later.
//! - `validate_only` checks all the same and answers as if it had been done, with an id that
//!   means nothing.
//! - The replication factor is answered as 1, which is what there is (see the planner).
//! - When the catalog cannot be written: 56 for every topic.
//!
//! Version notes: 4 -1 for the defaults; 5 flexible, effective configs in the answer (KIP-525);
//! 6 quota errors (KIP-599); 7 topic id.

use std::collections::HashSet;
use std::rc::Rc;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::config::{BrokerConfig, topic};
use crate::error_code::ErrorCode;
use crate::ids::ShardId;
use crate::metadata::topics::{CreateTopic, PlanError, PlannedTopic};
use crate::shard::Shard;
use crate::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use crate::wire::header::RequestHeader;

/// Answers a request once all of it is durable and served, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: CreateTopicsRequest,
) -> Response {
    let topics = request.topics.iter().map(asked).collect();
    let validate_only = request.validate_only;
    let change = CatalogChange::CreateTopics { topics, validate_only, automatic: false };
    let results = match shard.ask(ShardId(0), Operation::Catalog(change)).await {
        Reply::Catalog(CatalogOutcome::Created(results)) => results,
        _ => request.topics.iter().map(|_| Err(unwritable())).collect(),
    };
    let image = shard.catalog();
    let response = answer(image.broker(), &request, &results, header.api_version);
    Response::encode(&header, &response)
}

/// The answer, given what became of each topic of the request.
#[must_use]
pub fn answer(
    broker: &BrokerConfig,
    request: &CreateTopicsRequest,
    results: &[Result<PlannedTopic, PlanError>],
    version: i16,
) -> CreateTopicsResponse {
    let mut seen = HashSet::new();
    let topics = request
        .topics
        .iter()
        .zip(results)
        .filter(|(topic, _)| seen.insert(topic.name.as_str()))
        .map(|(topic, result)| match result {
            Ok(planned) => created(broker, topic, planned, version),
            Err(error) => CreatableTopicResult::default()
                .with_name(topic.name.clone())
                .with_error_code(error.code.code())
                .with_error_message(error.message.clone().map(StrBytes::from_string)),
        })
        .collect();
    CreateTopicsResponse::default().with_topics(topics)
}

fn created(
    broker: &BrokerConfig,
    topic: &CreatableTopic,
    planned: &PlannedTopic,
    version: i16,
) -> CreatableTopicResult {
    let result = CreatableTopicResult::default()
        .with_name(topic.name.clone())
        .with_topic_id(planned.id.into())
        .with_error_message(None);
    if version < CONFIGS_SINCE {
        return result;
    }
    let configs = topic::describe(&planned.overrides, broker).into_iter().map(|config| {
        CreatableTopicConfigs::default()
            .with_name(StrBytes::from_static_str(config.name))
            .with_value(config.value.map(StrBytes::from_string))
            .with_read_only(config.read_only)
            .with_config_source(config.source as i8)
            .with_is_sensitive(config.sensitive)
    });
    result
        .with_num_partitions(i32::try_from(planned.preferred.len()).unwrap_or(i32::MAX))
        .with_replication_factor(1)
        .with_configs(Some(configs.collect()))
}

fn asked(topic: &CreatableTopic) -> CreateTopic {
    let nodes = |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| id.0).collect();
    CreateTopic {
        name: topic.name.to_string(),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| (assignment.partition_index, nodes(&assignment.broker_ids)))
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| {
                (config.name.to_string(), config.value.as_ref().map(|value| value.to_string()))
            })
            .collect(),
    }
}

pub(super) fn unwritable() -> PlanError {
    PlanError {
        code: ErrorCode::KafkaStorageError,
        message: Some("The catalog of topics cannot be written.".to_owned()),
        limit: None,
    }
}

const CONFIGS_SINCE: i16 = 5;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::create_topics_request::{
        CreatableReplicaAssignment, CreatableTopicConfig,
    };
    use kafka_protocol::messages::{BrokerId, TopicName};

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::metadata::topics::{PlanContext, plan_create};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn topic(name: &str, partitions: i32) -> CreatableTopic {
        CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_string(name.to_owned())))
            .with_num_partitions(partitions)
            .with_replication_factor(-1)
    }

    fn config(name: &'static str, value: Option<&'static str>) -> CreatableTopicConfig {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(value.map(StrBytes::from_static_str))
    }

    /// What shard 0 would do, on a catalog that has the topic `old`.
    fn answered(topics: Vec<CreatableTopic>, version: i16) -> CreateTopicsResponse {
        let context = context(&[]);
        let image = catalog(&context, &[("old", 1, &[0])]);
        let request = CreateTopicsRequest::default().with_topics(topics);
        let asked: Vec<CreateTopic> = request.topics.iter().map(asked).collect();
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        };
        let loads = image.partitions_per_shard(context.shards);
        let mut plan_context = PlanContext {
            image: &image,
            shards: context.shards,
            shard_loads: &loads,
            random: &mut random,
        };
        let plan = plan_create(&mut plan_context, &asked, false);
        let response = answer(image.broker(), &request, &plan.results, version);
        encode_response(Api::CreateTopics, version, 1, &response).expect("encodes");
        response
    }

    #[test]
    fn everything_of_the_request_reaches_the_planner() {
        let assignment = CreatableReplicaAssignment::default()
            .with_partition_index(4)
            .with_broker_ids(vec![BrokerId(2), BrokerId(0)]);
        let sent = topic("t", 3)
            .with_replication_factor(2)
            .with_assignments(vec![assignment])
            .with_configs(vec![config("a", Some("b")), config("c", None)]);
        assert_eq!(
            asked(&sent),
            CreateTopic {
                name: "t".to_owned(),
                num_partitions: 3,
                replication_factor: 2,
                assignments: vec![(4, vec![2, 0])],
                configs: vec![("a".to_owned(), Some("b".to_owned())), ("c".to_owned(), None)],
            }
        );
    }

    #[test]
    fn effective_configs_are_told_from_v5_on() {
        let sent = topic("new", 3).with_configs(vec![config("retention.ms", Some("60000"))]);
        for version in [2, 4] {
            let response = answered(vec![sent.clone()], version);
            assert_eq!(response.topics[0].error_code, 0);
            assert_eq!(response.topics[0].num_partitions, -1);
            assert_eq!(response.topics[0].configs, Some(vec![]));
        }
        for version in [5, 7] {
            let response = answered(vec![sent.clone()], version);
            let result = &response.topics[0];
            assert_eq!((result.error_code, result.error_message.as_deref()), (0, None));
            assert_eq!((result.num_partitions, result.replication_factor), (3, 1));
            assert_eq!(result.topic_config_error_code, 0);
            let configs = result.configs.as_ref().expect("configs");
            let names: Vec<&str> = configs.iter().map(|config| config.name.as_str()).collect();
            assert!(names.is_sorted());
            let find = |name: &str| configs.iter().find(|config| config.name.as_str() == name);
            let retention = find("retention.ms").expect("retention.ms");
            assert_eq!((retention.value.as_deref(), retention.config_source), (Some("60000"), 1));
            assert!(!retention.read_only && !retention.is_sensitive);
            let cleanup = find("cleanup.policy").expect("cleanup.policy");
            assert_eq!((cleanup.value.as_deref(), cleanup.config_source), (Some("delete"), 5));
        }
        let id = answered(vec![sent], 7).topics[0].topic_id;
        assert_eq!(id.as_bytes()[6] >> 4, 4, "a version 4 UUID");
    }

    #[test]
    fn failures_are_per_topic_and_duplicates_answered_once() {
        let sent = vec![
            topic("twice", 1),
            topic("good", -1),
            topic("old", 1),
            topic("twice", 1),
            topic("a b", 1),
            topic("none", 0),
            topic("many", 1).with_replication_factor(9),
            topic("null", 1).with_configs(vec![config("retention.ms", None)]),
            topic("bad", 1).with_configs(vec![config("no.such", Some("1"))]),
        ];
        let response = answered(sent, 7);
        let outline: Vec<(&str, i16)> =
            response.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect();
        assert_eq!(
            outline,
            [
                ("twice", 42),
                ("good", 0),
                ("old", 36),
                ("a b", 17),
                ("none", 37),
                ("many", 38),
                ("null", 40),
                ("bad", 40)
            ]
        );
        let refused = &response.topics[2];
        assert_eq!(refused.error_message.as_deref(), Some("Topic 'old' already exists."));
        assert_eq!((refused.num_partitions, refused.replication_factor), (-1, -1));
        assert!(refused.topic_id.is_nil());
        assert_eq!(response.topics[1].num_partitions, 1, "the default");
    }

    #[test]
    fn a_catalog_that_cannot_be_written_refuses_all() {
        let request =
            CreateTopicsRequest::default().with_topics(vec![topic("a", 1), topic("b", 1)]);
        let results = [Err(unwritable()), Err(unwritable())];
        let context = context(&[]);
        for version in 2..=7 {
            let response = answer(&context.config, &request, &results, version);
            let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
            assert_eq!(codes, [56, 56]);
            encode_response(Api::CreateTopics, version, 1, &response).expect("encodes");
        }
    }
}
