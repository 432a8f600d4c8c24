//! What is on a simulated medium, what is only in its write cache, and what a crash leaves.
//!
//! Owns inodes: files, each with durable bytes and the versions of 512-byte sectors that are not
//! durable yet, and directories, each with durable names; changes of names wait in `names`. It is
//! a plain value: no time, no I/O, cloned for a crash image. `SimDisk` gives it delays and faults,
//! `Trace` replays a recorded run into it.
//!
//! The model, harsher than any one file system:
//! - a write may reach the medium sector by sector, in any order, any time after it was submitted;
//! - a durable write is on the medium when it ends, the rest after a sync that began after they
//!   ended; a failed sync makes nothing durable, and no later sync makes up for it;
//! - lengths change in order, separately from the data: a longer file may show zeroes;
//! - a name is durable only after its directory's sync, independent of all other names; a rename
//!   is atomic.
//!
//! Invariant (asserted, as Redpanda's file sanitizer does): no write overlaps a read or write in
//! flight on the same file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::io::{DirectoryEntry, OpenMode};

use super::content::Content;
use super::filenode::{Fates, FileNode};
use super::names::{NameChange, Names};
use super::random::Random;

/// Number of a file or directory, never used twice.
pub type Inode = u64;

/// Order of events on the medium: begins and ends of operations take one number each.
pub type Sequence = u64;

/// A file system with a write cache.
#[derive(Clone)]
pub struct Medium {
    files: BTreeMap<Inode, FileNode>,
    names: Names,
    inode_next: Inode,
    sequence: Sequence,
    used_bytes: u64,
    /// Whether some inode may have lost its last name, so that there is something to release.
    unlinked: bool,
}

impl Medium {
    /// An empty file system: `/` and nothing else.
    #[must_use]
    pub fn new() -> Medium {
        let mut names = Names::default();
        names.add_directory(ROOT);
        Medium {
            files: BTreeMap::new(),
            names,
            inode_next: ROOT + 1,
            sequence: 0,
            used_bytes: 0,
            unlinked: false,
        }
    }

    /// Bytes of disk space in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The inode a path leads to.
    ///
    /// # Errors
    /// `NotFound`, or `NotADirectory` if a file stands in the way.
    pub fn resolve(&self, path: &Path) -> io::Result<Inode> {
        let mut at = ROOT;
        for name in components(path)? {
            at = self.names.lookup(at, &name)?.ok_or_else(|| os(libc::ENOENT))?;
        }
        Ok(at)
    }

    /// Whether an inode is a directory.
    #[must_use]
    pub fn is_directory(&self, inode: Inode) -> bool {
        self.names.is_directory(inode)
    }

    /// Opens or creates a file. A created name and a cut are volatile; the returned sequence is
    /// theirs, to be ended by [`Medium::finish_open`].
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(&mut self, path: &Path, mode: OpenMode) -> io::Result<(Inode, Sequence)> {
        let (directory, name) = self.parent(path)?;
        let found = self.names.lookup(directory, &name)?;
        let sequence = self.tick();
        let inode = match found {
            Some(_) if mode.create && mode.create_new => return Err(os(libc::EEXIST)),
            Some(inode) if self.is_directory(inode) => return Err(os(libc::EISDIR)),
            Some(inode) => inode,
            None if !mode.create => return Err(os(libc::ENOENT)),
            None => {
                let inode = self.inode_next;
                self.inode_next += 1;
                self.files.insert(inode, FileNode::default());
                let change = NameChange::new(sequence, vec![(directory, name, Some(inode))]);
                self.names.apply(change);
                inode
            }
        };
        self.file(inode).open_count += 1;
        if mode.truncate && self.file(inode).current.length() > 0 {
            self.cut(inode, sequence, 0);
        }
        Ok((inode, sequence))
    }

    /// Ends an open: a sync that begins later covers what it created or cut.
    pub fn finish_open(&mut self, inode: Inode, sequence: Sequence) {
        self.finish_names(sequence);
        self.finish_set_length(inode, sequence);
    }

    /// Ends one use of an open file; a file without names then gives its space back.
    pub fn close(&mut self, inode: Inode) {
        let file = self.file(inode);
        assert!(file.open_count > 0, "double close of inode {inode}");
        file.open_count -= 1;
        if file.open_count == 0 && !self.names.has_name(inode) {
            self.release_unreachable();
        }
    }

    /// Submits a write; it becomes visible to reads when it ends.
    pub fn begin_write(&mut self, inode: Inode, position: u64, bytes: &[u8]) -> Sequence {
        let sequence = self.tick();
        let file = self.file(inode);
        let before = file.extents.total();
        file.begin_write(sequence, position, bytes);
        let grown = file.extents.total() - before;
        self.used_bytes += grown;
        sequence
    }

    /// Ends a write in full; with `durable` its bytes are on the medium.
    pub fn finish_write(&mut self, inode: Inode, write: Sequence, durable: bool) {
        let now = self.tick();
        self.file(inode).finish_write(write, now, durable);
    }

    /// Ends a write with an error: each sector is old or new, as `random` says.
    pub fn fail_write(&mut self, inode: Inode, write: Sequence, random: &mut Random) {
        let now = self.tick();
        self.file(inode).fail_write(write, now, random);
    }

    /// Registers a read in flight, so that an overlapping write is noticed.
    pub fn begin_read(&mut self, inode: Inode, range: Range<u64>) -> Sequence {
        let sequence = self.tick();
        self.file(inode).begin_read(sequence, range);
        sequence
    }

    /// Ends a read and returns what it saw; shorter at the end of the file.
    pub fn finish_read(&mut self, inode: Inode, read: Sequence) -> Vec<u8> {
        self.file(inode).finish_read(read)
    }

    /// Cuts or extends a file; volatile until synced. Visible at once.
    pub fn begin_set_length(&mut self, inode: Inode, length: u64) -> Sequence {
        let sequence = self.tick();
        self.cut(inode, sequence, length);
        sequence
    }

    /// Ends a change of length: a sync that begins later covers it.
    pub fn finish_set_length(&mut self, inode: Inode, change: Sequence) {
        let now = self.tick();
        self.file(inode).finish_set_length(change, now);
    }

    /// Reserves space for a range.
    pub fn allocate(&mut self, inode: Inode, range: Range<u64>) {
        let file = self.file(inode);
        let missing = file.extents.missing(&range);
        file.extents.add(&range);
        self.used_bytes += missing;
    }

    /// Bytes of a range without space: what a write there would take from the disk.
    #[must_use]
    pub fn missing(&self, inode: Inode, range: &Range<u64>) -> u64 {
        self.files.get(&inode).map_or(0, |file| file.extents.missing(range))
    }

    /// Length of a file as readers see it.
    #[must_use]
    pub fn length(&self, inode: Inode) -> u64 {
        self.files.get(&inode).map_or(0, |file| file.current.length())
    }

    /// Notes the begin of a sync: what has ended by now is covered.
    pub fn begin_sync(&mut self) -> Sequence {
        self.tick()
    }

    /// Ends a file's sync that began at `begun`.
    pub fn finish_sync_data(&mut self, inode: Inode, begun: Sequence, succeeded: bool) {
        self.file(inode).sync(begun, succeeded);
    }

    /// Ends a directory's sync that began at `begun`.
    pub fn finish_sync_directory(&mut self, inode: Inode, begun: Sequence) {
        self.names.sync(Some(inode), begun);
        self.release_unreachable();
    }

    /// Ends a sync of everything that began at `begun`.
    pub fn finish_sync_filesystem(&mut self, begun: Sequence, succeeded: bool) {
        for file in self.files.values_mut() {
            file.sync(begun, succeeded);
        }
        if succeeded {
            self.names.sync(None, begun);
        }
        self.release_unreachable();
    }

    /// Creates a directory and its missing parents, volatile.
    ///
    /// # Errors
    /// `NotADirectory` or `AlreadyExists` if a file stands in the way.
    pub fn create_directory(&mut self, path: &Path) -> io::Result<Sequence> {
        let sequence = self.tick();
        let mut at = ROOT;
        for name in components(path)? {
            at = match self.names.lookup(at, &name)? {
                Some(inode) if self.is_directory(inode) => inode,
                Some(_) => return Err(os(libc::EEXIST)),
                None => {
                    let inode = self.inode_next;
                    self.inode_next += 1;
                    self.names.add_directory(inode);
                    let change = NameChange::new(sequence, vec![(at, name, Some(inode))]);
                    self.names.apply(change);
                    inode
                }
            };
        }
        Ok(sequence)
    }

    /// Renames a file or directory, volatile and atomic.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Sequence> {
        let (from_directory, from_name) = self.parent(from)?;
        let (to_directory, to_name) = self.parent(to)?;
        let source = self.names.lookup(from_directory, &from_name)?;
        let source = source.ok_or_else(|| os(libc::ENOENT))?;
        if let Some(target) = self.names.lookup(to_directory, &to_name)? {
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(os(libc::ENOTDIR)),
                (false, true) => return Err(os(libc::EISDIR)),
                (true, true) if !self.names.is_empty(target) => return Err(os(libc::ENOTEMPTY)),
                _ => {}
            }
            if source == target {
                return Ok(self.tick());
            }
        }
        if to.starts_with(from) && self.is_directory(source) {
            return Err(os(libc::EINVAL));
        }
        let sequence = self.tick();
        let edits = vec![(from_directory, from_name, None), (to_directory, to_name, Some(source))];
        self.names.apply(NameChange::new(sequence, edits));
        self.unlinked = true;
        self.release_unreachable();
        Ok(sequence)
    }

    /// Removes a file's name, volatile.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory`.
    pub fn remove(&mut self, path: &Path) -> io::Result<Sequence> {
        let (directory, name) = self.parent(path)?;
        let found = self.names.lookup(directory, &name)?;
        if self.is_directory(found.ok_or_else(|| os(libc::ENOENT))?) {
            return Err(os(libc::EISDIR));
        }
        let sequence = self.tick();
        self.names.apply(NameChange::new(sequence, vec![(directory, name, None)]));
        self.unlinked = true;
        self.release_unreachable();
        Ok(sequence)
    }

    /// Removes a directory and all below it, one volatile change per name; a crash may leave any
    /// part of it. A missing directory is fine.
    ///
    /// # Errors
    /// `NotADirectory`.
    pub fn remove_tree(&mut self, path: &Path) -> io::Result<Sequence> {
        let sequence = self.tick();
        let (directory, name) = match self.parent(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(sequence),
            Err(error) => return Err(error),
        };
        let Some(inode) = self.names.lookup(directory, &name)? else {
            return Ok(sequence);
        };
        if !self.is_directory(inode) {
            return Err(os(libc::ENOTDIR));
        }
        self.remove_below(inode, sequence);
        self.names.apply(NameChange::new(sequence, vec![(directory, name, None)]));
        self.unlinked = true;
        self.release_unreachable();
        Ok(sequence)
    }

    /// Ends the changes of names made under `sequence`: a sync that begins later covers them.
    pub fn finish_names(&mut self, sequence: Sequence) {
        let now = self.tick();
        self.names.finish(sequence, now);
    }

    /// Lists a directory as `Disk::list` does.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn list(
        &self,
        path: &Path,
        recursive: bool,
        read_names: &[&str],
    ) -> io::Result<Vec<DirectoryEntry>> {
        let inode = self.resolve(path)?;
        if !self.is_directory(inode) {
            return Err(os(libc::ENOTDIR));
        }
        let mut entries = Vec::new();
        self.list_into(inode, Path::new(""), recursive, read_names, &mut entries);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    /// A whole file as readers see it.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let inode = self.resolve(path)?;
        let file = self.files.get(&inode).ok_or_else(|| os(libc::EISDIR))?;
        Ok(file.current.read(0..file.current.length()))
    }

    /// Puts a whole durable file at `path`, with its directories: the start of a test or replay.
    ///
    /// # Errors
    /// Those of [`Medium::open`].
    pub fn put(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            self.create_directory(directory)?;
        }
        let mode = OpenMode { write: true, create: true, truncate: true, ..OpenMode::default() };
        let (inode, opened) = self.open(path, mode)?;
        let before = self.file(inode).extents.total();
        self.file(inode).load(content);
        let after = self.file(inode).extents.total();
        self.used_bytes = self.used_bytes - before + after;
        self.finish_open(inode, opened);
        let begun = self.begin_sync();
        self.close(inode);
        self.names.sync(None, begun);
        Ok(())
    }

    /// Damages stored bytes behind everyone's back, as a bad medium would; does not extend.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`.
    pub fn corrupt(&mut self, path: &Path, position: u64, bytes: &[u8]) -> io::Result<()> {
        let inode = self.resolve(path)?;
        let file = self.files.get_mut(&inode).ok_or_else(|| os(libc::EISDIR))?;
        file.corrupt(position, bytes);
        Ok(())
    }

    /// Whether every name on the way to `path` would survive any crash.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn is_name_durable(&self, path: &Path) -> io::Result<bool> {
        self.resolve(path)?;
        let mut at = ROOT;
        for name in components(path)? {
            match self.names.durable_lookup(at, &name) {
                Some(inode) if self.names.lookup(at, &name)? == Some(inode) => at = inode,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether every byte and the length of a file would survive any crash.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn is_data_durable(&self, path: &Path) -> io::Result<bool> {
        let inode = self.resolve(path)?;
        Ok(self.files.get(&inode).is_none_or(FileNode::is_clean))
    }

    /// Makes everything durable and closes everything: a clean stop, all synced.
    pub fn settle(&mut self) {
        self.names.finish_all();
        let now = self.tick();
        self.names.sync(None, now);
        for file in self.files.values_mut() {
            file.settle();
        }
        self.release_unreachable();
    }

    /// What the medium holds after a crash now: one of the many states allowed, as `random` says.
    #[must_use]
    pub fn crash(&self, random: &mut Random) -> Medium {
        self.clone().after_crash(random)
    }

    /// The same, of a medium that nobody looks at any more.
    pub(super) fn after_crash(self, random: &mut Random) -> Medium {
        let mut after = self;
        let mut fates = Fates::draw(random);
        after.names.crash(&mut fates);
        for file in after.files.values_mut() {
            file.crash(&mut fates);
        }
        after.unlinked = true;
        after.release_unreachable();
        after
    }

    /// The process died, the machine goes on: any part of the writes in flight is visible, every
    /// handle is closed, what is volatile stays so.
    pub fn abandon(&mut self, random: &mut Random) {
        let now = self.tick();
        self.names.finish_all();
        for file in self.files.values_mut() {
            file.abandon(now, random);
        }
        self.unlinked = true;
        self.release_unreachable();
    }

    /// All files and directories with content, for comparison and for writing out.
    #[must_use]
    pub fn tree(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut entries = Vec::new();
        self.list_into(ROOT, Path::new("/"), true, &[], &mut entries);
        let read = |entry: DirectoryEntry| {
            let content = match entry.is_directory {
                true => None,
                false => self.read(&entry.path).ok(),
            };
            (entry.path, content)
        };
        entries.into_iter().map(read).collect()
    }

    fn cut(&mut self, inode: Inode, sequence: Sequence, length: u64) {
        let file = self.file(inode);
        let before = file.extents.total();
        file.set_length(sequence, length);
        let freed = before - file.extents.total();
        self.used_bytes -= freed;
    }

    fn remove_below(&mut self, directory: Inode, sequence: Sequence) {
        for (name, inode) in self.names.entries(directory) {
            if self.is_directory(inode) {
                self.remove_below(inode, sequence);
            }
            self.names.apply(NameChange::new(sequence, vec![(directory, name, None)]));
        }
    }

    fn list_into(
        &self,
        directory: Inode,
        prefix: &Path,
        recursive: bool,
        read_names: &[&str],
        out: &mut Vec<DirectoryEntry>,
    ) {
        for (name, inode) in self.names.entries(directory) {
            let path = prefix.join(&name);
            let wanted = read_names.iter().any(|wanted| name == *wanted);
            let file = self.files.get(&inode);
            let read = |content: &Content| content.read(0..content.length());
            out.push(DirectoryEntry {
                path: path.clone(),
                is_directory: file.is_none(),
                length: self.length(inode),
                content: file.filter(|_| wanted).map(|file| read(&file.current)),
            });
            if recursive && file.is_none() {
                self.list_into(inode, &path, recursive, read_names, out);
            }
        }
    }

    /// The bytes of a file as readers see them.
    pub(super) fn content(&self, path: &Path) -> io::Result<&Content> {
        let inode = self.resolve(path)?;
        let file = self.files.get(&inode).ok_or_else(|| os(libc::EISDIR))?;
        Ok(&file.current)
    }

    fn parent(&self, path: &Path) -> io::Result<(Inode, OsString)> {
        let mut names = components(path)?;
        let name = names.pop().ok_or_else(|| os(libc::EISDIR))?;
        let mut at = ROOT;
        for name in names {
            at = self.names.lookup(at, &name)?.ok_or_else(|| os(libc::ENOENT))?;
        }
        match self.is_directory(at) {
            true => Ok((at, name)),
            false => Err(os(libc::ENOTDIR)),
        }
    }

    fn file(&mut self, inode: Inode) -> &mut FileNode {
        let file = self.files.get_mut(&inode);
        file.expect("invariant: an inode in use is a file")
    }

    fn tick(&mut self) -> Sequence {
        self.sequence += 1;
        self.sequence
    }

    /// Frees the space of files that readers can no longer reach, and forgets inodes that no
    /// crash can bring back.
    fn release_unreachable(&mut self) {
        if !self.unlinked {
            return;
        }
        let reachable = self.names.reachable(ROOT);
        let possible = self.names.possible(ROOT);
        let mut used_bytes = 0;
        self.files.retain(|inode, file| {
            let held = file.open_count > 0 || file.is_busy();
            if held || reachable.contains(inode) {
                used_bytes += file.extents.total();
            }
            held || possible.contains(inode)
        });
        self.names.retain_directories(&possible);
        self.used_bytes = used_bytes;
        let mut files = self.files.keys();
        self.unlinked = files.any(|inode| !reachable.contains(inode));
    }
}

impl Default for Medium {
    fn default() -> Medium {
        Medium::new()
    }
}

/// The error of an operating system's code.
pub(super) fn os(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn components(path: &Path) -> io::Result<Vec<OsString>> {
    assert!(path.is_absolute(), "a relative path: {}", path.display());
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(os(libc::EINVAL)),
        }
    }
    Ok(names)
}

const ROOT: Inode = 1;
