//! Configs that are altered: in force at once, on every node, and after a restart.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest, alter_configs_request,
};
use kafka_protocol::protocol::StrBytes;

use crate::calls::{append, fetch, outcome, produce};
use crate::cluster::{self, Cluster, Mode, unique};
use crate::support::batch::{Batch, read_batches};
use crate::support::client::Client;
use crate::support::requests::Topic;

in_every_mode!(
    topic_configs_are_in_force_when_answered,
    legacy_alterations_replace_what_is_set,
    groups_and_subscriptions_are_configured,
    refusals_change_nothing,
);

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const METRICS: i8 = 16;
const GROUP: i8 = 32;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Sets (or with no value removes) configs of one resource; code and sentence.
fn alter(
    client: &mut Client,
    (kind, name): (i8, &str),
    configs: &[(&str, Option<&str>)],
) -> (i16, Option<String>) {
    let config = |(key, value): &(&str, Option<&str>)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(i8::from(value.is_none()))
            .with_value(value.map(text))
    };
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.iter().map(config).collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(1, &request);
    assert_eq!(response.responses.len(), 1);
    let only = &response.responses[0];
    assert_eq!((only.resource_type, only.resource_name.as_str()), (kind, name));
    (only.error_code, only.error_message.as_ref().map(StrBytes::to_string))
}

/// Value and source of one config.
fn described(client: &mut Client, (kind, name): (i8, &str), key: &str) -> (Option<String>, i8) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(4, &request);
    let result = &response.results[0];
    assert_eq!((result.error_code, result.configs.len()), (0, 1), "{result:?}");
    let config = &result.configs[0];
    (config.value.as_ref().map(StrBytes::to_string), config.config_source)
}

fn set(value: &str, source: i8) -> (Option<String>, i8) {
    (Some(value.to_owned()), source)
}

fn topic_configs_are_in_force_when_answered(cluster: &Cluster) {
    let topic = cluster.topic("altered", 3);
    for partition in 0..3 {
        let mut leader = cluster.at(&topic, partition);
        let mut any = cluster.everywhere().pop().expect("a node");
        let mut change = |configs: &[(&str, Option<&str>)]| {
            assert_eq!(alter(&mut any, (TOPIC, &topic.name), configs), (0, None));
        };
        let large = Batch::of_values([vec![7_u8; 5000]]);
        let answer = produce(&mut leader, 13, &topic, partition, large.encode());
        assert_eq!((answer.error_code, answer.log_append_time_ms), (0, -1));
        change(&[("max.message.bytes", Some("4000"))]);
        assert_eq!(outcome(&mut leader, &topic, partition, &large), (10, -1));
        change(&[("max.message.bytes", None), ("internal.segment.bytes", Some("4000"))]);
        assert_eq!(outcome(&mut leader, &topic, partition, &large), (18, -1));
        change(&[
            ("internal.segment.bytes", None),
            ("message.timestamp.type", Some("LogAppendTime")),
            ("compression.type", Some("gzip")),
        ]);
        let answer = produce(&mut leader, 13, &topic, partition, large.encode());
        assert_eq!((answer.error_code, answer.base_offset), (0, 1));
        assert!(answer.log_append_time_ms > 0, "the broker stamps now");
        let stored = fetch(&mut leader, 18, &topic, partition, 1).records.expect("records");
        assert_eq!(read_batches(stored)[0].attributes & 7, 1, "gzip");
        change(&[("message.timestamp.type", None), ("compression.type", None)]);
        let stored_at = append(&mut leader, &topic, partition, &large);
        let stored = fetch(&mut leader, 18, &topic, partition, stored_at).records;
        assert_eq!(read_batches(stored.expect("records"))[0].attributes & 15, 0);
    }
    let mut client = cluster.connect();
    let resource = (TOPIC, topic.name.as_str());
    assert_eq!(alter(&mut client, resource, &[("retention.ms", Some(" 77 "))]), (0, None));
    for mut client in cluster.everywhere() {
        assert_eq!(described(&mut client, resource, "retention.ms"), set("77", 1));
        assert_eq!(described(&mut client, resource, "segment.ms"), set("604800000", 5));
    }
}

fn legacy_alterations_replace_what_is_set(cluster: &Cluster) {
    let topic = cluster.topic_with("replaced", 1, &[("retention.ms", "5"), ("segment.ms", "6")]);
    let resource = (TOPIC, topic.name.as_str());
    for version in 0..=2 {
        let mut client = cluster.connect();
        let value = (version + 10).to_string();
        let config = alter_configs_request::AlterableConfig::default()
            .with_name(text("retention.ms"))
            .with_value(Some(text(&value)));
        let one = alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(&topic.name))
            .with_configs(vec![config]);
        let mut request = AlterConfigsRequest::default().with_resources(vec![one]);
        request.validate_only = true;
        let before = described(&mut client, resource, "retention.ms");
        assert_eq!(client.call(version, &request).responses[0].error_code, 0);
        assert_eq!(described(&mut client, resource, "retention.ms"), before, "only checked");
        request.validate_only = false;
        assert_eq!(client.call(version, &request).responses[0].error_code, 0);
        assert_eq!(described(&mut client, resource, "retention.ms"), set(&value, 1));
        assert_eq!(described(&mut client, resource, "segment.ms"), set("604800000", 5));
    }
}

fn groups_and_subscriptions_are_configured(cluster: &Cluster) {
    let (group, metrics) = (unique("group"), unique("metrics"));
    let mut client = cluster.connect();
    let (group, metrics) = ((GROUP, group.as_str()), (METRICS, metrics.as_str()));
    let session = "consumer.session.timeout.ms";
    assert_eq!(described(&mut client, group, session), set("45000", 5));
    assert_eq!(alter(&mut client, group, &[(session, Some("50000"))]), (0, None));
    assert_eq!(alter(&mut client, metrics, &[("interval.ms", Some("500"))]), (0, None));
    for mut client in cluster.everywhere() {
        assert_eq!(described(&mut client, group, session), set("50000", 8));
        assert_eq!(described(&mut client, metrics, "interval.ms"), set("500", 7));
        assert_eq!(described(&mut client, metrics, "match"), set("", 5));
        let listed = client.call(1, &ListConfigResourcesRequest::default());
        let of = |kind: i8| {
            let resources = listed.config_resources.iter();
            let resources = resources.filter(move |resource| resource.resource_type == kind);
            resources.map(|resource| resource.resource_name.to_string()).collect::<Vec<_>>()
        };
        assert!(of(GROUP).contains(&group.1.to_owned()));
        assert!(of(METRICS).contains(&metrics.1.to_owned()));
        let nodes: Vec<String> = (0..cluster.nodes()).map(|node| node.to_string()).collect();
        assert_eq!(of(BROKER), nodes);
        let listed = client.call(0, &ListConfigResourcesRequest::default());
        assert!(listed.config_resources.iter().any(|one| one.resource_name.as_str() == metrics.1));
    }
    assert_eq!(alter(&mut client, group, &[(session, None)]), (0, None));
    assert_eq!(alter(&mut client, metrics, &[("interval.ms", None)]), (0, None));
    let listed = client
        .call(1, &ListConfigResourcesRequest::default().with_resource_types(vec![GROUP, METRICS]));
    let names: Vec<&str> = listed.config_resources.iter().map(|r| &*r.resource_name).collect();
    assert!(!names.contains(&group.1) && !names.contains(&metrics.1), "{names:?}");
}

fn refusals_change_nothing(cluster: &Cluster) {
    let topic = cluster.topic("refused", 1);
    let mut client = cluster.connect();
    let resource = (TOPIC, topic.name.as_str());
    let mut code = |resource: (i8, &str), configs: &[(&str, Option<&str>)]| {
        alter(&mut client, resource, configs).0
    };
    assert_eq!(code(resource, &[("retention.ms", Some("1")), ("no.such", Some("1"))]), 40);
    // A quarter of the ring is 4 MiB here.
    assert_eq!(code(resource, &[("max.message.bytes", Some("4194305"))]), 40);
    assert_eq!(code((BROKER, ""), &[("message.max.bytes", Some("4194305"))]), 42);
    assert_eq!(code((BROKER, ""), &[("num.partitions", Some("2"))]), 42);
    assert_eq!(code((BROKER, "77"), &[("log.retention.ms", Some("2"))]), 42);
    assert_eq!(code((TOPIC, "nowhere"), &[("retention.ms", Some("2"))]), 3);
    assert_eq!(described(&mut client, resource, "retention.ms"), set("604800000", 5));
    for (node, mut client) in (0..cluster.nodes()).zip(cluster.everywhere()) {
        let (code, sentence) =
            alter(&mut client, (BROKER, &node.to_string()), &[("log.retention.ms", Some("5"))]);
        assert_eq!(code, 42, "one configuration for all: {sentence:?}");
        assert!(sentence.expect("a sentence").contains("empty broker name"));
    }
}

#[test]
fn the_cluster_default_reaches_all_and_is_kept_per_core_2() {
    the_cluster_default_reaches_all_and_is_kept(cluster::PER_CORE_2);
}

#[test]
fn the_cluster_default_reaches_all_and_is_kept_single_2() {
    the_cluster_default_reaches_all_and_is_kept(cluster::SINGLE_2);
}

fn the_cluster_default_reaches_all_and_is_kept(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let plain = cluster.topic("plain", 2);
    let own = cluster.topic_with("own", 2, &[("max.message.bytes", "9000")]);
    let large = Batch::of_values([vec![7_u8; 5000]]);
    let check = |cluster: &Cluster, codes: (i16, i16), source: i8| {
        for partition in 0..2 {
            let code = |topic: &Topic| {
                outcome(&mut cluster.at(topic, partition), topic, partition, &large).0
            };
            assert_eq!((code(&plain), code(&own)), codes);
        }
        for (node, mut client) in (0..cluster.nodes()).zip(cluster.everywhere()) {
            let key = "message.max.bytes";
            assert_eq!(described(&mut client, (BROKER, &node.to_string()), key).1, source);
            let of_topic = (TOPIC, plain.name.as_str());
            assert_eq!(described(&mut client, of_topic, "max.message.bytes").1, source);
        }
    };
    check(&cluster, (0, 0), 5);
    let mut client = cluster.everywhere().pop().expect("a node");
    let default = (BROKER, "");
    let changed = alter(&mut client, default, &[("message.max.bytes", Some("4000"))]);
    assert_eq!(changed, (0, None));
    assert_eq!(described(&mut client, default, "message.max.bytes"), set("4000", 3));
    check(&cluster, (10, 0), 3);
    for clean in [true, false] {
        if clean {
            assert_eq!(cluster.broker.terminate().code, Some(0));
        }
        cluster.broker.restart();
        check(&cluster, (10, 0), 3);
    }
    let changed = alter(&mut cluster.connect(), default, &[("message.max.bytes", None)]);
    assert_eq!(changed, (0, None));
    check(&cluster, (0, 0), 5);
}
