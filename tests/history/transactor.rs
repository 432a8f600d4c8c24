//! Transactional producers: transactions that write to several logs and read them, of both
//! transaction protocols; some share a transactional id and fence each other; some stand still for
//! longer than their transactions may take.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest,
};

use crate::history::{Identity, Line, Log, Outcome, Process, Send, Txn, Value, What};
use crate::link::{Answer, Link, Node};
use crate::payload::batch;
use crate::plain::LATER;
use crate::random::Random;
use crate::reader::Reading;
use crate::run::{LEDGER, Run, logs_of, now};
use crate::support::requests::{self, Topic};
use crate::support::transactions::{self, add_partitions, end_txn, transactional_id};

/// A producer with a transactional id, and the transaction that it is in.
pub struct Producer<'a> {
    pub link: Link<'a>,
    pub process: Process,
    pub line: Line,
    /// Whether it speaks the second transaction protocol.
    pub second: bool,
    pub identity: Identity,
    pub transaction: Txn,
    sequences: BTreeMap<Log, i32>,
    added: BTreeSet<Log>,
    /// The coordinator may know of it.
    pub is_begun: bool,
}

/// What an operation of a transaction leaves its producer in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It goes on.
    Fine,
    /// The transaction has to be aborted.
    MustAbort,
    /// It needs a new epoch.
    Fenced,
}

impl<'a> Producer<'a> {
    pub fn new(run: &'a Run, client: usize, line: Line, second: bool) -> Producer<'a> {
        Producer {
            link: Link::new(run, client),
            process: run.process(),
            line,
            second,
            identity: Identity { id: -1, epoch: -1 },
            transaction: Txn(0),
            sequences: BTreeMap::new(),
            added: BTreeSet::new(),
            is_begun: false,
        }
    }

    /// Asks for a new epoch, which ends what is open; false if there was no answer.
    pub fn init(&mut self) -> bool {
        let mut request: InitProducerIdRequest =
            requests::init_producer_id(Some(&self.line.name()));
        request.transaction_timeout_ms = TRANSACTION_TIMEOUT_MS;
        let invoked = now();
        let answer = self.link.insist(
            (Node::OfLine(self.line), 4),
            &request,
            ("InitProducerId", LATER),
            |answer| answer.error_code,
        );
        let Answer::Final { response, .. } = answer else { return false };
        if response.error_code != 0 {
            // Another instance was faster.
            if response.error_code != PRODUCER_FENCED {
                self.link.run.fault(format!("InitProducerId: {}", response.error_code));
            }
            return false;
        }
        // Who it is from now on is another producer for the order of sends.
        self.process = self.link.run.process();
        self.take(response.producer_id.0, response.producer_epoch);
        let what = What::Init { line: self.line, identity: self.identity };
        self.link.run.note(self.process, invoked, what);
        true
    }

    fn take(&mut self, id: i64, epoch: i16) {
        let identity = Identity { id, epoch };
        if identity != self.identity {
            self.identity = identity;
            self.sequences.clear();
        }
    }

    pub fn begin(&mut self) {
        self.transaction = self.link.run.transaction();
        self.added.clear();
        self.is_begun = false;
        let (transaction, line, identity) = (self.transaction, self.line, self.identity);
        self.link.run.note(self.process, now(), What::Begin { transaction, line, identity });
    }

    /// One batch to one partition.
    pub fn send(&mut self, log: Log, values: Vec<Value>, sources: Vec<(Log, i64)>) -> State {
        self.is_begun = true;
        if !self.second && !self.added.contains(&log) {
            let state = self.add(log);
            if state != State::Fine {
                return state;
            }
        }
        let sequence = self.sequences.entry(log).or_insert(0);
        let sender = (self.identity.id, self.identity.epoch, *sequence);
        *sequence += values.len() as i32;
        let set = batch(&values, sender, true, 0);
        let version = if self.second { 12 } else { 9 };
        let topic = Topic::named(log.name());
        let mut request: ProduceRequest = requests::produce(version, &topic, log.index(), -1, set);
        request.transactional_id = Some(transactional_id(&self.line.name()));
        let invoked = now();
        let answer = self.link.insist(
            (Node::Leader(log), version),
            &request,
            ("Produce in a transaction", LATER),
            |answer| answer.responses[0].partition_responses[0].error_code,
        );
        let (outcome, base, state) = match answer {
            Answer::None => (Outcome::Unknown, None, State::Fenced),
            Answer::Final { response, was_lost } => {
                let answer = &response.responses[0].partition_responses[0];
                match answer.error_code {
                    0 => (Outcome::Ok, Some(answer.base_offset), State::Fine),
                    code => (refused(was_lost), None, self.state(code, "Produce")),
                }
            }
        };
        let (transaction, ordered) = (Some(self.transaction), true);
        let send = Send { log, values, transaction, outcome, base, ordered, sources };
        self.link.run.note(self.process, invoked, What::Send(send));
        state
    }

    fn add(&mut self, log: Log) -> State {
        let request: AddPartitionsToTxnRequest = add_partitions(
            3,
            &self.line.name(),
            self.wire_identity(),
            &[(log.name(), log.index())],
        );
        let answer = self.link.insist(
            (Node::OfLine(self.line), 3),
            &request,
            ("AddPartitionsToTxn", LATER),
            |answer| {
                let topic = &answer.results_by_topic_v3_and_below[0];
                topic.results_by_partition[0].partition_error_code
            },
        );
        let Answer::Final { response, .. } = answer else { return State::Fenced };
        let topic = &response.results_by_topic_v3_and_below[0];
        match topic.results_by_partition[0].partition_error_code {
            0 => {
                self.added.insert(log);
                State::Fine
            }
            code => self.state(code, "AddPartitionsToTxn"),
        }
    }

    /// Ends the transaction, and says what it came to.
    pub fn end(&mut self, commit: bool) -> State {
        if !self.is_begun {
            // Nobody but its own process knows of it.
            return State::Fine;
        }
        let version = if self.second { 5 } else { 3 };
        let request: EndTxnRequest = end_txn(&self.line.name(), self.wire_identity(), commit);
        let invoked = now();
        let answer = self.link.insist(
            (Node::OfLine(self.line), version),
            &request,
            ("EndTxn", LATER),
            |answer| answer.error_code,
        );
        let (outcome, state) = match answer {
            Answer::None => (Outcome::Unknown, State::Fenced),
            Answer::Final { response, was_lost } if response.error_code == 0 => {
                if self.second {
                    self.take(response.producer_id.0, response.producer_epoch);
                }
                // In the first protocol the lost one may come as late as in the next transaction,
                // and end that, unless the epoch is another one then.
                let is_sure = self.second || !was_lost;
                (Outcome::Ok, if is_sure { State::Fine } else { State::Fenced })
            }
            Answer::Final { response, was_lost } => {
                self.state(response.error_code, "EndTxn");
                (refused(was_lost), State::Fenced)
            }
        };
        let what = What::End { transaction: self.transaction, commit, outcome };
        self.link.run.note(self.process, invoked, what);
        state
    }

    /// What a code that is no success leaves the producer in.
    pub fn state(&self, code: i16, what: &str) -> State {
        match code {
            TRANSACTION_ABORTABLE => State::MustAbort,
            code if FENCED.contains(&code) => State::Fenced,
            code => {
                let (line, identity) = (self.line, self.identity);
                self.link.run.fault(format!("{what} of {line:?} {identity:?}: {code}"));
                State::Fenced
            }
        }
    }

    pub fn wire_identity(&self) -> transactions::Identity {
        transactions::Identity { id: self.identity.id, epoch: self.identity.epoch }
    }
}

/// A refusal is one only if no attempt can have done anything.
pub fn refused(was_lost: bool) -> Outcome {
    if was_lost { Outcome::Unknown } else { Outcome::Refused }
}

/// One client that runs transactions until the end.
pub struct Transactor<'a> {
    producer: Producer<'a>,
    random: Random,
    /// Where it reads on.
    positions: Vec<(Log, i64)>,
    reader: Process,
}

impl<'a> Transactor<'a> {
    pub fn new(
        run: &'a Run,
        client: usize,
        (line, second): (Line, bool),
        seed: u64,
    ) -> Transactor<'a> {
        Transactor {
            producer: Producer::new(run, client, line, second),
            random: Random::new(seed),
            positions: logs_of(LEDGER).map(|log| (log, 0)).collect(),
            reader: run.process(),
        }
    }

    pub fn run(mut self) {
        let run = self.producer.link.run;
        while !run.is_ending() {
            if !self.producer.init() {
                sleep(Duration::from_millis(self.random.between(10, 200) as u64));
                continue;
            }
            while self.transaction() == State::Fine && !run.is_ending() {
                sleep(Duration::from_millis(self.random.between(0, 6) as u64));
            }
            // Two that share an id would do nothing but fence each other.
            sleep(Duration::from_millis(self.random.between(0, 400) as u64));
        }
        // Nothing is left open.
        while !self.producer.init() {}
    }

    fn transaction(&mut self) -> State {
        self.producer.begin();
        for _ in 0..self.random.between(1, 6) {
            let state = self.step();
            if state == State::MustAbort {
                return self.producer.end(false);
            }
            if state != State::Fine {
                return state;
            }
        }
        let commit = !self.random.one_in(4);
        self.producer.end(commit)
    }

    fn step(&mut self) -> State {
        let place = self.random.between(0, self.positions.len());
        let (log, position) = self.positions[place];
        if !self.random.one_in(3) {
            let run = self.producer.link.run;
            let values = (0..self.random.between(1, 4)).map(|_| run.value()).collect();
            return self.producer.send(log, values, Vec::new());
        }
        let transaction = Some(self.producer.transaction);
        let reading = Reading { transaction, ..Reading::committed(self.reader, log) };
        if let Some(fetched) = reading.read(&mut self.producer.link, position, 0) {
            self.positions[place].1 = fetched.next;
        }
        State::Fine
    }
}

/// Shorter than the time for which some stand still.
const TRANSACTION_TIMEOUT_MS: i32 = 2_000;
const PRODUCER_FENCED: i16 = 90;
const TRANSACTION_ABORTABLE: i16 = 120;
/// INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID,
/// PRODUCER_FENCED.
const FENCED: &[i16] = &[47, 48, 49, 59, PRODUCER_FENCED];
