//! What a process has used: CPU time, bytes written, memory, from `/proc`; and the median.

use std::collections::HashMap;

/// Use of a process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU-seconds, user and system.
    pub cpu_seconds: f64,
    /// Bytes it caused to be written to the device.
    pub written_bytes: u64,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
}

impl Usage {
    /// Use of `pid`; zeroes for a process that cannot be looked at.
    #[must_use]
    pub fn of(pid: u32) -> Usage {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |index: usize| {
            fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0)
        };
        let io = pairs(&read("io"));
        let status = pairs(&read("status"));
        let number = |map: &HashMap<String, u64>, key: &str| map.get(key).copied().unwrap_or(0);
        Usage {
            cpu_seconds: cpu_seconds(pid).unwrap_or((ticks(11) + ticks(12)) / TICKS_PER_SECOND),
            written_bytes: number(&io, "write_bytes"),
            resident_bytes: number(&status, "VmRSS") * 1024,
            switches: switches(pid),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            written_bytes: self.written_bytes - earlier.written_bytes,
            resident_bytes: self.resident_bytes,
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

/// Context switches of all threads.
fn switches(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let status = pairs(&text);
        ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
            .iter()
            .filter_map(|name| status.get(*name))
            .sum::<u64>()
    };
    threads.map(of).sum()
}

/// The middle one.
#[must_use]
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The CPU clock of a process, to the nanosecond: ticks are too coarse for an idle one.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|&pid| pid > 0)?;
    let mut clock = 0;
    // SAFETY: the call writes one clock id to where it is told.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    clock_seconds(clock)
}

/// CPU-seconds of the thread that asks.
#[must_use]
pub fn thread_cpu_seconds() -> f64 {
    clock_seconds(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(f64::NAN)
}

fn clock_seconds(clock: libc::clockid_t) -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one time to where it is told.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

fn pairs(text: &str) -> HashMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            let number = value.split_whitespace().next()?.parse().ok()?;
            Some((key.to_owned(), number))
        })
        .collect()
}

const TICKS_PER_SECOND: f64 = 100.0;
