//! Recovery of one partition: judge and cut its files, apply its journal entries, keep evidence.
//!
//! Owns the decisions of one partition and the new segments that replayed batches go to: bytes of
//! earlier boots are cut at the synced end and never written again. Must never apply an entry that
//! does not fit exactly at the log's end, and never drop one without the operator's consent.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use crate::batch::BatchHeader;
use crate::ids::{Offset, PartitionIndex, TopicId};
use crate::io::{Disk, OpenMode};
use crate::journal::image::{OfflineRow, PartitionRow};
use crate::journal::manifest;
use crate::journal::replay::Replayed;
use crate::journal::stranded::{self, StrandedEntry, StrandedReader};
use crate::log::aborted::AbortedIndex;
use crate::log::epochs::EpochHistory;
use crate::log::layout::{self, SegmentFile};
use crate::log::producers::Producers;
use crate::log::segments::{ActiveSegment, PlacedBatch, SegmentRules};
use crate::shard::RecoveredPartition;
use crate::tools::batches::{Batches, Piece};

use super::builder::Builder;
use super::directories::PartitionFiles;

/// What recovery of a partition follows.
pub struct Rules {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Name of the topic.
    pub topic: String,
    /// `topic-0`, for messages.
    pub name: String,
    /// Whether the operator accepts that records of this partition are lost.
    pub accepts_loss: bool,
    /// The last boot synced everything; otherwise its last sync may have failed.
    pub stopped_cleanly: bool,
    /// When new segments roll.
    pub segments: SegmentRules,
    /// Wall clock now.
    pub now_ms: i64,
    /// How long an idle producer is remembered.
    pub producer_expiration_ms: i64,
}

/// A partition on its way back.
pub struct PartitionRecovery {
    rules: Rules,
    row: PartitionRow,
    directory: Option<PathBuf>,
    segments: Vec<(Offset, u64)>,
    next: Offset,
    epochs: EpochHistory,
    producers: Producers,
    offline: Option<String>,
    /// What is in the stranded file already, as far as the image vouches for it.
    stranded_before: Vec<u8>,
    stranded_new: Vec<u8>,
    stranded_applied: bool,
    dropped_batches: u64,
    builder: Option<Builder>,
    /// What was found, where its trusted part ends, and the log start that it was judged by.
    files: PartitionFiles,
    found_end: Offset,
    judged_start: Offset,
    /// Files of segments below the log start.
    unlinked: Vec<PathBuf>,
    notes: Vec<String>,
}

/// What recovery of a partition leaves.
pub struct Outcome {
    /// The partition.
    pub partition: RecoveredPartition,
    /// What an operator should know.
    pub notes: Vec<String>,
    /// Files that nothing needs once what recovery found is durable: what is below the log start,
    /// and a stranded file whose entries are in segments now.
    pub done_with: Vec<PathBuf>,
}

impl PartitionRecovery {
    /// Judges the partition's files against its row and cuts them at the synced end. `untrusted`
    /// says that its row is lost with a damaged image.
    pub async fn open(
        disk: &Rc<dyn Disk>,
        rules: Rules,
        row: PartitionRow,
        files: Option<PartitionFiles>,
        untrusted: bool,
    ) -> io::Result<PartitionRecovery> {
        let expiration_ms = rules.producer_expiration_ms;
        let mut partition = PartitionRecovery {
            directory: files.as_ref().map(|files| files.path.clone()),
            segments: Vec::new(),
            next: row.synced_end,
            epochs: EpochHistory::from_entries(row.epochs.iter().copied()),
            producers: Producers::from_rows(&row.producers, expiration_ms),
            offline: None,
            stranded_before: Vec::new(),
            stranded_new: Vec::new(),
            stranded_applied: false,
            dropped_batches: 0,
            builder: None,
            files: PartitionFiles::default(),
            found_end: if untrusted { Offset(i64::MAX) } else { row.synced_end },
            judged_start: row.log_start,
            unlinked: Vec::new(),
            notes: Vec::new(),
            rules,
            row,
        };
        let mut files = files.unwrap_or_default();
        partition.segments = files
            .files
            .iter()
            .filter(|((_, kind), _)| *kind == SegmentFile::Log)
            .map(|((base, _), length)| (*base, *length))
            .collect();
        partition.pass_over_deleted(&mut files);
        let fault = if untrusted {
            Some("the checkpoint image that vouched for it is damaged".to_owned())
        } else {
            partition.missing()
        };
        match fault {
            None => {
                partition.cut(disk, &files).await?;
                partition.check_aborted(disk, &files).await?;
            }
            Some(why) if partition.rules.accepts_loss => {
                partition.keep_what_is_whole(disk, &files, &why).await?;
            }
            Some(why) => partition.go_offline(&why),
        }
        partition.files = files;
        partition.take_stranded(disk).await?;
        Ok(partition)
    }

    /// Appends a batch of another broker's log, whole and checked. Compaction has left gaps there:
    /// it may begin anywhere at or above the log's end.
    pub async fn adopt(
        &mut self,
        disk: &Rc<dyn Disk>,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> io::Result<()> {
        assert!(header.base_offset >= self.next, "batches are adopted in order");
        // Nobody knows when it was appended; Kafka has producers expire by it, too.
        self.append(disk, header, bytes, header.max_timestamp).await
    }

    /// The log ends at `end`, if not beyond: what was there is compacted away.
    pub fn end_at(&mut self, end: Offset) {
        self.next = self.next.max(end);
    }

    /// Whether something is missing or does not fit.
    pub fn is_offline(&self) -> bool {
        self.offline.is_some()
    }

    /// Another attempt begins with the same files.
    pub async fn give_up(self) {
        if let Some(builder) = self.builder {
            builder.give_up().await;
        }
    }

    /// The log's end so far.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// The epochs known so far.
    pub fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    /// What lies wholly below the log start was on its way off the disk: some of it may be gone
    /// already. The rest goes once the log start that is known now is durable in a new image: the
    /// entry that moved it may be lost by a power failure until then. Nothing at or above the
    /// synced end is named here: new segments may get those names.
    fn pass_over_deleted(&mut self, files: &mut PartitionFiles) {
        let (log_start, end) = (self.row.log_start, self.found_end);
        let bases = self.segments.iter().map(|(base, _)| *base);
        let ends = bases.clone().skip(1).chain([end]);
        let kept: Vec<Offset> =
            bases.zip(ends).filter(|(_, end)| *end > log_start).map(|(base, _)| base).collect();
        let is_deleted =
            |base: Offset| base < log_start.min(end) && kept.binary_search(&base).is_err();
        self.segments.retain(|(base, _)| !is_deleted(*base));
        for (base, kind) in files.files.keys().filter(|(base, _)| is_deleted(*base)) {
            self.unlinked.push(files.path.join(kind.name(*base)));
        }
        files.files.retain(|(base, _), _| !is_deleted(*base));
    }

    /// What the files lack of what the row says was synced.
    fn missing(&self) -> Option<String> {
        let row = &self.row;
        if row.synced_end <= row.log_start {
            return None;
        }
        let last = self.segments.iter().find(|(base, _)| *base == row.segment_base);
        match last {
            None => return Some(format!("segment {} is missing", row.segment_base)),
            Some((base, length)) if *length < row.segment_bytes => {
                return Some(format!(
                    "segment {base} has {length} bytes, {} were synced",
                    row.segment_bytes
                ));
            }
            Some(_) => {}
        }
        match self.segments.first() {
            Some((base, _)) if *base > row.log_start => Some(format!(
                "the segments before {base} are missing, the log starts at {}",
                row.log_start
            )),
            _ => None,
        }
    }

    /// Nothing beyond the synced end is trusted.
    async fn cut(&mut self, disk: &Rc<dyn Disk>, files: &PartitionFiles) -> io::Result<()> {
        let row = &self.row;
        let nothing_synced = row.synced_end == Offset(0);
        for ((base, kind), length) in &files.files {
            let path = files.path.join(kind.name(*base));
            // The empty segment of a log of which nothing is left, for Kafka's tools.
            let is_empty_end = *length == 0 && *base == row.synced_end && *base > row.segment_base;
            let keep = match kind {
                _ if is_empty_end => Some(0),
                SegmentFile::Snapshot => (*base <= row.synced_end).then_some(*length),
                _ if nothing_synced || *base > row.segment_base => None,
                _ if *base < row.segment_base => Some(*length),
                SegmentFile::Log => Some(row.segment_bytes),
                SegmentFile::Index => Some(u64::from(row.index_bytes)),
                SegmentFile::TimeIndex => Some(u64::from(row.time_index_bytes)),
                SegmentFile::TransactionIndex => Some(u64::from(row.transaction_index_bytes)),
            };
            // A length that a failed sync has lost is still there to read: it is set once more.
            let may_lose = *base == row.segment_base || is_empty_end;
            let set_again = may_lose && !self.rules.stopped_cleanly;
            match keep {
                None => disk.remove(&path).await?,
                Some(kept) if kept < *length || set_again && kept == *length => {
                    let mode = OpenMode { write: true, ..OpenMode::default() };
                    let file = disk.open(&path, mode).await?;
                    file.set_length(kept).await?;
                    file.close().await?;
                }
                Some(_) => {}
            }
        }
        self.segments.retain(|(base, _)| !nothing_synced && *base <= row.segment_base);
        if let Some(last) = self.segments.last_mut()
            && last.0 == row.segment_base
        {
            last.1 = row.segment_bytes;
        }
        Ok(())
    }

    /// A part of the index of aborted transactions that is missing would show their records to
    /// readers of committed ones: it is made again from the segments. Where the partition went
    /// offline it may have been the index that could not be written: then the file's length says
    /// nothing, and there is nothing to be told.
    async fn check_aborted(
        &mut self,
        disk: &Rc<dyn Disk>,
        files: &PartitionFiles,
    ) -> io::Result<()> {
        let (base, kind) = (self.row.segment_base, SegmentFile::TransactionIndex);
        let wanted = u64::from(self.row.transaction_index_bytes);
        let mut length = files.files.get(&(base, kind)).copied().unwrap_or(0);
        let was_offline = self.row.offline.is_some();
        if was_offline && length > 0 && wanted > 0 {
            let path = files.path.join(kind.name(base));
            let mut content = disk.read(&path).await?;
            content.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            length = u64::from(AbortedIndex::decode(&content).bytes());
            if length == wanted {
                // A write that failed may show what it wrote, and yet lose it later.
                disk.write_unsynced(&path, &content).await?;
            }
        }
        if length >= wanted || self.segments.is_empty() {
            return Ok(());
        }
        self.rebuild_aborted(disk, files).await?;
        if was_offline {
            return Ok(());
        }
        self.notes.push(format!(
            "{}: its index of aborted transactions was incomplete and is made again",
            self.rules.name
        ));
        Ok(())
    }

    /// Writes the index of aborted transactions of every segment anew; returns the producers at
    /// the end, as the segments show them.
    async fn rebuild_aborted(
        &mut self,
        disk: &Rc<dyn Disk>,
        files: &PartitionFiles,
    ) -> io::Result<Producers> {
        let mut producers = Producers::new(self.rules.producer_expiration_ms);
        let mut aborted = AbortedIndex::default();
        for &(base, bytes) in &self.segments {
            let path = files.path.join(SegmentFile::Log.name(base));
            let now_ms = self.rules.now_ms;
            aborted = scan_transactions(disk, &path, bytes, &mut producers, now_ms).await?;
            let kind = SegmentFile::TransactionIndex;
            let path = files.path.join(kind.name(base));
            if !aborted.entries().is_empty() {
                disk.write_unsynced(&path, &aborted.encode()).await?;
            } else if files.files.contains_key(&(base, kind)) {
                disk.remove(&path).await?;
            }
        }
        self.row.transaction_index_bytes = aborted.bytes();
        Ok(producers)
    }

    /// The operator accepts the loss: keeps the batches that are whole and follow each other.
    async fn keep_what_is_whole(
        &mut self,
        disk: &Rc<dyn Disk>,
        files: &PartitionFiles,
        why: &str,
    ) -> io::Result<()> {
        let expected_end = self.row.synced_end;
        let mut kept = Vec::new();
        let mut next: Option<Offset> = None;
        let mut whole = true;
        for (base, length) in std::mem::take(&mut self.segments) {
            let fits = whole && next.is_none_or(|next| next == base);
            if !fits {
                self.remove_segment(disk, files, base).await?;
                whole = false;
                continue;
            }
            let path = files.path.join(SegmentFile::Log.name(base));
            let (bytes, end) = scan_segment(disk, &path, base, length, &mut self.epochs).await?;
            if bytes == 0 {
                // The next batch gets this offset, and a segment of this name.
                self.remove_segment(disk, files, base).await?;
                (next, whole) = (Some(next.unwrap_or(base)), length == 0 && whole);
                continue;
            }
            if bytes < length {
                let mode = OpenMode { write: true, ..OpenMode::default() };
                let file = disk.open(&path, mode).await?;
                file.set_length(bytes).await?;
                file.close().await?;
                whole = false;
            }
            // Index entries may point beyond the cut: without them reads only walk further.
            for kind in [SegmentFile::Index, SegmentFile::TimeIndex] {
                if files.files.contains_key(&(base, kind)) {
                    disk.remove(&files.path.join(kind.name(base))).await?;
                }
            }
            kept.push((base, bytes));
            next = Some(end);
        }
        let end = next.unwrap_or(self.row.log_start);
        self.row.log_start = kept.first().map_or(end, |(base, _)| self.row.log_start.max(*base));
        self.row.segment_base = kept.last().map_or(end, |(base, _)| *base);
        self.row.segment_bytes = kept.last().map_or(0, |(_, bytes)| *bytes);
        (self.row.index_bytes, self.row.time_index_bytes) = (0, 0);
        self.segments = kept;
        // What was open or had ended in what is lost is known no more: the segments decide.
        self.producers = self.rebuild_aborted(disk, files).await?;
        self.epochs.truncate_end(end);
        self.next = end;
        let lost = expected_end.0.saturating_sub(end.0).max(0);
        self.notes.push(format!(
            "{}: {why}; the loss is accepted: the log now ends at {end}, at least {lost} offsets \
             are gone",
            self.rules.name
        ));
        Ok(())
    }

    async fn remove_segment(
        &self,
        disk: &Rc<dyn Disk>,
        files: &PartitionFiles,
        base: Offset,
    ) -> io::Result<()> {
        for kind in SegmentFile::ALL {
            if files.files.contains_key(&(base, kind)) {
                disk.remove(&files.path.join(kind.name(base))).await?;
            }
        }
        Ok(())
    }

    fn go_offline(&mut self, why: &str) {
        if self.offline.is_none() {
            self.notes.push(format!(
                "partition {} is offline: {why}; `serve --accept-loss {}` gives up what is missing",
                self.rules.name, self.rules.name
            ));
            self.offline = Some(why.to_owned());
        }
    }

    /// Entries kept aside by earlier starts come before those of the journal.
    async fn take_stranded(&mut self, disk: &Rc<dyn Disk>) -> io::Result<()> {
        let Some(offline) = self.row.offline.take() else { return Ok(()) };
        if offline.stranded_bytes == 0 {
            return Ok(());
        }
        let path = self.stranded_path();
        let mut content = disk.read(&path).await?;
        let vouched = usize::try_from(offline.stranded_bytes).unwrap_or(usize::MAX);
        content.truncate(vouched);
        let mut reader = StrandedReader::new(self.row.tp, offline.stranded_bytes);
        reader.feed(&content);
        self.stranded_before = content;
        let mut entries = Vec::new();
        loop {
            match reader.next_entry() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(fault) => {
                    self.go_offline(&format!("{}: {fault}", path.display()));
                    return Ok(());
                }
            }
        }
        if self.offline.is_some() {
            return Ok(());
        }
        self.stranded_applied = true;
        for entry in entries {
            self.apply_entry(disk, entry).await?;
        }
        Ok(())
    }

    /// Applies one entry of the journal.
    pub async fn apply(&mut self, disk: &Rc<dyn Disk>, entry: &Replayed) -> io::Result<()> {
        match StrandedEntry::from_replayed(entry) {
            Some((_, entry)) => self.apply_entry(disk, entry).await,
            None => Ok(()),
        }
    }

    async fn apply_entry(&mut self, disk: &Rc<dyn Disk>, entry: StrandedEntry) -> io::Result<()> {
        if self.offline.is_some() {
            self.keep_aside(&entry);
            return Ok(());
        }
        match &entry {
            StrandedEntry::LogStartAdvanced { offset } => {
                self.row.log_start = self.row.log_start.max(*offset);
            }
            StrandedEntry::EpochStarted { epoch, start } => self.epochs.start(*epoch, *start),
            StrandedEntry::Batch { append_ms, bytes } => {
                let header = match BatchHeader::read(bytes) {
                    Ok(header) => header,
                    Err(fault) => {
                        self.go_offline(&format!("a journaled batch is malformed: {fault:?}"));
                        self.keep_aside(&entry);
                        return Ok(());
                    }
                };
                if header.last_offset() < self.next {
                    return Ok(());
                }
                if header.base_offset != self.next {
                    return self.does_not_fit(&header, &entry);
                }
                self.append(disk, &header, bytes, *append_ms).await?;
            }
        }
        Ok(())
    }

    fn does_not_fit(&mut self, header: &BatchHeader, entry: &StrandedEntry) -> io::Result<()> {
        if self.rules.accepts_loss {
            self.dropped_batches += 1;
            return Ok(());
        }
        let (base, next) = (header.base_offset, self.next);
        let why = if base > next {
            format!("acknowledged records from offset {next} to {base} are missing")
        } else {
            format!("a journaled batch at offset {base} overlaps the log's end {next}")
        };
        self.go_offline(&why);
        self.keep_aside(entry);
        Ok(())
    }

    fn keep_aside(&mut self, entry: &StrandedEntry) {
        if self.stranded_before.is_empty() && self.stranded_new.is_empty() {
            self.stranded_new = stranded::encode_head(self.row.tp);
        }
        let place = (self.stranded_before.len() + self.stranded_new.len()) as u64;
        stranded::encode_record(entry, place, &mut self.stranded_new);
    }

    async fn append(
        &mut self,
        disk: &Rc<dyn Disk>,
        header: &BatchHeader,
        bytes: &[u8],
        append_ms: i64,
    ) -> io::Result<()> {
        let directory = self.directory(disk).await?;
        let placed = PlacedBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            max_timestamp_ms: header.max_timestamp,
            append_ms,
            bytes: bytes.len(),
        };
        let rules = self.rules.segments;
        let roll = match &self.builder {
            Some(builder) => builder.active.must_roll(&placed, &rules),
            None => true,
        };
        if roll {
            self.finish_builder(disk).await?;
            let active = ActiveSegment::new(header.base_offset, append_ms);
            self.builder = Some(Builder::create(disk, directory, active).await?);
        }
        let builder = self.builder.as_mut().expect("invariant: made above");
        builder.active.place(&placed, &rules);
        builder.write(bytes).await?;
        self.epochs.start(header.leader_epoch, header.base_offset);
        if let Some(ended) = self.producers.replay(header, bytes, append_ms) {
            builder.active.note_aborted(ended.aborted());
        }
        self.next = header.next_offset();
        Ok(())
    }

    async fn directory(&mut self, disk: &Rc<dyn Disk>) -> io::Result<PathBuf> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        let tp = self.row.tp;
        let (topic, partition): (TopicId, PartitionIndex) = (tp.topic, tp.partition);
        let data_dir = &self.rules.data_dir;
        let temporary = layout::temporary_directory(data_dir, topic, partition);
        let path = layout::partition_directory(data_dir, &self.rules.topic, partition);
        disk.create_directory(&temporary).await?;
        let metadata = layout::partition_metadata(topic);
        disk.write(&temporary.join(layout::PARTITION_METADATA), metadata.as_bytes()).await?;
        disk.sync_directory(&temporary).await?;
        disk.rename(&temporary, &path).await?;
        self.directory = Some(path.clone());
        Ok(path)
    }

    async fn finish_builder(&mut self, disk: &Rc<dyn Disk>) -> io::Result<()> {
        if let Some(mut builder) = self.builder.take() {
            builder.finish(disk).await?;
            let (base, bytes) = (builder.active.base, builder.active.written_bytes);
            self.segments.push((base, bytes));
            self.row.segment_base = base;
            self.row.segment_bytes = bytes;
            self.row.set_index_bytes(builder.active.index_bytes());
        }
        Ok(())
    }

    /// Writes what is pending, nothing of it synced yet, and says what the shard starts from.
    pub async fn finish(mut self, disk: &Rc<dyn Disk>) -> io::Result<Outcome> {
        self.finish_builder(disk).await?;
        if self.row.log_start > self.judged_start {
            let mut files = std::mem::take(&mut self.files);
            self.pass_over_deleted(&mut files);
        }
        let path = self.stranded_path();
        let mut stranded_bytes = self.stranded_before.len() as u64;
        if !self.stranded_new.is_empty() {
            let mut content = std::mem::take(&mut self.stranded_before);
            content.append(&mut self.stranded_new);
            if let Some(parent) = path.parent() {
                disk.create_directory(parent).await?;
            }
            disk.replace(&path, &content).await?;
            stranded_bytes = content.len() as u64;
        }
        if self.dropped_batches > 0 {
            self.notes.push(format!(
                "{}: {} journaled batches beyond a gap are dropped, the loss is accepted",
                self.rules.name, self.dropped_batches
            ));
        }
        let mut row = self.row;
        row.synced_end = self.next;
        row.log_start = row.log_start.min(self.next);
        self.epochs.truncate_start(row.log_start);
        row.epochs = self.epochs.entries().to_vec();
        self.producers.expire(self.rules.now_ms);
        row.producers = self.producers.to_rows();
        let done = self.offline.is_none() && self.stranded_applied;
        row.offline = self.offline.map(|reason| OfflineRow { reason, stranded_bytes });
        let has_directory = self.directory.is_some();
        let has_kafka_files = has_directory && self.rules.stopped_cleanly;
        let segments = self.segments;
        let partition = RecoveredPartition { row, segments, has_directory, has_kafka_files };
        let mut done_with = self.unlinked;
        done_with.extend(done.then_some(path));
        Ok(Outcome { partition, notes: self.notes, done_with })
    }

    fn stranded_path(&self) -> PathBuf {
        self.rules.data_dir.join(manifest::stranded_path(self.row.tp))
    }
}

/// Walks a segment's batches while they are whole, checked and consecutive; returns how many bytes
/// those take and the offset after them.
async fn scan_segment(
    disk: &Rc<dyn Disk>,
    path: &std::path::Path,
    base: Offset,
    length: u64,
    epochs: &mut EpochHistory,
) -> io::Result<(u64, Offset)> {
    let content = disk.read(path).await?;
    let content = &content[..content.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
    let mut at = 0;
    let mut next = base;
    while let Ok(header) = BatchHeader::read_verified(&content[at..]) {
        if header.base_offset < next {
            break;
        }
        epochs.start(header.leader_epoch, header.base_offset);
        at += header.total_bytes();
        next = header.next_offset();
    }
    Ok((at as u64, next))
}

/// Takes the batches of a segment over into the producers' state; returns the aborted transactions
/// whose markers it holds.
async fn scan_transactions(
    disk: &Rc<dyn Disk>,
    path: &std::path::Path,
    bytes: u64,
    producers: &mut Producers,
    now_ms: i64,
) -> io::Result<AbortedIndex> {
    let file = disk.open(path, OpenMode::default()).await?;
    let mut batches = Batches::new(Rc::clone(&file), bytes);
    let mut aborted = AbortedIndex::default();
    while let Some(Piece::Batch { bytes, .. }) = batches.next().await? {
        let Ok(header) = BatchHeader::read(&bytes) else { break };
        let ended = producers.replay(&header, &bytes, now_ms);
        if let Some(entry) = ended.and_then(|ended| ended.aborted()) {
            aborted.add(entry);
        }
    }
    file.close().await?;
    Ok(aborted)
}
