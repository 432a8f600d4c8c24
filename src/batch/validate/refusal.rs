//! Why a batch is refused, and what the client is told.
//!
//! Owns the error codes and texts. Kafka sends a text only with errors of single records, and where
//! it cannot make out the batch; every other reason is for logs and counters.
//! Source: Kafka's `LogValidator.processRecordErrors`.

use crate::batch::compression::InflateFault;
use crate::batch::records::RecordFault;
use crate::error_code::ErrorCode;
use crate::ids::ProducerId;
use crate::limits::HEADERS_PER_RECORD_MAX;
use crate::metrics::Limit;

/// The answer to a batch that is not appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Code of the partition.
    pub code: ErrorCode,
    /// Text of the partition, where Kafka sends one.
    pub message: Option<String>,
    /// Index in the batch and text of each record at fault, as far as the limit goes.
    pub record_errors: Vec<(i32, Option<String>)>,
    /// The reason, for logs and counters.
    pub reason: Reason,
}

impl Refusal {
    /// A refusal of the batch as a whole.
    #[must_use]
    pub(super) fn plain(reason: Reason) -> Refusal {
        // Before its log, Kafka fails with a sentence.
        let message = match reason {
            Reason::MagicUnknown(magic) => Some(format!("Invalid magic found in record: {magic}")),
            Reason::LengthTooSmall(length) => {
                Some(format!("Record size {length} is less than the minimum record overhead (14)"))
            }
            _ => None,
        };
        Refusal { code: reason.code(), message, record_errors: Vec::new(), reason }
    }

    /// The bound that the batch goes beyond, if that is what is wrong, or that its answer does.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match &self.reason {
            Reason::TooLarge { .. } => Some(Limit::MessageBytes),
            Reason::Inflate(InflateFault::TooLarge) => Some(Limit::InflatedBatchBytes),
            Reason::Inflate(InflateFault::WindowTooLarge) => Some(Limit::InflationWindow),
            Reason::Record(RecordFault::HeaderCount(count)) if *count > HEADERS_PER_RECORD_MAX => {
                Some(Limit::HeadersPerRecord)
            }
            Reason::RecordErrors { total, .. } if *total > self.record_errors.len() => {
                Some(Limit::RecordErrorsPerBatch)
            }
            _ => None,
        }
    }

    /// Whether Kafka's log finds this fault, so that the answer names the start of the log.
    #[must_use]
    pub fn names_log_start(&self) -> bool {
        let before_the_log = matches!(
            self.reason,
            Reason::NoBatch { .. }
                | Reason::MagicOld { .. }
                | Reason::ZstdTooEarly { .. }
                | Reason::SecondBatch { .. }
        );
        let never = matches!(
            self.code,
            ErrorCode::CorruptMessage | ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge
        );
        !before_the_log && !never
    }

    /// Names the partition where Kafka's texts do; validation does not know it. `name` is
    /// "topic-partition".
    #[must_use]
    pub fn in_partition(mut self, name: &str) -> Refusal {
        let named = format!("{PARTITION_PLACE} {name}");
        let texts = self.record_errors.iter_mut().filter_map(|(_, text)| text.as_mut());
        for text in texts.chain(self.message.as_mut()) {
            *text = text.replace(PARTITION_PLACE, &named);
        }
        self
    }
}

/// Why a batch is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// No bytes, or only a cut batch.
    #[error("Produce {version} needs one record batch per partition, there is none")]
    NoBatch {
        /// Version of the request.
        version: i16,
    },
    /// A batch of format 0 or 1.
    #[error("Produce {version} takes only record batches of magic 2, not {magic}")]
    MagicOld {
        /// Version of the request.
        version: i16,
        /// Magic found.
        magic: i8,
    },
    /// zstd before version 7.
    #[error("Produce {version} must not carry zstd")]
    ZstdTooEarly {
        /// Version of the request.
        version: i16,
    },
    /// More than one batch.
    #[error("Produce {version} takes exactly one record batch per partition")]
    SecondBatch {
        /// Version of the request.
        version: i16,
    },
    /// Something behind the batch that cannot be another one.
    #[error("what follows the batch is none")]
    JunkBehind,
    /// A length field below anything that could follow it.
    #[error("record size {0} is below the smallest possible")]
    LengthTooSmall(i32),
    /// A magic that never existed.
    #[error("unknown magic {0}")]
    MagicUnknown(i8),
    /// A base offset other than 0.
    #[error("base offset {0} is not 0")]
    BaseOffset(i64),
    /// The batch, as sent or as compressed anew, is above `max.message.bytes`.
    #[error("batch of {bytes} bytes exceeds max.message.bytes {max}")]
    TooLarge {
        /// Size of the batch.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The batch is shorter than a header.
    #[error("batch of {bytes} bytes is shorter than its header")]
    BelowHeader {
        /// Size of the batch.
        bytes: usize,
    },
    /// The CRC does not fit the bytes.
    #[error("stored crc {stored:#010x}, computed crc {computed:#010x}")]
    CrcMismatch {
        /// CRC in the header.
        stored: u32,
        /// CRC of the bytes.
        computed: u32,
    },
    /// A codec id without a codec.
    #[error("unknown compression codec {0}")]
    CodecUnknown(u8),
    /// A negative last offset delta.
    #[error("last offset delta {last} is negative")]
    OffsetRange {
        /// Last offset delta.
        last: i32,
    },
    /// No records, or a negative number of them.
    #[error("record count {0} is not positive")]
    Count(i32),
    /// Offsets and record count disagree.
    #[error("last offset delta {last} does not fit record count {count}")]
    CountMismatch {
        /// Last offset delta.
        last: i32,
        /// Record count.
        count: i32,
    },
    /// Only the broker writes control batches.
    #[error("clients must not write control batches")]
    ControlBatch,
    /// A producer id without a sequence number.
    #[error("sequence number {sequence} of producer {producer_id} is negative")]
    Sequence {
        /// Base sequence.
        sequence: i32,
        /// Producer id.
        producer_id: ProducerId,
    },
    /// A malformed record.
    #[error(transparent)]
    Record(#[from] RecordFault),
    /// Offset deltas that do not count up by one from 0.
    #[error("offset delta {found} where {expected} must stand")]
    OffsetDelta {
        /// Index of the record.
        expected: i32,
        /// Its offset delta.
        found: i32,
    },
    /// The records do not inflate, or to too much.
    #[error(transparent)]
    Inflate(#[from] InflateFault),
    /// Records against a rule of the topic; the code depends on which.
    #[error("{total} records against a rule of the topic")]
    RecordErrors {
        /// How many records.
        total: usize,
        /// Whether any of them has a wrong timestamp.
        has_timestamp_error: bool,
    },
    /// The batch is above `segment.bytes`.
    #[error("batch of {bytes} bytes exceeds segment.bytes {max}")]
    AboveSegment {
        /// Size of the batch.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A codec got no memory.
    #[error("compressing failed: {0}")]
    Compress(String),
}

impl Reason {
    /// The code a client sees.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Reason::ZstdTooEarly { .. } | Reason::CodecUnknown(_) => {
                ErrorCode::UnsupportedCompressionType
            }
            Reason::JunkBehind
            | Reason::LengthTooSmall(_)
            | Reason::MagicUnknown(_)
            | Reason::BelowHeader { .. }
            | Reason::CrcMismatch { .. } => ErrorCode::CorruptMessage,
            Reason::TooLarge { .. } => ErrorCode::MessageTooLarge,
            Reason::AboveSegment { .. } => ErrorCode::RecordListTooLarge,
            Reason::RecordErrors { has_timestamp_error: true, .. } => ErrorCode::InvalidTimestamp,
            Reason::Compress(_) => ErrorCode::UnknownServerError,
            Reason::NoBatch { .. }
            | Reason::MagicOld { .. }
            | Reason::SecondBatch { .. }
            | Reason::BaseOffset(_)
            | Reason::OffsetRange { .. }
            | Reason::Count(_)
            | Reason::CountMismatch { .. }
            | Reason::ControlBatch
            | Reason::Sequence { .. }
            | Reason::Record(_)
            | Reason::OffsetDelta { .. }
            | Reason::Inflate(_)
            | Reason::RecordErrors { .. } => ErrorCode::InvalidRecord,
        }
    }
}

impl From<std::io::Error> for Reason {
    fn from(error: std::io::Error) -> Reason {
        Reason::Compress(error.to_string())
    }
}

/// Where a partition's name follows in Kafka's texts.
pub(super) const PARTITION_PLACE: &str = "in topic partition";
