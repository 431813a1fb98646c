//! Handles of non-blocking operations: explicit, implicit, and aggregate handles.
//!
//! An aggregate handle [gathers](super::gathered) operations through the network until it is waited
//! for.

#![allow(unsafe_code)] // memory is named by its address

use std::{
    ops::Range,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use super::{
    PutOrGet,
    gathered::{GatherBuffer, GatherLists, Gathered, is_too_early},
    missed::{Asker, IMPLICIT, OperationOwner},
    outstanding::{AddedElements, OperationKind, OutstandingOperation},
    work::TransferWork,
};
use crate::{Armci, Result, memory::Memory};

/// The handle of non-blocking operations. Several operations may begin with one handle. A zeroed
/// handle names no operation.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Handle {
    /// The number of the operations that began with the handle; 0 if all of them were complete at
    /// once.
    pub number: i32,
    /// 1 if the handle gathers, else 0.
    pub is_aggregate: i32,
}

impl Handle {
    /// A gathering handle, for a call that waits for it.
    pub(super) const GATHERING: Self = Self {
        number: 0,
        is_aggregate: 1,
    };
}

/// Numbers the handles, and keeps the operations that aggregate handles gathered.
pub(crate) struct HandleTable {
    last: AtomicI32,
    pub(super) gathered: GatherLists,
}

impl HandleTable {
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicI32::new(IMPLICIT),
            gathered: GatherLists::default(),
        }
    }

    /// The number of a handle. A handle without a number gets one.
    pub(super) fn number(&self, handle: Option<&mut Handle>) -> i32 {
        let Some(handle) = handle else {
            return IMPLICIT;
        };
        if handle.number == 0 {
            let next = || self.last.fetch_add(1, Relaxed).wrapping_add(1);
            // The counter wraps, and skips the number of implicit handles.
            handle.number = std::iter::repeat_with(next)
                .find(|number| *number != IMPLICIT)
                .unwrap_or(1);
        }
        handle.number
    }
}

impl Armci {
    /// Begins a put or a get of memory that is not mapped here. `None` means an implicit handle.
    ///
    /// # Safety
    /// Until the handle was waited for, or the process was fenced:
    /// 1. `local` is readable for `bytes`, or writable for a get.
    /// 2. No other code writes to it, or for a get uses it.
    pub(crate) unsafe fn begin_far(
        &self,
        direction: PutOrGet,
        (proc, offset): (usize, usize),
        (local, bytes): (GatherBuffer, usize),
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let range = offset..offset + bytes;
        let gathers = handle
            .as_ref()
            .is_some_and(|handle| handle.is_aggregate != 0);
        let number = self.handles.number(handle);
        if gathers {
            self.send_touching(proc, &range, Some(number))?;
            // The count comes first, because another thread may send the operation at once.
            self.outstanding.count_gathered(proc, 1);
            let one = Gathered {
                proc,
                direction,
                offset,
                bytes,
                local,
                whose: OperationOwner::of_handle(number),
            };
            self.handles.gathered.add(number, one);
            return Ok(());
        }
        self.settle(proc, &range)?;
        let (at, kept) = match local {
            GatherBuffer::Memory(at) => (at, None),
            GatherBuffer::Value(mut value) => (value.as_mut_ptr(), Some(value)),
        };
        let rank = Memory::rank(proc);
        let arena = &self.memory.arena;
        // A value stays in its box until the operation is waited for.
        let raw = match direction {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2.
            PutOrGet::Put => unsafe { arena.put_raw_nb(rank, offset, at, bytes) },
            // SAFETY: 1 and 2. The caller's conditions 1 and 2.
            PutOrGet::Get => unsafe { arena.get_raw_nb(rank, offset, at, bytes) },
        }?;
        if raw.is_complete() {
            return Ok(());
        }
        let operation = OutstandingOperation::new(
            number,
            OperationKind::Transfer,
            range,
            TransferWork::Raw(raw),
            kept,
        );
        self.outstanding.add(proc, operation)
    }

    /// Waits for the operations that began with a handle, or with implicit handles. On return a
    /// put's source is free, and a get's data has arrived. ARMCI's `Wait`, and `WaitAll`.
    ///
    /// # Errors
    /// The error of an operation that failed.
    pub fn wait(&self, handle: Option<&mut Handle>) -> Result<()> {
        let Some(handle) = handle else {
            return self.outstanding.wait(IMPLICIT);
        };
        if handle.number == 0 {
            return Ok(());
        }
        let sent = self.send_gathered(handle.number, Asker::OfHandle(handle.number));
        let outcome = sent.and(self.outstanding.wait(handle.number));
        if !is_too_early(&outcome) {
            handle.number = 0;
        }
        outcome
    }

    /// Waits for the operations to a process that began with implicit handles. ARMCI's `WaitProc`.
    ///
    /// # Errors
    /// [`Error::NoProcess`](crate::Error::NoProcess), and the error of an operation that failed.
    pub fn wait_process(&self, proc: i32) -> Result<()> {
        let proc = self.memory.process(proc)?;
        self.outstanding.wait_at(proc, IMPLICIT)
    }

    /// Returns true if the operations that began with a handle are complete. ARMCI's `Test`.
    ///
    /// # Errors
    /// The error of an operation that failed.
    pub fn test(&self, handle: &mut Handle) -> Result<bool> {
        if handle.number == 0 {
            return Ok(true);
        }
        self.send_gathered(handle.number, Asker::OfHandle(handle.number))?;
        let done = self.outstanding.test(handle.number)?;
        if done {
            handle.number = 0;
        }
        Ok(done)
    }

    /// Sends the operations that a handle gathered, and stops it from gathering. ARMCI's
    /// `UNSET_AGGREGATE_HANDLE`.
    ///
    /// # Errors
    /// The error of an operation that failed.
    pub fn stop_gathering(&self, handle: &mut Handle) -> Result<()> {
        handle.is_aggregate = 0;
        self.send_gathered(handle.number, Asker::OfHandle(handle.number))
    }

    /// Completes the earlier operations that touch any of these bytes, and sends those that were
    /// gathered. So the operations of one process on the same bytes take effect in order.
    ///
    /// # Errors
    /// The error of an operation that failed.
    #[inline]
    pub(crate) fn settle(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        if self.outstanding.is_idle(proc) {
            Ok(())
        } else {
            self.settle_slowly(proc, bytes)
        }
    }

    #[cold]
    fn settle_slowly(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.send_touching(proc, bytes, None)?;
        self.outstanding.settle(proc, bytes)
    }

    /// As [`settle`](Self::settle), before an accumulate. Earlier accumulates to elements at the
    /// same offsets may complete in any order.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(crate) fn settle_to_add(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        elements: AddedElements,
    ) -> Result<()> {
        if self.outstanding.is_idle(proc) {
            return Ok(());
        }
        self.send_touching(proc, bytes, None)?;
        self.outstanding.settle_to_add(proc, bytes, elements)
    }

    /// As [`settle`](Self::settle), before an operation that the network does not order after
    /// earlier ones.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    #[inline]
    pub(crate) fn settle_all(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        if self.outstanding.is_idle(proc) {
            Ok(())
        } else {
            self.settle_all_slowly(proc, bytes)
        }
    }

    #[cold]
    fn settle_all_slowly(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.send_touching(proc, bytes, None)?;
        self.outstanding.settle_all(proc, bytes)
    }
}
