//! Retention by size and time: what is deleted, what the disk and DescribeLogDirs say of it, and
//! that settings count from the moment they are altered. Brokers of their own, which look often.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, IncrementalAlterConfigsRequest};
use kafka_protocol::protocol::StrBytes;
use ringlog::limits::UNLINK_PIECE_BYTES;

use crate::calls::{append, end, fetch, list, read_all};
use crate::cluster::{self, Cluster, Mode};
use crate::support::batch::Batch;
use crate::support::client::Client;
use crate::support::requests::{Topic, delete_records};

#[test]
fn old_segments_go_per_core_2() {
    old_segments_go(cluster::PER_CORE_2);
}

#[test]
fn old_segments_go_single_2() {
    old_segments_go(cluster::SINGLE_2);
}

#[test]
fn settings_count_when_they_are_altered_per_core_1() {
    settings_count_when_they_are_altered(cluster::PER_CORE_1);
}

#[test]
fn settings_count_when_they_are_altered_single_2() {
    settings_count_when_they_are_altered(cluster::SINGLE_2);
}

const NEVER: (&str, &str) = ("retention.ms", "-1");
const AT_ONCE: (&str, &str) = ("file.delete.delay.ms", "0");

fn cluster_that_looks_often(mode: Mode) -> Cluster {
    let shards = mode.shards.to_string();
    let arguments = [
        &["--shards", &shards, "--advertise", mode.advertise, "--memory", "128MiB"][..],
        &["--set", "journal.ring.bytes=16MiB", "--set", "log.initial.task.delay.ms=0"],
        &["--set", "log.retention.check.interval.ms=20"],
    ];
    Cluster::with(mode, &arguments.concat())
}

/// A batch of one record, always of the same size.
fn batch(timestamp: i64) -> Batch {
    let mut batch = Batch::of_values([vec![7_u8; 1_000]]);
    batch.base_timestamp = timestamp;
    batch
}

fn start(client: &mut Client, topic: &Topic) -> i64 {
    let answer = list(client, 7, topic, 0, -2);
    assert_eq!(answer.error_code, 0);
    answer.offset
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("milliseconds")
}

/// Asks until it is so.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
    }
}

/// Bases of the segments on the disk.
fn bases(cluster: &Cluster, topic: &Topic) -> Vec<i64> {
    let mut bases: Vec<i64> = files(cluster, topic)
        .iter()
        .filter_map(|file| file.strip_suffix(".log")?.parse().ok())
        .collect();
    bases.sort_unstable();
    bases
}

fn files(cluster: &Cluster, topic: &Topic) -> Vec<String> {
    let directory: PathBuf =
        cluster.broker.data_directory().join("topics").join(format!("{}-0", topic.name));
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

fn size(cluster: &Cluster, topic: &Topic) -> i64 {
    let asked =
        DescribableLogDirTopic::default().with_topic(topic.wire_name()).with_partitions(vec![0]);
    let request = DescribeLogDirsRequest::default().with_topics(Some(vec![asked]));
    let response = cluster.at(topic, 0).call(4, &request);
    response.results[0].topics[0].partitions[0].partition_size
}

fn old_segments_go(mode: Mode) {
    let mut cluster = cluster_that_looks_often(mode);
    let bytes = batch(1).encode().len() as i64;
    // Four batches make a segment; ten at least are kept.
    let segment = (bytes * 4).to_string();
    let kept = (bytes * 10).to_string();
    let by_size = cluster.topic_with(
        "by-size",
        1,
        &[("internal.segment.bytes", &segment), ("retention.bytes", &kept), NEVER, AT_ONCE],
    );
    let by_time =
        cluster.topic_with("by-time", 1, &[("internal.segment.bytes", &segment), AT_ONCE]);
    let kept =
        cluster.topic_with("kept", 1, &[("internal.segment.bytes", &segment), NEVER, AT_ONCE]);
    let now = i64::try_from(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("now")
            .as_millis(),
    )
    .expect("milliseconds");
    for number in 0..22 {
        for topic in [&by_size, &kept] {
            append(&mut cluster.at(topic, 0), topic, 0, &batch(1));
        }
        // The first eleven are of 1970.
        let time = if number < 11 { number + 1 } else { now };
        append(&mut cluster.at(&by_time, 0), &by_time, 0, &batch(time));
    }
    // Three segments of four, less would be kept otherwise: 22 - 12 = 10.
    let mut client = cluster.at(&by_size, 0);
    wait_for("by size", || start(&mut client, &by_size) == 12);
    // The first young record begins a segment, so far is its time from that of the old ones.
    let mut client = cluster.at(&by_time, 0);
    wait_for("by time", || start(&mut client, &by_time) == 11);
    wait_for("files", || {
        bases(&cluster, &by_size).first() == Some(&12)
            && bases(&cluster, &by_time).iter().all(|&base| base >= 11)
    });
    for (topic, first) in [(&by_size, 12), (&by_time, 11), (&kept, 0)] {
        let mut client = cluster.at(topic, 0);
        assert_eq!((start(&mut client, topic), end(&mut client, topic, 0)), (first, 22));
        assert_eq!(read_all(&mut client, topic, 0, first).len() as i64, 22 - first);
        assert_eq!(fetch(&mut client, 18, topic, 0, first - 1).error_code, 1);
        assert_eq!(size(&cluster, topic), (22 - first) * bytes);
        let left: Vec<String> = files(&cluster, topic);
        let old = left.iter().filter_map(|file| file.split_once('.')?.0.parse::<i64>().ok());
        assert_eq!(old.filter(|base| *base < first).count(), 0, "{left:?}");
    }
    for round in 0..2 {
        if round == 0 {
            cluster.broker.kill();
        } else {
            assert_eq!(cluster.broker.terminate().code, Some(0));
        }
        cluster.broker.restart();
        for (topic, first) in [(&by_size, 12), (&by_time, 11), (&kept, 0)] {
            let mut client = cluster.at(topic, 0);
            assert_eq!((start(&mut client, topic), end(&mut client, topic, 0)), (first, 22));
            assert_eq!(read_all(&mut client, topic, 0, first).len() as i64, 22 - first);
        }
    }
    // What retention deletes it deletes again after a restart, to the last record.
    assert_eq!(cluster.broker.stderr(), "");
}

fn settings_count_when_they_are_altered(mode: Mode) {
    let cluster = cluster_that_looks_often(mode);
    let topic = cluster.topic_with("altered", 1, &[NEVER, AT_ONCE]);
    let clock = cluster.topic_with("clock", 1, &[AT_ONCE]);
    let mut client = cluster.at(&topic, 0);
    for _ in 0..3 {
        append(&mut client, &topic, 0, &batch(1));
    }
    // Once another topic's old records have gone twice, this one was looked at in between.
    let mut other = cluster.at(&clock, 0);
    for round in 1..=2 {
        append(&mut other, &clock, 0, &batch(1));
        wait_for("the other topic", || start(&mut other, &clock) == round);
    }
    assert_eq!(start(&mut client, &topic), 0);
    alter(&cluster, &topic, "retention.ms", "1000");
    // All of it, the segment that is written to included. As in Kafka an empty one is left.
    wait_for("altered", || start(&mut client, &topic) == 3);
    wait_for("files", || bases(&cluster, &topic) == [3]);
    assert_eq!(size(&cluster, &topic), 0);
    assert_eq!(append(&mut client, &topic, 0, &batch(now_ms())), 3);
    assert_eq!(read_all(&mut client, &topic, 0, 3).len(), 1);
    // DeleteRecords leaves the files to retention, here of a topic that keeps everything else.
    alter(&cluster, &topic, "retention.ms", "-1");
    let request = delete_records(&[(&topic.name, &[(0, -1)])]);
    let response = client.call(2, &request);
    assert_eq!(response.topics[0].partitions[0].low_watermark, 4);
    assert_eq!(append(&mut client, &topic, 0, &batch(1)), 4);
    assert_eq!((start(&mut client, &topic), end(&mut client, &topic, 0)), (4, 5));
    assert_eq!(cluster.broker.stderr(), "");
}

fn alter(cluster: &Cluster, topic: &Topic, name: &str, value: &str) {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let config = AlterableConfig::default().with_name(text(name)).with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(&topic.name))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = cluster.connect().call(1, &request);
    assert_eq!(response.responses[0].error_code, 0);
}

/// So that the file system gives back little at once.
#[test]
fn a_large_segment_goes_a_piece_at_a_time() {
    let cluster = cluster_that_looks_often(cluster::PER_CORE_1);
    let topic = cluster.topic_with("large", 1, &[NEVER, AT_ONCE]);
    let mut client = cluster.at(&topic, 0);
    let large = Batch::of_values([vec![7_u8; 1_000_000]]);
    for _ in 0..34 {
        append(&mut client, &topic, 0, &large);
    }
    let log = format!("topics/{}-0/00000000000000000000.log", topic.name);
    let log = cluster.broker.data_directory().join(log);
    wait_for("a file to be cut", || fs::metadata(&log).is_ok_and(|found| found.len() > 0));
    let mut lengths = Vec::new();
    alter(&cluster, &topic, "retention.ms", "1");
    wait_for("its file", || match fs::metadata(&log) {
        Ok(found) => {
            lengths.push(found.len());
            false
        }
        Err(_) => true,
    });
    // As long as it was when it was sealed, and then less by some pieces.
    let sealed = 34 * large.encode().len() as u64;
    lengths.dedup();
    let cuts: Vec<u64> = lengths.iter().copied().filter(|&length| length < sealed).collect();
    let last: Vec<u64> = (1..=8).map(|cut| sealed - cut * UNLINK_PIECE_BYTES).collect();
    let cuts: Vec<u64> = cuts.into_iter().filter(|length| last.contains(length)).collect();
    assert!(cuts.len() > 1 && cuts.is_sorted_by(|left, right| left > right), "{lengths:?}");
    assert_eq!(cluster.broker.stderr(), "");
}

/// As in Kafka, the file says how old records are that do not say it themselves.
#[test]
fn records_without_a_time_are_as_old_as_their_file() {
    let mut cluster = cluster_that_looks_often(cluster::PER_CORE_1);
    let topic = cluster.topic_with("timeless", 1, &[NEVER, AT_ONCE]);
    for number in 0..3 {
        let base = append(&mut cluster.at(&topic, 0), &topic, 0, &batch(-1));
        assert_eq!(base, number);
    }
    cluster.broker.kill();
    cluster.broker.restart();
    let mut client = cluster.at(&topic, 0);
    assert_eq!((start(&mut client, &topic), bases(&cluster, &topic)), (0, vec![0]));
    alter(&cluster, &topic, "retention.ms", "3600000");
    let clock = cluster.topic_with("clock", 1, &[AT_ONCE]);
    let mut other = cluster.at(&clock, 0);
    for round in 1..=2 {
        append(&mut other, &clock, 0, &batch(1));
        wait_for("the other topic", || start(&mut other, &clock) == round);
    }
    assert_eq!(start(&mut client, &topic), 0, "written a moment ago");
    alter(&cluster, &topic, "retention.ms", "1");
    wait_for("the file's time", || start(&mut client, &topic) == 3);
    wait_for("files", || bases(&cluster, &topic) == [3]);
    the_empty_segment_stays(&mut cluster, &topic);
}

/// Over restarts of both kinds, until a batch is written to it.
fn the_empty_segment_stays(cluster: &mut Cluster, topic: &Topic) {
    for clean in [true, false, false, true, true] {
        if clean {
            assert_eq!(cluster.broker.terminate().code, Some(0));
            let mut left = files(cluster, topic);
            left.sort_unstable();
            let kinds = ["index", "log", "snapshot", "timeindex"];
            let mut expected = kinds.map(|kind| format!("00000000000000000003.{kind}")).to_vec();
            expected.extend(["leader-epoch-checkpoint", "partition.metadata"].map(str::to_owned));
            assert_eq!(left, expected);
        } else {
            cluster.broker.kill();
        }
        cluster.broker.restart();
        assert_eq!(bases(cluster, topic), [3]);
    }
    let mut client = cluster.at(topic, 0);
    assert_eq!((start(&mut client, topic), end(&mut client, topic, 0)), (3, 3));
    alter(cluster, topic, "retention.ms", "-1");
    assert_eq!(append(&mut client, topic, 0, &batch(now_ms())), 3);
    for clean in [false, true] {
        if clean {
            assert_eq!(cluster.broker.terminate().code, Some(0));
        } else {
            cluster.broker.kill();
        }
        cluster.broker.restart();
        let mut client = cluster.at(topic, 0);
        assert_eq!((start(&mut client, topic), bases(cluster, topic)), (3, vec![3]));
        assert_eq!(read_all(&mut client, topic, 0, 3).len(), 1);
    }
    assert_eq!(cluster.broker.stderr(), "");
}
