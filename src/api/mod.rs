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
use crate::limits::REQUEST_ELEMENT_BYTES;
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
    let most = shard.connection_memory.bytes_max() / 2 / REQUEST_ELEMENT_BYTES;
    let (request, elements) = decode::decode_within(api, version, body, most)
        .map_err(|fault| Malformed { api, version, fault })?;
    connection.decoded(elements * REQUEST_ELEMENT_BYTES);
    Ok(start(Rc::clone(shard), Rc::clone(connection), header, request).await)
}

/// Makes `start` out of the table of all requests, which the compiler holds against [`Request`].
macro_rules! started {
    ($($request:ident => $when:ident $api:ident,)+) => {
        async fn start(
            shard: Rc<Shard>,
            connection: Rc<Connection>,
            header: RequestHeader,
            request: Request,
        ) -> Answer {
            match request {
                $(Request::$request(request) => {
                    answer!($when $api, shard, connection, header, request)
                })+
            }
        }
    };
}

/// How a handler is called: for a response at once, one that comes later, one that comes later and
/// is not wanted any more if the connection closes, or by itself in the order of requests.
macro_rules! answer {
    (now $api:ident, $shard:ident, $connection:ident, $header:ident, $request:ident) => {
        Answer::Now($api::handle(&$shard, &$header, &$request))
    };
    (later $api:ident, $shard:ident, $connection:ident, $header:ident, $request:ident) => {
        Answer::Later(Box::pin($api::handle($shard, $header, $request)))
    };
    (while_open $api:ident, $shard:ident, $connection:ident, $header:ident, $request:ident) => {
        Answer::Later(Box::pin($api::handle($shard, $connection, $header, $request)))
    };
    (in_order $api:ident, $shard:ident, $connection:ident, $header:ident, $request:ident) => {
        $api::handle(&$shard, $header, $request).await
    };
}

started! {
    Produce => in_order produce,
    Fetch => while_open fetch,
    ListOffsets => later list_offsets,
    Metadata => later metadata,
    OffsetCommit => later offset_commit,
    OffsetFetch => later offset_fetch,
    FindCoordinator => later find_coordinator,
    JoinGroup => while_open join_group,
    Heartbeat => while_open heartbeat,
    LeaveGroup => while_open leave_group,
    SyncGroup => while_open sync_group,
    DescribeGroups => later describe_groups,
    ListGroups => later list_groups,
    ApiVersions => now api_versions,
    CreateTopics => later create_topics,
    DeleteTopics => later delete_topics,
    DeleteRecords => later delete_records,
    InitProducerId => while_open init_producer_id,
    OffsetForLeaderEpoch => later offset_for_leader_epoch,
    AddPartitionsToTxn => while_open add_partitions_to_txn,
    AddOffsetsToTxn => while_open add_offsets_to_txn,
    EndTxn => while_open end_txn,
    WriteTxnMarkers => later write_txn_markers,
    TxnOffsetCommit => later txn_offset_commit,
    DescribeAcls => now describe_acls,
    CreateAcls => now create_acls,
    DeleteAcls => now delete_acls,
    DescribeConfigs => now describe_configs,
    AlterConfigs => later alter_configs,
    AlterReplicaLogDirs => now alter_replica_log_dirs,
    DescribeLogDirs => later describe_log_dirs,
    CreatePartitions => later create_partitions,
    CreateDelegationToken => now create_delegation_token,
    RenewDelegationToken => now renew_delegation_token,
    ExpireDelegationToken => now expire_delegation_token,
    DescribeDelegationToken => now describe_delegation_token,
    DeleteGroups => later delete_groups,
    ConsumerGroupHeartbeat => while_open consumer_group_heartbeat,
    ConsumerGroupDescribe => later consumer_group_describe,
    ElectLeaders => now elect_leaders,
    IncrementalAlterConfigs => later incremental_alter_configs,
    AlterPartitionReassignments => now alter_partition_reassignments,
    ListPartitionReassignments => now list_partition_reassignments,
    OffsetDelete => later offset_delete,
    DescribeClientQuotas => now describe_client_quotas,
    AlterClientQuotas => later alter_client_quotas,
    DescribeUserScramCredentials => now describe_user_scram_credentials,
    AlterUserScramCredentials => later alter_user_scram_credentials,
    DescribeQuorum => now describe_quorum,
    UpdateFeatures => now update_features,
    DescribeCluster => now describe_cluster,
    DescribeProducers => later describe_producers,
    UnregisterBroker => now unregister_broker,
    DescribeTransactions => while_open describe_transactions,
    ListTransactions => later list_transactions,
    ListConfigResources => now list_config_resources,
    DescribeTopicPartitions => now describe_topic_partitions,
}
