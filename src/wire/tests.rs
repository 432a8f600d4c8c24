//! The shape check against the codec library: what the codec encodes is accepted and consumed to
//! the last byte in every version; what is mutated never panics or aborts, in check or decode.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Request as RequestType, StrBytes,
};
use proptest::prelude::*;

use super::decode::{DecodeFault, Request, decode};
use super::encode::encode_response;
use super::primitive::{put_count, put_text};
use super::shape::{Reason, check};
use super::shapes::shape_of;
use super::txn_markers::WriteTxnMarkersRequest as WriteTxnMarkers;
use super::versions::{Api, SERVED};

mod requests;

/// A small generator for structures that are tedious as strategies; the seed comes from proptest.
pub(super) struct Random {
    state: u64,
    /// Unknown tags that may still go into the request being made.
    tags_left: usize,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed, tags_left: 0 }
    }

    /// SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn chance(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(super) fn int64(&mut self) -> i64 {
        // Edges and small numbers as often as any.
        match self.below(4) {
            0 => [0, -1, i64::MAX, i64::MIN][self.below(4)],
            1 => self.below(1000) as i64,
            _ => self.next() as i64,
        }
    }

    pub(super) fn int32(&mut self) -> i32 {
        self.int64() as i32
    }

    pub(super) fn text(&mut self) -> StrBytes {
        // Around 127 the compact length grows to two bytes.
        let length = match self.below(5) {
            0 => 0,
            1 => 120 + self.below(20),
            _ => self.below(12),
        };
        let letters = ["a", "Z", "-", "é", "語"];
        StrBytes::from_string((0..length).map(|_| letters[self.below(5)]).collect())
    }

    pub(super) fn bytes(&mut self, below: usize) -> Bytes {
        let length = self.below(below);
        (0..length).map(|_| self.next() as u8).collect()
    }

    pub(super) fn maybe<T>(&mut self, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
        self.chance().then(|| make(self))
    }

    pub(super) fn list<T>(&mut self, mut make: impl FnMut(&mut Random) -> T) -> Vec<T> {
        // Past 127 elements the compact count grows to two bytes.
        let length = match self.below(16) {
            0 => 127 + self.below(3),
            _ => self.below(4),
        };
        (0..length).map(|_| make(self)).collect()
    }
}

/// So many cases; a failing seed is printed and belongs in a test, not in a file beside the crate.
pub(super) fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count) }
}

/// Every served API and version.
fn served() -> impl Iterator<Item = (Api, i16)> {
    SERVED.iter().flat_map(|row| (row.min..=row.max).map(|version| (row.api, version)))
}

fn encoded(request: &Request, version: i16) -> Bytes {
    fn of<T: Encodable>(request: &T, version: i16) -> Bytes {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).expect("encodes");
        body.freeze()
    }
    match request {
        Request::Produce(request) => of(request, version),
        Request::Fetch(request) => of(&**request, version),
        Request::ListOffsets(request) => of(request, version.min(10)),
        Request::Metadata(request) => of(request, version),
        Request::OffsetCommit(request) if version >= 10 => requests::offset_commit_10(request),
        Request::OffsetCommit(request) => of(request, version),
        Request::OffsetFetch(request) if version >= 10 => requests::offset_fetch_10(request),
        Request::OffsetFetch(request) => of(request, version),
        Request::FindCoordinator(request) => of(request, version),
        Request::JoinGroup(request) => of(&**request, version),
        Request::Heartbeat(request) => of(request, version),
        Request::LeaveGroup(request) => of(request, version),
        Request::SyncGroup(request) => of(&**request, version),
        Request::DescribeGroups(request) => of(request, version),
        Request::ListGroups(request) => of(request, version),
        Request::DeleteGroups(request) => of(request, version),
        Request::ConsumerGroupHeartbeat(request) => of(&**request, version),
        Request::ConsumerGroupDescribe(request) => of(request, version),
        Request::ApiVersions(request) => of(request, version),
        Request::CreateTopics(request) => of(request, version),
        Request::DeleteTopics(request) => of(request, version),
        Request::DeleteRecords(request) => of(request, version),
        Request::InitProducerId(request) => of(request, version),
        Request::OffsetForLeaderEpoch(request) => of(request, version),
        Request::AddPartitionsToTxn(request) => of(request, version),
        Request::AddOffsetsToTxn(request) => of(request, version),
        Request::EndTxn(request) => of(request, version),
        Request::WriteTxnMarkers(request) => txn_markers(request, version),
        Request::TxnOffsetCommit(request) => of(&**request, version),
        Request::DescribeAcls(request) => of(request, version),
        Request::CreateAcls(request) => of(request, version),
        Request::DeleteAcls(request) => of(request, version),
        Request::DescribeConfigs(request) => of(request, version),
        Request::AlterConfigs(request) => of(request, version),
        Request::AlterReplicaLogDirs(request) => of(request, version),
        Request::DescribeLogDirs(request) => of(request, version.min(4)),
        Request::CreatePartitions(request) => of(request, version),
        Request::CreateDelegationToken(request) => of(request, version),
        Request::RenewDelegationToken(request) => of(request, version),
        Request::ExpireDelegationToken(request) => of(request, version),
        Request::DescribeDelegationToken(request) => of(request, version),
        Request::ElectLeaders(request) => of(request, version),
        Request::IncrementalAlterConfigs(request) => of(request, version),
        Request::AlterPartitionReassignments(request) => of(request, version),
        Request::ListPartitionReassignments(request) => of(request, version),
        Request::OffsetDelete(request) => of(request, version),
        Request::DescribeClientQuotas(request) => of(request, version),
        Request::AlterClientQuotas(request) => of(request, version),
        Request::DescribeUserScramCredentials(request) => of(request, version),
        Request::AlterUserScramCredentials(request) => of(request, version),
        Request::DescribeQuorum(request) => of(request, version),
        Request::UpdateFeatures(request) => of(request, version),
        Request::DescribeCluster(request) => of(request, version),
        Request::DescribeProducers(request) => of(request, version),
        Request::UnregisterBroker(request) => of(request, version),
        Request::DescribeTransactions(request) => of(request, version),
        Request::ListTransactions(request) => of(request, version),
        Request::ListConfigResources(request) => of(request, version),
        Request::DescribeTopicPartitions(request) => of(request, version),
    }
}

/// What the codec library writes only in version 1.
fn txn_markers(request: &WriteTxnMarkers, version: i16) -> Bytes {
    let count = |out: &mut Vec<u8>, count: usize| put_count(out, count, true).expect("it fits");
    let mut out = Vec::new();
    count(&mut out, request.markers.len());
    for marker in &request.markers {
        out.extend_from_slice(&marker.producer_id.to_be_bytes());
        out.extend_from_slice(&marker.producer_epoch.to_be_bytes());
        out.push(u8::from(marker.committed));
        count(&mut out, marker.topics.len());
        for topic in &marker.topics {
            put_text(&mut out, &topic.name, true).expect("it fits");
            count(&mut out, topic.partitions.len());
            for partition in &topic.partitions {
                out.extend_from_slice(&partition.to_be_bytes());
            }
            out.push(0);
        }
        out.extend_from_slice(&marker.coordinator_epoch.to_be_bytes());
        if version >= 2 {
            out.extend_from_slice(&marker.transaction_version.to_be_bytes());
        }
        out.push(0);
    }
    out.push(0);
    Bytes::from(out)
}

fn mutated(body: &Bytes, random: &mut Random) -> Bytes {
    let mut body = body.to_vec();
    for _ in 0..=random.below(3) {
        let place = random.below(body.len() + 1);
        let hostile: &[u8] = [
            b"\xff\xff\xff\xff\x0f".as_slice(),
            b"\x7f\xff\xff\xff",
            b"\xff\xff\xff\xff",
            b"\x80\x80\x80\x80\x08",
            b"\x00",
            b"\x80",
            b"\x7f\xff",
        ][random.below(7)];
        match random.below(5) {
            0 => body.truncate(place),
            1 => drop(body.splice(place..place, hostile.iter().copied())),
            2 => {
                let end = (place + hostile.len()).min(body.len());
                drop(body.splice(place..end, hostile.iter().copied()));
            }
            3 => body.push(random.next() as u8),
            _ => {
                if let Some(byte) = body.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    Bytes::from(body)
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn what_the_codec_encodes_is_accepted_and_decoded_back(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for (api, version) in served() {
            let request = requests::any_request(api, version, &mut random);
            let body = encoded(&request, version);
            prop_assert_eq!(check(shape_of(api), version, &body), Ok(()), "{:?} {}", api, version);
            let back = decode(api, version, body.clone()).expect("decodes");
            prop_assert_eq!(back, request, "{:?} {}", api, version);
            // One byte less or more is never a whole body.
            let longer = [&body[..], &[0]].concat();
            prop_assert!(check(shape_of(api), version, &longer).is_err());
            if !body.is_empty() {
                prop_assert!(check(shape_of(api), version, &body[..body.len() - 1]).is_err());
            }
        }
    }

    #[test]
    fn mutated_bodies_never_abort_and_the_codec_ends_where_the_check_does(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for (api, version) in served() {
            let request = requests::any_request(api, version, &mut random);
            let body = mutated(&encoded(&request, version), &mut random);
            let undecoded = matches!(decode(api, version, body), Err(DecodeFault::Undecoded(_)));
            prop_assert!(!undecoded, "{:?} {}", api, version);
            // The same from the header on, which may then name another API or version.
            let mut frame = Vec::new();
            frame.extend_from_slice(&api.key().to_be_bytes());
            frame.extend_from_slice(&version.to_be_bytes());
            frame.extend_from_slice(b"\0\0\0\x07\0\x02me");
            if api.is_flexible(version) {
                frame.push(0);
            }
            frame.extend_from_slice(&encoded(&request, version));
            let frame = mutated(&Bytes::from(frame), &mut random);
            if let Ok((header, body)) = super::header::parse(frame) {
                let decoded = decode(header.api, header.api_version, body);
                prop_assert!(!matches!(decoded, Err(DecodeFault::Undecoded(_))));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_abort(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let body = Bytes::from(body);
        for (api, version) in served() {
            let _ = decode(api, version, body.clone());
        }
    }
}

/// One row of the table of versions against the codec, and the default response through it.
fn compare<R: RequestType>(api: Api)
where
    R::Response: Default + PartialEq + std::fmt::Debug,
{
    let row = api.row();
    assert_eq!(R::KEY, api.key());
    // The library has the responses of these two with topic ids, but not the requests.
    let ids_here = matches!(api, Api::OffsetCommit | Api::OffsetFetch);
    let requests_max = row.codec_max - i16::from(ids_here);
    assert_eq!((R::VERSIONS.min, R::VERSIONS.max), (row.min, requests_max));
    for version in row.min..=row.max {
        let flexible = i16::from(api.is_flexible(version));
        let response_header = i16::from(api.has_flexible_response_header(version));
        assert_eq!(R::header_version(version), 1 + flexible, "{api:?} {version}");
        assert_eq!(R::Response::header_version(version), response_header);
        let response = R::Response::default();
        let mut frame = encode_response(api, version, -9, &response).expect("encodes");
        assert_eq!(frame.get_i32() as usize, frame.len());
        assert_eq!(frame.get_i32(), -9);
        if response_header == 1 {
            assert_eq!(frame.get_u8(), 0);
        }
        let codec_version = api.codec_version(version);
        let back = R::Response::decode(&mut frame, codec_version).expect("decodes");
        assert!(frame.is_empty());
        assert_eq!(back, response, "{api:?} {version}");
    }
}

#[test]
fn headers_and_ranges_agree_with_the_codec() {
    for row in SERVED {
        match row.api {
            Api::Produce => compare::<ProduceRequest>(row.api),
            Api::Fetch => compare::<FetchRequest>(row.api),
            Api::ListOffsets => compare::<ListOffsetsRequest>(row.api),
            Api::Metadata => compare::<MetadataRequest>(row.api),
            Api::OffsetCommit => compare::<OffsetCommitRequest>(row.api),
            Api::OffsetFetch => compare::<OffsetFetchRequest>(row.api),
            Api::FindCoordinator => compare::<FindCoordinatorRequest>(row.api),
            Api::JoinGroup => compare::<JoinGroupRequest>(row.api),
            Api::Heartbeat => compare::<HeartbeatRequest>(row.api),
            Api::LeaveGroup => compare::<LeaveGroupRequest>(row.api),
            Api::SyncGroup => compare::<SyncGroupRequest>(row.api),
            Api::DescribeGroups => compare::<DescribeGroupsRequest>(row.api),
            Api::ListGroups => compare::<ListGroupsRequest>(row.api),
            Api::DeleteGroups => compare::<DeleteGroupsRequest>(row.api),
            Api::ConsumerGroupHeartbeat => compare::<ConsumerGroupHeartbeatRequest>(row.api),
            Api::ConsumerGroupDescribe => compare::<ConsumerGroupDescribeRequest>(row.api),
            Api::ApiVersions => compare::<ApiVersionsRequest>(row.api),
            Api::CreateTopics => compare::<CreateTopicsRequest>(row.api),
            Api::DeleteTopics => compare::<DeleteTopicsRequest>(row.api),
            Api::DeleteRecords => compare::<DeleteRecordsRequest>(row.api),
            Api::InitProducerId => compare::<InitProducerIdRequest>(row.api),
            Api::OffsetForLeaderEpoch => compare::<OffsetForLeaderEpochRequest>(row.api),
            Api::AddPartitionsToTxn => compare::<AddPartitionsToTxnRequest>(row.api),
            Api::AddOffsetsToTxn => compare::<AddOffsetsToTxnRequest>(row.api),
            Api::EndTxn => compare::<EndTxnRequest>(row.api),
            Api::WriteTxnMarkers => compare::<WriteTxnMarkersRequest>(row.api),
            Api::TxnOffsetCommit => compare::<TxnOffsetCommitRequest>(row.api),
            Api::DescribeAcls => compare::<DescribeAclsRequest>(row.api),
            Api::CreateAcls => compare::<CreateAclsRequest>(row.api),
            Api::DeleteAcls => compare::<DeleteAclsRequest>(row.api),
            Api::DescribeConfigs => compare::<DescribeConfigsRequest>(row.api),
            Api::AlterConfigs => compare::<AlterConfigsRequest>(row.api),
            Api::AlterReplicaLogDirs => compare::<AlterReplicaLogDirsRequest>(row.api),
            Api::DescribeLogDirs => compare::<DescribeLogDirsRequest>(row.api),
            Api::CreatePartitions => compare::<CreatePartitionsRequest>(row.api),
            Api::CreateDelegationToken => compare::<CreateDelegationTokenRequest>(row.api),
            Api::RenewDelegationToken => compare::<RenewDelegationTokenRequest>(row.api),
            Api::ExpireDelegationToken => compare::<ExpireDelegationTokenRequest>(row.api),
            Api::DescribeDelegationToken => compare::<DescribeDelegationTokenRequest>(row.api),
            Api::ElectLeaders => compare::<ElectLeadersRequest>(row.api),
            Api::IncrementalAlterConfigs => compare::<IncrementalAlterConfigsRequest>(row.api),
            Api::AlterPartitionReassignments => {
                compare::<AlterPartitionReassignmentsRequest>(row.api)
            }
            Api::ListPartitionReassignments => {
                compare::<ListPartitionReassignmentsRequest>(row.api)
            }
            Api::OffsetDelete => compare::<OffsetDeleteRequest>(row.api),
            Api::DescribeClientQuotas => compare::<DescribeClientQuotasRequest>(row.api),
            Api::AlterClientQuotas => compare::<AlterClientQuotasRequest>(row.api),
            Api::DescribeUserScramCredentials => {
                compare::<DescribeUserScramCredentialsRequest>(row.api)
            }
            Api::AlterUserScramCredentials => compare::<AlterUserScramCredentialsRequest>(row.api),
            Api::DescribeQuorum => compare::<DescribeQuorumRequest>(row.api),
            Api::UpdateFeatures => compare::<UpdateFeaturesRequest>(row.api),
            Api::DescribeCluster => compare::<DescribeClusterRequest>(row.api),
            Api::DescribeProducers => compare::<DescribeProducersRequest>(row.api),
            Api::UnregisterBroker => compare::<UnregisterBrokerRequest>(row.api),
            Api::DescribeTransactions => compare::<DescribeTransactionsRequest>(row.api),
            Api::ListTransactions => compare::<ListTransactionsRequest>(row.api),
            Api::ListConfigResources => compare::<ListConfigResourcesRequest>(row.api),
            Api::DescribeTopicPartitions => compare::<DescribeTopicPartitionsRequest>(row.api),
        }
    }
}

#[test]
fn decoded_elements_are_as_small_as_the_cap_on_their_number_assumes() {
    let sizes = [
        size_of::<TopicProduceData>(),
        size_of::<PartitionProduceData>(),
        size_of::<FetchTopic>(),
        size_of::<FetchPartition>(),
        size_of::<MetadataRequestTopic>(),
        size_of::<CreatableTopic>(),
        size_of::<DescribeConfigsResource>(),
        size_of::<AddPartitionsToTxnTransaction>(),
        size_of::<offset_commit_request::OffsetCommitRequestTopic>(),
        size_of::<offset_commit_request::OffsetCommitRequestPartition>(),
        size_of::<offset_fetch_request::OffsetFetchRequestTopics>(),
        size_of::<txn_offset_commit_request::TxnOffsetCommitRequestPartition>(),
    ];
    assert!(sizes.iter().all(|&size| size <= 112), "{sizes:?}");
    // Half as many of these may come.
    let sizes = [
        size_of::<create_acls_request::AclCreation>(),
        size_of::<delete_acls_request::DeleteAclsFilter>(),
        size_of::<alter_user_scram_credentials_request::ScramCredentialUpsertion>(),
    ];
    assert!(sizes.iter().all(|&size| size <= 144), "{sizes:?}");
}

#[test]
fn records_are_slices_of_the_frame() {
    let body = Bytes::from_static(
        b"\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01t\
          \x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03xyz",
    );
    let Ok(Request::Produce(request)) = decode(Api::Produce, 3, body.clone()) else {
        panic!("not decoded");
    };
    let records = request.topic_data[0].partition_data[0].records.as_ref();
    let records = records.expect("records");
    assert_eq!(&records[..], b"xyz");
    assert_eq!(records.as_ptr(), body[body.len() - 3..].as_ptr());
}

#[test]
fn hostile_bodies_have_their_reason() {
    use Reason::*;
    let rows: &[(Api, i16, &[u8], Reason, usize)] = &[
        // Each of these three made the codec alone abort the process.
        (Api::Metadata, 12, b"\xff\xff\xff\xff\x0f", CountBeyondBytes, 5),
        (
            Api::Produce,
            9,
            b"\x00\xff\xff\x00\x00\x00\x01\xff\xff\xff\xff\x0f",
            CountBeyondBytes,
            12,
        ),
        (Api::Metadata, 1, b"\x7f\xff\xff\xff", CountBeyondBytes, 4),
        (Api::Metadata, 1, b"\xff\xff\xff\xfe", NegativeLength, 4),
        (Api::Metadata, 0, b"\xff\xff\xff\xff", UnexpectedNull, 4),
        (Api::Metadata, 1, b"", Truncated, 0),
        (Api::Metadata, 1, b"\0\0\0\x01\x00\x02a", Truncated, 6),
        (Api::Metadata, 1, b"\0\0\0\x01\xff\xff", UnexpectedNull, 6),
        (Api::Metadata, 1, b"\0\0\0\x01\xff\xfe", NegativeLength, 6),
        (Api::Metadata, 1, b"\xff\xff\xff\xff\x00", Trailing, 4),
        (Api::Metadata, 12, b"\xff\xff\xff\xff\x1f", BadVariableLength, 0),
        (Api::Metadata, 12, b"\x80\x80", Truncated, 0),
        // allow-auto-create, authorized operations, then the tags of the body.
        (Api::Metadata, 12, b"\x00\x00\x00\x02\x05\x00\x05\x00", TagOrder, 7),
        (Api::Metadata, 12, b"\x00\x00\x00\x01\x05\x03ab", Truncated, 6),
        (Api::Metadata, 12, b"\x00\x00\x00\xff\xff\xff\xff\x0f", Truncated, 8),
        (Api::Produce, 3, b"\xff\xfe", NegativeLength, 2),
        (Api::InitProducerId, 2, b"\x81\x80\x02", TextTooLong, 3),
        (
            Api::Produce,
            3,
            b"\xff\xff\0\0\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff",
            Truncated,
            27,
        ),
    ];
    for (api, version, body, reason, position) in rows {
        let fault = check(shape_of(*api), *version, body).expect_err("refused");
        assert_eq!(
            (fault.reason, fault.position),
            (*reason, *position),
            "{api:?} {version} {body:02x?}"
        );
        assert!(decode(*api, *version, Bytes::copy_from_slice(body)).is_err());
    }
}

#[test]
fn known_tags_must_fit_their_size_and_version() {
    let fetch = |version: i16, tags: &[u8]| {
        // replica id (up to 14), wait, sizes, isolation, session, no topics, none forgotten, rack.
        let mut body = vec![0; if version <= 14 { 4 } else { 0 }];
        body.extend_from_slice(&[0; 21]);
        body.extend_from_slice(b"\x01\x01\x01");
        body.extend_from_slice(tags);
        check(shape_of(Api::Fetch), version, &body).map_err(|fault| fault.reason)
    };
    assert_eq!(fetch(12, b"\x00"), Ok(()));
    assert_eq!(fetch(12, b"\x01\x00\x03\x03ab"), Ok(()));
    assert_eq!(fetch(12, b"\x01\x00\x01\x00"), Ok(()), "null cluster id");
    // The codec would read past a size that is too small and lose step with one too large.
    assert_eq!(fetch(12, b"\x01\x00\x02\x03ab"), Err(Reason::TagSize));
    assert_eq!(fetch(12, b"\x01\x00\x04\x03abc"), Err(Reason::TagSize));
    let state = b"\x01\x01\x0d\0\0\0\x01\0\0\0\0\0\0\0\x02\0";
    assert_eq!(fetch(15, state), Ok(()));
    assert_eq!(fetch(14, state), Err(Reason::TagVersion));
    assert_eq!(fetch(12, b"\x02\x00\x01\x00\x00\x01\x00"), Err(Reason::TagOrder));
}

#[test]
fn caps_hold_over_all_arrays_and_structures() {
    use crate::limits::{REQUEST_ELEMENTS_MAX, REQUEST_UNKNOWN_TAGS_MAX};
    let names = |count: usize| {
        let mut body = (count as i32).to_be_bytes().to_vec();
        body.extend(std::iter::repeat_n(0, 2 * count));
        check(shape_of(Api::Metadata), 1, &body).map_err(|fault| fault.reason)
    };
    assert_eq!(names(REQUEST_ELEMENTS_MAX), Ok(()));
    assert_eq!(names(REQUEST_ELEMENTS_MAX + 1), Err(Reason::TooManyElements));
    let tags = |count: usize| {
        let mut body = Vec::new();
        super::primitive::put_count(&mut body, count, true).expect("fits");
        for _ in 0..count {
            // Topic id, null name, one unknown tag.
            body.extend_from_slice(&[0; 17]);
            body.extend_from_slice(b"\x01\x63\x00");
        }
        body.extend_from_slice(b"\x00\x00\x00");
        check(shape_of(Api::Metadata), 12, &body).map_err(|fault| fault.reason)
    };
    assert_eq!(tags(REQUEST_UNKNOWN_TAGS_MAX), Ok(()));
    assert_eq!(tags(REQUEST_UNKNOWN_TAGS_MAX + 1), Err(Reason::TooManyTags));
}

#[test]
fn a_version_that_is_not_served_is_not_decoded() {
    let fault = decode(Api::Produce, 2, Bytes::new()).expect_err("refused");
    assert!(matches!(fault, DecodeFault::Version { api: Api::Produce, version: 2 }));
}

#[test]
fn text_that_is_not_utf_8_is_refused_by_the_codec() {
    let body = Bytes::from_static(b"\0\0\0\x01\0\x01\xff");
    assert_eq!(check(shape_of(Api::Metadata), 1, &body), Ok(()));
    assert!(matches!(decode(Api::Metadata, 1, body), Err(DecodeFault::Codec(_))));
}
