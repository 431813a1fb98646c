//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, 2014).

/// The step of the generator: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of random numbers that follows from its seed. It is not for secrets.
///
/// ```
/// let mut random = hydrant_base::Random::new(7);
/// assert!(random.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        let word = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        word
    }

    /// A number from 0 to below `bound`; 0 if that is 0.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        self.word_below(bound as u64) as usize
    }

    /// The same for a bound of 64 bits.
    #[inline]
    pub fn word_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `times` times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Puts items in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Spreads the bits of a word over all its bits: the output function of SplitMix64, a bijection.
#[inline]
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(STEP);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first outputs for seed 0, as published with the generator.
        let mut random = Random::new(0);
        assert_eq!(random.word(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.word(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn every_number_below_a_bound_comes_up() {
        let (mut random, mut seen) = (Random::new(1), [0; 7]);
        (0..700).for_each(|_| seen[random.below(7)] += 1);
        assert!(
            seen.iter().all(|times| (60..140).contains(times)),
            "{seen:?}"
        );
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn shuffled_items_are_all_there() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
