//! Which cores there are, and in which order shards take them.
//!
//! Owns that order: cores to which a disk's interrupts come are first. A durable write ends with
//! two of them, and between two cores each costs the wake of one by the other: with one shard on
//! two cores, 64 requests in flight and all interrupts on one core, it is 127,000 requests a
//! second there and 82,000 on the other. A disk with a queue for each core prefers none.
//!
//! Must never fail: what the system does not tell prefers no core.

use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::device;

/// The cores this process may use, ascending; never empty.
#[must_use]
pub fn cores() -> Vec<usize> {
    let allowed = process_cpus();
    let mut cores: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .filter(|&core| allowed.as_ref().is_none_or(|set| set.is_set(core)))
        .collect();
    cores.sort_unstable();
    if cores.is_empty() {
        cores.push(0);
    }
    cores
}

/// The same, those first that the disk below `directory` interrupts.
#[must_use]
pub fn cores_near(directory: &Path) -> Vec<usize> {
    let mut cores = cores();
    if let Ok(interrupts) = interrupts(directory) {
        order(&mut cores, &interrupts);
    }
    cores
}

/// Undoes the pinning that a thread inherited from the shard that started it.
pub fn unpin_current_thread() {
    if let Some(cpus) = process_cpus() {
        // Staying pinned is slower and nothing worse.
        let _ = sched_setaffinity(None, cpus);
    }
}

fn process_cpus() -> Option<&'static CpuSet> {
    static CPUS: OnceLock<Option<CpuSet>> = OnceLock::new();
    // The main thread's mask: the calling thread may be pinned already.
    CPUS.get_or_init(|| sched_getaffinity(rustix::process::getpid().into()).ok()).as_ref()
}

/// One interrupt of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Interrupt {
    /// Where it comes now, as the kernel lists cores: `0,2-3`.
    cores: String,
    /// How often it has come since boot.
    count: u64,
}

/// Cores of those interrupts that come come first; the order of the others stays.
fn order(cores: &mut [usize], interrupts: &[Interrupt]) {
    let total: u64 = interrupts.iter().map(|interrupt| interrupt.count).sum();
    // A disk has some besides that of its queues, for events that hardly ever happen.
    let queues = interrupts.iter().filter(|i| i.count > 0 && i.count >= total / RARE);
    let taken: Vec<usize> = queues.flat_map(|queue| listed(&queue.cores)).collect();
    cores.sort_by_key(|core| !taken.contains(core));
}

/// Cores of a list of the kernel.
fn listed(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Those of the device that `directory` is on.
fn interrupts(directory: &Path) -> io::Result<Vec<Interrupt>> {
    let device = device::of(directory).ok_or(io::ErrorKind::NotFound)?;
    // The disk of a partition, then what it is plugged into.
    let numbers = device.ancestors().map(|above| above.join("msi_irqs")).find(|d| d.is_dir());
    let numbers = numbers.ok_or(io::ErrorKind::NotFound)?;
    let counts = fs::read_to_string("/proc/interrupts")?;
    let mut found = Vec::new();
    for number in fs::read_dir(numbers)? {
        let number = number?.file_name().to_string_lossy().into_owned();
        let place = Path::new("/proc/irq").join(&number).join("effective_affinity_list");
        let cores = fs::read_to_string(place)?;
        found.push(Interrupt { cores, count: count(&counts, &number) });
    }
    Ok(found)
}

/// How often interrupt `number` has come to any core.
fn count(table: &str, number: &str) -> u64 {
    let of = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts = counts.split_whitespace().map_while(|field| field.parse::<u64>().ok());
        (name.trim() == number).then(|| counts.sum())
    };
    table.lines().find_map(of).unwrap_or(0)
}

/// An interrupt with less than one in so many of its disk's is not that of a queue.
const RARE: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(cores: &str, count: u64) -> Interrupt {
        Interrupt { cores: cores.to_owned(), count }
    }

    fn ordered(mut cores: Vec<usize>, interrupts: &[Interrupt]) -> Vec<usize> {
        order(&mut cores, interrupts);
        cores
    }

    #[test]
    fn the_core_of_the_only_queue_is_first() {
        let disk = [interrupt("0", 1), interrupt("1", 26_849_395)];
        assert_eq!(ordered(vec![0, 1], &disk), [1, 0]);
        assert_eq!(ordered(vec![0, 1, 2, 3], &disk), [1, 0, 2, 3]);
    }

    #[test]
    fn queues_on_all_cores_change_nothing() {
        let disk = [interrupt("0-1", 7), interrupt("2", 90), interrupt("3", 100)];
        assert_eq!(ordered(vec![0, 1, 2, 3], &disk), [0, 1, 2, 3]);
    }

    #[test]
    fn interrupts_that_are_rare_are_not_those_of_queues() {
        let disk = [interrupt("0", 500), interrupt("1", 90_000), interrupt("2-3", 1_000)];
        assert_eq!(ordered(vec![0, 1, 2, 3], &disk), [1, 2, 3, 0]);
    }

    #[test]
    fn a_core_that_is_not_ours_is_not_taken() {
        assert_eq!(ordered(vec![0, 2], &[interrupt("1", 9)]), [0, 2]);
    }

    #[test]
    fn what_is_not_told_prefers_none() {
        assert_eq!(ordered(vec![0, 1], &[]), [0, 1]);
        assert_eq!(ordered(vec![0, 1], &[interrupt("1", 0), interrupt("", 0)]), [0, 1]);
        assert_eq!(cores_near(Path::new("/proc")), cores());
    }

    #[test]
    fn counts_are_those_of_one_line() {
        let table = "            CPU0       CPU1\n 36:   4   5  PCI-MSIX 1-edge virtio1-req.0\n \
                     136:  7 0 other\nNMI:   9   9   Non-maskable interrupts\n";
        assert_eq!(count(table, "36"), 9);
        assert_eq!(count(table, "136"), 7);
        assert_eq!(count(table, "6"), 0);
    }

    #[test]
    fn lists_have_ranges() {
        assert_eq!(listed("0,2-4"), [0, 2, 3, 4]);
        assert!(listed("").is_empty());
    }
}
