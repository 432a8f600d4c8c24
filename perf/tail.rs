//! From sending to receiving: producers on a fixed timeline, and a consumer that waits at the end
//! of each partition.
//!
//! Owns the match of what is received with when it was to be sent: each partition has one producer
//! and one consumer, so that batches come in the order in which they went. Times count from the
//! intended moment of sending, as everywhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::client::{
    Client, Fault, accept, fetch_records, next_offset, produce_error, produce_frame,
    waiting_fetch_frame,
};
use super::load::{self, Load};
use super::measure::Usage;
use super::target::Server;

/// What was found.
pub struct Tailed {
    pub latencies: Histogram<u64>,
    pub seconds: f64,
    pub used: Usage,
}

/// Runs a load of as many producers as the topic has partitions, with as many consumers.
pub fn measure(server: &Server, load: &Load) -> Result<Tailed, Fault> {
    let leaders = Client::connect(&server.address)?.leaders(&load.topic, load.partitions)?;
    let (measuring, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let all = AtomicU64::new(0);
    let mut latencies = Histogram::<u64>::new(3)?;
    let mut used = Usage::default();
    let mut seconds = 0.0;
    std::thread::scope(|scope| -> Result<(), Fault> {
        let mut threads = Vec::new();
        for (partition, leader) in leaders.iter().enumerate() {
            let (sender, sent) = channel();
            let part = Part { load, leader, partition: partition as i32, core: server.core };
            let (measuring, over, all) = (&measuring, &over, &all);
            let producing = part;
            threads.push(scope.spawn(move || {
                let produced = producing.produce(&sender, over);
                over.store(true, Ordering::SeqCst);
                produced.map(|()| None)
            }));
            threads.push(scope.spawn(move || {
                let consumed = part.consume(&sent, (measuring, over, all));
                over.store(true, Ordering::SeqCst);
                consumed.map(Some)
            }));
        }
        wait(load.warm_up_seconds, &over, &all);
        let (before, begun) = (server.usage(), Instant::now());
        measuring.store(true, Ordering::SeqCst);
        wait(load.seconds, &over, &all);
        measuring.store(false, Ordering::SeqCst);
        (used, seconds) = (server.usage().since(&before), begun.elapsed().as_secs_f64());
        over.store(true, Ordering::SeqCst);
        for thread in threads {
            if let Some(part) = thread.join().map_err(|_| "a connection's thread failed")?? {
                latencies.add(part)?;
            }
        }
        Ok(())
    })?;
    Ok(Tailed { latencies, seconds, used })
}

fn wait(seconds: u64, over: &AtomicBool, all: &AtomicU64) {
    for second in 1..=seconds {
        let before = all.load(Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end && !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(50));
        }
        eprintln!("{second}/{seconds} s: {} received", all.load(Ordering::Relaxed) - before);
    }
}

/// A partition, its producer and its consumer.
#[derive(Clone, Copy)]
struct Part<'a> {
    load: &'a Load,
    leader: &'a str,
    partition: i32,
    core: usize,
}

impl Part<'_> {
    fn produce(self, sender: &Sender<Instant>, over: &AtomicBool) -> Result<(), Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: self.core });
        let load = self.load;
        let frame = produce_frame(&load.topic, self.partition, load.acks, &load::batch(load));
        let mut client = Client::connect(self.leader)?;
        let rate = load.rate.max(1) as f64;
        let interval = Duration::from_secs_f64(f64::from(load.partitions) / rate);
        let (mut due, mut in_flight) = (Instant::now(), 0);
        while !over.load(Ordering::Relaxed) {
            if Instant::now() >= due && in_flight < load.in_flight {
                // Told before it goes: it may be back at once.
                sender.send(due)?;
                client.send(&frame)?;
                due += interval;
                in_flight += 1;
                continue;
            }
            let until = if in_flight < load.in_flight { due } else { due + PAUSE };
            if in_flight == 0 {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            } else if client.readable_before(until)? {
                accept("Produce", produce_error(client.receive()?, &load.topic))?;
                in_flight -= 1;
            }
        }
        Ok(())
    }

    fn consume(
        self,
        sent: &Receiver<Instant>,
        (measuring, over, all): (&AtomicBool, &AtomicBool, &AtomicU64),
    ) -> Result<Histogram<u64>, Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: self.core });
        let mut client = Client::connect(self.leader)?;
        let mut histogram = Histogram::new(3)?;
        let (mut offset, records) = (0, self.load.records.max(1) as i64);
        let bounds = (FETCH_BYTES, WAIT_MS);
        while !over.load(Ordering::Relaxed) {
            let topic = &self.load.topic;
            client.send(&waiting_fetch_frame(topic, self.partition, offset, bounds))?;
            let (code, bytes) = fetch_records(client.receive()?, topic);
            accept("Fetch", code)?;
            let now = Instant::now();
            let Some(next) = next_offset(bytes) else { continue };
            for _ in 0..(next - offset) / records {
                let due = sent.try_recv().map_err(|_| "more was received than sent")?;
                all.fetch_add(1, Ordering::Relaxed);
                if measuring.load(Ordering::Relaxed) {
                    let late = now.saturating_duration_since(due);
                    histogram.record(late.as_nanos() as u64)?;
                }
            }
            offset = next;
        }
        Ok(histogram)
    }
}

const FETCH_BYTES: i32 = 1 << 20;
const WAIT_MS: i32 = 500;
const PAUSE: Duration = Duration::from_millis(100);
