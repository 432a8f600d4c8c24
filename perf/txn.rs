//! Transactions as newer clients run them: partitions join by Produce, EndTxn raises the epoch.
//!
//! Owns one producer that commits over and over, and two times: EndTxn until its answer, and from
//! sending EndTxn until the next transaction may start. The latter is the time until the first
//! Produce of the next transaction is answered, less what that takes when nothing is ending.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use ringlog::batch::{BatchBuilder, CompressionTarget};
use ringlog::ids::{ProducerEpoch, ProducerId};

use super::client::{Client, Fault};

/// Times of the commits of one run, nanoseconds.
pub struct Commits {
    pub end_txn: Histogram<u64>,
    /// First Produce of a transaction, with nothing in its way.
    pub first: Histogram<u64>,
    /// From sending EndTxn until the first Produce of the next transaction is answered.
    pub end_and_first: Histogram<u64>,
}

impl Commits {
    /// Median time from sending EndTxn until the next transaction may start, in microseconds.
    pub fn until_next_us(&self) -> f64 {
        let us = |times: &Histogram<u64>| times.value_at_quantile(0.5) as f64 / 1e3;
        (us(&self.end_and_first) - us(&self.first)).max(us(&self.end_txn))
    }
}

/// Commits over `partitions` partitions of `topic` for this long.
pub fn commits(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    time: Duration,
) -> Result<Commits, Fault> {
    let mut producer = Producer::new(bootstrap, topic, partitions)?;
    let mut found = Commits {
        end_txn: Histogram::new(3)?,
        first: Histogram::new(3)?,
        end_and_first: Histogram::new(3)?,
    };
    let begun = Instant::now();
    let mut round = 0;
    producer.produce_first()?;
    while begun.elapsed() < time || round < ROUNDS_MIN {
        producer.produce_rest()?;
        let ending = Instant::now();
        producer.commit()?;
        let ended = ending.elapsed();
        // Every other transaction waits until the one before is over on every shard.
        let apart = round % 2 == 0;
        if apart {
            std::thread::sleep(APART);
        }
        let first = Instant::now();
        producer.produce_first()?;
        if round >= ROUNDS_WARM_UP {
            found.end_txn.record(ended.as_nanos() as u64)?;
            if apart {
                found.first.record(first.elapsed().as_nanos() as u64)?;
            } else {
                found.end_and_first.record(ending.elapsed().as_nanos() as u64)?;
            }
        }
        round += 1;
    }
    producer.produce_rest()?;
    producer.commit()?;
    Ok(found)
}

struct Producer {
    id: String,
    topic: String,
    producer_id: i64,
    epoch: i16,
    sequences: Vec<i32>,
    coordinator: Client,
    first: Client,
    /// The other partitions, by leader.
    rest: Vec<(Client, Vec<i32>)>,
}

impl Producer {
    fn new(bootstrap: &str, topic: &str, partitions: i32) -> Result<Producer, Fault> {
        let mut client = Client::connect(bootstrap)?;
        let leaders = client.leaders(topic, partitions)?;
        let id = format!("perf-{topic}");
        let ask = FindCoordinatorRequest::default()
            .with_key(StrBytes::from_string(id.clone()))
            .with_key_type(TRANSACTION);
        let found = client.ask(3, &ask)?;
        accept("FindCoordinator", found.error_code)?;
        let mut coordinator = Client::connect(&format!("{}:{}", found.host.as_str(), found.port))?;
        let ask = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(id.clone()))))
            .with_transaction_timeout_ms(60_000);
        let deadline = Instant::now() + Duration::from_secs(10);
        let identity = loop {
            let identity = coordinator.ask(5, &ask)?;
            // The topic of the coordinator is new and being loaded.
            if !matches!(identity.error_code, 14..=16) || Instant::now() > deadline {
                break identity;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
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
            id,
            topic: topic.to_owned(),
            producer_id: identity.producer_id.0,
            epoch: identity.producer_epoch,
            sequences: vec![0; leaders.len()],
            coordinator,
            first,
            rest,
        })
    }

    fn request(&self, partitions: &[i32]) -> ProduceRequest {
        let data = partitions.iter().map(|&partition| {
            let sequence = self.sequences[partition as usize];
            let mut batch = BatchBuilder::new(CompressionTarget::Uncompressed)
                .producer(ProducerId(self.producer_id), ProducerEpoch(self.epoch), sequence)
                .transactional();
            batch.push(1_700_000_000_000, None, Some(&[7; RECORD_BYTES]), &[]);
            PartitionProduceData::default()
                .with_index(partition)
                .with_records(Some(Bytes::from(batch.finish())))
        });
        let topic = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(self.topic.clone())))
            .with_partition_data(data.collect());
        ProduceRequest::default()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(self.id.clone()))))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic])
    }

    fn produce_first(&mut self) -> Result<(), Fault> {
        let request = self.request(&[0]);
        self.sequences[0] += 1;
        produce(&mut self.first, &request)
    }

    fn produce_rest(&mut self) -> Result<(), Fault> {
        for index in 0..self.rest.len() {
            let partitions = self.rest[index].1.clone();
            let request = self.request(&partitions);
            for partition in partitions {
                self.sequences[partition as usize] += 1;
            }
            produce(&mut self.rest[index].0, &request)?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Fault> {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(StrBytes::from_string(self.id.clone())))
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_committed(true);
        let ended = self.coordinator.ask(5, &request)?;
        accept("EndTxn", ended.error_code)?;
        // A new epoch begins its sequences anew.
        (self.producer_id, self.epoch) = (ended.producer_id.0, ended.producer_epoch);
        self.sequences.fill(0);
        Ok(())
    }
}

fn produce(client: &mut Client, request: &ProduceRequest) -> Result<(), Fault> {
    for topic in client.ask(12, request)?.responses {
        for partition in topic.partition_responses {
            accept("Produce", partition.error_code)?;
        }
    }
    Ok(())
}

fn accept(api: &str, code: i16) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(format!("{api} was answered with error {code}").into()) }
}

const TRANSACTION: i8 = 1;
const RECORD_BYTES: usize = 1024;
/// Long enough for markers and the last record of a transaction.
const APART: Duration = Duration::from_millis(20);
const ROUNDS_WARM_UP: usize = 4;
const ROUNDS_MIN: usize = 12;
