//! Passes over logs of many kinds of batches, against a model that knows what was ever appended.

use std::collections::BTreeMap;
use std::task::Poll;

use bytes::Bytes;
use proptest::prelude::*;

use super::candidate::{Candidate, CleanRules, GroupLimits, LogFacts, SegmentFacts, group};
use super::filter::{Filter, KeyBatch, KeyPass, Verdict};
use super::offset_map::{ENTRY_BYTES, OffsetMap};
use crate::batch::{
    BatchBuilder, BatchHeader, Compression, CompressionTarget, HEADER_BYTES, Marker, MarkerKind,
    Records, Rewrite, Rewritten, TimestampType, decompressed_records,
};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use crate::journal::image::{ProducerBatchRow, ProducerRow};
use crate::log::aborted::{AbortedIndex, AbortedSearch, AbortedTransaction};

/// Key and value; -1 stands for null.
type KeyValue = (i8, i8);

#[derive(Clone, Debug)]
enum Step {
    /// A batch without a producer.
    Plain(Vec<KeyValue>, u8),
    /// A batch of an idempotent producer.
    Idempotent(i64, Vec<KeyValue>, u8),
    /// A batch of a transaction.
    Transactional(i64, Vec<KeyValue>, u8),
    End(i64, MarkerKind),
    Roll,
    /// A pass after so many milliseconds, with room for so many keys.
    Clean(i64, usize),
}

/// A record as readers see it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp_ms: i64,
    headers: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Segment {
    base: i64,
    batches: Vec<Bytes>,
    aborted: AbortedIndex,
}

impl Segment {
    fn bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).sum()
    }
}

#[derive(Clone)]
struct TestLog {
    segments: Vec<Segment>,
    next: i64,
    now_ms: i64,
    cleaned_end: i64,
    /// Up to where the last pass knew the keys; 0 if it had nothing to do.
    passed_end: i64,
    producers: BTreeMap<i64, ProducerRow>,
    /// Every record ever appended, with its batch and the transaction it is of.
    appended: BTreeMap<i64, (Seen, i64, Option<usize>)>,
    /// Transactions: producer, first offset, marker.
    transactions: Vec<(i64, i64, Option<Ending>)>,
    /// Delete horizons that passes have set, by base offset of the batch.
    horizons: BTreeMap<i64, i64>,
}

/// Offset and kind of a marker.
type Ending = (i64, MarkerKind);

const RETENTION_MS: i64 = 1_000;

impl TestLog {
    fn new() -> TestLog {
        TestLog {
            segments: vec![Segment::default()],
            next: 0,
            now_ms: 1_000_000,
            cleaned_end: 0,
            passed_end: 0,
            producers: BTreeMap::new(),
            appended: BTreeMap::new(),
            transactions: Vec::new(),
            horizons: BTreeMap::new(),
        }
    }

    fn open(&self, producer: i64) -> Option<usize> {
        let is_open = |(id, _, end): &(i64, i64, Option<_>)| *id == producer && end.is_none();
        self.transactions.iter().position(is_open)
    }

    fn last_stable(&self) -> i64 {
        let open = self.transactions.iter().filter(|transaction| transaction.2.is_none());
        open.map(|transaction| transaction.1).min().unwrap_or(self.next)
    }

    fn append(&mut self, producer: Option<i64>, in_txn: bool, records: &[KeyValue], codec: u8) {
        let transaction = producer.filter(|_| in_txn).map(|id| {
            self.open(id).unwrap_or_else(|| {
                self.transactions.push((id, self.next, None));
                self.transactions.len() - 1
            })
        });
        let codec = Compression::from_id(codec).expect("a codec");
        let mut builder =
            BatchBuilder::new(CompressionTarget::of(codec)).at(Offset(self.next), LeaderEpoch(3));
        if let Some(id) = producer {
            let row = self.producers.entry(id).or_insert_with(|| producer_row(id));
            let sequence = row.batches.last().map_or(0, |last| last.last_sequence + 1);
            row.batches = vec![ProducerBatchRow {
                last_sequence: sequence + records.len() as i32 - 1,
                last_offset: Offset(self.next + records.len() as i64 - 1),
                offset_delta: records.len() as i32 - 1,
                max_timestamp_ms: 0,
                append_ms: 0,
            }];
            builder = builder.producer(ProducerId(id), ProducerEpoch(0), sequence);
        }
        if in_txn {
            builder = builder.transactional();
        }
        for (place, &(key, value)) in records.iter().enumerate() {
            let bytes = |n: i8| (n >= 0).then(|| vec![n as u8; n as usize % 5]);
            let seen = Seen {
                key: (key >= 0).then(|| vec![key as u8]),
                value: bytes(value),
                timestamp_ms: self.now_ms + i64::from(key) * 7,
                headers: usize::from(value % 2 == 0),
            };
            let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", None)];
            let headers = &headers[..seen.headers];
            builder.push(seen.timestamp_ms, seen.key.as_deref(), seen.value.as_deref(), headers);
            let offset = self.next + place as i64;
            self.appended.insert(offset, (seen, self.next, transaction));
        }
        self.push(Bytes::from(builder.finish()));
        self.next += records.len() as i64;
    }

    fn end(&mut self, producer: i64, kind: MarkerKind) {
        let Some(open) = self.open(producer) else { return };
        let marker = Marker {
            kind,
            producer_id: ProducerId(producer),
            producer_epoch: ProducerEpoch(0),
            coordinator_epoch: 0,
            timestamp_ms: self.now_ms,
        };
        let epoch = LeaderEpoch(3);
        let batch = marker.to_batch(Offset(self.next), epoch, TimestampType::CreateTime);
        self.push(Bytes::copy_from_slice(&batch));
        self.transactions[open].2 = Some((self.next, kind));
        if kind == MarkerKind::Abort {
            let first = self.transactions[open].1;
            let others = self.last_stable();
            let entry = AbortedTransaction {
                producer_id: ProducerId(producer),
                first_offset: Offset(first),
                last_offset: Offset(self.next),
                last_stable_offset: Offset(others.min(self.next + 1)),
            };
            self.segments.last_mut().expect("one").aborted.add(entry);
        }
        self.next += 1;
    }

    fn push(&mut self, batch: Bytes) {
        self.segments.last_mut().expect("one").batches.push(batch);
    }

    fn roll(&mut self) {
        if !self.segments.last().expect("one").batches.is_empty() {
            self.segments.push(Segment { base: self.next, ..Segment::default() });
        }
    }

    fn aborted_in(&self, start: Offset, end: Offset) -> Vec<AbortedTransaction> {
        let mut search = AbortedSearch::new(start, end);
        self.segments.iter().for_each(|segment| search.look_in(&segment.aborted));
        search.into_found()
    }

    fn facts(&self) -> LogFacts {
        let (active, sealed) = self.segments.split_last().expect("one");
        let facts = |segment: &Segment| SegmentFacts {
            base: Offset(segment.base),
            bytes: segment.bytes(),
            first_timestamp_ms: None,
            largest_timestamp_ms: None,
        };
        LogFacts {
            log_start: Offset(0),
            log_end: Offset(self.next),
            last_stable: Offset(self.last_stable()),
            cleaned_end: Some(Offset(self.cleaned_end)),
            active_base: Offset(active.base),
            segments: sealed.iter().map(facts).collect(),
        }
    }

    /// One pass, as the shell does it; the end that it was allowed to touch.
    fn clean(&mut self, keys: usize) -> i64 {
        let facts = self.facts();
        let rules = CleanRules { dirty_ratio_min: 0.0, lag_min_ms: 0, lag_max_ms: i64::MAX };
        let candidate = Candidate::of(&facts, &rules, self.now_ms);
        let map = self.keys_of(candidate.first_dirty, candidate.end, keys);
        let rows: Vec<ProducerRow> = self.producers.values().cloned().collect();
        let mut filter = Filter::new(map, &rows, candidate.end, self.now_ms, RETENTION_MS);
        let taken: Vec<SegmentFacts> = facts
            .segments
            .iter()
            .filter(|segment| segment.base < filter.cleaned_end().min(candidate.end))
            .copied()
            .collect();
        let limits =
            GroupLimits { segment_bytes: 600, index_bytes: 10_000, index_interval_bytes: 100 };
        let after = facts.segments.get(taken.len()).map_or(facts.active_base, |next| next.base);
        let mut cleaned = Vec::new();
        for bases in group(&taken, after, &limits) {
            cleaned.push(self.clean_group(&mut filter, &bases));
        }
        let rest = self.segments.split_off(taken.len());
        self.segments = cleaned;
        self.segments.extend(rest);
        self.passed_end = filter.cleaned_end().0;
        self.cleaned_end = self.cleaned_end.max(self.passed_end);
        candidate.end.0
    }

    fn keys_of(&self, start: Offset, end: Offset, keys: usize) -> OffsetMap {
        let map = OffsetMap::new((keys + 1) * ENTRY_BYTES, 1.0, 5);
        let mut pass = KeyPass::new(start, map);
        pass.transactions.tell(self.aborted_in(start, end));
        for (place, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(place + 1).map_or(self.next, |next| next.base);
            if next <= start.0 || segment.base >= end.0 {
                continue;
            }
            for batch in &segment.batches {
                let header = BatchHeader::read_verified(batch).expect("sound");
                if !pass.pass(&header, batch).expect("sound") {
                    pass.passed_below(header.next_offset());
                    continue;
                }
                let records = decompressed_records(&header, batch, 1 << 20).expect("sound");
                let mut keys = KeyBatch::new(&header, records);
                let fits = loop {
                    if let Poll::Ready(fits) = pass.step(&mut keys, 1) {
                        break fits.expect("sound");
                    }
                };
                if !fits {
                    return pass.into_map();
                }
            }
            pass.passed_below(Offset(next));
        }
        pass.into_map()
    }

    fn clean_group(&mut self, filter: &mut Filter, bases: &[Offset]) -> Segment {
        let mut cleaned = Segment { base: bases[0].0, ..Segment::default() };
        for base in bases {
            let place = self.segments.iter().position(|segment| segment.base == base.0);
            let place = place.expect("a segment");
            let next = self.segments[place + 1].base;
            filter.transactions.tell(self.aborted_in(*base, Offset(next)));
            for batch in self.segments[place].batches.clone() {
                let header = BatchHeader::read_verified(&batch).expect("sound");
                let kept = match filter.judge(&header, &batch).expect("sound") {
                    Verdict::Drop => None,
                    Verdict::Empty(header) => Some(header),
                    Verdict::Records(rules) => {
                        let records = decompressed_records(&header, &batch, 1 << 20);
                        let records = records.expect("sound");
                        let mut rewrite = Rewrite::start(&header, batch.clone(), records, rules);
                        rewritten(&mut rewrite, |record, offset| {
                            filter.keeps(&header, record, offset)
                        })
                        .batch
                    }
                };
                if let Some(kept) = kept {
                    self.note_horizon(&header, &kept);
                    cleaned.batches.push(kept);
                }
            }
        }
        filter.transactions.take_kept().into_iter().for_each(|entry| cleaned.aborted.add(entry));
        cleaned
    }

    fn note_horizon(&mut self, before: &BatchHeader, kept: &[u8]) {
        let after = BatchHeader::read(kept).expect("sound");
        if before.delete_horizon_ms().is_none()
            && let Some(horizon_ms) = after.delete_horizon_ms()
        {
            assert_eq!(horizon_ms, self.now_ms + RETENTION_MS);
            self.horizons.insert(before.base_offset.0, horizon_ms);
        }
    }

    fn batches(&self) -> impl Iterator<Item = (BatchHeader, &Bytes)> {
        let batches = self.segments.iter().flat_map(|segment| &segment.batches);
        batches.map(|batch| (BatchHeader::read_verified(batch).expect("sound"), batch))
    }

    /// What a reader finds; of committed records it is told by the indexes what was aborted.
    fn read(&self, committed_only: bool) -> BTreeMap<i64, Seen> {
        let mut ahead = self.aborted_in(Offset(0), Offset(self.last_stable()));
        ahead.sort_by_key(|entry| entry.first_offset);
        let mut ahead = ahead.into_iter().peekable();
        let mut aborted = std::collections::BTreeSet::new();
        let mut found = BTreeMap::new();
        for (header, batch) in self.batches() {
            if committed_only && header.next_offset().0 > self.last_stable() {
                break;
            }
            while let Some(entry) = ahead.next_if(|e| e.first_offset <= header.last_offset()) {
                aborted.insert(entry.producer_id);
            }
            if header.is_control() {
                if let Ok(Some(marker)) = Marker::read(&header, &batch[HEADER_BYTES..])
                    && marker.kind == MarkerKind::Abort
                {
                    aborted.remove(&header.producer_id);
                }
                continue;
            }
            let hidden = header.is_transactional() && aborted.contains(&header.producer_id);
            if !(committed_only && hidden) {
                records_of(&header, batch, &mut found);
            }
        }
        found
    }

    /// Whether the transaction of a record was aborted, committed, or is undecided.
    fn outcome(&self, offset: i64) -> Option<MarkerKind> {
        match self.appended[&offset].2 {
            None => Some(MarkerKind::Commit),
            Some(transaction) => self.transactions[transaction].2.map(|(_, kind)| kind),
        }
    }

    /// What must be there after a pass at this time over a log that was like `before`.
    fn expected(&self, before: &TestLog) -> BTreeMap<i64, Seen> {
        let committed = |offset: i64| self.outcome(offset) == Some(MarkerKind::Commit);
        let touched = |offset: i64| {
            let place = before.segments.partition_point(|segment| segment.base <= offset) - 1;
            before.segments[place].base < self.passed_end && place + 1 < before.segments.len()
        };
        let mut newest = BTreeMap::new();
        for (&offset, (seen, ..)) in self.appended.range(..self.passed_end) {
            if committed(offset) {
                newest.insert(seen.key.clone(), offset);
            }
        }
        let mut expected = before.read(false);
        expected.retain(|&offset, seen| {
            if !touched(offset) {
                return true;
            }
            if offset >= self.passed_end {
                return self.outcome(offset) != Some(MarkerKind::Abort);
            }
            let horizon = before.horizons.get(&self.appended[&offset].1);
            let over = horizon.is_some_and(|horizon_ms| *horizon_ms <= self.now_ms);
            committed(offset)
                && seen.key.is_some()
                && newest[&seen.key] == offset
                && (seen.value.is_some() || !over)
        });
        expected
    }

    fn check(&self, before: &TestLog, end: i64) {
        assert_eq!(self.read(false), self.expected(before), "what must be there");
        assert_eq!(self.values(), before.values(), "the value of every key");
        let mut next = 0;
        for (header, _) in self.batches() {
            assert!(header.base_offset.0 >= next, "offsets rise");
            next = header.next_offset().0;
        }
        for (place, segment) in self.segments.iter().enumerate() {
            let limit = self.segments.get(place + 1).map_or(i64::MAX, |next| next.base);
            for batch in &segment.batches {
                let header = BatchHeader::read(batch).expect("sound");
                assert!(header.base_offset.0 >= segment.base && header.last_offset().0 < limit);
            }
        }
        if end > 0 && self.passed_end == end {
            assert!(
                self.batches().any(|(header, _)| header.next_offset().0 == end),
                "the last batch below {end} stays"
            );
        }
        self.check_producers();
        self.check_markers();
        let tombstones = self.read(false).values().filter(|seen| seen.value.is_none()).count();
        let total = |log: &TestLog| log.segments.iter().map(Segment::bytes).sum::<u64>();
        // A delete horizon moves the base of the timestamps; a codec may gain nothing.
        let batches = self.batches().count() as u64;
        assert!(total(self) <= total(before) + 16 * batches + 8 * tombstones as u64);
    }

    fn check_producers(&self) {
        for (id, row) in &self.producers {
            let Some(last) = row.batches.last() else { continue };
            let kept = self.batches().find(|(header, _)| header.last_offset() == last.last_offset);
            let (header, _) = kept.expect("the last batch of every producer stays");
            assert_eq!(header.producer_id.0, *id);
            assert_eq!(header.last_sequence(), last.last_sequence);
            assert_eq!(header.last_offset_delta, last.offset_delta);
        }
    }

    /// A marker stays as long as a batch of its transaction, even an empty one.
    fn check_markers(&self) {
        for (id, first, end) in &self.transactions {
            let Some((marker, _)) = end else { continue };
            let has_batches = self.batches().any(|(header, _)| {
                header.producer_id.0 == *id
                    && header.is_transactional()
                    && !header.is_control()
                    && (*first..*marker).contains(&header.base_offset.0)
            });
            let has_marker = self.batches().any(|(header, _)| header.base_offset.0 == *marker);
            assert!(has_marker || !has_batches, "the marker at {marker} is gone too early");
        }
    }

    /// What a table made of the committed records holds.
    fn values(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut values = BTreeMap::new();
        for seen in self.read(true).into_values() {
            match (seen.key, seen.value) {
                (Some(key), Some(value)) => values.insert(key, value),
                (Some(key), None) => values.remove(&key),
                (None, _) => None,
            };
        }
        values
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Plain(records, codec) => self.append(None, false, &records, codec),
            Step::Idempotent(id, records, codec) => {
                self.append(Some(id), false, &records, codec);
            }
            Step::Transactional(id, records, codec) => {
                self.append(Some(id), true, &records, codec);
            }
            Step::End(id, kind) => self.end(id, kind),
            Step::Roll => self.roll(),
            Step::Clean(ms, keys) => {
                self.now_ms += ms;
                let before = self.clone();
                let end = self.clean(keys);
                self.check(&before, end);
            }
        }
    }
}

fn producer_row(id: i64) -> ProducerRow {
    ProducerRow {
        id: ProducerId(id),
        epoch: ProducerEpoch(0),
        coordinator_epoch: -1,
        last_append_ms: 0,
        last_timestamp_ms: 0,
        open_transaction_first_offset: None,
        batches: Vec::new(),
    }
}

/// Goes through a batch in the smallest steps.
fn rewritten(
    rewrite: &mut Rewrite,
    mut keep: impl FnMut(&crate::batch::Record<'_>, Offset) -> bool,
) -> Rewritten {
    loop {
        if let Poll::Ready(done) = rewrite.step(1, &mut keep) {
            return done.expect("sound");
        }
    }
}

fn records_of(header: &BatchHeader, batch: &Bytes, found: &mut BTreeMap<i64, Seen>) {
    let records = decompressed_records(header, batch, 1 << 20).expect("sound");
    for record in Records::new(&records, header.record_count) {
        let record = record.expect("sound");
        let seen = Seen {
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            timestamp_ms: header.record_timestamp(record.timestamp_delta),
            headers: record.headers.count(),
        };
        found.insert(header.record_offset(record.offset_delta).0, seen);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let records = || prop::collection::vec((-1i8..6, -1i8..12), 1..6);
    let end = prop_oneof![Just(MarkerKind::Commit), Just(MarkerKind::Abort)];
    prop_oneof![
        4 => (records(), 0u8..5).prop_map(|(records, codec)| Step::Plain(records, codec)),
        2 => (0i64..2, records(), 0u8..5)
            .prop_map(|(id, records, codec)| Step::Idempotent(id, records, codec)),
        4 => (10i64..13, records(), 0u8..5)
            .prop_map(|(id, records, codec)| Step::Transactional(id, records, codec)),
        3 => (10i64..13, end).prop_map(|(id, kind)| Step::End(id, kind)),
        3 => Just(Step::Roll),
        3 => (0i64..1_500, prop_oneof![Just(1_000), 1usize..5])
            .prop_map(|(ms, keys)| Step::Clean(ms, keys)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn passes_keep_exactly_what_the_model_keeps(steps in prop::collection::vec(step(), 1..60)) {
        live(steps);
    }
}

/// Two transactions of each of two producers: values of the first, and so its marker, stay as well.
#[test]
fn markers_of_what_is_kept_are_kept() {
    live(vec![
        Step::Transactional(11, vec![(1, 0)], 0),
        Step::End(11, MarkerKind::Commit),
        Step::Transactional(11, vec![(0, 0)], 0),
        Step::Transactional(10, vec![(2, 0)], 0),
        Step::End(10, MarkerKind::Commit),
        Step::Transactional(10, vec![(0, 0)], 0),
    ]);
}

/// A log's life, each pass compared with the model, and how little is left at its end.
fn live(steps: Vec<Step>) {
    let mut log = TestLog::new();
    for step in steps {
        log.apply(step);
    }
    for id in 10..13 {
        log.end(id, MarkerKind::Abort);
    }
    // Two full passes, and one after the horizon: then nothing is left that could go.
    for ms in [0, 0, RETENTION_MS, 0] {
        log.roll();
        log.append(None, false, &[(0, 1)], 0);
        log.apply(Step::Roll);
        log.apply(Step::Clean(ms, 1_000));
    }
    log.cleaned_end = 0;
    log.apply(Step::Clean(0, 1_000));
    let once = log.segments.clone();
    log.cleaned_end = 0;
    log.apply(Step::Clean(0, 1_000));
    let batches = |segments: &[Segment]| -> Vec<Bytes> {
        segments.iter().flat_map(|segment| segment.batches.clone()).collect()
    };
    assert_eq!(batches(&once), batches(&log.segments), "a pass more changes nothing");
    let is_idle = |header: &BatchHeader| header.record_count == 0 || header.is_control();
    let idle = log.batches().filter(|(header, _)| is_idle(header)).count();
    let needs_marker = |header: &BatchHeader| !is_idle(header) && header.is_transactional();
    let with_values = log.batches().filter(|(header, _)| needs_marker(header)).count();
    // The last of each producer with its marker, the last of the log, markers of what is kept.
    let most = 2 * log.producers.len() + 1 + with_values;
    assert!(idle <= most, "{idle} batches without use, {with_values} with values");
}

/// redpanda-data/redpanda#6664: a value that was aborted does not replace the one committed.
#[test]
fn an_aborted_value_does_not_replace_a_committed_one() {
    let mut log = TestLog::new();
    log.append(None, false, &[(1, 1)], 0);
    log.append(Some(10), true, &[(1, 2)], 0);
    log.end(10, MarkerKind::Abort);
    log.append(Some(11), true, &[(1, 3)], 0);
    log.roll();
    log.append(None, false, &[(2, 2)], 0);
    log.apply(Step::Clean(0, 100));
    assert_eq!(log.cleaned_end, 0, "11 is open since offset 3");
    assert_eq!(log.read(false).len(), 4);
    log.end(11, MarkerKind::Abort);
    log.apply(Step::Clean(0, 100));
    assert_eq!(log.read(false).keys().copied().collect::<Vec<_>>(), [0, 4]);
}

/// redpanda-data/redpanda#16295: two transactions that one producer aborted, and one of another,
/// keep their markers until their data is gone and the horizon has passed.
#[test]
fn markers_are_not_deduplicated_and_go_last() {
    let mut log = TestLog::new();
    for (producer, key) in [(10, 1), (10, 2), (11, 3)] {
        log.append(Some(producer), true, &[(key, 1)], 0);
        log.end(producer, MarkerKind::Abort);
    }
    let markers = |log: &TestLog| -> Vec<i64> {
        let control = log.batches().filter(|(header, _)| header.is_control());
        control.map(|(header, _)| header.base_offset.0).collect()
    };
    let pass = |log: &mut TestLog, ms| {
        log.roll();
        log.append(None, false, &[(0, 1)], 0);
        log.roll();
        log.apply(Step::Clean(ms, 100));
    };
    pass(&mut log, 0);
    assert_eq!(markers(&log), [1, 3, 5], "their data was there until now");
    pass(&mut log, 0);
    assert_eq!(markers(&log), [1, 3, 5], "the horizon is set");
    assert_eq!(log.horizons.keys().copied().collect::<Vec<_>>(), [1], "the others have batches");
    pass(&mut log, RETENTION_MS - 1);
    assert_eq!(markers(&log), [1, 3, 5]);
    pass(&mut log, 1);
    assert_eq!(markers(&log), [3, 5], "those of the producers' last batches stay");
}

#[test]
fn a_batch_that_keeps_some_records_keeps_its_place_and_codec() {
    for codec in 0..5 {
        let mut log = TestLog::new();
        let records: Vec<KeyValue> = (0..50).map(|n| ((n % 5) as i8, 4)).collect();
        log.append(Some(1), false, &records, codec);
        let (before, batch) = log.batches().next().map(|(h, b)| (h, b.clone())).expect("one");
        let inflated = decompressed_records(&before, &batch, 1 << 20).expect("sound");
        let rules =
            crate::batch::RewriteRules { keep_empty: false, starts_horizon: false, horizon_ms: 99 };
        let mut rewrite = Rewrite::start(&before, batch.clone(), inflated.clone(), rules);
        let kept = rewritten(&mut rewrite, |_, offset| offset.0 % 7 == 3);
        let bytes = kept.batch.expect("some are kept");
        let after = BatchHeader::read_verified(&bytes).expect("sound");
        assert_eq!((kept.records, after.record_count), (7, 7));
        let same = BatchHeader {
            batch_length: before.batch_length,
            crc: before.crc,
            record_count: before.record_count,
            max_timestamp: before.max_timestamp,
            ..after
        };
        assert_eq!(same, before, "codec {codec}");
        assert_eq!(after.max_timestamp, kept.max_timestamp_ms);
        let mut found = BTreeMap::new();
        records_of(&after, &bytes, &mut found);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [3, 10, 17, 24, 31, 38, 45]);
        let newest = found.values().map(|seen| seen.timestamp_ms).max();
        assert_eq!(newest, Some(after.max_timestamp));
        // All kept: not one byte changes.
        let mut rewrite = Rewrite::start(&before, batch.clone(), inflated, rules);
        assert_eq!(rewritten(&mut rewrite, |_, _| true).batch, Some(batch));
    }
}
