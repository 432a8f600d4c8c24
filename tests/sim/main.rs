//! Simulation of the storage: the real shards, journal, recovery and catalog on a simulated
//! machine, with crashes that drop, tear and reorder what was not synced.
//!
//! One seed is one life of a data directory: boots with other numbers of shards, clients that
//! append, read, create, delete and create again, checkpoints, rolls, crashes at any step, also
//! during recovery, and clean stops. After every boot everything that clients were ever told is
//! checked. A failure names the seed and the command that repeats it.
//!
//! Other kinds of lives have transactions, groups, compacted topics, the coordinators' own topics
//! compacted under them, and imports.
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
mod import;
mod internal;
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
use seeds::{Outcome, Tally, Trouble, number, run_seeds};

/// The broker's allocator: lives are made of little that lives shortly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[test]
fn seeds_keep_every_promise() {
    seeds::check("seeds_keep_every_promise", SEEDS, Trouble::NONE, life);
}

#[test]
fn seeds_with_faults_keep_every_promise() {
    seeds::check("seeds_with_faults_keep_every_promise", SEEDS, Trouble::FAULTS, life);
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for (seed, trouble) in [(0, Trouble::NONE), (2, Trouble::FAULTS)] {
        let [first, second] = [(), ()].map(|()| scenario::run(seed, trouble).expect("a sound run"));
        assert_eq!(first.world.event_hash(), second.world.event_hash(), "seed {seed}");
        assert_eq!(first.counts(), second.counts(), "seed {seed}");
        assert!(first.disk.medium().tree() == second.disk.medium().tree(), "seed {seed}");
    }
}

fn life(seed: u64, trouble: Trouble) -> Result<Outcome<Counts>, String> {
    let machine = scenario::run(seed, trouble)?;
    Ok(Outcome { event_hash: machine.world.event_hash(), counts: machine.counts() })
}

/// Seeds of each kind, sound and with faults, when nothing else is asked for; CI lives 2,000 of all
/// kinds.
const SEEDS: u64 = 300;
