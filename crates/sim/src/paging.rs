//! The page translations of a NIC with hardware-assisted paging, which needs no registration.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::memory::Place;

/// The translations that a rank's NIC holds; the least recently used is evicted first.
#[derive(Default)]
pub(crate) struct PageTable {
    used: FxHashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    turn: u64,
}

impl PageTable {
    /// Touches the pages of a place; returns how many had to be paged in.
    pub(crate) fn touch(&mut self, place: Place, most: u64) -> usize {
        let (first, pages) = place.pages();
        let mut faults = 0;
        for page in first..first + pages as u64 {
            self.turn += 1;
            match self.used.insert(page, self.turn) {
                Some(before) => {
                    self.order.remove(&before);
                }
                None => faults += 1,
            }
            self.order.insert(self.turn, page);
            if self.used.len() as u64 > most
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.used.remove(&oldest);
            }
        }
        faults
    }
}
