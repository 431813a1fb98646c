//! Reading the completion queue.

#![allow(unsafe_code)] // calls foreign functions

use std::mem;

use super::Fabric;
use crate::{
    context::OperationName,
    ffi::{self, fi_cq_data_entry},
};

/// The entries that one call takes.
pub(crate) const BATCH: usize = 16;

/// An entry of the completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The context of the operation. `None` for a peer's write.
    pub(crate) context: Option<OperationName>,
    /// The bytes of a message.
    pub(crate) len: usize,
    /// The data that a peer's write shows.
    pub(crate) data: u64,
    /// The error number of an operation that failed; 0 otherwise.
    pub(crate) error: i32,
}

/// The reason why the completion queue cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueError(pub(crate) isize);

/// A batch of raw entries, reused by each poll.
pub(crate) struct QueueBatch([fi_cq_data_entry; BATCH]);

// SAFETY: the entries are numbers and addresses. Nothing is accessed through them but contexts, whose owner checks.
unsafe impl Send for QueueBatch {}

impl QueueBatch {
    pub(crate) fn new() -> Self {
        // SAFETY: zeros are valid in all fields.
        Self(unsafe { mem::zeroed() })
    }
}

impl Fabric {
    /// Passes some entries of the queue to `take`, and returns their number. Also advances the operations of peers.
    ///
    /// # Errors
    /// The queue cannot be read any more.
    #[inline]
    pub(crate) fn read_queue(
        &self,
        batch: &mut QueueBatch,
        mut take: impl FnMut(Arrival),
    ) -> Result<usize, QueueError> {
        let (queue, into) = (self.queue.as_ptr(), batch.0.as_mut_ptr().cast());
        // SAFETY: the queue is open with this format, and the buffer has room for that many entries.
        let count = unsafe { (self.calls.read_queue)(queue, into, BATCH) };
        if count > 0 {
            for entry in &batch.0[..count as usize] {
                take(Arrival {
                    // SAFETY: the library returns only pointers that it was given: those of contexts in pools, which
                    // live as long as the endpoint; or null for a peer's write.
                    context: unsafe { OperationName::of(entry.op_context) },
                    len: entry.len,
                    data: entry.data,
                    error: 0,
                });
            }
            return Ok(count as usize);
        }
        if count == -(libc::EAGAIN as isize) || count == 0 {
            return Ok(0);
        }
        if count == -(ffi::FI_EAVAIL as isize) {
            return self.read_error(take);
        }
        Err(QueueError(count))
    }

    #[cold]
    fn read_error(&self, mut take: impl FnMut(Arrival)) -> Result<usize, QueueError> {
        /// Newer libraries may store a longer entry.
        #[repr(C)]
        struct Roomy(ffi::fi_cq_err_entry, [u64; 8]);
        // SAFETY: zeros are valid in all fields.
        let mut entry: Roomy = unsafe { mem::zeroed() };
        let queue = self.queue.as_ptr();
        // SAFETY: the queue is open, and the entry has room.
        let count = unsafe { (self.calls.read_queue_error)(queue, &raw mut entry.0, 0) };
        if count == 1 {
            take(Arrival {
                // SAFETY: as in `read_queue`.
                context: unsafe { OperationName::of(entry.0.op_context) },
                len: 0,
                data: 0,
                error: entry.0.err.max(1),
            });
            return Ok(1);
        }
        if count == -(libc::EAGAIN as isize) || count == 0 {
            return Ok(0);
        }
        Err(QueueError(count))
    }
}
