//! What was sent and acknowledged against what lies in the logs at the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::facts::{Facts, Fate, Sent};
use super::{Findings, Kind};
use crate::history::{History, Log, Operation, Outcome, Process, Rest, Send, Txn, Value, What};

pub fn check(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    for value in &facts.sent_twice {
        findings.report(Kind::Phantom, || format!("value {value} stands in two operations"));
    }
    let mut seen = HashSet::new();
    for (&log, rest) in &history.rests {
        check_rest(log, rest, facts, &mut seen, findings);
    }
    for operations in facts.sends.values() {
        for operation in operations {
            let What::Send(send) = &operation.what else { continue };
            check_acknowledged(send, facts, findings);
        }
        check_real_time(operations, findings);
    }
    check_producers(facts, findings);
    check_whole(history, facts, findings);
}

/// One log by itself: each value once, sent by somebody, and shown as its transaction ended.
fn check_rest(
    log: Log,
    rest: &Rest,
    facts: &Facts<'_>,
    seen: &mut HashSet<Value>,
    findings: &mut Findings,
) {
    findings.look("records at rest", rest.all.len());
    let committed: HashMap<i64, Value> = rest.committed.iter().copied().collect();
    let mut found = 0;
    let mut last = -1;
    for &(offset, value) in &rest.all {
        let told = || format!("value {value} at {log:?} offset {offset}");
        if offset <= last {
            findings.report(Kind::NonMonotonicPoll, || format!("{} after {last}", told()));
        }
        last = offset;
        if !seen.insert(value) {
            findings.report(Kind::Duplicated, || format!("{}, and elsewhere", told()));
        }
        let shown = committed.get(&offset);
        found += usize::from(shown == Some(&value));
        if shown.is_some_and(|shown| *shown != value) {
            let other = shown.copied().unwrap_or_default();
            findings.report(Kind::InconsistentOffset, || format!("{}: or {other}", told()));
        }
        let Some(sent) = facts.sent.get(&value) else {
            findings.report(Kind::Phantom, || format!("{} was sent by nobody", told()));
            continue;
        };
        if sent.send.log != log || sent.send.outcome == Outcome::Refused {
            findings.report(Kind::Phantom, || format!("{}: {:?}", told(), sent.send));
        }
        check_visibility(sent, shown.is_some(), facts, findings);
    }
    if found != rest.committed.len() {
        let told = || format!("{log:?}: {found} of {} shown ones are there", rest.committed.len());
        findings.report(Kind::InconsistentOffset, told);
    }
}

/// Aborted records are not shown, all others are.
fn check_visibility(sent: &Sent<'_>, is_shown: bool, facts: &Facts<'_>, findings: &mut Findings) {
    let value = sent.send.values[sent.place];
    let told = |end: &str| {
        let (log, transaction) = (sent.send.log, sent.send.transaction);
        format!("value {value} of {transaction:?} in {log:?} {end} at the end")
    };
    match (facts.fate(sent.send.transaction), is_shown) {
        (Fate::Aborted, true) => findings.report(Kind::AbortedRead, || told("is shown")),
        // A part of a transaction that is shown is told by `check_whole`.
        (Fate::Committed, false) if sent.send.transaction.is_none() => {
            findings.report(Kind::Lost, || told("is hidden"));
        }
        _ => {}
    }
}

/// What was acknowledged lies where its sender was told.
fn check_acknowledged(send: &Send, facts: &Facts<'_>, findings: &mut Findings) {
    if send.outcome != Outcome::Ok {
        return;
    }
    findings.look("acknowledged values", send.values.len());
    for (place, value) in send.values.iter().enumerate() {
        let told = |end: &str| format!("value {value}, acknowledged in {:?}, {end}", send.log);
        let Some(stored) = facts.stored.get(value) else {
            findings.report(Kind::Lost, || told("is not there"));
            continue;
        };
        let offset = send.base.map(|base| base + place as i64);
        if stored.log == send.log && offset.is_some_and(|offset| offset != stored.offset) {
            let told = || told(&format!("at {offset:?} lies at {}", stored.offset));
            findings.report(Kind::InconsistentOffset, told);
        }
    }
}

/// What was acknowledged before something else was sent lies before it.
fn check_real_time(operations: &[&Operation], findings: &mut Findings) {
    let mut placed: Vec<(i64, &Operation)> = operations
        .iter()
        .filter_map(|operation| match &operation.what {
            What::Send(send) if send.outcome == Outcome::Ok => {
                send.base.map(|base| (base, *operation))
            }
            _ => None,
        })
        .collect();
    placed.sort_by_key(|(base, _)| *base);
    // Of those at lower offsets, the one that was sent last.
    let mut latest: Option<&Operation> = None;
    for (base, operation) in placed {
        if let Some(lower) = latest.filter(|lower| operation.done < lower.invoked) {
            findings.report(Kind::Reordered, || {
                format!("offset {base} of {operation:?} was acknowledged before {lower:?} was sent")
            });
        }
        if latest.is_none_or(|latest| latest.invoked < operation.invoked) {
            latest = Some(operation);
        }
    }
}

/// Each producer's records lie in the order in which they were sent, and its acknowledgements say
/// so.
fn check_producers(facts: &Facts<'_>, findings: &mut Findings) {
    for (log, operations) in &facts.sends {
        // By producer: the last acknowledged base, and the last offset found.
        let mut last: HashMap<Process, (i64, i64)> = HashMap::new();
        for operation in operations {
            let What::Send(send) = &operation.what else { continue };
            if !send.ordered {
                continue;
            }
            let last = last.entry(operation.process).or_insert((-1, -1));
            if let Some(base) = send.base {
                if base <= last.0 {
                    let told = || format!("{operation:?} acknowledged after {}", last.0);
                    findings.report(Kind::NonMonotonicSend, told);
                }
                last.0 = base.max(last.0);
            }
            for value in &send.values {
                let Some(stored) = facts.stored.get(value).filter(|stored| stored.log == *log)
                else {
                    continue;
                };
                if stored.offset <= last.1 {
                    findings.report(Kind::Reordered, || {
                        let offset = stored.offset;
                        format!(
                            "value {value} of {:?} at {offset} in {log:?}, after {}",
                            operation.process, last.1
                        )
                    });
                }
                last.1 = stored.offset.max(last.1);
            }
        }
    }
}

/// Of each transaction everything that was acknowledged is shown, or nothing of it.
fn check_whole(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    // Shown and hidden values by transaction.
    let mut parts: BTreeMap<Txn, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for operation in &history.operations {
        let What::Send(send) = &operation.what else { continue };
        let Some(transaction) = send.transaction else { continue };
        let (shown, hidden) = parts.entry(transaction).or_default();
        for value in &send.values {
            let stored = facts.stored.get(value);
            if stored.is_some_and(|stored| stored.is_committed) {
                shown.push(*value);
            } else if send.outcome == Outcome::Ok {
                hidden.push(*value);
            }
        }
    }
    findings.look("transactions", parts.len());
    for (transaction, (shown, hidden)) in parts {
        let fate = facts.fate(Some(transaction));
        // Aborted records that are shown have been told of one by one.
        if hidden.is_empty() || fate == Fate::Aborted {
            continue;
        }
        if !shown.is_empty() {
            findings.report(Kind::Torn, || {
                format!("{transaction:?}: {shown:?} are shown and {hidden:?} are not")
            });
        } else if fate == Fate::Committed {
            let told = || format!("{transaction:?} is committed and {hidden:?} are not shown");
            findings.report(Kind::Lost, told);
        }
    }
}
