//! Random requests of the APIs that administer the cluster.

use kafka_protocol::messages::{alter_configs_request, incremental_alter_configs_request};

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
}
