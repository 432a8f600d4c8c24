//! Idempotent producers.

use std::time::{Duration, Instant};

use crate::support::batch::{Batch, CONTROL};
use crate::support::broker::Broker;
use crate::support::requests::{self, Topic};
use crate::{ARGUMENTS, create, leader, only_produced, outcome, read_all};

fn of(id: i64, base_sequence: i32, count: i32) -> Batch {
    let values = (0..count).map(|place| format!("{base_sequence}+{place}"));
    Batch::of_values(values).with_producer(id, 0, base_sequence)
}

/// redpanda-data/redpanda#3039, #3077: a retried batch was refused instead of recognised.
#[test]
fn batches_sent_again_are_recognised_also_after_a_crash() {
    let mut broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "again", 1, &[]);
    let batch = |number: i32| {
        let mut batch = of(7, number * 3, 3);
        batch.base_timestamp += i64::from(number);
        batch
    };
    let request =
        |topic: &Topic, number| requests::produce(13, topic, 0, -1, batch(number).encode());
    let mut client = leader(&broker, &topic, 0);
    for number in 0..5 {
        let _never_read = client.send(13, &request(&topic, number));
    }
    drop(client);
    for round in 0..4 {
        let mut client = leader(&broker, &topic, 0);
        let sent: Vec<_> = (0..5).map(|number| client.send(13, &request(&topic, number))).collect();
        for (number, sent) in (0..5).zip(sent) {
            let answer = only_produced(client.receive(sent));
            assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(number * 3)));
            if round > 0 {
                assert_eq!(answer.log_append_time_ms, batch(number).base_timestamp);
            }
        }
        let batches = read_all(&mut client, &topic, 0);
        let sequences: Vec<i32> = batches.iter().map(|batch| batch.base_sequence).collect();
        assert_eq!(sequences, [0, 3, 6, 9, 12], "the log is unchanged");
        match round {
            0 => {}
            1 => broker.restart(),
            _ => {
                assert_eq!(broker.terminate().code, Some(0));
                broker.restart();
            }
        }
    }
}

/// redpanda-data/redpanda#3824: state was expired by the time of the records.
#[test]
fn old_record_times_do_not_expire_a_producer() {
    let arguments = [
        &ARGUMENTS[..],
        &["--set", "producer.id.expiration.check.interval.ms=100"],
        &["--set", "producer.id.expiration.ms=3600000"],
    ]
    .concat();
    let broker = Broker::start(&arguments);
    let configs = [("message.timestamp.after.max.ms", "9223372036854775807")];
    let topic = create(&broker, "times", 1, &configs);
    let mut client = leader(&broker, &topic, 0);
    for (id, timestamp) in (0..).zip([-1, 0, 1000, 4_102_444_800_000]) {
        let batch = |sequence| Batch { base_timestamp: timestamp, ..of(id, sequence, 1) };
        assert_eq!(outcome(&mut client, &topic, 0, &batch(0)), (0, id * 2));
        // Longer than the sweep's interval.
        client.expect_silence(Duration::from_millis(250));
        assert_eq!(outcome(&mut client, &topic, 0, &batch(5)), (45, -1), "it is still known");
        assert_eq!(outcome(&mut client, &topic, 0, &batch(1)), (0, id * 2 + 1));
    }
}

/// redpanda-data/redpanda#22670: a producer that was idle for long could not go on.
#[test]
fn a_forgotten_producer_may_go_on_anywhere() {
    let arguments = [&ARGUMENTS[..], &["--set", "producer.id.expiration.ms=1000"]].concat();
    let broker = Broker::start(&arguments);
    let topic = create(&broker, "idle", 1, &[]);
    let mut client = leader(&broker, &topic, 0);
    let start = Instant::now();
    for sequence in 0..7 {
        assert_eq!(outcome(&mut client, &topic, 0, &of(1, sequence, 1)), (0, i64::from(sequence)));
    }
    // A sequence far ahead is out of order until the producer is forgotten.
    let ahead = of(1, 70, 1);
    while outcome(&mut client, &topic, 0, &ahead) == (45, -1) {
        assert!(start.elapsed() < Duration::from_secs(10));
        client.expect_silence(Duration::from_millis(100));
    }
    assert!(start.elapsed() >= Duration::from_millis(999), "{:?}", start.elapsed());
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 71, 1)), (0, 8));
}

/// redpanda-data/redpanda#4854: the wrap of sequence numbers was out of order.
#[test]
fn sequences_wrap_to_zero_and_are_never_negative() {
    let mut broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "wrap", 1, &[]);
    let mut client = leader(&broker, &topic, 0);
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 2_147_483_640, 10)), (0, 0));
    broker.restart();
    let mut client = leader(&broker, &topic, 0);
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 2_147_483_640, 10)), (0, 0));
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 2, 1)), (0, 10));
    assert_eq!(outcome(&mut client, &topic, 0, &of(2, 2_147_483_646, 2)), (0, 11));
    assert_eq!(outcome(&mut client, &topic, 0, &of(2, 0, 1)), (0, 13));
    assert_eq!(outcome(&mut client, &topic, 0, &of(3, -1, 1)), (87, -1));
    assert_eq!(outcome(&mut client, &topic, 0, &of(3, i32::MIN, 1)), (87, -1));
    assert_eq!(read_all(&mut client, &topic, 0).len(), 4);
}

/// IBM/sarama#1070: a batch split on retry overlapped remembered ones without being one of them.
#[test]
fn parts_of_a_batch_are_no_duplicates_of_it() {
    let broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "split", 1, &[]);
    let mut client = leader(&broker, &topic, 0);
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 0, 10)), (0, 0));
    for part in [of(1, 0, 5), of(1, 5, 10), of(1, 5, 5), of(1, 0, 11), of(1, 9, 1)] {
        assert_eq!(outcome(&mut client, &topic, 0, &part), (45, -1));
    }
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 0, 10)), (0, 0));
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 10, 1)), (0, 10));
}

/// apache/kafka#4585 (KAFKA-6554), #7124 (KAFKA-8722): batches that contradict themselves reached
/// the log.
#[test]
fn batches_that_contradict_themselves_are_refused() {
    let broker = Broker::start(&ARGUMENTS);
    let topic = create(&broker, "contradictions", 1, &[]);
    let mut client = leader(&broker, &topic, 0);
    let change = |change: &dyn Fn(&mut Batch)| {
        let mut batch = of(1, 0, 3);
        change(&mut batch);
        batch
    };
    let cases: [(&str, i16, Batch); 11] = [
        ("last delta above", 87, change(&|b| b.last_offset_delta = Some(3))),
        ("last delta below", 87, change(&|b| b.last_offset_delta = Some(1))),
        ("count above", 87, change(&|b| b.record_count = Some(4))),
        ("count 0", 87, change(&|b| b.record_count = Some(0))),
        ("count negative", 87, change(&|b| b.record_count = Some(-3))),
        ("checksum", 2, change(&|b| b.crc = Some(0))),
        ("magic 1", 87, change(&|b| b.magic = 1)),
        ("more bytes", 2, change(&|b| b.trailing = vec![0; 30])),
        ("control", 87, change(&|b| b.attributes |= CONTROL)),
        ("codec 6", 76, change(&|b| b.attributes |= 6)),
        ("two batches", 87, change(&|b| b.trailing = of(1, 3, 1).encode().to_vec())),
    ];
    for (what, code, batch) in cases {
        assert_eq!(outcome(&mut client, &topic, 0, &batch), (code, -1), "{what}");
    }
    assert_eq!(read_all(&mut client, &topic, 0).len(), 0);
    assert_eq!(outcome(&mut client, &topic, 0, &of(1, 0, 3)), (0, 0), "no sequence was used up");
}
