//! What buckets that are not attached have cost lately, in a table of a fixed size.

use crate::Run;

/// Entries of the table.
const ENTRIES: usize = 1 << 12;
/// After so many payments each counts half: a few times as many as there are firehoses, within these
/// bounds.
const TIMES: u64 = 4;
const HALF_LIFE: [u64; 2] = [256, ENTRIES as u64];

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    place: (u32, u64),
    paid: u64,
    /// Half-lives over when it was last looked at.
    when: u64,
}

/// Who paid how much.
#[derive(Debug)]
pub(super) struct Rents {
    /// By a hash of the place; made at the first payment.
    entries: Vec<Entry>,
    payments: u64,
    half_life: u64,
}

impl Rents {
    pub(super) fn new(firehoses: u64) -> Self {
        Self {
            entries: Vec::new(),
            payments: 0,
            half_life: (TIMES * firehoses).clamp(HALF_LIFE[0], HALF_LIFE[1]),
        }
    }

    /// What was paid for a place lately.
    pub(super) fn of(&self, place: (u32, u64)) -> u64 {
        match self.entries.get(slot(place)) {
            Some(entry) if entry.place == place => self.left(entry),
            _ => 0,
        }
    }

    /// So much was paid for a place, once more.
    pub(super) fn pay(&mut self, place: (u32, u64), nanos: u64) {
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); ENTRIES];
        }
        self.payments += 1;
        let when = self.payments / self.half_life;
        let entry = self.entries[slot(place)];
        let left = self.left(&entry);
        self.entries[slot(place)] = match entry.place == place {
            true => Entry {
                place,
                paid: left.saturating_add(nanos),
                when,
            },
            // Who has paid more stays, and does so for a while only.
            false if left > nanos => Entry {
                paid: left - nanos,
                when,
                ..entry
            },
            false => Entry {
                place,
                paid: nanos,
                when,
            },
        };
    }

    /// A peer takes buckets back: what comes to lie there has paid nothing.
    pub(super) fn forget(&mut self, peer: u32, run: Run) {
        let last = run.first.saturating_add(run.count);
        if self.entries.is_empty() {
            return;
        }
        if run.count < ENTRIES as u64 {
            for bucket in run.first..last {
                let entry = &mut self.entries[slot((peer, bucket))];
                if entry.place == (peer, bucket) {
                    *entry = Entry::default();
                }
            }
            return;
        }
        for entry in &mut self.entries {
            if entry.place.0 == peer && (run.first..last).contains(&entry.place.1) {
                *entry = Entry::default();
            }
        }
    }

    fn left(&self, entry: &Entry) -> u64 {
        let over = self.payments / self.half_life - entry.when;
        entry.paid.checked_shr(over as u32).unwrap_or(0)
    }
}

fn slot((peer, bucket): (u32, u64)) -> usize {
    let mixed = (bucket ^ (u64::from(peer) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paid_adds_up_and_fades() {
        let mut rents = Rents::new(250);
        assert_eq!(rents.of((1, 5)), 0);
        (0..10).for_each(|_| rents.pay((1, 5), 100));
        assert_eq!(rents.of((1, 5)), 1000);
        assert_eq!(rents.of((2, 5)), 0);
        (0..2 * 1000).for_each(|_| rents.pay((1, 6), 0));
        assert_eq!(rents.of((1, 5)), 250);
    }

    #[test]
    fn what_lies_where_memory_was_taken_back_has_paid_nothing() {
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
        assert_eq!(rents.entries.len(), ENTRIES);
    }
}
