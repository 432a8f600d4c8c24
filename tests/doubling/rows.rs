//! The rows: what is there before, so many of it, and what is measured.
//!
//! Owns the list. Each measures the same number of the same requests at every size.

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    ApiVersionsRequest, ConsumerGroupHeartbeatRequest, GroupId, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::support::batch::Batch;
use crate::support::client::request_frame;
use crate::support::requests::{self, Topic};
use crate::support::transactions::Identity;
use crate::world::World;

/// Runs a row at a size.
pub fn run(row: &str, size: u64) {
    let mut world = World::new(if row == "produce_beside_other_shards" { size as u16 } else { 1 });
    world.create(BUSY, 1);
    match row {
        "produce_to_a_long_log" => after_batches(&mut world, size, produces),
        "tail_fetch_of_a_long_log" => after_batches(&mut world, size, tail_fetches),
        "end_of_a_long_log" => after_batches(&mut world, size, ends),
        "produce_beside_idle_partitions" => beside_partitions(&mut world, size, produces),
        "rest_of_idle_partitions" => beside_partitions(&mut world, size, rest),
        "produce_beside_idle_connections" => beside_connections(&mut world, size, produces),
        "rest_of_idle_connections" => beside_connections(&mut world, size, rest),
        "produce_beside_parked_fetches" => beside_parked(&mut world, size),
        "incremental_fetch_without_change" => sessions(&mut world, size, true),
        "full_fetch" => sessions(&mut world, size, false),
        "produce_beside_known_producers" => beside_producers(&mut world, size),
        "produce_beside_open_transactions" => beside_open(&mut world, size, produces),
        "stable_end_with_open_transactions" => beside_open(&mut world, size, stable_ends),
        "committed_tail_fetch_after_aborts" => after_aborts(&mut world, size, true),
        "committed_fetch_over_aborts" => after_aborts(&mut world, size, false),
        "commit_over_partitions" => commits(&mut world, size),
        "produce_beside_other_shards" => produces(&mut world),
        "produce_of_a_large_record" => large(&mut world, size),
        "produce_beside_configured_topics" => beside_topics(&mut world, size),
        "start_with_much_retained" => start(&mut world, size),
        "heartbeat_of_a_stable_member" => beats(&mut world, size),
        _ => panic!("there is no row {row}"),
    }
}

fn produces(world: &mut World) {
    world.produce(BUSY, 0, batch());
    world.measure(|world| {
        for _ in 0..REQUESTS {
            world.produce(BUSY, 0, batch());
        }
    });
}

fn tail_fetches(world: &mut World) {
    let last = world.produce(BUSY, 0, batch());
    let request = requests::fetch(11, &Topic::named(BUSY), 0, last);
    world.measure(|world| {
        for _ in 0..REQUESTS {
            let answer = world.ask(11, &request);
            let partition = &answer.responses[0].partitions[0];
            assert_eq!(partition.error_code, 0, "{answer:?}");
            assert!(partition.records.as_ref().is_some_and(|records| !records.is_empty()));
        }
    });
}

fn ends(world: &mut World) {
    ends_of(world, 0);
}

fn stable_ends(world: &mut World) {
    ends_of(world, 1);
}

fn ends_of(world: &mut World, isolation_level: i8) {
    let request = requests::list_offsets(BUSY, 0, -1).with_isolation_level(isolation_level);
    world.measure(|world| {
        for _ in 0..REQUESTS {
            let answer = world.ask(4, &request);
            assert_eq!(answer.topics[0].partitions[0].error_code, 0, "{answer:?}");
        }
    });
}

/// Nothing happens for ten seconds.
fn rest(world: &mut World) {
    world.measure(|world| world.sim.run_for(10_000).expect("no stall"));
}

fn after_batches(world: &mut World, size: u64, measured: fn(&mut World)) {
    for _ in 0..size {
        let batch = Batch::of_values([vec![7; LONG_BYTES]]).encode();
        world.produce(BUSY, 0, batch);
    }
    measured(world);
}

fn beside_partitions(world: &mut World, size: u64, measured: fn(&mut World)) {
    world.create("idle", size as i32);
    for partition in 0..size as i32 {
        world.produce("idle", partition, batch());
    }
    measured(world);
}

fn beside_connections(world: &mut World, size: u64, measured: fn(&mut World)) {
    let mut idle: Vec<_> = (0..size).map(|_| world.connect(0)).collect();
    for wire in &mut idle {
        let request = ApiVersionsRequest::default();
        world.sim.run_until(wire.call(3, &request)).expect("no stall").expect("an answer");
    }
    measured(world);
}

fn beside_parked(world: &mut World, size: u64) {
    world.create("parked", 1);
    let parked: Vec<_> = (0..size).map(|_| world.connect(0)).collect();
    let mut request = requests::fetch(11, &Topic::named("parked"), 0, 0);
    (request.max_wait_ms, request.min_bytes) = (3_600_000, 1);
    for wire in &parked {
        let frame = request_frame(11, 1, None, &request);
        world.sim.run_until(wire.send(&frame)).expect("no stall").expect("sent");
    }
    produces(world);
}

fn sessions(world: &mut World, size: u64, incremental: bool) {
    world.create("wide", size as i32);
    let partitions = (0..size as i32).map(|partition| {
        FetchPartition::default().with_partition(partition).with_partition_max_bytes(1 << 20)
    });
    let name = TopicName(StrBytes::from_static_str("wide"));
    let topic = FetchTopic::default().with_topic(name).with_partitions(partitions.collect());
    let mut request = requests::fetch(11, &Topic::named("wide"), 0, 0).with_topics(vec![topic]);
    if incremental {
        request.session_epoch = 0;
        let answer = world.ask(11, &request);
        assert!(answer.error_code == 0 && answer.session_id > 0, "{answer:?}");
        request.session_id = answer.session_id;
        request.topics.clear();
    } else {
        request.session_epoch = -1;
    }
    world.measure(|world| {
        for _ in 0..REQUESTS {
            request.session_epoch += i32::from(incremental);
            let answer = world.ask(11, &request);
            assert_eq!(answer.error_code, 0, "{answer:?}");
            assert_eq!(answer.responses.is_empty(), incremental, "{answer:?}");
        }
    });
}

fn beside_producers(world: &mut World, size: u64) {
    let of = |id: u64, sequence: u64| {
        Batch::of_values(["x"]).with_producer(1_000_000 + id as i64, 0, sequence as i32).encode()
    };
    for id in 0..size {
        world.produce(BUSY, 0, of(id, 0));
    }
    world.measure(|world| {
        for request in 0..REQUESTS {
            world.produce(BUSY, 0, of(size / 2, 1 + request));
        }
    });
}

fn beside_open(world: &mut World, size: u64, measured: fn(&mut World)) {
    for number in 0..size {
        let id = format!("open-{number}");
        let producer = world.producer(&id);
        world.produce_in(&id, BUSY, 0, &of(producer, 0));
    }
    measured(world);
}

fn after_aborts(world: &mut World, size: u64, tail: bool) {
    let mut producer = world.producer("aborting");
    for _ in 0..size {
        world.produce_in("aborting", BUSY, 0, &of(producer, 0));
        producer = world.end("aborting", producer, false);
        world.sim.run_for(20).expect("no stall");
    }
    let last = world.produce(BUSY, 0, batch());
    let from = if tail { last } else { 0 };
    let mut request = requests::fetch(11, &Topic::named(BUSY), 0, from);
    request.isolation_level = 1;
    world.measure(|world| {
        for _ in 0..REQUESTS {
            let answer = world.ask(11, &request);
            let partition = &answer.responses[0].partitions[0];
            let aborted = partition.aborted_transactions.as_ref().map_or(0, Vec::len);
            assert_eq!(aborted, if tail { 0 } else { size as usize }, "{answer:?}");
        }
    });
}

fn commits(world: &mut World, size: u64) {
    world.create("wide", size as i32);
    let mut producer = world.producer("wide");
    let begin = |world: &mut World, producer: Identity| {
        for partition in 0..size as i32 {
            world.produce_in("wide", "wide", partition, &of(producer, 0));
        }
    };
    begin(world, producer);
    producer = world.end("wide", producer, true);
    begin(world, producer);
    // The markers are written behind the answer.
    world.measure(|world| {
        world.end("wide", producer, true);
        world.sim.run_for(100).expect("no stall");
    });
}

fn large(world: &mut World, size: u64) {
    let batch = || Batch::of_values([vec![7; size as usize]]).encode();
    world.produce(BUSY, 0, batch());
    // Made before: the client's copies are not what is asked about.
    let batches: Vec<_> = (0..REQUESTS).map(|_| batch()).collect();
    world.measure(|world| {
        for batch in batches {
            world.produce(BUSY, 0, batch);
        }
    });
}

fn beside_topics(world: &mut World, size: u64) {
    for number in 0..size {
        let mut request = requests::create_topic(&format!("configured-{number}"), 1);
        let config =
            kafka_protocol::messages::create_topics_request::CreatableTopicConfig::default()
                .with_name(StrBytes::from_static_str("retention.ms"))
                .with_value(Some(StrBytes::from_static_str("86400000")));
        request.topics[0].configs = vec![config];
        assert_eq!(world.ask(4, &request).topics[0].error_code, 0);
    }
    produces(world);
}

fn start(world: &mut World, size: u64) {
    for _ in 0..size {
        let batch = Batch::of_values([vec![7; LONG_BYTES]]).encode();
        world.produce(BUSY, 0, batch);
    }
    world.stop();
    world.measure(World::start);
}

/// One member of many beats, whose group has come to rest. The consumer protocol, by which nobody
/// waits for anybody: members of the classic one would have to be asked at once.
fn beats(world: &mut World, size: u64) {
    // Who asks for a coordinator makes the topic of the groups. The answer is of no use: here
    // nobody listens, so there is no address.
    let _ = world.ask(4, &crate::support::offsets::find_coordinator("group"));
    let mut epochs = vec![0; size as usize];
    // In the last round everybody hears of the epoch that the last one's coming has made, as soon
    // as there may be another target.
    for _ in 0..3 {
        world.sim.run_for(TARGET_INTERVAL_MS).expect("no stall");
        for (number, epoch) in epochs.iter_mut().enumerate() {
            *epoch = world.beat(&member(number, *epoch));
        }
    }
    let last = epochs.iter().max().copied().expect("a member");
    assert!(epochs.iter().all(|epoch| *epoch == last), "{epochs:?}");
    let request = member(0, last);
    world.measure(|world| {
        for _ in 0..REQUESTS {
            assert_eq!(world.beat(&request), last);
        }
    });
}

/// More than `group.consumer.assignment.interval.ms`.
const TARGET_INTERVAL_MS: u64 = 2_000;

/// The heartbeat of a member, its first with what it subscribes to.
fn member(number: usize, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    let text = |text: String| StrBytes::from_string(text);
    let request = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("group".to_owned())))
        .with_member_id(text(format!("member-{number}")))
        .with_member_epoch(epoch)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None);
    if epoch > 0 {
        return request;
    }
    // A topic that is not there: nothing has to be handed over.
    let absent = TopicName(StrBytes::from_static_str("absent"));
    let subscribed = request.with_subscribed_topic_names(Some(vec![absent]));
    subscribed.with_rebalance_timeout_ms(30_000).with_topic_partitions(Some(Vec::new()))
}

/// A batch in the transaction of a producer.
fn of(producer: Identity, sequence: i32) -> Batch {
    Batch::of_values(["x"]).with_producer(producer.id, producer.epoch, sequence).transactional()
}

fn batch() -> bytes::Bytes {
    Batch::of_values(["x"]).encode()
}

const BUSY: &str = "busy";
const REQUESTS: u64 = 20;
/// A segment of a mebibyte holds some of them.
const LONG_BYTES: usize = 60_000;
