//! Groups on a whole simulated broker: members of both protocols, tools and transactions, used over
//! simulated connections, judged by an oracle that knows what everybody was told.
//!
//! One seed is one life: boots with other numbers of shards, members that join, commit, leave, are
//! silent past their sessions, die, come back, and go on as zombies with what they once had;
//! requests lost, doubled and late; a group that goes over from one protocol to the other and back,
//! member by member; topics that are created and grow; power loss at any step, also
//! while groups are loaded; failing and full disks. At the end all is calm: every group must come
//! to rest with each partition at one member, and every committed offset be there.

mod broken;
mod classic;
mod consumer;
mod member;
mod offsets;
mod oracle;
mod owners;
mod scenario;
mod tools;
mod transactions;

use ringlog::ids::TopicId;

use crate::machine::Cluster;
use crate::seeds::{self, Trouble};
use crate::support::requests::Topic;

#[test]
fn groups_keep_what_they_were_told() {
    seeds::check("groups_keep_what_they_were_told", SEEDS, Trouble::NONE, scenario::run);
}

#[test]
fn groups_keep_what_they_were_told_over_faults() {
    let test = "groups_keep_what_they_were_told_over_faults";
    seeds::check(test, SEEDS, Trouble::FAULTS, scenario::run);
}

#[test]
fn groups_keep_what_they_were_told_while_their_log_is_compacted() {
    let test = "groups_keep_what_they_were_told_while_their_log_is_compacted";
    seeds::check(test, SEEDS_COMPACTED, Trouble::COMPACTION, scenario::run);
}

#[test]
fn a_seed_of_groups_gives_the_same_run_twice() {
    seeds::check_determinism(scenario::run);
}

/// How many partitions a topic has, 0 if there is none.
fn partitions_of(cluster: &Cluster, name: &str) -> i32 {
    let image = cluster.shards[0].catalog();
    image.topic(name).map_or(0, |topic| topic.partition_count())
}

/// A topic with its id.
fn topic_of(cluster: &Cluster, name: &str) -> Topic {
    let image = cluster.shards[0].catalog();
    let id = image.topic(name).map_or(TopicId::ZERO, |topic| topic.id);
    Topic { name: name.to_owned(), id: id.into() }
}

fn topic_with_id(cluster: &Cluster, id: TopicId) -> Option<Topic> {
    let image = cluster.shards[0].catalog();
    let topic = image.topic_by_id(id)?;
    Some(Topic { name: topic.name.to_string(), id: id.into() })
}

/// The topics that members read; the second comes later.
const TOPICS: [&str; 2] = ["data-0", "data-1"];
const FIRST_TOPIC: &str = TOPICS[0];

/// A group of the classic protocol, one of KIP-848, one of both, and one without members.
const GROUPS: [&str; 4] = [CLASSIC, CONSUMER, MIXED, BY_HAND];
const CLASSIC: &str = "classic";
const CONSUMER: &str = "consumer";
const MIXED: &str = "mixed";
const BY_HAND: &str = "by-hand";

/// Seeds of each kind when nothing else is asked for.
const SEEDS: u64 = 120;

/// Seeds whose internal topics are compacted all the time.
const SEEDS_COMPACTED: u64 = 80;
