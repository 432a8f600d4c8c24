//! Fetch responses as a list of slices: header bytes of our own between record slices that are
//! never copied.
//!
//! Owns the response layout of Fetch v4-18 and the plain structures a handler fills. Must never
//! copy or re-encode record bytes. Invariant: the concatenation of the slices is one frame whose
//! length prefix is exact; all slices that are not records share one allocation.
//! Source: Kafka's `FetchResponse`; KIP-227 (sessions), KIP-516 (topic ids), KIP-595 (diverging
//! epoch), KIP-951 (leader and endpoints).

use bytes::{BufMut, Bytes};
use kafka_protocol::protocol::StrBytes;

use super::encode::{EncodeFault, patch_length, put_header};
use super::leader::{
    CurrentLeader, NodeEndpoint, endpoints_bytes_max, put_endpoint_tags, put_leader_tag,
};
use super::primitive::{put_count, put_no_tags, put_null_count, put_text, put_uvarint};
use super::versions::Api;
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};

/// A whole Fetch response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchAnswer {
    /// How long the client was or should be held back, ms.
    pub throttle_time_ms: i32,
    /// Error of the whole request, told from v7 on.
    pub error: ErrorCode,
    /// Fetch session, 0 for none; told from v7 on.
    pub session_id: i32,
    /// The topics.
    pub topics: Vec<FetchTopicAnswer>,
    /// Endpoints of the leaders named below; told from v16 on.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a Fetch response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTopicAnswer {
    /// Name, told up to v12.
    pub name: StrBytes,
    /// Id, told from v13 on.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: Vec<FetchPartitionAnswer>,
}

/// One partition of a Fetch response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchPartitionAnswer {
    /// The partition.
    pub partition: PartitionIndex,
    /// Its error.
    pub error: ErrorCode,
    /// High watermark, -1 if unknown.
    pub high_watermark: Offset,
    /// Last stable offset, -1 if unknown.
    pub last_stable_offset: Offset,
    /// Log start, -1 if unknown; told from v5 on.
    pub log_start_offset: Offset,
    /// Where the client's log parts from this one; told from v12 on.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Who leads, if not this shard; told from v12 on.
    pub current_leader: Option<CurrentLeader>,
    /// Aborted transactions among the records: producer and first offset. `None` (null) for a
    /// reader of uncommitted data.
    pub aborted: Option<Vec<(ProducerId, Offset)>>,
    /// Whole batches, in order, as slices of shared memory.
    pub records: Vec<Bytes>,
}

/// Largest epoch known here at or below the client's, and where it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DivergingEpoch {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its end offset.
    pub end_offset: Offset,
}

impl FetchPartitionAnswer {
    /// The answer that carries nothing but an error, as Kafka fills it.
    #[must_use]
    pub fn failed(partition: PartitionIndex, error: ErrorCode) -> FetchPartitionAnswer {
        FetchPartitionAnswer {
            partition,
            error,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            diverging_epoch: None,
            current_leader: None,
            aborted: Some(Vec::new()),
            records: Vec::new(),
        }
    }

    /// Bytes of records in this answer.
    #[must_use]
    pub fn records_bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

/// The response frame as slices to be written in order, the length prefix first.
///
/// # Errors
/// The response or a name in it is longer than its length field can say.
pub fn encode_fetch(
    version: i16,
    correlation_id: i32,
    answer: FetchAnswer,
) -> Result<Vec<Bytes>, EncodeFault> {
    let mut writer = Writer {
        head: Vec::with_capacity(head_bytes_max(&answer)),
        records: Vec::new(),
        records_bytes: 0,
        version,
        flexible: Api::Fetch.is_flexible(version),
    };
    writer.response(correlation_id, answer)?;
    writer.finish()
}

struct Writer {
    head: Vec<u8>,
    /// Record slices, each with the position in `head` before which it belongs.
    records: Vec<(usize, Bytes)>,
    records_bytes: usize,
    version: i16,
    flexible: bool,
}

impl Writer {
    fn response(&mut self, correlation_id: i32, answer: FetchAnswer) -> Result<(), EncodeFault> {
        put_header(&mut self.head, correlation_id, self.flexible);
        self.head.put_i32(answer.throttle_time_ms);
        if self.version >= 7 {
            self.head.put_i16(answer.error.code());
            self.head.put_i32(answer.session_id);
        }
        put_count(&mut self.head, answer.topics.len(), self.flexible)?;
        for topic in answer.topics {
            self.topic(topic)?;
        }
        if self.version >= 16 {
            put_endpoint_tags(&mut self.head, &answer.node_endpoints)?;
        } else {
            put_no_tags(&mut self.head, self.flexible);
        }
        Ok(())
    }

    fn topic(&mut self, topic: FetchTopicAnswer) -> Result<(), EncodeFault> {
        if self.version >= 13 {
            self.head.put_slice(&topic.id.0);
        } else {
            put_text(&mut self.head, &topic.name, self.flexible)?;
        }
        put_count(&mut self.head, topic.partitions.len(), self.flexible)?;
        for partition in topic.partitions {
            self.partition(partition)?;
        }
        put_no_tags(&mut self.head, self.flexible);
        Ok(())
    }

    fn partition(&mut self, partition: FetchPartitionAnswer) -> Result<(), EncodeFault> {
        let records_bytes = partition.records_bytes();
        self.head.put_i32(partition.partition.0);
        self.head.put_i16(partition.error.code());
        self.head.put_i64(partition.high_watermark.0);
        self.head.put_i64(partition.last_stable_offset.0);
        if self.version >= 5 {
            self.head.put_i64(partition.log_start_offset.0);
        }
        self.aborted(partition.aborted.as_deref())?;
        if self.version >= 11 {
            self.head.put_i32(NO_PREFERRED_REPLICA);
        }
        // Never null: an absence of records is an empty set, as in Kafka.
        put_count(&mut self.head, records_bytes, self.flexible)?;
        self.records_bytes += records_bytes;
        for slice in partition.records {
            if !slice.is_empty() {
                self.records.push((self.head.len(), slice));
            }
        }
        if self.flexible {
            self.partition_tags(partition.diverging_epoch, partition.current_leader);
        }
        Ok(())
    }

    fn aborted(&mut self, aborted: Option<&[(ProducerId, Offset)]>) -> Result<(), EncodeFault> {
        let Some(aborted) = aborted else {
            put_null_count(&mut self.head, self.flexible);
            return Ok(());
        };
        put_count(&mut self.head, aborted.len(), self.flexible)?;
        for (producer, first_offset) in aborted {
            self.head.put_i64(producer.0);
            self.head.put_i64(first_offset.0);
            put_no_tags(&mut self.head, self.flexible);
        }
        Ok(())
    }

    fn partition_tags(
        &mut self,
        diverging: Option<DivergingEpoch>,
        current_leader: Option<CurrentLeader>,
    ) {
        let count = u32::from(diverging.is_some()) + u32::from(current_leader.is_some());
        put_uvarint(&mut self.head, count);
        if let Some(diverging) = diverging {
            put_uvarint(&mut self.head, 0);
            put_uvarint(&mut self.head, 13);
            self.head.put_i32(diverging.epoch.0);
            self.head.put_i64(diverging.end_offset.0);
            put_no_tags(&mut self.head, true);
        }
        if let Some(leader) = current_leader {
            put_leader_tag(&mut self.head, 1, leader);
        }
    }

    fn finish(mut self) -> Result<Vec<Bytes>, EncodeFault> {
        patch_length(&mut self.head, self.records_bytes)?;
        let mut slices = Vec::with_capacity(2 * self.records.len() + 1);
        let mut head = Bytes::from(self.head);
        let mut cut = 0;
        for (position, slice) in self.records {
            if position > cut {
                slices.push(head.split_to(position - cut));
                cut = position;
            }
            slices.push(slice);
        }
        if !head.is_empty() {
            slices.push(head);
        }
        Ok(slices)
    }
}

/// An upper bound of the bytes that are not records.
fn head_bytes_max(answer: &FetchAnswer) -> usize {
    let mut bytes = RESPONSE_BYTES_MAX + endpoints_bytes_max(&answer.node_endpoints);
    for topic in &answer.topics {
        bytes += TOPIC_BYTES_MAX + topic.name.len();
        for partition in &topic.partitions {
            let aborted = partition.aborted.as_ref().map_or(0, Vec::len);
            bytes += PARTITION_BYTES_MAX + aborted * ABORTED_BYTES_MAX;
        }
    }
    bytes
}

/// Length 4, header 5, throttle 4, error 2, session 4, count 5.
const RESPONSE_BYTES_MAX: usize = 24;
/// Length of the name or count 3, id 16, count 5, tags 1.
const TOPIC_BYTES_MAX: usize = 25;
/// Index 4, error 2, three offsets 24, two counts 10, replica 4, tags 1 + 15 + 11.
const PARTITION_BYTES_MAX: usize = 71;
/// Producer 8, offset 8, tags 1.
const ABORTED_BYTES_MAX: usize = 17;
const NO_PREFERRED_REPLICA: i32 = -1;

#[cfg(test)]
mod tests;
