//! The regions of an endpoint, by number and by grant.

use std::{collections::HashMap, sync::Arc};

use hydrant_local::{GrantName, GrantTerms};
use parking_lot::Mutex;

use crate::{
    lent::{GrantKey, RegionCore},
    session::{FULL, REVOKED, Session},
};

/// All regions that are not revoked, and who was granted them.
#[derive(Default)]
pub(crate) struct LentRegions {
    by_number: Mutex<HashMap<u64, Arc<RegionCore>>>,
    granted: Mutex<HashMap<GrantKey, Arc<RegionCore>>>,
}

/// A grant in use that the peer has given back, or whose connection has ended.
pub(crate) struct Lingering {
    session: Arc<Session>,
    grant: GrantName,
    region: Arc<RegionCore>,
}

/// The outcome of a release.
pub(crate) enum Release {
    /// The grant has ended.
    Done,
    /// The peer uses it.
    InUse(Lingering),
}

impl Lingering {
    /// Releases the grant. Returns `false` if it is still in use.
    pub(crate) fn release(&self) -> bool {
        self.region.release(&self.session, self.grant)
    }
}

impl LentRegions {
    pub(crate) fn add(&self, region: &Arc<RegionCore>) {
        self.by_number.lock().insert(region.id, Arc::clone(region));
    }

    /// Revokes a region: gives no further grant of it, ends those that there are, and forgets them.
    pub(crate) fn revoke(&self, region: &RegionCore) {
        self.by_number.lock().remove(&region.id);
        let ended = region.end_grants();
        let mut granted = self.granted.lock();
        for key in ended {
            granted.remove(&key);
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<RegionCore>> {
        self.by_number.lock().get(&number).cloned()
    }

    /// Grants a region to a peer.
    ///
    /// # Errors
    /// The cause of the refusal: `REVOKED` or `FULL`.
    pub(crate) fn grant(
        &self,
        region: &Arc<RegionCore>,
        session: &Arc<Session>,
        terms: &GrantTerms,
    ) -> Result<GrantName, u8> {
        let granted = region.grant(session, || {
            let grant = session.link.grant(terms)?;
            let key = (session.number, grant);
            self.granted.lock().insert(key, Arc::clone(region));
            Some(grant)
        });
        granted.ok_or(REVOKED)?.ok_or(FULL)
    }

    /// Ends a grant that the peer has given back.
    pub(crate) fn release(&self, session: &Arc<Session>, grant: GrantName) -> Release {
        let Some(region) = self.granted.lock().remove(&(session.number, grant)) else {
            // It was revoked before.
            return Release::Done;
        };
        let lingering = Lingering {
            session: Arc::clone(session),
            grant,
            region,
        };
        if lingering.release() {
            Release::Done
        } else {
            Release::InUse(lingering)
        }
    }

    /// Ends all grants of a connection that has ended. Returns those in use.
    pub(crate) fn release_all(&self, session: &Arc<Session>) -> Vec<Lingering> {
        let mut all = Vec::new();
        self.granted.lock().retain(|(number, grant), region| {
            let is_its = *number == session.number;
            if is_its {
                all.push(Lingering {
                    session: Arc::clone(session),
                    grant: *grant,
                    region: Arc::clone(region),
                });
            }
            !is_its
        });
        all.retain(|grant| !grant.release());
        all
    }
}
