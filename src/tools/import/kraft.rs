//! The metadata of a KRaft cluster: what its records say of topics, configs, quotas and ids.
//!
//! Owns the reading of those kinds of record that an import needs, in the versions of Kafka 3.3 to
//! 4.x; the others are passed over. Must never guess at a version it does not know: half of a
//! topic is worse than none. Does no I/O.
//!
//! Invariants: records between a begin and an end of a metadata transaction take effect together,
//! at its end. Source: KIP-631, KIP-868, Kafka's `metadata/*.json` and `MetadataRecordSerde`.

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::record::{Reader, RecordFault};
use crate::ids::TopicId;
use crate::metadata::quotas::QuotaEntity;
use crate::metadata::scram::{Credentials, ScramCredential, Secret};

/// A topic of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KraftTopic {
    /// Its name.
    pub name: String,
    /// The indexes of its partitions.
    pub partitions: BTreeSet<i32>,
}

/// What the metadata log has said so far.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metadata {
    /// Topics by id.
    pub topics: BTreeMap<TopicId, KraftTopic>,
    /// Settings by resource type and name.
    pub configs: BTreeMap<(i8, String), BTreeMap<String, String>>,
    /// Client quotas.
    pub quotas: BTreeMap<QuotaEntity, BTreeMap<String, f64>>,
    /// SCRAM credentials.
    pub credentials: Credentials,
    /// The first producer id that no broker has taken.
    pub next_producer_id: i64,
    /// Records of a metadata transaction that has not ended.
    pending: Option<Vec<Vec<u8>>>,
}

impl Metadata {
    /// Takes over one record's value.
    ///
    /// # Errors
    /// What is wrong with the bytes, or that a later Kafka wrote them.
    pub fn apply(&mut self, value: &[u8]) -> Result<(), RecordFault> {
        let mut reader = Reader::new(value);
        if reader.uvarint()? > FRAME_VERSION_MAX {
            return Err(RecordFault::Malformed("an unknown frame of a metadata record"));
        }
        let kind = reader.uvarint()?;
        let version = reader.uvarint()?;
        match kind {
            BEGIN_TRANSACTION => self.pending = Some(Vec::new()),
            ABORT_TRANSACTION => self.pending = None,
            END_TRANSACTION => {
                for record in self.pending.take().unwrap_or_default() {
                    self.apply(&record)?;
                }
            }
            _ => match &mut self.pending {
                Some(pending) => pending.push(value.to_vec()),
                None => self.apply_one(kind, version, reader)?,
            },
        }
        Ok(())
    }

    fn apply_one(
        &mut self,
        kind: u32,
        version: u32,
        reader: Reader<'_>,
    ) -> Result<(), RecordFault> {
        let newest = match kind {
            PARTITION => 2,
            TOPIC | CONFIG | REMOVE_TOPIC | CLIENT_QUOTA | PRODUCER_IDS => 0,
            USER_SCRAM_CREDENTIAL | REMOVE_USER_SCRAM_CREDENTIAL => 0,
            _ => return Ok(()),
        };
        if version > newest {
            let version = i16::try_from(version).unwrap_or(i16::MAX);
            return Err(RecordFault::UnknownValueVersion(version));
        }
        match kind {
            TOPIC => self.topic(reader),
            PARTITION => self.partition(reader),
            CONFIG => self.config(reader),
            REMOVE_TOPIC => self.remove_topic(reader),
            CLIENT_QUOTA => self.quota(reader),
            PRODUCER_IDS => self.producer_ids(reader),
            USER_SCRAM_CREDENTIAL => self.credential(reader),
            _ => self.remove_credential(reader),
        }
    }

    fn topic(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let name = reader.text(true)?.to_owned();
        let id = TopicId(reader.uuid()?);
        self.topics.insert(id, KraftTopic { name, partitions: BTreeSet::new() });
        Ok(())
    }

    /// Replicas and leader are of no interest: there is one node.
    fn partition(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let index = reader.i32()?;
        let id = TopicId(reader.uuid()?);
        let topic = self.topics.get_mut(&id);
        topic.ok_or(RecordFault::Malformed("a partition of no topic"))?.partitions.insert(index);
        Ok(())
    }

    fn config(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let resource = (reader.u8()?.cast_signed(), reader.text(true)?.to_owned());
        let key = reader.text(true)?.to_owned();
        match reader.nullable_text()? {
            Some(value) => {
                self.configs.entry(resource).or_default().insert(key, value.to_owned());
            }
            None => {
                if let Some(settings) = self.configs.get_mut(&resource) {
                    settings.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn remove_topic(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        if let Some(topic) = self.topics.remove(&TopicId(reader.uuid()?)) {
            self.configs.remove(&(TOPIC_RESOURCE, topic.name));
        }
        Ok(())
    }

    fn quota(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let mut entity = QuotaEntity::new();
        for _ in 0..reader.count(true)?.unwrap_or(0) {
            let kind = reader.text(true)?.to_owned();
            entity.insert(kind, reader.nullable_text()?.map(str::to_owned));
            reader.tags(|_, _| Ok(()))?;
        }
        let key = reader.text(true)?.to_owned();
        let value = f64::from_bits(reader.i64()?.cast_unsigned());
        let quotas = self.quotas.entry(entity).or_default();
        if reader.u8()? == 0 {
            quotas.insert(key, value);
        } else {
            quotas.remove(&key);
        }
        Ok(())
    }

    fn producer_ids(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let (_broker, _broker_epoch) = (reader.i32()?, reader.i64()?);
        self.next_producer_id = self.next_producer_id.max(reader.i64()?);
        Ok(())
    }

    fn credential(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let user = reader.text(true)?.to_owned();
        let mechanism = reader.u8()?.cast_signed();
        let mut secret = || reader.bytes().map(|bytes| Secret(bytes.to_vec()));
        let (salt, stored_key, server_key) = (secret()?, secret()?, secret()?);
        let iterations = reader.i32()?;
        let credential = ScramCredential { salt, stored_key, server_key, iterations };
        self.credentials.entry(user).or_default().insert(mechanism, credential);
        Ok(())
    }

    fn remove_credential(&mut self, mut reader: Reader<'_>) -> Result<(), RecordFault> {
        let user = reader.text(true)?;
        let mechanism = reader.u8()?.cast_signed();
        if let Some(mechanisms) = self.credentials.get_mut(user) {
            mechanisms.remove(&mechanism);
        }
        Ok(())
    }
}

/// Kafka's number of topics among the resources that have settings.
pub const TOPIC_RESOURCE: i8 = 2;

const FRAME_VERSION_MAX: u32 = 1;

// Numbers of the kinds of record.
const TOPIC: u32 = 2;
const PARTITION: u32 = 3;
const CONFIG: u32 = 4;
const REMOVE_TOPIC: u32 = 9;
const USER_SCRAM_CREDENTIAL: u32 = 11;
const CLIENT_QUOTA: u32 = 14;
const PRODUCER_IDS: u32 = 15;
const REMOVE_USER_SCRAM_CREDENTIAL: u32 = 22;
const BEGIN_TRANSACTION: u32 = 23;
const END_TRANSACTION: u32 = 24;
const ABORT_TRANSACTION: u32 = 25;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, out: &mut Vec<u8>) {
        out.push(u8::try_from(text.len() + 1).expect("short"));
        out.extend_from_slice(text.as_bytes());
    }

    fn record(kind: u32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![1, u8::try_from(kind).expect("kind"), 0];
        body(&mut out);
        out.push(0);
        out
    }

    fn topic(name: &str, id: u8) -> Vec<u8> {
        record(TOPIC, |out| {
            text(name, out);
            out.extend_from_slice(&[id; 16]);
        })
    }

    fn partition(index: i32, id: u8) -> Vec<u8> {
        record(PARTITION, |out| {
            out.extend_from_slice(&index.to_be_bytes());
            out.extend_from_slice(&[id; 16]);
        })
    }

    fn config(name: &str, key: &str, value: Option<&str>) -> Vec<u8> {
        record(CONFIG, |out| {
            out.push(2);
            text(name, out);
            text(key, out);
            match value {
                Some(value) => text(value, out),
                None => out.push(0),
            }
        })
    }

    fn read(records: &[Vec<u8>]) -> Metadata {
        let mut metadata = Metadata::default();
        records.iter().for_each(|record| metadata.apply(record).expect("record"));
        metadata
    }

    #[test]
    fn topics_come_with_partitions_and_settings_and_go_with_them() {
        let mut records = vec![topic("a", 1), partition(0, 1), partition(1, 1), topic("b", 2)];
        records.push(config("a", "retention.ms", Some("5")));
        records.push(config("b", "retention.ms", Some("6")));
        records.push(config("b", "segment.bytes", Some("7")));
        records.push(config("b", "segment.bytes", None));
        let metadata = read(&records);
        let a = &metadata.topics[&TopicId([1; 16])];
        assert_eq!((a.name.as_str(), a.partitions.len()), ("a", 2));
        let b = &metadata.configs[&(TOPIC_RESOURCE, "b".to_owned())];
        assert_eq!(b.iter().collect::<Vec<_>>(), [(&"retention.ms".to_owned(), &"6".to_owned())]);

        records.push(record(REMOVE_TOPIC, |out| out.extend_from_slice(&[1; 16])));
        let metadata = read(&records);
        assert_eq!(metadata.topics.keys().collect::<Vec<_>>(), [&TopicId([2; 16])]);
        assert_eq!(metadata.configs.len(), 1);
    }

    #[test]
    fn a_metadata_transaction_counts_when_it_has_ended() {
        let begin = record(BEGIN_TRANSACTION, |_| {});
        let mut records = vec![begin.clone(), topic("a", 1)];
        assert!(read(&records).topics.is_empty());
        records.push(record(END_TRANSACTION, |_| {}));
        assert_eq!(read(&records).topics.len(), 1);
        records.extend([begin, topic("b", 2), record(ABORT_TRANSACTION, |_| {})]);
        assert_eq!(read(&records).topics.len(), 1);
    }

    #[test]
    fn ids_quotas_and_credentials_are_taken() {
        let ids = record(PRODUCER_IDS, |out| {
            out.extend_from_slice(&1_i32.to_be_bytes());
            out.extend_from_slice(&9_i64.to_be_bytes());
            out.extend_from_slice(&3_000_i64.to_be_bytes());
        });
        let quota = |remove: u8| {
            record(CLIENT_QUOTA, |out| {
                out.push(2);
                text("user", out);
                out.extend_from_slice(&[0, 0]);
                text("producer_byte_rate", out);
                out.extend_from_slice(&1024.5_f64.to_bits().to_be_bytes());
                out.push(remove);
            })
        };
        let credential = record(USER_SCRAM_CREDENTIAL, |out| {
            text("eve", out);
            out.push(1);
            ["salt", "stored", "server"].into_iter().for_each(|secret| text(secret, out));
            out.extend_from_slice(&4_096_i32.to_be_bytes());
        });
        let metadata = read(&[ids, quota(0), credential]);
        assert_eq!(metadata.next_producer_id, 3_000);
        let entity = QuotaEntity::from([("user".to_owned(), None)]);
        assert_eq!(metadata.quotas[&entity]["producer_byte_rate"].to_bits(), 1024.5_f64.to_bits());
        let kept = &metadata.credentials["eve"][&1];
        assert_eq!((kept.server_key.0.as_slice(), kept.iterations), (&b"server"[..], 4_096));
        assert!(read(&[quota(0), quota(1)]).quotas[&entity].is_empty());
    }

    #[test]
    fn what_is_unknown_is_passed_over_or_refused() {
        let mut metadata = Metadata::default();
        assert_eq!(metadata.apply(&[1, 99, 7, 1, 2, 3]), Ok(()), "of no interest");
        assert_eq!(metadata.apply(&[1, 2, 1]), Err(RecordFault::UnknownValueVersion(1)));
        assert!(metadata.apply(&[2, 2, 0]).is_err(), "frame");
        assert!(metadata.apply(&topic("a", 1)[..9]).is_err(), "cut short");
        assert!(metadata.apply(&partition(0, 7)).is_err(), "no topic");
    }
}
