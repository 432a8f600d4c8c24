//! `ringlog-perf`: the machine's floors, and load on a broker over the Kafka protocol.
//!
//! Owns a small blocking client per connection that writes hand-made Produce and Fetch requests,
//! and the numbers that outlast a machine: broker CPU-seconds, write amplification, latency beside
//! the floors of the same minute. Must never share code with the broker's hot path: it measures it.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod broker;
mod calibrate;
mod client;
mod first_column;
mod load;
mod measure;
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
        data_dir: std::path::PathBuf,
    },
    /// Put load on a broker and report what it cost
    Run(RunArguments),
    /// Take every figure of the first column of the targets, and say which are met
    FirstColumn(first_column::FirstColumnArguments),
}

/// What load to put on which broker.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// A broker of the cluster
    #[arg(long, default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// Process to account CPU and I/O of
    #[arg(long)]
    pub pid: Option<u32>,
    /// produce, or fetch what is there
    #[arg(long, default_value = "produce")]
    pub mode: String,
    /// Topic; made if missing
    #[arg(long, default_value = "perf")]
    pub topic: String,
    /// Partitions of the topic
    #[arg(long, default_value_t = 1)]
    pub partitions: i32,
    /// Connections, each on a thread of its own
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 1)]
    pub in_flight: usize,
    /// Bytes of a record's value
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Records per request
    #[arg(long, default_value_t = 1)]
    pub records: usize,
    /// acks of Produce: 1 or -1
    #[arg(long, default_value_t = -1, allow_hyphen_values = true)]
    pub acks: i16,
    /// Requests per second over all connections; 0 sends as fast as answers come
    #[arg(long, default_value_t = 0)]
    pub rate: u64,
    /// Length of the measured part
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Length of the warm-up that is not counted
    #[arg(long, default_value_t = 1)]
    pub warm_up_seconds: u64,
    /// Core to pin the load to
    #[arg(long)]
    pub core: Option<usize>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Calibrate { data_dir } => calibrate::run(&data_dir),
        Command::Run(arguments) => load::run(&arguments),
        Command::FirstColumn(arguments) => first_column::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringlog-perf: {error}");
            ExitCode::FAILURE
        }
    }
}
