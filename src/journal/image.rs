//! The checkpoint image of one shard: a journal point, and for every partition what is synced and
//! the state exactly at that end.
//!
//! Owns the format of `journal/<boot>/image-<shard>` (version 1, little-endian). Does no I/O: the
//! shard writes the bytes with `Disk::replace`, so a reader finds a whole image, old or new.
//!
//! Invariants: an image decodes only if every byte is as written (one checksum over the file); a
//! row never reads past its own length; counts are checked against the bytes that are left before
//! anything is allocated; a partition appears once.
//!
//! ```text
//! file: magic u32 | format u16 | shard u16 | boot u32 | rows u32 | position u64 | sequence u64
//!       | durable through u64 | clean u32 | rows, each: length u32, bytes
//!       | xxh3-64 of all before u64
//! ```

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use super::cursor::Cursor;
use super::replay::Start;
use super::ring::JournalPoint;
use crate::ids::{
    BootNumber, JournalSequence, LeaderEpoch, Offset, ProducerEpoch, ProducerId, ShardId,
    TopicPartition,
};
use crate::log::segments::IndexBytes;

/// A shard's checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// Boot that wrote it: its journal point is in that boot's ring.
    pub boot: BootNumber,
    /// Shard that wrote it.
    pub shard: ShardId,
    /// Where replaying begins, and what was durable when the image was written.
    pub start: Start,
    /// Written at a clean stop: nothing follows `start` in the ring, which need not be read.
    pub clean: bool,
    /// One row per partition of the shard.
    pub rows: Vec<PartitionRow>,
}

/// One partition at its synced end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRow {
    /// The partition.
    pub tp: TopicPartition,
    /// First offset that readers may see.
    pub log_start: Offset,
    /// Everything below is in synced segments; nothing above may be trusted there.
    pub synced_end: Offset,
    /// Base offset of the segment that holds the synced end.
    pub segment_base: Offset,
    /// Bytes of that segment up to the synced end.
    pub segment_bytes: u64,
    /// Bytes of its offset index up to the synced end.
    pub index_bytes: u32,
    /// Bytes of its time index.
    pub time_index_bytes: u32,
    /// Bytes of its transaction index.
    pub transaction_index_bytes: u32,
    /// Epoch history: epoch and its first offset.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// Producers known at the synced end.
    pub producers: Vec<ProducerRow>,
    /// Set for a partition that is offline.
    pub offline: Option<OfflineRow>,
}

impl PartitionRow {
    /// Sets the lengths of the index files.
    pub fn set_index_bytes(&mut self, bytes: IndexBytes) {
        self.index_bytes = bytes.offsets;
        self.time_index_bytes = bytes.times;
        self.transaction_index_bytes = bytes.aborted;
    }
}

/// One producer of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerRow {
    /// Producer id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Coordinator epoch of its last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// Wall clock of its last append, in milliseconds: what expiry goes by.
    pub last_append_ms: i64,
    /// Timestamp of its last record.
    pub last_timestamp_ms: i64,
    /// First offset of its open transaction.
    pub open_transaction_first_offset: Option<Offset>,
    /// Its last batches, oldest first, at most
    /// [`crate::limits::PRODUCER_BATCHES_REMEMBERED`].
    pub batches: Vec<ProducerBatchRow>,
}

/// One remembered batch of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerBatchRow {
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Last offset less base offset.
    pub offset_delta: i32,
    /// Largest record timestamp.
    pub max_timestamp_ms: i64,
    /// Wall clock of the append, in milliseconds.
    pub append_ms: i64,
}

/// Why a partition is offline, and where its evidence is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfflineRow {
    /// One sentence for the operator.
    pub reason: String,
    /// Synced bytes of its stranded file; 0 if it has none. Fewer found means damage.
    pub stranded_bytes: u64,
}

/// Why bytes are not an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageFault {
    /// Not an image, or cut short.
    #[error("not a checkpoint image")]
    Magic,
    /// Written by another version.
    #[error("checkpoint image format {0} is unknown")]
    Format(u16),
    /// Torn or damaged.
    #[error("the checkpoint image's checksum does not match")]
    Checksum,
    /// The checksum matches but the content makes no sense.
    #[error("row {row} of the checkpoint image cannot be read")]
    Row {
        /// Index of the row; the number of rows for what follows the last.
        row: u32,
    },
}

impl Image {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = ImageWriter::new(self.boot, self.shard);
        for row in &self.rows {
            writer.push(row);
        }
        writer.finish(self.start, self.clean)
    }

    /// Reads a whole image file.
    pub fn decode(bytes: &[u8]) -> Result<Image, ImageFault> {
        let magic = ImageFault::Magic;
        let (body, stored) = bytes.split_last_chunk::<8>().ok_or(magic)?;
        let mut cursor = Cursor::new(body);
        if cursor.u32() != Some(MAGIC) {
            return Err(magic);
        }
        let format = cursor.u16().ok_or(magic)?;
        if format != FORMAT {
            return Err(ImageFault::Format(format));
        }
        if u64::from_le_bytes(*stored) != xxh3_64(body) {
            return Err(ImageFault::Checksum);
        }
        let shard = ShardId(cursor.u16().ok_or(magic)?);
        let boot = BootNumber(cursor.u32().ok_or(magic)?);
        let count = cursor.u32().ok_or(magic)?;
        let point = JournalPoint {
            position: cursor.u64().ok_or(magic)?,
            sequence: JournalSequence(cursor.u64().ok_or(magic)?),
        };
        let durable_through = JournalSequence(cursor.u64().ok_or(magic)?);
        let clean = match cursor.u32().ok_or(magic)? {
            0 => false,
            1 => true,
            _ => return Err(ImageFault::Row { row: 0 }),
        };
        let mut rows = Vec::new();
        let mut seen = HashSet::new();
        for row in 0..count {
            let fault = ImageFault::Row { row };
            let length = cursor.u32().ok_or(fault)? as usize;
            let decoded = decode_row(cursor.take(length).ok_or(fault)?).ok_or(fault)?;
            if !seen.insert(decoded.tp) {
                return Err(fault);
            }
            rows.push(decoded);
        }
        if cursor.remaining() != 0 {
            return Err(ImageFault::Row { row: count });
        }
        Ok(Image { boot, shard, start: Start { point, durable_through }, clean, rows })
    }
}

/// Builds an image row by row, so that a checkpoint can be sliced.
#[derive(Debug)]
pub struct ImageWriter {
    bytes: Vec<u8>,
    rows: u32,
}

impl ImageWriter {
    /// An image without rows.
    #[must_use]
    pub fn new(boot: BootNumber, shard: ShardId) -> ImageWriter {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&shard.0.to_le_bytes());
        bytes.extend_from_slice(&boot.0.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        ImageWriter { bytes, rows: 0 }
    }

    /// Adds a partition. The same partition twice makes the image unreadable.
    pub fn push(&mut self, row: &PartitionRow) {
        self.push_encoded(&encode_row(row));
    }

    /// Adds a row that [`encode_row`] made: partitions that did not change keep theirs.
    pub fn push_encoded(&mut self, row: &[u8]) {
        let length = u32::try_from(row.len()).expect("invariant: a row is below 4 GiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(row);
        self.rows += 1;
    }

    /// The bytes of the file. `clean` promises that the shard's boot writes no block after `start`.
    #[must_use]
    pub fn finish(mut self, start: Start, clean: bool) -> Vec<u8> {
        self.bytes[12..16].copy_from_slice(&self.rows.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&start.point.position.to_le_bytes());
        self.bytes[24..32].copy_from_slice(&start.point.sequence.0.to_le_bytes());
        self.bytes[32..40].copy_from_slice(&start.durable_through.0.to_le_bytes());
        self.bytes[40..44].copy_from_slice(&u32::from(clean).to_le_bytes());
        let checksum = xxh3_64(&self.bytes);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

/// One row, without its length.
#[must_use]
pub fn encode_row(row: &PartitionRow) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + row.epochs.len() * 12 + row.producers.len() * 200);
    out.extend_from_slice(&row.tp.topic.0);
    out.extend_from_slice(&row.tp.partition.0.to_le_bytes());
    for offset in [row.log_start, row.synced_end, row.segment_base] {
        out.extend_from_slice(&offset.0.to_le_bytes());
    }
    out.extend_from_slice(&row.segment_bytes.to_le_bytes());
    for length in [row.index_bytes, row.time_index_bytes, row.transaction_index_bytes] {
        out.extend_from_slice(&length.to_le_bytes());
    }
    put_count(&mut out, row.epochs.len());
    for (epoch, start) in &row.epochs {
        out.extend_from_slice(&epoch.0.to_le_bytes());
        out.extend_from_slice(&start.0.to_le_bytes());
    }
    put_count(&mut out, row.producers.len());
    for producer in &row.producers {
        encode_producer(producer, &mut out);
    }
    match &row.offline {
        None => out.push(0),
        Some(offline) => {
            out.push(1);
            out.extend_from_slice(&offline.stranded_bytes.to_le_bytes());
            put_count(&mut out, offline.reason.len());
            out.extend_from_slice(offline.reason.as_bytes());
        }
    }
    out
}

fn encode_producer(producer: &ProducerRow, out: &mut Vec<u8>) {
    let open = producer.open_transaction_first_offset.unwrap_or(Offset(-1));
    out.extend_from_slice(&producer.id.0.to_le_bytes());
    out.extend_from_slice(&producer.epoch.0.to_le_bytes());
    out.extend_from_slice(&producer.coordinator_epoch.to_le_bytes());
    out.extend_from_slice(&producer.last_append_ms.to_le_bytes());
    out.extend_from_slice(&producer.last_timestamp_ms.to_le_bytes());
    out.extend_from_slice(&open.0.to_le_bytes());
    put_count(out, producer.batches.len());
    for batch in &producer.batches {
        out.extend_from_slice(&batch.last_sequence.to_le_bytes());
        out.extend_from_slice(&batch.last_offset.0.to_le_bytes());
        out.extend_from_slice(&batch.offset_delta.to_le_bytes());
        out.extend_from_slice(&batch.max_timestamp_ms.to_le_bytes());
        out.extend_from_slice(&batch.append_ms.to_le_bytes());
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("invariant: fewer than 2^32 items in a row");
    out.extend_from_slice(&count.to_le_bytes());
}

fn decode_row(bytes: &[u8]) -> Option<PartitionRow> {
    let mut cursor = Cursor::new(bytes);
    let tp = cursor.topic_partition()?;
    let log_start = offset(&mut cursor)?;
    let synced_end = offset(&mut cursor)?;
    let segment_base = offset(&mut cursor)?;
    let segment_bytes = cursor.u64()?;
    let index_bytes = cursor.u32()?;
    let time_index_bytes = cursor.u32()?;
    let transaction_index_bytes = cursor.u32()?;
    let count = cursor.count(EPOCH_BYTES)?;
    let mut epochs = Vec::with_capacity(count);
    for _ in 0..count {
        epochs.push((LeaderEpoch(cursor.i32()?), offset(&mut cursor)?));
    }
    let count = cursor.count(PRODUCER_BYTES)?;
    let mut producers = Vec::with_capacity(count);
    for _ in 0..count {
        producers.push(decode_producer(&mut cursor)?);
    }
    let offline = match cursor.u8()? {
        0 => None,
        1 => {
            let stranded_bytes = cursor.u64()?;
            let length = cursor.count(1)?;
            let reason = std::str::from_utf8(cursor.take(length)?).ok()?.to_owned();
            Some(OfflineRow { reason, stranded_bytes })
        }
        _ => return None,
    };
    (cursor.remaining() == 0).then_some(PartitionRow {
        tp,
        log_start,
        synced_end,
        segment_base,
        segment_bytes,
        index_bytes,
        time_index_bytes,
        transaction_index_bytes,
        epochs,
        producers,
        offline,
    })
}

fn decode_producer(cursor: &mut Cursor<'_>) -> Option<ProducerRow> {
    let id = ProducerId(cursor.i64()?);
    let epoch = ProducerEpoch(cursor.i16()?);
    let coordinator_epoch = cursor.i32()?;
    let last_append_ms = cursor.i64()?;
    let last_timestamp_ms = cursor.i64()?;
    let open = cursor.i64()?;
    let count = cursor.count(PRODUCER_BATCH_BYTES)?;
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        batches.push(ProducerBatchRow {
            last_sequence: cursor.i32()?,
            last_offset: offset(cursor)?,
            offset_delta: cursor.i32()?,
            max_timestamp_ms: cursor.i64()?,
            append_ms: cursor.i64()?,
        });
    }
    Some(ProducerRow {
        id,
        epoch,
        coordinator_epoch,
        last_append_ms,
        last_timestamp_ms,
        open_transaction_first_offset: (open >= 0).then_some(Offset(open)),
        batches,
    })
}

/// Offsets on disk are never negative.
fn offset(cursor: &mut Cursor<'_>) -> Option<Offset> {
    cursor.i64().filter(|&value| value >= 0).map(Offset)
}

const MAGIC: u32 = u32::from_le_bytes(*b"RLim");
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 44;
const EPOCH_BYTES: usize = 12;
const PRODUCER_BYTES: usize = 42;
const PRODUCER_BATCH_BYTES: usize = 32;

#[cfg(test)]
mod tests;
