//! One request, one answer: what the cases send, each to the node that has to answer it.

#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::time::SystemTime;

use bytes::Bytes;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, WriteTxnMarkersRequest, WriteTxnMarkersResponse};

use crate::stage::{Stage, await_some, unique};
use crate::support::batch::{Batch, CONTROL, ReadBatch, TRANSACTIONAL, read_batches};
use crate::support::requests::{self, Topic};
use crate::support::transactions::{
    self as ask, GROUP, Identity, Marker, TRANSACTION, transactional_id,
};

/// Who a producer is.
pub type Who = Identity;

/// Read everything up to the high watermark.
pub const UNCOMMITTED: i8 = 0;
/// Read up to the last stable offset.
pub const COMMITTED: i8 = 1;

/// Answer of InitProducerId or EndTxn: code, producer id, epoch.
pub type Named = (i16, i64, i16);

/// What carries an error code, so that it can be asked for again.
pub trait Coded {
    fn codes(&self) -> Vec<i16>;
}

impl Coded for i16 {
    fn codes(&self) -> Vec<i16> {
        vec![*self]
    }
}

impl Coded for (i16, i64) {
    fn codes(&self) -> Vec<i16> {
        vec![self.0]
    }
}

impl Coded for Named {
    fn codes(&self) -> Vec<i16> {
        vec![self.0]
    }
}

impl Coded for Vec<i16> {
    fn codes(&self) -> Vec<i16> {
        self.clone()
    }
}

/// The answer once no transition is pending and no coordinator loads. Where requests are held
/// instead, the first answer must be it: neither 51 nor its translations may be seen.
pub fn settled<T: Coded>(stage: &Stage, mut request: impl FnMut() -> T) -> T {
    await_some("an answer that is not 'try again'", || {
        let answer = request();
        let again = answer.codes().into_iter().any(|code| match code {
            14 => true,
            51 | 19 => !stage.holds(),
            15 | 16 => stage.is_kafka(),
            _ => false,
        });
        (!again).then_some(answer)
    })
}

/// InitProducerId for an id, at its coordinator.
pub fn init(
    stage: &Stage,
    version: i16,
    id: &str,
    timeout_ms: i32,
    expected: Option<Identity>,
) -> Named {
    let mut request = requests::init_producer_id(Some(id));
    request.transaction_timeout_ms = timeout_ms;
    if let Some(expected) = expected {
        (request.producer_id.0, request.producer_epoch) = (expected.id, expected.epoch);
    }
    let response = stage.call(stage.coordinator(TRANSACTION, id), version, &request);
    (response.error_code, response.producer_id.0, response.producer_epoch)
}

/// A producer with a transactional id.
#[derive(Clone)]
pub struct Producer<'a> {
    pub stage: &'a Stage,
    pub id: String,
    pub who: Identity,
    pub timeout_ms: i32,
}

impl<'a> Producer<'a> {
    /// A new transactional id, initialised.
    pub fn new(stage: &'a Stage, stem: &str) -> Producer<'a> {
        Producer::with_timeout(stage, stem, 60_000)
    }

    /// The same with a transaction timeout of its own.
    pub fn with_timeout(stage: &'a Stage, stem: &str, timeout_ms: i32) -> Producer<'a> {
        let who = Identity { id: -1, epoch: -1 };
        let mut producer = Producer { stage, id: unique(stem), who, timeout_ms };
        producer.begin_again();
        assert_eq!(producer.who.epoch, 0, "a new id begins with epoch 0");
        producer
    }

    /// InitProducerId without an expected identity, as a new process would send it.
    pub fn begin_again(&mut self) {
        let (code, id, epoch) = settled(self.stage, || self.init(5, None));
        assert_eq!(code, 0);
        self.who = Identity { id, epoch };
    }

    /// Bumps its epoch up to the given one.
    pub fn at_epoch(mut self, epoch: i16) -> Producer<'a> {
        while self.who.epoch < epoch {
            self.begin_again();
        }
        self
    }

    /// The same producer in another epoch.
    pub fn in_epoch(&self, epoch: i16) -> Producer<'a> {
        Producer { who: Identity { epoch, ..self.who }, ..self.clone() }
    }

    /// The same transactional id with another producer id, in epoch 0.
    pub fn with_id(&self, id: i64) -> Producer<'a> {
        Producer { who: Identity { id, epoch: 0 }, ..self.clone() }
    }

    /// InitProducerId as it comes.
    pub fn init(&self, version: i16, expected: Option<Identity>) -> Named {
        init(self.stage, version, &self.id, self.timeout_ms, expected)
    }

    /// AddPartitionsToTxn (up to v3): codes in the order of the request.
    pub fn add(&self, version: i16, partitions: &[(&Topic, i32)]) -> Vec<i16> {
        let partitions: Vec<(&str, i32)> =
            partitions.iter().map(|(topic, partition)| (&*topic.name, *partition)).collect();
        let request = ask::add_partitions(version, &self.id, self.who, &partitions);
        let response = self.stage.call(self.coordinator(), version, &request);
        let results = response.results_by_topic_v3_and_below;
        let find = |name: &str, partition: i32| {
            let topic = results.iter().find(|topic| *topic.name.0 == *name)?;
            let mut all = topic.results_by_partition.iter();
            all.find(|result| result.partition_index == partition)
        };
        let code = |(name, partition): &(&str, i32)| {
            find(name, *partition).expect("a result for each").partition_error_code
        };
        partitions.iter().map(code).collect()
    }

    /// Adds a partition, which must succeed.
    pub fn added(&self, topic: &Topic, partition: i32) {
        assert_eq!(settled(self.stage, || self.add(3, &[(topic, partition)])), [0]);
    }

    /// AddOffsetsToTxn.
    pub fn add_offsets(&self, version: i16, group: &str) -> i16 {
        let request = ask::add_offsets(&self.id, self.who, group);
        self.stage.call(self.coordinator(), version, &request).error_code
    }

    /// EndTxn as it comes; below v5 the answer names nobody.
    pub fn end(&self, version: i16, commit: bool) -> Named {
        let request = ask::end_txn(&self.id, self.who, commit);
        let response = self.stage.call(self.coordinator(), version, &request);
        (response.error_code, response.producer_id.0, response.producer_epoch)
    }

    /// EndTxn that must succeed. In v5 the next epoch is taken over. Returns when all markers are
    /// written.
    pub fn ended(&mut self, version: i16, commit: bool) {
        let (code, id, epoch) = settled(self.stage, || self.end(version, commit));
        assert_eq!(code, 0, "EndTxn of {:?}", self.who);
        if version >= 5 {
            self.who = Identity { id, epoch };
        }
        self.await_state(if commit { "CompleteCommit" } else { "CompleteAbort" });
    }

    /// A transactional batch of `count` records from this base sequence on.
    pub fn batch(&self, sequence: i32, count: i32) -> Batch {
        let values = (0..count).map(|place| format!("{}:{}", self.id, sequence + place));
        let batch = Batch::of_values(values)
            .with_producer(self.who.id, self.who.epoch, sequence)
            .transactional();
        Batch { base_timestamp: now_ms(), ..batch }
    }

    /// Produces a transactional batch, as it comes: code and base offset.
    pub fn send(
        &self,
        version: i16,
        topic: &Topic,
        partition: i32,
        sequence: i32,
        count: i32,
    ) -> (i16, i64) {
        let set = self.batch(sequence, count).encode();
        let request = self.produce_request(version, topic, partition, set);
        let answer = produce_request(self.stage, version, topic, partition, &request);
        (answer.error_code, answer.base_offset)
    }

    /// Produce with its transactional id.
    pub fn produce_request(
        &self,
        version: i16,
        topic: &Topic,
        partition: i32,
        set: Bytes,
    ) -> ProduceRequest {
        requests::produce(version, topic, partition, -1, set)
            .with_transactional_id(Some(transactional_id(&self.id)))
    }

    /// Produces by the newest version, which adds the partition to the transaction; it must be
    /// taken. Returns the base offset.
    pub fn sent(&self, topic: &Topic, partition: i32, sequence: i32, count: i32) -> i64 {
        let answer = settled(self.stage, || self.send(13, topic, partition, sequence, count));
        assert_eq!(answer.0, 0, "Produce of {:?}", self.who);
        answer.1
    }

    /// TxnOffsetCommit of one partition outside any generation, as it comes.
    pub fn commit_offset(
        &self,
        version: i16,
        group: &str,
        topic: &Topic,
        partition: i32,
        offset: i64,
    ) -> i16 {
        let offsets = [(partition, offset)];
        let request = ask::txn_offset_commit(&self.id, self.who, group, &topic.name, &offsets);
        let node = self.stage.coordinator(GROUP, group);
        let response = self.stage.call(node, version, &request);
        response.topics[0].partitions[0].error_code
    }

    /// DescribeTransactions of its id.
    pub fn describe(&self) -> TransactionState {
        describe(self.stage, &self.id)
    }

    /// Waits until its transaction is in this state.
    pub fn await_state(&self, state: &str) {
        await_some(&format!("{} in state {state}", self.id), || {
            let described = self.describe();
            (*described.transaction_state == *state).then_some(())
        });
    }

    fn coordinator(&self) -> i32 {
        self.stage.coordinator(TRANSACTION, &self.id)
    }
}

/// DescribeTransactions of one id, once its coordinator has loaded.
pub fn describe(stage: &Stage, id: &str) -> TransactionState {
    await_some("a loaded coordinator", || {
        let node = stage.coordinator(TRANSACTION, id);
        let mut response = stage.call(node, 0, &ask::describe_transactions(&[id]));
        assert_eq!(response.transaction_states.len(), 1);
        let state = response.transaction_states.remove(0);
        let loads =
            state.error_code == 14 || (stage.is_kafka() && [15, 16].contains(&state.error_code));
        (!loads).then_some(state)
    })
}

/// Produce of one partition at its leader.
pub fn produce_request(
    stage: &Stage,
    version: i16,
    topic: &Topic,
    partition: i32,
    request: &ProduceRequest,
) -> PartitionProduceResponse {
    let response = stage.call(stage.leader(&topic.name, partition), version, request);
    let mut partitions = response.responses[0].partition_responses.clone();
    assert_eq!((response.responses.len(), partitions.len()), (1, 1));
    let answer = partitions.remove(0);
    assert_eq!(answer.index, partition);
    answer
}

/// Produce of a batch outside any transaction, with acks=all: the whole answer.
pub fn produce(
    stage: &Stage,
    version: i16,
    topic: &Topic,
    partition: i32,
    batch: &Batch,
) -> PartitionProduceResponse {
    let request = requests::produce(version, topic, partition, -1, batch.encode());
    produce_request(stage, version, topic, partition, &request)
}

/// The same: code and base offset.
pub fn outcome(stage: &Stage, topic: &Topic, partition: i32, batch: &Batch) -> (i16, i64) {
    let answer = produce(stage, 13, topic, partition, batch);
    (answer.error_code, answer.base_offset)
}

/// A batch of an idempotent producer that has no transactional id. Its time is now: Kafka forgets
/// producers by the times of their records.
pub fn idempotent(id: i64, epoch: i16, sequence: i32, count: i32) -> Batch {
    let values = (0..count).map(|place| format!("{sequence}+{place}"));
    let batch = Batch::of_values(values).with_producer(id, epoch, sequence);
    Batch { base_timestamp: now_ms(), ..batch }
}

/// A producer id of the broker, outside any transaction.
pub fn fresh_id(stage: &Stage) -> i64 {
    let (code, id) = settled(stage, || {
        let response = stage.call(stage.any_node(), 5, &requests::init_producer_id(None));
        (response.error_code, response.producer_id.0)
    });
    assert_eq!(code, 0);
    id
}

/// Fetch of one partition: what one answer holds.
pub fn fetch(
    stage: &Stage,
    topic: &Topic,
    partition: i32,
    offset: i64,
    isolation: i8,
) -> PartitionData {
    let request = requests::fetch(17, topic, partition, offset).with_isolation_level(isolation);
    let response = stage.call(stage.leader(&topic.name, partition), 17, &request);
    assert_eq!(response.error_code, 0);
    let data = response.responses[0].partitions[0].clone();
    assert_eq!((data.partition_index, data.error_code), (partition, 0));
    data
}

/// The whole batches of a record set: Kafka cuts the last one where the limit is.
pub fn whole_batches(data: &PartitionData) -> Vec<ReadBatch> {
    let set = data.records.clone().unwrap_or_default();
    let mut whole = 0;
    while set.len() - whole >= 61 {
        let length = i32::from_be_bytes(set[whole + 8..whole + 12].try_into().expect("four bytes"));
        let end = whole + 12 + usize::try_from(length).expect("a positive length");
        if end > set.len() {
            break;
        }
        whole = end;
    }
    read_batches(set.slice(..whole))
}

/// All batches of a partition from its start on.
pub fn read_all(stage: &Stage, topic: &Topic, partition: i32, isolation: i8) -> Vec<ReadBatch> {
    let mut batches: Vec<ReadBatch> = Vec::new();
    let mut next = 0;
    loop {
        let data = fetch(stage, topic, partition, next, isolation);
        let found = whole_batches(&data);
        let Some(last) = found.last() else { return batches };
        next = last.base_offset + i64::from(last.last_offset_delta) + 1;
        batches.extend(found);
    }
}

/// What a reader of committed data is given at last: offsets of records, with those of aborted
/// transactions and markers taken out as every client does it.
pub fn readable(stage: &Stage, topic: &Topic, partition: i32) -> Vec<i64> {
    readable_from(stage, topic, partition, 0)
}

/// The same from an offset on.
pub fn readable_from(stage: &Stage, topic: &Topic, partition: i32, start: i64) -> Vec<i64> {
    let mut offsets = Vec::new();
    let mut next = start;
    loop {
        let data = fetch(stage, topic, partition, next, COMMITTED);
        let mut aborted: Vec<(i64, i64)> = data
            .aborted_transactions
            .iter()
            .flatten()
            .map(|entry| (entry.first_offset, entry.producer_id.0))
            .collect();
        aborted.sort_unstable();
        let mut open: Vec<i64> = Vec::new();
        let found = whole_batches(&data);
        let Some(last) = found.last() else { return offsets };
        next = last.base_offset + i64::from(last.last_offset_delta) + 1;
        for batch in &found {
            let end = batch.base_offset + i64::from(batch.last_offset_delta);
            while aborted.first().is_some_and(|(first, _)| *first <= end) {
                open.push(aborted.remove(0).1);
            }
            if batch.attributes & CONTROL != 0 {
                if marker_of(batch).commit.is_some_and(|commit| !commit) {
                    open.retain(|id| *id != batch.producer_id);
                }
            } else if batch.attributes & TRANSACTIONAL == 0 || !open.contains(&batch.producer_id) {
                offsets.extend(batch.records.iter().map(|record| record.offset));
            }
        }
    }
}

/// A marker as it stands in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub offset: i64,
    pub producer: Identity,
    /// `None` for a control record of another kind.
    pub commit: Option<bool>,
    pub coordinator_epoch: i32,
}

/// The marker that a control batch holds.
pub fn marker_of(batch: &ReadBatch) -> Found {
    let record = &batch.records[0];
    let (key, value) =
        (record.key.as_ref().expect("a key"), record.value.as_ref().expect("a value"));
    let commit = match key[2..4] {
        [0, 0] => Some(false),
        [0, 1] => Some(true),
        _ => None,
    };
    let epoch = value[2..6].try_into().expect("four bytes");
    Found {
        offset: record.offset,
        producer: Identity { id: batch.producer_id, epoch: batch.producer_epoch },
        commit,
        coordinator_epoch: i32::from_be_bytes(epoch),
    }
}

/// All markers of a partition.
pub fn markers(stage: &Stage, topic: &Topic, partition: i32) -> Vec<Found> {
    let batches = read_all(stage, topic, partition, UNCOMMITTED);
    batches.iter().filter(|batch| batch.attributes & CONTROL != 0).map(marker_of).collect()
}

/// Offset, epoch and outcome of every marker of a partition.
pub fn ends(stage: &Stage, topic: &Topic, partition: i32) -> Vec<(i64, i16, bool)> {
    let all = markers(stage, topic, partition).into_iter();
    all.map(|found| (found.offset, found.producer.epoch, found.commit.expect("an end"))).collect()
}

/// ListOffsets of one partition: offset and timestamp.
pub fn offset_at(
    stage: &Stage,
    topic: &Topic,
    partition: i32,
    timestamp: i64,
    isolation: i8,
) -> (i64, i64) {
    let request =
        requests::list_offsets(&topic.name, partition, timestamp).with_isolation_level(isolation);
    let response = stage.call(stage.leader(&topic.name, partition), 7, &request);
    let answer = &response.topics[0].partitions[0];
    assert_eq!(answer.error_code, 0);
    (answer.offset, answer.timestamp)
}

/// The last stable offset and the high watermark of a partition.
pub fn bounds(stage: &Stage, topic: &Topic, partition: i32) -> (i64, i64) {
    let latest = |isolation| offset_at(stage, topic, partition, -1, isolation).0;
    (latest(COMMITTED), latest(UNCOMMITTED))
}

/// DescribeProducers: what a partition knows of one producer.
pub fn producer_state(
    stage: &Stage,
    topic: &Topic,
    partition: i32,
    id: i64,
) -> Option<ProducerState> {
    let request = ask::describe_producers(&topic.name, partition);
    let response = stage.call(stage.leader(&topic.name, partition), 0, &request);
    let answer = &response.topics[0].partitions[0];
    assert_eq!(answer.error_code, 0);
    answer.active_producers.iter().find(|state| state.producer_id.0 == id).cloned()
}

/// WriteTxnMarkers of one marker at the partition's leader; v2 names the transaction version.
pub fn write_marker(stage: &Stage, marker: Marker<'_>, transaction_version: Option<i8>) -> i16 {
    let node = stage.leader(marker.topic, marker.partition);
    let response: WriteTxnMarkersResponse = match transaction_version {
        None => stage.call(node, 1, &ask::write_markers(&[marker])),
        Some(transaction_version) => {
            let body = ask::write_markers_2(&[marker], transaction_version);
            stage.call_raw::<WriteTxnMarkersRequest>(node, 2, &body)
        }
    };
    assert_eq!(response.markers.len(), 1);
    assert_eq!(response.markers[0].producer_id.0, marker.producer.id);
    let topic = &response.markers[0].topics[0];
    assert_eq!((&*topic.name.0, topic.partitions.len()), (marker.topic, 1));
    assert_eq!(topic.partitions[0].partition_index, marker.partition);
    topic.partitions[0].error_code
}

/// OffsetFetch v8 of one partition: code and offset.
pub fn committed(
    stage: &Stage,
    group: &str,
    topic: &Topic,
    partition: i32,
    require_stable: bool,
) -> (i16, i64) {
    await_some("a loaded group coordinator", || {
        let node = stage.coordinator(GROUP, group);
        let request = ask::offset_fetch(group, &topic.name, &[partition], require_stable);
        let response = stage.call(node, 8, &request);
        let group = &response.groups[0];
        let loads =
            group.error_code == 14 || (stage.is_kafka() && [15, 16].contains(&group.error_code));
        if loads {
            return None;
        }
        assert_eq!(group.error_code, 0);
        let answer = &group.topics[0].partitions[0];
        Some((answer.error_code, answer.committed_offset))
    })
}

/// OffsetCommit v8 of one partition, outside any generation.
pub fn commit_plainly(
    stage: &Stage,
    group: &str,
    topic: &Topic,
    partition: i32,
    offset: i64,
) -> i16 {
    settled(stage, || {
        let request = ask::offset_commit(group, &topic.name, &[(partition, offset)]);
        let response = stage.call(stage.coordinator(GROUP, group), 8, &request);
        response.topics[0].partitions[0].error_code
    })
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("before the year 292 million")
}

/// A topic that is there, with its id.
pub fn topic_named(stage: &Stage, name: &str) -> Topic {
    let response = stage.call(stage.any_node(), 12, &requests::metadata(&[name]));
    assert_eq!(response.topics[0].error_code, 0, "{name}");
    Topic { name: name.to_owned(), id: response.topics[0].topic_id }
}
