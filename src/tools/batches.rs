//! Reading a segment from front to back, batch by batch, in bounded memory.
//!
//! Owns the window on a file and the step from one batch to the next. Must never take a length
//! from the file without comparing it with the bytes that are there.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use crate::batch::header::is_blank;
use crate::batch::{HEADER_BYTES, peek_frame};
use crate::io::File;
use crate::limits::{BLOCK_ALIGN, JOURNAL_REPLAY_CHUNK_BYTES};

/// The chunk of a file that was read last.
pub struct Window {
    file: Rc<dyn File>,
    start: u64,
    bytes: Bytes,
    chunk_bytes: usize,
}

impl Window {
    /// A window on `file`; nothing is read yet.
    #[must_use]
    pub fn new(file: Rc<dyn File>) -> Window {
        let chunk_bytes = JOURNAL_REPLAY_CHUNK_BYTES;
        Window { file, start: 0, bytes: Bytes::new(), chunk_bytes }
    }

    /// `length` bytes at `position`, fewer where the file ends; they share the chunk's memory.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn read(&mut self, position: u64, length: usize) -> io::Result<Bytes> {
        if let Some(held) = self.held(position, length) {
            return Ok(held);
        }
        let align = BLOCK_ALIGN as u64;
        let start = position / align * align;
        let before = (position - start) as usize;
        let wanted = before.saturating_add(length).max(self.chunk_bytes);
        self.bytes = self.file.read_at(start, wanted.next_multiple_of(BLOCK_ALIGN)).await?;
        self.start = start;
        let end = before.saturating_add(length).min(self.bytes.len());
        Ok(self.bytes.slice(before.min(end)..end))
    }

    fn held(&self, position: u64, length: usize) -> Option<Bytes> {
        let start = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}

/// What stands at one position of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Bytes framed as a batch; neither header nor checksum is judged yet.
    Batch {
        /// Where it starts.
        position: u64,
        /// All of it.
        bytes: Bytes,
    },
    /// Zeroes instead of a batch: space that was allocated ahead.
    Blank {
        /// Where they start.
        position: u64,
    },
    /// Neither; nothing behind it can be found.
    Unreadable {
        /// Where it starts.
        position: u64,
        /// What is wrong.
        reason: String,
    },
}

/// Walks the batches of a segment.
pub struct Batches {
    window: Window,
    position: u64,
    end: u64,
}

impl Batches {
    /// The batches in the first `end` bytes of `file`, which must have that many.
    #[must_use]
    pub fn new(file: Rc<dyn File>, end: u64) -> Batches {
        Batches { window: Window::new(file), position: 0, end }
    }

    /// Reads no more at once, where a batch is not larger.
    #[must_use]
    pub fn by_pieces(mut self, chunk_bytes: usize) -> Batches {
        self.window.chunk_bytes = chunk_bytes;
        self
    }

    /// The next piece; `None` at the end, and after anything but a batch.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn next(&mut self) -> io::Result<Option<Piece>> {
        let position = self.position;
        let left = self.end.saturating_sub(position);
        if left == 0 {
            return Ok(None);
        }
        self.position = self.end;
        let head = usize::try_from(left).unwrap_or(usize::MAX).min(HEADER_BYTES);
        let header = self.window.read(position, head).await?;
        if is_blank(&header) {
            return Ok(Some(Piece::Blank { position }));
        }
        let unreadable = |reason| Ok(Some(Piece::Unreadable { position, reason }));
        let Some((_, total)) = peek_frame(&header).filter(|_| header.len() == HEADER_BYTES) else {
            return unreadable("no batch starts here".to_owned());
        };
        if total as u64 > left {
            return unreadable(format!("a batch of {total} bytes, {left} are left"));
        }
        let bytes = self.window.read(position, total).await?;
        if bytes.len() < total {
            return unreadable(format!("a batch of {total} bytes, {} could be read", bytes.len()));
        }
        self.position = position + total as u64;
        Ok(Some(Piece::Batch { position, bytes }))
    }
}
