//! The group coordinator: what is kept in one partition of `__consumer_offsets`.
//!
//! Owns [`Groups`], which changes in two ways only: [`Groups::apply`], one record at a time, and
//! [`Groups::marker`], the end of a transaction. Both are used for what has just been appended and
//! for what is read back at a start, so that the two cannot differ. Requests are answered by plans:
//! what to append, and what to answer once it is. Must never do I/O or read a clock.
//!
//! A group has offsets and is of a [`Kind`]. What the log says of it changes by records only; what
//! it does not say (who waits for an answer, when a session ends, a rebalance under way) lives
//! beside it, is changed by the operations themselves, and begins anew with [`Groups::revive`].

pub mod admin;
pub mod assignor;
pub mod classic;
pub mod consumer;
pub mod conversion;
pub mod offsets;
pub mod outcome;
pub mod progress;
pub mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error_code::ErrorCode;
use crate::ids::{Offset, ProducerId};

use classic::ClassicGroup;
use consumer::{CommitCheck, ConsumerGroup};
use outcome::{Now, Timers};
use record::consumer::{ConsumerChange, ConsumerRecord};
use record::{GroupRecord, OffsetKey, OffsetValue};

/// The groups of one partition of `__consumer_offsets`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Groups {
    groups: BTreeMap<Arc<str>, Group>,
    /// What each open transaction has committed.
    open: BTreeMap<ProducerId, BTreeSet<OffsetKey>>,
}

/// One group: offsets by topic and partition, and members according to its kind. One that has lost
/// its offsets stays until it expires.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Group {
    /// Boxed, since a node of the map has room for many and most topics have few partitions.
    topics: BTreeMap<Arc<str>, BTreeMap<i32, Box<Position>>>,
    kind: Kind,
}

/// What speaks in a group. Equal are two that say the same in the log.
#[derive(Clone, Default, Debug)]
enum Kind {
    /// Nobody: its offsets were committed by hand.
    #[default]
    Simple,
    /// Members that rebalance by JoinGroup and SyncGroup.
    Classic(Box<ClassicGroup>),
    /// Members that the broker assigns to.
    Consumer(Box<ConsumerGroup>),
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.classic().and_then(ClassicGroup::stored)
            == other.classic().and_then(ClassicGroup::stored)
            && self.consumer().filter(|group| group.is_written())
                == other.consumer().filter(|group| group.is_written())
    }
}

impl Eq for Kind {}

impl Kind {
    fn classic(&self) -> Option<&ClassicGroup> {
        match self {
            Kind::Classic(group) => Some(group),
            Kind::Simple | Kind::Consumer(_) => None,
        }
    }

    fn classic_mut(&mut self) -> Option<&mut ClassicGroup> {
        match self {
            Kind::Classic(group) => Some(group),
            Kind::Simple | Kind::Consumer(_) => None,
        }
    }

    fn consumer(&self) -> Option<&ConsumerGroup> {
        match self {
            Kind::Consumer(group) => Some(group),
            Kind::Simple | Kind::Classic(_) => None,
        }
    }

    fn consumer_mut(&mut self) -> Option<&mut ConsumerGroup> {
        match self {
            Kind::Consumer(group) => Some(group),
            Kind::Simple | Kind::Classic(_) => None,
        }
    }

    /// From when on its offsets expire.
    fn expiry(&self) -> Expiry {
        self.classic().map_or(Expiry::SinceCommit, ClassicGroup::expiry)
    }

    /// Whether its members read this topic, as far as they say.
    fn is_subscribed(&self, topic: &str) -> bool {
        self.classic().is_some_and(|classic| classic.is_subscribed(topic))
            || self.consumer().is_some_and(|group| group.is_subscribed_to(topic))
    }

    /// The records that delete it, when it has no members.
    fn tombstones(&self, id: &Arc<str>) -> Vec<GroupRecord> {
        let Some(consumer) = self.consumer() else {
            return vec![GroupRecord::GroupGone(Arc::clone(id))];
        };
        let records = consumer::records_of(id, &consumer.tombstones());
        records.into_iter().map(GroupRecord::Consumer).collect()
    }

    /// Whether it is without members, so that it may be deleted.
    fn is_empty(&self) -> bool {
        self.classic().is_none_or(ClassicGroup::is_empty)
            && self.consumer().is_none_or(ConsumerGroup::is_empty)
    }
}

/// From when on the retention of a group's offsets counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expiry {
    /// They do not expire.
    Never,
    /// From the commit of each.
    SinceCommit,
    /// From this time of the wall clock.
    Since(i64),
}

/// What is known of a group's progress in one partition; never without an offset.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Position {
    committed: Option<Committed>,
    /// One for each open transaction that commits here.
    pending: Vec<(ProducerId, Committed)>,
}

/// An offset and where its record stands.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Committed {
    at: Offset,
    value: OffsetValue,
}

/// Who commits, as the request says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committer {
    /// Member id, empty for none.
    pub member_id: String,
    /// Instance id of a static member.
    pub instance_id: Option<String>,
    /// Generation or member epoch, -1 for none.
    pub generation: i32,
}

/// Which API a commit came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitApi {
    /// OffsetCommit of this version.
    Plain(i16),
    /// TxnOffsetCommit.
    Transactional,
}

impl Groups {
    /// Takes over a record that stands at `at`, in a transaction of `producer` or in none.
    pub fn apply(&mut self, at: Offset, producer: Option<ProducerId>, record: GroupRecord) {
        match record {
            GroupRecord::Offset(key, Some(value)) => self.set_offset(at, producer, key, value),
            GroupRecord::Offset(key, None) => self.remove_offset(&key),
            GroupRecord::Classic(id, metadata) => {
                let group = self.groups.entry(id).or_default();
                match group.kind.classic_mut() {
                    Some(classic) => classic.apply(metadata),
                    None => group.kind = Kind::Classic(Box::new(ClassicGroup::of(metadata))),
                }
            }
            GroupRecord::GroupGone(id) => {
                // A classic group also ends by becoming a consumer group, which keeps its offsets.
                let group = self.groups.get_mut(&id);
                if let Some(group) = group.filter(|group| group.kind.consumer().is_none()) {
                    group.kind = Kind::Simple;
                    if group.topics.is_empty() {
                        self.groups.remove(&id);
                    }
                }
            }
            GroupRecord::Consumer(record) => self.apply_consumer(&record),
            GroupRecord::Other(_) => {}
        }
    }

    fn apply_consumer(&mut self, ConsumerRecord { group: id, change }: &ConsumerRecord) {
        if !change.is_tombstone() {
            let group = self.groups.entry(Arc::clone(id)).or_default();
            if group.kind.consumer().is_none() {
                let new = ConsumerGroup::new(Arc::clone(id));
                group.kind = Kind::Consumer(Box::new(new));
            }
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(consumer) = group.kind.consumer_mut() else { return };
        consumer.apply(change);
        if *change == ConsumerChange::Epoch(None) {
            group.kind = Kind::Simple;
            if group.topics.is_empty() {
                self.groups.remove(id);
            }
        }
    }

    /// Begins what no log says, once all of it is read: sessions, with their timers.
    pub fn revive(&mut self, now: Now) -> Vec<(Arc<str>, Timers)> {
        let mut all = Vec::new();
        for (id, group) in &mut self.groups {
            if let Some(classic) = group.kind.classic_mut() {
                all.push((Arc::clone(id), classic.revive(now)));
            }
        }
        all
    }

    /// Whether the session of whoever commits goes on by it, and the timers that takes.
    pub fn committed(&mut self, group: &str, by: &Committer, now: Now) -> Timers {
        let classic = self.groups.get_mut(group).and_then(|group| group.kind.classic_mut());
        classic.map(|classic| classic.committed(&by.member_id, now)).unwrap_or_default()
    }
}

/// Whether a group takes offsets from this committer. `group` is `None` if nobody knows it.
fn check_commit<'a>(
    group: Option<&'a Group>,
    by: &Committer,
    api: CommitApi,
) -> Result<CommitCheck<'a>, ErrorCode> {
    // Without a generation it is an admin or a consumer that assigns its partitions itself, and a
    // group without members takes that, whoever the request says it is.
    if by.generation < 0 && group.is_none_or(|group| group.kind.is_empty()) {
        return Ok(CommitCheck::All);
    }
    match group.map(|group| &group.kind) {
        Some(Kind::Consumer(consumer)) => consumer.check_commit(by, api),
        Some(Kind::Classic(classic)) => classic.check_commit(by, api).map(|()| CommitCheck::All),
        Some(Kind::Simple) => Err(ErrorCode::UnknownMemberId),
        None if matches!(api, CommitApi::Plain(9..)) => Err(ErrorCode::GroupIdNotFound),
        None => Err(ErrorCode::IllegalGeneration),
    }
}
