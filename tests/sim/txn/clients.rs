//! Transactional producers of a simulated broker, of both protocol levels.
//!
//! Owns what a producer process knows: it outlives the broker's crashes, and sends again whatever
//! has no answer until it has one. Requests are lost, sent twice and late, on other connections;
//! processes die and are replaced, and the old one may go on as a zombie. A producer before KIP-890
//! whose request may still be under way raises its epoch before its next transaction, as only that
//! keeps an old request out of it; the newer protocol needs no such care. Must never hold a borrow
//! over an await, nor commit what was not all answered.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    InitProducerIdRequest, ProduceRequest, ProducerId as WireProducerId,
};
use kafka_protocol::protocol::Request;
use ringlog::batch::BatchBuilder;
use ringlog::batch::compression::CompressionTarget;
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, ProducerEpoch, ProducerId};
use ringlog::io::Monotonic;
use ringlog::metadata::image::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use ringlog::sim::Random;
use ringlog::sim::checker::{AttemptId, RecordId, Session};

use super::oracle::{Ended, Oracle, TxnNo};
use super::topics::SPARE_PARTITIONS;
use super::{PARTITIONS, SPARE, TOPIC, group_of};
use crate::caller::Caller;
use crate::support::requests::{Topic, produce};
use crate::support::transactions::{
    Identity, add_offsets, add_partitions, end_txn, transactional_id, txn_offset_commit,
};

/// What all clients of one boot share.
#[derive(Clone)]
pub struct Surroundings {
    pub oracle: Rc<RefCell<Oracle>>,
    /// The storage has a fault, or the broker is stopping: refusals are no surprise.
    pub may_fail: Rc<Cell<bool>>,
    /// Ids that nobody uses are forgotten soon.
    pub ids_expire: bool,
}

/// One producer process.
#[derive(Clone)]
pub struct Producer {
    strict: bool,
    identity: Identity,
    /// Number of the InitProducerId that made it.
    init: u64,
    timeout_ms: u64,
    next_sequence: BTreeMap<i32, i32>,
    /// A request of this epoch may still be under way, and the protocol cannot tell.
    doubtful: bool,
    current: Option<Current>,
}

/// A transaction of a producer.
#[derive(Clone)]
struct Current {
    no: TxnNo,
    began: Monotonic,
    added: BTreeSet<i32>,
    unanswered: Vec<Sent>,
    offsets: Offsets,
    spare: Spare,
    /// Nobody can say when it times out.
    may_time_out: bool,
    doomed: bool,
    /// EndTxn was asked for: commit or abort.
    end: Option<bool>,
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Offsets {
    None,
    Unanswered,
    Taken,
}

/// What has become of writing to the topic that comes and goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spare {
    Untouched,
    Unanswered,
    Taken,
    Refused,
}

impl Current {
    /// Whether the coordinator may never have heard of it: the only request that told it of
    /// anything has no answer, and was lost if the broker crashed.
    fn may_be_unknown(&self) -> bool {
        self.added.is_empty() && self.offsets == Offsets::None && self.spare == Spare::Unanswered
    }
}

#[derive(Clone)]
struct Sent {
    index: i32,
    attempt: AttemptId,
    records: Vec<RecordId>,
    set: Bytes,
}

/// A producer, whether alive or dead, in its place.
pub type Place = Rc<RefCell<Option<Producer>>>;

/// Whoever runs a producer.
pub struct Client {
    pub around: Surroundings,
    pub caller: Caller,
    /// Number of its transactional id.
    pub id: usize,
    pub place: Place,
    /// Its place was taken by another process.
    pub is_zombie: bool,
}

/// What to make of a code.
enum Sense {
    Good,
    Later,
    Refused,
}

fn sense(code: i16) -> Sense {
    match code {
        0 => Sense::Good,
        6 | 7 | 13 | 14 | 15 | 16 | 19 | 20 | 51 | 56 => Sense::Later,
        _ => Sense::Refused,
    }
}

impl Client {
    /// Goes on for so many steps.
    pub async fn run(mut self, steps: u64) {
        for _ in 0..steps {
            if self.is_zombie && self.place.borrow().is_none() {
                return;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        let producer = self.place.borrow().clone();
        let Some(producer) = producer else { return self.init(None).await };
        let Some(current) = producer.current.clone() else {
            return self.between(producer).await;
        };
        if let Some(commit) = current.end {
            return self.end(producer, current.no, commit).await;
        }
        if current.doomed {
            return match self.caller.random.below(4) {
                0 => self.die(),
                _ => self.decide(false),
            };
        }
        if !current.unanswered.is_empty() {
            return self.produce(producer, current).await;
        }
        if current.offsets == Offsets::Unanswered {
            return self.commit_offsets(producer, current).await;
        }
        match self.caller.random.below(100) {
            0..45 => self.add_batches(&producer, &current),
            45..58 if current.offsets == Offsets::None => self.want_offsets(),
            45..72 if self.around.oracle.borrow().has_anything(current.no) => self.decide(true),
            72..78 if current.spare == Spare::Untouched => self.touch_spare(&producer).await,
            78..88 => self.abort(&producer, &current),
            88..90 => self.die(),
            _ => self.pause().await,
        }
    }

    async fn between(&mut self, producer: Producer) {
        if producer.doubtful {
            return self.init(Some(producer.identity)).await;
        }
        match self.caller.random.below(100) {
            0..4 => self.die(),
            4..14 => self.pause().await,
            14..18 if self.around.oracle.borrow().counts.transactions > 0 => {
                self.init(Some(producer.identity)).await;
            }
            _ => {
                let no = self.around.oracle.borrow_mut().begin(self.id);
                let current = Current {
                    no,
                    began: self.caller.runtime.now(),
                    added: BTreeSet::new(),
                    unanswered: Vec::new(),
                    offsets: Offsets::None,
                    spare: Spare::Untouched,
                    may_time_out: false,
                    doomed: false,
                    end: None,
                    tries: 0,
                };
                self.say(|| format!("begins {} as {:?}", no.0, producer.identity));
                self.change(|producer| producer.current = Some(current));
            }
        }
    }

    /// The process dies; it may go on all the same, as a zombie beside the one that replaces it.
    fn die(&mut self) {
        let old = self.place.borrow_mut().take();
        self.caller.hang_up();
        if self.is_zombie || !self.caller.random.chance(1, 2) {
            return;
        }
        self.around.oracle.borrow_mut().counts.zombies += 1;
        let zombie = Client {
            around: self.around.clone(),
            caller: self.caller.fork(),
            id: self.id,
            place: Rc::new(RefCell::new(old)),
            is_zombie: true,
        };
        let steps = 1 + self.caller.random.below(12);
        self.caller.runtime.spawn(Box::pin(zombie.run(steps)));
    }

    async fn init(&mut self, expected: Option<Identity>) {
        let strict = match self.place.borrow().as_ref() {
            Some(producer) => producer.strict,
            None => self.caller.random.chance(1, 2),
        };
        let timeout_ms = [15, 150, 400, TIMEOUT_MS_MAX][self.caller.random.index(4)];
        let mut request = InitProducerIdRequest::default()
            .with_transactional_id(Some(transactional_id(&self.name())))
            .with_transaction_timeout_ms(timeout_ms as i32);
        if let Some(Identity { id, epoch }) = expected {
            request = request.with_producer_id(WireProducerId(id)).with_producer_epoch(epoch);
        }
        let number = self.around.oracle.borrow_mut().init_sent(self.id);
        let answer = self.ask_coordinator(if strict { 5 } else { 4 }, &request).await;
        if self.caller.copied {
            self.around.oracle.borrow_mut().init_sent(self.id);
        }
        let Some(answer) = answer else { return self.pause().await };
        self.around.oracle.borrow_mut().init_answered(self.id, number);
        match sense(answer.error_code) {
            Sense::Good => {}
            Sense::Later => return self.pause().await,
            // Another process has taken over, or a restart has forgotten the epoch before.
            Sense::Refused if expected.is_some() => return self.die(),
            Sense::Refused => {
                let code = answer.error_code;
                return self.violated(format!("InitProducerId is refused with {code}"));
            }
        }
        let identity = Identity { id: answer.producer_id.0, epoch: answer.producer_epoch };
        self.say(|| {
            format!("is {identity:?}, expected {expected:?}, strict: {strict}, {timeout_ms} ms")
        });
        self.place.replace(Some(Producer {
            strict,
            identity,
            init: number,
            timeout_ms,
            next_sequence: BTreeMap::new(),
            doubtful: false,
            current: None,
        }));
    }

    fn decide(&mut self, commit: bool) {
        self.change_current(|current| current.end = Some(commit));
    }

    /// Nothing is to become of it. Before KIP-890 there is nothing to end where nothing was added.
    fn abort(&mut self, producer: &Producer, current: &Current) {
        let nothing = current.added.is_empty()
            && current.offsets == Offsets::None
            && matches!(current.spare, Spare::Untouched | Spare::Refused);
        match nothing && !producer.strict {
            true => self.change(|producer| producer.current = None),
            false => self.decide(false),
        }
    }

    fn add_batches(&mut self, producer: &Producer, current: &Current) {
        let first = self.caller.random.index(PARTITIONS as usize) as i32;
        let several = 1 + self.caller.random.below(3) as i32;
        for step in 0..several.min(PARTITIONS) {
            let index = (first + step) % PARTITIONS;
            let count = 1 + self.caller.random.index(3);
            let sequence = producer.next_sequence.get(&index).copied().unwrap_or(0);
            let Identity { id, epoch } = producer.identity;
            let session = Session(id.cast_unsigned() << 16 | u64::from(epoch.cast_unsigned()));
            let (attempt, records) = self.around.oracle.borrow_mut().sending(
                Some(current.no),
                Some(session),
                index,
                count,
            );
            let builder = BatchBuilder::new(CompressionTarget::Producer)
                .producer(ProducerId(id), ProducerEpoch(epoch), sequence)
                .transactional();
            let set =
                filled(builder, &records, self.caller.runtime.wall_ms(), &mut self.caller.random);
            self.change(|producer| {
                producer.next_sequence.insert(index, sequence + count as i32);
            });
            let sent = Sent { index, attempt, records, set };
            self.change_current(|current| current.unanswered.push(sent));
        }
    }

    /// Sends what has no answer.
    async fn produce(&mut self, producer: Producer, current: Current) {
        if !producer.strict {
            let missing: Vec<i32> = current
                .unanswered
                .iter()
                .map(|sent| sent.index)
                .filter(|index| !current.added.contains(index))
                .collect();
            if !missing.is_empty() {
                return self.add(producer, current, missing).await;
            }
        }
        let version = match producer.strict {
            true => 12,
            false => [9, 11][self.caller.random.index(2)],
        };
        let sent = self.for_one_node(&current.unanswered);
        let data = sent.iter().map(|sent| {
            PartitionProduceData::default()
                .with_index(sent.index)
                .with_records(Some(sent.set.clone()))
        });
        let topic = TopicProduceData::default()
            .with_name(Topic::named(TOPIC).wire_name())
            .with_partition_data(data.collect());
        let request = ProduceRequest::default()
            .with_transactional_id(Some(transactional_id(&self.name())))
            .with_acks(-1)
            .with_timeout_ms(5_000)
            .with_topic_data(vec![topic]);
        if producer.strict {
            // The request itself adds them, as soon as it is sent.
            let asked: Vec<i32> = sent.iter().map(|sent| sent.index).collect();
            self.change_current(|current| current.added.extend(asked));
        }
        let Some(answer) = self.ask(version, &request).await else {
            // Giving up at once leaves a batch under way whose transaction ends.
            return match !producer.strict && self.caller.random.chance(2, 3) {
                true => self.decide(false),
                false => self.again().await,
            };
        };
        for partition in &answer.responses[0].partition_responses {
            let sent = current.unanswered.iter().find(|sent| sent.index == partition.index);
            let sent = sent.expect("an answer for each partition").clone();
            match sense(partition.error_code) {
                Sense::Good => {
                    let base = Offset(partition.base_offset);
                    self.around.oracle.borrow_mut().acked(sent.attempt, &sent.records, base);
                    self.change_current(|current| {
                        current.unanswered.retain(|other| other.index != sent.index);
                    });
                }
                Sense::Later => {}
                Sense::Refused => self.refused("Produce", partition.error_code),
            }
        }
        let left = self.current().is_some_and(|current| !current.unanswered.is_empty());
        if left {
            self.again().await;
        }
    }

    /// Those of the batches that go to the same node as the first.
    fn for_one_node(&mut self, unanswered: &[Sent]) -> Vec<Sent> {
        let owner = |caller: &Caller, sent: &Sent| caller.owner(TOPIC, sent.index);
        let first = unanswered.first().and_then(|first| owner(&self.caller, first));
        self.caller.aim = first;
        let is_single = self.caller.cluster.shards[0].context.is_single();
        let together =
            unanswered.iter().filter(|sent| is_single || owner(&self.caller, sent) == first);
        together.cloned().collect()
    }

    async fn add(&mut self, producer: Producer, current: Current, missing: Vec<i32>) {
        let partitions: Vec<(&str, i32)> = missing.iter().map(|&index| (TOPIC, index)).collect();
        let request = add_partitions(3, &self.name(), producer.identity, &partitions);
        // From now on it may be open.
        self.change_current(|current| current.tries += 1);
        let Some(answer) = self.ask_coordinator(3, &request).await else {
            return self.again().await;
        };
        let topic = &answer.results_by_topic_v3_and_below[0];
        match sense(topic.results_by_partition[0].partition_error_code) {
            Sense::Good => self.change_current(|current| current.added.extend(missing)),
            Sense::Later => self.again().await,
            Sense::Refused => {
                let code = topic.results_by_partition[0].partition_error_code;
                self.say(|| format!("{} cannot be added to", current.no.0));
                self.refused("AddPartitionsToTxn", code);
            }
        }
    }

    /// Writes to the topic that comes and goes, or has it in its transaction. Whatever is answered,
    /// and be it nothing, the transaction goes on.
    async fn touch_spare(&mut self, producer: &Producer) {
        self.change_current(|current| current.spare = Spare::Unanswered);
        let index = self.caller.random.index(SPARE_PARTITIONS as usize) as i32;
        let name = self.name();
        let code = if producer.strict {
            let Identity { id, epoch } = producer.identity;
            let mut batch = BatchBuilder::new(CompressionTarget::Producer)
                .producer(ProducerId(id), ProducerEpoch(epoch), 0)
                .transactional();
            batch.push(self.caller.runtime.wall_ms(), None, Some(b"spare"), &[]);
            let set = Bytes::from(batch.finish());
            let request = produce(12, &Topic::named(SPARE), index, -1, set)
                .with_transactional_id(Some(transactional_id(&name)));
            self.caller.aim = self.caller.owner(SPARE, index);
            let answer = self.ask(12, &request).await;
            answer.map(|answer| answer.responses[0].partition_responses[0].error_code)
        } else {
            let request = add_partitions(3, &name, producer.identity, &[(SPARE, index)]);
            let answer = self.ask_coordinator(3, &request).await;
            let topic = answer.map(|answer| answer.results_by_topic_v3_and_below[0].clone());
            topic.map(|topic| topic.results_by_partition[0].partition_error_code)
        };
        self.say(|| format!("writes to {index} of {SPARE}: {code:?}"));
        let spare = match code {
            Some(0) => Spare::Taken,
            // Not in the transaction.
            Some(_) => Spare::Refused,
            None => Spare::Unanswered,
        };
        self.change_current(|current| current.spare = spare);
        self.around.oracle.borrow_mut().counts.spare_batches += u64::from(code == Some(0));
    }

    fn want_offsets(&mut self) {
        self.change_current(|current| current.offsets = Offsets::Unanswered);
    }

    async fn commit_offsets(&mut self, producer: Producer, current: Current) {
        let group = group_of(self.id);
        if !producer.strict {
            let request = add_offsets(&self.name(), producer.identity, &group);
            let Some(answer) = self.ask_coordinator(3, &request).await else {
                return self.again().await;
            };
            match sense(answer.error_code) {
                Sense::Good => {}
                Sense::Later => return self.again().await,
                Sense::Refused => return self.refused("AddOffsetsToTxn", answer.error_code),
            }
        }
        let value = self.around.oracle.borrow_mut().offsets_sent(current.no);
        let index = self.id as i32 % PARTITIONS;
        let offsets = [(index, value)];
        let request = txn_offset_commit(&self.name(), producer.identity, &group, TOPIC, &offsets);
        let version = if producer.strict { 5 } else { [3, 4][self.caller.random.index(2)] };
        self.caller.aim_at_keeper(CONSUMER_OFFSETS, &group);
        let Some(answer) = self.ask(version, &request).await else { return self.again().await };
        let code = answer.topics[0].partitions[0].error_code;
        match sense(code) {
            Sense::Good => {
                self.around.oracle.borrow_mut().offsets_acked(current.no);
                self.change_current(|current| current.offsets = Offsets::Taken);
            }
            Sense::Later => self.again().await,
            Sense::Refused => self.refused("TxnOffsetCommit", code),
        }
    }

    async fn end(&mut self, producer: Producer, no: TxnNo, commit: bool) {
        let version = match producer.strict {
            true => 5,
            false => [2, 4][self.caller.random.index(2)],
        };
        self.around.oracle.borrow_mut().ending(no, commit);
        self.say(|| format!("ends {}, commit: {commit}", no.0));
        let request = end_txn(&self.name(), producer.identity, commit);
        let Some(answer) = self.ask_coordinator(version, &request).await else {
            self.around.oracle.borrow_mut().ended(no, commit, Ended::Unknown);
            return self.pause().await;
        };
        let code = answer.error_code;
        self.say(|| format!("{} is answered {code}", no.0));
        match sense(code) {
            Sense::Good => {
                self.around.oracle.borrow_mut().ended(no, commit, Ended::Done);
                let next = Identity { id: answer.producer_id.0, epoch: answer.producer_epoch };
                self.change(|producer| producer.is_over(next));
            }
            Sense::Later => {
                self.around.oracle.borrow_mut().ended(no, commit, Ended::Unknown);
                self.pause().await;
            }
            Sense::Refused => {
                // Where a copy came first, it is that which was taken.
                let outcome = if self.caller.copied { Ended::Unknown } else { Ended::Refused };
                self.around.oracle.borrow_mut().ended(no, commit, outcome);
                self.refused("EndTxn", code);
                // The newer protocol goes on by an abort, which answers what it is now.
                match producer.strict && commit && self.caller.random.chance(1, 2) {
                    true => self.decide(false),
                    false => self.die(),
                }
            }
        }
    }

    /// A refusal that no retry mends. A producer that nobody has fenced gets none.
    fn refused(&mut self, what: &str, code: i16) {
        self.around.oracle.borrow_mut().counts.refusals += 1;
        self.say(|| format!("{what} is refused with {code}"));
        let Some(producer) = self.place.borrow().clone() else { return };
        let Some(current) = &producer.current else { return };
        let due = current.began.plus_ms(producer.timeout_ms);
        let timed_out = current.may_time_out || self.caller.runtime.now() >= due;
        let expired = self.around.ids_expire && code == ErrorCode::InvalidProducerIdMapping.code();
        // Before KIP-890 there is nothing to end where nothing was added.
        let unknown = !producer.strict
            && code == ErrorCode::InvalidTxnState.code()
            && current.may_be_unknown();
        // Of a transaction that is given up it may be another's refusal.
        let excused = timed_out || expired || unknown || producer.doubtful || current.doomed;
        let is_newest = self.around.oracle.borrow().is_newest(self.id, producer.init);
        if is_newest && !excused && !self.around.may_fail.get() {
            let (no, identity) = (current.no.0, producer.identity);
            self.violated(format!(
                "{what} of transaction {no} of {identity:?}, whom nobody has fenced, is refused \
                 with {code}"
            ));
        }
        self.change_current(|current| current.doomed = true);
    }

    /// Sends again, after a while and not for ever.
    async fn again(&mut self) {
        self.change_current(|current| {
            current.tries += 1;
            current.doomed |= current.tries > TRIES_MAX;
        });
        self.pause().await;
    }

    /// Asks the coordinator of its transactional id.
    async fn ask_coordinator<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Option<R::Response> {
        let name = self.name();
        self.caller.aim_at_keeper(TRANSACTION_STATE, &name);
        self.ask(version, request).await
    }

    /// Sends a request and waits for its answer, as long as patience lasts.
    async fn ask<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        let answer = self.caller.ask(version, request, PATIENCE_MS).await;
        let mut oracle = self.around.oracle.borrow_mut();
        oracle.counts.lost_answers += u64::from(answer.is_none());
        oracle.counts.copies += u64::from(self.caller.copied);
        drop(oracle);
        if self.caller.copied {
            self.say(|| format!("has sent API {} v{version} twice", R::KEY));
        }
        if answer.is_none() {
            self.say(|| format!("has no answer to API {} v{version}", R::KEY));
        }
        if answer.is_none() || self.caller.copied {
            self.doubt();
        }
        answer
    }

    fn doubt(&mut self) {
        self.change(|producer| producer.doubtful |= !producer.strict);
    }

    async fn pause(&mut self) {
        let pause_ms = match self.caller.random.below(20) {
            0 => 50 + self.caller.random.below(300),
            1..4 => self.caller.random.below(40),
            _ => self.caller.random.below(4),
        };
        let runtime = Rc::clone(&self.caller.runtime);
        runtime.sleep_until(runtime.now().plus_ms(pause_ms)).await;
    }

    fn name(&self) -> String {
        format!("id-{}", self.id)
    }

    fn current(&self) -> Option<Current> {
        self.place.borrow().as_ref().and_then(|producer| producer.current.clone())
    }

    fn change(&self, change: impl FnOnce(&mut Producer)) {
        if let Some(producer) = self.place.borrow_mut().as_mut() {
            change(producer);
        }
    }

    fn change_current(&self, change: impl FnOnce(&mut Current)) {
        self.change(|producer| {
            if let Some(current) = &mut producer.current {
                change(current);
            }
        });
    }

    fn violated(&self, what: String) {
        self.around.oracle.borrow_mut().violated(format!("{}: {what}", self.name()));
    }

    fn say(&self, what: impl FnOnce() -> String) {
        let zombie = if self.is_zombie { " (zombie)" } else { "" };
        let at_us = self.caller.runtime.now().0 / 1_000;
        let line = format!("{at_us} {}{zombie} {}", self.name(), what());
        self.around.oracle.borrow_mut().trace.say(line);
    }
}

impl Producer {
    /// Its transaction has ended; the answer says who it is now, if the protocol has a word for it.
    fn is_over(&mut self, next: Identity) {
        let Some(current) = self.current.take() else { return };
        if self.strict {
            self.identity = next;
            self.next_sequence.clear();
        } else {
            self.doubtful |= !current.unanswered.is_empty() || current.doomed;
        }
    }

    /// The broker's clock has moved: nobody can say when its transaction times out.
    pub fn excuse(&mut self) {
        if let Some(current) = &mut self.current {
            current.may_time_out = true;
        }
    }
}

/// A batch of these records.
pub fn filled(
    mut builder: BatchBuilder,
    records: &[RecordId],
    now_ms: i64,
    random: &mut Random,
) -> Bytes {
    for record in records {
        let mut value = record.0.to_be_bytes().to_vec();
        value.resize(8 + random.index(300), 0x5a);
        builder.push(now_ms, None, Some(&value), &[]);
    }
    Bytes::from(builder.finish())
}

/// Longest timeout of a transaction.
pub const TIMEOUT_MS_MAX: u64 = 3_000;

/// How long an answer is waited for.
pub const PATIENCE_MS: u64 = 8_000;

/// Attempts after which a transaction is given up.
const TRIES_MAX: u32 = 40;
