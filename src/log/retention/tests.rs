//! Rules by example, and against a model that deletes segment by segment.

use proptest::prelude::*;

use super::*;

fn held(base: i64, bytes: u64, newest_ms: i64) -> HeldSegment {
    HeldSegment { base: Offset(base), bytes, newest_ms: Some(newest_ms) }
}

fn bounds(log_start: i64, end: i64) -> Bounds {
    let end = Offset(end);
    Bounds { log_start: Offset(log_start), high_watermark: end, end }
}

fn rules(bytes: Option<u64>, ms: Option<i64>) -> RetentionRules {
    RetentionRules { bytes, ms }
}

fn start(segments: &[HeldSegment], bounds: &Bounds, rules: &RetentionRules, now_ms: i64) -> Wanted {
    let total = segments.iter().map(|segment| segment.bytes).sum();
    wanted_start(segments.iter().copied(), total, bounds, rules, now_ms)
}

fn part(offset: i64) -> Wanted {
    Wanted::Start { offset: Offset(offset), all: false }
}

fn all(offset: i64) -> Wanted {
    Wanted::Start { offset: Offset(offset), all: true }
}

#[test]
fn size_keeps_at_least_what_it_is_told_to() {
    let segments = [held(0, 100, 0), held(10, 100, 0), held(20, 100, 0), held(30, 50, 0)];
    let check = |bytes: u64, expected: Wanted| {
        assert_eq!(start(&segments, &bounds(0, 35), &rules(Some(bytes), None), 0), expected);
    };
    check(351, part(0));
    check(350, part(0));
    check(251, part(0));
    check(250, part(10));
    check(249, part(10));
    check(150, part(20));
    check(50, part(30));
    check(1, part(30));
    check(0, all(35));
}

#[test]
fn age_ends_at_the_first_that_is_young_enough() {
    let segments = [held(0, 1, 100), held(10, 1, 900), held(20, 1, 200), held(30, 1, 300)];
    let check = |now_ms: i64, expected: Wanted| {
        assert_eq!(start(&segments, &bounds(0, 35), &rules(None, Some(500)), now_ms), expected);
    };
    check(600, part(0));
    check(601, part(10));
    check(1_400, part(10));
    check(1_401, all(35));
    // A timestamp of the future pins what comes after it.
    check(-5_000, part(0));
    let none = rules(None, None);
    assert_eq!(start(&segments, &bounds(0, 35), &none, i64::MAX), part(0));
    let zero = rules(None, Some(0));
    assert_eq!(start(&segments, &bounds(0, 35), &zero, 100), part(0));
    assert_eq!(start(&segments, &bounds(0, 35), &zero, 101), part(10));
}

#[test]
fn size_comes_first_and_age_goes_on() {
    let segments = [held(0, 100, 900), held(10, 100, 100), held(20, 100, 900)];
    let both = rules(Some(200), Some(500));
    assert_eq!(start(&segments, &bounds(0, 25), &both, 700), part(20));
    assert_eq!(start(&segments, &bounds(0, 25), &both, 600), part(10));
}

#[test]
fn an_empty_open_segment_stays_and_what_is_not_durable_too() {
    let old = rules(Some(0), Some(0));
    assert_eq!(start(&[held(0, 0, 0)], &bounds(0, 0), &old, 99), part(0));
    assert_eq!(start(&[held(0, 9, 0), held(5, 0, 0)], &bounds(0, 5), &old, 99), part(5));
    let segments = [held(0, 9, 0), held(5, 9, 0)];
    let pending = Bounds { high_watermark: Offset(7), ..bounds(0, 8) };
    assert_eq!(start(&segments, &pending, &old, 99), part(5));
    let pending = Bounds { high_watermark: Offset(4), ..bounds(0, 8) };
    assert_eq!(start(&segments, &pending, &old, 99), part(0));
}

#[test]
fn what_is_below_the_start_counts_no_more() {
    let segments = [held(0, 100, 0), held(10, 100, 0), held(20, 100, 0)];
    let size = rules(Some(200), None);
    assert_eq!(start(&segments, &bounds(10, 25), &size, 0), part(10));
    assert_eq!(start(&segments, &bounds(9, 25), &size, 0), part(10));
    // In the middle of a segment the start stays where it is.
    assert_eq!(start(&segments, &bounds(13, 25), &size, 0), part(13));
    assert_eq!(start(&segments, &bounds(25, 25), &size, 0), part(25));
}

#[test]
fn an_age_that_nobody_knows_is_asked_for_only_if_it_decides() {
    let unknown = |base| HeldSegment { newest_ms: None, ..held(base, 100, 0) };
    let segments = [unknown(0), unknown(10), held(20, 100, 50)];
    let wanted =
        |rules: RetentionRules, log_start| start(&segments, &bounds(log_start, 25), &rules, 100);
    assert_eq!(wanted(rules(None, None), 0), part(0));
    assert_eq!(wanted(rules(Some(200), None), 0), part(10));
    assert_eq!(wanted(rules(None, Some(60)), 0), Wanted::AgeOf(Offset(0)));
    assert_eq!(wanted(rules(Some(200), Some(60)), 0), Wanted::AgeOf(Offset(10)));
    assert_eq!(wanted(rules(None, Some(60)), 20), part(20));
}

/// A log as somebody would keep it who deletes one segment after the other.
#[derive(Clone, Debug)]
struct Model {
    segments: Vec<(i64, u64, i64)>,
    log_start: i64,
    high_watermark: i64,
    end: i64,
}

impl Model {
    fn end_of(&self, place: usize) -> i64 {
        self.segments.get(place + 1).map_or(self.end, |next| next.0)
    }

    fn may_go(&self) -> bool {
        let Some(first) = self.segments.first() else { return false };
        let is_empty_and_last = self.segments.len() == 1 && first.1 == 0;
        self.end_of(0) <= self.high_watermark && !is_empty_and_last
    }

    fn delete_first(&mut self) {
        let end = self.end_of(0);
        self.segments.remove(0);
        self.log_start = self.log_start.max(end);
    }

    /// Each rule walks over the log by itself, as Kafka has it; returns whether all went.
    fn retain(&mut self, rules: &RetentionRules, now_ms: i64) -> bool {
        while self.segments.len() > 1 && self.end_of(0) <= self.log_start {
            self.segments.remove(0);
        }
        if let Some(kept) = rules.bytes {
            let size = |model: &Model| model.segments.iter().map(|segment| segment.1).sum::<u64>();
            while self.may_go() && size(self) - self.segments[0].1 >= kept {
                self.delete_first();
            }
        }
        if let Some(age) = rules.ms {
            while self.may_go() && now_ms - self.segments[0].2 > age {
                self.delete_first();
            }
        }
        self.segments.is_empty()
    }
}

fn logs() -> impl Strategy<Value = Model> {
    let segment = (1..20_i64, 1..100_u64, 0..1_000_i64);
    let open = prop_oneof![
        3 => (1..20_i64, 1..100_u64, 0..1_000_i64),
        1 => Just((0, 0, 0)),
    ];
    let parts = (0..50_i64, 0..=100_i64, 0..=100_i64);
    (proptest::collection::vec(segment, 0..8), open, parts).prop_map(
        |(sealed, open, (first, start, durable))| {
            let mut at = first;
            let mut segments = Vec::new();
            for (offsets, bytes, newest) in sealed.into_iter().chain([open]) {
                segments.push((at, bytes, newest));
                at += offsets;
            }
            let high_watermark = first + (at - first) * durable / 100;
            let log_start = first + (high_watermark - first) * start / 100;
            Model { segments, log_start, high_watermark, end: at }
        },
    )
}

proptest! {
    #[test]
    fn the_start_is_that_of_deleting_one_after_the_other(
        log in logs(),
        bytes in proptest::option::of(0..500_u64),
        ms in proptest::option::of(0..1_000_i64),
        now_ms in 0..2_000_i64,
        known in proptest::collection::vec(any::<bool>(), 8),
    ) {
        let rules = rules(bytes, ms);
        let bounds = Bounds {
            log_start: Offset(log.log_start),
            high_watermark: Offset(log.high_watermark),
            end: Offset(log.end),
        };
        // Ages are looked up one by one, as they are asked for.
        let mut segments: Vec<HeldSegment> =
            log.segments.iter().map(|&(base, bytes, newest)| held(base, bytes, newest)).collect();
        let last = segments.len() - 1;
        for (segment, known) in segments[..last].iter_mut().zip(&known) {
            segment.newest_ms = segment.newest_ms.filter(|_| *known);
        }
        let mut asked = 0;
        let found = loop {
            match start(&segments, &bounds, &rules, now_ms) {
                Wanted::AgeOf(base) => {
                    let place = segments.iter().position(|segment| segment.base == base);
                    let place = place.expect("one of them");
                    prop_assert_eq!(segments[place].newest_ms, None);
                    segments[place].newest_ms = Some(log.segments[place].2);
                    asked += 1;
                    prop_assert!(asked <= last);
                }
                Wanted::Start { offset, all } => break (offset.0, all),
            }
        };
        let mut model = log.clone();
        let all = model.retain(&rules, now_ms);
        prop_assert_eq!(found, (model.log_start, all));
        // Once more, nothing moves.
        let again = bounds_after(&bounds, found.0);
        if !all {
            prop_assert_eq!(start(&segments, &again, &rules, now_ms), part(found.0));
        }
    }
}

fn bounds_after(bounds: &Bounds, log_start: i64) -> Bounds {
    Bounds { log_start: Offset(log_start), ..*bounds }
}
