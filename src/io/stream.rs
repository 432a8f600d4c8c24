//! TCP connections of one shard.
//!
//! Owns [`TcpStream`], the real [`Stream`]: system calls on a nonblocking socket, with the ring
//! asked only when the socket is not ready.
//!
//! Must never hold buffer space for a connection that has nothing to say: space is reserved once
//! the socket is known, or first presumed, to be readable, and given back if it was not.
//!
//! Invariants: one task may read while another writes; bytes leave in order and whole.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use socket2::{SockRef, TcpKeepalive};

use super::executor::turn;
use super::readiness::{Direction, Readiness};
use super::{LocalFuture, Stream};
use crate::limits::{
    KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES, STREAM_CALLS_PER_TURN_MAX,
    STREAM_READ_BYTES_MAX, STREAM_READ_BYTES_MIN, STREAM_SLICES_PER_SEND_MAX,
};

/// A TCP connection polled by the executor of the thread that made it.
pub struct TcpStream {
    socket: Rc<std::net::TcpStream>,
    readable: Readiness,
    writable: Readiness,
    peer: SocketAddr,
    /// Buffer space to offer to the next read.
    read_bytes: Cell<usize>,
    /// The last read took all there was, so that the next one asks the ring first.
    drained: Cell<bool>,
    /// Bytes taken by the kernel so far.
    sent_bytes: Cell<u64>,
    /// Calls since this stream last let other tasks run.
    calls: Cell<u32>,
}

impl TcpStream {
    /// Takes over a connected socket, on any executor's thread.
    ///
    /// # Errors
    /// The socket refuses an option.
    pub fn new(socket: std::net::TcpStream, peer: SocketAddr) -> io::Result<TcpStream> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        // A peer that is gone without a word is noticed, also where a request of it waits.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(KEEPALIVE_IDLE_S))
            .with_interval(Duration::from_secs(KEEPALIVE_INTERVAL_S))
            .with_retries(KEEPALIVE_PROBES);
        SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
        Ok(TcpStream {
            socket: Rc::new(socket),
            readable: Readiness::new(Direction::Read),
            writable: Readiness::new(Direction::Write),
            peer,
            read_bytes: Cell::new(STREAM_READ_BYTES_MIN),
            drained: Cell::new(true),
            sent_bytes: Cell::new(0),
            calls: Cell::new(0),
        })
    }

    /// Connects to `address`: for clients in tests and tools.
    ///
    /// # Errors
    /// What the system says, a refused connection included.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM.nonblocking(), None)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let stream = TcpStream::new(socket.into(), address)?;
        stream.writable.wait(&stream.socket).await?;
        match stream.socket.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// One system call; `None` if the socket has nothing.
    fn receive(&self, buffer: &mut BytesMut, limit: usize) -> io::Result<Option<usize>> {
        let reserved = self.read_bytes.get().min(limit);
        if buffer.capacity() - buffer.len() < reserved {
            buffer.reserve(reserved);
        }
        // SAFETY: the kernel only writes to the space, it does not read it or shorten it.
        let space = unsafe { buffer.chunk_mut().as_uninit_slice_mut() };
        let offered = space.len().min(limit);
        let received = loop {
            match SockRef::from(&*self.socket).recv(&mut space[..offered]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match received {
            Ok(count) => {
                // SAFETY: the kernel initialised the first `count` bytes of the space.
                unsafe { buffer.advance_mut(count) };
                self.drained.set(count < offered);
                self.adapt(count, offered);
                Ok(Some(count))
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    return Ok(None);
                }
                Err(error)
            }
        }
    }

    /// Lets other tasks run now and then: a peer that always has more, or takes all at once, must
    /// not keep them waiting.
    async fn be_fair(&self) {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() >= STREAM_CALLS_PER_TURN_MAX {
            self.calls.set(0);
            turn().await;
        }
    }

    /// Grows the space for a connection that fills it, and shrinks it for one that does not.
    fn adapt(&self, received: usize, offered: usize) {
        let current = self.read_bytes.get();
        if received == offered && offered >= current {
            self.read_bytes.set((current * 2).min(STREAM_READ_BYTES_MAX));
        } else if received < current / 4 {
            self.read_bytes.set((current / 2).max(STREAM_READ_BYTES_MIN));
        }
    }

    /// One vectored system call over the first slices; `None` if the socket is full.
    fn send(&self, slices: &[Bytes]) -> io::Result<Option<usize>> {
        let batch: SmallVec<[IoSlice<'_>; 32]> = slices
            .iter()
            .take(STREAM_SLICES_PER_SEND_MAX)
            .map(|slice| IoSlice::new(slice))
            .collect();
        let socket = SockRef::from(&*self.socket);
        loop {
            match socket.send_vectored_with_flags(&batch, libc::MSG_NOSIGNAL) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Stream for TcpStream {
    fn read<'a>(
        &'a self,
        buffer: &'a mut BytesMut,
        limit: usize,
    ) -> LocalFuture<'a, io::Result<usize>> {
        Box::pin(async move {
            if limit == 0 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            loop {
                if !self.drained.get()
                    && let Some(count) = self.receive(buffer, limit)?
                {
                    self.be_fair().await;
                    return Ok(count);
                }
                if buffer.is_empty() {
                    *buffer = BytesMut::new();
                }
                self.readable.wait(&self.socket).await?;
                self.calls.set(0);
                self.drained.set(false);
            }
        })
    }

    fn write_all<'a>(&'a self, slices: &'a mut Vec<Bytes>) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut first = 0;
            while first < slices.len() {
                if slices[first].is_empty() {
                    first += 1;
                    continue;
                }
                match self.send(&slices[first..])? {
                    Some(sent) => {
                        self.sent_bytes.set(self.sent_bytes.get() + sent as u64);
                        first = consume(slices, first, sent);
                        if first < slices.len() {
                            self.be_fair().await;
                        }
                    }
                    None => self.writable.wait(&self.socket).await?,
                }
            }
            slices.clear();
            Ok(())
        })
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    fn shut_down(&self) {
        // Fails only if the connection has ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn let_go(&self) -> LocalFuture<'_, ()> {
        Box::pin(async move {
            self.readable.quiet().await;
            self.writable.quiet().await;
        })
    }

    fn peer(&self) -> String {
        self.peer.to_string()
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        // The kernel still watches it: what it waits for has to come for the socket to close.
        if Rc::strong_count(&self.socket) > 1 {
            self.shut_down();
        }
    }
}

/// Takes `sent` bytes off the slices from index `first` on, freeing those that are done; returns
/// the index of the first slice with bytes left.
fn consume(slices: &mut [Bytes], mut first: usize, mut sent: usize) -> usize {
    while let Some(slice) = slices.get_mut(first) {
        if sent < slice.len() {
            slice.advance(sent);
            break;
        }
        sent -= slice.len();
        *slice = Bytes::new();
        first += 1;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::executor::{run_here, sleep_ms, spawn};
    use crate::io::listener::{Listener, bind};
    use crate::shard::event::Event;

    async fn pair() -> (Rc<TcpStream>, Rc<TcpStream>) {
        let socket = bind("127.0.0.1:0".parse().expect("address")).expect("bind");
        let address = socket.local_addr().expect("address");
        let listener = Listener::new(socket).expect("listener");
        let client = TcpStream::connect(address).await.expect("connect");
        let accepted = listener.accept().await.expect("accept");
        let server = accepted.into_stream().expect("stream");
        (Rc::new(client), Rc::new(server))
    }

    fn run<F: Future<Output = ()>>(test: F) {
        run_here(test).expect("executor");
    }

    #[test]
    fn the_kernel_asks_after_peers_that_say_nothing() {
        run(async {
            let (_client, server) = pair().await;
            let socket = SockRef::from(&*server.socket);
            assert!(socket.keepalive().expect("an option"));
            let seconds = Duration::from_secs;
            let idle = socket.tcp_keepalive_time().expect("an option");
            assert_eq!(idle, seconds(KEEPALIVE_IDLE_S));
            let interval = socket.tcp_keepalive_interval().expect("an option");
            assert_eq!(interval, seconds(KEEPALIVE_INTERVAL_S));
            assert_eq!(socket.tcp_keepalive_retries().expect("an option"), KEEPALIVE_PROBES);
            assert!(socket.tcp_nodelay().expect("an option"));
        });
    }

    #[test]
    fn consume_frees_whole_slices_and_cuts_the_next() {
        let check = |sent, expected_first, expected_next: &'static [u8]| {
            let mut slices =
                vec![Bytes::from_static(b"abc"), Bytes::new(), Bytes::from_static(b"defg")];
            assert_eq!(consume(&mut slices, 0, sent), expected_first);
            let next = slices.get(expected_first).cloned().unwrap_or_default();
            assert_eq!(next, expected_next);
        };
        check(0, 0, b"abc");
        check(2, 0, b"c");
        check(3, 2, b"defg");
        check(5, 2, b"fg");
        check(7, 3, b"");
    }

    #[test]
    fn both_directions_carry_large_writes_at_once() {
        run(async {
            let (client, server) = pair().await;
            let echo = spawn({
                let server = Rc::clone(&server);
                async move {
                    let mut buffer = BytesMut::new();
                    let mut total = 0;
                    loop {
                        let count = server.read(&mut buffer, usize::MAX).await.expect("read");
                        if count == 0 {
                            return total;
                        }
                        total += count;
                        let mut slices = vec![buffer.split().freeze()];
                        server.write_all(&mut slices).await.expect("write");
                    }
                }
            });
            // More slices than one call takes, of uneven lengths, some empty.
            let pattern: Bytes = (0..4_000_000u32).map(|index| (index / 7) as u8).collect();
            let mut slices = Vec::new();
            let mut at = 0;
            for index in 0.. {
                let end = (at + index * 3 % 5_000).min(pattern.len());
                slices.push(pattern.slice(at..end));
                at = end;
                if at == pattern.len() {
                    break;
                }
            }
            assert!(slices.len() > STREAM_SLICES_PER_SEND_MAX);
            let writer = spawn({
                let client = Rc::clone(&client);
                async move {
                    client.write_all(&mut slices).await.expect("write");
                    assert!(slices.is_empty());
                }
            });
            let mut back = BytesMut::new();
            while back.len() < pattern.len() {
                let limit = pattern.len() - back.len();
                assert!(client.read(&mut back, limit).await.expect("read") > 0);
            }
            assert!(back == pattern);
            writer.await;
            client.socket.shutdown(Shutdown::Write).expect("shutdown");
            assert_eq!(echo.await, pattern.len());
        });
    }

    #[test]
    fn a_read_keeps_its_limit_and_an_idle_one_holds_no_buffer() {
        run(async {
            let (client, server) = pair().await;
            let mut buffer = BytesMut::new();
            {
                let mut read = server.read(&mut buffer, 10);
                assert!(futures_lite::future::poll_once(&mut read).await.is_none());
            }
            assert_eq!(buffer.capacity(), 0);
            client.write_all(&mut vec![Bytes::from(vec![1; 25])]).await.expect("write");
            assert_eq!(server.read(&mut buffer, 10).await.expect("read"), 10);
            assert_eq!(server.read(&mut buffer, 10).await.expect("read"), 10);
            assert_eq!(server.read(&mut buffer, 10).await.expect("read"), 5);
            assert_eq!(buffer, vec![1; 25]);
            assert!(server.read(&mut buffer, 0).await.is_err());
            client.shut_down();
            assert_eq!(server.read(&mut buffer, 10).await.expect("end"), 0);
        });
    }

    #[test]
    fn shutting_down_wakes_the_reader_and_the_writer() {
        run(async {
            let (_client, server) = pair().await;
            let reader = spawn({
                let server = Rc::clone(&server);
                async move {
                    let mut buffer = BytesMut::new();
                    server.read(&mut buffer, usize::MAX).await
                }
            });
            // The peer reads nothing, so that this write cannot end by itself.
            let writer = spawn({
                let server = Rc::clone(&server);
                async move {
                    let mut slices = vec![Bytes::from(vec![0; 64 * 1024 * 1024])];
                    server.write_all(&mut slices).await
                }
            });
            sleep_ms(20).await;
            server.shut_down();
            assert_eq!(reader.await.expect("end"), 0);
            let error = writer.await.expect_err("broken");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }

    /// Reads a byte unless it is told to give up before; `None` if so.
    async fn read_or_give_up(stream: &TcpStream, given_up: &Event) -> Option<io::Result<usize>> {
        let mut buffer = BytesMut::new();
        let read = async { Some(stream.read(&mut buffer, 1).await) };
        let told = async {
            given_up.wait(0).await;
            None
        };
        futures_lite::future::or(read, told).await
    }

    /// Bytes from one end to the other, one after another, until told to end.
    async fn traffic(client: &TcpStream, server: &TcpStream, ended: &Event) -> usize {
        let mut rounds = 0;
        while ended.generation() == 0 {
            let later = sleep_ms(0);
            let write = async {
                later.await;
                client.write_all(&mut vec![Bytes::from_static(b"x")]).await.expect("write");
            };
            let mut buffer = BytesMut::new();
            let read = async { server.read(&mut buffer, 1).await };
            let ((), read) = futures_lite::future::zip(write, read).await;
            assert_eq!(read.expect("not cancelled"), 1, "after {rounds} rounds");
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn connections_given_up_by_the_thousand_leave_the_others_alone() {
        run(async {
            let (given_up, ended) = (Rc::new(Event::default()), Rc::new(Event::default()));
            let mut others = Vec::new();
            for _ in 0..20 {
                let (client, server) = pair().await;
                let ended = Rc::clone(&ended);
                others.push(spawn(async move { traffic(&client, &server, &ended).await }));
            }
            let mut going = Vec::new();
            // More than the ring takes at once.
            for _ in 0..1_500 {
                let (client, server) = pair().await;
                let given_up = Rc::clone(&given_up);
                going.push(spawn(async move {
                    assert!(read_or_give_up(&server, &given_up).await.is_none());
                    server.shut_down();
                    server.let_go().await;
                    drop(client);
                }));
            }
            sleep_ms(20).await;
            given_up.notify();
            for going in going {
                going.await;
            }
            sleep_ms(20).await;
            ended.notify();
            for other in others {
                assert!(other.await > 0);
            }
        });
    }

    #[test]
    fn a_stream_dropped_while_somebody_waited_closes() {
        run(async {
            let (client, server) = pair().await;
            let mut buffer = BytesMut::new();
            {
                let mut read = server.read(&mut buffer, 1);
                assert!(futures_lite::future::poll_once(&mut read).await.is_none());
            }
            drop(server);
            assert_eq!(client.read(&mut buffer, 1).await.expect("an end"), 0);
        });
    }

    #[test]
    fn connecting_to_nobody_is_refused() {
        run(async {
            let socket = bind("127.0.0.1:0".parse().expect("address")).expect("bind");
            let address = socket.local_addr().expect("address");
            drop(socket);
            let refused = TcpStream::connect(address).await.err().expect("refused");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        });
    }
}
