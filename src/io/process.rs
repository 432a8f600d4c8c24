//! What the kernel knows of this process: its time, memory and descriptors, and how it takes
//! memory.
//!
//! Owns the reading of `/proc/self`, and of which boot of the machine this is. Nothing of it is on
//! a disk, so it is read on the shard that is asked for it, and only then. What cannot be read is
//! left out, never made up.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

use super::clock;

/// What one look has found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProcessFacts {
    /// Processor time of all threads, in user and kernel, microseconds.
    pub cpu_us: Option<u64>,
    /// Memory that is resident.
    pub resident_bytes: Option<u64>,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// Most descriptors; `None` if there is no limit.
    pub max_fds: Option<u64>,
    /// When the process began, microseconds since 1970.
    pub started_us: Option<u64>,
}

/// The kernel's name for this boot of the machine; empty if it tells none. What was written and not
/// synced is lost from one boot to another, not from one process to another.
#[must_use]
pub fn kernel_boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// Looks.
#[must_use]
pub fn read() -> ProcessFacts {
    let times = fs::read_to_string("/proc/self/stat").ok().and_then(|text| times(&text));
    ProcessFacts {
        cpu_us: times.map(|times| times.cpu_us),
        resident_bytes: fs::read_to_string("/proc/self/statm").ok().and_then(|t| resident(&t)),
        open_fds: open_fds(),
        max_fds: getrlimit(Resource::Nofile).current,
        started_us: times.and_then(|times| started_us(times.started_us)),
    }
}

/// Has the process's memory taken in small pages from now on. The allocator asks for large ones,
/// two megabytes each, of which a few bytes may be in use; and whoever touches one first waits
/// until all of it is zero: a fraction of a millisecond, and seven of them on a virtual machine
/// whose host has to find the memory first.
pub fn take_small_pages() {
    // Where the kernel does not know of it, there are none.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Has the allocator keep memory that is free for so many milliseconds only, not for a second,
/// before the kernel gets it back. What is kept for buffers to come saves processor time: given
/// back at once, a cold fetch takes three times as much. To be called before other threads are
/// there.
pub fn keep_freed_memory(ms: u32) {
    // SAFETY: the option exists, and nothing else reads or sets options now.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, libc::c_long::from(ms)) };
}

/// `mi_option_purge_delay`, for which the crate has no name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Times {
    cpu_us: u64,
    /// Since the machine booted.
    started_us: u64,
}

/// Out of `/proc/self/stat`. The name of the process stands in parentheses and may hold anything.
fn times(stat: &str) -> Option<Times> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let field = |number: usize| {
        let text = fields.split(' ').nth(number - FIRST_FIELD)?;
        text.parse::<u64>().ok()?.checked_mul(US_PER_TICK)
    };
    Some(Times { cpu_us: field(UTIME)? + field(STIME)?, started_us: field(STARTTIME)? })
}

/// Out of `/proc/self/statm`: pages, the second number of them resident.
fn resident(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

fn open_fds() -> Option<u64> {
    // Since Linux 6.2 the size of the directory is their number; before, it is 0.
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
        count => Some(count),
    }
}

/// The moment `since_boot_us` after the boot. Taken once, so that a clock that is set later does
/// not look like a restart.
fn started_us(since_boot_us: u64) -> Option<u64> {
    static STARTED_US: OnceLock<Option<u64>> = OnceLock::new();
    *STARTED_US.get_or_init(|| {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime_s: f64 = uptime.split(' ').next()?.parse().ok()?;
        let now_us = u64::try_from(clock::wall_ms()).ok()?.checked_mul(1_000)?;
        now_us.checked_sub((uptime_s * 1e6) as u64)?.checked_add(since_boot_us)
    })
}

/// The kernel tells times to programs in hundredths of a second, whatever it counts in.
const US_PER_TICK: u64 = 10_000;

/// The first field after the name, and those that are read, as `proc(5)` numbers them.
const FIRST_FIELD: usize = 3;
const UTIME: usize = 14;
const STIME: usize = 15;
const STARTTIME: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_knows_the_option_by_its_number() {
        // SAFETY: nothing sets options in tests of the library.
        let default = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1_000, "its documented default, in milliseconds");
        assert!(!kernel_boot_id().is_empty() && !kernel_boot_id().contains('\n'));
    }

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 12 0 150 25 0 0 20 0 5 0 4321 9 8 7 6";
        assert_eq!(times(stat), Some(Times { cpu_us: 1_750_000, started_us: 43_210_000 }));
        assert_eq!((times("7 (a"), times("7 (a) S 1")), (None, None));
        let page = rustix::param::page_size() as u64;
        assert_eq!(resident("900 120 30 5 0 60 0\n"), Some(120 * page));
        assert_eq!(resident("900"), None);
    }

    #[test]
    fn this_process_has_all_of_it() {
        let before = read();
        let file = fs::File::open("/proc/self/stat").expect("a descriptor");
        let after = read();
        let (fds, more) = (before.open_fds.expect("known"), after.open_fds.expect("known"));
        // Other tests of this process open and close theirs meanwhile.
        assert!(fds >= 3 && more >= 4, "{fds}, {more}");
        drop(file);
        assert!(after.resident_bytes.expect("known") > 1 << 20);
        assert!(after.cpu_us >= before.cpu_us && before.cpu_us.is_some());
        assert!(after.max_fds.is_none_or(|most| most >= more));
        let started_us = before.started_us.expect("known");
        let now_us = clock::wall_ms() as u64 * 1_000;
        assert!(started_us < now_us + 1_000_000 && now_us - started_us < 86_400_000_000);
        assert_eq!(after.started_us, before.started_us);
    }
}
