//! One member's way from what it has to what it is to have.
//!
//! First it gives up what it is not to have, and stays in its epoch until it says so. Then it
//! gets what nobody else has any more, and reaches the epoch of the target. A partition is given
//! to it only once no other member has it or has yet to give it up. A topic that the member does
//! not subscribe to, or that is gone, is given up at once, before a new target says so. Source:
//! Kafka's `CurrentAssignmentBuilder`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ConsumerGroup, Member, Partitions, Topics, real_regex, refusal};
use crate::coordinator::group::consumer::Refusal;
use crate::coordinator::group::record::consumer::{
    CurrentAssignment, Epochs, MemberMetadata, MemberState,
};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;

/// What one member's reconciliation depends on.
pub(super) struct Goal<'a> {
    /// The epoch of the target.
    pub(super) epoch: i32,
    /// What the member is to have.
    pub(super) target: &'a Partitions,
    /// Whether its subscription has changed just now.
    pub(super) resubscribed: bool,
    /// What it says that it has.
    pub(super) owned: Option<&'a Partitions>,
}

impl ConsumerGroup {
    /// Where the member goes from where it is; `None` if it stays there.
    pub(super) fn reconcile(
        &self,
        member: &Member,
        goal: &Goal<'_>,
        topics: &dyn Topics,
    ) -> Result<Option<CurrentAssignment>, Refusal> {
        let current = &*member.current;
        if !goal.resubscribed && current.has_reached(goal.epoch) {
            return Ok(None);
        }
        let subscribed = self.subscribed_ids(&member.metadata, topics);
        let next = match current.state {
            MemberState::Stable if current.epoch != goal.epoch => {
                self.advance(current, current.epoch, goal, &subscribed)
            }
            MemberState::Unrevoked if !has_any(goal.owned, &current.revoking) => {
                self.advance(current, current.epoch, goal, &subscribed)
            }
            MemberState::Stable | MemberState::Unrevoked if goal.resubscribed => {
                return Ok(drop_unsubscribed(current, goal, &subscribed));
            }
            MemberState::Stable | MemberState::Unrevoked => return Ok(None),
            MemberState::Unreleased => self.advance(current, current.epoch, goal, &subscribed),
            MemberState::Unknown(_) => {
                if goal.owned.is_none_or(|owned| !owned.is_empty()) {
                    let message = "The consumer group member is in a unknown state. The member \
                                   must abandon all its partitions and rejoin.";
                    return Err(refusal(ErrorCode::FencedMemberEpoch, message));
                }
                self.advance(current, goal.epoch, goal, &subscribed)
            }
        };
        Ok(Some(next).filter(|next| next != current))
    }

    fn advance(
        &self,
        current: &CurrentAssignment,
        epoch: i32,
        goal: &Goal<'_>,
        subscribed: &BTreeSet<TopicId>,
    ) -> CurrentAssignment {
        let is_target = |id: &TopicId, partition: &i32| {
            subscribed.contains(id)
                && goal.target.get(id).is_some_and(|target| target.contains(partition))
        };
        let (mut assigned, mut revoking) = (Epochs::new(), Epochs::new());
        for (id, partitions) in &current.assigned {
            for (partition, since) in partitions {
                let side = if is_target(id, partition) { &mut assigned } else { &mut revoking };
                side.entry(*id).or_default().insert(*partition, *since);
            }
        }
        if has_any(goal.owned, &revoking) {
            return CurrentAssignment {
                epoch,
                previous_epoch: current.epoch,
                state: MemberState::Unrevoked,
                assigned,
                revoking,
            };
        }
        let mut is_waiting = false;
        for (id, target) in goal.target.iter().filter(|(id, _)| subscribed.contains(*id)) {
            for &partition in target {
                if has(&assigned, *id, partition) {
                    continue;
                }
                // What the member itself has just given up is free.
                let is_taken = self.derived.owners.contains_key(&(*id, partition))
                    && !has(&current.revoking, *id, partition);
                if is_taken {
                    is_waiting = true;
                } else {
                    assigned.entry(*id).or_default().insert(partition, goal.epoch);
                }
            }
        }
        CurrentAssignment {
            epoch: goal.epoch,
            previous_epoch: current.epoch,
            state: if is_waiting { MemberState::Unreleased } else { MemberState::Stable },
            assigned,
            revoking: Epochs::new(),
        }
    }

    /// Ids of the topics that a member subscribes to, as far as they exist.
    pub(super) fn subscribed_ids(
        &self,
        metadata: &MemberMetadata,
        topics: &dyn Topics,
    ) -> BTreeSet<TopicId> {
        let resolved = real_regex(metadata).and_then(|regex| self.regexes.get(regex));
        let by_regex = resolved.iter().flat_map(|resolved| &resolved.topics);
        let names = metadata.topic_names.iter().chain(by_regex);
        let id = |name: &Arc<str>| topics.by_name(name).map(|topic| topic.id);
        names.filter_map(id).collect()
    }
}

/// What a member that keeps its epoch has to give up of topics it no longer subscribes to.
fn drop_unsubscribed(
    current: &CurrentAssignment,
    goal: &Goal<'_>,
    subscribed: &BTreeSet<TopicId>,
) -> Option<CurrentAssignment> {
    if current.assigned.keys().all(|id| subscribed.contains(id)) {
        return None;
    }
    let mut assigned = current.assigned.clone();
    let mut revoking = current.revoking.clone();
    assigned.retain(|id, partitions| {
        let is_kept = subscribed.contains(id);
        if !is_kept {
            revoking.entry(*id).or_default().extend(partitions.iter());
        }
        is_kept
    });
    let is_held = has_any(goal.owned, &revoking);
    Some(CurrentAssignment {
        epoch: current.epoch,
        previous_epoch: current.epoch,
        state: if is_held { MemberState::Unrevoked } else { current.state },
        assigned,
        revoking: if is_held { revoking } else { current.revoking.clone() },
    })
}

/// Whether the member still has some of these; if it says nothing it may have all.
fn has_any(owned: Option<&Partitions>, revoking: &Epochs) -> bool {
    if revoking.is_empty() {
        return false;
    }
    let Some(owned) = owned else { return true };
    owned
        .iter()
        .any(|(id, partitions)| partitions.iter().any(|&partition| has(revoking, *id, partition)))
}

pub(super) fn has(epochs: &Epochs, id: TopicId, partition: i32) -> bool {
    epochs.get(&id).is_some_and(|partitions| partitions.contains_key(&partition))
}
