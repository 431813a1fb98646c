//! The paper's rival: a periodicity predictor (Freitag and others 2001, 2003; §3.1).
//!
//! It compares the last N communications of the stream with those m before them, for each m up to
//! N; the smallest m for which all are the same is the period. What comes next is then what came m
//! communications ago, after the time that this took. So it has to see a pattern and then a
//! whole window of it again before it says anything, and what it says hangs on the
//! window (Figure 6b).

use std::collections::VecDeque;

use super::{Forecast, Observation, Predictor, Update};
use crate::signature::Signature;
use crate::time::Time;

/// The longest window there may be.
const MAX_COMMUNICATIONS: usize = 1 << 12;

/// Patterns of the communications whose buffers are registered.
#[derive(Debug)]
pub struct Periodicity {
    window: usize,
    /// The last communications, as many as a window and a shift need, newest last.
    stream: VecDeque<(Signature, Time)>,
    /// For each shift from 1 on, how many of the last communications were the same so far before.
    same: Vec<usize>,
}

impl Periodicity {
    /// A predictor with a window of so many communications.
    pub fn new(window: usize) -> Self {
        let window = window.clamp(1, MAX_COMMUNICATIONS);
        Self {
            window,
            stream: VecDeque::new(),
            same: vec![0; window],
        }
    }

    /// The shift by which the whole window is the same, if there is one.
    fn shift(&self) -> Option<usize> {
        let at = self.same.iter().position(|&same| same >= self.window)?;
        Some(at + 1)
    }

    /// When the newest communication comes again, if the last round is repeated.
    fn next(&self, shift: usize) -> Option<Forecast> {
        let newest = self.stream.len().checked_sub(1)?;
        let (signature, now) = *self.stream.get(newest)?;
        // The place in the round before that is this one's, and what came after it.
        let before = newest.checked_sub(shift)?;
        let (_, then) = *self.stream.get(before)?;
        let round = self.stream.range(before + 1..);
        let again = round.into_iter().find(|it| it.0 == signature)?;
        let period_ns = again.1.since(then);
        Some(super::once_more(now, period_ns))
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
