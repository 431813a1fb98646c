//! The end of operations in flight.

use std::{ffi::c_int, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use super::{OPERATIONS, OperationObject, hydrant_operation, work::Work};
use crate::{
    edge::{argument, edge, not_null, output, room},
    status::{CallFailure, HYDRANT_ERROR_TURN, Result},
};

/// Polls, and stores in done whether an operation is complete: remotely, if it is a put. If it is, its results are
/// stored where its call said, and null is stored as the operation. A null operation is complete.
///
/// Errors: those of the operation, which is then over, and null is stored as the operation. HYDRANT_ERROR_HANDLE,
/// HYDRANT_ERROR_TURN while another thread waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_test(
    operation: *mut *mut hydrant_operation,
    done: *mut bool,
) -> c_int {
    edge("hydrant_test", || {
        not_null(operation, "the place of the operation")?;
        // SAFETY: 1. and 2. C1 and C2.
        let done = unsafe { room(done, "the place of the answer")? };
        // SAFETY: C1 and C2, for one operation.
        let place = unsafe { &mut *operation };
        done.write(false);
        done.write(test(place)?);
        Ok(())
    })
}

/// Waits until an operation is complete: remotely, if it is a put. Its results are stored where its call said, and null
/// is stored as the operation. A null operation is complete. Handles messages meanwhile.
///
/// Errors: those of the operation, which is then over. HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER,
/// HYDRANT_ERROR_TURN while another thread waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait(operation: *mut *mut hydrant_operation) -> c_int {
    edge("hydrant_wait", || {
        not_null(operation, "the place of the operation")?;
        // SAFETY: C1 and C2, for one operation.
        wait(unsafe { &mut *operation })
    })
}

/// Waits until a put no longer reads its source, which may then be changed. The operation stays. Other operations are
/// not waited for.
///
/// Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_TURN while another thread waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait_local(operation: *mut hydrant_operation) -> c_int {
    edge("hydrant_wait_local", || {
        if operation.is_null() {
            return Ok(());
        }
        hydrant::may_wait("a wait for an operation")?;
        let found = OPERATIONS.get(operation)?;
        // The lock is not held in the wait, which may run handlers.
        let mut work = found.work.lock().take().ok_or_else(in_use)?;
        let waited = work.wait_local();
        *found.work.lock() = Some(work);
        waited
    })
}

/// Waits until all of count operations are complete, as hydrant_wait, and stores null in their places. All are waited
/// for, also after an error.
///
/// Errors: the first one among the operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait_all(
    operations: *mut *mut hydrant_operation,
    count: usize,
) -> c_int {
    edge("hydrant_wait_all", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operations = unsafe { output(operations, count, "the list of operations")? };
        hydrant::may_wait("a wait for operations")?;
        // An operation in flight helps the others on, so they are awaited in order.
        let mut first = Ok(());
        for place in operations {
            first = first.and(wait(place));
        }
        first
    })
}

/// Waits until one of count operations is complete, stores its index, and null in its place. Of several it takes the
/// first.
///
/// Errors: those of the operation, whose index is stored, too; HYDRANT_ERROR_ARGUMENT if count is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait_any(
    operations: *mut *mut hydrant_operation,
    count: usize,
    index: *mut usize,
) -> c_int {
    edge("hydrant_wait_any", || {
        // SAFETY: 1. and 2. C1 and C2.
        let index = unsafe { room(index, "the place of the index")? };
        // SAFETY: 1. and 2. C1 and C2.
        let operations = unsafe { output(operations, count, "the list of operations")? };
        if operations.is_empty() {
            return Err(argument("no operations were given to wait for"));
        }
        hydrant::may_wait("a wait for operations")?;
        if let Some(first) = operations.iter().position(|place| place.is_null()) {
            index.write(first);
            return Ok(());
        }
        let mut taken = TakenWorks::take(operations)?;
        let first = taken.wait_for_any()?;
        index.write(first);
        let work = taken.works[first].work.take().ok_or_else(in_use)?;
        end(&mut operations[first], work)
    })
}

/// Polls, and stores in done whether all of count operations are complete. Null is stored in the places of those that
/// are.
///
/// Errors: those of the first operation that failed, whose place then is null. The rest may be tested again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_test_all(
    operations: *mut *mut hydrant_operation,
    count: usize,
    done: *mut bool,
) -> c_int {
    edge("hydrant_test_all", || {
        // SAFETY: 1. and 2. C1 and C2.
        let done = unsafe { room(done, "the place of the answer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let operations = unsafe { output(operations, count, "the list of operations")? };
        done.write(false);
        let mut all = true;
        for place in operations {
            all &= test(place)?;
        }
        done.write(all);
        Ok(())
    })
}

/// Lets an operation go on without its handle, and stores null in its place. A put or a get then is as one of
/// hydrant_put_nbi or hydrant_get_nbi. The results of an atomic operation or of a collective are dropped.
///
/// Errors: HYDRANT_ERROR_ARGUMENT for a send or a receive, which keeps its handle; HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_detach(operation: *mut *mut hydrant_operation) -> c_int {
    edge("hydrant_detach", || {
        not_null(operation, "the place of the operation")?;
        // SAFETY: C1 and C2, for one operation.
        let place = unsafe { &mut *operation };
        if place.is_null() {
            return Ok(());
        }
        let found = OPERATIONS.get(*place)?;
        let work = found.work.lock().take().ok_or_else(in_use)?;
        if let Some(kept) = work.detach(&mut |operation| found.owner.keep_implicit(operation)) {
            *found.work.lock() = Some(kept);
            return Err(argument(
                "this operation has to be waited for by its handle",
            ));
        }
        forget(place)
    })
}

/// Operations that a thread waits for together. Those that it does not end are given back.
struct TakenWorks {
    works: Vec<TakenWork>,
}

struct TakenWork {
    object: Arc<OperationObject>,
    /// `None` once the operation is being ended.
    work: Option<Box<dyn Work>>,
}

impl TakenWorks {
    fn take(operations: &[*mut hydrant_operation]) -> Result<Self> {
        let mut taken = Self { works: Vec::new() };
        for place in operations {
            let object = OPERATIONS.get(*place)?;
            let work = object.work.lock().take();
            let work = Some(work.ok_or_else(in_use)?);
            taken.works.push(TakenWork { object, work });
        }
        Ok(taken)
    }

    /// Waits until one is over, and returns its index.
    fn wait_for_any(&mut self) -> Result<usize> {
        let Some(first) = self.works.first() else {
            return Err(argument("no operations were given to wait for"));
        };
        let (owner, mut found) = (Arc::clone(&first.object.owner), 0);
        let any = pin!(poll_fn(|context| {
            let over =
                |taken: &mut TakenWork| (taken.work.as_mut()).is_none_or(|work| work.poll(context));
            match self.works.iter_mut().position(over) {
                Some(first) => {
                    found = first;
                    Poll::Ready(())
                }
                None => Poll::Pending,
            }
        }));
        owner.wait_for(any)?;
        Ok(found)
    }
}

impl Drop for TakenWorks {
    fn drop(&mut self) {
        for taken in &mut self.works {
            if let Some(work) = taken.work.take() {
                *taken.object.work.lock() = Some(work);
            }
        }
    }
}

/// Tests an operation, and ends it if it is over.
fn test(place: &mut *mut hydrant_operation) -> Result<bool> {
    if place.is_null() {
        return Ok(true);
    }
    let found = OPERATIONS.get(*place)?;
    // The lock is not held in the poll, which may run handlers.
    let mut work = found.work.lock().take().ok_or_else(in_use)?;
    // The end of some operations is a wait, which a handler may not do.
    if !work.test() || hydrant::may_wait("a test").is_err() {
        *found.work.lock() = Some(work);
        return Ok(false);
    }
    end(place, work).map(|()| true)
}

fn wait(place: &mut *mut hydrant_operation) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    hydrant::may_wait("a wait for an operation")?;
    let found = OPERATIONS.get(*place)?;
    let work = found.work.lock().take().ok_or_else(in_use)?;
    end(place, work)
}

/// Finishes an operation, and removes its handle.
fn end(place: &mut *mut hydrant_operation, work: Box<dyn Work>) -> Result<()> {
    let finished = work.finish();
    let forgotten = forget(place);
    finished.and(forgotten)
}

fn forget(place: &mut *mut hydrant_operation) -> Result<()> {
    let removed = OPERATIONS.remove(*place);
    *place = std::ptr::null_mut();
    removed.map(drop)
}

#[cold]
fn in_use() -> CallFailure {
    let text = "another thread waits for this operation";
    CallFailure::new(HYDRANT_ERROR_TURN, text)
}
