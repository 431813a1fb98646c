//! Impossible states: a value is missing from a table that must have it. The cause is a bug of the
//! engine, or of a driver that reports an event without a cause. Debug builds stop there. Other
//! builds skip that step, and the rank lives on. Both count it, so that it is reported.

use std::{cell::Cell, fmt, panic::Location};

/// The number of impossible states that a module of an engine met.
#[derive(Debug, Default)]
pub(super) struct Noted {
    count: Cell<u64>,
    first: Cell<Option<(&'static str, &'static Location<'static>)>>,
}

/// An impossible state was met, and a step of the engine was left undone for it. It prints as a clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Impossible {
    /// The number of such states.
    pub count: u64,
    /// A description of the first.
    pub what: &'static str,
    /// The place in the engine that found the first.
    pub place: &'static Location<'static>,
}

impl Noted {
    #[track_caller]
    #[cold]
    pub(super) fn note(&self, what: &'static str) {
        self.count.set(self.count.get() + 1);
        self.first
            .set(self.first.get().or(Some((what, Location::caller()))));
        debug_assert!(false, "impossible: {what}");
    }

    /// The number so far.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// The sum over several modules, if there were any.
    pub(super) fn sum(all: &[&Self]) -> Option<Impossible> {
        let (what, place) = all.iter().find_map(|it| it.first.get())?;
        let count = all.iter().map(|it| it.count()).sum();
        Some(Impossible { count, what, place })
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, what, place } = self;
        let times = if *count == 1 { "time" } else { "times" };
        write!(
            f,
            "the engine of registration met {count} {times} what cannot be, first that {what} ({}:{})",
            place.file(),
            place.line()
        )
    }
}
