//! The hand-written Produce response against the codec library.

use bytes::Buf;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint as CodecEndpoint,
    PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{BrokerId, ProduceResponse, TopicName};
use kafka_protocol::protocol::Decodable;
use proptest::prelude::*;

use super::*;
use crate::ids::LeaderEpoch;
use crate::wire::encode::encode_response;
use crate::wire::tests::{Random, cases};

fn any_answer(random: &mut Random) -> ProduceAnswer {
    ProduceAnswer {
        topics: random.list(|random| ProduceTopicAnswer {
            name: random.text(),
            id: TopicId([random.next() as u8; 16]),
            partitions: random.list(any_partition),
        }),
        throttle_time_ms: random.int32(),
        node_endpoints: random.list(|random| NodeEndpoint {
            node_id: random.int32(),
            host: random.text(),
            port: random.int32(),
            rack: random.maybe(Random::text),
        }),
    }
}

fn any_partition(random: &mut Random) -> ProducePartitionAnswer {
    ProducePartitionAnswer {
        partition: PartitionIndex(random.int32()),
        error: [ErrorCode::None, ErrorCode::InvalidRecord][random.below(2)],
        base_offset: Offset(random.int64()),
        log_append_time_ms: random.int64(),
        log_start_offset: Offset(random.int64()),
        record_errors: random.list(|random| RecordError {
            batch_index: random.int32(),
            message: random.maybe(Random::text),
        }),
        error_message: random.maybe(Random::text),
        current_leader: random.maybe(|random| CurrentLeader {
            leader_id: random.int32(),
            leader_epoch: LeaderEpoch(random.int32()),
        }),
    }
}

/// The same answer as the codec would hold it, limited to what `version` can say.
fn expected(version: i16, answer: &ProduceAnswer) -> ProduceResponse {
    let topics = answer.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|p| partition(version, p));
        let response =
            TopicProduceResponse::default().with_partition_responses(partitions.collect());
        if version >= 13 {
            response.with_topic_id(topic.id.into())
        } else {
            response.with_name(TopicName(topic.name.clone()))
        }
    });
    let mut response = ProduceResponse::default()
        .with_responses(topics.collect())
        .with_throttle_time_ms(answer.throttle_time_ms);
    if version >= 10 {
        let endpoints = answer.node_endpoints.iter().map(|endpoint| {
            CodecEndpoint::default()
                .with_node_id(BrokerId(endpoint.node_id))
                .with_host(endpoint.host.clone())
                .with_port(endpoint.port)
                .with_rack(endpoint.rack.clone())
        });
        response.node_endpoints = endpoints.collect();
    }
    response
}

fn partition(version: i16, answer: &ProducePartitionAnswer) -> PartitionProduceResponse {
    let mut response = PartitionProduceResponse::default()
        .with_index(answer.partition.0)
        .with_error_code(answer.error.code())
        .with_base_offset(answer.base_offset.0)
        .with_log_append_time_ms(answer.log_append_time_ms);
    if version >= 5 {
        response.log_start_offset = answer.log_start_offset.0;
    }
    if version >= 8 {
        let errors = answer.record_errors.iter().map(|record| {
            BatchIndexAndErrorMessage::default()
                .with_batch_index(record.batch_index)
                .with_batch_index_error_message(record.message.clone())
        });
        response.record_errors = errors.collect();
        response.error_message = answer.error_message.clone();
    }
    if let (10.., Some(leader)) = (version, answer.current_leader) {
        response.current_leader = LeaderIdAndEpoch::default()
            .with_leader_id(BrokerId(leader.leader_id))
            .with_leader_epoch(leader.leader_epoch.0);
    }
    response
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn every_version_decodes_to_the_same_values(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for version in 3..=13 {
            let answer = any_answer(&mut random);
            let mut frame = encode_produce(version, 77, &answer).expect("fits");
            prop_assert!(frame.len() <= frame_bytes_max(&answer), "one allocation");
            prop_assert_eq!(frame.get_i32() as usize, frame.len());
            prop_assert_eq!(frame.get_i32(), 77);
            if version >= 9 {
                prop_assert_eq!(frame.get_u8(), 0);
            }
            let decoded = ProduceResponse::decode(&mut frame, version).expect("decodes");
            prop_assert!(frame.is_empty());
            prop_assert_eq!(decoded, expected(version, &answer), "version {}", version);
        }
    }

    /// Where no leader is the explicit default, the bytes are the codec's own.
    #[test]
    fn bytes_are_those_of_the_codec(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for version in 3..=13 {
            let mut answer = any_answer(&mut random);
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.current_leader = None;
            }
            let codec = encode_response(Api::Produce, version, -5, &expected(version, &answer));
            prop_assert_eq!(encode_produce(version, -5, &answer), codec);
        }
    }
}

#[test]
fn golden_version_3_and_version_10_with_a_leader() {
    let mut partition =
        ProducePartitionAnswer::failed(PartitionIndex(2), ErrorCode::NotLeaderOrFollower);
    partition.current_leader = Some(CurrentLeader { leader_id: 1, leader_epoch: LeaderEpoch(5) });
    let answer = ProduceAnswer {
        topics: vec![ProduceTopicAnswer {
            name: StrBytes::from_static_str("t"),
            id: TopicId([9; 16]),
            partitions: vec![partition],
        }],
        throttle_time_ms: 0,
        node_endpoints: vec![NodeEndpoint {
            node_id: 1,
            host: StrBytes::from_static_str("h"),
            port: 9092,
            rack: None,
        }],
    };
    assert_eq!(
        encode_produce(3, 1, &answer),
        Ok(Bytes::from_static(
            b"\x00\x00\x00\x29\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\
              \x00\x00\x00\x02\x00\x06\xff\xff\xff\xff\xff\xff\xff\xff\
              \xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00"
        ))
    );
    assert_eq!(
        encode_produce(10, 1, &answer),
        Ok(Bytes::from_static(
            b"\x00\x00\x00\x4a\x00\x00\x00\x01\x00\x02\x02t\x02\
              \x00\x00\x00\x02\x00\x06\xff\xff\xff\xff\xff\xff\xff\xff\
              \xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\
              \x01\x00\x09\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\
              \x00\x00\x00\x00\x01\x00\x0d\x02\x00\x00\x00\x01\x02h\x00\x00\x23\x84\x00\x00"
        ))
    );
}
