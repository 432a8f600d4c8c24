//! `ringlog-perf gate`: whether a change has made anything costlier that can be counted.
//!
//! Owns the command. Counters (system calls, allocations, bytes, journal commits, instructions) are
//! held against `perf/baselines/counters.json`, those of a debug build against those of a debug
//! build; what got worse fails, what got better is said, so that `--write` can note it. With
//! `--base` a second revision is counted in turns with this one, its CPU time too. Latencies and
//! throughput are no part of it: they do not outlast a minute.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::client::Fault;
use crate::report::{Report, figures, number};
use crate::target::Own;
use baseline::{Baseline, Judged, Verdict};
use counters::{Counter, Programs, Taken};

mod base;
mod baseline;
pub mod cores;
pub mod counted;
mod counters;

/// Options of `gate`.
#[derive(Args, Clone, Debug)]
pub struct GateArguments {
    #[command(flatten)]
    own: Own,
    /// The file with the counters
    #[arg(long, value_name = "FILE", default_value = "perf/baselines/counters.json")]
    baseline: PathBuf,
    /// How often everything is counted, of which the least counts [default: 3, 5 to write]
    #[arg(long)]
    runs: Option<usize>,
    /// By how much more than its tolerance a counter may have grown: for a machine of another kind
    /// than the one that wrote the file, or another compiler
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    slack: f64,
    /// Count these only; repeatable [default: all]
    #[arg(long = "count", value_enum, value_name = "WHAT")]
    what: Vec<What>,
    /// Write the counters down instead of comparing them
    #[arg(long, conflicts_with_all = ["base", "base_programs", "slack"])]
    write: bool,
    /// Compare with this revision, built beside the checkout, instead of with the file
    #[arg(long, value_name = "REV", conflicts_with = "base_programs")]
    base: Option<String>,
    /// Compare with the ringlog and ringlog-perf of this directory
    #[arg(long, value_name = "DIR")]
    base_programs: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// System calls, bytes written, journal commits.
    Requests,
    /// Allocations, and what is asked for.
    Allocations,
    /// Instructions of the cores.
    Instructions,
}

impl GateArguments {
    fn counts(&self, what: What) -> bool {
        self.what.is_empty() || self.what.contains(&what)
    }

    fn runs(&self) -> usize {
        let default = if self.write { RUNS_TO_WRITE } else { RUNS };
        self.runs.unwrap_or(default).max(1)
    }
}

/// Counts, and fails if something got worse.
pub fn run(arguments: &GateArguments) -> Result<(), Fault> {
    if arguments.base.is_some() || arguments.base_programs.is_some() {
        return base::run(arguments);
    }
    let programs = here(&arguments.own)?;
    let begun = Instant::now();
    let mut runs = Vec::new();
    for run in 1..=arguments.runs() {
        runs.push(take(arguments, &programs, run)?.counters);
    }
    let mut file = Baseline::read(&arguments.baseline)?;
    let mut kept = file.of(PROFILE);
    kept.retain(|name, _| {
        arguments.what.is_empty() || runs.iter().flatten().any(|it| it.name == *name)
    });
    for kept in kept.values_mut() {
        kept.tolerance_percent += arguments.slack;
    }
    let judged = baseline::judge(&kept, &runs);
    tell(arguments, &judged, begun);
    if arguments.write {
        return file.write(&arguments.baseline, PROFILE, baseline::keep(&runs));
    }
    conclude(&judged)
}

/// The programs of this build.
fn here(own: &Own) -> Result<Programs, Fault> {
    let perf = std::env::current_exe()?;
    let ringlog = own.ringlog.clone().unwrap_or_else(|| perf.with_file_name("ringlog"));
    Ok(Programs { ringlog, perf })
}

/// Counts once what is to be counted.
fn take(arguments: &GateArguments, programs: &Programs, run: usize) -> Result<Taken, Fault> {
    let begun = Instant::now();
    let mut taken = Taken::default();
    if arguments.counts(What::Requests) {
        taken = counters::of_a_child(&arguments.own, programs)?;
    }
    if arguments.counts(What::Allocations) {
        taken.counters.extend(counters::allocations(&arguments.own, programs)?);
    }
    if arguments.counts(What::Instructions) {
        taken.counters.extend(cores::instructions(&programs.perf)?);
    }
    eprintln!("run {run}: {} counters in {} s", taken.counters.len(), begun.elapsed().as_secs());
    Ok(taken)
}

fn tell(arguments: &GateArguments, judged: &[Judged], begun: Instant) {
    let mut report = Report::new("gate");
    report.add("profile", PROFILE);
    report.add("seconds", begun.elapsed().as_secs());
    for judged in judged {
        let kept = judged.kept.as_ref();
        let cell = |value: Option<f64>| value.map_or("-".into(), number);
        report.row(figures([
            ("counter", judged.name.clone().into()),
            ("before", cell(kept.map(|kept| kept.value))),
            ("now", cell(judged.value)),
            ("tolerance_percent", cell(kept.map(|kept| kept.tolerance_percent))),
            ("verdict", judged.verdict.name().into()),
        ]));
    }
    report.print(arguments.json);
}

/// Says what to do, and fails if that is more than to write down what got better.
fn conclude(judged: &[Judged]) -> Result<(), Fault> {
    let named = |verdict: Verdict| {
        let of = judged.iter().filter(|judged| judged.verdict == verdict);
        of.map(|judged| judged.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    for (verdict, advice) in [
        (Verdict::Better, "better than written down; note it with `gate --write`"),
        (Verdict::New, "not written down yet; note it with `gate --write`"),
        (Verdict::OtherCounter, "not compared: another program counts here"),
        (Verdict::CannotCount, "not compared: nothing here can count it"),
    ] {
        let names = named(verdict);
        if !names.is_empty() {
            eprintln!("{advice}: {names}");
        }
    }
    let failed: Vec<&Judged> = judged.iter().filter(|judged| !judged.verdict.passes()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let lines = failed.iter().map(|judged| {
        let now = judged.value.map_or("not counted any more".to_owned(), |now| now.to_string());
        let before = judged.kept.as_ref().map_or(f64::NAN, |kept| kept.value);
        format!("\n  {}: {before} before, {now} ({})", judged.name, judged.detail)
    });
    Err(format!("worse than before:{}", lines.collect::<String>()).into())
}

/// Counters of an optimized build are others.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
const RUNS: usize = 3;
const RUNS_TO_WRITE: usize = 5;

/// Names and values of a run as counters, for what is compared with another revision only.
fn as_counters(values: &[(String, f64)]) -> Vec<Counter> {
    values.iter().map(|(name, value)| Counter::exact(name, *value)).collect()
}
