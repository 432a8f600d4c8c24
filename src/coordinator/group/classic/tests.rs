//! The classic protocol, scripted with virtual time: request to answers, records and timers.
//!
//! The context does what the shell does: it applies records at once, keeps timers and lets them
//! come when time is moved on. After every step the groups must equal those that the records alone
//! make.

use std::collections::BTreeMap;

use super::join::Join;
use super::members::{Heartbeat, Leave, Sync};
use super::*;
use crate::coordinator::group::outcome::{Answer, JoinAnswer, Outcome, SyncAnswer};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::{Groups, consumer};
use crate::ids::{Offset, TopicId};

mod membership;
mod model;
mod offsets;
mod rebalancing;

const NONE: ErrorCode = ErrorCode::None;
const RULES: Rules = Rules {
    session_ms_min: 1_000,
    session_ms_max: 60_000,
    initial_delay_ms: 3_000,
    members_max: 4,
};
const SESSION_MS: i32 = 10_000;
const REBALANCE_MS: i32 = 20_000;

/// Groups, the log they are kept in, their timers, and the answers given so far.
struct Context {
    groups: Groups,
    rules: Rules,
    now_ms: i64,
    log: Vec<GroupRecord>,
    timers: BTreeMap<(Arc<str>, TimerKey), i64>,
    answers: BTreeMap<Ticket, Answer>,
    next: u64,
    fail: bool,
}

/// What would count if a group were one of consumers.
fn without_topics(now: Now) -> consumer::Rules<'static> {
    consumer::Rules {
        now,
        session_timeout_ms: SESSION_MS,
        heartbeat_interval_ms: 5_000,
        assignment_interval_ms: 0,
        members_max: usize::MAX,
        classic_members_max: usize::MAX,
        assignors: &[],
        regex_refresh_ms: i64::MAX,
        policy: consumer::MigrationPolicy::Disabled,
        topics: &NoTopics,
    }
}

struct NoTopics;

impl consumer::Topics for NoTopics {
    fn by_name(&self, _: &str) -> Option<consumer::TopicFacts> {
        None
    }

    fn name_of(&self, _: TopicId) -> Option<Arc<str>> {
        None
    }

    fn names(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn version(&self) -> i64 {
        0
    }
}

/// A join that differs from the usual in some field.
fn join(member_id: &str) -> Join {
    Join {
        group: "g".into(),
        member_id: member_id.into(),
        instance_id: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        rebalance_timeout_ms: REBALANCE_MS,
        session_timeout_ms: SESSION_MS,
        protocol_type: "consumer".into(),
        protocols: protocols(&[("range", "t")]),
        version: 9,
        unique: "".into(),
    }
}

fn static_join(member_id: &str, instance_id: &str) -> Join {
    Join { instance_id: Some(instance_id.into()), ..join(member_id) }
}

/// Protocols with a subscription each.
fn protocols(list: &[(&str, &str)]) -> Vec<Protocol> {
    let each = list
        .iter()
        .map(|&(name, topic)| Protocol { name: name.into(), metadata: subscription_to(topic) });
    each.collect()
}

fn subscription_to(topic: &str) -> Bytes {
    let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, topic.len() as u8];
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.into()
}

impl Context {
    fn new() -> Context {
        Context {
            groups: Groups::default(),
            rules: RULES,
            now_ms: 1_000,
            log: Vec::new(),
            timers: BTreeMap::new(),
            answers: BTreeMap::new(),
            next: 0,
            fail: false,
        }
    }

    fn now(&self) -> Now {
        Now { ms: self.now_ms, wall_ms: 1_000_000 + self.now_ms }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    fn carry_out(&mut self, group: &str, outcome: Outcome) {
        self.set_timers(group, outcome.timers);
        if self.fail && !outcome.records.is_empty() {
            for (ticket, answer) in outcome.answers {
                let answer = answer.not_written(ErrorCode::CoordinatorNotAvailable);
                self.give(ticket, answer);
            }
            let (rules, now) = (self.rules, self.now());
            let code = ErrorCode::CoordinatorNotAvailable;
            let taken_back = self.groups.not_written(&group.into(), code, &rules, now);
            assert_eq!(taken_back.records, []);
            self.set_timers(group, taken_back.timers);
            for (ticket, answer) in taken_back.answers {
                self.give(ticket, answer);
            }
        } else {
            self.append(outcome.records);
            for (ticket, answer) in outcome.answers {
                self.give(ticket, answer);
            }
        }
        assert_eq!(self.groups, self.replayed(), "what the log says is what there is");
    }

    fn append(&mut self, records: Vec<GroupRecord>) {
        for record in records {
            self.groups.apply(Offset(self.log.len() as i64), None, record.clone());
            self.log.push(record);
        }
    }

    fn replayed(&self) -> Groups {
        let mut groups = Groups::default();
        for (at, record) in self.log.iter().enumerate() {
            groups.apply(Offset(at as i64), None, record.clone());
        }
        groups
    }

    fn set_timers(&mut self, group: &str, timers: Timers) {
        for (key, due_ms) in timers {
            match due_ms {
                Some(due_ms) => self.timers.insert((group.into(), key), due_ms),
                None => self.timers.remove(&(group.into(), key)),
            };
        }
    }

    fn give(&mut self, ticket: Ticket, answer: Answer) {
        assert_eq!(self.answers.insert(ticket, answer), None, "{ticket:?} is answered twice");
    }

    /// Lets time pass, and the timers that come in it.
    fn pass(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        loop {
            let first = self.timers.iter().min_by_key(|(_, due_ms)| **due_ms);
            let Some(((group, key), &due_ms)) = first.filter(|(_, due_ms)| **due_ms <= until_ms)
            else {
                break;
            };
            let (group, key) = (Arc::clone(group), key.clone());
            self.timers.remove(&(Arc::clone(&group), key.clone()));
            self.now_ms = self.now_ms.max(due_ms);
            let (rules, now) = (self.rules, self.now());
            let outcome = self.groups.timer(&group, &key, &rules, now);
            self.carry_out(&group, outcome);
        }
        self.now_ms = until_ms;
    }

    /// Lets time pass until the members have joined.
    fn settle(&mut self) {
        while self.state() == "PreparingRebalance" {
            self.pass(500);
        }
    }

    /// The coordinator starts anew from the log.
    fn restart(&mut self) {
        self.groups = self.replayed();
        self.timers.clear();
        let now = self.now();
        for (group, timers) in self.groups.revive(now) {
            self.set_timers(&group, timers);
        }
    }

    fn join(&mut self, join: Join) -> Ticket {
        let ticket = self.ticket();
        let unique: Arc<str> = ticket.0.to_string().into();
        let (rules, of_consumers) = (self.rules, without_topics(self.now()));
        let group = Arc::clone(&join.group);
        let outcome = self.groups.join(Join { unique, ..join }, ticket, &rules, &of_consumers);
        self.carry_out(&group, outcome);
        ticket
    }

    fn sync(&mut self, id: &str, generation: i32, assigned: &[(&str, &'static str)]) -> Ticket {
        let assignments = assigned.iter();
        self.sync_with(Sync {
            group: "g".into(),
            member_id: id.into(),
            instance_id: None,
            generation,
            protocol_type: Some("consumer".into()),
            protocol: Some("range".into()),
            assignments: assignments
                .map(|&(id, bytes)| (id.into(), Bytes::from_static(bytes.as_bytes())))
                .collect(),
        })
    }

    fn sync_with(&mut self, sync: Sync) -> Ticket {
        let ticket = self.ticket();
        let (rules, of_consumers) = (self.rules, without_topics(self.now()));
        let outcome = self.groups.sync(&sync, ticket, &rules, &of_consumers);
        self.carry_out(&sync.group, outcome);
        ticket
    }

    fn heartbeat(&mut self, id: &str, instance_id: Option<&str>, generation: i32) -> ErrorCode {
        let beat = Heartbeat {
            group: "g".into(),
            member_id: id.into(),
            instance_id: instance_id.map(Into::into),
            generation,
        };
        let mut timers = Timers::new();
        let now = self.now();
        let code = self.groups.heartbeat(&beat, now, &mut timers);
        self.set_timers("g", timers);
        code
    }

    fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let ticket = self.ticket();
        let members = members.iter().map(|&(id, instance)| (id.into(), instance.map(Into::into)));
        let leave = Leave { group: "g".into(), members: members.collect() };
        let (rules, of_consumers) = (self.rules, without_topics(self.now()));
        let outcome = self.groups.leave(&leave, ticket, &rules, &of_consumers);
        self.carry_out("g", outcome);
        match self.answers.remove(&ticket) {
            Some(Answer::Leave(Ok(answers))) => answers.iter().map(|answer| answer.error).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a join that has one.
    fn joined(&mut self, ticket: Ticket) -> JoinAnswer {
        match self.answers.remove(&ticket) {
            Some(Answer::Join(answer)) => *answer,
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    /// Error and member id of a join that is refused.
    fn refused(&mut self, ticket: Ticket) -> (ErrorCode, String) {
        let answer = self.joined(ticket);
        assert_eq!((answer.generation, &*answer.leader), (-1, ""));
        (answer.error, answer.member_id.to_string())
    }

    fn synced(&mut self, ticket: Ticket) -> (ErrorCode, String) {
        match self.answers.remove(&ticket) {
            Some(Answer::Sync(SyncAnswer { error, assignment, .. })) => {
                (error, String::from_utf8_lossy(&assignment).into_owned())
            }
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    fn waits(&self, ticket: Ticket) -> bool {
        !self.answers.contains_key(&ticket)
    }

    fn state(&self) -> &'static str {
        self.groups.describe("g").map_or("Dead", |described| described.state)
    }

    fn members(&self) -> Vec<String> {
        let described = self.groups.describe("g").expect("a group");
        described.members.iter().map(|member| member.id.to_string()).collect()
    }

    /// A member id for somebody new.
    fn new_id(&mut self) -> String {
        let ticket = self.join(join(""));
        let (code, id) = self.refused(ticket);
        assert_eq!(code, ErrorCode::MemberIdRequired);
        id
    }

    /// A stable group of so many dynamic members in generation 1; its leader is the first.
    fn stable(count: usize) -> (Context, Vec<String>) {
        let mut context = Context::new();
        let ids: Vec<String> = (0..count).map(|_| context.new_id()).collect();
        let tickets: Vec<Ticket> = ids.iter().map(|id| context.join(join(id))).collect();
        context.settle();
        for ticket in tickets {
            assert_eq!(context.joined(ticket).generation, 1);
        }
        context.sync_all(&ids, 1);
        (context, ids)
    }

    /// All members sync, the first assigning each member its own id.
    fn sync_all(&mut self, ids: &[String], generation: i32) {
        let assigned: Vec<(Arc<str>, Bytes)> = ids
            .iter()
            .map(|id| (id.as_str().into(), Bytes::copy_from_slice(id.as_bytes())))
            .collect();
        let mut tickets = Vec::new();
        for id in ids.iter().rev() {
            tickets.push(self.sync_with(Sync {
                group: "g".into(),
                member_id: id.as_str().into(),
                instance_id: None,
                generation,
                protocol_type: None,
                protocol: None,
                assignments: if *id == ids[0] { assigned.clone() } else { Vec::new() },
            }));
        }
        for (ticket, id) in tickets.into_iter().zip(ids.iter().rev()) {
            assert_eq!(self.synced(ticket), (NONE, id.clone()));
        }
        assert_eq!(self.state(), "Stable");
    }

    fn last_metadata(&self) -> &ClassicMetadata {
        match self.log.last() {
            Some(GroupRecord::Classic(_, metadata)) => metadata,
            other => panic!("{other:?}"),
        }
    }
}
