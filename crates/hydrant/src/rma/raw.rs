//! Non-blocking puts and gets on memory whose lifetime only the caller knows. For the runtimes of
//! other languages, whose own interfaces define that lifetime.

#![allow(unsafe_code)] // only the caller can keep the conditions

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytemuck::Pod;

use super::{
    contiguous::place,
    pending::PendingOperation,
    pointed::{Resolved, in_elements, notify_if_done, resolve},
};
use crate::{
    GlobalPtr, Rank, Result,
    counters::Count,
    memory::{Registry, Symmetric},
    transfer::{self, Transfer},
};

/// An operation in flight on memory of the caller; see [`Symmetric::put_raw_nb`]. If it is dropped,
/// the operation goes on and still uses that memory. [`Job::quiet`](crate::Job::quiet) waits for
/// it. It is a future for any executor.
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

impl Future for RawOperation {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().pending.poll(context)
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

/// Begins to put `count` bytes from `source` to the memory that `to` points to.
///
/// # Errors
/// As [`Job::put_to_raw_nb`](crate::Job::put_to_raw_nb).
///
/// # Safety
/// 1. and 2. as [`Symmetric::put_raw_nb`].
pub(crate) unsafe fn put_to(
    (transfer, memory): (&Arc<Transfer>, &Registry),
    to: GlobalPtr<u8>,
    source: *const u8,
    count: usize,
) -> Result<RawOperation> {
    let remote = match resolve(transfer, memory, &to)? {
        Resolved::Symmetric(memory, index) => {
            // SAFETY: 1. and 2. the caller's conditions 1 and 2.
            return unsafe { memory.put_raw_nb(to.rank(), index, source, count) };
        }
        Resolved::Extent(remote) => remote,
    };
    // SAFETY: the caller's conditions 1 and 2 hold for longer than the slice is used.
    let bytes = unsafe { std::slice::from_raw_parts(source, count) };
    (transfer.progress.tally).add_each([(Count::Puts, 1), (Count::PutBytes, count as u64)]);
    // SAFETY: 1. The caller's conditions 1 and 2. 2. `resolve` refuses memory named by its address.
    let posted = unsafe { transfer.begin(&transfer::put(to.rank(), remote, bytes)) };
    let posted = posted.map_err(in_elements::<u8>(count))?;
    notify_if_done(transfer, to.rank(), posted);
    Ok(RawOperation {
        keeps_order: transfer.keeps_order(to.rank()),
        pending: PendingOperation::new(Arc::clone(transfer), posted),
    })
}

/// Begins to get `count` bytes from the memory that `from` points to, to `destination`.
///
/// # Errors
/// As [`Job::get_from_raw_nb`](crate::Job::get_from_raw_nb).
///
/// # Safety
/// 1. and 2. as [`Symmetric::get_raw_nb`].
pub(crate) unsafe fn get_from(
    (transfer, memory): (&Arc<Transfer>, &Registry),
    from: GlobalPtr<u8>,
    destination: *mut u8,
    count: usize,
) -> Result<RawOperation> {
    let remote = match resolve(transfer, memory, &from)? {
        Resolved::Symmetric(memory, index) => {
            // SAFETY: 1. and 2. the caller's conditions 1 and 2.
            return unsafe { memory.get_raw_nb(from.rank(), index, destination, count) };
        }
        Resolved::Extent(remote) => remote,
    };
    // SAFETY: the caller's conditions 1 and 2 hold for longer than the slice is used.
    let bytes = unsafe { std::slice::from_raw_parts_mut(destination, count) };
    (transfer.progress.tally).add_each([(Count::Gets, 1), (Count::GetBytes, count as u64)]);
    // SAFETY: 1. The caller's conditions 1 and 2. 2. `resolve` refuses memory named by its address.
    let posted = unsafe { transfer.begin(&transfer::get(from.rank(), remote, bytes)) };
    let posted = posted.map_err(in_elements::<u8>(count))?;
    Ok(RawOperation {
        keeps_order: false,
        pending: PendingOperation::new(Arc::clone(transfer), posted),
    })
}
