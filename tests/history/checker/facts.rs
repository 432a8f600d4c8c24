//! What a history says about single values and transactions, indexed. No rules here.

use std::collections::{BTreeMap, HashMap};

use crate::history::{History, Log, Ns, Operation, Outcome, Send, Txn, Value, What};

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Committed,
    /// Nobody knows; what is there at the end tells.
    Unknown,
    /// Never asked to commit, or refused.
    Aborted,
}

/// A value that was sent.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    pub send: &'a Send,
    /// Its place in the batch.
    pub place: usize,
}

/// A transaction's life.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub fate: Fate,
    pub begun: Ns,
    /// When its commit was acknowledged.
    pub committed: Option<Ns>,
}

/// The index.
pub struct Facts<'a> {
    pub sent: HashMap<Value, Sent<'a>>,
    /// Values that more than one operation sent: a fault of the recording.
    pub sent_twice: Vec<Value>,
    pub lives: HashMap<Txn, Life>,
    /// What lies in the logs at the end, by value: the first place, and whether it is shown to a
    /// reader of committed records.
    pub stored: HashMap<Value, Stored>,
    /// The operations that sent, by log, by the time at which they began.
    pub sends: BTreeMap<Log, Vec<&'a Operation>>,
}

/// Where a value is at the end.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub log: Log,
    pub offset: i64,
    pub is_committed: bool,
}

impl<'a> Facts<'a> {
    pub fn of(history: &'a History) -> Facts<'a> {
        let mut facts = Facts {
            sent: HashMap::new(),
            sent_twice: Vec::new(),
            lives: HashMap::new(),
            stored: HashMap::new(),
            sends: BTreeMap::new(),
        };
        for operation in &history.operations {
            facts.index(operation);
        }
        for sends in facts.sends.values_mut() {
            sends.sort_by_key(|operation| operation.invoked);
        }
        for (&log, rest) in &history.rests {
            for &(offset, value) in &rest.all {
                let stored = Stored { log, offset, is_committed: false };
                facts.stored.entry(value).or_insert(stored);
            }
            for &(offset, value) in &rest.committed {
                let stored = Stored { log, offset, is_committed: true };
                facts.stored.entry(value).or_insert(stored).is_committed = true;
            }
        }
        facts
    }

    fn index(&mut self, operation: &'a Operation) {
        match &operation.what {
            What::Send(send) => {
                for (place, &value) in send.values.iter().enumerate() {
                    let sent = Sent { send, place };
                    if self.sent.insert(value, sent).is_some() {
                        self.sent_twice.push(value);
                    }
                }
                self.sends.entry(send.log).or_default().push(operation);
            }
            What::Begin { transaction, .. } => {
                self.life(*transaction).begun = operation.invoked;
            }
            What::End { transaction, commit: true, outcome } => {
                let life = self.life(*transaction);
                match outcome {
                    Outcome::Ok => {
                        life.fate = Fate::Committed;
                        life.committed = Some(operation.done);
                    }
                    Outcome::Unknown if life.fate == Fate::Aborted => life.fate = Fate::Unknown,
                    Outcome::Unknown | Outcome::Refused => {}
                }
            }
            _ => {}
        }
    }

    fn life(&mut self, transaction: Txn) -> &mut Life {
        let life = Life { fate: Fate::Aborted, begun: 0, committed: None };
        self.lives.entry(transaction).or_insert(life)
    }

    /// How the transaction of a value ended; what belongs to none is committed.
    pub fn fate(&self, transaction: Option<Txn>) -> Fate {
        match transaction {
            None => Fate::Committed,
            Some(transaction) => {
                self.lives.get(&transaction).map_or(Fate::Aborted, |life| life.fate)
            }
        }
    }
}
