//! How a put or a get begins, on every conduit that the peer is reached by.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::{collections::VecDeque, ops::Range};

use hydrant_conduit::{Access, Local, Operation, Posted, Remote, Ticket};

use super::{Held, Transfer, registered::Straight};
use crate::{
    Rank, Result,
    counters::Count,
    progress::{self, On},
};

/// Operations of one call that are under way at once, at most.
const MANY: usize = 64;

/// How an operation was begun.
pub(super) enum Begun {
    /// It is complete.
    Done,
    /// It is with the conduit.
    Posted(Ticket),
    /// It is with the engine.
    AtEngine(Ticket),
}

/// The put of `data`, whose own side is not registered yet.
#[track_caller]
pub(crate) fn put(peer: Rank, to: Remote, data: &[u8]) -> Access {
    let local = Local::unregistered(data.as_ptr().cast_mut());
    Access::put(peer, to, local, data.len())
}

/// The get into `data`, whose own side is not registered yet.
#[track_caller]
pub(crate) fn get(peer: Rank, from: Remote, data: &mut [u8]) -> Access {
    let local = Local::unregistered(data.as_mut_ptr());
    Access::get(peer, from, local, data.len())
}

impl Transfer {
    /// Writes to a peer's memory; remotely complete on return.
    ///
    /// # Errors
    /// [`Error::InHandler`], and what befalls the operation.
    #[inline(never)]
    #[track_caller]
    pub(crate) fn write(&self, peer: Rank, to: Remote, data: &[u8]) -> Result<()> {
        progress::may_wait("a put that goes through the network")?;
        let access = put(peer, to, data).waiting();
        // SAFETY: 1. `data` is borrowed until this returns, and a put only reads it. 2. Who names a place
        // by its address promised that it can bear it.
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
        // SAFETY: `data` is borrowed mutably until this returns.
        unsafe { self.complete_one::<false>(access) }
    }

    /// Writes runs to a peer's memory, many of them under way at once and in no order; all remotely
    /// complete on return.
    ///
    /// # Errors
    /// As [`write`](Self::write), of the first that failed; some of the others are done.
    pub(crate) fn write_all<'a>(
        &self,
        peer: Rank,
        runs: impl Iterator<Item = (Remote, &'a [u8])>,
    ) -> Result<()> {
        let accesses = runs.map(|(to, data)| put(peer, to, data));
        // SAFETY: all data is borrowed until this returns, and puts only read it.
        unsafe { self.complete_all(accesses) }
    }

    /// Reads runs of a peer's memory into ranges of `data`, as [`write_all`](Self::write_all) writes
    /// them.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If a range leaves `data`.
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
        // SAFETY: `data` is borrowed mutably until this returns, and every range lies in it. If two
        // share bytes the network writes these twice.
        unsafe { self.complete_all(accesses) }
    }

    /// As [`read_all`](Self::read_all), with a place of its own for each run: the offset there, the address here, and
    /// the bytes.
    ///
    /// # Errors
    /// The same.
    ///
    /// # Safety
    /// 1. Each run is writable here until this returns.
    /// 2. No other thread uses it until then.
    pub(crate) unsafe fn read_each(
        &self,
        peer: Rank,
        runs: impl Iterator<Item = (Remote, *mut u8, usize)>,
    ) -> Result<()> {
        let accesses =
            runs.map(|(from, here, len)| Access::get(peer, from, Local::unregistered(here), len));
        // SAFETY: 1., 2.
        unsafe { self.complete_all(accesses) }
    }

    /// Puts and gets that are complete on return.
    ///
    /// # Safety
    /// As [`begin`](Self::begin) of each, until this returns.
    unsafe fn complete_all(&self, accesses: impl Iterator<Item = Access>) -> Result<()> {
        progress::may_wait("a put or a get that goes through the network")?;
        self.progress.to_the_end(|| {
            let mut open = VecDeque::with_capacity(MANY);
            let mut outcome = Ok(());
            for access in accesses {
                // SAFETY: the caller's promise.
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
    /// 1. Until the operation is complete, the own memory stays there, readable and unchanged for a put,
    ///    writable and left alone for a get.
    /// 2. A place under [`Key::ANY`](hydrant_conduit::Key::ANY) can bear it.
    ///
    /// # Errors
    /// What is found at once: then nothing is under way.
    pub(crate) unsafe fn begin(&self, access: &Access) -> Result<Posted> {
        self.progress.to_the_end(|| {
            let Some(registration) = &self.registration else {
                // SAFETY: the caller's promise.
                return unsafe { self.unregistered(access) };
            };
            // SAFETY: the caller's promise.
            Ok(match unsafe { self.registered(registration, access)? } {
                Begun::Done => Posted::Done,
                Begun::Posted(ticket) | Begun::AtEngine(ticket) => Posted::Pending(ticket),
            })
        })
    }

    /// A put, if `PUTS`, or a get that is complete on return: one function for each kind, in which most hits go
    /// straight through.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), until this returns.
    #[inline(always)]
    unsafe fn complete_one<const PUTS: bool>(&self, access: Access) -> Result<()> {
        debug_assert_eq!(access.operation == Operation::Put, PUTS);
        self.progress.to_the_end(move || {
            // SAFETY: the caller's promise.
            match unsafe { self.straight::<PUTS>(access) } {
                Straight::Over => Ok(()),
                Straight::Posted(ticket) => self.finish(Posted::Pending(ticket)),
                Straight::Failed(cause) => Err(*cause),
                Straight::No => {
                    // A copy: what has its address handed out stays in memory, and a hit has it in registers.
                    let access = access;
                    // SAFETY: the caller's promise.
                    unsafe { self.complete_one_slow(&access) }
                }
            }
        })
    }

    /// Every other put or get that is complete on return.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), until this returns.
    #[inline(never)]
    unsafe fn complete_one_slow(&self, access: &Access) -> Result<()> {
        let Some(registration) = &self.registration else {
            // SAFETY: the caller's promise.
            let posted = unsafe { self.unregistered(access)? };
            return self.finish(posted);
        };
        // SAFETY: the caller's promise.
        match unsafe { self.registered(registration, access)? } {
            Begun::Done => Ok(()),
            Begun::Posted(ticket) => self.finish(Posted::Pending(ticket)),
            Begun::AtEngine(ticket) => self.finish_one(On::Served(access.peer), ticket),
        }
    }

    /// Where the network reaches any memory, on both sides.
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    #[inline]
    unsafe fn unregistered(&self, access: &Access) -> Result<Posted> {
        self.progress.tally.one(Count::Indirect);
        // Nobody looks for the end of these in the call that posts them.
        let access = Access {
            waits: false,
            ..*access
        };
        // SAFETY: the caller's promise.
        let posted = unsafe { self.progress.conduit().post(&access) };
        let posted = posted.map_err(|cause| self.progress.why_unsent(cause))?;
        if let Posted::Pending(ticket) = posted {
            self.posted(ticket, Held::nothing(), false);
        }
        Ok(posted)
    }
}
