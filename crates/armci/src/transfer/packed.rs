//! Non-blocking operations of many runs, packed into messages.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::Factor;

use super::{
    Handle, PutOrGet,
    outstanding::{AddedElements, OperationKind, OutstandingOperation},
    work::{Destinations, TransferWork},
};
use crate::{Armci, Result, memory::Memory};

/// A run of bytes: its address here, its offset in the other process's arena, and its length.
pub(super) type ArenaRun = (*mut u8, usize, usize);

impl Armci {
    /// Begins a put or a get of runs in a process's arena that is not mapped here. A put copies its
    /// data before this returns.
    ///
    /// # Safety
    /// 1. For a put, the runs are readable here.
    /// 2. For a get, they are writable until the handle was waited for, and no other code uses them.
    pub(super) unsafe fn begin_packed(
        &self,
        direction: PutOrGet,
        proc: usize,
        runs: impl Iterator<Item = ArenaRun> + Clone,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let Some(bytes) = hull(runs.clone()) else {
            return Ok(());
        };
        self.settle(proc, &bytes)?;
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc));
        let work = match direction {
            PutOrGet::Put => {
                // SAFETY: the runs are readable, by the caller's condition 1.
                let put = arena.put_runs_nb(rank, runs.map(|run| unsafe { readable(run) }))?;
                TransferWork::Packed(Some(put))
            }
            PutOrGet::Get => {
                let got = arena.get_runs_nb(rank, runs.clone().map(|(_, at, len)| (at, len)))?;
                let destinations = Destinations(runs.map(|(here, _, len)| (here, len)).collect());
                TransferWork::Unpacked(Some((got, destinations)))
            }
        };
        let number = self.handles.number(handle);
        let operation =
            OutstandingOperation::new(number, OperationKind::Transfer, bytes, work, None);
        self.outstanding.add(proc, operation)
    }

    /// Begins an accumulate of runs into a process's arena that is not mapped here. The runs are
    /// copied before this returns.
    ///
    /// # Safety
    /// 1. The runs are readable here.
    pub(super) unsafe fn begin_adding(
        &self,
        scale: &Factor,
        proc: usize,
        runs: impl Iterator<Item = ArenaRun> + Clone,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let Some(bytes) = hull(runs.clone()) else {
            return Ok(());
        };
        let elements = AddedElements::of(scale.number(), runs.clone().map(|(_, at, _)| at));
        self.settle_to_add(proc, &bytes, elements)?;
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc));
        // SAFETY: the runs are readable, by the caller's condition 1.
        let runs = runs.map(|run| unsafe { readable(run) });
        let added = arena.accumulate_runs_nb(rank, scale, runs)?;
        let operation = OutstandingOperation::new(
            self.handles.number(handle),
            OperationKind::Accumulate(elements),
            bytes,
            TransferWork::Packed(Some(added)),
            None,
        );
        self.outstanding.add(proc, operation)
    }
}

/// # Safety
/// 1. The run is readable here as long as the slice lives.
unsafe fn readable<'a>((here, at, len): ArenaRun) -> (usize, &'a [u8]) {
    // SAFETY: the caller's condition 1.
    (at, unsafe { std::slice::from_raw_parts(here, len) })
}

/// The bytes in the arena from the first byte of all runs to the last one; `None` without runs.
fn hull(runs: impl Iterator<Item = ArenaRun>) -> Option<std::ops::Range<usize>> {
    runs.map(|(_, at, len)| at..at + len)
        .reduce(|all, run| all.start.min(run.start)..all.end.max(run.end))
}
