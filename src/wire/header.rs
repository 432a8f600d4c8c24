//! Request headers: API key, version, correlation id, client id.
//!
//! Owns the two request header versions and the rule which key and version may pass. Must never
//! answer: every fault closes the connection, as in Kafka. The one exception is ApiVersions of an
//! unknown version, which passes with [`RequestHeader::is_served`] false and is answered 35.
//! Source: Kafka's `RequestHeader.parse`, KIP-482 (header v2), KIP-511.

use bytes::{Buf, Bytes};
use kafka_protocol::protocol::StrBytes;

use super::primitive::get_uvarint;
use super::versions::Api;

/// Header of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Which API; its key is [`Api::key`].
    pub api: Api,
    /// Version of the body; served, unless the API is ApiVersions.
    pub api_version: i16,
    /// Number the response carries back.
    pub correlation_id: i32,
    /// Name the client gives itself; null on the wire is `None`. It shares the frame's memory:
    /// copy it before keeping it longer than the request.
    pub client_id: Option<StrBytes>,
}

/// Why a frame has no usable header.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderFault {
    /// The frame ends within the header.
    #[error("the frame ends within the request header")]
    Truncated,
    /// The key is unknown or not served.
    #[error("API key {key} (version {version}) is not served")]
    UnknownApi {
        /// The key.
        key: i16,
        /// The version that came with it.
        version: i16,
    },
    /// The version is outside the served range.
    #[error("version {version} of {api:?} is not served")]
    UnsupportedVersion {
        /// The API.
        api: Api,
        /// The version.
        version: i16,
    },
    /// The client id or the tagged fields are malformed.
    #[error("malformed request header: {0}")]
    Malformed(&'static str),
}

impl RequestHeader {
    /// Whether the body can be decoded; false only for ApiVersions of an unknown version.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.api.serves(self.api_version)
    }
}

/// Splits a frame into its header and body. The body shares the frame's memory. For ApiVersions
/// of an unknown version only the first eight bytes are read, and the body is empty.
///
/// # Errors
/// See [`HeaderFault`]; all of them close the connection.
pub fn parse(mut frame: Bytes) -> Result<(RequestHeader, Bytes), HeaderFault> {
    if frame.len() < FIXED_BYTES {
        return Err(HeaderFault::Truncated);
    }
    let key = frame.get_i16();
    let version = frame.get_i16();
    let correlation_id = frame.get_i32();
    let api = Api::from_key(key).ok_or(HeaderFault::UnknownApi { key, version })?;
    let mut header = RequestHeader { api, api_version: version, correlation_id, client_id: None };
    if !api.serves(version) {
        return if api == Api::ApiVersions {
            Ok((header, Bytes::new()))
        } else {
            Err(HeaderFault::UnsupportedVersion { api, version })
        };
    }
    header.client_id = take_client_id(&mut frame)?;
    if api.is_flexible(version) {
        skip_tags(&mut frame)?;
    }
    Ok((header, frame))
}

/// The client id has a 16-bit length in both header versions: it is not compact in v2.
fn take_client_id(frame: &mut Bytes) -> Result<Option<StrBytes>, HeaderFault> {
    let length = frame.try_get_i16().map_err(|_| HeaderFault::Truncated)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length)
        .map_err(|_| HeaderFault::Malformed("negative length of the client id"))?;
    if frame.len() < length {
        return Err(HeaderFault::Truncated);
    }
    StrBytes::from_utf8(frame.split_to(length))
        .map(Some)
        .map_err(|_| HeaderFault::Malformed("the client id is not UTF-8"))
}

fn skip_tags(frame: &mut Bytes) -> Result<(), HeaderFault> {
    let count = take_uvarint(frame)?;
    let mut previous = None;
    for _ in 0..count {
        let tag = take_uvarint(frame)?;
        if previous.is_some_and(|previous| tag <= previous) {
            return Err(HeaderFault::Malformed("tags do not ascend"));
        }
        previous = Some(tag);
        let size = take_uvarint(frame)? as usize;
        if frame.len() < size {
            return Err(HeaderFault::Truncated);
        }
        frame.advance(size);
    }
    Ok(())
}

fn take_uvarint(frame: &mut Bytes) -> Result<u32, HeaderFault> {
    let (value, length) =
        get_uvarint(frame).ok_or(HeaderFault::Malformed("bad variable-length number"))?;
    frame.advance(length);
    Ok(value)
}

const FIXED_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(frame: &'static [u8], expected: Result<(RequestHeader, &[u8]), HeaderFault>) {
        let got = parse(Bytes::from_static(frame));
        let expected = expected.map(|(header, body)| (header, Bytes::copy_from_slice(body)));
        assert_eq!(got, expected, "frame {frame:02x?}");
    }

    fn header(api: Api, api_version: i16, client_id: Option<&'static str>) -> RequestHeader {
        RequestHeader {
            api,
            api_version,
            correlation_id: 0x0102_0304,
            client_id: client_id.map(StrBytes::from_static_str),
        }
    }

    #[test]
    fn version_1_is_key_version_correlation_and_client() {
        // Metadata v1, client "ab", null topics.
        check(
            b"\x00\x03\x00\x01\x01\x02\x03\x04\x00\x02ab\xff\xff\xff\xff",
            Ok((header(Api::Metadata, 1, Some("ab")), b"\xff\xff\xff\xff".as_slice())),
        );
        check(
            b"\x00\x03\x00\x00\x01\x02\x03\x04\xff\xff",
            Ok((header(Api::Metadata, 0, None), b"".as_slice())),
        );
    }

    #[test]
    fn version_2_adds_tags_and_keeps_the_16_bit_client_id() {
        // ApiVersions v3, client "ab", no tags; then with tags 1 (2 bytes) and 5 (empty).
        check(
            b"\x00\x12\x00\x03\x01\x02\x03\x04\x00\x02ab\x00\x02x\x02y\x00",
            Ok((header(Api::ApiVersions, 3, Some("ab")), b"\x02x\x02y\x00".as_slice())),
        );
        check(
            b"\x00\x12\x00\x03\x01\x02\x03\x04\x00\x00\x02\x01\x02zz\x05\x00\x09",
            Ok((header(Api::ApiVersions, 3, Some("")), b"\x09".as_slice())),
        );
    }

    #[test]
    fn faults_are_told_apart() {
        check(b"\x00\x03\x00\x01\x01\x02\x03", Err(HeaderFault::Truncated));
        check(b"\x00\x03\x00\x01\x01\x02\x03\x04\x00\x03ab", Err(HeaderFault::Truncated));
        check(
            b"\x00\x03\x00\x01\x01\x02\x03\x04\xff\xfe",
            Err(HeaderFault::Malformed("negative length of the client id")),
        );
        check(
            b"\x00\x03\x00\x01\x01\x02\x03\x04\x00\x01\xff",
            Err(HeaderFault::Malformed("the client id is not UTF-8")),
        );
        check(
            b"\x03\xe7\x00\x01\x01\x02\x03\x04\xff\xff",
            Err(HeaderFault::UnknownApi { key: 999, version: 1 }),
        );
        check(
            b"\x00\x00\x00\x02\x01\x02\x03\x04\xff\xff",
            Err(HeaderFault::UnsupportedVersion { api: Api::Produce, version: 2 }),
        );
        check(
            b"\x00\x12\x00\x03\x01\x02\x03\x04\xff\xff\x02\x01\x00\x01\x00",
            Err(HeaderFault::Malformed("tags do not ascend")),
        );
        check(
            b"\x00\x12\x00\x03\x01\x02\x03\x04\xff\xff\xff\xff\xff\xff\x0f",
            Err(HeaderFault::Malformed("bad variable-length number")),
        );
    }

    #[test]
    fn api_versions_of_an_unknown_version_passes_unread() {
        for version in [b"\x00\x05", b"\x00\x63", b"\xff\xff"] {
            let mut frame = b"\x00\x12".to_vec();
            frame.extend_from_slice(version);
            frame.extend_from_slice(b"\x01\x02\x03\x04garbage");
            let (header, body) = parse(Bytes::from(frame)).expect("passes");
            assert_eq!(header.api, Api::ApiVersions);
            assert_eq!(header.correlation_id, 0x0102_0304);
            assert!(!header.is_served() && body.is_empty());
        }
    }

    proptest! {
        #![proptest_config(crate::wire::tests::cases(256))]

        #[test]
        fn no_bytes_make_it_panic(
            mut frame in prop::collection::vec(any::<u8>(), 0..64),
            key in 0_u8..62,
        ) {
            let _ = parse(Bytes::from(frame.clone()));
            if frame.len() > 3 {
                frame[..3].copy_from_slice(&[0, key, 0]);
                let _ = parse(Bytes::from(frame));
            }
        }
    }
}
