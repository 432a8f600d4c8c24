//! A recording disk: wraps any [`Disk`] and notes what was asked, when it ended, and how.
//!
//! Owns the recorder, shared by the shards of one process, whose [`Trace`] is one sequence of
//! events: the begin and end of every operation, and what the test saw from outside (a mark, such
//! as an acknowledgement). Must never change what an operation does or the order it is asked in.
//! What is done with a trace is in `trace`.
//!
//! Invariant: an operation's begin is noted before the wrapped disk sees it and its end before the
//! caller does, so an effect lies between the two events, and a mark set after an await lies
//! behind the end of what it awaited.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::io::{AlignedBuffer, DirectoryEntry, Disk, File, LocalFuture, OpenMode, Space};

use super::medium::Medium;
use super::trace::Trace;

/// One event of a trace; its index is its time.
#[derive(Clone, Debug)]
pub enum TraceEvent {
    /// An operation was asked for.
    Begin {
        /// Number of the operation, for its end.
        call: u64,
        /// What was asked.
        operation: Call,
    },
    /// An operation ended.
    End {
        /// Number of the operation.
        call: u64,
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// The world outside was told something.
    Mark(Mark),
}

/// What the test saw from outside, such as "acked t-0 at offset 5".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Kind of the promise.
    pub kind: &'static str,
    /// What it is about.
    pub subject: String,
    /// A number that goes with it, such as an offset.
    pub value: i64,
}

/// An operation as it was asked for. Handles number the opened files.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the arguments of the Disk and File functions")]
pub enum Call {
    Open { path: PathBuf, mode: OpenMode, handle: u64 },
    Write { handle: u64, position: u64, content: Recorded },
    Read { handle: u64, range: Range<u64> },
    SyncData { handle: u64 },
    Allocate { handle: u64, range: Range<u64> },
    SetLength { handle: u64, length: u64 },
    Close { handle: u64 },
    WriteWhole { path: PathBuf, content: Recorded, append: bool },
    CreateDirectory { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
    RemoveTree { path: PathBuf },
    SyncDirectory { path: PathBuf },
    SyncFilesystem,
}

/// Bytes of a write, as far as they are kept.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// So many zeroes.
    Zeroes(usize),
    /// The bytes.
    Bytes(Bytes),
    /// So many bytes that were not kept: crash images end before this event.
    Dropped(usize),
}

impl Recorded {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Recorded::Zeroes(length) | Recorded::Dropped(length) => *length,
            Recorded::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Collects the events of all recording disks of one process; clones share them.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    base: Medium,
    events: Vec<TraceEvent>,
    call_next: u64,
    handle_next: u64,
    content_bytes_left: usize,
}

impl Recorder {
    /// Records a run that starts from `base`, keeping at most so many bytes of content; zeroes
    /// are free.
    #[must_use]
    pub fn new(base: Medium, content_bytes_max: usize) -> Recorder {
        Recorder {
            shared: Arc::new(Mutex::new(Shared {
                base,
                events: Vec::new(),
                call_next: 0,
                handle_next: 0,
                content_bytes_left: content_bytes_max,
            })),
        }
    }

    /// Notes that the world outside was told something.
    pub fn mark(&self, kind: &'static str, subject: &str, value: i64) {
        let subject = subject.to_owned();
        self.lock().events.push(TraceEvent::Mark(Mark { kind, subject, value }));
    }

    /// A copy of what was recorded so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let shared = self.lock();
        Trace::new(shared.base.clone(), shared.events.clone())
    }

    fn begin(&self, operation: Call) -> u64 {
        let mut shared = self.lock();
        let call = shared.call_next;
        shared.call_next += 1;
        shared.events.push(TraceEvent::Begin { call, operation });
        call
    }

    fn end(&self, call: u64, succeeded: bool) {
        self.lock().events.push(TraceEvent::End { call, succeeded });
    }

    fn handle(&self) -> u64 {
        let mut shared = self.lock();
        shared.handle_next += 1;
        shared.handle_next - 1
    }

    fn keep(&self, content: &[u8]) -> Recorded {
        if content.iter().all(|&byte| byte == 0) {
            return Recorded::Zeroes(content.len());
        }
        let mut shared = self.lock();
        match shared.content_bytes_left.checked_sub(content.len()) {
            Some(left) => {
                shared.content_bytes_left = left;
                Recorded::Bytes(Bytes::copy_from_slice(content))
            }
            None => {
                // Nothing after it is kept either: a trace with gaps is of no use.
                shared.content_bytes_left = 0;
                Recorded::Dropped(content.len())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn around<T>(
        &self,
        operation: Call,
        inner: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let call = self.begin(operation);
        let result = inner.await;
        self.end(call, result.is_ok());
        result
    }
}

/// A disk whose operations are recorded.
pub struct RecordingDisk {
    inner: Rc<dyn Disk>,
    recorder: Recorder,
}

impl RecordingDisk {
    /// Wraps one shard's disk.
    #[must_use]
    pub fn new(inner: Rc<dyn Disk>, recorder: Recorder) -> RecordingDisk {
        RecordingDisk { inner, recorder }
    }
}

impl Disk for RecordingDisk {
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let handle = self.recorder.handle();
            let operation = Call::Open { path: path.to_owned(), mode, handle };
            let open = self.inner.open(path, mode);
            let inner = self.recorder.around(operation, open).await?;
            let file: Rc<dyn File> = Rc::new(RecordingFile {
                inner,
                recorder: self.recorder.clone(),
                handle,
                closed: Cell::new(false),
            });
            Ok(file)
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        self.inner.read(path)
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::WriteWhole {
                path: path.to_owned(),
                content: self.recorder.keep(content),
                append: false,
            };
            let write = self.inner.write(path, content);
            self.recorder.around(operation, write).await
        })
    }

    fn append<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::WriteWhole {
                path: path.to_owned(),
                content: self.recorder.keep(content),
                append: true,
            };
            let append = self.inner.append(path, content);
            self.recorder.around(operation, append).await
        })
    }

    fn list<'a>(
        &'a self,
        path: &'a Path,
        recursive: bool,
        read_names: &'a [&'a str],
    ) -> LocalFuture<'a, io::Result<Vec<DirectoryEntry>>> {
        self.inner.list(path, recursive, read_names)
    }

    fn create_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::CreateDirectory { path: path.to_owned() };
            let create = self.inner.create_directory(path);
            self.recorder.around(operation, create).await
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::Rename { from: from.to_owned(), to: to.to_owned() };
            let rename = self.inner.rename(from, to);
            self.recorder.around(operation, rename).await
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::Remove { path: path.to_owned() };
            let remove = self.inner.remove(path);
            self.recorder.around(operation, remove).await
        })
    }

    fn remove_tree<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::RemoveTree { path: path.to_owned() };
            let remove = self.inner.remove_tree(path);
            self.recorder.around(operation, remove).await
        })
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::SyncDirectory { path: path.to_owned() };
            let sync = self.inner.sync_directory(path);
            self.recorder.around(operation, sync).await
        })
    }

    fn sync_filesystem(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let sync = self.inner.sync_filesystem();
            self.recorder.around(Call::SyncFilesystem, sync).await
        })
    }

    fn space(&self) -> LocalFuture<'_, io::Result<Space>> {
        self.inner.space()
    }
}

struct RecordingFile {
    inner: Rc<dyn File>,
    recorder: Recorder,
    handle: u64,
    closed: Cell<bool>,
}

impl File for RecordingFile {
    fn write_at(
        &self,
        buffer: Arc<AlignedBuffer>,
        position: u64,
    ) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let operation =
                Call::Write { handle: self.handle, position, content: self.recorder.keep(&buffer) };
            let write = self.inner.write_at(buffer, position);
            self.recorder.around(operation, write).await
        })
    }

    fn read_at(&self, position: u64, length: usize) -> LocalFuture<'_, io::Result<Bytes>> {
        Box::pin(async move {
            let operation = Call::Read {
                handle: self.handle,
                range: position..position.saturating_add(length as u64),
            };
            let read = self.inner.read_at(position, length);
            self.recorder.around(operation, read).await
        })
    }

    fn sync_data(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::SyncData { handle: self.handle };
            let sync = self.inner.sync_data();
            self.recorder.around(operation, sync).await
        })
    }

    fn allocate(&self, position: u64, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::Allocate {
                handle: self.handle,
                range: position..position.saturating_add(length),
            };
            let allocate = self.inner.allocate(position, length);
            self.recorder.around(operation, allocate).await
        })
    }

    fn set_length(&self, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let operation = Call::SetLength { handle: self.handle, length };
            let set = self.inner.set_length(length);
            self.recorder.around(operation, set).await
        })
    }

    fn length(&self) -> LocalFuture<'_, io::Result<u64>> {
        self.inner.length()
    }

    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>> {
        self.inner.modified_ms()
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(async move {
            self.closed.set(true);
            let operation = Call::Close { handle: self.handle };
            let close = Rc::clone(&self.inner).close();
            self.recorder.around(operation, close).await
        })
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        if !self.closed.get() {
            let call = self.recorder.begin(Call::Close { handle: self.handle });
            self.recorder.end(call, true);
        }
    }
}
