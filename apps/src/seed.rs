//! Elements from a seed: element `index` is the same on every rank, in any order of requests.

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

/// A stream of random numbers, drawn in sequence.
#[derive(Debug)]
pub(crate) struct Dice(Seed, u64);

impl Dice {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(seed, 0)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.1 += 1;
        self.0.bits(self.1)
    }

    /// A number below `limit`, or 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True once in `times` times.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014), a bijection.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
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

    #[test]
    fn mix_is_splitmix64() {
        // The first outputs for seed 0, as published with the generator.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }
}
