//! A broker under attack, and the well-behaved client beside the attackers.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsRequest, FetchResponse, ProduceResponse};

use crate::support::batch::{Batch, read_batches};
use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::offsets;
use crate::support::requests::{self, Topic};

/// What a connection costs that holds nothing: its tasks and their places in tables.
const CONNECTION_BYTES: u64 = 12 << 10;

/// A broker, and a connection that was there before the attack.
pub struct Stage {
    pub broker: Broker,
    pub memory_bytes: u64,
    witness: Client,
    bystanders: Vec<Client>,
    topic: Topic,
    next: i64,
}

impl Stage {
    /// One shard with 64 MiB, and further arguments.
    pub fn start(arguments: &[&str]) -> Stage {
        Stage::of(Broker::start(&with_defaults(arguments)), 64 << 20)
    }

    /// The same with more memory, in MiB.
    pub fn with_memory(text: &str, arguments: &[&str]) -> Stage {
        let mut all = with_defaults(arguments);
        let place = all.iter().position(|argument| *argument == "--memory").expect("it is set");
        all[place + 1] = text;
        let mib = text.strip_suffix("MiB").and_then(|text| text.parse::<u64>().ok());
        Stage::of(Broker::start(&all), mib.expect("a number of MiB") << 20)
    }

    /// Takes over a broker that was started in another way.
    pub fn of(broker: Broker, memory_bytes: u64) -> Stage {
        let mut witness = broker.connect();
        let created = witness.call(7, &requests::create_topic("witness", 1));
        assert_eq!(created.topics[0].error_code, 0, "{created:?}");
        let topic = Topic { name: "witness".to_owned(), id: created.topics[0].topic_id };
        let bystanders = (0..4).map(|_| broker.connect()).collect();
        Stage { broker, memory_bytes, witness, bystanders, topic, next: 0 }
    }

    /// A topic of its own with one partition.
    pub fn topic(&mut self, name: &str) -> Topic {
        let created = self.witness.call(7, &requests::create_topic(name, 1));
        assert_eq!(created.topics[0].error_code, 0, "{created:?}");
        Topic { name: name.to_owned(), id: created.topics[0].topic_id }
    }

    /// A connection to the coordinator of all groups, which is there from now on.
    pub fn coordinator(&self) -> Client {
        let mut client = self.broker.connect();
        client.set_timeout(Duration::from_secs(60));
        let found = client.call(4, &offsets::find_coordinator("any"));
        assert_eq!(found.coordinators[0].error_code, 0, "{found:?}");
        client
    }

    /// The well-behaved connection, and a new one, produce and fetch what they should, soon.
    pub fn witness_is_served(&mut self) {
        self.old_witness_is_served();
        let mut fresh = self.broker.connect();
        self.next = round(&mut fresh, &self.topic, self.next);
    }

    /// The same without a new connection; the connections that were there are there.
    pub fn old_witness_is_served(&mut self) {
        for bystander in &mut self.bystanders {
            let versions = bystander.call(0, &ApiVersionsRequest::default());
            assert_eq!(versions.error_code, 0);
        }
        self.next = round(&mut self.witness, &self.topic, self.next);
    }

    /// The largest resident memory so far is that of `--memory`, and of so many connections.
    pub fn memory_is_kept(&self, connections: u64) {
        self.resides_within(self.memory_bytes + connections * CONNECTION_BYTES);
    }

    /// The same after large requests of many connections at once, whose buffers grow and go faster
    /// than their memory is given back: as much again.
    pub fn memory_is_kept_but_for_growing_buffers(&self, connections: u64) {
        self.resides_within(self.memory_bytes * 2 + connections * CONNECTION_BYTES);
    }

    fn resides_within(&self, most: u64) {
        let peak = self.peak_bytes();
        println!("resident at most {} MiB of {} MiB", peak >> 20, most >> 20);
        assert!(peak <= most, "{} MiB were resident, {} promised", peak >> 20, most >> 20);
    }

    /// Largest resident memory of the process so far.
    pub fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Resident memory of the process now.
    pub fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// How often a limit was reached, as the metrics say.
    pub fn reached(&self, limit: &str) -> u64 {
        self.told(&format!("ringlog_limit_reached_total{{limit=\"{limit}\"}} "))
    }

    fn told(&self, line: &str) -> u64 {
        let text = self.metrics();
        let value = text.lines().find_map(|found| found.strip_prefix(line));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {line}: {text}"))
    }

    /// Everything that the endpoint tells.
    pub fn metrics(&self) -> String {
        let said = self.broker.stdout();
        let line = said.lines().find_map(|line| line.strip_prefix("metrics http://"));
        let address = line.and_then(|line| line.split_once("/metrics")).expect("an endpoint").0;
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("taken");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        text
    }

    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.broker.process_id());
        let text = fs::read_to_string(path).expect("the process runs");
        let line = text.lines().find(|line| line.starts_with(name)).expect("a known line");
        let kib = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
        kib.expect("a number") << 10
    }

    /// Waits until the broker has said `text` on standard error.
    pub fn said(&self, text: &str) -> usize {
        let count = || self.broker.stderr().matches(text).count();
        until(Duration::from_secs(10), &format!("the broker says {text:?}"), || count() > 0);
        count()
    }
}

fn with_defaults<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let defaults = ["--shards", "1", "--memory", "64MiB", "--set", "journal.ring.bytes=16MiB"];
    let metrics = ["--metrics-listen", "127.0.0.1:0"];
    [&defaults[..], &metrics, arguments].concat()
}

/// A program that starts the broker with so many descriptors at most.
pub fn limited_program(descriptors: u64) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("limited-{descriptors}-{}.sh", std::process::id()));
    let program = env!("CARGO_BIN_EXE_ringlog");
    let text = format!("#!/bin/sh\nulimit -n {descriptors}\nexec {program} \"$@\"\n");
    fs::write(&path, text).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
    path
}

/// The same defaults for a broker that is started by another program.
pub fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    with_defaults(more)
}

/// Appends a batch with something unique, and fetches it back; returns the offset after it.
fn round(client: &mut Client, topic: &Topic, offset: i64) -> i64 {
    client.set_timeout(Duration::from_secs(10));
    let values: Vec<String> = (0..3).map(|number| format!("{offset} {number}")).collect();
    let batch = Batch::of_values(&values).encode();
    let produced: ProduceResponse = client.call(13, &requests::produce(13, topic, 0, -1, batch));
    let outcome = &produced.responses[0].partition_responses[0];
    assert_eq!((outcome.error_code, outcome.base_offset), (0, offset), "{outcome:?}");
    let fetched: FetchResponse = client.call(16, &requests::fetch(16, topic, 0, offset));
    let records: Bytes = fetched.responses[0].partitions[0].records.clone().expect("records");
    let batches = read_batches(records);
    let found: Vec<(i64, Option<Bytes>)> = batches
        .iter()
        .flat_map(|batch| &batch.records)
        .map(|record| (record.offset, record.value.clone()))
        .collect();
    let expected: Vec<(i64, Option<Bytes>)> =
        (offset..).zip(values.into_iter().map(|value| Some(Bytes::from(value)))).collect();
    assert_eq!(found, expected);
    offset + 3
}

/// Waits until something is true; panics if it takes too long.
pub fn until(most: Duration, what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + most;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
