//! AlterReplicaLogDirs (key 34), versions 1-2.
//!
//! Behaviour
//! - There is one directory, the data directory: a partition is asked into it in vain, and that
//!   succeeds. Another directory is 57; an unknown partition is 3, one that this node does not
//!   lead 9; a topic whose name would be too long for a second directory is 17.
//!
//! Version notes: 2 flexible.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use kafka_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use kafka_protocol::messages::{
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, TopicName,
};

use super::Response;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ShardId};
use crate::metadata::Image;
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &AlterReplicaLogDirsRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), &shard.context, shard.id, request))
}

/// The answer of the node that `shard` is; a partition given twice counts as it was given last.
#[must_use]
pub fn answer(
    image: &Image,
    context: &Context,
    shard: ShardId,
    request: &AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let mut topics: BTreeMap<&TopicName, BTreeMap<i32, ErrorCode>> = BTreeMap::new();
    for directory in &request.dirs {
        let is_ours = Path::new(directory.path.as_str()) == context.data_dir;
        for topic in &directory.topics {
            let results = topics.entry(&topic.name).or_default();
            for &partition in &topic.partitions {
                let code = check(image, context, shard, is_ours, &topic.name, partition);
                results.insert(partition, code);
            }
        }
    }
    let results = topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(partition, code)| {
            AlterReplicaLogDirPartitionResult::default()
                .with_partition_index(partition)
                .with_error_code(code.code())
        });
        AlterReplicaLogDirTopicResult::default()
            .with_topic_name(name.clone())
            .with_partitions(partitions.collect())
    });
    AlterReplicaLogDirsResponse::default().with_results(results.collect())
}

fn check(
    image: &Image,
    context: &Context,
    shard: ShardId,
    is_ours: bool,
    name: &str,
    partition: i32,
) -> ErrorCode {
    if format!("{name}-{partition}").len() + FUTURE_SUFFIX_BYTES > FILE_NAME_BYTES_MAX {
        return ErrorCode::InvalidTopicException;
    }
    if !is_ours {
        return ErrorCode::LogDirNotFound;
    }
    let owner = image.topic(name).and_then(|t| t.owner(PartitionIndex(partition), context.shards));
    match owner {
        Some(owner) if context.node_of(owner) == context.node_of(shard) => ErrorCode::None,
        Some(_) => ErrorCode::ReplicaNotAvailable,
        None => ErrorCode::UnknownTopicOrPartition,
    }
}

/// `.`, an id in hexadecimal digits, `-future`.
const FUTURE_SUFFIX_BYTES: usize = 1 + 32 + 7;

const FILE_NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_replica_log_dirs_request::{
        AlterReplicaLogDir, AlterReplicaLogDirTopic,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn codes(settings: &[(&str, &str)], path: &'static str, name: &str) -> Vec<i16> {
        let context = context(settings);
        let image = catalog(&context, &[("t", 1, &[1, 2])]);
        let topic = AlterReplicaLogDirTopic::default()
            .with_name(TopicName(StrBytes::from_string(name.to_owned())))
            .with_partitions(vec![0, 1, 2]);
        let directory = AlterReplicaLogDir::default()
            .with_path(StrBytes::from_static_str(path))
            .with_topics(vec![topic]);
        let request = AlterReplicaLogDirsRequest::default().with_dirs(vec![directory]);
        let response = answer(&image, &context, ShardId(1), &request);
        for version in 1..=2 {
            encode_response(Api::AlterReplicaLogDirs, version, 1, &response).expect("encodes");
        }
        response.results[0].partitions.iter().map(|partition| partition.error_code).collect()
    }

    #[test]
    fn only_the_data_directory_takes_partitions() {
        assert_eq!(codes(&[], "/nowhere", "t"), [0, 9, 3]);
        assert_eq!(codes(&[("advertise", "single")], "/nowhere/", "t"), [0, 0, 3]);
        assert_eq!(codes(&[], "/elsewhere", "t"), [57, 57, 57]);
        assert_eq!(codes(&[], "/nowhere", "u"), [3, 3, 3]);
        assert_eq!(codes(&[], "/nowhere", &"n".repeat(213)), [3, 3, 3]);
        assert_eq!(codes(&[], "/elsewhere", &"n".repeat(214)), [17, 17, 17]);
    }
}
