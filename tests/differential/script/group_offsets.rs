//! OffsetCommit, OffsetFetch and OffsetDelete of groups without members.

use std::time::{Duration, Instant};

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::{GroupId, TopicName};
use uuid::Uuid;

use crate::peer::{MADE_UP_ID, Peer};
use crate::support::offsets::{self, OffsetCommit, text};
use crate::support::requests::Topic;

const COMMITS: [i16; 9] = [2, 3, 4, 5, 6, 7, 8, 9, 10];
const FETCHES: [i16; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

pub fn ask(peer: &mut Peer) {
    peer.ask("OffsetCommit before there is a coordinator", 9, &plain(9, "early"));
    peer.ask(
        "OffsetFetch before there is a coordinator",
        1,
        &offsets::fetch(1, "early", &named(), &[0]),
    );
    peer.ask(
        "OffsetFetch before there is a coordinator",
        7,
        &offsets::fetch(7, "early", &named(), &[0]),
    );
    peer.ask(
        "OffsetFetch before there is a coordinator",
        9,
        &offsets::fetch(9, "early", &named(), &[0]),
    );
    peer.ask("OffsetDelete before there is a coordinator", 0, &offsets::delete("early", "t", &[0]));
    peer.make_topic("offsets-a", 3, &[]);
    peer.make_topic("offsets-b", 2, &[]);
    wait_for_coordinator(peer);
    for version in COMMITS {
        commits(peer, version);
    }
    for version in FETCHES {
        fetches(peer, version);
    }
    deletes(peer);
    topic_deletion(peer);
}

fn named() -> Topic {
    Topic::named("offsets-a")
}

fn plain(version: i16, group: &str) -> OffsetCommit {
    let topic = Topic { id: MADE_UP_ID, ..named() };
    offsets::commit(version, group, &topic, 0, 5)
}

fn topic(peer: &Peer, name: &str) -> Topic {
    Topic { name: name.to_owned(), id: peer.ids.get(name).copied().unwrap_or(MADE_UP_ID) }
}

fn wait_for_coordinator(peer: &mut Peer) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = peer.call(4, &offsets::find_coordinator("any"));
        let fetched = peer.call(9, &offsets::fetch_all(9, "any"));
        if found.coordinators[0].error_code == 0 && fetched.groups[0].error_code == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{}: no coordinator", peer.name);
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn commits(peer: &mut Peer, version: i16) {
    let group = format!("commits-{version}");
    let known = topic(peer, "offsets-a");
    let with_generation = |generation: i32| {
        let mut request = offsets::commit(version, &group, &known, 0, 5);
        request.0.generation_id_or_member_epoch = generation;
        request.0.member_id = text("member");
        if version >= 7 {
            request.0.group_instance_id = Some(text("instance"));
        }
        request
    };
    peer.ask("OffsetCommit of an unknown group's member", version, &with_generation(0));
    let empty = offsets::commit(version, "", &known, 0, 7);
    peer.ask("OffsetCommit of the empty group", version, &empty);
    peer.ask("OffsetCommit of nothing", version, &OffsetCommit(Default::default()));
    peer.ask("OffsetCommit", version, &offsets::commit(version, &group, &known, 0, 5));
    peer.ask("OffsetCommit of a member of none", version, &with_generation(0));
    peer.ask("OffsetCommit of a member without a generation", version, &with_generation(-1));
    peer.ask(
        "OffsetCommit of a negative offset",
        version,
        &offsets::commit(version, &group, &known, 2, -5),
    );
    let mut request = offsets::commit(version, &group, &known, 0, 5);
    let first = request.0.topics[0].partitions[0].clone();
    let at = |index: i32, metadata: Option<String>| -> OffsetCommitRequestPartition {
        let metadata = metadata.map(|metadata| text(&metadata));
        first.clone().with_partition_index(index).with_committed_metadata(metadata)
    };
    request.0.topics[0].partitions = vec![
        at(0, Some("x".repeat(4097))),
        at(1, Some("語".repeat(4096))),
        at(2, None),
        at(3, None),
        at(-1, Some("x".repeat(5000))),
        at(1, Some("twice".to_owned())),
    ];
    let mut other = request.0.topics[0].clone();
    if version >= 10 {
        other.topic_id = MADE_UP_ID;
    } else {
        other.name = Topic::named("no-such-topic").wire_name();
    }
    let mut empty = other.clone();
    empty.partitions.clear();
    if version >= 10 {
        empty.topic_id = Uuid::nil();
    } else {
        empty.name = TopicName(text("no-such-empty"));
    }
    request.0.topics.extend([other, empty]);
    peer.ask("OffsetCommit of all kinds", version, &request);
    let all = offsets::fetch_all(9, &group);
    peer.ask(&format!("OffsetFetch after OffsetCommit {version}"), 9, &all);
    if version <= 4 {
        let mut request = offsets::commit(version, &group, &known, 1, 8);
        request.0.retention_time_ms = 3_600_000;
        peer.ask("OffsetCommit with a retention time", version, &request);
        peer.ask(&format!("OffsetFetch of an expiring offset {version}"), 9, &all);
    }
}

fn fetches(peer: &mut Peer, version: i16) {
    let group = format!("fetches-{version}");
    let (first, second) = (topic(peer, "offsets-a"), topic(peer, "offsets-b"));
    for wanted in [&first, &second] {
        let request = offsets::fetch(version, &group, wanted, &[0, 1, 9, -1]);
        peer.ask("OffsetFetch of an unknown group", version, &request);
    }
    let empty = offsets::fetch(version, "", &first, &[0]);
    peer.ask("OffsetFetch of the empty group", version, &empty);
    for (wanted, partition) in [(&second, 1), (&first, 0)] {
        let mut request = offsets::commit(10, &group, wanted, partition, 40);
        request.0.topics[0].partitions[0].committed_leader_epoch = 2;
        peer.call(10, &request);
    }
    let request = offsets::fetch(version, &group, &first, &[2, 0, 0, 9]);
    peer.ask("OffsetFetch", version, &request);
    let unknown = Topic { name: "no-such-topic".to_owned(), id: MADE_UP_ID };
    let request = offsets::fetch(version, &group, &unknown, &[0, 1]);
    peer.ask("OffsetFetch of an unknown topic", version, &request);
    if version >= 2 {
        peer.ask("OffsetFetch of all", version, &offsets::fetch_all(version, &group));
        let nobody = offsets::fetch_all(version, "nobody");
        peer.ask("OffsetFetch of all of an unknown group", version, &nobody);
    }
    if version >= 7 {
        let mut request = offsets::fetch(version, &group, &first, &[0, 1]);
        request.0.require_stable = true;
        peer.ask("OffsetFetch of what is stable", version, &request);
    }
    if version >= 8 {
        let mut request = offsets::fetch(version, &group, &first, &[0]);
        let mut other = request.0.groups[0].clone();
        other.group_id = GroupId(text("commits-9"));
        request.0.groups.push(other);
        peer.ask("OffsetFetch of two groups", version, &request);
    }
}

fn deletes(peer: &mut Peer) {
    let (group, known) = ("deletes", topic(peer, "offsets-a"));
    let name = &known.name;
    peer.ask("OffsetDelete of an unknown group", 0, &offsets::delete(group, name, &[0]));
    peer.ask("OffsetDelete of the empty group", 0, &offsets::delete("", name, &[0]));
    peer.call(9, &offsets::commit(9, group, &known, 0, 5));
    peer.ask("OffsetDelete", 0, &offsets::delete(group, name, &[1, 0, 9]));
    peer.ask("OffsetDelete again", 0, &offsets::delete(group, name, &[0]));
    let unknown = offsets::delete(group, "no-such-topic", &[0]);
    peer.ask("OffsetDelete of an unknown topic", 0, &unknown);
    peer.ask("OffsetFetch after OffsetDelete", 9, &offsets::fetch_all(9, group));
}

fn topic_deletion(peer: &mut Peer) {
    peer.make_topic("offsets-c", 1, &[]);
    let gone = topic(peer, "offsets-c");
    peer.call(9, &offsets::commit(9, "gone", &gone, 0, 5));
    let request = crate::support::requests::delete_topic_state(&gone.name);
    peer.call(6, &request);
    // In Kafka the coordinator hears of it later.
    let all = offsets::fetch_all(9, "gone");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !peer.call(9, &all).groups[0].topics.is_empty() {
        assert!(Instant::now() < deadline, "{}: the offsets stay", peer.name);
        std::thread::park_timeout(Duration::from_millis(20));
    }
    peer.ask("OffsetFetch of a deleted topic by id", 10, &offsets::fetch(10, "gone", &gone, &[0]));
    peer.ask("OffsetFetch of a deleted topic", 9, &offsets::fetch(9, "gone", &gone, &[0]));
}
