//! Consumer groups of KIP-848 over the wire: ConsumerGroupHeartbeat and ConsumerGroupDescribe, and
//! what other APIs make of such groups.

use std::time::{Duration, Instant};

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, ListGroupsRequest,
};

use crate::cluster::{self, Cluster};
use crate::group_offsets::{commit, group, node_of};
use crate::support::client::Client;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;

in_every_mode!(
    members_share_partitions_and_give_them_up,
    refusals_have_codes_and_sentences,
    expressions_are_resolved,
    groups_are_described_listed_and_deleted,
    commits_need_the_members_epoch,
);

pub fn beat(group: &str, member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None)
}

pub fn join(group: &str, member: &str, topics: &[&Topic]) -> ConsumerGroupHeartbeatRequest {
    beat(group, member, 0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(topics.iter().map(|topic| topic.wire_name()).collect()))
        .with_topic_partitions(Some(Vec::new()))
}

fn owning(
    group: &str,
    member: &str,
    epoch: i32,
    topic: &Topic,
    partitions: &[i32],
) -> ConsumerGroupHeartbeatRequest {
    let owned =
        TopicPartitions::default().with_topic_id(topic.id).with_partitions(partitions.to_vec());
    beat(group, member, epoch).with_topic_partitions(Some(vec![owned]))
}

/// Partitions of the only topic in the assignment; `None` for no assignment.
pub fn assigned(response: &ConsumerGroupHeartbeatResponse) -> Option<Vec<i32>> {
    assert_eq!((response.error_code, response.throttle_time_ms), (0, 0), "{response:?}");
    let topics = &response.assignment.as_ref()?.topic_partitions;
    assert!(topics.len() <= 1);
    Some(topics.first().map(|topic| topic.partitions.clone()).unwrap_or_default())
}

/// Sends heartbeats of a member until one is answered with an assignment; its epoch and that.
pub fn until_assigned(
    client: &mut Client,
    group: &str,
    member: &str,
    epoch: i32,
) -> (i32, Vec<i32>) {
    let mut epoch = epoch;
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let response = client.call(1, &beat(group, member, epoch));
        if let Some(partitions) = assigned(&response) {
            return (response.member_epoch, partitions);
        }
        epoch = response.member_epoch;
    }
    panic!("{member} was not assigned anything");
}

fn members_share_partitions_and_give_them_up(cluster: &Cluster) {
    let topic = cluster.topic("shared", 4);
    let (group, mut client) = group(cluster);
    let first = client.call(1, &join(&group, "a", &[&topic]));
    assert_eq!(first.member_id.as_deref(), Some("a"));
    assert_eq!((first.member_epoch, first.heartbeat_interval_ms), (2, 5_000));
    assert_eq!(assigned(&first), Some(vec![0, 1, 2, 3]));
    assert_eq!(assigned(&client.call(1, &beat(&group, "a", 2))), None);
    let second = client.call(1, &join(&group, "b", &[&topic]));
    assert_eq!(assigned(&second), Some(vec![]));
    // The next target is due a second after the last.
    assert_eq!(until_assigned(&mut client, &group, "a", 2), (2, vec![0, 1]));
    assert_eq!(assigned(&client.call(1, &beat(&group, "a", 2))), None);
    let given_up = client.call(1, &owning(&group, "a", 2, &topic, &[0, 1]));
    assert_eq!((given_up.member_epoch, assigned(&given_up)), (3, None));
    assert_eq!(until_assigned(&mut client, &group, "b", second.member_epoch), (3, vec![2, 3]));
    // Who leaves gives all of it up.
    let left = client.call(1, &beat(&group, "a", -1));
    assert_eq!((left.error_code, left.member_epoch, left.heartbeat_interval_ms), (0, -1, 0));
    assert_eq!(until_assigned(&mut client, &group, "b", 3), (4, vec![0, 1, 2, 3]));
}

fn refusals_have_codes_and_sentences(cluster: &Cluster) {
    let topic = cluster.topic("refused", 1);
    let (group, mut client) = group(cluster);
    let mut check = |request: &ConsumerGroupHeartbeatRequest, code: i16, sentence: &str| {
        let response = client.call(1, request);
        let told = response.error_message.as_deref().unwrap_or("");
        assert_eq!((response.error_code, told), (code, sentence));
        assert_eq!((response.member_id, response.member_epoch), (None, 0));
    };
    check(&beat(&group, "a", 3), 69, &format!("Consumer group {group} not found."));
    check(&beat(&group, "a", -1), 69, &format!("Group {group} not found."));
    check(&beat(&group, "a", -3), 42, "MemberEpoch is invalid.");
    check(&join(&group, "", &[&topic]), 42, "MemberId can't be empty.");
    let assignor = join(&group, "a", &[&topic]).with_server_assignor(Some(text("x")));
    let sentence = "ServerAssignor x is not supported. Supported assignors: uniform, range.";
    check(&assignor, 112, sentence);
    let regex = join(&group, "a", &[]).with_subscribed_topic_regex(Some(text("t(")));
    assert_eq!(client.call(1, &regex).error_code, 128);
    // Version 0 has member ids made by the broker.
    let named = client.call(0, &join(&group, "", &[&topic]));
    assert_eq!((named.error_code, named.member_epoch), (0, 2));
    assert_eq!(named.member_id.expect("a member id").len(), 22);
    let mut check = |request: &ConsumerGroupHeartbeatRequest, code: i16| {
        assert_eq!(client.call(1, request).error_code, code);
    };
    check(&beat(&group, "a", 2), 25);
    let instance =
        |request: ConsumerGroupHeartbeatRequest| request.with_instance_id(Some(text("i")));
    check(&instance(beat(&group, "a", 2)), 25);
    check(&instance(join(&group, "a", &[&topic])), 0);
    check(&instance(join(&group, "a", &[&topic])), 0);
    check(&instance(join(&group, "b", &[&topic])), 111);
    check(&instance(beat(&group, "b", 2)), 82);
    check(&beat(&group, "a", 99), 110);
    check(&instance(beat(&group, "a", -2)), 0);
    check(&instance(join(&group, "b", &[&topic])), 0);
}

fn expressions_are_resolved(cluster: &Cluster) {
    let topic = cluster.topic("expressed", 2);
    let (group, mut client) = group(cluster);
    let pattern = format!("{}|none-of-them", topic.name);
    let request = join(&group, "a", &[])
        .with_subscribed_topic_names(None)
        .with_subscribed_topic_regex(Some(text(&pattern)));
    let joined = client.call(1, &request);
    assert_eq!((joined.member_epoch, assigned(&joined)), (1, Some(vec![])));
    assert_eq!(until_assigned(&mut client, &group, "a", 1), (2, vec![0, 1]));
}

fn groups_are_described_listed_and_deleted(cluster: &Cluster) {
    let topic = cluster.topic("described", 2);
    let (group, mut client) = group(cluster);
    client.call(1, &join(&group, "a", &[&topic]).with_rack_id(Some(text("r"))));
    let request = ConsumerGroupDescribeRequest::default()
        .with_group_ids(vec![GroupId(text(&group)), GroupId(text("absent"))]);
    let described = client.call(1, &request);
    let found = &described.groups[0];
    assert_eq!((found.error_code, found.group_state.as_str()), (0, "Stable"));
    assert_eq!((found.group_epoch, found.assignment_epoch), (2, 2));
    assert_eq!(found.assignor_name.as_str(), "uniform");
    let member = &found.members[0];
    assert_eq!((member.member_id.as_str(), member.member_epoch, member.member_type), ("a", 2, 1));
    assert_eq!((member.rack_id.as_deref(), member.instance_id.as_deref()), (Some("r"), None));
    assert_eq!(member.client_host.as_str(), "/127.0.0.1");
    for assignment in [&member.assignment, &member.target_assignment] {
        let topics = &assignment.topic_partitions;
        assert_eq!((topics[0].topic_id, topics[0].partitions.clone()), (topic.id, vec![0, 1]));
        assert_eq!(topics[0].topic_name, topic.wire_name());
    }
    assert_ne!(described.groups[1].error_code, 0);
    let classic = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(&group))]);
    let answer = client.call(6, &classic);
    assert_eq!((answer.groups[0].error_code, answer.groups[0].group_state.as_str()), (69, "Dead"));
    let list = ListGroupsRequest::default().with_types_filter(vec![text("consumer")]);
    let listed = client.call(5, &list).groups;
    let listed = listed.iter().find(|listed| listed.group_id.as_str() == group).expect("listed");
    assert_eq!(
        (listed.protocol_type.as_str(), listed.group_state.as_str(), listed.group_type.as_str()),
        ("consumer", "Stable", "consumer")
    );
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text(&group))]);
    assert_eq!(client.call(2, &delete).results[0].error_code, 68);
    client.call(1, &beat(&group, "a", -1));
    assert_eq!(client.call(2, &delete).results[0].error_code, 0);
    assert_eq!(client.call(1, &request).groups[0].error_code, 69);
}

fn commits_need_the_members_epoch(cluster: &Cluster) {
    let topic = cluster.topic("committed", 1);
    let (group, mut client) = group(cluster);
    client.call(1, &join(&group, "a", &[&topic]));
    let check = |client: &mut Client, version: i16, member: &str, epoch: i32, code: i16| {
        let mut request = offsets::commit(version, &group, &topic, 0, 5);
        request.0.member_id = text(member);
        request.0.generation_id_or_member_epoch = epoch;
        assert_eq!(commit(client, version, &request), [[(0, code)]], "{member} {epoch}");
    };
    for version in [9, 10] {
        check(&mut client, version, "a", 2, 0);
        check(&mut client, version, "a", 3, 113);
        check(&mut client, version, "a", 1, 113);
        check(&mut client, version, "b", 2, 25);
        check(&mut client, version, "", -1, 25);
    }
    check(&mut client, 8, "a", 2, 35);
    client.call(1, &beat(&group, "a", -1));
    check(&mut client, 9, "", -1, 0);
}

#[test]
fn groups_survive_a_restart() {
    for clean in [true, false] {
        let mut cluster = Cluster::own(cluster::PER_CORE_2);
        let topic = cluster.topic("kept", 2);
        let (group, mut client) = group(&cluster);
        let joined = client.call(1, &join(&group, "a", &[&topic]));
        assert_eq!((joined.member_epoch, assigned(&joined)), (2, Some(vec![0, 1])));
        if clean {
            cluster.broker.terminate();
        } else {
            cluster.broker.kill();
        }
        cluster.broker.restart();
        let mut client = cluster.connect_to(node_of(&cluster, &group));
        let until = Instant::now() + Duration::from_secs(20);
        let answer = loop {
            let answer = client.call(1, &owning(&group, "a", 2, &topic, &[0, 1]));
            if answer.error_code != 14 || Instant::now() > until {
                break answer;
            }
        };
        assert_eq!((answer.error_code, answer.member_epoch, assigned(&answer)), (0, 2, None));
    }
}
