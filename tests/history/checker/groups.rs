//! Groups: committed offsets, owners of partitions, and what was made of the records they read.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::facts::{Facts, Fate};
use super::{Findings, Kind};
use crate::history::{Group, History, Log, Ns, Outcome, Process, What};

pub fn check(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    check_offsets(history, facts, findings);
    check_owners(history, findings);
    check_made(history, facts, findings);
}

/// A commit, or the answer to who asks.
struct Saying {
    asked: Ns,
    done: Ns,
    offset: i64,
}

/// What was said about one group's offset in one log.
#[derive(Default)]
struct Register {
    /// Commits that took effect, and answers: none is below one that was over before it began.
    sure: Vec<Saying>,
    answers: Vec<Saying>,
    /// Offsets that may have been set.
    possible: HashSet<i64>,
}

fn check_offsets(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    let mut registers: BTreeMap<(Group, Log), Register> = BTreeMap::new();
    for operation in &history.operations {
        let (asked, done) = (operation.invoked, operation.done);
        match &operation.what {
            What::Commit(commit) => {
                let register = registers.entry((commit.group, commit.log)).or_default();
                let fate = facts.fate(commit.transaction);
                if commit.outcome == Outcome::Refused || fate == Fate::Aborted {
                    continue;
                }
                register.possible.insert(commit.offset);
                if commit.outcome == Outcome::Ok && fate == Fate::Committed {
                    // In a transaction it takes effect with that.
                    let life = commit.transaction.and_then(|known| facts.lives.get(&known));
                    let done = life.map_or(Some(done), |life| life.committed).unwrap_or(done);
                    register.sure.push(Saying { asked, done, offset: commit.offset });
                }
            }
            What::Committed { group, log, offset } => {
                let register = registers.entry((*group, *log)).or_default();
                register.answers.push(Saying { asked, done, offset: *offset });
            }
            _ => {}
        }
    }
    for ((group, log), offset) in &history.offsets {
        let register = registers.entry((*group, *log)).or_default();
        let saying = Saying { asked: Ns::MAX, done: Ns::MAX, offset: *offset };
        register.answers.push(saying);
    }
    for ((group, log), mut register) in registers {
        findings.look("commits", register.sure.len());
        findings.look("offsets told", register.answers.len());
        for answer in register.answers {
            if answer.offset != -1 && !register.possible.contains(&answer.offset) {
                findings.report(Kind::Phantom, || {
                    format!("{group:?} {log:?}: nobody has committed {}", answer.offset)
                });
            }
            register.sure.push(answer);
        }
        check_register(group, log, register.sure, findings);
    }
}

fn check_register(group: Group, log: Log, sayings: Vec<Saying>, findings: &mut Findings) {
    let mut over: Vec<(Ns, i64)> = sayings.iter().map(|one| (one.done, one.offset)).collect();
    over.sort_unstable();
    let mut over = over.into_iter().peekable();
    let mut sayings = sayings;
    sayings.sort_by_key(|one| one.asked);
    let mut floor = -1;
    for one in sayings {
        while let Some((_, offset)) = over.next_if(|(done, _)| *done < one.asked) {
            floor = floor.max(offset);
        }
        if one.offset < floor {
            findings.report(Kind::OffsetWentBack, || {
                let (offset, asked) = (one.offset, one.asked);
                format!("{group:?} {log:?}: {offset}, asked for at {asked}, after {floor}")
            });
        }
    }
}

/// Since when, until when, who, in which generation.
type Ownership = (Ns, Ns, Process, Option<i32>);

fn check_owners(history: &History, findings: &mut Findings) {
    let mut owners: BTreeMap<(Group, Log), Vec<Ownership>> = BTreeMap::new();
    for operation in &history.operations {
        if let What::Own(own) = &operation.what {
            let ownership = (operation.done, own.until, operation.process, own.generation);
            owners.entry((own.group, own.log)).or_default().push(ownership);
        }
    }
    for ((group, log), mut owners) in owners {
        owners.sort_unstable();
        findings.look("ownerships", owners.len());
        let mut generations: HashMap<i32, Process> = HashMap::new();
        let mut latest: Option<Ownership> = None;
        for one in owners {
            let (from, until, process, generation) = one;
            let other = latest.filter(|last| last.1 > from && last.2 != process);
            let twin = generation.and_then(|known| generations.insert(known, process));
            if other.is_some() || twin.is_some_and(|twin| twin != process) {
                findings.report(Kind::TwoOwners, || {
                    format!("{group:?} {log:?}: {process:?} from {from}, {other:?}, {twin:?}")
                });
            }
            if latest.is_none_or(|last| last.1 < until) {
                latest = Some(one);
            }
        }
    }
}

/// Every record below a group's offset was made into one output, and none from there on.
fn check_made(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    let mut made: BTreeMap<(Group, Log), HashMap<i64, u64>> = BTreeMap::new();
    let groups = groups_of_transactions(history);
    for operation in &history.operations {
        let What::Send(send) = &operation.what else { continue };
        let Some(group) = send.transaction.and_then(|known| groups.get(&known)) else { continue };
        for (value, (log, offset)) in send.values.iter().zip(&send.sources) {
            if facts.stored.get(value).is_some_and(|stored| stored.is_committed) {
                let times = made.entry((*group, *log)).or_default().entry(*offset).or_default();
                *times += 1;
            }
        }
    }
    for ((group, log), made) in made {
        findings.look("inputs made into outputs", made.len());
        let place = format!("{group:?} {log:?}");
        for (offset, times) in made.iter().filter(|(_, times)| **times > 1) {
            let told = || format!("{place}: the record at {offset} was made {times} times");
            findings.report(Kind::Duplicated, told);
        }
        let Some(&end) = history.offsets.get(&(group, log)) else { continue };
        if let Some(beyond) = made.keys().find(|offset| **offset >= end) {
            let told = || format!("{place}: output of {beyond}, and its offset is {end}");
            findings.report(Kind::Torn, told);
        }
        let rest = history.rests.get(&log);
        let inputs = rest.into_iter().flat_map(|rest| &rest.committed);
        for (offset, _) in inputs.filter(|(offset, _)| *offset < end) {
            if !made.contains_key(offset) {
                let told = || format!("{place}: no output of {offset}, and its offset is {end}");
                findings.report(Kind::Torn, told);
            }
        }
    }
}

/// For which group a transaction commits offsets.
fn groups_of_transactions(history: &History) -> HashMap<crate::history::Txn, Group> {
    let commits = history.operations.iter().filter_map(|operation| match &operation.what {
        What::Commit(commit) => Some((commit.transaction?, commit.group)),
        _ => None,
    });
    commits.collect()
}
