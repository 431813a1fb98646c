//! The paper's rival: a periodicity predictor (Freitag and others 2001, 2003; §3.1).
//!
//! It compares the last N communications of the stream with those m before them, for each m up to N. The smallest m
//! for which all are equal is the period. The forecast repeats the last m communications, with the times that they
//! took. So the predictor has to see a pattern and then a whole window of it again before it forecasts, and its
//! forecasts depend on the window (Figure 6b).

use std::collections::VecDeque;

use hydrant_foresight::{
    Signature, Time,
    predictor::{Forecast, Observation, Update},
};

use super::{Predictor, once_more};

/// The longest possible window.
const MAX_COMMUNICATIONS: usize = 1 << 12;

/// Finds patterns in the communications whose buffers are registered.
pub(super) struct Periodicity {
    window: usize,
    /// The last communications, newest last; their number covers a window and a shift.
    stream: VecDeque<(Signature, Time)>,
    /// For each shift from 1 on, the number of last communications equal to those shifted.
    same: Vec<usize>,
}

impl Periodicity {
    /// Makes a predictor with a window of this many communications.
    pub(super) fn new(window: usize) -> Self {
        let window = window.clamp(1, MAX_COMMUNICATIONS);
        Self {
            window,
            stream: VecDeque::new(),
            same: vec![0; window],
        }
    }

    /// The shift at which the whole window repeats, if any.
    fn shift(&self) -> Option<usize> {
        let at = self.same.iter().position(|&same| same >= self.window)?;
        Some(at + 1)
    }

    /// Forecasts the newest communication, assuming that the last round repeats.
    fn next(&self, shift: usize) -> Option<Forecast> {
        let newest = self.stream.len().checked_sub(1)?;
        let (signature, now) = *self.stream.get(newest)?;
        // Find this communication in the round before, and its next occurrence after that.
        let before = newest.checked_sub(shift)?;
        let (_, then) = *self.stream.get(before)?;
        let round = self.stream.range(before + 1..);
        let again = round.into_iter().find(|it| it.0 == signature)?;
        let period_ns = again.1.since(then);
        Some(once_more(now, period_ns))
    }
}

impl Predictor for Periodicity {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        if !seen.wanted {
            return;
        }
        let signature = seen.signature;
        for (at, same) in self.same.iter_mut().enumerate() {
            let earlier = self.stream.len().checked_sub(at + 1);
            let is_same = earlier
                .and_then(|it| self.stream.get(it))
                .is_some_and(|it| it.0 == signature);
            *same = if is_same { *same + 1 } else { 0 };
        }
        if self.stream.len() > self.window {
            self.stream.pop_front();
        }
        self.stream.push_back((signature, seen.at));
        let forecast = self.shift().and_then(|shift| self.next(shift));
        updates.push(Update {
            signature,
            forecast,
        });
    }
}
