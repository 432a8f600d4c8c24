//! The simulation's random numbers: SplitMix64, one stream per purpose.
//!
//! Owns a generator whose whole future is its seed. Must never be seeded from anything but the
//! world's seed or a constant of a test, and never be used outside the simulation: it is
//! predictable. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators".

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// An independent stream for `purpose`; the same purpose gives the same stream.
    #[must_use]
    pub fn stream(seed: u64, purpose: &str) -> Random {
        let mut state = seed;
        for byte in purpose.bytes() {
            state = fold(state, u64::from(byte));
        }
        Random::new(state)
    }

    /// A new stream that starts where this one decides.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "an endless stream, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `length`; 0 if the length is 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

/// Folds one word into a running hash; used for event hashes too.
pub(super) fn fold(hash: u64, word: u64) -> u64 {
    mix(hash.rotate_left(5) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_a_bound_holds() {
        // First output of the reference implementation for seed 0.
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
        let mut random = Random::stream(7, "disk");
        let mut again = Random::stream(7, "disk");
        let mut other = Random::stream(7, "net");
        let mut differs = false;
        for _ in 0..1000 {
            let number = random.below(10);
            assert!(number < 10);
            assert_eq!(number, again.below(10));
            differs |= number != other.below(10);
        }
        assert!(differs);
        assert_eq!(random.below(0), 0);
    }
}
