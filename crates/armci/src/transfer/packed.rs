//! Operations of many runs that go on while the program computes: packed into messages.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Begun, RawOperation, Result as Hydrant};

use super::{
    Direction, Handle, Scale,
    outstanding::{Elements, Kind, Operation},
};
use crate::{Armci, Result, memory::Memory};

/// A run of bytes: where it is here, where in the other process's arena, and how many.
pub(super) type Run = (*mut u8, usize, usize);

/// What goes on.
pub(crate) enum Work {
    /// By the network itself.
    Raw(RawOperation),
    /// Runs that were copied into messages; none once it was waited for.
    Packed(Option<Begun<()>>),
    /// Runs that come in messages; none once they are in their places.
    Unpacked(Option<(Begun<Vec<u8>>, Places)>),
}

/// Where runs that are got belong, and how many bytes each has.
pub(crate) struct Places(Vec<(*mut u8, usize)>);

// SAFETY: the caller's memory is left alone until the handle was waited for, in whichever thread.
unsafe impl Send for Places {}

impl Places {
    fn fill(self, mut bytes: &[u8]) {
        for (to, len) in self.0 {
            let (run, rest) = bytes.split_at(len);
            // SAFETY: `begin_packed`'s caller left it writable until it waits.
            unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), to, len) };
            bytes = rest;
        }
    }
}

impl Work {
    /// Whether what comes next to the same memory may begin when this has left.
    pub(super) fn keeps_order(&self) -> bool {
        matches!(self, Self::Raw(raw) if raw.keeps_order())
    }

    /// Whether it is known to be over.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Raw(raw) => raw.is_complete(),
            Self::Packed(begun) => begun.is_none(),
            Self::Unpacked(begun) => begun.is_none(),
        }
    }

    pub(super) fn wait_local(&mut self) -> Hydrant<()> {
        match self {
            Self::Raw(raw) => raw.wait_local(),
            Self::Packed(_) => Ok(()),
            Self::Unpacked(_) => self.wait(),
        }
    }

    pub(super) fn wait(&mut self) -> Hydrant<()> {
        match self {
            Self::Raw(raw) => raw.wait(),
            // Where nobody can wait, as in a handler, it stays what it is.
            Self::Packed(begun) => {
                begun.as_ref().map_or(Ok(()), Begun::wait_over)?;
                begun.take().map_or(Ok(()), Begun::wait)
            }
            Self::Unpacked(begun) => {
                begun.as_ref().map_or(Ok(()), |it| it.0.wait_over())?;
                let Some((begun, places)) = begun.take() else {
                    return Ok(());
                };
                places.fill(&begun.wait()?);
                Ok(())
            }
        }
    }

    pub(super) fn test(&mut self) -> Hydrant<bool> {
        let tested = match self {
            Self::Raw(raw) => return raw.test(),
            Self::Packed(begun) => begun.as_mut().map_or(Ok(true), Begun::test),
            Self::Unpacked(begun) => begun.as_mut().map_or(Ok(true), |it| it.0.test()),
        };
        match tested {
            Ok(true) => self.wait().map(|()| true),
            Ok(false) => Ok(false),
            Err(cause) => {
                // What befell it was said.
                *self = Self::Packed(None);
                Err(cause)
            }
        }
    }
}

impl Armci {
    /// Begins to put or get runs of a process's arena, which is not mapped here. What is put is copied
    /// before this returns.
    ///
    /// # Safety
    /// 1. The runs are readable here for a put. 2. For a get they are writable until the handle was
    ///    waited for, and nobody else uses them.
    pub(super) unsafe fn begin_packed(
        &self,
        direction: Direction,
        proc: usize,
        runs: impl Iterator<Item = Run> + Clone,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let Some(bytes) = hull(runs.clone()) else {
            return Ok(());
        };
        self.settle(proc, &bytes)?;
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc));
        let work = match direction {
            Direction::Put => {
                // SAFETY: 1.
                let put = arena.put_runs_nb(rank, runs.map(|run| unsafe { readable(run) }))?;
                Work::Packed(Some(put))
            }
            Direction::Get => {
                let got = arena.get_runs_nb(rank, runs.clone().map(|(_, at, len)| (at, len)))?;
                let places = Places(runs.map(|(here, _, len)| (here, len)).collect());
                Work::Unpacked(Some((got, places)))
            }
        };
        let operation = Operation::new(self.handles.number(handle), Kind::Moves, bytes, work, None);
        self.outstanding.add(proc, operation)
    }

    /// Begins to add a scale's multiples of runs to those of a process's arena, which is not mapped here.
    /// They are copied before this returns.
    ///
    /// # Safety
    /// The runs are readable here.
    pub(super) unsafe fn begin_adding(
        &self,
        scale: &Scale,
        proc: usize,
        runs: impl Iterator<Item = Run> + Clone,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let Some(bytes) = hull(runs.clone()) else {
            return Ok(());
        };
        let elements = Elements::of(scale.number(), runs.clone().map(|(_, at, _)| at));
        self.settle_to_add(proc, &bytes, elements)?;
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc));
        // SAFETY: the caller's promise.
        let runs = runs.map(|run| unsafe { readable(run) });
        let added = arena.accumulate_runs_nb(rank, scale, runs)?;
        let operation = Operation::new(
            self.handles.number(handle),
            Kind::Adds(elements),
            bytes,
            Work::Packed(Some(added)),
            None,
        );
        self.outstanding.add(proc, operation)
    }
}

/// # Safety
/// The run is readable here for as long as what is returned is used.
unsafe fn readable<'a>((here, at, len): Run) -> (usize, &'a [u8]) {
    // SAFETY: the caller's promise.
    (at, unsafe { std::slice::from_raw_parts(here, len) })
}

/// From the first byte of runs in the arena to the last one; none if there are no runs.
fn hull(runs: impl Iterator<Item = Run>) -> Option<std::ops::Range<usize>> {
    runs.map(|(_, at, len)| at..at + len)
        .reduce(|all, run| all.start.min(run.start)..all.end.max(run.end))
}
