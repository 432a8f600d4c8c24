//! The cleaner of a shard: compacts its partitions, one at a time, the dirtiest first.
//!
//! Owns the task, what it knows of each partition, and the reasons not to clean one. The rules are
//! `log::cleaner`'s; reading and filtering is in [`pass`], files and their swap in [`segment`] and
//! [`swap`], what is remembered over a restart in [`progress`]. Works in slices between which
//! others of the shard run. Must never touch a segment that the last durable image names, nor one
//! of a partition that is being dropped. An error in one partition leaves the others alone: that
//! one is not cleaned again before the next start, which is said loudly.
//! Source: Kafka's `LogCleaner`, `LogCleanerManager`.

mod pass;
pub mod progress;
mod segment;
mod swap;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};

use super::Shard;
use super::event::Event;
use super::partition::Partition;
use super::read::Walk;
use super::{offsets, segment_removal};
use crate::batch::BatchFault;
use crate::ids::{Offset, TopicPartition};
use crate::limits::CLEANER_PARTITIONS_PER_TURN;
use crate::log::cleaner::candidate::{Candidate, CleanRules, LogFacts, SegmentFacts};
use crate::log::cleaner::throttle::Throttle;
use crate::metrics::cleaner::CleanerMetrics;

/// What the cleaner knows.
#[derive(Default)]
pub struct Cleaner {
    /// Its counters.
    pub metrics: CleanerMetrics,
    /// How far partitions are cleaned.
    cleaned: RefCell<HashMap<TopicPartition, Offset, foldhash::fast::RandomState>>,
    uncleanable: RefCell<HashSet<TopicPartition, foldhash::fast::RandomState>>,
    throttle: RefCell<Throttle>,
    /// What all shards have reported, on shard 0 only.
    progress: progress::Progress,
    running: Cell<bool>,
    ended: Event,
}

/// Why a pass has stopped.
#[derive(Debug)]
enum Stop {
    /// Its partition or its shard is going, or its segments have gone: nothing is wrong.
    Abandoned,
    /// The disk is full, which passes.
    Full,
    /// The partition cannot be cleaned.
    Failed(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        match error.raw_os_error() {
            Some(libc::ENOSPC) => Stop::Full,
            _ => Stop::Failed(error.to_string()),
        }
    }
}

impl From<BatchFault> for Stop {
    fn from(fault: BatchFault) -> Stop {
        Stop::Failed(fault.to_string())
    }
}

/// Starts the task.
pub fn start(shard: &Rc<Shard>) {
    if !shard.context.config.log_cleaner_enable {
        return;
    }
    shard.cleaner.running.set(true);
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        progress::load(&shard).await;
        while !shard.is_stopping() {
            if !clean_dirtiest(&shard).await {
                let backoff_ms = shard.catalog().broker().log_cleaner_backoff_ms;
                let backoff_ms = u64::try_from(backoff_ms).unwrap_or(0).max(1);
                let timer = shard.runtime.sleep_until(shard.runtime.now().plus_ms(backoff_ms));
                futures_lite::future::or(timer, shard.stopped()).await;
            }
        }
        shard.cleaner.running.set(false);
        shard.cleaner.ended.notify();
    }));
}

impl Cleaner {
    /// Waits until the cleaner of a stopping shard has ended.
    pub async fn ended(&self) {
        loop {
            let seen = self.ended.generation();
            if !self.running.get() {
                return;
            }
            self.ended.wait(seen).await;
        }
    }

    /// How far a partition is cleaned, if it ever was.
    #[must_use]
    pub fn cleaned_end(&self, partition: TopicPartition) -> Option<Offset> {
        self.cleaned.borrow().get(&partition).copied()
    }

    /// Partitions that cannot be cleaned.
    #[must_use]
    pub fn uncleanable(&self) -> usize {
        self.uncleanable.borrow().len()
    }

    /// Forgets a partition that was dropped.
    pub fn forget(&self, partition: TopicPartition) {
        self.cleaned.borrow_mut().remove(&partition);
        self.uncleanable.borrow_mut().remove(&partition);
    }
}

/// Cleans the dirtiest partition; `false` if there is none worth it, or it came to nothing.
async fn clean_dirtiest(shard: &Rc<Shard>) -> bool {
    shard.cleaner.metrics.last_look_ms.set(shard.runtime.wall_ms());
    // Nothing could take the place of anything any more.
    if shard.space.sync_has_failed() {
        return false;
    }
    let Some(partition) = dirtiest(shard).await else { return false };
    let outcome = clean(shard, &partition).await;
    partition.cleaning.set(false);
    // What fell below the log start meanwhile had to wait.
    segment_removal::remove_below_start(shard, &partition);
    match outcome {
        Ok(cleaned) => cleaned,
        Err(Stop::Abandoned) => false,
        Err(Stop::Full) => {
            tracing::warn!(shard = %shard.id, "the disk is full: a compaction waits for space");
            false
        }
        Err(Stop::Failed(why)) => {
            tracing::error!(
                shard = %shard.id,
                topic = %partition.topic.borrow().name,
                partition = %partition.index(),
                "the partition is not compacted any more until the next start: {why}"
            );
            shard.cleaner.uncleanable.borrow_mut().insert(partition.id);
            false
        }
    }
}

/// The partition whose share of dirty bytes is largest, of those that are to be cleaned.
async fn dirtiest(shard: &Rc<Shard>) -> Option<Rc<Partition>> {
    let mut most = 0.0;
    let mut found: Option<(f64, Rc<Partition>)> = None;
    for (place, partition) in shard.all_partitions().iter().enumerate() {
        if place > 0 && place % CLEANER_PARTITIONS_PER_TURN == 0 {
            shard.runtime.yield_now().await;
        }
        if !is_cleaned(shard, partition) {
            continue;
        }
        let rules = rules(partition);
        let candidate = match look(shard, partition, &rules, None).await {
            Ok(candidate) => candidate,
            Err(error) => {
                tracing::warn!(shard = %shard.id, "a look for what to compact failed: {error}");
                continue;
            }
        };
        let ratio = candidate.dirty_ratio();
        most = f64::max(most, ratio);
        if candidate.is_wanted(&rules) && found.as_ref().is_none_or(|(best, _)| ratio > *best) {
            found = Some((ratio, Rc::clone(partition)));
        }
    }
    shard.cleaner.metrics.dirty_ratio_max.set(most);
    found.map(|(_, partition)| partition)
}

fn is_cleaned(shard: &Shard, partition: &Partition) -> bool {
    partition.topic.borrow().config.cleanup.compact
        && partition.is_online()
        && !shard.cleaner.uncleanable.borrow().contains(&partition.id)
}

fn rules(partition: &Partition) -> CleanRules {
    let topic = partition.topic.borrow();
    CleanRules {
        dirty_ratio_min: topic.config.min_cleanable_dirty_ratio,
        lag_min_ms: topic.config.min_compaction_lag_ms,
        lag_max_ms: topic.config.max_compaction_lag_ms,
    }
}

/// What a pass over the partition would do, if it may not touch the segment at `below` and later
/// ones.
async fn look(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    rules: &CleanRules,
    below: Option<Offset>,
) -> io::Result<Candidate> {
    let (active_base, sealed) = {
        let segments = partition.segments.borrow();
        let last = segments.active.as_ref().map(|active| active.base);
        let last = last.or_else(|| segments.sealed.keys().next_back().copied());
        let bound = last.unwrap_or_default().min(below.unwrap_or(Offset(i64::MAX)));
        let sealed = segments.sealed.range(..bound).map(|(&base, sealed)| (base, sealed.bytes));
        (bound, sealed.collect::<Vec<_>>())
    };
    let mut segments = Vec::with_capacity(sealed.len());
    for (base, bytes) in sealed {
        segments.push(SegmentFacts {
            base,
            bytes,
            first_timestamp_ms: match rules.lag_max_ms {
                i64::MAX => None,
                _ => first_timestamp(shard, partition, base).await?,
            },
            largest_timestamp_ms: match rules.lag_min_ms {
                0 => None,
                _ => {
                    let newest_ms = offsets::largest_timestamp(shard, partition, base).await?;
                    (newest_ms >= 0).then_some(newest_ms)
                }
            },
        });
    }
    let facts = {
        let log = partition.log.borrow();
        LogFacts {
            log_start: log.log_start(),
            log_end: log.next_offset(),
            last_stable: log.last_stable_offset(),
            cleaned_end: shard.cleaner.cleaned_end(partition.id),
            active_base,
            segments,
        }
    };
    Ok(Candidate::of(&facts, rules, shard.runtime.wall_ms()))
}

/// The timestamp of a segment's first batch.
async fn first_timestamp(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    base: Offset,
) -> io::Result<Option<i64>> {
    let _shared = partition.segment_use.shared().await;
    let first = Walk::at(base, 0).next(shard, partition).await?;
    let first = first.filter(|batch| batch.base == base);
    Ok(first.map(|batch| batch.header.max_timestamp))
}

/// Cleans a partition that is worth it; `false` if it is not, now that the last image is known.
async fn clean(shard: &Rc<Shard>, partition: &Rc<Partition>) -> Result<bool, Stop> {
    let rules = rules(partition);
    let wanted = look(shard, partition, &rules, None).await?;
    if wanted.end > partition.imaged_base.get() {
        // A segment may be replaced once an image names a later one as the last.
        let taken = shard.checkpoints.request_and_wait();
        let taken = async { Some(taken.await) };
        let stopped = async {
            shard.stopped().await;
            None
        };
        match futures_lite::future::or(taken, stopped).await {
            Some(Ok(())) => {}
            _ => return Err(Stop::Abandoned),
        }
    }
    partition.cleaning.set(true);
    let below = partition.imaged_base.get();
    let candidate = look(shard, partition, &rules, Some(below)).await?;
    if !candidate.is_wanted(&rules) || !is_cleaned(shard, partition) {
        return Ok(false);
    }
    let cleaned_end = pass::run(shard, partition, &candidate).await?;
    shard.cleaner.metrics.passes.add(1);
    if cleaned_end <= candidate.first_dirty {
        return Ok(false);
    }
    shard.cleaner.cleaned.borrow_mut().insert(partition.id, cleaned_end);
    progress::report(shard, partition, cleaned_end).await;
    Ok(true)
}
