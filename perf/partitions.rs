//! Many partitions: how long it takes to make them, what they cost when nothing happens, what they
//! do to the latency of produce, and how long a start takes after them.
//!
//! Owns a broker of one shard per core, so that the load shares the cores with it. Latencies are
//! taken in turns, few partitions and all of them, ABBA, at the same rate.

use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{CreateTopicsRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::broker::Broker;
use super::calibrate::load_average;
use super::client::{Client, Fault, accept};
use super::load::{self, Load, Mode};
use super::measure::median;
use super::report::{Report, number};
use super::target::{Own, OwnArguments, Server};

/// Options of `run partitions`.
pub type PartitionsArguments = OwnArguments<Size>;

/// How many, and for how long.
#[derive(Args, Clone, Debug)]
pub struct Size {
    /// Partitions
    #[arg(long, default_value_t = 10_000)]
    pub partitions: i32,
    /// Partitions that few are
    #[arg(long, default_value_t = 10)]
    pub few: i32,
    /// Requests per second
    #[arg(long, default_value_t = 2_000)]
    pub rate: u64,
    /// Pairs of runs
    #[arg(long, default_value_t = 3)]
    pub pairs: u32,
    /// Length of a run, and of doing nothing
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Starts after a clean stop
    #[arg(long, default_value_t = 3)]
    pub starts: usize,
}

/// What was found.
pub struct Found {
    pub created_seconds: f64,
    pub idle_cpu_percent: f64,
    pub few: Histogram<u64>,
    pub all: Histogram<u64>,
    pub stop_seconds: f64,
    pub start_seconds: f64,
}

impl Found {
    pub fn p99_us(&self) -> (f64, f64) {
        let us = |times: &Histogram<u64>| times.value_at_quantile(0.99) as f64 / 1e3;
        (us(&self.all), us(&self.few))
    }
}

/// Takes all figures and prints the report.
pub fn run(arguments: &PartitionsArguments) -> Result<(), Fault> {
    let found = measure(&arguments.own, &arguments.size)?;
    let mut report = Report::new("partitions");
    report.add("load_average", number(load_average()));
    report.add("partitions", arguments.size.partitions);
    report.add("created_s", number(found.created_seconds));
    report.add("idle_cpu_percent_of_core", number(found.idle_cpu_percent));
    report.add_compared([("all", &found.all), ("few", &found.few)]);
    report.add("stop_s", number(found.stop_seconds));
    report.add("start_after_stop_s", number(found.start_seconds));
    report.print(arguments.json);
    Ok(())
}

/// Makes the partitions, and has the broker do this and that with them.
pub fn measure(own: &Own, size: &Size) -> Result<Found, Fault> {
    let server = own.start(&[])?;
    let created_seconds = create(&server, "wide", size.partitions)?;
    Client::connect(&server.address)?.leaders("narrow", size.few)?;
    let idle_cpu_percent = idle(&server, size.seconds);
    let load = |topic: &str, partitions| Load {
        partitions,
        connections: 4,
        in_flight: 16,
        rate: size.rate,
        ..Load::one(topic, size.seconds)
    };
    let mut found = Found {
        created_seconds,
        idle_cpu_percent,
        few: Histogram::new(3)?,
        all: Histogram::new(3)?,
        stop_seconds: 0.0,
        start_seconds: 0.0,
    };
    for pair in 0..size.pairs {
        for second in [false, true] {
            if second == (pair % 2 == 0) {
                let few = load::measure(&server, &load("narrow", size.few), Mode::Produce)?;
                found.few.add(few.latencies)?;
            } else {
                let all = load::measure(&server, &load("wide", size.partitions), Mode::Produce)?;
                found.all.add(all.latencies)?;
            }
        }
    }
    let begun = Instant::now();
    let mut launch = server.into_broker()?.stop()?;
    found.stop_seconds = begun.elapsed().as_secs_f64();
    let mut starts = Vec::new();
    for _ in 0..size.starts.max(1) {
        let broker = Broker::start(launch)?;
        starts.push(broker.start_up().as_secs_f64());
        launch = broker.stop()?;
    }
    found.start_seconds = median(&starts);
    Ok(found)
}

/// Seconds until all partitions of a new topic have leaders.
fn create(server: &Server, topic: &str, partitions: i32) -> Result<f64, Fault> {
    let mut client = Client::connect(&server.address)?;
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let topic = CreatableTopic::default().with_name(name.clone());
    let topic = topic.with_num_partitions(partitions).with_replication_factor(1);
    let create = CreateTopicsRequest::default().with_timeout_ms(30_000).with_topics(vec![topic]);
    let begun = Instant::now();
    let created = client.ask(4, &create)?;
    accept("CreateTopics", created.topics.first().map_or(-1, |topic| topic.error_code))?;
    let asked = MetadataRequestTopic::default().with_name(Some(name));
    let told = client.ask(5, &MetadataRequest::default().with_topics(Some(vec![asked])))?;
    let led = told.topics.iter().flat_map(|topic| &topic.partitions);
    let led = led.filter(|partition| partition.error_code == 0).count();
    if i32::try_from(led) != Ok(partitions) {
        return Err(format!("of {partitions} partitions {led} have leaders").into());
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Share of a core that it uses for nothing.
fn idle(server: &Server, seconds: u64) -> f64 {
    std::thread::sleep(SETTLE);
    let (before, begun) = (server.usage(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let used = server.usage().since(&before);
    100.0 * used.cpu_seconds / begun.elapsed().as_secs_f64()
}

const SETTLE: Duration = Duration::from_millis(1_500);
