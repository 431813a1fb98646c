//! Hands symmetric memory over: from all ranks to each its own part, and back.

#![allow(unsafe_code)] // knows that no peer reaches exclusive memory

use std::sync::Arc;

use super::Job;
use crate::{
    Error, Exclusive, Pod, Rank, Refused, Result, Symmetric,
    collective::{CollectiveKind, HandoverFailure, JobCollective},
};

/// The request of each rank to hand memory over, which all ranks compare.
#[derive(Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct HandoverRequest {
    /// The number of the allocation.
    number: u64,
    /// 1 if other code at the rank may use the memory, or if it cannot be a slice there.
    kept: u64,
}

impl Job {
    /// Makes each rank's part of `memory` exclusive for a phase in which no rank reaches another's
    /// part. The part becomes a slice to compute on, with its halo cells, without a copy.
    /// [`share`](Self::share) ends the phase. Collective.
    ///
    /// Each rank gives its only handle. Its operations in flight on the memory are completed first.
    /// Meanwhile pointers into the memory are [`Error::Freed`].
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let mut field = job.alloc::<f64>(10)?; // eight cells, and a halo cell at either side
    /// for _step in 0..3 {
    ///     let mut own = job.exclusive(field)?;
    ///     for at in 1..9 {
    ///         own[at] = 0.25 * own[at - 1] + 0.5 * own[at] + 0.25 * own[at + 1];
    ///     }
    ///     let (first, last) = (own[1], own[8]);
    ///     field = job.share(own)?;
    ///     field.put_value(job.left(), 9, first)?;
    ///     field.put_value(job.right(), 0, last)?;
    /// }
    /// job.free(field)
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Every rank gets the error and its handle back. If a rank is lost meanwhile, a rank that
    /// cannot have its handle back gets [the error alone](Refused::memory):
    ///
    /// - [`Error::HandleInUse`] if a rank has another handle, or one to freed memory in the same
    ///   range, or uses a pointer into the memory in another thread.
    /// - [`Error::Misaligned`] for elements that need a larger alignment than segments have.
    /// - [`Error::CollectiveMismatch`] if ranks give different memory.
    /// - [`Error::Freed`], [`Error::ForeignHandle`], [`Error::InHandler`], [`Error::OutOfTurn`],
    ///   [`Error::JobOver`], [`Error::PeerLost`].
    pub fn exclusive<T: Pod>(
        &self,
        memory: Symmetric<T>,
    ) -> Result<Exclusive<T>, Refused<Symmetric<T>>> {
        let len = memory.len();
        let collective = match self.begin_handover(&memory, CollectiveKind::Exclusive) {
            Ok(collective) => collective,
            Err(cause) => return Err(refused(memory, cause)),
        };
        let start = memory.local_start();
        let mut block = memory.into_block();
        let core = self.core();
        core.memory.hide(block.number);
        // The job's own tasks, such as a put with a signal, have handles until they end.
        let finished = core.transfer.finish_all();
        // From here on no new handle can be made, so an only handle stays the only one.
        let request = HandoverRequest {
            number: block.number,
            kept: u64::from(
                Arc::get_mut(&mut block).is_none()
                    || core.memory.has_stale(&block)
                    || start.is_err(),
            ),
        };
        // Another thread may have begun an operation earlier, by a pointer into the memory.
        let done = finished
            .and_then(|()| core.transfer.finish_all())
            .map_err(HandoverFailure::from)
            .and_then(|()| self.hand_over(&collective, &request, "exclusive"));
        let start = match (start, done) {
            (Ok(start), Ok(())) => start,
            (start, done) => {
                let cause = HandoverFailure::from(Error::Freed);
                let HandoverFailure { cause, may_be_done } = done.err().unwrap_or(cause);
                let cause = start.err().unwrap_or(cause);
                // If another rank may have its slice, this one has no handle.
                let memory = (!may_be_done).then(|| {
                    core.memory.restore(&block);
                    Symmetric::new(block, len)
                });
                return Err(Refused { memory, cause });
            }
        };
        // From here on, late requests of peers for work in the part are refused.
        core.memory.close_part(block.number);
        // SAFETY: 1. `start` is the start of the own part, and is aligned, as `local_start` checked.
        // 2. Every rank has given its only handle, resolves no pointer into the memory, and had
        // completed its operations on it before it sent its request. A rank whose call failed gets
        // its handle back only if no rank has completed the handover, as `Handovers` says.
        Ok(unsafe { Exclusive::new(block, start, len) })
    }

    /// Ends the phase that [`exclusive`](Self::exclusive) began: every rank can reach every part
    /// again, and sees what its owner wrote. Collective.
    ///
    /// # Errors
    /// Every rank gets the error and its slice back, as there: [`Error::CollectiveMismatch`] if
    /// ranks give different memory; [`Error::ForeignHandle`], [`Error::InHandler`],
    /// [`Error::OutOfTurn`], [`Error::JobOver`], [`Error::PeerLost`].
    pub fn share<T: Pod>(
        &self,
        memory: Exclusive<T>,
    ) -> Result<Symmetric<T>, Refused<Exclusive<T>>> {
        let begun = (memory.block().check_job(self.progress().id))
            .and_then(|()| self.world().begin_collective(CollectiveKind::Share));
        let collective = match begun {
            Ok(collective) => collective,
            Err(cause) => return Err(refused(memory, cause)),
        };
        let request = HandoverRequest {
            number: memory.block().number,
            kept: 0,
        };
        let registry = &self.core().memory;
        // From here on this rank does not use its slice. A rank that is ahead may ask for work in
        // the part as soon as it has this rank's request.
        registry.open_part(memory.block());
        match self.hand_over(&collective, &request, "share") {
            Ok(()) => {
                let memory = memory.into_shared();
                registry.restore(memory.shared_block());
                Ok(memory)
            }
            // If another rank may have a handle, this one has no slice.
            Err(HandoverFailure { cause, may_be_done }) => {
                let memory = (!may_be_done).then(|| {
                    registry.close_part(request.number);
                    memory
                });
                Err(Refused { memory, cause })
            }
        }
    }

    /// Checks that every rank gives the same memory, and that it can be handed over.
    fn hand_over(
        &self,
        collective: &JobCollective<'_>,
        mine: &HandoverRequest,
        operation: &'static str,
    ) -> Result<(), HandoverFailure> {
        let check = |requests: &[_]| agree(requests, self.rank(), mine, operation);
        (self.core().handovers).complete(self.progress(), collective, mine, check)
    }

    fn begin_handover<T: Pod>(
        &self,
        memory: &Symmetric<T>,
        operation: CollectiveKind,
    ) -> Result<JobCollective<'_>> {
        memory.block().check_job(self.progress().id)?;
        memory.block().check()?;
        self.world().begin_collective(operation)
    }
}

/// Gives the handle back with the error.
fn refused<M>(memory: M, cause: Error) -> Refused<M> {
    Refused {
        memory: Some(memory),
        cause,
    }
}

/// Checks that every rank gave the same memory, and that it can be handed over.
fn agree(
    requests: &[HandoverRequest],
    own: Rank,
    mine: &HandoverRequest,
    operation: &'static str,
) -> Result<()> {
    let theirs = || (0..).map(Rank).zip(requests);
    if let Some((rank, other)) = theirs().find(|(_, other)| other.number != mine.number) {
        let gives = |request: &HandoverRequest| format!("gives allocation {}", request.number);
        return Err(Error::CollectiveMismatch {
            operation,
            rank,
            theirs: gives(other),
            own,
            ours: gives(mine),
        });
    }
    match theirs().find(|(_, other)| other.kept != 0) {
        Some((rank, _)) => Err(Error::HandleInUse { rank }),
        None => Ok(()),
    }
}
