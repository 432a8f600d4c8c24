//! What compaction gets through, and what it does to the latency of produce.
//!
//! Owns a topic that is filled while it is not compacted, with records of 1 KiB, uncompressed, half
//! of which have keys that come again; then its policy changes and a pass begins. A pass reads what
//! is new twice, checks it, writes what stays, syncs and swaps: all of that counts. Its input is
//! what lies in complete segments, once.

use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{CreateTopicsRequest, IncrementalAlterConfigsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use ringlog::batch::{BatchBuilder, CompressionTarget};
use ringlog::io::clock::wall_ms;

use super::calibrate::load_average;
use super::client::{Client, Fault, accept, produce_error, produce_frame};
use super::load::{self, Load, Mode};
use super::metrics::{CLEANER_PASSES, CLEANER_READ, CLEANER_WRITTEN};
use super::report::{Report, number};
use super::target::{Own, OwnArguments, Server};

/// Options of `run compaction`.
pub type CompactionArguments = OwnArguments<Size>;

/// How much, and under which load.
#[derive(Args, Clone, Debug)]
pub struct Size {
    /// MiB of records of one pass
    #[arg(long, default_value_t = 512)]
    pub input_mib: u64,
    /// Bytes of a segment
    #[arg(long, default_value_t = 64 << 20)]
    pub segment_bytes: u64,
    /// Requests per second of the load beside it
    #[arg(long, default_value_t = 2_000)]
    pub rate: u64,
    /// Pairs of runs, of two seconds each
    #[arg(long, default_value_t = 4)]
    pub pairs: u32,
}

/// What was found.
pub struct Found {
    /// One pass with nothing beside it.
    pub alone: Pass,
    pub with: Histogram<u64>,
    pub without: Histogram<u64>,
    /// Bytes that compaction read while latencies were taken beside it.
    pub read_beside_bytes: f64,
}

/// One pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub input_bytes: f64,
    pub written_bytes: f64,
    pub seconds: f64,
    pub cpu_seconds: f64,
}

impl Pass {
    pub fn megabytes_per_second(&self) -> f64 {
        self.input_bytes / self.seconds / 1e6
    }

    pub fn megabytes_per_cpu_second(&self) -> f64 {
        self.input_bytes / self.cpu_seconds / 1e6
    }
}

impl Found {
    pub fn p99_us(&self) -> (f64, f64) {
        let us = |times: &Histogram<u64>| times.value_at_quantile(0.99) as f64 / 1e3;
        (us(&self.with), us(&self.without))
    }
}

/// Takes all figures and prints the report.
pub fn run(arguments: &CompactionArguments) -> Result<(), Fault> {
    let found = measure(&arguments.own, &arguments.size)?;
    let mut report = Report::new("compaction");
    report.add("load_average", number(load_average()));
    report.add("input_bytes", number(found.alone.input_bytes));
    report.add("written_bytes", number(found.alone.written_bytes));
    report.add("seconds", number(found.alone.seconds));
    report.add("cpu_seconds", number(found.alone.cpu_seconds));
    report.add("input_mb_per_s", number(found.alone.megabytes_per_second()));
    report.add("input_mb_per_cpu_s", number(found.alone.megabytes_per_cpu_second()));
    report.add_compared([("with", &found.with), ("without", &found.without)]);
    report.add("read_beside_mb", number(found.read_beside_bytes / 1e6));
    report.print(arguments.json);
    Ok(())
}

/// Has a broker compact, alone and beside a load.
pub fn measure(own: &Own, size: &Size) -> Result<Found, Fault> {
    let segment = format!("log.segment.bytes={}", size.segment_bytes);
    let server = own.start(&["--set", "log.cleaner.backoff.ms=20", "--set", &segment])?;
    let input = size.input_mib << 20;
    let alone = pass(&server, "alone", input)?;
    let load = Load {
        partitions: 16,
        connections: 4,
        in_flight: 16,
        rate: size.rate,
        warm_up_seconds: 0,
        ..Load::one("beside", 2)
    };
    // Everything about it is made before it is measured.
    load::measure(&server, &Load { seconds: 1, ..load.clone() }, Mode::Produce)?;
    let mut found = Found {
        alone,
        with: Histogram::new(3)?,
        without: Histogram::new(3)?,
        read_beside_bytes: 0.0,
    };
    for pair in 0..size.pairs {
        for second in [false, true] {
            if second == (pair % 2 == 0) {
                let without = load::measure(&server, &load, Mode::Produce)?;
                found.without.add(without.latencies)?;
                continue;
            }
            let topic = format!("beside-{pair}");
            prepare(&server, &topic, input)?;
            let before = server.scrape()?;
            compact(&server, &topic)?;
            let with = load::measure(&server, &load, Mode::Produce)?;
            found.with.add(with.latencies)?;
            found.read_beside_bytes += server.scrape()?.since(&before, CLEANER_READ);
            wait_for_pass(&server, before.get(CLEANER_PASSES))?;
            Client::connect(&server.address)?.delete_topic(&topic)?;
        }
    }
    Ok(found)
}

/// One pass over a new topic, with nothing beside it.
fn pass(server: &Server, topic: &str, input: u64) -> Result<Pass, Fault> {
    prepare(server, topic, input)?;
    // Writing behind is over, and a checkpoint has named what there is.
    std::thread::sleep(SETTLE);
    let (before, used) = (server.scrape()?, server.usage());
    let begun = Instant::now();
    compact(server, topic)?;
    wait_for_pass(server, before.get(CLEANER_PASSES))?;
    let seconds = begun.elapsed().as_secs_f64();
    let (after, used) = (server.scrape()?, server.usage().since(&used));
    Client::connect(&server.address)?.delete_topic(topic)?;
    Ok(Pass {
        // What is new is read twice, and all of it is new.
        input_bytes: after.since(&before, CLEANER_READ) / 2.0,
        written_bytes: after.since(&before, CLEANER_WRITTEN),
        seconds,
        cpu_seconds: used.cpu_seconds,
    })
}

/// Makes a topic that is not compacted and fills it.
fn prepare(server: &Server, topic: &str, bytes: u64) -> Result<(), Fault> {
    let mut client = Client::connect(&server.address)?;
    let config = |name: &str, value: &str| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(name.to_owned()))
            .with_value(Some(StrBytes::from_string(value.to_owned())))
    };
    let create = CreatableTopic::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(vec![
            config("cleanup.policy", "delete"),
            config("min.cleanable.dirty.ratio", "0.01"),
        ]);
    let create = CreateTopicsRequest::default().with_timeout_ms(30_000).with_topics(vec![create]);
    let created = client.ask(4, &create)?;
    accept("CreateTopics", created.topics.first().map_or(-1, |topic| topic.error_code))?;
    let leader = client.leaders(topic, 1)?.swap_remove(0);
    let mut client = Client::connect(&leader)?;
    let value = [0x5a; 1_000];
    let batches = bytes / (RECORDS as u64 * 1_024);
    let keys = batches * RECORDS as u64 / 2;
    for number in 0..batches + IN_FLIGHT {
        if number < batches {
            let mut batch = BatchBuilder::new(CompressionTarget::Uncompressed);
            for record in number * RECORDS as u64..(number + 1) * RECORDS as u64 {
                let key = format!("key-{:012}", record.wrapping_mul(7_919) % keys.max(1));
                batch.push(wall_ms(), Some(key.as_bytes()), Some(&value), &[]);
            }
            client.send(&produce_frame(topic, 0, -1, &batch.finish()))?;
        }
        if number >= IN_FLIGHT {
            accept("Produce", produce_error(client.receive()?, topic))?;
        }
    }
    Ok(())
}

/// Changes the policy of a topic: a pass begins soon.
fn compact(server: &Server, topic: &str) -> Result<(), Fault> {
    let config = AlterableConfig::default()
        .with_name(StrBytes::from_static_str("cleanup.policy"))
        .with_config_operation(0)
        .with_value(Some(StrBytes::from_static_str("compact")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(StrBytes::from_string(topic.to_owned()))
        .with_configs(vec![config]);
    let alter = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let altered = Client::connect(&server.address)?.ask(1, &alter)?;
    let code = altered.responses.first().map_or(-1, |response| response.error_code);
    accept("IncrementalAlterConfigs", code)
}

/// Waits until one more pass has ended.
fn wait_for_pass(server: &Server, before: f64) -> Result<(), Fault> {
    let deadline = Instant::now() + PASS_TIMEOUT;
    while server.scrape()?.get(CLEANER_PASSES) <= before {
        if Instant::now() > deadline {
            return Err("no pass of compaction has ended".into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

const RECORDS: usize = 64;
const IN_FLIGHT: u64 = 8;
const SETTLE: Duration = Duration::from_millis(1_500);
const LOOK: Duration = Duration::from_millis(10);
const PASS_TIMEOUT: Duration = Duration::from_secs(60);
