//! A member of the consumer protocol joins a classic group.

use super::*;

#[test]
fn a_stable_group_goes_on_with_what_it_has() {
    let mut mixed = Mixed::stable();
    let first = mixed.log.len();
    assert_eq!(mixed.say(&join_consumer("n")), ok("2"));
    assert_eq!(mixed.state(), "consumer Reconciling");
    assert_eq!(
        mixed.kinds_since(first),
        [
            "-classic",
            "member a-01",
            "member b-02",
            "epoch 1",
            "target a-01 t1:0,1,2",
            "target b-02 t1:3,4,5",
            "target epoch 1",
            "current a-01 1 {0, 1, 2}",
            "current b-02 1 {3, 4, 5}",
            "member n",
            "epoch 2",
            "target a-01 t1:0,1",
            "target b-02 t1:3,4",
            "target n t1:2,5",
            "target epoch 2",
            "current n 2 {}",
        ]
    );
    let described = mixed.groups.describe_consumer("g", &mixed.rules()).expect("consumers");
    let kinds: Vec<(&str, bool)> = described
        .members
        .iter()
        .map(|member| (&*member.id, member.metadata.classic.is_some()))
        .collect();
    assert_eq!(kinds, [("a-01", true), ("b-02", true), ("n", false)]);
    // The sessions go on by the members' own timeouts, and no timer of the old kind is left.
    assert_eq!(mixed.timer(Timer::Session("a-01".into())), Some(i64::from(SESSION_MS)));
    assert_eq!(mixed.timer(Timer::Session("n".into())), Some(i64::from(CONSUMER_SESSION_MS)));
    assert!(mixed.timers.keys().all(|key| matches!(key, TimerKey::Consumer(_))));
    let refused = mixed.groups.describe("g").expect_err("of another kind");
    assert_eq!(refused.code, ErrorCode::GroupIdNotFound);
    assert_eq!(refused.message, "Group g is not a classic group.");
}

#[test]
fn whoever_joins_or_waits_for_the_leader_is_told_to_join_again() {
    let mut mixed = Mixed::stable();
    // One joins again with other metadata, so that the group rebalances.
    let waiting = mixed.join(owning(static_join("b-02", "b"), &[2]));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!(mixed.say(&join_consumer("n")), ok("2"));
    let answer = mixed.joined(waiting);
    assert_eq!((answer.error, &*answer.member_id), (REBALANCE, "b-02"));
    assert_eq!(mixed.state(), "consumer Reconciling");

    let mut mixed = Mixed::stable();
    let tickets =
        [mixed.join(owning(static_join("b-02", "b"), &[2])), mixed.join(static_join("a-01", "a"))];
    assert_eq!(tickets.map(|ticket| mixed.joined(ticket).generation), [2, 2]);
    let waiting = mixed.sync("b-02", 2, &[]);
    assert_eq!(mixed.state(), "classic CompletingRebalance");
    // What they had before counts, in the generation that has just begun.
    assert_eq!(mixed.say(&join_consumer("n")), ok("3"));
    assert_eq!(mixed.synced(waiting).0, REBALANCE);
    assert_eq!(mixed.beat("b-02", 2), REBALANCE);
    assert_eq!(mixed.enter(join("b-02")), (NONE, 3));
    assert_eq!(mixed.has("b-02", 3), (NONE, "t1:3,4".to_owned()));
}

#[test]
fn the_first_rebalance_of_a_group_is_no_hindrance() {
    let mut mixed = Mixed::new();
    let waiting = mixed.join(static_join("", "a"));
    assert_eq!(mixed.say(&join_consumer("n")), ok("1 t1:1,3,5"));
    let answer = mixed.joined(waiting);
    assert_eq!((answer.error, &*answer.member_id), (REBALANCE, "a-01"));
    assert_eq!(mixed.enter(static_join("a-01", "a")), (NONE, 1));
    assert_eq!(mixed.has("a-01", 1), (NONE, "t1:0,2,4".to_owned()));
    assert_eq!(mixed.state(), "consumer Stable");
    assert!(mixed.timers.keys().all(|key| matches!(key, TimerKey::Consumer(_))));
}

#[test]
fn who_has_only_a_member_id_joins_with_it() {
    let mut mixed = Mixed::stable();
    let ticket = mixed.join(join(""));
    let id = mixed.joined(ticket).member_id;
    assert_eq!(mixed.say(&join_consumer("n")), ok("2"));
    assert_eq!(mixed.enter(join(&id)), (NONE, 3));
}

#[test]
fn a_static_member_comes_back_by_the_other_protocol() {
    let mut mixed = Mixed::stable();
    assert_eq!(mixed.say(&static_consumer("a", join_consumer("n"))), ok("1 t1:0,1,2"));
    assert_eq!(mixed.state(), "consumer Stable");
    assert_eq!(mixed.timer(Timer::Session("a-01".into())), None);
    assert_eq!(mixed.beat_as("a-01", Some("a"), 1), ErrorCode::FencedInstanceId);
    assert_eq!(mixed.beat_as("b-02", Some("b"), 1), NONE);
}

#[test]
fn groups_that_cannot_become_consumer_groups_stay_as_they_are() {
    let refused = |mut mixed: Mixed| {
        let (before, timers) = (mixed.log.len(), mixed.timers.clone());
        let planned = mixed.groups.consumer_heartbeat(&join_consumer("n"), &mixed.rules());
        let refusal = planned.answer.expect_err("refused");
        assert_eq!(mixed.say(&join_consumer("n")), Err(refusal.code));
        assert_eq!((mixed.log.len(), mixed.timers), (before, timers));
        (refusal.code, refusal.message)
    };
    let not_found = |why: &str| {
        let message = format!("Cannot upgrade classic group g to consumer group because {why}.");
        (ErrorCode::GroupIdNotFound, message)
    };
    for policy in [MigrationPolicy::Disabled, MigrationPolicy::Downgrade] {
        let mixed = Mixed { policy, ..Mixed::stable() };
        assert_eq!(refused(mixed), not_found("online upgrade is disabled"));
    }
    let mixed = Mixed { members_max: 1, ..Mixed::stable() };
    let why = "the group size exceeds the consumer group maximum size";
    assert_eq!(refused(mixed), not_found(why));
    let mixed = Mixed { members_max: 2, ..Mixed::stable() };
    assert_eq!(refused(mixed).0, ErrorCode::GroupMaxSizeReached);

    let assigned = |bytes: &'static [u8]| {
        let mut mixed = Mixed::new();
        let ticket = mixed.join(static_join("", "a"));
        mixed.pass(6_000);
        mixed.joined(ticket);
        let assignments = vec![("a-01".into(), Bytes::from_static(bytes))];
        mixed.sync_with(Sync { assignments, ..sync_of("a-01", 1) });
        mixed.answers.clear();
        assert_eq!(mixed.state(), "classic Stable");
        mixed
    };
    let malformed = not_found("the embedded consumer protocol is malformed");
    assert_eq!(refused(assigned(b"\0\0garbage")), malformed);
    let custom = not_found(
        "an unsupported custom assignor is in use. Please refer to the documentation or switch to \
         a default assignor before re-attempting the upgrade",
    );
    assert_eq!(refused(assigned(b"\0\0\0\0\0\0\0\0\0\x01z")), custom);
    // No bytes at all are an assignment of nothing.
    let mut empty = assigned(b"");
    assert_eq!(empty.say(&join_consumer("n")), ok("2 t1:1,3,5"));

    let other = |protocol_type: &str, metadata: &'static [u8]| {
        let mut mixed = Mixed::new();
        let metadata = Bytes::from_static(metadata);
        mixed.join(Join {
            protocol_type: protocol_type.into(),
            protocols: vec![Protocol { name: "range".into(), metadata }],
            ..static_join("", "a")
        });
        mixed.pass(6_000);
        mixed.answers.clear();
        mixed
    };
    assert_eq!(refused(other("consumer", b"garbage")), malformed);
    let why = "the group does not use the consumer embedded protocol";
    assert_eq!(refused(other("connect", b"")), not_found(why));
}

#[test]
fn a_leader_that_gave_a_partition_to_two_is_no_basis() {
    let mut mixed = Mixed::stable();
    let tickets =
        [mixed.join(owning(static_join("b-02", "b"), &[2])), mixed.join(static_join("a-01", "a"))];
    assert_eq!(tickets.map(|ticket| mixed.joined(ticket).generation), [2, 2]);
    mixed.sync("a-01", 2, &[("a-01", &[0, 1]), ("b-02", &[1, 2])]);
    mixed.sync("b-02", 2, &[]);
    mixed.answers.clear();
    assert_eq!(mixed.say(&join_consumer("n")), Err(ErrorCode::UnknownServerError));
    assert_eq!(mixed.state(), "classic Stable");
}

#[test]
fn an_upgrade_that_cannot_be_written_changes_nothing() {
    let mut mixed = Mixed::stable();
    let waiting = mixed.join(owning(static_join("b-02", "b"), &[2]));
    let timers = mixed.timers.clone();
    mixed.fails = true;
    assert_eq!(mixed.say(&join_consumer("n")), Err(ErrorCode::CoordinatorNotAvailable));
    assert_eq!((mixed.state().as_str(), &mixed.timers), ("classic PreparingRebalance", &timers));
    assert!(!mixed.answers.contains_key(&waiting), "it still waits");
    mixed.fails = false;
    let last = mixed.join(static_join("a-01", "a"));
    assert_eq!((mixed.joined(waiting).generation, mixed.joined(last).generation), (2, 2));
}

#[test]
fn offsets_stay_over_every_conversion() {
    use crate::coordinator::group::offsets::{Commit, CommitRules, NewOffset};
    use crate::coordinator::group::{CommitApi, Committer};
    let mut mixed = Mixed::stable();
    let commit = |mixed: &mut Mixed, id: &str, generation| {
        let by = Committer { member_id: id.into(), instance_id: None, generation };
        let offset = NewOffset {
            topic: "t1".into(),
            topic_id: TopicId::ZERO,
            partition: 0,
            offset: 7,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let commit = Commit {
            group: "g".into(),
            by,
            api: CommitApi::Plain(9),
            retention_ms: None,
            offsets: vec![offset],
        };
        let rules = CommitRules { metadata_units_max: 10, now_ms: 1 };
        let planned = mixed.groups.plan_commit(&commit, &rules)?;
        mixed.carry_out(Outcome { records: planned.records, ..Outcome::default() });
        Ok::<_, ErrorCode>(planned.codes)
    };
    assert_eq!(commit(&mut mixed, "a-01", 1), Ok(vec![NONE]));
    assert_eq!(mixed.say(&join_consumer("n")), ok("2"));
    // A member of either protocol commits in its own epoch, and is refused in its own words.
    assert_eq!(commit(&mut mixed, "a-01", 1), Ok(vec![NONE]));
    assert_eq!(commit(&mut mixed, "a-01", 2), Err(ErrorCode::IllegalGeneration));
    assert_eq!(commit(&mut mixed, "n", 2), Ok(vec![NONE]));
    assert_eq!(commit(&mut mixed, "n", 3), Err(ErrorCode::StaleMemberEpoch));
    let check = |mixed: &Mixed, id, epoch| mixed.groups.check_fetch("g", Some(id), epoch);
    assert_eq!(check(&mixed, "a-01", 1), Ok(()));
    assert_eq!(check(&mixed, "a-01", 2), Err(ErrorCode::IllegalGeneration));
    assert_eq!(check(&mixed, "n", 1), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(check(&mixed, "x", 1), Err(ErrorCode::UnknownMemberId));
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!(mixed.groups.fetch("g", None, false).len(), 1, "it still has its offset");
}

#[test]
fn what_members_still_consume_in_a_rebalance_is_theirs_until_they_join_without_it() {
    let claims = |mixed: &Mixed| {
        let described = mixed.groups.describe_consumer("g", &mixed.rules()).expect("consumers");
        let each = described.members.iter().map(|member| {
            let has = member.assigned.iter().flat_map(|(_, _, of)| of.iter().copied());
            format!("{} {:?}", member.id, has.collect::<Vec<i32>>())
        });
        each.collect::<Vec<_>>()
    };
    // A rebalance that was under way begins anew: assignments are forgotten, but not by those that
    // consume cooperatively.
    let mut mixed = Mixed::stable();
    let tickets = [
        mixed.join(owning(static_join("b-02", "b"), &[3, 4, 5])),
        mixed.join(owning(static_join("a-01", "a"), &[0, 1, 2])),
    ];
    assert_eq!(tickets.map(|ticket| mixed.joined(ticket).generation), [2, 2]);
    mixed.join(Join { version: 3, ..join("") });
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!(mixed.say(&join_consumer("n")), ok("3"));
    assert_eq!(claims(&mixed), ["a-01 [0, 1, 2]", "b-02 [3, 4, 5]", "c-07 []", "n []"]);
    assert_eq!(mixed.beat("a-01", 2), REBALANCE);

    // The leader has taken one from another, who has not heard of it yet.
    let mut mixed = Mixed::stable();
    let tickets = [
        mixed.join(owning(static_join("b-02", "b"), &[3, 4, 5])),
        mixed.join(owning(static_join("a-01", "a"), &[0, 1, 2])),
    ];
    assert_eq!(tickets.map(|ticket| mixed.joined(ticket).generation), [2, 2]);
    mixed.sync("a-01", 2, &[("a-01", &[0, 1]), ("b-02", &[3, 4, 5])]);
    mixed.answers.clear();
    assert_eq!(mixed.say(&join_consumer("n")), ok("3"), "nothing is free");
    assert_eq!(claims(&mixed), ["a-01 [0, 1, 2]", "b-02 [3, 4, 5]", "n []"]);
    assert_eq!(mixed.beat("a-01", 2), REBALANCE);
    assert_eq!(mixed.enter(owning(join("a-01"), &[0, 1])), (NONE, 3));
    assert_eq!(mixed.say(&beat_consumer("n", 3)), ok("3 t1:2"));
}
