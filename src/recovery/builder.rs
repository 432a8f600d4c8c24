//! A segment that replayed batches go to, and how recovery writes files.
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
    used: usize,
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
        Ok(Builder { directory, file, active, position: 0, buffer: None, used: 0, writes })
    }

    /// Appends the bytes of a batch that was placed.
    pub async fn write(&mut self, disk: &Rc<dyn Disk>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.make_room(disk, bytes.len()).await?;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            if let Some(buffer) = &mut self.buffer {
                buffer[self.used..self.used + now.len()].copy_from_slice(now);
            }
            self.used += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Room in the buffer, which grows up to the size of one write; a full one of that size goes.
    async fn make_room(&mut self, disk: &Rc<dyn Disk>, wanted: usize) -> io::Result<usize> {
        let capacity = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        if self.used == capacity && capacity == SEGMENT_WRITE_BYTES_MAX {
            self.flush().await?;
        } else if capacity - self.used >= wanted || capacity == SEGMENT_WRITE_BYTES_MAX {
            return Ok(capacity - self.used);
        }
        let grown = (self.used + wanted).max(2 * capacity).next_multiple_of(BLOCK_ALIGN);
        // Where one buffer was filled there is more to come.
        let grown = if self.position > 0 { SEGMENT_WRITE_BYTES_MAX } else { grown };
        let mut larger = disk.allocate(grown.min(SEGMENT_WRITE_BYTES_MAX));
        if let Some(buffer) = self.buffer.take() {
            larger[..self.used].copy_from_slice(&buffer[..self.used]);
        }
        let room = larger.len() - self.used;
        self.buffer = Some(larger);
        Ok(room)
    }

    /// Begins to write the buffer, and waits where too many writes are on their way.
    async fn flush(&mut self) -> io::Result<()> {
        let Some(mut buffer) = self.buffer.take() else { return Ok(()) };
        buffer.shorten(self.used.next_multiple_of(BLOCK_ALIGN));
        if self.writes.len() > REPLAY_WRITES_AHEAD
            && let Some(written) = self.writes.next().await
        {
            written?;
        }
        let (file, position) = (Rc::clone(&self.file), self.position);
        let write = Box::pin(async move { file.write_at(Arc::new(buffer), position).await });
        self.writes.begin(write).await;
        self.position += self.used as u64;
        self.used = 0;
        Ok(())
    }

    /// Writes what is left, and the indexes.
    pub async fn finish(&mut self, disk: &Rc<dyn Disk>) -> io::Result<()> {
        let in_last_block = self.used % BLOCK_ALIGN;
        let last_block = self
            .buffer
            .as_ref()
            .map_or_else(Vec::new, |buffer| buffer[self.used - in_last_block..self.used].to_vec());
        if self.used > 0 {
            self.flush().await?;
        }
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
            write_file(disk, &path, &content).await?;
        }
        if !self.active.aborted.entries().is_empty() {
            let path = self.directory.join(SegmentFile::TransactionIndex.name(self.active.base));
            write_file(disk, &path, &self.active.aborted.encode()).await?;
        }
        Rc::clone(&self.file).close().await
    }
}

/// Opens a file that is empty.
pub async fn open_new(disk: &Rc<dyn Disk>, path: &Path) -> io::Result<Rc<dyn File>> {
    let mode = OpenMode { write: true, create: true, truncate: true, ..OpenMode::default() };
    disk.open(path, mode).await
}

/// Writes a whole file; not synced.
pub async fn write_file(disk: &Rc<dyn Disk>, path: &Path, content: &[u8]) -> io::Result<()> {
    let file = open_new(disk, path).await?;
    write_aligned(disk, &file, 0, content).await?;
    file.set_length(content.len() as u64).await?;
    file.close().await
}

async fn write_aligned(
    disk: &Rc<dyn Disk>,
    file: &Rc<dyn File>,
    position: u64,
    content: &[u8],
) -> io::Result<()> {
    let mut at = position;
    for piece in content.chunks(SEGMENT_WRITE_BYTES_MAX) {
        let mut buffer = disk.allocate(piece.len().next_multiple_of(BLOCK_ALIGN));
        buffer[..piece.len()].copy_from_slice(piece);
        file.write_at(Arc::new(buffer), at).await?;
        at += piece.len() as u64;
    }
    Ok(())
}
