//! Answers of ListOffsets and OffsetForLeaderEpoch for partitions of this shard.
//!
//! Owns the search by timestamp: indexes first, then batch headers, then records. Results at or
//! beyond the readable bound count as not found; markers are found like records, as in Kafka.
//! Source: KIP-79, KIP-734, KIP-405 (the codes that only tiered storage answers), Kafka's
//! `UnifiedLog.fetchOffsetByTimestamp`.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::Shard;
use super::message::{EpochAnswer, EpochQuery, OffsetAnswer, OffsetQuery};
use super::partition::{Availability, Partition};
use super::read::{self, Walk};
use crate::batch::search::TimestampSearch;
use crate::batch::{BatchFault, BatchHeader};
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset};
use crate::log::Log;
use crate::log::epochs::EpochHistory;
use crate::log::index::SegmentIndex;

/// A record found by its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FoundRecord {
    timestamp: i64,
    offset: Offset,
    leader_epoch: LeaderEpoch,
}

/// Answers one query of ListOffsets.
pub async fn list_offset(shard: &Rc<Shard>, query: &OffsetQuery) -> OffsetAnswer {
    let Some(partition) = shard.partition(query.partition) else {
        return OffsetAnswer::failed(ErrorCode::UnknownTopicOrPartition);
    };
    if let Err(code) = check(shard, &partition, query.leader_epoch) {
        return OffsetAnswer::failed(code);
    }
    if !version_allows(query.timestamp, query.version) {
        return OffsetAnswer::failed(ErrorCode::UnsupportedVersion);
    }
    let bound = bound(&partition, query);
    let not_found = OffsetAnswer::failed(ErrorCode::None);
    let found = match query.timestamp {
        LATEST => {
            let leader_epoch = shard.context.leader_epoch();
            return OffsetAnswer { offset: bound, leader_epoch, ..not_found };
        }
        EARLIEST | EARLIEST_LOCAL => {
            let log = partition.log.borrow();
            let leader_epoch = epochs_with_current(shard, &log).epoch_at(log.log_start());
            return OffsetAnswer { offset: log.log_start(), leader_epoch, ..not_found };
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return not_found,
        MAX_TIMESTAMP => {
            let _shared = partition.segment_use.shared().await;
            newest_record(shard, &partition).await
        }
        timestamp => {
            let _shared = partition.segment_use.shared().await;
            first_record_since(shard, &partition, timestamp).await
        }
    };
    match found {
        Ok(Some(found)) if found.offset < bound => OffsetAnswer {
            error: ErrorCode::None,
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        },
        Ok(_) => not_found,
        Err(error) => {
            tracing::error!(shard = %shard.id, "a search by timestamp failed: {error}");
            OffsetAnswer::failed(ErrorCode::KafkaStorageError)
        }
    }
}

/// Answers one query of OffsetForLeaderEpoch.
#[must_use]
pub fn epoch_end(shard: &Shard, query: &EpochQuery) -> EpochAnswer {
    let Some(partition) = shard.partition(query.partition) else {
        return EpochAnswer::failed(ErrorCode::UnknownTopicOrPartition);
    };
    if let Err(code) = check(shard, &partition, query.current_leader_epoch) {
        return EpochAnswer::failed(code);
    }
    let log = partition.log.borrow();
    let epochs = epochs_with_current(shard, &log);
    let (epoch, end_offset) = epochs.end_offset(query.epoch, log.next_offset());
    EpochAnswer { error: ErrorCode::None, epoch, end_offset }
}

/// The epoch history, with this boot's epoch even if it has no record yet.
#[must_use]
pub fn epochs_with_current(shard: &Shard, log: &Log) -> EpochHistory {
    let mut epochs = log.epochs().clone();
    epochs.start(shard.context.leader_epoch(), log.next_offset());
    epochs
}

fn check(shard: &Shard, partition: &Partition, leader_epoch: i32) -> Result<(), ErrorCode> {
    match *partition.availability.borrow() {
        Availability::Online => {}
        Availability::Offline(_) => return Err(ErrorCode::KafkaStorageError),
        Availability::Dropping => return Err(ErrorCode::UnknownTopicOrPartition),
    }
    Log::check_leader_epoch(leader_epoch, shard.context.leader_epoch())
}

fn version_allows(timestamp: i64, version: i16) -> bool {
    match timestamp {
        LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        other => other >= 0,
    }
}

fn bound(partition: &Partition, query: &OffsetQuery) -> Offset {
    let log = partition.log.borrow();
    if query.to_log_end {
        log.next_offset()
    } else if query.committed_only {
        log.last_stable_offset()
    } else {
        log.high_watermark()
    }
}

async fn first_record_since(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    timestamp: i64,
) -> io::Result<Option<FoundRecord>> {
    let log_start = partition.log.borrow().log_start();
    let bases: Vec<Offset> = partition.segments.borrow().bases().collect();
    for base in bases {
        let Some(((largest, _), position)) =
            time_position(shard, partition, base, timestamp).await?
        else {
            continue;
        };
        if largest < timestamp {
            continue;
        }
        let mut walk = Walk::at(base, position);
        while let Some(batch) = walk.next(shard, partition).await? {
            if batch.base != base {
                break;
            }
            if batch.header.max_timestamp < timestamp || batch.header.last_offset() < log_start {
                continue;
            }
            let bytes = walk.slices(shard, partition, &batch).await?.concat().into();
            let found = first_in_batch(shard, &batch.header, &bytes, timestamp, log_start).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    for (header, bytes) in tail_batches(partition, |newest| newest >= timestamp) {
        let found = first_in_batch(shard, &header, &bytes, timestamp, log_start).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

async fn newest_record(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
) -> io::Result<Option<FoundRecord>> {
    let log_start = partition.log.borrow().log_start();
    let first = partition.segments.borrow().holding(log_start);
    let bases: Vec<Offset> = partition.segments.borrow().bases().collect();
    let mut newest = -1;
    for base in bases {
        if Some(base) < first {
            continue;
        }
        let Some(((largest, offset), _)) = time_position(shard, partition, base, i64::MAX).await?
        else {
            continue;
        };
        newest = match offset < log_start {
            // The newest of the segment is deleted; others may be left.
            true => newest.max(newest_from(shard, partition, log_start).await?),
            false => newest.max(largest),
        };
    }
    for batch in partition.log.borrow().tail().from_offset(log_start) {
        newest = newest.max(batch.max_timestamp_ms);
    }
    if newest < 0 {
        return Ok(None);
    }
    let found = first_record_since(shard, partition, newest).await?;
    // Kafka answers with the latest epoch here, not with the batch's.
    let leader_epoch = shard.context.leader_epoch();
    Ok(found.map(|found| FoundRecord { leader_epoch, ..found }))
}

/// Largest timestamp from an offset on to the end of its segment.
async fn newest_from(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    offset: Offset,
) -> io::Result<i64> {
    let (mut walk, mut newest, mut base) = (Walk::start(partition, offset), -1, None);
    while let Some(batch) = walk.next(shard, partition).await? {
        if *base.get_or_insert(batch.base) != batch.base {
            break;
        }
        if batch.header.last_offset() >= offset {
            newest = newest.max(batch.header.max_timestamp);
        }
    }
    Ok(newest)
}

/// Largest timestamp of a segment, -1 if it has none.
///
/// # Errors
/// What the disk says.
pub async fn largest_timestamp(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<i64> {
    let _shared = partition.segment_use.shared().await;
    let found = time_position(shard, partition, base, i64::MAX).await?;
    Ok(found.map_or(-1, |((largest, _), _)| largest))
}

/// Largest timestamp of a segment with the last offset of the batch that has it, and where to begin
/// looking for `timestamp` in it.
async fn time_position(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    timestamp: i64,
) -> io::Result<Option<((i64, Offset), u64)>> {
    if let Some(active) = &partition.segments.borrow().active
        && active.base == base
    {
        let index = &active.index;
        return Ok(Some((index.largest_timestamp(), index.position_of_time(timestamp))));
    }
    if partition.segments.borrow().readable_bytes(base).is_none() {
        return Ok(None);
    }
    let mut index = read::sealed_index(shard, partition, base).await?;
    if index.largest_timestamp().0 < timestamp && !index.knows_its_end() {
        index = complete(shard, partition, base, &index).await?;
    }
    Ok(Some((index.largest_timestamp(), index.position_of_time(timestamp))))
}

/// The indexes with what they say nothing of: the batches after the last entry. A segment that was
/// active when its boot ended has no last time entry.
async fn complete(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
    index: &SegmentIndex,
) -> io::Result<Rc<SegmentIndex>> {
    let mut index = index.clone();
    let mut walk = Walk::at(base, index.last_position());
    while let Some(batch) = walk.next(shard, partition).await? {
        if batch.base != base {
            break;
        }
        index.note(batch.header.last_offset(), batch.header.max_timestamp);
    }
    index.end_is_known();
    let index = Rc::new(index);
    if let Some(sealed) = partition.segments.borrow_mut().sealed.get_mut(&base) {
        sealed.index = Some(Rc::clone(&index));
    }
    Ok(index)
}

/// Readable batches in memory whose largest timestamp satisfies `wanted`.
fn tail_batches(partition: &Partition, wanted: impl Fn(i64) -> bool) -> Vec<(BatchHeader, Bytes)> {
    let log = partition.log.borrow();
    let mut batches = Vec::new();
    for batch in log.tail().from_offset(log.written_end()) {
        if batch.last_offset >= log.high_watermark() {
            break;
        }
        if wanted(batch.max_timestamp_ms) {
            let mut slices = Vec::new();
            batch.slices(&mut slices);
            let bytes = match <[Bytes; 1]>::try_from(slices) {
                Ok([one]) => one,
                Err(many) => many.concat().into(),
            };
            if let Ok(header) = BatchHeader::read(&bytes) {
                batches.push((header, bytes));
            }
        }
    }
    batches
}

async fn first_in_batch(
    shard: &Shard,
    header: &BatchHeader,
    batch: &Bytes,
    timestamp: i64,
    log_start: Offset,
) -> io::Result<Option<FoundRecord>> {
    let invalid = |fault: BatchFault| io::Error::new(io::ErrorKind::InvalidData, fault.to_string());
    let search = || TimestampSearch::start(header, batch, timestamp, log_start);
    // It starts again as it starts now: on the same bytes.
    search().map_err(invalid)?;
    let start = || search().expect("invariant: it has started once");
    let found = shard.through_records(start).await.map_err(invalid)?;
    Ok(found.map(|(timestamp, offset)| FoundRecord {
        timestamp,
        offset,
        leader_epoch: header.leader_epoch,
    }))
}

const LATEST: i64 = -1;
/// Stands for the log start in a query.
pub const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
