//! Internal topics that are compacted while the coordinators use them.
//!
//! Owns what makes passes frequent: tiny segments, a cleaner that never rests, and checkpoints, as
//! nothing may be cleaned that no image covers; and what must hold when all is at rest: below where
//! passes have been every key is there once. So these logs are as long as their keys are many,
//! however much was written. What their records say is judged by whoever uses the coordinators.

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use ringlog::batch::{BatchHeader, Records, decompressed_records};
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, TopicPartition};
use ringlog::metadata::image::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use ringlog::sim::{FaultRule, Operation};

use crate::machine::Cluster;
use crate::oracle;
use crate::scenario::{Machine, say};

/// What passes over internal topics have come to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cleaned {
    pub passes: u64,
    /// Offsets that nothing is left of.
    pub removed: u64,
}

/// Has the internal topics of a machine that has not been booted yet compacted all the time.
pub fn compact(machine: &mut Machine) {
    machine.settings.extend([
        ("log.cleaner.backoff.ms", "15".to_owned()),
        ("log.cleaner.dedupe.buffer.size", "1048576".to_owned()),
    ]);
    let random = &mut machine.random;
    let settings = [
        ("internal.segment.bytes", ["700", "2000", "6000"][random.index(3)]),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("delete.retention.ms", ["0", "50", "100000"][random.index(3)]),
        ("file.delete.delay.ms", ["0", "10", "400"][random.index(3)]),
        ("index.interval.bytes", "500"),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), Some(value.to_owned()));
    machine.internal = settings.map(owned).to_vec();
}

/// Takes checkpoints for as long as this broker lives.
pub fn keep_at_it(cluster: &Rc<Cluster>) {
    for shard in &cluster.shards {
        let runtime = Rc::clone(&shard.runtime);
        let shard = Rc::clone(shard);
        runtime.spawn(Box::pin(async move {
            while !shard.is_stopping() {
                shard.checkpoints.request_once();
                let due = shard.runtime.now().plus_ms(CHECKPOINT_MS);
                shard.runtime.sleep_until(due).await;
            }
        }));
    }
}

/// Passes of this boot so far.
pub fn passes(cluster: &Cluster) -> u64 {
    cluster.shards.iter().map(|shard| shard.cleaner.metrics.passes.get()).sum()
}

/// Waits until passes have been through everything that is sealed, of a broker that nobody uses,
/// and holds what they have left against the rule.
pub async fn rest(cluster: &Rc<Cluster>) -> Result<Cleaned, String> {
    let image = cluster.shards[0].catalog();
    let mut cleaned = Cleaned::default();
    for name in [TRANSACTION_STATE, CONSUMER_OFFSETS] {
        let topic = image.topic(name).ok_or("an internal topic is gone")?;
        for index in 0..topic.partition_count() {
            let tp = oracle::partition(topic.id, index);
            let end = come_to_rest(cluster, tp).await.map_err(|what| format!("{name}: {what}"))?;
            let removed = check(cluster, tp, end).await;
            cleaned.removed += removed.map_err(|what| format!("{name}-{index}: {what}"))?;
        }
    }
    cleaned.passes = passes(cluster);
    Ok(cleaned)
}

/// Waits until all but the active segment of a partition is cleaned; where that ends.
async fn come_to_rest(cluster: &Rc<Cluster>, tp: TopicPartition) -> Result<Offset, String> {
    let owner = cluster.shards[0].owner(tp).ok_or("nobody owns it")?;
    let shard = &cluster.shards[usize::from(owner.0)];
    let partition = shard.partition(tp).ok_or("it is gone")?;
    let mut bases: Vec<Offset> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        shard.checkpoints.request_and_wait().await.map_err(|error| error.to_string())?;
        let due = shard.runtime.now().plus_ms(40);
        shard.runtime.sleep_until(due).await;
        bases = partition.segments.borrow().bases().collect();
        let active = bases.last().copied().unwrap_or_default();
        let start = partition.log.borrow().log_start();
        let cleaned = shard.cleaner.cleaned_end(tp).unwrap_or(start);
        if cleaned >= active && !partition.cleaning.get() {
            return Ok(cleaned);
        }
    }
    let cleaned = shard.cleaner.cleaned_end(tp);
    let log = partition.log.borrow();
    let open = log.producers().to_rows();
    let open = open.iter().filter(|row| row.open_transaction_first_offset.is_some());
    let open: Vec<_> = open.map(|row| (row.id, row.epoch, row.last_append_ms)).collect();
    Err(format!(
        "{tp:?} is not cleaned any more: to {cleaned:?} of {bases:?}, open transactions {open:?}"
    ))
}

/// Every key below `end` is there once; how many offsets below nothing is left of.
async fn check(cluster: &Cluster, tp: TopicPartition, end: Offset) -> Result<u64, String> {
    let mut keys = BTreeSet::new();
    let (mut next, mut left) = (Offset(0), 0);
    while next < end {
        let outcome = oracle::read(&cluster.shards[0], tp, next, READ_BYTES).await?;
        if outcome.error != ErrorCode::None {
            return Err(format!("a read at {next} answers {:?}", outcome.error));
        }
        let mut rest = Bytes::from(outcome.records.concat());
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() && next < end {
            let header = BatchHeader::read_verified(&rest).map_err(|fault| fault.to_string())?;
            let batch = rest.split_to(header.total_bytes());
            next = header.next_offset();
            left += u64::from(header.record_count.unsigned_abs());
            if !header.is_control() && header.base_offset < end {
                take_keys(&header, &batch, &mut keys)?;
            }
        }
    }
    Ok(end.0.cast_unsigned().saturating_sub(left))
}

fn take_keys(
    header: &BatchHeader,
    batch: &Bytes,
    keys: &mut BTreeSet<Vec<u8>>,
) -> Result<(), String> {
    let records = decompressed_records(header, batch, READ_BYTES);
    let records = records.map_err(|fault| fault.to_string())?;
    for record in Records::new(&records, header.record_count) {
        let record = record.map_err(|fault| fault.to_string())?;
        let key = record.key.ok_or("a record without a key")?.to_vec();
        if let Some(again) = keys.replace(key) {
            let at = header.record_offset(record.offset_delta);
            return Err(format!("the key {again:?} is there again at {at}"));
        }
    }
    Ok(())
}

/// An operation of the cleaner fails, now and then or always; or a sync of all that others write,
/// which takes with it what the cleaner has written.
pub fn plan_cleaner_fault(machine: &mut Machine) {
    let (operation, path) = [
        (Operation::Open, ".cleaned"),
        (Operation::Write, ".cleaned"),
        (Operation::SyncData, ".cleaned"),
        (Operation::SetLength, ".cleaned"),
        (Operation::WriteWhole, ".cleaned"),
        (Operation::Rename, ".cleaned"),
        (Operation::Rename, ".swap"),
        (Operation::Rename, ".log"),
        (Operation::SyncDirectory, "topics/"),
        (Operation::Read, ".log"),
        (Operation::Remove, ".deleted"),
        (Operation::WriteWhole, "cleaner-offset"),
        (Operation::SyncFilesystem, ""),
    ][machine.random.index(13)];
    let times = [1, 3, u64::MAX][machine.random.index(3)];
    let skip = machine.random.below(20);
    let code = if machine.random.chance(1, 3) { libc::ENOSPC } else { libc::EIO };
    say(|| format!("fault: {operation:?} of {path:?}, {times} times after {skip}, code {code}"));
    let rule = FaultRule { operation, path_contains: path.to_owned(), skip, times, code };
    machine.disk.plan(|plan| plan.rules.push(rule));
}

/// Between two checkpoints.
const CHECKPOINT_MS: u64 = 25;

/// Checkpoints within which passes come to rest.
const ROUNDS_MAX: u64 = 200;

const READ_BYTES: usize = 300 * 1024;
