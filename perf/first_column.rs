//! The first column of the targets: every item that this program can take, in one command.
//!
//! Owns the list of items, their targets and the rule that says met or not. Every item has a broker
//! of its own, one shard unless it says otherwise; the load is pinned to another core. An item that
//! fails says why and ends no other. Floors are taken right before the item that is held against
//! them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use super::broker::{Broker, Launch};
use super::client::{Client, Fault};
use super::load::{self, Outcome};
use super::measure::Usage;
use super::{RunArguments, calibrate, txn};

/// Where things are, and how long it may take.
#[derive(Args, Clone, Debug)]
pub struct FirstColumnArguments {
    /// The broker to start [default: `ringlog` beside this program]
    #[arg(long, value_name = "PATH")]
    ringlog: Option<PathBuf>,
    /// Where brokers keep their data for a while
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Where first-column.md and first-column.json go
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Core to pin the load to
    #[arg(long, default_value_t = 1)]
    core: usize,
    /// Length of each measured part
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Time for everything; an item that would begin later is left out
    #[arg(long, default_value_t = 450)]
    budget_seconds: u64,
    /// Only items whose group has this name
    #[arg(long)]
    only: Option<String>,
    /// Fewer partitions, connections and bytes: to check the instrument, not the broker
    #[arg(long)]
    tiny: bool,
}

/// One line of the table.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    item: String,
    target: String,
    measured: String,
    /// `None` where there is nothing to compare, or nothing was measured.
    met: Option<bool>,
}

impl Row {
    /// A figure that has to stay at or below its bound.
    fn most(item: &str, target: &str, figure: f64, unit: &str, bound: f64) -> Row {
        let measured = format!("{figure:.2} {unit}, at most {bound:.2}");
        let met = Some(figure.is_finite() && figure <= bound);
        Row { item: item.to_owned(), target: target.to_owned(), measured, met }
    }

    fn told(item: &str, target: &str, measured: String) -> Row {
        Row { item: item.to_owned(), target: target.to_owned(), measured, met: None }
    }
}

type Group = fn(&FirstColumnArguments) -> Result<Vec<Row>, Fault>;

const GROUPS: &[(&str, Group)] = &[
    ("produce", produce),
    ("batching", batching),
    ("bytes", bytes),
    ("small", small),
    ("transactions", transactions),
    ("recovery", recovery),
    ("starts", starts),
    ("idle", idle),
];

/// Takes everything and writes the table after every item, so that nothing is lost.
pub fn run(arguments: &FirstColumnArguments) -> Result<(), Fault> {
    let begun = Instant::now();
    let mut rows = Vec::new();
    for (name, group) in GROUPS {
        if arguments.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        eprintln!("--- {name}, after {} s", begun.elapsed().as_secs());
        if begun.elapsed() > Duration::from_secs(arguments.budget_seconds) {
            rows.push(Row::told(name, "-", "not measured: out of time".to_owned()));
            continue;
        }
        match group(arguments) {
            Ok(found) => rows.extend(found),
            Err(fault) => rows.push(Row::told(name, "-", format!("not measured: {fault}"))),
        }
        std::fs::create_dir_all(&arguments.output)?;
        std::fs::write(arguments.output.join("first-column.md"), markdown(&rows))?;
        std::fs::write(arguments.output.join("first-column.json"), json(&rows))?;
    }
    print!("{}", markdown(&rows));
    Ok(())
}

fn markdown(rows: &[Row]) -> String {
    let mut text = "| item | target | measured | met |\n| --- | --- | --- | --- |\n".to_owned();
    for row in rows {
        let met = row.met.map_or("-", |met| if met { "yes" } else { "no" });
        text += &format!("| {} | {} | {} | {met} |\n", row.item, row.target, row.measured);
    }
    text
}

fn json(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "item": row.item, "target": row.target, "measured": row.measured, "met": row.met,
            })
        })
        .collect();
    serde_json::Value::from(rows).to_string()
}

fn start(arguments: &FirstColumnArguments, further: &[&str]) -> Result<Broker, Fault> {
    let beside =
        || -> Result<PathBuf, Fault> { Ok(std::env::current_exe()?.with_file_name("ringlog")) };
    let program = arguments.ringlog.clone().map_or_else(beside, Ok)?;
    let mut words = vec!["--shards", "1"];
    words.extend(further);
    Broker::start(Launch::new(&program, &arguments.data_dir, &words)?)
}

/// A load on `broker`: one connection, one request of one record in flight.
fn load(arguments: &FirstColumnArguments, broker: &Broker, topic: &str) -> RunArguments {
    RunArguments {
        bootstrap: broker.address().to_owned(),
        pid: Some(broker.pid()),
        mode: "produce".to_owned(),
        topic: topic.to_owned(),
        partitions: 1,
        connections: 1,
        in_flight: 1,
        record_bytes: 1024,
        records: 1,
        acks: -1,
        rate: 0,
        seconds: if arguments.tiny { 1 } else { arguments.seconds },
        warm_up_seconds: u64::from(!arguments.tiny),
        core: Some(arguments.core),
        json: false,
    }
}

/// Floors in microseconds: a durable write, an echo.
fn floors(data_dir: &Path) -> Result<(f64, f64), Fault> {
    let us = |times: &hdrhistogram::Histogram<u64>| times.value_at_quantile(0.5) as f64 / 1e3;
    Ok((us(&calibrate::durable_writes(data_dir)?), us(&calibrate::echo()?)))
}

fn latency(outcome: &Outcome) -> String {
    format!(
        "p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, {:.0} requests/s",
        outcome.us(0.5),
        outcome.us(0.99),
        outcome.us(0.999),
        outcome.requests as f64 / outcome.seconds
    )
}

fn produce(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let (dsync, echo) = floors(&arguments.data_dir)?;
    let broker = start(arguments, &[])?;
    let outcome = load::measure(&load(arguments, &broker, "one"))?;
    let floors = format!("dsync p50 {dsync:.0} us, echo p50 {echo:.0} us");
    let name = "produce, power-loss, 1 in flight, 1 KiB, p50";
    Ok(vec![
        Row::told("floors", "-", floors),
        Row::most(name, "<= 2 x (DSYNC + echo)", outcome.us(0.5), "us", 2.0 * (dsync + echo)),
        Row::told("the same, all", "-", latency(&outcome)),
    ])
}

fn batching(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let broker = start(arguments, &[])?;
    let one = load::measure(&load(arguments, &broker, "one"))?;
    let mut many = load(arguments, &broker, "many");
    (many.partitions, many.connections, many.in_flight) = (64, 4, 16);
    let before = Usage::of(broker.pid());
    let many = load::measure(&many)?;
    let written = Usage::of(broker.pid()).since(&before).written_bytes;
    let name = "produce, 64 in flight over 64 partitions, p50";
    let target = "<= 2 x the one-in-flight p50";
    Ok(vec![
        Row::most(name, target, many.us(0.5), "us", 2.0 * one.us(0.5)),
        Row::told(
            "the same, all",
            ">= 10 requests per journal commit: see the broker's metrics",
            format!("{}, {} B written per request", latency(&many), {
                written / many.requests_in_all.max(1)
            }),
        ),
    ])
}

fn bytes(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let broker = start(arguments, &[])?;
    let mut big = load(arguments, &broker, "big");
    (big.records, big.in_flight) = (64, 8);
    let produced = load::measure(&big)?;
    let mut back = big.clone();
    (back.mode, back.in_flight) = ("fetch".to_owned(), 1);
    let cached = load::measure(&back)?;
    drop(broker);
    let broker = start(arguments, &["--memory", "64MiB"])?;
    (big.bootstrap, big.pid) = (broker.address().to_owned(), Some(broker.pid()));
    load::measure(&big)?;
    let broker = Broker::start(broker.stop()?)?;
    (back.bootstrap, back.pid) = (broker.address().to_owned(), Some(broker.pid()));
    let cold = load::measure(&back)?;
    let row = |name: &str, outcome: &Outcome, bound| {
        let target = format!("<= {bound:.1} CPU-s");
        Row::most(name, &target, outcome.cpu_seconds_per_gb(), "CPU-s", bound)
    };
    let rate = |name: &str, outcome: &Outcome| {
        let megabytes = outcome.bytes as f64 / outcome.seconds / 1e6;
        Row::told(name, "-", format!("{megabytes:.0} MB/s, {}", latency(outcome)))
    };
    Ok(vec![
        row("broker CPU per GB produced, 64 KiB batches", &produced, 1.2),
        rate("produce, 64 KiB batches", &produced),
        row("broker CPU per GB fetched, cached", &cached, 0.8),
        rate("fetch, cached", &cached),
        row("broker CPU per GB fetched, cold (--memory 64MiB, restarted)", &cold, 1.0),
        rate("fetch, cold", &cold),
    ])
}

fn small(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let broker = start(arguments, &[])?;
    let mut rows = Vec::new();
    for (in_flight, bound) in [(1, 20.0), (32, 8.0)] {
        let mut run = load(arguments, &broker, &format!("small-{in_flight}"));
        (run.record_bytes, run.in_flight) = (100, in_flight);
        let outcome = load::measure(&run)?;
        let name =
            format!("broker CPU per million 100-byte produce requests, {in_flight} in flight");
        let target = format!("<= {bound:.0} s");
        rows.push(Row::most(&name, &target, outcome.cpu_seconds_per_million(), "CPU-s", bound));
        rows.push(Row::told("the same, all", "-", latency(&outcome)));
    }
    Ok(rows)
}

fn transactions(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let time = Duration::from_secs(if arguments.tiny { 1 } else { arguments.seconds });
    let mut rows = Vec::new();
    let mut of_one = f64::NAN;
    let partitions: &[i32] = if arguments.tiny { &[1, 10] } else { &[1, 10, 100, 1000] };
    for &count in partitions {
        let (dsync, echo) = floors(&arguments.data_dir)?;
        let broker = start(arguments, &[])?;
        let found = txn::commits(broker.address(), "txn", count, time)?;
        let end_us = found.end_txn.value_at_quantile(0.5) as f64 / 1e3;
        let next_us = found.until_next_us();
        if count == 1 {
            of_one = next_us;
            let target = "<= 2 x (DSYNC + echo)";
            rows.push(Row::most("EndTxn p50", target, end_us, "us", 2.0 * (dsync + echo)));
            let target = "2 sequential journal commits + 1 hop: 2 x (2 x DSYNC + echo)";
            let name = "commit over 1 partition until the next may start, p50";
            rows.push(Row::most(name, target, next_us, "us", 2.0 * (2.0 * dsync + echo)));
        } else {
            let name = format!("commit over {count} partitions until the next may start, p50");
            rows.push(Row::most(&name, "flat: <= 1.2 x that of 1", next_us, "us", 1.2 * of_one));
        }
        let all = format!(
            "EndTxn p50 {end_us:.0} us, p99 {:.0} us; {} commits",
            found.end_txn.value_at_quantile(0.99) as f64 / 1e3,
            found.end_txn.len()
        );
        rows.push(Row::told("the same, EndTxn", "-", all));
    }
    Ok(rows)
}

fn recovery(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let ring = if arguments.tiny { "64MiB" } else { "1GiB" };
    let set = format!("journal.ring.bytes={ring}");
    let broker = start(arguments, &["--set", &set])?;
    let mut fill = load(arguments, &broker, "fill");
    (fill.records, fill.in_flight) = (64, 8);
    // Less than half of the ring, where a checkpoint would begin.
    fill.seconds = if arguments.tiny { 1 } else { 3 };
    fill.warm_up_seconds = 0;
    let filled = load::measure(&fill)?;
    let broker = Broker::start(broker.kill()?)?;
    let crashed = broker.start_up().as_secs_f64();
    let broker = Broker::start(broker.stop()?)?;
    let clean = broker.start_up().as_secs_f64();
    let gigabytes = filled.bytes as f64 / 1e9;
    let told = format!("{gigabytes:.3} GB: {crashed:.3} s; after a clean stop {clean:.3} s");
    let name = "crash recovery per GB of journal, beyond a clean start";
    let figure = (crashed - clean).max(0.0) / gigabytes;
    Ok(vec![
        Row::most(name, "<= 0.7 s per GB", figure, "s per GB", 0.7),
        Row::told("start after kill -9", "-", told),
    ])
}

fn starts(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let partitions = if arguments.tiny { 50 } else { 1_000 };
    let broker = start(arguments, &[])?;
    Client::connect(broker.address())?.leaders("wide", partitions)?;
    let mut touch = load(arguments, &broker, "wide");
    (touch.partitions, touch.in_flight, touch.seconds) = (partitions, 64, 1);
    load::measure(&touch)?;
    let mut figures = Vec::new();
    let mut launch = broker.stop()?;
    for _ in 0..5 {
        let broker = Broker::start(launch)?;
        figures.push(broker.start_up().as_secs_f64() * 1e3);
        launch = broker.stop()?;
    }
    figures.sort_by(f64::total_cmp);
    let bound = 50.0 + 0.05 * f64::from(partitions);
    let name = format!("clean start with {partitions} partitions, median of 5");
    Ok(vec![Row::most(&name, "<= 50 ms + 50 us per partition", figures[2], "ms", bound)])
}

fn idle(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let count = if arguments.tiny { 50 } else { 1_000 };
    let broker = start(arguments, &["--memory", "64MiB"])?;
    let resident = || Usage::of(broker.pid()).resident_bytes as f64;
    let settle = || std::thread::sleep(Duration::from_millis(500));
    settle();
    let empty = resident();
    Client::connect(broker.address())?.leaders("idle", count)?;
    settle();
    let partitions = resident();
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(broker.address())?;
        // It has been served once.
        client.leaders("idle-1", 1)?;
        connections.push(client);
    }
    settle();
    let connected = resident();
    let before = Usage::of(broker.pid());
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(if arguments.tiny { 1 } else { 10 }));
    let seconds = begun.elapsed().as_secs_f64();
    let used = Usage::of(broker.pid()).since(&before).cpu_seconds;
    let each = |more: f64, less: f64| (more - less).max(0.0) / f64::from(count) / 1024.0;
    let cpu = 100.0 * used / seconds;
    let name = format!("idle CPU, {count} partitions and connections");
    let memory = format!("RSS with --memory 64MiB, {count} idle partitions");
    Ok(vec![
        Row::most("idle partition", "<= 16 KiB", each(partitions, empty), "KiB", 16.0),
        Row::most("idle connection", "<= 8 KiB", each(connected, partitions), "KiB", 8.0),
        Row::most(&name, "< 0.5 % of a core", cpu, "%", 0.5),
        Row::most(&memory, "<= 96 MiB", partitions / 1024.0 / 1024.0, "MiB", 96.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_met_up_to_its_bound() {
        assert_eq!(Row::most("a", "b", 2.0, "us", 2.0).met, Some(true));
        assert_eq!(Row::most("a", "b", 2.1, "us", 2.0).met, Some(false));
        assert_eq!(Row::most("a", "b", f64::NAN, "us", 2.0).met, Some(false));
        let rows = [
            Row::most("a", "b", 1.0, "us", 2.0),
            Row::told("c", "-", "not measured: why".to_owned()),
        ];
        let table = markdown(&rows);
        assert!(table.ends_with(
            "| a | b | 1.00 us, at most 2.00 | yes |\n| c | - | not measured: why | - |\n"
        ));
        let parsed: serde_json::Value = serde_json::from_str(&json(&rows)).expect("JSON");
        assert_eq!(parsed[0]["met"], true);
        assert!(parsed[1]["met"].is_null());
    }
}
