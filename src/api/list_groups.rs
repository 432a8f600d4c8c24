//! ListGroups (key 16), versions 0-5.
//!
//! Behaviour
//! - The groups whose coordinator is this node, by name. A client asks every node.
//! - Filters are combined: states (v4) and types (v5) by name, in any case; unknown names match
//!   nothing. A group that only has offsets is a classic one, `Empty`, without a protocol type.
//! - While some are being loaded: 14 and no groups.
//!
//! Version notes: 3 flexible; 4 states (KIP-518); 5 types (KIP-848).

use std::rc::Rc;

use kafka_protocol::messages::list_groups_response::ListedGroup as ToldGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::join_group::told;
use crate::coordinator::group::admin::GroupFilter;
use crate::shard::Shard;
use crate::shard::group_offsets::admin;
use crate::wire::header::RequestHeader;

/// Answers a request.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: ListGroupsRequest,
) -> Response {
    let version = header.api_version;
    let filter = GroupFilter {
        states: request.states_filter.iter().map(ToString::to_string).collect(),
        types: request.types_filter.iter().map(ToString::to_string).collect(),
    };
    let response = match admin::list(&shard, &filter).await {
        Err(code) => ListGroupsResponse::default().with_error_code(code.code()),
        Ok(groups) => {
            let groups = groups.into_iter().map(|group| {
                let mut listed = ToldGroup::default()
                    .with_group_id(GroupId(told(&group.id)))
                    .with_protocol_type(told(&group.protocol_type));
                if version >= STATE_SINCE {
                    listed.group_state = StrBytes::from_static_str(group.state);
                }
                if version >= TYPE_SINCE {
                    listed.group_type = StrBytes::from_static_str(group.kind);
                }
                listed
            });
            ListGroupsResponse::default().with_groups(groups.collect())
        }
    };
    Response::encode(&header, &response)
}

const STATE_SINCE: i16 = 4;
const TYPE_SINCE: i16 = 5;
