//! Batches of a few kilobytes that inflate to more than the machine has, in every codec.

use std::io::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::ProduceResponse;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use crate::stage::Stage;
use crate::support::batch::{Batch, CODEC_MASK};
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

/// One record whose value is so many megabytes of zeros.
fn record_of_zeros(megabytes: usize, out: &mut impl Write) {
    let zigzag = |value: u64, out: &mut Vec<u8>| {
        let mut rest = value << 1;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    };
    let value_bytes = (megabytes as u64) << 20;
    // Attributes, timestamp delta and offset delta 0, no key.
    let mut body = vec![0, 0, 0, 1];
    zigzag(value_bytes, &mut body);
    let mut head = Vec::new();
    zigzag(body.len() as u64 + value_bytes + 1, &mut head);
    head.extend(body);
    out.write_all(&head).expect("memory");
    let zeros = vec![0; 1 << 20];
    for _ in 0..megabytes {
        out.write_all(&zeros).expect("memory");
    }
    out.write_all(&[0]).expect("memory");
}

pub fn gzip(megabytes: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    record_of_zeros(megabytes, &mut encoder);
    encoder.finish().expect("memory")
}

pub fn zstd_with_window(megabytes: usize, window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    encoder.window_log(window_log).expect("a window");
    record_of_zeros(megabytes, &mut encoder);
    encoder.finish().expect("memory")
}

pub fn lz4(megabytes: usize) -> Vec<u8> {
    lz4_blocks(BlockMode::Independent, megabytes)
}

fn lz4_blocks(mode: BlockMode, megabytes: usize) -> Vec<u8> {
    let info = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(mode);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    record_of_zeros(megabytes, &mut encoder);
    encoder.finish().expect("memory")
}

/// Without Java's blocks: it has to be inflated whole.
pub fn snappy(megabytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    record_of_zeros(megabytes, &mut records);
    snap::raw::Encoder::new().compress_vec(&records).expect("small enough")
}

pub fn bomb(codec: i16, payload: Vec<u8>, records: i32) -> Bytes {
    let mut batch = Batch::of_values(["replaced"]);
    batch.attributes = codec & CODEC_MASK;
    batch.payload = Some(payload);
    batch.record_count = Some(records);
    batch.last_offset_delta = Some(records - 1);
    batch.encode()
}

fn send(client: &mut Client, topic: &Topic, batch: &Bytes) -> (i16, Option<String>) {
    client.set_timeout(Duration::from_secs(60));
    let request = requests::produce(8, topic, 0, -1, batch.clone());
    let produced: ProduceResponse = client.call(8, &request);
    let outcome = &produced.responses[0].partition_responses[0];
    (outcome.error_code, outcome.error_message.as_ref().map(|text| text.to_string()))
}

/// Many of one bomb at once: all are answered, memory stays, and a witness is served meanwhile.
fn explode(codec: i16, payload: Vec<u8>, records: i32, connections: usize) -> Vec<i16> {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("bombs");
    let batch = bomb(codec, payload, records);
    assert!(batch.len() < 1_000_000, "{} bytes are no bomb", batch.len());
    let address = stage.broker.addresses()[0];
    let senders: Vec<_> = (0..connections)
        .map(|_| {
            let (topic, batch) = (topic.clone(), batch.clone());
            std::thread::spawn(move || send(&mut Client::connect(address), &topic, &batch).0)
        })
        .collect();
    let started = Instant::now();
    let mut rounds = 0;
    while !senders.iter().all(std::thread::JoinHandle::is_finished) {
        stage.old_witness_is_served();
        rounds += 1;
    }
    println!("{rounds} rounds of the witness in {:?}", started.elapsed());
    let codes = senders.into_iter().map(|sender| sender.join().expect("answered")).collect();
    stage.witness_is_served();
    stage.memory_is_kept(connections as u64);
    codes
}

#[test]
fn a_gzip_bomb_costs_its_own_connection_only() {
    assert_eq!(explode(1, gzip(192), 2, 8), [87; 8], "a record is missing");
}

#[test]
fn a_zstd_bomb_with_the_largest_window_costs_its_own_connection_only() {
    // The largest that has room in a fifth of what `--memory` leaves to records here.
    let codes = explode(4, zstd_with_window(256, 23), 2, 12);
    assert_eq!(codes, [87; 12], "a record is missing");
}

#[test]
fn an_lz4_bomb_costs_its_own_connection_only() {
    assert_eq!(explode(3, lz4(192), 2, 12), [87; 12], "a record is missing");
}

#[test]
fn lz4_blocks_beyond_the_memory_are_refused() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("blocks");
    let mut client = stage.broker.connect();
    // Linked blocks of 4 MiB take twice that, and a window.
    let linked = |megabytes| bomb(3, lz4_blocks(BlockMode::Linked, megabytes), 1);
    assert_eq!(send(&mut client, &topic, &linked(0)).0, 0, "its block is small");
    assert_eq!(send(&mut client, &topic, &linked(8)).0, 87);
    let independent = bomb(3, lz4(8), 1);
    assert_eq!(send(&mut client, &topic, &independent).0, 0);
    assert_eq!(stage.reached("inflation_window"), 1);
    stage.witness_is_served();
    stage.memory_is_kept(1);
}

#[test]
fn a_snappy_bomb_costs_its_own_connection_only() {
    assert_eq!(explode(2, snappy(3), 2, 40), [87; 40], "a record is missing");
}

#[test]
fn a_zstd_window_beyond_the_largest_is_refused() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("windows");
    let mut client = stage.broker.connect();
    for (window_log, expected) in [(23, 0), (24, 87), (27, 87), (28, 87)] {
        let batch = bomb(4, zstd_with_window(1, window_log), 1);
        let outcome = send(&mut client, &topic, &batch);
        assert_eq!(outcome.0, expected, "{outcome:?}");
    }
    assert_eq!(stage.reached("inflation_window"), 3);
    // A raw snappy block is inflated whole: half of what a window may take is all it gets.
    for (megabytes, expected) in [(3, 0), (4, 87)] {
        let outcome = send(&mut client, &topic, &bomb(2, snappy(megabytes), 1));
        assert_eq!(outcome.0, expected, "{outcome:?}");
    }
    assert_eq!(stage.reached("inflated_batch_bytes"), 1);
    stage.witness_is_served();
    stage.memory_is_kept(1);
}

#[test]
fn with_memory_the_largest_window_is_taken() {
    let mut stage = Stage::with_memory("768MiB", &[]);
    let topic = stage.topic("windows");
    let mut client = stage.broker.connect();
    for (window_log, expected) in [(27, 0), (28, 87)] {
        let outcome = send(&mut client, &topic, &bomb(4, zstd_with_window(200, window_log), 1));
        assert_eq!(outcome.0, expected, "{outcome:?}");
    }
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn a_stored_bomb_that_is_searched_by_time_costs_its_own_connection_only() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("stored");
    let mut client = stage.broker.connect();
    let batch = bomb(1, gzip(192), 1);
    let stored = send(&mut client, &topic, &batch);
    assert_eq!(stored.0, 0, "{stored:?}");
    let address = stage.broker.addresses()[0];
    let searches: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                client.set_timeout(Duration::from_secs(60));
                let found = client.call(7, &requests::list_offsets("stored", 0, 1));
                found.topics[0].partitions[0].offset
            })
        })
        .collect();
    while !searches.iter().all(std::thread::JoinHandle::is_finished) {
        stage.old_witness_is_served();
    }
    for search in searches {
        assert_eq!(search.join().expect("answered"), 0);
    }
    stage.witness_is_served();
    stage.memory_is_kept(5);
}
