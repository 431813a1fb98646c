//! Predictors of the next use of a buffer (§3.1, §4.2), compared by experiments.
//!
//! | method | basis |
//! |---|---|
//! | [`Shortest`](Method::Shortest) | the paper's: the shortest time ever seen between two uses of a signature |
//! | [`Median`](Method::Median) | the median of the last few periods |
//! | [`Periodicity`](Method::Periodicity) | the paper's rival (Freitag and others): the last round of a pattern found in the stream |
//! | [`Landmarks`](Method::Landmarks) | the one that ships: [`hydrant_foresight::predictor`] |
//!
//! The first three forecast a use once, at the use before. Landmarks correct the forecast later.

mod median;
mod periodicity;
mod shortest;

use std::fmt;

use hydrant_foresight::{
    Time,
    predictor::{Forecast, Landmarks, Observation, Update},
};
use median::Median;
use periodicity::Periodicity;
use shortest::Shortest;

/// A prediction method's state for one thread.
pub trait Predictor {
    /// Observes the next communication of the stream, and appends changed forecasts to `updates`. They are of this
    /// signature, if its buffer is wanted, and maybe of others.
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>);
}

impl Predictor for Landmarks {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        self.observe(seen, updates);
    }
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
            Method::Shortest => Box::new(Shortest::default()),
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

#[cfg(test)]
mod tests;
