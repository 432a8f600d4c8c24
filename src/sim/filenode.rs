//! One simulated file: durable bytes, what readers see, and the sectors in the write cache.
//!
//! Owns the rules of data durability of one file, and [`Fates`], the draw that decides what one
//! crash keeps. Must never let a sector be anything but one of the versions written to it since
//! the last durable one, or that one.
//!
//! Invariant: reads and writes in flight on one file do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::content::{Content, Extents, PAGE_BYTES};
use super::medium::Sequence;
use super::random::{Random, fold};

/// The smallest unit that a medium writes whole.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A file.
#[derive(Clone, Default)]
pub(super) struct FileNode {
    /// What readers see.
    pub(super) current: Content,
    /// Handles open.
    pub(super) open_count: u32,
    /// Disk space held.
    pub(super) extents: Extents,
    durable: Content,
    versions: BTreeMap<u64, Vec<Version>>,
    lengths: Vec<LengthChange>,
    writes: BTreeMap<Sequence, (u64, Bytes)>,
    reads: BTreeMap<Sequence, Range<u64>>,
}

/// One sector of one write that is not durable for certain.
#[derive(Clone)]
struct Version {
    write: Sequence,
    finished: Option<Sequence>,
    stuck: bool,
    bytes: Bytes,
    /// Index of this sector in its write, and their number: a torn write has a prefix.
    index: u32,
    count: u32,
}

#[derive(Clone)]
struct LengthChange {
    begun: Sequence,
    finished: Option<Sequence>,
    stuck: bool,
    to: Length,
}

#[derive(Clone, Copy)]
enum Length {
    /// A write went up to here.
    AtLeast(u64),
    /// The file was set to exactly this.
    Exactly(u64),
}

impl FileNode {
    pub(super) fn begin_write(&mut self, write: Sequence, position: u64, bytes: &[u8]) {
        let range = position..position + bytes.len() as u64;
        self.assert_apart(&range, "write", true);
        let bytes = Bytes::copy_from_slice(bytes);
        let page = PAGE_BYTES as u64;
        let blocks = range.start / page * page..range.end.next_multiple_of(page);
        self.extents.add(&blocks);
        if range.end > self.current.length() {
            self.push_length(write, Length::AtLeast(range.end));
        }
        let first = range.start / SECTOR_BYTES;
        let count = range.end.div_ceil(SECTOR_BYTES) - first;
        for index in 0..count {
            let version = Version {
                write,
                finished: None,
                stuck: false,
                bytes: self.sector_of_write(first + index, position, &bytes),
                index: index as u32,
                count: count as u32,
            };
            self.versions.entry(first + index).or_default().push(version);
        }
        self.writes.insert(write, (position, bytes));
    }

    pub(super) fn finish_write(&mut self, write: Sequence, now: Sequence, durable: bool) {
        let (position, bytes) = self.take_write(write);
        let end = position + bytes.len() as u64;
        self.current.extend_to(end);
        self.current.write(position, &bytes);
        self.finish(write, position, end, now);
        if durable {
            self.make_durable(write, position, end);
        }
    }

    pub(super) fn fail_write(&mut self, write: Sequence, now: Sequence, random: &mut Random) {
        let (position, bytes) = self.take_write(write);
        let end = position + bytes.len() as u64;
        // A failed write leaves the length alone, and any of its sectors below it.
        for (index, sector) in bytes.chunks(SECTOR_BYTES as usize).enumerate() {
            if random.chance(1, 2) {
                self.current.write(position + index as u64 * SECTOR_BYTES, sector);
            }
        }
        self.finish(write, position, end, now);
        for versions in self.versions_of(position, end) {
            for version in versions.iter_mut().filter(|version| version.write == write) {
                version.stuck = true;
            }
        }
        self.lengths.retain(|change| change.begun != write);
    }

    pub(super) fn begin_read(&mut self, read: Sequence, range: Range<u64>) {
        self.assert_apart(&range, "read", false);
        self.reads.insert(read, range);
    }

    pub(super) fn finish_read(&mut self, read: Sequence) -> Vec<u8> {
        let range = self.reads.remove(&read);
        self.current.read(range.expect("invariant: a read ends once"))
    }

    pub(super) fn set_length(&mut self, change: Sequence, length: u64) {
        self.assert_apart(&(length..u64::MAX), "cut", true);
        self.current.set_length(length);
        self.extents.cut(length.next_multiple_of(PAGE_BYTES as u64));
        self.push_length(change, Length::Exactly(length));
    }

    pub(super) fn finish_set_length(&mut self, change: Sequence, now: Sequence) {
        for length in self.lengths.iter_mut().filter(|length| length.begun == change) {
            length.finished = Some(now);
        }
    }

    /// Makes durable what ended before `begun`, or, if the sync failed, gives it up for good.
    pub(super) fn sync(&mut self, begun: Sequence, succeeded: bool) {
        let covered = |finished: Option<Sequence>| finished.is_some_and(|at| at <= begun);
        if !succeeded {
            let versions = self.versions.values_mut().flatten();
            for version in versions.filter(|version| covered(version.finished)) {
                version.stuck = true;
            }
            for change in self.lengths.iter_mut().filter(|change| covered(change.finished)) {
                change.stuck = true;
            }
            return;
        }
        self.settle_lengths(|change| covered(change.finished) && !change.stuck);
        let mut settled = Vec::new();
        self.versions.retain(|&sector, versions| {
            let is_covered = |version: &Version| covered(version.finished) && !version.stuck;
            if let Some(last) = versions.iter().rposition(is_covered) {
                settled.push((sector, versions[last].bytes.clone()));
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
        for (sector, bytes) in settled {
            self.durable.write(sector * SECTOR_BYTES, &bytes);
        }
    }

    /// Makes everything durable as readers see it.
    pub(super) fn settle(&mut self) {
        assert!(self.writes.is_empty(), "settled with a write in flight");
        self.durable = self.current.clone();
        self.versions.clear();
        self.lengths.clear();
        self.open_count = 0;
    }

    /// Ends everything in flight, each write in part or whole, and closes the handles.
    pub(super) fn abandon(&mut self, now: Sequence, random: &mut Random) {
        let writes: Vec<Sequence> = self.writes.keys().copied().collect();
        for write in writes {
            match random.chance(1, 2) {
                true => self.finish_write(write, now, false),
                false => self.fail_write(write, now, random),
            }
        }
        for change in &mut self.lengths {
            change.finished.get_or_insert(now);
        }
        self.reads.clear();
        self.open_count = 0;
    }

    /// Whether nothing of it is volatile.
    pub(super) fn is_clean(&self) -> bool {
        self.versions.is_empty() && self.lengths.is_empty()
    }

    /// Whether a read or write is in flight.
    pub(super) fn is_busy(&self) -> bool {
        !self.writes.is_empty() || !self.reads.is_empty()
    }

    /// Holds exactly `bytes`, durable.
    pub(super) fn load(&mut self, bytes: &[u8]) {
        self.current = Content::default();
        self.current.extend_to(bytes.len() as u64);
        self.current.write(0, bytes);
        self.extents.cut(0);
        self.extents.add(&(0..(bytes.len() as u64).next_multiple_of(PAGE_BYTES as u64)));
        self.durable = self.current.clone();
        self.versions.clear();
        self.lengths.clear();
    }

    pub(super) fn corrupt(&mut self, position: u64, bytes: &[u8]) {
        self.current.write(position, bytes);
        self.durable.write(position, bytes);
    }

    /// Leaves one of the states a crash may leave, durable and visible.
    pub(super) fn crash(&mut self, fates: &mut Fates) {
        let mut content = self.durable.clone();
        let kept = fates.prefix(self.lengths.len());
        let lost = self.lengths.split_off(kept);
        let kept = std::mem::take(&mut self.lengths);
        for change in &kept {
            change.to.apply(&mut content);
        }
        for (&sector, versions) in &self.versions {
            let position = sector * SECTOR_BYTES;
            let end = position + SECTOR_BYTES;
            let cut_by = |change: &&LengthChange| change.to.cuts(end);
            // A kept cut hides what was written before it, a lost one what was written after.
            let from = kept.iter().rev().find(cut_by).map_or(0, |change| change.begun);
            let until = lost.iter().find(cut_by).map_or(Sequence::MAX, |change| change.begun);
            let survivor = versions.iter().rev().find(|version| {
                let possible = version.write > from && version.write < until;
                possible && fates.keeps_sector(version.write, version.index, version.count)
            });
            if let Some(version) = survivor {
                content.write(position, &version.bytes);
            }
        }
        self.current = content.clone();
        self.durable = content;
        self.versions.clear();
        self.writes.clear();
        self.reads.clear();
        self.open_count = 0;
        self.extents.cut(self.current.length().next_multiple_of(PAGE_BYTES as u64));
    }

    /// A sector of a write; what the write does not fill is as readers see it.
    fn sector_of_write(&self, sector: u64, position: u64, bytes: &Bytes) -> Bytes {
        let start = sector * SECTOR_BYTES;
        let end = start + SECTOR_BYTES;
        let write_end = position + bytes.len() as u64;
        if position <= start && end <= write_end {
            let from = (start - position) as usize;
            return bytes.slice(from..from + SECTOR_BYTES as usize);
        }
        let mut whole = self.current.read(start..end);
        whole.resize(SECTOR_BYTES as usize, 0);
        let (from, to) = (start.max(position), end.min(write_end));
        whole[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&bytes[(from - position) as usize..(to - position) as usize]);
        whole.into()
    }

    fn take_write(&mut self, write: Sequence) -> (u64, Bytes) {
        let taken = self.writes.remove(&write);
        taken.expect("invariant: a write ends once")
    }

    fn finish(&mut self, write: Sequence, position: u64, end: u64, now: Sequence) {
        for versions in self.versions_of(position, end) {
            for version in versions.iter_mut().filter(|version| version.write == write) {
                version.finished = Some(now);
            }
        }
        for change in self.lengths.iter_mut().filter(|change| change.begun == write) {
            change.finished = Some(now);
        }
    }

    fn versions_of(&mut self, position: u64, end: u64) -> impl Iterator<Item = &mut Vec<Version>> {
        let sectors = position / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        self.versions.range_mut(sectors).map(|(_, versions)| versions)
    }

    fn make_durable(&mut self, write: Sequence, position: u64, end: u64) {
        // Bytes can only be durable at a place the file durably has.
        let is_short = self.durable.length() < end;
        let is_cut = self.lengths.iter().any(|change| change.to.cuts(end));
        self.settle_lengths(|change| {
            let is_visible = change.finished.is_some() || matches!(change.to, Length::Exactly(_));
            let earlier = change.begun < write && is_visible;
            change.begun == write || (earlier && (is_short || is_cut))
        });
        assert!(
            self.durable.length() >= end,
            "durable bytes up to {end} beyond the durable length"
        );
        for sector in position / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let Some(mut versions) = self.versions.remove(&sector) else {
                continue;
            };
            if let Some(own) = versions.iter().position(|version| version.write == write) {
                self.durable.write(sector * SECTOR_BYTES, &versions[own].bytes);
                versions.drain(..=own);
            }
            if !versions.is_empty() {
                self.versions.insert(sector, versions);
            }
        }
    }

    fn settle_lengths(&mut self, chosen: impl Fn(&LengthChange) -> bool) {
        let changes = std::mem::take(&mut self.lengths);
        for change in &changes {
            if !chosen(change) {
                continue;
            }
            change.to.apply(&mut self.durable);
            if let Length::Exactly(length) = change.to {
                self.drop_versions_from(length, change.begun);
            }
        }
        // A cut that is durable has the last word over every change before it, even one that a
        // failed sync has left in between.
        let is_cut = |change: &&LengthChange| matches!(change.to, Length::Exactly(_));
        let cuts = changes.iter().filter(is_cut).filter(|change| chosen(change));
        let newest_cut = cuts.map(|change| change.begun).max().unwrap_or(0);
        self.lengths = changes;
        self.lengths
            .retain(|change| !chosen(change) && change.begun >= newest_cut);
    }

    /// Drops versions older than a durable cut; the sector it goes through keeps its front.
    fn drop_versions_from(&mut self, length: u64, before: Sequence) {
        for (&sector, versions) in self.versions.range_mut(length / SECTOR_BYTES..) {
            let start = sector * SECTOR_BYTES;
            versions.retain_mut(|version| {
                if version.write < before && start < length {
                    let mut bytes = version.bytes.to_vec();
                    bytes[(length - start) as usize..].fill(0);
                    version.bytes = bytes.into();
                }
                version.write > before || start < length
            });
        }
        self.versions.retain(|_, versions| !versions.is_empty());
    }

    fn push_length(&mut self, begun: Sequence, to: Length) {
        self.lengths.push(LengthChange { begun, finished: None, stuck: false, to });
    }

    fn assert_apart(&self, range: &Range<u64>, what: &str, is_write: bool) {
        for (position, bytes) in self.writes.values() {
            let other = *position..*position + bytes.len() as u64;
            assert!(
                range.end <= other.start || other.end <= range.start,
                "{what} of {range:?} meets a write of {other:?} in flight"
            );
        }
        for other in self.reads.values().filter(|_| is_write) {
            assert!(
                range.end <= other.start || other.end <= range.start,
                "{what} of {range:?} meets a read of {other:?} in flight"
            );
        }
    }
}

impl Length {
    fn apply(self, content: &mut Content) {
        match self {
            Length::AtLeast(length) => content.extend_to(length),
            Length::Exactly(length) => content.set_length(length),
        }
    }

    /// Whether it removes bytes before `end`.
    fn cuts(self, end: u64) -> bool {
        matches!(self, Length::Exactly(length) if length < end)
    }
}

/// What one crash does to what is volatile. Not a fair coin per sector: such a crash would never
/// keep or lose a whole write, and those are the states that hide bugs.
pub(super) struct Fates {
    random: Random,
    salt: u64,
    mood: Mood,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    LoseAll,
    KeepAll,
    Mixed,
}

impl Fates {
    pub(super) fn draw(random: &mut Random) -> Fates {
        let mood = match random.below(8) {
            0 => Mood::LoseAll,
            1 => Mood::KeepAll,
            _ => Mood::Mixed,
        };
        Fates { salt: random.next(), random: random.fork(), mood }
    }

    /// Whether a change of names made at `begun` is kept.
    pub(super) fn keeps_name(&mut self, _begun: Sequence) -> bool {
        match self.mood {
            Mood::LoseAll => false,
            Mood::KeepAll => true,
            Mood::Mixed => self.random.chance(1, 2),
        }
    }

    /// How many of `count` ordered changes are kept.
    fn prefix(&mut self, count: usize) -> usize {
        match self.mood {
            Mood::LoseAll => 0,
            Mood::KeepAll => count,
            Mood::Mixed => self.random.index(count + 1),
        }
    }

    /// Whether one sector of a write reached the medium. The write as a whole is lost, kept, torn
    /// in front or at the back, or a random mix.
    fn keeps_sector(&mut self, write: Sequence, index: u32, count: u32) -> bool {
        if self.mood != Mood::Mixed {
            return self.mood == Mood::KeepAll;
        }
        let mut fate = Random::new(fold(self.salt, write));
        let kind = fate.below(5);
        let torn_at = fate.below(u64::from(count) + 1);
        match kind {
            0 => false,
            1 => true,
            2 => u64::from(index) < torn_at,
            3 => u64::from(index) >= torn_at,
            _ => self.random.chance(1, 2),
        }
    }
}
