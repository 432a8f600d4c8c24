//! Sound logs pass; each broken promise is named.

use super::*;
use crate::ids::{PartitionIndex, TopicId};

const HERE: TopicPartition =
    TopicPartition { topic: TopicId([1; 16]), partition: PartitionIndex(0) };

fn id(number: u64) -> RecordId {
    RecordId(number)
}

fn ids(numbers: std::ops::Range<u64>) -> Vec<RecordId> {
    numbers.map(RecordId).collect()
}

/// Session 1: records 0-2 acked at 0, 3-4 acked at 3, a marker, 5 unknown, 6 refused, 7
/// unknown; without a session: 8.
fn history() -> History {
    let mut history = History::new();
    let session = Some(Session(1));
    let first = history.attempt(HERE, session, ids(0..3));
    let second = history.attempt(HERE, session, ids(3..5));
    history.acked(first, Offset(0)).expect("first");
    history.acked(second, Offset(3)).expect("second");
    history.attempt(HERE, session, ids(5..6));
    let refused = history.attempt(HERE, session, ids(6..7));
    history.refused(refused);
    history.attempt(HERE, session, ids(7..8));
    history.attempt(HERE, None, ids(8..9));
    history
}

/// A log from offset `start`: record ids, with 100 for a control record.
fn log(start: i64, numbers: &[u64]) -> LogView {
    let entry = |&number: &u64| match number {
        100 => Entry::Control,
        number => Entry::Record(RecordId(number)),
    };
    let offsets = (start..).map(Offset);
    LogView {
        start: Offset(start),
        end: Offset(start + numbers.len() as i64),
        entries: offsets.zip(numbers.iter().map(entry)).collect(),
        compacted: false,
    }
}

fn check(view: &LogView, expected: Violation) {
    let broken = history().verify(HERE, view).expect_err("broken");
    assert_eq!(broken.violation, expected);
}

#[test]
fn sound_logs_pass() {
    let history = history();
    assert_eq!(history.partitions(), [HERE]);
    assert_eq!(history.acked_count(HERE), 5);
    let report = history.verify(HERE, &log(0, &[0, 1, 2, 3, 4])).expect("sound");
    assert_eq!((report.acked, report.unacked), (5, vec![]));
    let more = log(0, &[0, 1, 2, 3, 4, 100, 5, 8, 8, 7]);
    let report = history.verify(HERE, &more).expect("sound");
    assert_eq!(report.unacked, [id(5), id(7), id(8)]);
    assert_eq!(report.repeated, [id(8)]);
    // The log start may lie within a batch.
    let report = history.verify(HERE, &log(4, &[4, 5])).expect("sound");
    assert_eq!(report.acked, 1);
    let mut compacted = log(0, &[0, 1, 2, 3, 4, 5]);
    compacted.entries.retain(|(offset, _)| offset.0 % 2 == 1);
    compacted.compacted = true;
    assert_eq!(history.verify(HERE, &compacted).expect("sound").acked, 2);
}

#[test]
fn each_broken_promise_is_named() {
    let offset = Offset;
    check(&log(0, &[0, 1, 2, 3]), Violation::Lost { record: id(4), offset: offset(4) });
    check(
        &log(0, &[0, 1, 2, 100, 3, 4]),
        Violation::Moved { record: id(3), acked: offset(3), found: offset(4) },
    );
    check(
        &log(0, &[0, 1, 2, 3, 4, 5, 5]),
        Violation::Doubled { record: id(5), first: offset(5), second: offset(6) },
    );
    check(&log(0, &[0, 1, 2, 3, 4, 6]), Violation::Refused { offset: offset(5), record: id(6) });
    check(&log(0, &[0, 1, 2, 3, 4, 99]), Violation::Invented { offset: offset(5), record: id(99) });
    check(
        &log(0, &[0, 1, 2, 3, 4, 7]),
        Violation::Hole { session: Session(1), missing: id(5), present: id(7) },
    );
    check(
        &log(0, &[0, 1, 2, 3, 4, 7, 5]),
        Violation::Reordered { session: Session(1), record: id(7), before: id(5) },
    );
    let mut gap = log(0, &[0, 1, 2, 3, 4, 5]);
    gap.entries[5].0 = offset(6);
    let expected = offset(5);
    let found = offset(6);
    check(&gap, Violation::Gap { expected, found });
    let mut short = log(0, &[0, 1, 2, 3, 4]);
    short.end = offset(9);
    let found = offset(9);
    check(&short, Violation::End { expected, found });
}

#[test]
fn torn_batches_and_changed_reads_are_named() {
    let mut history = History::new();
    history.attempt(HERE, None, ids(0..3));
    let torn = history.verify(HERE, &log(0, &[0, 1])).expect_err("torn");
    let (record, offset) = (id(0), Offset(0));
    assert_eq!(torn.violation, Violation::Torn { record, offset });
    let read = Entry::Record(id(1));
    history.read(HERE, Offset(1), read).expect("first");
    history.read(HERE, Offset(1), read).expect("again");
    let offset = Offset(1);
    let found = None;
    let gone = history.verify(HERE, &log(0, &[])).expect_err("gone");
    assert_eq!(gone.violation, Violation::Unread { offset, read, found });
    let found = Some(Entry::Control);
    let other = history.read(HERE, offset, Entry::Control);
    let other = other.expect_err("another");
    assert_eq!(
        other.to_string(),
        "AQEBAQEBAQEBAQEBAQEBAQ-0: Record(RecordId(1)) was read at 1, where now is \
         Some(Control)"
    );
    assert_eq!(other.violation, Violation::Unread { offset, read, found });
    let elsewhere = TopicPartition { partition: PartitionIndex(1), ..HERE };
    let stray = history.verify(elsewhere, &log(0, &[0, 1, 2]));
    let violation = stray.expect_err("stray").violation;
    let (record, offset) = (id(0), Offset(0));
    assert_eq!(violation, Violation::WrongPartition { offset, record });
}

#[test]
fn an_idempotent_batch_is_acknowledged_at_one_offset() {
    let mut history = History::new();
    let attempt = history.attempt(HERE, Some(Session(1)), ids(0..1));
    history.acked(attempt, Offset(0)).expect("first");
    history.acked(attempt, Offset(0)).expect("a duplicate");
    let moved = history.acked(attempt, Offset(1)).expect_err("moved");
    let violation = Violation::Moved { record: id(0), acked: Offset(0), found: Offset(1) };
    assert_eq!(moved.violation, violation);
}
