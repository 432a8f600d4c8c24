//! The accept loop of a listener: who is let in, and to which shard.
//!
//! Owns the order of the checks on a new connection. Must never end while the broker runs, unless
//! the listener itself is broken, and never touch a connection that is served already.
//!
//! As Apache Kafka: over `max.connections` nothing is accepted until somebody leaves; over the
//! limit of its address a connection is closed as soon as it is accepted. **deviation**: so many
//! descriptors are kept for files that data is never lost for want of one; beyond the rest nothing
//! is accepted either.

use std::cell::Cell;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use crate::ids::ShardId;
use crate::io::listener::{Accepted, Listener};
use crate::limits::ACCEPT_PAUSE_MS;
use crate::metrics::Limit;
use crate::shard::endpoint::Endpoint;
use crate::shard::message::Message;
use crate::shard::quota::{ConnectionLimits, ConnectionQuota, Place, Refusal};
use crate::shard::{Shard, connection};

/// Accepts connections until the shard stops; with one listener for all shards they are dealt in
/// turn.
pub async fn accept(shard: Rc<Shard>, socket: TcpListener, doors: Doors) {
    let listener = match Listener::new(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the listener failed: {error}"),
    };
    let admitted = async {
        let dealt = shard.context.is_single() && shard.context.shards > 1;
        let mut next = 0;
        loop {
            match doors.admit(&shard, &listener).await {
                Err(error) => return tracing::error!("the listener failed: {error}"),
                Ok(None) => {}
                Ok(Some((accepted, place))) if dealt => {
                    let to = ShardId(next % shard.context.shards);
                    next = (next + 1) % shard.context.shards;
                    shard.links.tell(to, Message::Connection { accepted, place });
                }
                Ok(Some((accepted, place))) => match accepted.into_stream() {
                    Ok(stream) => connection::spawn(&shard, Rc::new(stream), place),
                    Err(error) => tracing::debug!("a connection was lost at once: {error}"),
                },
            }
        }
    };
    futures_lite::future::or(admitted, shard.stopped()).await;
}

/// Accepts connections to the metrics endpoint, from before the shard is there until the process
/// ends: a broker that drains is asked whether it is ready, too.
pub async fn accept_scrapes(endpoint: Rc<Endpoint>, listener: Listener) {
    loop {
        match listener.accept().await.map(Accepted::into_stream) {
            Ok(Ok(stream)) => endpoint.accept(Rc::new(stream)),
            Ok(Err(error)) => tracing::debug!("a scrape was lost at once: {error}"),
            // The endpoint is no reason to stop; one that cannot listen any more says so once.
            Err(error) => return tracing::error!("the metrics endpoint failed: {error}"),
        }
    }
}

/// What all accept loops share.
#[derive(Clone, Debug)]
pub struct Doors {
    /// The connections of the broker.
    pub quota: Arc<ConnectionQuota>,
    /// Most connections for which there are descriptors.
    pub descriptors: usize,
    /// Somebody was told that newcomers wait, and it has not become better since.
    pub is_said: Cell<bool>,
}

impl Doors {
    /// The next connection and its place; `None` if it was refused.
    async fn admit(
        &self,
        shard: &Rc<Shard>,
        listener: &Listener,
    ) -> std::io::Result<Option<(Accepted, Place)>> {
        let pauses = listener.pauses();
        let accepted = listener.accept().await?;
        for _ in pauses..listener.pauses() {
            shard.metrics.limit_reached(Limit::Descriptors);
        }
        let mut is_counted = false;
        loop {
            let configured = ConnectionLimits::of(shard.catalog().broker());
            let all = configured.all.min(self.descriptors);
            let limits = ConnectionLimits { all, ..configured };
            match self.quota.take(accepted.peer().ip(), &limits) {
                Ok(place) => {
                    if self.quota.count() < all - all / 10 {
                        self.is_said.set(false);
                    }
                    return Ok(Some((accepted, place)));
                }
                Err(Refusal::Full) => {
                    // The newcomer waits here, and those behind it in the backlog, as in Kafka.
                    if !std::mem::replace(&mut is_counted, true) {
                        self.newcomers_wait(shard, self.descriptors == all);
                    }
                    let next = shard.runtime.now().plus_ms(ACCEPT_PAUSE_MS);
                    shard.runtime.sleep_until(next).await;
                }
                Err(Refusal::Address { most }) => {
                    shard.metrics.limit_reached(Limit::ConnectionsPerIp);
                    let address = accepted.peer().ip();
                    tracing::info!(
                        "connection from {address} refused: it has the {most} it may have"
                    );
                    return Ok(None);
                }
            }
        }
    }

    /// Counted per newcomer, and said once until it has become better.
    fn newcomers_wait(&self, shard: &Rc<Shard>, for_descriptors: bool) {
        let limit = if for_descriptors { Limit::Descriptors } else { Limit::Connections };
        shard.metrics.limit_reached(limit);
        if self.is_said.replace(true) {
            return;
        }
        let count = self.quota.count();
        if for_descriptors {
            tracing::warn!(
                "{count} connections are open and no descriptors are left for more: raise the \
                 limit with `ulimit -n` or LimitNOFILE="
            );
        } else {
            tracing::warn!("{count} connections are open: new ones wait (max.connections)");
        }
    }
}
