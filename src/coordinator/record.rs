//! Reading and writing the records of internal topics.
//!
//! Owns the faults of a record's bytes. Must never trust a length or a count beyond the bytes that
//! are there. Which record a topic has is said beside it: [`transaction`].

use thiserror::Error;

pub mod transaction;

/// Why a record of an internal topic means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecordFault {
    /// A later Kafka wrote a kind of key that this broker does not know.
    #[error("unknown key version {0}")]
    UnknownKeyVersion(i16),
    /// A later Kafka wrote a kind of value that this broker does not know.
    #[error("unknown value version {0}")]
    UnknownValueVersion(i16),
    /// Bytes that no Kafka writes.
    #[error("malformed record of an internal topic: {0}")]
    Malformed(&'static str),
}

impl RecordFault {
    /// Whether the record is to be passed over with a warning, as Kafka does; the others mean
    /// that the topic is damaged.
    #[must_use]
    pub fn is_skipped(self) -> bool {
        !matches!(self, RecordFault::Malformed(_))
    }
}
