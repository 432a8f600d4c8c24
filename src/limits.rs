//! Every bound in the system that is not a configuration key, one constant each, with its reason.
//!
//! Owns numbers only. A queue, loop or buffer elsewhere that has no configured bound takes its
//! bound from here; reaching one is a counted event with a defined answer, never an abort.

/// Alignment of every direct read, write and buffer: the largest logical block we support.
pub const BLOCK_ALIGN: usize = 4096;

/// Largest size of one journal block: keeps a commit's device time near 0.5 ms, and a torn block
/// small. A larger batch is split over several blocks.
pub const JOURNAL_BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Smallest capacity of an open journal block buffer.
pub const JOURNAL_BLOCK_BYTES_MIN: usize = 16 * 1024;

/// Most journal blocks in flight at once per shard.
pub const JOURNAL_BLOCKS_IN_FLIGHT_MAX: usize = 2;

/// Idle time after which an unsealed last journal block is sealed by an empty one.
pub const JOURNAL_SEAL_IDLE_MS: u64 = 50;

/// Unwritten tail bytes of one partition at which write-behind to its segment starts.
pub const WRITE_BEHIND_BYTES: usize = 256 * 1024;

/// Largest single write to a segment file.
pub const SEGMENT_WRITE_BYTES_MAX: usize = 1024 * 1024;

/// Step by which a segment's space is allocated ahead of its writes.
pub const SEGMENT_ALLOCATE_BYTES: u64 = 4 * 1024 * 1024;

/// Most requests of one connection that are in progress before its socket is left unread.
pub const REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX: usize = 128;

/// Most bytes of responses queued on one connection before its socket is left unread.
pub const RESPONSE_BYTES_PER_CONNECTION_MAX: usize = 64 * 1024 * 1024;

/// Most parked fetches on one partition; a fetch beyond it answers at once.
pub const WAITERS_PER_PARTITION_MAX: usize = 10_000;

/// Length of a mailbox between two shards: senders keep the rest in their outbox.
pub const MAILBOX_MESSAGES_MAX: usize = 1024;

/// Most partitions one CreateTopics request may create in all, as in Apache Kafka.
pub const CREATE_PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

/// Longest topic name, as in Apache Kafka.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Batches remembered per producer and partition, as in Apache Kafka.
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;

/// Most bytes a compressed batch may inflate to: far above what any client sends, far below what
/// would hurt. Inflating beyond it refuses the batch.
pub const INFLATED_BATCH_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Bytes validated in one turn before the validator yields to other work of its shard.
pub const VALIDATE_SLICE_BYTES: usize = 1024 * 1024;

/// Most headers one record may carry; more is refused as an invalid record.
pub const HEADERS_PER_RECORD_MAX: i32 = 1_000_000;

/// Size of the catalog's log at which a snapshot is written and a new log begun: replaying it
/// takes milliseconds.
pub const CATALOG_LOG_BYTES_MAX: u64 = 1024 * 1024;
