//! A stored batch that keeps only some of its records: what compaction makes of it.
//!
//! Owns the walk over the records, the decision whether the batch can stay byte for byte, and the
//! bytes of the one that takes its place. What places the batch in the log stays as it was: base
//! offset, end, producer, sequence, leader epoch, codec, the offset and the timestamp of every
//! record kept. Must never decide which records are kept. Goes in steps, so that a large batch
//! does not hold up its shard. Source: Kafka's `MemoryRecords.filterTo`, KIP-534.

use std::task::Poll;

use bytes::Bytes;

use super::build::finish_batch;
use super::compression::{CompressionTarget, Deflated, Deflater};
use super::header::{
    BatchFault, BatchHeader, COMPRESSION_MASK, DELETE_HORIZON_BIT, HEADER_BYTES, NO_TIMESTAMP,
    TimestampType,
};
use super::records::{Record, RecordFault, read_varint, read_varlong, write_varlong};
use crate::ids::Offset;

/// What is to become of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RewriteRules {
    /// A batch without records is kept as a header: of the last of its producer, or of the log.
    pub keep_empty: bool,
    /// It is a marker of a transaction that has no data any more.
    pub starts_horizon: bool,
    /// The delete horizon that tombstones and such markers get, unless their batch has one.
    pub horizon_ms: i64,
}

/// What has become of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewritten {
    /// The batch; `None` if nothing of it is kept.
    pub batch: Option<Bytes>,
    /// Its largest timestamp.
    pub max_timestamp_ms: i64,
    /// Records that are kept.
    pub records: u64,
}

/// A batch being gone through.
pub struct Rewrite {
    header: BatchHeader,
    rules: RewriteRules,
    batch: Bytes,
    records: Bytes,
    phase: Phase,
}

enum Phase {
    Judging(Judging),
    Writing(Box<Writing>),
}

/// The walk that asks which records are kept.
struct Judging {
    at: usize,
    records_left: i32,
    kept: Kept,
}

/// What is kept.
#[derive(Default)]
struct Kept {
    /// Ranges of the inflated records; neighbours are one range.
    ranges: Vec<(usize, usize)>,
    records: i32,
    dropped: bool,
    has_tombstone: bool,
    max_timestamp_ms: Option<i64>,
}

/// The batch that takes its place.
struct Writing {
    header: BatchHeader,
    ranges: std::vec::IntoIter<(usize, usize)>,
    /// What is left of the range in hand.
    range: (usize, usize),
    /// Taken when all is written.
    deflater: Option<Deflater>,
    /// The base that timestamps were counted from, and the horizon that they are counted from
    /// now, if that is new.
    moves_base: Option<(i64, i64)>,
    /// One record, reused.
    body: Vec<u8>,
}

impl Rewrite {
    /// For a whole batch with its inflated record bytes.
    #[must_use]
    pub fn start(
        header: &BatchHeader,
        batch: Bytes,
        records: Bytes,
        rules: RewriteRules,
    ) -> Rewrite {
        let judging = Judging { at: 0, records_left: header.record_count, kept: Kept::default() };
        Rewrite { header: *header, rules, batch, records, phase: Phase::Judging(judging) }
    }

    /// Goes on for about `budget_bytes` of records; `keep` is asked once per record, in order.
    pub fn step(
        &mut self,
        budget_bytes: usize,
        keep: &mut impl FnMut(&Record<'_>, Offset) -> bool,
    ) -> Poll<Result<Rewritten, BatchFault>> {
        let outcome = match &mut self.phase {
            Phase::Judging(judging) => {
                match judging.step(&self.header, &self.records, budget_bytes, keep) {
                    Ok(None) => return Poll::Pending,
                    Ok(Some(kept)) => self.judged(kept),
                    Err(fault) => Err(fault.into()),
                }
            }
            Phase::Writing(writing) => writing.step(&self.records, budget_bytes),
        };
        match outcome {
            Ok(Some(rewritten)) => Poll::Ready(Ok(rewritten)),
            Ok(None) => Poll::Pending,
            Err(fault) => Poll::Ready(Err(fault)),
        }
    }

    /// All records are judged: the batch stays as it is, goes, or is written anew.
    fn judged(&mut self, kept: Kept) -> Result<Option<Rewritten>, BatchFault> {
        if kept.records == 0 {
            return Ok(Some(self.without_records()));
        }
        let has_horizon = self.header.delete_horizon_ms().is_some();
        let sets_horizon = !has_horizon && (kept.has_tombstone || self.rules.starts_horizon);
        if !kept.dropped && !sets_horizon {
            return Ok(Some(Rewritten {
                batch: Some(self.batch.clone()),
                max_timestamp_ms: self.header.max_timestamp,
                records: kept.records.unsigned_abs().into(),
            }));
        }
        let horizon_ms = sets_horizon.then_some(self.rules.horizon_ms);
        self.phase = Phase::Writing(Box::new(Writing::start(&self.header, kept, horizon_ms)?));
        Ok(None)
    }

    fn without_records(&self) -> Rewritten {
        let batch = self.rules.keep_empty.then(|| empty_batch(&self.header));
        Rewritten { batch, max_timestamp_ms: self.header.max_timestamp, records: 0 }
    }
}

/// The header alone of a batch whose records have gone: it still says who sent it, and up to which
/// sequence and offset.
#[must_use]
pub fn empty_batch(header: &BatchHeader) -> Bytes {
    let known = header.attributes_with(header.timestamp_type());
    let attributes = known & !COMPRESSION_MASK & !DELETE_HORIZON_BIT;
    let empty =
        BatchHeader { attributes, base_timestamp: NO_TIMESTAMP, record_count: 0, ..*header };
    Bytes::from(finish_batch(empty, vec![0; HEADER_BYTES]))
}

impl Judging {
    /// Goes on; `Some` when all records are judged.
    fn step(
        &mut self,
        header: &BatchHeader,
        records: &[u8],
        budget_bytes: usize,
        keep: &mut impl FnMut(&Record<'_>, Offset) -> bool,
    ) -> Result<Option<Kept>, RecordFault> {
        let until = self.at.saturating_add(budget_bytes.max(1));
        while self.records_left > 0 {
            if self.at >= until {
                return Ok(None);
            }
            let (record, used) = Record::read(records.get(self.at..).unwrap_or(&[]))?;
            self.records_left -= 1;
            let range = (self.at, self.at + used);
            self.at = range.1;
            if keep(&record, header.record_offset(record.offset_delta)) {
                let timestamp_ms = header.record_timestamp(record.timestamp_delta);
                self.kept.add(range, record.value.is_none(), timestamp_ms);
            } else {
                self.kept.dropped = true;
            }
        }
        if self.at < records.len() {
            return Err(RecordFault::TrailingBytes(header.record_count));
        }
        Ok(Some(std::mem::take(&mut self.kept)))
    }
}

impl Kept {
    fn add(&mut self, range: (usize, usize), is_tombstone: bool, timestamp_ms: i64) {
        self.records += 1;
        self.has_tombstone |= is_tombstone;
        self.max_timestamp_ms = self.max_timestamp_ms.max(Some(timestamp_ms));
        match self.ranges.last_mut() {
            Some(last) if last.1 == range.0 => last.1 = range.1,
            _ => self.ranges.push(range),
        }
    }
}

impl Writing {
    fn start(
        old: &BatchHeader,
        kept: Kept,
        horizon_ms: Option<i64>,
    ) -> Result<Writing, BatchFault> {
        let codec = old.compression().ok_or(BatchFault::Codec(old.compression_id()))?;
        let mut header = *old;
        header.record_count = kept.records;
        if old.timestamp_type() == TimestampType::CreateTime {
            header.max_timestamp = kept.max_timestamp_ms.unwrap_or(NO_TIMESTAMP);
        }
        if let Some(horizon_ms) = horizon_ms {
            header.attributes |= DELETE_HORIZON_BIT;
            header.base_timestamp = horizon_ms;
        }
        let target = CompressionTarget::of(codec);
        let deflater = Deflater::new(target, vec![0; HEADER_BYTES], usize::MAX)
            .expect("invariant: compressing into memory does not fail");
        let mut ranges = kept.ranges.into_iter();
        let range = ranges.next().unwrap_or_default();
        let moves_base = horizon_ms.map(|to_ms| (old.base_timestamp, to_ms));
        let deflater = Some(deflater);
        Ok(Writing { header, ranges, range, deflater, moves_base, body: Vec::new() })
    }

    /// Goes on; `Some` when the batch is complete.
    fn step(
        &mut self,
        records: &[u8],
        budget_bytes: usize,
    ) -> Result<Option<Rewritten>, BatchFault> {
        let mut left = budget_bytes.max(1);
        while self.range.0 < self.range.1 {
            if left == 0 {
                return Ok(None);
            }
            let rest = records.get(self.range.0..self.range.1).unwrap_or(&[]);
            let used = match self.moves_base {
                Some((from_ms, to_ms)) => self.write_moved(rest, from_ms, to_ms)?,
                None => self.write_plain(rest.get(..rest.len().min(left)).unwrap_or(&[])),
            };
            left = left.saturating_sub(used);
            self.range.0 += used;
            if self.range.0 >= self.range.1 {
                self.range = self.ranges.next().unwrap_or_default();
            }
        }
        Ok(Some(self.finish()))
    }

    /// Record bytes count their timestamps from a base that has not changed: they stay.
    fn write_plain(&mut self, bytes: &[u8]) -> usize {
        self.deflate(bytes);
        bytes.len()
    }

    /// One record, its timestamp counted from the new base.
    fn write_moved(
        &mut self,
        bytes: &[u8],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<usize, RecordFault> {
        let mut rest = bytes;
        let size = read_varint(&mut rest)?;
        let size = usize::try_from(size).map_err(|_| RecordFault::SizeNegative(size))?;
        let used = bytes.len() - rest.len() + size;
        let (mut rest, _) = rest.split_at_checked(size).ok_or(RecordFault::Truncated)?;
        let (&attributes, after) = rest.split_first().ok_or(RecordFault::Truncated)?;
        rest = after;
        let timestamp_ms = from_ms.wrapping_add(read_varlong(&mut rest)?);
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.push(attributes);
        write_varlong(timestamp_ms.wrapping_sub(to_ms), &mut body);
        body.extend_from_slice(rest);
        let mut size = Vec::with_capacity(5);
        write_varlong(body.len() as i64, &mut size);
        self.deflate(&size);
        self.deflate(&body);
        self.body = body;
        Ok(used)
    }

    fn deflate(&mut self, bytes: &[u8]) {
        let deflater = self.deflater.as_mut().expect("invariant: it is not finished");
        deflater.write(bytes).expect("invariant: compressing into memory does not fail");
    }

    fn finish(&mut self) -> Rewritten {
        let deflater = self.deflater.take().expect("invariant: it is finished once");
        let Deflated { bytes, .. } =
            deflater.finish().expect("invariant: compressing into memory does not fail");
        Rewritten {
            batch: Some(Bytes::from(finish_batch(self.header, bytes))),
            max_timestamp_ms: self.header.max_timestamp,
            records: self.header.record_count.unsigned_abs().into(),
        }
    }
}
