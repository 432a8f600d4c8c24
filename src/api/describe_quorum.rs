//! DescribeQuorum (key 55), versions 0-2.
//!
//! Behaviour
//! - Shard 0 writes the catalog, so node 0 is the one voter and its leader, in an epoch that counts
//!   starts. The other nodes, where there are any, have every change when it is answered:
//!   observers that lack nothing. The high watermark counts the changes of the catalog.
//! - Only partition 0 of `__cluster_metadata` exists; a request for anything else, or for more,
//!   gets 3 for each of its partitions.
//! - Node 0 is told with the address that clients find it at; directories have no id.
//!
//! Version notes: 0 of KIP-595; 1 times of fetching (KIP-836); 2 nodes, directories, messages
//! (KIP-853).

use std::rc::Rc;

use kafka_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::{
    BrokerId, DescribeQuorumRequest, DescribeQuorumResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::metadata::Image;
use crate::metadata::image::CLUSTER_METADATA;
use crate::metadata::topics::NOT_HOSTED;
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeQuorumRequest,
) -> Response {
    let now_ms = shard.runtime.wall_ms();
    let (image, version) = (shard.catalog(), header.api_version);
    Response::encode(header, &answer(&image, &shard.context, request, version, now_ms))
}

/// The answer at `now_ms`.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &DescribeQuorumRequest,
    version: i16,
    now_ms: i64,
) -> DescribeQuorumResponse {
    let exists = match request.topics.as_slice() {
        [topic] if topic.topic_name.as_str() == CLUSTER_METADATA => {
            matches!(topic.partitions.as_slice(), [only] if only.partition_index == 0)
        }
        _ => false,
    };
    if !exists {
        return unknown(request, version);
    }
    let end = image.changes();
    let replica = |id: i32| {
        let state = ReplicaState::default().with_replica_id(BrokerId(id)).with_log_end_offset(end);
        if version < TIMES_SINCE {
            return state.with_last_fetch_timestamp(-1).with_last_caught_up_timestamp(-1);
        }
        state.with_last_fetch_timestamp(now_ms).with_last_caught_up_timestamp(now_ms)
    };
    let partition = PartitionData::default()
        .with_leader_id(BrokerId(VOTER))
        .with_leader_epoch(context.leader_epoch().0)
        .with_high_watermark(end)
        .with_current_voters(vec![replica(VOTER)])
        .with_observers(
            context.nodes.iter().map(|n| n.id).filter(|id| *id != VOTER).map(replica).collect(),
        );
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str(CLUSTER_METADATA)))
        .with_partitions(vec![partition]);
    let voters = context.nodes.iter().filter(|node| version >= NODES_SINCE && node.id == VOTER);
    let voters = voters.map(|node| {
        let listener = Listener::default()
            .with_name(StrBytes::from_static_str("PLAINTEXT"))
            .with_host(StrBytes::from_string(node.host.clone()))
            .with_port(node.port);
        Node::default().with_node_id(BrokerId(node.id)).with_listeners(vec![listener])
    });
    DescribeQuorumResponse::default().with_topics(vec![topic]).with_nodes(voters.collect())
}

fn unknown(request: &DescribeQuorumRequest, version: i16) -> DescribeQuorumResponse {
    let message = StrBytes::from_static_str(if version >= NODES_SINCE { NOT_HOSTED } else { "" });
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            PartitionData::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(ErrorCode::UnknownTopicOrPartition.code())
                .with_error_message(Some(message.clone()))
        });
        TopicData::default()
            .with_topic_name(topic.topic_name.clone())
            .with_partitions(partitions.collect())
    });
    DescribeQuorumResponse::default().with_topics(topics.collect())
}

/// The node of the shard that writes the catalog.
const VOTER: i32 = 0;

const TIMES_SINCE: i16 = 1;
const NODES_SINCE: i16 = 2;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_quorum_request as asking;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn described(
        settings: &[(&str, &str)],
        partitions: &[(&'static str, i32)],
        version: i16,
    ) -> DescribeQuorumResponse {
        let context = context(settings);
        let topic = |(name, partition): &(&'static str, i32)| {
            let partition = asking::PartitionData::default().with_partition_index(*partition);
            asking::TopicData::default()
                .with_topic_name(TopicName(StrBytes::from_static_str(name)))
                .with_partitions(vec![partition])
        };
        let request =
            DescribeQuorumRequest::default().with_topics(partitions.iter().map(topic).collect());
        let image = catalog(&context, &[("t", 1, &[0])]);
        let response = answer(&image, &context, &request, version, 777);
        encode_response(Api::DescribeQuorum, version, 1, &response).expect("encodes");
        response
    }

    #[test]
    fn one_voter_and_the_others_observe() {
        let metadata = [("__cluster_metadata", 0)];
        for version in 0..=2 {
            let response = described(&[], &metadata, version);
            let partition = &response.topics[0].partitions[0];
            assert_eq!((partition.error_code, partition.leader_id.0), (0, 0));
            // The third start; the cluster and the topic are two changes.
            assert_eq!((partition.leader_epoch, partition.high_watermark), (3, 2));
            let ids = |states: &[ReplicaState]| -> Vec<(i32, i64, i64)> {
                let state =
                    |s: &ReplicaState| (s.replica_id.0, s.log_end_offset, s.last_fetch_timestamp);
                states.iter().map(state).collect()
            };
            let time = if version == 0 { -1 } else { 777 };
            assert_eq!(ids(&partition.current_voters), [(0, 2, time)]);
            assert_eq!(ids(&partition.observers), [(1, 2, time), (2, 2, time), (3, 2, time)]);
            assert_eq!(response.nodes.len(), usize::from(version == 2));
        }
        let response = described(&[("advertise", "single")], &metadata, 2);
        assert_eq!(response.topics[0].partitions[0].observers, []);
        let listener = &response.nodes[0].listeners[0];
        assert_eq!((listener.host.as_str(), listener.port), ("ringlog", 9092));
    }

    #[test]
    fn nothing_else_has_a_quorum() {
        for partitions in [
            &[("__cluster_metadata", 1)][..],
            &[("t", 0)],
            &[("__cluster_metadata", 0), ("t", 0)],
            &[],
        ] {
            for version in 0..=2 {
                let response = described(&[], partitions, version);
                assert_eq!((response.error_code, response.topics.len()), (0, partitions.len()));
                assert!(response.topics.iter().all(|topic| topic.partitions[0].error_code == 3));
            }
        }
    }
}
