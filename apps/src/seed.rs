//! Elements from a seed: element `index` is the same on every rank, in any order of requests.

use hydrant_base::{Random, mix};

/// A stream of elements with random access.
#[derive(Debug, Clone, Copy)]
pub struct Seed(u64);

impl Seed {
    /// One of several independent streams of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(mix(seed) ^ stream))
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        mix(self.0 ^ mix(index))
    }

    /// Random numbers in sequence.
    pub(crate) fn random(self) -> Random {
        Random::new(self.0)
    }

    /// A whole number from -8 to 8. Products of matrices of such numbers are exact in `f64`, in any
    /// order of summation.
    pub fn small(self, index: u64) -> f64 {
        // Below 17, so exact.
        (self.bits(index) % 17) as f64 - 8.0
    }

    /// Any `i64`.
    pub fn key(self, index: u64) -> i64 {
        self.bits(index).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_every_small_number_comes_up() {
        let (a, b) = (Seed::new(1, 0), Seed::new(1, 1));
        assert!((0..100).any(|index| a.small(index) != b.small(index)));
        let mut seen: Vec<i64> = (0..2000).map(|index| a.small(index) as i64).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (-8..=8).collect::<Vec<_>>());
    }
}
