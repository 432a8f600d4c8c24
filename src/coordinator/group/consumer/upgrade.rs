//! A consumer group out of a classic group with members.
//!
//! Its epoch is the generation, and what the leader assigned last is both what each member has and
//! what it is to have. So nobody is troubled by the conversion as such; the member that brings it
//! about raises the epoch, and the others are told to join again for that. Source: KIP-848, Kafka's
//! `convertToConsumerGroup`.
//!
//! **Deviation**: in the middle of a rebalance members may still consume what they had before, and
//! said so when they joined. That counts as theirs until they join again without it, unless another
//! was assigned it. Kafka 4.3.1 goes by assignments alone, and gives it to others at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Alarm, ConsumerChange, ConsumerGroup, CurrentAssignment, Epochs, GroupEpoch, MemberMetadata,
    MemberState, Partitions, Refusal, Rules, TargetEpoch, Timer, Topics, hash, refusal,
};
use crate::coordinator::group::classic::subscription::{NamedPartitions, Subscription};
use crate::coordinator::group::classic::{ClassicGroup, Unfit};
use crate::coordinator::group::conversion::{ClassicMember, ClassicMembers};
use crate::coordinator::group::record::consumer::ClassicFacts;
use crate::error_code::ErrorCode;
use crate::ids::TopicId;

impl ConsumerGroup {
    /// What a classic group with members becomes, and the records that make it so.
    ///
    /// # Errors
    /// 69 if it cannot become a consumer group, -1 if two of its members have the same partition.
    pub(in crate::coordinator::group) fn upgraded(
        id: &Arc<str>,
        classic: &ClassicGroup,
        rules: &Rules<'_>,
    ) -> Result<(ConsumerGroup, Vec<ConsumerChange>), Refusal> {
        check(id, classic, rules)?;
        let members = classic.members_to_convert().map_err(|unfit| unfit_to_upgrade(id, unfit))?;
        let changes =
            changes_of(&members, rules).ok_or_else(|| unfit_to_upgrade(id, Unfit::Malformed))?;
        let mut group = ConsumerGroup::new(Arc::clone(id));
        for change in &changes {
            if let ConsumerChange::Current(_, Some(current)) = change
                && super::places(&current.assigned)
                    .any(|place| group.derived.owners.contains_key(&place))
            {
                let message = format!("Two members of group {id} have the same partition.");
                return Err(refusal(ErrorCode::UnknownServerError, message));
            }
            group.apply(change);
        }
        Ok((group, changes))
    }

    /// Timers of members that have just come from a classic group.
    pub(in crate::coordinator::group) fn sessions_of_classic(
        &self,
        now_ms: i64,
    ) -> Vec<(Timer, Alarm)> {
        let session = |(id, member): (&Arc<str>, &super::Member)| {
            let facts = member.metadata.classic.as_ref()?;
            let due_ms = now_ms.saturating_add(i64::from(facts.session_timeout_ms));
            Some((Timer::Session(Arc::clone(id)), Alarm::At(due_ms)))
        };
        self.members.iter().filter_map(session).collect()
    }
}

fn check(id: &str, classic: &ClassicGroup, rules: &Rules<'_>) -> Result<(), Refusal> {
    let why = if !rules.policy.upgrades() {
        "online upgrade is disabled"
    } else if !classic.is_of_consumers() {
        "the group does not use the consumer embedded protocol"
    } else if classic.member_count() > rules.members_max {
        "the group size exceeds the consumer group maximum size"
    } else {
        return Ok(());
    };
    Err(cannot_upgrade(id, why))
}

fn unfit_to_upgrade(id: &str, unfit: Unfit) -> Refusal {
    cannot_upgrade(
        id,
        match unfit {
            Unfit::Malformed => "the embedded consumer protocol is malformed",
            Unfit::CustomAssignor => {
                "an unsupported custom assignor is in use. Please refer to the documentation or \
                 switch to a default assignor before re-attempting the upgrade"
            }
        },
    )
}

fn cannot_upgrade(id: &str, why: &str) -> Refusal {
    let message = format!("Cannot upgrade classic group {id} to consumer group because {why}.");
    refusal(ErrorCode::GroupIdNotFound, message)
}

/// `None` if a member's metadata is no subscription.
fn changes_of(from: &ClassicMembers, rules: &Rules<'_>) -> Option<Vec<ConsumerChange>> {
    let epoch = from.generation;
    let assigned: Vec<Partitions> =
        from.members.iter().map(|member| by_id(&member.assigned, rules.topics)).collect();
    let mut taken: BTreeSet<(TopicId, i32)> = assigned.iter().flat_map(each).collect();
    let (mut metadata, mut targets, mut currents) = (Vec::new(), Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for (member, mut assigned) in from.members.iter().zip(assigned) {
        let chosen = member.protocols.iter().find(|(name, _)| Some(name) == from.protocol.as_ref());
        let subscription = Subscription::read(&chosen?.1)?;
        let mut still = by_id(&subscription.owned, rules.topics);
        for (topic, partitions) in &mut still {
            partitions.retain(|partition| taken.insert((*topic, *partition)));
        }
        still.retain(|_, partitions| !partitions.is_empty());
        if assigned.is_empty() {
            assigned = std::mem::take(&mut still);
        }
        let current = CurrentAssignment {
            epoch,
            previous_epoch: epoch,
            state: if still.is_empty() { MemberState::Stable } else { MemberState::Unrevoked },
            assigned: since(&assigned, epoch),
            revoking: since(&still, epoch),
        };
        let id = || Arc::clone(&member.id);
        names.extend(subscription.topics.iter().map(Arc::clone));
        let subscribes = Arc::new(metadata_of(member, subscription));
        metadata.push(ConsumerChange::Member(id(), Some(subscribes)));
        targets.push(ConsumerChange::Target(id(), Some(Arc::new(assigned))));
        currents.push(ConsumerChange::Current(id(), Some(Arc::new(current))));
    }
    // Nobody may have been assigned anything yet: whoever comes next brings about a new target, as
    // he would if topics had changed.
    let metadata_hash = if from.rebalances {
        0
    } else {
        hash::metadata_hash(names.iter().map(|name| &**name), rules.topics)
    };
    let mut changes = metadata;
    changes.push(ConsumerChange::Epoch(Some(GroupEpoch { epoch, metadata_hash })));
    changes.extend(targets);
    changes.push(ConsumerChange::TargetEpoch(Some(TargetEpoch { epoch, at_ms: 0 })));
    changes.extend(currents);
    Some(changes)
}

fn each(partitions: &Partitions) -> impl Iterator<Item = (TopicId, i32)> {
    partitions.iter().flat_map(|(id, of)| of.iter().map(|partition| (*id, *partition)))
}

fn since(partitions: &Partitions, epoch: i32) -> Epochs {
    let with_epoch = |of: &BTreeSet<i32>| of.iter().map(|partition| (*partition, epoch)).collect();
    partitions.iter().map(|(id, of)| (*id, with_epoch(of))).collect()
}

fn metadata_of(member: &ClassicMember, subscription: Subscription) -> MemberMetadata {
    MemberMetadata {
        instance_id: member.instance_id.clone(),
        rack_id: subscription.rack_id,
        client_id: Arc::clone(&member.client_id),
        client_host: Arc::clone(&member.client_host),
        topic_names: subscription.topics.into_iter().collect(),
        topic_regex: Some("".into()),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        assignor: None,
        classic: Some(ClassicFacts {
            session_timeout_ms: member.session_timeout_ms,
            protocols: member.protocols.clone(),
        }),
    }
}

/// Partitions by the ids of their topics, as far as these exist.
pub(super) fn by_id(partitions: &NamedPartitions, topics: &dyn Topics) -> Partitions {
    let mut known = Partitions::new();
    for (name, partitions) in partitions.iter().filter(|(_, partitions)| !partitions.is_empty()) {
        if let Some(topic) = topics.by_name(name) {
            known.entry(topic.id).or_default().extend(partitions);
        }
    }
    known
}
