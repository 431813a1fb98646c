//! Bytes that both sides can compute.

/// Returns `len` bytes that follow from `seed`. Different seeds give different bytes.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut word = mix(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = mix(word);
    }
    bytes.truncate(len);
    bytes
}

/// Returns a word that follows from another (SplitMix64's step).
pub(super) fn mix(word: u64) -> u64 {
    let mut mixed = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Fails with the first difference, instead of a dump of all bytes.
pub(super) fn assert_same(got: &[u8], expected: &[u8], what: std::fmt::Arguments<'_>) {
    assert_eq!(got.len(), expected.len(), "{what}: another length");
    if let Some(at) = (0..got.len()).find(|&at| got[at] != expected[at]) {
        panic!(
            "{what}: byte {at} of {} is {:#04x}, not {:#04x}",
            got.len(),
            got[at],
            expected[at]
        );
    }
}
