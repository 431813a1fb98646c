//! Batches of reads and writes.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant::endpoint::{Batch, BatchFailure, PartState, RemoteRegion};
use parking_lot::Mutex;

use super::{
    objects::{BATCHES, BatchObject, PEERS, REMOTES},
    types::{
        HYDRANT_PART_DONE, HYDRANT_PART_PARTIAL, HYDRANT_PART_UNTOUCHED, HYDRANT_READ,
        HYDRANT_WRITE, hydrant_batch, hydrant_peer, hydrant_run,
    },
};
use crate::{
    edge::{argument, edge, input, lent, room},
    status::{CallFailure, Result},
};

/// Starts reads (HYDRANT_READ) or writes (HYDRANT_WRITE), in any number, of any peers. A short batch is transferred before
/// this returns. Workers transfer a long one, and nobody has to wait or poll for that. Own memory is in use until the
/// batch is over. With a peer, the message is sent to it once all bytes are there; the peer may be null. A timeout is in
/// nanoseconds from now on; 0 is none. The handle is freed by hydrant_batch_free.
///
/// Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_PERMISSION, HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_CLOSED. Nothing is started
/// then. Errors of the transfer come from hydrant_batch_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_start(
    direction: u32,
    runs: *const hydrant_run,
    count: usize,
    peer: *mut hydrant_peer,
    message: *const c_void,
    message_bytes: usize,
    timeout: u64,
    batch: *mut *mut hydrant_batch,
) -> c_int {
    edge("hydrant_batch_start", || {
        // SAFETY: 1. and 2. C1 and C2.
        let batch = unsafe { room(batch, "the place of the batch")? };
        // SAFETY: 1. and 2. C1 and C2.
        let runs = unsafe { input(runs, count, "the runs")? };
        let mut made = Batch::new();
        // Most batches are of few regions.
        let mut last: Option<(*mut _, Arc<RemoteRegion>)> = None;
        for run in runs {
            let remote = match &last {
                Some((handle, remote)) if *handle == run.remote => Arc::clone(remote),
                _ => REMOTES.get(run.remote)?,
            };
            let local = lent(run.local, run.bytes, "the own memory of a run")?;
            match direction {
                // SAFETY: 1. C1 and C2: the memory is in use until the batch is over.
                HYDRANT_WRITE => unsafe { made.write_raw(&remote, run.offset, local, run.bytes)? },
                HYDRANT_READ => {
                    let local = local.cast_mut();
                    // SAFETY: 1. as above.
                    unsafe { made.read_raw(&remote, run.offset, local, run.bytes)? }
                }
                other => return Err(argument(format!("{other} is no direction"))),
            }
            last = Some((run.remote, remote));
        }
        if !peer.is_null() {
            // SAFETY: 1. and 2. C1 and C2.
            let message = unsafe { input(message.cast::<u8>(), message_bytes, "the message")? };
            made.message(&*PEERS.get(peer)?, message)?;
        }
        if timeout != 0
            && let Some(deadline) = Instant::now().checked_add(Duration::from_nanos(timeout))
        {
            made.deadline(deadline);
        }
        let object = BatchObject {
            handle: Mutex::new(Some(made.start()?)),
            failure: Mutex::default(),
        };
        batch.write(BATCHES.insert(object)?);
        Ok(())
    })
}

/// Stores whether a batch is over. Then hydrant_batch_wait returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_test(
    batch: *mut hydrant_batch,
    is_over: *mut bool,
) -> c_int {
    edge("hydrant_batch_test", || {
        let found = BATCHES.get(batch)?;
        // SAFETY: 1. and 2. C1 and C2.
        let is_over = unsafe { room(is_over, "the place of the answer")? };
        // Without a handle somebody has waited for it.
        let handle = found.handle.lock();
        is_over.write(handle.as_ref().is_none_or(|handle| handle.is_over()));
        Ok(())
    })
}

/// As hydrant_batch_test, but copies at most 1 MiB in this thread before, if some waits for a worker. A program that polls
/// lends its time so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_help(
    batch: *mut hydrant_batch,
    is_over: *mut bool,
) -> c_int {
    edge("hydrant_batch_help", || {
        let found = BATCHES.get(batch)?;
        // SAFETY: 1. and 2. C1 and C2.
        let is_over = unsafe { room(is_over, "the place of the answer")? };
        let handle = found.handle.lock();
        is_over.write(handle.as_ref().is_none_or(|handle| handle.help()));
        Ok(())
    })
}

/// Waits until a batch is over, and returns its result, each time the same.
///
/// Errors: those of hydrant_remote_write, HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_CANCELLED. Nothing of the batch lands any
/// more. hydrant_batch_part tells the fate of each part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_wait(batch: *mut hydrant_batch) -> c_int {
    edge("hydrant_batch_wait", || {
        let found = BATCHES.get(batch)?;
        // The lock is held meanwhile, so that a second waiter gets the result, too.
        let mut handle = found.handle.lock();
        end(&found, handle.take().map_or(Ok(()), |handle| handle.wait()))
    })
}

/// Stops a batch. When this returns, nothing of it lands any more. A batch that was over before keeps its result.
///
/// Errors: as hydrant_batch_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_cancel(batch: *mut hydrant_batch) -> c_int {
    edge("hydrant_batch_cancel", || {
        let found = BATCHES.get(batch)?;
        let mut handle = found.handle.lock();
        end(
            &found,
            handle.take().map_or(Ok(()), |handle| handle.cancel()),
        )
    })
}

/// Keeps the result of a batch, and returns it.
fn end(batch: &BatchObject, result: Result<(), BatchFailure>) -> Result<()> {
    let mut failure = batch.failure.lock();
    if let Err(new) = result {
        *failure = Some(new);
    }
    match &*failure {
        None => Ok(()),
        Some(failure) => Err(CallFailure::from(failure.cause().clone())),
    }
}

/// Stores the fate of a part of a failed batch: HYDRANT_PART_*. Parts are counted as in the call that started it. All
/// parts of a batch without an error are done.
///
/// Errors: HYDRANT_ERROR_ARGUMENT if there is no such part, or nobody has waited for the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_part(
    batch: *mut hydrant_batch,
    part: usize,
    fate: *mut u32,
) -> c_int {
    edge("hydrant_batch_part", || {
        let found = BATCHES.get(batch)?;
        // SAFETY: 1. and 2. C1 and C2.
        let fate = unsafe { room(fate, "the place of the fate")? };
        if found.handle.lock().is_some() {
            return Err(argument("nobody has waited for the batch"));
        }
        let state = match &*found.failure.lock() {
            None => Some(PartState::Done),
            Some(failure) => failure.part(part),
        };
        fate.write(match state {
            Some(PartState::Done) => HYDRANT_PART_DONE,
            Some(PartState::Partial) => HYDRANT_PART_PARTIAL,
            Some(PartState::Untouched) => HYDRANT_PART_UNTOUCHED,
            None => return Err(argument(format!("the batch has no part {part}"))),
        });
        Ok(())
    })
}

/// Frees the handle of a batch. A batch that is not over is cancelled first.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_batch_free(batch: *mut hydrant_batch) -> c_int {
    edge("hydrant_batch_free", || {
        let found = BATCHES.remove(batch)?;
        // A thread that waits has the result by then.
        drop(found.handle.lock().take());
        Ok(())
    })
}
