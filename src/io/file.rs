//! Files under direct I/O, and everything else a shard asks of its file system.
//!
//! Owns [`RingDisk`], the real [`Disk`]. Reads and writes go through the ring and never copy;
//! names, listings and small files go to the shard's helper thread; a file system sync, which may
//! take seconds, has a thread of its own.
//!
//! Must never run a blocking call on the shard's thread, and never turn a failed call into a
//! panic: running out of descriptors or space is an `io::Error` with its number kept. A write to a
//! `cached` file is a copy, unless the machine is short of memory that may wait for the disk.
//!
//! Invariants: a write ends only when all its bytes are written; what a `durable` file reports as
//! written is on the medium (`O_DSYNC`); memory handed out is freed on this thread only.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use io_uring::opcode;
use io_uring::types::{Fd, FsyncFlags};

use super::ring::{Keep, Ring};
use super::threads::{blocking, own_thread};
use super::{AlignedBuffer, DirectoryEntry, Disk, File, LocalFuture, OpenMode, Space};
use crate::limits::BLOCK_ALIGN;

/// The file system below one data directory, seen from one shard.
pub struct RingDisk {
    /// Open since before the first write, so that a sync reports every error since then.
    root: Arc<OwnedFd>,
}

impl RingDisk {
    /// The disk of the current thread's executor. `root` is the data directory.
    ///
    /// # Errors
    /// `root` cannot be opened.
    pub fn new(root: &Path) -> io::Result<RingDisk> {
        let root = Arc::new(OwnedFd::from(fs::File::open(root)?));
        Ok(RingDisk { root })
    }
}

impl Disk for RingDisk {
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let path = path.to_owned();
            let file = blocking(move || open_file(&path, mode)).await?;
            let file: Rc<dyn File> =
                Rc::new(RingFile { file: Some(Rc::new(file)), is_cached: mode.cached });
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

    fn write_unsynced<'a>(
        &'a self,
        path: &'a Path,
        content: &'a [u8],
    ) -> LocalFuture<'a, io::Result<()>> {
        let (path, content) = (path.to_owned(), content.to_owned());
        Box::pin(blocking(move || fs::write(path, content)))
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
}

/// An open file. Dropping it closes it in the background.
struct RingFile {
    /// `None` once it was closed.
    file: Option<Rc<fs::File>>,
    is_cached: bool,
}

impl File for RingFile {
    fn write_at(
        &self,
        buffer: Arc<AlignedBuffer>,
        position: u64,
    ) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            aligned(position)?;
            if self.is_cached {
                // A copy into memory, shorter than the ring's way there and back: file systems do
                // not promise the ring to write without waiting, and leave it to other threads.
                return self.file().write_all_at(&buffer, position);
            }
            let mut done = 0;
            // A healthy device writes all at once.
            while done < buffer.len() {
                let written = self.write_part(&buffer, done, position).await?;
                // What was cut in the middle of a block is written once more.
                let step = if done + written == buffer.len() {
                    written
                } else {
                    written - written % BLOCK_ALIGN
                };
                if step == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                done += step;
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
        Box::pin(async move {
            let file = Rc::clone(self.file());
            let entry = opcode::Fsync::new(descriptor(&file)).flags(FsyncFlags::DATASYNC).build();
            Ring::current().start(entry, Keep::Synced(file)).await.0.map(drop)
        })
    }

    fn allocate(&self, position: u64, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            // A descriptor of its own: were this future dropped, the number could be another
            // file's by the time the helper thread gets to it.
            let file = self.file().try_clone()?;
            blocking(move || {
                let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(file, keep_size, position, length)?)
            })
            .await
        })
    }

    fn set_length(&self, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let file = self.file().try_clone()?;
            blocking(move || Ok(rustix::fs::ftruncate(file, length)?)).await
        })
    }

    fn length(&self) -> LocalFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            // The inode of an open file is in memory: this does not block.
            let stat = rustix::fs::fstat(self.file())?;
            u64::try_from(stat.st_size).map_err(|_| invalid("negative file length"))
        })
    }

    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>> {
        Box::pin(async move {
            let stat = rustix::fs::fstat(self.file())?;
            Ok(stat.st_mtime.saturating_mul(1_000) + stat.st_mtime_nsec as i64 / 1_000_000)
        })
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(async move {
            // If an operation is still using it, its end closes the file.
            let Ok(mut this) = Rc::try_unwrap(self) else { return Ok(()) };
            let file = this.file.take().and_then(|file| Rc::try_unwrap(file).ok());
            match file {
                Some(file) => {
                    let close = move || {
                        drop(file);
                        Ok(())
                    };
                    blocking(close).await
                }
                None => Ok(()),
            }
        })
    }
}

impl RingFile {
    fn file(&self) -> &Rc<fs::File> {
        self.file.as_ref().expect("invariant: a closed file is not used")
    }

    /// Writes what follows `done` bytes of `buffer`, whose first goes to `position`; how many.
    async fn write_part(
        &self,
        buffer: &Arc<AlignedBuffer>,
        done: usize,
        position: u64,
    ) -> io::Result<usize> {
        let file = Rc::clone(self.file());
        let rest = &buffer[done..];
        let length = u32::try_from(rest.len()).map_err(|_| invalid("too long a write"))?;
        let entry = opcode::Write::new(descriptor(&file), rest.as_ptr(), length)
            .offset(position + done as u64)
            .build();
        let keep = Keep::Written(file, Arc::clone(buffer));
        let (written, _) = Ring::current().start(entry, keep).await;
        Ok(written? as usize)
    }

    async fn read_part(&self, position: u64, length: usize) -> io::Result<Bytes> {
        let file = Rc::clone(self.file());
        let mut buffer = AlignedBuffer::with_capacity(length);
        let wanted = u32::try_from(length).map_err(|_| invalid("too long a read"))?;
        let entry =
            opcode::Read::new(descriptor(&file), buffer.space(), wanted).offset(position).build();
        let (read, keep) = Ring::current().start(entry, Keep::Read(file, buffer)).await;
        let Keep::Read(_, mut buffer) = keep else {
            unreachable!("invariant: an operation gives back what it kept")
        };
        // SAFETY: the kernel has written so many bytes.
        unsafe { buffer.was_read(read? as usize) };
        Ok(if buffer.is_empty() { Bytes::new() } else { buffer.into_bytes() })
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

impl Drop for RingFile {
    fn drop(&mut self) {
        // Closing may free the blocks of a file that was removed.
        let file = self.file.take().and_then(|file| Rc::try_unwrap(file).ok());
        if let (Some(file), Some(ring)) = (file, Ring::of_this_thread()) {
            // Without a helper thread it is closed here.
            let _ = ring.help(Box::new(move || drop(file)));
        }
    }
}

fn descriptor(file: &fs::File) -> Fd {
    Fd(file.as_raw_fd())
}

/// Opens a file, for direct I/O unless its writes are cached.
fn open_file(path: &Path, mode: OpenMode) -> io::Result<fs::File> {
    let durable = if mode.durable { libc::O_DSYNC } else { 0 };
    let direct = if mode.cached { 0 } else { libc::O_DIRECT };
    fs::OpenOptions::new()
        .read(true)
        .write(mode.write)
        .create(mode.create)
        .create_new(mode.create && mode.create_new)
        .truncate(mode.truncate)
        .custom_flags(libc::O_CLOEXEC | direct | durable)
        .open(path)
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
