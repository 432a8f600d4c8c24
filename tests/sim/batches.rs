//! Batches as the test's producers send them, and logs as the checker wants them.
//!
//! Owns the record id in every value, which says who sent a record. Must never pass bytes that the
//! batch format does not allow: a log that cannot be decoded is a finding.

use bytes::Bytes;

use ringlog::batch::compression::CompressionTarget;
use ringlog::batch::{
    BatchBuilder, BatchHeader, HEADER_BYTES, Records, ValidBatch, ValidateRules, validate,
};
use ringlog::config::TopicConfig;
use ringlog::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use ringlog::sim::Random;
use ringlog::sim::checker::{Entry, RecordId};

/// Who sends a batch: producer id and base sequence.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub id: ProducerId,
    pub base_sequence: i32,
}

/// A batch of these records, each padded; `None` if the topic does not take one as large.
pub fn batch(
    config: &TopicConfig,
    sender: Option<Sender>,
    records: &[RecordId],
    value_bytes: usize,
    now_ms: i64,
    random: &mut Random,
) -> Option<ValidBatch> {
    let mut builder = BatchBuilder::new(CompressionTarget::Producer);
    if let Some(sender) = sender {
        builder = builder.producer(sender.id, ProducerEpoch(0), sender.base_sequence);
    }
    for record in records {
        let mut value = record.0.to_be_bytes().to_vec();
        let (end, filler) = (value.len() + value_bytes, random.next());
        // No two stretches of it are alike: a page that is lost or moved shows.
        for index in 0..value_bytes.div_ceil(8) as u64 {
            value.extend_from_slice(
                &filler.rotate_left((index % 57) as u32).wrapping_add(index).to_ne_bytes(),
            );
        }
        value.truncate(end);
        builder.push(now_ms - random.below(5_000) as i64, None, Some(&value), &[]);
    }
    validate(Some(Bytes::from(builder.finish())), &rules(config), now_ms).ok()
}

/// What a broker asks of batches for a topic.
pub fn rules(config: &TopicConfig) -> ValidateRules {
    ValidateRules {
        produce_version: 9,
        timestamp_type: config.timestamp_type,
        before_max_ms: config.timestamp_before_max_ms,
        after_max_ms: config.timestamp_after_max_ms,
        compression: config.compression,
        max_message_bytes: config.max_message_bytes,
        segment_bytes: config.segment_bytes as usize,
        keys_required: config.cleanup.compact,
    }
}

/// A decoded piece of a log.
#[derive(Default, Debug)]
pub struct Decoded {
    pub entries: Vec<(Offset, Entry)>,
    /// Leader epoch of each batch, with its base offset.
    pub epochs: Vec<(Offset, LeaderEpoch)>,
    /// Offset after the last batch.
    pub end: Option<Offset>,
}

/// Decodes whole batches.
pub fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    let mut decoded = Decoded::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = BatchHeader::read_verified(rest)
            .map_err(|fault| format!("a batch at byte {}: {fault:?}", bytes.len() - rest.len()))?;
        let (batch, after) = rest.split_at(header.total_bytes());
        decoded.epochs.push((header.base_offset, header.leader_epoch));
        for record in Records::new(&batch[HEADER_BYTES..], header.record_count) {
            let record = record.map_err(|fault| format!("a record: {fault}"))?;
            let value = record.value.unwrap_or_default();
            let id = value.first_chunk::<8>().ok_or("a record without an id")?;
            let offset = header.record_offset(record.offset_delta);
            decoded.entries.push((offset, Entry::Record(RecordId(u64::from_be_bytes(*id)))));
        }
        decoded.end = Some(header.next_offset());
        rest = after;
    }
    Ok(decoded)
}
