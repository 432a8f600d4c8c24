//! Inflating all records of a stored batch, in steps.
//!
//! Owns what has come out so far. For whoever needs whole records; a search or a check goes by
//! without keeping them.

use std::task::Poll;

use bytes::Bytes;

use super::compression::{INFLATE_BUFFER_BYTES, Inflater};
use super::header::{BatchFault, BatchHeader, HEADER_BYTES};
use crate::limits::INFLATED_BATCH_BYTES_MAX;

/// A batch whose records are being inflated.
pub struct Inflating {
    inflater: Inflater,
    inflated: Vec<u8>,
}

impl Inflating {
    /// Over a whole batch with this header.
    ///
    /// # Errors
    /// The batch is cut, or has an unknown codec.
    pub fn start(header: &BatchHeader, batch: &Bytes) -> Result<Inflating, BatchFault> {
        let total = header.total_bytes();
        if batch.len() < total || total < HEADER_BYTES {
            let need = total.max(HEADER_BYTES);
            return Err(BatchFault::Short { have: batch.len(), need });
        }
        let codec = header.compression().ok_or(BatchFault::Codec(header.compression_id()))?;
        let records = batch.slice(HEADER_BYTES..total);
        let inflater = Inflater::new(codec, records, INFLATED_BATCH_BYTES_MAX)?;
        Ok(Inflating { inflater, inflated: Vec::new() })
    }

    /// Memory that inflating will take beside what has come out, as far as that is known.
    #[must_use]
    pub fn inflation_bytes(&self) -> usize {
        self.inflater.memory_bytes()
    }

    /// Goes on for about `budget_bytes`; ready with all records.
    pub fn step(&mut self, budget_bytes: usize) -> Poll<Result<Bytes, BatchFault>> {
        let until = self.inflated.len().saturating_add(budget_bytes.max(1));
        while self.inflated.len() < until {
            let at = self.inflated.len();
            self.inflated.resize(at + INFLATE_BUFFER_BYTES, 0);
            let read = self.inflater.read(self.inflated.get_mut(at..).unwrap_or(&mut []));
            self.inflated.truncate(at + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Poll::Ready(Ok(Bytes::from(std::mem::take(&mut self.inflated)))),
                Ok(_) => {}
                Err(fault) => return Poll::Ready(Err(fault.into())),
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Compression, CompressionTarget, decompressed_records};

    #[test]
    fn it_comes_to_the_same_as_in_one_go_for_every_codec() {
        for id in 0..5 {
            let codec = Compression::from_id(id).expect("a codec");
            let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
            for number in 0..2_000 {
                builder.push(number, Some(b"key"), Some(&number.to_be_bytes().repeat(9)), &[]);
            }
            let batch = Bytes::from(builder.finish());
            let header = BatchHeader::read(&batch).expect("sound");
            let mut inflating = Inflating::start(&header, &batch).expect("sound");
            let mut steps = 0;
            let inflated = loop {
                steps += 1;
                if let Poll::Ready(inflated) = inflating.step(1) {
                    break inflated.expect("sound");
                }
            };
            assert!(steps > 2, "in steps");
            assert_eq!(Ok(inflated), decompressed_records(&header, &batch, usize::MAX));
        }
    }
}
