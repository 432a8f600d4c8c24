//! Reading and writing the records of internal topics.
//!
//! Owns the faults of a record's bytes. Must never trust a length or a count beyond the bytes that
//! are there. Which record a topic has is said beside it: [`transaction`].

use thiserror::Error;

use crate::wire::primitive::get_uvarint;

pub mod transaction;

/// Why a record of an internal topic means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecordFault {
    /// A later Kafka wrote a kind of key that this broker does not know.
    #[error("unknown key version {0}")]
    UnknownKeyVersion(i16),
    /// A later Kafka wrote a kind of value that this broker does not know.
    #[error("unknown value version {0}")]
    UnknownValueVersion(i16),
    /// Bytes that no Kafka writes.
    #[error("malformed record of an internal topic: {0}")]
    Malformed(&'static str),
}

impl RecordFault {
    /// Whether the record is to be passed over with a warning, as Kafka does; the others mean
    /// that the topic is damaged.
    #[must_use]
    pub fn is_skipped(self) -> bool {
        !matches!(self, RecordFault::Malformed(_))
    }
}

/// Reads the fields of a key or value in order.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// One byte.
    pub(crate) fn u8(&mut self) -> Result<u8, RecordFault> {
        Ok(self.array::<1>()?[0])
    }

    /// A 16-bit number.
    pub(crate) fn i16(&mut self) -> Result<i16, RecordFault> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// A 32-bit number.
    pub(crate) fn i32(&mut self) -> Result<i32, RecordFault> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A 64-bit number.
    pub(crate) fn i64(&mut self) -> Result<i64, RecordFault> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A string that is not null.
    pub(crate) fn text(&mut self, flexible: bool) -> Result<&'a str, RecordFault> {
        let length = if flexible {
            self.uvarint()?.checked_sub(1).map(|length| length as usize)
        } else {
            usize::try_from(self.i16()?).ok()
        };
        let bytes = self.take(length.ok_or(RecordFault::Malformed("a null string"))?)?;
        std::str::from_utf8(bytes).map_err(|_| RecordFault::Malformed("a string not in UTF-8"))
    }

    /// A string, `None` if it is null.
    pub(crate) fn nullable_text(&mut self) -> Result<Option<&'a str>, RecordFault> {
        let Some(length) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        let bytes = self.take(length as usize)?;
        let text = std::str::from_utf8(bytes);
        text.map(Some).map_err(|_| RecordFault::Malformed("a string not in UTF-8"))
    }

    /// Bytes that are not null.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], RecordFault> {
        let length = self.uvarint()?.checked_sub(1);
        self.take(length.ok_or(RecordFault::Malformed("null bytes"))? as usize)
    }

    /// A UUID.
    pub(crate) fn uuid(&mut self) -> Result<[u8; 16], RecordFault> {
        self.array()
    }

    /// Count of an array, `None` if it is null. Never more than there are bytes.
    pub(crate) fn count(&mut self, flexible: bool) -> Result<Option<usize>, RecordFault> {
        let count = if flexible {
            self.uvarint()?.checked_sub(1).map(|count| count as usize)
        } else {
            match self.i32()? {
                -1 => None,
                count => Some(usize::try_from(count).map_err(|_| CUT)?),
            }
        };
        if count.is_some_and(|count| count > self.rest.len()) {
            return Err(CUT);
        }
        Ok(count)
    }

    /// A section of tagged fields, each given with its tag.
    pub(crate) fn tags(
        &mut self,
        mut field: impl FnMut(u32, Reader<'a>) -> Result<(), RecordFault>,
    ) -> Result<(), RecordFault> {
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let length = self.uvarint()?;
            field(tag, Reader::new(self.take(length as usize)?))?;
        }
        Ok(())
    }

    /// Asserts that nothing is left.
    pub(crate) fn end(&self) -> Result<(), RecordFault> {
        if self.rest.is_empty() { Ok(()) } else { Err(RecordFault::Malformed("bytes left over")) }
    }

    /// An unsigned number of variable length.
    pub(crate) fn uvarint(&mut self) -> Result<u32, RecordFault> {
        let (value, length) = get_uvarint(self.rest).ok_or(CUT)?;
        self.rest = &self.rest[length..];
        Ok(value)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordFault> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CUT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordFault> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(CUT)?;
        self.rest = rest;
        Ok(*taken)
    }
}

const CUT: RecordFault = RecordFault::Malformed("cut short");
