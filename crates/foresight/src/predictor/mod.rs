//! The predictor of the next use of a buffer (§3.1, §4.2).
//!
//! [`Landmarks`] sees the communications of one thread as they are read from the deregistration queue. For each use of
//! a registered buffer it forecasts the next use with the same [`Signature`], and corrects the forecast later. The
//! paper's predictor and its rival are in `repro/traces`, which compares them.

mod generations;
mod history;
mod landmarks;
mod path;

use crate::signature::Signature;
use crate::time::Time;

pub use landmarks::Landmarks;
pub(crate) use landmarks::MOST_SITES;

/// One communication, as a predictor sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// The signature of the communication.
    pub signature: Signature,
    /// The time of its begin.
    pub at: Time,
    /// The time at which the helper heard of it. For a long communication that is long after its begin, and the
    /// helper can do nothing before.
    pub heard: Time,
    /// True if its buffer is to be registered. Others serve as landmarks only.
    pub wanted: bool,
    /// The lead time: a forecast this long before the next use is in time to register the buffer.
    pub lead_ns: u64,
}

/// A forecast of a use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// The most likely time.
    pub expected: Time,
    /// A time that the use is hardly ever before: the registration deadline.
    pub earliest: Time,
    /// The period underlying the forecast.
    pub period_ns: u64,
    /// True if a landmark is still to come that always preceded this use on this path. Nothing needs to be done
    /// before it.
    pub awaits: bool,
}

impl Forecast {
    /// The same forecast, shifted by `ns`.
    pub(crate) fn later(self, ns: u64) -> Self {
        Self {
            expected: self.expected.after(ns),
            earliest: self.earliest.after(ns),
            ..self
        }
    }
}

/// A predictor's new forecast of a use; `None` if it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// The use.
    pub signature: Signature,
    /// Its forecast.
    pub forecast: Option<Forecast>,
}

#[cfg(all(test, not(loom)))]
mod tests;
