//! Writer of batches that the broker makes itself: internal topics, compaction, tests.
//!
//! Owns the way from records to one sealed batch. Writes what Kafka's clients write: base
//! timestamp of the first record, offsets counted from 0 unless the caller keeps gaps, CRC last.
//! Must never be given data from a client to repair: those batches are kept as they were sent.
//! Source: Kafka's `MemoryRecordsBuilder`.

use crate::batch::compression::{Compression, CompressionTarget, Deflated, Deflater};
use crate::batch::header::{
    BatchHeader, CONTROL_BIT, DELETE_HORIZON_BIT, FRAME_BYTES, HEADER_BYTES, LOG_APPEND_TIME_BIT,
    NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT, seal,
};
use crate::batch::records::write_varlong;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// A header of a record: key and nullable value.
pub type RecordHeader<'a> = (&'a [u8], Option<&'a [u8]>);

/// Collects records and writes them as one batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: CompressionTarget,
    records: Vec<u8>,
    /// One record without its size, reused.
    body: Vec<u8>,
    next_offset_delta: i32,
    has_fixed_max_timestamp: bool,
}

impl BatchBuilder {
    /// An empty batch at offset 0, without a producer, with the records compressed like this.
    /// [`CompressionTarget::Producer`] means uncompressed.
    #[must_use]
    pub fn new(compression: CompressionTarget) -> BatchBuilder {
        BatchBuilder {
            header: BatchHeader {
                base_offset: Offset(0),
                batch_length: 0,
                leader_epoch: LeaderEpoch(-1),
                crc: 0,
                attributes: i16::from(compression.codec(Compression::None).id()),
                last_offset_delta: -1,
                base_timestamp: NO_TIMESTAMP,
                max_timestamp: NO_TIMESTAMP,
                producer_id: ProducerId(-1),
                producer_epoch: ProducerEpoch(-1),
                base_sequence: NO_SEQUENCE,
                record_count: 0,
            },
            compression,
            records: Vec::new(),
            body: Vec::new(),
            next_offset_delta: 0,
            has_fixed_max_timestamp: false,
        }
    }

    /// Sets the place in the log.
    #[must_use]
    pub fn at(mut self, base_offset: Offset, leader_epoch: LeaderEpoch) -> BatchBuilder {
        self.header.base_offset = base_offset;
        self.header.leader_epoch = leader_epoch;
        self
    }

    /// Sets the producer; a negative base sequence means none, as in batches of a coordinator.
    #[must_use]
    pub fn producer(
        mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: i32,
    ) -> BatchBuilder {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Marks the batch as part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> BatchBuilder {
        self.header.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// Marks the batch as a control batch.
    #[must_use]
    pub fn control(mut self) -> BatchBuilder {
        self.header.attributes |= CONTROL_BIT;
        self
    }

    /// Makes `now_ms` the timestamp of every record.
    #[must_use]
    pub fn log_append_time(mut self, now_ms: i64) -> BatchBuilder {
        self.header.attributes |= LOG_APPEND_TIME_BIT;
        self.header.max_timestamp = now_ms;
        self.has_fixed_max_timestamp = true;
        self
    }

    /// Sets the time after which tombstones and markers of the batch may go. It takes the place
    /// of the base timestamp, so it must come before the first record.
    #[must_use]
    pub fn delete_horizon(mut self, horizon_ms: i64) -> BatchBuilder {
        self.header.attributes |= DELETE_HORIZON_BIT;
        self.header.base_timestamp = horizon_ms;
        self
    }

    /// Appends a record at the next offset.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        self.push_at(self.next_offset_delta, timestamp_ms, key, value, headers);
    }

    /// Appends a record at this distance from the base offset, which must rise: compaction keeps
    /// the offsets of the records it keeps.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        assert!(
            offset_delta >= self.next_offset_delta,
            "offset delta {offset_delta} after {}",
            self.next_offset_delta
        );
        let header = &mut self.header;
        if header.record_count == 0 && header.delete_horizon_ms().is_none() {
            header.base_timestamp = timestamp_ms;
        }
        if !self.has_fixed_max_timestamp {
            header.max_timestamp = header.max_timestamp.max(timestamp_ms);
        }
        let body = &mut self.body;
        body.clear();
        body.push(0);
        write_varlong(timestamp_ms.wrapping_sub(header.base_timestamp), body);
        write_varlong(i64::from(offset_delta), body);
        write_nullable(key, body);
        write_nullable(value, body);
        write_varlong(headers.len() as i64, body);
        for (name, value) in headers {
            write_nullable(Some(name), body);
            write_nullable(*value, body);
        }
        write_varlong(body.len() as i64, &mut self.records);
        self.records.extend_from_slice(body);
        header.record_count += 1;
        header.last_offset_delta = header.last_offset_delta.max(offset_delta);
        self.next_offset_delta = offset_delta.saturating_add(1);
    }

    /// Keeps the end of a batch whose last records were dropped.
    #[must_use]
    pub fn last_offset_delta(mut self, delta: i32) -> BatchBuilder {
        self.header.last_offset_delta = self.header.last_offset_delta.max(delta);
        self
    }

    /// Number of records so far.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Bytes of the batch if it were finished now and not compressed.
    #[must_use]
    pub fn uncompressed_bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// The sealed batch.
    ///
    /// # Panics
    /// If a codec gets no memory.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let prefix = vec![0; HEADER_BYTES];
        let deflated = Deflater::new(self.compression, prefix, usize::MAX).and_then(|mut out| {
            out.write(&self.records)?;
            out.finish()
        });
        let Deflated { bytes, .. } =
            deflated.expect("invariant: compressing into memory does not fail");
        finish_batch(self.header, bytes)
    }
}

/// Puts `header` with its true length and CRC in front of the records in `batch`, which leaves
/// room for it.
///
/// # Panics
/// If there is no room, or the batch is 2 GiB.
pub fn finish_batch(mut header: BatchHeader, mut batch: Vec<u8>) -> Vec<u8> {
    header.batch_length =
        i32::try_from(batch.len() - FRAME_BYTES).expect("invariant: a batch is shorter than 2 GiB");
    let raw =
        batch.first_chunk_mut::<HEADER_BYTES>().expect("invariant: room was left for the header");
    *raw = header.to_bytes();
    seal(&mut batch);
    batch
}

fn write_nullable(field: Option<&[u8]>, out: &mut Vec<u8>) {
    match field {
        Some(bytes) => {
            write_varlong(bytes.len() as i64, out);
            out.extend_from_slice(bytes);
        }
        None => write_varlong(-1, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::records::Records;

    #[test]
    fn a_batch_of_two_records_byte_for_byte() {
        let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed)
            .at(Offset(5), LeaderEpoch(2))
            .producer(ProducerId(1), ProducerEpoch(0), 0)
            .transactional();
        builder.push(1000, Some(b"k"), Some(b"v"), &[(b"h", Some(b"1")), (b"h", None)]);
        builder.push(999, None, None, &[]);
        assert_eq!((builder.record_count(), builder.uncompressed_bytes()), (2, 84));
        let batch = builder.finish();
        let header = BatchHeader::read_verified(&batch).expect("sealed");
        assert_eq!(header.total_bytes(), 84);
        assert_eq!(header.attributes, 0x10);
        assert_eq!((header.base_timestamp, header.max_timestamp), (1000, 1000));
        assert_eq!((header.last_offset_delta, header.record_count), (1, 2));
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(5), LeaderEpoch(2)));
        let expected: [u8; 23] = [
            0x1E, 0, 0, 0, 2, b'k', 2, b'v', 4, 2, b'h', 2, b'1', 2, b'h', 1, // first
            0x0C, 0, 1, 2, 1, 1, 0, // second, one millisecond earlier
        ];
        assert_eq!(batch[HEADER_BYTES..], expected);
    }

    #[test]
    fn compaction_keeps_offsets_end_and_horizon() {
        let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed)
            .delete_horizon(5000)
            .last_offset_delta(9);
        builder.push_at(3, 1000, Some(b"a"), None, &[]);
        builder.push_at(7, 1001, Some(b"b"), None, &[]);
        let batch = builder.finish();
        let header = BatchHeader::read_verified(&batch).expect("sealed");
        assert_eq!(header.delete_horizon_ms(), Some(5000));
        assert_eq!((header.last_offset_delta, header.record_count), (9, 2));
        assert_eq!(header.max_timestamp, 1001);
        let seen: Vec<_> = Records::new(&batch[HEADER_BYTES..], 2)
            .map(|record| record.expect("good"))
            .map(|r| (r.offset_delta, header.record_timestamp(r.timestamp_delta)))
            .collect();
        assert_eq!(seen, [(3, 1000), (7, 1001)]);
    }

    #[test]
    fn an_empty_batch_and_append_time() {
        let batch = BatchBuilder::new(CompressionTarget::Uncompressed).log_append_time(77).finish();
        let header = BatchHeader::read_verified(&batch).expect("sealed");
        assert_eq!((header.record_count, header.last_offset_delta), (0, -1));
        assert_eq!((header.attributes, header.max_timestamp), (8, 77));
    }
}
