//! Offsets committed in transactions: pending until their marker, whatever happens in between.

use std::time::{Duration, Instant};

use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, GroupId, ProducerId, TransactionalId, TxnOffsetCommitRequest,
};

use crate::cluster::{self, Cluster, Mode, unique};
use crate::group_offsets::{self, commit, fetched, group, node_of};
use crate::support::client::Client;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;
use crate::transactions::{Id, begin, coordinator, describe, end, init, producer};

in_every_mode!(
    a_commit_shows_them,
    an_abort_drops_them,
    a_later_plain_commit_wins,
    the_partition_must_be_in_the_transaction,
    fenced_producers_are_refused,
    the_transaction_comes_before_the_group,
    what_does_not_exist_is_refused_by_itself,
    other_nodes_refuse,
    a_deletion_takes_pending_ones_along,
    long_rows_of_transactions,
);

/// A TxnOffsetCommit of one offset, without a member.
fn request(
    id: &str,
    who: Id,
    group: &str,
    topic: &Topic,
    at: (i32, i64),
) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition::default()
        .with_partition_index(at.0)
        .with_committed_offset(at.1)
        .with_committed_metadata(Some(text("in a transaction")));
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(topic.wire_name())
        .with_partitions(vec![partition]);
    TxnOffsetCommitRequest::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_group_id(GroupId(text(group)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_topics(vec![topic])
}

/// The codes of all partitions.
fn send(client: &mut Client, version: i16, request: &TxnOffsetCommitRequest) -> Vec<i16> {
    let response = client.call(version, request);
    assert_eq!(response.throttle_time_ms, 0);
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

fn add_offsets(client: &mut Client, version: i16, id: &str, who: Id, group: &str) -> i16 {
    let request = AddOffsetsToTxnRequest::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_group_id(GroupId(text(group)));
    client.call(version, &request).error_code
}

/// One partition's offset and code, from a reader of stable offsets.
fn stable(client: &mut Client, group: &str, topic: &Topic, partition: i32) -> (i64, i16) {
    let mut request = offsets::fetch(9, group, topic, &[partition]);
    request.0.require_stable = true;
    let found = fetched(client, 9, &request)[0];
    (found.1, found.2)
}

/// Waits until nothing is pending: markers come after the answer of EndTxn.
fn settled(client: &mut Client, group: &str, topic: &Topic, partition: i32) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match stable(client, group, topic, partition) {
            (offset, 0) => return offset,
            (offset, code) => assert_eq!((offset, code), (-1, 88)),
        }
        assert!(Instant::now() < deadline, "still pending");
        std::thread::yield_now();
    }
}

/// A transactional id with its identity, a group with an offset of 5, and connections to both.
struct Scene {
    id: String,
    who: Id,
    transactions: Client,
    group: String,
    offsets: Client,
    topic: Topic,
}

fn scene(cluster: &Cluster) -> Scene {
    let topic = cluster.topic("consumed", 2);
    let (id, mut transactions) = producer(cluster, "copier");
    let (group, mut offsets) = group(cluster);
    let who = begin(&mut transactions, &id);
    let plain = offsets::commit(9, &group, &topic, 0, 5);
    assert_eq!(commit(&mut offsets, 9, &plain), [[(0, 0)]]);
    Scene { id, who, transactions, group, offsets, topic }
}

impl Scene {
    fn request(&self, partition: i32, offset: i64) -> TxnOffsetCommitRequest {
        request(&self.id, self.who, &self.group, &self.topic, (partition, offset))
    }

    /// Commits an offset in the transaction, which adds the partition.
    fn commit(&mut self, partition: i32, offset: i64) {
        let request = self.request(partition, offset);
        assert_eq!(send(&mut self.offsets, 5, &request), [0]);
    }

    /// Ends the transaction and takes the next identity.
    fn end(&mut self, commit: bool) {
        let (code, producer, epoch) = end(&mut self.transactions, 5, &self.id, self.who, commit);
        assert_eq!(code, 0);
        self.who = (producer, epoch);
    }

    fn stable(&mut self, partition: i32) -> (i64, i16) {
        stable(&mut self.offsets, &self.group, &self.topic, partition)
    }

    fn settled(&mut self, partition: i32) -> i64 {
        settled(&mut self.offsets, &self.group, &self.topic, partition)
    }
}

fn a_commit_shows_them(cluster: &Cluster) {
    let mut scene = scene(cluster);
    scene.commit(0, 10);
    for version in [1, 5, 7, 8, 9, 10] {
        let mut request = offsets::fetch(version, &scene.group, &scene.topic, &[0, 1]);
        let found = fetched(&mut scene.offsets, version, &request);
        assert_eq!(found, [(0, 5, 0), (1, -1, 0)], "{version}");
        if version >= 7 {
            request.0.require_stable = true;
            let found = fetched(&mut scene.offsets, version, &request);
            assert_eq!(found, [(0, -1, 88), (1, -1, 0)], "{version}");
        }
    }
    scene.commit(1, 11);
    let mut all = offsets::fetch_all(9, &scene.group);
    assert_eq!(fetched(&mut scene.offsets, 9, &all), [(0, 5, 0)], "a pending one alone is none");
    all.0.require_stable = true;
    assert_eq!(fetched(&mut scene.offsets, 9, &all), [(0, -1, 88)]);
    scene.end(true);
    assert_eq!((scene.settled(0), scene.settled(1)), (10, 11));
    let response = scene.offsets.call(9, &offsets::fetch(9, &scene.group, &scene.topic, &[0]));
    let metadata = group_offsets::found(9, &response)[0].metadata.clone();
    assert_eq!(metadata.as_deref(), Some("in a transaction"));
}

fn an_abort_drops_them(cluster: &Cluster) {
    let mut scene = scene(cluster);
    scene.commit(0, 10);
    scene.commit(1, 11);
    scene.end(false);
    assert_eq!((scene.settled(0), scene.settled(1)), (5, -1));
    // The same once more, ended by the next producer of the id.
    scene.commit(0, 20);
    let (code, producer, epoch) = init(&mut scene.transactions, 5, &scene.id, None);
    assert_eq!((code, producer), (0, scene.who.0));
    assert!(epoch > scene.who.1);
    assert_eq!(scene.settled(0), 5);
    let request = scene.request(0, 21);
    assert_eq!(send(&mut scene.offsets, 5, &request), [47]);
}

fn a_later_plain_commit_wins(cluster: &Cluster) {
    let mut scene = scene(cluster);
    scene.commit(0, 10);
    let plain = offsets::commit(9, &scene.group, &scene.topic, 0, 20);
    assert_eq!(commit(&mut scene.offsets, 9, &plain), [[(0, 0)]]);
    assert_eq!(scene.stable(0), (-1, 88));
    scene.end(true);
    assert_eq!(scene.settled(0), 20);
}

fn the_partition_must_be_in_the_transaction(cluster: &Cluster) {
    let mut scene = scene(cluster);
    for (version, code) in [(0, 48), (1, 48), (2, 48), (3, 48), (4, 120)] {
        let request = scene.request(0, 10);
        assert_eq!(send(&mut scene.offsets, version, &request), [code], "version {version}");
    }
    let code = add_offsets(&mut scene.transactions, 3, &scene.id, scene.who, &scene.group);
    assert_eq!(code, 0);
    for version in 0..=4 {
        let request = scene.request(0, 10 + i64::from(version));
        assert_eq!(send(&mut scene.offsets, version, &request), [0], "version {version}");
    }
    assert_eq!(scene.stable(0), (-1, 88));
    let ended = end(&mut scene.transactions, 4, &scene.id, scene.who, true);
    assert_eq!(ended.0, 0);
    assert_eq!(scene.settled(0), 14);
}

fn fenced_producers_are_refused(cluster: &Cluster) {
    let mut scene = scene(cluster);
    let stale = scene.who;
    scene.who = begin(&mut scene.transactions, &scene.id);
    for version in 0..=5 {
        let current = scene.who;
        scene.who = stale;
        let request = scene.request(0, 10);
        scene.who = current;
        assert_eq!(send(&mut scene.offsets, version, &request), [47], "version {version}");
        let of_another = request.clone().with_producer_id(ProducerId(stale.0 + 1_000_000));
        assert_eq!(send(&mut scene.offsets, version, &of_another), [49], "version {version}");
        let unknown = request.clone().with_transactional_id(TransactionalId(text("nobody's")));
        assert_eq!(send(&mut scene.offsets, version, &unknown), [49], "version {version}");
        let none = request.clone().with_producer_id(ProducerId(-1));
        assert_eq!(send(&mut scene.offsets, version, &none), [49], "version {version}");
    }
    scene.commit(0, 11);
    scene.end(true);
    assert_eq!(scene.settled(0), 11);
}

fn the_transaction_comes_before_the_group(cluster: &Cluster) {
    let mut scene = scene(cluster);
    let new_group = unique("group");
    let mut client = cluster.connect_to(node_of(cluster, &new_group));
    let mut request = request(&scene.id, scene.who, &new_group, &scene.topic, (0, 10));
    request.generation_id = 3;
    request.member_id = text("member");
    assert_eq!(send(&mut client, 5, &request), [22]);
    let state = describe(&mut scene.transactions, &scene.id);
    assert_eq!(state.transaction_state.as_str(), "Ongoing");
    let topics: Vec<_> = state.topics.iter().map(|topic| topic.topic.as_str()).collect();
    assert_eq!(topics, ["__consumer_offsets"]);
    assert_eq!(state.topics[0].partitions.len(), 1);
    // A group that is known and has no members refuses the member.
    let mut request = scene.request(0, 10);
    request.generation_id = 3;
    request.member_id = text("member");
    assert_eq!(send(&mut scene.offsets, 5, &request), [25]);
    request.generation_id = -1;
    assert_eq!(send(&mut scene.offsets, 5, &request), [0]);
    scene.end(true);
    assert_eq!(scene.settled(0), 10);
}

fn what_does_not_exist_is_refused_by_itself(cluster: &Cluster) {
    let mut scene = scene(cluster);
    let mut request = scene.request(0, 10);
    let first = request.topics[0].partitions[0].clone();
    let long = first
        .clone()
        .with_partition_index(1)
        .with_committed_metadata(Some(text(&"x".repeat(4097))));
    request.topics[0].partitions.extend([long, first.clone().with_partition_index(2)]);
    let unknown = Topic::named("no-such-topic").wire_name();
    request.topics.push(request.topics[0].clone().with_name(unknown).with_partitions(vec![first]));
    assert_eq!(send(&mut scene.offsets, 5, &request), [3, 0, 12, 3], "refused ones first");
    request.topics.remove(0);
    let alone = request.with_transactional_id(TransactionalId(text("nobody's")));
    assert_eq!(send(&mut scene.offsets, 5, &alone), [3], "nothing is left to ask about");
    let empty_group = scene.request(0, 10).with_group_id(GroupId(text("")));
    assert_eq!(send(&mut scene.offsets, 5, &empty_group), [24]);
    scene.end(true);
    assert_eq!((scene.settled(0), scene.settled(1)), (10, -1));
}

fn other_nodes_refuse(cluster: &Cluster) {
    let scene = scene(cluster);
    let node = node_of(cluster, &scene.group);
    for (place, mut client) in (0..).zip(cluster.everywhere()) {
        let code = if cluster.is_single() || place == node { 0 } else { 16 };
        assert_eq!(send(&mut client, 5, &scene.request(0, 10)), [code], "node {place}");
    }
}

fn a_deletion_takes_pending_ones_along(cluster: &Cluster) {
    let mut scene = scene(cluster);
    scene.commit(0, 10);
    let deleted = scene.offsets.call(0, &offsets::delete(&scene.group, &scene.topic.name, &[0]));
    assert_eq!(deleted.error_code, 0);
    assert_eq!(scene.stable(0), (-1, 0));
    scene.end(true);
    // One that is shown after it proves that the marker has come.
    scene.commit(1, 11);
    scene.end(true);
    assert_eq!((scene.settled(1), scene.settled(0)), (11, -1));
}

fn long_rows_of_transactions(cluster: &Cluster) {
    let mut scene = scene(cluster);
    for round in 0..30 {
        scene.commit(0, 100 + round);
        scene.end(round % 3 != 2);
        if round % 3 == 2 {
            // What the reader sees must be the last one that was committed.
            assert_eq!(scene.settled(0), 100 + round - 1);
        }
    }
}

#[test]
fn a_restart_keeps_them_pending_per_core_2() {
    a_restart_keeps_them_pending(cluster::PER_CORE_2);
}

#[test]
fn a_restart_keeps_them_pending_single_5() {
    a_restart_keeps_them_pending(cluster::SINGLE_5);
}

fn a_restart_keeps_them_pending(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    for (round, clean) in [(0, false), (1, true)] {
        let mut scene = scene(&cluster);
        scene.commit(0, 10);
        if clean {
            assert_eq!(cluster.broker.terminate().code, Some(0));
        }
        cluster.broker.restart();
        scene.offsets = cluster.connect_to(node_of(&cluster, &scene.group));
        scene.transactions = cluster.connect_to(coordinator(&cluster, &scene.id));
        let plain = offsets::fetch(9, &scene.group, &scene.topic, &[0]);
        let found = group_offsets::loaded(&mut scene.offsets, &plain);
        assert_eq!(found, [(0, 5, 0)], "round {round}");
        assert_eq!(scene.stable(0), (-1, 88), "round {round}");
        crate::transactions::loaded(&mut scene.transactions, &scene.id);
        scene.end(true);
        assert_eq!(scene.settled(0), 10, "round {round}");
        // Decided, then killed before or after the marker came: it comes while groups are loaded.
        scene.commit(0, 20);
        scene.end(true);
        cluster.broker.restart();
        scene.offsets = cluster.connect_to(node_of(&cluster, &scene.group));
        group_offsets::loaded(&mut scene.offsets, &plain);
        assert_eq!(scene.settled(0), 20, "round {round}");
    }
}
