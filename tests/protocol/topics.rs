//! Topics and what is told of them: creation, deletion, metadata, configs, coordinators.

use std::time::{Duration, Instant};

use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, FindCoordinatorRequest, MetadataRequest,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::calls::{self, append, only_fetched, waiting};
use crate::cluster::{Cluster, unique};
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic, create_topic, delete_topic, delete_topic_state};

in_every_mode!(
    topics_are_created_in_every_version,
    topics_that_cannot_be_are_refused_alone,
    assignments_choose_the_nodes,
    topics_are_deleted_in_every_version,
    deletions_are_refused_alone,
    a_deleted_topic_is_gone_and_its_name_is_free,
    waiting_fetches_end_with_their_topic,
    metadata_in_every_version,
    metadata_of_the_unknown,
    topics_are_created_on_first_use,
    the_cluster_is_described,
    configs_are_described,
    coordinators_are_found,
);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topics_are_created_in_every_version(cluster: &Cluster) {
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        for version in 2..=7 {
            let name = unique("created");
            let mut request = create_topic(&name, 3);
            if version >= 4 && node == 0 {
                (request.topics[0].num_partitions, request.topics[0].replication_factor) = (-1, -1);
            }
            let partitions = if request.topics[0].num_partitions == -1 { 1 } else { 3 };
            request.validate_only = true;
            let response = client.call(version, &request);
            assert_eq!(response.topics[0].error_code, 0);
            assert_eq!(cluster.describe(&name).topics[0].error_code, 3, "only validated");
            request.validate_only = false;
            let response = client.call(version, &request);
            assert_eq!((response.throttle_time_ms, response.topics.len()), (0, 1));
            let created = &response.topics[0];
            assert_eq!((created.name.as_str(), created.error_code), (&name[..], 0));
            assert_eq!(created.error_message, None);
            let described = cluster.describe(&name);
            assert_eq!(described.topics[0].partitions.len(), partitions);
            if version >= 5 {
                let counts = (created.num_partitions as usize, created.replication_factor);
                assert_eq!(counts, (partitions, 1));
                let configs = created.configs.as_ref().expect("configs");
                let policy = configs.iter().find(|c| c.name.as_str() == "cleanup.policy");
                let policy = policy.expect("a config");
                assert_eq!((policy.value.as_deref(), policy.config_source), (Some("delete"), 5));
            }
            if version >= 7 {
                assert_eq!(created.topic_id, described.topics[0].topic_id);
            }
            let again = client.call(version, &request);
            assert_eq!(again.topics[0].error_code, 36);
        }
    }
}

fn refused_topics(cluster: &Cluster, taken: &str) -> Vec<(CreatableTopic, i16)> {
    let topic = |name: &str| create_topic(name, 1).topics[0].clone();
    let fresh = || topic(&unique("refused"));
    let config = |name: &str, value: Option<&str>| {
        let mut topic = fresh();
        let config = CreatableTopicConfig::default().with_name(text(name));
        topic.configs = vec![config.with_value(value.map(text))];
        topic
    };
    let assigned = |partitions: i32, assignments: &[(i32, &[i32])]| {
        let mut topic = fresh();
        (topic.num_partitions, topic.replication_factor) = (partitions, partitions as i16);
        topic.assignments = assignments
            .iter()
            .map(|(index, nodes)| {
                CreatableReplicaAssignment::default()
                    .with_partition_index(*index)
                    .with_broker_ids(nodes.iter().map(|&node| BrokerId(node)).collect())
            })
            .collect();
        topic
    };
    let nodes = cluster.nodes() as i16;
    vec![
        (topic(taken), 36),
        (topic(&taken.replace('.', "_")), 17),
        (topic(""), 17),
        (topic("."), 17),
        (topic(".."), 17),
        (topic("a b"), 17),
        (topic("ü"), 17),
        (topic(&"a".repeat(250)), 17),
        (fresh().with_num_partitions(0), 37),
        (fresh().with_num_partitions(-2), 37),
        (fresh().with_replication_factor(0), 38),
        (fresh().with_replication_factor(-2), 38),
        (fresh().with_replication_factor(nodes + 1), 38),
        (config("no.such.config", Some("1")), 40),
        (config("retention.ms", Some("soon")), 40),
        (config("retention.ms", None), 40),
        (config("segment.bytes", Some("1000")), 40),
        (config("compression.type", Some("brotli")), 40),
        (assigned(1, &[(0, &[0])]), 42),
        (assigned(-1, &[(1, &[0])]), 39),
        (assigned(-1, &[(0, &[i32::from(nodes)])]), 39),
        (assigned(-1, &[(0, &[0, 0])]), 39),
        (assigned(-1, &[(0, &[])]), 39),
    ]
}

fn topics_that_cannot_be_are_refused_alone(cluster: &Cluster) {
    let taken = cluster.topic("taken.name", 1);
    for mut client in cluster.everywhere() {
        for version in [4, 5, 7] {
            let mut refused = refused_topics(cluster, &taken.name);
            let good = create_topic(&unique("good"), 2).topics[0].clone();
            refused.push((good, 0));
            let (topics, codes): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
            let request = CreateTopicsRequest::default().with_topics(topics.clone());
            let response = client.call(version, &request);
            let found: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
            assert_eq!(found, codes, "version {version}");
            for (topic, code) in topics.iter().zip(codes) {
                let exists = cluster.describe(&topic.name).topics[0].error_code == 0;
                assert_eq!(exists, code == 0 || code == 36, "{:?}", topic.name);
            }
        }
        let name = unique("twice");
        let mut request = create_topic(&name, 1);
        request.topics.push(request.topics[0].clone());
        let response = client.call(7, &request);
        let found: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(found, [42], "answered once");
        let response = client.call(7, &create_topic(&unique("many"), 10_001));
        assert_eq!(response.topics[0].error_code, 44);
    }
}

fn assignments_choose_the_nodes(cluster: &Cluster) {
    let last = cluster.nodes() as i32 - 1;
    let name = unique("assigned");
    let mut request = create_topic(&name, -1);
    request.topics[0].replication_factor = -1;
    let nodes = [last, 0, last, last];
    request.topics[0].assignments = (0..)
        .zip(nodes)
        .map(|(index, node)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(vec![BrokerId(node)])
        })
        .collect();
    let response = cluster.connect().call(7, &request);
    assert_eq!((response.topics[0].error_code, response.topics[0].num_partitions), (0, 4));
    let described = cluster.describe(&name);
    let leaders: Vec<i32> =
        described.topics[0].partitions.iter().map(|partition| partition.leader_id.0).collect();
    assert_eq!(leaders, nodes);
    // As many replicas as there are nodes may be asked for; there is one.
    let name = unique("replicated");
    let mut request = create_topic(&name, 2);
    request.topics[0].replication_factor = cluster.nodes().min(3) as i16;
    let response = cluster.connect().call(7, &request);
    assert_eq!((response.topics[0].error_code, response.topics[0].replication_factor), (0, 1));
}

fn topics_are_deleted_in_every_version(cluster: &Cluster) {
    for mut client in cluster.everywhere() {
        for version in 1..=6 {
            let topic = cluster.topic("deleted", 3);
            let response = if version < 6 {
                client.call(version, &delete_topic(&topic.name))
            } else {
                client.call(version, &delete_topic_state(&topic.name))
            };
            assert_eq!(response.responses.len(), 1);
            let deleted = &response.responses[0];
            assert_eq!((deleted.error_code, deleted.name.clone()), (0, Some(topic.wire_name())));
            assert_eq!(deleted.error_message, None);
            if version >= 6 {
                assert_eq!(deleted.topic_id, topic.id);
            }
            assert_eq!(cluster.describe(&topic.name).topics[0].error_code, 3);
        }
        let topic = cluster.topic("deleted-by-id", 3);
        let state = DeleteTopicState::default().with_name(None).with_topic_id(topic.id);
        let request = DeleteTopicsRequest::default().with_topics(vec![state]);
        let deleted = &client.call(6, &request).responses[0];
        assert_eq!((deleted.error_code, deleted.topic_id), (0, topic.id));
        assert_eq!(deleted.name, Some(topic.wire_name()));
        assert_eq!(client.call(6, &request).responses[0].error_code, 100);
    }
}

fn deletions_are_refused_alone(cluster: &Cluster) {
    let mut client = cluster.connect();
    for version in 1..=5 {
        let topic = cluster.topic("deleted-alone", 1);
        let nowhere = Topic::named(&unique("nowhere"));
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![nowhere.wire_name(), topic.wire_name()]);
        let codes: Vec<_> =
            client.call(version, &request).responses.iter().map(|r| r.error_code).collect();
        assert_eq!(codes, [3, 0]);
    }
    let topic = cluster.topic("kept", 1);
    let by = |name: Option<&str>, id: Uuid| {
        let name = name.map(|name| Topic::named(name).wire_name());
        DeleteTopicState::default().with_name(name).with_topic_id(id)
    };
    let cases = [
        (vec![by(Some(&topic.name), topic.id)], vec![42]),
        (vec![by(None, Uuid::nil())], vec![42]),
        (vec![by(Some(&topic.name), Uuid::nil()), by(Some(&topic.name), Uuid::nil())], vec![42]),
        (vec![by(None, Uuid::from_u128(9))], vec![100]),
        (vec![by(Some("nowhere-at-all"), Uuid::nil())], vec![3]),
        (vec![], vec![]),
    ];
    for (states, expected) in cases {
        let request = DeleteTopicsRequest::default().with_topics(states);
        let codes: Vec<_> =
            client.call(6, &request).responses.iter().map(|r| r.error_code).collect();
        assert_eq!(codes, expected);
    }
    assert_eq!(cluster.describe(&topic.name).topics[0].error_code, 0);
}

fn a_deleted_topic_is_gone_and_its_name_is_free(cluster: &Cluster) {
    let old = cluster.topic("again", 3);
    for partition in 0..3 {
        let mut client = cluster.at(&old, partition);
        append(&mut client, &old, partition, &Batch::of_values(["old", "old"]));
    }
    let leaders: Vec<i32> = (0..3).map(|partition| cluster.leader(&old, partition)).collect();
    for round in 0..3 {
        let response = cluster.connect().call(6, &delete_topic_state(&old.name));
        assert_eq!(response.responses[0].error_code, 0, "round {round}");
        for (partition, &leader) in (0..).zip(&leaders) {
            let mut client = cluster.connect_to(leader);
            let set = Batch::of_values(["late"]).encode();
            assert_eq!(
                calls::produce(&mut client, 13, &old, partition, set.clone()).error_code,
                100
            );
            assert_eq!(calls::produce(&mut client, 12, &old, partition, set).error_code, 3);
            assert_eq!(calls::fetch(&mut client, 18, &old, partition, 0).error_code, 100);
            assert_eq!(calls::fetch(&mut client, 12, &old, partition, 0).error_code, 3);
            assert_eq!(calls::list(&mut client, 7, &old, partition, -1).error_code, 3);
        }
        let response = cluster.connect().call(7, &create_topic(&old.name, 3));
        assert_eq!(response.topics[0].error_code, 0);
        let new = Topic { name: old.name.clone(), id: response.topics[0].topic_id };
        assert_ne!(new.id, old.id);
        for partition in 0..3 {
            let mut client = cluster.at(&new, partition);
            assert_eq!(calls::end(&mut client, &new, partition), 0);
            // Not even the producers of the old topic are known.
            let batch = Batch::of_values(["new"]).with_producer(5, 0, 3);
            assert_eq!(append(&mut client, &new, partition, &batch), 0);
            let found = calls::read_all(&mut client, &new, partition, 0);
            assert_eq!(found[0].payload, batch.encoded_records());
            assert_eq!(calls::fetch(&mut client, 18, &old, partition, 0).error_code, 100);
        }
    }
}

fn waiting_fetches_end_with_their_topic(cluster: &Cluster) {
    let topic = cluster.topic("waited-for", 4);
    let start = Instant::now();
    let mut parked = Vec::new();
    for partition in 0..4 {
        for version in [12, 18] {
            let mut client = cluster.at(&topic, partition);
            let request = waiting(requests::fetch(version, &topic, partition, 0), 60_000, 1);
            let sent = client.send(version, &request);
            parked.push((client, sent, partition));
        }
    }
    let response = cluster.connect().call(6, &delete_topic_state(&topic.name));
    assert_eq!(response.responses[0].error_code, 0);
    for (mut client, sent, partition) in parked {
        let code = if sent.version >= 13 { 100 } else { 3 };
        let data = only_fetched(client.receive(sent), partition);
        assert_eq!((data.error_code, data.high_watermark), (code, -1));
    }
    assert!(start.elapsed() < Duration::from_secs(15));
}

fn metadata_in_every_version(cluster: &Cluster) {
    let topic = cluster.topic("described", 7);
    let epoch = calls::leader_epoch(cluster, &topic);
    let mut cluster_id: Option<StrBytes> = None;
    for mut client in cluster.everywhere() {
        for version in 0..=13 {
            let wanted = MetadataRequestTopic::default().with_name(Some(topic.wire_name()));
            let wanted = vec![wanted.clone(), wanted];
            let response =
                client.call(version, &MetadataRequest::default().with_topics(Some(wanted)));
            assert_eq!((response.throttle_time_ms, response.error_code), (0, 0));
            let brokers: Vec<_> = response
                .brokers
                .iter()
                .map(|b| (b.node_id.0, format!("{}:{}", b.host, b.port), b.rack.clone()))
                .collect();
            let expected: Vec<_> = (0..cluster.nodes() as i32)
                .map(|node| (node, cluster.address(node).to_string(), None))
                .collect();
            assert_eq!(brokers, expected);
            if version >= 1 {
                assert_eq!(response.controller_id.0, 0);
            }
            if version >= 2 {
                let id = response.cluster_id.expect("a cluster id");
                assert_eq!(cluster_id.get_or_insert(id.clone()), &id, "on every node");
            }
            assert_eq!(response.topics.len(), 1, "answered once");
            let described = &response.topics[0];
            assert_eq!((described.error_code, described.is_internal), (0, false));
            if version >= 8 {
                assert_eq!(described.topic_authorized_operations, i32::MIN);
            }
            if version >= 10 {
                assert_eq!(described.topic_id, topic.id);
            }
            for (index, partition) in (0..).zip(&described.partitions) {
                assert_eq!((partition.error_code, partition.partition_index), (0, index));
                assert!((0..cluster.nodes() as i32).contains(&partition.leader_id.0));
                assert_eq!(partition.replica_nodes, [partition.leader_id]);
                assert_eq!(partition.isr_nodes, [partition.leader_id]);
                assert!(partition.offline_replicas.is_empty());
                assert_eq!(partition.leader_epoch, if version >= 7 { epoch } else { -1 });
            }
            let leaders: std::collections::HashSet<i32> =
                described.partitions.iter().map(|partition| partition.leader_id.0).collect();
            assert_eq!(leaders.len(), cluster.nodes(), "new partitions spread over all nodes");
        }
    }
}

fn metadata_of_the_unknown(cluster: &Cluster) {
    let topic = cluster.topic("all", 1);
    let mut client = cluster.connect();
    let none = MetadataRequest::default().with_topics(Some(Vec::new()));
    for version in 0..=13 {
        let all = client.call(
            version,
            &MetadataRequest::default().with_topics(if version == 0 {
                Some(Vec::new())
            } else {
                None
            }),
        );
        let mine = all.topics.iter().filter(|t| t.name == Some(topic.wire_name()));
        assert_eq!(mine.count(), 1);
        if version > 0 {
            assert_eq!(client.call(version, &none).topics.len(), 0);
        }
    }
    let wanted = |name: Option<&str>, id: Uuid| {
        let name = name.map(|name| Topic::named(name).wire_name());
        MetadataRequestTopic::default().with_name(name).with_topic_id(id)
    };
    let mut ask = |version: i16, topics: Vec<MetadataRequestTopic>| {
        let request = MetadataRequest::default()
            .with_topics(Some(topics))
            .with_allow_auto_topic_creation(false);
        client.call(version, &request)
    };
    let nowhere = unique("nowhere");
    for version in 4..=13 {
        for (name, code) in [(&nowhere[..], 3), ("no topic name", 17), ("", 17)] {
            let response = ask(version, vec![wanted(Some(name), Uuid::nil())]);
            let found = &response.topics[0];
            assert_eq!((found.error_code, found.partitions.len()), (code, 0));
            assert_eq!((found.name.as_deref(), found.topic_id), (Some(&text(name)), Uuid::nil()));
        }
    }
    for version in 12..=13 {
        let response = ask(version, vec![wanted(None, topic.id), wanted(None, Uuid::from_u128(7))]);
        let found: Vec<_> =
            response.topics.iter().map(|t| (t.error_code, t.name.clone(), t.topic_id)).collect();
        let expected = [(0, Some(topic.wire_name()), topic.id), (100, None, Uuid::from_u128(7))];
        assert_eq!(found, expected);
        let response = ask(version, vec![wanted(Some("ignored"), topic.id)]);
        assert_eq!(response.topics[0].name, Some(topic.wire_name()));
    }
    for version in 10..=11 {
        let response = ask(version, vec![wanted(Some("named"), topic.id)]);
        assert_eq!((response.topics[0].error_code, response.brokers.len()), (42, 0));
        assert_eq!((response.topics[0].topic_id, response.controller_id.0), (topic.id, -1));
    }
}

fn topics_are_created_on_first_use(cluster: &Cluster) {
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        for version in [0, 1, 3, 4, 9, 12, 13] {
            let name = unique("first-use");
            let mut request = requests::metadata(&[&name]);
            if version >= 4 {
                assert_eq!(client.call(version, &request).topics[0].error_code, 3);
                assert_eq!(cluster.describe(&name).topics[0].error_code, 3);
            }
            request.allow_auto_topic_creation = true;
            let response = client.call(version, &request);
            assert_eq!(response.topics[0].error_code, 0, "node {node}, version {version}");
            assert_eq!(response.topics[0].partitions.len(), 1);
            let id = cluster.describe(&name).topics[0].topic_id;
            let topic = Topic { name, id };
            let mut leader = cluster.at(&topic, 0);
            assert_eq!(append(&mut leader, &topic, 0, &Batch::of_values(["a"])), 0);
        }
    }
    let mut client = cluster.connect();
    let taken = cluster.topic("first_use.taken", 1);
    for name in ["no topic name", "", &taken.name.replace('.', "_"), &"x".repeat(250)] {
        let request = requests::metadata(&[name]).with_allow_auto_topic_creation(true);
        let code = if name.starts_with("first_use_taken") { 3 } else { 17 };
        assert_eq!(client.call(12, &request).topics[0].error_code, code, "{name}");
        let request = requests::metadata(&[name]);
        assert_eq!(client.call(12, &request).topics[0].error_code, code, "{name} is not created");
    }
}

fn the_cluster_is_described(cluster: &Cluster) {
    for mut client in cluster.everywhere() {
        let known = client.call(12, &requests::metadata(&[])).cluster_id;
        for version in 0..=2 {
            let mut request = DescribeClusterRequest::default();
            let response = client.call(version, &request);
            assert_eq!((response.error_code, response.error_message), (0, None));
            assert_eq!(Some(response.cluster_id), known);
            assert_eq!((response.controller_id.0, response.endpoint_type), (0, 1));
            assert_eq!(response.cluster_authorized_operations, i32::MIN);
            let brokers: Vec<_> = response
                .brokers
                .iter()
                .map(|b| (b.broker_id.0, format!("{}:{}", b.host, b.port), b.is_fenced))
                .collect();
            let expected: Vec<_> = (0..cluster.nodes() as i32)
                .map(|node| (node, cluster.address(node).to_string(), false))
                .collect();
            assert_eq!(brokers, expected);
            if version >= 1 {
                for (endpoint_type, code) in [(2, 114), (3, 115), (0, 115)] {
                    request.endpoint_type = endpoint_type;
                    let response = client.call(version, &request);
                    assert_eq!((response.error_code, response.brokers.len()), (code, 0));
                }
            }
        }
    }
}

fn configs_are_described(cluster: &Cluster) {
    let topic = cluster.topic_with("configured", 1, &[("retention.ms", "1234")]);
    let resource = |resource_type: i8, name: &str, keys: Option<&[&str]>| {
        DescribeConfigsResource::default()
            .with_resource_type(resource_type)
            .with_resource_name(text(name))
            .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(key)).collect()))
    };
    let ask = |resources: Vec<DescribeConfigsResource>| {
        DescribeConfigsRequest::default().with_resources(resources)
    };
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let own = if cluster.is_single() { 0 } else { node };
        for version in 1..=4 {
            let keys = ["retention.ms", "cleanup.policy", "no.such.config"];
            let mut request = ask(vec![resource(2, &topic.name, Some(&keys))]);
            request.include_synonyms = true;
            let response = client.call(version, &request);
            let result = &response.results[0];
            assert_eq!((result.error_code, result.resource_name.as_str()), (0, &topic.name[..]));
            let mut found: Vec<_> = result
                .configs
                .iter()
                .map(|c| {
                    (c.name.to_string(), c.value.as_ref().map(ToString::to_string), c.config_source)
                })
                .collect();
            found.sort();
            let expected = [
                ("cleanup.policy".to_owned(), Some("delete".to_owned()), 5),
                ("retention.ms".to_owned(), Some("1234".to_owned()), 1),
            ];
            assert_eq!(found, expected);
            let all = client.call(version, &ask(vec![resource(2, &topic.name, None)]));
            assert!(all.results[0].configs.len() > 25, "{}", all.results[0].configs.len());
            let response = client.call(
                version,
                &ask(vec![
                    resource(4, &own.to_string(), Some(&["num.partitions"])),
                    resource(4, &(own + 1).to_string(), None),
                    resource(2, "nowhere-at-all", None),
                    resource(2, "no topic name", None),
                ]),
            );
            let codes: Vec<_> = response.results.iter().map(|r| r.error_code).collect();
            assert_eq!(codes, [0, 42, 3, 17]);
            assert_eq!(response.results[0].configs.len(), 1);
            let response = client
                .call(version, &ask(vec![resource(2, &topic.name, None), resource(99, "", None)]));
            let codes: Vec<_> = response.results.iter().map(|r| r.error_code).collect();
            assert_eq!(codes, [42, 42]);
        }
    }
}

/// The partition that Java's hash gives a key.
fn partition_of(key: &str, partitions: i32) -> i32 {
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0) % partitions
}

fn coordinators_are_found(cluster: &Cluster) {
    for (key_type, name) in [(0, "__consumer_offsets"), (1, "__transaction_state")] {
        for mut client in cluster.everywhere() {
            for key in ["", "g", "group one", "ü"] {
                let request =
                    FindCoordinatorRequest::default().with_key_type(key_type).with_key(text(key));
                for version in 0..=3 {
                    if key_type == 1 && version == 0 {
                        continue;
                    }
                    let found = client.call(version, &request);
                    assert_eq!(found.error_code, 0);
                    let described = cluster.describe(name);
                    assert_eq!(described.topics[0].partitions.len(), 50);
                    assert!(described.topics[0].is_internal);
                    let index = partition_of(key, 50) as usize;
                    let leader = described.topics[0].partitions[index].leader_id.0;
                    assert_eq!(
                        (found.node_id.0, found.port),
                        (leader, i32::from(cluster.address(leader).port()))
                    );
                    let message = if version >= 1 { Some("NONE") } else { None };
                    if version >= 1 {
                        assert_eq!(found.error_message.as_deref(), message);
                    }
                }
            }
            let keys = ["b", "a", "b", ""];
            let request = FindCoordinatorRequest::default()
                .with_key_type(key_type)
                .with_coordinator_keys(keys.iter().map(|key| text(key)).collect());
            for version in 4..=6 {
                let response = client.call(version, &request);
                let found: Vec<_> = response
                    .coordinators
                    .iter()
                    .map(|c| (c.key.to_string(), c.error_code, c.error_message.as_deref()))
                    .collect();
                let expected: Vec<_> =
                    keys.iter().map(|key| ((*key).to_owned(), 0, Some(""))).collect();
                assert_eq!(found, expected);
                assert_eq!(response.coordinators[0].node_id, response.coordinators[2].node_id);
            }
        }
    }
    let mut client = cluster.connect();
    for (key_type, has_message) in [(2, false), (3, true), (9, true)] {
        let request = FindCoordinatorRequest::default()
            .with_key_type(key_type)
            .with_coordinator_keys(vec![text("x")]);
        for version in 4..=6 {
            let response = client.call(version, &request);
            let found = &response.coordinators[0];
            assert_eq!((found.error_code, found.node_id.0, found.port), (42, -1, -1));
            assert_eq!(found.error_message.as_deref().is_some_and(|m| !m.is_empty()), has_message);
        }
    }
}
