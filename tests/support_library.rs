//! The test library itself: the client against a canned peer, batches against the codec library,
//! the process fixture against a stand-in program.

mod support;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::thread::JoinHandle;
use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, ListOffsetsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::RecordBatchDecoder;

use support::batch::{Batch, Record, TRANSACTIONAL, crc32c, read_batches};
use support::broker::{Broker, parse_ready};
use support::client::{Client, raw_request_frame, request_frame};

/// A peer that reads `expected` and answers `reply`, then closes.
fn peer(expected: Vec<u8>, reply: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("address");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let timeout = Some(Duration::from_secs(10));
        stream.set_read_timeout(timeout).expect("timeout");
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).expect("the request");
        assert_eq!(received, expected);
        stream.write_all(reply).expect("write");
    });
    (address, thread)
}

#[test]
fn a_typed_request_goes_out_under_header_1_and_comes_back() {
    let (address, thread) = peer(
        b"\0\0\0\x14\0\x03\0\x01\0\0\0\x09\0\x02me\0\0\0\x01\0\x02ab".to_vec(),
        b"\0\0\0\x10\0\0\0\x09\0\0\0\0\0\0\0\x07\0\0\0\0",
    );
    let mut client = Client::connect(address);
    client.set_client_id(Some("me"));
    client.set_next_correlation_id(9);
    let topic =
        MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_static_str("ab"))));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    let response = client.call(1, &request);
    assert_eq!(response.controller_id.0, 7);
    client.expect_closed();
    thread.join().expect("peer");
}

#[test]
fn pipelined_flexible_requests_come_back_in_order() {
    let flexible = b"\0\0\0\x16\0\x02\0\x0b\0\0\0\x01\xff\xff\0\0\0\0\0\0\x01\0\0\0\0\0";
    let handshake = b"\0\0\0\x0a\0\x12\0\x00\0\0\0\x02\xff\xff";
    let (address, thread) = peer(
        [&flexible[..], handshake].concat(),
        // ListOffsets 11 under response header 1, ApiVersions 0 under header 0.
        b"\0\0\0\x0b\0\0\0\x01\0\0\0\0\x05\x01\0\0\0\0\x0a\0\0\0\x02\0\x23\0\0\0\0",
    );
    let mut client = Client::connect(address);
    client.set_client_id(None);
    let first = client.send(11, &ListOffsetsRequest::default());
    let second = client.send(0, &ApiVersionsRequest::default());
    assert_eq!(client.receive(first).throttle_time_ms, 5);
    assert_eq!(client.receive(second).error_code, 35);
    thread.join().expect("peer");
}

#[test]
fn raw_frames_are_what_they_are_told() {
    assert_eq!(
        raw_request_frame(999, -3, 2, 5, Some(b"\xff"), b"xy"),
        b"\x03\xe7\xff\xfd\0\0\0\x05\0\x01\xff\0xy"
    );
    assert_eq!(
        request_frame(3, 1, None, &ApiVersionsRequest::default()),
        b"\0\x12\0\x03\0\0\0\x01\xff\xff\0\x01\x01\0"
    );
}

#[test]
fn short_requests_fit_every_version_they_are_made_for() {
    use support::requests::*;
    let topic = Topic { id: uuid::Uuid::from_bytes([1; 16]), ..Topic::named("t") };
    let frame_bytes = |frame: Vec<u8>| assert!(frame.len() > 10);
    for version in 3..=13 {
        let request = produce(version, &topic, 0, -1, Batch::of_values(["v"]).encode());
        frame_bytes(request_frame(version, 1, None, &request));
    }
    for version in 4..=18 {
        frame_bytes(request_frame(version, 1, None, &fetch(version, &topic, 0, 7)));
    }
    for version in 1..=11 {
        frame_bytes(request_frame(version, 1, None, &list_offsets("t", 0, -1)));
    }
    for version in 4..=13 {
        frame_bytes(request_frame(version, 1, None, &metadata(&["t"])));
    }
    for version in 2..=7 {
        frame_bytes(request_frame(version, 1, None, &create_topic("t", 3)));
    }
    for version in 1..=5 {
        frame_bytes(request_frame(version, 1, None, &delete_topic("t")));
    }
    frame_bytes(request_frame(6, 1, None, &delete_topic_state("t")));
    for version in 0..=5 {
        frame_bytes(request_frame(version, 1, None, &init_producer_id(Some("x"))));
    }
}

#[test]
fn the_checksum_is_crc_32c() {
    // The check value of the algorithm's catalogue entry.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(b""), 0);
}

#[test]
fn batches_read_back_and_the_codec_agrees() {
    let mut second =
        Record::keyed("k", "v2").header("h", Some(b"1")).header("h", None).header("", Some(b""));
    second.timestamp_delta = 300;
    let batch = Batch {
        base_offset: 40,
        partition_leader_epoch: 3,
        ..Batch::of(vec![Record::value("v1"), second]).with_producer(5, 2, 9)
    }
    .transactional();
    let bytes = batch.encode();
    let read = read_batches([&bytes[..], &bytes[..]].concat());
    assert_eq!(read.len(), 2);
    let read = &read[0];
    assert!(read.crc_is_valid);
    assert_eq!((read.attributes, read.last_offset_delta), (TRANSACTIONAL, 1));
    assert_eq!((read.producer_id, read.producer_epoch, read.base_sequence), (5, 2, 9));
    assert_eq!(read.max_timestamp, read.base_timestamp + 300);
    assert_eq!(read.records[1].offset, 41);
    assert_eq!(read.records[1].headers.len(), 3, "duplicates kept");
    let codec = RecordBatchDecoder::decode(&mut bytes.clone()).expect("decodes");
    assert_eq!(codec.records.len(), 2);
    for (ours, theirs) in read.records.iter().zip(&codec.records) {
        assert_eq!(ours.offset, theirs.offset);
        assert_eq!(ours.timestamp, theirs.timestamp);
        assert_eq!((&ours.key, &ours.value), (&theirs.key, &theirs.value));
        assert!(theirs.transactional && theirs.producer_id == 5 && theirs.producer_epoch == 2);
    }
    assert_eq!(codec.records[1].sequence, 10);
}

#[test]
fn every_field_of_a_batch_can_lie() {
    let mut batch = Batch::of_values(["a"]);
    batch.length = Some(-7);
    batch.magic = 1;
    batch.crc = Some(0xdead_beef);
    batch.last_offset_delta = Some(-1);
    batch.record_count = Some(i32::MAX);
    batch.max_timestamp = Some(-1);
    batch.payload = Some(vec![0xaa]);
    batch.trailing = vec![0xbb, 0xcc];
    assert_eq!(
        batch.encode(),
        &b"\0\0\0\0\0\0\0\0\xff\xff\xff\xf9\xff\xff\xff\xff\x01\xde\xad\xbe\xef\0\0\xff\xff\xff\xff\
           \0\0\x01\x8b\xcf\xe5\x68\0\xff\xff\xff\xff\xff\xff\xff\xff\
           \xff\xff\xff\xff\xff\xff\xff\xff\
           \xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xaa\xbb\xcc"[..]
    );
    let mut record = Record::value("a");
    record.length = Some(1);
    record.offset_delta = Some(-1);
    record.header_count = Some(64);
    assert_eq!(Batch::of(vec![record]).encoded_records(), b"\x02\0\0\x01\x01\x02a\x80\x01");
}

#[test]
fn ready_lines_name_one_address_per_shard() {
    assert_eq!(
        parse_ready("ready 127.0.0.1:9092, 127.0.0.1:19192\n"),
        Some(vec![
            "127.0.0.1:9092".parse().expect("address"),
            "127.0.0.1:19192".parse().expect("address"),
        ])
    );
    assert_eq!(parse_ready("ready\n"), None);
    assert_eq!(parse_ready("ringlog 0.1.0, 2 shards\n"), None);
    assert_eq!(parse_ready("ready nowhere\n"), None);
}

#[test]
fn a_process_is_started_terminated_killed_and_restarted() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    let program = folder.path().join("stand-in");
    let script = "#!/bin/sh\n\
        [ \"$1 $2 $3 $4\" = 'serve --listen 127.0.0.1:0 --data-dir' ] || exit 9\n\
        trap 'echo bye; exit 0' TERM\necho starting\n\
        if [ -e \"$5/fail\" ]; then echo 'no disk' >&2; exit 2; fi\n\
        echo 'ready 127.0.0.1:1, 127.0.0.1:2'\nwhile :; do sleep 0.05; done\n";
    std::fs::write(&program, script).expect("write");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("executable");

    let mut broker = Broker::prepare_program(&program, &[]);
    broker.restart();
    let ports: Vec<u16> = broker.addresses().iter().map(SocketAddr::port).collect();
    assert_eq!(ports, [1, 2]);
    let first = broker.process_id();
    broker.restart();
    assert_ne!(broker.process_id(), first);
    let ended = broker.terminate();
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stdout, "starting\nready 127.0.0.1:1, 127.0.0.1:2\nbye\n");
    assert!(!broker.is_running());
    std::fs::write(broker.data_directory().join("fail"), "").expect("write");
    let ended = broker.start_failing();
    assert_eq!((ended.code, &ended.stderr[..]), (Some(2), "no disk\n"));
    std::fs::remove_file(broker.data_directory().join("fail")).expect("remove");
    broker.restart();
    broker.kill();
    assert!(!broker.is_running());
}
