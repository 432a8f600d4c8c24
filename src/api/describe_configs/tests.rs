//! Which configs are told, with which sources and synonyms, and which resources are refused.

use super::*;
use crate::api::metadata::tests::{catalog, context};
use crate::ids::TopicId;
use crate::metadata::Record;
use crate::wire::encode::encode_response;
use crate::wire::versions::Api;

fn resource(resource_type: i8, name: &str) -> DescribeConfigsResource {
    DescribeConfigsResource::default()
        .with_resource_type(resource_type)
        .with_resource_name(StrBytes::from_string(name.to_owned()))
        .with_configuration_keys(None)
}

fn set(resource_type: i8, name: &str, key: &str, value: &str) -> Record {
    Record::ConfigSet {
        resource_type,
        resource_name: name.to_owned(),
        key: key.to_owned(),
        value: Some(value.to_owned()),
    }
}

/// A catalog with the topic `a`, two topic configs, one cluster default and a metrics
/// subscription.
fn image(context: &Context) -> Image {
    catalog(context, &[("a", 1, &[0])]).apply_all(&[
        set(2, "a", "retention.ms", "60000"),
        set(2, "a", "cleanup.policy", "compact,delete"),
        set(4, "", "message.max.bytes", "2000000"),
        set(16, "metrics", "interval.ms", "1000"),
    ])
}

fn described(
    shard: u16,
    resources: Vec<DescribeConfigsResource>,
    options: (bool, bool),
) -> Vec<DescribeConfigsResult> {
    let context = context(&[("log.retention.hours", "24")]);
    let request = DescribeConfigsRequest::default()
        .with_resources(resources)
        .with_include_synonyms(options.0)
        .with_include_documentation(options.1);
    let response = answer(&image(&context), &context, ShardId(shard), &request);
    for version in 1..=4 {
        encode_response(Api::DescribeConfigs, version, 1, &response).expect("encodes");
    }
    response.results
}

fn outline(result: &DescribeConfigsResult) -> (i16, Option<&str>, i8, &str, usize) {
    (
        result.error_code,
        result.error_message.as_deref(),
        result.resource_type,
        result.resource_name.as_str(),
        result.configs.len(),
    )
}

fn find<'a>(result: &'a DescribeConfigsResult, name: &str) -> &'a DescribeConfigsResourceResult {
    result.configs.iter().find(|config| config.name.as_str() == name).expect("the config")
}

fn synonyms(config: &DescribeConfigsResourceResult) -> Vec<(&str, Option<&str>, i8)> {
    config.synonyms.iter().map(|s| (s.name.as_str(), s.value.as_deref(), s.source)).collect()
}

#[test]
fn a_topic_with_synonyms_and_documentation() {
    let results = described(0, vec![resource(2, "a")], (true, true));
    assert_eq!((results[0].error_code, results[0].error_message.as_deref()), (0, Some("")));
    let retention = find(&results[0], "retention.ms");
    assert_eq!(retention.value.as_deref(), Some("60000"));
    assert_eq!((retention.config_source, retention.config_type), (1, 5));
    assert!(!retention.read_only && !retention.is_sensitive);
    // Not the hours: as in Kafka, what stands before the first synonym's own name is dropped.
    assert_eq!(synonyms(retention), [("retention.ms", Some("60000"), 1)]);
    assert!(retention.documentation.as_deref().is_some_and(|text| text.contains("Age")));
    let largest = find(&results[0], "max.message.bytes");
    assert_eq!((largest.value.as_deref(), largest.config_source), (Some("2000000"), 3));
    assert_eq!(
        synonyms(largest),
        [("message.max.bytes", Some("2000000"), 3), ("message.max.bytes", Some("1048588"), 5)]
    );
    let policy = find(&results[0], "cleanup.policy");
    assert_eq!((policy.value.as_deref(), policy.config_type), (Some("compact,delete"), 7));
    let names: Vec<&str> = results[0].configs.iter().map(|config| config.name.as_str()).collect();
    assert!(names.is_sorted() && names.len() > 30, "{}", names.len());
}

#[test]
fn nothing_is_added_unasked() {
    let results = described(0, vec![resource(2, "a"), resource(4, "0")], (false, false));
    for result in &results {
        assert_eq!(result.error_code, 0);
        assert!(result.configs.iter().all(|c| c.synonyms.is_empty() && c.documentation.is_none()));
    }
}

#[test]
fn names_select() {
    let keys = ["retention.ms", "no.such", "segment.bytes", "retention.ms"];
    let keys: Vec<StrBytes> = keys.into_iter().map(StrBytes::from_static_str).collect();
    let some = resource(2, "a").with_configuration_keys(Some(keys));
    let results = described(0, vec![some], (false, false));
    let names: Vec<&str> = results[0].configs.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["retention.ms", "segment.bytes"]);
    let none = resource(2, "a").with_configuration_keys(Some(vec![]));
    assert!(described(0, vec![none], (false, false))[0].configs.len() > 30, "none is all");
}

#[test]
fn topics_that_do_not_exist() {
    let results =
        described(0, vec![resource(2, "b"), resource(2, "c d"), resource(2, "")], (true, true));
    assert_eq!(outline(&results[0]), (3, Some(""), 2, "b", 0));
    let message = "Topic name is invalid: 'c d' contains one or more characters other than ASCII \
                   alphanumerics, '.', '_' and '-'";
    assert_eq!(outline(&results[1]), (17, Some(message), 2, "c d", 0));
    let message = "Topic name is invalid: the empty string is not allowed";
    assert_eq!(outline(&results[2]), (17, Some(message), 2, "", 0));
    let context = context(&[]);
    let image = image(&context).apply(&Record::TopicDeleting { id: TopicId([1; 16]) });
    let request = DescribeConfigsRequest::default().with_resources(vec![resource(2, "a")]);
    let response = answer(&image, &context, ShardId(0), &request);
    assert_eq!(outline(&response.results[0]), (3, Some(""), 2, "a", 0));
}

#[test]
fn a_node_describes_itself() {
    let results = described(2, vec![resource(4, "2")], (true, false));
    assert_eq!(results[0].error_code, 0);
    let node = find(&results[0], "node.id");
    assert_eq!((node.value.as_deref(), node.read_only), (Some("2"), true));
    let hours = find(&results[0], "log.retention.hours");
    assert_eq!((hours.value.as_deref(), hours.config_source), (Some("24"), 4));
    assert_eq!(
        synonyms(hours),
        [("log.retention.hours", Some("24"), 4), ("log.retention.hours", Some("168"), 5)]
    );
    let largest = find(&results[0], "message.max.bytes");
    assert_eq!((largest.value.as_deref(), largest.config_source), (Some("2000000"), 3));
    assert!(!largest.read_only);
}

#[test]
fn what_kafka_keeps_to_itself_is_told_when_it_is_set() {
    let keys = [
        "allow.everyone.if.no.acl.found",
        "group.consumer.regex.refresh.interval.ms",
        "producer.id.expiration.check.interval.ms",
        "super.users",
    ];
    let asked: Vec<StrBytes> = keys.into_iter().map(StrBytes::from_static_str).collect();
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource(4, "0").with_configuration_keys(Some(asked))]);
    let told = |set: &[(&str, &str)]| -> Vec<String> {
        let context = context(set);
        let response = answer(&image(&context), &context, ShardId(0), &request);
        response.results[0].configs.iter().map(|config| config.name.to_string()).collect()
    };
    assert_eq!(told(&[]), [""; 0]);
    let set = [("producer.id.expiration.check.interval.ms", "200"), ("super.users", "User:a")];
    assert_eq!(told(&set), set.map(|(name, _)| name));
}

#[test]
fn other_nodes_are_refused() {
    let resources = vec![resource(4, "0"), resource(4, "x"), resource(4, "99999999999")];
    let results = described(2, resources, (true, true));
    let message = "Unexpected broker id, expected 2 or empty string, but received 0";
    assert_eq!(outline(&results[0]), (42, Some(message), 4, "0", 0));
    let message = "Broker id must be an integer, but it is: x";
    assert_eq!(outline(&results[1]), (42, Some(message), 4, "x", 0));
    assert_eq!(results[2].error_code, 42);
}

#[test]
fn all_cores_together_are_node_0() {
    let context = context(&[("advertise", "single")]);
    let request =
        DescribeConfigsRequest::default().with_resources(vec![resource(4, "0"), resource(4, "3")]);
    let response = answer(&image(&context), &context, ShardId(3), &request);
    let codes: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [0, 42]);
    assert_eq!(find(&response.results[0], "node.id").value.as_deref(), Some("0"));
}

#[test]
fn the_cluster_default_is_what_was_altered() {
    let results = described(1, vec![resource(4, "")], (true, false));
    assert_eq!(outline(&results[0]), (0, Some(""), 4, "", 1));
    let largest = find(&results[0], "message.max.bytes");
    assert_eq!((largest.value.as_deref(), largest.config_source), (Some("2000000"), 3));
    assert_eq!(synonyms(largest), [("message.max.bytes", Some("2000000"), 3)]);
}

#[test]
fn the_other_kinds_of_resources() {
    let resources = vec![
        resource(8, "1"),
        resource(8, ""),
        resource(8, "0"),
        resource(16, "metrics"),
        resource(16, "nothing"),
        resource(16, ""),
        resource(32, "g"),
        resource(32, ""),
    ];
    let results = described(1, resources, (true, true));
    let outlines: Vec<_> = results.iter().map(outline).collect();
    let unexpected = "Unexpected broker id, expected 1 but received 0";
    let unnamed = "Client metrics subscription name must not be empty";
    assert_eq!(
        outlines,
        [
            (0, Some(""), 8, "1", 0),
            (42, Some("Broker id must not be empty"), 8, "", 0),
            (42, Some(unexpected), 8, "0", 0),
            (0, Some(""), 16, "metrics", 3),
            (0, Some(""), 16, "nothing", 3),
            (42, Some(unnamed), 16, "", 0),
            (0, Some(""), 32, "g", 3),
            (42, Some("Group name must not be empty"), 32, "", 0),
        ]
    );
    let interval = find(&results[3], "interval.ms");
    assert_eq!((interval.value.as_deref(), interval.config_source), (Some("1000"), 7));
    assert_eq!((interval.config_type, interval.read_only), (3, false));
    assert_eq!(synonyms(interval), [("interval.ms", Some("1000"), 7)]);
    let session = find(&results[6], "consumer.session.timeout.ms");
    assert_eq!((session.value.as_deref(), session.config_source), (Some("45000"), 5));
    assert_eq!(synonyms(session), [("group.consumer.session.timeout.ms", Some("45000"), 5)]);
}

#[test]
fn an_unknown_type_refuses_the_request() {
    for resource_type in [0, 1, 3, 64, -1] {
        let results =
            described(0, vec![resource(2, "a"), resource(resource_type, "x")], (true, true));
        assert_eq!(outline(&results[0]), (42, Some(MALFORMED), 2, "a", 0));
        assert_eq!(outline(&results[1]), (42, Some(MALFORMED), resource_type, "x", 0));
    }
}

#[test]
fn a_resource_given_twice_is_answered_once() {
    let resources = vec![
        resource(4, "0"),
        resource(2, "a"),
        resource(4, "00"),
        resource(2, "a"),
        resource(4, "+0"),
        resource(32, "0"),
        resource(32, "00"),
    ];
    let results = described(0, resources, (false, false));
    let names: Vec<(i8, &str)> =
        results.iter().map(|r| (r.resource_type, r.resource_name.as_str())).collect();
    assert_eq!(names, [(4, "0"), (2, "a"), (32, "0"), (32, "00")]);
}
