//! Committed offsets of groups without members: OffsetCommit, OffsetFetch and OffsetDelete.

use std::time::{Duration, Instant};

use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponsePartitions;
use kafka_protocol::messages::{GroupId, OffsetCommitResponse, OffsetFetchResponse};
use uuid::Uuid;

use crate::calls;
use crate::cluster::{self, Cluster, Mode, unique};
use crate::support::client::Client;
use crate::support::offsets::{self, OffsetCommit, OffsetFetch, text};
use crate::support::requests::{self, Topic};

in_every_mode!(
    offsets_are_fetched_as_committed,
    what_was_never_committed_is_no_error,
    all_offsets_are_listed,
    what_does_not_exist_is_refused_by_itself,
    long_metadata_is_refused_by_itself,
    generations_need_members,
    another_nodes_groups_are_refused,
    several_groups_in_one_request,
    offsets_are_deleted,
    deleted_topics_take_their_offsets_along,
    commits_and_fetches_keep_their_order,
    records_are_kafkas,
);

/// The node that keeps a group.
pub fn node_of(cluster: &Cluster, group: &str) -> i32 {
    let found = cluster.connect().call(4, &offsets::find_coordinator(group));
    let found = &found.coordinators[0];
    assert_eq!(found.error_code, 0, "{group}");
    found.node_id.0
}

/// A group of its own, and a connection to its node.
pub fn group(cluster: &Cluster) -> (String, Client) {
    let group = unique("group");
    let node = node_of(cluster, &group);
    (group, cluster.connect_to(node))
}

/// Topics of the answer by their number of partitions and codes.
fn codes(response: &OffsetCommitResponse) -> Vec<Vec<(i32, i16)>> {
    assert_eq!(response.throttle_time_ms, 0);
    let topics = response.topics.iter();
    topics
        .map(|topic| topic.partitions.iter().map(|p| (p.partition_index, p.error_code)).collect())
        .collect()
}

pub fn commit(client: &mut Client, version: i16, request: &OffsetCommit) -> Vec<Vec<(i32, i16)>> {
    codes(&client.call(version, request))
}

/// Every partition found, in the form of the newest versions, whatever the version was.
pub fn found(version: i16, response: &OffsetFetchResponse) -> Vec<OffsetFetchResponsePartitions> {
    assert_eq!((response.throttle_time_ms, response.error_code), (0, 0));
    if version >= 8 {
        assert_eq!(response.groups.len(), 1);
        assert_eq!(response.groups[0].error_code, 0);
        let topics = response.groups[0].topics.iter();
        return topics.flat_map(|topic| topic.partitions.clone()).collect();
    }
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let partitions = partitions.map(|found| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(found.partition_index)
            .with_committed_offset(found.committed_offset)
            .with_committed_leader_epoch(found.committed_leader_epoch)
            .with_metadata(found.metadata.clone())
            .with_error_code(found.error_code)
    });
    partitions.collect()
}

/// Partition, offset and code of everything found.
pub fn fetched(client: &mut Client, version: i16, request: &OffsetFetch) -> Vec<(i32, i64, i16)> {
    let response = client.call(version, request);
    let found = found(version, &response).into_iter();
    found.map(|found| (found.partition_index, found.committed_offset, found.error_code)).collect()
}

const COMMITS: [i16; 7] = [2, 4, 5, 6, 8, 9, 10];
const FETCHES: [i16; 8] = [1, 2, 5, 6, 7, 8, 9, 10];

fn offsets_are_fetched_as_committed(cluster: &Cluster) {
    let topic = cluster.topic("committed", 3);
    let (group, mut client) = group(cluster);
    for (offset, version) in (100..).zip(COMMITS) {
        let mut request = offsets::commit(version, &group, &topic, 1, offset);
        let partition = &mut request.0.topics[0].partitions[0];
        partition.committed_metadata = Some(text("text é"));
        if version >= 6 {
            partition.committed_leader_epoch = 3;
        }
        let response = client.call(version, &request);
        assert_eq!(codes(&response), [[(1, 0)]], "version {version}");
        let (name, id) = (response.topics[0].name.as_str(), response.topics[0].topic_id);
        let told = if version >= 10 { ("", topic.id) } else { (&*topic.name, Uuid::nil()) };
        assert_eq!((name, id), told);
        for fetch in FETCHES {
            let request = offsets::fetch(fetch, &group, &topic, &[1]);
            let response = client.call(fetch, &request);
            let found = found(fetch, &response);
            let expected = OffsetFetchResponsePartitions::default()
                .with_partition_index(1)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(if version >= 6 && fetch >= 5 { 3 } else { -1 })
                .with_metadata(Some(text("text é")));
            assert_eq!(found, [expected], "committed by {version}, fetched by {fetch}");
        }
    }
}

fn what_was_never_committed_is_no_error(cluster: &Cluster) {
    let topic = cluster.topic("none", 2);
    let (group, mut client) = group(cluster);
    let none = |partition| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(partition)
            .with_committed_offset(-1)
            .with_metadata(Some(text("")))
    };
    for version in FETCHES {
        let mut request = offsets::fetch(version, &group, &topic, &[0, 7, -1]);
        request.0.require_stable = version >= 7;
        let response = client.call(version, &request);
        assert_eq!(found(version, &response), [none(0), none(7), none(-1)], "{version}");
        if version >= 2 {
            let response = client.call(version, &offsets::fetch_all(version, &group));
            assert_eq!(found(version, &response), [], "{version}");
        }
    }
    assert_eq!(commit(&mut client, 9, &offsets::commit(9, &group, &topic, 1, 5)), [[(1, 0)]]);
    for version in FETCHES {
        let request = offsets::fetch(version, &group, &topic, &[0, 1]);
        assert_eq!(fetched(&mut client, version, &request), [(0, -1, 0), (1, 5, 0)]);
    }
    let unknown = Topic::named("no-such-topic");
    for version in [1, 7, 9] {
        let request = offsets::fetch(version, &group, &unknown, &[0]);
        assert_eq!(fetched(&mut client, version, &request), [(0, -1, 0)]);
    }
    let request = offsets::fetch(10, &group, &Topic { id: Uuid::from_u128(7), ..unknown }, &[0, 1]);
    assert_eq!(fetched(&mut client, 10, &request), [(0, -1, 100), (1, -1, 100)]);
}

fn all_offsets_are_listed(cluster: &Cluster) {
    let (first, second) = (cluster.topic("all-a", 3), cluster.topic("all-b", 3));
    let (group, mut client) = group(cluster);
    for (topic, partition, offset) in [(&second, 2, 7), (&first, 0, 5), (&second, 0, 6)] {
        let request = offsets::commit(10, &group, topic, partition, offset);
        assert_eq!(commit(&mut client, 10, &request), [[(partition, 0)]]);
    }
    for version in FETCHES.into_iter().skip(1) {
        let mut found = fetched(&mut client, version, &offsets::fetch_all(version, &group));
        found.sort_unstable();
        assert_eq!(found, [(0, 5, 0), (0, 6, 0), (2, 7, 0)], "version {version}");
    }
    let response = client.call(10, &offsets::fetch_all(10, &group));
    let mut ids: Vec<Uuid> = response.groups[0].topics.iter().map(|topic| topic.topic_id).collect();
    ids.sort_unstable();
    let mut expected = [first.id, second.id];
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

fn what_does_not_exist_is_refused_by_itself(cluster: &Cluster) {
    let topic = cluster.topic("partly", 2);
    let (group, mut client) = group(cluster);
    for version in COMMITS {
        let mut request = offsets::commit(version, &group, &topic, 0, 5);
        let known = request.0.topics[0].partitions[0].clone();
        let more = [1, 2, -1].map(|index| known.clone().with_partition_index(index));
        request.0.topics[0].partitions.extend(more);
        let mut unknown = request.0.topics[0].clone().with_partitions(vec![known]);
        if version >= 10 {
            unknown.topic_id = Uuid::from_u128(7);
        } else {
            unknown.name = Topic::named("no-such-topic").wire_name();
        }
        request.0.topics.push(unknown);
        let code = if version >= 10 { 100 } else { 3 };
        // What is refused comes first.
        let expected = [vec![(2, 3), (-1, 3), (0, 0), (1, 0)], vec![(0, code)]];
        assert_eq!(commit(&mut client, version, &request), expected, "version {version}");
    }
    let request = offsets::fetch(9, &group, &topic, &[0, 1, 2]);
    assert_eq!(fetched(&mut client, 9, &request), [(0, 5, 0), (1, 5, 0), (2, -1, 0)]);
    assert_eq!(commit(&mut client, 9, &OffsetCommit(Default::default())), [[]; 0]);
}

fn long_metadata_is_refused_by_itself(cluster: &Cluster) {
    let topic = cluster.topic("long", 4);
    let (group, mut client) = group(cluster);
    for version in COMMITS {
        let mut request = offsets::commit(version, &group, &topic, 0, 5);
        let partitions = &mut request.0.topics[0].partitions;
        let first = partitions[0].clone();
        let texts = ["x".repeat(4097), "x".repeat(4096), "語".repeat(4096), "😀".repeat(2049)];
        *partitions = (0..)
            .zip(texts)
            .map(|(index, long)| {
                let partition = first.clone().with_partition_index(index);
                partition.with_committed_metadata(Some(text(&long)))
            })
            .collect();
        let expected = [[(0, 12), (1, 0), (2, 0), (3, 12)]];
        assert_eq!(commit(&mut client, version, &request), expected, "version {version}");
    }
    let request = offsets::fetch(9, &group, &topic, &[0, 1]);
    assert_eq!(fetched(&mut client, 9, &request), [(0, -1, 0), (1, 5, 0)]);
}

fn generations_need_members(cluster: &Cluster) {
    let topic = cluster.topic("generations", 1);
    let (group, mut client) = group(cluster);
    let as_member = |version: i16| {
        let mut request = offsets::commit(version, &group, &topic, 0, 5);
        request.0.generation_id_or_member_epoch = 1;
        request.0.member_id = text("member");
        request
    };
    for version in COMMITS {
        let code = if version >= 9 { 69 } else { 22 };
        assert_eq!(commit(&mut client, version, &as_member(version)), [[(0, code)]], "{version}");
    }
    assert_eq!(commit(&mut client, 2, &offsets::commit(2, &group, &topic, 0, 5)), [[(0, 0)]]);
    for version in COMMITS {
        assert_eq!(commit(&mut client, version, &as_member(version)), [[(0, 25)]], "{version}");
        let mut request = as_member(version);
        request.0.generation_id_or_member_epoch = -1;
        assert_eq!(commit(&mut client, version, &request), [[(0, 0)]], "{version}");
    }
}

fn another_nodes_groups_are_refused(cluster: &Cluster) {
    let topic = cluster.topic("elsewhere", 1);
    let group = unique("group");
    let node = node_of(cluster, &group);
    for (place, mut client) in (0..).zip(cluster.everywhere()) {
        let is_here = cluster.is_single() || place == node;
        for version in COMMITS {
            let request = offsets::commit(version, &group, &topic, 0, 5);
            let code = if is_here { 0 } else { 16 };
            assert_eq!(commit(&mut client, version, &request), [[(0, code)]]);
        }
        for version in FETCHES {
            let request = offsets::fetch(version, &group, &topic, &[0]);
            if is_here {
                assert_eq!(fetched(&mut client, version, &request), [(0, 5, 0)]);
                continue;
            }
            let response = client.call(version, &request);
            match version {
                1 => assert_eq!(found(1, &response)[0].error_code, 16),
                2..=7 => assert_eq!((response.error_code, response.topics.len()), (16, 0)),
                _ => {
                    let group = &response.groups[0];
                    assert_eq!((group.error_code, group.topics.len()), (16, 0));
                }
            }
        }
        let response = client.call(0, &offsets::delete(&group, &topic.name, &[0]));
        if is_here {
            assert_eq!((response.error_code, response.topics.len()), (0, 1));
        } else {
            assert_eq!((response.error_code, response.topics.len()), (16, 0));
        }
    }
}

fn several_groups_in_one_request(cluster: &Cluster) {
    let topic = cluster.topic("shared", 1);
    let groups: Vec<String> = (0..6).map(|_| unique("group")).collect();
    let nodes: Vec<i32> = groups.iter().map(|group| node_of(cluster, group)).collect();
    for (offset, (group, node)) in (0..).zip(groups.iter().zip(&nodes)) {
        let request = offsets::commit(9, group, &topic, 0, offset);
        assert_eq!(commit(&mut cluster.connect_to(*node), 9, &request), [[(0, 0)]]);
    }
    for version in [8, 9, 10] {
        let node = nodes[0];
        let mut request = offsets::fetch(version, &groups[0], &topic, &[0]);
        let first = request.0.groups[0].clone();
        let ids = groups.iter().map(|group| GroupId(text(group)));
        request.0.groups = ids.map(|id| first.clone().with_group_id(id)).collect();
        let response = cluster.connect_to(node).call(version, &request);
        for (place, answer) in response.groups.iter().enumerate() {
            assert_eq!(answer.group_id.as_str(), groups[place]);
            if nodes[place] == node {
                let offset = answer.topics[0].partitions[0].committed_offset;
                assert_eq!((answer.error_code, offset), (0, place as i64));
            } else {
                assert_eq!((answer.error_code, answer.topics.len()), (16, 0));
            }
        }
        assert_eq!(response.groups.len(), groups.len());
    }
}

fn offsets_are_deleted(cluster: &Cluster) {
    let topic = cluster.topic("forgotten", 3);
    let (group, mut client) = group(cluster);
    let delete = |client: &mut Client, name: &str, partitions: &[i32]| {
        let response = client.call(0, &offsets::delete(&group, name, partitions));
        let topics = response.topics.iter().flat_map(|topic| &topic.partitions);
        let codes: Vec<_> = topics.map(|p| (p.partition_index, p.error_code)).collect();
        (response.error_code, codes)
    };
    assert_eq!(delete(&mut client, &topic.name, &[0]), (69, vec![]));
    for partition in 0..2 {
        let request = offsets::commit(9, &group, &topic, partition, 5);
        assert_eq!(commit(&mut client, 9, &request), [[(partition, 0)]]);
    }
    let expected = (0, vec![(5, 3), (0, 0), (2, 0)]);
    assert_eq!(delete(&mut client, &topic.name, &[0, 2, 5]), expected);
    assert_eq!(delete(&mut client, "no-such-topic", &[0]), (0, vec![(0, 3)]));
    let request = offsets::fetch(9, &group, &topic, &[0, 1]);
    assert_eq!(fetched(&mut client, 9, &request), [(0, -1, 0), (1, 5, 0)]);
    let response = client.call(0, &offsets::delete("", &topic.name, &[0]));
    assert_eq!((response.error_code, response.topics.len()), (24, 0));
}

fn deleted_topics_take_their_offsets_along(cluster: &Cluster) {
    let (gone, kept) = (cluster.topic("gone", 2), cluster.topic("kept", 1));
    let (group, mut client) = group(cluster);
    for topic in [&gone, &kept] {
        let request = offsets::commit(9, &group, topic, 0, 5);
        assert_eq!(commit(&mut client, 9, &request), [[(0, 0)]]);
    }
    let response = cluster.connect().call(6, &requests::delete_topic_state(&gone.name));
    assert_eq!(response.responses[0].error_code, 0);
    let response = cluster.connect().call(7, &requests::create_topic(&gone.name, 1));
    assert_eq!(response.topics[0].error_code, 0);
    let request = offsets::fetch(9, &group, &gone, &[0]);
    assert_eq!(fetched(&mut client, 9, &request), [(0, -1, 0)]);
    assert_eq!(fetched(&mut client, 9, &offsets::fetch_all(9, &group)), [(0, 5, 0)]);
}

fn commits_and_fetches_keep_their_order(cluster: &Cluster) {
    let topic = cluster.topic("in-order", 1);
    let (group, mut client) = group(cluster);
    let sent: Vec<_> = (0..20)
        .map(|offset| {
            let commit = client.send(9, &offsets::commit(9, &group, &topic, 0, offset));
            (commit, client.send(9, &offsets::fetch(9, &group, &topic, &[0])))
        })
        .collect();
    for (offset, (commit, fetch)) in (0..).zip(sent) {
        assert_eq!(codes(&client.receive(commit)), [[(0, 0)]]);
        let response = client.receive(fetch);
        assert_eq!(found(9, &response)[0].committed_offset, offset);
    }
}

/// What Kafka writes: key version 1, value version 4 with the topic id as its tag 0.
fn records_are_kafkas(cluster: &Cluster) {
    let topic = cluster.topic("written", 1);
    let (group, mut client) = group(cluster);
    let mut request = offsets::commit(10, &group, &topic, 0, 0x0102);
    request.0.topics[0].partitions[0].committed_leader_epoch = 3;
    request.0.topics[0].partitions[0].committed_metadata = Some(text("m"));
    assert_eq!(commit(&mut client, 10, &request), [[(0, 0)]]);
    let hash =
        group.bytes().fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    let partition = hash.checked_abs().unwrap_or(0) % 50;
    let id = cluster.describe("__consumer_offsets").topics[0].topic_id;
    let internal = Topic { name: "__consumer_offsets".to_owned(), id };
    let batches = calls::read_all(&mut cluster.at(&internal, partition), &internal, partition, 0);
    let key = [
        &[0, 1, 0, group.len() as u8],
        group.as_bytes(),
        &[0, topic.name.len() as u8],
        topic.name.as_bytes(),
        &[0; 4],
    ]
    .concat();
    let records = batches.iter().flat_map(|batch| &batch.records);
    let mine: Vec<_> = records.filter(|record| record.key.as_deref() == Some(&key[..])).collect();
    assert_eq!(mine.len(), 1);
    let value = mine[0].value.as_deref().expect("no tombstone");
    let head = b"\0\x04\0\0\0\0\0\0\x01\x02\0\0\0\x03\x02m";
    assert_eq!(&value[..head.len()], head);
    let tail = [&[1, 0, 16][..], topic.id.as_bytes()].concat();
    assert_eq!(&value[head.len() + 8..], tail, "after the time of the commit");
}

#[test]
fn a_restart_keeps_offsets_per_core_2() {
    a_restart_keeps_offsets(cluster::PER_CORE_2);
}

#[test]
fn a_restart_keeps_offsets_single_5() {
    a_restart_keeps_offsets(cluster::SINGLE_5);
}

fn a_restart_keeps_offsets(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let topic = cluster.topic("kept", 2);
    let groups: Vec<String> = (0..20).map(|number| format!("group {number}")).collect();
    let request = offsets::commit(9, &groups[0], &topic, 0, 1);
    assert_eq!(commit(&mut cluster.connect(), 9, &request), [[(0, 16)]], "no internal topic yet");
    let response = cluster.connect().call(9, &offsets::fetch_all(9, &groups[0]));
    assert_eq!(response.groups[0].error_code, 16);
    for (round, clean) in (1_i64..).zip([true, false, true]) {
        for (number, group) in (0..).zip(&groups) {
            let mut client = cluster.connect_to(node_of(&cluster, group));
            let request = offsets::commit(9, group, &topic, 0, round * 100 + number);
            assert_eq!(commit(&mut client, 9, &request), [[(0, 0)]]);
        }
        let mut client = cluster.connect_to(node_of(&cluster, &groups[0]));
        let deleted = client.call(0, &offsets::delete(&groups[0], &topic.name, &[0]));
        assert_eq!(deleted.error_code, 0);
        if clean {
            assert_eq!(cluster.broker.terminate().code, Some(0));
        }
        cluster.broker.restart();
        for (number, group) in (0..).zip(&groups) {
            let mut client = cluster.connect_to(node_of(&cluster, group));
            let request = offsets::fetch(9, group, &topic, &[0, 1]);
            let offset = if number == 0 { -1 } else { round * 100 + number };
            let found = loaded(&mut client, &request);
            assert_eq!(found, [(0, offset, 0), (1, -1, 0)], "{group} after round {round}");
        }
    }
}

/// Asks until the group is loaded: until then it is 14, and never "no offset".
pub fn loaded(client: &mut Client, request: &OffsetFetch) -> Vec<(i32, i64, i16)> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.call(9, request).groups[0].error_code == 14 {
        assert!(Instant::now() < deadline, "still loading");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    fetched(client, 9, request)
}

#[test]
fn offsets_with_a_time_of_their_own_expire() {
    let arguments = ["--shards", "2", "--memory", "128MiB"];
    let interval = ["--set", "offsets.retention.check.interval.ms=20"];
    let broker = crate::support::broker::Broker::start(&[&arguments[..], &interval].concat());
    let cluster = Cluster { mode: cluster::PER_CORE_2, broker };
    let topic = cluster.topic("expiring", 2);
    let (group, mut client) = group(&cluster);
    let mut request = offsets::commit(2, &group, &topic, 0, 5);
    request.0.retention_time_ms = 1;
    assert_eq!(commit(&mut client, 2, &request), [[(0, 0)]]);
    let request = offsets::commit(9, &group, &topic, 1, 6);
    assert_eq!(commit(&mut client, 9, &request), [[(1, 0)]]);
    let request = offsets::fetch(9, &group, &topic, &[0, 1]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while fetched(&mut client, 9, &request)[0].1 != -1 {
        assert!(Instant::now() < deadline, "it does not expire");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(fetched(&mut client, 9, &request), [(0, -1, 0), (1, 6, 0)]);
    let deleted = client.call(0, &offsets::delete(&group, &topic.name, &[1]));
    assert_eq!(deleted.error_code, 0);
    // Without offsets the group goes too.
    while client.call(0, &offsets::delete(&group, &topic.name, &[1])).error_code != 69 {
        assert!(Instant::now() < deadline, "the group stays");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
