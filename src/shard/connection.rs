//! One client connection: frames in, responses out in the order of their requests.
//!
//! Owns the pipeline of one connection. Requests are started in the order they arrive; Produce,
//! Fetch and pure reads overlap, any other API starts when the responses before it are ready.
//! A response leaves no earlier than the journal position it depends on. When too much is in
//! progress, the socket is left unread. Must never answer malformed input: it closes this
//! connection, and no other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::{Rc, Weak};

use bytes::{Bytes, BytesMut};

use super::Shard;
use super::event::{Event, Slot};
use super::memory::Charge;
use super::partition::Waiter;
use crate::api::{self, Answer, Response};
use crate::crash::{self, InHand};
use crate::io::{Monotonic, Stream};
use crate::limits::REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX;
use crate::metrics::Limit;
use crate::metrics::stages::{self, BlockTimes, RequestClock, Times};
use crate::wire::frame::{FrameFault, FrameSplitter};
use crate::wire::header::{self, HeaderFault};
use crate::wire::versions::Api;

/// What the handlers may know of a connection.
pub struct Connection {
    /// Text that names the peer in messages.
    pub peer: Rc<str>,
    closed: Cell<bool>,
    closing: Event,
    parked: RefCell<Vec<Weak<Waiter>>>,
    queue: RefCell<VecDeque<Queued>>,
    queued: Event,
    answered: Event,
    last_read: Cell<Monotonic>,
}

/// A response that is or will be there, and the memory of its request and itself.
struct Queued {
    slot: Rc<Slot<Response>>,
    _charge: Rc<Charge>,
    /// What it answers; nothing if it only ends the connection.
    asked: Option<Asked>,
}

/// What is kept of a request until its response has left.
#[derive(Clone)]
struct Asked {
    api: Api,
    version: i16,
    clock: Rc<RequestClock>,
}

/// The connections of a shard, for the limit on idle ones.
#[derive(Default)]
pub struct Connections {
    open: RefCell<Vec<Weak<Connection>>>,
    count: Cell<usize>,
    ended: Event,
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

    fn add(&self, connection: &Rc<Connection>) {
        self.count.set(self.count.get() + 1);
        self.open.borrow_mut().push(Rc::downgrade(connection));
    }

    fn remove(&self) {
        self.count.set(self.count.get() - 1);
        self.ended.notify();
    }

    /// Requests of all of them that are not answered yet.
    #[must_use]
    pub fn requests(&self) -> usize {
        let open = self.open.borrow();
        let queued = |connection: Rc<Connection>| connection.queue.borrow().len();
        open.iter().filter_map(Weak::upgrade).map(queued).sum()
    }

    /// Closes what has been idle for longer than `idle_ms` and has nothing in progress.
    fn close_idle(&self, now: Monotonic, idle_ms: u64) -> usize {
        let mut idle = Vec::new();
        self.open.borrow_mut().retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let busy = !connection.queue.borrow().is_empty();
            if !busy && now.ms_since(connection.last_read.get()) > idle_ms {
                idle.push(connection);
            }
            true
        });
        for connection in &idle {
            connection.close();
        }
        idle.len()
    }
}

/// Starts the task that closes idle connections: one for all of them, not a timer each.
pub fn start(shard: &Rc<Shard>) {
    let Ok(idle_ms) = u64::try_from(shard.context.config.connections_max_idle_ms) else { return };
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        loop {
            let pause_ms = (idle_ms / 8).clamp(10, 60_000);
            let next = shard.runtime.now().plus_ms(pause_ms);
            shard.runtime.sleep_until(next).await;
            let closed = shard.connections.close_idle(shard.runtime.now(), idle_ms);
            shard.metrics.limit_reached_often(Limit::ConnectionIdle, closed as u64);
        }
    }));
}

impl Connection {
    fn new(peer: Rc<str>, now: Monotonic) -> Rc<Connection> {
        Rc::new(Connection {
            peer,
            closed: Cell::new(false),
            closing: Event::default(),
            parked: RefCell::default(),
            queue: RefCell::default(),
            queued: Event::default(),
            answered: Event::default(),
            last_read: Cell::new(now),
        })
    }

    /// Whether the connection is gone: what is still in progress for it may stop.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Wakes this waiter when the connection closes.
    pub fn park(&self, waiter: &Rc<Waiter>) {
        let mut parked = self.parked.borrow_mut();
        parked.retain(|waiter| waiter.strong_count() > 0);
        parked.push(Rc::downgrade(waiter));
    }

    fn close(&self) {
        self.closed.set(true);
        self.closing.notify();
        self.queued.notify();
        self.answered.notify();
        for waiter in self.parked.borrow_mut().drain(..) {
            if let Some(waiter) = waiter.upgrade() {
                waiter.fire();
            }
        }
    }

    /// Waits until at most `count` responses are outstanding.
    async fn at_most(&self, count: usize) {
        loop {
            let seen = self.answered.generation();
            if self.closed.get() || self.queue.borrow().len() <= count {
                return;
            }
            self.answered.wait(seen).await;
        }
    }

    /// Waits until every response before now is ready.
    async fn all_ready(&self) {
        self.at_most(0).await;
    }

    fn has_room(&self) -> bool {
        self.queue.borrow().len() < REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
    }

    async fn room(&self) {
        self.at_most(REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX - 1).await;
    }

    fn push(&self, slot: Rc<Slot<Response>>, charge: Rc<Charge>, asked: Option<Asked>) {
        self.queue.borrow_mut().push_back(Queued { slot, _charge: charge, asked });
        self.queued.notify();
    }
}

/// Serves a connection in a task of its own; counted until it has closed.
pub fn spawn(shard: &Rc<Shard>, stream: Rc<dyn Stream>) {
    let connection = Connection::new(stream.peer().into(), shard.runtime.now());
    shard.connections.add(&connection);
    shard.metrics.connections_opened.add(1);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(serve(Rc::clone(shard), stream, connection)));
}

async fn serve(shard: Rc<Shard>, stream: Rc<dyn Stream>, connection: Rc<Connection>) {
    let writer = {
        let shard = Rc::clone(&shard);
        let stream = Rc::clone(&stream);
        let connection = Rc::clone(&connection);
        async move {
            write_responses(&shard, &stream, &connection).await;
            connection.close();
            stream.shut_down();
            shard.connections.remove();
        }
    };
    shard.runtime.spawn(Box::pin(writer));
    match read_requests(&shard, &stream, &connection).await {
        End::Peer => connection.close(),
        End::Stopping => {}
        End::Malformed(reason) => {
            shard.metrics.malformed.add(1);
            if let Some(limit) = reason.limit() {
                shard.metrics.limit_reached(limit);
            }
            tracing::debug!(peer = %connection.peer, "connection closed: {reason}");
        }
    }
    // What was asked before a malformed frame or a stop is still answered, in order.
    let charge = Rc::new(shard.connection_memory.take(0).await);
    connection.push(Slot::filled(Response::Close), charge, None);
}

/// Why no more requests are read.
enum End {
    /// The peer is gone.
    Peer,
    /// The shard is stopping.
    Stopping,
    /// The peer sent what is no request.
    Malformed(Malformed),
}

/// What is wrong with what the peer sent.
#[derive(Debug, thiserror::Error)]
enum Malformed {
    #[error(transparent)]
    Frame(#[from] FrameFault),
    #[error(transparent)]
    Header(#[from] HeaderFault),
    #[error(transparent)]
    Body(#[from] api::Malformed),
    #[error("this request crashed the broker twice")]
    Deadly,
}

impl Malformed {
    /// The bound that it goes beyond, if that is what is wrong.
    fn limit(&self) -> Option<Limit> {
        match self {
            Malformed::Frame(FrameFault::TooLarge { .. }) => Some(Limit::FrameTooLarge),
            Malformed::Body(fault) => fault.limit(),
            _ => None,
        }
    }
}

/// Reads and starts requests.
async fn read_requests(
    shard: &Rc<Shard>,
    stream: &Rc<dyn Stream>,
    connection: &Rc<Connection>,
) -> End {
    let bytes_max = usize::try_from(shard.context.config.socket_request_max_bytes).unwrap_or(0);
    let mut splitter = FrameSplitter::new(bytes_max);
    let mut buffer = BytesMut::new();
    // When the first bytes of the next frame were there.
    let mut began = Monotonic::default();
    loop {
        loop {
            match splitter.next(&mut buffer) {
                Ok(Some(frame)) => {
                    let clock = Rc::new(RequestClock::new(began, connection.last_read.get()));
                    began = connection.last_read.get();
                    if let Err(reason) = start_request(shard, connection, frame, clock).await {
                        return End::Malformed(reason);
                    }
                }
                Ok(None) => break,
                Err(fault) => return End::Malformed(fault.into()),
            }
        }
        if connection.is_closed() {
            return End::Peer;
        }
        if shard.is_stopping() {
            return End::Stopping;
        }
        let limit = splitter.read_bytes(&buffer);
        let is_new = buffer.is_empty();
        let stopped = async {
            shard.stopped().await;
            Ok(0)
        };
        let closed = async {
            let seen = connection.closing.generation();
            if !connection.is_closed() {
                connection.closing.wait(seen).await;
            }
            Ok(0)
        };
        let read = stream.read(&mut buffer, limit);
        let ended = futures_lite::future::or(stopped, closed);
        match futures_lite::future::or(read, ended).await {
            Ok(0) if shard.is_stopping() => return End::Stopping,
            Ok(0) | Err(_) => return End::Peer,
            Ok(count) => {
                let now = shard.runtime.now();
                connection.last_read.set(now);
                if is_new {
                    began = now;
                }
                shard.metrics.bytes_received.add(count as u64);
            }
        }
    }
}

async fn start_request(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    frame: Bytes,
    clock: Rc<RequestClock>,
) -> Result<(), Malformed> {
    if !connection.has_room() {
        shard.metrics.limit_reached(Limit::RequestsInFlight);
        connection.room().await;
    }
    if crash::is_refused(&frame) {
        return Err(Malformed::Deadly);
    }
    if !shard.connection_memory.has_room(frame.len()) {
        shard.metrics.limit_reached(Limit::MemoryBudget);
    }
    let charge = Rc::new(shard.connection_memory.take(frame.len()).await);
    let in_hand = Rc::new(InHand {
        peer: Rc::clone(&connection.peer),
        frame: frame.clone(),
        clock: Rc::clone(&clock),
    });
    let (header, body) = header::parse(frame)?;
    let asked = Asked { api: header.api, version: header.api_version, clock };
    shard.metrics.requests.came(asked.api, asked.version);
    if !api::overlaps(header.api) {
        connection.all_ready().await;
    }
    if connection.is_closed() {
        return Ok(());
    }
    asked.clock.start(shard.runtime.now());
    let handled = pin!(api::handle(shard, connection, header, body));
    let slot = match crash::watched(&in_hand, handled).await? {
        Answer::None => {
            let now = shard.runtime.now();
            asked.clock.compute(now);
            note_times(shard, connection, &asked, &asked.clock.times(None, now, now));
            return Ok(());
        }
        Answer::Now(response) => {
            asked.clock.compute(shard.runtime.now());
            Slot::filled(response)
        }
        Answer::Later(future) => {
            let slot = Slot::new();
            let filled = Rc::clone(&slot);
            let charge = Rc::clone(&charge);
            let in_hand = Rc::new(in_hand.kept());
            let future = crash::watched(&in_hand, future);
            let clock = Rc::clone(&asked.clock);
            let runtime = Rc::clone(&shard.runtime);
            shard.runtime.spawn(Box::pin(async move {
                let response = future.await;
                clock.compute(runtime.now());
                charge.add(response.bytes());
                filled.fill(response);
            }));
            slot
        }
    };
    connection.push(slot, charge, Some(asked));
    Ok(())
}

async fn write_responses(shard: &Rc<Shard>, stream: &Rc<dyn Stream>, connection: &Rc<Connection>) {
    let mut slices: Vec<Bytes> = Vec::new();
    let mut leaving: Vec<Leaving> = Vec::new();
    loop {
        let (slot, asked) = loop {
            let seen = connection.queued.generation();
            if let Some(queued) = connection.queue.borrow().front() {
                break (Rc::clone(&queued.slot), queued.asked.clone());
            }
            if connection.is_closed() {
                return;
            }
            connection.queued.wait(seen).await;
        };
        let response = slot.take().await;
        let mut close = !finish(shard, asked, response, &mut slices, &mut leaving).await;
        if close {
            return;
        }
        let mut finished = 1;
        // What else is ready leaves in the same write.
        while let Some((asked, response)) = next_ready(shard, connection, finished) {
            finished += 1;
            if !finish(shard, asked, response, &mut slices, &mut leaving).await {
                close = true;
                break;
            }
        }
        let began = shard.runtime.now();
        let bytes: usize = slices.iter().map(Bytes::len).sum();
        let written = stream.write_all(&mut slices).await;
        slices.clear();
        connection.queue.borrow_mut().drain(..finished);
        connection.answered.notify();
        if written.is_err() {
            return;
        }
        shard.metrics.bytes_sent.add(bytes as u64);
        let sent = shard.runtime.now();
        for Leaving { asked, block } in leaving.drain(..) {
            note_times(shard, connection, &asked, &asked.clock.times(block, began, sent));
        }
        if close {
            return;
        }
    }
}

/// A response on its way out, and the journal block it waited for.
struct Leaving {
    asked: Asked,
    block: Option<BlockTimes>,
}

/// The response at `place` of the queue, if it is there and depends on nothing that is not durable.
fn next_ready(
    shard: &Shard,
    connection: &Connection,
    place: usize,
) -> Option<(Option<Asked>, Response)> {
    let queue = connection.queue.borrow();
    let queued = queue.get(place)?;
    let response = queued.slot.try_take()?;
    if response.durable_at() <= shard.journal.durable_through() {
        Some((queued.asked.clone(), response))
    } else {
        queued.slot.fill(response);
        None
    }
}

/// Waits until the response may leave and appends its bytes; `false` closes the connection.
async fn finish(
    shard: &Shard,
    asked: Option<Asked>,
    response: Response,
    slices: &mut Vec<Bytes>,
    leaving: &mut Vec<Leaving>,
) -> bool {
    let durable_at = response.durable_at();
    let durable = shard.journal.wait(durable_at).await.is_ok();
    if let Some(asked) = asked {
        response.each_code(durable, &mut |code, count| {
            shard.metrics.requests.answered(asked.api, code, u64::from(count));
        });
        leaving.push(Leaving { asked, block: shard.journal.times(durable_at) });
    }
    response.into_slices(durable, slices)
}

/// Counts where the time of a request went, and writes about one that was slow.
fn note_times(shard: &Shard, connection: &Connection, asked: &Asked, times: &Times) {
    shard.metrics.requests.left(asked.api, times);
    let limit_ms = shard.context.config.slow_request_ms;
    let took_ms = stages::answerable_ns(times) / 1_000_000;
    if limit_ms == 0 || took_ms < limit_ms {
        return;
    }
    let (guilty, spent_ns) = stages::guilty(times);
    shard.metrics.was_slow(guilty);
    let now_ms = shard.runtime.now().0 / 1_000_000;
    let Some(left_out) = shard.metrics.slow_lines.admit(now_ms) else {
        return shard.metrics.limit_reached(Limit::SlowLines);
    };
    tracing::warn!(
        shard = %shard.id,
        peer = %connection.peer,
        left_out,
        "slow request: {:?} v{} took {took_ms} ms, {} ms of it in {}",
        asked.api,
        asked.version,
        spent_ns / 1_000_000,
        guilty.label(),
    );
}
