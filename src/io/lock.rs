//! The lock on a data directory: one process per directory.
//!
//! Owns `<data-dir>/lock`, an advisory lock that the kernel releases when its holder dies, however
//! it dies. Must be taken before anything else in the directory is read or written.
//!
//! Invariant: while a [`DirectoryLock`] lives no other process holds one on the same directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "the data directory {} is in use by {}: stop that process or choose another --data-dir",
        directory.display(), holder(*process)
    )]
    Held {
        /// The data directory.
        directory: PathBuf,
        /// Process id of the holder, if it could be read.
        process: Option<u32>,
    },
    /// The directory or the lock file cannot be made or opened.
    #[error("the data directory {} cannot be used: {source}: make it writable for this user or \
             choose another --data-dir", directory.display())]
    Unusable {
        /// The data directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A log directory of a stopped Apache Kafka, kept from starting; dropping it lets it start again.
#[derive(Debug)]
pub struct KafkaLock {
    _file: Option<File>,
}

impl KafkaLock {
    /// Takes the lock that Kafka's `LogManager` holds while it runs: one of the POSIX kind on
    /// `.lock`. A directory without that file has none.
    ///
    /// # Errors
    /// [`LockError::Held`] if a broker runs there.
    pub fn acquire(directory: &Path) -> Result<KafkaLock, LockError> {
        let unusable = |source| LockError::Unusable { directory: directory.to_owned(), source };
        let opened = OpenOptions::new().read(true).write(true).open(directory.join(".lock"));
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(KafkaLock { _file: None });
            }
            Err(error) => return Err(unusable(error)),
        };
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(KafkaLock { _file: Some(file) }),
            Err(Errno::ACCESS | Errno::AGAIN) => {
                Err(LockError::Held { directory: directory.to_owned(), process: None })
            }
            Err(error) => Err(unusable(error.into())),
        }
    }
}

/// A locked data directory; dropping it gives the directory free.
#[derive(Debug)]
pub struct DirectoryLock {
    // Holds the lock while it is open.
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if it does not exist, and locks it.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn acquire(directory: &Path) -> Result<DirectoryLock, LockError> {
        let unusable = |source| LockError::Unusable { directory: directory.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(unusable)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(LOCK_FILE))
            .map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held {
                    directory: directory.to_owned(),
                    process: read_process(&mut file),
                });
            }
            Err(error) => return Err(unusable(error.into())),
        }
        // The number only helps people; the lock does not depend on it.
        write_process(&mut file).map_err(unusable)?;
        Ok(DirectoryLock { _file: file })
    }
}

fn read_process(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_process(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

/// Name of the lock in a data directory.
pub const LOCK_FILE: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_directory_names_its_holder_until_it_is_free() {
        let root = tempfile::tempdir().expect("temporary directory");
        let directory = root.path().join("new/data");
        let lock = DirectoryLock::acquire(&directory).expect("lock");
        let error = DirectoryLock::acquire(&directory).expect_err("held");
        assert_eq!(
            error.to_string(),
            format!(
                "the data directory {} is in use by process {}: stop that process or choose \
                 another --data-dir",
                directory.display(),
                std::process::id()
            )
        );
        drop(lock);
        DirectoryLock::acquire(&directory).expect("free again");
    }

    #[test]
    fn a_path_that_is_no_directory_is_unusable() {
        let root = tempfile::tempdir().expect("temporary directory");
        let file = root.path().join("file");
        std::fs::write(&file, b"").expect("write");
        let error = DirectoryLock::acquire(&file).expect_err("no directory");
        assert!(matches!(error, LockError::Unusable { .. }), "{error}");
    }
}
