//! A segment that replayed batches go to.
//!
//! Owns the bytes on their way to a new segment: they are copied once, into aligned buffers that
//! grow with what there is and are written while the next one fills. Nothing is synced here.
//!
//! Invariant: a buffer that is written in the middle of a segment is full, so that every write
//! begins at a block of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::io::in_flight::InFlight;
use crate::io::{AlignedBuffer, Disk, File, OpenMode};
use crate::limits::{BLOCK_ALIGN, REPLAY_WRITES_AHEAD, SEGMENT_WRITE_BYTES_MAX};
use crate::log::layout::SegmentFile;
use crate::log::segments::ActiveSegment;

/// A segment that replayed batches go to.
pub struct Builder {
    directory: PathBuf,
    file: Rc<dyn File>,
    /// Its length and its indexes.
    pub active: ActiveSegment,
    /// Where the buffer goes.
    position: u64,
    buffer: Option<AlignedBuffer>,
    writes: InFlight<io::Result<()>>,
}

impl Builder {
    /// An empty segment.
    pub async fn create(
        disk: &Rc<dyn Disk>,
        directory: PathBuf,
        active: ActiveSegment,
    ) -> io::Result<Builder> {
        let path = directory.join(SegmentFile::Log.name(active.base));
        let file = open_new(disk, &path).await?;
        let writes = InFlight::default();
        Ok(Builder { directory, file, active, position: 0, buffer: None, writes })
    }

    /// Appends the bytes of a batch that was placed.
    pub async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let buffer = self.buffer_for(bytes.len()).await?;
            let (now, later) = bytes.split_at(bytes.len().min(buffer.room()));
            buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// The buffer, which grows up to the size of one write; a full one of that size goes.
    async fn buffer_for(&mut self, wanted: usize) -> io::Result<&mut AlignedBuffer> {
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() == SEGMENT_WRITE_BYTES_MAX) {
            self.flush().await?;
        }
        let old = self.buffer.take();
        let (used, capacity) =
            old.as_ref().map_or((0, 0), |buffer| (buffer.len(), buffer.capacity()));
        let buffer = match old {
            Some(old) if old.room() >= wanted || capacity == SEGMENT_WRITE_BYTES_MAX => old,
            old => {
                let grown = (used + wanted).max(2 * capacity).next_multiple_of(BLOCK_ALIGN);
                // Where one buffer was filled there is more to come.
                let grown = if self.position > 0 { SEGMENT_WRITE_BYTES_MAX } else { grown };
                let mut larger = AlignedBuffer::with_capacity(grown.min(SEGMENT_WRITE_BYTES_MAX));
                larger.extend_from_slice(old.as_deref().unwrap_or_default());
                larger
            }
        };
        Ok(self.buffer.insert(buffer))
    }

    /// Begins to write the buffer, and waits where too many writes are on their way.
    async fn flush(&mut self) -> io::Result<()> {
        let Some(mut buffer) = self.buffer.take() else { return Ok(()) };
        let length = buffer.len() as u64;
        buffer.pad();
        if self.writes.len() > REPLAY_WRITES_AHEAD
            && let Some(written) = self.writes.next().await
        {
            written?;
        }
        let (file, position) = (Rc::clone(&self.file), self.position);
        let write = Box::pin(async move { file.write_at(Arc::new(buffer), position).await });
        self.writes.begin(write).await;
        self.position += length;
        Ok(())
    }

    /// Waits for what is on its way: the segment is not wanted.
    pub async fn give_up(mut self) {
        while self.writes.next().await.is_some() {}
    }

    /// Writes what is left, and the indexes.
    pub async fn finish(&mut self, disk: &Rc<dyn Disk>) -> io::Result<()> {
        let last_block = self.buffer.as_deref().map_or_else(Vec::new, |bytes| {
            bytes[bytes.len() / BLOCK_ALIGN * BLOCK_ALIGN..].to_vec()
        });
        self.flush().await?;
        while let Some(written) = self.writes.next().await {
            written?;
        }
        self.active.written_to(self.position, last_block);
        self.file.set_length(self.active.written_bytes).await?;
        self.active.index.seal();
        let files = [
            (SegmentFile::Index, self.active.index.encode_offsets(0)),
            (SegmentFile::TimeIndex, self.active.index.encode_times(0)),
        ];
        for (kind, content) in files {
            let path = self.directory.join(kind.name(self.active.base));
            disk.write_unsynced(&path, &content).await?;
        }
        if !self.active.aborted.entries().is_empty() {
            let path = self.directory.join(SegmentFile::TransactionIndex.name(self.active.base));
            disk.write_unsynced(&path, &self.active.aborted.encode()).await?;
        }
        Rc::clone(&self.file).close().await
    }
}

async fn open_new(disk: &Rc<dyn Disk>, path: &Path) -> io::Result<Rc<dyn File>> {
    let mode = OpenMode { write: true, create: true, truncate: true, ..OpenMode::default() };
    disk.open(path, mode).await
}
