//! Consumer groups of KIP-848.

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, GroupId, TopicName,
};
use uuid::Uuid;

use crate::peer::Peer;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;

type Beat = ConsumerGroupHeartbeatRequest;

pub fn ask(peer: &mut Peer) {
    peer.make_topic("consumed", 2, &[]);
    for version in 0..=1 {
        refusals(peer, version);
        life(peer, version);
    }
    static_members(peer);
    commits(peer);
}

pub fn beat(group: &str, member: &str, epoch: i32) -> Beat {
    Beat::default()
        .with_group_id(GroupId(text(group)))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None)
}

pub fn join(group: &str, member: &str) -> Beat {
    beat(group, member, 0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![TopicName(text("consumed"))]))
        .with_topic_partitions(Some(Vec::new()))
}

fn refusals(peer: &mut Peer, version: i16) {
    let group = format!("refusing-{version}");
    let owned = || {
        let topic = TopicPartitions::default().with_topic_id(Uuid::nil()).with_partitions(vec![0]);
        Some(vec![topic])
    };
    let requests: [(&str, Beat); 14] = [
        ("no group", beat(&group, "m", 3)),
        ("leaving no group", beat(&group, "m", -1)),
        ("the empty group id", beat("", "m", 3)),
        ("no member id", beat(&group, "", 3)),
        ("leaving without a member id", beat(&group, "", -1)),
        ("an epoch that is none", beat(&group, "m", -3)),
        ("leaving for a while as a dynamic member", beat(&group, "m", -2)),
        ("joining without a timeout", join(&group, "m").with_rebalance_timeout_ms(-1)),
        ("joining without owned", join(&group, "m").with_topic_partitions(None)),
        ("joining with owned", join(&group, "m").with_topic_partitions(owned())),
        ("joining without topics", join(&group, "m").with_subscribed_topic_names(None)),
        ("a blank instance", join(&group, "m").with_instance_id(Some(text(" ")))),
        ("a blank rack", join(&group, "m").with_rack_id(Some(text("")))),
        ("an unknown assignor", join(&group, "m").with_server_assignor(Some(text("mine")))),
    ];
    for (what, request) in &requests {
        peer.ask(&format!("ConsumerGroupHeartbeat, {what}"), version, request);
    }
    let request =
        ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text(&group))]);
    peer.ask("ConsumerGroupDescribe, no group", version, &request);
}

fn life(peer: &mut Peer, version: i16) {
    let group = format!("living-{version}");
    let mut heartbeat = |what: &str, request: &Beat| {
        peer.ask(&format!("ConsumerGroupHeartbeat, {what}"), version, request);
    };
    heartbeat("joining", &join(&group, "m"));
    heartbeat("joining again", &join(&group, "m"));
    heartbeat("staying", &beat(&group, "m", 2));
    heartbeat("saying all", &join(&group, "m").with_member_epoch(2));
    heartbeat("an older epoch", &beat(&group, "m", 1));
    heartbeat("a newer epoch", &beat(&group, "m", 3));
    heartbeat("an unknown member", &beat(&group, "x", 2));
    heartbeat("an unknown member leaving", &beat(&group, "x", -1));
    let request = ConsumerGroupDescribeRequest::default()
        .with_group_ids(vec![GroupId(text(&group))])
        .with_include_authorized_operations(true);
    peer.ask("ConsumerGroupDescribe", version, &request);
    let mut heartbeat = |what: &str, request: &Beat| {
        peer.ask(&format!("ConsumerGroupHeartbeat, {what}"), version, request);
    };
    heartbeat("leaving", &beat(&group, "m", -1));
    heartbeat("after leaving", &beat(&group, "m", 2));
    peer.ask("ConsumerGroupDescribe, empty", version, &request);
}

fn static_members(peer: &mut Peer) {
    let group = "static-members";
    let of = |request: Beat| request.with_instance_id(Some(text("i")));
    let mut heartbeat = |what: &str, request: &Beat| {
        peer.ask(&format!("ConsumerGroupHeartbeat, static, {what}"), 1, request);
    };
    heartbeat("joining", &of(join(group, "a")));
    heartbeat("joining as another", &of(join(group, "b")));
    heartbeat("staying as another", &of(beat(group, "b", 2)));
    heartbeat("an unknown instance", &beat(group, "a", 2).with_instance_id(Some(text("j"))));
    heartbeat("leaving for a while", &of(beat(group, "a", -2)));
    heartbeat("coming back as another", &of(join(group, "b")));
    heartbeat("staying as the old one", &of(beat(group, "a", 2)));
    heartbeat("leaving", &of(beat(group, "b", -1)));
    heartbeat("after leaving", &of(beat(group, "b", 2)));
}

fn commits(peer: &mut Peer) {
    let group = "committing";
    peer.ask("ConsumerGroupHeartbeat, joining", 1, &join(group, "m"));
    let topic = Topic { name: "consumed".to_owned(), id: peer.ids["consumed"] };
    for version in 2..=10 {
        for (member, epoch) in [("m", 2), ("m", 1), ("m", 3), ("x", 2), ("", -1), ("m", -1)] {
            let mut request = offsets::commit(version, group, &topic, 0, 5);
            request.0.member_id = text(member);
            request.0.generation_id_or_member_epoch = epoch;
            let what = format!("OffsetCommit of a consumer group, {member:?} in {epoch}");
            peer.ask(&what, version, &request);
        }
    }
}
