//! Client quotas: planning of their changes, and which of them a request is about.
//!
//! Owns the checks of AlterClientQuotas and DescribeClientQuotas in Kafka's order and wording.
//! **Quotas are stored and told, and not enforced.** **deviation**: host names are not resolved, so
//! an `ip` has to be an address. Source: Kafka's `ClientQuotaControlManager` and
//! `ClientQuotasImage`; KIP-546, KIP-612.

use core::net::IpAddr;
use std::collections::{BTreeMap, HashMap};

use crate::error_code::ErrorCode;

use super::image::Image;
use super::records::Record;
use super::topics::{PlanError, refuse};

/// Whom a quota is for: type and name; no name stands for all that have none of their own.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// The quotas of one entity, each as text that reads back as the number it was.
pub type Quotas = BTreeMap<String, String>;

/// Changes to the quotas of one entity.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterQuotas {
    /// Whose.
    pub entity: QuotaEntity,
    /// What to set.
    pub operations: Vec<QuotaOperation>,
}

/// The change of one quota.
#[derive(Clone, PartialEq, Debug)]
pub struct QuotaOperation {
    /// Which.
    pub key: String,
    /// Its new value; `None` removes it.
    pub value: Option<f64>,
}

/// How one type of an entity has to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaFilter {
    /// The type.
    pub entity_type: String,
    /// 0 that name, 1 the default, 2 any.
    pub match_type: i8,
    /// The name.
    pub name: Option<String>,
}

/// Plans the changes; records go to `records`. As in Kafka, an entity given twice is refused, and
/// changed as it was first given all the same.
pub fn plan(
    image: &Image,
    entries: &[AlterQuotas],
    records: &mut Vec<Record>,
) -> Vec<Result<(), PlanError>> {
    let mut outcomes: HashMap<&QuotaEntity, Result<(), PlanError>> = HashMap::new();
    for entry in entries {
        let mut keys: Vec<&str> = entry.operations.iter().map(|one| &*one.key).collect();
        keys.sort_unstable();
        let doubled = keys.windows(2).any(|pair| pair[0] == pair[1]);
        let outcome = if doubled || outcomes.contains_key(&entry.entity) {
            let entity = text_of(&entry.entity);
            Err(invalid(&format!("Ignoring duplicate entity {entity}")))
        } else {
            alter(image, entry).map(|new| records.extend(new))
        };
        outcomes.insert(&entry.entity, outcome);
    }
    entries.iter().map(|entry| outcomes[&entry.entity].clone()).collect()
}

fn alter(image: &Image, entry: &AlterQuotas) -> Result<Vec<Record>, PlanError> {
    let rates = check_entity(&entry.entity)?;
    let none = Quotas::new();
    let current = image.quotas().get(&entry.entity).unwrap_or(&none);
    let mut records = Vec::new();
    for operation in &entry.operations {
        let value = match operation.value {
            Some(value) => {
                check_value(rates, &operation.key, value)?;
                Some(format!("{value:?}"))
            }
            None => None,
        };
        if current.get(&operation.key) != value.as_ref() {
            records.push(Record::ClientQuotaSet {
                entity: entry.entity.clone(),
                key: operation.key.clone(),
                value,
            });
        }
    }
    Ok(records)
}

/// Which quotas an entity may have.
fn check_entity(entity: &QuotaEntity) -> Result<&'static [(&'static str, Rate)], PlanError> {
    if entity.is_empty() {
        return Err(invalid("Invalid empty client quota entity"));
    }
    for (entity_type, name) in entity {
        if !TYPES.contains(&entity_type.as_str()) {
            return Err(invalid(&format!("Unhandled client quota entity type: {entity_type}")));
        }
        if name.as_deref() == Some("") {
            return Err(invalid(&format!("Empty {entity_type} not supported")));
        }
    }
    match entity.get(IP) {
        None => Ok(CLIENT_RATES),
        // Kafka's sentence lacks the space.
        Some(_) if entity.len() > 1 => Err(invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or \
             ClientId",
        )),
        Some(Some(name)) if name.parse::<IpAddr>().is_err() => {
            Err(invalid(&format!("{name} is not a valid IP or resolvable host.")))
        }
        Some(_) => Ok(ADDRESS_RATES),
    }
}

fn check_value(rates: &[(&str, Rate)], key: &str, value: f64) -> Result<(), PlanError> {
    let Some((_, rate)) = rates.iter().find(|(name, _)| *name == key) else {
        return Err(invalid(&format!("Invalid configuration key {key}")));
    };
    if value <= 0.0 {
        return Err(invalid(&format!("Quota {key} must be greater than 0")));
    }
    let (most, kind) = match rate {
        Rate::Double => return Ok(()),
        Rate::Int => (f64::from(i32::MAX), "an INT"),
        Rate::Long => (i64::MAX as f64, "a LONG"),
    };
    if value > most {
        return Err(invalid(&format!("Proposed value for {key} is too large for {kind}.")));
    }
    if (value % 1.0).abs() > 1e-6 {
        return Err(invalid(&format!("{key} cannot be a fractional value.")));
    }
    Ok(())
}

/// The entities that a request asks for, with their quotas.
///
/// # Errors
/// Apache Kafka's code and sentence about the filters.
pub fn select<'a>(
    image: &'a Image,
    filters: &[QuotaFilter],
    strict: bool,
) -> Result<Vec<(&'a QuotaEntity, &'a Quotas)>, PlanError> {
    check_filters(filters)?;
    let fits = |entity: &QuotaEntity| {
        (!strict || entity.len() == filters.len())
            && filters.iter().all(|filter| match entity.get(&filter.entity_type) {
                None => false,
                Some(_) if filter.match_type == MATCH_ANY => true,
                Some(name) => *name == filter.name,
            })
    };
    Ok(image.quotas().iter().filter(|(entity, _)| fits(entity)).collect())
}

fn check_filters(filters: &[QuotaFilter]) -> Result<(), PlanError> {
    for (place, filter) in filters.iter().enumerate() {
        let entity_type = filter.entity_type.as_str();
        if entity_type.is_empty() {
            return Err(invalid("Invalid empty entity type."));
        }
        if filters.iter().take(place).any(|earlier| earlier.entity_type == entity_type) {
            let message =
                format!("Entity type {entity_type} cannot appear more than once in the filter.");
            return Err(invalid(&message));
        }
        if !TYPES.contains(&entity_type) {
            let message = format!("Unsupported entity type {entity_type}");
            return Err(refuse(ErrorCode::UnsupportedVersion, &message));
        }
        let named = filter.name.is_some();
        let message = match filter.match_type {
            MATCH_EXACT if !named => {
                "Request specified MATCH_TYPE_EXACT, but set match string to null.".to_owned()
            }
            MATCH_DEFAULT if named => {
                "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
                    .to_owned()
            }
            MATCH_ANY if named => {
                "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
                    .to_owned()
            }
            MATCH_EXACT | MATCH_DEFAULT | MATCH_ANY => continue,
            other => format!("Unknown match type {other}"),
        };
        return Err(invalid(&message));
    }
    let has = |wanted: &str| filters.iter().any(|filter| filter.entity_type == wanted);
    if has(IP) && filters.len() > 1 {
        return Err(invalid(
            "Invalid entity filter component combination. IP filter component should not be used \
             with user or clientId filter component.",
        ));
    }
    Ok(())
}

fn text_of(entity: &QuotaEntity) -> String {
    let parts = entity
        .iter()
        .map(|(entity_type, name)| format!("{entity_type}={}", name.as_deref().unwrap_or("null")));
    format!("ClientQuotaEntity(entries={{{}}})", parts.collect::<Vec<_>>().join(", "))
}

fn invalid(message: &str) -> PlanError {
    refuse(ErrorCode::InvalidRequest, message)
}

/// How a quota is written.
enum Rate {
    Int,
    Long,
    Double,
}

const IP: &str = "ip";
const TYPES: &[&str] = &["user", "client-id", IP];

static CLIENT_RATES: &[(&str, Rate)] = &[
    ("producer_byte_rate", Rate::Long),
    ("consumer_byte_rate", Rate::Long),
    ("request_percentage", Rate::Double),
    ("controller_mutation_rate", Rate::Double),
];
static ADDRESS_RATES: &[(&str, Rate)] = &[("connection_creation_rate", Rate::Int)];

const MATCH_EXACT: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_ANY: i8 = 2;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::BrokerConfig;

    fn entity(parts: &[(&str, Option<&str>)]) -> QuotaEntity {
        let part =
            |(kind, name): &(&str, Option<&str>)| ((*kind).to_owned(), name.map(str::to_owned));
        parts.iter().map(part).collect()
    }

    fn set(parts: &[(&str, Option<&str>)], key: &str, value: Option<&str>) -> Record {
        let value = value.map(str::to_owned);
        Record::ClientQuotaSet { entity: entity(parts), key: key.to_owned(), value }
    }

    const ANN: &[(&str, Option<&str>)] = &[("user", Some("ann"))];
    const ALL_USERS: &[(&str, Option<&str>)] = &[("user", None)];
    const ANN_BY_APP: &[(&str, Option<&str>)] =
        &[("user", Some("ann")), ("client-id", Some("app"))];
    const HOME: &[(&str, Option<&str>)] = &[("ip", Some("127.0.0.1"))];

    fn image() -> Image {
        let broker = BrokerConfig::with_overrides(&[]).expect("configuration");
        Image::new(Arc::new(broker)).apply_all(&[
            set(ANN, "producer_byte_rate", Some("1000.0")),
            set(ALL_USERS, "request_percentage", Some("0.5")),
            set(ANN_BY_APP, "producer_byte_rate", Some("7.0")),
            set(HOME, "connection_creation_rate", Some("9.0")),
        ])
    }

    fn alteration(parts: &[(&str, Option<&str>)], key: &str, value: Option<f64>) -> AlterQuotas {
        let operations = vec![QuotaOperation { key: key.to_owned(), value }];
        AlterQuotas { entity: entity(parts), operations }
    }

    fn planned(entry: &AlterQuotas) -> Result<Vec<Record>, String> {
        let mut records = Vec::new();
        match plan(&image(), std::slice::from_ref(entry), &mut records).remove(0) {
            Ok(()) => Ok(records),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::InvalidRequest);
                Err(error.message.unwrap_or_default())
            }
        }
    }

    #[test]
    fn quotas_are_set_and_removed() {
        let rate = "producer_byte_rate";
        let found = planned(&alteration(ANN, rate, Some(2000.0)));
        assert_eq!(found, Ok(vec![set(ANN, rate, Some("2000.0"))]));
        assert_eq!(planned(&alteration(ANN, rate, Some(1000.0))), Ok(vec![]));
        assert_eq!(planned(&alteration(ANN, rate, None)), Ok(vec![set(ANN, rate, None)]));
        assert_eq!(planned(&alteration(ANN, "no.such", None)), Ok(vec![]));
        let image = image().apply(&set(ANN, rate, None));
        assert_eq!(image.quotas().len(), 3, "nothing is left of it");
        let found = planned(&alteration(ALL_USERS, "request_percentage", Some(12.5)));
        assert_eq!(found, Ok(vec![set(ALL_USERS, "request_percentage", Some("12.5"))]));
        assert!(
            planned(&alteration(&[("ip", Some("::1"))], "connection_creation_rate", Some(1.0)))
                .is_ok()
        );
        assert!(
            planned(&alteration(&[("ip", None)], "connection_creation_rate", Some(1.0))).is_ok()
        );
    }

    #[test]
    fn bad_changes_are_refused() {
        type Part<'a> = (&'a str, Option<&'a str>);
        let rows: &[(&[Part<'_>], &str, f64, &str)] = &[
            (&[], "producer_byte_rate", 1.0, "Invalid empty client quota entity"),
            (
                &[("role", None)],
                "producer_byte_rate",
                1.0,
                "Unhandled client quota entity type: role",
            ),
            (&[("user", Some(""))], "producer_byte_rate", 1.0, "Empty user not supported"),
            (
                &[("ip", None), ("user", None)],
                "connection_creation_rate",
                1.0,
                "Invalid quota entity combination, IP entity shouldnot be combined with User or \
                 ClientId",
            ),
            (
                &[("ip", Some("a b"))],
                "connection_creation_rate",
                1.0,
                "a b is not a valid IP or resolvable host.",
            ),
            (HOME, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
            (
                ANN,
                "connection_creation_rate",
                1.0,
                "Invalid configuration key connection_creation_rate",
            ),
            (ANN, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
            (ANN, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
            (
                ANN,
                "producer_byte_rate",
                1e19,
                "Proposed value for producer_byte_rate is too large for a LONG.",
            ),
            (
                HOME,
                "connection_creation_rate",
                3e9,
                "Proposed value for connection_creation_rate is too large for an INT.",
            ),
        ];
        for (parts, key, value, sentence) in rows {
            let found = planned(&alteration(parts, key, Some(*value)));
            assert_eq!(found, Err((*sentence).to_owned()), "{parts:?} {key} {value}");
        }
    }

    #[test]
    fn an_entity_given_twice_is_changed_as_given_first() {
        let entries = [
            alteration(ANN, "producer_byte_rate", Some(1.0)),
            alteration(ANN, "producer_byte_rate", Some(2.0)),
        ];
        let mut records = Vec::new();
        let results = plan(&image(), &entries, &mut records);
        let sentence = "Ignoring duplicate entity ClientQuotaEntity(entries={user=ann})";
        assert!(results.iter().all(|result| *result == Err(invalid(sentence))));
        assert_eq!(records, [set(ANN, "producer_byte_rate", Some("1.0"))]);
        let mut double = entries[0].clone();
        double.operations.push(double.operations[0].clone());
        assert_eq!(planned(&double), Err(sentence.to_owned()));
    }

    fn filter(entity_type: &str, match_type: i8, name: Option<&str>) -> QuotaFilter {
        QuotaFilter {
            entity_type: entity_type.to_owned(),
            match_type,
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn filters_select() {
        let image = image();
        let count = |filters: &[QuotaFilter], strict| {
            select(&image, filters, strict).map(|found| found.len())
        };
        assert_eq!(count(&[], false), Ok(4));
        assert_eq!(count(&[], true), Ok(0));
        assert_eq!(count(&[filter("user", 0, Some("ann"))], false), Ok(2));
        assert_eq!(count(&[filter("user", 0, Some("ann"))], true), Ok(1));
        assert_eq!(count(&[filter("user", 1, None)], false), Ok(1));
        assert_eq!(count(&[filter("user", 2, None)], false), Ok(3));
        assert_eq!(count(&[filter("user", 2, None), filter("client-id", 2, None)], true), Ok(1));
        assert_eq!(count(&[filter("ip", 0, Some("127.0.0.1"))], true), Ok(1));
        for (filters, code) in [
            (vec![filter("", 2, None)], 42),
            (vec![filter("user", 2, None), filter("user", 1, None)], 42),
            (vec![filter("role", 2, None)], 35),
            (vec![filter("user", 0, None)], 42),
            (vec![filter("user", 1, Some("a"))], 42),
            (vec![filter("user", 2, Some("a"))], 42),
            (vec![filter("user", 3, None)], 42),
            (vec![filter("ip", 2, None), filter("user", 2, None)], 42),
        ] {
            let found = count(&filters, false).map_err(|error| error.code.code());
            assert_eq!(found, Err(code), "{filters:?}");
        }
    }
}
