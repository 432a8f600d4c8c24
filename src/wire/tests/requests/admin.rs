//! Random requests of the APIs that administer the cluster.

use kafka_protocol::messages::{
    alter_configs_request, alter_partition_reassignments_request, alter_replica_log_dirs_request,
    describe_log_dirs_request, describe_quorum_request, describe_topic_partitions_request,
    elect_leaders_request, incremental_alter_configs_request, list_partition_reassignments_request,
    update_features_request,
};

use super::*;

impl Of<'_> {
    pub(super) fn alter_configs(&mut self, flexible: bool) -> AlterConfigsRequest {
        use alter_configs_request::{AlterConfigsResource, AlterableConfig};
        let resources = self.random.list(|random| {
            let configs = random.list(|random| {
                AlterableConfig::default()
                    .with_name(random.text())
                    .with_value(random.maybe(Random::text))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            AlterConfigsResource::default()
                .with_resource_type(random.int64() as i8)
                .with_resource_name(random.text())
                .with_configs(configs)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        AlterConfigsRequest::default()
            .with_resources(resources)
            .with_validate_only(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn incremental_alter_configs(
        &mut self,
        flexible: bool,
    ) -> IncrementalAlterConfigsRequest {
        use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
        let resources = self.random.list(|random| {
            let configs = random.list(|random| {
                AlterableConfig::default()
                    .with_name(random.text())
                    .with_config_operation(random.int64() as i8)
                    .with_value(random.maybe(Random::text))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            AlterConfigsResource::default()
                .with_resource_type(random.int64() as i8)
                .with_resource_name(random.text())
                .with_configs(configs)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        IncrementalAlterConfigsRequest::default()
            .with_resources(resources)
            .with_validate_only(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn list_config_resources(&mut self, flexible: bool) -> ListConfigResourcesRequest {
        let mut request = ListConfigResourcesRequest::default()
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 1 {
            request.resource_types = self.random.list(|random| random.int64() as i8);
        }
        request
    }

    pub(super) fn describe_topic_partitions(
        &mut self,
        flexible: bool,
    ) -> DescribeTopicPartitionsRequest {
        use describe_topic_partitions_request::{Cursor, TopicRequest};
        let topics = self.random.list(|random| {
            TopicRequest::default()
                .with_name(TopicName(random.text()))
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let cursor = self.random.maybe(|random| {
            Cursor::default()
                .with_topic_name(TopicName(random.text()))
                .with_partition_index(random.int32())
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        DescribeTopicPartitionsRequest::default()
            .with_topics(topics)
            .with_response_partition_limit(self.random.int32())
            .with_cursor(cursor)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn describe_quorum(&mut self, flexible: bool) -> DescribeQuorumRequest {
        use describe_quorum_request::{PartitionData, TopicData};
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                PartitionData::default()
                    .with_partition_index(random.int32())
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            TopicData::default()
                .with_topic_name(TopicName(random.text()))
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        DescribeQuorumRequest::default()
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn update_features(&mut self, flexible: bool) -> UpdateFeaturesRequest {
        let version = self.version;
        let updates = self.random.list(|random| {
            let mut update = update_features_request::FeatureUpdateKey::default()
                .with_feature(random.text())
                .with_max_version_level(random.int64() as i16)
                .with_unknown_tagged_fields(tags(random, flexible));
            if version == 0 {
                update.allow_downgrade = random.chance();
            } else {
                update.upgrade_type = random.int64() as i8;
            }
            update
        });
        let mut request = UpdateFeaturesRequest::default()
            .with_timeout_ms(self.random.int32())
            .with_feature_updates(updates)
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if version >= 1 {
            request.validate_only = self.random.chance();
        }
        request
    }

    pub(super) fn list_partition_reassignments(
        &mut self,
        flexible: bool,
    ) -> ListPartitionReassignmentsRequest {
        use list_partition_reassignments_request::ListPartitionReassignmentsTopics;
        let topics = self.random.maybe(|random| {
            random.list(|random| {
                ListPartitionReassignmentsTopics::default()
                    .with_name(TopicName(random.text()))
                    .with_partition_indexes(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        });
        ListPartitionReassignmentsRequest::default()
            .with_timeout_ms(self.random.int32())
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn alter_partition_reassignments(
        &mut self,
        flexible: bool,
    ) -> AlterPartitionReassignmentsRequest {
        use alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
        let topics = self.random.list(|random| {
            let partitions = random.list(|random| {
                let nodes = |random: &mut Random| random.list(|r| BrokerId(r.int32()));
                ReassignablePartition::default()
                    .with_partition_index(random.int32())
                    .with_replicas(random.maybe(nodes))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            ReassignableTopic::default()
                .with_name(TopicName(random.text()))
                .with_partitions(partitions)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = AlterPartitionReassignmentsRequest::default()
            .with_timeout_ms(self.random.int32())
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 1 {
            request.allow_replication_factor_change = self.random.chance();
        }
        request
    }

    pub(super) fn elect_leaders(&mut self, flexible: bool) -> ElectLeadersRequest {
        let topics = self.random.maybe(|random| {
            random.list(|random| {
                elect_leaders_request::TopicPartitions::default()
                    .with_topic(TopicName(random.text()))
                    .with_partitions(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        });
        let mut request = ElectLeadersRequest::default()
            .with_topic_partitions(topics)
            .with_timeout_ms(self.random.int32())
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 1 {
            request.election_type = self.random.int64() as i8;
        }
        request
    }

    pub(super) fn describe_log_dirs(&mut self, flexible: bool) -> DescribeLogDirsRequest {
        let topics = self.random.maybe(|random| {
            random.list(|random| {
                describe_log_dirs_request::DescribableLogDirTopic::default()
                    .with_topic(TopicName(random.text()))
                    .with_partitions(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        });
        DescribeLogDirsRequest::default()
            .with_topics(topics)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn alter_replica_log_dirs(&mut self, flexible: bool) -> AlterReplicaLogDirsRequest {
        use alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
        let directories = self.random.list(|random| {
            let topics = random.list(|random| {
                AlterReplicaLogDirTopic::default()
                    .with_name(TopicName(random.text()))
                    .with_partitions(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            AlterReplicaLogDir::default()
                .with_path(random.text())
                .with_topics(topics)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        AlterReplicaLogDirsRequest::default()
            .with_dirs(directories)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn unregister_broker(&mut self, flexible: bool) -> UnregisterBrokerRequest {
        UnregisterBrokerRequest::default()
            .with_broker_id(BrokerId(self.random.int32()))
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }
}
