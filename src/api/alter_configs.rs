//! AlterConfigs (key 33), versions 0-2.
//!
//! Behaviour
//! - What is set on a resource afterwards is what the request says, and nothing else; otherwise
//!   this is IncrementalAlterConfigs, with its deviations.
//! - Loggers are an unknown type here: 42.
//!
//! Version notes: 0 of KIP-133, superseded by KIP-339; 2 flexible.

use std::rc::Rc;

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::incremental_alter_configs::{altered, told};
use crate::metadata::alter::Alteration;
use crate::metadata::configs::{AlterResource, ConfigChange, SET};
use crate::metadata::topics::PlanError;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request once all of it is durable and in force, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: AlterConfigsRequest,
) -> Response {
    let alteration = Alteration::Configs {
        node: shard.context.node_of(shard.id),
        resources: asked(&request),
        validate_only: request.validate_only,
    };
    let results = altered(&shard, alteration).await;
    Response::encode(&header, &answer(&request, &results))
}

/// The changes that a request asks for.
#[must_use]
pub fn asked(request: &AlterConfigsRequest) -> Vec<AlterResource> {
    let resources = request.resources.iter().map(|resource| {
        let changes = resource.configs.iter().map(|config| ConfigChange {
            key: config.name.to_string(),
            operation: SET,
            value: config.value.as_ref().map(StrBytes::to_string),
        });
        AlterResource {
            resource_type: resource.resource_type,
            name: resource.resource_name.to_string(),
            changes: changes.collect(),
            replace: true,
        }
    });
    resources.collect()
}

/// The answer, given what became of each resource.
#[must_use]
pub fn answer(
    request: &AlterConfigsRequest,
    results: &[Result<(), PlanError>],
) -> AlterConfigsResponse {
    let responses = request.resources.iter().zip(results).map(|(resource, result)| {
        let (code, message) = told(result);
        AlterConfigsResourceResponse::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};

    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn a_request_replaces_what_is_set() {
        let text = StrBytes::from_static_str;
        let config = AlterableConfig::default().with_name(text("a")).with_value(Some(text("1")));
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(vec![config]);
        let request = AlterConfigsRequest::default().with_resources(vec![resource]);
        let change = ConfigChange { key: "a".into(), operation: SET, value: Some("1".into()) };
        let expected = AlterResource {
            resource_type: 2,
            name: "t".to_owned(),
            changes: vec![change],
            replace: true,
        };
        assert_eq!(asked(&request), [expected]);
        let response = answer(&request, &[Ok(())]);
        let only = &response.responses[0];
        assert_eq!((only.error_code, only.resource_type, &*only.resource_name), (0, 2, "t"));
        for version in 0..=2 {
            encode_response(Api::AlterConfigs, version, 1, &response).expect("encodes");
        }
    }
}
