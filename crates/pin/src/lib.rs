//! Ranks of one host as if a NIC that needs registration joined them: `smp+pin`.
//!
//! Messages go through the rings of [`Smp`](hydrant_smp::Smp). Memory does not: each rank's segment is
//! its own, and a peer reaches only what was registered. Registering has the kernel pin the
//! pages, as buffers of an `io_uring` (`ring`, `table`); a thread of each rank plays its NIC
//! (`thread`). A write goes from the pinned pages of one rank through a pipe (`pipe`) into those of
//! the other, a read the other way (`initiator`), at the request of a queue in shared memory
//! (`queue`); keys are checked at each access and on both sides. What a key names are pages and
//! not addresses: memory that was unmapped and mapped anew is not reached under an old key, but
//! the old pages are, as with a NIC. `docs/pinned.md` says how far the likeness goes.
//!
//! The kernel counts a huge page whole however little of it is pinned, so that what is counted
//! (`VmPin`) would not be what was registered: the process goes without huge pages from
//! [`attach`] on.
//!
//! After `fork`, the child has no part in the conduit. Pinned pages stay those of the parent:
//! the child gets copies of them.

#![allow(unsafe_code)] // a system call that libc alone knows

mod area;
mod bare;
mod conduit;
mod core;
mod costs;
mod initiator;
mod limits;
mod listener;
mod pipe;
mod queue;
mod ring;
mod snapshot;
mod table;
mod thread;

use std::sync::Arc;

use hydrant_conduit::{Caps, Conduit, Error, Rank, Registration, memory::Segment};
use hydrant_launch::Bootstrap;
use hydrant_smp::{Options, upon::join};

use self::{
    area::{COSTS, DESCRIPTORS, EXTRA},
    conduit::INLINE,
    core::PinCore,
    costs::MeasuredCosts,
    limits::PinLimits,
    listener::NicListener,
    table::PinnedTable,
};

pub use bare::BareRing;
pub use conduit::Pinned;
pub use table::MOST_EXTENTS;

/// Joins the ranks that `bootstrap` knows, all on this host. Collective.
///
/// Of `options`, the way to foreign memory has no meaning, and there may be as many extents as
/// the kernel's tables hold, 65536.
///
/// # Errors
/// [`Error::Unreachable`] if a rank is on another host or does not come in time, and where the
/// system has no `io_uring` or forbids it.
pub fn attach(bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Pinned, Error> {
    disable_huge_pages();
    let segment = Segment::new(options.segment.next_multiple_of(4096))?;
    let rank = Rank(bootstrap.rank());
    let messages = Options {
        segment: 0,
        ..options.clone()
    };
    let (smp, (table, listener)) = join(bootstrap, &messages, EXTRA, DESCRIPTORS, |areas| {
        let table = PinnedTable::new(rank, areas.extents(), PinLimits::here())?;
        if rank == Rank(0) {
            let found = MeasuredCosts::measure(&table, areas.ranks());
            let stored = areas.of_rank(rank).store(COSTS, found);
            debug_assert!(stored.is_ok(), "an area is as long as it was asked for");
        }
        Ok((table, NicListener::open(&areas.of_rank(rank))?))
    })?;
    let found: MeasuredCosts = (smp.areas().of_rank(Rank(0)).load(COSTS))
        .map_err(|_| Error::Unreachable("an area out of bounds".to_owned()))?;
    let caps = Caps {
        name: "smp+pin",
        registration: Some(found.registration(INLINE)),
        any_address: false,
        stores_wake: false,
        // The kernel moves data between pinned pages and changes nothing there.
        atomics: None,
        segment: segment.window.len(),
        ..smp.caps().clone()
    };
    Pinned::start(Arc::new(PinCore::new(smp, table)), listener, segment, caps)
}

/// Whether this system plays NICs, and what registration costs with them.
///
/// # Errors
/// [`Error::Unreachable`] where the system has no `io_uring` or forbids it.
pub fn probe() -> Result<Registration, Error> {
    let table = PinnedTable::new(Rank(0), MOST_EXTENTS, PinLimits::here())?;
    Ok(MeasuredCosts::measure(&table, 1).registration(INLINE))
}

/// From now on no memory of this process becomes a huge page.
fn disable_huge_pages() {
    // SAFETY: changes how later page faults are served, and nothing that a program can see.
    let refused = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0;
    if refused {
        tracing::debug!("huge pages stay: pinned memory is counted by them");
    }
}
