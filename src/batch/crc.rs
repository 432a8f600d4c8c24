//! CRC-32C of record batches: over whole batches, in slices, and repaired after a header change.
//!
//! The checksum covers everything from the attributes (byte 21) to the end. A changed header does
//! not need a second pass over the records: CRC is linear, so the difference between two headers
//! is shifted over the length of what follows. Must never be given more or less than one batch.
//! Source: Kafka's `DefaultRecordBatch.computeChecksum`; the shift is multiplication by a power
//! of x modulo the Castagnoli polynomial.

use crc_fast::CrcAlgorithm;

use crate::batch::header::{CRC_AT, CRC_COVERS_FROM, HEADER_BYTES};

/// CRC-32C of the covered part of `batch`, which must be exactly one batch; 0 if it is too short
/// to have a covered part.
#[must_use]
pub fn batch_crc(batch: &[u8]) -> u32 {
    crc32c(batch.get(CRC_COVERS_FROM..).unwrap_or(&[]))
}

/// The CRC that `batch` carries, or `None` if it is too short.
#[must_use]
pub fn stored_crc(batch: &[u8]) -> Option<u32> {
    let bytes = batch.get(CRC_AT..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

/// Whether `batch`, exactly one whole batch, carries the CRC of its bytes.
#[must_use]
pub fn crc_matches(batch: &[u8]) -> bool {
    batch.len() >= HEADER_BYTES && stored_crc(batch) == Some(batch_crc(batch))
}

/// CRC-32C of any bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A CRC-32C that is computed in slices, so that a large batch does not hold up its shard.
pub struct RunningCrc {
    digest: crc_fast::Digest,
}

impl RunningCrc {
    /// Starts over no bytes.
    #[must_use]
    pub fn new() -> RunningCrc {
        RunningCrc { digest: crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi) }
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The CRC of all bytes taken in.
    #[must_use]
    pub fn value(&self) -> u32 {
        // A CRC of 32 bits is returned in the low half of a wider integer.
        self.digest.finalize() as u32
    }
}

impl Default for RunningCrc {
    fn default() -> RunningCrc {
        RunningCrc::new()
    }
}

/// The CRC of a batch whose covered header bytes changed from `before` to `after`, given its old
/// CRC and its records (everything after the header).
#[must_use]
pub fn crc_after_header_change(
    old_crc: u32,
    before: &[u8; HEADER_BYTES],
    after: &[u8; HEADER_BYTES],
    payload: &[u8],
) -> u32 {
    let covered = |header: &[u8; HEADER_BYTES]| batch_crc(header);
    if payload.len() <= RECOMPUTE_BYTES_MAX {
        let mut crc = RunningCrc::new();
        crc.update(after.get(CRC_COVERS_FROM..).unwrap_or(&[]));
        crc.update(payload);
        return crc.value();
    }
    old_crc ^ shift(covered(before) ^ covered(after), payload.len() as u64)
}

/// Multiplies `crc` by x^(8 * bytes): what `bytes` zero bytes do to a difference of two CRCs.
fn shift(crc: u32, bytes: u64) -> u32 {
    let mut power = ONE;
    let mut left = bytes;
    for factor in POWERS.iter().skip(3) {
        if left == 0 {
            break;
        }
        if left & 1 == 1 {
            power = multiply(*factor, power);
        }
        left >>= 1;
    }
    multiply(power, crc)
}

/// Product of two polynomials modulo the Castagnoli polynomial, bits reflected: x^0 is the top bit.
const fn multiply(left: u32, right: u32) -> u32 {
    let mut product = 0;
    let mut shifted = right;
    let mut bit = ONE;
    while bit != 0 {
        if left & bit != 0 {
            product ^= shifted;
        }
        bit >>= 1;
        shifted = if shifted & 1 == 1 { (shifted >> 1) ^ POLYNOMIAL } else { shifted >> 1 };
    }
    product
}

/// `POWERS[n]` is x^(2^n); enough for any length a batch can have.
const POWERS: [u32; 40] = powers();

#[allow(clippy::indexing_slicing)]
const fn powers() -> [u32; 40] {
    let mut table = [ONE >> 1; 40];
    let mut n = 1;
    while n < table.len() {
        table[n] = multiply(table[n - 1], table[n - 1]);
        n += 1;
    }
    table
}

const ONE: u32 = 1 << 31;
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Up to here a second pass over the records costs less than shifting the difference.
const RECOMPUTE_BYTES_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_standard_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let mut running = RunningCrc::new();
        running.update(b"1234");
        running.update(b"");
        running.update(b"56789");
        assert_eq!(running.value(), 0xE306_9283);
        assert_eq!(RunningCrc::new().value(), crc32c(b""));
    }

    #[test]
    fn a_changed_header_gives_the_crc_of_a_full_pass() {
        for payload_bytes in [0, 1, 17, 8192, 8193, 65_536, 100_003] {
            let payload: Vec<u8> = (0..payload_bytes).map(|n| (n * 31 % 251) as u8).collect();
            let before = [7u8; HEADER_BYTES];
            let mut after = before;
            after[22] = 9;
            after[40] = 0xFF;
            let whole = |header: &[u8; HEADER_BYTES]| {
                let mut batch = header.to_vec();
                batch.extend_from_slice(&payload);
                batch_crc(&batch)
            };
            assert_eq!(
                crc_after_header_change(whole(&before), &before, &after, &payload),
                whole(&after),
                "payload of {payload_bytes}"
            );
        }
    }

    #[test]
    fn short_slices_have_no_crc_and_do_not_match() {
        assert_eq!(stored_crc(&[0; 20]), None);
        assert!(!crc_matches(&[0; 60]));
        assert!(!crc_matches(&[]));
    }
}
