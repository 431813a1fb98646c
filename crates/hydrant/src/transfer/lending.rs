//! Loans of own memory to peers. The registration room makes them where memory must be registered,
//! else the conduit does, as extents.

#![allow(unsafe_code)] // lends memory to peers

use std::sync::Arc;

use hydrant_conduit::{Key, Permission};

use super::Transfer;
use crate::{Error, Rank, Result, registration::GrantRecord};

impl Transfer {
    /// Returns the bytes of a bucket, or 1 where memory is not registered.
    pub(crate) fn bucket(&self) -> usize {
        let registration = self.registration.as_ref();
        registration.map_or(1, |it| it.limits().geometry.bucket() as usize)
    }

    /// Gives memory to a part of the own segment.
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) fn commit(&self, offset: usize, len: usize) -> Result<(), hydrant_conduit::Error> {
        match &self.registration {
            Some(registration) => registration.commit(offset, len),
            None => self.progress.conduit().commit(offset, len),
        }
    }

    /// Lends a buffer to peers. Returns the key by which they name it.
    ///
    /// # Safety
    /// Until [`unlend`](Self::unlend) returns `true`:
    /// 1. The buffer stays allocated.
    /// 2. It is only accessed as shared memory.
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) unsafe fn lend(&self, addr: *mut u8, len: usize) -> Result<Key> {
        match &self.registration {
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            Some(registration) => unsafe { registration.lend(addr, len) },
            None => {
                let conduit = self.progress.conduit();
                // SAFETY: 1., 2. The caller's conditions 1 and 2.
                let key = unsafe { conduit.register(addr, len, Permission::ReadWrite) };
                Ok(key?)
            }
        }
    }

    /// Ends a loan. Returns `true` if nobody uses the buffer any more. Returns `false` in a
    /// handler, where that cannot be known. Then the buffer must never be freed.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn unlend(&self, key: Key) -> bool {
        match &self.registration {
            Some(registration) => registration.unlend(key),
            None => {
                // An error means that the extent was revoked before.
                let _ = self.progress.conduit().deregister(key);
                true
            }
        }
    }

    /// Prepares memory to be lent [at once](Self::lend_at_once), in a task.
    pub(crate) async fn make_ready(self: &Arc<Self>, addr: u64, len: u64) {
        let registration = self.registration.as_ref();
        if let Some(id) = registration.and_then(|it| it.make_ready(addr, len)) {
            self.until_revoked(id).await;
        }
    }

    /// As [`lend`](Self::lend), for [prepared](Self::make_ready) memory.
    ///
    /// # Safety
    /// 1., 2. As [`lend`](Self::lend).
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) unsafe fn lend_at_once(&self, addr: *mut u8, len: usize) -> Result<Key> {
        match &self.registration {
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            Some(registration) => Ok(unsafe { registration.lend_at_once(addr, len) }),
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            None => unsafe { self.lend(addr, len) },
        }
    }

    /// Ends a loan where the caller must not wait. Calls `then` once nobody uses the buffer any
    /// more. If the job ends before, `then` is dropped.
    pub(crate) fn unlend_later(self: &Arc<Self>, key: Key, then: impl FnOnce() + Send + 'static) {
        let begun = match &self.registration {
            Some(registration) => registration.begin_to_unlend(key),
            None => {
                let over = self.unlend(key);
                debug_assert!(over, "an extent of the conduit goes at once");
                None
            }
        };
        let Some((start, len)) = begun else {
            return then();
        };
        let transfer = Arc::clone(self);
        self.progress.spawn(async move {
            let unlent = || (transfer.registration.as_ref()).is_none_or(|it| it.is_unlent(key));
            transfer.progress.until(unlent).await;
            let registration = transfer.registration.as_ref();
            // All users of the loan have ended. Memory that lasts beyond the loan may stay
            // registered.
            let registration = registration.filter(|it| !it.lasts(start, len));
            if registration.is_some() {
                transfer.until_deregistered(start, len).await;
            }
            then();
        });
    }

    /// Waits for the end of a loan that [`unlend_later`](Self::unlend_later) began to end, after
    /// the job has dropped its tasks. `place` is its memory. Returns whether the loan has ended,
    /// which holds outside handlers.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn finish_unlending(&self, key: Key, place: (u64, u64)) -> bool {
        (self.registration.as_ref())
            .is_none_or(|registration| registration.finish_unlending(key, place))
    }

    /// Revokes all registrations of memory, and waits until it is deregistered, in a task.
    pub(super) async fn until_deregistered(self: &Arc<Self>, start: u64, len: u64) {
        let registration = self.registration.as_ref();
        if let Some(id) = registration.and_then(|it| it.begin_to_take_back(start, len)) {
            self.until_revoked(id).await;
        }
    }

    async fn until_revoked(self: &Arc<Self>, id: u64) {
        let registration = self.registration.as_ref();
        let over = || registration.is_none_or(|it| it.take_revoked(id));
        self.progress.until(over).await;
    }

    /// Learns the address of a peer's exposed buffer, so that its first use need not wait.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::PeerLost`].
    pub(crate) async fn learn_of(self: &Arc<Self>, rank: Rank, key: u64) -> Result<()> {
        let Some(registration) = &self.registration else {
            return Ok(());
        };
        if rank == self.progress.rank {
            return Ok(());
        }
        registration.ask_for(rank, key);
        let mut known = None;
        let over = || {
            known = registration.has_address(rank, key);
            known.is_some()
        };
        self.progress.until(over).await;
        match known {
            Some(true) => Ok(()),
            _ => Err(registration.why_unknown(rank)),
        }
    }

    /// Returns the reason why the address of a peer's exposed buffer is no longer known.
    pub(crate) fn why_unknown(&self, rank: Rank) -> Error {
        match &self.registration {
            Some(registration) => registration.why_unknown(rank),
            None => Error::Revoked { rank },
        }
    }

    /// Forgets the address of a peer's exposed buffer, once no access to it is in flight. The
    /// caller tells the peer, which then does not ask at the end of the loan.
    pub(crate) async fn forget(self: &Arc<Self>, rank: Rank, key: u64) {
        if let Some(registration) = &self.registration {
            (self.progress)
                .until(|| registration.forget(rank, key))
                .await;
        }
    }

    /// Notes that a peer has reported that it uses a loan no more.
    pub(crate) fn note_forgotten_by(&self, peer: Rank, key: Key) {
        if let Some(registration) = &self.registration {
            registration.note_forgotten_by(peer, key);
        }
    }

    /// Lends memory that peers name by its address, and keeps it registered for them. Returns
    /// `None` where memory is not registered.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub(crate) fn lend_steady(&self, addr: u64, len: u64) -> Result<Option<Key>> {
        let registration = self.registration.as_ref();
        registration
            .map(|it| it.lend_steady((addr, len)))
            .transpose()
    }

    /// Ends a loan of [`lend_steady`](Self::lend_steady). Returns `false` in a handler, which
    /// cannot wait for peers.
    #[must_use = "the memory may still be registered"]
    pub(crate) fn unlend_steady(&self, key: Key) -> bool {
        (self.registration.as_ref()).is_none_or(|registration| registration.unlend_steady(key))
    }

    /// Registers the own part of an allocation for good, and learns the addresses of the other
    /// parts, if the strategy registers memory at allocation. Collective: `exchange` returns the
    /// records of all ranks, by rank.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit, on every rank.
    pub(crate) fn register_block(
        &self,
        exchange: &mut dyn FnMut(&GrantRecord) -> Result<Vec<GrantRecord>>,
        offset: usize,
        len: usize,
    ) -> Result<()> {
        match &self.registration {
            Some(registration) => registration.register_block(exchange, offset, len),
            None => Ok(()),
        }
    }

    /// Deregisters the own part of an allocation, at peers and here. Peers that know its address
    /// forget it.
    ///
    /// # Errors
    /// The launcher's.
    pub(crate) fn unregister_block(&self, offset: usize, len: usize) -> Result<()> {
        match &self.registration {
            Some(registration) => registration.unregister_block(offset, len),
            None => Ok(()),
        }
    }
}
