//! `ringlog log dump` and `verify` on what a real broker left: whole directories are clean, one
//! flipped byte anywhere that counts is found and named.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{ProduceResponse, ProducerId, WriteTxnMarkersRequest};
use kafka_protocol::protocol::StrBytes;
use support::batch::{Batch, Record};
use support::broker::Broker;
use support::requests::{Topic, create_topic, produce};

const TOPIC: &str = "orders";

/// What a command said.
#[derive(Debug)]
struct Said {
    code: i32,
    lines: Vec<String>,
    complaint: String,
}

fn log(command: &str, path: &Path) -> Said {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    let output = program.args(["log", command]).arg(path).output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Said {
        code: output.status.code().expect("it ended by itself"),
        lines: text(output.stdout).lines().map(str::to_owned).collect(),
        complaint: text(output.stderr),
    }
}

/// A broker with three batches of two records in partition 0, the last with headers.
fn broker_with_records() -> Broker {
    let broker = Broker::start(&["--shards", "1", "--set", "journal.ring.bytes=16MiB"]);
    let mut client = broker.connect();
    let created = client.call(7, &create_topic(TOPIC, 1));
    assert_eq!(created.topics[0].error_code, 0);
    for batch in 0..3 {
        let first = Record::keyed(format!("key {batch}"), format!("first {batch}"));
        let second = Record::value(format!("second {batch}"))
            .header("trace", Some(b"a\"b"))
            .header("trace", None);
        let set = Batch::of(vec![first, second]).encode();
        let response: ProduceResponse =
            client.call(9, &produce(9, &Topic::named(TOPIC), 0, -1, set));
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, batch * 2));
    }
    broker
}

fn stopped_cleanly() -> Broker {
    let mut broker = broker_with_records();
    assert_eq!(broker.terminate().code, Some(0));
    broker
}

fn segment(data_dir: &Path, extension: &str) -> PathBuf {
    data_dir.join(format!("topics/{TOPIC}-0/00000000000000000000.{extension}"))
}

fn position_of(path: &Path, text: &str) -> usize {
    let content = fs::read(path).expect("readable");
    let found = content.windows(text.len()).position(|window| window == text.as_bytes());
    found.unwrap_or_else(|| panic!("{text} is not in {}", path.display()))
}

fn flip(path: &Path, position: usize) {
    let mut content = fs::read(path).expect("readable");
    content[position] ^= 1;
    fs::write(path, content).expect("writable");
}

/// Verifies, requires exit code 1, and returns the lines about problems.
fn problems(data_dir: &Path) -> Vec<String> {
    let said = log("verify", data_dir);
    assert_eq!(said.code, 1, "{:#?} {}", said.lines, said.complaint);
    said.lines.into_iter().filter(|line| line.contains("PROBLEM")).collect()
}

#[test]
fn a_clean_stop_verifies_and_dumps() {
    let broker = stopped_cleanly();
    let data_dir = broker.data_directory();
    let said = log("verify", data_dir);
    assert_eq!(said.code, 0, "{:#?} {}", said.lines, said.complaint);
    assert_eq!(said.lines.first().map(String::as_str), Some("format: on-disk version 1"));
    assert_eq!(said.lines.last().map(String::as_str), Some("no problems"));
    let partition = "partition orders-0: 1 segments, 3 batches, offsets 0 to 6".to_owned();
    assert!(said.lines.contains(&partition), "{:#?}", said.lines);

    let said = log("dump", &segment(data_dir, "log"));
    assert_eq!((said.code, said.complaint.as_str()), (0, ""));
    let (batches, records): (Vec<_>, Vec<_>) =
        said.lines.iter().partition(|line| line.starts_with("batch "));
    assert_eq!(batches.len(), 3);
    assert!(batches[1].contains(" base=2 last=3 records=2 epoch=1 "), "{}", batches[1]);
    assert!(batches[1].contains(" codec=none "), "{}", batches[1]);
    let without_time: Vec<String> = records
        .iter()
        .map(|line| line.split(' ').filter(|word| !word.starts_with("timestamp=")))
        .map(|words| words.collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(without_time[2], r#"record offset=2 key="key 1" value="first 1" headers=[]"#);
    assert_eq!(
        without_time[3],
        r#"record offset=3 key=null value="second 1" headers=[trace="a\"b", trace=null]"#
    );
    assert_eq!(without_time.len(), 6);
}

#[test]
fn every_kind_of_file_is_dumped() {
    let broker = stopped_cleanly();
    let said = log("dump", broker.data_directory());
    assert_eq!((said.code, said.complaint.as_str()), (0, ""));
    let has = |start: &str| said.lines.iter().any(|line| line.starts_with(start));
    for start in [
        "change group=0 LogFollows",
        "manifest boot=1 durability=PowerLoss ",
        "shard shard=0 image=journal/1/image-0 files=4 ",
        "image boot=1 shard=0 ",
        "row partition=",
        "ring boot=1 shard=0 file=0 files=4 ",
        "block byte=4096 sequence=",
        "batch partition=",
        "batch position=0 ",
        "line ringlog-data 1",
    ] {
        assert!(has(start), "no line starts with {start:?}: {:#?}", said.lines);
    }
    assert!(!has("damaged"), "{:#?}", said.lines);
}

#[test]
fn a_flipped_byte_in_a_segment_is_named() {
    let broker = stopped_cleanly();
    let path = segment(broker.data_directory(), "log");
    flip(&path, position_of(&path, "second 1"));
    let found = problems(broker.data_directory());
    assert_eq!(found.len(), 1, "{found:#?}");
    let start = "partition orders-0: PROBLEM: 00000000000000000000.log byte ";
    assert!(found[0].starts_with(start), "{}", found[0]);
    assert!(found[0].contains(", offset 2: stored crc "), "{}", found[0]);
    let said = log("verify", &path);
    assert_eq!(said.code, 1);
    assert!(said.lines[0].starts_with("damaged batch position="), "{:#?}", said.lines);
    assert_eq!(said.lines[1], "1 problem");
}

#[test]
fn a_segment_that_is_cut_or_gone_is_named() {
    let broker = stopped_cleanly();
    let path = segment(broker.data_directory(), "log");
    let length = fs::metadata(&path).expect("a segment").len();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(length - 1))
        .expect("writable");
    let found = problems(broker.data_directory());
    let short = format!(
        "partition orders-0: PROBLEM: 00000000000000000000.log has {} bytes, {length} were synced",
        length - 1
    );
    assert_eq!(found[0], short);
    assert_eq!(
        found.last().map(String::as_str),
        Some("partition orders-0: PROBLEM: the log ends at 4, 6 was synced")
    );
    fs::remove_file(&path).expect("removable");
    assert_eq!(
        problems(broker.data_directory()),
        ["partition orders-0: PROBLEM: 00000000000000000000.log is missing, synced to 6"]
    );
}

#[test]
fn a_flipped_byte_in_an_image_the_manifest_or_the_catalog_is_named() {
    let broker = stopped_cleanly();
    let data_dir = broker.data_directory();
    for (file, says) in [
        ("journal/1/image-0", "shard 0: PROBLEM: journal/1/image-0 cannot be used: the checkpoint"),
        ("journal/manifest", "journal: PROBLEM: journal/manifest is damaged: "),
        ("catalog/snapshot", "catalog: PROBLEM: "),
        ("format", "format: PROBLEM: the data directory's `format` file is damaged"),
    ] {
        let path = data_dir.join(file);
        let middle = fs::metadata(&path).expect("it is there").len() as usize / 2;
        flip(&path, middle);
        let said = log("verify", data_dir);
        assert_eq!(said.code, 1, "{file}: {:#?} {}", said.lines, said.complaint);
        let named = said.lines.iter().any(|line| line.starts_with(says));
        assert!(named, "{file}: {:#?}", said.lines);
        flip(&path, middle);
        assert_eq!(log("verify", data_dir).code, 0, "{file} is whole again");
    }
}

#[test]
fn a_flipped_byte_in_the_journal_after_a_crash_is_named() {
    let mut broker = broker_with_records();
    broker.kill();
    let data_dir = broker.data_directory();
    let said = log("verify", data_dir);
    assert_eq!(said.code, 0, "{:#?} {}", said.lines, said.complaint);
    let ring = data_dir.join("journal/rings/0.0");
    // The block after it was sealed when this one was durable already.
    flip(&ring, position_of(&ring, "first 1"));
    let found = problems(data_dir);
    let start = "shard 0: PROBLEM: acknowledged block ";
    assert!(found[0].starts_with(start), "{found:#?}");
    assert!(found[0].contains("journal/rings/0.0 byte "), "{found:#?}");
    assert!(found.iter().any(|line| line.contains("offsets 2 to 3 are missing")), "{found:#?}");
    let said = log("verify", &ring);
    assert_eq!(said.code, 1);
    assert!(said.lines[0].starts_with("damaged block byte="), "{:#?}", said.lines);
}

#[test]
fn a_running_broker_is_left_alone() {
    let broker = broker_with_records();
    for command in ["verify", "dump"] {
        let said = log(command, broker.data_directory());
        assert_eq!(said.code, 2);
        assert!(said.lines.is_empty(), "{:#?}", said.lines);
        let holder = format!("is in use by process {}", broker.process_id());
        assert!(said.complaint.contains(&holder), "{}", said.complaint);
    }
}

#[test]
fn what_is_no_file_of_a_broker_is_refused_in_one_sentence() {
    let broker = stopped_cleanly();
    let file = broker.data_directory().join("notes");
    fs::write(&file, "mine").expect("writable");
    fs::create_dir(broker.data_directory().join("topics/empty")).expect("writable");
    let unknown = "is no file of a data directory by its name";
    for (path, says) in [
        (file, unknown),
        (broker.data_directory().join("gone"), "No such file or directory"),
        (broker.data_directory().join("topics/empty"), unknown),
    ] {
        let said = log("dump", &path);
        assert_eq!((said.code, said.lines.len()), (2, 0));
        assert!(said.complaint.contains(says), "{}", said.complaint);
        assert_eq!(said.complaint.lines().count(), 1, "{}", said.complaint);
    }
}

/// Markers and the index of aborted transactions are printed, and checked against each other.
#[test]
fn transactions_are_dumped_and_verified() {
    let mut broker = Broker::start(&[
        "--shards",
        "1",
        "--set",
        "journal.ring.bytes=16MiB",
        "--set",
        "transaction.partition.verification.enable=false",
    ]);
    let mut client = broker.connect();
    client.call(7, &create_topic(TOPIC, 1));
    let set = Batch::of_values(["a", "b"]).with_producer(77, 5, 0).transactional().encode();
    let mut request = produce(9, &Topic::named(TOPIC), 0, -1, set);
    request.transactional_id = Some(StrBytes::from_static_str("t").into());
    let response: ProduceResponse = client.call(9, &request);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    let topic = WritableTxnMarkerTopic::default()
        .with_name(StrBytes::from_static_str(TOPIC).into())
        .with_partition_indexes(vec![0]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(77))
        .with_producer_epoch(6)
        .with_topics(vec![topic])
        .with_coordinator_epoch(3);
    let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    let response = client.call(1, &request);
    assert_eq!(response.markers[0].topics[0].partitions[0].error_code, 0);
    assert_eq!(broker.terminate().code, Some(0));
    let data_dir = broker.data_directory();
    let said = log("verify", data_dir);
    assert_eq!(said.code, 0, "{:#?} {}", said.lines, said.complaint);

    // The records are years older than the marker, which therefore begins a segment.
    let later = |extension: &str| {
        data_dir.join(format!("topics/{TOPIC}-0/00000000000000000002.{extension}"))
    };
    let said = log("dump", &later("log"));
    let marker = said.lines.last().expect("a marker comes last");
    assert!(marker.starts_with("marker offset=2 timestamp="), "{said:#?}");
    assert!(marker.ends_with(" kind=abort coordinator_epoch=3"), "{marker}");
    let said = log("dump", &later("txnindex"));
    assert_eq!(said.lines, ["aborted producer=77 first=0 last=2 last_stable=3"]);
    let snapshot = format!("topics/{TOPIC}-0/00000000000000000003.snapshot");
    let said = log("dump", &data_dir.join(snapshot));
    assert!(said.lines[0].starts_with("producer id=77 epoch=6 last_sequence=-1 "), "{said:?}");
    assert!(said.lines[0].ends_with(" coordinator_epoch=3 open_transaction_first_offset=-1"));

    fs::write(later("txnindex"), b"").expect("writable");
    let problems = problems(data_dir);
    assert!(problems.iter().any(|line| line.contains("34 were synced")), "{problems:#?}");
    assert!(problems.iter().any(|line| line.contains("aborted at 2")), "{problems:#?}");
}
