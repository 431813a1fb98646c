//! The counters of a rank.

use std::{
    ffi::{CString, c_int},
    sync::OnceLock,
};

use super::{
    objects::JOBS,
    types::{hydrant_counter, hydrant_job},
};
use crate::edge::{edge, fill, optional, output};

/// Stores a snapshot of the counters of this rank: puts, gets, their bytes, hits and misses of registered memory, and so
/// on. At most room counters are stored, and the number of all is stored in count, which may be null. Later versions may
/// have others: programs find them by name.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_counters(
    job: *const hydrant_job,
    counters: *mut hydrant_counter,
    room: usize,
    count: *mut usize,
) -> c_int {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    edge("hydrant_counters", || {
        // SAFETY: 1. and 2. C1 and C2; any bytes are there.
        let counters = unsafe { output(counters.cast(), room, "the list of counters")? };
        let rows = JOBS.get(job)?.job.counters().rows();
        let names = NAMES.get_or_init(|| {
            let names = rows.iter().map(|(name, _)| CString::new(*name));
            names.map(Result::unwrap_or_default).collect()
        });
        let all = names
            .iter()
            .zip(&rows)
            .map(|(name, (_, value))| hydrant_counter {
                name: name.as_ptr(),
                value: *value,
            });
        // SAFETY: 1. and 2. C1 and C2.
        fill(all, counters, unsafe { optional(count) });
        Ok(())
    })
}
