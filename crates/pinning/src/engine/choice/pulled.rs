//! A guess which pulled memory of a peer is still registered there. The peer keeps memory that was
//! registered for pulls as victims, and evicts the oldest for new ones.

use super::bounded_map::BoundedMap;

/// The most runs that are remembered.
const ENTRIES: usize = 1 << 11;

#[derive(Clone, Copy, Default, Debug)]
struct PulledRun {
    count: u64,
    /// The count of registered buckets at the last pull of this run.
    when: u64,
}

/// The memory that was pulled from a peer.
#[derive(Debug)]
pub(in crate::engine) struct PulledMemory {
    /// The runs, by first bucket.
    places: BoundedMap<u64, PulledRun>,
    /// The number of buckets that the peer has registered for pulls.
    registered: u64,
    /// The number of buckets that the peer could register without evicting, less those registered
    /// since.
    room: u64,
}

impl Default for PulledMemory {
    fn default() -> Self {
        Self {
            places: BoundedMap::new(ENTRIES),
            registered: 0,
            room: 0,
        }
    }
}

impl PulledMemory {
    /// Returns true if a run is likely registered at a peer that keeps so many buckets.
    pub(in crate::engine) fn is_near(&self, first: u64, count: u64, kept: u64) -> bool {
        (self.places.get(first))
            .is_some_and(|entry| entry.count >= count && self.registered - entry.when <= kept)
    }

    /// Returns true if the peer can register so many buckets without evicting.
    pub(in crate::engine) fn has_room(&self, count: u64) -> bool {
        count <= self.room
    }

    /// Notes the room that the peer reported, as coded in [`Fetched`](crate::EngineMessage::Fetched).
    pub(in crate::engine) fn note_room(&mut self, room: u8) {
        self.room = match room {
            0 => 0,
            room => 1 << (room - 1).min(62),
        };
    }

    /// Notes that a run was not registered although it was [near](Self::is_near), at a peer that
    /// keeps `kept` buckets. So the peer evicts more than is known here, and other runs are likely
    /// gone too.
    pub(in crate::engine) fn note_missing(&mut self, first: u64, count: u64, kept: u64) {
        self.registered += kept / 8;
        self.note(first, count, false);
    }

    /// Notes that a run is pulled; if it was not `near`, the peer registers it.
    pub(in crate::engine) fn note(&mut self, first: u64, count: u64, near: bool) {
        if !near {
            self.registered += count;
            self.room = self.room.saturating_sub(count);
        }
        let entry = PulledRun {
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
    fn recently_pulled_memory_is_near() {
        let mut pulled = PulledMemory::default();
        assert!(!pulled.is_near(0, 1, 100));
        assert!(!pulled.has_room(1));
        pulled.note_room(7);
        assert!(pulled.has_room(64) && !pulled.has_room(65));
        pulled.note(0, 60, false);
        assert!(pulled.is_near(0, 60, 100) && !pulled.is_near(0, 61, 100));
        assert!(pulled.has_room(4) && !pulled.has_room(5));
        pulled.note(1000, 60, false);
        assert!(pulled.is_near(0, 60, 100));
        // A pull of near memory evicts nothing.
        (0..10).for_each(|_| pulled.note(1000, 60, true));
        assert!(pulled.is_near(0, 60, 100));
        pulled.note(2000, 60, false);
        assert!(!pulled.is_near(0, 60, 100));
        // A few missing runs suggest that all of their age are missing.
        pulled.note(3000, 10, false);
        assert!(pulled.is_near(3000, 10, 100));
        (0..8).for_each(|at| pulled.note_missing(4000 + at, 1, 100));
        assert!(!pulled.is_near(3000, 10, 100) && pulled.is_near(4007, 1, 100));
    }
}
