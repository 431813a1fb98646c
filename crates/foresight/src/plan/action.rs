//! What a plan asks for, and what it counts.

use crate::communication::Region;
use crate::predictor::Forecast;
use crate::time::Time;

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
    /// Those of them that had been expected, and were not registered then.
    pub late: u64,
    /// Uses that the limit kept from registering it.
    pub refused: u64,
    /// Regions that the helper registered and nobody used.
    pub unused: u64,
    /// Times that the limit put a registration off.
    pub postponed: u64,
    /// Registrations of the helper's that failed.
    pub failed: u64,
    /// Predictions in force when the use came, by their error as a part of the period: up to each of
    /// [`ERRORS`], and above.
    pub errors: [u64; ERRORS.len() + 1],
}

/// Errors of predictions that [`Stats::errors`] tells apart, in thousandths of the period.
pub const ERRORS: [u64; 4] = [5, 10, 50, 200];

impl Stats {
    /// A use came that was expected.
    pub(super) fn count_error(&mut self, forecast: &Forecast, came: Time) {
        let off_ns = forecast.expected.0.abs_diff(came.0);
        let off = off_ns.saturating_mul(1000) / forecast.period_ns.max(1);
        let at = ERRORS.iter().position(|most| off <= *most);
        self.errors[at.unwrap_or(ERRORS.len())] += 1;
    }
}
