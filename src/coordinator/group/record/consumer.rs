//! Records of consumer groups: key types 3 to 8 and 16 of `__consumer_offsets`.
//!
//! Owns their layout, byte for byte as Apache Kafka 4.3 writes them: keys as of old, values of
//! version 0 with compact fields and tags. Tags of later brokers are passed over. What a topic's
//! partitions were in Kafka 4.0 (type 4) is only known to be there or not, so that it can be
//! deleted: a hash in the group's own record took its place. No input panics. Source: KIP-848,
//! Kafka's `ConsumerGroupMetadataValue` and its siblings, KIP-1101 for the hash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::{Reader, RecordFault, put_text, put_uvarint};
use crate::coordinator::group::assignor::Partitions;
use crate::ids::TopicId;

/// Partitions by topic, each with the group epoch at which its member was given it.
pub type Epochs = BTreeMap<TopicId, BTreeMap<i32, i32>>;

/// One record of a consumer group; without a value it is a tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerRecord {
    /// The group.
    pub group: Arc<str>,
    /// What it says of the group.
    pub change: ConsumerChange,
}

/// What one record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsumerChange {
    /// 3: the group's epoch.
    Epoch(Option<GroupEpoch>),
    /// 4: whether Kafka 4.0 left a record of the topics' partitions. Only its tombstone is written.
    OldTopics(bool),
    /// 5: a member's subscription.
    Member(Arc<str>, Option<Arc<MemberMetadata>>),
    /// 6: the epoch of the target assignment.
    TargetEpoch(Option<TargetEpoch>),
    /// 7: what a member is to have.
    Target(Arc<str>, Option<Arc<Partitions>>),
    /// 8: what a member has.
    Current(Arc<str>, Option<Arc<CurrentAssignment>>),
    /// 16: the topics that a regular expression stands for.
    Regex(Arc<str>, Option<Arc<ResolvedRegex>>),
}

/// Value of type 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupEpoch {
    /// Rises with every change of members, subscriptions and topics.
    pub epoch: i32,
    /// Hash of the topics subscribed to.
    pub metadata_hash: i64,
}

/// Value of type 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetEpoch {
    /// The group epoch that the targets were computed for.
    pub epoch: i32,
    /// When; 0 if unknown.
    pub at_ms: i64,
}

/// Value of type 5.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MemberMetadata {
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// Rack.
    pub rack_id: Option<Arc<str>>,
    /// Client id.
    pub client_id: Arc<str>,
    /// Client address, with a slash before it.
    pub client_host: Arc<str>,
    /// Topics subscribed to by name.
    pub topic_names: BTreeSet<Arc<str>>,
    /// Topics subscribed to by expression.
    pub topic_regex: Option<Arc<str>>,
    /// How long giving up partitions may take.
    pub rebalance_timeout_ms: i32,
    /// The assignor it would have.
    pub assignor: Option<Arc<str>>,
    /// What else is known of a member that uses the classic protocol.
    pub classic: Option<ClassicFacts>,
}

/// What a member of the classic protocol said when it joined.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClassicFacts {
    /// Its session timeout.
    pub session_timeout_ms: i32,
    /// Its protocols with their metadata, the preferred first.
    pub protocols: Vec<(Arc<str>, Bytes)>,
}

/// Where a member stands on its way to its target.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MemberState {
    /// 0: it has its target, as far as it could be known.
    #[default]
    Stable,
    /// 1: it has yet to give up partitions.
    Unrevoked,
    /// 2: it waits for partitions that others have.
    Unreleased,
    /// Written by a later broker.
    Unknown(i8),
}

/// Value of type 8.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CurrentAssignment {
    /// The group epoch it has reached.
    pub epoch: i32,
    /// The one before.
    pub previous_epoch: i32,
    /// Where it stands.
    pub state: MemberState,
    /// What it may consume.
    pub assigned: Epochs,
    /// What it was told to give up and has not said that it did.
    pub revoking: Epochs,
}

/// Value of type 16.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResolvedRegex {
    /// Topics that match.
    pub topics: BTreeSet<Arc<str>>,
    /// Version of the catalog they were found in.
    pub version: i64,
    /// When.
    pub at_ms: i64,
}

impl ConsumerChange {
    /// Whether something is gone: a group that is not known is none the more for it.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        match self {
            ConsumerChange::Epoch(value) => value.is_none(),
            ConsumerChange::OldTopics(is_there) => !is_there,
            ConsumerChange::Member(_, value) => value.is_none(),
            ConsumerChange::TargetEpoch(value) => value.is_none(),
            ConsumerChange::Target(_, value) => value.is_none(),
            ConsumerChange::Current(_, value) => value.is_none(),
            ConsumerChange::Regex(_, value) => value.is_none(),
        }
    }
}

impl ConsumerRecord {
    /// Reads a record whose key has this type, from behind the type.
    ///
    /// # Errors
    /// See [`RecordFault`].
    pub(super) fn decode(
        kind: i16,
        key: &mut Reader<'_>,
        value: Option<&[u8]>,
    ) -> Result<ConsumerRecord, RecordFault> {
        let group = key.text()?;
        let change = match kind {
            3 => ConsumerChange::Epoch(read(value, |value| {
                let epoch = value.int32()?;
                Ok(GroupEpoch { epoch, metadata_hash: value.int64_tag()? })
            })?),
            4 => ConsumerChange::OldTopics(value.is_some()),
            5 => ConsumerChange::Member(key.text()?, read_shared(value, MemberMetadata::decode)?),
            6 => ConsumerChange::TargetEpoch(read(value, |value| {
                let epoch = value.int32()?;
                Ok(TargetEpoch { epoch, at_ms: value.int64_tag()? })
            })?),
            7 => ConsumerChange::Target(key.text()?, read_shared(value, read_partitions)?),
            8 => {
                ConsumerChange::Current(key.text()?, read_shared(value, CurrentAssignment::decode)?)
            }
            _ => ConsumerChange::Regex(key.text()?, read_shared(value, ResolvedRegex::decode)?),
        };
        Ok(ConsumerRecord { group, change })
    }

    /// Key and value; a null value is a tombstone.
    ///
    /// # Panics
    /// For a record that this broker does not write.
    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match &self.change {
            ConsumerChange::Epoch(value) => {
                let encode = |value: &GroupEpoch| with_tag(value.epoch, value.metadata_hash);
                (self.key(3, None), value.as_ref().map(encode))
            }
            ConsumerChange::OldTopics(is_there) => {
                assert!(!is_there, "only the tombstone of old topics is written");
                (self.key(4, None), None)
            }
            ConsumerChange::Member(member, value) => {
                (self.key(5, Some(member)), value.as_deref().map(MemberMetadata::encode))
            }
            ConsumerChange::TargetEpoch(value) => {
                let encode = |value: &TargetEpoch| with_tag(value.epoch, value.at_ms);
                (self.key(6, None), value.as_ref().map(encode))
            }
            ConsumerChange::Target(member, value) => {
                (self.key(7, Some(member)), value.as_deref().map(put_partitions))
            }
            ConsumerChange::Current(member, value) => {
                (self.key(8, Some(member)), value.as_deref().map(CurrentAssignment::encode))
            }
            ConsumerChange::Regex(regex, value) => {
                (self.key(16, Some(regex)), value.as_deref().map(ResolvedRegex::encode))
            }
        }
    }

    fn key(&self, kind: i16, rest: Option<&str>) -> Vec<u8> {
        let mut key = kind.to_be_bytes().to_vec();
        put_text(&mut key, &self.group);
        if let Some(rest) = rest {
            put_text(&mut key, rest);
        }
        key
    }
}

fn read<T>(
    value: Option<&[u8]>,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, RecordFault>,
) -> Result<Option<T>, RecordFault> {
    let Some(value) = value else { return Ok(None) };
    let mut value = Reader(value);
    match value.int16()? {
        VERSION => read(&mut value).map(Some),
        other => Err(RecordFault::Version(other)),
    }
}

fn read_shared<T>(
    value: Option<&[u8]>,
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, RecordFault>,
) -> Result<Option<Arc<T>>, RecordFault> {
    Ok(read(value, decode)?.map(Arc::new))
}

impl MemberMetadata {
    fn decode(value: &mut Reader<'_>) -> Result<MemberMetadata, RecordFault> {
        let instance_id = value.nullable_text()?;
        let rack_id = value.nullable_text()?;
        let client_id = value.compact_text()?;
        let client_host = value.compact_text()?;
        let mut topic_names = BTreeSet::new();
        for _ in 0..value.compact_count()? {
            topic_names.insert(value.compact_text()?);
        }
        let topic_regex = value.nullable_text()?;
        let rebalance_timeout_ms = value.int32()?;
        let assignor = value.nullable_text()?;
        // A record without the tag is one whose facts are all zero: only null is no facts.
        let mut classic = Some(ClassicFacts::default());
        value.tags(|tag, bytes| {
            if tag == 0 {
                let mut bytes = Reader(bytes);
                classic = match bytes.array()? {
                    [0] => None,
                    [_] => Some(ClassicFacts::decode(&mut bytes)?),
                };
            }
            Ok(())
        })?;
        Ok(MemberMetadata {
            instance_id,
            rack_id,
            client_id,
            client_host,
            topic_names,
            topic_regex,
            rebalance_timeout_ms,
            assignor,
            classic,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_be_bytes().to_vec();
        put_nullable(&mut out, self.instance_id.as_deref());
        put_nullable(&mut out, self.rack_id.as_deref());
        put_nullable(&mut out, Some(&self.client_id));
        put_nullable(&mut out, Some(&self.client_host));
        put_count(&mut out, self.topic_names.len());
        for name in &self.topic_names {
            put_nullable(&mut out, Some(name));
        }
        put_nullable(&mut out, self.topic_regex.as_deref());
        out.extend_from_slice(&self.rebalance_timeout_ms.to_be_bytes());
        put_nullable(&mut out, self.assignor.as_deref());
        let facts = match &self.classic {
            None => vec![0],
            Some(facts) if *facts == ClassicFacts::default() => {
                out.push(0);
                return out;
            }
            Some(facts) => facts.encode(),
        };
        put_tag(&mut out, &facts);
        out
    }
}

impl ClassicFacts {
    fn decode(value: &mut Reader<'_>) -> Result<ClassicFacts, RecordFault> {
        let session_timeout_ms = value.int32()?;
        let mut protocols = Vec::new();
        for _ in 0..value.compact_count()? {
            let name = value.compact_text()?;
            let length = value.compact_count()?;
            protocols.push((name, Bytes::copy_from_slice(value.take(length)?)));
            value.tags(|_, _| Ok(()))?;
        }
        value.tags(|_, _| Ok(()))?;
        Ok(ClassicFacts { session_timeout_ms, protocols })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
        out.extend_from_slice(&self.session_timeout_ms.to_be_bytes());
        put_count(&mut out, self.protocols.len());
        for (name, metadata) in &self.protocols {
            put_nullable(&mut out, Some(name));
            put_count(&mut out, metadata.len());
            out.extend_from_slice(metadata);
            out.push(0);
        }
        out.push(0);
        out
    }
}

impl MemberState {
    /// The state with this number.
    #[must_use]
    pub fn of(number: i8) -> MemberState {
        match number {
            0 => MemberState::Stable,
            1 => MemberState::Unrevoked,
            2 => MemberState::Unreleased,
            other => MemberState::Unknown(other),
        }
    }

    fn number(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::Unrevoked => 1,
            MemberState::Unreleased => 2,
            MemberState::Unknown(number) => number,
        }
    }
}

impl CurrentAssignment {
    fn decode(value: &mut Reader<'_>) -> Result<CurrentAssignment, RecordFault> {
        let epoch = value.int32()?;
        let previous_epoch = value.int32()?;
        let [state] = value.array()?;
        let assigned = read_epochs(value, epoch)?;
        let revoking = read_epochs(value, epoch)?;
        value.tags(|_, _| Ok(()))?;
        let state = MemberState::of(i8::from_be_bytes([state]));
        Ok(CurrentAssignment { epoch, previous_epoch, state, assigned, revoking })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_be_bytes().to_vec();
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.previous_epoch.to_be_bytes());
        out.extend_from_slice(&self.state.number().to_be_bytes());
        put_epochs(&mut out, &self.assigned);
        put_epochs(&mut out, &self.revoking);
        out.push(0);
        out
    }
}

impl ResolvedRegex {
    fn decode(value: &mut Reader<'_>) -> Result<ResolvedRegex, RecordFault> {
        let mut topics = BTreeSet::new();
        for _ in 0..value.compact_count()? {
            topics.insert(value.compact_text()?);
        }
        let (version, at_ms) = (value.int64()?, value.int64()?);
        value.tags(|_, _| Ok(()))?;
        Ok(ResolvedRegex { topics, version, at_ms })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_be_bytes().to_vec();
        put_count(&mut out, self.topics.len());
        for topic in &self.topics {
            put_nullable(&mut out, Some(topic));
        }
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.at_ms.to_be_bytes());
        out.push(0);
        out
    }
}

fn read_partitions(value: &mut Reader<'_>) -> Result<Partitions, RecordFault> {
    let mut read = Partitions::new();
    for _ in 0..value.compact_count()? {
        let id = TopicId(value.array()?);
        let partitions = value.int32s()?;
        value.tags(|_, _| Ok(()))?;
        read.entry(id).or_default().extend(partitions);
    }
    value.tags(|_, _| Ok(()))?;
    read.retain(|_, partitions| !partitions.is_empty());
    Ok(read)
}

fn put_partitions(partitions: &Partitions) -> Vec<u8> {
    let mut out = VERSION.to_be_bytes().to_vec();
    put_count(&mut out, partitions.len());
    for (id, partitions) in partitions {
        out.extend_from_slice(&id.0);
        put_int32s(&mut out, partitions.iter().copied());
        out.push(0);
    }
    out.push(0);
    out
}

/// Before 4.3 partitions had no epochs of their own: theirs is the member's.
fn read_epochs(value: &mut Reader<'_>, member_epoch: i32) -> Result<Epochs, RecordFault> {
    let mut read = Epochs::new();
    for _ in 0..value.compact_count()? {
        let id = TopicId(value.array()?);
        let partitions = value.int32s()?;
        let mut epochs = Vec::new();
        value.tags(|tag, bytes| {
            if tag == 0 {
                epochs = Reader(bytes).nullable_int32s()?;
            }
            Ok(())
        })?;
        if epochs.len() != partitions.len() {
            epochs = vec![member_epoch.max(0); partitions.len()];
        }
        if !partitions.is_empty() {
            read.entry(id).or_default().extend(partitions.into_iter().zip(epochs));
        }
    }
    Ok(read)
}

fn put_epochs(out: &mut Vec<u8>, epochs: &Epochs) {
    put_count(out, epochs.len());
    for (id, partitions) in epochs {
        out.extend_from_slice(&id.0);
        put_int32s(out, partitions.keys().copied());
        let mut tag = Vec::with_capacity(4 * partitions.len() + 2);
        put_int32s(&mut tag, partitions.values().copied());
        put_tag(out, &tag);
    }
}

fn put_int32s(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = i32>) {
    put_count(out, numbers.len());
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// An epoch, and a number as the only tag unless it is zero.
fn with_tag(epoch: i32, tagged: i64) -> Vec<u8> {
    let mut out = VERSION.to_be_bytes().to_vec();
    out.extend_from_slice(&epoch.to_be_bytes());
    if tagged == 0 {
        out.push(0);
    } else {
        put_tag(&mut out, &tagged.to_be_bytes());
    }
    out
}

/// A block of tags with tag 0 alone.
fn put_tag(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&[1, 0]);
    put_uvarint(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("invariant: no record has 4 billion of anything");
    put_uvarint(out, count + 1);
}

fn put_nullable(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => out.push(0),
        Some(text) => {
            put_count(out, text.len());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

impl<'a> Reader<'a> {
    /// Length of an array that is not null; not longer than what is left.
    fn compact_count(&mut self) -> Result<usize, RecordFault> {
        let count = self.uvarint()?.checked_sub(1).ok_or(RecordFault::Truncated)?;
        let count = usize::try_from(count).map_err(|_| RecordFault::Truncated)?;
        if count > self.0.len() { Err(RecordFault::Truncated) } else { Ok(count) }
    }

    fn int32s(&mut self) -> Result<Vec<i32>, RecordFault> {
        let count = self.compact_count()?;
        (0..count).map(|_| self.int32()).collect()
    }

    fn nullable_int32s(&mut self) -> Result<Vec<i32>, RecordFault> {
        if self.0.first() == Some(&0) { Ok(Vec::new()) } else { self.int32s() }
    }

    fn nullable_text(&mut self) -> Result<Option<Arc<str>>, RecordFault> {
        if self.0.first() == Some(&0) {
            self.take(1)?;
            return Ok(None);
        }
        self.compact_text().map(Some)
    }

    /// Hands every tag and its bytes to `see`.
    fn tags(
        &mut self,
        mut see: impl FnMut(u32, &'a [u8]) -> Result<(), RecordFault>,
    ) -> Result<(), RecordFault> {
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let size = self.uvarint()?;
            see(tag, self.take(size as usize)?)?;
        }
        Ok(())
    }

    /// The number in tag 0, zero if it is not there.
    fn int64_tag(&mut self) -> Result<i64, RecordFault> {
        let mut number = 0;
        self.tags(|tag, bytes| {
            if tag == 0 {
                number = Reader(bytes).int64()?;
            }
            Ok(())
        })?;
        Ok(number)
    }
}

/// The version of all these values.
const VERSION: i16 = 0;

#[cfg(test)]
mod tests;
