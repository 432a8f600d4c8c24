//! What happens to transactional ids by time alone: open transactions are aborted after their
//! timeout, ids that nobody uses are forgotten.
//!
//! Owns one task per shard for both. The rules are the coordinator's; here are the intervals, and
//! the batches of tombstones. Source: spec §3.4.

use std::rc::Rc;

use super::{append_records, go_on, write_out};
use crate::coordinator::txn::Write;
use crate::error_code::ErrorCode;
use crate::io::Monotonic;
use crate::limits::{TOMBSTONE_BATCH_BYTES, TRANSACTION_SWEEP_WRITES_MAX};
use crate::metrics::Limit;
use crate::shard::event::Slot;
use crate::shard::{Shard, producer_ids};

/// Starts the task.
pub fn start(shard: &Rc<Shard>) {
    let config = &shard.context.config;
    let interval = |ms: i32| u64::try_from(ms).unwrap_or(0).max(1);
    let abort_ms = interval(config.transaction_abort_timed_out_interval_ms);
    let expire_ms = interval(config.transaction_remove_expired_interval_ms);
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let now = shard.runtime.now();
        let mut abort_due = now.plus_ms(abort_ms);
        let mut expire_due = now.plus_ms(expire_ms);
        while !shard.is_stopping() {
            shard.runtime.sleep_until(abort_due.min(expire_due)).await;
            if is_due(&shard, &mut abort_due, abort_ms) {
                abort_timed_out(&shard).await;
            }
            if is_due(&shard, &mut expire_due, expire_ms) {
                forget_expired(&shard).await;
            }
        }
    }));
}

/// Whether `due` has come; it then moves on.
fn is_due(shard: &Shard, due: &mut Monotonic, interval_ms: u64) -> bool {
    let now = shard.runtime.now();
    let come = *due <= now;
    if come {
        *due = now.plus_ms(interval_ms);
    }
    come
}

async fn abort_timed_out(shard: &Rc<Shard>) {
    let mut may_reserve = true;
    loop {
        let mut short = false;
        let mut fresh = || {
            let id = shard.producer_ids.take();
            short |= id.is_none();
            id
        };
        let now_ms = shard.runtime.wall_ms();
        let writes = shard.transactions.coordinator.borrow_mut().timed_out(now_ms, &mut fresh);
        let all = writes.len() < TRANSACTION_SWEEP_WRITES_MAX;
        if !all {
            shard.metrics.limit_reached(Limit::TransactionSweepWrites);
        }
        write_all(shard, writes).await;
        // Once more if producer ids were wanted and none was at hand.
        let reserved = short && may_reserve && producer_ids::reserve(shard).await.is_ok();
        may_reserve &= !short;
        if all && !reserved {
            return;
        }
    }
}

/// Appends all of them at the same time, and waits for all.
async fn write_all(shard: &Rc<Shard>, writes: Vec<Write>) {
    let written: Vec<Rc<Slot<()>>> = writes
        .into_iter()
        .map(|write| {
            tracing::info!(transactional_id = %write.transactional_id, "a transaction timed out");
            let slot = Slot::new();
            let (filled, aborting) = (Rc::clone(&slot), Rc::clone(shard));
            shard.runtime.spawn(Box::pin(async move {
                // What failed is found again by the next sweep.
                let _ = write_out(&aborting, write).await;
                filled.fill(());
            }));
            slot
        })
        .collect();
    for slot in written {
        slot.take().await;
    }
}

async fn forget_expired(shard: &Rc<Shard>) {
    loop {
        let now_ms = shard.runtime.wall_ms();
        let mut tombstones = shard.transactions.coordinator.borrow_mut().expired(now_ms);
        let count = tombstones.len();
        tombstones.sort_by_key(|write| write.partition);
        let mut failed = false;
        for batch in tombstones.into_iter().fold(Vec::new(), into_batches) {
            failed |= write_tombstones(shard, batch).await.is_err();
        }
        if count == TRANSACTION_SWEEP_WRITES_MAX {
            shard.metrics.limit_reached(Limit::TransactionSweepWrites);
        }
        // Those that failed live on, and would be found again at once.
        if count < TRANSACTION_SWEEP_WRITES_MAX || failed {
            return;
        }
    }
}

async fn write_tombstones(shard: &Rc<Shard>, batch: TombstoneBatch) -> Result<(), ErrorCode> {
    let partition = batch.writes[0].partition;
    let outcome = append_records(shard, partition, true, &batch.writes).await;
    for write in batch.writes {
        let now_ms = shard.runtime.wall_ms();
        let mut coordinator = shard.transactions.coordinator.borrow_mut();
        let written = coordinator.written(write.ticket, outcome, now_ms);
        drop(coordinator);
        // Nobody asked for it; an id whose tombstone failed lives on.
        let _ = go_on(shard, written);
    }
    outcome
}

/// Tombstones of one partition that go into one batch.
struct TombstoneBatch {
    writes: Vec<Write>,
    bytes: usize,
}

fn into_batches(mut batches: Vec<TombstoneBatch>, write: Write) -> Vec<TombstoneBatch> {
    let bytes = write.key.len() + TOMBSTONE_OVERHEAD_BYTES;
    match batches.last_mut() {
        Some(last)
            if last.writes[0].partition == write.partition
                && last.bytes + bytes <= TOMBSTONE_BATCH_BYTES =>
        {
            last.bytes += bytes;
            last.writes.push(write);
        }
        _ => batches.push(TombstoneBatch { writes: vec![write], bytes }),
    }
    batches
}

/// What a record without a value takes besides its key, at most.
const TOMBSTONE_OVERHEAD_BYTES: usize = 21;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::coordinator::txn::Ticket;
    use crate::ids::PartitionIndex;

    #[test]
    fn tombstones_are_divided_by_partition_and_size() {
        let write = |partition: i32, key_bytes: usize| Write {
            ticket: Ticket(0),
            partition: PartitionIndex(partition),
            transactional_id: Arc::from("id"),
            key: vec![0; key_bytes],
            value: None,
            ends: true,
        };
        let counts = |writes: Vec<Write>| -> Vec<usize> {
            let batches = writes.into_iter().fold(Vec::new(), into_batches);
            batches.iter().map(|batch| batch.writes.len()).collect()
        };
        let half = TOMBSTONE_BATCH_BYTES / 2 - TOMBSTONE_OVERHEAD_BYTES;
        assert_eq!(counts(vec![write(0, half), write(0, half), write(0, 1)]), [2, 1]);
        assert_eq!(counts(vec![write(0, half), write(0, half + 1), write(0, 1)]), [1, 2]);
        assert_eq!(counts(vec![write(0, 1), write(1, 1), write(1, 1)]), [1, 2]);
        assert_eq!(counts(vec![write(0, TOMBSTONE_BATCH_BYTES), write(0, 1)]), [1, 1]);
    }
}
