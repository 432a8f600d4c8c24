//! Classic groups: members that rebalance by JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
//!
//! Owns [`ClassicGroup`]: what its record says, which changes in [`ClassicGroup::apply`] only, and
//! its live members, whose state no record has: who is joining, who waits, when sessions end.
//! [`join`] has JoinGroup, [`members`] the other requests, [`rebalance`] what leads from one
//! generation to the next, [`converted`] what leads from a consumer group and to one. A group is
//! written when its leader has assigned, when its last member has gone, and when a static member
//! gets another member id: what happens in between is lost in a crash, and the members of the last
//! generation written find their group again.
//! Must never look into what clients call metadata, but for the topics of consumers
//! ([`subscription`]). Source: Kafka's `ClassicGroup`, KIP-62, KIP-134, KIP-345, KIP-394, KIP-814.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::admin::{DescribedGroup, DescribedMember};
use super::consumer::ConsumerGroup;
use super::outcome::{JoinedMember, Now, Ticket, TimerKey, Timers};
use super::record::classic::{ClassicMetadata, StoredMember};
use super::{CommitApi, Committer, Expiry, Group, Kind};
use crate::error_code::ErrorCode;

mod converted;
pub mod join;
pub mod members;
mod rebalance;
pub mod subscription;

pub(super) use converted::{Unfit, downgraded};

/// What the broker's configuration says of classic groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Shortest session timeout of a member.
    pub session_ms_min: i32,
    /// Longest session timeout of a member.
    pub session_ms_max: i32,
    /// How long an empty group waits for more members before its first rebalance.
    pub initial_delay_ms: i64,
    /// Most members of a group.
    pub members_max: usize,
}

/// One classic group.
#[derive(Clone, Default, Debug)]
pub struct ClassicGroup {
    /// What its last record says.
    stored: Option<Arc<ClassicMetadata>>,
    live: Live,
    /// The consumer group without members that it was, until its first record is written.
    before: Option<Box<ConsumerGroup>>,
}

/// What goes on in a group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Live {
    phase: Phase,
    /// Wall clock when it came into this phase.
    since_ms: Option<i64>,
    protocol_type: Option<Arc<str>>,
    protocol: Option<Arc<str>>,
    generation: i32,
    leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, Member>,
    /// Member ids of static members by instance id.
    statics: BTreeMap<Arc<str>, Arc<str>>,
    /// Member ids given out to clients that have not joined with them yet.
    pending: BTreeMap<Arc<str>, Session>,
    /// How many members wait for the answer to a join.
    joined: usize,
    /// How many members have not synced in this generation.
    unsynced: usize,
    /// How many members support each protocol.
    supported: BTreeMap<Arc<str>, usize>,
    /// Topics that the members read; `None` if they do not say.
    subscribed: Option<BTreeSet<Arc<str>>>,
    join_due_ms: Option<i64>,
    sync_due_ms: Option<i64>,
    /// How to take back what is being written, should that fail.
    undo: Option<Undo>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// No members.
    #[default]
    Empty,
    /// Members are joining; the first time after being empty with a delay.
    Preparing(Option<InitialDelay>),
    /// They have joined, and wait for what the leader assigns.
    Completing,
    /// They have their assignments.
    Stable,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct InitialDelay {
    delay_ms: i64,
    remaining_ms: i64,
    has_new: bool,
}

/// What to take back.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Undo {
    /// A static member had got this member id instead of the one it has here.
    Replacement { new_id: Arc<str>, old: Box<Member> },
    /// The leader had assigned.
    Assignment,
}

/// A protocol that a member supports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// Its name.
    pub name: Arc<str>,
    /// The member's own bytes for it.
    pub metadata: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Member {
    id: Arc<str>,
    instance_id: Option<Arc<str>>,
    client_id: Arc<str>,
    client_host: Arc<str>,
    rebalance_timeout_ms: i32,
    session_timeout_ms: i32,
    /// In the order of its preference.
    protocols: Vec<Protocol>,
    assignment: Bytes,
    /// Who waits for the answer to its join.
    join: Option<Ticket>,
    /// Who waits for the answer to its sync.
    sync: Option<Ticket>,
    /// It has never had an answer, so that it does not know its member id.
    is_new: bool,
    has_synced: bool,
    session: Session,
}

/// When a member is given up. Its timer is left where it is when the session goes on, and set
/// anew when it comes: so a heartbeat costs no timer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Session {
    due_ms: i64,
    timer_ms: Option<i64>,
}

impl Session {
    /// Moves the end; returns when the timer is to be set, if it is.
    fn set(&mut self, due_ms: i64) -> Option<i64> {
        self.due_ms = due_ms;
        if self.timer_ms.is_some_and(|timer_ms| timer_ms <= due_ms) {
            return None;
        }
        self.timer_ms = Some(due_ms);
        self.timer_ms
    }
}

impl Member {
    fn metadata(&self, protocol: &str) -> Bytes {
        let known = self.protocols.iter().find(|known| &*known.name == protocol);
        known.map(|known| known.metadata.clone()).unwrap_or_default()
    }

    fn stored(&self, protocol: &str, assignment: Bytes) -> StoredMember {
        StoredMember {
            id: Arc::clone(&self.id),
            instance_id: self.instance_id.clone(),
            client_id: Arc::clone(&self.client_id),
            client_host: Arc::clone(&self.client_host),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.metadata(protocol),
            assignment,
        }
    }

    fn of(stored: &StoredMember, protocol: &Arc<str>) -> Member {
        Member {
            id: Arc::clone(&stored.id),
            instance_id: stored.instance_id.clone(),
            client_id: Arc::clone(&stored.client_id),
            client_host: Arc::clone(&stored.client_host),
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            session_timeout_ms: stored.session_timeout_ms,
            protocols: vec![Protocol {
                name: Arc::clone(protocol),
                metadata: stored.subscription.clone(),
            }],
            assignment: stored.assignment.clone(),
            join: None,
            sync: None,
            is_new: false,
            has_synced: true,
            session: Session::default(),
        }
    }
}

impl Group {
    /// Its live side as a classic group; a simple group becomes one.
    fn as_classic(&mut self, now: Now) -> &mut Live {
        if matches!(self.kind, Kind::Simple) {
            let live = Live { since_ms: Some(now.wall_ms), ..Live::default() };
            self.kind = Kind::Classic(Box::new(ClassicGroup { stored: None, live, before: None }));
        }
        match &mut self.kind {
            Kind::Classic(classic) => &mut classic.live,
            Kind::Simple | Kind::Consumer(_) => {
                unreachable!("it has just been made a classic group")
            }
        }
    }
}

impl ClassicGroup {
    /// A group of which this is the first record.
    pub(super) fn of(metadata: Arc<ClassicMetadata>) -> ClassicGroup {
        ClassicGroup { stored: Some(metadata), ..ClassicGroup::default() }
    }

    /// What its last record says.
    pub(super) fn stored(&self) -> Option<&ClassicMetadata> {
        self.stored.as_deref()
    }

    /// Takes over a record. Where it is the assignment of the generation that the group is in, its
    /// members have that from now on.
    pub(super) fn apply(&mut self, metadata: Arc<ClassicMetadata>) {
        let live = &mut self.live;
        live.undo = None;
        self.before = None;
        if live.phase == Phase::Completing && live.generation == metadata.generation {
            for stored in &metadata.members {
                if let Some(member) = live.members.get_mut(&stored.id) {
                    member.assignment = stored.assignment.clone();
                }
            }
            live.phase = Phase::Stable;
        }
        self.stored = Some(metadata);
    }

    /// Begins anew from what the record says: all sessions start now. Members without a leader are
    /// to join again.
    pub(super) fn revive(&mut self, now: Now) -> Timers {
        let Some(stored) = &self.stored else { return Timers::new() };
        let text = |text: &Arc<str>| (!text.is_empty()).then(|| Arc::clone(text));
        let mut live = Live {
            since_ms: stored.since_ms,
            protocol_type: text(&stored.protocol_type),
            protocol: stored.protocol.clone(),
            generation: stored.generation,
            leader: stored.leader.clone(),
            ..Live::default()
        };
        let protocol = stored.protocol.clone().unwrap_or_else(|| "".into());
        for stored in &stored.members {
            live.add(Member::of(stored, &protocol));
        }
        live.subscribed = live.read_subscriptions();
        let mut timers = live.begin_sessions(now);
        if !live.members.is_empty() {
            live.phase = Phase::Stable;
            if stored.leader.is_none() {
                live.wait_for_all(now, &mut timers);
            }
        }
        self.live = live;
        timers
    }

    /// Whether it is without members. One that somebody is joining is not.
    pub(super) fn is_empty(&self) -> bool {
        self.live.phase == Phase::Empty
    }

    pub(super) fn expiry(&self) -> Expiry {
        let live = &self.live;
        match live.phase {
            _ if live.protocol_type.is_none() => Expiry::SinceCommit,
            Phase::Empty => live.since_ms.map_or(Expiry::SinceCommit, Expiry::Since),
            Phase::Stable if live.subscribed.is_some() => Expiry::SinceCommit,
            _ => Expiry::Never,
        }
    }

    /// Whether members read this topic; a consumer that does not say may read any.
    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        match &self.live.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.live.is_of_consumers(),
        }
    }

    pub(super) fn check_offset_delete(&self) -> Result<(), ErrorCode> {
        if self.is_empty() || self.live.is_of_consumers() {
            Ok(())
        } else {
            Err(ErrorCode::NonEmptyGroup)
        }
    }

    /// Whether it takes offsets from this committer.
    pub(super) fn check_commit(&self, by: &Committer, api: CommitApi) -> Result<(), ErrorCode> {
        let live = &self.live;
        let transactional = api == CommitApi::Transactional;
        if by.generation >= 0 || !by.member_id.is_empty() || by.instance_id.is_some() {
            live.check_member(&by.member_id, by.instance_id.as_deref())?;
            if by.generation != live.generation {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else if !transactional {
            return Err(ErrorCode::UnknownMemberId);
        }
        if !transactional && live.phase == Phase::Completing {
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    /// A member has committed: its session goes on, except while assignments are waited for.
    pub(super) fn committed(&mut self, member_id: &str, now: Now) -> Timers {
        let mut timers = Timers::new();
        if matches!(self.live.phase, Phase::Stable | Phase::Preparing(_)) {
            self.live.touch(member_id, now, &mut timers);
        }
        timers
    }

    pub(super) fn protocol_type(&self) -> Arc<str> {
        self.live.protocol_type.clone().unwrap_or_else(|| "".into())
    }

    pub(super) fn state(&self) -> &'static str {
        match self.live.phase {
            Phase::Empty => "Empty",
            Phase::Preparing(_) => "PreparingRebalance",
            Phase::Completing => "CompletingRebalance",
            Phase::Stable => "Stable",
        }
    }

    pub(super) fn describe(&self) -> DescribedGroup {
        let stable = self.live.phase == Phase::Stable;
        let protocol = self.live.protocol.clone().filter(|_| stable);
        let members = self.live.members.values().map(|member| DescribedMember {
            id: Arc::clone(&member.id),
            instance_id: member.instance_id.clone(),
            client_id: Arc::clone(&member.client_id),
            client_host: Arc::clone(&member.client_host),
            metadata: protocol.as_ref().map(|name| member.metadata(name)).unwrap_or_default(),
            assignment: member.assignment.clone(),
        });
        DescribedGroup {
            state: self.state(),
            protocol_type: self.protocol_type(),
            members: members.collect(),
            protocol: protocol.unwrap_or_else(|| "".into()),
        }
    }
}

impl Live {
    fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(subscription::CONSUMER)
    }

    fn add(&mut self, member: Member) {
        if let Some(instance) = &member.instance_id {
            self.statics.insert(Arc::clone(instance), Arc::clone(&member.id));
        }
        if self.leader.is_none() {
            self.leader = Some(Arc::clone(&member.id));
        }
        self.count_protocols(&member.protocols, true);
        self.joined += usize::from(member.join.is_some());
        self.unsynced += usize::from(!member.has_synced);
        self.members.insert(Arc::clone(&member.id), member);
    }

    /// Takes a member out; the next leads if it was the leader.
    fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.count_protocols(&member.protocols, false);
        self.joined -= usize::from(member.join.is_some());
        self.unsynced -= usize::from(!member.has_synced);
        if let Some(instance) = &member.instance_id {
            self.statics.remove(instance);
        }
        if self.leads(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    fn count_protocols(&mut self, protocols: &[Protocol], add: bool) {
        let names: BTreeSet<&Arc<str>> = protocols.iter().map(|protocol| &protocol.name).collect();
        for name in names {
            let count = self.supported.entry(Arc::clone(name)).or_default();
            if add {
                *count += 1;
            } else {
                *count -= 1;
            }
            if *count == 0 {
                self.supported.remove(name);
            }
        }
    }

    fn leads(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    fn all_support(&self, protocol: &str) -> bool {
        self.supported.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    /// Whether a member of this type with these protocols can be one of this group.
    fn accepts(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.phase == Phase::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|protocol| self.all_support(&protocol.name))
    }

    /// The protocol with most votes among those that all support. A member votes for the first of
    /// its own; the leader's order decides between equals.
    fn choose_protocol(&self) -> Option<Arc<str>> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let first = member.protocols.iter().find(|own| self.all_support(&own.name));
            *votes.entry(&first?.name).or_default() += 1;
        }
        let leader = self.members.get(self.leader.as_deref()?)?;
        let mut best: Option<(&Arc<str>, usize)> = None;
        for Protocol { name, .. } in &leader.protocols {
            let count = votes.get(&**name).copied().unwrap_or(0);
            if count > best.map_or(0, |(_, most)| most) {
                best = Some((name, count));
            }
        }
        best.map(|(name, _)| Arc::clone(name))
    }

    fn read_subscriptions(&self) -> Option<BTreeSet<Arc<str>>> {
        if !self.is_of_consumers() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(self.protocol.as_ref()?);
            topics.extend(subscription::topics(&metadata)?);
        }
        Some(topics)
    }

    /// Whether this is a member, and the one that has this instance id.
    fn check_member(&self, id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(known) if &**known != id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// A member's session begins again.
    fn touch(&mut self, id: &str, now: Now, timers: &mut Timers) {
        let Some(member) = self.members.get_mut(id) else { return };
        let due_ms = now.ms + i64::from(member.session_timeout_ms);
        if let Some(timer_ms) = member.session.set(due_ms) {
            timers.push((TimerKey::Session(Arc::clone(&member.id)), Some(timer_ms)));
        }
    }

    /// All sessions begin now.
    fn begin_sessions(&mut self, now: Now) -> Timers {
        let begin = |(id, member): (&Arc<str>, &mut Member)| {
            let due_ms = now.ms + i64::from(member.session_timeout_ms);
            (TimerKey::Session(Arc::clone(id)), member.session.set(due_ms))
        };
        self.members.iter_mut().map(begin).collect()
    }

    /// The members as the leader is told of them.
    fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let each = self.members.values().map(|member| JoinedMember {
            id: Arc::clone(&member.id),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol),
        });
        each.collect()
    }

    /// The record of the group with these assignments.
    fn metadata(&self, assignment_of: impl Fn(&Member) -> Bytes) -> ClassicMetadata {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let members = self.members.values();
        ClassicMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            since_ms: self.since_ms,
            members: members.map(|member| member.stored(protocol, assignment_of(member))).collect(),
        }
    }
}

/// How long a new member, which does not know its member id, is held in a rebalance.
const NEW_MEMBER_JOIN_MS: i64 = 5 * 60 * 1000;

#[cfg(test)]
mod tests;
