//! Members of groups that make one output of each record they read, in transactions that commit
//! their offsets too: every input below the group's offset has one output, whatever happens.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use kafka_protocol::messages::{AddOffsetsToTxnRequest, TxnOffsetCommitRequest};

use crate::consumer::{Position, follow};
use crate::history::{Commit, Group, Line, Log, Outcome, What};
use crate::link::{Answer, Node};
use crate::member::{LOST, Member, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH};
use crate::plain::LATER;
use crate::random::Random;
use crate::reader::Reading;
use crate::run::{MADE, Run, logs_of, now};
use crate::support::offsets::text;
use crate::support::transactions::{add_offsets, txn_offset_commit};
use crate::transactor::{Producer, State, refused};

/// One member with a transactional id of its own.
pub struct Processor<'a> {
    producer: Producer<'a>,
    member: Member,
    positions: BTreeMap<Log, Position>,
    random: Random,
}

impl<'a> Processor<'a> {
    pub fn new(
        run: &'a Run,
        client: usize,
        (line, second): (Line, bool),
        (group, topic, is_classic): (Group, u8, bool),
        seed: u64,
    ) -> Processor<'a> {
        let producer = Producer::new(run, client, line, second);
        let member = Member::new(&producer.link, group, topic, is_classic);
        Processor { producer, member, positions: BTreeMap::new(), random: Random::new(seed) }
    }

    /// Works until the end.
    pub fn run(mut self) {
        let run = self.producer.link.run;
        let mut state = State::Fenced;
        while !run.is_ending() {
            if state == State::Fenced && !self.producer.init() {
                continue;
            }
            self.member.tick(&mut self.producer.link);
            // Between transactions nothing is uncommitted: it can give up anything.
            follow(&mut self.producer.link, &self.member, &mut self.positions);
            state = if self.positions.is_empty() { State::Fine } else { self.transaction() };
            sleep(Duration::from_millis(self.random.between(0, 12) as u64));
        }
        self.member.leave(&mut self.producer.link);
        while !self.producer.init() {}
    }

    /// Takes some records of some partitions. What is not committed is read again.
    fn transaction(&mut self) -> State {
        self.producer.begin();
        let logs: Vec<Log> = self.positions.keys().copied().collect();
        for log in logs {
            if self.random.one_in(2) {
                continue;
            }
            let state = self.work(log);
            if state != State::Fine {
                self.positions.clear();
                let aborts = state == State::MustAbort;
                return if aborts { self.producer.end(false) } else { State::Fenced };
            }
        }
        let commit = !self.random.one_in(6);
        let state = self.producer.end(commit);
        if !commit || state != State::Fine {
            self.positions.clear();
        }
        state
    }

    fn work(&mut self, log: Log) -> State {
        let position = self.positions[&log];
        let transaction = Some(self.producer.transaction);
        let mut reading = Reading::committed(position.process, log);
        reading.transaction = transaction;
        reading.bytes_max = BYTES_MAX;
        let Some(fetched) = reading.read(&mut self.producer.link, position.next, 0) else {
            return State::Fine;
        };
        if let Some(position) = self.positions.get_mut(&log) {
            position.next = fetched.next;
        }
        if fetched.records.is_empty() {
            return State::Fine;
        }
        let run = self.producer.link.run;
        let outputs: Vec<Log> = logs_of(MADE).collect();
        for records in fetched.records.chunks(BATCH_RECORDS_MAX) {
            let to = self.random.pick(&outputs);
            let values = records.iter().map(|_| run.value()).collect();
            let sources = records.iter().map(|(offset, _)| (log, *offset)).collect();
            let state = self.producer.send(to, values, sources);
            if state != State::Fine {
                return state;
            }
        }
        self.member.tick(&mut self.producer.link);
        // The generation may be another one now, in which it has no say over this partition. Only
        // the member knows: a broker takes offsets of any partition from any member.
        if !self.member.held().contains(&(log, position.since)) {
            return State::MustAbort;
        }
        self.commit(log, fetched.next)
    }

    /// The offset goes into the transaction.
    fn commit(&mut self, log: Log, offset: i64) -> State {
        if !self.producer.second {
            let state = self.add();
            if state != State::Fine {
                return state;
            }
        }
        let group = self.member.group;
        let (id, identity) = (self.producer.line.name(), self.producer.wire_identity());
        let at = [(log.index(), offset)];
        let mut request: TxnOffsetCommitRequest =
            txn_offset_commit(&id, identity, &group.name(), log.name(), &at);
        request.member_id = text(&self.member.id);
        request.generation_id = self.member.generation;
        let version = if self.producer.second { 5 } else { 3 };
        let invoked = now();
        let answer = self.producer.link.insist(
            (Node::OfGroup(group), version),
            &request,
            ("TxnOffsetCommit", LATER),
            |answer| answer.topics[0].partitions[0].error_code,
        );
        let (outcome, state) = match answer {
            Answer::None => (Outcome::Unknown, State::Fenced),
            Answer::Final { response, was_lost } => {
                match response.topics[0].partitions[0].error_code {
                    0 => {
                        self.member.confirm(log, invoked);
                        // In the first protocol the lost one may come as late as in the next
                        // transaction, unless the epoch is another one then.
                        let is_sure = self.producer.second || !was_lost;
                        (Outcome::Ok, if is_sure { State::Fine } else { State::Fenced })
                    }
                    code if REFUSED.contains(&code) || LOST.contains(&code) => {
                        self.member.hear(&self.producer.link, code);
                        (refused(was_lost), State::MustAbort)
                    }
                    code => (refused(was_lost), self.producer.state(code, "TxnOffsetCommit")),
                }
            }
        };
        let transaction = Some(self.producer.transaction);
        let commit = Commit { group, log, offset, transaction, outcome };
        self.producer.link.run.note(self.producer.process, invoked, What::Commit(commit));
        state
    }

    fn add(&mut self) -> State {
        let (id, identity) = (self.producer.line.name(), self.producer.wire_identity());
        let request: AddOffsetsToTxnRequest = add_offsets(&id, identity, &self.member.group.name());
        let answer = self.producer.link.insist(
            (Node::OfLine(self.producer.line), 3),
            &request,
            ("AddOffsetsToTxn", LATER),
            |answer| answer.error_code,
        );
        match answer {
            Answer::Final { response, .. } if response.error_code == 0 => State::Fine,
            Answer::Final { response, .. } => {
                self.producer.state(response.error_code, "AddOffsetsToTxn")
            }
            Answer::None => State::Fenced,
        }
    }
}

const REFUSED: &[i16] = &[REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH];
const BATCH_RECORDS_MAX: usize = 8;
/// A fetch brings at least one batch.
const BYTES_MAX: i32 = 3_000;
