//! DeleteGroups (key 42), versions 0-2.
//!
//! Behaviour
//! - Deletes each group with its offsets, pending ones of open transactions too; answered when that
//!   is durable. A group with members: 68. One that nobody knows: 69. Another node's group: 16.
//!   Loading: 14. A group that is named twice is told once, as in Kafka.
//!
//! Version notes: 2 flexible.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::Response;
use super::join_group::shared;
use crate::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::group_offsets::admin::{self, AdminRequest};
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: DeleteGroupsRequest,
) -> Response {
    let mut results = Vec::new();
    let mut seen = BTreeSet::new();
    for id in request.groups_names {
        let group: Arc<str> = shared(&id);
        if !seen.insert(Arc::clone(&group)) {
            continue;
        }
        let outcome = admin::ask(&shard, &group, AdminRequest::Delete(Arc::clone(&group))).await;
        let code = outcome.err().unwrap_or(ErrorCode::None);
        let result = DeletableGroupResult::default().with_group_id(id);
        results.push(result.with_error_code(code.code()));
    }
    Response::encode(&header, &DeleteGroupsResponse::default().with_results(results))
}
