//! Names of a simulated file system: what readers see, what is durable, and the changes between.
//!
//! Owns directories only; it does not know what an inode holds. A change is atomic, even a rename
//! between two directories. After a crash each change that no sync covered is there or not; one
//! that builds on an earlier change of the same name is there only if that one is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;

use super::filenode::Fates;
use super::medium::{Inode, Sequence, os};

/// All directories.
#[derive(Clone, Default)]
pub(super) struct Names {
    directories: BTreeMap<Inode, Directory>,
    changes: Vec<NameChange>,
}

#[derive(Clone, Default)]
struct Directory {
    current: BTreeMap<OsString, Inode>,
    durable: BTreeMap<OsString, Inode>,
}

/// One atomic change of one or two names.
#[derive(Clone)]
pub(super) struct NameChange {
    begun: Sequence,
    finished: Option<Sequence>,
    edits: Vec<Edit>,
}

/// A directory, a name in it, and what the name leads to from then on.
type Edit = (Inode, OsString, Option<Inode>);

impl NameChange {
    pub(super) fn new(begun: Sequence, edits: Vec<Edit>) -> NameChange {
        NameChange { begun, finished: None, edits }
    }

    fn touches(&self, keys: &BTreeSet<(Inode, OsString)>) -> bool {
        let mut edits = self.edits.iter();
        edits.any(|(directory, name, _)| keys.contains(&(*directory, name.clone())))
    }

    fn keys(&self) -> impl Iterator<Item = (Inode, OsString)> {
        let edits = self.edits.iter();
        edits.map(|(directory, name, _)| (*directory, name.clone()))
    }
}

impl Names {
    pub(super) fn add_directory(&mut self, inode: Inode) {
        self.directories.insert(inode, Directory::default());
    }

    pub(super) fn is_directory(&self, inode: Inode) -> bool {
        self.directories.contains_key(&inode)
    }

    pub(super) fn is_empty(&self, directory: Inode) -> bool {
        let found = self.directories.get(&directory);
        found.is_none_or(|directory| directory.current.is_empty())
    }

    pub(super) fn lookup(&self, directory: Inode, name: &OsStr) -> io::Result<Option<Inode>> {
        let found = self.directories.get(&directory);
        let found = found.ok_or_else(|| os(libc::ENOTDIR))?;
        Ok(found.current.get(name).copied())
    }

    pub(super) fn durable_lookup(&self, directory: Inode, name: &OsStr) -> Option<Inode> {
        let found = self.directories.get(&directory)?;
        found.durable.get(name).copied()
    }

    pub(super) fn entries(&self, directory: Inode) -> Vec<(OsString, Inode)> {
        let found = self.directories.get(&directory);
        let entries = found.into_iter().flat_map(|directory| &directory.current);
        entries.map(|(name, inode)| (name.clone(), *inode)).collect()
    }

    /// Makes a change visible; it is volatile.
    pub(super) fn apply(&mut self, change: NameChange) {
        for edit in &change.edits {
            self.edit(edit, |directory| &mut directory.current);
        }
        self.changes.push(change);
    }

    pub(super) fn finish(&mut self, begun: Sequence, now: Sequence) {
        for change in &mut self.changes {
            if change.begun == begun {
                change.finished = Some(now);
            }
        }
    }

    pub(super) fn finish_all(&mut self) {
        for change in &mut self.changes {
            change.finished = Some(change.begun);
        }
    }

    /// Makes durable what ended before `begun`, in one directory or in all, and all it builds on.
    pub(super) fn sync(&mut self, directory: Option<Inode>, begun: Sequence) {
        let mut needed = BTreeSet::new();
        let mut covered = vec![false; self.changes.len()];
        for (index, change) in self.changes.iter().enumerate().rev() {
            let here = change.edits.iter().any(|(touched, _, _)| Some(*touched) == directory);
            let ended = change.finished.is_some_and(|finished| finished <= begun);
            if (ended && (here || directory.is_none())) || change.touches(&needed) {
                covered[index] = true;
                needed.extend(change.keys());
            }
        }
        self.settle(&covered);
        let mut index = 0;
        self.changes.retain(|_| {
            index += 1;
            !covered[index - 1]
        });
    }

    /// Keeps or loses every change.
    pub(super) fn crash(&mut self, fates: &mut Fates) {
        let mut lost = BTreeSet::new();
        let mut kept = vec![false; self.changes.len()];
        for (index, change) in self.changes.iter().enumerate() {
            if change.touches(&lost) || !fates.keeps_name(change.begun) {
                lost.extend(change.keys());
            } else {
                kept[index] = true;
            }
        }
        self.settle(&kept);
        self.changes.clear();
        for directory in self.directories.values_mut() {
            directory.current = directory.durable.clone();
        }
    }

    /// Whether readers find an inode in some directory.
    pub(super) fn has_name(&self, inode: Inode) -> bool {
        let directories = self.directories.values();
        directories.flat_map(|directory| directory.current.values()).any(|named| *named == inode)
    }

    /// Inodes that readers can reach by name, `root` included.
    pub(super) fn reachable(&self, root: Inode) -> BTreeSet<Inode> {
        self.walk(root, |directory| directory.current.values().copied().collect())
    }

    /// Inodes that have, or after some crash may have, a name; `root` included.
    pub(super) fn possible(&self, root: Inode) -> BTreeSet<Inode> {
        let either = |directory: &Directory| {
            let names = directory.current.values().chain(directory.durable.values());
            names.copied().collect()
        };
        let mut found = self.walk(root, either);
        // What a change names may come back wherever the crash leaves it.
        for (_, _, inode) in self.changes.iter().flat_map(|change| &change.edits) {
            found.extend(inode.iter().flat_map(|inode| self.walk(*inode, either)));
        }
        found
    }

    /// Drops all other directories.
    pub(super) fn retain_directories(&mut self, possible: &BTreeSet<Inode>) {
        self.directories.retain(|inode, _| possible.contains(inode));
    }

    fn walk(&self, root: Inode, next: impl Fn(&Directory) -> Vec<Inode>) -> BTreeSet<Inode> {
        let mut found = BTreeSet::from([root]);
        let mut open = vec![root];
        while let Some(inode) = open.pop() {
            let children = self.directories.get(&inode).map(&next);
            for child in children.into_iter().flatten() {
                if found.insert(child) {
                    open.push(child);
                }
            }
        }
        found
    }

    fn settle(&mut self, chosen: &[bool]) {
        let changes = std::mem::take(&mut self.changes);
        for (change, chosen) in changes.iter().zip(chosen) {
            if *chosen {
                for edit in &change.edits {
                    self.edit(edit, |directory| &mut directory.durable);
                }
            }
        }
        self.changes = changes;
    }

    fn edit(
        &mut self,
        (directory, name, inode): &Edit,
        side: impl Fn(&mut Directory) -> &mut BTreeMap<OsString, Inode>,
    ) {
        // A directory that was removed durably takes no more names.
        if let Some(directory) = self.directories.get_mut(directory) {
            match inode {
                Some(inode) => side(directory).insert(name.clone(), *inode),
                None => side(directory).remove(name),
            };
        }
    }
}
