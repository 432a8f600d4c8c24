//! What a shard knows about its own work, in numbers.
//!
//! Owns the counters of one shard ([`ShardMetrics`]). They are plain cells of one thread, counted
//! in place: no atomics, no lock, no lookup by text, and nothing is allocated where a request
//! passes. A scrape takes [`Samples`] from every shard by message and adds them up; the text of
//! them and the little HTTP it needs are made here, the sockets are elsewhere. Must never decide
//! anything.

pub mod cleaner;
pub mod exposition;
pub mod families;
pub mod histogram;
pub mod http;
pub mod lag;
pub mod limit;
pub mod requests;
pub mod stages;
pub mod topics;
pub mod transactions;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::ids::TopicId;

pub use exposition::Samples;
pub use histogram::Histogram;
pub use limit::Limit;
use requests::{Requests, SlowLines};
use stages::{STAGES, Stage};
use topics::{TopicMetrics, Topics};
use transactions::TransactionMetrics;

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A number that goes up and down.
#[derive(Default, Debug)]
pub struct Gauge(Cell<i64>);

impl Gauge {
    /// Adds to it, or takes away.
    pub fn add(&self, change: i64) {
        self.0.set(self.0.get().wrapping_add(change));
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.get()
    }
}

/// The counters of one shard.
pub struct ShardMetrics {
    limits: [Counter; limit::COUNT],
    slow: [Counter; STAGES],
    /// Requests by API.
    pub requests: Requests,
    /// Whether a slow request may be written about.
    pub slow_lines: SlowLines,
    /// What happens in topics.
    pub topics: Topics,
    /// Transactions.
    pub transactions: TransactionMetrics,
    /// Bytes read from clients.
    pub bytes_received: Counter,
    /// Bytes written to clients.
    pub bytes_sent: Counter,
    /// Connections served so far.
    pub connections_opened: Counter,
    /// Connections closed for malformed input.
    pub malformed: Counter,
    /// Bytes of batches written to segments.
    pub segment_bytes_written: Counter,
    /// Bytes read from segments for readers.
    pub segment_bytes_read: Counter,
    /// Those of them that were read before a reader asked.
    pub segment_bytes_read_ahead: Counter,
    /// Segments that retention has taken out of their logs.
    pub segments_deleted: Counter,
    /// Checkpoints finished.
    pub checkpoints: Counter,
    /// Their time.
    pub checkpoint_time: Histogram,
    /// Fetches parked so far.
    pub parked_fetches: Counter,
    /// Fetches parked now.
    pub fetches_waiting: Gauge,
}

impl ShardMetrics {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Rc<ShardMetrics> {
        Rc::new(ShardMetrics {
            limits: std::array::from_fn(|_| Counter::default()),
            slow: std::array::from_fn(|_| Counter::default()),
            requests: Requests::default(),
            slow_lines: SlowLines::default(),
            topics: Topics::default(),
            transactions: TransactionMetrics::default(),
            bytes_received: Counter::default(),
            bytes_sent: Counter::default(),
            connections_opened: Counter::default(),
            malformed: Counter::default(),
            segment_bytes_written: Counter::default(),
            segment_bytes_read: Counter::default(),
            segment_bytes_read_ahead: Counter::default(),
            segments_deleted: Counter::default(),
            checkpoints: Counter::default(),
            checkpoint_time: Histogram::default(),
            parked_fetches: Counter::default(),
            fetches_waiting: Gauge::default(),
        })
    }

    /// A bound was reached.
    pub fn limit_reached(&self, limit: Limit) {
        self.limit_reached_often(limit, 1);
    }

    /// A bound was reached so often.
    pub fn limit_reached_often(&self, limit: Limit, count: u64) {
        self.limits[limit as usize].add(count);
    }

    /// How often a bound was reached.
    #[must_use]
    pub fn limit_count(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].get()
    }

    /// A request took too long, most of it in this stage.
    pub fn was_slow(&self, guilty: Stage) {
        self.slow[guilty as usize].add(1);
    }

    /// The counters of a topic.
    #[must_use]
    pub fn topic(&self, id: TopicId, name: &Arc<str>) -> Rc<TopicMetrics> {
        self.topics.get(id, name).unwrap_or_else(|| {
            self.limit_reached(Limit::MetricsTopics);
            self.topics.other()
        })
    }

    /// Tells what is counted here; the shard knows the rest.
    pub fn tell(&self, samples: &mut Samples, shard: &str) {
        let shard = [("shard", shard)];
        for limit in Limit::ALL {
            let labels = [("limit", limit.label())];
            samples.count(&families::LIMITS, &labels, self.limit_count(*limit));
        }
        for (stage, count) in Stage::ALL.iter().zip(&self.slow) {
            samples.count(&families::SLOW_REQUESTS, &[("stage", stage.label())], count.get());
        }
        self.requests.tell(samples);
        self.topics.tell(samples);
        samples.count(&families::BYTES_RECEIVED, &shard, self.bytes_received.get());
        samples.count(&families::BYTES_SENT, &shard, self.bytes_sent.get());
        samples.count(&families::CONNECTIONS_OPENED, &shard, self.connections_opened.get());
        samples.count(&families::MALFORMED, &[], self.malformed.get());
        samples.count(&families::SEGMENT_BYTES, &shard, self.segment_bytes_written.get());
        let read = self.segment_bytes_read.get();
        samples.count(&families::SEGMENT_BYTES_READ, &shard, read);
        let ahead = self.segment_bytes_read_ahead.get();
        samples.count(&families::SEGMENT_BYTES_AHEAD, &shard, ahead);
        samples.count(&families::SEGMENTS_DELETED, &shard, self.segments_deleted.get());
        samples.count(&families::CHECKPOINTS, &shard, self.checkpoints.get());
        let checkpoint_time = self.checkpoint_time.distribution();
        samples.distribution(&families::CHECKPOINT_TIME, &shard, checkpoint_time);
        let waiting = self.fetches_waiting.get();
        samples.number(&families::PARKED_FETCHES, &[("delayedOperation", "Fetch")], waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::METRICS_TOPICS_MAX;

    #[test]
    fn a_topic_beyond_the_bound_is_counted_as_one() {
        let metrics = ShardMetrics::new();
        let topic = |number: usize| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&number.to_be_bytes());
            metrics.topic(TopicId(id), &Arc::from(number.to_string()))
        };
        (0..METRICS_TOPICS_MAX).for_each(|number| drop(topic(number)));
        assert_eq!(metrics.limit_count(Limit::MetricsTopics), 0);
        let other = topic(METRICS_TOPICS_MAX);
        assert!(Rc::ptr_eq(&other, &metrics.topics.other()));
        assert_eq!(metrics.limit_count(Limit::MetricsTopics), 1);
        drop(topic(0));
        assert_eq!(metrics.limit_count(Limit::MetricsTopics), 1, "it is known");
    }
}
