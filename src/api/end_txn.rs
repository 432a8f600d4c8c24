//! EndTxn (key 26), versions 0-5.
//!
//! Behaviour
//! - Goes to the coordinator of the transactional id; on another node: 16. An empty id: 42.
//! - Answered when the decision is durable, before any marker is written; markers follow and are
//!   retried until all of them are there.
//! - Up to v4 the epoch stays as it is; v5 raises it and answers the identity for the next
//!   transaction, which is another producer id once the epochs are used up.
//! - A repeated request of the same outcome is answered 0, of the other one 48.
//! - **deviation**: a request that meets a transition in progress is held
//!   (`txn_pending_hold_ms`); Kafka answers 51 at once.
//! - **deviation**: a v5 commit that comes after the coordinator's own abort is answered 90, as
//!   Kafka does since KAFKA-20785.
//! - On any error id and epoch are -1.
//!
//! Version notes: 2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588); 3 flexible;
//! 4 TRANSACTION_ABORTABLE (KIP-890); 5 epoch bump, id and epoch in the answer (KIP-890).

use std::rc::Rc;

use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse, ProducerId};

use super::Response;
use crate::coordinator::txn::{EndTxn, Identity};
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::transactions;
use crate::wire::header::RequestHeader;

/// Answers a request once its outcome is durable.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: EndTxnRequest,
) -> Response {
    let asked = asked(&request, header.api_version);
    let outcome = transactions::end(&shard, &connection, asked).await;
    Response::encode(&header, &answer(outcome, header.api_version))
}

fn asked(request: &EndTxnRequest, version: i16) -> EndTxn {
    EndTxn {
        transactional_id: request.transactional_id.as_str().into(),
        producer: transactions::identity(request.producer_id.0, request.producer_epoch),
        commit: request.committed,
        strict: version >= BUMP_SINCE,
    }
}

/// The answer to `outcome`.
#[must_use]
pub fn answer(outcome: Result<Identity, ErrorCode>, version: i16) -> EndTxnResponse {
    let response = EndTxnResponse::default();
    let (code, identity) = match outcome {
        Ok(identity) => (ErrorCode::None, identity),
        Err(code) => (transactions::fenced_since(code, version, FENCED_SINCE), Identity::NONE),
    };
    let response = response.with_error_code(code.code());
    if version < BUMP_SINCE {
        return response;
    }
    response.with_producer_id(ProducerId(identity.id.0)).with_producer_epoch(identity.epoch.0)
}

const FENCED_SINCE: i16 = 2;
const BUMP_SINCE: i16 = 5;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::TransactionalId;
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn v5_follows_the_strict_rules() {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(StrBytes::from_static_str("t")))
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(3)
            .with_committed(true);
        for version in 0..=5 {
            let expected = EndTxn {
                transactional_id: "t".into(),
                producer: transactions::identity(7, 3),
                commit: true,
                strict: version == 5,
            };
            assert_eq!(asked(&request, version), expected);
        }
    }

    #[test]
    fn old_versions_know_no_fenced_producer_and_no_new_identity() {
        for version in 0..=5 {
            let fenced = answer(Err(ErrorCode::ProducerFenced), version);
            assert_eq!(fenced.error_code, if version < 2 { 47 } else { 90 });
            assert_eq!(answer(Err(ErrorCode::InvalidTxnState), version).error_code, 48);
            let ended = answer(Ok(transactions::identity(7, 4)), version);
            assert_eq!(ended.error_code, 0);
            if version == 5 {
                assert_eq!((fenced.producer_id.0, fenced.producer_epoch), (-1, -1));
                assert_eq!((ended.producer_id.0, ended.producer_epoch), (7, 4));
            }
            encode_response(Api::EndTxn, version, 1, &fenced).expect("encodes");
            encode_response(Api::EndTxn, version, 1, &ended).expect("encodes");
        }
    }
}
