//! The hand-written Fetch response against the codec library.

use bytes::Buf;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint as CodecEndpoint, PartitionData,
};
use kafka_protocol::messages::{BrokerId, FetchResponse, ProducerId as CodecProducerId, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::*;
use crate::wire::encode::encode_response;
use crate::wire::tests::{Random, cases};

fn any_answer(random: &mut Random) -> FetchAnswer {
    FetchAnswer {
        throttle_time_ms: random.int32(),
        error: error(random),
        session_id: random.int32(),
        topics: random.list(|random| FetchTopicAnswer {
            name: random.text(),
            id: id(random),
            partitions: random.list(any_partition),
        }),
        node_endpoints: random.list(|random| NodeEndpoint {
            node_id: random.int32(),
            host: random.text(),
            port: random.int32(),
            rack: random.maybe(Random::text),
        }),
    }
}

fn any_partition(random: &mut Random) -> FetchPartitionAnswer {
    FetchPartitionAnswer {
        partition: PartitionIndex(random.int32()),
        error: error(random),
        high_watermark: Offset(random.int64()),
        last_stable_offset: Offset(random.int64()),
        log_start_offset: Offset(random.int64()),
        diverging_epoch: random.maybe(|random| DivergingEpoch {
            epoch: LeaderEpoch(random.int32()),
            end_offset: Offset(random.int64()),
        }),
        current_leader: random.maybe(|random| CurrentLeader {
            leader_id: random.int32(),
            leader_epoch: LeaderEpoch(random.int32()),
        }),
        aborted: random.maybe(|random| {
            random.list(|random| (ProducerId(random.int64()), Offset(random.int64())))
        }),
        records: random.list(|random| random.bytes(90)),
    }
}

fn error(random: &mut Random) -> ErrorCode {
    [
        ErrorCode::None,
        ErrorCode::UnknownServerError,
        ErrorCode::OffsetOutOfRange,
        ErrorCode::NotLeaderOrFollower,
    ][random.below(4)]
}

fn id(random: &mut Random) -> TopicId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.next().to_be_bytes());
    bytes[8..].copy_from_slice(&random.next().to_be_bytes());
    TopicId(bytes)
}

/// The same answer as the codec would hold it, limited to what `version` can say.
fn expected(version: i16, answer: &FetchAnswer) -> FetchResponse {
    let mut response = FetchResponse::default()
        .with_throttle_time_ms(answer.throttle_time_ms)
        .with_responses(answer.topics.iter().map(|t| topic(version, t)).collect());
    if version >= 7 {
        response.error_code = answer.error.code();
        response.session_id = answer.session_id;
    }
    if version >= 16 {
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

fn topic(version: i16, answer: &FetchTopicAnswer) -> FetchableTopicResponse {
    let partitions = answer.partitions.iter();
    let topic = FetchableTopicResponse::default()
        .with_partitions(partitions.map(|p| partition(version, p)).collect());
    if version >= 13 {
        topic.with_topic_id(answer.id.into())
    } else {
        topic.with_topic(TopicName(answer.name.clone()))
    }
}

fn partition(version: i16, answer: &FetchPartitionAnswer) -> PartitionData {
    let aborted = answer.aborted.as_ref().map(|aborted| {
        let entries = aborted.iter().map(|(producer, offset)| {
            AbortedTransaction::default()
                .with_producer_id(CodecProducerId(producer.0))
                .with_first_offset(offset.0)
        });
        entries.collect()
    });
    let mut data = PartitionData::default()
        .with_partition_index(answer.partition.0)
        .with_error_code(answer.error.code())
        .with_high_watermark(answer.high_watermark.0)
        .with_last_stable_offset(answer.last_stable_offset.0)
        .with_aborted_transactions(aborted)
        .with_records(Some(answer.records.concat().into()));
    if version >= 5 {
        data.log_start_offset = answer.log_start_offset.0;
    }
    if version >= 12 {
        if let Some(diverging) = answer.diverging_epoch {
            data.diverging_epoch = EpochEndOffset::default()
                .with_epoch(diverging.epoch.0)
                .with_end_offset(diverging.end_offset.0);
        }
        if let Some(leader) = answer.current_leader {
            data.current_leader = LeaderIdAndEpoch::default()
                .with_leader_id(BrokerId(leader.leader_id))
                .with_leader_epoch(leader.leader_epoch.0);
        }
    }
    data
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn every_version_decodes_to_the_same_values(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for version in 4..=18 {
            let answer = any_answer(&mut random);
            let expected = expected(version, &answer);
            let bound = head_bytes_max(&answer);
            let slices = encode_fetch(version, 77, answer.clone()).expect("fits");
            let mut frame = Bytes::from(slices.concat());
            let records: usize =
                answer.topics.iter().flat_map(|t| &t.partitions).map(|p| p.records_bytes()).sum();
            prop_assert!(frame.len() - records <= bound, "head fits its allocation");
            prop_assert_eq!(frame.get_i32() as usize, frame.len());
            prop_assert_eq!(frame.get_i32(), 77);
            if version >= 12 {
                prop_assert_eq!(frame.get_u8(), 0);
            }
            let decoded = FetchResponse::decode(&mut frame, version).expect("decodes");
            prop_assert!(frame.is_empty());
            prop_assert_eq!(decoded, expected, "version {}", version);
        }
    }

    /// Where no tagged field holds an explicit default, the bytes are the codec's own.
    #[test]
    fn bytes_are_those_of_the_codec(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for version in 4..=18 {
            let mut answer = any_answer(&mut random);
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.diverging_epoch = None;
                partition.current_leader = None;
            }
            let expected = expected(version, &answer);
            let slices = encode_fetch(version, -5, answer).expect("fits");
            let frame = encode_response(Api::Fetch, version, -5, &expected).expect("fits");
            prop_assert_eq!(Bytes::from(slices.concat()), frame);
        }
    }
}

#[test]
fn records_are_not_copied_and_empty_slices_are_left_out() {
    let records = [Bytes::from_static(b"batch one"), Bytes::from_static(b"two")];
    let mut partition = FetchPartitionAnswer::failed(PartitionIndex(0), ErrorCode::None);
    partition.records = vec![records[0].clone(), Bytes::new(), records[1].clone()];
    let answer = FetchAnswer {
        throttle_time_ms: 0,
        error: ErrorCode::None,
        session_id: 0,
        topics: vec![FetchTopicAnswer {
            name: StrBytes::from_static_str("t"),
            id: TopicId([7; 16]),
            partitions: vec![
                FetchPartitionAnswer::failed(PartitionIndex(1), ErrorCode::OffsetOutOfRange),
                partition,
            ],
        }],
        node_endpoints: Vec::new(),
    };
    let slices = encode_fetch(12, 1, answer.clone()).expect("fits");
    assert_eq!(slices.len(), 4);
    assert_eq!(slices[1].as_ptr(), records[0].as_ptr());
    assert_eq!(slices[2].as_ptr(), records[1].as_ptr());
    let total: usize = slices.iter().map(Bytes::len).sum();
    assert_eq!(slices[0][..4], (total as i32 - 4).to_be_bytes());
    // Up to v11 nothing follows the last records.
    let slices = encode_fetch(11, 1, answer).expect("fits");
    assert_eq!(slices.len(), 3);
}

#[test]
fn records_over_what_a_length_can_say_are_refused() {
    let slice = Bytes::from(vec![0; 64 * 1024 * 1024]);
    let mut partition = FetchPartitionAnswer::failed(PartitionIndex(0), ErrorCode::None);
    partition.records = vec![slice; 17];
    let answer = |partitions| FetchAnswer {
        throttle_time_ms: 0,
        error: ErrorCode::None,
        session_id: 0,
        topics: vec![FetchTopicAnswer { name: StrBytes::default(), id: TopicId::ZERO, partitions }],
        node_endpoints: Vec::new(),
    };
    assert!(encode_fetch(18, 1, answer(vec![partition.clone()])).is_ok());
    let twice = vec![partition.clone(), partition];
    assert_eq!(encode_fetch(18, 1, answer(twice)), Err(EncodeFault::TooLarge));
}

#[test]
fn the_codec_is_really_compared() {
    // Guards the tests above against comparing defaults with defaults.
    let mut random = Random::new(1);
    let answer = std::iter::repeat_with(|| any_answer(&mut random))
        .find(|answer| !answer.topics.is_empty())
        .expect("some answer has topics");
    let response = expected(18, &answer);
    assert_ne!(response, FetchResponse::default());
    assert!(response.compute_size(18).expect("size") > 30);
}
