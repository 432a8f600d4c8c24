//! Requests of producers in transactions, of their coordinators and of groups' offsets, and the
//! records of `__transaction_state`: short ways as in `requests`, and the layouts that the codec
//! library lacks.

use bytes::BufMut;
use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeProducersRequest,
    DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, GroupId,
    ListTransactionsRequest, OffsetCommitRequest, OffsetFetchRequest, ProducerId, TransactionalId,
    TxnOffsetCommitRequest, WriteTxnMarkersRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::requests::Topic;

/// Key type of a group in FindCoordinator.
pub const GROUP: i8 = 0;
/// Key type of a transactional id in FindCoordinator.
pub const TRANSACTION: i8 = 1;

/// Who a producer is: its id and epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub id: i64,
    pub epoch: i16,
}

/// A text as the codec wants it.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A transactional id as the codec wants it.
pub fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// FindCoordinator v4 on, for one key.
pub fn find_coordinator(key_type: i8, key: &str) -> FindCoordinatorRequest {
    FindCoordinatorRequest::default().with_key_type(key_type).with_coordinator_keys(vec![text(key)])
}

/// AddPartitionsToTxn of any version: partitions of several topics.
pub fn add_partitions(
    version: i16,
    id: &str,
    producer: Identity,
    partitions: &[(&str, i32)],
) -> AddPartitionsToTxnRequest {
    let mut topics: Vec<AddPartitionsToTxnTopic> = Vec::new();
    for (name, partition) in partitions {
        let name = Topic::named(name).wire_name();
        match topics.iter_mut().find(|topic| topic.name == name) {
            Some(topic) => topic.partitions.push(*partition),
            None => topics.push(
                AddPartitionsToTxnTopic::default()
                    .with_name(name)
                    .with_partitions(vec![*partition]),
            ),
        }
    }
    let request = AddPartitionsToTxnRequest::default();
    if version <= 3 {
        return request
            .with_v3_and_below_transactional_id(transactional_id(id))
            .with_v3_and_below_producer_id(ProducerId(producer.id))
            .with_v3_and_below_producer_epoch(producer.epoch)
            .with_v3_and_below_topics(topics);
    }
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_topics(topics);
    request.with_transactions(vec![transaction])
}

/// AddOffsetsToTxn.
pub fn add_offsets(id: &str, producer: Identity, group: &str) -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_group_id(GroupId(text(group)))
}

/// EndTxn.
pub fn end_txn(id: &str, producer: Identity, commit: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(commit)
}

/// TxnOffsetCommit (up to v5) of offsets in one topic, outside any member's generation.
pub fn txn_offset_commit(
    id: &str,
    producer: Identity,
    group: &str,
    topic: &str,
    offsets: &[(i32, i64)],
) -> TxnOffsetCommitRequest {
    let partitions = offsets.iter().map(|&(partition, offset)| {
        TxnOffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("")))
    });
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(Topic::named(topic).wire_name())
        .with_partitions(partitions.collect());
    TxnOffsetCommitRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_group_id(GroupId(text(group)))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_topics(vec![topic])
}

/// OffsetCommit (v2-9) of offsets in one topic, outside any member's generation.
pub fn offset_commit(group: &str, topic: &str, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
    let partitions = offsets.iter().map(|&(partition, offset)| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("")))
    });
    let topic = OffsetCommitRequestTopic::default()
        .with_name(Topic::named(topic).wire_name())
        .with_partitions(partitions.collect());
    OffsetCommitRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic])
}

/// OffsetFetch (v8-9) of partitions of one topic in one group.
pub fn offset_fetch(
    group: &str,
    topic: &str,
    partitions: &[i32],
    require_stable: bool,
) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(Topic::named(topic).wire_name())
        .with_partition_indexes(partitions.to_vec());
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(Some(vec![topic]));
    OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(require_stable)
}

/// A marker for partitions of one topic.
#[derive(Clone, Copy, Debug)]
pub struct Marker<'a> {
    pub producer: Identity,
    pub commit: bool,
    pub coordinator_epoch: i32,
    pub topic: &'a str,
    pub partition: i32,
}

/// WriteTxnMarkers v1.
pub fn write_markers(markers: &[Marker<'_>]) -> WriteTxnMarkersRequest {
    let markers = markers.iter().map(|marker| {
        let topic = WritableTxnMarkerTopic::default()
            .with_name(Topic::named(marker.topic).wire_name())
            .with_partition_indexes(vec![marker.partition]);
        WritableTxnMarker::default()
            .with_producer_id(ProducerId(marker.producer.id))
            .with_producer_epoch(marker.producer.epoch)
            .with_transaction_result(marker.commit)
            .with_topics(vec![topic])
            .with_coordinator_epoch(marker.coordinator_epoch)
    });
    WriteTxnMarkersRequest::default().with_markers(markers.collect())
}

/// The body of WriteTxnMarkers v2, which adds the transaction version to each marker.
pub fn write_markers_2(markers: &[Marker<'_>], transaction_version: i8) -> Vec<u8> {
    let mut body = Vec::new();
    put_count(&mut body, markers.len());
    for marker in markers {
        body.put_i64(marker.producer.id);
        body.put_i16(marker.producer.epoch);
        body.put_u8(u8::from(marker.commit));
        put_count(&mut body, 1);
        put_compact(&mut body, marker.topic);
        put_count(&mut body, 1);
        body.put_i32(marker.partition);
        body.put_u8(0);
        body.put_i32(marker.coordinator_epoch);
        body.put_i8(transaction_version);
        body.put_u8(0);
    }
    body.put_u8(0);
    body
}

/// The body of InitProducerId v6, which no broker advertises.
pub fn init_producer_id_6(id: &str, two_phase: bool, keep_prepared: bool) -> Vec<u8> {
    let mut body = Vec::new();
    put_compact(&mut body, id);
    body.put_i32(60_000);
    body.put_i64(-1);
    body.put_i16(-1);
    body.put_u8(u8::from(two_phase));
    body.put_u8(u8::from(keep_prepared));
    body.put_u8(0);
    body
}

/// DescribeProducers of one partition.
pub fn describe_producers(topic: &str, partition: i32) -> DescribeProducersRequest {
    let topic = TopicRequest::default()
        .with_name(Topic::named(topic).wire_name())
        .with_partition_indexes(vec![partition]);
    DescribeProducersRequest::default().with_topics(vec![topic])
}

/// DescribeTransactions.
pub fn describe_transactions(ids: &[&str]) -> DescribeTransactionsRequest {
    DescribeTransactionsRequest::default()
        .with_transactional_ids(ids.iter().map(|id| transactional_id(id)).collect())
}

/// ListTransactions of all durations, by state names and producer ids (none given: all).
pub fn list_transactions(states: &[&str], producer_ids: &[i64]) -> ListTransactionsRequest {
    ListTransactionsRequest::default()
        .with_state_filters(states.iter().map(|state| text(state)).collect())
        .with_producer_id_filters(producer_ids.iter().map(|&id| ProducerId(id)).collect())
        .with_duration_filter(-1)
}

/// The key of a record of `__transaction_state`.
pub fn state_key(id: &str) -> Vec<u8> {
    let mut key = vec![0, 0];
    key.put_i16(i16::try_from(id.len()).expect("a short id"));
    key.put_slice(id.as_bytes());
    key
}

/// What a record of `__transaction_state` says, as far as tests write or read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub producer: Identity,
    pub timeout_ms: i32,
    /// 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort.
    pub status: i8,
    /// Partitions, one topic entry each.
    pub partitions: Vec<(String, i32)>,
    pub updated_ms: i64,
    pub started_ms: i64,
    /// 0 is not written.
    pub client_version: i16,
}

impl State {
    /// The record's value, version 1.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![0, 1];
        value.put_i64(self.producer.id);
        value.put_i16(self.producer.epoch);
        value.put_i32(self.timeout_ms);
        value.put_i8(self.status);
        if self.status == 0 {
            value.put_u8(0);
        } else {
            put_count(&mut value, self.partitions.len());
            for (topic, partition) in &self.partitions {
                put_compact(&mut value, topic);
                put_count(&mut value, 1);
                value.put_i32(*partition);
                value.put_u8(0);
            }
        }
        value.put_i64(self.updated_ms);
        value.put_i64(self.started_ms);
        // Tag 0: the previous producer id, the same one; tag 2: the client's transaction version.
        value.put_u8(1 + u8::from(self.client_version != 0));
        value.put_slice(&[0, 8]);
        value.put_i64(self.producer.id);
        if self.client_version != 0 {
            value.put_slice(&[2, 2]);
            value.put_i16(self.client_version);
        }
        value
    }
}

/// The partition of an internal topic with `partitions` partitions that keeps `key`.
pub fn partition_of(key: &str, partitions: i32) -> i32 {
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0) % partitions
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    assert!(count < 127, "one byte is enough for it");
    out.put_u8(count as u8 + 1);
}

fn put_compact(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.put_slice(text.as_bytes());
}
