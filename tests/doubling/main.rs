//! How costs grow: each row of the table of growth runs at n, 2n and 4n, and what must stay flat
//! stays below 1.2 times as much.
//!
//! A row is a whole broker on the simulated machine, asked over its own connection code, in a child
//! that counts its allocations in the measured part only: no clock, no noise. Journal blocks are
//! compared for transactions, asked-for bytes for the size of records. With
//! `RINGLOG_DOUBLING_INSTRUCTIONS=1` the child runs below callgrind, which takes many minutes, and
//! instructions are compared as well: a scan that allocates nothing shows too.

#[path = "../../benches/counting/mod.rs"]
mod counting;
#[path = "../sim/machine.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod machine;
mod rows;
#[path = "../support/mod.rs"]
mod support;
#[path = "../sim/wire.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod wire;
mod world;

use std::process::{Command, Stdio};

/// Costs of one row at one size.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// `None` without valgrind.
    instructions: Option<f64>,
    allocations: f64,
    allocated_bytes: f64,
    journal_blocks: f64,
}

/// How much more the same work may cost when a quantity has doubled.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// Nothing.
    Flat,
    /// As much again.
    Double,
}

impl Growth {
    fn most(self) -> f64 {
        match self {
            Growth::Flat => 1.2,
            Growth::Double => 2.4,
        }
    }
}

/// Runs a row at three sizes; fails where a cost grows faster than it may.
fn check(row: &str, size: u64, growth: Growth) -> [Costs; 3] {
    check_both(row, size, [growth, growth])
}

/// The same with one bound for instructions and another for allocations.
fn check_both(row: &str, size: u64, [instructions, allocations]: [Growth; 2]) -> [Costs; 3] {
    let costs = [size, 2 * size, 4 * size].map(|size| run(row, size));
    println!("{row} at {size}: {costs:#?}");
    for pair in costs.windows(2) {
        let grown = |what: &str, of: fn(&Costs) -> Option<f64>, growth: Growth, slack: f64| {
            let (Some(before), Some(after)) = (of(&pair[0]), of(&pair[1])) else { return };
            let most = before * growth.most() + slack;
            assert!(after <= most, "{row}: {what} grow from {before} to {after}");
        };
        grown("instructions", |costs| costs.instructions, instructions, 0.0);
        // A few of them are there by chance: a buffer that grows, a map.
        grown("allocations", |costs| Some(costs.allocations), allocations, 20.0);
    }
    costs
}

/// One row in a child.
fn run(row: &str, size: u64) -> Costs {
    let program = std::env::current_exe().expect("a path");
    let child = |command: &mut Command| {
        let words = ["--exact", "in_a_child", "--nocapture", "--test-threads=1"];
        command.args(words).env(ROW, format!("{row} {size}")).stdin(Stdio::null()).output()
    };
    let mut below = Command::new("valgrind");
    below.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    below.args(["--collect-atstart=no", "--toggle-collect=*counted_work*"]).arg(&program);
    let below_valgrind = std::env::var_os(INSTRUCTIONS).is_some();
    let output =
        if below_valgrind { child(&mut below) } else { child(&mut Command::new(&program)) };
    let output = output.expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{row} {size}: {text}{errors}");
    let number = |text: &str, name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.split_once(name))?;
        line.1.trim().parse().ok()
    };
    let told = |name: &str| number(&text, name).unwrap_or_else(|| panic!("{name}: {text}"));
    let costs = Costs {
        instructions: number(&errors, "Collected :"),
        allocations: told("allocations:"),
        allocated_bytes: told("allocated bytes:"),
        journal_blocks: told("journal blocks:"),
    };
    let counted = costs.instructions.is_some_and(|count| count > 0.0);
    assert!(!below_valgrind || counted, "{errors}");
    costs
}

/// Not a test of its own: what [`run`] starts.
#[test]
fn in_a_child() {
    let Ok(wanted) = std::env::var(ROW) else { return };
    let (row, size) = wanted.split_once(' ').expect("a row and a size");
    rows::run(row, size.parse().expect("a number"));
}

#[test]
fn the_length_of_a_log() {
    check("produce_to_a_long_log", 100, Growth::Flat);
    check("tail_fetch_of_a_long_log", 100, Growth::Flat);
    check("end_of_a_long_log", 100, Growth::Flat);
}

#[test]
fn idle_partitions() {
    check("produce_beside_idle_partitions", 50, Growth::Flat);
    check("rest_of_idle_partitions", 50, Growth::Flat);
}

#[test]
fn idle_connections() {
    check("produce_beside_idle_connections", 25, Growth::Flat);
    check("rest_of_idle_connections", 25, Growth::Flat);
}

#[test]
fn parked_fetches_of_another_partition() {
    check("produce_beside_parked_fetches", 15, Growth::Flat);
}

#[test]
fn partitions_in_a_fetch() {
    // Known, and not as it is to be: a session of Fetch looks at each of its partitions, changed
    // or not. It allocates for none of them; its instructions double.
    check_both("incremental_fetch_without_change", 25, [Growth::Double, Growth::Flat]);
    check("full_fetch", 25, Growth::Double);
}

#[test]
fn producer_ids_known() {
    check("produce_beside_known_producers", 50, Growth::Flat);
}

#[test]
fn open_transactions() {
    check("produce_beside_open_transactions", 8, Growth::Flat);
    check("stable_end_with_open_transactions", 8, Growth::Flat);
}

#[test]
fn aborted_transactions_in_history() {
    check("committed_tail_fetch_after_aborts", 10, Growth::Flat);
    check("committed_fetch_over_aborts", 10, Growth::Double);
}

#[test]
fn partitions_in_a_transaction() {
    let costs = check("commit_over_partitions", 8, Growth::Double);
    for pair in costs.windows(2) {
        let (before, after) = (pair[0].journal_blocks, pair[1].journal_blocks);
        assert!(after <= before * Growth::Flat.most(), "blocks grow from {before} to {after}");
    }
}

#[test]
fn shards() {
    check("produce_beside_other_shards", 1, Growth::Flat);
}

#[test]
fn the_size_of_a_record() {
    let costs = check("produce_of_a_large_record", 8 << 10, Growth::Double);
    for pair in costs.windows(2) {
        let (before, after) = (pair[0].allocated_bytes, pair[1].allocated_bytes);
        assert!(after <= before * Growth::Double.most(), "bytes grow from {before} to {after}");
    }
}

#[test]
fn topics_with_configurations() {
    check("produce_beside_configured_topics", 15, Growth::Flat);
}

#[test]
fn members_of_a_group() {
    check("heartbeat_of_a_stable_member", 15, Growth::Flat);
}

#[test]
fn what_is_retained() {
    // Half of the instructions are of the simulated disk, which looks at all its names whenever one
    // is made durable; those grow with the files there are.
    check_both("start_with_much_retained", 50, [Growth::Double, Growth::Flat]);
}

/// Set: instructions are counted as well.
const INSTRUCTIONS: &str = "RINGLOG_DOUBLING_INSTRUCTIONS";
const ROW: &str = "RINGLOG_DOUBLING";
