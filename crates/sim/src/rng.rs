//! Random numbers from a seed (SplitMix64).

/// A sequence that follows from its seed.
pub(crate) struct SimRandom(u64);

impl SimRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// True with a probability of `chance` in 2^32.
    pub(crate) fn happens(&mut self, chance: u64) -> bool {
        chance > 0 && self.word() >> 32 < chance
    }

    /// A number from 0 to below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }
}

/// A hash of the word, which looks random.
pub(crate) fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
