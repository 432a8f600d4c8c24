//! `kill -9` while retention deletes and clients delete records: the log start never moves back,
//! what is kept is whole, and the disk holds no more than it should.

use std::fs;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, create, large_fetch};
use crate::ledger::served;
use crate::random::{Random, batch};
use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::requests::{self, Topic, delete_records};

/// Three logs: one of a bounded size, one of old records, one that only clients delete from.
const TOPICS: [(&str, &[(&str, &str)]); 3] = [
    ("bounded", &[("retention.bytes", "400000"), ("retention.ms", "-1")]),
    ("old", &[("retention.ms", "1000")]),
    ("deleted", &[("retention.ms", "-1")]),
];

/// What is known of a log.
#[derive(Default)]
struct Known {
    start: i64,
    end: i64,
    /// First offset and number of every batch that was acknowledged.
    sent: Vec<(i64, u64)>,
}

#[test]
fn starts_never_move_back_by_kill_9() {
    let arguments = [
        &["--shards", "2", "--memory", "64MiB", "--set", "journal.ring.bytes=8MiB"][..],
        &["--set", "log.initial.task.delay.ms=0", "--set", "log.retention.check.interval.ms=5"],
    ];
    let mut broker = Broker::start(&arguments.concat());
    for (name, settings) in TOPICS {
        let segments = [("internal.segment.bytes", "50000"), ("file.delete.delay.ms", "3")];
        let request = create(name, 1, &[settings, &segments].concat());
        assert_eq!(broker.connect().call(7, &request).topics[0].error_code, 0);
    }
    let mut random = Random::new(11);
    let mut known: [Known; 3] = Default::default();
    let rounds =
        std::env::var("RINGLOG_CRASH_ROUNDS").map_or(12, |text| text.parse().expect("a number"));
    for round in 0..rounds {
        let cluster = Cluster::ask(&mut broker.connect());
        let deadline = Instant::now() + Duration::from_millis(random.between(50, 600) as u64);
        while Instant::now() < deadline {
            let place = random.between(0, 3);
            let (name, known) = (TOPICS[place].0, &mut known[place]);
            let mut client = Client::connect(cluster.leader(name, 0));
            for _ in 0..random.between(1, 40) {
                append(&mut client, name, known, &mut random);
            }
            if name == "deleted" && random.one_in(2) {
                let offset = known.start + (known.end - known.start) / 2;
                let request = delete_records(&[(name, &[(0, offset)])]);
                let answer = client.call(2, &request).topics[0].partitions[0].clone();
                assert_eq!((answer.error_code, answer.low_watermark), (0, offset));
                known.start = offset;
            }
            known.start = known.start.max(start(&mut client, name));
        }
        if random.one_in(4) {
            assert_eq!(broker.terminate().code, Some(0), "round {round}");
        } else {
            broker.kill();
        }
        broker.restart();
        assert_eq!(broker.stderr(), "", "round {round}");
        let cluster = Cluster::ask(&mut broker.connect());
        for ((name, _), known) in TOPICS.iter().zip(&mut known) {
            check(&mut Client::connect(cluster.leader(name, 0)), name, known);
        }
    }
    assert!(known.iter().all(|known| known.start > 0), "something was deleted of each");
    wait_for_space(&broker, &mut known);
}

fn append(client: &mut Client, name: &str, known: &mut Known, random: &mut Random) {
    let bytes = random.between(10, 20_000);
    let number = known.sent.len() as u64;
    let set = batch(random, number, None, bytes, 2);
    let answer = client.call(12, &requests::produce(12, &Topic::named(name), 0, -1, set));
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!((answer.error_code, answer.base_offset), (0, known.end), "{name}");
    known.sent.push((known.end, number));
    known.end += 2;
}

fn start(client: &mut Client, name: &str) -> i64 {
    let answer = client.call(1, &requests::list_offsets(name, 0, -2));
    let answer = &answer.topics[0].partitions[0];
    assert_eq!(answer.error_code, 0, "{name}");
    answer.offset
}

/// Everything acknowledged from the start on is there, and nothing below is served.
fn check(client: &mut Client, name: &str, known: &mut Known) {
    let mut next = start(client, name);
    assert!(next >= known.start, "{name} starts at {next}, and started at {} before", known.start);
    known.start = next;
    let mut found = Vec::new();
    loop {
        let answer = client.call(12, &large_fetch(name, 0, next));
        let data = &answer.responses[0].partitions[0];
        if data.error_code == 1 {
            // Retention went on meanwhile.
            let start = start(client, name);
            assert!(start > next, "{name}: {next} is out of range, the log starts at {start}");
            (known.start, next) = (start, start);
            found.clear();
            continue;
        }
        assert_eq!(data.error_code, 0, "{name} at {next}");
        assert!(data.log_start_offset >= known.start);
        let set = served(&data.records.clone().unwrap_or_default());
        let Some(last) = set.last() else {
            assert_eq!(data.high_watermark, next, "{name}: nothing below the end");
            break;
        };
        next = last.last_offset + 1;
        found.extend(set.iter().map(|served| (served.base_offset, served.number)));
    }
    assert_eq!(next, known.end, "{name}: the end");
    let kept = known.sent.iter().filter(|(base, _)| base + 1 >= known.start);
    assert_eq!(found, kept.copied().collect::<Vec<_>>(), "{name} from {}", known.start);
    if known.start > 0 {
        let answer = client.call(12, &large_fetch(name, 0, known.start - 1));
        assert_eq!(answer.responses[0].partitions[0].error_code, 1, "{name}");
    }
}

/// What is deleted leaves the disk, whatever crashes came in between.
fn wait_for_space(broker: &Broker, known: &mut [Known; 3]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let cluster = Cluster::ask(&mut broker.connect());
        let left = TOPICS.iter().zip(&mut *known).map(|((name, _), known)| {
            let mut client = Client::connect(cluster.leader(name, 0));
            known.start = start(&mut client, name);
            let directory = broker.data_directory().join("topics").join(format!("{name}-0"));
            let entries = fs::read_dir(directory).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut bases: Vec<i64> = names
                .filter_map(|name| name.to_str()?.strip_suffix(".log")?.parse().ok())
                .collect();
            bases.sort_unstable();
            // The last segment below the start holds it, or is empty.
            bases.iter().filter(|base| **base < known.start).count().saturating_sub(1)
        });
        if left.sum::<usize>() == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "segments below the start are left");
    }
}
