//! From target to assignment: giving up, waiting, taking over.

use super::*;

fn two_members() -> World {
    let mut world = World::new();
    assert_eq!(world.say(&join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
    assert_eq!(world.say(&join("b", &["t1"])), ok("3"));
    world
}

#[test]
fn a_partition_is_given_away_only_when_it_is_given_up() {
    let mut world = two_members();
    assert_eq!(world.state(), "Reconciling");
    // "b" waits for what "a" has.
    assert_eq!(world.say(&beat("b", 3)), ok("3 -"));
    assert_eq!(world.say(&beat("a", 2)), ok("2 1:0,1,2"));
    assert_eq!(world.timers[&Timer::Revocation("a".into())], world.now.ms + 30_000);
    // Silence is no confirmation, nor is having one of them still.
    assert_eq!(world.say(&beat("a", 2)), ok("2 -"));
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1, 2, 5])])), ok("2 -"));
    assert_eq!(world.say(&beat("b", 3)), ok("3 -"));
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1, 2])])), ok("3 -"));
    assert!(!world.timers.contains_key(&Timer::Revocation("a".into())));
    assert_eq!(world.say(&beat("b", 3)), ok("3 1:3,4,5"));
    assert_eq!(world.state(), "Stable");
}

#[test]
fn who_does_not_give_up_in_time_is_thrown_out() {
    let mut world = two_members();
    world.say(&beat("a", 2)).expect("told to give up");
    world.sleep(20_000);
    world.say(&beat("a", 2)).expect("alive");
    world.say(&beat("b", 3)).expect("alive");
    assert_eq!(world.sleep(10_000), [Timer::Revocation("a".into())]);
    assert_eq!(world.say(&beat("a", 2)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(world.say(&beat("b", 3)), ok("4 1:0,1,2,3,4,5"));
}

#[test]
fn a_new_target_may_come_while_members_are_on_their_way() {
    let mut world = two_members();
    world.say(&beat("a", 2)).expect("told to give up");
    assert_eq!(world.say(&join("c", &["t1"])), ok("4"));
    // Its old orders are carried out first.
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1, 2])])), ok("2 1:0,1"));
    assert_eq!(world.say(&beat("b", 3)), ok("4 1:3,4"));
    assert_eq!(world.say(&beat("c", 4)), ok("4 1:5"));
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1])])), ok("4 -"));
    assert_eq!(world.say(&beat("c", 4)), ok("4 1:2,5"));
    assert_eq!(world.state(), "Stable");
}

#[test]
fn a_target_is_not_computed_more_often_than_allowed() {
    let mut world = World::new();
    world.assignment_interval_ms = 1_000;
    assert_eq!(world.say(&join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
    assert_eq!(world.say(&join("b", &["t1"])), ok("2"));
    assert_eq!(world.state(), "Assigning");
    world.sleep(999);
    assert_eq!(world.say(&beat("b", 2)), ok("2 -"));
    world.sleep(1);
    assert_eq!(world.say(&beat("b", 2)), ok("3 -"));
    assert_eq!(world.say(&beat("a", 2)), ok("2 1:0,1,2"));
}

/// The time of the last target is one of the wall clock, which outlives the broker.
#[test]
fn a_clock_that_is_put_back_keeps_no_target_waiting() {
    let mut world = World::new();
    world.assignment_interval_ms = 1_000;
    assert_eq!(world.say(&join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
    world.now.wall_ms -= 3_600_000;
    assert_eq!(world.say(&join("b", &["t1"])), ok("3"));
    assert_eq!(world.say(&beat("a", 2)), ok("2 1:0,1,2"));
    // From then on it is as rare as ever.
    assert_eq!(world.say(&join("c", &["t1"])), ok("3"));
}

#[test]
fn a_topic_that_is_no_longer_subscribed_to_is_given_up() {
    let mut world = World::new();
    world.say(&join("a", &["t1", "t2"])).expect("joined");
    world.assignment_interval_ms = 60_000;
    // Before any new target.
    let resubscribed = Heartbeat {
        topic_names: Some(vec!["t2".into()]),
        ..owning("a", 2, &[(1, &[0, 1, 2, 3, 4, 5]), (2, &[0, 1, 2])])
    };
    assert_eq!(world.say(&resubscribed), ok("2 2:0,1,2"));
    world.assignment_interval_ms = 0;
    assert_eq!(world.say(&owning("a", 2, &[(2, &[0, 1, 2])])), ok("3 -"));
    assert_eq!(world.state(), "Stable");
}

#[test]
fn a_state_of_a_later_broker_is_left_by_joining_again() {
    let mut world = World::new();
    world.say(&join("a", &["t1"])).expect("joined");
    let strange = CurrentAssignment {
        epoch: 2,
        state: MemberState::Unknown(9),
        ..CurrentAssignment::default()
    };
    let change = ConsumerChange::Current("a".into(), Some(Arc::new(strange)));
    world.take(Plan { changes: vec![change], ..Plan::new(()) });
    assert_eq!(world.say(&beat("a", 2)), Err(ErrorCode::FencedMemberEpoch));
    assert_eq!(world.say(&join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
}

#[test]
fn after_a_load_everyone_has_its_whole_time() {
    let mut world = two_members();
    world.say(&beat("a", 2)).expect("told to give up");
    let timers: BTreeMap<_, _> =
        world.group.timers_after_load(world.now.ms, SESSION_MS).into_iter().collect();
    let at = |after_ms: i64| Alarm::At(world.now.ms + after_ms);
    let expected = [
        (Timer::Session("a".into()), at(45_000)),
        (Timer::Session("b".into()), at(45_000)),
        (Timer::Revocation("a".into()), at(30_000)),
    ];
    assert_eq!(timers, expected.into());
}
