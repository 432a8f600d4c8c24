//! Group configs: what may be set for one group, within what the broker allows.
//!
//! Owns the table of the settings of consumer groups, their checks, and how they are described.
//! Share and streams groups have none here, as they are not served. A group needs not exist to be
//! configured. Source: Kafka's `GroupConfig`, KIP-848.

use std::collections::BTreeMap;

use super::broker::BrokerConfig;
use super::keys::{Bounds, Kind, canonical};
use super::topic::{ConfigSource, DescribedConfig, Synonym, broker_synonyms};

struct GroupKey {
    name: &'static str,
    /// The broker's setting for all groups.
    synonym: &'static str,
    /// The broker's bounds for it.
    least: &'static str,
    most: &'static str,
    doc: &'static str,
}

/// Checks a group's whole set of overrides and returns it in canonical text.
///
/// # Errors
/// The sentence Apache Kafka answers with INVALID_CONFIG.
pub fn validate_all(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> Result<BTreeMap<String, String>, String> {
    if let Some(name) = overrides.keys().find(|name| row(name).is_none()) {
        return Err(format!("Unknown group config name: {name}"));
    }
    let mut checked = BTreeMap::new();
    for (name, value) in overrides {
        let least = if name == GROUP_KEYS[0].name { 0 } else { 1 };
        checked.insert(name.clone(), canonical(name, Kind::Int, Bounds::AtLeast(least), value)?);
    }
    let number = |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    for key in GROUP_KEYS {
        let value = number(Some(value_text(key, &checked, broker)));
        if value < number(broker.settings.text(key.least)) {
            return Err(format!("{} must be greater than or equal to {}", key.name, key.least));
        }
        if value > number(broker.settings.text(key.most)) {
            return Err(format!("{} must be less than or equal to {}", key.name, key.most));
        }
    }
    let [_, heartbeat, session] = GROUP_KEYS;
    let time = |key: &GroupKey| number(Some(value_text(key, &checked, broker)));
    if time(session) <= time(heartbeat) {
        return Err(format!("{} must be greater than {}", session.name, heartbeat.name));
    }
    Ok(checked)
}

/// All configs of a group, sorted by name.
#[must_use]
pub fn describe(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> Vec<DescribedConfig> {
    GROUP_KEYS
        .iter()
        .map(|key| {
            let value = Some(value_text(key, overrides, broker));
            let mut synonyms = broker_synonyms(key.synonym, broker);
            if overrides.contains_key(key.name) {
                let source = ConfigSource::Group;
                synonyms.insert(0, Synonym { name: key.name, value: value.clone(), source });
            }
            DescribedConfig {
                name: key.name,
                value,
                source: synonyms.first().map_or(ConfigSource::Default, |head| head.source),
                value_type: Kind::Int.value_type(),
                read_only: false,
                sensitive: false,
                synonyms,
                documentation: key.doc,
            }
        })
        .collect()
}

fn row(name: &str) -> Option<&'static GroupKey> {
    GROUP_KEYS.iter().find(|key| key.name == name)
}

fn value_text(
    key: &GroupKey,
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> String {
    let set = overrides.get(key.name).cloned();
    set.or_else(|| broker.settings.text(key.synonym)).unwrap_or_default()
}

/// Every group config, sorted by name.
static GROUP_KEYS: &[GroupKey; 3] = &[
    GroupKey {
        name: "consumer.assignment.interval.ms",
        synonym: "group.consumer.assignment.interval.ms",
        least: "group.consumer.min.assignment.interval.ms",
        most: "group.consumer.max.assignment.interval.ms",
        doc: "Least time between two assignments of this consumer group.",
    },
    GroupKey {
        name: "consumer.heartbeat.interval.ms",
        synonym: "group.consumer.heartbeat.interval.ms",
        least: "group.consumer.min.heartbeat.interval.ms",
        most: "group.consumer.max.heartbeat.interval.ms",
        doc: "Time between two heartbeats of a member of this consumer group.",
    },
    GroupKey {
        name: "consumer.session.timeout.ms",
        synonym: "group.consumer.session.timeout.ms",
        least: "group.consumer.min.session.timeout.ms",
        most: "group.consumer.max.session.timeout.ms",
        doc: "Time without a heartbeat after which a member leaves this consumer group.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)], expected: Result<(), &str>) {
        let broker = BrokerConfig::with_overrides(&[]).expect("configuration");
        let overrides: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let found = validate_all(&overrides, &broker);
        assert_eq!(found.as_ref().map(|_| ()).map_err(String::as_str), expected, "{pairs:?}");
    }

    #[test]
    fn values_stay_within_the_brokers_bounds() {
        const SESSION: &str = "consumer.session.timeout.ms";
        const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";
        check(&[], Ok(()));
        check(&[(SESSION, "45000"), (HEARTBEAT, "15000")], Ok(()));
        let unknown = "share.session.timeout.ms";
        check(&[(unknown, "1")], Err(&format!("Unknown group config name: {unknown}")));
        for (value, reason) in
            [("x", "Not a number of type INT"), ("0", "Value must be at least 1")]
        {
            let sentence = format!("Invalid value {value} for configuration {SESSION}: {reason}");
            check(&[(SESSION, value)], Err(&sentence));
        }
        for (name, value, order, bound) in [
            (SESSION, "44999", "greater", "min.session.timeout.ms"),
            (SESSION, "60001", "less", "max.session.timeout.ms"),
            (HEARTBEAT, "4999", "greater", "min.heartbeat.interval.ms"),
            (HEARTBEAT, "15001", "less", "max.heartbeat.interval.ms"),
        ] {
            let bound = format!("group.consumer.{bound}");
            let sentence = format!("{name} must be {order} than or equal to {bound}");
            check(&[(name, value)], Err(&sentence));
        }
    }

    #[test]
    fn what_is_not_set_comes_from_the_broker() {
        let broker =
            BrokerConfig::with_overrides(&[("group.consumer.session.timeout.ms", "50000")]);
        let set =
            BTreeMap::from([("consumer.heartbeat.interval.ms".to_owned(), "6000".to_owned())]);
        let described = describe(&set, &broker.expect("configuration"));
        let outline: Vec<_> = described
            .iter()
            .map(|config| {
                (config.name, config.value.as_deref(), config.source, config.synonyms.len())
            })
            .collect();
        assert_eq!(
            outline,
            [
                ("consumer.assignment.interval.ms", Some("1000"), ConfigSource::Default, 1),
                ("consumer.heartbeat.interval.ms", Some("6000"), ConfigSource::Group, 2),
                ("consumer.session.timeout.ms", Some("50000"), ConfigSource::StaticBroker, 2),
            ]
        );
    }
}
