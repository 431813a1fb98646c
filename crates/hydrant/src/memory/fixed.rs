//! Words that take eight bytes in a message, whatever they are. An address or the number of a job is another in each
//! run; by a variable-length integer the length of a message would follow it, and in virtual time the time.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For text it is a number still.
pub(super) fn serialize<S: Serializer>(word: &u64, to: S) -> Result<S::Ok, S::Error> {
    match to.is_human_readable() {
        true => word.serialize(to),
        false => word.to_le_bytes().serialize(to),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match from.is_human_readable() {
        true => u64::deserialize(from),
        false => <[u8; 8]>::deserialize(from).map(u64::from_le_bytes),
    }
}
