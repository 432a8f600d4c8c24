//! What a shard knows about its own work, in numbers.
//!
//! Owns the counters of one shard ([`ShardMetrics`]). They are plain cells of one thread, counted
//! in place: no atomics, no lock, no lookup by text, and nothing is allocated where a request
//! passes. Must never decide anything.

pub mod limit;

use std::cell::Cell;
use std::rc::Rc;

pub use limit::Limit;

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// The counters of one shard.
pub struct ShardMetrics {
    limits: [Counter; limit::COUNT],
    /// Connections closed for malformed input.
    pub malformed: Counter,
    /// Bytes of batches written to segments.
    pub segment_bytes_written: Counter,
    /// Checkpoints finished.
    pub checkpoints: Counter,
    /// Fetches parked.
    pub parked_fetches: Counter,
}

impl ShardMetrics {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Rc<ShardMetrics> {
        Rc::new(ShardMetrics {
            limits: std::array::from_fn(|_| Counter::default()),
            malformed: Counter::default(),
            segment_bytes_written: Counter::default(),
            checkpoints: Counter::default(),
            parked_fetches: Counter::default(),
        })
    }

    /// A bound was reached.
    pub fn limit_reached(&self, limit: Limit) {
        self.limits[limit as usize].add(1);
    }

    /// How often a bound was reached.
    #[must_use]
    pub fn limit_count(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].get()
    }
}
