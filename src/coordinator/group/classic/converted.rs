//! What a classic group brings into a consumer group, and how one begins that was a consumer group.
//!
//! A group can be upgraded if all its members speak the protocol of consumers: its generation
//! becomes the epoch, what the leader assigned last becomes targets and assignments. The other way
//! round members keep what they were to have, and join again unless nothing has changed. Source:
//! KIP-848, Kafka's `ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup`.
//!
//! A group that is to rebalance is written without a leader, so that a restart does not forget it.
//! In Kafka 4.3.1 it does, and what the last member of the other protocol had remains nobody's.
//!
//! **Deviation**: a group that has not chosen a protocol yet, because its first rebalance is under
//! way, is upgraded with the one that it would choose. Kafka 4.3.1 fails with -1.

use std::sync::Arc;

use bytes::Bytes;

use super::subscription::{self, Assignment, CONSUMER};
use super::{ClassicGroup, Live, Member, Phase, Protocol, Session};
use crate::coordinator::group::consumer::ConsumerGroup;
use crate::coordinator::group::conversion::{ClassicMember, ClassicMembers};
use crate::coordinator::group::outcome::{Answer, Now, Ticket, TimerKey, Timers};
use crate::coordinator::group::record::classic::ClassicMetadata;
use crate::error_code::ErrorCode;

/// Why a classic group cannot become a consumer group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A member's bytes are not those of a consumer.
    Malformed,
    /// Its assignor says more than partitions, which would be lost.
    CustomAssignor,
}

impl ClassicGroup {
    /// A group that somebody joins who found a consumer group without members.
    pub(in crate::coordinator::group) fn after(before: Box<ConsumerGroup>, now: Now) -> Self {
        let live = Live { since_ms: Some(now.wall_ms), ..Live::default() };
        ClassicGroup { stored: None, live, before: Some(before) }
    }

    /// Whether its members are consumers.
    pub(in crate::coordinator::group) fn is_of_consumers(&self) -> bool {
        self.live.is_of_consumers()
    }

    /// Number of members.
    pub(in crate::coordinator::group) fn member_count(&self) -> usize {
        self.live.members.len()
    }

    /// Its members, and the protocol that they have chosen or would choose.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub(in crate::coordinator::group) fn members_to_convert(
        &self,
    ) -> Result<ClassicMembers, Unfit> {
        let live = &self.live;
        let mut members = Vec::with_capacity(live.members.len());
        for member in live.members.values() {
            let assignment = Assignment::read(&member.assignment).ok_or(Unfit::Malformed)?;
            if assignment.has_user_data {
                return Err(Unfit::CustomAssignor);
            }
            members.push(ClassicMember {
                id: Arc::clone(&member.id),
                instance_id: member.instance_id.clone(),
                client_id: Arc::clone(&member.client_id),
                client_host: Arc::clone(&member.client_host),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout_ms,
                protocols: member
                    .protocols
                    .iter()
                    .map(|protocol| (Arc::clone(&protocol.name), protocol.metadata.clone()))
                    .collect(),
                assigned: assignment.partitions,
            });
        }
        let protocol = live.protocol.clone().or_else(|| live.choose_protocol());
        let rebalances = live.phase != Phase::Stable;
        Ok(ClassicMembers { generation: live.generation, protocol, rebalances, members })
    }

    /// What whoever waits here is told when the group is upgraded: to join again.
    pub(in crate::coordinator::group) fn answers_to_waiting(&self) -> Vec<(Ticket, Answer)> {
        let waiting = self
            .live
            .members
            .values()
            .filter(|member| member.join.is_some() || member.sync.is_some());
        waiting
            .flat_map(|member| member.clone().take_answers(ErrorCode::RebalanceInProgress))
            .collect()
    }

    /// All its timers, to be taken away.
    pub(in crate::coordinator::group) fn timers_off(&self) -> Timers {
        let live = &self.live;
        let sessions = live.members.keys().chain(live.pending.keys());
        let mut timers: Timers =
            sessions.map(|id| (TimerKey::Session(Arc::clone(id)), None)).collect();
        timers.extend([(TimerKey::Join, None), (TimerKey::Sync, None)]);
        timers
    }

    /// Goes on in a state that its record does not say.
    pub(in crate::coordinator::group) fn go_on(&mut self, live: Live) {
        self.live = live;
    }
}

/// How a classic group begins that was a consumer group: its record, its state, its timers.
pub(in crate::coordinator::group) fn downgraded(
    from: ClassicMembers,
    now: Now,
) -> (ClassicMetadata, Live, Timers) {
    let mut live = Live {
        phase: Phase::Stable,
        since_ms: Some(now.wall_ms),
        protocol_type: Some(CONSUMER.into()),
        generation: from.generation,
        ..Live::default()
    };
    let mut assigned = Vec::with_capacity(from.members.len());
    for member in from.members {
        assigned.push((Arc::clone(&member.id), member.assigned));
        live.add(Member {
            id: member.id,
            instance_id: member.instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            protocols: member
                .protocols
                .into_iter()
                .map(|(name, metadata)| Protocol { name, metadata })
                .collect(),
            assignment: Bytes::new(),
            join: None,
            sync: None,
            is_new: false,
            has_synced: true,
            session: Session::default(),
        });
    }
    live.protocol = live.choose_protocol();
    live.subscribed = live.read_subscriptions();
    let protocol = live.protocol.clone().unwrap_or_else(|| "".into());
    for (id, assigned) in assigned {
        if let Some(member) = live.members.get_mut(&id) {
            member.assignment = subscription::assignment(&member.metadata(&protocol), &assigned);
        }
    }
    let mut metadata = live.metadata(|member| member.assignment.clone());
    let mut timers = live.begin_sessions(now);
    if from.rebalances {
        metadata.leader = None;
        live.wait_for_all(now, &mut timers);
    }
    (metadata, live, timers)
}
