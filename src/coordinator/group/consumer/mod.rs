//! Consumer groups of KIP-848: members, what each is to have, and what each has.
//!
//! Owns [`ConsumerGroup`], whose state changes by [`ConsumerGroup::apply`] only, live and replayed
//! alike. Operations look at the state and give a [`Plan`]: what to append, what to answer once it
//! is durable, and which timers to set. A partition has one owner at most, and one that a member
//! was told to give up is still its own until it says that it is not. Must never do I/O or read a
//! clock.
//!
//! What a group remembers besides its state, in [`Soft`], only saves work: a group that has just
//! been loaded does the same without it. Source: KIP-848, Kafka's `ConsumerGroup` and
//! `GroupMetadataManager`.

mod admin;
mod classic_join;
mod classic_members;
mod downgrade;
mod hash;
mod heartbeat;
mod leave;
mod migration;
mod offsets;
mod reconcile;
pub mod regex;
mod requests;
mod target;
mod upgrade;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::assignor::{Assignor, Partitions};
use super::conversion::ClassicMembers;
use super::outcome::Now;
use super::record::consumer::{
    ConsumerChange, ConsumerRecord, CurrentAssignment, Epochs, GroupEpoch, MemberMetadata,
    MemberState, ResolvedRegex, TargetEpoch,
};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;

pub use admin::{DescribedGroup, DescribedMember, DescribedTopic};
pub use heartbeat::{Heartbeat, HeartbeatAnswer};
pub use migration::MigrationPolicy;
pub use offsets::CommitCheck;
pub use requests::{Planned, Revived, SessionRules};

/// One consumer group.
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    id: Arc<str>,
    epoch: i32,
    metadata_hash: i64,
    /// The group epoch that the targets were computed for.
    target_epoch: i32,
    target_at_ms: i64,
    members: BTreeMap<Arc<str>, Member>,
    targets: BTreeMap<Arc<str>, Arc<Partitions>>,
    regexes: BTreeMap<Arc<str>, Arc<ResolvedRegex>>,
    has_old_topics: bool,
    derived: Derived,
    soft: Soft,
    /// When its timers run out, and when they are set to: they are left where they are when that
    /// moves back.
    due: BTreeMap<Timer, Due>,
}

/// One member.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Member {
    metadata: Arc<MemberMetadata>,
    current: Arc<CurrentAssignment>,
}

/// What follows from the members, kept so that nobody has to look at all of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Derived {
    /// Member of each instance id.
    instances: BTreeMap<Arc<str>, Arc<str>>,
    /// Members that subscribe to each topic by name.
    names: BTreeMap<Arc<str>, usize>,
    /// Members that subscribe to each expression.
    regexes: BTreeMap<Arc<str>, usize>,
    /// Who has, or has yet to give up, each partition.
    owners: HashMap<(TopicId, i32), Arc<str>, foldhash::fast::RandomState>,
    /// Members that use the classic protocol.
    classic: usize,
    /// How many of them speak each protocol.
    protocols: BTreeMap<Arc<str>, usize>,
}

/// What saves work, and is forgotten at a restart.
#[derive(Clone, Debug)]
struct Soft {
    /// Version of the catalog for which the hash is known to be right.
    hash_checked_at: Cell<i64>,
    /// When the expressions were last resolved, in which version of the catalog.
    refreshed: Cell<(i64, i64)>,
    /// Since when they are being resolved.
    resolving_since_ms: Cell<Option<i64>>,
}

/// When a timer runs out, and when it is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Due {
    at_ms: i64,
    set_to_ms: i64,
}

/// What there is in the catalog.
pub trait Topics {
    /// The topic of this name.
    fn by_name(&self, name: &str) -> Option<TopicFacts>;
    /// The name of the topic with this id.
    fn name_of(&self, id: TopicId) -> Option<Arc<str>>;
    /// All names.
    fn names(&self) -> Vec<Arc<str>>;
    /// Rises with every change.
    fn version(&self) -> i64;
}

/// One topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicFacts {
    /// Its id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
}

/// The clock, the configuration and the catalog, as an operation finds them.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The clocks.
    pub now: Now,
    /// Time without a heartbeat after which a member leaves.
    pub session_timeout_ms: i32,
    /// What members are told to send heartbeats at.
    pub heartbeat_interval_ms: i32,
    /// Least time between two target assignments.
    pub assignment_interval_ms: i32,
    /// Most members.
    pub members_max: usize,
    /// Most members of a classic group.
    pub classic_members_max: usize,
    /// Assignors that may be chosen, the default first.
    pub assignors: &'a [Assignor],
    /// Most time between two resolutions of a group's expressions.
    pub regex_refresh_ms: i64,
    /// Which conversions are allowed.
    pub policy: MigrationPolicy,
    /// The catalog.
    pub topics: &'a dyn Topics,
}

/// What an operation comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan<A> {
    /// What to append, at once, and then apply.
    pub changes: Vec<ConsumerChange>,
    /// What to say once that is durable.
    pub answer: A,
    /// Timers to set then.
    pub timers: Alarms,
    /// The classic group that it is to become, where only members of that protocol are left.
    pub classic: Option<Box<ClassicMembers>>,
}

/// Timers and what becomes of them. Most operations have one, which takes no allocation.
pub type Alarms = SmallVec<[(Timer, Alarm); 1]>;

/// What a group's timers are for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The member is not heard of: [`ConsumerGroup::member_expired`].
    Session(Arc<str>),
    /// It has not given up partitions: [`ConsumerGroup::revocation_expired`].
    Revocation(Arc<str>),
    /// A member of the classic protocol has not joined again: [`ConsumerGroup::member_expired`].
    Join(Arc<str>),
    /// It has not asked for its assignment: [`ConsumerGroup::member_expired`].
    Sync(Arc<str>),
    /// Expressions are to be resolved, away from the request: [`ConsumerGroup::unresolved`].
    Regexes,
}

/// What becomes of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alarm {
    /// Runs out then, whatever it was set to.
    At(i64),
    /// Runs out then, unless it is set already.
    AtUnlessSet(i64),
    /// Does not run out.
    Never,
}

/// A request that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// The sentence.
    pub message: String,
}

/// State of a group as tools show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupState {
    /// No members.
    Empty,
    /// A new target assignment is due.
    Assigning,
    /// Members are on the way to it.
    Reconciling,
    /// Every member has its target.
    Stable,
}

impl ConsumerGroup {
    /// A group of which nothing is known yet.
    #[must_use]
    pub fn new(id: Arc<str>) -> ConsumerGroup {
        ConsumerGroup {
            id,
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            target_epoch: FIRST_EPOCH,
            target_at_ms: 0,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            regexes: BTreeMap::new(),
            has_old_topics: false,
            derived: Derived::default(),
            soft: Soft::default(),
            due: BTreeMap::new(),
        }
    }

    /// Takes over a record.
    pub fn apply(&mut self, change: &ConsumerChange) {
        match change {
            ConsumerChange::Epoch(Some(GroupEpoch { epoch, metadata_hash })) => {
                self.epoch = *epoch;
                self.metadata_hash = *metadata_hash;
            }
            ConsumerChange::Epoch(None) => *self = ConsumerGroup::new(Arc::clone(&self.id)),
            ConsumerChange::OldTopics(is_there) => self.has_old_topics = *is_there,
            ConsumerChange::Member(id, Some(metadata)) => {
                self.change_member(id, |member| member.metadata = Arc::clone(metadata));
            }
            ConsumerChange::Member(id, None) => {
                if let Some(member) = self.members.remove(id) {
                    self.derived.remove(id, &member);
                }
            }
            ConsumerChange::TargetEpoch(Some(TargetEpoch { epoch, at_ms })) => {
                self.target_epoch = *epoch;
                self.target_at_ms = *at_ms;
            }
            ConsumerChange::TargetEpoch(None) => {
                self.target_epoch = NO_EPOCH;
                self.target_at_ms = 0;
            }
            ConsumerChange::Target(id, Some(target)) => {
                self.targets.insert(Arc::clone(id), Arc::clone(target));
            }
            ConsumerChange::Target(id, None) => {
                self.targets.remove(id);
            }
            ConsumerChange::Current(id, Some(current)) => {
                self.change_member(id, |member| member.current = Arc::clone(current));
            }
            ConsumerChange::Current(id, None) if self.members.contains_key(id) => {
                self.change_member(id, |member| {
                    let gone = CurrentAssignment {
                        epoch: LEAVE_EPOCH,
                        previous_epoch: LEAVE_EPOCH,
                        state: member.current.state,
                        ..CurrentAssignment::default()
                    };
                    member.current = Arc::new(gone);
                });
            }
            ConsumerChange::Current(_, None) => {}
            ConsumerChange::Regex(regex, Some(resolved)) => {
                self.regexes.insert(Arc::clone(regex), Arc::clone(resolved));
            }
            ConsumerChange::Regex(regex, None) => {
                self.regexes.remove(regex);
            }
        }
    }

    fn change_member(&mut self, id: &Arc<str>, change: impl FnOnce(&mut Member)) {
        let mut member = match self.members.get(id) {
            Some(member) => {
                self.derived.remove(id, member);
                member.clone()
            }
            None => Member::default(),
        };
        change(&mut member);
        self.derived.add(id, &member);
        self.members.insert(Arc::clone(id), member);
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Whether nobody is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Number of members.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Whether any member subscribes to this topic, by name or by expression.
    #[must_use]
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.derived.names.contains_key(topic)
            || self.regexes.values().any(|resolved| resolved.topics.contains(topic))
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> GroupState {
        let is_behind = |member: &Member| !member.current.has_reached(self.target_epoch);
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.epoch > self.target_epoch {
            GroupState::Assigning
        } else if self.members.values().any(is_behind) {
            GroupState::Reconciling
        } else {
            GroupState::Stable
        }
    }

    /// The records that delete the group. Its offsets are another matter.
    #[must_use]
    pub fn tombstones(&self) -> Vec<ConsumerChange> {
        self.tombstones_of(self.members.keys().map(Arc::clone).collect())
    }

    /// The same if these are the members by then.
    fn tombstones_of(&self, members: Vec<Arc<str>>) -> Vec<ConsumerChange> {
        let mut changes: Vec<ConsumerChange> = Vec::new();
        let ids = || members.iter().map(Arc::clone);
        changes.extend(ids().map(|id| ConsumerChange::Current(id, None)));
        changes.extend(ids().map(|id| ConsumerChange::Target(id, None)));
        changes.push(ConsumerChange::TargetEpoch(None));
        changes.extend(ids().map(|id| ConsumerChange::Member(id, None)));
        let regexes = self.regexes.keys().map(Arc::clone);
        changes.extend(regexes.map(|regex| ConsumerChange::Regex(regex, None)));
        if self.has_old_topics {
            changes.push(ConsumerChange::OldTopics(false));
        }
        changes.push(ConsumerChange::Epoch(None));
        changes
    }

    /// Timers of a group that has just been loaded: everyone gets its whole time again.
    #[must_use]
    pub fn timers_after_load(&self, now_ms: i64, session_timeout_ms: i32) -> Vec<(Timer, Alarm)> {
        let mut timers = Vec::new();
        for (id, member) in &self.members {
            let classic = member.metadata.classic.as_ref();
            let session_ms = classic.map_or(session_timeout_ms, |facts| facts.session_timeout_ms);
            let at = |after_ms: i32| Alarm::At(now_ms.saturating_add(i64::from(after_ms)));
            timers.push((Timer::Session(Arc::clone(id)), at(session_ms)));
            if member.current.state == MemberState::Unrevoked && member.metadata.classic.is_none() {
                let timeout_ms = member.metadata.rebalance_timeout_ms;
                timers.push((Timer::Revocation(Arc::clone(id)), at(timeout_ms)));
            }
        }
        timers
    }

    fn member(&self, id: &str) -> Result<&Member, Refusal> {
        self.members.get(id).ok_or_else(|| {
            let message = format!("Member {id} is not a member of group {}.", self.id);
            refusal(ErrorCode::UnknownMemberId, message)
        })
    }

    /// The member with this instance id.
    fn instance(&self, instance_id: &str) -> Option<(&Arc<str>, &Member)> {
        self.members.get_key_value(self.derived.instances.get(instance_id)?)
    }

    /// The topics subscribed to once these members are gone and this one is as it will be.
    fn topics_after(&self, without: &[&Member], with: Option<&MemberMetadata>) -> BTreeSet<&str> {
        // Callers keep `with` no longer than the group: the names come out of both.
        let mut names = BTreeSet::new();
        for (name, count) in &self.derived.names {
            let fewer = without.iter().filter(|gone| gone.metadata.topic_names.contains(name));
            if *count > fewer.count() {
                names.insert(&**name);
            }
        }
        for (regex, resolved) in &self.regexes {
            let fewer =
                without.iter().filter(|gone| gone.metadata.topic_regex.as_ref() == Some(regex));
            let is_with = with.is_some_and(|with| with.topic_regex.as_ref() == Some(regex));
            let count = self.derived.regexes.get(regex).copied().unwrap_or(0);
            if is_with || count > fewer.count() {
                names.extend(resolved.topics.iter().map(|topic| &**topic));
            }
        }
        names
    }

    fn hash_after(
        &self,
        without: &[&Member],
        with: Option<&MemberMetadata>,
        topics: &dyn Topics,
    ) -> i64 {
        let mut names = self.topics_after(without, with);
        if let Some(with) = with {
            let own: BTreeSet<&str> = with.topic_names.iter().map(|name| &**name).collect();
            names = names.union(&own).copied().collect();
        }
        hash::metadata_hash(names.into_iter(), topics)
    }
}

impl Derived {
    fn add(&mut self, id: &Arc<str>, member: &Member) {
        let Member { metadata, current } = member;
        if let Some(instance) = &metadata.instance_id {
            self.instances.insert(Arc::clone(instance), Arc::clone(id));
        }
        for name in &metadata.topic_names {
            *self.names.entry(Arc::clone(name)).or_default() += 1;
        }
        if let Some(regex) = real_regex(metadata) {
            *self.regexes.entry(Arc::clone(regex)).or_default() += 1;
        }
        for place in places(&current.assigned).chain(places(&current.revoking)) {
            self.owners.insert(place, Arc::clone(id));
        }
        for name in protocol_names(metadata) {
            *self.protocols.entry(Arc::clone(name)).or_default() += 1;
        }
        self.classic += usize::from(metadata.classic.is_some());
    }

    fn remove(&mut self, id: &Arc<str>, member: &Member) {
        let Member { metadata, current } = member;
        if let Some(instance) = &metadata.instance_id
            && self.instances.get(instance) == Some(id)
        {
            self.instances.remove(instance);
        }
        for name in &metadata.topic_names {
            decrement(&mut self.names, name);
        }
        if let Some(regex) = real_regex(metadata) {
            decrement(&mut self.regexes, regex);
        }
        for place in places(&current.assigned).chain(places(&current.revoking)) {
            if self.owners.get(&place) == Some(id) {
                self.owners.remove(&place);
            }
        }
        for name in protocol_names(metadata) {
            decrement(&mut self.protocols, name);
        }
        self.classic -= usize::from(metadata.classic.is_some());
    }
}

impl CurrentAssignment {
    fn has_reached(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == target_epoch
    }
}

impl Default for Soft {
    fn default() -> Soft {
        Soft {
            hash_checked_at: Cell::new(i64::MIN),
            refreshed: Cell::new((i64::MIN, i64::MIN)),
            resolving_since_ms: Cell::new(None),
        }
    }
}

/// Equal are two that say the same in the log.
impl PartialEq for ConsumerGroup {
    fn eq(&self, other: &ConsumerGroup) -> bool {
        let numbers = |of: &ConsumerGroup| {
            (of.epoch, of.metadata_hash, of.target_epoch, of.target_at_ms, of.has_old_topics)
        };
        self.id == other.id
            && numbers(self) == numbers(other)
            && self.members == other.members
            && self.targets == other.targets
            && self.regexes == other.regexes
            && self.derived == other.derived
    }
}

impl Eq for ConsumerGroup {}

impl<A> Plan<A> {
    fn new(answer: A) -> Plan<A> {
        Plan { changes: Vec::new(), answer, timers: Alarms::new(), classic: None }
    }

    /// The changes as records of this group.
    #[must_use]
    pub fn records(&self, group: &Arc<str>) -> Vec<ConsumerRecord> {
        records_of(group, &self.changes)
    }
}

/// Changes as records of a group.
#[must_use]
pub fn records_of(group: &Arc<str>, changes: &[ConsumerChange]) -> Vec<ConsumerRecord> {
    let record = |change: &ConsumerChange| ConsumerRecord {
        group: Arc::clone(group),
        change: change.clone(),
    };
    changes.iter().map(record).collect()
}

fn alarm(timer: Timer, rules: &Rules<'_>, after_ms: i32) -> (Timer, Alarm) {
    (timer, Alarm::At(rules.now.ms.saturating_add(i64::from(after_ms))))
}

fn refusal(code: ErrorCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// The expression that a member subscribes to; an empty one is none.
fn real_regex(metadata: &MemberMetadata) -> Option<&Arc<str>> {
    metadata.topic_regex.as_ref().filter(|regex| !regex.is_empty())
}

/// Protocols of a member of the classic protocol, each once.
fn protocol_names(metadata: &MemberMetadata) -> BTreeSet<&Arc<str>> {
    let protocols = metadata.classic.iter().flat_map(|facts| &facts.protocols);
    protocols.map(|(name, _)| name).collect()
}

fn places(epochs: &Epochs) -> impl Iterator<Item = (TopicId, i32)> {
    epochs.iter().flat_map(|(id, partitions)| partitions.keys().map(|partition| (*id, *partition)))
}

fn decrement(counts: &mut BTreeMap<Arc<str>, usize>, name: &Arc<str>) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

/// Epoch of a group, and of its targets, before anything happened.
const FIRST_EPOCH: i32 = 1;

/// No target assignment.
const NO_EPOCH: i32 = -1;

/// The member leaves.
const LEAVE_EPOCH: i32 = -1;

/// A static member leaves for a while.
const STATIC_LEAVE_EPOCH: i32 = -2;
