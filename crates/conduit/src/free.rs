//! Which places of a table are free.

use std::collections::VecDeque;

/// The free ones of so many places, by number.
#[derive(Debug)]
pub struct FreePlaces {
    /// Those given back, in order.
    back: VecDeque<u32>,
    /// The first one that was never taken; so is every one after it.
    fresh: u32,
    /// How many places there are.
    limit: u32,
}

impl FreePlaces {
    /// So many places, all of them free.
    pub fn new(limit: u32) -> Self {
        Self {
            back: VecDeque::new(),
            fresh: 0,
            limit,
        }
    }

    /// Takes the place given back last, so that little of the table is ever touched.
    pub fn take(&mut self) -> Option<u32> {
        self.back.pop_back().or_else(|| self.take_fresh())
    }

    /// Takes a place that was never taken, or else the one given back first: what still names it
    /// from before stays wrong for long.
    pub fn take_oldest(&mut self) -> Option<u32> {
        self.take_fresh().or_else(|| self.back.pop_front())
    }

    /// A place is free again. It was taken, and is given back once.
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
    fn every_place_is_taken_once() {
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
