//! Every bound that a running broker can reach, by the name it has in metrics.
//!
//! Owns the table of [`Limit`]: its label, and the constant of `limits.rs` or the configuration
//! key that sets it. A bound that is reached is counted where it is reached, once per request,
//! connection or turn that met it. Bounds that nothing can run into at run time (units of I/O,
//! pauses, what only a start or a command meets) have no variant; `tests.rs` names them one by one
//! with the reason, so that a new constant is either counted or accounted for.

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $variant:ident = $label:literal by [$($source:literal),+];)*) => {
        /// A bound that was reached.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Limit { $($(#[doc = $doc])+ $variant),* }

        impl Limit {
            /// Every limit, in the order of their numbers.
            pub const ALL: &'static [Limit] = &[$(Limit::$variant),*];

            /// Value of the label `limit`.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Limit::$variant => $label),* }
            }

            /// Constants of `limits.rs`, or configuration keys, that set it.
            #[must_use]
            pub fn set_by(self) -> &'static [&'static str] {
                match self { $(Limit::$variant => &[$($source),+]),* }
            }
        }
    };
}

limits! {
    /// A connection was refused: the broker has as many as it may.
    Connections = "connections" by ["max.connections"];
    /// A connection was refused: its address has as many as it may.
    ConnectionsPerIp = "connections_per_ip"
        by ["max.connections.per.ip", "max.connections.per.ip.overrides"];
    /// Accepting paused: the process or the system has no descriptor or no memory left.
    Descriptors = "descriptors"
        by ["ACCEPT_PAUSE_MS", "DESCRIPTORS_PER_SHARD", "DESCRIPTORS_OF_PROCESS"];
    /// A connection was closed: it was idle for too long.
    ConnectionIdle = "connection_idle" by ["connections.max.idle.ms"];
    /// A connection was closed: a request of it, or its client with a response, did not go on.
    ConnectionStall = "connection_stall"
        by ["connections.stall.ms", "FRAME_PROGRESS_BYTES_MIN"];
    /// A connection was closed: it held memory in the middle of something while others waited.
    ConnectionMemory = "connection_memory" by ["MEMORY_HELD_MS_MAX"];
    /// A connection was closed: it announced too large a frame.
    FrameTooLarge = "frame_too_large" by ["socket.request.max.bytes"];
    /// A connection was closed: its request has too many elements.
    RequestElements = "request_elements" by [
        "REQUEST_ELEMENTS_MAX", "REQUEST_ELEMENTS_LARGE_MAX", "REQUEST_ELEMENTS_SMALL_MAX"
    ];
    /// A connection was closed: its request has too many unknown tagged fields.
    RequestUnknownTags = "request_unknown_tags" by ["REQUEST_UNKNOWN_TAGS_MAX"];
    /// A socket was left unread: too many of its requests were in progress.
    RequestsInFlight = "requests_in_flight" by ["REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX"];
    /// A socket was left unread: its client has too much of the responses before to take.
    ResponseBytesUnsent = "response_bytes_unsent" by ["RESPONSE_BYTES_UNSENT_MAX"];
    /// A request waited: the memory for requests and responses was used.
    MemoryBudget = "memory_budget" by ["memory"];
    /// An append waited: the memory for journal blocks was used.
    JournalMemory = "journal_memory" by ["memory"];
    /// An append waited: the journal's ring was full.
    JournalRing = "journal_ring" by ["journal.ring.bytes"];
    /// A journal block was full before the device took it.
    JournalBlockBytes = "journal_block_bytes" by ["JOURNAL_BLOCK_BYTES_MAX"];
    /// A journal block waited for those before it.
    JournalBlocksInFlight = "journal_blocks_in_flight" by ["JOURNAL_BLOCKS_IN_FLIGHT_MAX"];
    /// A partition waited for its turn to be written to its segment.
    SegmentWriters = "segment_writers" by ["SEGMENT_WRITERS_MAX"];
    /// An open segment file was closed for another one.
    SegmentFilesOpen = "segment_files_open" by ["SEGMENT_FILES_OPEN_MAX"];
    /// Records were refused: the disk is full.
    DiskFull = "disk_full" by ["SPACE_CHECK_INTERVAL_MS"];
    /// A batch was refused: it is larger than its topic allows.
    MessageBytes = "message_bytes" by ["message.max.bytes"];
    /// A batch was refused: it inflates to too much.
    InflatedBatchBytes = "inflated_batch_bytes" by ["INFLATED_BATCH_BYTES_MAX"];
    /// A batch was refused: a record has too many headers.
    HeadersPerRecord = "headers_per_record" by ["HEADERS_PER_RECORD_MAX"];
    /// A batch was refused: its zstd window, or its LZ4 blocks, are too large.
    InflationWindow = "inflation_window" by ["ZSTD_WINDOW_LOG_MAX"];
    /// An answer names fewer bad records than there are.
    RecordErrorsPerBatch = "record_errors_per_batch" by ["RECORD_ERRORS_PER_BATCH_MAX"];
    /// A fetch was answered at once: too many wait for its partition.
    WaitersPerPartition = "waiters_per_partition" by ["WAITERS_PER_PARTITION_MAX"];
    /// A fetch session was given up for a new one, or the new one was not kept.
    FetchSessions = "fetch_sessions"
        by ["max.incremental.fetch.session.cache.slots", "FETCH_SESSION_PARTITION_BYTES"];
    /// Messages for another shard were kept back: its mailbox was full.
    MailboxMessages = "mailbox_messages" by ["MAILBOX_MESSAGES_MAX"];
    /// Admission of requests closed: too many questions to other shards were open.
    MailboxRequests = "mailbox_requests" by ["MAILBOX_REQUESTS_MAX"];
    /// Messages of other shards were left for the next turn.
    MessagesPerTurn = "messages_per_turn" by ["MESSAGES_PER_TURN_MAX"];
    /// A request to create topics was refused: too many partitions.
    CreatePartitionsPerRequest = "create_partitions_per_request"
        by ["CREATE_PARTITIONS_PER_REQUEST_MAX"];
    /// A request to alter something was refused: too many changes.
    CatalogRecordsPerRequest = "catalog_records_per_request"
        by ["CATALOG_RECORDS_PER_REQUEST_MAX"];
    /// A topic was refused: its name is too long.
    TopicNameBytes = "topic_name_bytes" by ["TOPIC_NAME_BYTES_MAX"];
    /// A producer's verification was forgotten for another one's.
    VerificationsPerPartition = "verifications_per_partition"
        by ["VERIFICATIONS_PER_PARTITION_MAX"];
    /// A request about a transactional id was refused: too many are held.
    TxnRequestsHeld = "txn_requests_held" by ["TXN_REQUESTS_HELD_MAX"];
    /// A request about a transactional id was held to its deadline.
    TxnPendingHold = "txn_pending_hold" by ["txn_pending_hold_ms"];
    /// A batch was refused: its producer's last transaction took too long to end.
    ConcurrentTransactionsRetry = "concurrent_transactions_retry"
        by ["CONCURRENT_TRANSACTIONS_RETRY_MS_MAX"];
    /// Transactional ids that were due were left for the next turn of the sweep.
    TransactionSweepWrites = "transaction_sweep_writes" by ["TRANSACTION_SWEEP_WRITES_MAX"];
    /// A pattern of transactional ids was refused: it compiles to too much.
    TransactionalIdPatternBytes = "transactional_id_pattern_bytes"
        by ["TRANSACTIONAL_ID_PATTERN_BYTES_MAX"];
    /// Markers of one message were left for the next turn.
    MarkersPerTurn = "markers_per_turn" by ["MARKERS_PER_TURN_MAX"];
    /// A partition of an internal topic is not served, or a record of it was not written: the
    /// record is too large.
    CoordinatorRecordBytes = "coordinator_record_bytes" by ["COORDINATOR_RECORD_BYTES_MAX"];
    /// Groups were left for the next turn of the sweep over offsets.
    GroupsPerTurn = "groups_per_turn" by ["GROUPS_PER_TURN_MAX"];
    /// Tombstones of offsets went into more than one batch.
    TombstonesPerBatch = "tombstones_per_batch" by ["TOMBSTONES_PER_BATCH_MAX"];
    /// A topic is not counted by its name: too many are.
    MetricsTopics = "metrics_topics" by ["METRICS_TOPICS_MAX"];
    /// Partitions were left out of a scrape: the shard has too many.
    MetricsPartitions = "metrics_partitions" by ["METRICS_PARTITIONS_MAX"];
    /// Groups were left out of a scrape: the shard has too many offsets.
    MetricsGroupOffsets = "metrics_group_offsets" by ["METRICS_GROUP_OFFSETS_MAX"];
    /// A connection to the metrics endpoint was closed: it has as many as it may.
    HttpConnections = "http_connections" by ["HTTP_CONNECTIONS_MAX"];
    /// A request at the metrics endpoint was refused: its head is too large.
    HttpHeadBytes = "http_head_bytes" by ["HTTP_HEAD_BYTES_MAX"];
    /// A request at the metrics endpoint took too long.
    HttpRequestTime = "http_request_time" by ["HTTP_REQUEST_MS_MAX"];
    /// A slow request was not written about: too many were.
    SlowLines = "slow_lines" by ["SLOW_LINES_MAX", "SLOW_LINES_WINDOW_MS"];
}

/// Number of limits.
pub(super) const COUNT: usize = Limit::ALL.len();

#[cfg(test)]
mod tests;
