//! Lent memory, as its owner and the service thread use it.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_conduit::Window;
use hydrant_local::GrantName;
use parking_lot::{Condvar, Mutex};

use crate::{Error, Result, session::Session};

/// A grant of one connection: the connection's number, and the grant.
pub(crate) type GrantKey = (u64, GrantName);

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
    grants: HashMap<GrantKey, Arc<Session>>,
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
                grants: HashMap::new(),
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
            let key = (session.number, name);
            lending.grants.insert(key, Arc::clone(session));
        }
        Some(granted)
    }

    /// Ends a grant that the peer does not use any more. Returns `false` if it is in use.
    pub(crate) fn release(&self, session: &Session, grant: GrantName) -> bool {
        let mut lending = self.lending.lock();
        let key = (session.number, grant);
        if !lending.grants.contains_key(&key) {
            return true;
        }
        session.link.end_grant(grant);
        // A grant in use stays in the list, so that a revocation waits for it.
        let is_unused = session.link.wait_unused(grant, || false);
        if is_unused {
            lending.grants.remove(&key);
            session.link.free_grant(grant);
        }
        is_unused
    }

    /// Ends all grants, and gives no further one. Returns those that there are.
    pub(crate) fn end_grants(&self) -> Vec<GrantKey> {
        let mut lending = self.lending.lock();
        lending.is_revoked = true;
        for ((_, grant), session) in &lending.grants {
            session.link.end_grant(*grant);
        }
        lending.grants.keys().copied().collect()
    }

    /// Waits until nobody uses the memory, whose grants have [ended](Self::end_grants), at most for `patience`.
    ///
    /// # Errors
    /// [`Error::StillInUse`]. The next call goes on.
    pub(crate) fn wait_unused(&self, patience: Option<Duration>) -> Result<()> {
        let since = Instant::now();
        let deadline = patience.and_then(|patience| since.checked_add(patience));
        let still_in_use = || Error::StillInUse {
            within: since.elapsed(),
        };
        let goes_on = || deadline.is_none_or(|deadline| Instant::now() < deadline);
        let mut lending = self.lending.lock();
        let all: Vec<(GrantKey, Arc<Session>)> = (lending.grants.iter())
            .map(|(key, session)| (*key, Arc::clone(session)))
            .collect();
        for (key, session) in all {
            // The lock is not held while this thread waits.
            drop(lending);
            if !session.link.wait_unused(key.1, goes_on) {
                return Err(still_in_use());
            }
            lending = self.lending.lock();
            if lending.grants.remove(&key).is_some() {
                session.link.free_grant(key.1);
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
