//! The whole address space of a peer: GASNet's EVERYTHING segment.

#![allow(unsafe_code)] // writes wherever the caller says

use hydrant_conduit::{Key, Remote};

use crate::{Job, Rank, Result, counters::Count};

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

fn anywhere(addr: u64) -> Remote {
    Remote {
        key: Key::ANY,
        offset: addr,
    }
}
