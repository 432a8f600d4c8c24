//! The target assignment of a group: computed anew when its epoch has risen.
//!
//! Owns the choice of the assignor and the question it is asked. Members' ids stand for the
//! instances of static members: one that came back takes over the target of the one that it
//! replaces. Only what differs from the last target is written. Source: Kafka's
//! `TargetAssignmentBuilder`, KIP-848.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::{
    Assignor, ConsumerChange, ConsumerGroup, MemberMetadata, Partitions, Rules, TargetEpoch,
};
use crate::coordinator::group::assignor::Subscriber;
use crate::ids::TopicId;

/// The member whose request makes the group compute a target, as it will be.
pub(super) struct Newcomer<'a> {
    /// Its id.
    pub(super) id: &'a Arc<str>,
    /// What it subscribes to.
    pub(super) metadata: &'a MemberMetadata,
    /// The member it takes the place of.
    pub(super) replaces: Option<&'a Arc<str>>,
}

impl ConsumerGroup {
    /// The epoch of the newest target and what it has for the newcomer; with the changes that make
    /// it so, if `epoch` is newer than the last one and its time has come.
    pub(super) fn next_target(
        &self,
        epoch: i32,
        newcomer: &Newcomer<'_>,
        rules: &Rules<'_>,
    ) -> (i32, Arc<Partitions>, Vec<ConsumerChange>) {
        let before = self.targets.get(newcomer.replaces.unwrap_or(newcomer.id));
        let is_due = self.target_at_ms == 0
            || rules.assignment_interval_ms == 0
            // The clock has been put back since: nobody waits until it has come round.
            || rules.now.wall_ms < self.target_at_ms
            || rules.now.wall_ms
                >= self.target_at_ms.saturating_add(i64::from(rules.assignment_interval_ms));
        if self.target_epoch >= epoch || !is_due {
            return (self.target_epoch, before.cloned().unwrap_or_default(), Vec::new());
        }
        let mut metadata: BTreeMap<&Arc<str>, &MemberMetadata> =
            self.members.iter().map(|(id, member)| (id, &*member.metadata)).collect();
        if let Some(replaced) = newcomer.replaces {
            metadata.remove(replaced);
        }
        metadata.insert(newcomer.id, newcomer.metadata);
        let assigned = self.ask(&metadata, newcomer, rules);
        let mut changes = Vec::new();
        let mut own = Arc::default();
        for (id, partitions) in metadata.keys().zip(assigned) {
            let partitions = Arc::new(partitions);
            let is_own = *id == newcomer.id;
            let last = if is_own { before } else { self.targets.get(*id) };
            if last != Some(&partitions) {
                changes.push(ConsumerChange::Target(Arc::clone(id), Some(Arc::clone(&partitions))));
            }
            if is_own {
                own = partitions;
            }
        }
        let target_epoch = TargetEpoch { epoch, at_ms: rules.now.wall_ms };
        changes.push(ConsumerChange::TargetEpoch(Some(target_epoch)));
        (epoch, own, changes)
    }

    fn ask(
        &self,
        metadata: &BTreeMap<&Arc<str>, &MemberMetadata>,
        newcomer: &Newcomer<'_>,
        rules: &Rules<'_>,
    ) -> Vec<Partitions> {
        let nothing = Partitions::new();
        let mut counts: BTreeMap<TopicId, i32> = BTreeMap::new();
        let mut subscribers: Vec<Subscriber<'_>> = Vec::with_capacity(metadata.len());
        let mut last: Option<(&MemberMetadata, Rc<BTreeSet<TopicId>>)> = None;
        for (id, metadata) in metadata {
            // Most members of a group subscribe to the same.
            let is_alike = |other: &MemberMetadata| {
                other.topic_names == metadata.topic_names
                    && other.topic_regex == metadata.topic_regex
            };
            let topics = match &last {
                Some((other, topics)) if is_alike(other) => Rc::clone(topics),
                _ => Rc::new(self.counted_ids(metadata, &mut counts, rules)),
            };
            last = Some((metadata, Rc::clone(&topics)));
            let known_as = match newcomer.replaces {
                Some(replaced) if *id == newcomer.id => replaced,
                _ => id,
            };
            subscribers.push(Subscriber {
                member_id: id,
                instance_id: metadata.instance_id.as_deref(),
                topics,
                before: self.targets.get(known_as).map_or(&nothing, |target| target),
            });
        }
        let assignor = preferred(metadata.values().copied(), rules.assignors);
        assignor.assign(&subscribers, &counts)
    }

    fn counted_ids(
        &self,
        metadata: &MemberMetadata,
        counts: &mut BTreeMap<TopicId, i32>,
        rules: &Rules<'_>,
    ) -> BTreeSet<TopicId> {
        let ids = self.subscribed_ids(metadata, rules.topics);
        for id in &ids {
            if !counts.contains_key(id)
                && let Some(name) = rules.topics.name_of(*id)
                && let Some(topic) = rules.topics.by_name(&name)
            {
                counts.insert(*id, topic.partitions);
            }
        }
        ids
    }

    /// The assignor that most members would have.
    pub(super) fn preferred_assignor(&self, assignors: &[Assignor]) -> Assignor {
        preferred(self.members.values().map(|member| &*member.metadata), assignors)
    }
}

/// The first of those that most members would have; the default if none says anything.
fn preferred<'a>(
    members: impl Iterator<Item = &'a MemberMetadata>,
    assignors: &[Assignor],
) -> Assignor {
    let mut votes = vec![0_usize; assignors.len()];
    for name in members.filter_map(|member| member.assignor.as_deref()) {
        if let Some(place) = assignors.iter().position(|assignor| assignor.name() == name) {
            votes[place] += 1;
        }
    }
    let most = votes.iter().copied().max().unwrap_or(0);
    let place = votes.iter().position(|count| *count == most).unwrap_or(0);
    assignors.get(place).copied().unwrap_or(Assignor::Uniform)
}
