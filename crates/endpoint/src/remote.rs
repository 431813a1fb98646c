//! Regions of peers.

#![allow(unsafe_code)] // hands borrowed memory to copies

use std::{fmt, sync::Arc};

use hydrant_local::{CopyStep, ForeignMapping, GrantName, GrantUse, Packet};

use crate::{Batch, Error, Result, Rights, session::Session, state::EndpointState};

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

struct OpenedRegion {
    endpoint: Arc<EndpointState>,
    session: Arc<Session>,
    grant: GrantName,
    /// The memory, if this process maps it.
    mapping: Option<ForeignMapping>,
    len: u64,
    rights: Rights,
}

impl Drop for OpenedRegion {
    fn drop(&mut self) {
        if self.endpoint.check_origin().is_ok() && !self.session.has_ended() {
            let release = Packet::Release { grant: self.grant };
            if let Ok(state) = self.session.link.send(&release, None) {
                self.endpoint.after_send(&self.session, state);
            }
        }
    }
}

impl RemoteRegion {
    pub(crate) fn new(
        endpoint: &Arc<EndpointState>,
        session: &Arc<Session>,
        grant: GrantName,
        mapping: Option<ForeignMapping>,
        (len, rights): (u64, Rights),
    ) -> Self {
        Self {
            opened: Arc::new(OpenedRegion {
                endpoint: Arc::clone(endpoint),
                session: Arc::clone(session),
                grant,
                mapping,
                len,
                rights,
            }),
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
        if bytes.len() > ALONE {
            let mut batch = Batch::new();
            batch.write(self, offset, bytes)?;
            return Ok(batch.run()?);
        }
        self.check(GrantUse::Write, offset, bytes.len() as u64)?;
        let step = CopyStep {
            local: bytes.as_ptr().expose_provenance(),
            offset,
            len: bytes.len(),
        };
        // SAFETY: 1. and 2. `bytes` is borrowed, and is only read.
        unsafe { self.copy(GrantUse::Write, &[step]) }.map_err(|(_, error)| error)
    }

    /// Reads bytes of the region.
    ///
    /// # Errors
    /// As [`write`](Self::write). Some bytes may have been read.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if into.len() > ALONE {
            let mut batch = Batch::new();
            batch.read(self, offset, into)?;
            return Ok(batch.run()?);
        }
        self.check(GrantUse::Read, offset, into.len() as u64)?;
        let step = CopyStep {
            local: into.as_mut_ptr().expose_provenance(),
            offset,
            len: into.len(),
        };
        // SAFETY: 1. and 2. `into` is borrowed mutably.
        unsafe { self.copy(GrantUse::Read, &[step]) }.map_err(|(_, error)| error)
    }

    pub(crate) fn endpoint(&self) -> &Arc<EndpointState> {
        &self.opened.endpoint
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }

    /// Checks an access before it is made. The owner's table is looked at again with each copy.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NotPermitted`], [`Error::Forked`].
    #[inline]
    pub(crate) fn check(&self, how: GrantUse, offset: u64, len: u64) -> Result<()> {
        let opened = &*self.opened;
        opened.endpoint.check_origin()?;
        if offset.checked_add(len).is_none_or(|end| end > opened.len) {
            return Err(Error::OutOfBounds {
                offset,
                len,
                region: opened.len,
            });
        }
        let (right, what) = match how {
            GrantUse::Read => (Rights::READ, "reads"),
            GrantUse::Write => (Rights::WRITE, "writes"),
        };
        if !opened.rights.contains(right) {
            return Err(Error::NotPermitted {
                peer: opened.session.peer.label(),
                what,
            });
        }
        Ok(())
    }

    /// Copies, after a [check](Self::check).
    ///
    /// # Errors
    /// The bytes that were copied, and the cause.
    ///
    /// # Safety
    /// 1. and 2. as [`LocalLink::copy`](hydrant_local::LocalLink::copy).
    #[inline]
    pub(crate) unsafe fn copy(
        &self,
        how: GrantUse,
        steps: &[CopyStep],
    ) -> Result<(), (usize, Error)> {
        let opened = &*self.opened;
        let mapping = opened.mapping.as_ref().map(ForeignMapping::window);
        let link = &opened.session.link;
        // SAFETY: 1. and 2. the caller's conditions.
        let copied = unsafe { link.copy(opened.grant, mapping, how, steps) };
        copied.map_err(|(done, error)| {
            let (offset, len) = (steps.first()).map_or((0, 0), |step| (step.offset, step.len));
            let place = [offset, len as u64, opened.len];
            (done, opened.session.access_error(error, place))
        })
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
