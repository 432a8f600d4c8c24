//! The byte budget of a shard's connections.
//!
//! Owns the count of bytes that requests and responses hold, whole or not. Nothing that is there
//! already is refused: what is read is counted when it is there, and over the budget sockets are
//! left unread. Only reads of logs are granted room beforehand. A fifth is kept for connections
//! that hold little, so that those who hold much do not keep them waiting. Invariant: every byte
//! counted is given back when its [`Charge`] is dropped. What the one connection holds that is read
//! in any case does not keep those waiting that hold little.

use std::cell::Cell;
use std::rc::Rc;

use super::event::{Event, Wait};

/// A bounded number of bytes.
pub struct Budget {
    used: Cell<usize>,
    /// All of it.
    bytes_max: usize,
    /// What those may use who hold much.
    shared_bytes_max: usize,
    /// Held by the one that is read in any case.
    exempt_bytes: Cell<usize>,
    freed: Event,
    waiting: Cell<usize>,
    pressed: Event,
}

/// Bytes taken from a budget.
pub struct Charge {
    budget: Rc<Budget>,
    bytes: Cell<usize>,
}

/// Somebody waits for room for as long as this is there.
pub struct Waiting<'a>(&'a Budget);

impl Budget {
    /// A budget of `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Rc<Budget> {
        Rc::new(Budget {
            used: Cell::new(0),
            bytes_max,
            shared_bytes_max: bytes_max - bytes_max / 5,
            exempt_bytes: Cell::new(0),
            freed: Event::default(),
            waiting: Cell::new(0),
            pressed: Event::default(),
        })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Bytes there are.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes beyond what those may use who hold much.
    #[must_use]
    pub fn excess(&self) -> usize {
        (self.used.get() + 1).saturating_sub(self.shared_bytes_max)
    }

    /// Whether nothing more is read for a connection that holds little, or much.
    #[must_use]
    pub fn is_over(&self, holds_little: bool) -> bool {
        match holds_little {
            true => self.used.get().saturating_sub(self.exempt_bytes.get()) >= self.bytes_max,
            false => self.used.get() >= self.shared_bytes_max,
        }
    }

    /// The one that is read in any case holds so many bytes now.
    pub fn exempt(&self, bytes: usize) {
        if self.exempt_bytes.replace(bytes) < bytes {
            self.freed.notify();
        }
    }

    /// Whether somebody waits for room.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Counts bytes that are there already.
    #[must_use]
    pub fn charge(self: &Rc<Self>, bytes: usize) -> Charge {
        let charge = Charge { budget: Rc::clone(self), bytes: Cell::new(0) };
        charge.add(bytes);
        charge
    }

    /// Waits for room and takes up to `wanted` bytes of it, but `least` in any case.
    pub async fn take_up_to(
        self: &Rc<Self>,
        holds_little: impl Fn() -> bool,
        wanted: usize,
        least: usize,
    ) -> Charge {
        loop {
            let seen = self.generation();
            if !self.is_over(false) || !self.is_over(holds_little()) {
                break;
            }
            let _waiting = self.begin_waiting();
            self.freed(seen).await;
        }
        let free = self.shared_bytes_max.saturating_sub(self.used.get());
        self.charge(wanted.min(free.max(least)))
    }

    /// Counts the times there was room again, or somebody was asked to look again.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.freed.generation()
    }

    /// Waits until there is room, or a look is due, after generation `seen`.
    #[must_use]
    pub fn freed(&self, seen: u64) -> Wait<'_> {
        self.freed.wait(seen)
    }

    /// Lets those that wait look again.
    pub fn look_again(&self) {
        self.freed.notify();
    }

    /// Says that somebody waits, until the value is dropped.
    #[must_use]
    pub fn begin_waiting(&self) -> Waiting<'_> {
        let before = self.waiting.get();
        self.waiting.set(before + 1);
        if before == 0 {
            self.pressed.notify();
        }
        Waiting(self)
    }

    /// Waits until somebody waits for room.
    pub async fn pressed(&self) {
        let seen = self.pressed.generation();
        if !self.is_pressed() {
            self.pressed.wait(seen).await;
        }
    }

    fn give_back(&self, bytes: usize) {
        let was_over = [self.is_over(true), self.is_over(false)];
        self.used.set(self.used.get() - bytes);
        if was_over != [self.is_over(true), self.is_over(false)] {
            self.freed.notify();
        }
    }
}

impl Charge {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Counts bytes that are there already.
    pub fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.budget.used.set(self.budget.used.get() + bytes);
    }

    /// Makes it so many bytes.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        if bytes >= before {
            self.budget.used.set(self.budget.used.get() + (bytes - before));
        } else {
            self.budget.give_back(before - bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes.get());
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
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
    fn what_is_there_is_counted_and_reads_wait_until_there_is_room() {
        let budget = Budget::new(125);
        let much = || false;
        let first = budget.charge(80);
        let mut read = pin!(budget.take_up_to(much, 50, 10));
        let Poll::Ready(granted) = poll(&mut read) else { panic!("there is room") };
        assert_eq!(granted.bytes(), 20, "what is left");
        let mut second = pin!(budget.take_up_to(much, 50, 10));
        assert!(poll(&mut second).is_pending() && budget.is_pressed());
        assert_eq!(budget.excess(), 1);
        granted.set(5);
        let Poll::Ready(second) = poll(&mut second) else { panic!("there is room") };
        assert!(!budget.is_pressed());
        assert_eq!(second.bytes(), 15);
        first.add(50);
        assert_eq!(budget.used(), 150, "what is there is counted whatever it is");
        second.set(0);
        drop((first, granted));
        let mut third = pin!(budget.take_up_to(much, 5, 10));
        assert!(poll(&mut third).is_ready());
        assert_eq!(budget.used(), 0, "all of it came back");
    }

    #[test]
    fn what_the_one_holds_that_is_read_in_any_case_keeps_nobody_waiting() {
        let budget = Budget::new(125);
        let others = budget.charge(100);
        let oldest = budget.charge(60);
        assert!(budget.is_over(true) && budget.is_over(false));
        let seen = budget.generation();
        budget.exempt(60);
        assert!(!budget.is_over(true) && budget.is_over(false));
        assert_ne!(budget.generation(), seen, "those that wait look again");
        others.add(25);
        assert!(budget.is_over(true));
        budget.exempt(0);
        others.set(64);
        assert!(!budget.is_over(true) && budget.is_over(false));
        drop((others, oldest));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn who_holds_little_has_room_of_its_own_and_at_least_what_a_read_needs() {
        let budget = Budget::new(125);
        let most = budget.charge(110);
        let mut much = pin!(budget.take_up_to(|| false, 1_000, 64));
        assert!(poll(&mut much).is_pending());
        let mut little = pin!(budget.take_up_to(|| true, 1_000, 64));
        let Poll::Ready(granted) = poll(&mut little) else { panic!("there is room") };
        assert_eq!(granted.bytes(), 64);
        let mut another = pin!(budget.take_up_to(|| true, 1_000, 64));
        assert!(poll(&mut another).is_pending());
        drop(granted);
        assert!(poll(&mut another).is_ready() && poll(&mut much).is_pending());
        drop(most);
        assert!(poll(&mut much).is_ready());
    }
}
