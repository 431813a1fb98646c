//! Operations on memory whose lifetime only the caller knows, on the job. For the runtimes of other
//! languages.

#![allow(unsafe_code)] // unsafe methods, which pass their callers' conditions on

use std::{panic::Location, ptr::NonNull};

use super::Job;
use crate::{Exposed, GlobalPtr, Rank, RawMessage, RawOperation, Result, Source, Tag, rma::raw};

impl Job {
    /// Begins to put `count` bytes from `source` to the memory that `to` points to.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to).
    ///
    /// # Safety
    /// 1. and 2. as [`Symmetric::put_raw_nb`](crate::Symmetric::put_raw_nb).
    pub unsafe fn put_to_raw_nb(
        &self,
        to: GlobalPtr<u8>,
        source: *const u8,
        count: usize,
    ) -> Result<RawOperation> {
        let core = self.active()?;
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        unsafe { raw::put_to((&core.transfer, &core.memory), to, source, count) }
    }

    /// Begins to get `count` bytes from the memory that `from` points to, to `destination`.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to).
    ///
    /// # Safety
    /// 1. and 2. as [`Symmetric::get_raw_nb`](crate::Symmetric::get_raw_nb).
    pub unsafe fn get_from_raw_nb(
        &self,
        from: GlobalPtr<u8>,
        destination: *mut u8,
        count: usize,
    ) -> Result<RawOperation> {
        let core = self.active()?;
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        unsafe { raw::get_from((&core.transfer, &core.memory), from, destination, count) }
    }

    /// Exposes memory of the caller to all ranks, until the guard is dropped. Not collective.
    ///
    /// # Errors
    /// As [`expose`](Self::expose).
    ///
    /// # Safety
    /// Until the guard is dropped:
    /// 1. The memory stays allocated. It does so for as long as the process if the guard is leaked, or dropped in
    ///    a handler.
    /// 2. Peers may change it at any time, and the program tolerates that.
    pub unsafe fn expose_raw(
        &self,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Exposed<'static, u8>> {
        let core = self.active()?;
        let buffer = NonNull::slice_from_raw_parts(start, bytes);
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        unsafe { Exposed::new(&core.transfer, &core.memory, buffer) }
    }

    /// Begins to send `count` bytes from `source` to `rank` under a tag. A `synchronous` send ends
    /// when the message was received, another one when the source may be used again.
    ///
    /// # Errors
    /// As [`send`](Self::send), for errors found at once. The handle reports the others.
    ///
    /// # Safety
    /// Until the handle says that the send has ended, or is dropped outside a handler:
    /// 1. `source` is readable for `count` bytes.
    /// 2. No other code writes to them.
    #[track_caller]
    pub unsafe fn send_raw_nb(
        &self,
        rank: Rank,
        tag: u64,
        (source, count): (*const u8, usize),
        synchronous: bool,
    ) -> Result<RawMessage> {
        let two_sided = &self.active()?.two_sided;
        // SAFETY: the caller's conditions 1 and 2.
        let data = unsafe { std::slice::from_raw_parts(source, count) };
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        unsafe {
            RawMessage::send(
                two_sided,
                (rank, tag, data),
                synchronous,
                Location::caller(),
            )
        }
    }

    /// Begins to receive the first message that fits into the `count` bytes at `destination`.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), for errors found at once. The handle reports the others.
    ///
    /// # Safety
    /// Until the handle says that the receive has ended, or is dropped outside a handler:
    /// 1. `destination` is writable for `count` initialized bytes.
    /// 2. No other code uses them.
    #[track_caller]
    pub unsafe fn receive_raw_nb(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        (destination, count): (*mut u8, usize),
    ) -> Result<RawMessage> {
        let two_sided = &self.active()?.two_sided;
        // SAFETY: the caller's conditions 1 and 2.
        let data = unsafe { std::slice::from_raw_parts_mut(destination, count) };
        let fits = (source.into(), tag.into());
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        unsafe { RawMessage::receive(two_sided, fits, data, Location::caller()) }
    }
}
