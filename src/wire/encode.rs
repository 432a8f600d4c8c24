//! Small responses: frame length, response header and body in one buffer.
//!
//! Owns the response header rule (v0, or v1 with tagged fields for flexible bodies; always v0 for
//! ApiVersions) and the sizing, so that one allocation holds a whole frame. The hot responses have
//! encoders of their own: [`super::produce`] and [`super::gather`].
//! Source: Kafka's `ApiKeys.responseHeaderVersion`, KIP-511.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Encodable;

use super::primitive::put_no_tags;
use super::versions::{Api, api_versions_unsupported};

/// Why a response cannot be written: always a fault of the handler that filled it. The connection
/// is closed and the event counted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeFault {
    /// A string, array or the whole response is longer than its length field can say.
    #[error("a length does not fit its field")]
    TooLarge,
    /// The codec refused, usually a field the version does not have.
    #[error("the response does not fit version {version} of {api:?}: {reason}")]
    Codec {
        /// The API.
        api: Api,
        /// The version asked for.
        version: i16,
        /// What the codec said.
        reason: String,
    },
}

/// A whole response frame, the length prefix included.
///
/// # Errors
/// The response holds something that `version` cannot express.
pub fn encode_response<T: Encodable>(
    api: Api,
    version: i16,
    correlation_id: i32,
    response: &T,
) -> Result<Bytes, EncodeFault> {
    let codec_version = api.codec_version(version);
    let refused =
        |error: anyhow::Error| EncodeFault::Codec { api, version, reason: error.to_string() };
    let body_bytes = response.compute_size(codec_version).map_err(refused)?;
    let flexible_header = api.has_flexible_response_header(version);
    let header_bytes = PREFIX_BYTES + HEADER_BYTES + usize::from(flexible_header);
    let capacity = body_bytes.checked_add(header_bytes).ok_or(EncodeFault::TooLarge)?;
    let mut frame = BytesMut::with_capacity(capacity);
    frame.put_i32(0);
    frame.put_i32(correlation_id);
    if flexible_header {
        frame.put_u8(0);
    }
    response.encode(&mut frame, codec_version).map_err(refused)?;
    patch_length(&mut frame, 0)?;
    Ok(frame.freeze())
}

/// The frame that answers ApiVersions of a version that is not served: a v0 body with error 35.
///
/// # Errors
/// Never in practice; the type is that of [`encode_response`].
pub fn unsupported_api_versions(correlation_id: i32) -> Result<Bytes, EncodeFault> {
    encode_response(Api::ApiVersions, 0, correlation_id, &api_versions_unsupported())
}

/// Starts a hand-written response: room for the length, then the header.
pub(super) fn put_header(out: &mut Vec<u8>, correlation_id: i32, flexible: bool) {
    out.put_i32(0);
    out.put_i32(correlation_id);
    put_no_tags(out, flexible);
}

/// Fills in the length of a response whose frame goes on for `further_bytes` after
/// `out`.
pub(super) fn patch_length(out: &mut [u8], further_bytes: usize) -> Result<(), EncodeFault> {
    let length = out
        .len()
        .checked_sub(PREFIX_BYTES)
        .and_then(|own| own.checked_add(further_bytes))
        .and_then(|length| i32::try_from(length).ok())
        .ok_or(EncodeFault::TooLarge)?;
    if let Some(prefix) = out.first_chunk_mut::<PREFIX_BYTES>() {
        *prefix = length.to_be_bytes();
    }
    Ok(())
}

const PREFIX_BYTES: usize = 4;
const HEADER_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::versions::{ApiRow, SERVED, api_versions};
    use kafka_protocol::messages::{ListOffsetsResponse, MetadataResponse};

    #[test]
    fn api_versions_0_is_keys_only_under_header_0() {
        let frame = encode_response(Api::ApiVersions, 0, 0x0102_0304, &api_versions(0, 5, 0));
        // error 0, then {key, min, max} of every served API.
        let mut expected = vec![1, 2, 3, 4, 0, 0, 0, 0, 0, SERVED.len() as u8];
        for row in SERVED {
            expected.extend_from_slice(&entry(row));
        }
        assert_eq!(frame, Ok(framed(&expected)));
        let frame = frame.expect("encodes");
        assert_eq!(frame[14..26], *b"\x00\x00\x00\x00\x00\x0d\x00\x01\x00\x04\x00\x12");
    }

    #[test]
    fn api_versions_3_is_flexible_under_header_0() {
        let frame = encode_response(Api::ApiVersions, 3, 0x0102_0304, &api_versions(3, 5, 9));
        // No tag byte after the correlation id; every array entry ends in one. The tagged fields
        // are supported features (without those whose lowest level is 0), the epoch, and
        // the finalized features (max before min).
        let mut expected = vec![1, 2, 3, 4, 0, 0, SERVED.len() as u8 + 1];
        for row in SERVED {
            expected.extend_from_slice(&entry(row));
            expected.push(0);
        }
        expected.extend_from_slice(
            b"\x00\x00\x00\x09\x03\
            \x00\x17\x02\x11metadata.version\x00\x07\x00\x1e\x00\
            \x01\x08\x00\x00\x00\x00\x00\x00\x00\x05\
            \x02\x43\x04\x11metadata.version\x00\x1e\x00\x1e\x00\
              \x14transaction.version\x00\x02\x00\x02\x00\
              \x0egroup.version\x00\x01\x00\x01\x00",
        );
        assert_eq!(frame, Ok(framed(&expected)));
    }

    /// Key, lowest and highest version of a row, as they stand in the answer.
    fn entry(row: &ApiRow) -> Vec<u8> {
        [row.api.key(), row.advertised_min, row.max].map(i16::to_be_bytes).concat()
    }

    fn framed(body: &[u8]) -> Bytes {
        [&(body.len() as u32).to_be_bytes()[..], body].concat().into()
    }

    #[test]
    fn an_unknown_version_of_api_versions_gets_35_in_version_0() {
        assert_eq!(
            unsupported_api_versions(7),
            Ok(Bytes::from_static(
                b"\x00\x00\x00\x10\x00\x00\x00\x07\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"
            ))
        );
    }

    #[test]
    fn other_flexible_responses_have_header_1() {
        let answer = ListOffsetsResponse::default();
        let expected = Bytes::from_static(b"\x00\x00\x00\x0b\x00\x00\x00\x01\x00\0\0\0\0\x01\x00");
        // 11 is written as 10: the same bytes.
        for version in [6, 10, 11] {
            let frame = encode_response(Api::ListOffsets, version, 1, &answer);
            assert_eq!(frame, Ok(expected.clone()), "version {version}");
        }
        assert_eq!(
            encode_response(Api::ListOffsets, 5, 1, &answer),
            Ok(Bytes::from_static(b"\x00\x00\x00\x0c\x00\x00\x00\x01\0\0\0\0\0\0\0\0"))
        );
    }

    #[test]
    fn a_field_the_version_lacks_is_a_fault() {
        let mut answer = MetadataResponse::default();
        answer.cluster_authorized_operations = 8;
        let fault = encode_response(Api::Metadata, 0, 1, &answer).expect_err("refused");
        assert!(matches!(fault, EncodeFault::Codec { api: Api::Metadata, version: 0, .. }));
    }
}
