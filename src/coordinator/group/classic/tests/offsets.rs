//! Commits, deletion and expiry of offsets of groups with members; looking at groups.

use super::*;
use crate::coordinator::group::admin::GroupFilter;
use crate::coordinator::group::offsets::{Commit, CommitRules, NewOffset};
use crate::ids::TopicId;

const PLAIN: CommitApi = CommitApi::Plain(9);

impl Context {
    fn commit(&mut self, api: CommitApi, by: (&str, Option<&str>, i32), topic: &str) -> ErrorCode {
        let (member_id, instance_id, generation) = by;
        let commit = Commit {
            group: "g".into(),
            by: Committer {
                member_id: member_id.to_owned(),
                instance_id: instance_id.map(str::to_owned),
                generation,
            },
            api,
            retention_ms: None,
            offsets: vec![NewOffset {
                topic: topic.into(),
                topic_id: TopicId::ZERO,
                partition: 0,
                offset: 5,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        };
        let rules = CommitRules { metadata_units_max: 100, now_ms: self.now().wall_ms };
        let plan = match self.groups.plan_commit(&commit, &rules) {
            Ok(plan) => plan,
            Err(code) => return code,
        };
        if api != CommitApi::Transactional {
            let timers = self.groups.committed("g", &commit.by, self.now());
            self.set_timers("g", timers);
        }
        self.append(plan.records);
        NONE
    }

    fn expire(&mut self, retention_ms: i64) -> usize {
        let records = self.groups.plan_expiry(&"g".into(), self.now().wall_ms, retention_ms);
        let count = records.len();
        self.append(records);
        count
    }

    fn has_offset(&self, topic: &str) -> bool {
        let found = self.groups.fetch("g", None, false);
        found.iter().any(|found| &*found.topic == topic)
    }
}

#[test]
fn commits_are_checked_against_the_members() {
    let (mut context, ids) = Context::stable(2);
    let txn = CommitApi::Transactional;
    let (a, unknown) = (ids[0].as_str(), ErrorCode::UnknownMemberId);
    assert_eq!(context.commit(PLAIN, (a, None, 1), "t"), NONE);
    assert_eq!(context.commit(txn, (a, None, 1), "t"), NONE);
    for api in [PLAIN, txn] {
        assert_eq!(context.commit(api, (a, None, 0), "t"), ErrorCode::IllegalGeneration);
        assert_eq!(context.commit(api, (a, None, -1), "t"), ErrorCode::IllegalGeneration);
        assert_eq!(context.commit(api, ("x", None, 1), "t"), unknown);
        assert_eq!(context.commit(api, (a, Some("i"), 1), "t"), unknown);
        assert_eq!(context.commit(api, ("", None, 1), "t"), unknown);
    }
    // Without any identity: by hand into a group with members, or by an old transactional client.
    assert_eq!(context.commit(PLAIN, ("", None, -1), "t"), unknown);
    assert_eq!(context.commit(txn, ("", None, -1), "t"), NONE);
    // While members join, those of the last generation may still commit; not before they have what
    // they are assigned.
    let first = context.join(join(a));
    assert_eq!(context.commit(PLAIN, (&ids[1], None, 1), "t"), NONE);
    let second = context.join(join(&ids[1]));
    assert_eq!((context.joined(first).generation, context.joined(second).generation), (2, 2));
    assert_eq!(context.commit(PLAIN, (a, None, 2), "t"), ErrorCode::RebalanceInProgress);
    assert_eq!(context.commit(txn, (a, None, 2), "t"), NONE);
    context.leave(&[(&ids[0], None), (&ids[1], None)]);
    assert_eq!(context.commit(PLAIN, ("", None, -1), "t"), NONE);
    assert_eq!(context.commit(PLAIN, (a, None, 3), "t"), unknown);
}

#[test]
fn static_members_are_fenced_in_commits() {
    let mut context = Context::new();
    let ticket = context.join(static_join("", "i"));
    context.pass(3_000);
    let id = context.joined(ticket).member_id.to_string();
    context.sync_all(std::slice::from_ref(&id), 1);
    assert_eq!(context.commit(PLAIN, (&id, Some("i"), 1), "t"), NONE);
    let other = ("other", Some("i"), 1);
    assert_eq!(context.commit(PLAIN, other, "t"), ErrorCode::FencedInstanceId);
    let transactional = context.commit(CommitApi::Transactional, other, "t");
    assert_eq!(transactional, ErrorCode::FencedInstanceId);
}

#[test]
fn a_commit_keeps_the_session() {
    let (mut context, ids) = Context::stable(1);
    for _ in 0..3 {
        context.pass(9_000);
        assert_eq!(context.commit(PLAIN, (&ids[0], None, 1), "t"), NONE);
    }
    assert_eq!(context.members(), ids);
    context.pass(9_000);
    assert_eq!(context.commit(CommitApi::Transactional, (&ids[0], None, 1), "t"), NONE);
    context.pass(1_000);
    assert_eq!(context.state(), "Empty", "one in a transaction does not");
}

#[test]
fn offsets_of_topics_that_are_read_stay() {
    let (mut context, ids) = Context::stable(1);
    for topic in ["t", "gone"] {
        assert_eq!(context.commit(PLAIN, (&ids[0], None, 1), topic), NONE);
    }
    context.pass(5_000);
    assert_eq!(context.expire(5_001), 0);
    assert_eq!(context.expire(5_000), 1);
    assert_eq!((context.has_offset("t"), context.has_offset("gone")), (true, false));
    // While it rebalances nothing expires: nobody knows what will be read.
    assert_eq!(context.commit(PLAIN, (&ids[0], None, 1), "gone"), NONE);
    let new = context.new_id();
    context.join(join(&new));
    assert_eq!(context.state(), "PreparingRebalance");
    assert_eq!(context.expire(0), 0);
    context.leave(&[(&ids[0], None), (&new, None)]);
    assert_eq!(context.state(), "Empty");
    // From then on all of it counts from when it became empty, however old.
    context.pass(1_000);
    assert_eq!(context.expire(1_001), 0);
    context.restart();
    assert_eq!(context.expire(1_001), 0);
    assert_eq!(context.expire(1_000), 3);
    assert_eq!(context.state(), "Dead");
    assert_eq!(context.groups, Groups::default());
}

#[test]
fn an_empty_group_without_offsets_goes_and_one_with_members_stays() {
    let (mut context, ids) = Context::stable(1);
    assert_eq!(context.expire(0), 0);
    context.leave(&[(&ids[0], None)]);
    assert_eq!(context.expire(1_000_000), 1);
    assert_eq!(context.state(), "Dead");
}

#[test]
fn unreadable_subscriptions_keep_all_offsets() {
    let mut context = Context::new();
    let garbage = vec![Protocol { name: "range".into(), metadata: Bytes::from_static(b"\0") }];
    let id = context.new_id();
    let ticket = context.join(Join { protocols: garbage, ..join(&id) });
    context.pass(3_000);
    assert_eq!(context.joined(ticket).generation, 1);
    context.sync_all(std::slice::from_ref(&id), 1);
    assert_eq!(context.commit(PLAIN, (&id, None, 1), "t"), NONE);
    assert_eq!(context.expire(0), 0);
    let plan = context.groups.plan_delete(&"g".into(), &[("t".into(), 0)]).expect("consumers");
    assert_eq!(plan.codes, [ErrorCode::GroupSubscribedToTopic]);
}

#[test]
fn offsets_are_deleted_where_nobody_reads() {
    let (mut context, ids) = Context::stable(1);
    for topic in ["t", "u"] {
        assert_eq!(context.commit(PLAIN, (&ids[0], None, 1), topic), NONE);
    }
    let both = [("t".into(), 0), ("u".into(), 0)];
    let plan = context.groups.plan_delete(&"g".into(), &both).expect("consumers");
    assert_eq!(plan.codes, [ErrorCode::GroupSubscribedToTopic, NONE]);
    context.append(plan.records);
    assert_eq!((context.has_offset("t"), context.has_offset("u")), (true, false));

    let mut context = Context::new();
    let id = context.new_id();
    context.join(Join { protocol_type: "connect".into(), ..join(&id) });
    let refused = context.groups.plan_delete(&"g".into(), &both);
    assert_eq!(refused, Err(ErrorCode::NonEmptyGroup));
}

#[test]
fn groups_are_deleted_when_they_are_empty() {
    let (mut context, ids) = Context::stable(1);
    assert_eq!(context.commit(PLAIN, (&ids[0], None, 1), "t"), NONE);
    let group: Arc<str> = "g".into();
    assert_eq!(context.groups.plan_delete_group(&group), Err(ErrorCode::NonEmptyGroup));
    let unknown = context.groups.plan_delete_group(&"x".into());
    assert_eq!(unknown, Err(ErrorCode::GroupIdNotFound));
    context.leave(&[(&ids[0], None)]);
    let records = context.groups.plan_delete_group(&group).expect("empty");
    assert_eq!(records.len(), 2);
    context.append(records);
    assert_eq!(context.state(), "Dead");
    context.restart();
    assert_eq!(context.groups, Groups::default());
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let (mut context, _) = Context::stable(1);
    let commit = Commit {
        group: "hand".into(),
        by: Committer { member_id: String::new(), instance_id: None, generation: -1 },
        api: PLAIN,
        retention_ms: None,
        offsets: vec![NewOffset {
            topic: "t".into(),
            topic_id: TopicId::ZERO,
            partition: 0,
            offset: 1,
            leader_epoch: -1,
            metadata: "".into(),
        }],
    };
    let rules = CommitRules { metadata_units_max: 100, now_ms: 0 };
    let plan = context.groups.plan_commit(&commit, &rules).expect("accepted");
    context.append(plan.records);
    let check = |states: &[&str], types: &[&str], expected: &[(&str, &str, &str)]| {
        let filter = GroupFilter {
            states: states.iter().map(|&text| text.to_owned()).collect(),
            types: types.iter().map(|&text| text.to_owned()).collect(),
        };
        let listed = context.groups.list(&filter);
        let found: Vec<_> =
            listed.iter().map(|group| (&*group.id, &*group.protocol_type, group.state)).collect();
        assert_eq!(found, expected);
        assert!(listed.iter().all(|group| group.kind == "classic"));
    };
    let (stable, simple) = (("g", "consumer", "Stable"), ("hand", "", "Empty"));
    check(&[], &[], &[stable, simple]);
    check(&["stable"], &[], &[stable]);
    check(&["EMPTY", "Dead"], &["Classic"], &[simple]);
    check(&["nonsense"], &[], &[]);
    check(&[], &["consumer", "nonsense"], &[]);
    assert_eq!(context.groups.describe("hand").map(|group| group.state), Ok("Empty"));
    let refused = context.groups.describe("x").expect_err("unknown");
    assert_eq!(refused.code, ErrorCode::GroupIdNotFound);
    assert_eq!(refused.message, "Group x not found.");
}
