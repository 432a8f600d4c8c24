//! Values that topic configs take and refuse, and what follows from the broker's.

use super::*;

fn broker(overrides: &[(&str, &str)]) -> BrokerConfig {
    BrokerConfig::with_overrides(overrides).expect("configuration")
}

fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn described(name: &str, topic: &[(&str, &str)], broker_set: &[(&str, &str)]) -> DescribedConfig {
    describe(&overrides(topic), &broker(broker_set))
        .into_iter()
        .find(|config| config.name == name)
        .expect(name)
}

#[test]
fn the_table_is_kafkas() {
    let names: Vec<&str> = TOPIC_KEYS.iter().map(|key| key.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
    assert_eq!(names.len(), 34, "33 of Kafka's, one hidden");
    let default_broker = broker(&[]);
    for key in TOPIC_KEYS {
        assert_eq!(
            canonical(key.name, key.kind, key.bounds, key.default).as_deref(),
            Ok(key.default),
            "{}",
            key.name
        );
        assert_eq!(key.hidden, key.name == "internal.segment.bytes");
        // Topic and broker defaults say the same, whichever a value is taken from.
        assert_eq!(value_text(key.name, &BTreeMap::new(), &default_broker), key.default);
        for (synonym, _) in key.synonyms {
            assert!(KEYS.iter().any(|broker_key| broker_key.name == *synonym), "{synonym}");
        }
    }
}

#[test]
fn defaults_resolve_to_kafkas_values() {
    assert_eq!(
        resolve(&BTreeMap::new(), &broker(&[])),
        TopicConfig {
            cleanup: CleanupPolicy { compact: false, delete: true },
            compression: CompressionTarget::Producer,
            delete_retention_ms: 86_400_000,
            file_delete_delay_ms: 60_000,
            index_interval_bytes: 4096,
            max_compaction_lag_ms: i64::MAX,
            min_compaction_lag_ms: 0,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            min_cleanable_dirty_ratio: 0.5,
            min_insync_replicas: 1,
            retention_bytes: None,
            retention_ms: Some(604_800_000),
            segment_bytes: 1 << 30,
            segment_index_bytes: 10_485_760,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
        }
    );
}

#[test]
fn overrides_win_over_the_broker() {
    let set = overrides(&[
        ("cleanup.policy", "compact"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "7"),
        ("message.timestamp.type", "LogAppendTime"),
        ("retention.ms", "-1"),
        ("retention.bytes", "1000"),
        ("segment.bytes", "2097152"),
        ("min.cleanable.dirty.ratio", "0.1"),
    ]);
    let config = resolve(&set, &broker(&[("log.retention.ms", "5"), ("log.roll.hours", "1")]));
    assert_eq!(config.cleanup, CleanupPolicy { compact: true, delete: false });
    assert_eq!(config.compression, CompressionTarget::Zstd(7));
    assert_eq!(config.timestamp_type, TimestampType::LogAppendTime);
    assert_eq!((config.retention_ms, config.retention_bytes), (None, Some(1000)));
    assert_eq!(config.segment_bytes, 2 << 20);
    assert!((config.min_cleanable_dirty_ratio - 0.1).abs() < f64::EPSILON);
    assert_eq!(config.segment_ms, 3_600_000);
    let gzip = resolve(&overrides(&[("compression.type", "gzip")]), &broker(&[]));
    assert_eq!(gzip.compression, CompressionTarget::Gzip(-1));
    let none = resolve(&overrides(&[("cleanup.policy", "")]), &broker(&[]));
    assert_eq!(none.cleanup, CleanupPolicy { compact: false, delete: false });
    let hidden = resolve(&overrides(&[("internal.segment.bytes", "100")]), &broker(&[]));
    assert_eq!(hidden.segment_bytes, 100);
}

#[test]
fn broker_synonyms_count_by_rank_then_by_unit() {
    let retention = |set: &[(&str, &str)]| resolve(&BTreeMap::new(), &broker(set)).retention_ms;
    assert_eq!(retention(&[("log.retention.hours", "2")]), Some(7_200_000));
    assert_eq!(
        retention(&[("log.retention.hours", "2"), ("log.retention.minutes", "3")]),
        Some(180_000)
    );
    assert_eq!(
        retention(&[
            ("log.retention.hours", "2"),
            ("log.retention.minutes", "3"),
            ("log.retention.ms", "4")
        ]),
        Some(4)
    );
    assert_eq!(retention(&[("log.retention.hours", "-1")]), None);
    assert_eq!(retention(&[("log.retention.minutes", "-1")]), None);
    let altered = broker(&[("log.retention.ms", "4")])
        .with_dynamic(&overrides(&[("log.retention.ms", "9")]))
        .expect("dynamic");
    assert_eq!(resolve(&BTreeMap::new(), &altered).retention_ms, Some(9));
}

#[test]
fn a_stored_value_that_no_longer_fits_is_passed_over() {
    let set = overrides(&[("segment.bytes", "14"), ("max.message.bytes", "50000000")]);
    let config = resolve(&set, &broker(&[("memory", "64MiB")]));
    assert_eq!(config.segment_bytes, 1 << 30);
    assert_eq!(config.max_message_bytes, 1_505_280);
}

#[test]
fn one_value_is_checked_in_kafkas_words() {
    for &(name, value, expected) in VALUES {
        let got = validate(name, value);
        assert_eq!(got.as_deref().map_err(String::as_str), expected, "{name}={value}");
    }
    assert_eq!(
        validate("cleanup.policy", &"x".repeat(32_768)),
        Err("The configuration value cannot be added because it exceeds the maximum value size \
             of 32767 bytes."
            .to_owned())
    );
}

/// Config, value, canonical text or complaint.
const VALUES: &[(&str, &str, Result<&str, &str>)] = &[
    ("cleanup.policy", "compact, delete", Ok("compact,delete")),
    ("cleanup.policy", "", Ok("")),
    ("retention.ms", "-1", Ok("-1")),
    ("preallocate", "True", Ok("true")),
    ("min.cleanable.dirty.ratio", "0.50", Ok("0.5")),
    ("internal.segment.bytes", "1", Ok("1")),
    (
        "cleanup.policy",
        "delete,delete",
        Err("Configuration 'cleanup.policy' values must not be duplicated."),
    ),
    (
        "retention.ms",
        "-2",
        Err("Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ),
    (
        "retention.ms",
        "week",
        Err("Invalid value week for configuration retention.ms: Not a number of type LONG"),
    ),
    (
        "segment.bytes",
        "1048575",
        Err("Invalid value 1048575 for configuration segment.bytes: Value must be at least \
                 1048576"),
    ),
    (
        "compression.type",
        "none",
        Err("Invalid value none for configuration compression.type: String must be one of: \
                 uncompressed, zstd, lz4, snappy, gzip, producer"),
    ),
    (
        "remote.storage.enable",
        "true",
        Err("Tiered Storage functionality is disabled in the broker. Topic cannot be \
                 configured with remote log storage."),
    ),
    (
        "message.downconversion.enable",
        "true",
        Err("Unknown topic config name: message.downconversion.enable"),
    ),
    ("message.format.version", "3.0", Err("Unknown topic config name: message.format.version")),
];

#[test]
fn values_are_checked_together() {
    let check = |set: &[(&str, &str)], broker_set: &[(&str, &str)]| {
        validate_all(&overrides(set), &broker(broker_set))
    };
    assert_eq!(
        check(&[("cleanup.policy", " compact ,delete")], &[]),
        Ok(overrides(&[("cleanup.policy", "compact,delete")]))
    );
    assert_eq!(
        check(&[("min.compaction.lag.ms", "11"), ("max.compaction.lag.ms", "10")], &[]),
        Err("conflict topic config setting min.compaction.lag.ms (11) > max.compaction.lag.ms \
             (10)"
            .to_owned())
    );
    assert_eq!(
        check(&[("max.compaction.lag.ms", "10")], &[("log.cleaner.min.compaction.lag.ms", "11")]),
        Err("conflict topic config setting min.compaction.lag.ms (11) > max.compaction.lag.ms \
             (10)"
            .to_owned())
    );
    assert_eq!(
        check(&[("retention.ms", "x"), ("zzz", "1")], &[]),
        Err("Unknown topic config name: zzz".to_owned()),
        "names are checked before values"
    );
    assert!(check(&[("max.message.bytes", "67108864")], &[]).is_ok());
    assert_eq!(
        check(&[("max.message.bytes", "67108865")], &[]),
        Err("Invalid value 67108865 for configuration max.message.bytes: Value must be no more \
             than 67108864, a quarter of the broker's journal ring or of a shard's tail memory"
            .to_owned())
    );
}

#[test]
fn synonyms_are_described_as_kafka_does() {
    let synonym =
        |name, value: &str, source| Synonym { name, value: Some(value.to_owned()), source };
    let segment = described("segment.bytes", &[], &[]);
    assert_eq!(segment.value.as_deref(), Some("1073741824"));
    assert_eq!(segment.source, ConfigSource::Default);
    assert_eq!(segment.value_type as i8, 3);
    assert_eq!(
        segment.synonyms,
        [synonym("log.segment.bytes", "1073741824", ConfigSource::Default)]
    );
    let both = described(
        "segment.bytes",
        &[("segment.bytes", "2097152")],
        &[("log.segment.bytes", "4194304")],
    );
    assert_eq!(both.source, ConfigSource::Topic);
    assert_eq!(
        both.synonyms,
        [
            synonym("segment.bytes", "2097152", ConfigSource::Topic),
            synonym("log.segment.bytes", "4194304", ConfigSource::StaticBroker),
            synonym("log.segment.bytes", "1073741824", ConfigSource::Default),
        ]
    );
    // Only the milliseconds are the topic config's own synonym; a value from the hours is
    // reported without any, as a default.
    let hours = described("retention.ms", &[], &[("log.retention.hours", "2")]);
    assert_eq!(hours.value.as_deref(), Some("7200000"));
    assert_eq!((hours.source, hours.synonyms.len()), (ConfigSource::Default, 0));
    let milliseconds =
        described("retention.ms", &[], &[("log.retention.hours", "2"), ("log.retention.ms", "9")]);
    assert_eq!(milliseconds.source, ConfigSource::StaticBroker);
    assert_eq!(
        milliseconds.synonyms,
        [
            synonym("log.retention.ms", "9", ConfigSource::StaticBroker),
            synonym("log.retention.hours", "2", ConfigSource::StaticBroker),
            synonym("log.retention.hours", "168", ConfigSource::Default),
        ]
    );
    let throttled = described("leader.replication.throttled.replicas", &[], &[]);
    assert_eq!((throttled.value.as_deref(), throttled.value_type as i8), (Some(""), 7));
    assert!(throttled.synonyms.is_empty());
    let altered = broker(&[]).with_dynamic(&overrides(&[("log.segment.bytes", "2000000")]));
    let altered = describe(&BTreeMap::new(), &altered.expect("dynamic"));
    let segment = altered.iter().find(|config| config.name == "segment.bytes").expect("segment");
    assert_eq!(segment.source, ConfigSource::DynamicDefaultBroker);
    assert_eq!(segment.value.as_deref(), Some("2000000"));
}

#[test]
fn hidden_configs_are_described_only_when_set() {
    let names = |set: &[(&str, &str)]| {
        describe(&overrides(set), &broker(&[])).iter().map(|c| c.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]).len(), 33);
    assert!(!names(&[]).contains(&"internal.segment.bytes"));
    assert!(names(&[("internal.segment.bytes", "9")]).contains(&"internal.segment.bytes"));
}

#[test]
fn brokers_are_described_with_their_own_id() {
    let listen = HostPort::parse("127.0.0.1:19192").expect("address");
    let advertised = HostPort::parse("broker.example:19192").expect("address");
    let all = describe_broker(&broker(&[("num.partitions", "3")]), 1, &listen, &advertised);
    let find = |name: &str| all.iter().find(|config| config.name == name).expect(name);
    assert_eq!(find("node.id").value.as_deref(), Some("1"));
    assert_eq!(find("broker.id").value.as_deref(), Some("1"));
    assert_eq!(find("listeners").value.as_deref(), Some("PLAINTEXT://127.0.0.1:19192"));
    assert_eq!(
        find("advertised.listeners").value.as_deref(),
        Some("PLAINTEXT://broker.example:19192")
    );
    assert_eq!(find("log.dirs").value.as_deref(), Some("./ringlog-data"));
    let partitions = find("num.partitions");
    assert_eq!(partitions.source, ConfigSource::StaticBroker);
    assert_eq!(partitions.synonyms.len(), 2);
    assert!(partitions.read_only);
    assert!(!find("message.max.bytes").read_only);
    let mut sorted: Vec<&str> = all.iter().map(|config| config.name).collect();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), all.len());
}

#[test]
fn lists_can_be_appended_to() {
    assert_eq!(is_list("cleanup.policy"), Some(true));
    assert_eq!(is_list("retention.ms"), Some(false));
    assert_eq!(is_list("nothing"), None);
    assert_eq!(default_text("cleanup.policy"), Some("delete"));
    assert_eq!(default_text("nothing"), None);
}
