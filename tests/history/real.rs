//! Real clients (librdkafka) in a process of their own, which writes every operation as a line:
//! an idempotent producer, a transactional one, and a member each of a group of either protocol.
//!
//! Owns nothing when it is not told its place: then its test is over at once. It ends when its
//! standard input does.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{scope, sleep};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use crate::children::{FAULT, OPERATION, PLACE};
use crate::history::{
    Commit, Group, Identity, Line, Log, Ns, Operation, Outcome, Own, Poll, Process, Send, Txn,
    Value, What,
};
use crate::payload::{bytes_of, value_of, wall_ms};
use crate::random::Random;
use crate::run::{EVENTS, LEDGER, Run, TOPICS, logs_of, now};

/// Groups that real clients read a topic in, and whether they are classic ones.
pub const GROUPS: &[(Group, u8, bool)] = &[(Group(4), EVENTS, true), (Group(5), LEDGER, false)];

#[test]
fn one_process_of_real_clients() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let words: Vec<&str> = place.split(' ').collect();
    let number: u32 = words[0].parse().expect("a number");
    let bootstrap: SocketAddr = words[1].parse().expect("an address");
    let seed: u64 = words[2].parse().expect("a seed");
    let run = &Run::of_process(number, bootstrap, 0);
    scope(|scope| {
        let mut threads = vec![
            scope.spawn(move || plain(run, seed)),
            scope.spawn(move || transactions(run, Line(200 + number), seed)),
        ];
        for group in GROUPS {
            threads.push(scope.spawn(move || member(run, *group)));
        }
        scope.spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            run.end();
        });
        while !threads.iter().all(|thread| thread.is_finished()) {
            tell(run);
            sleep(Duration::from_millis(100));
        }
    });
    tell(run);
}

/// Writes down what was done since the last time.
fn tell(run: &Run) {
    for operation in run.take_operations() {
        let text = serde_json::to_string(&operation).expect("JSON");
        println!("\n{OPERATION}{text}");
    }
    for fault in run.faults().drain(..) {
        println!("\n{FAULT}{fault}");
    }
}

/// Notes every delivery.
struct Notes<'a> {
    run: &'a Run,
    process: Process,
}

/// A record on its way.
struct Sending {
    invoked: Ns,
    log: Log,
    value: Value,
    transaction: Option<Txn>,
}

impl ClientContext for Notes<'_> {}

impl ProducerContext for Notes<'_> {
    type DeliveryOpaque = Box<Sending>;

    fn delivery(&self, result: &DeliveryResult<'_>, sending: Box<Sending>) {
        let base = result.as_ref().ok().map(|message| message.offset());
        let outcome = if base.is_some() { Outcome::Ok } else { Outcome::Unknown };
        let send = Send {
            log: sending.log,
            values: vec![sending.value],
            transaction: sending.transaction,
            outcome,
            base,
            ordered: true,
            sources: Vec::new(),
        };
        self.run.note(self.process, sending.invoked, What::Send(send));
    }
}

type RealProducer<'a> = BaseProducer<Notes<'a>>;

fn producer<'a>(run: &'a Run, line: Option<Line>) -> RealProducer<'a> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", run.bootstrap.to_string());
    config.set("enable.idempotence", "true").set("linger.ms", "2");
    config.set("reconnect.backoff.max.ms", "200").set("retry.backoff.ms", "20");
    config.set("socket.timeout.ms", "3000");
    match line {
        Some(line) => {
            config.set("transactional.id", line.name());
            config.set("transaction.timeout.ms", "3000").set("message.timeout.ms", "3000");
        }
        None => {
            config.set("message.timeout.ms", "120000");
        }
    }
    config.create_with_context(Notes { run, process: run.process() }).expect("a producer")
}

fn send(producer: &RealProducer<'_>, log: Log, transaction: Option<Txn>) {
    let run = producer.context().run;
    let (value, time_ms) = (run.value(), wall_ms());
    let payload = bytes_of(value, time_ms);
    let sending = Box::new(Sending { invoked: now(), log, value, transaction });
    let record = BaseRecord::<(), Vec<u8>, Box<Sending>>::with_opaque_to(log.name(), sending)
        .partition(log.index())
        .timestamp(time_ms)
        .payload(&payload);
    // What does not even get into the queue was not sent.
    let _ = producer.send(record);
}

fn plain(run: &Run, seed: u64) {
    let mut random = Random::new(seed);
    let producer = producer(run, None);
    let logs: Vec<Log> = logs_of(EVENTS).collect();
    while !run.is_ending() {
        for _ in 0..random.between(1, 10) {
            send(&producer, random.pick(&logs), None);
        }
        producer.poll(Duration::from_millis(5));
        sleep(Duration::from_millis(10));
        if let Some((code, told)) = producer.client().fatal_error() {
            run.fault(format!("librdkafka's idempotent producer: {code}: {told}"));
            return;
        }
    }
    producer.flush(FLUSH).expect("everything is delivered at last");
}

/// Transactions until the end; a producer that was fenced is followed by another.
fn transactions(run: &Run, line: Line, seed: u64) {
    let mut random = Random::new(seed ^ 1);
    let logs: Vec<Log> = logs_of(LEDGER).collect();
    while !run.is_ending() {
        let producer = producer(run, Some(line));
        if producer.init_transactions(CALL).is_err() {
            continue;
        }
        while !run.is_ending() {
            if producer.begin_transaction().is_err() {
                break;
            }
            let transaction = run.transaction();
            let identity = Identity { id: -1, epoch: 0 };
            let process = producer.context().process;
            run.note(process, now(), What::Begin { transaction, line, identity });
            for _ in 0..random.between(1, 20) {
                send(&producer, random.pick(&logs), Some(transaction));
                producer.poll(Duration::ZERO);
            }
            let is_fine = if random.one_in(5) {
                abort(&producer, transaction)
            } else {
                commit(&producer, transaction)
            };
            if !is_fine {
                break;
            }
        }
    }
}

/// Commits; false if the producer is done for.
fn commit(producer: &RealProducer<'_>, transaction: Txn) -> bool {
    let (run, process) = (producer.context().run, producer.context().process);
    let invoked = now();
    let note = |outcome| {
        run.note(process, invoked, What::End { transaction, commit: true, outcome });
    };
    for _ in 0..CALLS_MAX {
        // What became of each record is told here, and in no other call.
        let _ = producer.flush(CALL);
        let error = match producer.commit_transaction(CALL) {
            Ok(()) => {
                note(Outcome::Ok);
                return true;
            }
            Err(KafkaError::Transaction(error)) => error,
            Err(_) => break,
        };
        if error.txn_requires_abort() {
            note(Outcome::Unknown);
            return abort(producer, transaction);
        }
        if error.is_fatal() || !error.is_retriable() {
            break;
        }
    }
    note(Outcome::Unknown);
    false
}

fn abort(producer: &RealProducer<'_>, transaction: Txn) -> bool {
    let (run, process) = (producer.context().run, producer.context().process);
    let invoked = now();
    let is_fine = (0..CALLS_MAX).any(|_| {
        let _ = producer.flush(CALL);
        producer.abort_transaction(CALL).is_ok()
    });
    let outcome = if is_fine { Outcome::Ok } else { Outcome::Unknown };
    run.note(process, invoked, What::End { transaction, commit: false, outcome });
    is_fine
}

/// What a member has.
struct Hold<'a> {
    run: &'a Run,
    process: Process,
    group: Group,
    topic: u8,
    held: Mutex<BTreeMap<Log, Place>>,
}

/// One partition of it.
#[derive(Clone, Copy)]
struct Place {
    since: Ns,
    until: Ns,
    reader: Process,
    /// Where it reads on; none before the first record.
    next: Option<i64>,
    committed: Option<i64>,
}

impl Hold<'_> {
    fn held(&self) -> MutexGuard<'_, BTreeMap<Log, Place>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs(&self, list: &TopicPartitionList) -> Vec<Log> {
        let elements = list.elements();
        elements
            .iter()
            .map(|element| Log { topic: self.topic, partition: element.partition() as u8 })
            .collect()
    }
}

impl ClientContext for Hold<'_> {}

impl ConsumerContext for Hold<'_> {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        for log in self.logs(list) {
            let Some(place) = self.held().remove(&log) else { continue };
            let Place { since, until, .. } = place;
            let what = What::Own(Own { group: self.group, log, generation: None, until });
            let process = self.process;
            self.run.note_all([Operation { process, invoked: since, done: since, what }]);
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(list) = rebalance else { return };
        for log in self.logs(list) {
            let (since, reader) = (now(), self.run.process());
            let place = Place { since, until: since, reader, next: None, committed: None };
            self.held().insert(log, place);
        }
    }
}

/// Reads, and commits what it has read, until the end.
fn member(run: &Run, (group, topic, is_classic): (Group, u8, bool)) {
    let hold = Hold { run, process: run.process(), group, topic, held: Mutex::default() };
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", run.bootstrap.to_string());
    config.set("group.id", group.name()).set("enable.auto.commit", "false");
    config.set("auto.offset.reset", "earliest").set("isolation.level", "read_committed");
    config.set("check.crcs", "true").set("reconnect.backoff.max.ms", "200");
    config.set("socket.timeout.ms", "3000").set("fetch.wait.max.ms", "100");
    if is_classic {
        config.set("session.timeout.ms", "2000").set("heartbeat.interval.ms", "300");
        config.set("partition.assignment.strategy", "cooperative-sticky");
    } else {
        config.set("group.protocol", "consumer");
    }
    let consumer: BaseConsumer<Hold<'_>> = config.create_with_context(hold).expect("a consumer");
    let name = TOPICS[usize::from(topic)].0;
    consumer.subscribe(&[name]).expect("a topic");
    let mut committed = now();
    while !run.is_ending() {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            let log = Log { topic, partition: message.partition() as u8 };
            let time_ms = message.timestamp().to_millis().unwrap_or_default();
            let value = value_of(message.payload().unwrap_or_default(), time_ms);
            note_record(consumer.context(), log, message.offset(), value);
        }
        if now() - committed > COMMIT_NS {
            committed = now();
            commit_offsets(&consumer);
        }
    }
    commit_offsets(&consumer);
    consumer.unsubscribe();
}

fn note_record(hold: &Hold<'_>, log: Log, offset: i64, value: Value) {
    let Some(place) = hold.held().get_mut(&log).map(|place| {
        let from = place.next.replace(offset + 1).unwrap_or(offset);
        (place.reader, from)
    }) else {
        hold.run.fault(format!("a record of {log:?}, which is not the member's"));
        return;
    };
    let (reader, from) = place;
    let poll = Poll {
        log,
        committed: true,
        transaction: None,
        from,
        next: offset + 1,
        ends: None,
        records: vec![(offset, value)],
    };
    // The client has had it for some time: when that was asked for nobody knows.
    hold.run.note(reader, now(), What::Poll(poll));
}

fn commit_offsets(consumer: &BaseConsumer<Hold<'_>>) {
    let hold = consumer.context();
    let due: Vec<(Log, i64)> = hold
        .held()
        .iter()
        .filter(|(_, place)| place.next > place.committed)
        .filter_map(|(log, place)| Some((*log, place.next?)))
        .collect();
    for (log, offset) in due {
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(log.name(), log.index(), Offset::Offset(offset));
        added.expect("an offset");
        let invoked = now();
        let is_ok = consumer.commit(&list, CommitMode::Sync).is_ok();
        let outcome = if is_ok { Outcome::Ok } else { Outcome::Unknown };
        let (group, transaction) = (hold.group, None);
        let commit = Commit { group, log, offset, transaction, outcome };
        hold.run.note(hold.process, invoked, What::Commit(commit));
        if let Some(place) = hold.held().get_mut(&log)
            && is_ok
        {
            place.committed = Some(offset);
            place.until = invoked;
        }
    }
}

const CALL: Duration = Duration::from_secs(5);
const CALLS_MAX: usize = 6;
const FLUSH: Duration = Duration::from_secs(60);
const COMMIT_NS: Ns = 200_000_000;
