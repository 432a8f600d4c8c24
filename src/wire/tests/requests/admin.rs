//! Random requests of the APIs that administer the cluster.

use kafka_protocol::messages::{
    alter_client_quotas_request, alter_configs_request, alter_partition_reassignments_request,
    alter_replica_log_dirs_request, alter_user_scram_credentials_request, create_acls_request,
    create_delegation_token_request, delete_acls_request, describe_client_quotas_request,
    describe_delegation_token_request, describe_log_dirs_request, describe_quorum_request,
    describe_topic_partitions_request, describe_user_scram_credentials_request,
    elect_leaders_request, incremental_alter_configs_request, list_partition_reassignments_request,
    update_features_request,
};

use super::*;

impl Of<'_> {
    pub(super) fn administrative(&mut self, api: Api, flexible: bool) -> Request {
        match api {
            Api::DescribeAcls => Request::DescribeAcls(self.describe_acls(flexible)),
            Api::CreateAcls => Request::CreateAcls(self.create_acls(flexible)),
            Api::DeleteAcls => Request::DeleteAcls(self.delete_acls(flexible)),
            Api::AlterConfigs => Request::AlterConfigs(self.alter_configs(flexible)),
            Api::AlterReplicaLogDirs => {
                Request::AlterReplicaLogDirs(self.alter_replica_log_dirs(flexible))
            }
            Api::DescribeLogDirs => Request::DescribeLogDirs(self.describe_log_dirs(flexible)),
            Api::CreateDelegationToken => {
                Request::CreateDelegationToken(self.create_delegation_token(flexible))
            }
            Api::RenewDelegationToken => {
                Request::RenewDelegationToken(self.renew_delegation_token(flexible))
            }
            Api::ExpireDelegationToken => {
                Request::ExpireDelegationToken(self.expire_delegation_token(flexible))
            }
            Api::DescribeDelegationToken => {
                Request::DescribeDelegationToken(self.describe_delegation_token(flexible))
            }
            Api::ElectLeaders => Request::ElectLeaders(self.elect_leaders(flexible)),
            Api::IncrementalAlterConfigs => {
                Request::IncrementalAlterConfigs(self.incremental_alter_configs(flexible))
            }
            Api::AlterPartitionReassignments => {
                Request::AlterPartitionReassignments(self.alter_partition_reassignments(flexible))
            }
            Api::ListPartitionReassignments => {
                Request::ListPartitionReassignments(self.list_partition_reassignments(flexible))
            }
            Api::DescribeClientQuotas => {
                Request::DescribeClientQuotas(self.describe_client_quotas(flexible))
            }
            Api::AlterClientQuotas => {
                Request::AlterClientQuotas(self.alter_client_quotas(flexible))
            }
            Api::DescribeUserScramCredentials => Request::DescribeUserScramCredentials(
                self.describe_user_scram_credentials(flexible),
            ),
            Api::AlterUserScramCredentials => {
                Request::AlterUserScramCredentials(self.alter_user_scram_credentials(flexible))
            }
            Api::DescribeQuorum => Request::DescribeQuorum(self.describe_quorum(flexible)),
            Api::UpdateFeatures => Request::UpdateFeatures(self.update_features(flexible)),
            Api::UnregisterBroker => Request::UnregisterBroker(self.unregister_broker(flexible)),
            Api::ListConfigResources => {
                Request::ListConfigResources(self.list_config_resources(flexible))
            }
            Api::DescribeTopicPartitions => {
                Request::DescribeTopicPartitions(self.describe_topic_partitions(flexible))
            }
            _ => unreachable!("every other request is made by `any_request`"),
        }
    }

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

    pub(super) fn describe_acls(&mut self, flexible: bool) -> DescribeAclsRequest {
        let random = &mut *self.random;
        DescribeAclsRequest::default()
            .with_resource_type_filter(random.int64() as i8)
            .with_resource_name_filter(random.maybe(Random::text))
            .with_pattern_type_filter(random.int64() as i8)
            .with_principal_filter(random.maybe(Random::text))
            .with_host_filter(random.maybe(Random::text))
            .with_operation(random.int64() as i8)
            .with_permission_type(random.int64() as i8)
            .with_unknown_tagged_fields(tags(random, flexible))
    }

    pub(super) fn create_acls(&mut self, flexible: bool) -> CreateAclsRequest {
        let creations = self.random.list(|random| {
            create_acls_request::AclCreation::default()
                .with_resource_type(random.int64() as i8)
                .with_resource_name(random.text())
                .with_resource_pattern_type(random.int64() as i8)
                .with_principal(random.text())
                .with_host(random.text())
                .with_operation(random.int64() as i8)
                .with_permission_type(random.int64() as i8)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        CreateAclsRequest::default()
            .with_creations(creations)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn delete_acls(&mut self, flexible: bool) -> DeleteAclsRequest {
        let filters = self.random.list(|random| {
            delete_acls_request::DeleteAclsFilter::default()
                .with_resource_type_filter(random.int64() as i8)
                .with_resource_name_filter(random.maybe(Random::text))
                .with_pattern_type_filter(random.int64() as i8)
                .with_principal_filter(random.maybe(Random::text))
                .with_host_filter(random.maybe(Random::text))
                .with_operation(random.int64() as i8)
                .with_permission_type(random.int64() as i8)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        DeleteAclsRequest::default()
            .with_filters(filters)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn create_delegation_token(
        &mut self,
        flexible: bool,
    ) -> CreateDelegationTokenRequest {
        let renewers = self.random.list(|random| {
            create_delegation_token_request::CreatableRenewers::default()
                .with_principal_type(random.text())
                .with_principal_name(random.text())
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = CreateDelegationTokenRequest::default()
            .with_renewers(renewers)
            .with_max_lifetime_ms(self.random.int64())
            .with_unknown_tagged_fields(tags(self.random, flexible));
        if self.version >= 3 {
            request.owner_principal_type = self.random.maybe(Random::text);
            request.owner_principal_name = self.random.maybe(Random::text);
        }
        request
    }

    pub(super) fn renew_delegation_token(&mut self, flexible: bool) -> RenewDelegationTokenRequest {
        RenewDelegationTokenRequest::default()
            .with_hmac(self.random.bytes(300))
            .with_renew_period_ms(self.random.int64())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn expire_delegation_token(
        &mut self,
        flexible: bool,
    ) -> ExpireDelegationTokenRequest {
        ExpireDelegationTokenRequest::default()
            .with_hmac(self.random.bytes(300))
            .with_expiry_time_period_ms(self.random.int64())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn describe_delegation_token(
        &mut self,
        flexible: bool,
    ) -> DescribeDelegationTokenRequest {
        let owners = self.random.maybe(|random| {
            random.list(|random| {
                describe_delegation_token_request::DescribeDelegationTokenOwner::default()
                    .with_principal_type(random.text())
                    .with_principal_name(random.text())
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        });
        DescribeDelegationTokenRequest::default()
            .with_owners(owners)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn describe_client_quotas(&mut self, flexible: bool) -> DescribeClientQuotasRequest {
        let components = self.random.list(|random| {
            let mut component = describe_client_quotas_request::ComponentData::default()
                .with_entity_type(random.text())
                .with_match_type(random.int64() as i8)
                .with_unknown_tagged_fields(tags(random, flexible));
            component._match = random.maybe(Random::text);
            component
        });
        DescribeClientQuotasRequest::default()
            .with_components(components)
            .with_strict(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn alter_client_quotas(&mut self, flexible: bool) -> AlterClientQuotasRequest {
        use alter_client_quotas_request::{EntityData, EntryData, OpData};
        let entries = self.random.list(|random| {
            let entity = random.list(|random| {
                EntityData::default()
                    .with_entity_type(random.text())
                    .with_entity_name(random.maybe(Random::text))
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            let operations = random.list(|random| {
                OpData::default()
                    .with_key(random.text())
                    .with_value(random.int64() as f64 / 3.0)
                    .with_remove(random.chance())
                    .with_unknown_tagged_fields(tags(random, flexible))
            });
            EntryData::default()
                .with_entity(entity)
                .with_ops(operations)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        AlterClientQuotasRequest::default()
            .with_entries(entries)
            .with_validate_only(self.random.chance())
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn describe_user_scram_credentials(
        &mut self,
        flexible: bool,
    ) -> DescribeUserScramCredentialsRequest {
        let users = self.random.maybe(|random| {
            random.list(|random| {
                describe_user_scram_credentials_request::UserName::default()
                    .with_name(random.text())
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        });
        DescribeUserScramCredentialsRequest::default()
            .with_users(users)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn alter_user_scram_credentials(
        &mut self,
        flexible: bool,
    ) -> AlterUserScramCredentialsRequest {
        use alter_user_scram_credentials_request::{
            ScramCredentialDeletion, ScramCredentialUpsertion,
        };
        let deletions = self.random.list(|random| {
            ScramCredentialDeletion::default()
                .with_name(random.text())
                .with_mechanism(random.int64() as i8)
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let upsertions = self.random.list(|random| {
            ScramCredentialUpsertion::default()
                .with_name(random.text())
                .with_mechanism(random.int64() as i8)
                .with_iterations(random.int32())
                .with_salt(random.bytes(40))
                .with_salted_password(random.bytes(80))
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        AlterUserScramCredentialsRequest::default()
            .with_deletions(deletions)
            .with_upsertions(upsertions)
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }
}
