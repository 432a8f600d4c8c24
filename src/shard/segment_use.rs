//! Who uses a partition's complete segments: many readers, or one who replaces them.
//!
//! Owns no data. A reader goes from batch to batch by position; a segment that is replaced under
//! it would be read at positions of the other. So whoever reads segments holds them shared, and
//! whoever replaces some holds them alone for the moment in which names and the list of segments
//! change. One who wants them alone comes before readers that come later: a reader must not ask
//! twice. For what it has others read it takes a second share along ([`SegmentUse::join`]).

use std::cell::Cell;

use super::event::Event;

/// The use of one partition's segments.
#[derive(Default)]
pub struct SegmentUse {
    readers: Cell<usize>,
    /// Somebody has, or waits for, the segments alone.
    alone: Cell<bool>,
    changed: Event,
}

/// A reader's share.
pub struct Shared<'a>(&'a SegmentUse);

/// Nobody else uses them.
pub struct Alone<'a>(&'a SegmentUse);

impl SegmentUse {
    /// Waits until the segments may be read.
    pub async fn shared(&self) -> Shared<'_> {
        loop {
            let seen = self.changed.generation();
            if !self.alone.get() {
                self.readers.set(self.readers.get() + 1);
                return Shared(self);
            }
            self.changed.wait(seen).await;
        }
    }

    /// A second share of one who has a share, given back with [`SegmentUse::leave`].
    pub fn join(&self) {
        assert!(self.readers.get() > 0, "who joins has a share");
        self.readers.set(self.readers.get() + 1);
    }

    /// Gives a share back.
    pub fn leave(&self) {
        let readers = self.readers.get() - 1;
        self.readers.set(readers);
        if readers == 0 && self.alone.get() {
            self.changed.notify();
        }
    }

    /// Waits until nobody reads them, and keeps others from it.
    pub async fn alone(&self) -> Alone<'_> {
        loop {
            let seen = self.changed.generation();
            if !self.alone.replace(true) {
                break;
            }
            self.changed.wait(seen).await;
        }
        // From here on it is given back, also if waiting is given up.
        let alone = Alone(self);
        loop {
            let seen = self.changed.generation();
            if self.readers.get() == 0 {
                return alone;
            }
            self.changed.wait(seen).await;
        }
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.alone.set(false);
        self.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn one_alone_waits_for_readers_and_holds_up_later_ones() {
        let segments = SegmentUse::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(segments.shared());
        let Poll::Ready(reader) = first.as_mut().poll(&mut context) else { panic!("it is free") };
        let mut alone = Box::pin(segments.alone());
        assert!(alone.as_mut().poll(&mut context).is_pending());
        let mut second = pin!(segments.shared());
        assert!(second.as_mut().poll(&mut context).is_pending(), "one waits for them alone");
        segments.join();
        drop(reader);
        assert!(alone.as_mut().poll(&mut context).is_pending(), "something is read for it still");
        segments.leave();
        let Poll::Ready(held) = alone.as_mut().poll(&mut context) else { panic!("none reads") };
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        let Poll::Ready(_reader) = second.as_mut().poll(&mut context) else { panic!("free again") };
        let mut given_up = Box::pin(segments.alone());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        drop(given_up);
        assert!(pin!(segments.shared()).poll(&mut context).is_ready());
    }
}
