//! Random choices from one seed, and record batches made of them.

use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, checksum};

use crate::support::batch::{Batch, Record};

/// A generator of random numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` up to, not including, `high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low) as u64) as usize
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.between(0, times) == 0
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len())]
    }
}

/// Who sends a batch, and its first sequence number: an idempotent producer, or nobody.
pub type Sender = Option<(i64, i16, i32)>;

/// A batch of about `bytes` random bytes in `count` records; `number` becomes its timestamp, by
/// which it is known when it is read back.
pub fn batch(
    random: &mut Random,
    number: u64,
    sender: Sender,
    bytes: usize,
    count: usize,
) -> Bytes {
    let pool = POOL.get_or_init(|| {
        let mut random = Random::new(7);
        (0..POOL_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect()
    });
    let each = (bytes / count).max(1);
    let values = (0..count).map(|_| {
        let from = random.between(0, POOL_BYTES - each);
        Record::value(&pool[from..from + each])
    });
    numbered(Batch::of(values.collect()), number, sender)
}

/// `batch` with a number for its timestamp, its sender, and its checksum.
pub fn numbered(mut batch: Batch, number: u64, sender: Sender) -> Bytes {
    batch.base_timestamp = FIRST_TIMESTAMP + number as i64;
    if let Some((id, epoch, sequence)) = sender {
        batch = batch.with_producer(id, epoch, sequence);
    }
    sealed(batch)
}

/// The bytes of a batch.
pub fn sealed(mut batch: Batch) -> Bytes {
    // The library's own checksum goes bit by bit: too slow for what is sent here.
    batch.crc = Some(0);
    let mut bytes = BytesMut::from(&batch.encode()[..]);
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, &bytes[21..]) as u32;
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

/// Timestamp of batch number 0.
pub const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;

const POOL_BYTES: usize = 4 << 20;

static POOL: OnceLock<Vec<u8>> = OnceLock::new();
