//! The last member of the consumer protocol goes.

use super::*;

#[test]
fn the_others_go_on_as_a_classic_group_and_join_again() {
    let mut mixed = Mixed::settled();
    let before = mixed.log.len();
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!(
        mixed.kinds_since(before),
        [
            "-current a-01",
            "-current b-02",
            "-current n",
            "-target a-01",
            "-target b-02",
            "-target n",
            "-target epoch",
            "-member a-01",
            "-member b-02",
            "-member n",
            "-epoch",
            "classic 2",
        ]
    );
    let Some(GroupRecord::Classic(_, metadata)) = mixed.log.last() else { panic!("no group") };
    assert_eq!(
        (&*metadata.protocol_type, metadata.protocol.as_deref()),
        ("consumer", Some("range"))
    );
    assert_eq!(metadata.leader, None);
    assert_eq!(metadata.since_ms, Some(1_000_000 + mixed.now_ms));
    let assigned: Vec<_> =
        metadata.members.iter().map(|member| member.assignment.clone()).collect();
    assert_eq!(assigned, [assignment_of(&[0, 1]), assignment_of(&[3, 4])]);
    assert_eq!(metadata.members[0].subscription, subscription("t1", &[]));
    assert_eq!(metadata.members[0].session_timeout_ms, SESSION_MS);
    assert_eq!(metadata.members[0].rebalance_timeout_ms, REBALANCE_MS);
    // Only timers of the classic group are left.
    let keys: Vec<&TimerKey> = mixed.timers.keys().collect();
    let session = |id: &str| TimerKey::Session(id.into());
    assert_eq!(keys, [&session("a-01"), &session("b-02"), &TimerKey::Join]);
    assert_eq!([mixed.beat("a-01", 2), mixed.beat("b-02", 2)], [REBALANCE; 2]);
    let tickets = [mixed.join(static_join("a-01", "a")), mixed.join(static_join("b-02", "b"))];
    let answers = tickets.map(|ticket| mixed.joined(ticket));
    assert_eq!(answers.each_ref().map(|answer| (answer.error, answer.generation)), [(NONE, 3); 2]);
    assert_eq!(answers[0].members.len(), 2, "the first leads");
    let waiting = mixed.sync("b-02", 3, &[]);
    let leader = mixed.sync("a-01", 3, &[("a-01", &[0, 1, 2]), ("b-02", &[3, 4, 5])]);
    assert_eq!(mixed.synced(leader), (NONE, "t1:0,1,2".to_owned()));
    assert_eq!(mixed.synced(waiting), (NONE, "t1:3,4,5".to_owned()));
    // And back.
    assert_eq!(mixed.say(&join_consumer("n")), ok("4"));
    assert_eq!(mixed.state(), "consumer Reconciling");
}

#[test]
fn a_session_that_ends_is_as_good_as_leaving() {
    let mut mixed = Mixed::settled();
    for _ in 0..8 {
        mixed.pass(5_000);
        assert_eq!([mixed.beat("a-01", 2), mixed.beat("b-02", 2)], [NONE; 2]);
    }
    mixed.pass(5_000);
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!([mixed.beat("a-01", 2), mixed.beat("b-02", 2)], [REBALANCE; 2]);
    // Who does not join is dropped, but for static members, whose sessions end.
    let ticket = mixed.join(static_join("a-01", "a"));
    mixed.pass(i64::from(REBALANCE_MS));
    assert_eq!(mixed.joined(ticket).generation, 3);
    mixed.pass(i64::from(REBALANCE_MS));
    assert_eq!(mixed.state(), "classic Empty");
    assert!(mixed.timers.is_empty(), "{:?}", mixed.timers);
}

#[test]
fn removing_members_by_leave_group_may_leave_classic_ones_only() {
    let mut mixed = Mixed::settled();
    assert_eq!(mixed.leave(&[("n", None), ("", Some("b"))]), [NONE; 2]);
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    let ticket = mixed.join(static_join("a-01", "a"));
    assert_eq!(mixed.joined(ticket).generation, 3);
    // Nobody left is an empty consumer group, not a classic one.
    let mut mixed = Mixed::settled();
    assert_eq!(mixed.leave(&[("n", None), ("a-01", None), ("b-02", None)]), [NONE; 3]);
    assert_eq!(mixed.state(), "consumer Empty");
}

#[test]
fn the_policy_and_the_size_may_forbid_it() {
    let stays = |mut mixed: Mixed| {
        assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
        assert_eq!(mixed.state(), "consumer Assigning");
        mixed
    };
    for policy in [MigrationPolicy::Disabled, MigrationPolicy::Upgrade] {
        let mut mixed = stays(Mixed { policy, ..Mixed::settled() });
        // Nobody but one of them can compute a target: they are told to join for it.
        assert_eq!([mixed.beat("a-01", 2), mixed.beat("b-02", 2)], [REBALANCE; 2]);
        if policy == MigrationPolicy::Upgrade {
            assert_eq!(mixed.enter(owning(join("a-01"), &[0, 1])), (NONE, 3));
            assert_eq!(mixed.has("a-01", 3), (NONE, "t1:0,1,2".to_owned()));
            assert_eq!([mixed.beat("a-01", 3), mixed.beat("b-02", 2)], [NONE, REBALANCE]);
        }
    }
    let mut mixed = stays(Mixed { classic_members_max: 1, ..Mixed::settled() });
    // When it fits, the next that goes brings it about.
    assert_eq!(mixed.leave(&[("a-01", None)]), [NONE]);
    assert_eq!(mixed.state(), "classic PreparingRebalance");
}

#[test]
fn a_static_member_that_comes_back_by_the_classic_protocol_ends_the_consumer_group() {
    let mut mixed = Mixed::stable();
    assert_eq!(mixed.say(&static_consumer("b", join_consumer("n"))), ok("1 t1:3,4,5"));
    assert_eq!(mixed.state(), "consumer Stable");
    let before = mixed.log.len();
    let ticket = mixed.join(static_join("", "b"));
    let answer = mixed.joined(ticket);
    let id = answer.member_id.to_string();
    // Nothing has changed but the member's protocol: nobody has to join again.
    assert_eq!((answer.error, answer.generation), (NONE, 1));
    assert_eq!(mixed.state(), "classic Stable");
    assert_eq!(
        mixed.kinds_since(before),
        [
            "-current n".to_owned(),
            "-target n".into(),
            "-member n".into(),
            format!("member {id}"),
            format!("target {id} t1:3,4,5"),
            format!("current {id} 0 {{3, 4, 5}}"),
            format!("member {id}"),
            format!("current {id} 1 {{3, 4, 5}}"),
            "-current a-01".into(),
            format!("-current {id}"),
            "-target a-01".into(),
            format!("-target {id}"),
            "-target epoch".into(),
            "-member a-01".into(),
            format!("-member {id}"),
            "-epoch".into(),
            "classic 1".into(),
        ]
    );
    assert_eq!(mixed.sync_as(&id, "b", 1), (NONE, "t1:3,4,5".to_owned()));
    assert_eq!([mixed.beat("a-01", 1), mixed.beat(&id, 1)], [NONE; 2]);
    assert!(mixed.timers.keys().all(|key| matches!(key, TimerKey::Session(_))));
    assert_eq!(mixed.timers.len(), 2);
}

#[test]
fn one_that_comes_back_with_another_subscription_makes_all_join_again() {
    let mut mixed = Mixed::stable();
    assert_eq!(mixed.say(&static_consumer("b", join_consumer("n"))), ok("1 t1:3,4,5"));
    let protocols = vec![Protocol { name: "range".into(), metadata: subscription("t2", &[]) }];
    let ticket = mixed.join(Join { protocols, ..static_join("", "b") });
    let answer = mixed.joined(ticket);
    let id = answer.member_id.to_string();
    assert_eq!((answer.error, answer.generation), (NONE, 0), "it has no generation yet");
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!(mixed.sync_as(&id, "b", 0).0, ErrorCode::IllegalGeneration);
    assert_eq!(mixed.beat("a-01", 1), REBALANCE);
    let tickets = [mixed.join(static_join("a-01", "a")), mixed.join(static_join(&id, "b"))];
    assert_eq!(tickets.map(|ticket| mixed.joined(ticket).generation), [2, 2]);
}

#[test]
fn one_that_comes_back_while_another_waits_makes_all_join_again() {
    let mut mixed = Mixed::stable();
    assert_eq!(mixed.say(&static_consumer("b", join_consumer("n"))), ok("1 t1:3,4,5"));
    let ticket = mixed.join(Join { version: 3, ..join("") });
    let waiting = mixed.joined(ticket).member_id.to_string();
    assert_eq!(mixed.has(&waiting, 2), (NONE, "".to_owned()));
    assert_eq!(mixed.beat(&waiting, 2), NONE, "it waits for what others have");
    let ticket = mixed.join(static_join("", "b"));
    assert_eq!(mixed.joined(ticket).error, NONE);
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    assert_eq!(mixed.beat(&waiting, 2), REBALANCE);
}

#[test]
fn one_of_two_consumer_members_that_comes_back_leaves_a_consumer_group() {
    let mut mixed = Mixed::settled();
    assert_eq!(mixed.say(&static_consumer("a", join_consumer("m"))), ok("2 t1:0,1"));
    let ticket = mixed.join(static_join("", "a"));
    let answer = mixed.joined(ticket);
    assert_eq!((answer.error, answer.generation), (NONE, 2));
    assert_eq!(mixed.state(), "consumer Stable");
}

#[test]
fn a_group_keeps_all_protocols_of_its_members() {
    let mut mixed = Mixed::new();
    let both = || vec![speaks("range", &[]), speaks("sticky", &[])];
    let ticket = mixed.join(Join { protocols: both(), ..static_join("", "a") });
    mixed.pass(6_000);
    mixed.joined(ticket);
    mixed.sync("a-01", 1, &[("a-01", &[0, 1, 2, 3, 4, 5])]);
    mixed.answers.clear();
    assert_eq!(mixed.say(&join_consumer("n")), ok("2"));
    // One that shares either of them is let in, before and after the group is a classic one again.
    let sticky = || Join { protocols: vec![speaks("sticky", &[])], ..join("") };
    let ticket = mixed.join(sticky());
    assert_eq!(mixed.joined(ticket).error, ErrorCode::MemberIdRequired);
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    let ticket = mixed.join(sticky());
    assert_eq!(mixed.joined(ticket).error, ErrorCode::MemberIdRequired);
    let other = Join { protocols: vec![speaks("other", &[])], ..join("") };
    let ticket = mixed.join(other);
    assert_eq!(mixed.joined(ticket).error, ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn a_restart_finds_what_the_members_were_to_have_and_lets_them_join_again() {
    let restarted = || {
        let mut mixed = Mixed::settled();
        assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
        mixed.restart();
        assert_eq!(mixed.state(), "classic PreparingRebalance");
        assert_eq!((mixed.timers.len(), mixed.timers[&TimerKey::Join]), (3, mixed.now_ms + 20_000));
        assert_eq!(mixed.sync_as("a-01", "a", 2), (REBALANCE, String::new()));
        assert_eq!([mixed.beat("a-01", 2), mixed.beat("b-02", 2)], [REBALANCE; 2]);
        mixed
    };
    assert_eq!(restarted().say(&join_consumer("n")), ok("3 t1:2,5"));
    let mut mixed = restarted();
    let tickets = [mixed.join(static_join("a-01", "a")), mixed.join(static_join("b-02", "b"))];
    let answers = tickets.map(|ticket| mixed.joined(ticket));
    assert_eq!(answers.each_ref().map(|answer| (answer.error, answer.generation)), [(NONE, 3); 2]);
    assert_eq!(answers[0].members.len(), 2, "what is nobody's is assigned anew");
}

#[test]
fn a_downgrade_that_cannot_be_written_changes_nothing() {
    let mut mixed = Mixed::settled();
    mixed.fails = true;
    let failed = Err(ErrorCode::CoordinatorNotAvailable);
    assert_eq!(mixed.say(&beat_consumer("n", -1)), failed);
    assert_eq!(mixed.state(), "consumer Stable");
    assert!(mixed.timers.contains_key(&TimerKey::Consumer(Timer::Session("n".into()))));
    mixed.fails = false;
    assert_eq!(mixed.say(&beat_consumer("n", 2)), ok("2 -"));
    assert_eq!([mixed.beat("a-01", 2), mixed.beat("b-02", 2)], [NONE; 2]);
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
}

#[test]
fn an_old_timer_does_nothing_to_a_group_of_the_other_kind() {
    let mut mixed = Mixed::upgraded();
    let stray = [TimerKey::Session("a-01".into()), TimerKey::Join, TimerKey::Sync];
    let before = mixed.log.len();
    stray.iter().for_each(|key| mixed.fire(key));
    assert_eq!(mixed.log.len(), before);
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    let before = mixed.log.len();
    let timers = [Timer::Session, Timer::Join, Timer::Sync, Timer::Revocation];
    for timer in timers {
        mixed.fire(&TimerKey::Consumer(timer("a-01".into())));
    }
    assert_eq!(mixed.log.len(), before);
    assert_eq!(mixed.beat("a-01", 1), ErrorCode::IllegalGeneration);
}

#[test]
fn what_another_has_yet_to_give_up_stays_with_that_one() {
    let mut mixed = Mixed::upgraded();
    // It is to have one that one of the first two has not given up yet.
    let ticket = mixed.join(Join { version: 3, ..join("") });
    let id = mixed.joined(ticket).member_id.to_string();
    assert_eq!(mixed.has(&id, 3), (NONE, "".to_owned()));
    assert_eq!(mixed.beat(&id, 3), NONE, "it waits");
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
    let Some(GroupRecord::Classic(_, metadata)) = mixed.log.last() else { panic!("no group") };
    let of = |id: &str| {
        let member = metadata.members.iter().find(|member| &*member.id == id).expect("a member");
        outline_named(&Assignment::read(&member.assignment).expect("an assignment").partitions)
    };
    assert_eq!([of("a-01"), of("b-02"), of(&id)], ["t1:0,1,2", "t1:3,4,5", ""]);
    // Who has it is of an older generation, and drops it before it joins again.
    assert_eq!([mixed.beat("a-01", 1), mixed.beat("b-02", 1)], [ErrorCode::IllegalGeneration; 2]);
}

#[test]
fn a_session_that_ends_while_nothing_can_be_written_ends_later() {
    let mut mixed = Mixed::settled();
    mixed.fails = true;
    mixed.pass(i64::from(SESSION_MS) + 700);
    assert_eq!(mixed.beat("a-01", 2), NONE, "it is still there");
    mixed.fails = false;
    mixed.pass(500);
    assert_eq!(mixed.beat("b-02", 2), ErrorCode::UnknownMemberId);
    assert_eq!(mixed.beat("a-01", 2), NONE, "it has been heard of since");
}

#[test]
fn an_empty_consumer_group_stays_one_if_the_classic_one_cannot_be_written() {
    let mut mixed = Mixed::new();
    assert_eq!(mixed.say(&join_consumer("n")), ok("2 t1:0,1,2,3,4,5"));
    assert_eq!(mixed.say(&beat_consumer("n", -1)), ok("-1 -"));
    mixed.fails = true;
    let tickets = [mixed.join(static_join("", "a")), mixed.join(join(""))];
    let failed = ErrorCode::CoordinatorNotAvailable;
    assert_eq!(tickets.map(|ticket| mixed.joined(ticket).error), [failed; 2]);
    assert_eq!(mixed.state(), "consumer Empty");
    assert!(mixed.timers.keys().all(|key| matches!(key, TimerKey::Consumer(_))));
    mixed.fails = false;
    mixed.join(static_join("", "a"));
    assert_eq!(mixed.state(), "classic PreparingRebalance");
}
