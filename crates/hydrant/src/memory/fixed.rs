//! A codec for words that always take eight bytes in a message. Addresses and job numbers differ
//! from run to run. Variable-length integers would change the length of a message, and in virtual
//! time its duration.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In text formats the word is a plain number.
pub(super) fn serialize<S: Serializer>(word: &u64, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        word.serialize(to)
    } else {
        word.to_le_bytes().serialize(to)
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    if from.is_human_readable() {
        u64::deserialize(from)
    } else {
        <[u8; 8]>::deserialize(from).map(u64::from_le_bytes)
    }
}
