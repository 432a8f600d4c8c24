//! ExpireDelegationToken (key 40), versions 1-2.
//!
//! Behaviour
//! - There are no delegation tokens. As on every plaintext listener of Kafka's: 64.
//!
//! Version notes: 2 flexible.

use std::rc::Rc;

use kafka_protocol::messages::{ExpireDelegationTokenRequest, ExpireDelegationTokenResponse};

use super::Response;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    _shard: &Rc<Shard>,
    header: &RequestHeader,
    _request: &ExpireDelegationTokenRequest,
) -> Response {
    Response::encode(header, &answer())
}

/// The answer.
#[must_use]
pub fn answer() -> ExpireDelegationTokenResponse {
    ExpireDelegationTokenResponse::default()
        .with_error_code(ErrorCode::DelegationTokenRequestNotAllowed.code())
        .with_expiry_timestamp_ms(-1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn tokens_are_not_allowed() {
        let response = answer();
        assert_eq!((response.error_code, response.expiry_timestamp_ms), (64, -1));
        for version in 1..=2 {
            encode_response(Api::ExpireDelegationToken, version, 1, &response).expect("encodes");
        }
    }
}
