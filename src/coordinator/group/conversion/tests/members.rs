//! Members of the classic protocol in a consumer group.

use super::*;

#[test]
fn a_member_gives_up_what_another_is_to_have_and_only_then_does_that_one_get_it() {
    let mut mixed = Mixed::upgraded();
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    assert_eq!(mixed.timer(Timer::Join("a-01".into())), Some(i64::from(REBALANCE_MS)));
    assert_eq!(mixed.has("a-01", 1).0, REBALANCE, "there is a newer target");
    // It joins with all that it has: it stays in its generation, with what it may keep.
    let ticket = mixed.join(owning(join("a-01"), &[0, 1, 2]));
    let answer = mixed.joined(ticket);
    assert_eq!((answer.error, answer.generation, &*answer.leader), (NONE, 1, ""));
    assert_eq!(answer.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(answer.protocol.as_deref(), Some("range"));
    assert_eq!((answer.members.len(), answer.skip_assignment), (0, false));
    assert_eq!(mixed.timer(Timer::Join("a-01".into())), None);
    assert_eq!(mixed.timer(Timer::Sync("a-01".into())), Some(i64::from(REBALANCE_MS)));
    assert_eq!(mixed.has("a-01", 1), (NONE, "t1:0,1".to_owned()));
    assert_eq!(mixed.timer(Timer::Sync("a-01".into())), None);
    assert_eq!(mixed.timer(Timer::Revocation("a-01".into())), None);
    // The other gets nothing before it has joined again without the partition.
    assert_eq!(mixed.say(&beat_consumer("n", 2)), ok("2 -"));
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    assert_eq!(mixed.enter(owning(join("a-01"), &[0, 1])), (NONE, 2));
    assert_eq!(mixed.has("a-01", 2), (NONE, "t1:0,1".to_owned()));
    assert_eq!(mixed.beat("a-01", 2), NONE);
    assert_eq!(mixed.beat("a-01", 1), ErrorCode::IllegalGeneration);
    assert_eq!(mixed.say(&beat_consumer("n", 2)), ok("2 t1:2"));
    // The second has given up all before it joins, as the eager protocol has it.
    assert_eq!(mixed.beat("b-02", 1), REBALANCE);
    assert_eq!(mixed.enter(join("b-02")), (NONE, 2));
    assert_eq!(mixed.has("b-02", 2), (NONE, "t1:3,4".to_owned()));
    assert_eq!(mixed.say(&beat_consumer("n", 2)), ok("2 t1:2,5"));
    assert_eq!(mixed.state(), "consumer Stable");
}

#[test]
fn a_member_that_waits_for_others_is_told_when_they_have_gone() {
    let mut mixed = Mixed::settled();
    assert_eq!(mixed.say(&beat_consumer("n", 2)), ok("2 -"));
    // A new member is to have what others have: it has nothing yet, and need not join again.
    let ticket = mixed.join(Join { version: 3, ..join("") });
    let answer = mixed.joined(ticket);
    let id = answer.member_id.to_string();
    assert_eq!((answer.error, answer.generation), (NONE, 3));
    assert_eq!(mixed.has(&id, 3), (NONE, "".to_owned()));
    assert_eq!(mixed.beat(&id, 3), NONE);
    // Whoever has it gives it up: now joining brings something.
    let mut has = |partitions: &[i32]| {
        let owned = [(TopicId([1; 16]), partitions.iter().copied().collect())].into();
        mixed.say(&consumer::Heartbeat { owned: Some(owned), ..beat_consumer("n", 2) })
    };
    assert_eq!(has(&[2, 5]), ok("2 t1:2"));
    assert_eq!(has(&[2]), ok("3 -"));
    assert_eq!(mixed.beat(&id, 3), REBALANCE);
    assert_eq!(mixed.enter(join(&id)), (NONE, 3));
    assert_eq!(mixed.has(&id, 3), (NONE, "t1:5".to_owned()));
    assert_eq!(mixed.beat(&id, 3), NONE);
}

#[test]
fn joining_is_refused_where_kafka_refuses_it() {
    let code = |mixed: &mut Mixed, join: Join| {
        let ticket = mixed.join(join);
        let answer = mixed.joined(ticket);
        assert_eq!((answer.generation, &*answer.leader), (-1, ""));
        (answer.error, answer.member_id.to_string())
    };
    let mut mixed = Mixed::upgraded();
    let refused = |code| (code, String::new());
    let inconsistent = refused(ErrorCode::InconsistentGroupProtocol);
    mixed.policy = MigrationPolicy::Disabled;
    assert_eq!(code(&mut mixed, join("")), inconsistent);
    assert_eq!(code(&mut mixed, join("a-01")), inconsistent);
    // Any other policy lets them in.
    mixed.policy = MigrationPolicy::Upgrade;
    let (required, id) = code(&mut mixed, join(""));
    assert_eq!((required, id.is_empty()), (ErrorCode::MemberIdRequired, false));
    let other = || Join { protocols: vec![speaks("roundrobin", &[])], ..join("") };
    assert_eq!(code(&mut mixed, other()), inconsistent);
    assert_eq!(
        code(&mut mixed, Join { protocol_type: "connect".into(), ..join("") }),
        inconsistent
    );
    assert_eq!(code(&mut mixed, Join { protocols: vec![], ..join("") }), inconsistent);
    let session = Join { session_timeout_ms: 1, ..join("") };
    assert_eq!(code(&mut mixed, session).0, ErrorCode::InvalidSessionTimeout);
    mixed.members_max = 3;
    assert_eq!(code(&mut mixed, join("")), refused(ErrorCode::GroupMaxSizeReached));
    mixed.members_max = 9;
    let unknown = static_join("x", "nobody");
    assert_eq!(code(&mut mixed, unknown), refused(ErrorCode::UnknownMemberId));
    assert_eq!(code(&mut mixed, static_join("x", "a")), refused(ErrorCode::FencedInstanceId));
    let garbage = Protocol { name: "range".into(), metadata: Bytes::from_static(b"x") };
    let garbage = Join { protocols: vec![garbage], version: 3, ..join("") };
    assert_eq!(code(&mut mixed, garbage), refused(ErrorCode::UnknownServerError));
    // A group without any of the classic protocol takes what speaks any.
    let mut mixed = Mixed::new();
    assert_eq!(mixed.say(&join_consumer("n")), ok("2 t1:0,1,2,3,4,5"));
    assert_eq!(mixed.enter(Join { version: 3, ..other() }), (NONE, 3));
}

#[test]
fn syncing_and_heartbeats_are_refused_where_kafka_refuses_them() {
    let mut mixed = Mixed::settled();
    assert_eq!(mixed.has("x", 2).0, ErrorCode::UnknownMemberId);
    assert_eq!(mixed.has("n", 2).0, ErrorCode::UnknownMemberId, "it speaks the other protocol");
    assert_eq!(mixed.has("a-01", 1).0, ErrorCode::IllegalGeneration);
    assert_eq!(mixed.sync_as("a-01", "z", 2).0, ErrorCode::UnknownMemberId);
    assert_eq!(mixed.sync_as("a-01", "b", 2).0, ErrorCode::FencedInstanceId);
    let mut with = |protocol_type: &str, protocol: &str| {
        let sync = Sync {
            protocol_type: Some(protocol_type.into()),
            protocol: Some(protocol.into()),
            ..sync_of("a-01", 2)
        };
        let ticket = mixed.sync_with(sync);
        mixed.synced(ticket).0
    };
    assert_eq!(with("connect", "range"), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(with("consumer", "sticky"), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(with("consumer", "range"), NONE);
    let silent = Sync { protocol_type: None, protocol: None, ..sync_of("a-01", 2) };
    let ticket = mixed.sync_with(silent);
    assert_eq!(mixed.synced(ticket), (NONE, "t1:0,1".to_owned()));
    assert_eq!(mixed.beat("x", 2), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.beat("n", 2), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.beat_as("a-01", Some("z"), 2), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.beat_as("a-01", Some("b"), 2), ErrorCode::FencedInstanceId);
    assert_eq!(mixed.beat("a-01", 3), ErrorCode::IllegalGeneration);
    assert_eq!(mixed.beat_as("a-01", Some("a"), 2), NONE);
}

#[test]
fn who_does_not_join_or_sync_in_time_is_removed() {
    let mut mixed = Mixed::upgraded();
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    mixed.pass(5_000);
    // Another heartbeat gives it no more time.
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    assert_eq!(mixed.timer(Timer::Join("a-01".into())), Some(15_000));
    for _ in 0..3 {
        mixed.pass(4_900);
        assert_eq!([mixed.beat("a-01", 1), mixed.beat("b-02", 1)], [REBALANCE; 2]);
    }
    mixed.pass(400);
    assert_eq!(mixed.beat("a-01", 1), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.beat("b-02", 1), REBALANCE);

    let mut mixed = Mixed::upgraded();
    assert_eq!(mixed.enter(join("a-01")), (NONE, 2));
    for _ in 0..4 {
        mixed.pass(4_999);
        assert_eq!(mixed.beat("a-01", 2), NONE, "it is heard of, but does not sync");
        mixed.beat("b-02", 1);
    }
    mixed.pass(4);
    assert_eq!(mixed.beat("a-01", 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_sync_that_tells_of_a_rebalance_prolongs_the_session() {
    let mut mixed = Mixed::upgraded();
    mixed.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(mixed.has("a-01", 1).0, REBALANCE);
    // What it has is its own until it joins without it.
    mixed.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(mixed.say(&beat_consumer("n", 2)), ok("3 t1:4,5"), "the other was silent");
    assert_eq!(mixed.enter(owning(join("a-01"), &[0, 1, 2])), (NONE, 1));
    // It gives no more time than that: to join there is a time of its own.
    let mut mixed = Mixed::upgraded();
    for _ in 0..2 {
        mixed.pass(i64::from(SESSION_MS) - 1);
        assert_eq!(mixed.has("a-01", 1).0, REBALANCE);
    }
    mixed.pass(i64::from(SESSION_MS));
    assert_eq!(mixed.has("a-01", 1).0, ErrorCode::UnknownMemberId);
    let mut mixed = Mixed::upgraded();
    for _ in 0..4 {
        assert_eq!(mixed.has("a-01", 1).0, REBALANCE);
        mixed.pass(i64::from(REBALANCE_MS) / 4);
    }
    assert_eq!(mixed.has("a-01", 1).0, ErrorCode::UnknownMemberId);
}

#[test]
fn who_is_silent_is_removed_after_its_own_session() {
    let mut mixed = Mixed::settled();
    mixed.pass(i64::from(SESSION_MS) - 200);
    assert_eq!(mixed.beat("a-01", 2), NONE);
    mixed.pass(200);
    assert_eq!(mixed.beat("b-02", 2), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.state(), "consumer Assigning");
    // A member of the classic protocol learns of a new target only when somebody computes it.
    assert_eq!(mixed.beat("a-01", 2), NONE);
    assert!(mixed.say(&beat_consumer("n", 2)).is_ok());
    assert_eq!(mixed.epochs(), (3, 3));
    assert_eq!(mixed.beat("a-01", 2), REBALANCE);
}

#[test]
fn members_leave_by_id_and_by_instance() {
    let mut mixed = Mixed::settled();
    let (unknown, fenced) = (ErrorCode::UnknownMemberId, ErrorCode::FencedInstanceId);
    let before = mixed.log.len();
    assert_eq!(mixed.leave(&[("x", None), ("", None), ("", Some("z"))]), [unknown; 3]);
    assert_eq!(mixed.leave(&[("a-01", Some("b"))]), [fenced]);
    assert_eq!(mixed.log.len(), before, "nobody has left");
    // Twice the same member, and one by its instance alone.
    assert_eq!(mixed.leave(&[("a-01", None), ("a-01", Some("a"))]), [NONE; 2]);
    assert_eq!(
        mixed.kinds_since(before),
        ["-current a-01", "-target a-01", "-member a-01", "epoch 3"]
    );
    assert_eq!(mixed.leave(&[("", Some("b"))]), [NONE]);
    assert_eq!(mixed.state(), "consumer Assigning");
    assert!(mixed.timers.keys().all(|key| *key == TimerKey::Consumer(Timer::Session("n".into()))));
    // Also one of the other protocol.
    assert_eq!(mixed.leave(&[("n", None)]), [NONE]);
    assert_eq!(mixed.state(), "consumer Empty");
    assert_eq!(mixed.leave(&[("n", None)]), [unknown]);
    // An empty group takes members of either protocol.
    let ticket = mixed.join(static_join("", "a"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    mixed.pass(6_000);
    assert_eq!(mixed.joined(ticket).generation, 1);
}

#[test]
fn a_static_member_of_the_classic_protocol_comes_back_with_another_id() {
    let mut mixed = Mixed::settled();
    let before = mixed.log.len();
    let ticket = mixed.join(static_join("", "a"));
    let answer = mixed.joined(ticket);
    let id = answer.member_id.to_string();
    assert_eq!((answer.error, answer.generation), (NONE, 2));
    assert_eq!(
        mixed.kinds_since(before),
        [
            "-current a-01".to_owned(),
            "-target a-01".into(),
            "-member a-01".into(),
            format!("member {id}"),
            format!("target {id} t1:0,1"),
            format!("current {id} 0 {{0, 1}}"),
            format!("current {id} 2 {{0, 1}}"),
        ]
    );
    assert_eq!(mixed.sync_as(&id, "a", 2), (NONE, "t1:0,1".to_owned()));
    assert_eq!(mixed.beat_as("a-01", Some("a"), 2), ErrorCode::FencedInstanceId);
    assert_eq!(mixed.timer(Timer::Session("a-01".into())), None);
    assert_eq!(mixed.epochs(), (2, 2), "nobody else is troubled");
}

#[test]
fn a_member_changes_its_protocol_without_leaving() {
    let mut mixed = Mixed::settled();
    assert_eq!(mixed.enter(join("a-01")), (NONE, 2));
    assert!(mixed.timer(Timer::Sync("a-01".into())).is_some());
    assert_eq!(mixed.say(&join_consumer("a-01")), ok("2 t1:0,1"));
    assert_eq!(mixed.timer(Timer::Sync("a-01".into())), None, "it will not sync any more");
    assert_eq!(mixed.beat("a-01", 2), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.enter(join("a-01")), (NONE, 2));
    assert_eq!(mixed.beat("a-01", 2), NONE);
}

#[test]
fn a_restart_loses_nobody() {
    let mut mixed = Mixed::upgraded();
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    mixed.restart();
    assert_eq!(mixed.timer(Timer::Session("a-01".into())), Some(i64::from(SESSION_MS)));
    assert_eq!(mixed.timer(Timer::Session("n".into())), Some(i64::from(CONSUMER_SESSION_MS)));
    // It has its time to join anew, from its next heartbeat on.
    assert_eq!(mixed.timer(Timer::Join("a-01".into())), None);
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    assert_eq!(mixed.timer(Timer::Join("a-01".into())), Some(i64::from(REBALANCE_MS)));
    assert_eq!(mixed.enter(owning(join("a-01"), &[0, 1, 2])), (NONE, 1));
    mixed.restart();
    assert_eq!(mixed.has("a-01", 1), (NONE, "t1:0,1".to_owned()));
    assert_eq!(mixed.timer(Timer::Revocation("a-01".into())), None, "it has other timers");
    assert_eq!(mixed.enter(owning(join("a-01"), &[0, 1])), (NONE, 2));
    // Who is not heard of after it goes.
    mixed.pass(i64::from(SESSION_MS));
    assert_eq!(mixed.beat("b-02", 1), ErrorCode::UnknownMemberId);
    assert!(mixed.say(&beat_consumer("n", 2)).is_ok());
}

#[test]
fn who_leaves_or_is_replaced_while_nothing_can_be_written_is_missed_all_the_same() {
    let own = |n: &str| format!("{n} t1:0,1,2,3,4,5");
    for is_replaced in [false, true] {
        let mut mixed = Mixed::settled();
        mixed.fails = true;
        for id in ["a", "b"] {
            if is_replaced {
                let refused = mixed.enter(static_join("", id));
                assert_eq!(refused, (ErrorCode::CoordinatorNotAvailable, -1));
            } else {
                let ticket = mixed.ticket();
                let leave =
                    Leave { group: "g".into(), members: vec![("".into(), Some(id.into()))] };
                let (rules, of_consumers) = (mixed.classic_rules(), mixed.rules());
                let outcome = mixed.groups.leave(&leave, ticket, &rules, &of_consumers);
                mixed.carry_out(outcome);
            }
        }
        mixed.fails = false;
        mixed.pass(i64::from(SESSION_MS));
        let alone = mixed.say(&beat_consumer("n", 2));
        assert_eq!(alone, Ok(own("4")), "{is_replaced}");
    }
}
