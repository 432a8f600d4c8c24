//! Groups with members of both protocols, scripted with virtual time.
//!
//! [`Mixed`] is the coordinator as the shell runs it: what is planned is appended and applied, or
//! fails to be; conversions are carried through, timers kept, answers given once. After every step
//! the groups must equal those that the records alone make.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::coordinator::group::assignor::{Assignor, Partitions};
use crate::coordinator::group::classic::join::Join;
use crate::coordinator::group::classic::members::{Leave, Sync};
use crate::coordinator::group::classic::subscription::Assignment;
use crate::coordinator::group::classic::{self, Protocol};
use crate::coordinator::group::consumer::{self, MigrationPolicy, TopicFacts, Topics};
use crate::coordinator::group::outcome::{JoinAnswer, Now, Outcome, TimerKey};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::record::consumer::ConsumerChange;
use crate::error_code::ErrorCode;
use crate::ids::{Offset, TopicId};

mod downgrade;
mod members;
mod model;
mod upgrade;

const NONE: ErrorCode = ErrorCode::None;
const REBALANCE: ErrorCode = ErrorCode::RebalanceInProgress;
const SESSION_MS: i32 = 10_000;
const CONSUMER_SESSION_MS: i32 = 45_000;
const REBALANCE_MS: i32 = 20_000;

/// Topics `t1` of 6 partitions and `t2` of 2.
struct Catalog;

impl Topics for Catalog {
    fn by_name(&self, name: &str) -> Option<TopicFacts> {
        match name {
            "t1" => Some(TopicFacts { id: TopicId([1; 16]), partitions: 6 }),
            "t2" => Some(TopicFacts { id: TopicId([2; 16]), partitions: 2 }),
            _ => None,
        }
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        match id.0[0] {
            1 => Some("t1".into()),
            2 => Some("t2".into()),
            _ => None,
        }
    }

    fn names(&self) -> Vec<Arc<str>> {
        vec!["t1".into(), "t2".into()]
    }

    fn version(&self) -> i64 {
        1
    }
}

/// Groups, their log, their timers, and the answers given so far.
struct Mixed {
    groups: Groups,
    policy: MigrationPolicy,
    members_max: usize,
    classic_members_max: usize,
    now_ms: i64,
    log: Vec<GroupRecord>,
    timers: BTreeMap<TimerKey, i64>,
    answers: BTreeMap<Ticket, Answer>,
    next: u64,
    fails: bool,
}

impl Mixed {
    fn new() -> Mixed {
        Mixed {
            groups: Groups::default(),
            policy: MigrationPolicy::Bidirectional,
            members_max: usize::MAX,
            classic_members_max: usize::MAX,
            now_ms: 1_000,
            log: Vec::new(),
            timers: BTreeMap::new(),
            answers: BTreeMap::new(),
            next: 0,
            fails: false,
        }
    }

    fn now(&self) -> Now {
        Now { ms: self.now_ms, wall_ms: 1_000_000 + self.now_ms }
    }

    fn classic_rules(&self) -> classic::Rules {
        classic::Rules {
            session_ms_min: 1_000,
            session_ms_max: 60_000,
            initial_delay_ms: 3_000,
            members_max: self.classic_members_max,
        }
    }

    fn rules(&self) -> consumer::Rules<'static> {
        consumer::Rules {
            now: self.now(),
            session_timeout_ms: CONSUMER_SESSION_MS,
            heartbeat_interval_ms: 5_000,
            assignment_interval_ms: 0,
            members_max: self.members_max,
            classic_members_max: self.classic_members_max,
            assignors: &[Assignor::Uniform, Assignor::Range],
            regex_refresh_ms: 600_000,
            policy: self.policy,
            topics: &Catalog,
        }
    }

    fn session_rules(&self) -> consumer::SessionRules {
        consumer::SessionRules { now_ms: self.now_ms, session_timeout_ms: CONSUMER_SESSION_MS }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    fn carry_out(&mut self, outcome: Outcome) {
        let Outcome { records, answers, timers, conversion } = outcome;
        self.set_timers(timers);
        if self.fails && !records.is_empty() {
            let code = ErrorCode::CoordinatorNotAvailable;
            for (ticket, answer) in answers {
                self.give(ticket, answer.not_written(code));
            }
            let (rules, now) = (self.classic_rules(), self.now());
            let taken_back = self.groups.not_written(&"g".into(), code, &rules, now);
            self.set_timers(taken_back.timers);
            let sessions = self.session_rules();
            let again = self.groups.consumers_not_written("g", &sessions);
            self.set_timers(again);
            for (ticket, answer) in taken_back.answers {
                self.give(ticket, answer);
            }
        } else {
            for record in records {
                let (key, value) = record.encode();
                let read = GroupRecord::decode(&key, value.as_deref());
                assert_eq!(read.as_ref(), Ok(&record), "it is read as it was written");
                self.groups.apply(Offset(self.log.len() as i64), None, record.clone());
                self.log.push(record);
            }
            if let Some(conversion) = conversion {
                let (more, timers) = self.groups.convert("g", *conversion);
                self.set_timers(timers);
                for (ticket, answer) in more {
                    self.give(ticket, answer);
                }
            }
            for (ticket, answer) in answers {
                self.give(ticket, answer);
            }
        }
        assert_eq!(self.groups, self.replayed(), "what the log says is what there is");
    }

    fn replayed(&self) -> Groups {
        let mut groups = Groups::default();
        for (at, record) in self.log.iter().enumerate() {
            groups.apply(Offset(at as i64), None, record.clone());
        }
        groups
    }

    fn set_timers(&mut self, timers: Timers) {
        for (key, due_ms) in timers {
            match due_ms {
                Some(due_ms) => self.timers.insert(key, due_ms),
                None => self.timers.remove(&key),
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
            let Some((key, &due_ms)) = first.filter(|(_, due_ms)| **due_ms <= until_ms) else {
                break;
            };
            let key = key.clone();
            self.timers.remove(&key);
            self.now_ms = self.now_ms.max(due_ms);
            self.fire(&key);
        }
        self.now_ms = until_ms;
    }

    fn fire(&mut self, key: &TimerKey) {
        let id: Arc<str> = "g".into();
        let outcome = match key {
            TimerKey::Consumer(timer) => {
                self.groups.consumer_timer(&id, timer, &self.rules()).into()
            }
            key => {
                let (rules, now) = (self.classic_rules(), self.now());
                self.groups.timer(&id, key, &rules, now)
            }
        };
        let is_lost = self.fails && !outcome.records.is_empty();
        self.carry_out(outcome);
        if let TimerKey::Consumer(timer) = key
            && is_lost
        {
            let now = self.now();
            let again = self.groups.timer_not_written("g", timer, now);
            self.set_timers(again);
        }
    }

    /// The coordinator starts anew from the log.
    fn restart(&mut self) {
        self.groups = self.replayed();
        self.timers.clear();
        self.answers.clear();
        let now = self.now();
        let rules = self.session_rules();
        let sessions = |_: &str| rules;
        let revived = self.groups.revive(now).into_iter();
        for (_, timers) in revived.chain(self.groups.revive_consumers(&sessions)) {
            self.set_timers(timers);
        }
    }

    fn join(&mut self, join: Join) -> Ticket {
        let ticket = self.ticket();
        let join = Join { unique: format!("{:02}", ticket.0).into(), ..join };
        let (rules, of_consumers) = (self.classic_rules(), self.rules());
        let outcome = self.groups.join(join, ticket, &rules, &of_consumers);
        self.carry_out(outcome);
        ticket
    }

    /// The answer to a join.
    fn joined(&mut self, ticket: Ticket) -> JoinAnswer {
        match self.answers.remove(&ticket) {
            Some(Answer::Join(answer)) => *answer,
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    /// Error and generation of a join that is answered at once.
    fn enter(&mut self, join: Join) -> (ErrorCode, i32) {
        let ticket = self.join(join);
        let answer = self.joined(ticket);
        (answer.error, answer.generation)
    }

    fn sync(&mut self, id: &str, generation: i32, assigned: &[(&str, &[i32])]) -> Ticket {
        let assignments = assigned.iter().map(|(id, of)| ((*id).into(), assignment_of(of)));
        self.sync_with(Sync { assignments: assignments.collect(), ..sync_of(id, generation) })
    }

    fn sync_with(&mut self, sync: Sync) -> Ticket {
        let ticket = self.ticket();
        let (rules, of_consumers) = (self.classic_rules(), self.rules());
        let outcome = self.groups.sync(&sync, ticket, &rules, &of_consumers);
        self.carry_out(outcome);
        ticket
    }

    /// Error and assignment of a sync: `"t1:0,1"`.
    fn synced(&mut self, ticket: Ticket) -> (ErrorCode, String) {
        match self.answers.remove(&ticket) {
            Some(Answer::Sync(answer)) => {
                let read = Assignment::read(&answer.assignment).expect("an assignment");
                (answer.error, outline_named(&read.partitions))
            }
            other => panic!("{ticket:?}: {other:?}"),
        }
    }

    /// What a sync is answered at once.
    fn has(&mut self, id: &str, generation: i32) -> (ErrorCode, String) {
        let ticket = self.sync(id, generation, &[]);
        self.synced(ticket)
    }

    fn beat(&mut self, id: &str, generation: i32) -> ErrorCode {
        self.beat_as(id, None, generation)
    }

    fn beat_as(&mut self, id: &str, instance: Option<&str>, generation: i32) -> ErrorCode {
        let beat = classic::members::Heartbeat {
            group: "g".into(),
            member_id: id.into(),
            instance_id: instance.map(Into::into),
            generation,
        };
        let (mut timers, now) = (Timers::new(), self.now());
        let code = self.groups.heartbeat(&beat, now, &mut timers);
        self.set_timers(timers);
        code
    }

    fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let ticket = self.ticket();
        let members = members.iter().map(|&(id, instance)| (id.into(), instance.map(Into::into)));
        let leave = Leave { group: "g".into(), members: members.collect() };
        let (rules, of_consumers) = (self.classic_rules(), self.rules());
        let outcome = self.groups.leave(&leave, ticket, &rules, &of_consumers);
        self.carry_out(outcome);
        match self.answers.remove(&ticket) {
            Some(Answer::Leave(Ok(answers))) => answers.iter().map(|answer| answer.error).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Epoch and assignment that a heartbeat is answered, `-` for none: `"3 t1:0,1"`.
    fn say(&mut self, request: &consumer::Heartbeat) -> Result<String, ErrorCode> {
        self.send(request).map(|answer| {
            let assignment = answer.assignment.map_or("-".to_owned(), |all| outline(&all));
            format!("{} {assignment}", answer.member_epoch).trim_end().to_owned()
        })
    }

    fn send(
        &mut self,
        request: &consumer::Heartbeat,
    ) -> Result<consumer::HeartbeatAnswer, ErrorCode> {
        let planned = self.groups.consumer_heartbeat(request, &self.rules());
        let ticket = self.ticket();
        self.carry_out(Outcome {
            records: planned.records,
            answers: vec![(ticket, Answer::Consumer(planned.answer))],
            timers: planned.timers,
            conversion: planned.conversion,
        });
        match self.answers.remove(&ticket) {
            Some(Answer::Consumer(answer)) => answer.map_err(|refusal| refusal.code),
            other => panic!("{other:?}"),
        }
    }

    /// Kind and state of the group.
    fn state(&self) -> String {
        let listed = self.groups.list(&Default::default());
        let group = listed.iter().find(|group| &*group.id == "g");
        group.map_or("none".to_owned(), |group| format!("{} {}", group.kind, group.state))
    }

    fn epochs(&self) -> (i32, i32) {
        let described = self.groups.describe_consumer("g", &self.rules()).expect("consumers");
        (described.epoch, described.target_epoch)
    }

    /// A stable classic group of `a` with t1:0,1,2 and `b` with t1:3,4,5, in generation 1.
    fn stable() -> Mixed {
        let mut mixed = Mixed::new();
        let tickets = [mixed.join(static_join("", "a")), mixed.join(static_join("", "b"))];
        mixed.pass(6_000);
        let ids = tickets.map(|ticket| mixed.joined(ticket).member_id);
        assert_eq!(ids.each_ref().map(|id| &**id), ["a-01", "b-02"]);
        let follower = mixed.sync("b-02", 1, &[]);
        let leader = mixed.sync("a-01", 1, &[("a-01", &[0, 1, 2]), ("b-02", &[3, 4, 5])]);
        assert_eq!(mixed.synced(leader), (NONE, "t1:0,1,2".to_owned()));
        assert_eq!(mixed.synced(follower), (NONE, "t1:3,4,5".to_owned()));
        assert_eq!(mixed.state(), "classic Stable");
        mixed
    }

    /// The same group, in which `n` has joined by the other protocol.
    fn upgraded() -> Mixed {
        let mut mixed = Mixed::stable();
        assert_eq!(mixed.say(&join_consumer("n")), ok("2"));
        assert_eq!(mixed.state(), "consumer Reconciling");
        mixed
    }

    /// The same group, in which everybody has what he is to have: a 0,1; b 3,4; n 2,5.
    fn settled() -> Mixed {
        let mut mixed = Mixed::upgraded();
        for id in ["a", "b"] {
            let full = format!("{id}-0{}", if id == "a" { 1 } else { 2 });
            assert_eq!(mixed.beat_as(&full, Some(id), 1), REBALANCE);
            let (code, generation) = mixed.enter(static_join(&full, id));
            assert_eq!((code, generation), (NONE, 2), "it has given up all before it joined");
            assert_eq!(mixed.sync_as(&full, id, 2).0, NONE);
        }
        mixed.pass(100);
        assert!(mixed.say(&beat_consumer("n", 2)).is_ok());
        assert_eq!(mixed.state(), "consumer Stable");
        mixed
    }

    fn sync_as(&mut self, id: &str, instance: &str, generation: i32) -> (ErrorCode, String) {
        let sync = Sync { instance_id: Some(instance.into()), ..sync_of(id, generation) };
        let ticket = self.sync_with(sync);
        self.synced(ticket)
    }

    fn timer(&self, timer: Timer) -> Option<i64> {
        self.timers.get(&TimerKey::Consumer(timer)).map(|due_ms| due_ms - self.now_ms)
    }

    /// Kinds of the records from this one on.
    fn kinds_since(&self, first: usize) -> Vec<String> {
        self.log[first..].iter().map(outline_of).collect()
    }
}

/// A JoinGroup that subscribes to `t1` and has nothing.
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
        protocols: vec![speaks("range", &[])],
        version: 9,
        unique: "".into(),
    }
}

fn static_join(member_id: &str, instance: &str) -> Join {
    Join { instance_id: Some(instance.into()), ..join(member_id) }
}

/// A JoinGroup of a member that has these partitions of `t1`.
fn owning(join: Join, owned: &[i32]) -> Join {
    Join { protocols: vec![speaks("range", owned)], ..join }
}

fn speaks(protocol: &str, owned: &[i32]) -> Protocol {
    Protocol { name: protocol.into(), metadata: subscription("t1", owned) }
}

/// Version 1, with what the member has of the same topic.
fn subscription(topic: &str, owned: &[i32]) -> Bytes {
    let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, topic.len() as u8];
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, topic.len() as u8]);
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&[0, 0, 0, owned.len() as u8]);
    owned.iter().for_each(|partition| bytes.extend_from_slice(&partition.to_be_bytes()));
    bytes.into()
}

/// An assignment of these partitions of `t1`.
fn assignment_of(partitions: &[i32]) -> Bytes {
    let named = vec![(Arc::from("t1"), partitions.to_vec())];
    classic::subscription::assignment(&[0, 1], &named)
}

fn sync_of(id: &str, generation: i32) -> Sync {
    Sync {
        group: "g".into(),
        member_id: id.into(),
        instance_id: None,
        generation,
        protocol_type: Some("consumer".into()),
        protocol: Some("range".into()),
        assignments: Vec::new(),
    }
}

/// A heartbeat of the other protocol that says nothing.
fn beat_consumer(id: &str, epoch: i32) -> consumer::Heartbeat {
    consumer::Heartbeat {
        group: "g".into(),
        member_id: id.into(),
        member_epoch: epoch,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: -1,
        topic_names: None,
        topic_regex: None,
        assignor: None,
        owned: None,
        client_id: "c".into(),
        client_host: "/h".into(),
    }
}

/// One that joins and subscribes to `t1`.
fn join_consumer(id: &str) -> consumer::Heartbeat {
    consumer::Heartbeat {
        rebalance_timeout_ms: REBALANCE_MS,
        topic_names: Some(vec!["t1".into()]),
        owned: Some(Partitions::new()),
        ..beat_consumer(id, 0)
    }
}

fn static_consumer(instance: &str, request: consumer::Heartbeat) -> consumer::Heartbeat {
    consumer::Heartbeat { instance_id: Some(instance.into()), ..request }
}

fn outline(all: &Partitions) -> String {
    let named = all.iter().map(|(id, partitions)| {
        (Catalog.name_of(*id).expect("a topic"), partitions.iter().copied().collect())
    });
    outline_named(&named.collect())
}

fn outline_named(all: &NamedPartitions) -> String {
    let topics = all.iter().map(|(name, partitions)| {
        let numbers: Vec<String> = partitions.iter().map(ToString::to_string).collect();
        format!("{name}:{}", numbers.join(","))
    });
    topics.collect::<Vec<_>>().join(" ")
}

/// What a record is, with a minus where it is a tombstone.
fn outline_of(record: &GroupRecord) -> String {
    match record {
        GroupRecord::Classic(_, metadata) => format!("classic {}", metadata.generation),
        GroupRecord::GroupGone(_) => "-classic".to_owned(),
        GroupRecord::Consumer(record) => {
            let sign = if record.change.is_tombstone() { "-" } else { "" };
            match &record.change {
                ConsumerChange::Epoch(value) => {
                    let epoch = value.map(|value| format!(" {}", value.epoch));
                    format!("{sign}epoch{}", epoch.unwrap_or_default())
                }
                ConsumerChange::OldTopics(_) => format!("{sign}topics"),
                ConsumerChange::Member(id, _) => format!("{sign}member {id}"),
                ConsumerChange::TargetEpoch(value) => {
                    let epoch = value.map(|value| format!(" {}", value.epoch));
                    format!("{sign}target epoch{}", epoch.unwrap_or_default())
                }
                ConsumerChange::Target(id, value) => {
                    let of = value.as_deref().map(|of| format!(" {}", outline(of)));
                    format!("{sign}target {id}{}", of.unwrap_or_default())
                }
                ConsumerChange::Current(id, value) => {
                    let of = value.as_deref().map(|of| {
                        let all: BTreeSet<i32> =
                            of.assigned.values().flat_map(|of| of.keys().copied()).collect();
                        format!(" {} {all:?}", of.epoch)
                    });
                    format!("{sign}current {id}{}", of.unwrap_or_default())
                }
                ConsumerChange::Regex(regex, _) => format!("{sign}regex {regex}"),
            }
        }
        other => format!("{other:?}"),
    }
}

fn ok(text: &str) -> Result<String, ErrorCode> {
    Ok(text.to_owned())
}
