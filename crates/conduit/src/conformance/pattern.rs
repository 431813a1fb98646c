//! Bytes that both sides can compute.

use hydrant_base::Random;

/// Returns `len` bytes that follow from `seed`. Different seeds give different bytes.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.word().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
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
