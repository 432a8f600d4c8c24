//! The broker's settings: one table of keys, and the typed values that come out of it.
//!
//! Owns the list of every key with its kind, default, bounds and one line of documentation. The
//! same rows make the fields of [`BrokerConfig`], the parser, `serve --check`, DescribeConfigs and
//! the test that `config/broker.toml` names them all. Nothing else may define a key.
//!
//! Defaults are Apache Kafka's unless the design says otherwise: replication factors and minimum
//! in-sync replicas of internal topics are 1 on one machine. Source: Kafka's `KafkaConfig`.

use std::path::PathBuf;
use std::time::Duration;

use super::keys::{Bounds, FieldValue, Key, Kind, Scope};
use super::settings::Settings;
use crate::limits::{INFLATION_MEMORY_BYTES_MAX, PROCESS_MEMORY_BYTES};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal),*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl $name {
            /// The words it is written with.
            pub const TEXTS: &'static [&'static str] = &[$($text),*];

            /// The word for this value.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }

        impl FieldValue for $name {
            fn from_canonical(text: Option<&str>) -> Result<Self, String> {
                match text {
                    $(Some($text) => Ok($name::$variant),)*
                    _ => Err(format!("String must be one of: {}", Self::TEXTS.join(", "))),
                }
            }
        }
    };
}

choice!(
    /// What an acknowledged record survives.
    Durability {
        /// Power loss: the journal is written through to the medium.
        PowerLoss = "power-loss",
        /// `kill -9`: the kernel has the bytes, as in an Apache Kafka node by default.
        ProcessCrash = "process-crash"
    }
);
choice!(
    /// How the shards appear to clients.
    Advertise {
        /// Every shard is a broker with its own port.
        PerCore = "per-core",
        /// One broker, node 0, on one port.
        Single = "single"
    }
);
choice!(
    /// What an idle shard does until there is something to do.
    Mode {
        /// It sleeps at once: no CPU time is spent on waiting, and each wake-up takes its time.
        Balanced = "balanced",
        /// It polls for a while first: nobody who comes within that while waits for a wake-up.
        Latency = "latency"
    }
);

impl Mode {
    /// How long an idle shard polls before it sleeps.
    #[must_use]
    pub fn spin_before_park(self) -> Duration {
        match self {
            Mode::Balanced => Duration::ZERO,
            Mode::Latency => LATENCY_SPIN,
        }
    }
}

/// Longer than the time between two requests at 1,000 a second; at rest, ten wake-ups a second make
/// it two per cent of a core.
const LATENCY_SPIN: Duration = Duration::from_millis(2);

choice!(
    /// What a shard does when its journal has failed.
    OnStorageFailure {
        /// Refuse writes, serve reads.
        ReadOnly = "read-only",
        /// Exit with code 3.
        Exit = "exit"
    }
);

macro_rules! broker_keys {
    ($($(#[doc = $doc:literal])+
       $field:ident: $type:ty = $name:literal $scope:ident $kind:ident
           $default:expr, $bounds:expr;)*
    ) => {
        /// Effective settings of a running broker. Immutable; a change makes a new value.
        #[derive(Clone, Debug)]
        pub struct BrokerConfig {
            $($(#[doc = $doc])+ pub $field: $type,)*
            /// Texts and origins of all values, for `--check`, DescribeConfigs and topic defaults.
            pub settings: Settings,
        }

        /// Every key, in the order of `config/broker.toml`.
        pub static KEYS: &[Key] = &[$(Key {
            name: $name,
            kind: Kind::$kind,
            default: $default,
            bounds: $bounds,
            scope: Scope::$scope,
            doc: concat!($($doc),+),
        },)*];

        impl BrokerConfig {
            /// Reads every field from its setting.
            pub(super) fn from_settings(settings: Settings) -> Result<BrokerConfig, String> {
                Ok(BrokerConfig {
                    $($field: settings.field($name)?,)*
                    settings,
                })
            }
        }
    };
}

use Bounds::{Any, AtLeast, Between, Distinct, GzipLevel, OneOf, Subset};

broker_keys! {
    /// Directory of everything the broker keeps.
    data_dir: PathBuf = "data_dir" Own Text Some("./ringlog-data"), Any;
    /// Address and port of shard 0, or of the one listener with `advertise = single`.
    listen: String = "listen" Own Text Some("127.0.0.1:9092"), Any;
    /// Host, or host and port, told to clients instead of the listening one.
    advertised: Option<String> = "advertised" Own Text None, Any;
    /// First port tried for the shards after shard 0.
    extra_port_first: u16 = "extra_port_first" Own Int Some("19192"), Between(1, 65_535);
    /// Number of shards; `auto` is one per available core. May change between starts.
    shards: u16 = "shards" Own AutoInt Some("auto"), Between(1, 1024);
    /// Whether each shard's thread is bound to one core.
    pin_shards: bool = "pin_shards" Own Boolean Some("true"), Any;
    /// Memory of the process, all shards together: 24MiB for itself, the rest for journal blocks,
    /// tails, read cache, inflating, requests and responses. Beside it are 12KiB per connection
    /// and what is kept of partitions, groups, producers and transactional ids. `auto` is a
    /// quarter of what the host or its control group allows, at most 8GiB.
    memory_bytes: u64 = "memory" Own AutoBytes Some("auto"), Any;
    /// What an acknowledged record survives.
    durability: Durability = "durability" Own Text Some("power-loss"), OneOf(Durability::TEXTS);
    /// Whether every shard is a broker, or all of them together are one.
    advertise: Advertise = "advertise" Own Text Some("per-core"), OneOf(Advertise::TEXTS);
    /// What an idle shard does: `balanced` sleeps at once, `latency` polls for 2 ms before, and
    /// wants cores that nobody else needs.
    mode: Mode = "mode" Own Text Some("balanced"), OneOf(Mode::TEXTS);
    /// Address and port of the metrics endpoint; not set means none.
    metrics_listen: Option<String> = "metrics_listen" Own Text None, Any;
    /// Time from which on a request is written about, with where its time went; 0 for never. What
    /// the client asked to wait does not count.
    slow_request_ms: u64 = "slow_request_ms" Own Milliseconds Some("2s"), Any;
    /// Longest time a request is held while its transaction is between two states;
    /// 0 answers at once, as Apache Kafka does.
    txn_pending_hold_ms: u64 = "txn_pending_hold_ms" Own Milliseconds Some("1s"), Any;
    /// What a shard does after its journal failed: refuse writes, or exit with code 3.
    on_storage_failure: OnStorageFailure = "on_storage_failure" Own Text Some("read-only"),
        OneOf(OnStorageFailure::TEXTS);
    /// Accept any replication factor, and keep one replica.
    replication_factor_clamp: bool = "replication_factor_clamp" Own Boolean Some("false"), Any;
    /// Size of each shard's journal ring; `auto` is 256MiB, less if that is over 2 % of the disk
    /// for all shards together.
    journal_ring_bytes: u64 = "journal.ring.bytes" Own AutoBytes Some("auto"), Any;
    /// Number of files in a ring.
    journal_ring_files: u32 = "journal.ring.files" Own Int Some("4"), Between(2, 64);
    /// Longest time between two checkpoints of a shard that has changes.
    checkpoint_interval_ms: u64 = "checkpoint_interval_ms" Own Milliseconds Some("10min"),
        AtLeast(1);
    /// Time in which a request that has begun to arrive must go on, and in which a client must take
    /// something of a response that waits for it; its connection is closed otherwise.
    connections_stall_ms: u64 = "connections.stall.ms" Own Milliseconds Some("30s"), AtLeast(1);
    /// Partitions (`topic-0`) whose missing records are given up at this start, or `all`.
    accept_loss: Vec<String> = "accept_loss" Own List Some(""), Distinct;

    /// Node id of shard 0; the other shards count up from it. Only 0 is possible.
    node_id: i32 = "node.id" Kafka Int Some("0"), Between(0, 0);
    /// Rack told to clients.
    broker_rack: Option<String> = "broker.rack" Kafka Text None, Any;
    /// Roles of the process; reported only.
    process_roles: Vec<String> = "process.roles" Kafka List Some("broker,controller"),
        Subset(&["broker", "controller"]);

    /// Create a topic when a client asks for the metadata of an unknown one.
    auto_create_topics_enable: bool = "auto.create.topics.enable" Kafka Boolean Some("true"), Any;
    /// Whether topics can be deleted.
    delete_topic_enable: bool = "delete.topic.enable" Kafka Boolean Some("true"), Any;
    /// Partitions of a topic created without a number.
    num_partitions: i32 = "num.partitions" Kafka Int Some("1"), AtLeast(1);
    /// Replication factor of a topic created without one; stored as 1.
    default_replication_factor: i16 = "default.replication.factor" Kafka Int Some("1"),
        AtLeast(1);

    /// Largest record batch, compressed, with its header.
    message_max_bytes: i32 = "message.max.bytes" Dynamic Int Some("1048588"), AtLeast(0);
    /// Codec of stored batches; `producer` keeps what was sent.
    compression_type: String = "compression.type" Dynamic Text Some("producer"),
        OneOf(COMPRESSION_TYPES);
    /// Level for gzip; -1 is the library's default.
    compression_gzip_level: i32 = "compression.gzip.level" Dynamic Int Some("-1"), GzipLevel;
    /// Level for lz4.
    compression_lz4_level: i32 = "compression.lz4.level" Dynamic Int Some("9"), Between(1, 17);
    /// Level for zstd.
    compression_zstd_level: i32 = "compression.zstd.level" Dynamic Int Some("3"),
        Between(-131_072, 22);
    /// Minimum of in-sync replicas; capped at the one replica there is.
    min_insync_replicas: i32 = "min.insync.replicas" Dynamic Int Some("1"), AtLeast(1);
    /// Accepted; there is no unclean election with one replica.
    unclean_leader_election_enable: bool = "unclean.leader.election.enable" Dynamic Boolean
        Some("false"), Any;

    /// What happens to old records: delete, compact, both, or nothing if empty.
    log_cleanup_policy: Vec<String> = "log.cleanup.policy" Dynamic List Some("delete"),
        Subset(CLEANUP_POLICIES);
    /// Size at which a new segment is begun.
    log_segment_bytes: i32 = "log.segment.bytes" Dynamic Int Some("1073741824"),
        AtLeast(1_048_576);
    /// Age at which a new segment is begun; overrides the hours.
    log_roll_ms: Option<i64> = "log.roll.ms" Dynamic Long None, AtLeast(1);
    /// Age in hours at which a new segment is begun.
    log_roll_hours: i32 = "log.roll.hours" Kafka Int Some("168"), AtLeast(1);
    /// Most that is randomly taken off the roll age; overrides the hours.
    log_roll_jitter_ms: Option<i64> = "log.roll.jitter.ms" Dynamic Long None, AtLeast(0);
    /// Most that is randomly taken off the roll age, in hours.
    log_roll_jitter_hours: i32 = "log.roll.jitter.hours" Kafka Int Some("0"), AtLeast(0);
    /// Age after which segments are deleted, -1 for never; overrides minutes and hours.
    log_retention_ms: Option<i64> = "log.retention.ms" Dynamic Long None, AtLeast(-1);
    /// Age in minutes after which segments are deleted; overrides the hours.
    log_retention_minutes: Option<i32> = "log.retention.minutes" Kafka Int None, AtLeast(-1);
    /// Age in hours after which segments are deleted, -1 for never.
    log_retention_hours: i32 = "log.retention.hours" Kafka Int Some("168"), AtLeast(-1);
    /// Size of a partition above which its oldest segments are deleted; -1 for no limit.
    log_retention_bytes: i64 = "log.retention.bytes" Dynamic Long Some("-1"), Any;
    /// How often segments are looked at for deletion.
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms" Kafka Long
        Some("300000"), AtLeast(1);
    /// Bytes of records between two index entries.
    log_index_interval_bytes: i32 = "log.index.interval.bytes" Dynamic Int Some("4096"),
        AtLeast(0);
    /// Largest size of an index file.
    log_index_size_max_bytes: i32 = "log.index.size.max.bytes" Dynamic Int Some("10485760"),
        AtLeast(4);
    /// Time between marking a file deleted and removing it.
    log_segment_delete_delay_ms: i64 = "log.segment.delete.delay.ms" Dynamic Long Some("60000"),
        AtLeast(0);
    /// Accepted; every acknowledged record is already durable.
    log_flush_interval_messages: i64 = "log.flush.interval.messages" Dynamic Long
        Some("9223372036854775807"), AtLeast(1);
    /// Accepted; every acknowledged record is already durable.
    log_flush_interval_ms: Option<i64> = "log.flush.interval.ms" Dynamic Long None, AtLeast(0);
    /// Accepted; every acknowledged record is already durable.
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms" Kafka Long
        Some("9223372036854775807"), AtLeast(0);
    /// Accepted; checkpoints follow `checkpoint_interval_ms`.
    log_flush_offset_checkpoint_interval_ms: i32 =
        "log.flush.offset.checkpoint.interval.ms" Kafka Int Some("60000"), AtLeast(0);
    /// Accepted; checkpoints follow `checkpoint_interval_ms`.
    log_flush_start_offset_checkpoint_interval_ms: i32 =
        "log.flush.start.offset.checkpoint.interval.ms" Kafka Int Some("60000"), AtLeast(0);
    /// Accepted; space is allocated ahead in any case.
    log_preallocate: bool = "log.preallocate" Dynamic Boolean Some("false"), Any;
    /// Whose time stamps records carry: the producer's or the broker's.
    log_message_timestamp_type: String = "log.message.timestamp.type" Dynamic Text
        Some("CreateTime"), OneOf(TIMESTAMP_TYPES);
    /// How far a record's time may lie in the past.
    log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms" Dynamic Long
        Some("9223372036854775807"), AtLeast(0);
    /// How far a record's time may lie in the future.
    log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms" Dynamic Long
        Some("3600000"), AtLeast(0);
    /// Accepted; there is no tiered storage.
    log_local_retention_bytes: i64 = "log.local.retention.bytes" Dynamic Long Some("-2"),
        AtLeast(-2);
    /// Accepted; there is no tiered storage.
    log_local_retention_ms: i64 = "log.local.retention.ms" Dynamic Long Some("-2"), AtLeast(-2);
    /// Delay of background tasks after the start.
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms" Kafka Long Some("30000"),
        AtLeast(0);

    /// Whether compaction runs.
    log_cleaner_enable: bool = "log.cleaner.enable" Kafka Boolean Some("true"), Any;
    /// Accepted; each shard compacts its own partitions.
    log_cleaner_threads: i32 = "log.cleaner.threads" Dynamic Int Some("1"), AtLeast(1);
    /// Most bytes per second that compaction reads and writes, per shard.
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second" Dynamic
        Double Some("1.7976931348623157e308"), AtLeast(0);
    /// Memory for the keys of a compaction pass, over all shards.
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size" Dynamic Long
        Some("134217728"), AtLeast(1_048_576);
    /// Accepted; compaction reads and writes in large pieces of its own.
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size" Dynamic Int Some("524288"),
        AtLeast(0);
    /// How full the memory for keys may get.
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor" Dynamic Double
        Some("0.9"), Between(0, 1);
    /// Pause of compaction when there is nothing to do.
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms" Dynamic Long Some("15000"), AtLeast(0);
    /// Share of uncompacted bytes from which a partition is compacted.
    log_cleaner_min_cleanable_ratio: f64 = "log.cleaner.min.cleanable.ratio" Dynamic Double
        Some("0.5"), Between(0, 1);
    /// Youngest age at which a record may be compacted away.
    log_cleaner_min_compaction_lag_ms: i64 = "log.cleaner.min.compaction.lag.ms" Dynamic Long
        Some("0"), AtLeast(0);
    /// Oldest age a record may reach before its partition is compacted.
    log_cleaner_max_compaction_lag_ms: i64 = "log.cleaner.max.compaction.lag.ms" Dynamic Long
        Some("9223372036854775807"), AtLeast(1);
    /// How long compaction keeps tombstones and markers.
    log_cleaner_delete_retention_ms: i64 = "log.cleaner.delete.retention.ms" Dynamic Long
        Some("86400000"), AtLeast(0);

    /// Largest request accepted.
    socket_request_max_bytes: i32 = "socket.request.max.bytes" Kafka Int Some("104857600"),
        AtLeast(1);
    /// Send buffer of a connection; -1 leaves it to the kernel.
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes" Kafka Int Some("102400"),
        AtLeast(-1);
    /// Receive buffer of a connection; -1 leaves it to the kernel.
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes" Kafka Int Some("102400"),
        AtLeast(-1);
    /// Connections waiting to be accepted.
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size" Kafka Int Some("50"),
        AtLeast(1);
    /// Idle time after which a connection is closed.
    connections_max_idle_ms: i64 = "connections.max.idle.ms" Kafka Long Some("600000"), Any;
    /// Most connections of the broker.
    max_connections: i32 = "max.connections" Dynamic Int Some("2147483647"), AtLeast(0);
    /// Most connections from one address.
    max_connections_per_ip: i32 = "max.connections.per.ip" Dynamic Int Some("2147483647"),
        AtLeast(0);
    /// Exceptions to it, as `address:number`.
    max_connections_per_ip_overrides: String = "max.connections.per.ip.overrides" Dynamic Text
        Some(""), Any;
    /// Accepted; a shard over its memory budget stops reading sockets.
    queued_max_requests: i32 = "queued.max.requests" Kafka Int Some("500"), AtLeast(1);
    /// Accepted; there is one thread per shard.
    num_network_threads: i32 = "num.network.threads" Dynamic Int Some("3"), AtLeast(1);
    /// Accepted; there is one thread per shard.
    num_io_threads: i32 = "num.io.threads" Dynamic Int Some("8"), AtLeast(1);
    /// Accepted; there is one thread per shard.
    background_threads: i32 = "background.threads" Dynamic Int Some("10"), AtLeast(1);
    /// Accepted; recovery follows the journal.
    num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir" Dynamic Int
        Some("2"), AtLeast(1);
    /// Longest wait for internal writes.
    request_timeout_ms: i32 = "request.timeout.ms" Kafka Int Some("30000"), Any;

    /// Most bytes one fetch returns.
    fetch_max_bytes: i32 = "fetch.max.bytes" Kafka Int Some("57671680"), AtLeast(1024);
    /// Incremental fetch sessions kept per shard.
    max_incremental_fetch_session_cache_slots: i32 =
        "max.incremental.fetch.session.cache.slots" Kafka Int Some("1000"), AtLeast(0);
    /// Most partitions one DescribeTopicPartitions answer lists.
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit" Kafka Int
        Some("2000"), AtLeast(1);

    /// Partitions of `__consumer_offsets`; fixed once the topic exists.
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions" Kafka Int Some("50"),
        Between(1, 10_000);
    /// Replication factor of `__consumer_offsets`; stored as 1.
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor" Kafka Short
        Some("1"), AtLeast(1);
    /// Segment size of `__consumer_offsets`.
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes" Kafka Int Some("104857600"),
        AtLeast(1_048_576);
    /// Codec of `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec" Kafka Int Some("0"),
        Between(0, 4);
    /// How long offsets of an inactive group are kept.
    offsets_retention_minutes: i32 = "offsets.retention.minutes" Kafka Int Some("10080"),
        AtLeast(1);
    /// How often expired offsets are looked for.
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms" Kafka Long
        Some("600000"), AtLeast(1);
    /// Longest wait for an offset commit to be durable.
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms" Kafka Int Some("5000"),
        AtLeast(1);
    /// Accepted; offsets are loaded in larger reads.
    offsets_load_buffer_size: i32 = "offsets.load.buffer.size" Kafka Int Some("5242880"),
        AtLeast(1);
    /// Longest text that may be committed with an offset.
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes" Kafka Int Some("4096"),
        AtLeast(0);

    /// Shortest session timeout a classic member may ask for.
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms" Kafka Int Some("6000"),
        Any;
    /// Longest session timeout a classic member may ask for.
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms" Kafka Int Some("1800000"),
        Any;
    /// How long an empty classic group waits for more members before its first rebalance.
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms" Kafka Int
        Some("3000"), AtLeast(0);
    /// Most members of a classic group.
    group_max_size: i32 = "group.max.size" Kafka Int Some("2147483647"), AtLeast(1);
    /// Group protocols served.
    group_coordinator_rebalance_protocols: Vec<String> =
        "group.coordinator.rebalance.protocols" Kafka List Some("classic,consumer"),
        Subset(&["classic", "consumer", "share", "streams"]);
    /// Session timeout of members of consumer groups.
    group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms" Kafka Int
        Some("45000"), AtLeast(1);
    /// Lower bound of the session timeout.
    group_consumer_min_session_timeout_ms: i32 =
        "group.consumer.min.session.timeout.ms" Kafka Int Some("45000"), AtLeast(1);
    /// Upper bound of the session timeout.
    group_consumer_max_session_timeout_ms: i32 =
        "group.consumer.max.session.timeout.ms" Kafka Int Some("60000"), AtLeast(1);
    /// Heartbeat interval of members of consumer groups.
    group_consumer_heartbeat_interval_ms: i32 =
        "group.consumer.heartbeat.interval.ms" Kafka Int Some("5000"), AtLeast(1);
    /// Lower bound of the heartbeat interval.
    group_consumer_min_heartbeat_interval_ms: i32 =
        "group.consumer.min.heartbeat.interval.ms" Kafka Int Some("5000"), AtLeast(1);
    /// Upper bound of the heartbeat interval.
    group_consumer_max_heartbeat_interval_ms: i32 =
        "group.consumer.max.heartbeat.interval.ms" Kafka Int Some("15000"), AtLeast(1);
    /// Least time between two assignments of a consumer group.
    group_consumer_assignment_interval_ms: i32 =
        "group.consumer.assignment.interval.ms" Dynamic Int Some("1000"), AtLeast(0);
    /// Lower bound of the time between two assignments.
    group_consumer_min_assignment_interval_ms: i32 =
        "group.consumer.min.assignment.interval.ms" Kafka Int Some("0"), AtLeast(0);
    /// Upper bound of the time between two assignments.
    group_consumer_max_assignment_interval_ms: i32 =
        "group.consumer.max.assignment.interval.ms" Kafka Int Some("15000"), AtLeast(0);
    /// Most members of a consumer group.
    group_consumer_max_size: i32 = "group.consumer.max.size" Kafka Int Some("2147483647"),
        AtLeast(1);
    /// Assignors of consumer groups, the default first.
    group_consumer_assignors: Vec<String> = "group.consumer.assignors" Kafka List
        Some("uniform,range"), Subset(&["uniform", "range"]);
    /// Which live conversions between classic and consumer groups are allowed.
    group_consumer_migration_policy: String = "group.consumer.migration.policy" Kafka Text
        Some("bidirectional"), OneOf(&["bidirectional", "upgrade", "downgrade", "disabled"]);
    /// How often the regular expressions of subscriptions are evaluated anew.
    group_consumer_regex_refresh_interval_ms: i32 =
        "group.consumer.regex.refresh.interval.ms" Kafka Int Some("600000"), AtLeast(10_000);

    /// Partitions of `__transaction_state`; fixed once the topic exists.
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions" Kafka Int
        Some("50"), Between(1, 10_000);
    /// Replication factor of `__transaction_state`; stored as 1.
    transaction_state_log_replication_factor: i16 =
        "transaction.state.log.replication.factor" Kafka Short Some("1"), AtLeast(1);
    /// Minimum of in-sync replicas of `__transaction_state`.
    transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr" Kafka Int Some("1"),
        AtLeast(1);
    /// Segment size of `__transaction_state`.
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes" Kafka Int
        Some("104857600"), AtLeast(1_048_576);
    /// Accepted; transactions are loaded in larger reads.
    transaction_state_log_load_buffer_size: i32 =
        "transaction.state.log.load.buffer.size" Kafka Int Some("5242880"), AtLeast(1);
    /// Longest transaction timeout a producer may ask for.
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms" Kafka Int Some("900000"),
        AtLeast(1);
    /// Idle time after which a transactional id is forgotten.
    transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms" Kafka Int
        Some("604800000"), AtLeast(1);
    /// How often transactions over their timeout are looked for.
    transaction_abort_timed_out_interval_ms: i32 =
        "transaction.abort.timed.out.transaction.cleanup.interval.ms" Kafka Int Some("10000"),
        AtLeast(1);
    /// How often expired transactional ids are looked for.
    transaction_remove_expired_interval_ms: i32 =
        "transaction.remove.expired.transaction.cleanup.interval.ms" Kafka Int Some("3600000"),
        AtLeast(1);
    /// Accepted; verification is one message to the coordinator's shard.
    transaction_partition_verification_enable: bool =
        "transaction.partition.verification.enable" Dynamic Boolean Some("true"), Any;
    /// Whether two-phase commit may be asked for.
    transaction_two_phase_commit_enable: bool = "transaction.two.phase.commit.enable" Kafka
        Boolean Some("false"), Any;
    /// Idle time after which a partition forgets an idempotent producer, by the broker's clock.
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms" Dynamic Int Some("86400000"),
        AtLeast(1);
    /// How often forgotten producers are looked for.
    producer_id_expiration_check_interval_ms: i32 =
        "producer.id.expiration.check.interval.ms" Kafka Int Some("600000"), AtLeast(1);

    /// Samples of a quota's window.
    quota_window_num: i32 = "quota.window.num" Kafka Int Some("11"), AtLeast(1);
    /// Length of a quota's sample.
    quota_window_size_seconds: i32 = "quota.window.size.seconds" Kafka Int Some("1"), AtLeast(1);
    /// Reported only; there is no SASL yet.
    sasl_enabled_mechanisms: Vec<String> = "sasl.enabled.mechanisms" Kafka List Some("GSSAPI"),
        Any;
    /// Reported only; there is no TLS yet.
    ssl_client_auth: String = "ssl.client.auth" Kafka Text Some("none"),
        OneOf(&["none", "requested", "required"]);
    /// Reported only; every request is allowed.
    authorizer_class_name: String = "authorizer.class.name" Kafka Text Some(""), Any;
    /// Reported only; every request is allowed.
    super_users: String = "super.users" Kafka Text Some(""), Any;
    /// Reported only; every request is allowed.
    allow_everyone_if_no_acl_found: bool = "allow.everyone.if.no.acl.found" Kafka Boolean
        Some("false"), Any;
}

/// Another name of a key: Apache Kafka's for one of ours.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// Name in the `[kafka]` table and on the command line.
    pub name: &'static str,
    /// The key it sets.
    pub target: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// Names of Apache Kafka's that set keys of Ringlog's.
pub static ALIASES: &[Alias] = &[
    Alias {
        name: "listeners",
        target: "listen",
        doc: "One `PLAINTEXT://host:port`; the same as `listen`.",
    },
    Alias {
        name: "advertised.listeners",
        target: "advertised",
        doc: "One `PLAINTEXT://host:port`; the same as `advertised`.",
    },
    Alias { name: "log.dirs", target: "data_dir", doc: "One directory; the same as `data_dir`." },
];

/// Share of one shard's memory for each purpose, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySplit {
    /// Journal blocks and the tails served from them.
    pub tail_bytes: usize,
    /// Cache of records read back from segments.
    pub cache_bytes: usize,
    /// Requests and responses of connections.
    pub connection_bytes: usize,
    /// Windows and blocks of batches that are being inflated or compressed.
    pub inflation_bytes: usize,
}

impl BrokerConfig {
    /// How one shard divides its part of `memory`, which is what the process does not need as
    /// such. A quarter is for inflating, as far as that can use it; an eighth of the rest is left
    /// to what nobody counts. Of sixteen parts of what remains, seven are for the tail, three for
    /// the read cache, six for connections.
    #[must_use]
    pub fn memory_split(&self) -> MemorySplit {
        let all = self.memory_bytes.saturating_sub(PROCESS_MEMORY_BYTES);
        let shard = all / u64::from(self.shards.max(1));
        let inflation = (shard / 4).min(INFLATION_MEMORY_BYTES_MAX);
        let records = (shard - inflation) / 8 * 7;
        let bytes = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
        MemorySplit {
            tail_bytes: bytes(records / 16 * 7),
            cache_bytes: bytes(records / 16 * 3),
            connection_bytes: bytes(records / 16 * 6),
            inflation_bytes: bytes(inflation),
        }
    }

    /// Size of one file of a shard's ring.
    #[must_use]
    pub fn journal_file_bytes(&self) -> u64 {
        self.journal_ring_bytes / u64::from(self.journal_ring_files.max(1))
    }

    /// Number of brokers that clients see.
    #[must_use]
    pub fn advertised_brokers(&self) -> u16 {
        match self.advertise {
            Advertise::PerCore => self.shards,
            Advertise::Single => 1,
        }
    }
}

/// The largest batch any topic may allow: a quarter of the ring or of a shard's tail budget,
/// whichever is less, so that a few such batches never stop a shard.
#[must_use]
pub fn largest_batch_bytes(broker: &BrokerConfig) -> usize {
    let ring = usize::try_from(broker.journal_ring_bytes / 4).unwrap_or(usize::MAX);
    ring.min(broker.memory_split().tail_bytes / 4)
}

/// The row of a key.
#[must_use]
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Texts of `cleanup.policy`.
pub const CLEANUP_POLICIES: &[&str] = &["compact", "delete"];

/// Texts of `compression.type`.
pub const COMPRESSION_TYPES: &[&str] =
    &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

/// Texts of `message.timestamp.type`.
pub const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];
