//! Locks that all ranks share. They are fair, and a waiter spins on its own memory.

use std::ffi::c_int;

use hydrant::Rank;

use super::{
    objects::{JOBS, LOCKS, LocksObject},
    types::{hydrant_job, hydrant_locks},
};
use crate::edge::{edge, room};

/// Makes locks: count of them at this rank, which may differ between ranks. Collective.
///
/// Errors: as hydrant_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_locks_make(
    job: *mut hydrant_job,
    count: usize,
    locks: *mut *mut hydrant_locks,
) -> c_int {
    edge("hydrant_locks_make", || {
        // SAFETY: 1. and 2. C1 and C2.
        let locks = unsafe { room(locks, "the place of the locks")? };
        let job = JOBS.get(job)?;
        let mutexes = job.job.mutexes(count)?;
        locks.write(LOCKS.insert(LocksObject { job, mutexes })?);
        Ok(())
    })
}

/// Frees locks. Collective.
///
/// Errors: HYDRANT_ERROR_LOCK at every rank if one of the locks is held or waited for, and then they stay;
/// HYDRANT_ERROR_HANDLE, as hydrant_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_locks_free(locks: *mut hydrant_locks) -> c_int {
    edge("hydrant_locks_free", || {
        let found = LOCKS.get(locks)?;
        found.job.job.free_mutexes(&found.mutexes)?;
        drop(LOCKS.remove(locks)?);
        Ok(())
    })
}

/// Locks the lock with a number of a rank, and waits while others have it. Ranks get it in the order in which they came.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_BOUNDS if there is no such lock, HYDRANT_ERROR_LOCK if this thread has it,
/// HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_HANDLE. HYDRANT_ERROR_PEER_LOST and HYDRANT_ERROR_PEER_ENDED if its holder is
/// gone: then it can no longer be locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_lock(
    locks: *mut hydrant_locks,
    rank: u32,
    number: usize,
) -> c_int {
    edge("hydrant_lock", || {
        let found = LOCKS.get(locks)?;
        // The lock stays until hydrant_unlock.
        std::mem::forget(found.mutexes.lock(Rank(rank), number)?);
        Ok(())
    })
}

/// Unlocks a lock that this rank holds, in any of its threads.
///
/// Errors: HYDRANT_ERROR_LOCK if this rank does not hold it; as hydrant_lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_unlock(
    locks: *mut hydrant_locks,
    rank: u32,
    number: usize,
) -> c_int {
    edge("hydrant_unlock", || {
        Ok((LOCKS.get(locks)?.mutexes).unlock(Rank(rank), number)?)
    })
}
