//! A classic group out of a consumer group that only members of the classic protocol are left in.
//!
//! Owns which plan ends a consumer group so: tombstones of all that it has, and the members as the
//! classic group begins with them. What each was to have becomes what it is assigned. Source:
//! KIP-848, Kafka's `convertToClassicGroup`.
//!
//! **Deviation**: what another member has yet to give up is left out, and stays that member's.
//! Kafka 4.3.1 goes by targets alone, so that a member which syncs at once, or after a restart,
//! consumes it while the other still does, or a new upgrade gives it to a third. Here nothing is
//! left without an owner, and what a member still consumes counts as its own until it joins again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ConsumerChange, ConsumerGroup, Member, MemberMetadata, Plan, Rules, Topics};
use crate::coordinator::group::assignor::Partitions;
use crate::coordinator::group::classic::subscription::NamedPartitions;
use crate::coordinator::group::conversion::{ClassicMember, ClassicMembers};

/// A static member that takes the place of another and speaks the classic protocol.
pub(super) struct Successor<'a> {
    /// The member that it takes the place of; perhaps itself.
    pub(super) of: &'a Arc<str>,
    /// Its id.
    pub(super) id: &'a Arc<str>,
    /// What it says of itself.
    pub(super) metadata: &'a MemberMetadata,
    /// Whether the others have to join again.
    pub(super) rebalances: bool,
}

impl ConsumerGroup {
    /// The classic group that remains without these members; it is to rebalance.
    pub(super) fn downgrade_without(&self, gone: &[&Arc<str>], rules: &Rules<'_>) -> Plan<()> {
        let gone: BTreeSet<&Arc<str>> = gone.iter().copied().collect();
        let left = self.members.iter().filter(|(id, _)| !gone.contains(id));
        let members = left.filter_map(|(id, member)| {
            classic_member(id, &member.metadata, named(&self.to_take_along(id), rules.topics))
        });
        let mut plan = Plan::new(());
        plan.changes = self.tombstones();
        plan.classic = Some(Box::new(ClassicMembers {
            generation: self.epoch,
            protocol: None,
            rebalances: true,
            members: members.collect(),
        }));
        plan
    }

    /// The classic group that remains once a member has another in its place. The records that put
    /// it there come before.
    pub(super) fn downgrade_with(
        &self,
        successor: &Successor<'_>,
        rules: &Rules<'_>,
    ) -> (Vec<ConsumerChange>, ClassicMembers) {
        let renamed =
            |id: &Arc<str>| Arc::clone(if id == successor.of { successor.id } else { id });
        let tombstones = self.tombstones_of(self.members.keys().map(renamed).collect());
        let member_of = |(id, member): (&Arc<str>, &Member)| {
            let metadata = if id == successor.of { successor.metadata } else { &*member.metadata };
            let assigned = named(&self.to_take_along(id), rules.topics);
            classic_member(&renamed(id), metadata, assigned)
        };
        let members = ClassicMembers {
            generation: self.epoch,
            protocol: None,
            rebalances: successor.rebalances,
            members: self.members.iter().filter_map(member_of).collect(),
        };
        (tombstones, members)
    }

    /// What a member has, and what it was to have without what another has yet to give up.
    fn to_take_along(&self, id: &Arc<str>) -> Partitions {
        let mut target = self.targets.get(id).map(|target| (**target).clone()).unwrap_or_default();
        for (topic, partitions) in &mut target {
            partitions.retain(|partition| {
                let owner = self.derived.owners.get(&(*topic, *partition));
                owner.is_none_or(|owner| owner == id)
            });
        }
        target.retain(|_, partitions| !partitions.is_empty());
        let current = self.members.get(id).map(|member| &member.current);
        let held = current.into_iter().flat_map(|it| it.assigned.iter().chain(&it.revoking));
        for (topic, partitions) in held {
            target.entry(*topic).or_default().extend(partitions.keys());
        }
        target
    }
}

/// `None` for a member that does not speak the classic protocol.
fn classic_member(
    id: &Arc<str>,
    metadata: &MemberMetadata,
    assigned: NamedPartitions,
) -> Option<ClassicMember> {
    let facts = metadata.classic.as_ref()?;
    Some(ClassicMember {
        id: Arc::clone(id),
        instance_id: metadata.instance_id.clone(),
        client_id: Arc::clone(&metadata.client_id),
        client_host: Arc::clone(&metadata.client_host),
        rebalance_timeout_ms: metadata.rebalance_timeout_ms,
        session_timeout_ms: facts.session_timeout_ms,
        protocols: facts.protocols.clone(),
        assigned,
    })
}

/// Partitions by the names of their topics, as far as these exist.
pub(super) fn named(partitions: &Partitions, topics: &dyn Topics) -> NamedPartitions {
    let by_name = partitions.iter().filter_map(|(id, partitions)| {
        Some((topics.name_of(*id)?, partitions.iter().copied().collect()))
    });
    by_name.collect()
}
