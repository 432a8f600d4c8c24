//! What all clients of a run share: the record of what they did, numbers, and what they are to do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crate::history::{Group, Line, Log, Ns, Operation, Process, Txn, What};

/// Name and partitions of each topic: its place is its number in a [`Log`].
pub const TOPICS: &[(&str, u8)] = &[("events", 4), ("ledger", 3), ("made", 2), ("strict", 1)];
/// Written by idempotent producers, some of which have clocks that are a day off.
pub const EVENTS: u8 = 0;
/// Written in transactions.
pub const LEDGER: u8 = 1;
/// Written by those that make an output of each record that their group reads.
pub const MADE: u8 = 2;
/// Takes no records from the future.
pub const STRICT: u8 = 3;

/// Shared by all threads.
pub struct Run {
    /// Where to ask first.
    pub bootstrap: SocketAddr,
    operations: Mutex<Vec<Operation>>,
    /// What no client should ever be told.
    faults: Mutex<Vec<String>>,
    /// How often each answer came that is no success, by request and code.
    codes: Mutex<BTreeMap<(&'static str, i16), u64>>,
    values: AtomicU64,
    processes: AtomicU32,
    transactions: AtomicU64,
    /// Clients are to come to an end; readers are to end too.
    ending: AtomicBool,
    over: AtomicBool,
    /// By place of a client: until when it does not move.
    paused: Vec<AtomicU64>,
    /// How often one of them stood still.
    pub pauses: AtomicU64,
}

impl Run {
    /// Of clients with places below `clients`.
    pub fn new(bootstrap: SocketAddr, clients: usize) -> Run {
        Run {
            bootstrap,
            operations: Mutex::default(),
            faults: Mutex::default(),
            codes: Mutex::default(),
            values: AtomicU64::new(1),
            processes: AtomicU32::new(1),
            transactions: AtomicU64::new(1),
            ending: AtomicBool::new(false),
            over: AtomicBool::new(false),
            paused: (0..clients).map(|_| AtomicU64::new(0)).collect(),
            pauses: AtomicU64::new(0),
        }
    }

    /// Notes an operation that ends now.
    pub fn note(&self, process: Process, invoked: Ns, what: What) {
        let done = now();
        self.note_all([Operation { process, invoked, done, what }]);
    }

    pub fn note_all(&self, operations: impl IntoIterator<Item = Operation>) {
        lock(&self.operations).extend(operations);
    }

    pub fn operations(&self) -> usize {
        lock(&self.operations).len()
    }

    pub fn take_operations(&self) -> Vec<Operation> {
        std::mem::take(&mut lock(&self.operations))
    }

    /// Somebody was told what nobody should be.
    pub fn fault(&self, told: String) {
        let mut faults = lock(&self.faults);
        if faults.len() < 100 {
            println!("fault: {told}");
            faults.push(told);
        }
    }

    pub fn faults(&self) -> MutexGuard<'_, Vec<String>> {
        lock(&self.faults)
    }

    pub fn code(&self, what: &'static str, code: i16) {
        *lock(&self.codes).entry((what, code)).or_default() += 1;
    }

    pub fn codes(&self) -> BTreeMap<(&'static str, i16), u64> {
        lock(&self.codes).clone()
    }

    pub fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    pub fn process(&self) -> Process {
        Process(self.processes.fetch_add(1, Ordering::Relaxed))
    }

    pub fn transaction(&self) -> Txn {
        Txn(self.transactions.fetch_add(1, Ordering::Relaxed))
    }

    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    pub fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A client stands still for so long, as if its process were stopped.
    pub fn pause(&self, client: usize, time: Duration) {
        let until = now() + time.as_nanos() as u64;
        self.paused[client].store(until, Ordering::SeqCst);
    }

    /// Where a client stands still if it is to.
    pub fn stand(&self, client: usize) {
        let until = self.paused[client].swap(0, Ordering::SeqCst);
        let left = until.saturating_sub(now());
        if left > 0 {
            self.pauses.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_nanos(left));
        }
    }
}

/// The clock of the machine that all processes share.
pub fn now() -> Ns {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for a write of its type.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(code, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// All partitions of a topic.
pub fn logs_of(topic: u8) -> impl Iterator<Item = Log> {
    let (_, partitions) = TOPICS[usize::from(topic)];
    (0..partitions).map(move |partition| Log { topic, partition })
}

/// All partitions.
pub fn logs() -> impl Iterator<Item = Log> {
    (0..TOPICS.len() as u8).flat_map(logs_of)
}

impl Log {
    /// The topic's name.
    pub fn name(self) -> &'static str {
        TOPICS[usize::from(self.topic)].0
    }

    pub fn index(self) -> i32 {
        i32::from(self.partition)
    }
}

impl Group {
    /// Its id on the wire.
    pub fn name(self) -> String {
        format!("group-{}", self.0)
    }
}

impl Line {
    /// Its transactional id.
    pub fn name(self) -> String {
        format!("line-{}", self.0)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
