//! What is gathered from record to record: the largest timestamp and the records at fault.
//!
//! Owns the rules for single records: consecutive offsets, a key where the topic is compacted, a
//! timestamp within bounds. Allocates only for a record at fault, and keeps a bounded number of
//! them. Timestamp arithmetic wraps as Java's does, so that the same timestamps are refused.
//! Source: Kafka's `LogValidator.validateRecord`.

use crate::batch::compression::Compression;
use crate::batch::header::{BatchHeader, NO_TIMESTAMP, TimestampType};
use crate::batch::records::RecordFault;
use crate::batch::scan::ScannedRecord;
use crate::batch::validate::ValidateRules;
use crate::batch::validate::refusal::{PARTITION_PLACE, Reason, Refusal};
use crate::limits::RECORD_ERRORS_PER_BATCH_MAX;

pub(super) struct Tally {
    header: BatchHeader,
    topic_timestamps: TimestampType,
    before_max_ms: i64,
    after_max_ms: i64,
    now_ms: i64,
    keys_required: bool,
    is_rebuilt: bool,
    seen: i32,
    max_timestamp: i64,
    errors: Vec<(i32, String)>,
    errors_total: usize,
    has_timestamp_error: bool,
}

impl Tally {
    pub fn new(header: &BatchHeader, rules: &ValidateRules, now_ms: i64) -> Tally {
        let source = header.compression();
        let is_kept = source.is_some_and(|source| rules.compression.codec(source) == source);
        Tally {
            header: *header,
            topic_timestamps: rules.timestamp_type,
            before_max_ms: rules.before_max_ms,
            after_max_ms: rules.after_max_ms,
            now_ms,
            keys_required: rules.keys_required,
            is_rebuilt: !is_kept,
            seen: 0,
            max_timestamp: NO_TIMESTAMP,
            errors: Vec::new(),
            errors_total: 0,
            has_timestamp_error: false,
        }
    }

    /// Whether the batch declares more records than were seen.
    pub fn wants_more(&self) -> bool {
        self.seen < self.header.record_count
    }

    /// Largest timestamp seen, -1 if none.
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// Judges the next record.
    pub fn take(&mut self, record: &ScannedRecord) -> Result<(), Reason> {
        let index = self.seen;
        if record.offset_delta != index {
            return Err(Reason::OffsetDelta { expected: index, found: record.offset_delta });
        }
        self.seen += 1;
        let timestamp = self.header.record_timestamp(record.timestamp_delta);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if self.keys_required && record.key_bytes < 0 {
            self.refuse(index, |_| {
                format!("Compacted topic cannot accept message without key {PARTITION_PLACE}")
            });
        } else if self.topic_timestamps == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
            if self.is_out_of_range(timestamp) {
                self.has_timestamp_error = true;
                self.refuse(index, |tally| tally.range_text(timestamp, index));
            }
        } else if self.header.timestamp_type() == TimestampType::LogAppendTime {
            self.has_timestamp_error = true;
            self.refuse(index, |tally| tally.append_time_text(record, timestamp));
        }
        Ok(())
    }

    /// After the last record nothing may follow.
    pub fn check_end(&self, is_at_end: bool) -> Result<(), RecordFault> {
        if is_at_end { Ok(()) } else { Err(RecordFault::TrailingBytes(self.header.record_count)) }
    }

    /// The answer if any record is at fault.
    pub fn refusal(&mut self) -> Option<Refusal> {
        if self.errors_total == 0 {
            return None;
        }
        let reason = Reason::RecordErrors {
            total: self.errors_total,
            has_timestamp_error: self.has_timestamp_error,
        };
        let message = if self.has_timestamp_error {
            "One or more records have been rejected due to invalid timestamp".to_owned()
        } else {
            let shown: Vec<String> = self
                .errors
                .iter()
                .take(ERRORS_IN_MESSAGE_MAX)
                .map(|(index, text)| format!("RecordError(batchIndex={index}, message='{text}')"))
                .collect();
            format!(
                "One or more records have been rejected due to {} record errors in total, and \
                 only showing the first three errors at most: [{}]",
                self.errors_total,
                shown.join(", ")
            )
        };
        Some(Refusal {
            code: reason.code(),
            message: Some(message),
            record_errors: std::mem::take(&mut self.errors)
                .into_iter()
                .map(|(index, text)| (index, Some(text)))
                .collect(),
            reason,
        })
    }

    fn is_out_of_range(&self, timestamp: i64) -> bool {
        let age = self.now_ms.wrapping_sub(timestamp);
        age > self.before_max_ms || age.wrapping_neg() > self.after_max_ms
    }

    #[cold]
    fn refuse(&mut self, index: i32, text: impl FnOnce(&Tally) -> String) {
        self.errors_total += 1;
        if self.errors.len() < RECORD_ERRORS_PER_BATCH_MAX {
            let text = text(self);
            self.errors.push((index, text));
        }
    }

    fn range_text(&self, timestamp: i64, index: i32) -> String {
        format!(
            "Timestamp {timestamp} of message with offset {index} is out of range. The timestamp \
             should be within [{}, {}]",
            self.now_ms.wrapping_sub(self.before_max_ms),
            self.now_ms.wrapping_add(self.after_max_ms)
        )
    }

    fn append_time_text(&self, record: &ScannedRecord, timestamp: i64) -> String {
        // Kafka does not keep keys and values of compressed records that it need not rewrite, and
        // its text for such a record differs.
        let is_partial = self.header.compression() != Some(Compression::None) && !self.is_rebuilt;
        let (name, smallest) =
            if is_partial { ("PartialDefaultRecord", -1) } else { ("DefaultRecord", 0) };
        format!(
            "Invalid timestamp type in message {name}(offset={}, timestamp={timestamp}, key={} \
             bytes, value={} bytes). Producer should not set timestamp type to LogAppendTime.",
            record.offset_delta,
            record.key_bytes.max(smallest),
            record.value_bytes.max(smallest)
        )
    }
}

/// Kafka names this many records in the text of the partition.
const ERRORS_IN_MESSAGE_MAX: usize = 3;
