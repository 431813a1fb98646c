//! Datagrams beside the connections of the `verbs` conduit.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hydrant_verbs::fuzzing::datagram(bytes));
