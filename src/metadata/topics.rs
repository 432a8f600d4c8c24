//! Planning of topic changes: creation, more partitions, deletion.
//!
//! Owns the checks of Kafka's admin requests, in Kafka's order and wording, and placement. Pure:
//! takes an [`Image`] and a request and returns results and the records that would make them so;
//! nothing is changed here. Authorization happens before, the durable append after.
//! Source: Kafka's `ReplicationControlManager` and `ControllerApis`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::config::{BrokerConfig, TopicConfig, topic};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;
use crate::limits::{CREATE_PARTITIONS_PER_REQUEST_MAX, TOPIC_NAME_BYTES_MAX};
use crate::metrics::Limit;

use super::image::{CLUSTER_METADATA, CONSUMER_OFFSETS, Image, TRANSACTION_STATE, Topic};
use super::placement::Placement;
use super::records::Record;

/// A refusal: what the client is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    /// The code.
    pub code: ErrorCode,
    /// The text, where Kafka sends one.
    pub message: Option<String>,
    /// The bound that was met, if that is why.
    pub limit: Option<Limit>,
}

impl PlanError {
    /// The same, because a bound was met.
    #[must_use]
    pub fn at(self, limit: Limit) -> PlanError {
        PlanError { limit: Some(limit), ..self }
    }
}

/// One topic of a CreateTopics request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreateTopic {
    /// Its name.
    pub name: String,
    /// Number of partitions; -1 for the default, and with assignments.
    pub num_partitions: i32,
    /// Replication factor; -1 for the default, and with assignments.
    pub replication_factor: i16,
    /// Explicit assignments: partition index and node ids.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Its own configs as sent.
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic that may be created.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedTopic {
    /// Its name.
    pub name: String,
    /// Its new id.
    pub id: TopicId,
    /// Preferred shard of each partition.
    pub preferred: Vec<u16>,
    /// Its own configs in canonical text.
    pub overrides: BTreeMap<String, String>,
    /// Its effective settings.
    pub config: Arc<TopicConfig>,
}

/// Answers to a CreateTopics request and what makes them true.
#[derive(Clone, PartialEq, Debug)]
pub struct CreatePlan {
    /// One answer per topic of the request, in its order; a name given twice has two.
    pub results: Vec<Result<PlannedTopic, PlanError>>,
    /// To be appended as one change; empty if only validated.
    pub records: Vec<Record>,
}

/// One topic of a CreatePartitions request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreatePartitions {
    /// The topic.
    pub name: String,
    /// Number of partitions afterwards.
    pub count: i32,
    /// Node ids of each new partition; `None` leaves it to placement.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// Answers to a CreatePartitions request and what makes them true.
#[derive(Clone, PartialEq, Debug)]
pub struct PartitionsPlan {
    /// One answer per topic of the request, in its order.
    pub results: Vec<Result<(), PlanError>>,
    /// To be appended as one change; empty if only validated.
    pub records: Vec<Record>,
}

/// One topic of a DeleteTopics request, by name or by id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeleteTopic {
    /// Its name, if given.
    pub name: Option<String>,
    /// Its id; zero if not given.
    pub id: TopicId,
}

/// Answer about one topic of a DeleteTopics request.
#[derive(Clone, PartialEq, Debug)]
pub struct DeleteResult {
    /// Name to answer with.
    pub name: Option<String>,
    /// Id to answer with; zero if unknown.
    pub id: TopicId,
    /// The topic to delete, or why not.
    pub outcome: Result<Arc<Topic>, PlanError>,
}

/// What planning needs to know besides image and request.
pub struct PlanContext<'a> {
    /// The catalog now.
    pub image: &'a Image,
    /// Number of shards of this start.
    pub shards: u16,
    /// Load of each shard, in any unit in which one more partition is 1.
    pub shard_loads: &'a [u64],
    /// Random bits, for ids.
    pub random: &'a mut dyn FnMut() -> u64,
}

/// Plans a CreateTopics request.
pub fn plan_create(
    context: &mut PlanContext<'_>,
    requests: &[CreateTopic],
    validate_only: bool,
) -> CreatePlan {
    let broker = Arc::clone(context.image.broker());
    if total_partitions(requests, broker.num_partitions) > CREATE_PARTITIONS_PER_REQUEST_MAX {
        let refusal = refuse(
            ErrorCode::PolicyViolation,
            "Excessively large number of partitions per request.",
        )
        .at(Limit::CreatePartitionsPerRequest);
        let results = requests.iter().map(|_| Err(refusal.clone())).collect();
        return CreatePlan { results, records: Vec::new() };
    }
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for request in requests {
        *seen.entry(request.name.as_str()).or_default() += 1;
    }
    let colliding = CollidingNames::of(context.image, requests);
    let mut placement = Placement::new(context.image, context.shards, context.shard_loads);
    let mut records = Vec::new();
    let mut results = Vec::new();
    for request in requests {
        if seen[request.name.as_str()] > 1 {
            results.push(Err(refuse(ErrorCode::InvalidRequest, "Duplicate topic name.")));
            continue;
        }
        let planned = check_name(context.image, &colliding, &request.name)
            .and_then(|()| check_configs(&request.configs, &broker))
            .and_then(|overrides| {
                let preferred = place_new(&mut placement, &broker, request)?;
                let config = Arc::new(topic::resolve(&overrides, &broker));
                let id = unused_topic_id(context.image, context.random);
                let name = request.name.clone();
                Ok(PlannedTopic { name, id, preferred, overrides, config })
            });
        if let Ok(planned) = &planned {
            records.push(Record::TopicCreated {
                name: planned.name.clone(),
                id: planned.id,
                preferred: planned.preferred.clone(),
                overrides: planned.overrides.clone(),
                next_preferred: placement.next_preferred(),
            });
        }
        results.push(planned);
    }
    if validate_only {
        records.clear();
    }
    CreatePlan { results, records }
}

/// A topic of another cluster that keeps its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdoptedTopic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: usize,
}

/// Plans the catalog of an import: topics with ids of their own, without settings yet.
///
/// # Errors
/// One sentence: why a topic cannot be.
pub fn plan_adoption(
    image: &Image,
    shards: u16,
    topics: &[AdoptedTopic],
) -> Result<Vec<Record>, String> {
    let mut placement = Placement::new(image, shards, &[]);
    topics
        .iter()
        .map(|topic| {
            validate_name(&topic.name)?;
            let preferred = (0..topic.partitions).map(|_| placement.next()).collect();
            Ok(Record::TopicCreated {
                name: topic.name.clone(),
                id: topic.id,
                preferred,
                overrides: BTreeMap::new(),
                next_preferred: placement.next_preferred(),
            })
        })
        .collect()
}

/// The request that creates a topic on first use: internal topics with Kafka's own configs,
/// others with the broker's defaults.
#[must_use]
pub fn automatic(name: &str, broker: &BrokerConfig) -> CreateTopic {
    let (num_partitions, replication_factor, configs) = match name {
        CONSUMER_OFFSETS => (
            broker.offsets_topic_num_partitions,
            broker.offsets_topic_replication_factor,
            vec![
                ("cleanup.policy", "compact".to_owned()),
                ("compression.type", "producer".to_owned()),
                ("segment.bytes", broker.offsets_topic_segment_bytes.to_string()),
            ],
        ),
        TRANSACTION_STATE => (
            broker.transaction_state_log_num_partitions,
            broker.transaction_state_log_replication_factor,
            vec![
                ("cleanup.policy", "compact".to_owned()),
                ("compression.type", "uncompressed".to_owned()),
                ("min.insync.replicas", broker.transaction_state_log_min_isr.to_string()),
                ("segment.bytes", broker.transaction_state_log_segment_bytes.to_string()),
                ("unclean.leader.election.enable", "false".to_owned()),
            ],
        ),
        _ => (-1, -1, Vec::new()),
    };
    // The factor is a wish for more copies than there can be here; internal topics must exist.
    let replication_factor =
        replication_factor.min(i16::try_from(broker.advertised_brokers()).unwrap_or(i16::MAX));
    CreateTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor,
        assignments: Vec::new(),
        configs: configs.into_iter().map(|(key, value)| (key.to_owned(), Some(value))).collect(),
    }
}

/// Plans a CreatePartitions request.
pub fn plan_create_partitions(
    context: &mut PlanContext<'_>,
    requests: &[CreatePartitions],
    validate_only: bool,
) -> PartitionsPlan {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for request in requests {
        *seen.entry(request.name.as_str()).or_default() += 1;
    }
    let broker = Arc::clone(context.image.broker());
    let mut placement = Placement::new(context.image, context.shards, context.shard_loads);
    let mut records = Vec::new();
    let mut budget = CREATE_PARTITIONS_PER_REQUEST_MAX;
    let mut results = Vec::new();
    for request in requests {
        if seen[request.name.as_str()] > 1 {
            results.push(Err(refuse(ErrorCode::InvalidRequest, "Duplicate topic name.")));
            continue;
        }
        let placed = more_partitions(context.image, &mut placement, &broker, request, &mut budget);
        results.push(placed.map(|(id, preferred)| {
            records.push(Record::PartitionsAdded {
                id,
                preferred,
                next_preferred: placement.next_preferred(),
            });
        }));
    }
    if validate_only {
        records.clear();
    }
    PartitionsPlan { results, records }
}

/// Plans a DeleteTopics request. Ids and names that several entries share are answered once.
/// The deletion's first record is [`Record::TopicDeleting`] for every `Ok`.
#[must_use]
pub fn plan_delete(image: &Image, requests: &[DeleteTopic], api_version: i16) -> Vec<DeleteResult> {
    if !image.broker().delete_topic_enable {
        let code = if api_version < 3 {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        let refusal = refuse(code, "Topic deletion is disabled.");
        let answer = |request: &DeleteTopic| DeleteResult {
            name: request.name.clone(),
            id: request.id,
            outcome: Err(refusal.clone()),
        };
        return requests.iter().map(answer).collect();
    }
    let mut results = Vec::new();
    let mut names: Vec<(&str, usize)> = Vec::new();
    let mut ids: Vec<(TopicId, usize)> = Vec::new();
    let mut name_places: HashMap<&str, usize> = HashMap::new();
    let mut id_places: HashMap<TopicId, usize> = HashMap::new();
    for request in requests {
        match (&request.name, request.id == TopicId::ZERO) {
            (None, true) => results.push(DeleteResult {
                name: None,
                id: TopicId::ZERO,
                outcome: Err(refuse(
                    ErrorCode::InvalidRequest,
                    "Neither topic name nor id were specified.",
                )),
            }),
            (Some(name), false) => results.push(DeleteResult {
                name: Some(name.clone()),
                id: request.id,
                outcome: Err(refuse(
                    ErrorCode::InvalidRequest,
                    "You may not specify both topic name and topic id.",
                )),
            }),
            (Some(name), true) => count_at(&mut names, &mut name_places, name.as_str()),
            (None, false) => count_at(&mut ids, &mut id_places, request.id),
        }
    }
    let by_id: HashSet<TopicId> = ids.iter().map(|(id, _)| *id).collect();
    results.extend(ids.into_iter().map(|(id, times)| delete_by_id(image, id, times)));
    results
        .extend(names.into_iter().map(|(name, times)| delete_by_name(image, name, times, &by_id)));
    // A name that maps to an id given as well: both are refused.
    let shared: HashSet<TopicId> = results
        .iter()
        .filter(|result| result.name.is_some() && result.outcome.is_err())
        .filter(|result| by_id.contains(&result.id))
        .map(|result| result.id)
        .collect();
    results.retain(|result| !(result.outcome.is_ok() && shared.contains(&result.id)));
    results
}

/// Kafka's sentence for a topic that is not there.
pub const NOT_HOSTED: &str = "This server does not host this topic-partition.";

/// Kafka's rules for topic names.
///
/// # Errors
/// Kafka's sentence, for INVALID_TOPIC_EXCEPTION.
pub fn validate_name(name: &str) -> Result<(), String> {
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.len() > TOPIC_NAME_BYTES_MAX {
        format!(
            "the length of '{name}' is longer than the max allowed length {TOPIC_NAME_BYTES_MAX}"
        )
    } else if name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Ok(());
    } else {
        format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' \
             and '-'"
        )
    };
    Err(format!("Topic name is invalid: {reason}"))
}

/// A new topic id: a random version 4 UUID whose text is safe as a command-line argument.
pub fn new_topic_id(random: &mut dyn FnMut() -> u64) -> TopicId {
    loop {
        let id = random_uuid(random);
        if !id.to_text().contains('-') {
            return id;
        }
    }
}

/// A new cluster id, in Kafka's form.
pub fn new_cluster_id(random: &mut dyn FnMut() -> u64) -> String {
    new_topic_id(random).to_text()
}

/// An id that neither a topic nor a tombstone has: journals know topics by it.
fn unused_topic_id(image: &Image, random: &mut dyn FnMut() -> u64) -> TopicId {
    loop {
        let id = new_topic_id(random);
        if image.topic_by_id(id).is_none() && image.tombstone(id).is_none() {
            return id;
        }
    }
}

fn random_uuid(random: &mut dyn FnMut() -> u64) -> TopicId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random().to_be_bytes());
    bytes[8..].copy_from_slice(&random().to_be_bytes());
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    TopicId(bytes)
}

/// A refusal with its sentence.
#[must_use]
pub fn refuse(code: ErrorCode, message: &str) -> PlanError {
    PlanError { code, message: Some(message.to_owned()), limit: None }
}

/// Partitions that a request would create, saturating: the numbers come from the wire.
fn total_partitions(requests: &[CreateTopic], default: i32) -> usize {
    requests.iter().fold(0_usize, |total, request| {
        let partitions = match (request.assignments.len(), request.num_partitions) {
            (0, -1) => usize::try_from(default).unwrap_or(0),
            (0, number) => usize::try_from(number).unwrap_or(0),
            (assigned, _) => assigned,
        };
        total.saturating_add(partitions)
    })
}

/// Existing names that a new one could be mistaken for in metrics: '.' and '_' are alike there.
/// Built only when a requested name has one of them, since it walks all topics.
struct CollidingNames<'a> {
    by_unified: HashMap<String, &'a str>,
}

impl<'a> CollidingNames<'a> {
    fn of(image: &'a Image, requests: &[CreateTopic]) -> CollidingNames<'a> {
        let mut by_unified = HashMap::new();
        if requests.iter().any(|request| has_colliding_characters(&request.name)) {
            for topic in image.topics().filter(|topic| has_colliding_characters(&topic.name)) {
                by_unified.entry(topic.name.replace('.', "_")).or_insert(&*topic.name);
            }
        }
        CollidingNames { by_unified }
    }
}

fn has_colliding_characters(name: &str) -> bool {
    name.contains(['.', '_'])
}

fn check_name(image: &Image, colliding: &CollidingNames<'_>, name: &str) -> Result<(), PlanError> {
    if name == CLUSTER_METADATA {
        return Err(refuse(
            ErrorCode::InvalidRequest,
            &format!("Creation of internal topic {CLUSTER_METADATA} is prohibited."),
        ));
    }
    if image.is_name_taken(name) {
        let message = format!("Topic '{name}' already exists.");
        return Err(refuse(ErrorCode::TopicAlreadyExists, &message));
    }
    validate_name(name).map_err(|message| {
        let refusal = refuse(ErrorCode::InvalidTopicException, &message);
        let is_long = name.len() > TOPIC_NAME_BYTES_MAX;
        if is_long { refusal.at(Limit::TopicNameBytes) } else { refusal }
    })?;
    if has_colliding_characters(name)
        && let Some(existing) = colliding.by_unified.get(&name.replace('.', "_"))
    {
        let message = format!("Topic '{name}' collides with existing topic: {existing}");
        return Err(refuse(ErrorCode::InvalidTopicException, &message));
    }
    Ok(())
}

fn check_configs(
    configs: &[(String, Option<String>)],
    broker: &BrokerConfig,
) -> Result<BTreeMap<String, String>, PlanError> {
    let nulls: Vec<&str> =
        configs.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| &**key).collect();
    if !nulls.is_empty() {
        let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(refuse(ErrorCode::InvalidConfig, &message));
    }
    let overrides: BTreeMap<String, String> =
        configs.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
    topic::validate_all(&overrides, broker)
        .map_err(|message| refuse(ErrorCode::InvalidConfig, &message))
}

/// Preferred shards of a new topic's partitions.
fn place_new(
    placement: &mut Placement,
    broker: &BrokerConfig,
    request: &CreateTopic,
) -> Result<Vec<u16>, PlanError> {
    if !request.assignments.is_empty() {
        return place_assigned(placement, broker, request);
    }
    let factor = request.replication_factor;
    if factor < -1 || factor == 0 {
        return Err(refuse(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ));
    }
    if request.num_partitions < -1 || request.num_partitions == 0 {
        return Err(refuse(
            ErrorCode::InvalidPartitions,
            "Number of partitions was set to an invalid non-positive value.",
        ));
    }
    let factor = if factor == -1 { broker.default_replication_factor } else { factor };
    let brokers = broker.advertised_brokers();
    if !broker.replication_factor_clamp && i32::from(factor) > i32::from(brokers) {
        let message = format!(
            "Unable to replicate the partition {factor} time(s): The target replication factor \
             of {factor} cannot be reached because only {brokers} broker(s) are registered or some \
             brokers have all their log directories cordoned."
        );
        return Err(refuse(ErrorCode::InvalidReplicationFactor, &message));
    }
    let partitions = match request.num_partitions {
        -1 => broker.num_partitions,
        number => number,
    };
    Ok((0..partitions).map(|_| placement.next()).collect())
}

fn place_assigned(
    placement: &mut Placement,
    broker: &BrokerConfig,
    request: &CreateTopic,
) -> Result<Vec<u16>, PlanError> {
    if request.replication_factor != -1 {
        return Err(refuse(
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but replication factor was not set to \
             -1.",
        ));
    }
    if request.num_partitions != -1 {
        return Err(refuse(
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ));
    }
    let mut nodes: BTreeMap<i32, i32> = BTreeMap::new();
    let mut factor = None;
    for (partition, replicas) in &request.assignments {
        if nodes.contains_key(partition) {
            let message =
                format!("Found multiple manual partition assignments for partition {partition}");
            return Err(refuse(ErrorCode::InvalidReplicaAssignment, &message));
        }
        let first = check_assignment(replicas, broker, factor)?;
        factor = Some(replicas.len());
        nodes.insert(*partition, first);
    }
    if !nodes.keys().zip(0..).all(|(partition, expected)| *partition == expected) {
        return Err(refuse(
            ErrorCode::InvalidReplicaAssignment,
            "partitions should be a consecutive 0-based integer sequence",
        ));
    }
    Ok(nodes.into_values().map(|node| placement.assigned(broker, node)).collect())
}

/// Checks the node ids of one partition and returns the first.
///
/// # Errors
/// Kafka's sentence, with INVALID_REPLICA_ASSIGNMENT.
pub fn check_assignment(
    replicas: &[i32],
    broker: &BrokerConfig,
    factor: Option<usize>,
) -> Result<i32, PlanError> {
    let refuse = |message: String| refuse(ErrorCode::InvalidReplicaAssignment, &message);
    let Some(first) = replicas.first() else {
        return Err(refuse(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        ));
    };
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let mut previous = None;
    for node in sorted {
        if !(0..i32::from(broker.advertised_brokers())).contains(&node) {
            return Err(refuse(format!(
                "The manual partition assignment includes broker {node}, but no such broker is \
                 registered."
            )));
        }
        if previous == Some(node) {
            return Err(refuse(format!(
                "The manual partition assignment includes the broker {node} more than once."
            )));
        }
        previous = Some(node);
    }
    match factor {
        Some(factor) if factor != replicas.len() => Err(refuse(format!(
            "The manual partition assignment includes a partition with {} replica(s), but this is \
             not consistent with previous partitions, which have {factor} replica(s).",
            replicas.len()
        ))),
        _ => Ok(*first),
    }
}

fn more_partitions(
    image: &Image,
    placement: &mut Placement,
    broker: &BrokerConfig,
    request: &CreatePartitions,
    budget: &mut usize,
) -> Result<(TopicId, Vec<u16>), PlanError> {
    let unknown =
        PlanError { code: ErrorCode::UnknownTopicOrPartition, message: None, limit: None };
    let topic = image.topic(&request.name).ok_or(unknown)?;
    let present = topic.partition_count();
    if request.count == present {
        let message = format!("Topic already has {present} partition(s).");
        return Err(refuse(ErrorCode::InvalidPartitions, &message));
    }
    if request.count < present {
        let message = format!(
            "The topic {} currently has {present} partition(s); {} would not be an increase.",
            request.name, request.count
        );
        return Err(refuse(ErrorCode::InvalidPartitions, &message));
    }
    let additional = usize::try_from(request.count - present).unwrap_or(usize::MAX);
    let assignments = request.assignments.as_deref();
    if let Some(assignments) = assignments
        && assignments.len() != additional
    {
        let message = format!(
            "Attempted to add {additional} additional partition(s), but only {} assignment(s) \
             were specified.",
            assignments.len()
        );
        return Err(refuse(ErrorCode::InvalidReplicaAssignment, &message));
    }
    *budget = budget.checked_sub(additional).ok_or_else(|| {
        refuse(ErrorCode::PolicyViolation, "Excessively large number of partitions per request.")
            .at(Limit::CreatePartitionsPerRequest)
    })?;
    let Some(assignments) = assignments else {
        return Ok((topic.id, (0..additional).map(|_| placement.next()).collect()));
    };
    // The factor of every topic is 1, whatever was asked for when it was created; an increase
    // with the same wish must not be refused for it.
    let mut nodes = Vec::with_capacity(assignments.len());
    let mut factor = None;
    for replicas in assignments {
        nodes.push(check_assignment(replicas, broker, factor)?);
        factor = Some(replicas.len());
    }
    Ok((topic.id, nodes.into_iter().map(|node| placement.assigned(broker, node)).collect()))
}

/// Notes one more occurrence, keeping the order of first occurrences.
fn count_at<K: Copy + Eq + std::hash::Hash>(
    entries: &mut Vec<(K, usize)>,
    places: &mut HashMap<K, usize>,
    key: K,
) {
    let place = *places.entry(key).or_insert_with(|| {
        entries.push((key, 0));
        entries.len() - 1
    });
    entries[place].1 += 1;
}

fn delete_by_id(image: &Image, id: TopicId, times: usize) -> DeleteResult {
    if times > 1 {
        let outcome = Err(refuse(ErrorCode::InvalidRequest, "Duplicate topic id."));
        return DeleteResult { name: None, id, outcome };
    }
    match image.topic_by_id(id) {
        Some(topic) => {
            DeleteResult { name: Some(topic.name.to_string()), id, outcome: Ok(Arc::clone(topic)) }
        }
        None => DeleteResult {
            name: None,
            id,
            outcome: Err(refuse(
                ErrorCode::UnknownTopicId,
                "This server does not host this topic ID.",
            )),
        },
    }
}

fn delete_by_name(
    image: &Image,
    name: &str,
    times: usize,
    by_id: &HashSet<TopicId>,
) -> DeleteResult {
    let answer = |id: TopicId, outcome: Result<Arc<Topic>, PlanError>| DeleteResult {
        name: Some(name.to_owned()),
        id,
        outcome,
    };
    if times > 1 {
        let refusal = refuse(ErrorCode::InvalidRequest, "Duplicate topic name.");
        return answer(TopicId::ZERO, Err(refusal));
    }
    match image.topic(name) {
        None => answer(TopicId::ZERO, Err(unknown_topic())),
        Some(topic) if by_id.contains(&topic.id) => answer(
            topic.id,
            Err(refuse(
                ErrorCode::InvalidRequest,
                "The provided topic name maps to an ID that was already supplied.",
            )),
        ),
        Some(topic) => answer(topic.id, Ok(Arc::clone(topic))),
    }
}

fn unknown_topic() -> PlanError {
    refuse(ErrorCode::UnknownTopicOrPartition, NOT_HOSTED)
}

#[cfg(test)]
mod tests;
