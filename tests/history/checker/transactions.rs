//! The order of transactions, and producers that were fenced.
//!
//! Between committed transactions there are four kinds of edges, each of which says that the first
//! was decided before the second was: the second has read a record of the first (`wr`); both have
//! one transactional id and wrote to one log in this order (`ww`), or their epochs say so
//! (`epoch`); the first was known to be over before the second began (`rt`). So there is no circle.
//! Writes of transactions that ran side by side are not ordered by anything that Kafka promises,
//! and give no edge.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::facts::{Facts, Fate};
use super::{Findings, Kind};
use crate::history::{History, Identity, Line, Ns, Outcome, Txn, What};

pub fn check(history: &History, facts: &Facts<'_>, findings: &mut Findings) {
    let lines = lines(history);
    check_zombies(history, &lines, findings);
    let mut graph = Graph::of_committed(facts);
    graph.add_reads(history, facts);
    graph.add_writes(facts, &lines);
    graph.add_epochs(facts, &lines);
    graph.add_real_time(facts);
    let edges = graph.edges.iter().map(Vec::len).sum();
    findings.look("edges between transactions", edges);
    for circle in graph.circles() {
        let is_read = circle.iter().any(|(_, label)| *label == Label::Read);
        let kind = if is_read { Kind::ReadCycle } else { Kind::WriteCycle };
        findings.report(kind, || graph.told(&circle));
    }
}

/// The transactional id of each transaction and who it was then.
fn lines(history: &History) -> BTreeMap<Txn, (Line, Identity)> {
    let begun = history.operations.iter().filter_map(|operation| match operation.what {
        What::Begin { transaction, line, identity } => Some((transaction, (line, identity))),
        _ => None,
    });
    begun.collect()
}

/// Nothing that was asked for after a newer epoch was given out is granted to an older one.
fn check_zombies(
    history: &History,
    lines: &BTreeMap<Txn, (Line, Identity)>,
    findings: &mut Findings,
) {
    // By transactional id: when which identity was known to be given out.
    let mut given: HashMap<Line, Vec<(Ns, Identity)>> = HashMap::new();
    for operation in &history.operations {
        if let What::Init { line, identity } = operation.what {
            given.entry(line).or_default().push((operation.done, identity));
        }
    }
    for given in given.values_mut() {
        given.sort_unstable();
        // The newest so far; a producer id that was used up is followed by another.
        for place in 1..given.len() {
            given[place].1 = given[place].1.max(given[place - 1].1);
        }
    }
    for operation in &history.operations {
        let transaction = match &operation.what {
            What::Send(send) if send.outcome == Outcome::Ok => send.transaction,
            What::End { transaction, outcome: Outcome::Ok, .. } => Some(*transaction),
            _ => None,
        };
        let Some((line, identity)) = transaction.and_then(|known| lines.get(&known)) else {
            continue;
        };
        findings.look("requests of transactions", 1);
        let given = given.get(line).map_or(&[][..], Vec::as_slice);
        let place = given.partition_point(|(done, _)| *done < operation.invoked);
        let newest = place.checked_sub(1).map(|place| given[place].1);
        if newest.is_some_and(|newest| newest.id == identity.id && newest > *identity) {
            let told = || format!("{operation:?} of {identity:?}, after {newest:?} was given out");
            findings.report(Kind::Zombie, told);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    Read,
    Write,
    Epoch,
    Time,
}

/// Committed transactions, then one node per moment at which one of them was known to be over.
struct Graph {
    transactions: Vec<Txn>,
    places: HashMap<Txn, usize>,
    edges: Vec<Vec<(usize, Label)>>,
}

impl Graph {
    /// Those that are committed, or turned out to be.
    fn of_committed(facts: &Facts<'_>) -> Graph {
        let shown = facts.stored.iter().filter(|(_, stored)| stored.is_committed);
        let mut seen: BTreeSet<Txn> = shown
            .filter_map(|(value, _)| facts.sent.get(value)?.send.transaction)
            .filter(|transaction| facts.fate(Some(*transaction)) != Fate::Aborted)
            .collect();
        let committed = facts.lives.iter().filter(|(_, life)| life.fate == Fate::Committed);
        seen.extend(committed.map(|(transaction, _)| *transaction));
        let transactions: Vec<Txn> = seen.into_iter().collect();
        let places = transactions.iter().enumerate();
        let places = places.map(|(place, transaction)| (*transaction, place)).collect();
        let edges = vec![Vec::new(); transactions.len()];
        Graph { transactions, places, edges }
    }

    fn add(&mut self, from: Txn, to: Txn, label: Label) {
        let places = (self.places.get(&from), self.places.get(&to));
        if let (Some(&from), Some(&to)) = places
            && from != to
        {
            self.edges[from].push((to, label));
        }
    }

    fn add_reads(&mut self, history: &History, facts: &Facts<'_>) {
        for operation in &history.operations {
            let What::Poll(poll) = &operation.what else { continue };
            let Some(reader) = poll.transaction.filter(|_| poll.committed) else { continue };
            let writers = poll.records.iter();
            let writers: BTreeSet<Txn> =
                writers.filter_map(|(_, value)| facts.sent.get(value)?.send.transaction).collect();
            for writer in writers {
                self.add(writer, reader, Label::Read);
            }
        }
    }

    /// In each log, from each transaction of a transactional id to its next there.
    fn add_writes(&mut self, facts: &Facts<'_>, lines: &BTreeMap<Txn, (Line, Identity)>) {
        let mut writes: Vec<_> = facts
            .stored
            .iter()
            .filter(|(_, stored)| stored.is_committed)
            .filter_map(|(value, stored)| {
                let transaction = facts.sent.get(value)?.send.transaction?;
                let (line, _) = lines.get(&transaction)?;
                Some((stored.log, *line, stored.offset, transaction))
            })
            .collect();
        writes.sort_unstable();
        for pair in writes.windows(2) {
            let [(log, line, _, first), (other_log, other_line, _, second)] = pair else {
                continue;
            };
            if (log, line) == (other_log, other_line) {
                self.add(*first, *second, Label::Write);
            }
        }
    }

    /// From each transaction of a producer id to its next, by epoch; those of one epoch are of one
    /// process, which begins one after the other.
    fn add_epochs(&mut self, facts: &Facts<'_>, lines: &BTreeMap<Txn, (Line, Identity)>) {
        let begun = |known: &Txn| facts.lives.get(known).map_or(0, |life| life.begun);
        let committed = lines.iter().filter(|(known, _)| self.places.contains_key(known));
        let mut order: Vec<_> = committed
            .map(|(known, (line, identity))| (*line, *identity, begun(known), *known))
            .collect();
        order.sort_unstable();
        for pair in order.windows(2) {
            let [(line, identity, _, first), (other_line, other, _, second)] = pair else {
                continue;
            };
            if (line, identity.id) == (other_line, other.id) {
                self.add(*first, *second, Label::Epoch);
            }
        }
    }

    /// Through a chain of moments: `rt` is an order, so few edges say it all.
    fn add_real_time(&mut self, facts: &Facts<'_>) {
        let mut ends: Vec<(Ns, usize)> = Vec::new();
        for (place, transaction) in self.transactions.iter().enumerate() {
            let committed = facts.lives.get(transaction).and_then(|life| life.committed);
            ends.extend(committed.map(|done| (done, place)));
        }
        ends.sort_unstable();
        let first = self.transactions.len();
        self.edges.resize(first + ends.len(), Vec::new());
        for (moment, &(_, place)) in ends.iter().enumerate() {
            self.edges[place].push((first + moment, Label::Time));
            if moment + 1 < ends.len() {
                self.edges[first + moment].push((first + moment + 1, Label::Time));
            }
        }
        for (place, transaction) in self.transactions.iter().enumerate() {
            let Some(life) = facts.lives.get(transaction) else { continue };
            let before = ends.partition_point(|(done, _)| *done < life.begun);
            if before > 0 {
                self.edges[first + before - 1].push((place, Label::Time));
            }
        }
    }

    /// One circle of each knot: nodes with the label of the edge that leaves them.
    fn circles(&self) -> Vec<Vec<(usize, Label)>> {
        let knots = self.knots();
        knots.iter().filter_map(|knot| self.shortest_circle(knot)).collect()
    }

    /// Strongly connected sets of more than one node (Tarjan, without recursion).
    fn knots(&self) -> Vec<HashSet<usize>> {
        let count = self.edges.len();
        let mut search = Search {
            index: vec![usize::MAX; count],
            low: vec![0; count],
            is_open: vec![false; count],
            open: Vec::new(),
            next: 0,
        };
        let mut knots = Vec::new();
        for root in 0..count {
            if search.index[root] != usize::MAX {
                continue;
            }
            let mut path = vec![(root, 0)];
            search.enter(root);
            while let Some((node, edge)) = path.pop() {
                if let Some(&(to, _)) = self.edges[node].get(edge) {
                    path.push((node, edge + 1));
                    if search.index[to] == usize::MAX {
                        search.enter(to);
                        path.push((to, 0));
                    } else if search.is_open[to] {
                        search.low[node] = search.low[node].min(search.index[to]);
                    }
                    continue;
                }
                if let Some((parent, _)) = path.last() {
                    search.low[*parent] = search.low[*parent].min(search.low[node]);
                }
                if search.low[node] == search.index[node] {
                    let knot = search.close(node);
                    if knot.len() > 1 {
                        knots.push(knot);
                    }
                }
            }
        }
        knots
    }

    fn shortest_circle(&self, knot: &HashSet<usize>) -> Option<Vec<(usize, Label)>> {
        let transactions = self.transactions.len();
        let starts = knot.iter().filter(|node| **node < transactions).take(CIRCLES_TRIED);
        let circles = starts.filter_map(|&start| {
            let mut from: HashMap<usize, (usize, Label)> = HashMap::new();
            let mut queue = VecDeque::from([start]);
            while let Some(node) = queue.pop_front() {
                for &(to, label) in self.edges[node].iter().filter(|(to, _)| knot.contains(to)) {
                    if from.contains_key(&to) {
                        continue;
                    }
                    from.insert(to, (node, label));
                    if to == start {
                        return Some(walk_back(&from, start));
                    }
                    queue.push_back(to);
                }
            }
            None
        });
        circles.min_by_key(Vec::len)
    }

    fn told(&self, circle: &[(usize, Label)]) -> String {
        let steps = circle.iter().map(|(node, label)| match self.transactions.get(*node) {
            Some(transaction) => format!("{transaction:?} -{label:?}-> "),
            None => String::new(),
        });
        steps.chain(["the first".to_owned()]).collect()
    }
}

fn walk_back(from: &HashMap<usize, (usize, Label)>, start: usize) -> Vec<(usize, Label)> {
    let mut circle = Vec::new();
    let mut node = start;
    loop {
        let (before, label) = from[&node];
        circle.push((before, label));
        node = before;
        if node == start {
            circle.reverse();
            return circle;
        }
    }
}

struct Search {
    index: Vec<usize>,
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    next: usize,
}

impl Search {
    fn enter(&mut self, node: usize) {
        self.index[node] = self.next;
        self.low[node] = self.next;
        self.next += 1;
        self.is_open[node] = true;
        self.open.push(node);
    }

    fn close(&mut self, root: usize) -> HashSet<usize> {
        let mut knot = HashSet::new();
        while let Some(node) = self.open.pop() {
            self.is_open[node] = false;
            knot.insert(node);
            if node == root {
                break;
            }
        }
        knot
    }
}

const CIRCLES_TRIED: usize = 16;
