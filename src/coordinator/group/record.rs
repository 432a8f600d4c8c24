//! Keys and values of `__consumer_offsets`, byte for byte as Apache Kafka 4.3 writes them.
//!
//! Owns their layout: reading every version ever written, writing the newest (offsets in value
//! version 4, or 1 where the client gave the offset an expiry of its own). [`classic`] has the
//! values of classic groups, [`consumer`] the records of consumer groups. Keys that this broker has
//! no use for yet are told apart by their type, so that nothing else need look at them. No input
//! panics. Source: Kafka's `OffsetCommitKey`, `OffsetCommitValue`, `GroupMetadataKey`; KIP-848,
//! KIP-915.

use std::sync::Arc;

use crate::ids::TopicId;

pub mod classic;
pub mod consumer;

use classic::ClassicMetadata;
use consumer::ConsumerRecord;

/// What a committed offset is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OffsetKey {
    /// The group.
    pub group: Arc<str>,
    /// The topic, by name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

/// A committed offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OffsetValue {
    /// The offset to go on from.
    pub offset: i64,
    /// Leader epoch of the last record consumed, -1 for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: Arc<str>,
    /// Broker's clock at the commit.
    pub commit_ms: i64,
    /// When it expires, if the client said so.
    pub expire_ms: Option<i64>,
    /// Id of the topic at the commit; zero if unknown.
    pub topic_id: TopicId,
}

/// One record of `__consumer_offsets`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupRecord {
    /// An offset, or its tombstone.
    Offset(OffsetKey, Option<OffsetValue>),
    /// A classic group with its members.
    Classic(Arc<str>, Arc<ClassicMetadata>),
    /// The group is gone: the tombstone of a classic group's metadata.
    GroupGone(Arc<str>),
    /// A record of a consumer group.
    Consumer(ConsumerRecord),
    /// A record of this type, which nothing reads yet.
    Other(KeyType),
}

/// The type of a key: its first two bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyType {
    /// 0 and 1: an offset.
    Offset,
    /// 2: a classic group with its members.
    ClassicGroup,
    /// 3-8 and 16: a consumer group, its members, targets, assignments and expressions.
    ConsumerGroup,
    /// 10-15: a share group.
    ShareGroup,
    /// 17-23: a streams group.
    StreamsGroup,
    /// Written by a later broker: to be passed over.
    Unknown(i16),
}

/// Why a record cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordFault {
    /// It ends before its fields do.
    #[error("the record ends inside a field")]
    Truncated,
    /// A text is not UTF-8, or null where it may not be.
    #[error("a text of the record is malformed")]
    Text,
    /// A value of a version that no Kafka up to 4.3 writes.
    #[error("value version {0} is not known")]
    Version(i16),
}

impl KeyType {
    /// The type with this number.
    #[must_use]
    pub fn of(number: i16) -> KeyType {
        match number {
            0 | 1 => KeyType::Offset,
            2 => KeyType::ClassicGroup,
            3..=8 | 16 => KeyType::ConsumerGroup,
            10..=15 => KeyType::ShareGroup,
            17..=23 => KeyType::StreamsGroup,
            other => KeyType::Unknown(other),
        }
    }
}

impl GroupRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// See [`RecordFault`].
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<GroupRecord, RecordFault> {
        let mut key = Reader(key);
        let number = key.int16()?;
        match KeyType::of(number) {
            KeyType::Offset => {
                let (group, topic, partition) = (key.text()?, key.text()?, key.int32()?);
                let value = value.map(OffsetValue::decode).transpose()?;
                Ok(GroupRecord::Offset(OffsetKey { group, topic, partition }, value))
            }
            KeyType::ClassicGroup => {
                let group = key.text()?;
                Ok(match value {
                    Some(value) => {
                        GroupRecord::Classic(group, Arc::new(ClassicMetadata::decode(value)?))
                    }
                    None => GroupRecord::GroupGone(group),
                })
            }
            KeyType::ConsumerGroup => {
                Ok(GroupRecord::Consumer(ConsumerRecord::decode(number, &mut key, value)?))
            }
            other => Ok(GroupRecord::Other(other)),
        }
    }

    /// Key and value; a null value is a tombstone.
    ///
    /// # Panics
    /// For a record that this broker does not write.
    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut out = Vec::new();
        match self {
            GroupRecord::Offset(key, value) => {
                out.extend_from_slice(&1_i16.to_be_bytes());
                put_text(&mut out, &key.group);
                put_text(&mut out, &key.topic);
                out.extend_from_slice(&key.partition.to_be_bytes());
                (out, value.as_ref().map(OffsetValue::encode))
            }
            GroupRecord::Classic(group, metadata) => {
                out.extend_from_slice(&2_i16.to_be_bytes());
                put_text(&mut out, group);
                (out, Some(metadata.encode()))
            }
            GroupRecord::GroupGone(group) => {
                out.extend_from_slice(&2_i16.to_be_bytes());
                put_text(&mut out, group);
                (out, None)
            }
            GroupRecord::Consumer(record) => record.encode(),
            GroupRecord::Other(kind) => panic!("nothing writes records of type {kind:?}"),
        }
    }
}

impl OffsetValue {
    fn decode(value: &[u8]) -> Result<OffsetValue, RecordFault> {
        let mut value = Reader(value);
        let version = value.int16()?;
        if !(0..=FLEXIBLE).contains(&version) {
            return Err(RecordFault::Version(version));
        }
        let offset = value.int64()?;
        let leader_epoch = if version >= 3 { value.int32()? } else { -1 };
        let metadata = if version >= FLEXIBLE { value.compact_text()? } else { value.text()? };
        let commit_ms = value.int64()?;
        let expire_ms = if version == WITH_EXPIRY { value.int64()? } else { -1 };
        let topic_id = if version >= FLEXIBLE { value.topic_id_tag()? } else { TopicId::ZERO };
        let expire_ms = (expire_ms != -1).then_some(expire_ms);
        Ok(OffsetValue { offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + self.metadata.len());
        if let Some(expire_ms) = self.expire_ms {
            out.extend_from_slice(&WITH_EXPIRY.to_be_bytes());
            out.extend_from_slice(&self.offset.to_be_bytes());
            put_text(&mut out, &self.metadata);
            out.extend_from_slice(&self.commit_ms.to_be_bytes());
            out.extend_from_slice(&expire_ms.to_be_bytes());
            return out;
        }
        out.extend_from_slice(&FLEXIBLE.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        put_uvarint(&mut out, self.metadata.len() as u32 + 1);
        out.extend_from_slice(self.metadata.as_bytes());
        out.extend_from_slice(&self.commit_ms.to_be_bytes());
        if self.topic_id == TopicId::ZERO {
            out.push(0);
        } else {
            out.extend_from_slice(&[1, 0, 16]);
            out.extend_from_slice(&self.topic_id.0);
        }
        out
    }
}

/// What is left of a key or value.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], RecordFault> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(RecordFault::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordFault> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(RecordFault::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    fn int16(&mut self) -> Result<i16, RecordFault> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn int32(&mut self) -> Result<i32, RecordFault> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn int64(&mut self) -> Result<i64, RecordFault> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<Arc<str>, RecordFault> {
        let length = usize::try_from(self.int16()?).map_err(|_| RecordFault::Text)?;
        self.utf8(length)
    }

    fn compact_text(&mut self) -> Result<Arc<str>, RecordFault> {
        let length = self.uvarint()?.checked_sub(1).ok_or(RecordFault::Text)?;
        self.utf8(length as usize)
    }

    fn utf8(&mut self, length: usize) -> Result<Arc<str>, RecordFault> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Arc::from).map_err(|_| RecordFault::Text)
    }

    fn uvarint(&mut self) -> Result<u32, RecordFault> {
        let mut value = 0_u32;
        for shift in (0..32).step_by(7) {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordFault::Truncated)
    }

    /// The topic id among the tagged fields; zero if it is not there. Others are passed over.
    fn topic_id_tag(&mut self) -> Result<TopicId, RecordFault> {
        let mut id = TopicId::ZERO;
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let size = self.uvarint()?;
            let bytes = self.take(size as usize)?;
            if tag == 0 {
                id = TopicId(*bytes.first_chunk().ok_or(RecordFault::Truncated)?);
            }
        }
        Ok(id)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("invariant: no text of the wire is longer");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The one version that holds an expiry.
const WITH_EXPIRY: i16 = 1;

/// The version written otherwise, the first flexible one.
const FLEXIBLE: i16 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> OffsetKey {
        OffsetKey { group: "g".into(), topic: "tt".into(), partition: 3 }
    }

    fn value() -> OffsetValue {
        OffsetValue {
            offset: 5,
            leader_epoch: 7,
            metadata: "m".into(),
            commit_ms: 9,
            expire_ms: None,
            topic_id: TopicId::ZERO,
        }
    }

    const KEY: &[u8] = b"\0\x01\0\x01g\0\x02tt\0\0\0\x03";
    const OFFSET: &[u8] = b"\0\0\0\0\0\0\0\x05";
    const COMMIT_MS: &[u8] = b"\0\0\0\0\0\0\0\x09";

    /// A value is read as `record`, written the same if it is of the version `written`, and
    /// refused when it is cut short.
    pub(super) fn check_value(key: &[u8], record: &GroupRecord, value: &[u8], written: bool) {
        assert_eq!(GroupRecord::decode(key, Some(value)), Ok(record.clone()));
        if written {
            assert_eq!(record.encode(), (key.to_vec(), Some(value.to_vec())));
        }
        for length in 0..value.len() {
            let cut = GroupRecord::decode(key, Some(&value[..length]));
            assert_eq!(cut, Err(RecordFault::Truncated), "value cut at {length}");
        }
    }

    /// The layout of Kafka's `OffsetCommitValue`, written by hand.
    fn check(expected: &OffsetValue, parts: &[&[u8]], written: bool) {
        let record = GroupRecord::Offset(key(), Some(expected.clone()));
        check_value(KEY, &record, &parts.concat(), written);
    }

    #[test]
    fn offsets_of_every_version_byte_for_byte() {
        let plain = OffsetValue { leader_epoch: -1, ..value() };
        check(&plain, &[b"\0\0", OFFSET, b"\0\x01m", COMMIT_MS], false);
        check(&plain, &[b"\0\x02", OFFSET, b"\0\x01m", COMMIT_MS], false);
        let expiring = OffsetValue { expire_ms: Some(11), ..plain };
        let expire_ms = b"\0\0\0\0\0\0\0\x0b";
        check(&expiring, &[b"\0\x01", OFFSET, b"\0\x01m", COMMIT_MS, expire_ms], true);
        check(&value(), &[b"\0\x03", OFFSET, b"\0\0\0\x07\0\x01m", COMMIT_MS], false);
        check(&value(), &[b"\0\x04", OFFSET, b"\0\0\0\x07\x02m", COMMIT_MS, b"\0"], true);
        let id = TopicId(*b"1234567890abcdef");
        let with_id = OffsetValue { topic_id: id, ..value() };
        let head: &[&[u8]] = &[b"\0\x04", OFFSET, b"\0\0\0\x07\x02m", COMMIT_MS];
        check(&with_id, &[head, &[b"\x01\0\x10", &id.0]].concat(), true);
        // A tag of a later Kafka.
        check(&with_id, &[head, &[b"\x02\0\x10", &id.0, b"\x05\x02zz"]].concat(), false);
    }

    #[test]
    fn tombstones_and_keys_of_other_types() {
        let gone = GroupRecord::Offset(key(), None);
        assert_eq!(GroupRecord::decode(KEY, None), Ok(gone.clone()));
        assert_eq!(gone.encode(), (KEY.to_vec(), None));
        let legacy = [&[0, 0], &KEY[2..]].concat();
        assert_eq!(GroupRecord::decode(&legacy, None), Ok(gone));
        let group = b"\0\x02\0\x01g";
        assert_eq!(GroupRecord::decode(group, None), Ok(GroupRecord::GroupGone("g".into())));
        assert_eq!(GroupRecord::GroupGone("g".into()).encode(), (group.to_vec(), None));
        let kinds = [
            (9, KeyType::Unknown(9)),
            (10, KeyType::ShareGroup),
            (15, KeyType::ShareGroup),
            (17, KeyType::StreamsGroup),
            (23, KeyType::StreamsGroup),
            (24, KeyType::Unknown(24)),
            (-1, KeyType::Unknown(-1)),
        ];
        for (number, kind) in kinds {
            let key = i16::to_be_bytes(number);
            let decoded = GroupRecord::decode(&key, Some(b"\xff"));
            assert_eq!(decoded, Ok(GroupRecord::Other(kind)), "{number}");
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let check = |key: &[u8], value: Option<&[u8]>, fault| {
            assert_eq!(GroupRecord::decode(key, value), Err(fault));
        };
        check(b"\0", None, RecordFault::Truncated);
        check(b"\0\x01\xff\xff", None, RecordFault::Text);
        check(b"\0\x01\0\x01\xff\0\0\0\0\0\0", None, RecordFault::Text);
        check(KEY, Some(b"\0\x05"), RecordFault::Version(5));
        check(KEY, Some(b"\xff\xff"), RecordFault::Version(-1));
        let null_metadata = [b"\0\x04", OFFSET, b"\0\0\0\x07\0"].concat();
        check(KEY, Some(&null_metadata), RecordFault::Text);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_is_written_is_read_back(
            texts in prop::array::uniform3(".{0,300}"),
            numbers in any::<(i32, i64, i32, i64, Option<u32>, [u8; 16])>(),
        ) {
            let [group, topic, metadata] = texts.map(Arc::<str>::from);
            let (partition, offset, epoch, commit_ms, expire, id) = numbers;
            let expire_ms = expire.map(i64::from);
            let value = OffsetValue {
                offset,
                leader_epoch: if expire_ms.is_some() { -1 } else { epoch },
                metadata,
                commit_ms,
                expire_ms,
                topic_id: if expire_ms.is_some() { TopicId::ZERO } else { TopicId(id) },
            };
            let record = GroupRecord::Offset(OffsetKey { group, topic, partition }, Some(value));
            let (key, value) = record.encode();
            prop_assert_eq!(GroupRecord::decode(&key, value.as_deref()), Ok(record));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
        ) {
            let _ = GroupRecord::decode(&key, value.as_deref());
            let _ = GroupRecord::decode(KEY, value.as_deref());
        }
    }
}
