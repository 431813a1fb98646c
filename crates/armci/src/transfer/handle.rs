//! Handles of non-blocking operations: explicit, implicit, and aggregate ones.
//!
//! An aggregate handle [gathers](super::gathered) what goes through the network until it is waited for.

#![allow(unsafe_code)] // memory is named by its address

use std::{
    ops::Range,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use super::{
    Direction,
    gathered::{Gathered, Lists, Local, is_too_early},
    missed::{Asker, Whose},
    outstanding::{Elements, IMPLICIT, Kind, Operation},
    packed::Work,
};
use crate::{Armci, Result, memory::Memory};

/// What a caller knows non-blocking operations by; zeroed, it stands for none. Several may begin with
/// one handle.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Handle {
    /// The number of what was begun with it; 0 if all was complete at once.
    pub number: i32,
    /// Whether it gathers.
    pub is_aggregate: i32,
}

impl Handle {
    /// One that gathers, for a call that waits for it.
    pub(super) const GATHERING: Self = Self {
        number: 0,
        is_aggregate: 1,
    };
}

/// Gives handles numbers, and keeps what aggregate ones gathered.
pub(crate) struct Handles {
    last: AtomicI32,
    pub(super) gathered: Lists,
}

impl Handles {
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicI32::new(IMPLICIT),
            gathered: Lists::default(),
        }
    }

    /// The number of a handle, which gets one if it has none.
    pub(super) fn number(&self, handle: Option<&mut Handle>) -> i32 {
        let Some(handle) = handle else {
            return IMPLICIT;
        };
        if handle.number == 0 {
            let next = || self.last.fetch_add(1, Relaxed).wrapping_add(1);
            // After all of them it begins anew.
            handle.number = std::iter::repeat_with(next)
                .find(|number| *number != IMPLICIT)
                .unwrap_or(1);
        }
        handle.number
    }
}

impl Armci {
    /// Begins a put or a get of memory that is not mapped here, with a handle, or an implicit one.
    ///
    /// # Safety
    /// Until the handle was waited for, or the process fenced, or all is:
    /// 1. `local` is readable for `bytes`, or writable for a get.
    /// 2. Nobody writes to it, or for a get reads it.
    pub(crate) unsafe fn begin_far(
        &self,
        direction: Direction,
        (proc, offset): (usize, usize),
        (local, bytes): (Local, usize),
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let range = offset..offset + bytes;
        let gathers = handle
            .as_ref()
            .is_some_and(|handle| handle.is_aggregate != 0);
        let number = self.handles.number(handle);
        if gathers {
            self.send_touching(proc, &range, Some(number))?;
            // Before others may send it.
            self.outstanding.gather(proc, 1);
            let one = Gathered {
                proc,
                direction,
                offset,
                bytes,
                local,
                whose: Whose::begun(number),
            };
            self.handles.gathered.add(number, one);
            return Ok(());
        }
        self.settle(proc, &range)?;
        let (at, kept) = match local {
            Local::There(at) => (at, None),
            Local::Value(mut value) => (value.as_mut_ptr(), Some(value)),
        };
        let rank = Memory::rank(proc);
        let arena = &self.memory.arena;
        // SAFETY: 1., 2.; a value stays in its box until the operation is waited for.
        let raw = unsafe {
            match direction {
                Direction::Put => arena.put_raw_nb(rank, offset, at, bytes)?,
                Direction::Get => arena.get_raw_nb(rank, offset, at, bytes)?,
            }
        };
        if raw.is_complete() {
            return Ok(());
        }
        let operation = Operation::new(number, Kind::Moves, range, Work::Raw(raw), kept);
        self.outstanding.add(proc, operation)
    }

    /// Waits for what was begun with a handle, or with implicit ones: a put's source is free, a get's
    /// data is there. ARMCI's `Wait`, and `WaitAll`.
    ///
    /// # Errors
    /// What befell one of them.
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

    /// Waits for what was begun to a process with implicit handles. ARMCI's `WaitProc`.
    ///
    /// # Errors
    /// [`Error::NoProcess`](crate::Error::NoProcess), and what befell one of them.
    pub fn wait_process(&self, proc: i32) -> Result<()> {
        let proc = self.memory.process(proc)?;
        self.outstanding.wait_at(proc, IMPLICIT)
    }

    /// Whether what was begun with a handle is complete. ARMCI's `Test`.
    ///
    /// # Errors
    /// What befell one of them.
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

    /// Sends what a handle gathered, and stops it from gathering. ARMCI's `UNSET_AGGREGATE_HANDLE`.
    ///
    /// # Errors
    /// What befell one of them.
    pub fn stop_gathering(&self, handle: &mut Handle) -> Result<()> {
        handle.is_aggregate = 0;
        self.send_gathered(handle.number, Asker::OfHandle(handle.number))
    }

    /// Waits until what was begun before and touches any of these bytes is done, and sends of that what
    /// was gathered: what one process does to one place is done in the order in which it did so.
    ///
    /// # Errors
    /// What befell one of them.
    #[inline]
    pub(crate) fn settle(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        match self.outstanding.is_idle(proc) {
            true => Ok(()),
            false => self.settle_slowly(proc, bytes),
        }
    }

    #[cold]
    fn settle_slowly(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.send_touching(proc, bytes, None)?;
        self.outstanding.settle(proc, bytes)
    }

    /// As [`settle`](Self::settle), for an accumulate: those before it to elements alike may end in
    /// whatever order.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn settle_to_add(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        elements: Elements,
    ) -> Result<()> {
        match self.outstanding.is_idle(proc) {
            true => Ok(()),
            false => {
                self.send_touching(proc, bytes, None)?;
                self.outstanding.settle_to_add(proc, bytes, elements)
            }
        }
    }

    /// As [`settle`](Self::settle), before what no operation stays before by itself.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) fn settle_all(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        match self.outstanding.is_idle(proc) {
            true => Ok(()),
            false => self.settle_all_slowly(proc, bytes),
        }
    }

    #[cold]
    fn settle_all_slowly(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.send_touching(proc, bytes, None)?;
        self.outstanding.settle_all(proc, bytes)
    }
}
