//! Every family of metrics: its name, what it is, and one sentence.
//!
//! Owns the names. Those that Kafka has go by the names that its JMX beans get in Prometheus; the
//! rest begin with `ringlog_`, but for what every exporter tells of its process and what those of
//! consumer lag tell, which go by the names they have there. The README lists them all, held to
//! this table by a test.

use super::exposition::{Family, Kind};

macro_rules! families {
    ($($name:ident = $text:literal $kind:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $name: Family = Family { name: $text, kind: $kind, help: $help };
        )*

        /// All of them.
        pub static ALL: &[&Family] = &[$(&$name),*];
    };
}

use Kind::{Counter, CounterSeconds, Counts, Gauge, GaugeSeconds, Seconds};

families! {
    REQUESTS = "kafka_network_requestmetrics_requests_total" Counter,
        "Requests, by API and version.";
    ERRORS = "kafka_network_requestmetrics_errors_total" Counter,
        "Error codes in responses, NONE included, by API.";
    DURATION = "kafka_request_duration_seconds" Seconds(2),
        "Time of requests, from their first byte to the last of their response.";
    STAGES = "ringlog_request_stage_seconds" Seconds(4), "Where that time went.";
    REQUESTS_IN_PROGRESS = "kafka_network_requestchannel_requestqueuesize" Gauge,
        "Requests begun and not yet answered.";
    SLOW_REQUESTS = "ringlog_slow_requests_total" Counter,
        "Requests over slow_request_ms, by the stage that took most of it.";
    BYTES_RECEIVED = "ringlog_network_received_bytes_total" Counter, "Bytes read from clients.";
    BYTES_SENT = "ringlog_network_sent_bytes_total" Counter, "Bytes written to clients.";
    CONNECTIONS = "kafka_server_connections" Gauge, "Connections being served.";
    CONNECTIONS_OPENED = "kafka_server_connections_opened_total" Counter,
        "Connections served so far.";
    MALFORMED = "ringlog_malformed_requests_total" Counter,
        "Connections closed for input that is no request.";
    MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total" Counter,
        "Records appended; without a topic, all of them.";
    BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total" Counter,
        "Bytes of batches appended.";
    BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total" Counter,
        "Bytes of batches in answers to fetches.";
    BYTES_REJECTED = "kafka_server_brokertopicmetrics_bytesrejected_total" Counter,
        "Bytes of batches refused for their size.";
    PRODUCE_REQUESTS = "kafka_server_brokertopicmetrics_totalproducerequests_total" Counter,
        "Partitions in produce requests.";
    FETCH_REQUESTS = "kafka_server_brokertopicmetrics_totalfetchrequests_total" Counter,
        "Partitions in fetch requests, once per look.";
    FAILED_PRODUCE_REQUESTS = "kafka_server_brokertopicmetrics_failedproducerequests_total" Counter,
        "Partitions in produce requests that were refused, for whatever reason.";
    FAILED_FETCH_REQUESTS = "kafka_server_brokertopicmetrics_failedfetchrequests_total" Counter,
        "Partitions in fetch requests that were refused, for whatever reason.";
    INVALID_MAGIC = "kafka_server_brokertopicmetrics_invalidmagicnumberrecords_total" Counter,
        "Batches refused for their magic.";
    INVALID_CRC = "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total" Counter,
        "Batches refused for their checksum.";
    INVALID_SEQUENCE =
        "kafka_server_brokertopicmetrics_invalidoffsetorsequencerecords_total" Counter,
        "Batches refused for their offsets or sequence numbers.";
    NO_KEY = "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total" Counter,
        "Batches refused for records against a rule of the topic, such as one without a key \
         where keys are needed.";
    OUT_OF_ORDER_SEQUENCE = "ringlog_out_of_order_sequence_error_total" Counter,
        "Batches of idempotent producers refused with OUT_OF_ORDER_SEQUENCE_NUMBER.";
    PRODUCER_FENCED = "ringlog_producer_fenced_error_total" Counter,
        "Batches refused for an epoch that is over: another instance of the producer has begun.";
    DUPLICATES = "ringlog_duplicate_message_count_total" Counter,
        "Records sent again by idempotent producers, and acknowledged without being written again.";
    PARTITIONS = "kafka_server_replicamanager_partitioncount" Gauge, "Partitions.";
    LEADERS = "kafka_server_replicamanager_leadercount" Gauge,
        "Partitions; each is its own leader.";
    UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions" Gauge,
        "0: every partition has one replica.";
    UNDER_MIN_ISR = "kafka_server_replicamanager_underminisrpartitioncount" Gauge,
        "0: every partition has one replica.";
    OFFLINE_REPLICAS = "kafka_server_replicamanager_offlinereplicacount" Gauge,
        "Partitions that are offline.";
    PRODUCER_IDS = "kafka_server_replicamanager_produceridcount" Gauge,
        "Producers that partitions know, once per partition.";
    ACTIVE_CONTROLLERS = "kafka_controller_kafkacontroller_activecontrollercount" Gauge,
        "1: node 0.";
    TOPICS = "kafka_controller_kafkacontroller_globaltopiccount" Gauge, "Topics.";
    ALL_PARTITIONS = "kafka_controller_kafkacontroller_globalpartitioncount" Gauge,
        "Partitions of all topics.";
    OFFLINE_PARTITIONS = "kafka_controller_kafkacontroller_offlinepartitionscount" Gauge,
        "Partitions that are offline.";
    ACTIVE_BROKERS = "kafka_controller_kafkacontroller_activebrokercount" Gauge,
        "Brokers that clients see.";
    FENCED_BROKERS = "kafka_controller_kafkacontroller_fencedbrokercount" Gauge,
        "0: brokers are shards of one process.";
    BROKERS = "kafka_brokers" Gauge, "Brokers that clients see.";
    BROKER_STATE = "kafka_server_brokerstate" Gauge,
        "2 while it starts, 3 while it serves, 6 while it stops.";
    LOG_SIZE = "kafka_log_log_size" Gauge, "Bytes of a partition's batches.";
    LOG_SEGMENTS = "kafka_log_log_numlogsegments" Gauge, "Segments of a partition.";
    LOG_START = "kafka_log_log_logstartoffset" Gauge, "First offset that is kept.";
    LOG_END = "kafka_log_log_logendoffset" Gauge, "Offset that the next record gets.";
    HIGH_WATERMARK = "kafka_topic_partition_current_offset" Gauge,
        "High watermark: the end of what can be read.";
    OLDEST_OFFSET = "kafka_topic_partition_oldest_offset" Gauge,
        "First offset that is kept, under its name in exporters.";
    STABLE_LAG = "kafka_cluster_partition_laststableoffsetlag" Gauge,
        "Records between last stable offset and high watermark: what open transactions hold back.";
    OFFLINE_LOG_DIRS = "kafka_log_logmanager_offlinelogdirectorycount" Gauge,
        "1 when storage has failed and records are refused.";
    PARKED_FETCHES = "kafka_server_delayedoperationpurgatory_purgatorysize" Gauge,
        "Requests that wait for data.";
    FETCH_SESSIONS = "kafka_server_fetchsessioncache_numincrementalfetchsessions" Gauge,
        "Incremental fetch sessions.";
    JOURNAL_COMMITS = "ringlog_journal_commits_total" Counter, "Blocks written to the journal.";
    JOURNAL_BYTES = "ringlog_journal_written_bytes_total" Counter,
        "Bytes written to the journal, padding included.";
    JOURNAL_BATCHES = "ringlog_journal_batches_total" Counter,
        "Batches that went into the journal.";
    JOURNAL_BATCH_BYTES = "ringlog_journal_batch_bytes_total" Counter, "Bytes of those batches.";
    JOURNAL_ENTRIES = "ringlog_journal_entries_per_commit" Counts,
        "Batches and control entries that shared a commit.";
    JOURNAL_DEVICE = "ringlog_journal_device_seconds" Seconds(1),
        "Time of one write to the journal.";
    JOURNAL_RING_USED = "ringlog_journal_ring_used_bytes" Gauge,
        "Bytes of the journal's ring that no checkpoint covers.";
    JOURNAL_RING_SIZE = "ringlog_journal_ring_size_bytes" Gauge, "Bytes of the journal's ring.";
    SEGMENT_BYTES = "ringlog_segment_written_bytes_total" Counter,
        "Bytes of batches written to segments.";
    SEGMENT_BYTES_READ = "ringlog_segment_read_bytes_total" Counter,
        "Bytes read from segments for fetches and the like, those read ahead included.";
    SEGMENT_BYTES_AHEAD = "ringlog_segment_read_ahead_bytes_total" Counter,
        "Bytes read from segments before a reader asked for them.";
    CLEANER_PASSES = "ringlog_cleaner_passes_total" Counter,
        "Passes of compaction over a partition, finished.";
    CLEANER_READ = "ringlog_cleaner_read_bytes_total" Counter,
        "Bytes of batches that compaction has read; it reads what is new twice.";
    CLEANER_WRITTEN = "ringlog_cleaner_written_bytes_total" Counter,
        "Bytes of batches that compaction has written.";
    UNCLEANABLE = "kafka_log_logcleanermanager_uncleanable_partitions_count" Gauge,
        "Partitions that are not compacted any more, after an error.";
    MAX_DIRTY = "kafka_log_logcleanermanager_max_dirty_percent" Gauge,
        "Largest share of bytes in a compacted partition that no pass has been over.";
    SINCE_CLEANER_RUN = "kafka_log_logcleanermanager_time_since_last_run_ms" Gauge,
        "Milliseconds since the cleaner last looked for something to do.";
    SEGMENTS_DELETED = "ringlog_segments_deleted_total" Counter,
        "Segments that retention has taken out of their logs.";
    CHECKPOINTS = "ringlog_checkpoints_total" Counter, "Checkpoints finished.";
    CHECKPOINT_TIME = "ringlog_checkpoint_seconds" Seconds(2), "Time of checkpoints.";
    MEMORY_USED = "ringlog_memory_used_bytes" Gauge, "Memory in use, by purpose.";
    MEMORY_BUDGET = "ringlog_memory_budget_bytes" Gauge, "Memory there is, by purpose.";
    MAILBOX_QUEUED = "ringlog_mailbox_queued_messages" Gauge,
        "Messages for other shards whose mailboxes are full.";
    MAILBOX_REQUESTS = "ringlog_mailbox_open_requests" Gauge,
        "Requests to other shards that are not answered yet.";
    LIMITS = "ringlog_limit_reached_total" Counter, "How often a bound was reached.";
    SHARD_UP = "ringlog_shard_up" Gauge, "Whether the shard answered this scrape.";
    INFO = "ringlog_info" Gauge, "1, with what kind of broker this is.";
    TRANSACTIONAL_IDS = "ringlog_transactional_ids" Gauge, "Transactional ids, by state.";
    TXN_COMMITS = "ringlog_transaction_commits_total" Counter, "Transactions committed.";
    TXN_ABORTS = "ringlog_transaction_aborts_total" Counter,
        "Transactions aborted, by cause: the client, its timeout, or a new instance of its \
         producer.";
    TXN_COMPLETION = "ringlog_transaction_completion_seconds" Seconds(2),
        "Time from a durable Prepare to the durable Complete.";
    TXN_MARKERS_PENDING = "ringlog_transaction_markers_pending" Gauge,
        "Partitions that are owed a marker.";
    TXN_MARKERS = "ringlog_transaction_markers_written_total" Counter, "Markers written, by kind.";
    TXN_HOLDS = "ringlog_transaction_holds_total" Counter,
        "Requests held back while a transition was pending.";
    TXN_HOLD_EXPIRIES = "ringlog_transaction_hold_expiries_total" Counter,
        "Requests that were held to their deadline.";
    TXN_HELD = "ringlog_transaction_requests_held" Gauge, "Requests held back now.";
    LATE_TRANSACTIONS = "kafka_server_replicamanager_partitionswithlatetransactionscount" Gauge,
        "Partitions whose oldest transaction is open for longer than transaction.max.timeout.ms \
         and five minutes.";
    GROUP_MEMBERS = "kafka_consumergroup_members" Gauge, "Members of a group.";
    GROUP_OFFSET = "kafka_consumergroup_current_offset" Gauge,
        "Offset that a group has committed.";
    GROUP_OFFSET_SUM = "kafka_consumergroup_current_offset_sum" Gauge,
        "Sum of those over the partitions of a topic.";
    GROUP_LAG = "kafka_consumergroup_lag" Gauge,
        "Offsets from the committed one to the high watermark; at least 0.";
    GROUP_LAG_SUM = "kafka_consumergroup_lag_sum" Gauge,
        "Sum of those over the partitions of a topic.";
    GROUP_OFFSETS_LEFT_OUT = "ringlog_consumergroup_offsets_left_out" Gauge,
        "Committed offsets that this scrape leaves out, because there are too many.";
    PROCESS_CPU = "process_cpu_seconds_total" CounterSeconds,
        "Processor time of the process, in user and kernel.";
    PROCESS_RESIDENT = "process_resident_memory_bytes" Gauge, "Resident memory of the process.";
    PROCESS_OPEN_FDS = "process_open_fds" Gauge, "Descriptors that are open.";
    PROCESS_MAX_FDS = "process_max_fds" Gauge, "Descriptors that may be open.";
    PROCESS_STARTED = "process_start_time_seconds" GaugeSeconds,
        "When the process began, in seconds since 1970.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_say_what_they_are() {
        let names: BTreeSet<&str> = ALL.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), ALL.len());
        for family in ALL {
            let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(family.name.bytes().all(is_name), "{}", family.name);
            let is_counter = matches!(family.kind, Counter | CounterSeconds);
            assert_eq!(is_counter, family.name.ends_with("_total"), "{}", family.name);
            let is_seconds = matches!(family.kind, Seconds(_) | GaugeSeconds);
            assert_eq!(is_seconds, family.name.ends_with("_seconds"), "{}", family.name);
            assert!(!family.help.contains(['\n', '\\']), "{}", family.name);
        }
    }

    #[test]
    fn the_readme_names_every_family() {
        let readme = include_str!("../../README.md");
        let missing: Vec<&str> = ALL
            .iter()
            .map(|family| family.name)
            .filter(|name| !readme.contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "the README does not name {missing:?}");
    }
}
