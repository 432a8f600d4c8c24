//! Crashes of the process, one after the other.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ProduceRequest;

use crate::support::batch::{Batch, crc32c};
use crate::support::broker::Broker;
use crate::support::client::{Client, Sent};
use crate::support::requests::{self, Topic};
use crate::{ARGUMENTS, create, leader, only_produced, outcome, read_all};

/// Our own: a partition that a checkpoint had written, and nobody had touched since, was left by a
/// clean stop as it is while it is written to, with zeroes behind its records, which Kafka's tools
/// take for damage.
#[test]
fn a_clean_stop_finishes_files_that_a_checkpoint_has_written() {
    let arguments = ["--shards", "1", "--memory", "256MiB", "--set", "checkpoint_interval_ms=20"];
    let mut broker = Broker::start(&arguments);
    let topic = create(&broker, "finished", 1, &[]);
    let mut client = leader(&broker, &topic, 0);
    let image = broker.data_directory().join("journal/1/image-0");
    let length = || std::fs::metadata(&image).map_or(0, |found| found.len());
    let before = length();
    // Enough for space to be allocated ahead.
    let batch = Batch::of_values([vec![b'f'; 900_000]]);
    let mut bytes = 0;
    for turn in 0..3 {
        assert_eq!(outcome(&mut client, &topic, 0, &batch), (0, turn));
        bytes += batch.encode().len() as u64;
    }
    // The image has a row more once the partition is in it, and is left alone when nothing is new.
    let quiet = Duration::from_millis(200);
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_quiet = || {
        let changed = std::fs::metadata(&image).and_then(|found| found.modified());
        changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > quiet))
    };
    while length() <= before || !is_quiet() {
        assert!(Instant::now() < deadline, "no checkpoint");
        std::thread::yield_now();
    }
    assert_eq!(broker.terminate().code, Some(0));
    let directory = broker.data_directory().join("topics/finished-0");
    let length = |name: &str| std::fs::metadata(directory.join(name)).map(|found| found.len()).ok();
    assert_eq!(length("00000000000000000000.log"), Some(bytes));
    assert_eq!(length("00000000000000000000.index").map(|bytes| bytes % 8), Some(0));
    assert!(length("00000000000000000000.index") < Some(4_096));
    assert!(length("leader-epoch-checkpoint").is_some());
}

/// cloudamqp/lavinmq#384, #387: records after a crash went behind a hole, at which the next
/// restart stopped.
#[test]
fn crashes_in_a_row_lose_nothing() {
    let mut broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "row", 16, &[]);
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 16];
    let mut seed = 1_u64;
    for round in 0..5 {
        for turn in 0..12 {
            for (partition, expected) in (0..).zip(&mut expected) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Ends at every residue of sectors and blocks.
                let size = 1 + (seed >> 33) as usize % 6000;
                let batch = Batch::of_values([vec![seed as u8; size], vec![turn; 1]]);
                let mut client = leader(&broker, &topic, partition);
                let base = 2 * expected.len() as i64;
                assert_eq!(outcome(&mut client, &topic, partition, &batch), (0, base));
                expected.push(batch.encoded_records());
            }
        }
        broker.restart();
        for (partition, expected) in (0..).zip(&expected) {
            let mut client = leader(&broker, &topic, partition);
            let found = read_all(&mut client, &topic, partition);
            assert_eq!(found.len(), expected.len(), "round {round}, partition {partition}");
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found.payload, expected[..]);
            }
        }
    }
}

/// redpanda-data/redpanda#4113, #4134: a batch with checksum 0 was taken for the empty tail.
#[test]
fn a_batch_with_checksum_zero_is_no_empty_tail() {
    let batch = with_crc_zero();
    let encoded = batch.encode();
    assert_eq!(encoded[17..21], [0; 4]);
    let mut broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "zero", 2, &[]);
    for round in 0..4 {
        for partition in 0..2 {
            let mut client = leader(&broker, &topic, partition);
            let base = outcome(&mut client, &topic, partition, &batch);
            assert_eq!(base, (0, round));
        }
        if round % 2 == 0 {
            broker.restart();
        } else {
            assert_eq!(broker.terminate().code, Some(0));
            broker.restart();
        }
        for partition in 0..2 {
            let mut client = leader(&broker, &topic, partition);
            let found = read_all(&mut client, &topic, partition);
            assert_eq!(found.len() as i64, round + 1);
            assert!(found.iter().all(|found| found.crc == 0 && found.crc_is_valid));
        }
    }
}

/// A batch whose value is chosen so that its checksum is 0: 32 bits of it against 32 equations.
fn with_crc_zero() -> Batch {
    let of = |free: u32| Batch::of_values([free.to_be_bytes()]);
    let crc = |free: u32| crc32c(&of(free).encode()[21..]);
    let constant = crc(0);
    // Each bit of the value changes the checksum by a fixed pattern.
    let mut rows: Vec<(u32, u32)> =
        (0..32).map(|bit| (crc(1 << bit) ^ constant, 1 << bit)).collect();
    let (mut wanted, mut free) = (constant, 0);
    for bit in (0..32).rev() {
        let place = rows.iter().position(|row| row.0 >> bit & 1 == 1).expect("independent");
        let (pattern, combination) = rows.swap_remove(place);
        for row in rows.iter_mut().filter(|row| row.0 >> bit & 1 == 1) {
            row.0 ^= pattern;
            row.1 ^= combination;
        }
        if wanted >> bit & 1 == 1 {
            wanted ^= pattern;
            free ^= combination;
        }
    }
    of(free)
}

/// confluentinc/librdkafka#3584, aio-libs/aiokafka#1017: after an outage broker and client
/// disagreed on the last sequence for good. Kills at random points under load.
#[test]
fn an_idempotent_producer_survives_kills_at_any_point() {
    let mut broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "killed", 1, &[]);
    let mut producer = Producer { next: 0, acknowledged: 0, in_flight: VecDeque::new() };
    let mut seed = 99_u64;
    for _ in 0..12 {
        let mut client = leader(&broker, &topic, 0);
        producer.resend(&mut client, &topic);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let until = Instant::now() + Duration::from_micros(500 + (seed >> 33) % 60_000);
        while Instant::now() < until {
            producer.fill(&mut client, &topic);
            producer.take_one(&mut client);
        }
        producer.fill(&mut client, &topic);
        broker.restart();
    }
    let mut client = leader(&broker, &topic, 0);
    producer.resend(&mut client, &topic);
    while !producer.in_flight.is_empty() {
        producer.take_one(&mut client);
    }
    assert!(producer.acknowledged > 12 && producer.acknowledged == producer.next);
    let found = read_all(&mut client, &topic, 0);
    assert_eq!(found.len() as i32, producer.next);
    for (number, found) in (0..).zip(&found) {
        assert_eq!(found.base_sequence, number * 2);
        assert_eq!(found.payload, batch(number).encoded_records());
    }
}

struct Producer {
    next: i32,
    acknowledged: i32,
    in_flight: VecDeque<(i32, Option<Sent<ProduceRequest>>)>,
}

fn batch(number: i32) -> Batch {
    let size = 1 + (number as usize * 7919) % 4000;
    Batch::of_values([vec![number as u8; size], b"second".to_vec()]).with_producer(1, 0, number * 2)
}

fn produce(client: &mut Client, topic: &Topic, number: i32) -> Sent<ProduceRequest> {
    client.send(13, &requests::produce(13, topic, 0, -1, batch(number).encode()))
}

impl Producer {
    /// As a client does: what is not acknowledged goes out again, in order.
    fn resend(&mut self, client: &mut Client, topic: &Topic) {
        for (number, sent) in &mut self.in_flight {
            *sent = Some(produce(client, topic, *number));
        }
    }

    fn fill(&mut self, client: &mut Client, topic: &Topic) {
        while self.in_flight.len() < 5 {
            let sent = produce(client, topic, self.next);
            self.in_flight.push_back((self.next, Some(sent)));
            self.next += 1;
        }
    }

    fn take_one(&mut self, client: &mut Client) {
        let (number, sent) = self.in_flight.pop_front().expect("one in flight");
        let answer = only_produced(client.receive(sent.expect("sent on this connection")));
        assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(number * 2)));
        self.acknowledged += 1;
    }
}
