//! The history checker: says whether a partition's log kept every promise made about it.
//!
//! Owns what was tried, what was acknowledged and what was read, by record id: a number the test
//! puts into each record. It knows nothing of formats: the test turns a recovered log into a
//! [`LogView`]. Must never pass a log that lost, moved, doubled, reordered or invented a record.
//!
//! The promises, per partition:
//! - an acknowledged record is at its offset, exactly once, as long as the log start allows;
//! - a record that was read (below the high watermark) stays where it was read;
//! - offsets are gapless from log start to end, control records included, unless compacted;
//! - an attempt is there in whole and in one piece or not at all, a refused one not at all;
//! - nothing is there twice; only a producer without idempotence may repeat an attempt;
//! - attempts of one idempotent session are in the order they were made, without a hole: one that
//!   is there means that all before it are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::{Offset, TopicPartition};

/// A number that the test puts into a record; unique within one history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordId(pub u64);

/// One producer id and epoch, as the test numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Session(pub u64);

/// Handle of one attempted batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId(usize);

/// Everything tried and seen from outside, over all partitions and crashes.
#[derive(Clone, Default, Debug)]
pub struct History {
    attempts: Vec<Attempt>,
    owner: BTreeMap<RecordId, AttemptId>,
    reads: BTreeMap<(TopicPartition, Offset), Entry>,
}

#[derive(Clone, Debug)]
struct Attempt {
    partition: TopicPartition,
    session: Option<Session>,
    records: Vec<RecordId>,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Unknown,
    Acked(Offset),
    Refused,
}

/// What is at one offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Entry {
    /// A record of the test's.
    Record(RecordId),
    /// A control record: a transaction marker.
    Control,
}

/// A partition's log as recovered or fetched.
#[derive(Clone, Default, Debug)]
pub struct LogView {
    /// First offset.
    pub start: Offset,
    /// Offset the next record will get.
    pub end: Offset,
    /// Entries in log order.
    pub entries: Vec<(Offset, Entry)>,
    /// Whether compaction may have removed entries: then gaps, and records lost below the end,
    /// are no violation.
    pub compacted: bool,
}

/// What a sound log holds beyond what was promised.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Acknowledged records found at their place.
    pub acked: usize,
    /// Records found that nobody was told about.
    pub unacked: Vec<RecordId>,
    /// Records of attempts without a session that are there more than once.
    pub repeated: Vec<RecordId>,
}

/// The first promise found broken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are explained by the text of `Display`")]
pub enum Violation {
    Gap { expected: Offset, found: Offset },
    End { expected: Offset, found: Offset },
    Invented { offset: Offset, record: RecordId },
    WrongPartition { offset: Offset, record: RecordId },
    Refused { offset: Offset, record: RecordId },
    Doubled { record: RecordId, first: Offset, second: Offset },
    Lost { record: RecordId, offset: Offset },
    Moved { record: RecordId, acked: Offset, found: Offset },
    Unread { offset: Offset, read: Entry, found: Option<Entry> },
    Torn { record: RecordId, offset: Offset },
    Reordered { session: Session, record: RecordId, before: RecordId },
    Hole { session: Session, missing: RecordId, present: RecordId },
}

/// A violation, and the partition it was found in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Where.
    pub partition: TopicPartition,
    /// What.
    pub violation: Violation,
}

impl History {
    /// A history of nothing.
    #[must_use]
    pub fn new() -> History {
        History::default()
    }

    /// Notes a batch about to be sent; a retry of the same batch is the same attempt. With a
    /// session it is idempotent, and its place among the session's attempts is now.
    ///
    /// # Panics
    /// If it is empty or a record id is not new.
    pub fn attempt(
        &mut self,
        partition: TopicPartition,
        session: Option<Session>,
        records: Vec<RecordId>,
    ) -> AttemptId {
        assert!(!records.is_empty(), "an attempt has records");
        let id = AttemptId(self.attempts.len());
        for record in &records {
            let before = self.owner.insert(*record, id);
            assert!(before.is_none(), "record {} is used twice", record.0);
        }
        self.attempts.push(Attempt { partition, session, records, outcome: Outcome::Unknown });
        id
    }

    /// Notes an acknowledgement.
    ///
    /// # Errors
    /// [`Violation::Moved`] if it was acknowledged elsewhere before and has a session.
    pub fn acked(&mut self, attempt: AttemptId, base: Offset) -> Result<(), Broken> {
        let found = &mut self.attempts[attempt.0];
        if let Outcome::Acked(before) = found.outcome
            && before != base
            && found.session.is_some()
        {
            let violation =
                Violation::Moved { record: found.records[0], acked: before, found: base };
            let partition = found.partition;
            return Err(Broken { partition, violation });
        }
        found.outcome = Outcome::Acked(base);
        Ok(())
    }

    /// Notes a refusal that means "not appended", so that it must never appear.
    pub fn refused(&mut self, attempt: AttemptId) {
        let attempt = &mut self.attempts[attempt.0];
        if attempt.outcome == Outcome::Unknown {
            attempt.outcome = Outcome::Refused;
        }
    }

    /// Notes what a consumer was given.
    ///
    /// # Errors
    /// [`Violation::Unread`] if something else was read there before.
    pub fn read(
        &mut self,
        partition: TopicPartition,
        offset: Offset,
        entry: Entry,
    ) -> Result<(), Broken> {
        let before = *self.reads.entry((partition, offset)).or_insert(entry);
        if before == entry {
            return Ok(());
        }
        let violation = Violation::Unread { offset, read: before, found: Some(entry) };
        Err(Broken { partition, violation })
    }

    /// Every partition with an attempt, in order.
    #[must_use]
    pub fn partitions(&self) -> Vec<TopicPartition> {
        let all: BTreeSet<TopicPartition> =
            self.attempts.iter().map(|attempt| attempt.partition).collect();
        all.into_iter().collect()
    }

    /// Records acknowledged in one partition.
    #[must_use]
    pub fn acked_count(&self, partition: TopicPartition) -> usize {
        let here = self.attempts.iter().filter(|attempt| attempt.partition == partition);
        here.filter(|attempt| matches!(attempt.outcome, Outcome::Acked(_)))
            .map(|attempt| attempt.records.len())
            .sum()
    }

    /// Checks one partition's log against all that was promised.
    ///
    /// # Errors
    /// The first promise broken.
    pub fn verify(&self, partition: TopicPartition, log: &LogView) -> Result<Report, Broken> {
        let checked = self.check(partition, log);
        checked.map_err(|violation| Broken { partition, violation })
    }

    fn check(&self, partition: TopicPartition, log: &LogView) -> Result<Report, Violation> {
        check_offsets(log)?;
        let mut places: BTreeMap<RecordId, Vec<Offset>> = BTreeMap::new();
        for (offset, entry) in &log.entries {
            if let Entry::Record(record) = entry {
                self.check_known(partition, *offset, *record)?;
                places.entry(*record).or_default().push(*offset);
            }
        }
        let mut report = Report::default();
        for (record, offsets) in &places {
            let attempt = &self.attempts[self.owner[record].0];
            match (offsets.get(1), attempt.session) {
                (Some(second), Some(_)) => {
                    return Err(Violation::Doubled {
                        record: *record,
                        first: offsets[0],
                        second: *second,
                    });
                }
                (Some(_), None) => report.repeated.push(*record),
                (None, _) => {}
            }
            if attempt.outcome == Outcome::Unknown {
                report.unacked.push(*record);
            }
        }
        for attempt in self.attempts.iter().filter(|attempt| attempt.partition == partition) {
            report.acked += check_acked(attempt, log, &places)?;
            check_whole(attempt, log, &places)?;
        }
        self.check_reads(partition, log)?;
        self.check_sessions(partition, log, &places)?;
        Ok(report)
    }

    fn check_known(
        &self,
        partition: TopicPartition,
        offset: Offset,
        record: RecordId,
    ) -> Result<(), Violation> {
        let Some(owner) = self.owner.get(&record) else {
            return Err(Violation::Invented { offset, record });
        };
        let attempt = &self.attempts[owner.0];
        if attempt.partition != partition {
            return Err(Violation::WrongPartition { offset, record });
        }
        match attempt.outcome {
            Outcome::Refused => Err(Violation::Refused { offset, record }),
            Outcome::Unknown | Outcome::Acked(_) => Ok(()),
        }
    }

    fn check_reads(&self, partition: TopicPartition, log: &LogView) -> Result<(), Violation> {
        let entries: BTreeMap<Offset, Entry> = log.entries.iter().copied().collect();
        let from = (partition, log.start);
        let to = (partition, Offset(i64::MAX));
        for (&(_, offset), &read) in self.reads.range(from..=to) {
            let found = entries.get(&offset).copied();
            let removed = found.is_none() && log.compacted && offset < log.end;
            if found != Some(read) && !removed {
                return Err(Violation::Unread { offset, read, found });
            }
        }
        Ok(())
    }

    fn check_sessions(
        &self,
        partition: TopicPartition,
        log: &LogView,
        places: &BTreeMap<RecordId, Vec<Offset>>,
    ) -> Result<(), Violation> {
        let mut sessions: BTreeMap<Session, SessionState> = BTreeMap::new();
        for attempt in self.attempts.iter().filter(|attempt| attempt.partition == partition) {
            let Some(session) = attempt.session else {
                continue;
            };
            if attempt.outcome == Outcome::Refused {
                continue;
            }
            let state = sessions.entry(session).or_default();
            let record = attempt.records[0];
            let is_below_start = match attempt.outcome {
                Outcome::Acked(base) => base < log.start,
                Outcome::Unknown | Outcome::Refused => false,
            };
            match places.get(&record).map(|offsets| offsets[0]) {
                Some(offset) => {
                    if let Some(missing) = state.missing {
                        return Err(Violation::Hole { session, missing, present: record });
                    }
                    if let Some((last, before)) = state.last.replace((offset, record))
                        && last > offset
                    {
                        return Err(Violation::Reordered { session, record, before });
                    }
                }
                // Below the log start, or compacted away, it may well have been there.
                None if is_below_start || log.compacted || log.start > Offset(0) => {}
                None => state.missing = state.missing.or(Some(record)),
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct SessionState {
    last: Option<(Offset, RecordId)>,
    missing: Option<RecordId>,
}

fn check_offsets(log: &LogView) -> Result<(), Violation> {
    let mut expected = log.start;
    for (offset, _) in &log.entries {
        let fits = *offset == expected || (log.compacted && *offset > expected);
        if !fits {
            return Err(Violation::Gap { expected, found: *offset });
        }
        expected = offset.plus(1);
    }
    let fits = expected == log.end || (log.compacted && expected < log.end);
    if !fits {
        return Err(Violation::End { expected, found: log.end });
    }
    Ok(())
}

/// Returns how many records of the attempt are acknowledged and present.
fn check_acked(
    attempt: &Attempt,
    log: &LogView,
    places: &BTreeMap<RecordId, Vec<Offset>>,
) -> Result<usize, Violation> {
    let Outcome::Acked(base) = attempt.outcome else {
        return Ok(0);
    };
    let mut present = 0;
    for (index, &record) in attempt.records.iter().enumerate() {
        let acked = base.plus(index as i64);
        let found = places.get(&record);
        match found {
            _ if acked < log.start => {}
            Some(offsets) if offsets.contains(&acked) => present += 1,
            Some(offsets) => {
                return Err(Violation::Moved { record, acked, found: offsets[0] });
            }
            None if log.compacted && acked < log.end => {}
            None => {
                return Err(Violation::Lost { record, offset: acked });
            }
        }
    }
    Ok(present)
}

fn check_whole(
    attempt: &Attempt,
    log: &LogView,
    places: &BTreeMap<RecordId, Vec<Offset>>,
) -> Result<(), Violation> {
    if log.compacted {
        return Ok(());
    }
    let offsets = |record: &RecordId| places.get(record).map_or(&[][..], Vec::as_slice);
    let last = attempt.records.last().map_or(&[][..], offsets);
    // The log start may cut through a batch, so its last record is the one to go by.
    for (index, record) in attempt.records.iter().enumerate() {
        let back = (attempt.records.len() - 1 - index) as i64;
        let expected: Vec<Offset> = last
            .iter()
            .map(|offset| offset.plus(-back))
            .filter(|offset| *offset >= log.start)
            .collect();
        let found = offsets(record);
        if found != expected {
            let odd = found.iter().find(|offset| !expected.contains(offset));
            let offset = odd.or(expected.first()).copied().unwrap_or(log.end);
            return Err(Violation::Torn { record: *record, offset });
        }
    }
    Ok(())
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Gap { expected, found } => {
                write!(f, "offset {found} follows where {expected} is due")
            }
            Violation::End { expected, found } => {
                write!(f, "the log ends at {found}, its entries at {expected}")
            }
            Violation::Invented { offset, record } => {
                write!(f, "record {} at {offset} was never sent", record.0)
            }
            Violation::WrongPartition { offset, record } => {
                write!(f, "record {} at {offset} belongs to another partition", record.0)
            }
            Violation::Refused { offset, record } => {
                write!(f, "record {} at {offset} was refused", record.0)
            }
            Violation::Doubled { record, first, second } => {
                write!(f, "record {} is at {first} and at {second}", record.0)
            }
            Violation::Lost { record, offset } => {
                write!(f, "record {}, acknowledged at {offset}, is lost", record.0)
            }
            Violation::Moved { record, acked, found } => {
                write!(f, "record {}, acknowledged at {acked}, is at {found}", record.0)
            }
            Violation::Unread { offset, read, found } => {
                write!(f, "{read:?} was read at {offset}, where now is {found:?}")
            }
            Violation::Torn { record, offset } => {
                write!(f, "the batch of record {} is torn at {offset}", record.0)
            }
            Violation::Reordered { session, record, before } => write!(
                f,
                "session {}: record {} was sent after {}, but is before it",
                session.0, record.0, before.0
            ),
            Violation::Hole { session, missing, present } => write!(
                f,
                "session {}: record {} is there without {}, sent before it",
                session.0, present.0, missing.0
            ),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicPartition { topic, partition } = self.partition;
        write!(f, "{topic}-{partition}: {}", self.violation)
    }
}

impl std::error::Error for Broken {}

#[cfg(test)]
mod tests;
