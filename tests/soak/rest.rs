//! What has to come true, while the load runs and once it has come to rest.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::TOPICS;
use crate::book::Policy;
use crate::mark::{Mark, Written, batch};
use crate::reader::{ends, start, stored};
use crate::stage::{Node, Session, Stage, pause};
use crate::support::requests::{self, Topic};

/// Watches that readers of committed records are not held up.
#[derive(Default)]
pub struct Stability {
    /// Since when the last stable offset of a log has been where it is.
    since: HashMap<(String, i32), (i64, Instant)>,
}

impl Stability {
    /// Looks once. Transactions take milliseconds here.
    pub fn look(&mut self, session: &mut Session<'_>, stage: &Stage) {
        let logs = stage.book().logs();
        for (topic, partition, _) in logs {
            let (end, stable) = ends(session, &topic, partition);
            let now = Instant::now();
            let place = (topic, partition);
            let known = self.since.entry(place.clone()).or_insert((stable, now));
            if known.0 != stable || stable == end {
                *known = (stable, now);
            }
            let stuck = now - known.1 > HELD_UP_MAX;
            assert!(!stuck, "{place:?}: committed records end at {stable}, the log at {end}");
        }
    }
}

/// No transaction is open anywhere: all that is durable can be read by everybody.
pub fn wait_for_stable_ends(session: &mut Session<'_>, stage: &Stage) {
    let logs = stage.book().logs();
    until("stable ends", || {
        logs.iter().all(|(topic, partition, _)| {
            let (end, stable) = ends(session, topic, *partition);
            end == stable
        })
    });
}

/// What is too old is gone, files included: one empty segment at the end is left. What is too much
/// is gone but for part of a segment.
pub fn wait_for_retention(session: &mut Session<'_>, data_directory: &Path) {
    for &(topic, partitions, policy, _) in TOPICS {
        for partition in 0..partitions as i32 {
            let directory = data_directory.join(format!("topics/{topic}-{partition}"));
            let mut left = Vec::new();
            let is_gone = || {
                left = segments(&directory);
                match policy {
                    Policy::Compact => true,
                    Policy::Bytes(kept) => {
                        left.iter().map(|(_, bytes)| bytes).sum::<u64>() <= kept + SEGMENT_BYTES
                    }
                    Policy::Ms(_) => {
                        let (end, _) = ends(session, topic, partition);
                        start(session, topic, partition) == end && left == [(end, 0)]
                    }
                }
            };
            if !comes_true(is_gone) {
                let (end, stable) = ends(session, topic, partition);
                let start = start(session, topic, partition);
                panic!(
                    "{topic}-{partition} from {start} to {end} ({stable} stable) still has the \
                     segments {left:?}, and in all {:?}",
                    names(&directory)
                );
            }
        }
    }
}

/// Everything in a directory.
fn names(directory: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(directory).expect("a directory").filter_map(Result::ok);
    let named = entries.map(|entry| {
        let bytes = entry.metadata().map_or(0, |facts| facts.len());
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    });
    let mut all: Vec<(String, u64)> = named.collect();
    all.sort_unstable();
    all
}

/// Base offsets and sizes of the segments in a directory.
fn segments(directory: &Path) -> Vec<(i64, u64)> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut found: Vec<(i64, u64)> = entries
        .filter_map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name();
            let base = name.to_str()?.strip_suffix(".log")?.parse().ok()?;
            // It may be renamed meanwhile.
            Some((base, entry.metadata().ok()?.len()))
        })
        .collect();
    found.sort_unstable();
    found
}

/// Behind what is written now, compaction leaves the newest value of every key, at its offset and
/// nothing else; tombstones may stay for a while. Nothing of an aborted transaction is left.
pub fn wait_for_compaction(session: &mut Session<'_>, stage: &Stage) {
    for &(topic, partitions, policy, _) in TOPICS {
        if !matches!(policy, Policy::Compact) {
            continue;
        }
        for partition in 0..partitions as i32 {
            fill(session, stage, topic, partition);
            until("one value per key", || is_compacted(session, stage, topic, partition));
        }
    }
}

fn is_compacted(session: &mut Session<'_>, stage: &Stage, topic: &str, partition: i32) -> bool {
    let found = stored(session, topic, partition);
    let book = stage.book();
    let mut newest = book.newest(topic, partition, i64::MAX);
    newest.remove(FILLER);
    let mut left: HashMap<&str, usize> = HashMap::new();
    for (key, mark) in found.iter().filter(|(key, _)| key != FILLER) {
        if book.is_aborted(mark) {
            return false;
        }
        *left.entry(key).or_default() += 1;
    }
    // Which value it is, and where, the check of the whole log says.
    newest.iter().all(|(key, (_, tombstone))| match left.get(&**key) {
        Some(count) => *count == 1,
        None => *tombstone,
    })
}

/// Enough records of one key that everything before them is in segments that may be compacted.
fn fill(session: &mut Session<'_>, stage: &Stage, topic: &str, partition: i32) {
    let (end, _) = ends(session, topic, partition);
    for place in 0..FILL_BATCHES {
        let records: Vec<Written> = (0..10)
            .map(|record| Written {
                mark: Mark { writer: 0, transaction: 0, number: end as u64 + place * 10 + record },
                key: Some(FILLER.to_owned()),
                tombstone: false,
            })
            .collect();
        let (set, time_ms) = batch(&records, (-1, -1, -1), false);
        stage.book().sending(topic, partition, &records, time_ms);
        let request = requests::produce(9, &Topic::named(topic), partition, -1, set);
        let answer = session.call(Node::Leader(topic, partition), 9, &request);
        let answer = &answer.responses[0].partition_responses[0];
        assert_eq!(answer.error_code, 0, "{topic}-{partition}");
        stage.book().acknowledged(topic, partition, &records, answer.base_offset);
    }
}

/// Looks again and again until it is so.
fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "it never came to {what}");
}

/// The same for a while.
fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        pause(50);
    }
    true
}

const FILLER: &str = "filler";
/// More than a partition keeps in memory before it is written to its segment, and a segment.
const FILL_BATCHES: u64 = 120;
/// As the topics have it.
const SEGMENT_BYTES: u64 = 60_000;
const HELD_UP_MAX: Duration = Duration::from_secs(8);
