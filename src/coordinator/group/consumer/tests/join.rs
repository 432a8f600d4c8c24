//! Joining, leaving, static members, and what is refused.

use super::*;

#[test]
fn what_no_client_sends_is_refused() {
    let assignors = [Assignor::Uniform, Assignor::Range];
    let check = |request: &Heartbeat, version, message: &str| {
        let refusal = request.check(version, &assignors).expect_err("refused");
        assert_eq!((refusal.code, refusal.message.as_str()), (ErrorCode::InvalidRequest, message));
    };
    check(&join("", &[]), 1, "MemberId can't be empty.");
    assert_eq!(join("", &[]).check(0, &assignors), Ok(()));
    check(&beat(" ", 3), 0, "MemberId can't be empty.");
    check(&beat("", -1), 0, "MemberId can't be empty.");
    check(&Heartbeat { group: "".into(), ..beat("m", 1) }, 1, "GroupId can't be empty.");
    check(&of_instance(" ", beat("m", 1)), 1, "InstanceId can't be empty.");
    let rack = Heartbeat { rack_id: Some("".into()), ..beat("m", 1) };
    check(&rack, 1, "RackId can't be empty.");
    let hasty = Heartbeat { rebalance_timeout_ms: -1, ..join("m", &[]) };
    check(&hasty, 1, "RebalanceTimeoutMs must be provided in first request.");
    let message = "TopicPartitions must be empty when (re-)joining.";
    check(&Heartbeat { owned: None, ..join("m", &[]) }, 1, message);
    check(&Heartbeat { owned: Some(partitions(&[(1, &[0])])), ..join("m", &[]) }, 1, message);
    let message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
                   (re-)joining.";
    check(&Heartbeat { topic_names: None, ..join("m", &[]) }, 1, message);
    check(&beat("m", -2), 1, "InstanceId can't be null.");
    check(&beat("m", -3), 1, "MemberEpoch is invalid.");
    let custom = Heartbeat { assignor: Some("mine".into()), ..join("m", &[]) };
    let refusal = custom.check(1, &assignors).expect_err("refused");
    assert_eq!(refusal.code, ErrorCode::UnsupportedAssignor);
    let message = "ServerAssignor mine is not supported. Supported assignors: uniform, range.";
    assert_eq!(refusal.message, message);
}

#[test]
fn a_member_joins_and_stays() {
    let mut world = World::new();
    let answer = world.send(&join("a", &["t1", "nope"])).expect("joined");
    assert_eq!(answer.heartbeat_interval_ms, 5_000);
    assert_eq!(
        (answer.member_epoch, answer.assignment.as_ref().map(outline)),
        (2, Some("1:0,1,2,3,4,5".to_owned()))
    );
    assert_eq!(world.state(), "Stable");
    assert_eq!(world.timers, [(Timer::Session("a".into()), 46_000)].into());
    // It is heard of: its session goes on, and nothing is written.
    let written = world.log.len();
    assert!(world.sleep(44_999).is_empty());
    assert_eq!(world.say(&beat("a", 2)), ok("2 -"));
    assert_eq!(world.log.len(), written);
    // A full request is answered in full.
    let full = Heartbeat { member_epoch: 2, ..join("a", &["t1", "nope"]) };
    assert_eq!(world.say(&full), ok("2 1:0,1,2,3,4,5"));
    assert_eq!(world.sleep(45_000), [Timer::Session("a".into())]);
    assert_eq!((world.state(), world.group.epoch), ("Empty", 3));
    assert_eq!(world.say(&beat("a", 2)), Err(ErrorCode::UnknownMemberId));
}

#[test]
fn records_are_those_of_a_real_kafka() {
    let mut world = World::new();
    world.catalog = Catalog::default();
    let id = TopicId(*b"e\x05\xe6\xd0\t\xdaM\x16\x9e*\x98\xd3>G\xab\x17");
    world.catalog.topics.insert("t1".into(), TopicFacts { id, partitions: 3 });
    world.send(&join("m1", &["t1", "nope"])).expect("joined");
    let hash = |world: &World| world.group.metadata_hash;
    assert_eq!(hash(&world), 0x44bd_49ba_99e3_be41);
    let kinds: Vec<u8> =
        records_of(&"g".into(), &world.log).iter().map(|record| record.encode().0[1]).collect();
    assert_eq!(kinds, [5, 3, 7, 6, 8]);
    world.send(&join("m2", &["t1"])).expect("joined");
    assert_eq!(hash(&world), 0x44bd_49ba_99e3_be41);
    // Two topics, and after that more partitions.
    let id = TopicId(*b"\xb32\x15\xd8\xf6AG\xc6\x94\xd1\xa5\x106\xa2\x03\x1b");
    world.catalog.topics.insert("t2".into(), TopicFacts { id, partitions: 2 });
    world.catalog.version += 1;
    world.send(&join("m3", &["t1", "t2"])).expect("joined");
    assert_eq!(hash(&world), 0x5188_a050_d298_62b8);
    world.send(&beat("m3", -1)).expect("left");
    world.catalog.topics.get_mut("t1").expect("t1").partitions = 5;
    world.catalog.version += 1;
    world.send(&join("m2", &["t1"])).expect("joined");
    assert_eq!(hash(&world), 0xf58a_e221_e944_eedf_u64.cast_signed());
}

#[test]
fn epochs_from_the_past_and_the_future_are_fenced() {
    let mut world = World::new();
    world.say(&join("a", &["t1"])).expect("joined");
    for epoch in [1, 3, 99] {
        assert_eq!(world.say(&beat("a", epoch)), Err(ErrorCode::FencedMemberEpoch), "{epoch}");
    }
    assert_eq!(world.say(&beat("b", 2)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(world.say(&beat("b", -1)), Err(ErrorCode::UnknownMemberId));
    // A fenced member joins again and has what it had.
    assert_eq!(world.say(&join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
}

#[test]
fn a_lost_answer_does_no_harm() {
    let mut world = World::new();
    world.say(&join("a", &["t1"])).expect("joined");
    assert_eq!(world.say(&join("b", &["t1"])), ok("3"));
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1, 2, 3, 4, 5])])), ok("2 1:0,1,2"));
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1, 2])])), ok("3 -"));
    // It was not told of epoch 3; what it has is what it may have.
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 1, 2])])), ok("3 -"));
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0])])), ok("3 -"));
    let fenced = Err(ErrorCode::FencedMemberEpoch);
    assert_eq!(world.say(&owning("a", 2, &[(1, &[0, 3])])), fenced);
    assert_eq!(world.say(&owning("a", 2, &[(2, &[0])])), fenced);
    assert_eq!(world.say(&beat("a", 2)), fenced);
    assert_eq!(world.say(&owning("a", 1, &[])), fenced);
}

#[test]
fn a_full_group_takes_nobody_new() {
    let mut world = World::new();
    world.members_max = 1;
    world.say(&join("a", &["t1"])).expect("joined");
    assert_eq!(world.say(&join("b", &["t1"])), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(world.say(&join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
}

#[test]
fn who_leaves_makes_room_for_the_others() {
    let mut world = World::new();
    world.say(&join("a", &["t1"])).expect("joined");
    world.say(&join("b", &["t1"])).expect("joined");
    let answer = world.send(&beat("a", -1)).expect("left");
    assert_eq!(
        (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment),
        (-1, 0, None)
    );
    assert_eq!(world.state(), "Assigning");
    assert_eq!(world.timers.keys().cloned().collect::<Vec<_>>(), [Timer::Session("b".into())]);
    assert_eq!(world.say(&beat("b", 3)), ok("4 1:0,1,2,3,4,5"));
    assert_eq!(world.say(&beat("b", -1)), ok("-1 -"));
    // An empty group is deleted without a trace.
    let tombstones = world.group.tombstones();
    world.take(Plan { changes: tombstones, ..Plan::new(()) });
    assert_eq!(world.group, ConsumerGroup::new("g".into()));
}

#[test]
fn a_static_member_keeps_its_place_for_a_while() {
    let mut world = World::new();
    let joins = |id: &str| of_instance("i", join(id, &["t1"]));
    assert_eq!(world.say(&joins("a")), ok("2 1:0,1,2,3,4,5"));
    assert_eq!(world.say(&of_instance("i", beat("b", 2))), Err(ErrorCode::FencedInstanceId));
    assert_eq!(world.say(&of_instance("j", beat("a", 2))), Err(ErrorCode::UnknownMemberId));
    assert_eq!(world.say(&joins("b")), Err(ErrorCode::UnreleasedInstanceId));
    assert_eq!(world.say(&of_instance("i", beat("a", -2))), ok("-2 -"));
    assert_eq!(world.say(&of_instance("i", beat("a", -2))), ok("-2 -"));
    // Who comes back has what it had, and nobody else is troubled.
    let epoch = world.group.epoch;
    assert_eq!(world.say(&joins("b")), ok("2 1:0,1,2,3,4,5"));
    assert_eq!(world.group.epoch, epoch);
    assert_eq!(world.say(&of_instance("i", beat("a", 2))), Err(ErrorCode::FencedInstanceId));
    assert_eq!(world.say(&of_instance("i", beat("b", 2))), ok("2 -"));
    // Who does not come back loses its place when its session ends.
    assert_eq!(world.say(&of_instance("i", beat("b", -2))), ok("-2 -"));
    assert_eq!(world.sleep(45_000), [Timer::Session("b".into())]);
    assert_eq!(world.say(&joins("c")), ok("4 1:0,1,2,3,4,5"));
    assert_eq!(world.say(&of_instance("i", beat("c", -1))), ok("-1 -"));
    assert_eq!(world.state(), "Empty");
}

#[test]
fn a_static_member_whose_join_was_not_answered_is_let_in_again() {
    let mut world = World::new();
    let joins = of_instance("i", join("a", &["t1"]));
    assert_eq!(world.say(&joins), ok("2 1:0,1,2,3,4,5"));
    let written = world.log.len();
    assert_eq!(world.say(&joins), ok("2 1:0,1,2,3,4,5"));
    assert_eq!(world.log.len(), written);
    // It may also have gone for a while before.
    world.say(&of_instance("i", beat("a", -2))).expect("left");
    assert_eq!(world.say(&joins), ok("2 1:0,1,2,3,4,5"));
}

#[test]
fn the_assignor_that_most_members_want_is_used() {
    let mut world = World::new();
    let with = |id: &str, assignor: &str| Heartbeat {
        assignor: Some(assignor.into()),
        ..join(id, &["t1", "t2"])
    };
    world.say(&with("a", "range")).expect("joined");
    assert_eq!(world.group.preferred_assignor(&world.assignors), Assignor::Range);
    world.say(&with("b", "uniform")).expect("joined");
    assert_eq!(world.group.preferred_assignor(&world.assignors), Assignor::Uniform);
    world.say(&with("c", "range")).expect("joined");
    let described = world.group.describe(&world.assignors, &world.catalog);
    assert_eq!(described.assignor, Assignor::Range);
    let targets: Vec<_> = described
        .members
        .iter()
        .map(|member| {
            let topics = member.target.iter().map(|(id, _, of)| (*id, of.clone()));
            outline(&topics.collect())
        })
        .collect();
    assert_eq!(targets, ["1:0,1 2:0", "1:2,3 2:1", "1:4,5 2:2"]);
}
