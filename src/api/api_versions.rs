//! ApiVersions (key 18), versions 0-4.
//!
//! Behaviour
//! - Lists exactly what [`crate::wire::versions`] serves; the answer is the same on every shard.
//! - A version that is not served, even a negative one: a v0 body with 35 and the range of
//!   ApiVersions alone; the request's body is not looked at (KIP-511).
//! - v3+: a software name or version that is empty or has other characters than ASCII letters,
//!   digits, '-' and '.', or one of these two at either end: 42 and no keys.
//! - The epoch of the finalized features is never negative: clients ignore features otherwise.
//!
//! Version notes: 1 throttle; 3 flexible body (never the header), software name and version,
//! features (KIP-584); 4 features whose lowest level is 0 (KAFKA-17011).

use std::rc::Rc;

use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::Response;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::wire::codes::Codes;
use crate::wire::encode;
use crate::wire::header::RequestHeader;
use crate::wire::versions;

/// Answers a request of a served version.
#[must_use]
pub fn handle(shard: &Rc<Shard>, header: &RequestHeader, request: &ApiVersionsRequest) -> Response {
    if header.api_version >= SOFTWARE_SINCE {
        tracing::debug!(
            shard = %shard.id,
            name = request.client_software_name.as_str(),
            version = request.client_software_version.as_str(),
            "a client told what it is"
        );
    }
    let epoch = shard.catalog().features_epoch();
    Response::encode(header, &answer(request, header.api_version, epoch))
}

/// Answers a request of a version that is not served.
#[must_use]
pub fn unsupported(header: &RequestHeader) -> Response {
    match encode::unsupported_api_versions(header.correlation_id) {
        Ok(frame) => Response::frame(frame, Codes::one(ErrorCode::UnsupportedVersion.code())),
        Err(fault) => Response::fault(header, &fault),
    }
}

/// The answer, given how often the finalized features have changed.
#[must_use]
pub fn answer(
    request: &ApiVersionsRequest,
    version: i16,
    features_epoch: i64,
) -> ApiVersionsResponse {
    let valid = version < SOFTWARE_SINCE
        || (is_software_text(&request.client_software_name)
            && is_software_text(&request.client_software_version));
    if valid {
        versions::api_versions(version, features_epoch.max(0), 0)
    } else {
        ApiVersionsResponse::default().with_error_code(ErrorCode::InvalidRequest.code())
    }
}

fn is_software_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

const SOFTWARE_SINCE: i16 = 3;

#[cfg(test)]
mod tests {
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::wire::versions::Api;

    fn request(name: &str, version: &str) -> ApiVersionsRequest {
        ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_string(name.to_owned()))
            .with_client_software_version(StrBytes::from_string(version.to_owned()))
    }

    #[test]
    fn software_texts_follow_kafkas_pattern() {
        for text in ["a", "7", "apache-kafka-java", "4.3.1", "a--..b", "v2-SNAPSHOT"] {
            assert!(is_software_text(text), "{text}");
        }
        for text in ["", "-", ".", "-a", "a-", "a.", ".a", "a b", "a_b", "ä", "a\n", "a/b"] {
            assert!(!is_software_text(text), "{text}");
        }
    }

    #[test]
    fn a_bad_software_name_or_version_is_refused_from_v3_on() {
        for (name, version) in [("a b", "1"), ("a", ""), ("", "")] {
            for api_version in 3..=4 {
                let refused = answer(&request(name, version), api_version, 5);
                assert_eq!(refused.error_code, 42);
                assert!(refused.api_keys.is_empty());
                assert!(refused.supported_features.is_empty());
                assert_eq!(refused.finalized_features_epoch, -1);
                assert_eq!(refused.throttle_time_ms, 0);
            }
            for api_version in 0..=2 {
                assert_eq!(answer(&request(name, version), api_version, 5).error_code, 0);
            }
        }
    }

    #[test]
    fn features_and_their_epoch_are_told_from_v3_on() {
        let client = request("ringlog-test", "1.0");
        let oldest = answer(&client, 0, 5);
        assert_eq!(oldest.finalized_features_epoch, -1);
        assert!(oldest.supported_features.is_empty());
        for version in 3..=4 {
            let told = answer(&client, version, 5);
            assert_eq!((told.error_code, told.finalized_features_epoch), (0, 5));
            assert_eq!(told.api_keys.len(), versions::SERVED.len());
        }
        assert_eq!(answer(&client, 4, -3).finalized_features_epoch, 0, "never negative");
    }

    #[test]
    fn an_unserved_version_is_answered_in_v0() {
        for api_version in [5, 99, -1] {
            let header = RequestHeader {
                api: Api::ApiVersions,
                api_version,
                correlation_id: 7,
                client_id: None,
            };
            let mut slices = Vec::new();
            assert!(unsupported(&header).into_slices(true, &mut slices));
            // Measured on Kafka 4.3.1: error 35, one key: 18, 0 to 4; no throttle.
            let expected: &[u8] = &[0, 0, 0, 16, 0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4];
            assert_eq!(slices.concat(), expected);
        }
    }
}
