//! Datagrams beside the connections of `verbs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hydrant_verbs::fuzzing::datagram(bytes));
