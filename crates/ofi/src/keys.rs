//! Keys of extents.
//!
//! The layers above carry a key of 64 bits. Most providers count addresses from the start of a region, so the key has to
//! tell where the extent begins. It has two forms:
//!
//! | bit 0 | bits 1 to 27, or 1 to 15 | the rest |
//! |---|---|---|
//! | 0 | slot (17 bits), generation (10 bits) | the first page of an extent that begins with a page |
//! | 1 | slot (15 bits) | the first address of any other extent |
//!
//! The provider sees another key: a keyed hash of the owner and this key. Strangers do not know the job's secret, and
//! so cannot guess it. Where the provider chooses the keys, its key is the key.

use std::hash::Hasher;

use hydrant_conduit::{Key, Rank, memory::PAGE};
use siphasher::sip::SipHasher24;

/// Bits of an address of user space.
const ADDRESS_BITS: u32 = 48;
/// Bits of the slot's index, in a key of pages and in a key of bytes.
const INDEX_BITS: u32 = 17;
const BYTE_INDEX_BITS: u32 = 15;
/// Bits of the slot's generation, in a key of pages.
const GENERATION_BITS: u32 = 10;
/// The first bit of the page, in a key of pages.
const PAGE_SHIFT: u32 = 1 + INDEX_BITS + GENERATION_BITS;

/// The first address that no process has.
pub(crate) const END_OF_MEMORY: u64 = 1 << ADDRESS_BITS;
/// The most extents of a rank.
pub(crate) const MAX_EXTENTS: usize = 1 << INDEX_BITS;

/// Makes the key of an extent in the slot `index`. Returns `None` if the address or the index is too large.
pub(crate) fn make(start: u64, index: u32, generation: u32) -> Option<Key> {
    if start >> ADDRESS_BITS != 0 {
        return None;
    }
    if start.is_multiple_of(PAGE as u64) {
        let generation = u64::from(generation % (1 << GENERATION_BITS));
        let serial = generation << INDEX_BITS | u64::from(index);
        return Some(Key((start / PAGE as u64) << PAGE_SHIFT | serial << 1));
    }
    (index < 1 << BYTE_INDEX_BITS)
        .then(|| Key(start << (1 + BYTE_INDEX_BITS) | u64::from(index) << 1 | 1))
}

/// Returns the index of a key's slot.
#[inline]
pub(crate) fn index_of(key: Key) -> u32 {
    let bits = if key.0 & 1 == 0 {
        INDEX_BITS
    } else {
        BYTE_INDEX_BITS
    };
    (key.0 >> 1) as u32 & ((1 << bits) - 1)
}

/// Returns the first address of a key's extent.
#[inline]
pub(crate) fn start_of(key: Key) -> u64 {
    if key.0 & 1 == 0 {
        (key.0 >> PAGE_SHIFT) * PAGE as u64
    } else {
        key.0 >> (1 + BYTE_INDEX_BITS)
    }
}

/// Makes the keys that the provider of one owner sees.
#[derive(Clone, Copy)]
pub(crate) struct ProviderKeys {
    secret: [u8; 16],
    owner: u32,
    /// The bits of the provider's keys.
    mask: u64,
}

impl ProviderKeys {
    /// Makes keys of `bytes` bytes, from 4 to 8, for extents of `owner`.
    pub(crate) fn new(secret: [u8; 16], owner: Rank, bytes: usize) -> Self {
        let mask = u64::MAX >> (64 - 8 * bytes.clamp(4, 8) as u32);
        let owner = owner.0;
        Self {
            secret,
            owner,
            mask,
        }
    }

    /// Returns the provider's key for an extent of the owner.
    #[inline]
    pub(crate) fn of(&self, key: Key) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(key.0);
        hasher.write_u32(self.owner);
        hasher.finish() & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_contains_its_start_and_index() {
        let last = (1 << ADDRESS_BITS) - 1;
        for (start, index) in [
            (PAGE as u64, 0),
            (0x7fff_ffff_f000, (1 << INDEX_BITS) - 1),
            (0x5555_1234_5678, 7),
            (last, (1 << BYTE_INDEX_BITS) - 1),
        ] {
            for generation in [0, 1, 1023, 1024] {
                let key = make(start, index, generation).expect("a key");
                assert_eq!((start_of(key), index_of(key)), (start, index));
                assert_ne!(key, Key::SEGMENT);
            }
        }
        assert_eq!(make(last + 1, 0, 0), None);
        assert_eq!(make(1, 1 << BYTE_INDEX_BITS, 0), None);
    }

    #[test]
    fn a_slot_in_use_again_has_another_key() {
        assert_ne!(make(4096, 3, 1), make(4096, 3, 2));
    }

    #[test]
    fn a_provider_key_depends_on_the_secret_the_owner_and_the_key() {
        let keys = |secret, owner, bytes| ProviderKeys::new([secret; 16], Rank(owner), bytes);
        let key = keys(1, 0, 8).of(Key(5));
        assert_ne!(key, keys(2, 0, 8).of(Key(5)));
        assert_ne!(key, keys(1, 1, 8).of(Key(5)));
        assert_ne!(key, keys(1, 0, 8).of(Key(6)));
        assert_eq!(key & 0xffff_ffff, keys(1, 0, 4).of(Key(5)));
    }
}
