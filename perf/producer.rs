//! One idempotent or transactional producer, by both protocols of transactions.
//!
//! Owns its identity, its sequences and its connections. With protocol 1 (TV1) partitions join by
//! AddPartitionsToTxn, offsets by AddOffsetsToTxn, and the epoch stays; with protocol 2 (TV2,
//! KIP-890) they join by Produce and TxnOffsetCommit, and every EndTxn raises the epoch. Must never
//! have a transaction in progress that it does not know.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId,
    InitProducerIdRequest, ProduceRequest, TopicName, TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;
use ringlog::batch::{BatchBuilder, CompressionTarget};
use ringlog::ids::{ProducerEpoch, ProducerId};
use ringlog::io::clock::wall_ms;

use super::client::{Client, Coordinator, Fault, accept, frame_of};

/// How a producer ends what it has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Not at all: it is idempotent only.
    Idempotent,
    /// TV1: what clients before KIP-890 speak.
    One,
    /// TV2: KIP-890.
    Two,
}

impl Protocol {
    /// The protocol of this number.
    pub fn of(number: u8) -> Result<Protocol, Fault> {
        match number {
            1 => Ok(Protocol::One),
            2 => Ok(Protocol::Two),
            _ => Err("the protocols of transactions are 1 and 2".into()),
        }
    }

    fn produce_version(self) -> i16 {
        if self == Protocol::One { 11 } else { 12 }
    }

    fn end_version(self) -> i16 {
        if self == Protocol::One { 4 } else { 5 }
    }

    fn offset_commit_version(self) -> i16 {
        if self == Protocol::One { 3 } else { 5 }
    }
}

/// A producer and its connections.
pub struct Producer {
    protocol: Protocol,
    id: Option<TransactionalId>,
    topic: TopicName,
    identity: (ProducerId, ProducerEpoch),
    /// Next sequence of each partition.
    sequences: Vec<i32>,
    coordinator: Client,
    /// The leader of partition 0.
    first: Client,
    /// The other partitions, by leader.
    rest: Vec<(Client, Vec<i32>)>,
    /// A group whose offsets it commits, and the group's coordinator.
    group: Option<(GroupId, Client)>,
    value: Vec<u8>,
    records: usize,
}

impl Producer {
    /// A producer that is ready to write `records` records at a time to each partition.
    pub fn new(
        bootstrap: &str,
        (topic, partitions): (&str, i32),
        (protocol, name): (Protocol, &str),
        (records, record_bytes): (usize, usize),
    ) -> Result<Producer, Fault> {
        let mut client = Client::connect(bootstrap)?;
        let leaders = client.leaders(topic, partitions)?;
        let is_transactional = protocol != Protocol::Idempotent;
        let id = is_transactional.then(|| TransactionalId(StrBytes::from_string(name.to_owned())));
        let mut coordinator = match is_transactional {
            true => client.coordinator(Coordinator::Transaction, name)?,
            false => client,
        };
        let ask = InitProducerIdRequest::default()
            .with_transactional_id(id.clone())
            .with_transaction_timeout_ms(60_000);
        let identity = coordinator.ask_loaded(4, &ask, |answer| answer.error_code)?;
        accept("InitProducerId", identity.error_code)?;
        let first = Client::connect(&leaders[0])?;
        let mut by_leader: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (partition, leader) in leaders.iter().enumerate().skip(1) {
            by_leader.entry(leader).or_default().push(partition as i32);
        }
        let mut rest = Vec::new();
        for (leader, partitions) in by_leader {
            rest.push((Client::connect(leader)?, partitions));
        }
        Ok(Producer {
            protocol,
            id,
            topic: TopicName(StrBytes::from_string(topic.to_owned())),
            identity: (ProducerId(identity.producer_id.0), ProducerEpoch(identity.producer_epoch)),
            sequences: vec![0; leaders.len()],
            coordinator,
            first,
            rest,
            group: None,
            value: vec![7; record_bytes],
            records,
        })
    }

    /// Gives it a group whose offsets it commits.
    pub fn read_for(&mut self, group: &str) -> Result<(), Fault> {
        let coordinator = self.coordinator.coordinator(Coordinator::Group, group)?;
        self.group = Some((GroupId(StrBytes::from_string(group.to_owned())), coordinator));
        Ok(())
    }

    /// The protocol that it follows.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Begins a transaction, as far as the coordinator has to know of it: by AddPartitionsToTxn for
    /// all partitions, or by the first Produce, to partition 0.
    pub fn begin(&mut self) -> Result<(), Fault> {
        let deadline = Instant::now() + CONCURRENT_TIMEOUT;
        loop {
            let code = match self.protocol {
                Protocol::Two => {
                    self.send_first()?;
                    produce_code(&mut self.first, self.protocol.produce_version())?
                }
                Protocol::One | Protocol::Idempotent => self.ask_to_join()?,
            };
            // Apache Kafka says so while it ends the transaction before; Ringlog waits itself.
            if code != CONCURRENT_TRANSACTIONS || Instant::now() > deadline {
                return accept("the first request of a transaction", code);
            }
            if self.protocol == Protocol::Two {
                self.sequences[0] -= self.records as i32;
            }
            std::thread::sleep(CONCURRENT_PAUSE);
        }
    }

    /// Writes once to every partition that [`Producer::begin`] has not written to.
    pub fn produce_rest(&mut self) -> Result<(), Fault> {
        if self.protocol != Protocol::Two {
            self.send_first()?;
            self.receive_first()?;
        }
        for index in 0..self.rest.len() {
            let partitions = std::mem::take(&mut self.rest[index].1);
            let frame = self.produce_frame(&partitions)?;
            let version = self.protocol.produce_version();
            let client = &mut self.rest[index].0;
            client.send(&frame)?;
            accept_produce(client, version)?;
            self.rest[index].1 = partitions;
        }
        Ok(())
    }

    /// Sends one batch to partition 0.
    pub fn send_first(&mut self) -> Result<(), Fault> {
        let frame = self.produce_frame(&[0])?;
        self.first.send(&frame)
    }

    /// Takes the answer to one batch of partition 0.
    pub fn receive_first(&mut self) -> Result<(), Fault> {
        accept_produce(&mut self.first, self.protocol.produce_version())
    }

    /// Puts an offset of its group into the transaction, if it has one.
    pub fn commit_offset(&mut self) -> Result<(), Fault> {
        let (Some(id), Some((group, at_group))) = (&self.id, &mut self.group) else {
            return Ok(());
        };
        let (producer_id, epoch) = self.identity;
        if self.protocol == Protocol::One {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(id.clone())
                .with_producer_id(producer_id.0.into())
                .with_producer_epoch(epoch.0)
                .with_group_id(group.clone());
            accept("AddOffsetsToTxn", self.coordinator.ask(3, &request)?.error_code)?;
        }
        let offset = TxnOffsetCommitRequestPartition::default().with_committed_offset(1);
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(self.topic.clone())
            .with_partitions(vec![offset]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id.clone())
            .with_group_id(group.clone())
            .with_producer_id(producer_id.0.into())
            .with_producer_epoch(epoch.0)
            .with_topics(vec![topic]);
        let version = self.protocol.offset_commit_version();
        let committed = at_group.ask_loaded(version, &request, |answer| {
            answer.topics.first().map_or(0, |topic| topic.partitions[0].error_code)
        })?;
        for partition in committed.topics.iter().flat_map(|topic| &topic.partitions) {
            accept("TxnOffsetCommit", partition.error_code)?;
        }
        Ok(())
    }

    /// Commits.
    pub fn commit(&mut self) -> Result<(), Fault> {
        let Some(id) = self.id.clone() else { return Ok(()) };
        let (producer_id, epoch) = self.identity;
        let request = EndTxnRequest::default()
            .with_transactional_id(id)
            .with_producer_id(producer_id.0.into())
            .with_producer_epoch(epoch.0)
            .with_committed(true);
        let ended = self.coordinator.ask(self.protocol.end_version(), &request)?;
        accept("EndTxn", ended.error_code)?;
        if self.protocol == Protocol::Two {
            // A new epoch begins its sequences anew.
            let epoch = ProducerEpoch(ended.producer_epoch);
            self.identity = (ProducerId(ended.producer_id.0), epoch);
            self.sequences.fill(0);
        }
        Ok(())
    }

    /// Has all partitions join the transaction, where the protocol does not leave that to Produce.
    pub fn join(&mut self) -> Result<(), Fault> {
        accept("AddPartitionsToTxn", self.ask_to_join()?)
    }

    /// The code of AddPartitionsToTxn for all partitions.
    fn ask_to_join(&mut self) -> Result<i16, Fault> {
        let Some(id) = self.id.clone().filter(|_| self.protocol == Protocol::One) else {
            return Ok(0);
        };
        let (producer_id, epoch) = self.identity;
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(self.topic.clone())
            .with_partitions((0..self.sequences.len() as i32).collect());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id)
            .with_v3_and_below_producer_id(producer_id.0.into())
            .with_v3_and_below_producer_epoch(epoch.0)
            .with_v3_and_below_topics(vec![topic]);
        let added = self.coordinator.ask(3, &request)?;
        let partitions = added.results_by_topic_v3_and_below.iter();
        let mut codes = partitions
            .flat_map(|topic| &topic.results_by_partition)
            .map(|partition| partition.partition_error_code);
        Ok(codes.find(|&code| code != 0).unwrap_or(0))
    }

    /// A request with the next batch of each of these partitions.
    fn produce_frame(&mut self, partitions: &[i32]) -> Result<Vec<u8>, Fault> {
        let mut data = Vec::with_capacity(partitions.len());
        for &partition in partitions {
            let batch = self.batch(partition);
            data.push(
                PartitionProduceData::default()
                    .with_index(partition)
                    .with_records(Some(Bytes::from(batch))),
            );
        }
        let topic =
            TopicProduceData::default().with_name(self.topic.clone()).with_partition_data(data);
        let request = ProduceRequest::default()
            .with_transactional_id(self.id.clone())
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        frame_of(self.protocol.produce_version(), &request)
    }

    fn batch(&mut self, partition: i32) -> Vec<u8> {
        let sequence = &mut self.sequences[partition as usize];
        let (id, epoch) = self.identity;
        let mut batch =
            BatchBuilder::new(CompressionTarget::Uncompressed).producer(id, epoch, *sequence);
        if self.protocol != Protocol::Idempotent {
            batch = batch.transactional();
        }
        for _ in 0..self.records {
            batch.push(wall_ms(), None, Some(&self.value), &[]);
        }
        *sequence += self.records as i32;
        batch.finish()
    }
}

fn accept_produce(client: &mut Client, version: i16) -> Result<(), Fault> {
    accept("Produce", produce_code(client, version)?)
}

/// The code of an answer to Produce.
fn produce_code(client: &mut Client, version: i16) -> Result<i16, Fault> {
    let answer = client.answer::<ProduceRequest>(version)?;
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    let mut codes = partitions.map(|partition| partition.error_code);
    Ok(codes.find(|&code| code != 0).unwrap_or(0))
}

/// The transaction before has not ended everywhere.
const CONCURRENT_TRANSACTIONS: i16 = 51;
const CONCURRENT_PAUSE: Duration = Duration::from_millis(1);
const CONCURRENT_TIMEOUT: Duration = Duration::from_secs(30);
