//! Cases 36-41: offsets of groups inside transactions.

use crate::calls::{Producer, commit_plainly, committed, settled};
use crate::stage::{Stage, Stop, unique};
use crate::support::groups;
use crate::support::offsets::fetch_all;
use crate::support::requests::Topic;
use crate::support::transactions::{GROUP, offset_fetch, partition_of, text, txn_offset_commit};

cases!(
    case_36_pending_offsets: Needs::Shared,
    case_37_a_plain_commit_in_between: Needs::Shared,
    case_38_generations_of_groups_without_members: Needs::Shared,
    case_38_members_of_groups: Needs::Shared,
    case_39_offsets_with_a_wrong_identity: Needs::Shared,
    case_40_a_refused_commit_is_in_the_transaction: Needs::Shared,
    case_41_pending_offsets_over_a_restart: Needs::Alone(&[]),
);

fn case_36_pending_offsets(stage: &Stage) {
    let topic = stage.topic("thirty-six", 3);
    let group = unique("thirty-six");
    for (partition, offset) in [(0, 5), (1, 6)] {
        assert_eq!(commit_plainly(stage, &group, &topic, partition, offset), 0);
    }
    let mut producer = Producer::new(stage, "thirty-six");
    assert_eq!(settled(stage, || producer.commit_offset(5, &group, &topic, 0, 10)), 0);
    assert_eq!(settled(stage, || producer.commit_offset(5, &group, &topic, 2, 12)), 0);
    let fetch = |require_stable| -> Vec<(i16, i64)> {
        let request = offset_fetch(&group, &topic.name, &[0, 1, 2], require_stable);
        let response = stage.call(stage.coordinator(GROUP, &group), 8, &request);
        let partitions = &response.groups[0].topics[0].partitions;
        let answer = partitions.iter().map(|found| {
            let empty = (found.committed_leader_epoch, found.metadata.as_deref());
            assert!(found.error_code == 0 || empty == (-1, Some("")), "{found:?}");
            (found.error_code, found.committed_offset)
        });
        answer.collect()
    };
    assert_eq!(fetch(true), [(88, -1), (0, 6), (88, -1)]);
    assert_eq!(fetch(false), [(0, 5), (0, 6), (0, -1)]);
    producer.ended(5, true);
    assert_eq!(fetch(true), [(0, 10), (0, 6), (0, 12)]);
    assert_eq!(fetch(false), fetch(true));
    assert_eq!(settled(stage, || producer.commit_offset(5, &group, &topic, 0, 11)), 0);
    assert_eq!(fetch(true), [(88, -1), (0, 6), (0, 12)]);
    producer.ended(5, false);
    assert_eq!(fetch(true), [(0, 10), (0, 6), (0, 12)]);
}

fn case_37_a_plain_commit_in_between(stage: &Stage) {
    let topic = stage.topic("thirty-seven", 1);
    let group = unique("thirty-seven");
    let mut producer = Producer::new(stage, "thirty-seven");
    assert_eq!(settled(stage, || producer.commit_offset(5, &group, &topic, 0, 10)), 0);
    assert_eq!(commit_plainly(stage, &group, &topic, 0, 20), 0);
    assert_eq!(committed(stage, &group, &topic, 0, true), (88, -1));
    assert_eq!(committed(stage, &group, &topic, 0, false), (0, 20));
    producer.ended(5, true);
    assert_eq!(committed(stage, &group, &topic, 0, true), (0, 20));
}

/// TxnOffsetCommit as a member would send it.
fn commit_as(
    producer: &Producer<'_>,
    group: &str,
    topic: &Topic,
    generation: i32,
    member: &str,
    instance: Option<&str>,
) -> i16 {
    let stage = producer.stage;
    settled(stage, || {
        let mut request =
            txn_offset_commit(&producer.id, producer.who, group, &topic.name, &[(0, 7)]);
        request.generation_id = generation;
        request.member_id = text(member);
        request.group_instance_id = instance.map(text);
        let response = stage.call(stage.coordinator(GROUP, group), 5, &request);
        response.topics[0].partitions[0].error_code
    })
}

fn case_38_generations_of_groups_without_members(stage: &Stage) {
    let topic = stage.topic("thirty-eight", 1);
    let producer = Producer::new(stage, "thirty-eight");
    let commit = |group: &str, generation, member, instance| {
        commit_as(&producer, group, &topic, generation, member, instance)
    };
    assert_eq!(commit(&unique("g"), 5, "m", None), 22, "no such group");
    assert_eq!(commit(&unique("g"), 0, "", None), 22, "no such group");
    assert_eq!(commit(&unique("g"), -1, "", None), 0, "it comes to be");
    assert_eq!(commit(&unique("g"), -1, "m", None), 0, "it comes to be");
    let group = unique("g");
    assert_eq!(commit_plainly(stage, &group, &topic, 0, 1), 0);
    assert_eq!(commit(&group, -1, "", None), 0);
    assert_eq!(commit(&group, -1, "m", None), 0);
    assert_eq!(commit(&group, 5, "m", None), 25, "no such member");
    assert_eq!(commit(&group, 5, "m", Some("i")), 25, "no such instance");
    assert_eq!(commit("", -1, "", None), 24);
}

fn case_38_members_of_groups(stage: &Stage) {
    let topic = stage.topic("thirty-eight", 1);
    let producer = Producer::new(stage, "thirty-eight");
    let group = unique("members");
    let node = stage.coordinator(GROUP, &group);
    // A connection of its own: a join may wait.
    let mut member = stage.connect(node);
    stage.eventually_in_kafka("a coordinator that has loaded", || {
        stage.call(node, 9, &fetch_all(9, &group)).groups[0].error_code
    });
    let joined = member.call(7, &groups::static_join(7, &group, "", "i"));
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let id = joined.member_id.as_str();
    let commit = |generation, member: &str, instance| {
        commit_as(&producer, &group, &topic, generation, member, instance)
    };
    assert_eq!(commit(1, id, Some("i")), 0, "completing, with the right generation");
    let rows = || {
        assert_eq!(commit(0, id, Some("i")), 22, "an old generation");
        assert_eq!(commit(2, id, None), 22, "a generation to come");
        assert_eq!(commit(1, "m", None), 25, "no such member");
        assert_eq!(commit(1, id, Some("j")), 25, "no such instance");
        assert_eq!(commit(1, "m", Some("i")), 82, "another has the instance");
        assert_eq!(commit(-1, "", None), 0, "an old client that says nothing");
        assert_eq!(commit(1, id, None), 0);
    };
    rows();
    let synced = member.call(5, &groups::sync(5, &group, (id, 1), &[(id, b"mine")]));
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
    rows();
    let left = member.call(3, &groups::leave(3, &group, "", Some("i")));
    assert_eq!((left.error_code, left.members[0].error_code), (0, 0));
    assert_eq!(commit(1, id, Some("i")), 25, "it has left");
    assert_eq!(commit(-1, "", None), 0);
}

fn case_39_offsets_with_a_wrong_identity(stage: &Stage) {
    let topic = stage.topic("thirty-nine", 1);
    let group = unique("thirty-nine");
    let producer = Producer::new(stage, "thirty-nine").at_epoch(1);
    let commit = |producer: &Producer<'_>, version| {
        settled(stage, || producer.commit_offset(version, &group, &topic, 0, 1))
    };
    for version in 0..=5 {
        let code = commit(&producer.in_epoch(0), version);
        assert_eq!(code, 47, "v{version}, a stale epoch");
        assert_eq!(commit(&producer.with_id(producer.who.id + 1), version), 49, "v{version}");
        let unknown = Producer { id: unique("unknown"), ..producer.clone() };
        assert_eq!(commit(&unknown, version), 49, "v{version}");
    }
    for version in 0..=3 {
        assert_eq!(commit(&producer, version), 48, "v{version}, not added");
    }
    assert_eq!(commit(&producer, 4), 120);
    assert_eq!(settled(stage, || producer.add_offsets(3, &group)), 0);
    for version in 0..=5 {
        assert_eq!(commit(&producer, version), 0, "v{version}, added");
    }
    assert_eq!(settled(stage, || producer.end(4, true)).0, 0);
    producer.await_state("CompleteCommit");
    assert_eq!(committed(stage, &group, &topic, 0, true), (0, 1));
    assert_eq!(commit(&producer, 3), 48, "the transaction is over");
}

fn case_40_a_refused_commit_is_in_the_transaction(stage: &Stage) {
    let topic = stage.topic("forty", 1);
    let group = unique("forty");
    let producer = Producer::new(stage, "forty");
    assert_eq!(commit_as(&producer, &group, &topic, 5, "m", None), 22);
    let described = producer.describe();
    assert_eq!(&*described.transaction_state, "Ongoing");
    let partition = partition_of(&group, stage.partitions_of("__consumer_offsets"));
    let topics: Vec<(&str, &[i32])> =
        described.topics.iter().map(|found| (&*found.topic.0, &found.partitions[..])).collect();
    assert_eq!(topics, [("__consumer_offsets", &[partition][..])]);
}

fn case_41_pending_offsets_over_a_restart(stage: &Stage) {
    let topic = stage.topic("forty-one", 1);
    let group = unique("forty-one");
    assert_eq!(commit_plainly(stage, &group, &topic, 0, 3), 0);
    let mut producer = Producer::new(stage, "forty-one");
    assert_eq!(settled(stage, || producer.commit_offset(5, &group, &topic, 0, 10)), 0);
    // Starts of Kafka take their time.
    let stops: &[Stop] = if stage.is_kafka() { &[Stop::Kill] } else { &[Stop::Kill, Stop::Clean] };
    for stop in stops {
        stage.restart(*stop);
        assert_eq!(committed(stage, &group, &topic, 0, true), (88, -1), "{stop:?}");
        assert_eq!(committed(stage, &group, &topic, 0, false), (0, 3), "{stop:?}");
    }
    producer.ended(5, true);
    assert_eq!(committed(stage, &group, &topic, 0, true), (0, 10));
    if !stage.is_kafka() {
        stage.restart(Stop::Kill);
        assert_eq!(committed(stage, &group, &topic, 0, true), (0, 10));
    }
}
