//! Regions of peers.

#![allow(unsafe_code)] // hands borrowed memory to copies

use std::{fmt, sync::Arc};

use hydrant_local::{CopyStep, GrantUse};

#[cfg(doc)]
use crate::Error;
use crate::{Result, Rights, carry::BatchCore, opened::OpenedRegion, plan::BatchPlan};

/// The most bytes that one call copies by itself, without the workers.
const ALONE: usize = 512 << 10;

/// A region of a peer, or a part of it, that this process may use. [`Peer::open`](crate::Peer::open) makes it.
///
/// The handle can be cloned and used by any thread. It holds for one connection: if that ends, the peer has to be
/// connected again, and the region opened again.
#[derive(Clone)]
pub struct RemoteRegion {
    opened: Arc<OpenedRegion>,
}

impl RemoteRegion {
    pub(crate) fn new(opened: OpenedRegion) -> Self {
        Self {
            opened: Arc::new(opened),
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.opened.len
    }

    /// Returns whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what this process may do.
    pub fn rights(&self) -> Rights {
        self.opened.rights
    }

    /// Returns whether this process maps the memory, so that copies need no system call.
    pub fn is_mapped(&self) -> bool {
        self.opened.mapping.is_some()
    }

    /// Writes bytes into the region. When this returns, they are there.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NotPermitted`], [`Error::Revoked`], [`Error::Expired`], [`Error::Lost`],
    /// [`Error::Left`], [`Error::NotMapped`], [`Error::Forbidden`], [`Error::Forked`]. Some bytes may have been written.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let local = bytes.as_ptr().expose_provenance();
        // SAFETY: 1. and 2. `bytes` is borrowed, and is only read.
        unsafe { self.transfer(GrantUse::Write, (local, offset, bytes.len())) }
    }

    /// Reads bytes of the region.
    ///
    /// # Errors
    /// As [`write`](Self::write). Some bytes may have been read.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let local = into.as_mut_ptr().expose_provenance();
        // SAFETY: 1. and 2. `into` is borrowed mutably.
        unsafe { self.transfer(GrantUse::Read, (local, offset, into.len())) }
    }

    /// Transfers one run, here or with the workers.
    ///
    /// # Safety
    /// 1. The local memory is writable for reads and readable for writes.
    /// 2. Nobody holds a reference to what is written.
    #[inline]
    unsafe fn transfer(
        &self,
        how: GrantUse,
        (local, offset, len): (usize, u64, usize),
    ) -> Result<()> {
        if len > ALONE {
            let mut plan = BatchPlan::default();
            plan.add(&self.opened, how, [(local, offset, len)])?;
            // SAFETY: 1. the caller's conditions 1 and 2, and `run` waits for the end.
            let batch = unsafe { BatchCore::new(&self.opened.endpoint, plan) };
            return Ok(batch.run()?);
        }
        self.opened.check(how, offset, len as u64)?;
        let step = CopyStep { local, offset, len };
        // SAFETY: 1. and 2. the caller's conditions.
        unsafe { self.opened.copy(how, &[step]) }.map_err(|(_, error)| error)
    }

    pub(crate) fn opened(&self) -> &Arc<OpenedRegion> {
        &self.opened
    }
}

impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opened = &*self.opened;
        write!(
            f,
            "RemoteRegion({} bytes of {}, to {:?})",
            opened.len,
            opened.session.peer.label(),
            opened.rights
        )
    }
}
