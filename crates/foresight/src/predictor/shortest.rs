//! The paper's predictor: the shortest period observed (§4.2).

use super::generations::Generations;
use super::{Observation, Predictor, Update, once_more, period};
use crate::signature::Signature;
use crate::time::Time;

/// The number of call sites kept.
pub(super) const MOST_SITES: usize = 1 << 13;

/// The paper's call site hash table: each entry has the moment of the last registration and the shortest time between
/// two.
///
/// The shortest period is used because network, operating system and computation only ever add time. A use expected
/// too early costs memory; a use expected too late costs time. The same rule serves irregular applications (§3.1,
/// "Discussion"): the shortest in the same context is safe.
#[derive(Debug)]
pub struct Shortest {
    sites: Generations<Signature, ShortestPeriod>,
}

#[derive(Debug)]
struct ShortestPeriod {
    last: Time,
    shortest_ns: Option<u64>,
}

impl Shortest {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            sites: Generations::new(MOST_SITES),
        }
    }
}

impl Default for Shortest {
    fn default() -> Self {
        Self::new()
    }
}

impl Predictor for Shortest {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        if !seen.wanted {
            return;
        }
        let Observation { signature, at, .. } = *seen;
        let mut is_new = false;
        let site = self.sites.get_or_insert_with(signature, || {
            is_new = true;
            ShortestPeriod {
                last: at,
                shortest_ns: None,
            }
        });
        if !is_new && let Some(new) = period(site.last, at) {
            site.shortest_ns = Some(site.shortest_ns.map_or(new, |it| it.min(new)));
        }
        site.last = at;
        let forecast = site.shortest_ns.map(|ns| once_more(at, ns));
        updates.push(Update {
            signature,
            forecast,
        });
    }
}
