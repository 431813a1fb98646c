//! Statistics of engines.

#![allow(unsafe_code)] // names and pointers of C

use std::ffi::{c_char, c_int};

use crate::{
    edge::{edge, not_null, write_text},
    engine::TransferEngine,
    types::{nic_load_stat, transfer_engine_t},
};

/// Stores the number of network cards whose load is known, which is 0. Returns 0; -1 if an argument is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getNicLoadStats(
    engine: transfer_engine_t,
    stats: *mut nic_load_stat,
    count: *mut usize,
) -> c_int {
    edge("getNicLoadStats", || {
        TransferEngine::get(engine)?;
        not_null(stats, "the room for the statistics")?;
        not_null(count, "the place of the number")?;
        // SAFETY: C1 and C2, and it is neither null nor misaligned.
        unsafe { count.write(0) };
        Ok(0)
    })
}

/// Writes what the engine is connected to, for people or as JSON, cut to `len` bytes with the 0 at its end. Returns 0; -1
/// without an engine or room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn showLinks(
    engine: transfer_engine_t,
    buf_out: *mut c_char,
    buf_len: usize,
    json: c_int,
) -> c_int {
    edge("showLinks", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        unsafe { write_text(&engine.describe(json != 0), buf_out, buf_len)? };
        Ok(0)
    })
}
