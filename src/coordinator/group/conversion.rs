//! Groups that become of the other kind while they have members.
//!
//! Owns what is the same in both kinds of group, as it goes from one to the other, and the moment
//! in which it does: once all records of the conversion are applied, and only then, whoever waits
//! is answered, the timers of the old kind are taken away and those of the new one are set. If the
//! records cannot be appended the group is as it was, waiting members and timers included.
//! [`ClassicMembers`] comes out of the one kind and goes into the other.

use std::sync::Arc;

use bytes::Bytes;

use super::Groups;
use super::classic::Live;
use super::classic::subscription::NamedPartitions;
use super::consumer::{Alarm, Timer};
use super::outcome::{Answer, Ticket, Timers};

/// The members of the classic protocol in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassicMembers {
    /// Generation of the group; to a consumer group its epoch.
    pub generation: i32,
    /// The protocol whose metadata counts; none before it is chosen.
    pub protocol: Option<Arc<str>>,
    /// Whether the group is to rebalance.
    pub rebalances: bool,
    /// By id.
    pub members: Vec<ClassicMember>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassicMember {
    /// Its id.
    pub id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The client's own name.
    pub client_id: Arc<str>,
    /// Where it connects from.
    pub client_host: Arc<str>,
    /// How long it may take to join again.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// Its protocols with their metadata, in the order of its preference.
    pub protocols: Vec<(Arc<str>, Bytes)>,
    /// What it was assigned last.
    pub assigned: NamedPartitions,
}

/// What remains to be done for a group that is of the other kind now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversion {
    /// To whoever waits in the group as it was.
    pub(super) answers: Vec<(Ticket, Answer)>,
    /// Timers of the group as it was, which are taken away, and of what it is now.
    pub(super) timers: Timers,
    /// What the records do not say.
    pub(super) becomes: Becomes,
}

/// What a group goes on with besides its records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Becomes {
    /// A classic group in this state.
    Classic(Box<Live>),
    /// A consumer group with these timers.
    Consumer(Vec<(Timer, Alarm)>),
}

impl Groups {
    /// The records of a conversion are applied: the rest of it is done. Returns answers, and timers
    /// to be set.
    pub fn convert(&mut self, id: &str, conversion: Conversion) -> (Vec<(Ticket, Answer)>, Timers) {
        let Conversion { answers, mut timers, becomes } = conversion;
        let kind = self.groups.get_mut(id).map(|group| &mut group.kind);
        match (kind, becomes) {
            (Some(kind), Becomes::Classic(live)) => {
                if let Some(classic) = kind.classic_mut() {
                    classic.go_on(*live);
                }
            }
            (Some(kind), Becomes::Consumer(alarms)) => {
                if let Some(consumer) = kind.consumer_mut() {
                    timers.extend(consumer.set(alarms));
                }
            }
            (None, _) => {}
        }
        (answers, timers)
    }
}

#[cfg(test)]
mod tests;
