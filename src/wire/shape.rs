//! Request bodies described as data, and the walker that checks a body against its description.
//!
//! Owns the pre-check that makes decoding safe: the codec library reserves memory by the counts it
//! reads, so a five-byte body could abort the process. After [`check`] every count is covered by
//! bytes that are there, every length ends within the body, nothing trails, tags ascend, and the
//! totals are under the caps of the API. Must never allocate, recurse deeper than a description
//! does, or read outside the body. Text is not checked for UTF-8 here: decoding refuses it.
//! Source: Kafka's message generator (field versions, nullability, tagged fields); KIP-482.

use super::primitive::{UVARINT_BYTES_MAX, get_uvarint};
use crate::limits::REQUEST_UNKNOWN_TAGS_MAX;

/// Body of one API's requests over all versions.
#[derive(Debug)]
pub struct Shape {
    /// The outermost structure.
    pub body: Structure,
    /// First version with compact lengths and tagged fields.
    pub flexible_from: i16,
    /// Most array elements in one request, over all its arrays.
    pub elements_max: usize,
}

/// Fields in wire order, then, in flexible versions, tagged ones.
#[derive(Debug)]
pub struct Structure {
    /// Ordinary fields.
    pub fields: &'static [Field],
    /// Tagged fields known in some version, by rising tag.
    pub tags: &'static [Tag],
}

/// One ordinary field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    kind: Kind,
    since: i16,
    until: i16,
    nullable_from: i16,
}

/// One tagged field.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    number: u32,
    field: Field,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// So many bytes: numbers, booleans, UUIDs.
    Fixed(usize),
    /// A string.
    Text,
    /// Bytes or records.
    Blob,
    /// An array of non-null elements.
    Array(&'static Kind),
    /// A structure; if nullable, behind a presence byte.
    Nested(&'static Structure),
}

/// Why a body does not fit its description, and at which byte of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason:?} at byte {position} of the request body")]
pub struct ShapeFault {
    /// What is wrong.
    pub reason: Reason,
    /// Where, in bytes from the start of the body.
    pub position: usize,
}

/// What is wrong with a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A field, string or array goes past the end.
    Truncated,
    /// A negative length or count other than null, or a bad presence byte.
    NegativeLength,
    /// Null where the version does not allow it.
    UnexpectedNull,
    /// More array elements than the remaining bytes can hold.
    CountBeyondBytes,
    /// More array elements than the API's cap.
    TooManyElements,
    /// A variable-length number over 32 bits.
    BadVariableLength,
    /// Tags do not ascend.
    TagOrder,
    /// A known tag that this version does not have.
    TagVersion,
    /// A known tag whose content is longer or shorter than its size says.
    TagSize,
    /// More unknown tags than any request may carry.
    TooManyTags,
    /// A string longer than any field of the protocol may be.
    TextTooLong,
    /// Bytes after the end of the body.
    Trailing,
}

impl Field {
    /// So many bytes.
    #[must_use]
    pub const fn fixed(size: usize) -> Field {
        Field::of(Kind::Fixed(size))
    }

    /// A string.
    #[must_use]
    pub const fn text() -> Field {
        Field::of(Kind::Text)
    }

    /// Bytes or records.
    #[must_use]
    pub const fn blob() -> Field {
        Field::of(Kind::Blob)
    }

    /// An array.
    #[must_use]
    pub const fn array(element: &'static Kind) -> Field {
        Field::of(Kind::Array(element))
    }

    /// A structure.
    #[must_use]
    pub const fn nested(structure: &'static Structure) -> Field {
        Field::of(Kind::Nested(structure))
    }

    /// Absent before `version`.
    #[must_use]
    pub const fn since(mut self, version: i16) -> Field {
        self.since = version;
        self
    }

    /// Absent after `version`.
    #[must_use]
    pub const fn until(mut self, version: i16) -> Field {
        self.until = version;
        self
    }

    /// May be null from `version` on.
    #[must_use]
    pub const fn nullable(mut self, version: i16) -> Field {
        self.nullable_from = version;
        self
    }

    /// The same as a tagged field.
    #[must_use]
    pub const fn tagged(self, number: u32) -> Tag {
        Tag { number, field: self }
    }

    const fn of(kind: Kind) -> Field {
        Field { kind, since: 0, until: i16::MAX, nullable_from: i16::MAX }
    }

    /// What it holds.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether this version has it.
    #[must_use]
    pub fn is_present(&self, version: i16) -> bool {
        (self.since..=self.until).contains(&version)
    }

    /// Whether it may be null in this version.
    #[must_use]
    pub fn is_nullable(&self, version: i16) -> bool {
        version >= self.nullable_from
    }
}

impl Tag {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What it holds.
    #[must_use]
    pub fn field(&self) -> Field {
        self.field
    }
}

/// Checks a request body of `version` against `shape`.
///
/// # Errors
/// See [`Reason`]. The connection is to be closed.
pub fn check(shape: &Shape, version: i16, body: &[u8]) -> Result<(), ShapeFault> {
    check_within(shape, version, body, usize::MAX).map(|_| ())
}

/// [`check`] with a cap of its own on array elements beside the API's; returns how many there are.
///
/// # Errors
/// As [`check`].
pub fn check_within(
    shape: &Shape,
    version: i16,
    body: &[u8],
    elements_max: usize,
) -> Result<usize, ShapeFault> {
    let elements_max = shape.elements_max.min(elements_max);
    let mut walk = Walk {
        body,
        position: 0,
        end: body.len(),
        version,
        flexible: version >= shape.flexible_from,
        elements_left: elements_max,
        unknown_tags_left: REQUEST_UNKNOWN_TAGS_MAX,
    };
    walk.structure(&shape.body)?;
    if walk.position < walk.end {
        return walk.fault(Reason::Trailing);
    }
    Ok(elements_max - walk.elements_left)
}

/// Invariant: `position <= end <= body.len()`.
struct Walk<'a> {
    body: &'a [u8],
    position: usize,
    end: usize,
    version: i16,
    flexible: bool,
    elements_left: usize,
    unknown_tags_left: usize,
}

impl Walk<'_> {
    fn structure(&mut self, structure: &Structure) -> Result<(), ShapeFault> {
        for field in structure.fields {
            if field.is_present(self.version) {
                self.field(field)?;
            }
        }
        if self.flexible {
            self.tags(structure.tags)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &Field) -> Result<(), ShapeFault> {
        let nullable = self.version >= field.nullable_from;
        match &field.kind {
            Kind::Nested(structure) if nullable => match self.take::<1>()? {
                [1] => self.structure(structure),
                [0xff] => Ok(()),
                _ => self.fault(Reason::NegativeLength),
            },
            kind => self.value(kind, nullable),
        }
    }

    fn value(&mut self, kind: &Kind, nullable: bool) -> Result<(), ShapeFault> {
        match kind {
            Kind::Fixed(size) => self.skip(*size),
            Kind::Nested(structure) => self.structure(structure),
            Kind::Text | Kind::Blob => match self.length(matches!(kind, Kind::Text))? {
                // A compact length could say more; Kafka's reader refuses it too.
                Some(length) if matches!(kind, Kind::Text) && length > TEXT_BYTES_MAX => {
                    self.fault(Reason::TextTooLong)
                }
                Some(length) => self.skip(length),
                None if nullable => Ok(()),
                None => self.fault(Reason::UnexpectedNull),
            },
            Kind::Array(element) => match self.length(false)? {
                Some(count) => self.array(element, count),
                None if nullable => Ok(()),
                None => self.fault(Reason::UnexpectedNull),
            },
        }
    }

    fn array(&mut self, element: &Kind, count: usize) -> Result<(), ShapeFault> {
        // An element of no bytes would make the bound meaningless; none is described, and one
        // byte each is required all the same.
        let element_bytes = self.min_bytes(element).max(1);
        if count > (self.end - self.position) / element_bytes {
            return self.fault(Reason::CountBeyondBytes);
        }
        if count > self.elements_left {
            return self.fault(Reason::TooManyElements);
        }
        self.elements_left -= count;
        if let Kind::Fixed(size) = element {
            return self.skip(count * size);
        }
        for _ in 0..count {
            self.value(element, false)?;
        }
        Ok(())
    }

    fn tags(&mut self, known: &[Tag]) -> Result<(), ShapeFault> {
        let count = self.uvarint()?;
        let mut previous = None;
        for _ in 0..count {
            let number = self.uvarint()?;
            if previous.is_some_and(|previous| number <= previous) {
                return self.fault(Reason::TagOrder);
            }
            previous = Some(number);
            let size = self.uvarint()? as usize;
            if size > self.end - self.position {
                return self.fault(Reason::Truncated);
            }
            match known.iter().find(|tag| tag.number == number) {
                Some(tag) if tag.field.is_present(self.version) => self.known_tag(tag, size)?,
                Some(_) => return self.fault(Reason::TagVersion),
                None => {
                    let Some(left) = self.unknown_tags_left.checked_sub(1) else {
                        return self.fault(Reason::TooManyTags);
                    };
                    self.unknown_tags_left = left;
                    self.skip(size)?;
                }
            }
        }
        Ok(())
    }

    /// The codec ignores the size of a tag it knows, so the content must fill it exactly.
    fn known_tag(&mut self, tag: &Tag, size: usize) -> Result<(), ShapeFault> {
        let outer_end = self.end;
        self.end = self.position + size;
        let walked = self.field(&tag.field);
        let filled = self.position == self.end;
        self.end = outer_end;
        match walked {
            Err(fault) if fault.reason == Reason::Truncated => self.fault(Reason::TagSize),
            Err(fault) => Err(fault),
            Ok(()) if !filled => self.fault(Reason::TagSize),
            Ok(()) => Ok(()),
        }
    }

    /// A length or count; `None` is null.
    fn length(&mut self, is_text: bool) -> Result<Option<usize>, ShapeFault> {
        let signed = if self.flexible {
            i64::from(self.uvarint()?) - 1
        } else if is_text {
            i64::from(i16::from_be_bytes(self.take()?))
        } else {
            i64::from(i32::from_be_bytes(self.take()?))
        };
        match usize::try_from(signed) {
            Ok(length) => Ok(Some(length)),
            Err(_) if signed == -1 => Ok(None),
            Err(_) => self.fault(Reason::NegativeLength),
        }
    }

    /// The fewest bytes a value can take in this version.
    fn min_bytes(&self, kind: &Kind) -> usize {
        match kind {
            Kind::Fixed(size) => *size,
            Kind::Text | Kind::Blob | Kind::Array(_) if self.flexible => 1,
            Kind::Text => 2,
            Kind::Blob | Kind::Array(_) => 4,
            Kind::Nested(structure) => {
                let fields = structure.fields.iter();
                let present = fields.filter(|field| field.is_present(self.version));
                present
                    .map(|field| match field.kind {
                        Kind::Nested(_) if self.version >= field.nullable_from => 1,
                        _ => self.min_bytes(&field.kind),
                    })
                    .sum::<usize>()
                    + usize::from(self.flexible)
            }
        }
    }

    fn uvarint(&mut self) -> Result<u32, ShapeFault> {
        let rest = self.body.get(self.position..self.end).unwrap_or_default();
        match get_uvarint(rest) {
            Some((value, length)) => {
                self.position += length;
                Ok(value)
            }
            None if rest.len() >= UVARINT_BYTES_MAX => self.fault(Reason::BadVariableLength),
            None => self.fault(Reason::Truncated),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ShapeFault> {
        let rest = self.body.get(self.position..self.end).unwrap_or_default();
        match rest.first_chunk::<N>() {
            Some(bytes) => {
                self.position += N;
                Ok(*bytes)
            }
            None => self.fault(Reason::Truncated),
        }
    }

    fn skip(&mut self, length: usize) -> Result<(), ShapeFault> {
        if length > self.end - self.position {
            return self.fault(Reason::Truncated);
        }
        self.position += length;
        Ok(())
    }

    fn fault<T>(&self, reason: Reason) -> Result<T, ShapeFault> {
        Err(ShapeFault { reason, position: self.position })
    }
}

const TEXT_BYTES_MAX: usize = i16::MAX as usize;
