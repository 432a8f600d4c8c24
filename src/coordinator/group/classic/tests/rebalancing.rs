//! From one generation to the next: delays, timeouts, votes, leaders, restarts.

use super::*;

#[test]
fn the_initial_delay_is_extended_while_members_come() {
    let mut context = Context::new();
    let ids: Vec<String> = (0..4).map(|_| context.new_id()).collect();
    let first = context.join(join(&ids[0]));
    context.pass(2_000);
    let second = context.join(join(&ids[1]));
    context.pass(1_000);
    assert!(context.waits(first), "another came: once more");
    context.pass(2_999);
    assert!(context.waits(first));
    context.pass(1);
    assert_eq!((context.joined(first).members.len(), context.joined(second).generation), (2, 1));

    // At most the rebalance timeout in all.
    let mut context = Context::new();
    let short = |id: &str| Join { rebalance_timeout_ms: 5_000, ..join(id) };
    let ids: Vec<String> = (0..3).map(|_| context.new_id()).collect();
    let first = context.join(short(&ids[0]));
    context.pass(2_000);
    context.join(short(&ids[1]));
    context.pass(2_000);
    context.join(short(&ids[2]));
    context.pass(999);
    assert!(context.waits(first));
    context.pass(1);
    assert_eq!(context.joined(first).members.len(), 3);

    let mut context = Context::new();
    context.rules.initial_delay_ms = 0;
    let id = context.new_id();
    let ticket = context.join(join(&id));
    context.pass(0);
    assert_eq!(context.joined(ticket).generation, 1);
}

#[test]
fn who_does_not_join_in_time_is_dropped() {
    let (mut context, ids) = Context::stable(3);
    let ticket = context.join(Join { protocols: protocols(&[("range", "u")]), ..join(&ids[1]) });
    for _ in 0..2 {
        context.pass(9_000);
        for id in [&ids[0], &ids[2]] {
            assert_eq!(context.heartbeat(id, None, 1), ErrorCode::RebalanceInProgress);
        }
    }
    context.pass(1_999);
    assert!(context.waits(ticket));
    context.pass(1);
    let answer = context.joined(ticket);
    assert_eq!((&*answer.leader, answer.generation, answer.members.len()), (&*ids[1], 2, 1));
    assert_eq!(context.heartbeat(&ids[0], None, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_member_that_does_not_join_stays_until_its_session_ends() {
    let mut context = Context::new();
    let long = |join: Join| Join { session_timeout_ms: 60_000, ..join };
    let first = context.join(long(static_join("", "a")));
    let second = context.join(long(static_join("", "b")));
    context.settle();
    let ids = [context.joined(first).member_id, context.joined(second).member_id];
    let ids = ids.map(|id| id.to_string());
    context.sync_all(&ids, 1);
    // The leader does not come: another leads, and is told of it all the same.
    let ticket = context
        .join(Join { protocols: protocols(&[("range", "u")]), ..long(static_join(&ids[1], "b")) });
    context.pass(i64::from(REBALANCE_MS));
    let answer = context.joined(ticket);
    assert_eq!((&*answer.leader, answer.members.len()), (&*ids[1], 2));
    // It has not synced either: now it goes.
    let ticket = context.sync(&ids[1], 2, &[(&ids[1], "x")]);
    assert_eq!(context.synced(ticket).0, NONE);
    context.pass(i64::from(REBALANCE_MS));
    assert_eq!((context.members(), context.state()), (vec![ids[1].clone()], "PreparingRebalance"));

    // Where no member at all joins, the next generation waits for one.
    let mut context = Context::new();
    let ticket = context.join(long(static_join("", "a")));
    context.pass(3_000);
    let id = context.joined(ticket).member_id.to_string();
    context.sync_all(std::slice::from_ref(&id), 1);
    let other = context.new_id();
    let ticket = context.join(join(&other));
    assert_eq!(context.leave(&[(&other, None)]), [NONE]);
    assert_eq!(context.refused(ticket).0, ErrorCode::UnknownMemberId);
    context.pass(2 * i64::from(REBALANCE_MS));
    assert_eq!(context.state(), "PreparingRebalance");
    let ticket = context.join(static_join(&id, "a"));
    assert_eq!(context.joined(ticket).generation, 2);
}

#[test]
fn members_that_do_not_sync_are_removed() {
    let (mut context, ids) = Context::stable(2);
    let first = context.join(join(&ids[0]));
    let second = context.join(join(&ids[1]));
    assert_eq!((context.joined(first).generation, context.joined(second).generation), (2, 2));
    let waiting = context.sync(&ids[1], 2, &[]);
    for _ in 0..2 {
        context.pass(9_000);
        assert_eq!(context.heartbeat(&ids[0], None, 2), NONE);
    }
    assert!(context.waits(waiting), "a member that waits does not expire");
    context.pass(2_000);
    assert_eq!(context.synced(waiting).0, ErrorCode::RebalanceInProgress);
    assert_eq!((context.members(), context.state()), (vec![ids[1].clone()], "PreparingRebalance"));
    let ticket = context.join(join(&ids[1]));
    assert_eq!(&*context.joined(ticket).leader, &*ids[1]);
}

#[test]
fn syncs_are_refused_with_kafkas_codes() {
    let (mut context, ids) = Context::stable(2);
    let sync = |id: &str, generation, protocol_type: Option<&str>, protocol: Option<&str>| Sync {
        group: "g".into(),
        member_id: id.into(),
        instance_id: None,
        generation,
        protocol_type: protocol_type.map(Into::into),
        protocol: protocol.map(Into::into),
        assignments: Vec::new(),
    };
    let mut check = |asked: Sync, code| {
        let ticket = context.sync_with(asked);
        assert_eq!(context.synced(ticket).0, code);
    };
    check(Sync { group: "x".into(), ..sync(&ids[0], 1, None, None) }, ErrorCode::UnknownMemberId);
    check(sync("nobody", 1, None, None), ErrorCode::UnknownMemberId);
    check(sync(&ids[0], 0, None, None), ErrorCode::IllegalGeneration);
    let inconsistent = ErrorCode::InconsistentGroupProtocol;
    check(sync(&ids[0], 1, Some("connect"), None), inconsistent);
    check(sync(&ids[0], 1, Some("consumer"), Some("sticky")), inconsistent);
    check(sync(&ids[1], 1, Some("consumer"), Some("range")), NONE);
    context.join(join(&ids[0]));
    let mut check = |asked: Sync, code| {
        let ticket = context.sync_with(asked);
        assert_eq!(context.synced(ticket).0, code);
    };
    check(sync(&ids[1], 1, None, None), ErrorCode::RebalanceInProgress);
    context.leave(&[(&ids[0], None), (&ids[1], None)]);
    let ticket = context.sync(&ids[0], 1, &[]);
    assert_eq!(context.synced(ticket).0, ErrorCode::UnknownMemberId);
}

#[test]
fn a_member_left_out_is_assigned_nothing() {
    let (mut context, ids) = Context::stable(2);
    let tickets: Vec<Ticket> = ids.iter().map(|id| context.join(join(id))).collect();
    assert!(tickets.into_iter().all(|ticket| context.joined(ticket).generation == 2));
    let follower = context.sync(&ids[1], 2, &[]);
    assert!(context.waits(follower));
    let leader = context.sync(&ids[0], 2, &[(&ids[0], "x"), ("stranger", "y")]);
    assert_eq!(context.synced(leader), (NONE, "x".to_owned()));
    assert_eq!(context.synced(follower), (NONE, String::new()));
    assert_eq!(context.last_metadata().members.len(), 2);
}

#[test]
fn who_joins_again_gets_the_generation_there_is() {
    let (mut context, ids) = Context::stable(2);
    // A follower with the same metadata.
    let ticket = context.join(join(&ids[1]));
    let answer = context.joined(ticket);
    assert_eq!((answer.generation, answer.members.len()), (1, 0));
    assert_eq!(context.state(), "Stable");
    // The leader makes a rebalance.
    let ticket = context.join(join(&ids[0]));
    assert_eq!(context.state(), "PreparingRebalance");
    let again = context.join(join(&ids[0]));
    assert_eq!(context.refused(ticket).0, ErrorCode::RebalanceInProgress);
    let other = context.join(join(&ids[1]));
    assert_eq!(context.joined(again).members.len(), 2);
    assert_eq!(context.joined(other).generation, 2);
    // Both may ask again before they sync; the leader gets the members again.
    let ticket = context.join(join(&ids[0]));
    assert_eq!(context.joined(ticket).members.len(), 2);
    let ticket = context.join(join(&ids[1]));
    assert_eq!(context.joined(ticket).generation, 2);
    // Other metadata begins it anew, and lets those that sync go.
    let waiting = context.sync(&ids[0], 1, &[]);
    assert_eq!(context.synced(waiting).0, ErrorCode::IllegalGeneration);
    let waiting = context.sync(&ids[1], 2, &[]);
    let twice = context.sync(&ids[1], 2, &[]);
    assert_eq!(context.synced(waiting).0, ErrorCode::RebalanceInProgress);
    let changed = Join { protocols: protocols(&[("range", "other")]), ..join(&ids[0]) };
    context.join(changed);
    assert_eq!(context.synced(twice).0, ErrorCode::RebalanceInProgress);
}

#[test]
fn the_protocol_with_most_votes_among_the_common_ones_wins() {
    let mut context = Context::new();
    let lists: [&[(&str, &str)]; 3] = [
        &[("a", "t"), ("b", "t"), ("c", "t")],
        &[("x", "t"), ("c", "t"), ("b", "t")],
        &[("c", "t"), ("b", "t"), ("a", "t")],
    ];
    let mut tickets = Vec::new();
    let ids: Vec<String> = lists.iter().map(|_| context.new_id()).collect();
    for (list, id) in lists.into_iter().zip(ids) {
        tickets.push(context.join(Join { protocols: protocols(list), ..join(&id) }));
    }
    context.settle();
    for ticket in tickets {
        assert_eq!(context.joined(ticket).protocol.as_deref(), Some("c"));
    }
}

#[test]
fn a_new_member_that_waits_too_long_is_let_go() {
    let mut context = Context::new();
    let forever =
        |id: &str| Join { rebalance_timeout_ms: i32::MAX, session_timeout_ms: 60_000, ..join(id) };
    let id = context.new_id();
    let ticket = context.join(forever(&id));
    context.pass(3_000);
    assert_eq!(context.joined(ticket).generation, 1);
    context.sync_all(std::slice::from_ref(&id), 1);
    let new = context.new_id();
    let ticket = context.join(forever(&new));
    for _ in 0..10 {
        context.pass(29_999);
        assert_eq!(context.heartbeat(&id, None, 1), ErrorCode::RebalanceInProgress);
    }
    assert!(context.waits(ticket));
    context.pass(10);
    assert_eq!(context.refused(ticket).0, ErrorCode::UnknownMemberId);
    assert_eq!(context.members(), [id]);
}

#[test]
fn a_restart_finds_the_last_generation_written() {
    let (mut context, ids) = Context::stable(2);
    let described = context.groups.describe("g");
    context.join(join(&ids[0]));
    assert_eq!(context.state(), "PreparingRebalance");
    context.restart();
    assert_eq!(context.groups.describe("g"), described);
    // Only the selected protocol is known of members that were read; it is enough to join again.
    let ticket = context.sync(&ids[1], 1, &[]);
    assert_eq!(context.synced(ticket), (NONE, ids[1].clone()));
    context.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(context.members(), ids);
    assert_eq!(context.heartbeat(&ids[0], None, 1), NONE);
    context.pass(1);
    assert_eq!(context.members(), ids[..1], "its session began with the restart");
    context.leave(&[(&ids[0], None)]);
    context.restart();
    assert_eq!((context.state(), context.timers.len()), ("Empty", 0));
}

#[test]
fn metadata_is_the_clients_own() {
    let mut context = Context::new();
    let odd = |id: &str| Join {
        protocol_type: "connect".into(),
        protocols: vec![Protocol { name: "range".into(), metadata: Bytes::from_static(b"\xff\0") }],
        ..join(id)
    };
    let id = context.new_id();
    let ticket = context.join(odd(&id));
    context.pass(3_000);
    assert_eq!(&context.joined(ticket).members[0].metadata[..], b"\xff\0");
    context.sync_all(std::slice::from_ref(&id), 1);
    let described = context.groups.describe("g").expect("a group");
    assert_eq!((&*described.protocol_type, &*described.protocol), ("connect", "range"));
    assert_eq!(&described.members[0].metadata[..], b"\xff\0");
    context.restart();
    assert_eq!(context.groups.describe("g"), Ok(described));
}
