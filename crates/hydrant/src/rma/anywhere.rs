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
        core.check_rank(rank)?;
        core.open_anywhere(rank)?;
        core.tally.one(Count::Puts);
        core.tally.add(Count::PutBytes, data.len() as u64);
        core.write(rank, anywhere(addr), data)?;
        core.conduit.ring(rank);
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
        core.check_rank(rank)?;
        core.open_anywhere(rank)?;
        core.tally.one(Count::Gets);
        core.tally.add(Count::GetBytes, data.len() as u64);
        core.read(rank, anywhere(addr), data)
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
        let key = match &core.registration {
            // SAFETY: 1. and 2. are the caller's promise, and the loan ends it.
            Some(_) => Some(unsafe { core.lend(addr, len)? }),
            None => None,
        };
        Ok(AnywhereLoan {
            core: Arc::clone(core),
            key,
        })
    }
}

impl Drop for AnywhereLoan {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.core.unlend(key)
        {
            let cause = Error::InHandler {
                what: "the end of a loan",
            };
            tracing::error!(%cause, "lent memory may still be registered");
        }
    }
}

fn anywhere(addr: u64) -> Remote {
    Remote {
        key: Key::ANY,
        offset: addr,
    }
}
