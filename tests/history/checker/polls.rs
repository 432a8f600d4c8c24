//! What readers were shown. One process reads a log in one go: who goes back is another process.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::facts::{Facts, Fate};
use super::{Findings, Kind};
use crate::history::{History, Log, Ns, Operation, Outcome, Poll, Process, Rest, Txn, Value, What};

pub fn check(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    let mut chains: BTreeMap<(Process, Log), Vec<(&Operation, &Poll)>> = BTreeMap::new();
    for operation in &history.operations {
        if let What::Poll(poll) = &operation.what {
            chains.entry((operation.process, poll.log)).or_default().push((operation, poll));
        }
    }
    let none = Rest::default();
    let mut parts = seen_parts(&chains, facts);
    for ((process, log), polls) in &mut chains {
        polls.sort_by_key(|(operation, _)| operation.invoked);
        let rest = history.rests.get(log).unwrap_or(&none);
        let seen = parts.remove(process).unwrap_or_default();
        let reader = Reader { process: *process, log: *log, rest, facts, seen: &seen };
        reader.check(polls, findings);
        parts.insert(*process, seen);
    }
    check_ends(history, findings);
    check_unseen(history, facts, findings);
}

/// Of which transactions each reader has seen something.
fn seen_parts(
    chains: &BTreeMap<(Process, Log), Vec<(&Operation, &Poll)>>,
    facts: &Facts<'_>,
) -> HashMap<Process, HashSet<Txn>> {
    let mut parts: HashMap<Process, HashSet<Txn>> = HashMap::new();
    for ((process, _), polls) in chains {
        let seen = parts.entry(*process).or_default();
        for (_, value) in polls.iter().flat_map(|(_, poll)| &poll.records) {
            seen.extend(facts.sent.get(value).and_then(|sent| sent.send.transaction));
        }
    }
    parts
}

/// One process on one log.
struct Reader<'a> {
    process: Process,
    log: Log,
    rest: &'a Rest,
    facts: &'a Facts<'a>,
    seen: &'a HashSet<Txn>,
}

impl Reader<'_> {
    fn check(&self, polls: &[(&Operation, &Poll)], findings: &mut Findings) {
        let mut position: Option<i64> = None;
        for (_, poll) in polls {
            findings.look("records shown", poll.records.len());
            let before = position.unwrap_or(poll.from);
            if poll.from < before || poll.next < poll.from {
                let told = || self.told(poll, &format!("after a position of {before}"));
                findings.report(Kind::NonMonotonicPoll, told);
            }
            self.check_order(poll, findings);
            self.check_ends(poll, findings);
            self.check_records(before.min(poll.from), poll, findings);
            position = Some(poll.next.max(before));
        }
    }

    fn check_order(&self, poll: &Poll, findings: &mut Findings) {
        let mut next = poll.from;
        for &(offset, _) in &poll.records {
            if offset < next {
                let told = || self.told(poll, &format!("offset {offset} where {next} is due"));
                findings.report(Kind::NonMonotonicPoll, told);
            }
            next = next.max(offset + 1);
        }
        if next > poll.next.max(poll.from) {
            findings.report(Kind::NonMonotonicPoll, || self.told(poll, "records from its end on"));
        }
    }

    fn check_ends(&self, poll: &Poll, findings: &mut Findings) {
        let Some((end, stable)) = poll.ends else { return };
        let bound = if poll.committed { stable } else { end };
        if stable > end || (!poll.records.is_empty() && poll.next > bound) {
            findings.report(Kind::ReadBeyondEnd, || self.told(poll, "beyond an end"));
        }
    }

    /// Exactly what lies there, from where the reader was last.
    fn check_records(&self, from: i64, poll: &Poll, findings: &mut Findings) {
        let all = if poll.committed { &self.rest.committed } else { &self.rest.all };
        let due = between(all, from, poll.next);
        if due == poll.records {
            return;
        }
        let shown: HashSet<(i64, Value)> = poll.records.iter().copied().collect();
        for &(offset, value) in due.iter().filter(|record| !shown.contains(record)) {
            let transaction = self.facts.sent.get(&value).and_then(|sent| sent.send.transaction);
            let is_part = transaction.is_some_and(|transaction| self.seen.contains(&transaction));
            let kind = if is_part { Kind::Torn } else { Kind::Skipped };
            let what = format!("not value {value} at {offset} of {transaction:?}");
            findings.report(kind, || self.told(poll, &what));
        }
        let due: HashSet<(i64, Value)> = due.iter().copied().collect();
        for &(offset, value) in poll.records.iter().filter(|record| !due.contains(record)) {
            let kind = self.kind_of_surplus(offset, value);
            let what = format!("{:?} at {offset}", self.facts.sent.get(&value).map(|s| s.send));
            findings.report(kind, || self.told(poll, &format!("value {value}, {what}")));
        }
    }

    /// What it is that a reader was shown something that is not, or not so, at the end.
    fn kind_of_surplus(&self, offset: i64, value: Value) -> Kind {
        let Some(sent) = self.facts.sent.get(&value) else { return Kind::Phantom };
        match self.facts.stored.get(&value) {
            _ if sent.send.log != self.log || sent.send.outcome == Outcome::Refused => {
                Kind::Phantom
            }
            Some(stored) if stored.offset != offset => Kind::Duplicated,
            Some(stored) if !stored.is_committed => Kind::AbortedRead,
            // Outside what the poll says it covers: told already.
            Some(_) => Kind::NonMonotonicPoll,
            None if self.facts.fate(sent.send.transaction) == Fate::Aborted => Kind::AbortedRead,
            None => Kind::Lost,
        }
    }

    fn told(&self, poll: &Poll, what: &str) -> String {
        let (process, log) = (self.process, self.log);
        let isolation = if poll.committed { "committed" } else { "all" };
        format!("{process:?} was shown {isolation} {log:?} {}..{}: {what}", poll.from, poll.next)
    }
}

/// The records of these offsets.
fn between(records: &[(i64, Value)], from: i64, to: i64) -> &[(i64, Value)] {
    let start = records.partition_point(|(offset, _)| *offset < from);
    let end = records.partition_point(|(offset, _)| *offset < to);
    &records[start..end.max(start)]
}

/// What must be true of ends from some time on.
struct Floor {
    from: Ns,
    end: i64,
    stable: i64,
}

/// No end of a log is below what was acknowledged, or told to anybody, before it was asked for.
fn check_ends(history: &History, findings: &mut Findings) {
    let mut floors: BTreeMap<Log, Vec<Floor>> = BTreeMap::new();
    let mut told: BTreeMap<Log, Vec<(Ns, i64, i64)>> = BTreeMap::new();
    for operation in &history.operations {
        match &operation.what {
            What::Send(send) if send.outcome == Outcome::Ok => {
                if let Some(base) = send.base {
                    let end = base + send.values.len() as i64;
                    let floor = Floor { from: operation.done, end, stable: 0 };
                    floors.entry(send.log).or_default().push(floor);
                }
            }
            What::Poll(poll) => {
                if let Some((end, stable)) = poll.ends {
                    told.entry(poll.log).or_default().push((operation.invoked, end, stable));
                    let floor = Floor { from: operation.done, end, stable };
                    floors.entry(poll.log).or_default().push(floor);
                }
            }
            _ => {}
        }
    }
    for (log, mut told) in told {
        told.sort_unstable();
        let mut floors = floors.remove(&log).unwrap_or_default();
        floors.sort_by_key(|floor| floor.from);
        let mut floors = floors.into_iter().peekable();
        let (mut end_min, mut stable_min) = (0, 0);
        findings.look("ends", told.len());
        for (asked, end, stable) in told {
            while let Some(floor) = floors.next_if(|floor| floor.from < asked) {
                end_min = floor.end.max(end_min);
                stable_min = floor.stable.max(stable_min);
            }
            if end < end_min || stable < stable_min {
                findings.report(Kind::StaleEnd, || {
                    format!(
                        "{log:?}: ends {end}, {stable} at {asked}, after {end_min}, {stable_min}"
                    )
                });
            }
        }
    }
}

/// Where committed records were read at all, all of them were seen by somebody.
fn check_unseen(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    let mut seen: BTreeMap<Log, HashSet<Value>> = BTreeMap::new();
    for operation in &history.operations {
        if let What::Poll(poll) = &operation.what
            && poll.committed
        {
            let values = poll.records.iter().map(|(_, value)| *value);
            seen.entry(poll.log).or_default().extend(values);
        }
    }
    for (log, seen) in seen {
        let Some(rest) = history.rests.get(&log) else { continue };
        for (offset, value) in rest.committed.iter().filter(|(_, value)| !seen.contains(value)) {
            if facts.sent.contains_key(value) {
                let told = || format!("nobody has seen value {value} at {log:?} offset {offset}");
                findings.report(Kind::Unseen, told);
            }
        }
    }
}
