//! The process's two clocks: monotonic time and wall time.
//!
//! The only place that reads them. Monotonic times of different shards compare, because they count
//! from one instant of the process.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Monotonic;

/// Monotonic time now, on the scale shared by all threads of the process.
#[must_use]
pub fn now() -> Monotonic {
    let elapsed = START.get_or_init(Instant::now).elapsed();
    // One, not zero: "never" is often written as the default value.
    Monotonic(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_add(1))
}

/// Wall clock in milliseconds since 1970; 0 if the clock is set before that.
#[must_use]
pub fn wall_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

static START: OnceLock<Instant> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_all_threads_is_on_one_scale() {
        let before = now();
        let other = std::thread::spawn(now).join().expect("thread");
        assert!(before <= other && other <= now());
        assert!(before.0 > 0);
        assert!(wall_ms() > 1_700_000_000_000);
    }
}
