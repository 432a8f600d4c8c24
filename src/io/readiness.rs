//! Waiting until a descriptor can be read or written.
//!
//! Owns one registration with the ring per descriptor and direction. Must never cancel one that the
//! kernel has: whoever gives up waiting leaves it behind for the next who waits. [`quiet`] waits
//! until none is left, and belongs before the descriptor is dropped.
//!
//! Why: glommio-ng 0.12.0 names an operation by the index of its place in a table (`to_user_data`),
//! which is taken again as soon as the operation ends, and cancels by that name, later. A hundred
//! cancellations at once do not fit into the ring; those left over then hit whoever has got the
//! place in between: the poll of another connection, or a write of the journal.
//!
//! [`quiet`]: Readiness::quiet

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use glommio::io::{PollState, PollableFd};

use super::file::io_error;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// Something to read, or the end.
    Read,
    /// Space to write into, or the end.
    Write,
}

/// The registration of one descriptor for one direction.
pub(super) struct Readiness {
    direction: Direction,
    state: RefCell<PollState>,
    is_registered: Cell<bool>,
}

impl Readiness {
    /// Nothing is registered yet.
    pub(super) fn new(direction: Direction) -> Readiness {
        Readiness { direction, state: RefCell::default(), is_registered: Cell::new(false) }
    }

    /// Waits until `descriptor`, always the same one, seems ready. It may not be: a registration
    /// that somebody else left behind may tell what was.
    ///
    /// # Errors
    /// The executor is ending, or the kernel cannot wait for such a descriptor.
    pub(super) async fn wait<T: AsRawFd>(&self, descriptor: &PollableFd<T>) -> io::Result<()> {
        poll_fn(|context| self.poll(descriptor, context)).await
    }

    /// Waits until the kernel holds no registration: soon after both ends of a socket are shut.
    pub(super) async fn quiet<T: AsRawFd>(&self, descriptor: &PollableFd<T>) {
        if self.is_registered.get() {
            // An error too says that it is gone.
            let _ = self.wait(descriptor).await;
        }
    }

    fn poll<T: AsRawFd>(
        &self,
        descriptor: &PollableFd<T>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.is_registered.set(true);
        let mut state = self.state.borrow_mut();
        let result = match self.direction {
            Direction::Read => descriptor.poll_readable(context, &mut state),
            Direction::Write => descriptor.poll_writable(context, &mut state),
        };
        let Poll::Ready(result) = result else { return Poll::Pending };
        self.is_registered.set(false);
        Poll::Ready(match result.map_err(io_error) {
            // The runtime's word for a cancelled operation. Nobody meant this one: look again.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
            other => other,
        })
    }
}
