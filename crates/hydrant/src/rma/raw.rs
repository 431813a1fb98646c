//! Non-blocking puts and gets on memory whose lifetime only the caller knows. For the runtimes of
//! other languages, whose own interfaces define that lifetime.

#![allow(unsafe_code)] // only the caller can keep the conditions

use std::sync::Arc;

use bytemuck::Pod;

use super::{contiguous::place, pending::PendingOperation};
use crate::{
    Rank, Result,
    counters::Count,
    memory::Symmetric,
    transfer::{self, Transfer},
};

/// An operation in flight on memory of the caller; see [`Symmetric::put_raw_nb`]. If it is dropped,
/// the operation goes on and still uses that memory. [`Job::quiet`](crate::Job::quiet) waits for
/// it.
#[must_use = "only this says when the memory is free, and whether the operation failed"]
pub struct RawOperation {
    pending: PendingOperation<Arc<Transfer>>,
    keeps_order: bool,
}

impl RawOperation {
    const DONE: Self = Self {
        pending: PendingOperation::DONE,
        keeps_order: false,
    };

    /// Polls, and returns whether the operation is complete: remotely, if it is a put.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// Returns whether the operation is known to be complete, without a poll. It is at once if the
    /// memory is mapped here.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.pending.open().is_none()
    }

    /// Returns whether the operation is a put that is ordered before later operations of this rank
    /// on the same memory. "Later" means after local completion. Atomic operations are not ordered.
    /// Only networks that send all by messages keep this order.
    pub fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    /// Waits for local completion: the network no longer reads the source of a put.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&mut self) -> Result<()> {
        self.pending.wait_local()
    }

    /// Waits until the operation is complete: remotely, if it is a put.
    ///
    /// # Errors
    /// The error of the operation; [`Error::OutOfTurn`](crate::Error::OutOfTurn) if that was
    /// returned before; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(&mut self) -> Result<()> {
        self.pending.wait()
    }
}

impl<T: Pod> Symmetric<T> {
    /// Begins to put `count` elements from `source` into the part of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. `source` is aligned, and readable for `count` elements, until the put is known to be
    ///    locally complete. [`RawOperation::wait_local`], the calls that report completion, and
    ///    [`Job::quiet`](crate::Job::quiet) establish that.
    /// 2. No other code writes to the elements until then.
    #[track_caller]
    pub unsafe fn put_raw_nb(
        &self,
        rank: Rank,
        index: usize,
        source: *const T,
        count: usize,
    ) -> Result<RawOperation> {
        // SAFETY: the caller's conditions 1 and 2 hold for longer than the slice is used.
        let data = unsafe { std::slice::from_raw_parts(source, count) };
        let block = self.block();
        if block.part(rank)?.mapped.is_some() {
            self.put(rank, index, data)?;
            return Ok(RawOperation::DONE);
        }
        let offset = self.offset(index, count)?;
        let transfer = block.transfer()?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        (block.tally).add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
        // SAFETY: 1. The caller's conditions 1 and 2. 2. The memory is not named by its address.
        let posted = unsafe { transfer.begin(&transfer::put(rank, place(block, offset), bytes))? };
        Ok(RawOperation {
            keeps_order: transfer.keeps_order(rank),
            pending: PendingOperation::new(Arc::clone(&transfer), posted),
        })
    }

    /// Begins to get `count` elements of `rank`, from element `index` on, to `destination`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// 1. `destination` is aligned, and writable for `count` initialized elements, until the get is
    ///    known to be complete or [`Job::quiet`](crate::Job::quiet) has returned.
    /// 2. No other code reads or writes the elements until then.
    #[track_caller]
    pub unsafe fn get_raw_nb(
        &self,
        rank: Rank,
        index: usize,
        destination: *mut T,
        count: usize,
    ) -> Result<RawOperation> {
        // SAFETY: the caller's conditions 1 and 2 hold for longer than the slice is used.
        let data = unsafe { std::slice::from_raw_parts_mut(destination, count) };
        let block = self.block();
        if block.part(rank)?.mapped.is_some() {
            self.get(rank, index, data)?;
            return Ok(RawOperation::DONE);
        }
        let offset = self.offset(index, count)?;
        let transfer = block.transfer()?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
        (block.tally).add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
        // SAFETY: 1. The caller's conditions 1 and 2. 2. The memory is not named by its address.
        let posted = unsafe { transfer.begin(&transfer::get(rank, place(block, offset), bytes))? };
        Ok(RawOperation {
            keeps_order: false,
            pending: PendingOperation::new(Arc::clone(&transfer), posted),
        })
    }
}
