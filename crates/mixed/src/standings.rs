//! Who takes part, of what two conduits say.
//!
//! A mate's end is told by both conduits, one after the other, and is one change all the same.
//! So what is known is kept here, and looked at anew when either conduit counts a change.

use std::sync::{
    Mutex, PoisonError,
    atomic::{
        AtomicU8, AtomicU32, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use hydrant_conduit::{Conduit, Rank, Standing};

use crate::mates::Mates;

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const LOST: u8 = 2;

/// No rank.
const NOBODY: u32 = u32::MAX;

/// What is known of the ranks of the job.
#[derive(Debug)]
pub(crate) struct Standings {
    known: Box<[AtomicU8]>,
    changes: AtomicU64,
    first_lost: AtomicU32,
    /// How many changes the conduits had counted when they were last looked at.
    counted: AtomicU64,
    looking: Mutex<()>,
}

impl Standings {
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            known: (0..ranks).map(|_| AtomicU8::new(PRESENT)).collect(),
            changes: AtomicU64::new(0),
            first_lost: AtomicU32::new(NOBODY),
            counted: AtomicU64::new(0),
            looking: Mutex::new(()),
        }
    }

    /// How a rank stands, as last looked at.
    #[inline]
    pub(crate) fn of(&self, rank: Rank) -> Standing {
        match self.known.get(rank.index()).map(|word| word.load(Acquire)) {
            Some(PRESENT) => Standing::Present,
            Some(LEFT) => Standing::Left,
            _ => Standing::Lost,
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    pub(crate) fn first_lost(&self) -> Option<Rank> {
        let rank = self.first_lost.load(Acquire);
        (rank != NOBODY).then_some(Rank(rank))
    }

    /// Looks at the conduits, if they have counted a change since.
    #[inline]
    pub(crate) fn look(&self, near: &dyn Conduit, far: &dyn Conduit, mates: &Mates) {
        let counted = near.changes().wrapping_add(far.changes());
        if self.counted.load(Acquire) != counted {
            self.look_closely(counted, near, far, mates);
        }
    }

    #[cold]
    fn look_closely(&self, counted: u64, near: &dyn Conduit, far: &dyn Conduit, mates: &Mates) {
        let _one = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        for (rank, word) in (0..).map(Rank).zip(&self.known) {
            if word.load(Acquire) != PRESENT {
                continue;
            }
            let by_near = mates.near(rank).map(|mate| near.standing(mate));
            let standing = match by_near {
                None | Some(Standing::Present) => far.standing(rank),
                Some(ended) => ended,
            };
            let now = match standing {
                Standing::Present => continue,
                Standing::Left => LEFT,
                Standing::Lost => LOST,
            };
            if now == LOST && self.first_lost().is_none() {
                // Before anybody can see the loss. The far conduit knows all ranks, and so which
                // of them was first; it may not have heard yet.
                let by_far = far.first_lost();
                let first = by_far.or_else(|| near.first_lost().map(|mate| mates.global(mate)));
                self.first_lost.store(first.unwrap_or(rank).0, Release);
            }
            word.store(now, Release);
            self.changes.fetch_add(1, Release);
        }
        self.counted.store(counted, Release);
    }
}
