//! Assignors of consumer groups: which member gets which partition.
//!
//! Pure functions of the members, what they subscribe to, and what each was to have before. Every
//! partition of a subscribed topic gets exactly one member, who subscribes to it. The same question
//! always has the same answer. Must never look at a clock, a hash map's order or a catalog. Source:
//! KIP-848, Kafka's `UniformAssignor` and `RangeAssignor`; racks are ignored, as there.

mod range;
mod uniform;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::ids::TopicId;

/// Partitions by topic; no topic is without any.
pub type Partitions = BTreeMap<TopicId, BTreeSet<i32>>;

/// How a group's partitions are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignor {
    /// Evenly over all topics, moving as little as possible.
    Uniform,
    /// Per topic, a contiguous range for each member.
    Range,
}

/// One member, as an assignor sees it.
#[derive(Clone, Debug)]
pub struct Subscriber<'a> {
    /// Its id, unique in the group.
    pub member_id: &'a str,
    /// The instance id of a static member.
    pub instance_id: Option<&'a str>,
    /// The topics it subscribes to; members with the same ones may share the set.
    pub topics: Rc<BTreeSet<TopicId>>,
    /// What it was to have by the last assignment.
    pub before: &'a Partitions,
}

impl Assignor {
    /// The assignor with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Assignor> {
        match name {
            "uniform" => Some(Assignor::Uniform),
            "range" => Some(Assignor::Range),
            _ => None,
        }
    }

    /// What clients and configurations call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// What each member is to have, in the order of `members`, which is that of their ids.
    /// `counts` has the number of partitions of every topic; one that is not in it has none.
    #[must_use]
    pub fn assign(
        self,
        members: &[Subscriber<'_>],
        counts: &BTreeMap<TopicId, i32>,
    ) -> Vec<Partitions> {
        debug_assert!(members.is_sorted_by_key(|member| member.member_id), "members by id");
        match self {
            Assignor::Uniform => uniform::assign(members, counts),
            Assignor::Range => range::assign(members, counts),
        }
    }
}
