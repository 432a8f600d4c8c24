//! Produce with transactional batches: the coordinator is asked before anything is appended.
//!
//! Owns the order: validate all; begin the verification of each partition where the transaction is
//! not open, so that its end in between is noticed; ask the coordinator once for all of them;
//! append in the order of the request, with the guards. Must never append a batch that the
//! coordinator has not admitted. Source: KIP-890, Kafka's `ReplicaManager.handleProduceAppend`.

use std::sync::Arc;

use kafka_protocol::messages::TransactionalId;
use kafka_protocol::messages::produce_request::TopicProduceData;

use super::{ProducePartitionAnswer, ProduceTopicAnswer, Ready, Work};
use crate::batch::header::peek_transactional;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, TopicId};
use crate::limits::{CONCURRENT_TRANSACTIONS_RETRY_MS, CONCURRENT_TRANSACTIONS_RETRY_MS_MAX};
use crate::log::ProducerFacts;
use crate::log::verification::{Verification, VerificationGuard};
use crate::metrics::Limit;
use crate::shard::by_owner::ByOwner;
use crate::shard::message::{Operation, Patience, Reply, VerifyPart};
use crate::shard::transactions::{self, TxnQuestion};

/// Whether any batch for the topic is transactional, before it is known whether it is valid.
pub fn is_transactional(topic: &TopicProduceData) -> bool {
    let mut records = topic.partition_data.iter().filter_map(|data| data.records.as_ref());
    records.any(|records| peek_transactional(records))
}

/// A partition on its way through the request.
struct Staged {
    /// Place of its topic in the answer.
    topic: usize,
    index: PartitionIndex,
    state: Result<Ready, ProducePartitionAnswer>,
    /// The producer of its batch, if that is transactional.
    producer: Option<ProducerFacts>,
    /// Set where the transaction is not open: what the append has to show.
    guard: Option<VerificationGuard>,
}

impl Staged {
    fn refuse(&mut self, code: ErrorCode) {
        self.state = Err(ProducePartitionAnswer::failed(self.index, code));
        self.guard = None;
    }
}

impl Work {
    /// Answers every partition with the same code.
    pub fn refuse_all(&mut self, topics: &[TopicProduceData], code: ErrorCode) {
        self.topics.clear();
        for topic in topics {
            let failed = |index| ProducePartitionAnswer::failed(PartitionIndex(index), code);
            let partitions = topic.partition_data.iter().map(|data| failed(data.index));
            self.topics.push(ProduceTopicAnswer {
                name: topic.name.0.clone(),
                id: TopicId::from(topic.topic_id),
                partitions: partitions.collect(),
            });
        }
    }

    /// Validates, verifies and appends.
    pub async fn transactional(&mut self, id: &TransactionalId, topics: Vec<TopicProduceData>) {
        let mut staged = self.staged(topics).await;
        if has_several_producers(&staged) {
            for partition in &mut staged {
                partition.refuse(ErrorCode::InvalidProducerIdMapping);
            }
        }
        self.admit(id, &mut staged).await;
        for partition in staged {
            let Staged { topic, index, guard, .. } = partition;
            let answer = match partition.state {
                Ok(ready) => self.append(topic, index, ready, guard).await,
                Err(answer) => answer,
            };
            self.topics[topic].partitions.push(answer);
        }
    }

    async fn staged(&mut self, topics: Vec<TopicProduceData>) -> Vec<Staged> {
        let mut staged = Vec::new();
        for data in topics {
            let (place, topic) = self.begin_topic(&data);
            for partition in data.partition_data {
                let index = PartitionIndex(partition.index);
                let state = self.checked(topic.as_ref(), partition).await;
                let header = state.as_ref().ok().map(|ready| &ready.batch.header);
                let header = header.filter(|header| header.is_transactional());
                let producer = header.and_then(ProducerFacts::of);
                staged.push(Staged { topic: place, index, state, producer, guard: None });
            }
        }
        staged
    }

    /// Verifies what has to be, and answers what is refused.
    async fn admit(&self, id: &TransactionalId, staged: &mut [Staged]) {
        let config = &self.shard.context.config;
        let adds = self.version >= ADDS_SINCE;
        let asks = adds || config.transaction_partition_verification_enable;
        // Where the coordinator holds such questions it has tried long enough.
        let retries = adds && config.txn_pending_hold_ms == 0;
        let retry_ms = CONCURRENT_TRANSACTIONS_RETRY_MS_MAX.min(self.timeout_ms);
        let deadline = self.shard.runtime.now().plus_ms(retry_ms);
        loop {
            self.begin_verifications(staged).await;
            let Some(question) = self.question(id, staged).filter(|_| asks) else { return };
            let codes = transactions::add_for_append(&self.shard, question).await;
            let now = self.shard.runtime.now();
            if codes.contains(&ErrorCode::ConcurrentTransactions) && retries && now < deadline {
                let next = now.plus_ms(CONCURRENT_TRANSACTIONS_RETRY_MS);
                self.shard.runtime.sleep_until(next).await;
                continue;
            }
            let asked = staged.iter_mut().filter(|partition| partition.guard.is_some());
            for (partition, code) in asked.zip(codes) {
                if !code.is_none() {
                    self.count_refused_by_coordinator(partition, code);
                    partition.refuse(told(code, self.version));
                }
            }
            return;
        }
    }

    fn count_refused_by_coordinator(&self, partition: &Staged, code: ErrorCode) {
        if code == ErrorCode::ConcurrentTransactions {
            self.shard.metrics.limit_reached(Limit::ConcurrentTransactionsRetry);
        }
        let Ok(ready) = &partition.state else { return };
        let Some(topic) = self.image.topic_by_id(ready.id.topic) else { return };
        let of_topic = self.shard.metrics.topic(topic.id, &topic.name);
        of_topic.add(|of| &of.produce_requests, 1);
        of_topic.add(|of| &of.failed_produce_requests, 1);
        if matches!(code, ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch) {
            of_topic.add(|of| &of.producer_fenced, 1);
        }
    }

    /// Makes the guards, here or at the owners, in the order of the request.
    async fn begin_verifications(&self, staged: &mut [Staged]) {
        let mut asked: ByOwner<usize, VerifyPart> = ByOwner::default();
        for (at, partition) in staged.iter().enumerate() {
            let (Ok(ready), Some(producer)) = (&partition.state, partition.producer) else {
                continue;
            };
            let strict = self.version >= ADDS_SINCE;
            let part = VerifyPart { partition: ready.id, producer, strict };
            asked.add(ready.owner, at, part);
        }
        for (owner, places, parts) in asked {
            let reply = self.shard.ask(owner, Operation::Verify(parts)).await;
            let Reply::Verified(outcomes) = reply else { continue };
            for (at, outcome) in places.into_iter().zip(outcomes) {
                match outcome {
                    Ok(Verification::NotNeeded) => staged[at].guard = None,
                    Ok(Verification::Guard(guard)) => staged[at].guard = Some(guard),
                    Err(code) => staged[at].refuse(code),
                }
            }
        }
    }

    /// How long the coordinator may hold the question.
    fn patience(&self) -> Patience {
        Patience::Milliseconds(self.timeout_ms)
    }

    /// The question to the coordinator about all that need its word.
    fn question(&self, id: &TransactionalId, staged: &[Staged]) -> Option<TxnQuestion> {
        let asked = || staged.iter().filter(|partition| partition.guard.is_some());
        let producer = asked().next()?.producer?;
        let partitions = asked().filter_map(|partition| {
            let ready = partition.state.as_ref().ok()?;
            let topic = self.image.topic_by_id(ready.id.topic)?;
            Some((Arc::clone(&topic.name), ready.id.partition.0))
        });
        Some(TxnQuestion {
            transactional_id: Arc::from(id.as_str()),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            partitions: partitions.collect(),
            verify_only: self.version < ADDS_SINCE,
            patience: self.patience(),
        })
    }
}

fn has_several_producers(staged: &[Staged]) -> bool {
    let mut producers = staged.iter().filter_map(|partition| partition.producer);
    let first = producers.next().map(|first| (first.id, first.epoch));
    producers.any(|other| Some((other.id, other.epoch)) != first)
}

/// What a client of this version is told where the coordinator answers `code`.
fn told(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::TransactionAbortable if version < ABORTABLE_SINCE => ErrorCode::InvalidTxnState,
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::ConcurrentTransactions if version >= ADDS_SINCE => code,
        ErrorCode::ConcurrentTransactions
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => ErrorCode::NotEnoughReplicas,
        other => other,
    }
}

/// First version whose partitions the coordinator adds to the transaction.
const ADDS_SINCE: i16 = 12;

/// First version that may be told 120.
const ABORTABLE_SINCE: i16 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of spec §5.5: what the coordinator says, and Produce up to 10, 11, and from 12 on.
    #[test]
    fn the_coordinators_answers_are_told_by_version() {
        let table: [(ErrorCode, [i16; 3]); 12] = [
            (ErrorCode::TransactionAbortable, [48, 120, 120]),
            (ErrorCode::ProducerFenced, [47, 47, 47]),
            (ErrorCode::InvalidProducerIdMapping, [49, 49, 49]),
            (ErrorCode::ConcurrentTransactions, [19, 19, 51]),
            (ErrorCode::CoordinatorLoadInProgress, [19, 19, 19]),
            (ErrorCode::CoordinatorNotAvailable, [19, 19, 19]),
            (ErrorCode::NotCoordinator, [19, 19, 19]),
            (ErrorCode::InvalidTxnState, [48, 48, 48]),
            (ErrorCode::UnknownTopicOrPartition, [3, 3, 3]),
            (ErrorCode::OperationNotAttempted, [55, 55, 55]),
            (ErrorCode::InvalidRequest, [42, 42, 42]),
            (ErrorCode::RequestTimedOut, [7, 7, 7]),
        ];
        for (code, expected) in table {
            assert_eq!(
                [10, 11, 12].map(|version| told(code, version).code()),
                expected,
                "{code:?}"
            );
        }
        assert_eq!(told(ErrorCode::TransactionAbortable, 3).code(), 48);
        assert_eq!(told(ErrorCode::ConcurrentTransactions, 13).code(), 51);
    }
}
