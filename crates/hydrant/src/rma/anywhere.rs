//! The whole address space of a peer: GASNet's EVERYTHING segment.
//!
//! Where registrations keep pointing at the pages they were made of, memory that is named by its
//! address is not kept registered: its pages may come and go unseen. What the program knows to stay
//! it [lends](Job::lend_anywhere), and gets firehoses to it.

#![allow(unsafe_code)] // writes wherever the caller says

use hydrant_conduit::{Key, Remote};

use std::sync::Arc;

use crate::{Error, Job, Rank, Result, counters::Count, job::Core, progress};

impl Job {
    /// Puts bytes at any address of a peer: what the compiler of a global-address-space
    /// language needs. Pages may come and go under it; what is not mapped is an error.
    ///
    /// # Errors
    /// [`Error::AnywhereRefused`](crate::Error::AnywhereRefused) unless both ranks have
    /// [`JobBuilder::anywhere`](crate::JobBuilder::anywhere);
    /// [`Error::RankOutOfRange`](crate::Error::RankOutOfRange),
    /// [`Error::BadAddress`](crate::Error::BadAddress) if the memory is not mapped or is
    /// read-only; part of it may have been written then.
    /// [`Error::PeerLost`](crate::Error::PeerLost).
    ///
    /// # Safety
    /// The program at `rank` can bear the change: no reference there promises that the bytes
    /// stay as they are, nothing reads them at the same time without atomics, and they are a
    /// valid value of whatever lives there.
    pub unsafe fn put_anywhere(&self, rank: Rank, addr: u64, data: &[u8]) -> Result<()> {
        let core = self.core();
        check(core, rank)?;
        core.tally.one(Count::Puts);
        core.tally.add(Count::PutBytes, data.len() as u64);
        (core.write(rank, anywhere(addr), data)).map_err(|cause| named(cause, rank))?;
        core.conduit.notify(rank);
        Ok(())
    }

    /// Gets bytes from any address of a peer.
    ///
    /// # Errors
    /// As [`put_anywhere`](Self::put_anywhere).
    ///
    /// # Safety
    /// The bytes may be anything, secrets of the peer's program included, and torn if it
    /// writes them meanwhile.
    pub unsafe fn get_anywhere(&self, rank: Rank, addr: u64, data: &mut [u8]) -> Result<()> {
        let core = self.core();
        check(core, rank)?;
        core.tally.one(Count::Gets);
        core.tally.add(Count::GetBytes, data.len() as u64);
        (core.read(rank, anywhere(addr), data)).map_err(|cause| named(cause, rank))
    }
}

/// Own memory that stays where it is; made by [`Job::lend_anywhere`].
#[must_use = "the loan ends when it is dropped"]
pub struct AnywhereLoan {
    core: Arc<Core>,
    /// None where nothing is registered.
    key: Option<Key>,
}

impl Job {
    /// Says that memory stays mapped as it is until the loan is dropped, so that it may be kept
    /// registered for peers that name it by its address. They need not know. It costs nothing
    /// where nothing is registered.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    ///
    /// # Safety
    /// 1. Until the loan was dropped, the memory stays mapped, and nothing is mapped in its place.
    /// 2. It bears being written by peers meanwhile, as [`put_anywhere`](Self::put_anywhere) has
    ///    it.
    /// 3. The loan is not dropped in a handler, where peers cannot be waited for.
    pub unsafe fn lend_anywhere(&self, addr: *mut u8, len: usize) -> Result<AnywhereLoan> {
        progress::may_wait("lend_anywhere")?;
        let core = self.core();
        let key = core.lend_steady((addr.expose_provenance() as u64, len as u64))?;
        Ok(AnywhereLoan {
            core: Arc::clone(core),
            key,
        })
    }
}

impl Drop for AnywhereLoan {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.core.to_the_end(|| self.core.unlend_steady(key))
        {
            let cause = Error::InHandler {
                what: "the end of a loan",
            };
            tracing::error!(%cause, "lent memory may still be registered");
        }
    }
}

/// Whether this rank may ask that of another at all.
fn check(core: &Core, rank: Rank) -> Result<()> {
    core.check_rank(rank)?;
    if core.settings.anywhere {
        return Ok(());
    }
    Err(Error::AnywhereRefused { rank: core.rank })
}

/// What a peer means that says it lends nothing there.
fn named(cause: Error, rank: Rank) -> Error {
    match cause {
        Error::Revoked { .. } => Error::AnywhereRefused { rank },
        cause => cause,
    }
}

fn anywhere(addr: u64) -> Remote {
    Remote {
        key: Key::ANY,
        offset: addr,
    }
}
