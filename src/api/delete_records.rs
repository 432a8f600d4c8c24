//! DeleteRecords (key 21), versions 0-2.
//!
//! Behaviour
//! - Per partition the first offset that is kept; -1 is the high watermark. Answered with where the
//!   log starts, once that is durable; the files go with the next walk of retention.
//! - An offset at or below the log start changes nothing and is answered like any other.
//! - Another negative offset, or one above the high watermark: 1. A topic that is compacted only:
//!   44, whatever the offset. An internal topic: 17. Unknown: 3. Not this node's: 6. Storage that
//!   has failed: 56. The log start is -1 then.
//! - A partition that is named more than once has one answer, for the last offset; a topic of which
//!   none is named has no answer.
//! - The timeout is not looked at: there are no followers to wait for.
//!
//! Version notes: 1 same as 0; 2 flexible.

use std::collections::HashMap;
use std::rc::Rc;

use kafka_protocol::messages::delete_records_request::DeleteRecordsTopic;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse, TopicName};

use super::Response;
use super::list_offsets::is_served;
use crate::error_code::ErrorCode;
use crate::ids::{Offset, PartitionIndex, ShardId, TopicPartition};
use crate::metadata::image::Topic;
use crate::shard::Shard;
use crate::shard::by_owner::ByOwner;
use crate::shard::message::{DeleteRecordsPart, Operation, Reply};
use crate::wire::header::RequestHeader;

/// A partition's place in the response: topic, and partition in it.
type Place = (usize, usize);

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: DeleteRecordsRequest,
) -> Response {
    let image = shard.catalog();
    let mut response = DeleteRecordsResponse::default();
    let mut asked: ByOwner<Place, DeleteRecordsPart> = ByOwner::default();
    for (name, offsets) in merged(request.topics) {
        if offsets.is_empty() {
            continue;
        }
        let known = image.topic(&name).map(|topic| &**topic);
        let mut result = DeleteRecordsTopicResult::default().with_name(name);
        for (index, offset) in offsets {
            let owner = owner(&shard, known, PartitionIndex(index));
            if let (Ok(owner), Some(topic)) = (owner, known) {
                let partition =
                    TopicPartition { topic: topic.id, partition: PartitionIndex(index) };
                let part = DeleteRecordsPart { partition, offset: Offset(offset) };
                let place = (response.topics.len(), result.partitions.len());
                asked.add(owner, place, part);
            }
            result.partitions.push(answer(index, owner.err().map_or(Ok(Offset(-1)), Err)));
        }
        response.topics.push(result);
    }
    for (owner, places, parts) in asked {
        let reply = shard.ask(owner, Operation::DeleteRecords(parts)).await;
        let Reply::LogStarts(starts) = reply else { continue };
        for ((topic, place), start) in places.into_iter().zip(starts) {
            let told = &mut response.topics[topic].partitions[place];
            *told = answer(told.partition_index, start);
        }
    }
    Response::encode(&header, &response)
}

/// Topics and their partitions in the order in which they are named first, each once.
fn merged(topics: Vec<DeleteRecordsTopic>) -> Vec<(TopicName, Vec<(i32, i64)>)> {
    let mut places: Vec<(TopicName, Vec<(i32, i64)>)> = Vec::new();
    let mut by_name: HashMap<TopicName, usize> = HashMap::new();
    let mut by_index: HashMap<(usize, i32), usize> = HashMap::new();
    for topic in topics {
        let place = *by_name.entry(topic.name.clone()).or_insert_with(|| {
            places.push((topic.name.clone(), Vec::new()));
            places.len() - 1
        });
        for partition in topic.partitions {
            let offsets = &mut places[place].1;
            let index = partition.partition_index;
            let at = *by_index.entry((place, index)).or_insert_with(|| {
                offsets.push((index, 0));
                offsets.len() - 1
            });
            offsets[at].1 = partition.offset;
        }
    }
    places
}

/// Who deletes from a partition, if it may be done and asked for here.
fn owner(
    shard: &Shard,
    topic: Option<&Topic>,
    partition: PartitionIndex,
) -> Result<ShardId, ErrorCode> {
    let owner = topic.and_then(|topic| topic.owner(partition, shard.context.shards));
    let (Some(topic), Some(owner)) = (topic, owner) else {
        return Err(ErrorCode::UnknownTopicOrPartition);
    };
    if topic.internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    match is_served(shard, owner) {
        true => Ok(owner),
        false => Err(ErrorCode::NotLeaderOrFollower),
    }
}

fn answer(index: i32, start: Result<Offset, ErrorCode>) -> DeleteRecordsPartitionResult {
    let code = start.err().unwrap_or(ErrorCode::None);
    DeleteRecordsPartitionResult::default()
        .with_partition_index(index)
        .with_low_watermark(start.unwrap_or(Offset(-1)).0)
        .with_error_code(code.code())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
    use kafka_protocol::protocol::StrBytes;

    use super::*;

    #[test]
    fn the_last_offset_of_a_partition_counts_and_each_is_answered_once() {
        let topic = |name: &'static str, offsets: &[(i32, i64)]| {
            let partition = |&(index, offset)| {
                DeleteRecordsPartition::default().with_partition_index(index).with_offset(offset)
            };
            DeleteRecordsTopic::default()
                .with_name(TopicName(StrBytes::from_static_str(name)))
                .with_partitions(offsets.iter().map(partition).collect())
        };
        let topics = vec![
            topic("b", &[(1, 10), (0, 20), (1, 30)]),
            topic("a", &[(0, 40)]),
            topic("b", &[(2, 50), (0, 60)]),
        ];
        let merged: Vec<_> =
            merged(topics).into_iter().map(|(name, offsets)| (name.to_string(), offsets)).collect();
        let expected =
            [("b".to_owned(), vec![(1, 30), (0, 60), (2, 50)]), ("a".to_owned(), vec![(0, 40)])];
        assert_eq!(merged, expected);
    }
}
