//! One partition on the shard that owns it: its log, its segments, and who waits for it.
//!
//! Owns the shell state around [`Log`] and [`SegmentSet`]: whether it is online, whether its tail
//! is queued for writing, the waiters of parked fetches, and its row in the last durable image.
//! Must never await between a check and an append. Invariant: at most one task writes its
//! segments at a time.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::ids::{JournalSequence, Offset, PartitionIndex, TopicPartition};
use crate::journal::image::PartitionRow;
use crate::journal::writer::JournalClient;
use crate::limits::WAITERS_PER_PARTITION_MAX;
use crate::log::Log;
use crate::log::segments::SegmentSet;
use crate::metadata::image::Topic;
use crate::metrics::topics::TopicMetrics;

use super::event::Event;
use super::message::LogSize;
use super::segment_use::SegmentUse;

/// Whether a partition serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Availability {
    /// It serves.
    Online,
    /// Its data is incomplete or cannot be written; the reason says what and where.
    Offline(String),
    /// Its topic is being deleted.
    Dropping,
}

/// One partition.
pub struct Partition {
    /// Its key.
    pub id: TopicPartition,
    /// Its topic as last published.
    pub topic: RefCell<Arc<Topic>>,
    /// Counters of its topic.
    pub metrics: Rc<TopicMetrics>,
    /// The hot state.
    pub log: RefCell<Log>,
    /// The segments.
    pub segments: RefCell<SegmentSet>,
    /// Whether it serves.
    pub availability: RefCell<Availability>,
    /// Its row as the last durable image has it, without producers of later batches.
    pub row: RefCell<PartitionRow>,
    /// The segment that the last durable image names as the one written to: this one and later
    /// ones are not replaced, since recovery cuts there.
    pub imaged_base: Cell<Offset>,
    /// Who uses its segments.
    pub segment_use: SegmentUse,
    /// The log start that the last durable image has: segments below it may go, whatever becomes
    /// of the journal.
    pub imaged_log_start: Cell<Offset>,
    /// The journal block that moves the log start to where it is.
    pub log_start_place: Cell<JournalSequence>,
    /// Its sealed segments must not vanish now: somebody replaces them.
    pub cleaning: Cell<bool>,
    /// Something changed since that image.
    pub dirty: Cell<bool>,
    /// Its directory exists under its final name.
    pub directory_made: Cell<bool>,
    /// The end of the log when the files that only Kafka reads were written, in whichever boot.
    pub kafka_files_end: Cell<Option<Offset>>,
    /// Writers go no further than this while a checkpoint takes the state at this offset.
    pub write_limit: Cell<Offset>,
    /// It waits in the shard's write-behind queue.
    pub write_queued: Cell<bool>,
    /// One of the shard's writers has it in hand.
    pub has_writer: Cell<bool>,
    /// It is noted as having batches in memory.
    pub has_tail: Cell<bool>,
    /// A task writes its segments.
    pub writing: Cell<bool>,
    /// Told when that task ends.
    pub write_ended: Event,
    /// The open journal block that holds its newest batch, and its place in that block's list.
    pub block_place: Cell<(JournalSequence, usize)>,
    /// Those that wait for the high watermark.
    waiters: Waiters,
    /// Those that wait for the last stable offset.
    committed_waiters: Waiters,
}

/// Parked fetches that wait for one bound.
#[derive(Default)]
struct Waiters(RefCell<Vec<Weak<Waiter>>>);

impl Waiters {
    /// Adds one; `false` when there are too many, and it must answer at once.
    fn add(&self, waiter: &Rc<Waiter>) -> bool {
        let mut waiters = self.0.borrow_mut();
        if waiters.len() >= WAITERS_PER_PARTITION_MAX {
            waiters.retain(|waiter| waiter.strong_count() > 0);
        }
        // Fetches that ended by time leave dead entries; drop them as the list grows.
        if waiters.len() >= 16 && waiters.len().is_power_of_two() {
            waiters.retain(|waiter| waiter.strong_count() > 0);
        }
        let room = waiters.len() < WAITERS_PER_PARTITION_MAX;
        if room {
            waiters.push(Rc::downgrade(waiter));
        }
        room
    }

    fn wake(&self) {
        let waiters = std::mem::take(&mut *self.0.borrow_mut());
        for waiter in waiters.iter().filter_map(Weak::upgrade) {
            waiter.fire();
        }
    }
}

/// A parked fetch: told once when any partition it watches has moved.
#[derive(Default)]
pub struct Waiter {
    fired: Cell<bool>,
    event: Event,
}

impl Waiter {
    /// A waiter that has not fired.
    #[must_use]
    pub fn new() -> Rc<Waiter> {
        Rc::new(Waiter::default())
    }

    /// Wakes the fetch.
    pub fn fire(&self) {
        self.fired.set(true);
        self.event.notify();
    }

    /// Waits until it has fired, and makes it ready to fire again.
    pub async fn fired(&self) {
        loop {
            let seen = self.event.generation();
            if self.fired.replace(false) {
                return;
            }
            self.event.wait(seen).await;
        }
    }
}

impl Partition {
    /// A partition with recovered state.
    #[must_use]
    pub fn new(
        id: TopicPartition,
        topic: Arc<Topic>,
        log: Log,
        segments: SegmentSet,
        row: PartitionRow,
        metrics: Rc<TopicMetrics>,
    ) -> Rc<Partition> {
        let availability = match &row.offline {
            Some(offline) => Availability::Offline(offline.reason.clone()),
            None => Availability::Online,
        };
        let imaged_base = row.segment_base;
        let imaged_log_start = row.log_start;
        Rc::new(Partition {
            id,
            topic: RefCell::new(topic),
            metrics,
            log: RefCell::new(log),
            segments: RefCell::new(segments),
            availability: RefCell::new(availability),
            row: RefCell::new(row),
            imaged_base: Cell::new(imaged_base),
            segment_use: SegmentUse::default(),
            imaged_log_start: Cell::new(imaged_log_start),
            log_start_place: Cell::new(JournalSequence(0)),
            cleaning: Cell::new(false),
            dirty: Cell::new(false),
            directory_made: Cell::new(false),
            kafka_files_end: Cell::new(None),
            write_limit: Cell::new(Offset(i64::MAX)),
            write_queued: Cell::new(false),
            has_writer: Cell::new(false),
            has_tail: Cell::new(false),
            writing: Cell::new(false),
            write_ended: Event::default(),
            block_place: Cell::new((JournalSequence(0), 0)),
            waiters: Waiters::default(),
            committed_waiters: Waiters::default(),
        })
    }

    /// Its index inside the topic.
    #[must_use]
    pub fn index(&self) -> PartitionIndex {
        self.id.partition
    }

    /// Whether it serves reads and writes.
    #[must_use]
    pub fn is_online(&self) -> bool {
        *self.availability.borrow() == Availability::Online
    }

    /// Takes it out of service and tells everybody who waits.
    pub fn set_availability(&self, availability: Availability) {
        *self.availability.borrow_mut() = availability;
        self.wake_waiters();
    }

    /// Journaled bytes that are not in a segment yet.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.log.borrow().tail().bytes()
    }

    /// Bytes of its batches, in segments and not yet there.
    #[must_use]
    pub fn log_size(&self) -> LogSize {
        let bytes = self.segments.borrow().total_bytes() + self.unwritten_bytes() as u64;
        LogSize { partition: self.id, bytes }
    }

    /// Adds a parked fetch, which waits for the last stable offset if it is `committed_only`;
    /// `false` when there are too many, and it must answer at once.
    pub fn watch(&self, waiter: &Rc<Waiter>, committed_only: bool) -> bool {
        if committed_only { self.committed_waiters.add(waiter) } else { self.waiters.add(waiter) }
    }

    /// Tells every parked fetch to look again.
    pub fn wake_waiters(&self) {
        self.waiters.wake();
        self.committed_waiters.wake();
    }
}

impl JournalClient for Partition {
    fn durable_through(&self, end: Offset) {
        let mut log = self.log.borrow_mut();
        let (high_watermark, stable) = (log.high_watermark(), log.last_stable_offset());
        if end > high_watermark {
            log.advance_high_watermark(end);
            let stable_moved = log.last_stable_offset() > stable;
            drop(log);
            self.waiters.wake();
            if stable_moved {
                self.committed_waiters.wake();
            }
        }
    }

    fn block_place(&self) -> &Cell<(JournalSequence, usize)> {
        &self.block_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_wait_and_no_more_until_some_are_gone() {
        let waiters = Waiters::default();
        let all: Vec<_> = (0..WAITERS_PER_PARTITION_MAX).map(|_| Waiter::new()).collect();
        assert!(all.iter().all(|waiter| waiters.add(waiter)));
        let one_more = Waiter::new();
        assert!(!waiters.add(&one_more));
        drop(all);
        assert!(waiters.add(&one_more));
        waiters.wake();
        assert!(one_more.fired.get() && waiters.0.borrow().is_empty());
    }
}
