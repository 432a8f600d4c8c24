//! The metrics endpoint: `/metrics` and `/ready`, on one shard for all of them.
//!
//! Owns its connections: few at once, one request each, with a bound on the bytes and the time that
//! it may take. It is there before the shard is, so that readiness can be asked for from the first
//! moment on. A shard that does not answer in time is left out, and told as down. Must never keep
//! a shard busy: samples and text are made in slices.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::Shard;
use super::event::Slot;
use super::message::{Operation, Reply};
use super::scrape::{self, Scraped};
use crate::ids::ShardId;
use crate::io::{Monotonic, Runtime, Stream, process};
use crate::limits::{HTTP_CONNECTIONS_MAX, HTTP_HEAD_BYTES_MAX, HTTP_REQUEST_MS_MAX};
use crate::metrics::http::{self, Head, METRICS_TYPE, PLAIN_TYPE, Page, Status};
use crate::metrics::{Limit, Samples, families};

/// The endpoint.
pub struct Endpoint {
    runtime: Rc<dyn Runtime>,
    shard: OnceCell<Rc<Shard>>,
    serving: Cell<bool>,
    connections: Cell<usize>,
}

impl Endpoint {
    /// An endpoint of a broker that is starting.
    #[must_use]
    pub fn new(runtime: Rc<dyn Runtime>) -> Rc<Endpoint> {
        let (serving, connections) = (Cell::new(false), Cell::new(0));
        Rc::new(Endpoint { runtime, shard: OnceCell::new(), serving, connections })
    }

    /// The shard is there.
    pub fn attach(&self, shard: &Rc<Shard>) {
        let _ = self.shard.set(Rc::clone(shard));
    }

    /// All shards take requests.
    pub fn serve_from_now_on(&self) {
        self.serving.set(true);
    }

    /// Whether clients may be sent here, and if not, why; known by `deadline`.
    ///
    /// # Errors
    /// The reason, as it is answered.
    pub async fn readiness(&self, deadline: Monotonic) -> Result<(), &'static str> {
        match self.shard.get() {
            Some(shard) if shard.is_stopping() => Err("stopping\n"),
            Some(shard) if self.serving.get() => soundness(shard, deadline).await,
            _ => Err("starting\n"),
        }
    }

    /// Takes a connection in.
    pub fn accept(self: &Rc<Self>, stream: Rc<dyn Stream>) {
        if self.connections.get() >= HTTP_CONNECTIONS_MAX {
            return self.limit_reached(Limit::HttpConnections);
        }
        self.connections.set(self.connections.get() + 1);
        let endpoint = Rc::clone(self);
        self.runtime.spawn(Box::pin(async move {
            let deadline = endpoint.runtime.now().plus_ms(HTTP_REQUEST_MS_MAX);
            let answered = async {
                answer(&endpoint, &stream, deadline).await;
                true
            };
            let late = async {
                // What is asked for may take half of the time, its way the rest.
                endpoint.runtime.sleep_until(deadline.plus_ms(HTTP_REQUEST_MS_MAX)).await;
                false
            };
            if !futures_lite::future::or(answered, late).await {
                endpoint.limit_reached(Limit::HttpRequestTime);
            }
            stream.shut_down();
            stream.let_go().await;
            endpoint.connections.set(endpoint.connections.get() - 1);
        }));
    }

    fn limit_reached(&self, limit: Limit) {
        if let Some(shard) = self.shard.get() {
            shard.metrics.limit_reached(limit);
        }
    }
}

/// Reads one request and answers it.
async fn answer(endpoint: &Rc<Endpoint>, stream: &Rc<dyn Stream>, deadline: Monotonic) {
    let read = read_request(stream);
    let late = async {
        endpoint.runtime.sleep_until(deadline).await;
        Some(Head::Refused(Status::TimedOut))
    };
    let Some(head) = futures_lite::future::or(read, late).await else { return };
    let (status, content_type, body) = match head {
        Head::Partial => return,
        Head::Refused(status) => {
            match status {
                Status::HeadTooLarge => endpoint.limit_reached(Limit::HttpHeadBytes),
                Status::TimedOut => endpoint.limit_reached(Limit::HttpRequestTime),
                _ => {}
            }
            (status, PLAIN_TYPE, vec![Bytes::from(format!("{}\n", status.text()))])
        }
        Head::Asks(Page::Ready) => match endpoint.readiness(deadline).await {
            Ok(()) => (Status::Ok, PLAIN_TYPE, vec![Bytes::from_static(b"ready\n")]),
            Err(why) => (Status::Unavailable, PLAIN_TYPE, vec![Bytes::from_static(why.as_bytes())]),
        },
        Head::Asks(Page::Metrics) => match endpoint.shard.get() {
            Some(shard) => (Status::Ok, METRICS_TYPE, text_of_all(shard, deadline).await),
            None => (Status::Unavailable, PLAIN_TYPE, vec![Bytes::from_static(b"starting\n")]),
        },
    };
    let body_bytes = body.iter().map(Bytes::len).sum();
    let mut slices = vec![Bytes::from(http::response_head(status, content_type, body_bytes))];
    slices.extend(body);
    // Whoever has gone does not want it.
    let _ = stream.write_all(&mut slices).await;
}

/// Reads until the head has ended; nothing if its client ends before.
async fn read_request(stream: &Rc<dyn Stream>) -> Option<Head> {
    let mut buffer = BytesMut::new();
    loop {
        let limit = HTTP_HEAD_BYTES_MAX - buffer.len();
        match stream.read(&mut buffer, limit).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        match http::read_head(&buffer) {
            Head::Partial => {}
            head => return Some(head),
        }
    }
}

/// Whether every shard answers, and takes records as far as its storage goes. A full disk passes,
/// and is no reason to send clients elsewhere.
async fn soundness(shard: &Rc<Shard>, deadline: Monotonic) -> Result<(), &'static str> {
    for id in (0..shard.context.shards).map(ShardId) {
        let late = async {
            shard.runtime.sleep_until(deadline).await;
            None
        };
        let reply = async { Some(shard.ask(id, Operation::IsSound).await) };
        match futures_lite::future::or(reply, late).await {
            Some(Reply::Done(true)) => {}
            Some(_) => return Err("the storage has failed: records are refused\n"),
            None => return Err("a shard does not answer\n"),
        }
    }
    Ok(())
}

/// Samples of all shards, as text.
async fn text_of_all(shard: &Rc<Shard>, deadline: Monotonic) -> Vec<Bytes> {
    let others = (0..shard.context.shards).map(ShardId).filter(|id| *id != shard.id);
    // Sent first, so that they work at the same time.
    let asked: Vec<(ShardId, Rc<Slot<Reply>>)> =
        others.map(|id| (id, shard.links.call(id, Operation::Metrics))).collect();
    let mut scraped = scrape::take(shard).await;
    for (id, slot) in asked {
        let late = async {
            shard.runtime.sleep_until(deadline).await;
            None
        };
        let reply = async { Some(slot.take().await) };
        match futures_lite::future::or(reply, late).await {
            Some(Reply::Metrics(more)) => scraped.merge(*more),
            _ => down(&mut scraped.samples, id),
        }
        shard.runtime.yield_now().await;
    }
    let Scraped { mut samples, lag } = scraped;
    scrape::tell_lag(shard, &lag, &mut samples).await;
    scrape::tell_process(&mut samples, &process::read());
    let mut pieces = Vec::new();
    for piece in samples.pieces() {
        pieces.push(Bytes::from(piece));
        shard.runtime.yield_now().await;
    }
    pieces
}

fn down(samples: &mut Samples, id: ShardId) {
    samples.count(&families::SHARD_UP, &[("shard", &id.to_string())], 0);
}
