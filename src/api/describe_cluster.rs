//! DescribeCluster (key 60), versions 0-2.
//!
//! Behaviour
//! - Endpoint type 1 is brokers. 2 (controllers) is not answered on this listener: 114; any other:
//!   115. v0 has no such field.
//! - All nodes that clients see; none is ever fenced. Node 0 is the controller. **deviation**:
//!   Kafka names a random broker.
//! - Without an authorizer all operations are allowed, if they are asked for.
//!
//! Version notes: 0 flexible from the start (KIP-700); 1 endpoint type (KIP-919); 2 fenced brokers
//! (KIP-1073).

use std::rc::Rc;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::metadata::Image;
use crate::shard::{Context, Node, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeClusterRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), &shard.context, request))
}

/// The answer.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refused(
                ErrorCode::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of \
                 type CONTROLLER"
                    .to_owned(),
            );
        }
        other => {
            let message = format!("Unsupported endpoint type {other}");
            return refused(ErrorCode::UnsupportedEndpointType, message);
        }
    }
    let rack = image.broker().broker_rack.clone().map(StrBytes::from_string);
    let broker = |node: &Node| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(node.id))
            .with_host(StrBytes::from_string(node.host.clone()))
            .with_port(i32::from(node.port))
            .with_rack(rack.clone())
    };
    let operations =
        if request.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { i32::MIN };
    DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_string(image.cluster_id().to_owned()))
        .with_controller_id(BrokerId(CONTROLLER_NODE))
        .with_brokers(context.nodes.iter().map(broker).collect())
        .with_cluster_authorized_operations(operations)
}

fn refused(code: ErrorCode, message: String) -> DescribeClusterResponse {
    DescribeClusterResponse::default()
        .with_error_code(code.code())
        .with_error_message(Some(StrBytes::from_string(message)))
}

/// What may be done with the cluster when nothing forbids it: bit 5 CREATE, 7 ALTER, 8 DESCRIBE,
/// 9 CLUSTER_ACTION, 10 DESCRIBE_CONFIGS, 11 ALTER_CONFIGS, 12 IDEMPOTENT_WRITE.
pub const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// The node that is called the controller.
pub const CONTROLLER_NODE: i32 = 0;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn the_brokers_of_both_modes() {
        let several = context(&[("broker.rack", "r1")]);
        let request = DescribeClusterRequest::default();
        let response = answer(&catalog(&several, &[]), &several, &request);
        assert_eq!((response.error_code, response.error_message.as_deref()), (0, None));
        assert_eq!((response.endpoint_type, response.controller_id.0), (1, 0));
        assert_eq!(response.cluster_id.as_str(), "clusterclusterclustery");
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
        let brokers: Vec<(i32, &str, i32, Option<&str>, bool)> = response
            .brokers
            .iter()
            .map(|b| (b.broker_id.0, b.host.as_str(), b.port, b.rack.as_deref(), b.is_fenced))
            .collect();
        assert_eq!(brokers.len(), 4);
        assert_eq!(brokers[0], (0, "ringlog", 9092, Some("r1"), false));
        assert_eq!(brokers[3], (3, "ringlog", 9095, Some("r1"), false));
        let single = context(&[("advertise", "single")]);
        let response = answer(&catalog(&single, &[]), &single, &request);
        assert_eq!(response.brokers.len(), 1);
        assert_eq!((response.brokers[0].broker_id.0, response.brokers[0].rack.as_ref()), (0, None));
    }

    #[test]
    fn operations_are_told_when_asked() {
        let context = context(&[]);
        let request =
            DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        let response = answer(&catalog(&context, &[]), &context, &request);
        assert_eq!(response.cluster_authorized_operations, 8096);
    }

    #[test]
    fn other_endpoint_types_are_refused() {
        let context = context(&[]);
        let image = catalog(&context, &[]);
        let mismatch = "The request was sent to an endpoint of type BROKER, but we wanted an \
                        endpoint of type CONTROLLER";
        for (endpoint_type, code, message) in [
            (2, 114, mismatch),
            (0, 115, "Unsupported endpoint type 0"),
            (-7, 115, "Unsupported endpoint type -7"),
        ] {
            let request = DescribeClusterRequest::default().with_endpoint_type(endpoint_type);
            let response = answer(&image, &context, &request);
            assert_eq!(response.error_code, code);
            assert_eq!(response.error_message.as_deref(), Some(message));
            assert!(response.brokers.is_empty());
            assert_eq!((response.cluster_id.as_str(), response.controller_id.0), ("", -1));
        }
    }

    #[test]
    fn every_version_is_encoded() {
        let context = context(&[("broker.rack", "r1")]);
        let image = catalog(&context, &[]);
        for version in 0..=2 {
            let request = DescribeClusterRequest::default().with_include_fenced_brokers(true);
            let response = answer(&image, &context, &request);
            encode_response(Api::DescribeCluster, version, 1, &response).expect("encodes");
            let request = DescribeClusterRequest::default().with_endpoint_type(9);
            let response = answer(&image, &context, &request);
            encode_response(Api::DescribeCluster, version, 1, &response).expect("encodes");
        }
    }
}
