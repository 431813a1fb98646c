//! The whole address space of a peer, on the job: GASNet's EVERYTHING segment.

#![allow(unsafe_code)] // unsafe methods, which pass their callers' conditions on

use super::Job;
use crate::{AnywhereLoan, Error, Rank, Result, progress, rma::anywhere};

impl Job {
    /// Puts bytes to any address of a peer: what the compiler of a global-address-space language
    /// needs. Pages may come and go under it. An address that is not mapped is an error.
    ///
    /// # Errors
    /// - [`Error::AnywhereRefused`] unless both ranks have
    ///   [`JobBuilder::anywhere`](crate::JobBuilder::anywhere).
    /// - [`Error::RankOutOfRange`], [`Error::PeerLost`].
    /// - [`Error::BadAddress`] if the memory is not mapped or is read-only. Part of it may have
    ///   been written then.
    ///
    /// # Safety
    /// The program at `rank` tolerates the change:
    /// 1. No reference there requires that the bytes stay as they are.
    /// 2. Nothing reads them at the same time without atomics.
    /// 3. They are a valid value of the data that lives there.
    pub unsafe fn put_anywhere(&self, rank: Rank, addr: u64, data: &[u8]) -> Result<()> {
        self.check_anywhere(rank)?;
        // SAFETY: the caller's conditions 1, 2 and 3.
        unsafe { anywhere::put(&self.core().transfer, rank, addr, data) }
    }

    /// Gets bytes from any address of a peer.
    ///
    /// # Errors
    /// As [`put_anywhere`](Self::put_anywhere).
    ///
    /// # Safety
    /// 1. The caller accepts any bytes, torn ones if the peer writes them meanwhile, and secrets of
    ///    the peer's program.
    pub unsafe fn get_anywhere(&self, rank: Rank, addr: u64, data: &mut [u8]) -> Result<()> {
        self.check_anywhere(rank)?;
        // SAFETY: the caller's condition 1.
        unsafe { anywhere::get(&self.core().transfer, rank, addr, data) }
    }

    /// Declares that memory stays mapped as it is until the loan is dropped. So it may stay
    /// registered for peers that name it by its address. They need not know. It costs nothing if
    /// the network needs no registration.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    ///
    /// # Safety
    /// 1. Until the loan is dropped, the memory stays mapped, and nothing else is mapped in its
    ///    place.
    /// 2. Peers may write to it meanwhile, under the conditions of
    ///    [`put_anywhere`](Self::put_anywhere).
    /// 3. The loan is not dropped in a handler, which cannot wait for peers.
    pub unsafe fn lend_anywhere(&self, addr: *mut u8, len: usize) -> Result<AnywhereLoan> {
        progress::may_wait("lend_anywhere")?;
        // SAFETY: the caller's conditions 1, 2 and 3.
        unsafe { AnywhereLoan::new(&self.active()?.transfer, addr, len) }
    }

    /// Checks that both ranks and the settings allow accesses by address.
    fn check_anywhere(&self, rank: Rank) -> Result<()> {
        self.active()?.progress.check_rank(rank)?;
        if self.settings().anywhere {
            return Ok(());
        }
        Err(Error::AnywhereRefused { rank: self.rank() })
    }
}
