//! ListConfigResources (key 74), versions 0-1.
//!
//! Behaviour
//! - Groups and client metrics subscriptions that have configs; all brokers, once as themselves and
//!   once for their loggers; all topics. By type in this order, then by name.
//! - No types in the request: all. A type that does not exist: 35 for the whole request.
//!
//! Version notes: 0 client metrics only, without a type in the answer (KIP-714); 1 all types
//! (KIP-1142).

use std::rc::Rc;

use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::metadata::image::{
    Image, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP,
    RESOURCE_TOPIC,
};
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &ListConfigResourcesRequest,
) -> Response {
    let image = shard.catalog();
    Response::encode(header, &answer(&image, &shard.context, request, header.api_version))
}

/// The answer.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    let supported = if version < TYPES_SINCE { &[RESOURCE_CLIENT_METRICS][..] } else { ALL };
    let asked = &request.resource_types;
    if !asked.iter().all(|asked| supported.contains(asked)) {
        return ListConfigResourcesResponse::default()
            .with_error_code(ErrorCode::UnsupportedVersion.code());
    }
    let wanted = |kind: &&i8| asked.is_empty() || asked.contains(*kind);
    let resources = supported.iter().filter(wanted).flat_map(|&kind| {
        names(image, context, kind).into_iter().map(move |name| {
            ConfigResource::default()
                .with_resource_name(StrBytes::from_string(name))
                .with_resource_type(kind)
        })
    });
    ListConfigResourcesResponse::default().with_config_resources(resources.collect())
}

fn names(image: &Image, context: &Context, kind: i8) -> Vec<String> {
    match kind {
        RESOURCE_TOPIC => image.topics().map(|topic| topic.name.to_string()).collect(),
        RESOURCE_BROKER | RESOURCE_BROKER_LOGGER => {
            context.nodes.iter().map(|node| node.id.to_string()).collect()
        }
        _ => {
            let resources = image.config_resources().filter(|(other, _)| *other == kind);
            resources.map(|(_, name)| name.clone()).collect()
        }
    }
}

/// In the order they are answered.
const ALL: &[i8] = &[
    RESOURCE_GROUP,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
];

const TYPES_SINCE: i16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::metadata::Record;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn listed(types: &[i8], version: i16) -> (i16, Vec<(i8, String)>) {
        let context = context(&[]);
        let set = |resource_type, name: &str| Record::ConfigSet {
            resource_type,
            resource_name: name.to_owned(),
            key: "k".to_owned(),
            value: Some("v".to_owned()),
        };
        let image = catalog(&context, &[("b", 1, &[0]), ("a", 2, &[0])]).apply_all(&[
            set(32, "g"),
            set(16, "m"),
            set(4, ""),
        ]);
        let request = ListConfigResourcesRequest::default().with_resource_types(types.to_vec());
        let response = answer(&image, &context, &request, version);
        encode_response(Api::ListConfigResources, version, 1, &response).expect("encodes");
        let resources = response.config_resources.iter();
        let resources = resources.map(|r| (r.resource_type, r.resource_name.to_string()));
        (response.error_code, resources.collect())
    }

    #[test]
    fn resources_are_listed_by_type() {
        let of = |kind: i8, names: &[&str]| {
            names.iter().map(|name| (kind, (*name).to_owned())).collect::<Vec<_>>()
        };
        let nodes = ["0", "1", "2", "3"];
        let all =
            [of(32, &["g"]), of(16, &["m"]), of(8, &nodes), of(4, &nodes), of(2, &["a", "b"])];
        assert_eq!(listed(&[], 1), (0, all.concat()));
        assert_eq!(listed(&[2, 32], 1), (0, [of(32, &["g"]), of(2, &["a", "b"])].concat()));
        assert_eq!(listed(&[], 0), (0, of(16, &["m"])));
        assert_eq!(listed(&[2, 3], 1), (35, vec![]));
    }
}
