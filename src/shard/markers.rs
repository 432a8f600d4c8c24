//! Writing the markers that end transactions in partitions of this shard.
//!
//! Owns the order of the markers of one message: all of them are appended in one turn as far as
//! the journal has room, and waited for once. They pass a full disk: a transaction can always end.
//! Must never answer before they are durable.

use std::rc::Rc;

use super::Shard;
use super::append::{self, Pending};
use super::group_offsets;
use super::message::MarkerPart;
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, TopicPartition};
use crate::journal::image::ProducerRow;
use crate::limits::MARKERS_PER_TURN_MAX;
use crate::metrics::Limit;

/// Appends the markers and waits until they are durable: one code per part, in order. 0, or 3 for
/// a partition that is not here, 47 and 52 for a marker that comes too late, 56 for storage that
/// has failed.
pub async fn write_markers(shard: &Rc<Shard>, parts: Vec<MarkerPart>) -> Vec<ErrorCode> {
    let mut written = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        if place > 0 && place % MARKERS_PER_TURN_MAX == 0 {
            shard.metrics.limit_reached(Limit::MarkersPerTurn);
            shard.runtime.yield_now().await;
        }
        written.push(write_marker(shard, part).await);
    }
    let newest = written.iter().flatten().map(|pending| pending.durable_at).max();
    let newest = newest.unwrap_or(JournalSequence(0));
    let durable = shard.durable(newest).await.is_ok();
    let through = shard.journal.durable_through();
    let code = |written: Result<Pending, ErrorCode>| match written {
        Ok(pending) if durable || pending.durable_at <= through => ErrorCode::None,
        Ok(_) => ErrorCode::KafkaStorageError,
        Err(code) => code,
    };
    written.into_iter().map(code).collect()
}

/// Appends one marker, at once if there is room.
async fn write_marker(shard: &Rc<Shard>, part: &MarkerPart) -> Result<Pending, ErrorCode> {
    loop {
        if let Some(pending) = append::append_marker_now(shard, part)? {
            group_offsets::marker_appended(shard, part, pending.appended.base_offset);
            return Ok(pending);
        }
        append::wait_for_marker_room(shard).await?;
    }
}

/// What is known of a partition's producers, once that is durable.
///
/// # Errors
/// 3 or 56.
pub async fn describe_producers(
    shard: &Rc<Shard>,
    id: TopicPartition,
) -> Result<Vec<ProducerRow>, ErrorCode> {
    let partition = shard.partition(id).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    append::check_online(&partition)?;
    let rows = partition.log.borrow().producers().live_rows(shard.runtime.wall_ms());
    let newest = partition.block_place.get().0;
    shard.durable(newest).await.map_err(|_| ErrorCode::KafkaStorageError)?;
    Ok(rows)
}
