//! Lent memory, as its owner and the service thread use it.

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_conduit::Window;
use hydrant_local::GrantName;
use parking_lot::{Condvar, Mutex};

use crate::{Error, Result, session::Session};

/// The state of a region that both its owner and the service thread use.
pub(crate) struct RegionCore {
    pub(crate) id: u64,
    pub(crate) window: Window,
    /// The file that peers map, if there is one.
    pub(crate) file: Option<Arc<OwnedFd>>,
    lending: Mutex<Lending>,
    /// Notified when the last own use has ended.
    unused: Condvar,
}

struct Lending {
    is_revoked: bool,
    grants: Vec<(Arc<Session>, GrantName)>,
    /// The uses of the memory by this process.
    own_uses: usize,
}

impl RegionCore {
    pub(crate) fn new(id: u64, window: Window, file: Option<Arc<OwnedFd>>) -> Arc<Self> {
        Arc::new(Self {
            id,
            window,
            file,
            lending: Mutex::new(Lending {
                is_revoked: false,
                grants: Vec::new(),
                own_uses: 0,
            }),
            unused: Condvar::new(),
        })
    }

    /// Grants the memory to a peer by `grant`, unless it is revoked. The lock is held meanwhile, so that a revocation
    /// sees the grant. Returns `None` if the memory is revoked, and otherwise the result of `grant`.
    pub(crate) fn grant(
        &self,
        session: &Arc<Session>,
        grant: impl FnOnce() -> Option<GrantName>,
    ) -> Option<Option<GrantName>> {
        let mut lending = self.lending.lock();
        if lending.is_revoked {
            return None;
        }
        let granted = grant();
        if let Some(name) = granted {
            lending.grants.push((Arc::clone(session), name));
        }
        Some(granted)
    }

    /// Ends a grant that the peer does not use any more. Returns `false` if it is in use.
    pub(crate) fn release(&self, session: &Session, grant: GrantName) -> bool {
        let mut lending = self.lending.lock();
        let is_it = |(its, name): &(Arc<Session>, GrantName)| {
            its.number == session.number && *name == grant
        };
        let Some(place) = lending.grants.iter().position(is_it) else {
            return true;
        };
        session.link.end_grant(grant);
        // A grant in use stays in the list, so that a revocation waits for it.
        let is_unused = session.link.wait_unused(grant, || false);
        if is_unused {
            lending.grants.swap_remove(place);
            session.link.free_grant(grant);
        }
        is_unused
    }

    /// Revokes the memory, and waits until nobody uses it, at most for `patience`.
    ///
    /// # Errors
    /// [`Error::StillInUse`]. The next call goes on.
    pub(crate) fn revoke(&self, patience: Option<Duration>) -> Result<()> {
        let since = Instant::now();
        let deadline = patience.and_then(|patience| since.checked_add(patience));
        let still_in_use = || Error::StillInUse {
            within: since.elapsed(),
        };
        let mut lending = self.lending.lock();
        lending.is_revoked = true;
        for (session, grant) in &lending.grants {
            session.link.end_grant(*grant);
        }
        let goes_on = || deadline.is_none_or(|deadline| Instant::now() < deadline);
        while let Some((session, grant)) = lending.grants.last().cloned() {
            // The lock is not held while this thread waits.
            drop(lending);
            if !session.link.wait_unused(grant, goes_on) {
                return Err(still_in_use());
            }
            lending = self.lending.lock();
            let is_it = |(its, name): &(Arc<Session>, GrantName)| {
                its.number == session.number && *name == grant
            };
            if let Some(place) = lending.grants.iter().position(is_it) {
                lending.grants.swap_remove(place);
                session.link.free_grant(grant);
            }
        }
        while lending.own_uses > 0 {
            match deadline {
                None => self.unused.wait(&mut lending),
                Some(deadline) => {
                    let waited = self.unused.wait_until(&mut lending, deadline);
                    if waited.timed_out() && lending.own_uses > 0 {
                        return Err(still_in_use());
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins a use of the memory by this process.
    ///
    /// # Errors
    /// [`Error::Revoked`].
    pub(crate) fn begin_own_use(self: &Arc<Self>, label: &str) -> Result<OwnUse> {
        let mut lending = self.lending.lock();
        if lending.is_revoked {
            return Err(Error::Revoked {
                peer: label.to_owned(),
            });
        }
        lending.own_uses += 1;
        Ok(OwnUse(Arc::clone(self)))
    }
}

/// A use of an own region by this process, which a revocation waits for.
pub(crate) struct OwnUse(Arc<RegionCore>);

impl OwnUse {
    pub(crate) fn window(&self) -> &Window {
        &self.0.window
    }
}

impl Drop for OwnUse {
    fn drop(&mut self) {
        let mut lending = self.0.lending.lock();
        lending.own_uses -= 1;
        if lending.own_uses == 0 {
            drop(lending);
            self.0.unused.notify_all();
        }
    }
}
