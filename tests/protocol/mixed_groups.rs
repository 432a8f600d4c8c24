//! Groups whose members speak the classic protocol and that of KIP-848, over the wire: they become
//! of the other kind and back, in parked requests and over restarts.

use std::time::{Duration, Instant};

use kafka_protocol::messages::{ConsumerGroupDescribeRequest, GroupId, JoinGroupRequest};

use crate::cluster::{self, Cluster};
use crate::consumer_groups::{assigned, beat, join as join_consumer, until_assigned};
use crate::group_offsets::{commit, group, node_of};
use crate::support::client::Client;
use crate::support::groups;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;

in_every_mode!(
    a_classic_group_is_upgraded_and_comes_back,
    whoever_waits_in_a_classic_group_is_told_of_its_upgrade,
);

fn join(group: &str, topic: &Topic, member: &str) -> JoinGroupRequest {
    let mut request = groups::join(9, group, member);
    request.protocols[0].metadata = groups::subscription(&topic.name);
    request
}

/// An assignment of these partitions, in version 1.
fn assignment(topic: &Topic, partitions: &[i32]) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, topic.name.len() as u8];
    bytes.extend_from_slice(topic.name.as_bytes());
    bytes.extend_from_slice(&[0, 0, 0, partitions.len() as u8]);
    partitions.iter().for_each(|partition| bytes.extend_from_slice(&partition.to_be_bytes()));
    bytes.extend_from_slice(&[0xff; 4]);
    bytes
}

/// The only member of a stable classic group, with both partitions of the topic.
fn enter(client: &mut Client, group: &str, topic: &Topic) -> String {
    let id = client.call(9, &join(group, topic, "")).member_id.to_string();
    let joined = client.call(9, &join(group, topic, &id));
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let mut sync = groups::sync(5, group, (&id, 1), &[(&id, b"")]);
    sync.assignments[0].assignment = assignment(topic, &[0, 1]).into();
    assert_eq!(client.call(5, &sync).error_code, 0);
    id
}

/// What SyncGroup says at once: its code and bytes.
fn sync(client: &mut Client, group: &str, member: &str, generation: i32) -> (i16, Vec<u8>) {
    let answer = client.call(5, &groups::sync(5, group, (member, generation), &[]));
    (answer.error_code, answer.assignment.to_vec())
}

fn a_classic_group_is_upgraded_and_comes_back(cluster: &Cluster) {
    let topic = cluster.topic("mixed", 2);
    let (group, mut client) = group(cluster);
    let id = enter(&mut client, &group, &topic);
    let upgraded = client.call(1, &join_consumer(&group, "n", &[&topic]));
    assert_eq!((upgraded.member_epoch, assigned(&upgraded)), (2, Some(vec![])));
    let beats = |client: &mut Client, generation| {
        client.call(4, &groups::heartbeat(&group, &id, generation)).error_code
    };
    assert_eq!(beats(&mut client, 1), 27);
    let joined = client.call(9, &join(&group, &topic, &id));
    assert_eq!((joined.error_code, joined.generation_id, joined.leader.as_str()), (0, 2, ""));
    assert_eq!(sync(&mut client, &group, &id, 2), (0, assignment(&topic, &[0])));
    assert_eq!((beats(&mut client, 2), beats(&mut client, 1)), (0, 22));
    assert_eq!(until_assigned(&mut client, &group, "n", 2), (2, vec![1]));
    let request =
        ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text(&group))]);
    let described = client.call(1, &request);
    let members = &described.groups[0].members;
    let mut kinds: Vec<_> =
        members.iter().map(|member| (member.member_id.to_string(), member.member_type)).collect();
    kinds.sort();
    let mut expected = [(id.clone(), 0), ("n".to_owned(), 1)];
    expected.sort();
    assert_eq!(kinds, expected);
    // Both commit, each with its own epoch.
    for (member, epoch, code) in [(id.as_str(), 2, 0), ("n", 2, 0), (&id, 3, 22), ("n", 3, 113)] {
        let mut request = offsets::commit(9, &group, &topic, 0, 5);
        request.0.member_id = text(member);
        request.0.generation_id_or_member_epoch = epoch;
        assert_eq!(commit(&mut client, 9, &request), [[(0, code)]], "{member} {epoch}");
    }
    assert_eq!(client.call(1, &beat(&group, "n", -1)).error_code, 0);
    let described = client.call(6, &groups::describe(&[&group]));
    assert_eq!(described.groups[0].group_state.as_str(), "PreparingRebalance");
    assert_eq!(beats(&mut client, 2), 27);
    let joined = client.call(9, &join(&group, &topic, &id));
    assert_eq!((joined.error_code, joined.generation_id), (0, 3));
    assert_eq!((joined.leader.as_str(), joined.members.len()), (id.as_str(), 1));
    let fetch = offsets::fetch(9, &group, &topic, &[0]);
    let fetched = client.call(9, &fetch);
    assert_eq!(fetched.groups[0].topics[0].partitions[0].committed_offset, 5);
}

fn whoever_waits_in_a_classic_group_is_told_of_its_upgrade(cluster: &Cluster) {
    let topic = cluster.topic("waiting", 2);
    let (group, mut client) = group(cluster);
    let id = enter(&mut client, &group, &topic);
    // A second member joins on a connection of its own, and waits for the first.
    let mut second = cluster.connect_to(node_of(cluster, &group));
    let other = second.call(9, &join(&group, &topic, "")).member_id.to_string();
    let sent = second.send(9, &join(&group, &topic, &other));
    let until = Instant::now() + Duration::from_secs(20);
    while client.call(4, &groups::heartbeat(&group, &id, 1)).error_code != 27 {
        assert!(Instant::now() < until, "the group does not rebalance");
    }
    assert_eq!(client.call(1, &join_consumer(&group, "n", &[&topic])).error_code, 0);
    let answer = second.receive(sent);
    assert_eq!((answer.error_code, answer.member_id.as_str()), (27, other.as_str()));
    let joined = second.call(9, &join(&group, &topic, &other));
    assert_eq!(joined.error_code, 0);
    assert_eq!(sync(&mut second, &group, &other, joined.generation_id).0, 0);
}

/// Asks until the coordinator has loaded.
fn loaded(client: &mut Client, group: &str, member: &str, generation: i32) -> i16 {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let code = sync(client, group, member, generation).0;
        if code != 14 || Instant::now() > until {
            return code;
        }
    }
}

#[test]
fn mixed_groups_survive_a_restart_in_either_kind() {
    for clean in [true, false] {
        let mut cluster = Cluster::own(cluster::PER_CORE_2);
        let topic = cluster.topic("kept", 2);
        let (group, mut client) = group(&cluster);
        let id = enter(&mut client, &group, &topic);
        let upgraded = client.call(1, &join_consumer(&group, "n", &[&topic]));
        assert_eq!(upgraded.member_epoch, 2);
        let stop = |cluster: &mut Cluster| {
            if clean {
                cluster.broker.terminate();
            } else {
                cluster.broker.kill();
            }
            cluster.broker.restart();
            cluster.connect_to(node_of(cluster, &group))
        };
        let mut client = stop(&mut cluster);
        assert_eq!(loaded(&mut client, &group, &id, 1), 27, "there is a newer target");
        assert_eq!(client.call(9, &join(&group, &topic, &id)).generation_id, 2);
        assert_eq!(sync(&mut client, &group, &id, 2), (0, assignment(&topic, &[0])));
        assert_eq!(client.call(1, &beat(&group, "n", -1)).error_code, 0);
        let mut client = stop(&mut cluster);
        assert_eq!(loaded(&mut client, &group, &id, 2), 27, "what the other had is nobody's");
        let joined = client.call(9, &join(&group, &topic, &id));
        assert_eq!((joined.generation_id, joined.leader.as_str()), (3, id.as_str()));
        assert_eq!(sync(&mut client, &group, &id, 3).0, 0);
        let described = client.call(6, &groups::describe(&[&group]));
        assert_eq!(described.groups[0].group_state.as_str(), "Stable");
    }
}
