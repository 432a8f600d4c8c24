//! What consumers say in the metadata and assignments of the classic protocol.
//!
//! Owns the one look into what members send, and what is written in its form: version, topics and
//! user data of Kafka's `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`, to which
//! later versions only append. Bytes that are no such thing say nothing, and are no fault: members
//! may send what they like.

use std::sync::Arc;

use bytes::Bytes;

/// The protocol type whose metadata has topics.
pub const CONSUMER: &str = "consumer";

/// Partitions by the name of their topic.
pub type NamedPartitions = Vec<(Arc<str>, Vec<i32>)>;

/// What a consumer subscribes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// Topics by name.
    pub topics: Vec<Arc<str>>,
    /// What it has; nothing before version 1.
    pub owned: NamedPartitions,
    /// Its rack; none before version 3.
    pub rack_id: Option<Arc<str>>,
}

/// What a consumer was assigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// Its partitions.
    pub partitions: NamedPartitions,
    /// Whether its assignor says more than that.
    pub has_user_data: bool,
}

/// The topics subscribed to; `None` if the metadata does not say.
#[must_use]
pub fn topics(metadata: &[u8]) -> Option<Vec<Arc<str>>> {
    let mut rest = metadata;
    version(&mut rest)?;
    topics_and_user_data(&mut rest)
}

/// The version of metadata or of an assignment; `None` for what is neither.
pub fn version(rest: &mut &[u8]) -> Option<i16> {
    let version = i16::from_be_bytes(take(rest)?);
    (version >= 0).then_some(version)
}

impl Subscription {
    /// Reads all of it; `None` if the bytes are no subscription of their version.
    #[must_use]
    pub fn read(metadata: &[u8]) -> Option<Subscription> {
        let mut rest = metadata;
        let version = version(&mut rest)?;
        let topics = topics_and_user_data(&mut rest)?;
        let owned = if version >= OWNED_SINCE { named_partitions(&mut rest)? } else { Vec::new() };
        if version >= GENERATION_SINCE {
            take::<4>(&mut rest)?;
        }
        let rack_id = if version >= RACK_SINCE { nullable_text(&mut rest)? } else { None };
        Some(Subscription { topics, owned, rack_id })
    }
}

impl Assignment {
    /// Reads an assignment; no bytes at all are one of nothing. `None` for anything else that is
    /// none.
    #[must_use]
    pub fn read(assignment: &[u8]) -> Option<Assignment> {
        if assignment.is_empty() {
            return Some(Assignment { partitions: Vec::new(), has_user_data: false });
        }
        let mut rest = assignment;
        version(&mut rest)?;
        let partitions = named_partitions(&mut rest)?;
        let has_user_data = user_data(&mut rest)? > 0;
        Some(Assignment { partitions, has_user_data })
    }
}

/// An assignment in the version of a member's metadata, as far as there is such a one.
#[must_use]
pub fn assignment(metadata: &[u8], partitions: &NamedPartitions) -> Bytes {
    let version = version(&mut &*metadata).unwrap_or(0).min(VERSION_MAX);
    let mut out = version.to_be_bytes().to_vec();
    put_count(&mut out, partitions.len());
    for (topic, partitions) in partitions {
        let length = i16::try_from(topic.len()).expect("invariant: names of topics are short");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(topic.as_bytes());
        put_count(&mut out, partitions.len());
        for partition in partitions {
            out.extend_from_slice(&partition.to_be_bytes());
        }
    }
    out.extend_from_slice(&NULL.to_be_bytes());
    out.into()
}

fn topics_and_user_data(rest: &mut &[u8]) -> Option<Vec<Arc<str>>> {
    let topics = (0..count(rest)?).map(|_| text(rest)).collect::<Option<_>>()?;
    user_data(rest)?;
    Some(topics)
}

fn named_partitions(rest: &mut &[u8]) -> Option<NamedPartitions> {
    let topic = |rest: &mut &[u8]| {
        let name = text(rest)?;
        let partitions = (0..count(rest)?).map(|_| Some(i32::from_be_bytes(take(rest)?)));
        Some((name, partitions.collect::<Option<_>>()?))
    };
    (0..count(rest)?).map(|_| topic(rest)).collect()
}

/// Passes over user data, and says how much there is.
fn user_data(rest: &mut &[u8]) -> Option<usize> {
    match i32::from_be_bytes(take(rest)?) {
        NULL => Some(0),
        length => bytes(rest, usize::try_from(length).ok()?).map(<[u8]>::len),
    }
}

fn count(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(i32::from_be_bytes(take(rest)?)).ok()
}

fn text(rest: &mut &[u8]) -> Option<Arc<str>> {
    nullable_text(rest)?
}

fn nullable_text(rest: &mut &[u8]) -> Option<Option<Arc<str>>> {
    let length = i16::from_be_bytes(take(rest)?);
    if i32::from(length) == NULL {
        return Some(None);
    }
    let text = bytes(rest, usize::try_from(length).ok()?)?;
    Some(Some(Arc::from(std::str::from_utf8(text).ok()?)))
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

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = i32::try_from(count).expect("invariant: no assignment has 2 billion of anything");
    out.extend_from_slice(&count.to_be_bytes());
}

/// Length of what is not there.
const NULL: i32 = -1;

/// The newest version of both.
const VERSION_MAX: i16 = 3;

/// From here on a subscription says what its member has.
const OWNED_SINCE: i16 = 1;

/// From here on, and since which generation.
const GENERATION_SINCE: i16 = 2;

/// From here on, and in which rack.
const RACK_SINCE: i16 = 3;

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
        check(b"\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff", None);
        check(b"\0\0\0\0\0\x01\0\x01a", None);
        check(b"\0\0\0\0\0\x01\0\x01a\0\0\0\x05zz", None);
        check(b"\0\0\x7f\xff\xff\xff\0\x01a", None);
    }

    #[test]
    fn subscriptions_of_every_version() {
        let check = |bytes: &[u8], owned: &[(&str, &[i32])], rack: Option<&str>| {
            let expected = Subscription {
                topics: vec!["a".into()],
                owned: owned.iter().map(|(name, of)| (Arc::from(*name), of.to_vec())).collect(),
                rack_id: rack.map(Into::into),
            };
            assert_eq!(Subscription::read(bytes), Some(expected), "{bytes:?}");
            let short = &bytes[..bytes.len() - 1];
            assert_eq!(Subscription::read(short), None, "{short:?}");
        };
        let zero = b"\0\0\0\0\0\x01\0\x01a\xff\xff\xff\xff".as_slice();
        check(zero, &[], None);
        let with = |version: u8, more: &[u8]| {
            let mut bytes =
                [zero, b"\0\0\0\x01\0\x01b\0\0\0\x02\0\0\0\x07\0\0\0\x09", more].concat();
            bytes[1] = version;
            bytes
        };
        check(&with(1, b""), &[("b", &[7, 9])], None);
        check(&with(2, b"\0\0\0\x05"), &[("b", &[7, 9])], None);
        check(&with(3, b"\0\0\0\x05\xff\xff"), &[("b", &[7, 9])], None);
        check(&with(3, b"\0\0\0\x05\0\x01r"), &[("b", &[7, 9])], Some("r"));
        // What a later version says besides is passed over.
        let four = with(4, b"\0\0\0\x05\0\x01rmore");
        assert_eq!(Subscription::read(&four).and_then(|read| read.rack_id).as_deref(), Some("r"));
    }

    #[test]
    fn assignments_are_read_as_they_are_written() {
        let partitions: NamedPartitions = vec![("a".into(), vec![1, 0]), ("bc".into(), vec![])];
        // Laid out by hand after Kafka's schema.
        let bytes = b"\0\x02\0\0\0\x02\0\x01a\0\0\0\x02\0\0\0\x01\0\0\0\0\0\x02bc\0\0\0\0\
                      \xff\xff\xff\xff";
        assert_eq!(&assignment(b"\0\x02", &partitions)[..], bytes);
        assert_eq!(assignment(b"\0\x09", &partitions)[..2], [0, 3], "no such version yet");
        assert_eq!(assignment(b"", &partitions)[..2], [0, 0]);
        let read = Assignment { partitions, has_user_data: false };
        assert_eq!(Assignment::read(bytes), Some(read));
        let nothing = Assignment { partitions: vec![], has_user_data: false };
        assert_eq!(Assignment::read(b""), Some(nothing.clone()));
        assert_eq!(Assignment::read(b"\0\0\0\0\0\0\0\0\0\0"), Some(nothing.clone()));
        let custom = Assignment { has_user_data: true, ..nothing };
        assert_eq!(Assignment::read(b"\0\0\0\0\0\0\0\0\0\x01z"), Some(custom));
        assert_eq!(Assignment::read(b"\0\0\0\0\0\0"), None);
        assert_eq!(Assignment::read(b"x"), None);
        assert_eq!(Assignment::read(b"\xff\xff\0\0\0\0\xff\xff\xff\xff"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = topics(&bytes);
            let _ = Subscription::read(&bytes);
            let _ = Assignment::read(&bytes);
        }
    }
}
