//! Everything one shard may ask of another, and the answers.
//!
//! Owns the types that cross between shards; all of them are `Send` and own their bytes or share
//! them read-only. A request reserves the slot of its reply: the sender keeps the slot under the
//! number the message carries.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{MarkerKind, ValidBatch};
use crate::coordinator::group::outcome::Answer;
use crate::coordinator::txn::{
    AddPartitions, Description, EndTxn, Identity, InitProducerId, ListFilter, Listing,
};
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId, TopicPartition};
use crate::journal::image::ProducerRow;
use crate::log::ProducerFacts;
use crate::log::verification::{Verification, VerificationGuard};
use crate::metadata::Image;
use crate::metadata::alter::Alteration;
use crate::metadata::topics::{CreatePartitions, CreateTopic, PlanError, PlannedTopic};
use crate::shard::cleaner::progress::Report;
use crate::shard::group_offsets::admin::{AdminReply, AdminRequest};
use crate::shard::group_offsets::members::MemberRequest;
use crate::shard::group_offsets::{OffsetsReply, OffsetsRequest};
use crate::shard::scrape::Scraped;
use crate::wire::gather::DivergingEpoch;

/// One message.
#[derive(Debug)]
pub enum Message {
    /// Do this and reply under this number.
    Request {
        /// Number of the waiting slot.
        number: u64,
        /// What to do.
        operation: Operation,
    },
    /// The answer to a request.
    Reply {
        /// Number of the waiting slot.
        number: u64,
        /// The answer.
        reply: Reply,
    },
    /// A partition watched for this parked fetch has moved.
    Wake {
        /// The fetch's number at the shard that receives this.
        fetch: u64,
    },
    /// A connection that another shard accepted, to be served by this one.
    Connection {
        /// The connection.
        accepted: crate::io::listener::Accepted,
        /// Its place among those of the broker.
        place: crate::shard::quota::Place,
    },
    /// The process is stopping.
    Stop,
    /// The client of a request is gone: do not hold it any longer.
    Revoke {
        /// The request's number at the shard that sends this.
        number: u64,
    },
    /// The fetch is over: forget what it watches.
    Unwatch {
        /// The fetch's number at the shard that sends this.
        fetch: u64,
    },
}

/// What one shard may ask of another.
#[derive(Debug)]
pub enum Operation {
    /// Append these batches, in order; answered when they are durable.
    Append(Vec<AppendPart>),
    /// Begin the verification of these transactional batches, in order.
    Verify(Vec<VerifyPart>),
    /// Append these markers, in order; answered when they are durable.
    WriteMarkers(Vec<MarkerPart>),
    /// Delete the records below these offsets; answered when that is durable.
    DeleteRecords(Vec<DeleteRecordsPart>),
    /// What is known of the producers of these partitions.
    DescribeProducers(Vec<TopicPartition>),
    /// Read what is readable now.
    Read(ReadParts),
    /// Send one wake when a bound of any of these has moved past what the fetch has seen.
    Watch {
        /// The fetch's number at the sender.
        fetch: u64,
        /// Partitions with the bound that was seen.
        parts: Vec<WatchPart>,
    },
    /// Answer ListOffsets for these.
    ListOffsets(Vec<OffsetQuery>),
    /// Answer OffsetForLeaderEpoch for these.
    EpochEnds(Vec<EpochQuery>),
    /// Commit, fetch or delete offsets of a group that is kept on that shard.
    GroupOffsets(Box<OffsetsRequest>),
    /// Do what a member of a group that is kept on that shard asks.
    Member(MemberRequest),
    /// List, describe or delete groups that are kept on that shard.
    GroupAdmin(AdminRequest),
    /// Answer for a transactional id, or for all of this shard.
    Transaction(TxnRequest),
    /// Tell how large the logs of all partitions are.
    LogSizes,
    /// Tell everything that is counted.
    Metrics,
    /// Say whether the storage is sound, so that records can be taken.
    IsSound,
    /// Change the catalog; shard 0 only.
    Catalog(CatalogChange),
    /// Take over a new catalog.
    Publish(Arc<Image>),
    /// Drop every partition of this deleted topic.
    DropTopic(TopicId),
    /// Take a checkpoint that starts after this message arrived.
    Checkpoint,
    /// Remember how far a partition is cleaned; shard 0 only.
    CleanerProgress(Report),
}

/// Answers, one kind per kind of operation.
#[derive(Debug)]
pub enum Reply {
    /// To [`Operation::Append`], one per part.
    Appended(Vec<Result<Appended, AppendRefusal>>),
    /// To [`Operation::Verify`], one per part.
    Verified(Vec<Result<Verification, ErrorCode>>),
    /// To [`Operation::WriteMarkers`], one per part.
    Markers(Vec<ErrorCode>),
    /// To [`Operation::DeleteRecords`], one per part: where the log starts.
    LogStarts(Vec<Result<Offset, ErrorCode>>),
    /// To [`Operation::DescribeProducers`], one per partition.
    Producers(Vec<Result<Vec<ProducerRow>, ErrorCode>>),
    /// To [`Operation::Read`], one per part.
    Read(Vec<ReadOutcome>),
    /// To [`Operation::ListOffsets`], one per query.
    Offsets(Vec<OffsetAnswer>),
    /// To [`Operation::EpochEnds`], one per query.
    EpochEnds(Vec<EpochAnswer>),
    /// To [`Operation::GroupOffsets`].
    GroupOffsets(Result<OffsetsReply, ErrorCode>),
    /// To [`Operation::Member`].
    Member(Box<Result<Answer, ErrorCode>>),
    /// To [`Operation::GroupAdmin`].
    GroupAdmin(Result<AdminReply, ErrorCode>),
    /// To [`Operation::Transaction`].
    Transaction(TxnReply),
    /// To [`Operation::LogSizes`], one per partition.
    LogSizes(Vec<LogSize>),
    /// To [`Operation::Metrics`].
    Metrics(Box<Scraped>),
    /// To [`Operation::Catalog`].
    Catalog(CatalogOutcome),
    /// To the rest: it is done, or the storage has failed.
    Done(bool),
}

/// A batch for one partition.
#[derive(Debug)]
pub struct AppendPart {
    /// The partition.
    pub partition: TopicPartition,
    /// The validated batch.
    pub batch: ValidBatch,
    /// What its verification gave, if it is transactional and needed one.
    pub guard: Option<VerificationGuard>,
}

/// A transactional batch that is to be appended to a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerifyPart {
    /// The partition.
    pub partition: TopicPartition,
    /// What the batch says of its producer.
    pub producer: ProducerFacts,
    /// Whether the producer's epoch rises with every transaction.
    pub strict: bool,
}

/// A marker for one partition.
#[derive(Clone, Debug)]
pub struct MarkerPart {
    /// The partition.
    pub partition: TopicPartition,
    /// Commit or abort.
    pub kind: MarkerKind,
    /// The producer whose transaction ends.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
    /// Below 2: a marker may carry the epoch of the transaction it ends. From 2 on its epoch is
    /// higher.
    pub transaction_version: i16,
}

/// A partition whose records below an offset are to be deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeleteRecordsPart {
    /// The partition.
    pub partition: TopicPartition,
    /// First offset that is kept; -1 is the high watermark.
    pub offset: Offset,
}

/// Where a batch went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Time stamped by the broker, -1 for none.
    pub log_append_time_ms: i64,
    /// Log start of the partition.
    pub log_start: Offset,
}

/// A batch that was not appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendRefusal {
    /// The code for the client.
    pub code: ErrorCode,
    /// Log start of the partition; -1 where the answer names none.
    pub log_start: Offset,
}

impl From<ErrorCode> for AppendRefusal {
    fn from(code: ErrorCode) -> AppendRefusal {
        AppendRefusal { code, log_start: Offset(-1) }
    }
}

/// Reads of one fetch on one shard.
#[derive(Clone, Debug)]
pub struct ReadParts {
    /// The partitions, in the order they are served.
    pub parts: Vec<ReadPart>,
    /// Most bytes in all.
    pub bytes_max: usize,
    /// Return the first batch even if it is larger.
    pub at_least_one: bool,
}

/// A read of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPart {
    /// The partition.
    pub partition: TopicPartition,
    /// First offset wanted.
    pub offset: Offset,
    /// Most bytes of this partition.
    pub bytes_max: usize,
    /// The client's leader epoch, -1 for none.
    pub leader_epoch: i32,
    /// Epoch of the client's last record, -1 for none.
    pub last_fetched_epoch: i32,
    /// Whether only committed records are wanted.
    pub committed_only: bool,
}

/// What a read found.
#[derive(Clone, Debug)]
pub struct ReadOutcome {
    /// Error of the partition.
    pub error: ErrorCode,
    /// High watermark, -1 on error.
    pub high_watermark: Offset,
    /// Last stable offset, -1 on error.
    pub last_stable_offset: Offset,
    /// Log start, -1 on error.
    pub log_start: Offset,
    /// Where the client's log parts from ours.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Aborted transactions, for readers of committed records.
    pub aborted: Option<Vec<(ProducerId, Offset)>>,
    /// Whole batches.
    pub records: Vec<Bytes>,
    /// Their length.
    pub bytes: usize,
}

/// A partition that a parked fetch watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchPart {
    /// The partition.
    pub partition: TopicPartition,
    /// The bound that the fetch has seen: high watermark, or last stable offset.
    pub seen: Offset,
    /// Whether the bound is the last stable offset.
    pub committed_only: bool,
}

/// One question of ListOffsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetQuery {
    /// The partition.
    pub partition: TopicPartition,
    /// A timestamp, or one of Kafka's negative codes.
    pub timestamp: i64,
    /// The client's leader epoch, -1 for none.
    pub leader_epoch: i32,
    /// Whether the bound is the last stable offset.
    pub committed_only: bool,
    /// Whether the asker is a debugging consumer, whose bound is the log end.
    pub to_log_end: bool,
    /// Version of the request: what it may ask for.
    pub version: i16,
}

/// One answer of ListOffsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetAnswer {
    /// Its error.
    pub error: ErrorCode,
    /// Timestamp of the record found, -1 for none.
    pub timestamp: i64,
    /// Its offset, -1 for none.
    pub offset: Offset,
    /// Leader epoch of the record, -1 for none.
    pub leader_epoch: LeaderEpoch,
}

/// One question of OffsetForLeaderEpoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochQuery {
    /// The partition.
    pub partition: TopicPartition,
    /// The client's leader epoch, -1 for none.
    pub current_leader_epoch: i32,
    /// The epoch asked for.
    pub epoch: LeaderEpoch,
}

/// One answer of OffsetForLeaderEpoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochAnswer {
    /// Its error.
    pub error: ErrorCode,
    /// Largest known epoch at or below the one asked for, -1 if unknown.
    pub epoch: LeaderEpoch,
    /// Its end, -1 if unknown.
    pub end_offset: Offset,
}

/// What is asked of a transaction coordinator.
#[derive(Clone, Debug)]
pub enum TxnRequest {
    /// Who may produce under a transactional id.
    InitProducerId(InitProducerId),
    /// Add partitions to a transaction.
    Add(AddPartitions, Patience),
    /// Say whether partitions are in a transaction.
    Verify(AddPartitions, Patience),
    /// Commit or abort.
    End(EndTxn),
    /// Describe a transactional id.
    Describe(Arc<str>),
    /// List the transactional ids of this shard.
    List(ListFilter),
}

impl TxnRequest {
    /// How long it may be held, as far as its client says.
    #[must_use]
    pub fn patience(&self) -> Patience {
        match self {
            TxnRequest::Add(_, patience) | TxnRequest::Verify(_, patience) => *patience,
            _ => Patience::AsTheBroker,
        }
    }
}

/// How long a request may be held until a transition ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// As long as the broker holds requests.
    AsTheBroker,
    /// No longer than so many milliseconds, which is when its client gives it up.
    Milliseconds(u64),
}

/// What a transaction coordinator answers.
#[derive(Clone, Debug)]
pub enum TxnReply {
    /// To InitProducerId and to End.
    Identity(Result<Identity, ErrorCode>),
    /// To Add and to Verify, one per partition.
    Partitions(Vec<ErrorCode>),
    /// To Describe.
    Described(Result<Description, ErrorCode>),
    /// To List.
    Listed(Result<Listing, ErrorCode>),
}

/// How large one log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSize {
    /// The partition.
    pub partition: TopicPartition,
    /// Bytes of its batches.
    pub bytes: u64,
}

/// A change of the catalog.
#[derive(Clone, Debug)]
pub enum CatalogChange {
    /// Create topics.
    CreateTopics {
        /// What to create.
        topics: Vec<CreateTopic>,
        /// Check only.
        validate_only: bool,
        /// Asked for by a client that used a missing topic, not by CreateTopics.
        automatic: bool,
    },
    /// Give topics more partitions.
    CreatePartitions {
        /// Which, and how many.
        topics: Vec<CreatePartitions>,
        /// Check only.
        validate_only: bool,
    },
    /// Delete these topics, which exist as far as the asker knows.
    DeleteTopics(Vec<TopicId>),
    /// Hand out the next block of producer ids.
    ReserveProducerIds,
    /// Alter what is set.
    Alter(Alteration),
}

/// What became of a change of the catalog.
#[derive(Clone, Debug)]
pub enum CatalogOutcome {
    /// One per topic to be created.
    Created(Vec<Result<PlannedTopic, PlanError>>),
    /// One per topic to get more partitions.
    MorePartitions(Vec<Result<(), PlanError>>),
    /// One per topic to be deleted.
    Deleted(Vec<ErrorCode>),
    /// Producer ids from `first` on, so many.
    ProducerIds {
        /// The first.
        first: i64,
        /// How many.
        count: i64,
    },
    /// One per entry of an alteration.
    Altered(Vec<Result<(), PlanError>>),
    /// The catalog cannot be written.
    Failed,
}

impl ReadOutcome {
    /// An outcome that carries nothing but an error.
    #[must_use]
    pub fn failed(error: ErrorCode) -> ReadOutcome {
        ReadOutcome {
            error,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start: Offset(-1),
            diverging_epoch: None,
            aborted: None,
            records: Vec::new(),
            bytes: 0,
        }
    }
}

impl OffsetAnswer {
    /// An answer that carries nothing but an error; with `None` it means "not found".
    #[must_use]
    pub fn failed(error: ErrorCode) -> OffsetAnswer {
        OffsetAnswer { error, timestamp: -1, offset: Offset(-1), leader_epoch: LeaderEpoch(-1) }
    }
}

impl EpochAnswer {
    /// An answer that carries nothing but an error.
    #[must_use]
    pub fn failed(error: ErrorCode) -> EpochAnswer {
        EpochAnswer { error, epoch: LeaderEpoch(-1), end_offset: Offset(-1) }
    }
}
