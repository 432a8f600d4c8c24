//! How other threads wake tasks of a shard.
//!
//! Owns the wakers that may be moved to other threads, the queue of what they call for, and the
//! event that ends the sleep of the shard's thread.
//!
//! Invariants: a call is in the queue before the caller looks whether the shard sleeps, and the
//! shard says that it sleeps before it looks into the queue, with a full fence between: one of the
//! two sees the other. An event is written at most once per sleep.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Wake, Waker};

use crossbeam_channel::{Receiver, Sender};
use rustix::event::EventfdFlags;

/// What another thread calls for, by the number of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// Wake it.
    Wake(usize),
    /// Nobody will call for it any more.
    Forget(usize),
}

/// The calling side, shared by all threads.
pub(super) struct Doorbell {
    calls: Sender<Call>,
    is_asleep: AtomicBool,
    event: OwnedFd,
}

/// The hearing side, of the shard's thread.
pub(super) struct Calls(Receiver<Call>);

/// A doorbell and what is heard of it.
pub(super) fn hang() -> io::Result<(Arc<Doorbell>, Calls)> {
    // Bounded by the wakers handed out: each is called for once per arming, and forgotten once.
    let (calls, heard) = crossbeam_channel::unbounded();
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    Ok((Arc::new(Doorbell { calls, is_asleep: AtomicBool::new(false), event }), Calls(heard)))
}

impl Calls {
    pub(super) fn next(&self) -> Option<Call> {
        self.0.try_recv().ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Doorbell {
    /// A waker for the task with this number.
    pub(super) fn waker(self: &Arc<Doorbell>, number: usize) -> Waker {
        Waker::from(Arc::new(Called { number, doorbell: Arc::clone(self) }))
    }

    /// Says that the shard goes to sleep; false if it must not, since it was called.
    pub(super) fn fall_asleep(&self, calls: &Calls) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let may_sleep = calls.is_empty();
        if !may_sleep {
            self.wake_up();
        }
        may_sleep
    }

    /// Says that the shard is awake.
    pub(super) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    fn call(&self, number: usize) {
        // Nobody is there any more if the shard has ended.
        let _ = self.calls.send(Call::Wake(number));
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            // Cannot fail: the count is far from its end.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

/// The inside of a waker for other threads.
struct Called {
    number: usize,
    doorbell: Arc<Doorbell>,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.doorbell.call(self.number);
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        // Nothing to wake the shard for.
        let _ = self.doorbell.calls.send(Call::Forget(self.number));
    }
}
