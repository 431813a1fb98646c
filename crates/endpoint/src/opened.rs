//! A region of a peer that this process may use.

#![allow(unsafe_code)] // hands memory to copies

use std::sync::Arc;

use hydrant_fabric::{AccessRun, Finish, OperationWay, PeerAccess, PeerOperationFailure};
use hydrant_local::{CopyStep, ForeignMapping, GrantName, GrantUse, LocalLink, WirePacket};

use crate::{
    Error, Result, Rights,
    link::{FarLink, SessionLink, lent_name},
    promise::Promise,
    session::Session,
    state::EndpointState,
};

/// The group of accesses that are not stopped.
const ALONE: u64 = 0;

/// The failure of an access over the network.
pub(crate) struct FarFailure {
    pub(crate) error: Error,
    /// True if nothing of it reached the network.
    pub(crate) is_untouched: bool,
}

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
        match &self.session.link {
            // SAFETY: 1. and 2. the caller's conditions.
            SessionLink::Local(link) => unsafe { self.copy_here(link, how, steps) },
            SessionLink::Far(link) => {
                let done = Promise::new();
                let promise = Arc::clone(&done);
                let finish = move |outcome| {
                    let _ = promise.keep(outcome);
                };
                // SAFETY: 1. the caller's conditions, and this waits for the end.
                unsafe { self.begin_far(how, steps, ALONE, finish) };
                if let Some(peers) = link.peers() {
                    peers.poll_for_a_while(|| done.is_kept());
                }
                match done.wait(None) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(failure)) => Err((0, failure.error)),
                    None => Err((0, self.session.end_error())),
                }
            }
        }
    }

    /// Begins an access over the network, which can be stopped by the number of its group while it waits. `finish` is
    /// called once, when nothing of it lands any more.
    ///
    /// # Safety
    /// 1. As [`copy`](Self::copy), until `finish` is called.
    pub(crate) unsafe fn begin_far(
        &self,
        how: GrantUse,
        steps: &[CopyStep],
        group: u64,
        finish: impl FnOnce(Result<(), FarFailure>) + Send + 'static,
    ) {
        let session = Arc::clone(&self.session);
        let (offset, len) = (steps.first()).map_or((0, 0), |step| (step.offset, step.len));
        let place = [offset, len as u64, self.len];
        let told = Arc::clone(&session);
        let finish: Finish = Box::new(move |outcome| {
            finish(outcome.map_err(|failure| FarFailure {
                error: told.far_error(failure.why, place),
                is_untouched: failure.is_untouched,
            }));
        });
        let far = session.link.far();
        let Some((link, peers)) = far.and_then(|link: &FarLink| Some((link, link.peers()?))) else {
            return finish(Err(PeerOperationFailure::Lost.untouched()));
        };
        let access = PeerAccess {
            way: match how {
                GrantUse::Write => OperationWay::Write,
                GrantUse::Read => OperationWay::Read,
            },
            session: link.session(),
            lent: lent_name(self.grant),
            group,
        };
        let runs = steps.iter().map(|step| AccessRun {
            local: step.local,
            offset: step.offset,
            len: step.len as u64,
        });
        // SAFETY: the caller's condition.
        if let Err(finish) = unsafe { peers.begin(access, runs, finish) } {
            finish(Err(PeerOperationFailure::Lost.untouched()));
        }
    }

    /// Copies between processes of this host.
    ///
    /// # Safety
    /// 1. and 2. as [`copy`](Self::copy).
    #[inline]
    unsafe fn copy_here(
        &self,
        link: &LocalLink,
        how: GrantUse,
        steps: &[CopyStep],
    ) -> Result<(), (usize, Error)> {
        let mapping = self.mapping.as_ref().map(ForeignMapping::window);
        // SAFETY: 1. and 2. the caller's conditions.
        let copied = unsafe { link.copy(self.grant, mapping, how, steps) };
        copied.map_err(|(done, error)| {
            let (offset, len) = (steps.first()).map_or((0, 0), |step| (step.offset, step.len));
            let place = [offset, len as u64, self.len];
            (done, self.session.access_error(error, place))
        })
    }
}
