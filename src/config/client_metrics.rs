//! Client metrics subscriptions: which metrics clients are to send, how often, and which clients.
//!
//! Owns the table of their settings, the checks, and how they are described. **Nothing asks clients
//! for metrics yet**: subscriptions are stored and told. Must never fail on what is stored.
//! Source: Kafka's `ClientMetricsConfigs`, KIP-714.

use std::collections::BTreeMap;

use super::keys::{Bounds, Kind, canonical, split_list};
use super::topic::{ConfigSource, DescribedConfig, Synonym};
use crate::error_code::ErrorCode;

struct MetricsKey {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    bounds: Bounds,
    doc: &'static str,
}

/// Checks a subscription's whole set of settings and returns it in canonical text.
///
/// # Errors
/// Apache Kafka's code and sentence.
pub fn validate_all(
    settings: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, (ErrorCode, String)> {
    if let Some(name) = settings.keys().find(|name| row(name).is_none()) {
        let message = format!("Unknown client metrics configuration: {name}");
        return Err((ErrorCode::InvalidRequest, message));
    }
    let mut checked = BTreeMap::new();
    for (name, value) in settings {
        let Some(key) = row(name) else { continue };
        let text = canonical(name, key.kind, key.bounds, value)
            .map_err(|message| (ErrorCode::InvalidConfig, message))?;
        checked.insert(name.clone(), text);
    }
    if let Some(interval) = checked.get(INTERVAL)
        && !interval.parse::<i64>().is_ok_and(|ms| INTERVAL_MS.contains(&ms))
    {
        let message = format!(
            "Invalid value {interval} for {INTERVAL}, interval must be between 100 and 3600000 (1 \
             hour)"
        );
        return Err((ErrorCode::InvalidRequest, message));
    }
    for pattern in split_list(checked.get(MATCH).map_or("", |text| text)) {
        let is_pattern = pattern.split_once('=').is_some_and(|(parameter, value)| {
            PARAMETERS.contains(&parameter.trim()) && !value.is_empty() && !value.contains('=')
        });
        if !is_pattern {
            let message = format!("Illegal client matching pattern: {pattern}");
            return Err((ErrorCode::InvalidConfig, message));
        }
    }
    Ok(checked)
}

/// All settings of a subscription, sorted by name.
#[must_use]
pub fn describe(settings: &BTreeMap<String, String>) -> Vec<DescribedConfig> {
    METRICS_KEYS
        .iter()
        .map(|key| {
            let set = settings.get(key.name).cloned();
            let source = match set {
                Some(_) => ConfigSource::ClientMetrics,
                None => ConfigSource::Default,
            };
            let value = Some(set.clone().unwrap_or_else(|| key.default.to_owned()));
            DescribedConfig {
                name: key.name,
                value,
                source,
                value_type: key.kind.value_type(),
                read_only: false,
                sensitive: false,
                synonyms: set
                    .map(|value| Synonym { name: key.name, value: Some(value), source })
                    .into_iter()
                    .collect(),
                documentation: key.doc,
            }
        })
        .collect()
}

fn row(name: &str) -> Option<&'static MetricsKey> {
    METRICS_KEYS.iter().find(|key| key.name == name)
}

const INTERVAL: &str = "interval.ms";
const MATCH: &str = "match";

/// Shortest and longest push interval.
const INTERVAL_MS: std::ops::RangeInclusive<i64> = 100..=3_600_000;

/// What clients can be told apart by.
const PARAMETERS: &[&str] = &[
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// Every setting, sorted by name.
static METRICS_KEYS: &[MetricsKey] = &[
    MetricsKey {
        name: INTERVAL,
        kind: Kind::Int,
        default: "300000",
        bounds: Bounds::Any,
        doc: "Time between two pushes of a client.",
    },
    MetricsKey {
        name: MATCH,
        kind: Kind::List,
        default: "",
        bounds: Bounds::Any,
        doc: "Which clients: `parameter=pattern`, all of which have to match.",
    },
    MetricsKey {
        name: "metrics",
        kind: Kind::List,
        default: "",
        bounds: Bounds::Any,
        doc: "Prefixes of the names of the metrics that are wanted; `*` is all.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str, expected: Result<&str, (ErrorCode, &str)>) {
        let settings = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let found = validate_all(&settings).map(|checked| checked[name].clone());
        let found = found.as_deref().map_err(|(code, message)| (*code, message.as_str()));
        assert_eq!(found, expected, "{name}={value}");
    }

    #[test]
    fn settings_are_checked_in_kafkas_words() {
        use ErrorCode::{InvalidConfig, InvalidRequest};
        check("metrics", "org.apache.kafka. , *", Ok("org.apache.kafka.,*"));
        check("interval.ms", "100", Ok("100"));
        check(
            "match",
            "client_id=a.*,client_source_port=9",
            Ok("client_id=a.*,client_source_port=9"),
        );
        check(
            "no.such",
            "1",
            Err((InvalidRequest, "Unknown client metrics configuration: no.such")),
        );
        for interval in ["99", "3600001"] {
            let message = format!(
                "Invalid value {interval} for interval.ms, interval must be between 100 and \
                 3600000 (1 hour)"
            );
            check("interval.ms", interval, Err((InvalidRequest, &message)));
        }
        check(
            "interval.ms",
            "soon",
            Err((
                InvalidConfig,
                "Invalid value soon for configuration interval.ms: Not a number of type INT",
            )),
        );
        for pattern in ["client_id", "client_id=", "client=a", "client_id=a=b"] {
            let message = format!("Illegal client matching pattern: {pattern}");
            check("match", pattern, Err((InvalidConfig, &message)));
        }
    }

    #[test]
    fn a_subscription_is_described_with_its_defaults() {
        let settings = BTreeMap::from([("interval.ms".to_owned(), "1000".to_owned())]);
        let described = describe(&settings);
        let outline: Vec<_> = described
            .iter()
            .map(|config| (config.name, config.value.as_deref(), config.source as i8))
            .collect();
        assert_eq!(
            outline,
            [("interval.ms", Some("1000"), 7), ("match", Some(""), 5), ("metrics", Some(""), 5)]
        );
        assert_eq!((described[0].synonyms.len(), described[1].synonyms.len()), (1, 0));
    }
}
