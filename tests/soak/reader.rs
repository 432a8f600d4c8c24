//! Logs read back: as a reader of committed records sees them, and as they are.

use std::collections::HashSet;

use kafka_protocol::messages::fetch_response::PartitionData;

use crate::book::{Found, Shown};
use crate::cluster::large_fetch;
use crate::mark::{Mark, records, wall_ms};
use crate::stage::{Node, Session};
use crate::support::batch::{CONTROL, ReadBatch, TRANSACTIONAL, read_batches};
use crate::support::requests::list_offsets;

/// What one fetch has found.
pub struct Fetched {
    /// The offset after the last batch.
    pub next: i64,
    pub end: i64,
    pub stable: i64,
    pub batches: Vec<ReadBatch>,
    /// Records of aborted transactions left out, and markers.
    pub records: Vec<Shown>,
}

/// Fetches committed records; `None` if the offset is out of range.
pub fn fetch_committed(
    session: &mut Session<'_>,
    topic: &str,
    partition: i32,
    offset: i64,
    wait_ms: i32,
) -> Option<Fetched> {
    let data = fetch(session, topic, partition, offset, wait_ms, 1)?;
    let batches = read_batches(data.records.clone().unwrap_or_default());
    let mut aborted: Vec<(i64, i64)> = (data.aborted_transactions.iter().flatten())
        .map(|transaction| (transaction.first_offset, transaction.producer_id.0))
        .collect();
    aborted.sort_unstable();
    let shown = committed(&batches, offset, aborted);
    let next = batches.last().map_or(offset, end_of);
    assert!(next <= data.last_stable_offset, "{topic}-{partition}: shown beyond the stable end");
    let (end, stable) = (data.high_watermark, data.last_stable_offset);
    Some(Fetched { next, end, stable, batches, records: shown })
}

fn fetch(
    session: &mut Session<'_>,
    topic: &str,
    partition: i32,
    offset: i64,
    wait_ms: i32,
    isolation: i8,
) -> Option<PartitionData> {
    let mut request = large_fetch(topic, partition, offset);
    request.isolation_level = isolation;
    request.max_wait_ms = wait_ms;
    request.min_bytes = 1;
    let answer = session.call(Node::Leader(topic, partition), 12, &request);
    let data = &answer.responses[0].partitions[0];
    if data.error_code == OFFSET_OUT_OF_RANGE {
        return None;
    }
    assert_eq!(data.error_code, 0, "{topic}-{partition} at {offset}");
    assert!(data.last_stable_offset <= data.high_watermark, "{topic}-{partition}");
    Some(data.clone())
}

/// What a consumer makes of batches and the list of aborted transactions, as Kafka's does.
fn committed(batches: &[ReadBatch], from: i64, aborted: Vec<(i64, i64)>) -> Vec<Shown> {
    let mut waiting = aborted.into_iter().peekable();
    let mut open: HashSet<i64> = HashSet::new();
    let mut shown = Vec::new();
    for batch in batches {
        assert!(batch.crc_is_valid, "at {}", batch.base_offset);
        while let Some((_, producer)) = waiting.next_if(|(first, _)| *first < end_of(batch)) {
            open.insert(producer);
        }
        if batch.attributes & CONTROL != 0 {
            if marker_aborts(batch) {
                open.remove(&batch.producer_id);
            }
            continue;
        }
        if batch.attributes & TRANSACTIONAL != 0 && open.contains(&batch.producer_id) {
            continue;
        }
        let records = records(batch).into_iter().filter(|record| record.offset >= from);
        shown.extend(records.map(|record| Shown {
            offset: record.offset,
            mark: Mark::of(&record),
            key: record.key.map(|key| String::from_utf8(key.to_vec()).expect("a text")),
            tombstone: record.value.is_none(),
        }));
    }
    shown
}

fn marker_aborts(batch: &ReadBatch) -> bool {
    // A batch whose marker compaction has removed is empty.
    let marker = batch.records.first().and_then(|record| record.key.as_ref());
    marker.is_some_and(|key| key[..4] == [0, 0, 0, 0])
}

/// The offset after a batch.
pub fn end_of(batch: &ReadBatch) -> i64 {
    batch.base_offset + i64::from(batch.last_offset_delta) + 1
}

/// Reads a whole log as a reader of committed records does; `dense` if nothing may be missing.
pub fn read(session: &mut Session<'_>, topic: &str, partition: i32, dense: bool) -> Found {
    let mut found = Found { start: -1, ..Found::default() };
    let mut next = -1;
    loop {
        let fetched = match next {
            -1 => None,
            next => fetch_committed(session, topic, partition, next, 0),
        };
        // Retention goes on meanwhile: the log has another start then.
        let Some(fetched) = fetched else {
            let start = start(session, topic, partition);
            assert!(start > next, "{topic}-{partition}: {next} is out of range from {start}");
            next = start;
            found = Found { start, ..Found::default() };
            continue;
        };
        let mut expected = next;
        for batch in &fetched.batches {
            let gap = batch.base_offset - expected;
            assert!(gap == 0 || !dense, "{topic}-{partition}: {gap} offsets missing at {expected}");
            expected = end_of(batch);
            found.bytes += 12 + u64::try_from(batch.length).expect("a length");
        }
        found.records.extend(fetched.records);
        next = fetched.next;
        if fetched.batches.is_empty() {
            assert_eq!(next, fetched.stable.max(found.start), "{topic}-{partition}: no more");
            (found.end, found.stable) = (fetched.end, fetched.stable);
            found.read_ms = wall_ms();
            return found;
        }
    }
}

/// The marks of everything that is stored, with the keys: what was aborted too.
pub fn stored(session: &mut Session<'_>, topic: &str, partition: i32) -> Vec<(String, Mark)> {
    let mut found = Vec::new();
    let mut next = start(session, topic, partition);
    loop {
        let data = fetch(session, topic, partition, next, 0, 0).expect("nothing expires here");
        let batches = read_batches(data.records.unwrap_or_default());
        let Some(last) = batches.last() else { return found };
        next = end_of(last);
        let data = batches.iter().filter(|batch| batch.attributes & CONTROL == 0);
        found.extend(data.flat_map(records).map(|record| {
            let key = record.key.as_ref().expect("a key").to_vec();
            (String::from_utf8(key).expect("a text"), Mark::of(&record))
        }));
    }
}

/// The start of a log.
pub fn start(session: &mut Session<'_>, topic: &str, partition: i32) -> i64 {
    bound(session, topic, partition, -2, 0)
}

/// The high watermark, and the last stable offset.
pub fn ends(session: &mut Session<'_>, topic: &str, partition: i32) -> (i64, i64) {
    (bound(session, topic, partition, -1, 0), bound(session, topic, partition, -1, 1))
}

fn bound(session: &mut Session<'_>, topic: &str, partition: i32, time: i64, isolation: i8) -> i64 {
    let mut request = list_offsets(topic, partition, time);
    request.isolation_level = isolation;
    let answer = session.call(Node::Leader(topic, partition), 6, &request);
    let answer = &answer.topics[0].partitions[0];
    assert_eq!(answer.error_code, 0, "{topic}-{partition}");
    answer.offset
}

const OFFSET_OUT_OF_RANGE: i16 = 1;
