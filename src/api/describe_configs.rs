//! DescribeConfigs (key 32), versions 1-4.
//!
//! Behaviour
//! - Topics: unknown 3 (no message), illegal name 17.
//! - Brokers: a node describes itself, any other id is 42; all nodes have one configuration. An
//!   empty name is the cluster-wide defaults set while running, and only those.
//! - Loggers are those of the node itself, else 42; there are none to be set. Client metrics and
//!   groups have their defaults even where nothing is set. An empty name is 42 for these three.
//!   **deviation**: groups have the configs of consumer groups only; there are no others.
//! - An unknown type refuses every resource of the request with 42, as in Kafka.
//! - Null or no names: all configs. Unknown names are left out.
//! - Synonyms and documentation only where asked for. Secret values would be null; none is.
//! - **deviation**: a resource given twice is answered once, so that the answer is bounded by the
//!   catalog and not by the request.
//!
//! Version notes: 1 synonyms, sources (KIP-226); 3 types and documentation (KIP-569); 4 flexible.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::config::HostPort;
use crate::config::topic::{self, ConfigSource, DescribedConfig};
use crate::config::{client_metrics, group};
use crate::error_code::ErrorCode;
use crate::ids::ShardId;
use crate::metadata::image::{
    Image, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP,
    RESOURCE_TOPIC,
};
use crate::metadata::topics;
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeConfigsRequest,
) -> Response {
    let image = shard.catalog();
    Response::encode(header, &answer(&image, &shard.context, shard.id, request))
}

/// The answer of the node that `shard` is.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    shard: ShardId,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let describer = Describer { image, context, node: context.node_of(shard), request };
    let is_known = |resource: &DescribeConfigsResource| {
        matches!(
            resource.resource_type,
            RESOURCE_TOPIC
                | RESOURCE_BROKER
                | RESOURCE_BROKER_LOGGER
                | RESOURCE_CLIENT_METRICS
                | RESOURCE_GROUP
        )
    };
    let all_known = request.resources.iter().all(is_known);
    let mut seen = HashSet::new();
    let results = request
        .resources
        .iter()
        .filter(|resource| seen.insert(identity(resource)))
        .map(|resource| {
            let described = if all_known {
                describer.describe(resource)
            } else {
                Err((ErrorCode::InvalidRequest, Some(MALFORMED.to_owned())))
            };
            let (code, message, configs) = match described {
                Ok(configs) => (ErrorCode::None, None, configs),
                Err((code, message)) => (code, message, Vec::new()),
            };
            DescribeConfigsResult::default()
                .with_error_code(code.code())
                // Never null, as in Kafka.
                .with_error_message(Some(StrBytes::from_string(message.unwrap_or_default())))
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
                .with_configs(configs)
        })
        .collect();
    DescribeConfigsResponse::default().with_results(results)
}

/// Type and name; the number instead of the name where it is one, since "0" and "00" are one node.
fn identity(resource: &DescribeConfigsResource) -> (i8, Option<i32>, &str) {
    let name = resource.resource_name.as_str();
    let numbered = matches!(resource.resource_type, RESOURCE_BROKER | RESOURCE_BROKER_LOGGER);
    match name.parse() {
        Ok(number) if numbered => (resource.resource_type, Some(number), ""),
        _ => (resource.resource_type, None, name),
    }
}

type Refusal = (ErrorCode, Option<String>);

struct Describer<'a> {
    image: &'a Image,
    context: &'a Context,
    node: i32,
    request: &'a DescribeConfigsRequest,
}

impl Describer<'_> {
    fn describe(
        &self,
        resource: &DescribeConfigsResource,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let name = resource.resource_name.as_str();
        match resource.resource_type {
            RESOURCE_TOPIC => self.topic(resource, name),
            RESOURCE_BROKER => self.broker(resource, name),
            RESOURCE_BROKER_LOGGER => {
                if name.is_empty() {
                    return Err(invalid("Broker id must not be empty"));
                }
                let node = self.node;
                if node_id(name)? != node {
                    return Err(invalid(&format!(
                        "Unexpected broker id, expected {node} but received {name}"
                    )));
                }
                Ok(Vec::new())
            }
            RESOURCE_CLIENT_METRICS if name.is_empty() => {
                Err(invalid("Client metrics subscription name must not be empty"))
            }
            RESOURCE_CLIENT_METRICS => {
                let set = self.image.configs(RESOURCE_CLIENT_METRICS, name);
                let none = BTreeMap::new();
                Ok(self.selected(resource, client_metrics::describe(set.unwrap_or(&none))))
            }
            _ if name.is_empty() => Err(invalid("Group name must not be empty")),
            _ => {
                let set = self.image.configs(RESOURCE_GROUP, name);
                let none = BTreeMap::new();
                let configs = group::describe(set.unwrap_or(&none), self.image.broker());
                Ok(self.selected(resource, configs))
            }
        }
    }

    fn topic(
        &self,
        resource: &DescribeConfigsResource,
        name: &str,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        topics::validate_name(name)
            .map_err(|message| (ErrorCode::InvalidTopicException, Some(message)))?;
        let topic = self.image.topic(name).ok_or((ErrorCode::UnknownTopicOrPartition, None))?;
        let configs = topic::describe(&topic.overrides, self.image.broker());
        Ok(self.selected(resource, configs))
    }

    fn broker(
        &self,
        resource: &DescribeConfigsResource,
        name: &str,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let node = self.node;
        if !name.is_empty() && node_id(name)? != node {
            return Err(invalid(&format!(
                "Unexpected broker id, expected {node} or empty string, but received {name}"
            )));
        }
        let mut configs = self.broker_configs();
        if name.is_empty() {
            let is_default = |source| source == ConfigSource::DynamicDefaultBroker;
            configs.retain_mut(|config| {
                config.synonyms.retain(|synonym| is_default(synonym.source));
                is_default(config.source)
            });
        }
        Ok(self.selected(resource, configs))
    }

    fn broker_configs(&self) -> Vec<DescribedConfig> {
        let broker = self.image.broker();
        let mut listen = broker.listen_address();
        let mut advertised = listen.clone();
        if let Some(node) = self.context.nodes.iter().find(|node| node.id == self.node) {
            listen.port = node.port;
            advertised = HostPort { host: node.host.clone(), port: node.port };
        }
        topic::describe_broker(broker, self.node, &listen, &advertised)
    }

    fn selected(
        &self,
        resource: &DescribeConfigsResource,
        configs: Vec<DescribedConfig>,
    ) -> Vec<DescribeConfigsResourceResult> {
        let keys = resource.configuration_keys.as_deref().unwrap_or(&[]);
        let keys: HashSet<&str> = keys.iter().map(StrBytes::as_str).collect();
        configs
            .into_iter()
            .filter(|config| keys.is_empty() || keys.contains(config.name))
            .map(|config| self.entry(config))
            .collect()
    }

    fn entry(&self, config: DescribedConfig) -> DescribeConfigsResourceResult {
        let synonyms = if self.request.include_synonyms { config.synonyms } else { Vec::new() };
        let synonyms = synonyms.into_iter().map(|synonym| {
            DescribeConfigsSynonym::default()
                .with_name(StrBytes::from_static_str(synonym.name))
                .with_value(synonym.value.map(StrBytes::from_string))
                .with_source(synonym.source as i8)
        });
        let documentation = self
            .request
            .include_documentation
            .then(|| StrBytes::from_static_str(config.documentation));
        DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(config.name))
            .with_value(config.value.map(StrBytes::from_string))
            .with_read_only(config.read_only)
            .with_config_source(config.source as i8)
            .with_is_sensitive(config.sensitive)
            .with_synonyms(synonyms.collect())
            .with_config_type(config.value_type as i8)
            .with_documentation(documentation)
    }
}

fn node_id(name: &str) -> Result<i32, Refusal> {
    name.parse().map_err(|_| invalid(&format!("Broker id must be an integer, but it is: {name}")))
}

fn invalid(message: &str) -> Refusal {
    (ErrorCode::InvalidRequest, Some(message.to_owned()))
}

const MALFORMED: &str = "This most likely occurs because of a request being malformed by the \
                         client library or the message was sent to an incompatible broker. See \
                         the broker logs for more details.";

#[cfg(test)]
mod tests;
