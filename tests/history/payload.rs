//! What records carry: their number, the time they were stamped with, and bytes that follow from the
//! number, so that a record that was altered is known for one that nobody sent.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::history::{UNREADABLE, Value};
use crate::random::sealed;
use crate::support::batch::{Batch, CONTROL, ReadBatch, ReadRecord, Record, TRANSACTIONAL};

/// The batch of these values. Its clock is off by `skew_ms`.
pub fn batch(
    values: &[Value],
    sender: (i64, i16, i32),
    is_transactional: bool,
    skew_ms: i64,
) -> Bytes {
    let now_ms = wall_ms() + skew_ms;
    let records = values.iter().map(|&value| Record::value(bytes_of(value, now_ms)));
    let mut batch = Batch::of(records.collect()).with_producer(sender.0, sender.1, sender.2);
    if is_transactional {
        batch = batch.transactional();
    }
    batch.base_timestamp = now_ms;
    sealed(batch)
}

/// The bytes of a value.
pub fn bytes_of(value: Value, time_ms: i64) -> Vec<u8> {
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.extend_from_slice(&time_ms.to_be_bytes());
    // Some are longer than a block of the disk.
    let padding = if value.is_multiple_of(501) { 9_000 } else { value % 83 };
    bytes.extend(std::iter::repeat_n(value as u8, padding as usize));
    bytes
}

/// The value of these bytes.
pub fn value_of(bytes: &[u8], time_ms: i64) -> Value {
    let Some(head) = bytes.first_chunk::<8>() else { return UNREADABLE };
    let value = Value::from_be_bytes(*head);
    if bytes_of(value, time_ms) == bytes { value } else { UNREADABLE }
}

/// The value of a record.
pub fn value(record: &ReadRecord) -> Value {
    value_of(record.value.as_deref().unwrap_or_default(), record.timestamp)
}

/// Records from an offset on that a reader is to see, out of what it was sent: with a list of aborted
/// transactions those are left out, as Kafka's consumer does it.
pub fn shown(
    batches: &[ReadBatch],
    from: i64,
    aborted: Option<Vec<(i64, i64)>>,
) -> Vec<(i64, Value)> {
    let hides = aborted.is_some();
    let mut waiting = aborted.unwrap_or_default();
    waiting.sort_unstable();
    let mut waiting = waiting.into_iter().peekable();
    let mut open: Vec<i64> = Vec::new();
    let mut shown = Vec::new();
    for batch in batches {
        let end = batch.base_offset + i64::from(batch.last_offset_delta);
        while let Some((_, producer)) = waiting.next_if(|(first, _)| *first <= end) {
            open.push(producer);
        }
        if batch.attributes & CONTROL != 0 {
            let marker = batch.records.first().and_then(|record| record.key.as_ref());
            if marker.is_some_and(|key| key[..4] == [0, 0, 0, 0]) {
                open.retain(|producer| *producer != batch.producer_id);
            }
            continue;
        }
        let is_open = open.contains(&batch.producer_id);
        if hides && batch.attributes & TRANSACTIONAL != 0 && is_open {
            continue;
        }
        let records = batch.records.iter().filter(|record| record.offset >= from);
        if batch.crc_is_valid {
            shown.extend(records.map(|record| (record.offset, value(record))));
        } else {
            shown.extend(records.map(|record| (record.offset, UNREADABLE)));
        }
    }
    shown
}

/// The clock of records.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}
