//! The byte budget of a shard's connections.
//!
//! Owns the count of bytes that requests and responses hold. A request waits for room before it
//! is started, which leaves its socket unread; a response is counted when it is ready and never
//! waits, since what it holds has been read already. Invariant: every byte counted is given back
//! when its [`Charge`] is dropped.

use std::cell::Cell;
use std::rc::Rc;

use super::event::Event;

/// A bounded number of bytes.
pub struct Budget {
    used: Cell<usize>,
    bytes_max: usize,
    freed: Event,
}

/// Bytes taken from a budget.
pub struct Charge {
    budget: Rc<Budget>,
    bytes: Cell<usize>,
}

impl Budget {
    /// A budget of `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Rc<Budget> {
        Rc::new(Budget { used: Cell::new(0), bytes_max, freed: Event::default() })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Bytes there are in all.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether [`Budget::take`] would not wait.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let used = self.used.get();
        used == 0 || used.saturating_add(bytes) <= self.bytes_max
    }

    /// Waits until there is room for `bytes`; more than the whole budget is let through alone.
    pub async fn take(self: &Rc<Self>, bytes: usize) -> Charge {
        loop {
            let seen = self.freed.generation();
            if self.has_room(bytes) {
                break;
            }
            self.freed.wait(seen).await;
        }
        let charge = Charge { budget: Rc::clone(self), bytes: Cell::new(0) };
        charge.add(bytes);
        charge
    }
}

impl Charge {
    /// Counts bytes that are there already.
    pub fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.budget.used.set(self.budget.used.get() + bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes.get());
        self.budget.freed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_does_not_fit_waits_until_something_is_given_back() {
        let budget = Budget::new(100);
        let mut first = pin!(budget.take(80));
        let Poll::Ready(first) = poll(&mut first) else { panic!("there is room") };
        let mut second = pin!(budget.take(30));
        assert!(poll(&mut second).is_pending());
        first.add(50);
        assert_eq!(budget.used(), 130, "a response is counted, and never waits");
        drop(first);
        let Poll::Ready(second) = poll(&mut second) else { panic!("there is room") };
        assert_eq!(budget.used(), 30);
        drop(second);
        let mut huge = pin!(budget.take(1_000));
        assert!(poll(&mut huge).is_ready(), "alone, anything goes");
    }
}
