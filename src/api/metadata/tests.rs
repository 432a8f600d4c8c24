//! What is answered to which names and ids, and when topics are created. Owns the catalogs that
//! the tests of other APIs are answered from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;

use super::*;
use crate::config::BrokerConfig;
use crate::ids::BootNumber;
use crate::metadata::Record;
use crate::shard::Node;
use crate::wire::encode::encode_response;
use crate::wire::versions::Api;

/// Four shards that started for the third time, under these settings.
pub(in crate::api) fn context(settings: &[(&str, &str)]) -> Context {
    let mut all = vec![("shards", "4")];
    all.extend_from_slice(settings);
    let config = Arc::new(BrokerConfig::with_overrides(&all).expect("configuration"));
    let node = |id: u16| Node { id: i32::from(id), host: "ringlog".to_owned(), port: 9092 + id };
    Context {
        data_dir: PathBuf::from("/nowhere"),
        shards: config.shards,
        boot: BootNumber(3),
        nodes: (0..config.advertised_brokers()).map(node).collect(),
        config,
    }
}

/// A catalog of topics: name, byte that its id repeats, preferred shards.
pub(in crate::api) fn catalog(context: &Context, topics: &[(&str, u8, &[u16])]) -> Image {
    let mut records = vec![Record::ClusterCreated { cluster_id: "clusterclusterclustery".into() }];
    records.extend(topics.iter().map(|(name, id, preferred)| Record::TopicCreated {
        name: (*name).to_owned(),
        id: TopicId([*id; 16]),
        preferred: preferred.to_vec(),
        overrides: BTreeMap::new(),
        next_preferred: 0,
    }));
    Image::new(Arc::clone(&context.config)).apply_all(&records)
}

fn by_name(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
}

fn by_id(id: u8) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(None).with_topic_id(TopicId([id; 16]).into())
}

fn request(topics: Vec<MetadataRequestTopic>) -> MetadataRequest {
    MetadataRequest::default().with_topics(Some(topics))
}

/// Code, name and id byte of each topic.
fn outline(response: &MetadataResponse) -> Vec<(i16, Option<&str>, u8)> {
    response
        .topics
        .iter()
        .map(|topic| {
            let name = topic.name.as_ref().map(|name| name.as_str());
            (topic.error_code, name, topic.topic_id.as_bytes()[0])
        })
        .collect()
}

#[test]
fn every_version_is_encoded() {
    let context = context(&[("broker.rack", "r1")]);
    let image = catalog(&context, &[("a", 1, &[0, 1])]);
    for version in 0..=13 {
        for topics in [None, Some(vec![]), Some(vec![by_name("a"), by_name("b"), by_name("c d")])] {
            let request = MetadataRequest::default()
                .with_topics(topics)
                .with_include_topic_authorized_operations(version >= 8)
                .with_include_cluster_authorized_operations((8..=10).contains(&version));
            let response = answer(&image, &context, &request, version);
            encode_response(Api::Metadata, version, 1, &response).expect("encodes");
        }
        let request = request(vec![by_id(1), by_id(9)]);
        let response = answer(&image, &context, &request, version);
        encode_response(Api::Metadata, version, 1, &response).expect("encodes");
    }
}

#[test]
fn all_topics_or_none() {
    let context = context(&[]);
    let image =
        catalog(&context, &[("b", 2, &[0]), ("a", 1, &[0]), ("__consumer_offsets", 3, &[0])]);
    let all = [(0, Some("__consumer_offsets"), 3), (0, Some("a"), 1), (0, Some("b"), 2)];
    let none = request(vec![]);
    let null = MetadataRequest::default().with_topics(None);
    assert_eq!(outline(&answer(&image, &context, &none, 0)), all);
    for version in [1, 4, 9, 13] {
        assert_eq!(outline(&answer(&image, &context, &none, version)), []);
        let response = answer(&image, &context, &null, version);
        assert_eq!(outline(&response), all);
        let internal: Vec<bool> = response.topics.iter().map(|topic| topic.is_internal).collect();
        assert_eq!(internal, [true, false, false]);
    }
    assert!(to_create(&image, &null, 13).is_empty());
}

#[test]
fn every_core_is_a_broker() {
    let context = context(&[("broker.rack", "r1")]);
    let image = catalog(&context, &[("a", 1, &[2, 7, 4])]);
    let response = answer(&image, &context, &request(vec![by_name("a")]), 13);
    let brokers: Vec<(i32, &str, i32, Option<&str>)> = response
        .brokers
        .iter()
        .map(|b| (b.node_id.0, b.host.as_str(), b.port, b.rack.as_ref().map(StrBytes::as_str)))
        .collect();
    let rack = Some("r1");
    assert_eq!(
        brokers,
        [
            (0, "ringlog", 9092, rack),
            (1, "ringlog", 9093, rack),
            (2, "ringlog", 9094, rack),
            (3, "ringlog", 9095, rack)
        ]
    );
    assert_eq!(response.cluster_id.as_deref(), Some("clusterclusterclustery"));
    assert_eq!(response.controller_id.0, 0);
    assert_eq!((response.error_code, response.throttle_time_ms), (0, 0));
    let leaders: Vec<(i32, i32, i32)> = response.topics[0]
        .partitions
        .iter()
        .map(|p| (p.partition_index, p.leader_id.0, p.leader_epoch))
        .collect();
    assert_eq!(leaders, [(0, 2, 3), (1, 3, 3), (2, 0, 3)], "preferred mod shards; third start");
    for partition in &response.topics[0].partitions {
        assert_eq!(partition.error_code, 0);
        assert_eq!(partition.replica_nodes, [partition.leader_id]);
        assert_eq!(partition.isr_nodes, [partition.leader_id]);
        assert!(partition.offline_replicas.is_empty());
    }
}

#[test]
fn all_cores_together_are_one_broker() {
    let context = context(&[("advertise", "single")]);
    let image = catalog(&context, &[("a", 1, &[2, 7, 4])]);
    let response = answer(&image, &context, &request(vec![by_name("a")]), 13);
    assert_eq!(response.brokers.len(), 1);
    assert_eq!((response.brokers[0].node_id.0, response.brokers[0].port), (0, 9092));
    assert_eq!(response.brokers[0].rack, None);
    assert!(response.topics[0].partitions.iter().all(|p| p.leader_id.0 == 0));
    assert_eq!(response.topics[0].partitions.len(), 3);
}

#[test]
fn names_that_do_not_exist() {
    let context = context(&[]);
    let image = catalog(&context, &[("a", 1, &[0])]);
    let names = ["b", "c d", "", "a", "b", "__transaction_state"];
    let request = request(names.into_iter().map(by_name).collect());
    for version in [0, 9, 13] {
        let response = answer(&image, &context, &request, version);
        assert_eq!(
            outline(&response),
            [
                (3, Some("b"), 0),
                (17, Some("c d"), 0),
                (17, Some(""), 0),
                (0, Some("a"), 1),
                (3, Some("__transaction_state"), 0)
            ],
            "answered once each"
        );
        assert!(response.topics[4].is_internal, "by its name");
        assert!(response.topics[0].partitions.is_empty());
    }
}

#[test]
fn a_topic_being_deleted_does_not_exist() {
    let context = context(&[]);
    let image =
        catalog(&context, &[("a", 1, &[0])]).apply(&Record::TopicDeleting { id: TopicId([1; 16]) });
    let named = answer(&image, &context, &request(vec![by_name("a")]), 12);
    assert_eq!(outline(&named), [(3, Some("a"), 0)]);
    let identified = answer(&image, &context, &request(vec![by_id(1)]), 12);
    assert_eq!(outline(&identified), [(100, None, 1)]);
}

#[test]
fn ids_win_over_names_from_v12_on() {
    let context = context(&[]);
    let image = catalog(&context, &[("a", 1, &[0]), ("b", 2, &[0])]);
    let mixed = request(vec![by_name("b"), by_id(1), by_id(9), by_id(1)]);
    for version in [12, 13] {
        let response = answer(&image, &context, &mixed, version);
        assert_eq!(outline(&response), [(0, Some("a"), 1), (100, None, 9)]);
        assert_eq!(response.topics[1].topic_authorized_operations, i32::MIN);
        assert!(to_create(&image, &mixed, version).is_empty());
        let both = request(vec![by_id(1).with_name(by_name("b").name)]);
        assert_eq!(outline(&answer(&image, &context, &both, version)), [(0, Some("a"), 1)]);
    }
}

#[test]
fn ids_are_refused_before_v12_and_null_names_always() {
    let context = context(&[]);
    let image = catalog(&context, &[("a", 1, &[0])]);
    for version in [10, 11] {
        let response = answer(&image, &context, &request(vec![by_name("a"), by_id(1)]), version);
        assert_eq!(outline(&response), [(42, Some("a"), 0), (42, Some(""), 1)]);
        assert!(response.brokers.is_empty());
        assert_eq!((response.cluster_id, response.controller_id.0), (None, -1));
        let response = answer(&image, &context, &request(vec![by_id(0)]), version);
        assert_eq!(outline(&response), [(42, Some(""), 0)]);
    }
    for (version, top_level) in [(12, 0), (13, -1)] {
        let response = answer(&image, &context, &request(vec![by_name("a"), by_id(0)]), version);
        assert_eq!(outline(&response), [(-1, Some("a"), 0), (-1, Some(""), 0)]);
        assert_eq!(response.error_code, top_level);
        assert!(response.brokers.is_empty());
    }
}

#[test]
fn a_refusal_is_kafkas_to_the_byte() {
    // Metadata v10 by id with a null name, measured on Kafka 4.3.1.
    let context = context(&[]);
    let image = catalog(&context, &[]);
    let response = answer(&image, &context, &request(vec![by_id(0x11)]), 10);
    let frame = encode_response(Api::Metadata, 10, 7, &response).expect("encodes");
    let mut expected = vec![0, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 42, 1];
    expected.extend([0x11; 16]);
    expected.extend([0, 1, 0x80, 0, 0, 0, 0, 0x80, 0, 0, 0, 0]);
    assert_eq!(&frame[9..], expected);
}

#[test]
fn operations_are_told_when_asked() {
    let context = context(&[]);
    let image = catalog(&context, &[("a", 1, &[0])]);
    let plain = request(vec![by_name("a"), by_name("b")]);
    let asked = plain
        .clone()
        .with_include_topic_authorized_operations(true)
        .with_include_cluster_authorized_operations(true);
    for (version, topics, cluster) in
        [(7, i32::MIN, i32::MIN), (8, 3576, 8096), (10, 3576, 8096), (11, 3576, i32::MIN)]
    {
        let response = answer(&image, &context, &asked, version);
        assert_eq!(response.cluster_authorized_operations, cluster, "v{version}");
        for topic in &response.topics {
            assert_eq!(topic.topic_authorized_operations, topics, "v{version}");
        }
        let response = answer(&image, &context, &plain, version);
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
        assert_eq!(response.topics[0].topic_authorized_operations, i32::MIN);
    }
}

#[test]
fn unknown_legal_names_are_created_if_allowed() {
    let open = context(&[]);
    let image = catalog(&open, &[("a", 1, &[0])]);
    let asked = request(["a", "b", "c d", "b", "", "e"].into_iter().map(by_name).collect());
    for version in [0, 3, 4, 13] {
        assert_eq!(to_create(&image, &asked, version), ["b", "e"]);
    }
    let forbidden = asked.clone().with_allow_auto_topic_creation(false);
    assert_eq!(to_create(&image, &forbidden, 4), Vec::<&str>::new());
    assert_eq!(to_create(&image, &forbidden, 3), ["b", "e"], "no such flag yet");
    let closed = context(&[("auto.create.topics.enable", "false")]);
    let image = catalog(&closed, &[]);
    assert_eq!(to_create(&image, &asked, 13), Vec::<&str>::new());
    assert_eq!(to_create(&image, &request(vec![]), 0), Vec::<&str>::new(), "all topics");
}
