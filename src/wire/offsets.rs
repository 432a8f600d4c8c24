//! OffsetCommit 10 and OffsetFetch 10: requests with topic ids, which the codec library lacks.
//!
//! Owns their decoding into the library's own types; the responses of these versions it knows.
//! Runs behind the shape check like the codec, and keeps unknown tagged fields as it does.
//! Source: Kafka's `OffsetCommitRequest` and `OffsetFetchRequest`; KIP-848.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::primitive::get_uvarint;

/// The first version of both that the codec library lacks.
pub const TOPIC_IDS_SINCE: i16 = 10;

/// Why a field cannot be read.
pub(super) type Fault = &'static str;

/// Reads an OffsetCommit request of version 10; what is left of `body` is not part of it.
pub(super) fn offset_commit(body: &mut Bytes) -> Result<OffsetCommitRequest, Fault> {
    let mut read = Reader(body);
    Ok(OffsetCommitRequest::default()
        .with_group_id(GroupId(read.text()?))
        .with_generation_id_or_member_epoch(read.int32()?)
        .with_member_id(read.text()?)
        .with_group_instance_id(read.nullable_text()?)
        .with_topics(read.list(|read| {
            Ok(OffsetCommitRequestTopic::default()
                .with_topic_id(read.uuid()?)
                .with_partitions(read.list(|read| {
                    Ok(OffsetCommitRequestPartition::default()
                        .with_partition_index(read.int32()?)
                        .with_committed_offset(read.int64()?)
                        .with_committed_leader_epoch(read.int32()?)
                        .with_committed_metadata(read.nullable_text()?)
                        .with_unknown_tagged_fields(read.tags()?))
                })?)
                .with_unknown_tagged_fields(read.tags()?))
        })?)
        .with_unknown_tagged_fields(read.tags()?))
}

/// Reads an OffsetFetch request of version 10; what is left of `body` is not part of it.
pub(super) fn offset_fetch(body: &mut Bytes) -> Result<OffsetFetchRequest, Fault> {
    let mut read = Reader(body);
    Ok(OffsetFetchRequest::default()
        .with_groups(read.list(|read| {
            Ok(OffsetFetchRequestGroup::default()
                .with_group_id(GroupId(read.text()?))
                .with_member_id(read.nullable_text()?)
                .with_member_epoch(read.int32()?)
                .with_topics(read.nullable_list(|read| {
                    Ok(OffsetFetchRequestTopics::default()
                        .with_topic_id(read.uuid()?)
                        .with_partition_indexes(read.list(Reader::int32)?)
                        .with_unknown_tagged_fields(read.tags()?))
                })?)
                .with_unknown_tagged_fields(read.tags()?))
        })?)
        .with_require_stable(read.array::<1>()? != [0])
        .with_unknown_tagged_fields(read.tags()?))
}

/// What is left of a flexible body.
struct Reader<'a>(&'a mut Bytes);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let taken = self.0.first_chunk::<N>().copied().ok_or(SHORT)?;
        self.0.advance(N);
        Ok(taken)
    }

    fn int32(&mut self) -> Result<i32, Fault> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn int64(&mut self) -> Result<i64, Fault> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn uuid(&mut self) -> Result<Uuid, Fault> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    fn uvarint(&mut self) -> Result<u32, Fault> {
        let (value, length) = get_uvarint(self.0).ok_or(SHORT)?;
        self.0.advance(length);
        Ok(value)
    }

    fn bytes(&mut self, length: u32) -> Result<Bytes, Fault> {
        let length = length as usize;
        if length > self.0.len() { Err(SHORT) } else { Ok(self.0.split_to(length)) }
    }

    fn nullable_text(&mut self) -> Result<Option<StrBytes>, Fault> {
        let Some(length) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        let bytes = self.bytes(length)?;
        StrBytes::try_from(bytes).map(Some).map_err(|_| "a text is not UTF-8")
    }

    fn text(&mut self) -> Result<StrBytes, Fault> {
        self.nullable_text()?.ok_or("a text is null")
    }

    /// Its count was compared with the bytes that are there by the shape check.
    fn nullable_list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<Vec<T>>, Fault> {
        let Some(count) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        let mut list = Vec::with_capacity((count as usize).min(self.0.len()));
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(Some(list))
    }

    fn list<T>(
        &mut self,
        element: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        self.nullable_list(element)?.ok_or("an array is null")
    }

    fn tags(&mut self) -> Result<BTreeMap<i32, Bytes>, Fault> {
        let mut tags = BTreeMap::new();
        for _ in 0..self.uvarint()? {
            let number = self.uvarint()?;
            let size = self.uvarint()?;
            tags.insert(number.cast_signed(), self.bytes(size)?);
        }
        Ok(tags)
    }
}

const SHORT: Fault = "a field is cut short";
