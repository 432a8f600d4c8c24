//! Simulated byte streams: pairs of [`Stream`]s whose bytes travel in pieces, with delay.
//!
//! Owns the pipes between two ends. The seed decides how writes are cut, how long pieces travel
//! and how much one read returns; bytes of one direction never change order. Must never keep more
//! than the pipe's capacity: a writer waits for a slow reader, as with a socket.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};

use crate::io::{LocalFuture, Stream};

use super::executor::Core;
use super::medium::os;
use super::random::Random;
use super::world::World;

/// How a connection behaves.
#[derive(Clone, Copy, Debug)]
pub struct NetOptions {
    /// Bytes in one direction, in flight and unread, before a writer waits.
    pub capacity_bytes: usize,
    /// Longest piece that travels as one.
    pub piece_bytes_max: usize,
    /// Shortest travel time in nanoseconds.
    pub delay_min_ns: u64,
    /// Longest travel time in nanoseconds.
    pub delay_max_ns: u64,
    /// One in so many pieces resets the connection instead of arriving; 0 for none.
    pub reset_one_in: u64,
}

impl Default for NetOptions {
    fn default() -> NetOptions {
        NetOptions {
            capacity_bytes: 64 * 1024,
            piece_bytes_max: 16 * 1024,
            delay_min_ns: 5_000,
            delay_max_ns: 200_000,
            reset_one_in: 0,
        }
    }
}

/// One end of a connection.
pub struct SimStream {
    connection: Rc<Connection>,
    /// Which of the connection's two pipes this end reads from; it writes to the other.
    side: usize,
    peer: String,
    sent_bytes: Cell<u64>,
}

struct Connection {
    core: Rc<Core>,
    options: NetOptions,
    random: RefCell<Random>,
    reset: Cell<bool>,
    /// Per side: this end has shut down.
    closed: [Cell<bool>; 2],
    /// Per side: what travels towards it.
    pipes: [RefCell<Pipe>; 2],
}

#[derive(Default)]
struct Pipe {
    travelling: VecDeque<Piece>,
    arrived: BytesMut,
    travelling_bytes: usize,
    ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// Makes connections: a handle that tasks of a world may keep.
#[derive(Clone)]
pub struct Network {
    core: Rc<Core>,
}

impl Network {
    /// The network of a world.
    #[must_use]
    pub fn of(world: &World) -> Network {
        Network { core: Rc::clone(world.core()) }
    }

    /// Connects two ends; each is told the other's name.
    #[must_use]
    pub fn pair(&self, options: NetOptions, names: [&str; 2]) -> (Rc<SimStream>, Rc<SimStream>) {
        let connection = Rc::new(Connection {
            core: Rc::clone(&self.core),
            options,
            random: RefCell::new(Random::new(self.core.random())),
            reset: Cell::new(false),
            closed: Default::default(),
            pipes: Default::default(),
        });
        let end = |side: usize| {
            Rc::new(SimStream {
                connection: Rc::clone(&connection),
                side,
                peer: names[1 - side].to_owned(),
                sent_bytes: Cell::new(0),
            })
        };
        (end(0), end(1))
    }
}

impl SimStream {
    /// Connects two ends; each is told the other's name.
    #[must_use]
    pub fn pair(
        world: &World,
        options: NetOptions,
        names: [&str; 2],
    ) -> (Rc<SimStream>, Rc<SimStream>) {
        Network::of(world).pair(options, names)
    }

    /// Breaks the connection: what is on its way is lost, both ends get `ConnectionReset`.
    pub fn reset(&self) {
        self.connection.reset();
    }
}

impl Connection {
    fn reset(&self) {
        self.reset.set(true);
        self.core.note("net reset", 0, 0);
        for pipe in &self.pipes {
            let mut pipe = pipe.borrow_mut();
            pipe.travelling.clear();
            pipe.travelling_bytes = 0;
            pipe.arrived.clear();
            pipe.wake_both();
        }
    }

    /// Sends one piece towards `side`.
    fn send(self: &Rc<Self>, side: usize, piece: Piece) {
        let length = piece.length();
        {
            let mut pipe = self.pipes[side].borrow_mut();
            pipe.travelling_bytes += length;
            pipe.travelling.push_back(piece);
        }
        let (delay_ns, breaks) = {
            let mut random = self.random.borrow_mut();
            let options = &self.options;
            let spread_ns = options.delay_max_ns.saturating_sub(options.delay_min_ns);
            let delay_ns = options.delay_min_ns + random.below(spread_ns + 1);
            let breaks = options.reset_one_in > 0 && random.chance(1, options.reset_one_in);
            (delay_ns, breaks)
        };
        let connection = Rc::clone(self);
        let at_ns = self.core.now_ns().saturating_add(delay_ns);
        // Each arrival delivers the oldest piece, so order holds whatever the delays are.
        let arrive = move || match breaks {
            true => connection.reset(),
            false => connection.deliver(side),
        };
        self.core.call_at(at_ns, Box::new(arrive));
    }

    fn deliver(&self, side: usize) {
        let mut pipe = self.pipes[side].borrow_mut();
        let Some(piece) = pipe.travelling.pop_front() else {
            return;
        };
        self.core.note("net arrive", side as u64, piece.length() as u64);
        pipe.travelling_bytes -= piece.length();
        match piece {
            Piece::Bytes(_) if self.closed[side].get() => {}
            Piece::Bytes(bytes) => pipe.arrived.extend_from_slice(&bytes),
            Piece::End => pipe.ended = true,
        }
        pipe.wake_both();
    }

    fn poll_read(
        &self,
        side: usize,
        buffer: &mut BytesMut,
        limit: usize,
        waker: &Waker,
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.pipes[side].borrow_mut();
        if self.reset.get() {
            return Poll::Ready(Err(os(libc::ECONNRESET)));
        }
        if self.closed[side].get() || (pipe.arrived.is_empty() && pipe.ended) {
            return Poll::Ready(Ok(0));
        }
        if pipe.arrived.is_empty() {
            pipe.reader = Some(waker.clone());
            return Poll::Pending;
        }
        let most = pipe.arrived.len().min(limit);
        let mut random = self.random.borrow_mut();
        let count = match random.chance(1, 4) {
            true => 1 + random.index(most),
            false => most,
        };
        let count = count.min(most);
        buffer.extend_from_slice(&pipe.arrived[..count]);
        pipe.arrived.advance(count);
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(count))
    }

    /// Waits for room towards `side`; returns how long the next piece may be.
    fn poll_room(&self, side: usize, waker: &Waker) -> Poll<io::Result<usize>> {
        if self.reset.get() {
            return Poll::Ready(Err(os(libc::ECONNRESET)));
        }
        if self.closed[0].get() || self.closed[1].get() {
            return Poll::Ready(Err(os(libc::EPIPE)));
        }
        let mut pipe = self.pipes[side].borrow_mut();
        let held = pipe.travelling_bytes + pipe.arrived.len();
        let room = self.options.capacity_bytes.saturating_sub(held);
        if room == 0 {
            pipe.writer = Some(waker.clone());
            return Poll::Pending;
        }
        let mut random = self.random.borrow_mut();
        let piece = 1 + random.index(self.options.piece_bytes_max);
        Poll::Ready(Ok(piece.min(room)))
    }
}

impl Pipe {
    fn wake_both(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::End => 0,
        }
    }
}

impl Stream for SimStream {
    fn read<'a>(
        &'a self,
        buffer: &'a mut BytesMut,
        limit: usize,
    ) -> LocalFuture<'a, io::Result<usize>> {
        assert!(limit > 0, "a read of nothing from {}", self.peer);
        Box::pin(poll_fn(move |context| {
            self.connection.poll_read(self.side, buffer, limit, context.waker())
        }))
    }

    fn write_all<'a>(&'a self, slices: &'a mut Vec<Bytes>) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let towards = 1 - self.side;
            for mut slice in slices.drain(..) {
                while !slice.is_empty() {
                    let room =
                        poll_fn(|context| self.connection.poll_room(towards, context.waker()));
                    let length = room.await?.min(slice.len());
                    let piece = Piece::Bytes(slice.split_to(length));
                    self.connection.send(towards, piece);
                    self.sent_bytes.set(self.sent_bytes.get() + length as u64);
                }
            }
            Ok(())
        })
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    fn shut_down(&self) {
        if self.connection.closed[self.side].replace(true) || self.connection.reset.get() {
            return;
        }
        self.connection.send(1 - self.side, Piece::End);
        self.connection.pipes[self.side].borrow_mut().arrived.clear();
        for pipe in &self.connection.pipes {
            pipe.borrow_mut().wake_both();
        }
    }

    fn let_go(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    fn numbers(count: usize) -> Vec<Bytes> {
        let all: Vec<u8> = (0..count).map(|number| number as u8).collect();
        all.chunks(777).map(Bytes::copy_from_slice).collect()
    }

    /// Sends `count` bytes while the other end reads them; returns what arrived, and the hash.
    fn transfer(seed: u64, count: usize, options: NetOptions) -> (Vec<u8>, usize, u64) {
        let world = World::new(seed);
        let (client, server) = SimStream::pair(&world, options, ["client", "server"]);
        assert_eq!(client.peer(), "server");
        world.runtime(ShardId(0)).spawn(Box::pin(async move {
            let mut slices = numbers(count);
            client.write_all(&mut slices).await.expect("no reset");
            client.shut_down();
        }));
        let read = async {
            let mut buffer = BytesMut::new();
            let mut reads = 0;
            while server.read(&mut buffer, 1_000).await.expect("no reset") > 0 {
                reads += 1;
            }
            (buffer.to_vec(), reads)
        };
        let (bytes, reads) = world.run_until(read).expect("no stall");
        (bytes, reads, world.event_hash())
    }

    #[test]
    fn bytes_arrive_whole_in_order_and_in_pieces() {
        let options = NetOptions { capacity_bytes: 3_000, ..NetOptions::default() };
        for seed in 0..50 {
            let (bytes, reads, hash) = transfer(seed, 20_000, options);
            assert_eq!(bytes, numbers(20_000).concat());
            assert!(reads > 20);
            assert_eq!(transfer(seed, 20_000, options), (bytes, reads, hash));
        }
    }

    #[test]
    fn a_writer_waits_for_its_reader_until_the_stream_is_shut() {
        let world = World::new(1);
        let (client, server) = SimStream::pair(&world, NetOptions::default(), ["c", "s"]);
        let result = Rc::new(RefCell::new(None));
        let (writer, outcome) = (Rc::clone(&client), Rc::clone(&result));
        world.runtime(ShardId(0)).spawn(Box::pin(async move {
            let written = writer.write_all(&mut numbers(100_000)).await;
            *outcome.borrow_mut() = Some(written.map_err(|error| error.raw_os_error()));
        }));
        world.run_for(1_000).expect("no stall");
        assert_eq!(*result.borrow(), None);
        let pipe = server.connection.pipes[1].borrow();
        assert_eq!(pipe.arrived.len(), 64 * 1024);
        drop(pipe);
        server.shut_down();
        world.run_for(10).expect("no stall");
        assert_eq!(*result.borrow(), Some(Err(Some(libc::EPIPE))));
        let mut buffer = BytesMut::new();
        let read = world.run_until(client.read(&mut buffer, 10));
        assert_eq!(read.expect("no stall").expect("an end"), 0);
        let read = world.run_until(server.read(&mut buffer, 10));
        assert_eq!(read.expect("no stall").expect("shut"), 0);
    }

    #[test]
    fn a_reset_reaches_both_ends() {
        let world = World::new(2);
        let options = NetOptions { reset_one_in: 1, ..NetOptions::default() };
        let (client, server) = SimStream::pair(&world, options, ["c", "s"]);
        let mut slices = vec![Bytes::from_static(b"hello")];
        let write = world.run_until(client.write_all(&mut slices));
        write.expect("no stall").expect("sent");
        let mut buffer = BytesMut::new();
        for end in [&server, &client] {
            let read = world.run_until(end.read(&mut buffer, 10));
            let error = read.expect("no stall").expect_err("reset");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        assert!(buffer.is_empty());
    }
}
