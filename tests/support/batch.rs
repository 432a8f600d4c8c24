//! Record batches (magic 2) by hand, every field under control, and a reader for what is fetched.
//!
//! Shares nothing with `src/batch/`, down to the checksum, so that the two can be held against
//! each other. Layout: base offset i64, length i32, leader epoch i32, magic i8, CRC-32C u32 (of
//! everything after it), attributes i16, last offset delta i32, base and max timestamp i64,
//! producer id i64, producer epoch i16, base sequence i32, record count i32, records.

use bytes::{Buf, BufMut, Bytes};

/// Bit of the attributes: timestamps are the broker's append time.
pub const LOG_APPEND_TIME: i16 = 1 << 3;
/// Bit of the attributes: part of a transaction.
pub const TRANSACTIONAL: i16 = 1 << 4;
/// Bit of the attributes: control records.
pub const CONTROL: i16 = 1 << 5;
/// Bits of the attributes that name the codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
pub const CODEC_MASK: i16 = 7;

/// A batch to be written. Fields that are `Some` override what would be computed.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base_offset: i64,
    pub length: Option<i32>,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub crc: Option<u32>,
    pub attributes: i16,
    pub last_offset_delta: Option<i32>,
    pub base_timestamp: i64,
    pub max_timestamp: Option<i64>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: Option<i32>,
    pub records: Vec<Record>,
    /// Bytes in place of the encoded records: compressed ones, or nonsense.
    pub payload: Option<Vec<u8>>,
    /// Bytes after the batch, not counted in its length.
    pub trailing: Vec<u8>,
}

/// A record to be written. Fields that are `Some` override what would be computed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    pub length: Option<i32>,
    pub attributes: i8,
    pub timestamp_delta: i64,
    /// The place in the batch unless given.
    pub offset_delta: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// In order, duplicates kept.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub header_count: Option<i32>,
}

/// A batch as read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadBatch {
    pub base_offset: i64,
    pub length: i32,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub crc_is_valid: bool,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
    /// Everything after the record count, as stored.
    pub payload: Bytes,
    /// The records, unless compressed.
    pub records: Vec<ReadRecord>,
}

/// A record as read back, with its absolute offset and timestamp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl Batch {
    /// A plain, valid batch of `records`: no producer id, codec none, offset 0.
    pub fn of(records: Vec<Record>) -> Batch {
        Batch {
            base_offset: 0,
            length: None,
            partition_leader_epoch: -1,
            magic: 2,
            crc: None,
            attributes: 0,
            last_offset_delta: None,
            base_timestamp: 1_700_000_000_000,
            max_timestamp: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: None,
            records,
            payload: None,
            trailing: Vec::new(),
        }
    }

    /// A plain, valid batch with one keyless record per value.
    pub fn of_values<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Batch {
        Batch::of(values.into_iter().map(Record::value).collect())
    }

    /// The same batch from an idempotent producer.
    pub fn with_producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Batch {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// The same batch as part of a transaction.
    pub fn transactional(mut self) -> Batch {
        self.attributes |= TRANSACTIONAL;
        self
    }

    /// The encoded records, uncompressed: input for a codec whose output goes to `payload`.
    pub fn encoded_records(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (place, record) in self.records.iter().enumerate() {
            record.put(place as i32, &mut out);
        }
        out
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> Bytes {
        let payload = self.payload.clone().unwrap_or_else(|| self.encoded_records());
        let count = self.records.len() as i32;
        let latest = self.records.iter().map(|record| record.timestamp_delta);
        let max_timestamp = self.base_timestamp + latest.max().unwrap_or(0);
        let mut covered = Vec::with_capacity(40 + payload.len());
        covered.put_i16(self.attributes);
        covered.put_i32(self.last_offset_delta.unwrap_or(count - 1));
        covered.put_i64(self.base_timestamp);
        covered.put_i64(self.max_timestamp.unwrap_or(max_timestamp));
        covered.put_i64(self.producer_id);
        covered.put_i16(self.producer_epoch);
        covered.put_i32(self.base_sequence);
        covered.put_i32(self.record_count.unwrap_or(count));
        covered.put_slice(&payload);
        let mut out = Vec::with_capacity(21 + covered.len());
        out.put_i64(self.base_offset);
        // Leader epoch, magic and checksum are nine bytes.
        out.put_i32(self.length.unwrap_or(9 + covered.len() as i32));
        out.put_i32(self.partition_leader_epoch);
        out.put_i8(self.magic);
        out.put_u32(self.crc.unwrap_or_else(|| crc32c(&covered)));
        out.put_slice(&covered);
        out.put_slice(&self.trailing);
        out.into()
    }
}

impl Record {
    /// A record with a value only.
    pub fn value(value: impl AsRef<[u8]>) -> Record {
        Record { value: Some(value.as_ref().to_vec()), ..Record::default() }
    }

    /// A record with key and value.
    pub fn keyed(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Record {
        Record { key: Some(key.as_ref().to_vec()), ..Record::value(value) }
    }

    /// The same record with one more header.
    pub fn header(mut self, name: &str, value: Option<&[u8]>) -> Record {
        self.headers.push((name.as_bytes().to_vec(), value.map(<[u8]>::to_vec)));
        self
    }

    fn put(&self, place: i32, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        body.put_i8(self.attributes);
        put_varint(&mut body, self.timestamp_delta);
        put_varint(&mut body, i64::from(self.offset_delta.unwrap_or(place)));
        put_nullable(&mut body, self.key.as_deref());
        put_nullable(&mut body, self.value.as_deref());
        let count = self.header_count.unwrap_or(self.headers.len() as i32);
        put_varint(&mut body, i64::from(count));
        for (name, value) in &self.headers {
            put_nullable(&mut body, Some(name));
            put_nullable(&mut body, value.as_deref());
        }
        put_varint(out, i64::from(self.length.unwrap_or(body.len() as i32)));
        out.put_slice(&body);
    }
}

/// The whole batches in `bytes`, a record set of a Fetch response. Panics on anything that is not
/// a well-formed batch of magic 2, a wrong checksum excepted.
pub fn read_batches(bytes: impl Into<Bytes>) -> Vec<ReadBatch> {
    let mut rest = bytes.into();
    let mut batches = Vec::new();
    while !rest.is_empty() {
        assert!(rest.len() >= 61, "{} bytes are no batch header", rest.len());
        let length = i32::from_be_bytes(rest[8..12].try_into().expect("four bytes"));
        let end = 12 + usize::try_from(length).expect("a positive batch length");
        assert!(rest.len() >= end, "a batch cut short at {} of {end}", rest.len());
        batches.push(read_batch(rest.split_to(end)));
    }
    batches
}

fn read_batch(mut batch: Bytes) -> ReadBatch {
    let covered = batch.slice(21..);
    let mut read = ReadBatch {
        base_offset: batch.get_i64(),
        length: batch.get_i32(),
        partition_leader_epoch: batch.get_i32(),
        magic: batch.get_i8(),
        crc: batch.get_u32(),
        crc_is_valid: false,
        attributes: batch.get_i16(),
        last_offset_delta: batch.get_i32(),
        base_timestamp: batch.get_i64(),
        max_timestamp: batch.get_i64(),
        producer_id: batch.get_i64(),
        producer_epoch: batch.get_i16(),
        base_sequence: batch.get_i32(),
        record_count: batch.get_i32(),
        payload: batch.clone(),
        records: Vec::new(),
    };
    assert_eq!(read.magic, 2);
    read.crc_is_valid = crc32c(&covered) == read.crc;
    if read.attributes & CODEC_MASK == 0 {
        read.records = read_records(&read, batch);
    }
    read
}

/// The records of a compressed batch, from what its payload expands to.
pub fn read_records(batch: &ReadBatch, mut plain: Bytes) -> Vec<ReadRecord> {
    let records = (0..batch.record_count).map(|_| read_record(batch, &mut plain)).collect();
    assert!(plain.is_empty(), "{} bytes after the records", plain.len());
    records
}

fn read_record(batch: &ReadBatch, rest: &mut Bytes) -> ReadRecord {
    let length = usize::try_from(get_varint(rest)).expect("a positive record length");
    let mut record = rest.split_to(length);
    let _attributes = record.get_i8();
    let timestamp_delta = get_varint(&mut record);
    let offset_delta = get_varint(&mut record);
    let key = get_nullable(&mut record);
    let value = get_nullable(&mut record);
    let headers = (0..get_varint(&mut record)).map(|_| {
        let name = get_nullable(&mut record).expect("a header name");
        (name, get_nullable(&mut record))
    });
    let headers = headers.collect();
    assert!(record.is_empty(), "bytes after a record's headers");
    let appended = batch.attributes & LOG_APPEND_TIME != 0;
    ReadRecord {
        offset: batch.base_offset + offset_delta,
        timestamp: if appended {
            batch.max_timestamp
        } else {
            batch.base_timestamp + timestamp_delta
        },
        key,
        value,
        headers,
    }
}

/// CRC-32C, a byte at a time.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ CRC_TABLE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(u32::MAX, step)
}

/// What each byte does to a checksum.
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1));
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.put_u8(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.put_u8(zigzag as u8);
}

fn get_varint(bytes: &mut Bytes) -> i64 {
    let mut zigzag = 0_u64;
    for place in 0..10 {
        let byte = bytes.get_u8();
        zigzag |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        }
    }
    panic!("a variable-length number over ten bytes");
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_varint(out, bytes.len() as i64);
            out.put_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}

fn get_nullable(bytes: &mut Bytes) -> Option<Bytes> {
    let length = get_varint(bytes);
    (length >= 0).then(|| bytes.split_to(length as usize))
}
