//! Requests, timers and questions about consumer groups, among groups of all kinds.
//!
//! Owns which kind of group a heartbeat meets: none, one that holds offsets only or is empty and
//! becomes a consumer group, one that is. Also when timers really run out: one that comes before
//! its time is set again, so that a heartbeat sets none. Source: Kafka's
//! `getOrMaybeCreateConsumerGroup`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Alarm, ConsumerGroup, DescribedGroup, Due, Heartbeat, HeartbeatAnswer, Plan, Refusal, Rules,
    Timer, records_of, refusal,
};
use crate::coordinator::group::outcome::{TimerKey, Timers};
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
        let planned = match self.groups.get(id).map(|group| &group.kind) {
            Some(Kind::Consumer(group)) if request.member_epoch < 0 => group.leave(request, rules),
            Some(Kind::Consumer(group)) => group.heartbeat(request, rules),
            _ if request.member_epoch < 0 => Err(not_found(id, "Group")),
            None if request.member_epoch > 0 => Err(not_found(id, "Consumer group")),
            Some(_) if request.member_epoch > 0 => Err(other_kind(id)),
            None | Some(Kind::Simple) => {
                ConsumerGroup::new(Arc::clone(id)).heartbeat(request, rules)
            }
            Some(Kind::Classic(classic)) if classic.is_empty() => {
                records.push(GroupRecord::GroupGone(Arc::clone(id)));
                ConsumerGroup::new(Arc::clone(id)).heartbeat(request, rules)
            }
            Some(Kind::Classic(_)) => Err(other_kind(id)),
        };
        match planned {
            Ok(plan) => self.planned(id, records, plan.map(Ok)),
            Err(refused) => {
                Planned { records: Vec::new(), answer: Err(refused), timers: Timers::new() }
            }
        }
    }

    /// Somebody joins a group by the classic protocol: one without members becomes a classic group.
    /// The tombstones that this takes come before all other records.
    ///
    /// # Errors
    /// Nothing to say; the group has members of its own protocol.
    pub(in crate::coordinator::group) fn end_consumer_group(
        &mut self,
        id: &Arc<str>,
    ) -> Result<Vec<GroupRecord>, ()> {
        let Some(group) = self.groups.get_mut(id) else { return Ok(Vec::new()) };
        let Some(consumer) = group.kind.consumer() else { return Ok(Vec::new()) };
        if !consumer.is_empty() {
            return Err(());
        }
        let records = group.kind.tombstones(id);
        group.kind = Kind::Simple;
        Ok(records)
    }

    /// A timer of a consumer group has come; that for its expressions is not meant here.
    pub fn consumer_timer(
        &mut self,
        id: &Arc<str>,
        timer: &Timer,
        rules: &Rules<'_>,
    ) -> Planned<()> {
        let nothing = Planned { records: Vec::new(), answer: (), timers: Timers::new() };
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
        self.planned(id, Vec::new(), plan)
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
        self.planned(id, Vec::new(), plan)
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
    ) -> Planned<A> {
        let changes = records_of(id, &plan.changes);
        records.extend(changes.into_iter().map(GroupRecord::Consumer));
        let group = self.groups.get_mut(id).and_then(|group| group.kind.consumer_mut());
        let timers = match group {
            Some(group) => group.set(plan.timers),
            // It is there once its records are applied, and so are timers without a due time.
            None => ConsumerGroup::new(Arc::clone(id)).set(plan.timers),
        };
        Planned { records, answer: plan.answer, timers }
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

    /// Notes when timers run out; returns those that have to be set anew.
    fn set(&mut self, alarms: Vec<(Timer, Alarm)>) -> Timers {
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
        let Plan { changes, answer, timers, downgrade } = self;
        Plan { changes, answer: change(answer), timers, downgrade }
    }
}

fn not_found(id: &str, what: &str) -> Refusal {
    refusal(ErrorCode::GroupIdNotFound, format!("{what} {id} not found."))
}

fn other_kind(id: &str) -> Refusal {
    refusal(ErrorCode::GroupIdNotFound, format!("Group {id} is not a consumer group."))
}
