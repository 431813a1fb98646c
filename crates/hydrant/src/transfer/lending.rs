//! Lending own memory to peers: by the registration room where memory must be registered, else as
//! extents of the conduit.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::sync::Arc;

use hydrant_conduit::{Key, Permission};

use super::Transfer;
use crate::{Error, Rank, Result, registration::GrantRecord};

impl Transfer {
    /// Bytes of which memory is registered together; 1 where it is not registered.
    pub(crate) fn bucket(&self) -> usize {
        let registration = self.registration.as_ref();
        registration.map_or(1, |it| it.limits().geometry.bucket() as usize)
    }

    /// Lends a buffer to peers: the key by which they name it.
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
            // SAFETY: handed on.
            Some(registration) => unsafe { registration.lend(addr, len) },
            None => {
                let conduit = self.progress.conduit();
                // SAFETY: handed on.
                let key = unsafe { conduit.register(addr, len, Permission::ReadWrite) };
                Ok(key?)
            }
        }
    }

    /// Ends a loan. `true`: nobody touches the buffer any more. `false`: that cannot be known
    /// here, in a handler, and the buffer must never be freed.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn unlend(&self, key: Key) -> bool {
        match &self.registration {
            Some(registration) => registration.unlend(key),
            None => {
                // "Not in force" means that it was revoked before.
                let _ = self.progress.conduit().deregister(key);
                true
            }
        }
    }

    /// Makes memory ready to be lent [at once](Self::lend_at_once), by a task.
    pub(crate) async fn make_ready(self: &Arc<Self>, addr: u64, len: u64) {
        let registration = self.registration.as_ref();
        if let Some(id) = registration.and_then(|it| it.make_ready(addr, len)) {
            self.until_taken_back(id).await;
        }
    }

    /// As [`lend`](Self::lend), of memory that was [made ready](Self::make_ready).
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) unsafe fn lend_at_once(&self, addr: *mut u8, len: usize) -> Result<Key> {
        match &self.registration {
            // SAFETY: handed on.
            Some(registration) => Ok(unsafe { registration.lend_at_once(addr, len) }),
            // SAFETY: handed on.
            None => unsafe { self.lend(addr, len) },
        }
    }

    /// Ends a loan where nobody may wait for that: `then` is called when nobody touches the buffer
    /// any more. If the job ends before, it is dropped.
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
            // Who was let use it has ended that. What lasts without the loan may stay registered, as it
            // would have been before.
            let registration = registration.filter(|it| !it.lasts(start, len));
            if registration.is_some() {
                transfer.until_nobody_has(start, len).await;
            }
            then();
        });
    }

    /// Waits for the end of a loan that began to end [later](Self::unlend_later), of memory that lies
    /// there, when the tasks of the job were dropped: whether it has ended, as it has outside handlers.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn finish_unlending(&self, key: Key, place: (u64, u64)) -> bool {
        (self.registration.as_ref())
            .is_none_or(|registration| registration.finish_unlending(key, place))
    }

    /// Takes memory back: waits until nobody has it registered, in a task.
    pub(super) async fn until_nobody_has(self: &Arc<Self>, start: u64, len: u64) {
        let registration = self.registration.as_ref();
        if let Some(id) = registration.and_then(|it| it.begin_to_take_back(start, len)) {
            self.until_taken_back(id).await;
        }
    }

    async fn until_taken_back(self: &Arc<Self>, id: u64) {
        let registration = self.registration.as_ref();
        let over = || registration.is_none_or(|it| it.is_taken_back(id));
        self.progress.until(over).await;
    }

    /// Learns where an exposed buffer of a peer lies, so that its first use need not wait.
    ///
    /// # Errors
    /// [`Error::Revoked`](crate::Error::Revoked), [`Error::PeerLost`](crate::Error::PeerLost).
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
            known = registration.knows(rank, key);
            known.is_some()
        };
        self.progress.until(over).await;
        match known {
            Some(true) => Ok(()),
            _ => Err(registration.why_unknown(rank)),
        }
    }

    /// Why it is not known any more where an exposed buffer of a peer lies.
    pub(crate) fn why_unknown(&self, rank: Rank) -> Error {
        match &self.registration {
            Some(registration) => registration.why_unknown(rank),
            None => Error::Revoked { rank },
        }
    }

    /// Forgets where an exposed buffer of a peer lies, as soon as no access to it is under way. The peer is to be
    /// told: it does not ask when the loan ends.
    pub(crate) async fn forget(self: &Arc<Self>, rank: Rank, key: u64) {
        if let Some(registration) = &self.registration {
            (self.progress)
                .until(|| registration.forget(rank, key))
                .await;
        }
    }

    /// A peer has said that it uses a buffer no more that is lent to it.
    pub(crate) fn is_forgotten_by(&self, peer: Rank, key: Key) {
        if let Some(registration) = &self.registration {
            registration.is_forgotten_by(peer, key);
        }
    }

    /// Lends memory to peers that name it by its address: it stays registered for them. Under no key
    /// where nothing is registered.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub(crate) fn lend_steady(&self, addr: u64, len: u64) -> Result<Option<Key>> {
        let registration = self.registration.as_ref();
        registration
            .map(|it| it.lend_steady((addr, len)))
            .transpose()
    }

    /// Ends what [`lend_steady`](Self::lend_steady) lent; `false` in a handler, where peers cannot
    /// be waited for.
    #[must_use = "the memory may still be registered"]
    pub(crate) fn unlend_steady(&self, key: Key) -> bool {
        (self.registration.as_ref()).is_none_or(|registration| registration.unlend_steady(key))
    }

    /// Registers the own part of an allocation for good and learns of the others', if memory is
    /// registered at allocation. Collective: `exchange` gives what every rank gave, by rank.
    ///
    /// # Errors
    /// [`Error::Registration`](crate::Error::Registration) that names the limit, on every rank.
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

    /// Makes sure that no peer has the own part of an allocation registered, nor this rank; the
    /// peers that were told of it forget it.
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
