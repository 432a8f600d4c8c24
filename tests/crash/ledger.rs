//! What was sent, acknowledged and seen, and what a broker must serve after a crash because of it.
//!
//! Rules: an acknowledged batch is at its offset with its bytes; so is a batch that a consumer has
//! seen. A batch without an acknowledgement is there at most once; once found missing after a
//! crash it never comes back unless it is sent again. Offsets have no gaps. A created topic is
//! there, a deleted one is not; an unanswered request of either kind leaves both open.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use crate::cluster::large_fetch;
use crate::random::FIRST_TIMESTAMP;
use crate::support::client::Client;

/// All topics ever made.
#[derive(Default)]
pub struct Ledger {
    pub topics: BTreeMap<String, Topic>,
    /// How often an unacknowledged batch was found after a crash, and how often not.
    pub unacknowledged: (u64, u64),
    /// Acknowledged batches, and bytes of all that were sent.
    pub acknowledged: u64,
    pub bytes: u64,
}

/// One topic and its partitions.
pub struct Topic {
    pub fate: Fate,
    pub bytes: u64,
    pub partitions: Vec<HashMap<u64, Sent>>,
}

/// What is known of a topic's existence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Creating,
    Exists,
    Deleting,
    Deleted,
}

/// One batch that was sent.
pub struct Sent {
    fingerprint: u128,
    place: Place,
}

/// Where a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Under way, or its answer never came.
    Unknown,
    /// At this offset for good.
    At(i64),
    /// Not in the log, and no longer under way.
    Gone,
}

/// A batch that was served.
pub struct Served {
    pub base_offset: i64,
    pub last_offset: i64,
    pub number: u64,
    fingerprint: u128,
}

impl Ledger {
    /// A request to create a topic is about to be sent.
    pub fn creating(&mut self, name: &str, partitions: usize) {
        let partitions = (0..partitions).map(|_| HashMap::new()).collect();
        let topic = Topic { fate: Fate::Creating, bytes: 0, partitions };
        let before = self.topics.insert(name.to_owned(), topic);
        assert!(before.is_none_or(|topic| topic.fate == Fate::Deleted));
    }

    /// Sets what is known of a topic's existence.
    pub fn set_fate(&mut self, name: &str, fate: Fate) {
        self.topics.get_mut(name).expect("a known topic").fate = fate;
    }

    /// A batch is about to be sent for the first time.
    pub fn sending(&mut self, topic: &str, partition: i32, number: u64, batch: &Bytes) {
        self.bytes += batch.len() as u64;
        let topic = self.topics.get_mut(topic).expect("a known topic");
        topic.bytes += batch.len() as u64;
        let sent = Sent { fingerprint: fingerprint(batch), place: Place::Unknown };
        let before = topic.partitions[partition as usize].insert(number, sent);
        assert!(before.is_none(), "batch numbers are used once");
    }

    /// A batch is about to be sent again.
    pub fn sending_again(&mut self, topic: &str, partition: i32, number: u64) {
        let sent = self.sent(topic, partition, number);
        if sent.place == Place::Gone {
            sent.place = Place::Unknown;
        }
    }

    /// Where a batch is.
    pub fn place(&mut self, topic: &str, partition: i32, number: u64) -> Place {
        self.sent(topic, partition, number).place
    }

    /// A batch was acknowledged at an offset.
    pub fn acknowledged(&mut self, topic: &str, partition: i32, number: u64, offset: i64) {
        self.acknowledged += 1;
        self.settle(topic, partition, number, offset, "acknowledged");
    }

    /// A batch was served to a consumer.
    pub fn seen(&mut self, topic: &str, partition: i32, served: &Served) {
        let sent = self.sent(topic, partition, served.number);
        assert_eq!(
            sent.fingerprint, served.fingerprint,
            "{topic}-{partition}: batch {} at {} has other bytes",
            served.number, served.base_offset
        );
        self.settle(topic, partition, served.number, served.base_offset, "served");
    }

    /// Holds the whole content of a partition, read after a crash, against what was sent; returns
    /// the end of the log.
    pub fn verify(&mut self, topic: &str, partition: i32, log: &[Served]) -> i64 {
        let mut next = 0;
        let mut found = HashSet::new();
        for served in log {
            assert_eq!(served.base_offset, next, "{topic}-{partition}: a gap or an overlap");
            next = served.last_offset + 1;
            if self.place(topic, partition, served.number) == Place::Unknown {
                self.unacknowledged.0 += 1;
            }
            self.seen(topic, partition, served);
            found.insert(served.number);
        }
        let sent = &mut self.topics.get_mut(topic).expect("known").partitions[partition as usize];
        for (number, sent) in sent.iter_mut().filter(|(number, _)| !found.contains(number)) {
            match sent.place {
                Place::At(offset) => panic!(
                    "{topic}-{partition}: batch {number} was acknowledged or seen at {offset} and \
                     is missing; the log ends at {next}"
                ),
                Place::Unknown => {
                    sent.place = Place::Gone;
                    self.unacknowledged.1 += 1;
                }
                Place::Gone => {}
            }
        }
        next
    }

    /// Holds the topics that a restarted broker names against what was asked for.
    pub fn verify_topics(&mut self, present: &HashSet<String>) {
        for name in present {
            assert!(self.topics.contains_key(name), "topic {name} was never created");
        }
        for (name, topic) in &mut self.topics {
            topic.fate = match (topic.fate, present.contains(name)) {
                (Fate::Exists, false) => panic!("topic {name} was created and is missing"),
                (Fate::Deleted, true) => panic!("topic {name} was deleted and is back"),
                (_, true) => Fate::Exists,
                (_, false) => Fate::Deleted,
            };
        }
    }

    /// Names of the topics that are there.
    pub fn existing(&self) -> Vec<String> {
        let exists = self.topics.iter().filter(|(_, topic)| topic.fate == Fate::Exists);
        exists.map(|(name, _)| name.clone()).collect()
    }

    fn settle(&mut self, topic: &str, partition: i32, number: u64, offset: i64, how: &str) {
        let sent = self.sent(topic, partition, number);
        match sent.place {
            Place::Unknown => sent.place = Place::At(offset),
            Place::At(before) => assert_eq!(
                before, offset,
                "{topic}-{partition}: batch {number} was at {before} and is {how} at {offset}"
            ),
            Place::Gone => panic!(
                "{topic}-{partition}: batch {number} was gone after a crash, {how} at {offset}"
            ),
        }
    }

    fn sent(&mut self, topic: &str, partition: i32, number: u64) -> &mut Sent {
        let known = self.topics.get_mut(topic).expect("a known topic");
        known.partitions[partition as usize]
            .get_mut(&number)
            .unwrap_or_else(|| panic!("{topic}-{partition}: batch {number} was never sent there"))
    }
}

/// The whole content of a partition.
pub fn read_log(client: &mut Client, topic: &str, partition: i32) -> Vec<Served> {
    let mut log: Vec<Served> = Vec::new();
    loop {
        let next = log.last().map_or(0, |served| served.last_offset + 1);
        let request = large_fetch(topic, partition, next);
        let answer = client.call(12, &request);
        let data = &answer.responses[0].partitions[0];
        assert_eq!(data.error_code, 0, "{topic}-{partition} at {next}");
        assert_eq!(data.log_start_offset, 0);
        let set = data.records.clone().unwrap_or_default();
        if set.is_empty() {
            assert_eq!(data.high_watermark, next, "{topic}-{partition}: nothing below the end");
            return log;
        }
        log.extend(served(&set).into_iter().filter(|served| served.base_offset >= next));
    }
}

/// The batches of a fetched record set. Panics unless they are whole.
pub fn served(set: &[u8]) -> Vec<Served> {
    let mut rest = set;
    let mut batches = Vec::new();
    while !rest.is_empty() {
        assert!(rest.len() >= 61, "{} bytes are no batch", rest.len());
        let length = i32::from_be_bytes(rest[8..12].try_into().expect("four bytes"));
        let (batch, after) = rest.split_at(12 + length as usize);
        rest = after;
        let delta = i32::from_be_bytes(batch[23..27].try_into().expect("four bytes"));
        let timestamp = i64::from_be_bytes(batch[27..35].try_into().expect("eight bytes"));
        let base_offset = i64::from_be_bytes(batch[..8].try_into().expect("eight bytes"));
        batches.push(Served {
            base_offset,
            last_offset: base_offset + i64::from(delta),
            number: (timestamp - FIRST_TIMESTAMP) as u64,
            fingerprint: fingerprint(batch),
        });
    }
    batches
}

/// Of all bytes but the base offset and the leader epoch, which are the broker's.
fn fingerprint(batch: &[u8]) -> u128 {
    xxh3_128(&batch[16..]) ^ batch.len() as u128
}
