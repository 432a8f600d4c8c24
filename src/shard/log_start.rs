//! Moving the log start of a partition of this shard up, for DeleteRecords and for retention.
//!
//! Owns the order of it: an entry in the journal; once that is durable, readers see the new start.
//! Must never show a start that a crash could take back, nor answer before it is durable.
//! Source: KIP-107, Kafka's `Partition.deleteRecordsOnLeader` and `maybeIncrementLogStartOffset`.

use std::rc::Rc;

use super::Shard;
use super::append::{check_online, wait_for_control_room};
use super::message::DeleteRecordsPart;
use super::partition::Partition;
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, Offset};
use crate::journal::block::ControlEntry;

/// Stands for the high watermark in DeleteRecords.
const HIGH_WATERMARK: i64 = -1;

/// Deletes the records below the offsets, and says where the logs start once that is durable: one
/// answer per part, in order. The code is 1 for an offset that the log has not, 3, 44 for a topic
/// that is compacted only, or 56.
pub async fn delete_records(
    shard: &Rc<Shard>,
    parts: Vec<DeleteRecordsPart>,
) -> Vec<Result<Offset, ErrorCode>> {
    let mut moved = Vec::with_capacity(parts.len());
    for part in parts {
        moved.push(delete_below(shard, &part).await);
    }
    let newest = moved.iter().flatten().map(|(_, moved)| moved.durable_at).max();
    // What was durable before the journal failed is true all the same.
    let _ = shard.durable(newest.unwrap_or_default()).await;
    let through = shard.journal.durable_through();
    let answers = moved.into_iter().map(|moved| {
        let (partition, moved) = moved?;
        if moved.durable_at > through {
            return Err(ErrorCode::KafkaStorageError);
        }
        // Who is answered must find it so, whichever task is woken first.
        show(&partition, moved.start);
        Ok(moved.start)
    });
    answers.collect()
}

/// A log start that is in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Where the log starts then.
    pub start: Offset,
    /// When it may be told.
    pub durable_at: JournalSequence,
}

async fn delete_below(
    shard: &Rc<Shard>,
    part: &DeleteRecordsPart,
) -> Result<(Rc<Partition>, Moved), ErrorCode> {
    loop {
        let partition =
            shard.partition(part.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        check_online(&partition)?;
        let cleanup = partition.topic.borrow().config.cleanup;
        if cleanup.compact && !cleanup.delete {
            return Err(ErrorCode::PolicyViolation);
        }
        let offset = match part.offset {
            Offset(HIGH_WATERMARK) => partition.log.borrow().high_watermark(),
            Offset(..HIGH_WATERMARK) => return Err(ErrorCode::OffsetOutOfRange),
            offset => offset,
        };
        if let Some(moved) = advance(shard, &partition, offset)? {
            return Ok((partition, moved));
        }
        wait_for_control_room(shard).await?;
    }
}

/// Has the log start at `offset`, or where it starts already if that is above; `None` when the
/// journal has no room for the entry now. Readers see it as soon as it is durable.
///
/// # Errors
/// 1 above the high watermark, 3 or 56 for the partition.
pub fn advance(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    offset: Offset,
) -> Result<Option<Moved>, ErrorCode> {
    check_online(partition)?;
    shard.check_sound()?;
    let mut log = partition.log.borrow_mut();
    log.check_log_start(offset)?;
    let (newest, durable_at) = (log.log_start_appended(), partition.log_start_place.get());
    if offset <= newest {
        return Ok(Some(Moved { start: newest, durable_at }));
    }
    if shard.journal.is_stopped() {
        return Err(ErrorCode::KafkaStorageError);
    }
    let entry = ControlEntry::LogStartAdvanced { tp: partition.id, offset };
    let Ok(durable_at) = shard.journal.append_control(&[entry]) else {
        return match shard.journal.failure() {
            Some(_) => Err(ErrorCode::KafkaStorageError),
            None => Ok(None),
        };
    };
    log.append_log_start(offset);
    drop(log);
    partition.log_start_place.set(durable_at);
    // The next image must have it: ring space before that is used again.
    partition.dirty.set(true);
    show_when_durable(shard, partition, offset, durable_at);
    Ok(Some(Moved { start: offset, durable_at }))
}

/// Not the task's own to wait for: who asked may be gone by then.
fn show_when_durable(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    offset: Offset,
    durable_at: JournalSequence,
) {
    let (shard, partition) = (Rc::clone(shard), Rc::clone(partition));
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        if shard.journal.wait(durable_at).await.is_ok() {
            show(&partition, offset);
        }
    }));
}

/// Shows a start that is durable.
pub fn show(partition: &Partition, offset: Offset) {
    let moved = partition.log.borrow_mut().log_start_durable(offset);
    if moved {
        // The last stable offset may have moved with it, and what a fetch waits for may be gone.
        partition.wake_waiters();
    }
}
