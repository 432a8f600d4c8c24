//! InitProducerId (key 22), versions 0-5.
//!
//! Behaviour, in the order of the checks
//! - A producer id without an epoch, or the other way round (v3+): 42.
//! - No transactional id: a new id with epoch 0; the timeout and what was given are ignored. Ids
//!   come from a block of this shard, reserved durably before any of it is handed out.
//! - An empty transactional id: 42.
//! - A transaction timeout that is not positive, or above `transaction.max.timeout.ms`: 50.
//! - **deviation**: a transactional id is answered 15: this release has no transaction
//!   coordinator. 15 is retriable, so a client waits and then fails by its own timeout.
//! - On any error id and epoch are -1.
//!
//! Version notes: 2 flexible; 3 current id and epoch (KIP-360); 4 PRODUCER_FENCED (KIP-588);
//! 5 TRANSACTION_ABORTABLE (KIP-890). 6 is unstable in Kafka and not served.

use std::rc::Rc;

use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};

use super::Response;
use crate::error_code::ErrorCode;
use crate::ids::ProducerId;
use crate::shard::Shard;
use crate::shard::producer_ids;
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: InitProducerIdRequest,
) -> Response {
    let timeout_max_ms = shard.context.config.transaction_max_timeout_ms;
    let outcome = match check(&request, timeout_max_ms) {
        Ok(()) => producer_ids::next(&shard).await,
        Err(code) => Err(code),
    };
    Response::encode(&header, &answer(outcome))
}

/// Whether the request gets a new id.
///
/// # Errors
/// The code that refuses it.
pub fn check(request: &InitProducerIdRequest, timeout_max_ms: i32) -> Result<(), ErrorCode> {
    if (request.producer_id.0 == NONE) != (i64::from(request.producer_epoch) == NONE) {
        return Err(ErrorCode::InvalidRequest);
    }
    match &request.transactional_id {
        None => Ok(()),
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        Some(_) if !(1..=timeout_max_ms).contains(&request.transaction_timeout_ms) => {
            Err(ErrorCode::InvalidTransactionTimeout)
        }
        Some(_) => Err(ErrorCode::CoordinatorNotAvailable),
    }
}

/// The answer with a new id, or without.
#[must_use]
pub fn answer(outcome: Result<ProducerId, ErrorCode>) -> InitProducerIdResponse {
    let (code, id, epoch) = match outcome {
        Ok(ProducerId(id)) => (ErrorCode::None, id, 0),
        Err(code) => (code, NONE, -1),
    };
    InitProducerIdResponse::default()
        .with_error_code(code.code())
        .with_producer_id(messages::ProducerId(id))
        .with_producer_epoch(epoch)
}

const NONE: i64 = -1;

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
            assert_eq!(code(None, timeout_ms, (-1, -1)), 0);
            assert_eq!(code(None, timeout_ms, (5, 3)), 0);
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
    fn transactional_ids_have_no_coordinator() {
        assert_eq!(code(Some(""), 0, (-1, -1)), 42);
        assert_eq!(code(Some("t"), 0, (-1, -1)), 50);
        assert_eq!(code(Some("t"), -1, (-1, -1)), 50);
        assert_eq!(code(Some("t"), 900_001, (-1, -1)), 50);
        assert_eq!(code(Some("t"), 900_000, (-1, -1)), 15);
        assert_eq!(code(Some("t"), 1, (5, 3)), 15);
    }

    #[test]
    fn every_version_is_encoded() {
        let response = answer(Ok(ProducerId(1000)));
        assert_eq!((response.error_code, response.producer_id.0), (0, 1000));
        assert_eq!((response.producer_epoch, response.throttle_time_ms), (0, 0));
        let failed = answer(Err(ErrorCode::CoordinatorNotAvailable));
        assert_eq!((failed.error_code, failed.producer_id.0), (15, -1));
        assert_eq!(failed.producer_epoch, -1);
        for version in 0..=5 {
            encode_response(Api::InitProducerId, version, 1, &response).expect("encodes");
            encode_response(Api::InitProducerId, version, 1, &failed).expect("encodes");
        }
    }
}
