//! Clients of a simulated broker: what they do is drawn from the seed, what they are told goes to
//! the oracle.
//!
//! Owns producers that outlive crashes, as real ones do: a batch without an answer is sent again,
//! unchanged and in order, until it has one. Must never hold a borrow over an await.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ringlog::batch::ValidBatch;
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, ProducerId, ShardId, TopicPartition};
use ringlog::metadata::topics::CreateTopic;
use ringlog::shard::message::{AppendPart, CatalogChange, CatalogOutcome, Operation, Reply};
use ringlog::shard::{Shard, producer_ids};
use ringlog::sim::Random;
use ringlog::sim::checker::{AttemptId, Session};

use crate::batches::{self, Sender};
use crate::machine::Cluster;
use crate::oracle::{self, Oracle, TopicState};
use crate::starts;

/// An idempotent producer.
#[derive(Default)]
pub struct Producer {
    id: Option<ProducerId>,
    streams: BTreeMap<TopicPartition, Stream>,
}

/// What a producer has sent to one partition.
#[derive(Default)]
struct Stream {
    next_sequence: i32,
    unanswered: VecDeque<Sent>,
    last_acked: Option<(Sent, Offset)>,
}

#[derive(Clone)]
struct Sent {
    attempt: AttemptId,
    batch: ValidBatch,
    records: usize,
}

/// How much of what.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// One value in so many is large.
    pub large_one_in: u64,
    /// Most bytes of a large value.
    pub large_bytes_max: u64,
    /// Chance of operations on topics, in a thousand.
    pub topic_changes: u64,
    /// Whether records are deleted, by topics' settings and on request.
    pub deletions: bool,
}

/// A client of one boot.
pub struct Client {
    pub cluster: Rc<Cluster>,
    pub oracle: Rc<RefCell<Oracle>>,
    pub producer: Rc<RefCell<Producer>>,
    pub random: Random,
    pub mix: Mix,
    /// Refusals with 56 are no violation: the broker is stopping, or the disk has a fault.
    pub may_fail: Rc<Cell<bool>>,
}

impl Client {
    /// Does so many things, one after the other.
    pub async fn run(mut self, operations: u64) {
        for _ in 0..operations {
            let front = self.front();
            if front.is_stopping() {
                return;
            }
            if let Err(what) = self.act(&front).await {
                self.oracle.borrow_mut().violated(what);
            }
        }
    }

    async fn act(&mut self, front: &Rc<Shard>) -> Result<(), String> {
        let usable = self.oracle.borrow().usable();
        let draw = self.random.below(1_000);
        if usable.is_empty() || draw < self.mix.topic_changes {
            return match self.random.chance(2, 5) && !usable.is_empty() {
                true => self.delete(front, &usable).await,
                false => self.create(front).await,
            };
        }
        let tp = usable[self.random.index(usable.len())];
        match self.random.below(100) {
            0..45 => self.produce(front, tp).await,
            45..60 => self.produce_plainly(front, tp).await,
            60..68 => self.send_again(front, tp).await,
            68..84 => self.read(front, tp).await,
            84..88 => self.checkpoint(front).await,
            88..92 => self.write_behind(),
            92..93 => self.use_what_is_gone(front).await,
            93..95 if self.mix.deletions => self.delete_records(front, tp).await,
            _ => self.pause(front).await,
        }
    }

    fn front(&mut self) -> Rc<Shard> {
        let shards = &self.cluster.shards;
        Rc::clone(&shards[self.random.index(shards.len())])
    }

    /// Sends what has no answer yet, and up to three new batches, in one request.
    pub async fn produce(&mut self, front: &Rc<Shard>, tp: TopicPartition) -> Result<(), String> {
        let Some(id) = self.producer_id(front).await else { return Ok(()) };
        let new = 1 + self.random.below(3);
        for _ in 0..new {
            self.add_batch(front, tp, id);
        }
        let sent: Vec<Sent> = {
            let mut producer = self.producer.borrow_mut();
            producer.streams.entry(tp).or_default().unanswered.iter().cloned().collect()
        };
        let state = self.oracle.borrow().state(tp.topic);
        let outcomes = self.append(front, tp, &sent).await?;
        let mut earlier_failed = false;
        for (sent, outcome) in sent.iter().zip(outcomes) {
            match outcome {
                Ok(base) => self.answered(tp, sent, base, state)?,
                Err(ErrorCode::UnknownTopicOrPartition) => return self.topic_is_gone(tp),
                Err(ErrorCode::KafkaStorageError) if self.may_fail.get() => earlier_failed = true,
                Err(ErrorCode::OutOfOrderSequenceNumber) if earlier_failed => {}
                Err(code) => return Err(format!("an append to {tp:?} is refused: {code:?}")),
            }
        }
        Ok(())
    }

    async fn producer_id(&mut self, front: &Rc<Shard>) -> Option<ProducerId> {
        let known = self.producer.borrow().id;
        if known.is_some() && !self.random.chance(1, 100) {
            return known;
        }
        let id = producer_ids::next(front).await;
        match id {
            Ok(id) => {
                self.oracle.borrow_mut().producer_id(id.0);
                *self.producer.borrow_mut() = Producer { id: Some(id), ..Producer::default() };
                Some(id)
            }
            Err(_) if self.may_fail.get() => None,
            Err(code) => {
                self.oracle.borrow_mut().violated(format!("no producer id: {code:?}"));
                None
            }
        }
    }

    fn add_batch(&mut self, front: &Rc<Shard>, tp: TopicPartition, id: ProducerId) {
        let (base_sequence, waiting) = {
            let mut producer = self.producer.borrow_mut();
            let stream = producer.streams.entry(tp).or_default();
            (stream.next_sequence, stream.unanswered.len())
        };
        if waiting >= UNANSWERED_MAX {
            return;
        }
        let sender = Sender { id, base_sequence };
        let session = Session(id.0.cast_unsigned());
        let Some(sent) = self.make(front, tp, Some((sender, session))) else { return };
        let mut producer = self.producer.borrow_mut();
        let stream = producer.streams.entry(tp).or_default();
        stream.next_sequence += sent.records as i32;
        stream.unanswered.push_back(sent);
    }

    fn make(
        &mut self,
        front: &Rc<Shard>,
        tp: TopicPartition,
        sender: Option<(Sender, Session)>,
    ) -> Option<Sent> {
        let topic = front.catalog().topic_by_id(tp.topic).cloned()?;
        let count = 1 + self.random.index(4);
        let value_bytes = match self.random.chance(1, self.mix.large_one_in) {
            true => self.random.below(self.mix.large_bytes_max),
            false => self.random.below(600),
        };
        let records = self.oracle.borrow_mut().records(count);
        let now_ms = front.runtime.wall_ms();
        let of_sender = sender.map(|(sender, _)| sender);
        let bytes = value_bytes as usize;
        let random = &mut self.random;
        let batch = batches::batch(&topic.config, of_sender, &records, bytes, now_ms, random)?;
        let session = sender.map(|(_, session)| session);
        let attempt = self.oracle.borrow_mut().attempt(tp, session, records);
        Some(Sent { attempt, batch, records: count })
    }

    async fn append(
        &self,
        front: &Rc<Shard>,
        tp: TopicPartition,
        sent: &[Sent],
    ) -> Result<Vec<Result<Offset, ErrorCode>>, String> {
        let Some(owner) = front.owner(tp) else {
            return Ok(sent.iter().map(|_| Err(ErrorCode::UnknownTopicOrPartition)).collect());
        };
        let parts = sent
            .iter()
            .map(|sent| AppendPart { partition: tp, batch: sent.batch.clone(), guard: None })
            .collect();
        match front.ask(owner, Operation::Append(parts)).await {
            Reply::Appended(outcomes) if outcomes.len() == sent.len() => {
                let bases = outcomes.into_iter();
                Ok(bases
                    .map(|outcome| {
                        let base = outcome.map(|appended| appended.base_offset);
                        base.map_err(|refusal| refusal.code)
                    })
                    .collect())
            }
            other => Err(format!("an append was answered with {other:?}")),
        }
    }

    fn answered(
        &self,
        tp: TopicPartition,
        sent: &Sent,
        base: Offset,
        state_when_sent: TopicState,
    ) -> Result<(), String> {
        if state_when_sent == TopicState::Deleted {
            return Err(format!("an append to {tp:?}, which is deleted, succeeded at {base}"));
        }
        self.oracle.borrow_mut().acked(tp, sent.attempt, base, sent.records);
        let mut producer = self.producer.borrow_mut();
        let stream = producer.streams.entry(tp).or_default();
        stream.unanswered.retain(|waiting| waiting.attempt != sent.attempt);
        stream.last_acked = Some((sent.clone(), base));
        Ok(())
    }

    /// An answer says that the topic is unknown, which it may be only once it is being deleted.
    pub fn topic_is_gone(&self, tp: TopicPartition) -> Result<(), String> {
        self.producer.borrow_mut().streams.remove(&tp);
        match self.oracle.borrow().state(tp.topic) {
            TopicState::Created => Err(format!("{tp:?}, created, is unknown")),
            TopicState::Deleting | TopicState::Deleted => Ok(()),
        }
    }

    /// Appends one small batch; the answer.
    pub async fn append_one(
        &mut self,
        front: &Rc<Shard>,
        tp: TopicPartition,
    ) -> Result<(), ErrorCode> {
        let sent = self.make(front, tp, None).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let outcomes = self.append(front, tp, std::slice::from_ref(&sent)).await;
        let base = outcomes.map_err(|_| ErrorCode::UnknownServerError)?.remove(0)?;
        self.oracle.borrow_mut().acked(tp, sent.attempt, base, sent.records);
        Ok(())
    }

    /// A producer without idempotence, which never sends anything twice.
    async fn produce_plainly(
        &mut self,
        front: &Rc<Shard>,
        tp: TopicPartition,
    ) -> Result<(), String> {
        let Some(sent) = self.make(front, tp, None) else { return Ok(()) };
        let state = self.oracle.borrow().state(tp.topic);
        let outcomes = self.append(front, tp, std::slice::from_ref(&sent)).await?;
        match outcomes[0] {
            Ok(_) if state == TopicState::Deleted => Err(format!("{tp:?} is deleted, not refused")),
            Ok(base) => {
                self.oracle.borrow_mut().acked(tp, sent.attempt, base, sent.records);
                Ok(())
            }
            Err(ErrorCode::UnknownTopicOrPartition) => self.topic_is_gone(tp),
            Err(ErrorCode::KafkaStorageError) if self.may_fail.get() => Ok(()),
            Err(code) => Err(format!("an append to {tp:?} is refused: {code:?}")),
        }
    }

    /// Sends the last acknowledged batch again: the answer must be the same.
    async fn send_again(&mut self, front: &Rc<Shard>, tp: TopicPartition) -> Result<(), String> {
        let last = {
            let producer = self.producer.borrow();
            producer.streams.get(&tp).and_then(|stream| stream.last_acked.clone())
        };
        let Some((sent, base)) = last else { return Ok(()) };
        let outcomes = self.append(front, tp, std::slice::from_ref(&sent)).await?;
        match outcomes[0] {
            Ok(again) if again == base => Ok(()),
            Ok(again) => Err(format!("a batch of {tp:?} at {base} is at {again} when sent again")),
            Err(ErrorCode::UnknownTopicOrPartition) => self.topic_is_gone(tp),
            Err(ErrorCode::KafkaStorageError) if self.may_fail.get() => Ok(()),
            Err(code) => Err(format!("a batch of {tp:?} at {base}, sent again: {code:?}")),
        }
    }

    async fn read(&mut self, front: &Rc<Shard>, tp: TopicPartition) -> Result<(), String> {
        let end = self.oracle.borrow().end(tp);
        let offset = Offset(self.random.below(end.0.cast_unsigned() + 1).cast_signed());
        let bytes_max = 1 + self.random.index(200_000);
        let start = self.oracle.borrow().starts.known(tp);
        let outcome = oracle::read(front, tp, offset, bytes_max).await?;
        match outcome.error {
            ErrorCode::None if offset < start => {
                Err(format!("{tp:?} was read at {offset}, below its start {start}"))
            }
            ErrorCode::None => {
                let retains = starts::retains(front, tp);
                let mut oracle = self.oracle.borrow_mut();
                oracle.starts.told(tp, outcome.log_start, start, retains)?;
                oracle::note_read(&mut oracle, tp, offset, &outcome)
            }
            ErrorCode::OffsetOutOfRange if self.may_be_deleted(front, tp, offset) => Ok(()),
            ErrorCode::UnknownTopicOrPartition => self.topic_is_gone(tp),
            ErrorCode::KafkaStorageError if self.may_fail.get() => Ok(()),
            code => Err(format!("a read of {tp:?} at {offset}, end {end}: {code:?}")),
        }
    }

    fn may_be_deleted(&self, front: &Rc<Shard>, tp: TopicPartition, offset: Offset) -> bool {
        !starts::retains(front, tp) || offset < self.oracle.borrow().starts.most_asked(tp)
    }

    async fn checkpoint(&mut self, front: &Rc<Shard>) -> Result<(), String> {
        let of = ShardId(self.random.index(self.cluster.shards.len()) as u16);
        match front.ask(of, Operation::Checkpoint).await {
            Reply::Done(true) => Ok(()),
            Reply::Done(false) if self.may_fail.get() => Ok(()),
            other => Err(format!("a checkpoint of shard {of} was answered with {other:?}")),
        }
    }

    /// Has some partitions written before their tails are large enough.
    fn write_behind(&mut self) -> Result<(), String> {
        for shard in &self.cluster.shards {
            for partition in shard.partitions() {
                if self.random.chance(1, 3) {
                    shard.write_behind.queue(&partition);
                }
            }
        }
        Ok(())
    }

    async fn pause(&mut self, front: &Rc<Shard>) -> Result<(), String> {
        let pause_ms = match self.random.chance(1, 8) {
            true => 50 + self.random.below(300),
            false => self.random.below(3),
        };
        let until = front.runtime.now().plus_ms(pause_ms);
        front.runtime.sleep_until(until).await;
        Ok(())
    }

    /// Creates a topic, perhaps again under the name of a deleted one.
    pub async fn create(&mut self, front: &Rc<Shard>) -> Result<(), String> {
        let name = format!("topic-{}", self.random.below(4));
        let partitions = 1 + self.random.below(3) as i32;
        let sizes = [16_384, 65_536, 300_000, 2_000_000];
        let segment_bytes = sizes[self.random.index(sizes.len())].to_string();
        let delay_ms = [0, 1, 30, 400][self.random.index(4)].to_string();
        let mut configs = vec![
            ("internal.segment.bytes".to_owned(), Some(segment_bytes)),
            ("file.delete.delay.ms".to_owned(), Some(delay_ms)),
            ("index.interval.bytes".to_owned(), Some("1000".to_owned())),
        ];
        if self.mix.deletions {
            configs.extend(starts::settings(self.random.index(8)));
        }
        let topic = CreateTopic {
            name: name.clone(),
            num_partitions: partitions,
            replication_factor: 1,
            assignments: Vec::new(),
            configs,
        };
        self.oracle.borrow_mut().creating(&name);
        let change = CatalogChange::CreateTopics {
            topics: vec![topic],
            validate_only: false,
            automatic: false,
        };
        match front.ask(ShardId(0), Operation::Catalog(change)).await {
            Reply::Catalog(CatalogOutcome::Created(results)) => {
                let created = match results.first() {
                    Some(Ok(planned)) => Some((planned.id, partitions)),
                    Some(Err(error)) if error.code == ErrorCode::TopicAlreadyExists => None,
                    other => return Err(format!("creating {name}: {other:?}")),
                };
                let id = created.map(|(id, _)| oracle::partition(id, 0));
                if let Some(home) = id.and_then(|tp| front.owner(tp)) {
                    self.oracle.borrow_mut().at_home(&name, home);
                }
                self.oracle.borrow_mut().created(&name, created);
                Ok(())
            }
            Reply::Catalog(CatalogOutcome::Failed) if self.may_fail.get() => Ok(()),
            other => Err(format!("creating {name} was answered with {other:?}")),
        }
    }

    async fn delete(&mut self, front: &Rc<Shard>, usable: &[TopicPartition]) -> Result<(), String> {
        let id = usable[self.random.index(usable.len())].topic;
        self.oracle.borrow_mut().deleting(id);
        let change = CatalogChange::DeleteTopics(vec![id]);
        match front.ask(ShardId(0), Operation::Catalog(change)).await {
            Reply::Catalog(CatalogOutcome::Deleted(codes)) => match codes.as_slice() {
                [ErrorCode::None] => {
                    self.oracle.borrow_mut().deleted(id);
                    Ok(())
                }
                // Another client was first.
                [ErrorCode::UnknownTopicId]
                    if self.oracle.borrow().state(id) != TopicState::Created =>
                {
                    Ok(())
                }
                [ErrorCode::KafkaStorageError] if self.may_fail.get() => Ok(()),
                other => Err(format!("deleting {id}: {other:?}")),
            },
            Reply::Catalog(CatalogOutcome::Failed) if self.may_fail.get() => Ok(()),
            other => Err(format!("deleting {id} was answered with {other:?}")),
        }
    }

    /// A deleted topic takes and gives nothing.
    async fn use_what_is_gone(&mut self, front: &Rc<Shard>) -> Result<(), String> {
        let gone = self.oracle.borrow().unusable();
        if gone.is_empty() {
            return Ok(());
        }
        let tp = gone[self.random.index(gone.len())];
        let outcome = oracle::read(front, tp, Offset(0), 1_000).await?;
        match outcome.error {
            ErrorCode::UnknownTopicOrPartition => Ok(()),
            other => Err(format!("a read of {tp:?}, which is deleted, answers {other:?}")),
        }
    }
}

/// Batches without an answer per partition: with the last acknowledged one they are as many as a
/// broker remembers.
const UNANSWERED_MAX: usize = 4;
