//! DeleteAcls (key 31), versions 1-3.
//!
//! Behaviour
//! - There is no authorizer: 54 for each filter. A filter with the number of an unknown type,
//!   pattern, operation or permission (0) is malformed, as in Kafka: the connection is closed.
//!
//! Version notes: 1 pattern types (KIP-290); 2 flexible; 3 users as a resource (KIP-373).

use std::rc::Rc;

use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::describe_acls::UNKNOWN;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(_shard: &Rc<Shard>, header: &RequestHeader, request: &DeleteAclsRequest) -> Response {
    match answer(request) {
        Some(response) => Response::encode(header, &response),
        None => Response::Close,
    }
}

/// The answer; none if the request is malformed.
#[must_use]
pub fn answer(request: &DeleteAclsRequest) -> Option<DeleteAclsResponse> {
    let is_malformed = request.filters.iter().any(|filter| {
        let kind = [filter.resource_type_filter, filter.pattern_type_filter];
        kind.contains(&UNKNOWN) || [filter.operation, filter.permission_type].contains(&UNKNOWN)
    });
    let refused = DeleteAclsFilterResult::default()
        .with_error_code(ErrorCode::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str("No Authorizer is configured.")));
    let results = || vec![refused; request.filters.len()];
    (!is_malformed).then(|| DeleteAclsResponse::default().with_filter_results(results()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;

    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn there_is_no_authorizer() {
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(1)
            .with_pattern_type_filter(1)
            .with_operation(1)
            .with_permission_type(1);
        let request = DeleteAclsRequest::default().with_filters(vec![filter.clone()]);
        let response = answer(&request).expect("an answer");
        let codes: Vec<i16> = response.filter_results.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [54]);
        for version in 1..=3 {
            encode_response(Api::DeleteAcls, version, 1, &response).expect("encodes");
        }
        let malformed = vec![filter.with_permission_type(0)];
        assert_eq!(answer(&DeleteAclsRequest::default().with_filters(malformed)), None);
    }
}
