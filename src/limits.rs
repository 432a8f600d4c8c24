//! Every bound in the system that is not a configuration key, one constant each, with its reason.
//!
//! Owns numbers only. A queue, loop or buffer elsewhere that has no configured bound takes its
//! bound from here; reaching one is a counted event with a defined answer, never an abort.

/// Alignment of every direct read, write and buffer: the largest logical block we support.
pub const BLOCK_ALIGN: usize = 4096;

/// Largest size of one journal block: keeps a commit's device time near 0.5 ms, and a torn block
/// small. A larger batch is split over several blocks.
pub const JOURNAL_BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Capacity that an open journal block begins with while few records come at a time: what a
/// single small one needs.
pub const JOURNAL_BLOCK_BYTES_MIN: usize = 4 * 1024;

/// Capacity up to which an open journal block that is full grows by a copy; a larger one leaves,
/// and the next begins.
pub const JOURNAL_BLOCK_BYTES_COPIED: usize = 16 * 1024;

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

/// Bytes of responses that wait for one connection's client beyond which no further request of it
/// is started.
pub const RESPONSE_BYTES_UNSENT_MAX: usize = 1024 * 1024;

/// Bytes by which a request that has begun to arrive must go on within `connections.stall.ms`: a
/// client that sends a byte a second does not hold a place for ever.
pub const FRAME_PROGRESS_BYTES_MIN: u64 = 32 * 1024;

/// Longest time for which a connection may be in the middle of a request or response while others
/// wait for memory.
pub const MEMORY_HELD_MS_MAX: u64 = 2_000;

/// Pause between two looks at who holds memory, while others wait for it.
pub const MEMORY_LOOK_MS: u64 = 100;

/// Memory of a connection from which on a request of it that waits is answered early, while others
/// wait for memory.
pub const MEMORY_HURRY_BYTES: usize = 64 * 1024;

/// Least room that a read of logs is granted, when hardly anything is left: one ordinary batch.
pub const FETCH_BYTES_GRANTED_MIN: usize = 1024 * 1024;

/// Largest frame that is copied out of the buffer it came in, so as not to keep all of that.
pub const FRAME_BYTES_COPIED_MAX: usize = 4 * 1024;

/// Descriptors that one shard needs besides segments and connections: rings, timers, journal files.
pub const DESCRIPTORS_PER_SHARD: usize = 96;

/// Descriptors of the process that are not a shard's: standard streams, lock, catalog, listeners.
pub const DESCRIPTORS_OF_PROCESS: usize = 32;

/// Memory that one partition of a fetch session is counted as: sessions may have so many as fit
/// into a quarter of the memory of a shard's connections.
pub const FETCH_SESSION_PARTITION_BYTES: usize = 256;

/// Idle time after which the kernel asks whether the other end of a connection is still there.
pub const KEEPALIVE_IDLE_S: u64 = 60;

/// Time between two such questions.
pub const KEEPALIVE_INTERVAL_S: u64 = 15;

/// Unanswered questions after which the connection is broken.
pub const KEEPALIVE_PROBES: u32 = 4;

/// Most parked fetches on one partition; a fetch beyond it answers at once.
pub const WAITERS_PER_PARTITION_MAX: usize = 10_000;

/// Length of a mailbox between two shards: senders keep the rest in their outbox.
pub const MAILBOX_MESSAGES_MAX: usize = 1024;

/// Most partitions one CreateTopics request may create in all, as in Apache Kafka.
pub const CREATE_PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

/// Most changes of the catalog that one request to alter something may make, as in Apache Kafka.
pub const CATALOG_RECORDS_PER_REQUEST_MAX: usize = 10_000;

/// Longest topic name, as in Apache Kafka.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Batches remembered per producer and partition, as in Apache Kafka.
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;

/// Producers whose first transactional batch waits for its coordinator's word, per partition; the
/// oldest are forgotten beyond it, and their batches sent again.
pub const VERIFICATIONS_PER_PARTITION_MAX: usize = 10_000;

/// Most bytes a compressed batch may inflate to: far above what any client sends, far below what
/// would hurt. Inflating beyond it refuses the batch.
pub const INFLATED_BATCH_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Bytes to which an ordinary batch inflates: beyond it, it waits for others of its kind only.
pub const INFLATED_ORDINARY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Part of the memory that a batch may take for inflating beyond which it waits for others of its
/// kind, where that is known before anything is inflated: a quarter.
pub const INFLATION_ORDINARY_PART: usize = 4;

/// Bytes validated in one turn before the validator yields to other work of its shard.
pub const VALIDATE_SLICE_BYTES: usize = 1024 * 1024;

/// Most headers one record may carry; more is refused as an invalid record.
pub const HEADERS_PER_RECORD_MAX: i32 = 1_000_000;

/// Partitions of one shard whose segments are written at the same time.
pub const SEGMENT_WRITERS_MAX: usize = 4;

/// Segment files one shard keeps open; the least recently used is closed beyond it.
pub const SEGMENT_FILES_OPEN_MAX: usize = 512;

/// Partitions that retention looks at before others have their turn.
pub const RETENTION_SLICE: usize = 64;

/// Largest single read of a segment: a device gives its best from there on.
pub const READ_BYTES_MAX: usize = 1024 * 1024;

/// Bytes read ahead of a reader that has gone on where it had ended: they double as it goes on.
pub const READ_AHEAD_BYTES_MIN: usize = 512 * 1024;

/// Most bytes read ahead of one reader, if its share of the cache allows for them.
pub const READ_AHEAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes that compaction goes through before other work of its shard comes.
pub const CLEANER_SLICE_BYTES: usize = 64 * 1024;

/// Bytes that compaction reads, writes or goes through before what waits for the journal comes
/// first: as much of the device's time as a commit of the journal takes.
pub const CLEANER_PIECE_BYTES: usize = 256 * 1024;

/// Bytes by which a large file on its way off the disk is cut at once: a file system that hands
/// free blocks on to its device takes some milliseconds for as much.
pub const UNLINK_PIECE_BYTES: u64 = 4 * 1024 * 1024;

/// Pause after each of them.
pub const UNLINK_PAUSE_MS: u64 = 5;

/// Partitions that the cleaner looks at before other work of its shard comes.
pub const CLEANER_PARTITIONS_PER_TURN: usize = 128;

/// Pause between two looks for something to checkpoint, once the next one is due.
pub const CHECKPOINT_LOOK_MS: u64 = 1_000;

/// Time between two looks at a full disk.
pub const SPACE_CHECK_INTERVAL_MS: u64 = 200;

/// Messages of other shards taken in one turn.
pub const MESSAGES_PER_TURN_MAX: usize = 256;

/// Producer ids reserved at once, as in Apache Kafka.
pub const PRODUCER_ID_BLOCK: i64 = 1000;

/// Requests about transactional ids that one shard holds back at once, while a transition is
/// pending; further ones are refused as Kafka refuses all of them.
pub const TXN_REQUESTS_HELD_MAX: usize = 10_000;

/// Pause before the end of a transaction is appended again after its append failed.
pub const TXN_APPEND_RETRY_MS: u64 = 1_000;

/// First pause before markers are sent again that a shard could not write.
pub const MARKER_RETRY_MS_MIN: u64 = 50;

/// Longest pause between two attempts to write the same markers.
pub const MARKER_RETRY_MS_MAX: u64 = 1_000;

/// Bytes of an internal topic read in one turn while a coordinator loads it.
pub const COORDINATOR_LOAD_BYTES: usize = 256 * 1024;

/// Bytes of one batch of tombstones of expired transactional ids, as in Apache Kafka.
pub const TOMBSTONE_BATCH_BYTES: usize = 16 * 1024;

/// Largest record that a coordinator loads, and writes: above any that a group can need, and so
/// much is held of a batch while its records inflate. A larger one is refused with its place.
pub const COORDINATOR_RECORD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Largest response that a command takes from a broker.
pub const CLIENT_RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Memory of the process that is nobody's share: its code, stacks and tables, and what the runtime
/// and the allocator keep.
pub const PROCESS_MEMORY_BYTES: u64 = 24 * 1024 * 1024;

/// Most of a shard's memory that inflating gets: the largest zstd window and what is around it.
pub const INFLATION_MEMORY_BYTES_MAX: u64 = 168 * 1024 * 1024;

/// Memory of the broker below which it is taken in small pages, and given back soon when it is
/// free: large ones, taken for a few bytes each, and free ones would make up much of it.
pub const SMALL_MEMORY_BELOW_BYTES: u64 = 1024 * 1024 * 1024;

/// How long memory that is free is kept by a broker with so little of it.
pub const SMALL_MEMORY_KEPT_MS: u32 = 10;

/// Largest zstd window a batch may ask for, if there is memory: what Kafka's own decoder accepts,
/// 128 MiB.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Most rejected records named in one answer: a batch of tiny records could otherwise be answered
/// with a response hundreds of times its size. The count in the message stays exact.
pub const RECORD_ERRORS_PER_BATCH_MAX: usize = 1_000;

/// Bytes one socket read asks for when nothing is known about what comes; also the most that is
/// reserved on the word of a length prefix alone.
pub const FRAME_READ_BYTES_MIN: usize = 64 * 1024;

/// Room that the buffer of a large frame gets at a time, as a multiple of what has arrived of it.
/// Room that nothing has come into takes no memory; a buffer that was too small leaves a hole.
/// Most frames of producers are below a mebibyte: they move once.
pub const FRAME_ROOM_FACTOR: usize = 16;

/// Most partitions, topics and the like in one request that carries no configuration: bounds what
/// decoding may allocate (at most 112 bytes each) well below the frame limit.
pub const REQUEST_ELEMENTS_MAX: usize = 200_000;

/// The same for the few requests whose elements take more memory each, up to 144 bytes.
pub const REQUEST_ELEMENTS_LARGE_MAX: usize = 100_000;

/// Memory that one element of a request is counted as. One request may be decoded to half of the
/// memory of a shard's connections, whatever the constants allow.
pub const REQUEST_ELEMENT_BYTES: usize = 144;

/// Most array elements in a request of an API that has no arrays to speak of.
pub const REQUEST_ELEMENTS_SMALL_MAX: usize = 16;

/// Most unknown tagged fields in one request. Each costs a map node of some 450 bytes once
/// decoded, against three bytes on the wire; real clients send none.
pub const REQUEST_UNKNOWN_TAGS_MAX: usize = 1_000;

/// Bytes of a journal ring file read at once while it is replayed; a larger single block is read
/// alone.
pub const JOURNAL_REPLAY_CHUNK_BYTES: usize = 2 * 1024 * 1024;

/// Such reads that are on their way while one is looked at: a device gives more to several.
pub const JOURNAL_REPLAY_CHUNKS_AHEAD: usize = 3;

/// Bytes after the end of a journal that a start reads whole, to tell a torn tail from damage: all
/// of a ring of the ordinary size.
pub const JOURNAL_PROBE_BYTES: u64 = 128 * 1024 * 1024;

/// Distance of the places of a larger ring that it looks at beyond that, and of a file's beginning.
pub const JOURNAL_PROBE_STRIDE_BYTES: u64 = 32 * 1024 * 1024;

/// Writes of one segment that a start has on their way while the next one fills.
pub const REPLAY_WRITES_AHEAD: usize = 3;

/// Locked memory without which the runtime makes no executor at all.
pub const EXECUTOR_MEMLOCK_BYTES_MIN: u64 = 512 * 1024;

/// Buffer space reserved for the first read of a connection that has something to say.
pub const STREAM_READ_BYTES_MIN: usize = 16 * 1024;

/// Largest buffer space reserved for one read of a connection that keeps filling it.
pub const STREAM_READ_BYTES_MAX: usize = 256 * 1024;

/// Slices in one vectored send: the kernel's own bound (`IOV_MAX`).
pub const STREAM_SLICES_PER_SEND_MAX: usize = 1024;

/// Connections the kernel completes ahead of their acceptance.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Pause of an accept loop that has run out of descriptors or memory.
pub const ACCEPT_PAUSE_MS: u64 = 100;

/// Requests of one shard to others that are not answered yet, beyond which it admits no new work
/// from its sockets; admission reopens at half of it.
pub const MAILBOX_REQUESTS_MAX: usize = 1024;

/// Size of the catalog's log at which a snapshot is written and a new log begun: replaying it
/// takes milliseconds.
pub const CATALOG_LOG_BYTES_MAX: u64 = 1024 * 1024;

/// Control messages kept back for one other shard, beyond which whoever can wait starts no new
/// control work towards it.
pub const MAILBOX_CONTROL_MAX: usize = 1024;

/// Socket calls of one connection that succeed at once before it lets other tasks run.
pub const STREAM_CALLS_PER_TURN_MAX: u32 = 16;

/// Open files and connections below which the start warns.
pub const OPEN_FILES_COMFORTABLE: u64 = 16_384;

/// Longest time a stop waits for connections to end.
pub const DRAIN_MS: u64 = 5_000;

/// Tombstones of expired or deleted offsets in one batch: well below the size of any batch.
pub const TOMBSTONES_PER_BATCH_MAX: usize = 1_000;

/// Groups looked through for expired offsets before other work of the shard has its turn.
pub const GROUPS_PER_TURN_MAX: usize = 100;

/// Size of one compiled regular expression of a consumer group: more is refused as malformed. An
/// expression of a few hundred characters without large repetitions takes a tenth of it.
pub const REGEX_BYTES_MAX: usize = 1024 * 1024;

/// Topic names that one regular expression is held against in one turn.
pub const REGEX_NAMES_PER_TURN_MAX: usize = 1_000;

/// Most aborts or tombstones that one sweep over transactional ids begins: a turn stays short
/// after a long stop, when everything is due at once.
pub const TRANSACTION_SWEEP_WRITES_MAX: usize = 1_000;

/// Largest compiled pattern of a ListTransactions request; a larger one is refused as no pattern.
pub const TRANSACTIONAL_ID_PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Markers of one message appended in one turn before other work of the shard comes.
pub const MARKERS_PER_TURN_MAX: usize = 1024;

/// Pause before the coordinator is asked again whether a batch may open a transaction while the
/// one before is ending, as in Apache Kafka; only where requests are not held.
pub const CONCURRENT_TRANSACTIONS_RETRY_MS: u64 = 20;

/// Longest time it is asked again, as in Apache Kafka.
pub const CONCURRENT_TRANSACTIONS_RETRY_MS_MAX: u64 = 100;

/// Topics that one shard counts by name; what happens in further ones is counted together.
pub const METRICS_TOPICS_MAX: usize = 1_000;

/// Partitions of one shard that metrics tell of one by one.
pub const METRICS_PARTITIONS_MAX: usize = 10_000;

/// Committed offsets, and groups, of one shard that a scrape tells of; groups beyond it are left
/// out whole, and counted.
pub const METRICS_GROUP_OFFSETS_MAX: usize = 10_000;

/// Connections to the metrics endpoint at once; further ones are closed.
pub const HTTP_CONNECTIONS_MAX: usize = 16;

/// Most bytes of a request's head at the metrics endpoint.
pub const HTTP_HEAD_BYTES_MAX: usize = 8 * 1024;

/// Longest time a request at the metrics endpoint may take to arrive, and its answer to leave.
pub const HTTP_REQUEST_MS_MAX: u64 = 5_000;

/// Lines about slow requests that one shard writes in [`SLOW_LINES_WINDOW_MS`].
pub const SLOW_LINES_MAX: u32 = 10;

/// Time after which a shard may write about slow requests again.
pub const SLOW_LINES_WINDOW_MS: u64 = 10_000;
