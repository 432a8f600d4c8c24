//! What became of every transaction, as far as the outside world was told, and whether it holds.
//!
//! Owns, over all boots of one seed: which records and offsets each transaction has, what its
//! producer was answered, what readers saw. A transaction is committed for sure when EndTxn was
//! answered so, or a reader of committed records got one of its records or offsets; aborted for
//! sure when an abort was answered, or such a reader went past one of its records without it. While
//! a commit was asked for and not answered it may be either, as a whole, and stays what it turns
//! out to be. What was never asked to commit must never be seen.

use std::collections::{BTreeMap, BTreeSet};

use ringlog::ids::{Offset, PartitionIndex, TopicId, TopicPartition};
use ringlog::sim::checker::{AttemptId, History, LogView, RecordId, Session};

use crate::trace::Trace;

/// Number of a transaction, in the order they were begun; its offsets are committed as this plus 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TxnNo(pub usize);

/// What was answered to EndTxn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Done,
    Refused,
    /// No answer, or one that says "perhaps later".
    Unknown,
}

/// What is known of a transaction.
#[derive(Clone, Debug, Default)]
struct Txn {
    /// Number of its transactional id.
    id: usize,
    /// Acknowledged records.
    acked: Vec<(TopicPartition, Offset, RecordId)>,
    offsets_sent: bool,
    offsets_acked: bool,
    /// Commits asked for without a clear answer.
    asks: u32,
    asked_ever: bool,
    committed: bool,
    aborted: bool,
    /// A reader was let past its first record before a commit was asked for.
    passed: Option<String>,
}

/// A record that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    txn: Option<TxnNo>,
    tp: TopicPartition,
}

/// Bounds of a partition as readers were told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bounds {
    pub high_watermark: i64,
    pub stable: i64,
}

/// Who has asked for a producer id under a transactional id.
#[derive(Default)]
struct Inits {
    sent: u64,
    /// Without an answer; they may be done at any time.
    open: BTreeSet<u64>,
}

counts! {
    /// How much a run did.
    pub struct Counts {
        pub boots: u64,
        pub crashes: u64,
        pub clean_stops: u64,
        pub faulty_boots: u64,
        pub batches: u64,
        pub transactions: u64,
        pub committed: u64,
        pub aborted: u64,
        /// Commits without an answer that turned out either way.
        pub in_doubt: u64,
        pub offsets: u64,
        pub lost_answers: u64,
        pub copies: u64,
        pub refusals: u64,
        pub zombies: u64,
        pub reads: u64,
        pub unstable_offsets: u64,
        /// Batches in a topic that may be deleted.
        pub spare_batches: u64,
        pub deletions: u64,
        /// Partitions of that topic from which retention has taken records.
        pub forgotten: u64,
        /// Passes over internal topics.
        pub passes: u64,
        /// Offsets of them that nothing is left of.
        pub removed: u64,
    }
}

/// Everything that clients know.
pub struct Oracle {
    pub history: History,
    pub counts: Counts,
    topic: TopicId,
    txns: Vec<Txn>,
    records: BTreeMap<RecordId, Sent>,
    /// Acknowledged records by place.
    places: BTreeMap<(TopicPartition, Offset), RecordId>,
    delivered: BTreeMap<RecordId, Offset>,
    bounds: BTreeMap<TopicPartition, Bounds>,
    inits: BTreeMap<usize, Inits>,
    next_record: u64,
    pub trace: Trace,
}

impl Oracle {
    /// An oracle of a topic in which nothing has happened.
    pub fn new(topic: TopicId) -> Oracle {
        Oracle {
            history: History::new(),
            counts: Counts::default(),
            topic,
            txns: Vec::new(),
            records: BTreeMap::new(),
            places: BTreeMap::new(),
            delivered: BTreeMap::new(),
            bounds: BTreeMap::new(),
            inits: BTreeMap::new(),
            next_record: 0,
            trace: Trace::default(),
        }
    }

    /// A partition of the topic.
    pub fn tp(&self, index: i32) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: PartitionIndex(index) }
    }

    /// Notes the first thing that went wrong.
    pub fn violated(&mut self, what: impl Into<String>) {
        self.trace.violated(what);
    }

    /// What went wrong, if anything has, with what happened before.
    pub fn check(&self) -> Result<(), String> {
        self.trace.check()
    }

    /// A new boot: what was under way in the one before will not be done any more.
    pub fn boot(&mut self, shards: usize) {
        self.trace.say(format!("boot with {shards} shards"));
        self.counts.boots += 1;
        for inits in self.inits.values_mut().filter(|inits| !inits.open.is_empty()) {
            // Any of them may have been done before the crash.
            inits.open.clear();
            inits.sent += 1;
        }
    }

    /// Notes an InitProducerId about to be sent; its number.
    pub fn init_sent(&mut self, id: usize) -> u64 {
        let inits = self.inits.entry(id).or_default();
        inits.sent += 1;
        let number = inits.sent;
        if !inits.open.is_empty() {
            // Nobody knows which of them is done first: this one need not be the newest.
            inits.sent += 1;
        }
        inits.open.insert(number);
        number
    }

    /// Notes that it was answered.
    pub fn init_answered(&mut self, id: usize, number: u64) {
        self.inits.entry(id).or_default().open.remove(&number);
    }

    /// Whether nobody may have taken over the id since the InitProducerId of this number.
    pub fn is_newest(&self, id: usize, number: u64) -> bool {
        self.inits.get(&id).is_some_and(|inits| inits.sent == number && inits.open.is_empty())
    }

    /// A new transaction of an id.
    pub fn begin(&mut self, id: usize) -> TxnNo {
        self.counts.transactions += 1;
        self.txns.push(Txn { id, ..Txn::default() });
        TxnNo(self.txns.len() - 1)
    }

    /// Notes a batch about to be sent for the first time.
    pub fn sending(
        &mut self,
        txn: Option<TxnNo>,
        session: Option<Session>,
        index: i32,
        count: usize,
    ) -> (AttemptId, Vec<RecordId>) {
        let tp = self.tp(index);
        let first = self.next_record;
        self.next_record += count as u64;
        let records: Vec<RecordId> = (first..self.next_record).map(RecordId).collect();
        for record in &records {
            self.records.insert(*record, Sent { txn, tp });
        }
        (self.history.attempt(tp, session, records.clone()), records)
    }

    /// Notes an acknowledged batch.
    pub fn acked(&mut self, attempt: AttemptId, records: &[RecordId], base: Offset) {
        self.counts.batches += 1;
        if let Err(broken) = self.history.acked(attempt, base) {
            self.violated(broken.to_string());
        }
        for (at, &record) in records.iter().enumerate() {
            let offset = base.plus(at as i64);
            let Sent { txn, tp } = self.records[&record];
            self.places.insert((tp, offset), record);
            if let Some(TxnNo(txn)) = txn {
                self.txns[txn].acked.push((tp, offset, record));
            }
        }
    }

    /// Notes that the transaction's offsets are about to be sent; the value to commit.
    pub fn offsets_sent(&mut self, txn: TxnNo) -> i64 {
        self.txns[txn.0].offsets_sent = true;
        txn.0 as i64 + 1
    }

    /// Notes that they were taken.
    pub fn offsets_acked(&mut self, txn: TxnNo) {
        self.counts.offsets += 1;
        self.txns[txn.0].offsets_acked = true;
    }

    /// Whether the transaction has anything that was taken.
    pub fn has_anything(&self, txn: TxnNo) -> bool {
        let txn = &self.txns[txn.0];
        txn.offsets_acked || !txn.acked.is_empty()
    }

    /// Notes that EndTxn is about to be sent.
    pub fn ending(&mut self, no: TxnNo, commit: bool) {
        if !commit {
            return;
        }
        let txn = &self.txns[no.0];
        if !txn.asked_ever {
            let passed = txn.acked.iter().find_map(|(tp, offset, _)| {
                let stable = self.bounds.get(tp).map_or(0, |bounds| bounds.stable);
                (stable > offset.0).then(|| {
                    format!(
                        "the last stable offset of {} was {stable}, beyond {offset} of \
                             transaction {}, which was open",
                        tp.partition, no.0
                    )
                })
            });
            self.txns[no.0].passed = passed;
        }
        let txn = &mut self.txns[no.0];
        txn.asked_ever = true;
        txn.asks += 1;
    }

    /// Notes what was answered.
    pub fn ended(&mut self, no: TxnNo, commit: bool, outcome: Ended) {
        match (commit, outcome) {
            (true, Ended::Done) => self.is_committed(no, "its EndTxn was answered"),
            (true, Ended::Refused) => self.txns[no.0].asks -= 1,
            (false, Ended::Done) => self.is_aborted(no, "its abort was answered"),
            (_, Ended::Unknown) | (false, Ended::Refused) => {}
        }
    }

    fn is_committed(&mut self, no: TxnNo, why: &str) {
        let txn = &mut self.txns[no.0];
        if txn.committed {
            return;
        }
        txn.committed = true;
        self.counts.committed += 1;
        self.counts.in_doubt += u64::from(why.starts_with("a reader"));
        let txn = txn.clone();
        if txn.aborted {
            self.violated(format!("transaction {} was aborted and is committed: {why}", no.0));
        } else if txn.asks == 0 {
            self.violated(format!("transaction {} is committed unasked: {why}", no.0));
        } else if let Some(passed) = txn.passed {
            self.violated(passed);
        }
    }

    fn is_aborted(&mut self, no: TxnNo, why: &str) {
        let txn = &mut self.txns[no.0];
        if txn.aborted {
            return;
        }
        txn.aborted = true;
        self.counts.aborted += 1;
        self.counts.in_doubt += u64::from(txn.asks > 0);
        if txn.committed {
            self.violated(format!("transaction {} was committed and is aborted: {why}", no.0));
        }
    }

    /// Bounds of a partition known by now: what is asked from now on must not be below.
    pub fn bounds(&self, index: i32) -> Bounds {
        self.bounds.get(&self.tp(index)).copied().unwrap_or_default()
    }

    /// Notes bounds that were told to somebody who asked when `known` was known; -1 for untold.
    pub fn told_bounds(&mut self, index: i32, known: Bounds, told: Bounds) {
        let tp = self.tp(index);
        let moved_back = |told: i64, known: i64| told >= 0 && told < known;
        if moved_back(told.high_watermark, known.high_watermark)
            || moved_back(told.stable, known.stable)
        {
            self.violated(format!("a bound of {index} moved back from {known:?} to {told:?}"));
        }
        if told.high_watermark >= 0 && told.stable > told.high_watermark {
            self.violated(format!("bounds of {index} have no order: {told:?}"));
        }
        let bounds = self.bounds.entry(tp).or_default();
        bounds.high_watermark = bounds.high_watermark.max(told.high_watermark);
        bounds.stable = bounds.stable.max(told.stable);
    }

    /// Notes what a reader of committed records got from `from` up to `next`.
    pub fn delivered(&mut self, index: i32, from: i64, next: i64, got: &[(Offset, RecordId)]) {
        let tp = self.tp(index);
        for &(offset, record) in got {
            self.delivered_one(tp, offset, record);
        }
        let given: BTreeSet<RecordId> = got.iter().map(|(_, record)| *record).collect();
        let passed = self.places.range((tp, Offset(from))..(tp, Offset(next.max(from))));
        let missing: Vec<(Offset, RecordId)> = passed
            .filter(|(_, record)| !given.contains(record))
            .map(|(&(_, offset), &record)| (offset, record))
            .collect();
        for (offset, record) in missing {
            match self.records[&record].txn {
                None => self.violated(format!(
                    "record {} at {offset} of {index}, in no transaction, was left out",
                    record.0
                )),
                Some(no) => {
                    let why = format!("a reader was given none of {offset} in {index}");
                    self.is_aborted(no, &why);
                }
            }
        }
    }

    fn delivered_one(&mut self, tp: TopicPartition, offset: Offset, record: RecordId) {
        let index = tp.partition;
        let Some(&Sent { txn, tp: sent_to }) = self.records.get(&record) else {
            return self.violated(format!("record {} at {offset} was never sent", record.0));
        };
        if sent_to != tp {
            self.violated(format!("record {} is in {index}, not {}", record.0, sent_to.partition));
        }
        if let Some(before) = self.delivered.insert(record, offset)
            && before != offset
        {
            self.violated(format!(
                "record {} of {index} was given at {before} and at {offset}",
                record.0
            ));
        }
        if let Some(no) = txn {
            self.is_committed(no, &format!("a reader was given {offset} of {index}"));
        }
    }

    /// Newest offset of an id that is committed for sure by now, 0 for none.
    pub fn committed_offset(&self, id: usize) -> i64 {
        let of_id = self.txns.iter().enumerate().rev();
        let newest = of_id
            .filter(|(_, txn)| txn.id == id && txn.committed && txn.offsets_acked)
            .map(|(no, _)| no as i64 + 1)
            .next();
        newest.unwrap_or(0)
    }

    /// Notes the committed offset of an id as told to somebody who asked when `known` was known.
    pub fn told_offset(&mut self, id: usize, known: i64, told: i64) {
        if told < known {
            return self.violated(format!("the offset of id {id} is {told}, after {known}"));
        }
        if told <= 0 {
            return;
        }
        let no = TxnNo(told as usize - 1);
        match self.txns.get(no.0) {
            Some(txn) if txn.id == id && txn.offsets_sent => {
                self.is_committed(no, &format!("a reader was given its offset {told}"));
            }
            _ => self.violated(format!("the offset of id {id} is {told}, which was never sent")),
        }
    }

    /// The end: everything is decided. `logs` as read without isolation, `offsets` by id.
    pub fn finish(&mut self, logs: &BTreeMap<i32, LogView>, offsets: &BTreeMap<usize, i64>) {
        for (&index, log) in logs {
            if let Err(broken) = self.history.verify(self.tp(index), log) {
                self.violated(broken.to_string());
            }
        }
        for at in 0..self.txns.len() {
            let (no, txn) = (TxnNo(at), self.txns[at].clone());
            for (tp, offset, record) in &txn.acked {
                let given = self.delivered.contains_key(record);
                if given != txn.committed {
                    let (index, record) = (tp.partition, record.0);
                    self.violated(format!(
                        "transaction {at} is torn: record {record} at {offset} of {index}, \
                         given: {given}, is not as the rest: {txn:?}"
                    ));
                }
            }
            let told = offsets.get(&txn.id).copied().unwrap_or(0);
            let value = at as i64 + 1;
            if txn.offsets_acked && told < value {
                self.is_aborted(no, "a reader was given none of its offsets");
            }
        }
    }
}
