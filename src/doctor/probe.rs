//! The look at this host: `/proc`, `/sys`, and three short measurements.
//!
//! Owns how each fact is read. Leaves nothing behind: the probes are files of a few megabytes in
//! the data directory or its nearest ancestor, removed in the end. It takes no lock, so that it can
//! look at the host of a running broker; it then measures beside that broker's load.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::process::{Resource, getrlimit};

use super::{DiskFacts, Facts, Interrupts, Spread};
use crate::config::BrokerConfig;
use crate::config::broker::Mode;
use crate::io::AlignedBuffer;
use crate::io::cores::cores_near;
use crate::io::device;
use crate::limits::BLOCK_ALIGN;
use crate::preflight;

/// Takes all facts for a broker with this configuration; some seconds.
#[must_use]
pub fn facts(config: &BrokerConfig) -> Facts {
    let memlock_bytes = getrlimit(Resource::Memlock).current;
    let mut shard_cores = cores_near(&config.data_dir);
    shard_cores.truncate(usize::from(config.shards));
    // The disk is probed later: its interrupts are this program's.
    let interrupts = text(INTERRUPTS);
    let begun = Instant::now();
    let wake = wake().ok().map(|taken| spread(&taken));
    let interrupts = most_frequent(interrupts, begun, &shard_cores);
    Facts {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        uring_refused: preflight::check_uring().err().map(|error| error.to_string()),
        memlock_bytes,
        memlock_refused: preflight::check_memlock(memlock_bytes)
            .err()
            .map(|error| error.to_string()),
        open_files: getrlimit(Resource::Nofile).maximum,
        shards: config.shards,
        shard_cores,
        polls: config.mode == Mode::Latency,
        interrupts,
        cores_online: cores_online(),
        cores_isolated: text("/sys/devices/system/cpu/isolated").unwrap_or_default(),
        governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        huge_pages_always: text("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_some_and(|text| text.contains("[always]")),
        swappiness: swappiness(),
        backlog: number("/proc/sys/net/core/somaxconn"),
        wake,
        disk: disk(config),
    }
}

/// The device that has interrupted one of these cores most often since `begun`.
fn most_frequent(
    before: Option<String>,
    begun: Instant,
    shard_cores: &[usize],
) -> Option<Interrupts> {
    let (before, after) = (before?, text(INTERRUPTS)?);
    let seconds = begun.elapsed().as_secs_f64().max(1e-3);
    let lines = after.lines().zip(before.lines()).skip(1);
    let counted = lines.filter_map(|(after, before)| interrupts_of(after, before, shard_cores));
    let most = counted.max_by_key(|(_, _, _, count)| *count)?;
    let (number, device, core, count) = most;
    (count > 0).then(|| Interrupts { number, device, core, per_second: count as f64 / seconds })
}

/// Number, device, core and count of the core that a line of `/proc/interrupts` has most of.
pub(super) fn interrupts_of(
    after: &str,
    before: &str,
    shard_cores: &[usize],
) -> Option<(u32, String, usize, u64)> {
    let (name, after) = after.split_once(':')?;
    let (same, before) = before.split_once(':')?;
    // Others than devices have names: timers, calls between cores.
    let number = name.trim().parse().ok().filter(|_| name == same)?;
    let counts = |line: &str| -> Vec<u64> {
        line.split_whitespace().map_while(|field| field.parse().ok()).collect()
    };
    let (now, then) = (counts(after), counts(before));
    let on = |&core: &usize| Some((core, now.get(core)?.saturating_sub(*then.get(core)?)));
    let (core, count) = shard_cores.iter().filter_map(on).max_by_key(|(_, count)| *count)?;
    Some((number, after.split_whitespace().last()?.to_owned(), core, count))
}

fn disk(config: &BrokerConfig) -> DiskFacts {
    let directory = device::nearest(&config.data_dir);
    let power_loss = config.durability == crate::config::Durability::PowerLoss;
    let queue = queue(&directory);
    let fact = |name: &str| queue.as_ref().and_then(|queue| text(queue.join(name)));
    DiskFacts {
        file_system: preflight::check_direct_io(&directory, power_loss)
            .map_err(|error| error.to_string()),
        free_bytes: rustix::fs::statvfs(&directory)
            .ok()
            .map(|facts| facts.f_bavail.saturating_mul(facts.f_frsize)),
        // Rings and as much again in reserve.
        wanted_bytes: 2 * config.journal_ring_bytes * u64::from(config.shards),
        device: queue
            .as_ref()
            .and_then(|queue| Some(queue.parent()?.file_name()?.to_string_lossy().into_owned())),
        block_bytes: fact("logical_block_size").and_then(|text| text.parse().ok()),
        write_back: fact("write_cache").map(|text| text == "write back"),
        fua: fact("fua").map(|text| text == "1"),
        dsync: durable_writes(&directory, DURABLE_WRITES).ok().map(|taken| spread(&taken)),
        directory,
    }
}

/// The kernel's directory about the queue of the device below; a partition has that of its disk.
fn queue(directory: &Path) -> Option<PathBuf> {
    let device = device::of(directory)?;
    [device.join("queue"), device.parent()?.join("queue")].into_iter().find(|path| path.is_dir())
}

/// Overwrites of written blocks of 4 KiB with `O_DIRECT | O_DSYNC`: nanoseconds each.
///
/// # Errors
/// What the system says.
pub fn durable_writes(directory: &Path, count: usize) -> io::Result<Histogram<u64>> {
    let path = directory.join(format!("{PROBE_FILE}-{}", std::process::id()));
    let taken = overwrite(&path, count);
    match fs::remove_file(&path) {
        Err(error) if taken.is_ok() => Err(error),
        _ => taken,
    }
}

fn overwrite(path: &Path, count: usize) -> io::Result<Histogram<u64>> {
    fs::write(path, vec![0; PROBE_BYTES])?;
    fs::File::open(path)?.sync_all()?;
    let file = fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT | libc::O_DSYNC)
        .open(path)?;
    let block = AlignedBuffer::zeroed(BLOCK_ALIGN);
    let mut taken = histogram();
    for write in 0..count {
        let position = (write * BLOCK_ALIGN) % PROBE_BYTES;
        let begun = Instant::now();
        file.write_all_at(&block, position as u64)?;
        taken.saturating_record(nanoseconds(begun.elapsed()));
    }
    Ok(taken)
}

/// How long a sleeping thread takes to run after it is woken: nanoseconds each.
fn wake() -> io::Result<Histogram<u64>> {
    let (to_sleeper, wakes) = sync_channel::<Instant>(1);
    let (to_waker, taken) = sync_channel::<Duration>(1);
    let sleeper = std::thread::Builder::new().spawn(move || {
        while let Ok(sent) = wakes.recv() {
            if to_waker.send(sent.elapsed()).is_err() {
                return;
            }
        }
    })?;
    let mut histogram = histogram();
    for _ in 0..WAKES {
        // Long enough for the other thread to have gone to sleep.
        std::thread::sleep(WAKE_PAUSE);
        if to_sleeper.send(Instant::now()).is_err() {
            break;
        }
        match taken.recv() {
            Ok(latency) => histogram.saturating_record(nanoseconds(latency)),
            Err(_) => break,
        }
    }
    drop(to_sleeper);
    sleeper.join().map_err(|_| io::Error::other("the sleeping thread failed"))?;
    Ok(histogram)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("invariant: the bounds are sound")
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn spread(taken: &Histogram<u64>) -> Spread {
    let us = |quantile| taken.value_at_quantile(quantile) as f64 / 1_000.0;
    Spread { p50_us: us(0.5), p99_us: us(0.99) }
}

fn cores_online() -> usize {
    let online = text("/proc/cpuinfo").unwrap_or_default();
    online.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// `None` without swap.
fn swappiness() -> Option<u32> {
    let areas = text("/proc/swaps")?.lines().count().saturating_sub(1);
    if areas == 0 {
        return None;
    }
    number("/proc/sys/vm/swappiness").and_then(|number| u32::try_from(number).ok())
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

const INTERRUPTS: &str = "/proc/interrupts";
const PROBE_FILE: &str = ".ringlog-probe";
const PROBE_BYTES: usize = 4 * 1024 * 1024;
const DURABLE_WRITES: usize = 500;
const LONGEST_NS: u64 = 60_000_000_000;
const WAKES: usize = 500;
const WAKE_PAUSE: Duration = Duration::from_millis(1);
