//! One client connection: frames in, responses out in the order of their requests.
//!
//! Owns the pipeline of one connection. Requests are started in the order they arrive; Produce,
//! Fetch and pure reads overlap, any other API starts when the responses before it are ready.
//! A response leaves no earlier than the journal position it depends on. When too much is in
//! progress here, or too much memory is used by all, the socket is left unread. Must never answer
//! malformed input: it closes this connection, and no other.
//!
//! What a client can make the broker hold is bounded: so many requests in progress, one Fetch among
//! them, and no further request while the client has so many bytes of responses to take.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::{Rc, Weak};

use bytes::{Bytes, BytesMut};

use super::Shard;
use super::asked::{Asked, Leaving};
use super::connections::{Patience, Progress, Verdict};
use super::event::{Event, Slot};
use super::memory::{Budget, Charge};
use super::partition::Waiter;
use super::quota::Place;
use crate::api::{self, Answer, Response};
use crate::crash::{self, InHand};
use crate::io::{Monotonic, Stream};
use crate::limits::{
    FRAME_BYTES_COPIED_MAX, FRAME_READ_BYTES_MIN, MEMORY_HURRY_BYTES,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, RESPONSE_BYTES_UNSENT_MAX,
};
use crate::metrics::Limit;
use crate::metrics::stages::RequestClock;
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
    /// What it is in the middle of.
    pub(super) progress: Progress,
    /// Memory of what has arrived and is no whole request yet.
    arrived: Charge,
    /// Bytes that the request which is being started takes, decoded.
    decoded_bytes: Cell<usize>,
    /// Bytes of responses that are ready and have not left.
    unsent_bytes: Cell<usize>,
    /// A Fetch is in progress.
    fetching: Cell<bool>,
    /// Others need the memory that a request holds while it waits.
    hurried: Cell<bool>,
    stream: Weak<dyn Stream>,
}

/// A response that is or will be there, and the memory of its request and itself.
struct Queued {
    slot: Rc<Slot<Response>>,
    charge: Rc<Charge>,
    /// What it answers; nothing if it only ends the connection.
    asked: Option<Asked>,
}

impl Connection {
    fn new(stream: &Rc<dyn Stream>, budget: &Rc<Budget>, now: Monotonic) -> Rc<Connection> {
        Rc::new(Connection {
            peer: stream.peer().into(),
            closed: Cell::new(false),
            closing: Event::default(),
            parked: RefCell::default(),
            queue: RefCell::default(),
            queued: Event::default(),
            answered: Event::default(),
            progress: Progress::new(now),
            arrived: budget.charge(0),
            decoded_bytes: Cell::new(0),
            unsent_bytes: Cell::new(0),
            fetching: Cell::new(false),
            hurried: Cell::new(false),
            stream: Rc::downgrade(stream),
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

    /// Requests that are not answered yet.
    pub(super) fn requests(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Whether a request that waits should rather answer now.
    #[must_use]
    pub fn is_hurried(&self) -> bool {
        self.hurried.get()
    }

    /// What the limits of time say of it.
    pub(super) fn judge(&self, now: Monotonic, patience: Patience) -> Verdict {
        let sent_bytes = self.stream.upgrade().map_or(0, |stream| stream.sent_bytes());
        let busy = !self.queue.borrow().is_empty();
        self.progress.judge(now, sent_bytes, busy, patience)
    }

    /// The request that is being started takes so many bytes, decoded.
    pub fn decoded(&self, bytes: usize) {
        self.decoded_bytes.set(bytes);
    }

    /// Memory of its requests and responses.
    pub(super) fn held_bytes(&self) -> usize {
        let queue = self.queue.borrow();
        self.arrived.bytes() + queue.iter().map(|queued| queued.charge.bytes()).sum::<usize>()
    }

    /// Whether its memory is not worth mentioning.
    #[must_use]
    pub fn holds_little(&self) -> bool {
        self.held_bytes() < MEMORY_HURRY_BYTES
    }

    /// Has what waits in this connection answered now, if that frees much of the `held` bytes.
    pub(super) fn hurry(&self, held: usize) {
        if held >= MEMORY_HURRY_BYTES {
            self.hurried.set(true);
            self.wake_parked();
        }
    }

    /// Closes the connection without regard to what is on its way.
    pub(super) fn cut(&self) {
        self.close();
        if let Some(stream) = self.stream.upgrade() {
            stream.shut_down();
        }
    }

    /// Ends the connection once what is being written has left.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.closing.notify();
        self.queued.notify();
        self.answered.notify();
        self.wake_parked();
    }

    fn wake_parked(&self) {
        for waiter in self.parked.borrow_mut().drain(..) {
            if let Some(waiter) = waiter.upgrade() {
                waiter.fire();
            }
        }
    }

    /// Waits until `is_true`, which changes when responses get ready or leave.
    async fn until(&self, is_true: impl Fn(&Connection) -> bool) {
        loop {
            let seen = self.answered.generation();
            if self.closed.get() || is_true(self) {
                return;
            }
            self.answered.wait(seen).await;
        }
    }

    /// Whether every response before now has left.
    fn is_at_rest(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Whether another request may be in progress.
    fn has_place(&self) -> bool {
        self.queue.borrow().len() < REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
    }

    /// Whether its client has taken enough of the responses before.
    fn is_taken(&self) -> bool {
        self.unsent_bytes.get() < RESPONSE_BYTES_UNSENT_MAX
    }

    /// A response is computed: its bytes are held until its client has taken them.
    fn ready(&self, charge: &Charge, response: &Response) {
        charge.add(response.bytes());
        self.unsent_bytes.set(self.unsent_bytes.get() + response.bytes());
    }

    fn push(&self, slot: Rc<Slot<Response>>, charge: Rc<Charge>, asked: Option<Asked>) {
        self.queue.borrow_mut().push_back(Queued { slot, charge, asked });
        self.queued.notify();
    }
}

/// Serves a connection in a task of its own; counted until it has closed.
pub fn spawn(shard: &Rc<Shard>, stream: Rc<dyn Stream>, place: Place) {
    let connection = Connection::new(&stream, &shard.connection_memory, shard.runtime.now());
    shard.connections.add(&connection);
    shard.metrics.connections_opened.add(1);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(serve(Rc::clone(shard), stream, Rc::new(place), connection)));
}

/// The place is kept for as long as the stream is.
async fn serve(
    shard: Rc<Shard>,
    stream: Rc<dyn Stream>,
    place: Rc<Place>,
    connection: Rc<Connection>,
) {
    let writer = {
        let shard = Rc::clone(&shard);
        let stream = Rc::clone(&stream);
        let place = Rc::clone(&place);
        let connection = Rc::clone(&connection);
        async move {
            write_responses(&shard, &stream, &connection).await;
            connection.close();
            // What is still in progress for it keeps it, but nothing that it would have sent.
            connection.queue.borrow_mut().clear();
            stream.shut_down();
            stream.let_go().await;
            shard.connections.remove();
            drop((stream, place));
        }
    };
    shard.runtime.spawn(Box::pin(writer));
    let end = read_requests(&shard, &stream, &connection).await;
    connection.arrived.set(0);
    request_ended(&shard, &connection);
    match end {
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
    let charge = Rc::new(shard.connection_memory.charge(0));
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
    // **deviation**: what would not fit into half of the memory of all connections is refused too:
    // so much goes beyond it, since the oldest request is read in any case.
    let bytes_max = bytes_max.min(shard.connection_memory.bytes_max() / 2);
    let mut splitter = FrameSplitter::new(bytes_max);
    let mut buffer = BytesMut::new();
    // When the first and the last bytes that are in the buffer came.
    let (mut began, mut arrived) = (shard.runtime.now(), shard.runtime.now());
    loop {
        loop {
            match splitter.next(&mut buffer) {
                Ok(Some(frame)) => {
                    request_ended(shard, connection);
                    let clock = Rc::new(RequestClock::new(began, arrived));
                    began = arrived;
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
        splitter.make_room(&mut buffer);
        connection.arrived.set(arrived_bytes(&buffer));
        if !buffer.is_empty() {
            shard.connections.request_begun(&connection.progress, shard.runtime.now());
        }
        note_oldest(shard, connection);
        room(shard, connection).await;
        let limit = splitter.read_bytes(&buffer);
        let before = buffer.len();
        // What comes for a request that has begun is counted before it is there: otherwise many
        // that find room at the same time take it together.
        let coming = shard.connection_memory.charge(if before == 0 { 0 } else { limit });
        let ended = async {
            ended(shard, connection).await;
            Ok(0)
        };
        let read = futures_lite::future::or(stream.read(&mut buffer, limit), ended).await;
        drop(coming);
        match read {
            Ok(0) if shard.is_stopping() => return End::Stopping,
            Ok(0) | Err(_) => return End::Peer,
            Ok(_) => {
                arrived = shard.runtime.now();
                if before == 0 {
                    began = arrived;
                }
                let bytes = buffer.len() - before;
                connection.progress.received(bytes, arrived);
                shard.metrics.bytes_received.add(bytes as u64);
            }
        }
    }
}

/// Memory of what has arrived of a request. The room that a large one has beyond that is not there
/// until something is written into it.
fn arrived_bytes(buffer: &BytesMut) -> usize {
    match buffer.len() {
        0 => 0,
        length => buffer.capacity().min(length.max(FRAME_READ_BYTES_MIN)),
    }
}

/// The request that was arriving is whole, or will not be.
fn request_ended(shard: &Rc<Shard>, connection: &Rc<Connection>) {
    if shard.connections.request_ended(&connection.progress) {
        shard.connection_memory.exempt(0);
        shard.connection_memory.look_again();
    }
}

/// If this request is the one that is read in any case, its memory keeps nobody else waiting.
fn note_oldest(shard: &Rc<Shard>, connection: &Rc<Connection>) {
    if shard.connections.is_oldest(&connection.progress) {
        shard.connection_memory.exempt(connection.arrived.bytes());
    }
}

/// Waits until the connection is closed or the shard begins to stop.
async fn ended(shard: &Rc<Shard>, connection: &Rc<Connection>) {
    let closed = async {
        let seen = connection.closing.generation();
        if !connection.is_closed() {
            connection.closing.wait(seen).await;
        }
    };
    futures_lite::future::or(shard.stopped(), closed).await;
}

/// Waits until there is memory to read into, or it is this connection's turn all the same.
async fn room(shard: &Rc<Shard>, connection: &Rc<Connection>) {
    let budget = &shard.connection_memory;
    let may_read = || {
        !budget.is_over(false)
            || !budget.is_over(connection.holds_little())
            || shard.connections.is_oldest(&connection.progress)
            || connection.is_closed()
            || shard.is_stopping()
    };
    if may_read() {
        return;
    }
    shard.metrics.limit_reached(Limit::MemoryBudget);
    connection.progress.paused(shard.runtime.now());
    let waiting = budget.begin_waiting();
    loop {
        let seen = budget.generation();
        if may_read() {
            break;
        }
        futures_lite::future::or(budget.freed(seen), ended(shard, connection)).await;
    }
    drop(waiting);
    connection.progress.resumed(shard.runtime.now());
}

/// A small frame must not keep the whole buffer that it came in.
fn by_itself(frame: Bytes) -> Bytes {
    let small = frame.len() <= FRAME_BYTES_COPIED_MAX;
    if small { Bytes::copy_from_slice(&frame) } else { frame }
}

/// Waits until one more request may be in progress.
async fn place(shard: &Shard, connection: &Connection) {
    if !connection.has_place() {
        shard.metrics.limit_reached(Limit::RequestsInFlight);
        connection.until(Connection::has_place).await;
    }
    if !connection.is_taken() {
        shard.metrics.limit_reached(Limit::ResponseBytesUnsent);
        connection.until(Connection::is_taken).await;
    }
}

/// Waits until those before it on the connection are as far as a request of this API needs.
async fn turn(connection: &Connection, api: Api) {
    if !api::overlaps(api) {
        connection.until(Connection::is_at_rest).await;
    }
    if api == Api::Fetch {
        // Each may be answered with much, and no client sends a second one before.
        connection.until(|connection| !connection.fetching.get()).await;
    }
}

async fn start_request(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    frame: Bytes,
    clock: Rc<RequestClock>,
) -> Result<(), Malformed> {
    let frame = by_itself(frame);
    place(shard, connection).await;
    if crash::is_refused(&frame) {
        return Err(Malformed::Deadly);
    }
    let charge = Rc::new(shard.connection_memory.charge(frame.len()));
    let in_hand = Rc::new(InHand {
        peer: Rc::clone(&connection.peer),
        frame: frame.clone(),
        clock: Rc::clone(&clock),
    });
    let (header, body) = header::parse(frame)?;
    let asked = Asked { api: header.api, version: header.api_version, clock };
    shard.metrics.requests.came(asked.api, asked.version);
    turn(connection, header.api).await;
    let is_fetch = header.api == Api::Fetch;
    if connection.is_closed() {
        return Ok(());
    }
    connection.hurried.set(false);
    asked.clock.start(shard.runtime.now());
    let handled = pin!(api::handle(shard, connection, header, body));
    let answer = crash::watched(&in_hand, handled).await?;
    // It may have to wait for long as it is.
    charge.add(connection.decoded_bytes.take());
    let slot = match answer {
        Answer::None => {
            asked.end(shard, &connection.peer);
            return Ok(());
        }
        Answer::Now(response) => {
            asked.clock.compute(shard.runtime.now());
            connection.ready(&charge, &response);
            Slot::filled(response)
        }
        Answer::Later(future) => {
            let slot = Slot::new();
            let filled = Rc::clone(&slot);
            let charge = Rc::clone(&charge);
            let in_hand = Rc::new(in_hand.kept());
            let future = crash::watched(&in_hand, future);
            connection.fetching.set(connection.fetching.get() || is_fetch);
            let connection = Rc::clone(connection);
            let (clock, runtime) = (Rc::clone(&asked.clock), Rc::clone(&shard.runtime));
            shard.runtime.spawn(Box::pin(async move {
                let response = future.await;
                clock.compute(runtime.now());
                connection.ready(&charge, &response);
                filled.fill(response);
                if is_fetch {
                    connection.fetching.set(false);
                    connection.answered.notify();
                }
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
        let (first, asked) = loop {
            let seen = connection.queued.generation();
            if let Some(queued) = connection.queue.borrow().front() {
                break (Rc::clone(&queued.slot), queued.asked.clone());
            }
            if connection.is_closed() {
                return;
            }
            connection.queued.wait(seen).await;
        };
        let response = first.take().await;
        let mut unsent_bytes = response.bytes();
        if !finish(shard, asked, response, &mut slices, &mut leaving).await {
            return;
        }
        let mut finished = 1;
        // What else is ready leaves in the same write.
        let mut close = false;
        while let Some((asked, response)) = next_ready(shard, connection, finished) {
            finished += 1;
            unsent_bytes += response.bytes();
            if !finish(shard, asked, response, &mut slices, &mut leaving).await {
                close = true;
                break;
            }
        }
        let began = shard.runtime.now();
        connection.progress.write_begun(stream.sent_bytes(), began);
        let bytes: usize = slices.iter().map(Bytes::len).sum();
        let written = stream.write_all(&mut slices).await;
        let sent = shard.runtime.now();
        connection.progress.write_ended(sent);
        slices.clear();
        connection.queue.borrow_mut().drain(..finished);
        connection.unsent_bytes.set(connection.unsent_bytes.get() - unsent_bytes);
        connection.answered.notify();
        if written.is_ok() {
            shard.metrics.bytes_sent.add(bytes as u64);
            let peer = &connection.peer;
            leaving.drain(..).for_each(|response| response.sent(shard, peer, began, sent));
        }
        if written.is_err() || close {
            return;
        }
    }
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
    let durable = shard.journal.wait(response.durable_at()).await.is_ok();
    leaving.extend(asked.map(|asked| asked.leave(shard, &response, durable)));
    response.into_slices(durable, slices)
}
