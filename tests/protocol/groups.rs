//! Classic groups over the wire: members on connections of their own, tools, restarts.

use std::time::{Duration, Instant};

use kafka_protocol::messages::JoinGroupResponse;

use crate::cluster::{self, Cluster, Mode, unique};
use crate::group_offsets::{group, node_of};
use crate::support::client::Client;
use crate::support::groups;
use crate::support::offsets::{self, text};

in_every_mode!(
    one_member_at_every_version,
    a_rebalance_over_several_connections,
    a_parked_join_holds_what_comes_after_it,
    a_client_that_goes_away_is_let_go,
    codes_are_kafkas,
    another_nodes_groups_are_refused,
    groups_are_listed_described_and_deleted,
);

/// Joins, with the member id that is asked for where one is needed.
fn enter(client: &mut Client, version: i16, group: &str) -> JoinGroupResponse {
    let first = client.call(version, &groups::join(version, group, ""));
    if first.error_code != 79 {
        return first;
    }
    assert!(version >= 4);
    client.call(version, &groups::join(version, group, &first.member_id))
}

/// The only member of a stable group; its id.
fn settle(client: &mut Client, group: &str) -> String {
    let joined = enter(client, 9, group);
    assert_eq!((joined.error_code, joined.generation_id), (0, 1), "{group}");
    let id = joined.member_id.to_string();
    let synced = client.call(5, &groups::sync(5, group, (&id, 1), &[(&id, b"mine")]));
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
    id
}

fn state(client: &mut Client, group: &str) -> String {
    client.call(5, &groups::describe(&[group])).groups[0].group_state.to_string()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn one_member_at_every_version(cluster: &Cluster) {
    for version in 0..=9 {
        let (group, mut client) = group(cluster);
        let joined = enter(&mut client, version, &group);
        assert_eq!((joined.error_code, joined.generation_id), (0, 1), "v{version}");
        let id = joined.member_id.to_string();
        assert!(id.starts_with("raw-client-") && id.len() == 11 + 36, "{id}");
        assert_eq!(joined.leader, joined.member_id);
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        assert_eq!(joined.protocol_type.as_deref(), (version >= 7).then_some("consumer"));
        assert_eq!(joined.members.len(), 1);
        assert_eq!(joined.members[0].metadata, groups::subscription("t"));
        let sync = version.min(5);
        let request = groups::sync(sync, &group, (&id, 1), &[(&id, b"mine")]);
        let synced = client.call(sync, &request);
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
        let beat = version.min(4);
        let code = client.call(beat, &groups::heartbeat(&group, &id, 1)).error_code;
        assert_eq!(code, 0);
        let leave = version.min(5);
        let left = client.call(leave, &groups::leave(leave, &group, &id, None));
        assert_eq!((left.error_code, left.members.len()), (0, usize::from(leave >= 3)));
        let code = client.call(beat, &groups::heartbeat(&group, &id, 1)).error_code;
        assert_eq!(code, 25);
        assert_eq!(state(&mut client, &group), "Empty");
    }
}

fn a_rebalance_over_several_connections(cluster: &Cluster) {
    let (group, mut first) = group(cluster);
    let node = node_of(cluster, &group);
    let leader = settle(&mut first, &group);
    let mut others: Vec<Client> = (0..3).map(|_| cluster.connect_to(node)).collect();
    let sent: Vec<_> =
        others.iter_mut().map(|client| client.send(3, &groups::join(3, &group, ""))).collect();
    until("a rebalance", || {
        let described = first.call(5, &groups::describe(&[&group]));
        first.call(4, &groups::heartbeat(&group, &leader, 1)).error_code == 27
            && described.groups[0].members.len() == 4
    });
    let joined = first.call(9, &groups::join(9, &group, &leader));
    assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (0, 2, 4));
    assert_eq!(joined.leader.as_str(), leader);
    let mut ids = Vec::new();
    for (client, sent) in others.iter_mut().zip(sent) {
        let joined = client.receive(sent);
        assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (0, 2, 0));
        assert_eq!(joined.leader.as_str(), leader);
        ids.push(joined.member_id.to_string());
    }
    let synced: Vec<_> = others
        .iter_mut()
        .zip(&ids)
        .map(|(client, id)| client.send(3, &groups::sync(3, &group, (id, 2), &[])))
        .collect();
    others[0].expect_silence(Duration::from_millis(50));
    let assigned = [(&*ids[0], &b"a"[..]), (&*ids[1], b"b"), (&*leader, b"x")];
    let request = groups::sync(3, &group, (&leader, 2), &assigned);
    assert_eq!(&first.call(3, &request).assignment[..], b"x");
    let expected: [&[u8]; 3] = [b"a", b"b", b""];
    for ((client, sent), expected) in others.iter_mut().zip(synced).zip(expected) {
        let synced = client.receive(sent);
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, expected));
    }
    let described = first.call(5, &groups::describe(&[&group]));
    let described = &described.groups[0];
    assert_eq!((&*described.group_state, &*described.protocol_data), ("Stable", "range"));
    assert!(described.members.iter().all(|member| &*member.client_host == "/127.0.0.1"));
    assert!(described.members.iter().all(|member| &*member.client_id == "raw-client"));
}

fn a_parked_join_holds_what_comes_after_it(cluster: &Cluster) {
    let (group, mut first) = group(cluster);
    let leader = settle(&mut first, &group);
    let mut second = cluster.connect_to(node_of(cluster, &group));
    let join = second.send(3, &groups::join(3, &group, ""));
    let after = second.send(4, &groups::heartbeat(&group, "nobody", 1));
    second.expect_silence(Duration::from_millis(100));
    let joined = first.call(9, &groups::join(9, &group, &leader));
    assert_eq!(joined.generation_id, 2);
    assert_eq!(second.receive(join).generation_id, 2);
    assert_eq!(second.receive(after).error_code, 25);
}

fn a_client_that_goes_away_is_let_go(cluster: &Cluster) {
    let (group, mut first) = group(cluster);
    let leader = settle(&mut first, &group);
    let mut second = cluster.connect_to(node_of(cluster, &group));
    let mut request = groups::join(3, &group, "");
    request.session_timeout_ms = 6_000;
    let _unanswered = second.send(3, &request);
    until("a rebalance", || state(&mut first, &group) == "PreparingRebalance");
    drop(second);
    // It counts as a member that has joined until its session is over; the group goes on.
    let joined = first.call(9, &groups::join(9, &group, &leader));
    assert_eq!((joined.generation_id, joined.members.len()), (2, 2));
    let request = groups::sync(5, &group, (&leader, 2), &[(&leader, b"all")]);
    assert_eq!(&first.call(5, &request).assignment[..], b"all");
    until("the end of its session", || {
        first.call(4, &groups::heartbeat(&group, &leader, 2)).error_code == 27
    });
    let joined = first.call(9, &groups::join(9, &group, &leader));
    assert_eq!((joined.generation_id, joined.members.len()), (3, 1));
}

fn codes_are_kafkas(cluster: &Cluster) {
    let (group, mut client) = group(cluster);
    for version in 0..=9 {
        let mut join = |group: &str, member: &str, session_timeout_ms| {
            let mut request = groups::join(version, group, member);
            request.session_timeout_ms = session_timeout_ms;
            let answer = client.call(version, &request);
            assert_eq!((answer.generation_id, &*answer.leader, answer.members.len()), (-1, "", 0));
            assert_eq!(answer.protocol_name.as_deref(), (version < 7).then_some(""));
            assert_eq!(&*answer.member_id, member);
            answer.error_code
        };
        assert_eq!(join("", "m", 10_000), 24);
        assert_eq!(join(&group, "m", 5_999), 26);
        assert_eq!(join(&group, "m", 1_800_001), 26);
        assert_eq!(join(&group, "m", 10_000), 25);
    }
    for version in 0..=5 {
        let request = groups::sync(version, &group, ("m", 1), &[]);
        assert_eq!(client.call(version, &request).error_code, 25);
        let request = groups::sync(version, "", ("m", 1), &[]);
        assert_eq!(client.call(version, &request).error_code, 24);
        let left = client.call(version, &groups::leave(version, &group, "m", Some("i")));
        if version < 3 {
            assert_eq!(left.error_code, 25);
        } else {
            assert_eq!((left.error_code, left.members[0].error_code), (0, 25));
            assert_eq!(left.members[0].group_instance_id, Some(text("i")));
        }
        let request = groups::leave(version, "", "m", None);
        assert_eq!(client.call(version, &request).error_code, 24);
    }
    let request = groups::sync(5, "", ("m", 1), &[]).with_protocol_name(None);
    assert_eq!(client.call(5, &request).error_code, 23);
    for version in 0..=4 {
        assert_eq!(client.call(version, &groups::heartbeat(&group, "m", 1)).error_code, 25);
        assert_eq!(client.call(version, &groups::heartbeat("", "m", 1)).error_code, 24);
    }
    // A group is there once somebody has asked to join.
    let first = client.call(9, &groups::join(9, &group, ""));
    assert_eq!(first.error_code, 79);
    assert_eq!(client.call(4, &groups::heartbeat(&group, &first.member_id, 0)).error_code, 25);
    assert_eq!(state(&mut client, &group), "Empty");
}

fn another_nodes_groups_are_refused(cluster: &Cluster) {
    let group = unique("elsewhere");
    let owner = node_of(cluster, &group);
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let here = cluster.is_single() || node == owner;
        let expected = |code| if here { code } else { 16 };
        let joined = client.call(9, &groups::join(9, &group, "m"));
        assert_eq!(joined.error_code, expected(25));
        let request = groups::sync(5, &group, ("m", 1), &[]);
        assert_eq!(client.call(5, &request).error_code, expected(25));
        let request = groups::heartbeat(&group, "m", 1);
        assert_eq!(client.call(4, &request).error_code, expected(25));
        let left = client.call(5, &groups::leave(5, &group, "m", None));
        assert_eq!(left.error_code, expected(0));
        let described = client.call(6, &groups::describe(&[&group]));
        assert_eq!(described.groups[0].error_code, expected(69));
        let deleted = client.call(2, &groups::delete(&[&group]));
        assert_eq!(deleted.results[0].error_code, expected(69));
    }
}

fn groups_are_listed_described_and_deleted(cluster: &Cluster) {
    let topic = cluster.topic("listed", 1);
    let (stable, mut client) = group(cluster);
    let id = settle(&mut client, &stable);
    let by_hand = unique("by-hand");
    let mut other = cluster.connect_to(node_of(cluster, &by_hand));
    let commit = offsets::commit(9, &by_hand, &topic, 0, 5);
    assert_eq!(other.call(9, &commit).topics[0].partitions[0].error_code, 0);
    let listed = |states: &[&str], types: &[&str]| -> Vec<(String, String, String, String)> {
        let mut found = Vec::new();
        for node in 0..cluster.nodes() {
            let mut client = cluster.connect_to(i32::try_from(node).expect("few"));
            let response = client.call(5, &groups::list(states, types));
            assert_eq!(response.error_code, 0);
            found.extend(response.groups.into_iter().map(|group| {
                let (id, kind) = (group.group_id.to_string(), group.group_type.to_string());
                (id, group.protocol_type.to_string(), group.group_state.to_string(), kind)
            }));
        }
        found.retain(|(id, ..)| *id == stable || *id == by_hand);
        found.sort();
        found
    };
    let row = |id: &str, protocol: &str, state: &str| {
        (id.to_owned(), protocol.to_owned(), state.to_owned(), "classic".to_owned())
    };
    let (first, second) = (row(&by_hand, "", "Empty"), row(&stable, "consumer", "Stable"));
    assert_eq!(listed(&[], &[]), [first.clone(), second.clone()]);
    assert_eq!(listed(&["STABLE"], &["CLASSIC"]), [second]);
    assert_eq!(listed(&["empty"], &[]), [first]);
    assert_eq!(listed(&[], &["consumer"]), []);
    for version in 0..=2 {
        let deleted = client.call(version, &groups::delete(&[&stable]));
        assert_eq!(deleted.results[0].error_code, 68);
    }
    assert_eq!(client.call(3, &groups::leave(3, &stable, &id, None)).error_code, 0);
    assert_eq!(client.call(2, &groups::delete(&[&stable])).results[0].error_code, 0);
    assert_eq!(other.call(2, &groups::delete(&[&by_hand])).results[0].error_code, 0);
    assert_eq!(other.call(2, &groups::delete(&[&by_hand])).results[0].error_code, 69);
    let fetched = other.call(9, &offsets::fetch_all(9, &by_hand));
    assert_eq!((fetched.groups[0].error_code, fetched.groups[0].topics.len()), (0, 0));
    assert_eq!(listed(&[], &[]), []);
}

#[test]
fn a_group_outlives_a_crash_per_core_2() {
    a_group_outlives_a_crash(cluster::PER_CORE_2);
}

#[test]
fn a_group_outlives_a_crash_single_2() {
    a_group_outlives_a_crash(cluster::SINGLE_2);
}

/// apache/kafka#23339: a coordinator that was still loading answered as if nothing were known.
/// redpanda-data/redpanda#4900: a deleted group came back after a restart.
fn a_group_outlives_a_crash(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let (kept, mut client) = group(&cluster);
    let id = settle(&mut client, &kept);
    let (deleted, mut other) = group(&cluster);
    let gone = settle(&mut other, &deleted);
    assert_eq!(other.call(3, &groups::leave(3, &deleted, &gone, None)).error_code, 0);
    assert_eq!(other.call(2, &groups::delete(&[&deleted])).results[0].error_code, 0);
    for round in 0..3 {
        cluster.broker.restart();
        let node = i32::try_from(cluster.nodes()).expect("few");
        let mut clients: Vec<Client> = (0..node).map(|node| cluster.connect_to(node)).collect();
        let mut served = 0;
        while served < 20 {
            for client in &mut clients {
                // Never 25, from the first answer on.
                let code = client.call(4, &groups::heartbeat(&kept, &id, 1)).error_code;
                assert!([0, 16].contains(&code), "round {round}: {code}");
                let joined = client.call(9, &groups::join(9, &kept, "nobody"));
                assert!([14, 16, 25].contains(&joined.error_code), "{}", joined.error_code);
                served += i32::from(joined.error_code == 25);
            }
        }
        let mut client = cluster.connect_to(node_of(&cluster, &kept));
        let synced = client.call(5, &groups::sync(5, &kept, (&id, 1), &[]));
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
        assert_eq!(state(&mut client, &kept), "Stable");
        let mut other = cluster.connect_to(node_of(&cluster, &deleted));
        assert_eq!(state(&mut other, &deleted), "Dead");
    }
}

#[test]
fn a_stop_does_not_wait_for_members_that_wait() {
    let mut cluster = Cluster::own(cluster::PER_CORE_1);
    let (group, mut first) = group(&cluster);
    settle(&mut first, &group);
    let mut second = cluster.connect();
    let sent = second.send(3, &groups::join(3, &group, ""));
    until("a rebalance", || state(&mut first, &group) == "PreparingRebalance");
    let begun = Instant::now();
    assert_eq!(cluster.broker.terminate().code, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(second.receive(sent).error_code, 16);
}
