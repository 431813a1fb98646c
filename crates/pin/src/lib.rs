//! The conduit `smp+pin`: ranks of one host, connected as by a NIC that needs registration.
//!
//! Messages go through the rings of [`Smp`](hydrant_smp::Smp). Memory does not: each rank has its
//! own segment, and a peer accesses only registered memory.
//!
//! - Registration has the kernel pin the pages, as buffers of an `io_uring` (`ring`, `table`).
//! - A thread of each rank plays its NIC (`thread`).
//! - A request travels in a queue in shared memory (`queue`).
//! - A write moves through a pipe (`pipe`) from the pinned pages of one rank into those of the
//!   other. A read moves the other way (`initiator`).
//!
//! Both sides check the keys at each access. A key names pages, not addresses. After memory is
//! unmapped and mapped again, an old key still accesses the old pages, as with a NIC.
//! `docs/pinned.md` describes how far the likeness goes.
//!
//! The kernel counts a whole huge page even if only a part of it is pinned. Then its count
//! (`VmPin`) would exceed the registered bytes. So [`attach`] disables huge pages for the process.
//!
//! After `fork`, the child has no part in the conduit. Pinned pages stay with the parent; the child
//! gets copies of them.
//!
//! Messages, standings and sleep are those of `smp`, which gives this conduit an area for each rank, with a wake word,
//! and one for each pair ([`hydrant_smp::upon`]). `process_vm_writev` would follow addresses, and so hide the bugs
//! that a NIC shows.
//!
//! The kernel transfers to and from pipes at once, without a worker thread. A write's bytes are in the pipe before
//! the request is sent, and a read's before the answer is. So a rank that dies leaves nothing half done.

mod area;
mod bare;
mod conduit;
mod core;
mod costs;
mod limits;
mod listener;
mod pipe;
mod queue;
mod ring;
mod snapshot;
mod table;
mod thread;

use std::sync::Arc;

use hydrant_conduit::{Caps, Conduit, Error, Rank, RegistrationCaps, memory::Segment};
use hydrant_launch::Bootstrap;
use hydrant_smp::{SmpOptions, upon::join};

use self::{
    area::{COSTS, DESCRIPTORS, EXTRA, PINS},
    conduit::INLINE,
    core::PinCore,
    costs::MeasuredCosts,
    limits::{HeldPins, PinLimits},
    listener::NicListener,
    table::PinnedTable,
};

pub use bare::BareRing;
pub use conduit::Pinned;
pub use table::MOST_EXTENTS;

/// Joins the ranks that `bootstrap` knows, all on this host. Collective.
///
/// The option for the access to foreign memory has no effect. There may be as many extents as the
/// kernel's tables hold, 65536.
///
/// # Errors
/// [`Error::Unreachable`] if a rank is on another host or does not join in time, or if the system
/// has no `io_uring` or forbids it.
pub fn attach(bootstrap: &mut dyn Bootstrap, options: &SmpOptions) -> Result<Pinned, Error> {
    disable_huge_pages();
    let segment = Segment::new(options.segment.next_multiple_of(4096))?;
    let rank = Rank(bootstrap.rank());
    let messages = SmpOptions {
        segment: 0,
        ..options.clone()
    };
    let (smp, (table, listener)) = join(bootstrap, &messages, EXTRA, DESCRIPTORS, |areas| {
        let own = areas.of_rank(rank);
        let mut stored = own.store(PINS, HeldPins::here());
        let table = PinnedTable::new(rank, areas.extents(), PinLimits::here())?;
        if rank == Rank(0) {
            stored = stored.and(own.store(COSTS, MeasuredCosts::measure(&table)));
        }
        debug_assert!(stored.is_ok(), "an area is as long as it was asked for");
        Ok((table, NicListener::open(&areas.of_rank(rank))?))
    })?;
    let outside = |_| Error::Unreachable("an area out of bounds".to_owned());
    let areas = smp.areas();
    let found: MeasuredCosts = areas.of_rank(Rank(0)).load(COSTS).map_err(outside)?;
    let held = (0..areas.ranks())
        .map(|rank| areas.of_rank(Rank(rank as u32)).load(PINS))
        .collect::<Result<Vec<HeldPins>, _>>()
        .map_err(outside)?;
    let max_bytes = table.limits().share(&held);
    let caps = Caps {
        name: "smp+pin",
        registration: Some(found.registration(INLINE, max_bytes)),
        any_address: false,
        stores_wake: false,
        // The kernel moves data between pinned pages and has no atomic operation on them.
        atomics: None,
        segment: segment.window.len(),
        ..smp.caps().clone()
    };
    Pinned::start(Arc::new(PinCore::new(smp, table)), listener, segment, caps)
}

/// Returns the costs and limits of registration on this system.
///
/// # Errors
/// [`Error::Unreachable`] where the system has no `io_uring` or forbids it.
pub fn probe() -> Result<RegistrationCaps, Error> {
    let table = PinnedTable::new(Rank(0), MOST_EXTENTS, PinLimits::here())?;
    let held = HeldPins::here();
    let max_bytes = table.limits().share(&[held]);
    Ok(MeasuredCosts::measure(&table).registration(INLINE, max_bytes))
}

/// Disables huge pages for this process.
#[allow(unsafe_code)] // a system call that only libc offers
fn disable_huge_pages() {
    // SAFETY: the call changes only how later page faults are served.
    let refused = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0;
    if refused {
        tracing::debug!("huge pages stay enabled: the kernel counts pinned memory by them");
    }
}
