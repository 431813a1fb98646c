//! Non-blocking puts and gets that own their buffers, so that they may outlive any scope.

#![allow(unsafe_code)] // the handle owns the buffer that the conduit uses

use std::{mem::ManuallyDrop, sync::Arc};

use bytemuck::Pod;
use hydrant_conduit::{Posted, Ticket};

use super::contiguous::place;
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

/// An operation that is not known to be complete yet, if it is not, and who completes it.
struct Pending(Option<(Arc<Transfer>, Ticket)>);

impl Pending {
    const DONE: Self = Self(None);

    fn new(transfer: &Arc<Transfer>, posted: Posted) -> Self {
        Self(match posted {
            Posted::Done => None,
            Posted::Pending(ticket) => Some((Arc::clone(transfer), ticket)),
        })
    }

    fn test(&mut self) -> Result<bool> {
        if let Some((transfer, ticket)) = &self.0 {
            transfer.progress.look_round();
            let Some(outcome) = transfer.outcome(*ticket) else {
                return Ok(false);
            };
            self.0 = None;
            outcome?;
        }
        Ok(true)
    }

    fn wait_local(&self) -> Result<()> {
        match &self.0 {
            Some((transfer, ticket)) => transfer.finish_local(Posted::Pending(*ticket)),
            None => Ok(()),
        }
    }

    fn wait(&mut self) -> Result<()> {
        let outcome = match &self.0 {
            Some((transfer, ticket)) => transfer.finish(Posted::Pending(*ticket)),
            None => Ok(()),
        };
        // Not before: whoever drops the handle sees by this that the buffer is free.
        self.0 = None;
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
        if block.part(rank)?.mapped.is_some() {
            self.put(rank, index, &data)?;
            return Ok(PutHandle::new(Pending::DONE, data));
        }
        let offset = self.offset(index, data.len())?;
        let transfer = block.transfer()?;
        let bytes: &[u8] = bytemuck::cast_slice(&data);
        (block.tally).add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
        // SAFETY: the buffer goes into the handle, which lets go of it only when the
        // operation is complete.
        let posted = unsafe { transfer.begin(&transfer::put(rank, place(block, offset), bytes))? };
        Ok(PutHandle::new(Pending::new(&transfer, posted), data))
    }

    /// Begins to get `count` elements of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_nb(&self, rank: Rank, index: usize, count: usize) -> Result<GetHandle<T>> {
        let block = self.block();
        let mapped = block.part(rank)?.mapped.is_some();
        let offset = self.offset(index, count)?;
        let mut buffer = vec![T::zeroed(); count];
        if mapped {
            self.get(rank, index, &mut buffer)?;
            return Ok(GetHandle::new(Pending::DONE, buffer));
        }
        let transfer = block.transfer()?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
        (block.tally).add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
        let access = transfer::get(rank, place(block, offset), bytes);
        // SAFETY: as in `put_nb`; nobody else has the buffer.
        let posted = unsafe { transfer.begin(&access)? };
        Ok(GetHandle::new(Pending::new(&transfer, posted), buffer))
    }
}

impl<T: Pod> PutHandle<T> {
    fn new(pending: Pending, buffer: Vec<T>) -> Self {
        Self {
            pending,
            buffer: ManuallyDrop::new(buffer),
        }
    }

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
        self.pending.wait_local()
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
    fn new(pending: Pending, buffer: Vec<T>) -> Self {
        Self {
            pending,
            buffer: ManuallyDrop::new(buffer),
        }
    }

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
    if pending.0.is_some() {
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
