//! Apache Kafka's own load programs: so that nobody has to trust ours.
//!
//! Owns how ProducerPerformance, ConsumerPerformance and EndToEndLatency are run and what is read
//! off them. They run pinned to the load's core, one JVM each, with a bound on their time, and say
//! milliseconds where ours say microseconds. Their figures have the start of the JVM in them only
//! where the program itself counts it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::client::Fault;
use super::kafka::Jars;
use super::target::Server;

/// What one of them has said.
pub struct Said {
    text: String,
    /// CPU-seconds of its process.
    pub cpu_seconds: f64,
}

/// Milliseconds by quantile, and what was done in a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    pub records_per_second: f64,
    pub megabytes_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

/// What a client is told beside its program's own arguments.
pub struct Client<'a> {
    pub jars: &'a Jars,
    pub server: &'a Server,
    pub properties: &'a [String],
}

impl Client<'_> {
    /// Produces so many records, as many of them first without counting.
    pub fn produce(
        &self,
        topic: &str,
        (records, bytes): (u64, usize),
        warm_up: u64,
    ) -> Result<(Figures, Said), Fault> {
        let (count, size) = ((records + warm_up).to_string(), bytes.to_string());
        let warm_up = warm_up.to_string();
        let mut words = vec!["--topic", topic, "--num-records", &count, "--record-size", &size];
        words.extend(["--throughput", "-1", "--bootstrap-server", &self.server.address]);
        words.extend(["--command-property", "acks=all"]);
        words.extend(self.properties.iter().map(String::as_str));
        if warm_up != "0" {
            words.extend(["--warmup-records", &warm_up]);
        }
        let said = self.run("ProducerPerformance", &words)?;
        Ok((produced(&said.text).ok_or_else(|| not_understood(&said.text))?, said))
    }

    /// Consumes so many records of a topic from its begin.
    pub fn consume(&self, topic: &str, records: u64) -> Result<(Figures, Said), Fault> {
        let count = records.to_string();
        let mut words = vec!["--bootstrap-server", &self.server.address, "--topic", topic];
        words.extend(["--num-records", &count, "--timeout", "60000", "--hide-header"]);
        for property in self.properties {
            words.extend(["--command-property", property]);
        }
        let said = self.run("ConsumerPerformance", &words)?;
        Ok((consumed(&said.text).ok_or_else(|| not_understood(&said.text))?, said))
    }

    /// Sends so many records, each when the one before has come back.
    pub fn latency(
        &self,
        topic: &str,
        (records, bytes): (u64, usize),
    ) -> Result<(Figures, Said), Fault> {
        let (count, size) = (records.to_string(), bytes.to_string());
        let words = ["--bootstrap-server", &self.server.address, "--topic", topic];
        let more = ["--num-records", &count, "--producer-acks", "all", "--record-size", &size];
        let said = self.run("EndToEndLatency", &[&words[..], &more].concat())?;
        Ok((round_trips(&said.text).ok_or_else(|| not_understood(&said.text))?, said))
    }

    fn run(&self, class: &str, words: &[&str]) -> Result<Said, Fault> {
        let mut java = self.jars.java();
        java.args(["-Xmx512m", "-XX:+UseSerialGC"]).arg(format!("org.apache.kafka.tools.{class}"));
        java.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut cores = CpuSet::new();
        cores.set(self.server.core);
        // SAFETY: between fork and exec, two system calls that allocate nothing.
        unsafe {
            java.pre_exec(move || {
                sched_setaffinity(None, &cores)?;
                Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        let before = children_cpu_seconds();
        let mut child = java.spawn().map_err(|error| format!("java: {error}"))?;
        let reader = |mut pipe: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = pipe.read_to_string(&mut text);
                text
            })
        };
        let output = reader(Box::new(child.stdout.take().ok_or("no output")?));
        let errors = reader(Box::new(child.stderr.take().ok_or("no errors")?));
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    child.kill()?;
                    child.wait()?;
                    return Err(format!("{class} took more than {} s", TIMEOUT.as_secs()).into());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let text = output.join().map_err(|_| "the reader failed")?;
        let errors = errors.join().map_err(|_| "the reader failed")?;
        if !status.success() {
            return Err(format!("{class} ended with {status}: {errors}{text}").into());
        }
        Ok(Said { text, cpu_seconds: children_cpu_seconds() - before })
    }
}

fn not_understood(text: &str) -> Fault {
    format!("what Kafka's program says is not understood: {text}").into()
}

/// The last line that sums up: `N records sent, R records/sec (M MB/sec), ..., 5 ms 50th, ...`.
fn produced(text: &str) -> Option<Figures> {
    let line = text.lines().rev().find(|line| line.contains(" ms 50th"))?;
    let before = |mark: &str| -> Option<f64> {
        let (head, _) = line.split_once(mark)?;
        head.rsplit([' ', '(', ',']).next()?.parse().ok()
    };
    Some(Figures {
        records_per_second: before(" records/sec")?,
        megabytes_per_second: before(" MB/sec")? * MIB / 1e6,
        p50_ms: before(" ms 50th")?,
        p99_ms: before(" ms 99th")?,
        p999_ms: before(" ms 99.9th")?,
    })
}

/// Values with commas: begin, end, MiB, MiB per second, records, records per second, ...
fn consumed(text: &str) -> Option<Figures> {
    let line = text.lines().rev().find(|line| line.matches(", ").count() >= 9)?;
    let fields: Vec<f64> =
        line.split(", ").skip(2).map_while(|field| field.trim().parse().ok()).collect();
    let &[_, _, _, _, _, _, mib_per_second, records_per_second, ..] = &fields[..] else {
        return None;
    };
    // Those of the time that it fetched: joining the group is not what is measured.
    let megabytes_per_second = mib_per_second * MIB / 1e6;
    let none = f64::NAN;
    Some(Figures {
        records_per_second,
        megabytes_per_second,
        p50_ms: none,
        p99_ms: none,
        p999_ms: none,
    })
}

/// `Avg latency: 0.5 ms` and `Percentiles: 50th = 0, 99th = 1, 99.9th = 4`.
fn round_trips(text: &str) -> Option<Figures> {
    let after = |mark: &str| -> Option<f64> {
        let (_, rest) = text.rsplit_once(mark)?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    let average_ms = after("Avg latency: ")?;
    Some(Figures {
        records_per_second: 1e3 / average_ms,
        megabytes_per_second: f64::NAN,
        p50_ms: after("Percentiles: 50th = ")?,
        p99_ms: after(" 99th = ")?,
        p999_ms: after(" 99.9th = ")?,
    })
}

/// CPU-seconds of all children that have ended.
fn children_cpu_seconds() -> f64 {
    // SAFETY: all zeroes are a sound value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one structure to where it is told.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return 0.0;
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

const MIB: f64 = (1 << 20) as f64;
const TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_say_is_understood() {
        let text = "10 records sent, 2 records/sec (0.00 MB/sec), 1.0 ms avg latency, 9 ms max \
                    latency.\n50000 records sent, 24987.506247 records/sec (24.40 MB/sec), 3.14 ms \
                    avg latency, 180.00 ms max latency, 2 ms 50th, 9 ms 95th, 40 ms 99th, 171 ms \
                    99.9th.\n";
        let found = produced(text).expect("understood");
        assert_eq!((found.p50_ms, found.p99_ms, found.p999_ms), (2.0, 40.0, 171.0));
        assert_eq!(found.records_per_second, 24_987.506_247);
        assert!((found.megabytes_per_second - 25.585).abs() < 0.001);
        let text = "2026-11-30 10:00:00:000, 2026-11-30 10:00:02:000, 256.0, 128.0, 262144, \
                    131072.0, 500, 1500, 170.6667, 174762.6667\n";
        let found = consumed(text).expect("understood");
        assert_eq!(found.records_per_second, 174_762.666_7);
        let text =
            "0\t1.2\nAvg latency: 0.4210 ms\n\nPercentiles: 50th = 0, 99th = 1, 99.9th = 4\n";
        let found = round_trips(text).expect("understood");
        assert_eq!((found.p50_ms, found.p99_ms, found.p999_ms), (0.0, 1.0, 4.0));
        assert!(produced("").is_none() && consumed("").is_none() && round_trips("").is_none());
    }
}
