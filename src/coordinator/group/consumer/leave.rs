//! Members that go: by their own word, for a while, or because they are not heard of.
//!
//! Who goes takes its assignment along and the group's epoch rises; the next heartbeat of another
//! member computes a new target. If only members of the classic protocol are left, the group
//! becomes a classic group instead. A static member that goes for a while keeps its place until its
//! session ends. Source: KIP-848, Kafka's `consumerGroupLeave` and `consumerGroupFenceMember`.

use std::sync::Arc;

use super::heartbeat::{check_holder, removal, unknown_instance};
use super::{
    Alarm, ConsumerChange, ConsumerGroup, CurrentAssignment, Epochs, GroupEpoch, Heartbeat,
    HeartbeatAnswer, Member, MemberState, Plan, Refusal, Rules, STATIC_LEAVE_EPOCH, Timer, hash,
};

impl ConsumerGroup {
    /// What a heartbeat with epoch -1 or -2 comes to.
    ///
    /// # Errors
    /// 25 for an unknown member or instance, 82 for an instance that another member has.
    pub fn leave(
        &self,
        request: &Heartbeat,
        rules: &Rules<'_>,
    ) -> Result<Plan<HeartbeatAnswer>, Refusal> {
        let (id, member) = match &request.instance_id {
            None => (&request.member_id, self.member(&request.member_id)?),
            Some(instance_id) => {
                let found = self.instance(instance_id);
                let (holder, member) = found.ok_or_else(|| unknown_instance(instance_id))?;
                check_holder(holder, &request.member_id, instance_id)?;
                (holder, member)
            }
        };
        let answer = HeartbeatAnswer {
            member_id: Arc::clone(&request.member_id),
            member_epoch: request.member_epoch,
            heartbeat_interval_ms: 0,
            assignment: None,
        };
        if request.member_epoch == STATIC_LEAVE_EPOCH && request.instance_id.is_some() {
            let mut plan = Plan::new(answer);
            let away = Arc::new(go_away(&member.current));
            plan.changes.push(ConsumerChange::Current(Arc::clone(id), Some(away)));
            plan.timers.push((Timer::Revocation(Arc::clone(id)), Alarm::Never));
            return Ok(plan);
        }
        let gone = self.without(&[id], rules);
        Ok(Plan { changes: gone.changes, answer, timers: gone.timers, classic: gone.classic })
    }

    /// The session of a member is over, or another time that it was given.
    #[must_use]
    pub fn member_expired(&self, id: &str, rules: &Rules<'_>) -> Plan<()> {
        match self.members.get_key_value(id) {
            Some((id, _)) => self.without(&[id], rules),
            None => Plan::new(()),
        }
    }

    /// The time in which a member was to give up partitions is over.
    #[must_use]
    pub fn revocation_expired(&self, id: &str, rules: &Rules<'_>) -> Plan<()> {
        let is_late = |member: &Member| member.current.state == MemberState::Unrevoked;
        if self.members.get(id).is_some_and(is_late) {
            self.member_expired(id, rules)
        } else {
            Plan::new(())
        }
    }

    /// The group once these members are gone.
    pub(super) fn without(&self, ids: &[&Arc<str>], rules: &Rules<'_>) -> Plan<()> {
        let mut plan = Plan::new(());
        let gone: Vec<&Member> = ids.iter().filter_map(|id| self.members.get(*id)).collect();
        if gone.is_empty() {
            return plan;
        }
        if self.can_downgrade_without(&gone, rules) {
            return self.downgrade_without(ids, rules);
        }
        for id in ids {
            plan.changes.extend(removal(id));
            for timer in [Timer::Session, Timer::Revocation, Timer::Join, Timer::Sync] {
                plan.timers.push((timer(Arc::clone(id)), Alarm::Never));
            }
        }
        plan.changes.extend(self.forget_regexes(&gone));
        let names = self.topics_after(&gone, None);
        let metadata_hash = hash::metadata_hash(names.into_iter(), rules.topics);
        let epoch = self.epoch + 1;
        plan.changes.push(ConsumerChange::Epoch(Some(GroupEpoch { epoch, metadata_hash })));
        plan
    }
}

/// Partitions of a member that is away count as given to it long ago, whoever comes for them.
fn go_away(current: &CurrentAssignment) -> CurrentAssignment {
    let mut assigned: Epochs = current.assigned.clone();
    assigned.values_mut().flat_map(|partitions| partitions.values_mut()).for_each(|at| *at = 0);
    CurrentAssignment {
        epoch: STATIC_LEAVE_EPOCH,
        assigned,
        revoking: Epochs::new(),
        ..current.clone()
    }
}
