//! The text, byte for byte.

use super::*;
use crate::metrics::histogram::Histogram;

static REQUESTS: Family =
    Family { name: "requests_total", kind: Kind::Counter, help: "Requests, by API." };
static USED: Family = Family { name: "used_bytes", kind: Kind::Gauge, help: "Bytes in use." };
static TOOK: Family = Family { name: "took_seconds", kind: Kind::Seconds(36), help: "Times." };
static SPENT: Family =
    Family { name: "spent_seconds_total", kind: Kind::CounterSeconds, help: "Time." };
static BEGAN: Family = Family { name: "began_seconds", kind: Kind::GaugeSeconds, help: "When." };
static SIZES: Family = Family { name: "sizes", kind: Kind::Counts, help: "Sizes." };

fn text(samples: &Samples) -> String {
    samples.pieces().collect()
}

#[test]
fn samples_of_shards_are_added_up_and_labels_escaped() {
    let mut first = Samples::default();
    first.count(&REQUESTS, &[("request", "Fetch"), ("version", "4")], 3);
    first.number(&USED, &[], -5);
    let mut second = Samples::default();
    second.count(&REQUESTS, &[("request", "Fetch"), ("version", "4")], 4);
    second.count(&REQUESTS, &[("request", "a\"b\\c\nd")], 1);
    first.merge(second);
    let expected = "# HELP requests_total Requests, by API.\n\
                    # TYPE requests_total counter\n\
                    requests_total{request=\"Fetch\",version=\"4\"} 7\n\
                    requests_total{request=\"a\\\"b\\\\c\\nd\"} 1\n\
                    # HELP used_bytes Bytes in use.\n\
                    # TYPE used_bytes gauge\n\
                    used_bytes -5\n";
    assert_eq!(text(&first), expected);
}

#[test]
fn times_that_are_one_number_are_told_in_seconds() {
    let mut samples = Samples::default();
    samples.count(&SPENT, &[], 1_250_000);
    samples.count(&SPENT, &[], 10_000);
    samples.count(&BEGAN, &[], 1_700_000_000_120_000);
    let expected = "# HELP began_seconds When.\n# TYPE began_seconds gauge\n\
                    began_seconds 1700000000.12\n\
                    # HELP spent_seconds_total Time.\n# TYPE spent_seconds_total counter\n\
                    spent_seconds_total 1.26\n";
    assert_eq!(text(&samples), expected);
}

#[test]
fn durations_are_told_in_seconds() {
    let histogram = Histogram::default();
    [3, 1_200_000, 1 << 29].iter().for_each(|value| histogram.record(*value));
    let mut samples = Samples::default();
    samples.distribution(&TOOK, &[("shard", "0")], histogram.distribution());
    let expected = "# HELP took_seconds Times.\n\
                    # TYPE took_seconds histogram\n\
                    took_seconds_bucket{shard=\"0\",le=\"0.001024\"} 1\n\
                    took_seconds_bucket{shard=\"0\",le=\"0.524288\"} 1\n\
                    took_seconds_bucket{shard=\"0\",le=\"268.435456\"} 2\n\
                    took_seconds_bucket{shard=\"0\",le=\"+Inf\"} 3\n\
                    took_seconds_sum{shard=\"0\"} 538.070915\n\
                    took_seconds_count{shard=\"0\"} 3\n";
    assert_eq!(text(&samples), expected);
}

#[test]
fn counts_are_told_by_powers_of_two() {
    let histogram = Histogram::default();
    [1, 4, 5, 9].iter().for_each(|value| histogram.record(*value));
    let mut samples = Samples::default();
    samples.distribution(&SIZES, &[], histogram.distribution());
    let text = text(&samples);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[2..5],
        ["sizes_bucket{le=\"4\"} 2", "sizes_bucket{le=\"8\"} 3", "sizes_bucket{le=\"16\"} 4"]
    );
    assert_eq!(lines[lines.len() - 2..], ["sizes_sum 19", "sizes_count 4"]);
}

#[test]
fn a_long_family_comes_in_pieces_with_one_head() {
    let mut samples = Samples::default();
    for number in 0..1_000 {
        samples.count(&REQUESTS, &[("request", &format!("{number:04}"))], 1);
    }
    let pieces: Vec<String> = samples.pieces().collect();
    assert_eq!(pieces.len(), 4);
    assert!(pieces.iter().all(|piece| piece.ends_with('\n')));
    let text = pieces.concat();
    assert_eq!(text.matches("# TYPE").count(), 1);
    assert_eq!(text.lines().count(), 1_002);
}

#[test]
fn microseconds_are_told_exactly() {
    for (value, expected) in [(0, "0"), (1, "0.000001"), (10, "0.00001"), (2_500_000, "2.5")] {
        assert_eq!(seconds(value), expected);
    }
    assert_eq!(seconds(10_000_000), "10");
}
