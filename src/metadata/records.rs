//! The catalog's records and their bytes.
//!
//! Owns the format of the catalog log: groups of records, each group one frame
//! `[length u32][crc32c u32][version u8][JSON]`, big-endian, the checksum over length and
//! payload. A group is written by one append and read back whole or not at all, so a change made
//! of several records is atomic. A damaged frame followed by a valid one was acknowledged:
//! that is an error, never a torn tail. No client can forge a frame inside a payload, since a
//! length below 2^29 begins with a control byte and JSON has none.

use std::collections::BTreeMap;

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};

use crate::ids::TopicId;

use super::quotas::QuotaEntity;
use super::scram::ScramCredential;

/// One change of the catalog.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// The data directory was made; always the first record.
    ClusterCreated {
        /// 22 characters, as Kafka prints a UUID.
        cluster_id: String,
    },
    /// A topic exists.
    TopicCreated {
        /// Its name.
        name: String,
        /// Its id, never seen before.
        #[serde(with = "topic_id_text")]
        id: TopicId,
        /// Preferred shard of each partition.
        preferred: Vec<u16>,
        /// Its own configs, in canonical text.
        overrides: BTreeMap<String, String>,
        /// Placement sequence afterwards.
        next_preferred: u16,
    },
    /// A topic has more partitions.
    PartitionsAdded {
        /// The topic.
        #[serde(with = "topic_id_text")]
        id: TopicId,
        /// Preferred shard of each new partition.
        preferred: Vec<u16>,
        /// Placement sequence afterwards.
        next_preferred: u16,
    },
    /// A topic is being deleted: gone for clients, its name still taken.
    TopicDeleting {
        /// The topic.
        #[serde(with = "topic_id_text")]
        id: TopicId,
    },
    /// Every shard has dropped a deleted topic's partitions: its name is free.
    TopicNameFreed {
        /// The deleted topic.
        #[serde(with = "topic_id_text")]
        id: TopicId,
    },
    /// Every shard has checkpointed past a deletion: nothing names the topic any more.
    TombstoneGone {
        /// The deleted topic.
        #[serde(with = "topic_id_text")]
        id: TopicId,
    },
    /// A config was set or removed. Topics by name; other resources are kept as they are.
    ConfigSet {
        /// Kafka's resource type: 2 topic, 4 broker, 16 client metrics, 32 group.
        resource_type: i8,
        /// Resource name; empty for the cluster-wide broker defaults.
        resource_name: String,
        /// Config name.
        key: String,
        /// Canonical text; `None` removes it.
        value: Option<String>,
    },
    /// A client quota was set or removed.
    ClientQuotaSet {
        /// Whose: name by type, no name for the default.
        entity: QuotaEntity,
        /// Which.
        key: String,
        /// Text of the number; `None` removes it.
        value: Option<String>,
    },
    /// A user's SCRAM credential was set or removed.
    ScramCredentialSet {
        /// Whose.
        user: String,
        /// Kafka's number of the mechanism.
        mechanism: i8,
        /// What is kept of the password; `None` removes it.
        credential: Option<ScramCredential>,
    },
    /// Producer ids below this may have been handed out.
    ProducerIdsReserved {
        /// The first id that has not.
        next: i64,
    },
    /// Ports of shards 1 and up, kept for the next start.
    BrokerPortsChosen {
        /// Port of shard `index + 1`.
        ports: Vec<u16>,
    },
    /// A feature level was finalized.
    FeatureLevelSet {
        /// Feature name.
        name: String,
        /// Level; 0 removes it.
        level: i16,
    },
    /// The log that continues a snapshot; only as its first record.
    LogFollows {
        /// Number in the log's name.
        sequence: u64,
    },
    /// Placement sequence; only in snapshots, where deleted topics no longer carry it.
    PlacementSet {
        /// The next preferred number.
        next_preferred: u16,
    },
    /// All feature levels and how often they changed; only in snapshots.
    FeaturesKept {
        /// Level by feature name.
        levels: BTreeMap<String, i16>,
        /// Number of changes.
        epoch: i64,
    },
    /// How many changes the catalog has seen; only in snapshots, as the last record.
    ChangesCounted {
        /// Their number.
        count: i64,
    },
    /// A deleted topic that something may still name; only in snapshots.
    TombstoneKept {
        /// The deleted topic.
        #[serde(with = "topic_id_text")]
        id: TopicId,
        /// Its name.
        name: String,
        /// How many partitions it had.
        partitions: u32,
        /// Whether its name is free again.
        name_freed: bool,
    },
}

/// Why catalog bytes cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Acknowledged bytes are damaged.
    #[error(
        "byte {position}: damaged, although an intact entry follows at byte {next_valid}; \
         acknowledged catalog changes are lost"
    )]
    Damaged {
        /// Where the damaged frame begins.
        position: usize,
        /// Where the next intact frame begins.
        next_valid: usize,
    },
    /// The frame is intact, but not of a version or content this build knows.
    #[error("byte {position}: {reason}")]
    Unknown {
        /// Where the frame begins.
        position: usize,
        /// What is not known.
        reason: String,
    },
}

/// What a log holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// The groups in order.
    pub groups: Vec<Vec<Record>>,
    /// Bytes of all intact groups; what follows is a torn tail.
    pub intact_bytes: usize,
}

/// One group of records as a frame.
#[must_use]
pub fn encode(records: &[Record]) -> Vec<u8> {
    let json = serde_json::to_vec(records).expect("invariant: records are plain data");
    let length = u32::try_from(json.len() + 1).expect("invariant: a group is below 4 GiB");
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + 1 + json.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.push(RECORD_VERSION);
    frame.extend_from_slice(&json);
    let crc = checksum(&frame);
    frame[4..8].copy_from_slice(&crc.to_be_bytes());
    frame
}

/// Reads a log.
///
/// # Errors
/// Damage that is not a torn tail, or content of a later version.
pub fn decode(bytes: &[u8]) -> Result<Decoded, FrameError> {
    let mut groups = Vec::new();
    let mut position = 0;
    while position < bytes.len() {
        let Some(payload) = frame_at(bytes, position) else {
            let next = (position + 1..bytes.len()).find(|next| frame_at(bytes, *next).is_some());
            match next {
                Some(next_valid) => {
                    return Err(FrameError::Damaged { position, next_valid });
                }
                None => break,
            }
        };
        let unknown = |reason: String| FrameError::Unknown { position, reason };
        let (&version, json) =
            payload.split_first().ok_or_else(|| unknown("an empty entry".to_owned()))?;
        if version != RECORD_VERSION {
            return Err(unknown(format!("catalog entry of version {version}")));
        }
        let group = serde_json::from_slice(json).map_err(|error| unknown(error.to_string()))?;
        groups.push(group);
        position += FRAME_HEADER_BYTES + payload.len();
    }
    Ok(Decoded { groups, intact_bytes: position.min(bytes.len()) })
}

/// The payload of an intact frame that begins at `position`.
fn frame_at(bytes: &[u8], position: usize) -> Option<&[u8]> {
    let rest = bytes.get(position..)?;
    let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    if length == 0 {
        return None;
    }
    let end = FRAME_HEADER_BYTES.checked_add(length)?;
    let frame = rest.get(..end)?;
    let stored = u32::from_be_bytes(frame.get(4..8)?.try_into().ok()?);
    (checksum(frame) == stored).then(|| &frame[FRAME_HEADER_BYTES..])
}

/// CRC-32C over length and payload.
fn checksum(frame: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&frame[..4]);
    digest.update(&frame[FRAME_HEADER_BYTES..]);
    u32::try_from(digest.finalize()).expect("invariant: a 32-bit checksum")
}

/// Topic ids as Kafka's text.
mod topic_id_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::ids::TopicId;

    pub fn serialize<S: Serializer>(id: &TopicId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&id.to_text())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TopicId, D::Error> {
        let text = String::deserialize(deserializer)?;
        TopicId::from_text(&text).ok_or_else(|| D::Error::custom("not a topic id"))
    }
}

const FRAME_HEADER_BYTES: usize = 8;

/// Raised when a record changes in a way older builds cannot read.
const RECORD_VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Vec<Record>> {
        let id = TopicId(*b"1234567890abcdef");
        vec![
            vec![Record::ClusterCreated { cluster_id: "MTIzNDU2Nzg5MGFiY2RlZg".to_owned() }],
            vec![
                Record::TopicCreated {
                    name: "orders".to_owned(),
                    id,
                    preferred: vec![0, 1, 65_535],
                    overrides: BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]),
                    next_preferred: 0,
                },
                Record::PartitionsAdded { id, preferred: vec![2], next_preferred: 3 },
            ],
            vec![Record::TopicDeleting { id }],
            vec![Record::TopicNameFreed { id }, Record::TombstoneGone { id }],
            vec![
                Record::ConfigSet {
                    resource_type: 4,
                    resource_name: String::new(),
                    key: "message.max.bytes".to_owned(),
                    value: None,
                },
                Record::ClientQuotaSet {
                    entity: BTreeMap::from([("user".to_owned(), None)]),
                    key: "request_percentage".to_owned(),
                    value: Some("12.5".to_owned()),
                },
                Record::ScramCredentialSet {
                    user: "ann".to_owned(),
                    mechanism: 1,
                    credential: None,
                },
                Record::ProducerIdsReserved { next: 1000 },
                Record::BrokerPortsChosen { ports: vec![19_192] },
                Record::FeatureLevelSet { name: "transaction.version".to_owned(), level: 2 },
                Record::PlacementSet { next_preferred: 9 },
                Record::FeaturesKept {
                    levels: BTreeMap::from([("group.version".to_owned(), 1)]),
                    epoch: 4,
                },
                Record::TombstoneKept {
                    id,
                    name: "old".to_owned(),
                    partitions: 3,
                    name_freed: true,
                },
                Record::ChangesCounted { count: 12 },
            ],
        ]
    }

    #[test]
    fn the_bytes_of_a_record_are_fixed() {
        let frame = encode(&[Record::ProducerIdsReserved { next: 1000 }]);
        let json = br#"[{"ProducerIdsReserved":{"next":1000}}]"#;
        assert_eq!(frame[..4], (json.len() as u32 + 1).to_be_bytes());
        assert_eq!(frame[8], 1);
        assert_eq!(&frame[9..], json);
        let topic = encode(&[Record::TopicDeleting { id: TopicId(*b"1234567890abcdef") }]);
        assert_eq!(&topic[9..], br#"[{"TopicDeleting":{"id":"MTIzNDU2Nzg5MGFiY2RlZg"}}]"#);
    }

    #[test]
    fn groups_read_back_and_a_cut_anywhere_is_a_torn_tail() {
        let groups = samples();
        let mut log = Vec::new();
        let mut ends = vec![0];
        for group in &groups {
            log.extend_from_slice(&encode(group));
            ends.push(log.len());
        }
        for cut in 0..=log.len() {
            let decoded = decode(&log[..cut]).expect("a prefix");
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(decoded.groups, groups[..whole], "cut at {cut}");
            assert_eq!(decoded.intact_bytes, ends[whole], "cut at {cut}");
        }
    }

    #[test]
    fn damage_before_an_intact_group_is_an_error() {
        let groups = samples();
        let first = encode(&groups[0]);
        let mut log = first.clone();
        log.extend_from_slice(&encode(&groups[1]));
        log.extend_from_slice(&encode(&groups[2]));
        let last = log.len() - encode(&groups[2]).len();
        for position in first.len()..last {
            let mut damaged = log.clone();
            damaged[position] ^= 0x40;
            assert_eq!(
                decode(&damaged),
                Err(FrameError::Damaged { position: first.len(), next_valid: last }),
                "bit of byte {position}"
            );
        }
        for position in last..log.len() {
            let mut torn = log.clone();
            torn[position] ^= 0x40;
            let decoded = decode(&torn).expect("torn");
            assert_eq!(decoded.groups, groups[..2]);
            assert_eq!(decoded.intact_bytes, last);
        }
    }

    #[test]
    fn zeros_and_noise_after_the_end_are_a_torn_tail() {
        let mut log = encode(&samples()[0]);
        let end = log.len();
        log.extend_from_slice(&[0; 100]);
        log.extend_from_slice(&[0xff; 100]);
        let decoded = decode(&log).expect("torn");
        assert_eq!((decoded.groups.len(), decoded.intact_bytes), (1, end));
    }

    #[test]
    fn a_later_version_is_refused() {
        let mut frame = encode(&samples()[0]);
        frame[8] = 2;
        let crc = checksum(&frame);
        frame[4..8].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(
            decode(&frame),
            Err(FrameError::Unknown {
                position: 0,
                reason: "catalog entry of version 2".to_owned()
            })
        );
    }
}
