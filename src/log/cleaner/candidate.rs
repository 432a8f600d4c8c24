//! Which partition is cleaned next, from where to where, and into how many segments.
//!
//! Owns the decisions before a pass. Only complete segments are cleaned, whole ones, below the last
//! stable offset, old enough, and below what the last durable image names: recovery cuts there, and
//! a cleaned segment must never be cut. Source: Kafka's `LogCleanerManager.cleanableOffsets`,
//! `LogToClean`, `Cleaner.groupSegmentsBySize`.

use crate::ids::Offset;
use crate::log::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};

/// What a decision needs to know of a complete segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentFacts {
    /// Its base offset.
    pub base: Offset,
    /// Length of its `.log`.
    pub bytes: u64,
    /// Timestamp of its first batch, where a largest lag is set and the segment has one.
    pub first_timestamp_ms: Option<i64>,
    /// Its largest timestamp, where a smallest lag is set and the segment has one.
    pub largest_timestamp_ms: Option<i64>,
}

/// What a decision needs to know of a log.
#[derive(Clone, PartialEq, Debug)]
pub struct LogFacts {
    /// First offset that is kept.
    pub log_start: Offset,
    /// Offset the next record gets.
    pub log_end: Offset,
    /// First offset that is not decided.
    pub last_stable: Offset,
    /// End of what a pass has cleaned before, if one has.
    pub cleaned_end: Option<Offset>,
    /// Base of the segment that is active, or was the last one written; the log's end if there is
    /// none.
    pub active_base: Offset,
    /// The segments below that, rising.
    pub segments: Vec<SegmentFacts>,
}

/// The topic's settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CleanRules {
    /// `min.cleanable.dirty.ratio`
    pub dirty_ratio_min: f64,
    /// `min.compaction.lag.ms`
    pub lag_min_ms: i64,
    /// `max.compaction.lag.ms`; `i64::MAX` is never.
    pub lag_max_ms: i64,
}

/// What a pass over a log would do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// First offset that no pass has been over.
    pub first_dirty: Offset,
    /// Base of the first segment that cannot be touched.
    pub end: Offset,
    /// Bytes of segments that begin before the first dirty offset.
    pub clean_bytes: u64,
    /// Bytes of the dirty segments below the end.
    pub dirty_bytes: u64,
    /// How long `max.compaction.lag.ms` has been exceeded; 0 if it has not.
    pub overdue_ms: i64,
}

impl Candidate {
    /// Looks at a log.
    #[must_use]
    pub fn of(log: &LogFacts, rules: &CleanRules, now_ms: i64) -> Candidate {
        let known = log.cleaned_end.filter(|end| (log.log_start..=log.log_end).contains(end));
        let first_dirty = known.unwrap_or(log.log_start);
        let dirty_from = match first_dirty < log.active_base {
            true => segment_at(log, first_dirty),
            false => log.segments.len(),
        };
        let mut bound = log.last_stable.min(log.active_base);
        if rules.lag_min_ms > 0 {
            let young = log.segments[dirty_from..].iter().find(|segment| {
                let newest_ms = segment.largest_timestamp_ms;
                newest_ms.is_some_and(|ms| ms > now_ms.saturating_sub(rules.lag_min_ms))
            });
            bound = bound.min(young.map_or(bound, |segment| segment.base));
        }
        // Whole segments only: the one that holds the bound is left alone.
        let holding = log.segments.get(segment_at(log, bound));
        let end = match holding.filter(|segment| segment.base <= bound) {
            Some(segment) if bound < log.active_base => segment.base,
            _ => bound.min(log.active_base),
        };
        let bytes = |segments: &[SegmentFacts]| segments.iter().map(|segment| segment.bytes).sum();
        let dirty_to = log.segments.partition_point(|segment| segment.base < end);
        let clean_to = log.segments.partition_point(|segment| segment.base < first_dirty);
        Candidate {
            first_dirty,
            end: end.max(first_dirty),
            clean_bytes: bytes(&log.segments[..clean_to]),
            dirty_bytes: bytes(&log.segments[dirty_from.min(dirty_to)..dirty_to]),
            overdue_ms: overdue_ms(&log.segments[dirty_from..], rules, now_ms),
        }
    }

    /// Share of the bytes that no pass has been over.
    #[must_use]
    pub fn dirty_ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        if all == 0 { 0.0 } else { self.dirty_bytes as f64 / all as f64 }
    }

    /// Whether a pass is wanted.
    #[must_use]
    pub fn is_wanted(&self, rules: &CleanRules) -> bool {
        let overdue = self.overdue_ms > 0 && self.dirty_bytes > 0;
        overdue || self.dirty_ratio() > rules.dirty_ratio_min
    }
}

/// Place of the segment that holds `offset`, or of the first one above it.
fn segment_at(log: &LogFacts, offset: Offset) -> usize {
    log.segments.partition_point(|segment| segment.base <= offset).saturating_sub(1)
}

fn overdue_ms(dirty: &[SegmentFacts], rules: &CleanRules, now_ms: i64) -> i64 {
    let oldest_ms = dirty.iter().filter_map(|segment| segment.first_timestamp_ms);
    let oldest_ms = oldest_ms.filter(|ms| *ms > 0).min();
    let clean_until_ms = now_ms.saturating_sub(rules.lag_max_ms.max(0));
    oldest_ms.map_or(0, |oldest_ms| clean_until_ms.saturating_sub(oldest_ms).max(0))
}

/// How large a cleaned segment may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// Largest length of a segment.
    pub segment_bytes: u64,
    /// Largest length of an index file.
    pub index_bytes: u64,
    /// Bytes between two index entries.
    pub index_interval_bytes: u64,
}

/// Puts segments together that become one cleaned segment each: neighbours, as many as fit even if
/// nothing of them goes. `end` is where the segment after the last of them begins.
#[must_use]
pub fn group(segments: &[SegmentFacts], end: Offset, limits: &GroupLimits) -> Vec<Vec<Offset>> {
    let mut groups: Vec<Vec<Offset>> = Vec::new();
    let (mut bytes, mut entries) = (0, 0);
    for (place, segment) in segments.iter().enumerate() {
        let next = segments.get(place + 1).map_or(end, |next| next.base);
        let own_entries = segment.bytes / limits.index_interval_bytes.max(1) + 1;
        let joins = groups.last().is_some_and(|group: &Vec<Offset>| {
            let span = next.0 - 1 - group[0].0;
            bytes + segment.bytes <= limits.segment_bytes
                && (entries + own_entries) * ENTRY_BYTES_MAX <= limits.index_bytes
                && (segment.bytes == 0 || span <= i64::from(i32::MAX))
        });
        match groups.last_mut().filter(|_| joins) {
            Some(group) => {
                group.push(segment.base);
                bytes += segment.bytes;
                entries += own_entries;
            }
            None => {
                groups.push(vec![segment.base]);
                (bytes, entries) = (segment.bytes, own_entries);
            }
        }
    }
    groups
}

const ENTRY_BYTES_MAX: u64 = {
    assert!(TIME_ENTRY_BYTES >= OFFSET_ENTRY_BYTES);
    TIME_ENTRY_BYTES as u64
};

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: CleanRules =
        CleanRules { dirty_ratio_min: 0.5, lag_min_ms: 0, lag_max_ms: i64::MAX };

    /// Segments of 100 bytes and 10 offsets each, with timestamps that equal their offsets; the
    /// active one begins after the last of them.
    fn log(segments: i64, cleaned_end: Option<i64>, last_stable: i64) -> LogFacts {
        let facts = |number: i64| SegmentFacts {
            base: Offset(number * 10),
            bytes: 100,
            first_timestamp_ms: Some(number * 10),
            largest_timestamp_ms: Some(number * 10 + 9),
        };
        LogFacts {
            log_start: Offset(0),
            log_end: Offset(segments * 10 + 5),
            last_stable: Offset(last_stable),
            cleaned_end: cleaned_end.map(Offset),
            active_base: Offset(segments * 10),
            segments: (0..segments).map(facts).collect(),
        }
    }

    fn of(log: &LogFacts, rules: &CleanRules, now_ms: i64) -> (i64, i64, u64, u64) {
        let found = Candidate::of(log, rules, now_ms);
        (found.first_dirty.0, found.end.0, found.clean_bytes, found.dirty_bytes)
    }

    #[test]
    fn whole_segments_below_the_last_stable_offset_are_dirty() {
        assert_eq!(of(&log(3, None, 35), &RULES, 0), (0, 30, 0, 300));
        assert_eq!(of(&log(3, None, 30), &RULES, 0), (0, 30, 0, 300));
        assert_eq!(of(&log(3, None, 29), &RULES, 0), (0, 20, 0, 200), "20 to 29 is undecided");
        assert_eq!(of(&log(3, None, 5), &RULES, 0), (0, 0, 0, 0));
        assert_eq!(of(&log(3, Some(20), 35), &RULES, 0), (20, 30, 200, 100));
        assert_eq!(of(&log(3, Some(25), 35), &RULES, 0), (25, 30, 300, 100), "as Kafka counts it");
        assert_eq!(of(&log(3, Some(30), 35), &RULES, 0), (30, 30, 300, 0));
        assert_eq!(of(&log(3, Some(99), 35), &RULES, 0), (0, 30, 0, 300), "beyond the log's end");
        assert_eq!(of(&log(0, None, 5), &RULES, 0), (0, 0, 0, 0));
        let moved = LogFacts { log_start: Offset(12), ..log(3, Some(5), 35) };
        assert_eq!(of(&moved, &RULES, 0), (12, 30, 200, 200), "it begins at the log's start");
    }

    #[test]
    fn young_segments_are_left_alone_and_old_ones_are_overdue() {
        let rules = CleanRules { lag_min_ms: 50, ..RULES };
        assert_eq!(of(&log(3, None, 35), &rules, 60), (0, 10, 0, 100), "newest at 19 is too young");
        assert_eq!(of(&log(3, None, 35), &rules, 79), (0, 30, 0, 300));
        let rules = CleanRules { lag_max_ms: 50, dirty_ratio_min: 1.0, ..RULES };
        let overdue = |cleaned, now_ms| {
            let found = Candidate::of(&log(3, Some(cleaned), 35), &rules, now_ms);
            (found.overdue_ms, found.is_wanted(&rules))
        };
        assert_eq!(overdue(10, 60), (0, false));
        assert_eq!(overdue(10, 61), (1, true));
        assert_eq!(overdue(30, 1_000), (0, false), "nothing is dirty");
        let stuck = Candidate::of(&log(3, Some(10), 15), &rules, 1_000);
        assert_eq!((stuck.overdue_ms > 0, stuck.is_wanted(&rules)), (true, false));
    }

    #[test]
    fn the_ratio_must_be_exceeded() {
        let wanted =
            |cleaned| Candidate::of(&log(4, Some(cleaned), 45), &RULES, 0).is_wanted(&RULES);
        assert!(wanted(10) && !wanted(20) && !wanted(40));
        let nothing =
            Candidate::of(&log(0, None, 0), &CleanRules { dirty_ratio_min: 0.0, ..RULES }, 0);
        assert!(!nothing.is_wanted(&CleanRules { dirty_ratio_min: 0.0, ..RULES }));
    }

    #[test]
    fn groups_fit_into_a_segment_an_index_and_its_offsets() {
        let facts = |base, bytes| SegmentFacts {
            base: Offset(base),
            bytes,
            first_timestamp_ms: None,
            largest_timestamp_ms: None,
        };
        let limits =
            GroupLimits { segment_bytes: 100, index_bytes: 1_000, index_interval_bytes: 10 };
        let grouped = |sizes: &[(i64, u64)], end, limits: &GroupLimits| -> Vec<Vec<i64>> {
            let segments: Vec<_> = sizes.iter().map(|&(base, bytes)| facts(base, bytes)).collect();
            let groups = group(&segments, Offset(end), limits);
            groups.iter().map(|bases| bases.iter().map(|base| base.0).collect()).collect()
        };
        let sizes = [(0, 40), (10, 60), (20, 1), (30, 120), (40, 0), (50, 5)];
        let expected = vec![vec![0, 10], vec![20], vec![30], vec![40, 50]];
        assert_eq!(grouped(&sizes, 60, &limits), expected);
        let tight = GroupLimits { index_bytes: 100, ..limits };
        assert_eq!(grouped(&[(0, 30), (10, 30), (20, 30)], 30, &tight), [vec![0, 10], vec![20]]);
        let span = i64::from(i32::MAX);
        assert_eq!(grouped(&[(0, 1), (10, 1)], span + 1, &limits), [vec![0, 10]]);
        assert_eq!(grouped(&[(0, 1), (10, 1)], span + 2, &limits), [vec![0], vec![10]]);
        assert_eq!(grouped(&[(0, 1), (10, 0)], span + 2, &limits), [vec![0, 10]], "empty ones may");
        assert!(grouped(&[], 0, &limits).is_empty());
    }
}
