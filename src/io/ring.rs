//! The ring of one shard: what it has the kernel do, and how it waits.
//!
//! Owns one io_uring per thread, the operations under way on it, the timers of its tasks, and the
//! one place where the thread sleeps: [`Ring::turn`], called by a task of the executor that is
//! always ready, so that the executor itself never finds its queue empty and never sleeps.
//!
//! Why not the executor's own rings: falling asleep and waking takes glommio-ng 0.12.0 nine
//! `io_uring_enter`, because it arms and cancels timers and links its three rings anew each time.
//! One small request sleeps twice. Here it takes one, which also submits and also waits for the
//! next timer.
//!
//! Must never cancel an operation: whoever gives up waiting leaves it to its end, with all that the
//! kernel uses of it. Must never wake a task while its own state is borrowed: a wake may drop one.
//! Must never sleep while a task is ready: every task runs inside [`Noted`].
//!
//! Invariants: memory and descriptors of an operation live until its completion was seen; a ring
//! ends only when no transfer is under way; what another thread calls for is heard before the
//! thread sleeps, or wakes it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use slab::Slab;

use self::doorbell::{Call, Calls, Doorbell};
use super::threads::{Helper, Job};
use super::{AlignedBuffer, clock};

mod doorbell;
mod operation;

pub(super) use operation::{Keep, Operation};

/// The ring of the current thread.
pub(super) struct Ring {
    uring: RefCell<IoUring>,
    state: RefCell<State>,
    calls: Calls,
    doorbell: Arc<Doorbell>,
    /// Whether the doorbell's read is under way.
    is_listening: Cell<bool>,
    /// A task has run since the last turn, and may have made others ready.
    has_run: Cell<bool>,
    has_ended: Cell<bool>,
    /// When the first operation that is not submitted yet was queued.
    queued_ns: Cell<Option<u64>>,
    spin_ns: u64,
    helper: RefCell<Helper>,
    /// Room for completions between two turns.
    completions: RefCell<Vec<(u64, i32)>>,
}

#[derive(Default)]
struct State {
    operations: Slab<Slot>,
    /// Operations that read or write memory or files.
    transfers: usize,
    /// By deadline and number.
    timers: BTreeMap<(u64, u64), Waker>,
    timers_made: u64,
    /// Tasks that other threads may wake, by the number they know them by.
    called: Slab<Waker>,
}

/// One operation.
struct Slot {
    keep: Keep,
    result: Option<i32>,
    waker: Option<Waker>,
    /// Nobody asks for the result any more.
    is_abandoned: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Ring>>> = const { RefCell::new(None) };
}

impl Ring {
    /// A ring for the current thread, which polls for `spin` before it sleeps.
    ///
    /// # Errors
    /// The kernel has none to give.
    pub(super) fn new(spin: Duration) -> io::Result<Ring> {
        Ring::over(deferring().or_else(plain_if_unknown)?, spin)
    }

    fn over(uring: IoUring, spin: Duration) -> io::Result<Ring> {
        let (doorbell, calls) = doorbell::hang()?;
        Ok(Ring {
            uring: RefCell::new(uring),
            state: RefCell::default(),
            calls,
            doorbell,
            is_listening: Cell::new(false),
            has_run: Cell::new(true),
            has_ended: Cell::new(false),
            queued_ns: Cell::new(None),
            spin_ns: u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX),
            helper: RefCell::default(),
            completions: RefCell::default(),
        })
    }

    /// The ring of the task that calls.
    pub(super) fn current() -> Rc<Ring> {
        Ring::of_this_thread().expect("invariant: tasks of a shard run beside its ring")
    }

    /// The ring of this thread, if it has one.
    pub(super) fn of_this_thread() -> Option<Rc<Ring>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Makes this the ring of the current thread.
    pub(super) fn install(self: &Rc<Ring>) {
        CURRENT.set(Some(Rc::clone(self)));
    }

    /// Takes the ring away from the current thread, once no task runs there any more.
    pub(super) fn uninstall() {
        CURRENT.set(None);
    }

    /// Ends the work of this ring: waits for the transfers and the helper's jobs under way, and
    /// forgets every task. Tasks that were ready run once more; what they start is not begun.
    pub(super) fn end(&self) {
        self.has_ended.set(true);
        while self.state.borrow().transfers > 0 {
            self.enter(Wait::Until(None));
            self.reap();
        }
        self.helper.borrow_mut().end();
        let mut state = self.state.borrow_mut();
        let timers = std::mem::take(&mut state.timers);
        let called = std::mem::take(&mut state.called);
        let waiting: Vec<_> =
            state.operations.iter_mut().map(|(_, slot)| slot.waker.take()).collect();
        drop(state);
        drop((timers, called, waiting));
    }

    /// Whether [`Ring::end`] was called.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// One turn: hears what has come in and wakes whom it is for; sleeps if there is nothing and
    /// no other task has run since the last turn, so that none can be ready.
    pub(super) fn turn(&self) {
        let has_run = self.has_run.replace(false);
        let has_heard = self.hear();
        if !has_run && !has_heard {
            self.sleep();
        } else if self.is_due() {
            self.enter(Wait::No);
        }
        self.reap();
        self.fire_timers();
    }

    /// Hands an operation to the kernel at the next turn. `entry` names memory and descriptors of
    /// `keep` only.
    pub(super) fn start(self: &Rc<Ring>, entry: squeue::Entry, keep: Keep) -> Operation {
        let index = {
            let mut state = self.state.borrow_mut();
            state.transfers += usize::from(keep.is_transfer());
            let slot = Slot { keep, result: None, waker: None, is_abandoned: false };
            state.operations.insert(slot)
        };
        self.push(&entry.user_data(index as u64));
        Operation::new(Rc::clone(self), index)
    }

    /// A waker of the same task for other threads.
    pub(super) fn far_waker(&self, waker: &Waker) -> Waker {
        let number = self.state.borrow_mut().called.insert(waker.clone());
        self.doorbell.waker(number)
    }

    /// Has `job` done by the helper thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn help(&self, job: Job) -> io::Result<()> {
        self.helper.borrow_mut().give(job)
    }

    fn push(&self, entry: &squeue::Entry) {
        loop {
            {
                let mut uring = self.uring.borrow_mut();
                // SAFETY: what the entry points to is kept by its slot, or static.
                if unsafe { uring.submission().push(entry) }.is_ok() {
                    break;
                }
            }
            self.enter(Wait::No);
            self.reap();
        }
        if self.queued_ns.get().is_none() {
            self.queued_ns.set(Some(clock::now().0));
        }
    }

    /// Whether a turn that does not sleep has reason to ask the kernel: completions wait to be
    /// posted, or an operation has waited long enough for others to go with it.
    fn is_due(&self) -> bool {
        let has_work = self.uring.borrow_mut().submission().taskrun();
        has_work
            || self
                .queued_ns
                .get()
                .is_some_and(|queued_ns| clock::now().0.saturating_sub(queued_ns) >= QUEUED_NS_MAX)
    }

    /// Waits for a completion, the next timer, or a call from another thread.
    fn sleep(&self) {
        if self.spin_ns > 0 && self.spin() {
            return;
        }
        self.listen();
        if self.doorbell.fall_asleep(&self.calls) {
            let now_ns = clock::now().0;
            let left = self.first_deadline_ns().map(|first_ns| first_ns.saturating_sub(now_ns));
            self.enter(Wait::Until(left.map(Duration::from_nanos)));
            self.doorbell.wake_up();
        }
    }

    /// Polls for a while; whether there is something to do.
    fn spin(&self) -> bool {
        if self.queued_ns.get().is_some() {
            self.enter(Wait::No);
        }
        let begun_ns = clock::now().0;
        let first_ns = self.first_deadline_ns().unwrap_or(u64::MAX);
        let is_transferring = self.state.borrow().transfers > 0;
        loop {
            {
                let mut uring = self.uring.borrow_mut();
                if !uring.completion().is_empty() {
                    return true;
                }
                if uring.submission().taskrun() {
                    drop(uring);
                    self.enter(Wait::No);
                    return true;
                }
            }
            let now_ns = clock::now().0;
            if !self.calls.is_empty() || now_ns >= first_ns {
                return true;
            }
            if now_ns - begun_ns >= self.spin_ns {
                return false;
            }
            if is_transferring {
                // A durable write ends in workers of the kernel, which may need this very core.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Deadline of the next timer.
    fn first_deadline_ns(&self) -> Option<u64> {
        self.state.borrow().timers.keys().next().map(|&(deadline_ns, _)| deadline_ns)
    }

    /// Has the kernel tell of the doorbell.
    fn listen(&self) {
        if !self.is_listening.replace(true) {
            let bell = Fd(self.doorbell.as_raw_fd());
            let sink = HEARD.as_ptr().cast::<u8>();
            let entry = opcode::Read::new(bell, sink, size_of_val(&HEARD) as u32).build();
            self.push(&entry.user_data(DOORBELL));
        }
    }

    fn enter(&self, wait: Wait) {
        self.queued_ns.set(None);
        let mut uring = self.uring.borrow_mut();
        // Publishes what was pushed.
        uring.submission().sync();
        let submitter = uring.submitter();
        let entered = match wait {
            Wait::No => submitter.submit_and_wait(0),
            Wait::Until(None) => submitter.submit_and_wait(1),
            Wait::Until(Some(left)) => {
                let left = Timespec::from(left);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&left))
            }
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => {}
            // Time is up; a signal; completions have to be taken first; try again at the next turn.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
            Err((_, error)) => panic!("invariant: a shard can enter its ring: {error}"),
        }
    }

    /// Takes what is completed and wakes whom it is for.
    fn reap(&self) {
        let mut completions = self.completions.take();
        {
            let mut uring = self.uring.borrow_mut();
            completions.extend(uring.completion().map(|entry| (entry.user_data(), entry.result())));
        }
        for (index, result) in completions.drain(..) {
            if index == DOORBELL {
                self.is_listening.set(false);
                continue;
            }
            let mut state = self.state.borrow_mut();
            let slot = &mut state.operations[index as usize];
            slot.result = Some(result);
            let waker = slot.waker.take();
            let is_transfer = slot.keep.is_transfer();
            let abandoned = slot.is_abandoned.then(|| state.operations.remove(index as usize));
            state.transfers -= usize::from(is_transfer);
            drop(state);
            drop(abandoned);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        self.completions.replace(completions);
    }

    /// Does what other threads have called for; whether there was anything.
    fn hear(&self) -> bool {
        let mut has_heard = false;
        while let Some(call) = self.calls.next() {
            has_heard = true;
            match call {
                Call::Wake(number) => {
                    let waker = self.state.borrow().called.get(number).cloned();
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                Call::Forget(number) => {
                    let forgotten = self.state.borrow_mut().called.try_remove(number);
                    drop(forgotten);
                }
            }
        }
        has_heard
    }

    /// Wakes whose time has come.
    fn fire_timers(&self) {
        let mut now_ns = None;
        loop {
            let waker = {
                let mut state = self.state.borrow_mut();
                let Some(first) = state.timers.first_entry() else { return };
                if first.key().0 > *now_ns.get_or_insert_with(|| clock::now().0) {
                    return;
                }
                first.remove()
            };
            waker.wake();
        }
    }
}

/// Resolves at a deadline or a little later, never earlier.
pub(super) struct Sleep {
    ring: Rc<Ring>,
    deadline_ns: u64,
    number: Option<u64>,
}

impl Sleep {
    /// Sleeps until `deadline_ns` on the clock of [`clock::now`].
    pub(super) fn until(deadline_ns: u64) -> Sleep {
        Sleep { ring: Ring::current(), deadline_ns, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now().0 >= self.deadline_ns {
            return Poll::Ready(());
        }
        let deadline_ns = self.deadline_ns;
        let number = self.number;
        let mut state = self.ring.state.borrow_mut();
        let number = number.unwrap_or_else(|| {
            state.timers_made += 1;
            state.timers_made
        });
        let replaced = state.timers.insert((deadline_ns, number), context.waker().clone());
        drop(state);
        drop(replaced);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let key = (self.deadline_ns, number);
            let removed = self.ring.state.borrow_mut().timers.remove(&key);
            drop(removed);
        }
    }
}

/// A task beside a ring: the ring sleeps only if none has run since it last looked.
pub(super) struct Noted<F> {
    ring: Rc<Ring>,
    task: F,
}

impl<F: Future + Unpin> Noted<F> {
    /// The task, of the current thread's ring.
    pub(super) fn new(task: F) -> Noted<F> {
        Noted { ring: Ring::current(), task }
    }
}

impl<F: Future + Unpin> Future for Noted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.ring.has_run.set(true);
        Pin::new(&mut self.task).poll(context)
    }
}

/// How long to stay in the kernel.
enum Wait {
    No,
    /// For one completion, at most so long.
    Until(Option<Duration>),
}

/// A ring whose completions are posted when its thread asks, not by interrupting it.
fn deferring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(COMPLETIONS)
        .build(ENTRIES)
}

/// What kernels before 6.1 have instead.
fn plain_if_unknown(error: io::Error) -> io::Result<IoUring> {
    if error.raw_os_error() == Some(libc::EINVAL) {
        IoUring::builder().setup_cqsize(COMPLETIONS).build(ENTRIES)
    } else {
        Err(error)
    }
}

/// Where the kernel writes how often a doorbell was rung. Nobody reads it.
static HEARD: AtomicU64 = AtomicU64::new(0);

/// Names the doorbell's read among the operations.
const DOORBELL: u64 = u64::MAX;

/// Operations that are handed over at once. More are handed over in several goes.
const ENTRIES: u32 = 256;

/// Completions that fit at once. The kernel keeps what does not.
const COMPLETIONS: u32 = 4096;

/// Longest that an operation waits for others to be handed over with, while tasks run.
const QUEUED_NS_MAX: u64 = 20_000;

#[cfg(test)]
mod tests;
