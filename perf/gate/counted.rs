//! A broker within this program, so that its allocations can be counted.
//!
//! Owns what is asked of it. Every allocation of the broker's threads counts: reading, shape check,
//! decoding, the handler, the journal, the response; the thread that asks is left out. Bytes that
//! are asked for bound what is copied.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use ringlog::broker;
use ringlog::config::BrokerConfig;

use crate::broker::Scratch;
use crate::client::{
    Client, Fault, accept, fetch_frame, fetch_records, produce_error, produce_frame,
};
use crate::counting::{Count, leave_this_thread_out};
use crate::load::{self, Load};

/// Counts, and prints one JSON object.
pub fn run(data_dir: &Path) -> Result<(), Fault> {
    leave_this_thread_out();
    let scratch = Scratch::new(data_dir)?;
    let mut client = start(scratch.path())?;
    client.leaders(TOPIC, 1)?;
    let mut counts = BTreeMap::new();
    for (records, record_bytes, size) in [(1, 100, "100b"), (1, 1024, "1kib"), (64, 1024, "64kib")]
    {
        let load = Load { records, record_bytes, ..Load::one(TOPIC, 0) };
        let frame = produce_frame(TOPIC, 0, -1, &load::batch(&load));
        for in_flight in [1, 32] {
            let name = format!("produce_{size}_{in_flight}_in_flight");
            let check = |answer: &[u8]| produce_error(answer, TOPIC);
            count(&mut client, (&name, in_flight), &frame, check, &mut counts)?;
        }
    }
    for (kib, size) in [(4, "4kib"), (256, "256kib")] {
        let frame = fetch_frame(TOPIC, 0, 0, kib << 10);
        let check = |answer: &[u8]| fetch_records(answer, TOPIC).0;
        count(&mut client, (&format!("fetch_{size}"), 1), &frame, check, &mut counts)?;
    }
    println!("{}", serde_json::to_string(&counts)?);
    // The broker goes with the process, and what it wrote before that.
    drop(scratch);
    std::process::exit(0);
}

fn start(data_dir: &Path) -> Result<Client, Fault> {
    // Nobody else takes a port that has just been given back.
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let config = BrokerConfig::with_overrides(&[
        ("data_dir", data_dir.to_str().ok_or("the path is no text")?),
        ("listen", &listen),
        ("shards", "1"),
        ("memory", "256MiB"),
        ("journal.ring.bytes", "256MiB"),
        ("checkpoint_interval_ms", "3600000"),
        // Records are old.
        ("log.initial.task.delay.ms", "3600000"),
    ])?;
    let failed = std::thread::spawn(move || broker::run(config).err().map(|e| e.to_string()));
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match Client::connect(&listen) {
            Ok(client) => return Ok(client),
            Err(_) if failed.is_finished() => {
                let why = failed.join().ok().flatten();
                return Err(why.unwrap_or_else(|| "the broker ended".to_owned()).into());
            }
            Err(fault) if Instant::now() > deadline => return Err(fault),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends the same frame many times, so many at a time.
fn count(
    client: &mut Client,
    (name, in_flight): (&str, u64),
    frame: &[u8],
    check: impl Fn(&[u8]) -> i16,
    counts: &mut BTreeMap<String, f64>,
) -> Result<(), Fault> {
    let together = frame.repeat(in_flight as usize);
    let mut send = |requests: u64| -> Result<(), Fault> {
        for _ in 0..requests / in_flight {
            client.send(&together)?;
            for _ in 0..in_flight {
                accept(name, check(client.receive()?))?;
            }
        }
        Ok(())
    };
    send(WARM_UP)?;
    let before = Count::now();
    send(REQUESTS)?;
    let cost = before.elapsed();
    let each = |amount: u64| amount as f64 / REQUESTS as f64;
    counts.insert(format!("allocations_per_{name}"), each(cost.allocations));
    counts.insert(format!("allocated_bytes_per_{name}"), each(cost.bytes));
    Ok(())
}

const TOPIC: &str = "counted";
const WARM_UP: u64 = 640;
const REQUESTS: u64 = 1_920;
const START_TIMEOUT: Duration = Duration::from_secs(30);
