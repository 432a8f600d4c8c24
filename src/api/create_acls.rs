//! CreateAcls (key 30), versions 1-3.
//!
//! Behaviour
//! - There is no authorizer: 54 for each entry. An entry with the number of an unknown type,
//!   pattern, operation or permission (0) is malformed, as in Kafka: the connection is closed.
//!
//! Version notes: 1 pattern types (KIP-290); 2 flexible; 3 users as a resource (KIP-373).

use std::rc::Rc;

use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::describe_acls::UNKNOWN;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(_shard: &Rc<Shard>, header: &RequestHeader, request: &CreateAclsRequest) -> Response {
    match answer(request) {
        Some(response) => Response::encode(header, &response),
        None => Response::Close,
    }
}

/// The answer; none if the request is malformed.
#[must_use]
pub fn answer(request: &CreateAclsRequest) -> Option<CreateAclsResponse> {
    let is_malformed = request.creations.iter().any(|acl| {
        let kind = [acl.resource_type, acl.resource_pattern_type];
        kind.contains(&UNKNOWN) || [acl.operation, acl.permission_type].contains(&UNKNOWN)
    });
    let refused = AclCreationResult::default()
        .with_error_code(ErrorCode::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str("No Authorizer is configured.")));
    let results = || vec![refused; request.creations.len()];
    (!is_malformed).then(|| CreateAclsResponse::default().with_results(results()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::create_acls_request::AclCreation;

    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn there_is_no_authorizer() {
        let acl = AclCreation::default()
            .with_resource_type(2)
            .with_resource_pattern_type(3)
            .with_operation(3)
            .with_permission_type(3);
        let request = CreateAclsRequest::default().with_creations(vec![acl.clone(), acl.clone()]);
        let response = answer(&request).expect("an answer");
        let codes: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [54, 54]);
        for version in 1..=3 {
            encode_response(Api::CreateAcls, version, 1, &response).expect("encodes");
        }
        let malformed = vec![acl.clone(), acl.with_resource_type(0)];
        assert_eq!(answer(&CreateAclsRequest::default().with_creations(malformed)), None);
    }
}
