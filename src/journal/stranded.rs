//! Entries of an offline partition, kept aside so that it does not pin the ring.
//!
//! Owns the format of `journal/stranded/<topic id>-<n>` (version 1, little-endian): a head that
//! names the partition, then records in journal order, only ever appended and synced. Does no I/O:
//! the caller feeds what it read, in pieces of any size.
//!
//! Invariants: a record validates only at its own place in its file; memory while reading is one
//! record and one piece; bytes after the first record that does not validate are never used. The
//! partition's image row says how many bytes must be whole: less is damage, a bad rest is the torn
//! end of an append that the ring still covers, and must be cut before anything is appended.
//!
//! ```text
//! head:   magic u32 | format u16 | 0 u16 | topic id 16 | partition i32 | xxh3-64 of these u64
//! record: xxh3-64 of the rest seeded with its place u64 | body bytes u32 | kind u8 | 0 3 | body
//! batch body: append ms i64, record batch; log start body: i64; epoch body: i32, i64
//! ```

use bytes::{Buf, Bytes, BytesMut};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::block::ControlEntry;
use super::cursor::Cursor;
use super::replay::Replayed;
use crate::ids::{LeaderEpoch, Offset, TopicPartition};

/// Bytes of the file's head.
pub const HEAD_BYTES: usize = 36;

/// One entry kept aside. A dropped partition keeps nothing, so there is no entry for that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StrandedEntry {
    /// A whole record batch.
    Batch {
        /// Wall clock of the append, in milliseconds.
        append_ms: i64,
        /// The batch.
        bytes: Bytes,
    },
    /// The log start moved.
    LogStartAdvanced {
        /// New log start.
        offset: Offset,
    },
    /// An epoch began.
    EpochStarted {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Its first offset.
        start: Offset,
    },
}

impl StrandedEntry {
    /// What a replayed journal entry keeps; `None` for a partition's end.
    #[must_use]
    pub fn from_replayed(entry: &Replayed) -> Option<(TopicPartition, StrandedEntry)> {
        match entry {
            Replayed::Batch { tp, append_ms, bytes, .. } => {
                Some((*tp, StrandedEntry::Batch { append_ms: *append_ms, bytes: bytes.clone() }))
            }
            Replayed::Control(ControlEntry::LogStartAdvanced { tp, offset }) => {
                Some((*tp, StrandedEntry::LogStartAdvanced { offset: *offset }))
            }
            Replayed::Control(ControlEntry::EpochStarted { tp, epoch, start }) => {
                Some((*tp, StrandedEntry::EpochStarted { epoch: *epoch, start: *start }))
            }
            Replayed::Control(ControlEntry::PartitionDropped { .. }) => None,
        }
    }
}

/// The head of a new file.
#[must_use]
pub fn encode_head(tp: TopicPartition) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&tp.topic.0);
    out.extend_from_slice(&tp.partition.0.to_le_bytes());
    let checksum = xxh3_64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Appends one record to `out`. `place` is the byte of the file at which it will start:
/// [`HEAD_BYTES`] for the first.
pub fn encode_record(entry: &StrandedEntry, place: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
    let kind = match entry {
        StrandedEntry::Batch { append_ms, bytes } => {
            out.extend_from_slice(&append_ms.to_le_bytes());
            out.extend_from_slice(bytes);
            KIND_BATCH
        }
        StrandedEntry::LogStartAdvanced { offset } => {
            out.extend_from_slice(&offset.0.to_le_bytes());
            KIND_LOG_START_ADVANCED
        }
        StrandedEntry::EpochStarted { epoch, start } => {
            out.extend_from_slice(&epoch.0.to_le_bytes());
            out.extend_from_slice(&start.0.to_le_bytes());
            KIND_EPOCH_STARTED
        }
    };
    let record = &mut out[start..];
    let body_bytes = u32::try_from(record.len() - RECORD_HEAD_BYTES)
        .expect("invariant: a batch is shorter than 2 GiB");
    record[8..12].copy_from_slice(&body_bytes.to_le_bytes());
    record[12] = kind;
    let checksum = xxh3_64_with_seed(&record[8..], place);
    record[..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Why a stranded file cannot be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StrandedFault {
    /// The head is not that of this partition's file.
    #[error("the stranded file does not belong to its partition or is damaged")]
    Head,
    /// Written by another version.
    #[error("stranded file format {0} is unknown")]
    Format(u16),
    /// Bytes that must be whole are not.
    #[error("the stranded file is damaged at byte {at}: {expected} bytes of it must be whole")]
    Damaged {
        /// Where the first bad record starts.
        at: u64,
        /// Bytes that the image row vouches for.
        expected: u64,
    },
}

/// Reads a stranded file from pieces.
#[derive(Debug)]
pub struct StrandedReader {
    tp: TopicPartition,
    expected_bytes: u64,
    waiting: BytesMut,
    whole_bytes: u64,
    ended: bool,
}

impl StrandedReader {
    /// A reader for the file of `tp`, of which `expected_bytes` must be whole by the image row.
    #[must_use]
    pub fn new(tp: TopicPartition, expected_bytes: u64) -> StrandedReader {
        StrandedReader {
            tp,
            expected_bytes,
            waiting: BytesMut::new(),
            whole_bytes: 0,
            ended: false,
        }
    }

    /// Takes the next piece of the file. Call [`StrandedReader::next_entry`] until it is `None`
    /// before the piece after it.
    pub fn feed(&mut self, piece: &[u8]) {
        if !self.ended {
            self.waiting.extend_from_slice(piece);
        }
    }

    /// The next whole entry; `None` if more bytes are needed or a record does not validate: then
    /// further pieces are ignored, and [`StrandedReader::finish`] tells which.
    pub fn next_entry(&mut self) -> Result<Option<StrandedEntry>, StrandedFault> {
        if self.ended {
            return Ok(None);
        }
        if self.whole_bytes == 0 {
            if self.waiting.len() < HEAD_BYTES {
                return Ok(None);
            }
            let head = self.waiting.split_to(HEAD_BYTES);
            match self.check_head(&head) {
                // A head that was torn when the file was made: nothing relies on it yet.
                Err(StrandedFault::Head) if self.expected_bytes == 0 => return Ok(self.end()),
                checked => checked?,
            }
            self.whole_bytes = HEAD_BYTES as u64;
        }
        let mut cursor = Cursor::new(&self.waiting);
        let (Some(checksum), Some(body_bytes)) = (cursor.u64(), cursor.u32()) else {
            return Ok(None);
        };
        let body_bytes = body_bytes as usize;
        if body_bytes > RECORD_BODY_BYTES_MAX {
            return Ok(self.end());
        }
        let record_bytes = RECORD_HEAD_BYTES + body_bytes;
        if self.waiting.len() < record_bytes {
            return Ok(None);
        }
        if checksum != xxh3_64_with_seed(&self.waiting[8..record_bytes], self.whole_bytes) {
            return Ok(self.end());
        }
        let record = self.waiting.split_to(record_bytes).freeze();
        match decode_record(record) {
            Some(entry) => {
                self.whole_bytes += record_bytes as u64;
                Ok(Some(entry))
            }
            None => Ok(self.end()),
        }
    }

    /// After the last piece: the bytes of the file that are whole; 0 means that even the head must
    /// be written again. The rest must be cut before the file is appended to. Damage if the image
    /// row vouches for more.
    pub fn finish(self) -> Result<u64, StrandedFault> {
        if self.whole_bytes < self.expected_bytes {
            return Err(StrandedFault::Damaged {
                at: self.whole_bytes,
                expected: self.expected_bytes,
            });
        }
        Ok(self.whole_bytes)
    }

    fn check_head(&self, head: &[u8]) -> Result<(), StrandedFault> {
        let mut cursor = Cursor::new(head);
        let fault = StrandedFault::Head;
        if cursor.u32() != Some(MAGIC) {
            return Err(fault);
        }
        let format = cursor.u16().ok_or(fault)?;
        if format != FORMAT {
            return Err(StrandedFault::Format(format));
        }
        (head == encode_head(self.tp).as_slice()).then_some(()).ok_or(fault)
    }

    fn end(&mut self) -> Option<StrandedEntry> {
        self.ended = true;
        self.waiting.clear();
        None
    }
}

fn decode_record(mut record: Bytes) -> Option<StrandedEntry> {
    let kind = record[12];
    if record[13..16] != [0; 3] {
        return None;
    }
    record.advance(RECORD_HEAD_BYTES);
    if kind == KIND_BATCH {
        let append_ms = i64::from_le_bytes(*record.first_chunk()?);
        record.advance(8);
        return (!record.is_empty()).then_some(StrandedEntry::Batch { append_ms, bytes: record });
    }
    let mut body = Cursor::new(&record);
    let entry = match kind {
        KIND_LOG_START_ADVANCED => StrandedEntry::LogStartAdvanced { offset: Offset(body.i64()?) },
        KIND_EPOCH_STARTED => StrandedEntry::EpochStarted {
            epoch: LeaderEpoch(body.i32()?),
            start: Offset(body.i64()?),
        },
        _ => return None,
    };
    (body.remaining() == 0).then_some(entry)
}

const MAGIC: u32 = u32::from_le_bytes(*b"RLst");
const FORMAT: u16 = 1;
const RECORD_HEAD_BYTES: usize = 16;

/// A Kafka batch is shorter than 2 GiB; a damaged length beyond that is not waited for.
const RECORD_BODY_BYTES_MAX: usize = (1 << 31) + 8;
const KIND_BATCH: u8 = 1;
const KIND_LOG_START_ADVANCED: u8 = 2;
const KIND_EPOCH_STARTED: u8 = 3;

#[cfg(test)]
mod tests;
