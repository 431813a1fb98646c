//! Profiles of simulated machines.

#![no_main]

use hydrant_sim::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| drop(Profile::parse("fuzz.toml", text)));
