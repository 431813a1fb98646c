//! What the fuzzer calls: the code that reads what peers sent, as it ships.

use crate::datagram::Datagram;

/// Reads a datagram of a job whose secret and size are of the bytes, too.
pub fn datagram(bytes: &[u8]) {
    let Some((secret, rest)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    if let Some((_, datagram)) = Datagram::parse(rest, *secret, 4) {
        assert!(datagram.from < 4, "a rank of the job");
    }
}
