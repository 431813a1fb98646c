//! Symmetric memory that changes hands: from all ranks to each its part, and back.

#![allow(unsafe_code)] // vouches that no peer reaches what is exclusive

use std::sync::Arc;

use super::Job;
use crate::{
    Error, Exclusive, Pod, Rank, Refused, Result, Symmetric,
    collective::{CollectiveKind, JobCollective},
};

/// What each rank tells the others of memory that is to change hands.
#[derive(Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Ticket {
    /// The allocation's number.
    number: u64,
    /// 1 if something else at the rank may use it, or it cannot be a slice there.
    kept: u64,
}

impl Job {
    /// Makes each rank's part of `memory` its own for a phase in which nobody reaches another's:
    /// a slice to compute on, halo cells included, without a copy and without a barrier's doubt.
    /// [`share`](Self::share) ends the phase. Collective.
    ///
    /// Each rank gives its only handle. What it has under way with it is completed first; pointers
    /// into the memory are [`Error::Freed`] meanwhile.
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
    /// With the handle, at every rank: [`Error::HandleInUse`] if some rank has another one, or one to
    /// freed memory that lay in its place, or uses a pointer into the memory in another thread;
    /// [`Error::Misaligned`] for elements aligned to more than the segments are;
    /// [`Error::CollectiveMismatch`] if ranks give different memory. And
    /// [`Error::Freed`], [`Error::ForeignHandle`], [`Error::InHandler`], [`Error::OutOfTurn`],
    /// [`Error::JobOver`], [`Error::PeerLost`].
    pub fn exclusive<T: Pod>(
        &self,
        memory: Symmetric<T>,
    ) -> Result<Exclusive<T>, Refused<Symmetric<T>>> {
        let len = memory.len();
        let affair = match self.affair_of(&memory, CollectiveKind::Exclusive) {
            Ok(affair) => affair,
            Err(cause) => return Err(refused(memory, cause)),
        };
        let start = memory.local_start();
        let mut block = memory.into_block();
        let core = self.core();
        core.memory.hide(block.number);
        // Tasks of the job's own, as of a put with a signal, have handles until they are over.
        let finished = core.transfer.finish_all();
        // From here on who has no handle gets none, so that one that is the only one stays it.
        let ticket = Ticket {
            number: block.number,
            kept: u64::from(
                Arc::get_mut(&mut block).is_none()
                    || core.memory.has_stale(&block)
                    || start.is_err(),
            ),
        };
        // Another thread may have begun something by a pointer that led there before.
        let agreed = finished
            .and_then(|()| core.transfer.finish_all())
            .and_then(|()| agree(&affair, self.rank(), &ticket, "exclusive"));
        let start = match (start, agreed) {
            (Ok(start), Ok(())) => start,
            (start, agreed) => {
                core.memory.restore(&block);
                let cause = start.err().or(agreed.err()).unwrap_or(Error::Freed);
                return Err(refused(Symmetric::new(block, len), cause));
            }
        };
        // What a peer asked for in vain is not done from here on, if it is on its way still.
        core.memory.close_part(block.number);
        // Whoever has not agreed has a handle, and comes here not at all; whoever has comes through
        // only if all do, and has none if not.
        if let Err(cause) = affair.barrier() {
            return Err(Refused {
                memory: None,
                cause,
            });
        }
        // SAFETY: 1. It is this part's start, which was found to be aligned. 2. Every rank has given
        // its only handle, resolves no pointer into the memory, and had completed what it began with
        // it before it agreed.
        Ok(unsafe { Exclusive::new(block, start, len) })
    }

    /// Ends the phase that [`exclusive`](Self::exclusive) began: every rank can reach every part
    /// again, and sees what its owner wrote. Collective.
    ///
    /// # Errors
    /// With the handle, at every rank: [`Error::CollectiveMismatch`] if ranks give different memory.
    /// And [`Error::ForeignHandle`], [`Error::InHandler`], [`Error::OutOfTurn`],
    /// [`Error::JobOver`], [`Error::PeerLost`].
    pub fn share<T: Pod>(
        &self,
        memory: Exclusive<T>,
    ) -> Result<Symmetric<T>, Refused<Exclusive<T>>> {
        let agreed = (memory.block().check_job(self.progress().id))
            .and_then(|()| self.world().begin_collective(CollectiveKind::Share))
            .and_then(|affair| {
                let ticket = Ticket {
                    number: memory.block().number,
                    kept: 0,
                };
                agree(&affair, self.rank(), &ticket, "share").map(|()| affair)
            });
        let affair = match agreed {
            Ok(affair) => affair,
            Err(cause) => return Err(refused(memory, cause)),
        };
        // From here on nothing at this rank is a slice of it any more. As there, whoever has one
        // still comes here not at all, and then nobody gets a handle.
        let memory = memory.into_shared();
        if let Err(cause) = affair.barrier() {
            return Err(Refused {
                memory: None,
                cause,
            });
        }
        self.core().memory.restore(memory.shared_block());
        Ok(memory)
    }

    fn affair_of<T: Pod>(
        &self,
        memory: &Symmetric<T>,
        operation: CollectiveKind,
    ) -> Result<JobCollective<'_>> {
        memory.block().check_job(self.progress().id)?;
        memory.block().check()?;
        self.world().begin_collective(operation)
    }
}

/// It did not change hands.
fn refused<M>(memory: M, cause: Error) -> Refused<M> {
    Refused {
        memory: Some(memory),
        cause,
    }
}

/// Whether every rank gave the same memory, and may.
fn agree(
    affair: &JobCollective<'_>,
    own: Rank,
    mine: &Ticket,
    operation: &'static str,
) -> Result<()> {
    let tickets = affair.all_gather(mine)?;
    let theirs = || (0..).map(Rank).zip(&tickets);
    if let Some((rank, other)) = theirs().find(|(_, other)| other.number != mine.number) {
        let gives = |ticket: &Ticket| format!("gives allocation {}", ticket.number);
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
