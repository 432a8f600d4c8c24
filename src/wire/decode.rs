//! Request bodies to typed requests: the shape check, then the codec library.
//!
//! Owns the order of the two: nothing reaches the codec unchecked. Must never copy record bytes:
//! the records of a Produce request are slices of the frame. A fault closes the connection.

use bytes::Bytes;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AlterClientQuotasRequest,
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest,
    AlterUserScramCredentialsRequest, ApiVersionsRequest, CreateAclsRequest,
    CreateDelegationTokenRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteAclsRequest,
    DeleteTopicsRequest, DescribeAclsRequest, DescribeClientQuotasRequest, DescribeClusterRequest,
    DescribeConfigsRequest, DescribeDelegationTokenRequest, DescribeLogDirsRequest,
    DescribeProducersRequest, DescribeQuorumRequest, DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest, DescribeUserScramCredentialsRequest, ElectLeadersRequest,
    EndTxnRequest, ExpireDelegationTokenRequest, FetchRequest, FindCoordinatorRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, ListConfigResourcesRequest,
    ListOffsetsRequest, ListPartitionReassignmentsRequest, ListTransactionsRequest,
    MetadataRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, RenewDelegationTokenRequest,
    TxnOffsetCommitRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
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
    ApiVersions(ApiVersionsRequest),
    CreateTopics(CreateTopicsRequest),
    DeleteTopics(DeleteTopicsRequest),
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
    Ok(match api {
        Api::Produce => Request::Produce(decode_as(api, version, body)?),
        Api::Fetch => Request::Fetch(Box::new(decode_as(api, version, body)?)),
        Api::ListOffsets => Request::ListOffsets(decode_as(api, version, body)?),
        Api::Metadata => Request::Metadata(decode_as(api, version, body)?),
        Api::OffsetCommit if version >= offsets::TOPIC_IDS_SINCE => {
            Request::OffsetCommit(decode_with(api, version, body, offsets::offset_commit)?)
        }
        Api::OffsetCommit => Request::OffsetCommit(decode_as(api, version, body)?),
        Api::OffsetFetch if version >= offsets::TOPIC_IDS_SINCE => {
            Request::OffsetFetch(decode_with(api, version, body, offsets::offset_fetch)?)
        }
        Api::OffsetFetch => Request::OffsetFetch(decode_as(api, version, body)?),
        Api::FindCoordinator => Request::FindCoordinator(decode_as(api, version, body)?),
        Api::ApiVersions => Request::ApiVersions(decode_as(api, version, body)?),
        Api::CreateTopics => Request::CreateTopics(decode_as(api, version, body)?),
        Api::DeleteTopics => Request::DeleteTopics(decode_as(api, version, body)?),
        Api::InitProducerId => Request::InitProducerId(decode_as(api, version, body)?),
        Api::OffsetForLeaderEpoch => Request::OffsetForLeaderEpoch(decode_as(api, version, body)?),
        Api::AddPartitionsToTxn => Request::AddPartitionsToTxn(decode_as(api, version, body)?),
        Api::AddOffsetsToTxn => Request::AddOffsetsToTxn(decode_as(api, version, body)?),
        Api::EndTxn => Request::EndTxn(decode_as(api, version, body)?),
        Api::WriteTxnMarkers => {
            check(api, version, &body)?;
            let request = txn_markers::decode(version, &body);
            let malformed = || DecodeFault::Codec("a text is not UTF-8".to_owned());
            Request::WriteTxnMarkers(request.ok_or_else(malformed)?)
        }
        Api::TxnOffsetCommit => Request::TxnOffsetCommit(Box::new(decode_as(api, version, body)?)),
        Api::DescribeAcls => Request::DescribeAcls(decode_as(api, version, body)?),
        Api::CreateAcls => Request::CreateAcls(decode_as(api, version, body)?),
        Api::DeleteAcls => Request::DeleteAcls(decode_as(api, version, body)?),
        Api::DescribeConfigs => Request::DescribeConfigs(decode_as(api, version, body)?),
        Api::AlterConfigs => Request::AlterConfigs(decode_as(api, version, body)?),
        Api::AlterReplicaLogDirs => Request::AlterReplicaLogDirs(decode_as(api, version, body)?),
        Api::DescribeLogDirs => Request::DescribeLogDirs(decode_as(api, version, body)?),
        Api::CreatePartitions => Request::CreatePartitions(decode_as(api, version, body)?),
        Api::CreateDelegationToken => {
            Request::CreateDelegationToken(decode_as(api, version, body)?)
        }
        Api::RenewDelegationToken => Request::RenewDelegationToken(decode_as(api, version, body)?),
        Api::ExpireDelegationToken => {
            Request::ExpireDelegationToken(decode_as(api, version, body)?)
        }
        Api::DescribeDelegationToken => {
            Request::DescribeDelegationToken(decode_as(api, version, body)?)
        }
        Api::ElectLeaders => Request::ElectLeaders(decode_as(api, version, body)?),
        Api::IncrementalAlterConfigs => {
            Request::IncrementalAlterConfigs(decode_as(api, version, body)?)
        }
        Api::AlterPartitionReassignments => {
            Request::AlterPartitionReassignments(decode_as(api, version, body)?)
        }
        Api::ListPartitionReassignments => {
            Request::ListPartitionReassignments(decode_as(api, version, body)?)
        }
        Api::OffsetDelete => Request::OffsetDelete(decode_as(api, version, body)?),
        Api::DescribeClientQuotas => Request::DescribeClientQuotas(decode_as(api, version, body)?),
        Api::AlterClientQuotas => Request::AlterClientQuotas(decode_as(api, version, body)?),
        Api::DescribeUserScramCredentials => {
            Request::DescribeUserScramCredentials(decode_as(api, version, body)?)
        }
        Api::AlterUserScramCredentials => {
            Request::AlterUserScramCredentials(decode_as(api, version, body)?)
        }
        Api::DescribeQuorum => Request::DescribeQuorum(decode_as(api, version, body)?),
        Api::UpdateFeatures => Request::UpdateFeatures(decode_as(api, version, body)?),
        Api::DescribeCluster => Request::DescribeCluster(decode_as(api, version, body)?),
        Api::DescribeProducers => Request::DescribeProducers(decode_as(api, version, body)?),
        Api::UnregisterBroker => Request::UnregisterBroker(decode_as(api, version, body)?),
        Api::DescribeTransactions => Request::DescribeTransactions(decode_as(api, version, body)?),
        Api::ListTransactions => Request::ListTransactions(decode_as(api, version, body)?),
        Api::ListConfigResources => Request::ListConfigResources(decode_as(api, version, body)?),
        Api::DescribeTopicPartitions => {
            Request::DescribeTopicPartitions(decode_as(api, version, body)?)
        }
    })
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

fn check(api: Api, version: i16, body: &Bytes) -> Result<(), DecodeFault> {
    if !api.serves(version) {
        return Err(DecodeFault::Version { api, version });
    }
    Ok(shape::check(shape_of(api), version, body)?)
}
