//! The free entries of a table.

use std::collections::VecDeque;

/// The free entries of a table, by number.
#[derive(Debug)]
pub struct FreePlaces {
    /// The entries given back, in order.
    back: VecDeque<u32>,
    /// The first entry that was never taken. All later ones were not taken either.
    fresh: u32,
    /// The number of entries.
    limit: u32,
}

impl FreePlaces {
    /// Makes a table of `limit` entries, all of them free.
    pub fn new(limit: u32) -> Self {
        Self {
            back: VecDeque::new(),
            fresh: 0,
            limit,
        }
    }

    /// Takes the entry given back last, so that little of the table is ever touched.
    pub fn take(&mut self) -> Option<u32> {
        self.back.pop_back().or_else(|| self.take_fresh())
    }

    /// Takes an entry that was never taken, or else the entry given back first. Stale names of an
    /// entry thereby stay invalid for long.
    pub fn take_oldest(&mut self) -> Option<u32> {
        self.take_fresh().or_else(|| self.back.pop_front())
    }

    /// Frees an entry. It must have been taken, and is given back once.
    pub fn give_back(&mut self, place: u32) {
        self.back.push_back(place);
    }

    fn take_fresh(&mut self) -> Option<u32> {
        (self.fresh < self.limit).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_taken_once() {
        let mut free = FreePlaces::new(3);
        let taken: Vec<_> = (0..4).map(|_| free.take()).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None]);
        free.give_back(1);
        free.give_back(0);
        assert_eq!(
            [free.take(), free.take(), free.take()],
            [Some(0), Some(1), None]
        );
    }

    #[test]
    fn the_oldest_comes_after_all_fresh_ones() {
        let mut free = FreePlaces::new(3);
        let first = free.take_oldest();
        free.give_back(first.expect("three are free"));
        let taken: Vec<_> = (0..4).map(|_| free.take_oldest()).collect();
        assert_eq!(taken, [Some(1), Some(2), Some(0), None]);
    }
}
