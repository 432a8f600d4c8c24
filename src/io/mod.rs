//! The seams between Ringlog's own code and the machine: files, time, tasks, byte streams, random
//! numbers.
//!
//! Every shard runs against [`Runtime`], [`Disk`], [`File`] and [`Stream`] only. They have two
//! implementations: the real one in this folder, the only place that names glommio, and the
//! simulated one in `crate::sim`, where one seed decides scheduling, delays, and what a crash
//! keeps, loses or tears.
//!
//! Invariants: futures here are single-threaded (`!Send`); nothing here decides anything about
//! Kafka; a write reports success only when every byte of it was accepted by the device (and, on
//! a file opened `durable`, is on the medium).

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::limits::{BLOCK_ALIGN, SEGMENT_WRITE_BYTES_MAX};

pub use buffers::AlignedBuffer;

pub mod buffers;
pub mod clock;
pub mod cores;
pub mod device;
pub mod executor;
pub mod file;
pub mod in_flight;
pub mod listener;
pub mod lock;
pub mod mailbox;
pub mod process;
mod readiness;
mod ring;
pub mod stream;
mod threads;

/// A boxed single-threaded future: what the seams return.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Monotonic time in nanoseconds since an arbitrary point of this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// This time plus `milliseconds`.
    #[must_use]
    pub fn plus_ms(self, milliseconds: u64) -> Monotonic {
        Monotonic(self.0.saturating_add(milliseconds.saturating_mul(1_000_000)))
    }

    /// Whole milliseconds since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: Monotonic) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

/// Time, tasks and randomness of one shard.
pub trait Runtime {
    /// Monotonic time now.
    fn now(&self) -> Monotonic;

    /// Wall clock in milliseconds since 1970.
    fn wall_ms(&self) -> i64;

    /// Resolves at `deadline` or a little later, never earlier.
    fn sleep_until(&self, deadline: Monotonic) -> LocalFuture<'static, ()>;

    /// Runs `task` on this shard until it ends; it is not cancelled by dropping anything.
    fn spawn(&self, task: LocalFuture<'static, ()>);

    /// Lets the other ready tasks of this shard run once.
    fn yield_now(&self) -> LocalFuture<'static, ()>;

    /// 64 random bits: from the operating system, or from the simulation's seed.
    fn random(&self) -> u64;
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenMode {
    /// Writes are wanted too; without it the file is opened for reading.
    pub write: bool,
    /// Create the file if it does not exist.
    pub create: bool,
    /// Fail if the file exists (with `create`).
    pub create_new: bool,
    /// Cut the file to length zero.
    pub truncate: bool,
    /// A finished write is on the medium (`O_DSYNC`).
    pub durable: bool,
    /// Writes go to the system's memory and return at once: they outlive the process, not the
    /// machine.
    pub cached: bool,
}

/// One entry of a directory listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// Path relative to the listed directory.
    pub path: PathBuf,
    /// Whether this is a directory.
    pub is_directory: bool,
    /// File length in bytes; 0 for a directory.
    pub length: u64,
    /// Content, for files whose name the listing was asked to read.
    pub content: Option<Vec<u8>>,
}

/// A file system below one data directory. All paths are absolute.
///
/// Data reaches the medium through: a write to a `durable` file; [`File::sync_data`]; a
/// [`Disk::sync_filesystem`] that began after the write ended. A name (create, rename, remove)
/// reaches it through [`Disk::sync_directory`] of its directory or `sync_filesystem`.
pub trait Disk {
    /// Opens a file for direct I/O.
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>>;

    /// Reads a whole small file; not for logs.
    fn read<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<Vec<u8>>>;

    /// Writes a whole small file and makes its content durable (but not its name).
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>>;

    /// Writes a whole small file, of which nothing is durable before a [`Disk::sync_filesystem`].
    fn write_unsynced<'a>(
        &'a self,
        path: &'a Path,
        content: &'a [u8],
    ) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mode =
                OpenMode { write: true, create: true, truncate: true, ..OpenMode::default() };
            let file = self.open(path, mode).await?;
            let mut position = 0;
            for piece in content.chunks(SEGMENT_WRITE_BYTES_MAX) {
                let bytes = piece.len().next_multiple_of(BLOCK_ALIGN);
                let mut buffer = AlignedBuffer::with_capacity(bytes);
                buffer.extend_from_slice(piece);
                buffer.pad();
                file.write_at(Arc::new(buffer), position).await?;
                position += piece.len() as u64;
            }
            file.set_length(position).await?;
            file.close().await
        })
    }

    /// Appends to a small file and makes the bytes durable; creates it if absent.
    fn append<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>>;

    /// Replaces `path` atomically and durably: temporary file, sync, rename, directory sync.
    fn replace<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut temporary = path.as_os_str().to_owned();
            temporary.push(".tmp");
            let temporary = PathBuf::from(temporary);
            self.write(&temporary, content).await?;
            self.rename(&temporary, path).await?;
            match path.parent() {
                Some(parent) => self.sync_directory(parent).await,
                None => Ok(()),
            }
        })
    }

    /// Lists a directory; with `recursive` everything below it. Files named `read_names` come
    /// with their content. Entries are sorted by path. A missing directory is `NotFound`.
    fn list<'a>(
        &'a self,
        path: &'a Path,
        recursive: bool,
        read_names: &'a [&'a str],
    ) -> LocalFuture<'a, io::Result<Vec<DirectoryEntry>>>;

    /// Creates a directory and its missing parents; existing ones are fine.
    fn create_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>>;

    /// Renames a file or directory, replacing an existing file.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalFuture<'a, io::Result<()>>;

    /// Removes a file.
    fn remove<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>>;

    /// Removes a directory and all below it; a missing one is fine.
    fn remove_tree<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>>;

    /// Makes the names in one directory durable.
    fn sync_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>>;

    /// Makes everything durable that was written or renamed before the call (`syncfs`).
    fn sync_filesystem(&self) -> LocalFuture<'_, io::Result<()>>;

    /// Bytes in all and bytes free for this process on the file system.
    fn space(&self) -> LocalFuture<'_, io::Result<Space>>;
}

/// Size of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes this process may still write.
    pub available_bytes: u64,
}

/// An open file under direct I/O: positions and lengths are multiples of
/// [`crate::limits::BLOCK_ALIGN`].
pub trait File {
    /// Writes the whole buffer at `position`; short writes are resumed. The buffer stays shared.
    fn write_at(
        &self,
        buffer: Arc<AlignedBuffer>,
        position: u64,
    ) -> LocalFuture<'_, io::Result<()>>;

    /// Reads up to `length` bytes at `position`; shorter only at the end of the file, whose last
    /// bytes need not be aligned.
    fn read_at(&self, position: u64, length: usize) -> LocalFuture<'_, io::Result<Bytes>>;

    /// Makes all finished writes of this file durable (`fdatasync`).
    fn sync_data(&self) -> LocalFuture<'_, io::Result<()>>;

    /// Allocates space for the range without changing the file's length or content.
    fn allocate(&self, position: u64, length: u64) -> LocalFuture<'_, io::Result<()>>;

    /// Cuts or extends the file to exactly `length` bytes.
    fn set_length(&self, length: u64) -> LocalFuture<'_, io::Result<()>>;

    /// Length in bytes.
    fn length(&self) -> LocalFuture<'_, io::Result<u64>>;

    /// Wall clock of the last change of its content, in milliseconds since 1970.
    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>>;

    /// Closes the file; dropping it closes it too, without reporting errors.
    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>>;
}

/// A connected byte stream. Reading and writing are independent; dropping closes it.
pub trait Stream {
    /// Appends what has arrived to `buffer`, at most `limit` bytes; waits for at least one.
    /// 0 means the peer has closed its side.
    fn read<'a>(
        &'a self,
        buffer: &'a mut BytesMut,
        limit: usize,
    ) -> LocalFuture<'a, io::Result<usize>>;

    /// Writes all slices in order.
    fn write_all<'a>(&'a self, slices: &'a mut Vec<Bytes>) -> LocalFuture<'a, io::Result<()>>;

    /// Bytes that have left so far.
    fn sent_bytes(&self) -> u64;

    /// Ends both directions: reads and writes in progress return.
    fn shut_down(&self);

    /// Waits, after [`Stream::shut_down`], until the system does nothing for it any more: before it
    /// is dropped.
    fn let_go(&self) -> LocalFuture<'_, ()>;

    /// Text that names the peer in messages.
    fn peer(&self) -> String;
}
