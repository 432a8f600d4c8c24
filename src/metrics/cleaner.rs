//! What the cleaner of a shard counts.

use std::cell::Cell;

use super::{Counter, Samples, families};

/// Its counters.
#[derive(Default)]
pub struct CleanerMetrics {
    /// Passes finished.
    pub passes: Counter,
    /// Bytes of batches read, by both halves of a pass.
    pub read_bytes: Counter,
    /// Bytes of batches written to cleaned segments.
    pub written_bytes: Counter,
    /// The largest share of dirty bytes at the last look.
    pub dirty_ratio_max: Cell<f64>,
    /// Wall clock at the last look, 0 if there was none.
    pub last_look_ms: Cell<i64>,
}

impl CleanerMetrics {
    /// Tells all of them, and how many partitions cannot be cleaned.
    pub fn tell(&self, samples: &mut Samples, shard: &str, uncleanable: usize, now_ms: i64) {
        let label = [("shard", shard)];
        samples.count(&families::CLEANER_PASSES, &label, self.passes.get());
        samples.count(&families::CLEANER_READ, &label, self.read_bytes.get());
        samples.count(&families::CLEANER_WRITTEN, &label, self.written_bytes.get());
        samples.count(&families::UNCLEANABLE, &label, uncleanable as u64);
        let percent = (self.dirty_ratio_max.get() * 100.0) as u64;
        samples.count(&families::MAX_DIRTY, &label, percent);
        let since_ms = match self.last_look_ms.get() {
            0 => 0,
            look_ms => now_ms.saturating_sub(look_ms),
        };
        samples.number(&families::SINCE_CLEANER_RUN, &label, since_ms);
    }
}
