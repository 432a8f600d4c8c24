//! The books: what was sent, acknowledged, committed and seen, and the rules that follow from it.
//!
//! Rules: an acknowledged record that belongs to no transaction or to a committed one is at its
//! offset, once, unless the topic's policy lets it go; a record of an aborted transaction is never
//! shown to a reader of committed records; what has left a log does not come back; log starts and
//! ends never move back. A compacted log ends with the newest value of every key.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::mark::{Mark, Written};

/// What may leave a log.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// Oldest segments, while more than so many bytes are left.
    Bytes(u64),
    /// Segments whose records are older.
    Ms(i64),
    /// What a later record of the same key replaces.
    Compact,
}

/// How a transaction ended, or is about to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Open,
    /// Asked for, not answered: its records may be seen.
    Committing,
    Committed,
    Aborted,
}

/// All books.
pub struct Book {
    logs: BTreeMap<(String, i32), Log>,
    outcomes: HashMap<(u32, u64), Outcome>,
    /// Transactions of which a reader of committed records has seen something.
    seen: HashSet<(u32, u64)>,
    pub totals: Totals,
}

impl Log {
    /// All that is known of a key.
    fn history(&self, key: &str) -> String {
        let of_key = self.sent.values().filter(|sent| sent.written.key.as_deref() == Some(key));
        let mut lines: Vec<_> = of_key
            .map(|sent| (sent.offset, sent.written.mark.number, sent.written.tombstone))
            .collect();
        lines.sort_unstable();
        format!("offset, number, tombstone: {lines:?}")
    }
}

/// What has been counted.
#[derive(Default, Debug)]
pub struct Totals {
    pub acknowledged: u64,
    pub committed: u64,
    pub aborted: u64,
    pub offsets_committed: u64,
    pub seen: u64,
    pub expired: u64,
    pub compacted: u64,
    pub checks: u64,
}

struct Log {
    policy: Policy,
    sent: HashMap<Mark, Sent>,
    by_offset: BTreeMap<i64, Mark>,
    start: i64,
    end: i64,
    stable: i64,
}

struct Sent {
    written: Written,
    time_ms: i64,
    offset: Option<i64>,
}

/// A record that a reader was shown.
#[derive(Clone, Debug)]
pub struct Shown {
    pub offset: i64,
    pub mark: Mark,
    pub key: Option<String>,
    pub tombstone: bool,
}

/// A whole log as a reader of committed records finds it.
#[derive(Default, Debug)]
pub struct Found {
    pub start: i64,
    pub end: i64,
    /// Where the first open transaction begins, or the end: nothing is shown from there on.
    pub stable: i64,
    /// Size of the batches below that.
    pub bytes: u64,
    /// The time after the read.
    pub read_ms: i64,
    pub records: Vec<Shown>,
}

impl Book {
    /// Empty books of these logs.
    pub fn new(logs: impl IntoIterator<Item = (String, i32, Policy)>) -> Book {
        let logs = logs.into_iter().map(|(topic, partition, policy)| {
            let (sent, by_offset) = (HashMap::new(), BTreeMap::new());
            ((topic, partition), Log { policy, sent, by_offset, start: 0, end: 0, stable: 0 })
        });
        let (outcomes, seen) = (HashMap::new(), HashSet::new());
        Book { logs: logs.collect(), outcomes, seen, totals: Totals::default() }
    }

    /// The logs and what may leave them.
    pub fn logs(&self) -> Vec<(String, i32, Policy)> {
        let logs = self.logs.iter();
        logs.map(|((topic, partition), log)| (topic.clone(), *partition, log.policy)).collect()
    }

    /// Records are about to be sent for the first time.
    pub fn sending(&mut self, topic: &str, partition: i32, records: &[Written], time_ms: i64) {
        let log = self.log(topic, partition);
        for written in records {
            let sent = Sent { written: written.clone(), time_ms, offset: None };
            assert!(log.sent.insert(written.mark, sent).is_none(), "marks are used once");
        }
    }

    /// They were acknowledged, the first at this offset.
    pub fn acknowledged(&mut self, topic: &str, partition: i32, records: &[Written], base: i64) {
        self.totals.acknowledged += records.len() as u64;
        for (offset, written) in (base..).zip(records) {
            self.place(topic, partition, written.mark, offset);
        }
    }

    /// A transaction has this outcome from now on.
    pub fn outcome(&mut self, writer: u32, transaction: u64, outcome: Outcome) {
        match outcome {
            Outcome::Committed => self.totals.committed += 1,
            Outcome::Aborted => {
                self.totals.aborted += 1;
                let early = self.seen.contains(&(writer, transaction));
                assert!(!early, "{writer}: transaction {transaction} was seen and is aborted");
            }
            Outcome::Open | Outcome::Committing => {}
        }
        self.outcomes.insert((writer, transaction), outcome);
    }

    /// A group's reader was shown the log from `from` up to, not including, `to`.
    pub fn shown(
        &mut self,
        topic: &str,
        partition: i32,
        (from, to): (i64, i64),
        records: &[Shown],
    ) {
        self.totals.seen += records.len() as u64;
        let place = format!("{topic}-{partition}");
        for shown in records {
            self.show(topic, partition, shown);
        }
        let visible: HashSet<i64> = records.iter().map(|shown| shown.offset).collect();
        let log = &self.logs[&(topic.to_owned(), partition)];
        for (offset, mark) in log.by_offset.range(from..to) {
            let missing = self.is_committed(mark) && !visible.contains(offset);
            assert!(!missing, "{place}: {mark:?} at {offset} was passed over, {from} to {to}");
        }
    }

    fn show(&mut self, topic: &str, partition: i32, shown: &Shown) {
        let mark = shown.mark;
        let place = format!("{topic}-{partition}: {mark:?} at {}", shown.offset);
        if mark.transaction != 0 {
            let outcome = self.outcomes[&(mark.writer, mark.transaction)];
            let fine = matches!(outcome, Outcome::Committing | Outcome::Committed);
            assert!(fine, "{place} is shown, and its transaction is {outcome:?}");
            self.seen.insert((mark.writer, mark.transaction));
        }
        let log = self.log(topic, partition);
        if shown.offset < log.start {
            // It was read before a crash, and has expired since.
            return;
        }
        let sent = log.sent.get(&mark);
        let sent = sent.unwrap_or_else(|| panic!("{place} was never sent, or had left the log"));
        assert_eq!(shown.key, sent.written.key, "{place}");
        assert_eq!(shown.tombstone, sent.written.tombstone, "{place}");
        self.place(topic, partition, mark, shown.offset);
    }

    fn place(&mut self, topic: &str, partition: i32, mark: Mark, offset: i64) {
        let log = self.log(topic, partition);
        // One whose record has expired before its answer came is known no more.
        let Some(sent) = log.sent.get_mut(&mark) else {
            assert!(offset < log.start, "{topic}-{partition}: {mark:?} at {offset} is unknown");
            return;
        };
        let before = *sent.offset.get_or_insert(offset);
        assert_eq!(before, offset, "{topic}-{partition}: {mark:?} is in two places");
        let other = log.by_offset.insert(offset, mark);
        assert!(other.is_none_or(|other| other == mark), "{topic}-{partition}: {offset} twice");
        log.end = log.end.max(offset + 1);
    }

    /// Whether nothing keeps a record from readers.
    fn is_committed(&self, mark: &Mark) -> bool {
        let outcome = || self.outcomes.get(&(mark.writer, mark.transaction));
        mark.transaction == 0 || outcome() == Some(&Outcome::Committed)
    }

    /// Holds a whole log against the books, while nobody writes.
    pub fn check(&mut self, topic: &str, partition: i32, found: &Found) {
        self.totals.checks += 1;
        let place = format!("{topic}-{partition}");
        let mut last = -1;
        for shown in &found.records {
            assert!(shown.offset > last, "{place}: {} after {last}", shown.offset);
            last = shown.offset;
            self.show(topic, partition, shown);
        }
        let log = self.log(topic, partition);
        assert!(found.start >= log.start, "{place}: starts at {}", found.start);
        assert!(found.end >= log.end, "{place}: ends at {}, not {}", found.end, log.end);
        let stable = found.stable;
        assert!(stable >= log.stable, "{place}: stable to {stable}, and was to {}", log.stable);
        (log.start, log.end, log.stable) = (found.start, found.end, found.stable);
        match log.policy {
            Policy::Compact => self.check_compacted(topic, partition, found),
            Policy::Bytes(kept) => {
                // What lies beyond the stable end counts too, and is not seen here.
                let is_whole = found.stable == found.end;
                let enough = found.start == 0 || found.bytes >= kept || !is_whole;
                assert!(enough, "{place}: {} bytes are left of {kept}", found.bytes);
                self.check_kept(topic, partition, found);
            }
            Policy::Ms(kept_ms) => {
                let old_ms = found.read_ms - kept_ms;
                let (sent, gone) = (&log.sent, log.by_offset.range(..found.start));
                for (offset, mark) in gone {
                    let young = sent[mark].time_ms > old_ms;
                    assert!(!young, "{place}: {mark:?} at {offset} has gone too early");
                }
                self.check_kept(topic, partition, found);
            }
        }
    }

    /// Everything from the start on is there; what is below is forgotten.
    fn check_kept(&mut self, topic: &str, partition: i32, found: &Found) {
        let visible: HashSet<i64> = found.records.iter().map(|shown| shown.offset).collect();
        let key = (topic.to_owned(), partition);
        let range = found.start..found.stable.max(found.start);
        for (offset, mark) in self.logs[&key].by_offset.range(range) {
            let missing = self.is_committed(mark) && !visible.contains(offset);
            assert!(!missing, "{topic}-{partition}: {mark:?} at {offset} is lost");
        }
        let log = self.logs.get_mut(&key).expect("a known log");
        let kept = log.by_offset.split_off(&found.start);
        self.totals.expired += log.by_offset.len() as u64;
        for mark in log.by_offset.values() {
            log.sent.remove(mark);
        }
        log.by_offset = kept;
        self.forget_aborted(topic, partition);
    }

    /// What is missing has been replaced; what has been replaced is forgotten once it is gone.
    fn check_compacted(&mut self, topic: &str, partition: i32, found: &Found) {
        let place = format!("{topic}-{partition}");
        let newest = self.newest(topic, partition, found.stable);
        let visible: HashSet<i64> = found.records.iter().map(|shown| shown.offset).collect();
        let log = &self.logs[&(topic.to_owned(), partition)];
        // A tombstone whose answer was lost, or that of its transaction, may have come and gone.
        let is_unanswered = |sent: &&Sent| {
            let mark = &sent.written.mark;
            let outcome = self.outcomes.get(&(mark.writer, mark.transaction));
            let is_open = sent.offset.is_none() || outcome == Some(&Outcome::Committing);
            sent.written.tombstone && is_open
        };
        let unanswered =
            (log.sent.values()).filter(is_unanswered).filter_map(|sent| sent.written.key.clone());
        let unanswered: HashSet<String> = unanswered.collect();
        let mut shown_last: HashMap<&String, &Shown> = HashMap::new();
        for shown in &found.records {
            shown_last.insert(shown.key.as_ref().expect("a key"), shown);
        }
        let mut gone = Vec::new();
        for (offset, mark) in log.by_offset.range(..found.stable) {
            if !self.is_committed(mark) || visible.contains(offset) {
                continue;
            }
            let key = log.sent[mark].written.key.as_ref().expect("a key");
            let (last, tombstone) = newest[key];
            let later = shown_last.get(key).is_some_and(|shown| shown.offset > *offset);
            let replaced = *offset < last || tombstone || later || unanswered.contains(key);
            assert!(
                replaced,
                "{place}: {mark:?} at {offset}, the newest of {key}, is lost, shown to {:?}; {}",
                found.records.last(),
                log.history(key)
            );
            // A tombstone that has gone still says that the key is gone.
            if *offset < last {
                gone.push((*offset, *mark));
            }
        }
        for (key, (last, tombstone)) in newest.iter().filter(|(key, _)| !unanswered.contains(*key))
        {
            // A reader that follows the log has to arrive at the newest value.
            match shown_last.get(key) {
                Some(shown) => assert!(shown.offset >= *last, "{place}: {key} ends with {shown:?}"),
                None => assert!(tombstone, "{place}: {key} has no value"),
            }
        }
        self.totals.compacted += gone.len() as u64;
        let log = self.log(topic, partition);
        for (offset, mark) in gone {
            log.by_offset.remove(&offset);
            log.sent.remove(&mark);
        }
        self.forget_aborted(topic, partition);
    }

    /// Offset of the newest committed record of every key below `end`, and whether it is a
    /// tombstone.
    pub fn newest(&self, topic: &str, partition: i32, end: i64) -> HashMap<String, (i64, bool)> {
        let log = &self.logs[&(topic.to_owned(), partition)];
        let below = log.by_offset.range(..end);
        let committed = below.filter(|(_, mark)| self.is_committed(mark));
        let newest = committed.map(|(offset, mark)| {
            let written = &log.sent[mark].written;
            (written.key.clone().expect("a key"), (*offset, written.tombstone))
        });
        newest.collect()
    }

    /// Whether a record belongs to a transaction that was given up.
    pub fn is_aborted(&self, mark: &Mark) -> bool {
        self.outcomes.get(&(mark.writer, mark.transaction)) == Some(&Outcome::Aborted)
    }

    fn forget_aborted(&mut self, topic: &str, partition: i32) {
        let outcomes = &self.outcomes;
        let log = self.logs.get_mut(&(topic.to_owned(), partition)).expect("a known log");
        let stays =
            |mark: &Mark| outcomes.get(&(mark.writer, mark.transaction)) != Some(&Outcome::Aborted);
        log.sent.retain(|mark, _| stays(mark));
        log.by_offset.retain(|_, mark| stays(mark));
    }

    fn log(&mut self, topic: &str, partition: i32) -> &mut Log {
        self.logs.get_mut(&(topic.to_owned(), partition)).expect("a known log")
    }
}
