//! Producers: idempotent ones, and ones that write in transactions and commit offsets in them.
//!
//! Each has keys, partitions and sequence numbers of its own. A batch is sent until it is answered;
//! a crash in the middle of a transaction is no reason to give it up, but now and then they do.

use std::collections::HashMap;

use kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest};

use crate::TOPICS;
use crate::book::{Outcome, Policy};
use crate::mark::{Mark, Written, batch};
use crate::random::Random;
use crate::stage::{COORDINATOR_LOAD_IN_PROGRESS, Node, Session, Stage, pause};
use crate::support::offsets;
use crate::support::requests::{self, Topic};
use crate::support::transactions::{
    GROUP, Identity, TRANSACTION, add_offsets, add_partitions, end_txn, transactional_id,
    txn_offset_commit,
};

/// One producer.
pub struct Writer<'a> {
    stage: &'a Stage,
    session: Session<'a>,
    random: Random,
    writer: u32,
    identity: Identity,
    sequences: HashMap<(&'static str, i32), i32>,
    numbers: u64,
}

impl<'a> Writer<'a> {
    /// One with a number of its own.
    pub fn new(stage: &'a Stage, writer: u32, seed: u64) -> Writer<'a> {
        Writer {
            stage,
            session: Session::begin(stage),
            random: Random::new(seed ^ (u64::from(writer) << 32)),
            writer,
            identity: Identity { id: -1, epoch: -1 },
            sequences: HashMap::new(),
            numbers: 0,
        }
    }

    /// Writes idempotently until the end.
    pub fn run_plain(mut self) {
        let answer = self.session.call(Node::Any, 4, &requests::init_producer_id(None));
        assert_eq!(answer.error_code, 0);
        self.identity = Identity { id: answer.producer_id.0, epoch: answer.producer_epoch };
        while !self.stage.is_ending() {
            self.write(0, None);
            pause(PACE_MS);
        }
    }

    /// Writes in transactions until the end: with implicit partitions and epochs that rise (the
    /// second transaction protocol), or without.
    pub fn run_transactions(mut self, second: bool) {
        let id = format!("writer-{}", self.writer);
        let group = format!("copies-{}", self.writer);
        let mut committed = -1;
        let mut transaction = 0;
        self.renew(&id);
        while !self.stage.is_ending() {
            transaction += 1;
            self.stage.book().outcome(self.writer, transaction, Outcome::Open);
            let offset = i64::try_from(transaction).expect("few");
            match self.transaction(&id, &group, transaction, second) {
                Ended::Commit { offsets: true } => committed = offset,
                Ended::Commit { offsets: false } | Ended::Abort => {}
                Ended::GivenUp => self.renew(&id),
            }
            self.check_offset(&group, committed);
            pause(PACE_MS);
        }
    }

    /// One transaction from its beginning to its end.
    fn transaction(&mut self, id: &str, group: &str, transaction: u64, second: bool) -> Ended {
        let generation = self.session.generation();
        for _ in 0..self.random.between(1, 6) {
            self.write(transaction, Some((id, second)));
            if self.session.generation() != generation && self.random.one_in(3) {
                self.stage.book().outcome(self.writer, transaction, Outcome::Aborted);
                return Ended::GivenUp;
            }
        }
        let offsets = self.random.one_in(2);
        if offsets {
            self.commit_offset(id, group, transaction, second);
        }
        let commit = !self.random.one_in(4);
        let outcome = if commit { Outcome::Committing } else { Outcome::Aborted };
        self.stage.book().outcome(self.writer, transaction, outcome);
        self.end(id, commit, second);
        if !commit {
            return Ended::Abort;
        }
        let mut book = self.stage.book();
        book.outcome(self.writer, transaction, Outcome::Committed);
        book.totals.offsets_committed += u64::from(offsets);
        Ended::Commit { offsets }
    }

    /// A new epoch, which aborts what is open.
    fn renew(&mut self, id: &str) {
        let request: InitProducerIdRequest = requests::init_producer_id(Some(id));
        let node = Node::Coordinator(TRANSACTION, id);
        let answer = loop {
            let answer = self.session.call(node, 4, &request);
            match answer.error_code {
                0 => break answer,
                code => wait_out(code, "InitProducerId"),
            }
        };
        self.take(answer.producer_id.0, answer.producer_epoch);
    }

    fn take(&mut self, id: i64, epoch: i16) {
        let taken = Identity { id, epoch };
        if taken != self.identity {
            self.identity = taken;
            self.sequences.clear();
        }
    }

    /// One batch to one partition, until it is acknowledged.
    fn write(&mut self, transaction: u64, within: Option<(&str, bool)>) {
        let (topic, partitions, policy, _) = loop {
            let place = self.random.pick(TOPICS);
            if within.is_some() == place.3 || matches!(place.2, Policy::Compact) {
                break place;
            }
        };
        let partition = self.random.between(0, partitions) as i32;
        let records: Vec<Written> = (0..self.random.between(1, 5))
            .map(|_| self.record(transaction, matches!(policy, Policy::Compact), partition))
            .collect();
        if let Some((id, false)) = within {
            let request = add_partitions(3, id, self.identity, &[(topic, partition)]);
            loop {
                let answer = self.session.call(Node::Coordinator(TRANSACTION, id), 3, &request);
                let answer = &answer.results_by_topic_v3_and_below[0].results_by_partition[0];
                match answer.partition_error_code {
                    0 => break,
                    code => wait_out(code, "AddPartitionsToTxn"),
                }
            }
        }
        let sequence = self.sequences.entry((topic, partition)).or_insert(0);
        let sender = (self.identity.id, self.identity.epoch, *sequence);
        *sequence += records.len() as i32;
        let (set, time_ms) = batch(&records, sender, within.is_some());
        self.stage.book().sending(topic, partition, &records, time_ms);
        let version = if within.is_some_and(|(_, second)| second) { 12 } else { 9 };
        let mut request: ProduceRequest =
            requests::produce(version, &Topic::named(topic), partition, -1, set);
        request.transactional_id = within.map(|(id, _)| transactional_id(id));
        let base = loop {
            let answer = self.session.call(Node::Leader(topic, partition), version, &request);
            let answer = &answer.responses[0].partition_responses[0];
            match answer.error_code {
                0 => break answer.base_offset,
                code => wait_out(code, "Produce"),
            }
        };
        self.stage.book().acknowledged(topic, partition, &records, base);
    }

    fn record(&mut self, transaction: u64, keyed: bool, partition: i32) -> Written {
        self.numbers += 1;
        let key = self.random.between(0, KEYS);
        let mark = Mark { writer: self.writer, transaction, number: self.numbers };
        let key = keyed.then(|| format!("{}-{partition}-{key}", self.writer));
        Written { mark, tombstone: key.is_some() && self.random.one_in(9), key }
    }

    fn commit_offset(&mut self, id: &str, group: &str, transaction: u64, second: bool) {
        let node = Node::Coordinator(GROUP, group);
        let offset = i64::try_from(transaction).expect("few");
        let version = if second { 5 } else { 3 };
        if !second {
            let request = add_offsets(id, self.identity, group);
            loop {
                let answer = self.session.call(Node::Coordinator(TRANSACTION, id), 3, &request);
                match answer.error_code {
                    0 => break,
                    code => wait_out(code, "AddOffsetsToTxn"),
                }
            }
        }
        let mut request = txn_offset_commit(id, self.identity, group, TOPICS[0].0, &[(0, offset)]);
        // Long enough that the internal topic has to be compacted.
        request.topics[0].partitions[0].committed_metadata = Some(offsets::text(&"m".repeat(1500)));
        loop {
            let answer = self.session.call(node, version, &request);
            match answer.topics[0].partitions[0].error_code {
                0 => break,
                code => wait_out(code, "TxnOffsetCommit"),
            }
        }
    }

    fn end(&mut self, id: &str, commit: bool, second: bool) {
        let version = if second { 5 } else { 3 };
        let request = end_txn(id, self.identity, commit);
        let answer = loop {
            let answer = self.session.call(Node::Coordinator(TRANSACTION, id), version, &request);
            match answer.error_code {
                0 => break answer,
                code => wait_out(code, "EndTxn"),
            }
        };
        if second {
            self.take(answer.producer_id.0, answer.producer_epoch);
        }
    }

    /// The group has the offset of the last committed transaction that had one.
    fn check_offset(&mut self, group: &str, expected: i64) {
        let mut request = offsets::fetch(9, group, &Topic::named(TOPICS[0].0), &[0]);
        request.0.require_stable = true;
        loop {
            let answer = self.session.call(Node::Coordinator(GROUP, group), 9, &request);
            let group_answer = &answer.groups[0];
            if group_answer.error_code != 0 {
                wait_out(group_answer.error_code, "OffsetFetch");
                continue;
            }
            let found = &group_answer.topics[0].partitions[0];
            match found.error_code {
                0 => {
                    assert_eq!(found.committed_offset, expected, "{group}");
                    return;
                }
                code => wait_out(code, "OffsetFetch"),
            }
        }
    }
}

/// How a transaction ended.
enum Ended {
    Commit { offsets: bool },
    Abort,
    GivenUp,
}

/// Some codes say: later. Any other is a fault.
fn wait_out(code: i16, what: &str) {
    let passes = [COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT];
    assert!(passes.contains(&code), "{what} is answered with {code}");
    pause(5);
}

/// Two cores are enough for all of it.
const PACE_MS: u64 = 4;
const KEYS: usize = 20;
const CONCURRENT_TRANSACTIONS: i16 = 51;
const UNSTABLE_OFFSET_COMMIT: i16 = 88;
