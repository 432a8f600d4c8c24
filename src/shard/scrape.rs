//! What a shard tells of itself when it is asked for its metrics.
//!
//! Owns the walk over everything that has a number. Partitions are told in slices, between which
//! others run, and no more than [`METRICS_PARTITIONS_MAX`] of them. Must never wait for anything
//! but its turn.

use std::rc::Rc;

use super::partition::Partition;
use super::{Shard, group_offsets};
use crate::ids::ShardId;
use crate::io::process::ProcessFacts;
use crate::limits::METRICS_PARTITIONS_MAX;
use crate::metrics::exposition::Family;
use crate::metrics::lag::Lag;
use crate::metrics::{Limit, Samples, families};

/// What one shard tells.
#[derive(Default, Debug)]
pub struct Scraped {
    /// What it can tell alone.
    pub samples: Samples,
    /// What it takes other shards to tell.
    pub lag: Lag,
}

impl Scraped {
    /// Takes all of another shard's in.
    pub fn merge(&mut self, other: Scraped) {
        self.samples.merge(other.samples);
        self.lag.merge(other.lag);
    }
}

/// Takes everything there is to tell.
pub async fn take(shard: &Rc<Shard>) -> Scraped {
    let mut lag = Lag::default();
    // Before the ends of partitions: a group does not commit what is not there yet.
    group_offsets::progress::take(shard, &mut lag).await;
    let mut samples = Samples::default();
    let name = shard.id.to_string();
    shard.metrics.tell(&mut samples, &name);
    shard.transactions.tell(&shard.metrics.transactions, &mut samples);
    tell_journal(shard, &mut samples, &name);
    tell_memory(shard, &mut samples, &name);
    let (uncleanable, now_ms) = (shard.cleaner.uncleanable(), shard.runtime.wall_ms());
    shard.cleaner.metrics.tell(&mut samples, &name, uncleanable, now_ms);
    tell_links(shard, &mut samples, &name);
    let open = shard.connections.count() as u64;
    samples.count(&families::CONNECTIONS, &[("shard", &name)], open);
    let requests = shard.connections.requests() as u64;
    samples.count(&families::REQUESTS_IN_PROGRESS, &[], requests);
    let sessions = shard.sessions.borrow().len() as u64;
    samples.count(&families::FETCH_SESSIONS, &[], sessions);
    samples.count(&families::SHARD_UP, &[("shard", &name)], 1);
    if shard.id == ShardId(0) {
        tell_broker(shard, &mut samples);
    }
    tell_partitions(shard, &mut samples, &mut lag).await;
    Scraped { samples, lag }
}

/// Tells how far all groups are, once every shard has said what it knows.
pub async fn tell_lag(shard: &Rc<Shard>, lag: &Lag, samples: &mut Samples) {
    let image = shard.catalog();
    let id_of = |name: &str| image.topic(name).map(|topic| topic.id);
    for (place, (group, members)) in lag.groups().enumerate() {
        let labels = [("consumergroup", &**group)];
        samples.count(&families::GROUP_MEMBERS, &labels, *members as u64);
        between(shard, place).await;
    }
    for (place, offset) in lag.offsets().enumerate() {
        lag.tell(offset, &id_of, samples);
        between(shard, place).await;
    }
    samples.count(&families::GROUP_OFFSETS_LEFT_OUT, &[], lag.left_out());
}

/// Lets others run after every so many things that are told.
async fn between(shard: &Shard, place: usize) {
    if place % TOLD_PER_TURN == TOLD_PER_TURN - 1 {
        shard.runtime.yield_now().await;
    }
}

fn tell_journal(shard: &Shard, samples: &mut Samples, name: &str) {
    let counters = shard.journal.counters();
    let label = [("shard", name)];
    samples.count(&families::JOURNAL_COMMITS, &label, counters.entries.count());
    samples.count(&families::JOURNAL_BYTES, &label, counters.block_bytes.get());
    samples.count(&families::JOURNAL_BATCHES, &label, counters.batches.get());
    samples.count(&families::JOURNAL_BATCH_BYTES, &label, counters.batch_bytes.get());
    samples.distribution(&families::JOURNAL_ENTRIES, &label, counters.entries.distribution());
    samples.distribution(&families::JOURNAL_DEVICE, &label, counters.device.distribution());
    samples.count(&families::JOURNAL_RING_USED, &label, shard.journal.ring_used_bytes());
    samples.count(&families::JOURNAL_RING_SIZE, &label, shard.journal.ring_bytes());
    tell_limit(samples, Limit::SegmentWriters, shard.write_behind.crowded());
    tell_limit(samples, Limit::SegmentFilesOpen, shard.files.borrow().evicted());
    tell_limit(samples, Limit::FetchSessions, shard.sessions.borrow().refused());
    for (limit, count) in [
        (Limit::JournalBlockBytes, &counters.filled),
        (Limit::JournalBlocksInFlight, &counters.crowded),
        (Limit::JournalMemory, &counters.memory_waits),
        (Limit::JournalRing, &counters.ring_waits),
    ] {
        tell_limit(samples, limit, count.get());
    }
}

fn tell_memory(shard: &Shard, samples: &mut Samples, name: &str) {
    let (tail_used, tail_budget) = shard.journal.memory();
    let (cache_used, cache_budget) = shard.cache.borrow().memory();
    let connections = &shard.connection_memory;
    for (purpose, used, budget) in [
        ("tail", tail_used, tail_budget),
        ("cache", cache_used, cache_budget),
        ("connections", connections.used(), connections.bytes_max()),
    ] {
        let labels = [("shard", name), ("purpose", purpose)];
        samples.count(&families::MEMORY_USED, &labels, used as u64);
        samples.count(&families::MEMORY_BUDGET, &labels, budget as u64);
    }
}

fn tell_links(shard: &Shard, samples: &mut Samples, name: &str) {
    let load = shard.links.load();
    let label = [("shard", name)];
    samples.count(&families::MAILBOX_QUEUED, &label, load.queued as u64);
    samples.count(&families::MAILBOX_REQUESTS, &label, load.requests as u64);
    tell_limit(samples, Limit::MailboxMessages, load.stalls);
    tell_limit(samples, Limit::MailboxRequests, load.closings);
}

/// A bound that is counted elsewhere than in the shard's own table.
fn tell_limit(samples: &mut Samples, limit: Limit, count: u64) {
    samples.count(&families::LIMITS, &[("limit", limit.label())], count);
}

/// What the kernel says of the process: told by the shard that is asked.
pub fn tell_process(samples: &mut Samples, facts: &ProcessFacts) {
    for (family, value) in [
        (&families::PROCESS_CPU, facts.cpu_us),
        (&families::PROCESS_RESIDENT, facts.resident_bytes),
        (&families::PROCESS_OPEN_FDS, facts.open_fds),
        (&families::PROCESS_MAX_FDS, facts.max_fds),
        (&families::PROCESS_STARTED, facts.started_us),
    ] {
        if let Some(value) = value {
            samples.count(family, &[], value);
        }
    }
}

/// What is the same for all shards: told by one.
fn tell_broker(shard: &Shard, samples: &mut Samples) {
    let image = shard.catalog();
    let brokers = shard.context.nodes.len() as u64;
    let partitions: usize = image.topics().map(|topic| topic.preferred.len()).sum();
    let boot = shard.context.boot.to_string();
    let info = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("durability", shard.context.config.durability.text()),
        ("boot", &boot),
    ];
    samples.count(&families::INFO, &info, 1);
    for (family, value) in [
        (&families::TOPICS, image.topics().count() as u64),
        (&families::ALL_PARTITIONS, partitions as u64),
        (&families::BROKERS, brokers),
        (&families::ACTIVE_BROKERS, brokers),
        (&families::ACTIVE_CONTROLLERS, 1),
        (&families::FENCED_BROKERS, 0),
        (&families::UNDER_REPLICATED, 0),
        (&families::UNDER_MIN_ISR, 0),
        (&families::BROKER_STATE, if shard.is_stopping() { STOPPING } else { SERVING }),
    ] {
        samples.count(family, &[], value);
    }
}

/// What all partitions of the shard come to.
#[derive(Default)]
struct Sums {
    partitions: u64,
    offline: u64,
    producers: u64,
    late: u64,
}

async fn tell_partitions(shard: &Rc<Shard>, samples: &mut Samples, lag: &mut Lag) {
    let partitions = shard.all_partitions();
    let late_ms = i64::from(shard.context.config.transaction_max_timeout_ms) + LATE_MS;
    let late_before_ms = shard.runtime.wall_ms().saturating_sub(late_ms);
    let mut sums = Sums::default();
    for (place, partition) in partitions.iter().enumerate() {
        between(shard, place).await;
        let producers = partition.log.borrow().producers().len() as u64;
        let oldest_ms = partition.log.borrow().producers().oldest_open_append_ms();
        lag.add_end(partition.id, partition.log.borrow().high_watermark());
        sums.partitions += 1;
        sums.offline += u64::from(!partition.is_online());
        sums.producers += producers;
        sums.late += u64::from(oldest_ms.is_some_and(|at_ms| at_ms < late_before_ms));
        if place < METRICS_PARTITIONS_MAX {
            tell_partition(partition, samples);
        }
    }
    if partitions.len() > METRICS_PARTITIONS_MAX {
        shard.metrics.limit_reached(Limit::MetricsPartitions);
    }
    let failed = u64::from(shard.check_sound().is_err());
    for (family, value) in [
        (&families::PARTITIONS, sums.partitions),
        (&families::LEADERS, sums.partitions),
        (&families::OFFLINE_REPLICAS, sums.offline),
        (&families::OFFLINE_PARTITIONS, sums.offline),
        (&families::PRODUCER_IDS, sums.producers),
        (&families::LATE_TRANSACTIONS, sums.late),
        (&families::OFFLINE_LOG_DIRS, failed),
    ] {
        samples.count(family, &[], value);
    }
}

fn tell_partition(partition: &Partition, samples: &mut Samples) {
    let topic = partition.topic.borrow();
    let index = partition.index().to_string();
    let labels = [("topic", &*topic.name), ("partition", &*index)];
    let log = partition.log.borrow();
    let high_watermark = log.high_watermark().0;
    let offsets: [(&'static Family, i64); 5] = [
        (&families::LOG_START, log.log_start().0),
        (&families::OLDEST_OFFSET, log.log_start().0),
        (&families::LOG_END, log.next_offset().0),
        (&families::HIGH_WATERMARK, high_watermark),
        (&families::STABLE_LAG, high_watermark - log.last_stable_offset().0),
    ];
    drop(log);
    for (family, value) in offsets {
        samples.number(family, &labels, value);
    }
    samples.count(&families::LOG_SIZE, &labels, partition.log_size().bytes);
    let segments = partition.segments.borrow().bases().count() as u64;
    samples.count(&families::LOG_SEGMENTS, &labels, segments);
}

/// Partitions, groups or offsets told before other work of the shard comes.
const TOLD_PER_TURN: usize = 128;

/// How long beyond its timeout a transaction is no fault yet, as in Apache Kafka.
const LATE_MS: i64 = 5 * 60_000;

/// Kafka's numbers of the states of a broker.
const SERVING: u64 = 3;
const STOPPING: u64 = 6;
