//! Segments on their way off the disk.
//!
//! Owns the delay between a segment's leaving the log and the removal of its files, and what must
//! be true before: the last durable image itself starts at or above the segment's end, so that no
//! recovery misses it, whatever becomes of the journal. Asks for a checkpoint if it does not. Must
//! never remove a file of a partition whose topic is deleted: its name may be another's by then.
//!
//! What is left over at a stop, or by a crash, is removed by the next recovery, which knows it by
//! the log start. Kafka renames to `.deleted` meanwhile; here nothing looks for such files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::Shard;
use super::event::Event;
use super::partition::{Availability, Partition};
use super::{unlink, write_behind};
use crate::ids::Offset;
use crate::io::Monotonic;
use crate::log::layout::SegmentFile;
use crate::log::segments::TakenSegment;

/// Segments of a shard whose files wait to be removed, by when they are due.
#[derive(Default)]
pub struct Removals {
    waiting: RefCell<BTreeMap<(Monotonic, u64), Removal>>,
    number: Cell<u64>,
    added: Event,
    /// One has left the queue, and its files may still be there.
    is_removing: Cell<bool>,
}

struct Removal {
    partition: Rc<Partition>,
    base: Offset,
    end: Offset,
}

impl Removals {
    /// How many segments wait, the one that is being removed included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.borrow().len() + usize::from(self.is_removing.get())
    }

    fn add(&self, due: Monotonic, removal: Removal) {
        let number = self.number.get();
        self.number.set(number + 1);
        self.waiting.borrow_mut().insert((due, number), removal);
        self.added.notify();
    }

    fn first_due(&self) -> Option<Monotonic> {
        self.waiting.borrow().first_key_value().map(|((due, _), _)| *due)
    }

    fn take_due(&self, now: Monotonic) -> Option<Removal> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry().filter(|first| first.key().0 <= now)?;
        self.is_removing.set(true);
        Some(first.remove())
    }
}

/// Takes the segments below the log start out of the log, and has their files removed after the
/// topic's delay. Readers find them no more.
pub fn remove_below_start(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    let taken = {
        let log = partition.log.borrow();
        partition.segments.borrow_mut().take_below(log.log_start(), log.written_end())
    };
    let delay_ms = partition.topic.borrow().config.file_delete_delay_ms;
    let due = shard.runtime.now().plus_ms(u64::try_from(delay_ms).unwrap_or(0));
    for TakenSegment { base, end, .. } in taken {
        shard.files.borrow_mut().close(partition.id, base);
        shard.cache.borrow_mut().forget_segment(&(partition.id, base));
        shard.metrics.segments_deleted.add(1);
        shard.removals.add(due, Removal { partition: Rc::clone(partition), base, end });
    }
}

/// Starts the task that removes what is due.
pub fn start(shard: &Rc<Shard>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        while !shard.is_stopping() {
            let seen = shard.removals.added.generation();
            if let Some(removal) = shard.removals.take_due(shard.runtime.now()) {
                if !removal.is_imaged() {
                    // One image for all that are due.
                    if shard.checkpoints.request_and_wait().await.is_err() {
                        return;
                    }
                }
                // Otherwise its partition has gone offline: the next start knows what to do.
                if removal.is_imaged() {
                    remove(&shard, &removal).await;
                }
                shard.removals.is_removing.set(false);
                continue;
            }
            let added = shard.removals.added.wait(seen);
            let woken = futures_lite::future::or(added, shard.stopped());
            match shard.removals.first_due() {
                Some(due) => {
                    let timer = shard.runtime.sleep_until(due);
                    futures_lite::future::or(woken, timer).await;
                }
                None => woken.await,
            }
        }
    }));
}

/// Removes at a stop, after the last image, what would have had its delay.
pub async fn finish(shard: &Rc<Shard>) {
    while let Some(removal) = shard.removals.take_due(Monotonic(u64::MAX)) {
        if removal.is_imaged() {
            remove(shard, &removal).await;
        }
        shard.removals.is_removing.set(false);
    }
}

impl Removal {
    fn is_imaged(&self) -> bool {
        let partition = &self.partition;
        self.end <= partition.imaged_log_start.get() || is_dropping(partition)
    }
}

fn is_dropping(partition: &Partition) -> bool {
    *partition.availability.borrow() == Availability::Dropping
}

async fn shorten(shard: &Rc<Shard>, removal: &Removal) {
    let Removal { partition, base, .. } = removal;
    // Whoever has found it before it left the log reads it to its end.
    drop(partition.segment_use.alone().await);
    // Held for its path only: the partition is written meanwhile.
    write_behind::hold(partition).await;
    let log = write_behind::segment_path(shard, partition, SegmentFile::Log, *base);
    let large = match is_dropping(partition) {
        true => None,
        false => unlink::open_large(shard, &log).await,
    };
    write_behind::release(partition);
    unlink::shorten(shard, large).await;
}

async fn remove(shard: &Rc<Shard>, removal: &Removal) {
    let Removal { partition, base, .. } = removal;
    if !shard.is_stopping() {
        shorten(shard, removal).await;
    }
    // A deletion of the topic waits for this, and this for none of it.
    write_behind::hold(partition).await;
    for kind in SegmentFile::ALL {
        if is_dropping(partition) {
            break;
        }
        let path = write_behind::segment_path(shard, partition, kind, *base);
        match shard.disk.remove(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}; removed at the next start", path.display());
            }
            _ => {}
        }
    }
    write_behind::release(partition);
}
