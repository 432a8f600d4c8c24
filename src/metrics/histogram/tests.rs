//! The buckets against a naive model that keeps every value.

use proptest::prelude::*;

use super::*;

#[test]
fn bounds_rise_by_at_most_a_quarter() {
    let bounds: Vec<u64> = (0..BUCKETS).map(bound_of).collect();
    assert_eq!(bounds[..12], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]);
    assert_eq!(BOUND_MAX, 1 << 28);
    for pair in bounds.windows(2) {
        let step = pair[1] - pair[0];
        assert!(step >= 1 && (step == 1 || step * 4 <= pair[0]), "{pair:?}");
    }
}

#[test]
fn a_bound_is_inside_its_bucket_and_the_next_value_is_not() {
    for bucket in 0..BUCKETS {
        assert_eq!(bucket_of(bound_of(bucket)), bucket);
        assert_eq!(bucket_of(bound_of(bucket) + 1), bucket + 1);
    }
    assert_eq!(bucket_of(0), 0);
    assert_eq!(bucket_of(u64::MAX), BUCKETS);
}

#[test]
fn durations_are_rounded_up_to_microseconds() {
    let histogram = Histogram::default();
    for nanoseconds in [0, 1, 1_000, 1_001] {
        histogram.record_ns(nanoseconds);
    }
    let taken = histogram.distribution();
    assert_eq!(taken.cumulative(1).take(2).collect::<Vec<_>>(), [(1, 3), (2, 4)]);
    assert_eq!(taken.sum(), 4);
}

fn values() -> impl Strategy<Value = Vec<u64>> {
    let value = prop_oneof![0..20_u64, 0..100_000_u64, 0..(1_u64 << 30)];
    prop::collection::vec(value, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_counts_as_a_list_of_all_values_would(
        left in values(),
        right in values(),
        step in prop::sample::select(vec![1_usize, 2, 4]),
    ) {
        let (first, second) = (Histogram::default(), Histogram::default());
        left.iter().for_each(|value| first.record(*value));
        right.iter().for_each(|value| second.record(*value));
        prop_assert_eq!(first.count(), left.len() as u64);
        let mut both = first.distribution();
        both.add(&second.distribution());
        let all: Vec<u64> = left.iter().chain(&right).copied().collect();
        prop_assert_eq!(both.count(), all.len() as u64);
        prop_assert_eq!(both.sum(), all.iter().sum::<u64>());
        let told: Vec<_> = both.cumulative(step).collect();
        prop_assert_eq!(told.len(), BUCKETS / step);
        prop_assert_eq!(told.last().map(|last| last.0), Some(BOUND_MAX));
        for (bound, count) in told {
            let naive = all.iter().filter(|value| **value <= bound).count() as u64;
            prop_assert_eq!(count, naive, "up to {}", bound);
        }
    }
}
