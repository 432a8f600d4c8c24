//! Produce responses, encoded by hand: they are as many as the requests of the hot path.
//!
//! Owns the response layout of Produce v3-13 and the plain structures a handler fills. One
//! allocation per response. What a version cannot say is left out; which error code an old version
//! may see is the handler's matter.
//! Source: Kafka's `ProduceResponse`; KIP-467 (record errors), KIP-516, KIP-951.

use bytes::{BufMut, Bytes};
use kafka_protocol::protocol::StrBytes;

use super::encode::{EncodeFault, patch_length, put_header};
use super::leader::{
    CurrentLeader, NodeEndpoint, endpoints_bytes_max, put_endpoint_tags, put_leader_tag,
};
use super::primitive::{put_count, put_no_tags, put_nullable_text, put_text, put_uvarint};
use super::versions::Api;
use crate::error_code::ErrorCode;
use crate::ids::{Offset, PartitionIndex, TopicId};

/// A whole Produce response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProduceAnswer {
    /// The topics.
    pub topics: Vec<ProduceTopicAnswer>,
    /// How long the client was or should be held back, ms.
    pub throttle_time_ms: i32,
    /// Endpoints of the leaders named below; told from v10 on.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a Produce response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProduceTopicAnswer {
    /// Name, told up to v12.
    pub name: StrBytes,
    /// Id, told from v13 on.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: Vec<ProducePartitionAnswer>,
}

/// One partition of a Produce response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducePartitionAnswer {
    /// The partition.
    pub partition: PartitionIndex,
    /// Its error.
    pub error: ErrorCode,
    /// Offset of the first record appended, -1 on error.
    pub base_offset: Offset,
    /// Time stamped by the broker, ms; -1 unless the topic stamps append time.
    pub log_append_time_ms: i64,
    /// Log start, -1 if unknown; told from v5 on.
    pub log_start_offset: Offset,
    /// Records that caused the refusal; told from v8 on.
    pub record_errors: Vec<RecordError>,
    /// What was wrong, for people; told from v8 on.
    pub error_message: Option<StrBytes>,
    /// Who leads, if not this shard; told from v10 on.
    pub current_leader: Option<CurrentLeader>,
}

/// One refused record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// Its place in the batch, from 0.
    pub batch_index: i32,
    /// What was wrong with it.
    pub message: Option<StrBytes>,
}

impl ProducePartitionAnswer {
    /// The answer that carries nothing but an error, as Kafka fills it.
    #[must_use]
    pub fn failed(partition: PartitionIndex, error: ErrorCode) -> ProducePartitionAnswer {
        ProducePartitionAnswer {
            partition,
            error,
            base_offset: Offset(-1),
            log_append_time_ms: -1,
            log_start_offset: Offset(-1),
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

/// The whole response frame, the length prefix included.
///
/// # Errors
/// The response or a text in it is longer than its length field can say.
pub fn encode_produce(
    version: i16,
    correlation_id: i32,
    answer: &ProduceAnswer,
) -> Result<Bytes, EncodeFault> {
    let flexible = Api::Produce.is_flexible(version);
    let mut out = Vec::with_capacity(frame_bytes_max(answer));
    put_header(&mut out, correlation_id, flexible);
    put_count(&mut out, answer.topics.len(), flexible)?;
    for topic in &answer.topics {
        if version >= 13 {
            out.put_slice(&topic.id.0);
        } else {
            put_text(&mut out, &topic.name, flexible)?;
        }
        put_count(&mut out, topic.partitions.len(), flexible)?;
        for partition in &topic.partitions {
            put_partition(&mut out, version, partition)?;
        }
        put_no_tags(&mut out, flexible);
    }
    out.put_i32(answer.throttle_time_ms);
    if version >= 10 {
        put_endpoint_tags(&mut out, &answer.node_endpoints)?;
    } else {
        put_no_tags(&mut out, flexible);
    }
    patch_length(&mut out, 0)?;
    Ok(Bytes::from(out))
}

fn put_partition(
    out: &mut Vec<u8>,
    version: i16,
    partition: &ProducePartitionAnswer,
) -> Result<(), EncodeFault> {
    let flexible = Api::Produce.is_flexible(version);
    out.put_i32(partition.partition.0);
    out.put_i16(partition.error.code());
    out.put_i64(partition.base_offset.0);
    out.put_i64(partition.log_append_time_ms);
    if version >= 5 {
        out.put_i64(partition.log_start_offset.0);
    }
    if version >= 8 {
        put_count(out, partition.record_errors.len(), flexible)?;
        for record in &partition.record_errors {
            out.put_i32(record.batch_index);
            put_nullable_text(out, record.message.as_deref(), flexible)?;
            put_no_tags(out, flexible);
        }
        put_nullable_text(out, partition.error_message.as_deref(), flexible)?;
    }
    match partition.current_leader {
        Some(leader) if version >= 10 => {
            put_uvarint(out, 1);
            put_leader_tag(out, 0, leader);
        }
        _ => put_no_tags(out, flexible),
    }
    Ok(())
}

/// An upper bound of the frame, so that it is allocated once.
fn frame_bytes_max(answer: &ProduceAnswer) -> usize {
    let text_bytes = |text: &Option<StrBytes>| text.as_ref().map_or(0, |text| text.len());
    let mut bytes = RESPONSE_BYTES_MAX + endpoints_bytes_max(&answer.node_endpoints);
    for topic in &answer.topics {
        bytes += TOPIC_BYTES_MAX + topic.name.len();
        for partition in &topic.partitions {
            bytes += PARTITION_BYTES_MAX + text_bytes(&partition.error_message);
            for record in &partition.record_errors {
                bytes += RECORD_ERROR_BYTES_MAX + text_bytes(&record.message);
            }
        }
    }
    bytes
}

/// Length 4, header 5, count 5, throttle 4.
const RESPONSE_BYTES_MAX: usize = 18;
/// Length of the name 3, id 16, count 5, tags 1.
const TOPIC_BYTES_MAX: usize = 25;
/// Index 4, error 2, offset 8, time 8, log start 8, count 5, message 3, tags 1 + 11.
const PARTITION_BYTES_MAX: usize = 50;
/// Index 4, message 3, tags 1.
const RECORD_ERROR_BYTES_MAX: usize = 8;

#[cfg(test)]
mod tests;
