//! Transactions on a whole simulated broker: coordinators, producer state, group offsets and the
//! messages between shards, used over simulated connections, judged by an oracle that knows every
//! transaction's fate.
//!
//! One seed is one life: boots with other numbers of shards, which are one node or several;
//! producers of both protocol levels that die, come back and go on as zombies, requests lost,
//! doubled and late, messages between shards delayed, queues between shards of a few messages,
//! transactions that time out, a topic that is deleted under open transactions, power loss at any
//! step, failing and full disks. At the end there is quiet for as long as a transaction may stay
//! open, and everything is read once more.

mod clients;
mod oracle;
mod readers;
mod scenario;
mod topics;

use oracle::Counts;

use crate::run_seeds;

#[test]
fn transactions_are_whole_or_nothing() {
    let total = run_seeds("transactions_are_whole_or_nothing", SEEDS, |seed| life(seed, false));
    assert_covered(&total);
}

#[test]
fn transactions_are_whole_or_nothing_over_faults() {
    let total =
        run_seeds("transactions_are_whole_or_nothing_over_faults", SEEDS, |seed| life(seed, true));
    assert_covered(&total);
}

#[test]
fn a_seed_of_transactions_gives_the_same_run_twice() {
    for seed in [1, 4] {
        let first = scenario::run(seed, seed == 4).expect("a sound run");
        let second = scenario::run(seed, seed == 4).expect("a sound run");
        assert_eq!(first, second, "seed {seed}");
    }
}

fn life(seed: u64, with_faults: bool) -> Result<Counts, String> {
    scenario::run(seed, with_faults).map(|outcome| outcome.counts)
}

/// Many seeds together have done everything.
fn assert_covered(total: &Counts) {
    if total.boots < 300 {
        return;
    }
    let counts = [
        total.crashes,
        total.clean_stops,
        total.committed,
        total.aborted,
        total.in_doubt,
        total.offsets,
        total.lost_answers,
        total.copies,
        total.refusals,
        total.zombies,
        total.unstable_offsets,
        total.spare_batches,
        total.deletions,
    ];
    assert!(counts.iter().all(|&count| count > 0), "{total:?}");
}

impl crate::Tally for Counts {
    fn add(&mut self, other: &Counts) {
        Counts::add(self, other);
    }
}

/// The group in which a transactional id commits its offsets.
fn group_of(id: usize) -> String {
    format!("group-{}", id % 2)
}

/// The topic that everything is written to, and stays.
const TOPIC: &str = "data";

/// A topic that is deleted and created again under whatever is open in it.
const SPARE: &str = "spare";

/// Partitions of the topic that stays.
const PARTITIONS: i32 = 4;

/// Seeds of each kind when nothing else is asked for.
const SEEDS: u64 = 500;
