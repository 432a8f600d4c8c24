//! Short ways to the requests that most tests send: one topic, one partition, ordinary settings.
//! What a test is about, it sets on the result.

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, FetchRequest,
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

/// A topic, by name in older versions of an API and by id in newer ones. Both may be given.
#[derive(Clone, Debug, Default)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; nil if unknown.
    pub id: Uuid,
}

impl Topic {
    /// A topic of which only the name is known.
    pub fn named(name: &str) -> Topic {
        Topic { name: name.to_owned(), id: Uuid::nil() }
    }

    /// Its name as the codec wants it.
    pub fn wire_name(&self) -> TopicName {
        TopicName(StrBytes::from_string(self.name.clone()))
    }
}

/// CreateTopics (v2-7) for one topic.
pub fn create_topic(name: &str, partitions: i32) -> CreateTopicsRequest {
    let topic = CreatableTopic::default()
        .with_name(Topic::named(name).wire_name())
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

/// DeleteTopics v1-5 for one topic.
pub fn delete_topic(name: &str) -> DeleteTopicsRequest {
    DeleteTopicsRequest::default()
        .with_topic_names(vec![Topic::named(name).wire_name()])
        .with_timeout_ms(10_000)
}

/// DeleteTopics v6 for one topic, by name.
pub fn delete_topic_state(name: &str) -> DeleteTopicsRequest {
    let topic = DeleteTopicState::default().with_name(Some(Topic::named(name).wire_name()));
    DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

/// Metadata (v4 on) for some topics, without creating them; none given means all.
pub fn metadata(names: &[&str]) -> MetadataRequest {
    let topics = names.iter().map(|name| {
        MetadataRequestTopic::default().with_name(Some(Topic::named(name).wire_name()))
    });
    MetadataRequest::default()
        .with_topics((!names.is_empty()).then(|| topics.collect()))
        .with_allow_auto_topic_creation(false)
}

/// Produce of a record set to one partition, acks as given.
pub fn produce(
    version: i16,
    topic: &Topic,
    partition: i32,
    acks: i16,
    set: Bytes,
) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(set));
    let mut entry = TopicProduceData::default().with_partition_data(vec![data]);
    if version >= 13 {
        entry.topic_id = topic.id;
    } else {
        entry.name = topic.wire_name();
    }
    ProduceRequest::default().with_acks(acks).with_timeout_ms(10_000).with_topic_data(vec![entry])
}

/// Fetch of one partition outside any session: answers at once, up to 1 MiB.
pub fn fetch(version: i16, topic: &Topic, partition: i32, offset: i64) -> FetchRequest {
    let entry = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let mut topics = FetchTopic::default().with_partitions(vec![entry]);
    if version >= 13 {
        topics.topic_id = topic.id;
    } else {
        topics.topic = topic.wire_name();
    }
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topics])
}

/// ListOffsets of one partition; -1 is the end, -2 the start, otherwise a time in ms.
pub fn list_offsets(name: &str, partition: i32, timestamp: i64) -> ListOffsetsRequest {
    let entry =
        ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default()
        .with_name(Topic::named(name).wire_name())
        .with_partitions(vec![entry]);
    ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic])
}

/// DeleteRecords: per topic partitions and the first offsets to keep.
pub fn delete_records(topics: &[(&str, &[(i32, i64)])]) -> DeleteRecordsRequest {
    let partition = |&(index, offset): &(i32, i64)| {
        DeleteRecordsPartition::default().with_partition_index(index).with_offset(offset)
    };
    let topic = |&(name, partitions): &(&str, &[(i32, i64)])| {
        DeleteRecordsTopic::default()
            .with_name(Topic::named(name).wire_name())
            .with_partitions(partitions.iter().map(partition).collect())
    };
    DeleteRecordsRequest::default()
        .with_topics(topics.iter().map(topic).collect())
        .with_timeout_ms(10_000)
}

/// InitProducerId, of an idempotent producer if no transactional id is given.
pub fn init_producer_id(transactional_id: Option<&str>) -> InitProducerIdRequest {
    let id = transactional_id.map(|id| TransactionalId(StrBytes::from_string(id.to_owned())));
    InitProducerIdRequest::default().with_transactional_id(id).with_transaction_timeout_ms(60_000)
}
