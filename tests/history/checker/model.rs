//! Histories of a broker that does everything right, made at random: none of them has an anomaly;
//! and what is changed in one of them is found.
//!
//! Every operation takes effect, or does not, at one moment between its beginning and its end, while
//! others are under way; a client is told, or is left without an answer.

use super::check;
use crate::history::{
    Commit, Group, History, Identity, Line, Log, Operation, Outcome, Own, Poll, Process, Rest,
    Send, Txn, Value, What,
};
use crate::random::Random;

const LOGS: u8 = 3;
const GROUP: Group = Group(0);
const GROUP_LOG: Log = Log { topic: 0, partition: 0 };

#[test]
fn histories_of_a_sound_broker_pass() {
    let mut edges = 0;
    for seed in 0..400 {
        let history = World::new(seed).live();
        let findings = check(&history);
        assert!(findings.anomalies.is_empty(), "seed {seed}: {findings}");
        edges += findings.looked_at["edges between transactions"];
    }
    assert!(edges > 5_000, "{edges}");
}

#[test]
fn what_is_changed_is_found() {
    let mut changed = [0; 4];
    for seed in 0..400 {
        let mut history = World::new(seed).live();
        let kind = seed as usize % changed.len();
        if change(&mut history, kind, &mut Random::new(seed)) {
            changed[kind] += 1;
            let findings = check(&history);
            assert!(!findings.anomalies.is_empty(), "seed {seed}: change {kind} is not found");
        }
    }
    assert!(changed.iter().all(|count| *count > 50), "{changed:?}");
}

/// One change of what was found or shown; false if there is nothing to change.
fn change(history: &mut History, kind: usize, random: &mut Random) -> bool {
    let acknowledged: Vec<(Log, Value)> = history
        .operations
        .iter()
        .filter_map(|operation| match &operation.what {
            What::Send(send) if send.outcome == Outcome::Ok => Some((send.log, send.values[0])),
            _ => None,
        })
        .collect();
    if acknowledged.is_empty() {
        return false;
    }
    let (log, value) = random.pick(&acknowledged);
    let rest = history.rests.get_mut(&log).expect("every log");
    match kind {
        // It is gone.
        0 => {
            rest.all.retain(|record| record.1 != value);
            rest.committed.retain(|record| record.1 != value);
        }
        // It is hidden.
        1 => {
            let count = rest.committed.len();
            rest.committed.retain(|record| record.1 != value);
            return rest.committed.len() < count;
        }
        // It is there once more.
        2 => {
            let end = rest.all.last().map_or(0, |record| record.0 + 1);
            rest.all.push((end, value));
        }
        // Somebody was not shown it.
        _ => {
            let polls = history.operations.iter_mut().filter_map(|one| match &mut one.what {
                What::Poll(poll) if !poll.records.is_empty() => Some(poll),
                _ => None,
            });
            let mut polls: Vec<&mut Poll> = polls.collect();
            if polls.is_empty() {
                return false;
            }
            let place = random.between(0, polls.len());
            let records = &mut polls[place].records;
            records.remove(random.between(0, records.len()));
        }
    }
    true
}

/// The broker, and clients in the middle of something.
struct World {
    random: Random,
    now: u64,
    logs: Vec<Vec<Entry>>,
    states: Vec<State>,
    /// By transactional id: the epoch, and the open transaction.
    lines: [(i16, Option<Txn>); 3],
    offset: i64,
    /// Who has the partition since when, and until when it was sure of it.
    owner: (Process, u64, u64, i32),
    clients: Vec<Client>,
    values: Value,
    history: History,
}

/// One offset.
#[derive(Clone, Copy)]
enum Entry {
    Record(Value, Option<Txn>),
    Marker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Committed,
    Aborted,
}

struct Client {
    process: Process,
    role: Role,
    /// What is under way: asked for when, and perhaps done.
    under_way: Option<(u64, What, bool)>,
    positions: Vec<i64>,
}

enum Role {
    Plain,
    /// Its line, its epoch, its transaction.
    Transactor(usize, i16, Option<Txn>),
    Reader(bool),
    Member,
}

impl World {
    fn new(seed: u64) -> World {
        let roles = [
            Role::Plain,
            Role::Plain,
            Role::Transactor(0, -1, None),
            Role::Transactor(1, -1, None),
            Role::Transactor(2, -1, None),
            Role::Transactor(2, -1, None),
            Role::Reader(true),
            Role::Reader(false),
            Role::Member,
            Role::Member,
        ];
        let clients = roles.into_iter().enumerate().map(|(place, role)| Client {
            process: Process(place as u32),
            role,
            under_way: None,
            positions: vec![0; usize::from(LOGS)],
        });
        World {
            random: Random::new(seed),
            now: 1,
            logs: vec![Vec::new(); usize::from(LOGS)],
            states: vec![State::Committed],
            lines: [(0, None); 3],
            offset: -1,
            owner: (Process(8), 1, 1, 1),
            clients: clients.collect(),
            values: 0,
            history: History::default(),
        }
    }

    fn live(mut self) -> History {
        for _ in 0..600 {
            self.now += 1;
            let place = self.random.between(0, self.clients.len());
            match self.clients[place].under_way.take() {
                None => self.ask(place),
                Some((asked, what, false)) => self.act(place, asked, what),
                Some((asked, what, true)) => self.answer(place, asked, what),
            }
        }
        for place in 0..self.clients.len() {
            self.abandon(place);
        }
        for line in 0..self.lines.len() {
            self.end_open(line);
        }
        self.rest()
    }

    /// A client begins something.
    fn ask(&mut self, place: usize) {
        let log = Log { topic: 0, partition: self.random.between(0, usize::from(LOGS)) as u8 };
        let choice = self.random.between(0, 8);
        let position = self.clients[place].positions[usize::from(log.partition)];
        let mut transaction_began = None;
        let what = match &mut self.clients[place].role {
            Role::Plain => self.send(log, None),
            Role::Reader(committed) => poll(log, *committed, position, None),
            Role::Member => match choice {
                0 => {
                    self.hand_over(place);
                    return;
                }
                1 | 2 => What::Committed { group: GROUP, log: GROUP_LOG, offset: -1 },
                _ => commit(self.offset.max(0) + choice as i64),
            },
            Role::Transactor(line, epoch, transaction) => {
                let (line, epoch) = (*line, *epoch);
                let identity = Identity { id: line as i64, epoch };
                match (*transaction, choice) {
                    _ if epoch < 0 => What::Init { line: Line(line as u32), identity },
                    (None, _) => {
                        let new = Txn(self.states.len() as u64);
                        self.states.push(State::Open);
                        *transaction = Some(new);
                        transaction_began = Some(());
                        What::Begin { transaction: new, line: Line(line as u32), identity }
                    }
                    (Some(own), 0 | 1) => {
                        let commit = choice == 0 || !self.random.one_in(3);
                        What::End { transaction: own, commit, outcome: Outcome::Ok }
                    }
                    (own, 2 | 3) => poll(log, true, position, own),
                    (own, _) => self.send(log, own),
                }
            }
        };
        let (asked, is_done) = (self.now, transaction_began.is_some());
        self.clients[place].under_way = Some((asked, what, is_done));
    }

    fn send(&mut self, log: Log, transaction: Option<Txn>) -> What {
        let values = (0..self.random.between(1, 4)).map(|_| {
            self.values += 1;
            self.values
        });
        let values = values.collect();
        let (outcome, base, ordered) = (Outcome::Ok, None, true);
        What::Send(Send { log, values, transaction, outcome, base, ordered, sources: Vec::new() })
    }

    /// The broker does it, or refuses, or never hears of it.
    fn act(&mut self, place: usize, asked: u64, mut what: What) {
        let is_lost = self.random.one_in(12);
        let is_fenced = match &self.clients[place].role {
            Role::Transactor(line, epoch, own) => {
                let (newest, open) = self.lines[*line];
                *epoch >= 0 && *epoch != newest || open.is_some() && *own != open
            }
            Role::Member => self.owner.0 != self.clients[place].process,
            Role::Plain | Role::Reader(_) => false,
        };
        match &mut what {
            What::Poll(poll) => self.show(poll),
            What::Committed { offset, .. } => *offset = self.offset,
            What::Init { line, identity } => {
                self.end_open(line.0 as usize);
                self.lines[line.0 as usize].0 += 1;
                identity.epoch = self.lines[line.0 as usize].0;
            }
            What::Send(Send { outcome, .. })
            | What::End { outcome, .. }
            | What::Commit(Commit { outcome, .. })
                if is_fenced || is_lost =>
            {
                *outcome = if is_lost { Outcome::Unknown } else { Outcome::Refused };
            }
            What::Send(send) => send.base = Some(self.append(place, send)),
            What::End { transaction, commit, .. } => self.end(place, *transaction, *commit),
            What::Commit(commit) => {
                self.offset = commit.offset;
                self.owner.2 = asked;
            }
            What::Begin { .. } | What::Own(_) => {}
        }
        self.clients[place].under_way = Some((asked, what, true));
    }

    fn append(&mut self, place: usize, send: &Send) -> i64 {
        if let Role::Transactor(line, ..) = self.clients[place].role {
            self.lines[line].1 = send.transaction;
        }
        let log = &mut self.logs[usize::from(send.log.partition)];
        let base = log.len() as i64;
        log.extend(send.values.iter().map(|value| Entry::Record(*value, send.transaction)));
        base
    }

    fn end(&mut self, place: usize, transaction: Txn, commit: bool) {
        self.states[transaction.0 as usize] =
            if commit { State::Committed } else { State::Aborted };
        if let Role::Transactor(line, ..) = self.clients[place].role {
            self.lines[line].1 = None;
        }
        for log in &mut self.logs {
            if log.iter().any(|entry| is_of(entry, transaction)) {
                log.push(Entry::Marker);
            }
        }
    }

    fn end_open(&mut self, line: usize) {
        if let (_, Some(open)) = self.lines[line] {
            self.lines[line].1 = None;
            self.states[open.0 as usize] = State::Aborted;
            for log in &mut self.logs {
                if log.iter().any(|entry| is_of(entry, open)) {
                    log.push(Entry::Marker);
                }
            }
        }
    }

    /// Some of what there is from the reader's position on.
    fn show(&mut self, poll: &mut Poll) {
        let (end, stable) = self.ends(poll.log);
        let bound = if poll.committed { stable } else { end };
        poll.next = bound.min(poll.from + self.random.between(0, 6) as i64).max(poll.from);
        poll.records = self.records(poll.log, poll.committed, poll.from, poll.next);
        poll.ends = Some((end, stable));
    }

    fn ends(&self, log: Log) -> (i64, i64) {
        let entries = &self.logs[usize::from(log.partition)];
        let open = |entry: &Entry| match entry {
            Entry::Record(_, Some(own)) => self.states[own.0 as usize] == State::Open,
            _ => false,
        };
        let end = entries.len() as i64;
        (end, entries.iter().position(open).map_or(end, |place| place as i64))
    }

    fn records(&self, log: Log, committed: bool, from: i64, to: i64) -> Vec<(i64, Value)> {
        let entries = self.logs[usize::from(log.partition)].iter().enumerate();
        let shown = entries.filter_map(|(offset, entry)| match entry {
            Entry::Record(value, own) => {
                let is_shown = own.is_none_or(|own| {
                    !committed || self.states[own.0 as usize] == State::Committed
                });
                is_shown.then_some((offset as i64, *value))
            }
            Entry::Marker => None,
        });
        shown.filter(|(offset, _)| (from..to).contains(offset)).collect()
    }

    /// The client hears of it.
    fn answer(&mut self, place: usize, asked: u64, mut what: What) {
        let is_lost = self.random.one_in(12);
        let client = &mut self.clients[place];
        let process = client.process;
        match (&mut what, &mut client.role) {
            // Who asked and does not hear was not there.
            (What::Poll(_) | What::Committed { .. } | What::Init { .. }, _) if is_lost => return,
            (What::Poll(poll), _) => {
                client.positions[usize::from(poll.log.partition)] = poll.next;
            }
            (What::Init { identity, .. }, Role::Transactor(_, epoch, own)) => {
                (*epoch, *own) = (identity.epoch, None);
            }
            (What::Send(send), role) => {
                if is_lost && send.outcome == Outcome::Ok {
                    (send.outcome, send.base) = (Outcome::Unknown, None);
                }
                let is_fine = send.outcome == Outcome::Ok;
                if let Role::Transactor(_, epoch, own) = role
                    && !is_fine
                {
                    (*epoch, *own) = (-1, None);
                }
            }
            (What::End { outcome, .. }, Role::Transactor(_, epoch, own)) => {
                if is_lost && *outcome == Outcome::Ok {
                    *outcome = Outcome::Unknown;
                }
                *own = None;
                if *outcome != Outcome::Ok {
                    *epoch = -1;
                }
            }
            _ => {}
        }
        self.history.operations.push(Operation { process, invoked: asked, done: self.now, what });
    }

    /// What is under way is never answered.
    fn abandon(&mut self, place: usize) {
        let Some((invoked, mut what, _)) = self.clients[place].under_way.take() else { return };
        match &mut what {
            What::Send(send) => (send.outcome, send.base) = (Outcome::Unknown, None),
            What::End { outcome, .. } | What::Commit(Commit { outcome, .. }) => {
                *outcome = Outcome::Unknown;
            }
            _ => return,
        }
        let (process, done) = (self.clients[place].process, self.now);
        self.history.operations.push(Operation { process, invoked, done, what });
    }

    /// The partition goes to this client.
    fn hand_over(&mut self, place: usize) {
        let to = self.clients[place].process;
        let (process, since, until, generation) = self.owner;
        if to == process || self.clients.iter().any(|client| is_committing(client, process)) {
            return;
        }
        self.note_owner(process, since, until, generation);
        self.owner = (to, self.now, self.now, generation + 1);
    }

    fn note_owner(&mut self, process: Process, since: u64, until: u64, generation: i32) {
        let generation = Some(generation);
        let what = What::Own(Own { group: GROUP, log: GROUP_LOG, generation, until });
        self.history.operations.push(Operation { process, invoked: since, done: since, what });
    }

    /// All is over: what is there.
    fn rest(mut self) -> History {
        let (process, since, until, generation) = self.owner;
        self.note_owner(process, since, until, generation);
        for partition in 0..LOGS {
            let log = Log { topic: 0, partition };
            let (end, _) = self.ends(log);
            let committed = self.records(log, true, 0, end);
            let all = self.records(log, false, 0, end);
            // Everything was seen by somebody.
            let reader = Process(99);
            let whole = Poll {
                log,
                committed: true,
                transaction: None,
                from: 0,
                next: end,
                ends: Some((end, end)),
                records: committed.clone(),
            };
            let what = What::Poll(whole);
            let (invoked, done) = (self.now + 100, self.now + 101);
            self.history.operations.push(Operation { process: reader, invoked, done, what });
            self.history.rests.insert(log, Rest { committed, all, end });
        }
        self.history.offsets.insert((GROUP, GROUP_LOG), self.offset);
        self.history
    }
}

fn is_committing(client: &Client, process: Process) -> bool {
    client.process == process && matches!(client.under_way, Some((_, What::Commit(_), _)))
}

fn is_of(entry: &Entry, transaction: Txn) -> bool {
    matches!(entry, Entry::Record(_, Some(own)) if *own == transaction)
}

fn poll(log: Log, committed: bool, from: i64, transaction: Option<Txn>) -> What {
    let (next, ends, records) = (from, None, Vec::new());
    What::Poll(Poll { log, committed, transaction, from, next, ends, records })
}

fn commit(offset: i64) -> What {
    let (transaction, outcome) = (None, Outcome::Ok);
    What::Commit(Commit { group: GROUP, log: GROUP_LOG, offset, transaction, outcome })
}
