//! Requests about committed offsets. The codec library lacks version 10 of two of them, with topic
//! ids: those are written by hand here.

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, OffsetCommitRequest, OffsetCommitResponse,
    OffsetDeleteRequest, OffsetFetchRequest, OffsetFetchResponse,
};
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Message, Request, StrBytes, VersionRange,
};

use super::requests::Topic;

/// An OffsetCommit request of any version.
#[derive(Clone, Debug)]
pub struct OffsetCommit(pub OffsetCommitRequest);

/// An OffsetFetch request of any version.
#[derive(Clone, Debug)]
pub struct OffsetFetch(pub OffsetFetchRequest);

/// A text as the codec wants it.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Commits an offset of one partition, without a member.
pub fn commit(version: i16, group: &str, topic: &Topic, partition: i32, at: i64) -> OffsetCommit {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(at)
        .with_committed_metadata(Some(text("")));
    let mut entry = OffsetCommitRequestTopic::default().with_partitions(vec![partition]);
    if version >= 10 {
        entry.topic_id = topic.id;
    } else {
        entry.name = topic.wire_name();
    }
    let request =
        OffsetCommitRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![entry]);
    OffsetCommit(request)
}

/// Fetches offsets of some partitions of one topic.
pub fn fetch(version: i16, group: &str, topic: &Topic, partitions: &[i32]) -> OffsetFetch {
    let mut request = fetch_all(version, group);
    if version >= 8 {
        let mut entry =
            OffsetFetchRequestTopics::default().with_partition_indexes(partitions.to_vec());
        if version >= 10 {
            entry.topic_id = topic.id;
        } else {
            entry.name = topic.wire_name();
        }
        request.0.groups[0].topics = Some(vec![entry]);
    } else {
        let entry = OffsetFetchRequestTopic::default()
            .with_name(topic.wire_name())
            .with_partition_indexes(partitions.to_vec());
        request.0.topics = Some(vec![entry]);
    }
    request
}

/// Fetches all offsets of a group (v2 on).
pub fn fetch_all(version: i16, group: &str) -> OffsetFetch {
    let request = OffsetFetchRequest::default();
    let group = GroupId(text(group));
    if version >= 8 {
        let group = OffsetFetchRequestGroup::default().with_group_id(group).with_topics(None);
        OffsetFetch(request.with_groups(vec![group]))
    } else {
        OffsetFetch(request.with_group_id(group).with_topics(None))
    }
}

/// Deletes offsets of some partitions of one topic.
pub fn delete(group: &str, topic: &str, partitions: &[i32]) -> OffsetDeleteRequest {
    let partitions = partitions
        .iter()
        .map(|&index| OffsetDeleteRequestPartition::default().with_partition_index(index));
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(Topic::named(topic).wire_name())
        .with_partitions(partitions.collect());
    OffsetDeleteRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic])
}

/// Asks for the coordinator of one group (v4 on).
pub fn find_coordinator(group: &str) -> FindCoordinatorRequest {
    FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)])
}

impl OffsetCommit {
    /// The bytes of version 10.
    fn version_10(&self) -> Vec<u8> {
        let OffsetCommit(request) = self;
        let mut out = Vec::new();
        put_text(&mut out, Some(&request.group_id));
        out.extend_from_slice(&request.generation_id_or_member_epoch.to_be_bytes());
        put_text(&mut out, Some(&request.member_id));
        put_text(&mut out, request.group_instance_id.as_ref());
        put_count(&mut out, Some(request.topics.len()));
        for topic in &request.topics {
            out.extend_from_slice(topic.topic_id.as_bytes());
            put_count(&mut out, Some(topic.partitions.len()));
            for partition in &topic.partitions {
                out.extend_from_slice(&partition.partition_index.to_be_bytes());
                out.extend_from_slice(&partition.committed_offset.to_be_bytes());
                out.extend_from_slice(&partition.committed_leader_epoch.to_be_bytes());
                put_text(&mut out, partition.committed_metadata.as_ref());
                out.push(0);
            }
            out.push(0);
        }
        out.push(0);
        out
    }
}

impl OffsetFetch {
    /// The bytes of version 10.
    fn version_10(&self) -> Vec<u8> {
        let OffsetFetch(request) = self;
        let mut out = Vec::new();
        put_count(&mut out, Some(request.groups.len()));
        for group in &request.groups {
            put_text(&mut out, Some(&group.group_id));
            put_text(&mut out, group.member_id.as_ref());
            out.extend_from_slice(&group.member_epoch.to_be_bytes());
            put_count(&mut out, group.topics.as_ref().map(Vec::len));
            for topic in group.topics.iter().flatten() {
                out.extend_from_slice(topic.topic_id.as_bytes());
                put_count(&mut out, Some(topic.partition_indexes.len()));
                for index in &topic.partition_indexes {
                    out.extend_from_slice(&index.to_be_bytes());
                }
                out.push(0);
            }
            out.push(0);
        }
        out.extend_from_slice(&[u8::from(request.require_stable), 0]);
        out
    }
}

/// A compact count or length, `None` for null.
fn put_count(out: &mut Vec<u8>, count: Option<usize>) {
    let mut value = count.map_or(0, |count| count + 1);
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: Option<&StrBytes>) {
    put_count(out, text.map(|text| text.len()));
    out.extend_from_slice(text.map_or("", |text| text.as_str()).as_bytes());
}

/// What the codec library asks of a request type; the newest version is the one written here.
macro_rules! request {
    ($name:ident, $inner:ty, $response:ty, $key:literal) => {
        impl Message for $name {
            const VERSIONS: VersionRange =
                VersionRange { min: <$inner as Message>::VERSIONS.min, max: 10 };
            const DEPRECATED_VERSIONS: Option<VersionRange> = None;
        }

        impl Encodable for $name {
            fn encode<B: ByteBufMut>(&self, out: &mut B, version: i16) -> anyhow::Result<()> {
                if version < 10 {
                    return self.0.encode(out, version);
                }
                bytes::BufMut::put_slice(out, &self.version_10());
                Ok(())
            }

            fn compute_size(&self, version: i16) -> anyhow::Result<usize> {
                if version < 10 {
                    self.0.compute_size(version)
                } else {
                    Ok(self.version_10().len())
                }
            }
        }

        impl Decodable for $name {
            fn decode<B: ByteBuf>(body: &mut B, version: i16) -> anyhow::Result<Self> {
                <$inner as Decodable>::decode(body, version).map($name)
            }
        }

        impl HeaderVersion for $name {
            fn header_version(version: i16) -> i16 {
                <$inner as HeaderVersion>::header_version(version.min(9))
            }
        }

        impl Request for $name {
            const KEY: i16 = $key;
            type Response = $response;
        }
    };
}

request!(OffsetCommit, OffsetCommitRequest, OffsetCommitResponse, 8);
request!(OffsetFetch, OffsetFetchRequest, OffsetFetchResponse, 9);
