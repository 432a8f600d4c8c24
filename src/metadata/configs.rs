//! Planning of changes to configs: of topics, of all brokers, of groups and client metrics.
//!
//! Owns the checks of AlterConfigs and IncrementalAlterConfigs in Kafka's order and wording. A
//! resource is changed as a whole or not at all. **deviation**: brokers have one configuration, so
//! only the cluster-wide defaults can be set, and only keys that this broker knows; Kafka keeps
//! names it has never heard of. Source: Kafka's `ConfigAdminManager`, `ConfigurationControlManager`
//! and `ControllerConfigurationValidator`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::config::broker::key;
use crate::config::keys::Kind;
use crate::config::settings::{self, Origin};
use crate::config::{client_metrics, group, topic};
use crate::error_code::ErrorCode;

use super::image::{
    Image, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP,
    RESOURCE_TOPIC,
};
use super::records::Record;
use super::topics::{PlanError, refuse, validate_name};

/// The changes to one resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterResource {
    /// Kafka's type number.
    pub resource_type: i8,
    /// Name of the topic, group or subscription; a broker's id, or empty for all brokers.
    pub name: String,
    /// What to do with which config.
    pub changes: Vec<ConfigChange>,
    /// Whether configs that are not mentioned are removed.
    pub replace: bool,
}

/// The change of one config.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigChange {
    /// Name of the config.
    pub key: String,
    /// [`SET`], [`DELETE`], [`APPEND`] or [`SUBTRACT`]; anything else is refused.
    pub operation: i8,
    /// The value; none only with [`DELETE`].
    pub value: Option<String>,
}

/// Plans the changes; records go to `records`.
pub fn plan(
    image: &Image,
    node: i32,
    resources: &[AlterResource],
    records: &mut Vec<Record>,
) -> Vec<Result<(), PlanError>> {
    let mut times: HashMap<(i8, &str), usize> = HashMap::new();
    for resource in resources {
        *times.entry((resource.resource_type, &resource.name)).or_default() += 1;
    }
    resources
        .iter()
        .map(|resource| {
            if times[&(resource.resource_type, resource.name.as_str())] > 1 {
                return Err(invalid("Each resource must appear at most once."));
            }
            records.extend(alter(image, node, resource)?);
            Ok(())
        })
        .collect()
}

fn alter(image: &Image, node: i32, resource: &AlterResource) -> Result<Vec<Record>, PlanError> {
    check_form(resource)?;
    match resource.resource_type {
        RESOURCE_BROKER_LOGGER if !resource.replace => {
            check_loggers(node, resource)?;
            return Ok(Vec::new());
        }
        RESOURCE_BROKER => check_broker_name(node, &resource.name)?,
        RESOURCE_TOPIC | RESOURCE_CLIENT_METRICS | RESOURCE_GROUP => {}
        other => return Err(invalid(&format!("Unknown resource type {other}"))),
    }
    let current = current(image, resource);
    let mut next = if resource.replace { BTreeMap::new() } else { current.clone() };
    for change in &resource.changes {
        apply(resource.resource_type, change, &mut next)?;
    }
    let next = check(image, resource, &next)?;
    let keys: BTreeSet<&String> = current.keys().chain(next.keys()).collect();
    let changed = keys.into_iter().filter(|key| current.get(*key) != next.get(*key));
    Ok(changed
        .map(|key| Record::ConfigSet {
            resource_type: resource.resource_type,
            resource_name: resource.name.clone(),
            key: key.clone(),
            value: next.get(key).cloned(),
        })
        .collect())
}

fn check_form(resource: &AlterResource) -> Result<(), PlanError> {
    let keys: BTreeSet<&str> = resource.changes.iter().map(|change| &*change.key).collect();
    if keys.len() < resource.changes.len() {
        return Err(invalid("Error due to duplicate config keys"));
    }
    let nulls: Vec<&str> = resource
        .changes
        .iter()
        .filter(|change| change.operation != DELETE && change.value.is_none())
        .map(|change| &*change.key)
        .collect();
    if nulls.is_empty() {
        return Ok(());
    }
    Err(invalid(&format!("Null value not supported for : {}", nulls.join(", "))))
}

fn check_broker_name(node: i32, name: &str) -> Result<(), PlanError> {
    if name.is_empty() || node_id(name)? == node {
        return Ok(());
    }
    Err(invalid(&format!("Unexpected broker id, expected {node}, but received {name}")))
}

/// There are no loggers with a level of their own.
fn check_loggers(node: i32, resource: &AlterResource) -> Result<(), PlanError> {
    let asked = node_id(&resource.name)?;
    if asked != node {
        let message = format!("Unexpected node id. Expected {node}, but received {asked}");
        return Err(invalid(&message));
    }
    let Some(change) = resource.changes.first() else { return Ok(()) };
    Err(match change.operation {
        SET | DELETE => {
            refuse(ErrorCode::InvalidConfig, &format!("Logger {} does not exist!", change.key))
        }
        APPEND => invalid("APPEND operation is not allowed for the BROKER_LOGGER resource"),
        SUBTRACT => invalid("SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        other => invalid(&format!(
            "Unknown operation type {other} is not allowed for the BROKER_LOGGER resource"
        )),
    })
}

fn node_id(name: &str) -> Result<i32, PlanError> {
    name.parse().map_err(|_| invalid(&format!("Node id must be an integer, but it is: {name}")))
}

fn current(image: &Image, resource: &AlterResource) -> BTreeMap<String, String> {
    let set = match resource.resource_type {
        RESOURCE_TOPIC => image.topic(&resource.name).map(|topic| &topic.overrides),
        other => image.configs(other, &resource.name),
    };
    set.cloned().unwrap_or_default()
}

fn apply(
    resource_type: i8,
    change: &ConfigChange,
    configs: &mut BTreeMap<String, String>,
) -> Result<(), PlanError> {
    let ConfigChange { key, operation, value } = change;
    let value = value.as_deref().unwrap_or_default();
    let next = match *operation {
        SET => value.to_owned(),
        DELETE => {
            configs.remove(key);
            return Ok(());
        }
        APPEND | SUBTRACT => {
            let default = default_list(resource_type, key, *operation)?;
            let old = configs.get(key).map_or(default.as_str(), |text| text);
            let mut items: Vec<&str> = old.split(',').filter(|item| !item.is_empty()).collect();
            for item in pieces(value) {
                match items.iter().position(|old| *old == item) {
                    Some(place) if *operation == SUBTRACT => drop(items.remove(place)),
                    None if *operation == APPEND => items.push(item),
                    _ => {}
                }
            }
            items.join(",")
        }
        other => return Err(invalid(&format!("Unknown operations type {other}"))),
    };
    if next.len() > VALUE_BYTES_MAX {
        let message = format!(
            "The configuration value cannot be added because it exceeds the maximum value size of \
             {VALUE_BYTES_MAX} bytes."
        );
        return Err(refuse(ErrorCode::InvalidConfig, &message));
    }
    configs.insert(key.clone(), next);
    Ok(())
}

/// The list that a config begins with; refused if it is none.
fn default_list(resource_type: i8, name: &str, operation: i8) -> Result<String, PlanError> {
    let (capitals, small) =
        if operation == APPEND { ("APPEND", "append") } else { ("SUBTRACT", "subtract") };
    let (is_list, default) = match resource_type {
        RESOURCE_TOPIC => (topic::is_list(name), topic::default_text(name).map(str::to_owned)),
        RESOURCE_BROKER => {
            let Some(row) = key(name) else {
                let message = format!("Unknown config name: {name}");
                return Err(refuse(ErrorCode::InvalidConfig, &message));
            };
            if row.kind != Kind::List {
                let message = format!("Config value {small} is not allowed for config key: {name}");
                return Err(refuse(ErrorCode::InvalidConfig, &message));
            }
            (Some(true), settings::default_text(row))
        }
        _ => (None, None),
    };
    if is_list == Some(true) {
        return Ok(default.unwrap_or_default());
    }
    let message = format!("Can't {capitals} to key {name} because its type is not LIST.");
    Err(refuse(ErrorCode::InvalidConfig, &message))
}

/// Comma-separated pieces; as in Kafka, empty ones at the end do not count.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces: Vec<&str> = text.split(',').collect();
    while pieces.len() > 1 && pieces.last() == Some(&"") {
        pieces.pop();
    }
    pieces
}

/// Checks the whole set of configs that a resource would have; returns it in canonical text.
fn check(
    image: &Image,
    resource: &AlterResource,
    configs: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, PlanError> {
    let broker = image.broker();
    let name = resource.name.as_str();
    match resource.resource_type {
        RESOURCE_TOPIC if name.is_empty() => {
            Err(invalid("Default topic resources are not allowed."))
        }
        RESOURCE_TOPIC => {
            validate_name(name)
                .map_err(|message| refuse(ErrorCode::InvalidTopicException, &message))?;
            let checked = topic::validate_all(configs, broker)
                .map_err(|message| refuse(ErrorCode::InvalidConfig, &message))?;
            if image.topic(name).is_some() {
                return Ok(checked);
            }
            let message = format!("The topic '{name}' does not exist.");
            Err(refuse(ErrorCode::UnknownTopicOrPartition, &message))
        }
        RESOURCE_BROKER => check_broker(image, name, configs),
        RESOURCE_CLIENT_METRICS if name.is_empty() => {
            Err(invalid("Subscription name can't be empty"))
        }
        RESOURCE_CLIENT_METRICS => {
            client_metrics::validate_all(configs).map_err(|(code, message)| refuse(code, &message))
        }
        _ if name.is_empty() => Err(invalid("Default group resources are not allowed.")),
        _ => group::validate_all(configs, broker)
            .map_err(|message| refuse(ErrorCode::InvalidConfig, &message)),
    }
}

fn check_broker(
    image: &Image,
    name: &str,
    configs: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, PlanError> {
    let config = image.broker().with_dynamic(configs).map_err(|message| invalid(&message))?;
    if !name.is_empty() && !configs.is_empty() {
        return Err(invalid(
            "All brokers share one configuration: set the cluster-wide default (of the empty \
             broker name) instead",
        ));
    }
    let text = |name: &String| config.settings.text_in(Origin::Dynamic, name);
    Ok(configs.keys().filter_map(|name| Some((name.clone(), text(name)?))).collect())
}

fn invalid(message: &str) -> PlanError {
    refuse(ErrorCode::InvalidRequest, message)
}

/// Sets a config.
pub const SET: i8 = 0;
/// Removes what was set.
pub const DELETE: i8 = 1;
/// Adds to a list.
pub const APPEND: i8 = 2;
/// Takes from a list.
pub const SUBTRACT: i8 = 3;

/// Longest value, as in Kafka.
const VALUE_BYTES_MAX: usize = 32_767;

#[cfg(test)]
mod tests;
