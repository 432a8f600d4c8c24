//! AlterConfigs, IncrementalAlterConfigs, ListConfigResources, and DescribeConfigs of what came of
//! it. AlterConfigs of one resource twice is left out: Kafka 4.3.1 never answers that.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest, alter_configs_request,
};
use kafka_protocol::protocol::StrBytes;
use ringlog::config::broker::KEYS;
use ringlog::config::keys::Scope;

use crate::peer::Peer;

pub fn ask(peer: &mut Peer) {
    peer.make_topic("altered", 1, &[("retention.ms", "1000000")]);
    for version in [0, 1] {
        incremental(peer, version);
        malformed(peer, version);
    }
    for version in 0..=2 {
        legacy(peer, version);
    }
    described(peer);
    kinds(peer);
    brokers(peer);
    listed(peer);
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Type and name of a resource with the changes to it.
type Changes<'a> = (i8, &'a str, &'a [(&'a str, i8, Option<&'a str>)]);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn altering(resources: &[Changes<'_>]) -> IncrementalAlterConfigsRequest {
    let resources = resources.iter().map(|(kind, name, changes)| {
        let changes = changes.iter().map(|(key, operation, value)| {
            AlterableConfig::default()
                .with_name(text(key))
                .with_config_operation(*operation)
                .with_value(value.map(text))
        });
        AlterConfigsResource::default()
            .with_resource_type(*kind)
            .with_resource_name(text(name))
            .with_configs(changes.collect())
    });
    IncrementalAlterConfigsRequest::default().with_resources(resources.collect())
}

/// Changes to one resource, good and bad, in this order.
const ONE_RESOURCE: &[(&str, Changes<'static>)] = &[
    ("sets", (2, "altered", &[("retention.ms", SET, Some("2000000"))])),
    ("sets twice", (2, "altered", &[("retention.ms", SET, Some("2000000"))])),
    (
        "sets two",
        (2, "altered", &[("segment.ms", SET, Some("9")), ("segment.bytes", SET, Some("2000000"))]),
    ),
    (
        "removes",
        (2, "altered", &[("segment.ms", DELETE, None), ("segment.bytes", DELETE, Some("x"))]),
    ),
    ("removes what is not there", (2, "altered", &[("segment.ms", DELETE, None)])),
    ("removes the unknown", (2, "altered", &[("no.such", DELETE, None)])),
    ("appends", (2, "altered", &[("cleanup.policy", APPEND, Some("compact"))])),
    (
        "appends what is there",
        (2, "altered", &[("cleanup.policy", APPEND, Some("compact,delete"))]),
    ),
    ("subtracts", (2, "altered", &[("cleanup.policy", SUBTRACT, Some("compact"))])),
    ("subtracts the rest", (2, "altered", &[("cleanup.policy", SUBTRACT, Some("delete"))])),
    ("subtracts the wrong", (2, "altered", &[("cleanup.policy", SUBTRACT, Some("shred"))])),
    ("appends the wrong", (2, "altered", &[("cleanup.policy", APPEND, Some("shred"))])),
    ("appends to a number", (2, "altered", &[("retention.ms", APPEND, Some("1"))])),
    ("subtracts from the unknown", (2, "altered", &[("no.such", SUBTRACT, Some("1"))])),
    ("back", (2, "altered", &[("cleanup.policy", DELETE, None)])),
    ("sets nothing", (2, "altered", &[])),
    ("of an unknown name", (2, "altered", &[("no.such", SET, Some("1"))])),
    ("of a bad number", (2, "altered", &[("retention.ms", SET, Some("long"))])),
    ("of a number out of range", (2, "altered", &[("segment.bytes", SET, Some("5"))])),
    ("of a bad choice", (2, "altered", &[("compression.type", SET, Some("zip"))])),
    (
        "of a conflict",
        (
            2,
            "altered",
            &[("min.compaction.lag.ms", SET, Some("5")), ("max.compaction.lag.ms", SET, Some("4"))],
        ),
    ),
    ("of tiered storage", (2, "altered", &[("remote.storage.enable", SET, Some("true"))])),
    (
        "of throttled replicas",
        (2, "altered", &[("leader.replication.throttled.replicas", APPEND, Some("0:1"))]),
    ),
    (
        "of bad throttled replicas",
        (2, "altered", &[("leader.replication.throttled.replicas", SET, Some("0-1"))]),
    ),
    (
        "of throttled replicas no more",
        (2, "altered", &[("leader.replication.throttled.replicas", DELETE, None)]),
    ),
    ("of an unknown topic", (2, "nowhere", &[("retention.ms", SET, Some("1"))])),
    ("of an unknown topic, badly", (2, "nowhere", &[("no.such", SET, Some("1"))])),
    ("of a bad topic", (2, "a b", &[("retention.ms", SET, Some("1"))])),
    ("of no topic", (2, "", &[("retention.ms", SET, Some("1"))])),
    ("of a group", (32, "g", &[("consumer.session.timeout.ms", SET, Some("50000"))])),
    ("of a group, too low", (32, "g", &[("consumer.session.timeout.ms", SET, Some("5"))])),
    ("of a group, too high", (32, "g", &[("consumer.heartbeat.interval.ms", SET, Some("50000"))])),
    ("of a group, zero", (32, "g", &[("consumer.heartbeat.interval.ms", SET, Some("0"))])),
    ("of a group, unknown", (32, "g", &[("no.such", SET, Some("1"))])),
    ("of a group, appending", (32, "g", &[("consumer.session.timeout.ms", APPEND, Some("1"))])),
    ("of no group", (32, "", &[("consumer.session.timeout.ms", SET, Some("50000"))])),
    ("of metrics", (16, "m", &[("interval.ms", SET, Some("1000")), ("metrics", SET, Some("a,b"))])),
    ("of metrics, more", (16, "m", &[("metrics", APPEND, Some("c"))])),
    ("of metrics, too often", (16, "m", &[("interval.ms", SET, Some("99"))])),
    ("of metrics, badly", (16, "m", &[("interval.ms", SET, Some("x"))])),
    ("of metrics, a match", (16, "m", &[("match", SET, Some("client_id=a.*"))])),
    ("of metrics, a bad match", (16, "m", &[("match", SET, Some("who=a"))])),
    ("of metrics, a double", (16, "m", &[("metrics", SET, Some("a,a"))])),
    ("of metrics, unknown", (16, "m", &[("no.such", SET, Some("1"))])),
    ("of no metrics", (16, "", &[("interval.ms", SET, Some("1000"))])),
];

fn incremental(peer: &mut Peer, version: i16) {
    for (case, changes) in ONE_RESOURCE {
        let case = format!("IncrementalAlterConfigs {case}");
        peer.ask(&case, version, &altering(&[*changes]));
    }
    let long = "x".repeat(32_767);
    let changes: Changes<'_> = (16, "long", &[("metrics", SET, Some(&long))]);
    peer.ask("IncrementalAlterConfigs at length", version, &altering(&[changes]));
    let changes: Changes<'_> = (16, "long", &[("metrics", APPEND, Some("y"))]);
    peer.ask("IncrementalAlterConfigs too long", version, &altering(&[changes]));
    let changes: Changes<'_> = (16, "long", &[("metrics", DELETE, None)]);
    peer.ask("IncrementalAlterConfigs no more", version, &altering(&[changes]));
    let mut request = altering(&[(2, "altered", &[("retention.ms", SET, Some("1"))])]);
    request.validate_only = true;
    peer.ask("IncrementalAlterConfigs to validate", version, &request);
}

fn malformed(peer: &mut Peer, version: i16) {
    let good: Changes<'_> = (2, "altered", &[("retention.ms", SET, Some("2000000"))]);
    let rows: &[(&str, &[Changes<'_>])] = &[
        ("of nothing", &[]),
        ("of one twice", &[good, good]),
        ("of one and a bad one", &[good, (2, "nowhere", &[])]),
        ("of a config twice", &[(2, "altered", &[("a", SET, Some("1")), ("a", DELETE, None)])]),
        ("of null", &[(2, "altered", &[("a", SET, None), ("b", APPEND, None)])]),
        ("of an unknown operation", &[(2, "altered", &[("retention.ms", 9, Some("1"))])]),
        ("of an unknown type", &[(3, "altered", &[("retention.ms", SET, Some("1"))])]),
        ("of a logger elsewhere", &[(8, "77", &[("kafka", SET, Some("INFO"))])]),
        ("of a logger by a word", &[(8, "x", &[("kafka", SET, Some("INFO"))])]),
        ("of a broker elsewhere", &[(4, "77", &[("log.retention.ms", SET, Some("1"))])]),
        ("of a broker by a word", &[(4, "x", &[("log.retention.ms", SET, Some("1"))])]),
        ("of the default, fixed", &[(4, "", &[("num.partitions", SET, Some("1"))])]),
        ("of the default, bad", &[(4, "", &[("log.retention.ms", SET, Some("x"))])]),
        ("of the default, out of range", &[(4, "", &[("log.segment.bytes", SET, Some("1"))])]),
        ("of the default, no list", &[(4, "", &[("log.retention.ms", APPEND, Some("1"))])]),
        ("of the default, unknown list", &[(4, "", &[("no.such", APPEND, Some("1"))])]),
        ("of the default, unknown operation", &[(4, "", &[("log.retention.ms", 9, Some("1"))])]),
        ("of the default, unknown", &[(4, "", &[("no.such.key", SET, Some("1"))])]),
        ("of the default, unknown no more", &[(4, "", &[("no.such.key", DELETE, None)])]),
    ];
    for (case, changes) in rows {
        let case = format!("IncrementalAlterConfigs {case}");
        peer.ask(&case, version, &altering(changes));
    }
}

fn legacy(peer: &mut Peer, version: i16) {
    let asking = |kind: i8, name: &str, configs: &[(&str, Option<&str>)]| {
        let configs = configs.iter().map(|(key, value)| {
            alter_configs_request::AlterableConfig::default()
                .with_name(text(key))
                .with_value(value.map(text))
        });
        let resource = alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(configs.collect());
        AlterConfigsRequest::default().with_resources(vec![resource])
    };
    let mut ask = |case: &str, request: &AlterConfigsRequest| {
        peer.ask(&format!("AlterConfigs {case}"), version, request);
    };
    ask("of a topic", &asking(2, "altered", &[("retention.ms", Some("3000000"))]));
    ask("of nothing", &AlterConfigsRequest::default());
    ask("of an unknown topic", &asking(2, "nowhere", &[("retention.ms", Some("1"))]));
    ask("of an unknown name", &asking(2, "altered", &[("no.such", Some("1"))]));
    ask("of null", &asking(2, "altered", &[("retention.ms", None)]));
    ask("of a group", &asking(32, "g", &[("consumer.session.timeout.ms", Some("50000"))]));
    ask("of metrics", &asking(16, "m", &[("interval.ms", Some("2000"))]));
    ask("of the default, fixed", &asking(4, "", &[("num.partitions", Some("1"))]));
    ask("of a logger", &asking(8, "1", &[("kafka", Some("INFO"))]));
    ask("of a config twice", &asking(2, "altered", &[("a", Some("1")), ("a", Some("1"))]));
    let mut checked = asking(2, "altered", &[("retention.ms", Some("1"))]);
    checked.validate_only = true;
    ask("to validate", &checked);
}

fn resource(kind: i8, name: &str, keys: &[&str]) -> DescribeConfigsResource {
    let keys = keys.iter().map(|key| text(key)).collect();
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(Some(keys))
}

/// Waits until a config is told with this value: in Kafka that comes later.
fn settle(peer: &mut Peer, (kind, name): (i8, &str), key: &str, value: &str) {
    let request =
        DescribeConfigsRequest::default().with_resources(vec![resource(kind, name, &[key])]);
    peer.until(&format!("{name}: {key}={value}"), |peer| {
        let answer = peer.call(4, &request);
        let told = answer.results[0].configs.first().and_then(|config| config.value.clone());
        told.as_deref() == Some(value)
    });
}

fn described(peer: &mut Peer) {
    settle(peer, (2, "altered"), "retention.ms", "3000000");
    settle(peer, (16, "m"), "interval.ms", "2000");
    settle(peer, (32, "g"), "consumer.session.timeout.ms", "50000");
    for version in 1..=4 {
        for (case, resource) in [
            ("of an altered topic", resource(2, "altered", &[])),
            ("of a group", resource(32, "g", &[])),
            ("of a group without any", resource(32, "another", &[])),
            ("of metrics", resource(16, "m", &[])),
            ("of metrics without any", resource(16, "another", &[])),
            ("of some metrics", resource(16, "m", &["metrics"])),
        ] {
            let request = DescribeConfigsRequest::default()
                .with_resources(vec![resource])
                .with_include_synonyms(true);
            peer.ask(&format!("DescribeConfigs {case}"), version, &request);
        }
    }
}

/// Which of the broker keys that Ringlog knows can be altered, and of what type they are.
fn kinds(peer: &mut Peer) {
    let node = peer.node_id.to_string();
    let keys: Vec<&str> = KEYS.iter().filter(|k| k.scope != Scope::Own).map(|k| k.name).collect();
    let request = DescribeConfigsRequest::default().with_resources(vec![resource(4, &node, &keys)]);
    let mut answer = peer.call_to_keep(4, &request);
    answer.results[0].resource_name = text("the node");
    for config in &mut answer.results[0].configs {
        if SET_IN_FILES.contains(&config.name.as_str()) {
            config.value = None;
            config.config_source = 5;
        }
    }
    peer.keep_answer("DescribeConfigs of all keys v4", &answer);
}

/// What one side or the other has from its file.
const SET_IN_FILES: &[&str] = &[
    "auto.create.topics.enable",
    "default.replication.factor",
    "group.initial.rebalance.delay.ms",
    "log.initial.task.delay.ms",
    "min.insync.replicas",
    "node.id",
    "num.io.threads",
    "num.network.threads",
    "num.partitions",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "process.roles",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
];

fn brokers(peer: &mut Peer) {
    let node = peer.node_id.to_string();
    for version in [0, 1] {
        let changes: Changes<'_> = (
            4,
            "",
            &[
                ("log.retention.ms", SET, Some("86400001")),
                ("log.cleanup.policy", APPEND, Some("compact")),
            ],
        );
        peer.ask("IncrementalAlterConfigs of the default", version, &altering(&[changes]));
        settle(peer, (4, ""), "log.retention.ms", "86400001");
        settle(peer, (2, "altered"), "cleanup.policy", "delete,compact");
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![
                resource(4, "", &["log.retention.ms", "log.cleanup.policy"]),
                resource(2, "described", &["retention.ms", "cleanup.policy"]),
                resource(2, "altered", &["retention.ms", "cleanup.policy"]),
            ])
            .with_include_synonyms(true);
        peer.ask("DescribeConfigs of an altered default", 4, &request);
        let keys = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource(4, &node, &keys)])
            .with_include_synonyms(true);
        let mut answer = peer.call_to_keep(4, &request);
        answer.results[0].resource_name = text("the node");
        peer.keep_answer(&format!("DescribeConfigs of a broker under it v{version}"), &answer);
        let changes: Changes<'_> =
            (4, "", &[("log.retention.ms", DELETE, None), ("log.cleanup.policy", DELETE, None)]);
        peer.ask("IncrementalAlterConfigs of the default no more", version, &altering(&[changes]));
        settle(peer, (2, "altered"), "cleanup.policy", "delete");
    }
    let changes = [("log.retention.ms", SET, Some("5"))];
    let answer = peer.call(1, &altering(&[(4, &node, &changes)]));
    peer.keep_word(
        "IncrementalAlterConfigs of this node",
        &answer.responses[0].error_code.to_string(),
    );
    let answer = peer.call(1, &altering(&[(4, &node, &[("log.retention.ms", DELETE, None)])]));
    peer.keep_word(
        "IncrementalAlterConfigs of this node no more",
        &answer.responses[0].error_code.to_string(),
    );
}

fn listed(peer: &mut Peer) {
    for kinds in [&[16][..], &[32], &[16, 32], &[2, 2], &[3], &[2, 99]] {
        let request = ListConfigResourcesRequest::default().with_resource_types(kinds.to_vec());
        peer.ask(&format!("ListConfigResources of {kinds:?}"), 1, &request);
    }
    peer.ask("ListConfigResources", 0, &ListConfigResourcesRequest::default());
    for kind in [4, 8] {
        let request = ListConfigResourcesRequest::default().with_resource_types(vec![kind]);
        let mut answer = peer.call_to_keep(1, &request);
        for resource in &mut answer.config_resources {
            resource.resource_name = text("the node");
        }
        peer.keep_answer(&format!("ListConfigResources of nodes {kind}"), &answer);
    }
}
