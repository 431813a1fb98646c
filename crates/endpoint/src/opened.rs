//! A region of a peer that this process may use.

#![allow(unsafe_code)] // hands memory to copies

use std::sync::Arc;

use hydrant_local::{CopyStep, ForeignMapping, GrantName, GrantUse, WirePacket};

use crate::{Error, Result, Rights, session::Session, state::EndpointState};

/// A region that a peer has granted, until this is dropped.
pub(crate) struct OpenedRegion {
    pub(crate) endpoint: Arc<EndpointState>,
    pub(crate) session: Arc<Session>,
    pub(crate) grant: GrantName,
    /// The memory, if this process maps it.
    pub(crate) mapping: Option<ForeignMapping>,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
}

impl Drop for OpenedRegion {
    fn drop(&mut self) {
        if self.endpoint.check_origin().is_ok() && !self.session.has_ended() {
            let release = WirePacket::Release { grant: self.grant };
            if let Ok(state) = self.session.link.send(&release, None) {
                self.endpoint.after_send(&self.session, state);
            }
        }
    }
}

impl OpenedRegion {
    /// Checks an access before it is made. The owner's table is looked at again with each copy.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NotPermitted`], [`Error::Forked`].
    #[inline]
    pub(crate) fn check(&self, how: GrantUse, offset: u64, len: u64) -> Result<()> {
        self.endpoint.check_origin()?;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::OutOfBounds {
                offset,
                len,
                region: self.len,
            });
        }
        let (right, what) = match how {
            GrantUse::Read => (Rights::READ, "reads"),
            GrantUse::Write => (Rights::WRITE, "writes"),
        };
        if !self.rights.contains(right) {
            return Err(Error::NotPermitted {
                peer: self.session.peer.label(),
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
        let mapping = self.mapping.as_ref().map(ForeignMapping::window);
        let link = &self.session.link;
        // SAFETY: 1. and 2. the caller's conditions.
        let copied = unsafe { link.copy(self.grant, mapping, how, steps) };
        copied.map_err(|(done, error)| {
            let (offset, len) = (steps.first()).map_or((0, 0), |step| (step.offset, step.len));
            let place = [offset, len as u64, self.len];
            (done, self.session.access_error(error, place))
        })
    }
}
