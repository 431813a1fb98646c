//! Operations in flight that C has handles of: of jobs, and of whatever else begins some. `work.rs` has their kinds, and
//! `ends.rs` the functions of C that complete them.

#![allow(unsafe_code)] // pointers of C
#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "C's rules for pointers apply, as the header says"
)]

pub mod ends;
pub(crate) mod work;

use std::{pin::Pin, sync::Arc};

use hydrant::{BackgroundHandle, RawOperation};
use parking_lot::Mutex;

use crate::{status::Result, table::CHandles};
use work::{BackgroundWork, RmaWork, Work};

/// An operation in flight. Null stands for an operation that is complete.
pub struct hydrant_operation(());

static OPERATIONS: CHandles<hydrant_operation, OperationObject> = CHandles::new(7);

/// The owner of operations, as a job.
pub(crate) trait OwnerOfOperations: Send + Sync {
    /// Keeps a put or a get that C has no handle of any more.
    fn keep_implicit(&self, operation: RawOperation);

    /// Waits for a future.
    ///
    /// # Errors
    /// As [`hydrant::Job::wait_for`].
    fn wait_for(&self, future: Pin<&mut dyn Future<Output = ()>>) -> hydrant::Result<()>;
}

struct OperationObject {
    owner: Arc<dyn OwnerOfOperations>,
    /// `None` while a thread waits for the operation, and afterwards.
    work: Mutex<Option<Box<dyn Work>>>,
}

/// Returns the handle of an operation in flight.
pub(crate) fn keep_work(
    owner: Arc<dyn OwnerOfOperations>,
    work: Box<dyn Work>,
) -> Result<*mut hydrant_operation> {
    OPERATIONS.insert(OperationObject {
        owner,
        work: Mutex::new(Some(work)),
    })
}

/// Returns the handle of a put or a get; null if it is complete.
pub(crate) fn keep_transfer(
    owner: &Arc<impl OwnerOfOperations + 'static>,
    begun: RawOperation,
) -> Result<*mut hydrant_operation> {
    if begun.is_complete() {
        return Ok(std::ptr::null_mut());
    }
    keep_work(Arc::clone(owner) as _, Box::new(RmaWork::new(begun)))
}

/// Returns the handle of an operation in the background, whose result `store` gives to C; null if it is complete.
pub(crate) fn keep_background<R: Send + 'static>(
    owner: &Arc<impl OwnerOfOperations + 'static>,
    mut begun: BackgroundHandle<R>,
    store: impl FnOnce(R) + Send + 'static,
) -> Result<*mut hydrant_operation> {
    if begun.test()? && hydrant::may_wait("a look").is_ok() {
        store(begun.wait()?);
        return Ok(std::ptr::null_mut());
    }
    let work = Box::new(BackgroundWork::new(begun, store));
    keep_work(Arc::clone(owner) as _, work)
}

/// Removes the handles of an owner's operations.
pub(crate) fn remove_all(owner: &Arc<impl OwnerOfOperations>) {
    let gone = Arc::as_ptr(owner).cast::<()>();
    drop(OPERATIONS.remove_all(|it| std::ptr::addr_eq(Arc::as_ptr(&it.owner), gone)));
}
