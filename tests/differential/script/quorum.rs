//! DescribeTopicPartitions, and what is asked about the cluster's brokers, quorum and features.

use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest, BrokerId,
    CreatePartitionsRequest, DescribeLogDirsRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, ElectLeadersRequest, ListPartitionReassignmentsRequest,
    TopicName, UnregisterBrokerRequest, UpdateFeaturesRequest,
    list_partition_reassignments_request,
};
use kafka_protocol::protocol::StrBytes;

use crate::peer::Peer;
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic};

pub fn ask(peer: &mut Peer) {
    peer.make_topic("paged-a", 3, &[]);
    peer.make_topic("paged-b", 1, &[]);
    topic_partitions(peer);
    more_partitions(peer);
    quorum(peer);
    features(peer);
    reassignments(peer);
    elections(peer);
    log_directories(peer);
    let request = UnregisterBrokerRequest::default().with_broker_id(BrokerId(77));
    peer.ask("UnregisterBroker of a stranger", 0, &request);
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn topic_partitions(peer: &mut Peer) {
    let asking = |names: &[&str], limit: i32, cursor: Option<(&str, i32)>| {
        let topics = names.iter().map(|topic| TopicRequest::default().with_name(name(topic)));
        let cursor = cursor.map(|(topic, partition)| {
            Cursor::default().with_topic_name(name(topic)).with_partition_index(partition)
        });
        DescribeTopicPartitionsRequest::default()
            .with_topics(topics.collect())
            .with_response_partition_limit(limit)
            .with_cursor(cursor)
    };
    let both: &[&str] = &["paged-a", "paged-b"];
    for (case, request) in [
        ("of two", asking(&["paged-b", "paged-a", "paged-b"], 2000, None)),
        ("of the unknown", asking(&["paged-a", "nowhere", "a b"], 2000, None)),
        ("of an empty name", asking(&["paged-a", ""], 2000, None)),
        ("in pages", asking(both, 2, None)),
        ("in pages, next", asking(both, 2, Some(("paged-a", 2)))),
        ("in pages, whole", asking(both, 3, None)),
        ("in pages, last", asking(both, 2, Some(("paged-b", 0)))),
        ("in pages, the unknown next", asking(&["paged-a", "q"], 3, None)),
        ("in pages of none", asking(both, 0, None)),
        ("in pages below none", asking(both, -5, None)),
        ("beyond the end", asking(both, 2, Some(("paged-b", 9)))),
        ("from a topic that is not asked for", asking(both, 2, Some(("paged", 0)))),
        ("from below", asking(both, 2, Some(("paged-a", -1)))),
        ("of all from the last", asking(&[], 2, Some(("zzz", 0)))),
        ("of all from a place", asking(&[], 3, Some(("paged-a", 0)))),
        ("of all from below", asking(&[], 3, Some(("paged-a", -1)))),
    ] {
        peer.ask(&format!("DescribeTopicPartitions {case}"), 0, &request);
    }
}

fn more_partitions(peer: &mut Peer) {
    let here = peer.node_id;
    type Growth<'a> = (&'a str, i32, Option<&'a [&'a [i32]]>);
    let asking = |topics: &[Growth<'_>]| {
        let topics = topics.iter().map(|(topic, count, places)| {
            let places = places.map(|places| {
                let nodes = |place: &&[i32]| place.iter().map(|&node| BrokerId(node)).collect();
                let one =
                    |place| CreatePartitionsAssignment::default().with_broker_ids(nodes(place));
                places.iter().map(one).collect()
            });
            CreatePartitionsTopic::default()
                .with_name(name(topic))
                .with_count(*count)
                .with_assignments(places)
        });
        CreatePartitionsRequest::default().with_topics(topics.collect()).with_timeout_ms(10_000)
    };
    for version in 0..=3 {
        let grown = format!("grown-{version}");
        peer.make_topic(&grown, 2, &[]);
        for (case, request) in [
            ("of none", asking(&[])),
            ("of the unknown", asking(&[("nowhere", 3, None)])),
            ("of a bad name", asking(&[("a b", 3, None)])),
            ("to as many", asking(&[(&grown, 2, None)])),
            ("to fewer", asking(&[(&grown, 1, None)])),
            ("to less than none", asking(&[(&grown, -1, None)])),
            ("of one twice", asking(&[(&grown, 3, None), (&grown, 4, None)])),
            ("with too few places", asking(&[(&grown, 4, Some(&[&[here]]))])),
            ("with no place", asking(&[(&grown, 3, Some(&[&[]]))])),
            ("with a strange place", asking(&[(&grown, 3, Some(&[&[99]]))])),
            ("with a place twice", asking(&[(&grown, 3, Some(&[&[here, here]]))])),
            ("with a place", asking(&[(&grown, 3, Some(&[&[here]]))])),
            ("to more", asking(&[(&grown, 5, None)])),
        ] {
            peer.ask(&format!("CreatePartitions {case}"), version, &request);
        }
        let mut request = asking(&[(&grown, 9, None)]);
        request.validate_only = true;
        peer.ask("CreatePartitions to validate", version, &request);
    }
}

fn quorum(peer: &mut Peer) {
    let asking = |partitions: &[(&str, i32)]| {
        let topics = partitions.iter().map(|(topic, partition)| {
            let partition = PartitionData::default().with_partition_index(*partition);
            TopicData::default().with_topic_name(name(topic)).with_partitions(vec![partition])
        });
        DescribeQuorumRequest::default().with_topics(topics.collect())
    };
    for version in [0, 1, 2] {
        let mut answer = peer.call_to_keep(version, &asking(&[("__cluster_metadata", 0)]));
        // How far a log has come differs, and not that it has come somewhere.
        let place = &mut answer.topics[0].partitions[0];
        assert!(place.high_watermark > 0 && place.leader_epoch > 0);
        place.high_watermark = 1;
        for replica in place.current_voters.iter_mut().chain(&mut place.observers) {
            assert!(replica.log_end_offset > 0);
            replica.log_end_offset = 1;
            replica.replica_id = BrokerId(7);
        }
        peer.keep_answer(&format!("DescribeQuorum v{version}"), &answer);
        for (case, request) in [
            ("of nothing", asking(&[])),
            ("of another partition", asking(&[("__cluster_metadata", 1)])),
            ("of a topic", asking(&[("paged-a", 0)])),
            ("of two", asking(&[("__cluster_metadata", 0), ("paged-a", 0)])),
        ] {
            peer.ask(&format!("DescribeQuorum {case}"), version, &request);
        }
    }
}

fn features(peer: &mut Peer) {
    let asking = |updates: &[(&str, i16, i8)]| {
        let updates = updates.iter().map(|(feature, level, kind)| {
            FeatureUpdateKey::default()
                .with_feature(text(feature))
                .with_max_version_level(*level)
                .with_upgrade_type(*kind)
        });
        UpdateFeaturesRequest::default().with_feature_updates(updates.collect())
    };
    for version in [0, 1, 2] {
        peer.ask("UpdateFeatures of none", version, &asking(&[]));
        let same: &[(&str, i16, i8)] = &[("metadata.version", 30, 1)];
        peer.ask("UpdateFeatures to the same", version, &asking(same));
        peer.ask("UpdateFeatures too high", version, &asking(&[("metadata.version", 99, 1)]));
        peer.ask("UpdateFeatures too low", version, &asking(&[("metadata.version", 1, 1)]));
        peer.ask("UpdateFeatures below none", version, &asking(&[("metadata.version", -1, 1)]));
        peer.ask("UpdateFeatures down", version, &asking(&[("metadata.version", 29, 1)]));
        peer.ask("UpdateFeatures of the unknown", version, &asking(&[("no.such", 1, 1)]));
        peer.ask("UpdateFeatures of the unknown to 0", version, &asking(&[("no.such", 0, 1)]));
        if version >= 1 {
            for kind in [0, 2, 3, 4] {
                let case = format!("UpdateFeatures of type {kind}");
                peer.ask(&case, version, &asking(&[("metadata.version", 30, kind)]));
            }
            let mut request = asking(&[("metadata.version", 99, 1)]);
            request.validate_only = true;
            peer.ask("UpdateFeatures to validate", version, &request);
        }
    }
}

fn reassignments(peer: &mut Peer) {
    let here = peer.node_id;
    let asking = |topic: &str, partition: i32, replicas: Option<&[i32]>| {
        let replicas = replicas.map(|nodes| nodes.iter().map(|&node| BrokerId(node)).collect());
        let partition = ReassignablePartition::default()
            .with_partition_index(partition)
            .with_replicas(replicas);
        let topic =
            ReassignableTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        AlterPartitionReassignmentsRequest::default().with_topics(vec![topic])
    };
    for version in [0, 1] {
        for (case, mut request) in [
            ("to where it is", asking("paged-a", 0, Some(&[here]))),
            ("to nowhere", asking("paged-a", 0, Some(&[]))),
            ("to a stranger", asking("paged-a", 0, Some(&[99]))),
            ("to here twice", asking("paged-a", 0, Some(&[here, here]))),
            ("of no more", asking("paged-a", 0, None)),
            ("of an unknown topic", asking("nowhere", 0, Some(&[here]))),
            ("of an unknown partition", asking("paged-a", 9, Some(&[here]))),
        ] {
            let case = format!("AlterPartitionReassignments {case}");
            peer.ask(&case, version, &request);
            if version == 1 {
                request.allow_replication_factor_change = false;
                peer.ask(&format!("{case}, as many"), version, &request);
            }
        }
        let none = AlterPartitionReassignmentsRequest::default();
        peer.ask("AlterPartitionReassignments of none", version, &none);
    }
    let list = ListPartitionReassignmentsRequest::default();
    peer.ask("ListPartitionReassignments", 0, &list.clone().with_topics(None));
    let topic = list_partition_reassignments_request::ListPartitionReassignmentsTopics::default()
        .with_name(name("paged-a"))
        .with_partition_indexes(vec![0, 9]);
    peer.ask("ListPartitionReassignments of one", 0, &list.with_topics(Some(vec![topic])));
}

fn elections(peer: &mut Peer) {
    let asking = |kind: i8, topics: &[(&str, &[i32])]| {
        let topics = topics.iter().map(|(topic, partitions)| {
            TopicPartitions::default().with_topic(name(topic)).with_partitions(partitions.to_vec())
        });
        ElectLeadersRequest::default()
            .with_election_type(kind)
            .with_topic_partitions(Some(topics.collect()))
            .with_timeout_ms(10_000)
    };
    for version in [0, 1, 2] {
        for kind in if version == 0 { &[0][..] } else { &[0, 1, 2] } {
            let case = format!("ElectLeaders of type {kind}");
            let topics: &[(&str, &[i32])] = &[("paged-a", &[0, 2, 3]), ("nowhere", &[0])];
            peer.ask(&case, version, &asking(*kind, topics));
            peer.ask(&format!("{case}, none"), version, &asking(*kind, &[]));
            let mut all = asking(*kind, &[]);
            all.topic_partitions = None;
            peer.ask(&format!("{case}, all"), version, &all);
        }
    }
}

fn log_directories(peer: &mut Peer) {
    peer.make_topic("sized", 2, &[]);
    let topic = Topic::named("sized");
    for size in [10, 3000] {
        let set = Batch::of_values([vec![7_u8; size]]).encode();
        let answer = peer.call(7, &requests::produce(7, &topic, 0, -1, set));
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    let asking = |partitions: &[i32]| {
        let topic = DescribableLogDirTopic::default()
            .with_topic(name("sized"))
            .with_partitions(partitions.to_vec());
        DescribeLogDirsRequest::default().with_topics(Some(vec![topic]))
    };
    let mut directory = StrBytes::default();
    for version in [1, 2, 3, 4, 5] {
        for (case, request) in [
            ("of two", asking(&[0, 1, 9])),
            ("of none", DescribeLogDirsRequest::default().with_topics(Some(vec![]))),
        ] {
            let mut answer = peer.log_dirs(version, &request);
            let result = &mut answer.results[0];
            directory = std::mem::replace(&mut result.log_dir, text("the directory"));
            for bytes in [&mut result.total_bytes, &mut result.usable_bytes] {
                *bytes = bytes.signum();
            }
            peer.keep_answer(&format!("DescribeLogDirs {case} v{version}"), &answer);
        }
    }
    let all = DescribeLogDirsRequest::default().with_topics(None);
    let answer = peer.log_dirs(4, &all);
    let topics = &answer.results[0].topics;
    let sized = topics.iter().find(|topic| topic.name.as_str() == "sized");
    peer.keep_answer("DescribeLogDirs of all v4", sized.expect("the topic"));
    for version in [1, 2] {
        for (case, path, topic) in [
            ("to where they are", directory.as_str(), "sized"),
            ("to elsewhere", "/no/such/directory", "sized"),
            ("of the unknown", directory.as_str(), "nowhere"),
            ("of a long name", directory.as_str(), &"n".repeat(240)),
        ] {
            let topic = AlterReplicaLogDirTopic::default()
                .with_name(name(topic))
                .with_partitions(vec![0, 9]);
            let to = AlterReplicaLogDir::default().with_path(text(path)).with_topics(vec![topic]);
            let request = AlterReplicaLogDirsRequest::default().with_dirs(vec![to]);
            peer.ask(&format!("AlterReplicaLogDirs {case}"), version, &request);
        }
        let none = AlterReplicaLogDirsRequest::default();
        peer.ask("AlterReplicaLogDirs of none", version, &none);
    }
}
