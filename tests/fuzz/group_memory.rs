//! What groups cost in memory while nothing happens: by member and by committed offset.
//!
//! Not about hostile input, but the allocator of this binary counts. Few large groups and many
//! small ones: what a group costs by itself is divided among its members.

use std::sync::Arc;

use bytes::Bytes;
use ringlog::coordinator::group::Groups;
use ringlog::coordinator::group::classic::join::Join;
use ringlog::coordinator::group::classic::members::Sync;
use ringlog::coordinator::group::classic::{Protocol, Rules};
use ringlog::coordinator::group::consumer::{self, MigrationPolicy, TopicFacts, Topics};
use ringlog::coordinator::group::outcome::{Answer, Now, Outcome, Ticket, TimerKey};
use ringlog::coordinator::group::record::{GroupRecord, OffsetKey, OffsetValue};
use ringlog::ids::{Offset, TopicId};

use crate::allocation::kept;

struct NoTopics;

impl Topics for NoTopics {
    fn by_name(&self, _: &str) -> Option<TopicFacts> {
        None
    }

    fn name_of(&self, _: TopicId) -> Option<Arc<str>> {
        None
    }

    fn names(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn version(&self) -> i64 {
        0
    }
}

const RULES: Rules = Rules {
    session_ms_min: 1,
    session_ms_max: 60_000,
    initial_delay_ms: 1_000,
    members_max: usize::MAX,
};

fn of_consumers(now: Now) -> consumer::Rules<'static> {
    consumer::Rules {
        now,
        session_timeout_ms: 45_000,
        heartbeat_interval_ms: 5_000,
        assignment_interval_ms: 0,
        members_max: usize::MAX,
        classic_members_max: usize::MAX,
        assignors: &[],
        regex_refresh_ms: i64::MAX,
        policy: MigrationPolicy::Disabled,
        topics: &NoTopics,
    }
}

fn apply(groups: &mut Groups, outcome: Outcome) -> Vec<(Ticket, Answer)> {
    for record in outcome.records {
        groups.apply(Offset(0), None, record);
    }
    outcome.answers
}

fn join(group: &Arc<str>, number: usize) -> Join {
    // As a consumer of librdkafka or Java sends it: one topic, nothing owned, no user data.
    let subscription = b"\0\x01\0\0\0\x01\0\x0corders-topic\xff\xff\xff\xff\0\0\0\0";
    let protocol =
        |name: &str| Protocol { name: name.into(), metadata: Bytes::copy_from_slice(subscription) };
    Join {
        group: Arc::clone(group),
        member_id: "".into(),
        instance_id: None,
        client_id: format!("consumer-{number}").into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout_ms: 300_000,
        session_timeout_ms: 45_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range"), protocol("cooperative-sticky")],
        version: 3,
        unique: format!("01234567-89ab-cdef-0123-{number:012}").into(),
    }
}

/// A stable classic group of so many members.
fn settle(groups: &mut Groups, group: &Arc<str>, members: usize) {
    let at = |ms| Now { ms, wall_ms: ms };
    for number in 0..members {
        let outcome = groups.join(join(group, number), Ticket(0), &RULES, &of_consumers(at(0)));
        apply(groups, outcome);
    }
    // The delay of a group that was empty is extended as long as members come.
    let answers = (1..9).map(|minutes| {
        let outcome = groups.timer(group, &TimerKey::Join, &RULES, at(60_000 * minutes));
        apply(groups, outcome)
    });
    let answers: Vec<_> = answers.collect();
    let ids: Vec<Arc<str>> = answers
        .into_iter()
        .flatten()
        .map(|(_, answer)| match answer {
            Answer::Join(answer) => answer.member_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), members);
    let assignment = b"\0\x01\0\0\0\x01\0\x0corders-topic\0\0\0\x01\0\0\0\0\xff\xff\xff\xff";
    let assigned = || ids.iter().map(|id| (Arc::clone(id), Bytes::from_static(assignment)));
    // The first by its id leads.
    let mut sorted = ids.clone();
    sorted.sort();
    for id in sorted.iter().rev() {
        let sync = Sync {
            group: Arc::clone(group),
            member_id: Arc::clone(id),
            instance_id: None,
            generation: 1,
            protocol_type: None,
            protocol: None,
            assignments: assigned().collect(),
        };
        let outcome = groups.sync(&sync, Ticket(0), &RULES, &of_consumers(at(600_000)));
        apply(groups, outcome);
    }
    assert_eq!(groups.describe(group).expect("a group").state, "Stable");
}

#[test]
fn an_idle_member_of_a_classic_group_costs_less_than_two_kib() {
    // Timers are kept by the shard, and are not counted here: 300 bytes are left for them.
    for (count, members) in [(1, 1_000), (100, 10), (200, 4)] {
        let (_, bytes) = kept(|| {
            let mut groups = Groups::default();
            for number in 0..count {
                settle(&mut groups, &format!("group-{number}").into(), members);
            }
            groups
        });
        let each = bytes / (count * members);
        println!("{count} groups of {members}: {each} bytes for each member");
        assert!(each <= 1_748, "{count} groups of {members}: {each} bytes for each member");
    }
}

#[test]
fn a_committed_offset_costs_less_than_one_kib() {
    for (count, topics, partitions) in [(1, 1, 10_000), (10, 100, 10), (1_000, 1, 1), (100, 10, 1)]
    {
        let (_, bytes) = kept(|| {
            let mut groups = Groups::default();
            for number in 0..count * topics * partitions {
                let key = OffsetKey {
                    group: format!("group-{}", number / topics / partitions).into(),
                    topic: format!("orders-topic-{}", number / partitions % topics).into(),
                    partition: (number % partitions) as i32,
                };
                let value = OffsetValue {
                    offset: number as i64,
                    leader_epoch: 0,
                    metadata: "".into(),
                    commit_ms: 1,
                    expire_ms: None,
                    topic_id: TopicId([1; 16]),
                };
                groups.apply(Offset(number as i64), None, GroupRecord::Offset(key, Some(value)));
            }
            groups
        });
        let each = bytes / (count * topics * partitions);
        let of = format!("{count} groups of {topics} topics of {partitions} partitions");
        println!("{of}: {each} bytes for each offset");
        assert!(each <= 1_024, "{of}: {each} bytes for each offset");
    }
}
