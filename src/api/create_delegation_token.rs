//! CreateDelegationToken (key 38), versions 1-3.
//!
//! Behaviour
//! - There are no delegation tokens. As on every plaintext listener of Kafka's: 64, with the owner
//!   that was asked for, or else the nobody that every connection is.
//!
//! Version notes: 2 flexible; 3 owner and requester (KIP-373).

use std::rc::Rc;

use kafka_protocol::messages::{CreateDelegationTokenRequest, CreateDelegationTokenResponse};
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
    request: &CreateDelegationTokenRequest,
) -> Response {
    Response::encode(header, &answer(request, header.api_version))
}

/// The answer.
#[must_use]
pub fn answer(
    request: &CreateDelegationTokenRequest,
    version: i16,
) -> CreateDelegationTokenResponse {
    let user = StrBytes::from_static_str("User");
    let nobody = StrBytes::from_static_str("ANONYMOUS");
    let owner = request.owner_principal_name.clone().filter(|name| !name.is_empty());
    let owner_type = match &owner {
        Some(_) => request.owner_principal_type.clone().unwrap_or_default(),
        None => user.clone(),
    };
    let response = CreateDelegationTokenResponse::default()
        .with_error_code(ErrorCode::DelegationTokenRequestNotAllowed.code())
        .with_principal_type(owner_type)
        .with_principal_name(owner.unwrap_or_else(|| nobody.clone()))
        .with_issue_timestamp_ms(-1)
        .with_expiry_timestamp_ms(-1)
        .with_max_timestamp_ms(-1);
    if version < REQUESTER_SINCE {
        return response;
    }
    response.with_token_requester_principal_type(user).with_token_requester_principal_name(nobody)
}

const REQUESTER_SINCE: i16 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn tokens_are_not_allowed() {
        let text = |text| Some(StrBytes::from_static_str(text));
        let request = CreateDelegationTokenRequest::default()
            .with_owner_principal_type(text("User"))
            .with_owner_principal_name(text("ann"));
        for (request, name) in [(request, "ann"), (Default::default(), "ANONYMOUS")] {
            for version in 1..=3 {
                let response = answer(&request, version);
                assert_eq!((response.error_code, &*response.principal_name), (64, name));
                let requester = response.token_requester_principal_name.as_str();
                assert_eq!(requester, if version == 3 { "ANONYMOUS" } else { "" });
                encode_response(Api::CreateDelegationToken, version, 1, &response)
                    .expect("encodes");
            }
        }
    }
}
