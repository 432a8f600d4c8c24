//! InitProducerId (key 22), versions 0-5.
//!
//! Behaviour, in the order of the checks
//! - A producer id without an epoch, or the other way round (v3+): 42.
//! - No transactional id: a new id with epoch 0; the timeout and what was given are ignored. Ids
//!   come from a block of this shard, reserved durably before any of it is handed out.
//! - An empty transactional id: 42.
//! - A transaction timeout that is not positive, or above `transaction.max.timeout.ms`: 50.
//! - A transactional id goes to its coordinator; on another node: 16. `__transaction_state` is
//!   created if it is missing. An id never seen gets a new producer id with epoch 0, a known one
//!   its next epoch; an open transaction is aborted first. [`crate::coordinator::txn`] has the
//!   rules.
//! - **deviation**: a request that meets an open transaction or a transition in progress is held
//!   (`txn_pending_hold_ms`) and then answered; Kafka answers 51 until it is over.
//! - On any error id and epoch are -1.
//!
//! Version notes: 2 flexible; 3 current id and epoch (KIP-360); 4 PRODUCER_FENCED (KIP-588);
//! 5 TRANSACTION_ABORTABLE (KIP-890). 6 is unstable in Kafka and not served.

use std::rc::Rc;

use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};

use super::Response;
use crate::coordinator::txn::{Identity, InitProducerId};
use crate::error_code::ErrorCode;
use crate::ids::ProducerEpoch;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::{producer_ids, transactions};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: InitProducerIdRequest,
) -> Response {
    let timeout_max_ms = shard.context.config.transaction_max_timeout_ms;
    let outcome = match check(&request, timeout_max_ms) {
        Ok(None) => {
            let id = producer_ids::next(&shard).await;
            id.map(|id| Identity { id, epoch: ProducerEpoch(0) })
        }
        Ok(Some(asked)) => transactions::init_producer_id(&shard, &connection, asked).await,
        Err(code) => Err(code),
    };
    Response::encode(&header, &answer(outcome, header.api_version))
}

/// What is asked of the coordinator; `None` if there is no transactional id.
///
/// # Errors
/// The code that refuses it.
pub fn check(
    request: &InitProducerIdRequest,
    timeout_max_ms: i32,
) -> Result<Option<InitProducerId>, ErrorCode> {
    let given = (request.producer_id.0, request.producer_epoch);
    if (given.0 == NONE) != (i64::from(given.1) == NONE) {
        return Err(ErrorCode::InvalidRequest);
    }
    match &request.transactional_id {
        None => Ok(None),
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        Some(_) if !(1..=timeout_max_ms).contains(&request.transaction_timeout_ms) => {
            Err(ErrorCode::InvalidTransactionTimeout)
        }
        Some(id) => Ok(Some(InitProducerId {
            transactional_id: id.as_str().into(),
            timeout_ms: request.transaction_timeout_ms,
            expected: (given.0 != NONE).then(|| transactions::identity(given.0, given.1)),
            two_phase: false,
            keep_prepared: false,
        })),
    }
}

/// The answer with an identity, or without.
#[must_use]
pub fn answer(outcome: Result<Identity, ErrorCode>, version: i16) -> InitProducerIdResponse {
    let (code, identity) = match outcome {
        Ok(identity) => (ErrorCode::None, identity),
        Err(code) => (transactions::fenced_since(code, version, FENCED_SINCE), Identity::NONE),
    };
    InitProducerIdResponse::default()
        .with_error_code(code.code())
        .with_producer_id(messages::ProducerId(identity.id.0))
        .with_producer_epoch(identity.epoch.0)
}

const NONE: i64 = -1;
const FENCED_SINCE: i16 = 4;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::TransactionalId;
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    fn request(id: Option<&str>, timeout_ms: i32, current: (i64, i16)) -> InitProducerIdRequest {
        let id = id.map(|id| TransactionalId(StrBytes::from_string(id.to_owned())));
        InitProducerIdRequest::default()
            .with_transactional_id(id)
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(messages::ProducerId(current.0))
            .with_producer_epoch(current.1)
    }

    fn code(id: Option<&str>, timeout_ms: i32, current: (i64, i16)) -> i16 {
        check(&request(id, timeout_ms, current), 900_000).err().map_or(0, ErrorCode::code)
    }

    #[test]
    fn an_idempotent_producer_gets_an_id_whatever_it_says() {
        for timeout_ms in [0, -1, 60_000, i32::MAX] {
            for current in [(-1, -1), (5, 3)] {
                assert_eq!(check(&request(None, timeout_ms, current), 900_000), Ok(None));
            }
        }
    }

    #[test]
    fn half_a_producer_is_refused_first() {
        for id in [None, Some(""), Some("t")] {
            assert_eq!(code(id, 0, (5, -1)), 42);
            assert_eq!(code(id, 0, (-1, 0)), 42);
        }
    }

    #[test]
    fn transactional_ids_go_to_their_coordinator() {
        assert_eq!(code(Some(""), 0, (-1, -1)), 42);
        assert_eq!(code(Some("t"), 0, (-1, -1)), 50);
        assert_eq!(code(Some("t"), -1, (-1, -1)), 50);
        assert_eq!(code(Some("t"), 900_001, (-1, -1)), 50);
        for (current, expected) in [((-1, -1), None), ((5, 3), Some(transactions::identity(5, 3)))]
        {
            let asked = InitProducerId {
                transactional_id: "t".into(),
                timeout_ms: 900_000,
                expected,
                two_phase: false,
                keep_prepared: false,
            };
            assert_eq!(check(&request(Some("t"), 900_000, current), 900_000), Ok(Some(asked)));
        }
    }

    #[test]
    fn every_version_is_encoded() {
        for version in 0..=5 {
            let response = answer(Ok(transactions::identity(1000, 3)), version);
            assert_eq!((response.error_code, response.producer_id.0), (0, 1000));
            assert_eq!((response.producer_epoch, response.throttle_time_ms), (3, 0));
            let failed = answer(Err(ErrorCode::ProducerFenced), version);
            let code = if version < 4 { 47 } else { 90 };
            assert_eq!((failed.error_code, failed.producer_id.0), (code, -1));
            assert_eq!(failed.producer_epoch, -1);
            encode_response(Api::InitProducerId, version, 1, &response).expect("encodes");
            encode_response(Api::InitProducerId, version, 1, &failed).expect("encodes");
        }
    }
}
