//! Consumer groups in a scripted world with a clock of its own.
//!
//! [`World`] is one group, the catalog and the timers. Every operation goes through it: it applies
//! what is planned, sets the timers, and checks that a group replayed from all records so far is
//! the same as the one that is live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::coordinator::group::outcome::Now;

mod commits;
mod join;
mod kinds;
mod model;
mod reconcile;
mod regexes;
mod topics;

/// A catalog of a few topics.
#[derive(Clone, Default, Debug)]
struct Catalog {
    topics: BTreeMap<Arc<str>, TopicFacts>,
    version: i64,
}

impl Catalog {
    fn set(&mut self, name: &str, number: u8, partitions: i32) {
        let facts = TopicFacts { id: TopicId([number; 16]), partitions };
        self.topics.insert(name.into(), facts);
        self.version += 1;
    }

    fn remove(&mut self, name: &str) {
        self.topics.remove(name);
        self.version += 1;
    }
}

impl Topics for Catalog {
    fn by_name(&self, name: &str) -> Option<TopicFacts> {
        self.topics.get(name).copied()
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        let found = self.topics.iter().find(|(_, topic)| topic.id == id);
        found.map(|(name, _)| Arc::clone(name))
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    fn version(&self) -> i64 {
        self.version
    }
}

/// One group and all around it. Topic `t1` has 6 partitions, `t2` has 3.
#[derive(Clone)]
struct World {
    catalog: Catalog,
    group: ConsumerGroup,
    log: Vec<ConsumerChange>,
    timers: BTreeMap<Timer, i64>,
    now: Now,
    assignment_interval_ms: i32,
    members_max: usize,
    assignors: Vec<Assignor>,
}

const SESSION_MS: i32 = 45_000;
const REBALANCE_MS: i32 = 30_000;

impl World {
    fn new() -> World {
        let mut catalog = Catalog::default();
        catalog.set("t1", 1, 6);
        catalog.set("t2", 2, 3);
        World {
            catalog,
            group: ConsumerGroup::new("g".into()),
            log: Vec::new(),
            timers: BTreeMap::new(),
            now: Now { ms: 1_000, wall_ms: 1_000_000 },
            assignment_interval_ms: 0,
            members_max: usize::MAX,
            assignors: vec![Assignor::Uniform, Assignor::Range],
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            now: self.now,
            session_timeout_ms: SESSION_MS,
            heartbeat_interval_ms: 5_000,
            assignment_interval_ms: self.assignment_interval_ms,
            members_max: self.members_max,
            classic_members_max: usize::MAX,
            assignors: &self.assignors,
            regex_refresh_ms: 600_000,
            policy: MigrationPolicy::Bidirectional,
            topics: &self.catalog,
        }
    }

    /// Takes over a plan, and returns its answer.
    fn take<A>(&mut self, plan: Plan<A>) -> A {
        for change in &plan.changes {
            self.group.apply(change);
        }
        self.log.extend(plan.changes);
        for (timer, alarm) in plan.timers {
            match alarm {
                Alarm::At(due_ms) => drop(self.timers.insert(timer, due_ms)),
                Alarm::AtUnlessSet(due_ms) => {
                    self.timers.entry(timer).or_insert(due_ms);
                }
                Alarm::Never => drop(self.timers.remove(&timer)),
            }
        }
        let mut replayed = ConsumerGroup::new("g".into());
        self.log.iter().for_each(|change| replayed.apply(change));
        assert_eq!(self.group, replayed, "replayed it is another group");
        plan.answer
    }

    fn send(&mut self, request: &Heartbeat) -> Result<HeartbeatAnswer, ErrorCode> {
        request.check(1, &self.assignors).map_err(|refusal| refusal.code)?;
        let plan = if request.member_epoch < 0 {
            self.group.leave(request, &self.rules())
        } else {
            self.group.heartbeat(request, &self.rules())
        };
        Ok(self.take(plan.map_err(|refusal| refusal.code)?))
    }

    /// Epoch and assignment of an answer as text, `-` for none: `"3 1:0,1,2"`.
    fn say(&mut self, request: &Heartbeat) -> Result<String, ErrorCode> {
        self.send(request).map(|answer| {
            let assignment = answer.assignment.map_or("-".to_owned(), |all| outline(&all));
            format!("{} {assignment}", answer.member_epoch).trim_end().to_owned()
        })
    }

    /// Lets time pass; timers run out one after another.
    fn sleep(&mut self, ms: i64) -> Vec<Timer> {
        let until_ms = self.now.ms + ms;
        let mut fired = Vec::new();
        loop {
            let next = self.timers.iter().min_by_key(|(_, due_ms)| **due_ms);
            let Some((timer, due_ms)) = next.filter(|(_, due_ms)| **due_ms <= until_ms) else {
                break;
            };
            let (timer, due_ms) = (timer.clone(), *due_ms);
            self.timers.remove(&timer);
            let passed_ms = (due_ms - self.now.ms).max(0);
            self.now.ms += passed_ms;
            self.now.wall_ms += passed_ms;
            self.fire(&timer);
            fired.push(timer);
        }
        self.now.wall_ms += until_ms - self.now.ms;
        self.now.ms = until_ms;
        fired
    }

    fn fire(&mut self, timer: &Timer) {
        let plan = match timer {
            Timer::Session(id) | Timer::Join(id) | Timer::Sync(id) => {
                self.group.member_expired(id, &self.rules())
            }
            Timer::Revocation(id) => self.group.revocation_expired(id, &self.rules()),
            Timer::Regexes => {
                let names = self.catalog.names();
                let resolve = |pattern: Arc<str>| {
                    let regex = regex::compile(&pattern).expect("it was accepted");
                    let found = regex::matching(&regex, &names);
                    (pattern, found)
                };
                let resolved = self.group.unresolved().into_iter().map(resolve).collect();
                self.group.regexes_resolved(resolved, self.catalog.version, &self.rules())
            }
        };
        self.take(plan);
    }

    fn state(&self) -> &'static str {
        self.group.state().name()
    }
}

/// A heartbeat that says nothing.
fn beat(member: &str, epoch: i32) -> Heartbeat {
    Heartbeat {
        group: "g".into(),
        member_id: member.into(),
        member_epoch: epoch,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: -1,
        topic_names: None,
        topic_regex: None,
        assignor: None,
        owned: None,
        client_id: "c".into(),
        client_host: "/1.2.3.4".into(),
    }
}

/// A heartbeat that joins and subscribes to these topics.
fn join(member: &str, names: &[&str]) -> Heartbeat {
    Heartbeat {
        rebalance_timeout_ms: REBALANCE_MS,
        topic_names: Some(names.iter().map(|name| Arc::from(*name)).collect()),
        owned: Some(Partitions::new()),
        ..beat(member, 0)
    }
}

/// A heartbeat that says what the member has.
fn owning(member: &str, epoch: i32, owned: &[(u8, &[i32])]) -> Heartbeat {
    Heartbeat { owned: Some(partitions(owned)), ..beat(member, epoch) }
}

fn of_instance(instance: &str, request: Heartbeat) -> Heartbeat {
    Heartbeat { instance_id: Some(instance.into()), ..request }
}

fn partitions(of: &[(u8, &[i32])]) -> Partitions {
    let topics = of.iter().map(|(number, partitions)| {
        (TopicId([*number; 16]), partitions.iter().copied().collect::<BTreeSet<i32>>())
    });
    topics.collect()
}

fn outline(all: &Partitions) -> String {
    let topics = all.iter().map(|(id, partitions)| {
        let numbers: Vec<String> = partitions.iter().map(ToString::to_string).collect();
        format!("{}:{}", id.0[0], numbers.join(","))
    });
    topics.collect::<Vec<_>>().join(" ")
}

fn ok(text: &str) -> Result<String, ErrorCode> {
    Ok(text.to_owned())
}
