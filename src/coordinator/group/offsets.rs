//! Committed and pending offsets: what requests, markers and time do to them.
//!
//! Owns the rules. An offset committed in a transaction is pending, invisible, until the marker of
//! its producer in the same partition: then it takes the place of the committed one, unless that
//! one stands later in the log. A tombstone takes pending ones along, and nothing expires where
//! one is pending. Source: KIP-98, KIP-211, KIP-447, Kafka's `OffsetMetadataManager`.

use std::ops::Bound;
use std::sync::Arc;

use super::consumer::CommitCheck;
use super::record::{GroupRecord, OffsetKey, OffsetValue};
use super::{CommitApi, Committed, Committer, Expiry, Group, Groups, Position, check_commit};
use crate::batch::MarkerKind;
use crate::error_code::ErrorCode;
use crate::ids::{Offset, ProducerId, TopicId};

/// Offsets to be committed for one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The group.
    pub group: Arc<str>,
    /// Who commits.
    pub by: Committer,
    /// By which API.
    pub api: CommitApi,
    /// How long the client wants them kept; `None` leaves it to the broker.
    pub retention_ms: Option<i64>,
    /// The offsets, in the order of the request.
    pub offsets: Vec<NewOffset>,
}

/// One offset to be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOffset {
    /// The topic.
    pub topic: Arc<str>,
    /// Its id; zero leaves it out of the record.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// The offset to go on from.
    pub offset: i64,
    /// Leader epoch of the last record consumed, -1 for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: Arc<str>,
}

/// What a commit comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitPlan {
    /// What to append, at once.
    pub records: Vec<GroupRecord>,
    /// The answer of each offset, once that is durable.
    pub codes: Vec<ErrorCode>,
}

/// Limits and the clock of a commit.
#[derive(Clone, Copy, Debug)]
pub struct CommitRules {
    /// Longest text, in UTF-16 units as Java counts.
    pub metadata_units_max: usize,
    /// Wall clock.
    pub now_ms: i64,
}

/// Partitions of one topic whose offsets are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedTopic {
    /// Its name.
    pub topic: Arc<str>,
    /// Its id; an offset of a topic with another id is none. Zero accepts any.
    pub topic_id: TopicId,
    /// The partitions.
    pub partitions: Vec<i32>,
}

/// The offsets of one topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundTopic {
    /// Its name.
    pub topic: Arc<str>,
    /// Its id as the question had it.
    pub topic_id: TopicId,
    /// Its partitions.
    pub partitions: Vec<FoundOffset>,
}

/// The offset of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundOffset {
    /// The partition.
    pub partition: i32,
    /// 88 while a transaction is open, if only stable offsets are wanted.
    pub error: ErrorCode,
    /// The offset, -1 for none.
    pub offset: i64,
    /// Leader epoch of the last record consumed, -1 for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: Arc<str>,
}

impl Groups {
    /// Takes over an offset whose record stands at `at`.
    pub(super) fn set_offset(
        &mut self,
        at: Offset,
        producer: Option<ProducerId>,
        key: OffsetKey,
        value: OffsetValue,
    ) {
        let committed = Committed { at, value };
        let topics = &mut self.groups.entry(Arc::clone(&key.group)).or_default().topics;
        let partitions = topics.entry(Arc::clone(&key.topic)).or_default();
        let position = partitions.entry(key.partition).or_default();
        match producer {
            None => position.committed = Some(committed),
            Some(producer) => {
                position.pending.retain(|(other, _)| *other != producer);
                position.pending.push((producer, committed));
                self.open.entry(producer).or_default().insert(key);
            }
        }
    }

    /// The transaction of `producer` has ended here.
    pub fn marker(&mut self, producer: ProducerId, kind: MarkerKind) {
        for key in self.open.remove(&producer).unwrap_or_default() {
            self.change(&key, |position| {
                let Some(place) = position.pending.iter().position(|(id, _)| *id == producer)
                else {
                    return;
                };
                let (_, ended) = position.pending.remove(place);
                let newest = position.committed.as_ref().is_none_or(|old| old.at < ended.at);
                if kind == MarkerKind::Commit && newest {
                    position.committed = Some(ended);
                }
            });
        }
    }

    /// What committing these offsets comes to, if their topics' ids are all there is to know.
    ///
    /// # Errors
    /// The code for all of them.
    pub fn plan_commit(
        &self,
        commit: &Commit,
        rules: &CommitRules,
    ) -> Result<CommitPlan, ErrorCode> {
        self.plan_commit_knowing(commit, rules, &|_| None)
    }

    /// What committing these offsets comes to. `id_of` knows the topics there are now.
    ///
    /// # Errors
    /// The code for all of them.
    pub fn plan_commit_knowing(
        &self,
        commit: &Commit,
        rules: &CommitRules,
        id_of: &dyn Fn(&str) -> Option<TopicId>,
    ) -> Result<CommitPlan, ErrorCode> {
        let check = check_commit(self.groups.get(&commit.group), &commit.by, commit.api)?;
        let mut plan = CommitPlan { records: Vec::new(), codes: Vec::new() };
        let expire_ms = commit.retention_ms.map(|kept_ms| rules.now_ms.saturating_add(kept_ms));
        for new in &commit.offsets {
            // Every UTF-16 unit takes a byte or more.
            let long = new.metadata.len() > rules.metadata_units_max
                && new.metadata.encode_utf16().count() > rules.metadata_units_max;
            if long {
                plan.codes.push(ErrorCode::OffsetMetadataTooLarge);
                continue;
            }
            if check != CommitCheck::All {
                let id = Some(new.topic_id).filter(|id| *id != TopicId::ZERO);
                check.of_partition(id.or_else(|| id_of(&new.topic)), new.partition)?;
            }
            plan.codes.push(ErrorCode::None);
            let key = OffsetKey {
                group: Arc::clone(&commit.group),
                topic: Arc::clone(&new.topic),
                partition: new.partition,
            };
            // The one version of the record that has an expiry has nothing newer.
            let is_old = expire_ms.is_some();
            let value = OffsetValue {
                offset: new.offset,
                leader_epoch: if is_old { -1 } else { new.leader_epoch },
                metadata: Arc::clone(&new.metadata),
                commit_ms: rules.now_ms,
                expire_ms,
                topic_id: if is_old { TopicId::ZERO } else { new.topic_id },
            };
            plan.records.push(GroupRecord::Offset(key, Some(value)));
        }
        Ok(plan)
    }

    /// The offsets of some partitions, or of all that have one.
    #[must_use]
    pub fn fetch(
        &self,
        group: &str,
        wanted: Option<&[WantedTopic]>,
        require_stable: bool,
    ) -> Vec<FoundTopic> {
        let group = self.groups.get(group);
        let Some(wanted) = wanted else {
            return group.map(|group| group.all(require_stable)).unwrap_or_default();
        };
        let found = wanted.iter().map(|wanted| {
            let known = group.and_then(|group| group.topics.get(&wanted.topic));
            let partitions = wanted.partitions.iter().map(|&partition| {
                let position =
                    known.and_then(|partitions| partitions.get(&partition)).map(Box::as_ref);
                found(partition, position, wanted.topic_id, require_stable)
            });
            FoundTopic {
                topic: Arc::clone(&wanted.topic),
                topic_id: wanted.topic_id,
                partitions: partitions.collect(),
            }
        });
        found.collect()
    }

    /// What deleting some offsets of a group comes to: tombstones, and one code per partition.
    ///
    /// # Errors
    /// 69 if nobody knows the group, 68 if it has members that do not say what they read.
    pub fn plan_delete(
        &self,
        group: &Arc<str>,
        partitions: &[(Arc<str>, i32)],
    ) -> Result<CommitPlan, ErrorCode> {
        let known = self.groups.get(group).ok_or(ErrorCode::GroupIdNotFound)?;
        if let Some(classic) = known.kind.classic() {
            classic.check_offset_delete()?;
        }
        let mut plan = CommitPlan { records: Vec::new(), codes: Vec::new() };
        for (topic, partition) in partitions {
            if known.kind.is_subscribed(topic) {
                plan.codes.push(ErrorCode::GroupSubscribedToTopic);
                continue;
            }
            plan.codes.push(ErrorCode::None);
            if known.topics.get(topic).is_some_and(|there| there.contains_key(partition)) {
                plan.records.push(tombstone(group, topic, *partition));
            }
        }
        Ok(plan)
    }

    /// The tombstones of all offsets of a group.
    pub(super) fn all_tombstones(&self, id: &Arc<str>) -> Vec<GroupRecord> {
        let topics = self.groups.get(id).map(|group| group.topics.iter());
        let each = topics.into_iter().flatten().flat_map(|(topic, partitions)| {
            partitions.keys().map(|&partition| tombstone(id, topic, partition))
        });
        each.collect()
    }

    /// The tombstones that a topic's deletion makes. Offsets that do not say which topic of that
    /// name they are of go too, unless there is one again.
    #[must_use]
    pub fn plan_topic_deleted(
        &self,
        topic: &str,
        id: TopicId,
        name_is_taken: bool,
    ) -> Vec<GroupRecord> {
        let mut records = Vec::new();
        for (group, known) in &self.groups {
            let Some((topic, partitions)) = known.topics.get_key_value(topic) else { continue };
            for (&partition, position) in partitions {
                let pending = position.pending.iter().map(|(_, committed)| committed);
                let gone = position.committed.iter().chain(pending).any(|committed| {
                    let of = committed.value.topic_id;
                    of == id || (of == TopicId::ZERO && !name_is_taken)
                });
                if gone {
                    records.push(tombstone(group, topic, partition));
                }
            }
        }
        records
    }

    /// Up to `count` groups after `last`, by name.
    #[must_use]
    pub fn after(&self, last: Option<&Arc<str>>, count: usize) -> Vec<Arc<str>> {
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(&**last));
        let groups = self.groups.range::<str, _>((from, Bound::Unbounded));
        groups.take(count).map(|(id, _)| Arc::clone(id)).collect()
    }

    /// The tombstones of a group's offsets that have expired, and of the group if it has no other
    /// and no members. Offsets of a group with members stay while it reads their topics; those of
    /// one that has lost its members count from then.
    #[must_use]
    pub fn plan_expiry(&self, id: &Arc<str>, now_ms: i64, retention_ms: i64) -> Vec<GroupRecord> {
        let Some(group) = self.groups.get(id) else { return Vec::new() };
        let mut records = Vec::new();
        let mut is_left = false;
        let since = group.kind.expiry();
        for (topic, partitions) in &group.topics {
            let kept = since == Expiry::Never || group.kind.is_subscribed(topic);
            for (&partition, position) in partitions {
                if !kept && position.has_expired(since, now_ms, retention_ms) {
                    records.push(tombstone(id, topic, partition));
                } else {
                    is_left = true;
                }
            }
        }
        if !is_left && group.kind.is_empty() {
            records.extend(group.kind.tombstones(id));
        }
        records
    }

    /// Takes over a tombstone.
    pub(super) fn remove_offset(&mut self, key: &OffsetKey) {
        let mut open = Vec::new();
        self.change(key, |position| {
            position.committed = None;
            open.extend(position.pending.drain(..).map(|(producer, _)| producer));
        });
        for producer in open {
            if let Some(keys) = self.open.get_mut(&producer) {
                keys.remove(key);
                if keys.is_empty() {
                    self.open.remove(&producer);
                }
            }
        }
    }

    /// Changes a position that there may be, and drops it when nothing is left in it.
    fn change(&mut self, key: &OffsetKey, change: impl FnOnce(&mut Position)) {
        let Some(group) = self.groups.get_mut(&key.group) else { return };
        let Some(partitions) = group.topics.get_mut(&key.topic) else { return };
        let Some(position) = partitions.get_mut(&key.partition) else { return };
        change(position);
        if position.committed.is_none() && position.pending.is_empty() {
            partitions.remove(&key.partition);
            if partitions.is_empty() {
                group.topics.remove(&key.topic);
            }
        }
    }
}

impl Group {
    /// Every committed offset; where there is only a pending one there is none.
    fn all(&self, require_stable: bool) -> Vec<FoundTopic> {
        let topics = self.topics.iter().map(|(topic, partitions)| {
            let with_offset = partitions.iter().filter(|(_, known)| known.committed.is_some());
            let partitions = with_offset.map(|(&partition, position)| {
                found(partition, Some(position), TopicId::ZERO, require_stable)
            });
            FoundTopic {
                topic: Arc::clone(topic),
                topic_id: TopicId::ZERO,
                partitions: partitions.collect(),
            }
        });
        topics.filter(|topic| !topic.partitions.is_empty()).collect()
    }
}

impl Position {
    fn has_expired(&self, since: Expiry, now_ms: i64, retention_ms: i64) -> bool {
        let Some(Committed { value, .. }) = &self.committed else { return false };
        let is_over = match (value.expire_ms, since) {
            (Some(expire_ms), _) => now_ms >= expire_ms,
            (None, Expiry::Since(since_ms)) => now_ms.saturating_sub(since_ms) >= retention_ms,
            (None, _) => now_ms.saturating_sub(value.commit_ms) >= retention_ms,
        };
        is_over && self.pending.is_empty()
    }
}

fn found(
    partition: i32,
    position: Option<&Position>,
    topic_id: TopicId,
    require_stable: bool,
) -> FoundOffset {
    let none = FoundOffset {
        partition,
        error: ErrorCode::None,
        offset: -1,
        leader_epoch: -1,
        metadata: Arc::from(""),
    };
    let Some(position) = position else { return none };
    if require_stable && !position.pending.is_empty() {
        return FoundOffset { error: ErrorCode::UnstableOffsetCommit, ..none };
    }
    let is_same = |id: TopicId| id == topic_id || id == TopicId::ZERO || topic_id == TopicId::ZERO;
    match &position.committed {
        Some(Committed { value, .. }) if is_same(value.topic_id) => FoundOffset {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: Arc::clone(&value.metadata),
            ..none
        },
        _ => none,
    }
}

fn tombstone(group: &Arc<str>, topic: &Arc<str>, partition: i32) -> GroupRecord {
    let key = OffsetKey { group: Arc::clone(group), topic: Arc::clone(topic), partition };
    GroupRecord::Offset(key, None)
}

#[cfg(test)]
mod tests;
