//! DescribeTransactions (key 65), versions 0-0.
//!
//! Behaviour
//! - Per id, in the order of the request: an empty one 42, an unknown one 105, one of another
//!   coordinator 16, one that is being loaded 14.
//! - The partitions are those of the open transaction; while it ends, those still owed a marker.
//! - The start is -1 while no transaction is open.
//!
//! Source: KIP-664.

use std::rc::Rc;

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::coordinator::txn::Description;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::transactions;
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: DescribeTransactionsRequest,
) -> Response {
    let mut states = Vec::with_capacity(request.transactional_ids.len());
    for id in request.transactional_ids {
        let outcome = transactions::describe(&shard, &connection, &id.as_str().into()).await;
        states.push(state(id, outcome));
    }
    let response = DescribeTransactionsResponse::default().with_transaction_states(states);
    Response::encode(&header, &response)
}

fn state(id: TransactionalId, outcome: Result<Description, ErrorCode>) -> TransactionState {
    let state = TransactionState::default().with_transactional_id(id);
    let described = match outcome {
        Ok(described) => described,
        Err(code) => return state.with_error_code(code.code()),
    };
    let mut topics: Vec<TopicData> = Vec::new();
    for (name, partition) in described.partitions {
        match topics.last_mut() {
            Some(topic) if topic.topic.as_str() == &*name => topic.partitions.push(partition),
            _ => topics.push(
                TopicData::default()
                    .with_topic(TopicName(StrBytes::from_string(name.to_string())))
                    .with_partitions(vec![partition]),
            ),
        }
    }
    state
        .with_transaction_state(StrBytes::from_static_str(described.state.name()))
        .with_transaction_timeout_ms(described.timeout_ms)
        .with_transaction_start_time_ms(described.start_ms)
        .with_producer_id(ProducerId(described.producer.id.0))
        .with_producer_epoch(described.producer.epoch.0)
        .with_topics(topics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::txn::State;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn partitions_are_told_by_topic() {
        let id = TransactionalId(StrBytes::from_static_str("t"));
        let described = Description {
            state: State::Ongoing,
            timeout_ms: 60_000,
            start_ms: 1_000,
            producer: transactions::identity(7, 3),
            partitions: vec![("a".into(), 0), ("a".into(), 4), ("b".into(), 1)],
        };
        let told = state(id.clone(), Ok(described));
        assert_eq!((told.error_code, told.transaction_state.as_str()), (0, "Ongoing"));
        assert_eq!((told.transaction_timeout_ms, told.transaction_start_time_ms), (60_000, 1_000));
        assert_eq!((told.producer_id.0, told.producer_epoch), (7, 3));
        let topics: Vec<(&str, &[i32])> =
            told.topics.iter().map(|topic| (topic.topic.as_str(), &topic.partitions[..])).collect();
        assert_eq!(topics, [("a", &[0, 4][..]), ("b", &[1])]);
        let failed = state(id, Err(ErrorCode::TransactionalIdNotFound));
        assert_eq!((failed.error_code, failed.transactional_id.as_str()), (105, "t"));
        assert_eq!((failed.producer_id.0, failed.topics.len()), (0, 0));
        let response =
            DescribeTransactionsResponse::default().with_transaction_states(vec![told, failed]);
        encode_response(Api::DescribeTransactions, 0, 1, &response).expect("encodes");
    }
}
