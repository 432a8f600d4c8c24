//! Transactions on a whole simulated broker: coordinators, producer state, group offsets and the
//! messages between shards, used over simulated connections, judged by an oracle that knows every
//! transaction's fate.
//!
//! One seed is one life: boots with other numbers of shards, which are one node or several;
//! producers of both protocol levels that die, come back and go on as zombies, requests lost,
//! doubled and late, messages between shards delayed, queues between shards of a few messages,
//! transactions that time out, a topic whose records go under open transactions and that goes
//! itself, power loss at any step, failing and full disks. At the end there is quiet for as long as
//! a transaction may stay open, and everything is read once more.

mod clients;
mod oracle;
mod readers;
mod scenario;
mod topics;

use crate::seeds::{self, Trouble};

#[test]
fn transactions_are_whole_or_nothing() {
    seeds::check("transactions_are_whole_or_nothing", SEEDS, Trouble::NONE, scenario::run);
}

#[test]
fn transactions_are_whole_or_nothing_over_faults() {
    let test = "transactions_are_whole_or_nothing_over_faults";
    seeds::check(test, SEEDS, Trouble::FAULTS, scenario::run);
}

#[test]
fn transactions_are_whole_or_nothing_while_their_log_is_compacted() {
    let test = "transactions_are_whole_or_nothing_while_their_log_is_compacted";
    seeds::check(test, SEEDS_COMPACTED, Trouble::COMPACTION, scenario::run);
}

/// A sync of the file system fails between the cleaner's writes and its own sync of that file,
/// which succeeds: what took a segment's place was empty after the crash.
#[test]
fn a_failed_sync_of_everything_takes_no_compacted_segment_with_it() {
    for seed in [580_805, 650_629] {
        scenario::run(seed, Trouble::COMPACTION).expect("nothing is lost");
    }
}

#[test]
fn a_seed_of_transactions_gives_the_same_run_twice() {
    seeds::check_determinism(scenario::run);
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
const SEEDS: u64 = 300;

/// Seeds whose internal topics are compacted all the time.
const SEEDS_COMPACTED: u64 = 120;
