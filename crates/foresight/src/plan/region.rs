//! A region of memory that is registered repeatedly, and its expected uses.

use super::ThreadId;
use super::regions::Places;
use crate::communication::Region;
use crate::predictor::Forecast;
use crate::signature::Signature;
use crate::time::Time;

/// What is known of a region's registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Absent,
    /// The helper was told to register it.
    Registering,
    Registered,
    /// The helper was told to deregister it.
    Deregistering,
}

/// One call site's use of a region (§3.2: a region "which multiple communication call sites may use").
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) thread: ThreadId,
    pub(super) signature: Signature,
    /// When it is expected again, until that is over.
    pub(super) forecast: Option<Forecast>,
}

impl Use {
    /// When it is no longer expected: a period after the moment at which it should have come.
    fn expires(&self) -> Option<Time> {
        let forecast = self.forecast?;
        Some(forecast.expected.after(forecast.period_ns.max(1)))
    }
}

/// What is known of a region.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) memory: Region,
    pub(super) state: State,
    /// Somebody used it when it was to be deregistered: that is not tried again before its next record.
    pub(super) is_held: bool,
    /// The helper registered it, and it was not used since.
    pub(super) is_ahead: bool,
    /// It was due to be given up, but that may have cost more than is [worth it](super::worth).
    pub(super) is_spared: bool,
    /// The cost of giving it up in vain, as of then.
    pub(super) spared_ns: u64,
    /// The charge for giving it up.
    pub(super) charged_ns: u64,
    /// When that was.
    pub(super) charged_at: Time,
    /// It was to be registered, and there was no room.
    pub(super) is_postponed: bool,
    /// When the helper last began to register it.
    pub(super) registered_from: Time,
    pub(super) last_used: Time,
    /// Its keys in the indexes.
    pub(super) places: Places,
    pub(super) uses: Vec<Use>,
}

impl Known {
    pub(super) fn new(memory: Region, now: Time) -> Self {
        Self {
            memory,
            state: State::Absent,
            is_held: false,
            is_ahead: false,
            is_spared: false,
            spared_ns: 0,
            charged_ns: 0,
            charged_at: Time::default(),
            is_postponed: false,
            registered_from: Time::default(),
            last_used: now,
            places: Places::default(),
            uses: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// The registration deadline: the earliest of those of all its uses (§3.2).
    pub(super) fn earliest(&self) -> Option<Time> {
        self.forecasts().map(|it| it.earliest).min()
    }

    /// The earliest deadline that is to be acted upon: not of a use before which something is
    /// yet to come.
    pub(super) fn due(&self) -> Option<Time> {
        self.forecasts()
            .filter(|it| !it.awaits)
            .map(|it| it.earliest)
            .min()
    }

    /// When the first of its uses is no longer expected. At once, if it is registered though none is.
    pub(super) fn expires(&self) -> Option<Time> {
        let first = self.uses.iter().filter_map(Use::expires).min();
        let is_left = self.can_go() && !self.is_spared;
        first.or(is_left.then_some(self.last_used))
    }

    fn forecasts(&self) -> impl Iterator<Item = &Forecast> {
        self.uses.iter().filter_map(|it| it.forecast.as_ref())
    }

    /// Nobody is expected any more who should have come.
    pub(super) fn expire(&mut self, now: Time) {
        for it in &mut self.uses {
            if it.expires().is_some_and(|at| at <= now) {
                it.forecast = None;
            }
        }
    }

    /// Nothing is expected any more.
    pub(super) fn expect_nothing(&mut self) {
        self.uses.iter_mut().for_each(|it| it.forecast = None);
    }

    /// Returns whether it can be given up: it is registered, and no use of it is in progress.
    pub(super) fn can_go(&self) -> bool {
        self.state == State::Registered && !self.is_held
    }

    /// Whether it is registered for a use to come.
    pub(super) fn is_kept(&self) -> bool {
        self.can_go() && self.earliest().is_some()
    }

    /// Whether it is neither registered nor expected to be, so that it can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Absent && self.forecasts().next().is_none()
    }
}
