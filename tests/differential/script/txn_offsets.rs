//! TxnOffsetCommit: what is checked, and in which order.

use std::time::{Duration, Instant};

use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, GroupId, ProducerId,
    TransactionalId, TxnOffsetCommitRequest,
};

use crate::peer::Peer;
use crate::support::offsets::{self, text};
use crate::support::requests::{Topic, init_producer_id};

/// Runs behind the script of committed offsets, on its topics.
pub fn ask(peer: &mut Peer) {
    let request =
        FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("any")]);
    until(peer, |peer| peer.call(4, &request).coordinators[0].error_code == 0);
    for version in 0..=5 {
        commits(peer, version);
    }
}

fn until(peer: &mut Peer, mut done: impl FnMut(&mut Peer) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done(peer) {
        assert!(Instant::now() < deadline, "{}: it does not come", peer.name);
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

type Id = (i64, i16);

fn init(peer: &mut Peer, id: &str) -> Id {
    let mut who = (-1, -1);
    until(peer, |peer| {
        let response = peer.call(4, &init_producer_id(Some(id)));
        who = (response.producer_id.0, response.producer_epoch);
        response.error_code == 0
    });
    who
}

fn request(id: &str, who: Id, group: &str) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(7)
        .with_committed_metadata(Some(text("m")));
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(Topic::named("offsets-a").wire_name())
        .with_partitions(vec![partition]);
    TxnOffsetCommitRequest::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_group_id(GroupId(text(group)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_topics(vec![topic])
}

fn commits(peer: &mut Peer, version: i16) {
    let (id, group) = (format!("txn-{version}"), format!("txn-group-{version}"));
    let stale = init(peer, &id);
    let who = init(peer, &id);
    assert_eq!((stale.0, stale.1 + 1), who);
    refusals(peer, version, &id, who, &group);
    let add = AddOffsetsToTxnRequest::default()
        .with_transactional_id(TransactionalId(text(&id)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_group_id(GroupId(text(&group)));
    if version < 5 {
        until(peer, |peer| peer.call(3, &add).error_code == 0);
    }
    let plain = request(&id, who, &group);
    if version >= 3 {
        let member = plain.clone().with_generation_id(3).with_member_id(text("member"));
        peer.ask("TxnOffsetCommit of an unknown group's member", version, &member);
    }
    peer.ask("TxnOffsetCommit", version, &plain);
    if version >= 3 {
        let member = plain.clone().with_generation_id(3).with_member_id(text("member"));
        peer.ask("TxnOffsetCommit of a member of none", version, &member);
        let member = member.with_group_instance_id(Some(text("instance")));
        peer.ask("TxnOffsetCommit of an instance of none", version, &member);
        let member = member.with_generation_id(-1);
        peer.ask("TxnOffsetCommit of a member without a generation", version, &member);
    }
    kinds(peer, version, &plain);
    let all = offsets::fetch_all(9, &group);
    peer.ask(&format!("OffsetFetch in TxnOffsetCommit {version}"), 9, &all);
    let topic = Topic::named("offsets-a");
    let mut stable = offsets::fetch(9, &group, &topic, &[0, 1, 2]);
    stable.0.require_stable = true;
    peer.ask(&format!("OffsetFetch of what is stable in TxnOffsetCommit {version}"), 9, &stable);
    let end = EndTxnRequest::default()
        .with_transactional_id(TransactionalId(text(&id)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_committed(true);
    let end_version = if version < 5 { 4 } else { 5 };
    until(peer, |peer| peer.call(end_version, &end).error_code == 0);
    until(peer, |peer| {
        let found = peer.call(9, &stable);
        found.groups[0].topics[0].partitions.iter().all(|partition| partition.error_code == 0)
    });
    peer.ask(&format!("OffsetFetch after TxnOffsetCommit {version}"), 9, &all);
    // A fenced producer, after its transaction.
    let fenced = request(&id, stale, &group);
    peer.ask("TxnOffsetCommit of a fenced producer", version, &fenced);
}

fn refusals(peer: &mut Peer, version: i16, id: &str, who: Id, group: &str) {
    let mut ask = |case: &str, id: &str, who: Id, group: &str| {
        let case = format!("TxnOffsetCommit {case}");
        peer.ask(&case, version, &request(id, who, group));
    };
    if version < 5 {
        ask("in no transaction", id, who, group);
    }
    ask("of an unknown id", "nobody's", who, group);
    ask("without an id", "", who, group);
    ask("of another producer", id, (who.0 + 1_000_000, who.1), group);
    ask("of an older epoch", id, (who.0, who.1 - 1), group);
    ask("of a newer epoch", id, (who.0, who.1 + 5), group);
    ask("without a producer", id, (-1, -1), group);
    ask("of the empty group", id, who, "");
    peer.ask("TxnOffsetCommit of nothing", version, &TxnOffsetCommitRequest::default());
}

fn kinds(peer: &mut Peer, version: i16, plain: &TxnOffsetCommitRequest) {
    let mut request = plain.clone();
    let first = request.topics[0].partitions[0].clone();
    let at = |index: i32, metadata: Option<String>| {
        let metadata = metadata.map(|metadata| text(&metadata));
        first.clone().with_partition_index(index).with_committed_metadata(metadata)
    };
    request.topics[0].partitions = vec![
        at(0, Some("x".repeat(4097))),
        at(1, None),
        at(3, None),
        at(-1, Some("x".repeat(5000))),
    ];
    let unknown = Topic::named("no-such-topic").wire_name();
    request.topics.push(request.topics[0].clone().with_name(unknown));
    peer.ask("TxnOffsetCommit of all kinds", version, &request);
    request.topics.remove(0);
    request.transactional_id = TransactionalId(text("nobody's"));
    peer.ask("TxnOffsetCommit of unknown topics", version, &request);
}
