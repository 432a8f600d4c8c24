//! What goes wrong on a simulated disk, and how long its operations take.
//!
//! Owns the plan a test sets, before or during a run. Must never invent a fault: with an empty
//! plan every operation succeeds. Full disk and failed operations are different things here as in
//! the broker: the first is a budget, the second are rules.

use std::path::Path;

use super::random::Random;

/// Kinds of operations that rules and delays tell apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// Opening an existing file, or creating one.
    Open,
    /// `File::read_at`, and reading a whole file.
    Read,
    /// `File::write_at`.
    Write,
    /// `Disk::write` and `Disk::append`, including their sync.
    WriteWhole,
    /// `File::sync_data`.
    SyncData,
    /// `File::allocate`.
    Allocate,
    /// `File::set_length`.
    SetLength,
    /// `File::close`.
    Close,
    /// Listing a directory.
    List,
    /// Creating a directory.
    CreateDirectory,
    /// Renaming.
    Rename,
    /// Removing a file or a tree.
    Remove,
    /// `Disk::sync_directory`.
    SyncDirectory,
    /// `Disk::sync_filesystem`.
    SyncFilesystem,
}

/// One planned failure.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Which operations it looks at.
    pub operation: Operation,
    /// Part of the path it looks at; empty for all. `sync_filesystem` has the path `/`.
    pub path_contains: String,
    /// So many matching operations succeed first.
    pub skip: u64,
    /// So many then fail; `u64::MAX` for ever.
    pub times: u64,
    /// The operating system's error code, such as `libc::EIO`.
    pub code: i32,
}

/// Everything that goes wrong, and the speed of the disk.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Size of the disk in bytes; writes that need more answer ENOSPC. `None`: 1 TiB.
    pub capacity_bytes: Option<u64>,
    /// As if nothing were free: whatever needs space or a new name answers ENOSPC.
    pub full: bool,
    /// Planned failures; the first that matches decides.
    pub rules: Vec<FaultRule>,
    /// How long operations take.
    pub delays: Delays,
}

/// Virtual time that operations take: uniform up to a bound, now and then much longer, so that
/// completions arrive in another order than they were submitted.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Shortest delay in nanoseconds.
    pub min_ns: u64,
    /// Longest usual delay in nanoseconds.
    pub max_ns: u64,
    /// One in so many operations takes up to a hundred times as long; 0 for none.
    pub slow_one_in: u64,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { min_ns: 20_000, max_ns: 400_000, slow_one_in: 50 }
    }
}

impl Delays {
    /// Draws one delay in nanoseconds.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let spread_ns = self.max_ns.saturating_sub(self.min_ns);
        let delay_ns = self.min_ns + random.below(spread_ns + 1);
        if self.slow_one_in > 0 && random.chance(1, self.slow_one_in) {
            return delay_ns.saturating_mul(1 + random.below(100));
        }
        delay_ns
    }
}

impl FaultPlan {
    /// Plans one EIO: of the operation number `skip` (from 0) that matches.
    pub fn fail_once(&mut self, operation: Operation, path_contains: &str, skip: u64) {
        self.rules.push(FaultRule {
            operation,
            path_contains: path_contains.to_owned(),
            skip,
            times: 1,
            code: libc::EIO,
        });
    }

    /// Plans EIO for every matching operation from now on.
    pub fn fail_always(&mut self, operation: Operation, path_contains: &str) {
        self.rules.push(FaultRule {
            operation,
            path_contains: path_contains.to_owned(),
            skip: 0,
            times: u64::MAX,
            code: libc::EIO,
        });
    }

    /// Counts an operation and returns the error code it is to end with.
    pub(super) fn strike(&mut self, operation: Operation, path: &Path) -> Option<i32> {
        let path = path.to_string_lossy();
        for rule in &mut self.rules {
            if rule.operation != operation || !path.contains(&rule.path_contains) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times = match rule.times {
                    u64::MAX => u64::MAX,
                    times => times - 1,
                };
                return Some(rule.code);
            }
        }
        None
    }

    /// Bytes free when so many are used.
    pub(super) fn available_bytes(&self, used_bytes: u64) -> u64 {
        match self.full {
            true => 0,
            false => self.total_bytes().saturating_sub(used_bytes),
        }
    }

    /// Size of the disk.
    pub(super) fn total_bytes(&self) -> u64 {
        self.capacity_bytes.unwrap_or(1 << 40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_matching_operations_only() {
        let mut plan = FaultPlan::default();
        plan.fail_once(Operation::Write, "journal/", 2);
        let journal = Path::new("/data/journal/0");
        let mut strike = |operation, path| plan.strike(operation, path);
        assert_eq!(strike(Operation::Write, journal), None);
        assert_eq!(strike(Operation::Write, Path::new("/data/topics/t-0")), None);
        assert_eq!(strike(Operation::Read, journal), None);
        assert_eq!(strike(Operation::Write, journal), None);
        assert_eq!(strike(Operation::Write, journal), Some(libc::EIO));
        assert_eq!(strike(Operation::Write, journal), None);
    }

    #[test]
    fn a_full_disk_has_nothing_free_whatever_its_size() {
        let mut plan = FaultPlan { capacity_bytes: Some(1000), ..FaultPlan::default() };
        assert_eq!(plan.available_bytes(400), 600);
        assert_eq!(plan.available_bytes(1400), 0);
        plan.full = true;
        assert_eq!(plan.available_bytes(0), 0);
    }
}
