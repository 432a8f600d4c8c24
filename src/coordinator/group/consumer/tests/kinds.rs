//! A consumer group among groups of other kinds.

use super::*;
use crate::coordinator::group::Groups;
use crate::coordinator::group::classic::Protocol;
use crate::coordinator::group::classic::join::Join;
use crate::coordinator::group::outcome::{Answer, Ticket, TimerKey};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::{CommitApi, Committer};
use crate::ids::Offset;

/// Groups, and the same groups as the log has them.
#[derive(Default)]
struct Kept {
    groups: Groups,
    replayed: Groups,
    next: i64,
}

impl Kept {
    fn append(&mut self, records: Vec<GroupRecord>) {
        for record in records {
            let (key, value) = record.encode();
            let read = GroupRecord::decode(&key, value.as_deref()).expect("what was written");
            assert_eq!(read, record);
            self.groups.apply(Offset(self.next), None, record);
            self.replayed.apply(Offset(self.next), None, read);
            self.next += 1;
        }
        assert_eq!(self.groups, self.replayed, "replayed they are others");
    }

    fn heartbeat(&mut self, world: &World, request: &Heartbeat) -> Result<String, ErrorCode> {
        let planned = self.groups.consumer_heartbeat(request, &world.rules());
        self.append(planned.records);
        let answer = planned.answer.map_err(|refusal| refusal.code)?;
        let assignment = answer.assignment.map_or("-".to_owned(), |all| outline(&all));
        Ok(format!("{} {assignment}", answer.member_epoch))
    }

    fn join(&mut self, world: &World) -> ErrorCode {
        let rules = crate::coordinator::group::classic::Rules {
            session_ms_min: 1,
            session_ms_max: 100_000,
            initial_delay_ms: 0,
            members_max: 10,
        };
        let protocol = Protocol { name: "range".into(), metadata: bytes::Bytes::new() };
        let join = Join {
            group: "g".into(),
            member_id: "".into(),
            instance_id: None,
            client_id: "c".into(),
            client_host: "/1.2.3.4".into(),
            rebalance_timeout_ms: 1_000,
            session_timeout_ms: 10_000,
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            version: 5,
            unique: "u".into(),
        };
        let outcome = self.groups.join(join, Ticket(1), &rules, &world.rules());
        self.append(outcome.records);
        match &outcome.answers[..] {
            [(_, Answer::Join(answer))] => answer.error,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn groups_without_members_become_of_the_kind_that_is_asked_for() {
    let world = World::new();
    let mut kept = Kept::default();
    let offset = |by: Committer| crate::coordinator::group::offsets::Commit {
        group: "g".into(),
        by,
        api: CommitApi::Plain(9),
        retention_ms: None,
        offsets: Vec::new(),
    };
    let rules =
        crate::coordinator::group::offsets::CommitRules { metadata_units_max: 10, now_ms: 1 };
    let nobody = || Committer { member_id: String::new(), instance_id: None, generation: -1 };
    // Nobody knows it.
    assert_eq!(kept.heartbeat(&world, &beat("a", 2)), Err(ErrorCode::GroupIdNotFound));
    assert_eq!(kept.heartbeat(&world, &beat("a", -1)), Err(ErrorCode::GroupIdNotFound));
    assert_eq!(kept.heartbeat(&world, &join("a", &["t1"])), ok("2 1:0,1,2,3,4,5"));
    let commit = kept.groups.plan_commit(&offset(nobody()), &rules);
    assert_eq!(commit, Err(ErrorCode::UnknownMemberId));
    assert_eq!(kept.heartbeat(&world, &beat("a", -1)), ok("-1 -"));
    assert!(kept.groups.plan_commit(&offset(nobody()), &rules).is_ok());
    // It has none: now it is a classic one, in which somebody is joining.
    assert_eq!(kept.join(&world), ErrorCode::MemberIdRequired);
    assert_eq!(kept.heartbeat(&world, &beat("a", 2)), Err(ErrorCode::GroupIdNotFound));
}

#[test]
fn a_timer_that_comes_too_early_is_set_again() {
    let mut world = World::new();
    let mut kept = Kept::default();
    kept.heartbeat(&world, &join("a", &["t1"])).expect("joined");
    kept.heartbeat(&world, &beat("a", 2)).expect("stays");
    world.now.ms += 10_000;
    let planned = kept.groups.consumer_heartbeat(&beat("a", 2), &world.rules());
    assert_eq!((planned.records, planned.timers), (vec![], vec![]), "nothing to set");
    let session = Timer::Session("a".into());
    world.now.ms += 35_000;
    let planned = kept.groups.consumer_timer(&"g".into(), &session, &world.rules());
    assert!(planned.records.is_empty());
    let due_ms = world.now.ms + 10_000;
    assert_eq!(planned.timers, [(TimerKey::Consumer(session.clone()), Some(due_ms))]);
    world.now.ms = due_ms;
    let planned = kept.groups.consumer_timer(&"g".into(), &session, &world.rules());
    kept.append(planned.records);
    assert_eq!(kept.heartbeat(&world, &beat("a", 2)), Err(ErrorCode::UnknownMemberId));
}
