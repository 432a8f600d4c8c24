//! What `--mode latency` buys and costs: the same load on two brokers in turns, and both at rest.
//!
//! Owns the pairs. Whoever is not measured is stopped (SIGSTOP): a shard that polls would take the
//! core of the other one.

use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use rustix::process::Signal;

use super::calibrate::Floors;
use super::client::Fault;
use super::load::{self, Load, Mode};
use super::measure::median;
use super::report::{Report, figures, number};
use super::target::{Own, Server};

/// Options of `run modes`.
#[derive(Args, Clone, Debug)]
pub struct ModesArguments {
    #[command(flatten)]
    own: Own,
    /// Requests of one record per second, one run for each; 0 sends one after the other
    #[arg(long, value_delimiter = ',', default_value = "0,1000,10000")]
    rates: Vec<u64>,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Length of each measured part, and of each rest
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// All runs of one mode at one rate.
struct Runs {
    latencies: Histogram<u64>,
    cores: Vec<f64>,
}

/// Measures both modes, and prints the report.
pub fn run(arguments: &ModesArguments) -> Result<(), Fault> {
    let own = &arguments.own;
    let mut report = Report::new("modes");
    report.add_all(Floors::take(&own.data_dir, own.core())?.figures());
    let servers = [own.start(&["--mode", MODES[0]])?, own.start(&["--mode", MODES[1]])?];
    for server in &servers {
        server.signal(Signal::STOP)?;
    }
    let rest = rests(arguments, &servers)?;
    for (mode, shares) in MODES.iter().zip(&rest) {
        report.add(&format!("{mode}_idle_cpu_percent_of_core"), number(100.0 * median(shares)));
    }
    for &rate in &arguments.rates {
        let both = loads(arguments, &servers, rate)?;
        for (mode, runs) in MODES.iter().zip(&both) {
            let us = |quantile| number(runs.latencies.value_at_quantile(quantile) as f64 / 1e3);
            report.row(figures([
                ("rate", rate.into()),
                ("mode", (*mode).into()),
                ("p50_us", us(0.5)),
                ("p99_us", us(0.99)),
                ("p999_us", us(0.999)),
                ("broker_cores", number(median(&runs.cores))),
            ]));
        }
    }
    report.print(arguments.json);
    Ok(())
}

/// Runs something on each of both, ABBA.
fn in_turns(
    arguments: &ModesArguments,
    servers: &[Server; 2],
    mut one: impl FnMut(usize, &Server) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for pair in 0..arguments.pairs.max(1) {
        for place in [pair % 2, 1 - pair % 2] {
            let (place, server) = (place as usize, &servers[place as usize]);
            server.signal(Signal::CONT)?;
            let done = one(place, server);
            server.signal(Signal::STOP)?;
            done?;
        }
    }
    Ok(())
}

/// Share of a core while nothing happens.
fn rests(arguments: &ModesArguments, servers: &[Server; 2]) -> Result<[Vec<f64>; 2], Fault> {
    let mut shares: [Vec<f64>; 2] = Default::default();
    in_turns(arguments, servers, |place, server| {
        // What was late while it was stopped is over.
        std::thread::sleep(Duration::from_millis(200));
        let before = server.usage();
        std::thread::sleep(Duration::from_secs(arguments.seconds));
        let used = server.usage().since(&before);
        shares[place].push(used.cpu_seconds / arguments.seconds.max(1) as f64);
        Ok(())
    })?;
    Ok(shares)
}

fn loads(arguments: &ModesArguments, servers: &[Server; 2], rate: u64) -> Result<[Runs; 2], Fault> {
    let runs =
        || -> Result<Runs, Fault> { Ok(Runs { latencies: Histogram::new(3)?, cores: Vec::new() }) };
    let mut both = [runs()?, runs()?];
    let in_flight = if rate == 0 { 1 } else { 32 };
    let load = Load { rate, in_flight, ..Load::one("modes", arguments.seconds) };
    in_turns(arguments, servers, |place, server| {
        let outcome = load::measure(server, &load, Mode::Produce)?;
        both[place].latencies.add(&outcome.latencies)?;
        both[place].cores.push(outcome.used.cpu_seconds / outcome.seconds);
        Ok(())
    })?;
    Ok(both)
}

const MODES: [&str; 2] = ["balanced", "latency"];
