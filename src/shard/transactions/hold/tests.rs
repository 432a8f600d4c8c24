//! Who waits, who goes on, and in which order, under a clock that the test turns.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::io::LocalFuture;

/// A clock that stands still until it is turned; sleepers look at it whenever they are polled.
struct Clock(Rc<Cell<u64>>);

impl Runtime for Clock {
    fn now(&self) -> Monotonic {
        Monotonic(0).plus_ms(self.0.get())
    }

    fn wall_ms(&self) -> i64 {
        0
    }

    fn sleep_until(&self, deadline: Monotonic) -> LocalFuture<'static, ()> {
        let clock = Clock(Rc::clone(&self.0));
        Box::pin(std::future::poll_fn(move |_| {
            if clock.now() >= deadline { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    fn spawn(&self, _: LocalFuture<'static, ()>) {}

    fn yield_now(&self) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        0
    }
}

struct World {
    holds: Rc<Holds>,
    clock: Rc<Clock>,
    id: Arc<str>,
}

fn until(deadline_ms: u64) -> Deadline {
    Deadline { at: Monotonic(0).plus_ms(deadline_ms), is_own: false }
}

/// One held request.
struct Held {
    caller: Rc<Caller>,
    future: Pin<Box<dyn Future<Output = bool>>>,
}

impl World {
    fn new() -> World {
        let clock = Rc::new(Clock(Rc::default()));
        World { holds: Rc::default(), clock, id: "t".into() }
    }

    fn hold_until(&self, deadline_ms: u64, place: Place) -> Held {
        let caller = Caller::new(until(deadline_ms), None);
        self.hold(caller, place)
    }

    fn hold(&self, caller: Rc<Caller>, place: Place) -> Held {
        let holds = Rc::clone(&self.holds);
        let (clock, id, held) = (Rc::clone(&self.clock), Arc::clone(&self.id), Rc::clone(&caller));
        let future = Box::pin(async move { holds.hold(&*clock, &id, &held, place).await });
        let mut held = Held { caller, future };
        // It takes its place when it is first polled.
        assert!(!matches!(held.poll(), Poll::Ready(true)));
        held
    }
}

impl Held {
    fn poll(&mut self) -> Poll<bool> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}

#[test]
fn one_change_gives_one_turn_and_the_next_follows() {
    let world = World::new();
    let mut first = world.hold_until(1_000, Place::First);
    assert!(world.holds.is_queued("t") && !world.holds.is_queued("other"));
    let mut second = world.hold_until(1_000, Place::Last);
    let mut third = world.hold_until(1_000, Place::Last);
    world.holds.release("t");
    assert_eq!(second.poll(), Poll::Pending);
    assert_eq!(first.poll(), Poll::Ready(true));
    assert!(world.holds.is_queued("t"), "whoever comes now is behind those that wait");
    // The first has begun another transition, so the next waits for its end.
    world.holds.end_turn("t");
    assert_eq!(second.poll(), Poll::Pending);
    world.holds.release("t");
    assert_eq!(second.poll(), Poll::Ready(true));
    assert_eq!(third.poll(), Poll::Pending);
    // The second changed nothing.
    world.holds.pass_turn("t");
    assert_eq!(third.poll(), Poll::Ready(true));
    world.holds.pass_turn("t");
    assert!(!world.holds.is_queued("t"));
    assert!(world.holds.lines.borrow().is_empty(), "nothing is left behind");
}

#[test]
fn one_that_has_to_wait_again_keeps_its_place() {
    let world = World::new();
    let mut first = world.hold_until(1_000, Place::First);
    let mut second = world.hold_until(1_000, Place::Last);
    world.holds.release("t");
    assert_eq!(first.poll(), Poll::Ready(true));
    let mut again = world.hold(Rc::clone(&first.caller), Place::First);
    world.holds.release("t");
    assert_eq!(second.poll(), Poll::Pending);
    assert_eq!(again.poll(), Poll::Ready(true));
}

#[test]
fn the_first_to_expire_ends_it_for_all_until_the_state_changes() {
    let world = World::new();
    let mut first = world.hold_until(100, Place::First);
    let mut second = world.hold_until(500, Place::Last);
    world.clock.0.set(99);
    assert_eq!(first.poll(), Poll::Pending);
    world.clock.0.set(100);
    assert_eq!(first.poll(), Poll::Ready(false));
    assert_eq!(second.poll(), Poll::Ready(false), "it waits no longer than the first");
    let late = Caller::new(until(1_000), None);
    assert!(!world.holds.enqueue(world.clock.now(), &world.id, &late, Place::First));
    assert_eq!(world.holds.held.get(), 0);
    assert!(!world.holds.is_queued("t"));
    world.holds.release("t");
    assert!(world.holds.lines.borrow().is_empty());
    let mut held = world.hold_until(1_000, Place::First);
    assert_eq!(held.poll(), Poll::Pending);
    assert_eq!(world.holds.held.get(), 1);
}

#[test]
fn one_whose_own_time_is_over_leaves_the_others_where_they_are() {
    let world = World::new();
    let hurried = |deadline_ms| {
        let deadline = Deadline { is_own: true, ..until(deadline_ms) };
        world.hold(Caller::new(deadline, None), Place::Last)
    };
    let mut first = hurried(10);
    let mut second = world.hold_until(1_000, Place::Last);
    let mut third = hurried(30);
    assert_eq!(first.caller.refusal(world.clock.now()), ErrorCode::ConcurrentTransactions);
    world.clock.0.set(10);
    assert_eq!(first.poll(), Poll::Ready(false));
    assert_eq!(first.caller.refusal(world.clock.now()), ErrorCode::RequestTimedOut);
    assert_eq!(world.holds.counts.expired.get(), 0, "the broker would have held it");
    assert_eq!(world.holds.lines.borrow()["t"].waiting.len(), 2, "it leaves nothing behind");
    assert_eq!(second.poll(), Poll::Pending);
    // Its turn comes when its time is over.
    world.clock.0.set(30);
    world.holds.release("t");
    assert_eq!(second.poll(), Poll::Ready(true));
    world.holds.pass_turn("t");
    world.clock.0.set(31);
    assert_eq!(third.poll(), Poll::Ready(true), "it has its turn after all");
    world.holds.pass_turn("t");
    assert!(world.holds.lines.borrow().is_empty());
    let mut only = hurried(40);
    world.clock.0.set(40);
    assert_eq!(only.poll(), Poll::Ready(false));
    assert!(world.holds.lines.borrow().is_empty());
    let mut next = world.hold_until(1_000, Place::First);
    assert_eq!(next.poll(), Poll::Pending, "the next is held as ever");
    world.holds.release("t");
    assert_eq!(next.poll(), Poll::Ready(true));
}

#[test]
fn one_whose_client_is_gone_is_passed_over() {
    let world = World::new();
    let mut first = world.hold_until(1_000, Place::First);
    let mut second = world.hold_until(1_000, Place::Last);
    let mut third = world.hold_until(1_000, Place::Last);
    world.holds.remote.borrow_mut().insert((ShardId(1), 7), Rc::clone(&first.caller));
    world.holds.revoke(ShardId(1), 8);
    assert_eq!(first.poll(), Poll::Pending);
    world.holds.revoke(ShardId(1), 7);
    assert_eq!(first.poll(), Poll::Ready(false));
    world.holds.release("t");
    // It goes away with its turn already given: the next one gets it.
    second.caller.revoked.set(true);
    assert_eq!(second.poll(), Poll::Ready(false));
    assert_eq!(third.poll(), Poll::Ready(true));
}

#[test]
fn nobody_is_held_without_time_or_room() {
    let world = World::new();
    let holds = &world.holds;
    let refused =
        |caller: &Rc<Caller>| !holds.enqueue(world.clock.now(), &world.id, caller, Place::First);
    assert!(refused(&Caller::new(until(0), None)), "holding is switched off");
    let caller = Caller::new(until(10), None);
    holds.held.set(TXN_REQUESTS_HELD_MAX);
    assert!(refused(&caller));
    assert!(holds.lines.borrow().is_empty());
    holds.held.set(TXN_REQUESTS_HELD_MAX - 1);
    assert!(!refused(&caller));
}
