//! The network between clients and broker: a proxy on loopback that can do to a connection what
//! networks do. It hands on whole frames, so that it can cut in the middle of one.
//!
//! A proxy listens on [`PROXY_HOST`] on the ports that the broker has on 127.0.0.1, and the broker
//! tells clients that host: whoever asks for a leader is sent through the proxy. What it has taken
//! and not handed on when a connection ends is lost; it never comes later.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::random::Random;

/// What the broker is to advertise.
pub const PROXY_HOST: &str = "127.0.0.2";

/// The proxy of all ports of a broker.
#[derive(Clone)]
pub struct Proxy(Arc<Shared>);

struct Shared {
    pipes: Mutex<HashMap<u64, Arc<Pipe>>>,
    numbers: AtomicU64,
    /// So many of the next Produce requests, and of the next responses, are cut in the middle.
    cut_requests: AtomicU64,
    cut_responses: AtomicU64,
    counts: Counts,
}

/// What it has done.
#[derive(Default, Debug)]
pub struct Counts {
    pub connections: AtomicU64,
    pub frames: AtomicU64,
    pub cut: AtomicU64,
    pub cut_in_produce: AtomicU64,
    pub cut_in_response: AtomicU64,
    pub delayed: AtomicU64,
    pub swallowed: AtomicU64,
}

/// One connection.
struct Pipe {
    client: TcpStream,
    broker: TcpStream,
    delay_ms: AtomicU64,
    /// Requests, and responses, vanish.
    swallows: [AtomicBool; 2],
}

/// Which way a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Up,
    Down,
}

impl Proxy {
    /// Listens on these ports.
    pub fn start(ports: impl IntoIterator<Item = u16>) -> Proxy {
        let proxy = Proxy(Arc::new(Shared {
            pipes: Mutex::default(),
            numbers: AtomicU64::new(0),
            cut_requests: AtomicU64::new(0),
            cut_responses: AtomicU64::new(0),
            counts: Counts::default(),
        }));
        for port in ports {
            let listener = TcpListener::bind((PROXY_HOST, port)).expect("a free port");
            let proxy = proxy.clone();
            spawn(move || proxy.accept(&listener, SocketAddr::from(([127, 0, 0, 1], port))));
        }
        proxy
    }

    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    fn accept(&self, listener: &TcpListener, broker: SocketAddr) {
        for client in listener.incoming() {
            // Without a broker the client finds its connection closed.
            let Ok(client) = client else { continue };
            let Ok(broker) = TcpStream::connect(broker) else { continue };
            let _ = self.join(client, broker);
        }
    }

    fn join(&self, client: TcpStream, broker: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        broker.set_nodelay(true)?;
        let (from_client, to_client) = (client.try_clone()?, client.try_clone()?);
        let (from_broker, to_broker) = (broker.try_clone()?, broker.try_clone()?);
        let pipe = Arc::new(Pipe {
            client,
            broker,
            delay_ms: AtomicU64::new(0),
            swallows: Default::default(),
        });
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        count(&self.0.counts.connections);
        self.pipes().insert(number, Arc::clone(&pipe));
        for (way, from, to) in
            [(Way::Up, from_client, to_broker), (Way::Down, from_broker, to_client)]
        {
            let (proxy, pipe) = (self.clone(), Arc::clone(&pipe));
            spawn(move || {
                // Any error is the end of the connection, both ways.
                let _ = proxy.pump(&pipe, way, from, to);
                pipe.cut();
                proxy.pipes().remove(&number);
            });
        }
        Ok(())
    }

    fn pipes(&self) -> MutexGuard<'_, HashMap<u64, Arc<Pipe>>> {
        self.0.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pump(
        &self,
        pipe: &Pipe,
        way: Way,
        mut from: TcpStream,
        mut to: TcpStream,
    ) -> io::Result<()> {
        let counts = &self.0.counts;
        loop {
            let mut frame = vec![0; 4];
            from.read_exact(&mut frame)?;
            let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            frame.resize(4 + length, 0);
            from.read_exact(&mut frame[4..])?;
            let delay_ms = pipe.delay_ms.load(Ordering::Relaxed);
            if delay_ms > 0 {
                count(&counts.delayed);
                sleep(Duration::from_millis(delay_ms));
            }
            if pipe.swallows[way as usize].load(Ordering::Relaxed) {
                count(&counts.swallowed);
                continue;
            }
            let (due, counter) = match way {
                Way::Up => (&self.0.cut_requests, &counts.cut_in_produce),
                Way::Down => (&self.0.cut_responses, &counts.cut_in_response),
            };
            let is_meant = way == Way::Down || frame[4..].starts_with(&PRODUCE);
            if is_meant && take(due) {
                count(counter);
                to.write_all(&frame[..frame.len() / 2])?;
                return Ok(());
            }
            to.write_all(&frame)?;
            count(&counts.frames);
        }
    }

    /// Some of the connections, chosen by `random`: about one in `share`.
    fn some(&self, random: &mut Random, share: usize) -> Vec<Arc<Pipe>> {
        self.pipes().values().filter(|_| random.one_in(share)).cloned().collect()
    }

    /// Ends some connections; how many.
    pub fn cut(&self, random: &mut Random, share: usize) {
        for pipe in self.some(random, share) {
            count(&self.0.counts.cut);
            pipe.cut();
        }
    }

    /// The next Produce requests do not arrive whole.
    pub fn cut_in_produce(&self, times: u64) {
        self.0.cut_requests.store(times, Ordering::Relaxed);
    }

    /// The next responses do not arrive whole.
    pub fn cut_in_response(&self, times: u64) {
        self.0.cut_responses.store(times, Ordering::Relaxed);
    }

    /// Some connections are slow from now on.
    pub fn delay(&self, random: &mut Random, share: usize, delay_ms: u64) {
        for pipe in self.some(random, share) {
            pipe.delay_ms.store(delay_ms, Ordering::Relaxed);
        }
    }

    /// Some connections swallow all that goes this way.
    pub fn swallow(&self, random: &mut Random, share: usize, way: Way) {
        for pipe in self.some(random, share) {
            pipe.swallows[way as usize].store(true, Ordering::Relaxed);
        }
    }

    /// All is well again. What has swallowed something can never be whole: it ends.
    pub fn heal(&self) {
        self.cut_in_produce(0);
        self.cut_in_response(0);
        for pipe in self.pipes().values() {
            pipe.delay_ms.store(0, Ordering::Relaxed);
            if pipe.swallows.iter().any(|swallows| swallows.load(Ordering::Relaxed)) {
                pipe.cut();
            }
        }
    }
}

impl Pipe {
    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.broker.shutdown(Shutdown::Both);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One less, if there is one.
fn take(counter: &AtomicU64) -> bool {
    let less = |left: u64| left.checked_sub(1);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

const FRAME_BYTES_MAX: usize = 64 << 20;
/// The API key that a request begins with.
const PRODUCE: [u8; 2] = [0, 0];
