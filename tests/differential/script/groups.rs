//! The classic group protocol, and the tools that look at groups.

use kafka_protocol::messages::JoinGroupRequest;

use crate::peer::Peer;
use crate::support::client::Client;
use crate::support::groups;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;

const JOINS: [i16; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

pub fn ask(peer: &mut Peer) {
    peer.make_topic("t", 2, &[]);
    refusals(peer);
    for version in JOINS {
        life(peer, version);
    }
    static_members(peer);
    two_members(peer);
    others_metadata(peer);
    admin(peer);
}

fn refusals(peer: &mut Peer) {
    for version in JOINS {
        let mut join = |what: &str, change: &dyn Fn(&mut JoinGroupRequest)| {
            let mut request = groups::join(version, &format!("refused-{version}"), "");
            change(&mut request);
            peer.ask(&format!("JoinGroup with {what}"), version, &request);
        };
        join("the empty group id", &|request| request.group_id = Default::default());
        join("a short session timeout", &|request| request.session_timeout_ms = 5_999);
        join("a long session timeout", &|request| request.session_timeout_ms = 1_800_001);
        join("an unknown group", &|request| request.member_id = text("nobody"));
        join("no protocol type", &|request| request.protocol_type = text(""));
        join("an unknown member", &|request| request.member_id = text("nobody"));
        join("no protocols", &|request| request.protocols.clear());
        join("unknown member and no protocols", &|request| {
            request.member_id = text("nobody");
            request.protocols.clear();
        });
        if version >= 5 {
            join("unknown instance", &|request| {
                request.member_id = text("nobody");
                request.group_instance_id = Some(text("nobody"));
            });
        }
    }
    for version in 0..=5 {
        peer.ask("SyncGroup, no group", version, &groups::sync(version, "none", ("m", 1), &[]));
        peer.ask("SyncGroup, empty group", version, &groups::sync(version, "", ("m", 1), &[]));
    }
    let without = |group| {
        groups::sync(5, group, ("m", 1), &[]).with_protocol_name(None).with_protocol_type(None)
    };
    peer.ask("SyncGroup without a protocol", 5, &without("none"));
    peer.ask("SyncGroup without anything", 5, &without(""));
    for version in 0..=4 {
        peer.ask("Heartbeat, no group", version, &groups::heartbeat("none", "m", 1));
        peer.ask("Heartbeat, empty group", version, &groups::heartbeat("", "m", 1));
    }
    for version in 0..=5 {
        peer.ask("LeaveGroup, no group", version, &groups::leave(version, "none", "m", None));
        peer.ask("LeaveGroup, empty group", version, &groups::leave(version, "", "m", None));
    }
}

/// One member through all of its life.
fn life(peer: &mut Peer, version: i16) {
    let group = format!("life-{version}");
    let first = peer.ask("JoinGroup at first", version, &groups::join(version, &group, ""));
    let mut joined = first.expect("an answer");
    let id = joined.member_id.to_string();
    if version >= 4 {
        assert_eq!(joined.error_code, 79);
        let again = peer.ask("JoinGroup with the id", version, &groups::join(version, &group, &id));
        joined = again.expect("an answer");
    }
    assert_eq!((joined.error_code, joined.generation_id), (0, 1), "{}", peer.name);
    let id = id.as_str();
    let sync = (version + 1) / 2;
    let beat = (version / 2).min(4);
    let describe = version.min(6);
    peer.ask("Heartbeat before the sync", beat, &groups::heartbeat(&group, id, 1));
    peer.ask("DescribeGroups, completing", describe, &groups::describe(&[&group]));
    commits(peer, "completing", &group, id, 1);
    peer.ask("JoinGroup again", version, &groups::join(version, &group, id));
    peer.ask("SyncGroup too late", sync, &groups::sync(sync, &group, (id, 0), &[]));
    peer.ask("SyncGroup too early", sync, &groups::sync(sync, &group, (id, 2), &[]));
    peer.ask("SyncGroup of another", sync, &groups::sync(sync, &group, ("x", 1), &[]));
    let mut other = groups::sync(5, &group, (id, 1), &[]);
    other.protocol_name = Some(text("sticky"));
    peer.ask("SyncGroup of another protocol", 5, &other);
    peer.ask("SyncGroup", sync, &groups::sync(sync, &group, (id, 1), &[(id, b"mine")]));
    peer.ask("SyncGroup once more", sync, &groups::sync(sync, &group, (id, 1), &[]));
    peer.ask("DescribeGroups, stable", describe, &groups::describe(&[&group]));
    peer.ask("Heartbeat", beat, &groups::heartbeat(&group, id, 1));
    peer.ask("Heartbeat too late", beat, &groups::heartbeat(&group, id, 0));
    peer.ask("Heartbeat of another", beat, &groups::heartbeat(&group, "x", 1));
    if beat >= 3 {
        let request = groups::heartbeat(&group, id, 1).with_group_instance_id(Some(text("nobody")));
        peer.ask("Heartbeat of an unknown instance", beat, &request);
    }
    commits(peer, "stable", &group, id, 1);
    let delete = |topic| offsets::delete(&group, topic, &[0]);
    peer.ask(&format!("OffsetDelete, subscribed ({version})"), 0, &delete("t"));
    let mut other = groups::join(version, &group, "");
    other.protocol_type = text("connect");
    peer.ask("JoinGroup of another type", version, &other);
    let mut other = groups::join(version, &group, id);
    other.protocols[0].name = text("sticky");
    peer.ask("JoinGroup of another protocol", version, &other);
    peer.ask("JoinGroup of the leader", version, &groups::join(version, &group, id));
    peer.ask("SyncGroup, left out", sync, &groups::sync(sync, &group, (id, 2), &[("x", b"y")]));
    let delete = version.min(2);
    peer.ask("DeleteGroups, with members", delete, &groups::delete(&[&group]));
    let leave = (version + 1) / 2;
    peer.ask("LeaveGroup of another", leave, &groups::leave(leave, &group, "x", None));
    if leave >= 3 {
        let request = groups::leave(leave, &group, id, Some("nobody"));
        peer.ask("LeaveGroup of an unknown instance", leave, &request);
        let request = groups::leave(leave, &group, "", Some("nobody"));
        peer.ask("LeaveGroup by an unknown instance", leave, &request);
    }
    peer.ask("LeaveGroup", leave, &groups::leave(leave, &group, id, None));
    peer.ask("LeaveGroup twice", leave, &groups::leave(leave, &group, id, None));
    peer.ask("DescribeGroups, empty", describe, &groups::describe(&[&group]));
    peer.ask("Heartbeat, empty", beat, &groups::heartbeat(&group, id, 3));
    peer.ask("SyncGroup, empty", sync, &groups::sync(sync, &group, (id, 3), &[]));
    commits(peer, "empty", &group, id, 3);
    peer.ask("DeleteGroups", delete, &groups::delete(&[&group]));
    peer.ask("DeleteGroups twice", delete, &groups::delete(&[&group, &group]));
    peer.ask("DescribeGroups, deleted", describe, &groups::describe(&[&group, ""]));
}

fn commits(peer: &mut Peer, when: &str, group: &str, id: &str, generation: i32) {
    let topic = Topic { name: "t".to_owned(), id: peer.ids["t"] };
    for version in 2..=10 {
        let mut commit = |who: &str, member: &str, generation: i32| {
            let mut request = offsets::commit(version, group, &topic, 0, 5);
            request.0.member_id = text(member);
            request.0.generation_id_or_member_epoch = generation;
            peer.ask(&format!("OffsetCommit, {group} {when}, {who}"), version, &request);
        };
        commit("a member", id, generation);
        commit("too late", id, generation - 1);
        commit("without a generation", id, -1);
        commit("a stranger", "x", generation);
        commit("nobody", "", -1);
    }
}

fn static_members(peer: &mut Peer) {
    for version in [5, 7, 8, 9] {
        let group = format!("static-{version}");
        let request = groups::static_join(version, &group, "", "i");
        let joined = peer.ask("JoinGroup, static", version, &request).expect("an answer");
        let old = joined.member_id.to_string();
        peer.ask("SyncGroup, static", 5, &groups::sync(5, &group, (&old, 1), &[(&old, b"mine")]));
        let joined = peer.ask("JoinGroup, replacing", version, &request).expect("an answer");
        let new = joined.member_id.to_string();
        peer.ask("DescribeGroups, static", 4, &groups::describe(&[&group]));
        peer.ask("SyncGroup, replacing", 5, &groups::sync(5, &group, (&new, 1), &[]));
        let fenced = groups::static_join(version, &group, &old, "i");
        peer.ask("JoinGroup, replaced", version, &fenced);
        let instance = Some(text("i"));
        let request = groups::sync(3, &group, (&old, 1), &[]);
        let request = request.with_group_instance_id(instance.clone());
        peer.ask("SyncGroup, replaced", 3, &request);
        let request = groups::heartbeat(&group, &old, 1).with_group_instance_id(instance.clone());
        peer.ask("Heartbeat, replaced", 3, &request);
        let mut request = offsets::commit(7, &group, &Topic::named("t"), 0, 5);
        request.0.member_id = text(&old);
        request.0.generation_id_or_member_epoch = 1;
        request.0.group_instance_id = instance;
        peer.ask("OffsetCommit, replaced", 7, &request);
        peer.ask("LeaveGroup, replaced", 3, &groups::leave(3, &group, &old, Some("i")));
        peer.ask("LeaveGroup by instance", 3, &groups::leave(3, &group, "", Some("i")));
        peer.ask("DescribeGroups, static gone", 4, &groups::describe(&[&group]));
    }
}

/// A second member comes on a connection of its own, and the group rebalances.
fn two_members(peer: &mut Peer) {
    for version in [3, 5, 7, 9] {
        let group = format!("two-{version}");
        let mut second = peer.connect();
        let first = enter(peer, version, &group);
        peer.number(&first);
        let id = enter_later(&mut second, version, &group);
        peer.number(&id);
        let sent = second.send(version, &groups::join(version, &group, &id));
        peer.until("a rebalance", |peer| {
            peer.call(0, &groups::heartbeat(&group, &first, 1)).error_code == 27
        });
        peer.ask("Heartbeat, preparing", 3, &groups::heartbeat(&group, &first, 1));
        peer.ask("SyncGroup, preparing", 3, &groups::sync(3, &group, (&first, 1), &[]));
        peer.ask("DescribeGroups, preparing", 4, &groups::describe(&[&group]));
        commits(peer, "preparing", &group, &first, 1);
        peer.ask("JoinGroup of two", version, &groups::join(version, &group, &first));
        let mut joined = second.receive(sent);
        let id = joined.member_id.to_string();
        peer.keep_answer(&format!("JoinGroup of the second v{version}"), &joined);
        let sent = second.send(3, &groups::sync(3, &group, (&id, 2), &[]));
        peer.ask("SyncGroup of two", 3, &groups::sync(3, &group, (&first, 2), &[(&id, b"all")]));
        peer.keep_answer("SyncGroup of the second v3", &second.receive(sent));
        peer.ask("DescribeGroups of two", 4, &groups::describe(&[&group]));
        joined = peer
            .ask("JoinGroup of a follower", version, &groups::join(version, &group, &id))
            .expect("an answer");
        assert_eq!(joined.generation_id, 2);
        let mut both = groups::leave(3, &group, &first, None);
        both.members.extend(groups::leave(3, &group, &id, None).members);
        peer.ask("LeaveGroup of two", 3, &both);
        peer.ask("DescribeGroups, both gone", 4, &groups::describe(&[&group]));
    }
}

/// The only member of a stable group in its first generation.
fn enter(peer: &mut Peer, version: i16, group: &str) -> String {
    let mut joined = peer.call_to_keep(version, &groups::join(version, group, ""));
    let id = joined.member_id.to_string();
    if joined.error_code == 79 {
        joined = peer.call(version, &groups::join(version, group, &id));
    }
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let synced = peer.call(3, &groups::sync(3, group, (&id, 1), &[(&id, b"mine")]));
    assert_eq!(synced.error_code, 0);
    id
}

/// A member id for somebody who joins then; none in versions that give none.
fn enter_later(client: &mut Client, version: i16, group: &str) -> String {
    if version < 4 {
        return String::new();
    }
    client.call(version, &groups::join(version, group, "")).member_id.to_string()
}

fn others_metadata(peer: &mut Peer) {
    for (kind, topic) in [("connect", 68), ("consumer", 86)] {
        let group = format!("odd-{kind}");
        let mut request = groups::join(3, &group, "");
        request.protocol_type = text(kind);
        request.protocols[0].metadata = (&b"\xff"[..]).into();
        let joined = peer.ask("JoinGroup with odd metadata", 3, &request).expect("an answer");
        let id = joined.member_id.to_string();
        peer.ask("SyncGroup, odd", 3, &groups::sync(3, &group, (&id, 1), &[(&id, b"\xfe")]));
        peer.ask("DescribeGroups, odd", 4, &groups::describe(&[&group]));
        let case = format!("OffsetDelete of {kind} gives {topic}");
        peer.ask(&case, 0, &offsets::delete(&group, "t", &[0]));
        peer.ask("LeaveGroup, odd", 3, &groups::leave(3, &group, &id, None));
        peer.ask(&format!("{case}, empty"), 0, &offsets::delete(&group, "t", &[0]));
        peer.call(2, &groups::delete(&[&group]));
    }
}

fn admin(peer: &mut Peer) {
    enter(peer, 9, "listed");
    let left = peer.call(5, &groups::list(&[], &[]));
    let names: Vec<String> = left.groups.iter().map(|group| group.group_id.to_string()).collect();
    // What earlier parts of the script have left there, but for these.
    let others: Vec<&str> =
        names.iter().map(|name| &**name).filter(|name| *name != "listed").collect();
    peer.call(2, &groups::delete(&others));
    peer.call(9, &offsets::commit(9, "by-hand", &Topic::named("t"), 0, 5));
    for version in 0..=5 {
        peer.ask("ListGroups", version, &groups::list(&[], &[]));
        if version >= 4 {
            peer.ask("ListGroups, stable", version, &groups::list(&["sTable", "x"], &[]));
            peer.ask("ListGroups, empty", version, &groups::list(&["Empty"], &[]));
            peer.ask("ListGroups, nonsense", version, &groups::list(&["nonsense"], &[]));
        }
    }
    for types in [&["classic"][..], &["Classic"], &["consumer"], &["nonsense"], &["x", "classic"]] {
        peer.ask(&format!("ListGroups of {types:?}"), 5, &groups::list(&[], types));
    }
    peer.ask("ListGroups of both", 5, &groups::list(&["Empty"], &["classic"]));
    for version in 0..=6 {
        let mut request = groups::describe(&["listed", "by-hand", "none"]);
        peer.ask("DescribeGroups", version, &request);
        if version >= 3 {
            request.include_authorized_operations = true;
            peer.ask("DescribeGroups, what is allowed", version, &request);
        }
    }
    peer.ask("DeleteGroups of several", 2, &groups::delete(&["listed", "by-hand", "none", ""]));
    peer.ask("DescribeGroups of what is left", 6, &groups::describe(&["listed", "by-hand"]));
}
