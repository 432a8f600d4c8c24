//! A cleaned segment being written, under names that count for nothing.
//!
//! Owns its files and its indexes. Writes aligned pieces, each once, in order; nothing reads
//! them before they are complete and synced. There is always a `.txnindex`, even without an entry:
//! it has to take the place of the old one.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use super::Stop;
use crate::batch::BatchHeader;
use crate::ids::Offset;
use crate::io::{AlignedBuffer, File, OpenMode};
use crate::limits::{BLOCK_ALIGN, CLEANER_PIECE_BYTES};
use crate::log::aborted::AbortedTransaction;
use crate::log::layout::{SegmentFile, Stage};
use crate::log::segments::{ActiveSegment, PlacedBatch, SegmentRules};
use crate::shard::partition::Partition;
use crate::shard::{Shard, write_behind};

/// The indexes of a segment.
pub(super) const INDEXES: [SegmentFile; 3] =
    [SegmentFile::Index, SegmentFile::TimeIndex, SegmentFile::TransactionIndex];

/// A segment that takes batches.
pub(super) struct CleanedSegment {
    /// What it holds so far.
    pub segment: ActiveSegment,
    directory: PathBuf,
    rules: SegmentRules,
    file: Rc<dyn File>,
    /// What is not written yet, which begins at `position`.
    buffer: AlignedBuffer,
    position: u64,
}

impl CleanedSegment {
    /// An empty one at `base`, which takes about `bytes_max`.
    pub async fn create(
        shard: &Rc<Shard>,
        partition: &Rc<Partition>,
        base: Offset,
        bytes_max: u64,
    ) -> Result<CleanedSegment, Stop> {
        let log = write_behind::segment_path(shard, partition, SegmentFile::Log, base);
        let directory = log.parent().map(PathBuf::from).unwrap_or_default();
        let path = directory.join(SegmentFile::Log.staged_name(base, Stage::Cleaned));
        write_behind::hold(partition).await;
        let opened = match partition.is_online() {
            true => open_new(shard, &path).await.map_err(Stop::from),
            false => Err(Stop::Abandoned),
        };
        write_behind::release(partition);
        Ok(CleanedSegment {
            segment: ActiveSegment::new(base, shard.runtime.wall_ms()),
            directory,
            rules: shard.segment_rules(partition),
            file: opened?,
            buffer: AlignedBuffer::with_capacity(buffer_bytes(bytes_max)),
            position: 0,
        })
    }

    /// Path of one of its files.
    pub fn path(&self, kind: SegmentFile, stage: Stage) -> PathBuf {
        self.directory.join(kind.staged_name(self.segment.base, stage))
    }

    /// Adds a batch, which was `header` before.
    pub async fn add(
        &mut self,
        header: &BatchHeader,
        max_timestamp_ms: i64,
        batch: &[u8],
    ) -> io::Result<()> {
        let placed = PlacedBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            max_timestamp_ms,
            append_ms: self.segment.created_ms,
            bytes: batch.len(),
        };
        self.segment.place(&placed, &self.rules);
        let mut rest = batch;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.buffer.room()));
            self.buffer.extend_from_slice(now);
            rest = later;
            if self.buffer.room() == 0 {
                self.write().await?;
            }
        }
        Ok(())
    }

    async fn write(&mut self) -> io::Result<()> {
        let next = AlignedBuffer::with_capacity(self.buffer.capacity());
        let mut buffer = std::mem::replace(&mut self.buffer, next);
        let length = buffer.len() as u64;
        buffer.pad();
        self.file.write_at(Arc::new(buffer), self.position).await?;
        self.position += length;
        Ok(())
    }

    /// Writes the rest and the indexes, and makes all of it durable, names apart.
    pub async fn finish(
        &mut self,
        shard: &Rc<Shard>,
        aborted: Vec<AbortedTransaction>,
    ) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.write().await?;
        }
        self.file.set_length(self.segment.placed_bytes).await?;
        shard.space.sync_file(shard, &self.file).await?;
        self.segment.note_aborted(aborted);
        self.segment.index.seal();
        shard.cleaner.metrics.written_bytes.add(self.segment.placed_bytes);
        let indexes = [
            (SegmentFile::Index, self.segment.index.encode_offsets(0)),
            (SegmentFile::TimeIndex, self.segment.index.encode_times(0)),
            (SegmentFile::TransactionIndex, self.segment.aborted.encode()),
        ];
        for (kind, content) in indexes {
            shard.disk.write(&self.path(kind, Stage::Cleaned), &content).await?;
        }
        Ok(())
    }

    /// Removes what there is of it; a start does so too.
    pub async fn remove(&self, shard: &Rc<Shard>, partition: &Rc<Partition>) {
        write_behind::hold(partition).await;
        // The directory of a topic that is being deleted goes as a whole, and may have gone.
        if partition.is_online() {
            // One that was never made is not missed.
            let _ = shard.disk.remove(&self.path(SegmentFile::Log, Stage::Cleaned)).await;
            for kind in INDEXES {
                let _ = shard.disk.remove(&self.path(kind, Stage::Swap)).await;
                let _ = shard.disk.remove(&self.path(kind, Stage::Cleaned)).await;
            }
        }
        write_behind::release(partition);
    }
}

/// Room for all of it, but for no more than is written at once.
fn buffer_bytes(bytes_max: u64) -> usize {
    let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    bytes.clamp(1, CLEANER_PIECE_BYTES).next_multiple_of(BLOCK_ALIGN)
}

async fn open_new(shard: &Rc<Shard>, path: &std::path::Path) -> io::Result<Rc<dyn File>> {
    let mode = OpenMode { write: true, create: true, truncate: true, ..OpenMode::default() };
    shard.disk.open(path, mode).await
}
