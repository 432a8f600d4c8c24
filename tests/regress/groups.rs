//! Groups: their offsets in transactions while they rebalance, and what outlives a crash.

use std::time::{Duration, Instant};

use crate::calls::{Producer, committed};
use crate::stage::{Needs, Stage, Stop, TWO_SHARDS, on_ringlog, unique};
use crate::support::client::Client;
use crate::support::groups;
use crate::support::offsets::{self, fetch_all};
use crate::support::transactions::GROUP;

/// The first member of a group; its id.
fn enter(client: &mut Client, group: &str) -> String {
    let joined = client.call(3, &groups::join(3, group, ""));
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let id = joined.member_id.to_string();
    let synced = client.call(5, &groups::sync(5, group, (&id, 1), &[(&id, b"mine")]));
    assert_eq!(synced.error_code, 0);
    id
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// redpanda-data/redpanda#6423 and #5543: a transaction that ended while its group was rebalancing
/// left its offsets pending for ever.
#[test]
fn a_transaction_ends_while_its_group_rebalances() {
    on_ringlog(TWO_SHARDS, Needs::Shared, |stage: &Stage| {
        for commit in [true, false] {
            let topic = stage.topic("rebalancing", 1);
            let group = unique("rebalancing");
            let node = stage.coordinator(GROUP, &group);
            let (mut first, mut second) = (stage.connect(node), stage.connect(node));
            let id = enter(&mut first, &group);
            let mut producer = Producer::new(stage, "rebalancing");
            assert_eq!(producer.commit_offset(5, &group, &topic, 0, 10), 0);
            assert_eq!(committed(stage, &group, &topic, 0, true), (88, -1));
            let join = second.send(3, &groups::join(3, &group, ""));
            until("a rebalance", || {
                first.call(4, &groups::heartbeat(&group, &id, 1)).error_code == 27
            });
            producer.ended(5, commit);
            let expected = if commit { (0, 10) } else { (0, -1) };
            assert_eq!(committed(stage, &group, &topic, 0, true), expected);
            assert_eq!(first.call(9, &groups::join(9, &group, &id)).generation_id, 2);
            assert_eq!(second.receive(join).generation_id, 2);
            assert_eq!(committed(stage, &group, &topic, 0, true), expected);
        }
    });
}

/// redpanda-data/redpanda#4900: a deleted group came back after a restart, as did deleted offsets.
#[test]
fn what_was_deleted_stays_deleted() {
    on_ringlog(TWO_SHARDS, Needs::Alone(&[]), |stage: &Stage| {
        let topic = stage.topic("deleted", 2);
        let (kept, deleted) = (unique("kept"), unique("deleted"));
        for group in [&kept, &deleted] {
            let node = stage.coordinator(GROUP, group);
            let mut member = stage.connect(node);
            let id = enter(&mut member, group);
            assert_eq!(member.call(3, &groups::leave(3, group, &id, None)).error_code, 0);
            for partition in 0..2 {
                let request = offsets::commit(9, group, &topic, partition, 5);
                let answer = stage.call(node, 9, &request);
                assert_eq!(answer.topics[0].partitions[0].error_code, 0);
            }
        }
        let node = |group: &str| stage.coordinator(GROUP, group);
        let request = offsets::delete(&kept, &topic.name, &[0]);
        assert_eq!(stage.call(node(&kept), 0, &request).error_code, 0);
        let gone = stage.call(node(&deleted), 2, &groups::delete(&[&deleted]));
        assert_eq!(gone.results[0].error_code, 0);
        for stop in [Stop::Kill, Stop::Clean, Stop::Kill] {
            stage.restart(stop);
            stage.eventually_in_kafka("offsets of the group", || {
                stage.call(node(&deleted), 9, &fetch_all(9, &deleted)).groups[0].error_code
            });
            let fetched = stage.call(node(&deleted), 9, &fetch_all(9, &deleted));
            assert_eq!(fetched.groups[0].topics.len(), 0);
            let described = stage.call(node(&deleted), 5, &groups::describe(&[&deleted]));
            assert_eq!(described.groups[0].group_state.as_str(), "Dead");
            assert_eq!(committed(stage, &kept, &topic, 0, true), (0, -1));
            assert_eq!(committed(stage, &kept, &topic, 1, true), (0, 5));
        }
    });
}
