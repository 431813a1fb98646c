//! How a put or a get begins, on every conduit that the peer is reached by.

use hydrant_conduit::{Key, Posted, Remote, Ticket};

use super::{Access, Held, Transfer};
use crate::{
    Error, Rank, Result,
    counters::Count,
    progress::{self, On},
};

/// How an operation was begun.
pub(super) enum Begun {
    /// It is complete.
    Done,
    /// It is with the conduit, and nobody would be told of its end yet; and whether it needs its
    /// source no longer.
    Posted(Ticket, Held, bool),
    /// It is with the engine.
    Told(Ticket),
}

impl Transfer {
    /// Writes to a peer's memory; remotely complete on return.
    ///
    /// # Errors
    /// [`Error::InHandler`], and what befalls the operation.
    pub(crate) fn write(&self, peer: Rank, to: Remote, data: &[u8]) -> Result<()> {
        progress::may_wait("a put that goes through the network")?;
        // SAFETY: `data` is borrowed until this returns, and a put only reads it. Who names a place
        // by its address promised that it can bear it.
        unsafe { self.complete_one(&Access::put(peer, to, data)) }
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn read(&self, peer: Rank, from: Remote, data: &mut [u8]) -> Result<()> {
        progress::may_wait("a get that goes through the network")?;
        // SAFETY: `data` is borrowed mutably until this returns.
        unsafe { self.complete_one(&Access::get(peer, from, data)) }
    }

    /// Begins a put or a get.
    ///
    /// # Safety
    /// Until the operation is complete, the own memory stays there, readable and unchanged for
    /// a put, writable and left alone for a get. A place under [`Key::ANY`] can bear it.
    ///
    /// # Errors
    /// What is found at once: then nothing is under way.
    pub(crate) unsafe fn begin(&self, access: &Access) -> Result<Posted> {
        self.progress.to_the_end(|| {
            // SAFETY: the caller's promise.
            let begun = unsafe { self.set_off::<false>(access)? };
            Ok(match begun {
                Begun::Done => Posted::Done,
                Begun::Posted(ticket, held, left) => {
                    self.posted(ticket, held, left);
                    Posted::Pending(ticket)
                }
                Begun::Told(ticket) => Posted::Pending(ticket),
            })
        })
    }

    /// A put or a get that is complete on return.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), until this returns.
    unsafe fn complete_one(&self, access: &Access) -> Result<()> {
        self.progress.to_the_end(|| {
            // SAFETY: the caller's promise.
            match unsafe { self.set_off::<true>(access)? } {
                Begun::Done => Ok(()),
                Begun::Posted(ticket, held, left) => {
                    self.posted(ticket, held, left);
                    self.finish(Posted::Pending(ticket))
                }
                Begun::Told(ticket) => self.finish_one(On::Served(access.peer), ticket),
            }
        })
    }

    /// `WAITS`: the caller has nothing else to do until it is complete.
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    #[inline(always)] // one function for each kind, in which a hit goes straight through
    unsafe fn set_off<const WAITS: bool>(&self, access: &Access) -> Result<Begun> {
        match &self.registration {
            // SAFETY: the caller's promise.
            Some(registration) => unsafe { self.registered::<WAITS>(registration, access) },
            // SAFETY: the caller's promise.
            None => unsafe { self.unregistered(access) },
        }
    }

    /// Where the network reaches any memory, on both sides.
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    #[inline]
    unsafe fn unregistered(&self, access: &Access) -> Result<Begun> {
        self.progress.tally.one(Count::Indirect);
        let conduit = self.progress.conduit();
        let Access {
            peer,
            remote,
            local,
            len,
            ..
        } = *access;
        let posted = if access.is_put() {
            // SAFETY: the caller's promise.
            unsafe { conduit.write(peer, remote, local, len, Key::ANY) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { conduit.read(peer, remote, local, len, Key::ANY) }
        };
        match posted {
            Ok(Posted::Done) => Ok(Begun::Done),
            Ok(Posted::Pending(ticket)) => Ok(Begun::Posted(ticket, Held::nothing(), false)),
            Err(cause) => Err(Error::from(cause)),
        }
    }
}
