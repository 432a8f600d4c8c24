//! A simulated machine: shards, time and tasks, all decided by one seed.
//!
//! Owns the executor and hands out [`Runtime`]s. Must never let anything but the seed and the code
//! under test decide what happens: the same seed gives the same [`World::event_hash`].
//!
//! A crash forgets every task and every pending completion without running a destructor, so
//! nothing the code would do on a clean stop happens; the memory those tasks held is leaked on
//! purpose. What survives is up to `SimDisk::crash`.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::ids::ShardId;
use crate::io::{Monotonic, Runtime};

use super::executor::{Core, SimRuntime, Step};
use super::random::Random;

pub use super::executor::Event;

/// A simulated machine.
pub struct World {
    core: Rc<Core>,
    seed: u64,
    steps_max: u64,
}

/// Why a run ended without its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stalled {
    /// Nothing is ready and nothing will ever happen, with so many tasks waiting.
    Deadlock {
        /// Tasks that wait.
        tasks: usize,
    },
    /// The step limit was reached, with so many tasks alive.
    StepLimit {
        /// Tasks alive.
        tasks: usize,
    },
}

impl World {
    /// A world of `seed`, at a time long after 1970, with no tasks.
    #[must_use]
    pub fn new(seed: u64) -> World {
        World { core: Core::new(seed), seed, steps_max: STEPS_MAX }
    }

    /// The seed this world was made from: print it with every failure.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The runtime of one shard; any number may be asked for.
    #[must_use]
    pub fn runtime(&self, shard: ShardId) -> Rc<dyn Runtime> {
        Rc::new(SimRuntime { core: Rc::clone(&self.core), shard: shard.0 })
    }

    /// Virtual monotonic time.
    #[must_use]
    pub fn now(&self) -> Monotonic {
        Monotonic(self.core.now_ns())
    }

    /// A stream of random numbers for the test itself, of this seed.
    #[must_use]
    pub fn random(&self, purpose: &str) -> Random {
        Random::stream(self.seed, purpose)
    }

    /// Most steps of one `run_*` call before it is reported as stalled.
    pub fn set_steps_max(&mut self, steps: u64) {
        self.steps_max = steps;
    }

    /// Whether single shards stand still now and then, as cores do; on at first.
    pub fn set_pauses(&self, pauses: bool) {
        self.core.set_pauses(pauses);
    }

    /// Longest delay of a message between two shards, in nanoseconds; 0 at first. Half of them have
    /// none. Messages of one sender to one receiver keep their order.
    pub fn set_message_delay(&self, longest_ns: u64) {
        self.core.set_message_delay(longest_ns);
    }

    /// Moves the wall clock, not the monotonic one, by so many milliseconds.
    pub fn shift_wall_ms(&self, milliseconds: i64) {
        self.core.shift_wall(milliseconds);
    }

    /// Runs the world until `future` is ready.
    ///
    /// # Errors
    /// [`Stalled`] if that cannot happen or takes too many steps; the future is then forgotten.
    pub fn run_until<T>(&self, future: impl Future<Output = T>) -> Result<T, Stalled> {
        // Forgotten unless it ends: the destructor of a cut-off future is no part of a crash.
        let mut future = ManuallyDrop::new(Box::pin(future));
        let waker = self.core.main_waker();
        waker.wake_by_ref();
        for _ in 0..self.steps_max {
            match self.core.step() {
                Step::Main => {
                    let mut context = Context::from_waker(&waker);
                    if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                        drop(ManuallyDrop::into_inner(future));
                        return Ok(value);
                    }
                }
                Step::Idle => return Err(self.deadlock()),
                Step::Ran | Step::Advanced => {}
            }
        }
        Err(self.step_limit())
    }

    /// Runs the world for so many virtual milliseconds, busy or not.
    ///
    /// # Errors
    /// [`Stalled::StepLimit`] if that takes too many steps.
    pub fn run_for(&self, milliseconds: u64) -> Result<(), Stalled> {
        let end = self.now().plus_ms(milliseconds);
        self.core.call_at(end.0, Box::new(|| ()));
        for _ in 0..self.steps_max {
            if self.now() >= end {
                return Ok(());
            }
            if self.core.step() == Step::Idle {
                self.core.advance_to(end.0);
            }
        }
        Err(self.step_limit())
    }

    /// Runs exactly `steps` task turns, or fewer if nothing is left to happen; returns how many
    /// ran. With a step count from 0 up this visits every await of a run.
    pub fn run_steps(&self, steps: u64) -> u64 {
        let mut ran = 0;
        while ran < steps {
            match self.core.step() {
                Step::Ran | Step::Main => ran += 1,
                Step::Advanced => {}
                Step::Idle => break,
            }
        }
        ran
    }

    /// Forgets all tasks, timers and completions; see the module's words on crashes.
    pub fn crash(&self) {
        self.core.crash();
    }

    /// Hash of every scheduling choice and device event so far: equal for equal runs.
    #[must_use]
    pub fn event_hash(&self) -> u64 {
        self.core.hash()
    }

    /// Folds an event of the test into the hash.
    pub fn note(&self, kind: &'static str, subject: u64, detail: u64) {
        self.core.note(kind, subject, detail);
    }

    /// Keeps the events themselves from now on, to find where two runs part.
    pub fn keep_events(&self) {
        self.core.keep_log();
    }

    /// The events kept.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.core.log()
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    fn deadlock(&self) -> Stalled {
        Stalled::Deadlock { tasks: self.core.task_count() }
    }

    fn step_limit(&self) -> Stalled {
        Stalled::StepLimit { tasks: self.core.task_count() }
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stalled::Deadlock { tasks } => write!(f, "deadlock: {tasks} tasks wait for ever"),
            Stalled::StepLimit { tasks } => write!(f, "step limit reached, {tasks} tasks alive"),
        }
    }
}

impl std::error::Error for Stalled {}

/// Steps of one run after which it counts as stalled, unless set otherwise.
const STEPS_MAX: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn two_shards(seed: u64) -> (u64, Vec<u16>) {
        let world = World::new(seed);
        let order = Rc::new(RefCell::new(Vec::new()));
        for shard in [0, 1] {
            let runtime = world.runtime(ShardId(shard));
            let order = Rc::clone(&order);
            let inner = Rc::clone(&runtime);
            runtime.spawn(Box::pin(async move {
                for _ in 0..20 {
                    order.borrow_mut().push(shard);
                    inner.yield_now().await;
                    let wait = inner.random() % 3;
                    inner.sleep_until(inner.now().plus_ms(wait)).await;
                }
            }));
        }
        world.run_for(1_000).expect("no stall");
        let order = order.borrow().clone();
        (world.event_hash(), order)
    }

    #[test]
    fn a_seed_decides_the_whole_run() {
        let mut hashes = Vec::new();
        let mut orders = Vec::new();
        for seed in 0..20 {
            let (hash, order) = two_shards(seed);
            assert_eq!(two_shards(seed), (hash, order.clone()));
            assert_eq!(order.len(), 40);
            hashes.push(hash);
            orders.push(order);
        }
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 20);
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 20, "every seed interleaves differently");
    }

    #[test]
    fn time_jumps_when_nothing_is_ready_and_never_fires_early() {
        let world = World::new(1);
        let runtime = world.runtime(ShardId(0));
        let deadline = runtime.now().plus_ms(3_600_000);
        let wall_ms = runtime.wall_ms();
        world.run_until(runtime.sleep_until(deadline)).expect("timer");
        assert!(world.now() >= deadline);
        assert_eq!(world.now().ms_since(deadline), 0);
        assert_eq!(runtime.wall_ms() - wall_ms, 3_600_000);
        world.shift_wall_ms(-5_000);
        assert_eq!(runtime.wall_ms() - wall_ms, 3_595_000);
    }

    #[test]
    fn a_task_of_another_shard_is_woken_late() {
        let world = World::new(9);
        world.set_pauses(false);
        world.set_message_delay(50_000_000);
        let mut late = 0;
        for _ in 0..40 {
            let (sender, receiver) = (world.runtime(ShardId(0)), world.runtime(ShardId(1)));
            let slot = crate::shard::event::Slot::new();
            let filled = Rc::clone(&slot);
            let arrived = Rc::new(Cell::new(None));
            let (seen, clock) = (Rc::clone(&arrived), Rc::clone(&receiver));
            receiver.spawn(Box::pin(async move {
                slot.take().await;
                seen.set(Some(clock.now()));
            }));
            world.run_for(1).expect("no stall");
            let sent = world.now();
            sender.spawn(Box::pin(async move { filled.fill(()) }));
            world.run_for(60).expect("no stall");
            let waited_ms = arrived.get().expect("it arrives").ms_since(sent);
            late += u32::from(waited_ms >= 5);
        }
        assert!((8..32).contains(&late), "{late} of 40");
    }

    #[test]
    fn yielding_lets_every_other_ready_task_run() {
        for seed in 0..50 {
            let world = World::new(seed);
            world.set_pauses(false);
            let runtime = world.runtime(ShardId(0));
            let ran = Rc::new(Cell::new(0));
            let (inner, seen) = (Rc::clone(&runtime), Rc::clone(&ran));
            world
                .run_until(async move {
                    for _ in 0..10 {
                        let seen = Rc::clone(&seen);
                        inner.spawn(Box::pin(async move { seen.set(seen.get() + 1) }));
                    }
                    inner.yield_now().await;
                })
                .expect("no stall");
            assert_eq!(ran.get(), 10);
        }
    }

    #[test]
    fn stalls_are_reported() {
        let mut world = World::new(3);
        assert_eq!(
            world.run_until(std::future::pending::<()>()),
            Err(Stalled::Deadlock { tasks: 0 })
        );
        world.set_steps_max(1_000);
        let runtime = world.runtime(ShardId(0));
        let inner = Rc::clone(&runtime);
        runtime.spawn(Box::pin(async move {
            loop {
                inner.yield_now().await;
            }
        }));
        let never = world.run_until(std::future::pending::<()>());
        assert_eq!(never, Err(Stalled::StepLimit { tasks: 1 }));
    }

    #[test]
    fn a_crash_runs_no_destructor_and_stale_wakers_wake_nobody() {
        struct Loud(Rc<Cell<bool>>);
        impl Drop for Loud {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let world = World::new(4);
        let runtime = world.runtime(ShardId(0));
        let dropped = Rc::new(Cell::new(false));
        let waker = Rc::new(RefCell::new(None));
        let (loud, kept) = (Loud(Rc::clone(&dropped)), Rc::clone(&waker));
        runtime.spawn(Box::pin(async move {
            let _loud = loud;
            std::future::poll_fn(|context| {
                *kept.borrow_mut() = Some(context.waker().clone());
                Poll::<()>::Pending
            })
            .await;
        }));
        world.run_for(1).expect("no stall");
        world.crash();
        let stale = waker.borrow_mut().take().expect("polled once");
        let fresh = Rc::new(Cell::new(0));
        let seen = Rc::clone(&fresh);
        runtime.spawn(Box::pin(async move { seen.set(seen.get() + 1) }));
        stale.wake();
        world.run_for(1).expect("no stall");
        assert_eq!((dropped.get(), fresh.get()), (false, 1));
    }
}
