//! Topic configs: names, defaults, checks, what they fall back to, and how they are described.
//!
//! Owns the table of topic configs and [`TopicConfig`], the typed result that logs work with.
//! Resolving never fails: what is stored was checked when it was set, and a value that no longer
//! fits is passed over for the broker's. Source: Kafka's `LogConfig`,
//! `ServerTopicConfigSynonyms` and `ConfigHelper`.

use std::collections::BTreeMap;

use super::address::HostPort;
use super::broker::{
    BrokerConfig, CLEANUP_POLICIES, COMPRESSION_TYPES, KEYS, TIMESTAMP_TYPES, largest_batch_bytes,
};
use super::keys::{Bounds, Key, Kind, Scope, ValueType, canonical, invalid, split_list};
use super::settings::Origin;
pub use crate::batch::{CompressionTarget, TimestampType};
use crate::log::retention::RetentionRules;
use crate::log::segments::SegmentRules;

/// What happens to old records of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanupPolicy {
    /// Keep the newest record of each key.
    pub compact: bool,
    /// Delete segments by age and size.
    pub delete: bool,
}

/// Effective settings of one topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicConfig {
    /// What happens to old records.
    pub cleanup: CleanupPolicy,
    /// Codec of stored batches.
    pub compression: CompressionTarget,
    /// How long compaction keeps tombstones and markers.
    pub delete_retention_ms: i64,
    /// Time between marking a file deleted and removing it.
    pub file_delete_delay_ms: i64,
    /// Bytes of records between two index entries.
    pub index_interval_bytes: u32,
    /// Oldest age a record may reach before its partition is compacted; `i64::MAX` is never.
    pub max_compaction_lag_ms: i64,
    /// Youngest age at which a record may be compacted away.
    pub min_compaction_lag_ms: i64,
    /// Largest batch, compressed, with its header.
    pub max_message_bytes: usize,
    /// Whose time stamps records carry.
    pub timestamp_type: TimestampType,
    /// How far a record's time may lie in the past; `i64::MAX` is no bound.
    pub timestamp_before_max_ms: i64,
    /// How far a record's time may lie in the future.
    pub timestamp_after_max_ms: i64,
    /// Share of uncompacted bytes from which the partition is compacted.
    pub min_cleanable_dirty_ratio: f64,
    /// Minimum of in-sync replicas; capped at the one replica there is.
    pub min_insync_replicas: i32,
    /// Size above which the oldest segments are deleted; `None` is no limit.
    pub retention_bytes: Option<u64>,
    /// Age after which segments are deleted; `None` is never.
    pub retention_ms: Option<i64>,
    /// Size at which a new segment is begun.
    pub segment_bytes: u32,
    /// Largest size of an index file.
    pub segment_index_bytes: u32,
    /// Age at which a new segment is begun.
    pub segment_ms: i64,
    /// Most that is randomly taken off that age.
    pub segment_jitter_ms: i64,
}

impl TopicConfig {
    /// When segments are rolled.
    #[must_use]
    pub fn segment_rules(&self) -> SegmentRules {
        let lag_ms = if self.cleanup.compact { self.max_compaction_lag_ms } else { i64::MAX };
        SegmentRules {
            segment_bytes: u64::from(self.segment_bytes),
            segment_ms: self.segment_ms.min(lag_ms),
            segment_jitter_ms: self.segment_jitter_ms.min(self.segment_ms),
            index_interval_bytes: u64::from(self.index_interval_bytes),
            index_bytes_max: self.segment_index_bytes,
        }
    }

    /// What is deleted by age and size.
    #[must_use]
    pub fn retention_rules(&self) -> RetentionRules {
        match self.cleanup.delete {
            true => RetentionRules { bytes: self.retention_bytes, ms: self.retention_ms },
            false => RetentionRules { bytes: None, ms: None },
        }
    }
}

/// Where a described value comes from, with Kafka's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum ConfigSource {
    /// Set on the topic.
    Topic = 1,
    /// Set on one broker while running; never used here.
    DynamicBroker = 2,
    /// Set for all brokers while running.
    DynamicDefaultBroker = 3,
    /// From the file or the command line.
    StaticBroker = 4,
    /// The default.
    Default = 5,
    /// Set for a client metrics subscription.
    ClientMetrics = 7,
    /// Set on the group.
    Group = 8,
}

/// One config as DescribeConfigs and CreateTopics report it.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedConfig {
    /// Name.
    pub name: &'static str,
    /// Canonical text; `None` if not set or sensitive.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Type.
    pub value_type: ValueType,
    /// Whether it can only be changed by a restart.
    pub read_only: bool,
    /// Whether the value is kept secret.
    pub sensitive: bool,
    /// What the value would fall back to, the effective one first.
    pub synonyms: Vec<Synonym>,
    /// What it does.
    pub documentation: &'static str,
}

/// One entry of a described config's synonyms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synonym {
    /// Name: the topic's, then the broker's.
    pub name: &'static str,
    /// Canonical text.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
}

/// Checks one value on its own and returns its canonical text.
///
/// # Errors
/// The sentence Apache Kafka answers with INVALID_CONFIG.
pub fn validate(name: &str, value: &str) -> Result<String, String> {
    let key = row(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(format!(
            "The configuration value cannot be added because it exceeds the maximum value size \
             of {VALUE_BYTES_MAX} bytes."
        ));
    }
    let text = canonical(name, key.kind, key.bounds, value)?;
    if name == "remote.storage.enable" && text == "true" {
        return Err("Tiered Storage functionality is disabled in the broker. Topic cannot be \
                    configured with remote log storage."
            .to_owned());
    }
    Ok(text)
}

/// Checks a topic's whole set of overrides, as create and alter do, and returns it in canonical
/// text.
///
/// # Errors
/// The sentence Apache Kafka answers with INVALID_CONFIG.
pub fn validate_all(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> Result<BTreeMap<String, String>, String> {
    if let Some(name) = overrides.keys().find(|name| row(name).is_none()) {
        return Err(format!("Unknown topic config name: {name}"));
    }
    let mut checked = BTreeMap::new();
    for (name, value) in overrides {
        checked.insert(name.clone(), validate(name, value)?);
    }
    check_fits(&checked, broker)?;
    let long = |name: &str| value_text(name, &checked, broker).parse::<i64>().unwrap_or(0);
    let (least, most) = (long("min.compaction.lag.ms"), long("max.compaction.lag.ms"));
    if least > most {
        return Err(format!(
            "conflict topic config setting min.compaction.lag.ms ({least}) > \
             max.compaction.lag.ms ({most})"
        ));
    }
    Ok(checked)
}

/// Whether a topic's own `max.message.bytes` fits ring and memory: asked at start too, since both
/// may have become smaller.
///
/// # Errors
/// One sentence naming the bound.
pub fn check_fits(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> Result<(), String> {
    let Some(text) = overrides.get("max.message.bytes") else {
        return Ok(());
    };
    let largest = largest_batch_bytes(broker);
    if text.parse::<usize>().is_ok_and(|bytes| bytes > largest) {
        let reason = format!(
            "Value must be no more than {largest}, a quarter of the broker's journal ring or of \
             a shard's tail memory"
        );
        return Err(invalid("max.message.bytes", text, &reason));
    }
    Ok(())
}

/// The effective settings of a topic with these overrides.
#[must_use]
pub fn resolve(overrides: &BTreeMap<String, String>, broker: &BrokerConfig) -> TopicConfig {
    let text = |name: &str| value_text(name, overrides, broker);
    let long = |name: &str| text(name).parse::<i64>().unwrap_or(0);
    let level = |name: &str| text(name).parse::<i32>().unwrap_or(0);
    let size = |name: &str| u32::try_from(long(name).max(0)).unwrap_or(u32::MAX);
    let policies = text("cleanup.policy");
    let policies = split_list(&policies);
    let max_message = usize::try_from(long("max.message.bytes").max(0)).unwrap_or(usize::MAX);
    TopicConfig {
        cleanup: CleanupPolicy {
            compact: policies.contains(&"compact"),
            delete: policies.contains(&"delete"),
        },
        compression: match text("compression.type").as_str() {
            "uncompressed" => CompressionTarget::Uncompressed,
            "gzip" => CompressionTarget::Gzip(level("compression.gzip.level")),
            "snappy" => CompressionTarget::Snappy,
            "lz4" => CompressionTarget::Lz4(level("compression.lz4.level")),
            "zstd" => CompressionTarget::Zstd(level("compression.zstd.level")),
            _ => CompressionTarget::Producer,
        },
        delete_retention_ms: long("delete.retention.ms"),
        file_delete_delay_ms: long("file.delete.delay.ms"),
        index_interval_bytes: size("index.interval.bytes"),
        max_compaction_lag_ms: long("max.compaction.lag.ms"),
        min_compaction_lag_ms: long("min.compaction.lag.ms"),
        max_message_bytes: max_message.min(largest_batch_bytes(broker)),
        timestamp_type: match text("message.timestamp.type").as_str() {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        },
        timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
        timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
        min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
        min_insync_replicas: level("min.insync.replicas"),
        retention_bytes: u64::try_from(long("retention.bytes")).ok(),
        retention_ms: Some(long("retention.ms")).filter(|milliseconds| *milliseconds >= 0),
        segment_bytes: if overrides.contains_key("internal.segment.bytes") {
            size("internal.segment.bytes")
        } else {
            size("segment.bytes")
        },
        segment_index_bytes: size("segment.index.bytes"),
        segment_ms: long("segment.ms"),
        segment_jitter_ms: long("segment.jitter.ms"),
    }
}

/// All configs of a topic, sorted by name. A hidden one is listed only if it is set.
#[must_use]
pub fn describe(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> Vec<DescribedConfig> {
    TOPIC_KEYS
        .iter()
        .filter(|key| !key.hidden || overrides.contains_key(key.name))
        .map(|key| {
            let value = value_text(key.name, overrides, broker);
            let mut synonyms: Vec<Synonym> = Vec::new();
            if overrides.contains_key(key.name) {
                synonyms.push(Synonym {
                    name: key.name,
                    value: Some(value.clone()),
                    source: ConfigSource::Topic,
                });
            }
            if let Some((first, _)) = key.synonyms.first() {
                synonyms.extend(broker_synonyms(first, broker));
            }
            DescribedConfig {
                name: key.name,
                value: Some(value),
                source: synonyms.first().map_or(ConfigSource::Default, |head| head.source),
                value_type: key.kind.value_type(),
                read_only: false,
                sensitive: false,
                synonyms,
                documentation: key.doc,
            }
        })
        .collect()
}

/// All configs of a broker, sorted by name; id and addresses are the node's own. Some are told only
/// when they are set, as by Apache Kafka: two that are internal to it, and two of its authorizer's,
/// which it knows from its file alone.
#[must_use]
pub fn describe_broker(
    broker: &BrokerConfig,
    node_id: i32,
    listen: &HostPort,
    advertised: &HostPort,
) -> Vec<DescribedConfig> {
    let mut described: Vec<DescribedConfig> =
        KEYS.iter().map(|key| describe_key(broker, key, node_id)).collect();
    described.retain(|config| {
        config.source != ConfigSource::Default || !TOLD_WHEN_SET.contains(&config.name)
    });
    let derived = [
        ("broker.id", Some(node_id.to_string()), "node.id", ValueType::Int),
        ("listeners", Some(format!("PLAINTEXT://{listen}")), "listen", ValueType::List),
        (
            "advertised.listeners",
            Some(format!("PLAINTEXT://{advertised}")),
            "advertised",
            ValueType::List,
        ),
        ("log.dirs", broker.settings.text("data_dir"), "data_dir", ValueType::List),
    ];
    for (name, value, target, value_type) in derived {
        let source = source_of(broker.settings.origin(target));
        described.push(DescribedConfig {
            name,
            value: value.clone(),
            source,
            value_type,
            read_only: true,
            sensitive: false,
            synonyms: vec![Synonym { name, value, source }],
            documentation: "Another name of a key of this broker.",
        });
    }
    described.sort_by_key(|config| config.name);
    described
}

const TOLD_WHEN_SET: &[&str] = &[
    "allow.everyone.if.no.acl.found",
    "group.consumer.regex.refresh.interval.ms",
    "producer.id.expiration.check.interval.ms",
    "super.users",
];

fn describe_key(broker: &BrokerConfig, key: &Key, node_id: i32) -> DescribedConfig {
    let synonyms = broker_synonyms(key.name, broker);
    let value = match key.name {
        "node.id" => Some(node_id.to_string()),
        name => broker.settings.text(name),
    };
    DescribedConfig {
        name: key.name,
        value,
        source: synonyms.first().map_or(ConfigSource::Default, |head| head.source),
        value_type: key.kind.value_type(),
        read_only: key.scope != Scope::Dynamic,
        sensitive: false,
        synonyms,
        documentation: key.doc,
    }
}

/// Whether a config is a list, to which IncrementalAlterConfigs may append; `None` if unknown.
#[must_use]
pub fn is_list(name: &str) -> Option<bool> {
    row(name).map(|key| key.kind == Kind::List)
}

/// Kafka's own default of a config, to which a first value is appended whatever the broker has.
#[must_use]
pub fn default_text(name: &str) -> Option<&'static str> {
    row(name).map(|key| key.default)
}

struct TopicKey {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    bounds: Bounds,
    /// Broker keys, highest priority first, each with its factor to the topic's unit.
    synonyms: &'static [(&'static str, i64)],
    hidden: bool,
    doc: &'static str,
}

fn row(name: &str) -> Option<&'static TopicKey> {
    TOPIC_KEYS.iter().find(|key| key.name == name)
}

/// Canonical text of the effective value: the override, else the broker's, else the default.
fn value_text(name: &str, overrides: &BTreeMap<String, String>, broker: &BrokerConfig) -> String {
    let Some(key) = row(name) else {
        return String::new();
    };
    if let Some(value) = overrides.get(name)
        && let Ok(text) = canonical(name, key.kind, key.bounds, value)
    {
        return text;
    }
    for origins in ORIGINS_BY_RANK {
        for (synonym, factor) in key.synonyms {
            let text = origins.iter().find_map(|origin| broker.settings.text_in(*origin, synonym));
            if let Some(text) = text {
                return scaled(text, *factor);
            }
        }
    }
    key.default.to_owned()
}

/// Hours and minutes in milliseconds; a negative number means "never" in any unit.
fn scaled(text: String, factor: i64) -> String {
    match text.parse::<i64>() {
        Ok(number) if factor != 1 && number >= 0 => number.saturating_mul(factor).to_string(),
        _ => text,
    }
}

/// What a broker key's value falls back to. As in Kafka, entries before the key's own name are
/// dropped: those belong to a synonym of higher priority.
pub(super) fn broker_synonyms(name: &str, broker: &BrokerConfig) -> Vec<Synonym> {
    let family: &[&'static str] =
        FAMILIES.iter().find(|family| family.contains(&name)).map_or(&[], |family| *family);
    let alone = KEYS.iter().find(|key| key.name == name).map(|key| key.name);
    let names: Vec<&'static str> =
        if family.is_empty() { alone.into_iter().collect() } else { family.to_vec() };
    let mut synonyms = Vec::new();
    for origins in ORIGINS_BY_RANK {
        for synonym in &names {
            let found = origins.iter().find_map(|origin| {
                Some((broker.settings.text_in(*origin, synonym)?, source_of(*origin)))
            });
            if let Some((value, source)) = found {
                synonyms.push(Synonym { name: synonym, value: Some(value), source });
            }
        }
    }
    synonyms.into_iter().skip_while(|synonym| synonym.name != name).collect()
}

fn source_of(origin: Origin) -> ConfigSource {
    match origin {
        Origin::Default => ConfigSource::Default,
        Origin::File | Origin::CommandLine => ConfigSource::StaticBroker,
        Origin::Dynamic => ConfigSource::DynamicDefaultBroker,
    }
}

/// Kafka's ranks of a broker value; the command line and the file are one rank, "static".
const ORIGINS_BY_RANK: &[&[Origin]] =
    &[&[Origin::Dynamic], &[Origin::CommandLine, Origin::File], &[Origin::Default]];

/// Broker keys that set the same thing, highest priority first.
const FAMILIES: &[&[&str]] = &[
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
];

/// Longest value, as in Kafka.
const VALUE_BYTES_MAX: usize = 32_767;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

macro_rules! topic_keys {
    ($($name:literal $kind:ident $default:literal, $bounds:expr,
       [$(($synonym:literal, $factor:expr)),*] $(, $hidden:ident)?; $doc:literal)*) => {
        /// Every topic config, sorted by name.
        static TOPIC_KEYS: &[TopicKey] = &[$(TopicKey {
            name: $name,
            kind: Kind::$kind,
            default: $default,
            bounds: $bounds,
            synonyms: &[$(($synonym, $factor)),*],
            hidden: false $(|| stringify!($hidden).len() == "hidden".len())?,
            doc: $doc,
        }),*];
    };
}

use Bounds::{Any, AtLeast, Between, GzipLevel, OneOf, Subset, ThrottledReplicas};

topic_keys! {
    "cleanup.policy" List "delete", Subset(CLEANUP_POLICIES), [("log.cleanup.policy", 1)];
    "What happens to old records: delete, compact, both, or nothing if empty."
    "compression.gzip.level" Int "-1", GzipLevel, [("compression.gzip.level", 1)];
    "Level for gzip; -1 is the library's default."
    "compression.lz4.level" Int "9", Between(1, 17), [("compression.lz4.level", 1)];
    "Level for lz4."
    "compression.type" Text "producer", OneOf(COMPRESSION_TYPES), [("compression.type", 1)];
    "Codec of stored batches; producer keeps what was sent."
    "compression.zstd.level" Int "3", Between(-131_072, 22), [("compression.zstd.level", 1)];
    "Level for zstd."
    "delete.retention.ms" Long "86400000", AtLeast(0), [("log.cleaner.delete.retention.ms", 1)];
    "How long compaction keeps tombstones and transaction markers."
    "file.delete.delay.ms" Long "60000", AtLeast(0), [("log.segment.delete.delay.ms", 1)];
    "Time between marking a file deleted and removing it."
    "flush.messages" Long "9223372036854775807", AtLeast(1), [("log.flush.interval.messages", 1)];
    "Accepted; every acknowledged record is already durable."
    "flush.ms" Long "9223372036854775807", AtLeast(0),
        [("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)];
    "Accepted; every acknowledged record is already durable."
    "follower.replication.throttled.replicas" List "", ThrottledReplicas, [];
    "Accepted; there is no replication to throttle."
    "index.interval.bytes" Int "4096", AtLeast(0), [("log.index.interval.bytes", 1)];
    "Bytes of records between two index entries."
    "internal.segment.bytes" Int "1073741824", Any, [], hidden;
    "Segment size without a lower bound, for tests."
    "leader.replication.throttled.replicas" List "", ThrottledReplicas, [];
    "Accepted; there is no replication to throttle."
    "local.retention.bytes" Long "-2", AtLeast(-2), [("log.local.retention.bytes", 1)];
    "Accepted; there is no tiered storage."
    "local.retention.ms" Long "-2", AtLeast(-2), [("log.local.retention.ms", 1)];
    "Accepted; there is no tiered storage."
    "max.compaction.lag.ms" Long "9223372036854775807", AtLeast(1),
        [("log.cleaner.max.compaction.lag.ms", 1)];
    "Oldest age a record may reach before its partition is compacted."
    "max.message.bytes" Int "1048588", AtLeast(0), [("message.max.bytes", 1)];
    "Largest record batch, compressed, with its header."
    "message.timestamp.after.max.ms" Long "3600000", AtLeast(0),
        [("log.message.timestamp.after.max.ms", 1)];
    "How far a record's time may lie in the future."
    "message.timestamp.before.max.ms" Long "9223372036854775807", AtLeast(0),
        [("log.message.timestamp.before.max.ms", 1)];
    "How far a record's time may lie in the past."
    "message.timestamp.type" Text "CreateTime", OneOf(TIMESTAMP_TYPES),
        [("log.message.timestamp.type", 1)];
    "Whose time stamps records carry: the producer's or the broker's."
    "min.cleanable.dirty.ratio" Double "0.5", Between(0, 1),
        [("log.cleaner.min.cleanable.ratio", 1)];
    "Share of uncompacted bytes from which a partition is compacted."
    "min.compaction.lag.ms" Long "0", AtLeast(0), [("log.cleaner.min.compaction.lag.ms", 1)];
    "Youngest age at which a record may be compacted away."
    "min.insync.replicas" Int "1", AtLeast(1), [("min.insync.replicas", 1)];
    "Minimum of in-sync replicas; capped at the one replica there is."
    "preallocate" Boolean "false", Any, [("log.preallocate", 1)];
    "Accepted; space is allocated ahead in any case."
    "remote.log.copy.disable" Boolean "false", Any, [];
    "Accepted; there is no tiered storage."
    "remote.log.delete.on.disable" Boolean "false", Any, [];
    "Accepted; there is no tiered storage."
    "remote.storage.enable" Boolean "false", Any, [];
    "Refused if true; there is no tiered storage."
    "retention.bytes" Long "-1", Any, [("log.retention.bytes", 1)];
    "Size of a partition above which its oldest segments are deleted; -1 for no limit."
    "retention.ms" Long "604800000", AtLeast(-1),
        [("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS),
         ("log.retention.hours", HOUR_MS)];
    "Age after which segments are deleted; -1 for never."
    "segment.bytes" Int "1073741824", AtLeast(1_048_576), [("log.segment.bytes", 1)];
    "Size at which a new segment is begun."
    "segment.index.bytes" Int "10485760", AtLeast(4), [("log.index.size.max.bytes", 1)];
    "Largest size of an index file."
    "segment.jitter.ms" Long "0", AtLeast(0),
        [("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)];
    "Most that is randomly taken off the age at which a new segment is begun."
    "segment.ms" Long "604800000", AtLeast(1),
        [("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)];
    "Age at which a new segment is begun."
    "unclean.leader.election.enable" Boolean "false", Any,
        [("unclean.leader.election.enable", 1)];
    "Accepted; there is no unclean election with one replica."
}

#[cfg(test)]
mod tests;
