//! The topics in the metadata of a consumer.
//!
//! Owns the one look into what members send: version, topics, user data of Kafka's
//! `ConsumerProtocolSubscription`; later versions only append to it. Bytes that are no such thing
//! say nothing, and are no fault: members may send what they like.

use std::sync::Arc;

/// The protocol type whose metadata has topics.
pub const CONSUMER: &str = "consumer";

/// The topics subscribed to; `None` if the metadata does not say.
#[must_use]
pub fn topics(metadata: &[u8]) -> Option<Vec<Arc<str>>> {
    let mut rest = metadata;
    if i16::from_be_bytes(take(&mut rest)?) < 0 {
        return None;
    }
    let count = i32::from_be_bytes(take(&mut rest)?);
    let mut topics = Vec::new();
    for _ in 0..usize::try_from(count).ok()? {
        let length = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        let text = std::str::from_utf8(bytes(&mut rest, length)?).ok()?;
        topics.push(Arc::from(text));
    }
    match i32::from_be_bytes(take(&mut rest)?) {
        -1 => {}
        length => {
            bytes(&mut rest, usize::try_from(length).ok()?)?;
        }
    }
    Some(topics)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn bytes<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn topics_of_any_version() {
        let check = |bytes: &[u8], expected: Option<&[&str]>| {
            let expected = expected.map(|topics| topics.iter().map(|&t| t.into()).collect());
            assert_eq!(topics(bytes), expected, "{bytes:?}");
        };
        check(b"\0\0\0\0\0\0\xff\xff\xff\xff", Some(&[]));
        check(b"\0\0\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff", Some(&["a", "bc"]));
        // Version 3 with user data, owned partitions, a generation and a rack.
        let three = b"\0\x03\0\0\0\x01\0\x01a\0\0\0\x02zz\0\0\0\0\0\0\0\x01\0\x01r";
        check(three, Some(&["a"]));
        check(b"", None);
        check(b"\xff\xff\0\0\0\0\xff\xff\xff\xff", None);
        check(b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff", None);
        check(b"\0\0\0\0\0\x01\0\x01\xff\xff\xff\xff\xff", None);
        check(b"\0\0\0\0\0\x01\0\x01a", None);
        check(b"\0\0\0\0\0\x01\0\x01a\0\0\0\x05zz", None);
        check(b"\0\0\x7f\xff\xff\xff\0\x01a", None);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = topics(&bytes);
        }
    }
}
