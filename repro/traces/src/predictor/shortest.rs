//! The paper's predictor: the shortest period observed (§4.2).

use std::collections::HashMap;

use hydrant_foresight::{
    Signature, Time,
    predictor::{Observation, Update},
};

use super::{Predictor, once_more, period};

/// The paper's call site hash table: each entry has the moment of the last registration and the shortest time between
/// two.
///
/// The shortest period is used because network, operating system and computation only ever add time. A use expected
/// too early costs memory; a use expected too late costs time. The same rule serves irregular applications (§3.1,
/// "Discussion"): the shortest in the same context is safe.
#[derive(Default)]
pub(super) struct Shortest {
    sites: HashMap<Signature, (Time, Option<u64>)>,
}

impl Predictor for Shortest {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        if !seen.wanted {
            return;
        }
        let (signature, at) = (seen.signature, seen.at);
        let before = self.sites.get(&signature).copied();
        let shortest_ns = before.and_then(|(last, shortest_ns)| {
            let known = shortest_ns.into_iter();
            known.chain(period(last, at)).min()
        });
        self.sites.insert(signature, (at, shortest_ns));
        let forecast = shortest_ns.map(|ns| once_more(at, ns));
        updates.push(Update {
            signature,
            forecast,
        });
    }
}
