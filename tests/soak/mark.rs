//! Records that say what they are: a mark in a header, and a value that follows from the mark.

use std::io::{Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::random::{Random, sealed};
use crate::support::batch::{Batch, CODEC_MASK, ReadBatch, ReadRecord, Record, read_records};

/// Which record it is: who wrote it, in which transaction (0: none), and a number that rises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Mark {
    pub writer: u32,
    pub transaction: u64,
    pub number: u64,
}

/// A record to be written.
#[derive(Clone, Debug)]
pub struct Written {
    pub mark: Mark,
    pub key: Option<String>,
    /// No value: of a compacted topic, the key is to go.
    pub tombstone: bool,
}

impl Mark {
    fn bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.writer.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[12..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    fn value(self) -> Vec<u8> {
        let mut random = Random::new(self.number ^ (u64::from(self.writer) << 48));
        let length = random.between(20, 900);
        let mut value = vec![0; length];
        value.chunks_mut(8).for_each(|piece| {
            // Half of it compresses.
            piece.fill((random.next() % 7) as u8);
        });
        value
    }

    /// The mark of a record that was read. Panics unless its value is the one that was written.
    pub fn of(record: &ReadRecord) -> Mark {
        let (name, bytes) = record.headers.first().expect("a header");
        assert_eq!(&name[..], NAME.as_bytes());
        let bytes = bytes.as_ref().expect("a mark");
        let mark = Mark {
            writer: u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")),
            transaction: u64::from_be_bytes(bytes[4..12].try_into().expect("eight bytes")),
            number: u64::from_be_bytes(bytes[12..].try_into().expect("eight bytes")),
        };
        let expected = mark.value();
        let same = record.value.as_ref().is_none_or(|value| value[..] == expected[..]);
        assert!(same, "{mark:?} at {} has another value", record.offset);
        mark
    }
}

/// A batch of these records, of a codec that belongs to the writer, with its time in ms.
pub fn batch(records: &[Written], sender: (i64, i16, i32), transactional: bool) -> (Bytes, i64) {
    let set = records.iter().map(|written| {
        let record = Record {
            key: written.key.as_ref().map(|key| key.as_bytes().to_vec()),
            value: (!written.tombstone).then(|| written.mark.value()),
            ..Record::default()
        };
        record.header(NAME, Some(&written.mark.bytes()))
    });
    let mut batch = Batch::of(set.collect()).with_producer(sender.0, sender.1, sender.2);
    if transactional {
        batch = batch.transactional();
    }
    let now_ms = wall_ms();
    batch.base_timestamp = now_ms;
    let codec = records[0].mark.writer % 3;
    let plain = batch.encoded_records();
    match codec {
        1 => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&plain).expect("memory");
            batch.payload = Some(gzip.finish().expect("memory"));
            batch.attributes |= 1;
        }
        2 => {
            batch.payload = Some(zstd::encode_all(&plain[..], 1).expect("memory"));
            batch.attributes |= 4;
        }
        _ => {}
    }
    (sealed(batch), now_ms)
}

/// The records of a batch, whatever its codec.
pub fn records(batch: &ReadBatch) -> Vec<ReadRecord> {
    let plain = match batch.attributes & CODEC_MASK {
        0 => return batch.records.clone(),
        1 => {
            let mut plain = Vec::new();
            let mut gzip = flate2::read::GzDecoder::new(&batch.payload[..]);
            gzip.read_to_end(&mut plain).expect("gzip");
            plain
        }
        4 => zstd::decode_all(&batch.payload[..]).expect("zstd"),
        other => panic!("codec {other} was never sent"),
    };
    read_records(batch, plain.into())
}

/// The clock that records are stamped with.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}

const NAME: &str = "mark";
