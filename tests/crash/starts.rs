//! Starts that are refused, each with one sentence and exit code 2; clean stops; the flags with
//! which the journal is opened.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cluster::create;
use crate::random::Random;
use crate::support::broker::{Broker, Ended};
use crate::support::requests::{self, Topic};

const SMALL: &[&str] = &["--shards", "1", "--memory", "64MiB", "--set", "journal.ring.bytes=8MiB"];

#[test]
fn a_locked_data_directory_is_refused() {
    let broker = Broker::start(SMALL);
    let ended = serve(broker.data_directory(), "127.0.0.1:0", SMALL);
    let directory = broker.data_directory().canonicalize().expect("it is there");
    let expected = format!(
        "the data directory {} is in use by process {}: stop that process or choose another \
         --data-dir",
        directory.display(),
        broker.process_id()
    );
    check_refused(&ended, &expected);
}

#[test]
fn a_taken_port_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let directory = directory_on_disk();
    let ended = serve(directory.path(), &address, SMALL);
    let expected = format!(
        "{address} is taken by another process: stop it or choose another address with --listen"
    );
    check_refused(&ended, &expected);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let mut broker = Broker::start(SMALL);
    assert_eq!(broker.terminate().code, Some(0));
    let path = broker.data_directory().join("format");
    let content = fs::read_to_string(&path).expect("the format file");
    assert!(content.contains('1'), "{content:?}");
    let newer = content.replacen('1', "2", 1);
    fs::write(&path, &newer).expect("writable");
    let ended = broker.start_failing();
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let sentence = sentence_of(&ended);
    assert!(sentence.contains('2') && sentence.contains("format"), "{sentence}");
    assert_eq!(fs::read_to_string(&path).expect("still there"), newer);
    fs::write(&path, &content).expect("writable");
    broker.restart();
}

#[test]
fn memory_is_no_place_for_power_loss_mode() {
    let memory = Path::new("/dev/shm");
    let directory = TempDir::with_prefix_in("broker-", memory).expect("a tmpfs is there");
    let ended = serve(directory.path(), "127.0.0.1:0", SMALL);
    let expected = format!(
        "{} is on tmpfs, which is in memory and loses everything with the power: choose a \
         --data-dir on ext4 or xfs, or accept that with --durability process-crash",
        directory.path().display()
    );
    check_refused(&ended, &expected);
}

#[test]
fn batches_over_a_quarter_of_the_ring_are_refused_at_start_and_for_topics() {
    let directory = directory_on_disk();
    let quarter = 2 << 20;
    let over = format!("message.max.bytes={}", quarter + 1);
    let ended = serve(directory.path(), "127.0.0.1:0", &[SMALL, &["--set", &over]].concat());
    let expected = format!(
        "`message.max.bytes` is {}, but at most {quarter} fits: a quarter of `journal.ring.bytes` \
         or of a shard's tail memory; raise those or lower it",
        quarter + 1
    );
    check_refused(&ended, &expected);

    let broker = Broker::start(SMALL);
    let mut client = broker.connect();
    let mut code_of = |bytes: i32| {
        let settings = [("max.message.bytes", &*bytes.to_string())];
        client.call(7, &create("large", 1, &settings)).topics[0].error_code
    };
    assert_eq!(code_of(quarter + 1), 40);
    assert_eq!(code_of(quarter), 0);
}

#[test]
fn a_clean_stop_exits_0_and_leaves_nothing_to_replay() {
    let mut broker = Broker::start(SMALL);
    let topic = Topic::named("kept");
    let mut client = broker.connect();
    assert_eq!(client.call(7, &requests::create_topic("kept", 1)).topics[0].error_code, 0);
    let mut random = Random::new(1);
    for number in 0..10 {
        let batch = crate::random::batch(&mut random, number, None, 3000, 3);
        let answer = client.call(9, &requests::produce(9, &topic, 0, -1, batch));
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, number as i64 * 3);
    }
    let ended = broker.terminate();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    broker.restart();
    assert!(!broker.stdout().contains("recovered"), "{}", broker.stdout());
    let answer = broker.connect().call(5, &requests::list_offsets("kept", 0, -1));
    assert_eq!(answer.topics[0].partitions[0].offset, 30);
    // The counterpart: without a clean stop there is something to replay, and it says so.
    let batch = crate::random::batch(&mut random, 10, None, 3000, 3);
    let answer = broker.connect().call(9, &requests::produce(9, &topic, 0, -1, batch));
    assert_eq!(answer.responses[0].partition_responses[0].base_offset, 30);
    broker.kill();
    broker.restart();
    assert!(broker.stdout().contains("recovered 1 batches"), "{}", broker.stdout());
}

#[test]
fn topics_with_the_longest_names_can_be_deleted() {
    let name = "n".repeat(249);
    let mut broker = Broker::start(SMALL);
    let mut client = broker.connect();
    assert_eq!(client.call(7, &requests::create_topic(&name, 2)).topics[0].error_code, 0);
    let batch = crate::random::batch(&mut Random::new(1), 0, None, 3000, 3);
    for partition in [0, 1] {
        let request = requests::produce(9, &Topic::named(&name), partition, -1, batch.clone());
        let answer = client.call(9, &request);
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    // A clean stop has made their directories.
    assert_eq!(broker.terminate().code, Some(0));
    broker.restart();
    let answer = broker.connect().call(6, &requests::delete_topic_state(&name));
    assert_eq!(answer.responses[0].error_code, 0);
    broker.kill();
    broker.restart();
    let answer = broker.connect().call(12, &requests::metadata(&[]));
    assert_eq!(answer.topics, []);
    let topics = fs::read_dir(broker.data_directory().join("topics")).expect("it is there");
    assert_eq!(topics.count(), 0, "nothing is left of them");
}

#[test]
fn the_journal_is_synced_past_the_page_cache_in_power_loss_mode_and_cached_in_the_other() {
    let synced = libc::O_DIRECT | libc::O_DSYNC;
    for (durability, expected) in [("power-loss", synced), ("process-crash", 0)] {
        let broker = Broker::start(&[SMALL, &["--durability", durability]].concat());
        let journal = broker.data_directory().join("journal/rings");
        let journal = journal.canonicalize().expect("it is there");
        let flags = open_flags(broker.process_id(), &journal);
        assert_eq!(flags.len(), 4, "four files of one ring");
        for flags in flags {
            assert_eq!(flags & synced, expected, "{durability}: {flags:o}");
        }
    }
}

/// Flags of every descriptor a process has on a file of `directory`.
fn open_flags(process: u32, directory: &Path) -> Vec<i32> {
    let root = format!("/proc/{process}");
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("{root}/fd")).expect("an own child") {
        let entry = entry.expect("listable");
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.parent() != Some(directory) {
            continue;
        }
        let name = entry.file_name();
        let path = format!("{root}/fdinfo/{}", name.to_string_lossy());
        let info = fs::read_to_string(path).expect("readable");
        let line = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let octal = line.expect("a line of flags").trim();
        found.push(i32::from_str_radix(octal, 8).expect("octal"));
    }
    found
}

/// A data directory where direct I/O is real.
fn directory_on_disk() -> TempDir {
    TempDir::with_prefix_in("broker-", env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Runs a start that is expected to fail soon.
fn serve(data_directory: &Path, listen: &str, arguments: &[&str]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringlog"))
        .args(["serve", "--listen", listen, "--data-dir"])
        .arg(data_directory)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the broker");
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("an own child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("an own child");
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("it has ended");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn check_refused(ended: &Ended, sentence: &str) {
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(sentence_of(ended), sentence);
}

/// The one line of complaint.
fn sentence_of(ended: &Ended) -> &str {
    assert_eq!(ended.stdout, "", "nothing but the complaint");
    let line = ended.stderr.strip_prefix("ringlog: ").expect("it says who speaks");
    let line = line.strip_suffix('\n').expect("a whole line");
    assert!(!line.contains('\n'), "one sentence: {line}");
    line
}
