//! Waiting inside one shard: an event that many tasks may await, and a slot that one task fills.
//!
//! Owns no policy. Everything here is single-threaded; wakes between shards go through the
//! mailbox. Invariant: a notification between looking and waiting is never lost, because a waiter
//! names the generation it has seen.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Something that happens again and again.
#[derive(Default)]
pub struct Event {
    generation: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl Event {
    /// The number of notifications so far; take it before looking at what is waited for.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Wakes all that wait.
    pub fn notify(&self) {
        self.generation.set(self.generation.get() + 1);
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits until a notification after generation `seen`.
    pub async fn wait(&self, seen: u64) {
        poll_fn(|context| {
            if self.generation.get() != seen {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            // A task that is polled again while it waits is mostly the last that came.
            if !wakers.last().is_some_and(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// A value that one task leaves for another.
pub struct Slot<T> {
    value: RefCell<Option<T>>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Slot<T> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Rc<Slot<T>> {
        Rc::new(Slot { value: RefCell::new(None), waker: RefCell::new(None) })
    }

    /// A slot that is filled already.
    #[must_use]
    pub fn filled(value: T) -> Rc<Slot<T>> {
        Rc::new(Slot { value: RefCell::new(Some(value)), waker: RefCell::new(None) })
    }

    /// Fills the slot; the first value stays.
    pub fn fill(&self, value: T) {
        let mut place = self.value.borrow_mut();
        if place.is_none() {
            *place = Some(value);
            drop(place);
            if let Some(waker) = self.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }

    /// Whether a value is there.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.value.borrow().is_some()
    }

    /// The value, if it is there.
    #[must_use]
    pub fn try_take(&self) -> Option<T> {
        self.value.borrow_mut().take()
    }

    /// Waits for the value and takes it; one task only.
    pub async fn take(&self) -> T {
        poll_fn(|context| match self.try_take() {
            Some(value) => Poll::Ready(value),
            None => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}
