//! Bounds that it takes much of something ordinary to run into: what happens at each, one beyond
//! it, and the metric.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kafka_protocol::messages::GroupId;
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::messages::consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest;
use ringlog::limits::{
    DRAIN_MS, MARKERS_PER_TURN_MAX, METRICS_PARTITIONS_MAX, REGEX_NAMES_PER_TURN_MAX,
    SEGMENT_WRITERS_MAX, TOMBSTONES_PER_BATCH_MAX, WRITE_BEHIND_BYTES,
};
use rustix::process::Signal;

use crate::slow::{big_fetch, fill};
use crate::stage::{Stage, until};
use crate::support::batch::{Batch, Record};
use crate::support::client::Client;
use crate::support::requests::{self, Topic, init_producer_id};
use crate::support::transactions::{self, Identity};
use crate::support::{groups, offsets};

const PATIENCE: Duration = Duration::from_secs(60);

/// A topic with so many partitions.
fn wide(client: &mut Client, name: &str, partitions: usize) -> Topic {
    client.set_timeout(PATIENCE);
    let count = i32::try_from(partitions).expect("a small number");
    let created = client.call(7, &requests::create_topic(name, count));
    assert_eq!(created.topics[0].error_code, 0, "{created:?}");
    Topic { name: name.to_owned(), id: created.topics[0].topic_id }
}

#[test]
fn more_partitions_than_writers_wait_for_their_turn() {
    let mut stage = Stage::start(&[]);
    let mut client = stage.broker.connect();
    let topic = wide(&mut client, "writers", 3 * SEGMENT_WRITERS_MAX);
    let batch = Batch::of(vec![Record::value(vec![b'w'; WRITE_BEHIND_BYTES])]).encode();
    let code = |produced: ProduceResponse| produced.responses[0].partition_responses[0].error_code;
    // One partition at a time has a writer at once.
    for _ in 0..8 {
        let request = requests::produce(13, &topic, 0, -1, batch.clone());
        assert_eq!(code(client.call(13, &request)), 0);
    }
    assert_eq!(stage.reached("segment_writers"), 0);
    let deadline = Instant::now() + PATIENCE;
    let mut rounds = 0;
    while stage.reached("segment_writers") == 0 {
        assert!(Instant::now() < deadline, "{rounds} rounds never keep all writers busy");
        rounds += 1;
        let sent: Vec<_> = (0..3 * SEGMENT_WRITERS_MAX as i32)
            .map(|index| {
                let request = requests::produce(13, &topic, index, -1, batch.clone());
                client.send(13, &request)
            })
            .collect();
        for sent in sent {
            assert_eq!(code(client.receive(sent)), 0);
        }
    }
    for index in 1..3 * SEGMENT_WRITERS_MAX as i32 {
        let end = client.call(7, &requests::list_offsets("writers", index, -1));
        assert_eq!(end.topics[0].partitions[0].offset, rounds, "of partition {index}");
    }
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn a_group_with_many_offsets_is_deleted_in_several_batches() {
    let mut stage = Stage::start(&[]);
    let mut client = stage.coordinator();
    let topic = wide(&mut client, "offsets", TOMBSTONES_PER_BATCH_MAX + 1);
    let mut life = |group: &str, count: usize| {
        let mut commit = offsets::commit(9, group, &topic, 0, 7);
        let one = commit.0.topics[0].partitions[0].clone();
        commit.0.topics[0].partitions =
            (0..count as i32).map(|index| one.clone().with_partition_index(index)).collect();
        let committed = client.call(9, &commit);
        let codes = &committed.topics[0].partitions;
        assert!(codes.len() == count && codes.iter().all(|found| found.error_code == 0));
        let deleted = client.call(2, &groups::delete(&[group]));
        assert_eq!(deleted.results[0].error_code, 0, "{deleted:?}");
        let left = client.call(8, &offsets::fetch_all(8, group));
        assert_eq!(left.groups[0].topics.len(), 0);
    };
    life("fits", TOMBSTONES_PER_BATCH_MAX - 1);
    assert_eq!(stage.reached("tombstones_per_batch"), 0, "with the group's own");
    life("more", TOMBSTONES_PER_BATCH_MAX + 1);
    assert_eq!(stage.reached("tombstones_per_batch"), 1);
    stage.witness_is_served();
}

#[test]
fn a_transaction_over_many_partitions_is_marked_in_several_turns() {
    let mut stage = Stage::start(&[]);
    let mut client = stage.broker.connect();
    let topic = wide(&mut client, "marked", MARKERS_PER_TURN_MAX + 1);
    let mut transaction = |id: &str, count: usize| {
        let deadline = Instant::now() + PATIENCE;
        let begun = loop {
            let begun = client.call(5, &init_producer_id(Some(id)));
            match begun.error_code {
                0 => break begun,
                14..=16 => assert!(Instant::now() < deadline, "{begun:?}"),
                code => panic!("{code}"),
            }
        };
        let who = Identity { id: begun.producer_id.0, epoch: begun.producer_epoch };
        let partitions: Vec<_> = (0..count as i32).map(|index| ("marked", index)).collect();
        let added = client.call(3, &transactions::add_partitions(3, id, who, &partitions));
        let codes = &added.results_by_topic_v3_and_below[0].results_by_partition;
        assert!(codes.len() == count);
        assert!(codes.iter().all(|found| found.partition_error_code == 0), "{:?}", codes[0]);
        assert_eq!(client.call(3, &transactions::end_txn(id, who, true)).error_code, 0);
        let ended = |client: &mut Client| {
            let described = client.call(0, &transactions::describe_transactions(&[id]));
            described.transaction_states[0].transaction_state.as_str() == "CompleteCommit"
        };
        while !ended(&mut client) {
            assert!(Instant::now() < deadline, "it does not end");
        }
    };
    transaction("fits", MARKERS_PER_TURN_MAX);
    assert_eq!(stage.reached("markers_per_turn"), 0);
    transaction("more", MARKERS_PER_TURN_MAX + 1);
    assert_eq!(stage.reached("markers_per_turn"), 1);
    let last = MARKERS_PER_TURN_MAX as i32;
    for (index, markers) in [(0, 2), (last - 1, 2), (last, 1)] {
        let end = client.call(7, &requests::list_offsets(&topic.name, index, -1));
        assert_eq!(end.topics[0].partitions[0].offset, markers, "of partition {index}");
    }
    stage.witness_is_served();
}

#[test]
fn partitions_beyond_the_bound_are_left_out_of_a_scrape() {
    let mut stage = Stage::with_memory("512MiB", &[]);
    let mut client = stage.broker.connect();
    // The witness has one.
    wide(&mut client, "many", METRICS_PARTITIONS_MAX - 1);
    let told = |stage: &Stage| {
        let text = stage.metrics();
        let count = text.lines().filter(|line| line.starts_with("kafka_log_log_size{")).count();
        let all = text.lines().find_map(|line| {
            line.strip_prefix("kafka_server_replicamanager_partitioncount ")?.parse::<usize>().ok()
        });
        (count, all.expect("a number"))
    };
    assert_eq!(told(&stage), (METRICS_PARTITIONS_MAX, METRICS_PARTITIONS_MAX));
    assert_eq!(stage.reached("metrics_partitions"), 0);
    wide(&mut client, "one-more", 1);
    assert_eq!(told(&stage), (METRICS_PARTITIONS_MAX, METRICS_PARTITIONS_MAX + 1));
    assert!(stage.reached("metrics_partitions") >= 1);
    stage.witness_is_served();
}

#[test]
fn an_expression_is_held_against_more_names_than_fit_into_a_turn() {
    let mut stage = Stage::with_memory("256MiB", &[]);
    let mut client = stage.coordinator();
    let count = REGEX_NAMES_PER_TURN_MAX + 1;
    let mut create = requests::create_topic("t-0", 1);
    let one = create.topics[0].clone();
    create.topics = (0..count)
        .map(|number| {
            let name = Topic::named(&format!("t-{number}")).wire_name();
            one.clone().with_name(name)
        })
        .collect();
    let created = client.call(7, &create);
    assert!(created.topics.iter().all(|topic| topic.error_code == 0));
    let beat = |epoch: i32| {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(offsets::text("expressed")))
            .with_member_id(offsets::text("a"))
            .with_member_epoch(epoch)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None)
    };
    let join = beat(0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_regex(Some(offsets::text("t-.*")))
        .with_topic_partitions(Some(Vec::new()));
    let joined = client.call(1, &join);
    assert_eq!(joined.error_code, 0, "{joined:?}");
    let (mut epoch, mut assigned) = (joined.member_epoch, 0);
    let deadline = Instant::now() + PATIENCE;
    while assigned < count {
        assert!(Instant::now() < deadline, "{assigned} of {count} topics are assigned");
        stage.old_witness_is_served();
        let answer = client.call(1, &beat(epoch));
        assert_eq!(answer.error_code, 0, "{answer:?}");
        epoch = answer.member_epoch;
        assigned = answer.assignment.map_or(assigned, |of| of.topic_partitions.len());
    }
    assert_eq!(assigned, count, "and not the witness");
    stage.witness_is_served();
}

#[test]
fn a_client_that_takes_nothing_holds_a_stop_up_for_so_long_only() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("unread");
    fill(&stage, &topic, 20);
    let mut deaf = TcpStream::connect(stage.broker.addresses()[0]).expect("it listens");
    deaf.write_all(&big_fetch(&topic, 0).repeat(10)).expect("taken");
    deaf.set_nonblocking(true).expect("an option");
    // As much of the responses has left as the sockets take.
    let (mut left, mut looked) = (0, vec![0; 16 << 20]);
    until(PATIENCE, "no more of the responses leaves", || {
        std::thread::sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut left, deaf.peek(&mut looked).unwrap_or(0));
        left == before && left > 0
    });
    stage.broker.signal(Signal::TERM);
    let began = Instant::now();
    let ended = stage.broker.wait();
    let took = began.elapsed();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let most = Duration::from_millis(DRAIN_MS);
    assert!(took >= most - Duration::from_millis(100), "it was not waited for: {took:?}");
    assert!(took < most + Duration::from_secs(5), "{took:?}");
    // What it had was durable, and is there again.
    stage.broker.restart();
    let mut client = stage.broker.connect();
    let end = client.call(7, &requests::list_offsets("unread", 0, -1));
    assert_eq!(end.topics[0].partitions[0].offset, 20);
}
