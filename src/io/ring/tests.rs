//! Tests over the kernel's ring, each on an executor of its own.

use std::rc::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use futures_lite::future::poll_once;

use super::*;
use crate::io::executor::{run_here, run_over, sleep_ms, spawn, turn};
use crate::io::readiness::{Direction, Readiness};
use crate::io::threads::{blocking, from_any_thread};

fn run<T>(test: impl Future<Output = T>) -> T {
    run_here(test).expect("an executor")
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines_and_not_before() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let begun = clock::now();
        let mut tasks = Vec::new();
        for pause_ms in [9, 3, 6] {
            let order = Rc::clone(&order);
            tasks.push(spawn(async move {
                sleep_ms(pause_ms).await;
                assert!(clock::now() >= begun.plus_ms(pause_ms));
                order.borrow_mut().push(pause_ms);
            }));
        }
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [3, 6, 9]);
        assert!(Ring::current().state.borrow().timers.is_empty());
    });
}

#[test]
fn a_timer_that_nobody_waits_for_is_gone() {
    run(async {
        let mut sleep = Box::pin(sleep_ms(60_000));
        assert!(poll_once(&mut sleep).await.is_none());
        assert_eq!(Ring::current().state.borrow().timers.len(), 1);
        drop(sleep);
        assert!(Ring::current().state.borrow().timers.is_empty());
    });
}

#[test]
fn a_call_from_another_thread_ends_a_sleep_and_none_is_lost() {
    run(async {
        for round in 0..2_000 {
            let (sender, receiver) = mpsc::channel::<Waker>();
            let called = Arc::new(AtomicBool::new(false));
            let calling = Arc::clone(&called);
            let caller = std::thread::spawn(move || {
                let waker = receiver.recv().expect("a waker");
                if round % 3 == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                calling.store(true, Ordering::SeqCst);
                waker.wake();
            });
            let mut sender = Some(sender);
            std::future::poll_fn(|context| {
                if called.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                if let Some(sender) = sender.take() {
                    sender.send(from_any_thread(context.waker())).expect("a caller");
                }
                Poll::Pending
            })
            .await;
            caller.join().expect("a caller");
        }
        turn().await;
        assert!(Ring::current().state.borrow().called.is_empty(), "forgotten with the waker");
    });
}

#[test]
fn a_task_that_never_waits_lets_the_others_hear_of_their_operations() {
    run(async {
        let (reading, writing) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let reading = Rc::new(reading);
        let is_readable = Rc::new(Cell::new(false));
        let task = spawn({
            let (reading, is_readable) = (Rc::clone(&reading), Rc::clone(&is_readable));
            async move {
                Readiness::new(Direction::Read).wait(&reading).await.expect("readable");
                is_readable.set(true);
            }
        });
        turn().await;
        io::Write::write_all(&mut &writing, b"x").expect("written");
        let given_up = clock::now().plus_ms(5_000);
        while !is_readable.get() {
            assert!(clock::now() < given_up, "not told");
            turn().await;
        }
        task.await;
    });
}

#[test]
fn a_ring_of_an_older_kernel_does_as_well() {
    let plain = plain_if_unknown(io::Error::from_raw_os_error(libc::EINVAL)).expect("a ring");
    let ring = Ring::over(plain, Duration::ZERO).expect("a ring");
    let told = run_over(ring, async {
        let (reading, writing) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let reading = Rc::new(reading);
        let task = spawn(async move { Readiness::new(Direction::Read).wait(&reading).await });
        sleep_ms(2).await;
        blocking(move || io::Write::write_all(&mut &writing, b"x")).await.expect("written");
        task.await
    });
    told.expect("an executor").expect("readable");
}

#[test]
fn a_ring_that_spins_hears_of_all_as_well() {
    let ring = Ring::new(Duration::from_micros(200)).expect("a ring");
    let rounds = run_over(ring, async {
        for round in 0..50 {
            assert_eq!(blocking(move || Ok(round)).await.expect("an answer"), round);
            sleep_ms(round % 2).await;
        }
        50
    });
    assert_eq!(rounds.expect("an executor"), 50);
}

#[test]
fn what_is_given_up_is_kept_until_the_kernel_is_done() {
    run(async {
        let (reading, writing) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let reading = Rc::new(reading);
        let held: Weak<_> = Rc::downgrade(&reading);
        {
            let readiness = Readiness::new(Direction::Read);
            assert!(poll_once(readiness.wait(&reading)).await.is_none());
            drop(reading);
        }
        turn().await;
        assert!(held.upgrade().is_some(), "the kernel watches it");
        drop(writing);
        let given_up = clock::now().plus_ms(5_000);
        while held.upgrade().is_some() {
            assert!(clock::now() < given_up, "kept for good");
            sleep_ms(1).await;
        }
        assert!(Ring::current().state.borrow().operations.is_empty());
    });
}

#[test]
fn more_operations_than_fit_at_once_all_end() {
    run(async {
        let mut pairs = Vec::new();
        for _ in 0..ENTRIES + 50 {
            let (reading, writing) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let reading = Rc::new(reading);
            let task = spawn(async move {
                Readiness::new(Direction::Read).wait(&reading).await.expect("readable");
            });
            pairs.push((task, writing));
        }
        turn().await;
        for (task, writing) in pairs {
            drop(writing);
            task.await;
        }
    });
}

#[test]
fn a_helpers_answer_and_its_error_arrive() {
    run(async {
        assert_eq!(blocking(|| Ok(7)).await.expect("an answer"), 7);
        let refused: io::Result<()> = blocking(|| Err(io::ErrorKind::NotFound.into())).await;
        assert_eq!(refused.expect_err("refused").kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn what_a_helper_was_given_is_done_before_the_end() {
    let done = Arc::new(AtomicBool::new(false));
    let sets = Arc::clone(&done);
    run(async move {
        let given = blocking(move || {
            std::thread::sleep(Duration::from_millis(20));
            sets.store(true, Ordering::SeqCst);
            Ok(())
        });
        assert!(poll_once(given).await.is_none());
    });
    assert!(done.load(Ordering::SeqCst));
}
