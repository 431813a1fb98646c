//! What cannot be, where a value must be taken out of a table that surely has it: a bug of the engine, or of a driver
//! that reports what it was not asked for. Debug builds stop there; others leave that step undone, and the rank lives
//! on. Either counts it, so that somebody hears of it.

use std::{cell::Cell, fmt, panic::Location};

/// How often a room of an engine met what cannot be.
#[derive(Debug, Default)]
pub(super) struct Noted {
    count: Cell<u64>,
    first: Cell<Option<(&'static str, &'static Location<'static>)>>,
}

/// What cannot be was met, and a step of the engine was left undone for it. It prints as a clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Impossible {
    /// How often.
    pub count: u64,
    /// What the first was.
    pub what: &'static str,
    /// Where in the engine that was found.
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

    /// How often.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// What several rooms met, if any did.
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
