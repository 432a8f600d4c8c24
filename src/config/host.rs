//! What this host offers: cores, memory, disk. Read once, at start, to fill in what is `auto`.
//!
//! Owns the look at `/proc`, the control group and the file system. Must never fail a start: a
//! fact that cannot be read is replaced by a careful guess.

use std::fs;
use std::path::{Path, PathBuf};

/// Facts that `auto` values are computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostFacts {
    /// Cores this process may run on.
    pub cores: u16,
    /// Memory of the host or of the control group, whichever is less, in bytes.
    pub memory_bytes: u64,
    /// Size of the file system that will hold the data; `None` if it cannot be told.
    pub disk_bytes: Option<u64>,
}

impl HostFacts {
    /// Looks at this host; `data_dir` need not exist.
    #[must_use]
    pub fn detect(data_dir: &Path) -> HostFacts {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        HostFacts {
            cores: u16::try_from(cores).unwrap_or(u16::MAX),
            memory_bytes: memory_bytes(),
            disk_bytes: disk_bytes(data_dir),
        }
    }
}

fn memory_bytes() -> u64 {
    let host = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of_meminfo(&text))
        .unwrap_or(MEMORY_BYTES_GUESS);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .or_else(|_| fs::read_to_string("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    group.unwrap_or(u64::MAX).min(host)
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Size of the file system of the nearest existing ancestor.
fn disk_bytes(data_dir: &Path) -> Option<u64> {
    let mut path = std::path::absolute(data_dir).unwrap_or_else(|_| PathBuf::from("/"));
    while !path.exists() {
        if !path.pop() {
            return None;
        }
    }
    let facts = rustix::fs::statvfs(&path).ok()?;
    facts.f_blocks.checked_mul(facts.f_frsize)
}

/// Assumed when `/proc/meminfo` cannot be read.
const MEMORY_BYTES_GUESS: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:        8000000 kB\nMemFree:  1 kB\n";
        assert_eq!(total_of_meminfo(text), Some(8_192_000_000));
        assert_eq!(total_of_meminfo("nothing"), None);
    }

    #[test]
    fn this_host_has_a_core_memory_and_a_disk() {
        let facts = HostFacts::detect(Path::new("/no/such/directory/yet"));
        assert!(facts.cores >= 1);
        assert!(facts.memory_bytes > 0);
        assert!(facts.disk_bytes.is_some_and(|bytes| bytes > 0));
    }
}
