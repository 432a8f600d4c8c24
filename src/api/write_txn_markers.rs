//! WriteTxnMarkers (key 27), versions 1-2.
//!
//! Behaviour
//! - Appends one marker per partition named, in order, and answers when all are durable. A producer
//!   without anything open there gets its marker too.
//! - Per partition: unknown, or not this node's: 3. Epoch too low 47, coordinator too old 52.
//! - Results are grouped by producer id; no markers, no results.
//! - This is how an operator ends a transaction whose coordinator knows it no more (KIP-664).
//!
//! Version notes: 2 the transaction version, and with it the strict rule (KIP-1228). Coordinators
//! of this broker send no requests: their markers go between shards.

use std::collections::HashMap;
use std::rc::Rc;

use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{self, TopicName, WriteTxnMarkersResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::list_offsets::is_served;
use crate::batch::MarkerKind;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerEpoch, ProducerId, TopicPartition};
use crate::shard::Shard;
use crate::shard::by_owner::ByOwner;
use crate::shard::message::{MarkerPart, Operation, Reply};
use crate::wire::header::RequestHeader;
use crate::wire::txn_markers::{TxnMarker, WriteTxnMarkersRequest};

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: WriteTxnMarkersRequest,
) -> Response {
    let image = shard.catalog();
    let mut results = Results::default();
    let mut asked: ByOwner<Place, MarkerPart> = ByOwner::default();
    for marker in &request.markers {
        let producer = results.producer(marker.producer_id);
        for topic in &marker.topics {
            let known = image.topic(&topic.name);
            let topic_place = results.topic(producer, &topic.name);
            for &index in &topic.partitions {
                let place = results.partition(producer, topic_place, index);
                let index = PartitionIndex(index);
                let owner = known.and_then(|topic| topic.owner(index, shard.context.shards));
                let (Some(known), Some(owner)) = (known, owner) else { continue };
                if !is_served(&shard, owner) {
                    continue;
                }
                let id = TopicPartition { topic: known.id, partition: index };
                asked.add(owner, place, part_of(marker, id));
            }
        }
    }
    for (owner, places, parts) in asked {
        let Reply::Markers(codes) = shard.ask(owner, Operation::WriteMarkers(parts)).await else {
            continue;
        };
        for (place, code) in places.into_iter().zip(codes) {
            results.set(place, code);
        }
    }
    Response::encode(&header, &results.response)
}

fn part_of(marker: &TxnMarker, partition: TopicPartition) -> MarkerPart {
    MarkerPart {
        partition,
        kind: if marker.committed { MarkerKind::Commit } else { MarkerKind::Abort },
        producer_id: ProducerId(marker.producer_id),
        producer_epoch: ProducerEpoch(marker.producer_epoch),
        coordinator_epoch: marker.coordinator_epoch,
        transaction_version: i16::from(marker.transaction_version),
    }
}

/// A partition's place in the response: producer, topic, partition.
type Place = (usize, usize, usize);

/// The response while it is put together: every producer, topic and partition once.
#[derive(Default)]
struct Results {
    response: WriteTxnMarkersResponse,
    producers: HashMap<i64, usize>,
    topics: HashMap<(usize, StrBytes), usize>,
    partitions: HashMap<(usize, usize, i32), usize>,
}

impl Results {
    fn producer(&mut self, id: i64) -> usize {
        let producers = &mut self.response.markers;
        *self.producers.entry(id).or_insert_with(|| {
            let id = messages::ProducerId(id);
            producers.push(WritableTxnMarkerResult::default().with_producer_id(id));
            producers.len() - 1
        })
    }

    fn topic(&mut self, producer: usize, name: &StrBytes) -> usize {
        let topics = &mut self.response.markers[producer].topics;
        *self.topics.entry((producer, name.clone())).or_insert_with(|| {
            let name = TopicName(name.clone());
            topics.push(WritableTxnMarkerTopicResult::default().with_name(name));
            topics.len() - 1
        })
    }

    /// A partition that nobody has answered for yet is unknown.
    fn partition(&mut self, producer: usize, topic: usize, index: i32) -> Place {
        let partitions = &mut self.response.markers[producer].topics[topic].partitions;
        let place = *self.partitions.entry((producer, topic, index)).or_insert_with(|| {
            partitions.push(
                WritableTxnMarkerPartitionResult::default()
                    .with_partition_index(index)
                    .with_error_code(ErrorCode::UnknownTopicOrPartition.code()),
            );
            partitions.len() - 1
        });
        (producer, topic, place)
    }

    fn set(&mut self, (producer, topic, partition): Place, code: ErrorCode) {
        let topic = &mut self.response.markers[producer].topics[topic];
        topic.partitions[partition].error_code = code.code();
    }
}
