//! The timers of all groups of a shard.
//!
//! Owns one ordered structure: a change costs the logarithm of their number, a tick what is due.
//! A timer is known by partition, group and key, so that each is there once. What it means is
//! the rules' to say, in the partition's turn; a group that is gone meanwhile knows nothing of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::consumers;
use super::members::{carry_out, now, rules};
use crate::coordinator::group::outcome::{TimerKey, Timers};
use crate::ids::PartitionIndex;
use crate::io::Monotonic;
use crate::shard::Shard;
use crate::shard::event::Event;

type Place = (PartitionIndex, Arc<str>, TimerKey);

/// Timers, by what they are of and by when they are due.
#[derive(Default)]
pub(super) struct GroupTimers {
    set: RefCell<Set>,
    earlier: Event,
}

#[derive(Default)]
struct Set {
    due_ms: BTreeMap<Place, i64>,
    order: BTreeSet<(i64, Place)>,
}

impl GroupTimers {
    /// Sets timers of a group, or takes them away.
    pub fn set_all(&self, partition: PartitionIndex, group: &Arc<str>, timers: Timers) {
        if timers.is_empty() {
            return;
        }
        let mut set = self.set.borrow_mut();
        let before = set.order.first().map(|(due_ms, _)| *due_ms);
        for (key, due_ms) in timers {
            set.change((partition, Arc::clone(group), key), due_ms);
        }
        let after = set.order.first().map(|(due_ms, _)| *due_ms);
        drop(set);
        if after < before || before.is_none() {
            self.earlier.notify();
        }
    }

    /// Forgets those of a partition.
    pub fn forget(&self, partition: PartitionIndex) {
        let mut set = self.set.borrow_mut();
        let places: Vec<Place> =
            set.due_ms.keys().filter(|place| place.0 == partition).cloned().collect();
        for place in places {
            set.change(place, None);
        }
    }

    fn first_ms(&self) -> Option<i64> {
        self.set.borrow().order.first().map(|(due_ms, _)| *due_ms)
    }

    /// Takes away the first if it is due.
    fn take_due(&self, now_ms: i64) -> Option<Place> {
        let mut set = self.set.borrow_mut();
        let (due_ms, _) = set.order.first()?;
        if *due_ms > now_ms {
            return None;
        }
        let (_, place) = set.order.pop_first()?;
        set.due_ms.remove(&place);
        Some(place)
    }
}

impl Set {
    fn change(&mut self, place: Place, due_ms: Option<i64>) {
        let old = match due_ms {
            Some(due_ms) => {
                let old = self.due_ms.insert(place.clone(), due_ms);
                self.order.insert((due_ms, place.clone()));
                old.filter(|old_ms| *old_ms != due_ms)
            }
            None => self.due_ms.remove(&place),
        };
        if let Some(old_ms) = old {
            self.order.remove(&(old_ms, place));
        }
    }
}

/// Starts the task that acts on what is due.
pub(super) fn start(shard: &Rc<Shard>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        while !shard.is_stopping() {
            let timers = &shard.group_offsets.timers;
            let seen = timers.earlier.generation();
            if let Some((partition, group, key)) = timers.take_due(now(&shard).ms) {
                fire(&shard, partition, &group, &key).await;
                continue;
            }
            let first = timers.first_ms().and_then(|ms| u64::try_from(ms).ok());
            match first {
                Some(first_ms) => {
                    let due = shard.runtime.sleep_until(Monotonic::default().plus_ms(first_ms));
                    futures_lite::future::or(due, timers.earlier.wait(seen)).await;
                }
                None => timers.earlier.wait(seen).await,
            }
        }
    }));
}

async fn fire(shard: &Rc<Shard>, partition: PartitionIndex, group: &Arc<str>, key: &TimerKey) {
    let kept = shard.group_offsets.kept.borrow().get(&partition).cloned();
    let Some(kept) = kept else { return };
    if let Some(timer) = consumers::timer_of(key) {
        return consumers::fire(shard, &kept, group, timer).await;
    }
    let turn = kept.turn().await;
    let outcome = kept.with_mut(|groups| groups.timer(group, key, &rules(shard), now(shard)));
    if let Ok(outcome) = outcome {
        carry_out(shard, &kept, group, outcome).await;
    }
    drop(turn);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timer_is_there_once_and_comes_in_order() {
        let timers = GroupTimers::default();
        let partition = PartitionIndex(3);
        let group: Arc<str> = "g".into();
        let session = |id: &str| TimerKey::Session(id.into());
        timers.set_all(
            partition,
            &group,
            vec![(session("a"), Some(50)), (TimerKey::Join, Some(30))],
        );
        timers.set_all(partition, &group, vec![(session("a"), Some(20)), (session("b"), Some(40))]);
        timers.set_all(partition, &group, vec![(session("b"), None), (session("c"), None)]);
        timers.set_all(PartitionIndex(4), &group, vec![(TimerKey::Sync, Some(10))]);
        timers.set_all(partition, &group, vec![(TimerKey::Join, Some(30))]);
        timers.forget(PartitionIndex(4));
        assert_eq!(timers.first_ms(), Some(20));
        assert_eq!(timers.take_due(19), None);
        assert_eq!(timers.take_due(20), Some((partition, Arc::clone(&group), session("a"))));
        assert_eq!(timers.take_due(20), None);
        assert_eq!(timers.take_due(99), Some((partition, group, TimerKey::Join)));
        assert_eq!((timers.first_ms(), timers.take_due(99)), (None, None));
        assert!(timers.set.borrow().due_ms.is_empty());
    }

    #[test]
    fn only_an_earlier_timer_wakes() {
        let timers = GroupTimers::default();
        let set = |due_ms| {
            let seen = timers.earlier.generation();
            let key = TimerKey::Session(format!("{due_ms}").into());
            timers.set_all(PartitionIndex(0), &"g".into(), vec![(key, Some(due_ms))]);
            timers.earlier.generation() != seen
        };
        assert_eq!([set(50), set(60), set(50), set(40)], [true, false, false, true]);
    }
}
