//! Non-blocking puts and gets on memory of which only the caller knows how long it stays: for the
//! runtimes of other languages, whose own interfaces say when it does.

#![allow(unsafe_code)] // a promise that only the caller can make

use std::sync::Arc;

use bytemuck::Pod;

use super::{contiguous::place, pending::Pending};
use crate::{
    Rank, Result,
    counters::Count,
    memory::Symmetric,
    transfer::{self, Transfer},
};

/// An operation under way on memory of the caller's; see [`Symmetric::put_raw_nb`]. If it is dropped,
/// the operation goes on, still with that memory: [`Job::quiet`](crate::Job::quiet) waits for it.
#[must_use = "only this says when the memory is free, and whether the operation failed"]
pub struct RawOperation {
    pending: Pending<Arc<Transfer>>,
    keeps_order: bool,
}

impl RawOperation {
    const DONE: Self = Self {
        pending: Pending::DONE,
        keeps_order: false,
    };

    /// Whether it is complete: remotely, if it is a put.
    ///
    /// # Errors
    /// What befell it.
    pub fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// Whether it is known to be complete, as it is at once where memory is mapped. Nothing is polled.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.pending.open().is_none()
    }

    /// Whether it is a put that stays before whatever this rank does to the same memory after local
    /// completion, but for atomic operations: where all goes by messages.
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

    /// Waits until it is complete: remotely, if it is a put.
    ///
    /// # Errors
    /// What befell it; [`Error::OutOfTurn`](crate::Error::OutOfTurn) if that was said before;
    /// [`Error::InHandler`](crate::Error::InHandler).
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
    /// 1. `source` is aligned and readable for `count` elements until the operation is known to be
    ///    locally complete, by [`RawOperation::wait_local`] or one of those that say it is complete, or
    ///    until [`Job::quiet`](crate::Job::quiet) has returned.
    /// 2. Nobody writes to it until then.
    #[track_caller]
    pub unsafe fn put_raw_nb(
        &self,
        rank: Rank,
        index: usize,
        source: *const T,
        count: usize,
    ) -> Result<RawOperation> {
        // SAFETY: 1., 2. for longer than the slice is used, or what the network is told of it.
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
        // SAFETY: 1., 2.
        let posted = unsafe { transfer.begin(&transfer::put(rank, place(block, offset), bytes))? };
        Ok(RawOperation {
            keeps_order: transfer.keeps_order(rank),
            pending: Pending::new(Arc::clone(&transfer), posted),
        })
    }

    /// Begins to get `count` elements of `rank`, from element `index` on, to `destination`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// 1. `destination` is aligned and writable for `count` elements, which are initialized, until the
    ///    operation is known to be complete, or [`Job::quiet`](crate::Job::quiet) has returned.
    /// 2. Nobody reads or writes it until then.
    #[track_caller]
    pub unsafe fn get_raw_nb(
        &self,
        rank: Rank,
        index: usize,
        destination: *mut T,
        count: usize,
    ) -> Result<RawOperation> {
        // SAFETY: 1., 2. for longer than the slice is used, or what the network is told of it.
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
        // SAFETY: 1., 2.
        let posted = unsafe { transfer.begin(&transfer::get(rank, place(block, offset), bytes))? };
        Ok(RawOperation {
            keeps_order: false,
            pending: Pending::new(Arc::clone(&transfer), posted),
        })
    }
}
