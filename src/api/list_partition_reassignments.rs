//! ListPartitionReassignments (key 46), versions 0-0.
//!
//! Behaviour
//! - Partitions do not move between brokers, so nothing is ever under way: no topics, whatever is
//!   asked for.
//!
//! Version notes: 0 of KIP-455.

use std::rc::Rc;

use kafka_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::Response;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    _shard: &Rc<Shard>,
    header: &RequestHeader,
    _request: &ListPartitionReassignmentsRequest,
) -> Response {
    Response::encode(header, &answer())
}

/// The answer.
#[must_use]
pub fn answer() -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default().with_error_message(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn nothing_is_under_way() {
        let response = answer();
        assert_eq!((response.error_code, response.topics.len()), (0, 0));
        encode_response(Api::ListPartitionReassignments, 0, 1, &response).expect("encodes");
    }
}
