//! Histories: clients write down what they sent, what was acknowledged and what they saw, while a
//! nemesis kills, pauses, delays and cuts; then a checker looks for what must not be.
//!
//! `cargo test` runs the checker's own tests and [`SHORT`] of the load; `tests/history/run` runs it
//! for longer. README.md says what is checked. `RINGLOG_HISTORY_SECONDS` is how long,
//! `RINGLOG_HISTORY_OPERATIONS` how many operations it must come to, `RINGLOG_HISTORY_BROKER` another
//! broker than the one built with the test, `RINGLOG_HISTORY_SEED` repeats choices, not the timing.

#[path = "../support/mod.rs"]
mod support;

#[path = "../crash/cluster.rs"]
#[allow(dead_code, reason = "the crash tests use all of it")]
mod cluster;
#[path = "../crash/random.rs"]
#[allow(dead_code, reason = "the crash tests use all of it")]
mod random;

mod checker;
mod consumer;
mod history;
mod link;
mod member;
mod nemesis;
mod payload;
mod plain;
mod processor;
mod proxy;
mod reader;
mod run;
mod stage;
mod transactor;

use std::env;
use std::time::Duration;

use stage::Stage;

#[test]
fn a_history_under_a_nemesis_has_no_anomaly() {
    let number = |name: &str, or: u64| {
        env::var(name).map_or(or, |text| text.parse::<u64>().expect("a number"))
    };
    let seed = number("RINGLOG_HISTORY_SEED", u64::from(std::process::id()));
    let time = Duration::from_secs(number("RINGLOG_HISTORY_SECONDS", SHORT.as_secs()));
    let floor = number("RINGLOG_HISTORY_OPERATIONS", SHORT_OPERATIONS);
    println!("RINGLOG_HISTORY_SEED={seed}");
    let mut stage = Stage::new(seed);
    let report = stage.play(time);
    println!("{report}");
    report.assert_sound(floor);
}

const SHORT: Duration = Duration::from_secs(30);
/// What the slowest machine comes to in that time.
const SHORT_OPERATIONS: u64 = 3_000;
