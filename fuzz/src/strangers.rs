//! Messages, introductions and locators of processes that nobody launched, over libfabric.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hydrant_ofi::fuzzing::from_others(bytes));
