//! Fetch (key 1), versions 4-18.
//!
//! Behaviour
//! - A partition that is asked for twice: the last one counts.
//! - Per partition: unknown id 100, unknown name 3, not this node's 6 with the current leader (v12+
//!   tags), leader epoch 74/75, offset outside [log start, log end] 1, diverging epoch (v12+).
//! - Whole batches only, from the one that contains the offset; the first partition with data
//!   returns at least one batch whatever the limits. **deviation**: Kafka may cut a batch.
//! - read_committed is bounded by the last stable offset and carries a list of aborted
//!   transactions, otherwise the list is null.
//! - Long poll: answers at once when nothing is to be read, on any error, or with `min_bytes`;
//!   else when a watched bound moves or the time is over, read again from scratch.
//! - Incremental sessions (v7+) per shard; an unknown session is 70, a wrong epoch 71.
//! - Follower fetches are refused with 31 per partition: there is one replica.
//!
//! Version notes: 5 log start; 7 sessions; 9 leader epoch; 11 rack; 12 flexible, diverging epoch;
//! 13 topic ids; 15 replica state tag; 16 node endpoints; 17 directory id; 18 high watermark tag.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::list_offsets::is_served;
use super::produce::{current_leader, endpoint};
use crate::batch::header::{FRAME_BYTES, peek_frame};
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, Offset, PartitionIndex, ShardId, TopicId, TopicPartition};
use crate::limits::FETCH_BYTES_GRANTED_MIN;
use crate::metadata::Image;
use crate::metadata::image::Topic;
use crate::metrics::stages::Stage;
use crate::shard::Shard;
use crate::shard::by_owner::ByOwner;
use crate::shard::connection::Connection;
use crate::shard::fetch_session::{
    PartitionKey, SessionPlan, SessionRequest, Told, TopicKey, Wanted,
};
use crate::shard::message::{Operation, ReadOutcome, ReadPart, ReadParts, Reply, WatchPart};
use crate::shard::partition::Waiter;
use crate::shard::watch::Watching;
use crate::wire::codes::Codes;
use crate::wire::gather::{FetchAnswer, FetchPartitionAnswer, FetchTopicAnswer, encode_fetch};
use crate::wire::header::RequestHeader;

/// Answers a request, perhaps after a while.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: Box<FetchRequest>,
) -> Response {
    let fetch_max = usize::try_from(shard.context.config.fetch_max_bytes).unwrap_or(0);
    // One response must not take all the memory that the connections of the shard have.
    let fetch_max = fetch_max.min(shard.connection_memory.bytes_max() / 2);
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(fetch_max);
    let limits = Limits {
        bytes_max,
        bytes_min: usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_max),
        wait_ms: u64::try_from(request.max_wait_ms).unwrap_or(0),
        committed_only: request.isolation_level == 1,
        follower: request.replica_id.0 >= 0 || request.replica_state.replica_id.0 >= 0,
    };
    let by_id = header.api_version >= 13;
    let now = shard.runtime.now();
    let plan = shard.sessions.borrow_mut().begin(session_request(&header, &request), now);
    let plan = match plan {
        Ok(plan) => plan,
        Err(code) => return encode(&header, answer_of(code, 0)),
    };
    let (session, wanted) = match plan {
        SessionPlan::Sessionless(wanted) => (Session::None, wanted),
        SessionPlan::Full(wanted) if header.api_version < 7 => (Session::None, wanted),
        SessionPlan::Full(wanted) => (Session::New, wanted),
        SessionPlan::Incremental { session_id, partitions } => {
            (Session::Known(session_id), partitions)
        }
    };
    let fetch = Fetch { shard: Rc::clone(&shard), connection, limits, wanted };
    let read = fetch.run().await;
    let answer = fetch.answer(&header, session, by_id, read);
    encode(&header, answer)
}

fn encode(header: &RequestHeader, answer: FetchAnswer) -> Response {
    let codes = codes_of(&answer);
    match encode_fetch(header.api_version, header.correlation_id, answer) {
        // Everything read is below the high watermark, so it is durable already.
        Ok(frames) => Response::Frames { frames, durable_at: JournalSequence(0), codes },
        Err(fault) => Response::fault(header, &fault),
    }
}

/// The codes of its partitions, or the one of all.
fn codes_of(answer: &FetchAnswer) -> Codes {
    let mut codes = Codes::default();
    if !answer.error.is_none() {
        codes.note(answer.error.code());
    }
    for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        codes.note(partition.error.code());
    }
    codes
}

fn answer_of(error: ErrorCode, session_id: i32) -> FetchAnswer {
    FetchAnswer {
        throttle_time_ms: 0,
        error,
        session_id,
        topics: Vec::new(),
        node_endpoints: Vec::new(),
    }
}

fn session_request(header: &RequestHeader, request: &FetchRequest) -> SessionRequest {
    let by_id = header.api_version >= 13;
    let key = |name: &str, id: TopicId| {
        if by_id { TopicKey::Id(id) } else { TopicKey::Name(name.into()) }
    };
    let mut partitions = Vec::new();
    let mut places = HashMap::new();
    for topic in &request.topics {
        let topic_key = key(&topic.topic, topic.topic_id.into());
        for partition in &topic.partitions {
            let wanted = Wanted {
                offset: Offset(partition.fetch_offset),
                bytes_max: partition.partition_max_bytes,
                leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
            };
            let key = (topic_key.clone(), PartitionIndex(partition.partition));
            match places.insert(key.clone(), partitions.len()) {
                None => partitions.push((key, wanted)),
                Some(place) => {
                    partitions[place].1 = wanted;
                    places.insert(key, place);
                }
            }
        }
    }
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let topic_key = key(&topic.topic, topic.topic_id.into());
        for &partition in &topic.partitions {
            forgotten.push((topic_key.clone(), PartitionIndex(partition)));
        }
    }
    SessionRequest {
        session_id: request.session_id,
        epoch: if header.api_version < 7 { -1 } else { request.session_epoch },
        by_id,
        partitions,
        forgotten,
    }
}

/// The session that an answer belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    None,
    New,
    Known(i32),
}

struct Limits {
    bytes_max: usize,
    bytes_min: usize,
    wait_ms: u64,
    committed_only: bool,
    follower: bool,
}

struct Fetch {
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    limits: Limits,
    wanted: Vec<(PartitionKey, Wanted)>,
}

/// What was read, one entry per wanted partition.
struct Read {
    parts: Vec<PartRead>,
    bytes: usize,
    /// Something is to be answered at once.
    urgent: bool,
}

struct PartRead {
    topic: Option<Arc<Topic>>,
    owner: Option<ShardId>,
    outcome: ReadOutcome,
}

impl Fetch {
    async fn run(&self) -> Read {
        let deadline = self.shard.runtime.now().plus_ms(self.limits.wait_ms);
        let mut seen = Vec::new();
        loop {
            let (read, is_cut) = self.read_granted().await;
            let over = self.limits.wait_ms == 0
                || is_cut
                || self.connection.is_hurried()
                || self.shard.runtime.now() >= deadline;
            if over
                || read.urgent
                || read.bytes >= self.limits.bytes_min
                || self.wanted.is_empty()
                || self.connection.is_closed()
                || self.shard.is_stopping()
            {
                return read;
            }
            let watched = self.watched(&read);
            if watched == seen {
                // Nothing has moved, and yet it could not wait: too many wait already.
                return read;
            }
            // A new one each time: what the last one registered is of no more use.
            let waiter = Waiter::new();
            let Some(watching) = Watching::start(&self.shard, &waiter, &watched).await else {
                seen = watched;
                continue;
            };
            seen.clear();
            self.shard.metrics.parked_fetches.add(1);
            self.shard.metrics.fetches_waiting.add(1);
            self.connection.park(&waiter);
            let timer = self.shard.runtime.sleep_until(deadline);
            let moved = futures_lite::future::or(watching.moved(), timer);
            self.shard.spend(Stage::Park, moved).await;
            self.shard.metrics.fetches_waiting.add(-1);
        }
    }

    fn watched(&self, read: &Read) -> Vec<WatchPart> {
        let committed_only = self.limits.committed_only;
        let parts = self.wanted.iter().zip(&read.parts);
        parts
            .filter_map(|((key, _), part)| {
                let topic = part.topic.as_ref()?;
                let partition = TopicPartition { topic: topic.id, partition: key.1 };
                let outcome = &part.outcome;
                let seen = if committed_only {
                    outcome.last_stable_offset
                } else {
                    outcome.high_watermark
                };
                Some(WatchPart { partition, seen, committed_only })
            })
            .collect()
    }

    /// Reads into memory that is granted first, and says whether that was less than asked for and
    /// yet something was read.
    async fn read_granted(&self) -> (Read, bool) {
        let budget = &self.shard.connection_memory;
        let bytes_max = self.limits.bytes_max;
        let little = || self.connection.holds_little();
        let granted = budget.take_up_to(little, bytes_max, FETCH_BYTES_GRANTED_MIN).await;
        let read = self.read(granted.bytes().min(bytes_max)).await;
        let is_cut = granted.bytes() < bytes_max && read.bytes > 0;
        // From here on the response is counted, as soon as it is whole.
        (read, is_cut)
    }

    async fn read(&self, bytes_max: usize) -> Read {
        let image = self.shard.catalog();
        let mut parts: Vec<PartRead> =
            self.wanted.iter().map(|(key, _)| self.resolve(&image, key)).collect();
        for (owner, places, wanted) in self.by_owner(&parts) {
            let request = ReadParts { parts: wanted, bytes_max, at_least_one: true };
            let Reply::Read(outcomes) = self.shard.ask(owner, Operation::Read(request)).await
            else {
                continue;
            };
            for (place, outcome) in places.into_iter().zip(outcomes) {
                parts[place].outcome = outcome;
            }
        }
        self.trim(&mut parts, bytes_max);
        let bytes = parts.iter().map(|part| part.outcome.bytes).sum();
        let urgent = parts
            .iter()
            .any(|part| !part.outcome.error.is_none() || part.outcome.diverging_epoch.is_some());
        Read { parts, bytes, urgent }
    }

    /// Several shards each returned their first batch whatever its size, and stayed within the
    /// limit of the whole after it; together they must too.
    fn trim(&self, parts: &mut [PartRead], most: usize) {
        let mut bytes = 0usize;
        for ((_, wanted), part) in self.wanted.iter().zip(parts) {
            let outcome = &mut part.outcome;
            let left = most.saturating_sub(bytes);
            let bytes_max = usize::try_from(wanted.bytes_max).unwrap_or(0).min(left);
            if bytes > 0 && outcome.bytes > bytes_max {
                outcome.bytes = cut_to_whole_batches(&mut outcome.records, bytes_max);
            }
            bytes += outcome.bytes;
        }
    }

    fn resolve(&self, image: &Image, key: &PartitionKey) -> PartRead {
        let (topic, unknown) = match &key.0 {
            TopicKey::Name(name) => (image.topic(name), ErrorCode::UnknownTopicOrPartition),
            TopicKey::Id(id) => (image.topic_by_id(*id), ErrorCode::UnknownTopicId),
        };
        let failed = |topic: Option<&Arc<Topic>>, owner, code| PartRead {
            topic: topic.cloned(),
            owner,
            outcome: ReadOutcome::failed(code),
        };
        let Some(topic) = topic else { return failed(None, None, unknown) };
        if self.limits.follower {
            return failed(Some(topic), None, ErrorCode::ClusterAuthorizationFailed);
        }
        match topic.owner(key.1, self.shard.context.shards) {
            None => failed(Some(topic), None, ErrorCode::UnknownTopicOrPartition),
            Some(owner) if is_served(&self.shard, owner) => {
                failed(Some(topic), Some(owner), ErrorCode::None)
            }
            Some(owner) => failed(Some(topic), Some(owner), ErrorCode::NotLeaderOrFollower),
        }
    }

    fn by_owner(&self, parts: &[PartRead]) -> ByOwner<usize, ReadPart> {
        // Most fetches are of one shard.
        let mut asked = ByOwner::with_room(parts.len());
        for (place, part) in parts.iter().enumerate() {
            if let (Some(owner), true) = (part.owner, part.outcome.error.is_none()) {
                asked.add(owner, place, self.part(part, place));
            }
        }
        asked
    }

    fn part(&self, part: &PartRead, place: usize) -> ReadPart {
        let (key, wanted) = &self.wanted[place];
        ReadPart {
            partition: TopicPartition {
                topic: part.topic.as_ref().map(|topic| topic.id).unwrap_or_default(),
                partition: key.1,
            },
            offset: wanted.offset,
            bytes_max: usize::try_from(wanted.bytes_max).unwrap_or(0),
            leader_epoch: wanted.leader_epoch,
            last_fetched_epoch: wanted.last_fetched_epoch,
            committed_only: self.limits.committed_only,
        }
    }

    fn answer(
        &self,
        header: &RequestHeader,
        session: Session,
        by_id: bool,
        read: Read,
    ) -> FetchAnswer {
        let told: Vec<(PartitionKey, Told)> = self
            .wanted
            .iter()
            .zip(&read.parts)
            .map(|((key, _), part)| (key.clone(), told_of(&part.outcome)))
            .collect();
        let (session_id, included) = self.settle_session(session, by_id, told);
        let mut answer = answer_of(ErrorCode::None, session_id);
        let mut places: HashMap<TopicKey, usize> = HashMap::new();
        let mut leaders: Vec<ShardId> = Vec::new();
        for (place, part) in read.parts.into_iter().enumerate() {
            if !included[place] {
                continue;
            }
            let (key, _) = &self.wanted[place];
            let topic = *places.entry(key.0.clone()).or_insert_with(|| {
                answer.topics.push(topic_answer(&key.0));
                answer.topics.len() - 1
            });
            let moved = part.outcome.error == ErrorCode::NotLeaderOrFollower;
            let leader = part.owner.filter(|_| moved);
            if let Some(owner) = leader
                && !leaders.contains(&owner)
            {
                leaders.push(owner);
            }
            self.count(&part);
            let mut partition = self.partition_answer(header, key.1, leader, part.outcome);
            if part.owner.is_none() {
                // As in Kafka, null is for what was looked at, an empty list for what was not.
                partition.aborted = FetchPartitionAnswer::failed(key.1, partition.error).aborted;
            }
            answer.topics[topic].partitions.push(partition);
        }
        let context = &self.shard.context;
        answer.node_endpoints = leaders.iter().map(|&owner| endpoint(context, owner)).collect();
        answer
    }

    /// Counts what is answered of one partition.
    fn count(&self, part: &PartRead) {
        let Some(topic) = &part.topic else { return };
        let outcome = &part.outcome;
        if outcome.bytes == 0 && outcome.error.is_none() {
            return;
        }
        let topic = self.shard.metrics.topic(topic.id, &topic.name);
        topic.add(|of| &of.bytes_out, outcome.bytes as u64);
        topic.add(|of| &of.failed_fetch_requests, u64::from(!outcome.error.is_none()));
    }

    /// Takes over what will be told; returns the session's id and which partitions are told.
    fn settle_session(
        &self,
        session: Session,
        by_id: bool,
        told: Vec<(PartitionKey, Told)>,
    ) -> (i32, Vec<bool>) {
        let all = vec![true; told.len()];
        let mut sessions = self.shard.sessions.borrow_mut();
        match session {
            Session::None => (0, all),
            Session::Known(id) => (id, sessions.update(id, &told)),
            Session::New => {
                let partitions = self
                    .wanted
                    .iter()
                    .zip(told)
                    .map(|((key, wanted), (_, told))| (key.clone(), *wanted, told))
                    .collect();
                let now = self.shard.runtime.now();
                let random = || self.shard.runtime.random();
                (sessions.create(by_id, partitions, now, random), all)
            }
        }
    }

    fn partition_answer(
        &self,
        header: &RequestHeader,
        index: PartitionIndex,
        leader: Option<ShardId>,
        outcome: ReadOutcome,
    ) -> FetchPartitionAnswer {
        // Clients up to v5 do not know the code for a failing disk.
        let error = match outcome.error {
            ErrorCode::KafkaStorageError if header.api_version <= 5 => {
                ErrorCode::NotLeaderOrFollower
            }
            error => error,
        };
        FetchPartitionAnswer {
            partition: index,
            error,
            high_watermark: outcome.high_watermark,
            last_stable_offset: outcome.last_stable_offset,
            log_start_offset: outcome.log_start,
            diverging_epoch: outcome.diverging_epoch,
            current_leader: leader.map(|owner| current_leader(&self.shard.context, owner)),
            aborted: outcome.aborted,
            records: outcome.records,
        }
    }
}

/// Keeps the batches that fit into `bytes_max`; returns their bytes.
fn cut_to_whole_batches(slices: &mut Vec<Bytes>, bytes_max: usize) -> usize {
    let mut kept = 0usize;
    let mut frame = [0; FRAME_BYTES];
    while copy_at(slices, kept, &mut frame)
        && let Some((_, bytes)) = peek_frame(&frame)
        && kept + bytes <= bytes_max
    {
        kept += bytes;
    }
    let mut left = kept;
    slices.retain_mut(|slice| {
        slice.truncate(left);
        left -= slice.len();
        !slice.is_empty()
    });
    kept
}

/// Fills `into` from position `at` of the slices taken together; `false` if they end before.
fn copy_at(slices: &[Bytes], at: usize, into: &mut [u8]) -> bool {
    let (mut skip, mut filled) = (at, 0);
    for slice in slices {
        let from = skip.min(slice.len());
        skip -= from;
        let taken = (slice.len() - from).min(into.len() - filled);
        into[filled..filled + taken].copy_from_slice(&slice[from..from + taken]);
        filled += taken;
    }
    filled == into.len()
}

fn told_of(outcome: &ReadOutcome) -> Told {
    Told {
        error: outcome.error,
        high_watermark: outcome.high_watermark,
        log_start: outcome.log_start,
        has_records: outcome.bytes > 0,
        diverges: outcome.diverging_epoch.is_some(),
    }
}

fn topic_answer(key: &TopicKey) -> FetchTopicAnswer {
    let (name, id) = match key {
        TopicKey::Name(name) => (StrBytes::from_string(String::from(&**name)), TopicId::ZERO),
        TopicKey::Id(id) => (StrBytes::default(), *id),
    };
    FetchTopicAnswer { name, id, partitions: Vec::new() }
}
