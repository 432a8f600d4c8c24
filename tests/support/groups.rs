//! Requests of members of classic groups, and of tools that look at groups.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, ListGroupsRequest, SyncGroupRequest,
};

use super::offsets::text;

/// A consumer's metadata that names one topic.
pub fn subscription(topic: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put_i32(1);
    bytes.put_i16(i16::try_from(topic.len()).expect("short"));
    bytes.put_slice(topic.as_bytes());
    bytes.put_i32(-1);
    bytes.put_i32(0);
    bytes.into()
}

/// Joins as a consumer of topic `t` that supports `range`.
pub fn join(version: i16, group: &str, member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(subscription("t"));
    let mut request = JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(10_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    if version >= 1 {
        request.rebalance_timeout_ms = 20_000;
    }
    request
}

/// The same as a static member.
pub fn static_join(version: i16, group: &str, member: &str, instance: &str) -> JoinGroupRequest {
    join(version, group, member).with_group_instance_id(Some(text(instance)))
}

/// Syncs, assigning `assigned` by member id.
pub fn sync(
    version: i16,
    group: &str,
    (member, generation): (&str, i32),
    assigned: &[(&str, &'static [u8])],
) -> SyncGroupRequest {
    let assignments = assigned.iter().map(|&(member, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::from_static(assignment))
    });
    let mut request = SyncGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_assignments(assignments.collect());
    if version >= 5 {
        request.protocol_type = Some(text("consumer"));
        request.protocol_name = Some(text("range"));
    }
    request
}

/// A heartbeat.
pub fn heartbeat(group: &str, member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id(generation)
        .with_member_id(text(member))
}

/// One member leaves.
pub fn leave(version: i16, group: &str, member: &str, instance: Option<&str>) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(GroupId(text(group)));
    if version < 3 {
        return request.with_member_id(text(member));
    }
    let member = MemberIdentity::default()
        .with_member_id(text(member))
        .with_group_instance_id(instance.map(text));
    request.with_members(vec![member])
}

/// Describes groups.
pub fn describe(groups: &[&str]) -> DescribeGroupsRequest {
    let groups = groups.iter().map(|group| GroupId(text(group)));
    DescribeGroupsRequest::default().with_groups(groups.collect())
}

/// Lists groups by state and type.
pub fn list(states: &[&str], types: &[&str]) -> ListGroupsRequest {
    ListGroupsRequest::default()
        .with_states_filter(states.iter().map(|name| text(name)).collect())
        .with_types_filter(types.iter().map(|name| text(name)).collect())
}

/// Deletes groups.
pub fn delete(groups: &[&str]) -> DeleteGroupsRequest {
    let groups = groups.iter().map(|group| GroupId(text(group)));
    DeleteGroupsRequest::default().with_groups_names(groups.collect())
}
