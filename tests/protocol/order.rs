//! Responses leave in the order of their requests, whatever each of them waits for.

use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};

use crate::calls::{self, append, only_fetched, only_produced, waiting};
use crate::cluster::Cluster;
use crate::support::batch::Batch;
use crate::support::requests::{self, create_topic, init_producer_id};

in_every_mode!(
    different_requests_are_answered_in_order,
    a_waiting_fetch_holds_back_what_is_behind_it,
    produced_records_are_seen_by_the_next_fetch,
    a_created_topic_serves_the_next_request,
    many_requests_at_once,
    a_client_that_goes_away_leaves_nothing_behind,
);

fn different_requests_are_answered_in_order(cluster: &Cluster) {
    let topic = cluster.topic("order", 1);
    let mut client = cluster.at(&topic, 0);
    for round in 0..20 {
        let batch = Batch::of_values([format!("{round}")]).encode();
        let produce = client.send(13, &requests::produce(13, &topic, 0, -1, batch));
        let versions = client.send(0, &ApiVersionsRequest::default());
        let list = client.send(7, &requests::list_offsets(&topic.name, 0, -1));
        let metadata = client.send(12, &requests::metadata(&[&topic.name]));
        let fetch = client.send(18, &requests::fetch(18, &topic, 0, round));
        let id = client.send(4, &init_producer_id(None));
        let again = client.send(7, &requests::list_offsets(&topic.name, 0, -1));
        assert_eq!(only_produced(client.receive(produce), 0).base_offset, round);
        assert_eq!(client.receive(versions).error_code, 0);
        // Pure reads overlap with what is before them, so that either end is right.
        let end = client.receive(list).topics[0].partitions[0].offset;
        assert!(end == round || end == round + 1, "{end} in round {round}");
        assert_eq!(client.receive(metadata).topics[0].error_code, 0);
        // Metadata waits for the responses before it, so the record is there by now.
        assert_eq!(only_fetched(client.receive(fetch), 0).high_watermark, round + 1);
        assert_eq!(client.receive(id).error_code, 0);
        assert_eq!(client.receive(again).topics[0].partitions[0].offset, round + 1);
    }
}

fn a_waiting_fetch_holds_back_what_is_behind_it(cluster: &Cluster) {
    let topic = cluster.topic("held-back", 4);
    for partition in 0..4 {
        let mut client = cluster.at(&topic, partition);
        let wait = waiting(requests::fetch(18, &topic, partition, 0), 60_000, 1);
        let fetch = client.send(18, &wait);
        let list = client.send(7, &requests::list_offsets(&topic.name, partition, -1));
        let versions = client.send(0, &ApiVersionsRequest::default());
        let metadata = client.send(12, &requests::metadata(&[&topic.name]));
        client.expect_silence(Duration::from_millis(50));
        append(&mut cluster.at(&topic, partition), &topic, partition, &Batch::of_values(["a"]));
        assert_eq!(only_fetched(client.receive(fetch), partition).high_watermark, 1);
        assert_eq!(client.receive(list).topics[0].partitions[0].error_code, 0);
        assert_eq!(client.receive(versions).error_code, 0);
        assert_eq!(client.receive(metadata).topics[0].error_code, 0);
    }
}

fn produced_records_are_seen_by_the_next_fetch(cluster: &Cluster) {
    let topic = cluster.topic("seen", 3);
    for round in 0..30 {
        for partition in 0..3 {
            let mut client = cluster.at(&topic, partition);
            append(&mut client, &topic, partition, &Batch::of_values([format!("{round}")]));
            // An acknowledged record is readable on any connection at once.
            let mut other = cluster.at(&topic, partition);
            let data = calls::fetch(&mut other, 12, &topic, partition, round);
            assert_eq!((data.error_code, data.high_watermark), (0, round + 1));
            assert_eq!(calls::end(&mut client, &topic, partition), round + 1);
        }
    }
}

fn a_created_topic_serves_the_next_request(cluster: &Cluster) {
    let mut client = cluster.connect();
    for partitions in [1, 5, 20] {
        let name = crate::cluster::unique("at-once");
        let create = client.send(5, &create_topic(&name, partitions));
        let all = client.send(12, &requests::metadata(&[&name]));
        assert_eq!(client.receive(create).topics[0].error_code, 0);
        let described = client.receive(all);
        assert_eq!(described.topics[0].partitions.len(), partitions as usize);
        let topic = requests::Topic { name, id: described.topics[0].topic_id };
        for partition in 0..partitions {
            let mut leader = cluster.at(&topic, partition);
            assert_eq!(append(&mut leader, &topic, partition, &Batch::of_values(["a"])), 0);
        }
    }
}

fn many_requests_at_once(cluster: &Cluster) {
    let topic = cluster.topic("at-a-time", 1);
    let mut client = cluster.at(&topic, 0);
    // More than a connection has in progress at a time, all written before anything is read.
    let batch = Batch::of_values(["a"]).encode();
    let sent: Vec<_> = (0..400)
        .map(|_| client.send(13, &requests::produce(13, &topic, 0, -1, batch.clone())))
        .collect();
    let asked: Vec<_> = (0..400).map(|_| client.send(1, &MetadataRequest::default())).collect();
    for (offset, sent) in (0..).zip(sent) {
        let answer = only_produced(client.receive(sent), 0);
        assert_eq!((answer.error_code, answer.base_offset), (0, offset));
    }
    for asked in asked {
        assert_eq!(client.receive(asked).brokers.len(), cluster.nodes());
    }
}

fn a_client_that_goes_away_leaves_nothing_behind(cluster: &Cluster) {
    let topic = cluster.topic("gone", 2);
    for partition in 0..2 {
        for _ in 0..20 {
            let mut client = cluster.at(&topic, partition);
            let wait = waiting(requests::fetch(18, &topic, partition, 0), 600_000, 1);
            let _never_read = client.send(18, &wait);
            let _never_read = client.send(12, &requests::metadata(&[&topic.name]));
        }
        let mut client = cluster.at(&topic, partition);
        assert_eq!(append(&mut client, &topic, partition, &Batch::of_values(["a"])), 0);
        assert_eq!(calls::end(&mut client, &topic, partition), 1);
    }
}
