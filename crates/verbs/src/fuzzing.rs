//! The entry point of the fuzzer: the shipped code that parses data of peers.

use crate::datagram::Datagram;

/// Parses a datagram. The first 16 bytes are the job's secret; the job has four ranks.
pub fn datagram(bytes: &[u8]) {
    let Some((secret, rest)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    if let Some((_, datagram)) = Datagram::parse(rest, *secret, 4) {
        assert!(datagram.from < 4, "a rank of the job");
    }
}
