//! One operation of the ring, from its start to its completion.
//!
//! Owns [`Operation`], the future of the result, and [`Keep`], what the kernel uses meanwhile.
//!
//! Invariants: dropping an [`Operation`] neither stops the kernel nor frees what it uses; the slot
//! goes with the completion or with the future, whichever comes last.

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{AlignedBuffer, Ring};

/// What the kernel uses of an operation.
#[allow(dead_code, reason = "held for as long as the kernel uses it")]
pub(in crate::io) enum Keep {
    /// A descriptor it watches.
    Watched(Rc<dyn AsRawFd>),
    /// A file it syncs.
    Synced(Rc<dyn AsRawFd>),
    /// A file, and what is written to it.
    Written(Rc<dyn AsRawFd>, Arc<AlignedBuffer>),
    /// A file, and what is read into.
    Read(Rc<dyn AsRawFd>, AlignedBuffer),
}

impl Keep {
    /// Whether the operation ends by itself, soon, and has to be waited for.
    pub(super) fn is_transfer(&self) -> bool {
        !matches!(self, Keep::Watched(_))
    }
}

/// The result of an operation: what the kernel returned, and what it used.
pub(in crate::io) struct Operation {
    ring: Rc<Ring>,
    /// `None` once the result was handed out.
    index: Option<usize>,
}

impl Operation {
    pub(super) fn new(ring: Rc<Ring>, index: usize) -> Operation {
        Operation { ring, index: Some(index) }
    }
}

impl Future for Operation {
    type Output = (io::Result<u32>, Keep);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index.expect("invariant: an operation is not polled after its end");
        let mut state = self.ring.state.borrow_mut();
        let slot = &mut state.operations[index];
        let Some(result) = slot.result else {
            let waker = context.waker();
            if slot.waker.as_ref().is_none_or(|held| !held.will_wake(waker)) {
                let replaced = slot.waker.replace(waker.clone());
                drop(state);
                drop(replaced);
            }
            return Poll::Pending;
        };
        let keep = state.operations.remove(index).keep;
        drop(state);
        self.index = None;
        let result = u32::try_from(result)
            .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
        Poll::Ready((result, keep))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut state = self.ring.state.borrow_mut();
        let slot = &mut state.operations[index];
        slot.is_abandoned = true;
        let waker = slot.waker.take();
        let ended = slot.result.is_some().then(|| state.operations.remove(index));
        drop(state);
        drop((waker, ended));
    }
}
