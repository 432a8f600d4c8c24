//! The hash of the topics that a group subscribes to, as Kafka 4.3 computes it.
//!
//! It stands in the group's record, so that a change of partitions is noticed after a restart too.
//! Numbers go in with the low byte first, text as UTF-16 and then its length. Topics have no racks
//! here, and nor has a Kafka whose brokers have none. Source: KIP-1101, Kafka's `Utils`.

use xxhash_rust::xxh3::xxh3_64;

use super::Topics;

/// The hash over topics sorted by name; those that do not exist count for nothing.
pub fn metadata_hash<'a>(names: impl Iterator<Item = &'a str>, topics: &dyn Topics) -> i64 {
    let mut all = Vec::new();
    for name in names {
        if let Some(topic) = topics.by_name(name) {
            all.extend_from_slice(&topic_hash(name, topic.id.0, topic.partitions).to_le_bytes());
        }
    }
    if all.is_empty() { 0 } else { xxh3_64(&all).cast_signed() }
}

fn topic_hash(name: &str, id: [u8; 16], partitions: i32) -> u64 {
    let mut bytes = vec![0];
    let (high, low) = id.split_at(8);
    bytes.extend(high.iter().rev());
    bytes.extend(low.iter().rev());
    let mut units = 0_u32;
    for unit in name.encode_utf16() {
        bytes.extend_from_slice(&unit.to_le_bytes());
        units += 1;
    }
    bytes.extend_from_slice(&units.to_le_bytes());
    bytes.extend_from_slice(&partitions.to_le_bytes());
    for partition in 0..partitions {
        bytes.extend_from_slice(&partition.to_le_bytes());
    }
    xxh3_64(&bytes)
}
