//! Reading what is not in memory: in order, against what the device gives, and at random, against
//! what is returned.
//!
//! Owns a broker with little memory, restarted after the fill. Bytes that it reads are those that
//! it counts itself.

use std::path::Path;

use clap::Args;

use super::broker::Broker;
use super::calibrate::{self, load_average};
use super::client::{Client, Fault, accept, fetch_frame, fetch_records};
use super::load::{self, Load, Mode, Outcome};
use super::metrics::{SEGMENT_BYTES_AHEAD, SEGMENT_BYTES_READ};
use super::report::{Report, number};
use super::target::{Own, Server};

/// Options of `run cold`.
#[derive(Args, Clone, Debug)]
pub struct ColdArguments {
    #[command(flatten)]
    own: Own,
    /// MiB of batches of 64 KiB
    #[arg(long, default_value_t = 1024)]
    fill_mib: u64,
    /// Length of reading in order
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Reads at random, of each size
    #[arg(long, default_value_t = 500)]
    reads: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reading in order.
pub struct Sequential {
    pub outcome: Outcome,
    /// Bytes per second that the device gives, before and after.
    pub device: f64,
    pub read_bytes: f64,
    pub ahead_bytes: f64,
}

impl Sequential {
    pub fn share_of_device(&self) -> f64 {
        self.outcome.bytes as f64 / self.outcome.seconds / self.device
    }
}

/// Reading at random, so many bytes at most per fetch.
pub struct Random {
    pub asked_bytes: i32,
    pub returned_bytes: f64,
    pub read_bytes: f64,
}

impl Random {
    pub fn amplification(&self) -> f64 {
        self.read_bytes / self.returned_bytes.max(1.0)
    }
}

/// Takes all figures and prints the report.
pub fn run(arguments: &ColdArguments) -> Result<(), Fault> {
    let load = Load::one(TOPIC, arguments.seconds);
    let (sequential, random) =
        measure(&arguments.own, arguments.fill_mib << 20, &load, arguments.reads)?;
    let mut report = Report::new("cold");
    report.add("load_average", number(load_average()));
    report.add("device_mb_per_s", number(sequential.device / 1e6));
    report.add("fetched_mb_per_s", number(sequential.outcome.megabytes_per_second()));
    report.add("share_of_device", number(sequential.share_of_device()));
    report.add("cpu_seconds_per_gb", number(sequential.outcome.cpu_seconds_per_gb()));
    report.add("sequential_read_bytes", number(sequential.read_bytes));
    report.add("sequential_read_ahead_bytes", number(sequential.ahead_bytes));
    for random in &random {
        let name = format!("random_{}_kib_read_per_returned", random.asked_bytes / 1024);
        report.add(&name, number(random.amplification()));
    }
    report.print(arguments.json);
    Ok(())
}

/// Fills a topic, starts the broker anew with little memory, and reads.
pub fn measure(
    own: &Own,
    fill_bytes: u64,
    load: &Load,
    reads: u64,
) -> Result<(Sequential, Vec<Random>), Fault> {
    let server = own.start(&["--memory", "64MiB"])?;
    load::fill(&server, &load.topic, fill_bytes)?;
    let launch = server.into_broker()?.stop()?;
    let before = device_rate(launch.data_dir(), &load.topic)?;
    let server = own.server(Broker::start(launch)?);
    let earlier = server.scrape()?;
    let outcome = load::measure(&server, load, Mode::Fetch)?;
    let later = server.scrape()?;
    let mut random = Vec::new();
    for asked_bytes in [64 << 10, 256 << 10, 1 << 20] {
        random.push(at_random(&server, &load.topic, asked_bytes, reads)?);
    }
    let launch = server.into_broker()?.stop()?;
    let device = (before + device_rate(launch.data_dir(), &load.topic)?) / 2.0;
    let sequential = Sequential {
        outcome,
        device,
        read_bytes: later.since(&earlier, SEGMENT_BYTES_READ),
        ahead_bytes: later.since(&earlier, SEGMENT_BYTES_AHEAD),
    };
    Ok((sequential, random))
}

/// Fetches at offsets that follow no order.
fn at_random(server: &Server, topic: &str, asked: i32, reads: u64) -> Result<Random, Fault> {
    let leader = Client::connect(&server.address)?.leaders(topic, 1)?.swap_remove(0);
    let mut client = Client::connect(&leader)?;
    let end = load::end_offset(&mut client, topic)?;
    let earlier = server.scrape()?;
    let (mut returned_bytes, mut state) = (0.0, asked as u64 | 1);
    for _ in 0..reads {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let offset = (state >> 33) as i64 % end.max(1);
        client.send(&fetch_frame(topic, 0, offset, asked))?;
        let (code, records) = fetch_records(client.receive()?, topic);
        accept("Fetch", code)?;
        returned_bytes += records.len() as f64;
    }
    let read_bytes = server.scrape()?.since(&earlier, SEGMENT_BYTES_READ);
    Ok(Random { asked_bytes: asked, returned_bytes, read_bytes })
}

/// Bytes per second at which the device reads the largest segment of a topic.
fn device_rate(data_dir: &Path, topic: &str) -> Result<f64, Fault> {
    let directory = data_dir.join("topics").join(format!("{topic}-0"));
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            segments.push((entry.metadata()?.len(), entry.path()));
        }
    }
    let (_, largest) = segments.into_iter().max().ok_or("the topic has no segment")?;
    calibrate::direct_read_bytes_per_second(&largest)
}

const TOPIC: &str = "cold";
