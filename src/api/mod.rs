//! The Kafka APIs: one file each, and the table that leads to them.
//!
//! Owns what a handler may return. A handler checks and starts its work in order and returns at
//! once where it can; what takes longer is returned as a future and overlaps with what follows on
//! the connection. Must never answer a frame that is malformed: the connection is closed.

use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::protocol::Encodable;

use crate::ids::JournalSequence;
use crate::io::LocalFuture;
use crate::metrics::Limit;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::wire::codes::{Coded, Codes};
use crate::wire::decode::{self, DecodeFault, Request};
use crate::wire::encode;
use crate::wire::header::RequestHeader;
use crate::wire::shape::{Reason, ShapeFault};
use crate::wire::versions::Api;

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod alter_client_quotas;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod alter_user_scram_credentials;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod create_acls;
pub mod create_delegation_token;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_acls;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_acls;
pub mod describe_client_quotas;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_delegation_token;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_topic_partitions;
pub mod describe_transactions;
pub mod describe_user_scram_credentials;
pub mod elect_leaders;
pub mod end_txn;
pub mod expire_delegation_token;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod list_transactions;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod renew_delegation_token;
pub mod sync_group;
pub mod txn_offset_commit;
pub mod unregister_broker;
pub mod update_features;
pub mod write_txn_markers;

/// What becomes of a request.
pub enum Answer {
    /// It has no response (Produce with acks=0).
    None,
    /// The response, though perhaps it has to wait for the journal.
    Now(Response),
    /// The response comes later.
    Later(LocalFuture<'static, Response>),
}

/// A response that is computed.
pub enum Response {
    /// Bytes that may leave once the journal is durable through `durable_at`.
    Frames {
        /// The frame, as slices.
        frames: Vec<Bytes>,
        /// The newest journal position it depends on; 0 for none.
        durable_at: JournalSequence,
        /// The error codes in it.
        codes: Codes,
    },
    /// A Produce response, whose content depends on whether the journal took the batches.
    Produce(Box<produce::PendingResponse>),
    /// No response: the connection is closed, after the responses before.
    Close,
}

impl Response {
    /// Encodes a response that depends on no journal position.
    #[must_use]
    pub fn encode<T: Encodable + Coded>(header: &RequestHeader, response: &T) -> Response {
        let (api, version) = (header.api, header.api_version);
        match encode::encode_response(api, version, header.correlation_id, response) {
            Ok(frame) => Response::frame(frame, Codes::of(response)),
            Err(fault) => Response::fault(header, &fault),
        }
    }

    /// A frame that depends on no journal position.
    #[must_use]
    pub fn frame(frame: Bytes, codes: Codes) -> Response {
        Response::Frames { frames: vec![frame], durable_at: JournalSequence(0), codes }
    }

    /// A response that cannot be written is a bug of its handler; the connection is closed.
    #[must_use]
    pub fn fault(header: &RequestHeader, fault: &encode::EncodeFault) -> Response {
        tracing::error!(api = ?header.api, version = header.api_version, "no response: {fault}");
        Response::Close
    }

    /// Bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Response::Frames { frames, .. } => frames.iter().map(Bytes::len).sum(),
            // Its frame is small and made when it leaves.
            Response::Produce(_) | Response::Close => 0,
        }
    }

    /// The newest journal position it depends on.
    #[must_use]
    pub fn durable_at(&self) -> JournalSequence {
        match self {
            Response::Frames { durable_at, .. } => *durable_at,
            Response::Produce(pending) => pending.durable_at(),
            Response::Close => JournalSequence(0),
        }
    }

    /// Tells its error codes, each with how often; `durable` as in [`Response::into_slices`].
    pub fn each_code(&self, durable: bool, note: &mut dyn FnMut(i16, u32)) {
        match self {
            Response::Frames { codes, .. } if durable => {
                codes.iter().for_each(|(code, count)| note(code, count));
            }
            Response::Produce(pending) => pending.each_code(durable, note),
            Response::Frames { .. } | Response::Close => {}
        }
    }

    /// Appends its bytes; `durable` says whether the journal has reached its position. `false`
    /// closes the connection.
    pub fn into_slices(self, durable: bool, slices: &mut Vec<Bytes>) -> bool {
        match self {
            Response::Frames { frames, .. } if durable => {
                slices.extend(frames);
                true
            }
            Response::Produce(pending) => match pending.into_frame(durable) {
                Ok(Some(frame)) => {
                    slices.push(frame);
                    true
                }
                Ok(None) => true,
                Err(fault) => {
                    tracing::error!("no Produce response: {fault}");
                    false
                }
            },
            Response::Frames { .. } | Response::Close => false,
        }
    }
}

/// Whether requests of this API may be in progress together with others of their connection.
#[must_use]
pub fn overlaps(api: Api) -> bool {
    match api {
        Api::Produce
        | Api::Fetch
        | Api::ListOffsets
        | Api::ApiVersions
        | Api::OffsetForLeaderEpoch
        | Api::DescribeConfigs
        | Api::DescribeCluster
        | Api::DescribeProducers
        | Api::ListConfigResources
        | Api::AlterReplicaLogDirs
        | Api::DescribeLogDirs
        | Api::ElectLeaders
        | Api::AlterPartitionReassignments
        | Api::ListPartitionReassignments
        | Api::DescribeQuorum
        | Api::UpdateFeatures
        | Api::UnregisterBroker
        | Api::DescribeTopicPartitions
        | Api::DescribeAcls
        | Api::CreateAcls
        | Api::DeleteAcls
        | Api::CreateDelegationToken
        | Api::RenewDelegationToken
        | Api::ExpireDelegationToken
        | Api::DescribeDelegationToken
        | Api::DescribeClientQuotas
        | Api::DescribeUserScramCredentials => true,
        // These may change the catalog, a log or a transaction, hand out something, or read what
        // one before them wrote.
        Api::Metadata
        | Api::OffsetCommit
        | Api::OffsetFetch
        | Api::FindCoordinator
        | Api::JoinGroup
        | Api::Heartbeat
        | Api::LeaveGroup
        | Api::SyncGroup
        | Api::DescribeGroups
        | Api::ListGroups
        | Api::DeleteGroups
        | Api::ConsumerGroupHeartbeat
        | Api::ConsumerGroupDescribe
        | Api::CreateTopics
        | Api::DeleteTopics
        | Api::DeleteRecords
        | Api::InitProducerId
        | Api::AddPartitionsToTxn
        | Api::AddOffsetsToTxn
        | Api::EndTxn
        | Api::WriteTxnMarkers
        | Api::TxnOffsetCommit
        | Api::CreatePartitions
        | Api::OffsetDelete
        | Api::DescribeTransactions
        | Api::ListTransactions
        | Api::AlterConfigs
        | Api::IncrementalAlterConfigs
        | Api::AlterClientQuotas
        | Api::AlterUserScramCredentials => false,
    }
}

/// A request whose body cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{api:?} v{version}: {fault}")]
pub struct Malformed {
    api: Api,
    version: i16,
    fault: DecodeFault,
}

impl Malformed {
    /// The bound that the body goes beyond, if that is what is wrong.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match &self.fault {
            DecodeFault::Shape(ShapeFault { reason: Reason::TooManyElements, .. }) => {
                Some(Limit::RequestElements)
            }
            DecodeFault::Shape(ShapeFault { reason: Reason::TooManyTags, .. }) => {
                Some(Limit::RequestUnknownTags)
            }
            _ => None,
        }
    }
}

/// Starts a request.
///
/// # Errors
/// Why the frame is malformed; the connection is closed then.
pub async fn handle(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    header: RequestHeader,
    body: Bytes,
) -> Result<Answer, Malformed> {
    if !header.is_served() {
        // Only ApiVersions gets here with a version that is not served.
        return Ok(Answer::Now(api_versions::unsupported(&header)));
    }
    let (api, version) = (header.api, header.api_version);
    let request =
        decode::decode(api, version, body).map_err(|fault| Malformed { api, version, fault })?;
    Ok(start(Rc::clone(shard), Rc::clone(connection), header, request).await)
}

async fn start(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: Request,
) -> Answer {
    match request {
        Request::Produce(request) => produce::handle(&shard, header, request).await,
        Request::Fetch(request) => later(fetch::handle(shard, connection, header, request)),
        Request::ListOffsets(request) => later(list_offsets::handle(shard, header, request)),
        Request::OffsetForLeaderEpoch(request) => {
            later(offset_for_leader_epoch::handle(shard, header, request))
        }
        Request::Metadata(request) => later(metadata::handle(shard, header, request)),
        Request::OffsetCommit(request) => later(offset_commit::handle(shard, header, request)),
        Request::OffsetFetch(request) => later(offset_fetch::handle(shard, header, request)),
        Request::TxnOffsetCommit(request) => {
            later(txn_offset_commit::handle(shard, header, request))
        }
        Request::OffsetDelete(request) => later(offset_delete::handle(shard, header, request)),
        Request::FindCoordinator(_)
        | Request::JoinGroup(_)
        | Request::Heartbeat(_)
        | Request::LeaveGroup(_)
        | Request::SyncGroup(_)
        | Request::DescribeGroups(_)
        | Request::ListGroups(_)
        | Request::DeleteGroups(_)
        | Request::ConsumerGroupHeartbeat(_)
        | Request::ConsumerGroupDescribe(_) => group(shard, connection, header, request),
        Request::CreateTopics(request) => later(create_topics::handle(shard, header, request)),
        Request::CreatePartitions(request) => {
            later(create_partitions::handle(shard, header, request))
        }
        Request::DeleteTopics(request) => later(delete_topics::handle(shard, header, request)),
        Request::DeleteRecords(request) => later(delete_records::handle(shard, header, request)),
        Request::InitProducerId(request) => {
            later(init_producer_id::handle(shard, connection, header, request))
        }
        Request::AddPartitionsToTxn(request) => {
            later(add_partitions_to_txn::handle(shard, connection, header, request))
        }
        Request::AddOffsetsToTxn(request) => {
            later(add_offsets_to_txn::handle(shard, connection, header, request))
        }
        Request::EndTxn(request) => later(end_txn::handle(shard, connection, header, request)),
        Request::DescribeTransactions(request) => {
            later(describe_transactions::handle(shard, connection, header, request))
        }
        Request::ListTransactions(request) => {
            later(list_transactions::handle(shard, header, request))
        }
        Request::WriteTxnMarkers(request) => {
            later(write_txn_markers::handle(shard, header, request))
        }
        Request::DescribeProducers(request) => {
            later(describe_producers::handle(shard, header, request))
        }
        Request::ApiVersions(request) => {
            Answer::Now(api_versions::handle(&shard, &header, &request))
        }
        Request::DescribeConfigs(request) => {
            Answer::Now(describe_configs::handle(&shard, &header, &request))
        }
        Request::DescribeCluster(request) => {
            Answer::Now(describe_cluster::handle(&shard, &header, &request))
        }
        request => administer(&shard, header, request),
    }
}

/// Starts a request about a group and its members.
fn group(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: Request,
) -> Answer {
    match request {
        Request::FindCoordinator(request) => {
            later(find_coordinator::handle(shard, header, request))
        }
        Request::JoinGroup(request) => {
            later(join_group::handle(shard, connection, header, *request))
        }
        Request::Heartbeat(request) => later(heartbeat::handle(shard, connection, header, request)),
        Request::LeaveGroup(request) => {
            later(leave_group::handle(shard, connection, header, request))
        }
        Request::SyncGroup(request) => {
            later(sync_group::handle(shard, connection, header, *request))
        }
        Request::DescribeGroups(request) => later(describe_groups::handle(shard, header, request)),
        Request::ListGroups(request) => later(list_groups::handle(shard, header, request)),
        Request::DeleteGroups(request) => later(delete_groups::handle(shard, header, request)),
        Request::ConsumerGroupHeartbeat(request) => {
            later(consumer_group_heartbeat::handle(shard, connection, header, *request))
        }
        Request::ConsumerGroupDescribe(request) => {
            later(consumer_group_describe::handle(shard, header, request))
        }
        _ => unreachable!("a request of another kind is started by `start`"),
    }
}

/// A response that comes later.
fn later(response: impl Future<Output = Response> + 'static) -> Answer {
    Answer::Later(Box::pin(response))
}

/// Starts a request about the cluster and how it is configured.
fn administer(shard: &Rc<Shard>, header: RequestHeader, request: Request) -> Answer {
    match request {
        Request::AlterConfigs(request) => {
            Answer::Later(Box::pin(alter_configs::handle(Rc::clone(shard), header, request)))
        }
        Request::IncrementalAlterConfigs(request) => Answer::Later(Box::pin(
            incremental_alter_configs::handle(Rc::clone(shard), header, request),
        )),
        Request::ListConfigResources(request) => {
            Answer::Now(list_config_resources::handle(shard, &header, &request))
        }
        Request::AlterReplicaLogDirs(request) => {
            Answer::Now(alter_replica_log_dirs::handle(shard, &header, &request))
        }
        Request::DescribeLogDirs(request) => {
            Answer::Later(Box::pin(describe_log_dirs::handle(Rc::clone(shard), header, request)))
        }
        Request::ElectLeaders(request) => {
            Answer::Now(elect_leaders::handle(shard, &header, &request))
        }
        Request::AlterPartitionReassignments(request) => {
            Answer::Now(alter_partition_reassignments::handle(shard, &header, &request))
        }
        Request::ListPartitionReassignments(request) => {
            Answer::Now(list_partition_reassignments::handle(shard, &header, &request))
        }
        Request::DescribeQuorum(request) => {
            Answer::Now(describe_quorum::handle(shard, &header, &request))
        }
        Request::UpdateFeatures(request) => {
            Answer::Now(update_features::handle(shard, &header, &request))
        }
        Request::UnregisterBroker(request) => {
            Answer::Now(unregister_broker::handle(shard, &header, &request))
        }
        Request::DescribeTopicPartitions(request) => {
            Answer::Now(describe_topic_partitions::handle(shard, &header, &request))
        }
        request => secure(shard, header, request),
    }
}

/// Starts a request about who may do what, and how much of it.
fn secure(shard: &Rc<Shard>, header: RequestHeader, request: Request) -> Answer {
    match request {
        Request::DescribeAcls(request) => {
            Answer::Now(describe_acls::handle(shard, &header, &request))
        }
        Request::CreateAcls(request) => Answer::Now(create_acls::handle(shard, &header, &request)),
        Request::DeleteAcls(request) => Answer::Now(delete_acls::handle(shard, &header, &request)),
        Request::CreateDelegationToken(request) => {
            Answer::Now(create_delegation_token::handle(shard, &header, &request))
        }
        Request::RenewDelegationToken(request) => {
            Answer::Now(renew_delegation_token::handle(shard, &header, &request))
        }
        Request::ExpireDelegationToken(request) => {
            Answer::Now(expire_delegation_token::handle(shard, &header, &request))
        }
        Request::DescribeDelegationToken(request) => {
            Answer::Now(describe_delegation_token::handle(shard, &header, &request))
        }
        Request::DescribeClientQuotas(request) => {
            Answer::Now(describe_client_quotas::handle(shard, &header, &request))
        }
        Request::AlterClientQuotas(request) => {
            Answer::Later(Box::pin(alter_client_quotas::handle(Rc::clone(shard), header, request)))
        }
        Request::DescribeUserScramCredentials(request) => {
            Answer::Now(describe_user_scram_credentials::handle(shard, &header, &request))
        }
        Request::AlterUserScramCredentials(request) => Answer::Later(Box::pin(
            alter_user_scram_credentials::handle(Rc::clone(shard), header, request),
        )),
        _ => unreachable!("a request of another kind is started by `handle`"),
    }
}
