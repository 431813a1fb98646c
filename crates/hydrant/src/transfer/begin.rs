//! Begins puts and gets, on every conduit.

#![allow(unsafe_code)] // lends borrowed memory to the conduit until the operation is complete

use std::{collections::VecDeque, ops::Range};

use hydrant_conduit::{Access, AccessKind, Local, Posted, Remote};

use super::{
    OperationHolds, Transfer,
    registered::{BeginOutcome, FastAttempt},
};
use crate::{
    Rank, Result,
    counters::Count,
    progress::{self, On},
};

/// The limit of operations of one call in flight at once.
const MANY: usize = 64;

/// Returns the put of `data`, whose own side is not registered yet.
#[track_caller]
pub(crate) fn put(peer: Rank, to: Remote, data: &[u8]) -> Access {
    let local = Local::unregistered(data.as_ptr().cast_mut());
    Access::put(peer, to, local, data.len())
}

/// Returns the get into `data`, whose own side is not registered yet.
#[track_caller]
pub(crate) fn get(peer: Rank, from: Remote, data: &mut [u8]) -> Access {
    let local = Local::unregistered(data.as_mut_ptr());
    Access::get(peer, from, local, data.len())
}

impl Transfer {
    /// Writes to a peer's memory. The put is remotely complete on return.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler), and the failure of the operation.
    #[inline(never)]
    #[track_caller]
    pub(crate) fn write(&self, peer: Rank, to: Remote, data: &[u8]) -> Result<()> {
        progress::may_wait("a put that goes through the network")?;
        let access = put(peer, to, data).waiting();
        // SAFETY: 1. `data` is borrowed until this returns, and a put only reads it. 2. A caller
        // that names memory by its address has promised that it may be accessed.
        unsafe { self.complete_one::<true>(access) }
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline(never)]
    #[track_caller]
    pub(crate) fn read(&self, peer: Rank, from: Remote, data: &mut [u8]) -> Result<()> {
        progress::may_wait("a get that goes through the network")?;
        let access = get(peer, from, data).waiting();
        // SAFETY: 1. `data` is borrowed mutably until this returns. 2. As in `write`.
        unsafe { self.complete_one::<false>(access) }
    }

    /// Writes runs to a peer's memory, many in flight at once and in no order. All are remotely
    /// complete on return.
    ///
    /// # Errors
    /// As [`write`](Self::write), for the first run that failed. Some other runs may be complete.
    pub(crate) fn write_all<'a>(
        &self,
        peer: Rank,
        runs: impl Iterator<Item = (Remote, &'a [u8])>,
    ) -> Result<()> {
        let accesses = runs.map(|(to, data)| put(peer, to, data));
        // SAFETY: 1. All data is borrowed until this returns, and puts only read it. 2. As in
        // `write`.
        unsafe { self.complete_all(accesses) }
    }

    /// Reads runs of a peer's memory into ranges of `data`, as [`write_all`](Self::write_all)
    /// writes them.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    ///
    /// # Panics
    /// Panics if a range exceeds `data`.
    pub(crate) fn read_all(
        &self,
        peer: Rank,
        data: &mut [u8],
        runs: impl Iterator<Item = (Remote, Range<usize>)>,
    ) -> Result<()> {
        let (len, start) = (data.len(), data.as_mut_ptr());
        let accesses = runs.map(|(from, range)| {
            assert!(range.start <= range.end && range.end <= len);
            let local = Local::unregistered(start.wrapping_add(range.start));
            Access::get(peer, from, local, range.len())
        });
        // SAFETY: 1. `data` is borrowed mutably until this returns, and every range lies in it.
        // Bytes in two ranges are written twice by the network. 2. As in `write`.
        unsafe { self.complete_all(accesses) }
    }

    /// As [`read_all`](Self::read_all), with a destination for each run: the remote offset, the own
    /// address, and the bytes.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    ///
    /// # Safety
    /// Until this returns:
    /// 1. The own memory of each run is writable.
    /// 2. No other thread uses that memory.
    pub(crate) unsafe fn read_each(
        &self,
        peer: Rank,
        runs: impl Iterator<Item = (Remote, *mut u8, usize)>,
    ) -> Result<()> {
        let accesses =
            runs.map(|(from, here, len)| Access::get(peer, from, Local::unregistered(here), len));
        // SAFETY: 1. The caller's conditions 1 and 2. 2. As in `write`.
        unsafe { self.complete_all(accesses) }
    }

    /// Does puts or gets that are complete on return.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin), for each access, until this returns.
    unsafe fn complete_all(&self, accesses: impl Iterator<Item = Access>) -> Result<()> {
        progress::may_wait("a put or a get that goes through the network")?;
        self.progress.abort_on_unwind(|| {
            let mut open = VecDeque::with_capacity(MANY);
            let mut outcome = Ok(());
            for access in accesses {
                // SAFETY: 1., 2. The caller's conditions 1 and 2.
                match unsafe { self.begin(&access) } {
                    Ok(Posted::Done) => continue,
                    Ok(posted) => open.push_back(posted),
                    Err(cause) => outcome = Err(cause),
                }
                if open.len() == MANY {
                    let first = open.pop_front().map_or(Ok(()), |first| self.finish(first));
                    outcome = outcome.and(first);
                }
                if outcome.is_err() {
                    break;
                }
            }
            for posted in open {
                let ended = self.finish(posted);
                outcome = outcome.and(ended);
            }
            outcome
        })
    }

    /// Begins a put or a get.
    ///
    /// # Safety
    /// 1. Until the operation is complete, the own memory stays allocated. It is readable and
    ///    unchanged for a put, and writable and otherwise unused for a get.
    /// 2. Memory named under [`Key::ANY`](hydrant_conduit::Key::ANY) may be accessed at the peer.
    ///
    /// # Errors
    /// Errors found at once. Then nothing is in flight.
    pub(crate) unsafe fn begin(&self, access: &Access) -> Result<Posted> {
        self.progress.abort_on_unwind(|| {
            let Some(registration) = &self.registration else {
                // SAFETY: 1., 2. The caller's conditions 1 and 2.
                return unsafe { self.begin_unregistered(access) };
            };
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            Ok(
                match unsafe { self.begin_registered(registration, access)? } {
                    BeginOutcome::Done => Posted::Done,
                    BeginOutcome::Posted(ticket) | BeginOutcome::AtEngine(ticket) => {
                        Posted::Pending(ticket)
                    }
                },
            )
        })
    }

    /// Does a put, if `PUTS`, or a get that is complete on return. There is one function for each
    /// kind, and most hits take its fast path.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin), until this returns.
    #[inline(always)]
    unsafe fn complete_one<const PUTS: bool>(&self, access: Access) -> Result<()> {
        debug_assert_eq!(access.kind == AccessKind::Put, PUTS);
        self.progress.abort_on_unwind(move || {
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            match unsafe { self.post_fast::<PUTS>(access) } {
                FastAttempt::Done => Ok(()),
                FastAttempt::Posted(ticket) => self.finish(Posted::Pending(ticket)),
                FastAttempt::Failed(cause) => Err(*cause),
                FastAttempt::NotTaken => {
                    // The copy's address is passed on, which puts the copy in memory. The original
                    // stays in registers.
                    let access = access;
                    // SAFETY: 1., 2. The caller's conditions 1 and 2.
                    unsafe { self.complete_one_slow(&access) }
                }
            }
        })
    }

    /// Does any other put or get that is complete on return.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin), until this returns.
    #[inline(never)]
    unsafe fn complete_one_slow(&self, access: &Access) -> Result<()> {
        let Some(registration) = &self.registration else {
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            let posted = unsafe { self.begin_unregistered(access)? };
            return self.finish(posted);
        };
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        match unsafe { self.begin_registered(registration, access)? } {
            BeginOutcome::Done => Ok(()),
            BeginOutcome::Posted(ticket) => self.finish(Posted::Pending(ticket)),
            BeginOutcome::AtEngine(ticket) => self.finish_one(On::Served(access.peer), ticket),
        }
    }

    /// Begins an access on a network that reaches any memory, on both sides.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin).
    #[inline]
    unsafe fn begin_unregistered(&self, access: &Access) -> Result<Posted> {
        self.progress.tally.one(Count::Indirect);
        // The posting call does not look for the end of these operations.
        let access = Access {
            waits: false,
            ..*access
        };
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        let posted = unsafe { self.progress.conduit().post(&access) };
        let posted = posted.map_err(|cause| self.progress.why_unsent(cause))?;
        if let Posted::Pending(ticket) = posted {
            self.note_posted(ticket, OperationHolds::nothing(), false);
        }
        Ok(posted)
    }
}
