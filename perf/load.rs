//! One run of load: connections on threads, latencies from the intended time of sending.
//!
//! With a rate, requests are sent on a fixed timeline and a late answer delays nothing but counts
//! in full (no coordinated omission). Without one, each connection keeps its requests in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{ListOffsetsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use ringlog::batch::{BatchBuilder, CompressionTarget};
use ringlog::io::clock::wall_ms;

use super::calibrate::Floors;
use super::client::{
    Client, Fault, accept, fetch_frame, fetch_records, next_offset, produce_error, produce_frame,
};
use super::measure::Usage;
use super::metrics::JOURNAL_COMMITS;
use super::report::{Figures, Report, figures, number};
use super::target::{Server, Target};

/// What is done to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Append batches.
    Produce,
    /// Read what is there, from the begin, again and again.
    Fetch,
}

/// One load.
#[derive(Args, Clone, Debug)]
pub struct Load {
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
    /// Records have keys, each another one
    #[arg(long)]
    pub keyed: bool,
    /// acks of Produce: -1, 1, or 0 for no answer
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
}

impl Load {
    /// One connection with one request of one record in flight.
    #[must_use]
    pub fn one(topic: &str, seconds: u64) -> Load {
        Load {
            topic: topic.to_owned(),
            partitions: 1,
            connections: 1,
            in_flight: 1,
            record_bytes: 1024,
            records: 1,
            keyed: false,
            acks: -1,
            rate: 0,
            seconds,
            warm_up_seconds: 1,
        }
    }

    fn figures(&self) -> Figures {
        figures([
            ("partitions", self.partitions.into()),
            ("connections", self.connections.into()),
            ("in_flight", self.in_flight.into()),
            ("record_bytes", self.record_bytes.into()),
            ("records", self.records.into()),
            ("acks", self.acks.into()),
        ])
    }
}

/// Options of `run produce` and `run fetch`.
#[derive(Args, Clone, Debug)]
pub struct LoadArguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    load: Load,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Shared {
    measuring: AtomicBool,
    over: AtomicBool,
    all: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// What a run came to.
pub struct Outcome {
    pub seconds: f64,
    /// Requests that were measured, and those of warm-up and end too.
    pub requests: u64,
    pub requests_in_all: u64,
    pub bytes: u64,
    pub used: Usage,
    /// CPU-seconds of this program meanwhile.
    pub client_cpu_seconds: f64,
    /// Each second of the measured part: requests, and memory of the broker in MiB.
    pub series: Vec<(f64, f64)>,
    /// Microseconds that a request was in each stage, on average, where the broker tells.
    pub stages: Vec<(String, f64)>,
    /// Blocks that the journal wrote for the requests in all; 0 where the broker does not tell.
    pub journal_commits: f64,
    pub latencies: Histogram<u64>,
}

impl Outcome {
    pub fn us(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    pub fn cpu_seconds_per_gb(&self) -> f64 {
        per(self.used.cpu_seconds, self.bytes, 1e9)
    }

    pub fn cpu_seconds_per_million(&self) -> f64 {
        per(self.used.cpu_seconds, self.requests, 1e6)
    }

    pub fn requests_per_commit(&self) -> f64 {
        self.requests_in_all as f64 / self.journal_commits
    }

    fn figures(&self) -> Figures {
        figures([
            ("requests_per_second", number(self.requests_per_second())),
            ("megabytes_per_second", number(self.megabytes_per_second())),
            ("p50_us", number(self.us(0.5))),
            ("p99_us", number(self.us(0.99))),
            ("p999_us", number(self.us(0.999))),
            ("requests_per_journal_commit", number(self.requests_per_commit())),
            ("broker_cores", number(self.used.cpu_seconds / self.seconds)),
            ("broker_cpu_seconds_per_gb", number(self.cpu_seconds_per_gb())),
            ("broker_cpu_seconds_per_million_requests", number(self.cpu_seconds_per_million())),
            ("write_amplification", number(per(self.used.written_bytes as f64, self.bytes, 1.0))),
            ("resident_bytes", self.used.resident_bytes.into()),
        ])
    }
}

/// `amount` per `unit` of `count`.
fn per(amount: f64, count: u64, unit: f64) -> f64 {
    amount / (count.max(1) as f64 / unit)
}

/// Runs the load and prints the report.
pub fn run(arguments: &LoadArguments, mode: Mode) -> Result<(), Fault> {
    let server = arguments.target.server()?;
    let load = &arguments.load;
    let name = match mode {
        Mode::Produce => "produce",
        Mode::Fetch => "fetch",
    };
    if mode == Mode::Fetch && arguments.target.bootstrap.is_none() {
        // There is nothing to be read yet.
        fill(&server, &load.topic, FILLED_BYTES)?;
    }
    let mut report = Report::new(name);
    report.add_all(Floors::take(&arguments.target.own.data_dir, server.core)?.figures());
    report.add_all(load.figures());
    report.add_all(measure(&server, load, mode)?.figures());
    report.print(arguments.json);
    Ok(())
}

/// Runs the load; a line per second on standard error says how it goes.
pub fn measure(server: &Server, load: &Load, mode: Mode) -> Result<Outcome, Fault> {
    let leaders = Client::connect(&server.address)?.leaders(&load.topic, load.partitions)?;
    let metrics = server.scrape()?;
    let shared = Arc::new(Shared::default());
    let threads: Vec<_> = (0..load.connections)
        .map(|number| {
            let load = load.clone();
            let shared = Arc::clone(&shared);
            let leaders = leaders.clone();
            let core = server.core;
            std::thread::spawn(move || {
                // Only these threads: a broker started later must not inherit the pin.
                core_affinity::set_for_current(core_affinity::CoreId { id: core });
                let part = match mode {
                    Mode::Fetch => fetch(&load, &shared, &leaders, number),
                    Mode::Produce => produce(&load, &shared, &leaders, number),
                };
                // One that fails ends all.
                shared.over.store(true, Ordering::SeqCst);
                part
            })
        })
        .collect();
    watch(server, &shared, load.warm_up_seconds, "warm-up");
    let (before, own) = (server.usage(), Usage::of(std::process::id()));
    let begun = Instant::now();
    shared.measuring.store(true, Ordering::SeqCst);
    let series = watch(server, &shared, load.seconds, "measured");
    shared.measuring.store(false, Ordering::SeqCst);
    let seconds = begun.elapsed().as_secs_f64();
    let used = server.usage().since(&before);
    let client_cpu_seconds = Usage::of(std::process::id()).since(&own).cpu_seconds;
    shared.over.store(true, Ordering::SeqCst);
    let mut latencies = Histogram::<u64>::new(3)?;
    for thread in threads {
        latencies.add(thread.join().map_err(|_| "a connection's thread failed")??)?;
    }
    let after = server.scrape()?;
    let request = if mode == Mode::Produce { "Produce" } else { "Fetch" };
    Ok(Outcome {
        seconds,
        requests: shared.requests.load(Ordering::SeqCst),
        requests_in_all: shared.all.load(Ordering::SeqCst),
        bytes: shared.bytes.load(Ordering::SeqCst),
        used,
        client_cpu_seconds,
        series,
        stages: after.stages_since(&metrics, request),
        journal_commits: after.since(&metrics, JOURNAL_COMMITS),
        latencies,
    })
}

/// Waits, and says once a second what was done in it, and what memory the broker had then.
fn watch(server: &Server, shared: &Shared, seconds: u64, name: &str) -> Vec<(f64, f64)> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seen = shared.all.load(Ordering::Relaxed);
    let mut series = Vec::new();
    for second in 1..=seconds {
        let tick = (end - Duration::from_secs(seconds - second)).min(end);
        while Instant::now() < tick {
            if shared.over.load(Ordering::SeqCst) {
                return series;
            }
            let left = tick.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        let all = shared.all.load(Ordering::Relaxed);
        eprintln!("{name} {second}/{seconds} s: {} requests/s", all - seen);
        let resident_mib = server.usage().resident_bytes as f64 / (1 << 20) as f64;
        series.push(((all - seen) as f64, resident_mib));
        seen = all;
    }
    series
}

/// Batch of one request.
#[must_use]
pub fn batch(load: &Load) -> Vec<u8> {
    let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed);
    // Not compressible, so that nothing on the way can cheat.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for record in 0..load.records.max(1) {
        let key = format!("key-{:012}", state >> 24);
        let mut value = vec![0u8; load.record_bytes];
        for byte in &mut value {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(record as u64 | 1);
            *byte = (state >> 56) as u8;
        }
        let key = load.keyed.then_some(key.as_bytes());
        builder.push(wall_ms(), key, Some(&value), &[]);
    }
    builder.finish()
}

fn produce(
    load: &Load,
    shared: &Shared,
    leaders: &[String],
    number: usize,
) -> Result<Histogram<u64>, Fault> {
    // Each connection goes to one node and to the partitions that it leads.
    let node = &leaders[number % leaders.len()];
    let mine: Vec<i32> = (0..leaders.len())
        .filter(|&partition| &leaders[partition] == node)
        .map(|partition| partition as i32)
        .collect();
    let batch = batch(load);
    let frames: Vec<Vec<u8>> = mine
        .iter()
        .map(|&partition| produce_frame(&load.topic, partition, load.acks, &batch))
        .collect();
    let mut client = Client::connect(node)?;
    let mut histogram = Histogram::new(3)?;
    let mut intended: VecDeque<Instant> = VecDeque::new();
    let interval = (load.rate > 0)
        .then(|| Duration::from_secs_f64(load.connections as f64 / load.rate as f64));
    let mut due = Instant::now();
    let mut next = number;
    if load.acks == 0 {
        produce_unanswered(load, shared, &mut client, (&frames, batch.len()))?;
        return Ok(histogram);
    }
    loop {
        while intended.len() < load.in_flight {
            if let Some(interval) = interval {
                let now = Instant::now();
                if due > now {
                    if !intended.is_empty() {
                        break;
                    }
                    std::thread::sleep(due - now);
                }
                intended.push_back(due);
                due += interval;
            } else {
                intended.push_back(Instant::now());
            }
            client.send(&frames[next % frames.len()])?;
            next += 1;
        }
        // Until the next request is due, an answer may come; not longer.
        if interval.is_some() && intended.len() < load.in_flight && !client.readable_before(due)? {
            continue;
        }
        accept("Produce", produce_error(client.receive()?, &load.topic))?;
        shared.all.fetch_add(1, Ordering::Relaxed);
        let sent = intended.pop_front().ok_or("an answer too many")?;
        if shared.measuring.load(Ordering::Relaxed) {
            histogram.record(sent.elapsed().as_nanos() as u64)?;
            shared.requests.fetch_add(1, Ordering::Relaxed);
            shared.bytes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
        if shared.over.load(Ordering::Relaxed) {
            return Ok(histogram);
        }
    }
}

/// Appends so many bytes of batches of 64 KiB to a topic of one partition.
pub fn fill(server: &Server, topic: &str, bytes: u64) -> Result<(), Fault> {
    let leader = Client::connect(&server.address)?.leaders(topic, 1)?.swap_remove(0);
    let batch = batch(&Load { records: 64, ..Load::one(topic, 0) });
    let frame = produce_frame(topic, 0, -1, &batch);
    let mut client = Client::connect(&leader)?;
    let batches = bytes.div_ceil(batch.len() as u64);
    for number in 0..batches + FILLS_IN_FLIGHT {
        if number < batches {
            client.send(&frame)?;
        }
        if number >= FILLS_IN_FLIGHT {
            accept("Produce", produce_error(client.receive()?, topic))?;
        }
    }
    Ok(())
}

/// The end of partition 0 of a topic.
pub fn end_offset(client: &mut Client, topic: &str) -> Result<i64, Fault> {
    let partition =
        ListOffsetsPartition::default().with_timestamp(-1).with_current_leader_epoch(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partitions(vec![partition]);
    let ask = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let answer = client.ask(4, &ask)?;
    let found = answer.topics.first().and_then(|topic| topic.partitions.first());
    accept("ListOffsets", found.map_or(-1, |partition| partition.error_code))?;
    Ok(found.map_or(0, |partition| partition.offset))
}

/// Sends without answers, for as long as it takes; the broker has read all of it in the end.
fn produce_unanswered(
    load: &Load,
    shared: &Shared,
    client: &mut Client,
    (frames, bytes): (&[Vec<u8>], usize),
) -> Result<(), Fault> {
    for frame in frames.iter().cycle() {
        client.send(frame)?;
        shared.all.fetch_add(1, Ordering::Relaxed);
        if shared.measuring.load(Ordering::Relaxed) {
            shared.requests.fetch_add(1, Ordering::Relaxed);
            shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if shared.over.load(Ordering::Relaxed) {
            break;
        }
    }
    // A refused batch would have closed the connection.
    client.leaders(&load.topic, load.partitions).map(drop)
}

fn fetch(
    load: &Load,
    shared: &Shared,
    leaders: &[String],
    number: usize,
) -> Result<Histogram<u64>, Fault> {
    let partition = number % leaders.len();
    let mut client = Client::connect(&leaders[partition])?;
    let mut histogram = Histogram::new(3)?;
    let mut offset = 0;
    while !shared.over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.send(&fetch_frame(&load.topic, partition as i32, offset, FETCH_BYTES))?;
        let (code, records) = fetch_records(client.receive()?, &load.topic);
        accept("Fetch", code)?;
        shared.all.fetch_add(1, Ordering::Relaxed);
        if shared.measuring.load(Ordering::Relaxed) && !records.is_empty() {
            histogram.record(begun.elapsed().as_nanos() as u64)?;
            shared.requests.fetch_add(1, Ordering::Relaxed);
            shared.bytes.fetch_add(records.len() as u64, Ordering::Relaxed);
        }
        // At the end it begins again.
        offset = next_offset(records).unwrap_or(0);
    }
    Ok(histogram)
}

const FETCH_BYTES: i32 = 1024 * 1024;
const FILLS_IN_FLIGHT: u64 = 8;
/// What a broker that is started for it has to be fetched.
const FILLED_BYTES: u64 = 256 << 20;
