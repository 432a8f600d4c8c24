//! Random valid requests of every API, each limited to what its version can say.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{
    FetchPartition, FetchTopic, ForgottenTopic, ReplicaState,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use uuid::Uuid;

use super::Random;
use crate::limits::REQUEST_UNKNOWN_TAGS_MAX;
use crate::wire::decode::Request;
use crate::wire::txn_markers;
use crate::wire::versions::Api;

mod admin;
mod groups;

pub(super) fn any_request(api: Api, version: i16, random: &mut Random) -> Request {
    random.tags_left = REQUEST_UNKNOWN_TAGS_MAX;
    let mut of = Of { version, random };
    let flexible = api.is_flexible(version);
    match api {
        Api::Produce => Request::Produce(of.produce(flexible)),
        Api::Fetch => Request::Fetch(Box::new(of.fetch(flexible))),
        Api::ListOffsets => Request::ListOffsets(of.list_offsets(flexible)),
        Api::Metadata => Request::Metadata(of.metadata(flexible)),
        Api::OffsetCommit => Request::OffsetCommit(of.offset_commit(flexible)),
        Api::OffsetFetch => Request::OffsetFetch(of.offset_fetch(flexible)),
        Api::FindCoordinator => Request::FindCoordinator(of.find_coordinator(flexible)),
        Api::ApiVersions => Request::ApiVersions(of.api_versions(flexible)),
        Api::CreateTopics => Request::CreateTopics(of.create_topics(flexible)),
        Api::CreatePartitions => Request::CreatePartitions(of.create_partitions(flexible)),
        Api::OffsetDelete => Request::OffsetDelete(of.offset_delete()),
        Api::DeleteTopics => Request::DeleteTopics(of.delete_topics(flexible)),
        Api::DeleteRecords => Request::DeleteRecords(of.delete_records(flexible)),
        Api::InitProducerId => Request::InitProducerId(of.init_producer_id(flexible)),
        Api::OffsetForLeaderEpoch => Request::OffsetForLeaderEpoch(of.for_leader_epoch(flexible)),
        Api::AddPartitionsToTxn => Request::AddPartitionsToTxn(of.add_partitions(flexible)),
        Api::AddOffsetsToTxn => Request::AddOffsetsToTxn(of.add_offsets(flexible)),
        Api::EndTxn => Request::EndTxn(of.end_txn(flexible)),
        Api::TxnOffsetCommit => Request::TxnOffsetCommit(Box::new(of.txn_offset_commit(flexible))),
        Api::DescribeConfigs => Request::DescribeConfigs(of.describe_configs(flexible)),
        Api::DescribeCluster => Request::DescribeCluster(of.describe_cluster(flexible)),
        Api::WriteTxnMarkers => Request::WriteTxnMarkers(of.write_txn_markers()),
        Api::DescribeProducers => Request::DescribeProducers(of.describe_producers(flexible)),
        Api::DescribeTransactions => {
            Request::DescribeTransactions(of.describe_transactions(flexible))
        }
        Api::ListTransactions => Request::ListTransactions(of.list_transactions(flexible)),
        Api::JoinGroup => Request::JoinGroup(Box::new(of.join_group(flexible))),
        Api::Heartbeat => Request::Heartbeat(of.heartbeat(flexible)),
        Api::LeaveGroup => Request::LeaveGroup(of.leave_group(flexible)),
        Api::SyncGroup => Request::SyncGroup(Box::new(of.sync_group(flexible))),
        Api::DescribeGroups => Request::DescribeGroups(of.describe_groups(flexible)),
        Api::ListGroups => Request::ListGroups(of.list_groups(flexible)),
        Api::DeleteGroups => Request::DeleteGroups(of.delete_groups(flexible)),
        Api::ConsumerGroupHeartbeat => {
            Request::ConsumerGroupHeartbeat(Box::new(of.consumer_group_heartbeat(flexible)))
        }
        Api::ConsumerGroupDescribe => {
            Request::ConsumerGroupDescribe(of.consumer_group_describe(flexible))
        }
        _ => of.administrative(api, flexible),
    }
}

struct Of<'a> {
    version: i16,
    random: &'a mut Random,
}

impl Of<'_> {
    fn produce(&mut self, flexible: bool) -> ProduceRequest {
        let version = self.version;
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                PartitionProduceData::default()
                    .with_index(random.int32())
                    .with_records(random.maybe(|random| random.bytes(300)))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            let topic = TopicProduceData::default()
                .with_partition_data(partitions)
                .with_unknown_tagged_fields(tags(random, flexible));
            if version >= 13 {
                topic.with_topic_id(uuid(random))
            } else {
                topic.with_name(TopicName(random.text()))
            }
        });
        ProduceRequest::default()
            .with_transactional_id(self.random.maybe(|random| TransactionalId(random.text())))
            .with_acks(self.random.int64() as i16)
            .with_timeout_ms(self.random.int32())
            .with_topic_data(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn fetch(&mut self, flexible: bool) -> FetchRequest {
        let topics = self.fetch_topics(flexible);
        let version = self.version;
        let random = &mut *self.random;
        let mut request = FetchRequest::default()
            .with_max_wait_ms(random.int32())
            .with_min_bytes(random.int32())
            .with_max_bytes(random.int32())
            .with_isolation_level(random.int64() as i8)
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(random, flexible));
        if version <= 14 {
            request.replica_id = BrokerId(random.int32());
        }
        if version >= 7 {
            request.session_id = random.int32();
            request.session_epoch = random.int32();
            request.forgotten_topics_data = random.list(|random| {
                let topic = ForgottenTopic::default()
                    .with_partitions(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 13 {
                    topic.with_topic_id(uuid(random))
                } else {
                    topic.with_topic(TopicName(random.text()))
                }
            });
        }
        if version >= 11 {
            request.rack_id = random.text();
        }
        if version >= 12 {
            request.cluster_id = random.maybe(Random::text);
        }
        if version >= 15 && random.chance() {
            request.replica_state = ReplicaState::default()
                .with_replica_id(BrokerId(random.int32()))
                .with_replica_epoch(random.int64())
                .with_unknown_tagged_fields(tags(random, flexible));
        }
        request
    }

    fn fetch_topics(&mut self, flexible: bool) -> Vec<FetchTopic> {
        let version = self.version;
        self.random.list(|random| {
            let partitions = random.list(|random| {
                let mut partition = FetchPartition::default()
                    .with_partition(random.int32())
                    .with_fetch_offset(random.int64())
                    .with_partition_max_bytes(random.int32())
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 5 {
                    partition.log_start_offset = random.int64();
                }
                if version >= 9 {
                    partition.current_leader_epoch = random.int32();
                }
                if version >= 12 {
                    partition.last_fetched_epoch = random.int32();
                }
                if version >= 17 && random.chance() {
                    partition.replica_directory_id = uuid(random);
                }
                if version >= 18 && random.chance() {
                    partition.high_watermark = random.int64();
                }
                partition
            });
            let topic = FetchTopic::default()
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible));
            if version >= 13 {
                topic.with_topic_id(uuid(random))
            } else {
                topic.with_topic(TopicName(random.text()))
            }
        })
    }

    fn list_offsets(&mut self, flexible: bool) -> ListOffsetsRequest {
        let version = self.version;
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                let mut partition = ListOffsetsPartition::default()
                    .with_partition_index(random.int32())
                    .with_timestamp(random.int64())
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 4 {
                    partition.current_leader_epoch = random.int32();
                }
                partition
            });
            ListOffsetsTopic::default()
                .with_name(TopicName(random.text()))
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(self.random.int32()))
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if version >= 2 {
            request.isolation_level = self.random.int64() as i8;
        }
        if version >= 10 {
            request.timeout_ms = self.random.int32();
        }
        request
    }

    fn metadata(&mut self, flexible: bool) -> MetadataRequest {
        let version = self.version;
        let topics = |random: &mut Random| {
            random.list(|random| {
                let mut topic = MetadataRequestTopic::default()
                    .with_name(Some(TopicName(random.text())))
                    .with_unknown_tagged_fields(tags(random, flexible));
                if version >= 10 {
                    topic.topic_id = uuid(random);
                    topic.name = random.maybe(|random| TopicName(random.text()));
                }
                topic
            })
        };
        let mut request = MetadataRequest::default()
            .with_topics(Some(topics(self.random)))
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if version >= 1 && self.random.chance() {
            request.topics = None;
        }
        if version >= 4 {
            request.allow_auto_topic_creation = self.random.chance();
        }
        if version >= 8 {
            request.include_topic_authorized_operations = self.random.chance();
        }
        if (8..=10).contains(&version) {
            request.include_cluster_authorized_operations = self.random.chance();
        }
        request
    }

    fn find_coordinator(&mut self, flexible: bool) -> FindCoordinatorRequest {
        let mut request = FindCoordinatorRequest::default()
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version <= 3 {
            request.key = self.random.text();
        }
        if self.version >= 1 {
            request.key_type = self.random.int64() as i8;
        }
        if self.version >= 4 {
            request.coordinator_keys = self.random.list(Random::text);
        }
        request
    }

    fn api_versions(&mut self, flexible: bool) -> ApiVersionsRequest {
        let mut request =
            ApiVersionsRequest::default().with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 3 {
            request.client_software_name = self.random.text();
            request.client_software_version = self.random.text();
        }
        request
    }

    fn create_topics(&mut self, flexible: bool) -> CreateTopicsRequest {
        let topics = self.random.list(|random| {
            let assignments = random.list(|random| {
                CreatableReplicaAssignment::default()
                    .with_partition_index(random.int32())
                    .with_broker_ids(random.list(|random| BrokerId(random.int32())))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            let configs = random.list(|random| {
                CreatableTopicConfig::default()
                    .with_name(random.text())
                    .with_value(random.maybe(Random::text))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            CreatableTopic::default()
                .with_name(TopicName(random.text()))
                .with_num_partitions(random.int32())
                .with_replication_factor(random.int64() as i16)
                .with_assignments(assignments)
                .with_configs(configs)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        CreateTopicsRequest::default()
            .with_topics(topics)
            .with_timeout_ms(self.random.int32())
            .with_validate_only(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn create_partitions(&mut self, flexible: bool) -> CreatePartitionsRequest {
        let topics = self.random.list(|random| {
            let assignments = random.maybe(|random| {
                random.list(|random| {
                    CreatePartitionsAssignment::default()
                        .with_broker_ids(random.list(|random| BrokerId(random.int32())))
                        .with_unknown_tagged_fields(tags(random, flexible))
                })
            });
            CreatePartitionsTopic::default()
                .with_name(TopicName(random.text()))
                .with_count(random.int32())
                .with_assignments(assignments)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        CreatePartitionsRequest::default()
            .with_topics(topics)
            .with_timeout_ms(self.random.int32())
            .with_validate_only(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn delete_records(&mut self, flexible: bool) -> DeleteRecordsRequest {
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                DeleteRecordsPartition::default()
                    .with_partition_index(random.int32())
                    .with_offset(random.int64())
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            DeleteRecordsTopic::default()
                .with_name(TopicName(random.text()))
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        DeleteRecordsRequest::default()
            .with_topics(topics)
            .with_timeout_ms(self.random.int32())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn delete_topics(&mut self, flexible: bool) -> DeleteTopicsRequest {
        let mut request = DeleteTopicsRequest::default()
            .with_timeout_ms(self.random.int32())
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 6 {
            request.topics = self.random.list(|random| {
                DeleteTopicState::default()
                    .with_name(random.maybe(|random| TopicName(random.text())))
                    .with_topic_id(uuid(random))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
        } else {
            request.topic_names = self.random.list(|random| TopicName(random.text()));
        }
        request
    }

    fn init_producer_id(&mut self, flexible: bool) -> InitProducerIdRequest {
        let mut request = InitProducerIdRequest::default()
            .with_transactional_id(self.random.maybe(|random| TransactionalId(random.text())))
            .with_transaction_timeout_ms(self.random.int32())
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 3 {
            request.producer_id = ProducerId(self.random.int64());
            request.producer_epoch = self.random.int64() as i16;
        }
        request
    }

    fn for_leader_epoch(&mut self, flexible: bool) -> OffsetForLeaderEpochRequest {
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                OffsetForLeaderPartition::default()
                    .with_partition(random.int32())
                    .with_current_leader_epoch(random.int32())
                    .with_leader_epoch(random.int32())
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            OffsetForLeaderTopic::default()
                .with_topic(TopicName(random.text()))
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = OffsetForLeaderEpochRequest::default()
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 3 {
            request.replica_id = BrokerId(self.random.int32());
        }
        request
    }

    fn add_partitions(&mut self, flexible: bool) -> AddPartitionsToTxnRequest {
        let topics = |random: &mut Random| {
            random.list(|random| {
                AddPartitionsToTxnTopic::default()
                    .with_name(TopicName(random.text()))
                    .with_partitions(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        };
        let mut request = AddPartitionsToTxnRequest::default()
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 4 {
            request.transactions = self.random.list(|random| {
                AddPartitionsToTxnTransaction::default()
                    .with_transactional_id(TransactionalId(random.text()))
                    .with_producer_id(ProducerId(random.int64()))
                    .with_producer_epoch(random.int64() as i16)
                    .with_verify_only(random.chance())
                    .with_topics(topics(random))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
        } else {
            request.v3_and_below_transactional_id = TransactionalId(self.random.text());
            request.v3_and_below_producer_id = ProducerId(self.random.int64());
            request.v3_and_below_producer_epoch = self.random.int64() as i16;
            request.v3_and_below_topics = topics(self.random);
        }
        request
    }

    fn add_offsets(&mut self, flexible: bool) -> AddOffsetsToTxnRequest {
        AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(self.random.text()))
            .with_producer_id(ProducerId(self.random.int64()))
            .with_producer_epoch(self.random.int64() as i16)
            .with_group_id(GroupId(self.random.text()))
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn end_txn(&mut self, flexible: bool) -> EndTxnRequest {
        EndTxnRequest::default()
            .with_transactional_id(TransactionalId(self.random.text()))
            .with_producer_id(ProducerId(self.random.int64()))
            .with_producer_epoch(self.random.int64() as i16)
            .with_committed(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn describe_transactions(&mut self, flexible: bool) -> DescribeTransactionsRequest {
        DescribeTransactionsRequest::default()
            .with_transactional_ids(self.random.list(|random| TransactionalId(random.text())))
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn list_transactions(&mut self, flexible: bool) -> ListTransactionsRequest {
        let mut request = ListTransactionsRequest::default()
            .with_state_filters(self.random.list(Random::text))
            .with_producer_id_filters(self.random.list(|random| ProducerId(random.int64())))
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 1 {
            request.duration_filter = self.random.int64();
        }
        if self.version >= 2 {
            request.transactional_id_pattern = self.random.maybe(Random::text);
        }
        request
    }

    fn write_txn_markers(&mut self) -> txn_markers::WriteTxnMarkersRequest {
        let version = self.version;
        let markers = self.random.list(|random| {
            let topics = random.list(|random| txn_markers::TxnMarkerTopic {
                name: random.text(),
                partitions: random.list(Random::int32),
            });
            txn_markers::TxnMarker {
                producer_id: random.int64(),
                producer_epoch: random.int64() as i16,
                committed: random.chance(),
                topics,
                coordinator_epoch: random.int32(),
                transaction_version: if version >= 2 { random.int64() as i8 } else { 0 },
            }
        });
        txn_markers::WriteTxnMarkersRequest { markers }
    }

    fn describe_producers(&mut self, flexible: bool) -> DescribeProducersRequest {
        let topics = self.random.list(|random| {
            TopicRequest::default()
                .with_name(TopicName(random.text()))
                .with_partition_indexes(random.list(Random::int32))
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        DescribeProducersRequest::default()
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    fn describe_configs(&mut self, flexible: bool) -> DescribeConfigsRequest {
        let resources = self.random.list(|random| {
            DescribeConfigsResource::default()
                .with_resource_type(random.int64() as i8)
                .with_resource_name(random.text())
                .with_configuration_keys(random.maybe(|random| random.list(Random::text)))
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = DescribeConfigsRequest::default()
            .with_resources(resources)
            .with_include_synonyms(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 3 {
            request.include_documentation = self.random.chance();
        }
        request
    }

    fn describe_cluster(&mut self, flexible: bool) -> DescribeClusterRequest {
        let mut request = DescribeClusterRequest::default()
            .with_include_cluster_authorized_operations(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 1 {
            request.endpoint_type = self.random.int64() as i8;
        }
        if self.version >= 2 {
            request.include_fenced_brokers = self.random.chance();
        }
        request
    }
}

mod offsets;

pub(super) use offsets::{offset_commit_10, offset_fetch_10};

/// Unknown tagged fields now and then, numbered above all known ones.
fn tags(random: &mut Random, flexible: bool) -> BTreeMap<i32, Bytes> {
    let mut tags = BTreeMap::new();
    if flexible && random.below(8) == 0 {
        for _ in 0..(1 + random.below(3)).min(random.tags_left) {
            random.tags_left -= 1;
            tags.insert(100 + random.below(100) as i32, random.bytes(140));
        }
    }
    tags
}

fn uuid(random: &mut Random) -> Uuid {
    let (high, low) = (random.next(), random.next());
    Uuid::from_u64_pair(high, low)
}
