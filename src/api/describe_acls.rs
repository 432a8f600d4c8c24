//! DescribeAcls (key 29), versions 1-3.
//!
//! Behaviour
//! - There is no authorizer: 54, whatever is asked for. A filter with the number of an unknown
//!   type, pattern, operation or permission (0) is malformed, as in Kafka: the connection is
//!   closed.
//!
//! Version notes: 1 pattern types (KIP-290); 2 flexible; 3 users as a resource (KIP-373).

use std::rc::Rc;

use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    _shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeAclsRequest,
) -> Response {
    match answer(request) {
        Some(response) => Response::encode(header, &response),
        None => Response::Close,
    }
}

/// The answer; none if the request is malformed.
#[must_use]
pub fn answer(request: &DescribeAclsRequest) -> Option<DescribeAclsResponse> {
    let numbers = [
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ];
    let message = StrBytes::from_static_str("No Authorizer is configured on the broker");
    (!numbers.contains(&UNKNOWN)).then(|| {
        DescribeAclsResponse::default()
            .with_error_code(ErrorCode::SecurityDisabled.code())
            .with_error_message(Some(message))
    })
}

/// The number of what the sender does not know by name.
pub(super) const UNKNOWN: i8 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn there_is_no_authorizer() {
        let mut request = DescribeAclsRequest::default()
            .with_resource_type_filter(1)
            .with_pattern_type_filter(1)
            .with_operation(1)
            .with_permission_type(1);
        let response = answer(&request).expect("an answer");
        assert_eq!((response.error_code, response.resources.len()), (54, 0));
        for version in 1..=3 {
            encode_response(Api::DescribeAcls, version, 1, &response).expect("encodes");
        }
        request.operation = 0;
        assert_eq!(answer(&request), None);
    }
}
