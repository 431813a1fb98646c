//! The rents that unattached buckets paid recently, for a bounded number of buckets.

use super::bounded_map::BoundedMap;
use crate::Run;

/// The most buckets that are remembered.
const ENTRIES: usize = 1 << 12;
/// The half-life of a rent, counted in payments: a few times the number of firehoses, within these
/// bounds.
const TIMES: u64 = 4;
const HALF_LIFE: [u64; 2] = [256, ENTRIES as u64];

#[derive(Clone, Copy, Default, Debug)]
struct Rent {
    paid: u64,
    /// The number of half-lives that were over at the last payment.
    when: u64,
}

/// The rents by peer and bucket.
#[derive(Debug)]
pub(super) struct Rents {
    places: BoundedMap<(u32, u64), Rent>,
    payments: u64,
    half_life: u64,
}

impl Rents {
    pub(super) fn new(firehoses: u64) -> Self {
        Self {
            places: BoundedMap::new(ENTRIES),
            payments: 0,
            half_life: (TIMES * firehoses).clamp(HALF_LIFE[0], HALF_LIFE[1]),
        }
    }

    /// The recent rent of a bucket.
    pub(super) fn of(&self, place: (u32, u64)) -> u64 {
        (self.places.get(place)).map_or(0, |rent| rent.remaining(self.over()))
    }

    /// Adds a payment to the rent of a bucket.
    pub(super) fn pay(&mut self, place: (u32, u64), nanos: u64) {
        self.payments += 1;
        let when = self.over();
        if let Some(rent) = self.places.get_mut(place) {
            let paid = rent.remaining(when).saturating_add(nanos);
            *rent = Rent { paid, when };
            return;
        }
        let rent = Rent { paid: nanos, when };
        self.places.add(place, rent, |other| {
            // A bucket that paid more stays, for a while only.
            let left = other.remaining(when);
            *other = Rent {
                paid: left.saturating_sub(nanos),
                when,
            };
            left <= nanos
        });
    }

    /// Forgets buckets that a peer takes back: other memory at these addresses has paid nothing.
    pub(super) fn forget(&mut self, peer: u32, run: Run) {
        let buckets = run.first..run.first.saturating_add(run.count);
        if run.count < ENTRIES as u64 {
            buckets.for_each(|bucket| self.places.forget((peer, bucket)));
            return;
        }
        (self.places).forget_those(|(of, bucket)| of == peer && buckets.contains(&bucket));
    }

    /// The number of half-lives that are over.
    fn over(&self) -> u64 {
        self.payments / self.half_life
    }
}

impl Rent {
    /// Returns the part of the payment that still counts.
    fn remaining(&self, over: u64) -> u64 {
        let halves = (over - self.when) as u32;
        self.paid.checked_shr(halves).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use hydrant_base::Random;

    use super::*;

    #[test]
    fn payments_add_up_and_fade() {
        let mut rents = Rents::new(250);
        assert_eq!(rents.of((1, 5)), 0);
        (0..10).for_each(|_| rents.pay((1, 5), 100));
        assert_eq!(rents.of((1, 5)), 1000);
        assert_eq!(rents.of((2, 5)), 0);
        (0..2 * 1000).for_each(|_| rents.pay((1, 6), 0));
        assert_eq!(rents.of((1, 5)), 250);
    }

    #[test]
    fn new_memory_at_revoked_addresses_has_paid_nothing() {
        for count in [2, 1 << 20, u64::MAX] {
            let mut rents = Rents::new(250);
            rents.forget(1, Run { first: 0, count });
            let places = [(1, 4), (1, 5), (1, 6), (2, 5)];
            places.iter().for_each(|place| rents.pay(*place, 100));
            rents.forget(1, Run { first: 5, count });
            assert_eq!(places.map(|place| rents.of(place)), [100, 0, 0, 100]);
        }
    }

    #[test]
    fn the_table_does_not_grow() {
        let mut rents = Rents::new(250);
        (0..1 << 16).for_each(|bucket| rents.pay((3, bucket), 1));
        assert_eq!(rents.places.len(), ENTRIES);
    }

    /// Payments for memory at other addresses must give the same rents.
    #[test]
    fn addresses_make_no_difference_to_rents() {
        let paid = |from: u64| {
            let mut rents = Rents::new(250);
            let mut random = Random::new(1);
            let places =
                (0..30_000).map(|_| (1 + random.below(4) as u32, from + random.word_below(3000)));
            let told = places.map(|place| {
                rents.pay(place, u64::from(place.0) * (place.1 - from));
                rents.of(place)
            });
            told.collect::<Vec<_>>()
        };
        let here = paid(0);
        assert!(
            [77, 1 << 20, 0x7f12_3456_7890]
                .into_iter()
                .all(|from| paid(from) == here)
        );
    }
}
