//! A running median of the periods: the obvious improvement on the shortest period.

use std::collections::HashMap;

use hydrant_foresight::{
    Signature, Time,
    predictor::{Observation, Update},
};

use super::{Predictor, once_more, period};

/// The median of the last few periods of each signature.
pub(super) struct Median {
    of: usize,
    sites: HashMap<Signature, (Time, Vec<u64>)>,
}

impl Median {
    /// Makes a predictor from the last `of` periods.
    pub(super) fn new(of: usize) -> Self {
        Self {
            of: of.max(1),
            sites: HashMap::new(),
        }
    }
}

impl Predictor for Median {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        if !seen.wanted {
            return;
        }
        let (signature, at) = (seen.signature, seen.at);
        let mut periods = Vec::new();
        if let Some((last, before)) = self.sites.remove(&signature) {
            periods = before;
            periods.extend(period(last, at));
            let old = periods.len().saturating_sub(self.of);
            periods.drain(..old);
        }
        let mut sorted = periods.clone();
        sorted.sort_unstable();
        self.sites.insert(signature, (at, periods));
        let median = sorted.get(sorted.len() / 2);
        let forecast = median.map(|&ns| once_more(at, ns));
        updates.push(Update {
            signature,
            forecast,
        });
    }
}
