//! The first column of the targets: every item that this program can take, in one command.
//!
//! Owns the list of items, their targets and the rule that says met or not. Every item has a broker
//! of its own, one shard unless it says otherwise; the load is pinned to another core. An item that
//! fails says why and ends no other. Floors are taken right before the item that is held against
//! them. Allocations and what needs no broker are taken by `cargo bench`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::calibrate::{Floors, load_average};
use super::checkpoint::{self, Pace};
use super::client::Fault;
use super::groups::{self, Size};
use super::idle::{self, Counts, MIB};
use super::load::{self, Load, Mode, Outcome};
use super::measure::median;
use super::producer::Protocol;
use super::target::Own;
use super::txn::{self, Throughput};
use super::{cold, compaction, partitions, recovery, retention, syscalls};

/// Where things are, and how long it may take.
#[derive(Args, Clone, Debug)]
pub struct FirstColumnArguments {
    #[command(flatten)]
    own: Own,
    /// Where first-column.md and first-column.json go
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Length of each measured part
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Time for everything; an item that would begin later is left out
    #[arg(long, default_value_t = 600)]
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

    /// A figure that has to reach its bound.
    fn least(item: &str, target: &str, figure: f64, unit: &str, bound: f64) -> Row {
        let measured = format!("{figure:.2} {unit}, at least {bound:.2}");
        let met = Some(figure.is_finite() && figure >= bound);
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
    ("syscalls", count_syscalls),
    ("checkpoint", checkpoints),
    ("compaction", compact),
    ("retention", retention_rows),
    ("partitions", many_partitions),
    ("transactions", transactions),
    ("throughput", throughput),
    ("groups", group_rows),
    ("recovery", recover),
    ("retained", retained),
    ("starts", starts),
    ("ids", ids),
    ("idle", idle_rows),
];

/// Takes everything and writes the table after every item, so that nothing is lost.
pub fn run(arguments: &FirstColumnArguments) -> Result<(), Fault> {
    if let Some(only) = &arguments.only
        && !GROUPS.iter().any(|(name, _)| name == only)
    {
        let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no group is called {only}; there are {}", names.join(", ")).into());
    }
    let begun = Instant::now();
    let mut rows = Vec::new();
    for (name, group) in GROUPS {
        if arguments.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let (after, load) = (begun.elapsed().as_secs(), load_average());
        eprintln!("--- {name}, after {after} s, load average {load}");
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

impl FirstColumnArguments {
    fn seconds(&self) -> u64 {
        if self.tiny { 1 } else { self.seconds }
    }

    /// One connection, one request of one record in flight.
    fn load(&self, topic: &str) -> Load {
        let warm_up_seconds = u64::from(!self.tiny);
        Load { warm_up_seconds, ..Load::one(topic, self.seconds()) }
    }

    fn floors(&self) -> Result<Floors, Fault> {
        Floors::take(&self.own.data_dir, self.own.core())
    }
}

fn latency(outcome: &Outcome) -> String {
    format!(
        "p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, {:.0} requests/s",
        outcome.us(0.5),
        outcome.us(0.99),
        outcome.us(0.999),
        outcome.requests_per_second()
    )
}

fn produce(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let floors = arguments.floors()?;
    let server = arguments.own.start(&[])?;
    let outcome = load::measure(&server, &arguments.load("one"), Mode::Produce)?;
    let told = format!(
        "dsync p50 {:.0} us, p99 {:.0} us; echo p50 {:.0} us, {:.0} us with a server that polls",
        floors.dsync_us, floors.dsync_p99_us, floors.echo_us, floors.echo_spinning_us
    );
    let name = "produce, power-loss, 1 in flight, 1 KiB, p50";
    Ok(vec![
        Row::told("floors", "-", told),
        Row::most(name, "<= 2 x (DSYNC + echo)", outcome.us(0.5), "us", 2.0 * floors.both_us()),
        Row::told("the same, all", "-", latency(&outcome)),
    ])
}

fn batching(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let server = arguments.own.start(&[])?;
    let one = load::measure(&server, &arguments.load("one"), Mode::Produce)?;
    let many = Load { partitions: 64, connections: 4, in_flight: 16, ..arguments.load("many") };
    let many = load::measure(&server, &many, Mode::Produce)?;
    let name = "produce, 64 in flight over 64 partitions";
    let per_commit = many.requests_per_commit();
    let bound_us = 2.0 * one.us(0.5);
    Ok(vec![
        Row::least(name, ">= 10 requests per journal commit", per_commit, "requests", 10.0),
        Row::most("the same, p50", "<= 2 x one in flight", many.us(0.5), "us", bound_us),
        Row::told("the same, all", "-", latency(&many)),
    ])
}

fn bytes(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let server = arguments.own.start(&[])?;
    let big = Load { records: 64, in_flight: 8, ..arguments.load("big") };
    let produced = load::measure(&server, &big, Mode::Produce)?;
    drop(server);
    let server = arguments.own.start(&[])?;
    let back = arguments.load("big");
    load::fill(&server, "big", if arguments.tiny { 8 << 20 } else { 256 << 20 })?;
    // What is fetched is in memory; writing it to segments is over.
    std::thread::sleep(Duration::from_secs(1));
    let cached = load::measure(&server, &back, Mode::Fetch)?;
    drop(server);
    let fill = if arguments.tiny { 8 << 20 } else { 2 << 30 };
    let reads = if arguments.tiny { 10 } else { 500 };
    let (in_order, at_random) = cold::measure(&arguments.own, fill, &back, reads)?;
    let cold = &in_order.outcome;
    let row = |name: &str, outcome: &Outcome, bound| {
        let target = format!("<= {bound:.1} CPU-s");
        Row::most(name, &target, outcome.cpu_seconds_per_gb(), "CPU-s", bound)
    };
    let rate = |name: &str, outcome: &Outcome| {
        let rate = outcome.megabytes_per_second();
        Row::told(name, "-", format!("{rate:.0} MB/s, {}", latency(outcome)))
    };
    let share = 100.0 * in_order.share_of_device();
    let device = in_order.device / 1e6;
    let name = format!("cold sequential fetch, of {device:.0} MB/s that the device reads");
    let mut rows = vec![
        row("broker CPU per GB produced, 64 KiB batches", &produced, 1.2),
        rate("produce, 64 KiB batches", &produced),
        row("broker CPU per GB fetched, cached", &cached, 0.8),
        rate("fetch, cached", &cached),
        row("broker CPU per GB fetched, cold (--memory 64MiB, restarted)", cold, 1.0),
        rate("fetch, cold", cold),
        Row::least(&name, ">= 70 %", share, "%", 70.0),
    ];
    rows.extend(at_random.iter().map(|random| {
        let kib = random.asked_bytes / 1024;
        let name = format!("cold random fetches of {kib} KiB: bytes read per byte returned");
        Row::most(&name, "<= 2", random.amplification(), "x", 2.0)
    }));
    Ok(rows)
}

fn small(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let server = arguments.own.start(&[])?;
    let floors = arguments.floors()?;
    let floor = format!(
        "{:.2} CPU-s: {:.2} of a durable write, {:.2} of an echo, each by a waiting thread",
        floors.both_cpu_us(),
        floors.dsync_cpu_us,
        floors.echo_cpu_us
    );
    let mut rows = vec![Row::told("the kernel's part of a million, 1 in flight", "-", floor)];
    for (in_flight, bound) in [(1, 20.0), (32, 8.0)] {
        let topic = format!("small-{in_flight}");
        let run = Load { record_bytes: 100, in_flight, ..arguments.load(&topic) };
        let outcome = load::measure(&server, &run, Mode::Produce)?;
        let name =
            format!("broker CPU per million 100-byte produce requests, {in_flight} in flight");
        let target = format!("<= {bound:.0} s");
        rows.push(Row::most(&name, &target, outcome.cpu_seconds_per_million(), "CPU-s", bound));
        rows.push(Row::told("the same, all", "-", latency(&outcome)));
    }
    Ok(rows)
}

fn count_syscalls(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let server = arguments.own.start(&[])?;
    let mut rows = Vec::new();
    for (in_flight, bound) in [(1, 8.0), (32, 1.5)] {
        let topic = format!("syscalls-{in_flight}");
        let run = Load { record_bytes: 100, in_flight, ..arguments.load(&topic) };
        let counted = syscalls::count(&server, &run)?;
        let name = format!("syscalls per produce request, {in_flight} in flight");
        let target = format!("<= {bound}");
        rows.push(Row::most(&name, &target, counted.per_request, "calls", bound));
        let by_name = counted.by_name.iter().map(|(name, each)| format!("{name} {each:.2}"));
        let told = by_name.collect::<Vec<_>>().join(", ");
        rows.push(Row::told(&format!("the same, by {}", counted.by), "-", told));
    }
    Ok(rows)
}

fn checkpoints(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let pairs = if arguments.tiny { 1 } else { 5 };
    let pace = Pace { interval_ms: 100, rate: 2_000, partitions: 64, pairs };
    let compared = checkpoint::compare(&arguments.own, &pace)?;
    let (with, without) = compared.p99_us();
    let name = "produce p99 with a checkpoint every 100 ms, 64 partitions, 2,000 requests/s";
    let all = format!(
        "p99 {with:.0} us with, {without:.0} us without; {:.0} checkpoints, {:.0} % of the time",
        compared.checkpoints,
        100.0 * compared.share
    );
    Ok(vec![
        Row::most(name, "<= 3 x without", with / without, "x", 3.0),
        Row::told("the same, all", "-", all),
    ])
}

fn compact(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let size = match arguments.tiny {
        true => compaction::Size { input_mib: 12, segment_bytes: 2 << 20, rate: 500, pairs: 1 },
        false => {
            compaction::Size { input_mib: 512, segment_bytes: 64 << 20, rate: 2_000, pairs: 4 }
        }
    };
    let found = compaction::measure(&arguments.own, &size)?;
    let (with, without) = found.p99_us();
    let told = format!(
        "{:.0} MB in {:.2} s and {:.2} CPU-s, {:.0} MB of them written again",
        found.alone.input_bytes / 1e6,
        found.alone.seconds,
        found.alone.cpu_seconds,
        found.alone.written_bytes / 1e6
    );
    let all = format!(
        "p99 {with:.0} us with, {without:.0} us without; {:.0} MB read meanwhile",
        found.read_beside_bytes / 1e6
    );
    let rate = found.alone.megabytes_per_second();
    let name = "compaction of uncompressed 1 KiB records, input";
    Ok(vec![
        Row::least(name, ">= 200 MB/s per core", rate, "MB/s", 200.0),
        Row::told("the same, all", "-", told),
        Row::most("produce p99 during compaction", "<= 3 x without", with / without, "x", 3.0),
        Row::told("the same, all", "-", all),
    ])
}

fn retention_rows(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let size = match arguments.tiny {
        true => retention::Size { segment_bytes: 1 << 20, rate: 2_000, pairs: 1, seconds: 1 },
        false => retention::Size { segment_bytes: 1 << 20, rate: 4_000, pairs: 4, seconds: 5 },
    };
    let compared = retention::compare(&arguments.own, &size)?;
    let ((p99, p99_without), (p999, p999_without)) = (compared.us(0.99), compared.us(0.999));
    let all = format!(
        "p99 {p99:.0} us with, {p99_without:.0} us without, p99.9 {p999:.0} us and \
         {p999_without:.0} us; {:.0} segments rolled and deleted",
        compared.deleted
    );
    let name = "produce p99.9 while segments of 1 MiB roll and go, 4,000 requests/s";
    Ok(vec![
        Row::most(name, "invisible: <= 1.2 x without", p999 / p999_without, "x", 1.2),
        Row::told("the same, all", "-", all),
    ])
}

fn many_partitions(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let own = Own { shards: 2, ..arguments.own.clone() };
    let size = match arguments.tiny {
        true => partitions::Size {
            partitions: 100,
            few: 10,
            rate: 500,
            pairs: 1,
            seconds: 1,
            starts: 1,
        },
        false => partitions::Size {
            partitions: 10_000,
            few: 10,
            rate: 2_000,
            pairs: 3,
            seconds: 5,
            starts: 3,
        },
    };
    let found = partitions::measure(&own, &size)?;
    let (all, few) = found.p99_us();
    let of = format!("{} partitions on 2 shards", size.partitions);
    let told =
        format!("p99 {all:.0} us, {few:.0} us with 10; stopped in {:.1} s", found.stop_seconds);
    let row = |what: &str, target: &str, figure, unit: &str, bound| {
        Row::most(&format!("{of}: {what}"), target, figure, unit, bound)
    };
    Ok(vec![
        row("made", "<= 10 s", found.created_seconds, "s", 10.0),
        row("idle CPU", "< 1 % of a core", found.idle_cpu_percent, "%", 1.0),
        row("produce over all, p99", "<= 5 x that of 10", all / few, "x", 5.0),
        Row::told("the same, all", "-", told),
        row("start after a clean stop", "<= 2 s", found.start_seconds, "s", 2.0),
    ])
}

fn transactions(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let time = Duration::from_secs(arguments.seconds());
    let partitions: &[i32] = if arguments.tiny { &[1, 10] } else { &[1, 10, 100, 1000] };
    let mut rows = Vec::new();
    for (protocol, level) in [(Protocol::Two, "TV2"), (Protocol::One, "TV1")] {
        let mut of_one = f64::NAN;
        for &count in partitions {
            let floors = arguments.floors()?;
            let server = arguments.own.start(&[])?;
            let found = txn::commits(&server, protocol, (count, false), time)?;
            let (end_us, end_p99_us) = found.end_us();
            let next_us = found.until_next_us();
            let name = format!("{level}: commit over {count} partitions until the next may start");
            if count == 1 {
                of_one = next_us;
                let target = "<= 2 x (DSYNC + echo)";
                let bound = 2.0 * floors.both_us();
                rows.push(Row::most(&format!("{level}: EndTxn p50"), target, end_us, "us", bound));
                let target = "2 journal commits + 1 hop: 2 x (2 x DSYNC + echo)";
                let bound = 2.0 * (floors.dsync_us + floors.both_us());
                rows.push(Row::most(&name, target, next_us, "us", bound));
            } else {
                let target = "flat: <= 1.2 x that of 1";
                rows.push(Row::most(&name, target, next_us, "us", 1.2 * of_one));
            }
            let all = format!(
                "p50 {end_us:.0} us, p99 {end_p99_us:.0} us; {} commits",
                found.end_txn.len()
            );
            rows.push(Row::told("the same, EndTxn", "-", all));
        }
    }
    Ok(rows)
}

fn throughput(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let pairs = if arguments.tiny { 1 } else { 10 };
    let wanted = Throughput { commit_ms: 100, records: 16, in_flight: 5, pairs };
    let mut rows = Vec::new();
    for (protocol, level) in [(Protocol::Two, "TV2"), (Protocol::One, "TV1")] {
        let server = arguments.own.start(&[])?;
        let compared = txn::compare(&server, protocol, &wanted)?;
        let name = format!("{level}: transactional produce, 100 ms commits, 16 records of 1 KiB");
        let share = 100.0 * compared.share();
        rows.push(Row::least(&name, ">= 90 % of idempotent", share, "%", 90.0));
        let all = format!(
            "{:.0} MB/s of {:.0} MB/s, worst pair {:.0} %",
            median(&compared.transactional) / 1e6,
            median(&compared.idempotent) / 1e6,
            100.0 * compared.lowest_share()
        );
        rows.push(Row::told("the same, all", "-", all));
    }
    Ok(rows)
}

fn group_rows(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let server = arguments.own.start(&[])?;
    let time = Duration::from_secs(arguments.seconds());
    let (commit, produce) = groups::commit_and_produce(&server, time)?;
    let us = |times: &hdrhistogram::Histogram<u64>| times.value_at_quantile(0.5) as f64 / 1e3;
    let size = match arguments.tiny {
        true => Size { members: 10, partitions: 100, rebalances: 1 },
        false => Size { members: 1_000, partitions: 10_000, rebalances: 7 },
    };
    let rebalanced = groups::rebalance(&server, size)?;
    let name = format!(
        "rebalance of {} members over {} partitions, JoinGroup to SyncGroup, median",
        size.members, size.partitions
    );
    let (wall_ms, target) = (median(&rebalanced.wall_ms), "as a durable produce: <= 1.2 x");
    let all = format!(
        "slowest {:.0} ms; all joined after {:.0} ms; {:.0} ms of broker CPU",
        rebalanced.slowest_ms(),
        median(&rebalanced.join_ms),
        median(&rebalanced.cpu_ms)
    );
    let beats = rebalanced.heartbeat_commits;
    let name_of_beats = format!("journal commits of {} heartbeats", size.members);
    Ok(vec![
        Row::most("OffsetCommit p50", target, us(&commit), "us", 1.2 * us(&produce)),
        Row::most(&name, "<= 500 ms", wall_ms, "ms", 500.0),
        Row::told("the same, all", "-", all),
        Row::most(&name_of_beats, "0", beats, "commits", 0.0),
    ])
}

fn recover(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let found = recovery::recover(&arguments.own, if arguments.tiny { 16 } else { 1_024 })?;
    let told = format!(
        "{:.3} GB: {:.3} s; after a clean stop {:.3} s",
        found.gigabytes, found.crashed_seconds, found.clean_seconds
    );
    let name = "crash recovery per GB of journal, beyond a clean start";
    Ok(vec![
        Row::most(name, "<= 0.7 s per GB", found.seconds_per_gigabyte(), "s per GB", 0.7),
        Row::told("start after kill -9", "-", told),
    ])
}

fn retained(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let (little, much) = if arguments.tiny { (16, 64) } else { (2_048, 20_480) };
    let with_little = recovery::start_with_retained(&arguments.own, little)?;
    let with_much = recovery::start_with_retained(&arguments.own, much)?;
    let name = format!("start after kill -9 with {much} MiB retained");
    let target = format!("no slower than with {little} MiB: <= 1.2 x");
    let bound = 1.2 * with_little.seconds;
    let journals = format!(
        "{:.0} MB and {:.0} MB in the journal",
        with_much.journal_gigabytes * 1e3,
        with_little.journal_gigabytes * 1e3
    );
    Ok(vec![
        Row::most(&name, &target, with_much.seconds, "s", bound),
        Row::most("the same", "<= 1 s", with_much.seconds, "s", 1.0),
        Row::told("the same", "-", journals),
    ])
}

fn starts(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let partitions = if arguments.tiny { 50 } else { 1_000 };
    let figures = recovery::clean_starts(&arguments.own, partitions, 5)?;
    let bound = 50.0 + 0.05 * f64::from(partitions);
    let name = format!("clean start with {partitions} partitions, median of 5");
    let target = "<= 50 ms + 50 us per partition";
    Ok(vec![Row::most(&name, target, median(&figures), "ms", bound)])
}

fn ids(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let (count, starts) = if arguments.tiny { (100, 1) } else { (100_000, 3) };
    let found = recovery::id_starts(&arguments.own, count, starts)?;
    let name = format!("{count} transactional ids: what they add to a start until all are told");
    let ready = |starts| recovery::median_of(starts, |start| start.ready_ms);
    let told = |starts| recovery::median_of(starts, |start| start.told_ms);
    let cpu = |starts| recovery::median_of(starts, |start| start.told_cpu_ms);
    let of = |starts| {
        format!(
            "ready after {:.0} ms, told after {:.0} ms and {:.0} ms of CPU time",
            ready(starts),
            told(starts),
            cpu(starts)
        )
    };
    let crash = found.after_crash.told_ms;
    let (with, without) = (of(&found.with), of(&found.without));
    let all = format!("{with}, after kill -9 {crash:.0} ms; with one id {without}");
    Ok(vec![
        Row::most(&name, "<= 1 s", found.added_seconds(), "s", 1.0),
        Row::told("the same, all", "-", all),
    ])
}

fn idle_rows(arguments: &FirstColumnArguments) -> Result<Vec<Row>, Fault> {
    let counts = match arguments.tiny {
        true => Counts { partitions: 50, connections: 50, producers: 500, ids: 50, seconds: 1 },
        false => Counts {
            partitions: 1_000,
            connections: 1_000,
            producers: 100_000,
            ids: 20_000,
            seconds: 10,
        },
    };
    let found = idle::measure(&arguments.own, &counts)?;
    let kib = |bytes: f64| bytes / 1024.0;
    let count = counts.partitions;
    let name = format!("idle CPU, {count} partitions and {} connections", counts.connections);
    let memory = format!("RSS with --memory 64MiB, {count} idle partitions");
    let told = format!("{:.0} context switches per second", found.switches_per_second);
    let partition = kib(found.partition_bytes);
    let connection = kib(found.connection_bytes);
    Ok(vec![
        Row::most("idle partition", "<= 16 KiB", partition, "KiB", 16.0),
        Row::most("idle connection", "<= 8 KiB", connection, "KiB", 8.0),
        Row::most("idle producer id", "<= 256 B", found.producer_bytes, "B", 256.0),
        Row::most("idle transactional id", "<= 512 B", found.id_bytes, "B", 512.0),
        Row::most(&name, "< 0.5 % of a core", found.cpu_percent, "%", 0.5),
        Row::told("the same, all", "-", told),
        Row::most(&memory, "<= 96 MiB", found.resident_bytes / MIB, "MiB", 96.0),
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
        assert_eq!(Row::least("a", "b", 2.0, "us", 2.0).met, Some(true));
        assert_eq!(Row::least("a", "b", 1.9, "us", 2.0).met, Some(false));
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
