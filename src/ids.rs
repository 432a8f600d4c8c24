//! Newtypes for the numbers that must never be mixed up: offsets, epochs, ids and positions.
//!
//! Owns no state. Must never grow arithmetic that hides an overflow: offsets and positions come
//! from the wire, so every sum is checked or saturating at the place that computes it.

use std::fmt;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

newtype!(
    /// Offset of a record in a partition.
    Offset(i64)
);
newtype!(
    /// Index of a shard: one pinned core, and in `per-core` mode one broker id.
    ShardId(u16)
);
newtype!(
    /// Index of a partition inside its topic.
    PartitionIndex(i32)
);
newtype!(
    /// Id of an idempotent or transactional producer; -1 on the wire means none.
    ProducerId(i64)
);
newtype!(
    /// Epoch of a producer id; -1 on the wire means none.
    ProducerEpoch(i16)
);
newtype!(
    /// Leader epoch of a partition. Ringlog uses its boot number, so it never falls.
    LeaderEpoch(i32)
);
newtype!(
    /// Number of starts of this data directory; durable, strictly rising.
    BootNumber(u32)
);
newtype!(
    /// Sequence number of a journal block; never reused, over all boots.
    JournalSequence(u64)
);

impl Offset {
    /// The offset `count` records further on.
    #[must_use]
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0.saturating_add(count))
    }
}

impl BootNumber {
    /// The leader epoch that this boot stamps on every batch.
    #[must_use]
    pub fn leader_epoch(self) -> LeaderEpoch {
        LeaderEpoch(i32::try_from(self.0).unwrap_or(i32::MAX))
    }
}

/// Topic id: 16 raw bytes of a version 4 UUID; all zero means "no topic".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id that stands for "not given" on the wire.
    pub const ZERO: TopicId = TopicId([0; 16]);

    /// Text as Kafka prints it: base64url of the 16 bytes, 22 characters, no padding.
    #[must_use]
    pub fn to_text(self) -> String {
        let mut text = String::with_capacity(22);
        for chunk in self.0.chunks(3) {
            let mut word = [0u8; 3];
            word[..chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes([0, word[0], word[1], word[2]]);
            for place in 0..=chunk.len() {
                let index = (bits >> (18 - 6 * place)) & 63;
                text.push(char::from(BASE64_URL[index as usize]));
            }
        }
        text
    }

    /// Reads what [`TopicId::to_text`] wrote; `None` for any other text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<TopicId> {
        if text.len() != 22 {
            return None;
        }
        let mut out = [0u8; 16];
        let mut filled = 0;
        let mut window: u32 = 0;
        let mut window_bits = 0;
        for byte in text.bytes() {
            let value = BASE64_URL.iter().position(|&c| c == byte)?;
            window = (window << 6) | u32::try_from(value).ok()?;
            window_bits += 6;
            if window_bits >= 8 {
                window_bits -= 8;
                if filled < 16 {
                    out[filled] = (window >> window_bits) as u8;
                    filled += 1;
                }
                window &= (1 << window_bits) - 1;
            }
        }
        // 22 characters carry 132 bits: the last four must be zero.
        (filled == 16 && window == 0).then_some(TopicId(out))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// One partition of one topic, by id: the key of everything a shard owns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// Topic id, never zero.
    pub topic: TopicId,
    /// Partition index, never negative.
    pub partition: PartitionIndex,
}

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_text_is_kafkas() {
        // Uuid.fromString("MTIzNDU2Nzg5MGFiY2RlZg") of Kafka is the bytes "1234567890abcdef".
        let id = TopicId(*b"1234567890abcdef");
        assert_eq!(id.to_text(), "MTIzNDU2Nzg5MGFiY2RlZg");
        assert_eq!(TopicId::from_text("MTIzNDU2Nzg5MGFiY2RlZg"), Some(id));
        assert_eq!(TopicId::ZERO.to_text(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId::from_text(&TopicId([255; 16]).to_text()), Some(TopicId([255; 16])));
        assert_eq!(TopicId::from_text("AAAAAAAAAAAAAAAAAAAAAB"), None);
        assert_eq!(TopicId::from_text("AAAA"), None);
        assert_eq!(TopicId::from_text("AAAAAAAAAAAAAAAAAAAA+A"), None);
    }
}
