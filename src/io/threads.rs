//! Work on other threads, and wakes from there.
//!
//! Owns the helper thread of a shard, to which everything goes that may block: names, listings,
//! small files, closing. What takes long has a thread of its own.
//!
//! Must never run such work on the shard's thread. Invariants: the work of one shard runs in the
//! order asked for; a result reaches its task even if it is the last thing to happen.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

use super::cores::unpin_current_thread;
use super::ring::Ring;

/// A waker of the same task that may be called on any thread. What is no task of a shard (of the
/// simulation, of a test) brings a waker that may be anyway.
pub(super) fn from_any_thread(waker: &Waker) -> Waker {
    match Ring::of_this_thread() {
        Some(ring) => ring.far_waker(waker),
        None => waker.clone(),
    }
}

/// Runs `work` on the helper thread of this shard, one at a time.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let answer = Arc::new(Answer::default());
    let given = Arc::clone(&answer);
    Ring::current().help(Box::new(move || given.give(work())))?;
    poll_fn(|context| answer.poll(context)).await
}

/// Runs `work` on an unpinned thread of its own.
pub(super) async fn own_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let answer = Arc::new(Answer::default());
    let given = Arc::clone(&answer);
    std::thread::Builder::new().name("disk-sync".to_owned()).spawn(move || {
        unpin_current_thread();
        given.give(work());
    })?;
    poll_fn(|context| answer.poll(context)).await
}

/// Work for a helper thread.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The helper thread of one shard, started when there is work for it first.
#[derive(Default)]
pub(super) struct Helper(Option<(Sender<Job>, JoinHandle<()>)>);

impl Helper {
    /// Has `job` done after those given before.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn give(&mut self, job: Job) -> io::Result<()> {
        if self.0.is_none() {
            // Bounded by the tasks of the shard, each of which waits for its job.
            let (jobs, given) = crossbeam_channel::unbounded::<Job>();
            let thread = std::thread::Builder::new().name("disk-helper".to_owned());
            let thread = thread.spawn(move || {
                unpin_current_thread();
                given.iter().for_each(|job| job());
            })?;
            self.0 = Some((jobs, thread));
        }
        if let Some((jobs, _)) = &self.0 {
            jobs.send(job).expect("invariant: the helper lives as long as its queue");
        }
        Ok(())
    }

    /// Waits for what was given, and ends.
    pub(super) fn end(&mut self) {
        if let Some((jobs, thread)) = self.0.take() {
            drop(jobs);
            // A job that panicked has ended its thread, and nobody waits for it any more.
            let _ = thread.join();
        }
    }
}

/// What another thread answers.
struct Answer<T>(Mutex<(Option<io::Result<T>>, Option<Waker>)>);

impl<T> Default for Answer<T> {
    fn default() -> Answer<T> {
        Answer(Mutex::new((None, None)))
    }
}

impl<T> Answer<T> {
    fn give(&self, result: io::Result<T>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 = Some(result);
        let waker = held.1.take();
        drop(held);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                held.1 = Some(from_any_thread(context.waker()));
                Poll::Pending
            }
        }
    }
}
