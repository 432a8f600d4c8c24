//! What the machine must give before a broker starts.
//!
//! Owns the checks that stand before the first executor: io_uring, lockable memory, descriptors,
//! the data directory and its lock, direct I/O, space, and the ports. Every problem is one
//! sentence that says what to do, and ends the start; what merely makes things worse is a warning.
//!
//! Must never touch the data directory before its lock is held, and leaves nothing behind in it
//! but that lock.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, statfs, statvfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::io::AlignedBuffer;
use crate::io::cores::cores;
use crate::io::listener::bind;
use crate::io::lock::{DirectoryLock, LockError};
use crate::limits::{
    BLOCK_ALIGN, DESCRIPTORS_OF_PROCESS, DESCRIPTORS_PER_SHARD, EXECUTOR_MEMLOCK_BYTES_MIN,
    OPEN_FILES_COMFORTABLE, SEGMENT_FILES_OPEN_MAX,
};

/// What the start asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The data directory; created if missing.
    pub data_dir: PathBuf,
    /// Number of shards.
    pub shards: usize,
    /// Acknowledged records are to survive power loss.
    pub power_loss: bool,
    /// Bytes the journal rings and the reserve will take in all.
    pub space_bytes: u64,
    /// Part of those bytes that are there already.
    pub space_taken_bytes: u64,
}

/// What the checks leave open, to be held for the life of the process.
#[derive(Debug)]
pub struct Cleared {
    /// The lock on the data directory.
    pub lock: DirectoryLock,
    /// How many descriptors the process may have open.
    pub open_files: u64,
    /// Sentences worth printing; none of them stops the start.
    pub warnings: Vec<String>,
}

/// How the descriptors of the process are shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// For connections of all shards.
    pub connections: usize,
    /// For open segment files of each shard.
    pub segment_files: usize,
}

impl Descriptors {
    /// Files come first, for want of one data would be lost; but at least half of what the process
    /// does not need for itself is left to connections.
    #[must_use]
    pub fn share(open_files: u64, shards: u16) -> Descriptors {
        let shards = usize::from(shards.max(1));
        let own = DESCRIPTORS_OF_PROCESS + shards * DESCRIPTORS_PER_SHARD;
        let free = usize::try_from(open_files).unwrap_or(usize::MAX).saturating_sub(own);
        let segment_files = (free / 2 / shards).clamp(1, SEGMENT_FILES_OPEN_MAX);
        let connections = free.saturating_sub(segment_files * shards).max(1);
        Descriptors { connections, segment_files }
    }
}

/// A problem that ends the start.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The kernel has no io_uring.
    #[error("this kernel has no io_uring: Linux 5.15 or newer is needed")]
    UringMissing,
    /// The administrator switched io_uring off.
    #[error(
        "io_uring is switched off by kernel.io_uring_disabled = {value}: \
         set it to 0 with `sysctl -w kernel.io_uring_disabled=0`"
    )]
    UringDisabled {
        /// Value of the setting.
        value: String,
    },
    /// A seccomp filter or security module forbids io_uring.
    #[error(
        "io_uring is forbidden to this process ({source}): in a container, allow io_uring_setup, \
         io_uring_enter and io_uring_register, for example with --security-opt seccomp=unconfined"
    )]
    UringForbidden {
        /// What the system says.
        source: io::Error,
    },
    /// io_uring fails for another reason.
    #[error("io_uring cannot be set up: {source}")]
    UringBroken {
        /// What the system says.
        source: io::Error,
    },
    /// The limit of locked memory is too low.
    #[error(
        "the limit of locked memory is {limit_bytes} bytes and {needed_bytes} are needed: \
         raise it with `ulimit -l` or LimitMEMLOCK="
    )]
    MemlockTooLow {
        /// The limit.
        limit_bytes: u64,
        /// Least limit that will do.
        needed_bytes: u64,
    },
    /// The data directory cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Direct I/O does not work there.
    #[error(
        "{} is on {file_system}, which {problem}: choose a --data-dir on ext4 or xfs{or_else}",
        data_dir.display()
    )]
    FileSystem {
        /// The data directory.
        data_dir: PathBuf,
        /// Name of the file system.
        file_system: String,
        /// What is wrong with it.
        problem: &'static str,
        /// Another way out, or nothing.
        or_else: &'static str,
    },
    /// The file system is too full.
    #[error(
        "{} has {available_bytes} bytes free and the journal needs {needed_bytes}: free some \
         space or lower journal.ring.bytes",
        data_dir.display()
    )]
    SpaceTooSmall {
        /// The data directory.
        data_dir: PathBuf,
        /// Bytes free.
        available_bytes: u64,
        /// Bytes the journal still has to allocate.
        needed_bytes: u64,
    },
    /// Something else listens on the port.
    #[error(
        "{address} is taken by another process: stop it or choose another address with --listen"
    )]
    PortTaken {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}: choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The data directory does not work.
    #[error("the data directory {} cannot be used: {source}", data_dir.display())]
    DataDirectory {
        /// The data directory.
        data_dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Runs all checks but those of the ports; takes the lock of the data directory on the way.
///
/// # Errors
/// The first problem that ends the start.
pub fn clear(wanted: &Wanted) -> Result<Cleared, PreflightError> {
    check_uring()?;
    check_memlock(getrlimit(Resource::Memlock).current)?;
    let lock = DirectoryLock::acquire(&wanted.data_dir)?;
    let mut warnings = Vec::new();
    warnings.extend(check_direct_io(&wanted.data_dir, wanted.power_loss)?);
    check_space(wanted)?;
    warnings.extend(raise_open_files());
    warnings.extend(warn_of_shards(wanted.shards, cores().len()));
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Ok(Cleared { lock, open_files, warnings })
}

/// Binds `address`, before any shard starts.
///
/// # Errors
/// The port is taken, or the address is not this machine's.
pub fn listen(address: SocketAddr) -> Result<TcpListener, PreflightError> {
    bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => PreflightError::PortTaken { address },
        _ => PreflightError::Listen { address, source },
    })
}

/// Sets up a ring the size of an executor's and gives it back.
///
/// # Errors
/// Why this process cannot use io_uring.
pub fn check_uring() -> Result<(), PreflightError> {
    // The kernel's `struct io_uring_params` is 120 bytes; all zero asks for nothing special.
    let mut parameters = MaybeUninit::<[u64; 15]>::zeroed();
    // SAFETY: the kernel reads and writes the 120 bytes that the pointer leads to.
    let fd =
        unsafe { libc::syscall(libc::SYS_io_uring_setup, RING_ENTRIES, parameters.as_mut_ptr()) };
    if fd >= 0 {
        // SAFETY: the descriptor was made above and is used nowhere else.
        unsafe { libc::close(fd as libc::c_int) };
        return Ok(());
    }
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    Err(uring_error(io::Error::last_os_error(), setting.unwrap_or_default().trim()))
}

/// Raises the limit of open descriptors as far as it goes; a warning if that is not far.
pub fn raise_open_files() -> Option<String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Staying at the old limit is reported below if it matters.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let limit = getrlimit(Resource::Nofile).current?;
    (limit < OPEN_FILES_COMFORTABLE).then(|| {
        format!(
            "only {limit} files and connections can be open at once: raise the limit with \
             `ulimit -n` or LimitNOFILE="
        )
    })
}

fn uring_error(error: io::Error, disabled: &str) -> PreflightError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => PreflightError::UringMissing,
        Some(libc::EPERM | libc::EACCES) if !matches!(disabled, "" | "0") => {
            PreflightError::UringDisabled { value: disabled.to_owned() }
        }
        Some(libc::EPERM | libc::EACCES) => PreflightError::UringForbidden { source: error },
        Some(libc::ENOMEM) => PreflightError::MemlockTooLow {
            limit_bytes: getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX),
            needed_bytes: EXECUTOR_MEMLOCK_BYTES_MIN,
        },
        _ => PreflightError::UringBroken { source: error },
    }
}

/// The runtime refuses to start below its minimum; what it registers beyond is made to fit.
///
/// # Errors
/// The limit is too low.
pub fn check_memlock(limit_bytes: Option<u64>) -> Result<(), PreflightError> {
    match limit_bytes {
        Some(limit_bytes) if limit_bytes < EXECUTOR_MEMLOCK_BYTES_MIN => {
            Err(PreflightError::MemlockTooLow {
                limit_bytes,
                needed_bytes: EXECUTOR_MEMLOCK_BYTES_MIN,
            })
        }
        _ => Ok(()),
    }
}

/// Refuses file systems without direct I/O; returns a warning for those that promise less.
///
/// # Errors
/// Why it is refused, or what the system says.
pub fn check_direct_io(
    data_dir: &Path,
    power_loss: bool,
) -> Result<Option<String>, PreflightError> {
    let unusable = |source| PreflightError::DataDirectory { data_dir: data_dir.to_owned(), source };
    let kind = statfs(data_dir).map_err(|error| unusable(error.into()))?;
    let (name, trust) = file_system(kind.f_type as u64);
    let refuse = |problem, or_else| PreflightError::FileSystem {
        data_dir: data_dir.to_owned(),
        file_system: name.clone(),
        problem,
        or_else,
    };
    if trust == Trust::Memory {
        return if power_loss {
            Err(refuse(
                "is in memory and loses everything with the power",
                ", or accept that with --durability process-crash",
            ))
        } else {
            Ok(Some(format!(
                "{} is on {name}: everything is lost when the machine stops",
                data_dir.display()
            )))
        };
    }
    match probe_direct_write(data_dir) {
        Ok(()) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            return Err(refuse("has no direct I/O", ""));
        }
        Err(error) => return Err(unusable(error)),
    }
    Ok((trust == Trust::Unknown).then(|| {
        format!(
            "{} is on {name}: only ext4 and xfs are known to keep what they acknowledge",
            data_dir.display()
        )
    }))
}

/// Writes one durable block past the page cache, and removes it.
fn probe_direct_write(data_dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let path = data_dir.join(PROBE_FILE);
    let result = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT | libc::O_DSYNC)
        .open(&path)
        .and_then(|file| file.write_all_at(&AlignedBuffer::zeroed(BLOCK_ALIGN), 0));
    // Opening without direct I/O support creates the file and fails nevertheless.
    match std::fs::remove_file(&path) {
        Err(error) if result.is_ok() => Err(error),
        _ => result,
    }
}

fn check_space(wanted: &Wanted) -> Result<(), PreflightError> {
    let StatVfs { f_bavail, f_frsize, .. } = statvfs(&wanted.data_dir).map_err(|error| {
        PreflightError::DataDirectory { data_dir: wanted.data_dir.clone(), source: error.into() }
    })?;
    let available_bytes = f_bavail.saturating_mul(f_frsize);
    let needed_bytes = wanted.space_bytes.saturating_sub(wanted.space_taken_bytes);
    if available_bytes < needed_bytes {
        return Err(PreflightError::SpaceTooSmall {
            data_dir: wanted.data_dir.clone(),
            available_bytes,
            needed_bytes,
        });
    }
    Ok(())
}

fn warn_of_shards(shards: usize, cores: usize) -> Option<String> {
    (shards > cores)
        .then(|| format!("{shards} shards share {cores} cores: one shard per core is faster"))
}

/// How far a file system's acknowledgement can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    Known,
    Unknown,
    Memory,
}

fn file_system(magic: u64) -> (String, Trust) {
    let (name, trust) = match magic {
        0xEF53 => ("ext4", Trust::Known),
        0x5846_5342 => ("xfs", Trust::Known),
        0x0102_1994 => ("tmpfs", Trust::Memory),
        0x8584_58F6 => ("ramfs", Trust::Memory),
        0x9123_683E => ("btrfs", Trust::Unknown),
        0x2FC1_2FC1 => ("zfs", Trust::Unknown),
        0xF2F5_2010 => ("f2fs", Trust::Unknown),
        0x794C_7630 => ("overlayfs", Trust::Unknown),
        0x6969 => ("NFS", Trust::Unknown),
        0x6573_5546 => ("FUSE", Trust::Unknown),
        0x0102_1997 => ("9p", Trust::Unknown),
        other => return (format!("file system {other:#x}"), Trust::Unknown),
    };
    (name.to_owned(), trust)
}

const PROBE_FILE: &str = "probe.tmp";

/// Entries of an executor's rings.
const RING_ENTRIES: libc::c_uint = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(data_dir: &Path) -> Wanted {
        Wanted {
            data_dir: data_dir.to_owned(),
            shards: 1,
            power_loss: true,
            space_bytes: 64 * 1024,
            space_taken_bytes: 0,
        }
    }

    #[test]
    fn this_machine_is_cleared_and_only_the_lock_is_left() {
        let root = tempfile::tempdir().expect("temporary directory");
        let cleared = clear(&wanted(root.path())).expect("cleared");
        let names: Vec<_> = std::fs::read_dir(root.path())
            .expect("list")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        assert_eq!(names, ["lock"]);
        let error = clear(&wanted(root.path())).expect_err("locked");
        assert!(matches!(error, PreflightError::Lock(LockError::Held { .. })));
        drop(cleared);
    }

    #[test]
    fn files_come_before_connections_but_leave_them_half() {
        let share = |open_files, shards| {
            let Descriptors { connections, segment_files } = Descriptors::share(open_files, shards);
            (connections, segment_files)
        };
        assert_eq!(share(20_000, 2), (20_000 - 32 - 2 * 96 - 2 * 512, 512));
        assert_eq!(share(1_024, 1), (1_024 - 128 - 448, 448));
        assert_eq!(share(256, 2), (16, 8));
        assert_eq!(share(64, 4), (1, 1));
        assert_eq!(share(u64::MAX, 1).1, 512);
    }

    #[test]
    fn too_little_space_names_both_numbers() {
        let root = tempfile::tempdir().expect("temporary directory");
        let mut wanted = wanted(root.path());
        wanted.space_bytes = u64::MAX;
        wanted.space_taken_bytes = 1;
        let error = clear(&wanted).expect_err("space").to_string();
        assert!(error.contains(&(u64::MAX - 1).to_string()), "{error}");
        wanted.space_taken_bytes = u64::MAX;
        check_space(&wanted).expect("all there already");
    }

    #[test]
    fn memory_file_systems_are_refused_unless_a_crash_is_all_that_is_asked() {
        let shared_memory = Path::new("/dev/shm");
        let kind = statfs(shared_memory).map(|kind| file_system(kind.f_type as u64).1);
        if kind != Ok(Trust::Memory) {
            return;
        }
        let root = tempfile::tempdir_in(shared_memory).expect("temporary directory");
        let error = check_direct_io(root.path(), true).expect_err("refused");
        assert_eq!(
            error.to_string(),
            format!(
                "{} is on tmpfs, which is in memory and loses everything with the power: choose \
                 a --data-dir on ext4 or xfs, or accept that with --durability process-crash",
                root.path().display()
            )
        );
        let warning = check_direct_io(root.path(), false).expect("tolerated");
        assert!(warning.expect("warning").contains("tmpfs"));
    }

    #[test]
    fn errors_of_the_ring_are_told_apart() {
        let check = |code, disabled, expected: &str| {
            let error = uring_error(io::Error::from_raw_os_error(code), disabled).to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        check(libc::ENOSYS, "", "this kernel has no io_uring");
        check(libc::EPERM, "2", "io_uring is switched off by kernel.io_uring_disabled = 2");
        check(libc::EPERM, "0", "io_uring is forbidden to this process");
        check(libc::EPERM, "", "io_uring is forbidden to this process");
        check(libc::ENOMEM, "0", "the limit of locked memory is");
        check(libc::EINVAL, "0", "io_uring cannot be set up");
    }

    #[test]
    fn memlock_ports_and_shards_are_judged() {
        assert!(check_memlock(None).is_ok());
        assert!(check_memlock(Some(512 * 1024)).is_ok());
        let error = check_memlock(Some(65_536)).expect_err("too low");
        assert_eq!(
            error.to_string(),
            "the limit of locked memory is 65536 bytes and 524288 are needed: raise it with \
             `ulimit -l` or LimitMEMLOCK="
        );
        assert_eq!(warn_of_shards(2, 2), None);
        assert!(warn_of_shards(3, 2).is_some());

        let first = listen("127.0.0.1:0".parse().expect("address")).expect("listen");
        let address = first.local_addr().expect("address");
        let error = listen(address).expect_err("taken");
        assert_eq!(
            error.to_string(),
            format!(
                "{address} is taken by another process: stop it or choose another address with \
                 --listen"
            )
        );
        let foreign = "192.0.2.1:9092".parse().expect("address");
        let error = listen(foreign).expect_err("not ours");
        assert!(matches!(error, PreflightError::Listen { .. }), "{error}");
    }

    #[test]
    fn open_files_are_raised_to_the_hard_limit() {
        raise_open_files();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
    }
}
