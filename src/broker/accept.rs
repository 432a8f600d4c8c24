//! The accept loop of a listener: who is let in, and to which shard.
//!
//! Owns the order of the checks on a new connection. Must never end while the broker runs, unless
//! the listener itself is broken, and never touch a connection that is served already.
//!
//! As Apache Kafka: over `max.connections` nothing is accepted until somebody leaves; over the
//! limit of its address a connection is closed as soon as it is accepted. **deviation**: so many
//! descriptors are kept for files that data is never lost for want of one; beyond the rest nothing
//! is accepted either.

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
}

impl Doors {
    /// The next connection and its place; `None` if it was refused.
    async fn admit(
        &self,
        shard: &Rc<Shard>,
        listener: &Listener,
    ) -> std::io::Result<Option<(Accepted, Place)>> {
        self.opened(shard).await;
        let pauses = listener.pauses();
        let accepted = listener.accept().await?;
        for _ in pauses..listener.pauses() {
            shard.metrics.limit_reached(Limit::Descriptors);
        }
        loop {
            match self.quota.take(accepted.peer().ip(), &self.limits(shard)) {
                Ok(place) => return Ok(Some((accepted, place))),
                // Another listener was faster: this one waits with its connection, as Kafka does.
                Err(Refusal::Full) => self.opened(shard).await,
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

    fn limits(&self, shard: &Shard) -> ConnectionLimits {
        let mut limits = ConnectionLimits::of(shard.catalog().broker());
        limits.all = limits.all.min(self.descriptors);
        limits
    }

    /// Waits while the broker is full: counted and said once per time it is, not per look.
    async fn opened(&self, shard: &Rc<Shard>) {
        let mut is_said = false;
        loop {
            let limits = ConnectionLimits::of(shard.catalog().broker());
            let count = self.quota.count();
            if count < limits.all.min(self.descriptors) {
                return;
            }
            if !is_said {
                is_said = true;
                if self.descriptors <= limits.all {
                    shard.metrics.limit_reached(Limit::Descriptors);
                    tracing::warn!(
                        "{count} connections are open and no descriptors are left for more: raise \
                         the limit with `ulimit -n` or LimitNOFILE="
                    );
                } else {
                    shard.metrics.limit_reached(Limit::Connections);
                    tracing::warn!("{count} connections are open: new ones wait (max.connections)");
                }
            }
            let next = shard.runtime.now().plus_ms(ACCEPT_PAUSE_MS);
            shard.runtime.sleep_until(next).await;
        }
    }
}
