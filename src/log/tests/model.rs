//! Last stable offset and aborted lists against a model that scans the whole log every time.

use proptest::prelude::*;

use super::*;
use crate::batch::MarkerKind;
use crate::log::aborted::{AbortedIndex, AbortedSearch};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Plain,
    Data(i64),
    Marker(i64, MarkerKind),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(Entry, i32),
    /// Part of what is not durable becomes it, in hundredths.
    Durable(i64),
    /// Part of what is durable goes to a segment; perhaps a new one.
    Write(i64, bool),
    Restart,
    /// What must be named to a reader of this part of the log.
    Read(i64, i64),
}

/// A transaction as a scan finds it.
struct Transaction {
    first: i64,
    id: i64,
    /// Its marker, once there is one.
    end: Option<(i64, MarkerKind)>,
}

/// The real log with its segments' indexes, beside the list of everything that was appended.
struct Pair {
    log: Log,
    segments: Vec<(Offset, AbortedIndex)>,
    entries: Vec<(i64, i64, Entry)>,
    newest_bound: Offset,
}

impl Pair {
    fn new() -> Pair {
        let log = empty();
        let segments = vec![(Offset(0), AbortedIndex::default())];
        Pair { log, segments, entries: Vec::new(), newest_bound: Offset(0) }
    }

    fn append(&mut self, entry: Entry, count: i32) {
        let end = self.log.next_offset();
        let count = if matches!(entry, Entry::Marker(..)) { 1 } else { count };
        let tail = TailBatch {
            base_offset: end,
            last_offset: end.plus(i64::from(count) - 1),
            max_timestamp_ms: 7,
            append_ms: 0,
            bytes: 100,
            sequence: JournalSequence(1),
            parts: SmallVec::new(),
        };
        self.entries.push((end.0, end.0 + i64::from(count) - 1, entry));
        match entry {
            Entry::Marker(id, kind) => {
                let marker = Marker {
                    kind,
                    producer_id: ProducerId(id),
                    producer_epoch: ProducerEpoch(0),
                    coordinator_epoch: 0,
                    timestamp_ms: 7,
                };
                assert_eq!(self.log.check_marker(&marker, false, 0), Ok(end));
                self.log.append_marker(&marker, false, tail, 0);
            }
            Entry::Plain => self.log.append(&facts(count), tail, 0),
            Entry::Data(id) => {
                // As a coordinator's: nothing here is about sequences.
                let producer = ProducerFacts {
                    id: ProducerId(id),
                    epoch: ProducerEpoch(0),
                    base_sequence: -1,
                };
                let guard = match self.log.begin_verification(&producer, false, 0) {
                    Ok(Verification::Guard(guard)) => Some(guard),
                    _ => None,
                };
                let producer = Some(producer);
                let facts = BatchFacts { producer, transactional: true, guard, ..facts(count) };
                assert_eq!(self.log.check(&facts, 0), Ok(AppendCheck::Append(end)));
                self.log.append(&facts, tail, 0);
            }
        }
    }

    /// The first batch boundary at or after a part of the way from one offset to another.
    fn boundary(&self, from: Offset, to: Offset, hundredths: i64) -> Offset {
        let wanted = from.0 + (to.0 - from.0) * hundredths / 100;
        let last = self.entries.iter().map(|entry| entry.1).find(|&last| last + 1 >= wanted);
        let end = if wanted == 0 { 0 } else { last.map_or(to.0, |last| last + 1) };
        Offset(end.min(to.0).max(from.0))
    }

    fn write(&mut self, end: Offset, roll: bool) {
        if roll && end > self.log.written_end() {
            let base = self.log.written_end();
            if base > self.segments.last().expect("one at least").0 {
                self.segments.push((base, AbortedIndex::default()));
            }
        }
        let ended = self.log.producers().transactions().ended_from(self.log.written_end());
        let aborted: Vec<_> = ended
            .filter(|ended| ended.marker_offset < end)
            .filter_map(EndedTransaction::aborted)
            .collect();
        let (_, index) = self.segments.last_mut().expect("one at least");
        aborted.into_iter().for_each(|entry| index.add(entry));
        self.log.written_through(end);
    }

    fn restart(&mut self) {
        let end = self.log.next_offset();
        self.log.advance_high_watermark(end);
        self.write(end, true);
        let rows = self.log.producers().to_rows();
        let producers = Producers::from_rows(&rows, 1_000);
        self.log = Log::recovered(Offset(0), end, EpochHistory::default(), producers);
    }

    /// Every transaction.
    fn transactions(&self) -> Vec<Transaction> {
        let mut found: Vec<Transaction> = Vec::new();
        for &(first, _, entry) in &self.entries {
            let open = |id| found.iter().position(|other| other.id == id && other.end.is_none());
            match entry {
                Entry::Plain => {}
                Entry::Data(id) => {
                    if open(id).is_none() {
                        found.push(Transaction { first, id, end: None });
                    }
                }
                Entry::Marker(id, kind) => {
                    if let Some(place) = open(id) {
                        found[place].end = Some((first, kind));
                    }
                }
            }
        }
        found
    }

    fn check_bounds(&mut self) {
        let high_watermark = self.log.high_watermark();
        let unstable = self.transactions().into_iter().filter(|transaction| {
            transaction.end.is_none_or(|(marker, _)| marker >= high_watermark.0)
        });
        let first = unstable.map(|transaction| transaction.first).min().unwrap_or(i64::MAX);
        let expected = Offset(first.min(high_watermark.0));
        assert_eq!(self.log.last_stable_offset(), expected);
        assert!(expected >= self.newest_bound, "the bound moved back");
        self.newest_bound = expected;
    }

    fn check_read(&self, from: i64, length: i64) {
        let bound = self.log.last_stable_offset().0;
        let start = bound * from / 100;
        let end = (start + length).min(bound);
        if start == end {
            return;
        }
        let mut search = AbortedSearch::new(Offset(start), Offset(end));
        let holding = self.segments.iter().rposition(|(base, _)| base.0 <= start);
        for (_, index) in &self.segments[holding.expect("the first is at 0")..] {
            search.look_in(index);
        }
        let ended = self.log.producers().transactions().ended_from(Offset(start));
        search.look(ended.filter_map(EndedTransaction::aborted));
        let found: Vec<(i64, i64)> = search
            .into_found()
            .iter()
            .map(|entry| (entry.first_offset.0, entry.last_offset.0))
            .collect();
        let mut expected: Vec<(i64, i64)> = self
            .transactions()
            .into_iter()
            .filter_map(|transaction| match transaction.end {
                Some((marker, MarkerKind::Abort)) => Some((transaction.first, marker)),
                _ => None,
            })
            .filter(|(first, marker)| *first < end && *marker >= start)
            .collect();
        expected.sort_unstable_by_key(|(_, marker)| *marker);
        assert_eq!(found, expected, "read [{start}, {end})");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(MarkerKind::Commit), Just(MarkerKind::Abort)];
    let entry = prop_oneof![
        2 => Just(Entry::Plain),
        5 => (0..5_i64).prop_map(Entry::Data),
        3 => (0..5_i64, kind).prop_map(|(id, kind)| Entry::Marker(id, kind)),
    ];
    let step = prop_oneof![
        8 => (entry, 1..5).prop_map(|(entry, count)| Step::Append(entry, count)),
        3 => (0..=100_i64).prop_map(Step::Durable),
        2 => (0..=100_i64, any::<bool>()).prop_map(|(part, roll)| Step::Write(part, roll)),
        1 => Just(Step::Restart),
        4 => (0..=100_i64, 1..20_i64).prop_map(|(from, length)| Step::Read(from, length)),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn bounds_and_lists_are_those_of_a_scan(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            match step {
                Step::Append(entry, count) => pair.append(entry, count),
                Step::Durable(part) => {
                    let log = &pair.log;
                    let end = pair.boundary(log.high_watermark(), log.next_offset(), part);
                    pair.log.advance_high_watermark(end);
                }
                Step::Write(part, roll) => {
                    let log = &pair.log;
                    let end = pair.boundary(log.written_end(), log.high_watermark(), part);
                    pair.write(end, roll);
                }
                Step::Restart => pair.restart(),
                Step::Read(from, length) => pair.check_read(from, length),
            }
            pair.check_bounds();
        }
        pair.restart();
        pair.check_bounds();
        pair.check_read(0, i64::MAX / 2);
    }
}
