//! One run of load: connections on threads, latencies from the intended time of sending.
//!
//! With a rate, requests are sent on a fixed timeline and a late answer delays nothing but counts
//! in full (no coordinated omission). Without one, each connection keeps its requests in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringlog::batch::{BatchBuilder, CompressionTarget};

use super::RunArguments;
use super::client::{
    Client, Fault, fetch_frame, fetch_records, next_offset, produce_error, produce_frame,
};
use super::measure::Usage;

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
    pub latencies: Histogram<u64>,
}

impl Outcome {
    pub fn us(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn cpu_seconds_per_gb(&self) -> f64 {
        per(self.used.cpu_seconds, self.bytes, 1e9)
    }

    pub fn cpu_seconds_per_million(&self) -> f64 {
        per(self.used.cpu_seconds, self.requests, 1e6)
    }

    pub fn write_amplification(&self) -> f64 {
        per(self.used.written_bytes as f64, self.bytes, 1.0)
    }
}

/// `amount` per `unit` of `count`.
fn per(amount: f64, count: u64, unit: f64) -> f64 {
    amount / (count.max(1) as f64 / unit)
}

/// Runs the load and prints the report.
pub fn run(arguments: &RunArguments) -> Result<(), Fault> {
    report(arguments, &measure(arguments)?);
    Ok(())
}

/// Runs the load; a line per second on standard error says how it goes.
pub fn measure(arguments: &RunArguments) -> Result<Outcome, Fault> {
    let mut client = Client::connect(&arguments.bootstrap)?;
    let leaders = client.leaders(&arguments.topic, arguments.partitions)?;
    let shared = Arc::new(Shared::default());
    let threads: Vec<_> = (0..arguments.connections)
        .map(|number| {
            let arguments = arguments.clone();
            let shared = Arc::clone(&shared);
            let leaders = leaders.clone();
            std::thread::spawn(move || {
                // Only these threads: a broker started later must not inherit the pin.
                if let Some(core) = arguments.core {
                    core_affinity::set_for_current(core_affinity::CoreId { id: core });
                }
                let part = match arguments.mode.as_str() {
                    "fetch" => fetch(&arguments, &shared, &leaders, number),
                    _ => produce(&arguments, &shared, &leaders, number),
                };
                // One that fails ends all.
                shared.over.store(true, Ordering::SeqCst);
                part
            })
        })
        .collect();
    watch(&shared, arguments.warm_up_seconds, "warm-up");
    let pid = arguments.pid.unwrap_or(0);
    let before = Usage::of(pid);
    let begun = Instant::now();
    shared.measuring.store(true, Ordering::SeqCst);
    watch(&shared, arguments.seconds, &arguments.mode);
    shared.measuring.store(false, Ordering::SeqCst);
    let seconds = begun.elapsed().as_secs_f64();
    let used = Usage::of(pid).since(&before);
    shared.over.store(true, Ordering::SeqCst);
    let mut latencies = Histogram::<u64>::new(3)?;
    for thread in threads {
        latencies.add(thread.join().map_err(|_| "a connection's thread failed")??)?;
    }
    let (requests, bytes) =
        (shared.requests.load(Ordering::SeqCst), shared.bytes.load(Ordering::SeqCst));
    let requests_in_all = shared.all.load(Ordering::SeqCst);
    Ok(Outcome { seconds, requests, requests_in_all, bytes, used, latencies })
}

/// Waits, and says once a second what was done in it.
fn watch(shared: &Shared, seconds: u64, name: &str) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seen = shared.all.load(Ordering::Relaxed);
    for second in 1..=seconds {
        let tick = (end - Duration::from_secs(seconds - second)).min(end);
        while Instant::now() < tick {
            if shared.over.load(Ordering::SeqCst) {
                return;
            }
            let left = tick.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        let all = shared.all.load(Ordering::Relaxed);
        eprintln!("{name} {second}/{seconds} s: {} requests/s", all - seen);
        seen = all;
    }
}

fn report(arguments: &RunArguments, outcome: &Outcome) {
    if arguments.json {
        let object = serde_json::json!({
            "mode": arguments.mode, "connections": arguments.connections,
            "in_flight": arguments.in_flight, "record_bytes": arguments.record_bytes,
            "records": arguments.records, "partitions": arguments.partitions,
            "requests_per_second": outcome.requests as f64 / outcome.seconds,
            "megabytes_per_second": outcome.bytes as f64 / outcome.seconds / 1e6,
            "p50_us": outcome.us(0.5), "p99_us": outcome.us(0.99), "p999_us": outcome.us(0.999),
            "broker_cpu_seconds_per_gb": outcome.cpu_seconds_per_gb(),
            "broker_cpu_seconds_per_million_requests": outcome.cpu_seconds_per_million(),
            "write_amplification": outcome.write_amplification(),
            "resident_bytes": outcome.used.resident_bytes,
        });
        println!("{object}");
        return;
    }
    println!(
        "{:<8} {} connections x {} in flight, {} records of {} B, {} partitions",
        arguments.mode,
        arguments.connections,
        arguments.in_flight,
        arguments.records,
        arguments.record_bytes,
        arguments.partitions
    );
    println!(
        "  {:.0} requests/s, {:.1} MB/s, latency p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us",
        outcome.requests as f64 / outcome.seconds,
        outcome.bytes as f64 / outcome.seconds / 1e6,
        outcome.us(0.5),
        outcome.us(0.99),
        outcome.us(0.999)
    );
    println!(
        "  broker: {:.2} cores, {:.2} CPU-s per GB, {:.1} CPU-s per million requests, \
         {:.2} bytes written per byte, {} MiB resident",
        outcome.used.cpu_seconds / outcome.seconds,
        outcome.cpu_seconds_per_gb(),
        outcome.cpu_seconds_per_million(),
        outcome.write_amplification(),
        outcome.used.resident_bytes >> 20
    );
}

/// Batch of one request.
fn batch(arguments: &RunArguments) -> Vec<u8> {
    let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed);
    // Not compressible, so that nothing on the way can cheat.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for record in 0..arguments.records.max(1) {
        let mut value = vec![0u8; arguments.record_bytes];
        for byte in &mut value {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(record as u64 | 1);
            *byte = (state >> 56) as u8;
        }
        builder.push(1_700_000_000_000, None, Some(&value), &[]);
    }
    builder.finish()
}

fn produce(
    arguments: &RunArguments,
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
    let batch = batch(arguments);
    let frames: Vec<Vec<u8>> = mine
        .iter()
        .map(|&partition| produce_frame(&arguments.topic, partition, arguments.acks, &batch))
        .collect();
    let mut client = Client::connect(node)?;
    let mut histogram = Histogram::new(3)?;
    let mut intended: VecDeque<Instant> = VecDeque::new();
    let interval = (arguments.rate > 0)
        .then(|| Duration::from_secs_f64(arguments.connections as f64 / arguments.rate as f64));
    let mut due = Instant::now();
    let mut next = number;
    loop {
        while intended.len() < arguments.in_flight {
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
        if interval.is_some()
            && intended.len() < arguments.in_flight
            && !client.readable_before(due)?
        {
            continue;
        }
        let code = produce_error(client.receive()?, &arguments.topic);
        if code != 0 {
            return Err(format!("Produce was answered with error {code}").into());
        }
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

fn fetch(
    arguments: &RunArguments,
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
        client.send(&fetch_frame(&arguments.topic, partition as i32, offset, FETCH_BYTES))?;
        let (code, records) = fetch_records(client.receive()?, &arguments.topic);
        if code != 0 {
            return Err(format!("Fetch was answered with error {code}").into());
        }
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
