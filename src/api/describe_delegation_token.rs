//! DescribeDelegationToken (key 41), versions 1-3.
//!
//! Behaviour
//! - There are no delegation tokens. As on every plaintext listener of Kafka's: 64, and no tokens.
//!
//! Version notes: 2 flexible; 3 who asked for a token (KIP-373).

use std::rc::Rc;

use kafka_protocol::messages::{DescribeDelegationTokenRequest, DescribeDelegationTokenResponse};

use super::Response;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    _shard: &Rc<Shard>,
    header: &RequestHeader,
    _request: &DescribeDelegationTokenRequest,
) -> Response {
    Response::encode(header, &answer())
}

/// The answer.
#[must_use]
pub fn answer() -> DescribeDelegationTokenResponse {
    DescribeDelegationTokenResponse::default()
        .with_error_code(ErrorCode::DelegationTokenRequestNotAllowed.code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn tokens_are_not_allowed() {
        let response = answer();
        assert_eq!((response.error_code, response.tokens.len()), (64, 0));
        for version in 1..=3 {
            encode_response(Api::DescribeDelegationToken, version, 1, &response).expect("encodes");
        }
    }
}
