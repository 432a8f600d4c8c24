//! Waiting inside one shard: an event that many tasks may await, and a slot that one task fills.
//!
//! Owns no policy. Everything here is single-threaded; wakes between shards go through the
//! mailbox. Invariant: a notification between looking and waiting is never lost, because a waiter
//! names the generation it has seen.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use smallvec::SmallVec;

/// Something that happens again and again.
#[derive(Default)]
pub struct Event {
    generation: Cell<u64>,
    wakers: RefCell<Slab<Waker>>,
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
        if self.wakers.borrow().is_empty() {
            return;
        }
        // Those woken take their wakers away themselves, when they are polled or dropped.
        let wakers: SmallVec<[Waker; 4]> =
            self.wakers.borrow().iter().map(|(_, waker)| waker.clone()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits until a notification after generation `seen`. Giving up leaves nothing behind.
    #[must_use]
    pub fn wait(&self, seen: u64) -> Wait<'_> {
        Wait { event: self, seen, place: None }
    }
}

/// The future of [`Event::wait`].
pub struct Wait<'a> {
    event: &'a Event,
    seen: u64,
    place: Option<usize>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.event.generation.get() != self.seen {
            return Poll::Ready(());
        }
        let mut wakers = self.event.wakers.borrow_mut();
        match self.place {
            Some(place) => wakers[place].clone_from(context.waker()),
            None => {
                let place = wakers.insert(context.waker().clone());
                drop(wakers);
                self.place = Some(place);
            }
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.event.wakers.borrow_mut().remove(place);
        }
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn a_notification_wakes_and_giving_up_leaves_nothing_behind() {
        let event = Event::default();
        let mut context = Context::from_waker(Waker::noop());
        let seen = event.generation();
        {
            let mut wait = pin!(event.wait(seen));
            assert!(wait.as_mut().poll(&mut context).is_pending());
            assert!(wait.as_mut().poll(&mut context).is_pending());
            assert_eq!(event.wakers.borrow().len(), 1);
        }
        assert!(event.wakers.borrow().is_empty());
        let mut wait = pin!(event.wait(seen));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        event.notify();
        assert!(wait.as_mut().poll(&mut context).is_ready());
        assert!(pin!(event.wait(seen)).poll(&mut context).is_ready(), "it was missed by nobody");
    }
}
