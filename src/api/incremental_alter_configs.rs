//! IncrementalAlterConfigs (key 44), versions 0-1.
//!
//! Behaviour
//! - Any node takes the request; shard 0 checks and writes it ([`crate::metadata::configs`] has the
//!   rules and Kafka's sentences). Each resource is changed whole or not at all, and answered where
//!   it stands in the request, twice if it is given twice.
//! - When it is answered every shard works by the new values; nothing waits for a restart.
//! - **deviation**: brokers have one configuration. Its overrides are those of the empty broker
//!   name; setting something on one node is 42, as is a name this broker does not know.
//! - **deviation**: an operation that does not exist is 42; in Kafka it fails the request with -1.
//! - Levels of loggers cannot be changed: there are no loggers by name.
//! - `validate_only` checks all the same. When the catalog cannot be written: 56.
//!
//! Version notes: 0 of KIP-339; 1 flexible.

use std::rc::Rc;

use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::create_topics::unwritable;
use crate::ids::ShardId;
use crate::metadata::alter::Alteration;
use crate::metadata::configs::{AlterResource, ConfigChange};
use crate::metadata::topics::PlanError;
use crate::shard::Shard;
use crate::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use crate::wire::header::RequestHeader;

/// Answers a request once all of it is durable and in force, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: IncrementalAlterConfigsRequest,
) -> Response {
    let alteration = Alteration::Configs {
        node: shard.context.node_of(shard.id),
        resources: asked(&request),
        validate_only: request.validate_only,
    };
    let results = altered(&shard, alteration).await;
    Response::encode(&header, &answer(&request, &results))
}

/// Has shard 0 alter something; one result per entry.
pub(super) async fn altered(
    shard: &Rc<Shard>,
    alteration: Alteration,
) -> Vec<Result<(), PlanError>> {
    let entries = alteration.entries();
    let change = Operation::Catalog(CatalogChange::Alter(alteration));
    match shard.ask(ShardId(0), change).await {
        Reply::Catalog(CatalogOutcome::Altered(results)) => results,
        _ => vec![Err(unwritable()); entries],
    }
}

/// Code and sentence of a result.
pub(super) fn told(result: &Result<(), PlanError>) -> (i16, Option<StrBytes>) {
    match result {
        Ok(()) => (0, None),
        Err(error) => (error.code.code(), error.message.clone().map(StrBytes::from_string)),
    }
}

/// The changes that a request asks for.
#[must_use]
pub fn asked(request: &IncrementalAlterConfigsRequest) -> Vec<AlterResource> {
    let resources = request.resources.iter().map(|resource| {
        let changes = resource.configs.iter().map(|config| ConfigChange {
            key: config.name.to_string(),
            operation: config.config_operation,
            value: config.value.as_ref().map(StrBytes::to_string),
        });
        AlterResource {
            resource_type: resource.resource_type,
            name: resource.resource_name.to_string(),
            changes: changes.collect(),
            replace: false,
        }
    });
    resources.collect()
}

/// The answer, given what became of each resource.
#[must_use]
pub fn answer(
    request: &IncrementalAlterConfigsRequest,
    results: &[Result<(), PlanError>],
) -> IncrementalAlterConfigsResponse {
    let responses = request.resources.iter().zip(results).map(|(resource, result)| {
        let (code, message) = told(result);
        AlterConfigsResourceResponse::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };

    use super::*;
    use crate::metadata::configs::{DELETE, SET};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn a_request_is_taken_and_answered_as_it_stands() {
        let text = StrBytes::from_static_str;
        let config = |name, operation, value: Option<&'static str>| {
            AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(operation)
                .with_value(value.map(text))
        };
        let resource = |kind, name, configs| {
            AlterConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configs(configs)
        };
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![
            resource(2, "t", vec![config("a", SET, Some("1")), config("b", DELETE, None)]),
            resource(4, "", vec![]),
        ]);
        let change = |key: &str, operation, value: Option<&str>| ConfigChange {
            key: key.to_owned(),
            operation,
            value: value.map(str::to_owned),
        };
        let asked = asked(&request);
        assert_eq!(asked[0].changes, [change("a", SET, Some("1")), change("b", DELETE, None)]);
        assert_eq!((asked[1].resource_type, &*asked[1].name, asked[1].replace), (4, "", false));
        let response = answer(&request, &[Err(unwritable()), Ok(())]);
        let outline: Vec<_> = response
            .responses
            .iter()
            .map(|r| (r.error_code, r.error_message.is_some(), r.resource_type, &*r.resource_name))
            .collect();
        assert_eq!(outline, [(56, true, 2, "t"), (0, false, 4, "")]);
        for version in 0..=1 {
            encode_response(Api::IncrementalAlterConfigs, version, 1, &response).expect("encodes");
        }
    }
}
