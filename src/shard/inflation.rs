//! Work on records that have to be inflated, so that a batch that inflates to a great deal costs
//! its own connection and no other.
//!
//! Owns the lanes. Inflating takes memory (a window of up to 128 MiB, a whole raw snappy block) for
//! as long as it lasts, so whatever is not done in its first turn gives that memory up, waits for a
//! lane, and begins anew: in each lane one works at a time. What inflates to an ordinary size never
//! waits for what does not, because that has a lane of its own. Invariant: the two together stay
//! within the shard's memory for inflating: a window or block is bounded by most of it, and only as
//! much of a window is there as has been filled, which in the ordinary lane is little. What is
//! known to take much (LZ4 says so at its start) takes nothing before it has the lane of its kind.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::Poll;

use bytes::Bytes;

use super::Shard;
use super::event::Slot;
use crate::batch::search::{Found, TimestampSearch};
use crate::batch::{BatchFault, Inflating, Refusal, ValidBatch, Validator};
use crate::limits::{INFLATED_ORDINARY_BYTES_MAX, INFLATION_ORDINARY_PART, VALIDATE_SLICE_BYTES};

/// Something that goes through records step by step.
pub trait RecordWork {
    /// What comes of it.
    type Output;

    /// Goes on for about so many bytes.
    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output>;

    /// Whether memory is held for inflating.
    fn is_inflating(&self) -> bool;

    /// Memory that inflating will take, as far as that is known.
    fn inflation_bytes(&self) -> usize;
}

impl RecordWork for Validator {
    type Output = Result<ValidBatch, Refusal>;

    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output> {
        Validator::step(self, budget_bytes)
    }

    fn is_inflating(&self) -> bool {
        Validator::is_inflating(self)
    }

    fn inflation_bytes(&self) -> usize {
        Validator::inflation_bytes(self)
    }
}

impl RecordWork for TimestampSearch {
    type Output = Result<Option<Found>, BatchFault>;

    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output> {
        TimestampSearch::step(self, budget_bytes)
    }

    fn is_inflating(&self) -> bool {
        true
    }

    fn inflation_bytes(&self) -> usize {
        TimestampSearch::inflation_bytes(self)
    }
}

impl RecordWork for Inflating {
    type Output = Result<Bytes, BatchFault>;

    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output> {
        Inflating::step(self, budget_bytes)
    }

    fn is_inflating(&self) -> bool {
        true
    }

    fn inflation_bytes(&self) -> usize {
        Inflating::inflation_bytes(self)
    }
}

/// The lanes of a shard.
pub struct Lanes {
    ordinary: Rc<Lane>,
    large: Rc<Lane>,
    memory_bytes: usize,
}

impl Lanes {
    /// Lanes that share so much memory.
    #[must_use]
    pub fn new(memory_bytes: usize) -> Lanes {
        Lanes { ordinary: Rc::default(), large: Rc::default(), memory_bytes }
    }

    /// Memory that one batch may take.
    #[must_use]
    pub fn batch_bytes_max(&self) -> usize {
        self.memory_bytes / 5 * 4
    }

    /// Memory that an ordinary batch may be known to take before it is inflated.
    fn ordinary_memory_max(&self) -> usize {
        self.batch_bytes_max() / INFLATION_ORDINARY_PART
    }

    /// Bytes to which an ordinary batch inflates.
    fn ordinary_bytes_max(&self) -> usize {
        (self.memory_bytes / 4).min(INFLATED_ORDINARY_BYTES_MAX)
    }
}

/// One at a time, in the order they came.
#[derive(Default)]
struct Lane {
    is_taken: Cell<bool>,
    waiting: RefCell<VecDeque<Weak<Slot<Turn>>>>,
}

/// The right to a lane; the next one gets it when it is dropped, wherever that happens.
struct Turn(Rc<Lane>);

impl Lane {
    async fn turn(self: &Rc<Self>) -> Turn {
        if !self.is_taken.replace(true) {
            return Turn(Rc::clone(self));
        }
        let slot = Slot::new();
        self.waiting.borrow_mut().push_back(Rc::downgrade(&slot));
        slot.take().await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        loop {
            let next = self.0.waiting.borrow_mut().pop_front();
            match next.map(|slot| slot.upgrade()) {
                None => return self.0.is_taken.set(false),
                Some(Some(slot)) => return slot.fill(Turn(Rc::clone(&self.0))),
                Some(None) => {}
            }
        }
    }
}

impl Shard {
    /// Does what `start` begins, in turns, without letting it hold memory beside others.
    pub async fn through_records<W: RecordWork>(&self, start: impl Fn() -> W) -> W::Output {
        let mut work = start();
        let is_large = loop {
            if work.inflation_bytes() > self.lanes.ordinary_memory_max() {
                break true;
            }
            match work.step(VALIDATE_SLICE_BYTES) {
                Poll::Ready(output) => return output,
                Poll::Pending if work.is_inflating() => break false,
                Poll::Pending => self.runtime.yield_now().await,
            }
        };
        drop(work);
        if !is_large {
            let _ordinary = self.lanes.ordinary.turn().await;
            if let Some(output) = self.in_lane(start(), self.lanes.ordinary_bytes_max()).await {
                return output;
            }
        }
        let _large = self.lanes.large.turn().await;
        let output = self.in_lane(start(), usize::MAX).await;
        output.expect("invariant: inflating ends before so many bytes")
    }

    /// Waits for the lane of what inflates to much, for work that cannot begin anew; it is its own
    /// until the value is dropped.
    pub async fn inflation_turn(&self) -> impl Drop + use<> {
        self.lanes.large.turn().await
    }

    async fn in_lane<W: RecordWork>(&self, mut work: W, bytes_max: usize) -> Option<W::Output> {
        let mut done = 0;
        while done < bytes_max {
            match work.step(VALIDATE_SLICE_BYTES) {
                Poll::Ready(output) => return Some(output),
                Poll::Pending => self.runtime.yield_now().await,
            }
            done += VALIDATE_SLICE_BYTES;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_lane_is_given_on_in_order_and_past_those_that_have_gone() {
        let lane = Rc::new(Lane::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(lane.turn());
        let Poll::Ready(turn) = first.as_mut().poll(&mut context) else { panic!("it is free") };
        let mut second = Box::pin(lane.turn());
        let mut third = Box::pin(lane.turn());
        let mut fourth = Box::pin(lane.turn());
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        drop(second);
        drop(turn);
        assert!(fourth.as_mut().poll(&mut context).is_pending());
        // It was given to the third, which goes without ever having taken it.
        drop(third);
        let Poll::Ready(turn) = fourth.as_mut().poll(&mut context) else { panic!("it is free") };
        drop(turn);
        assert!(!lane.is_taken.get() && lane.waiting.borrow().is_empty());
    }
}
