//! Which memory of a peer that is pulled is still registered there, as far as can be told from here:
//! the peer keeps what it registered for pulls as victims, and gives up the oldest for new ones.

/// Entries of the table.
const ENTRIES: usize = 1 << 11;

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    /// One more than the first bucket; nothing in an entry that is free.
    place: u64,
    count: u64,
    /// Buckets that had been registered when it was pulled last.
    when: u64,
}

/// What was pulled from a peer.
#[derive(Default, Debug)]
pub(in crate::engine) struct Pulled {
    /// By a hash of the first bucket; made at the first pull.
    entries: Vec<Entry>,
    /// Buckets that the peer has registered for pulls.
    registered: u64,
}

impl Pulled {
    /// Whether a run is likely registered at a peer that keeps so many buckets.
    pub(in crate::engine) fn is_near(&self, first: u64, count: u64, kept: u64) -> bool {
        (self.entries.get(slot(first))).is_some_and(|entry| {
            let is_it = entry.place == first + 1 && entry.count >= count;
            is_it && self.registered - entry.when <= kept
        })
    }

    /// Whether a peer that keeps so many buckets has room for these beside those it keeps.
    pub(in crate::engine) fn has_room(&self, count: u64, kept: u64) -> bool {
        self.registered + count <= kept
    }

    /// A run is pulled; if it was not `near`, it is registered for that.
    pub(in crate::engine) fn note(&mut self, first: u64, count: u64, near: bool) {
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); ENTRIES];
        }
        if !near {
            self.registered += count;
        }
        self.entries[slot(first)] = Entry {
            place: first + 1,
            count,
            when: self.registered,
        };
    }
}

fn slot(first: u64) -> usize {
    (first.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pulled_lately_is_near() {
        let mut pulled = Pulled::default();
        assert!(!pulled.is_near(0, 1, 100));
        assert!(pulled.has_room(60, 100));
        pulled.note(0, 60, false);
        assert!(pulled.is_near(0, 60, 100) && !pulled.is_near(0, 61, 100));
        assert!(!pulled.has_room(60, 100));
        pulled.note(1000, 60, false);
        assert!(pulled.is_near(0, 60, 100));
        // What was near already makes no other go.
        (0..10).for_each(|_| pulled.note(1000, 60, true));
        assert!(pulled.is_near(0, 60, 100));
        pulled.note(2000, 60, false);
        assert!(!pulled.is_near(0, 60, 100));
    }
}
