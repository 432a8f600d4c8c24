//! DeleteTopics (key 20), versions 1-6.
//!
//! Behaviour
//! - Any node takes the request; shard 0 deletes one topic after the other.
//!   [`crate::metadata::topics`] has the checks: neither or both of name and id 42, duplicates 42,
//!   unknown name 3, unknown id 100, `delete.topic.enable=false` 73 (below v3: 42).
//! - When it is answered no shard serves the topic, and its name is free again; the files go
//!   later. **deviation**: the timeout is ignored.
//! - A topic that another request deletes meanwhile: 100, below v6 3.
//! - When the catalog cannot be written: 56.
//!
//! Version notes: 3 TOPIC_DELETION_DISABLED; 4 flexible; 5 error messages, quota errors (KIP-599);
//! 6 by id (KIP-516).

use std::rc::Rc;

use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::ids::{ShardId, TopicId};
use crate::metadata::topics::{DeleteResult, DeleteTopic, NOT_HOSTED, plan_delete};
use crate::shard::Shard;
use crate::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use crate::wire::header::RequestHeader;

/// Answers a request once the topics are gone, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: DeleteTopicsRequest,
) -> Response {
    let version = header.api_version;
    let plan = plan_delete(&shard.catalog(), &asked(&request, version), version);
    let ids: Vec<TopicId> = plan.iter().filter_map(to_delete).collect();
    let mut codes = vec![ErrorCode::KafkaStorageError; ids.len()];
    if !ids.is_empty() {
        let change = CatalogChange::DeleteTopics(ids);
        let reply = shard.ask(ShardId(0), Operation::Catalog(change)).await;
        if let Reply::Catalog(CatalogOutcome::Deleted(deleted)) = reply {
            codes = deleted;
        }
    }
    Response::encode(&header, &answer(&plan, &codes, version))
}

/// The topics of a request, in whichever of its two forms.
#[must_use]
pub fn asked(request: &DeleteTopicsRequest, version: i16) -> Vec<DeleteTopic> {
    if version < IDS_SINCE {
        let name =
            |name: &TopicName| DeleteTopic { name: Some(name.to_string()), id: TopicId::ZERO };
        return request.topic_names.iter().map(name).collect();
    }
    request
        .topics
        .iter()
        .map(|topic| DeleteTopic {
            name: topic.name.as_ref().map(|name| name.to_string()),
            id: topic.topic_id.into(),
        })
        .collect()
}

/// The answer, given the code of each deletion that the plan allowed, in its order.
#[must_use]
pub fn answer(plan: &[DeleteResult], codes: &[ErrorCode], version: i16) -> DeleteTopicsResponse {
    let mut codes = codes.iter().copied();
    let responses = plan.iter().map(|result| {
        let (code, message) = match &result.outcome {
            Err(error) => (error.code, error.message.clone()),
            Ok(_) => match codes.next().unwrap_or(ErrorCode::KafkaStorageError) {
                ErrorCode::UnknownTopicId if version < IDS_SINCE => gone_by_name(),
                ErrorCode::UnknownTopicId => (
                    ErrorCode::UnknownTopicId,
                    Some("This server does not host this topic ID.".to_owned()),
                ),
                ErrorCode::None => (ErrorCode::None, None),
                code => (code, Some("The catalog of topics cannot be written.".to_owned())),
            },
        };
        DeletableTopicResult::default()
            .with_name(result.name.clone().map(|name| TopicName(StrBytes::from_string(name))))
            .with_topic_id(result.id.into())
            .with_error_code(code.code())
            .with_error_message(message.map(StrBytes::from_string))
    });
    DeleteTopicsResponse::default().with_responses(responses.collect())
}

fn to_delete(result: &DeleteResult) -> Option<TopicId> {
    result.outcome.as_ref().ok().map(|topic| topic.id)
}

fn gone_by_name() -> (ErrorCode, Option<String>) {
    (ErrorCode::UnknownTopicOrPartition, Some(NOT_HOSTED.to_owned()))
}

const IDS_SINCE: i16 = 6;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_topics_request::DeleteTopicState;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn name(name: &str) -> TopicName {
        TopicName(StrBytes::from_string(name.to_owned()))
    }

    fn named(names: &[&str]) -> DeleteTopicsRequest {
        DeleteTopicsRequest::default().with_topic_names(names.iter().map(|n| name(n)).collect())
    }

    fn state(topic: Option<&str>, id: u8) -> DeleteTopicState {
        DeleteTopicState::default()
            .with_name(topic.map(name))
            .with_topic_id(TopicId([id; 16]).into())
    }

    /// Name, id byte, code and message of each answer, on a catalog with `a` (id 1), `b` (2) and
    /// `c` (3), where every deletion that is allowed ends with the next of `codes`.
    fn answered(
        settings: &[(&str, &str)],
        request: &DeleteTopicsRequest,
        codes: &[ErrorCode],
        version: i16,
    ) -> Vec<(Option<String>, u8, i16, Option<String>)> {
        let context = context(settings);
        let image = catalog(&context, &[("a", 1, &[0]), ("b", 2, &[0]), ("c", 3, &[0])]);
        let plan = plan_delete(&image, &asked(request, version), version);
        assert_eq!(plan.iter().filter_map(to_delete).count(), codes.len());
        let response = answer(&plan, codes, version);
        encode_response(Api::DeleteTopics, version, 1, &response).expect("encodes");
        response
            .responses
            .iter()
            .map(|result| {
                let name = result.name.as_ref().map(|name| name.to_string());
                let message = result.error_message.as_ref().map(|message| message.to_string());
                (name, result.topic_id.as_bytes()[0], result.error_code, message)
            })
            .collect()
    }

    #[test]
    fn by_name() {
        let unknown = "This server does not host this topic-partition.";
        for version in 1..=5 {
            let found = answered(
                &[],
                &named(&["b", "nope", "a", "c", "c"]),
                &[ErrorCode::None, ErrorCode::None],
                version,
            );
            assert_eq!(
                found,
                [
                    (Some("b".into()), 2, 0, None),
                    (Some("nope".into()), 0, 3, Some(unknown.into())),
                    (Some("a".into()), 1, 0, None),
                    (Some("c".into()), 0, 42, Some("Duplicate topic name.".into())),
                ]
            );
        }
    }

    #[test]
    fn by_name_or_id() {
        let request = DeleteTopicsRequest::default().with_topics(vec![
            state(Some("a"), 0),
            state(None, 2),
            state(None, 9),
            state(None, 0),
            state(Some("c"), 3),
        ]);
        let mut found = answered(&[], &request, &[ErrorCode::None, ErrorCode::None], 6);
        found.sort();
        assert_eq!(
            found,
            [
                (None, 0, 42, Some("Neither topic name nor id were specified.".into())),
                (None, 9, 100, Some("This server does not host this topic ID.".into())),
                (Some("a".into()), 1, 0, None),
                (Some("b".into()), 2, 0, None),
                (
                    Some("c".into()),
                    3,
                    42,
                    Some("You may not specify both topic name and topic id.".into())
                ),
            ]
        );
    }

    #[test]
    fn deletions_that_fail() {
        let codes = [ErrorCode::UnknownTopicId, ErrorCode::KafkaStorageError];
        for (version, code) in [(1, 3), (5, 3), (6, 100)] {
            let request =
                named(&["a", "b"]).with_topics(vec![state(Some("a"), 0), state(Some("b"), 0)]);
            let found = answered(&[], &request, &codes, version);
            let outline: Vec<i16> = found.iter().map(|(_, _, code, _)| *code).collect();
            assert_eq!(outline, [code, 56], "v{version}");
        }
    }

    #[test]
    fn deletion_may_be_disabled() {
        let settings = [("delete.topic.enable", "false")];
        for (version, code) in [(1, 42), (2, 42), (3, 73), (5, 73)] {
            let found = answered(&settings, &named(&["a", "nope"]), &[], version);
            let outline: Vec<i16> = found.iter().map(|(_, _, code, _)| *code).collect();
            assert_eq!(outline, [code, code], "v{version}");
        }
    }
}
