//! What it costs to do nothing: memory per partition, connection, producer and transactional id,
//! and the CPU time of a broker that nobody asks anything.
//!
//! Owns the slopes: resident memory before and after so many more of one thing, with the broker
//! settled. `--memory` is small, and blocks and caches are filled before what is written counts.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::protocol::StrBytes;
use ringlog::batch::{BatchBuilder, CompressionTarget};
use ringlog::ids::{ProducerEpoch, ProducerId};
use ringlog::io::clock::wall_ms;

use super::calibrate::load_average;
use super::client::{Client, Fault, accept, frame_of};
use super::load;
use super::recovery::make_ids;
use super::report::{Report, number};
use super::target::{Own, Server};

/// Options of `run idle`.
#[derive(Args, Clone, Debug)]
pub struct IdleArguments {
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    counts: Counts,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How many of each.
#[derive(Args, Clone, Debug)]
pub struct Counts {
    /// Partitions
    #[arg(long, default_value_t = 1000)]
    pub partitions: i32,
    /// Connections
    #[arg(long, default_value_t = 1000)]
    pub connections: usize,
    /// Idempotent producers of one partition, as many again as there are
    #[arg(long, default_value_t = 100_000)]
    pub producers: usize,
    /// Transactional ids, as many again as there are
    #[arg(long, default_value_t = 20_000)]
    pub ids: usize,
    /// Time of doing nothing
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
}

/// What was found.
pub struct Idle {
    /// Resident memory with the partitions.
    pub resident_bytes: f64,
    pub partition_bytes: f64,
    pub connection_bytes: f64,
    pub producer_bytes: f64,
    pub id_bytes: f64,
    /// Share of a core, with all of these.
    pub cpu_percent: f64,
    pub switches_per_second: f64,
}

/// Takes all figures and prints the report.
pub fn run(arguments: &IdleArguments) -> Result<(), Fault> {
    let idle = measure(&arguments.own, &arguments.counts)?;
    let mut report = Report::new("idle");
    report.add("load_average", number(load_average()));
    report.add("resident_mib", number(idle.resident_bytes / MIB));
    report.add("partition_bytes", number(idle.partition_bytes));
    report.add("connection_bytes", number(idle.connection_bytes));
    report.add("producer_bytes", number(idle.producer_bytes));
    report.add("transactional_id_bytes", number(idle.id_bytes));
    report.add("idle_cpu_percent_of_core", number(idle.cpu_percent));
    report.add("context_switches_per_second", number(idle.switches_per_second));
    report.print(arguments.json);
    Ok(())
}

/// Has a broker hold more and more, and do nothing.
pub fn measure(own: &Own, counts: &Counts) -> Result<Idle, Fault> {
    let server = own.start(&["--memory", "64MiB"])?;
    let resident = || {
        std::thread::sleep(SETTLE);
        server.usage().resident_bytes as f64
    };
    let empty = resident();
    Client::connect(&server.address)?.leaders("idle", counts.partitions)?;
    let partitions = resident();
    let mut connections = Vec::new();
    for _ in 0..counts.connections {
        let mut client = Client::connect(&server.address)?;
        // It has been served once.
        client.leaders("idle-1", 1)?;
        connections.push(client);
    }
    let connected = resident();
    let before = server.usage();
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(counts.seconds));
    let seconds = begun.elapsed().as_secs_f64();
    let used = server.usage().since(&before);
    drop(connections);
    // Blocks and caches fill up to their bounds first, and the first half of each is for what
    // else grows with them.
    load::fill(&server, "idle-1", FILLED_BYTES)?;
    make_producers(&server, 0..counts.producers)?;
    let half_producing = resident();
    make_producers(&server, counts.producers..2 * counts.producers)?;
    let producing = resident();
    make_ids(&server, 0..counts.ids)?;
    let half_identified = resident();
    make_ids(&server, counts.ids..2 * counts.ids)?;
    let identified = resident();
    let each = |more: f64, less: f64, count: f64| (more - less).max(0.0) / count.max(1.0);
    Ok(Idle {
        resident_bytes: partitions,
        partition_bytes: each(partitions, empty, f64::from(counts.partitions)),
        connection_bytes: each(connected, partitions, counts.connections as f64),
        producer_bytes: each(producing, half_producing, counts.producers as f64),
        id_bytes: each(identified, half_identified, counts.ids as f64),
        cpu_percent: 100.0 * used.cpu_seconds / seconds,
        switches_per_second: used.switches as f64 / seconds,
    })
}

/// Has idempotent producers of these numbers write one batch each to the same partition.
fn make_producers(server: &Server, mut numbers: Range<usize>) -> Result<(), Fault> {
    let mut client = Client::connect(&server.address)?;
    let leader = client.leaders("idle-1", 1)?.swap_remove(0);
    let mut client = Client::connect(&leader)?;
    let mut in_flight = 0;
    loop {
        while in_flight < IN_FLIGHT
            && let Some(number) = numbers.next()
        {
            client.send(&frame_of(PRODUCE_VERSION, &first_batch(number))?)?;
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(());
        }
        for topic in client.answer::<ProduceRequest>(PRODUCE_VERSION)?.responses {
            for partition in topic.partition_responses {
                accept("Produce", partition.error_code)?;
            }
        }
        in_flight -= 1;
    }
}

/// The first batch of a producer; ids far above those that the broker gives out.
fn first_batch(number: usize) -> ProduceRequest {
    let id = ProducerId(FIRST_ID + number as i64);
    let mut batch =
        BatchBuilder::new(CompressionTarget::Uncompressed).producer(id, ProducerEpoch(0), 0);
    batch.push(wall_ms(), None, Some(b"first"), &[]);
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(Bytes::from(batch.finish())));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_static_str("idle-1")))
        .with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// Bytes of a MiB.
pub const MIB: f64 = 1024.0 * 1024.0;

/// Until memory that is given back has been, and write-behind has ended.
const SETTLE: Duration = Duration::from_millis(1_500);
const FILLED_BYTES: u64 = 256 << 20;
const IN_FLIGHT: usize = 64;
const PRODUCE_VERSION: i16 = 9;
const FIRST_ID: i64 = 1 << 40;
