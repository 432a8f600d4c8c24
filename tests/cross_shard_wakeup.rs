//! Two shards wake each other 200,000 times, parked and spinning, without ever getting stuck.
//!
//! Guards the one place where threads meet: the mailbox and the runtime's foreign wakes, which
//! have stalled for good in other set-ups (task queues with a latency demand). Strict ping-pong:
//! at every moment exactly one message is under way, so that one lost wake stops everything, and
//! a watchdog ends the process loudly. To be run again for every version of the runtime.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringlog::ids::ShardId;
use ringlog::io::Runtime;
use ringlog::io::executor::{ExecutorOptions, GlommioRuntime, ShardsError, run_shards};
use ringlog::io::mailbox::{Lane, Mailbox, MeshLimits, mesh};

#[test]
fn parked_shards_wake_each_other() {
    ping_pong("parked", Duration::ZERO, 200_000);
}

#[test]
fn spinning_shards_wake_each_other() {
    ping_pong("spinning 50 us", Duration::from_micros(50), 200_000);
}

#[test]
fn shards_that_share_a_core_wake_each_other() {
    // Shards 0 and n of n cores have the same core, which the two must hand over at every turn.
    let cores = ringlog::io::cores::cores().len();
    let mailboxes = mesh::<u64>(u16::try_from(cores + 1).expect("cores"), MeshLimits::default());
    run("sharing a core", Duration::ZERO, mailboxes, cores, 50_000);
}

/// Sixteen pairs of shards that hear of each other now and then: each wake finds a shard asleep.
#[test]
fn shards_that_sleep_long_hear_at_once() {
    const PAIRS: u16 = 8;
    const TRIPS: u64 = 60;
    let mailboxes = mesh::<u64>(2 * PAIRS, MeshLimits::default());
    let progress = Arc::new(AtomicU64::new(0));
    let ended = watch("rarely woken", Arc::clone(&progress));
    let waits = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&waits);
    let result: Result<(), ShardsError<String>> =
        run_shards(ExecutorOptions::default(), mailboxes, move |shard, mailbox| {
            let (progress, waits) = (Arc::clone(&progress), Arc::clone(&all));
            async move {
                if shard.0 >= PAIRS {
                    for trip in 1..=TRIPS {
                        assert_eq!(next(&mailbox).await, trip);
                        mailbox.send(ShardId(shard.0 - PAIRS), Lane::Reply, trip);
                    }
                    mailbox.flushed().await;
                    return Ok(());
                }
                let runtime = GlommioRuntime::new();
                for trip in 1..=TRIPS {
                    let pause_ms = 30 + runtime.random() % 90;
                    runtime.sleep_until(runtime.now().plus_ms(pause_ms)).await;
                    let sent = Instant::now();
                    mailbox.send(ShardId(shard.0 + PAIRS), Lane::Request, trip);
                    assert_eq!(next(&mailbox).await, trip);
                    progress.fetch_add(1, Ordering::Relaxed);
                    waits.lock().expect("waits").push(sent.elapsed());
                }
                Ok(())
            }
        });
    ended.store(true, Ordering::SeqCst);
    result.expect("shards");
    let mut waits = std::mem::take(&mut *waits.lock().expect("waits"));
    waits.sort_unstable();
    let slow = waits.iter().filter(|&&wait| wait > SLOW).count();
    println!(
        "rarely woken: {} trips, {slow} over {SLOW:?}, tail {:?}",
        waits.len(),
        &waits[waits.len() - 8..]
    );
}

fn ping_pong(name: &'static str, spin_before_park: Duration, trips: u64) {
    let mailboxes = mesh::<u64>(2, MeshLimits::default());
    run(name, spin_before_park, mailboxes, 1, trips);
}

/// Shard 0 and shard `other` play; any others end at once.
fn run(
    name: &'static str,
    spin_before_park: Duration,
    mailboxes: Vec<Mailbox<u64>>,
    other: usize,
    trips: u64,
) {
    let progress = Arc::new(AtomicU64::new(0));
    let ended = watch(name, Arc::clone(&progress));
    let other = ShardId(u16::try_from(other).expect("shard"));
    let start = Instant::now();
    let result: Result<(), ShardsError<String>> = run_shards(
        ExecutorOptions { spin_before_park, ..Default::default() },
        mailboxes,
        move |shard, mailbox| {
            let progress = Arc::clone(&progress);
            async move {
                if shard == ShardId(0) {
                    serve(&mailbox, other, trips, &progress).await;
                } else if shard == other {
                    echo(&mailbox, trips).await;
                }
                Ok(())
            }
        },
    );
    ended.store(true, Ordering::SeqCst);
    result.expect("shards");
    let per_trip = start.elapsed() / u32::try_from(trips).expect("trips");
    println!("{name}: {trips} round trips, {per_trip:?} each");
}

async fn serve(mailbox: &Mailbox<u64>, other: ShardId, trips: u64, progress: &AtomicU64) {
    let (mut slow, mut slowest) = (0, Duration::ZERO);
    for trip in 1..=trips {
        let sent = Instant::now();
        mailbox.send(other, Lane::Request, trip);
        assert_eq!(next(mailbox).await, trip);
        progress.store(trip, Ordering::Relaxed);
        slow += u64::from(sent.elapsed() > SLOW);
        slowest = slowest.max(sent.elapsed());
    }
    println!("{slow} over {SLOW:?}, the slowest {slowest:?}");
}

async fn echo(mailbox: &Mailbox<u64>, trips: u64) {
    for trip in 1..=trips {
        assert_eq!(next(mailbox).await, trip);
        mailbox.send(ShardId(0), Lane::Reply, trip);
    }
    mailbox.flushed().await;
}

async fn next(mailbox: &Mailbox<u64>) -> u64 {
    mailbox.wait().await;
    let mut envelopes = Vec::with_capacity(1);
    assert_eq!(mailbox.receive(&mut envelopes, usize::MAX), 1);
    envelopes[0].message
}

/// Ends the process if `progress` stands still for five seconds before the returned flag is set.
fn watch(name: &'static str, progress: Arc<AtomicU64>) -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let seen_end = Arc::clone(&ended);
    std::thread::spawn(move || {
        let mut last = (progress.load(Ordering::Relaxed), Instant::now());
        while !seen_end.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(100));
            let now = progress.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > Duration::from_secs(5) {
                eprintln!("STUCK: {name}: no progress for 5 s after round trip {now}");
                std::process::exit(101);
            }
        }
    });
    ended
}

/// Longer than any wake on a machine that is not overloaded.
const SLOW: Duration = Duration::from_millis(5);
