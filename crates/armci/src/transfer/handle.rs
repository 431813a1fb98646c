//! Handles of non-blocking operations: explicit, implicit, and aggregate ones.
//!
//! An aggregate handle gathers what goes through the network until it is waited for, and then sends it
//! as a vector, in few messages. Where memory is mapped there is nothing to gather.

#![allow(unsafe_code)] // memory is named by its address

use std::{
    ops::Range,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use hydrant::IoVector;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    Direction,
    outstanding::{IMPLICIT, Kind, Operation, each, touch},
    packed::Work,
};
use crate::{Armci, Error, Result, memory::Memory};

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
    gathered: Mutex<FxHashMap<i32, Vec<Gathered>>>,
}

/// A put or a get that was not begun.
pub(crate) struct Gathered {
    proc: usize,
    direction: Direction,
    /// Where it goes to or comes from, in the process's arena.
    offset: usize,
    bytes: usize,
    local: Local,
}

impl Gathered {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// The other side of it.
pub(crate) enum Local {
    /// Memory of the caller's.
    There(*mut u8),
    /// A value.
    Value(Box<[u8]>),
}

// SAFETY: the caller's memory is left alone until the handle was waited for, in whichever thread.
unsafe impl Send for Local {}

impl Handles {
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicI32::new(IMPLICIT),
            gathered: Mutex::default(),
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
    /// Until the handle was waited for, or the process fenced, or all is: 1. `local` is readable for
    /// `bytes`, or writable for a get. 2. Nobody writes to it, or for a get reads it.
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
            let mut gathered = self.handles.gathered.lock();
            gathered.entry(number).or_default().push(Gathered {
                proc,
                direction,
                offset,
                bytes,
                local,
            });
            self.outstanding.gather(proc, 1);
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
        let operation = Operation {
            handle: number,
            kind: Kind::Moves,
            bytes: range,
            work: Work::Raw(raw),
            kept,
        };
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
        let sent = self.send_gathered(handle.number);
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
        self.send_gathered(handle.number)?;
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
        self.send_gathered(handle.number)
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

    /// As [`settle`](Self::settle), for an accumulate: those before it may end in whatever order.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn settle_to_add(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        match self.outstanding.is_idle(proc) {
            true => Ok(()),
            false => {
                self.send_touching(proc, bytes, None)?;
                self.outstanding.settle_to_add(proc, bytes)
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

    /// Sends what handles other than one gathered, of those that gathered something about these bytes.
    fn send_touching(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        other_than: Option<i32>,
    ) -> Result<()> {
        self.send_those(|number, list| {
            let touches = |it: &Gathered| it.proc == proc && touch(&it.range(), bytes);
            Some(number) != other_than && list.iter().any(touches)
        })
    }

    /// Sends what all handles gathered for a process, or for all.
    pub(crate) fn send_all_gathered(&self, proc: Option<usize>) -> Result<()> {
        self.send_those(|_, list| proc.is_none_or(|proc| list.iter().any(|it| it.proc == proc)))
    }

    fn send_those(&self, which: impl Fn(i32, &[Gathered]) -> bool) -> Result<()> {
        let numbers: Vec<i32> = {
            let gathered = self.handles.gathered.lock();
            (gathered
                .iter()
                .filter(|(number, list)| which(**number, list)))
            .map(|(number, _)| *number)
            .collect()
        };
        each(numbers.into_iter().map(|number| self.send_gathered(number)))
    }

    fn send_gathered(&self, number: i32) -> Result<()> {
        let Some(mut list) = self.handles.gathered.lock().remove(&number) else {
            return Ok(());
        };
        let alike = |a: &Gathered, b: &Gathered| (a.proc, a.direction) == (b.proc, b.direction);
        let mut outcome = Ok(());
        let mut sent = 0;
        for some in list.chunk_by(alike) {
            let one = self.send_alike(some);
            if is_too_early(&one) {
                outcome = outcome.and(one);
                break;
            }
            outcome = outcome.and(one);
            self.outstanding.gathered(some[0].proc, some.len());
            sent += some.len();
        }
        let rest = list.split_off(sent);
        if !rest.is_empty() {
            let mut gathered = self.handles.gathered.lock();
            let since = gathered.insert(number, rest).unwrap_or_default();
            gathered.entry(number).or_default().extend(since);
        }
        outcome
    }

    /// Puts or gets to one process, all one way, through a buffer in between.
    fn send_alike(&self, some: &[Gathered]) -> Result<()> {
        let Some(Gathered {
            proc, direction, ..
        }) = some.first()
        else {
            return Ok(());
        };
        let (proc, rank) = (*proc, Memory::rank(*proc));
        some.iter()
            .try_for_each(|it| self.outstanding.settle(proc, &it.range()))?;
        let mut between = vec![0_u8; some.iter().map(|it| it.bytes).sum()];
        let mut ends = 0;
        let places: Vec<_> = (some.iter())
            .map(|it| {
                let start = ends;
                ends += it.bytes;
                (it, [it.offset], [start])
            })
            .collect();
        let vectors: Vec<_> = (places.iter())
            .map(|(it, remote, local)| IoVector {
                remote,
                local,
                run: it.bytes,
            })
            .collect();
        if *direction == Direction::Put {
            for (it, _, [start]) in &places {
                let into = &mut between[*start..*start + it.bytes];
                match &it.local {
                    Local::Value(value) => into.copy_from_slice(value),
                    // SAFETY: `begin_far`'s caller left it readable until it waits.
                    Local::There(at) => unsafe {
                        std::ptr::copy_nonoverlapping(*at, into.as_mut_ptr(), it.bytes);
                    },
                }
            }
            return Ok(self.memory.arena.put_vector(rank, &vectors, &between)?);
        }
        self.memory.arena.get_vector(rank, &vectors, &mut between)?;
        for (it, _, [start]) in &places {
            if let Local::There(at) = &it.local {
                // SAFETY: `begin_far`'s caller left it writable until it waits.
                unsafe {
                    std::ptr::copy_nonoverlapping(between[*start..].as_ptr(), *at, it.bytes);
                }
            }
        }
        Ok(())
    }
}

/// Whether nobody can wait here, as in a handler: nothing was done.
fn is_too_early(outcome: &Result<()>) -> bool {
    matches!(
        outcome,
        Err(Error::Hydrant(hydrant::Error::InHandler { .. }))
    )
}
