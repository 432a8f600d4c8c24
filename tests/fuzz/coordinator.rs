//! Records of `__consumer_offsets` and `__transaction_state`, as Kafka or anybody else wrote them.

use std::sync::Arc;

use ringlog::coordinator::group::record::{GroupRecord, OffsetKey, OffsetValue};
use ringlog::coordinator::record::transaction::{read_key, read_value, value_bytes};
use ringlog::coordinator::txn::state::{Metadata, State};
use ringlog::ids::{ProducerEpoch, ProducerId, TopicId};

use crate::allocation::within;
use crate::run;
use crate::sample::Choices;

/// What a record becomes: its texts, and a place for each partition.
fn record_bytes_max(bytes: usize) -> usize {
    2_048 + 160 * bytes
}

fn text(choices: &mut Choices<'_>) -> Arc<str> {
    choices.bytes(8).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>().into()
}

#[test]
fn records_of_consumer_offsets() {
    run("group records", |choices| {
        let key = OffsetKey {
            group: text(choices),
            topic: text(choices),
            partition: choices.byte().into(),
        };
        let value = OffsetValue {
            offset: choices.number() as i64 >> 1,
            leader_epoch: choices.byte().into(),
            metadata: text(choices),
            commit_ms: choices.number() as i64,
            expire_ms: None,
            topic_id: TopicId::default(),
        };
        let record = GroupRecord::Offset(key, (!choices.chance(4)).then_some(value));
        let (mut key, mut value) = record.encode();
        assert_eq!(GroupRecord::decode(&key, value.as_deref()).expect("written here"), record);
        choices.damage(&mut key);
        if choices.chance(3) {
            value = Some(choices.bytes(60));
        }
        if let Some(value) = &mut value {
            choices.damage(value);
        }
        let most = record_bytes_max(key.len() + value.as_ref().map_or(0, Vec::len));
        within(most, "a group record", || {
            let _ = GroupRecord::decode(&key, value.as_deref());
        });
    });
}

#[test]
fn records_of_transaction_state() {
    run("transaction records", |choices| {
        let producer = ProducerId((choices.number() >> 1).cast_signed());
        let mut metadata = Metadata::new(producer, 60_000, 1_000);
        metadata.producer.epoch = ProducerEpoch(choices.byte().into());
        for _ in 0..choices.below(5) {
            metadata.partitions.push((text(choices), choices.byte().into()));
        }
        metadata.partitions.sort();
        metadata.partitions.dedup();
        if !metadata.partitions.is_empty() {
            metadata.state = State::Ongoing;
        }
        let version = i16::from(choices.byte() % 2);
        let mut value = value_bytes(&metadata, version);
        let read = read_value(&value).expect("written here");
        assert_eq!(value_bytes(&read, version), value);
        choices.damage(&mut value);
        within(record_bytes_max(value.len()), "a transaction record", || {
            let _ = read_value(&value);
        });
        let random = choices.rest();
        within(record_bytes_max(random.len()), "a random transaction record", || {
            let _ = read_value(random);
            let _ = read_key(random);
        });
    });
}
