//! Requests at a node that does not lead the partition: refused with the way to the leader where
//! every shard is a broker, served all the same where all of them are one.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{FetchRequest, OffsetForLeaderEpochRequest, ProduceRequest};

use crate::calls::{self, only_fetched, only_produced, waiting};
use crate::cluster::Cluster;
use crate::support::batch::{Batch, read_batches};
use crate::support::requests;

in_every_mode!(
    produce_at_every_node,
    fetch_at_every_node,
    list_offsets_at_every_node,
    epoch_ends_at_every_node,
    one_request_for_all_partitions,
    waiting_across_shards,
);

fn produce_at_every_node(cluster: &Cluster) {
    let topic = cluster.topic("produced-anywhere", 5);
    let epoch = calls::leader_epoch(cluster, &topic);
    for partition in 0..5 {
        let leader = cluster.leader(&topic, partition);
        let mut base = 0;
        for (node, mut client) in (0..).zip(cluster.everywhere()) {
            for version in [3, 8, 9, 10, 12, 13] {
                let set = Batch::of_values(["a"]).encode();
                let request = requests::produce(version, &topic, partition, -1, set);
                let response = client.call(version, &request);
                let endpoints = response.node_endpoints.clone();
                let answer = only_produced(response, partition);
                let told = (answer.current_leader.leader_id.0, answer.current_leader.leader_epoch);
                if cluster.is_single() || node == leader {
                    assert_eq!((answer.error_code, answer.base_offset), (0, base));
                    assert_eq!((told, endpoints.len()), ((-1, -1), 0));
                    base += 1;
                    continue;
                }
                assert_eq!((answer.error_code, answer.base_offset), (6, -1));
                if version < 10 {
                    assert_eq!((told, endpoints.len()), ((-1, -1), 0));
                    continue;
                }
                assert_eq!(told, (leader, epoch));
                assert_eq!(endpoints.len(), 1);
                let address = cluster.address(leader);
                assert_eq!(endpoints[0].node_id.0, leader);
                assert_eq!(endpoints[0].host.as_str(), address.ip().to_string());
                assert_eq!(endpoints[0].port, i32::from(address.port()));
                assert_eq!(endpoints[0].rack, None);
            }
        }
    }
}

fn fetch_at_every_node(cluster: &Cluster) {
    let topic = cluster.topic("fetched-anywhere", 5);
    let epoch = calls::leader_epoch(cluster, &topic);
    for partition in 0..5 {
        let leader = cluster.leader(&topic, partition);
        let batch = Batch::of_values(["a"]);
        calls::append(&mut cluster.connect_to(leader), &topic, partition, &batch);
        for (node, mut client) in (0..).zip(cluster.everywhere()) {
            for version in [4, 11, 12, 15, 16, 18] {
                let request = requests::fetch(version, &topic, partition, 0);
                let response = client.call(version, &waiting(request, 60_000, 1));
                let endpoints = response.node_endpoints.clone();
                let data = only_fetched(response, partition);
                let told = (data.current_leader.leader_id.0, data.current_leader.leader_epoch);
                if cluster.is_single() || node == leader {
                    assert_eq!((data.error_code, data.high_watermark), (0, 1));
                    assert_eq!(read_batches(data.records.expect("records")).len(), 1);
                    assert_eq!((told, endpoints.len()), ((-1, -1), 0));
                    continue;
                }
                assert_eq!((data.error_code, data.high_watermark), (6, -1));
                assert_eq!(data.records.map(|records| records.len()), Some(0));
                let leader_told = if version >= 12 { (leader, epoch) } else { (-1, -1) };
                assert_eq!(told, leader_told, "version {version}");
                if version < 16 {
                    assert_eq!(endpoints.len(), 0);
                    continue;
                }
                let address = cluster.address(leader);
                assert_eq!(endpoints.len(), 1);
                assert_eq!(
                    (endpoints[0].node_id.0, endpoints[0].port),
                    (leader, i32::from(address.port()))
                );
            }
        }
    }
}

fn list_offsets_at_every_node(cluster: &Cluster) {
    let topic = cluster.topic("listed-anywhere", 5);
    for partition in 0..5 {
        let leader = cluster.leader(&topic, partition);
        for (node, mut client) in (0..).zip(cluster.everywhere()) {
            for version in [1, 6, 11] {
                let answer = calls::list(&mut client, version, &topic, partition, -1);
                let served = cluster.is_single() || node == leader;
                let expected = if served { (0, 0) } else { (6, -1) };
                assert_eq!((answer.error_code, answer.offset), expected);
            }
        }
    }
}

fn epoch_ends_at_every_node(cluster: &Cluster) {
    let topic = cluster.topic("ends-anywhere", 5);
    let epoch = calls::leader_epoch(cluster, &topic);
    for partition in 0..5 {
        let leader = cluster.leader(&topic, partition);
        for (node, mut client) in (0..).zip(cluster.everywhere()) {
            let wanted = OffsetForLeaderPartition::default()
                .with_partition(partition)
                .with_leader_epoch(epoch);
            let wanted = OffsetForLeaderTopic::default()
                .with_topic(topic.wire_name())
                .with_partitions(vec![wanted]);
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![wanted]);
            let answer = client.call(4, &request).topics[0].partitions[0].clone();
            let served = cluster.is_single() || node == leader;
            let expected = if served { (0, epoch, 0) } else { (6, -1, -1) };
            assert_eq!((answer.error_code, answer.leader_epoch, answer.end_offset), expected);
        }
    }
}

fn one_request_for_all_partitions(cluster: &Cluster) {
    let topic = cluster.topic("split", 10);
    let leaders: Vec<i32> = (0..10).map(|partition| cluster.leader(&topic, partition)).collect();
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let served = |partition: usize| cluster.is_single() || leaders[partition] == node;
        let mut request: ProduceRequest =
            requests::produce(13, &topic, 0, -1, Batch::of_values(["a", "b"]).encode());
        let first = request.topic_data[0].partition_data[0].clone();
        request.topic_data[0].partition_data =
            (0..10).map(|partition| first.clone().with_index(partition)).collect();
        let response = client.call(13, &request);
        let answers = &response.responses[0].partition_responses;
        let found: Vec<_> = answers.iter().map(|a| (a.index, a.error_code)).collect();
        let expected: Vec<_> = (0..10).map(|p| (p as i32, if served(p) { 0 } else { 6 })).collect();
        assert_eq!(found, expected);
        let mut request: FetchRequest = requests::fetch(18, &topic, 0, 0);
        let first = request.topics[0].partitions[0].clone();
        request.topics[0].partitions =
            (0..10).rev().map(|partition| first.clone().with_partition(partition)).collect();
        let response = client.call(18, &request);
        let found: Vec<_> =
            calls::fetched(&response).into_iter().map(|found| (found.0, found.1)).collect();
        let expected: Vec<_> = expected.into_iter().rev().collect();
        assert_eq!(found, expected);
        let endpoints: Vec<i32> = response.node_endpoints.iter().map(|e| e.node_id.0).collect();
        let mut others: Vec<i32> = leaders.clone();
        others.sort_unstable();
        others.dedup();
        others.retain(|&leader| !cluster.is_single() && leader != node);
        let mut endpoints_sorted = endpoints.clone();
        endpoints_sorted.sort_unstable();
        assert_eq!(endpoints_sorted, others, "each leader once");
    }
}

fn waiting_across_shards(cluster: &Cluster) {
    if !cluster.is_single() {
        return;
    }
    let topic = cluster.topic("across", 7);
    let mut offsets = [0; 7];
    for (round, mut client) in cluster.everywhere().into_iter().enumerate() {
        for partition in 0..7_usize {
            let mut request: FetchRequest = requests::fetch(18, &topic, 0, 0);
            let first = request.topics[0].partitions[0].clone();
            request.topics[0].partitions = (0..7_usize)
                .map(|p| first.clone().with_partition(p as i32).with_fetch_offset(offsets[p]))
                .collect();
            let sent = client.send(18, &waiting(request, 60_000, 1));
            let batch = Batch::of_values([format!("{round}")]);
            calls::append(&mut cluster.connect(), &topic, partition as i32, &batch);
            let found = calls::fetched(&client.receive(sent));
            let expected: Vec<_> =
                (0..7).map(|p| (p as i32, 0, usize::from(p == partition))).collect();
            assert_eq!(found, expected);
            offsets[partition] += 1;
        }
    }
}
