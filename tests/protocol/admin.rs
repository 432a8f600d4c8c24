//! What administers the cluster: paging, quorum, log directories, quotas and credentials, as they
//! differ between one node and many, and over restarts.

use bytes::Bytes;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterPartitionReassignmentsRequest, AlterUserScramCredentialsRequest,
    BrokerId, DescribeClientQuotasRequest, DescribeLogDirsRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, DescribeUserScramCredentialsRequest, ElectLeadersRequest,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::calls::append;
use crate::cluster::{self, Cluster, Mode, unique};
use crate::support::batch::Batch;
use crate::support::client::Client;

in_every_mode!(
    topics_are_described_in_pages,
    the_quorum_is_node_0_and_its_observers,
    log_directories_add_up,
    partitions_stay_where_they_are,
);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topics_are_described_in_pages(cluster: &Cluster) {
    let (first, second) = (cluster.topic("pages", 3), cluster.topic("pages", 2));
    let mut names = [first.name.as_str(), second.name.as_str()];
    names.sort_unstable();
    for mut client in cluster.everywhere() {
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let topics =
                names.iter().map(|name| TopicRequest::default().with_name(TopicName(text(name))));
            let request = DescribeTopicPartitionsRequest::default()
                .with_topics(topics.collect())
                .with_response_partition_limit(2)
                .with_cursor(cursor);
            let response = client.call(0, &request);
            let mut count = 0;
            for topic in &response.topics {
                let name = topic.name.as_ref().expect("a name").to_string();
                assert_eq!((topic.error_code, topic.topic_authorized_operations), (0, 3576));
                for partition in &topic.partitions {
                    let replicas = [&partition.replica_nodes, &partition.isr_nodes];
                    assert!(replicas.iter().all(|nodes| **nodes == [partition.leader_id]));
                    assert!(partition.leader_epoch > 0);
                    seen.push((name.clone(), partition.partition_index, partition.leader_id.0));
                    count += 1;
                }
            }
            assert!((1..=2).contains(&count));
            let Some(next) = response.next_cursor else { break };
            cursor = Some(
                Cursor::default()
                    .with_topic_name(next.topic_name)
                    .with_partition_index(next.partition_index),
            );
        }
        let mut expected = Vec::new();
        for name in names {
            for partition in &cluster.describe(name).topics[0].partitions {
                expected.push((name.to_owned(), partition.partition_index, partition.leader_id.0));
            }
        }
        assert_eq!(seen, expected);
    }
}

/// High watermark of the catalog's log.
fn quorum_end(client: &mut Client, nodes: usize) -> i64 {
    let partition = PartitionData::default().with_partition_index(0);
    let topic = TopicData::default()
        .with_topic_name(TopicName(text("__cluster_metadata")))
        .with_partitions(vec![partition]);
    let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
    let response = client.call(2, &request);
    let partition = &response.topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.leader_id.0), (0, 0));
    let ids = |states: &[kafka_protocol::messages::describe_quorum_response::ReplicaState]| {
        let ends = states.iter().all(|state| state.log_end_offset == partition.high_watermark);
        assert!(ends, "nobody lags");
        states.iter().map(|state| state.replica_id.0 as usize).collect::<Vec<_>>()
    };
    assert_eq!(ids(&partition.current_voters), [0]);
    assert_eq!(ids(&partition.observers), (1..nodes).collect::<Vec<_>>());
    assert_eq!((response.nodes.len(), response.nodes[0].node_id.0), (1, 0));
    partition.high_watermark
}

fn the_quorum_is_node_0_and_its_observers(cluster: &Cluster) {
    for mut client in cluster.everywhere() {
        let before = quorum_end(&mut client, cluster.nodes());
        cluster.topic("counted", 1);
        assert!(quorum_end(&mut client, cluster.nodes()) > before, "a topic is a change");
    }
}

fn log_directories_add_up(cluster: &Cluster) {
    let topic = cluster.topic("sized", 4);
    let batch = Batch::of_values([vec![7_u8; 3000]]);
    for partition in 0..4 {
        for _ in 0..=partition {
            append(&mut cluster.at(&topic, partition), &topic, partition, &batch);
        }
    }
    let asked = DescribableLogDirTopic::default()
        .with_topic(TopicName(text(&topic.name)))
        .with_partitions(vec![0, 1, 2, 3, 9]);
    let request = DescribeLogDirsRequest::default().with_topics(Some(vec![asked]));
    for version in 1..=4 {
        let mut sizes = Vec::new();
        for node in 0..cluster.nodes() as i32 {
            let response = cluster.connect_to(node).call(version, &request);
            let [directory] = response.results.as_slice() else { panic!("{response:?}") };
            let path = cluster.broker.data_directory();
            assert_eq!(directory.log_dir.as_str(), path.display().to_string());
            let told = version >= 4 && node == 0;
            assert_eq!((directory.total_bytes > 0, directory.usable_bytes > 0), (told, told));
            for partition in directory.topics.iter().flat_map(|topic| &topic.partitions) {
                assert_eq!(cluster.leader(&topic, partition.partition_index), node);
                sizes.push((partition.partition_index, partition.partition_size));
            }
        }
        sizes.sort_unstable();
        let size = batch.encode().len() as i64;
        let expected: Vec<(i32, i64)> = (0..4).map(|p| (p, size * i64::from(p + 1))).collect();
        assert_eq!(sizes, expected, "version {version}");
    }
}

fn partitions_stay_where_they_are(cluster: &Cluster) {
    let topic = cluster.topic("staying", 1);
    let leader = cluster.leader(&topic, 0);
    let mut client = cluster.connect();
    let mut moved = |nodes: &[i32]| {
        let partition = ReassignablePartition::default()
            .with_replicas(Some(nodes.iter().map(|&node| BrokerId(node)).collect()));
        let topic = ReassignableTopic::default()
            .with_name(topic.wire_name())
            .with_partitions(vec![partition]);
        let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
        client.call(1, &request).responses[0].partitions[0].error_code
    };
    assert_eq!(moved(&[leader]), 0);
    assert_eq!(moved(&[leader + 1]), 39);
    assert_eq!(moved(&[(leader + 1) % cluster.mode.shards as i32, leader]), 39);
    let request = ElectLeadersRequest::default().with_topic_partitions(None);
    for version in 0..=2 {
        let response = client_of(cluster).call(version, &request);
        assert_eq!(response.error_code, 0);
        assert!(response.replica_election_results.iter().all(|t| t.partition_result.is_empty()));
    }
}

fn client_of(cluster: &Cluster) -> Client {
    cluster.everywhere().pop().expect("a node")
}

#[test]
fn quotas_credentials_and_the_count_are_kept_per_core_2() {
    quotas_credentials_and_the_count_are_kept(cluster::PER_CORE_2);
}

#[test]
fn quotas_credentials_and_the_count_are_kept_single_2() {
    quotas_credentials_and_the_count_are_kept(cluster::SINGLE_2);
}

fn quotas_credentials_and_the_count_are_kept(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let user = unique("user");
    let entity =
        EntityData::default().with_entity_type(text("user")).with_entity_name(Some(text(&user)));
    let operation = OpData::default().with_key(text("request_percentage")).with_value(12.25);
    let entry = EntryData::default().with_entity(vec![entity]).with_ops(vec![operation]);
    let request = AlterClientQuotasRequest::default().with_entries(vec![entry]);
    assert_eq!(client_of(&cluster).call(1, &request).entries[0].error_code, 0);
    let upsertion = ScramCredentialUpsertion::default()
        .with_name(text(&user))
        .with_mechanism(2)
        .with_iterations(5000)
        .with_salt(Bytes::from_static(b"salt"))
        .with_salted_password(Bytes::from_static(b"salted"));
    let request = AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion]);
    assert_eq!(client_of(&cluster).call(0, &request).results[0].error_code, 0);
    let mut end = quorum_end(&mut cluster.connect(), cluster.nodes());
    for clean in [None, Some(true), Some(false)] {
        match clean {
            None => {}
            Some(clean) => {
                if clean {
                    assert_eq!(cluster.broker.terminate().code, Some(0));
                }
                cluster.broker.restart();
            }
        }
        for mut client in cluster.everywhere() {
            let quotas = client.call(1, &DescribeClientQuotasRequest::default()).entries;
            let quotas = quotas.expect("entries");
            let value = &quotas[0].values[0];
            assert_eq!(
                (quotas.len(), value.key.as_str(), value.value),
                (1, "request_percentage", 12.25)
            );
            let name = quotas[0].entity[0].entity_name.as_ref().expect("a name");
            assert_eq!(name.as_str(), user);
            let all = DescribeUserScramCredentialsRequest::default().with_users(None);
            let users = client.call(0, &all).results;
            let infos = &users[0].credential_infos;
            assert_eq!((users.len(), users[0].user.as_str()), (1, user.as_str()));
            assert_eq!((infos.len(), infos[0].mechanism, infos[0].iterations), (1, 2, 5000));
        }
        let now = quorum_end(&mut cluster.connect(), cluster.nodes());
        assert!(now >= end, "{now} after {end}");
        end = now;
    }
}
