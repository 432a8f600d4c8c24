//! What is counted: by the kernel and the broker's metrics on a child, by an allocator on a broker
//! within another child, by callgrind on the cores.
//!
//! Owns the loads that are counted. Each is a fixed number of requests in bursts: one write has all
//! requests of a burst, and the next burst begins when the last answer is there, so that a slower
//! machine batches no more and no less. Must never count in a time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{
    Client, Fault, accept, fetch_frame, fetch_records, produce_error, produce_frame,
};
use crate::load::{self, Load};
use crate::metrics::JOURNAL_COMMITS;
use crate::syscalls;
use crate::target::{Own, Server};

/// One counter of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Counter {
    /// What is counted, with `per` what.
    pub name: String,
    /// How much; `None` where nothing on this machine can count it.
    pub value: Option<f64>,
    /// Who counted.
    pub by: String,
    /// What it is made of, for people.
    pub detail: String,
}

impl Counter {
    /// One that is counted by what is measured itself.
    pub fn exact(name: &str, value: f64) -> Counter {
        let (by, detail) = ("itself".to_owned(), String::new());
        Counter { name: name.to_owned(), value: Some(value), by, detail }
    }
}

/// The programs of one revision.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The broker.
    pub ringlog: PathBuf,
    /// This program, for what is counted within it.
    pub perf: PathBuf,
}

/// One run of everything.
#[derive(Default)]
pub struct Taken {
    /// What is gated.
    pub counters: Vec<Counter>,
    /// CPU-microseconds by name: gated beside another revision only.
    pub cpu_us: Vec<(String, f64)>,
}

/// What the kernel and the metrics tell of a broker under load.
pub fn of_a_child(own: &Own, programs: &Programs) -> Result<Taken, Fault> {
    let own = Own { ringlog: Some(programs.ringlog.clone()), ..own.clone() };
    // Checkpoints come by the clock.
    let server = own.start(&["--set", "checkpoint_interval_ms=1h"])?;
    let run = move || -> Result<Taken, Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: server.core });
        let mut bursts = Bursts::new(&server)?;
        let mut taken = Taken::default();
        for burst in BURSTS {
            bursts.count(burst, &mut taken)?;
        }
        Ok(taken)
    };
    std::thread::spawn(run).join().map_err(|_| "the load's thread failed")?
}

/// A load that is counted.
struct Burst {
    name: &'static str,
    does: Does,
    in_flight: u64,
    requests: u64,
}

enum Does {
    /// Batches of so many records of so many bytes.
    Produce(usize, usize),
    /// Reads so many bytes that are in memory.
    Fetch(i32),
}

const BURSTS: &[Burst] = &[
    Burst {
        name: "produce_100b_1_in_flight",
        does: Does::Produce(1, 100),
        in_flight: 1,
        requests: 1_000,
    },
    Burst {
        name: "produce_100b_32_in_flight",
        does: Does::Produce(1, 100),
        in_flight: 32,
        requests: 6_400,
    },
    Burst {
        name: "produce_64kib_8_in_flight",
        does: Does::Produce(64, 1024),
        in_flight: 8,
        requests: 400,
    },
    Burst { name: "fetch_4kib", does: Does::Fetch(4 << 10), in_flight: 1, requests: 1_000 },
    Burst { name: "fetch_1mib", does: Does::Fetch(1 << 20), in_flight: 1, requests: 200 },
];

struct Bursts<'a> {
    server: &'a Server,
    client: Client,
}

impl Bursts<'_> {
    fn new(server: &Server) -> Result<Bursts<'_>, Fault> {
        let leader = Client::connect(&server.address)?.leaders(TOPIC, 1)?.swap_remove(0);
        Ok(Bursts { server, client: Client::connect(&leader)? })
    }

    fn count(&mut self, burst: &Burst, taken: &mut Taken) -> Result<(), Fault> {
        let (frame, batch_bytes) = burst.frame();
        send(&mut self.client, burst, &frame, burst.requests / 10)?;
        let quiet = self.quiet();
        let metrics = self.server.scrape()?;
        let calls = syscalls::Counter::start(self.server.pid).ok();
        let usage = self.server.usage();
        send(&mut self.client, burst, &frame, burst.requests)?;
        let used = self.server.usage().since(&usage);
        let calls = calls.map(|calls| calls.per_request(burst.requests)).transpose()?;
        let commits = self.server.scrape()?.since(&metrics, JOURNAL_COMMITS);
        let written = self.quiet() - quiet;
        let each = |amount: f64| amount / burst.requests as f64;
        let name = |what: &str| format!("{what}_per_{}", burst.name);
        taken.cpu_us.push((name("cpu_us"), each(used.cpu_seconds * 1e6)));
        taken.counters.push(counted(name("syscalls"), calls));
        if batch_bytes > 0 {
            let per_byte = each(written as f64) / batch_bytes as f64;
            let amplification = format!("written_bytes_per_byte_of_{}", burst.name);
            taken.counters.push(Counter::exact(&name("journal_commits"), each(commits)));
            taken.counters.push(Counter::exact(&amplification, per_byte));
        }
        Ok(())
    }

    /// Bytes written so far, once all that is behind is written.
    fn quiet(&self) -> u64 {
        let deadline = Instant::now() + QUIET_TIMEOUT;
        let mut before = self.server.usage().written_bytes;
        loop {
            std::thread::sleep(QUIET);
            let now = self.server.usage().written_bytes;
            if now == before || Instant::now() > deadline {
                return now;
            }
            before = now;
        }
    }
}

/// What was counted, if anything here could.
fn counted(name: String, calls: Option<syscalls::Counted>) -> Counter {
    let Some(calls) = calls else { return Counter { value: None, ..Counter::exact(&name, 0.0) } };
    let by_name = calls.by_name.iter().map(|(name, each)| format!("{name} {each:.2}"));
    let detail = by_name.collect::<Vec<_>>().join(", ");
    Counter { name, value: Some(calls.per_request), by: calls.by.to_owned(), detail }
}

impl Burst {
    /// One request, and the bytes of its batch.
    fn frame(&self) -> (Vec<u8>, usize) {
        match self.does {
            Does::Produce(records, record_bytes) => {
                let load = Load { records, record_bytes, ..Load::one(TOPIC, 0) };
                let batch = load::batch(&load);
                (produce_frame(TOPIC, 0, -1, &batch), batch.len())
            }
            Does::Fetch(bytes) => (fetch_frame(TOPIC, 0, 0, bytes), 0),
        }
    }
}

fn send(client: &mut Client, burst: &Burst, frame: &[u8], requests: u64) -> Result<(), Fault> {
    let together = frame.repeat(burst.in_flight as usize);
    for _ in 0..requests / burst.in_flight {
        client.send(&together)?;
        for _ in 0..burst.in_flight {
            let answer = client.receive()?;
            let code = match burst.does {
                Does::Produce(..) => produce_error(answer, TOPIC),
                Does::Fetch(_) => fetch_records(answer, TOPIC).0,
            };
            accept(burst.name, code)?;
        }
    }
    Ok(())
}

/// What a broker within a child of its own allocates.
pub fn allocations(own: &Own, programs: &Programs) -> Result<Vec<Counter>, Fault> {
    let output = Command::new(&programs.perf)
        .args(["counted", "--data-dir"])
        .arg(&own.data_dir)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let object = text.lines().find(|line| line.starts_with('{'));
    let Some(object) = object.filter(|_| output.status.success()) else {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("allocations are not counted: {why}").into());
    };
    let object: std::collections::BTreeMap<String, f64> = serde_json::from_str(object)?;
    Ok(object.iter().map(|(name, &value)| Counter::exact(name, value)).collect())
}

/// Programs that lie together.
pub fn programs_in(directory: &Path) -> Programs {
    Programs { ringlog: directory.join("ringlog"), perf: directory.join("ringlog-perf") }
}

const TOPIC: &str = "gate";
const QUIET: Duration = Duration::from_millis(150);
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);
