//! Simulation of the storage: the real shards, journal, recovery and catalog on a simulated
//! machine, with crashes that drop, tear and reorder what was not synced.
//!
//! One seed is one life of a data directory: boots with other numbers of shards, clients that
//! append, read, create, delete and create again, checkpoints, rolls, crashes at any step, also
//! during recovery, and clean stops. After every boot everything that clients were ever told is
//! checked. A failure names the seed and the command that repeats it.
//!
//! Environment: `RINGLOG_SIM_SEED` runs one seed, `RINGLOG_SIM_SEEDS` so many of them from
//! `RINGLOG_SIM_FIRST` on, `RINGLOG_SIM_THREADS` at a time;
//! `RINGLOG_SIM_TRACE` tells what a seed does.

mod batches;
mod caller;
mod clients;
mod compaction;
mod compaction_transactions;
mod faults;
mod groups;
mod life;
mod machine;
mod oracle;
mod recording;
mod scenario;
mod starts;
#[path = "../support/mod.rs"]
mod support;
mod trace;
mod transactions;
mod txn;
mod wire;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use scenario::Counts;

#[test]
fn seeds_keep_every_promise() {
    run_seeds("seeds_keep_every_promise", SEEDS, |seed| life(seed, false));
}

#[test]
fn seeds_with_faults_keep_every_promise() {
    run_seeds("seeds_with_faults_keep_every_promise", SEEDS, |seed| life(seed, true));
}

/// What a life counts.
trait Tally: Default + fmt::Debug + Send {
    /// Adds what another life has counted.
    fn add(&mut self, other: &Self);
}

impl Tally for Counts {
    fn add(&mut self, other: &Counts) {
        Counts::add(self, other);
    }
}

/// Lives so many seeds, or those that the environment names; panics if any fails.
fn run_seeds<C: Tally>(
    test: &str,
    seeds: u64,
    life: impl Fn(u64) -> Result<C, String> + Sync + RefUnwindSafe,
) -> C {
    let (first, count) = match number("RINGLOG_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => {
            let first = number("RINGLOG_SIM_FIRST").unwrap_or(0);
            (first, number("RINGLOG_SIM_SEEDS").unwrap_or(seeds))
        }
    };
    if std::env::var_os("RINGLOG_SIM_TRACE").is_some() {
        let _ =
            tracing_subscriber::fmt().with_env_filter("ringlog=debug").without_time().try_init();
    }
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    let total = Mutex::new(C::default());
    std::thread::scope(|scope| {
        for _ in 0..number("RINGLOG_SIM_THREADS").unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = failures.lock().expect("no panic while locked").len();
                    if seed >= first + count || failed >= FAILURES_MAX {
                        return;
                    }
                    match unless_it_panics(|| life(seed)) {
                        Ok(counts) => {
                            total.lock().expect("no panic while locked").add(&counts);
                        }
                        Err(what) => {
                            let mut failures = failures.lock().expect("no panic while locked");
                            failures.push((seed, what));
                        }
                    }
                }
            });
        }
    });
    let total = total.into_inner().expect("no panic while locked");
    println!("{count} seeds from {first} in {:.1?}: {total:?}", begun.elapsed());
    let mut failures = failures.into_inner().expect("no panic while locked");
    failures.sort();
    for (seed, what) in &failures {
        println!("seed {seed}: {what}");
        println!("  RINGLOG_SIM_SEED={seed} cargo test --test sim {test}");
    }
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
    total
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for seed in [0, 2] {
        let first = scenario::run(seed, seed == 2).expect("a sound run");
        let second = scenario::run(seed, seed == 2).expect("a sound run");
        assert_eq!(first.event_hash, second.event_hash, "seed {seed}");
        assert!(first.counts == second.counts && first.tree == second.tree, "seed {seed}");
    }
}

fn life(seed: u64, with_faults: bool) -> Result<Counts, String> {
    scenario::run(seed, with_faults).map(|outcome| outcome.counts)
}

/// One life; a panic of the code under test is a failure like any other.
fn unless_it_panics<C>(life: impl FnOnce() -> Result<C, String> + UnwindSafe) -> Result<C, String> {
    match catch_unwind(life) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("a panic: {}", text.unwrap_or_default()))
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Seeds of each kind, sound and with faults, when nothing else is asked for: 1,000 in CI.
const SEEDS: u64 = 500;

/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 10;
