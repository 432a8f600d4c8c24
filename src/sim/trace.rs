//! A recorded run of a disk: the rules it must have kept, and the crash images cut from it.
//!
//! Owns [`Trace`] and its replay into a [`Medium`]. An operation takes effect in the replay when
//! its end was recorded; one that has begun but not ended at the cut may have happened, in part or
//! whole, as the seed says. Never does I/O.
//!
//! Rules checked by [`Trace::check_rules`]:
//! - direct writes and reads are aligned to [`BLOCK_ALIGN`];
//! - no write overlaps another write or a read in flight on the same file;
//! - a file is renamed only with its content durable;
//! - when the world outside is told something, the name of every journal file (one opened
//!   `durable` that a write to has ended on) is durable.
//!
//! [`Trace::check_clean_stop`]: after a clean stop nothing at all is volatile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::io::OpenMode;
use crate::limits::BLOCK_ALIGN;

use super::medium::{Inode, Medium, Sequence};
use super::random::Random;
use super::recording::{Call, Mark, Recorded, TraceEvent};

/// A recorded run.
#[derive(Clone)]
pub struct Trace {
    base: Medium,
    events: Vec<TraceEvent>,
}

/// A rule that a recorded run broke.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleBroken {
    /// Index of the event that broke it.
    pub event: usize,
    /// What happened.
    pub what: String,
}

impl Trace {
    /// A run of `events` on a disk that was `base`.
    #[must_use]
    pub fn new(base: Medium, events: Vec<TraceEvent>) -> Trace {
        Trace { base, events }
    }

    /// All events.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// The marks set before event `at`: what the world outside had been told by then.
    pub fn marks_before(&self, at: usize) -> impl Iterator<Item = &Mark> {
        let before = self.events.iter().take(at);
        before.filter_map(|event| match event {
            TraceEvent::Mark(mark) => Some(mark),
            TraceEvent::Begin { .. } | TraceEvent::End { .. } => None,
        })
    }

    /// Index of the last event an image can be cut at: where content was no longer kept, or the
    /// number of events.
    #[must_use]
    pub fn cuttable_end(&self) -> usize {
        self.cuttable_end_from(0, self.events.len())
    }

    /// A replay that stands before the first event; for many images, in rising order of events.
    #[must_use]
    pub fn replay(&self) -> Replay<'_> {
        Replay {
            trace: self,
            at: 0,
            medium: self.base.clone(),
            calls: BTreeMap::new(),
            handles: BTreeMap::new(),
        }
    }

    /// One state that a crash just before event `at` could have left.
    #[must_use]
    pub fn crash_image(&self, at: usize, random: &mut Random) -> Medium {
        let mut replay = self.replay();
        replay.advance_to(at);
        replay.crash_image(random)
    }

    /// Checks the rules listed above over the whole run.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check_rules(&self) -> Result<(), RuleBroken> {
        let mut replay = self.replay();
        let mut named = BTreeSet::new();
        let end = self.cuttable_end();
        for (index, event) in self.events.iter().enumerate().take(end) {
            let what = match event {
                TraceEvent::Begin { operation, .. } => replay.judge(operation),
                TraceEvent::End { .. } => None,
                TraceEvent::Mark(mark) => replay.judge_mark(mark, &mut named),
            };
            if let Some(what) = what {
                return Err(RuleBroken { event: index, what });
            }
            replay.advance_to(index + 1);
        }
        Ok(())
    }

    /// Checks that at the end of the run every file below `directory` is durable, name and data.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn check_clean_stop(&self, directory: &Path) -> Result<(), RuleBroken> {
        let mut replay = self.replay();
        let event = self.cuttable_end();
        replay.advance_to(event);
        let broken = |what: String| RuleBroken { event, what };
        let entries = replay.medium.list(directory, true, &[]);
        for entry in entries.map_err(|error| broken(error.to_string()))? {
            let path = directory.join(&entry.path);
            if !replay.medium.is_name_durable(&path).unwrap_or(false) {
                return Err(broken(format!("the name {} is not durable", path.display())));
            }
            if !replay.medium.is_data_durable(&path).unwrap_or(false) {
                return Err(broken(format!("{} is not synced", path.display())));
            }
        }
        Ok(())
    }
}

/// A replay of a trace up to some event.
#[derive(Clone)]
pub struct Replay<'a> {
    trace: &'a Trace,
    at: usize,
    medium: Medium,
    calls: BTreeMap<u64, (&'a Call, Begun)>,
    handles: BTreeMap<u64, Handle>,
}

#[derive(Clone)]
struct Handle {
    inode: Inode,
    path: PathBuf,
    durable: bool,
    written: bool,
}

/// What the begin of an operation did to the medium.
#[derive(Clone, Copy)]
enum Begun {
    Nothing,
    At(Sequence),
}

impl Replay<'_> {
    /// Index of the next event.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The disk as its readers see it here, operations in flight not counted.
    #[must_use]
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Replays up to, not including, event `end`; never backwards.
    pub fn advance_to(&mut self, end: usize) {
        assert!(end >= self.at, "a replay runs forward only");
        let end = self.trace.cuttable_end_from(self.at, end);
        while self.at < end {
            match &self.trace.events[self.at] {
                TraceEvent::Begin { call, operation } => {
                    let begun = self.begin(operation);
                    self.calls.insert(*call, (operation, begun));
                }
                TraceEvent::End { call, succeeded } => {
                    if let Some((operation, begun)) = self.calls.remove(call) {
                        self.end(*call, operation, begun, *succeeded);
                    }
                }
                TraceEvent::Mark(_) => {}
            }
            self.at += 1;
        }
    }

    /// One state that a crash here could leave.
    #[must_use]
    pub fn crash_image(&self, random: &mut Random) -> Medium {
        let mut replay = self.clone();
        for (operation, begun) in self.calls.values() {
            if matches!(begun, Begun::Nothing) && random.chance(1, 2) {
                // An error here means that it could not have happened yet.
                let _ = replay.apply(operation);
            }
        }
        replay.medium.crash(random)
    }

    fn begin(&mut self, operation: &Call) -> Begun {
        match operation {
            Call::Write { handle, position, content } => match self.handles.get(handle) {
                Some(handle) => {
                    let bytes = bytes_of(content);
                    Begun::At(self.medium.begin_write(handle.inode, *position, &bytes))
                }
                None => Begun::Nothing,
            },
            Call::SyncData { .. } | Call::SyncDirectory { .. } | Call::SyncFilesystem => {
                Begun::At(self.medium.begin_sync())
            }
            _ => Begun::Nothing,
        }
    }

    fn end(&mut self, call: u64, operation: &Call, begun: Begun, succeeded: bool) {
        match (operation, begun) {
            (Call::Write { handle, .. }, Begun::At(write)) => {
                let Some(handle) = self.handles.get_mut(handle) else {
                    return;
                };
                if succeeded {
                    handle.written = true;
                    self.medium.finish_write(handle.inode, write, handle.durable);
                } else {
                    let mut random = Random::new(call);
                    self.medium.fail_write(handle.inode, write, &mut random);
                }
            }
            (Call::SyncData { handle }, Begun::At(begun)) => {
                if let Some(handle) = self.handles.get(handle) {
                    self.medium.finish_sync_data(handle.inode, begun, succeeded);
                }
            }
            (Call::SyncDirectory { path }, Begun::At(begun)) => {
                if let Ok(inode) = self.medium.resolve(path)
                    && succeeded
                {
                    self.medium.finish_sync_directory(inode, begun);
                }
            }
            (Call::SyncFilesystem, Begun::At(begun)) => {
                self.medium.finish_sync_filesystem(begun, succeeded);
            }
            _ if succeeded => {
                let applied = self.apply(operation);
                assert!(
                    applied.is_ok(),
                    "event {}: {operation:?} succeeded but replays as {applied:?}",
                    self.at
                );
                self.finish_applied(operation, applied.ok());
            }
            _ => {}
        }
    }

    /// Applies an operation that has no begin of its own, volatile and unfinished.
    fn apply(&mut self, operation: &Call) -> io::Result<Applied> {
        let applied = match operation {
            Call::Open { path, mode, handle } => {
                let (inode, sequence) = self.medium.open(path, *mode)?;
                let handle_state =
                    Handle { inode, path: path.clone(), durable: mode.durable, written: false };
                self.handles.insert(*handle, handle_state);
                Applied::Opened(inode, sequence)
            }
            Call::Allocate { handle, range } => {
                if let Some(handle) = self.handles.get(handle) {
                    self.medium.allocate(handle.inode, range.clone());
                }
                Applied::Nothing
            }
            Call::SetLength { handle, length } => match self.handles.get(handle) {
                Some(handle) => {
                    let change = self.medium.begin_set_length(handle.inode, *length);
                    Applied::Length(handle.inode, change)
                }
                None => Applied::Nothing,
            },
            Call::Close { handle } => {
                if let Some(handle) = self.handles.remove(handle) {
                    self.medium.close(handle.inode);
                }
                Applied::Nothing
            }
            Call::WriteWhole { path, content, append } => {
                let mode = OpenMode {
                    write: true,
                    create: true,
                    truncate: !append,
                    ..OpenMode::default()
                };
                let (inode, sequence) = self.medium.open(path, mode)?;
                let position = self.medium.length(inode);
                let bytes = bytes_of(content);
                let write = match bytes.is_empty() {
                    true => None,
                    false => Some(self.medium.begin_write(inode, position, &bytes)),
                };
                Applied::Whole(inode, sequence, write)
            }
            Call::CreateDirectory { path } => Applied::Names(self.medium.create_directory(path)?),
            Call::Rename { from, to } => Applied::Names(self.medium.rename(from, to)?),
            Call::Remove { path } => Applied::Names(self.medium.remove(path)?),
            Call::RemoveTree { path } => Applied::Names(self.medium.remove_tree(path)?),
            _ => Applied::Nothing,
        };
        Ok(applied)
    }

    fn finish_applied(&mut self, operation: &Call, applied: Option<Applied>) {
        match applied {
            Some(Applied::Opened(inode, sequence)) => self.medium.finish_open(inode, sequence),
            Some(Applied::Length(inode, change)) => self.medium.finish_set_length(inode, change),
            Some(Applied::Names(sequence)) => {
                self.medium.finish_names(sequence);
                if let Call::Rename { from, to } = operation {
                    self.follow_rename(from, to);
                }
            }
            Some(Applied::Whole(inode, sequence, write)) => {
                self.medium.finish_open(inode, sequence);
                if let Some(write) = write {
                    self.medium.finish_write(inode, write, false);
                }
                let begun = self.medium.begin_sync();
                self.medium.finish_sync_data(inode, begun, true);
                self.medium.close(inode);
            }
            Some(Applied::Nothing) | None => {}
        }
    }

    fn follow_rename(&mut self, from: &Path, to: &Path) {
        for handle in self.handles.values_mut() {
            if let Ok(below) = handle.path.strip_prefix(from) {
                handle.path = match below.as_os_str().is_empty() {
                    true => to.to_owned(),
                    false => to.join(below),
                };
            }
        }
    }

    /// What rule the begin of an operation breaks.
    fn judge(&self, operation: &Call) -> Option<String> {
        match operation {
            Call::Write { handle, position, content } => {
                let range = *position..position.saturating_add(content.len() as u64);
                let unaligned = judge_alignment("write", &range);
                unaligned.or_else(|| self.judge_overlap("write", *handle, &range, true))
            }
            Call::Read { handle, range } => {
                let unaligned = judge_alignment("read", range);
                unaligned.or_else(|| self.judge_overlap("read", *handle, range, false))
            }
            Call::Rename { from, .. } => match self.medium.is_data_durable(from) {
                Ok(false) => {
                    Some(format!("{} is renamed before its content is durable", from.display()))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn judge_overlap(
        &self,
        what: &str,
        handle: u64,
        range: &Range<u64>,
        is_write: bool,
    ) -> Option<String> {
        let handle = self.handles.get(&handle)?;
        self.calls.values().find_map(|(operation, _)| {
            let (other, their_range, other_is_write) = match operation {
                Call::Write { handle, position, content } => {
                    (handle, *position..position + content.len() as u64, true)
                }
                Call::Read { handle, range } => (handle, range.clone(), false),
                _ => return None,
            };
            let same = self.handles.get(other)?.inode == handle.inode;
            let meets = range.start < their_range.end && their_range.start < range.end;
            (same && meets && (is_write || other_is_write)).then(|| {
                format!(
                    "a {what} of {range:?} of {} meets {their_range:?} in flight",
                    handle.path.display()
                )
            })
        })
    }

    /// What rule is broken by telling the world something now; `named` remembers what is fine.
    fn judge_mark(&self, mark: &Mark, named: &mut BTreeSet<Inode>) -> Option<String> {
        for handle in self.handles.values() {
            if !handle.durable || !handle.written || named.contains(&handle.inode) {
                continue;
            }
            // A file that was removed or replaced promises nothing.
            if self.medium.resolve(&handle.path).ok() != Some(handle.inode) {
                continue;
            }
            if !self.medium.is_name_durable(&handle.path).unwrap_or(false) {
                return Some(format!(
                    "{} {} {} while the name {} is not durable",
                    mark.kind,
                    mark.subject,
                    mark.value,
                    handle.path.display()
                ));
            }
            named.insert(handle.inode);
        }
        None
    }
}

impl Trace {
    /// The first event in `from..to` whose content was dropped, or `to`.
    fn cuttable_end_from(&self, from: usize, to: usize) -> usize {
        let to = to.min(self.events.len());
        let dropped = |event: &TraceEvent| match event {
            TraceEvent::Begin { operation, .. } => operation.is_dropped(),
            TraceEvent::End { .. } | TraceEvent::Mark(_) => false,
        };
        let found = self.events[from..to].iter().position(dropped);
        found.map_or(to, |index| from + index)
    }
}

impl Call {
    fn is_dropped(&self) -> bool {
        match self {
            Call::Write { content, .. } | Call::WriteWhole { content, .. } => {
                matches!(content, Recorded::Dropped(_))
            }
            _ => false,
        }
    }
}

impl fmt::Display for RuleBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what)
    }
}

impl std::error::Error for RuleBroken {}

/// What an applied operation still has to end.
#[derive(Debug)]
enum Applied {
    Nothing,
    Opened(Inode, Sequence),
    Length(Inode, Sequence),
    Names(Sequence),
    Whole(Inode, Sequence, Option<Sequence>),
}

fn judge_alignment(what: &str, range: &Range<u64>) -> Option<String> {
    let unit = BLOCK_ALIGN as u64;
    let aligned = range.start.is_multiple_of(unit) && range.end.is_multiple_of(unit);
    (!aligned).then(|| format!("an unaligned {what} of {range:?}"))
}

fn bytes_of(content: &Recorded) -> Vec<u8> {
    match content {
        Recorded::Bytes(bytes) => bytes.to_vec(),
        Recorded::Zeroes(length) | Recorded::Dropped(length) => vec![0; *length],
    }
}

#[cfg(test)]
mod tests;
