//! Non-blocking puts and gets that own their buffers, so that they may outlive any scope.

#![allow(unsafe_code)] // the handle owns the buffer that the conduit uses

use std::{
    mem,
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
    GlobalPtr, Rank, Refused, Result,
    counters::Count,
    memory::{Registry, Symmetric},
    transfer::{self, Transfer},
};

/// A put in flight, which owns its source. The handle is a future for any executor; it gives the
/// buffer back when the put is remotely complete. [`test`](Self::test) and [`wait`](Self::wait) do
/// so without an executor.
///
/// If the handle is dropped, the put goes on. [`Job::quiet`](crate::Job::quiet) waits for it, its
/// buffer is freed at its end, and a failure is only logged. The result is given once; later calls
/// return [`Error::OutOfTurn`](crate::Error::OutOfTurn).
#[must_use = "only the handle says whether the put failed"]
pub struct PutHandle<T: Pod>(OwnedOperation<T>);

/// A get in flight, which owns its destination. The handle is a future for any executor that gives
/// the data. [`test`](Self::test) and [`wait`](Self::wait) do so without an executor.
///
/// If the handle is dropped, the get goes on, and its buffer is freed at its end. The result is
/// given once; later calls return [`Error::OutOfTurn`](crate::Error::OutOfTurn).
#[must_use = "only the handle gives the data"]
pub struct GetHandle<T: Pod>(OwnedOperation<T>);

/// An operation and the buffer that it uses.
struct OwnedOperation<T: Pod> {
    pending: PendingOperation<Arc<Transfer>>,
    /// Unused while the operation is [open](PendingOperation::open).
    buffer: Vec<T>,
}

impl<T: Pod> Symmetric<T> {
    /// Begins to put `data` into the part of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`put`](Self::put). The error gives the buffer back.
    #[track_caller]
    pub fn put_nb(
        &self,
        rank: Rank,
        index: usize,
        data: Vec<T>,
    ) -> Result<PutHandle<T>, Refused<Vec<T>>> {
        // SAFETY: 1. The buffer moves into the owner, which releases it only when the put is complete.
        let begun = unsafe { self.begin_put(rank, index, &data) };
        OwnedOperation::new(begun, data).map(PutHandle)
    }

    /// # Safety
    /// 1. `data` stays in place, and nothing writes to it, until the operation is complete.
    #[track_caller]
    unsafe fn begin_put(
        &self,
        rank: Rank,
        index: usize,
        data: &[T],
    ) -> Result<PendingOperation<Arc<Transfer>>> {
        let block = self.block();
        if block.part(rank)?.mapped.is_some() {
            return self.put(rank, index, data).map(|()| PendingOperation::DONE);
        }
        let offset = self.offset(index, data.len())?;
        let transfer = block.transfer()?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        (block.tally).add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
        // SAFETY: 1. The caller's condition 1. 2. The memory is not named by its address.
        let posted = unsafe { transfer.begin(&transfer::put(rank, place(block, offset), bytes))? };
        Ok(PendingOperation::new(Arc::clone(&transfer), posted))
    }

    /// Begins to get `count` elements of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[track_caller]
    pub fn get_nb(&self, rank: Rank, index: usize, count: usize) -> Result<GetHandle<T>> {
        // Checked before the buffer is allocated.
        self.block().part(rank)?;
        self.offset(index, count)?;
        Ok(self.get_nb_into(rank, index, vec![T::zeroed(); count])?)
    }

    /// Begins to get as many elements of `rank` as `buffer` has, from element `index` on, into
    /// `buffer`. So a buffer can be used again.
    ///
    /// # Errors
    /// As [`get`](Self::get). The error gives the buffer back.
    #[track_caller]
    pub fn get_nb_into(
        &self,
        rank: Rank,
        index: usize,
        mut buffer: Vec<T>,
    ) -> Result<GetHandle<T>, Refused<Vec<T>>> {
        // SAFETY: 1. The buffer moves into the owner, which releases it only when the get is complete.
        let begun = unsafe { self.begin_get(rank, index, &mut buffer) };
        OwnedOperation::new(begun, buffer).map(GetHandle)
    }

    /// # Safety
    /// 1. `buffer` stays in place, and nothing else uses it, until the operation is complete.
    #[track_caller]
    unsafe fn begin_get(
        &self,
        rank: Rank,
        index: usize,
        buffer: &mut [T],
    ) -> Result<PendingOperation<Arc<Transfer>>> {
        let block = self.block();
        if block.part(rank)?.mapped.is_some() {
            return self
                .get(rank, index, buffer)
                .map(|()| PendingOperation::DONE);
        }
        let offset = self.offset(index, buffer.len())?;
        let transfer = block.transfer()?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(buffer);
        (block.tally).add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
        let access = transfer::get(rank, place(block, offset), bytes);
        // SAFETY: 1. The caller's condition 1. 2. The memory is not named by its address.
        let posted = unsafe { transfer.begin(&access)? };
        Ok(PendingOperation::new(Arc::clone(&transfer), posted))
    }
}

/// Begins to put `data` to the memory that `to` points to.
///
/// # Errors
/// As [`Job::put_to_nb`](crate::Job::put_to_nb).
#[track_caller]
pub(crate) fn put_to<T: Pod>(
    transfer: &Arc<Transfer>,
    memory: &Registry,
    to: GlobalPtr<T>,
    data: Vec<T>,
) -> Result<PutHandle<T>, Refused<Vec<T>>> {
    let remote = match resolve(transfer, memory, &to) {
        Ok(Resolved::Symmetric(memory, index)) => return memory.put_nb(to.rank(), index, data),
        Ok(Resolved::Extent(remote)) => remote,
        Err(cause) => return Err(Refused::buffer(data, cause)),
    };
    let bytes: &[u8] = bytemuck::cast_slice(&data);
    (transfer.progress.tally).add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
    // SAFETY: 1. As in `Symmetric::put_nb`. 2. `resolve` refuses memory named by its address.
    let posted = unsafe { transfer.begin(&transfer::put(to.rank(), remote, bytes)) };
    let begun = posted.map_err(in_elements::<T>(data.len())).map(|posted| {
        notify_if_done(transfer, to.rank(), posted);
        PendingOperation::new(Arc::clone(transfer), posted)
    });
    OwnedOperation::new(begun, data).map(PutHandle)
}

/// Begins to get as many elements as `buffer` has from the memory that `from` points to.
///
/// # Errors
/// As [`Job::get_from_nb`](crate::Job::get_from_nb).
#[track_caller]
pub(crate) fn get_from<T: Pod>(
    transfer: &Arc<Transfer>,
    memory: &Registry,
    from: GlobalPtr<T>,
    mut buffer: Vec<T>,
) -> Result<GetHandle<T>, Refused<Vec<T>>> {
    let remote = match resolve(transfer, memory, &from) {
        Ok(Resolved::Symmetric(memory, index)) => {
            return memory.get_nb_into(from.rank(), index, buffer);
        }
        Ok(Resolved::Extent(remote)) => remote,
        Err(cause) => return Err(Refused::buffer(buffer, cause)),
    };
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
    (transfer.progress.tally).add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
    // SAFETY: 1. As in `Symmetric::get_nb_into`. 2. `resolve` refuses memory named by its address.
    let posted = unsafe { transfer.begin(&transfer::get(from.rank(), remote, bytes)) };
    let begun = (posted.map_err(in_elements::<T>(buffer.len())))
        .map(|posted| PendingOperation::new(Arc::clone(transfer), posted));
    OwnedOperation::new(begun, buffer).map(GetHandle)
}

impl<T: Pod> PutHandle<T> {
    /// Returns the buffer if the put is known to be complete, else the handle.
    pub(super) fn into_result(mut self) -> std::result::Result<Vec<T>, Self> {
        if self.is_complete() {
            Ok(mem::take(&mut self.0.buffer))
        } else {
            Err(self)
        }
    }

    /// Returns whether the put is known to be complete. It is at once if the memory is mapped here.
    pub(super) fn is_complete(&self) -> bool {
        self.0.pending.open().is_none()
    }

    /// As [`test`](Self::test), without a poll, so that no user code runs.
    pub(super) fn check(&mut self) -> Result<bool> {
        self.0.pending.check()
    }

    /// Polls, and returns whether the put is remotely complete.
    ///
    /// # Errors
    /// The error of the put.
    pub fn test(&mut self) -> Result<bool> {
        self.0.pending.test()
    }

    /// Waits for local completion: the conduit no longer reads the buffer. [`wait`](Self::wait) and
    /// [`Job::quiet`](crate::Job::quiet) wait for remote completion.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&mut self) -> Result<()> {
        self.0.pending.wait_local()
    }

    /// Waits for remote completion and returns the buffer.
    ///
    /// # Errors
    /// The error of the put; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.0.wait()
    }
}

impl<T: Pod> GetHandle<T> {
    /// Polls, and returns whether the get is complete.
    ///
    /// # Errors
    /// The error of the get.
    pub fn test(&mut self) -> Result<bool> {
        self.0.pending.test()
    }

    /// Waits for the data and returns it.
    ///
    /// # Errors
    /// The error of the get; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.0.wait()
    }
}

impl<T: Pod> Future for PutHandle<T> {
    type Output = Result<Vec<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll(context)
    }
}

impl<T: Pod> Future for GetHandle<T> {
    type Output = Result<Vec<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll(context)
    }
}

// Nothing is pinned: the buffer of a vector stays in place when the vector moves.
impl<T: Pod> Unpin for PutHandle<T> {}
impl<T: Pod> Unpin for GetHandle<T> {}

impl<T: Pod> OwnedOperation<T> {
    /// Pairs an operation that has begun with its buffer. If it was refused, the error gives the
    /// buffer back.
    fn new(
        begun: Result<PendingOperation<Arc<Transfer>>>,
        buffer: Vec<T>,
    ) -> Result<Self, Refused<Vec<T>>> {
        match begun {
            Ok(pending) => Ok(Self { pending, buffer }),
            Err(cause) => Err(Refused::buffer(buffer, cause)),
        }
    }

    fn wait(&mut self) -> Result<Vec<T>> {
        self.pending.wait()?;
        Ok(mem::take(&mut self.buffer))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        let ended = self.pending.poll(context);
        ended.map_ok(|()| mem::take(&mut self.buffer))
    }
}

impl<T: Pod> Drop for OwnedOperation<T> {
    fn drop(&mut self) {
        if let Some((transfer, ticket)) = self.pending.open() {
            transfer.abandon(ticket, mem::take(&mut self.buffer));
        }
    }
}
