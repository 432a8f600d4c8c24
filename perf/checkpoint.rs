//! What checkpoints do to the latency of produce.
//!
//! Owns two brokers, one that takes checkpoints all the time and one that takes none, under the
//! same load in turns, ABBA, so that what else the machine does hits both. The load is open: what
//! a checkpoint delays counts in full.

use clap::Args;
use hdrhistogram::Histogram;

use super::calibrate::load_average;
use super::client::Fault;
use super::load::{self, Load, Mode};
use super::metrics::{CHECKPOINT_SECONDS, CHECKPOINTS};
use super::report::{Report, number};
use super::target::{Own, Server};

/// Options of `run checkpoint`.
#[derive(Args, Clone, Debug)]
pub struct CheckpointArguments {
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    pace: Pace,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How often, and under which load.
#[derive(Args, Clone, Debug)]
pub struct Pace {
    /// Time between two checkpoints
    #[arg(long, default_value_t = 100)]
    pub interval_ms: u64,
    /// Requests per second
    #[arg(long, default_value_t = 2_000)]
    pub rate: u64,
    /// Partitions that are written to
    #[arg(long, default_value_t = 64)]
    pub partitions: i32,
    /// Pairs of runs, of two seconds each
    #[arg(long, default_value_t = 5)]
    pub pairs: u32,
}

/// Latencies of all runs, and what the checkpoints were.
pub struct Compared {
    pub with: Histogram<u64>,
    pub without: Histogram<u64>,
    pub checkpoints: f64,
    /// Share of the time in which one was being taken.
    pub share: f64,
}

impl Compared {
    pub fn p99_us(&self) -> (f64, f64) {
        let us = |times: &Histogram<u64>| times.value_at_quantile(0.99) as f64 / 1e3;
        (us(&self.with), us(&self.without))
    }
}

/// Compares, and prints the report.
pub fn run(arguments: &CheckpointArguments) -> Result<(), Fault> {
    let compared = compare(&arguments.own, &arguments.pace)?;
    let mut report = Report::new("checkpoint");
    report.add("load_average", number(load_average()));
    report.add("checkpoints", number(compared.checkpoints));
    report.add("share_of_time_in_checkpoints", number(compared.share));
    report.add_compared([("with", &compared.with), ("without", &compared.without)]);
    report.print(arguments.json);
    Ok(())
}

/// Measures both in turns.
pub fn compare(own: &Own, pace: &Pace) -> Result<Compared, Fault> {
    let often = format!("checkpoint_interval_ms={}", pace.interval_ms);
    let with = own.start(&["--set", &often])?;
    let without = own.start(&["--set", "checkpoint_interval_ms=1h"])?;
    let load = Load {
        partitions: pace.partitions,
        connections: 4,
        in_flight: 16,
        rate: pace.rate,
        ..Load::one("checkpoint", 2)
    };
    let mut compared = Compared {
        with: Histogram::new(3)?,
        without: Histogram::new(3)?,
        checkpoints: 0.0,
        share: 0.0,
    };
    let mut seconds = 0.0;
    for pair in 0..pace.pairs {
        for second in [false, true] {
            if second == (pair % 2 == 0) {
                compared.without.add(measure(&without, &load)?.latencies)?;
                continue;
            }
            let before = with.scrape()?;
            let outcome = measure(&with, &load)?;
            let after = with.scrape()?;
            compared.with.add(outcome.latencies)?;
            compared.checkpoints += after.since(&before, CHECKPOINTS);
            compared.share += after.since(&before, CHECKPOINT_SECONDS);
            seconds += (load.seconds + load.warm_up_seconds) as f64;
        }
    }
    compared.share /= seconds;
    Ok(compared)
}

fn measure(server: &Server, load: &Load) -> Result<load::Outcome, Fault> {
    load::measure(server, load, Mode::Produce)
}
