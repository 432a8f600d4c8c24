//! Configuration: from file and command line to the effective settings of a broker and a topic.
//!
//! Owns the order of layers (defaults, file, command line), the checks between keys, and what
//! `auto` becomes on this host. A start-up problem is one sentence that says what to change.
//! Files: `keys` (what a key is), `broker` (the table), `settings` (layers and origins), `topic`,
//! `group` and `client_metrics` (configs of those), `connections` (limits by address), `units`,
//! `address`, `host`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use address::HostPort;
pub use broker::{
    Advertise, BrokerConfig, Durability, MemorySplit, Mode, OnStorageFailure, largest_batch_bytes,
};
pub use host::HostFacts;
pub use keys::ValueType;
pub use settings::{Origin, Settings};
pub use topic::TopicConfig;

pub mod address;
pub mod broker;
pub mod client_metrics;
pub mod connections;
pub mod group;
pub mod host;
pub mod keys;
pub mod settings;
pub mod topic;
pub mod units;

use broker::{ALIASES, key};
use keys::{Scope, invalid};

use crate::limits::PROCESS_MEMORY_BYTES;

/// Why a configuration cannot be used; the text is one sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
    /// A key or value is wrong.
    #[error("{place}: {message}")]
    Value {
        /// The file, or "command line".
        place: String,
        /// What is wrong.
        message: String,
    },
    /// Values do not go together.
    #[error("{0}")]
    Conflict(String),
}

/// One `key = value` of the command line, in order.
pub type Override = (String, String);

/// Loads the effective configuration: defaults, then `file`, then `overrides`.
///
/// # Errors
/// The first problem found.
pub fn load(file: Option<&Path>, overrides: &[Override]) -> Result<BrokerConfig, ConfigError> {
    let settings = layers(file, overrides)?;
    let data_dir = settings.text("data_dir").unwrap_or_default();
    finish(settings, &HostFacts::detect(Path::new(&data_dir)))
}

/// [`load`] on a host that is described instead of looked at.
///
/// # Errors
/// The first problem found.
pub fn load_for_host(
    file: Option<&Path>,
    overrides: &[Override],
    host: &HostFacts,
) -> Result<BrokerConfig, ConfigError> {
    finish(layers(file, overrides)?, host)
}

impl BrokerConfig {
    /// The defaults with some keys set, on a small described host: for tests and tools.
    ///
    /// # Errors
    /// The first problem found.
    pub fn with_overrides(overrides: &[(&str, &str)]) -> Result<BrokerConfig, ConfigError> {
        let overrides: Vec<Override> = overrides
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let host = HostFacts { cores: 2, memory_bytes: 8 << 30, disk_bytes: None };
        load_for_host(None, &overrides, &host)
    }

    /// This configuration with the given cluster-wide alterations instead of the present ones.
    ///
    /// # Errors
    /// Apache Kafka's sentence about the first bad key or value.
    pub fn with_dynamic(
        &self,
        alterations: &BTreeMap<String, String>,
    ) -> Result<BrokerConfig, String> {
        let mut settings = self.settings.clone();
        settings.clear(Origin::Dynamic);
        for (name, value) in alterations {
            match key(name) {
                None => return Err(format!("Unknown config name: {name}")),
                Some(key) if key.scope != Scope::Dynamic => {
                    return Err(format!("Cannot update these configs dynamically: [{name}]"));
                }
                Some(_) => {}
            }
            settings.set(Origin::Dynamic, name, value)?;
        }
        let config = BrokerConfig::from_settings(settings)?;
        check(&config)?;
        Ok(config)
    }

    /// Address of shard 0's listener.
    #[must_use]
    pub fn listen_address(&self) -> HostPort {
        HostPort::parse(&self.listen).expect("invariant: checked when loaded")
    }

    /// Host told to clients, and the port if one was named.
    #[must_use]
    pub fn advertised_address(&self) -> (String, Option<u16>) {
        match &self.advertised {
            Some(text) => address::split(text).expect("invariant: checked when loaded"),
            None => (self.listen_address().host, None),
        }
    }

    /// Address of the metrics endpoint, if wanted.
    #[must_use]
    pub fn metrics_address(&self) -> Option<HostPort> {
        let text = self.metrics_listen.as_deref()?;
        Some(HostPort::parse(text).expect("invariant: checked when loaded"))
    }

    /// Every key with its effective value and origin: what `serve --check` prints.
    #[must_use]
    pub fn report(&self) -> String {
        settings::report(&self.settings)
    }
}

fn layers(file: Option<&Path>, overrides: &[Override]) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    if let Some(path) = file {
        read_file(path, &mut settings)?;
    }
    for (name, value) in overrides {
        settings
            .set(Origin::CommandLine, name, value)
            .map_err(|message| ConfigError::Value { place: "command line".to_owned(), message })?;
    }
    Ok(settings)
}

fn read_file(path: &Path, settings: &mut Settings) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        message: error.to_string().trim().to_owned(),
    })?;
    read_table(&table, settings)
        .map_err(|message| ConfigError::Value { place: path.display().to_string(), message })
}

fn read_table(table: &toml::Table, settings: &mut Settings) -> Result<(), String> {
    let mut own = Vec::new();
    let mut kafka = Vec::new();
    for (name, value) in table {
        match (name.as_str(), value) {
            ("kafka", toml::Value::Table(inner)) => {
                for (name, value) in inner {
                    flatten(name, value, &mut kafka)?;
                }
            }
            _ => flatten(name, value, &mut own)?,
        }
    }
    for (name, value) in own {
        let kafkas = key(&name).is_some_and(|key| key.scope != Scope::Own)
            || ALIASES.iter().any(|alias| alias.name == name);
        if kafkas {
            return Err(format!("`{name}` belongs in the [kafka] table"));
        }
        settings.set(Origin::File, &name, &value)?;
    }
    for (name, value) in kafka {
        if key(&name).is_some_and(|key| key.scope == Scope::Own) {
            return Err(format!("`{name}` belongs at the top level, not in the [kafka] table"));
        }
        settings.set(Origin::File, &name, &value)?;
    }
    Ok(())
}

/// Turns nested tables, which unquoted dotted keys make, back into dotted names.
fn flatten(name: &str, value: &toml::Value, out: &mut Vec<(String, String)>) -> Result<(), String> {
    let text = match value {
        toml::Value::Table(inner) => {
            for (part, value) in inner {
                flatten(&format!("{name}.{part}"), value, out)?;
            }
            return Ok(());
        }
        toml::Value::Array(items) => {
            let texts: Result<Vec<String>, String> =
                items.iter().map(|item| scalar(name, item)).collect();
            texts?.join(",")
        }
        scalar_value => scalar(name, scalar_value)?,
    };
    out.push((name.to_owned(), text));
    Ok(())
}

fn scalar(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(format!("{number:?}")),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        _ => Err(format!("`{name}` must be a text, a number, a boolean or a list of those")),
    }
}

fn finish(mut settings: Settings, host: &HostFacts) -> Result<BrokerConfig, ConfigError> {
    if settings.is_automatic("shards") {
        settings.set_automatic("shards", host.cores.clamp(1, SHARDS_MAX).to_string());
    }
    if settings.is_automatic("memory") {
        let memory = (host.memory_bytes / 4).min(MEMORY_AUTO_BYTES_MAX);
        settings.set_automatic("memory", memory.to_string());
    }
    if settings.is_automatic("journal.ring.bytes") {
        let shards = settings.field::<u64>("shards").map_err(ConfigError::Conflict)?;
        let files = settings.field::<u64>("journal.ring.files").map_err(ConfigError::Conflict)?;
        let ring = automatic_ring_bytes(host.disk_bytes, shards, files);
        settings.set_automatic("journal.ring.bytes", ring.to_string());
    }
    let config = BrokerConfig::from_settings(settings).map_err(ConfigError::Conflict)?;
    check(&config).map_err(ConfigError::Conflict)?;
    Ok(config)
}

/// 256 MiB, or 2 % of the disk over all shards if that is less, in files of whole MiB.
fn automatic_ring_bytes(disk_bytes: Option<u64>, shards: u64, files: u64) -> u64 {
    let share = disk_bytes.unwrap_or(u64::MAX) / 50 / shards.max(1);
    let ring = share.min(RING_AUTO_BYTES);
    let step = files.max(1) << 20;
    (ring / step * step).max(step)
}

/// Checks that no single key can make.
fn check(config: &BrokerConfig) -> Result<(), String> {
    let listen = HostPort::parse(&config.listen)
        .map_err(|reason| invalid("listen", &config.listen, &reason))?;
    if let Some(text) = &config.advertised {
        let (host, _) =
            address::split(text).map_err(|reason| invalid("advertised", text, &reason))?;
        if matches!(host.as_str(), "0.0.0.0" | "::") {
            return Err(invalid("advertised", text, "Clients cannot connect to a wildcard"));
        }
    } else if listen.is_wildcard() {
        return Err(format!(
            "listening on {listen} needs `advertised`: the host that clients connect to"
        ));
    }
    if let Some(text) = &config.metrics_listen {
        HostPort::parse(text).map_err(|reason| invalid("metrics_listen", text, &reason))?;
    }
    for entry in &config.accept_loss {
        let names_partition = entry
            .rsplit_once('-')
            .is_some_and(|(topic, index)| !topic.is_empty() && index.parse::<u32>().is_ok());
        if entry != "all" && !names_partition {
            return Err(invalid("accept_loss", entry, "Expected TOPIC-N or all"));
        }
    }
    connections::check(config.max_connections_per_ip, &config.max_connections_per_ip_overrides)?;
    check_sizes(config)?;
    check_pairs(config)
}

fn check_sizes(config: &BrokerConfig) -> Result<(), String> {
    let step = u64::from(config.journal_ring_files) * JOURNAL_FILE_BYTES_STEP;
    let ring = config.journal_ring_bytes;
    if ring == 0 || !ring.is_multiple_of(step) {
        return Err(format!(
            "`journal.ring.bytes` is {ring}, but must be a multiple of {} ({} files of whole \
             {})",
            units::print_bytes(step),
            config.journal_ring_files,
            units::print_bytes(JOURNAL_FILE_BYTES_STEP),
        ));
    }
    let per_shard =
        config.memory_bytes.saturating_sub(PROCESS_MEMORY_BYTES) / u64::from(config.shards);
    if per_shard < MEMORY_PER_SHARD_BYTES_MIN {
        return Err(format!(
            "`memory` is {} for {} shards; the process needs {} and every shard at least {}: raise \
             `memory` or lower `shards`",
            units::print_bytes(config.memory_bytes),
            config.shards,
            units::print_bytes(PROCESS_MEMORY_BYTES),
            units::print_bytes(MEMORY_PER_SHARD_BYTES_MIN),
        ));
    }
    let largest = largest_batch_bytes(config);
    if usize::try_from(config.message_max_bytes).unwrap_or(0) > largest {
        return Err(format!(
            "`message.max.bytes` is {}, but at most {largest} fits: a quarter of \
             `journal.ring.bytes` or of a shard's tail memory; raise those or lower it",
            config.message_max_bytes
        ));
    }
    Ok(())
}

fn check_pairs(config: &BrokerConfig) -> Result<(), String> {
    let pairs = [
        (
            "group.min.session.timeout.ms",
            i64::from(config.group_min_session_timeout_ms),
            "group.max.session.timeout.ms",
            i64::from(config.group_max_session_timeout_ms),
        ),
        (
            "group.consumer.min.session.timeout.ms",
            i64::from(config.group_consumer_min_session_timeout_ms),
            "group.consumer.max.session.timeout.ms",
            i64::from(config.group_consumer_max_session_timeout_ms),
        ),
        (
            "group.consumer.min.heartbeat.interval.ms",
            i64::from(config.group_consumer_min_heartbeat_interval_ms),
            "group.consumer.max.heartbeat.interval.ms",
            i64::from(config.group_consumer_max_heartbeat_interval_ms),
        ),
        (
            "log.cleaner.min.compaction.lag.ms",
            config.log_cleaner_min_compaction_lag_ms,
            "log.cleaner.max.compaction.lag.ms",
            config.log_cleaner_max_compaction_lag_ms,
        ),
    ];
    for (low_name, low, high_name, high) in pairs {
        if low > high {
            return Err(format!("`{low_name}` ({low}) must not exceed `{high_name}` ({high})"));
        }
    }
    Ok(())
}

/// Most shards; far above any machine, far below what placement can number.
const SHARDS_MAX: u16 = 1024;

/// Most memory taken when `memory` is `auto`.
const MEMORY_AUTO_BYTES_MAX: u64 = 8 << 30;

/// Least memory of a shard: two open journal blocks, a cache and some connections.
const MEMORY_PER_SHARD_BYTES_MIN: u64 = 16 << 20;

/// Ring size when `journal.ring.bytes` is `auto` and the disk is large enough.
const RING_AUTO_BYTES: u64 = 256 << 20;

/// Unit of a ring file's size.
const JOURNAL_FILE_BYTES_STEP: u64 = 64 << 10;

#[cfg(test)]
mod tests;
