//! Random requests about committed offsets, and the bytes of those that the codec cannot write.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, ProducerId, TopicName,
    TransactionalId, TxnOffsetCommitRequest,
};

use super::{Of, tags, uuid};
use crate::wire::primitive::{put_count, put_null_count, put_nullable_text, put_text, put_uvarint};
use crate::wire::tests::Random;

impl Of<'_> {
    pub(super) fn offset_commit(&mut self, flexible: bool) -> OffsetCommitRequest {
        let version = self.version;
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                let mut partition = OffsetCommitRequestPartition::default()
                    .with_partition_index(random.int32())
                    .with_committed_offset(random.int64())
                    .with_committed_metadata(random.maybe(Random::text))
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 6 {
                    partition.committed_leader_epoch = random.int32();
                }
                partition
            });
            let topic = OffsetCommitRequestTopic::default()
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible));
            if version >= 10 {
                topic.with_topic_id(uuid(random))
            } else {
                topic.with_name(TopicName(random.text()))
            }
        });
        let mut request = OffsetCommitRequest::default()
            .with_group_id(GroupId(self.random.text()))
            .with_generation_id_or_member_epoch(self.random.int32())
            .with_member_id(self.random.text())
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if version >= 7 {
            request.group_instance_id = self.random.maybe(Random::text);
        }
        if version <= 4 {
            request.retention_time_ms = self.random.int64();
        }
        request
    }

    pub(super) fn offset_fetch(&mut self, flexible: bool) -> OffsetFetchRequest {
        let version = self.version;
        let mut request = OffsetFetchRequest::default();
        if version >= 8 {
            request.groups = self.random.list(|random| {
                let topics = |random: &mut Random| {
                    random.list(|random| {
                        let topic = OffsetFetchRequestTopics::default()
                            .with_partition_indexes(random.list(Random::int32))
                            .with_unknown_tagged_fields(tags(random, flexible));
                        if version >= 10 {
                            topic.with_topic_id(uuid(random))
                        } else {
                            topic.with_name(TopicName(random.text()))
                        }
                    })
                };
                let mut group = OffsetFetchRequestGroup::default()
                    .with_group_id(GroupId(random.text()))
                    .with_topics(random.maybe(topics))
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 9 {
                    group.member_id = random.maybe(Random::text);
                    group.member_epoch = random.int32();
                }
                group
            });
        } else {
            request.group_id = GroupId(self.random.text());
            request.topics = Some(self.random.list(|random| {
                OffsetFetchRequestTopic::default()
                    .with_name(TopicName(random.text()))
                    .with_partition_indexes(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            }));
            if version >= 2 && self.random.chance() {
                request.topics = None;
            }
        }
        if version >= 7 {
            request.require_stable = self.random.chance();
        }
        request.with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn txn_offset_commit(&mut self, flexible: bool) -> TxnOffsetCommitRequest {
        let version = self.version;
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                let mut partition = TxnOffsetCommitRequestPartition::default()
                    .with_partition_index(random.int32())
                    .with_committed_offset(random.int64())
                    .with_committed_metadata(random.maybe(Random::text))
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 2 {
                    partition.committed_leader_epoch = random.int32();
                }
                partition
            });
            TxnOffsetCommitRequestTopic::default()
                .with_name(TopicName(random.text()))
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = TxnOffsetCommitRequest::default()
            .with_transactional_id(TransactionalId(self.random.text()))
            .with_group_id(GroupId(self.random.text()))
            .with_producer_id(ProducerId(self.random.int64()))
            .with_producer_epoch(self.random.int64() as i16)
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if version >= 3 {
            request.generation_id = self.random.int32();
            request.member_id = self.random.text();
            request.group_instance_id = self.random.maybe(Random::text);
        }
        request
    }

    pub(super) fn offset_delete(&mut self) -> OffsetDeleteRequest {
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                OffsetDeleteRequestPartition::default().with_partition_index(random.int32())
            });
            OffsetDeleteRequestTopic::default()
                .with_name(TopicName(random.text()))
                .with_partitions(partitions)
        });
        OffsetDeleteRequest::default()
            .with_group_id(GroupId(self.random.text()))
            .with_topics(topics)
    }
}

/// The bytes of an OffsetCommit request of version 10.
pub(in crate::wire) fn offset_commit_10(request: &OffsetCommitRequest) -> Bytes {
    let mut out = Vec::new();
    put_text(&mut out, &request.group_id, true).expect("fits");
    out.put_i32(request.generation_id_or_member_epoch);
    put_text(&mut out, &request.member_id, true).expect("fits");
    put_nullable_text(&mut out, request.group_instance_id.as_deref(), true).expect("fits");
    put_count(&mut out, request.topics.len(), true).expect("fits");
    for topic in &request.topics {
        out.put_slice(topic.topic_id.as_bytes());
        put_count(&mut out, topic.partitions.len(), true).expect("fits");
        for partition in &topic.partitions {
            out.put_i32(partition.partition_index);
            out.put_i64(partition.committed_offset);
            out.put_i32(partition.committed_leader_epoch);
            let metadata = partition.committed_metadata.as_deref();
            put_nullable_text(&mut out, metadata, true).expect("fits");
            put_tags(&mut out, &partition.unknown_tagged_fields);
        }
        put_tags(&mut out, &topic.unknown_tagged_fields);
    }
    put_tags(&mut out, &request.unknown_tagged_fields);
    out.into()
}

/// The bytes of an OffsetFetch request of version 10.
pub(in crate::wire) fn offset_fetch_10(request: &OffsetFetchRequest) -> Bytes {
    let mut out = Vec::new();
    put_count(&mut out, request.groups.len(), true).expect("fits");
    for group in &request.groups {
        put_text(&mut out, &group.group_id, true).expect("fits");
        put_nullable_text(&mut out, group.member_id.as_deref(), true).expect("fits");
        out.put_i32(group.member_epoch);
        match &group.topics {
            None => put_null_count(&mut out, true),
            Some(topics) => {
                put_count(&mut out, topics.len(), true).expect("fits");
                for topic in topics {
                    out.put_slice(topic.topic_id.as_bytes());
                    put_count(&mut out, topic.partition_indexes.len(), true).expect("fits");
                    topic.partition_indexes.iter().for_each(|&index| out.put_i32(index));
                    put_tags(&mut out, &topic.unknown_tagged_fields);
                }
            }
        }
        put_tags(&mut out, &group.unknown_tagged_fields);
    }
    out.put_u8(u8::from(request.require_stable));
    put_tags(&mut out, &request.unknown_tagged_fields);
    out.into()
}

fn put_tags(out: &mut Vec<u8>, tags: &BTreeMap<i32, Bytes>) {
    put_uvarint(out, tags.len() as u32);
    for (number, bytes) in tags {
        put_uvarint(out, number.cast_unsigned());
        put_uvarint(out, bytes.len() as u32);
        out.put_slice(bytes);
    }
}
