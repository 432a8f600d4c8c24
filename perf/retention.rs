//! What rolling segments and deleting old ones do to the latency of produce.
//!
//! Owns two brokers, one whose segments are so small that some roll and some go all the time, and
//! one that keeps everything in one segment per partition, under the same load in turns, ABBA, so
//! that what else the machine does hits both. The load is open: what a roll delays counts in full.

use clap::Args;
use hdrhistogram::Histogram;

use super::calibrate::load_average;
use super::client::Fault;
use super::load::{self, Load, Mode};
use super::metrics::SEGMENTS_DELETED;
use super::report::{Report, number};
use super::target::{Own, OwnArguments, Server};

/// Options of `run retention`.
pub type RetentionArguments = OwnArguments<Size>;

/// How large segments are, and under which load.
#[derive(Args, Clone, Debug)]
pub struct Size {
    /// Bytes of a segment
    #[arg(long, default_value_t = 1 << 20)]
    pub segment_bytes: u64,
    /// Requests per second, of 1 KiB
    #[arg(long, default_value_t = 4_000)]
    pub rate: u64,
    /// Pairs of runs
    #[arg(long, default_value_t = 4)]
    pub pairs: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
}

/// Latencies of all runs, and how many segments went meanwhile.
pub struct Compared {
    pub with: Histogram<u64>,
    pub without: Histogram<u64>,
    pub deleted: f64,
}

impl Compared {
    pub fn us(&self, quantile: f64) -> (f64, f64) {
        let us = |times: &Histogram<u64>| times.value_at_quantile(quantile) as f64 / 1e3;
        (us(&self.with), us(&self.without))
    }
}

/// Compares, and prints the report.
pub fn run(arguments: &RetentionArguments) -> Result<(), Fault> {
    let compared = compare(&arguments.own, &arguments.size)?;
    let mut report = Report::new("retention");
    report.add("load_average", number(load_average()));
    report.add("segments_deleted", number(compared.deleted));
    report.add_compared([("with", &compared.with), ("without", &compared.without)]);
    let (with, without) = compared.us(0.999);
    report.add("p999_ratio", number(with / without));
    report.print(arguments.json);
    Ok(())
}

/// Measures both in turns.
pub fn compare(own: &Own, size: &Size) -> Result<Compared, Fault> {
    let segment = format!("log.segment.bytes={}", size.segment_bytes);
    let kept = format!("log.retention.bytes={}", 2 * size.segment_bytes);
    let settings = [&segment, &kept, "log.retention.check.interval.ms=50", NO_DELAY, AT_ONCE];
    let small: Vec<&str> = settings.iter().flat_map(|&setting| ["--set", setting]).collect();
    let with = own.start(&small)?;
    let without = own.start(&[])?;
    let load = Load {
        partitions: 8,
        connections: 4,
        in_flight: 16,
        rate: size.rate,
        ..Load::one("retention", size.seconds)
    };
    let mut compared =
        Compared { with: Histogram::new(3)?, without: Histogram::new(3)?, deleted: 0.0 };
    let deleted =
        |server: &Server| -> Result<f64, Fault> { Ok(server.scrape()?.get(SEGMENTS_DELETED)) };
    // Nothing is old enough to go in the first seconds.
    load::measure(&with, &load, Mode::Produce)?;
    let before = deleted(&with)?;
    for pair in 0..size.pairs {
        for second in [false, true] {
            if second == (pair % 2 == 0) {
                compared.without.add(load::measure(&without, &load, Mode::Produce)?.latencies)?;
            } else {
                compared.with.add(load::measure(&with, &load, Mode::Produce)?.latencies)?;
            }
        }
    }
    compared.deleted = deleted(&with)? - before;
    Ok(compared)
}

const NO_DELAY: &str = "log.segment.delete.delay.ms=0";
const AT_ONCE: &str = "log.initial.task.delay.ms=0";
