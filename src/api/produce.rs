//! Produce (key 0), versions 3-13.
//!
//! Behaviour
//! - `acks` other than -1, 0 and 1: 21 for every partition there is, nothing is appended.
//! - Per partition, in the order of the request: unknown topic 3 (id: 100), not this node's 6 with
//!   the current leader, a batch that is refused by validation or by the log with its own code.
//!   Failures are per partition.
//! - A partition that is given twice: the last data counts, and it is answered once.
//! - acks=1 and acks=-1 both wait until the batch is durable in the journal. **deviation**: Kafka
//!   answers from the page cache.
//! - acks=0 has no response; an error closes the connection.
//! - A request with a transactional batch: 53 for all of it without a transactional id, 49 for all
//!   of it with two producers; else each partition where the transaction is not open asks the
//!   coordinator first (`transactional.rs` has the table of its answers). The partitions that are
//!   admitted go on. One that is held because the transaction before is ending is answered 7 when
//!   its own time is over before that of the hold: it was not appended.
//! - `log_start_offset` of a refused batch is the log's where Kafka's log refuses it, -1 else.
//! - Internal topics are refused with 17 unless the client is `__admin_client`.
//!
//! Version notes: 7 zstd; 8 record errors (KIP-467); 9 flexible; 10 leader discovery (KIP-951);
//! 11 TRANSACTION_ABORTABLE (KIP-890); 12 the coordinator adds the partition to the transaction;
//! 13 topic ids.

mod transactional;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Response};
use crate::batch::{Reason, Refusal, ValidBatch, ValidateRules, Validator};
use crate::config::TopicConfig;
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, Offset, PartitionIndex, ShardId, TopicId, TopicPartition};
use crate::log::verification::VerificationGuard;
use crate::metadata::Image;
use crate::metadata::image::Topic;
use crate::shard::append::{self, Pending};
use crate::shard::message::{AppendPart, AppendRefusal, Appended, OffsetQuery, Operation, Reply};
use crate::shard::{Context, Shard, offsets};
use crate::wire::encode::EncodeFault;
use crate::wire::header::RequestHeader;
use crate::wire::leader::{CurrentLeader, NodeEndpoint};
use crate::wire::produce::{
    ProduceAnswer, ProducePartitionAnswer, ProduceTopicAnswer, RecordError, encode_produce,
};

/// A response whose batches are in the journal, durable or not.
pub struct PendingResponse {
    version: i16,
    correlation_id: i32,
    acks: i16,
    answer: ProduceAnswer,
    durable_at: JournalSequence,
}

impl PendingResponse {
    /// The newest journal position it depends on.
    #[must_use]
    pub fn durable_at(&self) -> JournalSequence {
        self.durable_at
    }

    /// Tells the code of every partition.
    pub fn each_code(&self, durable: bool, note: &mut dyn FnMut(i16, u32)) {
        for partition in self.answer.topics.iter().flat_map(|topic| &topic.partitions) {
            match partition.error {
                ErrorCode::None if !durable => note(ErrorCode::KafkaStorageError.code(), 1),
                error => note(error.code(), 1),
            }
        }
    }

    /// The frame, or none for acks=0. Without durability every batch that was appended has failed.
    ///
    /// # Errors
    /// A response that cannot be encoded.
    pub fn into_frame(mut self, durable: bool) -> Result<Option<Bytes>, EncodeFault> {
        if !durable {
            for topic in &mut self.answer.topics {
                for partition in &mut topic.partitions {
                    if partition.error.is_none() {
                        *partition = ProducePartitionAnswer::failed(
                            partition.partition,
                            ErrorCode::KafkaStorageError,
                        );
                    }
                }
            }
        }
        if self.acks == 0 {
            return Ok(None);
        }
        encode_produce(self.version, self.correlation_id, &self.answer).map(Some)
    }
}

/// Validates and appends in order, then leaves the waiting to the connection.
pub async fn handle(shard: &Rc<Shard>, header: RequestHeader, request: ProduceRequest) -> Answer {
    let image = shard.catalog();
    let mut work = Work {
        shard: Rc::clone(shard),
        image,
        version: header.api_version,
        acks: request.acks,
        timeout_ms: u64::try_from(request.timeout_ms).unwrap_or(0),
        is_admin: header.client_id.as_deref() == Some(ADMIN_CLIENT),
        topics: Vec::with_capacity(request.topic_data.len()),
        durable_at: JournalSequence(0),
        elsewhere: Vec::new(),
        leaders: Vec::new(),
    };
    let topics = each_once(request.topic_data);
    if topics.iter().any(transactional::is_transactional) {
        match &request.transactional_id {
            Some(id) => work.transactional(id, topics).await,
            None => work.refuse_all(&topics, ErrorCode::TransactionalIdAuthorizationFailed),
        }
    } else {
        for topic in topics {
            work.topic(topic).await;
        }
    }
    work.finish(&header)
}

/// Every topic and partition once, as Kafka takes them: of a partition given twice the last data
/// counts, and a topic without partitions is not answered.
fn each_once(topics: Vec<TopicProduceData>) -> Vec<TopicProduceData> {
    if let [topic] = &topics[..]
        && topic.partition_data.len() == 1
    {
        return topics;
    }
    let mut topic_places = HashMap::new();
    let mut partition_places = HashMap::new();
    let mut once: Vec<TopicProduceData> = Vec::new();
    for mut topic in topics {
        let partitions = std::mem::take(&mut topic.partition_data);
        if partitions.is_empty() {
            continue;
        }
        let key = (topic.name.clone(), topic.topic_id);
        let place = *topic_places.entry(key).or_insert_with(|| {
            once.push(topic);
            once.len() - 1
        });
        let known = &mut once[place].partition_data;
        for partition in partitions {
            match partition_places.entry((place, partition.index)) {
                Entry::Vacant(entry) => {
                    entry.insert(known.len());
                    known.push(partition);
                }
                Entry::Occupied(entry) => known[*entry.get()] = partition,
            }
        }
    }
    once
}

/// One request in progress.
struct Work {
    shard: Rc<Shard>,
    image: Arc<Image>,
    version: i16,
    acks: i16,
    timeout_ms: u64,
    is_admin: bool,
    topics: Vec<ProduceTopicAnswer>,
    durable_at: JournalSequence,
    elsewhere: Vec<Elsewhere>,
    leaders: Vec<ShardId>,
}

/// A partition's place in the answer: topic, and partition in it.
type Place = (usize, usize);

/// A batch that is valid.
struct Ready {
    owner: ShardId,
    id: TopicPartition,
    batch: ValidBatch,
}

/// Batches for another shard, and their places in the answer.
struct Elsewhere {
    owner: ShardId,
    parts: Vec<AppendPart>,
    places: Vec<Place>,
}

impl Work {
    async fn topic(&mut self, data: TopicProduceData) {
        let (place, topic) = self.begin_topic(&data);
        for partition in data.partition_data {
            let index = PartitionIndex(partition.index);
            let answer = match self.checked(topic.as_ref(), partition).await {
                Ok(ready) => self.append(place, index, ready, None).await,
                Err(answer) => answer,
            };
            self.topics[place].partitions.push(answer);
        }
    }

    /// Finds a topic, and begins its answer.
    fn begin_topic(&mut self, data: &TopicProduceData) -> (usize, Result<Arc<Topic>, ErrorCode>) {
        let id = TopicId::from(data.topic_id);
        let topic = if self.version >= 13 {
            self.image.topic_by_id(id).cloned().ok_or(ErrorCode::UnknownTopicId)
        } else {
            let found = self.image.topic(&data.name).cloned();
            found.ok_or(ErrorCode::UnknownTopicOrPartition)
        };
        let place = self.topics.len();
        self.topics.push(ProduceTopicAnswer {
            name: data.name.0.clone(),
            id,
            partitions: Vec::with_capacity(data.partition_data.len()),
        });
        (place, topic)
    }

    /// Checks everything that needs no log; the answer otherwise.
    async fn checked(
        &mut self,
        topic: Result<&Arc<Topic>, &ErrorCode>,
        data: PartitionProduceData,
    ) -> Result<Ready, ProducePartitionAnswer> {
        let index = PartitionIndex(data.index);
        let failed = |code| Err(ProducePartitionAnswer::failed(index, code));
        let topic = match topic {
            Ok(topic) => topic,
            Err(code) => return failed(*code),
        };
        let id = TopicPartition { topic: topic.id, partition: index };
        let Some(owner) = topic.owner(index, self.shard.context.shards) else {
            return failed(ErrorCode::UnknownTopicOrPartition);
        };
        if !matches!(self.acks, -1..=1) {
            return failed(ErrorCode::InvalidRequiredAcks);
        }
        if owner != self.shard.id && !self.shard.context.is_single() {
            return Err(self.not_leader(index, owner));
        }
        if topic.internal && !self.is_admin {
            return failed(ErrorCode::InvalidTopicException);
        }
        let bytes = data.records.as_ref().map_or(0, Bytes::len);
        match self.validate(topic, data.records).await {
            Ok(batch) => Ok(Ready { owner, id, batch }),
            Err(refusal) => {
                self.count_refusal(topic, &refusal, bytes);
                let log_start_offset = match refusal.names_log_start() {
                    true => self.log_start(owner, id).await,
                    false => Offset(-1),
                };
                let refusal = refusal.in_partition(&format!("{}-{index}", topic.name));
                Err(ProducePartitionAnswer { log_start_offset, ..refused(index, refusal) })
            }
        }
    }

    /// Counts a batch that was refused before it came to its log.
    fn count_refusal(&self, topic: &Topic, refusal: &Refusal, bytes: usize) {
        if let Some(limit) = refusal.limit() {
            self.shard.metrics.limit_reached(limit);
        }
        let of_topic = self.shard.metrics.topic(topic.id, &topic.name);
        of_topic.add(|of| &of.produce_requests, 1);
        of_topic.add(|of| &of.failed_produce_requests, 1);
        match &refusal.reason {
            Reason::MagicOld { .. } | Reason::MagicUnknown(_) => {
                of_topic.add(|of| &of.invalid_magic, 1);
            }
            Reason::CrcMismatch { .. } => of_topic.add(|of| &of.invalid_crc, 1),
            Reason::BaseOffset(_)
            | Reason::OffsetRange { .. }
            | Reason::CountMismatch { .. }
            | Reason::OffsetDelta { .. }
            | Reason::Sequence { .. } => of_topic.add(|of| &of.invalid_sequence, 1),
            Reason::RecordErrors { .. } => of_topic.add(|of| &of.no_key, 1),
            Reason::TooLarge { .. } | Reason::AboveSegment { .. } => {
                of_topic.add(|of| &of.bytes_rejected, bytes as u64);
            }
            _ => {}
        }
    }

    /// Start of a log, here or at its owner; -1 if it is gone.
    async fn log_start(&self, owner: ShardId, id: TopicPartition) -> Offset {
        let query = OffsetQuery {
            partition: id,
            timestamp: offsets::EARLIEST,
            leader_epoch: -1,
            committed_only: false,
            to_log_end: false,
            version: 0,
        };
        match self.shard.ask(owner, Operation::ListOffsets(vec![query])).await {
            Reply::Offsets(answers) => answers.first().map_or(Offset(-1), |answer| answer.offset),
            _ => Offset(-1),
        }
    }

    /// Appends, or has it done by the shard that owns the partition: then the answer comes later.
    async fn append(
        &mut self,
        topic: usize,
        index: PartitionIndex,
        ready: Ready,
        guard: Option<VerificationGuard>,
    ) -> ProducePartitionAnswer {
        let Ready { owner, id, batch } = ready;
        if owner == self.shard.id {
            return match append::append(&self.shard, id, &batch, guard).await {
                Ok(Pending { appended, durable_at }) => {
                    self.durable_at = self.durable_at.max(durable_at);
                    answered(index, &appended)
                }
                Err(refusal) => refused_by_log(index, &refusal),
            };
        }
        let at = (topic, self.topics[topic].partitions.len());
        self.elsewhere(owner, AppendPart { partition: id, batch, guard }, at);
        ProducePartitionAnswer::failed(index, ErrorCode::UnknownServerError)
    }

    fn elsewhere(&mut self, owner: ShardId, part: AppendPart, at: Place) {
        let known = self.elsewhere.iter_mut().find(|elsewhere| elsewhere.owner == owner);
        match known {
            Some(elsewhere) => {
                elsewhere.parts.push(part);
                elsewhere.places.push(at);
            }
            None => self.elsewhere.push(Elsewhere { owner, parts: vec![part], places: vec![at] }),
        }
    }

    async fn validate(&self, topic: &Topic, records: Option<Bytes>) -> Result<ValidBatch, Refusal> {
        let rules = rules_of(&topic.config, self.version);
        let now_ms = self.shard.runtime.wall_ms();
        let memory_bytes = self.shard.lanes.batch_bytes_max();
        let start = || Validator::start(records.clone(), &rules, now_ms).within(memory_bytes);
        self.shard.through_records(start).await
    }

    fn not_leader(&mut self, index: PartitionIndex, owner: ShardId) -> ProducePartitionAnswer {
        if !self.leaders.contains(&owner) {
            self.leaders.push(owner);
        }
        ProducePartitionAnswer {
            current_leader: Some(current_leader(&self.shard.context, owner)),
            ..ProducePartitionAnswer::failed(index, ErrorCode::NotLeaderOrFollower)
        }
    }

    fn finish(self, header: &RequestHeader) -> Answer {
        let context = &self.shard.context;
        let answer = ProduceAnswer {
            topics: self.topics,
            throttle_time_ms: 0,
            node_endpoints: self.leaders.iter().map(|&owner| endpoint(context, owner)).collect(),
        };
        let mut pending = PendingResponse {
            version: self.version,
            correlation_id: header.correlation_id,
            acks: self.acks,
            answer,
            durable_at: self.durable_at,
        };
        if self.elsewhere.is_empty() {
            return match self.acks {
                0 if any_failed(&pending.answer) => Answer::Now(Response::Close),
                0 => Answer::None,
                _ => Answer::Now(Response::Produce(Box::new(pending))),
            };
        }
        // Sent now, in order; awaited later.
        let call = |elsewhere: Elsewhere| {
            let operation = Operation::Append(elsewhere.parts);
            (self.shard.links.call(elsewhere.owner, operation), elsewhere.places)
        };
        let calls: Vec<_> = self.elsewhere.into_iter().map(call).collect();
        let shard = self.shard;
        Answer::Later(Box::pin(async move {
            for (slot, places) in calls {
                fill_in(&mut pending.answer, &places, slot.take().await);
            }
            shard.links.ready_for_admission().await;
            if pending.acks == 0 && any_failed(&pending.answer) {
                return Response::Close;
            }
            Response::Produce(Box::new(pending))
        }))
    }
}

fn any_failed(answer: &ProduceAnswer) -> bool {
    answer.topics.iter().flat_map(|topic| &topic.partitions).any(|p| !p.error.is_none())
}

fn fill_in(answer: &mut ProduceAnswer, places: &[Place], reply: Reply) {
    let Reply::Appended(outcomes) = reply else { return };
    for (&(topic, place), outcome) in places.iter().zip(outcomes) {
        let partition = &mut answer.topics[topic].partitions[place];
        *partition = match outcome {
            Ok(appended) => answered(partition.partition, &appended),
            Err(refusal) => refused_by_log(partition.partition, &refusal),
        };
    }
}

fn answered(index: PartitionIndex, appended: &Appended) -> ProducePartitionAnswer {
    ProducePartitionAnswer {
        base_offset: appended.base_offset,
        log_append_time_ms: appended.log_append_time_ms,
        log_start_offset: appended.log_start,
        ..ProducePartitionAnswer::failed(index, ErrorCode::None)
    }
}

fn refused_by_log(index: PartitionIndex, refusal: &AppendRefusal) -> ProducePartitionAnswer {
    ProducePartitionAnswer {
        log_start_offset: refusal.log_start,
        ..ProducePartitionAnswer::failed(index, refusal.code)
    }
}

fn refused(index: PartitionIndex, refusal: Refusal) -> ProducePartitionAnswer {
    let record_errors = refusal.record_errors.into_iter().map(|(batch_index, message)| {
        RecordError { batch_index, message: message.map(StrBytes::from_string) }
    });
    ProducePartitionAnswer {
        record_errors: record_errors.collect(),
        error_message: refusal.message.map(StrBytes::from_string),
        ..ProducePartitionAnswer::failed(index, refusal.code)
    }
}

fn rules_of(config: &TopicConfig, produce_version: i16) -> ValidateRules {
    ValidateRules {
        produce_version,
        timestamp_type: config.timestamp_type,
        before_max_ms: config.timestamp_before_max_ms,
        after_max_ms: config.timestamp_after_max_ms,
        compression: config.compression,
        max_message_bytes: config.max_message_bytes,
        segment_bytes: config.segment_bytes as usize,
        keys_required: config.cleanup.compact,
    }
}

/// The leader that an answer names.
#[must_use]
pub fn current_leader(context: &Context, owner: ShardId) -> CurrentLeader {
    CurrentLeader { leader_id: context.node_of(owner), leader_epoch: context.leader_epoch() }
}

/// Where a shard is reached.
#[must_use]
pub fn endpoint(context: &Context, owner: ShardId) -> NodeEndpoint {
    let id = context.node_of(owner);
    let node = context.nodes.iter().find(|node| node.id == id);
    let (host, port) = node.map_or(("", 0), |node| (node.host.as_str(), node.port));
    NodeEndpoint {
        node_id: id,
        host: StrBytes::from_string(host.to_owned()),
        port: i32::from(port),
        rack: None,
    }
}

/// The client id that may write internal topics.
const ADMIN_CLIENT: &str = "__admin_client";
