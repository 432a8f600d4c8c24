//! Markers: what ends a transaction in its partitions once its Prepare is durable.
//!
//! Owns one task per transaction that is ending. The shards that own its partitions get one
//! message each, all at the same time; what they could not do is sent again, after a change of the
//! catalog or a pause, for as long as it takes. So a partition that is offline holds up its own
//! transactions and no others. A restart begins again with every partition of the Prepare record;
//! partitions take the same marker twice. A partition whose topic is gone needs none.
//! Source: Kafka's `TransactionMarkerChannelManager`; spec §4.1.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::write_out;
use crate::batch::MarkerKind;
use crate::coordinator::txn::{Completion, TxnPartition};
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ShardId, TopicPartition};
use crate::limits::{MARKER_RETRY_MS_MAX, MARKER_RETRY_MS_MIN};
use crate::metrics::ShardMetrics;
use crate::shard::Shard;
use crate::shard::markers::write_markers;
use crate::shard::message::{MarkerPart, Operation, Reply};

/// Writes the markers of a transaction, then its Complete record.
pub fn start(shard: &Rc<Shard>, completion: Completion) {
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(complete(Rc::clone(shard), completion)));
}

async fn complete(shard: Rc<Shard>, completion: Completion) {
    let began = shard.runtime.now();
    let pending = Pending::new(&shard, completion.partitions.len());
    if completion.partitions.len() > MARKERS_BEFORE_ANSWER_MAX {
        // Whoever asked for the end has its answer by now, and it leaves before so much work.
        shard.runtime.yield_now().await;
    }
    let mut owed = completion.partitions.clone();
    let mut pause_ms = MARKER_RETRY_MS_MIN;
    while !shard.is_stopping() {
        let seen = shard.catalog_changed.generation();
        let round = send(&shard, &completion, owed).await;
        let now_ms = shard.runtime.wall_ms();
        let coordinator = &shard.transactions.coordinator;
        if let Some(((topic, partition), code)) = &round.refused {
            tracing::error!(
                transactional_id = %completion.transactional_id,
                producer_id = %completion.producer.id,
                "{topic}-{partition} refuses the transaction's marker with {code:?}; it stays \
                 unfinished until the next start"
            );
            return coordinator.borrow_mut().give_up(completion.ticket);
        }
        let write = coordinator.borrow_mut().marked(completion.ticket, &round.done, now_ms);
        pending.written(round.done.len());
        if let Some(write) = write {
            // A failure is answered by nobody: the coordinator says whether it is tried again.
            if write_out(&shard, write).await.is_ok() {
                let took_ns = shard.runtime.now().0.saturating_sub(began.0);
                shard.metrics.transactions.completion.record_ns(took_ns);
            }
            return;
        }
        owed = round.owed;
        if owed.is_empty() {
            return;
        }
        let due = shard.runtime.now().plus_ms(pause_ms);
        let timer = shard.runtime.sleep_until(due);
        let changed = shard.catalog_changed.wait(seen);
        futures_lite::future::or(timer, changed).await;
        pause_ms = (pause_ms * 2).min(MARKER_RETRY_MS_MAX);
    }
}

/// The markers of one transaction that are counted as pending, until they are written or nobody
/// writes them any more.
struct Pending {
    metrics: Rc<ShardMetrics>,
    left: Cell<usize>,
}

impl Pending {
    fn new(shard: &Shard, count: usize) -> Pending {
        let metrics = Rc::clone(&shard.metrics);
        metrics.transactions.markers_pending.add(count as i64);
        Pending { metrics, left: Cell::new(count) }
    }

    fn written(&self, count: usize) {
        self.left.set(self.left.get().saturating_sub(count));
        self.metrics.transactions.markers_pending.add(-(count as i64));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.written(self.left.get());
    }
}

/// What one round of markers has come to.
#[derive(Default)]
struct Round {
    /// Partitions that have their marker durably, or need none.
    done: Vec<TxnPartition>,
    /// Partitions to ask again.
    owed: Vec<TxnPartition>,
    /// One that will never take it.
    refused: Option<(TxnPartition, ErrorCode)>,
}

impl Round {
    fn note(&mut self, partition: TxnPartition, code: ErrorCode) {
        match code {
            ErrorCode::None => self.done.push(partition),
            ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => {
                self.refused = Some((partition, code));
            }
            // Not there yet, not there any more, or its storage is out of order: all of that may
            // pass, or shows in the catalog.
            _ => self.owed.push(partition),
        }
    }
}

/// One shard's share of a round.
struct Share {
    owner: ShardId,
    partitions: Vec<TxnPartition>,
    parts: Vec<MarkerPart>,
}

async fn send(shard: &Rc<Shard>, completion: &Completion, owed: Vec<TxnPartition>) -> Round {
    let mut round = Round::default();
    let mut here = None;
    let mut elsewhere = Vec::new();
    for share in shares(shard, completion, owed, &mut round) {
        if share.owner == shard.id {
            here = Some(share);
        } else {
            let operation = Operation::WriteMarkers(share.parts);
            elsewhere.push((shard.links.call(share.owner, operation), share.partitions));
        }
    }
    if let Some(share) = here {
        let codes = write_markers(shard, share.parts).await;
        share.partitions.into_iter().zip(codes).for_each(|(part, code)| round.note(part, code));
    }
    for (slot, partitions) in elsewhere {
        if let Reply::Markers(codes) = slot.take().await {
            partitions.into_iter().zip(codes).for_each(|(part, code)| round.note(part, code));
        }
    }
    round
}

/// Divides partitions by owner, as the catalog has it now; those that are gone are done.
fn shares(
    shard: &Shard,
    completion: &Completion,
    owed: Vec<TxnPartition>,
    round: &mut Round,
) -> Vec<Share> {
    let image = shard.catalog();
    let mut shares: Vec<Share> = Vec::new();
    for (name, index) in owed {
        let partition = PartitionIndex(index);
        let found = image.topic(&name).and_then(|topic| {
            let owner = topic.owner(partition, shard.context.shards)?;
            Some((owner, TopicPartition { topic: topic.id, partition }))
        });
        let Some((owner, id)) = found else {
            round.done.push((name, index));
            continue;
        };
        let place = shares.iter().position(|share| share.owner == owner).unwrap_or_else(|| {
            shares.push(Share { owner, partitions: Vec::new(), parts: Vec::new() });
            shares.len() - 1
        });
        shares[place].partitions.push((Arc::clone(&name), index));
        shares[place].parts.push(marker(completion, id));
    }
    shares
}

fn marker(completion: &Completion, partition: TopicPartition) -> MarkerPart {
    MarkerPart {
        partition,
        kind: if completion.commit { MarkerKind::Commit } else { MarkerKind::Abort },
        producer_id: completion.producer.id,
        producer_epoch: completion.producer.epoch,
        coordinator_epoch: completion.coordinator_epoch,
        transaction_version: completion.transaction_version,
    }
}

/// So few markers cost less than a turn.
const MARKERS_BEFORE_ANSWER_MAX: usize = 16;
