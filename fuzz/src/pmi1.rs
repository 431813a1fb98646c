//! Lines of PMI-1, as ranks and the launcher read them, and values in chunks.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hydrant_launch::fuzzing::pmi1(bytes));
