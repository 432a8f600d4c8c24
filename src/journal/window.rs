//! The part of a ring that is being read: one chunk in memory, the next ones on their way.
//!
//! Owns reads of ring files. Whoever walks a file forward has its next chunks read while it looks
//! at this one; a step elsewhere begins anew. Memory is a few chunks, whatever the ring's size.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::replay::{ReplayError, RingFiles};
use crate::io::File;
use crate::io::in_flight::InFlight;
use crate::limits::{JOURNAL_REPLAY_CHUNK_BYTES, JOURNAL_REPLAY_CHUNKS_AHEAD};

/// The chunk of a ring file that was read last, and those after it.
#[derive(Default)]
pub(super) struct Window {
    file: u32,
    offset: u64,
    bytes: Bytes,
    ahead: InFlight<io::Result<Bytes>>,
    /// Where the oldest read on its way begins, and how long each is.
    ahead_offsets: VecDeque<(u64, usize)>,
    /// The file ends with the chunk in memory.
    at_end: bool,
}

impl Window {
    /// `length` bytes of a file at `offset`, read ahead up to `limit`; fewer where the file ends,
    /// none if it is missing. The bytes share the memory of what was read, unless they lie in two
    /// chunks.
    pub(super) async fn read(
        &mut self,
        files: &RingFiles,
        file: u32,
        offset: u64,
        length: usize,
        limit: u64,
    ) -> Result<Bytes, ReplayError> {
        if let Some(held) = self.held(file, offset, length) {
            return Ok(held);
        }
        let Some(Some(source)) = files.get(file as usize) else {
            return Ok(Bytes::new());
        };
        let goes_on = file == self.file
            && (self.offset..=self.end()).contains(&offset)
            && self.ahead_offsets.front().is_some_and(|(next, _)| *next == self.end());
        if !goes_on {
            *self = Window { file, offset, ..Window::default() };
            self.begin(source, offset, length, limit).await;
        }
        let mut whole = BytesMut::new();
        let start = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
        let mut part = self.bytes.slice(start.min(self.bytes.len())..);
        loop {
            if whole.is_empty() && part.len() >= length {
                return Ok(part.slice(..length));
            }
            if !part.is_empty() {
                let wanted = length - whole.len();
                whole.extend_from_slice(&part[..part.len().min(wanted)]);
            }
            if whole.len() == length || !self.go_on(source, limit).await? {
                return Ok(whole.freeze());
            }
            part = self.bytes.clone();
        }
    }

    fn held(&self, file: u32, offset: u64, length: usize) -> Option<Bytes> {
        if file != self.file {
            return None;
        }
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Takes the next chunk; `false` at the end of the file or of what may be read.
    async fn go_on(&mut self, source: &Rc<dyn File>, limit: u64) -> Result<bool, ReplayError> {
        if self.at_end {
            return Ok(false);
        }
        let next = self.ahead_offsets.front().map_or(self.end(), |(offset, _)| *offset);
        if self.ahead.is_empty() && next < limit {
            self.begin(source, next, 0, limit).await;
        }
        let (Some(read), Some((offset, length))) =
            (self.ahead.next().await, self.ahead_offsets.pop_front())
        else {
            return Ok(false);
        };
        let file = self.file;
        let bytes = read.map_err(|source| ReplayError::Read { file, offset, source })?;
        (self.offset, self.bytes) = (offset, bytes.slice(..bytes.len().min(length)));
        if self.bytes.len() < length {
            // Nothing that was begun beyond it counts.
            self.at_end = true;
            (self.ahead, self.ahead_offsets) = Default::default();
        } else if let Some(&(last, bytes)) = self.ahead_offsets.back() {
            self.begin_next(source, last + bytes as u64, 0, limit).await;
        } else {
            self.begin_next(source, self.end(), 0, limit).await;
        }
        Ok(!self.bytes.is_empty())
    }

    /// Begins the reads from `offset` on, the first of at least `least` bytes.
    async fn begin(&mut self, source: &Rc<dyn File>, offset: u64, least: usize, limit: u64) {
        let mut next = self.begin_next(source, offset, least, limit).await;
        while self.ahead.len() <= JOURNAL_REPLAY_CHUNKS_AHEAD && next < limit {
            next = self.begin_next(source, next, 0, limit).await;
        }
    }

    /// Begins one read, if there is something to read; returns where the next one begins.
    async fn begin_next(
        &mut self,
        source: &Rc<dyn File>,
        offset: u64,
        least: usize,
        limit: u64,
    ) -> u64 {
        let left = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = left.min(JOURNAL_REPLAY_CHUNK_BYTES).max(least);
        if length == 0 {
            return offset;
        }
        let source = Rc::clone(source);
        let read = Box::pin(async move { source.read_at(offset, length).await });
        self.ahead.begin(read).await;
        self.ahead_offsets.push_back((offset, length));
        offset + length as u64
    }
}
