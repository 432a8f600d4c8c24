//! Frames that are no requests: wrong lengths, unknown APIs, counts that lie, noise, repetitions.

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::{
    ApiVersionsRequest, FetchResponse, MetadataRequest, ProduceRequest,
};
use ringlog::wire::versions::SERVED;

use crate::stage::Stage;
use crate::support::batch::{Batch, read_batches};
use crate::support::client::{Client, decode_response, raw_request_frame, request_frame};
use crate::support::requests;

/// xorshift64*, so that a failure can be repeated.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn a_length_that_is_no_length_closes_its_connection() {
    let mut stage = Stage::start(&["--set", "socket.request.max.bytes=1048576"]);
    for prefix in [-1, i32::MIN, i32::MAX, 1_048_577] {
        let mut client = stage.broker.connect();
        client.send_bytes(&prefix.to_be_bytes());
        client.expect_closed();
    }
    // A frame of nothing has no header.
    let mut client = stage.broker.connect();
    client.send_bytes(&[0; 4]);
    client.expect_closed();
    // The limit itself is a frame, and what has been asked before is answered.
    let mut client = stage.broker.connect();
    let sent = client.send(0, &ApiVersionsRequest::default());
    client.send_bytes(&1_048_576_i32.to_be_bytes());
    client.send_bytes(&[0xff; 1_048_576]);
    assert_eq!(client.receive(sent).error_code, 0);
    client.expect_closed();
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn a_cut_frame_at_any_byte_harms_nobody() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("cut");
    let batch = Batch::of_values(["value"]).encode();
    let frame = request_frame(13, 7, Some("c"), &requests::produce(13, &topic, 0, -1, batch));
    let mut bytes = (frame.len() as i32).to_be_bytes().to_vec();
    bytes.extend(&frame);
    for cut in 0..bytes.len() {
        let mut client = stage.broker.connect();
        client.send_bytes(&bytes[..cut]);
        client.half_close();
        client.expect_closed();
    }
    let fetched: FetchResponse =
        stage.broker.connect().call(16, &requests::fetch(16, &topic, 0, 0));
    assert_eq!(fetched.responses[0].partitions[0].high_watermark, 0, "nothing was appended");
    // A frame that ends where its length says, in the middle of its body, is malformed.
    for cut in 8..frame.len() {
        let mut client = stage.broker.connect();
        client.send_frame(&frame[..cut]);
        client.expect_closed();
    }
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn what_is_not_served_closes_its_connection_without_an_answer() {
    let mut stage = Stage::start(&[]);
    let served = |key: i16, version: i16| {
        let row = SERVED.iter().find(|row| row.api.key() == key);
        row.is_some_and(|row| (row.min..=row.max).contains(&version))
    };
    let mut count = 0;
    for key in (-2..=100).chain([999, i16::MAX, i16::MIN]).filter(|&key| key != 18) {
        let row = SERVED.iter().find(|row| row.api.key() == key);
        let (min, max) = row.map_or((0, 0), |row| (row.min, row.max));
        for version in [min - 1, max + 1, max, 99, -1] {
            if served(key, version) {
                continue;
            }
            let mut client = stage.broker.connect();
            client.send_frame(&raw_request_frame(key, version, 1, 5, Some(b"c"), &[0; 32]));
            client.expect_closed();
            count += 1;
        }
    }
    assert!(count > 300, "{count} combinations");
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let mut stage = Stage::start(&[]);
    let row = SERVED.iter().find(|row| row.api.key() == 18).expect("served");
    for version in [row.max + 1, 99, i16::MAX, -1, i16::MIN] {
        let mut client = stage.broker.connect();
        client.send_frame(&raw_request_frame(18, version, 2, 77, Some(b"c"), b"\xff\xffnonsense"));
        // Correlation id, 35, one entry: key 18 and its range. KIP-511.
        let mut expected = Vec::new();
        expected.put_i32(77);
        expected.put_i16(35);
        expected.put_i32(1);
        expected.put_i16(18);
        expected.put_i16(row.min);
        expected.put_i16(row.max);
        assert_eq!(client.receive_frame(), Bytes::from(expected), "version {version}");
        assert_eq!(client.call(0, &ApiVersionsRequest::default()).error_code, 0, "it stays open");
    }
    stage.witness_is_served();
}

/// Bodies whose counts and lengths promise what is not there, in old and in compact encoding.
fn lies() -> Vec<(&'static str, Vec<u8>)> {
    let header = |key, version, flexible: bool| {
        raw_request_frame(key, version, if flexible { 2 } else { 1 }, 3, None, &[])
    };
    let with = |mut frame: Vec<u8>, body: &[u8]| {
        frame.extend(body);
        frame
    };
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let mut found = vec![
        ("topics of Metadata", with(header(3, 1, false), &i32::MAX.to_be_bytes())),
        ("negative topics", with(header(3, 1, false), &(-2_i32).to_be_bytes())),
        ("compact topics", with(header(3, 12, true), &huge)),
        ("an endless number", with(header(3, 12, true), &[0xff; 64])),
        ("a name beyond the end", with(header(3, 1, false), b"\0\0\0\x01\x7f\xffabc")),
        ("members of OffsetFetch", with(header(9, 8, true), &huge)),
        ("acls", with(header(30, 3, true), &huge)),
        ("keys of FindCoordinator", with(header(10, 4, true), b"\0\xff\xff\xff\xff\x07")),
        ("resources", with(header(32, 4, true), &huge)),
        ("tags", with(header(3, 12, true), b"\x01\0\0\xff\xff\xff\xff\x0f")),
        ("a tag's size", with(header(3, 12, true), b"\x01\0\0\x01\x05\xff\xff\xff\xff\x0f")),
        ("Produce topics", with(header(0, 3, false), b"\xff\xff\xff\xff\0\0\0\0\x7f\xff\xff\xff")),
        ("Produce records", {
            let body = b"\0\xff\xff\0\0\x75\x30\x02\x02t\x02\0\0\0\0\xff\xff\xff\xff\x07";
            with(header(0, 9, true), body)
        }),
    ];
    // Every topic of CreateTopics has arrays of its own: each level says 100 million.
    let mut nested = header(19, 4, false);
    for _ in 0..50 {
        nested.put_i32(100_000_000);
        nested.put_slice(b"\0\x01t\0\0\0\x01\0\x01");
    }
    found.push(("nested counts", nested));
    // As many empty topics as fit, each of one byte more than nothing.
    let mut many = header(3, 1, false);
    many.put_i32(500_000);
    many.resize(many.len() + 1_000_000, 0);
    found.push(("more elements than any request has", many));
    let mut tags = header(3, 12, true);
    tags.put_slice(b"\x01\0\0");
    tags.put_slice(b"\xd0\x0f");
    for number in 0..2_000_u32 {
        let low = (number & 0x7f) as u8 | 0x80;
        tags.put_slice(&[low, (number >> 7) as u8 | 0x80, 0, 0]);
    }
    found.push(("tags without end", tags));
    found
}

#[test]
fn counts_and_lengths_that_lie_close_their_connection() {
    let mut stage = Stage::start(&[]);
    for (what, frame) in lies() {
        let mut client = stage.broker.connect();
        client.send_frame(&frame);
        match client.try_receive_frame() {
            Ok(Some(answer)) => panic!("{what}: answered with {} bytes", answer.len()),
            Ok(None) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}"),
        }
    }
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

/// Sends a frame and takes whatever comes of it: an answer or the end, but one of them.
fn provoke(client: &mut Client, frame: &[u8]) {
    client.send_frame(frame);
    // Something to answer that does not wait, in case the frame has no response.
    let _ = client.try_send_bytes(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 99, 0xff, 0xff]);
    match client.try_receive_frame() {
        Ok(_) => {}
        Err(error) => assert!(
            matches!(
                error.kind(),
                std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
            ),
            "{error}"
        ),
    }
}

#[test]
fn noise_behind_every_header_harms_nobody() {
    let mut stage = Stage::start(&[]);
    let mut noise = Noise(0x00c0_ffee);
    for round in 0..8 {
        for row in SERVED {
            let version = row.min + noise.below((row.max - row.min + 1) as usize) as i16;
            let length = noise.below(120);
            let mut body = noise.bytes(length);
            if round % 2 == 0 {
                // Small numbers get further: they are counts, nulls and empty texts.
                body.iter_mut().for_each(|byte| *byte &= 3);
            }
            let header = if round % 4 < 2 { 1 } else { 2 };
            let frame = raw_request_frame(row.api.key(), version, header, 1, None, &body);
            provoke(&mut stage.broker.connect(), &frame);
        }
    }
    for _ in 0..200 {
        let length = noise.below(64);
        let bytes = noise.bytes(length);
        provoke(&mut stage.broker.connect(), &bytes);
    }
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn damaged_requests_harm_nobody() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("damaged");
    let batch = Batch::of_values(["one", "two"]).encode();
    let metadata = MetadataRequest::default().with_topics(None);
    let frames = [
        request_frame(12, 1, Some("c"), &metadata),
        request_frame(13, 1, Some("c"), &requests::produce(13, &topic, 0, -1, batch.clone())),
        request_frame(7, 1, Some("c"), &requests::produce(7, &topic, 0, 1, batch)),
        request_frame(16, 1, Some("c"), &requests::fetch(16, &topic, 0, 0)),
        request_frame(7, 1, Some("c"), &requests::create_topic("made by chance", 1)),
        request_frame(4, 1, Some("c"), &requests::init_producer_id(None)),
    ];
    let mut noise = Noise(7);
    for frame in &frames {
        for _ in 0..60 {
            let mut damaged = frame.clone();
            for _ in 0..=noise.below(3) {
                let place = noise.below(damaged.len());
                damaged[place] = noise.next() as u8;
            }
            provoke(&mut stage.broker.connect(), &damaged);
        }
    }
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn a_replayed_frame_is_answered_again_and_appends_nothing_again() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("replayed");
    let mut client = stage.broker.connect();
    let producer = client.call(4, &requests::init_producer_id(None));
    let batch = Batch::of_values(["once"]).with_producer(producer.producer_id.0, 0, 0).encode();
    let produce = requests::produce(7, &topic, 0, -1, batch);
    let frame = request_frame(7, 41, Some("c"), &produce);
    let mut answers = Vec::new();
    for _ in 0..3 {
        client.send_frame(&frame);
        client.send_frame(&frame);
        answers.extend([client.receive_frame(), client.receive_frame()]);
        client = stage.broker.connect();
    }
    for answer in answers {
        let decoded = decode_response::<ProduceRequest>(7, 41, answer).expect("a response");
        let outcome = &decoded.responses[0].partition_responses[0];
        assert_eq!((outcome.error_code, outcome.base_offset), (0, 0));
    }
    let fetched: FetchResponse = client.call(16, &requests::fetch(16, &topic, 0, 0));
    let records = fetched.responses[0].partitions[0].records.clone().expect("records");
    assert_eq!(read_batches(records).len(), 1);
    // A replayed request for an id gets another id, as for any client that asks twice.
    let ids: Vec<i64> =
        (0..2).map(|_| client.call(4, &requests::init_producer_id(None)).producer_id.0).collect();
    assert_ne!(ids[0], ids[1]);
    stage.witness_is_served();
}
