//! Distributions of durations and counts, in fixed memory.
//!
//! Owns log-linear buckets: four to each power of two, so that a value is told to within a quarter
//! of itself, from 1 to [`BOUND_MAX`]; what is larger is counted apart. Recording is two additions,
//! and reads no clock. Durations are in microseconds.
//!
//! Invariant: a bucket holds the values above the bound before it, up to its own bound inclusive,
//! which is what `le` means in Prometheus.

use std::cell::Cell;

/// Buckets with a bound.
const BUCKETS: usize = 108;

/// Bound of the last one: 268 seconds in microseconds.
pub const BOUND_MAX: u64 = bound_of(BUCKETS - 1);

/// A distribution of one shard.
#[derive(Debug)]
pub struct Histogram {
    counts: [Cell<u64>; BUCKETS + 1],
    sum: Cell<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: std::array::from_fn(|_| Cell::new(0)), sum: Cell::new(0) }
    }
}

impl Histogram {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        let count = &self.counts[bucket_of(value)];
        count.set(count.get() + 1);
        self.sum.set(self.sum.get().wrapping_add(value));
    }

    /// Counts a duration in nanoseconds.
    pub fn record_ns(&self, nanoseconds: u64) {
        self.record(nanoseconds.div_ceil(1_000));
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(Cell::get).sum()
    }

    /// What it holds now.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        Distribution { counts: self.counts.iter().map(Cell::get).collect(), sum: self.sum.get() }
    }
}

/// A distribution taken from a shard: it may cross to another and be added to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    counts: Vec<u64>,
    sum: u64,
}

impl Distribution {
    /// Adds another one.
    pub fn add(&mut self, other: &Distribution) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Bounds, each with the number of values up to it: every `step`-th bucket, the last one
    /// always.
    pub fn cumulative(&self, step: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut below = 0;
        self.counts[..BUCKETS].iter().enumerate().filter_map(move |(bucket, count)| {
            below += count;
            let is_told = (bucket + 1).is_multiple_of(step);
            is_told.then_some((bound_of(bucket), below))
        })
    }
}

/// The bucket of a value: the first whose bound is not below it.
fn bucket_of(value: u64) -> usize {
    let Some(above) = value.checked_sub(1) else { return 0 };
    if above < 4 {
        return above as usize;
    }
    if value > BOUND_MAX {
        return BUCKETS;
    }
    let octave = above.ilog2() as usize;
    let quarter = (above >> (octave - 2)) as usize & 3;
    4 * (octave - 1) + quarter
}

/// The bound of a bucket.
const fn bound_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64 + 1;
    }
    (4 + bucket as u64 % 4 + 1) << (bucket / 4 - 1)
}

#[cfg(test)]
mod tests;
