//! How files, options and defaults are merged, and that `config/broker.toml` tells every key.

use std::fs;
use std::time::Duration;

use super::broker::{ALIASES, KEYS};
use super::settings::{default_text, quoted, toml_value};
use super::*;

const HOST: HostFacts = HostFacts { cores: 2, memory_bytes: 8 << 30, disk_bytes: Some(1 << 40) };

fn from_text(text: &str, overrides: &[(&str, &str)]) -> Result<BrokerConfig, String> {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.toml");
    fs::write(&path, text).expect("file");
    let overrides: Vec<Override> =
        overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    load_for_host(Some(&path), &overrides, &HOST)
        .map_err(|error| error.to_string().replace(&path.display().to_string(), "test.toml"))
}

fn repository_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name)
}

#[test]
fn defaults_are_kafkas_unless_the_design_differs() {
    let config = BrokerConfig::with_overrides(&[]).expect("defaults");
    assert_eq!(config.listen, "127.0.0.1:9092");
    assert_eq!(config.durability, Durability::PowerLoss);
    assert_eq!(config.advertise, Advertise::PerCore);
    assert_eq!(config.mode.spin_before_park(), Duration::ZERO);
    assert_eq!(config.on_storage_failure, OnStorageFailure::ReadOnly);
    assert_eq!(config.txn_pending_hold_ms, 1000);
    assert_eq!((config.shards, config.advertised_brokers()), (2, 2));
    assert_eq!(config.memory_bytes, 2 << 30);
    assert_eq!(config.journal_ring_bytes, 256 << 20);
    assert_eq!(config.journal_file_bytes(), 64 << 20);
    assert_eq!(config.num_partitions, 1);
    assert_eq!(config.message_max_bytes, 1_048_588);
    assert_eq!(config.offsets_topic_num_partitions, 50);
    assert_eq!(config.offsets_topic_replication_factor, 1);
    assert_eq!(config.transaction_state_log_replication_factor, 1);
    assert_eq!(config.transaction_max_timeout_ms, 900_000);
    assert_eq!(config.producer_id_expiration_ms, 86_400_000);
    assert_eq!(config.log_retention_ms, None);
    assert_eq!(config.log_cleanup_policy, ["delete"]);
    assert!(config.auto_create_topics_enable && config.delete_topic_enable);
    assert!(config.accept_loss.is_empty());
}

#[test]
fn every_default_is_within_its_own_bounds_and_every_key_is_documented() {
    for key in KEYS {
        if let Some(text) = key.default {
            let canonical = keys::canonical(key.name, key.kind, key.bounds, text);
            assert!(canonical.is_ok(), "{}: {canonical:?}", key.name);
        }
        assert!(key.doc.trim().ends_with('.'), "{}: {}", key.name, key.doc);
        let rows = KEYS.iter().filter(|other| other.name == key.name).count();
        assert_eq!(rows, 1, "{} is in the table twice", key.name);
    }
}

#[test]
fn later_layers_win_and_origins_are_kept() {
    let config = from_text(
        "listen = \"127.0.0.1:1\"\nmemory = \"1GiB\"\nshards = 1\n\
         [kafka]\nnum.partitions = 3\nlog.cleanup.policy = [\"compact\", \"delete\"]\n",
        &[("num.partitions", "4"), ("num.partitions", "5")],
    )
    .expect("configuration");
    assert_eq!(config.num_partitions, 5);
    assert_eq!(config.settings.origin("num.partitions"), Origin::CommandLine);
    assert_eq!(config.settings.origin("memory"), Origin::File);
    assert_eq!(config.settings.origin("data_dir"), Origin::Default);
    assert_eq!(config.log_cleanup_policy, ["compact", "delete"]);
    let report = config.report();
    for line in [
        "data_dir = \"./ringlog-data\"  # default",
        "listen = \"127.0.0.1:1\"  # file",
        "shards = 1  # file",
        "memory = \"1GiB\"  # file",
        "\"journal.ring.bytes\" = \"256MiB\"  # default, auto",
        "# advertised is not set  # default",
        "[kafka]",
        "\"num.partitions\" = 5  # command line",
        "\"log.cleanup.policy\" = \"compact,delete\"  # file",
    ] {
        assert!(report.lines().any(|found| found == line), "{line}\n{report}");
    }
}

#[test]
fn the_report_loads_as_a_file() {
    let config = BrokerConfig::with_overrides(&[("num.partitions", "7")]).expect("configuration");
    let again = from_text(&config.report(), &[]).expect("the report");
    assert_eq!(again.num_partitions, 7);
    assert_eq!(again.memory_bytes, config.memory_bytes);
}

#[test]
fn faults_are_one_sentence_that_names_the_place() {
    for &(text, overrides, expected) in FAULTS {
        let error = from_text(text, overrides).map(|_| "no error").expect_err(expected);
        assert_eq!(error, expected);
    }
    let missing = load_for_host(Some(Path::new("/no/such.toml")), &[], &HOST).expect_err("none");
    assert!(
        missing
            .to_string()
            .starts_with("cannot read the configuration file /no/such.toml: No such file")
    );
    let broken = from_text("listen = ", &[]).expect_err("syntax");
    assert!(broken.starts_with("test.toml: TOML parse error at line 1"), "{broken}");
}

type Sets = &'static [(&'static str, &'static str)];

/// File, command line, complaint.
const FAULTS: &[(&str, Sets, &str)] = &[
    ("lisen = \"x\"", &[], "test.toml: unknown key `lisen`; the nearest known key is `listen`"),
    (
        "",
        &[("num.partition", "1")],
        "command line: unknown key `num.partition`; the nearest known key is `num.partitions`",
    ),
    (
        "[kafka]\nauto.create.topic.enable = true",
        &[],
        "test.toml: unknown key `auto.create.topic.enable`; the nearest known key is \
             `auto.create.topics.enable`",
    ),
    ("num.partitions = 1", &[], "test.toml: `num.partitions` belongs in the [kafka] table"),
    (
        "[kafka]\nshards = 1",
        &[],
        "test.toml: `shards` belongs at the top level, not in the [kafka] table",
    ),
    (
        "durability = \"maybe\"",
        &[],
        "test.toml: Invalid value maybe for configuration durability: String must be one of: \
             power-loss, process-crash",
    ),
    (
        "shards = 0",
        &[],
        "test.toml: Invalid value 0 for configuration shards: Value must be at least 1",
    ),
    (
        "data_dir = 2026-01-01",
        &[],
        "test.toml: `data_dir` must be a text, a number, a boolean or a list of those",
    ),
    (
        "listen = \"127.0.0.1:1\"\n[kafka]\nlisteners = \"PLAINTEXT://127.0.0.1:2\"",
        &[],
        "test.toml: `listen` is set twice, to 127.0.0.1:1 and to 127.0.0.1:2; remove one",
    ),
    (
        "",
        &[("listeners", "SASL_SSL://h:1")],
        "command line: Invalid value SASL_SSL://h:1 for configuration listeners: Only \
             PLAINTEXT listeners are supported",
    ),
    (
        "",
        &[("listeners", "PLAINTEXT://:9092")],
        "listening on 0.0.0.0:9092 needs `advertised`: the host that clients connect to",
    ),
    ("", &[("listen", "here")], "Invalid value here for configuration listen: Expected HOST:PORT"),
    (
        "",
        &[("advertised", "0.0.0.0")],
        "Invalid value 0.0.0.0 for configuration advertised: Clients cannot connect to a \
             wildcard",
    ),
    (
        "",
        &[("accept_loss", "orders")],
        "Invalid value orders for configuration accept_loss: Expected TOPIC-N or all",
    ),
    (
        "",
        &[("memory", "16MiB")],
        "`memory` is 16MiB for 2 shards; the process needs 24MiB and every shard at least 16MiB: \
             raise `memory` or lower `shards`",
    ),
    (
        "",
        &[("memory", "57344KiB"), ("message.max.bytes", "1204225")],
        "`message.max.bytes` is 1204225, but at most 1204224 fits: a quarter of \
             `journal.ring.bytes` or of a shard's tail memory; raise those or lower it",
    ),
    (
        "",
        &[("memory", "57343KiB")],
        "`memory` is 57343KiB for 2 shards; the process needs 24MiB and every shard at least \
             16MiB: raise `memory` or lower `shards`",
    ),
    (
        "",
        &[("journal.ring.bytes", "1000000")],
        "`journal.ring.bytes` is 1000000, but must be a multiple of 256KiB (4 files of whole \
             64KiB)",
    ),
    (
        "",
        &[("message.max.bytes", "67108865")],
        "`message.max.bytes` is 67108865, but at most 67108864 fits: a quarter of \
             `journal.ring.bytes` or of a shard's tail memory; raise those or lower it",
    ),
    (
        "",
        &[("group.min.session.timeout.ms", "1800001")],
        "`group.min.session.timeout.ms` (1800001) must not exceed \
             `group.max.session.timeout.ms` (1800000)",
    ),
];

#[test]
fn kafkas_names_of_our_keys_set_them() {
    let config = from_text(
        "[kafka]\nlisteners = \"PLAINTEXT://:9092\"\n\
         \"advertised.listeners\" = \"PLAINTEXT://broker.example:19092\"\n\
         \"log.dirs\" = \"/data\"\n",
        &[],
    )
    .expect("configuration");
    assert_eq!(config.listen_address(), HostPort { host: "0.0.0.0".to_owned(), port: 9092 });
    assert_eq!(config.advertised_address(), ("broker.example".to_owned(), Some(19_092)));
    assert_eq!(config.data_dir, PathBuf::from("/data"));
    assert!(from_text("", &[("log.dirs", "/a,/b")]).is_err());
}

#[test]
fn automatic_values_follow_the_host() {
    let on = |host: HostFacts, overrides: &[(&str, &str)]| {
        let overrides: Vec<Override> =
            overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load_for_host(None, &overrides, &host).expect("configuration")
    };
    let large = HostFacts { cores: 64, memory_bytes: 256 << 30, disk_bytes: Some(4 << 40) };
    let config = on(large, &[]);
    assert_eq!((config.shards, config.memory_bytes), (64, 8 << 30));
    assert_eq!(config.journal_ring_bytes, 256 << 20);
    let small = HostFacts { cores: 2, memory_bytes: 1 << 30, disk_bytes: Some(10 << 30) };
    let config = on(small, &[]);
    assert_eq!((config.shards, config.memory_bytes), (2, 256 << 20));
    assert_eq!(config.journal_ring_bytes, 100 << 20, "2 % of 10 GiB over 2 shards, by 4 MiB");
    assert_eq!(on(small, &[("journal.ring.bytes", "1GiB")]).journal_ring_bytes, 1 << 30);
    let tiny = HostFacts { cores: 1, memory_bytes: 1 << 30, disk_bytes: Some(64 << 20) };
    let config = on(tiny, &[("message.max.bytes", "1000")]);
    assert_eq!(config.journal_ring_bytes, 4 << 20);
}

#[test]
fn the_largest_batch_is_bounded_by_ring_and_tail() {
    let largest = |overrides: &[(&str, &str)]| {
        largest_batch_bytes(&BrokerConfig::with_overrides(overrides).expect("configuration"))
    };
    assert_eq!(largest(&[]), 64 << 20);
    assert_eq!(largest(&[("journal.ring.bytes", "8MiB")]), 2 << 20);
    assert_eq!(largest(&[("memory", "64MiB")]), 1_505_280);
}

#[test]
fn shares_of_memory_leave_room_for_the_process_and_for_slack() {
    let split = |overrides: &[(&str, &str)]| {
        BrokerConfig::with_overrides(overrides).expect("configuration").memory_split()
    };
    // 40 MiB but for the process: 10 for inflating, 3.75 for nobody.
    let expected = MemorySplit {
        tail_bytes: 12_042_240,
        cache_bytes: 5_160_960,
        connection_bytes: 10_321_920,
        inflation_bytes: 10 << 20,
    };
    assert_eq!(split(&[("memory", "64MiB"), ("shards", "1")]), expected);
    // Inflating has no use for more.
    assert_eq!(split(&[("memory", "8GiB"), ("shards", "2")]).inflation_bytes, 168 << 20);
    for (memory, shards) in [("56MiB", 2), ("64MiB", 1), ("600MiB", 3), ("8GiB", 64)] {
        let shards_text = shards.to_string();
        let overrides = [("memory", memory), ("shards", &*shards_text)];
        let split = split(&overrides);
        let config = BrokerConfig::with_overrides(&overrides).expect("configuration");
        let parts =
            [split.tail_bytes, split.cache_bytes, split.connection_bytes, split.inflation_bytes];
        let shard: usize = parts.iter().sum();
        let slack = (shard - split.inflation_bytes) as u64 / 7;
        let all = PROCESS_MEMORY_BYTES + shards * (shard as u64 + slack);
        assert!(all <= config.memory_bytes, "{memory} for {shards}: {all}");
    }
}

#[test]
fn alterations_apply_to_dynamic_keys_only() {
    let config = BrokerConfig::with_overrides(&[("log.retention.ms", "5")]).expect("defaults");
    let altered = |key: &str, value: &str| {
        config.with_dynamic(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    };
    let changed = altered("log.retention.ms", "7").expect("dynamic");
    assert_eq!(changed.log_retention_ms, Some(7));
    assert_eq!(changed.settings.origin("log.retention.ms"), Origin::Dynamic);
    let back = changed.with_dynamic(&BTreeMap::new()).expect("none");
    assert_eq!(back.log_retention_ms, Some(5));
    assert_eq!(
        altered("no.such.key", "1").map(|_| ()),
        Err("Unknown config name: no.such.key".to_owned())
    );
    for key in ["num.partitions", "shards"] {
        assert_eq!(
            altered(key, "1").map(|_| ()),
            Err(format!("Cannot update these configs dynamically: [{key}]"))
        );
    }
    assert_eq!(
        altered("message.max.bytes", "-1").map(|_| ()),
        Err("Invalid value -1 for configuration message.max.bytes: Value must be at least 0"
            .to_owned())
    );
    assert!(altered("message.max.bytes", "999999999").is_err());
}

#[test]
fn the_files_of_the_repository_load() {
    for name in ["broker.toml", "dev.toml", "bench.toml"] {
        let loaded = load_for_host(Some(&repository_file(name)), &[], &HOST);
        assert!(loaded.is_ok(), "{name}: {}", loaded.expect_err("failed"));
    }
    let load = |name: &str| load_for_host(Some(&repository_file(name)), &[], &HOST).expect(name);
    assert_eq!(load("dev.toml").shards, 1);
    assert_eq!(load("bench.toml").durability, Durability::PowerLoss);
}

/// With `UPDATE_EXPECT=1` the file is written anew.
#[test]
fn broker_toml_names_every_key_with_its_default_and_its_meaning() {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(repository_file("broker.toml"), annotated_defaults()).expect("broker.toml");
    }
    let text = fs::read_to_string(repository_file("broker.toml")).expect("broker.toml");
    let expected = annotated_defaults();
    if text != expected {
        let difference = text.lines().zip(expected.lines()).find(|(found, wanted)| found != wanted);
        panic!("config/broker.toml is not what the table of keys says, first: {difference:?}");
    }
}

/// `config/broker.toml` as the table of keys has it.
fn annotated_defaults() -> String {
    let mut text = String::from(BROKER_TOML_HEAD);
    let mut in_kafka = false;
    for key in KEYS {
        if key.scope != Scope::Own && !in_kafka {
            in_kafka = true;
            text.push_str(BROKER_TOML_KAFKA);
        }
        text.push('\n');
        text.push_str(&wrapped(key.doc));
        let name = quoted(key.name);
        match default_text(key) {
            Some(canonical) => {
                text.push_str(&format!("{name} = {}\n", toml_value(key.kind, &canonical)));
            }
            None => text.push_str(&format!("# {name} =\n")),
        }
    }
    for alias in ALIASES {
        text.push('\n');
        text.push_str(&wrapped(alias.doc));
        text.push_str(&format!("# {} =\n", quoted(alias.name)));
    }
    text
}

fn wrapped(doc: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in doc.split_whitespace() {
        if line.len() + 1 + word.len() > 98 {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

const BROKER_TOML_HEAD: &str = "\
# Every key of `ringlog serve --config`, with its default. A key that is commented out has none.
# Sizes take B, KiB, MiB, GiB, TiB; durations ms, s, min, h, d. The command line goes before this
# file: `--set KEY=VALUE` takes every key. `ringlog serve --check` prints what is in effect.
";

const BROKER_TOML_KAFKA: &str = "
# Apache Kafka's broker properties, by their own names and with plain numbers.
[kafka]
";
