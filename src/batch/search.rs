//! Search for a record by its timestamp in one batch, as its records inflate.
//!
//! Owns the walk over the records of a stored batch. Must never hold them inflated: a small batch
//! may inflate to a great deal. Source: Kafka's `RecordBatch.iterator`, `FileRecords
//! .searchForTimestamp`.

use std::task::Poll;

use bytes::Bytes;

use super::compression::{INFLATE_BUFFER_BYTES, Inflater};
use super::header::{BatchFault, BatchHeader, HEADER_BYTES};
use super::records::RecordFault;
use super::scan::StreamScanner;
use crate::ids::Offset;
use crate::limits::INFLATED_BATCH_BYTES_MAX;

/// The search in one batch.
pub struct TimestampSearch {
    header: BatchHeader,
    inflater: Inflater,
    scanner: StreamScanner,
    buffer: Vec<u8>,
    records_left: i32,
    timestamp: i64,
    log_start: Offset,
}

/// Timestamp and offset of a record.
pub type Found = (i64, Offset);

impl TimestampSearch {
    /// For the first record from `log_start` on that is not older than `timestamp`, in a whole
    /// batch with this header.
    ///
    /// # Errors
    /// The batch is cut, or has an unknown codec.
    pub fn start(
        header: &BatchHeader,
        batch: &Bytes,
        timestamp: i64,
        log_start: Offset,
    ) -> Result<TimestampSearch, BatchFault> {
        let total = header.total_bytes();
        if batch.len() < total || total < HEADER_BYTES {
            let need = total.max(HEADER_BYTES);
            return Err(BatchFault::Short { have: batch.len(), need });
        }
        let codec = header.compression().ok_or(BatchFault::Codec(header.compression_id()))?;
        let records = batch.slice(HEADER_BYTES..total);
        Ok(TimestampSearch {
            header: *header,
            inflater: Inflater::new(codec, records, INFLATED_BATCH_BYTES_MAX)?,
            scanner: StreamScanner::new(),
            buffer: vec![0; INFLATE_BUFFER_BYTES],
            records_left: header.record_count,
            timestamp,
            log_start,
        })
    }

    /// Memory that inflating will take, as far as that is known.
    #[must_use]
    pub fn inflation_bytes(&self) -> usize {
        self.inflater.memory_bytes()
    }

    /// Takes no more than about so much memory for inflating.
    ///
    /// # Errors
    /// The codec cannot start.
    pub fn within(mut self, memory_bytes: usize) -> Result<TimestampSearch, BatchFault> {
        self.inflater = self.inflater.within(memory_bytes)?;
        Ok(self)
    }

    /// Goes on for about `budget_bytes` bytes of records.
    pub fn step(&mut self, budget_bytes: usize) -> Poll<Result<Option<Found>, BatchFault>> {
        let mut done = 0;
        while done < budget_bytes.max(1) {
            match self.advance() {
                Ok(Step::Read(bytes)) => done += bytes,
                Ok(Step::Over(found)) => return Poll::Ready(Ok(found)),
                Err(fault) => return Poll::Ready(Err(fault)),
            }
        }
        Poll::Pending
    }

    fn advance(&mut self) -> Result<Step, BatchFault> {
        if self.records_left <= 0 {
            return Ok(Step::Over(None));
        }
        let read = self.inflater.read(&mut self.buffer)?;
        let mut chunk = self.buffer.get(..read).unwrap_or(&[]);
        if chunk.is_empty() {
            return Err(RecordFault::Truncated.into());
        }
        while let Some(record) = self.scanner.next_record(&mut chunk)? {
            let timestamp = self.header.record_timestamp(record.timestamp_delta);
            let offset = self.header.record_offset(record.offset_delta);
            if timestamp >= self.timestamp && offset >= self.log_start {
                return Ok(Step::Over(Some((timestamp, offset))));
            }
            self.records_left -= 1;
            if self.records_left <= 0 {
                return Ok(Step::Over(None));
            }
        }
        Ok(Step::Read(read))
    }
}

enum Step {
    Read(usize),
    Over(Option<Found>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Compression, CompressionTarget};
    use crate::ids::LeaderEpoch;

    fn search(codec: Compression, timestamp: i64, log_start: i64) -> Option<Found> {
        let mut builder =
            BatchBuilder::new(CompressionTarget::of(codec)).at(Offset(100), LeaderEpoch(3));
        for number in 0..1_000 {
            builder.push(5_000 + number * 10, Some(b"key"), Some(&[7; 100]), &[]);
        }
        let batch = Bytes::from(builder.finish());
        let header = BatchHeader::read(&batch).expect("sound");
        let search = TimestampSearch::start(&header, &batch, timestamp, Offset(log_start));
        let mut search = search.expect("sound");
        loop {
            // In small steps, so that records are met in pieces.
            if let Poll::Ready(found) = search.step(1) {
                return found.expect("sound");
            }
        }
    }

    #[test]
    fn the_first_record_that_is_late_enough_is_found_in_every_codec() {
        for id in 0..5 {
            let codec = Compression::from_id(id).expect("a codec");
            assert_eq!(search(codec, 0, 0), Some((5_000, Offset(100))), "{codec:?}");
            assert_eq!(search(codec, 5_001, 0), Some((5_010, Offset(101))));
            assert_eq!(search(codec, 0, 900), Some((13_000, Offset(900))));
            assert_eq!(search(codec, 14_990, 0), Some((14_990, Offset(1_099))));
            assert_eq!(search(codec, 14_991, 0), None);
        }
    }
}
