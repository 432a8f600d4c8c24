//! Compaction of the real process: what readers find while it runs and afterwards, over restarts,
//! and that an internal topic does not grow. Brokers of their own, whose cleaners never rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::calls::{append, fetch, read_all};
use crate::cluster::{Cluster, Mode, PER_CORE_1, SINGLE_2};
use crate::group_offsets;
use crate::support::batch::{Batch, ReadBatch, Record, read_batches};
use crate::support::offsets;
use crate::support::requests::Topic;

const PATIENCE: Duration = Duration::from_secs(60);

/// Ten keys, what is in memory only (256 KiB), and segments that no pass may touch; far below the
/// 381 that are written.
const FEW_RECORDS: usize = 110;

fn start(mode: Mode) -> Cluster {
    let shards = mode.shards.to_string();
    let arguments = [
        &["--shards", &shards, "--advertise", mode.advertise, "--memory", "256MiB"][..],
        &["--set", "journal.ring.bytes=16MiB", "--set", "log.cleaner.backoff.ms=20"],
        &["--set", "offsets.topic.num.partitions=1"],
        &["--set", "offsets.topic.segment.bytes=1048576"],
    ];
    Cluster::with(mode, &arguments.concat())
}

/// Looks again and again until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never came to {what}");
    }
}

/// The newest value of every key, tombstones left out.
fn values(batches: &[ReadBatch]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut values = BTreeMap::new();
    for record in batches.iter().flat_map(|batch| &batch.records) {
        let key = record.key.as_ref().expect("a key").to_vec();
        match &record.value {
            Some(value) => values.insert(key, value.to_vec()),
            None => values.remove(&key),
        };
    }
    values
}

fn records(batches: &[ReadBatch]) -> usize {
    batches.iter().map(|batch| batch.records.len()).sum()
}

#[test]
fn the_newest_values_are_kept_per_core_1() {
    the_newest_values_are_kept(PER_CORE_1);
}

#[test]
fn the_newest_values_are_kept_single_2() {
    the_newest_values_are_kept(SINGLE_2);
}

fn the_newest_values_are_kept(mode: Mode) {
    let mut cluster = start(mode);
    let configs = [
        ("cleanup.policy", "compact"),
        ("internal.segment.bytes", "20000"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "0"),
        ("file.delete.delay.ms", "0"),
    ];
    let topic = cluster.topic_with("values", 1, &configs);
    let mut expected = BTreeMap::new();
    let mut client = cluster.at(&topic, 0);
    for round in 0..30u8 {
        for key in 0..10 {
            let value = vec![round ^ key; 4_000];
            append(&mut client, &topic, 0, &Batch::of(vec![Record::keyed([key], &value)]));
            expected.insert(vec![key], value);
        }
    }
    let tombstone = Record { value: None, ..Record::keyed([9], "") };
    append(&mut client, &topic, 0, &Batch::of(vec![tombstone]));
    expected.remove(&vec![9]);
    // What comes last stays in segments that no pass may touch.
    for round in 0..80u8 {
        append(&mut client, &topic, 0, &Batch::of(vec![Record::keyed("last", [round; 4_000])]));
    }
    expected.insert(b"last".to_vec(), vec![79; 4_000]);
    let end = 10 * 30 + 1 + 80;
    until("few records", || records(&read_all(&mut client, &topic, 0, 0)) < FEW_RECORDS);
    check(&cluster, &topic, &expected, end);
    for clean in [true, false, true] {
        if clean {
            let ended = cluster.broker.terminate();
            assert_eq!(ended.code, Some(0), "{ended:#?}");
            assert!(!ended.stderr.contains("compacted any more"), "{ended:#?}");
            verify(cluster.broker.data_directory());
        }
        cluster.broker.restart();
        check(&cluster, &topic, &expected, end);
    }
}

/// Values, and that a fetch at any offset below the end finds the next batch.
fn check(cluster: &Cluster, topic: &Topic, expected: &BTreeMap<Vec<u8>, Vec<u8>>, end: i64) {
    let mut client = cluster.at(topic, 0);
    let batches = read_all(&mut client, topic, 0, 0);
    assert_eq!(&values(&batches), expected);
    assert!(batches.iter().all(|batch| batch.crc_is_valid));
    assert!(records(&batches) < FEW_RECORDS, "they do not come back");
    for offset in (0..end).step_by(7) {
        let data = fetch(&mut client, 12, topic, 0, offset);
        assert_eq!((data.error_code, data.high_watermark), (0, end));
        let found = read_batches(data.records.unwrap_or_default());
        let first = found.first().expect("a batch");
        assert!(first.base_offset + i64::from(first.last_offset_delta) >= offset);
    }
}

fn verify(data_directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    let output = command.args(["log", "verify"]).arg(data_directory).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("PROBLEM"), "{text}");
    let staged = [".cleaned", ".swap"];
    assert!(!staged.iter().any(|stage| text.contains(stage)), "{text}");
}

#[test]
fn committed_offsets_do_not_pile_up() {
    let mut cluster = start(PER_CORE_1);
    let topic = cluster.topic("read", 1);
    let (group, mut client) = group_offsets::group(&cluster);
    let mut commit = |at: i64| {
        let mut request = offsets::commit(9, &group, &topic, 0, at);
        let metadata = format!("{at:04000}");
        let partition = &mut request.0.topics[0].partitions[0];
        partition.committed_metadata = Some(offsets::text(&metadata));
        let codes = group_offsets::commit(&mut client, 9, &request);
        assert_eq!(codes, [[(0, 0)]]);
    };
    // Four kilobytes each: a segment holds 250 of them.
    (0..2_500).for_each(&mut commit);
    let directory = cluster.broker.data_directory().join("topics/__consumer_offsets-0");
    let size = || -> u64 {
        let entries = std::fs::read_dir(&directory).expect("a directory");
        let files = entries.map(|entry| entry.expect("an entry"));
        let logs = files.filter(|file| file.file_name().to_string_lossy().ends_with(".log"));
        logs.map(|log| log.metadata().map_or(0, |data| data.len())).sum()
    };
    until("a few segments", || size() < 4 << 20);
    cluster.broker.restart();
    let mut client = cluster.connect_to(group_offsets::node_of(&cluster, &group));
    let request = offsets::fetch(9, &group, &topic, &[0]);
    assert_eq!(group_offsets::loaded(&mut client, &request), [(0, 2_499, 0)]);
}
