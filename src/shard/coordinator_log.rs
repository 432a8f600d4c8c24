//! Reading the log of a coordinator's partition from its beginning.
//!
//! Owns one step of it: both coordinators load the same way, in reads of one size between which
//! others run. Must never pass over a batch: only what compaction has left nothing of is skipped.
//! Must never hold a batch inflated: records are taken as they inflate, and one that is larger than
//! [`COORDINATOR_RECORD_BYTES_MAX`] ends the loading.

use std::io;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;

use super::Shard;
use super::partition::Partition;
use super::read::{self, ReadBounds};
use crate::batch::stream::{RecordStream, StreamBounds};
use crate::batch::{BatchFault, BatchHeader, Compression, Record, RecordFault};
use crate::ids::Offset;
use crate::limits::{COORDINATOR_LOAD_BYTES, COORDINATOR_RECORD_BYTES_MAX, VALIDATE_SLICE_BYTES};
use crate::metrics::Limit;

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

/// Hands every record of a whole batch to `take`, in slices between which others run.
///
/// # Errors
/// What is wrong with the batch, or what `take` says.
pub async fn each_record(
    shard: &Shard,
    header: &BatchHeader,
    batch: &Bytes,
    mut take: impl FnMut(&Record<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let _turn = match header.compression() {
        Some(Compression::None) => None,
        _ => Some(shard.inflation_turn().await),
    };
    let bounds = StreamBounds {
        record_bytes_max: COORDINATOR_RECORD_BYTES_MAX,
        inflation_bytes_max: shard.lanes.batch_bytes_max(),
    };
    let mut stream = RecordStream::start(header, batch, bounds).map_err(Fault::from)?;
    loop {
        let step = stream.step(VALIDATE_SLICE_BYTES, |record| take(record).map_err(Fault::Taker));
        match step {
            Poll::Ready(Ok(())) => return Ok(()),
            Poll::Ready(Err(fault)) => {
                if let Fault::Batch(BatchFault::Record(RecordFault::TooLarge(_))) = &fault {
                    shard.metrics.limit_reached(Limit::CoordinatorRecordBytes);
                }
                return Err(fault.into());
            }
            Poll::Pending => shard.runtime.yield_now().await,
        }
    }
}

/// Why a batch is not loaded.
enum Fault {
    Batch(BatchFault),
    Taker(io::Error),
}

impl From<BatchFault> for Fault {
    fn from(fault: BatchFault) -> Fault {
        Fault::Batch(fault)
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        match fault {
            Fault::Batch(fault) => io::Error::new(io::ErrorKind::InvalidData, fault.to_string()),
            Fault::Taker(error) => error,
        }
    }
}
