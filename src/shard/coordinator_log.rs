//! Reading the log of a coordinator's partition from its beginning.
//!
//! Owns one step of it: both coordinators load the same way, in reads of one size between which
//! others run. Must never pass over a batch: only what compaction has left nothing of is skipped.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::Shard;
use super::partition::Partition;
use super::read::{self, ReadBounds};
use crate::ids::Offset;
use crate::limits::COORDINATOR_LOAD_BYTES;

/// What a step has found.
pub enum Step {
    /// Whole batches, at least one; a batch may begin before the offset asked for.
    Batches(Bytes),
    /// Nothing is kept of what is in segments from there on: this is where memory begins.
    GoOnAt(Offset),
}

/// Reads on at `next`, which is below `end`.
///
/// # Errors
/// What reading says, or that there is nothing where there must be something.
pub async fn step(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    next: Offset,
    end: Offset,
) -> io::Result<Step> {
    let written_end = partition.log.borrow().written_end();
    let bounds = ReadBounds {
        offset: next,
        bound: end,
        bytes_max: COORDINATOR_LOAD_BYTES,
        at_least_one: true,
    };
    let shared = partition.segment_use.shared().await;
    let read = read::read(shard, partition, &bounds).await?;
    drop(shared);
    if read.bytes > 0 {
        return Ok(Step::Batches(match &read.slices[..] {
            [one] => one.clone(),
            slices => slices.concat().into(),
        }));
    }
    if next < written_end {
        return Ok(Step::GoOnAt(written_end));
    }
    let nothing = format!("nothing is found at offset {next}");
    Err(io::Error::new(io::ErrorKind::InvalidData, nothing))
}
