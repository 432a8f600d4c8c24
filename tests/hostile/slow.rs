//! Clients that begin and do not end: half-sent frames, responses nobody takes, a byte now and
//! then.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kafka_protocol::messages::FetchResponse;

use crate::stage::{Stage, until};
use crate::support::batch::{Batch, Record, read_batches};
use crate::support::client::{Client, request_frame};
use crate::support::requests::{self, Topic};

/// Appends so many batches of half a megabyte.
pub fn fill(stage: &Stage, topic: &Topic, batches: i64) {
    let mut client = stage.broker.connect();
    let batch = Batch::of(vec![Record::value(vec![b'x'; 500_000])]).encode();
    for offset in 0..batches {
        let produced = client.call(13, &requests::produce(13, topic, 0, -1, batch.clone()));
        let outcome = &produced.responses[0].partition_responses[0];
        assert_eq!((outcome.error_code, outcome.base_offset), (0, offset));
    }
}

pub fn framed(frame: &[u8]) -> Vec<u8> {
    let mut bytes = (frame.len() as i32).to_be_bytes().to_vec();
    bytes.extend(frame);
    bytes
}

pub fn big_fetch(topic: &Topic, offset: i64) -> Vec<u8> {
    let mut request = requests::fetch(16, topic, 0, offset);
    request.max_bytes = i32::MAX;
    request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    framed(&request_frame(16, 1, Some("c"), &request))
}

/// Whether the broker has closed it, whatever is still to be read.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("an option");
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(_) => return true,
        }
    }
}

#[test]
fn a_request_that_does_not_go_on_is_given_up() {
    let mut stage = Stage::start(&["--set", "connections.stall.ms=1000"]);
    let address = stage.broker.addresses()[0];
    let began = Instant::now();
    let mut half: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(address).expect("accepted")).collect();
    for (place, stream) in half.iter_mut().enumerate() {
        // A part of the length, a length, a header, a part of a body.
        let frame = framed(&[0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff, 0, 0x7f, 1, 2, 3]);
        stream.write_all(&frame[..1 + place % (frame.len() - 1)]).expect("taken");
    }
    // One that sends a byte at a time, and never enough.
    let mut dripping = TcpStream::connect(address).expect("accepted");
    dripping.write_all(&100_000_i32.to_be_bytes()).expect("taken");
    let mut dripped = 0;
    while !is_closed(&mut dripping) {
        assert!(began.elapsed() < Duration::from_secs(20), "it drips for ever");
        let _ = dripping.set_nonblocking(false);
        dripped += usize::from(dripping.write_all(&[0]).is_ok());
        stage.old_witness_is_served();
    }
    assert!(dripped > 5, "{dripped} bytes");
    for stream in &mut half {
        until(Duration::from_secs(5), "a stalled connection is closed", || {
            is_closed(&mut stream.try_clone().expect("a handle"))
        });
    }
    assert!(began.elapsed() >= Duration::from_millis(1_000), "not before its time");
    // A slow client that does go on is served: 160 KB in four seconds' worth of stalls.
    let mut slow = stage.broker.connect();
    let batch = Batch::of(vec![Record::value(vec![b's'; 160_000])]).encode();
    let topic = stage.topic("slow");
    let frame =
        framed(&request_frame(13, 5, Some("c"), &requests::produce(13, &topic, 0, -1, batch)));
    for piece in frame.chunks(20_000) {
        slow.send_bytes(piece);
        std::thread::sleep(Duration::from_millis(250));
    }
    assert_eq!(slow.receive_frame()[..4], [0, 0, 0, 5]);
    stage.witness_is_served();
    assert_eq!(stage.reached("connection_stall"), 21);
    stage.memory_is_kept(32);
}

#[test]
fn a_client_that_never_reads_is_given_up_and_its_responses_are_bounded() {
    let mut stage = Stage::start(&["--set", "connections.stall.ms=1500"]);
    let topic = stage.topic("unread");
    fill(&stage, &topic, 40);
    let address = stage.broker.addresses()[0];
    let began = Instant::now();
    let mut deaf: Vec<TcpStream> =
        (0..30).map(|_| TcpStream::connect(address).expect("accepted")).collect();
    for stream in &mut deaf {
        // Fifty fetches of everything: 1 GB is asked for by each.
        let fetches = big_fetch(&topic, 0).repeat(50);
        stream.write_all(&fetches).expect("taken");
    }
    while began.elapsed() < Duration::from_millis(1_200) {
        stage.old_witness_is_served();
    }
    for stream in &mut deaf {
        // Not read, to learn whether it is closed: it is written to.
        stream.set_nonblocking(true).expect("an option");
        until(Duration::from_secs(20), "an unread connection is closed", || {
            let mut stream = stream.try_clone().expect("a handle");
            let error = stream.write(&[0; 1024]).err();
            error.is_some_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
        });
    }
    stage.witness_is_served();
    assert!(stage.reached("connection_stall") + stage.reached("connection_memory") >= 30);
    stage.memory_is_kept(40);
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let mut stage = Stage::start(&["--set", "connections.stall.ms=1000"]);
    let topic = stage.topic("slowly");
    fill(&stage, &topic, 8);
    let mut client = TcpStream::connect(stage.broker.addresses()[0]).expect("accepted");
    client.write_all(&big_fetch(&topic, 0)).expect("taken");
    let mut received = Vec::new();
    let mut buffer = vec![0; 200_000];
    while received.len() < 4 || received.len() < 4 + length_of(&received) {
        let count = client.read(&mut buffer).expect("it is not closed");
        assert!(count > 0, "closed after {} bytes", received.len());
        received.extend(&buffer[..count]);
        std::thread::sleep(Duration::from_millis(100));
    }
    let frame = bytes::Bytes::from(received.split_off(4));
    let fetched: FetchResponse = crate::support::client::decode_response::<
        kafka_protocol::messages::FetchRequest,
    >(16, 1, frame)
    .expect("a response");
    let records = fetched.responses[0].partitions[0].records.clone().expect("records");
    assert!(read_batches(records).iter().all(|batch| batch.crc_is_valid));
    stage.witness_is_served();
}

fn length_of(bytes: &[u8]) -> usize {
    i32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize
}

#[test]
fn half_sent_requests_that_fill_the_memory_are_given_up_before_others_wait_long() {
    // With the default patience: it is the memory that makes them go.
    let mut stage = Stage::start(&[]);
    let address = stage.broker.addresses()[0];
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(address).expect("accepted");
        stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        // What is larger than half of the memory of connections is refused at once.
        let mut frame = 4_500_000_i32.to_be_bytes().to_vec();
        frame.resize(3_000_000, 7);
        // Over the budget, not all of it is read.
        let _ = stream.write_all(&frame);
        half.push(stream);
    }
    let mut slowest = Duration::ZERO;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        let round = Instant::now();
        stage.old_witness_is_served();
        slowest = slowest.max(round.elapsed());
    }
    println!("the witness waited {slowest:?} at most");
    let closed = half.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count();
    assert!((1..=40).contains(&closed), "{closed} of 40 were closed");
    assert!(slowest < Duration::from_secs(3), "the witness waited {slowest:?}");
    let reached = [stage.reached("connection_memory"), stage.reached("memory_budget")];
    assert!(reached[0] > 0 && reached[1] > 0, "{reached:?}");
    stage.witness_is_served();
    stage.memory_is_kept(45);
}

#[test]
fn large_requests_of_many_at_once_are_all_served() {
    let mut stage = Stage::start(&["--set", "message.max.bytes=2097152"]);
    let topic = stage.topic("large");
    let address = stage.broker.addresses()[0];
    // 60 MB on their way to 16 MiB of room.
    let senders: Vec<_> = (0..40)
        .map(|_| {
            let topic = topic.clone();
            std::thread::spawn(move || {
                let batch = Batch::of(vec![Record::value(vec![b'l'; 1_500_000])]).encode();
                let mut client = Client::connect(address);
                let produced = client.call(13, &requests::produce(13, &topic, 0, -1, batch));
                produced.responses[0].partition_responses[0].error_code
            })
        })
        .collect();
    for sender in senders {
        assert_eq!(sender.join().expect("answered"), 0);
    }
    stage.witness_is_served();
    stage.memory_is_kept_but_for_growing_buffers(45);
}
