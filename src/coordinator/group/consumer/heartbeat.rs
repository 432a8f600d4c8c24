//! ConsumerGroupHeartbeat: joining, staying and rejoining.
//!
//! A heartbeat that changes nothing allocates nothing (`benches/groups.rs`). One may change the
//! member's subscription, which raises the group's epoch; a group whose epoch is ahead of its
//! target gets a new target; a member that is behind its target is moved towards it. A member whose
//! last answer was lost may come with its previous epoch, provided that it has nothing that it
//! should not. Source: KIP-848, Kafka's `consumerGroupHeartbeat`.
//!
//! **Deviation**: a static member that comes again with epoch 0 and its own member id has lost the
//! answer to its join: it gets its assignment again. Kafka 4.3.1 refuses it for as long as the
//! session of the lost join lasts (apache/kafka#23542).

use std::sync::Arc;

use super::reconcile::Goal;
use super::regex::RegexChange;
use super::target::Newcomer;
use super::{
    Alarm, Assignor, ConsumerChange, ConsumerGroup, CurrentAssignment, Epochs, GroupEpoch,
    LEAVE_EPOCH, Member, MemberMetadata, MemberState, Partitions, Plan, Refusal, Rules,
    STATIC_LEAVE_EPOCH, Timer, alarm, refusal,
};
use crate::error_code::ErrorCode;

/// A heartbeat, as it came; its nulls are `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The group.
    pub group: Arc<str>,
    /// The member; empty only in version 0, before it has one.
    pub member_id: Arc<str>,
    /// The member's epoch; 0 joins, -1 leaves, -2 leaves for a while.
    pub member_epoch: i32,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// Rack.
    pub rack_id: Option<Arc<str>>,
    /// How long giving up partitions may take; -1 is as before.
    pub rebalance_timeout_ms: i32,
    /// Topics by name.
    pub topic_names: Option<Vec<Arc<str>>>,
    /// Topics by expression.
    pub topic_regex: Option<Arc<str>>,
    /// Assignor.
    pub assignor: Option<Arc<str>>,
    /// What the member has.
    pub owned: Option<Partitions>,
    /// Client id of the connection.
    pub client_id: Arc<str>,
    /// Client address of the connection, with a slash before it.
    pub client_host: Arc<str>,
}

/// What a member is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswer {
    /// Its id.
    pub member_id: Arc<str>,
    /// Its epoch.
    pub member_epoch: i32,
    /// When to come again.
    pub heartbeat_interval_ms: i32,
    /// What it may have; `None` for what it had.
    pub assignment: Option<Partitions>,
}

/// The member that a heartbeat is of, as it is before it.
pub(super) struct Found {
    pub(super) member: Member,
    pub(super) replaces: Option<Arc<str>>,
    pub(super) is_new: bool,
}

impl Heartbeat {
    /// What can be said of it without the group.
    ///
    /// # Errors
    /// 42 for what no client sends, 112 for an assignor that is not there.
    pub fn check(&self, version: i16, assignors: &[Assignor]) -> Result<(), Refusal> {
        let invalid = |message: &str| Err(refusal(ErrorCode::InvalidRequest, message));
        let is_blank = |text: &Option<Arc<str>>| text.as_ref().is_some_and(|id| is_empty(id));
        let epoch = self.member_epoch;
        let needs_id = version >= 1 || epoch > 0 || epoch == LEAVE_EPOCH;
        if needs_id && is_empty(&self.member_id) {
            return invalid("MemberId can't be empty.");
        }
        if is_empty(&self.group) {
            return invalid("GroupId can't be empty.");
        }
        if is_blank(&self.instance_id) {
            return invalid("InstanceId can't be empty.");
        }
        if is_blank(&self.rack_id) {
            return invalid("RackId can't be empty.");
        }
        if epoch == 0 {
            if self.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if self.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            if self.topic_names.is_none() && self.topic_regex.is_none() {
                return invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
                     (re-)joining.",
                );
            }
        } else if epoch == STATIC_LEAVE_EPOCH && self.instance_id.is_none() {
            return invalid("InstanceId can't be null.");
        } else if epoch < STATIC_LEAVE_EPOCH {
            return invalid("MemberEpoch is invalid.");
        }
        let is_known = |wanted: &str| assignors.iter().any(|assignor| assignor.name() == wanted);
        match &self.assignor {
            Some(wanted) if !is_known(wanted) => {
                let names: Vec<&str> = assignors.iter().map(|assignor| assignor.name()).collect();
                let known = names.join(", ");
                let message = format!(
                    "ServerAssignor {wanted} is not supported. Supported assignors: {known}."
                );
                Err(refusal(ErrorCode::UnsupportedAssignor, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether the member says all there is, as it does when it is not sure what it was told.
    fn is_full(&self) -> bool {
        self.rebalance_timeout_ms != -1
            && (self.topic_names.is_some() || self.topic_regex.is_some())
            && self.owned.is_some()
    }

    fn says_the_same(&self, old: &MemberMetadata) -> bool {
        let same = |new: &Option<Arc<str>>, old: &Option<Arc<str>>| new.is_none() || new == old;
        old.classic.is_none()
            && old.client_id == self.client_id
            && old.client_host == self.client_host
            && same(&self.instance_id, &old.instance_id)
            && same(&self.rack_id, &old.rack_id)
            && same(&self.topic_regex, &old.topic_regex)
            && same(&self.assignor, &old.assignor)
            && matches!(self.rebalance_timeout_ms, timeout_ms
                if timeout_ms == -1 || timeout_ms == old.rebalance_timeout_ms)
            && self.topic_names.as_ref().is_none_or(|names| {
                names.iter().all(|name| old.topic_names.contains(name))
                    && old.topic_names.iter().all(|name| names.contains(name))
            })
    }

    fn update(&self, old: &MemberMetadata) -> MemberMetadata {
        let or = |new: &Option<Arc<str>>, old: &Option<Arc<str>>| new.clone().or(old.clone());
        let names = self.topic_names.as_ref().map(|names| names.iter().cloned().collect());
        MemberMetadata {
            instance_id: or(&self.instance_id, &old.instance_id),
            rack_id: or(&self.rack_id, &old.rack_id),
            client_id: Arc::clone(&self.client_id),
            client_host: Arc::clone(&self.client_host),
            topic_names: names.unwrap_or_else(|| old.topic_names.clone()),
            // None is written as an empty one, as Kafka does.
            topic_regex: or(&self.topic_regex, &old.topic_regex).or_else(|| Some("".into())),
            rebalance_timeout_ms: match self.rebalance_timeout_ms {
                -1 => old.rebalance_timeout_ms,
                timeout_ms => timeout_ms,
            },
            assignor: or(&self.assignor, &old.assignor),
            classic: None,
        }
    }
}

impl ConsumerGroup {
    /// What a heartbeat with an epoch of 0 or more comes to; [`Heartbeat::check`] was content.
    ///
    /// # Errors
    /// See the codes of KIP-848: 25, 81, 82, 110, 111, 128.
    pub fn heartbeat(
        &self,
        request: &Heartbeat,
        rules: &Rules<'_>,
    ) -> Result<Plan<HeartbeatAnswer>, Refusal> {
        self.check_size(&request.member_id, rules)?;
        let mut plan = Plan::new(());
        let found = self.find(request, &mut plan)?;
        let old = &*found.member.metadata;
        let id = &request.member_id;
        let metadata = if !found.is_new && request.says_the_same(old) {
            Arc::clone(&found.member.metadata)
        } else {
            Arc::new(request.update(old))
        };
        let is_resubscribed = self.subscribe(id, &found, &metadata, rules, &mut plan)?;
        let goal_of = Newcomer { id, metadata: &metadata, replaces: found.replaces.as_ref() };
        let epoch = self.epoch_after(&plan);
        let (target_epoch, target, changes) = self.next_target(epoch, &goal_of, rules);
        plan.changes.extend(changes);
        let member = Member { metadata, current: Arc::clone(&found.member.current) };
        let goal = Goal {
            epoch: target_epoch,
            target: &target,
            resubscribed: is_resubscribed,
            owned: request.owned.as_ref(),
        };
        let current = self.move_on(id, &member, &goal, rules, &mut plan)?;
        plan.timers.push(alarm(Timer::Session(Arc::clone(id)), rules, rules.session_timeout_ms));
        if old.classic.is_some() {
            // It speaks the other protocol from now on.
            let both = [Timer::Join(Arc::clone(id)), Timer::Sync(Arc::clone(id))];
            plan.timers.extend(both.map(|timer| (timer, Alarm::Never)));
        }
        let is_told = request.member_epoch == 0
            || request.is_full()
            || current.assigned != found.member.current.assigned;
        let answer = HeartbeatAnswer {
            member_id: Arc::clone(id),
            member_epoch: current.epoch,
            heartbeat_interval_ms: rules.heartbeat_interval_ms,
            assignment: is_told.then(|| without_epochs(&current.assigned)),
        };
        Ok(Plan { changes: plan.changes, answer, timers: plan.timers, classic: None })
    }

    pub(super) fn check_size(&self, member_id: &str, rules: &Rules<'_>) -> Result<(), Refusal> {
        if self.members.len() >= rules.members_max && !self.members.contains_key(member_id) {
            let message = format!(
                "The consumer group has reached its maximum capacity of {} members.",
                rules.members_max
            );
            return Err(refusal(ErrorCode::GroupMaxSizeReached, message));
        }
        Ok(())
    }

    fn find(&self, request: &Heartbeat, plan: &mut Plan<()>) -> Result<Found, Refusal> {
        let id = &request.member_id;
        let joins = request.member_epoch == 0;
        let known =
            |member: &Member| Found { member: member.clone(), replaces: None, is_new: false };
        let newcomer = || Found { member: Member::default(), replaces: None, is_new: true };
        let Some(instance_id) = &request.instance_id else {
            let Some(member) = self.members.get(id) else {
                return if joins { Ok(newcomer()) } else { Err(self.unknown(id)) };
            };
            check_epoch(request, &member.current)?;
            return Ok(known(member));
        };
        match self.instance(instance_id) {
            Some((holder, member)) if !joins => {
                check_holder(holder, id, instance_id)?;
                check_epoch(request, &member.current)?;
                Ok(known(member))
            }
            None if !joins => Err(unknown_instance(instance_id)),
            None => Ok(self.members.get(id).map_or_else(newcomer, known)),
            Some((holder, member)) => {
                let is_away = member.current.epoch == STATIC_LEAVE_EPOCH;
                if holder == id && !is_away {
                    return Ok(known(member));
                }
                if !is_away && member.metadata.classic.is_none() {
                    let message = format!(
                        "Static member {id} with instance id {instance_id} cannot join the group \
                         because the instance id is owned by {holder} member."
                    );
                    return Err(refusal(ErrorCode::UnreleasedInstanceId, message));
                }
                Ok(self.replace(holder, member, id, plan))
            }
        }
    }

    /// The member that takes the place of a static one, with all that it had.
    pub(super) fn replace(
        &self,
        holder: &Arc<str>,
        member: &Member,
        id: &Arc<str>,
        plan: &mut Plan<()>,
    ) -> Found {
        let (member, changes) = self.replacement(holder, member, id);
        plan.changes.extend(changes);
        if holder != id {
            for timer in [Timer::Session, Timer::Revocation, Timer::Join, Timer::Sync] {
                plan.timers.push((timer(Arc::clone(holder)), Alarm::Never));
            }
        }
        Found { member, replaces: Some(Arc::clone(holder)), is_new: false }
    }

    pub(super) fn replacement(
        &self,
        holder: &Arc<str>,
        member: &Member,
        id: &Arc<str>,
    ) -> (Member, Vec<ConsumerChange>) {
        let current =
            CurrentAssignment { epoch: 0, previous_epoch: 0, ..(*member.current).clone() };
        let member = Member { metadata: Arc::clone(&member.metadata), current: Arc::new(current) };
        let mut changes = removal(holder);
        let metadata = Some(Arc::clone(&member.metadata));
        changes.push(ConsumerChange::Member(Arc::clone(id), metadata));
        let target = self.targets.get(holder).cloned().unwrap_or_default();
        changes.push(ConsumerChange::Target(Arc::clone(id), Some(target)));
        changes.push(ConsumerChange::Current(Arc::clone(id), Some(Arc::clone(&member.current))));
        (member, changes)
    }

    /// Plans a member's subscription and what it means for the group; says whether it is another.
    pub(super) fn subscribe(
        &self,
        id: &Arc<str>,
        found: &Found,
        metadata: &Arc<MemberMetadata>,
        rules: &Rules<'_>,
        plan: &mut Plan<()>,
    ) -> Result<bool, Refusal> {
        let old = &found.member.metadata;
        let is_updated = found.is_new || old != metadata;
        if is_updated {
            let value = Some(Arc::clone(metadata));
            plan.changes.push(ConsumerChange::Member(Arc::clone(id), value));
        }
        let names_changed = is_updated && old.topic_names != metadata.topic_names;
        let regex = self.change_regex(old, metadata, rules, plan)?;
        let is_bumped = names_changed || regex == RegexChange::Resolved;
        let own = &found.member;
        let without = if found.is_new { &[] } else { std::slice::from_ref(&own) };
        self.check_topics(is_bumped, without, metadata, rules, plan);
        Ok(names_changed || regex != RegexChange::None)
    }

    /// Raises the epoch if it must be, or if topics are not what they were.
    pub(super) fn check_topics(
        &self,
        is_bumped: bool,
        without: &[&Member],
        metadata: &MemberMetadata,
        rules: &Rules<'_>,
        plan: &mut Plan<()>,
    ) {
        let version = rules.topics.version();
        if !is_bumped && self.soft.hash_checked_at.get() == version {
            return;
        }
        let metadata_hash = self.hash_after(without, Some(metadata), rules.topics);
        if is_bumped || metadata_hash != self.metadata_hash {
            let epoch = self.epoch + 1;
            plan.changes.push(ConsumerChange::Epoch(Some(GroupEpoch { epoch, metadata_hash })));
        } else {
            self.soft.hash_checked_at.set(version);
        }
        if self.has_old_topics {
            plan.changes.push(ConsumerChange::OldTopics(false));
        }
    }

    /// The group's epoch once a plan is done.
    pub(super) fn epoch_after(&self, plan: &Plan<()>) -> i32 {
        let mut epochs = plan.changes.iter().filter_map(|change| match change {
            ConsumerChange::Epoch(Some(of)) => Some(of.epoch),
            _ => None,
        });
        epochs.next_back().unwrap_or(self.epoch)
    }

    /// Plans a member's next step towards its target, and the time it has for it.
    pub(super) fn move_on(
        &self,
        id: &Arc<str>,
        member: &Member,
        goal: &Goal<'_>,
        rules: &Rules<'_>,
        plan: &mut Plan<()>,
    ) -> Result<Arc<CurrentAssignment>, Refusal> {
        let Some(next) = self.reconcile(member, goal, rules.topics)? else {
            return Ok(Arc::clone(&member.current));
        };
        let next = Arc::new(next);
        plan.changes.push(ConsumerChange::Current(Arc::clone(id), Some(Arc::clone(&next))));
        if member.metadata.classic.is_none() {
            let timer = Timer::Revocation(Arc::clone(id));
            plan.timers.push(if next.state == MemberState::Unrevoked {
                alarm(timer, rules, member.metadata.rebalance_timeout_ms)
            } else {
                (timer, Alarm::Never)
            });
        }
        Ok(next)
    }

    pub(super) fn unknown(&self, member_id: &str) -> Refusal {
        let message = format!("Member {member_id} is not a member of group {}.", self.id);
        refusal(ErrorCode::UnknownMemberId, message)
    }
}

pub(super) fn unknown_instance(instance_id: &str) -> Refusal {
    refusal(ErrorCode::UnknownMemberId, format!("Instance id {instance_id} is unknown."))
}

pub(super) fn check_holder(
    holder: &str,
    member_id: &str,
    instance_id: &str,
) -> Result<(), Refusal> {
    if holder == member_id {
        return Ok(());
    }
    let message = format!(
        "Static member {member_id} with instance id {instance_id} was fenced by member {holder}."
    );
    Err(refusal(ErrorCode::FencedInstanceId, message))
}

/// The tombstones of a member, in the order in which they must be read.
pub(super) fn removal(id: &Arc<str>) -> Vec<ConsumerChange> {
    vec![
        ConsumerChange::Current(Arc::clone(id), None),
        ConsumerChange::Target(Arc::clone(id), None),
        ConsumerChange::Member(Arc::clone(id), None),
    ]
}

fn check_epoch(request: &Heartbeat, current: &CurrentAssignment) -> Result<(), Refusal> {
    let (received, known) = (request.member_epoch, current.epoch);
    let fenced = |how: &str| {
        let message = format!(
            "The consumer group member has a {how} member epoch ({received}) than the one known \
             by the group coordinator ({known}). The member must abandon all its partitions and \
             rejoin."
        );
        Err(refusal(ErrorCode::FencedMemberEpoch, message))
    };
    if received == 0 || received == known {
        return Ok(());
    }
    if received > known {
        return fenced("greater");
    }
    let is_subset = request.owned.as_ref().is_some_and(|owned| {
        owned.iter().all(|(id, partitions)| {
            let assigned = current.assigned.get(id);
            partitions.iter().all(|it| assigned.is_some_and(|known| known.contains_key(it)))
        })
    });
    // The answer that told it of its epoch was lost.
    if received == current.previous_epoch && is_subset { Ok(()) } else { fenced("smaller") }
}

fn is_empty(text: &str) -> bool {
    text.trim().is_empty()
}

pub(super) fn without_epochs(epochs: &Epochs) -> Partitions {
    epochs.iter().map(|(id, partitions)| (*id, partitions.keys().copied().collect())).collect()
}
