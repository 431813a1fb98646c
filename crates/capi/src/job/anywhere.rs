//! Memory of a rank by its address (HYDRANT_ANYWHERE=on).

use std::ffi::{c_int, c_void};

use hydrant::Rank;

use super::{
    objects::{JOBS, LOANS, LoanObject},
    types::{hydrant_job, hydrant_loan},
};
use crate::edge::{edge, input, lent, output, room};

/// Puts bytes to an address of a rank's process. Pages may come and go under it. The put is remotely complete on return.
/// The variable HYDRANT_ANYWHERE must be on for all ranks.
///
/// Errors: HYDRANT_ERROR_REFUSED without that setting, HYDRANT_ERROR_RANK, HYDRANT_ERROR_PEER_LOST,
/// HYDRANT_ERROR_ADDRESS if the memory is not mapped or is read-only. Part of it may have been written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_anywhere(
    job: *mut hydrant_job,
    rank: u32,
    address: u64,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_put_anywhere", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(source.cast(), bytes, "the source")? };
        // SAFETY: 1. to 3. The programs of C agree on what lies at the address (C2).
        Ok(unsafe { JOBS.get(job)?.job.put_anywhere(Rank(rank), address, data) }?)
    })
}

/// Gets bytes from an address of a rank's process.
///
/// Errors: as hydrant_put_anywhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_anywhere(
    job: *mut hydrant_job,
    rank: u32,
    address: u64,
    target: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_get_anywhere", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { output(target.cast(), bytes, "the target")? };
        // SAFETY: 1. C accepts any bytes.
        Ok(unsafe { JOBS.get(job)?.job.get_anywhere(Rank(rank), address, data) }?)
    })
}

/// Declares that memory stays mapped as it is until hydrant_end_loan. So it may stay registered for peers that name it by
/// its address. Not collective.
///
/// Errors: HYDRANT_ERROR_NULL, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_JOB_OVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_lend_anywhere(
    job: *mut hydrant_job,
    start: *mut c_void,
    bytes: usize,
    loan: *mut *mut hydrant_loan,
) -> c_int {
    edge("hydrant_lend_anywhere", || {
        // SAFETY: 1. and 2. C1 and C2.
        let loan = unsafe { room(loan, "the place of the loan")? };
        let start = lent(start, bytes, "the memory")?;
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until hydrant_end_loan. 3. That function refuses handlers.
        let lent = unsafe { job.job.lend_anywhere(start.cast_mut(), bytes)? };
        loan.write(LOANS.insert(LoanObject { job, _loan: lent })?);
        Ok(())
    })
}

/// Ends a loan. The memory may be unmapped when this has returned.
///
/// Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_end_loan(loan: *mut hydrant_loan) -> c_int {
    edge("hydrant_end_loan", || {
        hydrant::may_wait("the end of a loan")?;
        drop(LOANS.remove(loan)?);
        Ok(())
    })
}
