//! Groups whose members speak the classic protocol and that of KIP-848, and groups that become of
//! the other kind.

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, GroupId, JoinGroupRequest,
};

use super::consumer_groups::{beat, join as join_consumer};
use crate::peer::Peer;
use crate::support::groups;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;

pub fn ask(peer: &mut Peer) {
    upgrade_and_back(peer);
    refusals(peer);
    leaving(peer);
    static_members(peer);
    unfit(peer);
    empty_groups(peer);
}

/// A member of the classic protocol that reads `consumed`.
fn join(version: i16, group: &str, member: &str) -> JoinGroupRequest {
    let mut request = groups::join(version, group, member);
    request.protocols[0].metadata = groups::subscription("consumed");
    request
}

fn static_join(version: i16, group: &str, member: &str) -> JoinGroupRequest {
    join(version, group, member).with_group_instance_id(Some(text("i")))
}

/// Joins as a member of the classic protocol that is alone in its group, and has all of it.
fn enter(peer: &mut Peer, group: &str, instance: Option<&str>) -> String {
    let request = |member: &str| match instance {
        Some(_) => static_join(9, group, member),
        None => join(9, group, member),
    };
    let mut joined = peer.call_to_keep(9, &request(""));
    let id = joined.member_id.to_string();
    if joined.error_code == 79 {
        joined = peer.call(9, &request(&id));
    }
    assert_eq!((joined.error_code, joined.generation_id), (0, 1), "{}", peer.name);
    peer.number(&id);
    let synced = peer.call(3, &groups::sync(3, group, (&id, 1), &[(&id, ALL)]));
    assert_eq!(synced.error_code, 0);
    id
}

fn describe(peer: &mut Peer, when: &str, group: &str) {
    let request =
        ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text(group))]);
    for version in 0..=1 {
        peer.ask(&format!("ConsumerGroupDescribe, {when}"), version, &request);
    }
    for version in 5..=6 {
        peer.ask(&format!("DescribeGroups, {when}"), version, &groups::describe(&[group]));
    }
    let mut listed = peer.call_to_keep(5, &groups::list(&[], &[]));
    listed.groups.retain(|listed| &*listed.group_id.0 == group);
    peer.keep_answer(&format!("ListGroups, {when}"), &listed);
}

fn upgrade_and_back(peer: &mut Peer) {
    let group = "to-and-fro";
    let id = &*enter(peer, group, None);
    peer.ask("a consumer joins a classic group", 1, &join_consumer(group, "n"));
    describe(peer, "just upgraded", group);
    for version in 0..=4 {
        peer.ask("Heartbeat, upgraded", version, &groups::heartbeat(group, id, 1));
    }
    for version in 0..=5 {
        peer.ask("SyncGroup, upgraded", version, &groups::sync(version, group, (id, 1), &[]));
    }
    commits(peer, "upgraded", group, &[(id, 1), (id, 2), ("n", 2), ("n", 1), ("x", 1), ("", -1)]);
    // It has given up all that it had.
    for version in 0..=9 {
        peer.ask("JoinGroup, upgraded", version, &join(version, group, id));
    }
    peer.ask("Heartbeat before the sync, upgraded", 4, &groups::heartbeat(group, id, 2));
    for version in 0..=5 {
        peer.ask("SyncGroup, joined", version, &groups::sync(version, group, (id, 2), &[]));
    }
    peer.ask("Heartbeat, joined", 4, &groups::heartbeat(group, id, 2));
    peer.ask("Heartbeat of the last generation", 4, &groups::heartbeat(group, id, 1));
    peer.ask("the consumer gets what is free", 1, &beat(group, "n", 2));
    commits(peer, "joined", group, &[(id, 2), (id, 1), (id, 3)]);
    describe(peer, "settled", group);
    peer.ask("the consumer leaves", 1, &beat(group, "n", -1));
    describe(peer, "just downgraded", group);
    peer.ask("the consumer after it left", 1, &beat(group, "n", 2));
    peer.ask("the consumer leaves again", 1, &beat(group, "n", -1));
    peer.ask("Heartbeat, downgraded", 4, &groups::heartbeat(group, id, 2));
    peer.ask("SyncGroup, downgraded", 5, &groups::sync(5, group, (id, 2), &[]));
    peer.ask("JoinGroup, downgraded", 9, &join(9, group, id));
    peer.ask("SyncGroup, led", 5, &groups::sync(5, group, (id, 3), &[(id, ALL)]));
    describe(peer, "stable again", group);
    peer.ask("a consumer joins once more", 1, &join_consumer(group, "o"));
    peer.ask("LeaveGroup, upgraded again", 4, &groups::leave(4, group, id, None));
    describe(peer, "one kind only", group);
    peer.ask("LeaveGroup of a consumer", 4, &groups::leave(4, group, "o", None));
    describe(peer, "nobody", group);
}

fn commits(peer: &mut Peer, when: &str, group: &str, by: &[(&str, i32)]) {
    let topic = Topic { name: "consumed".to_owned(), id: peer.ids["consumed"] };
    for version in 2..=10 {
        for (place, (member, epoch)) in by.iter().enumerate() {
            let mut request = offsets::commit(version, group, &topic, 0, 5);
            request.0.member_id = text(member);
            request.0.generation_id_or_member_epoch = *epoch;
            let what = format!("OffsetCommit, {when}, {place} in {epoch}");
            peer.ask(&what, version, &request);
        }
    }
}

fn refusals(peer: &mut Peer) {
    let group = "mixed-refusals";
    let id = &*enter(peer, group, None);
    peer.ask("a consumer joins", 1, &join_consumer(group, "n"));
    for version in [3, 4, 9] {
        let mut refused = |what: &str, change: &dyn Fn(&mut JoinGroupRequest)| {
            let mut request = join(version, group, "");
            change(&mut request);
            peer.ask(&format!("JoinGroup to a mixed group, {what}"), version, &request);
        };
        refused("another protocol", &|request| request.protocols[0].name = text("sticky"));
        refused("another type", &|request| request.protocol_type = text("connect"));
        refused("no protocols", &|request| request.protocols.clear());
        refused("a short session timeout", &|request| request.session_timeout_ms = 5_999);
        refused("malformed metadata", &|request| {
            request.member_id = text("odd");
            request.protocols[0].metadata = (&b"\xff"[..]).into();
        });
        if version >= 5 {
            refused("an unknown instance", &|request| {
                request.member_id = text("x");
                request.group_instance_id = Some(text("i"));
            });
        }
    }
    peer.ask("JoinGroup with an id of its own", 9, &join(9, group, "own"));
    peer.ask("SyncGroup with an id of its own", 5, &groups::sync(5, group, ("own", 3), &[]));
    peer.ask("LeaveGroup with an id of its own", 4, &groups::leave(4, group, "own", None));
    peer.ask("Heartbeat of a consumer", 4, &groups::heartbeat(group, "n", 2));
    peer.ask("SyncGroup of a consumer", 5, &groups::sync(5, group, ("n", 2), &[]));
    peer.ask("Heartbeat of nobody", 4, &groups::heartbeat(group, "x", 1));
    peer.ask("SyncGroup of nobody", 5, &groups::sync(5, group, ("x", 1), &[]));
    peer.ask("SyncGroup of the future", 5, &groups::sync(5, group, (id, 9), &[]));
    let mut other = groups::sync(5, group, (id, 1), &[]);
    other.protocol_name = Some(text("sticky"));
    peer.ask("SyncGroup of another protocol, mixed", 5, &other);
    other.protocol_type = Some(text("connect"));
    peer.ask("SyncGroup of another type, mixed", 5, &other);
    for version in 0..=5 {
        peer.ask("LeaveGroup of nobody", version, &groups::leave(version, group, "x", None));
        if version >= 3 {
            let request = groups::leave(version, group, "", Some("j"));
            peer.ask("LeaveGroup of no instance", version, &request);
        }
    }
    peer.ask("DeleteGroups, mixed", 2, &groups::delete(&[group]));
    peer.ask("OffsetDelete, mixed", 0, &offsets::delete(group, "consumed", &[0]));
}

/// What LeaveGroup of several does to a mixed group.
fn leaving(peer: &mut Peer) {
    let group = "mixed-leaving";
    let id = &*enter(peer, group, None);
    peer.ask("a consumer joins that will be removed", 1, &join_consumer(group, "n"));
    peer.ask("a member with an id of its own", 9, &join(9, group, "own"));
    let mut both = groups::leave(4, group, "n", None);
    both.members.extend(groups::leave(4, group, "own", None).members);
    both.members.extend(groups::leave(4, group, "own", None).members);
    peer.ask("LeaveGroup of both kinds", 4, &both);
    describe(peer, "downgraded by LeaveGroup", group);
    peer.ask("Heartbeat of the one that is left", 4, &groups::heartbeat(group, id, 1));
    peer.ask("LeaveGroup of the last", 4, &groups::leave(4, group, id, None));
}

fn static_members(peer: &mut Peer) {
    let group = "mixed-static";
    let of = |request: ConsumerGroupHeartbeatRequest| request.with_instance_id(Some(text("i")));
    let id = &*enter(peer, group, Some("i"));
    peer.ask("a static member comes back as a consumer", 1, &of(join_consumer(group, "n")));
    describe(peer, "all consumers", group);
    let request = groups::heartbeat(group, id, 1).with_group_instance_id(Some(text("i")));
    peer.ask("Heartbeat of the one replaced", 4, &request);
    // And back: nothing but the protocol has changed, so that nobody has to join again.
    let mut joined = peer.call_to_keep(9, &static_join(9, group, ""));
    let id = joined.member_id.to_string();
    joined.member_id = text("made up");
    peer.keep_answer("JoinGroup, replacing a consumer", &joined);
    let mut described = peer.call_to_keep(6, &groups::describe(&[group]));
    described.groups[0].members[0].member_id = text("made up");
    peer.keep_answer("DescribeGroups, all classic", &described);
    peer.ask("SyncGroup, replacing a consumer", 5, &groups::sync(5, group, (&id, 1), &[]));
    peer.ask("a consumer comes again", 1, &of(join_consumer(group, "m")));
    let mut request = static_join(9, group, "");
    request.protocols[0].metadata = groups::subscription("t");
    let mut joined = peer.call_to_keep(9, &request);
    joined.member_id = text("made up");
    peer.keep_answer("JoinGroup, replacing with another subscription", &joined);
    let mut described = peer.call_to_keep(6, &groups::describe(&[group]));
    described.groups[0].members[0].member_id = text("made up");
    peer.keep_answer("DescribeGroups, joining", &described);
}

/// Groups that cannot be upgraded.
fn unfit(peer: &mut Peer) {
    for (what, assignment) in
        [("malformed", &b"\0\0garbage"[..]), ("custom", b"\0\0\0\0\0\0\0\0\0\x01z"), ("empty", b"")]
    {
        let group = format!("unfit-{what}");
        let id = &*enter(peer, &group, None);
        let mut rejoin = join(9, &group, id);
        rejoin.protocols[0].metadata = groups::subscription("t");
        let joined = peer.call(9, &rejoin);
        assert_eq!((joined.error_code, joined.generation_id), (0, 2));
        let synced = peer.call(3, &groups::sync(3, &group, (id, 2), &[(id, assignment)]));
        assert_eq!(synced.error_code, 0);
        let case = format!("a consumer joins a group with a {what} assignment");
        peer.ask(&case, 1, &join_consumer(&group, "n"));
        describe(peer, &format!("{what} assignment"), &group);
    }
    for (kind, metadata) in [("connect", &b"\xff"[..]), ("consumer", b"\xff")] {
        let group = format!("unfit-{kind}");
        let mut request = groups::join(3, &group, "");
        request.protocol_type = text(kind);
        request.protocols[0].metadata = metadata.into();
        let id = peer.call(3, &request).member_id.to_string();
        peer.number(&id);
        peer.call(3, &groups::sync(3, &group, (&id, 1), &[(&id, b"\0\0\0\0\0\0\xff\xff\xff\xff")]));
        let case = format!("a consumer joins a group of {kind} with odd metadata");
        peer.ask(&case, 1, &join_consumer(&group, "n"));
        peer.ask(&format!("{case}, with an epoch"), 1, &beat(&group, "n", 3));
        peer.ask(&format!("{case}, leaving"), 1, &beat(&group, "n", -1));
    }
}

/// Groups without members take on the kind of who joins first.
fn empty_groups(peer: &mut Peer) {
    let group = "emptied";
    let id = &*enter(peer, group, None);
    commits(peer, "before it is empty", group, &[(id, 1)]);
    peer.ask("LeaveGroup, the only one", 4, &groups::leave(4, group, id, None));
    peer.ask("a consumer joins an empty classic group", 1, &join_consumer(group, "n"));
    let owned =
        TopicPartitions::default().with_topic_id(peer.ids["consumed"]).with_partitions(vec![0, 1]);
    let full =
        join_consumer(group, "n").with_member_epoch(2).with_topic_partitions(Some(vec![owned]));
    peer.ask("the consumer says all", 1, &full);
    let fetch = offsets::fetch(9, group, &Topic::named("consumed"), &[0, 1]);
    peer.ask("OffsetFetch of a converted group", 9, &fetch);
    peer.ask("the only consumer leaves", 1, &beat(group, "n", -1));
    peer.ask("JoinGroup to an empty consumer group", 9, &join(9, group, ""));
    describe(peer, "emptied of consumers", group);
    peer.ask("OffsetFetch of a group converted twice", 9, &fetch);
}

/// Both partitions of `consumed`, in version 1.
const ALL: &[u8] = b"\0\x01\0\0\0\x01\0\x08consumed\0\0\0\x02\0\0\0\0\0\0\0\x01\xff\xff\xff\xff";
