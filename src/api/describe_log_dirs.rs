//! DescribeLogDirs (key 35), versions 1-5.
//!
//! Behaviour
//! - One directory, the data directory. A node tells its own partitions, or with one node those of
//!   all shards; the admin client asks every node and puts the answers together. Null topics: all
//!   partitions. Those that are not here are left out.
//! - A partition's size is the bytes of its batches, in segments or still in the journal. Nothing
//!   lags and nothing is on its way to another directory.
//! - Total and usable bytes are told by node 0 and are -1 on the others: adding them up gives the
//!   truth. They are -1 too if the file system does not say.
//! - No directory is ever cordoned.
//!
//! Version notes: 2 flexible; 3 top-level error (KIP-784); 4 sizes of the volume (KIP-827); 5
//! cordoned directories (KIP-1066).

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::ids::ShardId;
use crate::metadata::Image;
use crate::shard::Shard;
use crate::shard::message::{LogSize, Operation, Reply};
use crate::wire::codes::Codes;
use crate::wire::header::RequestHeader;
use crate::wire::log_dirs::encode_log_dirs;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: DescribeLogDirsRequest,
) -> Response {
    let mut sizes = Vec::new();
    for id in (0..shard.context.shards).map(ShardId) {
        if id == shard.id || shard.context.is_single() {
            match shard.ask(id, Operation::LogSizes).await {
                Reply::LogSizes(of_shard) => sizes.extend(of_shard),
                _ => unreachable!("a question for sizes is answered with sizes"),
            }
        }
    }
    let mut answer = answer(&shard.catalog(), &request, &sizes);
    answer.log_dir = StrBytes::from_string(shard.context.data_dir.display().to_string());
    if shard.context.node_of(shard.id) == 0
        && let Ok(space) = shard.disk.space().await
    {
        answer.total_bytes = i64::try_from(space.total_bytes).unwrap_or(i64::MAX);
        answer.usable_bytes = i64::try_from(space.available_bytes).unwrap_or(i64::MAX);
    }
    let response = DescribeLogDirsResponse::default().with_results(vec![answer]);
    match encode_log_dirs(header.api_version, header.correlation_id, &response) {
        Ok(frame) => Response::frame(frame, Codes::of(&response)),
        Err(fault) => Response::fault(&header, &fault),
    }
}

/// The topics of the one directory, by name.
#[must_use]
pub fn answer(
    image: &Image,
    request: &DescribeLogDirsRequest,
    sizes: &[LogSize],
) -> DescribeLogDirsResult {
    let asked: Option<HashSet<(&str, i32)>> = request.topics.as_ref().map(|topics| {
        let mut asked = HashSet::new();
        for topic in topics {
            asked.extend(topic.partitions.iter().map(|&index| (topic.topic.as_str(), index)));
        }
        asked
    });
    let mut topics: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for size in sizes {
        let Some(topic) = image.topic_by_id(size.partition.topic) else { continue };
        let index = size.partition.partition.0;
        if asked.as_ref().is_none_or(|asked| asked.contains(&(&*topic.name, index))) {
            let partition = DescribeLogDirsPartition::default()
                .with_partition_index(index)
                .with_partition_size(i64::try_from(size.bytes).unwrap_or(i64::MAX));
            topics.entry(&topic.name).or_default().push(partition);
        }
    }
    let topics = topics.into_iter().map(|(name, mut partitions)| {
        partitions.sort_unstable_by_key(|partition| partition.partition_index);
        DescribeLogDirsTopic::default()
            .with_name(TopicName(StrBytes::from_string(name.to_owned())))
            .with_partitions(partitions)
    });
    DescribeLogDirsResult::default().with_topics(topics.collect())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::ids::{PartitionIndex, TopicId, TopicPartition};

    #[test]
    fn partitions_are_told_by_topic_and_index() {
        let context = context(&[]);
        let image = catalog(&context, &[("b", 1, &[0, 0]), ("a", 2, &[0])]);
        let size = |topic: u8, partition: i32, bytes: u64| LogSize {
            partition: TopicPartition {
                topic: TopicId([topic; 16]),
                partition: PartitionIndex(partition),
            },
            bytes,
        };
        let sizes = [size(1, 1, 11), size(1, 0, 10), size(2, 0, 20), size(9, 0, 90)];
        let told = |request: &DescribeLogDirsRequest| {
            let answer = answer(&image, request, &sizes);
            assert_eq!((answer.total_bytes, answer.usable_bytes), (-1, -1));
            let topics = answer.topics.iter().flat_map(|topic| {
                let name = topic.name.to_string();
                let partitions = topic.partitions.iter();
                partitions.map(move |p| (format!("{name}-{}", p.partition_index), p.partition_size))
            });
            topics.collect::<Vec<_>>()
        };
        let row = |name: &str, bytes: i64| (name.to_owned(), bytes);
        let all = DescribeLogDirsRequest::default().with_topics(None);
        assert_eq!(told(&all), [row("a-0", 20), row("b-0", 10), row("b-1", 11)]);
        let some = DescribableLogDirTopic::default()
            .with_topic(TopicName(StrBytes::from_static_str("b")))
            .with_partitions(vec![1, 7]);
        let some = DescribeLogDirsRequest::default().with_topics(Some(vec![some]));
        assert_eq!(told(&some), [row("b-1", 11)]);
        let none = DescribeLogDirsRequest::default().with_topics(Some(vec![]));
        assert_eq!(told(&none), []);
    }
}
