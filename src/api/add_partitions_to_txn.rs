//! AddPartitionsToTxn (key 24), versions 0-5.
//!
//! Behaviour
//! - Up to v3 one transaction, from clients; v4 and v5 several, as brokers send them to each
//!   other: each adds its partitions or only asks whether they are there (`verify_only`).
//! - A partition that does not exist: 3, and 55 for the others of that transaction, of which then
//!   nothing is added.
//! - Otherwise every partition gets the coordinator's code; when only asking, 120 stands for "not
//!   in the transaction". Answered when it is durable.
//! - On a node that is not the coordinator: 16. An empty id: 42.
//! - **deviation**: held while a transition is pending, see EndTxn. All transactions of a request
//!   together are held no longer than one.
//!
//! Version notes: 2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588); 3 flexible;
//! 4 several transactions, verification (KIP-890); 5 TRANSACTION_ABORTABLE (KIP-890).

use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};

use super::Response;
use crate::coordinator::txn::AddPartitions;
use crate::error_code::ErrorCode;
use crate::metadata::Image;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::transactions::{self, Caller};
use crate::wire::header::RequestHeader;

/// Answers a request once all that it adds is durable.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: AddPartitionsToTxnRequest,
) -> Response {
    let version = header.api_version;
    let caller = Caller::of(&shard, &connection);
    let mut response = AddPartitionsToTxnResponse::default();
    for transaction in transactions_of(request, version) {
        let codes = match missing(&shard.catalog(), &transaction.topics) {
            Some(codes) => codes,
            None => {
                let asked = asked(&transaction, version);
                let verify = transaction.verify_only;
                transactions::add_or_verify(&shard, &caller, asked, verify).await
            }
        };
        let topics = results(&transaction.topics, &codes, version);
        if version < BATCH_SINCE {
            response.results_by_topic_v3_and_below = topics;
        } else {
            response.results_by_transaction.push(
                AddPartitionsToTxnResult::default()
                    .with_transactional_id(transaction.transactional_id)
                    .with_topic_results(topics),
            );
        }
    }
    Response::encode(&header, &response)
}

/// The transactions of a request of any version.
fn transactions_of(
    request: AddPartitionsToTxnRequest,
    version: i16,
) -> Vec<AddPartitionsToTxnTransaction> {
    if version >= BATCH_SINCE {
        return request.transactions;
    }
    vec![
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics),
    ]
}

/// The codes of all partitions if one of them does not exist.
fn missing(image: &Image, topics: &[AddPartitionsToTxnTopic]) -> Option<Vec<ErrorCode>> {
    let mut codes = Vec::new();
    for topic in topics {
        let count = image.topic(&topic.name).map_or(0, |topic| topic.partition_count());
        codes.extend(topic.partitions.iter().map(|index| {
            if (0..count).contains(index) {
                ErrorCode::OperationNotAttempted
            } else {
                ErrorCode::UnknownTopicOrPartition
            }
        }));
    }
    codes.contains(&ErrorCode::UnknownTopicOrPartition).then_some(codes)
}

fn asked(transaction: &AddPartitionsToTxnTransaction, version: i16) -> AddPartitions {
    let mut partitions = Vec::new();
    for topic in &transaction.topics {
        let name: Arc<str> = topic.name.as_str().into();
        partitions.extend(topic.partitions.iter().map(|index| (Arc::clone(&name), *index)));
    }
    AddPartitions {
        transactional_id: transaction.transactional_id.as_str().into(),
        producer: transactions::identity(transaction.producer_id.0, transaction.producer_epoch),
        partitions,
        strict: version >= BATCH_SINCE,
    }
}

/// The answer of one transaction, in the order of its topics, given one code per partition.
fn results(
    topics: &[AddPartitionsToTxnTopic],
    codes: &[ErrorCode],
    version: i16,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut codes = codes.iter();
    let mut next = || {
        let code = codes.next().copied().unwrap_or(ErrorCode::UnknownServerError);
        transactions::fenced_since(code, version, FENCED_SINCE).code()
    };
    topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|index| {
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(*index)
                    .with_partition_error_code(next())
            });
            AddPartitionsToTxnTopicResult::default()
                .with_name(topic.name.clone())
                .with_results_by_partition(partitions.collect())
        })
        .collect()
}

const FENCED_SINCE: i16 = 2;
const BATCH_SINCE: i16 = 4;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ProducerId, TopicName, TransactionalId};
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn topic(name: &'static str, partitions: &[i32]) -> AddPartitionsToTxnTopic {
        AddPartitionsToTxnTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(name)))
            .with_partitions(partitions.to_vec())
    }

    fn transaction(topics: Vec<AddPartitionsToTxnTopic>) -> AddPartitionsToTxnTransaction {
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(TransactionalId(StrBytes::from_static_str("t")))
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(3)
            .with_topics(topics)
    }

    #[test]
    fn one_missing_partition_keeps_all_of_them_out() {
        let image = catalog(&context(&[]), &[("a", 1, &[0, 1]), ("b", 2, &[0])]);
        let codes = |topics: &[AddPartitionsToTxnTopic]| {
            missing(&image, topics)
                .map(|codes| codes.iter().map(|code| code.code()).collect::<Vec<_>>())
        };
        assert_eq!(codes(&[topic("a", &[0, 1]), topic("b", &[0])]), None);
        assert_eq!(codes(&[]), None);
        assert_eq!(codes(&[topic("a", &[1, 2, -1]), topic("b", &[0])]), Some(vec![55, 3, 3, 55]));
        assert_eq!(codes(&[topic("c", &[0]), topic("b", &[0])]), Some(vec![3, 55]));
    }

    #[test]
    fn every_version_says_the_same() {
        let sent = transaction(vec![topic("a", &[1, 0]), topic("b", &[2])]);
        for version in 0..=5 {
            let mut request = AddPartitionsToTxnRequest::default();
            if version >= 4 {
                request.transactions = vec![sent.clone(), sent.clone()];
            } else {
                request.v3_and_below_transactional_id = sent.transactional_id.clone();
                request.v3_and_below_producer_id = sent.producer_id;
                request.v3_and_below_producer_epoch = sent.producer_epoch;
                request.v3_and_below_topics = sent.topics.clone();
            }
            let transactions = transactions_of(request, version);
            assert_eq!(transactions.len(), if version >= 4 { 2 } else { 1 });
            let asked = asked(&transactions[0], version);
            assert_eq!(&*asked.transactional_id, "t");
            assert_eq!(asked.producer, transactions::identity(7, 3));
            assert_eq!(asked.strict, version >= 4);
            let names: Vec<(&str, i32)> =
                asked.partitions.iter().map(|(name, index)| (&**name, *index)).collect();
            assert_eq!(names, [("a", 1), ("a", 0), ("b", 2)]);
        }
    }

    #[test]
    fn answers_are_in_the_order_of_the_request() {
        let topics = [topic("a", &[1, 0]), topic("b", &[2])];
        let codes = [ErrorCode::None, ErrorCode::ProducerFenced, ErrorCode::TransactionAbortable];
        for version in 0..=5 {
            let results = results(&topics, &codes, version);
            let fenced = if version < 2 { 47 } else { 90 };
            let found: Vec<(&str, i32, i16)> = results
                .iter()
                .flat_map(|topic| {
                    let partitions = topic.results_by_partition.iter();
                    partitions
                        .map(|p| (topic.name.as_str(), p.partition_index, p.partition_error_code))
                })
                .collect();
            assert_eq!(found, [("a", 1, 0), ("a", 0, fenced), ("b", 2, 120)]);
            let mut response = AddPartitionsToTxnResponse::default();
            if version >= 4 {
                let result = AddPartitionsToTxnResult::default().with_topic_results(results);
                response.results_by_transaction = vec![result];
            } else {
                response.results_by_topic_v3_and_below = results;
            }
            encode_response(Api::AddPartitionsToTxn, version, 1, &response).expect("encodes");
        }
    }
}
