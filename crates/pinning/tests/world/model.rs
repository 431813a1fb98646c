//! The operations in flight, without engines: their bytes, the expected outcome, and the errors
//! that may occur.

use hydrant_pinning::Direction;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct KnownOperation {
    pub(crate) rank: usize,
    pub(crate) peer: usize,
    pub(crate) direction: Direction,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) len: u64,
    /// The bytes of the source at the start.
    pub(crate) data: Vec<u8>,
    /// The bytes of the destination at the start.
    pub(crate) before: Vec<u8>,
    /// True if it may end with an error.
    pub(crate) may_fail: bool,
    /// True if it must end with an error.
    pub(crate) must_fail: bool,
    /// True if its memory changes while it is in flight, so that it may reach the old pages.
    pub(crate) changes: bool,
}

impl KnownOperation {
    /// The rank and address that it writes to.
    pub(crate) fn target(&self) -> (usize, u64) {
        if self.direction == Direction::Put {
            (self.peer, self.remote)
        } else {
            (self.rank, self.local)
        }
    }

    pub(crate) fn source(&self) -> (usize, u64) {
        if self.direction == Direction::Put {
            (self.rank, self.local)
        } else {
            (self.peer, self.remote)
        }
    }

    /// Returns true if it uses some of a rank's bytes.
    pub(crate) fn uses(&self, rank: usize, addr: u64, len: u64) -> bool {
        [(self.rank, self.local), (self.peer, self.remote)]
            .iter()
            .any(|(of, at)| *of == rank && overlap(*at, self.len, addr, len))
    }
}

#[derive(Default)]
pub(crate) struct Book {
    pub(crate) known: BTreeMap<u64, KnownOperation>,
    pub(crate) served: u64,
    pub(crate) failed: u64,
}

impl Book {
    /// Returns true if an operation may begin: none writes its bytes, nor uses the bytes that it
    /// writes.
    pub(crate) fn is_free(&self, new: &KnownOperation) -> bool {
        self.known.values().all(|old| {
            let (rank, addr) = new.target();
            let (of, at) = old.target();
            !old.uses(rank, addr, new.len) && !new.uses(of, at, old.len)
        })
    }

    /// Notes that pages of a rank change, or that they are gone.
    pub(crate) fn note_changed(&mut self, rank: usize, addr: u64, len: u64, gone: bool) {
        let known = self.known.values_mut();
        for known in known.filter(|known| known.uses(rank, addr, len)) {
            known.changes = true;
            known.may_fail |= gone;
            known.must_fail &= !gone;
        }
    }

    /// Returns true if the transfer between two places is of an operation whose memory changes.
    pub(crate) fn changes(&self, one: (usize, u64), other: (usize, u64), len: u64) -> bool {
        let mut known = self.known.values().filter(|known| known.changes);
        known.any(|known| known.uses(one.0, one.1, len) && known.uses(other.0, other.1, len))
    }

    /// Notes that pages of a rank are mapped as at first, so that any operation may find them.
    pub(crate) fn note_mapped(&mut self, rank: usize, addr: u64, len: u64) {
        for known in self.known.values_mut() {
            let means = known.peer == rank && overlap(known.remote, known.len, addr, len);
            known.must_fail &= !means;
        }
    }
}

pub(crate) fn overlap(a: u64, a_len: u64, b: u64, b_len: u64) -> bool {
    a < b + b_len && b < a + a_len
}
