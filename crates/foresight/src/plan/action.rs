//! What a plan asks for, and what it counts.

use crate::communication::Region;

/// Which thread of the application.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub(super) u32);

/// Which region of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub(super) u64);

/// What the helper is to do next, and to report when it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the plan waits for its report"]
pub enum Action {
    /// Register these bytes; then [`Plan::registered`](super::Plan::registered) or [`Plan::not_registered`](super::Plan::not_registered).
    Register {
        /// Which.
        id: RegionId,
        /// What.
        region: Region,
    },
    /// Deregister these bytes; then [`Plan::deregistered`](super::Plan::deregistered) or [`Plan::still_used`](super::Plan::still_used).
    Deregister {
        /// Which.
        id: RegionId,
        /// What.
        region: Region,
    },
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Uses that found their buffer registered.
    pub found: u64,
    /// Those of them for which the helper had registered it.
    pub ahead: u64,
    /// Uses that had to register it, on the critical path.
    pub on_demand: u64,
    /// Those of them that had been expected: the helper was late.
    pub late: u64,
    /// Uses that the limit kept from registering it.
    pub refused: u64,
    /// Regions that the helper registered and nobody used.
    pub unused: u64,
    /// Registrations that the limit put off.
    pub postponed: u64,
    /// Registrations of the helper's that failed.
    pub failed: u64,
}
