//! Uses of registered memory, for who predicts the next ones: what is said of each, and from where in the
//! program it was asked for.

use std::{cell::Cell, panic::Location, time::Duration};

use hydrant_conduit::Rank;

thread_local! {
    /// What the thread does, by a number that somebody above gave it; 0 if nobody did.
    static SITE: Cell<u64> = const { Cell::new(0) };
}

/// What a buffer is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UseKind {
    /// It is the source of a put.
    Put = 1,
    /// A get goes there.
    Get = 2,
    /// A peer writes to it.
    Written = 3,
    /// A peer reads it.
    Read = 4,
    /// A message of it is to be sent.
    Sent = 5,
    /// A message is to be received there.
    Received = 6,
}

/// How the memory of a use stood when it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stood {
    /// It is not registered for this use: its data goes another way, or it may not stay so.
    Elsewhere,
    /// It was registered.
    Registered,
    /// It has to be registered first.
    Absent,
}

/// A use of own memory that has begun: what it needs is registered, or on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) kind: UseKind,
    /// The first byte.
    pub(crate) addr: u64,
    /// How many.
    pub(crate) len: u64,
    pub(crate) stood: Stood,
    /// When it began, by the conduit's clock.
    pub(crate) begun: Duration,
    /// What tells it from uses that were asked for elsewhere.
    pub(crate) site: u64,
}

/// A use of a peer's memory that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteUse {
    /// A put or a get.
    pub(crate) kind: UseKind,
    pub(crate) peer: Rank,
    /// What of the peer's is meant, by its key: its segment, or a buffer that it exposed.
    pub(crate) region: u64,
    /// The first byte there, and how many.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Whether all firehoses were there that it needs.
    pub(crate) is_attached: bool,
    /// As of [`Use`].
    pub(crate) begun: Duration,
    pub(crate) site: u64,
}

/// Who is told of each use, by the thread that began it or found out about it. Handlers may be on the way,
/// so that it must not wait.
pub(crate) trait Uses: Send + Sync {
    /// Memory is used.
    fn used(&self, it: &Use);

    /// Whether uses of peers' memory are to be told.
    fn wants_reached(&self) -> bool;

    /// A peer's memory is used.
    fn reached(&self, it: &RemoteUse);

    /// Whether somebody waits for own memory that was in use.
    fn waits_for_freed(&self) -> bool;

    /// Own memory may be free that a peer used: these places, by their first byte and length.
    fn freed(&self, places: &[(u64, u64)]);

    /// All own memory may be free that peers used.
    fn all_freed(&self);
}

/// Has what `body` asks for be known under a number of the caller's, for strategies that predict:
/// the same number for the same place in the program. Where nothing is said, that is the place that
/// called Hydrant. Bindings for other languages, and layers that call Hydrant from one place, say whose
/// place it is.
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

/// Has uses of own memory not be told that `body` begins, because somebody else tells of them.
pub(crate) fn untold<R>(body: impl FnOnce() -> R) -> R {
    at_site(UNTOLD, body)
}

/// Whether the uses that the thread begins are not told.
pub(crate) fn are_untold() -> bool {
    SITE.get() == UNTOLD
}

/// The number of the place in a program whose uses are not told.
const UNTOLD: u64 = u64::MAX;

/// The number of what the thread does; else that of a place in the program.
pub(crate) fn site_or(location: &'static Location<'static>) -> u64 {
    match SITE.get() {
        0 => std::ptr::from_ref(location).addr() as u64,
        site => site,
    }
}

/// The number of what the thread does; else one that stands for a peer.
pub(crate) fn site_or_peer(peer: Rank) -> u64 {
    match SITE.get() {
        // No place in a program lies there.
        0 => UNTOLD - 1 - u64::from(peer.0),
        site => site,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_holds_for_what_is_asked_for_within() {
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
