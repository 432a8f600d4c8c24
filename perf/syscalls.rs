//! How many system calls a request costs the broker.
//!
//! Owns the counter: the kernel's own tracepoint, by way of `perf stat`, which costs the broker
//! next to nothing; where that is not to be had, `strace -c`, which stops it at every call, so
//! that more requests share a turn than else. The report says which one it was.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use super::client::Fault;
use super::load::{self, Load, Mode};
use super::report::{Report, figures, number};
use super::target::{Server, Target};

/// Options of `run syscalls`.
#[derive(Args, Clone, Debug)]
pub struct SyscallsArguments {
    #[command(flatten)]
    target: Target,
    /// Requests in flight, one run for each
    #[arg(long, value_delimiter = ',', default_value = "1,32")]
    in_flight: Vec<usize>,
    /// Bytes of a record's value
    #[arg(long, default_value_t = 100)]
    record_bytes: usize,
    /// Length of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// System calls of one load.
pub struct Counted {
    /// Who counted.
    pub by: &'static str,
    /// All of them, per request.
    pub per_request: f64,
    /// The most frequent ones, per request.
    pub by_name: Vec<(String, f64)>,
}

/// Counts and prints the report.
pub fn run(arguments: &SyscallsArguments) -> Result<(), Fault> {
    let server = arguments.target.server()?;
    let mut report = Report::new("syscalls");
    for &in_flight in &arguments.in_flight {
        let topic = format!("syscalls-{in_flight}");
        let load = Load {
            in_flight,
            record_bytes: arguments.record_bytes,
            ..Load::one(&topic, arguments.seconds)
        };
        let counted = count(&server, &load)?;
        let names: Vec<String> =
            counted.by_name.iter().map(|(name, each)| format!("{name} {each:.2}")).collect();
        report.row(figures([
            ("in_flight", in_flight.into()),
            ("syscalls_per_request", number(counted.per_request)),
            ("counted_by", counted.by.into()),
            ("most_frequent", names.join(", ").into()),
        ]));
    }
    report.print(arguments.json);
    Ok(())
}

/// System calls per request of a produce load.
pub fn count(server: &Server, load: &Load) -> Result<Counted, Fault> {
    // Topic and connections are not what is counted.
    load::measure(server, &Load { seconds: 0, warm_up_seconds: 1, ..load.clone() }, Mode::Produce)?;
    let counter = Counter::start(server.pid)?;
    let outcome =
        load::measure(server, &Load { warm_up_seconds: 0, ..load.clone() }, Mode::Produce)?;
    counter.per_request(outcome.requests_in_all)
}

/// Counts the system calls of a process until it is stopped.
pub enum Counter {
    Perf(Child),
    Strace(Child),
}

impl Counter {
    /// Begins to count.
    pub fn start(pid: u32) -> Result<Counter, Fault> {
        match Counter::perf(pid) {
            Ok(counter) => Ok(counter),
            Err(why) => Counter::strace(pid).map_err(|error| {
                format!("neither perf ({why}) nor strace ({error}) can count").into()
            }),
        }
    }

    /// It counts for as long as its own child lives, which says when that begins.
    fn perf(pid: u32) -> Result<Counter, Fault> {
        let mut events = vec!["raw_syscalls:sys_enter".to_owned()];
        events.extend(NAMED.iter().map(|name| format!("syscalls:sys_enter_{name}")));
        let mut child = Command::new("perf")
            .args(["stat", "-x", ",", "-e", &events.join(","), "-p", &pid.to_string()])
            .args(["--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = [0u8; 1];
        let begun = child.stdin.as_mut().map(|stdin| stdin.write_all(b"."));
        let heard = child.stdout.as_mut().map(|stdout| stdout.read_exact(&mut said));
        match (begun, heard) {
            (Some(Ok(())), Some(Ok(()))) => Ok(Counter::Perf(child)),
            _ => {
                let _ = child.kill();
                let output = child.wait_with_output()?;
                let text = String::from_utf8_lossy(&output.stderr);
                Err(text.lines().find(|line| !line.is_empty()).unwrap_or("no reason").into())
            }
        }
    }

    fn strace(pid: u32) -> Result<Counter, Fault> {
        let mut child = Command::new("strace")
            .args(["-c", "-f", "-U", "calls,name", "-o", "/dev/stdout", "-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        let mut errors = BufReader::new(child.stderr.take().ok_or("strace is not piped")?);
        errors.read_line(&mut said)?;
        if said.contains("attached") {
            // What follows must not stop it.
            std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
            return Ok(Counter::Strace(child));
        }
        let _ = child.kill();
        child.wait()?;
        Err(said.trim().into())
    }

    /// Ends, and says what each of so many requests took.
    pub fn per_request(self, requests: u64) -> Result<Counted, Fault> {
        let (by, calls) = self.stop()?;
        let each = |count: u64| count as f64 / requests as f64;
        let mut by_name: Vec<(String, f64)> = calls
            .iter()
            .filter(|(name, _)| name.as_str() != ALL)
            .map(|(name, &count)| (name.clone(), each(count)))
            .collect();
        by_name.sort_by(|left, right| right.1.total_cmp(&left.1));
        by_name.retain(|(_, each)| *each >= 0.01);
        let all = calls.get(ALL).copied().ok_or("the counter has told nothing")?;
        Ok(Counted { by, per_request: each(all), by_name })
    }

    /// All calls under [`ALL`], and those of some names.
    fn stop(self) -> Result<(&'static str, BTreeMap<String, u64>), Fault> {
        match self {
            Counter::Perf(mut child) => {
                drop(child.stdin.take());
                let output = child.wait_with_output()?;
                Ok(("perf", parse_perf(&String::from_utf8_lossy(&output.stderr))))
            }
            Counter::Strace(child) => {
                let pid = Pid::from_raw(i32::try_from(child.id())?).ok_or("no process")?;
                kill_process(pid, Signal::INT)?;
                let output = child.wait_with_output()?;
                Ok(("strace", parse_strace(&String::from_utf8_lossy(&output.stdout))))
            }
        }
    }
}

/// Lines of a count, a unit and an event, with commas.
fn parse_perf(text: &str) -> BTreeMap<String, u64> {
    let calls = text.lines().filter_map(|line| {
        let mut fields = line.split(',');
        let (count, _, event) = (fields.next()?, fields.next()?, fields.next()?);
        let name = match event.split_once(':')? {
            ("raw_syscalls", _) => ALL,
            (_, event) => event.strip_prefix("sys_enter_")?,
        };
        Some((name.to_owned(), count.parse().ok()?))
    });
    calls.collect()
}

/// Lines of a count and a name.
fn parse_strace(text: &str) -> BTreeMap<String, u64> {
    let calls = text.lines().filter_map(|line| {
        let (count, name) = line.trim().split_once(char::is_whitespace)?;
        Some((name.trim().to_owned(), count.parse().ok()?))
    });
    calls.collect()
}

/// Name of the sum, as strace calls it.
const ALL: &str = "total";

/// What a broker may call often.
const NAMED: &[&str] = &[
    "io_uring_enter",
    "recvfrom",
    "recvmsg",
    "sendto",
    "sendmsg",
    "read",
    "write",
    "writev",
    "futex",
    "epoll_wait",
    "fcntl",
    "ioctl",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counters_are_understood() {
        let perf = "29,,raw_syscalls:sys_enter,1175351,100.00,,\n\
                    7,,syscalls:sys_enter_read,1175351,100.00,,\n<not counted>,,x:y,0,0,,\n";
        let found = parse_perf(perf);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("read".into(), 7), (ALL.into(), 29)]);
        let strace = "    calls syscall\n--------- ----------------\n        1 read\n\
                      \x20      27 sendto\n--------- ----------------\n       28 total\n";
        let found = parse_strace(strace);
        let wanted = [("read".into(), 1), ("sendto".into(), 27), (ALL.into(), 28)];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), wanted);
    }
}
