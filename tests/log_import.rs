//! `ringlog log import` on hand-made directories of Apache Kafka: sound ones, and what is said of
//! those that are damaged, torn, incomplete or of another cluster. What a real broker leaves is
//! imported by `tests/clients/programs/import_kafka.py`.
//!
//! A refused import leaves nothing that could be taken for a data directory, and never touches the
//! source.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::batch::{Batch, Record, read_batches};
use support::broker::Broker;
use support::requests::{Topic, fetch};
use tempfile::TempDir;

/// What the command said.
#[derive(Debug)]
struct Said {
    code: i32,
    lines: Vec<String>,
    complaint: String,
}

/// Log directories of a stopped broker, and the place of a new data directory.
struct Scene {
    directory: TempDir,
}

impl Scene {
    /// One log directory with a topic `orders` of one partition: two batches in one segment, one in
    /// the next.
    fn new() -> Scene {
        let directory = TempDir::with_prefix_in("import-", env!("CARGO_TARGET_TMPDIR"));
        let scene = Scene { directory: directory.expect("a directory") };
        scene.log_directory("kafka", CLUSTER);
        let records = [topic_record("orders", ID), partition_record(0, ID)];
        scene.write("kafka/__cluster_metadata-0/00000000000000000000.log", &metadata(&records));
        scene.partition("kafka/orders-0", ID);
        let first = [batch(0, &["a", "b"]), batch(2, &["c"])].concat();
        scene.write("kafka/orders-0/00000000000000000000.log", &first);
        scene.write("kafka/orders-0/00000000000000000003.log", &batch(3, &["d", "e"]));
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("it is there").join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, content).expect("writable");
    }

    /// What every log directory has after a clean stop.
    fn log_directory(&self, name: &str, cluster: &str) {
        let properties = format!("#\nversion=1\nnode.id=1\ncluster.id={cluster}\n");
        self.write(&format!("{name}/meta.properties"), properties.as_bytes());
        self.write(&format!("{name}/.kafka_cleanshutdown"), b"{\"version\":0,\"brokerEpoch\":5}");
    }

    fn partition(&self, name: &str, id: u8) {
        // Kafka writes ids in URL-safe base64 without padding.
        assert_eq!(id, ID);
        let content = "version: 0\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ\n";
        self.write(&format!("{name}/partition.metadata"), content.as_bytes());
    }

    /// Imports these log directories.
    fn import(&self, sources: &[&str]) -> Said {
        let before = self.content();
        let mut program = Command::new(env!("CARGO_BIN_EXE_ringlog"));
        program.args(["log", "import", "--data-dir"]).arg(self.path("data"));
        program.args(sources.iter().map(|source| self.path(source)));
        let output = program.output().expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let said = Said {
            code: output.status.code().expect("it ended by itself"),
            lines: text(output.stdout).lines().map(str::to_owned).collect(),
            complaint: text(output.stderr),
        };
        assert_eq!(self.content(), before, "the source is as it was");
        assert_eq!(self.path("data").exists(), said.code == 0, "{said:?}");
        said
    }

    /// All files of the sources.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut pending = vec![self.path("kafka"), self.path("more")];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                // The lock is taken like a broker does.
                match path.is_dir() {
                    true => pending.push(path),
                    false if path.ends_with(".lock") => {}
                    false => drop(found.insert(path.clone(), fs::read(path).expect("readable"))),
                }
            }
        }
        found
    }

    /// Requires a refusal with this sentence about a file or directory.
    fn refused(&self, sources: &[&str], about: &str, sentence: &str) {
        let said = self.import(sources);
        assert_eq!((said.code, &said.lines[..]), (2, &[][..]), "{said:?}");
        let expected = format!("ringlog: {}: {sentence}\n", self.path(about).display());
        assert_eq!(said.complaint, expected);
    }
}

const ID: u8 = 9;
const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";

fn batch(base_offset: i64, values: &[&str]) -> Vec<u8> {
    let mut batch = Batch::of_values(values);
    (batch.base_offset, batch.partition_leader_epoch) = (base_offset, 0);
    batch.encode().to_vec()
}

/// The first batch of a metadata log.
fn metadata(records: &[Vec<u8>]) -> Vec<u8> {
    let mut batch = Batch::of(records.iter().map(Record::value).collect());
    batch.partition_leader_epoch = 1;
    batch.encode().to_vec()
}

/// A metadata record: frame version, type, version, fields, no tagged fields.
fn metadata_record(kind: u8, fields: &[u8]) -> Vec<u8> {
    [&[1, kind, 0][..], fields, &[0]].concat()
}

fn topic_record(name: &str, id: u8) -> Vec<u8> {
    let length = u8::try_from(name.len() + 1).expect("short");
    metadata_record(2, &[&[length][..], name.as_bytes(), &[id; 16]].concat())
}

fn partition_record(index: i32, id: u8) -> Vec<u8> {
    metadata_record(3, &[&index.to_be_bytes()[..], &[id; 16]].concat())
}

/// Flips a bit.
fn flip(path: &Path, position: usize) {
    let mut content = fs::read(path).expect("readable");
    content[position] ^= 1;
    fs::write(path, content).expect("writable");
}

/// Values by offset, as a broker on the new directory serves them.
fn served(scene: &Scene, start: i64) -> Vec<(i64, String)> {
    let small = ["--shards", "1", "--memory", "64MiB", "--set", "journal.ring.bytes=8MiB"];
    let mut broker = Broker::prepare(&small);
    fs::remove_dir(broker.data_directory()).expect("an empty directory");
    fs::rename(scene.path("data"), broker.data_directory()).expect("on one disk");
    broker.restart();
    let mut found = Vec::new();
    let mut next = start;
    loop {
        let request = fetch(12, &Topic::named("orders"), 0, next);
        let answer = broker.connect().call(12, &request);
        let data = &answer.responses[0].partitions[0];
        assert_eq!((data.error_code, data.log_start_offset), (0, start));
        let batches = read_batches(data.records.clone().unwrap_or_default());
        let Some(last) = batches.last() else { return found };
        next = last.base_offset + i64::from(last.last_offset_delta) + 1;
        found.extend(batches.iter().flat_map(|batch| &batch.records).map(|record| {
            let value = record.value.as_ref().expect("a value").to_vec();
            (record.offset, String::from_utf8(value).expect("a text"))
        }));
    }
}

fn values(start: i64, values: &[&str]) -> Vec<(i64, String)> {
    (start..).zip(values.iter().map(|&value| value.to_owned())).collect()
}

#[test]
fn a_sound_directory_is_imported() {
    let scene = Scene::new();
    let bytes = fs::read(scene.path("kafka/orders-0/00000000000000000000.log")).expect("a file");
    let later = fs::read(scene.path("kafka/orders-0/00000000000000000003.log")).expect("a file");
    let said = scene.import(&["kafka"]);
    assert_eq!((said.code, said.complaint.as_str()), (0, ""));
    let line = format!(
        "{} holds 1 topics, 1 partitions, 3 batches of {} bytes now",
        scene.path("data").display(),
        bytes.len() + later.len()
    );
    assert_eq!(said.lines, [line]);
    let sentence =
        "is not empty: choose another --data-dir, nothing is imported into what is there";
    let mut program = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    program.args(["log", "import", "--data-dir"]).arg(scene.path("data")).arg(scene.path("kafka"));
    let output = program.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(sentence));
    assert_eq!(served(&scene, 0), values(0, &["a", "b", "c", "d", "e"]));
}

#[test]
fn log_starts_and_several_directories_are_taken() {
    let scene = Scene::new();
    scene.log_directory("more", CLUSTER);
    fs::rename(scene.path("kafka/orders-0"), scene.path("more/orders-0")).expect("renamed");
    scene.write("more/log-start-offset-checkpoint", b"0\n1\norders 0 3\n");
    scene.write("more/left-over/notes", b"mine");
    let said = scene.import(&["kafka", "more"]);
    assert_eq!(said.code, 0, "{said:?}");
    let note =
        format!("{} is no log of a topic and is left out", scene.path("more/left-over").display());
    assert_eq!(said.lines[0], note);
    assert_eq!(served(&scene, 3), values(3, &["d", "e"]));
}

#[test]
fn damage_is_named_and_nothing_is_imported() {
    let first = "kafka/orders-0/00000000000000000000.log";
    let scene = Scene::new();
    let length = batch(0, &["a", "b"]).len();
    flip(&scene.path(first), length - 2);
    let stored = u32::from_be_bytes(batch(0, &["a", "b"])[17..21].try_into().expect("four bytes"));
    let said = scene.import(&["kafka"]);
    let start = format!(
        "ringlog: {}: position 0: stored crc {stored:#010x}, computed crc 0x",
        scene.path(first).display()
    );
    assert!(said.code == 2 && said.complaint.starts_with(&start), "{said:?}");

    let scene = Scene::new();
    let content = fs::read(scene.path(first)).expect("readable");
    scene.write(first, &content[..content.len() - 1]);
    let torn = format!(
        "position {length}: a batch of {} bytes, {} are left",
        content.len() - length,
        content.len() - length - 1
    );
    scene.refused(&["kafka"], first, &torn);

    let scene = Scene::new();
    scene.write(first, &[batch(0, &["a", "b"]), batch(1, &["again"])].concat());
    scene.refused(&["kafka"], first, "offset 1 comes twice");

    let scene = Scene::new();
    let log = "kafka/__cluster_metadata-0/00000000000000000000.log";
    scene.write(log, &metadata(&[topic_record("orders", ID), metadata_record(2, &[1])]));
    let said = scene.import(&["kafka"]);
    let start = format!("ringlog: {}: metadata record 1: ", scene.path(log).display());
    assert!(said.code == 2 && said.complaint.starts_with(&start), "{said:?}");
}

/// After a crash the last segment of a log may end with a torn write. Any other may not.
#[test]
fn a_crashed_brokers_torn_end_is_cut() {
    let last = "kafka/orders-0/00000000000000000003.log";
    let scene = Scene::new();
    fs::remove_file(scene.path("kafka/.kafka_cleanshutdown")).expect("removable");
    let torn = [batch(3, &["d"]), batch(4, &["torn"])[..70].to_vec()].concat();
    scene.write(last, &torn);
    let said = scene.import(&["kafka"]);
    assert_eq!(said.code, 0, "{said:?}");
    let unclean = format!(
        "{}: the broker did not stop of itself; logs end with their last whole batch",
        scene.path("kafka").display()
    );
    let position = batch(3, &["d"]).len();
    let cut = format!(
        "orders-0: the log ends at 4, behind it is a torn write: position {position}: a batch of \
         {} bytes, 70 are left",
        batch(4, &["torn"]).len()
    );
    assert_eq!(said.lines[..2], [unclean, cut]);
    assert_eq!(served(&scene, 0), values(0, &["a", "b", "c", "d"]));

    let first = "kafka/orders-0/00000000000000000000.log";
    let scene = Scene::new();
    fs::remove_file(scene.path("kafka/.kafka_cleanshutdown")).expect("removable");
    scene.write(first, &batch(0, &["a", "b"])[..70]);
    let sentence =
        format!("position 0: a batch of {} bytes, 70 are left", batch(0, &["a", "b"]).len());
    scene.refused(&["kafka"], first, &sentence);
}

#[test]
fn what_is_incomplete_or_of_another_cluster_is_refused() {
    let scene = Scene::new();
    fs::remove_file(scene.path("kafka/meta.properties")).expect("removable");
    let sentence = "there is no meta.properties: this is no log directory of Kafka";
    scene.refused(&["kafka"], "kafka", sentence);

    let scene = Scene::new();
    fs::remove_dir_all(scene.path("kafka/__cluster_metadata-0")).expect("removable");
    let sentence = "none of the directories holds __cluster_metadata-0: name every one of log.dirs \
                    and metadata.log.dir (clusters with ZooKeeper have to move to KRaft first)";
    scene.refused(&["kafka"], "kafka", sentence);

    let scene = Scene::new();
    let log = "kafka/__cluster_metadata-0/00000000000000000000.log";
    let later = "kafka/__cluster_metadata-0/00000000000000000050.log";
    fs::rename(scene.path(log), scene.path(later)).expect("renamed");
    let sentence = "its log begins at 50 and no snapshot reaches it";
    scene.refused(&["kafka"], "kafka/__cluster_metadata-0", sentence);

    let scene = Scene::new();
    fs::remove_dir_all(scene.path("kafka/orders-0")).expect("removable");
    let sentence = "partition orders-0 is in none of the directories: name every one of log.dirs";
    scene.refused(&["kafka"], "kafka/__cluster_metadata-0", sentence);

    let scene = Scene::new();
    let records = [topic_record("orders", ID), partition_record(1, ID)];
    scene.write(log, &metadata(&records));
    let sentence = "the metadata lacks a partition of topic orders";
    scene.refused(&["kafka"], "kafka/__cluster_metadata-0", sentence);

    let scene = Scene::new();
    scene.log_directory("more", "another-cluster");
    let sentence =
        format!("it is of cluster another-cluster, the directories before it of {CLUSTER}");
    scene.refused(&["kafka", "more"], "more", &sentence);

    let scene = Scene::new();
    scene.log_directory("more", CLUSTER);
    scene.partition("more/orders-0", ID);
    scene.write("more/orders-0/00000000000000000000.log", &batch(0, &["other"]));
    let known = scene.path("kafka/orders-0");
    let sentence = format!("{} is the same log: leave one of them out", known.display());
    scene.refused(&["kafka", "more"], "more/orders-0", &sentence);
    scene.write("more/__cluster_metadata-0/00000000000000000000.log", &metadata(&[]));
    fs::remove_dir_all(scene.path("more/orders-0")).expect("removable");
    let known = scene.path("kafka/__cluster_metadata-0");
    let sentence = format!("{} is the same log: leave one of them out", known.display());
    scene.refused(&["kafka", "more"], "more/__cluster_metadata-0", &sentence);
}
