//! The simulation's executor: one thread, virtual time, and a seed that picks who runs next.
//!
//! Owns the tasks of all shards, the queue of timed events (timers and completions of simulated
//! devices) and the log that proves two runs equal. Must never read a real clock, start a thread
//! or iterate anything in hashing order.
//!
//! A task that wakes one of another shard has sent it a message: that wake may be delayed, which is
//! how messages between shards are late and arrive in another order than those of third shards.
//!
//! Invariants: no borrow of the state is held while a task or an event runs; a task id is never
//! used twice, so a waker that outlives its task, or a crash, wakes nobody; ready tasks run once
//! per round in an order drawn from the seed, so `yield_now` lets every other ready task run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::io::{LocalFuture, Monotonic, Runtime};

use super::random::{Random, fold};

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A task ran.
    Ran,
    /// It is the turn of the future given to `World::run_until`.
    Main,
    /// Time advanced to the next event.
    Advanced,
    /// No task is ready and no event is due, ever.
    Idle,
}

/// One line of the event log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Virtual time in nanoseconds.
    pub at_ns: u64,
    /// What happened.
    pub kind: &'static str,
    /// Which task, file or stream it happened to.
    pub subject: u64,
    /// A further number: a position, a length, a shard.
    pub detail: u64,
}

/// The executor's shared state.
pub(super) struct Core {
    state: RefCell<State>,
    ready: Arc<Ready>,
    now_ns: Cell<u64>,
    /// No timed event is due before.
    next_timed_ns: Cell<u64>,
    wall_base_ms: Cell<i64>,
}

struct State {
    schedule: Random,
    numbers: Random,
    tasks: BTreeMap<u64, Task>,
    task_next: u64,
    round: Vec<(u64, u16)>,
    paused: BTreeMap<u16, u64>,
    pauses: bool,
    message_delay_ns_max: u64,
    timed: BTreeMap<(u64, u64), Box<dyn FnOnce()>>,
    timed_next: u64,
    hash: u64,
    log: Option<Vec<Event>>,
}

struct Task {
    waker: Waker,
    /// Absent while the task is being polled.
    future: Option<LocalFuture<'static, ()>>,
}

impl Core {
    pub(super) fn new(seed: u64) -> Rc<Core> {
        Rc::new(Core {
            state: RefCell::new(State {
                schedule: Random::stream(seed, "schedule"),
                numbers: Random::stream(seed, "numbers"),
                tasks: BTreeMap::new(),
                task_next: MAIN + 1,
                round: Vec::new(),
                paused: BTreeMap::new(),
                pauses: true,
                message_delay_ns_max: 0,
                timed: BTreeMap::new(),
                timed_next: 0,
                hash: seed,
                log: None,
            }),
            ready: Arc::new(Ready {
                woken: Mutex::default(),
                crossing: Mutex::default(),
                running: AtomicU32::new(NO_SHARD),
            }),
            now_ns: Cell::new(1_000_000_000),
            next_timed_ns: Cell::new(u64::MAX),
            wall_base_ms: Cell::new(WALL_START_MS),
        })
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    pub(super) fn advance_to(&self, at_ns: u64) {
        self.now_ns.set(self.now_ns.get().max(at_ns));
    }

    pub(super) fn wall_ms(&self) -> i64 {
        let elapsed_ms = i64::try_from(self.now_ns.get() / 1_000_000).unwrap_or(i64::MAX);
        self.wall_base_ms.get().saturating_add(elapsed_ms)
    }

    pub(super) fn shift_wall(&self, by_ms: i64) {
        let shifted = self.wall_base_ms.get().saturating_add(by_ms);
        self.wall_base_ms.set(shifted);
    }

    pub(super) fn set_pauses(&self, pauses: bool) {
        self.state.borrow_mut().pauses = pauses;
    }

    pub(super) fn set_message_delay(&self, longest_ns: u64) {
        self.state.borrow_mut().message_delay_ns_max = longest_ns;
    }

    pub(super) fn random(&self) -> u64 {
        self.state.borrow_mut().numbers.next()
    }

    /// Folds an event into the hash, and into the log if one is kept.
    pub(super) fn note(&self, kind: &'static str, subject: u64, detail: u64) {
        let mut state = self.state.borrow_mut();
        let at_ns = self.now_ns.get();
        let hash = fold(state.hash, word_of(kind));
        state.hash = fold(fold(fold(hash, at_ns), subject), detail);
        if let Some(log) = &mut state.log
            && log.len() < LOG_EVENTS_MAX
        {
            log.push(Event { at_ns, kind, subject, detail });
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.state.borrow().hash
    }

    pub(super) fn keep_log(&self) {
        self.state.borrow_mut().log.get_or_insert_default();
    }

    pub(super) fn log(&self) -> Vec<Event> {
        self.state.borrow().log.clone().unwrap_or_default()
    }

    pub(super) fn spawn(&self, shard: u16, future: LocalFuture<'static, ()>) {
        let mut state = self.state.borrow_mut();
        let id = state.task_next;
        state.task_next += 1;
        let waker = self.waker(id, shard);
        waker.wake_by_ref();
        state.tasks.insert(id, Task { waker, future: Some(future) });
    }

    pub(super) fn main_waker(&self) -> Waker {
        self.waker(MAIN, MAIN_SHARD)
    }

    /// Runs `call` at `at_ns` or a little later.
    pub(super) fn call_at(&self, at_ns: u64, call: Box<dyn FnOnce()>) {
        let mut state = self.state.borrow_mut();
        // Events of the same instant must not fire in submission order.
        let tie = (state.schedule.next() & !0xffff_ffff) | (state.timed_next & 0xffff_ffff);
        state.timed_next += 1;
        state.timed.insert((at_ns, tie), call);
        self.next_timed_ns.set(self.next_timed_ns.get().min(at_ns));
    }

    /// The result of `compute`, called `delay_ns` from now whether or not the future is polled.
    pub(super) fn complete_after<T: 'static>(
        &self,
        delay_ns: u64,
        compute: impl FnOnce() -> T + 'static,
    ) -> Completion<T> {
        let completion = Completion::new();
        let slot = completion.slot();
        let at_ns = self.now_ns().saturating_add(delay_ns);
        self.call_at(at_ns, Box::new(move || slot.set(compute())));
        completion
    }

    /// Runs one task, or advances time to the next event.
    pub(super) fn step(&self) -> Step {
        self.fire_due();
        let Some((id, shard)) = self.pick() else {
            return self.advance();
        };
        self.note("run", id, u64::from(shard));
        if id == MAIN {
            self.charge_turn();
            return Step::Main;
        }
        let taken = {
            let mut state = self.state.borrow_mut();
            let task = state.tasks.get_mut(&id);
            task.and_then(|task| task.future.take().map(|future| (future, task.waker.clone())))
        };
        if let Some((mut future, waker)) = taken {
            self.ready.running.store(u32::from(shard), Ordering::Relaxed);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            // A finished task's destructors may wake and spawn, so they run without a borrow.
            let ended = self.put_back(id, future, polled);
            drop(ended);
            self.ready.running.store(NO_SHARD, Ordering::Relaxed);
            self.carry_over();
        }
        self.charge_turn();
        Step::Ran
    }

    /// Wakes the tasks of other shards that the last turn has woken, some of them later.
    fn carry_over(&self) {
        for waker in self.ready.take_crossing() {
            let delay_ns = {
                let mut state = self.state.borrow_mut();
                let longest_ns = state.message_delay_ns_max;
                match longest_ns > 0 && state.schedule.chance(1, 2) {
                    true => state.schedule.below(longest_ns),
                    false => 0,
                }
            };
            if delay_ns == 0 {
                self.ready.lock_woken().push(waker);
                continue;
            }
            let ready = Arc::clone(&self.ready);
            let at_ns = self.now_ns().saturating_add(delay_ns);
            self.call_at(at_ns, Box::new(move || ready.lock_woken().push(waker)));
        }
    }

    /// Forgets every task and event without running a destructor.
    pub(super) fn crash(&self) {
        let mut state = self.state.borrow_mut();
        std::mem::forget(std::mem::take(&mut state.tasks));
        std::mem::forget(std::mem::take(&mut state.timed));
        state.round.clear();
        state.paused.clear();
        drop(state);
        self.ready.take();
        self.ready.take_crossing();
        self.note("crash", 0, 0);
    }

    pub(super) fn task_count(&self) -> usize {
        self.state.borrow().tasks.len()
    }

    fn waker(&self, id: u64, shard: u16) -> Waker {
        Waker::from(Arc::new(TaskWaker {
            id,
            shard,
            queued: AtomicBool::new(false),
            ready: Arc::clone(&self.ready),
        }))
    }

    /// Keeps a task that goes on; returns what is to be dropped of one that ended.
    fn put_back(
        &self,
        id: u64,
        future: LocalFuture<'static, ()>,
        polled: Poll<()>,
    ) -> Option<(LocalFuture<'static, ()>, Option<Task>)> {
        let mut state = self.state.borrow_mut();
        if polled.is_ready() {
            return Some((future, state.tasks.remove(&id)));
        }
        match state.tasks.get_mut(&id) {
            Some(task) => task.future = Some(future),
            // The task itself called for the crash.
            None => std::mem::forget(future),
        }
        None
    }

    fn fire_due(&self) {
        while self.next_timed_ns.get() <= self.now_ns.get() {
            let call = {
                let mut state = self.state.borrow_mut();
                let due = state.timed.first_entry();
                match due.filter(|entry| entry.key().0 <= self.now_ns.get()) {
                    Some(entry) => Some(entry.remove()),
                    None => {
                        let next = state.timed.first_key_value();
                        self.next_timed_ns.set(next.map_or(u64::MAX, |(&(at_ns, _), _)| at_ns));
                        None
                    }
                }
            };
            if let Some(call) = call {
                call();
            }
        }
    }

    /// Draws the next ready task of a shard that is not paused.
    fn pick(&self) -> Option<(u64, u16)> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let now_ns = self.now_ns.get();
        if !state.paused.is_empty() {
            state.paused.retain(|_, until_ns| *until_ns > now_ns);
        }
        let mut count = state.runnable_count();
        if count == 0 {
            for waker in self.ready.take() {
                waker.queued.store(false, Ordering::Relaxed);
                state.round.push((waker.id, waker.shard));
            }
            count = state.runnable_count();
        }
        if count == 0 {
            return None;
        }
        let nth = state.schedule.index(count);
        let place = state.place_of_runnable(nth);
        let chosen = state.round.swap_remove(place);
        // Cores do not advance in lockstep: now and then one stands still for a while.
        if state.pauses && chosen.1 != MAIN_SHARD && state.schedule.chance(1, 200) {
            let until_ns = now_ns.saturating_add(state.schedule.below(300_000));
            state.paused.insert(chosen.1, until_ns);
        }
        Some(chosen)
    }

    fn advance(&self) -> Step {
        let state = self.state.borrow();
        let event_ns = state.timed.keys().next().map(|&(at_ns, _)| at_ns);
        let pause_ns = match state.round.is_empty() {
            true => None,
            false => state.paused.values().min().copied(),
        };
        drop(state);
        match [event_ns, pause_ns].into_iter().flatten().min() {
            Some(at_ns) => {
                self.advance_to(at_ns);
                Step::Advanced
            }
            None => Step::Idle,
        }
    }

    /// Every turn costs some time, so that a busy world's timers still fire.
    fn charge_turn(&self) {
        let cost_ns = 100 + self.state.borrow_mut().schedule.below(1_900);
        self.now_ns.set(self.now_ns.get().saturating_add(cost_ns));
    }
}

impl State {
    /// How many tasks of the round may run now.
    fn runnable_count(&self) -> usize {
        if self.paused.is_empty() {
            return self.round.len();
        }
        let shards = self.round.iter().map(|(_, shard)| shard);
        shards.filter(|shard| !self.paused.contains_key(shard)).count()
    }

    /// The place in the round of one of them.
    fn place_of_runnable(&self, nth: usize) -> usize {
        if self.paused.is_empty() {
            return nth;
        }
        let tasks = self.round.iter().enumerate();
        let mut runnable = tasks.filter(|(_, (_, shard))| !self.paused.contains_key(shard));
        let (place, _) = runnable.nth(nth).expect("invariant: they were counted");
        place
    }
}

/// The end of a name, by which kinds of events are told apart.
fn word_of(kind: &str) -> u64 {
    let (end, first) = (kind.as_bytes(), kind.len().saturating_sub(8));
    end[first..].iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The runtime of one simulated shard.
pub(super) struct SimRuntime {
    pub(super) core: Rc<Core>,
    pub(super) shard: u16,
}

impl Runtime for SimRuntime {
    fn now(&self) -> Monotonic {
        Monotonic(self.core.now_ns())
    }

    fn wall_ms(&self) -> i64 {
        self.core.wall_ms()
    }

    fn sleep_until(&self, deadline: Monotonic) -> LocalFuture<'static, ()> {
        let core = Rc::clone(&self.core);
        Box::pin(async move {
            if core.now_ns() < deadline.0 {
                let late_ns = core.state.borrow_mut().schedule.below(60_000);
                let delay_ns = deadline.0 - core.now_ns();
                core.complete_after(delay_ns.saturating_add(late_ns), || ()).await;
            }
        })
    }

    fn spawn(&self, task: LocalFuture<'static, ()>) {
        self.core.spawn(self.shard, task);
    }

    fn yield_now(&self) -> LocalFuture<'static, ()> {
        // What became ready before the yield runs in the next round at the latest, in any order
        // with this task; so only the round after that one is surely later.
        let mut rounds = 2;
        Box::pin(std::future::poll_fn(move |context| {
            if rounds == 0 {
                return Poll::Ready(());
            }
            rounds -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    fn random(&self) -> u64 {
        self.core.random()
    }
}

/// A value that arrives later.
pub(super) struct Completion<T> {
    slot: Slot<T>,
}

/// The sending side of a [`Completion`].
pub(super) struct Slot<T> {
    shared: Rc<RefCell<(Option<T>, Option<Waker>)>>,
}

impl<T> Completion<T> {
    pub(super) fn new() -> Completion<T> {
        Completion { slot: Slot { shared: Rc::new(RefCell::new((None, None))) } }
    }

    pub(super) fn slot(&self) -> Slot<T> {
        Slot { shared: Rc::clone(&self.slot.shared) }
    }
}

impl<T> Slot<T> {
    pub(super) fn set(self, value: T) {
        let waker = {
            let mut shared = self.shared.borrow_mut();
            shared.0 = Some(value);
            shared.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Completion<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut shared = self.slot.shared.borrow_mut();
        match shared.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                shared.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Tasks woken since the round began.
struct Ready {
    woken: Mutex<Vec<Arc<TaskWaker>>>,
    /// Woken by a task of another shard, in the turn that runs.
    crossing: Mutex<Vec<Arc<TaskWaker>>>,
    /// The shard whose task runs, [`NO_SHARD`] for none.
    running: AtomicU32,
}

impl Ready {
    fn lock_woken(&self) -> MutexGuard<'_, Vec<Arc<TaskWaker>>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<Arc<TaskWaker>> {
        std::mem::take(&mut self.lock_woken())
    }

    fn take_crossing(&self) -> Vec<Arc<TaskWaker>> {
        let mut crossing = self.crossing.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut crossing)
    }
}

struct TaskWaker {
    id: u64,
    shard: u16,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            let ready = Arc::clone(&self.ready);
            let running = ready.running.load(Ordering::Relaxed);
            let list = match running == NO_SHARD || running == u32::from(self.shard) {
                true => &ready.woken,
                false => &ready.crossing,
            };
            list.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }
}

/// The task id of the future given to `World::run_until`.
const MAIN: u64 = 0;

/// The main future belongs to no shard and is never paused.
const MAIN_SHARD: u16 = u16::MAX;

/// No task runs.
const NO_SHARD: u32 = u32::MAX;

/// Wall clock at the start of a world: 2026-01-01 00:00 UTC.
const WALL_START_MS: i64 = 1_767_225_600_000;

/// A log longer than this stops growing; the hash goes on.
const LOG_EVENTS_MAX: usize = 1_000_000;
