//! FindCoordinator (key 10), versions 0-6.
//!
//! Behaviour
//! - The coordinator is the node that owns the key's partition of `__consumer_offsets` (type 0) or
//!   `__transaction_state` (type 1). Every key is fine, the empty one too; keys are answered in
//!   order, duplicates twice.
//! - The internal topic is created on first use, whatever `auto.create.topics.enable` says.
//!   **deviation**: the creation is waited for; Kafka answers 15 until the topic is there. 15 is
//!   answered only when it cannot be created.
//! - Share coordinators (type 2) do not exist: 42, as on a Kafka broker without one. Unknown types
//!   are 42 as well, with Kafka's long sentence.
//! - v1-v3 put Kafka's sentence of the code into the message, "NONE" for success; v4+ leave it
//!   empty, but for unknown types.
//!
//! Version notes: 1 key type, throttle, message; 3 flexible; 4 several keys (KIP-699); 5
//! TRANSACTION_ABORTABLE (KIP-890); 6 share groups (KIP-932).

use std::rc::Rc;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ShardId};
use crate::metadata::image::{CONSUMER_OFFSETS, Image, TRANSACTION_STATE};
use crate::metadata::topics;
use crate::shard::message::{CatalogChange, Operation};
use crate::shard::{Context, Node, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request, creating the internal topic first if it is missing.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: FindCoordinatorRequest,
) -> Response {
    let version = header.api_version;
    let mut image = shard.catalog();
    if let Some(name) = to_create(&image, &request, version) {
        let topics = vec![topics::automatic(name, image.broker())];
        let change = CatalogChange::CreateTopics { topics, validate_only: false, automatic: true };
        // Whatever became of it, the catalog says: others may have created it meanwhile.
        shard.ask(ShardId(0), Operation::Catalog(change)).await;
        image = shard.catalog();
    }
    Response::encode(&header, &answer(&image, &shard.context, &request, version))
}

/// The internal topic that must be created before the request is answered.
#[must_use]
pub fn to_create(
    image: &Image,
    request: &FindCoordinatorRequest,
    version: i16,
) -> Option<&'static str> {
    if version >= BATCH_SINCE && request.coordinator_keys.is_empty() {
        return None;
    }
    internal_topic(request.key_type).filter(|name| image.topic(name).is_none())
}

/// The answer out of the catalog as it is.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    if version < BATCH_SINCE {
        let found = find(image, context, request.key_type, &request.key);
        let (code, node, host, port) = outcome(&found);
        return FindCoordinatorResponse::default()
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_static_str(sentence(code))))
            .with_node_id(node)
            .with_host(host)
            .with_port(port);
    }
    let known_type = matches!(request.key_type, GROUP | TRANSACTION | SHARE);
    let coordinators = request.coordinator_keys.iter().map(|key| {
        let found = find(image, context, request.key_type, key);
        let (code, node, host, port) = outcome(&found);
        let message = if known_type { "" } else { sentence(code) };
        Coordinator::default()
            .with_key(key.clone())
            .with_node_id(node)
            .with_host(host)
            .with_port(port)
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_static_str(message)))
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

/// The partition of an internal topic with `partitions` partitions that keeps `key`; `None` if
/// there is no partition.
#[must_use]
pub fn partition_of(key: &str, partitions: i32) -> Option<PartitionIndex> {
    // Java hashes UTF-16 code units; the smallest number has no absolute value and counts as 0.
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0).checked_rem(partitions).map(PartitionIndex)
}

fn find<'a>(
    image: &Image,
    context: &'a Context,
    key_type: i8,
    key: &str,
) -> Result<&'a Node, ErrorCode> {
    let name = internal_topic(key_type).ok_or(ErrorCode::InvalidRequest)?;
    let find = || {
        let topic = image.topic(name)?;
        let partition = partition_of(key, topic.partition_count())?;
        let id = context.node_of(topic.owner(partition, context.shards)?);
        context.nodes.iter().find(|node| node.id == id)
    };
    find().ok_or(ErrorCode::CoordinatorNotAvailable)
}

fn outcome(found: &Result<&Node, ErrorCode>) -> (ErrorCode, BrokerId, StrBytes, i32) {
    match found {
        Ok(node) => {
            let host = StrBytes::from_string(node.host.clone());
            (ErrorCode::None, BrokerId(node.id), host, i32::from(node.port))
        }
        Err(code) => (*code, BrokerId(-1), StrBytes::from_static_str(""), -1),
    }
}

fn internal_topic(key_type: i8) -> Option<&'static str> {
    match key_type {
        GROUP => Some(CONSUMER_OFFSETS),
        TRANSACTION => Some(TRANSACTION_STATE),
        _ => None,
    }
}

fn sentence(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::None => "NONE",
        ErrorCode::CoordinatorNotAvailable => "The coordinator is not available.",
        _ => {
            "This most likely occurs because of a request being malformed by the client library \
             or the message was sent to an incompatible broker. See the broker logs for more \
             details."
        }
    }
}

const BATCH_SINCE: i16 = 4;
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn text(text: &str) -> StrBytes {
        StrBytes::from_string(text.to_owned())
    }

    fn one(key_type: i8, key: &str) -> FindCoordinatorRequest {
        FindCoordinatorRequest::default().with_key_type(key_type).with_key(text(key))
    }

    fn several(key_type: i8, keys: &[&str]) -> FindCoordinatorRequest {
        let keys = keys.iter().map(|key| text(key)).collect();
        FindCoordinatorRequest::default().with_key_type(key_type).with_coordinator_keys(keys)
    }

    const MALFORMED: &str = "This most likely occurs because of a request being malformed by the \
                             client library or the message was sent to an incompatible broker. See \
                             the broker logs for more details.";

    #[test]
    fn partitions_are_those_of_java() {
        let partition = |key: &str, count| partition_of(key, count).map(|index| index.0);
        assert_eq!(partition("", 50), Some(0));
        assert_eq!(partition("g1", 50), Some(3242 % 50));
        assert_eq!(partition("hello", i32::MAX), Some(99_162_322));
        assert_eq!(partition("Hello, World", i32::MAX), Some(505_841_268), "a negative hash");
        assert_eq!(partition("my-group", 50), Some(12));
        // The smallest number of all.
        assert_eq!(partition("polygenelubricants", 50), Some(0));
        // A surrogate pair: 0xD83D * 31 + 0xDE00.
        assert_eq!(partition("😀", i32::MAX), Some(1_772_899));
        assert_eq!(partition("g1", 0), None);
    }

    #[test]
    fn the_coordinator_owns_the_keys_partition() {
        let context = context(&[]);
        // "g1" is partition 3242 % 3 = 2, "g2" 0; "" 0.
        let image = catalog(
            &context,
            &[("__consumer_offsets", 1, &[1, 2, 3]), ("__transaction_state", 2, &[2])],
        );
        for version in 4..=6 {
            let response = answer(&image, &context, &several(0, &["g1", "", "g2", "g1"]), version);
            let found: Vec<_> = response
                .coordinators
                .iter()
                .map(|c| {
                    let message = c.error_message.as_deref();
                    (c.key.as_str(), c.node_id.0, c.host.as_str(), c.port, c.error_code, message)
                })
                .collect();
            assert_eq!(
                found,
                [
                    ("g1", 3, "ringlog", 9095, 0, Some("")),
                    ("", 1, "ringlog", 9093, 0, Some("")),
                    ("g2", 1, "ringlog", 9093, 0, Some("")),
                    ("g1", 3, "ringlog", 9095, 0, Some(""))
                ]
            );
        }
        for version in 0..=3 {
            let response = answer(&image, &context, &one(0, "g1"), version);
            assert_eq!((response.error_code, response.node_id.0, response.port), (0, 3, 9095));
            assert_eq!(response.error_message.as_deref(), Some("NONE"));
            assert!(response.coordinators.is_empty());
        }
        let response = answer(&image, &context, &one(1, ""), 1);
        assert_eq!((response.error_code, response.node_id.0), (0, 2));
    }

    #[test]
    fn node_0_is_the_coordinator_of_everything_when_alone() {
        let context = context(&[("advertise", "single")]);
        let image = catalog(&context, &[("__consumer_offsets", 1, &[1, 2, 3])]);
        let response = answer(&image, &context, &several(0, &["g1", "g2"]), 4);
        assert!(response.coordinators.iter().all(|c| (c.node_id.0, c.port) == (0, 9092)));
        assert_eq!(response.coordinators.len(), 2);
    }

    #[test]
    fn the_internal_topic_is_created_on_first_use() {
        let context = context(&[("auto.create.topics.enable", "false")]);
        let empty = catalog(&context, &[]);
        assert_eq!(to_create(&empty, &one(0, "g"), 0), Some("__consumer_offsets"));
        assert_eq!(to_create(&empty, &one(1, "t"), 3), Some("__transaction_state"));
        assert_eq!(to_create(&empty, &several(1, &["t"]), 4), Some("__transaction_state"));
        assert_eq!(to_create(&empty, &several(0, &[]), 4), None);
        assert_eq!(to_create(&empty, &several(2, &["g:AAAAAAAAAAAAAAAAAAAAAA:0"]), 6), None);
        assert_eq!(to_create(&empty, &several(9, &["g"]), 6), None);
        let image = catalog(&context, &[("__consumer_offsets", 1, &[0])]);
        assert_eq!(to_create(&image, &several(0, &["g"]), 6), None);
    }

    #[test]
    fn without_its_topic_there_is_no_coordinator() {
        let context = context(&[]);
        let image = catalog(&context, &[]);
        let response = answer(&image, &context, &several(0, &["g1"]), 4);
        let found = &response.coordinators[0];
        assert_eq!((found.error_code, found.node_id.0, found.port), (15, -1, -1));
        assert_eq!((found.host.as_str(), found.error_message.as_deref()), ("", Some("")));
        let response = answer(&image, &context, &one(1, "t"), 1);
        assert_eq!((response.error_code, response.node_id.0, response.port), (15, -1, -1));
        let message = response.error_message.as_deref();
        assert_eq!(message, Some("The coordinator is not available."));
    }

    #[test]
    fn share_and_unknown_types_are_refused() {
        let context = context(&[]);
        let image = catalog(&context, &[("__consumer_offsets", 1, &[0])]);
        for (key_type, message) in [(2, ""), (3, MALFORMED), (-1, MALFORMED)] {
            for version in 4..=6 {
                let response = answer(&image, &context, &several(key_type, &["x", "y"]), version);
                assert_eq!(response.coordinators.len(), 2);
                for found in &response.coordinators {
                    assert_eq!((found.error_code, found.node_id.0, found.port), (42, -1, -1));
                    assert_eq!(found.error_message.as_deref(), Some(message));
                }
            }
            let response = answer(&image, &context, &one(key_type, "x"), 1);
            assert_eq!((response.error_code, response.node_id.0), (42, -1));
            assert_eq!(response.error_message.as_deref(), Some(MALFORMED));
        }
        let response = answer(&image, &context, &several(9, &[]), 6);
        assert_eq!((response.error_code, response.coordinators.len()), (0, 0));
    }

    #[test]
    fn every_version_is_encoded() {
        let context = context(&[]);
        let image = catalog(&context, &[("__consumer_offsets", 1, &[0])]);
        for version in 0..=6 {
            for key_type in 0..=3 {
                let request = one(key_type, "g").with_coordinator_keys(vec![text("g"), text("")]);
                let response = answer(&image, &context, &request, version);
                encode_response(Api::FindCoordinator, version, 1, &response).expect("encodes");
            }
        }
    }
}
