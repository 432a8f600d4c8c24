//! A simulated disk: [`Disk`] and [`File`] over a [`Medium`], with delays, faults and crashes.
//!
//! Owns one file system for the shards of one world. Operations are submitted when their future is
//! first polled and complete at a virtual time drawn from the seed, polled or not, as the kernel's
//! do; so completions arrive in any order. Must never touch the real file system.
//!
//! Misuse is a panic, as in Redpanda's file sanitizer: use after close, double close, unaligned
//! positions and lengths, writing a file opened for reading, a close with operations in flight,
//! and a write that overlaps another read or write in flight.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::io::{AlignedBuffer, DirectoryEntry, Disk, File, LocalFuture, OpenMode, Space};
use crate::limits::BLOCK_ALIGN;

use super::content::PAGE_BYTES;
use super::executor::Core;
use super::faults::{FaultPlan, Operation};
use super::medium::{Inode, Medium, Sequence, os};
use super::random::{Random, fold};
use super::world::World;

/// A simulated disk; clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Rc<Shared>,
}

struct Shared {
    core: Rc<Core>,
    /// Absent once the disk has crashed.
    state: RefCell<Option<State>>,
}

struct State {
    medium: Medium,
    /// When files were written last; what was written before a crash counts as written now.
    modified_ms: BTreeMap<Inode, i64>,
    faults: FaultPlan,
    random: Random,
}

impl SimDisk {
    /// An empty disk without faults.
    #[must_use]
    pub fn new(world: &World) -> SimDisk {
        SimDisk::with_medium(world, Medium::new(), FaultPlan::default())
    }

    /// A disk that starts as `medium`.
    #[must_use]
    pub fn with_medium(world: &World, medium: Medium, faults: FaultPlan) -> SimDisk {
        let core = Rc::clone(world.core());
        let random = Random::new(fold(world.seed(), core.random()));
        SimDisk::assemble(core, medium, faults, random)
    }

    /// Changes what goes wrong, from the next operation on.
    pub fn plan(&self, change: impl FnOnce(&mut FaultPlan)) {
        if let Some(state) = self.shared.state.borrow_mut().as_mut() {
            change(&mut state.faults);
        }
    }

    /// A copy of everything as it is now, with what is in flight and what is volatile.
    ///
    /// # Panics
    /// If this disk has crashed.
    #[must_use]
    pub fn medium(&self) -> Medium {
        let state = self.shared.state.borrow();
        let state = state.as_ref().expect("invariant: not crashed before");
        state.medium.clone()
    }

    /// Damages stored bytes, as a bad medium would.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn corrupt(&self, path: &Path, position: u64, bytes: &[u8]) -> io::Result<()> {
        match self.shared.state.borrow_mut().as_mut() {
            Some(state) => state.medium.corrupt(path, position, bytes),
            None => Err(os(libc::ENODEV)),
        }
    }

    /// Power loss: the seed decides what survives, and a new disk holds it. On this one nothing
    /// begins or completes any more. Call it after [`World::crash`].
    ///
    /// # Panics
    /// If this disk has crashed before.
    #[must_use]
    pub fn crash(&self) -> SimDisk {
        let state = self.shared.state.borrow_mut().take();
        let mut state = state.expect("invariant: a disk crashes once");
        let medium = state.medium.after_crash(&mut state.random);
        self.shared.core.note("disk crash", medium.used_bytes(), 0);
        let random = state.random.fork();
        SimDisk::assemble(Rc::clone(&self.shared.core), medium, state.faults, random)
    }

    /// The process died but the machine did not: every write that ended, and any part of those in
    /// flight, is there; what is not durable stays volatile. The new disk goes on from there.
    ///
    /// # Panics
    /// If this disk has crashed before.
    #[must_use]
    pub fn kill_process(&self) -> SimDisk {
        let state = self.shared.state.borrow_mut().take();
        let mut state = state.expect("invariant: a disk crashes once");
        state.medium.abandon(&mut state.random);
        self.shared.core.note("disk kill", state.medium.used_bytes(), 0);
        let random = state.random.fork();
        let core = Rc::clone(&self.shared.core);
        SimDisk::assemble(core, state.medium, state.faults, random)
    }

    fn assemble(core: Rc<Core>, medium: Medium, faults: FaultPlan, random: Random) -> SimDisk {
        let state = State { medium, modified_ms: BTreeMap::new(), faults, random };
        SimDisk { shared: Rc::new(Shared { core, state: RefCell::new(Some(state)) }) }
    }

    /// Submits one operation: `begin` now, `finish` after a delay, each with the error code that
    /// the plan of faults asks for.
    async fn perform<B: 'static, T: 'static>(
        &self,
        operation: Operation,
        path: &Path,
        detail: u64,
        begin: impl FnOnce(&mut State, Option<i32>) -> io::Result<B>,
        finish: impl FnOnce(&mut State, B, Option<i32>) -> io::Result<T> + 'static,
    ) -> io::Result<T> {
        let subject = path_hash(operation, path);
        let submitted = match self.shared.state.borrow_mut().as_mut() {
            None => None,
            Some(state) => {
                let fault = state.faults.strike(operation, path);
                let begun = begin(state, fault);
                let delay_ns = state.faults.delays.draw(&mut state.random);
                Some((fault, begun, delay_ns))
            }
        };
        let Some((fault, begun, delay_ns)) = submitted else {
            return std::future::pending().await;
        };
        self.shared.core.note("disk begin", subject, detail);
        let shared = Rc::clone(&self.shared);
        let complete = move || {
            shared.core.note("disk end", subject, detail);
            match shared.state.borrow_mut().as_mut() {
                Some(state) => begun.and_then(|begun| finish(state, begun, fault)),
                // The disk was pulled out under a running world.
                None => Err(os(libc::ENODEV)),
            }
        };
        self.shared.core.complete_after(delay_ns, complete).await
    }

    /// Submits an operation that has no effect if it fails, and otherwise its effect at once.
    async fn change_names(
        &self,
        operation: Operation,
        path: &Path,
        change: impl FnOnce(&mut State) -> io::Result<Sequence>,
    ) -> io::Result<()> {
        let begin = |state: &mut State, fault| match fault {
            Some(code) => Err(os(code)),
            None => change(state),
        };
        let finish = |state: &mut State, sequence, _| {
            state.medium.finish_names(sequence);
            Ok(())
        };
        self.perform(operation, path, 0, begin, finish).await
    }

    /// Submits an operation that only looks, at the time it completes.
    async fn look<T: 'static>(
        &self,
        operation: Operation,
        path: &Path,
        look: impl FnOnce(&mut State) -> io::Result<T> + 'static,
    ) -> io::Result<T> {
        let finish = |state: &mut State, (), fault| match fault {
            Some(code) => Err(os(code)),
            None => look(state),
        };
        self.perform(operation, path, 0, |_, _| Ok(()), finish).await
    }

    /// `Disk::write` and `Disk::append`.
    async fn write_whole(&self, path: &Path, content: &[u8], append: bool) -> io::Result<()> {
        let mode = OpenMode { write: true, create: true, truncate: !append, ..OpenMode::default() };
        let begin = |state: &mut State, _| {
            state.check_creation(path)?;
            let (inode, opened) = state.medium.open(path, mode)?;
            let position = state.medium.length(inode);
            let fits = state.fitting(inode, position, content.len());
            let write = match fits {
                0 => None,
                fits => Some(state.medium.begin_write(inode, position, &content[..fits])),
            };
            let short = (fits < content.len()).then_some(libc::ENOSPC);
            Ok((inode, opened, write, short))
        };
        let finish = |state: &mut State, (inode, opened, write, short), fault: Option<i32>| {
            let medium = &mut state.medium;
            medium.finish_open(inode, opened);
            match (write, fault) {
                (Some(write), Some(_)) => medium.fail_write(inode, write, &mut state.random),
                (Some(write), None) => medium.finish_write(inode, write, false),
                (None, _) => {}
            }
            let code = fault.or(short);
            if code.is_none() {
                let begun = medium.begin_sync();
                medium.finish_sync_data(inode, begun, true);
            }
            medium.close(inode);
            code.map_or(Ok(()), |code| Err(os(code)))
        };
        let detail = content.len() as u64;
        self.perform(Operation::WriteWhole, path, detail, begin, finish).await
    }
}

impl State {
    /// How many of `length` bytes at `position` find space, in whole pages unless it is all.
    fn fitting(&self, inode: Inode, position: u64, length: usize) -> usize {
        let page = PAGE_BYTES as u64;
        let end = position + length as u64;
        let mut available_bytes = self.faults.available_bytes(self.medium.used_bytes());
        let all = position / page * page..end.next_multiple_of(page);
        if self.medium.missing(inode, &all) <= available_bytes {
            return length;
        }
        let mut at = all.start;
        while at < all.end {
            let missing = self.medium.missing(inode, &(at..at + page));
            if missing > available_bytes {
                break;
            }
            available_bytes -= missing;
            at += page;
        }
        at.clamp(position, end).saturating_sub(position) as usize
    }

    /// On a full disk no new name fits.
    fn check_creation(&self, path: &Path) -> io::Result<()> {
        match self.faults.full && self.medium.resolve(path).is_err() {
            true => Err(os(libc::ENOSPC)),
            false => Ok(()),
        }
    }
}

impl Disk for SimDisk {
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let begin = |state: &mut State, fault: Option<i32>| {
                if let Some(code) = fault {
                    return Err(os(code));
                }
                if mode.create {
                    state.check_creation(path)?;
                }
                state.medium.open(path, mode)
            };
            let finish = |state: &mut State, (inode, sequence), _| {
                state.medium.finish_open(inode, sequence);
                Ok(inode)
            };
            let inode = self.perform(Operation::Open, path, 0, begin, finish).await?;
            let file: Rc<dyn File> = Rc::new(SimFile {
                disk: self.clone(),
                path: path.to_owned(),
                inode,
                mode,
                closed: Cell::new(false),
                in_flight: Rc::new(Cell::new(0)),
            });
            Ok(file)
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            let target = path.to_owned();
            self.look(Operation::Read, path, move |state| state.medium.read(&target)).await
        })
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.write_whole(path, content, false))
    }

    fn append<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.write_whole(path, content, true))
    }

    fn list<'a>(
        &'a self,
        path: &'a Path,
        recursive: bool,
        read_names: &'a [&'a str],
    ) -> LocalFuture<'a, io::Result<Vec<DirectoryEntry>>> {
        Box::pin(async move {
            let target = path.to_owned();
            let names: Vec<String> = read_names.iter().map(|&name| name.to_owned()).collect();
            self.look(Operation::List, path, move |state| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                state.medium.list(&target, recursive, &names)
            })
            .await
        })
    }

    fn create_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.change_names(Operation::CreateDirectory, path, |state| {
            state.check_creation(path)?;
            state.medium.create_directory(path)
        }))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.change_names(Operation::Rename, to, |state| state.medium.rename(from, to)))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.change_names(Operation::Remove, path, |state| state.medium.remove(path)))
    }

    fn remove_tree<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.change_names(Operation::Remove, path, |state| state.medium.remove_tree(path)))
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let begin = |state: &mut State, _| {
                let inode = state.medium.resolve(path)?;
                match state.medium.is_directory(inode) {
                    true => Ok((inode, state.medium.begin_sync())),
                    false => Err(os(libc::ENOTDIR)),
                }
            };
            let finish = |state: &mut State, (inode, begun), fault: Option<i32>| match fault {
                Some(code) => Err(os(code)),
                None => {
                    state.medium.finish_sync_directory(inode, begun);
                    Ok(())
                }
            };
            self.perform(Operation::SyncDirectory, path, 0, begin, finish).await
        })
    }

    fn sync_filesystem(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let begin = |state: &mut State, _| Ok(state.medium.begin_sync());
            let finish = |state: &mut State, begun, fault: Option<i32>| {
                state.medium.finish_sync_filesystem(begun, fault.is_none());
                fault.map_or(Ok(()), |code| Err(os(code)))
            };
            let root = Path::new("/");
            self.perform(Operation::SyncFilesystem, root, 0, begin, finish).await
        })
    }

    fn space(&self) -> LocalFuture<'_, io::Result<Space>> {
        Box::pin(self.look(Operation::List, Path::new("/"), |state| {
            Ok(Space {
                total_bytes: state.faults.total_bytes(),
                available_bytes: state.faults.available_bytes(state.medium.used_bytes()),
            })
        }))
    }
}

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: Inode,
    mode: OpenMode,
    closed: Cell<bool>,
    in_flight: Rc<Cell<u32>>,
}

impl SimFile {
    async fn perform<B: 'static, T: 'static>(
        &self,
        operation: Operation,
        detail: u64,
        begin: impl FnOnce(&mut State, Option<i32>) -> io::Result<B>,
        finish: impl FnOnce(&mut State, B, Option<i32>) -> io::Result<T> + 'static,
    ) -> io::Result<T> {
        let path = self.path.display();
        assert!(!self.closed.get(), "{operation:?} after close of {path}");
        let in_flight = Rc::clone(&self.in_flight);
        in_flight.set(in_flight.get() + 1);
        let finish = move |state: &mut State, begun, fault| {
            in_flight.set(in_flight.get() - 1);
            finish(state, begun, fault)
        };
        self.disk.perform(operation, &self.path, detail, begin, finish).await
    }

    fn assert_writable(&self, what: &str) {
        let path = self.path.display();
        assert!(self.mode.write, "{what} of {path}, opened for reading");
    }
}

impl File for SimFile {
    fn write_at(
        &self,
        buffer: Arc<AlignedBuffer>,
        position: u64,
    ) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.assert_writable("write");
            assert_aligned(position, buffer.len() as u64);
            let (inode, durable) = (self.inode, self.mode.durable);
            let wall_ms = self.disk.shared.core.wall_ms();
            let begin = |state: &mut State, _| {
                state.modified_ms.insert(inode, wall_ms);
                let fits = state.fitting(inode, position, buffer.len());
                let write = match fits {
                    0 => None,
                    fits => Some(state.medium.begin_write(inode, position, &buffer[..fits])),
                };
                Ok((write, (fits < buffer.len()).then_some(libc::ENOSPC)))
            };
            let finish = move |state: &mut State, (write, short), fault: Option<i32>| {
                match (write, fault) {
                    (Some(write), Some(_)) => {
                        state.medium.fail_write(inode, write, &mut state.random);
                    }
                    (Some(write), None) => state.medium.finish_write(inode, write, durable),
                    (None, _) => {}
                }
                let code = fault.or(short);
                code.map_or(Ok(()), |code| Err(os(code)))
            };
            self.perform(Operation::Write, position, begin, finish).await
        })
    }

    fn read_at(&self, position: u64, length: usize) -> LocalFuture<'_, io::Result<Bytes>> {
        Box::pin(async move {
            assert_aligned(position, length as u64);
            let inode = self.inode;
            let range = position..position + length as u64;
            let begin = |state: &mut State, _| Ok(state.medium.begin_read(inode, range));
            let finish = move |state: &mut State, read, fault: Option<i32>| {
                let bytes = state.medium.finish_read(inode, read);
                fault.map_or(Ok(bytes), |code| Err(os(code)))
            };
            let bytes = self.perform(Operation::Read, position, begin, finish).await?;
            if bytes.is_empty() {
                return Ok(Bytes::new());
            }
            let mut buffer = AlignedBuffer::zeroed(bytes.len().next_multiple_of(BLOCK_ALIGN));
            buffer[..bytes.len()].copy_from_slice(&bytes);
            let whole = buffer.into_bytes();
            Ok(whole.slice(..bytes.len()))
        })
    }

    fn sync_data(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let inode = self.inode;
            let begin = |state: &mut State, _| Ok(state.medium.begin_sync());
            let finish = move |state: &mut State, begun, fault: Option<i32>| {
                state.medium.finish_sync_data(inode, begun, fault.is_none());
                fault.map_or(Ok(()), |code| Err(os(code)))
            };
            self.perform(Operation::SyncData, 0, begin, finish).await
        })
    }

    fn allocate(&self, position: u64, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.assert_writable("allocation");
            assert_aligned(position, length);
            let inode = self.inode;
            let range = position..position + length;
            let begin = |state: &mut State, fault: Option<i32>| {
                let available_bytes = state.faults.available_bytes(state.medium.used_bytes());
                if state.medium.missing(inode, &range) > available_bytes {
                    return Ok(Some(libc::ENOSPC));
                }
                if fault.is_none() {
                    state.medium.allocate(inode, range);
                }
                Ok(fault)
            };
            let finish =
                |_: &mut State, code: Option<i32>, _| code.map_or(Ok(()), |code| Err(os(code)));
            self.perform(Operation::Allocate, position, begin, finish).await
        })
    }

    fn set_length(&self, length: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.assert_writable("cut");
            let inode = self.inode;
            let begin = |state: &mut State, fault: Option<i32>| {
                Ok(match fault {
                    Some(_) => None,
                    None => Some(state.medium.begin_set_length(inode, length)),
                })
            };
            let finish = move |state: &mut State, change, fault: Option<i32>| {
                if let Some(change) = change {
                    state.medium.finish_set_length(inode, change);
                }
                fault.map_or(Ok(()), |code| Err(os(code)))
            };
            self.perform(Operation::SetLength, length, begin, finish).await
        })
    }

    fn length(&self) -> LocalFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            let inode = self.inode;
            let finish = move |state: &mut State, (), _| Ok(state.medium.length(inode));
            self.perform(Operation::List, 0, |_, _| Ok(()), finish).await
        })
    }

    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>> {
        Box::pin(async move {
            let (inode, wall_ms) = (self.inode, self.disk.shared.core.wall_ms());
            let finish = move |state: &mut State, (), _| {
                Ok(state.modified_ms.get(&inode).copied().unwrap_or(wall_ms))
            };
            self.perform(Operation::List, 0, |_, _| Ok(()), finish).await
        })
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(async move {
            let path = self.path.display();
            assert!(!self.closed.replace(true), "double close of {path}");
            let in_flight = self.in_flight.get();
            assert_eq!(in_flight, 0, "close of {path} with operations in flight");
            let inode = self.inode;
            let finish = move |state: &mut State, (), fault: Option<i32>| {
                state.medium.close(inode);
                fault.map_or(Ok(()), |code| Err(os(code)))
            };
            let begin = |_: &mut State, _| Ok(());
            self.disk.perform(Operation::Close, &self.path, 0, begin, finish).await
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.closed.get() {
            return;
        }
        if let Ok(mut state) = self.disk.shared.state.try_borrow_mut()
            && let Some(state) = state.as_mut()
        {
            state.medium.close(self.inode);
        }
    }
}

fn assert_aligned(position: u64, length: u64) {
    assert!(
        position.is_multiple_of(BLOCK_ALIGN as u64) && length.is_multiple_of(BLOCK_ALIGN as u64),
        "unaligned position {position} or length {length}"
    );
    assert!(length > 0, "nothing to do at position {position}");
}

fn path_hash(operation: Operation, path: &Path) -> u64 {
    let bytes = path.as_os_str().as_encoded_bytes();
    let start = operation as u64;
    bytes.iter().fold(start, |hash, &byte| fold(hash, u64::from(byte)))
}

#[cfg(test)]
mod tests;
