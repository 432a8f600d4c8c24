//! Work on records that have to be inflated, so that a batch that inflates to a great deal costs
//! its own connection and no other.
//!
//! Owns the lanes. Inflating takes memory (a window of up to 128 MiB, a whole raw snappy block) for
//! as long as it lasts, so whatever is not done in its first turn gives that memory up, waits for a
//! lane, and begins anew: in each lane one works at a time. What inflates to an ordinary size never
//! waits for what does not, because that has a lane of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::Poll;

use bytes::Bytes;

use super::Shard;
use super::event::Slot;
use crate::batch::search::{Found, TimestampSearch};
use crate::batch::{BatchFault, Inflating, Refusal, ValidBatch, Validator};
use crate::limits::{INFLATED_ORDINARY_BYTES_MAX, VALIDATE_SLICE_BYTES};

/// Something that goes through records step by step.
pub trait RecordWork {
    /// What comes of it.
    type Output;

    /// Goes on for about so many bytes.
    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output>;

    /// Whether memory is held for inflating.
    fn is_inflating(&self) -> bool;
}

impl RecordWork for Validator {
    type Output = Result<ValidBatch, Refusal>;

    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output> {
        Validator::step(self, budget_bytes)
    }

    fn is_inflating(&self) -> bool {
        Validator::is_inflating(self)
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
}

impl RecordWork for Inflating {
    type Output = Result<Bytes, BatchFault>;

    fn step(&mut self, budget_bytes: usize) -> Poll<Self::Output> {
        Inflating::step(self, budget_bytes)
    }

    fn is_inflating(&self) -> bool {
        true
    }
}

/// The lanes of a shard.
#[derive(Default)]
pub struct Lanes {
    ordinary: Rc<Lane>,
    large: Rc<Lane>,
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
        loop {
            match work.step(VALIDATE_SLICE_BYTES) {
                Poll::Ready(output) => return output,
                Poll::Pending if work.is_inflating() => break,
                Poll::Pending => self.runtime.yield_now().await,
            }
        }
        drop(work);
        let ordinary = self.lanes.ordinary.turn().await;
        if let Some(output) = self.in_lane(start(), INFLATED_ORDINARY_BYTES_MAX).await {
            return output;
        }
        drop(ordinary);
        let _large = self.lanes.large.turn().await;
        let output = self.in_lane(start(), usize::MAX).await;
        output.expect("invariant: inflating ends before so many bytes")
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
