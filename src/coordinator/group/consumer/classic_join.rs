//! JoinGroup to a consumer group: a member that speaks the classic protocol joins, or joins again.
//!
//! Its generation is its member epoch, it never leads, and what it is assigned it learns by
//! SyncGroup at once: joining is one step towards its target, as a heartbeat is for others. What it
//! says that it has, in its subscription, counts as what it has. One that takes the place of the
//! last static member of the other protocol leaves a group of classic members only, which becomes a
//! classic group. Source: KIP-848, Kafka's `classicGroupJoinToConsumerGroup`.
//!
//! **Deviation**: such a classic group is stable at once only if all others have reached the newest
//! target; else they join again. In Kafka 4.3.1 one that still waits for partitions is never told
//! that they are its own now, and nobody consumes them.

use std::sync::Arc;

use super::downgrade::Successor;
use super::heartbeat::{Found, check_holder, unknown_instance};
use super::reconcile::Goal;
use super::target::Newcomer;
use super::upgrade::by_id;
use super::{
    Alarm, ConsumerGroup, Member, MemberMetadata, MigrationPolicy, Plan, Refusal, Rules, Timer,
    alarm, refusal,
};
use crate::coordinator::group::classic::join::{Join, KNOWN_ID_SINCE};
use crate::coordinator::group::classic::subscription::{CONSUMER, Subscription};
use crate::coordinator::group::outcome::JoinAnswer;
use crate::coordinator::group::record::consumer::ClassicFacts;
use crate::error_code::ErrorCode;

impl ConsumerGroup {
    /// What JoinGroup comes to in a group with members.
    ///
    /// # Errors
    /// 23 for what the group does not take, 81 if it is full, 25 and 82 for an instance id that is
    /// not this member's, -1 for metadata that is none.
    pub(in crate::coordinator::group) fn join_classic(
        &self,
        join: &Join,
        rules: &Rules<'_>,
    ) -> Result<Plan<JoinAnswer>, Refusal> {
        if rules.policy == MigrationPolicy::Disabled {
            return Err(inconsistent("migration of groups is disabled"));
        }
        let is_unknown = join.member_id.is_empty();
        let id = if is_unknown { &join.unique } else { &join.member_id };
        self.check_size(id, rules)?;
        if !self.accepts(join) {
            return Err(inconsistent("its protocols are not those of the group"));
        }
        if is_unknown && join.instance_id.is_none() && join.version >= KNOWN_ID_SINCE {
            let answer = JoinAnswer::failed(ErrorCode::MemberIdRequired, Arc::clone(id));
            return Ok(Plan::new(answer));
        }
        let mut plan = Plan::new(());
        let found = self.find_classic(join, id, &mut plan)?;
        let subscription = join.protocols.first().and_then(|it| Subscription::read(&it.metadata));
        let subscription = subscription.ok_or_else(|| {
            refusal(ErrorCode::UnknownServerError, "The subscription of the member is malformed.")
        })?;
        let metadata = Arc::new(metadata_of(join, &subscription, &found.member.metadata));
        let is_resubscribed = self.subscribe(id, &found, &metadata, rules, &mut plan)?;
        let owned = by_id(&subscription.owned, rules.topics);
        let member = Member { metadata, current: Arc::clone(&found.member.current) };
        let moving = Moving { id, found: &found, member, is_resubscribed, owned: &owned };
        let epoch = match self.static_to_succeed(join, rules) {
            Some(holder) => self.succeed(holder, &moving, rules, &mut plan)?,
            None => self.move_classic(&moving, join, rules, &mut plan)?,
        };
        let answer = JoinAnswer {
            error: ErrorCode::None,
            generation: epoch,
            protocol_type: Some(CONSUMER.into()),
            protocol: join.protocols.first().map(|protocol| Arc::clone(&protocol.name)),
            ..JoinAnswer::failed(ErrorCode::None, Arc::clone(id))
        };
        let Plan { changes, timers, classic, .. } = plan;
        Ok(Plan { changes, answer, timers, classic })
    }

    /// Whether the member speaks a protocol that all members of the classic protocol do.
    fn accepts(&self, join: &Join) -> bool {
        let all_speak = |name: &Arc<str>| {
            self.derived.protocols.get(name).copied().unwrap_or(0) == self.derived.classic
        };
        &*join.protocol_type == CONSUMER
            && join.protocols.iter().any(|protocol| all_speak(&protocol.name))
    }

    fn find_classic(
        &self,
        join: &Join,
        id: &Arc<str>,
        plan: &mut Plan<()>,
    ) -> Result<Found, Refusal> {
        let known =
            |member: &Member| Found { member: member.clone(), replaces: None, is_new: false };
        let Some(instance_id) = &join.instance_id else {
            let newcomer = || Found { member: Member::default(), replaces: None, is_new: true };
            return Ok(self.members.get(id).map_or_else(newcomer, known));
        };
        match self.instance(instance_id) {
            None if join.member_id.is_empty() => {
                Ok(Found { member: Member::default(), replaces: None, is_new: true })
            }
            None => Err(unknown_instance(instance_id)),
            Some((holder, member)) if join.member_id.is_empty() => {
                Ok(self.replace(holder, member, id, plan))
            }
            Some((holder, member)) => {
                check_holder(holder, id, instance_id)?;
                Ok(known(member))
            }
        }
    }

    /// The last member that does not speak the classic protocol, if this one takes its place and
    /// the group may become a classic group.
    fn static_to_succeed(&self, join: &Join, rules: &Rules<'_>) -> Option<&Arc<str>> {
        let (holder, member) = self.instance(join.instance_id.as_ref()?)?;
        let is_last =
            member.metadata.classic.is_none() && self.derived.classic + 1 == self.members.len();
        let may = rules.policy.downgrades() && self.members.len() <= rules.classic_members_max;
        (is_last && may).then_some(holder)
    }

    /// Plans the downgrade; returns the member's epoch. If everybody else has what he is to have by
    /// the newest target, so has this one at once, and nobody is troubled.
    fn succeed(
        &self,
        holder: &Arc<str>,
        moving: &Moving<'_>,
        rules: &Rules<'_>,
        plan: &mut Plan<()>,
    ) -> Result<i32, Refusal> {
        let is_settled = |(id, member): (&Arc<str>, &Member)| {
            id == holder || member.current.has_reached(self.target_epoch)
        };
        let rebalances =
            self.target_epoch < self.epoch_after(plan) || !self.members.iter().all(is_settled);
        let mut epoch = moving.member.current.epoch;
        if !rebalances {
            let target = self.targets.get(holder).cloned().unwrap_or_default();
            let goal = moving.goal(self.target_epoch, &target);
            epoch = self.move_on(moving.id, &moving.member, &goal, rules, plan)?.epoch;
        }
        let metadata = &moving.member.metadata;
        let successor = Successor { of: holder, id: moving.id, metadata, rebalances };
        let (tombstones, members) = self.downgrade_with(&successor, rules);
        plan.changes.extend(tombstones);
        plan.classic = Some(Box::new(members));
        Ok(epoch)
    }

    /// Plans the member's next step towards its target, and its timers; returns its epoch.
    fn move_classic(
        &self,
        moving: &Moving<'_>,
        join: &Join,
        rules: &Rules<'_>,
        plan: &mut Plan<()>,
    ) -> Result<i32, Refusal> {
        let newcomer = Newcomer {
            id: moving.id,
            metadata: &moving.member.metadata,
            replaces: moving.found.replaces.as_ref(),
        };
        let (target_epoch, target, changes) =
            self.next_target(self.epoch_after(plan), &newcomer, rules);
        plan.changes.extend(changes);
        let goal = moving.goal(target_epoch, &target);
        let epoch = self.move_on(moving.id, &moving.member, &goal, rules, plan)?.epoch;
        let id = || Arc::clone(moving.id);
        plan.timers.push((Timer::Join(id()), Alarm::Never));
        plan.timers.push((Timer::Revocation(id()), Alarm::Never));
        plan.timers.push(alarm(Timer::Session(id()), rules, join.session_timeout_ms));
        plan.timers.push(alarm(Timer::Sync(id()), rules, join.rebalance_timeout_ms));
        Ok(epoch)
    }
}

/// The member that joins, as it was and as it will be.
struct Moving<'a> {
    id: &'a Arc<str>,
    found: &'a Found,
    member: Member,
    is_resubscribed: bool,
    owned: &'a super::Partitions,
}

impl<'a> Moving<'a> {
    fn goal(&self, epoch: i32, target: &'a super::Partitions) -> Goal<'a> {
        Goal { epoch, target, resubscribed: self.is_resubscribed, owned: Some(self.owned) }
    }
}

fn metadata_of(join: &Join, subscription: &Subscription, old: &MemberMetadata) -> MemberMetadata {
    let protocols = join.protocols.iter();
    MemberMetadata {
        instance_id: join.instance_id.clone().or_else(|| old.instance_id.clone()),
        rack_id: subscription.rack_id.clone().or_else(|| old.rack_id.clone()),
        client_id: Arc::clone(&join.client_id),
        client_host: Arc::clone(&join.client_host),
        topic_names: subscription.topics.iter().cloned().collect(),
        topic_regex: Some("".into()),
        rebalance_timeout_ms: match join.rebalance_timeout_ms {
            -1 => old.rebalance_timeout_ms,
            timeout_ms => timeout_ms,
        },
        assignor: old.assignor.clone(),
        classic: Some(ClassicFacts {
            session_timeout_ms: join.session_timeout_ms,
            protocols: protocols.map(|it| (Arc::clone(&it.name), it.metadata.clone())).collect(),
        }),
    }
}

fn inconsistent(why: &str) -> Refusal {
    let message = format!("The member cannot join the consumer group: {why}.");
    refusal(ErrorCode::InconsistentGroupProtocol, message)
}
