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
use crate::wire::frame::{FrameFault, FrameSplitter};
use crate::wire::header::{self, HeaderFault};

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

    /// Closes what has been idle for longer than `idle_ms` and has nothing in progress.
    fn close_idle(&self, now: Monotonic, idle_ms: u64) {
        let mut idle = Vec::new();
        self.open.borrow_mut().retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let busy = !connection.queue.borrow().is_empty();
            if !busy && now.ms_since(connection.last_read.get()) > idle_ms {
                idle.push(connection);
            }
            true
        });
        for connection in idle {
            connection.close();
        }
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
            shard.connections.close_idle(shard.runtime.now(), idle_ms);
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

    fn push(&self, slot: Rc<Slot<Response>>, charge: Rc<Charge>) {
        self.queue.borrow_mut().push_back(Queued { slot, _charge: charge });
        self.queued.notify();
    }
}

/// Serves a connection in a task of its own; counted until it has closed.
pub fn spawn(shard: &Rc<Shard>, stream: Rc<dyn Stream>) {
    let connection = Connection::new(stream.peer().into(), shard.runtime.now());
    shard.connections.add(&connection);
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
    connection.push(Slot::filled(Response::Close), charge);
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
    loop {
        loop {
            match splitter.next(&mut buffer) {
                Ok(Some(frame)) => {
                    if let Err(reason) = start_request(shard, connection, frame).await {
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
            Ok(_) => connection.last_read.set(shard.runtime.now()),
        }
    }
}

async fn start_request(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    frame: Bytes,
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
    let in_hand = Rc::new(InHand { peer: Rc::clone(&connection.peer), frame: frame.clone() });
    let (header, body) = header::parse(frame)?;
    if !api::overlaps(header.api) {
        connection.all_ready().await;
    }
    if connection.is_closed() {
        return Ok(());
    }
    let handled = pin!(api::handle(shard, connection, header, body));
    let slot = match crash::watched(&in_hand, handled).await? {
        Answer::None => return Ok(()),
        Answer::Now(response) => Slot::filled(response),
        Answer::Later(future) => {
            let slot = Slot::new();
            let filled = Rc::clone(&slot);
            let charge = Rc::clone(&charge);
            let in_hand = Rc::new(in_hand.kept());
            let future = crash::watched(&in_hand, future);
            shard.runtime.spawn(Box::pin(async move {
                let response = future.await;
                charge.add(response.bytes());
                filled.fill(response);
            }));
            slot
        }
    };
    connection.push(slot, charge);
    Ok(())
}

async fn write_responses(shard: &Rc<Shard>, stream: &Rc<dyn Stream>, connection: &Rc<Connection>) {
    let mut slices: Vec<Bytes> = Vec::new();
    loop {
        let first = loop {
            let seen = connection.queued.generation();
            if let Some(queued) = connection.queue.borrow().front() {
                break Rc::clone(&queued.slot);
            }
            if connection.is_closed() {
                return;
            }
            connection.queued.wait(seen).await;
        };
        let response = first.take().await;
        if !finish(shard, response, &mut slices).await {
            return;
        }
        let mut finished = 1;
        // What else is ready leaves in the same write.
        let mut close = false;
        while let Some(response) = next_ready(shard, connection, finished) {
            finished += 1;
            if !finish(shard, response, &mut slices).await {
                close = true;
                break;
            }
        }
        let written = stream.write_all(&mut slices).await;
        slices.clear();
        connection.queue.borrow_mut().drain(..finished);
        connection.answered.notify();
        if written.is_err() || close {
            return;
        }
    }
}

/// The response at `place` of the queue, if it is there and depends on nothing that is not durable.
fn next_ready(shard: &Shard, connection: &Connection, place: usize) -> Option<Response> {
    let queue = connection.queue.borrow();
    let slot = &queue.get(place)?.slot;
    let response = slot.try_take()?;
    if response.durable_at() <= shard.journal.durable_through() {
        Some(response)
    } else {
        slot.fill(response);
        None
    }
}

/// Waits until the response may leave and appends its bytes; `false` closes the connection.
async fn finish(shard: &Shard, response: Response, slices: &mut Vec<Bytes>) -> bool {
    let durable = shard.journal.wait(response.durable_at()).await.is_ok();
    response.into_slices(durable, slices)
}
