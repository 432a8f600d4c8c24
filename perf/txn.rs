//! What transactions cost, by both protocols: EndTxn, the way to the next transaction, throughput.
//!
//! Owns three figures. EndTxn until its answer. From sending EndTxn until the next transaction may
//! start: the time until the next transaction's first request (Produce, or AddPartitionsToTxn by
//! the older protocol) is answered, less what that takes when nothing is ending. And the bytes per
//! second of a producer that commits every so often, beside one that is idempotent only, in turns.

use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;

use super::calibrate::Floors;
use super::client::Fault;
use super::measure::median;
use super::producer::{Producer, Protocol};
use super::report::{Report, figures, number};
use super::target::{Server, Target};

/// Options of `run txn`.
#[derive(Args, Clone, Debug)]
pub struct TxnArguments {
    #[command(flatten)]
    target: Target,
    /// Protocols: 1 before KIP-890, 2 since
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    protocol: Vec<u8>,
    /// Partitions of a transaction, one run for each
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    partitions: Vec<i32>,
    /// Commit an offset of a group in every transaction, too
    #[arg(long)]
    offsets: bool,
    /// Length of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    throughput: Throughput,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How a transactional producer is compared with an idempotent one.
#[derive(Args, Clone, Debug)]
pub struct Throughput {
    /// Time between two commits
    #[arg(long, default_value_t = 100)]
    pub commit_ms: u64,
    /// Records of 1 KiB in a request
    #[arg(long, default_value_t = 16)]
    pub records: usize,
    /// Requests in flight
    #[arg(long, default_value_t = 5)]
    pub in_flight: usize,
    /// Pairs of runs, of one second each; 0 leaves the comparison out
    #[arg(long, default_value_t = 10)]
    pub pairs: u32,
}

/// Times of the commits of one run, nanoseconds.
pub struct Commits {
    /// All there were, those of the warm-up too.
    pub transactions: f64,
    pub end_txn: Histogram<u64>,
    /// First request of a transaction, with nothing in its way.
    pub first: Histogram<u64>,
    /// From sending EndTxn until the first request of the next transaction is answered.
    pub end_and_first: Histogram<u64>,
    /// Putting an offset into the transaction, where that is done.
    pub offsets: Histogram<u64>,
    /// Transactions that another followed at once, from their second request until its first was
    /// answered.
    pub in_a_row: Histogram<u64>,
}

impl Commits {
    /// Median and 99th percentile of EndTxn, in microseconds.
    pub fn end_us(&self) -> (f64, f64) {
        (us(&self.end_txn, 0.5), us(&self.end_txn, 0.99))
    }

    /// Median time from sending EndTxn until the next transaction may start, in microseconds.
    pub fn until_next_us(&self) -> f64 {
        (us(&self.end_and_first, 0.5) - us(&self.first, 0.5)).max(us(&self.end_txn, 0.5))
    }
}

fn us(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1e3
}

/// Takes all figures and prints the report.
pub fn run(arguments: &TxnArguments) -> Result<(), Fault> {
    let server = arguments.target.server()?;
    let mut report = Report::new("txn");
    report.add_all(Floors::take(&arguments.target.own.data_dir, server.core)?.figures());
    let time = Duration::from_secs(arguments.seconds);
    for &number_of in &arguments.protocol {
        let protocol = Protocol::of(number_of)?;
        if arguments.throughput.pairs > 0 {
            let compared = compare(&server, protocol, &arguments.throughput)?;
            let name = |figure: &str| format!("protocol_{number_of}_{figure}");
            report.add(&name("throughput_share"), number(compared.share()));
            report.add(&name("throughput_share_lowest"), number(compared.lowest_share()));
            let megabytes = number(median(&compared.transactional) / 1e6);
            report.add(&name("megabytes_per_second"), megabytes);
            let megabytes = number(median(&compared.idempotent) / 1e6);
            report.add(&name("idempotent_megabytes_per_second"), megabytes);
        }
        for &partitions in &arguments.partitions {
            let before = server.usage();
            let place = (partitions, arguments.offsets);
            let found = commits(&server, protocol, place, time)?;
            let cpu_us = server.usage().since(&before).cpu_seconds * 1e6;
            let (p50, p99) = found.end_us();
            let mut row = figures([
                ("protocol", number_of.into()),
                ("partitions", partitions.into()),
                ("commits", found.end_txn.len().into()),
                ("end_txn_p50_us", number(p50)),
                ("end_txn_p99_us", number(p99)),
                ("until_next_p50_us", number(found.until_next_us())),
                ("broker_cpu_us_per_transaction", number(cpu_us / found.transactions)),
            ]);
            if arguments.offsets {
                row.extend(figures([("offsets_p50_us", number(us(&found.offsets, 0.5)))]));
            }
            report.row(row);
        }
    }
    report.print(arguments.json);
    Ok(())
}

/// Commits over so many partitions for this long, with offsets if so wished.
pub fn commits(
    server: &Server,
    protocol: Protocol,
    (partitions, offsets): (i32, bool),
    time: Duration,
) -> Result<Commits, Fault> {
    commits_of(server, protocol, (partitions, offsets), (1, RECORD_BYTES), time)
}

/// The same with so many records of so many bytes in each partition.
pub fn commits_of(
    server: &Server,
    protocol: Protocol,
    (partitions, offsets): (i32, bool),
    size: (usize, usize),
    time: Duration,
) -> Result<Commits, Fault> {
    let (address, core) = (server.address.clone(), server.core);
    let run = move || -> Result<Commits, Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
        let name = format!("commits-{partitions}");
        let place = (name.as_str(), partitions);
        let mut producer = Producer::new(&address, place, (protocol, &name), size)?;
        if offsets {
            producer.read_for("commits")?;
        }
        commit_over_and_over(&mut producer, time)
    };
    std::thread::spawn(run).join().map_err(|_| "the producer's thread failed")?
}

fn commit_over_and_over(producer: &mut Producer, time: Duration) -> Result<Commits, Fault> {
    let mut found = Commits {
        transactions: 0.0,
        end_txn: Histogram::new(3)?,
        first: Histogram::new(3)?,
        end_and_first: Histogram::new(3)?,
        offsets: Histogram::new(3)?,
        in_a_row: Histogram::new(3)?,
    };
    let begun = Instant::now();
    let mut round: u32 = 0;
    producer.begin()?;
    while begun.elapsed() < time || round < ROUNDS_MIN {
        let producing = Instant::now();
        producer.produce_rest()?;
        let committing = Instant::now();
        producer.commit_offset()?;
        let committed = committing.elapsed();
        let ending = Instant::now();
        producer.commit()?;
        let ended = ending.elapsed();
        // Every other transaction waits until the one before is over on every shard.
        let apart = round.is_multiple_of(2);
        if apart {
            std::thread::sleep(APART);
        }
        let first = Instant::now();
        producer.begin()?;
        if round >= ROUNDS_WARM_UP {
            found.end_txn.record(ended.as_nanos() as u64)?;
            found.offsets.record(committed.as_nanos() as u64)?;
            if apart {
                found.first.record(first.elapsed().as_nanos() as u64)?;
            } else {
                found.end_and_first.record(ending.elapsed().as_nanos() as u64)?;
                found.in_a_row.record(producing.elapsed().as_nanos() as u64)?;
            }
        }
        round += 1;
    }
    producer.produce_rest()?;
    producer.commit()?;
    found.transactions = f64::from(round) + 1.0;
    Ok(found)
}

/// Bytes of records per second, run by run.
pub struct Compared {
    pub idempotent: Vec<f64>,
    pub transactional: Vec<f64>,
}

impl Compared {
    /// What a transactional producer achieves of an idempotent one, at the medians.
    pub fn share(&self) -> f64 {
        median(&self.transactional) / median(&self.idempotent)
    }

    /// The same of the worst pair.
    pub fn lowest_share(&self) -> f64 {
        let pairs = self.transactional.iter().zip(&self.idempotent);
        pairs.map(|(with, without)| with / without).fold(f64::INFINITY, f64::min)
    }
}

/// Compares, in turns, so that what else the machine does hits both.
pub fn compare(
    server: &Server,
    protocol: Protocol,
    throughput: &Throughput,
) -> Result<Compared, Fault> {
    let mut compared = Compared { idempotent: Vec::new(), transactional: Vec::new() };
    for pair in 0..throughput.pairs {
        // ABBA.
        for second in [false, true] {
            let is_transactional = second == (pair % 2 == 0);
            let of = if is_transactional { protocol } else { Protocol::Idempotent };
            let bytes = bytes_per_second(server, of, throughput)?;
            match is_transactional {
                true => compared.transactional.push(bytes),
                false => compared.idempotent.push(bytes),
            }
        }
        eprintln!("pair {}/{}", pair + 1, throughput.pairs);
    }
    Ok(compared)
}

/// One second of one producer, after a short warm-up.
pub fn bytes_per_second(
    server: &Server,
    protocol: Protocol,
    throughput: &Throughput,
) -> Result<f64, Fault> {
    let (address, core, throughput) = (server.address.clone(), server.core, throughput.clone());
    let run = move || -> Result<f64, Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
        let size = (throughput.records, RECORD_BYTES);
        let place = ("throughput", 1);
        let mut producer = Producer::new(&address, place, (protocol, "throughput"), size)?;
        write_for(&mut producer, &throughput, WARM_UP)?;
        let begun = Instant::now();
        let requests = write_for(&mut producer, &throughput, MEASURED)?;
        let bytes = requests * (throughput.records * RECORD_BYTES) as u64;
        Ok(bytes as f64 / begun.elapsed().as_secs_f64())
    };
    std::thread::spawn(run).join().map_err(|_| "the producer's thread failed")?
}

/// Writes with requests in flight, committing as often as wanted; how many were answered.
fn write_for(
    producer: &mut Producer,
    throughput: &Throughput,
    time: Duration,
) -> Result<u64, Fault> {
    let mut requests = 0;
    let begun = Instant::now();
    // Without transactions nothing waits for all answers but the end.
    let length = match producer.protocol() {
        Protocol::Idempotent => time,
        Protocol::One | Protocol::Two => Duration::from_millis(throughput.commit_ms).min(time),
    };
    while begun.elapsed() < time {
        let transaction = Instant::now();
        let mut in_flight = 0;
        producer.join()?;
        while transaction.elapsed() < length {
            while in_flight < throughput.in_flight {
                producer.send_first()?;
                in_flight += 1;
            }
            producer.receive_first()?;
            (in_flight, requests) = (in_flight - 1, requests + 1);
        }
        for _ in 0..in_flight {
            producer.receive_first()?;
            requests += 1;
        }
        producer.commit()?;
    }
    Ok(requests)
}

const RECORD_BYTES: usize = 1024;
/// Long enough for markers and the last record of a transaction.
const APART: Duration = Duration::from_millis(20);
const ROUNDS_WARM_UP: u32 = 4;
const ROUNDS_MIN: u32 = 12;
const WARM_UP: Duration = Duration::from_millis(200);
const MEASURED: Duration = Duration::from_secs(1);
