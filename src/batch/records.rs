//! Records inside a batch: reading them from uncompressed bytes without a copy.
//!
//! Owns the record layout and its variable-length integers. Reading allocates nothing and checks
//! every length against the bytes that are there; header fields are kept in order and may repeat.
//! A null key, value or header value is any negative length, as in Kafka.
//! Source: Kafka's `DefaultRecord` and `ByteUtils`.

use bytes::Bytes;

use crate::batch::compression::inflate;
use crate::batch::header::{BatchFault, BatchHeader, HEADER_BYTES};
use crate::limits::HEADERS_PER_RECORD_MAX;

/// Why the bytes of a record are malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordFault {
    /// The bytes end inside a record, or a field ends behind its record.
    #[error("the bytes end inside a record")]
    Truncated,
    /// A variable-length integer does not end where it must.
    #[error("a variable-length integer is too long")]
    VarintTooLong,
    /// The declared size of a record is negative.
    #[error("record size {0} is negative")]
    SizeNegative(i32),
    /// A record's fields end before the record does.
    #[error("{0} bytes are left over at the end of a record")]
    SizeMismatch(u32),
    /// A negative number of headers, or more than fit or are allowed.
    #[error("invalid number of record headers {0}")]
    HeaderCount(i32),
    /// A record header without a key.
    #[error("invalid negative header key size {0}")]
    HeaderKey(i32),
    /// A record that is larger than its reader takes.
    #[error("a record of {0} bytes is more than is taken here")]
    TooLarge(u32),
    /// Bytes are left after the number of records that the batch declares.
    #[error("bytes are left after {0} records")]
    TrailingBytes(i32),
}

/// One record, borrowed from the bytes of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Unused by every version so far.
    pub attributes: i8,
    /// Counted from the batch's base timestamp, milliseconds.
    pub timestamp_delta: i64,
    /// Counted from the batch's base offset.
    pub offset_delta: i32,
    /// Key, or `None` for null.
    pub key: Option<&'a [u8]>,
    /// Value, or `None` for null.
    pub value: Option<&'a [u8]>,
    /// Headers, in the order sent.
    pub headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`; also returns the number of bytes it takes.
    ///
    /// # Errors
    /// Any [`RecordFault`] except [`RecordFault::TrailingBytes`].
    pub fn read(bytes: &'a [u8]) -> Result<(Record<'a>, usize), RecordFault> {
        let mut rest = bytes;
        let size = read_varint(&mut rest)?;
        let size = usize::try_from(size).map_err(|_| RecordFault::SizeNegative(size))?;
        let body = take(&mut rest, size)?;
        let record = Record::read_body(body)?;
        Ok((record, bytes.len() - rest.len()))
    }

    fn read_body(body: &'a [u8]) -> Result<Record<'a>, RecordFault> {
        let mut rest = body;
        let attributes = read_byte(&mut rest)?.cast_signed();
        let timestamp_delta = read_varlong(&mut rest)?;
        let offset_delta = read_varint(&mut rest)?;
        let key = read_nullable(&mut rest)?;
        let value = read_nullable(&mut rest)?;
        let count = read_varint(&mut rest)?;
        check_header_count(count, rest.len() as u64)?;
        let headers = Headers { bytes: rest, left: count };
        for _ in 0..count {
            read_header(&mut rest)?;
        }
        if !rest.is_empty() {
            return Err(size_mismatch(rest.len() as u64));
        }
        Ok(Record { attributes, timestamp_delta, offset_delta, key, value, headers })
    }
}

/// The headers of a record, already checked: key and nullable value, in order, duplicates kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    left: i32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        read_header(&mut self.bytes).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(0);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Walks the records in the uncompressed record bytes of one batch. Ends after the declared
/// number of records, or after the first fault.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    declared: i32,
    left: i32,
}

impl<'a> Records<'a> {
    /// Over the bytes after the header, inflated, of a batch that declares `record_count` records.
    #[must_use]
    pub fn new(bytes: &'a [u8], record_count: i32) -> Records<'a> {
        Records { rest: bytes, declared: record_count, left: record_count.max(0) }
    }

    fn read_next(&mut self) -> Result<Record<'a>, RecordFault> {
        let (record, used) = Record::read(self.rest)?;
        self.rest = self.rest.get(used..).unwrap_or(&[]);
        self.left -= 1;
        if self.left == 0 && !self.rest.is_empty() {
            return Err(RecordFault::TrailingBytes(self.declared));
        }
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let next = self.read_next();
        if next.is_err() {
            self.left = 0;
        }
        Some(next)
    }
}

/// The uncompressed record bytes of `batch`, a whole batch with this header, at most `limit_bytes`
/// of them. Shares the batch's memory if it is not compressed. Walk them with [`Records::new`].
///
/// # Errors
/// [`BatchFault::Short`], [`BatchFault::Codec`] or [`BatchFault::Inflate`].
pub fn decompressed_records(
    header: &BatchHeader,
    batch: &Bytes,
    limit_bytes: usize,
) -> Result<Bytes, BatchFault> {
    let total = header.total_bytes();
    if batch.len() < total || total < HEADER_BYTES {
        return Err(BatchFault::Short { have: batch.len(), need: total.max(HEADER_BYTES) });
    }
    let codec = header.compression().ok_or(BatchFault::Codec(header.compression_id()))?;
    Ok(inflate(codec, &batch.slice(HEADER_BYTES..total), limit_bytes)?)
}

/// Reads a zigzag-coded variable-length integer of at most five bytes off the front.
///
/// # Errors
/// [`RecordFault::Truncated`] or [`RecordFault::VarintTooLong`].
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Result<i32, RecordFault> {
    let first = read_byte(bytes)?;
    if first & 0x80 == 0 {
        return Ok(unzigzag32(first.into()));
    }
    let mut value = u32::from(first & 0x7F);
    let mut last = first;
    let mut shift = 7;
    while last & 0x80 != 0 {
        if shift > VARINT_SHIFT_MAX {
            return Err(RecordFault::VarintTooLong);
        }
        last = read_byte(bytes)?;
        value |= u32::from(last & 0x7F).wrapping_shl(shift);
        shift += 7;
    }
    Ok(unzigzag32(value))
}

/// Reads a zigzag-coded variable-length integer of at most ten bytes off the front.
///
/// # Errors
/// [`RecordFault::Truncated`] or [`RecordFault::VarintTooLong`].
#[inline]
pub fn read_varlong(bytes: &mut &[u8]) -> Result<i64, RecordFault> {
    let first = read_byte(bytes)?;
    if first & 0x80 == 0 {
        return Ok(unzigzag64(first.into()));
    }
    let mut value = u64::from(first & 0x7F);
    let mut last = first;
    let mut shift = 7;
    while last & 0x80 != 0 {
        if shift > VARLONG_SHIFT_MAX {
            return Err(RecordFault::VarintTooLong);
        }
        last = read_byte(bytes)?;
        value |= u64::from(last & 0x7F).wrapping_shl(shift);
        shift += 7;
    }
    Ok(unzigzag64(value))
}

/// Appends a zigzag-coded variable-length integer; the same bytes as Kafka's 32-bit and 64-bit
/// forms give for any value that fits.
pub fn write_varlong(value: i64, out: &mut Vec<u8>) {
    let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while left >= 0x80 {
        out.push((left & 0x7F) as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The fault of a record that is longer than its fields by so many bytes.
pub(super) fn size_mismatch(bytes: u64) -> RecordFault {
    RecordFault::SizeMismatch(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[inline]
pub(super) fn check_header_count(count: i32, bytes_left: u64) -> Result<(), RecordFault> {
    let fits = u64::try_from(count).is_ok_and(|n| n <= bytes_left / HEADER_ENTRY_BYTES_MIN);
    if fits && count <= HEADERS_PER_RECORD_MAX {
        Ok(())
    } else {
        Err(RecordFault::HeaderCount(count))
    }
}

#[inline]
pub(super) fn unzigzag32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[inline]
pub(super) fn unzigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[inline]
fn read_header<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), RecordFault> {
    let key_bytes = read_varint(rest)?;
    let length = usize::try_from(key_bytes).map_err(|_| RecordFault::HeaderKey(key_bytes))?;
    let key = take(rest, length)?;
    Ok((key, read_nullable(rest)?))
}

#[inline]
fn read_nullable<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordFault> {
    match usize::try_from(read_varint(rest)?) {
        Ok(length) => Ok(Some(take(rest, length)?)),
        Err(_) => Ok(None),
    }
}

#[inline]
fn read_byte(rest: &mut &[u8]) -> Result<u8, RecordFault> {
    let (&byte, after) = rest.split_first().ok_or(RecordFault::Truncated)?;
    *rest = after;
    Ok(byte)
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], RecordFault> {
    let (taken, after) = rest.split_at_checked(length).ok_or(RecordFault::Truncated)?;
    *rest = after;
    Ok(taken)
}

pub(super) const VARINT_SHIFT_MAX: u32 = 28;
pub(super) const VARLONG_SHIFT_MAX: u32 = 63;

/// The smallest record header: an empty key and a null value.
const HEADER_ENTRY_BYTES_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<i32, RecordFault> {
        read_varint(&mut &*bytes)
    }

    fn varlong(bytes: &[u8]) -> Result<i64, RecordFault> {
        read_varlong(&mut &*bytes)
    }

    #[test]
    fn variable_length_integers() {
        assert_eq!(varint(&[0x00]), Ok(0));
        assert_eq!(varint(&[0x01]), Ok(-1));
        assert_eq!(varint(&[0x02]), Ok(1));
        assert_eq!(varint(&[0x7F]), Ok(-64));
        assert_eq!(varint(&[0x80, 0x01]), Ok(64));
        assert_eq!(varint(&[0xFE, 0xFF, 0xFF, 0xFF, 0x0F]), Ok(i32::MAX));
        assert_eq!(varint(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), Ok(i32::MIN));
        assert_eq!(varint(&[]), Err(RecordFault::Truncated));
        assert_eq!(varint(&[0x80]), Err(RecordFault::Truncated));
        assert_eq!(varint(&[0x80; 6]), Err(RecordFault::VarintTooLong));
        assert_eq!(varlong(&[0x01]), Ok(-1));
        let longest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(varlong(&longest), Ok(i64::MIN));
        assert_eq!(varlong(&[0x80; 11]), Err(RecordFault::VarintTooLong));
        assert_eq!(varlong(&[0x80; 9]), Err(RecordFault::Truncated));
    }

    #[test]
    fn written_integers_are_read_back() {
        for value in [0, -1, 1, 63, 64, -65, 1 << 40, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            write_varlong(value, &mut bytes);
            assert_eq!(varlong(&bytes), Ok(value));
        }
        let mut bytes = Vec::new();
        write_varlong(i64::from(i32::MIN), &mut bytes);
        assert_eq!(bytes, [0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
    }

    /// One record by hand: key "k", value null, headers ("h", "1"), ("h", null), ("", "").
    const RECORD: [u8; 17] = [
        0x20, 0x00, 0x04, 0x06, 0x02, b'k', 0x01, 0x06, 0x02, b'h', 0x02, b'1', 0x02, b'h', 0x01,
        0x00, 0x00,
    ];

    #[test]
    fn a_record_keeps_duplicate_headers_in_order() {
        let (record, used) = Record::read(&RECORD[..]).expect("a good record");
        assert_eq!(used, 17);
        assert_eq!((record.timestamp_delta, record.offset_delta), (2, 3));
        assert_eq!((record.key, record.value), (Some(&b"k"[..]), None));
        assert_eq!(record.headers.len(), 3);
        let headers: Vec<_> = record.headers.collect();
        assert_eq!(
            headers,
            [(&b"h"[..], Some(&b"1"[..])), (&b"h"[..], None), (&b""[..], Some(&b""[..]))]
        );
    }

    #[test]
    fn malformed_records_are_named() {
        let check = |change: fn(&mut Vec<u8>), expected: RecordFault| {
            let mut bytes = RECORD.to_vec();
            change(&mut bytes);
            assert_eq!(Record::read(&bytes).err(), Some(expected));
        };
        check(|b| b.truncate(16), RecordFault::Truncated);
        check(|b| b.clear(), RecordFault::Truncated);
        check(|b| b[0] = 0x01, RecordFault::SizeNegative(-1));
        check(|b| b[0] = 0x00, RecordFault::Truncated);
        check(|b| b[0] = 0x1E, RecordFault::Truncated);
        check(
            |b| {
                b[0] = 0x22;
                b.push(0);
            },
            RecordFault::SizeMismatch(1),
        );
        check(|b| b[4] = 0x7E, RecordFault::Truncated);
        check(|b| b[7] = 0x05, RecordFault::HeaderCount(-3));
        check(|b| b[7] = 0x7E, RecordFault::HeaderCount(63));
        check(|b| b[8] = 0x03, RecordFault::HeaderKey(-2));
    }

    #[test]
    fn a_walk_ends_after_the_count_or_the_first_fault() {
        let twice = [RECORD, RECORD].concat();
        assert_eq!(Records::new(&twice, 2).filter(Result::is_ok).count(), 2);
        let walked: Vec<_> = Records::new(&twice, 1).collect();
        assert_eq!(walked, [Err(RecordFault::TrailingBytes(1))]);
        let walked: Vec<_> = Records::new(&twice, 3).map(|r| r.err()).collect();
        assert_eq!(walked, [None, None, Some(RecordFault::Truncated)]);
        assert_eq!(Records::new(&twice, 0).count(), 0);
        assert_eq!(Records::new(&twice, -1).count(), 0);
    }
}
