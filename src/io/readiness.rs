//! Waiting until a descriptor can be read or written.
//!
//! Owns one registration with the ring per descriptor and direction. Whoever gives up waiting
//! leaves it behind for the next who waits: nothing is ever cancelled. [`quiet`] waits until none
//! is left, and belongs before the descriptor is dropped, which stays open for as long.
//!
//! [`quiet`]: Readiness::quiet

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use io_uring::opcode;
use io_uring::types::Fd;

use super::ring::{Keep, Operation, Ring};

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
    registered: RefCell<Option<Operation>>,
}

impl Readiness {
    /// Nothing is registered yet.
    pub(super) fn new(direction: Direction) -> Readiness {
        Readiness { direction, registered: RefCell::new(None) }
    }

    /// Waits until `descriptor`, always the same one, seems ready. It may not be: a registration
    /// that somebody else left behind may tell what was.
    ///
    /// # Errors
    /// The kernel cannot wait for such a descriptor.
    pub(super) async fn wait<T: AsRawFd + 'static>(&self, descriptor: &Rc<T>) -> io::Result<()> {
        poll_fn(|context| {
            let mut registered = self.registered.borrow_mut();
            let operation = registered.get_or_insert_with(|| self.register(descriptor));
            let ended = Pin::new(operation).poll(context);
            take_result(&mut registered, ended)
        })
        .await
    }

    /// Waits until the kernel holds no registration: soon after both ends of a socket are shut.
    pub(super) async fn quiet(&self) {
        poll_fn(|context| {
            let mut registered = self.registered.borrow_mut();
            let Some(operation) = registered.as_mut() else { return Poll::Ready(()) };
            let ended = Pin::new(operation).poll(context);
            // An error too says that it is gone.
            take_result(&mut registered, ended).map(drop)
        })
        .await;
    }

    fn register<T: AsRawFd + 'static>(&self, descriptor: &Rc<T>) -> Operation {
        let events = match self.direction {
            Direction::Read => libc::POLLIN | libc::POLLRDHUP,
            Direction::Write => libc::POLLOUT,
        };
        let entry = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), events as u32).build();
        Ring::current().start(entry, Keep::Watched(Rc::clone(descriptor) as Rc<dyn AsRawFd>))
    }
}

/// The result of a registration, which ends with it.
fn take_result(
    registered: &mut Option<Operation>,
    ended: Poll<(io::Result<u32>, Keep)>,
) -> Poll<io::Result<()>> {
    let Poll::Ready((result, _)) = ended else { return Poll::Pending };
    *registered = None;
    Poll::Ready(result.map(drop))
}
