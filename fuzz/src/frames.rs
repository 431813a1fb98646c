//! Frames between the launcher and its agents.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hydrant_launch::fuzzing::frames(bytes));
