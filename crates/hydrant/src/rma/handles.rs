//! Non-blocking puts and gets that own their buffers, so that they may outlive any scope.

#![allow(unsafe_code)] // the handle owns the buffer that the conduit uses

use std::{mem::ManuallyDrop, sync::Arc};

use bytemuck::Pod;
use hydrant_conduit::Posted;

use super::{
    contiguous::place,
    pointed::{check_apart, touched},
};
use crate::{
    Rank, Result,
    counters::Count,
    memory::Symmetric,
    progress,
    transfer::{self, Transfer},
};

/// A put under way. It owns the source buffer; leaking it leaks the buffer, dropping it
/// waits.
#[must_use = "dropping the handle waits for the put"]
pub struct PutHandle<T: Pod> {
    pending: Pending,
    buffer: ManuallyDrop<Vec<T>>,
}

/// A get under way. It owns the destination buffer; leaking it leaks the buffer, dropping it
/// waits.
#[must_use = "dropping the handle waits for the get"]
pub struct GetHandle<T: Pod> {
    pending: Pending,
    buffer: ManuallyDrop<Vec<T>>,
}

/// An operation and whether it is complete.
struct Pending {
    transfer: Arc<Transfer>,
    posted: Posted,
}

impl Pending {
    fn test(&mut self) -> Result<bool> {
        if let Posted::Pending(ticket) = self.posted {
            self.transfer.progress.look_round();
            let Some(outcome) = self.transfer.outcome(ticket) else {
                return Ok(false);
            };
            self.posted = Posted::Done;
            outcome?;
        }
        Ok(true)
    }

    fn wait(&mut self) -> Result<()> {
        let outcome = self.transfer.finish(self.posted);
        // Not before: whoever drops the handle sees by this that the buffer is free.
        self.posted = Posted::Done;
        outcome
    }
}

impl<T: Pod> Symmetric<T> {
    /// Begins to put `data` into the part of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_nb(&self, rank: Rank, index: usize, data: Vec<T>) -> Result<PutHandle<T>> {
        let block = self.block();
        block.part(rank)?;
        let offset = self.offset(index, data.len())?;
        let transfer = block.transfer()?;
        let bytes: &[u8] = bytemuck::cast_slice(&data);
        let remote = place(block, offset);
        check_apart(&transfer, rank, remote, bytes)?;
        block.tally.one(Count::Puts);
        block.tally.add(Count::PutBytes, bytes.len() as u64);
        // SAFETY: the buffer goes into the handle, which lets go of it only when the
        // operation is complete.
        let posted = unsafe { transfer.begin(&transfer::put(rank, remote, bytes))? };
        touched(&transfer, rank, posted);
        Ok(PutHandle {
            pending: Pending { transfer, posted },
            buffer: ManuallyDrop::new(data),
        })
    }

    /// Begins to get `count` elements of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_nb(&self, rank: Rank, index: usize, count: usize) -> Result<GetHandle<T>> {
        let block = self.block();
        block.part(rank)?;
        let offset = self.offset(index, count)?;
        let transfer = block.transfer()?;
        let mut buffer = vec![T::zeroed(); count];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
        block.tally.one(Count::Gets);
        block.tally.add(Count::GetBytes, bytes.len() as u64);
        let access = transfer::get(rank, place(block, offset), bytes);
        // SAFETY: as in `put_nb`; nobody else has the buffer.
        let posted = unsafe { transfer.begin(&access)? };
        Ok(GetHandle {
            pending: Pending { transfer, posted },
            buffer: ManuallyDrop::new(buffer),
        })
    }
}

impl<T: Pod> PutHandle<T> {
    /// Whether the put is remotely complete.
    ///
    /// # Errors
    /// What befell the put.
    pub fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// Waits for local completion: the conduit no longer reads the buffer. Remote completion
    /// is [`wait`](Self::wait)'s, or [`Job::quiet`](crate::Job::quiet)'s.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&mut self) -> Result<()> {
        progress::may_wait("wait_local")?;
        (self.pending.transfer).finish_local(self.pending.posted)
    }

    /// Waits for remote completion and gives the buffer back.
    ///
    /// # Errors
    /// What befell the put.
    pub fn wait(mut self) -> Result<Vec<T>> {
        progress::may_wait("wait")?;
        self.pending.wait()?;
        Ok(std::mem::take(&mut *self.buffer))
    }
}

impl<T: Pod> GetHandle<T> {
    /// Whether the get is complete.
    ///
    /// # Errors
    /// What befell the get.
    pub fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// Waits for the data.
    ///
    /// # Errors
    /// What befell the get.
    pub fn wait(mut self) -> Result<Vec<T>> {
        progress::may_wait("wait")?;
        self.pending.wait()?;
        Ok(std::mem::take(&mut *self.buffer))
    }
}

impl<T: Pod> Drop for PutHandle<T> {
    fn drop(&mut self) {
        release(&mut self.pending, &mut self.buffer);
    }
}

impl<T: Pod> Drop for GetHandle<T> {
    fn drop(&mut self) {
        release(&mut self.pending, &mut self.buffer);
    }
}

/// Frees the buffer when the operation is complete. In a handler, which may not wait, an
/// operation under way keeps it for good.
fn release<T: Pod>(pending: &mut Pending, buffer: &mut ManuallyDrop<Vec<T>>) {
    if pending.posted != Posted::Done {
        if progress::may_wait("drop").is_err() {
            tracing::warn!("a transfer's handle was dropped in a handler: its buffer is leaked");
            return;
        }
        if let Err(cause) = pending.wait() {
            tracing::warn!(%cause, "a transfer whose handle was dropped failed");
        }
    }
    // SAFETY: called once, from drop; the conduit is done with the buffer.
    unsafe { ManuallyDrop::drop(buffer) };
}
