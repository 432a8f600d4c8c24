//! `ringlog-perf`: the machine's floors, and load on a broker over the Kafka protocol.
//!
//! Owns the commands. Each takes figures that outlast a machine: CPU-seconds and system calls of
//! the broker, journal commits, bytes, and latencies beside the floors of the same minute. Must
//! never share code with the broker's hot path: it measures it. README.md has how to read it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod broker;
mod calibrate;
mod chart;
mod checkpoint;
mod client;
mod cold;
mod compaction;
mod compare;
mod comparison;
#[path = "../benches/counting/mod.rs"]
mod counting;
mod first_column;
mod gate;
mod goals;
mod groups;
mod idle;
mod java;
mod kafka;
mod kinds;
mod load;
mod measure;
mod metrics;
mod modes;
mod network;
mod partitions;
mod plan;
mod producer;
mod recovery;
mod report;
mod retention;
mod scenario;
mod syscalls;
mod tail;
mod target;
mod txn;

/// Measures a machine and a broker.
#[derive(Debug, Parser)]
#[command(name = "ringlog-perf", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the machine's floors: durable writes, TCP echo, memory copies
    Calibrate {
        /// Directory on the disk to measure
        #[arg(long, default_value = ".")]
        data_dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Put load on a broker and report what it cost
    #[command(subcommand)]
    Run(Run),
    /// Take every figure of the first column of the targets, and say which are met
    FirstColumn(first_column::FirstColumnArguments),
    /// Run scenarios on Ringlog and on Apache Kafka in turns, and write a report
    Compare(compare::CompareArguments),
    /// Judge a comparison's compare.json again, and write its text, page and chart
    Report(goals::ReportArguments),
    /// Fail if something that can be counted costs more than is written down
    Gate(gate::GateArguments),
    /// Count the allocations of a broker within this program, for `gate`
    #[command(hide = true)]
    Counted {
        #[arg(long)]
        data_dir: PathBuf,
    },
    /// Echo on a core, for the scenario `network`
    #[command(hide = true)]
    Echo { core: usize, request_bytes: usize, answer_bytes: usize },
    /// Run a core so many times, for `gate`
    #[command(hide = true)]
    Core { name: String, count: u64 },
}

#[derive(Debug, Subcommand)]
enum Run {
    /// Append batches
    Produce(load::LoadArguments),
    /// Read what is there, again and again
    Fetch(load::LoadArguments),
    /// Count the system calls of a produce request
    Syscalls(syscalls::SyscallsArguments),
    /// Commit transactions, by both protocols, and compare with an idempotent producer
    Txn(txn::TxnArguments),
    /// Commit offsets, and have a large group rebalance
    Groups(groups::GroupsArguments),
    /// Produce while checkpoints are taken, and while none are
    Checkpoint(checkpoint::CheckpointArguments),
    /// Produce while a topic is compacted, and measure what compaction gets through
    Compaction(compaction::CompactionArguments),
    /// Produce while segments roll and go, and while all is kept
    Retention(retention::RetentionArguments),
    /// Read what is not in memory, in order and at random
    Cold(cold::ColdArguments),
    /// Make many partitions, write to all of them, do nothing, and start again
    Partitions(partitions::PartitionsArguments),
    /// Crash a broker with much in its journal
    Recovery(recovery::RecoveryArguments),
    /// Start a broker with many partitions, and with many transactional ids
    Starts(recovery::StartsArguments),
    /// Compare `--mode balanced` with `--mode latency`, at rest and under load
    Modes(modes::ModesArguments),
    /// Have a broker hold much and do nothing
    Idle(idle::IdleArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Calibrate { data_dir, json } => calibrate::run(&data_dir, json),
        Command::Run(Run::Produce(arguments)) => load::run(&arguments, load::Mode::Produce),
        Command::Run(Run::Fetch(arguments)) => load::run(&arguments, load::Mode::Fetch),
        Command::Run(Run::Syscalls(arguments)) => syscalls::run(&arguments),
        Command::Run(Run::Txn(arguments)) => txn::run(&arguments),
        Command::Run(Run::Groups(arguments)) => groups::run(&arguments),
        Command::Run(Run::Checkpoint(arguments)) => checkpoint::run(&arguments),
        Command::Run(Run::Compaction(arguments)) => compaction::run(&arguments),
        Command::Run(Run::Retention(arguments)) => retention::run(&arguments),
        Command::Run(Run::Cold(arguments)) => cold::run(&arguments),
        Command::Run(Run::Partitions(arguments)) => partitions::run(&arguments),
        Command::Run(Run::Recovery(arguments)) => recovery::run(&arguments),
        Command::Run(Run::Starts(arguments)) => recovery::run_starts(&arguments),
        Command::Run(Run::Modes(arguments)) => modes::run(&arguments),
        Command::Run(Run::Idle(arguments)) => idle::run(&arguments),
        Command::FirstColumn(arguments) => first_column::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Report(arguments) => goals::run(&arguments),
        Command::Echo { core, request_bytes, answer_bytes } => {
            network::echo(core, request_bytes, answer_bytes)
        }
        Command::Gate(arguments) => gate::run(&arguments),
        Command::Counted { data_dir } => gate::counted::run(&data_dir),
        Command::Core { name, count } => gate::cores::run(&name, count),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringlog-perf: {error}");
            ExitCode::FAILURE
        }
    }
}
