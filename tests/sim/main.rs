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

#[macro_use]
mod seeds;

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

use scenario::Counts;
use seeds::{Tally, number, run_seeds};

#[test]
fn seeds_keep_every_promise() {
    run_seeds("seeds_keep_every_promise", SEEDS, |seed| life(seed, false));
}

#[test]
fn seeds_with_faults_keep_every_promise() {
    run_seeds("seeds_with_faults_keep_every_promise", SEEDS, |seed| life(seed, true));
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

/// Seeds of each kind, sound and with faults, when nothing else is asked for: 1,000 in CI.
const SEEDS: u64 = 500;
