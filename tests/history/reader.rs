//! Readers outside any group: those that follow all logs to their ends, those that begin anywhere,
//! and the one that reads everything at rest.

use std::thread::sleep;
use std::time::Duration;

use crate::cluster::large_fetch;
use crate::history::{Log, Poll, Process, Rest, Txn, Value, What};
use crate::link::{Link, MOVED, Node};
use crate::payload::shown;
use crate::random::Random;
use crate::run::{Run, logs, now};
use crate::support::batch::read_batches;

/// One fetch from an offset; what is noted of it, and what the caller goes on with.
pub struct Fetched {
    pub records: Vec<(i64, Value)>,
    pub next: i64,
    pub end: i64,
    pub stable: i64,
}

/// Who reads what.
#[derive(Clone, Copy)]
pub struct Reading {
    pub process: Process,
    pub log: Log,
    pub is_committed: bool,
    pub transaction: Option<Txn>,
    pub bytes_max: i32,
}

impl Reading {
    pub fn committed(process: Process, log: Log) -> Reading {
        Reading { process, log, is_committed: true, transaction: None, bytes_max: BYTES_MAX }
    }

    /// Reads on from `from` and notes it; `None` if there was no answer.
    pub fn read(&self, link: &mut Link<'_>, from: i64, wait_ms: i32) -> Option<Fetched> {
        let invoked = now();
        let fetched = fetch(link, self.log, from, (self.is_committed, self.bytes_max), wait_ms)?;
        let poll = Poll {
            log: self.log,
            committed: self.is_committed,
            transaction: self.transaction,
            from,
            next: fetched.next,
            ends: Some((fetched.end, fetched.stable)),
            records: fetched.records.clone(),
        };
        // Empty ones say only where the ends are: some are enough.
        if fetched.next > from || invoked.is_multiple_of(8) {
            link.run.note(self.process, invoked, What::Poll(poll));
        }
        Some(fetched)
    }
}

/// Asks once.
fn fetch(
    link: &mut Link<'_>,
    log: Log,
    from: i64,
    (is_committed, bytes_max): (bool, i32),
    wait_ms: i32,
) -> Option<Fetched> {
    let mut request = large_fetch(log.name(), log.index(), from);
    request.topics[0].partitions[0].partition_max_bytes = bytes_max;
    request.isolation_level = i8::from(is_committed);
    request.max_wait_ms = wait_ms;
    request.min_bytes = 1;
    let answer = link.attempt(Node::Leader(log), 12, &request).ok()?;
    let data = &answer.responses[0].partitions[0];
    if data.error_code != 0 {
        link.run.code("Fetch", data.error_code);
        if MOVED.contains(&data.error_code) {
            link.later(data.error_code);
        } else {
            // There is no retention: no offset is out of range.
            link.run.fault(format!("Fetch of {log:?} at {from}: {}", data.error_code));
        }
        return None;
    }
    let batches = read_batches(data.records.clone().unwrap_or_default());
    let aborted = data.aborted_transactions.iter().flatten();
    let aborted = aborted.map(|aborted| (aborted.first_offset, aborted.producer_id.0)).collect();
    let records = shown(&batches, from, is_committed.then_some(aborted));
    let last = batches.last();
    let next = last.map_or(from, |last| last.base_offset + i64::from(last.last_offset_delta) + 1);
    let (end, stable) = (data.high_watermark, data.last_stable_offset);
    Some(Fetched { records, next, end, stable })
}

/// Follows all logs until the run is over and it has come to the ends.
pub fn follow(run: &Run, client: usize, is_committed: bool) {
    let mut link = Link::new(run, client);
    let process = run.process();
    let mut positions: Vec<(Log, i64)> = logs().map(|log| (log, 0)).collect();
    loop {
        let is_over = run.is_over();
        let mut is_idle = true;
        for (log, position) in &mut positions {
            let reading = Reading { is_committed, ..Reading::committed(process, *log) };
            match reading.read(&mut link, *position, 0) {
                Some(fetched) => {
                    is_idle &= fetched.next == *position;
                    *position = fetched.next;
                }
                None => is_idle = false,
            }
        }
        if is_idle {
            if is_over {
                return;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// Begins anywhere, reads on for a little, and begins somewhere else.
pub fn wander(run: &Run, client: usize, seed: u64) {
    let mut link = Link::new(run, client);
    let mut random = Random::new(seed);
    let all: Vec<Log> = logs().collect();
    while !run.is_over() {
        let log = random.pick(&all);
        let is_committed = random.one_in(2);
        let committed = Reading::committed(run.process(), log);
        let reading = Reading { is_committed, bytes_max: WANDERED_BYTES_MAX, ..committed };
        let mut position = match fetch(&mut link, log, 0, (is_committed, 1), 0) {
            Some(fetched) if fetched.stable > 0 => {
                random.between(0, fetched.stable as usize) as i64
            }
            _ => 0,
        };
        for _ in 0..random.between(1, 4) {
            let Some(fetched) = reading.read(&mut link, position, 0) else { break };
            position = fetched.next;
        }
        sleep(Duration::from_millis(50));
    }
}

/// Reads all of a log in which nothing is open.
pub fn at_rest(link: &mut Link<'_>, log: Log) -> Rest {
    let mut rest = Rest::default();
    for is_committed in [true, false] {
        let (mut position, mut records) = (0, Vec::new());
        loop {
            let Some(fetched) = fetch(link, log, position, (is_committed, BYTES_MAX), 0) else {
                continue;
            };
            records.extend(fetched.records);
            position = fetched.next;
            if fetched.next == fetched.end {
                assert_eq!(fetched.stable, fetched.end, "{log:?} is at rest");
                rest.end = fetched.end;
                break;
            }
        }
        if is_committed {
            rest.committed = records;
        } else {
            rest.all = records;
        }
    }
    rest
}

/// Whether no transaction is open in any log.
pub fn is_at_rest(link: &mut Link<'_>) -> bool {
    logs().all(|log| {
        fetch(link, log, 0, (true, 1), 0).is_some_and(|fetched| fetched.stable == fetched.end)
    })
}

const BYTES_MAX: i32 = 8 << 20;
const WANDERED_BYTES_MAX: i32 = 30_000;
