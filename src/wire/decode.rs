//! Request bodies to typed requests: the shape check, then the codec library.
//!
//! Owns the order of the two: nothing reaches the codec unchecked. Must never copy record bytes:
//! the records of a Produce request are slices of the frame. A fault closes the connection.

use bytes::Bytes;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AlterClientQuotasRequest,
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest,
    AlterUserScramCredentialsRequest, ApiVersionsRequest, ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest, CreateAclsRequest, CreateDelegationTokenRequest,
    CreatePartitionsRequest, CreateTopicsRequest, DeleteAclsRequest, DeleteGroupsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeAclsRequest, DescribeClientQuotasRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeDelegationTokenRequest,
    DescribeGroupsRequest, DescribeLogDirsRequest, DescribeProducersRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest, ElectLeadersRequest, EndTxnRequest,
    ExpireDelegationTokenRequest, FetchRequest, FindCoordinatorRequest, HeartbeatRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
    ListConfigResourcesRequest, ListGroupsRequest, ListOffsetsRequest,
    ListPartitionReassignmentsRequest, ListTransactionsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, RenewDelegationTokenRequest, SyncGroupRequest, TxnOffsetCommitRequest,
    UnregisterBrokerRequest, UpdateFeaturesRequest,
};
use kafka_protocol::protocol::Decodable;

use super::offsets;
use super::shape::{self, ShapeFault};
use super::shapes::shape_of;
use super::txn_markers::{self, WriteTxnMarkersRequest};
use super::versions::Api;

/// A decoded request.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub enum Request {
    Produce(ProduceRequest),
    Fetch(Box<FetchRequest>),
    ListOffsets(ListOffsetsRequest),
    Metadata(MetadataRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetFetch(OffsetFetchRequest),
    FindCoordinator(FindCoordinatorRequest),
    JoinGroup(Box<JoinGroupRequest>),
    Heartbeat(HeartbeatRequest),
    LeaveGroup(LeaveGroupRequest),
    SyncGroup(Box<SyncGroupRequest>),
    DescribeGroups(DescribeGroupsRequest),
    ListGroups(ListGroupsRequest),
    ApiVersions(ApiVersionsRequest),
    CreateTopics(CreateTopicsRequest),
    DeleteTopics(DeleteTopicsRequest),
    DeleteRecords(DeleteRecordsRequest),
    InitProducerId(InitProducerIdRequest),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    AddPartitionsToTxn(AddPartitionsToTxnRequest),
    AddOffsetsToTxn(AddOffsetsToTxnRequest),
    EndTxn(EndTxnRequest),
    WriteTxnMarkers(WriteTxnMarkersRequest),
    TxnOffsetCommit(Box<TxnOffsetCommitRequest>),
    DescribeAcls(DescribeAclsRequest),
    CreateAcls(CreateAclsRequest),
    DeleteAcls(DeleteAclsRequest),
    DescribeConfigs(DescribeConfigsRequest),
    AlterConfigs(AlterConfigsRequest),
    AlterReplicaLogDirs(AlterReplicaLogDirsRequest),
    DescribeLogDirs(DescribeLogDirsRequest),
    CreatePartitions(CreatePartitionsRequest),
    CreateDelegationToken(CreateDelegationTokenRequest),
    RenewDelegationToken(RenewDelegationTokenRequest),
    ExpireDelegationToken(ExpireDelegationTokenRequest),
    DescribeDelegationToken(DescribeDelegationTokenRequest),
    DeleteGroups(DeleteGroupsRequest),
    ConsumerGroupHeartbeat(Box<ConsumerGroupHeartbeatRequest>),
    ConsumerGroupDescribe(ConsumerGroupDescribeRequest),
    ElectLeaders(ElectLeadersRequest),
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest),
    AlterPartitionReassignments(AlterPartitionReassignmentsRequest),
    ListPartitionReassignments(ListPartitionReassignmentsRequest),
    OffsetDelete(OffsetDeleteRequest),
    DescribeClientQuotas(DescribeClientQuotasRequest),
    AlterClientQuotas(AlterClientQuotasRequest),
    DescribeUserScramCredentials(DescribeUserScramCredentialsRequest),
    AlterUserScramCredentials(AlterUserScramCredentialsRequest),
    DescribeQuorum(DescribeQuorumRequest),
    UpdateFeatures(UpdateFeaturesRequest),
    DescribeCluster(DescribeClusterRequest),
    DescribeProducers(DescribeProducersRequest),
    UnregisterBroker(UnregisterBrokerRequest),
    DescribeTransactions(DescribeTransactionsRequest),
    ListTransactions(ListTransactionsRequest),
    ListConfigResources(ListConfigResourcesRequest),
    DescribeTopicPartitions(DescribeTopicPartitionsRequest),
}

/// Why a body is not a request.
#[derive(Debug, thiserror::Error)]
pub enum DecodeFault {
    /// The version is not served; the header check lets none of these through.
    #[error("version {version} of {api:?} is not served")]
    Version {
        /// The API.
        api: Api,
        /// The version.
        version: i16,
    },
    /// The body does not fit its description.
    #[error(transparent)]
    Shape(#[from] ShapeFault),
    /// The codec refused what the shape check let pass, such as text that is not UTF-8.
    #[error("malformed request body: {0}")]
    Codec(String),
    /// The codec and the shape check disagree on where the body ends: a bug of one of them.
    #[error("{0} bytes of the body were left undecoded")]
    Undecoded(usize),
}

/// Checks and decodes the body of a served `version` of `api`.
///
/// # Errors
/// See [`DecodeFault`]; all of them close the connection.
pub fn decode(api: Api, version: i16, body: Bytes) -> Result<Request, DecodeFault> {
    let body = Body { api, version, bytes: body };
    Ok(match api {
        Api::Produce => Request::Produce(body.read()?),
        Api::Fetch => Request::Fetch(Box::new(body.read()?)),
        Api::ListOffsets => Request::ListOffsets(body.read()?),
        Api::Metadata => Request::Metadata(body.read()?),
        Api::OffsetCommit if version >= offsets::TOPIC_IDS_SINCE => {
            Request::OffsetCommit(body.read_with(offsets::offset_commit)?)
        }
        Api::OffsetCommit => Request::OffsetCommit(body.read()?),
        Api::OffsetFetch if version >= offsets::TOPIC_IDS_SINCE => {
            Request::OffsetFetch(body.read_with(offsets::offset_fetch)?)
        }
        Api::OffsetFetch => Request::OffsetFetch(body.read()?),
        Api::FindCoordinator => Request::FindCoordinator(body.read()?),
        Api::JoinGroup => Request::JoinGroup(Box::new(body.read()?)),
        Api::Heartbeat => Request::Heartbeat(body.read()?),
        Api::LeaveGroup => Request::LeaveGroup(body.read()?),
        Api::SyncGroup => Request::SyncGroup(Box::new(body.read()?)),
        Api::DescribeGroups => Request::DescribeGroups(body.read()?),
        Api::ListGroups => Request::ListGroups(body.read()?),
        Api::ApiVersions => Request::ApiVersions(body.read()?),
        Api::CreateTopics => Request::CreateTopics(body.read()?),
        Api::DeleteTopics => Request::DeleteTopics(body.read()?),
        Api::DeleteRecords => Request::DeleteRecords(body.read()?),
        Api::InitProducerId => Request::InitProducerId(body.read()?),
        Api::OffsetForLeaderEpoch => Request::OffsetForLeaderEpoch(body.read()?),
        Api::AddPartitionsToTxn => Request::AddPartitionsToTxn(body.read()?),
        Api::AddOffsetsToTxn => Request::AddOffsetsToTxn(body.read()?),
        Api::EndTxn => Request::EndTxn(body.read()?),
        Api::WriteTxnMarkers => Request::WriteTxnMarkers(markers(&body)?),
        Api::TxnOffsetCommit => Request::TxnOffsetCommit(Box::new(body.read()?)),
        Api::DescribeAcls => Request::DescribeAcls(body.read()?),
        Api::CreateAcls => Request::CreateAcls(body.read()?),
        Api::DeleteAcls => Request::DeleteAcls(body.read()?),
        Api::DescribeConfigs => Request::DescribeConfigs(body.read()?),
        Api::AlterConfigs => Request::AlterConfigs(body.read()?),
        Api::AlterReplicaLogDirs => Request::AlterReplicaLogDirs(body.read()?),
        Api::DescribeLogDirs => Request::DescribeLogDirs(body.read()?),
        Api::CreatePartitions => Request::CreatePartitions(body.read()?),
        Api::CreateDelegationToken => Request::CreateDelegationToken(body.read()?),
        Api::RenewDelegationToken => Request::RenewDelegationToken(body.read()?),
        Api::ExpireDelegationToken => Request::ExpireDelegationToken(body.read()?),
        Api::DescribeDelegationToken => Request::DescribeDelegationToken(body.read()?),
        Api::DeleteGroups => Request::DeleteGroups(body.read()?),
        Api::ConsumerGroupHeartbeat => Request::ConsumerGroupHeartbeat(Box::new(body.read()?)),
        Api::ConsumerGroupDescribe => Request::ConsumerGroupDescribe(body.read()?),
        Api::ElectLeaders => Request::ElectLeaders(body.read()?),
        Api::IncrementalAlterConfigs => Request::IncrementalAlterConfigs(body.read()?),
        Api::AlterPartitionReassignments => Request::AlterPartitionReassignments(body.read()?),
        Api::ListPartitionReassignments => Request::ListPartitionReassignments(body.read()?),
        Api::OffsetDelete => Request::OffsetDelete(body.read()?),
        Api::DescribeClientQuotas => Request::DescribeClientQuotas(body.read()?),
        Api::AlterClientQuotas => Request::AlterClientQuotas(body.read()?),
        Api::DescribeUserScramCredentials => Request::DescribeUserScramCredentials(body.read()?),
        Api::AlterUserScramCredentials => Request::AlterUserScramCredentials(body.read()?),
        Api::DescribeQuorum => Request::DescribeQuorum(body.read()?),
        Api::UpdateFeatures => Request::UpdateFeatures(body.read()?),
        Api::DescribeCluster => Request::DescribeCluster(body.read()?),
        Api::DescribeProducers => Request::DescribeProducers(body.read()?),
        Api::UnregisterBroker => Request::UnregisterBroker(body.read()?),
        Api::DescribeTransactions => Request::DescribeTransactions(body.read()?),
        Api::ListTransactions => Request::ListTransactions(body.read()?),
        Api::ListConfigResources => Request::ListConfigResources(body.read()?),
        Api::DescribeTopicPartitions => Request::DescribeTopicPartitions(body.read()?),
    })
}

fn markers(body: &Body) -> Result<WriteTxnMarkersRequest, DecodeFault> {
    check(body.api, body.version, &body.bytes)?;
    txn_markers::decode(body.version, &body.bytes).ok_or_else(not_utf8)
}

fn not_utf8() -> DecodeFault {
    DecodeFault::Codec("a text is not UTF-8".to_owned())
}

/// [`decode`] to the request type the caller knows `api` to have.
///
/// # Errors
/// As [`decode`].
pub fn decode_as<T: Decodable>(api: Api, version: i16, body: Bytes) -> Result<T, DecodeFault> {
    decode_with(api, version, body, |body| T::decode(body, api.codec_version(version)))
}

fn decode_with<T, E: std::fmt::Display>(
    api: Api,
    version: i16,
    mut body: Bytes,
    decode: impl FnOnce(&mut Bytes) -> Result<T, E>,
) -> Result<T, DecodeFault> {
    check(api, version, &body)?;
    let request = decode(&mut body).map_err(|error| DecodeFault::Codec(error.to_string()))?;
    if body.is_empty() { Ok(request) } else { Err(DecodeFault::Undecoded(body.len())) }
}

/// A body and what it is the body of.
struct Body {
    api: Api,
    version: i16,
    bytes: Bytes,
}

impl Body {
    fn read<T: Decodable>(self) -> Result<T, DecodeFault> {
        decode_as(self.api, self.version, self.bytes)
    }

    fn read_with<T, E: std::fmt::Display>(
        self,
        decode: impl FnOnce(&mut Bytes) -> Result<T, E>,
    ) -> Result<T, DecodeFault> {
        decode_with(self.api, self.version, self.bytes, decode)
    }
}

fn check(api: Api, version: i16, body: &Bytes) -> Result<(), DecodeFault> {
    if !api.serves(version) {
        return Err(DecodeFault::Version { api, version });
    }
    Ok(shape::check(shape_of(api), version, body)?)
}
