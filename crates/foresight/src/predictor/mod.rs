//! When a use of a buffer comes again (§3.1, §4.2).
//!
//! A [`Predictor`] sees the communications of one thread as they are read from the deregistration
//! queue, and says of each use whose buffer is registered when the next of the same
//! [`Signature`] comes. There are four:
//!
//! | method | what it goes by |
//! |---|---|
//! | [`Shortest`](Method::Shortest) | the paper's: the shortest time ever seen between two uses of a signature |
//! | [`Median`](Method::Median) | the median of the last few |
//! | [`Periodicity`](Method::Periodicity) | the paper's rival (Freitag and others): the last round of a pattern found in the stream |
//! | [`Landmarks`](Method::Landmarks) | ours: which way the program goes, the densest of the times that this took, and the last communication before the use |
//!
//! The first says one thing about a use, at the use before. The last corrects itself on the way, so
//! a predictor may change what it said about any signature at any time.

mod generations;
mod history;
mod landmarks;
mod median;
mod periodicity;
mod shortest;
mod way;

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
    /// What it is.
    pub signature: Signature,
    /// When it began.
    pub at: Time,
    /// When the helper heard of it, which for a long communication is long after it began: nothing can be done
    /// about what comes next before that.
    pub heard: Time,
    /// Whether its buffer is to be registered. Others are landmarks only.
    pub wanted: bool,
    /// How long before its next use that must be known, for the buffer to be registered in time.
    pub lead_ns: u64,
}

/// When a use is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// Most likely then.
    pub expected: Time,
    /// Hardly ever before: the registration deadline.
    pub earliest: Time,
    /// The period that this stands on.
    pub period_ns: u64,
    /// Whether a communication that has come before this use whenever the program went this way is
    /// yet to come: nothing needs to be done before it.
    pub awaits: bool,
}

impl Forecast {
    /// The same, so much later.
    pub(crate) fn later(self, ns: u64) -> Self {
        Self {
            expected: self.expected.after(ns),
            earliest: self.earliest.after(ns),
            ..self
        }
    }
}

/// What a predictor says of a use from now on; `None` is that it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// Which use.
    pub signature: Signature,
    /// When it is expected.
    pub forecast: Option<Forecast>,
}

/// What predicts.
pub trait Predictor: fmt::Debug + Send {
    /// Takes in the next communication of the stream, and adds to `updates` what is expected otherwise
    /// from now on: of this signature, if its buffer is wanted, and maybe of others.
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>);
}

/// Which predictor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// The paper's (§4.2).
    Shortest,
    /// The median of the last `of` periods.
    Median {
        /// How many periods.
        of: usize,
    },
    /// Freitag's: patterns of a stream compared with itself in a window.
    Periodicity {
        /// How many communications must repeat themselves.
        window: usize,
    },
    /// Ours.
    Landmarks,
}

impl Method {
    /// A predictor that knows nothing yet.
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

/// The time between two uses; `None` where the clock was set back, for that says nothing.
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
