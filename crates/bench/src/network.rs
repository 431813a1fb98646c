//! The bare network between rank 0 and its partner: the reference where memory is registered.

use std::cell::RefCell;

use hydrant::{Job, Rank};
use hydrant_verbs::{Bare, VerbsOptions};

use crate::error::BenchError;

/// The peer of rank 0 in all operations of two ranks.
pub(crate) const PARTNER: Rank = Rank(1);

/// The bytes on each side of the bare network's operations: the longest operation.
pub(crate) const LARGEST: usize = 16 << 20;

/// Connects rank 0 and its partner beside the job, if the job uses RDMA NICs. Collective.
pub(crate) fn connect(job: &Job) -> hydrant::Result<Option<RefCell<Bare>>> {
    let caps = job.conduit();
    let peer = match job.rank() {
        Rank(0) => PARTNER,
        PARTNER => Rank(0),
        other => other,
    };
    if caps.registration.is_none() || caps.name != "verbs" {
        return Ok(None);
    }
    let settings = job.settings();
    let options = VerbsOptions {
        devices: settings.verbs_device.clone(),
        gid_index: settings.verbs_gid,
        ..VerbsOptions::default()
    };
    let addresses = job.alloc::<u64>(Bare::ADDRESS_WORDS)?;
    let mut bare = None;
    if peer != job.rank() {
        let open = Bare::open(&options, job.rank().0, LARGEST).map_err(BenchError::Network)?;
        addresses.put(peer, 0, &open.address())?;
        bare = Some(open);
    }
    job.barrier()?;
    if let Some(bare) = &mut bare {
        let mut address = [0; Bare::ADDRESS_WORDS];
        addresses.local()?.read(0, &mut address)?;
        bare.connect(address).map_err(BenchError::Network)?;
    }
    job.free(addresses)?;
    Ok(bare.map(RefCell::new))
}
