//! Reports of uses of registered memory, for strategies that predict the next ones. Each report
//! says what was used, and which site of the program asked for it.

#![cfg_attr(
    not(feature = "foresight"),
    expect(dead_code, reason = "only the strategy `foresight` reads it")
)]

use std::{cell::Cell, panic::Location, time::Duration};

use hydrant_conduit::Rank;

thread_local! {
    /// The number that a caller above gave to this thread's site, or 0.
    static SITE: Cell<u64> = const { Cell::new(0) };
}

/// The purpose of a use of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UseKind {
    /// The memory is the source of a put.
    Put = 1,
    /// The memory is the destination of a get.
    Get = 2,
    /// A peer writes to the memory.
    Written = 3,
    /// A peer reads the memory.
    Read = 4,
    /// A message is sent from the memory.
    Sent = 5,
    /// A message is received into the memory.
    Received = 6,
}

/// The state of the memory when its use began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryState {
    /// It is not registered for this use: its data takes another route, or the memory is transient.
    Elsewhere,
    /// It was registered.
    Registered,
    /// It must be registered first.
    Absent,
}

/// A use of own memory that has begun: the memory is registered, or its registration is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryUse {
    pub(crate) kind: UseKind,
    /// The address of the first byte.
    pub(crate) addr: u64,
    /// The number of bytes.
    pub(crate) len: u64,
    pub(crate) state: MemoryState,
    /// The time when it began, on the conduit's clock.
    pub(crate) begun: Duration,
    /// The number of the site that asked for the use.
    pub(crate) site: u64,
}

/// A use of a peer's memory that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteUse {
    /// A put or a get.
    pub(crate) kind: UseKind,
    pub(crate) peer: Rank,
    /// The key of the region: the peer's segment, or a buffer that it exposed.
    pub(crate) region: u64,
    /// The address of the first byte there, and the number of bytes.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// True if all firehoses that it needs were attached.
    pub(crate) is_attached: bool,
    /// As in [`MemoryUse`].
    pub(crate) begun: Duration,
    pub(crate) site: u64,
}

/// Receives each use, from the thread that began it or found out about it. That thread may run a
/// handler, so this must not wait.
pub(crate) trait Uses: Send + Sync {
    /// Records a use of own memory.
    fn used(&self, it: &MemoryUse);

    /// Returns whether uses of peers' memory are wanted.
    fn wants_reached(&self) -> bool;

    /// Records a use of a peer's memory.
    fn reached(&self, it: &RemoteUse);

    /// Returns whether the receiver waits for own memory that was in use.
    fn waits_for_freed(&self) -> bool;

    /// Notes own memory that may be free after a peer's use: ranges of an address and a length.
    fn freed(&self, places: &[(u64, u64)]);

    /// Notes that all own memory which peers used may be free.
    fn all_freed(&self);
}

/// Runs `body` with a number for its site, for strategies that predict uses: the same number for
/// the same site in the program. Without a number, the site is the code that calls Hydrant.
/// Bindings for other languages, and layers that call Hydrant from one site, pass the site of their
/// caller.
pub fn at_site<R>(site: u64, body: impl FnOnce() -> R) -> R {
    struct Before(u64);
    impl Drop for Before {
        fn drop(&mut self) {
            SITE.set(self.0);
        }
    }
    let _before = Before(SITE.replace(site));
    body()
}

/// Runs `body` without reports of the uses of own memory that it begins, because other code reports
/// them.
pub(crate) fn without_reports<R>(body: impl FnOnce() -> R) -> R {
    at_site(UNREPORTED, body)
}

/// Returns whether the uses that this thread begins go unreported.
pub(crate) fn is_unreported() -> bool {
    SITE.get() == UNREPORTED
}

/// The number of a site whose uses are not reported.
const UNREPORTED: u64 = u64::MAX;

/// Returns the number of this thread's site, or the number of a location in the program.
pub(crate) fn site_or(location: &'static Location<'static>) -> u64 {
    match SITE.get() {
        0 => std::ptr::from_ref(location).addr() as u64,
        site => site,
    }
}

/// Returns the number of this thread's site, or a number that stands for a peer.
pub(crate) fn site_or_peer(peer: Rank) -> u64 {
    match SITE.get() {
        // No location in a program has such an address.
        0 => UNREPORTED - 1 - u64::from(peer.0),
        site => site,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_number_holds_within_its_body() {
        let here = Location::caller();
        let place = site_or(here);
        at_site(7, || {
            assert_eq!(site_or(here), 7);
            assert_eq!(at_site(8, || site_or_peer(Rank(0))), 8);
            assert_eq!(site_or(here), 7);
        });
        assert_eq!(site_or(here), place);
        let caught = std::panic::catch_unwind(|| at_site(9, || panic!("within")));
        assert!(caught.is_err());
        assert_eq!(site_or(here), place);
    }
}
