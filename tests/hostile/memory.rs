//! What the process holds, all in all, against what `--memory` promises.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{ApiVersionsRequest, ProduceResponse};
use ringlog::limits::COORDINATOR_RECORD_BYTES_MAX;

use crate::bombs::{bomb, gzip, lz4, snappy, zstd_with_window};
use crate::slow::{big_fetch, fill, framed};
use crate::stage::Stage;
use crate::support::batch::{Batch, Record};
use crate::support::client::{Client, request_frame};
use crate::support::offsets;
use crate::support::requests::{self, Topic};

/// Everything at once, for as long as `done` says: bombs in every codec, half-sent requests,
/// responses that nobody takes, large batches, and lists of nothing.
fn attack(stage: &mut Stage, topic: &Topic, time: Duration) -> u64 {
    let address = stage.broker.addresses()[0];
    let until = Instant::now() + time;
    let large = Batch::of(vec![Record::value(vec![b'l'; 900_000])]).encode();
    let bombs = [
        bomb(1, gzip(64), 2),
        bomb(2, snappy(3), 2),
        bomb(3, lz4(64), 2),
        bomb(4, zstd_with_window(64, 23), 2),
        large,
    ];
    let mut attackers = Vec::new();
    for batch in bombs.iter().cycle().take(20) {
        let request = requests::produce(13, topic, 0, -1, batch.clone());
        let frame = framed(&request_frame(13, 1, Some("c"), &request));
        attackers.push(std::thread::spawn(move || {
            let mut answers = 0;
            while Instant::now() < until {
                let mut client = Client::connect(address);
                client.set_timeout(Duration::from_secs(60));
                // One that is in the middle of sending while memory is short may be cut.
                while Instant::now() < until
                    && client.try_send_bytes(&frame).is_ok()
                    && matches!(client.try_receive_frame(), Ok(Some(_)))
                {
                    answers += 1;
                }
            }
            answers
        }));
    }
    for number in 0..20 {
        let topic = topic.clone();
        attackers.push(std::thread::spawn(move || {
            while Instant::now() < until {
                let Ok(mut stream) = TcpStream::connect(address) else { continue };
                let _ = stream.set_write_timeout(Some(Duration::from_millis(300)));
                let _ = if number % 2 == 0 {
                    let mut half = 4_500_000_i32.to_be_bytes().to_vec();
                    half.resize(3_000_000, 7);
                    stream.write_all(&half)
                } else {
                    stream.write_all(&big_fetch(&topic, 0).repeat(20))
                };
                std::thread::sleep(Duration::from_millis(200));
            }
            1
        }));
    }
    let count = attackers.len() as u64;
    while attackers.iter().any(|attacker| !attacker.is_finished()) {
        stage.old_witness_is_served();
    }
    for attacker in attackers {
        let answers = attacker.join().expect("an attacker");
        assert!(answers > 0, "one was never answered");
    }
    count + 8
}

#[test]
fn everything_at_once_stays_within_what_memory_promises() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("everything");
    fill(&stage, &topic, 40);
    let connections = attack(&mut stage, &topic, Duration::from_secs(8));
    stage.witness_is_served();
    stage.memory_is_kept_but_for_growing_buffers(connections);
}

#[test]
fn a_thousand_idle_partitions_and_connections_cost_what_is_said() {
    let mut stage = Stage::start(&[]);
    let bare = stage.resident_bytes();
    let mut client = stage.broker.connect();
    client.set_timeout(Duration::from_secs(60));
    let created = client.call(7, &requests::create_topic("idle", 1_000));
    assert_eq!(created.topics[0].error_code, 0);
    stage.witness_is_served();
    let with_partitions = stage.resident_bytes();
    let mut clients: Vec<Client> = (0..1_000).map(|_| stage.broker.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.call(0, &ApiVersionsRequest::default()).error_code, 0);
    }
    let with_connections = stage.resident_bytes();
    println!(
        "{} MiB bare, {} with partitions, {} with connections",
        bare >> 20,
        with_partitions >> 20,
        with_connections >> 20
    );
    assert!(with_partitions < 96 << 20, "the target of 64 MiB and 1,000 idle partitions");
    assert!(with_partitions.saturating_sub(bare) <= 1_000 * (16 << 10));
    stage.memory_is_kept(1_000 + 8);
}

/// Appends a batch to a partition of `__consumer_offsets`, as only the admin client may.
fn append_offsets(client: &mut Client, partition: i32, batch: bytes::Bytes) {
    client.set_client_id(Some("__admin_client"));
    let topic = Topic::named("__consumer_offsets");
    let produced: ProduceResponse =
        client.call(8, &requests::produce(8, &topic, partition, -1, batch));
    let outcome = &produced.responses[0].partition_responses[0];
    assert_eq!(outcome.error_code, 0, "{outcome:?}");
}

/// A tombstone of a kind that nobody knows, with a key of so many bytes.
fn tombstone(bytes: usize) -> Record {
    let mut key = vec![0x7f, 0x7f];
    key.resize(bytes, 0);
    Record { value: None, ..Record::keyed(key, "") }
}

/// These records as a batch of one codec, however large they are.
fn packed(records: Vec<Record>) -> bytes::Bytes {
    let count = records.len() as i32;
    let encoded = Batch::of(records).encoded_records();
    bomb(4, zstd::encode_all(&encoded[..], 1).expect("memory"), count)
}

#[test]
fn an_internal_topic_that_inflates_to_much_is_loaded_piece_by_piece_or_not_at_all() {
    let arguments = ["--set", "offsets.topic.num.partitions=2"];
    let mut stage = Stage::start(&arguments);
    let mut client = stage.coordinator();
    let topic = stage.topic("read");
    let partition_of = |group: &str| crate::support::transactions::partition_of(group, 2);
    let name = |wanted: i32| {
        let mut names = (0..).map(|number| format!("group-{number}"));
        names.find(|name| partition_of(name) == wanted).expect("one of many")
    };
    let (loaded, lost) = (name(0), name(1));
    for group in [&loaded, &lost] {
        let committed = client.call(9, &offsets::commit(9, group, &topic, 0, 5));
        assert_eq!(committed.topics[0].partitions[0].error_code, 0, "{committed:?}");
    }
    // A batch of 96 MB: each of its records is read, none is held with the rest.
    append_offsets(&mut client, 0, packed(vec![tombstone(4 << 20); 24]));
    // One record that is too large to be loaded.
    append_offsets(&mut client, 1, packed(vec![tombstone(COORDINATOR_RECORD_BYTES_MAX)]));
    drop(client);
    let ended = stage.broker.terminate();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    stage.broker.restart();
    stage.said(
        "partition 1 of __consumer_offsets cannot be loaded, its groups are not served: offset",
    );
    let mut client = stage.broker.connect();
    let deadline = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let found = client.call(8, &offsets::fetch(8, &loaded, &topic, &[0]));
        match found.groups[0].error_code {
            0 => break found,
            code => assert!(code == 14 && Instant::now() < deadline, "{code}"),
        }
    };
    assert_eq!(found.groups[0].topics[0].partitions[0].committed_offset, 5);
    let refused = client.call(8, &offsets::fetch(8, &lost, &topic, &[0]));
    assert_eq!(refused.groups[0].error_code, 15);
    assert_eq!(stage.reached("coordinator_record_bytes"), 1);
    stage.memory_is_kept(8);
}
