//! Offsets under commits, markers, tombstones and time; against a naive model, and replayed.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const RULES: CommitRules = CommitRules { metadata_units_max: 4096, now_ms: 1000 };
const PLAIN: CommitApi = CommitApi::Plain(9);

fn by(generation: i32, member_id: &str, instance_id: Option<&str>) -> Committer {
    Committer {
        member_id: member_id.to_owned(),
        instance_id: instance_id.map(str::to_owned),
        generation,
    }
}

fn commit_of(api: CommitApi, offsets: &[(&str, i32, i64)]) -> Commit {
    let offsets = offsets.iter().map(|&(topic, partition, offset)| NewOffset {
        topic: topic.into(),
        topic_id: TopicId::ZERO,
        partition,
        offset,
        leader_epoch: 4,
        metadata: "m".into(),
    });
    Commit {
        group: "g".into(),
        by: by(-1, "", None),
        api,
        retention_ms: None,
        offsets: offsets.collect(),
    }
}

/// Groups with the log they are kept in.
#[derive(Default)]
struct Kept {
    groups: Groups,
    log: Vec<Event>,
}

#[derive(Clone)]
enum Event {
    Record(Option<ProducerId>, GroupRecord),
    Marker(ProducerId, MarkerKind),
}

impl Kept {
    fn append(&mut self, producer: Option<i64>, records: Vec<GroupRecord>) {
        for record in records {
            let producer = producer.map(ProducerId);
            let at = Offset(self.log.len() as i64);
            self.groups.apply(at, producer, record.clone());
            self.log.push(Event::Record(producer, record));
        }
    }

    fn commit(&mut self, producer: Option<i64>, offsets: &[(&str, i32, i64)]) {
        let api = if producer.is_some() { CommitApi::Transactional } else { PLAIN };
        let plan = self.groups.plan_commit(&commit_of(api, offsets), &RULES).expect("accepted");
        assert!(plan.codes.iter().all(|code| code.is_none()));
        self.append(producer, plan.records);
    }

    fn marker(&mut self, producer: i64, kind: MarkerKind) {
        self.groups.marker(ProducerId(producer), kind);
        self.log.push(Event::Marker(ProducerId(producer), kind));
    }

    /// The groups as a start finds them, from the bytes of the first `length` entries.
    fn replayed(&self, length: usize) -> Groups {
        let mut groups = Groups::default();
        for (at, event) in (0..).zip(&self.log[..length]) {
            match event {
                Event::Record(producer, record) => {
                    let (key, value) = record.encode();
                    let record = GroupRecord::decode(&key, value.as_deref()).expect("readable");
                    groups.apply(Offset(at), *producer, record);
                }
                Event::Marker(producer, kind) => groups.marker(*producer, *kind),
            }
        }
        groups
    }

    fn offset(&self, topic: &str, partition: i32, require_stable: bool) -> (i64, ErrorCode) {
        let wanted = WantedTopic {
            topic: topic.into(),
            topic_id: TopicId::ZERO,
            partitions: vec![partition],
        };
        let found = self.groups.fetch("g", Some(&[wanted]), require_stable);
        let found = &found[0].partitions[0];
        (found.offset, found.error)
    }
}

const NONE: ErrorCode = ErrorCode::None;
const UNSTABLE: ErrorCode = ErrorCode::UnstableOffsetCommit;

#[test]
fn who_may_commit() {
    let mut kept = Kept::default();
    kept.commit(None, &[("t", 0, 5)]);
    let check = |group: &str, by: Committer, api, expected| {
        let commit = Commit { group: group.into(), by, ..commit_of(api, &[("t", 0, 6)]) };
        let outcome = kept.groups.plan_commit(&commit, &RULES).map(|plan| plan.codes);
        assert_eq!(outcome, expected, "{group} {:?} {api:?}", commit.by);
    };
    let accepted = || Ok(vec![NONE]);
    for api in [CommitApi::Plain(2), CommitApi::Plain(10), CommitApi::Transactional] {
        for group in ["g", "new"] {
            check(group, by(-1, "", None), api, accepted());
            check(group, by(-1, "member", Some("instance")), api, accepted());
        }
        check("g", by(0, "", None), api, Err(ErrorCode::UnknownMemberId));
        check("g", by(3, "member", None), api, Err(ErrorCode::UnknownMemberId));
        check("g", by(3, "member", Some("i")), api, Err(ErrorCode::UnknownMemberId));
    }
    check("new", by(0, "m", None), CommitApi::Plain(8), Err(ErrorCode::IllegalGeneration));
    check("new", by(0, "m", None), CommitApi::Plain(9), Err(ErrorCode::GroupIdNotFound));
    check("new", by(0, "m", None), CommitApi::Plain(10), Err(ErrorCode::GroupIdNotFound));
    check("new", by(0, "m", None), CommitApi::Transactional, Err(ErrorCode::IllegalGeneration));
}

#[test]
fn long_metadata_is_refused_by_itself() {
    let mut commit = commit_of(PLAIN, &[("t", 0, 1), ("t", 1, 2), ("t", 2, 3), ("t", 3, 4)]);
    commit.offsets[0].metadata = "x".repeat(5).into();
    commit.offsets[1].metadata = "x".repeat(4).into();
    // Java counts UTF-16 units: four of these are four, and of the last kind two each.
    commit.offsets[2].metadata = "語".repeat(4).into();
    commit.offsets[3].metadata = "😀".repeat(3).into();
    let rules = CommitRules { metadata_units_max: 4, ..RULES };
    let plan = Groups::default().plan_commit(&commit, &rules).expect("accepted");
    let long = ErrorCode::OffsetMetadataTooLarge;
    assert_eq!(plan.codes, [long, NONE, NONE, long]);
    assert_eq!(plan.records.len(), 2);
}

#[test]
fn unknown_offsets_are_none_and_no_error() {
    let mut kept = Kept::default();
    assert_eq!(kept.groups.fetch("g", None, true), []);
    assert_eq!(kept.offset("t", 0, true), (-1, NONE));
    kept.commit(None, &[("t", 1, 5), ("a", 0, 7), ("t", 1, 6)]);
    assert_eq!(kept.offset("t", 0, true), (-1, NONE));
    assert_eq!(kept.offset("t", 1, true), (6, NONE), "the last one counts");
    let all = kept.groups.fetch("g", None, false);
    let all: Vec<_> = all
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|p| (&*topic.topic, p.partition, p.offset)))
        .collect();
    assert_eq!(all, [("a", 0, 7), ("t", 1, 6)]);
    let found = &kept.groups.fetch("g", None, false)[0].partitions[0];
    assert_eq!((found.leader_epoch, &*found.metadata), (4, "m"));
}

#[test]
fn an_offset_of_another_topic_of_that_name_is_none() {
    let mut groups = Groups::default();
    let (old, new) = (TopicId([1; 16]), TopicId([2; 16]));
    let mut commit = commit_of(PLAIN, &[("t", 0, 5)]);
    commit.offsets[0].topic_id = old;
    let plan = groups.plan_commit(&commit, &RULES).expect("accepted");
    groups.apply(Offset(0), None, plan.records[0].clone());
    let offset = |topic_id| {
        let wanted = [WantedTopic { topic: "t".into(), topic_id, partitions: vec![0] }];
        groups.fetch("g", Some(&wanted), true)[0].partitions[0].offset
    };
    assert_eq!([offset(old), offset(TopicId::ZERO), offset(new)], [5, 5, -1]);
}

#[test]
fn a_transaction_shows_at_its_commit_only() {
    let mut kept = Kept::default();
    kept.commit(None, &[("t", 0, 5)]);
    kept.commit(Some(1), &[("t", 0, 10), ("u", 0, 3)]);
    assert_eq!(kept.offset("t", 0, false), (5, NONE));
    assert_eq!(kept.offset("t", 0, true), (-1, UNSTABLE));
    assert_eq!(kept.offset("u", 0, true), (-1, UNSTABLE));
    let topics = |kept: &Kept| kept.groups.fetch("g", None, true).len();
    assert_eq!(topics(&kept), 1, "only a pending one is not listed");
    kept.marker(2, MarkerKind::Commit);
    assert_eq!(kept.offset("t", 0, true), (-1, UNSTABLE), "another producer's");
    kept.marker(1, MarkerKind::Abort);
    assert_eq!(kept.offset("t", 0, true), (5, NONE));
    assert_eq!(topics(&kept), 1);
    kept.commit(Some(1), &[("t", 0, 10), ("u", 0, 3)]);
    kept.marker(1, MarkerKind::Commit);
    assert_eq!(kept.offset("t", 0, true), (10, NONE));
    assert_eq!(kept.offset("u", 0, true), (3, NONE));
    kept.marker(1, MarkerKind::Abort);
    assert_eq!(kept.offset("t", 0, true), (10, NONE), "a marker said twice");
}

#[test]
fn a_later_commit_outlives_a_transaction() {
    let mut kept = Kept::default();
    kept.commit(Some(1), &[("t", 0, 10)]);
    kept.commit(None, &[("t", 0, 20)]);
    assert_eq!(kept.offset("t", 0, false), (20, NONE));
    kept.marker(1, MarkerKind::Commit);
    assert_eq!(kept.offset("t", 0, true), (20, NONE));
}

#[test]
fn deleting_takes_pending_offsets_along() {
    let mut kept = Kept::default();
    let delete = |kept: &Kept, partition| {
        let plan =
            kept.groups.plan_delete(&"g".into(), &[("t".into(), partition), ("x".into(), 0)]);
        plan.map(|plan| {
            assert_eq!(plan.codes, [NONE, NONE]);
            plan.records
        })
    };
    assert_eq!(delete(&kept, 0), Err(ErrorCode::GroupIdNotFound));
    kept.commit(None, &[("t", 0, 5)]);
    kept.commit(Some(1), &[("t", 0, 10), ("t", 1, 11)]);
    assert_eq!(delete(&kept, 2), Ok(vec![]));
    let records = delete(&kept, 0).expect("known");
    assert_eq!(records, [tombstone(&"g".into(), &"t".into(), 0)]);
    kept.append(None, records);
    assert_eq!(kept.offset("t", 0, true), (-1, NONE));
    kept.marker(1, MarkerKind::Commit);
    assert_eq!(kept.offset("t", 0, true), (-1, NONE));
    assert_eq!(kept.offset("t", 1, true), (11, NONE));
    let records = delete(&kept, 1).expect("known");
    kept.append(None, records);
    assert_eq!(delete(&kept, 1), Ok(vec![]), "the group is still there");
}

#[test]
fn offsets_expire_from_their_commit() {
    let mut kept = Kept::default();
    let id: Arc<str> = "g".into();
    kept.commit(None, &[("t", 0, 5)]);
    let mut own = commit_of(CommitApi::Plain(2), &[("t", 1, 5)]);
    own.retention_ms = Some(10);
    let plan = kept.groups.plan_commit(&own, &RULES).expect("accepted");
    kept.append(None, plan.records);
    assert_eq!(kept.groups.plan_expiry(&id, 1009, 100), []);
    let first = tombstone(&id, &"t".into(), 1);
    assert_eq!(kept.groups.plan_expiry(&id, 1010, 100), std::slice::from_ref(&first));
    kept.append(None, vec![first]);
    assert_eq!(kept.groups.plan_expiry(&id, 1099, 100), []);
    // Nothing goes while a transaction commits there.
    kept.commit(Some(1), &[("t", 0, 10)]);
    assert_eq!(kept.groups.plan_expiry(&id, 1100, 100), []);
    kept.marker(1, MarkerKind::Abort);
    let last = kept.groups.plan_expiry(&id, 1100, 100);
    assert_eq!(last, [tombstone(&id, &"t".into(), 0), GroupRecord::GroupGone(Arc::clone(&id))]);
    kept.append(None, last);
    assert_eq!(kept.groups, Groups::default());
    // A group ends only when it has no offsets.
    kept.commit(None, &[("t", 0, 5)]);
    kept.append(None, vec![GroupRecord::GroupGone(id)]);
    assert_eq!(kept.offset("t", 0, true), (5, NONE));
}

#[test]
fn a_deleted_topic_takes_its_offsets_along() {
    let mut groups = Groups::default();
    let (old, new) = (TopicId([1; 16]), TopicId([2; 16]));
    let mut commit = commit_of(PLAIN, &[("t", 0, 5), ("t", 1, 5), ("t", 2, 5), ("u", 0, 5)]);
    commit.offsets[0].topic_id = old;
    commit.offsets[1].topic_id = new;
    let plan = groups.plan_commit(&commit, &RULES).expect("accepted");
    for (at, record) in (0..).zip(plan.records) {
        groups.apply(Offset(at), None, record);
    }
    let (group, topic) = ("g".into(), "t".into());
    let gone = |partitions: &[i32]| -> Vec<GroupRecord> {
        partitions.iter().map(|&partition| tombstone(&group, &topic, partition)).collect()
    };
    assert_eq!(groups.plan_topic_deleted("t", old, false), gone(&[0, 2]));
    assert_eq!(groups.plan_topic_deleted("t", old, true), gone(&[0]));
    assert_eq!(groups.plan_topic_deleted("v", old, false), []);
}

#[test]
fn groups_are_gone_through_in_pieces() {
    let mut groups = Groups::default();
    for id in ["a", "b", "c"] {
        let commit = Commit { group: id.into(), ..commit_of(PLAIN, &[("t", 0, 5)]) };
        let plan = groups.plan_commit(&commit, &RULES).expect("accepted");
        groups.apply(Offset(0), None, plan.records[0].clone());
    }
    assert_eq!(groups.after(None, 2), ["a".into(), "b".into()]);
    assert_eq!(groups.after(Some(&"b".into()), 2), ["c".into()]);
    assert_eq!(groups.after(Some(&"c".into()), 2), []);
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Commit(Option<i64>, Vec<(usize, i32, i64)>),
    Marker(i64, bool),
    Delete(usize, i32),
    Expire(i64),
    DeleteTopic(usize),
}

const TOPICS: [&str; 2] = ["t", "u"];

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..2_usize, 0..2_i32);
    let offsets = prop::collection::vec((0..2_usize, 0..2_i32, 0..100_i64), 1..4);
    prop_oneof![
        4 => (prop::option::of(0..3_i64), offsets).prop_map(|(id, list)| Step::Commit(id, list)),
        3 => (0..3_i64, any::<bool>()).prop_map(|(id, commit)| Step::Marker(id, commit)),
        1 => place().prop_map(|(topic, partition)| Step::Delete(topic, partition)),
        1 => (900..1200_i64).prop_map(Step::Expire),
        1 => (0..2_usize).prop_map(Step::DeleteTopic),
    ]
}

impl Kept {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Commit(producer, list) => {
                let named: Vec<_> =
                    list.iter().map(|&(t, p, offset)| (TOPICS[t], p, offset)).collect();
                self.commit(*producer, &named);
            }
            Step::Marker(producer, true) => self.marker(*producer, MarkerKind::Commit),
            Step::Marker(producer, false) => self.marker(*producer, MarkerKind::Abort),
            Step::Delete(topic, partition) => {
                let places = [(TOPICS[*topic].into(), *partition)];
                let plan = self.groups.plan_delete(&"g".into(), &places);
                self.append(None, plan.map(|plan| plan.records).unwrap_or_default());
            }
            Step::Expire(now_ms) => {
                let plan = self.groups.plan_expiry(&"g".into(), *now_ms, 100);
                self.append(None, plan);
            }
            Step::DeleteTopic(topic) => {
                let plan = self.groups.plan_topic_deleted(TOPICS[*topic], TopicId([9; 16]), false);
                self.append(None, plan);
            }
        }
    }
}

/// Place of an offset: topic and partition.
type Place = (String, i32);

/// What the log says, worked out with nothing but lists: committed offsets, and the pending ones.
fn naive(log: &[Event]) -> (BTreeMap<Place, i64>, Vec<Place>) {
    let mut committed: Vec<(usize, Place, i64)> = Vec::new();
    let mut pending: Vec<(usize, ProducerId, Place, i64)> = Vec::new();
    for (at, event) in log.iter().enumerate() {
        match event {
            Event::Record(producer, GroupRecord::Offset(key, Some(value))) => {
                let place = (key.topic.to_string(), key.partition);
                match producer {
                    None => committed.push((at, place, value.offset)),
                    Some(producer) => pending.push((at, *producer, place, value.offset)),
                }
            }
            Event::Record(_, GroupRecord::Offset(key, None)) => {
                let gone = (key.topic.to_string(), key.partition);
                committed.retain(|(_, place, _)| *place != gone);
                pending.retain(|(_, _, place, _)| *place != gone);
            }
            Event::Record(..) => {}
            Event::Marker(producer, kind) => {
                let ended = pending.extract_if(.., |entry| entry.1 == *producer);
                let ended = ended.map(|(at, _, place, offset)| (at, place, offset));
                match kind {
                    MarkerKind::Commit => committed.extend(ended),
                    MarkerKind::Abort => drop(ended.collect::<Vec<_>>()),
                }
            }
        }
    }
    committed.sort();
    let committed = committed.into_iter().map(|(_, place, offset)| (place, offset)).collect();
    (committed, pending.into_iter().map(|(_, _, place, _)| place).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_of_any_prefix_is_what_lived(steps in prop::collection::vec(step(), 0..40)) {
        let mut kept = Kept::default();
        for step in &steps {
            kept.step(step);
            prop_assert_eq!(&kept.replayed(kept.log.len()), &kept.groups);
        }
    }

    #[test]
    fn offsets_are_what_the_log_says(steps in prop::collection::vec(step(), 0..40)) {
        let mut kept = Kept::default();
        for step in &steps {
            kept.step(step);
            let (committed, pending) = naive(&kept.log);
            for topic in TOPICS {
                for partition in 0..2 {
                    let place = (topic.to_owned(), partition);
                    let offset = committed.get(&place).copied().unwrap_or(-1);
                    prop_assert_eq!(kept.offset(topic, partition, false), (offset, NONE));
                    let unstable = pending.contains(&place);
                    let stable = if unstable { (-1, UNSTABLE) } else { (offset, NONE) };
                    prop_assert_eq!(kept.offset(topic, partition, true), stable);
                }
            }
            let listed: usize =
                kept.groups.fetch("g", None, false).iter().map(|t| t.partitions.len()).sum();
            prop_assert_eq!(listed, committed.len());
        }
    }
}
