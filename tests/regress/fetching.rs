//! Fetch sessions, limits, and the first bytes of a connection.

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{ApiVersionsRequest, FetchRequest};
use kafka_protocol::protocol::StrBytes;

use crate::support::batch::Batch;
use crate::support::broker::Broker;
use crate::support::client::{Client, raw_request_frame, request_frame};
use crate::support::requests::{self, Topic};
use crate::{ARGUMENTS, create, fetched, leader, outcome};

const ONE_SHARD: [&str; 6] =
    ["--shards", "1", "--memory", "256MiB", "--set", "journal.ring.bytes=64MiB"];

fn request(topic: &Topic, session: (i32, i32), wanted: &[(i32, i64)]) -> FetchRequest {
    let mut request = requests::fetch(18, topic, 0, 0);
    (request.session_id, request.session_epoch) = session;
    let partition = |&(partition, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(1 << 20)
    };
    request.topics = Vec::new();
    if !wanted.is_empty() {
        let topic = FetchTopic::default().with_topic_id(topic.id);
        request.topics.push(topic.with_partitions(wanted.iter().map(partition).collect()));
    }
    request
}

/// robot-head/crabka#208: sessions were advertised, their fields ignored.
#[test]
fn a_session_of_500_partitions_tells_changes_only() {
    let broker = Broker::start(&ONE_SHARD);
    let topic = create(&broker, "many", 500, &[]);
    let mut client = leader(&broker, &topic, 0);
    let all: Vec<(i32, i64)> = (0..500).map(|partition| (partition, 0)).collect();
    let response = client.call(18, &request(&topic, (0, 0), &all));
    let id = response.session_id;
    assert!(id > 0);
    assert_eq!(fetched(&response).len(), 500);
    let mut offsets = [0; 500];
    for epoch in 1..=40 {
        let partition = (epoch * 37) % 500;
        outcome(&mut client, &topic, partition, &Batch::of_values(["v"]));
        let response = client.call(18, &request(&topic, (id, epoch * 2 - 1), &[]));
        assert_eq!(fetched(&response), [(partition, 0, 1)]);
        let offset = &mut offsets[partition as usize];
        *offset += 1;
        let moved = request(&topic, (id, epoch * 2), &[(partition, *offset)]);
        assert_eq!(fetched(&client.call(18, &moved)), []);
    }
}

/// platformatic/kafka#321, redpanda-data/redpanda#27749: forgotten partitions were served, wrong
/// epochs never noticed.
#[test]
fn a_session_forgets_and_counts() {
    let broker = Broker::start(&ONE_SHARD);
    let topic = create(&broker, "counted", 2, &[]);
    let mut client = leader(&broker, &topic, 0);
    for partition in 0..2 {
        outcome(&mut client, &topic, partition, &Batch::of_values(["v"]));
    }
    let both = [(0, 0), (1, 0)];
    let id = client.call(18, &request(&topic, (0, 0), &both)).session_id;
    let mut forget = request(&topic, (id, 1), &[]);
    let gone = ForgottenTopic::default().with_topic_id(topic.id).with_partitions(vec![0]);
    forget.forgotten_topics_data = vec![gone];
    assert_eq!(fetched(&client.call(18, &forget)), [(1, 0, 1)]);
    for (session, code) in [((id, 3), 71), ((id, 1), 71), ((id + 1, 2), 70), ((0, 2), 70)] {
        let response = client.call(18, &request(&topic, session, &both));
        assert_eq!((response.error_code, response.session_id), (code, 0));
        assert_eq!(response.responses, [], "no data with an error");
    }
    assert_eq!(fetched(&client.call(18, &request(&topic, (id, 2), &[]))), [(1, 0, 1)]);
    let closing = client.call(18, &request(&topic, (id, -1), &[(0, 0)]));
    assert_eq!((closing.session_id, fetched(&closing)), (0, vec![(0, 0, 1)]));
    assert_eq!(client.call(18, &request(&topic, (id, 3), &[])).error_code, 70);
}

/// redpanda-data/redpanda#1532, IBM/sarama#3538: a batch larger than the limits was withheld.
#[test]
fn a_batch_above_every_limit_is_returned_alone() {
    for advertise in ["per-core", "single"] {
        let arguments = [&ARGUMENTS[..], &["--advertise", advertise]].concat();
        let broker = Broker::start(&arguments);
        let topic = create(&broker, "large", 8, &[("max.message.bytes", "6000000")]);
        let mut client = leader(&broker, &topic, 0);
        let response = client.call(12, &requests::metadata(&[&topic.name]));
        let first = response.topics[0].partitions.iter().find(|p| p.partition_index == 0);
        let node = first.expect("partition 0").leader_id;
        let mut led: Vec<i32> = response.topics[0]
            .partitions
            .iter()
            .filter(|partition| partition.leader_id == node)
            .map(|partition| partition.partition_index)
            .collect();
        led.sort_unstable();
        let large = Batch::of_values([vec![b'x'; 5 << 20]]);
        for &partition in &led[1..3] {
            assert_eq!(outcome(&mut client, &topic, partition, &large), (0, 0));
        }
        let wanted: Vec<(i32, i64)> = led[..3].iter().map(|&partition| (partition, 0)).collect();
        let mut request = request(&topic, (0, -1), &wanted);
        request.max_bytes = 1;
        for partition in &mut request.topics[0].partitions {
            partition.partition_max_bytes = 1;
        }
        let found = fetched(&client.call(18, &request));
        assert_eq!(found, [(led[0], 0, 0), (led[1], 0, 1), (led[2], 0, 0)]);
    }
}

/// streamnative/kop#176 and #688, confluentinc/librdkafka#3090: a newer ApiVersions request killed
/// the connection.
#[test]
fn any_version_of_api_versions_may_come_first() {
    let broker = Broker::start(&ONE_SHARD);
    for version in 0..=4 {
        let mut client = broker.connect();
        let text = StrBytes::from_static_str("x");
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text.clone())
            .with_client_software_version(text);
        assert_eq!(client.call(version, &request).error_code, 0);
    }
    for version in [5, 99] {
        let mut client = broker.connect();
        client.send_frame(&raw_request_frame(18, version, 2, 3, Some(b"new"), b"\x01\x02\x03"));
        assert_eq!(client.receive_frame(), &b"\0\0\0\x03\0\x23\0\0\0\x01\0\x12\0\0\0\x04"[..]);
        assert_eq!(client.call(0, &ApiVersionsRequest::default()).error_code, 0);
    }
}

/// IBM/sarama#3741, confluentinc/librdkafka#4870: what is not served must end in a clean close.
#[test]
fn what_is_not_served_is_closed_and_harms_nobody() {
    let broker = Broker::start(&ONE_SHARD);
    let topic = create(&broker, "unharmed", 1, &[]);
    let mut bystander = leader(&broker, &topic, 0);
    let advertised = bystander.call(0, &ApiVersionsRequest::default()).api_keys;
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for range in advertised.iter().filter(|range| range.api_key != 18) {
        let (key, version) = (range.api_key, range.max_version + 1);
        frames.push(raw_request_frame(key, version, 2, 1, None, &[0; 32]));
        let frame = raw_request_frame(key, range.max_version, 2, 1, None, &[1, 2]);
        frames.push(frame);
    }
    frames.push(raw_request_frame(999, 0, 1, 1, None, b""));
    frames.push(vec![0, 3]);
    for (number, frame) in (0..).zip(frames) {
        let mut client = broker.connect();
        client.send_frame(&frame);
        client.expect_closed();
        assert_eq!(outcome(&mut bystander, &topic, 0, &Batch::of_values(["v"])), (0, number));
    }
    let mut client: Client = broker.connect();
    client.send_bytes(&[0x7f, 0xff, 0xff, 0xff]);
    client.expect_closed();
}

/// IBM/sarama#3741 once more: whatever arrives, the process and its other clients live on.
#[test]
fn mutated_requests_harm_nobody() {
    let mut broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "mutated", 2, &[]);
    let mut bystander = leader(&broker, &topic, 0);
    let set = || Batch::of_values(["value"]).encode();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for version in [3, 8, 9, 13] {
        frames.push(request_frame(
            version,
            1,
            Some("m"),
            &requests::produce(version, &topic, 1, 1, set()),
        ));
    }
    for version in [4, 7, 12, 13, 18] {
        frames.push(request_frame(version, 1, Some("m"), &requests::fetch(version, &topic, 1, 0)));
    }
    for version in [1, 6, 11] {
        frames.push(request_frame(version, 1, None, &requests::list_offsets("mutated", 1, 7)));
    }
    for version in [4, 9, 13] {
        frames.push(request_frame(version, 1, None, &requests::metadata(&["mutated"])));
    }
    frames.push(request_frame(6, 1, None, &requests::delete_topic_state("nowhere")));
    frames.push(request_frame(4, 1, None, &requests::init_producer_id(Some("t"))));
    let mut seed = 7_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for round in 0..1500 {
        let mut frame = frames[random(frames.len())].clone();
        for _ in 0..=random(3) {
            let place = 8 + random(frame.len() - 8);
            frame[place] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
        }
        if random(4) == 0 {
            frame.truncate(8 + random(frame.len() - 8));
        }
        let mut client = broker.connect();
        client.send_frame(&frame);
        client.half_close();
        // Answered or closed, it makes no difference; a long poll ends with the connection.
        while matches!(client.try_receive_frame(), Ok(Some(_))) {}
        if round % 100 == 0 {
            assert_eq!(outcome(&mut bystander, &topic, 0, &Batch::of_values(["v"])).0, 0);
        }
    }
    assert!(broker.is_running());
    assert!(!broker.stderr().contains("panicked"), "{}", broker.stderr());
}
