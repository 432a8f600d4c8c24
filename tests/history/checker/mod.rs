//! The checker: takes a history and tells every anomaly in it. Pure; no clock, no files, no protocol.
//!
//! Owns the rules, each in the file of its subject: `logs` what was sent against what is there,
//! `polls` what readers were shown, `transactions` the order of transactions and of fenced
//! producers, `groups` offsets, owners and what was made of records that a group has read.
//! What lies in the logs at the end is the yardstick: offsets never change, so that what anybody was
//! shown at any time, and what anybody was promised, has to agree with it.
//! What Kafka does not promise is no anomaly: transactions that run at one time may write to two
//! logs in either order, and markers of one transaction arrive at its logs one by one.

mod facts;
mod groups;
mod logs;
mod polls;
mod transactions;

#[cfg(test)]
mod model;
#[cfg(test)]
mod planted;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::History;
use facts::Facts;

/// What can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Acknowledged and committed, or already seen, and not there.
    Lost,
    /// One value twice, or one input made into an output twice.
    Duplicated,
    /// Offsets against the order of a producer, or against real time.
    Reordered,
    /// Nobody sent it, or not to there, or it was refused.
    Phantom,
    /// Elle's G1a: a reader of committed records saw one of an aborted transaction.
    AbortedRead,
    /// Of a transaction a part is there and a part is not; its offsets count as a part.
    Torn,
    /// A reader went past a record that it ought to have been shown.
    Skipped,
    /// Committed, and no reader ever saw it.
    Unseen,
    /// Offsets of one reader that do not rise.
    NonMonotonicPoll,
    /// Acknowledged offsets of one producer that do not rise.
    NonMonotonicSend,
    /// Two sayings about what is at an offset.
    InconsistentOffset,
    /// Something shown beyond the end that was told with it.
    ReadBeyondEnd,
    /// An end of a log below what was acknowledged or told before.
    StaleEnd,
    /// A committed offset that is lower than one before.
    OffsetWentBack,
    /// A partition with two owners at one time.
    TwoOwners,
    /// A fenced producer whose request was granted.
    Zombie,
    /// Elle's G0: transactions whose writes, and the order in which they ran, go round in a circle.
    WriteCycle,
    /// Elle's G1c: the same with reads of each other's records.
    ReadCycle,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    pub kind: Kind,
    pub told: String,
}

/// All anomalies of a history.
pub fn check(history: &History) -> Findings {
    let facts = Facts::of(history);
    let mut findings = Findings::default();
    logs::check(history, &facts, &mut findings);
    polls::check(history, &facts, &mut findings);
    transactions::check(history, &facts, &mut findings);
    groups::check(history, &facts, &mut findings);
    findings
}

/// What was found, and how much was looked at.
#[derive(Default, Debug)]
pub struct Findings {
    /// The first of each kind, up to [`KEPT`].
    pub anomalies: Vec<Anomaly>,
    /// All of each kind.
    pub counts: BTreeMap<Kind, u64>,
    /// How much of what was held against the rules.
    pub looked_at: BTreeMap<&'static str, u64>,
}

impl Findings {
    fn report(&mut self, kind: Kind, told: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= KEPT {
            self.anomalies.push(Anomaly { kind, told: told() });
        }
    }

    fn look(&mut self, what: &'static str, count: usize) {
        *self.looked_at.entry(what).or_default() += count as u64;
    }

    /// The kinds that were found.
    pub fn kinds(&self) -> Vec<Kind> {
        self.counts.keys().copied().collect()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "looked at {:?}", self.looked_at)?;
        for (kind, count) in &self.counts {
            writeln!(out, "{kind:?}: {count}")?;
            for anomaly in self.anomalies.iter().filter(|anomaly| anomaly.kind == *kind) {
                writeln!(out, "  {}", anomaly.told)?;
            }
        }
        Ok(())
    }
}

const KEPT: u64 = 20;
