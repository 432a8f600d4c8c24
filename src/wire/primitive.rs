//! Primitive wire types as the hand-written encoders need them, in both encodings.
//!
//! Owns variable-length numbers, strings, counts. Must never write a length that does not fit:
//! it is an [`EncodeFault`] instead.
//! Source: the Kafka protocol guide, "Protocol Primitive Types"; KIP-482.

use bytes::BufMut;

use super::encode::EncodeFault;

/// Reads an unsigned variable-length number: the value and how many bytes it took. `None` if it
/// is cut short or over 32 bits.
pub(crate) fn get_uvarint(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value: u32 = 0;
    for (place, &byte) in bytes.iter().take(UVARINT_BYTES_MAX).enumerate() {
        let bits = u32::from(byte & 0x7f);
        if place == UVARINT_BYTES_MAX - 1 && byte > 0x0f {
            return None;
        }
        value |= bits << (7 * place);
        if byte < 0x80 {
            return Some((value, place + 1));
        }
    }
    None
}

/// Writes an unsigned variable-length number.
pub(crate) fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Writes the count of an array, or the length of bytes: 32 bits, or compact as `count + 1`.
pub(super) fn put_count(
    out: &mut Vec<u8>,
    count: usize,
    flexible: bool,
) -> Result<(), EncodeFault> {
    let count = i32::try_from(count).map_err(|_| EncodeFault::TooLarge)?;
    if flexible {
        put_uvarint(out, count as u32 + 1);
    } else {
        out.put_i32(count);
    }
    Ok(())
}

/// Writes the count of a null array.
pub(super) fn put_null_count(out: &mut Vec<u8>, flexible: bool) {
    if flexible {
        out.put_u8(0);
    } else {
        out.put_i32(-1);
    }
}

/// Writes a string.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str, flexible: bool) -> Result<(), EncodeFault> {
    // Compact strings could be longer, but no field of the protocol may be.
    let length = i16::try_from(text.len()).map_err(|_| EncodeFault::TooLarge)?;
    if flexible {
        put_uvarint(out, length as u32 + 1);
    } else {
        out.put_i16(length);
    }
    out.put_slice(text.as_bytes());
    Ok(())
}

/// Writes a string or null.
pub(super) fn put_nullable_text(
    out: &mut Vec<u8>,
    text: Option<&str>,
    flexible: bool,
) -> Result<(), EncodeFault> {
    match text {
        Some(text) => put_text(out, text, flexible),
        None if flexible => {
            out.put_u8(0);
            Ok(())
        }
        None => {
            out.put_i16(-1);
            Ok(())
        }
    }
}

/// Writes an empty section of tagged fields where the encoding has one.
pub(super) fn put_no_tags(out: &mut Vec<u8>, flexible: bool) {
    if flexible {
        out.put_u8(0);
    }
}

/// Most bytes of a variable-length number.
pub(super) const UVARINT_BYTES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: u32, bytes: &[u8]) {
        let mut out = Vec::new();
        put_uvarint(&mut out, value);
        assert_eq!(out, bytes);
        out.push(0xaa);
        assert_eq!(get_uvarint(&out), Some((value, bytes.len())));
    }

    #[test]
    fn variable_length_numbers_round_trip() {
        check(0, &[0]);
        check(127, &[0x7f]);
        check(128, &[0x80, 1]);
        check(300, &[0xac, 2]);
        check(u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(get_uvarint(&[]), None);
        assert_eq!(get_uvarint(&[0x80, 0x80]), None);
        assert_eq!(get_uvarint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        assert_eq!(get_uvarint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let long = "x".repeat(32768);
        assert_eq!(put_text(&mut Vec::new(), &long, true), Err(EncodeFault::TooLarge));
        assert_eq!(put_text(&mut Vec::new(), &long, false), Err(EncodeFault::TooLarge));
        assert_eq!(
            put_count(&mut Vec::new(), i32::MAX as usize + 1, true),
            Err(EncodeFault::TooLarge)
        );
    }
}
