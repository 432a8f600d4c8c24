//! What a request costs a whole broker in allocations, and what members and offsets keep.
//!
//! The broker runs in this process, on one shard, over real sockets and files, and every allocation
//! of its threads counts: reading, shape check, decoding, the handler, the journal, the response.
//! The load's thread is left out. Bytes that are asked for bound what is copied: a record that
//! is copied needs new memory or goes to a block that is there. The bars: 12 allocations for a
//! Produce; a heartbeat of a stable member costs no more than one that is refused at once, and no
//! block of the journal; 2 KiB for an idle member, 1 KiB for an offset. What a broker does anyway
//! counts too, so that a busy machine adds to every request. Run with
//! `cargo bench --bench requests`.

mod counting;
#[path = "../tests/support/mod.rs"]
mod support;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use counting::Count;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ApiVersionsRequest, ConsumerGroupHeartbeatRequest, GroupId, TopicName,
};
use kafka_protocol::protocol::{Request, StrBytes};
use ringlog::broker;
use ringlog::config::BrokerConfig;
use ringlog::coordinator::group::offsets::{Commit, CommitRules, NewOffset};
use ringlog::coordinator::group::{CommitApi, Committer, Groups};
use ringlog::ids::{Offset, TopicId};
use rustix::process::{Signal, getpid, kill_process};
use support::batch::Batch;
use support::client::{Client, request_frame};
use support::groups;
use support::offsets;
use support::requests::{self, Topic};
use tempfile::TempDir;

fn main() {
    counting::leave_this_thread_out();
    let broker = Broker::start();
    println!("{:<44} {:>9} {:>12} {:>12}", "request", "in flight", "allocations", "bytes asked");
    produce(&broker);
    fetch(&broker);
    heartbeats(&broker);
    println!("\n{:<44} {:>9} {:>12}", "kept", "of them", "bytes each");
    members(&broker);
    broker.stop();
    committed();
}

/// A broker in this process.
struct Broker {
    address: SocketAddr,
    thread: JoinHandle<()>,
    directory: TempDir,
}

impl Broker {
    fn start() -> Broker {
        let directory = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
        let directory = directory.expect("a data directory");
        // Nobody else takes a port that has just been given back.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let listen = address.to_string();
        let config = BrokerConfig::with_overrides(&[
            ("data_dir", directory.path().to_str().expect("a plain path")),
            ("listen", &listen),
            ("shards", "1"),
            ("memory", "256MiB"),
            ("group.initial.rebalance.delay.ms", "1500"),
            // Records are old.
            ("log.initial.task.delay.ms", "3600000"),
        ]);
        let config = config.expect("a sound configuration");
        let thread = std::thread::spawn(move || broker::run(config).expect("an orderly end"));
        while Client::try_connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Broker { address, thread, directory }
    }

    fn connect(&self) -> Client {
        let mut client = Client::connect(self.address);
        client.set_timeout(Duration::from_secs(60));
        client
    }

    fn stop(self) {
        kill_process(getpid(), Signal::TERM).expect("a signal");
        self.thread.join().expect("an orderly end");
        drop(self.directory);
    }
}

fn produce(broker: &Broker) {
    let mut client = broker.connect();
    let created = client.call(4, &requests::create_topic("bench", 1));
    assert_eq!(created.topics[0].error_code, 0);
    for (bytes, name) in [(32, "100 B"), (955, "1 KiB"), (65_000, "64 KiB")] {
        let batch = Batch::of_values([vec![7; bytes]]).encode();
        let request = requests::produce(9, &Topic::named("bench"), 0, -1, batch);
        for in_flight in [1, 32] {
            let frame = request_frame(9, 7, Some("bench"), &request);
            measure(&mut client, &format!("Produce v9, {name}"), &frame, in_flight);
        }
    }
}

fn fetch(broker: &Broker) {
    let mut client = broker.connect();
    let mut request = requests::fetch(11, &Topic::named("bench"), 0, 0);
    for kib in [4, 256] {
        request.max_bytes = kib << 10;
        request.topics[0].partitions[0].partition_max_bytes = kib << 10;
        let frame = request_frame(11, 7, Some("bench"), &request);
        measure(&mut client, &format!("Fetch v11, cached, {kib} KiB"), &frame, 1);
    }
}

fn heartbeats(broker: &Broker) {
    let mut client = broker.connect();
    measure_call(&mut client, "ApiVersions v3, for comparison", 3, &ApiVersionsRequest::default());
    let refused = groups::heartbeat("nobody", "nobody", 1);
    measure_call(&mut client, "Heartbeat v4, refused", 4, &refused);
    let id = first_join(&mut client, "classic");
    let joined = client.call(5, &groups::join(5, "classic", &id));
    assert_eq!(joined.error_code, 0);
    let member = (id.as_str(), joined.generation_id);
    let synced = client.call(5, &groups::sync(5, "classic", member, &[(&id, b"all")]));
    assert_eq!(synced.error_code, 0);
    let beat = groups::heartbeat("classic", &id, joined.generation_id);
    assert_eq!(client.call(4, &beat).error_code, 0);
    measure_call(&mut client, "Heartbeat v4, stable member", 4, &beat);
    let mut beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("nobody")))
        .with_member_id(text("AAAAAAAAAAAAAAAAAAAAAA"))
        .with_member_epoch(1)
        .with_rebalance_timeout_ms(-1);
    measure_call(&mut client, "ConsumerGroupHeartbeat v1, refused", 1, &beat);
    beat.group_id = GroupId(text("consumer"));
    let epoch = join_consumer_group(&mut client, &beat);
    beat.member_epoch = epoch;
    assert_eq!(client.call(1, &beat).error_code, 0);
    measure_call(&mut client, "ConsumerGroupHeartbeat v1, stable member", 1, &beat);
}

/// Has the coordinator begin, and joins; the member id that is given out.
fn first_join(client: &mut Client, group: &str) -> StrBytes {
    loop {
        let found = client.call(4, &offsets::find_coordinator(group));
        let answer = client.call(5, &groups::join(5, group, ""));
        match (found.coordinators[0].error_code, answer.error_code) {
            (0, MEMBER_ID_REQUIRED) => return answer.member_id,
            // Its topic is being created, or read.
            (0 | 15, 14..=16) => std::thread::sleep(Duration::from_millis(5)),
            other => panic!("{other:?}"),
        }
    }
}

/// Joins, and takes what it is assigned; the epoch of the stable member.
fn join_consumer_group(client: &mut Client, plain: &ConsumerGroupHeartbeatRequest) -> i32 {
    let mut join = plain.clone().with_member_epoch(0).with_rebalance_timeout_ms(60_000);
    join.subscribed_topic_names = Some(vec![TopicName(text("bench"))]);
    join.topic_partitions = Some(Vec::new());
    let mut answer = client.call(1, &join);
    loop {
        assert_eq!(answer.error_code, 0, "{answer:?}");
        let Some(assigned) = answer.assignment.take() else { return answer.member_epoch };
        let owned = assigned.topic_partitions.into_iter().map(|topic| {
            TopicPartitions::default()
                .with_topic_id(topic.topic_id)
                .with_partitions(topic.partitions)
        });
        let mut next = plain.clone().with_member_epoch(answer.member_epoch);
        next.topic_partitions = Some(owned.collect());
        answer = client.call(1, &next);
    }
}

fn measure_call<R: Request>(client: &mut Client, name: &str, version: i16, request: &R) {
    measure(client, name, &request_frame(version, 7, Some("bench"), request), 1);
}

/// Sends the same frame many times, so many at a time.
fn measure(client: &mut Client, name: &str, frame: &[u8], in_flight: u64) {
    let mut send = |requests: u64| {
        for _ in 0..requests / in_flight {
            (0..in_flight).for_each(|_| client.send_frame(frame));
            (0..in_flight).for_each(|_| drop(client.receive_frame()));
        }
    };
    send(WARM_UP);
    let before = Count::now();
    send(REQUESTS);
    let cost = before.elapsed();
    println!(
        "{name:<44} {in_flight:>9} {:>12.2} {:>12.0}",
        cost.allocations as f64 / REQUESTS as f64,
        cost.bytes as f64 / REQUESTS as f64
    );
}

/// Members of one classic group, each with a connection that is there before and after.
fn members(broker: &Broker) {
    let mut clients: Vec<Client> = (0..MEMBERS).map(|_| broker.connect()).collect();
    for client in &mut clients {
        client.call(3, &ApiVersionsRequest::default());
    }
    let before = Count::now();
    let join = |id: &str| groups::join(5, "many", id);
    let ids: Vec<StrBytes> = clients.iter_mut().map(|client| first_join(client, "many")).collect();
    let sent: Vec<_> =
        clients.iter_mut().zip(&ids).map(|(client, id)| client.send(5, &join(id))).collect();
    let mut generation = 0;
    let mut leader = 0;
    for (place, (client, sent)) in clients.iter_mut().zip(sent).enumerate() {
        let joined = client.receive(sent);
        assert_eq!(joined.error_code, 0);
        generation = joined.generation_id;
        if joined.leader == joined.member_id {
            leader = place;
        }
    }
    // Sixty bytes: a topic and ten partitions.
    let all: Vec<(&str, &'static [u8])> =
        ids.iter().map(|id| (id.as_str(), &[1; 60][..])).collect();
    clients.swap(0, leader);
    let mut ids = ids.clone();
    ids.swap(0, leader);
    for (place, (client, id)) in clients.iter_mut().zip(&ids).enumerate() {
        let assigned = if place == 0 { &all[..] } else { &[] };
        let synced = client.call(5, &groups::sync(5, "many", (id, generation), assigned));
        assert_eq!(synced.error_code, 0);
    }
    let kept = before.elapsed().live_bytes as f64 / MEMBERS as f64;
    println!("{:<44} {MEMBERS:>9} {kept:>12.0}", "idle member of a classic group");
}

/// Offsets, as requests that name ten partitions of a topic each bring them.
fn committed() {
    let maker = std::thread::spawn(|| {
        let mut groups = Groups::default();
        let before = Count::now();
        let mut at = 0;
        for number in 0..OFFSETS / OFFSETS_PER_REQUEST {
            let topic: Arc<str> = format!("a-topic-of-usual-length-{}", number % 100).into();
            let offsets = (0..OFFSETS_PER_REQUEST).map(|partition| NewOffset {
                topic: Arc::clone(&topic),
                topic_id: TopicId::default(),
                partition: (number / 100 * OFFSETS_PER_REQUEST + partition) as i32 % 10_000,
                offset: 1,
                leader_epoch: 1,
                metadata: "".into(),
            });
            let by = Committer { member_id: String::new(), instance_id: None, generation: -1 };
            let commit = Commit {
                group: format!("group-{}", number % 10).into(),
                by,
                api: CommitApi::Plain(8),
                retention_ms: None,
                offsets: offsets.collect(),
            };
            let rules = CommitRules { metadata_units_max: 4096, now_ms: 0 };
            let plan = groups.plan_commit(&commit, &rules).expect("a plan");
            for record in plan.records {
                groups.apply(Offset(at), None, record);
                at += 1;
            }
        }
        let kept = before.elapsed().live_bytes as f64 / OFFSETS as f64;
        println!("{:<44} {OFFSETS:>9} {kept:>12.0}", "committed offset");
        drop(groups);
    });
    maker.join().expect("offsets");
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

const MEMBER_ID_REQUIRED: i16 = 79;
const WARM_UP: u64 = 3_200;
const REQUESTS: u64 = 6_400;
const MEMBERS: usize = 1_000;
const OFFSETS: usize = 100_000;
const OFFSETS_PER_REQUEST: usize = 10;
