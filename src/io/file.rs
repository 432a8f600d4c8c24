//! Files under direct I/O, and everything else a shard asks of its file system.
//!
//! Owns [`GlommioDisk`], the real [`Disk`]. Reads and writes go through the ring and never copy;
//! names, listings and small files go to the executor's helper thread; a file system sync, which
//! may take seconds, has a thread of its own.
//!
//! Must never run a blocking call on the shard's thread, and never turn a failed call into a
//! panic: running out of descriptors or space is an `io::Error` with its number kept.
//!
//! Invariants: a write ends only when all its bytes are written; what a `durable` file reports as
//! written is on the medium (`O_DSYNC`); memory handed out is freed on this thread only.

use std::fs;
use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use bytes::{Bytes, BytesMut};
use glommio::GlommioError;
use glommio::io::{DmaFile, OpenOptions};

use super::buffers::{Home, share_read};
use super::executor::unpin_current_thread;
use super::{AlignedBuffer, DirectoryEntry, Disk, File, LocalFuture, OpenMode, Space};
use crate::limits::BLOCK_ALIGN;

/// The file system below one data directory, seen from one shard.
pub struct GlommioDisk {
    home: Rc<Home>,
    /// Open since before the first write, so that a sync reports every error since then.
    root: Arc<OwnedFd>,
}

impl GlommioDisk {
    /// The disk of the current thread's executor. `root` is the data directory; buffers come home
    /// to `home`, which must be this thread's.
    ///
    /// # Errors
    /// `root` cannot be opened.
    pub fn new(root: &Path, home: Rc<Home>) -> io::Result<GlommioDisk> {
        let root = Arc::new(OwnedFd::from(fs::File::open(root)?));
        Ok(GlommioDisk { home, root })
    }

    /// The home of this disk's buffers.
    #[must_use]
    pub fn home(&self) -> &Rc<Home> {
        &self.home
    }
}

impl Disk for GlommioDisk {
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let path = path.to_owned();
            let named = blocking(move || open_named(&path, mode)).await?;
            let file: Rc<dyn File> = Rc::new(GlommioFile {
                file: open_direct(&named, mode).await?,
                home: Rc::clone(&self.home),
            });
            Ok(file)
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        let path = path.to_owned();
        Box::pin(blocking(move || fs::read(path)))
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        let (path, content) = (path.to_owned(), content.to_owned());
        Box::pin(blocking(move || {
            let mut file = fs::File::create(path)?;
            file.write_all(&content)?;
            file.sync_data()
        }))
    }

    fn append<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        let (path, content) = (path.to_owned(), content.to_owned());
        Box::pin(blocking(move || {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
            file.write_all(&content)?;
            file.sync_data()
        }))
    }

    fn list<'a>(
        &'a self,
        path: &'a Path,
        recursive: bool,
        read_names: &'a [&'a str],
    ) -> LocalFuture<'a, io::Result<Vec<DirectoryEntry>>> {
        let path = path.to_owned();
        let read_names: Vec<String> = read_names.iter().map(|&name| name.to_owned()).collect();
        Box::pin(blocking(move || list(&path, recursive, &read_names)))
    }

    fn create_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        let path = path.to_owned();
        Box::pin(blocking(move || fs::create_dir_all(path)))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        Box::pin(blocking(move || fs::rename(from, to)))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        let path = path.to_owned();
        Box::pin(blocking(move || fs::remove_file(path)))
    }

    fn remove_tree<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        let path = path.to_owned();
        Box::pin(blocking(move || match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }))
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        let path = path.to_owned();
        Box::pin(blocking(move || fs::File::open(path)?.sync_all()))
    }

    fn sync_filesystem(&self) -> LocalFuture<'_, io::Result<()>> {
        let root = Arc::clone(&self.root);
        Box::pin(own_thread(move || Ok(rustix::fs::syncfs(&*root)?)))
    }

    fn space(&self) -> LocalFuture<'_, io::Result<Space>> {
        let root = Arc::clone(&self.root);
        Box::pin(blocking(move || {
            let stat = rustix::fs::fstatvfs(&*root)?;
            Ok(Space {
                total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
                available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            })
        }))
    }

    fn allocate(&self, length: usize) -> AlignedBuffer {
        // Not from the executor's registered arena: blocks live long, and would fill it.
        AlignedBuffer::dma(glommio::allocate_dma_buffer_global(length))
    }
}

/// An open file. Dropping it closes it in the background.
struct GlommioFile {
    file: DmaFile,
    home: Rc<Home>,
}

impl File for GlommioFile {
    fn write_at(
        &self,
        buffer: Rc<AlignedBuffer>,
        position: u64,
    ) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            aligned(position)?;
            let Some(memory) = buffer.as_dma() else {
                return Err(invalid("this buffer was not made by Disk::allocate"));
            };
            let length = memory.len();
            let written = self.file.write_rc_at(Rc::clone(memory), position).await;
            let written = written.map_err(io_error)?;
            if written < length {
                self.write_rest(&buffer, position, written).await?;
            }
            Ok(())
        })
    }

    fn read_at(&self, position: u64, length: usize) -> LocalFuture<'_, io::Result<Bytes>> {
        Box::pin(async move {
            aligned(position)?;
            aligned(length as u64)?;
            if length == 0 {
                return Ok(Bytes::new());
            }
            let first = self.read_part(position, length).await?;
            // An unaligned length is only ever the end of the file; an aligned one may also be a
            // read that the kernel cut short.
            if first.len() == length || !first.len().is_multiple_of(BLOCK_ALIGN) || first.is_empty()
            {
                return Ok(first);
            }
            self.read_rest(first, position, length).await
        })
    }

    fn sync_data(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move { self.file.fdatasync().await.map_err(io_error) })
    }

    fn allocate(&self, position: u64, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let fd = self.file.as_fd().try_clone_to_owned()?;
            blocking(move || {
                let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(fd, keep_size, position, length)?)
            })
            .await
        })
    }

    fn set_length(&self, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            // A descriptor of its own: were this future dropped, the number could be another
            // file's by the time the helper thread cuts it.
            let fd = self.file.as_fd().try_clone_to_owned()?;
            blocking(move || Ok(rustix::fs::ftruncate(fd, length)?)).await
        })
    }

    fn length(&self) -> LocalFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            // The inode of an open file is in memory: this does not block.
            let stat = rustix::fs::fstat(&self.file)?;
            u64::try_from(stat.st_size).map_err(|_| invalid("negative file length"))
        })
    }

    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>> {
        Box::pin(async move {
            let stat = rustix::fs::fstat(&self.file)?;
            Ok(stat.st_mtime.saturating_mul(1_000) + stat.st_mtime_nsec as i64 / 1_000_000)
        })
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(async move {
            match Rc::try_unwrap(self) {
                Ok(this) => this.file.close().await.map_err(io_error),
                // An operation is still using it; its end closes the file.
                Err(_) => Ok(()),
            }
        })
    }
}

impl GlommioFile {
    /// Goes on after a short write, which a healthy device does not do: this one path copies.
    async fn write_rest(&self, buffer: &[u8], position: u64, written: usize) -> io::Result<()> {
        let mut done = written - written % BLOCK_ALIGN;
        let mut stuck = written == 0;
        while done < buffer.len() {
            if stuck {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let rest = &buffer[done..];
            let mut copy = glommio::allocate_dma_buffer_global(rest.len());
            copy.as_bytes_mut().copy_from_slice(rest);
            let at = position + done as u64;
            let written = self.file.write_at(copy, at).await.map_err(io_error)?;
            let step =
                if written == rest.len() { written } else { written - written % BLOCK_ALIGN };
            stuck = step == 0;
            done += step;
        }
        Ok(())
    }

    async fn read_part(&self, position: u64, length: usize) -> io::Result<Bytes> {
        let result = self.file.read_at_aligned(position, length).await;
        Ok(share_read(result.map_err(io_error)?, &self.home))
    }

    async fn read_rest(&self, first: Bytes, position: u64, length: usize) -> io::Result<Bytes> {
        let mut whole: Option<BytesMut> = None;
        loop {
            let done = whole.as_ref().map_or(first.len(), BytesMut::len);
            if done == length || !done.is_multiple_of(BLOCK_ALIGN) {
                break;
            }
            let part = self.read_part(position + done as u64, length - done).await?;
            if part.is_empty() {
                break;
            }
            whole.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&part);
        }
        Ok(whole.map_or(first, BytesMut::freeze))
    }
}

/// The error below glommio's, with its number kept.
pub(super) fn io_error<T>(error: GlommioError<T>) -> io::Error {
    match error {
        GlommioError::IoError(error) => error,
        GlommioError::EnhancedIoError { source, .. } => source,
        other => io::Error::from(other),
    }
}

/// Runs `work` on the helper thread of this executor, one at a time.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    glommio::executor().spawn_blocking(work).await
}

/// Runs `work` on an unpinned thread of its own: for what takes long.
async fn own_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    struct Slot<T> {
        result: Option<io::Result<T>>,
        waker: Option<Waker>,
    }
    let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
    let filled = Arc::clone(&slot);
    std::thread::Builder::new().name("disk-sync".to_owned()).spawn(move || {
        unpin_current_thread();
        let result = work();
        let mut slot = filled.lock().unwrap_or_else(PoisonError::into_inner);
        slot.result = Some(result);
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    })?;
    poll_fn(|context| {
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// Opens the file by its name, with everything that may create or cut it.
fn open_named(path: &Path, mode: OpenMode) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .read(true)
        .write(mode.write)
        .create(mode.create)
        .create_new(mode.create && mode.create_new)
        .truncate(mode.truncate)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}

/// Opens the same file for direct I/O. By its descriptor, not by its name: the runtime asks the
/// file system about the path once more and dies if the name has gone in between.
async fn open_direct(named: &fs::File, mode: OpenMode) -> io::Result<DmaFile> {
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    let flags = if mode.durable { libc::O_DSYNC } else { 0 };
    OpenOptions::new()
        .read(true)
        .write(mode.write)
        .custom_flags(flags)
        .dma_open(path)
        .await
        .map_err(io_error)
}

fn list(root: &Path, recursive: bool, read_names: &[String]) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(relative) = pending.pop() {
        let listing = match fs::read_dir(root.join(&relative)) {
            Ok(listing) => listing,
            // Removed since its parent was listed; the root itself must exist.
            Err(error) if gone(&error) && !relative.as_os_str().is_empty() => continue,
            Err(error) => return Err(error),
        };
        for entry in listing {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if gone(&error) => continue,
                Err(error) => return Err(error),
            };
            let path = relative.join(entry.file_name());
            let is_directory = metadata.is_dir();
            if is_directory && recursive {
                pending.push(path.clone());
            }
            let name = entry.file_name();
            let wanted = metadata.is_file() && read_names.iter().any(|wanted| name == **wanted);
            entries.push(DirectoryEntry {
                content: wanted.then(|| fs::read(entry.path())).transpose()?,
                path,
                is_directory,
                length: if is_directory { 0 } else { metadata.len() },
            });
        }
    }
    entries.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    Ok(entries)
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn aligned(value: u64) -> io::Result<()> {
    if value.is_multiple_of(BLOCK_ALIGN as u64) {
        Ok(())
    } else {
        Err(invalid("position or length is not a multiple of the block size"))
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests;
