//! Which memory of a peer that is pulled is still registered there, as far as can be told from here:
//! the peer keeps what it registered for pulls as victims, and gives up the oldest for new ones.

use super::places::Places;

/// Most places that are known of.
const ENTRIES: usize = 1 << 11;

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    count: u64,
    /// Buckets that had been registered when it was pulled last.
    when: u64,
}

/// What was pulled from a peer.
#[derive(Debug)]
pub(in crate::engine) struct Pulled {
    /// By the first bucket.
    places: Places<u64, Entry>,
    /// Buckets that the peer has registered for pulls.
    registered: u64,
    /// Buckets that it said it can register yet and give nothing up, less those registered since.
    room: u64,
}

impl Default for Pulled {
    fn default() -> Self {
        Self {
            places: Places::new(ENTRIES),
            registered: 0,
            room: 0,
        }
    }
}

impl Pulled {
    /// Whether a run is likely registered at a peer that keeps so many buckets.
    pub(in crate::engine) fn is_near(&self, first: u64, count: u64, kept: u64) -> bool {
        (self.places.get(first))
            .is_some_and(|entry| entry.count >= count && self.registered - entry.when <= kept)
    }

    /// Whether the peer can register so many and give nothing up.
    pub(in crate::engine) fn has_room(&self, count: u64) -> bool {
        count <= self.room
    }

    /// The peer said what room it has, as [`Fetched`](crate::Message::Fetched) says it.
    pub(in crate::engine) fn told_of_room(&mut self, room: u8) {
        self.room = match room {
            0 => 0,
            room => 1 << (room - 1).min(62),
        };
    }

    /// A run was not registered though it was [near](Self::is_near), at a peer that keeps so many buckets:
    /// it gave more up than is known here, and others are likely gone, too.
    pub(in crate::engine) fn missed(&mut self, first: u64, count: u64, kept: u64) {
        self.registered += kept / 8;
        self.note(first, count, false);
    }

    /// A run is pulled; if it was not `near`, it is registered for that.
    pub(in crate::engine) fn note(&mut self, first: u64, count: u64, near: bool) {
        if !near {
            self.registered += count;
            self.room = self.room.saturating_sub(count);
        }
        let entry = Entry {
            count,
            when: self.registered,
        };
        match self.places.get_mut(first) {
            Some(known) => *known = entry,
            None => self.places.add(first, entry, |_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pulled_lately_is_near() {
        let mut pulled = Pulled::default();
        assert!(!pulled.is_near(0, 1, 100));
        assert!(!pulled.has_room(1));
        pulled.told_of_room(7);
        assert!(pulled.has_room(64) && !pulled.has_room(65));
        pulled.note(0, 60, false);
        assert!(pulled.is_near(0, 60, 100) && !pulled.is_near(0, 61, 100));
        assert!(pulled.has_room(4) && !pulled.has_room(5));
        pulled.note(1000, 60, false);
        assert!(pulled.is_near(0, 60, 100));
        // What was near already makes no other go.
        (0..10).for_each(|_| pulled.note(1000, 60, true));
        assert!(pulled.is_near(0, 60, 100));
        pulled.note(2000, 60, false);
        assert!(!pulled.is_near(0, 60, 100));
        // A few that were gone say that all of that age is.
        pulled.note(3000, 10, false);
        assert!(pulled.is_near(3000, 10, 100));
        (0..8).for_each(|at| pulled.missed(4000 + at, 1, 100));
        assert!(!pulled.is_near(3000, 10, 100) && pulled.is_near(4007, 1, 100));
    }
}
