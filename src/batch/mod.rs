//! Record batches of format 2: the bytes producers send, the log keeps and consumers read.
//!
//! Owns the meaning of every byte of a batch: header, CRC, records, codecs, control batches, the
//! checks of Produce, and the writer for batches the broker makes itself. It must never do I/O,
//! read a clock or know a partition: it takes bytes and `now` and returns values.
//!
//! Invariants: record bytes are passed on as they were sent unless the topic asks for another
//! codec; no length or count from the wire allocates before it was checked against bytes that are
//! really there; no input panics. Source: KIP-98 and Kafka's `DefaultRecordBatch`,
//! `DefaultRecord` and `LogValidator`.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod build;
pub mod compression;
mod contexts;
pub mod control;
pub mod crc;
pub mod header;
pub mod inflating;
mod lz4;
pub mod records;
pub mod rewrite;
mod scan;
pub mod search;
mod snappy;
pub mod stream;
pub mod validate;

pub use build::{BatchBuilder, RecordHeader};
pub use compression::{Compression, CompressionTarget, InflateFault};
pub use control::{Marker, MarkerKind};
pub use header::{BatchFault, BatchHeader, HEADER_BYTES, TimestampType, peek_frame};
pub use inflating::Inflating;
pub use records::{Headers, Record, RecordFault, Records, decompressed_records};
pub use rewrite::{Rewrite, RewriteRules, Rewritten, empty_batch};
pub use validate::{Reason, Refusal, ValidBatch, ValidateRules, Validator, validate};
