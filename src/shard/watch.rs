//! Parked fetches: who watches which partitions, here and for other shards.
//!
//! Owns the numbers of parked fetches. A fetch that found nothing registers what it has seen; if a
//! bound has moved since, it reads again at once, so no advance is ever missed. A fetch of another
//! shard gets one wake, not one per partition.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hashbrown::HashMap;

use super::Shard;
use super::by_owner::ByOwner;
use super::message::{Message, Operation, Reply, WatchPart};
use super::partition::Waiter;
use crate::ids::ShardId;
use crate::metrics::Limit;

type Map<K> = RefCell<HashMap<K, Rc<Waiter>, foldhash::fast::RandomState>>;

/// Waiters by number.
#[derive(Default)]
pub struct Watches {
    next_fetch: Cell<u64>,
    /// Fetches of this shard that other shards watch for.
    local: Map<u64>,
    /// Fetches of other shards that watch partitions here.
    remote: Map<(ShardId, u64)>,
}

impl Watches {
    /// Another shard says that a partition has moved.
    pub fn wake(&self, fetch: u64) {
        if let Some(waiter) = self.local.borrow().get(&fetch) {
            waiter.fire();
        }
    }

    /// Another shard's fetch is over.
    pub fn forget_remote(&self, from: ShardId, fetch: u64) {
        if let Some(waiter) = self.remote.borrow_mut().remove(&(from, fetch)) {
            waiter.fire();
        }
    }
}

/// A fetch that waits; dropping it forgets its watches.
pub struct Watching {
    shard: Rc<Shard>,
    fetch: u64,
    waiter: Rc<Waiter>,
    others: Vec<ShardId>,
}

impl Watching {
    /// Starts to watch; `None` when a bound has already moved, and the fetch should read again.
    pub async fn start(
        shard: &Rc<Shard>,
        waiter: &Rc<Waiter>,
        parts: &[WatchPart],
    ) -> Option<Watching> {
        let fetch = shard.links.watches.next_fetch.get();
        shard.links.watches.next_fetch.set(fetch + 1);
        let mut watching = Watching {
            shard: Rc::clone(shard),
            fetch,
            waiter: Rc::clone(waiter),
            others: Vec::new(),
        };
        let mut elsewhere: ByOwner<(), WatchPart> = ByOwner::default();
        for part in parts {
            match shard.owner(part.partition) {
                Some(owner) if owner == shard.id => {
                    if watch_here(shard, waiter, part) {
                        return None;
                    }
                }
                Some(owner) => elsewhere.add(owner, (), *part),
                None => return None,
            }
        }
        if !elsewhere.is_empty() {
            shard.links.watches.local.borrow_mut().insert(fetch, Rc::clone(waiter));
        }
        for (owner, _, parts) in elsewhere {
            watching.others.push(owner);
            let reply = shard.links.call(owner, Operation::Watch { fetch, parts }).take().await;
            if matches!(reply, Reply::Done(true)) {
                return None;
            }
        }
        Some(watching)
    }

    /// Waits until a watched partition has moved.
    pub async fn moved(&self) {
        self.waiter.fired().await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.others.is_empty() {
            return;
        }
        self.shard.links.watches.local.borrow_mut().remove(&self.fetch);
        for &other in &self.others {
            self.shard.links.tell(other, Message::Unwatch { fetch: self.fetch });
        }
    }
}

/// Registers the waiter with a partition of this shard; `true` when there is no need to wait.
fn watch_here(shard: &Shard, waiter: &Rc<Waiter>, part: &WatchPart) -> bool {
    let Some(partition) = shard.partition(part.partition) else { return true };
    let log = partition.log.borrow();
    let bound = if part.committed_only { log.last_stable_offset() } else { log.high_watermark() };
    drop(log);
    if bound > part.seen || !partition.is_online() {
        return true;
    }
    let waits = partition.watch(waiter, part.committed_only);
    if !waits {
        shard.metrics.limit_reached(Limit::WaitersPerPartition);
    }
    !waits
}

/// Watches for a fetch of another shard; `true` when a bound has moved already.
pub fn watch_for(shard: &Rc<Shard>, from: ShardId, fetch: u64, parts: &[WatchPart]) -> bool {
    let waiter = Waiter::new();
    if parts.iter().any(|part| watch_here(shard, &waiter, part)) {
        return true;
    }
    let watches = &shard.links.watches;
    watches.remote.borrow_mut().insert((from, fetch), Rc::clone(&waiter));
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        waiter.fired().await;
        // Gone from the map: the fetch ended by itself and wants no wake.
        if shard.links.watches.remote.borrow_mut().remove(&(from, fetch)).is_some() {
            shard.links.tell(from, Message::Wake { fetch });
        }
    }));
    false
}
