//! The connections of one shard, and the limits of time and memory on each.
//!
//! Owns the list of them, what each is in the middle of ([`Progress`]), and the two tasks that
//! close whoever goes beyond a limit. Must never let one connection's fault keep another waiting:
//! - a connection that is idle for `connections.max.idle.ms` is closed;
//! - so is one whose request has begun and does not go on, or whose client takes nothing of a
//!   response that waits for it, for `connections.stall.ms`;
//! - while others wait for memory, whoever has held some for [`MEMORY_HELD_MS_MAX`] in the middle
//!   of a request or response pays, the largest first.
//!
//! A connection that is left unread because memory is used does not pay for that time. One of those
//! that have begun a request is read all the same, the oldest, so that there is always one that
//! ends. Source of the idle limit: Kafka's `Selector.IdleExpiryManager`; the others are ours.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use super::Shard;
use super::connection::Connection;
use super::event::Event;
use crate::io::Monotonic;
use crate::limits::{FRAME_PROGRESS_BYTES_MIN, MEMORY_HELD_MS_MAX, MEMORY_LOOK_MS};
use crate::metrics::Limit;

/// The connections of a shard.
#[derive(Default)]
pub struct Connections {
    open: RefCell<Vec<Weak<Connection>>>,
    count: Cell<usize>,
    ended: Event,
    /// Numbers of the requests that have begun to arrive, the oldest first.
    begun: RefCell<BTreeSet<u64>>,
    next_number: Cell<u64>,
}

/// What one connection is in the middle of.
pub struct Progress {
    last_active: Cell<Monotonic>,
    received_bytes: Cell<u64>,
    begun: Cell<Option<Begun>>,
    paused_since: Cell<Option<Monotonic>>,
    writing: Cell<Option<Writing>>,
}

/// A request of which a part has arrived.
#[derive(Clone, Copy)]
struct Begun {
    number: u64,
    since: Monotonic,
    /// Since when, and from how many bytes of the connection on, it must go on.
    looked: Monotonic,
    looked_bytes: u64,
}

/// Responses on their way to the client.
#[derive(Clone, Copy)]
struct Writing {
    since: Monotonic,
    moved: Monotonic,
    sent_bytes: u64,
}

/// What the limits of time say of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may go on.
    Fine,
    /// It has been idle for too long.
    Idle,
    /// It is in the middle of something and does not go on.
    Stalled,
}

/// The limits of time.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// `connections.max.idle.ms`; `None` for no limit.
    pub idle_ms: Option<u64>,
    /// `connections.stall.ms`.
    pub stall_ms: u64,
}

impl Connections {
    /// Number of connections being served.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Waits until one has closed after generation `seen` of [`Connections::generation`].
    pub async fn one_ended(&self, seen: u64) {
        self.ended.wait(seen).await;
    }

    /// Counts ends so far.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.ended.generation()
    }

    pub(super) fn add(&self, connection: &Rc<Connection>) {
        self.count.set(self.count.get() + 1);
        self.open.borrow_mut().push(Rc::downgrade(connection));
    }

    pub(super) fn remove(&self) {
        self.count.set(self.count.get() - 1);
        self.ended.notify();
    }

    /// A part of a request is there, and no whole one before it.
    pub(super) fn request_begun(&self, progress: &Progress, now: Monotonic) {
        if progress.begun.get().is_none() {
            let number = self.next_number.get();
            self.next_number.set(number + 1);
            self.begun.borrow_mut().insert(number);
            let looked_bytes = progress.received_bytes.get();
            progress.begun.set(Some(Begun { number, since: now, looked: now, looked_bytes }));
        }
    }

    /// The request that had begun is whole, or its connection is gone. Returns whether it was the
    /// oldest, so that another one may be read now.
    pub(super) fn request_ended(&self, progress: &Progress) -> bool {
        let Some(ended) = progress.begun.take() else { return false };
        let mut begun = self.begun.borrow_mut();
        let was_oldest = begun.first() == Some(&ended.number);
        begun.remove(&ended.number);
        was_oldest
    }

    /// Whether this connection's request is the oldest that has begun to arrive.
    pub(super) fn is_oldest(&self, progress: &Progress) -> bool {
        let number = progress.begun.get().map(|begun| begun.number);
        number.is_some() && number == self.begun.borrow().first().copied()
    }

    /// Requests of all of them that are not answered yet.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.open().iter().map(|connection| connection.requests()).sum()
    }

    fn open(&self) -> Vec<Rc<Connection>> {
        let mut open = Vec::new();
        self.open.borrow_mut().retain(|connection| match connection.upgrade() {
            Some(connection) => {
                open.push(connection);
                true
            }
            None => false,
        });
        open
    }
}

impl Progress {
    /// Of a new connection.
    #[must_use]
    pub fn new(now: Monotonic) -> Progress {
        Progress {
            last_active: Cell::new(now),
            received_bytes: Cell::new(0),
            begun: Cell::new(None),
            paused_since: Cell::new(None),
            writing: Cell::new(None),
        }
    }

    /// Bytes have arrived.
    pub fn received(&self, bytes: usize, now: Monotonic) {
        self.received_bytes.set(self.received_bytes.get() + bytes as u64);
        self.last_active.set(now);
    }

    /// The socket is left unread from now on.
    pub fn paused(&self, now: Monotonic) {
        self.paused_since.set(Some(now));
    }

    /// The socket is read again; the time it was not does not count.
    pub fn resumed(&self, now: Monotonic) {
        let Some(since) = self.paused_since.take() else { return };
        if let Some(mut begun) = self.begun.get() {
            let pause_ms = now.ms_since(since);
            begun.since = begun.since.plus_ms(pause_ms);
            begun.looked = begun.looked.plus_ms(pause_ms);
            self.begun.set(Some(begun));
        }
    }

    /// Responses begin to leave; `sent_bytes` have left on this connection so far.
    pub fn write_begun(&self, sent_bytes: u64, now: Monotonic) {
        self.writing.set(Some(Writing { since: now, moved: now, sent_bytes }));
    }

    /// All of them have left.
    pub fn write_ended(&self, now: Monotonic) {
        self.writing.set(None);
        self.last_active.set(now);
    }

    /// What the limits of time say. `busy` if requests are in progress.
    pub fn judge(
        &self,
        now: Monotonic,
        sent_bytes: u64,
        busy: bool,
        patience: Patience,
    ) -> Verdict {
        if let Some(mut writing) = self.writing.get() {
            if writing.sent_bytes != sent_bytes {
                writing.sent_bytes = sent_bytes;
                writing.moved = now;
                self.writing.set(Some(writing));
            } else if now.ms_since(writing.moved) >= patience.stall_ms {
                return Verdict::Stalled;
            }
        }
        if let (Some(mut begun), None) = (self.begun.get(), self.paused_since.get())
            && now.ms_since(begun.looked) >= patience.stall_ms
        {
            let received_bytes = self.received_bytes.get();
            if received_bytes - begun.looked_bytes < FRAME_PROGRESS_BYTES_MIN {
                return Verdict::Stalled;
            }
            begun.looked = now;
            begun.looked_bytes = received_bytes;
            self.begun.set(Some(begun));
        }
        let idle_ms = now.ms_since(self.last_active.get());
        match patience.idle_ms {
            Some(most_ms) if !busy && idle_ms > most_ms => Verdict::Idle,
            _ => Verdict::Fine,
        }
    }

    /// Since when it holds memory that its client could let go.
    #[must_use]
    pub fn holds_since(&self) -> Option<Monotonic> {
        let begun = match self.paused_since.get() {
            None => self.begun.get().map(|begun| begun.since),
            Some(_) => None,
        };
        let writing = self.writing.get().map(|writing| writing.since);
        [begun, writing].into_iter().flatten().min()
    }
}

/// Starts the tasks that watch the connections: for all of them, not a timer each.
pub fn start(shard: &Rc<Shard>) {
    let config = &shard.context.config;
    let patience = Patience {
        idle_ms: u64::try_from(config.connections_max_idle_ms).ok(),
        stall_ms: config.connections_stall_ms,
    };
    let watching = Rc::clone(shard);
    shard.runtime.spawn(Box::pin(async move { watch_time(&watching, patience).await }));
    let watching = Rc::clone(shard);
    shard.runtime.spawn(Box::pin(async move { watch_memory(&watching).await }));
}

async fn watch_time(shard: &Rc<Shard>, patience: Patience) {
    let idle_ms = patience.idle_ms.unwrap_or(u64::MAX);
    let pause_ms = (idle_ms / 8).min(patience.stall_ms / 4).clamp(10, 60_000);
    loop {
        let next = shard.runtime.now().plus_ms(pause_ms);
        shard.runtime.sleep_until(next).await;
        let now = shard.runtime.now();
        for connection in shard.connections.open() {
            match connection.judge(now, patience) {
                Verdict::Fine => {}
                Verdict::Idle => {
                    shard.metrics.limit_reached(Limit::ConnectionIdle);
                    connection.close();
                }
                Verdict::Stalled => {
                    shard.metrics.limit_reached(Limit::ConnectionStall);
                    tracing::debug!(peer = %connection.peer, "connection closed: it stalls");
                    connection.cut();
                }
            }
        }
    }
}

/// While somebody waits for memory: asks those that wait with a lot of it to answer, and closes
/// those that have held theirs for too long.
async fn watch_memory(shard: &Rc<Shard>) {
    let budget = &shard.connection_memory;
    loop {
        budget.pressed().await;
        let next = shard.runtime.now().plus_ms(MEMORY_LOOK_MS);
        shard.runtime.sleep_until(next).await;
        if !budget.is_pressed() || budget.excess() == 0 {
            continue;
        }
        let now = shard.runtime.now();
        let mut holders = Vec::new();
        for connection in shard.connections.open() {
            let held = connection.held_bytes();
            match connection.progress.holds_since() {
                Some(since) if now.ms_since(since) >= MEMORY_HELD_MS_MAX => {
                    holders.push((held, connection));
                }
                _ => connection.hurry(held),
            }
        }
        holders.sort_by_key(|(held, _)| std::cmp::Reverse(*held));
        let mut excess = budget.excess();
        for (held, connection) in holders {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(held);
            shard.metrics.limit_reached(Limit::ConnectionMemory);
            tracing::debug!(
                peer = %connection.peer,
                "connection closed: it held {held} bytes while others waited for memory"
            );
            connection.cut();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { idle_ms: Some(1_000), stall_ms: 400 };

    fn at(ms: u64) -> Monotonic {
        Monotonic::default().plus_ms(ms)
    }

    fn judge(progress: &Progress, ms: u64) -> Verdict {
        progress.judge(at(ms), 0, false, PATIENCE)
    }

    #[test]
    fn an_idle_connection_is_closed_unless_it_is_busy() {
        let progress = Progress::new(at(0));
        assert_eq!(judge(&progress, 1_000), Verdict::Fine);
        assert_eq!(judge(&progress, 1_001), Verdict::Idle);
        assert_eq!(progress.judge(at(9_000), 0, true, PATIENCE), Verdict::Fine);
        progress.received(1, at(1_500));
        assert_eq!(judge(&progress, 2_500), Verdict::Fine);
        progress.write_begun(0, at(2_600));
        progress.write_ended(at(2_700));
        assert_eq!(judge(&progress, 3_700), Verdict::Fine);
        let unlimited = Patience { idle_ms: None, ..PATIENCE };
        assert_eq!(progress.judge(at(1 << 40), 0, false, unlimited), Verdict::Fine);
    }

    #[test]
    fn a_request_that_has_begun_must_go_on_by_enough() {
        let connections = Connections::default();
        let progress = Progress::new(at(0));
        connections.request_begun(&progress, at(0));
        progress.received(FRAME_PROGRESS_BYTES_MIN as usize, at(100));
        assert_eq!(judge(&progress, 400), Verdict::Fine);
        // A byte now and then is not enough.
        for ms in 500..800 {
            progress.received(1, at(ms));
            assert_eq!(judge(&progress, ms), Verdict::Fine);
        }
        assert_eq!(judge(&progress, 800), Verdict::Stalled);
        assert!(connections.request_ended(&progress));
        assert_eq!(judge(&progress, 800), Verdict::Fine);
    }

    #[test]
    fn time_in_which_a_socket_is_left_unread_does_not_count() {
        let connections = Connections::default();
        let progress = Progress::new(at(0));
        connections.request_begun(&progress, at(0));
        assert_eq!(progress.holds_since(), Some(at(0)));
        progress.paused(at(300));
        assert_eq!((judge(&progress, 900), progress.holds_since()), (Verdict::Fine, None));
        progress.resumed(at(900));
        assert_eq!(progress.holds_since(), Some(at(600)));
        assert_eq!(judge(&progress, 999), Verdict::Fine);
        assert_eq!(judge(&progress, 1_000), Verdict::Stalled);
    }

    #[test]
    fn a_response_must_be_taken_even_if_slowly() {
        let progress = Progress::new(at(0));
        progress.write_begun(0, at(0));
        for round in 1..10 {
            assert_eq!(progress.judge(at(round * 399), round, true, PATIENCE), Verdict::Fine);
        }
        assert_eq!(progress.judge(at(9 * 399 + 399), 9, true, PATIENCE), Verdict::Fine);
        assert_eq!(progress.judge(at(9 * 399 + 400), 9, true, PATIENCE), Verdict::Stalled);
        assert_eq!(progress.holds_since(), Some(at(0)));
    }

    #[test]
    fn one_request_that_has_begun_is_always_read() {
        let connections = Connections::default();
        let all: Vec<Progress> = (0..3).map(|_| Progress::new(at(0))).collect();
        for progress in &all {
            connections.request_begun(progress, at(0));
            connections.request_begun(progress, at(5));
        }
        let oldest = |all: &[Progress]| -> Vec<bool> {
            all.iter().map(|progress| connections.is_oldest(progress)).collect()
        };
        assert_eq!(oldest(&all), [true, false, false]);
        assert!(!connections.request_ended(&all[1]));
        assert!(connections.request_ended(&all[0]) && !connections.request_ended(&all[0]));
        assert_eq!(oldest(&all), [false, false, true]);
    }
}
