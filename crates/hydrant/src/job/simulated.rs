//! The simulated machine of a job in virtual time.

use std::{
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;
use hydrant_sim::{Profile, SimOptions, World};
use rustc_hash::FxBuildHasher;

use crate::{Error, Rank, Result, Settings, segment::SYSTEM};

/// A simulated machine, inside this process.
pub(super) struct SimulatedNetwork(Arc<World>);

impl SimulatedNetwork {
    /// Returns the machine of this profile for so many ranks.
    ///
    /// # Errors
    /// [`Error::Setting`] for a profile that does not exist or is invalid.
    pub(super) fn new(settings: &Settings, profile: &str, ranks: u32) -> Result<Self> {
        let profile = Profile::named(profile).map_err(|cause| Error::Setting {
            name: "HYDRANT_CONDUIT",
            value: settings.conduit.to_string(),
            expected: format!("a profile ({cause})"),
        })?;
        let options = SimOptions {
            segment: SYSTEM + settings.heap,
            seed: settings.sim_seed,
            ..SimOptions::default()
        };
        Ok(Self(World::new(profile, ranks, options)?))
    }

    /// Returns the conduit of the rank of this bootstrap.
    pub(super) fn attach(&self, bootstrap: &dyn Bootstrap) -> Box<dyn Conduit> {
        Box::new(self.0.conduit(Rank(bootstrap.rank())))
    }
}

/// Draws the number of a job in virtual time. A program and a seed give one result, so the seed and
/// the number of earlier virtual jobs of this process determine it.
pub(super) fn number(settings: &Settings) -> u64 {
    static VIRTUAL: AtomicU64 = AtomicU64::new(0);
    let before = VIRTUAL.fetch_add(1, Relaxed);
    FxBuildHasher.hash_one((settings.sim_seed, before))
}
