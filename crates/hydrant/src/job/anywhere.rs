//! The whole address space of a peer, on the job: GASNet's EVERYTHING segment.

#![allow(unsafe_code)] // declares unsafe methods, which hand on what their callers promise

use super::Job;
use crate::{AnywhereLoan, Error, Rank, Result, progress, rma::anywhere};

impl Job {
    /// Puts bytes at any address of a peer: what the compiler of a global-address-space
    /// language needs. Pages may come and go under it; what is not mapped is an error.
    ///
    /// # Errors
    /// [`Error::AnywhereRefused`] unless both ranks have
    /// [`JobBuilder::anywhere`](crate::JobBuilder::anywhere);
    /// [`Error::RankOutOfRange`],
    /// [`Error::BadAddress`] if the memory is not mapped or is
    /// read-only; part of it may have been written then.
    /// [`Error::PeerLost`].
    ///
    /// # Safety
    /// The program at `rank` can bear the change:
    /// 1. No reference there promises that the bytes stay as they are.
    /// 2. Nothing reads them at the same time without atomics.
    /// 3. They are a valid value of whatever lives there.
    pub unsafe fn put_anywhere(&self, rank: Rank, addr: u64, data: &[u8]) -> Result<()> {
        self.check_anywhere(rank)?;
        // SAFETY: the caller's promise.
        unsafe { anywhere::put(&self.core().transfer, rank, addr, data) }
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
        self.check_anywhere(rank)?;
        // SAFETY: the caller's promise.
        unsafe { anywhere::get(&self.core().transfer, rank, addr, data) }
    }

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
        // SAFETY: the caller's promise.
        unsafe { AnywhereLoan::new(&self.active()?.transfer, addr, len) }
    }

    /// Whether this rank may ask that of another at all.
    fn check_anywhere(&self, rank: Rank) -> Result<()> {
        self.active()?.progress.check_rank(rank)?;
        if self.settings().anywhere {
            return Ok(());
        }
        Err(Error::AnywhereRefused { rank: self.rank() })
    }
}
