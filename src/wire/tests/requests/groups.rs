//! Random requests of the group protocols.

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest,
    DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, SyncGroupRequest, TopicName,
};

use super::{Of, tags, uuid};
use crate::wire::tests::Random;

impl Of<'_> {
    pub(super) fn join_group(&mut self, flexible: bool) -> JoinGroupRequest {
        let version = self.version;
        let random = &mut *self.random;
        let protocols = random.list(|random| {
            JoinGroupRequestProtocol::default()
                .with_name(random.text())
                .with_metadata(random.bytes(100))
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = JoinGroupRequest::default()
            .with_group_id(GroupId(random.text()))
            .with_session_timeout_ms(random.int32())
            .with_member_id(random.text())
            .with_protocol_type(random.text())
            .with_protocols(protocols)
            .with_unknown_tagged_fields(tags(random, flexible));
        if version >= 1 {
            request.rebalance_timeout_ms = random.int32();
        }
        if version >= 5 {
            request.group_instance_id = random.maybe(Random::text);
        }
        if version >= 8 {
            request.reason = random.maybe(Random::text);
        }
        request
    }

    pub(super) fn heartbeat(&mut self, flexible: bool) -> HeartbeatRequest {
        let random = &mut *self.random;
        let mut request = HeartbeatRequest::default()
            .with_group_id(GroupId(random.text()))
            .with_generation_id(random.int32())
            .with_member_id(random.text())
            .with_unknown_tagged_fields(tags(random, flexible));
        if self.version >= 3 {
            request.group_instance_id = random.maybe(Random::text);
        }
        request
    }

    pub(super) fn leave_group(&mut self, flexible: bool) -> LeaveGroupRequest {
        let version = self.version;
        let random = &mut *self.random;
        let mut request = LeaveGroupRequest::default()
            .with_group_id(GroupId(random.text()))
            .with_unknown_tagged_fields(tags(random, flexible));
        if version < 3 {
            return request.with_member_id(random.text());
        }
        request.members = random.list(|random| {
            let mut member = MemberIdentity::default()
                .with_member_id(random.text())
                .with_group_instance_id(random.maybe(Random::text))
                .with_unknown_tagged_fields(tags(random, flexible));
            if version >= 5 {
                member.reason = random.maybe(Random::text);
            }
            member
        });
        request
    }

    pub(super) fn sync_group(&mut self, flexible: bool) -> SyncGroupRequest {
        let version = self.version;
        let random = &mut *self.random;
        let assignments = random.list(|random| {
            SyncGroupRequestAssignment::default()
                .with_member_id(random.text())
                .with_assignment(random.bytes(100))
                .with_unknown_tagged_fields(tags(random, flexible))
        });
        let mut request = SyncGroupRequest::default()
            .with_group_id(GroupId(random.text()))
            .with_generation_id(random.int32())
            .with_member_id(random.text())
            .with_assignments(assignments)
            .with_unknown_tagged_fields(tags(random, flexible));
        if version >= 3 {
            request.group_instance_id = random.maybe(Random::text);
        }
        if version >= 5 {
            request.protocol_type = random.maybe(Random::text);
            request.protocol_name = random.maybe(Random::text);
        }
        request
    }

    pub(super) fn describe_groups(&mut self, flexible: bool) -> DescribeGroupsRequest {
        let random = &mut *self.random;
        let mut request = DescribeGroupsRequest::default()
            .with_groups(random.list(|random| GroupId(random.text())))
            .with_unknown_tagged_fields(tags(random, flexible));
        if self.version >= 3 {
            request.include_authorized_operations = random.chance();
        }
        request
    }

    pub(super) fn list_groups(&mut self, flexible: bool) -> ListGroupsRequest {
        let random = &mut *self.random;
        let mut request =
            ListGroupsRequest::default().with_unknown_tagged_fields(tags(random, flexible));
        if self.version >= 4 {
            request.states_filter = random.list(Random::text);
        }
        if self.version >= 5 {
            request.types_filter = random.list(Random::text);
        }
        request
    }

    pub(super) fn delete_groups(&mut self, flexible: bool) -> DeleteGroupsRequest {
        DeleteGroupsRequest::default()
            .with_groups_names(self.random.list(|random| GroupId(random.text())))
            .with_unknown_tagged_fields(tags(self.random, flexible))
    }

    pub(super) fn consumer_group_heartbeat(
        &mut self,
        flexible: bool,
    ) -> ConsumerGroupHeartbeatRequest {
        let version = self.version;
        let random = &mut *self.random;
        let names = random.maybe(|random| random.list(|random| TopicName(random.text())));
        let owned = random.maybe(|random| {
            random.list(|random| {
                TopicPartitions::default()
                    .with_topic_id(uuid(random))
                    .with_partitions(random.list(Random::int32))
                    .with_unknown_tagged_fields(tags(random, flexible))
            })
        });
        let mut request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(random.text()))
            .with_member_id(random.text())
            .with_member_epoch(random.int32())
            .with_instance_id(random.maybe(Random::text))
            .with_rack_id(random.maybe(Random::text))
            .with_rebalance_timeout_ms(random.int32())
            .with_subscribed_topic_names(names)
            .with_server_assignor(random.maybe(Random::text))
            .with_topic_partitions(owned)
            .with_unknown_tagged_fields(tags(random, flexible));
        if version >= 1 {
            request.subscribed_topic_regex = random.maybe(Random::text);
        }
        request
    }

    pub(super) fn consumer_group_describe(
        &mut self,
        flexible: bool,
    ) -> ConsumerGroupDescribeRequest {
        let random = &mut *self.random;
        ConsumerGroupDescribeRequest::default()
            .with_group_ids(random.list(|random| GroupId(random.text())))
            .with_include_authorized_operations(random.chance())
            .with_unknown_tagged_fields(tags(random, flexible))
    }
}
