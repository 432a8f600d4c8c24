//! Records seen through a stream: finds each record's numbers while inflated bytes pass by.
//!
//! Owns a position inside a record, so that validation needs neither the whole inflated batch nor
//! a whole record in memory, and may stop at any byte. Must find exactly the faults that
//! [`Record::read`] finds. Source: Kafka's `DefaultRecord.readPartiallyFrom`.

use crate::batch::records::{
    Record, RecordFault, VARINT_SHIFT_MAX, VARLONG_SHIFT_MAX, check_header_count, size_mismatch,
    unzigzag32, unzigzag64,
};

/// What validation needs of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ScannedRecord {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    /// Negative for null.
    pub key_bytes: i32,
    /// Negative for null.
    pub value_bytes: i32,
}

impl From<&Record<'_>> for ScannedRecord {
    fn from(record: &Record<'_>) -> ScannedRecord {
        let length = |field: Option<&[u8]>| {
            field.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX))
        };
        ScannedRecord {
            offset_delta: record.offset_delta,
            timestamp_delta: record.timestamp_delta,
            key_bytes: length(record.key),
            value_bytes: length(record.value),
        }
    }
}

/// The next thing expected. Variants with "Bytes" pass over that many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Size,
    Attributes,
    TimestampDelta,
    OffsetDelta,
    KeySize,
    KeyBytes(u64),
    ValueSize,
    ValueBytes(u64),
    HeaderCount,
    HeaderKeySize,
    HeaderKeyBytes(u64),
    HeaderValueSize,
    HeaderValueBytes(u64),
}

/// Takes chunks of record bytes in order and gives out records as they end.
pub(super) struct StreamScanner {
    stage: Stage,
    value: u64,
    shift: u32,
    body_left: u64,
    headers_left: i32,
    current: ScannedRecord,
}

impl StreamScanner {
    pub fn new() -> StreamScanner {
        StreamScanner {
            stage: Stage::Size,
            value: 0,
            shift: 0,
            body_left: 0,
            headers_left: 0,
            current: ScannedRecord::default(),
        }
    }

    /// Whether the bytes so far end between two records.
    pub fn is_between_records(&self) -> bool {
        self.stage == Stage::Size && self.shift == 0
    }

    /// Bytes of the current record that have not passed yet.
    pub fn body_left(&self) -> u64 {
        self.body_left
    }

    /// Takes bytes off `chunk` until a record ends; `None` when the chunk is used up first.
    pub fn next_record(&mut self, chunk: &mut &[u8]) -> Result<Option<ScannedRecord>, RecordFault> {
        if self.is_between_records()
            && let Some(record) = read_whole(chunk)?
        {
            return Ok(Some(record));
        }
        while !chunk.is_empty() {
            match self.stage {
                Stage::KeyBytes(left)
                | Stage::ValueBytes(left)
                | Stage::HeaderKeyBytes(left)
                | Stage::HeaderValueBytes(left) => self.pass(left, chunk),
                _ => {
                    if self.take_byte(chunk)? {
                        self.stage = Stage::Size;
                        return Ok(Some(self.current));
                    }
                }
            }
            if self.ends_with_header_value()? {
                return Ok(Some(self.current));
            }
        }
        Ok(None)
    }

    fn pass(&mut self, left: u64, chunk: &mut &[u8]) {
        let passed = left.min(chunk.len() as u64);
        *chunk = chunk.get(passed as usize..).unwrap_or(&[]);
        self.body_left -= passed;
        self.stage = self.stage.with_left(left - passed);
    }

    /// Takes one byte of a number; says whether the record ended with it.
    fn take_byte(&mut self, chunk: &mut &[u8]) -> Result<bool, RecordFault> {
        let Some((&byte, after)) = chunk.split_first() else {
            return Ok(false);
        };
        if self.stage != Stage::Size {
            if self.body_left == 0 {
                return Err(RecordFault::Truncated);
            }
            self.body_left -= 1;
        }
        *chunk = after;
        if self.stage == Stage::Attributes {
            self.stage = Stage::TimestampDelta;
            return Ok(false);
        }
        let shift_max = match self.stage {
            Stage::TimestampDelta => VARLONG_SHIFT_MAX,
            _ => VARINT_SHIFT_MAX,
        };
        self.value |= u64::from(byte & 0x7F).wrapping_shl(self.shift);
        if byte & 0x80 != 0 {
            self.shift += 7;
            return if self.shift > shift_max {
                Err(RecordFault::VarintTooLong)
            } else {
                Ok(false)
            };
        }
        let value = std::mem::take(&mut self.value);
        self.shift = 0;
        self.take_number(value)
    }

    fn take_number(&mut self, raw: u64) -> Result<bool, RecordFault> {
        let number = unzigzag32(raw as u32);
        match self.stage {
            Stage::Size => {
                self.body_left =
                    u64::try_from(number).map_err(|_| RecordFault::SizeNegative(number))?;
                self.current = ScannedRecord::default();
                self.stage = Stage::Attributes;
            }
            Stage::TimestampDelta => {
                self.current.timestamp_delta = unzigzag64(raw);
                self.stage = Stage::OffsetDelta;
            }
            Stage::OffsetDelta => {
                self.current.offset_delta = number;
                self.stage = Stage::KeySize;
            }
            Stage::KeySize => {
                self.current.key_bytes = number;
                self.stage = Stage::KeyBytes(self.field_size(number)?).settled();
            }
            Stage::ValueSize => {
                self.current.value_bytes = number;
                self.stage = Stage::ValueBytes(self.field_size(number)?).settled();
            }
            Stage::HeaderCount => {
                check_header_count(number, self.body_left)?;
                self.headers_left = number;
                return self.after_header();
            }
            Stage::HeaderKeySize => {
                if number < 0 {
                    return Err(RecordFault::HeaderKey(number));
                }
                self.stage = Stage::HeaderKeyBytes(self.field_size(number)?).settled();
            }
            Stage::HeaderValueSize => {
                self.stage = Stage::HeaderValueBytes(self.field_size(number)?);
            }
            Stage::Attributes
            | Stage::KeyBytes(_)
            | Stage::ValueBytes(_)
            | Stage::HeaderKeyBytes(_)
            | Stage::HeaderValueBytes(_) => {}
        }
        Ok(false)
    }

    /// Moves on once a header's value has passed; says whether the record ended with it.
    fn ends_with_header_value(&mut self) -> Result<bool, RecordFault> {
        if self.stage != Stage::HeaderValueBytes(0) {
            return Ok(false);
        }
        self.headers_left -= 1;
        self.after_header()
    }

    fn after_header(&mut self) -> Result<bool, RecordFault> {
        if self.headers_left > 0 {
            self.stage = Stage::HeaderKeySize;
            return Ok(false);
        }
        if self.body_left > 0 {
            return Err(size_mismatch(self.body_left));
        }
        self.stage = Stage::Size;
        Ok(true)
    }

    fn field_size(&self, size: i32) -> Result<u64, RecordFault> {
        let size = u64::try_from(size).unwrap_or(0);
        if size > self.body_left {
            return Err(RecordFault::Truncated);
        }
        Ok(size)
    }
}

impl Stage {
    fn with_left(self, left: u64) -> Stage {
        match self {
            Stage::KeyBytes(_) => Stage::KeyBytes(left),
            Stage::ValueBytes(_) => Stage::ValueBytes(left),
            Stage::HeaderKeyBytes(_) => Stage::HeaderKeyBytes(left),
            Stage::HeaderValueBytes(_) => Stage::HeaderValueBytes(left),
            other => other,
        }
        .settled()
    }

    /// A field that has passed gives way to the next; the end of a header value is the scanner's.
    fn settled(self) -> Stage {
        match self {
            Stage::KeyBytes(0) => Stage::ValueSize,
            Stage::ValueBytes(0) => Stage::HeaderCount,
            Stage::HeaderKeyBytes(0) => Stage::HeaderValueSize,
            other => other,
        }
    }
}

/// The record at the front of `chunk`, if all of it is there.
fn read_whole(chunk: &mut &[u8]) -> Result<Option<ScannedRecord>, RecordFault> {
    let mut rest = *chunk;
    let Ok(size) = crate::batch::records::read_varint(&mut rest) else {
        return Ok(None);
    };
    if usize::try_from(size).is_ok_and(|size| size > rest.len()) {
        return Ok(None);
    }
    let (record, used) = Record::read(chunk)?;
    *chunk = chunk.get(used..).unwrap_or(&[]);
    Ok(Some(ScannedRecord::from(&record)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(bytes: &[u8], chunk_bytes: usize) -> Result<Vec<ScannedRecord>, RecordFault> {
        let mut scanner = StreamScanner::new();
        let mut records = Vec::new();
        for mut chunk in bytes.chunks(chunk_bytes) {
            while !chunk.is_empty() {
                records.extend(scanner.next_record(&mut chunk)?);
            }
        }
        if scanner.is_between_records() { Ok(records) } else { Err(RecordFault::Truncated) }
    }

    fn read(bytes: &[u8]) -> Result<Vec<ScannedRecord>, RecordFault> {
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let (record, used) = Record::read(&bytes[at..])?;
            records.push(ScannedRecord::from(&record));
            at += used;
        }
        Ok(records)
    }

    /// Three records: with headers, with nulls, empty.
    const RECORDS: &[u8] = &[
        0x20, 0x00, 0x04, 0x06, 0x02, b'k', 0x01, 0x06, 0x02, b'h', 0x02, b'1', 0x02, b'h', 0x01,
        0x00, 0x00, // key, no value, three headers
        0x0C, 0x00, 0x00, 0x00, 0x01, 0x01, 0x00, // no key, no value
        0x16, 0x00, 0x01, 0x02, 0x00, 0x0A, b'v', b'a', b'l', b'u', b'e', 0x00, // empty key
    ];

    #[test]
    fn every_chunk_size_finds_the_same_records() {
        let expected = read(RECORDS).expect("good records");
        assert_eq!(expected.len(), 3);
        for chunk_bytes in 1..=RECORDS.len() {
            assert_eq!(scan(RECORDS, chunk_bytes), Ok(expected.clone()));
        }
    }

    proptest! {
        /// Whatever happens to the bytes, stream and slice agree on the records, and on whether
        /// there is a fault.
        #[test]
        fn stream_and_slice_agree_on_damaged_records(
            changes in proptest::collection::vec((0..RECORDS.len(), any::<u8>()), 0..4),
            cut in 0..=RECORDS.len(),
            chunk_bytes in 1_usize..40,
        ) {
            let mut bytes = RECORDS.to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(cut);
            let by_slice = read(&bytes);
            let by_stream = scan(&bytes, chunk_bytes);
            prop_assert_eq!(by_slice.is_ok(), by_stream.is_ok());
            if let (Ok(by_slice), Ok(by_stream)) = (by_slice, by_stream) {
                let null = |n: i32| n.max(-1);
                let same: Vec<_> = by_stream
                    .iter()
                    .map(|r| ScannedRecord {
                        key_bytes: null(r.key_bytes),
                        value_bytes: null(r.value_bytes),
                        ..*r
                    })
                    .collect();
                prop_assert_eq!(by_slice, same);
            }
        }
    }
}
