//! One run of one scenario on one broker, whatever the scenario does.
//!
//! Owns the way from a scenario's parameters to a load, and the names of its figures, which are the
//! same for every broker. What a run has written goes before the next one. Must never know which
//! broker it measures, but for how one is ended and started again.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::process::Signal;

use super::broker::Broker;
use super::client::{Client, Fault, produce_error, produce_frame};
use super::groups;
use super::java;
use super::kafka::{Jars, Kafka};
use super::load::{self, Load, Mode, Outcome};
use super::network;
use super::producer::Protocol;
use super::scenario::{Contestant, Does, Scenario};
use super::tail;
use super::target::{Own, Server};
use super::txn::{self, Throughput};

/// A broker that takes part.
pub struct Contender {
    pub contestant: Contestant,
    pub server: Server,
    /// How it was started, if it is ours.
    pub own: Own,
    /// Topics that hold what is to be read.
    pub filled: Vec<String>,
    /// Records per second of Kafka's own producer in the run before; 0 before the first.
    pub java_rate: f64,
    pub kafka: Option<Kafka>,
}

impl Contender {
    /// One that has run nothing yet.
    pub fn new(contestant: Contestant, server: Server, own: &Own, kafka: Option<Kafka>) -> Self {
        let own = own.clone();
        Contender { contestant, server, own, filled: Vec::new(), java_rate: 0.0, kafka }
    }

    /// Gives back what a scenario has filled; what is ours ends anyway.
    pub fn free(&mut self) -> Result<(), Fault> {
        self.java_rate = 0.0;
        let filled = std::mem::take(&mut self.filled);
        if self.kafka.is_none() || filled.is_empty() {
            return Ok(());
        }
        self.server.signal(Signal::CONT)?;
        for topic in filled {
            forget(&self.server, &topic)?;
        }
        self.server.signal(Signal::STOP)
    }

    /// Starts Apache Kafka again where it has ended meanwhile.
    pub fn revive(&mut self) -> Result<(), Fault> {
        let Some(kafka) = &mut self.kafka else { return Ok(()) };
        if kafka.is_running()? {
            return Ok(());
        }
        eprintln!("starting {} again", self.contestant.name());
        kafka.restart(true)?;
        self.server = Server::foreign(kafka.address(), kafka.pid(), self.own.core());
        self.filled.clear();
        self.server.signal(Signal::STOP)
    }
}

/// One run of one broker.
pub struct Sample {
    pub figures: Vec<(&'static str, f64)>,
    pub latencies: Histogram<u64>,
    /// Microseconds of a request by stage.
    pub stages: Vec<(String, f64)>,
    /// Requests and MiB of memory, second by second.
    pub series: Vec<(f64, f64)>,
}

impl Sample {
    fn of(figures: Vec<(&'static str, f64)>, latencies: Histogram<u64>) -> Sample {
        Sample { figures, latencies, stages: Vec::new(), series: Vec::new() }
    }

    fn without_latencies(figures: Vec<(&'static str, f64)>) -> Result<Sample, Fault> {
        Ok(Sample::of(figures, Histogram::new(3)?))
    }
}

/// Seconds of warm-up and of the measured part.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub warm_up: u64,
    pub measured: u64,
}

/// One run.
pub fn take(
    contender: &mut Contender,
    scenario: &Scenario,
    jars: Option<&Jars>,
    times: Times,
) -> Result<Sample, Fault> {
    match scenario.does {
        Does::Produce => produce(contender, scenario, times),
        Does::Fetch => fetch(contender, scenario, times),
        Does::Tail => {
            let load = scenario.load(times.warm_up, times.measured);
            let tailed = tail::measure(&contender.server, &load)?;
            forget(&contender.server, &load.topic)?;
            let per_second = tailed.latencies.len() as f64 / tailed.seconds;
            let mut figures = quantiles(&tailed.latencies);
            figures.push(("batches_per_second", per_second));
            figures.push(("broker_cores", tailed.used.cpu_seconds / tailed.seconds));
            Ok(Sample::of(figures, tailed.latencies))
        }
        Does::Knee => knee(contender, scenario, times),
        Does::Commit => commit(&contender.server, scenario, times),
        Does::Transact => transact(&contender.server, scenario, times),
        Does::Offsets => offsets(&contender.server, times),
        Does::Restart | Does::Crash => restart(contender, scenario),
        Does::Network => {
            let load = scenario.load(times.warm_up, times.measured);
            let (ours, echo) = network::measure(&contender.server, &contender.own, &load)?;
            Sample::without_latencies(vec![
                ("cpu_us_per_request", ours),
                ("echo_cpu_us_per_request", echo),
                ("ratio_to_echo", ours / echo),
            ])
        }
        Does::ProducerPerformance | Does::ConsumerPerformance | Does::EndToEndLatency => {
            java_program(contender, scenario, jars, times)
        }
    }
}

fn produce(contender: &mut Contender, scenario: &Scenario, times: Times) -> Result<Sample, Fault> {
    let backlog = format!("{}-backlog", scenario.name);
    if scenario.readers > 0 {
        fill(contender, &backlog, scenario.filled_mib)?;
    }
    let server = &contender.server;
    let idle = (0..scenario.idle_connections).map(|_| TcpStream::connect(&server.address));
    let idle: Vec<TcpStream> = idle.collect::<Result<_, _>>()?;
    let load = scenario.load(times.warm_up, times.measured);
    let readers =
        Load { connections: scenario.readers, partitions: 1, topic: backlog, ..load.clone() };
    let (outcome, read) = std::thread::scope(|scope| {
        let reading = (scenario.readers > 0)
            .then(|| scope.spawn(|| load::measure(server, &readers, Mode::Fetch)));
        let outcome = load::measure(server, &load, Mode::Produce);
        (outcome, reading.map(std::thread::ScopedJoinHandle::join))
    });
    let outcome = outcome?;
    let written = outcome.used.written_bytes as f64 / outcome.seconds / 1e6;
    drop(idle);
    forget(server, &load.topic)?;
    let mut sample = sample(outcome);
    sample.figures.push((WRITTEN_MEGABYTES_PER_SECOND, written));
    if let Some(read) = read {
        let read = read.map_err(|_| "the readers' thread failed")??;
        sample.figures.push(("read_megabytes_per_second", read.megabytes_per_second()));
    }
    Ok(sample)
}

fn fetch(contender: &mut Contender, scenario: &Scenario, times: Times) -> Result<Sample, Fault> {
    fill(contender, &scenario.name, scenario.filled_mib)?;
    if scenario.cold {
        drop_page_cache()?;
    }
    let warm_up = if scenario.cold { 0 } else { times.warm_up };
    let load = scenario.load(warm_up, times.measured);
    load::measure(&contender.server, &load, Mode::Fetch).map(sample)
}

/// Rates upwards, until one is not held; downwards if the first is not.
fn knee(contender: &mut Contender, scenario: &Scenario, times: Times) -> Result<Sample, Fault> {
    let mut held = (f64::NAN, Histogram::new(3)?);
    let (mut rate, mut factor) = (FIRST_RATE, RATE_STEP);
    while (LOWEST_RATE..=LAST_RATE).contains(&rate) {
        // Only the first begins with nothing in flight before it.
        let warm_up = if rate == FIRST_RATE { times.warm_up } else { 0 };
        let tried = held_at(contender, scenario, rate, (warm_up, times.measured.div_ceil(2)))?;
        match tried {
            Some(latencies) => held = (rate, latencies),
            // Nothing was held yet: from here on downwards.
            None if held.0.is_nan() => factor = 1.0 / RATE_STEP,
            None => break,
        }
        if factor < 1.0 && held.0.is_finite() {
            break;
        }
        rate *= factor;
    }
    forget(&contender.server, &scenario.name)?;
    let (rate, latencies) = held;
    if rate.is_nan() {
        return Err(format!("not even {LOWEST_RATE} requests a second are held").into());
    }
    let mut figures = vec![("held_requests_per_second", rate)];
    figures.extend(quantiles(&latencies));
    Ok(Sample::of(figures, latencies))
}

/// Latencies at a rate, if that is held at the first or second try: one pause of the machine ends
/// no search.
fn held_at(
    contender: &Contender,
    scenario: &Scenario,
    rate: f64,
    (warm_up, seconds): (u64, u64),
) -> Result<Option<Histogram<u64>>, Fault> {
    for _ in 0..2 {
        let load = Load { rate: rate as u64, ..scenario.load(warm_up, seconds) };
        let outcome = load::measure(&contender.server, &load, Mode::Produce)?;
        let is_held = outcome.requests_per_second() >= HELD_SHARE * rate
            && outcome.us(0.99) <= scenario.p99_us as f64;
        eprintln!("{rate:.0} requests/s {}", if is_held { "held" } else { "not held" });
        if is_held {
            return Ok(Some(outcome.latencies));
        }
    }
    Ok(None)
}

fn commit(server: &Server, scenario: &Scenario, times: Times) -> Result<Sample, Fault> {
    let run = |seconds| {
        let time = Duration::from_secs(seconds);
        let over = (scenario.partitions(), false);
        txn::commits_of(server, Protocol::Two, over, scenario.batch(), time)
    };
    if times.warm_up > 0 {
        run(times.warm_up)?;
    }
    let before = server.usage();
    let commits = run(times.measured)?;
    let used = server.usage().since(&before);
    let (p50_us, p99_us) = commits.end_us();
    // Of those that follow each other: the load pauses after every other one.
    let per_second = 1e9 / commits.in_a_row.mean();
    let figures = vec![
        ("p50_us", p50_us),
        ("p99_us", p99_us),
        ("until_next_p50_us", commits.until_next_us()),
        ("transactions_per_second", per_second),
        ("cpu_us_per_transaction", used.cpu_seconds * 1e6 / commits.transactions),
        ("resident_mib", used.resident_bytes as f64 / MIB),
    ];
    Ok(Sample::of(figures, commits.end_txn))
}

fn transact(server: &Server, scenario: &Scenario, times: Times) -> Result<Sample, Fault> {
    let load = scenario.load(0, 0);
    let wanted = Throughput {
        commit_ms: scenario.commit_ms.max(1),
        records: load.records,
        in_flight: load.in_flight,
        pairs: 0,
    };
    let before = server.usage();
    let mut bytes = Vec::new();
    for _ in 0..times.measured.max(1) {
        bytes.push(txn::bytes_per_second(server, Protocol::Two, &wanted)?);
    }
    let used = server.usage().since(&before);
    let mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
    Sample::without_latencies(vec![
        ("megabytes_per_second", mean / 1e6),
        ("broker_cpu_seconds", used.cpu_seconds),
    ])
}

fn offsets(server: &Server, times: Times) -> Result<Sample, Fault> {
    let before = server.usage();
    let time = Duration::from_secs(times.measured.max(1));
    let (commits, _) = groups::commit_and_produce(server, time)?;
    let used = server.usage().since(&before);
    let mut figures = quantiles(&commits);
    figures.push(("broker_cpu_seconds", used.cpu_seconds));
    Ok(Sample::of(figures, commits))
}

/// From the start of the process until it takes a record.
fn restart(contender: &mut Contender, scenario: &Scenario) -> Result<Sample, Fault> {
    let topic = scenario.name.clone();
    if !contender.filled.contains(&topic) {
        Client::connect(&contender.server.address)?.leaders(&topic, scenario.partitions())?;
    }
    fill(contender, &topic, scenario.filled_mib)?;
    let kill = scenario.does == Does::Crash;
    if kill {
        // What is only in the journal yet is what a start has to read.
        load::fill(&contender.server, &topic, JUST_WRITTEN_BYTES)?;
    }
    let begun = match &mut contender.kafka {
        Some(kafka) => {
            let begun = kafka.restart(kill)?;
            let core = contender.server.core;
            contender.server = Server::foreign(kafka.address(), kafka.pid(), core);
            begun
        }
        None => {
            let broker = contender.server.take_broker()?;
            let launch = if kill { broker.kill()? } else { broker.stop()? };
            let begun = Instant::now();
            contender.server = contender.own.server(Broker::start(launch)?);
            begun
        }
    };
    until_it_takes_a_record(&contender.server.address, &topic)?;
    let took = begun.elapsed();
    let used = contender.server.usage();
    Sample::without_latencies(vec![
        ("start_ms", took.as_secs_f64() * 1e3),
        ("start_cpu_ms", used.cpu_seconds * 1e3),
        ("resident_mib", used.resident_bytes as f64 / MIB),
    ])
}

fn until_it_takes_a_record(address: &str, topic: &str) -> Result<(), Fault> {
    let frame = produce_frame(topic, 0, -1, &load::batch(&Load::one(topic, 0)));
    let deadline = Instant::now() + TAKES_TIMEOUT;
    loop {
        let tried = Client::connect(address).and_then(|mut client| {
            let leader = client.leaders(topic, 1)?.swap_remove(0);
            let mut client = Client::connect(&leader)?;
            client.send(&frame)?;
            Ok(produce_error(client.receive()?, topic))
        });
        match tried {
            Ok(0) => return Ok(()),
            _ if Instant::now() > deadline => return Err("it takes no record again".into()),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn java_program(
    contender: &mut Contender,
    scenario: &Scenario,
    jars: Option<&Jars>,
    times: Times,
) -> Result<Sample, Fault> {
    let jars = jars.ok_or("Kafka's own programs come with Kafka: not without it")?;
    let topic = scenario.name.as_str();
    if scenario.does == Does::ConsumerPerformance {
        fill(contender, topic, scenario.filled_mib)?;
    } else {
        Client::connect(&contender.server.address)?.leaders(topic, scenario.partitions())?;
    }
    let server = &contender.server;
    let client = java::Client { jars, server, properties: &scenario.java };
    let (_, record_bytes) = scenario.batch();
    if scenario.does == Does::ProducerPerformance && contender.java_rate == 0.0 {
        // How much fits into the time is not known before.
        let few = (scenario.java_records / FIRST_JAVA_SHARE).max(1);
        contender.java_rate = client.produce(topic, (few, record_bytes), 0)?.0.records_per_second;
    }
    let (before, begun) = (server.usage(), Instant::now());
    let measured = times.measured.max(1);
    let (found, said, records) = match scenario.does {
        Does::ProducerPerformance => {
            let rate = contender.java_rate.min(scenario.java_records as f64);
            let of = |seconds: u64| (rate * seconds as f64).ceil() as u64;
            let (counted, warm_up) = (of(measured), of(times.warm_up));
            let (found, said) = client.produce(topic, (counted, record_bytes), warm_up)?;
            contender.java_rate = found.records_per_second;
            (found, said, counted + warm_up)
        }
        Does::ConsumerPerformance => {
            let records = load::end_offset(&mut Client::connect(&server.address)?, topic)? as u64;
            let (found, said) = client.consume(topic, records)?;
            (found, said, records)
        }
        _ => {
            let records = scenario.java_records * measured;
            let (found, said) = client.latency(topic, (records, record_bytes))?;
            (found, said, records)
        }
    };
    let used = server.usage().since(&before);
    let seconds = begun.elapsed().as_secs_f64();
    if scenario.does != Does::ConsumerPerformance {
        forget(server, topic)?;
    }
    let gigabytes = (records * record_bytes as u64) as f64 / 1e9;
    let mut figures = vec![("records_per_second", found.records_per_second)];
    for (name, figure) in [
        ("megabytes_per_second", found.megabytes_per_second),
        ("p50_ms", found.p50_ms),
        ("p99_ms", found.p99_ms),
        ("p999_ms", found.p999_ms),
    ] {
        if figure.is_finite() {
            figures.push((name, figure));
        }
    }
    figures.push(("cpu_seconds_per_gb", used.cpu_seconds / gigabytes));
    figures.push(("client_cores", said.cpu_seconds / seconds));
    Sample::without_latencies(figures)
}

/// Fills a topic once.
fn fill(contender: &mut Contender, topic: &str, mib: u64) -> Result<(), Fault> {
    if mib == 0 || contender.filled.iter().any(|filled| filled == topic) {
        return Ok(());
    }
    eprintln!("filling {mib} MiB");
    load::fill(&contender.server, topic, mib << 20)?;
    // What is written behind it is not what is measured.
    std::thread::sleep(AFTER_FILLING);
    contender.filled.push(topic.to_owned());
    Ok(())
}

/// What is written in a few seconds may be gigabytes: it goes before the next run.
pub fn forget(server: &Server, topic: &str) -> Result<(), Fault> {
    Client::connect(&server.address)?.delete_topic(topic)?;
    std::thread::sleep(Duration::from_millis(2 * DELETE_DELAY_MS));
    Ok(())
}

fn drop_page_cache() -> Result<(), Fault> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "1")
        .map_err(|error| format!("the page cache cannot be dropped: {error}").into())
}

fn quantiles(latencies: &Histogram<u64>) -> Vec<(&'static str, f64)> {
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    vec![("p50_us", us(0.5)), ("p99_us", us(0.99)), ("p999_us", us(0.999))]
}

fn sample(outcome: Outcome) -> Sample {
    let mut figures = quantiles(&outcome.latencies);
    figures.extend([
        ("requests_per_second", outcome.requests_per_second()),
        ("megabytes_per_second", outcome.megabytes_per_second()),
        ("cpu_seconds_per_gb", outcome.cpu_seconds_per_gb()),
        ("cpu_seconds_per_million_requests", outcome.cpu_seconds_per_million()),
        ("client_cores", outcome.client_cpu_seconds / outcome.seconds),
        ("resident_mib", outcome.used.resident_bytes as f64 / MIB),
    ]);
    let (stages, series) = (outcome.stages, outcome.series);
    Sample { figures, latencies: outcome.latencies, stages, series }
}

/// What a broker caused to be written to the device, by loads that write.
pub const WRITTEN_MEGABYTES_PER_SECOND: &str = "written_megabytes_per_second";

/// How long the files of a deleted topic stay: all of it goes before a broker is stopped again.
pub const DELETE_DELAY: &str = "log.segment.delete.delay.ms";
/// Of that.
pub const DELETE_DELAY_MS: u64 = 500;

const FIRST_RATE: f64 = 1_000.0;
const LOWEST_RATE: f64 = 50.0;
const LAST_RATE: f64 = 200_000.0;
const RATE_STEP: f64 = 1.6;
/// A rate counts as held if this share of it is answered.
const HELD_SHARE: f64 = 0.98;
/// Of the records of a second, those of the run that finds out how many fit into one.
const FIRST_JAVA_SHARE: u64 = 20;
const AFTER_FILLING: Duration = Duration::from_secs(1);
const JUST_WRITTEN_BYTES: u64 = 256 << 20;
const TAKES_TIMEOUT: Duration = Duration::from_secs(120);
const MIB: f64 = (1 << 20) as f64;
