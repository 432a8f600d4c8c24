//! The 61 header bytes of a record batch: reading, writing and patching in place.
//!
//! Owns the layout. Reading checks structure only (length, magic); the CRC is `crc.rs`'s and the
//! rules of Produce are `validate.rs`'s. Base offset and leader epoch lie outside the CRC and are
//! patched freely; every other patch here repairs the CRC itself. Zeroes are told from a batch by
//! the whole header, never by a checksum of zero, which a good batch may have.
//! Source: Kafka's `DefaultRecordBatch`.

use crate::batch::compression::{Compression, InflateFault};
use crate::batch::crc::{batch_crc, crc_matches};
use crate::batch::records::RecordFault;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Size of a batch header.
pub const HEADER_BYTES: usize = 61;

/// Bytes of a batch that its length field does not count.
pub const FRAME_BYTES: usize = 12;

/// The magic of every batch Ringlog keeps.
pub const MAGIC: i8 = 2;

/// Timestamp of a record or batch that has none.
pub const NO_TIMESTAMP: i64 = -1;

/// Base sequence of a batch without a producer id.
pub const NO_SEQUENCE: i32 = -1;

/// What the timestamps of a batch mean.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimestampType {
    /// Each record carries the time its producer gave it.
    CreateTime,
    /// Every record has the batch's largest timestamp, which the broker set.
    LogAppendTime,
}

/// Why bytes are not a readable batch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchFault {
    /// Fewer bytes than a header, or than the header's length asks for.
    #[error("{have} bytes where a batch needs {need}")]
    Short {
        /// Bytes that are there.
        have: usize,
        /// Bytes that are needed.
        need: usize,
    },
    /// A length field below the size of an empty batch.
    #[error("batch length {0} is below the size of an empty batch")]
    Length(i32),
    /// A magic other than 2.
    #[error("magic {0} is not 2")]
    Magic(i8),
    /// The CRC does not fit the bytes.
    #[error("stored crc {stored:#010x}, computed crc {computed:#010x}")]
    Crc {
        /// CRC in the header.
        stored: u32,
        /// CRC of the bytes.
        computed: u32,
    },
    /// A codec id without a codec.
    #[error("unknown compression codec {0}")]
    Codec(u8),
    /// The compressed records do not inflate.
    #[error(transparent)]
    Inflate(#[from] InflateFault),
    /// A record is malformed.
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// All fields of a batch header except the magic, which is always 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes of the batch after the length field.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type and flags.
    pub attributes: i16,
    /// Offset of the last record, counted from the base offset.
    pub last_offset_delta: i32,
    /// Timestamp the records' deltas count from, or the delete horizon.
    pub base_timestamp: i64,
    /// Largest record timestamp, or the append time.
    pub max_timestamp: i64,
    /// Id of an idempotent producer, or -1.
    pub producer_id: ProducerId,
    /// Epoch of that producer, or -1.
    pub producer_epoch: ProducerEpoch,
    /// Sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, of which only the header need be there. Checks
    /// magic and length, not the CRC.
    ///
    /// # Errors
    /// [`BatchFault::Short`], [`BatchFault::Length`] or [`BatchFault::Magic`].
    pub fn read(bytes: &[u8]) -> Result<BatchHeader, BatchFault> {
        let Some(raw) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchFault::Short { have: bytes.len(), need: HEADER_BYTES });
        };
        let magic = i8::from_be_bytes(field::<MAGIC_AT, 1>(raw));
        if magic != MAGIC {
            return Err(BatchFault::Magic(magic));
        }
        let header = BatchHeader::from_bytes(raw);
        if header.batch_length < BATCH_LENGTH_MIN {
            return Err(BatchFault::Length(header.batch_length));
        }
        Ok(header)
    }

    /// Reads the batch at the start of `bytes` and checks that it is whole and its CRC right.
    ///
    /// # Errors
    /// Those of [`BatchHeader::read`], [`BatchFault::Short`] for a cut batch, [`BatchFault::Crc`].
    pub fn read_verified(bytes: &[u8]) -> Result<BatchHeader, BatchFault> {
        let header = BatchHeader::read(bytes)?;
        let Some(batch) = bytes.get(..header.total_bytes()) else {
            return Err(BatchFault::Short { have: bytes.len(), need: header.total_bytes() });
        };
        if !crc_matches(batch) {
            return Err(BatchFault::Crc { stored: header.crc, computed: batch_crc(batch) });
        }
        Ok(header)
    }

    /// The fields of raw header bytes, whatever they hold.
    #[must_use]
    pub fn from_bytes(raw: &[u8; HEADER_BYTES]) -> BatchHeader {
        BatchHeader {
            base_offset: Offset(i64::from_be_bytes(field::<0, 8>(raw))),
            batch_length: i32::from_be_bytes(field::<8, 4>(raw)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(field::<LEADER_EPOCH_AT, 4>(raw))),
            crc: u32::from_be_bytes(field::<CRC_AT, 4>(raw)),
            attributes: i16::from_be_bytes(field::<ATTRIBUTES_AT, 2>(raw)),
            last_offset_delta: i32::from_be_bytes(field::<23, 4>(raw)),
            base_timestamp: i64::from_be_bytes(field::<27, 8>(raw)),
            max_timestamp: i64::from_be_bytes(field::<MAX_TIMESTAMP_AT, 8>(raw)),
            producer_id: ProducerId(i64::from_be_bytes(field::<43, 8>(raw))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field::<51, 2>(raw))),
            base_sequence: i32::from_be_bytes(field::<53, 4>(raw)),
            record_count: i32::from_be_bytes(field::<57, 4>(raw)),
        }
    }

    /// The header as bytes, with the CRC it carries.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        put::<0, 8>(&mut raw, self.base_offset.0.to_be_bytes());
        put::<8, 4>(&mut raw, self.batch_length.to_be_bytes());
        put::<LEADER_EPOCH_AT, 4>(&mut raw, self.leader_epoch.0.to_be_bytes());
        put::<MAGIC_AT, 1>(&mut raw, MAGIC.to_be_bytes());
        put::<CRC_AT, 4>(&mut raw, self.crc.to_be_bytes());
        put::<ATTRIBUTES_AT, 2>(&mut raw, self.attributes.to_be_bytes());
        put::<23, 4>(&mut raw, self.last_offset_delta.to_be_bytes());
        put::<27, 8>(&mut raw, self.base_timestamp.to_be_bytes());
        put::<MAX_TIMESTAMP_AT, 8>(&mut raw, self.max_timestamp.to_be_bytes());
        put::<43, 8>(&mut raw, self.producer_id.0.to_be_bytes());
        put::<51, 2>(&mut raw, self.producer_epoch.0.to_be_bytes());
        put::<53, 4>(&mut raw, self.base_sequence.to_be_bytes());
        put::<57, 4>(&mut raw, self.record_count.to_be_bytes());
        raw
    }

    /// Size of the whole batch, header included.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        FRAME_BYTES.saturating_add(usize::try_from(self.batch_length).unwrap_or(0))
    }

    /// The codec of the records, or `None` for an id without a codec.
    #[must_use]
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_id(self.compression_id())
    }

    /// The codec id as it stands in the attributes.
    #[must_use]
    pub fn compression_id(&self) -> u8 {
        (self.attributes & COMPRESSION_MASK) as u8
    }

    /// What the timestamps mean.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether the batch holds a control record instead of data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Time after which tombstones and markers of this batch may be dropped, if it was set.
    #[must_use]
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    /// Whether an idempotent producer sent the batch.
    #[must_use]
    pub fn has_producer_id(&self) -> bool {
        self.producer_id.0 > -1
    }

    /// Offset of the last record, or of the last one that ever was in the batch.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    /// Offset after the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    /// Sequence number of the last record; after 2147483647 comes 0. -1 without a producer.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        let sum = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        // Dropping the sign bit is the wrap from 2^31 - 1 to 0.
        (sum & i64::from(i32::MAX)) as i32
    }

    /// Offset of the record with this delta.
    #[must_use]
    pub fn record_offset(&self, offset_delta: i32) -> Offset {
        self.base_offset.plus(i64::from(offset_delta))
    }

    /// Timestamp a reader sees on the record with this delta.
    #[must_use]
    pub fn record_timestamp(&self, timestamp_delta: i64) -> i64 {
        match self.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp.wrapping_add(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    /// The attributes with the given timestamp type and no bits that have no meaning, as Kafka
    /// writes them whenever it rewrites a header.
    #[must_use]
    pub(super) fn attributes_with(&self, timestamp_type: TimestampType) -> i16 {
        let kept = self.attributes & KNOWN_BITS & !LOG_APPEND_TIME_BIT;
        match timestamp_type {
            TimestampType::CreateTime => kept,
            TimestampType::LogAppendTime => kept | LOG_APPEND_TIME_BIT,
        }
    }
}

/// Base offset and total size of the frame at the start of `bytes`, for stepping over a log
/// without reading headers. `None` if its length cannot be a batch's or the first 12 bytes are
/// not all there; the frame itself may reach beyond `bytes`.
#[must_use]
pub fn peek_frame(bytes: &[u8]) -> Option<(Offset, usize)> {
    let (offset, rest) = bytes.split_first_chunk::<8>()?;
    let length = i32::from_be_bytes(*rest.first_chunk::<4>()?);
    if length < BATCH_LENGTH_MIN {
        return None;
    }
    let total = FRAME_BYTES.saturating_add(usize::try_from(length).ok()?);
    Some((Offset(i64::from_be_bytes(*offset)), total))
}

/// Whether bytes that may be a batch say that they are part of a transaction.
#[must_use]
pub fn peek_transactional(bytes: &[u8]) -> bool {
    let header = bytes.first_chunk::<HEADER_BYTES>();
    header.is_some_and(|raw| {
        i8::from_be_bytes(field::<MAGIC_AT, 1>(raw)) == MAGIC
            && BatchHeader::from_bytes(raw).is_transactional()
    })
}

/// Whether what stands where a header would stand is zero throughout: the end of a log in a
/// preallocated file. Fewer bytes than a header are judged by what is there.
#[must_use]
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().take(HEADER_BYTES).all(|&byte| byte == 0)
}

/// Gives the batch its place in the log. Both fields lie outside the CRC.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_base_offset(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    let raw = header_of(batch);
    put::<0, 8>(raw, base_offset.0.to_be_bytes());
    put::<LEADER_EPOCH_AT, 4>(raw, leader_epoch.0.to_be_bytes());
}

/// Makes `now_ms` the timestamp of every record of `batch`, one whole batch, and repairs the CRC.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_log_append_time(batch: &mut [u8], now_ms: i64) {
    set_timestamps(batch, TimestampType::LogAppendTime, now_ms);
}

/// Sets the largest timestamp of `batch`, one whole batch of the producer's timestamps, and
/// repairs the CRC.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_max_timestamp(batch: &mut [u8], max_timestamp: i64) {
    set_timestamps(batch, TimestampType::CreateTime, max_timestamp);
}

/// Writes the CRC of `batch`, one whole batch, into it.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn seal(batch: &mut [u8]) {
    let crc = batch_crc(batch);
    put::<CRC_AT, 4>(header_of(batch), crc.to_be_bytes());
}

fn set_timestamps(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: i64) {
    let raw = header_of(batch);
    let attributes = BatchHeader::from_bytes(raw).attributes_with(timestamp_type);
    put::<ATTRIBUTES_AT, 2>(raw, attributes.to_be_bytes());
    put::<MAX_TIMESTAMP_AT, 8>(raw, max_timestamp.to_be_bytes());
    seal(batch);
}

fn header_of(batch: &mut [u8]) -> &mut [u8; HEADER_BYTES] {
    batch.first_chunk_mut::<HEADER_BYTES>().expect("invariant: a batch to patch has a whole header")
}

fn field<const AT: usize, const N: usize>(raw: &[u8; HEADER_BYTES]) -> [u8; N] {
    const { assert!(AT + N <= HEADER_BYTES) };
    let mut bytes = [0; N];
    bytes.copy_from_slice(raw.split_at(AT).1.split_at(N).0);
    bytes
}

fn put<const AT: usize, const N: usize>(raw: &mut [u8; HEADER_BYTES], bytes: [u8; N]) {
    const { assert!(AT + N <= HEADER_BYTES) };
    raw.split_at_mut(AT).1.split_at_mut(N).0.copy_from_slice(&bytes);
}

pub(super) const MAGIC_AT: usize = 16;
pub(super) const CRC_AT: usize = 17;
pub(super) const CRC_COVERS_FROM: usize = ATTRIBUTES_AT;
pub(super) const ATTRIBUTES_AT: usize = 21;
const LEADER_EPOCH_AT: usize = 12;
const MAX_TIMESTAMP_AT: usize = 35;

/// The length field of a batch without records.
const BATCH_LENGTH_MIN: i32 = (HEADER_BYTES - FRAME_BYTES) as i32;

pub(super) const COMPRESSION_MASK: i16 = 0x07;
pub(super) const LOG_APPEND_TIME_BIT: i16 = 0x08;
pub(super) const TRANSACTIONAL_BIT: i16 = 0x10;
pub(super) const CONTROL_BIT: i16 = 0x20;
pub(super) const DELETE_HORIZON_BIT: i16 = 0x40;
const KNOWN_BITS: i16 = 0x7F;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BatchHeader {
        BatchHeader {
            base_offset: Offset(0x0102_0304_0506_0708),
            batch_length: 49,
            leader_epoch: LeaderEpoch(7),
            crc: 0xDEAD_BEEF,
            attributes: 0x001B,
            last_offset_delta: 4,
            base_timestamp: 1000,
            max_timestamp: 2000,
            producer_id: ProducerId(9),
            producer_epoch: ProducerEpoch(3),
            base_sequence: i32::MAX - 1,
            record_count: 5,
        }
    }

    #[test]
    fn every_field_survives_and_stands_where_the_format_says() {
        let raw = sample().to_bytes();
        assert_eq!(BatchHeader::read(&raw), Ok(sample()));
        let expected = concat!(
            "0102030405060708",
            "00000031",
            "00000007",
            "02",
            "deadbeef",
            "001b",
            "00000004",
            "00000000000003e8",
            "00000000000007d0",
            "0000000000000009",
            "0003",
            "7ffffffe",
            "00000005"
        );
        let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn attributes_and_derived_numbers() {
        let header = sample();
        assert_eq!(header.total_bytes(), 61);
        assert_eq!(header.compression(), Some(Compression::Lz4));
        assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
        assert!(header.is_transactional());
        assert!(!header.is_control());
        assert_eq!(header.delete_horizon_ms(), None);
        assert_eq!(header.last_offset(), Offset(0x0102_0304_0506_070C));
        assert_eq!(header.next_offset(), Offset(0x0102_0304_0506_070D));
        assert_eq!(header.record_timestamp(5), 2000);
        // 2147483646 + 4 passes 2147483647, which is followed by 0.
        assert_eq!(header.last_sequence(), 2);
        let plain = BatchHeader { attributes: 0x45, base_sequence: NO_SEQUENCE, ..header };
        assert_eq!(plain.compression(), None);
        assert_eq!(plain.compression_id(), 5);
        assert_eq!(plain.delete_horizon_ms(), Some(1000));
        assert_eq!(plain.last_sequence(), -1);
        assert_eq!(plain.record_timestamp(5), 1005);
    }

    #[test]
    fn structure_faults_are_named() {
        let raw = sample().to_bytes();
        assert_eq!(BatchHeader::read(&raw[..60]), Err(BatchFault::Short { have: 60, need: 61 }));
        let mut old = raw;
        old[16] = 1;
        assert_eq!(BatchHeader::read(&old), Err(BatchFault::Magic(1)));
        let mut small = raw;
        small[11] = 48;
        assert_eq!(BatchHeader::read(&small), Err(BatchFault::Length(48)));
        let mut negative = raw;
        negative[8] = 0x80;
        assert_eq!(BatchHeader::read(&negative), Err(BatchFault::Length(i32::MIN + 49)));
        assert_eq!(
            BatchHeader::read_verified(&raw),
            Err(BatchFault::Crc { stored: 0xDEAD_BEEF, computed: batch_crc(&raw) })
        );
    }

    #[test]
    fn frames_are_peeked_and_blank_space_is_told_from_them() {
        let raw = sample().to_bytes();
        assert_eq!(peek_frame(&raw[..12]), Some((Offset(0x0102_0304_0506_0708), 61)));
        assert_eq!(peek_frame(&raw[..11]), None);
        assert_eq!(peek_frame(&[0; 61]), None);
        assert_eq!(peek_frame(&[0xFF; 61]), None);
        assert!(is_blank(&[0; 61]));
        assert!(!is_blank(&raw));
        let mut last = [0; 61];
        last[60] = 1;
        assert!(!is_blank(&last));
    }

    #[test]
    fn transactional_batches_are_told_before_they_are_read() {
        let mut raw = sample().to_bytes();
        assert!(peek_transactional(&raw));
        assert!(!peek_transactional(&raw[..60]), "cut short");
        raw[16] = 1;
        assert!(!peek_transactional(&raw), "another format");
        raw[16] = 2;
        raw[22] &= !0x10;
        assert!(!peek_transactional(&raw));
    }

    #[test]
    fn patches_keep_the_crc_right() {
        let mut raw = sample().to_bytes();
        raw[22] = 0;
        seal(&mut raw);
        let sealed = BatchHeader::read_verified(&raw).expect("sealed");
        set_base_offset(&mut raw, Offset(55), LeaderEpoch(8));
        let moved = BatchHeader::read_verified(&raw).expect("moved");
        assert_eq!((moved.base_offset, moved.leader_epoch), (Offset(55), LeaderEpoch(8)));
        assert_eq!(moved.crc, sealed.crc);
        set_log_append_time(&mut raw, 77);
        let appended = BatchHeader::read_verified(&raw).expect("appended");
        assert_eq!((appended.attributes, appended.max_timestamp), (0x08, 77));
        set_max_timestamp(&mut raw, 78);
        let created = BatchHeader::read_verified(&raw).expect("created");
        assert_eq!((created.attributes, created.max_timestamp), (0, 78));
    }
}
