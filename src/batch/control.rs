//! Commit and abort markers: the control batches that end a transaction in a partition.
//!
//! Owns their bytes, always 78: one record, never compressed, one offset. Reading tolerates what a
//! log may hold: control batches that compaction emptied, and types this broker does not write.
//! Source: KIP-98, Kafka's `EndTransactionMarker` and `ControlRecordType`.

use crate::batch::header::{
    BatchFault, BatchHeader, CONTROL_BIT, FRAME_BYTES, HEADER_BYTES, LOG_APPEND_TIME_BIT,
    NO_SEQUENCE, TRANSACTIONAL_BIT, TimestampType, seal,
};
use crate::batch::records::{RecordFault, Records};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Size of a marker batch.
pub const MARKER_BYTES: usize = 78;

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MarkerKind {
    /// Its records are dropped by readers of committed data.
    Abort,
    /// Its records become visible.
    Commit,
}

/// A marker, as the coordinator orders it and as the log keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Commit or abort.
    pub kind: MarkerKind,
    /// The producer whose transaction ends.
    pub producer_id: ProducerId,
    /// Its epoch, raised already where the protocol raises it at the end.
    pub producer_epoch: ProducerEpoch,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
    /// Broker clock.
    pub timestamp_ms: i64,
}

impl Marker {
    /// The marker as a batch.
    #[must_use]
    pub fn to_batch(
        &self,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
        timestamp_type: TimestampType,
    ) -> [u8; MARKER_BYTES] {
        let append_time = match timestamp_type {
            TimestampType::CreateTime => 0,
            TimestampType::LogAppendTime => LOG_APPEND_TIME_BIT,
        };
        let header = BatchHeader {
            base_offset,
            batch_length: (MARKER_BYTES - FRAME_BYTES) as i32,
            leader_epoch,
            crc: 0,
            attributes: TRANSACTIONAL_BIT | CONTROL_BIT | append_time,
            last_offset_delta: 0,
            base_timestamp: self.timestamp_ms,
            max_timestamp: self.timestamp_ms,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: NO_SEQUENCE,
            record_count: 1,
        };
        let kind = match self.kind {
            MarkerKind::Abort => ABORT,
            MarkerKind::Commit => COMMIT,
        };
        let [_, kind_byte] = kind.to_be_bytes();
        let [c0, c1, c2, c3] = self.coordinator_epoch.to_be_bytes();
        let record: [u8; MARKER_BYTES - HEADER_BYTES] = [
            0x20, 0, 0, 0, // size 16, attributes, both deltas
            0x08, 0, 0, 0, kind_byte, // key: version 0, type
            0x0C, 0, 0, c0, c1, c2, c3, // value: version 0, coordinator epoch
            0,  // no headers
        ];
        let mut batch = [0; MARKER_BYTES];
        let (head, tail) = batch.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.to_bytes());
        tail.copy_from_slice(&record);
        seal(&mut batch);
        batch
    }

    /// The marker in a control batch: its header, and the record bytes after the header. `None`
    /// for an emptied batch or a type that is neither commit nor abort.
    ///
    /// # Errors
    /// [`BatchFault::Record`] if the record is malformed.
    pub fn read(header: &BatchHeader, records: &[u8]) -> Result<Option<Marker>, BatchFault> {
        let Some(record) = Records::new(records, header.record_count).next() else {
            return Ok(None);
        };
        let record = record?;
        let key = record.key.unwrap_or(&[]);
        let kind = match read_i16(key.get(2..).unwrap_or(&[]))? {
            ABORT => MarkerKind::Abort,
            COMMIT => MarkerKind::Commit,
            _ => return Ok(None),
        };
        // A later version of key or value may be longer, but starts the same.
        let value = record.value.unwrap_or(&[]);
        if read_i16(key)? < 0 || read_i16(value)? < 0 {
            return Err(RecordFault::Truncated.into());
        }
        let epoch = value.get(2..).and_then(|rest| rest.first_chunk::<4>());
        Ok(Some(Marker {
            kind,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            coordinator_epoch: i32::from_be_bytes(*epoch.ok_or(RecordFault::Truncated)?),
            timestamp_ms: header.record_timestamp(record.timestamp_delta),
        }))
    }
}

fn read_i16(bytes: &[u8]) -> Result<i16, RecordFault> {
    let chunk = bytes.first_chunk::<2>().ok_or(RecordFault::Truncated)?;
    Ok(i16::from_be_bytes(*chunk))
}

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::build::BatchBuilder;
    use crate::batch::compression::CompressionTarget;

    const MARKER: Marker = Marker {
        kind: MarkerKind::Commit,
        producer_id: ProducerId(0x0102),
        producer_epoch: ProducerEpoch(5),
        coordinator_epoch: 7,
        timestamp_ms: 0x0304,
    };

    #[test]
    fn a_marker_is_78_known_bytes() {
        let batch = MARKER.to_batch(Offset(9), LeaderEpoch(3), TimestampType::CreateTime);
        let mut expected = Vec::new();
        expected.extend_from_slice(&9_i64.to_be_bytes());
        expected.extend_from_slice(&66_i32.to_be_bytes());
        expected.extend_from_slice(&3_i32.to_be_bytes());
        expected.push(2);
        expected.extend_from_slice(&crate::batch::crc::batch_crc(&batch).to_be_bytes());
        expected.extend_from_slice(&[0x00, 0x30, 0, 0, 0, 0]);
        expected.extend_from_slice(&0x0304_i64.to_be_bytes());
        expected.extend_from_slice(&0x0304_i64.to_be_bytes());
        expected.extend_from_slice(&0x0102_i64.to_be_bytes());
        expected.extend_from_slice(&[0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1]);
        expected.extend_from_slice(&[0x20, 0, 0, 0, 0x08, 0, 0, 0, 1, 0x0C, 0, 0, 0, 0, 0, 7, 0]);
        assert_eq!(batch.to_vec(), expected);
    }

    #[test]
    fn markers_are_read_back() {
        for kind in [MarkerKind::Abort, MarkerKind::Commit] {
            for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
                let marker = Marker { kind, ..MARKER };
                let batch = marker.to_batch(Offset(0), LeaderEpoch(0), timestamp_type);
                let header = BatchHeader::read_verified(&batch).expect("sealed");
                assert_eq!(header.timestamp_type(), timestamp_type);
                assert!(header.is_control() && header.is_transactional());
                let read = Marker::read(&header, &batch[HEADER_BYTES..]);
                assert_eq!(read, Ok(Some(marker)));
            }
        }
    }

    #[test]
    fn the_builder_writes_the_same_bytes() {
        let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed)
            .at(Offset(9), LeaderEpoch(3))
            .producer(MARKER.producer_id, MARKER.producer_epoch, NO_SEQUENCE)
            .transactional()
            .control();
        let key = [0, 0, 0, 1];
        builder.push(0x0304, Some(&key), Some(&[0, 0, 0, 0, 0, 7]), &[]);
        let marker = MARKER.to_batch(Offset(9), LeaderEpoch(3), TimestampType::CreateTime);
        assert_eq!(builder.finish(), marker);
    }

    #[test]
    fn what_is_not_a_marker_is_told() {
        let check = |key: &[u8], value: &[u8], expected: Result<Option<Marker>, BatchFault>| {
            let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed).control();
            builder.push(1, Some(key), Some(value), &[]);
            let batch = builder.finish();
            let header = BatchHeader::read(&batch).expect("good header");
            assert_eq!(Marker::read(&header, &batch[HEADER_BYTES..]), expected);
        };
        let cut = || Err(BatchFault::Record(RecordFault::Truncated));
        check(&[0, 0, 0, 2], &[], Ok(None));
        check(&[0, 0, 0], &[0; 6], cut());
        check(&[0, 0, 0, 1], &[0; 5], cut());
        check(&[0xFF, 0xFF, 0, 1], &[0; 6], cut());
        let longer = Marker {
            kind: MarkerKind::Commit,
            producer_id: ProducerId(-1),
            producer_epoch: ProducerEpoch(-1),
            coordinator_epoch: 4,
            timestamp_ms: 1,
        };
        check(&[0, 1, 0, 1, 9], &[0, 1, 0, 0, 0, 4, 9], Ok(Some(longer)));
        let empty = BatchBuilder::new(CompressionTarget::Uncompressed).control().finish();
        let header = BatchHeader::read(&empty).expect("good header");
        assert_eq!(Marker::read(&header, &[]), Ok(None));
    }
}
