//! ListTransactions (key 66), versions 0-2.
//!
//! Behaviour
//! - The transactional ids whose coordinator is this node, by rising id. A client asks every node.
//! - Filters are combined: state names, producer ids, how long a transaction has been open (v1),
//!   and a pattern that the whole id must match (v2). Names that no state has are told, and match
//!   nothing.
//! - An id without an open transaction passes every duration.
//! - While a partition is being loaded: 14 and no ids. A bad pattern: 128.
//!
//! Version notes: 1 duration (KIP-994); 2 pattern (KIP-1152).

use std::rc::Rc;

use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::{
    ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::coordinator::txn::{ListFilter, Listing};
use crate::error_code::ErrorCode;
use crate::ids;
use crate::shard::Shard;
use crate::shard::transactions;
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: ListTransactionsRequest,
) -> Response {
    let outcome = transactions::list(&shard, filter(&request, header.api_version)).await;
    Response::encode(&header, &answer(outcome))
}

fn filter(request: &ListTransactionsRequest, version: i16) -> ListFilter {
    let pattern = request.transactional_id_pattern.as_ref();
    ListFilter {
        states: request.state_filters.iter().map(ToString::to_string).collect(),
        producer_ids: request.producer_id_filters.iter().map(|id| ids::ProducerId(id.0)).collect(),
        duration_ms: if version >= DURATION_SINCE { request.duration_filter } else { -1 },
        pattern: pattern.map(ToString::to_string),
    }
}

fn answer(outcome: Result<Listing, ErrorCode>) -> ListTransactionsResponse {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let mut listing = match outcome {
        Ok(listing) => listing,
        Err(code) => return ListTransactionsResponse::default().with_error_code(code.code()),
    };
    listing.transactions.sort_by(|left, right| left.transactional_id.cmp(&right.transactional_id));
    let states = listing.transactions.iter().map(|listed| {
        TransactionState::default()
            .with_transactional_id(TransactionalId(text(&listed.transactional_id)))
            .with_producer_id(ProducerId(listed.producer_id.0))
            .with_transaction_state(StrBytes::from_static_str(listed.state.name()))
    });
    ListTransactionsResponse::default()
        .with_unknown_state_filters(listing.unknown_states.iter().map(|name| text(name)).collect())
        .with_transaction_states(states.collect())
}

const DURATION_SINCE: i16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::txn::{Listed, State};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn filters_reach_the_coordinator() {
        let request = ListTransactionsRequest::default()
            .with_state_filters(vec![StrBytes::from_static_str("Ongoing")])
            .with_producer_id_filters(vec![ProducerId(7)])
            .with_duration_filter(0)
            .with_transactional_id_pattern(Some(StrBytes::from_static_str("t.*")));
        for version in 0..=2 {
            let expected = ListFilter {
                states: vec!["Ongoing".to_owned()],
                producer_ids: vec![ids::ProducerId(7)],
                duration_ms: if version == 0 { -1 } else { 0 },
                pattern: Some("t.*".to_owned()),
            };
            assert_eq!(filter(&request, version), expected);
        }
    }

    #[test]
    fn ids_come_in_order() {
        let listed = |id: &str, producer_id, state| Listed {
            transactional_id: id.into(),
            producer_id: ids::ProducerId(producer_id),
            state,
        };
        let listing = Listing {
            unknown_states: vec!["Foo".to_owned()],
            transactions: vec![listed("b", 2, State::Ongoing), listed("a", 1, State::Empty)],
        };
        let response = answer(Ok(listing));
        let found: Vec<_> = response
            .transaction_states
            .iter()
            .map(|s| (s.transactional_id.as_str(), s.producer_id.0, s.transaction_state.as_str()))
            .collect();
        assert_eq!(found, [("a", 1, "Empty"), ("b", 2, "Ongoing")]);
        assert_eq!(response.unknown_state_filters.len(), 1);
        let failed = answer(Err(ErrorCode::InvalidRegularExpression));
        assert_eq!((failed.error_code, failed.transaction_states.len()), (128, 0));
        for version in 0..=2 {
            encode_response(Api::ListTransactions, version, 1, &response).expect("encodes");
            encode_response(Api::ListTransactions, version, 1, &failed).expect("encodes");
        }
    }
}
