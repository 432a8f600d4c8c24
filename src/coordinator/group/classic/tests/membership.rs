//! Who may join, static members, heartbeats, leaving, sessions.

use super::*;

#[test]
fn a_member_gets_an_id_and_joins_with_it() {
    let mut context = Context::new();
    let id = context.new_id();
    assert_eq!(id, "c-1");
    let empty = context.last_metadata();
    assert_eq!((&*empty.protocol_type, empty.generation, empty.members.len()), ("", 0, 0));
    assert_eq!((empty.since_ms, context.state()), (Some(1_001_000), "Empty"));
    let ticket = context.join(join(&id));
    assert!(context.waits(ticket));
    assert_eq!(context.state(), "PreparingRebalance");
    context.pass(2_999);
    assert!(context.waits(ticket), "the initial delay is not over");
    context.pass(1);
    let answer = context.joined(ticket);
    assert_eq!((answer.error, answer.generation, &*answer.leader), (NONE, 1, "c-1"));
    assert_eq!(answer.protocol_type.as_deref(), Some("consumer"));
    assert_eq!((answer.protocol.as_deref(), answer.skip_assignment), (Some("range"), false));
    assert_eq!(answer.members.len(), 1);
    assert_eq!(answer.members[0].metadata, subscription_to("t"));
    assert_eq!((context.state(), context.log.len()), ("CompletingRebalance", 1));
    let ticket = context.sync(&id, 1, &[(&id, "all")]);
    assert_eq!(context.synced(ticket), (NONE, "all".to_owned()));
    assert_eq!((context.state(), context.log.len()), ("Stable", 2));
    let written = context.last_metadata().clone();
    assert_eq!((written.generation, written.leader.as_deref()), (1, Some("c-1")));
    let member = &written.members[0];
    assert_eq!((&*member.client_id, &*member.client_host), ("c", "/h"));
    assert_eq!(
        (member.rebalance_timeout_ms, member.session_timeout_ms),
        (REBALANCE_MS, SESSION_MS)
    );
    assert_eq!(member.subscription, subscription_to("t"));
    assert_eq!(&member.assignment[..], b"all");
}

#[test]
fn older_versions_join_without_an_id() {
    let mut context = Context::new();
    let ticket = context.join(Join { version: 3, ..join("") });
    context.pass(3_000);
    let answer = context.joined(ticket);
    assert_eq!((answer.error, &*answer.member_id), (NONE, "c-1"));
}

#[test]
fn joins_are_refused_with_kafkas_codes() {
    let mut context = Context::new();
    let mut check = |join: Join, code, id: &str| {
        let ticket = context.join(join);
        assert_eq!(context.refused(ticket), (code, id.to_owned()));
    };
    let session = ErrorCode::InvalidSessionTimeout;
    check(Join { session_timeout_ms: 999, ..join("x") }, session, "x");
    check(Join { session_timeout_ms: 60_001, ..join("") }, session, "");
    check(join("x"), ErrorCode::UnknownMemberId, "x");
    let inconsistent = ErrorCode::InconsistentGroupProtocol;
    check(Join { protocol_type: "".into(), ..join("") }, inconsistent, "");
    check(Join { protocols: Vec::new(), ..join("") }, inconsistent, "");
    let long: Arc<str> = "x".repeat(32_767).into();
    check(Join { client_id: long, ..join("") }, ErrorCode::UnknownServerError, "");
    check(join("x"), ErrorCode::UnknownMemberId, "x");

    let (mut context, ids) = Context::stable(2);
    let mut check = |join: Join, code, id: &str| {
        let ticket = context.join(join);
        assert_eq!(context.refused(ticket), (code, id.to_owned()));
    };
    check(Join { protocol_type: "connect".into(), ..join("") }, inconsistent, "");
    check(Join { protocols: protocols(&[("sticky", "t")]), ..join("") }, inconsistent, "");
    check(Join { protocol_type: "connect".into(), ..join(&ids[0]) }, inconsistent, &ids[0]);
    check(join("nobody"), ErrorCode::UnknownMemberId, "nobody");
    check(static_join("nobody", "i"), ErrorCode::UnknownMemberId, "nobody");
    assert_eq!(context.state(), "Stable");
    let pending = context.new_id();
    let ticket = context.join(static_join(&pending, "i"));
    assert_eq!(context.refused(ticket).0, ErrorCode::UnknownServerError);
}

#[test]
fn a_full_group_refuses_more() {
    let (mut context, mut ids) = Context::stable(4);
    let ticket = context.join(Join { version: 3, ..join("") });
    assert_eq!(context.refused(ticket), (ErrorCode::GroupMaxSizeReached, String::new()));
    let ticket = context.join(join(&ids[1]));
    assert_eq!(context.joined(ticket).error, NONE, "a member is no other");
    // While members join, only those count that have: the last are refused and no longer members.
    context.rules.members_max = 3;
    let tickets: Vec<Ticket> = ids.iter().map(|id| context.join(join(id))).collect();
    assert_eq!(context.refused(tickets[3]).0, ErrorCode::GroupMaxSizeReached);
    let last = ids.remove(3);
    assert_eq!(context.members(), ids);
    context.pass(i64::from(REBALANCE_MS));
    assert_eq!(context.joined(tickets[0]).generation, 2);
    assert_eq!(context.heartbeat(&last, None, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn heartbeats_keep_a_session_and_tell_of_rebalances() {
    let (mut context, ids) = Context::stable(2);
    let (a, b) = (ids[0].as_str(), ids[1].as_str());
    assert_eq!(context.heartbeat("nobody", None, 1), ErrorCode::UnknownMemberId);
    assert_eq!(context.heartbeat(a, Some("i"), 1), ErrorCode::UnknownMemberId);
    assert_eq!(context.heartbeat(a, None, 0), ErrorCode::IllegalGeneration);
    assert_eq!(context.heartbeat(a, None, 2), ErrorCode::IllegalGeneration);
    let timers = context.timers.clone();
    for _ in 0..5 {
        context.pass(i64::from(SESSION_MS) - 1_000);
        assert_eq!(context.heartbeat(a, None, 1), NONE);
        assert_eq!(context.heartbeat(b, None, 1), NONE);
    }
    assert_eq!(context.members(), ids);
    assert_eq!(context.timers.len(), timers.len());
    // One falls silent.
    context.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(context.heartbeat(a, None, 1), NONE);
    context.pass(1);
    assert_eq!((context.members(), context.state()), (vec![a.to_owned()], "PreparingRebalance"));
    assert_eq!(context.heartbeat(a, None, 1), ErrorCode::RebalanceInProgress);
    assert_eq!(context.heartbeat(b, None, 1), ErrorCode::UnknownMemberId);
    // Its session goes on by heartbeats while it does not join.
    context.pass(9_000);
    assert_eq!(context.heartbeat(a, None, 1), ErrorCode::RebalanceInProgress);
    context.pass(9_000);
    assert_eq!(context.members(), [a]);
    // Nobody joins: nothing is left.
    context.pass(3_000);
    assert_eq!((context.state(), context.last_metadata().generation), ("Empty", 2));
    assert_eq!(context.heartbeat(a, None, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_sync_that_tells_of_a_rebalance_prolongs_the_session() {
    let (mut context, ids) = Context::stable(2);
    let (a, b) = (ids[0].as_str(), ids[1].as_str());
    let joins = context.join(join(a));
    context.pass(i64::from(SESSION_MS) - 1);
    let refused = context.sync(b, 1, &[]);
    assert_eq!(context.synced(refused).0, ErrorCode::RebalanceInProgress);
    context.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(context.members(), ids);
    assert!(context.waits(joins), "it waits for the one that was told to join");
    context.pass(1);
    assert_eq!((context.members(), context.joined(joins).generation), (vec![a.to_owned()], 2));
}

/// Who asks late what it has is there, and has the time of a session from then on.
#[test]
fn a_sync_in_a_stable_group_prolongs_the_session() {
    let (mut context, ids) = Context::stable(2);
    let (a, b) = (ids[0].as_str(), ids[1].as_str());
    context.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(context.heartbeat(a, None, 1), NONE);
    let late = context.sync(b, 1, &[]);
    assert_eq!(context.synced(late), (NONE, b.to_owned()));
    context.pass(i64::from(SESSION_MS) - 1);
    assert_eq!((context.members(), context.state()), (ids.clone(), "Stable"));
    context.pass(1);
    assert_eq!((context.members(), context.state()), (vec![], "Empty"));
}

#[test]
fn an_id_that_is_not_used_is_forgotten() {
    let mut context = Context::new();
    let id = context.new_id();
    context.pass(i64::from(SESSION_MS));
    assert_eq!(context.timers.len(), 0);
    let ticket = context.join(join(&id));
    assert_eq!(context.refused(ticket).0, ErrorCode::UnknownMemberId);
}

#[test]
fn a_rebalance_waits_for_ids_that_were_given_out() {
    let (mut context, ids) = Context::stable(1);
    let new = context.new_id();
    assert_eq!(context.state(), "Stable");
    let ticket = context.join(join(&ids[0]));
    assert!(context.waits(ticket), "somebody is about to join");
    context.pass(4_000);
    let second = context.join(join(&new));
    assert_eq!(context.joined(ticket).generation, 2);
    assert_eq!(&*context.joined(second).leader, &*ids[0]);
}

#[test]
fn members_leave_by_either_id() {
    let (mut context, ids) = Context::stable(2);
    assert_eq!(context.leave(&[("nobody", None)]), [ErrorCode::UnknownMemberId]);
    assert_eq!(context.leave(&[("", None)]), [ErrorCode::UnknownMemberId]);
    assert_eq!(context.leave(&[("", Some("i"))]), [ErrorCode::UnknownMemberId]);
    assert_eq!(context.leave(&[(&ids[0], Some("i"))]), [ErrorCode::UnknownMemberId]);
    assert_eq!(context.state(), "Stable");
    let pending = context.new_id();
    assert_eq!(context.leave(&[(&pending, None)]), [NONE]);
    assert_eq!(context.state(), "PreparingRebalance", "as in Kafka, somebody has left");
    assert_eq!(context.leave(&[(&ids[1], None), ("x", None)]), [NONE, ErrorCode::UnknownMemberId]);
    assert_eq!(context.members(), ids[..1]);
    assert_eq!(context.leave(&[(&ids[0], None)]), [NONE]);
    assert_eq!((context.state(), context.timers.len()), ("Empty", 0));
    let last = context.last_metadata();
    assert_eq!((last.generation, last.members.len(), last.protocol.as_deref()), (2, 0, None));
    assert_eq!(&*last.protocol_type, "consumer");
    assert_eq!(last.since_ms, Some(context.now().wall_ms));
    assert_eq!(context.leave(&[(&ids[0], None)]), [ErrorCode::UnknownMemberId]);
    let mut unknown = Context::new();
    assert_eq!(unknown.leave(&[("a", None), ("b", None)]), [ErrorCode::UnknownMemberId; 2]);
}

#[test]
fn a_member_that_waits_and_is_removed_is_told_so() {
    let (mut context, ids) = Context::stable(2);
    let ticket = context.join(join(&ids[0]));
    assert_eq!(context.leave(&[(&ids[0], None)]), [NONE]);
    assert_eq!(context.refused(ticket), (ErrorCode::UnknownMemberId, String::new()));
    let ticket = context.join(join(&ids[1]));
    assert_eq!(context.joined(ticket).generation, 2);
    let other = context.new_id();
    let first = context.join(join(&other));
    let second = context.join(join(&ids[1]));
    assert_eq!((context.joined(first).generation, context.joined(second).generation), (3, 3));
    let waiting = context.sync(&other, 3, &[]);
    assert_eq!(context.leave(&[(&other, None)]), [NONE]);
    assert_eq!(context.synced(waiting).0, ErrorCode::UnknownMemberId);
}

/// A stable group of one static member `i` and one dynamic one, which leads.
fn with_static() -> (Context, String, String) {
    let mut context = Context::new();
    let dynamic = context.new_id();
    let first = context.join(join(&dynamic));
    let second = context.join(static_join("", "i"));
    context.settle();
    let id = context.joined(second).member_id.to_string();
    assert_eq!((id.as_str(), context.joined(first).leader.to_string()), ("i-3", dynamic.clone()));
    context.sync_all(&[dynamic.clone(), id.clone()], 1);
    (context, dynamic, id)
}

#[test]
fn a_static_member_is_replaced_without_a_rebalance() {
    let (mut context, dynamic, old) = with_static();
    let records = context.log.len();
    let ticket = context.join(static_join("", "i"));
    let answer = context.joined(ticket);
    let new = answer.member_id.to_string();
    assert_eq!((answer.error, answer.generation, &*answer.leader), (NONE, 1, &*dynamic));
    assert_eq!((answer.members.len(), answer.skip_assignment), (0, false));
    assert_ne!(new, old);
    assert_eq!((context.state(), context.log.len()), ("Stable", records + 1));
    let ids: Vec<_> = context.last_metadata().members.iter().map(|m| m.id.to_string()).collect();
    assert_eq!(ids, [dynamic.clone(), new.clone()]);
    // It is assigned what the one before was.
    let ticket = context.sync(&new, 1, &[]);
    assert_eq!(context.synced(ticket), (NONE, old.clone()));
    let fenced = ErrorCode::FencedInstanceId;
    assert_eq!(context.heartbeat(&old, Some("i"), 1), fenced);
    assert_eq!(context.heartbeat(&old, None, 1), ErrorCode::UnknownMemberId);
    assert_eq!(context.heartbeat(&new, Some("i"), 1), NONE);
    assert_eq!(context.leave(&[(&old, Some("i"))]), [fenced]);
    let ticket = context.join(static_join(&old, "i"));
    assert_eq!(context.refused(ticket), (fenced, old.clone()));
    let sync = Sync {
        group: "g".into(),
        member_id: old.as_str().into(),
        instance_id: Some("i".into()),
        generation: 1,
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    };
    let ticket = context.sync_with(sync);
    assert_eq!(context.synced(ticket).0, fenced);
    assert_eq!(context.leave(&[("", Some("i"))]), [NONE]);
    assert_eq!(context.members(), [dynamic]);
}

#[test]
fn a_static_leader_that_comes_back_keeps_the_assignment() {
    for (version, leader, members) in [(9, "i-2", 1), (8, "i-1", 0)] {
        let mut context = Context::new();
        let ticket = context.join(static_join("", "i"));
        context.pass(3_000);
        assert_eq!(context.joined(ticket).generation, 1);
        context.sync_all(&["i-1".to_owned()], 1);
        context.next = 1;
        let ticket = context.join(Join { version, ..static_join("", "i") });
        let answer = context.joined(ticket);
        assert_eq!((&*answer.leader, answer.members.len()), (leader, members), "v{version}");
        assert_eq!((&*answer.member_id, answer.skip_assignment), ("i-2", version == 9));
        assert_eq!(context.state(), "Stable");
    }
}

#[test]
fn a_static_member_that_changes_the_protocol_makes_a_rebalance() {
    let mut context = Context::new();
    let both = [("range", "t"), ("sticky", "t")];
    let ticket = context.join(Join { protocols: protocols(&both), ..static_join("", "i") });
    context.pass(3_000);
    assert_eq!(context.joined(ticket).protocol.as_deref(), Some("range"));
    context.sync_all(&["i-1".to_owned()], 1);
    let other = [("sticky", "t"), ("range", "t")];
    let ticket = context.join(Join { protocols: protocols(&other), ..static_join("", "i") });
    let answer = context.joined(ticket);
    assert_eq!((answer.generation, answer.protocol.as_deref()), (2, Some("sticky")));
    // In the phase after, a replacement begins it anew: the leader knows the old member id.
    assert_eq!(context.state(), "CompletingRebalance");
    let waiting = context.sync_with(Sync {
        group: "g".into(),
        member_id: answer.member_id,
        instance_id: None,
        generation: 1,
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    });
    assert_eq!(context.synced(waiting).0, ErrorCode::IllegalGeneration);
    let ticket = context.join(Join { protocols: protocols(&both), ..static_join("", "i") });
    assert_eq!(context.joined(ticket).generation, 3);
}

#[test]
fn a_replaced_member_that_waits_is_fenced() {
    let (mut context, dynamic, old) = with_static();
    let ticket = context.join(join(&dynamic));
    let waiting = context.join(static_join(&old, "i"));
    assert_eq!(context.joined(ticket).generation, 2);
    assert_eq!(context.joined(waiting).generation, 2);
    let waiting = context.sync(&old, 2, &[]);
    let ticket = context.join(static_join("", "i"));
    assert_eq!(context.synced(waiting).0, ErrorCode::FencedInstanceId);
    assert!(context.waits(ticket));
    assert_eq!(context.state(), "PreparingRebalance");
    let second = context.join(static_join("", "i"));
    assert_eq!(context.refused(ticket).0, ErrorCode::FencedInstanceId);
    let third = context.join(join(&dynamic));
    assert_eq!((context.joined(second).generation, context.joined(third).generation), (3, 3));
}

#[test]
fn what_cannot_be_written_is_taken_back() {
    let (mut context, _, old) = with_static();
    context.fail = true;
    let ticket = context.join(static_join("", "i"));
    assert_eq!(context.refused(ticket).0, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(context.heartbeat(&old, Some("i"), 1), NONE);
    context.fail = false;
    context.restart();
    assert_eq!(context.heartbeat(&old, Some("i"), 1), NONE);

    let (mut context, ids) = Context::stable(2);
    let first = context.join(join(&ids[0]));
    let second = context.join(join(&ids[1]));
    assert_eq!((context.joined(first).generation, context.joined(second).generation), (2, 2));
    let follower = context.sync(&ids[1], 2, &[]);
    context.fail = true;
    let leader = context.sync(&ids[0], 2, &[]);
    assert_eq!(context.synced(leader).0, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(context.synced(follower).0, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(context.state(), "PreparingRebalance");
}
