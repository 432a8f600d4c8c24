//! What tools are shown of a consumer group.
//!
//! Partitions of topics that are gone are left out, as nothing can be said of them. Source: KIP-848
//! and KIP-1099, Kafka's `ConsumerGroup.asDescribedGroup`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Assignor, ConsumerGroup, GroupState, MemberMetadata, Partitions, Topics,
    heartbeat::without_epochs,
};
use crate::ids::TopicId;

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedGroup {
    /// Its state.
    pub state: GroupState,
    /// Its epoch.
    pub epoch: i32,
    /// The epoch of its targets.
    pub target_epoch: i32,
    /// The assignor that it would use.
    pub assignor: Assignor,
    /// Its members by id.
    pub members: Vec<DescribedMember>,
}

/// A member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedMember {
    /// Its id.
    pub id: Arc<str>,
    /// Its epoch.
    pub epoch: i32,
    /// What it subscribes to, and who it is.
    pub metadata: Arc<MemberMetadata>,
    /// What it has, or has yet to give up.
    pub assigned: Vec<DescribedTopic>,
    /// What it is to have.
    pub target: Vec<DescribedTopic>,
}

/// Partitions of one topic.
pub type DescribedTopic = (TopicId, Arc<str>, BTreeSet<i32>);

impl GroupState {
    /// What tools call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::Assigning => "Assigning",
            GroupState::Reconciling => "Reconciling",
            GroupState::Stable => "Stable",
        }
    }
}

impl ConsumerGroup {
    /// All there is to be shown.
    #[must_use]
    pub fn describe(&self, assignors: &[Assignor], topics: &dyn Topics) -> DescribedGroup {
        let members = self.members.iter().map(|(id, member)| {
            let mut has = without_epochs(&member.current.assigned);
            for (topic, partitions) in &member.current.revoking {
                has.entry(*topic).or_default().extend(partitions.keys());
            }
            DescribedMember {
                id: Arc::clone(id),
                epoch: member.current.epoch,
                metadata: Arc::clone(&member.metadata),
                assigned: named(&has, topics),
                target: self.targets.get(id).map(|of| named(of, topics)).unwrap_or_default(),
            }
        });
        DescribedGroup {
            state: self.state(),
            epoch: self.epoch,
            target_epoch: self.target_epoch,
            assignor: self.preferred_assignor(assignors),
            members: members.collect(),
        }
    }
}

fn named(partitions: &Partitions, topics: &dyn Topics) -> Vec<DescribedTopic> {
    let known = partitions.iter().filter_map(|(id, partitions)| {
        topics.name_of(*id).map(|name| (*id, name, partitions.clone()))
    });
    known.collect()
}
