//! CreateTopics, DeleteTopics, Metadata, DescribeConfigs.

use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, MetadataRequest,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::peer::{MADE_UP_ID, Peer};
use crate::support::requests::Topic;

pub fn ask(peer: &mut Peer) {
    for version in 2..=7 {
        create(peer, version);
    }
    peer.make_topic("described", 2, &[("retention.ms", "1000000"), ("cleanup.policy", "compact")]);
    metadata(peer);
    configs(peer);
    for version in 1..=6 {
        delete(peer, version);
    }
}

/// Topic settings as CreateTopics takes them.
pub fn settings(settings: &[(&str, &str)]) -> Vec<CreatableTopicConfig> {
    let one = |&(name, value): &(&str, &str)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    settings.iter().map(one).collect()
}

/// Metadata for one topic that is not created by it, in versions that cannot say so.
pub fn metadata_of(name: &str) -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(Some(Topic::named(name).wire_name()));
    MetadataRequest::default().with_topics(Some(vec![topic]))
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str, partitions: i32, factor: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(Topic::named(name).wire_name())
        .with_num_partitions(partitions)
        .with_replication_factor(factor)
}

fn creating(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(10_000)
}

fn create(peer: &mut Peer, version: i16) {
    let name = |kind: &str| format!("create-{kind}-{version}");
    let mut ask = |case: &str, topics: Vec<CreatableTopic>| {
        peer.ask(&format!("CreateTopics {case}"), version, &creating(topics));
    };
    ask("of one", vec![topic(&name("one"), 3, 1)]);
    ask("of one that exists", vec![topic(&name("one"), 3, 1)]);
    ask("of none", vec![]);
    ask("with defaults", vec![topic(&name("defaults"), -1, -1)]);
    ask("with partitions 0", vec![topic(&name("bad"), 0, 1)]);
    ask("with partitions -2", vec![topic(&name("bad"), -2, 1)]);
    ask("with factor 0", vec![topic(&name("bad"), 1, 0)]);
    ask("with factor -2", vec![topic(&name("bad"), 1, -2)]);
    ask("with factor 2", vec![topic(&name("bad"), 1, 2)]);
    for bad in ["", ".", "..", "a b", "ä", &"n".repeat(250)] {
        ask(&format!("of the name {bad:.20}"), vec![topic(bad, 1, 1)]);
    }
    ask("of the longest name", vec![topic(&format!("{version}{}", "n".repeat(248)), 1, 1)]);
    ask("with a dot", vec![topic(&name("dot.ted"), 1, 1)]);
    ask("that collides", vec![topic(&name("dot_ted"), 1, 1)]);
    ask("of one twice", vec![topic(&name("twice"), 1, 1), topic(&name("twice"), 1, 1)]);
    ask("of two, one bad", vec![topic(&name("fine"), 1, 1), topic(&name("bad"), 0, 1)]);
    for (case, pairs) in [
        ("with settings", &[("retention.ms", "5000"), ("cleanup.policy", "compact,delete")][..]),
        ("with an unknown setting", &[("no.such.setting", "1")]),
        ("with a word for a number", &[("retention.ms", "long")]),
        ("with a number out of range", &[("segment.bytes", "13")]),
        ("with a wrong choice", &[("cleanup.policy", "shred")]),
        ("with a wrong boolean", &[("preallocate", "maybe")]),
        ("with a wrong codec", &[("compression.type", "zip")]),
        ("with local retention over all", &[("local.retention.ms", "9"), ("retention.ms", "8")]),
        ("with a negative size", &[("max.message.bytes", "-1")]),
        ("with an empty setting", &[("retention.ms", "")]),
    ] {
        let topic = topic(&name(&case.replace(' ', "-")), 1, 1).with_configs(settings(pairs));
        ask(case, vec![topic]);
    }
    let null = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(None);
    ask("with a null setting", vec![topic(&name("null"), 1, 1).with_configs(vec![null])]);
    assignments(peer, version);
    let mut request = creating(vec![topic(&name("only-validated"), 2, 1)]);
    request.validate_only = true;
    peer.ask("CreateTopics to validate", version, &request);
    let mut request = creating(vec![topic(&name("one"), 2, 1)]);
    request.validate_only = true;
    peer.ask("CreateTopics to validate one that exists", version, &request);
}

fn assignments(peer: &mut Peer, version: i16) {
    let here = peer.node_id;
    for (case, places) in [
        ("placed", vec![(0, vec![here]), (1, vec![here])]),
        ("placed with a gap", vec![(0, vec![here]), (2, vec![here])]),
        ("placed twice", vec![(0, vec![here]), (0, vec![here])]),
        ("placed on nobody", vec![(0, vec![])]),
        ("placed on a stranger", vec![(0, vec![99])]),
        ("placed on one twice", vec![(0, vec![here, here])]),
        ("placed at a negative index", vec![(-1, vec![here])]),
    ] {
        let name = format!("create-{}-{version}", case.replace(' ', "-"));
        let assignments = places.iter().map(|(index, nodes)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(*index)
                .with_broker_ids(nodes.iter().map(|&node| BrokerId(node)).collect())
        });
        let one = topic(&name, -1, -1).with_assignments(assignments.collect());
        peer.ask(&format!("CreateTopics {case}"), version, &creating(vec![one.clone()]));
        if case == "placed" {
            let both = one.with_name(Topic::named("create-both").wire_name());
            let both = both.with_num_partitions(2).with_replication_factor(1);
            peer.ask("CreateTopics placed and counted", version, &creating(vec![both]));
        }
    }
}

fn by_name(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(Topic::named(name).wire_name()))
}

fn by_id(id: Uuid) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_topic_id(id).with_name(None)
}

fn metadata(peer: &mut Peer) {
    for version in 0..=13 {
        let asking = |topics: Vec<MetadataRequestTopic>| {
            MetadataRequest::default()
                .with_topics(Some(topics))
                .with_allow_auto_topic_creation(version < 4)
        };
        peer.ask("Metadata of one", version, &asking(vec![by_name("described")]));
        let twice = vec![by_name("described"), by_name("described")];
        peer.ask("Metadata of one twice", version, &asking(twice));
        for bad in ["", "a b", &"n".repeat(250)] {
            let bad_one = asking(vec![by_name(bad), by_name("described")]);
            peer.ask(&format!("Metadata of the name {bad:.20}"), version, &bad_one);
        }
        if version >= 1 {
            peer.ask("Metadata of none", version, &asking(vec![]));
        }
        if version >= 4 {
            peer.ask("Metadata of an unknown one", version, &asking(vec![by_name("nowhere")]));
        }
        if version >= 8 {
            let mut request = asking(vec![by_name("described")]);
            request.include_topic_authorized_operations = true;
            request.include_cluster_authorized_operations = (8..=10).contains(&version);
            peer.ask("Metadata with operations", version, &request);
        }
        if version >= 10 {
            let id = peer.ids["described"];
            peer.ask("Metadata by id", version, &asking(vec![by_id(id)]));
            peer.ask("Metadata by an unknown id", version, &asking(vec![by_id(MADE_UP_ID)]));
            peer.ask("Metadata by no id and no name", version, &asking(vec![by_id(Uuid::nil())]));
            let both = by_name("described").with_topic_id(id);
            peer.ask("Metadata by id and name", version, &asking(vec![both]));
        }
    }
    let all = MetadataRequest::default().with_topics(None).with_allow_auto_topic_creation(false);
    peer.ask("Metadata of all", 12, &all);
    let all = MetadataRequest::default().with_topics(Some(vec![]));
    peer.ask("Metadata of all", 0, &all);
    for version in [1, 4, 9, 12] {
        let name = format!("made-by-metadata-{version}");
        peer.ask("Metadata that creates", version, &metadata_of(&name));
    }
}

fn configs(peer: &mut Peer) {
    let node = peer.node_id.to_string();
    let resource = |kind: i8, name: &str, keys: Option<&[&str]>| {
        DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(key)).collect()))
    };
    for version in 1..=4 {
        let mut ask = |case: &str, resources: Vec<DescribeConfigsResource>, synonyms: bool| {
            let request = DescribeConfigsRequest::default()
                .with_resources(resources)
                .with_include_synonyms(synonyms);
            peer.ask(&format!("DescribeConfigs {case}"), version, &request);
        };
        ask("of a topic", vec![resource(2, "described", None)], false);
        ask("of a topic with synonyms", vec![resource(2, "described", None)], true);
        let keys: &[&str] = &["retention.ms", "segment.bytes", "no.such.setting"];
        ask("of some settings", vec![resource(2, "described", Some(keys))], true);
        ask("of no settings", vec![resource(2, "described", Some(&[]))], false);
        ask("of an unknown topic", vec![resource(2, "nowhere", None)], false);
        ask("of a bad topic", vec![resource(2, "a b", None)], false);
        ask("of an empty topic", vec![resource(2, "", None)], false);
        let keys: &[&str] = &[
            "num.partitions",
            "message.max.bytes",
            "log.retention.ms",
            "auto.create.topics.enable",
        ];
        // The name of a node differs between the sides, and is not part of the comparison.
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource(4, &node, Some(keys))])
            .with_include_synonyms(true);
        let mut answer = peer.call_to_keep(version, &request);
        answer.results[0].resource_name = text("the node");
        peer.keep_answer(&format!("DescribeConfigs of the broker v{version}"), &answer);
        let mut ask = |case: &str, resources: Vec<DescribeConfigsResource>| {
            let request = DescribeConfigsRequest::default().with_resources(resources);
            peer.ask(&format!("DescribeConfigs {case}"), version, &request);
        };
        ask("of the cluster's defaults", vec![resource(4, "", Some(keys))]);
        ask("of an unknown broker", vec![resource(4, "77", Some(keys))]);
        ask("of a broker by a word", vec![resource(4, "one", Some(keys))]);
        ask("of an unknown kind", vec![resource(99, "x", None)]);
        ask("of nothing", vec![]);
    }
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource(2, "described", Some(&["retention.ms"]))])
        .with_include_documentation(true);
    let mut answer = peer.call_to_keep(4, &request);
    for config in answer.results.iter_mut().flat_map(|result| &mut result.configs) {
        // The sentences are Kafka's own; that there is one is what counts.
        let there = config.documentation.as_ref().is_some_and(|text| !text.is_empty());
        config.documentation = there.then(|| text("a sentence"));
    }
    peer.keep_answer("DescribeConfigs with documentation v4", &answer);
}

fn delete(peer: &mut Peer, version: i16) {
    let one = format!("delete-{version}");
    peer.make_topic(&one, 1, &[]);
    let names = |names: &[&str]| {
        let request = DeleteTopicsRequest::default().with_timeout_ms(10_000);
        if version < 6 {
            let names = names.iter().map(|name| Topic::named(name).wire_name());
            return request.with_topic_names(names.collect());
        }
        let states = names.iter().map(|name| {
            DeleteTopicState::default().with_name(Some(Topic::named(name).wire_name()))
        });
        request.with_topics(states.collect())
    };
    let id = peer.ids[&one];
    peer.ask("DeleteTopics of none", version, &names(&[]));
    peer.ask("DeleteTopics of an unknown one", version, &names(&["nowhere"]));
    peer.ask("DeleteTopics of a bad name", version, &names(&["a b"]));
    peer.ask("DeleteTopics of an empty name", version, &names(&[""]));
    peer.ask("DeleteTopics of one twice", version, &names(&[&one, &one]));
    peer.ask("DeleteTopics of one and an unknown one", version, &names(&[&one, "nowhere"]));
    peer.ask("DeleteTopics of a deleted one", version, &names(&[&one]));
    if version < 6 {
        return;
    }
    let state = |name: Option<&str>, id: Uuid| {
        let name = name.map(|name| Topic::named(name).wire_name());
        DeleteTopicState::default().with_name(name).with_topic_id(id)
    };
    peer.make_topic("delete-by-id", 1, &[]);
    let living = peer.ids["delete-by-id"];
    for (case, states) in [
        ("by a deleted id", vec![state(None, id)]),
        ("by an unknown id", vec![state(None, MADE_UP_ID)]),
        ("by no id and no name", vec![state(None, Uuid::nil())]),
        ("by id and name", vec![state(Some("delete-by-id"), living)]),
        ("by id twice", vec![state(None, living), state(None, living)]),
        ("by id and by name", vec![state(None, living), state(Some("delete-by-id"), Uuid::nil())]),
        ("by id", vec![state(None, living)]),
    ] {
        let request = DeleteTopicsRequest::default().with_timeout_ms(10_000).with_topics(states);
        peer.ask(&format!("DeleteTopics {case}"), version, &request);
    }
}
