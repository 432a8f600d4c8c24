//! Listening sockets, and connections on their way to the shard that will serve them.
//!
//! Owns [`bind`], called before any executor starts so that a taken port is a start-up error, and
//! [`Listener`], which accepts on one shard. An [`Accepted`] may be sent to any shard.
//!
//! Must never set `SO_REUSEPORT`: a second broker would bind the same port without an error and
//! steal connections.
//!
//! Invariants: an accept loop survives everything but a broken listener: aborted connections are
//! skipped, and when descriptors or memory run out it pauses.

use std::cell::Cell;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::rc::Rc;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::executor::{sleep_ms, turn};
use super::readiness::{Direction, Readiness};
use super::stream::TcpStream;
use crate::limits::{ACCEPT_PAUSE_MS, LISTEN_BACKLOG};

/// A listening socket on `address`; port 0 takes any free one.
///
/// # Errors
/// `AddrInUse` if something else listens there, and what else the system says.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    // Only lets a restart take over a port whose old connections have not timed out yet.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// A connection that no executor polls yet.
#[derive(Debug)]
pub struct Accepted {
    socket: std::net::TcpStream,
    peer: SocketAddr,
}

impl Accepted {
    /// Address of the other side.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Makes it a stream of the executor of the current thread, for good.
    ///
    /// # Errors
    /// The socket is broken already.
    pub fn into_stream(self) -> io::Result<TcpStream> {
        TcpStream::new(self.socket, self.peer)
    }
}

/// A listening socket polled by the current thread's executor.
pub struct Listener {
    socket: Rc<TcpListener>,
    readable: Readiness,
    pauses: Cell<u64>,
    is_short: Cell<bool>,
}

impl Listener {
    /// Takes over a socket that [`bind`] made.
    ///
    /// # Errors
    /// The socket refuses an option.
    pub fn new(socket: TcpListener) -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        Ok(Listener {
            socket: Rc::new(socket),
            readable: Readiness::new(Direction::Read),
            pauses: Cell::new(0),
            is_short: Cell::new(false),
        })
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// How often it had to pause for want of descriptors or memory.
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.pauses.get()
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The listener itself is broken; anything else is survived.
    pub async fn accept(&self) -> io::Result<Accepted> {
        loop {
            match self.socket.accept() {
                Ok((socket, peer)) => {
                    self.is_short.set(false);
                    return Ok(Accepted { socket, peer });
                }
                Err(error) => match outcome(&error) {
                    Outcome::Wait => self.readable.wait(&self.socket).await?,
                    Outcome::Skip => turn().await,
                    Outcome::Pause => {
                        // Counted and said once per shortage, not per attempt.
                        if !self.is_short.replace(true) {
                            self.pauses.set(self.pauses.get() + 1);
                            tracing::warn!("connections are not accepted for now: {error}");
                        }
                        sleep_ms(ACCEPT_PAUSE_MS).await;
                    }
                    Outcome::Fail => return Err(error),
                },
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The kernel still watches it: what it waits for has to come for the socket to close.
        if Rc::strong_count(&self.socket) > 1 {
            // Fails only if it does not listen any more.
            let _ = SockRef::from(&*self.socket).shutdown(Shutdown::Both);
        }
    }
}

/// What a failed accept means for the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Wait,
    Skip,
    Pause,
    Fail,
}

fn outcome(error: &io::Error) -> Outcome {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Outcome::Wait,
        // Errors of the connection that Linux reports on the listener (accept(2)).
        Some(
            libc::EINTR
            | libc::ECONNABORTED
            | libc::EPROTO
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ETIMEDOUT
            | libc::EPERM,
        ) => Outcome::Skip,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Outcome::Pause,
        _ => Outcome::Fail,
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::io::Stream;
    use crate::io::executor::{ExecutorOptions, ShardsError, run_here, run_shards, spawn};

    fn loopback() -> TcpListener {
        bind("127.0.0.1:0".parse().expect("address")).expect("bind")
    }

    #[test]
    fn a_taken_port_is_an_error() {
        let first = loopback();
        let address = first.local_addr().expect("address");
        let error = bind(address).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        bind(address).expect("free again");
    }

    #[test]
    fn a_port_with_waiting_old_connections_can_be_taken_over() {
        let first = loopback();
        let address = first.local_addr().expect("address");
        let client = std::net::TcpStream::connect(address).expect("connect");
        first.set_nonblocking(false).expect("blocking");
        // The side that closes first keeps the port for a while.
        drop(first.accept().expect("accept"));
        drop(first);
        drop(client);
        bind(address).expect("taken over");
    }

    #[test]
    fn errors_of_accept_are_sorted() {
        let check = |code, expected| {
            assert_eq!(outcome(&io::Error::from_raw_os_error(code)), expected);
        };
        check(libc::EAGAIN, Outcome::Wait);
        check(libc::ECONNABORTED, Outcome::Skip);
        check(libc::EINTR, Outcome::Skip);
        check(libc::EMFILE, Outcome::Pause);
        check(libc::ENFILE, Outcome::Pause);
        check(libc::EBADF, Outcome::Fail);
        check(libc::EINVAL, Outcome::Fail);
    }

    #[test]
    fn connections_arrive_in_order_while_the_loop_waits() {
        run_here(async {
            let listener = Listener::new(loopback()).expect("listener");
            let address = listener.local_address().expect("address");
            for _ in 0..3 {
                let client = spawn(TcpStream::connect(address));
                let accepted = listener.accept().await.expect("accept");
                let client = client.await.expect("connect");
                assert_eq!(client.peer(), address.to_string());
                assert!(accepted.peer().ip().is_loopback());
            }
            assert_eq!(listener.pauses(), 0);
        })
        .expect("executor");
    }

    #[test]
    fn a_listener_dropped_while_it_waited_refuses_and_gives_its_port_back() {
        run_here(async {
            let listener = Listener::new(loopback()).expect("listener");
            let address = listener.local_address().expect("address");
            assert!(futures_lite::future::poll_once(Box::pin(listener.accept())).await.is_none());
            // The ring learns of what is waited for.
            sleep_ms(1).await;
            drop(listener);
            let refused = TcpStream::connect(address).await.err().expect("refused");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            sleep_ms(1).await;
            bind(address).expect("free again");
        })
        .expect("executor");
    }

    #[test]
    fn a_connection_is_served_by_another_shard_than_the_listeners() {
        let socket = loopback();
        let address = socket.local_addr().expect("address");
        let client = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let mut client = std::net::TcpStream::connect(address).expect("connect");
            client.write_all(b"ping").expect("write");
            let mut answer = [0; 4];
            client.read_exact(&mut answer).expect("read");
            answer
        });
        let (sender, receiver) = crossbeam_channel::bounded::<Accepted>(1);
        let ended: Result<(), ShardsError<io::Error>> = run_shards(
            ExecutorOptions::default(),
            vec![Seed::Listen(socket, sender), Seed::Serve(receiver)],
            |_, seed| async move {
                match seed {
                    Seed::Listen(socket, sender) => {
                        let accepted = Listener::new(socket)?.accept().await?;
                        sender.send(accepted).map_err(io::Error::other)
                    }
                    Seed::Serve(receiver) => {
                        let accepted = receiver.recv().map_err(io::Error::other)?;
                        let stream = accepted.into_stream()?;
                        let mut buffer = BytesMut::new();
                        while buffer.len() < 4 {
                            stream.read(&mut buffer, 4).await?;
                        }
                        let mut answer: Vec<Bytes> = vec![buffer.freeze()];
                        stream.write_all(&mut answer).await
                    }
                }
            },
        );
        ended.expect("shards");
        assert_eq!(&client.join().expect("client"), b"ping");
    }

    enum Seed {
        Listen(TcpListener, crossbeam_channel::Sender<Accepted>),
        Serve(crossbeam_channel::Receiver<Accepted>),
    }
}
