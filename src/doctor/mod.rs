//! What a host gives a broker, and what would make it give more.
//!
//! Owns the verdicts: [`examine`] turns [`Facts`] into one [`Finding`] per subject, each with the
//! command or setting that mends it. It measures and reads nothing itself; that is [`probe`]. What
//! ends a start is decided by [`preflight`](crate::preflight) and only told here, so that the
//! doctor and a start cannot disagree.

use std::path::PathBuf;

use crate::limits::{BLOCK_ALIGN, LISTEN_BACKLOG, OPEN_FILES_COMFORTABLE};

pub mod probe;
#[cfg(test)]
mod tests;

/// What was read and measured; `None` where the host does not say.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    /// Release of the kernel, as `uname` gives it.
    pub kernel: String,
    /// Why io_uring cannot be used, as the start would say it.
    pub uring_refused: Option<String>,
    /// Limit of locked memory in bytes, `None` for no limit.
    pub memlock_bytes: Option<u64>,
    /// Why the start would refuse that limit.
    pub memlock_refused: Option<String>,
    /// Hard limit of open descriptors, `None` for no limit.
    pub open_files: Option<u64>,
    /// Shards that a start without options would make.
    pub shards: u16,
    /// Cores of the shards.
    pub shard_cores: Vec<usize>,
    /// Whether idle shards poll before they sleep.
    pub polls: bool,
    /// Cores of the machine.
    pub cores_online: usize,
    /// Cores that the scheduler leaves alone, as the kernel lists them.
    pub cores_isolated: String,
    /// Governor of the first core's frequency.
    pub governor: Option<String>,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// Whether huge pages are given out unasked.
    pub huge_pages_always: bool,
    /// Whether there is swap, and how willingly it is used.
    pub swappiness: Option<u32>,
    /// `net.core.somaxconn`
    pub backlog: Option<u64>,
    /// The device that interrupts a shard's core most often.
    pub interrupts: Option<Interrupts>,
    /// How long one thread takes to wake another.
    pub wake: Option<Spread>,
    /// The disk.
    pub disk: DiskFacts,
}

/// What is known of the place for the data.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskFacts {
    /// The directory that was probed: the data directory or its nearest ancestor.
    pub directory: PathBuf,
    /// What the start says about the file system: a refusal, a warning, or nothing.
    pub file_system: Result<Option<String>, String>,
    /// Bytes free.
    pub free_bytes: Option<u64>,
    /// Bytes that a first start allocates.
    pub wanted_bytes: u64,
    /// Name of the device.
    pub device: Option<String>,
    /// Its logical block size in bytes.
    pub block_bytes: Option<u64>,
    /// Its cache is lost with the power, as it says itself.
    pub write_back: Option<bool>,
    /// It takes durable writes without a flush.
    pub fua: Option<bool>,
    /// Durable overwrites of 4 KiB.
    pub dsync: Option<Spread>,
}

/// Interrupts of one device on one core.
#[derive(Clone, PartialEq, Debug)]
pub struct Interrupts {
    /// Its number.
    pub number: u32,
    /// What the kernel calls it.
    pub device: String,
    /// The core.
    pub core: usize,
    /// How many a second.
    pub per_second: f64,
}

/// A distribution, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Half took less.
    pub p50_us: f64,
    /// One in a hundred took longer.
    pub p99_us: f64,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing to do.
    Good,
    /// It works, but worse than it could.
    Warn,
    /// A broker does not start here.
    Bad,
}

impl Level {
    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Good => "ok",
            Level::Warn => "warn",
            Level::Bad => "bad",
        }
    }
}

/// The verdict on one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is about.
    pub subject: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// The command or setting that mends it; empty if there is nothing to mend, or no way to.
    pub mend: String,
}

/// One finding per subject, always the same subjects in the same order.
#[must_use]
pub fn examine(facts: &Facts) -> Vec<Finding> {
    vec![
        kernel(facts),
        uring(facts),
        memlock(facts),
        open_files(facts),
        cores(facts),
        interrupts(facts),
        governor(facts),
        clock(facts),
        wake(facts),
        huge_pages(facts),
        swap(facts),
        backlog(facts),
        file_system(&facts.disk),
        space(&facts.disk),
        blocks(&facts.disk),
        cache(&facts.disk),
        dsync(&facts.disk),
    ]
}

/// Whether a broker would start.
#[must_use]
pub fn can_serve(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < Level::Bad)
}

fn good(subject: &'static str, found: impl Into<String>) -> Finding {
    Finding { subject, level: Level::Good, found: found.into(), mend: String::new() }
}

fn warn(subject: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding { subject, level: Level::Warn, found: found.into(), mend: mend.into() }
}

fn bad(subject: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding { subject, level: Level::Bad, found: found.into(), mend: mend.into() }
}

/// A sentence of the start's: what is wrong, and after the first colon what to do.
fn refused(subject: &'static str, sentence: &str) -> Finding {
    let (found, mend) = sentence.split_once(": ").unwrap_or((sentence, ""));
    bad(subject, found, mend)
}

fn kernel(facts: &Facts) -> Finding {
    let subject = "kernel";
    let mut numbers = facts.kernel.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return warn(subject, format!("Linux {}, of unknown age", facts.kernel), "");
    };
    let found = format!("Linux {}", facts.kernel);
    match (major, minor) {
        (0..=4, _) | (5, ..15) => bad(subject, found, "install Linux 5.15 or newer"),
        (5, _) => warn(subject, found, "io_uring is cheaper from Linux 6.1 on: install that"),
        _ => good(subject, found),
    }
}

fn uring(facts: &Facts) -> Finding {
    match &facts.uring_refused {
        Some(sentence) => refused("io_uring", sentence),
        None => good("io_uring", "rings can be set up"),
    }
}

fn memlock(facts: &Facts) -> Finding {
    let subject = "locked memory";
    if let Some(sentence) = &facts.memlock_refused {
        return refused(subject, sentence);
    }
    match facts.memlock_bytes {
        None => good(subject, "no limit"),
        Some(limit) => good(subject, format!("{} may be locked", size(limit))),
    }
}

fn open_files(facts: &Facts) -> Finding {
    let subject = "descriptors";
    match facts.open_files {
        None => good(subject, "no limit"),
        Some(limit) if limit < OPEN_FILES_COMFORTABLE => warn(
            subject,
            format!("{limit} files and connections can be open at once"),
            format!("ulimit -n {OPEN_FILES_COMFORTABLE} or LimitNOFILE={OPEN_FILES_COMFORTABLE}"),
        ),
        Some(limit) => good(subject, format!("{limit} can be open at once")),
    }
}

fn cores(facts: &Facts) -> Finding {
    let isolated = match facts.cores_isolated.trim() {
        "" => "none isolated".to_owned(),
        list => format!("{list} isolated"),
    };
    let found =
        format!("{} online, {} for this process, {isolated}", facts.cores_online, facts.shards);
    if facts.shards == 1 {
        let mend = "two cores keep clients and interrupts out of the shard's way";
        return warn("cores", found, mend);
    }
    let others = other_cores(facts);
    if facts.polls && others.is_empty() {
        return warn(
            "cores",
            format!("{found}; shards that poll leave none to clients and interrupts"),
            format!("--shards {}, or --mode balanced", facts.shards - 1),
        );
    }
    if facts.polls && facts.cores_isolated.trim().is_empty() {
        return warn(
            "cores",
            format!("{found}; the scheduler puts others on cores that poll"),
            format!("boot with isolcpus={0} nohz_full={0}", list(&facts.shard_cores)),
        );
    }
    good("cores", found)
}

fn interrupts(facts: &Facts) -> Finding {
    let subject = "interrupts";
    let Some(most) = &facts.interrupts else {
        return good(subject, "none on the cores of the shards, as far as is told here");
    };
    let Interrupts { number, device, core, per_second } = most;
    let found =
        format!("{device} interrupts core {core} of a shard {per_second:.0} times a second");
    let others = other_cores(facts);
    if *per_second < INTERRUPTS_MANY || others.is_empty() {
        return good(subject, found);
    }
    let mend = format!(
        "echo {} > /proc/irq/{number}/smp_affinity_list, and keep irqbalance from it",
        list(&others)
    );
    warn(subject, found, mend)
}

/// Cores without a shard.
fn other_cores(facts: &Facts) -> Vec<usize> {
    (0..facts.cores_online).filter(|core| !facts.shard_cores.contains(core)).collect()
}

/// Cores as the kernel takes them.
fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn governor(facts: &Facts) -> Finding {
    let subject = "frequency";
    match facts.governor.as_deref() {
        None => good(subject, "not this system's to choose"),
        Some("performance") => good(subject, "governor performance"),
        Some(other) => warn(
            subject,
            format!("governor {other} slows idle cores down"),
            "cpupower frequency-set -g performance",
        ),
    }
}

fn clock(facts: &Facts) -> Finding {
    let subject = "clock";
    match facts.clock_source.as_deref() {
        None => good(subject, "source unknown"),
        Some(source @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")) => warn(
            subject,
            format!("source {source}: each look at the clock is a system call"),
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        Some(source) => good(subject, format!("source {source}")),
    }
}

fn wake(facts: &Facts) -> Finding {
    let subject = "wake-up";
    let Some(wake) = facts.wake else {
        return warn(subject, "could not be measured", "");
    };
    let found = format!("one thread wakes another in {wake}");
    if wake.p50_us > WAKE_SLOW_US {
        return warn(subject, found, "cpupower idle-set -D 10, or give the machine idle cores");
    }
    good(subject, found)
}

fn huge_pages(facts: &Facts) -> Finding {
    if facts.huge_pages_always {
        return warn(
            "huge pages",
            "given out unasked: memory grows beyond what is used",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        );
    }
    good("huge pages", "only where asked for")
}

fn swap(facts: &Facts) -> Finding {
    match facts.swappiness {
        None => good("swap", "none"),
        Some(willing) if willing > SWAPPINESS_MAX => warn(
            "swap",
            format!("in use, with vm.swappiness = {willing}"),
            "swapoff -a, or sysctl -w vm.swappiness=1",
        ),
        Some(willing) => good("swap", format!("vm.swappiness = {willing}")),
    }
}

fn backlog(facts: &Facts) -> Finding {
    let subject = "backlog";
    match facts.backlog {
        None => good(subject, "unknown"),
        Some(most) if most < LISTEN_BACKLOG as u64 => warn(
            subject,
            format!("{most} connections may wait to be accepted"),
            format!("sysctl -w net.core.somaxconn={LISTEN_BACKLOG}"),
        ),
        Some(most) => good(subject, format!("{most} connections may wait to be accepted")),
    }
}

fn file_system(disk: &DiskFacts) -> Finding {
    let subject = "file system";
    match &disk.file_system {
        Err(sentence) => refused(subject, sentence),
        Ok(Some(warning)) => warn(subject, warning, "choose a --data-dir on ext4 or xfs"),
        Ok(None) => good(subject, format!("{} takes direct I/O", disk.directory.display())),
    }
}

fn space(disk: &DiskFacts) -> Finding {
    let subject = "space";
    let wanted = disk.wanted_bytes;
    match disk.free_bytes {
        None => warn(subject, "unknown", ""),
        Some(free) if free < wanted => bad(
            subject,
            format!("{} free, a first start allocates {}", size(free), size(wanted)),
            "free some, or lower journal.ring.bytes",
        ),
        Some(free) if free < 4 * wanted => warn(
            subject,
            format!("{} free, of which a first start takes {}", size(free), size(wanted)),
            "free some, or lower journal.ring.bytes",
        ),
        Some(free) => good(subject, format!("{} free", size(free))),
    }
}

fn blocks(disk: &DiskFacts) -> Finding {
    let subject = "blocks";
    match disk.block_bytes {
        None => good(subject, "size unknown: the device is not to be seen from here"),
        Some(bytes) if bytes > BLOCK_ALIGN as u64 => bad(
            subject,
            format!("{bytes} bytes each, at most {BLOCK_ALIGN} are served"),
            "choose a --data-dir on a device with smaller logical blocks",
        ),
        Some(bytes) => good(subject, format!("{bytes} bytes each")),
    }
}

fn cache(disk: &DiskFacts) -> Finding {
    let subject = "write cache";
    let device = disk.device.as_deref().unwrap_or("the device");
    match (disk.write_back, disk.fua) {
        (None, _) => good(subject, "unknown: the device is not to be seen from here"),
        (Some(false), _) => good(subject, format!("{device} writes through: no flush is needed")),
        (Some(true), Some(true)) => {
            good(subject, format!("{device} writes durably without a flush (FUA)"))
        }
        (Some(true), _) => warn(
            subject,
            format!("{device} needs a flush after each durable write"),
            format!(
                "only if its cache survives power loss: \
                 echo 'write through' > /sys/block/{device}/queue/write_cache"
            ),
        ),
    }
}

fn dsync(disk: &DiskFacts) -> Finding {
    let subject = "durable write";
    let Some(dsync) = disk.dsync else {
        return warn(subject, "could not be measured", "");
    };
    let found = format!("4 KiB in {dsync}; no acknowledgement can be faster");
    if dsync.p50_us > DSYNC_SLOW_US || dsync.p99_us > 10.0 * DSYNC_SLOW_US {
        let mend = "use a local SSD, or --durability process-crash where power loss may lose data";
        return warn(subject, found, mend);
    }
    good(subject, found)
}

impl std::fmt::Display for Spread {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "p50 {:.0} us, p99 {:.0} us", self.p50_us, self.p99_us)
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (name, unit) in UNITS {
        if bytes >= unit {
            return format!("{:.1} {name}", bytes as f64 / unit as f64);
        }
    }
    format!("{bytes} bytes")
}

/// A wake-up between busy cores takes a few microseconds; beyond this a core sleeps too deeply.
const WAKE_SLOW_US: f64 = 100.0;

/// From so many a second on, interrupts of a device cost a shard per cents of its core.
const INTERRUPTS_MANY: f64 = 2_000.0;

/// A durable write of an SSD with a protected cache takes 20 to 200 microseconds.
const DSYNC_SLOW_US: f64 = 1_000.0;

/// How willingly the kernel may swap before it is worth a word.
const SWAPPINESS_MAX: u32 = 10;
