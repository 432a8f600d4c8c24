//! Records of `__transaction_state`: one per transactional id, the last one counts.
//!
//! Owns their bytes: key version 0, value versions 0 and 1. Version 1 is flexible; its tagged
//! fields are 0 previous producer id, 1 next producer id, 2 client's transaction version, 3 next
//! producer epoch (KIP-939, never written here) and 4 last producer epoch (KAFKA-20357; Kafka
//! takes tags in order, so the number is the one it must have). A field at its default is not
//! there. Unknown tags are passed over, as are unknown versions (KIP-915).
//! Source: Kafka's `TransactionLogKey` and `TransactionLogValue`, KIP-98, KIP-890.

use std::sync::Arc;

use bytes::BufMut;

use super::{Reader, RecordFault};
use crate::coordinator::txn::state::{Metadata, State};
use crate::coordinator::txn::{Identity, TxnPartition};
use crate::ids::{ProducerEpoch, ProducerId};
use crate::wire::primitive::put_uvarint;

/// Version of the value at a finalized level of `transaction.version`.
pub(crate) fn value_version(finalized_level: i16) -> i16 {
    i16::from(finalized_level >= 1)
}

/// The key of a transactional id's records.
#[must_use]
pub fn key_bytes(transactional_id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + transactional_id.len());
    out.put_i16(KEY_VERSION);
    put_text(&mut out, transactional_id, false);
    out
}

/// The transactional id in a key.
///
/// # Errors
/// An unknown version, or bytes that are no key.
pub fn read_key(key: &[u8]) -> Result<&str, RecordFault> {
    let mut reader = Reader::new(key);
    let version = reader.i16()?;
    if version != KEY_VERSION {
        return Err(RecordFault::UnknownKeyVersion(version));
    }
    let id = reader.text(false)?;
    reader.end()?;
    Ok(id)
}

/// The value of a transactional id's record.
#[must_use]
pub fn value_bytes(metadata: &Metadata, version: i16) -> Vec<u8> {
    let flexible = version >= 1;
    let mut out = Vec::with_capacity(64 + 16 * metadata.partitions.len());
    out.put_i16(version);
    out.put_i64(metadata.producer.id.0);
    out.put_i16(metadata.producer.epoch.0);
    out.put_i32(metadata.timeout_ms);
    out.put_u8(metadata.state as u8);
    put_partitions(&mut out, metadata, flexible);
    out.put_i64(metadata.last_update_ms);
    out.put_i64(metadata.start_ms);
    if flexible {
        put_tags(&mut out, metadata);
    }
    out
}

/// What a value says.
///
/// # Errors
/// An unknown version, or bytes that are no value.
pub fn read_value(value: &[u8]) -> Result<Metadata, RecordFault> {
    let mut reader = Reader::new(value);
    let version = reader.i16()?;
    if !(0..=1).contains(&version) {
        return Err(RecordFault::UnknownValueVersion(version));
    }
    let flexible = version == 1;
    let id = ProducerId(reader.i64()?);
    let epoch = ProducerEpoch(reader.i16()?);
    if id.0 < 0 || epoch.0 < 0 {
        return Err(RecordFault::Malformed("no producer"));
    }
    let timeout_ms = reader.i32()?;
    let state = State::from_logged(reader.u8()?).ok_or(RecordFault::Malformed("no such state"))?;
    let partitions = read_partitions(&mut reader, flexible)?;
    let mut metadata = Metadata {
        partitions: if state == State::Empty { Vec::new() } else { partitions },
        start_ms: 0,
        ..Metadata::new(id, timeout_ms, reader.i64()?)
    };
    metadata.producer = Identity { id, epoch };
    metadata.state = state;
    metadata.start_ms = reader.i64()?;
    if flexible {
        reader.tags(|tag, mut field| read_tag(&mut metadata, tag, &mut field))?;
    }
    reader.end()?;
    Ok(metadata)
}

fn put_partitions(out: &mut Vec<u8>, metadata: &Metadata, flexible: bool) {
    if metadata.state == State::Empty {
        assert!(metadata.partitions.is_empty(), "an empty transaction has no partition");
        if flexible {
            out.put_u8(0);
        } else {
            out.put_i32(-1);
        }
        return;
    }
    let of_one_topic = |left: &TxnPartition, right: &TxnPartition| left.0 == right.0;
    put_count(out, metadata.partitions.chunk_by(of_one_topic).count(), flexible);
    for topic in metadata.partitions.chunk_by(of_one_topic) {
        put_text(out, &topic[0].0, flexible);
        put_count(out, topic.len(), flexible);
        for (_, partition) in topic {
            out.put_i32(*partition);
        }
        if flexible {
            out.put_u8(0);
        }
    }
}

fn read_partitions(
    reader: &mut Reader<'_>,
    flexible: bool,
) -> Result<Vec<TxnPartition>, RecordFault> {
    let mut partitions = Vec::new();
    for _ in 0..reader.count(flexible)?.unwrap_or(0) {
        let topic: Arc<str> = reader.text(flexible)?.into();
        let count = reader.count(flexible)?;
        for _ in 0..count.ok_or(RecordFault::Malformed("no partitions"))? {
            partitions.push((Arc::clone(&topic), reader.i32()?));
        }
        if flexible {
            reader.tags(|_, _| Ok(()))?;
        }
    }
    partitions.sort_unstable();
    partitions.dedup();
    Ok(partitions)
}

fn put_tags(out: &mut Vec<u8>, metadata: &Metadata) {
    let ids = [
        (PREVIOUS_PRODUCER_ID, metadata.previous_producer_id),
        (NEXT_PRODUCER_ID, metadata.next_producer_id),
    ];
    let shorts = [
        (CLIENT_TRANSACTION_VERSION, metadata.client_version, 0),
        (LAST_PRODUCER_EPOCH, metadata.last_epoch.0, -1),
    ];
    let ids = ids.into_iter().filter(|(_, id)| id.0 != -1);
    let shorts = shorts.into_iter().filter(|(_, value, default)| value != default);
    put_uvarint(out, (ids.clone().count() + shorts.clone().count()) as u32);
    for (tag, id) in ids {
        put_uvarint(out, tag);
        put_uvarint(out, 8);
        out.put_i64(id.0);
    }
    for (tag, value, _) in shorts {
        put_uvarint(out, tag);
        put_uvarint(out, 2);
        out.put_i16(value);
    }
}

fn read_tag(metadata: &mut Metadata, tag: u32, field: &mut Reader<'_>) -> Result<(), RecordFault> {
    match tag {
        PREVIOUS_PRODUCER_ID => metadata.previous_producer_id = ProducerId(field.i64()?),
        NEXT_PRODUCER_ID => metadata.next_producer_id = ProducerId(field.i64()?),
        CLIENT_TRANSACTION_VERSION => metadata.client_version = field.i16()?,
        LAST_PRODUCER_EPOCH => metadata.last_epoch = ProducerEpoch(field.i16()?),
        _ => return Ok(()),
    }
    field.end()
}

fn put_count(out: &mut Vec<u8>, count: usize, flexible: bool) {
    let count = i32::try_from(count).expect("invariant: no request has that many partitions");
    if flexible {
        put_uvarint(out, count as u32 + 1);
    } else {
        out.put_i32(count);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str, flexible: bool) {
    let length = i16::try_from(text.len()).expect("invariant: ids and topic names are that short");
    if flexible {
        put_uvarint(out, length as u32 + 1);
    } else {
        out.put_i16(length);
    }
    out.put_slice(text.as_bytes());
}

const KEY_VERSION: i16 = 0;
const PREVIOUS_PRODUCER_ID: u32 = 0;
const NEXT_PRODUCER_ID: u32 = 1;
const CLIENT_TRANSACTION_VERSION: u32 = 2;
const LAST_PRODUCER_EPOCH: u32 = 4;

#[cfg(test)]
mod tests;
