//! Joining and leaving a job, and what a rank knows about it.

use std::{
    ffi::{c_char, c_int},
    process,
};

use hydrant::Rank;

use super::{
    objects::{JOBS, JobObject},
    types::{hydrant_capabilities, hydrant_job},
};
use crate::edge::{edge, fill, optional, output, room};

/// Returns the version of the library, as "0.1.0". The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Joins the job that this process was launched in, and stores its handle. Under hydrant run, mpiexec, srun or mpirun
/// every rank runs the same program and calls this once. A process that nobody launched is a job of one. The
/// variables HYDRANT_* of the environment are the settings of the job. Collective.
///
/// Errors: HYDRANT_ERROR_SETTING, HYDRANT_ERROR_LAUNCH, HYDRANT_ERROR_NETWORK, HYDRANT_ERROR_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_join(job: *mut *mut hydrant_job) -> c_int {
    edge("hydrant_join", || {
        // SAFETY: 1. and 2. C1 and C2.
        let job = unsafe { room(job, "the place of the job")? };
        // If the program has set up a log of its own, Hydrant's messages go there.
        let _ = hydrant::log_to_stderr();
        job.write(JOBS.insert(JobObject::new(hydrant::join()?))?);
        Ok(())
    })
}

/// Ends the job in good order: completes the operations of this rank, waits until every rank does the same while it
/// answers them, and leaves. All handles of the job are useless from then on. Collective.
///
/// Errors: HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_MISMATCH if another rank is in a collective that this rank did not
/// join, HYDRANT_ERROR_TURN, HYDRANT_ERROR_IN_HANDLER. The job then goes on. The first error of an operation without a
/// handle is returned after the job has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_finalize(job: *mut hydrant_job) -> c_int {
    edge("hydrant_finalize", || {
        let job = JOBS.get(job)?;
        hydrant::may_wait("finalize")?;
        let completed = job.finish_implicit();
        job.job.finalize()?;
        job.remove_handles();
        completed
    })
}

/// Ends the whole job with a status now: tells peers and the launcher, and exits this process. Never returns. Without a
/// job only this process exits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_abort(job: *mut hydrant_job, status: c_int) -> ! {
    edge("hydrant_abort", || JOBS.get(job)?.job.abort(status));
    process::exit(status)
}

/// Stores the rank of this process.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_rank(job: *const hydrant_job, rank: *mut u32) -> c_int {
    edge("hydrant_rank", || {
        // SAFETY: 1. and 2. C1 and C2.
        let rank = unsafe { room(rank, "the place of the rank")? };
        rank.write(JOBS.get(job)?.job.rank().0);
        Ok(())
    })
}

/// Stores the number of ranks.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_size(job: *const hydrant_job, size: *mut u32) -> c_int {
    edge("hydrant_size", || {
        // SAFETY: 1. and 2. C1 and C2.
        let size = unsafe { room(size, "the place of the size")? };
        size.write(JOBS.get(job)?.job.size());
        Ok(())
    })
}

/// Stores the ranks whose memory this rank reaches directly: those of its host, itself included. At most room ranks are
/// stored, in increasing order, and their number is stored in count, which may be null.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_ranks(
    job: *const hydrant_job,
    ranks: *mut u32,
    room: usize,
    count: *mut usize,
) -> c_int {
    edge("hydrant_host_ranks", || {
        // SAFETY: 1. and 2. C1 and C2; any bytes are a rank.
        let ranks = unsafe { output(ranks.cast(), room, "the list of ranks")? };
        let job = JOBS.get(job)?;
        let found: Vec<u32> = job.job.host_ranks().map(|rank| rank.0).collect();
        // SAFETY: 1. and 2. C1 and C2.
        fill(found.into_iter(), ranks, unsafe { optional(count) });
        Ok(())
    })
}

/// Checks that the program of a rank has not come to its end. It neither waits nor handles messages, and handlers may
/// call it.
///
/// Errors: HYDRANT_ERROR_PEER_ENDED, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_RANK, HYDRANT_ERROR_JOB_OVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_check_present(job: *const hydrant_job, rank: u32) -> c_int {
    edge("hydrant_check_present", || {
        Ok(JOBS.get(job)?.job.check_present(Rank(rank))?)
    })
}

/// Handles messages that have arrived, and stores their number in handled, which may be null. It is needed only if the
/// rank's service thread is turned off.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_poll(job: *mut hydrant_job, handled: *mut usize) -> c_int {
    edge("hydrant_poll", || {
        let count = JOBS.get(job)?.job.poll();
        // SAFETY: 1. and 2. C1 and C2.
        if let Some(handled) = unsafe { optional(handled) } {
            handled.write(count);
        }
        Ok(())
    })
}

/// Stores the nanoseconds since the job started, on the clock of its network.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_now(job: *const hydrant_job, nanoseconds: *mut u64) -> c_int {
    edge("hydrant_now", || {
        // SAFETY: 1. and 2. C1 and C2.
        let nanoseconds = unsafe { room(nanoseconds, "the place of the time")? };
        nanoseconds.write(JOBS.get(job)?.job.now().as_nanos() as u64);
        Ok(())
    })
}

/// Stores the capabilities of the network, as many bytes of them as size says: sizeof(hydrant_capabilities) of the
/// header that the program was compiled with.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_capabilities(
    job: *const hydrant_job,
    capabilities: *mut hydrant_capabilities,
    size: usize,
) -> c_int {
    edge("hydrant_get_capabilities", || {
        crate::edge::not_null(capabilities, "the place of the capabilities")?;
        let job = &JOBS.get(job)?.job;
        let (caps, limits, settings) = (job.conduit(), job.limits(), job.settings());
        let mut conduit = [0; 32];
        for (place, letter) in conduit[..31].iter_mut().zip(caps.name.bytes()) {
            *place = letter as c_char;
        }
        let known = hydrant_capabilities {
            conduit,
            host_ranks: caps.host_ranks,
            needs_registration: caps.registration.is_some().into(),
            anywhere: settings.anywhere.into(),
            native_atomics: job.has_native_atomics().into(),
            max_arguments: limits.max_args,
            max_arguments_long: limits.max_args_long,
            max_payload: limits.max_medium,
            heap: limits.max_long,
            max_tag: hydrant::MAX_TAG,
        };
        let bytes = size.min(size_of::<hydrant_capabilities>());
        // SAFETY: C has as many bytes (C1), and `known` lies elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const known).cast(),
                capabilities.cast::<u8>(),
                bytes,
            );
        }
        Ok(())
    })
}
