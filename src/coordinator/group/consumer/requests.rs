//! Requests, timers and questions about consumer groups, among groups of all kinds.
//!
//! Owns which kind of group a heartbeat meets: none, one that holds offsets only or is empty and
//! becomes a consumer group, one that is, a classic group with members, which is upgraded. Also
//! which requests of the classic protocol meet a consumer group, and what a plan that leaves only
//! their members makes of it: a classic group. And when timers really run out: one that comes
//! before its time is set again, so that a heartbeat sets none; one whose records cannot be written
//! comes again. Source: Kafka's `getOrMaybeCreateConsumerGroup`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Alarm, ConsumerGroup, DescribedGroup, Due, Heartbeat, HeartbeatAnswer, Plan, Refusal, Rules,
    Timer, records_of, refusal,
};
use crate::coordinator::group::classic::join::Join;
use crate::coordinator::group::classic::members::{Leave, Sync};
use crate::coordinator::group::classic::{ClassicGroup, downgraded};
use crate::coordinator::group::conversion::{Becomes, Conversion};
use crate::coordinator::group::outcome::{
    Answer, JoinAnswer, Now, Outcome, Ticket, TimerKey, Timers,
};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::{Groups, Kind};
use crate::error_code::ErrorCode;

/// What an operation on a consumer group comes to, among groups of all kinds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned<A> {
    /// What to append, as one batch.
    pub records: Vec<GroupRecord>,
    /// What to say once that is durable.
    pub answer: A,
    /// Timers of the group.
    pub timers: Timers,
    /// What else is to be done once the records are applied, where it becomes of the other kind.
    pub conversion: Option<Box<Conversion>>,
}

impl Groups {
    /// A member of a consumer group says that it is there, or joins or leaves.
    pub fn consumer_heartbeat(
        &mut self,
        request: &Heartbeat,
        rules: &Rules<'_>,
    ) -> Planned<Result<HeartbeatAnswer, Refusal>> {
        let id = &request.group;
        let mut records = Vec::new();
        let mut conversion = None;
        let planned = match self.groups.get(id).map(|group| &group.kind) {
            Some(Kind::Consumer(group)) if request.member_epoch < 0 => group.leave(request, rules),
            Some(Kind::Consumer(group)) => group.heartbeat(request, rules),
            None if request.member_epoch < 0 => Err(not_found(id, "Group")),
            None if request.member_epoch > 0 => Err(not_found(id, "Consumer group")),
            Some(_) if request.member_epoch != 0 => Err(other_kind(id)),
            None | Some(Kind::Simple) => {
                ConsumerGroup::new(Arc::clone(id)).heartbeat(request, rules)
            }
            Some(Kind::Classic(classic)) if classic.is_empty() => {
                records.push(GroupRecord::GroupGone(Arc::clone(id)));
                ConsumerGroup::new(Arc::clone(id)).heartbeat(request, rules)
            }
            Some(Kind::Classic(classic)) => upgrade(classic, request, rules).map(|upgrade| {
                let Upgrade { first, rest, plan } = upgrade;
                records = first;
                conversion = Some(Box::new(rest));
                plan
            }),
        };
        match planned {
            Ok(plan) => {
                let planned = self.planned(id, records, plan.map(Ok), rules.now);
                Planned { conversion: conversion.or(planned.conversion), ..planned }
            }
            Err(refused) => Planned {
                records: Vec::new(),
                answer: Err(refused),
                timers: Timers::new(),
                conversion: None,
            },
        }
    }

    /// JoinGroup, if it is to a consumer group with members.
    pub(in crate::coordinator::group) fn join_consumers(
        &mut self,
        join: &Join,
        ticket: Ticket,
        rules: &Rules<'_>,
    ) -> Option<Outcome> {
        Some(match self.consumers(&join.group)?.join_classic(join, rules) {
            Ok(plan) => {
                let plan = plan.map(|answer| Answer::Join(Box::new(answer)));
                self.planned(&join.group, Vec::new(), plan, rules.now).outcome(ticket)
            }
            Err(refused) => {
                let answer = JoinAnswer::failed(refused.code, "".into());
                Outcome::answer(ticket, Answer::Join(Box::new(answer)))
            }
        })
    }

    /// SyncGroup, if it is to a consumer group with members.
    pub(in crate::coordinator::group) fn sync_consumers(
        &mut self,
        sync: &Sync,
        ticket: Ticket,
        rules: &Rules<'_>,
    ) -> Option<Outcome> {
        let plan = self.consumers(&sync.group)?.sync_classic(sync, rules).map(Answer::Sync);
        Some(self.planned(&sync.group, Vec::new(), plan, rules.now).outcome(ticket))
    }

    /// LeaveGroup, if it is to a consumer group with members.
    pub(in crate::coordinator::group) fn leave_consumers(
        &mut self,
        leave: &Leave,
        ticket: Ticket,
        rules: &Rules<'_>,
    ) -> Option<Outcome> {
        let plan = self.consumers(&leave.group)?.leave_classic(leave, rules);
        let plan = plan.map(|answers| Answer::Leave(Ok(answers)));
        Some(self.planned(&leave.group, Vec::new(), plan, rules.now).outcome(ticket))
    }

    /// A consumer group with members.
    fn consumers(&self, id: &str) -> Option<&ConsumerGroup> {
        let group = self.groups.get(id)?.kind.consumer()?;
        (!group.is_empty()).then_some(group)
    }

    /// Somebody joins a group by the classic protocol: one without members becomes a classic group.
    /// The tombstones that this takes come before all other records.
    pub(in crate::coordinator::group) fn end_consumer_group(
        &mut self,
        id: &Arc<str>,
        now: Now,
    ) -> Vec<GroupRecord> {
        let Some(group) = self.groups.get_mut(id) else { return Vec::new() };
        if group.kind.consumer().is_none() {
            return Vec::new();
        }
        let records = group.kind.tombstones(id);
        if let Kind::Consumer(consumer) = std::mem::take(&mut group.kind) {
            group.kind = Kind::Classic(Box::new(ClassicGroup::after(consumer, now)));
        }
        records
    }

    /// A timer of a consumer group has come; that for its expressions is not meant here.
    pub fn consumer_timer(
        &mut self,
        id: &Arc<str>,
        timer: &Timer,
        rules: &Rules<'_>,
    ) -> Planned<()> {
        let nothing =
            Planned { records: Vec::new(), answer: (), timers: Timers::new(), conversion: None };
        let Some(group) = self.groups.get_mut(id).and_then(|group| group.kind.consumer_mut())
        else {
            return nothing;
        };
        if let Some(due) = group.due.remove(timer)
            && due.at_ms > rules.now.ms
        {
            let due = Due { set_to_ms: due.at_ms, ..due };
            group.due.insert(timer.clone(), due);
            let timers = vec![(TimerKey::Consumer(timer.clone()), Some(due.at_ms))];
            return Planned { timers, ..nothing };
        }
        let plan = match timer {
            Timer::Session(member) | Timer::Join(member) | Timer::Sync(member) => {
                group.member_expired(member, rules)
            }
            Timer::Revocation(member) => group.revocation_expired(member, rules),
            Timer::Regexes => return nothing,
        };
        self.planned(id, Vec::new(), plan, rules.now)
    }

    /// The expressions of a group that are to be resolved, if its timer says so.
    #[must_use]
    pub fn consumer_regexes(&mut self, id: &str) -> Vec<Arc<str>> {
        let group = self.groups.get_mut(id).and_then(|group| group.kind.consumer_mut());
        group.map_or_else(Vec::new, |group| {
            group.due.remove(&Timer::Regexes);
            group.unresolved()
        })
    }

    /// What a group's expressions stand for is known.
    pub fn consumer_resolved(
        &mut self,
        id: &Arc<str>,
        resolved: Vec<(Arc<str>, BTreeSet<Arc<str>>)>,
        version: i64,
        rules: &Rules<'_>,
    ) -> Planned<()> {
        let group = self.groups.get(id).and_then(|group| group.kind.consumer());
        let plan = group.map_or_else(
            || Plan::new(()),
            |group| group.regexes_resolved(resolved, version, rules),
        );
        self.planned(id, Vec::new(), plan, rules.now)
    }

    /// Timers of consumer groups that have just been read from the log.
    pub fn revive_consumers(&mut self, rules_of: &dyn Fn(&str) -> SessionRules) -> Revived {
        let mut all = Vec::new();
        for (id, group) in &mut self.groups {
            let Some(group) = group.kind.consumer_mut() else { continue };
            let rules = rules_of(id);
            let alarms = group.timers_after_load(rules.now_ms, rules.session_timeout_ms);
            all.push((Arc::clone(id), group.set(alarms)));
        }
        all
    }

    /// The records of an operation on this group could not be appended, if it is a consumer group:
    /// whoever is still a member has a session again, and his time to give up what he is to.
    /// Whoever was to leave or to be replaced would have neither, and never be missed.
    pub fn consumers_not_written(&mut self, id: &str, rules: &SessionRules) -> Timers {
        let group = self.groups.get_mut(id).and_then(|group| group.kind.consumer_mut());
        let Some(group) = group else { return Timers::new() };
        let whole = group.timers_after_load(rules.now_ms, rules.session_timeout_ms);
        let unless_set = |(timer, alarm)| match alarm {
            Alarm::At(at_ms) => (timer, Alarm::AtUnlessSet(at_ms)),
            other => (timer, other),
        };
        group.set(whole.into_iter().map(unless_set))
    }

    /// What becomes of a timer whose records could not be appended: it comes again soon.
    pub fn timer_not_written(&mut self, id: &str, timer: &Timer, now: Now) -> Timers {
        let group = self.groups.get_mut(id).and_then(|group| group.kind.consumer_mut());
        let due_ms = now.ms.saturating_add(TIMER_RETRY_MS);
        group.map_or_else(Timers::new, |group| group.set([(timer.clone(), Alarm::At(due_ms))]))
    }

    /// A consumer group.
    ///
    /// # Errors
    /// 69 if there is none of that name.
    pub fn describe_consumer(
        &self,
        id: &str,
        rules: &Rules<'_>,
    ) -> Result<DescribedGroup, Refusal> {
        let Some(group) = self.groups.get(id) else { return Err(not_found(id, "Group")) };
        let consumer = group.kind.consumer().ok_or_else(|| other_kind(id))?;
        Ok(consumer.describe(rules.assignors, rules.topics))
    }

    /// Whether a group's offsets are shown to whoever says that he is this member.
    ///
    /// # Errors
    /// 25 for an unknown member, 113 for another epoch than its own.
    pub fn check_fetch(
        &self,
        id: &str,
        member_id: Option<&str>,
        epoch: i32,
    ) -> Result<(), ErrorCode> {
        let group = self.groups.get(id).and_then(|group| group.kind.consumer());
        group.map_or(Ok(()), |group| group.check_fetch(member_id, epoch))
    }

    fn planned<A>(
        &mut self,
        id: &Arc<str>,
        mut records: Vec<GroupRecord>,
        plan: Plan<A>,
        now: Now,
    ) -> Planned<A> {
        let changes = records_of(id, &plan.changes);
        records.extend(changes.into_iter().map(GroupRecord::Consumer));
        if let Some(members) = plan.classic {
            let mut timers = self.consumers(id).map(ConsumerGroup::timers_off).unwrap_or_default();
            let (metadata, live, begun) = downgraded(*members, now);
            records.push(GroupRecord::Classic(Arc::clone(id), Arc::new(metadata)));
            timers.extend(begun);
            let becomes = Becomes::Classic(Box::new(live));
            let conversion = Conversion { answers: Vec::new(), timers, becomes };
            return Planned {
                records,
                answer: plan.answer,
                timers: Timers::new(),
                conversion: Some(Box::new(conversion)),
            };
        }
        let group = self.groups.get_mut(id).and_then(|group| group.kind.consumer_mut());
        let timers = match group {
            Some(group) => group.set(plan.timers),
            // It is there once its records are applied, and so are timers without a due time.
            None => ConsumerGroup::new(Arc::clone(id)).set(plan.timers),
        };
        Planned { records, answer: plan.answer, timers, conversion: None }
    }
}

/// A classic group that becomes a consumer group for a member that joins.
struct Upgrade {
    /// The records that make it so.
    first: Vec<GroupRecord>,
    /// What comes after all records.
    rest: Conversion,
    /// The member's heartbeat, without its timers.
    plan: Plan<HeartbeatAnswer>,
}

fn upgrade(
    classic: &ClassicGroup,
    request: &Heartbeat,
    rules: &Rules<'_>,
) -> Result<Upgrade, Refusal> {
    let id = &request.group;
    let (group, changes) = ConsumerGroup::upgraded(id, classic, rules)?;
    let mut plan = group.heartbeat(request, rules)?;
    let mut first = vec![GroupRecord::GroupGone(Arc::clone(id))];
    first.extend(records_of(id, &changes).into_iter().map(GroupRecord::Consumer));
    let mut alarms = group.sessions_of_classic(rules.now.ms);
    alarms.extend(plan.timers.drain(..));
    let rest = Conversion {
        answers: classic.answers_to_waiting(),
        timers: classic.timers_off(),
        becomes: Becomes::Consumer(alarms),
    };
    Ok(Upgrade { first, rest, plan })
}

impl Planned<Answer> {
    fn outcome(self, ticket: Ticket) -> Outcome {
        let Planned { records, answer, timers, conversion } = self;
        Outcome { records, answers: vec![(ticket, answer)], timers, conversion }
    }
}

/// What a group's sessions depend on after a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRules {
    /// Monotonic time.
    pub now_ms: i64,
    /// Session timeout of members of this group.
    pub session_timeout_ms: i32,
}

/// Timers by group.
pub type Revived = Vec<(Arc<str>, Timers)>;

impl ConsumerGroup {
    /// Whether the log knows of it.
    pub(in crate::coordinator::group) fn is_written(&self) -> bool {
        *self != ConsumerGroup::new(Arc::clone(&self.id))
    }

    /// All its timers, to be taken away.
    fn timers_off(&self) -> Timers {
        let sessions = self.members.keys().map(|id| Timer::Session(Arc::clone(id)));
        let mut all: BTreeSet<Timer> = self.due.keys().cloned().chain(sessions).collect();
        all.insert(Timer::Regexes);
        all.into_iter().map(|timer| (TimerKey::Consumer(timer), None)).collect()
    }

    /// Notes when timers run out; returns those that have to be set anew.
    pub(in crate::coordinator::group) fn set(
        &mut self,
        alarms: impl IntoIterator<Item = (Timer, Alarm)>,
    ) -> Timers {
        let mut timers = Timers::new();
        for (timer, alarm) in alarms {
            let at_ms = match alarm {
                Alarm::Never => {
                    if self.due.remove(&timer).is_some() {
                        timers.push((TimerKey::Consumer(timer), None));
                    }
                    continue;
                }
                Alarm::AtUnlessSet(_) if self.due.contains_key(&timer) => continue,
                Alarm::At(at_ms) | Alarm::AtUnlessSet(at_ms) => at_ms,
            };
            if let Some(due) = self.due.get_mut(&timer) {
                due.at_ms = at_ms;
                if due.set_to_ms <= at_ms {
                    continue;
                }
                due.set_to_ms = at_ms;
            } else {
                self.due.insert(timer.clone(), Due { at_ms, set_to_ms: at_ms });
            }
            timers.push((TimerKey::Consumer(timer), Some(at_ms)));
        }
        timers
    }
}

impl<A> Plan<A> {
    fn map<B>(self, change: impl FnOnce(A) -> B) -> Plan<B> {
        let Plan { changes, answer, timers, classic } = self;
        Plan { changes, answer: change(answer), timers, classic }
    }
}

fn not_found(id: &str, what: &str) -> Refusal {
    refusal(ErrorCode::GroupIdNotFound, format!("{what} {id} not found."))
}

fn other_kind(id: &str) -> Refusal {
    refusal(ErrorCode::GroupIdNotFound, format!("Group {id} is not a consumer group."))
}

/// When a timer comes again whose records could not be appended, as in Kafka.
const TIMER_RETRY_MS: i64 = 500;
