//! A running median of the periods: the obvious improvement on the shortest period.

use super::generations::Generations;
use super::history::{History, KEPT};
use super::shortest::MOST_SITES;
use super::{Observation, Predictor, Update, once_more, period};
use crate::signature::Signature;
use crate::time::Time;

/// The median of the last few periods of each signature.
#[derive(Debug)]
pub struct Median {
    of: usize,
    sites: Generations<Signature, (Time, History)>,
}

impl Median {
    /// Makes a predictor from the last `of` periods, 32 at most.
    pub fn new(of: usize) -> Self {
        Self {
            of: of.clamp(1, KEPT),
            sites: Generations::new(MOST_SITES),
        }
    }
}

impl Predictor for Median {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        if !seen.wanted {
            return;
        }
        let Observation { signature, at, .. } = *seen;
        let mut is_new = false;
        let (last, periods) = self.sites.get_or_insert_with(signature, || {
            is_new = true;
            (at, History::default())
        });
        if !is_new && let Some(new) = period(*last, at) {
            periods.push(new);
        }
        *last = at;
        let forecast = periods.quantile(self.of, 0.5).map(|ns| once_more(at, ns));
        updates.push(Update {
            signature,
            forecast,
        });
    }
}
