//! Metadata (key 3), versions 0-13.
//!
//! Behaviour
//! - All topics: null, and in v0 an empty array. From v1 on an empty array is none.
//! - If any id is given, ids are answered and names ignored. Duplicates are answered once.
//! - Unknown name 3, illegal name 17 (both with id zero), unknown id 100 with a null name. A topic
//!   being deleted does not exist.
//! - v10 and v11 have the fields but not their use: an id or a null name refuses the whole request
//!   with 42; v12+ a null name without any id with -1, as Kafka's handler fails then. All topics
//!   of the request carry the code, and there are no brokers.
//! - Unknown names are created when `auto.create.topics.enable`, the request's flag (v4+) and the
//!   name allow it. **deviation**: the creation is waited for and its topic answered; Kafka
//!   answers 3 and creates behind the client's back, which costs every client a retry. A creation
//!   that is refused (a colliding name) is answered 3, as in Kafka.
//! - One replica per partition, its leader; leader epochs are the number of this start.
//! - Node 0 is the controller. **deviation**: Kafka names a random broker.
//! - Without an authorizer all operations are allowed where they are asked for.
//! - **deviation**: topics come in the order of the request, or by name; Kafka's order is random.
//!
//! Version notes: 1 rack, controller, internal flag; 2 cluster id; 3 throttle; 4 creation flag;
//! 5 offline replicas; 7 leader epoch; 8 authorized operations (KIP-430; the cluster's until 10);
//! 9 flexible; 10 topic ids (KIP-516); 12 by id; 13 top-level error (KIP-1102).

use std::collections::HashSet;
use std::rc::Rc;

use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::describe_cluster::{CLUSTER_OPERATIONS, CONTROLLER_NODE};
use crate::error_code::ErrorCode;
use crate::ids::{ShardId, TopicId};
use crate::metadata::image::{self, Image, Topic};
use crate::metadata::topics;
use crate::shard::message::{CatalogChange, Operation};
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request, creating topics first if it asks for that.
pub async fn handle(shard: Rc<Shard>, header: RequestHeader, request: MetadataRequest) -> Response {
    let version = header.api_version;
    let mut image = shard.catalog();
    let missing = to_create(&image, &request, version);
    if !missing.is_empty() {
        let topics = missing.iter().map(|name| topics::automatic(name, image.broker())).collect();
        let change = CatalogChange::CreateTopics { topics, validate_only: false, automatic: true };
        // Whatever became of it, the catalog says: others may have created them meanwhile.
        shard.ask(ShardId(0), Operation::Catalog(change)).await;
        image = shard.catalog();
    }
    Response::encode(&header, &answer(&image, &shard.context, &request, version))
}

/// Names to create before the request is answered.
#[must_use]
pub fn to_create<'a>(image: &Image, request: &'a MetadataRequest, version: i16) -> Vec<&'a str> {
    let allowed = version < CREATION_FLAG_SINCE || request.allow_auto_topic_creation;
    match Wanted::of(request, version) {
        Wanted::Names(names) if allowed && image.broker().auto_create_topics_enable => names
            .into_iter()
            .map(StrBytes::as_str)
            .filter(|name| image.topic(name).is_none())
            .filter(|name| topics::validate_name(name).is_ok())
            .collect(),
        _ => Vec::new(),
    }
}

/// The answer out of the catalog as it is.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &MetadataRequest,
    version: i16,
) -> MetadataResponse {
    let operations = if version >= OPERATIONS_SINCE && request.include_topic_authorized_operations {
        TOPIC_OPERATIONS
    } else {
        i32::MIN
    };
    let topics: Vec<MetadataResponseTopic> = match Wanted::of(request, version) {
        Wanted::Refused(code) => return refused(request, version, code),
        Wanted::All => image.topics().map(|topic| present(context, topic, operations)).collect(),
        Wanted::Ids(ids) => ids
            .into_iter()
            .map(|id| match image.topic_by_id(id) {
                Some(topic) => present(context, topic, operations),
                None => MetadataResponseTopic::default()
                    .with_error_code(ErrorCode::UnknownTopicId.code())
                    .with_name(None)
                    .with_topic_id(id.into()),
            })
            .collect(),
        Wanted::Names(names) => names
            .into_iter()
            .map(|name| match image.topic(name) {
                Some(topic) => present(context, topic, operations),
                None => absent(name, operations),
            })
            .collect(),
    };
    let cluster_operations = if CLUSTER_OPERATIONS_IN.contains(&version)
        && request.include_cluster_authorized_operations
    {
        CLUSTER_OPERATIONS
    } else {
        i32::MIN
    };
    MetadataResponse::default()
        .with_brokers(brokers(image, context))
        .with_cluster_id(Some(StrBytes::from_string(image.cluster_id().to_owned())))
        .with_controller_id(BrokerId(CONTROLLER_NODE))
        .with_topics(topics)
        .with_cluster_authorized_operations(cluster_operations)
}

/// What a request asks for; duplicates are gone.
enum Wanted<'a> {
    All,
    Ids(Vec<TopicId>),
    Names(Vec<&'a StrBytes>),
    Refused(ErrorCode),
}

impl Wanted<'_> {
    fn of(request: &MetadataRequest, version: i16) -> Wanted<'_> {
        let Some(topics) = &request.topics else { return Wanted::All };
        if version == 0 && topics.is_empty() {
            return Wanted::All;
        }
        let id = |wire| TopicId::from(wire);
        if version < IDS_SINCE
            && topics.iter().any(|t| t.name.is_none() || id(t.topic_id) != TopicId::ZERO)
        {
            return Wanted::Refused(ErrorCode::InvalidRequest);
        }
        let mut seen = HashSet::new();
        let ids: Vec<TopicId> = topics
            .iter()
            .map(|topic| id(topic.topic_id))
            .filter(|id| *id != TopicId::ZERO && seen.insert(*id))
            .collect();
        if !ids.is_empty() {
            return Wanted::Ids(ids);
        }
        let mut seen = HashSet::new();
        let mut names = Vec::new();
        for topic in topics {
            let Some(TopicName(name)) = &topic.name else {
                return Wanted::Refused(ErrorCode::UnknownServerError);
            };
            if seen.insert(name.as_str()) {
                names.push(name);
            }
        }
        Wanted::Names(names)
    }
}

fn refused(request: &MetadataRequest, version: i16, code: ErrorCode) -> MetadataResponse {
    let topics = request.topics.iter().flatten().map(|topic| {
        // The name may not be null here.
        MetadataResponseTopic::default()
            .with_error_code(code.code())
            .with_name(Some(topic.name.clone().unwrap_or_default()))
            .with_topic_id(topic.topic_id)
    });
    let top_level = if version >= TOP_LEVEL_ERROR_SINCE { code.code() } else { 0 };
    MetadataResponse::default().with_topics(topics.collect()).with_error_code(top_level)
}

fn absent(name: &StrBytes, operations: i32) -> MetadataResponseTopic {
    let code = match topics::validate_name(name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    MetadataResponseTopic::default()
        .with_error_code(code.code())
        .with_name(Some(TopicName(name.clone())))
        .with_is_internal(image::is_internal(name))
        .with_topic_authorized_operations(operations)
}

fn present(context: &Context, topic: &Topic, operations: i32) -> MetadataResponseTopic {
    let partitions = (0..).zip(&topic.preferred).map(|(index, preferred)| {
        let node = BrokerId(context.node_of(ShardId(preferred % context.shards.max(1))));
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(node)
            .with_leader_epoch(context.leader_epoch().0)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(topic.name.to_string()))))
        .with_topic_id(topic.id.into())
        .with_is_internal(topic.internal)
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(operations)
}

fn brokers(image: &Image, context: &Context) -> Vec<MetadataResponseBroker> {
    let rack = image.broker().broker_rack.clone().map(StrBytes::from_string);
    let broker = |node: &crate::shard::Node| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(node.id))
            .with_host(StrBytes::from_string(node.host.clone()))
            .with_port(i32::from(node.port))
            .with_rack(rack.clone())
    };
    context.nodes.iter().map(broker).collect()
}

/// What may be done with a topic when nothing forbids it: bit 3 READ, 4 WRITE, 5 CREATE, 6 DELETE,
/// 7 ALTER, 8 DESCRIBE, 10 DESCRIBE_CONFIGS, 11 ALTER_CONFIGS.
pub const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;

const CREATION_FLAG_SINCE: i16 = 4;
const OPERATIONS_SINCE: i16 = 8;
const CLUSTER_OPERATIONS_IN: std::ops::RangeInclusive<i16> = 8..=10;
const IDS_SINCE: i16 = 12;
const TOP_LEVEL_ERROR_SINCE: i16 = 13;

#[cfg(test)]
pub(super) mod tests;
