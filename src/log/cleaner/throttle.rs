//! How long the cleaner pauses so as to read and write no more bytes per second than it may.
//!
//! Owns no clock: it is told the time. Source: Kafka's `Throttler`.

/// The pace of one cleaner.
#[derive(Default)]
pub struct Throttle {
    /// When everything noted so far would have been moved at the pace asked for.
    paid_until_ns: u64,
}

impl Throttle {
    /// Notes that `bytes` were moved; returns until when to pause, in the clock of `now_ns`. What
    /// was not used is not saved up.
    pub fn moved(&mut self, bytes: u64, bytes_per_second: f64, now_ns: u64) -> u64 {
        let cost_ns = bytes as f64 / bytes_per_second.max(1.0) * 1e9;
        self.paid_until_ns = self.paid_until_ns.max(now_ns).saturating_add(cost_ns as u64);
        self.paid_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cost_time_and_idle_time_buys_nothing() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.moved(500, 1_000.0, 0), 500_000_000);
        assert_eq!(throttle.moved(500, 1_000.0, 100), 1_000_000_000);
        assert_eq!(throttle.moved(1, 1_000.0, 9_000_000_000), 9_001_000_000);
        assert_eq!(throttle.moved(1 << 40, f64::MAX, 10_000_000_000), 10_000_000_000);
    }
}
