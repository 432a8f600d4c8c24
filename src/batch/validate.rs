//! Validation of one partition's records in a Produce request.
//!
//! Owns the rules a client's batch must keep, in Kafka's order, and the answer when it does not.
//! Works in slices: a large batch or a large inflation hands the shard back between steps. The
//! payload is passed over once for the CRC and once for the records; an uncompressed batch that is
//! kept as sent costs no allocation. Must never change the bytes it was given: a corrected header
//! is returned beside them, and offset and leader epoch are the log's to patch.
//!
//! Deviations from Kafka, all where it would answer `UNKNOWN_SERVER_ERROR` or rewrite: codec ids 5
//! to 7 are `UNSUPPORTED_COMPRESSION_TYPE`, records that do not inflate are `INVALID_RECORD`,
//! offset deltas that do not count 0, 1, 2, ... are `INVALID_RECORD`, and the sizes inside a
//! compressed record are checked too. A transaction, sequence or epoch is not judged here.
//! Source: Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and
//! `LogValidator`, in that order.

mod refusal;
mod tally;
#[cfg(test)]
mod tests;

use std::task::Poll;

use bytes::Bytes;

use crate::batch::build::finish_batch;
use crate::batch::compression::{
    Compression, CompressionTarget, Deflater, INFLATE_BUFFER_BYTES, InflateFault, Inflater,
};
use crate::batch::crc::{RunningCrc, crc_after_header_change, crc32c};
use crate::batch::header::{
    ATTRIBUTES_AT, BatchHeader, COMPRESSION_MASK, CRC_COVERS_FROM, FRAME_BYTES, HEADER_BYTES,
    LOG_APPEND_TIME_BIT, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT, TimestampType, set_base_offset,
};
use crate::batch::records::{Record, RecordFault};
use crate::batch::scan::{ScannedRecord, StreamScanner};
use crate::ids::{LeaderEpoch, Offset};
use crate::limits::{INFLATED_BATCH_BYTES_MAX, INFLATION_ORDINARY_PART};

pub use refusal::{Reason, Refusal};
use tally::Tally;

/// What a topic and a request demand of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidateRules {
    /// Version of the Produce request.
    pub produce_version: i16,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    /// `compression.type` and its level.
    pub compression: CompressionTarget,
    /// `max.message.bytes`: largest batch, compressed, header included.
    pub max_message_bytes: usize,
    /// `segment.bytes`.
    pub segment_bytes: usize,
    /// Whether every record needs a key: `cleanup.policy` includes `compact`.
    pub keys_required: bool,
}

impl ValidateRules {
    /// Those of Kafka's defaults.
    pub const DEFAULT: ValidateRules = ValidateRules {
        produce_version: 9,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        compression: CompressionTarget::Producer,
        max_message_bytes: 1_048_588,
        segment_bytes: 1 << 30,
        keys_required: false,
    };
}

/// A batch that may be appended.
#[derive(Clone, Debug)]
pub struct ValidBatch {
    /// The whole batch as sent, without trailing bytes; or as compressed anew.
    pub bytes: Bytes,
    /// The header to store: true maximum timestamp, timestamp type and CRC. Its base offset and
    /// leader epoch are still the producer's.
    pub header: BatchHeader,
    /// `header` as bytes: they take the place of the first bytes of `bytes`.
    pub header_bytes: [u8; HEADER_BYTES],
    /// Whether `header_bytes` differ from what `bytes` start with.
    pub is_header_changed: bool,
    /// Largest record timestamp, or the append time; -1 if no record has one.
    pub max_timestamp: i64,
    /// The append time to answer, on a topic that uses it.
    pub log_append_time: Option<i64>,
    /// Whether the records were compressed anew for the topic.
    pub is_recompressed: bool,
    /// Size of the records, not compressed.
    pub records_bytes: usize,
}

impl ValidBatch {
    /// Everything after the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or(&[])
    }

    /// Copies the batch to the front of `into`, at its place in the log; returns its size.
    ///
    /// # Panics
    /// If `into` is shorter than the batch.
    pub fn copy_to(&self, into: &mut [u8], base_offset: Offset, epoch: LeaderEpoch) -> usize {
        let (batch, _) = into.split_at_mut(self.bytes.len());
        let (header, payload) = batch.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&self.header_bytes);
        set_base_offset(header, base_offset, epoch);
        payload.copy_from_slice(self.payload());
        self.bytes.len()
    }
}

/// Validates one partition's records step by step.
pub struct Validator {
    rules: ValidateRules,
    now_ms: i64,
    batch: Bytes,
    header: BatchHeader,
    tally: Tally,
    phase: Phase,
    /// Memory for inflating, and for compressing anew.
    inflation_bytes_max: usize,
}

enum Phase {
    Refused(Reason),
    /// So many of the covered bytes are in the CRC; it is kept only between steps.
    Crc(Option<Box<RunningCrc>>, usize),
    /// The bytes of the batch before this position are checked.
    Walk(usize),
    Inflate(Box<Inflation>),
    Done,
}

struct Inflation {
    inflater: Inflater,
    scanner: StreamScanner,
    buffer: Vec<u8>,
    deflater: Option<Deflater>,
    target: Compression,
}

/// Validates to the end.
///
/// # Errors
/// The [`Refusal`] to answer.
pub fn validate(
    records: Option<Bytes>,
    rules: &ValidateRules,
    now_ms: i64,
) -> Result<ValidBatch, Refusal> {
    let mut validator = Validator::start(records, rules, now_ms);
    loop {
        if let Poll::Ready(result) = validator.step(usize::MAX) {
            return result;
        }
    }
}

impl Validator {
    /// Takes the records of one partition, as they stand in the request, and checks their framing.
    #[must_use]
    pub fn start(records: Option<Bytes>, rules: &ValidateRules, now_ms: i64) -> Validator {
        let mut batch = records.unwrap_or_default();
        let (header, phase) = match check_frame(&batch, rules) {
            Ok(header) => {
                // What follows the batch is a cut one, which Kafka drops without a word.
                batch.truncate(header.total_bytes());
                (header, Phase::Crc(None, 0))
            }
            Err(reason) => (BatchHeader::from_bytes(&[0; HEADER_BYTES]), Phase::Refused(reason)),
        };
        Validator {
            rules: *rules,
            now_ms,
            tally: Tally::new(&header, rules, now_ms),
            batch,
            header,
            phase,
            inflation_bytes_max: usize::MAX,
        }
    }

    /// Takes no more than about so much memory for inflating, and as much for compressing anew.
    #[must_use]
    pub fn within(mut self, memory_bytes: usize) -> Validator {
        self.inflation_bytes_max = memory_bytes;
        self
    }

    /// Goes on for about `budget_bytes` bytes of records, inflated ones where they are compressed.
    ///
    /// # Panics
    /// If called again after it was ready.
    pub fn step(&mut self, budget_bytes: usize) -> Poll<Result<ValidBatch, Refusal>> {
        let mut budget = budget_bytes.max(1);
        while budget > 0 {
            match self.advance(&mut budget) {
                Ok(false) => {}
                Ok(true) => return Poll::Ready(self.finish()),
                Err(reason) => {
                    self.phase = Phase::Done;
                    return Poll::Ready(Err(Refusal::plain(reason)));
                }
            }
        }
        Poll::Pending
    }

    /// Memory that inflating will take, as far as that is known; 0 before the records are opened.
    #[must_use]
    pub fn inflation_bytes(&self) -> usize {
        match &self.phase {
            Phase::Inflate(inflation) => inflation.inflater.memory_bytes(),
            _ => 0,
        }
    }

    /// Whether memory is held for inflating, beside the batch itself.
    #[must_use]
    pub fn is_inflating(&self) -> bool {
        matches!(self.phase, Phase::Inflate(_))
    }

    /// Does some of the current phase; says whether all records are checked.
    fn advance(&mut self, budget: &mut usize) -> Result<bool, Reason> {
        match &mut self.phase {
            Phase::Refused(reason) => Err(reason.clone()),
            Phase::Crc(running, done) => {
                let covered = self.batch.get(CRC_COVERS_FROM..).unwrap_or(&[]);
                let Some(crc) = advance_crc(running, done, covered, budget) else {
                    return Ok(false);
                };
                if crc != self.header.crc {
                    return Err(Reason::CrcMismatch { stored: self.header.crc, computed: crc });
                }
                self.phase = self.open_records()?;
                // Whoever steps this is to know what it will take before it takes much.
                if self.inflation_bytes() > self.inflation_bytes_max / INFLATION_ORDINARY_PART {
                    *budget = 0;
                }
                Ok(false)
            }
            Phase::Walk(at) => {
                while *budget > 0 && self.tally.wants_more() {
                    let (record, used) = Record::read(self.batch.get(*at..).unwrap_or(&[]))?;
                    self.tally.take(&ScannedRecord::from(&record))?;
                    *at += used;
                    *budget = budget.saturating_sub(used.min(WALK_CHARGE_BYTES_MAX));
                }
                if self.tally.wants_more() {
                    return Ok(false);
                }
                self.tally.check_end(*at == self.batch.len())?;
                Ok(true)
            }
            Phase::Inflate(inflation) => inflation.advance(&mut self.tally, budget),
            Phase::Done => panic!("invariant: a validator that was ready is not stepped again"),
        }
    }

    /// Checks the header, now that it is known to be what was sent, and chooses how to go on.
    fn open_records(&self) -> Result<Phase, Reason> {
        let header = &self.header;
        let source = header.compression().ok_or(Reason::CodecUnknown(header.compression_id()))?;
        check_header(header)?;
        let target = self.rules.compression.codec(source);
        if source == Compression::None && target == Compression::None {
            return Ok(Phase::Walk(HEADER_BYTES));
        }
        let compressed = self.batch.slice(HEADER_BYTES..);
        let deflater = if source == target {
            None
        } else {
            let deflater = Deflater::new(
                self.rules.compression,
                vec![0; HEADER_BYTES],
                self.recompressed_bytes_max(),
            )?;
            Some(deflater.within(self.inflation_bytes_max)?)
        };
        Ok(Phase::Inflate(Box::new(Inflation {
            inflater: Inflater::new(source, compressed, INFLATED_BATCH_BYTES_MAX)?
                .within(self.inflation_bytes_max)?,
            scanner: StreamScanner::new(),
            buffer: vec![0; INFLATE_BUFFER_BYTES],
            deflater,
            target,
        })))
    }

    fn finish(&mut self) -> Result<ValidBatch, Refusal> {
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        if let Some(refusal) = self.tally.refusal() {
            return Err(refusal);
        }
        let (max_timestamp, log_append_time) = match self.rules.timestamp_type {
            TimestampType::CreateTime => (self.tally.max_timestamp(), None),
            TimestampType::LogAppendTime => (self.now_ms, Some(self.now_ms)),
        };
        let mut valid = ValidBatch {
            bytes: std::mem::take(&mut self.batch),
            header: self.header,
            header_bytes: self.header.to_bytes(),
            is_header_changed: false,
            max_timestamp,
            log_append_time,
            is_recompressed: false,
            records_bytes: 0,
        };
        match phase {
            Phase::Inflate(inflation) => {
                valid.records_bytes = INFLATED_BATCH_BYTES_MAX - inflation.inflater.left();
                match inflation.deflater {
                    Some(deflater) => self.recompress(&mut valid, deflater, inflation.target)?,
                    None => self.correct_header(&mut valid),
                }
            }
            _ => {
                valid.records_bytes = valid.payload().len();
                self.correct_header(&mut valid);
            }
        }
        if valid.bytes.len() > self.rules.segment_bytes {
            return Err(Refusal::plain(Reason::AboveSegment {
                bytes: valid.bytes.len(),
                max: self.rules.segment_bytes,
            }));
        }
        Ok(valid)
    }

    /// Corrects timestamp type and maximum of a batch whose records stay as they are.
    fn correct_header(&self, valid: &mut ValidBatch) {
        let timestamp_type = self.rules.timestamp_type;
        let mut header = self.header;
        if header.timestamp_type() == timestamp_type && header.max_timestamp == valid.max_timestamp
        {
            return;
        }
        header.attributes = header.attributes_with(timestamp_type);
        header.max_timestamp = valid.max_timestamp;
        header.crc = crc_after_header_change(
            self.header.crc,
            &valid.header_bytes,
            &header.to_bytes(),
            valid.payload(),
        );
        valid.header = header;
        valid.header_bytes = header.to_bytes();
        valid.is_header_changed = true;
    }

    /// Puts the records as the topic wants them compressed in place of those sent.
    fn recompress(
        &self,
        valid: &mut ValidBatch,
        deflater: Deflater,
        target: Compression,
    ) -> Result<(), Refusal> {
        let max = self.recompressed_bytes_max();
        let deflated = deflater.finish().map_err(|error| Refusal::plain(error.into()))?;
        if deflated.total_bytes > max {
            return Err(Refusal::plain(Reason::TooLarge { bytes: deflated.total_bytes, max }));
        }
        let mut header = self.header;
        let flags = header.attributes_with(self.rules.timestamp_type)
            & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT);
        header.attributes = flags | i16::from(target.id());
        header.max_timestamp = valid.max_timestamp;
        valid.bytes = Bytes::from(finish_batch(header, deflated.bytes));
        if let Some(raw) = valid.bytes.first_chunk::<HEADER_BYTES>() {
            valid.header_bytes = *raw;
        }
        valid.header = BatchHeader::from_bytes(&valid.header_bytes);
        valid.is_recompressed = true;
        Ok(())
    }

    fn recompressed_bytes_max(&self) -> usize {
        self.rules.max_message_bytes.min(i32::MAX as usize)
    }
}

impl Inflation {
    fn advance(&mut self, tally: &mut Tally, budget: &mut usize) -> Result<bool, Reason> {
        let read = self.inflater.read(&mut self.buffer)?;
        let mut chunk = self.buffer.get(..read).unwrap_or(&[]);
        if chunk.is_empty() {
            if tally.wants_more() || !self.scanner.is_between_records() {
                return Err(RecordFault::Truncated.into());
            }
            tally.check_end(true)?;
            return Ok(true);
        }
        if let Some(deflater) = &mut self.deflater {
            deflater.write(chunk)?;
        }
        while !chunk.is_empty() {
            if !tally.wants_more() {
                tally.check_end(false)?;
            }
            if let Some(record) = self.scanner.next_record(&mut chunk)? {
                tally.take(&record)?;
            }
        }
        // A record that cannot end within the allowed size is refused before it is inflated.
        if self.scanner.body_left() > self.inflater.left() as u64 {
            return Err(InflateFault::TooLarge.into());
        }
        *budget = budget.saturating_sub(read);
        Ok(false)
    }
}

/// Takes covered bytes into the CRC as far as the budget goes; gives it when all are in.
fn advance_crc(
    running: &mut Option<Box<RunningCrc>>,
    done: &mut usize,
    covered: &[u8],
    budget: &mut usize,
) -> Option<u32> {
    let room = budget.saturating_mul(CRC_BYTES_PER_BUDGET_BYTE);
    let left = covered.get(*done..).unwrap_or(&[]);
    if running.is_none() && left.len() <= room {
        *budget -= left.len() / CRC_BYTES_PER_BUDGET_BYTE;
        return Some(crc32c(covered));
    }
    let crc = running.get_or_insert_with(|| Box::new(RunningCrc::new()));
    let (now, later) = left.split_at_checked(room).unwrap_or((left, &[]));
    crc.update(now);
    *done += now.len();
    *budget -= now.len() / CRC_BYTES_PER_BUDGET_BYTE;
    later.is_empty().then(|| crc.value())
}

/// Finds the one batch in the records of a partition and checks what its CRC is not needed for.
fn check_frame(bytes: &[u8], rules: &ValidateRules) -> Result<BatchHeader, Reason> {
    let version = rules.produce_version;
    let Some(frame) = next_frame(bytes)? else {
        return Err(Reason::NoBatch { version });
    };
    if frame.magic != MAGIC {
        return Err(Reason::MagicOld { version, magic: frame.magic });
    }
    let batch = bytes.get(..frame.total_bytes).unwrap_or(&[]);
    let attributes = batch.get(ATTRIBUTES_AT..).and_then(|b| b.first_chunk::<2>());
    let codec = attributes.map_or(0, |b| i16::from_be_bytes(*b) & COMPRESSION_MASK);
    if version < ZSTD_SINCE_VERSION && codec == i16::from(Compression::Zstd.id()) {
        return Err(Reason::ZstdTooEarly { version });
    }
    match next_frame(bytes.get(frame.total_bytes..).unwrap_or(&[])) {
        Ok(None) => {}
        Ok(Some(_)) => return Err(Reason::SecondBatch { version }),
        Err(_) => return Err(Reason::JunkBehind),
    }
    let base_offset = batch.first_chunk::<8>().map_or(0, |b| i64::from_be_bytes(*b));
    if base_offset != 0 {
        return Err(Reason::BaseOffset(base_offset));
    }
    if batch.len() > rules.max_message_bytes {
        return Err(Reason::TooLarge { bytes: batch.len(), max: rules.max_message_bytes });
    }
    match batch.first_chunk::<HEADER_BYTES>() {
        Some(raw) => Ok(BatchHeader::from_bytes(raw)),
        None => Err(Reason::BelowHeader { bytes: batch.len() }),
    }
}

struct Frame {
    total_bytes: usize,
    magic: i8,
}

/// The whole frame at the start of `bytes`; `None` if there is none or it is cut.
fn next_frame(bytes: &[u8]) -> Result<Option<Frame>, Reason> {
    let Some(length) = bytes.get(LENGTH_AT..).and_then(|b| b.first_chunk::<4>()) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*length);
    if length < LEGACY_RECORD_BYTES_MIN {
        return Err(Reason::LengthTooSmall(length));
    }
    let Some(&magic) = bytes.get(MAGIC_AT) else {
        return Ok(None);
    };
    let magic = magic.cast_signed();
    if !(0..=MAGIC).contains(&magic) {
        return Err(Reason::MagicUnknown(magic));
    }
    let total_bytes = FRAME_BYTES.saturating_add(usize::try_from(length).unwrap_or(0));
    Ok((total_bytes <= bytes.len()).then_some(Frame { total_bytes, magic }))
}

/// What the header says of itself, in Kafka's order.
fn check_header(header: &BatchHeader) -> Result<(), Reason> {
    let last = header.last_offset_delta;
    let count = header.record_count;
    if last < 0 {
        return Err(Reason::OffsetRange { last });
    }
    if count <= 0 {
        return Err(Reason::Count(count));
    }
    if i64::from(last) + 1 != i64::from(count) {
        return Err(Reason::CountMismatch { last, count });
    }
    if header.is_control() {
        return Err(Reason::ControlBatch);
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(Reason::Sequence {
            sequence: header.base_sequence,
            producer_id: header.producer_id,
        });
    }
    Ok(())
}

/// First version of Produce that may carry zstd.
const ZSTD_SINCE_VERSION: i16 = 7;

const LENGTH_AT: usize = 8;

/// The smallest record of formats 0 and 1, below which no length field can be meant.
const LEGACY_RECORD_BYTES_MIN: i32 = 14;

/// The CRC is this much faster than reading records.
const CRC_BYTES_PER_BUDGET_BYTE: usize = 8;

/// Reading a record costs no more when it is longer: its fields are stepped over.
const WALK_CHARGE_BYTES_MAX: usize = 64;
