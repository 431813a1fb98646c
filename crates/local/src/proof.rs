//! Keyed hashes (SipHash-2-4, 128 bits): proofs that a process knows a key, and marks that only its owner can make.

use std::io;

use hydrant_conduit::Error;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// A key, a fresh number or a hash.
pub type Bytes16 = [u8; 16];

/// Returns the hash of `parts` under `key`. Hashes for different purposes have different labels.
///
/// ```
/// use hydrant_local::proof::hash;
///
/// let key = [7; 16];
/// assert_ne!(hash(&key, "a", &[b"bc"]), hash(&key, "a", &[b"b", b"c"]));
/// ```
pub fn hash(key: &Bytes16, label: &str, parts: &[&[u8]]) -> Bytes16 {
    let mut hasher = SipHasher24::new_with_key(key);
    for part in [label.as_bytes()].iter().chain(parts) {
        hasher.write_u64(part.len() as u64);
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}

/// Compares two hashes in a time that does not tell where they differ.
pub fn is_same(one: &Bytes16, other: &Bytes16) -> bool {
    (one.iter().zip(other)).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Returns random bytes that nobody can guess.
///
/// # Errors
/// [`Error::System`] if the kernel has none.
pub fn fresh() -> Result<Bytes16, Error> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|cause| Error::system("drawing a random number", cause))?;
    if got == bytes.len() {
        return Ok(bytes);
    }
    let short = io::Error::from(io::ErrorKind::UnexpectedEof);
    Err(Error::system("drawing a random number", short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_the_key_the_label_and_each_part() {
        let base = hash(&[1; 16], "x", &[b"one", b"two"]);
        assert!(is_same(&base, &hash(&[1; 16], "x", &[b"one", b"two"])));
        for other in [
            hash(&[2; 16], "x", &[b"one", b"two"]),
            hash(&[1; 16], "y", &[b"one", b"two"]),
            hash(&[1; 16], "x", &[b"onetwo"]),
            hash(&[1; 16], "x", &[b"one", b"twp"]),
            hash(&[1; 16], "x", &[b"one", b"two", b""]),
        ] {
            assert!(!is_same(&base, &other));
        }
        assert_ne!(fresh().unwrap(), fresh().unwrap());
    }
}
