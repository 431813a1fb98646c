//! Predictors of the next use of a buffer (§3.1, §4.2).
//!
//! A [`Predictor`] sees the communications of one thread as they are read from the deregistration queue. For each use
//! of a registered buffer it forecasts the next use with the same [`Signature`]. There are four:
//!
//! | method | basis |
//! |---|---|
//! | [`Shortest`](Method::Shortest) | the paper's: the shortest time ever seen between two uses of a signature |
//! | [`Median`](Method::Median) | the median of the last few periods |
//! | [`Periodicity`](Method::Periodicity) | the paper's rival (Freitag and others): the last round of a pattern found in the stream |
//! | [`Landmarks`](Method::Landmarks) | the program's path, its densest duration, and the last communication before the use |
//!
//! The first three forecast a use once, at the use before. Landmarks correct the forecast later, so a predictor may
//! update any signature at any time.

mod generations;
mod history;
mod landmarks;
mod median;
mod path;
mod periodicity;
mod shortest;

use std::fmt;

use crate::signature::Signature;
use crate::time::Time;

pub use landmarks::Landmarks;
pub use median::Median;
pub use periodicity::Periodicity;
pub use shortest::Shortest;

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

/// A prediction method's state for one thread.
pub trait Predictor: fmt::Debug + Send {
    /// Observes the next communication of the stream, and appends changed forecasts to `updates`. They are of this
    /// signature, if its buffer is wanted, and maybe of others.
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>);
}

/// A prediction method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// The paper's method (§4.2).
    Shortest,
    /// The median of the last `of` periods.
    Median {
        /// The number of periods.
        of: usize,
    },
    /// Freitag's method: patterns of a stream compared with itself in a window.
    Periodicity {
        /// The number of communications that must repeat.
        window: usize,
    },
    /// The landmark predictor.
    Landmarks,
}

impl Method {
    /// Makes an empty predictor.
    pub fn predictor(self) -> Box<dyn Predictor> {
        match self {
            Method::Shortest => Box::new(Shortest::new()),
            Method::Median { of } => Box::new(Median::new(of)),
            Method::Periodicity { window } => Box::new(Periodicity::new(window)),
            Method::Landmarks => Box::new(Landmarks::new()),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Shortest => write!(f, "shortest"),
            Method::Median { of } => write!(f, "median of {of}"),
            Method::Periodicity { window } => write!(f, "periodicity {window}"),
            Method::Landmarks => write!(f, "landmarks"),
        }
    }
}

/// The time between two uses; `None` if the clock was set back, because the difference means nothing.
fn period(last: Time, now: Time) -> Option<u64> {
    (now >= last).then(|| now.since(last))
}

/// A forecast by one period from a use.
fn once_more(at: Time, period_ns: u64) -> Forecast {
    let next = at.after(period_ns);
    Forecast {
        expected: next,
        earliest: next,
        period_ns,
        awaits: false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
