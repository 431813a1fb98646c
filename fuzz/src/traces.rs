//! Communication traces: the files of one job, one after the other, each preceded by its length.

#![no_main]

use hydrant_traces::trace::{RankTrace, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut files = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (file, after) = after.split_at(length);
        rest = after;
        match RankTrace::parse("fuzz.pmt", file) {
            Ok(trace) => files.push(trace),
            Err(error) => drop(error.to_string()),
        }
    }
    match Trace::new(files) {
        Ok(trace) => assert_eq!(trace.ranks()[0].ranks() as usize, trace.ranks().len()),
        Err(error) => drop(error.to_string()),
    }
});
