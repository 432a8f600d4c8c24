//! UnregisterBroker (key 64), versions 0-0.
//!
//! Behaviour
//! - Brokers come and go with the shards of the process. An id that no node has is 102.
//!   **deviation**: a node that is there cannot be taken out of the cluster (42); Kafka forgets it
//!   until it registers again.
//!
//! Version notes: 0 of KIP-500.

use std::rc::Rc;

use kafka_protocol::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &UnregisterBrokerRequest,
) -> Response {
    Response::encode(header, &answer(&shard.context, request))
}

/// The answer.
#[must_use]
pub fn answer(context: &Context, request: &UnregisterBrokerRequest) -> UnregisterBrokerResponse {
    let id = request.broker_id.0;
    let (code, message) = if context.nodes.iter().any(|node| node.id == id) {
        let message = format!("Broker {id} is a part of this process and cannot leave it.");
        (ErrorCode::InvalidRequest, message)
    } else {
        let message = format!("Broker ID {id} is not currently registered");
        (ErrorCode::BrokerIdNotRegistered, message)
    };
    UnregisterBrokerResponse::default()
        .with_error_code(code.code())
        .with_error_message(Some(StrBytes::from_string(message)))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::BrokerId;

    use super::*;
    use crate::api::metadata::tests::context;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn nodes_stay_and_strangers_are_unknown() {
        let single: &[(&str, &str)] = &[("advertise", "single")];
        for (settings, id, code) in
            [(&[][..], 3, 42), (&[][..], 4, 102), (single, 3, 102), (&[][..], -1, 102)]
        {
            let request = UnregisterBrokerRequest::default().with_broker_id(BrokerId(id));
            let response = answer(&context(settings), &request);
            assert_eq!(response.error_code, code, "{settings:?} {id}");
            encode_response(Api::UnregisterBroker, 0, 1, &response).expect("encodes");
        }
    }
}
