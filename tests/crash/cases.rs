//! Single crashes with unusual content: values that imitate journal blocks, and the largest and the
//! smallest batch.

use std::fs;

use bytes::Bytes;

use crate::cluster::{create, large_fetch};
use crate::random::{Random, batch, numbered};
use crate::support::batch::{Batch, Record};
use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

/// With the first batch of a segment the whole segment is gone: the next batch gets its offset, and
/// a segment of its name.
#[test]
fn a_log_goes_on_where_a_whole_segment_was_lost() {
    let settings = ["--shards", "1", "--memory", "64MiB", "--set", "journal.ring.bytes=8MiB"];
    for accepted in ["all", "t-0"] {
        let mut broker = Broker::start(&settings);
        let mut client = broker.connect();
        assert_eq!(client.call(7, &requests::create_topic("t", 1)).topics[0].error_code, 0);
        let mut random = Random::new(4);
        let mut log = Log::default();
        for number in 0..3 {
            log.append(&mut client, batch(&mut random, number, None, 900, 1));
        }
        assert_eq!(broker.terminate().code, Some(0));
        let segment = broker.data_directory().join("topics/t-0/00000000000000000000.log");
        let file = fs::OpenOptions::new().write(true).open(segment).expect("a segment");
        file.set_len(10).expect("writable");
        broker.restart();
        let set = batch(&mut random, 3, None, 900, 1);
        let request = requests::produce(9, &Topic::named("t"), 0, -1, set.clone());
        let answer = broker.connect().call(9, &request);
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 56);
        broker.set_arguments(&[&settings[..], &["--accept-loss", accepted]].concat());
        broker.restart();
        let mut log = Log::default();
        for number in 4..7 {
            log.append(&mut broker.connect(), batch(&mut random, number, None, 900, 1));
            log.check(&mut broker.connect());
            // All of it goes to segments, or nothing does.
            if number % 2 == 0 {
                assert_eq!(broker.terminate().code, Some(0));
            }
            broker.restart();
            log.check(&mut broker.connect());
        }
    }
}

/// A client may know the bytes of journal blocks (a stolen disk, an old backup) and send them as
/// values, even so that they lie in the ring exactly where a block may begin.
#[test]
fn values_that_imitate_journal_blocks_are_never_replayed() {
    let settings = ["--shards", "1", "--memory", "64MiB", "--set", "journal.ring.bytes=8MiB"];
    let mut broker = Broker::start(&settings);
    let mut client = broker.connect();
    assert_eq!(client.call(7, &requests::create_topic("t", 1)).topics[0].error_code, 0);
    let mut random = Random::new(3);
    let mut log = Log::default();
    for _ in 0..5 {
        let number = log.sets.len() as u64;
        log.append(&mut client, batch(&mut random, number, Some((7, 0, number as i32)), 9000, 1));
    }
    broker.kill();
    // Blocks of a boot that is over.
    let old = blocks(&ring(&broker));
    assert!(old.len() >= 5, "{} blocks", old.len());
    broker.restart();
    let mut client = broker.connect();
    log.check(&mut client);

    // Where a value lies in a block when its batch is alone in it; the first one of a boot is not.
    log.append(&mut client, batch(&mut random, log.sets.len() as u64, None, 100, 1));
    let marker: Vec<u8> = (0..64).map(|_| random.next() as u8).collect();
    let number = log.sets.len() as u64;
    let batch = Batch::of(vec![Record::value([&marker[..], &[0; 8000]].concat())]);
    log.append(&mut client, numbered(batch, number, None));
    let content = ring(&broker);
    let place = content.windows(64).position(|window| window == marker).expect("in the ring");
    let padding = vec![0xab; 4096 - place % 4096];

    // Blocks of both boots, those of the running one included, at 4 KiB positions.
    let blocks: Vec<_> = old.into_iter().chain(blocks(&content)).collect();
    for block in &blocks {
        let number = log.sets.len() as u64;
        // Not longer than two-byte lengths allow: the value begins where the marker did.
        let value = [&padding[..], block].concat();
        let batch = Batch::of(vec![Record::value(value)]);
        log.append(&mut client, numbered(batch, number, None));
    }
    let content = ring(&broker);
    for block in &blocks {
        let mut places = (4096..content.len()).step_by(4096);
        let planted = places
            .find(|&at| content[at - 16..at] == [0xab; 16] && content[at..at + 4096] == block[..]);
        assert!(planted.is_some(), "an imitation lies where a block may begin");
    }

    for restart in 0..3 {
        broker.kill();
        broker.restart();
        let stderr = broker.stderr();
        assert_eq!(stderr, "", "restart {restart}");
        log.check(&mut broker.connect());
    }
    // The producer's window holds what it sent, nothing that was replayed twice.
    let again = log.sets[4].clone();
    let answer = broker.connect().call(9, &requests::produce(9, &Topic::named("t"), 0, -1, again));
    let entry = &answer.responses[0].partition_responses[0];
    assert_eq!((entry.error_code, entry.base_offset), (0, 4));
}

#[test]
fn a_batch_of_100_mib_and_one_of_a_single_byte_survive_kill_9() {
    let bytes = 100 << 20;
    let mut broker = Broker::start(&[
        "--shards",
        "1",
        "--memory",
        "1536MiB",
        "--set",
        "journal.ring.bytes=512MiB",
        "--set",
        "message.max.bytes=104857600",
        "--set",
        "socket.request.max.bytes=120000000",
    ]);
    let mut client = broker.connect();
    let settings = [("max.message.bytes", "104857600")];
    assert_eq!(client.call(7, &create("t", 1, &settings)).topics[0].error_code, 0);
    let mut random = Random::new(9);
    // 61 bytes of header, 13 of the record: exactly as much as is allowed.
    let mut value = vec![0; bytes - 61 - 13];
    value.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
    let mut log = Log::default();
    let batches = [Record::value([1]), Record::value(value), Record::value([2])];
    for (number, record) in batches.into_iter().enumerate() {
        let set = numbered(Batch::of(vec![record]), number as u64, None);
        assert_eq!(set.len(), [69, bytes, 69][number]);
        log.append(&mut client, set);
    }
    for _ in 0..2 {
        broker.kill();
        broker.restart();
        log.check(&mut broker.connect());
    }
}

/// Batches of one record in partition 0 of topic `t`: batch n is at offset n.
#[derive(Default)]
struct Log {
    sets: Vec<Bytes>,
}

impl Log {
    fn append(&mut self, client: &mut Client, set: Bytes) {
        let request = requests::produce(9, &Topic::named("t"), 0, -1, set.clone());
        let answer = client.call(9, &request);
        let entry = &answer.responses[0].partition_responses[0];
        assert_eq!((entry.error_code, entry.base_offset), (0, self.sets.len() as i64));
        self.sets.push(set);
    }

    /// All of it is there, byte by byte, and nothing else.
    fn check(&self, client: &mut Client) {
        let end = self.sets.len() as i64;
        let mut rest = Bytes::new();
        for offset in 0..=end {
            if rest.is_empty() {
                let mut request = large_fetch("t", 0, offset);
                request.isolation_level = 0;
                let answer = client.call(12, &request);
                let data = &answer.responses[0].partitions[0];
                assert_eq!((data.error_code, data.high_watermark), (0, end));
                rest = data.records.clone().unwrap_or_default();
            }
            let Some(set) = self.sets.get(offset as usize) else { break };
            let served = rest.split_to(set.len());
            assert_eq!(served[..8], offset.to_be_bytes());
            // All but base offset and leader epoch are as sent.
            assert!(served[8..12] == set[8..12] && served[16..] == set[16..], "at {offset}");
        }
        assert!(rest.is_empty(), "nothing beyond the end");
    }
}

/// The whole ring of shard 0, file after file.
fn ring(broker: &Broker) -> Vec<u8> {
    let directory = broker.data_directory().join("journal/rings");
    (0..4).flat_map(|file| fs::read(directory.join(format!("0.{file}"))).expect("a file")).collect()
}

/// The first 4 KiB of every data block in a ring, known by its magic number; the first 4 KiB of a
/// file are its header.
fn blocks(ring: &[u8]) -> Vec<Vec<u8>> {
    let file_bytes = ring.len() / 4;
    let magic = |at: usize| ring[at + 8..at + 12].to_vec();
    let first = magic(4096);
    assert_ne!(first, [0; 4], "a first block");
    (0..ring.len() / 4096)
        .map(|place| place * 4096)
        .filter(|at| at % file_bytes != 0 && magic(*at) == first)
        .map(|at| ring[at..at + 4096].to_vec())
        .collect()
}
