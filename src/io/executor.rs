//! One pinned executor per shard, and the runtime seam on top of it.
//!
//! Owns the threads of the shards: [`run_shards`] starts them, pins each to a core, and waits for
//! their end. [`GlommioRuntime`] is what a shard uses of its executor.
//!
//! The executor runs the tasks; what they wait for, and how the thread waits with them, is the
//! business of [`Ring`]: `drive` is a task like the others, and never lets the executor sleep.
//!
//! Must never run a task outside [`spawn`], of which the ring would not know, nor create a task
//! queue, nor run blocking work on a pinned thread: helper threads call
//! [`unpin_current_thread`](super::cores::unpin_current_thread) first.
//!
//! Invariants: no shard runs before every executor exists, so a machine without io_uring or
//! lockable memory is a start-up error and not half a broker.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement};

use super::cores::cores;
use super::ring::{Noted, Ring, Sleep};
use super::{LocalFuture, Monotonic, Runtime, clock};
use crate::ids::ShardId;

/// How executors are built.
#[derive(Clone, Debug, Default)]
pub struct ExecutorOptions {
    /// Cores for the shards, one after the other; none means all, ascending.
    pub cores: Vec<usize>,
    /// How long an idle shard polls before it sleeps. Zero sleeps at once. While a read or write
    /// is under way it gives way at each look to the kernel's workers, which end it.
    pub spin_before_park: Duration,
}

/// Why the shards ended.
#[derive(Debug, thiserror::Error)]
pub enum ShardsError<E: fmt::Display + fmt::Debug> {
    /// An executor could not be made; no shard ran.
    #[error("shard {shard} cannot start: {source}")]
    Start {
        /// The shard.
        shard: ShardId,
        /// What the runtime reported.
        source: io::Error,
    },
    /// A shard returned an error, the first one to do so.
    #[error("shard {shard}: {error}")]
    Failed {
        /// The shard.
        shard: ShardId,
        /// What it returned.
        error: E,
    },
    /// A shard panicked. The other shards may still be running: the process has to exit.
    #[error("shard {shard} panicked: {message}")]
    Panicked {
        /// The shard.
        shard: ShardId,
        /// The panic's text.
        message: String,
    },
}

/// Runs one shard per element of `seeds`, each on its own thread pinned to a core (with more
/// shards than cores the pins wrap around), and returns when all have ended.
///
/// `run` is called on the shard's thread inside its executor. Returns the first error; a panic is
/// returned at once, without waiting for the others.
pub fn run_shards<T, E, F, R>(
    options: ExecutorOptions,
    seeds: Vec<T>,
    run: R,
) -> Result<(), ShardsError<E>>
where
    T: Send + 'static,
    E: fmt::Display + fmt::Debug + Send + 'static,
    F: Future<Output = Result<(), E>> + 'static,
    R: Fn(ShardId, T) -> F + Send + Sync + 'static,
{
    let count = seeds.len();
    let cores = if options.cores.is_empty() { cores() } else { options.cores };
    let run = Arc::new(run);
    let (ready_sender, ready) = crossbeam_channel::bounded(count);
    let (end_sender, ends) = crossbeam_channel::bounded(count);
    let mut starts = Vec::with_capacity(count);
    let mut threads = Vec::with_capacity(count);
    for (index, seed) in seeds.into_iter().enumerate() {
        let shard = ShardId(u16::try_from(index).unwrap_or(u16::MAX));
        let core = cores[index % cores.len()];
        let (start_sender, start) = crossbeam_channel::bounded(1);
        let place = ShardThread {
            shard,
            core,
            spin_before_park: options.spin_before_park,
            ready: ready_sender.clone(),
            start,
            ends: end_sender.clone(),
        };
        let run = Arc::clone(&run);
        let thread = std::thread::Builder::new()
            .name(format!("shard-{shard}"))
            .spawn(move || place.run(|| run(shard, seed)))
            .map_err(|source| ShardsError::Start { shard, source })?;
        starts.push(start_sender);
        threads.push(thread);
    }
    drop((ready_sender, end_sender));

    for (shard, made) in ready.iter().take(count) {
        if let Err(source) = made {
            // Dropping the start senders ends the threads that wait for them.
            drop(starts);
            for thread in threads {
                let _ = thread.join();
            }
            return Err(ShardsError::Start { shard, source });
        }
    }
    for start in &starts {
        let _ = start.send(());
    }
    first_end(&ends, count)?;
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

/// Runs `task` on an executor of the calling thread, unpinned: for offline commands and tests.
///
/// # Errors
/// The kernel has no ring to give, or too little memory may be locked.
pub fn run_here<T>(task: impl Future<Output = T>) -> io::Result<T> {
    run_over(Ring::new(Duration::ZERO)?, task)
}

/// The same over a ring of one's own.
pub(super) fn run_over<T>(ring: Ring, task: impl Future<Output = T>) -> io::Result<T> {
    Ok(run(&executor(Placement::Unbound)?, &Rc::new(ring), task))
}

/// Runs `task` and all that it spawns until `task` ends.
fn run<T>(executor: &LocalExecutor, ring: &Rc<Ring>, task: impl Future<Output = T>) -> T {
    ring.install();
    let result = executor.run(async {
        glommio::spawn_local(drive(Rc::clone(ring))).detach();
        let result = Noted::new(Box::pin(task)).await;
        ring.end();
        result
    });
    Ring::uninstall();
    result
}

/// Takes the ring's turns, between those of the other tasks.
async fn drive(ring: Rc<Ring>) {
    poll_fn(|context| {
        if ring.has_ended() {
            return Poll::Ready(());
        }
        ring.turn();
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An executor that needs nothing of its own rings.
fn executor(placement: Placement) -> io::Result<LocalExecutor> {
    LocalExecutorBuilder::new(placement)
        .io_memory(REGISTERED_BYTES)
        .ring_depth(RING_DEPTH)
        // Only for tasks that never give way, of which there are none.
        .preempt_timer(PREEMPTION)
        .make()
        .map_err(|error| match error {
            GlommioError::IoError(error) => error,
            GlommioError::EnhancedIoError { source, .. } => source,
            other => io::Error::from(other),
        })
}

/// Runs `task` beside the one that calls.
#[cfg(test)]
pub(super) fn spawn<T: 'static>(task: impl Future<Output = T> + 'static) -> glommio::Task<T> {
    glommio::spawn_local(Noted::new(Box::pin(task)))
}

/// Waits so long.
pub(super) fn sleep_ms(milliseconds: u64) -> impl Future<Output = ()> {
    Sleep::until(clock::now().plus_ms(milliseconds).0)
}

/// What a shard uses of its executor. Made and used inside it.
pub struct GlommioRuntime {
    random: RefCell<RandomPool>,
}

impl GlommioRuntime {
    /// The runtime of the current thread's executor.
    #[must_use]
    pub fn new() -> GlommioRuntime {
        GlommioRuntime {
            random: RefCell::new(RandomPool { words: [0; RANDOM_POOL_WORDS], unused: 0 }),
        }
    }
}

impl Default for GlommioRuntime {
    fn default() -> GlommioRuntime {
        GlommioRuntime::new()
    }
}

impl Runtime for GlommioRuntime {
    fn now(&self) -> Monotonic {
        clock::now()
    }

    fn wall_ms(&self) -> i64 {
        clock::wall_ms()
    }

    fn sleep_until(&self, deadline: Monotonic) -> LocalFuture<'static, ()> {
        Box::pin(Sleep::until(deadline.0))
    }

    fn spawn(&self, task: LocalFuture<'static, ()>) {
        glommio::spawn_local(Noted::new(task)).detach();
    }

    fn yield_now(&self) -> LocalFuture<'static, ()> {
        Box::pin(turn())
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().next()
    }
}

/// Lets every other ready task run, and completions and wakes arrive.
pub(super) async fn turn() {
    futures_lite::future::yield_now().await;
}

/// Random words fetched from the operating system many at a time.
struct RandomPool {
    words: [u64; RANDOM_POOL_WORDS],
    unused: usize,
}

impl RandomPool {
    fn next(&mut self) -> u64 {
        if self.unused == 0 {
            let mut bytes = [0u8; RANDOM_POOL_WORDS * 8];
            getrandom::fill(&mut bytes).expect("invariant: the kernel has random bytes");
            for (word, bytes) in self.words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = bytes.iter().fold(0, |word, &byte| (word << 8) | u64::from(byte));
            }
            self.unused = RANDOM_POOL_WORDS;
        }
        self.unused -= 1;
        std::mem::take(&mut self.words[self.unused])
    }
}

/// One shard's thread, before it runs.
struct ShardThread<E> {
    shard: ShardId,
    core: usize,
    spin_before_park: Duration,
    ready: Sender<(ShardId, io::Result<()>)>,
    start: Receiver<()>,
    ends: Sender<ShardEnd<E>>,
}

struct ShardEnd<E> {
    shard: ShardId,
    result: Result<Result<(), E>, Box<dyn Any + Send>>,
}

impl<E> ShardThread<E> {
    fn run<F>(self, future: impl FnOnce() -> F)
    where
        F: Future<Output = Result<(), E>> + 'static,
    {
        let made = executor(Placement::Fixed(self.core))
            .and_then(|executor| Ok((executor, Rc::new(Ring::new(self.spin_before_park)?))));
        let (executor, ring) = match made {
            Ok(made) => made,
            Err(error) => {
                let _ = self.ready.send((self.shard, Err(error)));
                return;
            }
        };
        let _ = self.ready.send((self.shard, Ok(())));
        drop(self.ready);
        if self.start.recv().is_err() {
            return;
        }
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            run(&executor, &ring, async move { future().await })
        }));
        let _ = self.ends.send(ShardEnd { shard: self.shard, result });
    }
}

/// Waits for `count` ends, or for the first panic; returns the first error.
fn first_end<E: fmt::Display + fmt::Debug>(
    ends: &Receiver<ShardEnd<E>>,
    count: usize,
) -> Result<(), ShardsError<E>> {
    let mut first = Ok(());
    for ShardEnd { shard, result } in ends.iter().take(count) {
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => first = first.and(Err(ShardsError::Failed { shard, error })),
            Err(payload) => {
                let message = panic_text(payload.as_ref());
                return Err(ShardsError::Panicked { shard, message });
            }
        }
    }
    first
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

/// The cores the process started with; asked once, before any thread is pinned.
/// Memory that an executor registers with the kernel. None of it is used.
const REGISTERED_BYTES: usize = 64 * 1024;

/// Operations that fit into an executor's own rings. None is ever there but its timers.
const RING_DEPTH: usize = 8;

/// How often an executor looks after its own rings.
const PREEMPTION: Duration = Duration::from_secs(60);

const RANDOM_POOL_WORDS: usize = 32;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn shards_run_pinned_with_their_seeds_and_the_first_error_returns() {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let ended: Result<(), ShardsError<String>> =
            run_shards(ExecutorOptions::default(), vec!["a", "b", "c"], move |shard, seed| {
                let sender = sender.clone();
                async move {
                    let cpus = rustix::thread::sched_getaffinity(None).expect("affinity");
                    let _ = sender.send((shard.0, seed, cpus.count()));
                    if shard.0 == 1 { Err(format!("{seed} ends")) } else { Ok(()) }
                }
            });
        let mut seen: Vec<_> = receiver.try_iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, [(0, "a", 1), (1, "b", 1), (2, "c", 1)]);
        assert_eq!(ended.expect_err("error").to_string(), "shard 1: b ends");
    }

    #[test]
    fn a_panic_is_returned_at_once() {
        let ended: Result<(), ShardsError<String>> =
            run_shards(ExecutorOptions::default(), vec![()], |_, ()| async {
                panic!("on purpose");
            });
        assert_eq!(ended.expect_err("panic").to_string(), "shard 0 panicked: on purpose");
    }

    #[test]
    fn the_runtime_yields_sleeps_and_spawns() {
        run_here(async {
            let runtime = GlommioRuntime::new();
            let order = Rc::new(RefCell::new(Vec::new()));
            for name in ["first", "second"] {
                let order = Rc::clone(&order);
                runtime.spawn(Box::pin(async move { order.borrow_mut().push(name) }));
            }
            runtime.yield_now().await;
            assert_eq!(*order.borrow(), ["first", "second"]);

            let deadline = runtime.now().plus_ms(3);
            runtime.sleep_until(deadline).await;
            assert!(runtime.now() >= deadline);
            runtime.sleep_until(Monotonic(0)).await;
            assert_ne!(runtime.random(), runtime.random());
        })
        .expect("executor");
    }

    #[test]
    fn a_busy_yielding_task_does_not_hold_up_timers() {
        run_here(async {
            let runtime = GlommioRuntime::new();
            let fired = Rc::new(Cell::new(false));
            let sets = Rc::clone(&fired);
            let timer = runtime.sleep_until(runtime.now().plus_ms(2));
            runtime.spawn(Box::pin(async move {
                timer.await;
                sets.set(true);
            }));
            let given_up = runtime.now().plus_ms(5_000);
            let start = runtime.now();
            while !fired.get() && runtime.now() < given_up {
                runtime.yield_now().await;
            }
            let waited_ms = runtime.now().ms_since(start);
            assert!(fired.get() && waited_ms < 90, "fired after {waited_ms} ms");
        })
        .expect("executor");
    }
}
