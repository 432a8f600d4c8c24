//! What is kept of a request until its response has left: what it asked, and its clock.
//!
//! Owns the end of the stage clock: counting where the time of a request went, and writing about
//! one that was slow, with the stage that is to blame. Few lines are written, whatever happens.

use std::rc::Rc;

use super::Shard;
use crate::api::Response;
use crate::io::Monotonic;
use crate::metrics::Limit;
use crate::metrics::stages::{self, BlockTimes, RequestClock, Times};
use crate::wire::versions::Api;

/// A request that is being answered.
#[derive(Clone)]
pub struct Asked {
    /// Its API.
    pub api: Api,
    /// Version of its body.
    pub version: i16,
    /// Where its time goes.
    pub clock: Rc<RequestClock>,
}

/// A response on its way out, and the journal block it waited for.
pub struct Leaving {
    asked: Asked,
    block: Option<BlockTimes>,
}

impl Asked {
    /// Its response leaves; `durable` says whether the journal has reached its position.
    pub fn leave(self, shard: &Shard, response: &Response, durable: bool) -> Leaving {
        response.each_code(durable, &mut |code, count| {
            shard.metrics.requests.answered(self.api, code, u64::from(count));
        });
        Leaving { block: shard.journal.times(response.durable_at()), asked: self }
    }

    /// It has no response.
    pub fn end(&self, shard: &Shard, peer: &str) {
        let now = shard.runtime.now();
        self.clock.compute(now);
        self.note(shard, peer, &self.clock.times(None, now, now));
    }

    fn note(&self, shard: &Shard, peer: &str, times: &Times) {
        shard.metrics.requests.left(self.api, times);
        let limit_ms = shard.context.config.slow_request_ms;
        let took_ms = stages::answerable_ns(times) / 1_000_000;
        if limit_ms == 0 || took_ms < limit_ms {
            return;
        }
        let (guilty, spent_ns) = stages::guilty(times);
        shard.metrics.was_slow(guilty);
        let Some(left_out) = shard.metrics.slow_lines.admit(shard.runtime.now()) else {
            return shard.metrics.limit_reached(Limit::SlowLines);
        };
        tracing::warn!(
            shard = %shard.id,
            %peer,
            left_out,
            "slow request: {:?} v{} took {took_ms} ms, {} ms of it in {}",
            self.api,
            self.version,
            spent_ns / 1_000_000,
            guilty.label(),
        );
    }
}

impl Leaving {
    /// The socket has taken it, and those that left with it.
    pub fn sent(&self, shard: &Shard, peer: &str, leaving: Monotonic, sent: Monotonic) {
        let times = self.asked.clock.times(self.block, leaving, sent);
        self.asked.note(shard, peer, &times);
    }
}
