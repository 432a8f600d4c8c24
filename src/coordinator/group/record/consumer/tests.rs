//! Records of consumer groups: bytes that an Apache Kafka 4.3.1 wrote, and what they say.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::coordinator::group::record::GroupRecord;

/// Topic `t1` of the broker that wrote these bytes.
const T1: &[u8; 16] = b"e\x05\xe6\xd0\t\xdaM\x16\x9e*\x98\xd3>G\xab\x17";

fn names(names: &[&str]) -> BTreeSet<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn epochs(of: &[(i32, i32)]) -> Epochs {
    [(TopicId(*T1), of.iter().copied().collect())].into()
}

/// Key and value are read as `change`, and written the same; cut short they are refused.
fn check(group: &str, change: ConsumerChange, key: &[u8], value: Option<&[&[u8]]>) {
    let value = value.map(<[&[u8]]>::concat);
    let record = GroupRecord::Consumer(ConsumerRecord { group: group.into(), change });
    assert_eq!(GroupRecord::decode(key, value.as_deref()), Ok(record.clone()));
    assert_eq!(record.encode(), (key.to_vec(), value.clone()));
    for length in 0..key.len() {
        let cut = GroupRecord::decode(&key[..length], value.as_deref());
        assert_eq!(cut, Err(RecordFault::Truncated), "key cut at {length}");
    }
    let value = value.unwrap_or_default();
    for length in 0..value.len() {
        let cut = GroupRecord::decode(key, Some(&value[..length]));
        assert_eq!(cut, Err(RecordFault::Truncated), "value cut at {length}");
    }
}

#[test]
fn records_of_a_real_kafka_byte_for_byte() {
    let epoch = GroupEpoch { epoch: 2, metadata_hash: 0x44bd_49ba_99e3_be41 };
    let bytes: &[&[u8]] = &[b"\0\0\0\0\0\x02\x01\0\x08D\xbdI\xba\x99\xe3\xbeA"];
    check("g1", ConsumerChange::Epoch(Some(epoch)), b"\0\x03\0\x02g1", Some(bytes));
    let no_topics = GroupEpoch { epoch: 3, metadata_hash: 0 };
    let bytes: &[&[u8]] = &[b"\0\0\0\0\0\x03\0"];
    check("g2", ConsumerChange::Epoch(Some(no_topics)), b"\0\x03\0\x02g2", Some(bytes));

    let member = MemberMetadata {
        rack_id: Some("r1".into()),
        client_id: "cc".into(),
        client_host: "/127.0.0.1".into(),
        topic_names: names(&["nope", "t1"]),
        topic_regex: Some("".into()),
        rebalance_timeout_ms: 30_000,
        ..MemberMetadata::default()
    };
    let change = ConsumerChange::Member("m1".into(), Some(Arc::new(member)));
    let bytes: &[&[u8]] =
        &[b"\0\0\0\x03r1\x03cc\x0b/127.0.0.1\x03\x05nope\x03t1\x01\0\0u0\0\x01\0\x01\0"];
    check("g1", change, b"\0\x05\0\x02g1\0\x02m1", Some(bytes));
    let member = MemberMetadata {
        instance_id: Some("i1".into()),
        client_id: "cc".into(),
        client_host: "/127.0.0.1".into(),
        topic_names: names(&["t1", "t2"]),
        topic_regex: Some("".into()),
        rebalance_timeout_ms: 30_000,
        assignor: Some("range".into()),
        ..MemberMetadata::default()
    };
    let change = ConsumerChange::Member("s1".into(), Some(Arc::new(member)));
    let bytes: &[&[u8]] =
        &[b"\0\0\x03i1\0\x03cc\x0b/127.0.0.1\x03\x03t1\x03t2\x01\0\0u0\x06range\x01\0\x01\0"];
    check("g2", change, b"\0\x05\0\x02g2\0\x02s1", Some(bytes));

    let target = TargetEpoch { epoch: 2, at_ms: 0x01a2_2ad9_f5c0 };
    let bytes: &[&[u8]] = &[b"\0\0\0\0\0\x02\x01\0\x08\0\0\x01\xa2*\xd9\xf5\xc0"];
    check("g1", ConsumerChange::TargetEpoch(Some(target)), b"\0\x06\0\x02g1", Some(bytes));

    let target: Partitions = [(TopicId(*T1), [0, 1, 2].into())].into();
    let change = ConsumerChange::Target("m1".into(), Some(Arc::new(target)));
    let bytes: &[&[u8]] = &[b"\0\0\x02", T1, b"\x04\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0"];
    check("g1", change, b"\0\x07\0\x02g1\0\x02m1", Some(bytes));

    let revoking = CurrentAssignment {
        epoch: 2,
        previous_epoch: 2,
        state: MemberState::Unrevoked,
        assigned: epochs(&[(0, 2), (1, 2)]),
        revoking: epochs(&[(2, 2)]),
    };
    let change = ConsumerChange::Current("m1".into(), Some(Arc::new(revoking)));
    let bytes: &[&[u8]] = &[
        b"\0\0\0\0\0\x02\0\0\0\x02\x01\x02",
        T1,
        b"\x03\0\0\0\0\0\0\0\x01\x01\0\t\x03\0\0\0\x02\0\0\0\x02\x02",
        T1,
        b"\x02\0\0\0\x02\x01\0\x05\x02\0\0\0\x02\0",
    ];
    check("g1", change, b"\0\x08\0\x02g1\0\x02m1", Some(bytes));

    let resolved =
        ResolvedRegex { topics: names(&["t1", "t2"]), version: 37, at_ms: 0x01a2_2ad9_fbc4 };
    let change = ConsumerChange::Regex("t.*".into(), Some(Arc::new(resolved)));
    let bytes: &[&[u8]] = &[b"\0\0\x03\x03t1\x03t2\0\0\0\0\0\0\0%\0\0\x01\xa2*\xd9\xfb\xc4\0"];
    check("g3", change, b"\0\x10\0\x02g3\0\x03t.*", Some(bytes));
}

#[test]
fn tombstones_of_every_type() {
    let id: Arc<str> = "m".into();
    let all = [
        (3, ConsumerChange::Epoch(None)),
        (4, ConsumerChange::OldTopics(false)),
        (5, ConsumerChange::Member(Arc::clone(&id), None)),
        (6, ConsumerChange::TargetEpoch(None)),
        (7, ConsumerChange::Target(Arc::clone(&id), None)),
        (8, ConsumerChange::Current(Arc::clone(&id), None)),
        (16, ConsumerChange::Regex(id, None)),
    ];
    for (kind, change) in all {
        let mut key = vec![0, kind, 0, 1, b'g'];
        if ![3, 4, 6].contains(&kind) {
            key.extend_from_slice(b"\0\x01m");
        }
        check("g", change, &key, None);
    }
}

#[test]
fn what_older_and_newer_brokers_write_is_read() {
    let read = |key: &[u8], value: &[u8]| match GroupRecord::decode(key, Some(value)) {
        Ok(GroupRecord::Consumer(record)) => record.change,
        other => panic!("{other:?}"),
    };
    // Kafka 4.0: topics in a record of their own, no epochs of partitions, no tags.
    let old = read(b"\0\x04\0\x01g", b"\0\0\x01\0");
    assert_eq!(old, ConsumerChange::OldTopics(true));
    let bytes = [b"\0\0\0\0\0\x07\0\0\0\x06\0\x02".as_slice(), T1, b"\x02\0\0\0\x05\0\x01\0"];
    let ConsumerChange::Current(_, Some(current)) = read(b"\0\x08\0\x01g\0\x01m", &bytes.concat())
    else {
        panic!("no assignment")
    };
    assert_eq!(current.assigned, epochs(&[(5, 7)]));
    // Tags that nobody knows yet, and a state.
    let value = b"\0\0\0\0\0\x07\0\0\0\x06\x09\x01\x01\x01\x05\x02zz";
    let ConsumerChange::Current(_, Some(current)) = read(b"\0\x08\0\x01g\0\x01m", value) else {
        panic!("no assignment")
    };
    assert_eq!(current.state, MemberState::Unknown(9));
    let future = GroupRecord::decode(b"\0\x03\0\x01g", Some(b"\0\x01\0\0\0\0\0"));
    assert_eq!(future, Err(RecordFault::Version(1)));
}

fn any_text() -> impl Strategy<Value = Arc<str>> {
    ".{0,40}".prop_map(Arc::from)
}

fn any_member() -> impl Strategy<Value = MemberMetadata> {
    let texts = prop::array::uniform4(prop::option::of(any_text()));
    let names = prop::collection::btree_set(any_text(), 0..4);
    let protocols =
        prop::collection::vec((any_text(), prop::collection::vec(any::<u8>(), 0..20)), 0..3)
            .prop_map(|list| list.into_iter().map(|(name, of)| (name, of.into())).collect());
    let classic = prop::option::of((any::<i32>(), protocols));
    (texts, names, classic, any_text(), any::<i32>()).prop_map(
        |([instance_id, rack_id, topic_regex, assignor], names, classic, client, timeout)| {
            MemberMetadata {
                instance_id,
                rack_id,
                client_id: Arc::clone(&client),
                client_host: client,
                topic_names: names,
                topic_regex,
                rebalance_timeout_ms: timeout,
                assignor,
                classic: classic.map(|(session_timeout_ms, protocols)| ClassicFacts {
                    session_timeout_ms,
                    protocols,
                }),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn members_are_read_back(group in any_text(), id in any_text(), member in any_member()) {
        let change = ConsumerChange::Member(id, Some(Arc::new(member)));
        let record = GroupRecord::Consumer(ConsumerRecord { group, change });
        let (key, value) = record.encode();
        prop_assert_eq!(GroupRecord::decode(&key, value.as_deref()), Ok(record));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in 3_u8..17,
        value in prop::collection::vec(any::<u8>(), 0..80),
        version in any::<bool>(),
    ) {
        let key = [0, kind, 0, 1, b'g', 0, 1, b'm'];
        let head: &[u8] = if version { b"\0\0" } else { b"" };
        let _ = GroupRecord::decode(&key, Some(&[head, &value].concat()));
    }
}
