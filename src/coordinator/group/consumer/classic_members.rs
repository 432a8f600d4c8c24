//! SyncGroup, Heartbeat and LeaveGroup of members that speak the classic protocol in a consumer
//! group.
//!
//! A heartbeat is answered 27 when joining again would bring the member further: a new target is
//! there, it has partitions to give up, or those that it waits for are free. From then on it has
//! its rebalance timeout to join, and after that as long to sync; who does neither is removed.
//! Source: KIP-848, Kafka's `classicGroupHeartbeatToConsumerGroup` and its siblings.
//!
//! **Deviation**: where no member speaks the other protocol and the group may not become a classic
//! group, a new epoch is reason enough to join: a target is computed by nobody else. In Kafka 4.3.1
//! such a group never divides anew what a member has left behind.
//!
//! **Deviation**: a sync that is answered 27 prolongs the session, as such a heartbeat does. It
//! asks the member to join with what it still has, so it must have the time to. In Kafka 4.3.1 the
//! session may end right after, and what the member was told to bring along goes to another.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::downgrade::named;
use super::heartbeat::{check_holder, unknown_instance, without_epochs};
use super::reconcile::has;
use super::{Alarm, Alarms, ConsumerGroup, Member, MemberState, Plan, Rules, Timer};
use crate::coordinator::group::classic::members::{Heartbeat, Leave, Sync, left};
use crate::coordinator::group::classic::subscription::{self, CONSUMER};
use crate::coordinator::group::outcome::{LeaveAnswer, Now, SyncAnswer, Timers};
use crate::coordinator::group::record::consumer::ClassicFacts;
use crate::error_code::ErrorCode;

impl ConsumerGroup {
    /// What SyncGroup comes to.
    pub(in crate::coordinator::group) fn sync_classic(
        &self,
        sync: &Sync,
        rules: &Rules<'_>,
    ) -> Plan<SyncAnswer> {
        let refuse = |code| Plan::new(SyncAnswer::failed(code));
        let found = self.classic_member(&sync.member_id, sync.instance_id.as_deref());
        let (id, member, facts) = match found {
            Ok(found) => found,
            Err(code) => return refuse(code),
        };
        if sync.generation != member.current.epoch {
            return refuse(ErrorCode::IllegalGeneration);
        }
        let first = facts.protocols.first();
        let differs = |asked: &Option<Arc<str>>, known: Option<&str>| {
            asked.is_some() && asked.as_deref() != known
        };
        if differs(&sync.protocol_type, Some(CONSUMER))
            || differs(&sync.protocol, first.map(|(name, _)| &**name))
        {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        }
        // One that has partitions to give up has joined for the present target already.
        if self.target_epoch > member.current.epoch
            && member.current.state != MemberState::Unrevoked
        {
            let mut plan = refuse(ErrorCode::RebalanceInProgress);
            plan.timers.push(join_alarm(id, member, rules.now));
            plan.timers.push(session_alarm(id, facts, rules.now));
            return plan;
        }
        let assigned = named(&without_epochs(&member.current.assigned), rules.topics);
        let metadata = first.map_or(&[][..], |(_, metadata)| metadata);
        let mut plan = Plan::new(SyncAnswer {
            error: ErrorCode::None,
            protocol_type: sync.protocol_type.clone(),
            protocol: sync.protocol.clone(),
            assignment: subscription::assignment(metadata, &assigned),
        });
        plan.timers.push((Timer::Sync(Arc::clone(id)), Alarm::Never));
        plan.timers.push(session_alarm(id, facts, rules.now));
        plan
    }

    /// What Heartbeat comes to.
    pub(in crate::coordinator::group) fn heartbeat_classic(
        &mut self,
        beat: &Heartbeat,
        now: Now,
        timers: &mut Timers,
    ) -> ErrorCode {
        let found = self.classic_member(&beat.member_id, beat.instance_id.as_deref());
        let (id, member, facts) = match found {
            Ok(found) => found,
            Err(code) => return code,
        };
        if beat.generation != member.current.epoch {
            return ErrorCode::IllegalGeneration;
        }
        let mut alarms = Alarms::new();
        alarms.push(session_alarm(id, facts, now));
        let code = if self.has_to_join(id, member) {
            alarms.push(join_alarm(id, member, now));
            ErrorCode::RebalanceInProgress
        } else {
            ErrorCode::None
        };
        timers.extend(self.set(alarms));
        code
    }

    /// What LeaveGroup comes to. It removes members of either protocol.
    pub(in crate::coordinator::group) fn leave_classic(
        &self,
        leave: &Leave,
        rules: &Rules<'_>,
    ) -> Plan<Vec<LeaveAnswer>> {
        let mut gone: BTreeSet<&Arc<str>> = BTreeSet::new();
        let mut answers = Vec::with_capacity(leave.members.len());
        for named in &leave.members {
            let code = match self.leaver(&named.0, named.1.as_deref()) {
                Ok(id) => {
                    gone.insert(id);
                    ErrorCode::None
                }
                Err(code) => code,
            };
            answers.push(left(named, code));
        }
        let gone: Vec<&Arc<str>> = gone.into_iter().collect();
        let Plan { changes, timers, classic, .. } = self.without(&gone, rules);
        Plan { changes, answer: answers, timers, classic }
    }

    fn leaver(&self, id: &str, instance_id: Option<&str>) -> Result<&Arc<str>, ErrorCode> {
        let Some(instance_id) = instance_id else {
            let known = self.members.get_key_value(id).map(|(id, _)| id);
            return known.ok_or(ErrorCode::UnknownMemberId);
        };
        let (holder, _) = self.instance(instance_id).ok_or(ErrorCode::UnknownMemberId)?;
        if !id.is_empty() {
            check_holder(holder, id, instance_id).map_err(|refusal| refusal.code)?;
        }
        Ok(holder)
    }

    /// The member that a request is of, which speaks the classic protocol.
    fn classic_member(
        &self,
        id: &str,
        instance_id: Option<&str>,
    ) -> Result<(&Arc<str>, &Member, &ClassicFacts), ErrorCode> {
        let found = match instance_id {
            None => self.members.get_key_value(id),
            Some(instance_id) => {
                let found = self.instance(instance_id);
                let found = found.ok_or_else(|| unknown_instance(instance_id).code)?;
                check_holder(found.0, id, instance_id).map_err(|refusal| refusal.code)?;
                Some(found)
            }
        };
        let (id, member) = found.ok_or(ErrorCode::UnknownMemberId)?;
        let facts = member.metadata.classic.as_ref().ok_or(ErrorCode::UnknownMemberId)?;
        Ok((id, member, facts))
    }

    fn has_to_join(&self, id: &Arc<str>, member: &Member) -> bool {
        let is_alone_with_its_like = self.derived.classic == self.members.len();
        let newest = if is_alone_with_its_like { self.epoch } else { self.target_epoch };
        member.current.epoch < newest
            || member.current.state == MemberState::Unrevoked
            || (member.current.state == MemberState::Unreleased && !self.waits(id, member))
    }

    /// Whether others have some of what the member is to have.
    fn waits(&self, id: &Arc<str>, member: &Member) -> bool {
        let target = self.targets.get(id).into_iter().flat_map(|target| target.iter());
        target.into_iter().any(|(topic, partitions)| {
            partitions.iter().any(|&partition| {
                !has(&member.current.assigned, *topic, partition)
                    && self.derived.owners.contains_key(&(*topic, partition))
            })
        })
    }
}

fn session_alarm(id: &Arc<str>, facts: &ClassicFacts, now: Now) -> (Timer, Alarm) {
    let due_ms = now.ms.saturating_add(i64::from(facts.session_timeout_ms));
    (Timer::Session(Arc::clone(id)), Alarm::At(due_ms))
}

fn join_alarm(id: &Arc<str>, member: &Member, now: Now) -> (Timer, Alarm) {
    let due_ms = now.ms.saturating_add(i64::from(member.metadata.rebalance_timeout_ms));
    (Timer::Join(Arc::clone(id)), Alarm::AtUnlessSet(due_ms))
}
