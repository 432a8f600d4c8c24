//! What happens in topics, counted by their names and in all.
//!
//! Owns one entry per topic of the shard, up to [`METRICS_TOPICS_MAX`]; what is beyond shares one.
//! A partition holds its topic's entry, so that nothing is looked up where batches pass. The
//! entries of deleted topics go; what they counted stays in the totals, which never fall.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::exposition::Family;
use super::{Counter, Samples, families};
use crate::ids::TopicId;
use crate::limits::METRICS_TOPICS_MAX;

/// Counters of one topic, or of all.
#[derive(Default, Debug)]
pub struct TopicCounters {
    /// Records appended.
    pub messages_in: Counter,
    /// Bytes of batches appended.
    pub bytes_in: Counter,
    /// Bytes of batches in answers to fetches.
    pub bytes_out: Counter,
    /// Bytes of batches refused for their size.
    pub bytes_rejected: Counter,
    /// Partitions in produce requests.
    pub produce_requests: Counter,
    /// Partitions in fetch requests.
    pub fetch_requests: Counter,
    /// Partitions in produce requests that were refused.
    pub failed_produce_requests: Counter,
    /// Partitions in fetch requests that were refused.
    pub failed_fetch_requests: Counter,
    /// Batches refused for their magic.
    pub invalid_magic: Counter,
    /// Batches refused for their checksum.
    pub invalid_crc: Counter,
    /// Batches refused for their offsets or sequence numbers.
    pub invalid_sequence: Counter,
    /// Batches refused for records against a rule of the topic.
    pub no_key: Counter,
    /// Batches refused with 45.
    pub out_of_order_sequence: Counter,
    /// Batches refused for an epoch that is over.
    pub producer_fenced: Counter,
    /// Records that were there already.
    pub duplicates: Counter,
}

impl TopicCounters {
    fn told(&self) -> [(&'static Family, &Counter); 15] {
        [
            (&families::MESSAGES_IN, &self.messages_in),
            (&families::BYTES_IN, &self.bytes_in),
            (&families::BYTES_OUT, &self.bytes_out),
            (&families::BYTES_REJECTED, &self.bytes_rejected),
            (&families::PRODUCE_REQUESTS, &self.produce_requests),
            (&families::FETCH_REQUESTS, &self.fetch_requests),
            (&families::FAILED_PRODUCE_REQUESTS, &self.failed_produce_requests),
            (&families::FAILED_FETCH_REQUESTS, &self.failed_fetch_requests),
            (&families::INVALID_MAGIC, &self.invalid_magic),
            (&families::INVALID_CRC, &self.invalid_crc),
            (&families::INVALID_SEQUENCE, &self.invalid_sequence),
            (&families::NO_KEY, &self.no_key),
            (&families::OUT_OF_ORDER_SEQUENCE, &self.out_of_order_sequence),
            (&families::PRODUCER_FENCED, &self.producer_fenced),
            (&families::DUPLICATES, &self.duplicates),
        ]
    }
}

/// The entry of one topic.
#[derive(Debug)]
pub struct TopicMetrics {
    own: TopicCounters,
    all: Rc<TopicCounters>,
}

impl TopicMetrics {
    /// Adds to one counter of the topic, and of all topics.
    pub fn add(&self, counter: impl Fn(&TopicCounters) -> &Counter, count: u64) {
        counter(&self.own).add(count);
        counter(&self.all).add(count);
    }
}

/// Names and counters by id.
type Entries = HashMap<TopicId, (Arc<str>, Rc<TopicMetrics>), foldhash::fast::RandomState>;

/// The topics of one shard.
pub struct Topics {
    all: Rc<TopicCounters>,
    entries: RefCell<Entries>,
    /// Of the topics that have none of their own.
    other: Rc<TopicMetrics>,
}

impl Default for Topics {
    fn default() -> Topics {
        let all = Rc::<TopicCounters>::default();
        let other = TopicMetrics { own: TopicCounters::default(), all: Rc::clone(&all) };
        Topics { all, entries: RefCell::default(), other: Rc::new(other) }
    }
}

impl Topics {
    /// A topic's entry; `None` in place of a new one when there are too many.
    #[must_use]
    pub fn get(&self, id: TopicId, name: &Arc<str>) -> Option<Rc<TopicMetrics>> {
        let mut entries = self.entries.borrow_mut();
        if let Some((_, known)) = entries.get(&id) {
            return Some(Rc::clone(known));
        }
        if entries.len() >= METRICS_TOPICS_MAX {
            return None;
        }
        let all = Rc::clone(&self.all);
        let new = Rc::new(TopicMetrics { own: TopicCounters::default(), all });
        entries.insert(id, (Arc::clone(name), Rc::clone(&new)));
        Some(new)
    }

    /// The entry that topics without one share.
    #[must_use]
    pub fn other(&self) -> Rc<TopicMetrics> {
        Rc::clone(&self.other)
    }

    /// Forgets the topics that are not there any more.
    pub fn retain(&self, is_there: impl Fn(TopicId) -> bool) {
        self.entries.borrow_mut().retain(|id, _| is_there(*id));
    }

    /// Tells all of it.
    pub fn tell(&self, samples: &mut Samples) {
        for (family, counter) in self.all.told() {
            samples.count(family, &[], counter.get());
        }
        for (family, counter) in self.other.own.told() {
            if counter.get() > 0 {
                samples.count(family, &[("topic", OTHER_TOPICS)], counter.get());
            }
        }
        for (name, entry) in self.entries.borrow().values() {
            for (family, counter) in entry.own.told() {
                if counter.get() > 0 {
                    samples.count(family, &[("topic", name)], counter.get());
                }
            }
        }
    }
}

/// What topics without an entry are told as: no topic can have such a name.
const OTHER_TOPICS: &str = "(other)";

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(topics: &Topics) -> Vec<String> {
        let mut samples = Samples::default();
        topics.tell(&mut samples);
        let text: String = samples.pieces().collect();
        let wanted = text
            .lines()
            .filter(|line| line.contains("_messagesin_total") && !line.starts_with('#'));
        wanted
            .map(|line| line.replace("kafka_server_brokertopicmetrics_messagesin_total", ""))
            .collect()
    }

    #[test]
    fn totals_outlive_their_topics() {
        let topics = Topics::default();
        let (one, two) = (TopicId([1; 16]), TopicId([2; 16]));
        let entry = topics.get(one, &Arc::from("one")).expect("room");
        entry.add(|of| &of.messages_in, 3);
        topics.get(two, &Arc::from("two")).expect("room").add(|of| &of.messages_in, 4);
        topics.get(one, &Arc::from("one")).expect("known").add(|of| &of.messages_in, 1);
        assert_eq!(lines(&topics), [" 8", "{topic=\"one\"} 4", "{topic=\"two\"} 4"]);
        topics.retain(|id| id == two);
        entry.add(|of| &of.messages_in, 1);
        assert_eq!(lines(&topics), [" 9", "{topic=\"two\"} 4"]);
    }

    #[test]
    fn topics_beyond_the_bound_are_counted_together() {
        let topics = Topics::default();
        let id = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            TopicId(bytes)
        };
        for number in 0..METRICS_TOPICS_MAX {
            assert!(topics.get(id(number), &Arc::from(number.to_string())).is_some());
        }
        assert!(topics.get(id(METRICS_TOPICS_MAX), &Arc::from("more")).is_none());
        assert!(topics.get(id(0), &Arc::from("0")).is_some());
        topics.other().add(|of| &of.messages_in, 2);
        assert_eq!(lines(&topics), [" 2", "{topic=\"(other)\"} 2"]);
    }
}
