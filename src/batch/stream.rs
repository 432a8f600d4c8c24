//! Records of a stored batch, one after another, as they inflate.
//!
//! Owns a window of the inflated bytes that never holds more than one record and one read: a small
//! batch may inflate to a great deal, and whoever loads it is not to hold that. Works in slices.
//! Must find what [`Records`](super::Records) finds in the whole of them, and a record that is too
//! large for its reader besides.

use std::task::Poll;

use bytes::Bytes;

use super::compression::{INFLATE_BUFFER_BYTES, Inflater};
use super::header::{BatchFault, BatchHeader, HEADER_BYTES};
use super::records::{Record, RecordFault, read_varint};
use crate::limits::INFLATED_BATCH_BYTES_MAX;

/// What a reader has memory for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamBounds {
    /// Largest record.
    pub record_bytes_max: usize,
    /// Memory for inflating.
    pub inflation_bytes_max: usize,
}

/// The records of one batch.
pub struct RecordStream {
    inflater: Inflater,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are taken already.
    taken: usize,
    records: i32,
    left: i32,
    record_bytes_max: usize,
}

/// What there is in the buffer.
enum Next {
    /// A whole record of so many bytes, its length field included.
    Whole(usize),
    /// Not enough for one.
    More,
}

impl RecordStream {
    /// Over a whole batch with this header.
    ///
    /// # Errors
    /// The batch is cut, or has an unknown codec.
    pub fn start(
        header: &BatchHeader,
        batch: &Bytes,
        bounds: StreamBounds,
    ) -> Result<RecordStream, BatchFault> {
        let total = header.total_bytes();
        if batch.len() < total || total < HEADER_BYTES {
            let need = total.max(HEADER_BYTES);
            return Err(BatchFault::Short { have: batch.len(), need });
        }
        let codec = header.compression().ok_or(BatchFault::Codec(header.compression_id()))?;
        let records = batch.slice(HEADER_BYTES..total);
        let inflater = Inflater::new(codec, records, INFLATED_BATCH_BYTES_MAX)?;
        Ok(RecordStream {
            inflater: inflater.within(bounds.inflation_bytes_max)?,
            buffer: Vec::new(),
            taken: 0,
            records: header.record_count,
            left: header.record_count.max(0),
            record_bytes_max: bounds.record_bytes_max,
        })
    }

    /// Hands records to `take` until about `budget_bytes` are inflated; ready when all are taken.
    ///
    /// # Errors
    /// What is wrong with the batch, or what `take` says.
    pub fn step<E: From<BatchFault>>(
        &mut self,
        budget_bytes: usize,
        mut take: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Poll<Result<(), E>> {
        let mut budget = budget_bytes.max(1);
        loop {
            while self.left > 0 {
                match self.next() {
                    Err(fault) => return Poll::Ready(Err(E::from(fault.into()))),
                    Ok(Next::More) => break,
                    Ok(Next::Whole(bytes)) => {
                        let rest = self.buffer.get(self.taken..).unwrap_or(&[]);
                        let record = match Record::read(rest) {
                            Ok((record, _)) => record,
                            Err(fault) => return Poll::Ready(Err(E::from(fault.into()))),
                        };
                        if let Err(error) = take(&record) {
                            return Poll::Ready(Err(error));
                        }
                        self.taken += bytes;
                        self.left -= 1;
                    }
                }
            }
            if budget == 0 {
                return Poll::Pending;
            }
            match self.fill() {
                Err(fault) => return Poll::Ready(Err(E::from(fault))),
                Ok(0) => return Poll::Ready(self.check_end().map_err(E::from)),
                Ok(bytes) => budget = budget.saturating_sub(bytes),
            }
            if self.left == 0 {
                return Poll::Ready(self.check_end().map_err(E::from));
            }
        }
    }

    /// Whether the buffer begins with a whole record.
    fn next(&self) -> Result<Next, RecordFault> {
        let rest = self.buffer.get(self.taken..).unwrap_or(&[]);
        let mut body = rest;
        let size = match read_varint(&mut body) {
            Ok(size) => usize::try_from(size).map_err(|_| RecordFault::SizeNegative(size))?,
            Err(RecordFault::Truncated) => return Ok(Next::More),
            Err(fault) => return Err(fault),
        };
        if size > self.record_bytes_max {
            return Err(RecordFault::TooLarge(u32::try_from(size).unwrap_or(u32::MAX)));
        }
        let bytes = rest.len() - body.len() + size;
        Ok(if body.len() >= size { Next::Whole(bytes) } else { Next::More })
    }

    /// Inflates some more behind what is left in the buffer; 0 at the end.
    fn fill(&mut self) -> Result<usize, BatchFault> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let kept = self.buffer.len();
        self.buffer.resize(kept + INFLATE_BUFFER_BYTES, 0);
        let read = self.inflater.read(self.buffer.get_mut(kept..).unwrap_or(&mut []))?;
        self.buffer.truncate(kept + read);
        Ok(read)
    }

    /// Nothing more comes, or no more records are declared.
    fn check_end(&self) -> Result<(), BatchFault> {
        match (self.left, self.buffer.len() > self.taken) {
            (0, false) => Ok(()),
            (0, true) if self.records > 0 => Err(RecordFault::TrailingBytes(self.records).into()),
            (0, true) => Ok(()),
            _ => Err(RecordFault::Truncated.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{
        BatchBuilder, Compression, CompressionTarget, Records, decompressed_records,
    };
    use crate::ids::{LeaderEpoch, Offset};

    const BOUNDS: StreamBounds =
        StreamBounds { record_bytes_max: 200_000, inflation_bytes_max: 16 << 20 };

    fn batch(codec: Compression, values: &[usize]) -> (BatchHeader, Bytes) {
        let mut builder =
            BatchBuilder::new(CompressionTarget::of(codec)).at(Offset(7), LeaderEpoch(1));
        for (number, bytes) in values.iter().enumerate() {
            let value = vec![number as u8; *bytes];
            builder.push(1_000 + number as i64, Some(b"key"), Some(&value), &[]);
        }
        let batch = Bytes::from(builder.finish());
        (BatchHeader::read(&batch).expect("sound"), batch)
    }

    type Taken = Vec<(i32, i64, Option<Vec<u8>>, Option<Vec<u8>>)>;

    fn owned(record: &Record<'_>) -> (i32, i64, Option<Vec<u8>>, Option<Vec<u8>>) {
        let copy = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        (record.offset_delta, record.timestamp_delta, copy(record.key), copy(record.value))
    }

    /// All records, and the most that was held at once.
    fn streamed(header: &BatchHeader, batch: &Bytes) -> Result<(Taken, usize), BatchFault> {
        let mut stream = RecordStream::start(header, batch, BOUNDS)?;
        let (mut taken, mut most) = (Vec::new(), 0);
        loop {
            let step = stream.step::<BatchFault>(1, |record| {
                taken.push(owned(record));
                Ok(())
            });
            most = most.max(stream.buffer.capacity());
            if let Poll::Ready(end) = step {
                return end.map(|()| (taken, most));
            }
        }
    }

    #[test]
    fn records_are_those_of_the_whole_batch_in_every_codec() {
        let values = [0, 1, 70_000, 5, 199_000, 64 * 1024, 10];
        for id in 0..5 {
            let codec = Compression::from_id(id).expect("a codec");
            let (header, batch) = batch(codec, &values);
            let whole = decompressed_records(&header, &batch, 1 << 20).expect("sound");
            let expected: Taken = Records::new(&whole, header.record_count)
                .map(|record| owned(&record.expect("sound")))
                .collect();
            let (taken, _) = streamed(&header, &batch).expect("sound");
            assert_eq!(taken, expected, "{codec:?}");
            assert_eq!(taken.len(), values.len());
        }
    }

    #[test]
    fn a_batch_that_inflates_to_much_is_never_held() {
        // Eight megabytes of zeros in a few hundred bytes.
        let (header, batch) = batch(Compression::Zstd, &[100_000; 80]);
        assert!(batch.len() < 20_000);
        let (taken, most) = streamed(&header, &batch).expect("sound");
        assert_eq!(taken.len(), 80);
        assert!(most <= 2 * (BOUNDS.record_bytes_max + INFLATE_BUFFER_BYTES), "{most} bytes");
    }

    #[test]
    fn a_record_beyond_the_bound_is_refused_before_it_is_inflated() {
        let size = |value: usize| value + 12;
        let (header, small) = batch(Compression::Zstd, &[5, BOUNDS.record_bytes_max - 12]);
        assert_eq!(streamed(&header, &small).map(|(taken, _)| taken.len()), Ok(2));
        let (header, large) = batch(Compression::Zstd, &[5, 100_000_000]);
        let refused = RecordFault::TooLarge(size(100_000_000) as u32);
        let mut stream = RecordStream::start(&header, &large, BOUNDS).expect("sound");
        let mut count = 0;
        let mut take = |_: &Record<'_>| {
            count += 1;
            Ok(())
        };
        let end = stream.step::<BatchFault>(usize::MAX, &mut take);
        assert_eq!(end, Poll::Ready(Err(BatchFault::Record(refused))));
        assert_eq!(count, 1, "those before it are taken");
        assert!(stream.buffer.capacity() <= 2 * INFLATE_BUFFER_BYTES);
    }

    #[test]
    fn faults_are_those_of_the_whole_batch() {
        let (header, batch) = batch(Compression::Gzip, &[10, 20]);
        let with = |count: i32| BatchHeader { record_count: count, ..header };
        let fault = |count| streamed(&with(count), &batch).map(|(taken, _)| taken.len());
        assert_eq!(fault(1), Err(RecordFault::TrailingBytes(1).into()));
        assert_eq!(fault(3), Err(RecordFault::Truncated.into()));
        assert_eq!((fault(0), fault(-1)), (Ok(0), Ok(0)));
        let cut = batch.slice(..batch.len() - 1);
        assert_eq!(
            streamed(&header, &cut).map(|_| ()),
            Err(BatchFault::Short { have: cut.len(), need: batch.len() })
        );
    }
}
