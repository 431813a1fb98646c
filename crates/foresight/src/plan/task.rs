//! The tasks that the plan gives its helper, and the plan's counters.

use crate::communication::PageRun;
use crate::predictor::Forecast;
use crate::time::Time;

/// A thread of the application.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub(super) u32);

/// A region of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub(super) u64);

/// The helper's next task, whose result it reports to the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the plan waits for its report"]
pub enum HelperTask {
    /// Register these bytes; then [`Plan::registered`](super::Plan::registered) or [`Plan::not_registered`](super::Plan::not_registered).
    Register {
        /// The region's id.
        id: RegionId,
        /// The bytes to register.
        region: PageRun,
    },
    /// Deregister these bytes; then [`Plan::deregistered`](super::Plan::deregistered) or [`Plan::still_used`](super::Plan::still_used).
    Deregister {
        /// The region's id.
        id: RegionId,
        /// The bytes to deregister.
        region: PageRun,
    },
}

/// Counts of events so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Uses that found their buffer registered.
    pub found: u64,
    /// Those that the helper had registered ahead.
    pub ahead: u64,
    /// Uses that registered their buffer themselves, on the critical path.
    pub on_demand: u64,
    /// Those that were expected, but not registered in time.
    pub late: u64,
    /// Uses that the limit kept from registering their buffer.
    pub refused: u64,
    /// Regions that the helper registered and that were not used.
    pub unused: u64,
    /// Times that the limit postponed a registration.
    pub postponed: u64,
    /// Registrations of the helper that failed.
    pub failed: u64,
    /// Uses by the error of their forecast in force, as a part of the period: up to each of [`ERRORS`], and above.
    pub errors: [u64; ERRORS.len() + 1],
}

/// The classes of [`Stats::errors`], in thousandths of the period.
pub const ERRORS: [u64; 4] = [5, 10, 50, 200];

impl Stats {
    /// Counts the forecast error of a use that has come.
    pub(super) fn count_error(&mut self, forecast: &Forecast, came: Time) {
        let off_ns = forecast.expected.0.abs_diff(came.0);
        let off = off_ns.saturating_mul(1000) / forecast.period_ns.max(1);
        let at = ERRORS.iter().position(|most| off <= *most);
        self.errors[at.unwrap_or(ERRORS.len())] += 1;
    }
}
