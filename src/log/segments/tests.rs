//! Rolling, and which segments there are.

use super::*;
use crate::ids::ProducerId;

const RULES: SegmentRules = SegmentRules {
    segment_bytes: 10_000,
    segment_ms: 1_000,
    segment_jitter_ms: 0,
    index_interval_bytes: 4_096,
    index_bytes_max: 80,
};

fn batch(base: i64, count: i64, timestamp: i64, bytes: usize) -> PlacedBatch {
    PlacedBatch {
        base_offset: Offset(base),
        last_offset: Offset(base + count - 1),
        max_timestamp_ms: timestamp,
        append_ms: 0,
        bytes,
    }
}

fn appended_at(append_ms: i64, timestamp: i64) -> PlacedBatch {
    PlacedBatch { append_ms, ..batch(1, 1, timestamp, 10) }
}

#[test]
fn rolls_by_bytes_time_and_span() {
    let mut active = ActiveSegment::new(Offset(0), 0);
    assert!(!active.must_roll(&batch(0, 1, 5, 99_999), &RULES), "never while empty");
    active.place(&batch(0, 1, 5, 6_000), &RULES);
    assert!(!active.must_roll(&batch(1, 1, 5, 4_000), &RULES));
    assert!(active.must_roll(&batch(1, 1, 5, 4_001), &RULES));
    assert!(!active.must_roll(&batch(1, 1, 1_005, 10), &RULES));
    assert!(active.must_roll(&batch(1, 1, 1_006, 10), &RULES));
    assert!(active.must_roll(&batch(i64::from(i32::MAX), 2, 5, 10), &RULES));
}

/// As in Kafka, it is the first batch that says whose clock counts.
#[test]
fn the_clock_counts_only_where_the_first_batch_has_no_timestamp() {
    let mut timed = ActiveSegment::new(Offset(0), 0);
    timed.place(&batch(0, 1, 5, 100), &RULES);
    assert!(!timed.must_roll(&appended_at(1_000_000, 5), &RULES));
    assert!(!timed.must_roll(&appended_at(1_000_000, -1), &RULES));
    let mut timeless = ActiveSegment::new(Offset(0), 200);
    timeless.place(&batch(0, 1, -1, 100), &RULES);
    assert!(!timeless.must_roll(&appended_at(1_200, 1_000_000), &RULES));
    assert!(timeless.must_roll(&appended_at(1_201, -1), &RULES));
}

#[test]
fn jitter_comes_off_the_time_of_each_segment() {
    let rules = SegmentRules { segment_jitter_ms: 300, ..RULES };
    let random = [0, 299, 300, 305, u64::MAX];
    assert_eq!(random.map(|random| rules.jitter_ms(random)), [0, 299, 0, 5, 15]);
    assert_eq!(RULES.jitter_ms(77), 0);
    let mut set = SegmentSet::default();
    set.roll(Offset(0), 0, 300);
    let active = set.active.as_mut().expect("active");
    active.place(&batch(0, 1, 5, 100), &rules);
    assert!(!active.must_roll(&batch(1, 1, 705, 100), &rules));
    assert!(active.must_roll(&batch(1, 1, 706, 100), &rules));
}

#[test]
fn rolls_when_an_index_is_full() {
    // An entry per batch but the first.
    let every = SegmentRules { index_interval_bytes: 0, ..RULES };
    let full = |rules: &SegmentRules, timestamp: fn(i64) -> i64| {
        let mut active = ActiveSegment::new(Offset(0), 0);
        for number in 0.. {
            let next = batch(number, 1, timestamp(number), 10);
            if active.must_roll(&next, rules) {
                return active.index_bytes();
            }
            active.place(&next, rules);
        }
        unreachable!("an index fills");
    };
    let bytes = full(&every, |_| 5);
    assert_eq!((bytes.offsets, bytes.times), (80, 12), "ten offsets");
    let bytes = full(&every, |number| 5 + number);
    assert_eq!((bytes.offsets, bytes.times), (40, 60), "six times, of which one is kept free");
}

#[test]
fn rolls_when_the_index_of_aborted_transactions_is_full() {
    let mut active = ActiveSegment::new(Offset(0), 0);
    active.place(&batch(0, 1, 5, 78), &RULES);
    for marker in 1..=2 {
        assert!(!active.must_roll(&batch(marker, 1, 5, 78), &RULES));
        active.place(&batch(marker, 1, 5, 78), &RULES);
        let entry = AbortedTransaction {
            producer_id: ProducerId(9),
            first_offset: Offset(marker - 1),
            last_offset: Offset(marker),
            last_stable_offset: Offset(marker + 1),
        };
        active.note_aborted([entry]);
        active.note_aborted([entry]);
    }
    assert_eq!(active.index_bytes().aborted, 68);
    assert!(active.must_roll(&batch(3, 1, 5, 78), &RULES), "80 bytes take two entries");
}

#[test]
fn the_last_block_is_kept_and_bases_are_found() {
    let mut set = SegmentSet::default();
    set.roll(Offset(0), 0, 0);
    let active = set.active.as_mut().expect("active");
    active.place(&batch(0, 1, 1, 5_000), &RULES);
    active.written_to(5_000, vec![7; 904]);
    assert_eq!(active.next_write_position(), 4_096);
    active.place(&batch(1, 1, 1, 3_192), &RULES);
    active.written_to(8_192, Vec::new());
    set.roll(Offset(2), 0, 0);
    assert_eq!(set.holding(Offset(1)), Some(Offset(0)));
    assert_eq!(set.holding(Offset(2)), Some(Offset(2)));
    assert_eq!(set.following(Offset(0)), Some(Offset(2)));
    assert_eq!(set.following(Offset(2)), None);
    assert_eq!(set.readable_bytes(Offset(0)), Some(8_192));
}

#[test]
fn a_sealed_segment_remembers_how_old_it_is() {
    let sealed = |timestamps: &[i64]| {
        let mut set = SegmentSet::default();
        set.roll(Offset(0), 3, 0);
        let active = set.active.as_mut().expect("active");
        for (at, &timestamp) in (0..).zip(timestamps) {
            active.place(&PlacedBatch { append_ms: 900, ..batch(at, 1, timestamp, 10) }, &RULES);
        }
        active.written_to(active.placed_bytes, vec![0; timestamps.len() * 10]);
        set.seal();
        assert!(set.active.is_none());
        set.sealed[&Offset(0)].newest_ms
    };
    assert_eq!(sealed(&[5, 70, 60]), Some(70));
    assert_eq!(sealed(&[-1, -1]), Some(900), "no timestamp: when it was written");
}

#[test]
fn what_lies_wholly_below_the_start_is_taken() {
    let take = |bases: &[i64], active: Option<i64>, start: i64| {
        let mut set = SegmentSet::default();
        for &base in bases {
            set.sealed.insert(Offset(base), SealedSegment::unread(10));
        }
        set.active = active.map(|base| ActiveSegment::new(Offset(base), 0));
        let taken = set.take_below(Offset(start), Offset(40));
        let left: Vec<i64> = set.bases().map(|base| base.0).collect();
        let taken = taken.iter().map(|taken| (taken.base.0, taken.end.0));
        (taken.collect::<Vec<_>>(), left)
    };
    assert_eq!(take(&[0, 10, 20], Some(30), 9), (vec![], vec![0, 10, 20, 30]));
    assert_eq!(take(&[0, 10, 20], Some(30), 10), (vec![(0, 10)], vec![10, 20, 30]));
    assert_eq!(take(&[0, 10, 20], Some(30), 29), (vec![(0, 10), (10, 20)], vec![20, 30]));
    assert_eq!(take(&[10, 20], Some(30), 40), (vec![(10, 20), (20, 30)], vec![30]));
    assert_eq!(take(&[10, 20], None, 39), (vec![(10, 20)], vec![20]));
    assert_eq!(take(&[10, 20], None, 40), (vec![(10, 20), (20, 40)], vec![]));
    assert_eq!(take(&[], None, 40), (vec![], vec![]));
}
