//! How long starts take: after a crash, by what the journal holds; clean ones, by partitions and by
//! transactional ids.
//!
//! Owns the fills that come before, and the clock: a start has ended when the broker has said that
//! it is ready, and for transactional ids when their coordinator tells all of them.

use std::time::{Duration, Instant};

use clap::Args;
use kafka_protocol::messages::{InitProducerIdRequest, ListTransactionsRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;

use super::broker::{Broker, Launch};
use super::calibrate::load_average;
use super::client::{Client, Coordinator, Fault, accept, frame_of};
use super::load::{self, Load, Mode};
use super::measure::{Usage, median};
use super::metrics::CHECKPOINTS;
use super::report::{Report, number};
use super::target::{Own, Server};

/// Options of `run recovery`.
#[derive(Args, Clone, Debug)]
pub struct RecoveryArguments {
    #[command(flatten)]
    own: Own,
    /// MiB of batches in the journal at the crash
    #[arg(long, default_value_t = 1024)]
    journal_mib: u64,
    /// MiB of batches in segments at another crash, with a journal of the ordinary size; 0 for none
    #[arg(long, default_value_t = 0)]
    retained_mib: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `run starts`.
#[derive(Args, Clone, Debug)]
pub struct StartsArguments {
    #[command(flatten)]
    own: Own,
    /// Partitions with a record each
    #[arg(long, default_value_t = 1000)]
    partitions: i32,
    /// Transactional ids
    #[arg(long, default_value_t = 100_000)]
    ids: usize,
    /// Starts of each kind
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A crash, and the starts after it and after a clean stop.
pub struct Recovered {
    /// What was in the journal, and not in an image.
    pub gigabytes: f64,
    pub crashed_seconds: f64,
    pub clean_seconds: f64,
}

impl Recovered {
    pub fn seconds_per_gigabyte(&self) -> f64 {
        (self.crashed_seconds - self.clean_seconds).max(0.0) / self.gigabytes
    }
}

/// Crashes a broker, and prints the report.
pub fn run(arguments: &RecoveryArguments) -> Result<(), Fault> {
    let recovered = recover(&arguments.own, arguments.journal_mib)?;
    let mut report = Report::new("recovery");
    report.add("load_average", number(load_average()));
    report.add("journal_gb", number(recovered.gigabytes));
    report.add("start_after_crash_s", number(recovered.crashed_seconds));
    report.add("start_after_stop_s", number(recovered.clean_seconds));
    report.add("recovery_s_per_gb", number(recovered.seconds_per_gigabyte()));
    if arguments.retained_mib > 0 {
        let retained = start_with_retained(&arguments.own, arguments.retained_mib)?;
        report.add("start_after_crash_with_retained_s", number(retained.seconds));
        report.add("journal_with_retained_gb", number(retained.journal_gigabytes));
    }
    report.print(arguments.json);
    Ok(())
}

/// Fills a journal so far, kills the broker, and starts it twice.
pub fn recover(own: &Own, journal_mib: u64) -> Result<Recovered, Fault> {
    // A checkpoint begins when half of the ring is in use: not here.
    let set = format!("journal.ring.bytes={}MiB", 4 * journal_mib);
    let server = own.start(&["--set", &set, "--set", "checkpoint_interval_ms=1h"])?;
    load::fill(&server, "fill", journal_mib << 20)?;
    let before = server.scrape()?.get(CHECKPOINTS);
    if before > 0.0 {
        return Err("a checkpoint has emptied the journal".into());
    }
    let in_use = server.scrape()?.get("ringlog_journal_ring_used_bytes");
    let broker = Broker::start(server.into_broker()?.kill()?)?;
    let crashed_seconds = broker.start_up().as_secs_f64();
    let broker = Broker::start(broker.stop()?)?;
    let clean_seconds = broker.start_up().as_secs_f64();
    Ok(Recovered { gigabytes: in_use / 1e9, crashed_seconds, clean_seconds })
}

/// A start after a crash with much in segments.
pub struct Retained {
    pub seconds: f64,
    /// What was in the journal.
    pub journal_gigabytes: f64,
}

/// Has so much in segments, and in the journal always the same, and starts after a crash.
pub fn start_with_retained(own: &Own, retained_mib: u64) -> Result<Retained, Fault> {
    let server = own.start(&["--set", "checkpoint_interval_ms=1h"])?;
    load::fill(&server, "retained", retained_mib << 20)?;
    // A checkpoint begins when half of the ring is in use: after one, so much is in it.
    let before = server.scrape()?.get(CHECKPOINTS);
    while server.scrape()?.get(CHECKPOINTS) == before {
        load::fill(&server, "retained", 1 << 20)?;
    }
    load::fill(&server, "retained", RETAINED_JOURNAL_BYTES)?;
    let in_use = server.scrape()?.get("ringlog_journal_ring_used_bytes");
    let launch = server.into_broker()?.kill()?;
    // What the file system has not written yet is the load's, not the start's.
    rustix::fs::sync();
    let seconds = Broker::start(launch)?.start_up().as_secs_f64();
    Ok(Retained { seconds, journal_gigabytes: in_use / 1e9 })
}

/// Starts brokers on much and on little, and prints the report.
pub fn run_starts(arguments: &StartsArguments) -> Result<(), Fault> {
    let partitions_ms = clean_starts(&arguments.own, arguments.partitions, arguments.starts)?;
    let mut report = Report::new("starts");
    report.add("load_average", number(load_average()));
    report.add("partitions", arguments.partitions);
    report.add("start_with_partitions_median_ms", number(median(&partitions_ms)));
    let ids = id_starts(&arguments.own, arguments.ids, arguments.starts)?;
    report.add("transactional_ids", arguments.ids);
    for (name, starts) in [("without", &ids.without), ("with", &ids.with)] {
        let mut add = |figure: &str, of: fn(&Start) -> f64| {
            report.add(&figure.replace('*', name), number(median_of(starts, of)));
        };
        add("start_*_ids_median_ms", |start| start.ready_ms);
        add("ids_told_*_ids_median_ms", |start| start.told_ms);
        add("ids_told_*_ids_median_cpu_ms", |start| start.told_cpu_ms);
    }
    report.add("ids_told_after_crash_ms", number(ids.after_crash.told_ms));
    report.add("ids_told_after_crash_cpu_ms", number(ids.after_crash.told_cpu_ms));
    report.print(arguments.json);
    Ok(())
}

/// Milliseconds of clean starts with so many partitions, each of which has a record.
pub fn clean_starts(own: &Own, partitions: i32, starts: usize) -> Result<Vec<f64>, Fault> {
    let server = own.start(&[])?;
    let touch = Load { partitions, in_flight: 64, ..Load::one("wide", 1) };
    load::measure(&server, &touch, Mode::Produce)?;
    let mut launch = server.into_broker()?.stop()?;
    let mut milliseconds = Vec::new();
    for _ in 0..starts {
        let broker = Broker::start(launch)?;
        milliseconds.push(broker.start_up().as_secs_f64() * 1e3);
        launch = broker.stop()?;
    }
    Ok(milliseconds)
}

/// One start, in milliseconds from its begin.
#[derive(Clone, Copy)]
pub struct Start {
    pub ready_ms: f64,
    /// Until all transactional ids are told.
    pub told_ms: f64,
    /// What the broker had used of the processor by then: a busy machine takes its time.
    pub told_cpu_ms: f64,
}

/// Clean starts with one transactional id and with many, and that one after the broker was killed
/// that had just made them.
pub struct IdStarts {
    pub without: Vec<Start>,
    pub with: Vec<Start>,
    pub after_crash: Start,
}

impl IdStarts {
    /// What the ids add until their coordinator tells them.
    pub fn added_seconds(&self) -> f64 {
        let of = |starts| median_of(starts, |start| start.told_ms);
        (of(&self.with) - of(&self.without)) / 1e3
    }
}

/// Median of a figure of starts.
pub fn median_of(starts: &[Start], figure: impl Fn(&Start) -> f64) -> f64 {
    median(&starts.iter().map(figure).collect::<Vec<_>>())
}

/// Starts with one transactional id, and with many more.
pub fn id_starts(own: &Own, ids: usize, starts: usize) -> Result<IdStarts, Fault> {
    let server = own.start(&[])?;
    make_ids(&server, 0..1)?;
    let (without, launch) = clean_id_starts(server.into_broker()?.stop()?, 1, starts)?;
    let server = own.server(Broker::start(launch)?);
    make_ids(&server, 1..ids)?;
    let (after_crash, broker) = start_until_told(server.into_broker()?.kill()?, ids)?;
    let (with, _) = clean_id_starts(broker.stop()?, ids, starts)?;
    Ok(IdStarts { without, with, after_crash })
}

fn clean_id_starts(
    mut launch: Launch,
    ids: usize,
    starts: usize,
) -> Result<(Vec<Start>, Launch), Fault> {
    let mut all = Vec::new();
    for _ in 0..starts {
        let (start, broker) = start_until_told(launch, ids)?;
        all.push(start);
        launch = broker.stop()?;
    }
    Ok((all, launch))
}

fn start_until_told(launch: Launch, ids: usize) -> Result<(Start, Broker), Fault> {
    let begun = Instant::now();
    let broker = Broker::start(launch)?;
    until_told(broker.address(), ids)?;
    let told_ms = begun.elapsed().as_secs_f64() * 1e3;
    let told_cpu_ms = Usage::of(broker.pid()).cpu_seconds * 1e3;
    Ok((Start { ready_ms: broker.start_up().as_secs_f64() * 1e3, told_ms, told_cpu_ms }, broker))
}

/// Waits until the coordinators of one node tell of so many ids.
fn until_told(address: &str, ids: usize) -> Result<(), Fault> {
    let mut client = Client::connect(address)?;
    let request = ListTransactionsRequest::default();
    let deadline = Instant::now() + TOLD_TIMEOUT;
    loop {
        let told = client.ask_loaded(0, &request, |answer| answer.error_code)?;
        accept("ListTransactions", told.error_code)?;
        if told.transaction_states.len() >= ids {
            return Ok(());
        }
        if Instant::now() > deadline {
            let known = told.transaction_states.len();
            return Err(format!("of {ids} transactional ids {known} are told").into());
        }
    }
}

/// Makes transactional ids, on a few connections at a time.
pub fn make_ids(server: &Server, numbers: std::ops::Range<usize>) -> Result<(), Fault> {
    let name_of = |number: usize| format!("id-{number:08}");
    let request_of = |number: usize| {
        let id = TransactionalId(StrBytes::from_string(name_of(number)));
        InitProducerIdRequest::default()
            .with_transactional_id(Some(id))
            .with_transaction_timeout_ms(60_000)
    };
    let mut first = Client::connect(&server.address)?;
    let mut loaded = first.coordinator(Coordinator::Transaction, &name_of(numbers.start))?;
    loaded.ask_loaded(4, &request_of(numbers.start), |answer| answer.error_code)?;
    let mut clients = Vec::new();
    for _ in 0..MAKERS {
        clients.push(Client::connect(&server.address)?);
    }
    let numbers: Vec<usize> = numbers.collect();
    for numbers in numbers.chunks(MAKERS) {
        let clients = &mut clients[..numbers.len()];
        for (client, &number) in clients.iter_mut().zip(numbers) {
            client.send(&frame_of(4, &request_of(number))?)?;
        }
        for client in clients {
            let made = client.answer::<InitProducerIdRequest>(4)?;
            accept("InitProducerId", made.error_code)?;
        }
    }
    Ok(())
}

const MAKERS: usize = 64;
const RETAINED_JOURNAL_BYTES: u64 = 32 << 20;
const TOLD_TIMEOUT: Duration = Duration::from_secs(60);
