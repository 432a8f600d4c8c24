//! DescribeTopicPartitions (key 75), versions 0-0.
//!
//! Behaviour
//! - Topics by name, each once; no topics in the request are all there are. A page ends when it has
//!   as many partitions as the request allows, at most `max.request.partition.size.limit` and at
//!   least one; the cursor names the first partition that is left.
//! - A cursor says where to begin. One that names a partition below 0, or a topic that is not in a
//!   list that was given, refuses the whole request with 42.
//! - Unknown topics 3, illegal names 17, but only where they were asked for by name.
//! - One replica per partition, its leader; none is eligible besides, none was known before.
//! - Without an authorizer all operations are allowed.
//!
//! Version notes: 0 of KIP-966.

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::metadata::TOPIC_OPERATIONS;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ShardId};
use crate::metadata::image::{self, Image, Topic};
use crate::metadata::topics;
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeTopicPartitionsRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), &shard.context, request))
}

/// The answer.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let first = request.cursor.as_ref().map_or("", |cursor| cursor.topic_name.as_str());
    let asked: BTreeSet<&str> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str())
        .filter(|name| *name >= first)
        .collect();
    let all = request.topics.is_empty();
    if let Some(cursor) = &request.cursor
        && ((!all && !asked.contains(first)) || cursor.partition_index < 0)
    {
        return refused(request);
    }
    let most =
        image.broker().max_request_partition_size_limit.min(request.response_partition_limit);
    let start = |name: &str| match &request.cursor {
        Some(cursor) if name == first => cursor.partition_index,
        _ => 0,
    };
    let mut page = Page { context, left: most.max(1), topics: Vec::new(), next: None };
    if all {
        for topic in image.topics_from(first) {
            if !page.add(topic, start(&topic.name)) {
                break;
            }
        }
    } else {
        for name in asked {
            let goes_on = match image.topic(name) {
                Some(topic) => page.add(topic, start(name)),
                None => page.add_absent(name),
            };
            if !goes_on {
                break;
            }
        }
    }
    DescribeTopicPartitionsResponse::default().with_topics(page.topics).with_next_cursor(page.next)
}

fn refused(request: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let topics = request.topics.iter().map(|topic| {
        DescribeTopicPartitionsResponseTopic::default()
            .with_error_code(ErrorCode::InvalidRequest.code())
            .with_name(Some(topic.name.clone()))
    });
    DescribeTopicPartitionsResponse::default().with_topics(topics.collect())
}

/// What fits into one answer.
struct Page<'a> {
    context: &'a Context,
    left: i32,
    topics: Vec<DescribeTopicPartitionsResponseTopic>,
    next: Option<Cursor>,
}

impl Page<'_> {
    /// Adds a topic from partition `start` on; `false` when the page is full.
    fn add(&mut self, topic: &Topic, start: i32) -> bool {
        if self.left == 0 {
            return self.end_before(&topic.name, 0);
        }
        let count = topic.partition_count();
        let end = start.saturating_add(self.left).min(count);
        let partitions = (start..end).map(|index| self.partition(topic, index));
        let described = DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(name_of(&topic.name)))
            .with_topic_id(topic.id.into())
            .with_is_internal(topic.internal)
            .with_partitions(partitions.collect())
            .with_topic_authorized_operations(TOPIC_OPERATIONS);
        self.left -= i32::try_from(described.partitions.len()).unwrap_or(self.left);
        self.topics.push(described);
        end >= count || self.end_before(&topic.name, end)
    }

    fn add_absent(&mut self, name: &str) -> bool {
        if self.left == 0 {
            return self.end_before(name, 0);
        }
        let code = match topics::validate_name(name) {
            Ok(()) => ErrorCode::UnknownTopicOrPartition,
            Err(_) => ErrorCode::InvalidTopicException,
        };
        let absent = DescribeTopicPartitionsResponseTopic::default()
            .with_error_code(code.code())
            .with_name(Some(name_of(name)))
            .with_is_internal(image::is_internal(name))
            .with_topic_authorized_operations(TOPIC_OPERATIONS);
        self.topics.push(absent);
        true
    }

    /// Ends the page; always `false`.
    fn end_before(&mut self, name: &str, partition: i32) -> bool {
        let cursor = Cursor::default().with_topic_name(name_of(name));
        self.next = Some(cursor.with_partition_index(partition));
        false
    }

    fn partition(&self, topic: &Topic, index: i32) -> DescribeTopicPartitionsResponsePartition {
        let owner = topic.owner(PartitionIndex(index), self.context.shards);
        let node = BrokerId(self.context.node_of(owner.unwrap_or(ShardId(0))));
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(node)
            .with_leader_epoch(self.context.leader_epoch().0)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    }
}

fn name_of(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_topic_partitions_request as asking;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    type Outline = (Vec<(i16, String, Vec<i32>)>, Option<(String, i32)>);

    /// Code, name and partitions of each topic, and the cursor.
    fn described(names: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> Outline {
        let context = context(&[("max.request.partition.size.limit", "5")]);
        let topics: &[(&str, u8, &[u16])] =
            &[("a", 1, &[0, 1, 2]), ("b", 2, &[3]), ("c", 3, &[0, 1, 2, 3])];
        let cursor = cursor.map(|(name, partition)| {
            let cursor = asking::Cursor::default().with_topic_name(name_of(name));
            cursor.with_partition_index(partition)
        });
        let topic = |name: &&str| asking::TopicRequest::default().with_name(name_of(name));
        let request = DescribeTopicPartitionsRequest::default()
            .with_topics(names.iter().map(topic).collect())
            .with_response_partition_limit(limit)
            .with_cursor(cursor);
        let response = answer(&catalog(&context, topics), &context, &request);
        encode_response(Api::DescribeTopicPartitions, 0, 1, &response).expect("encodes");
        let topics = response.topics.iter().map(|topic| {
            let indexes = topic.partitions.iter().map(|p| p.partition_index).collect();
            let name = topic.name.as_ref().map(|name| name.to_string());
            (topic.error_code, name.unwrap_or_default(), indexes)
        });
        let next = response.next_cursor.as_ref();
        (topics.collect(), next.map(|c| (c.topic_name.to_string(), c.partition_index)))
    }

    fn check(found: Outline, topics: &[(i16, &str, &[i32])], next: Option<(&str, i32)>) {
        let topics = topics.iter().map(|(code, name, of)| (*code, (*name).to_owned(), of.to_vec()));
        let next = next.map(|(name, partition)| (name.to_owned(), partition));
        assert_eq!(found, (topics.collect(), next));
    }

    #[test]
    fn pages_follow_each_other() {
        check(described(&[], 2, None), &[(0, "a", &[0, 1])], Some(("a", 2)));
        let next = described(&[], 2, Some(("a", 2)));
        check(next, &[(0, "a", &[2]), (0, "b", &[0])], Some(("c", 0)));
        check(described(&[], 2, Some(("c", 0))), &[(0, "c", &[0, 1])], Some(("c", 2)));
        check(described(&[], 2, Some(("c", 2))), &[(0, "c", &[2, 3])], None);
        check(described(&[], 0, Some(("c", 3))), &[(0, "c", &[3])], None);
        check(described(&[], 2, Some(("bb", 7))), &[(0, "c", &[0, 1])], Some(("c", 2)));
        check(described(&[], 2, Some(("c", 9))), &[(0, "c", &[])], None);
        check(described(&[], 2, Some(("z", 0))), &[], None);
        // The broker's own limit is five.
        let most = described(&[], 2000, None);
        check(most, &[(0, "a", &[0, 1, 2]), (0, "b", &[0]), (0, "c", &[0])], Some(("c", 1)));
    }

    #[test]
    fn topics_are_answered_by_name_and_once() {
        let found = described(&["c", "x", "a", "a b", "a"], 5, None);
        let topics: &[(i16, &str, &[i32])] =
            &[(0, "a", &[0, 1, 2]), (17, "a b", &[]), (0, "c", &[0, 1])];
        check(found, topics, Some(("c", 2)));
        check(described(&["a", "x"], 3, None), &[(0, "a", &[0, 1, 2])], Some(("x", 0)));
        check(described(&["x"], 3, Some(("x", 0))), &[(3, "x", &[])], None);
    }

    #[test]
    fn cursors_that_lead_nowhere_are_refused() {
        check(described(&["a", "b"], 5, Some(("aa", 0))), &[(42, "a", &[]), (42, "b", &[])], None);
        check(described(&["a"], 5, Some(("a", -1))), &[(42, "a", &[])], None);
        check(described(&[], 5, Some(("a", -1))), &[], None);
    }
}
